"""What a benchmark source gives for one split."""

from typing import NamedTuple

from reftables.rows import TruthRow


class Truth(NamedTuple):
    """The rows of a split in the file's order, and what is worth knowing about them, a sentence each."""

    rows: list[TruthRow]
    notes: list[str]
