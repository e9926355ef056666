"""Answers that need no model: the truth, the middle, the whole image, chance."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from pycocotools import mask as coco_mask

from reftables.errors import ConfigError
from reftables.models import baselines
from reftables.models.job import Job
from reftables.rows import AnswerFormat, Coordinates, Notation, Order, Request, Status, Task

PIXELS = AnswerFormat(notation=Notation.JSON, coordinates=Coordinates.PIXELS, order=Order.XY, prompt="plain", grid=None)
FORMS = {
    Task.BOXES: PIXELS,
    Task.POINTS: PIXELS,
    Task.MASKS: AnswerFormat(notation=Notation.RLE, coordinates=None, order=None, prompt="plain", grid=None),
    Task.ANSWERS: AnswerFormat(notation=Notation.SURDS, coordinates=None, order=None, prompt="surds", grid=None),
}
COMMON = {"source_id": 0, "image": "a.jpg", "width": 80, "height": 40, "expression": "it"}
RLE = {
    "size": [40, 80],
    "counts": coco_mask.encode(np.asfortranarray(np.eye(40, 80, dtype=np.uint8)))["counts"].decode(),
}
ROWS = {
    Task.BOXES: {"bbox_xywh": [10, 5, 20, 15.5]},
    Task.POINTS: {"mask": RLE},
    Task.MASKS: {"mask": RLE},
    Task.ANSWERS: {"unit": 0, "options": ["First", "Second", "Third"], "answer": "Second", "bbox": None},
}


def job(task: Task, strategy: str, *, rows=None, benchmark="sample", split="val", **identity) -> Job:
    rows = rows or [{"id": i, **COMMON, **ROWS[task]} for i in range(50)]
    return Job(
        model="mine",
        benchmark=benchmark,
        split=split,
        task=task,
        form=FORMS[task],
        identity={"backend": "baselines", "strategy": strategy, **identity},
        execution={},
        truth=rows,
    )


def ask(ids, job_: Job):
    return list(baselines.predict([Request(i, "a.jpg", "it") for i in ids], job_))


def answer(task: Task, strategy: str, **row):
    rows = [{"id": 0, **COMMON, **ROWS[task], **row}]
    return ask([0], job(task, strategy, rows=rows))[0]


@pytest.mark.parametrize(
    ("task", "strategy", "expected"),
    [
        (Task.BOXES, "oracle", '[{"bbox_2d": [10, 5, 30, 20.5]}]'),
        (Task.BOXES, "center", '[{"bbox_2d": [20, 10, 60, 30]}]'),
        (Task.BOXES, "whole-image", '[{"bbox_2d": [0, 0, 80, 40]}]'),
        (Task.POINTS, "center", '[{"point_2d": [40, 20]}]'),
        (Task.ANSWERS, "oracle", "<answer>Second</answer>"),
        (Task.ANSWERS, "center", "<answer>First</answer>"),
    ],
    ids=str,
)
def test_answers_in_text(task, strategy, expected):
    assert answer(task, strategy).text == expected


@pytest.mark.parametrize(
    ("strategy", "expected"), [("oracle", "[15, 12.5]"), ("center", "[40, 20]")], ids=["oracle", "center"]
)
def test_places_in_photographs(strategy, expected):
    prediction = answer(Task.ANSWERS, strategy, options=None, answer="[15, 12]", bbox=[10, 5, 20, 20])
    assert prediction.text == f"<answer>{expected}</answer>"


def test_oracle_masks_are_those_of_the_truth():
    assert answer(Task.MASKS, "oracle").rle == RLE


def test_oracle_says_so_where_there_is_no_target():
    row = {"id": 0, **COMMON, "no_target": True}
    (prediction,) = ask([0], job(Task.MASKS, "oracle", rows=[row]))
    assert prediction.no_target is True
    assert coco_mask.area(prediction.rle) == 0


@pytest.mark.parametrize(("strategy", "area"), [("center", 40 * 20), ("whole-image", 80 * 40)])
def test_boxes_answer_for_masks(strategy, area):
    assert coco_mask.area(answer(Task.MASKS, strategy).rle) == area


def test_answers_in_resized_pixels_record_the_size():
    form = AnswerFormat(
        notation=Notation.JSON, coordinates=Coordinates.RESIZED_PIXELS, order=Order.XY, prompt="plain", grid=None
    )
    rows = [{"id": 0, **COMMON, **ROWS[Task.BOXES]}]
    sized = Job(
        model="mine", benchmark="b", split="s", task=Task.BOXES, form=form,
        identity={"strategy": "center"}, execution={}, truth=rows,
    )  # fmt: skip
    assert ask([0], sized)[0].image_size == (80, 40)


@settings(max_examples=100, deadline=None)
@given(arrays.arrays(np.uint8, st.tuples(st.integers(1, 12), st.integers(1, 12)), elements=st.integers(0, 1)))
def test_the_inner_point_of_a_mask_lies_in_it(mask):
    mask[0, 0] |= not mask.any()
    rle = coco_mask.encode(np.asfortranarray(mask))
    x, y = baselines.inner_point({"size": list(mask.shape), "counts": rle["counts"].decode()})
    assert mask[int(y), int(x)]
    assert (x % 1, y % 1) == (0.5, 0.5)


# Chance


def texts(ids, **changes) -> dict[int, str]:
    options = {"task": Task.BOXES, "strategy": "random", "seed": 3} | changes
    return {p.id: p.text for p in ask(ids, job(**options))}


@pytest.mark.parametrize("ids", [range(49, -1, -1), range(10), range(1, 50, 4)], ids=["reversed", "limit", "shard"])
def test_chance_does_not_depend_on_what_else_is_asked(ids):
    whole = texts(range(50))
    assert texts(ids) == {i: whole[i] for i in ids}


@pytest.mark.parametrize("change", [{"seed": 4}, {"benchmark": "other"}, {"split": "test"}], ids=str)
def test_chance_depends_on_seed_benchmark_and_split(change):
    assert not set(texts(range(50)).values()) & set(texts(range(50), **change).values())


def test_chance_is_the_same_on_every_machine():
    assert texts([0, 1]) == {
        0: '[{"bbox_2d": [15.01, 6.68, 40.97, 27.72]}]',
        1: '[{"bbox_2d": [52.75, 21.58, 54.43, 28.3]}]',
    }


@pytest.mark.parametrize("task", Task)
def test_chance_answers_every_task(task):
    assert all(prediction.status is Status.OK for prediction in ask(range(50), job(task, "random", seed=3)))


def test_chance_draws_options_evenly():
    rows = [{"id": i, **COMMON, **ROWS[Task.ANSWERS]} for i in range(3000)]
    drawn = [prediction.text for prediction in ask(range(3000), job(Task.ANSWERS, "random", rows=rows, seed=3))]
    assert all(900 < drawn.count(f"<answer>{option}</answer>") < 1100 for option in ("First", "Second", "Third"))


def test_random_boxes_are_upright_and_inside():
    boxes = np.array([re.findall(r"[\d.]+(?=[,\]])", text) for text in texts(range(50)).values()], dtype=float)
    assert (boxes[:, :2] <= boxes[:, 2:]).all()
    assert (boxes >= 0).all()
    assert (boxes[:, 2:] <= (80, 40)).all()


# Faults


@pytest.mark.parametrize(
    ("task", "identity", "message"),
    [
        (
            Task.BOXES,
            {"strategy": "best"},
            "models.mine.identity.strategy: 'best' is unknown; strategies: oracle, center, whole-image, random",
        ),
        (Task.BOXES, {"strategy": "random"}, "models.mine.identity.seed: strategy random needs a seed"),
        (Task.BOXES, {"strategy": "center", "seed": 1}, "models.mine.identity.seed: strategy random needs a seed"),
        (Task.POINTS, {"strategy": "whole-image"}, "models.mine.formats.points: strategy whole-image answers boxes"),
    ],
    ids=["strategy", "no-seed", "superfluous-seed", "whole-image-point"],
)
def test_an_identity_that_is_no_baseline_is_refused(task, identity, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        ask([0], job(task, **identity))


def test_no_numpy_is_loaded_for_answers_in_text():
    code = "import sys; import reftables.models.baselines; print({'numpy', 'pycocotools', 'PIL'} & sys.modules.keys())"
    environment = {"PYTHONPATH": str(Path(baselines.__file__).parents[2])}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert result.stdout == "set()\n"
