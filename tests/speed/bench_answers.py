"""Process time of SURDS at its true size: 5,919 made-up photographs, 9,250 answers, both scorings.

python tests/speed/bench_answers.py
"""

import json
import random
import tempfile
from pathlib import Path
from time import process_time
from typing import Any

from reftables.benchmarks.surds import read_records, truth_rows
from reftables.benchmarks.surds_questions import KINDS, OPPOSITE, build_questions
from reftables.rows import AnswerFormat, Notation, Prediction, Status, TruthRow
from reftables.scoring.answers import score

PHOTOGRAPHS, PAIRS = 5_919, 925
COLOURS = ("white", "black", "red", "silver", "dark blue", "yellow")
THINGS = ("car", "SUV", "bus", "adult wearing a vest", "motorcycle", "traffic cone", "truck (parked)")
FORM = AnswerFormat(notation=Notation.SURDS, coordinates=None, order=None, prompt="surds", grid=None)


def metadata_row(number: int, objects: int, rng: random.Random) -> dict[str, Any]:
    centres = [(rng.randint(100, 1500), rng.randint(100, 800)) for _ in range(objects)]
    depths = [round(rng.uniform(2, 60), 2) for _ in range(objects)]
    return {
        "file_name": f"image/CAM_FRONT/{number:05d}.webp",
        "descs": [f"{rng.choice(COLOURS)} {rng.choice(THINGS)} {rng.randint(1, 99)}" for _ in range(objects)],
        "xy2Ds": [list(centre) for centre in centres],
        "bboxes2D": [[x - 60, y - 40, x + 60, y + 40] for x, y in centres],
        "yaw_descs": rng.choices(list(OPPOSITE), k=objects),
        "depths": depths,
        "distances": [round(depth * 1.05, 2) for depth in depths],
    }


def metadata() -> str:
    rng = random.Random(0)
    counts = [2] * PAIRS + [1] * (PHOTOGRAPHS - PAIRS)
    rng.shuffle(counts)
    return "".join(f"{json.dumps(metadata_row(i, count, rng))}\n" for i, count in enumerate(counts))


def answer(row: TruthRow, rng: random.Random) -> str:
    """A long answer: three times in five the right one, sometimes without article or tag, or another option."""
    thought = "The object stands to the left of the lane. " * rng.randint(10, 30)
    said = row["answer"] if rng.random() < 0.6 or not row["options"] else rng.choice(row["options"])
    if row["question"] == "xy2d":
        said = f"[{rng.randint(0, 1599)}, {rng.randint(0, 899)}]" if rng.random() < 0.5 else f"({said.strip('[]')})"
    if rng.random() < 0.1:
        said = said.removeprefix("The ")
    if rng.random() < 0.05:
        return f"{thought}{said}"
    return f"<think>{thought}</think>\n<answer>{said}</answer>"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metadata.jsonl"
        path.write_text(metadata(), encoding="utf-8")
        started = process_time()
        records = read_records(str(path))
        read = process_time() - started

    started = process_time()
    questions = build_questions(records)
    truth = {kind: truth_rows(kind, questions[kind]) for kind in KINDS}
    built = process_time() - started

    rng = random.Random(1)
    predictions = {
        kind: [Prediction(id=row["id"], status=Status.OK, text=answer(row, rng)) for row in rows]
        for kind, rows in truth.items()
    }
    started = process_time()
    scores = {kind: score(truth[kind], predictions[kind], FORM, {}) for kind in KINDS}
    scored = process_time() - started

    print(f"{sum(map(len, truth.values())):,} answers, {sum(s.n for s in scores.values()):,} units")
    print(f"read and check the metadata  {read:.3f} s")
    print(f"build all questions          {built:.3f} s")
    print(f"score, official and robust   {scored:.3f} s")
    print(f"build and score              {built + scored:.3f} s")


if __name__ == "__main__":
    main()
