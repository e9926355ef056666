"""Process time of RefSpatial-Bench at its true size: 277 made-up samples, both scorings, against decoding pictures.

python tests/speed/bench_points.py
"""

from io import BytesIO
from random import Random
from time import process_time

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from pycocotools.mask import encode

from reftables.rows import AnswerFormat, Coordinates, Notation, Order, Prediction, Status, TruthRow
from reftables.scoring.official_points import parse_unit_tuples
from reftables.scoring.points import score

SAMPLES = 277
WIDTH, HEIGHT = 1280, 960
REPEATS = 5
FORM = AnswerFormat(
    notation=Notation.TUPLES, coordinates=Coordinates.UNIT, order=Order.XY, prompt="roborefer", grid=None
)


def draw_mask(rng: Random) -> Image.Image:
    """A ragged outline somewhere in the image, such as annotators draw."""
    x, y, radius = rng.uniform(200, WIDTH - 200), rng.uniform(200, HEIGHT - 200), rng.uniform(20, 180)
    angles = np.linspace(0, 2 * np.pi, 60)
    distances = [radius * rng.uniform(0.7, 1.0) for _ in angles]
    outline = [(x + d * np.cos(a), y + d * np.sin(a)) for a, d in zip(angles, distances, strict=True)]
    image = Image.new("L", (WIDTH, HEIGHT))
    ImageDraw.Draw(image).polygon(outline, fill=255)
    return image


def as_png(image: Image.Image) -> bytes:
    file = BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def truth_row(number: int, image: Image.Image) -> TruthRow:
    rle = encode(np.asfortranarray(image, dtype=np.uint8))
    mask = {"size": [HEIGHT, WIDTH], "counts": rle["counts"].decode()}
    return {"id": number, "width": WIDTH, "height": HEIGHT, "expression": "cup", "mask": mask, "step": number % 5 + 1}


def write_answer(rng: Random) -> str:
    """One to eight points; one answer in twenty is a box."""
    if rng.random() < 0.05:
        return "(0.25, 0.25, 0.75, 0.75)"
    points = [f"({rng.random():.3f}, {rng.random():.3f})" for _ in range(rng.randint(1, 8))]
    return f"[{', '.join(points)}]"


def score_pictures(pngs: list[bytes], answers: list[str]) -> float:
    """The official accuracy with a picture decoded for every sample."""
    total = 0.0
    for png, answer in zip(pngs, answers, strict=True):
        inside: NDArray[np.bool_] = np.asarray(Image.open(BytesIO(png))) > 0
        regions = parse_unit_tuples(answer, WIDTH, HEIGHT)  # none of them reaches beyond the upper left border
        hits = sum(np.count_nonzero(inside[y0:y1, x0:x1]) for x0, y0, x1, y1 in regions)
        total += hits / sum((x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in regions)
    return total / len(pngs)


def main() -> None:
    rng = Random(0)
    images = [draw_mask(rng) for _ in range(SAMPLES)]
    pngs = [as_png(image) for image in images]
    truth = [truth_row(number, image) for number, image in enumerate(images)]
    answers = [write_answer(rng) for _ in truth]
    predictions = [Prediction(id=i, status=Status.OK, text=answer) for i, answer in enumerate(answers)]

    runs, pictures = [], []
    for _ in range(REPEATS):
        started = process_time()
        scores = score(truth, predictions, FORM, {})
        runs.append(process_time() - started)
        started = process_time()
        accuracy = score_pictures(pngs, answers)
        pictures.append(process_time() - started)

    official = scores.official["accuracy"].value if scores.official else None
    print(f"{SAMPLES} samples of {WIDTH}x{HEIGHT}, accuracy {official} and by pictures {accuracy}")
    print(f"score from run lengths, official and robust  {min(runs):.3f} s")
    print(f"score from pictures, official alone          {min(pictures):.3f} s")
    print(f"ratio                                        {min(pictures) / min(runs):.1f}")


if __name__ == "__main__":
    main()
