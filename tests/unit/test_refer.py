"""refer's pickles: rows, shared masks, splits, and pickles that are damaged or hostile."""

import collections
import contextlib
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reftables.benchmarks import pickles, refer
from reftables.benchmarks.truth import Truth
from reftables.errors import ConfigError, DataError
from reftables.rows import Task
from tests.unit.coco_files import SMALL, SQUARE, SQUARE_COUNTS, annotation, image, instances, ref


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Truth]:
    """Write references (or bare bytes) and instances, and read a split."""

    def write_and_read(
        refs: Any, *annotations: Any, images: Any = None, name: str = "refs(unc).p", **own: str
    ) -> Truth:
        data = refs if isinstance(refs, bytes) else pickle.dumps(refs, protocol=2)
        (tmp_path / name).write_bytes(data)
        root = instances(*(annotations or [annotation(5, SQUARE), annotation(6, SMALL)]), images=images)
        (tmp_path / "instances.json").write_text(json.dumps(root), encoding="utf-8")
        paths = {"refs": str(tmp_path / name), "instances": str(tmp_path / "instances.json"), "images": "/coco/"}
        return refer.read_truth(paths | own, benchmark="mine", split="val", task=Task.MASKS)

    return write_and_read


def test_a_row_says_all_of_its_sample(read):
    [row] = read([ref(5, "the left dog")]).rows
    assert row == {
        "id": 0,
        "source_id": 50,
        "image": "train2014/COCO_train2014_000000000001.jpg",
        "width": 6,
        "height": 4,
        "expression": "the left dog",
        "bbox_xywh": [1, 1, 2, 2],
        "mask": {"size": [4, 6], "counts": SQUARE_COUNTS},
    }


def test_samples_are_the_sentences_of_the_split_in_file_order(read):
    refs = [ref(6, "c", "a"), ref(5, "x", split="train"), ref(5, "b")]
    assert [(row["id"], row["expression"]) for row in read(refs).rows] == [(0, "c"), (1, "a"), (2, "b")]


def test_an_object_has_one_mask_however_many_expressions(read):
    rows = read([ref(5, "a", "b"), ref(6, "c"), ref(5, "d", ref_id=9)]).rows
    assert [row.get("mask_of") for row in rows] == [None, 0, None, 0]
    assert ["mask" in row for row in rows] == [True, False, True, False]
    assert all(row["bbox_xywh"] == [1, 1, 2, 2] for row in rows)


def test_the_text_of_python_2_is_read_as_latin_1(read):
    data = pickle.dumps([ref(5, "caf\xe9")], protocol=0)
    as_bytes = data.replace(b"Vcaf\xe9\n", b"S'caf\\xe9'\n")  # a str of Python 2
    assert as_bytes != data
    assert read(as_bytes).rows[0]["expression"] == "café"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol_is_read(read, protocol):
    assert len(read(pickle.dumps([ref(5, seen={1}, size=(1, 2.5))], protocol=protocol)).rows) == 1


def test_googles_split_is_noted(read):
    note = "Google's split: its number of samples is not confirmed by any publication"
    assert note in read([ref(5)], name="refs(google).p").notes
    assert note in read([ref(5)], name="mine.p", split_by="google").notes
    assert read([ref(5)], name="mine.p").notes == []


def test_a_declared_split_must_be_that_of_the_file(read):
    with pytest.raises(ConfigError, match=r"benchmarks\.mine\.split_by is google, but .*refs\(unc\)\.p"):
        read([ref(5)], split_by="google")
    with pytest.raises(ConfigError, match=r"benchmarks\.mine\.split_by is 'berkeley'; it can be google, umd, unc"):
        read([ref(5)], name="mine.p", split_by="berkeley")


def test_notes_on_masks_are_passed_on(read):
    truth = read([ref(5)], annotation(5, SQUARE, [1, 1]))
    assert truth.notes == ["1 polygon parts of fewer than 3 points were left out: annotations 5"]


def test_a_crowd_alone_is_a_target(read):
    crowd = annotation(5, segmentation={"size": [4, 6], "counts": [5, 2, 2, 2, 13]}, iscrowd=1)
    truth = read([ref(5)], crowd)
    assert truth.rows[0]["mask"]["counts"] == SQUARE_COUNTS
    assert truth.notes == []


