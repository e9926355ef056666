"""What all rules share: the checked configuration, the lineages, the interpreter.

OUT  results/expected.json, written when the workflow is read and only when it would differ
"""

import os
import re
import shlex
import sys
from dataclasses import asdict
from pathlib import Path

from snakemake.exceptions import WorkflowError

LIBRARY = Path(workflow.basedir) / "workflow" / "lib"
sys.path.insert(0, str(LIBRARY))
# The stages run under the interpreter that runs Snakemake, and find the package without an installation.
os.environ.update(
    PATH=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    PYTHONPATH=os.pathsep.join([str(LIBRARY), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
)

from reftables import paths
from reftables.config import load
from reftables.errors import ConfigError
from reftables.expected import expected, write_expected
from reftables.files import canonical_json
from reftables.lineage import Digests, Lineages, code, short, tables_lineage
from reftables.stages.sample import OUTPUTS as SAMPLE_OUTPUTS


def made_by_rules():
    """What the files are known by that a rule makes out of nothing."""
    return {f"{CONFIG.sample['folder']}/": short([code("stages.sample"), CONFIG.sample["seed"]])}


try:
    CONFIG = load(config)
    CELLS = {(cell.model.name, cell.benchmark.name, cell.split): cell for cell in CONFIG.cells()}
    DIGESTS = Digests(Path(paths.DIGESTS))
    LINEAGES = Lineages(CONFIG, made_by_rules(), DIGESTS)
    # By name alone: an absolute path would remake the tables after a move.
    CONFIG_FILES = ["config.yaml", *(Path(path).name for path in workflow.overwrite_configfiles)]
    EXPECTED = expected(CONFIG, LINEAGES, CONFIG_FILES)
except ConfigError as error:
    raise WorkflowError(str(error)) from None

DIGESTS.save()
write_expected(EXPECTED)


def any_of(names):
    return "|".join(re.escape(name) for name in names)


wildcard_constraints:
    benchmark=any_of(CONFIG.benchmarks),
    split=any_of(sorted({split for benchmark in CONFIG.benchmarks.values() for split in benchmark.splits})),
    model=any_of(CONFIG.models),
    prompt="[A-Za-z0-9][A-Za-z0-9_+-]*",


def benchmark_of(wildcards):
    return CONFIG.benchmarks[wildcards.benchmark]


def settings_of(wildcards):
    """The source's own config keys for a split, as JSON."""
    return canonical_json(benchmark_of(wildcards).settings(wildcards.split))


def cell_of(wildcards, model=None):
    """The cell that a job of `infer` or `score` makes."""
    return CELLS[model or wildcards.model, wildcards.benchmark, wildcards.split]


def format_of(cell):
    return canonical_json(asdict(cell.form))


def files_of(found):
    """Without folders, which end in a slash: they count in the lineage, and are never inputs."""
    return [path for path in found if not path.endswith("/")]


def given(flag, value):
    """A command-line flag with its value, shell-quoted, or nothing."""
    return "" if value is None else f"{flag} {shlex.quote(str(value))}"
