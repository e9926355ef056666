"""Referring expressions in MDETR's annotation files: RefCOCO, RefCOCO+, RefCOCOg and files made like them.

One JSON object with `images` (one entry an expression, which carries the caption and the image's size)
and `annotations` (the box, joined by `image_id`). The order of the annotations is the order of the
samples, of the request lines and so of every answer file. Boxes are x, y, width, height in pixels of the
original image. For masks the object's outline comes from a COCO instances file, joined by `original_id`.

Sources: ashkamath/mdetr (the files); microsoft/unilm, kosmos-2/evaluation/refcoco/cook_data.py (the
request lines, which are the same here byte for byte, in linear instead of quadratic time).
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from reftables.benchmarks.records import as_record, check_box, check_size, field, image_name, text_field
from reftables.benchmarks.truth import Truth
from reftables.errors import ConfigError, DataError, counted, preview, shown
from reftables.files import TAB, read_requests, read_text, without_garbage_collection
from reftables.rows import Task, TruthRow

TASKS = frozenset({Task.BOXES, Task.MASKS})
PROMPTS = frozenset({"kosmos", "plain", "qwen", "qwen3", "gemini"})
REQUIRED = frozenset({"annotations", "images"})
OPTIONAL = frozenset({"instances", "requests"})

Record = dict[str, Any]

_IMAGE_FIELDS = {"id": int, "file_name": str, "caption": str, "width": int, "height": int}
_ANNOTATION_FIELDS = {"id": int, "image_id": int, "bbox": list}


def truth_files(settings: Mapping[str, str], split: str) -> list[str]:
    """The annotation file, and the COCO instances where masks are joined."""
    return [settings[key] for key in ("annotations", "instances") if key in settings]


def request_files(settings: Mapping[str, str], split: str, prompt: str) -> list[str]:
    """A ready-made `.locout` that the Kosmos requests are compared with, where the config names one."""
    return [settings["requests"]] if prompt == "kosmos" and "requests" in settings else []


def image_root(settings: Mapping[str, str], split: str) -> str:
    """The folder that holds `train2014` and `val2014`."""
    return settings["images"].rstrip("/")


def check(settings: Mapping[str, str], *, benchmark: str, task: Task) -> None:
    """ConfigError where the keys do not suffice for the task."""
    if task is Task.MASKS and "instances" not in settings:
        raise ConfigError(f"benchmarks.{benchmark}.instances is missing: masks come from COCO's instances file")


def read_truth(settings: Mapping[str, str], *, benchmark: str, split: str, task: Task) -> Truth:
    """One row an annotation, in the file's order; its `source_id` is the annotation's id.

    Raises DataError for everything that is wrong with the file, naming the entry by its own id.
    """
    check(settings, benchmark=benchmark, task=task)
    path = settings["annotations"]
    with without_garbage_collection():
        rows, objects, notes = _read_rows(path)
    notes += _zero_area_notes(rows) + _outside_notes(rows)
    if task is Task.BOXES:
        return Truth(rows, notes + _unmatchable_notes(rows))
    return Truth(rows, notes + _add_masks(rows, path, objects, settings["instances"]))


def request_texts(rows: Sequence[TruthRow], settings: Mapping[str, str], *, split: str, prompt: str) -> list[str]:
    """What each row asks, in the words of the prompt family.

    `kosmos` is the authors' own form and holds the caption as it is, so a caption that would break the
    line is refused; a ready-made `.locout` must say the same, whatever its image root. `qwen` (pixels),
    `qwen3` (thousandths) and `gemini` are this project's wording of the families' usual tasks.
    """
    if prompt == "kosmos":
        texts = _kosmos_texts(settings["annotations"], rows)
        if "requests" in settings:
            _check_ready_made(settings["requests"], rows, texts)
        return texts
    return [_TEMPLATES[prompt].replace("{expression}", row["expression"]) for row in rows]


_TEMPLATES = {
    "plain": "{expression}",
    "qwen": (
        'Locate the object described by "{expression}". Answer only with JSON of the form '
        '{"bbox_2d": [x1, y1, x2, y2]}: its bounding box in pixels of this image, upper left corner first.'
    ),
    "qwen3": (
        'Locate the object described by "{expression}". Answer only with JSON of the form '
        '{"bbox_2d": [x1, y1, x2, y2]}: its bounding box, upper left corner first, as whole numbers from 0 to '
        "1000 that count thousandths of the image's width (x) and height (y)."
    ),
    "gemini": (
        'Locate the object described by "{expression}". Answer only with JSON of the form '
        '{"box_2d": [y1, x1, y2, x2]}: its bounding box, upper left corner first, as whole numbers from 0 to '
        "1000 that count thousandths of the image's height (y) and width (x)."
    ),
}


def _read_rows(path: str) -> tuple[list[TruthRow], list[Any], list[str]]:
    """Rows without masks, the unchecked `original_id` of each one's object, and notes.

    The parsed file dies with this call, before the collector could walk through it.
    """
    root = _read_root(path)
    images = _images_by_id(path, root["images"])
    annotations = _checked_annotations(path, root["annotations"], images)
    rows = [_row(line, annotation, images[annotation["image_id"]]) for line, annotation in enumerate(annotations)]
    objects = [annotation.get("original_id") for annotation in annotations]
    return rows, objects, _unused_image_notes(images, annotations)


def _read_root(path: str) -> Mapping[str, list[Any]]:
    """The file's object, with non-empty lists `images` and `annotations`."""
    try:
        root = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not valid JSON, perhaps cut short; get the file again ({error})") from error
    if not isinstance(root, dict):
        raise DataError(f"{path}: holds a {type(root).__name__}, not an object with `images` and `annotations`")
    for key in ("images", "annotations"):
        if key not in root:
            raise DataError(f"{path}: has no `{key}`; its keys are {preview(root) or 'none'}")
        if not isinstance(root[key], list) or not root[key]:
            raise DataError(f"{path}: `{key}` must be a list with at least one entry")
    return root


