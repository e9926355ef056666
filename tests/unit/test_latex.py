"""The tables as LaTeX: texts stay texts, tables are whole, the numbers are those of the other forms."""

import re
from pathlib import Path

import pytest

from reftables.latex import escape, latex
from reftables.rendering import Origin
from reftables.stages import render
from tests.scored import Run

PUBLISHED = """\
benchmark,split,metric,model,value,grade,source
refcoco,val,precision@1,OFA_L & 100%,79.96,publisher,its README
"""


@pytest.fixture
def text(tmp_path: Path) -> str:
    run = Run(tmp_path, sample=True).table("boxes", ["refcoco"], published=["OFA_L & 100%"])
    for split in ("val", "testA"):
        run.cell("my_model", "refcoco", split, official={"precision@1": 0.5}, split_notes=["a_note with 5 %"])
    published = tmp_path / "published.csv"
    published.write_text(PUBLISHED, encoding="utf-8")
    render.main(["--expected", str(run.write()), "--published", str(published), "--results", str(tmp_path)])
    return (tmp_path / "tables.tex").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("plain", "escaped"),
    [
        ("50 % & more", r"50 \% \& more"),
        ("mean_iou", r"mean\_iou"),
        ("a\\b", r"a\textbackslash{}b"),
        ("{x}^2 ~ #1 $", r"\{x\}\textasciicircum{}2 \textasciitilde{} \#1 \$"),
        ("1 < 2 | 3 > 2", r"1 \textless{} 2 \textbar{} 3 \textgreater{} 2"),
        ("Δ ±1", r"$\Delta$ $\pm$1"),
        ("two\nlines", "two lines"),
    ],
)
def test_texts_are_taken_as_they_are(plain: str, escaped: str):
    assert escape(plain) == escaped


def test_a_number_stands_with_its_interval(text: str):
    assert r"my\_model & 50.00 $\pm$1.0 & 50.00 $\pm$1.0 \\" in text


def test_a_papers_row_is_in_italics(text: str):
    assert r"\textit{OFA\_L \& 100\%}\textsuperscript{" in text
    assert r"\textit{79.96}" in text


def test_the_head_spans_the_splits_of_a_benchmark(text: str):
    assert "\\multicolumn{2}{c}{refcoco} \\\\\n\\cmidrule(lr){2-3}" in text


def test_footnotes_stand_below_and_sample_data_is_called_so(text: str):
    assert r"\textsuperscript{1} a\_note with 5 \%\par" in text
    assert "not comparable with any paper}" in text


def test_every_row_has_the_columns_of_its_table(text: str):
    (columns,) = re.findall(r"\\begin\{tabular\}\{(\w+)\}", text)
    body = text.partition("\\midrule\n")[2].partition("\\bottomrule")[0]
    assert {len(re.split(r"(?<!\\)&", line)) for line in body.strip().split("\n")} == {len(columns)}


def test_a_line_end_in_a_files_name_does_not_end_the_comment():
    origin = Origin(
        sample=False, selection={}, config_files=["config/\nmine\r.yaml"], citations=[], lineage_parts=[], lineages=[]
    )
    assert "% config files: config/ mine .yaml" in latex([], origin).split("\n")


def test_environments_are_closed(text: str):
    for name in ("table", "tabular"):
        assert text.count(f"\\begin{{{name}}}") == text.count(f"\\end{{{name}}}") == 1
