"""The cells the papers print: config/published.csv, read strictly."""

import csv
import difflib
import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from reftables.errors import ConfigError, DataError
from reftables.files import read_text

PUBLISHED = Path(__file__).parents[3] / "config" / "published.csv"
COLUMNS = ("benchmark", "split", "metric", "model", "value", "grade", "source")


class Grade(StrEnum):
    """Who printed a number."""

    PUBLISHER = "publisher"  # those who made the model or the benchmark
    SECONDARY = "secondary"  # somebody else


class Key(NamedTuple):
    """What a published number is a number of; at most one is known of each."""

    benchmark: str
    split: str  # a split, an overall (`micro`, `overall`), or a subset of a split (`location/step1`)
    metric: str
    model: str


@dataclass(frozen=True, slots=True)
class PublishedCell:
    """One published number, in percent. `text` is the number as printed: 67.1 claims less than 67.10."""

    value: float
    text: str
    grade: Grade
    source: str


Published = dict[Key, PublishedCell]


def read_published(path: str | Path) -> Published:
    """The cells of `path`, in its order; DataError with the line where one can't be trusted."""
    lines: dict[Key, int] = {}
    published: Published = {}
    for line, row in _rows(path):
        key = Key(row["benchmark"], row["split"], row["metric"], row["model"])
        where = f"{path}: line {line:,}"
        if key in lines:
            raise DataError(
                f"{where} repeats line {lines[key]:,} ({', '.join(key)}). Keep one, publisher before secondary."
            )
        lines[key] = line
        published[key] = _cell(row, where)
    return published


def _rows(path: str | Path) -> Iterator[tuple[int, dict[str, str]]]:
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    try:
        header = next(reader, [])
        if tuple(header) != COLUMNS:
            raise DataError(f"{path}: line 1 reads {','.join(header)!r}, expected {','.join(COLUMNS)!r}")
        for fields in reader:
            if len(fields) != len(COLUMNS):
                raise DataError(
                    f"{path}: line {reader.line_num:,} has {len(fields)} fields, expected {len(COLUMNS)}. "
                    "Quote a field that holds a comma."
                )
            yield reader.line_num, dict(zip(COLUMNS, fields, strict=True))
    except csv.Error as error:
        raise DataError(f"{path}: line {reader.line_num:,} is not CSV: {error}") from error


def _cell(row: Mapping[str, str], where: str) -> PublishedCell:
    if empty := [name for name in COLUMNS if not row[name].strip()]:
        raise DataError(f"{where} has no {', '.join(empty)}. A number without a source is left out.")
    if row["grade"] not in set(Grade):
        raise DataError(f"{where}: unknown grade {row['grade']!r}, expected {' or '.join(Grade)}")
    try:
        value = float(row["value"])
    except ValueError:
        value = math.nan
    if not 0 <= value <= 100:
        raise DataError(f"{where}: value {row['value']!r} is not a number from 0 to 100 (percent)")
    return PublishedCell(value, row["value"], Grade(row["grade"]), row["source"])


def published_names(expected: Mapping[str, Any]) -> dict[str, str]:
    """The names of papers' models that the config uses, each under its config key."""
    names = {f"models.{c['model']}.published": c["published"] for c in expected["cells"] if c["published"] is not None}
    for table, spec in expected["tables"].items():
        names |= {f"tables.{table}.published[{place}]": model for place, model in enumerate(spec["published"])}
    return names


def require_models(published: Published, names: Mapping[str, str], path: str | Path) -> None:
    """Refuse names that `published` doesn't hold. `names` maps the config key of each name to it."""
    known = sorted({key.model for key in published})
    for key, name in names.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise ConfigError(f"{key}: {path} has no model {name!r}.{hint}")
