"""CLIPSeg before anything is loaded: what decides a mask, what the config may say. None of it needs torch."""

from typing import Any

import pytest

from reftables.errors import ConfigError
from reftables.models import clipseg
from reftables.models.job import Job
from reftables.rows import AnswerFormat, Coordinates, Notation, Order, Request, Task

HUB = {"weights": "CIDAS/clipseg-rd64-refined", "revision": "5eed" * 10}
RLE = AnswerFormat(notation=Notation.RLE, coordinates=None, order=None, prompt="plain", grid=None)


def make_job(identity: dict[str, Any], form: AnswerFormat = RLE, **execution: Any) -> Job:
    return Job(
        model="seg",
        benchmark="mine",
        split="val",
        task=Task.MASKS,
        form=form,
        identity={"backend": "clipseg", **identity},
        execution=execution,
    )


def decided(identity: dict[str, Any] = HUB, text: str = "mug", digest: str = "d1", **execution: Any) -> dict[str, Any]:
    return clipseg.decides(Request(len(execution), "a.png", text), make_job(identity, **execution), digest)


@pytest.mark.parametrize(
    "change",
    [
        {"text": "dog"},
        {"digest": "d2"},
        {"identity": HUB | {"revision": "main"}},
        {"identity": HUB | {"threshold": 0.5}},
        {"identity": HUB | {"dtype": "bfloat16", "device": "cuda"}},
    ],
    ids=str,
)
def test_what_can_change_a_mask_asks_anew(change: dict[str, Any]):
    assert decided(**change) != decided()


def test_device_and_a_copy_of_the_weights_do_not_ask_anew():
    assert decided(device="cuda:1", weights_folder="/copy") == decided()
    assert decided(HUB | {"threshold": 0.35, "dtype": "float32"}) == decided()


@pytest.mark.parametrize("threshold", [-0.1, 1, "0.35", None, True, float("nan")])
def test_a_threshold_is_a_probability_that_can_be_exceeded(threshold: Any):
    with pytest.raises(ConfigError, match=r"models\.seg\.identity\.threshold: .* is no probability to exceed"):
        clipseg.check(make_job(HUB | {"threshold": threshold}))


def test_a_threshold_may_be_zero():
    clipseg.check(make_job(HUB | {"threshold": 0}))


def test_half_precision_without_its_device_is_refused_with_the_config():
    with pytest.raises(ConfigError, match=r"models\.seg\.identity\.device: float16 answers differently"):
        clipseg.check(make_job(HUB | {"dtype": "float16"}))


@pytest.mark.parametrize(
    ("execution", "message"),
    [
        pytest.param({"device": "meta"}, "device: 'meta' is none; choose cpu, cuda", id="device"),
        pytest.param({"weights_folder": 5}, "weights_folder: 5 is no path of a folder", id="copy"),
    ],
)
def test_an_execution_that_cannot_be_is_refused_with_the_config(execution: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=rf"models\.seg\.exec\.{message}"):
        clipseg.check(make_job(HUB, **execution))


def test_a_notation_of_texts_is_refused():
    boxes = AnswerFormat(
        notation=Notation.JSON, coordinates=Coordinates.PIXELS, order=Order.XY, prompt="plain", grid=None
    )
    with pytest.raises(
        ConfigError, match=r"models\.seg\.formats\.masks\.notation: clipseg answers in rle, not in json"
    ):
        clipseg.check(make_job(HUB, boxes))
