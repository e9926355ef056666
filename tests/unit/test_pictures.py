"""Pictures of strangers: whole, of a known format and of a bearable size, or refused."""

import contextlib
import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from reftables.errors import DataError
from reftables.models.openai import RESIZES, _seen_size
from reftables.models.regions import read_image
from reftables.pictures import PictureError, load_picture, load_rgb, picture_size
from tests.asking import image_bytes


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes whose header promises so many pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP"])
def test_a_whole_picture_can_be_used_after_its_file_is_closed(kind: str) -> None:
    assert load_picture(io.BytesIO(image_bytes(kind))).convert("RGB").size == (64, 48)


@pytest.mark.parametrize("side", [10_000, 20_000, 60_000], ids=["warned of", "refused by Pillow", "absurd"])
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_a_decompression_bomb_is_an_error(side: int) -> None:
    with pytest.raises(PictureError, match=f"Image size \\({side * side} pixels\\) exceeds limit"):
        load_picture(io.BytesIO(bomb(side, side)))


@pytest.mark.parametrize("read", [load_picture, load_rgb, picture_size])
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_more_pixels_than_pillow_only_warns_of_are_not_decoded(read: Callable[[str], object], tmp_path: Path) -> None:
    path = tmp_path / "large.png"
    path.write_bytes(bomb(13_000, 13_000))
    with pytest.raises(PictureError, match="169000000 pixels"):
        read(str(path))


def test_the_size_alone_is_read_from_the_header() -> None:
    assert picture_size(io.BytesIO(bomb(300, 200))) == (300, 200)


def test_a_palette_in_rgb() -> None:
    assert load_rgb(io.BytesIO(image_bytes("GIF"))).mode == "RGB"


def test_nothing_else_opens_pictures(repository: Path) -> None:
    package = repository / "workflow" / "lib" / "reftables"
    opening = {str(p.relative_to(package)) for p in package.rglob("*.py") if "Image.open(" in p.read_text("utf-8")}
    assert opening == {"pictures.py"}


def test_a_picture_cut_short_is_an_error() -> None:
    with pytest.raises(PictureError):
        load_picture(io.BytesIO(image_bytes("JPEG")[:-200]))


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EOF\n"


@pytest.mark.parametrize("read", [load_picture, load_rgb, picture_size])
def test_formats_that_run_programs_are_not_even_tried(read: Callable[[io.BytesIO], object]) -> None:
    with pytest.raises(PictureError, match="none of BMP, GIF, JPEG, PNG, WEBP, or damaged"):
        read(io.BytesIO(POSTSCRIPT))


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=60, deadline=None)
@given(data=st.data(), kind=st.sampled_from(["JPEG", "PNG", "WEBP", "GIF", "BMP"]))
def test_any_damage_is_a_picture_error_if_it_shows(data: st.DataObject, kind: str) -> None:
    content = bytearray(image_bytes(kind))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(PictureError):
        load_picture(io.BytesIO(content))


def test_backends_that_look_name_the_bomb(tmp_path: Path) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(bomb(60_000, 60_000))
    with pytest.raises(DataError, match=r"bomb\.png: no such image, or none that can be read \(Image size"):
        read_image(str(path))
    with pytest.raises(DataError, match=r"bomb\.png: its size cannot be told: Image size"):
        _seen_size(str(path), RESIZES["qwen2.5-vl"])


def test_the_limit_is_pillows_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert load_picture(io.BytesIO(image_bytes("PNG"))).size == (64, 48)
