"""The SURDS source: its questions, what it refuses, its templates."""

import copy
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reftables.benchmarks import surds
from reftables.benchmarks.surds_questions import CARDINALS, DIAGONALS, KINDS, OPPOSITE, build_questions
from reftables.errors import ConfigError, DataError
from reftables.rows import Task

TEMPLATES = {
    "yaw": "With the camera to the {}, where does {} point: {}, {}, {} or {}?\n",
    "xy2d": "At which pixel is {}?\n",
    "depth": "How deep in the scene is {}: {}, {} or {}?\n",
    "distance": "Of {} and {}, which is {}: {}, {} or neither?\n",
    "left_right": "Farther to the {}: {} or {}? {}, {} or neither?\n",
    "front_behind": "Is {} {} {}?\n",
}


def record(name: str, *descs: str, **values: Any) -> dict[str, Any]:
    """A metadata row whose objects lie 10 m and 400 px apart, unless `values` say otherwise."""
    count = len(descs)
    row = {
        "file_name": f"image/CAM_FRONT/{name}.webp",
        "descs": list(descs),
        "distances": [10.5 + 10 * i for i in range(count)],
        "xy2Ds": [[200 + 400 * i, 450] for i in range(count)],
        "depths": [10.0 + 10 * i for i in range(count)],
        "bboxes2D": [[150 + 400 * i, 400, 250 + 400 * i, 500] for i in range(count)],
        "yaw_descs": ["West"] * count,
    }
    return row | values


def scene(*rows: dict[str, Any], singles: int = 6) -> list[dict[str, Any]]:
    """`rows` and enough photographs of a single object."""
    return [*rows, *(record(f"single{i}", f"car {i}") for i in range(singles))]


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    for kind, text in TEMPLATES.items():
        path = tmp_path / "templates" / surds.TEMPLATE_FILES[kind]
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.replace("\n", "\r\n").encode())
    write(tmp_path / "metadata.jsonl", scene(record("pair", "white car", "black SUV")))
    return {
        "metadata": str(tmp_path / "metadata.jsonl"),
        "images": "resources/surds/",
        "templates": str(tmp_path / "templates"),
    }


def write(path: str | Path, rows: list[dict[str, Any]]) -> None:
    Path(path).write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


def truth(settings: dict[str, str], split: str) -> surds.Truth:
    return surds.read_truth(settings, benchmark="surds", split=split, task=Task.ANSWERS)


def answers(rows: list[dict[str, Any]], kind: str) -> list[str]:
    return [question.answer for question in build_questions(rows)[kind]]


# Questions


def test_a_row_of_a_pair_has_both_objects_and_its_variant(settings):
    rows = truth(settings, "distance").rows
    assert rows[1] == {
        "id": 1,
        "source_id": "image/CAM_FRONT/pair.webp#0-1",
        "image": "image/CAM_FRONT/pair.webp",
        "width": 1600,
        "height": 900,
        "expression": "white car and black SUV",
        "question": "distance",
        "unit": 0,
        "variant": "farther",
        "arguments": ["the white car", "the black SUV", "farther", "The white car", "The black suv"],
        "options": ["The white car", "The black suv", "Almost the same"],
        "answer": "The black suv",
        "bbox": None,
    }


def test_a_row_of_xy2d_has_a_box_and_no_options(settings):
    (row,) = truth(settings, "xy2d").rows
    assert (row["variant"], row["options"], row["bbox"]) == (None, None, [150, 400, 250, 500])
    assert row["answer"] == "[200, 450]"
    assert row["arguments"] == [f"the {row['expression']}"]


def test_rows_are_what_their_json_says(settings):
    for split in KINDS:
        rows = truth(settings, split).rows
        assert json.loads(json.dumps(rows)) == rows


@pytest.mark.parametrize(
    ("kind", "variants"),
    [
        ("yaw", ["North", "South"]),
        ("xy2d", [None]),
        ("depth", [None]),
        ("distance", ["closer", "farther"]),
        ("left_right", ["left", "right"]),
        ("front_behind", ["in front of", "behind"]),
    ],
)
def test_every_pair_of_objects_makes_one_unit_of_each_kind(kind, variants):
    questions = build_questions(scene(record("a", "x", "y"), record("b", "u", "v", "w")))[kind]
    assert [(q.unit.number, q.variant) for q in questions] == [(unit, v) for unit in range(4) for v in variants]


