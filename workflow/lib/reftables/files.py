"""The files between the stages: truth, requests and predictions, read strictly and written atomically."""

import gc
import hashlib
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from reftables.errors import DataError, brief, preview, shown
from reftables.rows import Prediction, Request, Status, TruthRow

IMAGE_TAG = "[image]"
# Of a file that is read whole. COCO's instances have 470 MB, those of LVIS 1.2 GB; parsed they take six times as much.
MOST_BYTES = 2 * 1024**3
MOST_LEVELS = 100  # of a JSON line: what is read must be written again, and nothing here has five

TAB = "<tab>"  # five literal characters, as fairseq's reader wants them
_ESCAPED = re.compile(r"\\([\\n])")
VERBATIM_PROMPT = "kosmos"  # the one prompt family whose request texts are never escaped


def write_atomically(path: str | Path, content: str | bytes) -> None:
    """Write `content` (text as UTF-8, line ends untouched) under a temporary name, sync it and rename it."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode("utf-8") if isinstance(content, str) else content
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Suspend the collector: its passes over hundreds of thousands of fresh objects cost as much as a parse."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def read_bytes(path: str | Path, *, most: int = MOST_BYTES) -> bytes:
    """The whole file; DataError where there is none, or one of more than `most` bytes."""
    try:
        if (size := Path(path).stat().st_size) > most:
            raise DataError(
                f"{path}: {size:,} bytes, but files of this kind have at most {most:,}. Is it the right one?"
            )
        return Path(path).read_bytes()
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # a null character
        raise DataError(f"{path!r}: no file can have this name") from error


def read_text(path: str | Path) -> str:
    """The whole file as UTF-8 text, line ends as stored."""
    try:
        text = read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 at byte {error.start:,}") from error
    if text.startswith("\ufeff"):
        raise DataError(f"{path}: begins with a byte order mark. Save it as UTF-8 without one.")
    return text


def read_lines(path: str | Path) -> list[str]:
    r"""The lines of a text file, which end at `\n` only: captions may hold other line separators."""
    lines = read_text(path).split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


# Made once: json.loads and json.dumps with options make a new one for every line.
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def dump_json(value: object) -> str:
    """One line of JSON: keys in given order, non-ASCII as it is, NaN and infinity refused."""
    return _ENCODER.encode(value)


def canonical_json(value: object) -> str:
    """The one JSON text that stands for `value`: keys sorted, no blanks."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def short(value: object) -> str:
    """Twelve hex digits that stand for a JSON-able `value`."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:12]


def pretty_json(value: object) -> str:
    """`value` as JSON that is pleasant to read and to compare by line."""
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def read_jsonl(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number from 1, object) of each non-blank line of a JSON Lines file."""
    for number, line in enumerate(read_lines(path), start=1):
        text = line.strip()
        if not text:
            continue
        try:
            value, end = _DECODER.raw_decode(text)  # half the time of decode(), which looks for blanks twice
            if end < len(text):
                raise ValueError(f"extra data after character {end:,}")
            if text.count("[") + text.count("{") > MOST_LEVELS and _levels(value) > MOST_LEVELS:
                raise ValueError(f"it is nested more than {MOST_LEVELS} levels deep")
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}: line {number:,} is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise DataError(f"{path}: line {number:,} is not a JSON object")
        if ("\\ud" in text or "\\uD" in text) and not is_unicode(value):
            raise DataError(f"{path}: line {number:,} holds half of a surrogate pair, which is no character")
        yield number, value


