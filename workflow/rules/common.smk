"""What all rules share: the checked configuration, the lineages, the interpreter.

OUT  results/expected.json, results/config.json: written when the workflow is read and only when they would differ
"""

import os
import re
import shlex
import sys
from dataclasses import asdict
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

LIBRARY = Path(workflow.basedir) / "workflow" / "lib"
sys.path.insert(0, str(LIBRARY))
# The stages run under the interpreter that runs Snakemake, and find the package without an installation.
os.environ.update(
    PATH=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    PYTHONPATH=os.pathsep.join([str(LIBRARY), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
    # A job has its core and no more; numpy's pool of threads would cost a third of every import.
    OPENBLAS_NUM_THREADS=os.environ.get("OPENBLAS_NUM_THREADS", "1"),
    PYTHONSAFEPATH="1",  # a csv.py in the working directory is not Python's
)

from reftables import paths
from reftables.config import load
from reftables.errors import ReftablesError
from reftables.expected import expected, write_when_different
from reftables.files import canonical_json
from reftables.hiding import hide_keys
from reftables.published import PUBLISHED, published_names, read_published, require_models
from reftables.lineage import Digests, Lineages, code, gallery_lineage, made_by_rules, short, tables_lineage
from reftables.stages.sample import OUTPUTS as SAMPLE_OUTPUTS
from reftables.submitting import require_plain

try:
    CONFIG = load(config)
    CELLS = {(cell.model.name, cell.benchmark.name, cell.split): cell for cell in CONFIG.cells()}
    DIGESTS = Digests(Path(paths.DIGESTS))
    LINEAGES = Lineages(CONFIG, made_by_rules(CONFIG, DIGESTS), DIGESTS)
    # By name alone: an absolute path would remake the tables after a move.
    CONFIG_FILES = ["config.yaml", *(Path(path).name for path in workflow.overwrite_configfiles)]
    EXPECTED = expected(CONFIG, LINEAGES, CONFIG_FILES)
    require_models(read_published(PUBLISHED), published_names(EXPECTED), PUBLISHED.name)
    FILES = [file for cell in CELLS.values() for file in cell.files()]
except ReftablesError as error:
    raise WorkflowError(str(error)) from None

hide_keys(logger, config["models"])
DIGESTS.save()
# In a file: of a few hundred models it is longer than a word of a command line may be.
for content, path in [(EXPECTED, paths.EXPECTED), (config, paths.CONFIG)]:
    write_when_different(content, path, dry=workflow.output_settings.dryrun)


def refuse_shell_code():
    """Stop before a job is submitted from a folder, or with a file, whose name a shell could run."""
    files = {f"the config file {number}": str(path) for number, path in enumerate(workflow.overwrite_configfiles, 1)}
    try:
        require_plain({"the working directory": os.getcwd(), "the workflow": workflow.main_snakefile, **files})
    except ReftablesError as error:
        raise WorkflowError(str(error)) from None


def any_of(names):
    """The pattern of exactly these names; of none, one that nothing matches."""
    return "|".join(re.escape(name) for name in names) or "(?!)"


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


def models_on(wildcards):
    """The names of the models that answer a split."""
    return [m for m, benchmark, split in CELLS if (benchmark, split) == (wildcards.benchmark, wildcards.split)]


def format_of(cell):
    return canonical_json(asdict(cell.form))


def files_of(found):
    """As inputs: without what only counts in the lineage, folders (they end in a slash) and names with braces.

    Snakemake takes every `{name}` in a path for a wildcard and knows no way to say otherwise.
    """
    return [path for path in found if not path.endswith(os.sep) and "{" not in path]


def given(flag, value):
    """A command-line flag with its value, shell-quoted, or nothing."""
    # In one word: a value of its own that begins with a dash would be taken for a flag.
    return "" if value is None else f"{flag}={shlex.quote(str(value))}"


def images_of(wildcards):
    """Where the images of a split are fetched from; None for a folder of the user's own."""
    return CONFIG.images_of(benchmark_of(wildcards).image_root(wildcards.split))


def image_archive(images):
    """The digest file of the archive that the images are unpacked from, where they are."""
    return images.archive.digest if images and images.archive else []


def image_source(images):
    """The flag that names where to get images that are missing."""
    if images is None:
        return ""
    return given("--source", canonical_json({key: getattr(images, key) for key in ("urls", "path", "connections")}))
