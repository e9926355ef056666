"""What is printed with the tables about the data behind them, and how the config's checks reach the downloads."""

import copy
from pathlib import Path
from typing import Any

import pytest

from reftables.config import load
from reftables.errors import ConfigError
from reftables.expected import citations
from reftables.stages import render
from tests.scored import Run
from tests.unit.test_config import BASE

LICENCE = {"licence": "CC0", "citation": "The paper"}


def configured(**sections: dict[str, Any]) -> dict[str, Any]:
    """BASE with annotations and images below resources/, and more sections."""
    config = copy.deepcopy(BASE)
    config["benchmarks"]["mine"] |= {"annotations": "resources/{split}.json", "images": "resources/coco"}
    return config | sections


def test_what_is_read_is_cited_once_and_what_is_not_is_not() -> None:
    downloads = {
        "val": {"url": "http://a/val", "to": "resources/val.json", **LICENCE},
        "unread": {"url": "http://a/test", "to": "resources/test.json", "licence": "secret"},
    }
    images = {"coco": {"url": "http://a/{name}", "folder": "resources/coco", "licence": "Flickr"}}
    config = configured(downloads=downloads, images=images)
    assert citations(load(config)) == ["The paper. Licence: CC0"]
    config["models"]["looking"] = {
        "identity": {"backend": "colour_rules"},
        "formats": {"boxes": {"notation": "json", "coordinates": "pixels"}},
    }
    config["run"] = {"models": ["looking"], "benchmarks": ["mine"]}
    assert citations(load(config)) == ["The paper. Licence: CC0", "coco. Licence: Flickr"]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("to", "results/val.json", "downloads.val.to: 'results/val.json' does not match"),
        ("sha256", "f00", "downloads.val.sha256: 'f00' does not match"),
        ("url", "ftp://a/val", "downloads.val.url: an address is expected, http://"),
        ("url", [], "downloads.val.url: an address is expected, http://"),
        ("colour", "red", "downloads.val: Additional properties are not allowed"),
        ("path", "/nowhere/val", "downloads.val.path: there is no file /nowhere/val"),
    ],
)
def test_a_fault_in_a_download_names_its_key(key: str, value: Any, message: str) -> None:
    entry = {"url": "http://a/val", "to": "resources/val.json", **LICENCE, key: value}
    with pytest.raises(ConfigError) as raised:
        load(configured(downloads={"val": entry}))
    assert message in str(raised.value)


def test_citations_stand_below_the_tables(tmp_path: Path) -> None:
    run = Run(tmp_path).table("one", ["refcoco"]).cell("mine", "refcoco", "val", official={"precision@1": 0.5})
    run.citations = ["The paper (arXiv:1). Licence: <free>"]
    render.main(["--expected", str(run.write()), "--results", str(tmp_path)])
    markdown = (tmp_path / "tables.md").read_text(encoding="utf-8")
    assert "\nData, to be cited:\n\n- The paper (arXiv:1). Licence: &lt;free&gt;\n" in markdown
    assert "<li>The paper (arXiv:1). Licence: &lt;free&gt;</li>" in (tmp_path / "index.html").read_text(
        encoding="utf-8"
    )
