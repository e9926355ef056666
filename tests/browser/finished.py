"""A small finished run made by the real stages: two models, eight expressions, texts that try to break a page."""

import json
from pathlib import Path

from PIL import Image

from reftables import paths
from reftables.files import format_request, write_jsonl
from reftables.stages import analyse, gallery, gallery_index, render, score
from tests.scored import LINEAGE, Run

BENCHMARK, SPLIT = "refcoco", "val"
NAMES = {"benchmark": BENCHMARK, "split": SPLIT}
SIZE = (320, 240)
HOSTILE = "<script>window.broken = true</script>"
EXPRESSIONS = [
    "left dog",
    "red mug",
    HOSTILE,
    '</script><img src=x onerror="window.broken = true">',
    "the tall man behind the counter",
    "small boat",
    "green car at the bottom",
    "plate",
]
FORMATS = {
    "kosmos": {"notation": "kosmos", "coordinates": None, "order": None, "prompt": "kosmos", "grid": 32},
    "pixels": {"notation": "brackets", "coordinates": "pixels", "order": "xy", "prompt": "plain", "grid": None},
}
PUBLISHED = """\
benchmark,split,metric,model,value,grade,source
refcoco,val,precision@1,Kosmos-2,52.32,publisher,its README
refcoco,val,precision@1,OFA-L <b>,79.96,secondary,a <table>
"""


def truth_rows() -> list[dict[str, object]]:
    return [
        {
            "id": i,
            "source_id": i,
            "image": f"{i // 2}.jpg",
            "width": SIZE[0],
            "height": SIZE[1],
            "expression": text,
            "bbox_xywh": [10 * i, 20, 60 + 20 * (i % 3), 50],
        }
        for i, text in enumerate(EXPRESSIONS)
    ]


def pixel_answer(row: int) -> str:
    """Right for the even samples, off for the odd ones, hostile for the last."""
    if row == len(EXPRESSIONS) - 1:
        return '<img src=x onerror="window.broken = true"> I see nothing of the kind'
    x, width = 10 * row + (120 if row % 2 else 0), 60 + 20 * (row % 3)
    return f"[{x}, 20, {x + width}, 70]"


def kosmos_answer(row: int) -> str:
    return f"<phrase>{EXPRESSIONS[row]}</phrase><object><patch_index_0064><patch_index_0300></object>"


def make_run(folder: Path) -> None:
    """results/ in `folder`, which is the working directory; the image of the last two samples is missing."""
    images = folder / "images"
    images.mkdir()
    for number in range(len(EXPRESSIONS) // 2 - 1):
        Image.new("RGB", SIZE, (60 * number, 120, 90)).save(images / f"{number}.jpg")
    write_jsonl(paths.TRUTH.format(**NAMES), truth_rows())
    Path(paths.NOTES.format(**NAMES)).write_text("[]", encoding="utf-8")
    (folder / "published.csv").write_text(PUBLISHED, encoding="utf-8")
    run = Run(folder / "results", sample=True).table("boxes", [BENCHMARK], published=["OFA-L <b>"])
    run.comparisons = [["kosmos", "pixels"]]
    for model, answer in (("kosmos", kosmos_answer), ("pixels", pixel_answer)):
        run.cell(model, BENCHMARK, SPLIT, published="Kosmos-2" if model == "kosmos" else None)
        predict_and_score(model, [answer(row) for row in range(len(EXPRESSIONS))])
    expected = str(run.write())
    analyse.main(["--expected", expected, "--results", "results"])
    Path(paths.CONFIG).write_text("{}", encoding="utf-8")
    arguments = ["--analysis", paths.ANALYSIS, "--published", "published.csv", "--config", paths.CONFIG]
    render.main(["--expected", expected, *arguments, "--results", "results"])
    for model, other in (("kosmos", "pixels"), ("pixels", "kosmos")):
        make_gallery(model, other)
    gallery_index.main(["--expected", expected, "--index", paths.GALLERY_INDEX, "--script", paths.GALLERY_SCRIPT])


def predict_and_score(model: str, texts: list[str]) -> None:
    names = {"model": model, **NAMES}
    form = FORMATS[model]
    requests = Path(paths.REQUESTS.format(prompt=form["prompt"], **NAMES))
    requests.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        format_request(f"images/{row['image']}", str(row["expression"]), prompt=str(form["prompt"]))
        for row in truth_rows()
    ]
    requests.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    rows = [{"id": i, "status": "ok", "text": text} for i, text in enumerate(texts)]
    write_jsonl(paths.PREDICTIONS.format(**names), rows)
    given = {
        **names,
        "task": "boxes",
        "format": json.dumps(form),
        "lineage": json.dumps(LINEAGE),
        "truth": paths.TRUTH.format(**NAMES),
        "notes": paths.NOTES.format(**NAMES),
        "predictions": paths.PREDICTIONS.format(**names),
        "metrics": paths.METRICS.format(**names),
        "samples": paths.SAMPLES.format(**names),
    }
    score.main([word for name, value in given.items() for word in (f"--{name}", value)])


def make_gallery(model: str, other: str) -> None:
    names = {"model": model, **NAMES}
    form = FORMATS[model]
    given = {
        **names,
        "task": "boxes",
        "format": json.dumps(form),
        "others": other,
        "each": "3",
        "side": "160",
        "truth": paths.TRUTH.format(**NAMES),
        "requests": paths.REQUESTS.format(prompt=form["prompt"], **NAMES),
        "predictions": paths.PREDICTIONS.format(**names),
        "thumbnails": paths.THUMBNAILS,
        "page": paths.GALLERY.format(**names),
    }
    gallery.main([word for name, value in given.items() for word in (f"--{name}", value)])
