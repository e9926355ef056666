"""Shards: the parts that a split is predicted in, each by a job of its own."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from reftables.rows import Request


@dataclass(frozen=True, slots=True)
class Shard:
    """Part `number` (from 0) of `count`; written `0-of-3`, in file names, too."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}-of-{self.count}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The shard that `text` names; ValueError where it names none."""
        match = re.fullmatch(r"(\d+)-of-(\d+)", text)
        shard = cls(int(match[1]), int(match[2])) if match else cls(0, 0)
        if shard.number >= shard.count:
            raise ValueError(f"a shard reads 0-of-3, its number below its count, this one {text!r}")
        return shard

    def part_of(self, requests: Sequence[Request], group: Callable[[Request], str]) -> list[Request]:
        """The requests of every `count`-th group, in the order of the groups' first requests.

        Requests of one image go together, so its features are computed once and identical requests are
        never asked by two jobs.
        """
        places: dict[str, int] = {}
        return [r for r in requests if places.setdefault(group(r), len(places)) % self.count == self.number]


WHOLE = Shard(0, 1)
