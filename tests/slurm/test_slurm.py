"""The workflow through a real SLURM: what it submits, and what accidents cost.

The model is a server that answers one request after the other. An answer that it gave and that was not yet
in the store when everything ended is asked for again: one a killed job, and no more.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.server import Server
from tests.slurm.conftest import (
    TEXTS,
    Slurm,
    SlurmWorkspace,
    call,
    node_state,
    prepare,
    python_that_wastes_memory,
    restart_node,
    tables,
    wait_for,
)
from tests.workflow.conftest import Workspace

pytestmark = pytest.mark.slurm


def test_the_sample_through_sbatch_is_the_sample_of_this_machine(
    workspace: SlurmWorkspace, slurm: Slurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All models and benchmarks of config/config.yaml."""
    local = Workspace(tmp_path / "local")
    begin = time.monotonic()
    local.run()
    between = time.monotonic()
    run = workspace.run()
    with capsys.disabled():
        print(f"\nlocal {between - begin:.0f} s, through SLURM {time.monotonic() - between:.0f} s")
    submitted = re.findall(r"^rule (infer_\S+):$", run.output, re.MULTILINE)
    assert run.output.count("SLURM jobid") == len(submitted) > 0
    report(capsys, "the sample", slurm, run_id(run.output))
    assert tables(workspace) == tables(local)


def test_resources_reach_slurm(workspace: SlurmWorkspace, slurm: Slurm, server: Server) -> None:
    prepare(workspace, server, mem_mb=700, runtime=7, threads=3, gpu=1)
    run = workspace.run("--set-resources", "infer_served:slurm_partition=gpu")
    number = re.search(r"SLURM jobid '?(\d+)", run.output)[1]
    shown = call("scontrol", "show", "job", number)
    for part in ("Partition=gpu", "TimeLimit=00:07:00", "cpu=3", "mem=700M", "gpu:1"):
        assert part in shown


def test_two_shards_run_on_two_nodes_at_once(
    workspace: SlurmWorkspace, slurm: Slurm, server: Server, undisturbed: dict[str, str]
) -> None:
    prepare(workspace, server, shards=2, threads=3)  # a node has four CPUs
    with workspace.start() as master:
        wait_for(lambda: len(slurm.jobs()) == 2, "two jobs at once")
        assert len({job["node"] for job in slurm.jobs()}) == 2
    assert master.returncode == 0, workspace.read("run.log")
    assert len(server.asked) == len(TEXTS)
    assert server.peak == 2
    assert tables(workspace) == undisturbed


def cancel(workspace: SlurmWorkspace, slurm: Slurm, job: dict[str, str]) -> None:
    call("scancel", job["number"])


def kill_worker(workspace: SlurmWorkspace, slurm: Slurm, job: dict[str, str]) -> None:
    for process in workspace.workers():
        process.kill()


def kill_step_daemons(workspace: SlurmWorkspace, slurm: Slurm, job: dict[str, str]) -> None:
    """The worker lives on, and SLURM has lost it."""
    for process in slurm.processes(job["number"]):
        if process.name().startswith("slurmstepd"):
            process.kill()


def set_node_down(workspace: SlurmWorkspace, slurm: Slurm, job: dict[str, str]) -> None:
    call("scontrol", "update", f"nodename={job['node']}", "state=down", "reason=test")
    # Refused where the node has reported for service again in the meantime.
    call("scontrol", "update", f"nodename={job['node']}", "state=resume", check=False)
    wait_for(lambda: "down" not in node_state(job["node"]), "the node to be up")


def crash_node(workspace: SlurmWorkspace, slurm: Slurm, job: dict[str, str]) -> None:
    daemon = int(Path(os.environ.get("SLURM_LAB_DIR", "/tmp/slurm-lab"), f"run/slurmd.{job['node']}.pid").read_text())
    os.kill(daemon, signal.SIGKILL)
    for process in slurm.processes(job["number"]):
        process.kill()
    wait_for(lambda: "down" in node_state(job["node"]), "SLURM to miss the node")
    restart_node(job["node"])


