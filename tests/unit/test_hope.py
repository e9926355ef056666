"""Failing requests fail the job last; a server that is down ends the run first."""

import contextlib
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from reftables.errors import DataError
from reftables.models import openai
from reftables.models.faults import NoAnswerError, UnsendableError
from reftables.models.hope import HOPELESS, PATIENCE, Hope
from reftables.rows import Prediction, Status
from reftables.stages.infer import predict_through_store
from tests.asking import image_bytes, make_job, make_requests
from tests.server import Server

FAILED = NoAnswerError("HTTP 500", again=True)
TURNED_DOWN = NoAnswerError("HTTP 400", again=False)
UNSENDABLE = UnsendableError("a.tif: no image")
MANY = 100 * HOPELESS


def failures_until_lost(error: NoAnswerError, *, answered: bool, partial: bool) -> int | None:
    """How many failures in a row it takes; None where not even `MANY` do."""
    hope = Hope(replace(make_job("http://a", {"model": "m"}), answered=answered, partial=partial))
    for number in range(1, MANY):
        hope.fail(error)
        if hope.lost:
            return number
    return None


@pytest.mark.parametrize(
    ("error", "answered", "partial", "failures"),
    [
        pytest.param(FAILED, False, False, HOPELESS, id="down"),
        pytest.param(FAILED, True, False, HOPELESS, id="down after answers"),
        pytest.param(FAILED, False, True, HOPELESS, id="down, gaps allowed"),
        pytest.param(FAILED, True, True, HOPELESS * PATIENCE, id="down after answers, gaps allowed"),
        pytest.param(TURNED_DOWN, False, False, HOPELESS, id="turns down everything"),
        pytest.param(TURNED_DOWN, True, False, None, id="turns down after answers"),
        pytest.param(TURNED_DOWN, False, True, None, id="turns down everything, gaps allowed"),
        pytest.param(TURNED_DOWN, True, True, None, id="turns down after answers, gaps allowed"),
        pytest.param(UNSENDABLE, False, False, None, id="images that cannot be sent"),
    ],
)
def test_failures_in_a_row_that_end_a_run(
    error: NoAnswerError, answered: bool, partial: bool, failures: int | None
) -> None:
    assert failures_until_lost(error, answered=answered, partial=partial) == failures


def test_an_image_that_cannot_be_sent_neither_ends_a_row_nor_lengthens_it() -> None:
    hope = Hope(make_job("http://a", {"model": "m"}))
    for error in [FAILED, UNSENDABLE] * HOPELESS:
        hope.fail(error)
    assert hope.failures == HOPELESS


def ask(server: Server, texts: list[str], image: object, max_in_flight: int = 1, **changes: bool) -> list[Prediction]:
    job = make_job(server.url, {"model": "m"}, max_in_flight=max_in_flight, retries=0)
    job = replace(job, **changes)  # type: ignore[arg-type]
    return sorted(openai.predict(make_requests(texts, str(image)), job), key=lambda p: p.id)


@pytest.fixture
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("images") / "image.png"
    path.write_bytes(image_bytes("PNG"))
    return str(path)


def test_after_half_of_the_failures_no_neighbour_is_asked_next() -> None:
    hope = Hope(make_job("http://a", {"model": "m"}))
    places = []
    for _ in range(HOPELESS):
        places.append(hope.place(1000))
        hope.fail(FAILED)
    half = HOPELESS // 2
    assert places[:half] == [0] * half
    assert places[half::2] == [999] * (half // 2)
    assert len({*places[half + 1 :: 2]}) > 1
    hope.answer()
    assert hope.place(1000) == 0


@pytest.mark.parametrize("place", ["first", "last", "both"])
def test_neighbours_that_fail_do_not_hide_the_good_ones_behind_them(place: str, image: str) -> None:
    bad, good = ["bad"] * 2 * HOPELESS, ["good"] * 5 * HOPELESS
    texts = {"first": bad + good, "last": good + bad, "both": [*bad[HOPELESS:], *good, *bad[HOPELESS:]]}[place]
    random.seed(7)
    # The bad ones may end the run, once the good ones are answered.
    with Server({"do": "status", "status": 500, "match": "bad"}) as server, contextlib.suppress(DataError):
        ask(server, texts, image)
    assert server.texts.count("good") == len(good)


def test_neighbours_that_fail_together_do_not_end_the_run(image: str) -> None:
    texts = ["bad"] * (HOPELESS + 2) + ["good"] * HOPELESS
    with Server({"do": "status", "status": 500, "match": "bad"}, {"do": "answer", "delay": 0.1}) as server:
        predictions = ask(server, texts, image, max_in_flight=HOPELESS + 4)
    assert Counter(p.status for p in predictions) == {Status.ERROR: HOPELESS + 2, Status.OK: HOPELESS}


def test_what_the_store_answered_lets_a_server_turn_down_all_the_rest(image: str) -> None:
    with Server({"do": "status", "status": 400}) as server:
        predictions = ask(server, ["bad"] * (HOPELESS + 5), image, answered=True)
    assert {p.status for p in predictions} == {Status.ERROR}
    assert len(predictions) == HOPELESS + 5


@pytest.mark.parametrize("code", [400, 500])
def test_requests_that_always_fail_can_be_counted_as_wrong(code: int, image: str) -> None:
    with Server({"do": "status", "status": code}) as server:
        predictions = ask(server, ["bad"] * (HOPELESS + 5), image, answered=True, partial=True)
    assert [p.finish_reason for p in predictions] == [f"HTTP {code}"] * (HOPELESS + 5)


def test_the_end_of_a_run_tells_how_to_let_gaps_pass(image: str) -> None:
    with (
        Server({"do": "status", "status": 500}) as server,
        pytest.raises(DataError, match=r"the last 20 requests .* Or set models\.chat\.partial: allow to count such"),
    ):
        ask(server, ["bad"] * MANY, image, answered=True)
    assert len(server.asked) == HOPELESS


def test_a_rerun_asks_what_is_left_and_lets_it_pass_where_the_config_does(image: str, tmp_path: Path) -> None:
    texts = [f"{'bad' if 10 <= number < 35 else 'good'} {number}" for number in range(65)]
    job = make_job("", {"backend": "openai", "model": "m"}, retries=0)
    ends = []
    with Server({"do": "status", "status": 400, "match": "bad"}) as server:
        job = replace(job, execution=job.execution | {"url": server.url})
        for partial in (False, False, True):
            predictions = predict_through_store(
                openai, make_requests(texts, image), replace(job, partial=partial), {image: "digest"}, tmp_path
            )
            ends.append((len(server.asked), Counter(p.status for p in predictions)))
    assert ends == [(asked, {Status.OK: 40, Status.ERROR: 25}) for asked in (65, 90, 115)]
