"""Recorded answers: five file formats, joined by id, with no gap that is not admitted."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from pycocotools import mask as coco_mask

from reftables.errors import ConfigError, DataError
from reftables.models import recorded
from reftables.models.job import Job
from reftables.rows import AnswerFormat, Coordinates, Notation, Order, Prediction, Request, Status, Task

TEXT_FORM = AnswerFormat(
    notation=Notation.JSON, coordinates=Coordinates.PIXELS, order=Order.XY, prompt="plain", grid=None
)
MASK_FORM = AnswerFormat(notation=Notation.RLE, coordinates=None, order=None, prompt="plain", grid=None)
SIZE_WH = (8, 6)


def job_of(answer_format: str, path: str | Path, n: int, *, partial: bool = False) -> Job:
    """A job over n samples whose own ids are 100, 101, ..."""
    masks = answer_format in recorded.MASK_FORMATS
    width, height = SIZE_WH
    return Job(
        model="theirs",
        benchmark="mine",
        split="val",
        task=Task.MASKS if masks else Task.BOXES,
        form=MASK_FORM if masks else TEXT_FORM,
        identity={"backend": "recorded", "format": answer_format, "predictions": str(path)},
        execution={},
        truth=[
            {"id": i, "source_id": 100 + i, "image": f"{i}.jpg", "width": width, "height": height} for i in range(n)
        ],
        partial=partial,
    )


def predict(job: Job, limit: int | None = None) -> list[Prediction]:
    ids = range(len(job.truth or ()))[:limit]
    return list(recorded.predict([Request(i, f"{i}.jpg", "") for i in ids], job))


@pytest.fixture
def answers(tmp_path: Path) -> Callable[..., Job]:
    """Write an answer file of a format, a line each, and make the job that reads it."""

    def write(answer_format: str, lines: Sequence[str | dict[str, Any]], *, n: int, partial: bool = False) -> Job:
        path = tmp_path / "answers.txt"
        texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
        path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8", newline="")
        return job_of(answer_format, path, n, partial=partial)

    return write


# The path


def test_the_template_replaces_its_three_names_and_no_other_braces():
    identity = {"format": "jsonl", "predictions": "{model}/{benchmark}.{split}.{shard}.jsonl"}
    assert recorded.answer_files(identity, model="m.1", benchmark="refcoco+", split="val") == [
        "m.1/refcoco+.val.{shard}.jsonl"
    ]


def test_an_unknown_format_names_the_key_and_the_formats():
    identity = {"format": "csv", "predictions": "x"}
    with pytest.raises(
        ConfigError, match=r"models\.m\.identity\.format is 'csv'; it can be fairseq, jsonl, roborefer, rle, png"
    ):
        recorded.answer_files(identity, model="m", benchmark="b", split="s")


@pytest.mark.parametrize(
    ("answer_format", "form", "fitting"),
    [("rle", TEXT_FORM, "fairseq, jsonl, roborefer"), ("jsonl", MASK_FORM, "rle, png")],
)
def test_a_format_that_cannot_hold_the_notation_is_a_config_error(answer_format, form, fitting):
    job = replace(job_of(answer_format, "none", 1), form=form)
    with pytest.raises(ConfigError, match=rf"models\.theirs\.identity\.format is {answer_format}, .* format {fitting}"):
        predict(job)


def test_texts_may_answer_masks_with_boxes(answers):
    job = replace(answers("jsonl", [{"id": 0, "text": "[1, 2, 3, 4]"}], n=1), task=Task.MASKS)
    assert predict(job)[0].text == "[1, 2, 3, 4]"


def test_an_absent_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"none\.jsonl: no such file"):
        predict(job_of("jsonl", tmp_path / "none.jsonl", 1))


# fairseq


@pytest.mark.parametrize(
    ("line", "text"),
    [
        pytest.param("H-0\t-0.5\t<image></image>x", "<image></image>x", id="score and text"),
        pytest.param("H-0\t<image></image>x", "<image></image>x", id="no score"),
        pytest.param("H-0\t-0.5\ta\tb\t", "a\tb\t", id="the text keeps its tabs"),
        pytest.param("H-0\ta\tb", "a\tb", id="tabs without a score"),
        pytest.param("H-0\t-1e-05\tx", "x", id="score in exponents"),
        pytest.param("H-0\t-inf\tx", "x", id="score without bound"),
        pytest.param("INFO | H-0\t-0.5\tx", "x", id="logger's prefix"),
        pytest.param("H-shard-0\t-0.5\tx", "x", id="the last number is the id"),
        pytest.param("H-0\t-0.5\tx\u2028y\x0cz", "x\u2028y\x0cz", id="other line separators"),
    ],
)
def test_a_hypothesis_line_gives_all_that_follows_the_score(answers, line, text):
    assert predict(answers("fairseq", [line], n=1)) == [Prediction(id=0, status=Status.OK, text=text)]


def test_other_lines_of_a_log_are_skipped(answers):
    log = [
        "Namespace(H-5)",
        "S-1\tx",
        "W-1\t0.1",
        "HT-1\t-1\t[3]",
        "H-0\t-1\tyes",
        "D-1\t-1\tno",
        "P-1\t-0.1",
        "",
        "H-a\t-1\tx",
    ]
    assert [p.text for p in predict(answers("fairseq", log, n=1))] == ["yes"]


@pytest.mark.parametrize("line", ["H-0\t-0.5\t", "H-0\t-0.5", "H-0", "H-0\t-0.5\t \t"])
def test_a_hypothesis_without_text_is_empty(answers, line):
    assert predict(answers("fairseq", [line], n=1))[0].status is Status.EMPTY


# jsonl


def test_a_line_goes_through_with_all_its_details(answers):
    line = {"id": 0, "text": "x", "image_size": [4, 3], "status": "truncated", "finish_reason": "length"}
    assert predict(answers("jsonl", [line | {"tokens_in": 7, "tokens_out": 2, "note": 1}], n=1)) == [
        Prediction(
            id=0,
            status=Status.TRUNCATED,
            text="x",
            image_size=(4, 3),
            finish_reason="length",
            tokens_in=7,
            tokens_out=2,
        )
    ]


@pytest.mark.parametrize(
    ("line", "status"),
    [
        pytest.param({"text": "x"}, Status.OK, id="text"),
        pytest.param({"text": None}, Status.EMPTY, id="null"),
        pytest.param({"text": " \n"}, Status.EMPTY, id="blank"),
        pytest.param({"text": "", "status": "ok"}, Status.EMPTY, id="blank but called ok"),
        pytest.param({"text": "x", "finish_reason": "stop"}, Status.OK, id="stopped"),
        pytest.param({"text": "x", "finish_reason": "length"}, Status.TRUNCATED, id="cut"),
        pytest.param({"text": None, "finish_reason": "content_filter"}, Status.REFUSED, id="filtered"),
        pytest.param({"status": "refused"}, Status.REFUSED, id="refused, no text"),
        pytest.param({"text": "x", "status": "ok", "finish_reason": "length"}, Status.OK, id="a status goes first"),
    ],
)
def test_the_status_of_a_line(answers, line, status):
    assert predict(answers("jsonl", [{"id": 0, **line}], n=1))[0].status is status


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param('{"id": 0', "is not JSON", id="cut"),
        pytest.param({"id": 0}, "has no `text`", id="no text"),
        pytest.param({"text": "x"}, "`id` is None, not the sample's line number", id="no id"),
        pytest.param({"id": "0", "text": "x"}, "`id` is '0', not the sample's", id="id a text"),
        pytest.param({"id": True, "text": "x"}, "`id` is True, not the sample's", id="id a boolean"),
        pytest.param({"id": 0.0, "text": "x"}, r"`id` is 0\.0, not the sample's", id="id a float"),
        pytest.param({"id": 0, "text": ["x"]}, r"`text` is \['x'\], not null or of the type str", id="text a list"),
        pytest.param(
            {"id": 0, "text": "x", "status": "unparsed"}, "`status` is 'unparsed'; it can be ok, tr", id="status"
        ),
        pytest.param({"id": 0, "text": "x", "image_size": [4]}, r"`image_size` is \[4\], not \[width, he", id="size"),
        pytest.param({"id": 0, "text": "x", "image_size": [4, 0]}, r"`image_size` is \[4, 0\], not", id="no height"),
    ],
)
def test_a_bad_line_is_refused_by_its_number(answers, line, message):
    with pytest.raises(DataError, match=rf"answers\.txt: line 2:? {message}"):
        predict(answers("jsonl", [{"id": 1, "text": "x"}, line], n=2))


# roborefer


def test_question_ids_are_those_of_the_benchmarks_own_file(answers):
    lines = [{"question_id": 101, "text": "b", "step": 1}, {"question_id": 100, "text": None}]
    assert predict(answers("roborefer", lines, n=2)) == [
        Prediction(id=0, status=Status.EMPTY),
        Prediction(id=1, status=Status.OK, text="b"),
    ]


def test_an_unknown_question_is_refused_by_its_own_id(answers):
    with pytest.raises(DataError, match="unknown ids 0; mine val has 1 samples"):
        predict(answers("roborefer", [{"question_id": 0, "text": "a"}], n=1))


def test_an_answer_file_without_question_ids_is_refused(answers):
    with pytest.raises(DataError, match="line 1 has no `question_id`"):
        predict(answers("roborefer", [{"id": 0, "text": "a"}], n=1))


def test_questions_whose_ids_repeat_cannot_be_told_apart(answers):
    job = answers("roborefer", [], n=2)
    for row in job.truth or ():
        row["source_id"] = 5
    with pytest.raises(ConfigError, match=r"those of mine val repeat\. Use jsonl"):
        predict(job)


# Ids, in every format


def line_of(answer_format: str, sample: int, text: str = "x") -> str | dict[str, Any]:
    match answer_format:
        case "fairseq":
            return f"H-{sample}\t-0.1\t{text}"
        case "roborefer":
            return {"question_id": 100 + sample, "text": text}
        case "rle":
            return {"id": sample, "rle": {"size": [6, 8], "counts": text}}
        case _:
            return {"id": sample, "text": text}


FORMATS = ["fairseq", "jsonl", "roborefer", "rle"]
each_format = pytest.mark.parametrize("answer_format", FORMATS)


@each_format
def test_answers_out_of_order_come_back_by_id(answers, answer_format):
    job = answers(answer_format, [line_of(answer_format, i, f"t{i}") for i in (2, 0, 1)], n=3)
    found = predict(job)
    assert [p.id for p in found] == [0, 1, 2]
    assert [p.text or p.rle["counts"] for p in found] == ["t0", "t1", "t2"]


@each_format
def test_a_copy_is_dropped_with_a_warning(answers, answer_format, capsys):
    predictions = predict(answers(answer_format, [line_of(answer_format, i) for i in (0, 1, 0)], n=2))
    assert len(predictions) == 2
    ids = "100" if answer_format == "roborefer" else "0"
    assert f"answers.txt: dropped exact copies of the answers to the ids {ids}\n" in capsys.readouterr().err


@each_format
def test_two_different_answers_to_one_id_are_refused(answers, answer_format):
    lines = [line_of(answer_format, 0, "a"), line_of(answer_format, 0, "b")]
    with pytest.raises(DataError, match=r"answers\.txt: more than one answer to the ids (0|100)\. Keep one of each"):
        predict(answers(answer_format, lines, n=1))


@each_format
def test_an_unknown_id_is_refused(answers, answer_format):
    lines = [line_of(answer_format, i) for i in (0, 1, 7)]
    with pytest.raises(DataError, match=r"answers\.txt: unknown ids (7|107); mine val has 2 samples\."):
        predict(answers(answer_format, lines, n=2))


@each_format
def test_missing_ids_are_refused_with_the_way_out(answers, answer_format):
    with pytest.raises(
        DataError,
        match=r"answers\.txt: 1 of 3 samples answered, missing ids (0, 2|100, 102)\. Complete the file, or set "
        r"models\.theirs\.partial: allow",
    ):
        predict(answers(answer_format, [line_of(answer_format, 1)], n=3))


@each_format
def test_missing_ids_are_missing_samples_where_partial_is_allowed(answers, answer_format):
    found = predict(answers(answer_format, [line_of(answer_format, 1)], n=3, partial=True))
    assert [p.status for p in found] == [Status.MISSING, Status.OK, Status.MISSING]


@pytest.mark.parametrize("answer_format", ["jsonl", "rle"])
def test_a_gap_that_the_file_admits_is_a_gap(answers, answer_format):
    with pytest.raises(DataError, match="0 of 1 samples answered, missing ids 0"):
        predict(answers(answer_format, [{"id": 0, "status": "missing"}], n=1))


@each_format
def test_under_a_limit_later_answers_are_known_but_not_asked_for(answers, answer_format):
    job = answers(answer_format, [line_of(answer_format, i) for i in (3, 0, 1)], n=4)
    assert [p.id for p in predict(job, limit=2)] == [0, 1]


@settings(max_examples=60, deadline=None)
@given(answer_format=st.sampled_from(FORMATS), texts=st.lists(st.text("ab é"), min_size=1, max_size=8), data=st.data())
def test_no_id_is_lost_whatever_the_order_and_the_copies(tmp_path_factory, answer_format, texts, data):
    n = len(texts)
    samples = data.draw(st.permutations([*range(n), *data.draw(st.lists(st.integers(0, n - 1), max_size=5))]))
    path = tmp_path_factory.getbasetemp() / "shuffled.txt"
    lines = (line_of(answer_format, i, texts[i]) for i in samples)
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines), "utf-8")
    found = predict(job_of(answer_format, path, n))
    assert [p.id for p in found] == list(range(n))
    assert [p.rle["counts"] if p.rle else p.text for p in found] == texts


# Masks


def test_an_rle_line_goes_through_unjudged(answers):
    line = {"id": 0, "rle": {"size": [1, 1], "counts": [5]}, "no_target": False}
    assert predict(answers("rle", [line], n=1)) == [
        Prediction(id=0, status=Status.OK, rle={"size": [1, 1], "counts": [5]}, no_target=False)
    ]


@pytest.mark.parametrize(
    ("line", "status"),
    [
        pytest.param({"no_target": True}, Status.OK, id="no target, no mask"),
        pytest.param({"rle": None}, Status.EMPTY, id="null"),
        pytest.param({"no_target": False}, Status.EMPTY, id="a target, but no mask"),
        pytest.param({"status": "error"}, Status.ERROR, id="failed"),
    ],
)
def test_the_status_of_a_mask_line(answers, line, status):
    assert predict(answers("rle", [{"id": 0, **line}], n=1))[0].status is status


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param({"id": 0}, "line 1 has no `rle`", id="nothing"),
        pytest.param({"id": 0, "rle": "a"}, "`rle` is 'a', not null or of the type dict", id="a text"),
        pytest.param({"id": 0, "no_target": 1}, "`no_target` is 1, not null or of the type bool", id="a number"),
    ],
)
def test_a_bad_mask_line_is_refused(answers, line, message):
    with pytest.raises(DataError, match=message):
        predict(answers("rle", [line], n=1))


INSIDE = np.zeros((6, 8), dtype=bool)
INSIDE[1:4, 2:7] = True


def grey(outside: int, inside: int) -> Image.Image:
    return Image.fromarray(np.where(INSIDE, inside, outside).astype(np.uint8))


def edged() -> Image.Image:
    """Grey, with soft edges: 255 and 128 are inside, 127 and 1 outside."""
    pixels = np.where(INSIDE, 255, 0).astype(np.uint8)
    pixels[1, 2:7] = 128
    pixels[0, 2:7] = 127
    pixels[5] = 1
    return Image.fromarray(pixels)


def palette(colour: tuple[int, int, int], index: int = 3) -> Image.Image:
    image = grey(0, index).convert("P")
    image.putdata(np.where(INSIDE, index, 0).ravel().tolist())
    image.putpalette([0, 0, 0] * index + list(colour))
    return image


def coloured(mode: str, colour: tuple[int, ...]) -> Image.Image:
    image = Image.new(mode, SIZE_WH, (0,) * 3 + (255,) * (len(mode) - 3))
    image.paste(colour, mask=grey(0, 255))
    return image


def write_png(folder: Path, name: str, image: Image.Image) -> Path:
    folder.mkdir(exist_ok=True)
    image.save(folder / name)
    return folder


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools under numpy 2
@pytest.mark.parametrize(
    "image",
    [
        pytest.param(grey(0, 255), id="L, 0 and 255"),
        pytest.param(grey(0, 1), id="L, 0 and 1"),
        pytest.param(edged(), id="L, soft edges"),
        pytest.param(grey(0, 255).convert("1"), id="bilevel"),
        pytest.param(palette((255, 255, 255)), id="palette, white"),
        pytest.param(palette((128, 0, 0)), id="palette, dark red"),
        pytest.param(coloured("RGB", (0, 0, 1)), id="RGB, the faintest blue"),
        pytest.param(coloured("RGBA", (255, 255, 255, 0)), id="RGBA, alpha ignored"),
    ],
)
def test_a_png_of_any_mode_gives_the_same_mask(tmp_path, image):
    folder = write_png(tmp_path / "masks", "0.png", image)
    [prediction] = predict(job_of("png", folder, 1))
    assert np.array_equal(coco_mask.decode(prediction.rle), INSIDE)


def test_an_rle_of_a_png_can_be_written_as_json(tmp_path):
    folder = write_png(tmp_path / "masks", "0.png", grey(0, 255))
    [prediction] = predict(job_of("png", folder, 1))
    assert json.loads(json.dumps(prediction.rle)) == prediction.rle
    assert prediction.rle["size"] == [6, 8]


def test_an_empty_png_is_an_answer(tmp_path):
    folder = write_png(tmp_path / "masks", "0.png", grey(0, 0))
    [prediction] = predict(job_of("png", folder, 1))
    assert prediction.status is Status.OK
    assert coco_mask.area(prediction.rle) == 0


def test_the_stem_is_the_id_and_other_files_are_left_alone(tmp_path):
    folder = write_png(tmp_path / "masks", "0001.png", grey(0, 255))
    write_png(folder, "0.PNG", grey(0, 0))
    (folder / "notes.txt").write_text("x", encoding="utf-8")
    assert [coco_mask.area(p.rle) for p in predict(job_of("png", folder, 2))] == [0, 15]


@pytest.mark.parametrize(
    ("name", "image", "message"),
    [
        pytest.param("dog.png", grey(0, 1), r"dog\.png: a mask is named after its sample", id="name"),
        pytest.param("5.png", grey(0, 1), "masks: unknown ids 5", id="unknown id"),
        pytest.param(
            "0.png", grey(0, 1).resize((4, 3)), "masks: the mask of id 0 is 4x3 pixels, its image 0.jpg 8x6", id="size"
        ),
        pytest.param("0.png", grey(0, 1).convert("I;16"), r"0\.png: .*RGB or RGBA, not I;16", id="16 bit"),
    ],
)
def test_a_bad_png_is_refused_by_name_or_id(tmp_path, name, image, message):
    folder = write_png(tmp_path / "masks", name, image)
    with pytest.raises(DataError, match=message):
        predict(job_of("png", folder, 1))


def test_a_damaged_png_is_refused_by_name(tmp_path):
    folder = write_png(tmp_path / "masks", "0.png", grey(0, 255))
    content = (folder / "0.png").read_bytes()
    (folder / "0.png").write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"0\.png: not a readable image"):
        predict(job_of("png", folder, 1))


def test_an_absent_folder_is_named(tmp_path):
    with pytest.raises(DataError, match=r"none: no such folder"):
        predict(job_of("png", tmp_path / "none", 1))


def test_missing_pngs_are_refused(tmp_path):
    folder = write_png(tmp_path / "masks", "1.png", grey(0, 255))
    with pytest.raises(DataError, match="masks: 1 of 2 samples answered, missing ids 0"):
        predict(job_of("png", folder, 2))
