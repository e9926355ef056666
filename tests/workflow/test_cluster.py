"""What reaches a scheduler: resources, nothing secret, and no light work. The scheduler is a script of ours."""

import itertools
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import REPOSITORY
from tests.server import Server
from tests.workflow.conftest import Workspace
from tests.workflow.material import WORDS, baseline, boxes_benchmark, server_model, write_annotations, write_images
from tests.workflow.schedulers import PROFILES, Scheduler, submit_by, write_command

KEY = "sk-secret-0123456789abcdef"
TORQUE = "<Data><Job><Job_Id>7.host</Job_Id><Job_Name>infer</Job_Name>"


@pytest.fixture
def pbs(workspace: Workspace, tmp_path: Path) -> Scheduler:
    """The scheduler, and a workspace that submits to it by the shipped profile."""
    return submit_by("cluster-generic", workspace, tmp_path)


def prepare(workspace: Workspace, server: Server, **execution: Any) -> None:
    write_annotations(workspace.folder / "data", "val", 100, WORDS)
    write_images(workspace.folder / "data" / "images")
    model = server_model(server.url)
    model["exec"] |= execution
    workspace.config = {
        "benchmarks": {"mine": boxes_benchmark(val=len(WORDS))},
        "models": {"served": model, "centre": baseline("center")},
        "run": {"models": ["served", "centre"], "benchmarks": ["mine"]},
    }


def test_resources_reach_the_scheduler_and_light_rules_do_not(workspace: Workspace, pbs: Scheduler) -> None:
    with Server() as server:
        prepare(workspace, server, threads=2, gpu=1, mem_mb=700, runtime=90, api_slots=1)
        run = workspace.run()
    assert run.jobs["infer_centre"] == 1
    (submitted,) = pbs.submitted
    assert submitted[submitted.index("-N") + 1] == "infer_served"
    assert "select=1:ncpus=2:mem=700mb:ngpus=1" in submitted
    assert "walltime=90:00" in submitted


def test_a_failed_job_is_submitted_again_with_more_memory(workspace: Workspace, pbs: Scheduler) -> None:
    with Server({"do": "status", "status": 400, "match": WORDS[2], "times": 1}) as server:
        prepare(workspace, server, mem_mb=700)
        workspace.run()
        assert len(server.asked) == len(WORDS) + 1
    requests = [next(option for option in options if "mem=" in option) for options in pbs.submitted]
    assert [re.search(r"mem=(\d+)mb", request)[1] for request in requests] == ["700", "1400"]


def test_shards_are_jobs_of_their_own(workspace: Workspace, pbs: Scheduler) -> None:
    with Server() as server:
        prepare(workspace, server, shards=2)
        workspace.run()
        assert len(server.asked) == len(WORDS)
    assert len(pbs.submitted) == 2


@pytest.mark.parametrize("profile", ["cluster-generic", "slurm"])
def test_a_key_stands_in_no_script_and_no_other_file(workspace: Workspace, tmp_path: Path, profile: str) -> None:
    """Even when everything is logged, and of a job that fails, whose log is shown and kept."""
    scheduler = submit_by(profile, workspace, tmp_path)
    if profile == "slurm":
        workspace.more_environment["SERVED_KEY"] = KEY
    else:
        workspace.more_environment["HOME"] = str(tmp_path)
        (tmp_path / ".reftables-keys").write_text(f"SERVED_KEY='{KEY}'\n")
    with Server({"do": "status", "status": 400, "match": WORDS[2]}) as server:
        prepare(workspace, server, key_env="SERVED_KEY")
        failed = workspace.run("--verbose", "--retries", "0", check=False)
        assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"
    assert failed.status == 1
    assert "1 of 6 requests failed" in failed.output
    assert KEY not in failed.output
    for folder in (workspace.folder, scheduler.folder):
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert not [path for path in files if KEY.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    ("command", "answer", "code", "status"),
    [
        ("qstat", "Job Id: 7\n    job_state = R\n    Exit_status_x = 1", 0, "running"),
        ("qstat", "Job Id: 7\n    job_state = Q", 0, "running"),
        ("qstat", "Job Id: 7\n    job_state = F\n    Exit_status = 0", 0, "success"),
        ("qstat", "Job Id: 7\n    job_state = F\n    Exit_status = 271", 0, "failed"),
        ("qstat", "Job Id: 7\n    job_state = C\n    exit_status = 0", 0, "success"),
        ("qstat", "Job Id: 7\n    job_state = F", 0, "failed"),
        ("qstat", "Job Id: 7\n    job_state = E\n    Exit_status = 0", 0, "running"),
        ("qstat", f"{TORQUE}<job_state>C</job_state><exit_status>0</exit_status></Job></Data>", 0, "success"),
        ("qstat", f"{TORQUE}<job_state>C</job_state><exit_status>-11</exit_status></Job></Data>", 0, "failed"),
        ("qstat", f"{TORQUE}<job_state>C</job_state></Job></Data>", 0, "failed"),
        ("qstat", f"{TORQUE}<job_state>R</job_state><exit_status>0</exit_status></Job></Data>", 0, "running"),
        ("qstat", "qstat: Unknown Job Id 7", 153, "failed"),
        ("qstat", "qstat: Unknown Job Id Error 7.host", 153, "failed"),
        ("qstat", "pbs_connect: cannot connect to server (errno=111)", 111, "running"),
        ("bjobs", "DONE -", 0, "success"),
        ("bjobs", "EXIT 130", 0, "failed"),
        ("bjobs", "PEND -", 0, "running"),
        ("bjobs", "ZOMBI -", 0, "failed"),
        ("bjobs", "Job <7> is not found", 255, "failed"),
        ("bjobs", "Failed in an LSF library call", 255, "running"),
    ],
)
def test_the_status_command_understands_the_scheduler_and_never_fails(
    tmp_path: Path, command: str, answer: str, code: int, status: str
) -> None:
    write_command(tmp_path / "bin" / command, f"#!/bin/sh\ncat <<'END'\n{answer}\nEND\nexit {code}\n")
    environment = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    script = PROFILES / "cluster-generic" / "status.sh"
    done = subprocess.run([script, "7"], capture_output=True, text=True, env=environment)
    assert (done.stdout, done.returncode) == (f"{status}\n", 0)


