"""Answers that a run elsewhere left in files: joined to the samples by id, and complete.

The formats, and what each calls a sample:

fairseq    A log. Tab-separated lines count whose first field holds `H-` and ends in `-<id>`; the text
           is all that follows the score, which some logs leave out.
jsonl      `{"id", "text", "image_size"?, "status"?, "finish_reason"?, "tokens_in"?, "tokens_out"?}` a
           line; text null is an empty answer.
roborefer  The authors' answer files, `{"question_id", "text"}` a line; the question's id is that of the
           benchmark's own file.
rle        Masks: `{"id", "rle", "no_target"?}` a line, with the optional keys of jsonl.
png        Masks: a folder of `<id>.png`, read as grey (of colours the brightest channel, a palette
           through its colours, alpha ignored). Inside is > 0 where the image holds at most two values,
           else at least 128 of 255.

`id` is the line of the request file, from 0. Answers may stand in any order. A copy of an answer is
dropped with a warning; a second, different answer, an unknown id and a missing one are errors.

Sources: microsoft/unilm, kosmos-2/evaluation/refcoco/refexp_evaluate.py (which log lines count);
Zhoues/RoboRefer, Evaluation/test_benchmark.py (the answer files).
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reftables.errors import ConfigError, DataError, preview, shown
from reftables.files import read_jsonl, read_lines
from reftables.models.job import Job
from reftables.paths import fill
from reftables.pictures import PictureError, load_picture
from reftables.rows import Notation, Prediction, Request, Status, Task, TruthRow

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

READS_TRUTH = True
LOOKS = False
STORED = False
WRITES_FORMAT = False
TASKS = frozenset(Task)
REQUIRED = frozenset({"format", "predictions"})
OPTIONAL: frozenset[str] = frozenset()
EXECUTION: frozenset[str] = frozenset()


class Format(StrEnum):
    """How the answers are written down."""

    FAIRSEQ = "fairseq"
    JSONL = "jsonl"
    ROBOREFER = "roborefer"
    RLE = "rle"
    PNG = "png"


MOST_DIGITS = 12  # of an id; int() refuses to read thousands of them
MASK_FORMATS = frozenset({Format.RLE, Format.PNG})

# What the file calls a sample, and the fields of its `Prediction` but the id.
Answer = tuple[int | str, dict[str, Any]]


def answer_files(identity: Mapping[str, Any], *, model: str, benchmark: str, split: str) -> list[str]:
    """The file, or for `png` the folder with a slash at its end, of the answers; ConfigError for what names none."""
    template = identity["predictions"]
    if not isinstance(template, str) or not template:
        raise ConfigError(f"models.{model}.identity.predictions: {template!r} is no path")
    path = fill(template, model=model, benchmark=benchmark, split=split)
    return [f"{path.rstrip('/')}/" if _format_of(identity, model) is Format.PNG else path]


def check(job: Job) -> None:
    """ConfigError where no file is named, or its format does not hold answers in the model's notation."""
    answer_files(job.identity, model=job.model, benchmark=job.benchmark, split=job.split)
    _check_notation(_format_of(job.identity, job.model), job)


def predict(requests: Sequence[Request], job: Job) -> Iterator[Prediction]:
    """The recorded answer to each request, in the order of the requests.

    The truth rows are those of the full split, so answers to samples beyond a limit are known, just not
    asked for. Raises DataError as the module's docstring says; with `job.partial` a gap is MISSING.
    """
    if job.truth is None:
        raise ValueError("recorded answers are joined to truth rows, and the job has none")
    answer_format = _format_of(job.identity, job.model)
    _check_notation(answer_format, job)
    [path] = answer_files(job.identity, model=job.model, benchmark=job.benchmark, split=job.split)
    path = path.rstrip("/")
    names = _names(answer_format, job)
    answers = _joined(path, _READERS[answer_format](path), set(names.values()), job)
    if answer_format is Format.PNG:
        _check_sizes(path, answers, job.truth)
    if not job.partial:
        _refuse_gaps(path, [names[request.id] for request in requests], answers, job)
    for request in requests:
        yield Prediction(id=request.id, **answers.get(names[request.id], {"status": Status.MISSING}))


def _format_of(identity: Mapping[str, Any], model: str) -> Format:
    try:
        return Format(identity["format"])
    except ValueError as error:
        raise ConfigError(
            f"models.{model}.identity.format is {identity['format']!r}; it can be {', '.join(Format)}"
        ) from error


