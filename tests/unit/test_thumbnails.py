"""Small pictures: how small, made once, and none where there is no image."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from reftables.thumbnails import MOST_BYTES, thumbnail
from tests.unit.test_pictures import POSTSCRIPT, bomb


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image.png"
    Image.new("RGB", (640, 480), (10, 200, 30)).save(path)
    return path


def test_a_thumbnail_keeps_the_shape(image: Path, tmp_path: Path):
    made = thumbnail(image, tmp_path / "small", 320)
    assert made is not None
    with Image.open(made) as picture:
        assert (picture.format, picture.size) == ("JPEG", (320, 240))


def test_noise_is_cut_down_to_the_most_bytes(tmp_path: Path):
    noise = np.random.default_rng(0).integers(0, 255, (900, 900, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")
    made = thumbnail(tmp_path / "noise.png", tmp_path / "small", 800)
    assert made is not None
    assert made.stat().st_size <= MOST_BYTES


def test_a_thumbnail_is_made_once_and_anew_when_its_image_changes(image: Path, tmp_path: Path):
    first = thumbnail(image, tmp_path / "small", 320)
    assert first is not None
    os.utime(first, (0, 0))
    assert thumbnail(image, tmp_path / "small", 320) == first
    assert first.stat().st_mtime == 0
    Image.new("RGB", (640, 480), "red").save(image)
    assert thumbnail(image, tmp_path / "small", 320) != first


@pytest.mark.parametrize("mode", ["P", "RGBA", "L", "I;16"])
def test_every_kind_of_image_is_shown(tmp_path: Path, mode: str):
    Image.new(mode, (50, 40)).save(tmp_path / "image.png")
    assert thumbnail(tmp_path / "image.png", tmp_path / "small", 320) is not None


def test_an_absent_or_damaged_image_has_none(tmp_path: Path):
    (tmp_path / "damaged.jpg").write_bytes(b"\xff\xd8\xff\xe0 cut")
    assert thumbnail(tmp_path / "absent.jpg", tmp_path, 320) is None
    assert thumbnail(tmp_path / "damaged.jpg", tmp_path, 320) is None


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_what_only_claims_to_be_an_image_has_none(tmp_path: Path):
    """Pillow would start a program for the one, and decode 500 MB for the other."""
    (tmp_path / "image.jpg").write_bytes(POSTSCRIPT)
    (tmp_path / "image.png").write_bytes(bomb(13_000, 13_000))
    assert [thumbnail(tmp_path / name, tmp_path, 320) for name in ("image.jpg", "image.png")] == [None, None]


@pytest.mark.parametrize("name", ["a\0b", "n" * 300])
def test_a_name_that_no_file_has_has_none(tmp_path: Path, name: str):
    assert thumbnail(tmp_path / name, tmp_path, 320) is None
