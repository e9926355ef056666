"""Manifests: what an image is known by without opening it."""

import zlib
from pathlib import Path

import pytest

from reftables.errors import DataError
from reftables.manifest import entry, image_digests, make_manifest, read_manifest, write_manifest


def test_digest_is_size_and_crc32(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"content")
    write_manifest(tmp_path / "manifest.tsv", make_manifest(tmp_path, ["a.jpg"]))
    expected = {f"{tmp_path}/a.jpg": f"7-{zlib.crc32(b'content'):08x}"}
    assert image_digests(tmp_path / "manifest.tsv", tmp_path, expected) == expected


def test_absent_images_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"2 images are missing: a\.jpg, b/c\.jpg"):
        make_manifest(tmp_path, ["a.jpg", "b/c.jpg"])


@pytest.mark.parametrize("name", ["../a.jpg", "/a.jpg", "a\tb.jpg", "./a.jpg", "a\0"])
def test_a_name_that_leads_out_or_no_line_can_carry_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=r"no image can have the name .*Mend the annotations"):
        make_manifest(tmp_path, [name])


def test_a_folder_is_no_image(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").mkdir()
    with pytest.raises(DataError, match=r"1 images are missing: a\.jpg"):
        make_manifest(tmp_path, ["a.jpg"])


def test_a_root_with_a_dot_first_is_the_same_root(tmp_path: Path) -> None:
    write_manifest(tmp_path / "manifest.tsv", [entry("a.jpg", b"")])
    assert image_digests(tmp_path / "manifest.tsv", "./images", ["./images/a.jpg"]) == {"./images/a.jpg": "0-00000000"}


def test_image_the_manifest_lacks_is_named(tmp_path: Path) -> None:
    write_manifest(tmp_path / "manifest.tsv", [entry("a.jpg", b"")])
    with pytest.raises(DataError, match=r"2 images are not in the manifest: images/b\.jpg, elsewhere/a\.jpg"):
        image_digests(tmp_path / "manifest.tsv", "images", ["images/a.jpg", "images/b.jpg", "elsewhere/a.jpg"])


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "begins with"), ("name\tbytes\n", "begins with"), ("name\tbytes\tcrc32\na.jpg\t3\n", "line 2 has not three")],
    ids=["empty", "other header", "cut line"],
)
def test_damaged_manifest_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "manifest.tsv").write_text(text)
    with pytest.raises(DataError, match=message):
        read_manifest(tmp_path / "manifest.tsv")
