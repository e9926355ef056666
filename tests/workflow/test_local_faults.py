"""Accidents of one machine: killed processes, full and read-only disks, stale locks, a wrong clock.

After each the next run ends with the tables of an undisturbed one, asks for nothing that is in the store,
and has never scored half a file. What a killed process had been answered and had not yet stored is asked for
again: at most as many requests as were under way.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.server import Server
from tests.waiting import wait_for
from tests.workflow.conftest import Workspace
from tests.workflow.material import baseline, boxes_benchmark, server_model, write_annotations, write_images

TEXTS = [f"{colour} {thing}" for thing in ("mug", "plate", "chair", "dog") for colour in ("red", "blue", "green")]
IN_FLIGHT = 2
ANSWER_S = 0.15
TABLES = ("tables.md", "tables.csv", "index.html")
INFER_S = len(TEXTS) / IN_FLIGHT * ANSWER_S


def prepare(folder: Path) -> Workspace:
    write_annotations(folder / "data", "val", 100, TEXTS)
    write_images(folder / "data" / "images")
    return Workspace(folder)


def configure(workspace: Workspace, server: Server, **execution: Any) -> None:
    model = server_model(server.url)
    model["exec"] |= {"max_in_flight": IN_FLIGHT} | execution
    workspace.config = {
        "benchmarks": {"mine": boxes_benchmark(val=len(TEXTS))},
        "models": {"served": model, "centre": baseline("center")},
        "run": {"models": ["served", "centre"], "benchmarks": ["mine"]},
    }


@pytest.fixture(scope="session")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which everything is made but the predictions and what follows."""
    workspace = prepare(tmp_path_factory.mktemp("ready") / "work")
    with Server() as server:
        configure(workspace, server)
        workspace.run(
            targets=(
                "results/manifests/mine/val.tsv",
                "results/requests/mine/val.plain.locout",
                "results/predictions/centre/mine/val.jsonl",
            )
        )
    return workspace.folder