def _check_notation(answer_format: Format, job: Job) -> None:
    """Files of masks answer in `rle`, files of texts in any other notation (boxes may stand for masks)."""
    is_rle = job.form.notation is Notation.RLE
    if (answer_format in MASK_FORMATS) != is_rle:
        fitting = ", ".join(f for f in Format if (f in MASK_FORMATS) == is_rle)
        raise ConfigError(
            f"models.{job.model}.identity.format is {answer_format}, but formats.{job.task}.notation is "
            f"{job.form.notation}, which stands in files of the format {fitting}"
        )


def _names(answer_format: Format, job: Job) -> dict[int, int | str]:
    """Sample id -> what the answer file calls the sample."""
    truth = job.truth or ()
    if answer_format is not Format.ROBOREFER:
        return {row["id"]: row["id"] for row in truth}
    names: dict[int, int | str] = {row["id"]: str(row["source_id"]) for row in truth}
    if len(set(names.values())) < len(names):
        raise ConfigError(
            f"models.{job.model}.identity.format: {answer_format} files name a sample by its question's id, "
            f"but those of {job.benchmark} {job.split} repeat. Use {Format.JSONL} with line numbers."
        )
    return names


def _joined(path: str, answers: Iterable[Answer], known: set[int | str], job: Job) -> dict[int | str, dict[str, Any]]:
    """The answers by name, each once."""
    joined: dict[int | str, dict[str, Any]] = {}
    copies: dict[int | str, None] = {}
    unknown: dict[int | str, None] = {}
    contradicted: dict[int | str, None] = {}
    for name, fields in answers:
        if name not in known:
            unknown[name] = None
        elif joined.setdefault(name, fields) is fields:
            continue
        elif joined[name] == fields:
            copies[name] = None
        else:
            contradicted[name] = None
    if unknown:
        raise DataError(
            f"{path}: unknown ids {preview(unknown)}; {job.benchmark} {job.split} has {len(known):,} samples. "
            "Are these the answers to another split?"
        )
    if contradicted:
        raise DataError(f"{path}: more than one answer to the ids {preview(contradicted)}. Keep one of each.")
    if copies:
        print(f"warning: {path}: dropped exact copies of the answers to the ids {preview(copies)}", file=sys.stderr)
    return joined


def _refuse_gaps(path: str, wanted: Sequence[int | str], answers: Mapping[int | str, Any], job: Job) -> None:
    if missing := [name for name in wanted if name not in answers]:
        raise DataError(
            f"{path}: {len(wanted) - len(missing):,} of {len(wanted):,} samples answered, missing ids "
            f"{preview(missing)}. Complete the file, or set models.{job.model}.partial: allow to count them as wrong."
        )


_SCORE = re.compile(r"[-+]?(?:[0-9.]+(?:e[-+]?[0-9]+)?|inf|nan)(?:\t|\Z)", re.IGNORECASE)


def _read_fairseq(path: str) -> Iterator[Answer]:
    for line in read_lines(path):
        first, _, rest = line.partition("\t")
        number = first.rpartition("-")[2]
        if "H-" in first and number.isascii() and number.isdecimal():
            if len(number) > MOST_DIGITS:
                raise DataError(f"{path}: an `H-` line has an id of {len(number):,} digits")
            score = _SCORE.match(rest)
            yield int(number), _text_fields(rest[score.end() :] if score else rest)


def _read_jsonl(path: str) -> Iterator[Answer]:
    for number, row in read_jsonl(path):
        where = f"{path}: line {number:,}"
        if "text" not in row and "status" not in row:
            raise DataError(f"{where} has no `text`")
        text = _optional(row, "text", str, where)
        status = _status(row, blank=text is None or not text.strip(), where=where)
        if status is not Status.MISSING:  # a gap that its line admits is still a gap
            yield _sample_id(row, where), {"text": text, "status": status, **_details(row, where)}


def _read_roborefer(path: str) -> Iterator[Answer]:
    for number, row in read_jsonl(path):
        where = f"{path}: line {number:,}"
        for key in ("question_id", "text"):
            if key not in row:
                raise DataError(f"{where} has no `{key}`")
        yield str(row["question_id"]), _text_fields(_optional(row, "text", str, where))


def _read_rle(path: str) -> Iterator[Answer]:
    for number, row in read_jsonl(path):
        where = f"{path}: line {number:,}"
        if not row.keys() & {"rle", "no_target", "status"}:
            raise DataError(f"{where} has no `rle`")
        rle = _optional(row, "rle", dict, where)
        no_target = _optional(row, "no_target", bool, where)
        status = _status(row, blank=rle is None and not no_target, where=where)
        if status is not Status.MISSING:
            mask = {"rle": rle, "no_target": no_target, "status": status}
            yield _sample_id(row, where), mask | _details(row, where)