def test_pairs_come_in_file_order_first_object_first():
    questions = build_questions(scene(record("a", "x", "y"), record("b", "u", "v", "w")))["front_behind"][::2]
    assert [q.unit.expression for q in questions] == ["x and y", "u and v", "u and w", "v and w"]


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("distance", {"distances": [5, 7]}, ["The x", "The y"]),
        ("distance", {"distances": [7, 5]}, ["The y", "The x"]),
        ("distance", {"distances": [5, 6]}, ["Almost the same"] * 2),
        ("distance", {"distances": [6.01, 5]}, ["The y", "The x"]),
        ("left_right", {"xy2Ds": [[100, 5], [200, 5]]}, ["The x", "The y"]),
        ("left_right", {"xy2Ds": [[200, 5], [100, 5]]}, ["The y", "The x"]),
        ("left_right", {"xy2Ds": [[100, 5], [199, 5]]}, ["Almost the same"] * 2),
        ("front_behind", {"depths": [9, 8.5]}, ["Yes", "No"]),
        ("front_behind", {"depths": [8.5, 9]}, ["No", "Yes"]),
        ("front_behind", {"depths": [9, 8.51]}, ["Almost the same in terms of front-back position"] * 2),
    ],
)
def test_answer_of_a_pair(kind, values, expected):
    assert answers(scene(record("a", "x", "y", **values)), kind) == expected


def test_the_camera_turned_round_turns_the_yaw_round():
    rows = scene(record("a", "x", "y"), record("single", "bus", yaw_descs=["Southeast"]), singles=0)
    north, south = build_questions(rows)["yaw"]
    assert (north.variant, north.answer, south.variant, south.answer) == ("North", "Southeast", "South", "Northwest")


def test_yaw_options_are_the_four_directions_of_the_label():
    for yaw in OPPOSITE:
        rows = scene(record("a", "x", "y"), record("single", "bus", yaw_descs=[yaw]), singles=0)
        options = build_questions(rows)["yaw"][0].options
        assert sorted(options) == sorted(DIAGONALS if yaw in DIAGONALS else CARDINALS)


def test_the_draws_do_not_depend_on_the_yaw_labels():
    rows = scene(record("a", "x", "y"), record("b", "u", "v", "w"))
    diagonal = [row | {"yaw_descs": ["Northeast"] * len(row["descs"])} for row in rows]
    assert build_questions(rows)["depth"] == build_questions(diagonal)["depth"]


@given(depth=st.floats(0.5, 200))
@example(depth=6.99)
@example(depth=7)
@example(depth=15)
@example(depth=15.01)
def test_depth_ranges_are_disjoint_positive_and_built_outward_from_the_right_one(depth):
    rows = scene(record("a", "x", "y"), record("single", "bus", depths=[depth]), singles=0)
    (question,) = build_questions(rows)["depth"]
    ranges = {text: tuple(map(int, re.findall(r"-?\d+", text))) for text in question.options}
    right = ranges[question.answer]
    assert right[0] - 0.5 <= depth <= right[1] + 0.5
    ends = [end for ends in sorted(ranges.values()) for end in ends]
    assert ends[0] >= 1
    assert ends == sorted(ends)
    assert sorted(ranges.values()).index(right) == (0 if depth < 7 else 2 if depth > 15 else 1)


def test_one_meter_is_singular():
    rows = scene(record("a", "x", "y"), record("single", "bus", depths=[2]), singles=0)
    (question,) = build_questions(rows)["depth"]
    assert question.answer == "Between 1 meter and 5 meters"


def test_drawn_photographs_keep_the_order_of_the_file():
    rows = scene(record("a", "u", "v", "w"), singles=20)
    drawn = [int(q.unit.expression.removeprefix("car ")) for q in build_questions(rows)["xy2d"]]
    assert len(set(drawn)) == 3
    assert drawn == sorted(drawn)


