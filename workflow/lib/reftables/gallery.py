"""Pages of samples to look at: picture, truth and prediction, with request, answer, parse and scores beside it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from reftables.choosing import Chosen, Group
from reftables.drawing import Drawing
from reftables.page import environment
from reftables.results import Scoring
from reftables.rows import Prediction, Request, TruthRow
from reftables.samples import Samples

MOST_CHARACTERS = 4_000  # of an answer

GROUPS: Mapping[Group, str] = {
    Group.WORST: "worst",
    Group.BEST: "best",
    Group.UNPARSED: "no usable answer",
    Group.DISAGREE: "models disagree",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One sample of a page."""

    id: int
    picture: str | None  # path of the thumbnail, relative to the page; None: no image at hand
    width: int
    height: int
    expression: str
    request: str
    answer: str
    status: str
    drawing: Drawing
    chosen: Chosen
    scores: Sequence[tuple[str, str]]


class Heading(NamedTuple):
    """What a page is about."""

    model: str
    benchmark: str
    split: str
    n: int
    others: Sequence[tuple[str, str]]  # model and page


def card(
    row: TruthRow,
    request: Request,
    prediction: Prediction,
    chosen: Chosen,
    drawing: Drawing,
    samples: Samples,
    picture: str | None,
) -> Card:
    return Card(
        id=row["id"],
        picture=picture,
        width=row["width"],
        height=row["height"],
        expression=row["expression"],
        request=request.text,
        answer=answer_text(prediction),
        status=samples.statuses[chosen.row],
        drawing=drawing,
        chosen=chosen,
        scores=scores_of(samples, chosen.row),
    )


def answer_text(prediction: Prediction) -> str:
    """The answer as given, shortened where it is very long; of a mask only that it is one."""
    if prediction.no_target:
        return "(no target)"
    if prediction.rle is not None:
        return "(a mask)"
    text = prediction.text or ""
    if len(text) > MOST_CHARACTERS:
        return f"{text[:MOST_CHARACTERS]} … and {len(text) - MOST_CHARACTERS:,} characters more"
    return text


def scores_of(samples: Samples, row: int) -> list[tuple[str, str]]:
    """Every metric of a row that has a value."""
    return [
        (f"{scoring} {metric}", f"{value:.3f}".rstrip("0").rstrip("."))
        for scoring in Scoring
        for metric in samples.metrics(scoring)
        if not np.isnan(value := samples.values(scoring, metric)[row])
    ]


def gallery_page(heading: Heading, cards: Sequence[Card], root: str) -> str:
    """The page of one model on one split; `root` leads to the gallery's folder."""
    groups = {group: title for group, title in GROUPS.items() if any(group in card.chosen.groups for card in cards)}
    template = environment().get_template("gallery.html.j2")
    return template.render(heading=heading, cards=cards, groups=groups, root=root)


def gallery_index(pages: Sequence[tuple[str, str, str, str]]) -> str:
    """The page that leads to all others; `pages`: model, benchmark, split and the page."""
    models = list(dict.fromkeys(model for model, *_ in pages))
    splits = list(dict.fromkeys(f"{benchmark} {split}" for _, benchmark, split, _ in pages))
    links = {(model, f"{benchmark} {split}"): page for model, benchmark, split, page in pages}
    return environment().get_template("gallery_index.html.j2").render(models=models, splits=splits, links=links)
