"""COCO's instances files: what is needed of them, and the masks of their objects.

A file holds `images`, `annotations` and `categories`. An object's `segmentation` is a list of polygons,
which are united, or an RLE, compressed or not (crowds).

Sources: the format at cocodataset.org; cocodataset/cocoapi, PythonAPI/pycocotools/coco.py (annToRLE).
"""

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from reftables import rle
from reftables.benchmarks.records import as_record, check_size, field, image_name, text_field
from reftables.errors import DataError, preview
from reftables.files import read_text, without_garbage_collection

Record = dict[str, Any]


class Image(NamedTuple):
    """An image of the file; its size in pixels."""

    file_name: str
    width: int
    height: int

    @property
    def path(self) -> str:
        """Where it lies below the image root: COCO keeps each year's training and validation images apart."""
        folders = (folder for folder in ("train2014", "val2014") if folder in self.file_name)
        return "/".join((*folders, self.file_name))


class Instances(NamedTuple):
    """An instances file, of its annotations those that were asked for, all in the file's order."""

    path: str
    images: Mapping[int, Image]
    annotations: Mapping[int, Record]
    categories: Mapping[int, str]

    def where(self, annotation_id: int) -> str:
        """What an error calls an annotation."""
        return f"{self.path}: annotation {annotation_id}"

    def image_of(self, annotation_id: int) -> Image:
        image_id = field(self.annotations[annotation_id], "image_id", int, self.where(annotation_id))
        if image_id not in self.images:
            raise DataError(f"{self.where(annotation_id)}: the file has no image {image_id}")
        return self.images[image_id]


def masks_of(
    instances_path: str, annotation_ids: Sequence[int], *, sizes: Mapping[int, tuple[int, int]] | None = None
) -> tuple[dict[int, rle.Rle], list[str]]:
    """The mask of each annotation by its id, each drawn once, and notes on those that are not as they should be.

    `sizes` tells the (width, height) that an annotation's image has elsewhere; another one is an error.
    """
    instances = read_instances(instances_path, set(annotation_ids))
    masks, notes = draw(instances, annotation_ids)
    for annotation_id, (width, height) in (sizes or {}).items():
        found = masks[annotation_id]["size"]
        if found != [height, width]:
            raise DataError(
                f"{instances.where(annotation_id)}: its image has {found[1]}x{found[0]} pixels here, "
                f"{width}x{height} in the file that refers to it. Do the two belong together?"
            )
    return masks, notes


def read_instances(path: str, annotation_ids: Container[int] | None) -> Instances:
    """The images and categories of a file, and its annotations of these ids (None: all).

    COCO's own files have up to 500 MB. What nobody asked for is dropped while the JSON is read, so memory
    peaks at about twice the file's size; with all annotations it takes six times as much as the file.

    Raises DataError for a file that is cut short, that lacks a list, or whose entries lack an id.
    """
    root = _read_root(path, annotation_ids)
    images = _by_id(path, "image", root["images"])
    annotations = (a for a in root["annotations"] if a is not _LEFT_OUT)
    categories = _by_id(path, "category", root.get("categories", []))
    return Instances(
        path=path,
        images={key: _image(record, f"{path}: image {key}") for key, record in images.items()},
        annotations=_by_id(path, "annotation", annotations),
        categories={key: text_field(record, "name", f"{path}: category {key}") for key, record in categories.items()},
    )


# Stands for an annotation that nobody asked for.
_LEFT_OUT: Record = {}


def _read_root(path: str, annotation_ids: Container[int] | None) -> Record:
    def keep(record: Record) -> Record:
        if annotation_ids is None or "segmentation" not in record:
            return record
        return record if type(record.get("id")) is not int or record["id"] in annotation_ids else _LEFT_OUT

    try:
        with without_garbage_collection():
            root = json.loads(read_text(path), object_hook=keep, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not valid JSON, perhaps cut short; get the file again ({error})") from error
    root = as_record(root, path)
    for name in ("images", "annotations"):
        field(root, name, list, path)
    return root


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _by_id(path: str, what: str, records: Iterable[Any]) -> dict[int, Record]:
    by_id: dict[int, Record] = {}
    for position, record in enumerate(records):
        where = f"{path}: {what} number {position:,} (from 0)"
        key = field(as_record(record, where), "id", int, where)
        if by_id.setdefault(key, record) is not record:
            raise DataError(f"{path}: more than one {what} has the id {key}")
    return by_id


def _image(record: Record, where: str) -> Image:
    image = Image(
        image_name(record, "file_name", where), field(record, "width", int, where), field(record, "height", int, where)
    )
    check_size(image.width, image.height, where)
    return image


def draw(instances: Instances, annotation_ids: Iterable[int]) -> tuple[dict[int, rle.Rle], list[str]]:
    """The mask of each of the annotations, in its image's size, and notes on what could not be drawn.

    Polygon parts of fewer than 3 points have no inside; they are left out. (pycocotools would take one
    of two points for a box.)
    """
    ids = list(dict.fromkeys(annotation_ids))
    if unknown := [i for i in ids if i not in instances.annotations]:
        raise DataError(f"{instances.path}: has no annotations {preview(unknown)}. Is it the file the references need?")
    masks: dict[int, rle.Rle] = {}
    encoded, thinned, thin_parts = [], [], 0
    for i in ids:
        image = instances.image_of(i)
        segmentation = instances.annotations[i].get("segmentation")
        if isinstance(segmentation, dict):
            encoded.append(i)
            continue
        parts = _parts(segmentation, image, instances.where(i))
        solid = [part for part in parts if len(part) >= 6]
        if len(solid) < len(parts):
            thin_parts += len(parts) - len(solid)
            thinned.append(i)
        masks[i] = rle.from_polygons(solid, (image.height, image.width))
    masks |= _checked(instances, encoded)
    return masks, [*_thin_notes(thin_parts, thinned), *_empty_notes(masks)]


def _parts(segmentation: object, image: Image, where: str) -> list[list[float]]:
    """The polygons of an object, each `[x1, y1, x2, y2, ...]` in pixels."""
    if type(segmentation) is not list:
        raise DataError(f"{where}: `segmentation` is neither a list of polygons nor an RLE")
    # Drawing takes memory with the length of the outline, so an absurd corner must not get that far.
    margin = max(image.width, image.height)
    for part in segmentation:
        if type(part) is not list or len(part) % 2 or not {int, float}.issuperset(map(type, part)):
            raise DataError(f"{where}: a part of `segmentation` is no list of x, y pairs")
        if part and not (-margin <= min(part) and max(part) <= 2 * margin):
            raise DataError(f"{where}: `segmentation` reaches far outside its image of {image.width}x{image.height}")
    return segmentation


def _checked(instances: Instances, ids: Sequence[int]) -> dict[int, rle.Rle]:
    """The masks that are RLEs in the file."""
    images = [instances.image_of(i) for i in ids]
    masks = rle.check(
        [instances.annotations[i]["segmentation"] for i in ids],
        [(image.height, image.width) for image in images],
        [instances.where(i) for i in ids],
    )
    return dict(zip(ids, masks, strict=True))


def _thin_notes(parts: int, ids: Sequence[int]) -> list[str]:
    if not parts:
        return []
    return [f"{parts:,} polygon parts of fewer than 3 points were left out: annotations {preview(ids)}"]


def _empty_notes(masks: Mapping[int, rle.Rle]) -> list[str]:
    areas = rle.areas(list(masks.values()))
    empty = [i for i, area in zip(masks, areas.tolist(), strict=True) if not area]
    return [f"{len(empty):,} objects have a mask without pixels: annotations {preview(empty)}"] if empty else []
