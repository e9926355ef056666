"""Local chat models before anything is loaded: what decides an answer, what the config may say. No torch needed."""

from pathlib import Path
from typing import Any

import pytest

from reftables.errors import ConfigError
from reftables.models import vlm
from reftables.models.job import Job
from reftables.rows import AnswerFormat, Coordinates, Notation, Order, Request, Task

HUB = {"weights": "Qwen/Qwen2.5-VL-3B-Instruct", "revision": "5eed" * 10}
JSON = AnswerFormat(
    notation=Notation.JSON, coordinates=Coordinates.RESIZED_PIXELS, order=Order.XY, prompt="qwen", grid=None
)


def make_job(identity: dict[str, Any], **execution: Any) -> Job:
    return Job(
        model="chat",
        benchmark="mine",
        split="val",
        task=Task.BOXES,
        form=JSON,
        identity={"backend": "vlm", **identity},
        execution=execution,
    )


def decided(identity: dict[str, Any] = HUB, text: str = "mug", digest: str = "d1", **execution: Any) -> dict[str, Any]:
    return vlm.decides(Request(len(execution), "a.png", text), make_job(identity, **execution), digest)


@pytest.mark.parametrize(
    "change",
    [
        {"text": "dog"},
        {"digest": "d2"},
        {"identity": HUB | {"revision": "main"}},
        {"identity": HUB | {"max_new_tokens": 100}},
        {"identity": HUB | {"system": "Be brief."}},
        {"identity": HUB | {"min_pixels": 3136}},
        {"identity": HUB | {"max_pixels": 3136}},
        {"identity": HUB | {"trust_remote_code": True}},
        {"identity": HUB | {"dtype": "bfloat16", "device": "cuda"}},
    ],
    ids=str,
)
def test_what_can_change_an_answer_asks_anew(change: dict[str, Any]):
    assert decided(**change) != decided()


def test_device_and_a_copy_of_the_weights_do_not_ask_anew():
    assert decided(device="cuda:1", weights_folder="/copy") == decided()
    assert decided(HUB | {"max_new_tokens": 512, "trust_remote_code": False}) == decided()


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        pytest.param({"max_new_tokens": 0}, "max_new_tokens: 0 is no number of tokens, 1 or more", id="no tokens"),
        pytest.param({"max_new_tokens": None}, "max_new_tokens: None is no number of tokens", id="null"),
        pytest.param({"max_pixels": "1280"}, "max_pixels: '1280' is no number of pixels", id="text"),
        pytest.param({"min_pixels": 2, "max_pixels": 1}, "min_pixels: more than max_pixels", id="crossed"),
        pytest.param({"system": 7}, "system: 7 is no text", id="system"),
        pytest.param({"dtype": "bfloat16"}, "device: bfloat16 answers differently", id="device"),
        pytest.param({"trust_remote_code": "yes"}, "trust_remote_code: 'yes' is neither true nor false", id="yes"),
    ],
)
def test_an_identity_that_makes_no_request_is_refused_with_the_config(identity: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=rf"models\.chat\.identity\.{message}"):
        vlm.check(make_job(HUB | identity))


@pytest.mark.parametrize(
    ("execution", "message"),
    [
        pytest.param({"batch_size": "4"}, "batch_size: '4' is no number of requests, 1 or more", id="batch size"),
        pytest.param({"device": ["cpu"]}, r"device: \['cpu'\] is none; choose cpu, cuda", id="device"),
        pytest.param({"weights_folder": 5}, "weights_folder: 5 is no path of a folder", id="copy"),
    ],
)
def test_an_execution_that_cannot_be_is_refused_with_the_config(execution: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=rf"models\.chat\.exec\.{message}"):
        vlm.check(make_job(HUB, **execution))


@pytest.mark.parametrize("revision", ["main", "5eed", "5EED" * 10, "v1.0"])
def test_code_that_is_not_pinned_by_a_commit_never_runs(revision: str):
    with pytest.raises(ConfigError, match=r"identity\.trust_remote_code: .* can change under its name"):
        vlm.check(make_job(HUB | {"revision": revision, "trust_remote_code": True}))


def test_code_in_a_folder_never_runs(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"identity\.trust_remote_code: code runs only from the hub"):
        vlm.check(make_job({"weights": str(tmp_path), "trust_remote_code": True}))


def test_code_in_a_copy_that_only_says_to_be_the_hubs_never_runs(tmp_path: Path):
    job = make_job(HUB | {"trust_remote_code": True}, weights_folder=str(tmp_path))
    with pytest.raises(ConfigError, match=r"trust_remote_code: code runs only from the hub, .* exec\.weights_folder"):
        vlm.check(job)
    with pytest.raises(ConfigError, match=r"exec\.weights_folder"):
        vlm.decides(Request(0, "a.png", "mug"), job, "d1")


def test_code_that_is_pinned_may_run():
    vlm.check(make_job(HUB | {"trust_remote_code": True}))
