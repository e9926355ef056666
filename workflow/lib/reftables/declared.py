"""How a model declares its answers to a task: what each notation fixes, what it leaves open, what it defaults to."""

from collections.abc import Mapping
from typing import Any

from reftables.errors import ConfigError
from reftables.rows import AnswerFormat, Coordinates, Notation, Order, Task

_BOX_NOTATIONS = {Notation.KOSMOS, Notation.JSON, Notation.BRACKETS, Notation.TUPLES, Notation.GEMINI}
NOTATIONS = {
    Task.BOXES: _BOX_NOTATIONS,
    Task.POINTS: _BOX_NOTATIONS | {Notation.MOLMO, Notation.MOLMO2},
    Task.ANSWERS: {Notation.SURDS},
    Task.MASKS: _BOX_NOTATIONS | {Notation.RLE},  # a box fills its own mask: a named baseline
}
# What a notation fixes by itself: (coordinates, order).
FIXED: Mapping[Notation, tuple[Coordinates | None, Order | None]] = {
    Notation.KOSMOS: (None, None),
    Notation.SURDS: (None, None),
    Notation.RLE: (None, None),
    Notation.MOLMO: (Coordinates.PERCENT, Order.XY),
    Notation.MOLMO2: (Coordinates.PER_MILLE, Order.XY),
    Notation.GEMINI: (Coordinates.PER_MILLE, Order.YX),
}
KOSMOS_GRID = 32
POINT_PROMPTS = {
    Notation.TUPLES: "roborefer",
    Notation.MOLMO: "molmo",
    Notation.MOLMO2: "molmo",
    Notation.GEMINI: "gemini",
    Notation.JSON: "qwen",
}


def declared_format(key: str, task: Task, entry: Mapping[str, Any]) -> AnswerFormat:
    """The answer format of one entry of `formats`; ConfigError for what is contrary or left open."""
    notation = Notation(entry["notation"])
    if notation not in NOTATIONS[task]:
        allowed = ", ".join(sorted(NOTATIONS[task]))
        raise ConfigError(f"{key}.notation: {notation} is no notation of {task}; choose from {allowed}")
    if "grid" in entry and notation is not Notation.KOSMOS:
        raise ConfigError(f"{key}.grid: only notation kosmos has a grid")
    coordinates, order = _axes(key, notation, entry)
    return AnswerFormat(
        notation=notation,
        coordinates=coordinates,
        order=order,
        prompt=entry.get("prompt") or _default_prompt(task, notation),
        grid=entry.get("grid", KOSMOS_GRID) if notation is Notation.KOSMOS else None,
    )


def _axes(key: str, notation: Notation, entry: Mapping[str, Any]) -> tuple[Coordinates | None, Order | None]:
    """Coordinates and order as the notation fixes them or the entry declares them."""
    if notation in FIXED:
        fixed = dict(zip(("coordinates", "order"), FIXED[notation], strict=True))
        for name, value in fixed.items():
            if name in entry and entry[name] != value:
                raise ConfigError(f"{key}.{name}: notation {notation} fixes it to {value or 'nothing'}; leave it out")
        return FIXED[notation]
    if "coordinates" not in entry:
        raise ConfigError(f"{key}.coordinates: notation {notation} needs one of {', '.join(Coordinates)}")
    return Coordinates(entry["coordinates"]), Order(entry.get("order", Order.XY))


def _default_prompt(task: Task, notation: Notation) -> str:
    if notation is Notation.KOSMOS:
        return "kosmos"
    if task is Task.ANSWERS:
        return "surds"
    if task is Task.POINTS:
        return POINT_PROMPTS.get(notation, "plain")
    return "plain"