@st.composite
def metadata(draw: st.DrawFn) -> list[dict[str, Any]]:
    pairs = draw(st.lists(st.integers(2, 4), min_size=1, max_size=3))
    rows = [record(f"pair{i}", *"abcd"[:count]) for i, count in enumerate(pairs)]
    rows += [
        record(f"single{i}", draw(st.text(min_size=1, max_size=3)), depths=[draw(st.floats(0.5, 90))])
        for i in range(sum(count * (count - 1) // 2 for count in pairs) + draw(st.integers(0, 3)))
    ]
    return draw(st.permutations(rows))


@given(rows=metadata(), seed=st.integers())
def test_questions_are_a_pure_function_of_the_metadata(rows, seed):
    kept = copy.deepcopy(rows)
    random.seed(seed)
    state = random.getstate()
    first = build_questions(rows)
    assert random.getstate() == state
    random.seed(seed + 1)
    assert build_questions(kept) == first
    assert rows == kept


def test_the_true_size_gives_9250_questions_in_5550_units():
    rows = [record(f"pair{i}", "x", "y") for i in range(925)] + scene(singles=4_994)
    questions = build_questions(rows)
    assert sum(map(len, questions.values())) == 9_250
    assert {kind: len({q.unit for q in asked}) for kind, asked in questions.items()} == dict.fromkeys(KINDS, 925)


# Damaged metadata


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"descs": ["a", "b"]}, "lists of unequal length: descs 2, distances 1, xy2Ds 1, depths 1, bboxes2D 1"),
        ({"yaw_descs": ["Up"]}, "yaw_descs ['Up'] must be one of North, East, South, West, Northeast"),
        ({"yaw_descs": [["North"]]}, "must be one of"),
        ({"descs": [" "]}, "descs [' '] must be texts that are not empty"),
        ({"descs": [7]}, "descs [7] must be texts that are not empty"),
        ({"descs": "car"}, "descs must be lists, one entry an object"),
        ({key: [] for key in surds._LISTS}, "no object at all"),
        ({"file_name": ""}, "file_name is '', not a path"),
        ({"file_name": "../a.webp"}, "file_name is '../a.webp', which leads out of the folder"),
        ({"descs": [["d" * 5_000]]}, f"descs [['{'d' * 54}... must be texts"),
        ({"depths": [None]}, "depths [None] must be finite numbers"),
        ({"depths": [True]}, "depths [True] must be finite numbers"),
        ({"distances": [10**400]}, "must be finite numbers"),
        ({"xy2Ds": [[5]]}, "xy2Ds [[5]] must be lists of 2 finite numbers"),
        ({"bboxes2D": [[1, 2, 3, "4"]]}, "must be lists of 4 finite numbers"),
        ({"bboxes2D": [5]}, "bboxes2D [5] must be lists of 4 finite numbers"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_a_damaged_line_is_named(settings, damage, message):
    write(settings["metadata"], [*scene(record("a", "x", "y")), record("bad", "bus") | damage])
    with pytest.raises(DataError) as error:
        truth(settings, "yaw")
    assert str(error.value).startswith(f"{settings['metadata']}: line 8: ")
    assert message in str(error.value)
    assert str(error.value).endswith(". Mend the line or get the file anew.")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"file_name": "a.webp", "des', "line 8 is not JSON: "),
        ('{"depths": [NaN]}', "line 8 is not JSON: NaN is not a number"),
        ('{"file_name": "a.webp", "descs": [], "xy2Ds": []}', "line 8: no distances, depths, bboxes2D, yaw_descs."),
        ("[]", "line 8 is not a JSON object"),
        (json.dumps(record("a", "bus")).replace("10.0", "1e999"), "line 8: depths [inf] must be finite numbers"),
    ],
    ids=["truncated", "nan", "keys missing", "a list", "infinite"],
)
def test_a_broken_line_is_named(settings, line, message):
    with Path(settings["metadata"]).open("a") as file:
        file.write(line)
    with pytest.raises(DataError, match=re.escape(message)) as error:
        truth(settings, "yaw")
    assert str(error.value).endswith("Mend the line or get the file anew.")


def test_an_odd_yaw_word_of_a_pair_is_never_asked(settings):
    write(settings["metadata"], scene(record("a", "x", "y", yaw_descs=["", "?"])))
    assert len(truth(settings, "yaw").rows) == 2


