"""Truth, request and prediction files: strict in, atomic out."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reftables.errors import DataError, preview, shown
from reftables.files import (
    canonical_json,
    check_ids,
    format_request,
    parse_request,
    read_bytes,
    read_jsonl,
    read_lines,
    read_predictions,
    read_requests,
    read_truth,
    write_atomically,
    write_jsonl,
    write_predictions,
)
from reftables.rows import Prediction, Status, limited


def test_failed_write_leaves_the_old_file_and_no_temporary_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "file.txt"
    target.write_text("old")

    def full_disk(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        write_atomically(target, "new")
    assert [path.name for path in tmp_path.iterdir()] == ["file.txt"]
    assert target.read_text() == "old"


def test_written_file_gets_the_mode_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_atomically(tmp_path / "file.txt", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "file.txt").stat().st_mode & 0o777 == 0o644


def test_lines_end_at_line_feeds_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes("a\u2028b\rc\x85d\ne\n".encode())
    assert read_lines(tmp_path / "file") == ["a\u2028b\rc\x85d", "e"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"id": 0}\n{"id": ', "line 2 is not JSON"),
        (b"[1]\n", "line 1 is not a JSON object"),
        (b'{"value": NaN}\n', "NaN is not a number"),
        (b'{"text": "\xff"}\n', "not UTF-8 at byte 10"),
        (b'{"text": "\\ud83d\\ude00"}\n{"text": "\\ud800"}\n', "line 2 holds half of a surrogate pair"),
        (b'\xef\xbb\xbf{"id": 0}\n', "begins with a byte order mark. Save it as UTF-8 without one"),
    ],
    ids=["cut", "no object", "not a number", "not UTF-8", "half a pair", "byte order mark"],
)
def test_bad_json_lines_name_file_and_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        list(read_jsonl(path))
    assert str(path) in str(caught.value)


def test_truth_whose_ids_are_not_line_numbers_is_refused(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "truth.jsonl", [{"id": 0}, {"id": 2}])
    with pytest.raises(DataError, match=r"ids are not the line numbers \(first at line 2\)"):
        read_truth(tmp_path / "truth.jsonl")


def test_expressions_of_one_object_share_its_mask(tmp_path: Path) -> None:
    mask = {"size": [2, 2], "counts": "04"}
    write_jsonl(tmp_path / "truth.jsonl", [{"id": 0, "mask": mask}, {"id": 1, "mask_of": 0}])
    first, second = read_truth(tmp_path / "truth.jsonl")
    assert second["mask"] is first["mask"]


@given(text=st.text(), prompt=st.sampled_from(["plain", "surds"]))
def test_escaped_requests_come_back_as_they_were(text: str, prompt: str) -> None:
    line = format_request("images/1.jpg", text, prompt=prompt)
    assert "\n" not in line
    assert parse_request(line, 3, prompt=prompt).text == text


def test_kosmos_requests_are_never_unescaped() -> None:
    line = format_request("i.jpg", "a \\n b", prompt="kosmos")
    assert line == "[image]i.jpg<tab>a \\n b"
    assert parse_request(line, 0, prompt="kosmos").text == "a \\n b"


def test_line_that_is_no_request_is_named(tmp_path: Path) -> None:
    (tmp_path / "requests.locout").write_text("[image]a.jpg<tab>x\na.jpg\ty\n")
    with pytest.raises(DataError, match="line 2: a request reads"):
        read_requests(tmp_path / "requests.locout", prompt="plain")


PREDICTIONS = [
    Prediction(id=1, status=Status.OK, text="a", image_size=(640, 480), tokens_in=3, tokens_out=1),
    Prediction(id=0, status=Status.MISSING),
    Prediction(id=2, status=Status.OK, rle={"size": [1, 1], "counts": "01"}, no_target=False, finish_reason="stop"),
]


def test_predictions_come_back_sorted_by_id(tmp_path: Path) -> None:
    write_predictions(tmp_path / "p.jsonl", PREDICTIONS)
    assert read_predictions(tmp_path / "p.jsonl", expected=[0, 1, 2]) == sorted(PREDICTIONS, key=lambda p: p.id)


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        ([0, 1, 2, 3], "3 of 4 samples are there, missing ids 3"),
        ([0, 1], "unknown ids 2"),
    ],
    ids=["half a file", "too many"],
)
def test_prediction_file_with_other_ids_is_refused(tmp_path: Path, expected: list[int], message: str) -> None:
    write_predictions(tmp_path / "p.jsonl", PREDICTIONS)
    with pytest.raises(DataError, match=message):
        read_predictions(tmp_path / "p.jsonl", expected=expected)


def test_repeated_ids_are_named() -> None:
    with pytest.raises(DataError, match="ids 2 stand more than once"):
        check_ids("file", [0, 2, 2], [0, 2])


def test_prediction_with_unknown_status_is_named(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "p.jsonl", [{"id": 0, "status": "fine"}])
    with pytest.raises(DataError, match="line 1 is no prediction: KeyError\\('fine'\\)"):
        read_predictions(tmp_path / "p.jsonl", expected=[0])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ('"id": []', "`id` is [], not an integer"),
        ('"id": true', "`id` is True, not an integer"),
        ('"id": 0, "text": 5', "`text` is 5 and `rle` None, neither a text nor a mask"),
        ('"id": 0, "rle": "x"', "`text` is None and `rle` 'x', neither a text nor a mask"),
    ],
)
def test_prediction_of_other_types_is_named(tmp_path: Path, fields: str, message: str) -> None:
    (tmp_path / "p.jsonl").write_text(f'{{{fields}, "status": "ok"}}\n')
    with pytest.raises(DataError, match=re.escape(message)):
        read_predictions(tmp_path / "p.jsonl", expected=[0])


@pytest.mark.parametrize("place", ["5", "1", "[]", "-1", "true", '"0"'])
def test_a_row_that_shares_no_mask_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "t.jsonl").write_text(f'{{"id": 0, "mask": {{}}}}\n{{"id": 1, "mask_of": {place}}}\n')
    with pytest.raises(DataError, match=r"t\.jsonl: id 1: `mask_of` is .*, no earlier row with a mask"):
        read_truth(tmp_path / "t.jsonl")


@pytest.mark.parametrize("levels", [101, 990, 100_000])
def test_a_line_nested_too_deeply_is_named(tmp_path: Path, levels: int) -> None:
    (tmp_path / "x.jsonl").write_text(f'{{"a": {"[" * levels}"\\ud83d\\ude00"{"]" * levels}}}\n')
    with pytest.raises(DataError, match=r"x\.jsonl: line 1 is not JSON: "):
        list(read_jsonl(tmp_path / "x.jsonl"))


def test_many_brackets_side_by_side_are_no_depth(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(f'{{"a": [{"[1]," * 500}[1]]}}\n')
    assert len(list(read_jsonl(tmp_path / "x.jsonl"))) == 1


def test_a_file_of_more_bytes_than_its_kind_has_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"12345")
    assert read_bytes(tmp_path / "large", most=5) == b"12345"
    with pytest.raises(DataError, match=r"large: 5 bytes, but files of this kind have at most 4"):
        read_bytes(tmp_path / "large", most=4)


def test_a_name_with_a_null_is_no_file() -> None:
    with pytest.raises(DataError, match="no file can have this name"):
        read_bytes("a\0b")


@pytest.mark.parametrize(
    "value", [10**5_000, ["x" * 10**6] * 5, {"a": [[["b"] * 100] * 100] * 100}], ids=["n", "l", "d"]
)
def test_any_value_is_shown_in_brief(value: object) -> None:
    assert len(shown(value)) <= 60


def test_canonical_json_ignores_the_order_of_keys() -> None:
    assert canonical_json({"b": 1, "a": [2]}) == canonical_json({"a": [2], "b": 1}) == '{"a":[2],"b":1}'


def test_preview_says_how_many_more() -> None:
    assert preview(range(8)) == "0, 1, 2, 3, 4 and 3 more"


@pytest.mark.parametrize(("limit", "kept"), [(None, 6), (2, 2), (3, 4), (9, 6)])
def test_limit_never_cuts_a_unit_in_two(limit: int | None, kept: int) -> None:
    rows = [{"id": i, "unit": i // 2} for i in range(6)]
    assert len(limited(rows, limit)) == kept
