import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from reftables.errors import ConfigError
from reftables.models import roborefer
from reftables.rows import Prediction, Request, Status
from tests.asking import image_bytes, make_job, make_requests
from tests.server import TEXT, Server


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "0.jpg"
    path.write_bytes(image_bytes("JPEG"))
    return path


@pytest.fixture
def depth(tmp_path: Path) -> Path:
    path = tmp_path / "depth" / "mine" / "0.png"
    path.parent.mkdir(parents=True)
    path.write_bytes(image_bytes("PNG"))
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def ask(server: Server, image: Path, **identity: Any) -> list[Prediction]:
    job = make_job(server.url, {"model": "RoboRefer-2B-SFT"} | identity)
    return list(roborefer.predict(make_requests(["the red mug"], image), job))


def test_rgb_is_sent_without_depth(image: Path):
    with Server() as server:
        predictions = ask(server, image)
    (asked,) = server.asked
    assert predictions == [Prediction(id=0, status=Status.OK, text=TEXT)]
    assert asked.path == "/query"
    assert asked.images == [sha256(image)]
    assert (asked.body["depth_url"], asked.body["enable_depth"], asked.body["text"]) == ([], 0, "the red mug")


def test_depth_is_left_to_the_server_where_there_are_no_depth_images(image: Path):
    with Server() as server:
        ask(server, image, depth=True)
    assert (server.asked[0].body["depth_url"], server.asked[0].body["enable_depth"]) == ([], 1)


def test_rgb_and_depth_are_sent_together(image: Path, depth: Path):
    with Server() as server:
        ask(server, image, depth=True, depth_images=f"{depth.parent.parent}/{{benchmark}}")
    assert server.asked[0].images == [sha256(image), sha256(depth)]
    assert server.asked[0].body["enable_depth"] == 1


def test_requests_are_asked_one_at_a_time(image: Path):
    with Server({"do": "answer", "delay": 0.01}) as server:
        list(roborefer.predict(make_requests(["a", "b", "c"], image), make_job(server.url, {"model": "m"})))
    assert server.peak == 1


@pytest.mark.parametrize(
    ("reply", "status", "text"),
    [
        pytest.param({"answer": "[(0.1, 0.2)]"}, Status.OK, "[(0.1, 0.2)]", id="points"),
        pytest.param({"answer": ""}, Status.EMPTY, "", id="empty"),
        pytest.param({"answer": None}, Status.EMPTY, "", id="null"),
        pytest.param({}, Status.ERROR, None, id="absent"),
        pytest.param({"answer": [0.1, 0.2]}, Status.ERROR, None, id="no text"),
        pytest.param({"error": "CUDA out of memory"}, Status.ERROR, None, id="error with status 200"),
    ],
)
def test_status_and_text_of_a_reply(reply: dict[str, Any], status: Status, text: str | None, image: Path):
    with Server({"do": "answer", "reply": reply}) as server:
        (prediction,) = ask(server, image)
    assert (prediction.status, prediction.text) == (status, text)


def test_an_error_page_of_the_server_is_an_error(image: Path):
    with Server({"do": "status", "status": 500}) as server:
        (prediction,) = ask(server, image)
    assert (prediction.status, prediction.finish_reason) == (Status.ERROR, "HTTP 500")


def decides(image: Path, digest: str = "d1", **identity: Any) -> str:
    job = make_job("http://a", {"model": "RoboRefer-2B-SFT"} | identity)
    return json.dumps(roborefer.decides(Request(0, str(image), "the red mug"), job, digest))


def test_the_depth_image_decides_like_the_image(image: Path, depth: Path):
    folder = str(depth.parent)
    before = decides(image, depth=True, depth_images=folder)
    depth.write_bytes(image_bytes("PNG", (2, 2)))
    assert decides(image, depth=True, depth_images=folder) != before
    assert decides(image, digest="d2") != decides(image)


@pytest.mark.parametrize("change", [{"model": "RoboRefer-8B-SFT"}, {"revision": "b"}, {"depth": True}], ids=str)
def test_what_the_server_runs_decides(change: dict[str, Any], image: Path):
    assert decides(image, **change) != decides(image)


def test_the_folder_of_depth_images_does_not_decide(image: Path, depth: Path, tmp_path: Path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "0.png").write_bytes(depth.read_bytes())
    moved = decides(image, depth=True, depth_images=str(elsewhere))
    assert moved == decides(image, depth=True, depth_images=str(depth.parent))


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        pytest.param({"depth_images": "d"}, "depth_images: these are read with depth: true", id="no depth"),
        pytest.param({"depth": "yes"}, "identity.depth: 'yes' is neither true nor false", id="text"),
        pytest.param({"depth": True, "depth_images": 5}, "identity.depth_images: 5 is no name", id="no folder"),
        pytest.param({"depth": True, "depth_images": ""}, "identity.depth_images: '' is no name", id="empty"),
        pytest.param({"revision": 5}, "identity.revision: 5 is no text", id="revision"),
        pytest.param({"model": 5}, "identity.model: 5 is no name", id="model"),
    ],
)
def test_a_wrong_setting_is_found_before_anything_runs(identity: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        roborefer.check(make_job("http://a", {"model": "RoboRefer-2B-SFT"} | identity))


def test_a_missing_depth_image_stops_no_other_request(image: Path, depth: Path):
    folder = depth.parent
    other = image.with_name("1.jpg")
    other.write_bytes(image.read_bytes())
    with Server() as server:
        job = make_job(server.url, {"model": "m", "depth": True, "depth_images": str(folder)})
        requests = [Request(0, str(other), "a"), Request(1, str(image), "b")]
        keys = [roborefer.decides(request, job, "digest") for request in requests]
        predictions = list(roborefer.predict(requests, job))
    assert keys[0] != keys[1]
    assert [p.status for p in predictions] == [Status.ERROR, Status.OK]
    assert predictions[0].finish_reason == f"{folder}/1.png: this image cannot be read (No such file or directory)."
    assert server.texts == ["b"]
