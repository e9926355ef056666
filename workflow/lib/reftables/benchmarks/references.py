"""Expressions that refer to annotated objects: what refer, gRefCOCO and COCO's own annotations have in common."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from reftables import rle
from reftables.benchmarks.coco_masks import Instances, draw
from reftables.benchmarks.records import as_record, check_box, field, text_field
from reftables.benchmarks.truth import Truth
from reftables.errors import DataError, counted, preview, shown
from reftables.rows import TruthRow


class Sentence(NamedTuple):
    """One expression; `id` is the file's own."""

    id: int
    text: str


class Reference(NamedTuple):
    """What one or more sentences refer to in one image."""

    where: str  # what an error calls it
    image_id: int
    annotation_ids: tuple[int, ...]  # one, several, or none: nothing in the image is meant
    sentences: Sequence[Sentence]


def of_split(path: str, records: object, split: str) -> list[tuple[str, dict[str, Any]]]:
    """(what an error calls it, record) of each record of `split` in a list of references, in its order."""
    if type(records) is not list:
        raise DataError(f"{path}: holds a {type(records).__name__}, not a list of references")
    found: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for position, record in enumerate(records):
        where = f"{path}: reference number {position:,} (from 0)"
        name = field(as_record(record, where), "split", str, where)
        found.setdefault(name, []).append((f"{path}: reference {shown(record.get('ref_id', position))}", record))
    if split not in found:
        raise DataError(f"{path}: no reference is of the split {split!r}; there are {preview(found) or 'none'}")
    return found[split]


def sentences_of(record: Mapping[str, Any], where: str) -> list[Sentence]:
    """The sentences of a reference, in their order: `sent`, the text in lower case without punctuation."""
    sentences = [as_record(s, f"{where}: a sentence") for s in field(record, "sentences", list, where)]
    return [Sentence(field(s, "sent_id", int, where), text_field(s, "sent", where)) for s in sentences]


def truth_of(references: Sequence[Reference], instances: Instances) -> Truth:
    """One row a sentence, in the order of the references; an object's mask stands in its first row only."""
    for reference in references:
        _check(reference, instances)
    targets = [_targets(reference, instances) for reference in references]
    masks, notes = draw(instances, (i for ids in targets for i in ids))
    rows: list[TruthRow] = []
    first_row: dict[tuple[int, ...], int] = {}
    for reference, ids in zip(references, targets, strict=True):
        for sentence in reference.sentences:
            row = _row(len(rows), sentence, reference, instances)
            first = first_row.setdefault(ids, row["id"])
            rows.append(row | _truth(ids, first if first < row["id"] else None, masks, instances))
    return Truth(rows, [*notes, *_sentence_notes(references), *_crowd_notes(references, targets)])


def _check(reference: Reference, instances: Instances) -> None:
    if reference.image_id not in instances.images:
        raise DataError(f"{reference.where}: {instances.path} has no image {reference.image_id}")
    if lost := [i for i in reference.annotation_ids if i not in instances.annotations]:
        raise DataError(f"{reference.where}: {instances.path} has no annotations {preview(lost)}")
    for i in reference.annotation_ids:
        found = field(instances.annotations[i], "image_id", int, instances.where(i))
        if found != reference.image_id:
            raise DataError(f"{reference.where}: is in image {reference.image_id}, its annotation {i} in {found}")


def _targets(reference: Reference, instances: Instances) -> tuple[int, ...]:
    """The annotations whose union is meant; of several, crowds are left out, as ReLA does."""
    ids = tuple(sorted(set(reference.annotation_ids)))
    single = tuple(i for i in ids if not instances.annotations[i].get("iscrowd"))
    return single or ids


def _row(line: int, sentence: Sentence, reference: Reference, instances: Instances) -> TruthRow:
    image = instances.images[reference.image_id]
    return {
        "id": line,
        "source_id": sentence.id,
        "image": image.path,
        "width": image.width,
        "height": image.height,
        "expression": sentence.text,
    }


def _truth(
    ids: tuple[int, ...], first: int | None, masks: Mapping[int, rle.Rle], instances: Instances
) -> dict[str, Any]:
    """The truth of one row; `first` is the earlier row with the same mask, if there is one.

    One object also has its annotated box, which referring comprehension is scored with.
    """
    if not ids:
        return {"no_target": True}
    truth: dict[str, Any] = {}
    if len(ids) == 1:
        truth["bbox_xywh"] = _box(instances.annotations[ids[0]], instances.where(ids[0]))
    if first is not None:
        return truth | {"mask_of": first}
    return truth | {"mask": masks[ids[0]] if len(ids) == 1 else rle.union([masks[i] for i in ids])}


def _box(annotation: Mapping[str, Any], where: str) -> list[float]:
    box = field(annotation, "bbox", list, where)
    check_box(box, where)
    return box


def _sentence_notes(references: Sequence[Reference]) -> list[str]:
    """What is odd in the file, and no reason to refuse it."""
    times = Counter(sentence.id for reference in references for sentence in reference.sentences)
    repeated = [i for i, count in times.items() if count > 1]
    silent = [reference.where.rpartition(" ")[2] for reference in references if not reference.sentences]
    notes = []
    if repeated:
        found = counted(len(repeated), "sentence id stands", "sentence ids stand")
        notes.append(f"{found} more than once, each time a sample: {preview(repeated)}")
    if silent:
        found = counted(len(silent), "reference has no sentence and is", "references have no sentence and are")
        notes.append(f"{found} no sample: {preview(silent)}")
    return notes


def _crowd_notes(references: Sequence[Reference], targets: Sequence[tuple[int, ...]]) -> list[str]:
    pairs = zip(references, targets, strict=True)
    left_out = {i for reference, ids in pairs for i in {*reference.annotation_ids} - {*ids}}
    if not left_out:
        return []
    return [
        f"{len(left_out):,} crowds were left out of the union of several targets, as in ReLA: "
        f"annotations {preview(sorted(left_out))}"
    ]
