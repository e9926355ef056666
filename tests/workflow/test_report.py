"""Snakemake's own report: made without a network, with the page of tables and the captions inside."""

import pytest

from tests.workflow.conftest import Workspace
from tests.workflow.material import WORDS, baseline, boxes_benchmark, write_annotations


@pytest.mark.parametrize("inside", ["index.html", "comparisons.csv", "provenance.json", "McNemar", "Official"])
def test_the_report_embeds_the_results_and_their_captions(report: str, inside: str) -> None:
    assert inside in report


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    workspace = Workspace(tmp_path_factory.mktemp("report"))
    workspace.config = {
        "benchmarks": {"mine": boxes_benchmark(val=6)},
        "models": {"centre": baseline("center"), "chance": baseline("random", seed=1)},
        "comparisons": [["centre", "chance"]],
        "run": {"models": ["centre", "chance"], "benchmarks": ["mine"]},
    }
    write_annotations(workspace.folder / "data", "val", 100, WORDS)
    workspace.run()
    # Addresses that lead nowhere: what asks the network fails at once.
    workspace.more_environment = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    workspace.run("--report", "report.html")
    return workspace.read("report.html")
