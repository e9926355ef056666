"""Render the tables: our numbers beside the published ones, as Markdown, CSV, LaTeX and one HTML page."""

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from reftables.analysis import Analysis, read_analysis
from reftables.csv_rows import ROW_END, RowBuffer
from reftables.errors import DataError, run
from reftables.files import pretty_json, short, write_atomically
from reftables.grids import comparison_grids
from reftables.latex import latex
from reftables.page import index_page
from reftables.provenance import provenance
from reftables.published import PUBLISHED, Published, published_names, read_published, require_models
from reftables.rendering import Origin, markdown
from reftables.results import Result, read_config, read_expected, read_results
from reftables.sheets import build_section
from reftables.tables import Table, TableSpec, build_tables, tidy_frame, wide_frame


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--expected", required=True, help="what to show: selection, cells, tables, lineage")
    options.add_argument("--selection", help="hash that the content of --expected must have")
    options.add_argument("--analysis", help="comparisons and breakdowns to show (default: none)")
    options.add_argument("--config", help="file of the configuration as run (for provenance.json)")
    options.add_argument("--known-by", help="hash that the content of --config must have")
    options.add_argument("--published", type=Path, default=PUBLISHED, help="the papers' cells (default: the bundled)")
    options.add_argument("--results", type=Path, required=True, help="folder to write tables.md and the others to")
    return options


def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    expected = read_expected(args.expected)
    if args.selection is not None and short(expected) != args.selection:
        raise DataError(f"{args.expected} is of another configuration: did another run start meanwhile? Run again.")
    published = read_published(args.published)
    require_models(published, published_names(expected), args.published.name)
    results = read_results(expected)
    analysis = read_analysis(args.analysis, expected) if args.analysis else Analysis()
    specs = {name: TableSpec(**spec) for name, spec in expected["tables"].items()}
    tables = build_tables(results, specs, expected["splits"], published)
    files = render(tables, published, origin_of(expected), results, analysis)
    for name, content in files.items():
        write_atomically(args.results / name, content)
    if args.config is not None:
        config = read_config(args.config, args.known_by)
        record = provenance(expected, config, args.results, tokens_by_model(results))
        write_atomically(args.results / "provenance.json", pretty_json(record))
    for path in (args.results / "tables").glob("*.csv"):
        if f"tables/{path.name}" not in files:
            path.unlink()


def origin_of(expected: Mapping[str, Any]) -> Origin:
    """What the foot of the tables tells."""
    cells = expected["cells"]
    limit = expected["selection"]["limit"]
    parts = list(dict.fromkeys(part for cell in cells for part in cell["lineage"]))
    return Origin(
        sample=expected["sample"],
        selection={
            "models": ", ".join(dict.fromkeys(cell["model"] for cell in cells)),
            "benchmarks": ", ".join(dict.fromkeys(cell["benchmark"] for cell in cells)),
            "samples": "all" if limit is None else f"the first {limit:,} of each split",
        },
        config_files=expected["config_files"],
        citations=expected["citations"],
        lineage_parts=parts,
        lineages=[
            (
                f"{cell['model']} on {cell['benchmark']} {cell['split']}",
                [str(cell["lineage"].get(part, "")) for part in parts],
            )
            for cell in cells
        ],
    )


def render(
    tables: Sequence[Table], published: Published, origin: Origin, results: Sequence[Result], analysis: Analysis
) -> dict[str, str]:
    """The content of every file, by its path inside the results folder."""
    sections = [build_section(table, published) for table in tables]
    grids = comparison_grids(analysis.comparisons)
    return {
        "tables.md": markdown(sections, origin, grids),
        "tables.tex": latex(sections, origin, grids),
        "tables.csv": frame_csv(tidy_frame(tables)),
        **{f"tables/{table.name}.csv": frame_csv(wide_frame(table)) for table in tables},
        "index.html": index_page(sections, tables, results, analysis, origin),
    }


def tokens_by_model(results: Sequence[Result]) -> dict[str, dict[str, int]]:
    """The tokens each model spent on all splits, `in` and `out`."""
    spent: dict[str, Counter[str]] = {}
    for result in results:
        if result.tokens:
            spent.setdefault(result.model, Counter()).update(result.tokens)
    return {model: dict(counted) for model, counted in spent.items()}


def frame_csv(frame: pd.DataFrame) -> str:
    text = RowBuffer(newline="")
    frame.to_csv(text, index=False, lineterminator=ROW_END)
    return text.getvalue()


if __name__ == "__main__":
    run(main)
