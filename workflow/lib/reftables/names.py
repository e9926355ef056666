"""Names of files that strangers chose: members of archives, images of annotations."""

import re

# Files grow under a temporary name that is a little longer, and no file system takes a part of over 255 bytes.
MOST_PART_BYTES = 240
MOST_BYTES = 1_000

_PLAIN = re.compile(r"(?:[A-Za-z0-9_-]{1,100}/){0,5}[A-Za-z0-9_-]{1,100}(?:\.[A-Za-z0-9]{1,9})?")
CONTROL = re.compile(r"[\x00-\x1f\x7f]")  # in a table or a request line, a field or a line of its own
_DRIVE = re.compile("[A-Za-z]:")
_STRANGE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\\]")  # control characters, half of a pair, a backslash


def unsafe(name: str) -> str | None:
    """Why a relative path is not to be trusted; None where it stays below the folder it is joined to.

    To be asked of the very text that is joined: a prefix taken off later can make a path absolute.
    """
    if _PLAIN.fullmatch(name):  # nearly all of them, in a fraction of the time
        return None
    parts = name.split("/")
    if name.startswith("/") or _DRIVE.match(name):
        return "is absolute"
    if ".." in parts:
        return "leads out of the folder"
    if "" in parts or "." in parts or _STRANGE.search(name):
        return "is no plain path"
    if len(name.encode()) > MOST_BYTES or max(len(part.encode()) for part in parts) > MOST_PART_BYTES:
        return "is longer than file systems bear"
    return None
