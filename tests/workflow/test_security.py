"""Nothing in a config runs as shell code, and no key is left anywhere."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server import Server
from tests.waiting import wait_for
from tests.workflow.conftest import Workspace
from tests.workflow.material import WORDS, boxes_benchmark, server_model, write_annotations, write_fairseq, write_images
from tests.workflow.schedulers import submit_by

KEY = "sk-very/secret+key-0123456789"
# Each would leave a file `owned` if a shell read it.
EVIL = 'it\'s "q" $(touch owned) `touch owned`; touch owned | touch owned & > owned * ~ \\ # é %s'


@pytest.fixture
def evil(tmp_path: Path) -> Iterator[Workspace]:
    """A working directory, and files in it, with all that a shell gives a meaning to in their names."""
    workspace = Workspace(tmp_path / EVIL.replace("/", ""))
    yield workspace
    workspace.end()
    assert not list(tmp_path.rglob("owned"))


def configure(workspace: Workspace, server: Server, folder: str) -> None:
    write_annotations(workspace.folder / folder, "val", 100, WORDS)
    write_images(workspace.folder / folder / "images")
    write_fairseq(workspace.folder / folder / "old.val.out", WORDS)
    served = server_model(server.url, f"{EVIL}\nsecond line")
    served["identity"] |= {"system": f"{EVIL}\n$(touch owned)\n", "extra": {"user": EVIL}}
    benchmark = boxes_benchmark(val=len(WORDS))
    workspace.config = {
        "benchmarks": {
            "mine": benchmark | {"annotations": f"{folder}/finetune_{{split}}.json", "images": f"{folder}/images"}
        },
        "models": {
            "served": served,
            "theirs": {
                "identity": {"backend": "recorded", "format": "fairseq", "predictions": f"{folder}/old.{{split}}.out"},
                "formats": {"boxes": {"notation": "kosmos"}},
            },
        },
        "tables": {"boxes": {"benchmarks": ["mine"]}},
        "run": {"models": ["served", "theirs"], "benchmarks": ["mine"]},
    }


def test_names_and_texts_of_the_config_are_never_shell_code(evil: Workspace) -> None:
    with Server() as server:
        configure(evil, server, EVIL)
        evil.run()
        assert server.asked[0].model == f"{EVIL}\nsecond line"
    assert evil.metrics("theirs", "mine", "val")["n"] == len(WORDS)


def test_a_folder_that_begins_with_a_dash_is_no_option(workspace: Workspace) -> None:
    with Server() as server:
        configure(workspace, server, "-data")
        workspace.run()
    assert workspace.metrics("served", "mine", "val")["n"] == len(WORDS)


def test_a_line_feed_in_the_folder_of_the_images_is_refused(workspace: Workspace) -> None:
    with Server() as server:
        configure(workspace, server, "two\nlines")
        failed = workspace.run(check=False)
    assert failed.status == 1
    assert "a request line cannot carry an image path with a line feed" in failed.output


@pytest.mark.parametrize(
    "change",
    [
        {"benchmarks": {"mine; touch owned": boxes_benchmark(val=1)}},
        {"benchmarks": {"mine\n": boxes_benchmark(val=1)}},
        {"models": {"$(touch owned)": server_model("http://127.0.0.1:9")}},
        {"models": {"served\n": server_model("http://127.0.0.1:9")}},
        {"models": {"served": server_model("http://127.0.0.1:9") | {"exec": {"env": "core\n"}}}},
        {"sample": {"folder": "resources/{sample}"}},
    ],
    ids=["benchmark", "line feed", "model", "model's line feed", "environment", "braces"],
)
def test_names_that_stand_in_paths_are_plain(workspace: Workspace, change: dict[str, object]) -> None:
    workspace.config = change
    failed = workspace.run(check=False)
    assert failed.status == 1
    assert "does not match" in failed.output
    assert not list(workspace.folder.rglob("owned"))


@pytest.mark.parametrize("profile", ["cluster-generic", "slurm"])
def test_a_folder_that_a_shell_could_read_submits_nothing(tmp_path: Path, profile: str) -> None:
    workspace = Workspace(tmp_path / "$(touch owned)`touch owned`")
    scheduler = submit_by(profile, workspace, tmp_path)
    with Server() as server:
        configure(workspace, server, "data")
        refused = workspace.run(check=False)
    assert refused.status == 1
    assert "holds '$', which shells read otherwise" in refused.output
    assert not scheduler.submitted
    assert not list(tmp_path.rglob("owned"))


@pytest.mark.parametrize("profile", ["cluster-generic", "slurm"])
def test_a_folder_and_a_config_of_other_strange_names_are_submitted_as_they_are(tmp_path: Path, profile: str) -> None:
    workspace = Workspace(tmp_path / "a b; touch owned & (touch owned) | > owned é % * ~ # {x}")
    scheduler = submit_by(profile, workspace, tmp_path)
    with Server() as server:
        configure(workspace, server, "d a;t&a")
        workspace.run()
    assert len(scheduler.submitted) == 1
    assert workspace.metrics("served", "mine", "val")["n"] == len(WORDS)
    assert not list(tmp_path.rglob("owned"))


@pytest.mark.parametrize("fails", [False, True], ids=["answers", "refuses"])
def test_a_key_stands_in_no_file_no_output_and_no_command_line(workspace: Workspace, fails: bool) -> None:
    refusal = {"do": "status", "status": 401, "body": {"error": {"message": "no such key: {authorization}"}}}
    with Server({"delay": 500} | (refusal if fails else {"do": "answer"})) as server:
        configure(workspace, server, "data")
        workspace.config["models"]["served"]["exec"]["key_env"] = "SERVED_KEY"
        workspace.more_environment = {"SERVED_KEY": KEY}
        with workspace.start("--verbose", "--printshellcmds", "--show-failed-logs") as master:
            wait_for(lambda: server.asked or master.poll() is not None, "a request")
            shown = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
            server.release()
        assert (master.returncode != 0) is fails
        assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"
        if not fails:
            workspace.run("--report", "report.html")
    assert "reftables.stages.infer" in shown
    assert KEY not in shown
    files = [path for path in workspace.folder.rglob("*") if path.is_file()]
    assert not [path for path in files if KEY.encode() in path.read_bytes()]
