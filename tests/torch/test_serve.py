"""The `openai` backend against a server that is not ours: `transformers serve` with a tiny model of random weights."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import requests as http

from reftables.models import openai
from reftables.models.job import Job
from reftables.rows import Prediction, Request, Status
from reftables.stages.infer import predict_through_store
from tests.asking import make_job
from tests.torch import tiny_llava

pytestmark = pytest.mark.torch

SERVER_PACKAGES = ("accelerate", "fastapi", "openai", "uvicorn")
START_S = 300.0  # it imports all of transformers; a few seconds where nothing else runs
_LISTENS = re.compile(r"running on (http://127\.0\.0\.1:[1-9]\d*)")  # uvicorn's own words
STOP_S = 20.0
MAX_TOKENS = 48
TEXTS = ("the red mug", "where is it?")


class ServedModel:
    """A running `transformers serve` with one model, on a port that the system chooses: no other can take it."""

    def __init__(self, folder: Path, log: Path) -> None:
        self.model = str(folder)
        self.url = ""
        self._log = log
        command = [sys.executable, "-m", "transformers.cli.transformers", "serve", self.model]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [*command, "--host", "127.0.0.1", "--port", "0", "--device", "cpu"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "NO_PROXY": "127.0.0.1"},
            )

    def wait(self) -> None:
        """Until it answers; fails where it ends before, or never does."""
        deadline = time.monotonic() + START_S
        while self._process.poll() is None and time.monotonic() < deadline:
            if found := _LISTENS.search(self.log()):
                self.url = f"{found[1]}/v1"
                if self._answers():
                    return
            time.sleep(0.2)
        ended = self._process.poll()
        state = f"does not answer after {START_S:.0f} s" if ended is None else f"ended with status {ended}"
        pytest.fail(f"transformers serve {state}. It said:\n{self.log()[-4000:]}")

    def _answers(self) -> bool:
        try:
            return http.get(self.url.removesuffix("/v1") + "/health", timeout=5).ok
        except (http.ConnectionError, http.Timeout):
            return False  # not yet

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def asked(self) -> int:
        """How many questions have reached it, by its own account."""
        return self.log().count("POST /v1/chat/completions")

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@pytest.fixture(scope="module")
def llava_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llava.save(tmp_path_factory.mktemp("weights") / "llava")


@pytest.fixture(scope="module")
def server(llava_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedModel]:
    if missing := [name for name in SERVER_PACKAGES if find_spec(name) is None]:
        pytest.skip(f"transformers serve needs {', '.join(missing)}: requirements-torch.txt")
    served = ServedModel(llava_folder, tmp_path_factory.mktemp("serve") / "log")
    try:
        served.wait()
        yield served
    finally:
        served.stop()


@pytest.fixture(scope="module")
def questions(images: list[str]) -> list[Request]:
    """Every text of every image."""
    pairs = [(image, text) for image in images for text in TEXTS]
    return [Request(number, image, text) for number, (image, text) in enumerate(pairs)]


def served_job(server: ServedModel, /, **identity: Any) -> Job:
    return make_job(
        server.url,
        {"backend": "openai", "model": server.model, "max_tokens": MAX_TOKENS} | identity,
        read_timeout=120,
        max_in_flight=2,
    )


def asking(server: ServedModel, ask: Callable[[], list[Prediction]]) -> tuple[list[Prediction], int]:
    """What `ask` gives, and how many questions of it reached the server."""
    before = server.asked()
    return ask(), server.asked() - before


@pytest.fixture(scope="module")
def predictions(server: ServedModel, questions: list[Request]) -> list[Prediction]:
    return sorted(openai.predict(questions, served_job(server)), key=lambda prediction: prediction.id)


@pytest.fixture(scope="module")
def expected(llava_folder: Path, questions: list[Request]) -> list[tiny_llava.Reply]:
    """What the model says without any server between."""
    return tiny_llava.chat(llava_folder, questions, max_tokens=MAX_TOKENS)


def test_text_and_image_arrive_and_the_answer_comes_back(
    predictions: list[Prediction], expected: list[tiny_llava.Reply]
) -> None:
    assert [prediction.text for prediction in predictions] == [reply.text for reply in expected]
    assert len({prediction.text for prediction in predictions}) == len(predictions)  # none is blind or deaf


def test_an_answer_that_ends_is_ok_and_one_that_is_cut_is_truncated(
    predictions: list[Prediction], expected: list[tiny_llava.Reply]
) -> None:
    found = [(prediction.status, prediction.finish_reason) for prediction in predictions]
    ended, cut = (Status.OK, "stop"), (Status.TRUNCATED, "length")
    assert found == [ended if reply.stopped else cut for reply in expected]
    assert {*found} == {ended, cut}


def test_tokens_are_counted_as_the_server_counts_them(
    predictions: list[Prediction], expected: list[tiny_llava.Reply]
) -> None:
    found = [(prediction.tokens_in, prediction.tokens_out) for prediction in predictions]
    assert found == [(reply.tokens_in, reply.tokens_out) for reply in expected]


def test_a_model_that_says_nothing_gives_an_empty_answer(server: ServedModel, questions: list[Request]) -> None:
    at_once = {"logit_bias": {str(tiny_llava.SPECIALS.index("</s>")): 1000.0}}
    (prediction,) = openai.predict(questions[:1], served_job(server, extra=at_once))
    assert (prediction.status, prediction.text, prediction.tokens_out) == (Status.EMPTY, "", 1)


def test_a_system_message_is_read_before_the_question(
    server: ServedModel, questions: list[Request], predictions: list[Prediction]
) -> None:
    (prediction,) = openai.predict(questions[:1], served_job(server, system="Be brief."))
    assert predictions[0].tokens_in is not None
    assert prediction.tokens_in == predictions[0].tokens_in + len("system: Be brief. ")  # a token a character
    assert prediction.text != predictions[0].text


def test_a_model_that_is_not_served_is_an_error_and_asked_once(server: ServedModel, questions: list[Request]) -> None:
    job = served_job(server, model="another/model")
    (prediction,), asked = asking(server, lambda: list(openai.predict(questions[:1], job)))
    assert (prediction.status, prediction.finish_reason, asked) == (Status.ERROR, "HTTP 400", 1)


def ask_through_store(job: Job, requests: Sequence[Request], folder: Path) -> list[Prediction]:
    return predict_through_store(openai, requests, job, {request.image: request.image for request in requests}, folder)


def test_nothing_is_asked_twice(
    server: ServedModel, questions: list[Request], predictions: list[Prediction], tmp_path: Path
) -> None:
    job = served_job(server)
    first, asked_first = asking(server, lambda: ask_through_store(job, questions[:4], tmp_path))
    longer, asked_then = asking(server, lambda: ask_through_store(job, questions, tmp_path))
    again, asked_again = asking(server, lambda: ask_through_store(job, questions, tmp_path))
    assert (asked_first, asked_then, asked_again) == (4, len(questions) - 4, 0)
    assert first == predictions[:4]
    assert longer == again == predictions


def test_other_decoding_is_asked_anew(server: ServedModel, questions: list[Request], tmp_path: Path) -> None:
    ask_through_store(served_job(server), questions[:1], tmp_path)
    shorter = served_job(server, max_tokens=5)
    (cut,), asked = asking(server, lambda: ask_through_store(shorter, questions[:1], tmp_path))
    assert (asked, cut.status, cut.tokens_out) == (1, Status.TRUNCATED, 5)
