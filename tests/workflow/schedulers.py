"""Schedulers of our own, which run at once what they are given and remember how they were asked."""

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.workflow.conftest import Workspace

PROFILES = REPOSITORY / "profiles"

_START = """
import json, os, subprocess, sys
from pathlib import Path
folder = Path(os.environ["FAKE_SCHEDULER"])

def start(options, script, log, environment):
    number = str(len(list(folder.glob("*.json"))) + 1)
    (folder / f"{number}.json").write_text(json.dumps([*options, script]))
    (folder / f"{number}.sh").write_text(script)
    log = Path(str(log or folder / "%j.log").replace("%j", number))
    command = ["sh", "-c", 'sh "$0"; echo $? > "$1.new"; mv "$1.new" "$1"']
    with log.open("wb") as output:
        subprocess.Popen(
            [*command, str(folder / f"{number}.sh"), str(folder / f"{number}.exit")],
            stdout=output, stderr=output, start_new_session=True,
            env=environment,
        )
    return number
"""
_QSUB = f"""{_START}
names = ["HOME", "PATH", *(sys.argv[sys.argv.index("-v") + 1].split(",") if "-v" in sys.argv else [])]
environment = os.environ if "-V" in sys.argv else {{name: os.environ[name] for name in names}}
print(start(sys.argv[1:-1], Path(sys.argv[-1]).read_text(), None, environment) + ".fake")
"""
_QSTAT = """
import os, sys
from pathlib import Path
number = sys.argv[-1].removesuffix(".fake")
ended = Path(os.environ["FAKE_SCHEDULER"], f"{number}.exit")
code = ended.read_text().strip() if ended.exists() else ""
print(f"Job Id: {number}.fake\\n    job_state = {'F' if code else 'R'}\\n    Exit_status = {code}")
"""
# What the real one does with a script that it is handed by --wrap or by its standard input.
_SBATCH = f"""{_START}
wrapped = [option for option in sys.argv if option.startswith("--wrap=")]
script = "#!/bin/sh\\n" + wrapped[0].removeprefix("--wrap=") if wrapped else Path(sys.argv[-1]).read_text()
print(start(sys.argv[1:], script, sys.argv[sys.argv.index("--output") + 1], os.environ | {{"SLURM_JOB_ID": "1"}}))
"""
_SQUEUE = """
import os
from pathlib import Path
folder = Path(os.environ["FAKE_SCHEDULER"])
for job in folder.glob("*.json"):
    ended = folder / f"{job.stem}.exit"
    state = "RUNNING" if not ended.exists() else "COMPLETED" if ended.read_text().strip() == "0" else "FAILED"
    print(f"{job.stem}|{state}")
"""
_SRUN = """
import os, sys
words = sys.argv[1:]
while words[0].startswith("-"):
    words.pop(0)
os.execvp(words[0], words)
"""
_SCONTROL = 'print("MinJobAge = 300 sec")'


class Scheduler:
    """Commands that stand before the machine's own in the PATH of a run."""

    def __init__(self, folder: Path, commands: dict[str, str]) -> None:
        self.folder = folder / "scheduler"
        self.folder.mkdir()
        for name, source in commands.items():
            write_command(folder / "bin" / name, f"#!{sys.executable}\n{source}")
        self.environment = {"FAKE_SCHEDULER": str(self.folder), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}

    @property
    def submitted(self) -> list[list[str]]:
        """Options and script of each job, in order."""
        paths = sorted(self.folder.glob("*.json"), key=lambda path: int(path.stem))
        return [json.loads(path.read_text()) for path in paths]


def write_command(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def submit_by(profile: str, workspace: Workspace, folder: Path) -> Scheduler:
    """Let `workspace` submit by a shipped profile to a scheduler of its kind, which keeps its files in `folder`."""
    if importlib.util.find_spec(f"snakemake_executor_plugin_{profile.replace('-', '_')}") is None:
        pytest.skip(f"the plugin {profile} is not installed: make test EXTRAS=cluster")
    commands = {"cluster-generic": PBS, "slurm": SLURM}[profile]
    scheduler = Scheduler(folder, commands)
    workspace.more_environment |= scheduler.environment
    workspace.where = ("--workflow-profile", str(PROFILES / profile), "--jobs", "2", "--latency-wait", "5")
    workspace.where += {
        "cluster-generic": ("--seconds-between-status-checks", "1"),
        "slurm": ("--max-status-checks-per-second", "1", "--slurm-init-seconds-before-status-checks", "1"),
    }[profile]
    return scheduler


PBS = {"qsub": _QSUB, "qstat": _QSTAT}
SLURM = {
    "sbatch": _SBATCH,
    "squeue": _SQUEUE,
    "srun": _SRUN,
    "scontrol": _SCONTROL,
    "sinfo": 'print("PARTITION\\nmain*")',
    "sacct": "raise SystemExit(1)",
    "sacctmgr": "raise SystemExit(1)",
    "sshare": "raise SystemExit(1)",
    "scancel": "",
}
