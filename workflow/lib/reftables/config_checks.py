"""What no key of the configuration may hold, checked before anything reads it; no message repeats a secret."""

import math
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from jsonschema.exceptions import ValidationError

from reftables import paths
from reftables.errors import ConfigError
from reftables.files import is_unicode
from reftables.names import CONTROL

# Snakemake takes a name that ends so for the trace of a rule that feeds itself.
_PERIODIC = re.compile(r"(.+?)\1{19,}$")
_SECRET = re.compile(  # the name of a parameter; `author` and `monkey` are none
    r"(?<![a-z])key|(api|access)[-_]?key|token|secret|signature|(?<![a-z])(sig|auth)(?![a-z])|passw|credential",
    re.IGNORECASE,
)
_EXPECTED = {
    "key_env": "the name of an environment variable is expected, of at most 32 letters, digits and _, and not the key",
    "url": "an address is expected, http://… or https://…, or a list of them",
}


def check_values(raw: Mapping[Any, Any], key: str = "config") -> None:
    """Refuse what YAML can say and JSON cannot (dates, numbers as names, .nan), and texts that no file can hold."""
    for name, value in raw.items():
        if not isinstance(name, str):
            raise ConfigError(f"{key}: the name {name!r} is of type {type(name).__name__} to YAML. Quote it.")
        _check_value(value, name if key == "config" else f"{key}.{name}")


def _check_value(value: object, key: str) -> None:
    if isinstance(value, Mapping):
        check_values(value, key)
    elif isinstance(value, list):
        for place, part in enumerate(value):
            _check_value(part, f"{key}.{place}")
    elif isinstance(value, str):
        if "\0" in value or not is_unicode(value):
            raise ConfigError(f"{key}: the text holds a NUL or half of a surrogate pair, which no file can hold")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{key}: {value} is not a number")
    elif value is not None and not isinstance(value, bool | int | float):
        raise ConfigError(f"{key}: {value} is of type {type(value).__name__} to YAML. Quote it.")


def check_names(checked: Mapping[str, Any]) -> None:
    """Refuse names of benchmarks, splits and models that Snakemake's wildcards cannot take."""
    for section in ("benchmarks", "models"):
        _refuse_periodic(section, checked[section])
    for name, benchmark in checked["benchmarks"].items():
        _refuse_periodic(f"benchmarks.{name}.splits", benchmark["splits"])


def _refuse_periodic(key: str, names: Iterable[str]) -> None:
    for name in names:
        if _PERIODIC.search(name):
            raise ConfigError(f"{key}.{name}: Snakemake refuses names that end in twenty repetitions. Choose another.")


def check_addresses(checked: Mapping[str, Any]) -> None:
    """Refuse users and keys in addresses: they would end up in logs, in reports and beside the results."""
    owners = {f"models.{name}.exec": model["exec"] for name, model in checked["models"].items()}
    for section in ("downloads", "images"):
        owners |= {f"{section}.{name}": entry for name, entry in checked[section].items()}
    for key, entry in owners.items():
        for url in _listed(entry.get("url")):
            _check_address(f"{key}.url", url)


def _listed(url: object) -> Iterator[str]:
    for part in url if isinstance(url, list) else [url]:
        if isinstance(part, str):
            yield part


def _check_address(key: str, url: str) -> None:
    try:
        parts = urlsplit(url)
    except ValueError:  # whose words may repeat the host
        raise ConfigError(f"{key}: {_EXPECTED['url']}") from None
    if "@" in parts.netloc:
        raise ConfigError(f"{key}: an address holds no user and no password")
    if any(_SECRET.search(name) for name, _ in parse_qsl(parts.query, keep_blank_values=True)):
        raise ConfigError(f"{key}: its query seems to hold a key. Fetch the file by hand and give it as `path`.")


def check_targets(checked: Mapping[str, Any]) -> None:
    """Refuse control characters in paths and addresses of downloads and images, and targets that are no file."""
    for name, entry in checked["downloads"].items():
        key, targets = f"downloads.{name}", [entry["to"], *entry["unpack"].values()]
        _refuse_control(key, targets, entry["unpack"], _listed(entry.get("url")), _listed(entry.get("path")))
        if entry["to"].endswith("/"):
            raise ConfigError(f"{key}.to: {entry['to']} is a folder; name the file that is fetched")
        for target in targets:
            if posixpath.normpath(target) == paths.LEDGER:
                raise ConfigError(f"{key}: {target} is where the digests of all downloads are recorded")
    for name, entry in checked["images"].items():
        _refuse_control(f"images.{name}", *(_listed(entry.get(part)) for part in ("folder", "path", "url")))


def _refuse_control(key: str, *texts: Iterable[str]) -> None:
    for text in chain(*texts):
        if CONTROL.search(text):
            raise ConfigError(f"{key}: {text!r} holds a control character, such as a tab or a line feed")


def told(error: ValidationError) -> str:
    """What the schema found, with the key in front; jsonschema's own words repeat the value, whatever it is."""
    where = [str(part) for part in error.absolute_path]
    key = ".".join(where) or "config"
    for name, expected in _EXPECTED.items():
        if name in where[2:]:  # past the section and the entry's own name
            return f"{key}: {expected}"
    if where[-1:] == ["exec"]:
        return f"{key}: a mapping is expected"
    if error.validator == "maxLength":
        most = error.validator_value
        return f"{key}: {str(error.instance)[:20]!r}… is longer than {most} letters; it becomes part of file names"
    return f"{key}: {error.message}"