@pytest.fixture(scope="session")
def undisturbed(ready: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The tables of a run without accidents."""
    workspace = Workspace(copy(ready, tmp_path_factory.mktemp("undisturbed") / "work"))
    with Server() as server:
        configure(workspace, server)
        workspace.run()
        assert len(server.asked) == len(TEXTS)
    return tables(workspace)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server({"do": "answer", "delay": ANSWER_S}) as server:
        yield server


@pytest.fixture
def asking(ready: Path, tmp_path: Path, server: Server) -> Iterator[Workspace]:
    workspace = Workspace(copy(ready, tmp_path / "work"))
    configure(workspace, server)
    yield workspace
    workspace.end()


def copy(source: Path, target: Path) -> Path:
    shutil.copytree(source, target, symlinks=True)
    return target


def tables(workspace: Workspace) -> dict[str, str]:
    return {name: workspace.read(f"results/{name}") for name in TABLES}


def stored(workspace: Workspace) -> int:
    """How many answers are in the store; every one of them only once."""
    keys = []
    for path in (workspace.folder / "results/store/served/mine").glob("*.jsonl"):
        for line in path.read_bytes().split(b"\n"):
            try:
                keys.append(json.loads(line)["key"])
            except ValueError:
                continue  # a torn line, or what follows the last one
    assert len(keys) == len(set(keys))
    return len(keys)


def assert_nothing_half_is_there(workspace: Workspace) -> None:
    predictions = workspace.folder / "results/predictions/served/mine/val.jsonl"
    if predictions.exists():
        assert predictions.read_text().count("\n") == len(TEXTS)
    metrics = workspace.folder / "results/metrics/served/mine/val.json"
    if metrics.exists():
        assert json.loads(metrics.read_text())["n"] == len(TEXTS)


def finish(workspace: Workspace, server: Server, undisturbed: dict[str, str]) -> None:
    """Run again to the end, and check what it asked and made."""
    asked, kept = len(server.asked), stored(workspace)
    workspace.run()
    assert len(server.asked) - asked == len(TEXTS) - kept
    assert stored(workspace) == len(TEXTS)
    assert tables(workspace) == undisturbed
    assert workspace.stale() == Counter()


def kill_worker_at_random(workspace: Workspace, chance: random.Random) -> None:
    """SIGKILL to the process that asks; snakemake sees a failed job."""
    with workspace.start() as master:
        workers = wait_for(lambda: workspace.workers() or master.poll() is not None, "a worker")
        time.sleep(chance.uniform(0, INFER_S + 1))
        for worker in workers if isinstance(workers, list) else []:
            if worker.is_running():
                worker.kill()


def kill_everything_at_random(workspace: Workspace, chance: random.Random) -> None:
    """SIGKILL to snakemake and all its jobs at once, as when a machine loses power."""
    with workspace.start() as master:
        wait_for(lambda: workspace.workers() or master.poll() is not None, "a worker")
        time.sleep(chance.uniform(0, INFER_S + 3))
        if master.poll() is None:
            os.killpg(master.pid, signal.SIGKILL)
    wait_for(lambda: not workspace.workers(), "the workers to end")
    workspace.run("--unlock")


ROUNDS = [pytest.param(seed, marks=[] if seed < 1 else pytest.mark.slow) for seed in range(50)]


@pytest.mark.parametrize("seed", ROUNDS)
def test_a_killed_worker_costs_what_was_under_way(
    asking: Workspace, server: Server, undisturbed: dict[str, str], seed: int
) -> None:
    kill_worker_at_random(asking, random.Random(seed))
    assert_nothing_half_is_there(asking)
    finish(asking, server, undisturbed)
    assert len(server.asked) <= len(TEXTS) + IN_FLIGHT


@pytest.mark.parametrize("seed", ROUNDS)
def test_a_machine_that_loses_power_costs_what_was_under_way(
    asking: Workspace, server: Server, undisturbed: dict[str, str], seed: int
) -> None:
    kill_everything_at_random(asking, random.Random(1000 + seed))
    assert_nothing_half_is_there(asking)
    finish(asking, server, undisturbed)
    assert len(server.asked) <= len(TEXTS) + IN_FLIGHT


@pytest.mark.slow
def test_a_killed_snakemake_whose_worker_lives_on_costs_nothing(asking: Workspace, undisturbed: dict[str, str]) -> None:
    with Server({"do": "answer", "delay": 500, "after": 2}) as slow:
        configure(asking, slow)
        with asking.start() as master:
            wait_for(lambda: len(slow.asked) > 2, "three requests")
            master.kill()
        assert asking.workers()
        refused = asking.run(check=False)
        assert "Directory cannot be locked" in refused.output
        asking.run("--unlock")
        slow.release()
        asking.run()
        assert len(slow.asked) == len(TEXTS)
    assert tables(asking) == undisturbed


@pytest.mark.slow
def test_worker_after_worker_is_killed_and_the_last_one_ends_the_work(
    asking: Workspace, server: Server, undisturbed: dict[str, str]
) -> None:
    for _ in range(3):
        asked = len(server.asked)
        with asking.start() as master:
            wait_for(
                lambda before=asked, run=master: len(server.asked) >= before + 4 or run.poll() is not None,
                "four requests",
            )
            for worker in asking.workers():
                worker.kill()
    finish(asking, server, undisturbed)
    assert len(server.asked) <= len(TEXTS) + 3 * IN_FLIGHT


@contextmanager
def mounted(*command: str, at: Path) -> Iterator[None]:
    """A mount for the time of a block; skips where this user may not mount."""
    done = subprocess.run(["mount", *command, str(at)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"mounting needs root: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(at)], check=True)


# Full at the first log, among the answers, among the predictions and scores, at the tables.
@pytest.mark.parametrize("free_kib", [8, *(pytest.param(free, marks=pytest.mark.slow) for free in (0, 24, 48))])
def test_a_full_disk_costs_no_stored_answer(
    asking: Workspace, server: Server, undisturbed: dict[str, str], free_kib: int, tmp_path: Path
) -> None:
    results, saved = asking.folder / "results", tmp_path / "saved"
    results.rename(saved)
    results.mkdir()
    with mounted("-t", "tmpfs", "-o", "size=1m", "tmpfs", at=results):
        shutil.copytree(saved, results, dirs_exist_ok=True)
        filler = results / "filler"
        free = os.statvfs(results)
        filler.write_bytes(bytes(free.f_bavail * free.f_bsize - free_kib * 1024))
        failed = asking.run(check=False)
        assert failed.status == 1
        assert_nothing_half_is_there(asking)
        filler.unlink()
        finish(asking, server, undisturbed)
        assert len(server.asked) <= len(TEXTS) + len(TEXTS) // 2
        shutil.rmtree(saved)


@pytest.mark.slow
def test_read_only_results_fail_and_stay_as_they_are(
    asking: Workspace, server: Server, undisturbed: dict[str, str]
) -> None:
    asking.run()
    before = {path: path.read_bytes() for path in (asking.folder / "results").rglob("*") if path.is_file()}
    asking.config["models"]["served"]["identity"]["max_tokens"] = 50
    results = str(asking.folder / "results")
    with mounted("--bind", results, at=Path(results)):
        subprocess.run(["mount", "-o", "remount,ro,bind", results], check=True)
        failed = asking.run(check=False)
    assert failed.status == 1
    assert "Read-only file system" in failed.output
    assert {path: path.read_bytes() for path in (asking.folder / "results").rglob("*") if path.is_file()} == before
    assert len(server.asked) == len(TEXTS)
    asking.run()
    assert len(server.asked) == 2 * len(TEXTS)
    assert asking.read("results/tables.csv") == undisturbed["tables.csv"]


def test_locks_of_dead_processes_stop_nobody(asking: Workspace, server: Server, undisturbed: dict[str, str]) -> None:
    store = asking.folder / "results/store/served/mine"
    store.mkdir(parents=True)
    for name in ("val.0-of-1.lock", "val.1-of-3.lock"):
        (store / name).write_text("4194304\n")
    finish(asking, server, undisturbed)


@pytest.mark.slow
def test_files_from_the_future_are_refused_and_cost_nothing_once_they_are_touched(
    asking: Workspace, server: Server, undisturbed: dict[str, str]
) -> None:
    """As after a clock that was set back: what stood before is younger than all that is made now."""
    touch(asking, time.time() + 86_400)
    failed = asking.run(check=False)
    assert failed.status == 1
    assert "This could indicate a clock skew problem" in failed.output
    assert_nothing_half_is_there(asking)
    assert not (asking.folder / "results/tables.md").exists()
    touch(asking, time.time())
    finish(asking, server, undisturbed)
    assert len(server.asked) == len(TEXTS)


@pytest.mark.parametrize(
    ("folders", "days"),
    [
        (("data", "results"), -1),
        *(pytest.param(("data",), days, marks=pytest.mark.slow) for days in (-1, 1)),
        *(pytest.param(("results",), days, marks=pytest.mark.slow) for days in (-1, 1)),
        pytest.param(("data", "results"), 1, marks=pytest.mark.slow),
    ],
)
def test_times_shifted_between_two_runs_cost_nothing(
    asking: Workspace, server: Server, undisturbed: dict[str, str], days: int, folders: tuple[str, ...]
) -> None:
    """As after a clock was set, forward or back, between them: files are known by content."""
    asking.run()
    touch(asking, time.time() + days * 86_400, *folders)
    finish(asking, server, undisturbed)
    assert len(server.asked) == len(TEXTS)


def test_a_clock_set_back_in_the_middle_costs_nothing(
    asking: Workspace, server: Server, undisturbed: dict[str, str]
) -> None:
    """What was made before is younger than what is made after; nothing of it is made or asked again."""
    with asking.start() as master:
        wait_for(lambda: len(server.asked) > 2 or master.poll() is not None, "three requests")
        touch(asking, time.time() + 3600, "data")
    failed = master.returncode != 0
    touch(asking, time.time(), "data", "results")
    finish(asking, server, undisturbed)
    assert len(server.asked) == len(TEXTS)
    assert not failed or "clock skew" in asking.read("run.log")


def test_a_plan_beside_a_run_prints_and_disturbs_nothing(asking: Workspace, undisturbed: dict[str, str]) -> None:
    with Server({"do": "answer", "delay": 500}) as slow:
        configure(asking, slow)
        with asking.start() as master:
            wait_for(lambda: slow.asked or master.poll() is not None, "a request")
            plan = asking.run("--nolock", targets=("plan",)).output
            other = asking.run("--nolock", "--config", "run={models: [served]}", targets=("plan",), check=False)
            assert master.poll() is None
            slow.release()
        assert master.returncode == 0
    assert "served                   mine" in plan
    assert "results/config.json is of another configuration" in other.output
    assert tables(asking) == undisturbed


def touch(workspace: Workspace, when: float, *folders: str) -> None:
    for folder in folders or ("data", "results"):
        for path in (workspace.folder / folder).rglob("*"):
            os.utime(path, (when, when))


def test_new_annotations_with_an_old_time_are_noticed(asking: Workspace, server: Server) -> None:
    asking.run()
    annotations = write_annotations(asking.folder / "data", "val", 500, [*TEXTS[1:], "old boat"])
    os.utime(annotations, (1_000_000_000, 1_000_000_000))
    asking.run()
    assert "old boat" in asking.read("results/requests/mine/val.plain.locout")
    assert any("old boat" in text for text in server.texts)


def test_answers_of_a_damaged_store_are_asked_again_and_the_others_are_not(
    asking: Workspace, server: Server, undisturbed: dict[str, str]
) -> None:
    asking.run()
    path = asking.folder / "results/store/served/mine/val.0-of-1.jsonl"
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0], lines[1][:40], *lines[2:-2], lines[-2][:-7]]))
    for folder in ("predictions", "metrics", "samples"):
        shutil.rmtree(asking.folder / "results" / folder / "served")
    (asking.folder / "results/tables.md").unlink()
    asking.run()
    assert len(server.asked) == len(TEXTS) + 2
    assert tables(asking) == undisturbed
