"""The fairseq log of predictions, read back as recorded answers are."""

import re
from pathlib import Path

from reftables.files import write_predictions
from reftables.models import recorded
from reftables.models.job import Job
from reftables.rows import AnswerFormat, Notation, Prediction, Request, Status, Task
from reftables.stages import fairseq

TEXT = "<image></image><grounding><phrase> red mug</phrase><object><patch_index_0193><patch_index_0745></object>"
PREDICTIONS = [
    Prediction(id=0, status=Status.OK, text=TEXT),
    Prediction(id=1, status=Status.TRUNCATED, text="a\tb", finish_reason="length"),
    Prediction(id=2, status=Status.MISSING),
]


def test_every_answer_is_a_hypothesis_line(tmp_path: Path):
    write_predictions(tmp_path / "val.jsonl", PREDICTIONS)
    fairseq.main(["--predictions", str(tmp_path / "val.jsonl"), "--log", str(tmp_path / "val.fairseq.out")])
    assert (tmp_path / "val.fairseq.out").read_text() == f"H-0\tnan\t{TEXT}\nH-1\tnan\ta\tb\nH-2\tnan\t\n"


def test_a_line_end_in_an_answer_starts_no_line():
    assert fairseq.fairseq_log([Prediction(id=3, status=Status.OK, text="a\nH-0\tb\rc")]) == "H-3\tnan\ta H-0\tb c\n"


def authors_boxes(log: Path) -> list[tuple[str, list[tuple[str, str]]]]:
    """What the authors' scorer gets from a log: of each line, in order, its phrase and pairs of patches.

    It opens the file as text, keeps lines whose first field holds `H-` and ends in digits behind a hyphen,
    and looks for groundings in what follows the last `</image>`.
    Source: microsoft/unilm, kosmos-2/evaluation/refcoco/refexp_evaluate.py.
    """
    found = []
    with log.open(encoding="utf-8") as file:
        for line in file:
            first, _, _ = line.partition("\t")
            if "H-" in first and first.rpartition("-")[2].isdigit():
                text = line.rpartition("</image>")[2]
                phrase, _, boxes = text.partition("<phrase>")[2].partition("</phrase>")
                found.append((phrase.strip(), re.findall(r"<patch_index_(\d+)><patch_index_(\d+)>", boxes)))
    return found


def test_the_authors_scorer_finds_every_answer_in_its_place(tmp_path: Path):
    texts = [TEXT, TEXT.replace("red mug", "dog\r\nH-7"), "", TEXT.replace("red mug", "a\u2028b \t c")]
    log = tmp_path / "val.fairseq.out"
    log.write_text(fairseq.fairseq_log(Prediction(id=i, status=Status.OK, text=t) for i, t in enumerate(texts)))
    pair = [("0193", "0745")]
    assert authors_boxes(log) == [("red mug", pair), ("dog  H-7", pair), ("", []), ("a\u2028b \t c", pair)]


def test_recorded_answers_read_the_log_as_it_was_predicted(tmp_path: Path):
    log = tmp_path / "val.out"
    log.write_text(fairseq.fairseq_log(PREDICTIONS))
    job = Job(
        model="theirs",
        benchmark="mine",
        split="val",
        task=Task.BOXES,
        form=AnswerFormat(notation=Notation.KOSMOS, coordinates=None, order=None, prompt="kosmos", grid=32),
        identity={"backend": "recorded", "format": "fairseq", "predictions": str(log)},
        execution={},
        truth=[{"id": number} for number in range(3)],
    )
    read = list(recorded.predict([Request(number, "a.png", "") for number in range(3)], job))
    assert [answer.text for answer in read] == [TEXT, "a\tb", ""]
