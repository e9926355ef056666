"""The config sections `downloads` and `images`, and the stage that fetches one entry."""

import hashlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reftables.digests import read_digests, read_ledger
from reftables.downloads import read_downloads, read_images
from reftables.errors import ConfigError, DataError
from reftables.stages import download
from tests.conftest import REPOSITORY
from tests.server_files import FileServer
from tests.unit.test_archives import MEMBERS, zipped

CONTENT = b"annotations" * 100_000
OTHER = b"other notes" * 100_000
TARGET = "resources/file"


def entry(**keys: Any) -> dict[str, Any]:
    """An entry of the section, with the schema's defaults."""
    given = {"to": TARGET, "licence": "free", "unpack": {}, "delete_archive": False, **keys}
    return given if {"url", "path"} & given.keys() else given | {"url": "http://files.invalid/file"}


def images(**keys: Any) -> dict[str, Any]:
    return {"folder": "resources/coco", "mode": "single", "connections": 4, "licence": "free", **keys}


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        pytest.param(
            {"a": entry(), "b": entry()}, "downloads.b: resources/file is a target of downloads.a, too", id="one target"
        ),
        pytest.param(
            {"a": entry(), "b": entry(to="resources/b.zip", unpack={"file": TARGET})},
            "downloads.b: resources/file is a target of downloads.a, too",
            id="unpacked over another",
        ),
        pytest.param(
            {"a": entry(unpack={"x": "resources/x", "y": "resources/x"})},
            "downloads.a.unpack: two members go to one target",
            id="one target twice",
        ),
        pytest.param(
            {"a": entry(path="/nowhere/file")}, "downloads.a.path: there is no file /nowhere/file", id="no own copy"
        ),
        pytest.param({"a": entry(url=None)}, "downloads.a: neither a url nor the path of your own copy", id="nothing"),
        pytest.param({"a": entry(to="resources/../x")}, "resources/../x leads out of resources/", id="outside"),
        pytest.param(
            {"a": entry(delete_archive=True)},
            "downloads.a.delete_archive: nothing is unpacked, so nothing would be left",
            id="nothing left",
        ),
    ],
)
def test_downloads_that_contradict_each_other_name_the_key(entries: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_downloads(entries)
    assert message in str(raised.value)


ZIP = {"zip": entry(to="resources/train.zip", unpack={"train/*": "resources/coco/"})}


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        pytest.param({"a": images(url="http://x/y")}, "images.a.url: http://x/y lacks {name}", id="no name"),
        pytest.param({"a": images()}, "images.a: neither a url nor the path of your own copy", id="nothing"),
        pytest.param({"a": images(path="/nowhere")}, "images.a.path: there is no folder /nowhere", id="no own folder"),
        pytest.param({"a": images(mode="zip")}, "images.a.zip: mode zip needs the name of the archive's", id="no zip"),
        pytest.param(
            {"a": images(mode="zip", zip="zap")}, "images.a.zip: 'zap' is not in downloads; it has zip", id="other zip"
        ),
        pytest.param(
            {"a": images(folder="resources/else", mode="zip", zip="zip")},
            "images.a.zip: downloads.zip.unpack puts nothing into resources/else/",
            id="zip of another folder",
        ),
        pytest.param(
            {"a": images(url="http://x/{name}"), "b": images(url="http://x/{name}")},
            "images.b.folder: resources/coco is that of images.a",
            id="one folder twice",
        ),
    ],
)
def test_images_that_cannot_be_had_name_the_key(entries: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_images(entries, read_downloads(ZIP))
    assert message in str(raised.value)


def test_outputs_are_what_others_read_and_the_digests() -> None:
    plain, packed, folder = read_downloads(
        {
            "plain": entry(),
            "packed": entry(to="resources/a.zip", unpack={"a": "resources/a", "b": "resources/b"}),
            "folder": ZIP["zip"],
        }
    ).values()
    assert plain.outputs == ["resources/file", "resources/file.digest"]
    assert packed.outputs == ["resources/a", "resources/b", "resources/a.zip.digest"]
    assert folder.outputs == ["resources/train.zip.digest"]


def known(**keys: Any) -> dict[str, Any]:
    return read_downloads({"a": entry(**keys)})["a"].known_by(lambda path: f"digest of {path}")


def test_a_pin_is_all_that_a_download_is_known_by(tmp_path: Path) -> None:
    (tmp_path / "own").write_bytes(CONTENT)
    pin, path = "5" * 64, str(tmp_path / "own")
    assert known(url="http://a", sha256=pin) == known(url=["http://b", "http://c"], sha256=pin)
    assert known(path=path, sha256=pin) == known(sha256=pin)
    assert known(sha256="6" * 64) != known(sha256=pin)
    assert known(url="http://a") != known(url="http://b")
    assert known(path=path) == {TARGET: ["sha256", f"digest of {path}"]}


def test_what_is_unpacked_is_known_by_its_member(tmp_path: Path) -> None:
    first, second = known(unpack={"x": "resources/x"}), known(unpack={"y": "resources/x"})
    assert first.keys() == second.keys() == {"resources/x"}
    assert first != second


Stage = Callable[..., None]


@pytest.fixture
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Calls the stage for an entry, in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def call(**keys: Any) -> None:
        download.main(arguments(**keys))

    return call


def arguments(**keys: Any) -> list[str]:
    one = read_downloads({"file": entry(**keys)})["file"]
    plain = {name: getattr(one, name) for name in one.__slots__}
    return [
        *("--name", "file", "--entry", json.dumps(plain), "--digest", one.digest),
        *("--ledger", "resources/digests.tsv"),
    ]


def serve(content: bytes = CONTENT, *rules: dict[str, Any]) -> FileServer:
    return FileServer({"/file": content}, *rules)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_the_first_download_is_recorded(fetched: Stage) -> None:
    with serve() as server:
        fetched(url=f"{server.url}/file")
        url = f"{server.url}/file"
    assert Path(TARGET).read_bytes() == CONTENT
    assert read_ledger(Path("resources/digests.tsv")) == {TARGET: (len(CONTENT), sha256(CONTENT), url)}
    assert read_digests(Path(f"{TARGET}.digest")) == {TARGET: sha256(CONTENT)}


def test_sha256sum_reads_the_digest_file(fetched: Stage) -> None:
    with serve() as server:
        fetched(url=f"{server.url}/file")
    checked = subprocess.run(["sha256sum", "--check", f"{TARGET}.digest"], capture_output=True, text=True, check=True)
    assert checked.stdout == f"{TARGET}: OK\n"


def test_an_unpinned_source_that_changed_is_an_error(fetched: Stage) -> None:
    with serve() as server:
        fetched(url=f"{server.url}/file")
    Path(TARGET).unlink()  # as Snakemake does before it runs a rule again
    with serve(OTHER) as changed, pytest.raises(DataError) as raised:
        fetched(url=f"{changed.url}/file")
    assert (
        f"sha256 {sha256(OTHER)}, expected {sha256(CONTENT)} (recorded in resources/digests.tsv when it was first "
        "fetched)\nCheck downloads.file, or name your own copy as its path. If the source was changed on purpose, "
        "remove the line of resources/file from resources/digests.tsv."
    ) in str(raised.value)
    assert not Path(TARGET).exists()


def test_a_change_is_accepted_by_its_pin(fetched: Stage) -> None:
    with serve() as server:
        fetched(url=f"{server.url}/file")
    Path(TARGET).unlink()
    with serve(OTHER) as changed:
        fetched(url=f"{changed.url}/file", sha256=sha256(OTHER))
    assert read_ledger(Path("resources/digests.tsv"))[TARGET].sha256 == sha256(OTHER)


def test_what_lies_there_already_is_verified_and_kept(fetched: Stage) -> None:
    with serve() as server:
        fetched(url=f"{server.url}/file")
        fetched(url=f"{server.url}/file")
        assert len(server.sent) == 1
        Path(TARGET).write_bytes(CONTENT[:-1] + b"!")
        fetched(url=f"{server.url}/file")
        assert len(server.sent) == 2
    assert Path(TARGET).read_bytes() == CONTENT


def test_an_own_copy_is_linked_and_never_written_to(fetched: Stage, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_bytes(CONTENT)
    own.chmod(stat.S_IRUSR)
    before = own.stat()
    fetched(url="http://files.invalid/file", path=str(own), sha256=sha256(CONTENT))
    assert Path(TARGET).readlink() == own
    assert (own.stat().st_mtime_ns, own.stat().st_mode) == (before.st_mtime_ns, before.st_mode)


def test_an_own_copy_is_verified_the_same_way(fetched: Stage, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_bytes(OTHER)
    with pytest.raises(DataError) as raised:
        fetched(path=str(own), sha256=sha256(CONTENT))
    message = f"sha256 {sha256(OTHER)}, expected {sha256(CONTENT)} (downloads.file)"
    assert str(raised.value) == f"downloads.file.path: {own}: {message}"
    assert not Path(TARGET).exists()


def test_a_download_replaces_a_link_and_not_what_it_leads_to(fetched: Stage, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_bytes(OTHER)
    fetched(path=str(own))
    Path("resources/digests.tsv").unlink()
    with serve() as server:
        fetched(url=f"{server.url}/file")
    assert not Path(TARGET).is_symlink()
    assert own.read_bytes() == OTHER


@pytest.mark.parametrize("delete", [False, True], ids=["kept", "deleted"])
def test_members_are_unpacked_and_recorded(fetched: Stage, tmp_path: Path, delete: bool) -> None:
    archive = zipped(tmp_path / "archive", MEMBERS).read_bytes()
    plan = {"set/refs(unc).p": "resources/refs.p", "*/images/*": "resources/coco/"}
    with serve(archive) as server:
        fetched(url=f"{server.url}/file", unpack=plan, delete_archive=delete)
    assert Path("resources/refs.p").read_bytes() == MEMBERS["set/refs(unc).p"]
    assert Path("resources/coco/set/images/1.jpg").exists()
    assert Path(TARGET).exists() is not delete
    assert read_digests(Path(f"{TARGET}.digest")) == {
        TARGET: sha256(archive),
        "resources/refs.p": sha256(MEMBERS["set/refs(unc).p"]),
    }


def test_an_own_archive_is_never_deleted(fetched: Stage, tmp_path: Path) -> None:
    own = zipped(tmp_path / "archive", MEMBERS)
    fetched(path=str(own), unpack={"set/refs(unc).p": "resources/refs.p"}, delete_archive=True)
    assert own.exists()
    assert not Path(TARGET).exists()


def test_two_processes_fetch_a_file_once(tmp_path: Path) -> None:
    with serve() as server:
        command = [sys.executable, "-m", "reftables.stages.download", *arguments(url=f"{server.url}/file")]
        environment = {"PYTHONPATH": str(REPOSITORY / "workflow" / "lib"), "PATH": os.environ["PATH"]}
        processes = [subprocess.Popen(command, cwd=tmp_path, env=environment) for _ in range(2)]
        assert [process.wait() for process in processes] == [0, 0]
        assert [(sent.status, sent.bytes) for sent in server.sent] == [(200, len(CONTENT))]
    assert (tmp_path / TARGET).read_bytes() == CONTENT


@pytest.mark.parametrize("text", ["path\tsize\n", "path\tbytes\tsha256\turl\nresources/file\t12\n"])
def test_a_damaged_ledger_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "digests.tsv").write_text(text)
    with pytest.raises(DataError, match=r"Mend or remove it"):
        read_ledger(tmp_path / "digests.tsv")