def test_the_requests_are_the_expressions(read):
    rows = read([ref(5, "a", "b\nc")]).rows
    assert refer.request_texts(rows, {}, split="val", prompt="plain") == ["a", "b\nc"]


def test_the_files_a_split_depends_on():
    own = {"refs": "a/refs(unc).p", "instances": "a/instances.json", "images": "/coco/"}
    assert refer.truth_files(own, "val") == ["a/refs(unc).p", "a/instances.json"]
    assert refer.request_files(own, "val", "plain") == []
    assert refer.image_root(own, "val") == "/coco"


NAMED = "reference 5"
BAD = {
    "other split": ([ref(5, split="train")], "no reference is of the split 'val'; there are train"),
    "empty": ([], "no reference is of the split 'val'; there are none"),
    "an object": ({"refs": []}, "holds a dict, not a list of references"),
    "text as reference": (["ref"], "reference number 0 (from 0) is 'ref', not an object"),
    "no split": ([{"ref_id": 5}], "reference number 0 (from 0) has no `split`; its keys are ref_id"),
    "no annotation id": ([{**ref(5), "ann_id": None}], f"{NAMED}: `ann_id` is None, not an integer"),
    "list of annotations": ([ref(5, ann_id=[5])], f"{NAMED}: `ann_id` is [5], not an integer"),
    "unknown annotation": ([ref(5, ann_id=7)], f"{NAMED}: FOLDER/instances.json has no annotations 7"),
    "unknown image": ([ref(5, image_id=2)], f"{NAMED}: FOLDER/instances.json has no image 2"),
    "no sentences": ([ref(5, sentences="a dog")], f"{NAMED}: `sentences` is 'a dog', not a list"),
    "text as sentence": ([ref(5, sentences=["a dog"])], f"{NAMED}: a sentence is 'a dog', not an object"),
    "no sentence id": ([ref(5, sentences=[{"sent": "a dog"}])], f"{NAMED} has no `sent_id`; its keys are sent"),
    "number as text": ([ref(5, sentences=[{"sent_id": 1, "sent": 3}])], f"{NAMED}: `sent` is 3, not a text"),
    "half a pair": ([ref(5, sentences=[{"sent_id": 1, "sent": "\ud800"}])], f"{NAMED}: `sent` holds half of a"),
}


@pytest.mark.parametrize(("refs", "message"), BAD.values(), ids=BAD.keys())
def test_damaged_references_are_refused_by_name(read, tmp_path, refs, message):
    with pytest.raises(DataError) as error:
        read(refs)
    assert str(error.value).startswith(f"{tmp_path}/refs(unc).p: {message.replace('FOLDER', str(tmp_path))}")


def test_an_annotation_of_another_image_is_refused(read):
    with pytest.raises(DataError, match="reference 5: is in image 1, its annotation 5 in 2"):
        read([ref(5)], annotation(5, SQUARE, image_id=2), images=[image(1), image(2)])


@pytest.mark.parametrize("box", [[1, 2, 3], [1, 2, 3, "4"], None, [1, 2, 3, True]])
def test_a_target_needs_a_box(read, box):
    with pytest.raises(DataError, match="annotation 5: `bbox` is "):
        read([ref(5)], annotation(5, SQUARE, bbox=box))


