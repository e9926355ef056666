"""RefSpatial-Bench and RefSpatial-Expand-Bench: a place in words, an image, and the mask of the right pixels.

They come in two forms. `root` is a folder with `question.json`, whose rows name images and masks below
that folder. `parquet` is a file with images and masks as bytes, in Hugging Face's image columns or plain
binary ones; its images are unpacked, as stored, into the folder `images`.

A mask becomes run lengths here, once, so that nothing decodes a picture again. Where the two readings of
it differ, the row keeps both: `mask` for the tolerant scoring, `mask_official` for the authors'.

Sources: Zhoues/RoboRefer, Evaluation/summarize_acc.py (how masks are read) and the scripts beside it
(the prompts); the data sets' cards at Hugging Face (the two forms).
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reftables.benchmarks.records import as_record, field, image_name, text_field
from reftables.benchmarks.truth import Truth
from reftables.errors import ConfigError, DataError, brief, preview, shown
from reftables.files import read_bytes, read_text, write_atomically
from reftables.names import unsafe
from reftables.pictures import PictureError, load_picture
from reftables.rows import Task, TruthRow

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image
    from pyarrow.parquet import FileMetaData

TEMPLATES = {
    "roborefer": "{prompt} {suffix}",
    "gemini": "Locate the points of {object}.",
    "gemini-one": "Locate one point of {object}.",
    "molmo": "Locate several points of {object}.",
    "qwen": "Locate {object} in this image and output the point coordinates in JSON format.",
    "robobrain": "{prompt} Please provide its 2D coordinates.",
    "plain": "{object}",
}

TASKS = frozenset({Task.POINTS})
PROMPTS = frozenset(TEMPLATES)
REQUIRED: frozenset[str] = frozenset()
OPTIONAL = frozenset({"root", "parquet", "images"})

_QUESTIONS = "question.json"
_MASKS = "mask"
_TEXTS = ("object", "prompt", "suffix")
_COLUMNS = {"id", "image", "mask", "step", *_TEXTS}
_MOST_IMAGE_BYTES = 256 * 1024 * 1024  # Pillow decodes no more pixels than fill such a file
_ROWS_AT_ONCE = 16  # of a parquet file: its images never stand in memory all together
_MOST_AT_ONCE = 256 * 1024 * 1024  # bytes of those rows, could each be as large as its whole column
_MOST_OF_GROUP = 4 * 1024**3  # bytes of a row group, which is read together; RefSpatial's files have 43 MB in all
_MOST_RATIO = 100  # of unpacked bytes to the file's: images hardly shrink
_ALWAYS_ALLOWED = 16 * 1024 * 1024  # bytes, so that small files of plain masks are no bombs
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")  # what an id must look like to name a file
_SUFFIXES = {"JPEG": "jpg", "MPO": "jpg"}  # of media types whose usual suffix is not their name
_GREY_MODES = frozenset({"1", "L", "LA", "I;16"})
_COLOUR_MODES = frozenset({"P", "PA", "RGB", "RGBA"})


def truth_files(settings: Mapping[str, Any], split: str) -> list[str]:
    """The parquet file; or `question.json` and the folder of masks, whose names are known only once it is read."""
    _check_form(settings)
    if "parquet" in settings:
        return [settings["parquet"]]
    root = settings["root"].rstrip("/")
    return [f"{root}/{_QUESTIONS}", f"{root}/{_MASKS}/"]


def request_files(settings: Mapping[str, Any], split: str, prompt: str) -> list[str]:
    """None: the truth holds all that the requests say."""
    return []


def image_root(settings: Mapping[str, Any], split: str) -> str:
    """The folder of `question.json`, or the one that the images of the parquet file are unpacked into."""
    folder: str = settings["images" if "parquet" in settings else "root"]
    return folder.rstrip("/")


def read_truth(settings: Mapping[str, Any], *, benchmark: str, split: str, task: Task) -> Truth:
    """One row a question, in the file's order; its `source_id` is the question's id.

    Raises DataError for everything that is wrong with a question, its image or its mask, naming the file
    and the id.
    """
    path, *_ = truth_files(settings, split)
    folder = image_root(settings, split)
    samples = _parquet_samples(path, folder) if "parquet" in settings else _raw_samples(path, folder)
    rows: list[TruthRow] = []
    for line, sample in enumerate(samples):
        rows.append({"id": line, **_row(sample)})
    if not rows:
        raise DataError(f"{path}: holds no question")
    _check_scenes(path, rows)
    return Truth(rows, _mask_notes(rows))


def request_texts(rows: Sequence[TruthRow], settings: Mapping[str, Any], *, split: str, prompt: str) -> list[str]:
    """What each row asks, in the words of the prompt family."""
    return [TEMPLATES[prompt].format_map(row) for row in rows]


def _check_form(settings: Mapping[str, Any]) -> None:
    if ("root" in settings) == ("parquet" in settings):
        raise ConfigError("source refspatial needs exactly one of `root` (folder of question.json) and `parquet`")
    if ("images" in settings) != ("parquet" in settings):
        raise ConfigError("source refspatial: `parquet` and `images` (folder to unpack its images into) go together")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    """One question with the contents of its two files; `*_where` say in messages which they are."""

    record: dict[str, Any]
    where: str
    image_path: str  # relative to the image root
    image: "Image.Image"
    image_where: str
    mask: "Image.Image"
    mask_where: str


def _raw_samples(path: str, root: str) -> Iterator[_Sample]:
    seen: set[int | str] = set()
    for position, value in enumerate(_read_questions(path)):
        record = as_record(value, f"{path}: row {position}")
        where = _new_id(record, seen, path, position)
        files = {name: image_name(record, name, where) for name in ("rgb_path", "mask_path")}
        image_where, mask_where = (f"{root}/{file} (of id {record['id']})" for file in files.values())
        yield _Sample(
            record=record,
            where=where,
            image_path=files["rgb_path"],
            image=_decode(_read_bytes(f"{root}/{files['rgb_path']}", where), image_where),
            image_where=image_where,
            mask=_decode(_read_bytes(f"{root}/{files['mask_path']}", where), mask_where),
            mask_where=mask_where,
        )


def _read_questions(path: str) -> list[Any]:
    try:
        questions = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not valid JSON, perhaps cut short; get the file again ({error})") from error
    if not isinstance(questions, list):
        raise DataError(f"{path}: holds a {type(questions).__name__}, not a list of questions")
    return questions


def _read_bytes(path: str, where: str) -> bytes:
    if not Path(path).is_file():
        raise DataError(f"{where}: there is no file {path}")
    return read_bytes(path, most=_MOST_IMAGE_BYTES)


def _parquet_samples(path: str, folder: str) -> Iterator[_Sample]:
    seen: set[int | str] = set()
    for position, record in enumerate(_parquet_records(path)):
        where = _new_id(record, seen, path, position)
        image_where, mask_where = f"{where}: the image", f"{where}: the mask"
        content = _column_bytes(record["image"], image_where)
        image = _decode(content, image_where)
        name = f"{record['id']}.{_suffix(image)}"
        if not _FILE_NAME.fullmatch(name) or unsafe(name):
            raise DataError(f"{where}: this id cannot name the file of its image")
        _unpack(Path(folder, name), content, where)
        yield _Sample(
            record=record,
            where=where,
            image_path=name,
            image=image,
            image_where=image_where,
            mask=_decode(_column_bytes(record["mask"], mask_where), mask_where),
            mask_where=mask_where,
        )


def _parquet_records(path: str) -> Iterator[dict[str, Any]]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names = set(file.schema_arrow.names)
            if missing := sorted(_COLUMNS - names):
                raise DataError(
                    f"{path}: has no column {preview(missing)}; its columns are {preview(sorted(names), most=12)}"
                )
            columns = sorted(names & (_COLUMNS | {"scene"}))
            for batch in file.iter_batches(batch_size=_rows_at_once(path, file.metadata), columns=columns):
                yield from batch.to_pylist()
    except (OSError, UnicodeDecodeError, pyarrow.ArrowException) as error:
        raise DataError(f"{path}: cannot be read as parquet; get the file again ({error})") from error


def _rows_at_once(path: str, metadata: "FileMetaData") -> int:
    """How many rows fit the memory, if any value can be as large as its column in a row group.

    A dictionary may hold one value for all rows, so their number says nothing of a value's size. DataError for
    a file that unpacks to far more than its images can have shrunk to.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    sizes = [[group.column(i).total_uncompressed_size for i in range(group.num_columns)] for group in groups]
    claimed, packed = sum(map(sum, sizes)), Path(path).stat().st_size
    if claimed > max(_ALWAYS_ALLOWED, _MOST_RATIO * packed):
        raise DataError(f"{path}: {packed:,} bytes that unpack to {claimed:,}, more than {_MOST_RATIO} times as much")
    if (largest := max(map(sum, sizes), default=0)) > _MOST_OF_GROUP:
        raise DataError(f"{path}: a row group of {largest:,} bytes, more than {_MOST_OF_GROUP:,}. Write smaller ones.")
    column = max((size for group in sizes for size in group), default=0)
    return max(1, min(_ROWS_AT_ONCE, _MOST_AT_ONCE // max(1, column)))


def _column_bytes(value: object, where: str) -> bytes:
    """The file in an image column: Hugging Face's `{"bytes": ..., "path": ...}`, or the bytes alone."""
    content = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(content, bytes):
        raise DataError(f"{where} is not stored in the file, as bytes or as an image column with bytes")
    return content


def _suffix(image: "Image.Image") -> str:
    media_type = str(image.format)
    return _SUFFIXES.get(media_type, media_type.lower())


def _unpack(target: Path, content: bytes, where: str) -> None:
    """Write the image unless it is there; another image under its name is never overwritten."""
    if not target.exists():
        write_atomically(target, content)
    elif target.read_bytes() != content:
        raise DataError(
            f"{where}: {target} holds another image. Give each split its own folder ({{split}} in `images`), or "
            "remove the folder if the parquet file was replaced."
        )


def _decode(content: bytes, where: str) -> "Image.Image":
    try:
        return load_picture(BytesIO(content))
    except PictureError as error:
        raise DataError(f"{where} cannot be decoded: {error}") from error


def _new_id(record: Mapping[str, Any], seen: set[int | str], path: str, position: int) -> str:
    """Add the id of a question to those `seen`, and give the words that name the question in messages."""
    if "id" not in record:
        raise DataError(f"{path}: row {position} has no `id`; its keys are {preview(record) or 'none'}")
    value = record["id"]
    if type(value) not in (int, str):
        raise DataError(f"{path}: row {position}: `id` is {shown(value)}, neither an integer nor a text")
    if value in seen:
        raise DataError(f"{path}: row {position}: another question has the id {brief(str(value))}, too")
    seen.add(value)
    return f"{path}: id {brief(str(value))}"


def _row(sample: _Sample) -> TruthRow:
    """The row but for its `id`."""
    record, where = sample.record, sample.where
    texts = {name: text_field(record, name, where) for name in _TEXTS}
    width, height = sample.image.size
    if sample.mask.size != (width, height):
        raise DataError(
            f"{sample.mask_where}: {sample.mask.width}x{sample.mask.height} pixels, but {sample.image_where} has "
            f"{width}x{height}"
        )
    return {
        "source_id": record["id"],
        "image": sample.image_path,
        "width": width,
        "height": height,
        "expression": texts["object"],
        **texts,
        "step": field(record, "step", int, where),
        **({"scene": text_field(record, "scene", where)} if "scene" in record else {}),
        **_masks(sample.mask, sample.mask_where),
    }


def _masks(image: "Image.Image", where: str) -> dict[str, Any]:
    """`mask`, and `mask_official` where the authors' script reads the picture otherwise."""
    from reftables.rle import from_mask  # here, because it brings pycocotools

    mask, official = read_mask(image, where), read_mask_officially(image)
    if not (mask.any() and official.any()):
        how = "" if not mask.any() else " in its first channel, the only one that the authors' script reads"
        raise DataError(f"{where}: the mask is empty{how}")
    differ = bool((mask != official).any())
    return {"mask": from_mask(mask)} | ({"mask_official": from_mask(official)} if differ else {})


def read_mask_officially(image: "Image.Image") -> "NDArray[np.bool_]":
    """Pixels inside, (height, width): first channel above 0, whatever it stands for (in a palette, an index)."""
    import numpy as np

    pixels = np.asarray(image)
    inside: NDArray[np.bool_] = (pixels if pixels.ndim == 2 else pixels[:, :, 0]) > 0
    return inside


def read_mask(image: "Image.Image", where: str) -> "NDArray[np.bool_]":
    """Pixels inside, (height, width): at least 128 of 255, or above 0 where there are two values only.

    Colours, also those of a palette, count by their brightest channel; alpha counts nothing.
    """
    import numpy as np

    if image.mode in _GREY_MODES:
        pixels = np.asarray(image)
        grey = pixels if pixels.ndim == 2 else pixels[:, :, 0]
    elif image.mode in _COLOUR_MODES:
        grey = np.asarray(image.convert("RGBA"))[:, :, :3].max(axis=2)
    else:
        raise DataError(f"{where}: a picture of mode {image.mode} is no mask; known are grey, palette and RGB ones")
    if np.count_nonzero(np.bincount(grey.ravel())) <= 2:
        return grey > 0
    white: int = np.iinfo(grey.dtype).max
    return grey >= white // 255 * 128


def _check_scenes(path: str, rows: Sequence[TruthRow]) -> None:
    without = [row["source_id"] for row in rows if "scene" not in row]
    if 0 < len(without) < len(rows):
        raise DataError(f"{path}: some questions have a `scene`, those with the ids {preview(without)} have none")


def _mask_notes(rows: Sequence[TruthRow]) -> list[str]:
    differing = [row["source_id"] for row in rows if "mask_official" in row]
    if not differing:
        return []
    return [
        f"{len(differing):,} masks are read otherwise by the authors' script (first channel above 0), which the "
        f"official scores follow: ids {preview(differing)}"
    ]
