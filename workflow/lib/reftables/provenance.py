"""What it takes to repeat a run: versions, commit, configuration, digests, and what the run cost.

`config` is the whole configuration as run; as a file of its own it can be given to `--configfile`.
"""

import csv
import hashlib
import json
import math
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from reftables import paths
from reftables.digests import read_ledger

REPOSITORY = Path(__file__).resolve().parents[3]


def provenance(
    expected: Mapping[str, Any], config: Mapping[str, Any], results: Path, tokens: Mapping[str, Mapping[str, int]]
) -> dict[str, Any]:
    """The content of results/provenance.json; `tokens` are those each model spent, where they were counted."""
    cells = expected["cells"]
    made = [template.format(**cell) for cell in cells for template in (paths.PREDICTIONS, paths.METRICS)]
    return {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(REPOSITORY),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": packages(),
        "config_files": expected["config_files"],
        "config": config,
        "lineage": {f"{cell['model']} on {cell['benchmark']} {cell['split']}": cell["lineage"] for cell in cells},
        "sources": source_digests(Path(paths.DIGESTS)),
        "downloads": {path: entry._asdict() for path, entry in read_ledger(Path(paths.LEDGER)).items()},
        "results": {path: sha256(Path(path)) for path in made if Path(path).is_file()},
        "jobs": jobs(results / "timings"),
        "tokens": tokens,
    }


def commit(repository: Path) -> dict[str, Any] | None:
    """The commit of the workflow, and whether files differ from it; None where it is no checkout of its own."""
    top = _git(repository, "rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != repository:
        return None
    return {"id": _git(repository, "rev-parse", "HEAD"), "modified": bool(_git(repository, "status", "--porcelain"))}


def _git(repository: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(repository), *arguments], capture_output=True, text=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def packages() -> dict[str, str]:
    """Every installed distribution and its version."""
    found = {distribution.name: distribution.version for distribution in metadata.distributions()}
    return {name: found[name] for name in sorted(found, key=str.lower)}


def source_digests(memory: Path) -> dict[str, str]:
    """sha256 of the local files that were read, relative to the working directory where they lie inside it."""
    try:
        known: dict[str, Sequence[Any]] = json.loads(memory.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}  # nothing local was read, or the memory is to be made anew
    here = Path.cwd()
    return {
        str(path.relative_to(here) if path.is_relative_to(here) else path): entry[-1]
        for path, entry in ((Path(name), entry) for name, entry in sorted(known.items()))
    }


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def jobs(timings: Path) -> dict[str, dict[str, float]]:
    """How many jobs of each rule ran last, and their seconds, from Snakemake's benchmark files."""
    found: dict[str, dict[str, float]] = {}
    for path in sorted(timings.rglob("*.tsv")):
        rule = path.relative_to(timings).parts[0].removesuffix(".tsv")
        try:
            seconds = _seconds(path)
        except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
            print(f"warning: {path}: no timings of Snakemake's, passed over: {error!r}", file=sys.stderr)
            continue
        total = found.setdefault(rule, {"jobs": 0, "seconds": 0.0})
        total["jobs"] += len(seconds)
        for job in seconds:
            total["seconds"] = round(total["seconds"] + job, 2)
    return found


def _seconds(path: Path) -> list[float]:
    """How long each job of a benchmark file took; ValueError, KeyError, TypeError or csv.Error if it is none."""
    with path.open(encoding="utf-8", newline="") as file:
        seconds = [float(row["s"]) for row in csv.DictReader(file, delimiter="\t")]
    if not all(map(math.isfinite, seconds)):
        raise ValueError("a time is not finite")
    return seconds