def _images_by_id(path: str, records: list[Any]) -> dict[int, Record]:
    _check_fields(path, "image", records, _IMAGE_FIELDS)
    first_of_dataset: dict[str, int] = {}
    images: dict[int, Record] = {}
    for image in records:
        _check_image(path, image)
        first_of_dataset.setdefault(str(image.get("dataset_name", "none")), image["id"])
        images[image["id"]] = image
    if len(images) < len(records):
        _refuse_duplicates(path, "image", records)
    if len(first_of_dataset) > 1:
        found = preview(f"{dataset} (from image {first})" for dataset, first in first_of_dataset.items())
        raise DataError(f"{path}: mixes the data sets {found}. Split the file: each has numbers of its own.")
    return images


def _checked_annotations(path: str, records: list[Any], images: Mapping[int, Record]) -> list[Record]:
    _check_fields(path, "annotation", records, _ANNOTATION_FIELDS)
    for annotation in records:
        check_box(annotation["bbox"], f"{path}: annotation {annotation['id']}")
    if len({annotation["id"] for annotation in records}) < len(records):
        _refuse_duplicates(path, "annotation", records)
    if lost := [annotation["id"] for annotation in records if annotation["image_id"] not in images]:
        raise DataError(f"{path}: the file has no image for the annotations {preview(lost)}")
    return records


def _check_fields(path: str, what: str, records: Sequence[Any], fields: Mapping[str, type]) -> None:
    """Refuse records that lack one of `fields` or hold another type there; one quick comparison a sound record."""
    kinds = tuple(fields.values())
    for position, record in enumerate(records):
        if type(record) is not dict or tuple(map(type, map(record.get, fields))) != kinds:
            where = f"{path}: {what} number {position:,} (from 0)"
            where = f"{where}, id {shown(as_record(record, where).get('id'))}"
            for name, kind in fields.items():
                field(record, name, kind, where)


def _check_image(path: str, image: Record) -> None:
    """Refuse what no image has; its name loses a leading `./`."""
    where = f"{path}: image {image['id']}"
    check_size(image["width"], image["height"], where)
    text_field(image, "caption", where)
    image["file_name"] = image_name(image, "file_name", where)


def _refuse_duplicates(path: str, what: str, records: Sequence[Record]) -> None:
    if twice := [i for i, count in Counter(record["id"] for record in records).items() if count > 1]:
        raise DataError(f"{path}: more than one {what} has the id {preview(twice)}")