class Bomb:
    """Pickles to a call."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.call


HOSTILE = {
    "a shell command": (pickle.dumps([Bomb(os.system, "touch /tmp/never")]), f"{os.system.__module__}.system"),
    "eval": (pickle.dumps([Bomb(eval, "1")]), "builtins.eval"),
    "eval of Python 2": (b"c__builtin__\neval\n(S'1'\ntR.", "__builtin__.eval"),
    "a container of another module": (pickle.dumps(collections.OrderedDict(a=1)), "collections.OrderedDict"),
    "bytes by name": (b"cbuiltins\nbytearray\n(I9\ntR.", "builtins.bytearray"),
    "an attribute of a text": (b"\x80\x04\x8c\x08builtins\x8c\x0astr.format\x93.", "builtins.str.format"),
    "an instance": (b"(icollections\nCounter\n.", "collections.Counter"),
}


@pytest.mark.parametrize(("data", "name"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_pickle_that_names_code_is_refused_with_the_name(read, data, name):
    with pytest.raises(DataError) as error:
        read(data)
    assert f"it names {name}, which is no plain data" in str(error.value)


def lists(levels: int) -> bytes:
    """Lists that hold another one twice, level by level: each level costs 5 bytes and doubles the value."""
    deeper = b"".join(b"]q%c(h%ch%ce" % (level, level - 1, level - 1) for level in range(1, levels))
    return b"\x80\x02]q\x00" + deeper + b"."


def tuples(levels: int) -> bytes:
    """A dict whose key is a tuple of twice the same, and so on: to hash it doubles with every level."""
    deeper = b"".join(b"h%ch%c\x86q%c" % (level - 1, level - 1, level) for level in range(1, levels))
    return b"\x80\x02})q\x00" + deeper + b"Ns."


def test_a_value_far_larger_than_its_file_is_shown_in_brief(read, tmp_path):
    with pytest.raises(DataError, match=r"reference number 0 \(from 0\) is \[.{,60}, not an object"):
        read(lists(200))


def test_lists_nested_deeply_are_no_references(read):
    with pytest.raises(DataError, match=r"reference number 0 \(from 0\) is \[.{,60}, not an object"):
        read(b"]" * 5_000 + b"a" * 4_999 + b".")


GREEDY = {
    "a memo of 84 million places": (b"\x80\x02]r\x00\x00\x00\x05.", "operation 1 asks for a memo of 83,886,080 places"),
    "the same in text": (b"(lp83886080\n.", "operation 2 asks for a memo of 83,886,080 places"),
    "tuples of tuples": (tuples(60), "has tuples or sets, and containers that stand in several places"),
    "a tuple given twice": (b"})" + b"2\x86" * 60 + b"Ns.", "operation 2 is DUP, which no plain data needs"),
    "a number of digits": (b"\x8a\xff" + b"\x01" * 255 + b".", "is a number of 2,033 bits"),
}


@pytest.mark.parametrize(("data", "message"), GREEDY.values(), ids=GREEDY.keys())
def test_a_pickle_that_asks_for_more_than_its_length_explains_is_refused(read, data, message):
    with pytest.raises(DataError, match=message):
        read(data)


def test_lists_may_stand_in_several_places(read):
    sentences = ref(5, "a")["sentences"]
    refs = [ref(5, "a") | {"sentences": sentences, "ref_id": number} for number in (1, 2)]
    assert len(read(refs).rows) == 2


def test_a_file_of_no_size_for_references_is_refused(read, monkeypatch):
    monkeypatch.setattr(pickles, "MOST_BYTES", 20)
    with pytest.raises(DataError, match=r"refs\(unc\)\.p: [\d,]+ bytes, but files of this kind have at most 20"):
        read([ref(5)])


def test_a_name_of_any_length_is_told_in_brief(read):
    with pytest.raises(DataError, match="it names mmm") as error:
        read(b"c" + b"m" * 100_000 + b"\nn\n.")
    assert len(str(error.value)) < 1_000


DAMAGED = {
    "empty": b"",
    "no pickle": b"PK\x03\x04 a zip",
    "cut short": pickle.dumps([ref(5)])[:-20],
    "persistent id": b"Pan object elsewhere\n.",
    "unknown extension": b"\x82\x01.",
    "unhashable key": b"}]]s.",
    "nothing on the stack": b"R.",
    "no memo": b"g7\n.",
    "not a number": b"Iseven\n.",
    "a huge text": b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f.",
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_pickle_is_refused(read, tmp_path, data):
    with pytest.raises(DataError) as error:
        read(data)
    assert str(error.value).startswith(f"{tmp_path}/refs(unc).p: not a pickle of plain data, or cut short: ")


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_is_a_data_error_if_it_shows(tmp_path: Path, data: st.DataObject):
    content = bytearray(pickle.dumps([ref(5)], protocol=data.draw(st.sampled_from([0, 2, 4]))))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "refs.p"
    path.write_bytes(content)
    with contextlib.suppress(DataError):
        pickles.read_plain_pickle(str(path))


def test_a_missing_pickle_is_named():
    with pytest.raises(DataError, match=r"/nowhere/refs.p: no such file"):
        pickles.read_plain_pickle("/nowhere/refs.p")
