"""config/paper.yaml from download to tables, at small scale: its own rules and paths, the hosts on a server of ours."""

import copy
import csv
import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from reftables.digests import read_digests, read_ledger
from tests.conftest import REPOSITORY
from tests.server_files import FileServer
from tests.workflow.conftest import Workspace
from tests.workflow.paper_files import Hosts

PAPER = yaml.safe_load((REPOSITORY / "config" / "paper.yaml").read_text(encoding="utf-8"))
HOSTS = Hosts(PAPER)


def select(models: list[str], benchmarks: list[str]) -> dict[str, Any]:
    return {"models": models, "benchmarks": benchmarks}


class PaperWorkspace(Workspace):
    """A working directory of paper.yaml with another overlay over it."""

    def __init__(self, folder: Path, server: FileServer, run: dict[str, Any]) -> None:
        super().__init__(folder)
        self.config = PAPER
        self.overlay = HOSTS.overlay(server.url) | {"run": run}

    def run(self, *arguments: str, **options: Any) -> Any:
        path = self.folder / "small.yaml"
        path.write_text(yaml.safe_dump(self.overlay, sort_keys=False), encoding="utf-8")
        return super().run(str(path), *arguments, **options)  # a second --configfile


@pytest.fixture
def server() -> Iterator[FileServer]:
    with FileServer(
        HOSTS.files,
        {"do": "status", "status": 500, "match": "finetune_refcoco_val.json", "times": 1},
        {"do": "status", "status": 429, "headers": {"Retry-After": "1"}, "match": "refcoco+.zip", "times": 1},
        {"do": "cut", "at": 20_000, "match": "refcocog.zip", "times": 1},
        {"do": "status", "status": 403, "match": "huggingface.co/datasets/bonbon-rj"},  # so the mirror is asked
        {"do": "serve"},
    ) as started:
        yield started


def test_all_of_it_runs_from_download_to_tables(server: FileServer, tmp_path: Path) -> None:
    workspace = PaperWorkspace(tmp_path, server, select(["kosmos-2-published", "colour-rules"], [*PAPER["benchmarks"]]))
    others = [name for name, entry in PAPER["benchmarks"].items() if entry["task"] != "boxes"]
    workspace.overlay["models"] = {"colour-rules": {"benchmarks": others}}
    run = workspace.run()
    assert run.jobs["truth"] == 31
    assert sum(count for rule, count in run.jobs.items() if rule.startswith("download_")) == 41

    titles = [line for line in workspace.read("results/tables.md").split("\n") if line.startswith("## ")]
    assert titles[:4] == ["## kosmos2", "## refspatial", "## surds", "## segmentation"]
    rows = list(csv.DictReader(workspace.read("results/tables.csv").split("\n")))
    numbers = {(row["benchmark"], row["split"]) for row in rows if row["scoring"] and row["value"]}
    assert numbers >= {(name, split) for name, entry in PAPER["benchmarks"].items() for split in entry["splits"]}
    assert "RefSpatial-Bench (Zhou et al., RoboRefer, arXiv:2506.04308). Licence: Apache-2.0" in workspace.read(
        "results/tables.md"
    )

    check_digests(workspace)
    check_images(workspace)
    assert workspace.stale() == Counter()


def check_digests(workspace: Workspace) -> None:
    """What was fetched stands in the ledger; the metrics say what they are made of."""
    ledger = read_ledger(workspace.folder / "resources/digests.tsv")
    for name, entry in PAPER["downloads"].items():
        if entry["to"] in ledger:
            assert ledger[entry["to"]].sha256 == hashlib.sha256(HOSTS.contents[name]).hexdigest()
    files = [f"resources/{file}" for file in ("mdetr/finetune_{}.json", "kosmos2/finetune_{}.json.locout")]
    answers = "resources/kosmos2/kosmos2_inst.pt.refcoco+.testA.locout"
    assert workspace.metrics("kosmos-2-published", "refcoco+", "testA")["digests"] == {
        path: ledger[path].sha256 for path in [*(file.format("refcoco+_testA") for file in files), answers]
    }
    zipped = read_digests(workspace.folder / "resources/refer/refcocog.zip.digest")
    assert workspace.metrics("colour-rules", "masks-refcocog", "val")["digests"] == zipped
    assert zipped.keys() == {
        "resources/refer/refcocog.zip",
        *PAPER["downloads"]["refer-refcocog"]["unpack"].values(),
    }


def check_images(workspace: Workspace) -> None:
    """Every image was fetched once, whatever the number of splits that name it."""
    manifest = workspace.read("results/manifests/masks-refcoco/val.tsv").split("\n")[1:-1]
    ledger = workspace.read("resources/coco/manifest.tsv").split("\n")[1:-1]
    assert set(manifest) < set(ledger)
    assert len(ledger) == len({line.partition("\t")[0] for line in ledger}) == len(HOSTS.images["coco"])
    truth = [json.loads(line) for line in workspace.read("results/truth/masks-refcoco/val.jsonl").split("\n")[:-1]]
    assert {line.partition("\t")[0] for line in manifest} == {row["image"] for row in truth}


@pytest.fixture
def sound() -> Iterator[FileServer]:
    with FileServer(HOSTS.files) as started:
        yield started


