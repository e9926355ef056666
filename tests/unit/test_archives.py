"""Unpacking: the members that are wanted, and nothing at all of an archive that is not to be trusted."""

import io
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from reftables.archives import ALWAYS_ALLOWED, MOST_HEADER, unpack
from reftables.errors import DataError

MEMBERS = {
    "set/refs(unc).p": b"refs",
    "set/instances.json": b"{}",
    "set/images/1.jpg": b"one",
    "set/images/2.jpg": b"2",
}


def zipped(path: Path, members: dict[str, bytes], *more: tuple[zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        for entry, content in more:
            archive.writestr(entry, content)
    return path


def tarred(path: Path, members: dict[str, bytes], *more: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        for entry in more:
            archive.addfile(entry)
    return path


Pack = Callable[[Path, dict[str, bytes]], Path]


@pytest.fixture(params=[zipped, tarred], ids=["zip", "tar"])
def pack(request: pytest.FixtureRequest) -> Pack:
    packer: Pack = request.param
    return packer


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "archive"
    }


def test_members_go_where_the_plan_says(tmp_path: Path, pack: Pack) -> None:
    archive = pack(tmp_path / "archive", MEMBERS)
    plan = {"set/refs(unc).p": f"{tmp_path}/refs.p", "*/images/*": f"{tmp_path}/coco/"}
    assert unpack(archive, plan) == [
        tmp_path / "refs.p",
        tmp_path / "coco/set/images/1.jpg",
        tmp_path / "coco/set/images/2.jpg",
    ]
    assert files(tmp_path) == {"refs.p": b"refs", "coco/set/images/1.jpg": b"one", "coco/set/images/2.jpg": b"2"}


def test_members_below_a_dot_are_found(tmp_path: Path) -> None:
    archive = tarred(tmp_path / "archive", {f"./{name}": content for name, content in MEMBERS.items()})
    unpack(archive, {"set/instances.json": f"{tmp_path}/instances.json"})
    assert files(tmp_path) == {"instances.json": b"{}"}


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("set/ref.p", "no member is named set/ref.p; it has set/refs(unc).p, set/instances.json"),
        ("*.jpg", "2 members are named *.jpg, for the one file"),
    ],
)
def test_a_plan_that_does_not_fit_names_the_members(tmp_path: Path, pack: Pack, pattern: str, message: str) -> None:
    with pytest.raises(DataError) as raised:
        unpack(pack(tmp_path / "archive", MEMBERS), {pattern: f"{tmp_path}/file"})
    assert message in str(raised.value)


BAD_NAMES = {
    "../outside": "leads out of the folder",
    "set/../../outside": "leads out of the folder",
    "/etc/outside": "is absolute",
    "C:/outside": "is absolute",
    "set\\..\\outside": "is no plain path",
}


@pytest.mark.parametrize(("name", "why"), BAD_NAMES.items())
def test_a_member_that_leads_out_spoils_the_archive(tmp_path: Path, pack: Pack, name: str, why: str) -> None:
    archive = pack(tmp_path / "archive", {**MEMBERS, name: b"evil"})
    with pytest.raises(DataError) as raised:
        unpack(archive, {"set/*": f"{tmp_path}/inside/"})
    assert f"the member {name!r} {why}. Nothing was unpacked" in str(raised.value)
    assert files(tmp_path) == {}


def zip_link(path: Path) -> Path:
    link = zipfile.ZipInfo("set/link")
    link.create_system = 3  # Unix, whose file modes say what is a link
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    return zipped(path, MEMBERS, (link, b"/etc/passwd"))


