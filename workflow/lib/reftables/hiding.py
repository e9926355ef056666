"""Keys of servers, cut out of what Snakemake logs.

Told `--verbose`, an executor logs the whole environment of a job, and with it the keys that the job's
requests need; these logs stay in the working directory.
"""

import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any

SHORTEST = 8  # a shorter value is no key, and would be cut out of ordinary words
CUT = "[key]"


class KeyFilter(logging.Filter):
    """Lets every record pass, without `keys`: in the message, its arguments and whatever else it carries."""

    def __init__(self, keys: Iterable[str]) -> None:
        super().__init__()
        # A mapping is logged by its repr, which escapes quotes. The longest first: a key may begin another.
        spellings = {spelling for key in keys for spelling in (key, repr(key)[1:-1])}
        self._keys = sorted(spellings, key=len, reverse=True)

    def filter(self, record: logging.LogRecord) -> bool:
        for name, value in vars(record).items():
            setattr(record, name, self._without(value))
        return True

    def _without(self, value: Any) -> Any:
        # Of exactly these kinds: Snakemake also logs lists that have names, and enumerations that are texts.
        if type(value) is str:
            for key in self._keys:
                value = value.replace(key, CUT)
            return value
        if type(value) is dict:
            return {name: self._without(part) for name, part in value.items()}
        if type(value) in {list, tuple}:
            return type(value)(self._without(part) for part in value)
        if isinstance(value, Exception) and any(key in str(value) for key in self._keys):
            return self._without(str(value))
        return value


def hide_keys(logger: logging.Logger, models: Mapping[str, Mapping[str, Any]]) -> None:
    """Keep the keys of `models` (the config's) out of `logger`, whatever handlers it has or gets."""
    names = {model["exec"]["key_env"] for model in models.values() if "key_env" in model.get("exec", {})}
    values = {os.environ.get(name, "").strip() for name in names}
    logger.addFilter(KeyFilter(value for value in values if len(value) >= SHORTEST))
