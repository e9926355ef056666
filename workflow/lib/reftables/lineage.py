"""What every target depends on, as one short hash by part: code, config, model, source.

A rule carries its target's lineage in `params`, so Snakemake reruns it when any part changes and
names the part; the metrics files repeat it, so `render` can refuse a number that another
configuration left behind. Only what is known before the first job enters: configuration, pins,
code, and digests of local files that no rule makes.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from reftables.config import Benchmark, Cell, Config
from reftables.errors import ConfigError
from reftables.files import short, write_atomically
from reftables.fingerprint import fingerprint
from reftables.published import PUBLISHED

Lineage = dict[str, str]
TEMPLATES = Path(__file__).parent / "templates"
PARTS = ("code", "config", "model", "source")


@cache
def code(*modules: str) -> str:
    """Short fingerprint of `modules` (dotted names inside the package) and what they import."""
    return fingerprint(f"reftables.{module}" for module in modules)[:12]


class Digests:
    """sha256 of local files, remembered by size, times and inode in a small file of its own."""

    # A file changed within the clock's grain of its last reading could keep size and time; so the young are read anew.
    SETTLED_SECONDS = 2

    def __init__(self, memory: Path) -> None:
        self._memory = memory
        self._known: dict[str, list[Any]] = self._read()
        self._changed = False

    def _read(self) -> dict[str, list[Any]]:
        try:
            known = json.loads(self._memory.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}  # a cache that is gone or damaged is simply filled again
        return known if isinstance(known, dict) else {}

    def of(self, path: str) -> str:
        """The sha256 of a file, or of a folder's names, sizes and times."""
        target = Path(path)
        if target.is_dir():
            entries = sorted(os.scandir(target), key=lambda entry: entry.name)
            return short([[e.name, e.stat().st_size, e.stat().st_mtime_ns] for e in entries])
        status = target.stat()
        key = str(target.absolute())
        # The change time too: a copied time of modification is no proof of old content.
        state = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
        if self._known.get(key, [])[:-1] == state:
            return str(self._known[key][-1])
        with target.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if time.time() - status.st_mtime > self.SETTLED_SECONDS:
            self._known[key] = [*state, digest]
            self._changed = True
        return digest

    def save(self) -> None:
        """Remember what was read; a working directory that cannot be written just costs the reading again."""
        if self._changed and os.access(self._memory.parent, os.W_OK):
            write_atomically(self._memory, json.dumps(self._known))


def made_by_rules(config: Config, digests: Digests) -> dict[str, str]:
    """What the files are known by that a rule makes out of nothing: by path, or by folder with its slash."""
    fetched = [known for download in config.downloads.values() for known in download.known_by(digests.of).items()]
    return {
        f"{config.sample['folder']}/": short([code("stages.sample"), config.sample["seed"]]),
        **{target: short(known) for target, known in fetched},
    }


class Lineages:
    """The lineages of all targets of one configuration.

    `made` maps every path that a rule makes out of nothing (a drawn sample, a download), or a folder
    of such paths with its slash, to what it is known by: code and seed, or url and pin.
    """

    def __init__(self, config: Config, made: Mapping[str, str], digests: Digests) -> None:
        self._config = config
        self._made = made
        self._digests = digests
        self._truths: dict[tuple[str, str], Lineage] = {}

    def source(self, key: str, paths: Iterable[str]) -> str:
        """What the files behind a config key are known by; ConfigError where one is absent and no rule makes it.

        A path that ends in a slash is a folder, known by the names, sizes and times of its files.
        """
        known = {path: self._known_by(key, path) for path in paths}
        if absent := [path for path, digest in known.items() if digest is None]:
            raise ConfigError(f"{key}: {absent[0]} does not exist, and no rule makes it")
        return short(list(known.values()))

    def _known_by(self, key: str, path: str) -> str | None:
        for made, known in self._made.items():
            if path == made or (made.endswith("/") and path.startswith(made)):
                return known
        try:
            return self._digests.of(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"{key}: {path} cannot be read: {error.strerror}") from error

    def truth(self, benchmark: Benchmark, split: str) -> Lineage:
        key = (benchmark.name, split)
        if key not in self._truths:
            self._truths[key] = self._truth(benchmark, split)
        return self._truths[key]

    def _truth(self, benchmark: Benchmark, split: str) -> Lineage:
        settings = benchmark.settings(split)
        return {
            "code": code("stages.truth", f"benchmarks.{benchmark.source}"),
            "config": short([benchmark.task, settings, benchmark.splits[split]]),
            "model": "",
            "source": self.source(f"benchmarks.{benchmark.name}", benchmark.module.truth_files(settings, split)),
        }

    def requests(self, benchmark: Benchmark, split: str, prompt: str) -> Lineage:
        settings = benchmark.settings(split)
        files = benchmark.module.request_files(settings, split, prompt)
        return _after(
            self.truth(benchmark, split),
            code=code("stages.requests", f"benchmarks.{benchmark.source}"),
            config=prompt,
            source=self.source(f"benchmarks.{benchmark.name}", files),
        )

    def predictions(self, cell: Cell) -> Lineage:
        model, module = cell.model, cell.model.module
        files = module.answer_files(model.identity, model=model.name, benchmark=cell.benchmark.name, split=cell.split)
        form = cell.form
        decides = [str(form.notation), form.coordinates, form.order, form.grid] if module.WRITES_FORMAT else []
        return _after(
            self.requests(cell.benchmark, cell.split, form.prompt),
            code=code("stages.infer", "stages.gather", f"models.{model.backend}"),
            config=[self._config.limit, model.partial],
            model=[model.name, model.identity, form.prompt, decides],
            # Answers may be absent: requests can be made before there are any, and `infer` misses them in its turn.
            source=short([self._known_by(f"models.{model.name}.identity", path) for path in files]),
        )

    def metrics(self, cell: Cell) -> Lineage:
        form = cell.form
        return _after(
            self.predictions(cell),
            code=code("stages.score", f"scoring.{cell.benchmark.task}"),
            config=[form.notation, form.coordinates, form.order, form.grid, cell.benchmark.scoring],
        )


def tables_lineage() -> str:
    """What the tables depend on beside `results/expected.json`: code, page templates, published cells."""
    return _bundled_lineage("stages.render", PUBLISHED)


def gallery_lineage(stage: str) -> str:
    """What a page of the gallery depends on beside its inputs: code and page templates."""
    return _bundled_lineage(stage)


def _bundled_lineage(stage: str, *files: Path) -> str:
    bundled = [*files, *sorted(path for path in TEMPLATES.rglob("*") if path.is_file())]
    return short([code(stage), [hashlib.sha256(path.read_bytes()).hexdigest() for path in bundled]])


def _after(upstream: Lineage, **own: Any) -> Lineage:
    """The lineage of a target made from `upstream` and its own parts."""
    return {part: short([upstream[part], own[part]]) if part in own else upstream[part] for part in PARTS}
