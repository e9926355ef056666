"""The two errors a user can cause, and how a stage reports them."""

import reprlib
import sys
from collections.abc import Callable, Iterable


class ReftablesError(Exception):
    """A fault the user can mend; printed without a traceback."""


class ConfigError(ReftablesError):
    """A fault in the configuration; the message names the config key."""


class DataError(ReftablesError):
    """A fault in a file; the message names the file and the line or the sample ids."""


class _Brief(reprlib.Repr):
    """`repr` that never walks through a whole value: lists that share their parts can be larger than any memory."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdict = 12
        self.maxstring = self.maxother = 200

    def repr_int(self, value: int, level: int) -> str:
        # Python refuses to write thousands of digits.
        return repr(value) if value.bit_length() <= 256 else f"an integer of {value.bit_length():,} bits"


_BRIEF = _Brief()


def shown(value: object, *, most: int = 60) -> str:
    """The start of the `repr` of a value from a file, in `most` characters: a whole one would hide the message."""
    text = _BRIEF.repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def brief(text: str, *, most: int = 200) -> str:
    """The start of a text from a file, in `most` characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def preview(items: Iterable[object], *, most: int = 5) -> str:
    """The first few of `items`, each in brief, comma-separated, and how many more there are."""
    listed = list(items)
    few = ", ".join(brief(str(item)) for item in listed[:most])
    return f"{few} and {len(listed) - most:,} more" if len(listed) > most else few


def counted(number: int, one: str, many: str) -> str:
    """`number` and its noun: 1 image, 2,000 images."""
    return f"{number:,} {one if number == 1 else many}"


def run(main: Callable[[], None]) -> None:
    """Call a stage's `main`; a user's fault ends it with one line and exit status 1."""
    try:
        main()
    except ReftablesError as error:
        sys.exit(f"{type(error).__name__}: {error}")
