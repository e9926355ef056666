"""Make the page of samples of one model on one split, and the thumbnails it lacks."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from reftables import paths
from reftables.choosing import choose
from reftables.drawing import draw
from reftables.errors import run
from reftables.files import read_predictions, read_requests, read_truth, write_atomically
from reftables.gallery import Heading, card, gallery_page
from reftables.rows import Task, parse_answer_format
from reftables.samples import read_samples
from reftables.thumbnails import thumbnail


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--model", required=True)
    options.add_argument("--benchmark", required=True)
    options.add_argument("--split", required=True)
    options.add_argument("--task", type=Task, required=True)
    options.add_argument("--format", type=parse_answer_format, required=True, help="the model's answer format, as JSON")
    options.add_argument("--others", nargs="*", default=[], help="the other models that answered the split")
    options.add_argument("--each", type=int, required=True, help="samples of each kind: worst, best and so on")
    options.add_argument("--side", type=int, required=True, help="pixels of the longer side of a thumbnail")
    options.add_argument("--truth", required=True, help="truth file")
    options.add_argument("--requests", required=True, help="request file")
    options.add_argument("--predictions", required=True, help="prediction file")
    options.add_argument("--thumbnails", type=Path, required=True, help="folder of thumbnails, shared by all pages")
    options.add_argument("--page", type=Path, required=True, help="page to write")
    return options


def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    names = {"benchmark": args.benchmark, "split": args.split}
    samples = read_samples(paths.SAMPLES.format(model=args.model, **names))
    others = {model: read_samples(paths.SAMPLES.format(model=model, **names)) for model in args.others}
    truth = read_truth(args.truth)
    requests = read_requests(args.requests, prompt=args.format.prompt)
    predictions = read_predictions(args.predictions, expected=samples.ids)
    chosen = choose(args.task, samples, others, each=args.each)
    rows = [one.row for one in chosen]
    drawings = draw(args.task, [truth[row] for row in rows], [predictions[row] for row in rows], args.format)
    cards = []
    for one, drawing in zip(tqdm(chosen, unit="sample"), drawings, strict=True):
        row = one.row
        made = thumbnail(requests[row].image, args.thumbnails, args.side)
        picture = os.path.relpath(made, args.page.parent) if made else None
        cards.append(card(truth[row], requests[row], predictions[row], one, drawing, samples, picture))
    pages = [(model, os.path.relpath(paths.GALLERY.format(model=model, **names), args.page.parent)) for model in others]
    heading = Heading(args.model, args.benchmark, args.split, len(samples), pages)
    root = os.path.relpath(args.thumbnails.parent, args.page.parent)
    write_atomically(args.page, gallery_page(heading, cards, root))


if __name__ == "__main__":
    run(main)