ONE_SPLIT = ("results/metrics/colour-rules/refcoco/val.json",)


@pytest.mark.slow
def test_one_split_fetches_its_own_images_and_the_zip_has_them_too(sound: FileServer, tmp_path: Path) -> None:
    workspace = PaperWorkspace(tmp_path / "single", sound, select(["colour-rules"], ["refcoco"]))
    workspace.run(targets=ONE_SPLIT)
    single = sound.bytes_of("images.cocodataset.org")
    manifest = workspace.read("results/manifests/refcoco/val.tsv")
    assert single == sum(int(line.split("\t")[1]) for line in manifest.split("\n")[1:-1])

    zipped = PaperWorkspace(tmp_path / "zip", sound, select(["colour-rules"], ["refcoco"]))
    zipped.overlay["images"]["coco"]["mode"] = "zip"
    zipped.run(targets=ONE_SPLIT)
    assert sound.bytes_of("images.cocodataset.org") - single == len(HOSTS.contents["coco-zip"]) > 2 * single
    assert zipped.read("results/manifests/refcoco/val.tsv") == manifest
    assert not (zipped.folder / "resources/coco-zip/train2014.zip").exists()  # delete_archive
    assert zipped.run(targets=ONE_SPLIT).jobs == Counter()


@pytest.mark.slow
def test_the_tarball_and_own_copies_stand_in_for_the_files(sound: FileServer, tmp_path: Path) -> None:
    workspace = PaperWorkspace(tmp_path / "work", sound, select(["kosmos-2-published"], ["refcoco"]))
    own = tmp_path / "answers.locout"
    own.write_bytes(HOSTS.contents["kosmos2-answers-refcoco-val"])
    workspace.overlay["downloads"]["kosmos2-answers-refcoco-val"]["path"] = str(own)
    annotations = "resources/mdetr-tarball/finetune_{benchmark}_{split}.json"
    workspace.overlay["benchmarks"]["refcoco"]["annotations"] = annotations
    workspace.run(targets=("results/metrics/kosmos-2-published/refcoco/val.json",))
    paths = {sent.path for sent in sound.sent}
    assert not any("kosmos2_inst" in path for path in paths)
    assert any("mdetr_annotations.tar.gz" in path for path in paths)
    assert not (workspace.folder / "resources/mdetr-tarball/mdetr_annotations.tar.gz").exists()


def test_a_source_that_changed_stops_the_run(sound: FileServer, tmp_path: Path) -> None:
    answers = "resources/kosmos2/kosmos2_inst.pt.refcoco.val.locout"
    workspace = PaperWorkspace(tmp_path, sound, select(["kosmos-2-published"], ["refcoco"]))
    workspace.run(targets=(answers,))
    (path,) = (path for path in sound.files if path.endswith("kosmos2_inst.pt.refcoco.val.locout"))
    sound.files[path] = sound.files[path].replace(b"1023", b"0495")
    failed = workspace.run("--forcerun", "download_kosmos2-answers-refcoco-val", targets=(answers,), check=False)
    assert failed.status == 1
    assert "recorded in resources/digests.tsv when it was first fetched" in failed.output
    assert not (workspace.folder / answers).exists()


@pytest.mark.slow
def test_another_mirror_of_a_pinned_file_reruns_nothing_and_another_pin_does(sound: FileServer, tmp_path: Path) -> None:
    target = ("results/truth/refcoco/val.jsonl",)
    workspace = PaperWorkspace(tmp_path, sound, select(["kosmos-2-published"], ["refcoco"]))
    workspace.run(targets=target)
    entry = workspace.overlay["downloads"]["mdetr-refcoco-val"]
    entry["url"] = ["http://files.invalid/elsewhere", *entry["url"]]
    assert workspace.run(targets=target).jobs == Counter()
    entry["url"] = entry["url"][1:]
    entry["sha256"] = "0" * 64
    failed = workspace.run(targets=target, check=False)
    assert failed.status == 1
    assert f"expected {'0' * 64} (downloads.mdetr-refcoco-val)" in failed.output


@pytest.mark.slow
def test_the_plan_tells_what_is_missing(sound: FileServer, tmp_path: Path) -> None:
    workspace = PaperWorkspace(tmp_path, sound, select(["colour-rules"], ["refcoco"]))
    before = workspace.run(targets=("plan",)).output
    size = len(HOSTS.contents["mdetr-refcoco-val"])
    assert f"{size:,} bytes  resources/mdetr/finetune_refcoco_val.json from {sound.url}/huggingface.co/" in before
    assert "images of 3 splits in resources/coco: their number is not known yet" in before
    workspace.run(targets=("results/truth/refcoco/val.jsonl",))
    after = workspace.run(targets=("plan",)).output
    assert "finetune_refcoco_val.json from" not in after
    assert "24 images to fetch into resources/coco, about 4,032,000 bytes" in after


def test_the_config_names_every_source_with_its_licence() -> None:
    text = (REPOSITORY / "config" / "README.md").read_text(encoding="utf-8")
    for section in ("downloads", "images"):
        for name, entry in copy.deepcopy(PAPER[section]).items():
            host = (entry["url"] if isinstance(entry["url"], str) else entry["url"][0]).split("/")[2]
            assert entry["licence"], name
            assert host in text, (name, host)
