"""Small JPEG pictures of images, made once: named after the image's path, size and time of change."""

import hashlib
import io
from pathlib import Path

from reftables.files import write_atomically
from reftables.pictures import PictureError, opened_picture

MOST_BYTES = 24_000  # of one picture
QUALITIES = (80, 60, 40)


def thumbnail(image: str | Path, folder: Path, side: int) -> Path | None:
    """The picture of `image` in `folder`, at most `side` pixels wide and high; None where the image can't be read."""
    try:
        status = Path(image).stat()
    except (OSError, ValueError):  # absent, or no name that a file can have
        return None
    key = f"{Path(image).absolute()} {status.st_size} {status.st_mtime_ns} {side}"
    target = folder / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.jpg"
    if not target.is_file():
        try:
            content = shrunk(Path(image), side)
        except PictureError:
            return None
        write_atomically(target, content)
    return target


def shrunk(image: Path, side: int) -> bytes:
    """A JPEG of at most `side` pixels and MOST_BYTES: first its quality gives way, then its size."""
    with opened_picture(image) as opened:
        opened.draft("RGB", (2 * side, 2 * side))  # a JPEG is decoded at a fraction of its size
        picture = opened.convert("RGB")
    while True:
        picture.thumbnail((side, side))
        for quality in QUALITIES:
            content = io.BytesIO()
            picture.save(content, "JPEG", quality=quality, optimize=True)
            if content.tell() <= MOST_BYTES:
                return content.getvalue()
        side = side * 3 // 4
