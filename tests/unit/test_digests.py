"""The ledger of downloads."""

from pathlib import Path

import pytest

from reftables.digests import Recorded, read_ledger, record
from reftables.errors import DataError

SOUND = Recorded(3, "0" * 64, "https://example.org/a b")


@pytest.mark.parametrize(
    ("target", "url"), [("a\tb", "u"), ("a\nb", "u"), ("a", "u\tv"), ("a", "u\nv"), ("a", "u\rv"), ("a\0", "u")]
)
def test_what_no_line_can_carry_is_refused_and_the_ledger_stays_whole(tmp_path: Path, target: str, url: str) -> None:
    ledger = tmp_path / "digests.tsv"
    record(ledger, "first", SOUND)
    with pytest.raises(DataError, match=r"digests\.tsv: no line can carry '.*Mend it in the configuration"):
        record(ledger, target, SOUND._replace(url=url))
    assert read_ledger(ledger) == {"first": SOUND}
