"""The printed tables as LaTeX: one `table` a sheet, in booktabs style, to be taken with \\input.

The document needs the packages booktabs and graphicx. Wide tables are shrunk to the line, never enlarged.
"""

import re
from collections.abc import Iterator, Sequence

from reftables.grids import Grid
from reftables.rendering import LEGEND, SAMPLE, Origin
from reftables.sheets import Entry, Heading, Row, Section, Sheet

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "Δ": r"$\Delta$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "×": r"$\times$",
    "–": "--",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
_SPECIALS = re.compile("|".join(map(re.escape, _SPECIAL)))


def escape(text: str) -> str:
    """`text` as plain text of one line."""
    return _SPECIALS.sub(lambda match: _SPECIAL[match[0]], " ".join(text.split()))


def latex(sections: Sequence[Section], origin: Origin, grids: Sequence[Grid] = ()) -> str:
    """results/tables.tex."""
    lines = ["% Needs \\usepackage{booktabs} and \\usepackage{graphicx}.", *map(_comment, LEGEND)]
    lines += [_comment(f"config files: {', '.join(origin.config_files)}")]
    for section in sections:
        for place, sheet in enumerate(section.sheets):
            notes = section.footnotes if place == len(section.sheets) - 1 else ()
            lines += ["", *_sheet(sheet, notes, sample=origin.sample)]
    for grid in grids:
        lines += ["", *_grid(grid)]
    return "\n".join([*lines, ""])


def _comment(text: str) -> str:
    """A comment of one line, whatever line ends the text has: a file's name may hold one."""
    return f"% {' '.join(text.split())}"


def _sheet(sheet: Sheet, notes: Sequence[str], *, sample: bool) -> Iterator[str]:
    caption = [sheet.title, *(sheet.metrics if len(sheet.metrics) == 1 else ()), *([SAMPLE] if sample else ())]
    columns = "l" + "r" * len(sheet.headings)
    start, benchmarks, rules = 2, [], []
    for benchmark, span in sheet.spans:
        benchmarks.append(f"\\multicolumn{{{span}}}{{c}}{{{escape(benchmark)}}}")
        rules.append(f"\\cmidrule(lr){{{start}-{start + span - 1}}}")
        start += span
    head = [
        _line(["", *benchmarks]),
        "".join(rules),
        _line(["model", *(_heading(heading) for heading in sheet.headings)]),
        _line(["", *(f"\\footnotesize {escape(heading.size)}" for heading in sheet.headings)]),
    ]
    yield from _table(", ".join(caption), columns, head, [_row(row) for row in sheet.rows], notes)


def _grid(grid: Grid) -> Iterator[str]:
    columns = "l" * grid.names + "r" * (len(grid.headings) - grid.names)
    rows = [_line([escape(text) for text in row]) for row in grid.rows]
    yield from _table(f"{grid.title}. {grid.method}", columns, [_line(list(map(escape, grid.headings)))], rows, ())


def _table(caption: str, columns: str, head: Sequence[str], rows: Sequence[str], notes: Sequence[str]) -> Iterator[str]:
    yield "\\begin{table}"
    yield f"\\caption{{{escape(caption)}}}"
    yield "\\centering"
    yield "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%"
    yield f"\\begin{{tabular}}{{{columns}}}"
    yield from ("\\toprule", *head, "\\midrule", *rows, "\\bottomrule")
    yield "\\end{tabular}}"
    if notes:
        yield "\\par\\smallskip\\raggedright\\footnotesize"
        yield from (f"\\textsuperscript{{{number}}} {escape(text)}\\par" for number, text in enumerate(notes, start=1))
    yield "\\end{table}"


def _line(fields: Sequence[str]) -> str:
    return " & ".join(fields) + r" \\"


def _heading(heading: Heading) -> str:
    return escape(" ".join(word for word in (heading.split, heading.metric) if word)) + _marks(heading.marks)


def _row(row: Row) -> str:
    return _line([_entry(entry, italic=row.paper) for entry in (row.label, *row.entries)])


def _entry(entry: Entry, *, italic: bool) -> str:
    text = escape(entry.text)
    parts = [f"\\textit{{{text}}}" if italic and text else text, escape(entry.interval)]
    if entry.remarks:
        parts.append(f"\\footnotesize({escape(', '.join(entry.remarks))})")
    reading = " ".join(part for part in parts if part)
    return ", ".join(part for part in (reading, escape(entry.tally)) if part) + _marks(entry.marks)


def _marks(numbers: Sequence[int]) -> str:
    return f"\\textsuperscript{{{','.join(map(str, numbers))}}}" if numbers else ""