def test_too_few_photographs_of_a_single_object_are_an_error(settings):
    write(settings["metadata"], scene(record("a", "x", "y", "z"), singles=2))
    message = "2 photographs of a single object, but 3 are drawn, one for each pair of objects. Get the file anew."
    with pytest.raises(DataError, match=re.escape(message)):
        truth(settings, "depth")


def test_metadata_without_pairs_is_an_error(settings):
    write(settings["metadata"], scene())
    with pytest.raises(DataError, match="no photograph of two or more objects"):
        truth(settings, "distance")


# Options that can never match


@pytest.mark.parametrize(
    ("desc", "listed"),
    [("car (left)", True), ("car -", True), ("car", False), ("white car_", False), ("car no. 5", False)],
)
def test_units_whose_option_no_answer_can_match_are_listed(settings, desc, listed):
    write(settings["metadata"], scene(record("a", "x", "y"), record("b", "red bus", desc)))
    note = "Units with an option that no answer can match officially: 1 (image/CAM_FRONT/b.webp#0-1)."
    assert truth(settings, "distance").notes == ([note] if listed else [])
    assert truth(settings, "front_behind").notes == []


def test_an_option_that_holds_another_one_passes_the_gate(settings):
    write(settings["metadata"], scene(record("a", "car", "car (left)")))
    assert truth(settings, "left_right").notes == []


# Requests


@pytest.mark.parametrize(
    ("split", "text"),
    [
        ("distance", "Of the white car and the black SUV, which is closer: The white car, The black suv or neither?\n"),
        (
            "left_right",
            "Farther to the left: the white car or the black SUV? The white car, The black suv or neither?\n",
        ),
        ("front_behind", "Is the white car in front of the black SUV?\n"),
    ],
)
def test_the_template_is_filled_with_line_feeds_only(settings, split, text):
    rows = truth(settings, split).rows
    assert surds.request_texts(rows, settings, split=split, prompt="surds")[0] == text


@pytest.mark.parametrize("split", KINDS)
def test_every_row_fills_its_template(settings, split):
    rows = truth(settings, split).rows
    texts = surds.request_texts(rows, settings, split=split, prompt="surds")
    assert texts == [TEMPLATES[split].format(*row["arguments"]) for row in rows]


def test_braces_in_a_description_stay(settings):
    write(settings["metadata"], scene(record("a", "car {0}", "{y}")))
    rows = truth(settings, "front_behind").rows
    texts = surds.request_texts(rows, settings, split="front_behind", prompt="surds")
    assert texts[1] == "Is the car {0} behind the {y}?\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{} and {}", "2 slots, the template of xy2d has 1, each written {}: object. Mend the template"),
        ("none", "0 slots"),
        ("{0}", "each written {}"),
        ("{:>{}}", "each written {}"),
        ("{!r}", "each written {}"),
        ("{", "not a template: "),
        ("a } b", "not a template: "),
    ],
)
def test_a_template_with_other_slots_is_an_error(settings, text, message):
    path = Path(settings["templates"]) / "01_xy2d_vqa.txt"
    path.write_text(text)
    with pytest.raises(DataError) as error:
        surds.request_texts([], settings, split="xy2d", prompt="surds")
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)


def test_a_missing_template_is_an_error(settings):
    settings["templates"] += "/elsewhere"
    with pytest.raises(DataError, match=r"elsewhere/00_yaw_vqa\.txt: no such file"):
        surds.request_texts([], settings, split="yaw", prompt="surds")


# What the workflow asks


def test_the_files_of_a_split(settings):
    assert surds.truth_files(settings, "depth") == [settings["metadata"]]
    assert surds.request_files(settings, "depth", "surds") == [f"{settings['templates']}/02_depth_vqa.txt"]
    assert surds.image_root(settings, "depth") == "resources/surds"


@pytest.mark.parametrize(
    "function", [surds.truth_files, lambda s, split: surds.request_files(s, split, "surds"), truth]
)
def test_another_split_is_a_config_error(settings, function):
    message = "splits.val: source surds has no such split; its splits: yaw, xy2d, depth, distance, left_right, front"
    with pytest.raises(ConfigError, match=re.escape(message)):
        function(settings, "val")
