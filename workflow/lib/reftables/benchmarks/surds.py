"""SURDS: spatial questions about driving scenes, from its metadata and its six prompt templates.

The splits are the six kinds of questions. A split's rows are its units in the benchmark's order, both
questions of a complementary pair one after the other; the configured count is that of the rows.
"""

import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from math import comb
from pathlib import Path
from string import Formatter
from typing import Any, cast

from reftables.benchmarks.surds_questions import KINDS, OPPOSITE, Question, Record, build_questions
from reftables.benchmarks.truth import Truth
from reftables.errors import ConfigError, DataError, shown
from reftables.files import read_jsonl, read_text
from reftables.names import unsafe
from reftables.rows import Task, TruthRow

TASKS = frozenset({Task.ANSWERS})
PROMPTS = frozenset({"surds"})
REQUIRED = frozenset({"metadata", "images", "templates"})
OPTIONAL: frozenset[str] = frozenset()

SIZE_WH = (1600, 900)  # of every photograph of the benchmark

TEMPLATE_FILES = {
    "yaw": "00_yaw_vqa.txt",
    "xy2d": "01_xy2d_vqa.txt",
    "depth": "02_depth_vqa.txt",
    "distance": "03_dis_vqa.txt",
    "left_right": "04_lf_vqa.txt",
    "front_behind": "05_fb_vqa.txt",
}
# What fills the slots of a template, in order.
SLOTS = {
    "yaw": ("the camera's direction", "object", "option 1", "option 2", "option 3", "option 4"),
    "xy2d": ("object",),
    "depth": ("object", "option 1", "option 2", "option 3"),
    "distance": ("object 1", "object 2", "closer or farther", "option 1", "option 2"),
    "left_right": ("left or right", "object 1", "object 2", "option 1", "option 2"),
    "front_behind": ("object 1", "in front of or behind", "object 2"),
}

_LISTS = ("descs", "distances", "xy2Ds", "depths", "bboxes2D", "yaw_descs")
_REMEDY = "Mend the line or get the file anew."


def truth_files(settings: Mapping[str, Any], split: str) -> list[str]:
    """The metadata file."""
    _check_split(split)
    return [settings["metadata"]]


def request_files(settings: Mapping[str, Any], split: str, prompt: str) -> list[str]:
    """The template of the split."""
    _check_split(split)
    return [_template_path(settings, split)]


def image_root(settings: Mapping[str, Any], split: str) -> str:
    """The folder that the file names of the metadata are relative to."""
    return str(settings["images"]).rstrip("/")


def read_truth(settings: Mapping[str, Any], *, benchmark: str, split: str, task: Task) -> Truth:
    """The questions of `split` with their answers, all six kinds having been built.

    A row has, beside what every row has, `question` (its kind), `unit`, `variant`, `arguments` (for
    the template), `options`, `answer` and `bbox` (xyxy in pixels, of xy2d only).
    """
    _check_split(split)
    questions = build_questions(read_records(settings["metadata"]))[split]
    return Truth(truth_rows(split, questions), _notes(questions))


def truth_rows(kind: str, questions: Sequence[Question]) -> list[TruthRow]:
    """The rows of all `questions` of one kind."""
    return [_truth_row(line, kind, question) for line, question in enumerate(questions)]


def request_texts(rows: Sequence[TruthRow], settings: Mapping[str, Any], *, split: str, prompt: str) -> list[str]:
    """The template of `split`, filled for each row."""
    template = _read_template(_template_path(settings, split), split)
    return [template.format(*row["arguments"]) for row in rows]


def _check_split(split: str) -> None:
    if split not in KINDS:
        raise ConfigError(f"splits.{split}: source surds has no such split; its splits: {', '.join(KINDS)}")


def _truth_row(line: int, kind: str, question: Question) -> TruthRow:
    unit = question.unit
    return {
        "id": line,
        "source_id": unit.source_id,
        "image": unit.file_name,
        "width": SIZE_WH[0],
        "height": SIZE_WH[1],
        "expression": unit.expression,
        "question": kind,
        "unit": unit.number,
        "variant": question.variant,
        "arguments": list(question.arguments),
        "options": None if question.options is None else list(question.options),
        "answer": question.answer,
        "bbox": None if question.bbox_xyxy is None else list(question.bbox_xyxy),
    }


