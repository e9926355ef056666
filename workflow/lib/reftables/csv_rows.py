r"""CSV as text: rows end at `\n`, and a field with any line end is quoted.

Python quotes what stands in its own line end only, so one of `\n` would leave a carriage return bare, which
readers take for the end of a row. Rows are therefore written with both, and each loses the one again.
"""

import csv
import io
from collections.abc import Iterable

ROW_END = "\r\n"  # for `csv.writer` or pandas, on a RowBuffer


class RowBuffer(io.StringIO):
    """Takes rows of a CSV writer, each whole and ending in ROW_END."""

    def write(self, row: str) -> int:
        return super().write(f"{row.removesuffix(ROW_END)}\n")


def csv_text(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """The header and the rows; None is an empty field."""
    text = RowBuffer(newline="")
    writer = csv.writer(text, lineterminator=ROW_END)
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()
