"""Images by need: what is fetched and what is not, what is refused, and what a later run still has to do."""

import zlib
from io import BytesIO
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import pytest
from PIL import Image

from reftables.errors import DataError
from reftables.fetch import Patience
from reftables.images import HOPELESS, Collected, collect, fault_of
from tests.server_files import PAGE, FileServer

HASTY = Patience(connect_s=5, read_s=0.5, retries=1, backoff_s=0.01)


def image(number: int, media_type: str = "JPEG") -> bytes:
    file = BytesIO()
    Image.frombytes("RGB", (32, 24), Random(number).randbytes(32 * 24 * 3)).save(file, media_type)
    return file.getvalue()


IMAGES = {f"train2014/{number}.jpg": image(number) for number in range(12)}
NAMES = [*IMAGES]


def serve(*rules: dict[str, Any], images: dict[str, bytes] = IMAGES) -> FileServer:
    return FileServer({f"/{name}": content for name, content in images.items()}, *rules)


def get(server: FileServer, folder: Path, names: list[str] = NAMES, **more: Any) -> Collected:
    return collect(folder, names, urls=[f"{server.url}/{{name}}"], patience=HASTY, **more)


def line(name: str, content: bytes) -> str:
    return f"{name}\t{len(content)}\t{zlib.crc32(content):08x}"


def test_the_named_images_are_fetched_and_no_others(tmp_path: Path) -> None:
    with serve() as server:
        collected = get(server, tmp_path, NAMES[:5])
        assert sorted(sent.path for sent in server.sent) == sorted(f"/{name}" for name in NAMES[:5])
    assert collected.lines == [line(name, IMAGES[name]) for name in NAMES[:5]]
    assert collected[1:] == (5, sum(len(IMAGES[name]) for name in NAMES[:5]))
    assert (tmp_path / NAMES[0]).read_bytes() == IMAGES[NAMES[0]]


def test_a_larger_split_fetches_the_rest_only(tmp_path: Path) -> None:
    with serve() as server:
        get(server, tmp_path, NAMES[:5])
        collected = get(server, tmp_path)
        assert (collected.fetched, len(collected.lines)) == (7, 12)
        assert len(server.sent) == len(NAMES)


def test_several_connections_at_once_but_no_more(tmp_path: Path) -> None:
    with serve({"do": "serve", "together": 3, "times": 3}) as server:
        get(server, tmp_path, connections=3)
        assert server.peak == 3


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    message = r"1 of 12 images could not be had: \n  train2014/7.jpg: http.*HTTP 404"
    with (
        serve({"do": "status", "status": 404, "match": "/7.jpg"}) as server,
        pytest.raises(DataError, match=message),
    ):
        get(server, tmp_path)
    with serve() as mended:
        assert get(mended, tmp_path).fetched == 1
        assert [sent.path for sent in mended.sent] == ["/train2014/7.jpg"]


def test_a_hopeless_run_ends_early(tmp_path: Path) -> None:
    many = [f"train2014/{number}.jpg" for number in range(100)]
    with serve({"do": "status", "status": 403}) as server:
        with pytest.raises(DataError, match="and no others were tried"):
            get(server, tmp_path, many, connections=2)
        assert len(server.sent) <= HOPELESS + 1


def decodes(content: bytes) -> bool:
    """Whether Pillow itself is content."""
    try:
        with Image.open(BytesIO(content)) as opened:
            opened.load()
    except OSError:
        return False
    return True


SHORT = IMAGES[NAMES[3]][:-300]
# Of some JPEGs the decoder does not miss the end, by the state it is in there.
ENDLESS = next(content for content in (image(number)[:-2] for number in range(400)) if decodes(content))


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        pytest.param({"do": "wrong", "content": SHORT}, "no image that can be decoded", id="truncated"),
        pytest.param({"do": "wrong", "content": ENDLESS}, "a JPEG without its end", id="without its last two bytes"),
        pytest.param({"do": "wrong", "content": PAGE}, "no image that can be decoded", id="page as an image"),
        pytest.param({"do": "page"}, "a web page (text/html), not the file", id="page"),
        pytest.param({"do": "empty"}, "no bytes at all", id="empty"),
        pytest.param({"do": "cut", "at": 1000}, "cut after", id="always cut"),
        pytest.param({"do": "status", "status": 500}, "HTTP 500 Internal Server Error", id="500"),
    ],
)
def test_what_is_no_whole_image_is_refused(tmp_path: Path, rule: dict[str, Any], message: str) -> None:
    name = NAMES[3]
    with serve(rule | {"match": "/3.jpg"}) as server, pytest.raises(DataError) as raised:
        get(server, tmp_path)
    assert f"{name}: {server.url}/{name}: {message}" in str(raised.value)
    assert not (tmp_path / name).exists()
    assert len([*tmp_path.glob("train2014/*")]) == 11


def test_what_passes_is_tried_again(tmp_path: Path) -> None:
    with serve(
        {"do": "cut", "at": 500, "match": "/1.jpg", "times": 1},
        {"do": "status", "status": 429, "headers": {"Retry-After": "0"}, "match": "/2.jpg", "times": 1},
        {"do": "stall", "at": 500, "match": "/3.jpg", "times": 1},
    ) as server:
        assert get(server, tmp_path).fetched == 12


