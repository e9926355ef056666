"""CSV of texts that hold line ends."""

import csv
import io

import pandas as pd
import pytest

from reftables.csv_rows import csv_text
from reftables.stages.analyse import table_csv
from reftables.stages.render import frame_csv

CAPTIONS = ["red\rblue", "red\nblue", "red\r\nblue", "red\r", 'the "red", one', "plain", ""]
ROWS = [[number, caption] for number, caption in enumerate(CAPTIONS)]
EXPECTED = [["id", "caption"], *([str(number), caption] for number, caption in ROWS)]


@pytest.mark.parametrize(
    "text",
    [
        csv_text(["id", "caption"], ROWS),
        table_csv([{"id": number, "caption": caption} for number, caption in ROWS], ["id", "caption"]),
        frame_csv(pd.DataFrame(ROWS, columns=["id", "caption"])),
    ],
    ids=["rows", "table", "frame"],
)
def test_any_caption_is_one_field_of_one_row(text: str) -> None:
    assert list(csv.reader(io.StringIO(text, newline=""))) == EXPECTED


def test_rows_end_in_a_line_feed_and_nothing_is_quoted_without_need() -> None:
    assert csv_text(["a", "b"], [[1, None], ["x y", 0.5]]) == "a,b\n1,\nx y,0.5\n"


def test_nothing_else_writes_csv(repository) -> None:
    package = repository / "workflow" / "lib" / "reftables"
    texts = {path.name: path.read_text("utf-8") for path in package.rglob("*.py")}
    assert [name for name, text in texts.items() if "csv.writer(" in text or "DictWriter" in text] == ["csv_rows.py"]
