"""gRefCOCO: expressions for one object, for several, or for none; `grefs(unc).json` and `instances.json`.

As in refer's pickles, one reference has `ref_id, ann_id, image_id, split` and `sentences`, but `ann_id` is
a list: the truth is the union of its objects, crowds left out, and [-1] means that nothing in the image is
meant (`no_target` says the same where it is there). The authors replaced the val split on 2023-08-29.

Sources: FudanCVL/gRefCOCO; henghuiding/ReLA, gres_model/data/datasets/grefer.py and grefcoco.py.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from reftables.benchmarks.coco_masks import read_instances
from reftables.benchmarks.records import field
from reftables.benchmarks.references import Reference, of_split, sentences_of, truth_of
from reftables.benchmarks.truth import Truth
from reftables.errors import DataError, shown
from reftables.files import read_text
from reftables.rows import Task, TruthRow

TASKS = frozenset({Task.MASKS})
PROMPTS = frozenset({"plain"})
REQUIRED = frozenset({"refs", "instances", "images"})
OPTIONAL: frozenset[str] = frozenset()

NO_TARGET = [-1]


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

    Raises DataError for a damaged file and for references whose image or annotations the instances lack.
    """
    path = settings["refs"]
    try:
        records = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not valid JSON, perhaps cut short; get the file again ({error})") from error
    references = [_reference(where, record) for where, record in of_split(path, records, split)]
    instances = read_instances(settings["instances"], {i for ref in references for i in ref.annotation_ids})
    truth = truth_of(references, instances)
    # Of the papers' own set alone: a drawn one has the number it was drawn with.
    unconfirmed = ["gRefCOCO: the numbers of samples are not confirmed by any publication"]
    return Truth(truth.rows, truth.notes + (unconfirmed if benchmark == "grefcoco" else []))


def request_texts(rows: Sequence[TruthRow], settings: Mapping[str, str], *, split: str, prompt: str) -> list[str]:
    """The bare expressions: `plain` is the only family."""
    return [row["expression"] for row in rows]


def _reference(where: str, record: Mapping[str, Any]) -> Reference:
    return Reference(where, field(record, "image_id", int, where), _targets(where, record), sentences_of(record, where))


def _targets(where: str, record: Mapping[str, Any]) -> tuple[int, ...]:
    """The annotation ids that are meant; none where the expression has no target."""
    ids = record.get("ann_id")
    ids = [ids] if type(ids) is int else ids
    if type(ids) is not list or not ids or {*map(type, ids)} != {int}:
        raise DataError(
            f"{where}: `ann_id` is {shown(ids)}, not a list of annotation ids, or {NO_TARGET} for no target"
        )
    none = ids == NO_TARGET
    if not none and -1 in ids:
        raise DataError(f"{where}: `ann_id` is {shown(ids)}: no target beside a target")
    if "no_target" in record and field(record, "no_target", bool, where) != none:
        raise DataError(f"{where}: `no_target` is {record['no_target']}, but `ann_id` is {shown(ids)}")
    return () if none else tuple(ids)
