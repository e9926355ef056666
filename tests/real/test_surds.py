"""SURDS on the shared metadata: the questions evalscope 1.14.1 builds from it, and its test cases."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reftables.benchmarks import surds
from reftables.rows import AnswerFormat, Notation, Prediction, Status, Task, TruthRow
from reftables.scoring.answers import score

pytestmark = pytest.mark.real

FORM = AnswerFormat(notation=Notation.SURDS, coordinates=None, order=None, prompt="surds", grid=None)
# sha256 of the files in XiandaGuo/Drive-MLLM, prompt/prompts_reasoning/ at 7895f99d8157abb8f58f2d52e53d932670b8b1eb.
OFFICIAL_TEMPLATES = {
    "yaw": "fd161356acc869b3f418e67b80092122bc1e53eadc9af44368b986110beaa5b8",
    "xy2d": "b7fa06d32f8d0ab31f71c4eaff9ed2aef9ce7229cad997cacd233138630872fb",
    "depth": "164bfc32af9e8cea4a7ff78606a526109e121f1c1b29f52ba8f003b4b464037a",
    "distance": "b4080890beb6b31950a99366e9dcf1a7dd3cabb3e0da950a6931129aed003f84",
    "left_right": "b678733ed855f3f91dd24cfa79958f3e4be2f400e6234f9dc53f4207e73d432c",
    "front_behind": "7cefc4e2b64b8f57c65e69cc1db1bf7e59f199bb927febe2b731d3bfd0c06221",
}


@pytest.fixture(scope="module")
def expected(real_data: Path) -> dict[str, list[dict[str, Any]]]:
    text = (real_data / "surds" / "vqa_expected_from_evalscope_1.14.1.json").read_text(encoding="utf-8")
    return json.loads(text)


@pytest.fixture(scope="module")
def settings(
    real_data: Path, expected: dict[str, list[dict[str, Any]]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """The shared metadata, with templates recovered from the expected prompts and stored with CRLF."""
    folder = tmp_path_factory.mktemp("templates")
    metadata = str(real_data / "surds" / "metadata_synthetic.jsonl")
    found = {"metadata": metadata, "images": "images", "templates": str(folder)}
    for split, name in surds.TEMPLATE_FILES.items():
        first = read(found, split)[0]
        template = emptied(expected[split][0]["prompts"][0], first["arguments"])
        (folder / name).write_bytes(template.replace("\n", "\r\n").encode("utf-8"))
    return found


def emptied(prompt: str, arguments: list[str]) -> str:
    """The template behind `prompt`: its arguments replaced by slots.

    From the last to the first, for the words before the question may hold an argument ("left-right").
    """
    end = len(prompt)
    for argument in reversed(arguments):
        start = prompt.rindex(argument, 0, end)
        prompt = f"{prompt[:start]}{{}}{prompt[start + len(argument) :]}"
        end = start
    return prompt


def read(settings: dict[str, str], split: str) -> list[TruthRow]:
    return surds.read_truth(settings, benchmark="surds", split=split, task=Task.ANSWERS).rows


def by_unit(rows: list[TruthRow], texts: list[str]) -> Iterator[dict[str, Any]]:
    """Our rows and requests of one split in the form of the expected file."""
    for number in range(rows[-1]["unit"] + 1):
        of_unit = [(row, text) for row, text in zip(rows, texts, strict=True) if row["unit"] == number]
        first = of_unit[0][0]
        yield {
            "image_path": first["image"],
            "prompts": [text for _, text in of_unit],
            "answers": [row["answer"] for row, _ in of_unit],
            "options": first["options"] or [],
            "bbox": first["bbox"],
        }


@pytest.mark.parametrize("split", surds.KINDS)
def test_recovered_templates_are_the_official_files(settings, split):
    (template,) = surds.request_files(settings, split, "surds")
    assert hashlib.sha256(Path(template).read_bytes()).hexdigest() == OFFICIAL_TEMPLATES[split]


@pytest.mark.parametrize("split", surds.KINDS)
def test_questions_equal_evalscope_to_the_last_character(settings, expected, split):
    rows = read(settings, split)
    texts = surds.request_texts(rows, settings, split=split, prompt="surds")
    wanted = [
        {
            "image_path": unit["image_path"],
            "prompts": unit["prompts"],
            "answers": unit["answers"],
            "options": unit["options"],
            "bbox": unit["bbox"] if split == "xy2d" else None,  # kept where it is scored
        }
        for unit in expected[split]
    ]
    assert list(by_unit(rows, texts)) == wanted


@pytest.mark.parametrize("split", surds.KINDS)
def test_oracle_answers_score_one(settings, split):
    rows = read(settings, split)
    predictions = [
        Prediction(id=row["id"], status=Status.OK, text=f"<think>..</think>\n<answer>{row['answer']}</answer>")
        for row in rows
    ]
    scores = score(rows, predictions, FORM, {})
    assert scores.n == 9
    assert scores.official["score"].value == scores.robust["score"].value == 1


@pytest.fixture(scope="module")
def shared_cases(real_data: Path) -> dict[str, Any]:
    return json.loads((real_data / "surds" / "test_cases.json").read_text(encoding="utf-8"))


def test_records_of_the_test_cases_give_their_answers(shared_cases, tmp_path):
    generation = shared_cases["generation"]
    path = tmp_path / "metadata.jsonl"
    path.write_text("".join(f"{json.dumps(completed(record))}\n" for record in generation["records"]))
    rows = {split: read({"metadata": str(path)}, split) for split in surds.KINDS}
    assert {split: len(of_split) for split, of_split in rows.items()} == generation["prompts_per_unit"]
    for split in ("distance", "left_right", "front_behind"):
        assert [row["answer"] for row in rows[split]] == generation[f"{split}_answers"]


def completed(record: dict[str, Any]) -> dict[str, Any]:
    """A record of the test cases by the rule that stands beside them."""
    places = range(len(record["descs"]))
    return record | {
        "xy2Ds": [[400 + 300 * i, 450] for i in places],
        "bboxes2D": [[350 + 300 * i, 400, 450 + 300 * i, 500] for i in places],
        "yaw_descs": ["North" for _ in places],
        "depths": [5.0 + 5 * i for i in places],
        "distances": [5 + 5 * i for i in places],
    }


def test_single_answers_of_the_test_cases(shared_cases):
    for case in shared_cases["match"]:
        row = {
            "id": 0,
            "unit": 0,
            "variant": None,
            "question": case["task"],
            "options": case.get("options"),
            "answer": case.get("target"),
            "bbox": case.get("bbox"),
            "width": 1600,
            "height": 900,
        }
        prediction = Prediction(id=0, status=Status.OK, text=f"<answer>{case['prediction']}</answer>")
        assert score([row], [prediction], FORM, {}).official["request_accuracy"].value == case["score"], case


def test_pairs_of_the_test_cases(shared_cases):
    options = ["Yes", "No"]
    for case in shared_cases["pairs"]:
        marks = [(unit, mark) for unit, of_unit in enumerate(case["scores"]) for mark in of_unit]
        rows = [
            {"id": i, "unit": unit, "variant": None, "question": "front_behind", "options": options, "answer": "Yes"}
            for i, (unit, _) in enumerate(marks)
        ]
        predictions = [
            Prediction(id=i, status=Status.OK, text=f"<answer>{'Yes' if mark else 'No'}</answer>")
            for i, (_, mark) in enumerate(marks)
        ]
        scores = score(rows, predictions, FORM, {})
        assert (scores.official["score"].value, scores.n) == (case["aggregate"], case["num"])
