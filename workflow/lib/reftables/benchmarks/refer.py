"""RefCOCO, RefCOCO+ and RefCOCOg as their authors publish them: a pickle of references and `instances.json`.

`refs(unc).p`, `refs(umd).p` and `refs(google).p` hold one reference an object: `ref_id, ann_id, image_id,
split` and `sentences`. The samples are the sentences of the references of a split, both in the file's
order, their text `sent` (what MDETR's files hold too; LAVT and ReLA feed `raw`). The image's name comes
from the instances: a reference's own carries a suffix.

Source: lichengunc/refer, refer.py.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reftables.benchmarks.coco_masks import read_instances
from reftables.benchmarks.pickles import read_plain_pickle
from reftables.benchmarks.records import field
from reftables.benchmarks.references import Reference, of_split, sentences_of, truth_of
from reftables.benchmarks.truth import Truth
from reftables.errors import ConfigError
from reftables.rows import Task, TruthRow

TASKS = frozenset({Task.MASKS})
PROMPTS = frozenset({"plain"})
REQUIRED = frozenset({"refs", "instances", "images"})
OPTIONAL = frozenset({"split_by"})

SPLITS_BY = ("google", "umd", "unc")


def truth_files(settings: Mapping[str, str], split: str) -> list[str]:
    """The references and the instances."""
    return [settings["refs"], settings["instances"]]


def request_files(settings: Mapping[str, str], split: str, prompt: str) -> list[str]:
    """None: a request is its expression."""
    return []


def image_root(settings: Mapping[str, str], split: str) -> str:
    """The folder that holds `train2014`."""
    return settings["images"].rstrip("/")


def read_truth(settings: Mapping[str, str], *, benchmark: str, split: str, task: Task) -> Truth:
    """One row a sentence; its `source_id` is the sentence's id.

    Raises DataError for a damaged file, for a pickle that names anything but plain data, and for
    references whose image or annotation the instances lack.
    """
    split_by = _split_by(settings, benchmark)
    path = settings["refs"]
    references = [_reference(where, record) for where, record in of_split(path, read_plain_pickle(path), split)]
    instances = read_instances(settings["instances"], {i for ref in references for i in ref.annotation_ids})
    truth = truth_of(references, instances)
    unconfirmed = ["Google's split: its number of samples is not confirmed by any publication"]
    return Truth(truth.rows, truth.notes + (unconfirmed if split_by == "google" else []))


def check(settings: Mapping[str, str], *, benchmark: str, task: Task) -> None:
    """ConfigError where `split_by` is unknown, or not what the file's name says."""
    _split_by(settings, benchmark)


def request_texts(rows: Sequence[TruthRow], settings: Mapping[str, str], *, split: str, prompt: str) -> list[str]:
    """The bare expressions: `plain` is the only family."""
    return [row["expression"] for row in rows]


def _reference(where: str, record: Mapping[str, Any]) -> Reference:
    targets = (field(record, "ann_id", int, where),)
    return Reference(where, field(record, "image_id", int, where), targets, sentences_of(record, where))


def _split_by(settings: Mapping[str, str], benchmark: str) -> str | None:
    """Who made the splits: as declared, else as the authors' file name `refs(unc).p` says, else unknown."""
    declared = settings.get("split_by")
    match = re.fullmatch(r"refs\((\w+)\)\.p", Path(settings["refs"]).name)
    named = match.group(1) if match else None
    key = f"benchmarks.{benchmark}.split_by"
    if declared is not None and declared not in SPLITS_BY:
        raise ConfigError(f"{key} is {declared!r}; it can be {', '.join(SPLITS_BY)}")
    if declared is not None and named is not None and declared != named:
        raise ConfigError(f"{key} is {declared}, but benchmarks.{benchmark}.refs is {settings['refs']}")
    return declared or named