def test_a_mirror_steps_in(tmp_path: Path) -> None:
    with serve({"do": "wrong", "content": SHORT, "match": "/3.jpg"}) as first, serve() as second:
        urls = [f"{server.url}/{{name}}" for server in (first, second)]
        assert collect(tmp_path, NAMES, urls=urls, patience=HASTY).fetched == 12
        assert len(second.sent) == 1


def test_an_image_damaged_on_the_disk_is_fetched_again(tmp_path: Path) -> None:
    with serve() as server:
        before = get(server, tmp_path)
        (tmp_path / NAMES[4]).write_bytes(IMAGES[NAMES[5]])
        after = get(server, tmp_path)
    assert (after.fetched, after.lines) == (1, before.lines)


def test_an_image_that_the_source_replaced_is_an_error(tmp_path: Path) -> None:
    with serve() as server:
        get(server, tmp_path)
    (tmp_path / NAMES[4]).unlink()
    with (
        serve({"do": "wrong", "content": IMAGES[NAMES[5]], "match": "/4.jpg"}) as changed,
        pytest.raises(DataError, match=r"train2014/4.jpg: has become another image since .* remove its line from"),
    ):
        get(changed, tmp_path)
    assert not (tmp_path / NAMES[4]).exists()


def test_an_image_without_a_line_is_checked_and_kept(tmp_path: Path) -> None:
    """What a kill between the file's name and its line leaves behind, or half of it under the old habit of others."""
    (tmp_path / "train2014").mkdir()
    (tmp_path / NAMES[0]).write_bytes(IMAGES[NAMES[0]])
    (tmp_path / NAMES[1]).write_bytes(IMAGES[NAMES[1]][:500])
    with serve() as server:
        assert get(server, tmp_path, NAMES[:2]).fetched == 1
        assert [sent.path for sent in server.sent] == ["/train2014/1.jpg"]


@pytest.mark.parametrize("torn", ["train2014/9.j", "train2014/9.jpg\t12"])
def test_a_torn_ledger_loses_its_last_line_only(tmp_path: Path, torn: str) -> None:
    with serve() as server:
        get(server, tmp_path, NAMES[:2])
        with (tmp_path / "manifest.tsv").open("a") as ledger:
            ledger.write(torn)
        get(server, tmp_path, NAMES[:4])
        assert get(server, tmp_path, NAMES[:4]).fetched == 0
    lines = (tmp_path / "manifest.tsv").read_text().split("\n")
    assert sorted(lines[3:]) == sorted([torn, line(NAMES[2], IMAGES[NAMES[2]]), line(NAMES[3], IMAGES[NAMES[3]]), ""])


def test_two_processes_fetch_an_image_once(tmp_path: Path) -> None:
    processes = get_context("fork")
    with serve() as server:
        workers = [processes.Process(target=get, args=(server, tmp_path)) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert [worker.exitcode for worker in workers] == [0, 0]
        assert len(server.sent) == len(NAMES)


def test_own_copies_are_linked_and_checked_the_same_way(tmp_path: Path) -> None:
    copies = tmp_path / "copies"
    for name, content in IMAGES.items():
        (copies / name).parent.mkdir(parents=True, exist_ok=True)
        (copies / name).write_bytes(content)
    folder = tmp_path / "images"
    assert collect(folder, NAMES[:6], copies=copies).lines == [line(name, IMAGES[name]) for name in NAMES[:6]]
    assert (folder / NAMES[0]).readlink() == copies / NAMES[0]
    (copies / NAMES[0]).write_bytes(IMAGES[NAMES[1]])
    (copies / NAMES[7]).write_bytes(SHORT)
    (copies / NAMES[8]).unlink()
    with pytest.raises(DataError) as raised:
        collect(folder, [NAMES[0], NAMES[7], NAMES[8]], copies=copies, connections=1)
    assert "train2014/0.jpg: has become another image" in str(raised.value)
    assert f"train2014/7.jpg: {copies / NAMES[7]}: no image that can be decoded" in str(raised.value)
    assert f"train2014/8.jpg: there is no {copies / NAMES[8]}" in str(raised.value)


def test_without_a_source_the_images_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="missing or damaged; to unpack it again"):
        collect(tmp_path, NAMES[:1])


@pytest.mark.parametrize("name", ["../outside.jpg", "/outside.jpg", "a\tb.jpg"])
def test_annotations_cannot_name_files_elsewhere(tmp_path: Path, name: str) -> None:
    with serve() as server, pytest.raises(DataError, match="no image can have the name"):
        get(server, tmp_path / "images", [name])
    assert server.sent == []


def test_names_are_quoted_in_urls(tmp_path: Path) -> None:
    with serve(images={"a b+c#d.jpg": image(1)}) as server:
        assert get(server, tmp_path, ["a b+c#d.jpg"]).fetched == 1


@pytest.mark.parametrize("media_type", ["JPEG", "PNG", "WEBP"])
def test_whole_images_of_each_kind_have_no_fault(media_type: str) -> None:
    assert fault_of(image(3, media_type)) is None
    assert fault_of(image(3, media_type)[:-200])