def _levels(value: object) -> int:
    """How deep a JSON value is nested."""
    levels, inside = 0, [value]
    while inside:
        levels += 1
        inside = [
            child
            for item in inside
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
    return levels


def is_unicode(value: object) -> bool:
    """Whether UTF-8 can hold all texts of a JSON value; half of a surrogate pair, which JSON can carry, it cannot."""
    try:
        dump_json(value).encode()
    except UnicodeEncodeError:
        return False
    return True


def write_jsonl(path: str | Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write one object a line."""
    write_atomically(path, "".join(f"{dump_json(row)}\n" for row in rows))


def read_truth(path: str | Path) -> list[TruthRow]:
    """The rows of a truth file; the id of a row is its line number from 0.

    An object with several expressions has its mask in the first of their rows; the others say
    `mask_of` (that row's id) and get the very same mask here.
    """
    rows = [row for _, row in read_jsonl(path)]
    wrong = [line for line, row in enumerate(rows) if row.get("id") != line]
    if wrong:
        raise DataError(f"{path}: ids are not the line numbers (first at line {wrong[0] + 1:,}). Make it anew.")
    for row in rows:
        if "mask_of" in row:
            row["mask"] = _mask_of(path, row, rows)
    return rows


def _mask_of(path: str | Path, row: TruthRow, rows: Sequence[TruthRow]) -> Any:
    first = row["mask_of"]
    if type(first) is not int or not 0 <= first < row["id"] or "mask" not in rows[first]:
        raise DataError(
            f"{path}: id {row['id']}: `mask_of` is {shown(first)}, no earlier row with a mask. Make it anew."
        )
    return rows[first]["mask"]


def format_request(image: str, text: str, *, prompt: str) -> str:
    r"""One request line. Kosmos texts stand as they are; in all others `\` is `\\` and a line feed `\n`."""
    if "\n" in image or TAB in image:
        why = f"a request line cannot carry an image path with a line feed or {TAB}"
        raise DataError(f"{shown(image)}: {why}. Rename it.")
    if prompt != VERBATIM_PROMPT:
        text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return f"{IMAGE_TAG}{image}{TAB}{text}"


def parse_request(line: str, number: int, *, prompt: str) -> Request:
    """The request of line `number` (from 0) of a request file; ValueError where it is none."""
    image, tab, text = line.removeprefix(IMAGE_TAG).partition(TAB)
    if not line.startswith(IMAGE_TAG) or not tab:
        raise ValueError(f"a request reads {IMAGE_TAG}PATH{TAB}TEXT, this one {line[:80]!r}")
    return Request(number, image, text if prompt == VERBATIM_PROMPT else _unescape(text))


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda match: "\n" if match[1] == "n" else "\\", text)


def read_requests(path: str | Path, *, prompt: str) -> list[Request]:
    """All requests of a file."""
    requests = []
    for number, line in enumerate(read_lines(path)):
        try:
            requests.append(parse_request(line, number, prompt=prompt))
        except ValueError as error:
            raise DataError(f"{path}: line {number + 1:,}: {error}") from error
    return requests


_STATUSES = {str(status): status for status in Status}
_OPTIONAL = tuple(field.name for field in fields(Prediction) if field.name not in {"id", "status"})


def prediction_row(prediction: Prediction) -> dict[str, Any]:
    """`prediction` as the object of its line; what is None is left out."""
    row: dict[str, Any] = {"id": prediction.id, "status": str(prediction.status)}
    for name in _OPTIONAL:
        value = getattr(prediction, name)
        if value is not None:
            row[name] = list(value) if name == "image_size" else value
    return row


def parse_prediction(row: Mapping[str, Any]) -> Prediction:
    """The prediction of a row; KeyError, ValueError, TypeError or IndexError where it is none."""
    size, text, rle = row.get("image_size"), row.get("text"), row.get("rle")
    if type(row["id"]) is not int:
        raise TypeError(f"`id` is {shown(row['id'])}, not an integer")
    if not (text is None or type(text) is str) or not (rle is None or type(rle) is dict):
        raise TypeError(f"`text` is {shown(text)} and `rle` {shown(rle)}, neither a text nor a mask")
    return Prediction(
        id=row["id"],
        status=_STATUSES[row["status"]],
        text=text,
        rle=rle,
        no_target=row.get("no_target"),
        image_size=None if size is None else (size[0], size[1]),
        finish_reason=row.get("finish_reason"),
        tokens_in=row.get("tokens_in"),
        tokens_out=row.get("tokens_out"),
        weights=row.get("weights"),
    )


def write_predictions(path: str | Path, predictions: Iterable[Prediction]) -> None:
    """Write a prediction file, sorted by id."""
    write_jsonl(path, (prediction_row(p) for p in sorted(predictions, key=lambda p: p.id)))


def read_predictions(path: str | Path, *, expected: Sequence[int]) -> list[Prediction]:
    """The predictions of a file, sorted by id; their ids must be exactly `expected`.

    `infer` writes every expected id, also those that are missing or failed, so a gap here means a
    damaged file (say, one kept with --keep-incomplete).
    """
    predictions = read_shard(path)
    check_ids(path, [prediction.id for prediction in predictions], expected)
    return sorted(predictions, key=lambda prediction: prediction.id)


def read_shard(path: str | Path) -> list[Prediction]:
    """The predictions of a file as they stand there, whichever they are."""
    predictions = []
    for number, row in read_jsonl(path):
        try:
            predictions.append(parse_prediction(row))
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise DataError(f"{path}: line {number:,} is no prediction: {brief(repr(error))}") from error
    return predictions


def check_ids(path: str | Path, found: Sequence[int], expected: Sequence[int]) -> None:
    """Refuse ids that are not exactly `expected`, each once, in any order."""
    known, seen = set(expected), set(found)
    if len(seen) < len(found):
        twice = [i for i, times in Counter(found).items() if times > 1]
        raise DataError(f"{path}: ids {preview(twice)} stand more than once. Remove the file and run again.")
    if unknown := sorted(seen - known, key=str):
        raise DataError(f"{path}: unknown ids {preview(unknown)}. Remove the file and run again.")
    if missing := sorted(known - seen):
        raise DataError(
            f"{path}: {len(seen):,} of {len(known):,} samples are there, missing ids {preview(missing)}. "
            "Remove the file and run again."
        )
