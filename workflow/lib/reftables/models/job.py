"""What every backend is told beside its requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reftables.rows import AnswerFormat, Task, TruthRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One (model, benchmark, split) to predict."""

    model: str
    benchmark: str
    split: str
    task: Task
    form: AnswerFormat
    identity: Mapping[str, Any]  # all that can change a prediction
    execution: Mapping[str, Any]  # what cannot: batch size, threads, concurrency
    truth: Sequence[TruthRow] | None = None  # only for backends with READS_TRUTH
    partial: bool = False  # the config allows a gap: missing answers are wrong, not an error
    answered: bool = False  # the store holds answers to other requests of this job: its server or model has worked