def tar_entry(kind: bytes) -> Callable[[Path], Path]:
    def write(path: Path) -> Path:
        entry = tarfile.TarInfo("set/link")
        entry.type, entry.linkname = kind, "/etc/passwd"
        return tarred(path, MEMBERS, entry)

    return write


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(zip_link, id="zip, symbolic link"),
        pytest.param(tar_entry(tarfile.SYMTYPE), id="tar, symbolic link"),
        pytest.param(tar_entry(tarfile.LNKTYPE), id="tar, hard link"),
        pytest.param(tar_entry(tarfile.CHRTYPE), id="tar, device"),
    ],
)
def test_links_and_devices_spoil_the_archive(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    with pytest.raises(DataError, match=r"'set/link' is a link or a device. Nothing was unpacked"):
        unpack(write(tmp_path / "archive"), {"set/*": f"{tmp_path}/inside/"})
    assert files(tmp_path) == {}


def test_a_bomb_is_not_unpacked(tmp_path: Path, pack: Pack) -> None:
    archive = pack(tmp_path / "archive", {"zeros": bytes(20 * ALWAYS_ALLOWED)})
    with pytest.raises(DataError, match=r"bytes that claim to hold 20,971,520, more than 100 times as much"):
        unpack(archive, {"zeros": f"{tmp_path}/zeros"})
    assert files(tmp_path) == {}


def test_a_member_that_lies_about_its_size_gets_no_name(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "archive", {"zeros": bytes(50_000_000)})
    size, smaller = (50_000_000).to_bytes(4, "little"), (1000).to_bytes(4, "little")
    archive.write_bytes(archive.read_bytes().replace(size, smaller))
    with pytest.raises(DataError, match="zeros: not a sound archive"):
        unpack(archive, {"zeros": f"{tmp_path}/zeros"})
    assert files(tmp_path) == {}


@pytest.mark.parametrize("keep", [0.3, 0.9], ids=["a third", "most"])
def test_half_an_archive_gives_nothing(tmp_path: Path, pack: Pack, keep: float) -> None:
    noise = bytes((i * i * 7919 >> 5) & 255 for i in range(100_000))
    archive = pack(tmp_path / "archive", {"noise": noise})
    whole = archive.read_bytes()
    archive.write_bytes(whole[: int(len(whole) * keep)])
    with pytest.raises(DataError, match=r"not a sound archive.* Get the archive anew"):
        unpack(archive, {"noise": f"{tmp_path}/noise"})
    assert files(tmp_path) == {}


def test_a_flipped_byte_in_a_zip_is_noticed(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "archive", {"set/a": b"a" * 1000})
    content = bytearray(archive.read_bytes())
    content[40] ^= 1
    archive.write_bytes(bytes(content))
    with pytest.raises(DataError, match="set/a: not a sound archive"):
        unpack(archive, {"set/a": f"{tmp_path}/a"})
    assert files(tmp_path) == {}


def test_what_an_earlier_run_unpacked_is_not_written_again(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "archive", MEMBERS)
    unpack(archive, {"*": f"{tmp_path}/all/"})
    kept, damaged = (tmp_path / "all/set/images" / name for name in ("1.jpg", "2.jpg"))
    time = kept.stat().st_mtime_ns
    damaged.write_bytes(b"3")
    unpack(archive, {"*": f"{tmp_path}/all/"})
    assert kept.stat().st_mtime_ns == time
    assert damaged.read_bytes() == b"2"


def test_a_prefix_taken_off_makes_no_path_absolute(tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    archive = tarred(tmp_path / "archive", {f"./{outside}": b"out"})
    with pytest.raises(DataError, match=r"archive: the member '\.//.* is absolute\. Nothing was unpacked"):
        unpack(archive, {"*": f"{tmp_path}/into/"})
    assert not outside.exists()


@pytest.mark.parametrize("name", ["a//b", "a/./b", "././a", f"{'n' * 300}.jpg"], ids=lambda name: name[:5])
def test_names_that_are_not_the_plain_ones_of_files_spoil_the_archive(tmp_path: Path, pack: Pack, name: str) -> None:
    archive = pack(tmp_path / "archive", {name: b"content"})
    with pytest.raises(DataError, match=r"archive: the member '.* is (no plain path|longer than file systems bear)"):
        unpack(archive, {"*": f"{tmp_path}/into/"})


def test_a_zip_with_a_file_named_dot_is_refused(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "archive", {".": b"content"})
    with pytest.raises(DataError, match=r"archive: the member '\.' is no plain path"):
        unpack(archive, {"*": f"{tmp_path}/into/"})


def test_the_entry_of_the_top_folder_is_passed_over(tmp_path: Path) -> None:
    top = tarfile.TarInfo("./")
    top.type = tarfile.DIRTYPE
    archive = tarred(tmp_path / "archive", {"./a": b"content"}, top)
    assert unpack(archive, {"*": f"{tmp_path}/into/"}) == [tmp_path / "into/a"]


def test_a_file_that_is_a_folder_too_is_refused(tmp_path: Path, pack: Pack) -> None:
    archive = pack(tmp_path / "archive", {"a": b"file", "a/b": b"below"})
    with pytest.raises(DataError, match=r"archive: a is a file and a folder at once\. Nothing was unpacked"):
        unpack(archive, {"*": f"{tmp_path}/into/"})
    assert files(tmp_path) == {}


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_two_members_of_one_name_are_refused(tmp_path: Path) -> None:
    twice = (zipfile.ZipInfo("a"), b"other")
    with pytest.raises(DataError, match=r"zip: two members are named 'a'\. Nothing was unpacked"):
        unpack(zipped(tmp_path / "zip", {"a": b"first"}, twice), {"*": f"{tmp_path}/into/"})
    with pytest.raises(DataError, match=r"tar: two members are named 'a'"):
        unpack(tarred(tmp_path / "tar", {"a": b"first"}, tarfile.TarInfo("a")), {"*": f"{tmp_path}/into/"})


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_an_exact_copy_in_a_zip_is_no_fault(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "zip", {"a": b"same"}, (zipfile.ZipInfo("a"), b"same"))
    assert unpack(archive, {"*": f"{tmp_path}/into/"}) == [tmp_path / "into/a"]


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT], ids=["pax", "GNU long name"])
def test_a_header_that_would_fill_the_memory_is_refused(tmp_path: Path, form: int) -> None:
    with tarfile.open(tmp_path / "archive", "w:gz", format=form) as archive:
        archive.addfile(tarfile.TarInfo("n" * (MOST_HEADER + 1)))
    with pytest.raises(DataError, match=r"not a sound archive, .*: an entry has a header of [\d,]+ bytes"):
        unpack(tmp_path / "archive", {"*": f"{tmp_path}/into/"})
