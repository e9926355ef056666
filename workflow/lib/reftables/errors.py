"""The two errors a user can cause, and how a stage reports them."""

import sys
from collections.abc import Callable, Iterable


class ReftablesError(Exception):
    """A fault the user can mend; printed without a traceback."""


class ConfigError(ReftablesError):
    """A fault in the configuration; the message names the config key."""


class DataError(ReftablesError):
    """A fault in a file; the message names the file and the line or the sample ids."""


def preview(items: Iterable[object], *, most: int = 5) -> str:
    """The first few of `items`, comma-separated, and how many more there are."""
    listed = list(items)
    shown = ", ".join(str(item) for item in listed[:most])
    return f"{shown} and {len(listed) - most:,} more" if len(listed) > most else shown


def counted(number: int, one: str, many: str) -> str:
    """`number` and its noun: 1 image, 2,000 images."""
    return f"{number:,} {one if number == 1 else many}"


def run(main: Callable[[], None]) -> None:
    """Call a stage's `main`; a user's fault ends it with one line and exit status 1."""
    try:
        main()
    except ReftablesError as error:
        sys.exit(f"{type(error).__name__}: {error}")
