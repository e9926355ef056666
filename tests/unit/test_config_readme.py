"""config/README.md explains every key of the schema."""

from collections.abc import Iterator
from typing import Any

import yaml

from tests.conftest import REPOSITORY


def keys(schema: dict[str, Any]) -> Iterator[str]:
    """Every key that the schema names, all the way down."""
    for name, part in schema.get("properties", {}).items():
        yield name
        yield from keys(part)
    if isinstance(schema.get("additionalProperties"), dict):
        yield from keys(schema["additionalProperties"])


def test_the_readme_explains_every_key() -> None:
    schema = yaml.safe_load((REPOSITORY / "workflow/schemas/config.schema.yaml").read_text(encoding="utf-8"))
    text = (REPOSITORY / "config" / "README.md").read_text(encoding="utf-8")
    titles = {word.strip(":,") for line in text.split("\n") if line.startswith("### ") for word in line.split()}
    missing = {key for key in keys(schema) if f"`{key}`" not in text and key not in titles}
    assert not missing, "explain them in config/README.md"
