"""Opening picture files that strangers made."""

from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from PIL import Image

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "WEBP")  # Pillow knows others, some of which run programs


class PictureError(Exception):
    """Why a file is no picture that can be read."""


def load_picture(source: str | Path | BinaryIO) -> "Image.Image":
    """The picture, decoded to its last pixel: a file that is cut short still has a good header.

    Raises PictureError for damage, for other formats, and for more pixels than Pillow's limit, of which
    Pillow itself only warns up to twice as many.
    """
    from PIL import Image

    try:
        with Image.open(source, formats=FORMATS) as image:
            pixels, limit = image.width * image.height, Image.MAX_IMAGE_PIXELS
            if limit is not None and pixels > limit:
                raise PictureError(f"Image size ({pixels} pixels) exceeds limit of {limit} pixels")
            image.load()
            return image
    # Pillow's readers raise whatever the damage makes of a chunk; SyntaxError is one of theirs.
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise PictureError(str(error)) from error
