"""What a change reruns, in real runs: that part and nothing else."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.workflow.conftest import Workspace
from tests.workflow.material import (
    SIZE,
    WORDS,
    baseline,
    boxes_benchmark,
    write_annotations,
    write_mask,
    write_points,
)

CONFIG = {
    "benchmarks": {"mine": boxes_benchmark(val=6, test=4)},
    "models": {
        "centre": baseline("center"),
        "chance": baseline("random", seed=1),
        "chance-2": baseline("random", seed=2),
    },
    "run": {"models": ["centre", "chance"], "benchmarks": ["mine"]},
}


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the workflow whose code a test may change."""
    folder = tmp_path_factory.mktemp("source") / "reftables"
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("workflow", "config", "profiles", "envs"):
        shutil.copytree(REPOSITORY / name, folder / name, ignore=ignored)
    shutil.copy2(REPOSITORY / "Snakefile", folder / "Snakefile")
    return folder


@pytest.fixture(scope="session")
def finished(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A working directory in which everything is done."""
    workspace = Workspace(tmp_path_factory.mktemp("finished") / "work", source / "Snakefile")
    workspace.config = CONFIG
    write_annotations(workspace.folder / "data", "val", 100, WORDS)
    write_annotations(workspace.folder / "data", "test", 200, WORDS[:4])
    run = workspace.run()
    assert run.jobs == Counter(truth=2, requests=2, infer_centre=2, infer_chance=2, score=4, analyse=1, tables=1)
    return workspace


@pytest.fixture
def done(finished: Workspace, source: Path, tmp_path: Path) -> Workspace:
    """The finished directory and its workflow, both moved elsewhere."""
    shutil.copytree(finished.folder, tmp_path / "moved", symlinks=True)
    shutil.copytree(source, tmp_path / "source")
    workspace = Workspace(tmp_path / "moved", tmp_path / "source" / "Snakefile")
    workspace.config = json.loads(json.dumps(CONFIG))
    return workspace


def edit(workspace: Workspace, module: str, change: Callable[[str], str]) -> None:
    path = workspace.snakefile.parent / "workflow" / "lib" / "reftables" / module
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")


def test_a_moved_folder_reruns_nothing(done: Workspace) -> None:
    assert done.run().jobs == Counter()


def test_a_revision_reruns_that_model_only(done: Workspace) -> None:
    done.config["models"]["chance"]["identity"]["seed"] = 5
    before = done.metrics("chance", "mine", "val")["lineage"]
    assert done.run().jobs == Counter(infer_chance=2, score=2, analyse=1, tables=1)
    after = done.metrics("chance", "mine", "val")["lineage"]
    assert [part for part in after if after[part] != before[part]] == ["model"]


def test_the_dry_run_names_what_changed(done: Workspace) -> None:
    done.config["models"]["chance"]["identity"]["seed"] = 5
    assert '"model":' in done.run("--dry-run").output.replace("\\", "")


def test_one_annotation_file_reruns_that_split_only(done: Workspace) -> None:
    write_annotations(done.folder / "data", "test", 300, WORDS[1:5])
    assert done.run().jobs == Counter(truth=1, requests=1, infer_centre=1, infer_chance=1, score=2, analyse=1, tables=1)


def test_one_mask_reruns_that_split_only(workspace: Workspace) -> None:
    for split in ("location", "placement"):
        write_points(workspace.folder / "data" / split, WORDS[:2])
    places = {
        "task": "points",
        "source": "refspatial",
        "splits": {"location": 2, "placement": 2},
        "root": "data/{split}",
    }
    workspace.config = {
        "benchmarks": {"places": places},
        "run": {"models": ["center"], "benchmarks": ["places"]},
    }
    workspace.run()
    assert workspace.metrics("center", "places", "placement")["official"]["accuracy"] == 0
    write_mask(workspace.folder / "data/placement/mask/1.png", (70, 0, *SIZE))
    assert workspace.run().jobs == Counter(truth=1, requests=1, infer_center=1, score=1, analyse=1, tables=1)
    assert workspace.metrics("center", "places", "placement")["official"]["accuracy"] == 0.5


def test_touching_a_file_reruns_nothing(done: Workspace) -> None:
    os.utime(done.folder / "data" / "finetune_val.json")
    assert done.run().jobs == Counter()


def test_comments_and_docstrings_rerun_nothing(done: Workspace) -> None:
    for module in ("scoring/boxes.py", "models/baselines.py", "benchmarks/mdetr.py", "stages/score.py", "files.py"):
        edit(done, module, lambda text: text.replace('"""', '"""Said otherwise. ', 1) + "\n# A remark.\n")
    assert done.run().jobs == Counter()


def test_a_pair_to_compare_makes_the_comparison_and_the_tables(done: Workspace) -> None:
    done.config["comparisons"] = [["centre", "chance"]]
    assert done.run().jobs == Counter(analyse=1, tables=1)
    assert "| centre - chance | mine val |" in done.read("results/tables.md")
    assert done.read("results/comparisons/centre.vs.chance.csv").startswith("benchmark,split,id,")


def test_the_gallery_is_made_on_demand_and_once(done: Workspace) -> None:
    gallery = ("gallery",)
    assert done.run(targets=gallery).jobs == Counter(gallery_page=4, gallery=1)
    assert done.run(targets=gallery).jobs == Counter()
    done.config["models"]["chance"]["identity"]["seed"] = 5
    assert done.run(targets=gallery).jobs == Counter(infer_chance=2, score=2, gallery_page=4, gallery=1)


def test_a_scoring_helper_reruns_scores_and_tables_only(done: Workspace) -> None:
    edit(done, "scoring/intervals.py", lambda text: text + "\nCHANGED = True\n")
    assert done.run().jobs == Counter(score=4, analyse=1, tables=1)


def test_a_backend_reruns_its_models_only(done: Workspace) -> None:
    edit(done, "models/recorded.py", lambda text: text + "\nCHANGED = True\n")
    assert done.run().jobs == Counter()
    edit(done, "models/baselines.py", lambda text: text + "\nCHANGED = True\n")
    assert done.run().jobs == Counter(infer_centre=2, infer_chance=2, score=4, analyse=1, tables=1)


def test_what_cannot_change_a_prediction_reruns_nothing(done: Workspace) -> None:
    done.config["models"]["chance"]["exec"] = {"threads": 2, "mem_mb": 400, "runtime": 5}
    assert done.run().jobs == Counter()


def test_a_new_model_runs_alone(done: Workspace) -> None:
    done.config["run"]["models"].append("chance-2")
    run = done.run()
    assert run.jobs == Counter({"infer_chance-2": 2, "score": 2, "analyse": 1, "tables": 1})


def test_a_model_less_remakes_the_tables_only(done: Workspace) -> None:
    done.config["run"]["models"] = ["centre"]
    assert done.run().jobs == Counter(analyse=1, tables=1)
    assert "chance" not in done.read("results/tables.md")


def test_the_row_of_a_paper_remakes_the_tables_only(done: Workspace) -> None:
    done.config["models"]["centre"]["published"] = "Kosmos-2"
    assert done.run().jobs == Counter(analyse=1, tables=1)


def test_the_published_cells_remake_the_tables_only(done: Workspace) -> None:
    path = done.snakefile.parent / "config" / "published.csv"
    path.write_text(path.read_text().replace("52.32", "52.33"))
    assert done.run().jobs == Counter(tables=1)
