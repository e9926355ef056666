"""COCO's own annotations as samples: every object that is no crowd, in file order, asked for by its category's name.

No paper's benchmark: a way to score masks on any file in COCO's format.
"""

from collections.abc import Mapping, Sequence

from reftables.benchmarks.coco_masks import Instances, read_instances
from reftables.benchmarks.records import field
from reftables.benchmarks.references import Reference, Sentence, truth_of
from reftables.benchmarks.truth import Truth
from reftables.errors import DataError
from reftables.rows import Task, TruthRow

TASKS = frozenset({Task.MASKS})
PROMPTS = frozenset({"plain"})
REQUIRED = frozenset({"instances", "images"})
OPTIONAL: frozenset[str] = frozenset()


def truth_files(settings: Mapping[str, str], split: str) -> list[str]:
    """The instances."""
    return [settings["instances"]]


def request_files(settings: Mapping[str, str], split: str, prompt: str) -> list[str]:
    """None: a request is its expression."""
    return []


def image_root(settings: Mapping[str, str], split: str) -> str:
    """The folder that holds `train2014` and `val2014`, or the images themselves."""
    return settings["images"].rstrip("/")


def read_truth(settings: Mapping[str, str], *, benchmark: str, split: str, task: Task) -> Truth:
    """One row an annotation; its `source_id` is the annotation's id. Raises DataError for a damaged file."""
    instances = read_instances(settings["instances"], None)
    references = [_reference(i, instances) for i, a in instances.annotations.items() if not a.get("iscrowd")]
    if not references:
        raise DataError(f"{instances.path}: has no annotation that is no crowd")
    return truth_of(references, instances)


def request_texts(rows: Sequence[TruthRow], settings: Mapping[str, str], *, split: str, prompt: str) -> list[str]:
    """The bare category names: `plain` is the only family."""
    return [row["expression"] for row in rows]


def _reference(annotation_id: int, instances: Instances) -> Reference:
    annotation, where = instances.annotations[annotation_id], instances.where(annotation_id)
    category = field(annotation, "category_id", int, where)
    if category not in instances.categories:
        raise DataError(f"{where}: the file has no category {category}")
    sentence = Sentence(annotation_id, instances.categories[category])
    return Reference(where, field(annotation, "image_id", int, where), (annotation_id,), [sentence])