def _row(line: int, annotation: Record, image: Record) -> TruthRow:
    name = image["file_name"]
    folder = "train2014" if "train2014" in name else "val2014"
    return {
        "id": line,
        "source_id": annotation["id"],
        "image": f"{folder}/{name}",
        "width": image["width"],
        "height": image["height"],
        "expression": image["caption"],
        "bbox_xywh": annotation["bbox"],
    }


def _unused_image_notes(images: Mapping[int, Record], annotations: Iterable[Record]) -> list[str]:
    used = {annotation["image_id"] for annotation in annotations}
    if len(used) == len(images):
        return []
    unused = [image_id for image_id in images if image_id not in used]
    found = counted(
        len(unused), "image has no annotation and is no sample", "images have no annotation and are no samples"
    )
    return [f"{found}: {preview(unused)}"]


def _zero_area_notes(rows: Sequence[TruthRow]) -> list[str]:
    flat = [row["id"] for row in rows if 0 in row["bbox_xywh"][2:]]
    if not flat:
        return []
    found = counted(len(flat), "truth box has no area and matches", "truth boxes have no area and match")
    return [f"{found} nothing: samples {preview(flat)}"]


def _outside_notes(rows: Sequence[TruthRow]) -> list[str]:
    outside = [row["id"] for row in rows if _is_outside(row["bbox_xywh"], row["width"], row["height"])]
    if not outside:
        return []
    found = counted(len(outside), "truth box lies", "truth boxes lie")
    return [f"{found} outside the image and can hardly be matched: samples {preview(outside)}"]


def _is_outside(box_xywh: Sequence[float], width: int, height: int) -> bool:
    x, y, w, h = box_xywh
    return x >= width or y >= height or x + w <= 0 or y + h <= 0


def _unmatchable_notes(rows: Sequence[TruthRow]) -> list[str]:
    from reftables.kosmos import can_match_officially  # here, because it brings numpy

    never = [row["id"] for row in rows if not can_match_officially(row["expression"])]
    if not never:
        return []
    found = counted(len(never), "caption", "captions")
    return [f"{found} can never match officially in a Kosmos answer: samples {preview(never)}"]


def _kosmos_texts(path: str, rows: Sequence[TruthRow]) -> list[str]:
    broken = [row["source_id"] for row in rows if "\n" in row["expression"] or TAB in row["expression"]]
    if broken:
        raise DataError(
            f"{path}: the captions of the annotations {preview(broken)} hold a line feed or {TAB}, "
            "which a kosmos request cannot carry. Mend them, or give the model another prompt family."
        )
    return [f"<grounding><phrase>{row['expression']}</phrase>" for row in rows]


def _check_ready_made(path: str, rows: Sequence[TruthRow], texts: Sequence[str]) -> None:
    """Refuse a ready-made request file that asks anything else; its image root is free."""
    requests = read_requests(path, prompt="kosmos")
    if len(requests) != len(rows):
        raise DataError(f"{path}: {len(requests):,} requests, but the annotations make {len(rows):,}. Wrong split?")
    for what, differing in (
        ("image", [r.id for r, row in zip(requests, rows, strict=True) if not _ends_in(r.image, row["image"])]),
        ("text", [r.id for r, text in zip(requests, texts, strict=True) if r.text != text]),
    ):
        if differing:
            lines = preview(line + 1 for line in differing)
            raise DataError(f"{path}: the {what} differs from the annotations' in the lines {lines}")


def _ends_in(path: str, image: str) -> bool:
    return path == image or path.endswith(f"/{image}")


def _add_masks(rows: Sequence[TruthRow], path: str, objects: Sequence[Any], instances: str) -> list[str]:
    """Give each row the mask of its object: the first row of an object holds it, later ones point there."""
    from reftables.benchmarks.coco_masks import masks_of

    if lost := [row["source_id"] for row, o in zip(rows, objects, strict=True) if type(o) is not int]:
        raise DataError(f"{path}: no `original_id` (the object's id in {instances}) in the annotations {preview(lost)}")
    sizes = {object_id: (row["width"], row["height"]) for object_id, row in zip(objects, rows, strict=True)}
    masks, notes = masks_of(instances, list(sizes), sizes=sizes)
    first_row: dict[int, int] = {}
    for row, object_id in zip(rows, objects, strict=True):
        first = first_row.setdefault(object_id, row["id"])
        row.update({"mask": masks[object_id]} if first == row["id"] else {"mask_of": first})
    return notes
