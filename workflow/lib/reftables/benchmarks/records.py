"""Typed access to the records of annotation files, with errors that name the record."""

from collections.abc import Mapping
from typing import Any, TypeVar

from reftables.errors import DataError, preview, shown
from reftables.files import TAB, is_unicode
from reftables.names import unsafe

T = TypeVar("T")

MOST_PIXELS_A_SIDE = 65_500  # no JPEG has more; with these an area still fits the 32 bits of an RLE
MOST_PIXELS = 89_478_485  # Pillow's limit of what it opens; masks of so many are decoded, too
MOST_CHARACTERS = 100_000  # of a text: a few bytes of parquet can hold any number of long ones
FARTHEST_PIXEL = 1e6  # a corner farther out is a damaged number, not an annotation

_KINDS = {int: "an integer", str: "a text", list: "a list", dict: "an object", bool: "true or false"}


def as_record(value: object, where: str) -> dict[str, Any]:
    """`value`, which must be an object."""
    if type(value) is not dict:
        raise DataError(f"{where} is {shown(value)}, not an object")
    return value


def field(record: Mapping[str, Any], name: str, kind: type[T], where: str) -> T:
    """`record[name]`, which must be of exactly the type `kind`: a boolean is no integer."""
    if name not in record:
        raise DataError(f"{where} has no `{name}`; its keys are {preview(record, most=12) or 'none'}")
    value = record[name]
    if type(value) is not kind:
        raise DataError(f"{where}: `{name}` is {shown(value)}, not {_KINDS[kind]}")
    return value


def text_field(record: Mapping[str, Any], name: str, where: str) -> str:
    """A text that UTF-8 can write: JSON and pickles can hold half of a surrogate pair, which no file can."""
    text = field(record, name, str, where)
    if not text.isascii() and not is_unicode(text):
        raise DataError(f"{where}: `{name}` holds half of a surrogate pair: {shown(text)}")
    if len(text) > MOST_CHARACTERS:
        raise DataError(f"{where}: `{name}` has {len(text):,} characters, more than {MOST_CHARACTERS:,}")
    return text


def image_name(record: Mapping[str, Any], name: str, where: str) -> str:
    """The path of an image below its root, without the `./` it may begin with.

    It stands in request lines, in manifests and in CSV, and is opened: so no control characters, and no way out.
    """
    path = text_field(record, name, where).removeprefix("./")
    if why := unsafe(path):
        raise DataError(f"{where}: `{name}` is {shown(path)}, which {why}: it must lead to a file below the images")
    if TAB in path:
        raise DataError(f"{where}: no request line can carry the `{name}` {shown(path)}. Rename the image.")
    return path


def check_size(width: int, height: int, where: str) -> None:
    """Refuse sizes in pixels that no image has."""
    if not (1 <= width <= MOST_PIXELS_A_SIDE and 1 <= height <= MOST_PIXELS_A_SIDE):
        raise DataError(f"{where} is {shown(width)}x{shown(height)} pixels")
    if width * height > MOST_PIXELS:
        raise DataError(f"{where} is {width}x{height} pixels, more than the {MOST_PIXELS:,} of an image that is opened")


def check_box(box: list[Any], where: str) -> None:
    """Refuse a box xywh that is not four numbers of pixels, or has a negative side."""
    # NaN fails every comparison, so it is caught with the infinities.
    if len(box) != 4 or not all(type(v) in (int, float) and abs(v) <= FARTHEST_PIXEL for v in box):
        raise DataError(f"{where}: `bbox` is {shown(box)}, not four finite numbers of pixels")
    if box[2] < 0 or box[3] < 0:
        raise DataError(f"{where}: `bbox` {shown(box)} (x, y, width, height): a negative side")