def commented(scheduler: str) -> str:
    """The submit command that a comment of the profile gives for another scheduler, with the values of a job."""
    text = (PROFILES / "cluster-generic" / "profile.yaml").read_text(encoding="utf-8")
    block = text.partition(f"\n# {scheduler}")[2].partition("\n# The shared")[0]
    lines = itertools.takewhile(lambda line: line.startswith("#   "), block.split("\n")[1:])
    command = " ".join(line.removeprefix("#   ") for line in lines)
    values = {"{rule}": "infer", "{threads}": "2", "{resources.mem_mb}": "1000", "{resources.runtime}": "90"}
    for name, value in values.items():
        command = command.replace(name, value)
    return command


@pytest.mark.parametrize(
    ("scheduler", "gpu", "options"),
    [
        ("Torque", 0, ["walltime=90:00", "nodes=1:ppn=2,mem=1000mb"]),
        ("Torque", 1, ["nodes=1:ppn=2:gpus=1,mem=1000mb"]),
        ("LSF", 0, ["rusage[mem=1000MB] span[hosts=1]", "90"]),
        ("LSF", 3, ["-gpu", "num=3"]),
        ("Grid Engine", 0, ["h_rt=5400", "h_vmem=501M"]),
        ("Grid Engine", 1, ["gpu=1"]),
    ],
)
@pytest.mark.parametrize("fails", [False, True])
def test_commands_for_other_schedulers_print_a_number_or_fail(
    tmp_path: Path, scheduler: str, gpu: int, options: list[str], fails: bool
) -> None:
    answer = "Job <1234> is submitted to queue <gpu2>." if scheduler == "LSF" else "1234"
    source = f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/asked\necho "{answer}"\nexit {int(fails)}\n'
    for name in ("qsub", "bsub"):
        write_command(tmp_path / "bin" / name, source)
    command = commented(scheduler).replace("{resources.gpu}", str(gpu))
    environment = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    done = subprocess.run(f'{command} "/a b/job.sh"', shell=True, capture_output=True, text=True, env=environment)
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[-1] == "/a b/job.sh"
    assert set(options) <= set(asked)
    assert any("gpu" in option for option in asked) is (gpu > 0)
    assert done.returncode == int(fails)
    assert fails or done.stdout == "1234\n"


def profile(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((PROFILES / name / "profile.yaml").read_text(encoding="utf-8"))
    return loaded


@pytest.mark.parametrize("name", [path.name for path in PROFILES.iterdir()])
def test_every_profile_carries_the_safety_keys(name: str) -> None:
    keys = profile(name)
    assert keys["max-checksum-file-size"] == "256MB"
    assert keys["rerun-incomplete"] is keys["show-failed-logs"] is True
    assert {"api_slots", "downloads"} <= keys["resources"].keys()
    assert ("gpu" in keys["resources"]) is ("executor" not in keys)


def test_rules_leave_retries_and_groups_to_profiles_and_name_their_resources() -> None:
    for path in (REPOSITORY / "workflow" / "rules").glob("*.smk"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"^\s+(retries|group):", text, re.MULTILINE), path
        jobs = len(re.findall(r"^\s+shell:$", text, re.MULTILINE))
        assert len(re.findall(r"\bruntime=", text)) == len(re.findall(r"\bmem_mb=", text)) == jobs, path
