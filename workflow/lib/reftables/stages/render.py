"""Render the tables: our numbers beside the published ones, as Markdown, CSV and one HTML page."""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from reftables.errors import DataError, run
from reftables.files import read_text, write_atomically
from reftables.published import PUBLISHED, Published, read_published, require_models
from reftables.rendering import Origin, html, markdown
from reftables.results import read_results
from reftables.sheets import build_section
from reftables.tables import Table, TableSpec, build_tables, tidy_frame, wide_frame


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--expected", required=True, help="what to show: selection, cells, tables, lineage")
    options.add_argument("--published", type=Path, default=PUBLISHED, help="the papers' cells (default: the bundled)")
    options.add_argument("--results", type=Path, required=True, help="folder to write tables.md and the others to")
    return options


def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    expected = read_expected(args.expected)
    published = read_published(args.published)
    require_models(published, published_names(expected), args.published.name)
    results = read_results(expected)
    specs = {name: TableSpec(**spec) for name, spec in expected["tables"].items()}
    tables = build_tables(results, specs, expected["splits"], published)
    files = render(tables, published, origin_of(expected))
    for name, content in files.items():
        write_atomically(args.results / name, content)
    for path in (args.results / "tables").glob("*.csv"):
        if f"tables/{path.name}" not in files:
            path.unlink()


def read_expected(path: str) -> dict[str, Any]:
    try:
        return dict(json.loads(read_text(path)))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}: not JSON: {error}. Remove the file and run snakemake again.") from error


def published_names(expected: Mapping[str, Any]) -> dict[str, str]:
    """The names of papers' models that the config uses, each under its config key."""
    names = {f"models.{c['model']}.published": c["published"] for c in expected["cells"] if c["published"] is not None}
    for table, spec in expected["tables"].items():
        names |= {f"tables.{table}.published[{place}]": model for place, model in enumerate(spec["published"])}
    return names


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
        lineage_parts=parts,
        lineages=[
            (
                f"{cell['model']} on {cell['benchmark']} {cell['split']}",
                [str(cell["lineage"].get(part, "")) for part in parts],
            )
            for cell in cells
        ],
    )


def render(tables: Sequence[Table], published: Published, origin: Origin) -> dict[str, str]:
    """The content of every file, by its path inside the results folder."""
    sections = [build_section(table, published) for table in tables]
    return {
        "tables.md": markdown(sections, origin),
        "tables.csv": csv_text(tidy_frame(tables)),
        **{f"tables/{table.name}.csv": csv_text(wide_frame(table)) for table in tables},
        "index.html": html(sections, origin),
    }


def csv_text(frame: pd.DataFrame) -> str:
    return frame.to_csv(index=False, lineterminator="\n")


if __name__ == "__main__":
    run(main)