def read_records(path: str) -> list[Record]:
    """The photographs of a metadata file, checked; DataError names the line."""
    try:
        lines = list(read_jsonl(path))
    except DataError as error:
        raise DataError(f"{error}. {_REMEDY}") from error
    for number, row in lines:
        if fault := _fault(row):
            raise DataError(f"{path}: line {number:,}: {fault}. {_REMEDY}")
    records = cast("list[Record]", [row for _, row in lines])
    _check_counts(path, records)
    return records


def _check_counts(path: str, records: Sequence[Record]) -> None:
    objects = Counter(len(record["descs"]) for record in records)
    pairs = sum(comb(count, 2) * photographs for count, photographs in objects.items())
    if not pairs:
        raise DataError(f"{path}: no photograph of two or more objects, so there is nothing to ask. Get the file anew.")
    if objects[1] < pairs:
        raise DataError(
            f"{path}: {objects[1]:,} photographs of a single object, but {pairs:,} are drawn, one for each pair of "
            "objects. Get the file anew."
        )


def _fault(row: Mapping[str, Any]) -> str | None:
    """What is wrong with a line of the metadata; None where nothing is."""
    if missing := [key for key in ("file_name", *_LISTS) if key not in row]:
        return f"no {', '.join(missing)}"
    if not _is_text(row["file_name"]):
        return f"file_name is {shown(row['file_name'])}, not a path"
    if why := unsafe(row["file_name"]):
        return f"file_name is {shown(row['file_name'])}, which {why}"
    if wrong := [key for key in _LISTS if not isinstance(row[key], list)]:
        return f"{', '.join(wrong)} must be lists, one entry an object"
    if len({len(row[key]) for key in _LISTS}) > 1:
        return "lists of unequal length: " + ", ".join(f"{key} {len(row[key])}" for key in _LISTS)
    if not row["descs"]:
        return "no object at all"
    return _fault_of_values(row)


def _fault_of_values(row: Mapping[str, Any]) -> str | None:
    if not all(map(_is_text, row["descs"])):
        return f"descs {shown(row['descs'])} must be texts that are not empty"
    for key in ("distances", "depths"):
        if not all(map(_is_number, row[key])):
            return f"{key} {shown(row[key])} must be finite numbers"
    for key, length in (("xy2Ds", 2), ("bboxes2D", 4)):
        if not all(isinstance(v, list) and len(v) == length and all(map(_is_number, v)) for v in row[key]):
            return f"{key} {shown(row[key])} must be lists of {length} finite numbers"
    # Yaw is asked of photographs of a single object only.
    if len(row["descs"]) == 1 and row["yaw_descs"][0] not in tuple(OPPOSITE):
        return f"yaw_descs {shown(row['yaw_descs'])} must be one of {', '.join(OPPOSITE)}"
    return None


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_number(value: object) -> bool:
    # Also refuses NaN, which compares false.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _notes(questions: Sequence[Question]) -> list[str]:
    """The units with an option that no answer can match officially."""
    units = dict.fromkeys(
        question.unit for question in questions if question.options and _unmatchable(question.options)
    )
    if not units:
        return []
    listed = ", ".join(f"{unit.number} ({unit.source_id})" for unit in units)
    return [f"Units with an option that no answer can match officially: {listed}."]


def _unmatchable(options: Sequence[str]) -> bool:
    """Whether the official gate refuses one of `options` even where the answer is that very text.

    The gate looks for any option between word boundaries, so one that ends in a bracket, say, is
    refused unless another option stands inside it.
    """
    for option in options:
        if re.fullmatch(r"\w(.*\w)?", option.strip(), re.DOTALL):
            continue
        answer = option.strip().lower()
        if not any(re.search(rf"\b{re.escape(other.strip().lower())}\b", answer) for other in options):
            return True
    return False


def _template_path(settings: Mapping[str, Any], split: str) -> str:
    return str(Path(settings["templates"]) / TEMPLATE_FILES[split])


def _read_template(path: str, split: str) -> str:
    r"""The text of a template, every line end as `\n`; it must have exactly the slots of its split."""
    template = read_text(path).replace("\r\n", "\n").replace("\r", "\n")
    try:
        slots = [slot for _, *slot in Formatter().parse(template) if slot[0] is not None]
    except ValueError as error:
        raise DataError(f"{path}: not a template: {error}. Braces that are no slots are doubled.") from error
    if slots != [["", "", None]] * len(SLOTS[split]):
        raise DataError(
            f"{path}: {len(slots)} slots, the template of {split} has {len(SLOTS[split])}, each written {{}}: "
            f"{', '.join(SLOTS[split])}. Mend the template or get it anew."
        )
    return template
