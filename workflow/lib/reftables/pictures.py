"""Opening picture files that strangers made: the one place that does.

Pillow alone would try formats whose readers run programs, whatever a file's name, and decode twice as many
pixels as it warns of.
"""

import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from PIL import Image

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "WEBP")

# What Pillow's readers raise, whatever the damage makes of a chunk; SyntaxError is one of theirs.
_DAMAGED = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    EOFError,
    LookupError,
    ArithmeticError,
    MemoryError,
    struct.error,
    zlib.error,
)


class PictureError(Exception):
    """Why a file is no picture that can be read."""


@contextmanager
def opened_picture(source: str | Path | BinaryIO) -> Iterator["Image.Image"]:
    """The picture, its pixels not decoded yet.

    PictureError for what is damaged, when it is opened or inside the block, for other formats, and for more
    pixels than Pillow's limit.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(source, formats=FORMATS) as image:
            pixels, limit = image.width * image.height, Image.MAX_IMAGE_PIXELS
            if limit is not None and pixels > limit:
                raise PictureError(f"Image size ({pixels} pixels) exceeds limit of {limit} pixels")
            yield image
    except UnidentifiedImageError as error:
        raise PictureError(f"none of {', '.join(FORMATS)}, or damaged") from error
    # The warning is an error where Python was told so.
    except (*_DAMAGED, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise PictureError(" ".join(str(error).split()) or type(error).__name__) from error


def load_picture(source: str | Path | BinaryIO) -> "Image.Image":
    """The picture, decoded to its last pixel: a file that is cut short still has a good header."""
    with opened_picture(source) as image:
        image.load()
        return image


def load_rgb(source: str | Path | BinaryIO) -> "Image.Image":
    """The picture in RGB, as its pixels are stored: no turning by EXIF, which no annotation knows of.

    PictureError also for more than 8 bits a channel: how those are to become 8 is for the owner of the data to
    say. Pillow would clip them, to white for the most part.
    """
    with opened_picture(source) as image:
        if image.mode.startswith("I"):
            raise PictureError(f"grey with more than 8 bits a pixel, mode {image.mode}: save it with 8")
        return image.convert("RGB")


def picture_size(source: str | Path | BinaryIO) -> tuple[int, int]:
    """Width and height, as the header says."""
    with opened_picture(source) as image:
        return image.size
