"""What the keys of a model's `identity` and `exec` may hold: a ConfigError names the key and says what is allowed.

None, that is `null` or an absent key, passes: whoever needs a value asks for it.
"""

import json
import sys
from typing import Any

from reftables.errors import ConfigError
from reftables.files import canonical_json, is_unicode
from reftables.models.job import Job

_LARGEST = sys.float_info.max


def check_number(
    where: str, value: object, *, least: float = -_LARGEST, most: float = _LARGEST, whole: bool = False
) -> None:
    """Refuse what is no finite number within the limits; with `whole`, what is no integer."""
    kinds = int if whole else int | float
    if value is None or (isinstance(value, kinds) and not isinstance(value, bool) and least <= value <= most):
        return
    lower, upper = (f"{limit:,.7g}" for limit in (least, most))
    allowed = f" from {lower} to {upper}" if most < _LARGEST else f" of {lower} or more" if least > -_LARGEST else ""
    raise ConfigError(f"{where}: {value!r} is no {'whole number' if whole else 'number'}{allowed}.")


def read_count(where: str, value: object, unit: str) -> int:
    """`value`, which must be a whole number of `unit`s, 1 or more."""
    if type(value) is not int or value < 1:
        raise ConfigError(f"{where}: {value!r} is no number of {unit}, 1 or more.")
    return value


def check_text(where: str, value: object) -> None:
    """Refuse what is no text, or holds half of a surrogate pair, which nothing can carry."""
    if value is None or (isinstance(value, str) and is_unicode(value)):
        return
    raise ConfigError(f"{where}: {value!r} is no text. Quote it if it looks like a number or a date.")


def check_json(where: str, value: object) -> None:
    """Refuse what a JSON request cannot carry as it stands: dates, names that are no text, .nan, .inf."""
    try:
        text = canonical_json(value)
        same = is_unicode(text) and json.loads(text) == value
    except (TypeError, ValueError, RecursionError):
        same = False
    if not same:
        raise ConfigError(
            f"{where}: JSON cannot carry {value!r}. Allowed are texts, finite numbers, true, false, null, and lists "
            "and mappings of these, whose names are texts."
        )


def check_decoding(job: Job) -> None:
    """The keys of the identity that chat servers share: how an answer is drawn, and the system's text."""
    key = f"models.{job.model}.identity"
    identity = job.identity
    check_number(f"{key}.temperature", identity.get("temperature"), least=0)
    check_number(f"{key}.max_tokens", identity.get("max_tokens"), least=1, whole=True)
    check_number(f"{key}.top_p", identity.get("top_p"), least=0, most=1)
    check_number(f"{key}.seed", identity.get("seed"), whole=True)
    check_text(f"{key}.system", identity.get("system"))
    check_json(f"{key}.extra", identity.get("extra"))


def read_name(job: Job, key: str) -> str:
    """A key of the identity that must be a text with at least one letter."""
    name: Any = job.identity[key]
    if not isinstance(name, str) or not name or not is_unicode(name):
        raise ConfigError(
            f"models.{job.model}.identity.{key}: {name!r} is no name. Quote it if it looks like a number."
        )
    return name