@pytest.mark.parametrize(
    "accident",
    [cancel, kill_worker, kill_step_daemons, set_node_down, crash_node],
    ids=lambda accident: accident.__name__,
)
def test_a_lost_job_is_tried_again_and_asks_the_rest_only(
    workspace: SlurmWorkspace,
    slurm: Slurm,
    server: Server,
    undisturbed: dict[str, str],
    accident: Callable[[SlurmWorkspace, Slurm, dict[str, str]], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    prepare(workspace, server)
    with workspace.start() as master:
        wait_for(lambda: len(server.asked) >= 4, "four requests")
        lost = slurm.jobs()[0]
        accident(workspace, slurm, lost)
    report(capsys, accident.__name__, slurm, lost["run"], server)
    assert master.returncode == 0, workspace.read("run.log")
    assert len(server.asked) <= len(TEXTS) + 1
    assert tables(workspace) == undisturbed


def report(
    capsys: pytest.CaptureFixture[str], accident: str, slurm: Slurm, run: str, server: Server | None = None
) -> None:
    """Print the jobs of a run, and what it asked more than once."""
    jobs = [job for job in slurm.jobs("all") if job["run"] == run]
    with capsys.disabled():
        print(f"\n{accident}:", end=" ")
        if server is not None:
            print(f"{len(server.asked) - len(TEXTS)} of {len(TEXTS)} samples predicted again;", end=" ")
        print("jobs", ", ".join(f"{job['number']} {job['comment']} {job['node']} {job['state']}" for job in jobs))


def run_id(output: str) -> str:
    """The name that all jobs of a run have."""
    return re.search(r"SLURM run ID: (\S+)", output)[1]


def test_a_job_out_of_memory_is_tried_again_with_more(
    workspace: SlurmWorkspace,
    slurm: Slurm,
    server: Server,
    undisturbed: dict[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    prepare(workspace, server)
    workspace.more_environment = python_that_wastes_memory(workspace.folder)
    with workspace.start() as master:
        wait_for(slurm.jobs, "a job")
        run = slurm.jobs()[0]["run"]
    report(capsys, "out of memory", slurm, run, server)
    assert master.returncode == 0, workspace.read("run.log")
    states = [job["state"] for job in slurm.jobs("all") if job["run"] == run]
    assert len(states) == 2
    assert states[0] in {"FAILED", "OUT_OF_MEMORY"}
    assert "mem=1000M" in call("scontrol", "show", "job", slurm.jobs("all")[-1]["number"])
    assert len(server.asked) == len(TEXTS)
    assert tables(workspace) == undisturbed


def test_a_job_out_of_time_is_continued_by_the_next(
    workspace: SlurmWorkspace, slurm: Slurm, undisturbed: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with Server({"do": "answer", "delay": 9}) as server:
        prepare(workspace, server, runtime=1)
        with workspace.start() as master:
            wait_for(slurm.jobs, "a job")
            run = slurm.jobs()[0]["run"]
        report(capsys, "out of time", slurm, run, server)
        assert master.returncode == 0, workspace.read("run.log")
        states = [job["state"] for job in slurm.jobs("all") if job["run"] == run]
        assert states[0] == "TIMEOUT"
        assert len(server.asked) <= len(TEXTS) + len(states) - 1
    assert tables(workspace) == undisturbed


@pytest.mark.parametrize("cancelled", [True, False], ids=["jobs cancelled", "jobs still running"])
def test_a_killed_master_is_started_again_at_the_cost_of_what_was_under_way(
    workspace: SlurmWorkspace, slurm: Slurm, undisturbed: dict[str, str], cancelled: bool
) -> None:
    workspace.where += ("--jobs", "1")
    with Server({"do": "answer", "delay": 4}) as server:
        prepare(workspace, server, shards=2)
        master = workspace.start()
        wait_for(lambda: re.search("Finished jobid: .*infer_served", workspace.read("run.log")), "the first shard")
        run, paid = slurm.jobs("all")[-1]["run"], len(server.asked)
        wait_for(lambda: len(server.asked) >= paid + 2, "the second shard to ask")
        master.kill()
        master.wait()
        if cancelled:
            call("scancel", "--name", run)
            wait_for(lambda: not slurm.jobs("running,completing"), "the job to end")
        workspace.run("--unlock")
        assert workspace.run().jobs["infer_served"] == 1
        assert len(server.asked) <= len(TEXTS) + (1 if cancelled else 0)
    assert tables(workspace) == undisturbed


def test_a_second_master_in_the_same_folder_refuses(workspace: SlurmWorkspace, slurm: Slurm) -> None:
    with Server({"do": "answer", "delay": 100}) as server:
        prepare(workspace, server)
        with workspace.start() as first:
            wait_for(lambda: server.asked, "the first request")
            second = workspace.run(check=False)
            assert second.status == 1
            assert "Directory cannot be locked" in second.output
            assert first.poll() is None
            server.release()
        assert first.returncode == 0, workspace.read("run.log")
        assert len(server.asked) == len(TEXTS)


def test_an_interrupt_cancels_the_jobs_and_the_next_run_goes_on(
    workspace: SlurmWorkspace, slurm: Slurm, server: Server, undisturbed: dict[str, str]
) -> None:
    prepare(workspace, server)
    master = workspace.start()
    wait_for(lambda: len(server.asked) >= 3, "three requests")
    master.send_signal(signal.SIGINT)
    assert master.wait() != 0
    wait_for(lambda: not slurm.jobs("pending,running,completing"), "the job to be cancelled")
    workspace.run()
    assert len(server.asked) <= len(TEXTS) + 1
    assert tables(workspace) == undisturbed


@pytest.mark.parametrize("fails", [False, True], ids=["answers", "refuses"])
def test_a_key_stands_in_no_file_and_no_command_line(workspace: SlurmWorkspace, slurm: Slurm, fails: bool) -> None:
    """Even when everything is logged, and of a job that fails, whose log SLURM keeps."""
    key = "sk-secret-0123456789abcdef"
    refusal = {"do": "status", "status": 400, "match": TEXTS[-1]}
    with Server({"delay": 100} | (refusal if fails else {"do": "answer"})) as server:
        prepare(workspace, server)
        workspace.config["models"]["served"]["exec"]["key_env"] = "SERVED_KEY"
        workspace.more_environment = {"SERVED_KEY": key}
        with workspace.start("--verbose", "--retries", "0") as master:
            wait_for(lambda: server.asked, "the first request")
            shown = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
            server.release()
    assert (master.returncode != 0) is fails, workspace.read("run.log")
    assert "reftables.stages.infer" in shown
    assert key not in shown
    assert server.asked[0].headers["authorization"] == f"Bearer {key}"
    assert not [path for path in workspace.folder.rglob("*") if path.is_file() and key.encode() in path.read_bytes()]


def test_a_job_that_slurm_queues_again_goes_on(
    workspace: SlurmWorkspace,
    slurm: Slurm,
    server: Server,
    undisturbed: dict[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As in a preemptible partition, with the line of the profile that docs/clusters.md puts there."""
    profile = (REPOSITORY / "profiles" / "slurm" / "profile.yaml").read_text(encoding="utf-8")
    assert "\nslurm-no-requeue: true " in profile
    (workspace.folder / "preemptible").mkdir()
    (workspace.folder / "preemptible" / "profile.yaml").write_text(
        profile.replace("\nslurm-no-requeue: true ", "\nslurm-requeue: true ")
    )
    workspace.where = ("--workflow-profile", str(workspace.folder / "preemptible"), *workspace.where[2:])
    prepare(workspace, server)
    with workspace.start() as master:
        wait_for(lambda: len(server.asked) >= 4, "four requests")
        (job,) = slurm.jobs()
        call("scontrol", "requeue", job["number"])
        # SLURM waits two minutes before it lets a job run again.
        wait_for(lambda: slurm.jobs("pending"), "the job to be pending")
    report(capsys, "queued again", slurm, job["run"], server)
    assert master.returncode == 0, workspace.read("run.log")
    assert [found["number"] for found in slurm.jobs("all") if found["run"] == job["run"]] == [job["number"]]
    assert len(server.asked) <= len(TEXTS) + 1
    assert tables(workspace) == undisturbed