def _text_fields(text: str | None) -> dict[str, Any]:
    return {"text": text, "status": Status.OK if text and text.strip() else Status.EMPTY}


def _sample_id(row: Mapping[str, Any], where: str) -> int:
    if type(row.get("id")) is not int:
        raise DataError(f"{where}: `id` is {shown(row.get('id'))}, not the sample's line number (an integer from 0)")
    return int(row["id"])


def _optional(row: Mapping[str, Any], key: str, kind: type, where: str) -> Any:
    """`row[key]`, which may be absent or null."""
    value = row.get(key)
    if value is not None and type(value) is not kind:
        raise DataError(f"{where}: `{key}` is {shown(value)}, not null or of the type {kind.__name__}")
    return value


# Finish reasons of chat servers that say more than "done"; a declared status goes before them.
_FINISHED = {"length": Status.TRUNCATED, "content_filter": Status.REFUSED}
_DECLARABLE = [status for status in Status if status is not Status.UNPARSED]


def _status(row: Mapping[str, Any], *, blank: bool, where: str) -> Status:
    declared = _optional(row, "status", str, where)
    if declared is not None and declared not in _DECLARABLE:
        raise DataError(f"{where}: `status` is {shown(declared)}; it can be {', '.join(_DECLARABLE)}")
    finish_reason = _optional(row, "finish_reason", str, where)
    status = Status(declared) if declared is not None else _FINISHED.get(finish_reason, Status.OK)
    return Status.EMPTY if blank and status is Status.OK else status


def _details(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The optional keys of a line that go through as they are."""
    size = row.get("image_size")
    if size is not None and not (isinstance(size, list) and [type(v) for v in size] == [int, int] and min(size) > 0):
        raise DataError(f"{where}: `image_size` is {shown(size)}, not [width, height] in pixels")
    return {
        "image_size": None if size is None else (size[0], size[1]),
        "finish_reason": _optional(row, "finish_reason", str, where),
        "tokens_in": _optional(row, "tokens_in", int, where),
        "tokens_out": _optional(row, "tokens_out", int, where),
    }


def _read_png(folder: str) -> Iterator[Answer]:
    if not Path(folder).is_dir():
        raise DataError(f"{folder}: no such folder")
    for path in sorted(Path(folder).iterdir()):
        if path.suffix.lower() == ".png":
            if not re.fullmatch("[0-9]+", path.stem):
                raise DataError(f"{path}: a mask is named after its sample, as in 12.png for id 12")
            yield int(path.stem), {"rle": _rle_of(path), "status": Status.OK}


def _rle_of(path: Path) -> dict[str, Any]:
    from reftables.rle import from_mask  # here, because it brings pycocotools

    try:
        return from_mask(_inside(path, load_picture(path)))
    except PictureError as error:
        raise DataError(f"{path}: not a readable image: {error}") from error


def _inside(path: Path, image: "Image.Image") -> "NDArray[np.bool_]":
    """Which pixels of a mask image are inside, (height, width); the module's docstring states the rule."""
    import numpy as np

    if image.mode in {"1", "L"}:
        grey = np.asarray(image.convert("L"))
    elif image.mode in {"P", "RGB", "RGBA"}:
        grey = np.asarray(image.convert("RGB")).max(axis=2)
    else:
        raise DataError(f"{path}: a mask image has the mode 1, L, P, RGB or RGBA, not {image.mode}")
    values = np.count_nonzero(np.bincount(grey.ravel(), minlength=256))
    return grey > 0 if values <= 2 else grey >= 128


def _check_sizes(folder: str, answers: Mapping[int | str, Mapping[str, Any]], truth: Sequence[TruthRow]) -> None:
    for row in truth:
        expected = [row["height"], row["width"]]
        if row["id"] in answers and (found := answers[row["id"]]["rle"]["size"]) != expected:
            raise DataError(
                f"{folder}: the mask of id {row['id']} is {found[1]}x{found[0]} pixels, "
                f"its image {row['image']} {expected[1]}x{expected[0]}. Write masks in the image's own size."
            )


_READERS: Mapping[Format, Callable[[str], Iterator[Answer]]] = {
    Format.FAIRSEQ: _read_fairseq,
    Format.JSONL: _read_jsonl,
    Format.ROBOREFER: _read_roborefer,
    Format.RLE: _read_rle,
    Format.PNG: _read_png,
}
