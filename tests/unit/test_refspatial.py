"""The RefSpatial-Bench source: both forms, how masks are read, and what is refused."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from pycocotools import mask as coco_mask

from reftables.benchmarks import refspatial
from reftables.benchmarks.truth import Truth
from reftables.errors import ConfigError, DataError
from reftables.rows import Task, TruthRow

SIZE_WH = (12, 8)
INSIDE = np.zeros(SIZE_WH[::-1], dtype=np.uint8)
INSIDE[2:6, 3:9] = 255


def encode_image(image: Image.Image, media_type: str = "PNG", **options: Any) -> bytes:
    file = BytesIO()
    image.save(file, media_type, **options)
    return file.getvalue()


PHOTO = encode_image(Image.new("RGB", SIZE_WH, (90, 120, 30)), "JPEG")
MASK = encode_image(Image.fromarray(INSIDE))


def question(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "id": number,
        "object": f"cup {number}",
        "prompt": f"Please point out cup {number}.",
        "suffix": "Answer with tuples.",
        "rgb_path": f"image/{number}.jpg",
        "mask_path": f"mask/{number}.png",
        "category": "location",
        "step": 2,
        **changes,
    }


def write_raw(root: Path, questions: list[dict[str, Any]], photo: bytes = PHOTO, mask: bytes = MASK) -> dict[str, str]:
    """A raw folder with an image and a mask for each question; gives the settings."""
    for folder in ("image", "mask"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for row in questions:
        (root / row["rgb_path"]).write_bytes(photo)
        (root / row["mask_path"]).write_bytes(mask)
    (root / "question.json").write_text(json.dumps(questions), encoding="utf-8")
    return {"root": str(root)}


def as_struct(content: bytes) -> dict[str, Any]:
    return {"bytes": content, "path": "somewhere/0.png"}


def write_parquet(
    folder: Path, rows: list[dict[str, Any]], *, column: Callable[[bytes], Any] = as_struct
) -> dict[str, str]:
    """A parquet file of questions with `image` and `mask` as bytes; gives the settings."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = ("id", "object", "prompt", "suffix", "step", "scene")
    records = [
        {key: row[key] for key in kept if key in row} | {name: column(row[name]) for name in ("image", "mask")}
        for row in rows
    ]
    pq.write_table(pa.Table.from_pylist(records), folder / "rows.parquet")
    return {"parquet": str(folder / "rows.parquet"), "images": str(folder / "images")}


def parquet_row(number: int, **changes: Any) -> dict[str, Any]:
    return {**question(number), "image": PHOTO, "mask": MASK, **changes}


def read(files: dict[str, str]) -> Truth:
    return refspatial.read_truth(files, benchmark="refspatial", split="location", task=Task.POINTS)


def decode(rle: dict[str, Any]) -> NDArray[np.uint8]:
    decoded: NDArray[np.uint8] = coco_mask.decode(rle)
    return decoded


def mask_row(folder: Path, mask: Image.Image) -> TruthRow:
    """The row of a question with this mask."""
    return read(write_raw(folder, [question(0)], mask=encode_image(mask))).rows[0]


# The two forms


def test_raw_rows_have_the_fields_of_a_points_truth(tmp_path: Path) -> None:
    rows, notes = read(write_raw(tmp_path, [question(7), question(3, step=5)]))
    mask = rows[0].pop("mask")
    assert rows[0] == {
        "id": 0,
        "source_id": 7,
        "image": "image/7.jpg",
        "width": 12,
        "height": 8,
        "expression": "cup 7",
        "object": "cup 7",
        "prompt": "Please point out cup 7.",
        "suffix": "Answer with tuples.",
        "step": 2,
    }
    assert (decode(mask) * 255 == INSIDE).all()
    assert [(row["id"], row["source_id"], row["step"]) for row in rows] == [(0, 7, 2), (1, 3, 5)]
    assert notes == []


def test_rows_of_the_expanded_benchmark_keep_their_scene(tmp_path: Path) -> None:
    rows = read(write_raw(tmp_path, [question(0, scene="indoor"), question(1, scene="outdoor")])).rows
    assert [row["scene"] for row in rows] == ["indoor", "outdoor"]


@pytest.mark.parametrize("column", [as_struct, bytes], ids=["image-struct", "plain-binary"])
def test_parquet_rows_are_the_raw_rows_with_unpacked_images(tmp_path: Path, column: Callable[[bytes], Any]) -> None:
    raw = read(write_raw(tmp_path / "raw", [question(5, scene="indoor")])).rows
    packed = read(write_parquet(tmp_path, [parquet_row(5, scene="indoor")], column=column)).rows
    assert packed == [{**raw[0], "image": "5.jpg"}]


def test_unpacked_images_keep_their_bytes_and_are_named_after_their_media_type(tmp_path: Path) -> None:
    png = encode_image(Image.new("RGB", SIZE_WH))
    files = write_parquet(tmp_path, [parquet_row(0), parquet_row(1, image=png)])
    read(files)
    unpacked = {path.name: path.read_bytes() for path in (tmp_path / "images").iterdir()}
    assert unpacked == {"0.jpg": PHOTO, "1.png": png}


def test_unpacking_again_touches_nothing(tmp_path: Path) -> None:
    files = write_parquet(tmp_path, [parquet_row(0)])
    read(files)
    before = (tmp_path / "images" / "0.jpg").stat()
    read(files)
    assert (tmp_path / "images" / "0.jpg").stat() == before


def test_unpacking_never_overwrites_another_image(tmp_path: Path) -> None:
    files = write_parquet(tmp_path, [parquet_row(0)])
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "0.jpg").write_bytes(b"another split's image")
    with pytest.raises(DataError, match=r"rows\.parquet: id 0: .*images/0\.jpg holds another image\. Give each split"):
        read(files)
    assert (tmp_path / "images" / "0.jpg").read_bytes() == b"another split's image"


def test_files_and_image_root_of_both_forms() -> None:
    raw, packed = {"root": "data/Location/"}, {"parquet": "data/location.parquet", "images": "data/images/"}
    assert refspatial.truth_files(raw, "location") == [
        "data/Location/question.json",
        "data/Location/mask/",
    ]
    assert refspatial.truth_files(packed, "location") == ["data/location.parquet"]
    assert refspatial.image_root(raw, "location") == "data/Location"
    assert refspatial.image_root(packed, "location") == "data/images"
    assert refspatial.request_files(raw, "location", "plain") == []


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "exactly one of `root`"),
        ({"root": "a", "parquet": "b", "images": "c"}, "exactly one of `root`"),
        ({"parquet": "b"}, "`parquet` and `images` .* go together"),
        ({"root": "a", "images": "c"}, "`parquet` and `images` .* go together"),
    ],
    ids=["neither", "both", "parquet-without-images", "root-with-images"],
)
def test_settings_must_name_one_form(files: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        refspatial.truth_files(files, "location")


def test_the_source_is_light_until_it_reads() -> None:
    code = (
        "import sys, reftables.benchmarks.refspatial; print(sorted({'PIL', 'numpy', 'pyarrow'} & sys.modules.keys()))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert result.stdout == "[]\n"


# Requests


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("roborefer", "Please point out cup 0. Answer with tuples."),
        ("gemini", "Locate the points of cup 0."),
        ("gemini-one", "Locate one point of cup 0."),
        ("molmo", "Locate several points of cup 0."),
        ("qwen", "Locate cup 0 in this image and output the point coordinates in JSON format."),
        ("robobrain", "Please point out cup 0. Please provide its 2D coordinates."),
        ("plain", "cup 0"),
    ],
)
def test_request_text_of_each_prompt_family(prompt: str, text: str) -> None:
    assert refspatial.request_texts([question(0)], {}, split="location", prompt=prompt) == [text]


def test_every_prompt_family_has_a_template() -> None:
    assert {"roborefer", "gemini", "gemini-one", "molmo", "qwen", "robobrain", "plain"} == refspatial.PROMPTS


def test_braces_in_a_question_stay_as_they_are() -> None:
    row = question(0, object="the {red} cup")
    assert refspatial.request_texts([row], {}, split="location", prompt="plain") == ["the {red} cup"]


# How a mask is read


def palette_image(indices: NDArray[np.uint8], colours: list[tuple[int, int, int]]) -> Image.Image:
    image = Image.fromarray(indices, "P")
    image.putpalette([value for colour in colours for value in colour])
    return image


BINARY = (INSIDE > 0).astype(np.uint8)
GREY = np.tile(np.array([0, 1, 127, 128, 200, 255], dtype=np.uint8), (8, 2))


@pytest.mark.parametrize(
    "mask",
    [
        pytest.param(Image.fromarray(INSIDE), id="grey"),
        pytest.param(Image.fromarray(BINARY), id="grey-of-0-and-1"),
        pytest.param(Image.fromarray(INSIDE > 0), id="bilevel"),
        pytest.param(Image.fromarray(np.stack([INSIDE] * 3, axis=2)), id="rgb"),
        pytest.param(Image.merge("RGB", [Image.fromarray(INSIDE), *[Image.new("L", SIZE_WH)] * 2]), id="red"),
        pytest.param(Image.merge("RGBA", [*[Image.fromarray(INSIDE)] * 3, Image.new("L", SIZE_WH, 255)]), id="rgba"),
        pytest.param(Image.merge("LA", [Image.fromarray(INSIDE), Image.new("L", SIZE_WH, 9)]), id="grey-with-alpha"),
        pytest.param(Image.fromarray(INSIDE.astype(np.uint16) * 257), id="16-bit"),
        pytest.param(palette_image(BINARY, [(0, 0, 0), (128, 0, 0)]), id="palette"),
    ],
)
def test_masks_of_all_modes_are_read_alike(tmp_path: Path, mask: Image.Image) -> None:
    row = mask_row(tmp_path, mask)
    assert (decode(row["mask"]) == BINARY).all()
    assert "mask_official" not in row


def test_palette_with_white_first_is_read_by_colour_and_officially_by_index(tmp_path: Path) -> None:
    row = mask_row(tmp_path, palette_image(1 - BINARY, [(255, 255, 255), (0, 0, 0)]))
    assert (decode(row["mask"]) == BINARY).all()
    assert (decode(row["mask_official"]) == 1 - BINARY).all()


def test_transparent_palette_colours_count_as_their_colours(tmp_path: Path) -> None:
    image = palette_image(BINARY, [(0, 0, 0), (255, 255, 255)])
    mask = encode_image(image, transparency=b"\x00\x00")
    row = read(write_raw(tmp_path, [question(0)], mask=mask)).rows[0]
    assert (decode(row["mask"]) == BINARY).all()


def test_smooth_edges_begin_at_128_and_officially_above_0(tmp_path: Path) -> None:
    row = mask_row(tmp_path, Image.fromarray(GREY))
    assert (decode(row["mask"]) == (GREY >= 128)).all()
    assert (decode(row["mask_official"]) == (GREY > 0)).all()


def test_masks_read_in_two_ways_are_noted(tmp_path: Path) -> None:
    files = write_raw(tmp_path, [question(4), question(9)])
    (tmp_path / "mask" / "9.png").write_bytes(encode_image(Image.fromarray(GREY)))
    assert read(files).notes == [
        "1 masks are read otherwise by the authors' script (first channel above 0), which the official scores "
        "follow: ids 9"
    ]


# What is refused


def refusal(files: dict[str, str]) -> str:
    with pytest.raises(DataError) as caught:
        read(files)
    return str(caught.value)


@pytest.mark.parametrize(
    ("mask", "reason"),
    [
        pytest.param(Image.new("L", SIZE_WH), "the mask is empty", id="empty"),
        pytest.param(
            Image.merge("RGB", [*[Image.new("L", SIZE_WH)] * 2, Image.fromarray(INSIDE)]),
            "the mask is empty in its first channel, the only one that the authors' script reads",
            id="empty-officially",
        ),
        pytest.param(Image.new("L", (8, 12), 255), "8x12 pixels, but", id="other-size"),
    ],
)
def test_useless_masks_are_refused_by_file_and_id(tmp_path: Path, mask: Image.Image, reason: str) -> None:
    message = refusal(write_raw(tmp_path, [question(3)], mask=encode_image(mask)))
    assert message.startswith(f"{tmp_path}/mask/3.png (of id 3): {reason}")


def test_useless_masks_in_parquet_are_refused_by_id(tmp_path: Path) -> None:
    message = refusal(write_parquet(tmp_path, [parquet_row(3, mask=encode_image(Image.new("L", SIZE_WH)))]))
    assert message == f"{tmp_path}/rows.parquet: id 3: the mask: the mask is empty"


def test_pictures_of_other_modes_are_no_masks(tmp_path: Path) -> None:
    mask = encode_image(Image.new("CMYK", SIZE_WH, (9, 9, 9, 9)), "JPEG")
    message = refusal(write_raw(tmp_path, [question(3)], mask=mask))
    assert message.startswith(f"{tmp_path}/mask/3.png (of id 3): a picture of mode CMYK is no mask")


@pytest.mark.parametrize(
    "content", [b"", b"no image", MASK[:-30], PHOTO[: len(PHOTO) // 2]], ids=["empty", "text", "cut-png", "cut-jpeg"]
)
@pytest.mark.parametrize("kind", ["image", "mask"])
def test_undecodable_files_are_refused_by_file_and_id(tmp_path: Path, kind: str, content: bytes) -> None:
    files = write_raw(tmp_path, [question(0), question(3)])
    name = "image/3.jpg" if kind == "image" else "mask/3.png"
    (tmp_path / name).write_bytes(content)
    assert refusal(files).startswith(f"{tmp_path}/{name} (of id 3) cannot be decoded: ")


@settings(max_examples=60, deadline=None)
@given(place=st.integers(0, len(MASK) - 1), value=st.integers(0, 255))
def test_a_damaged_byte_is_either_harmless_or_refused(
    tmp_path_factory: pytest.TempPathFactory, place: int, value: int
) -> None:
    damaged = MASK[:place] + bytes([value]) + MASK[place + 1 :]
    files = write_raw(tmp_path_factory.mktemp("damaged"), [question(0)], mask=damaged)
    try:
        message = str(read(files).rows[0]["source_id"])
    except DataError as error:
        message = str(error)
    assert message == "0" or "mask/0.png (of id 0)" in message


def test_decompression_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", SIZE_WH[0] * SIZE_WH[1] - 1)  # Pillow itself would only warn
    message = refusal(write_raw(tmp_path, [question(3)]))
    assert message.startswith(f"{tmp_path}/image/3.jpg (of id 3) cannot be decoded: Image size (96 pixels) exceeds")


@pytest.mark.parametrize("name", ["image/3.jpg", "mask/3.png"])
def test_missing_files_are_refused_by_file_and_id(tmp_path: Path, name: str) -> None:
    files = write_raw(tmp_path, [question(3)])
    (tmp_path / name).unlink()
    assert refusal(files) == f"{tmp_path}/question.json: id 3: there is no file {tmp_path}/{name}"


@pytest.mark.parametrize("key", ["object", "prompt", "suffix", "rgb_path", "mask_path", "step"])
def test_missing_keys_are_refused_by_id(tmp_path: Path, key: str) -> None:
    files = write_raw(tmp_path, [question(3)])
    row = question(3)
    del row[key]
    (tmp_path / "question.json").write_text(json.dumps([row]), encoding="utf-8")
    assert refusal(files).startswith(f"{tmp_path}/question.json: id 3 has no `{key}`; its keys are id, ")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        pytest.param([{"object": "cup"}], "row 0 has no `id`; its keys are object", id="no-id"),
        pytest.param([question(1, id=1.5)], "row 0: `id` is 1.5, neither an integer nor a text", id="fractional-id"),
        pytest.param([question(1), question(1)], "row 1: another question has the id 1, too", id="duplicate-id"),
        pytest.param([question(1), 5], "row 1 is 5, not an object", id="no-object"),
        pytest.param([question(1, step="two")], "id 1: `step` is 'two', not an integer", id="step"),
        pytest.param([question(1, rgb_path="a\nb")], r"id 1: `rgb_path` is 'a\nb', which is no plain path", id="path"),
        pytest.param([question(1, rgb_path="a\0b")], r"id 1: `rgb_path` is 'a\x00b', which is no plain", id="null"),
        pytest.param([question(1, rgb_path="../x.png")], "id 1: `rgb_path` is '../x.png', which leads out", id="out"),
        pytest.param(
            [question(1, mask_path="/x.png")], "id 1: `mask_path` is '/x.png', which is absolute", id="absolute"
        ),
        pytest.param([question(1, rgb_path=f"{'n' * 300}.jpg")], "id 1: `rgb_path` is 'nnn", id="long-name"),
        pytest.param([question(1, rgb_path="image")], "id 1: there is no file FOLDER/image", id="folder"),
        pytest.param(
            [question(1, scene="in"), question(2)], "some questions have a `scene`, those with the ids 2", id="scene"
        ),
        pytest.param([], "holds no question", id="empty"),
        pytest.param({"rows": []}, "holds a dict, not a list of questions", id="no-list"),
    ],
)
def test_faulty_questions_are_refused(tmp_path: Path, rows: Any, message: str) -> None:
    files = write_raw(tmp_path, [question(1), question(2)])
    (tmp_path / "question.json").write_text(json.dumps(rows), encoding="utf-8")
    assert refusal(files).startswith(f"{tmp_path}/question.json: {message.replace('FOLDER', str(tmp_path))}")


def test_truncated_json_is_refused(tmp_path: Path) -> None:
    files = write_raw(tmp_path, [question(1)])
    text = (tmp_path / "question.json").read_text(encoding="utf-8")
    (tmp_path / "question.json").write_text(text[:-9], encoding="utf-8")
    assert refusal(files).startswith(f"{tmp_path}/question.json: not valid JSON, perhaps cut short; get the file again")


def test_a_root_without_questions_is_refused(tmp_path: Path) -> None:
    assert refusal({"root": str(tmp_path)}) == f"{tmp_path}/question.json: no such file"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        pytest.param(parquet_row(3, id="../3"), "id ../3: this id cannot name the file of its image", id="id-as-path"),
        pytest.param(parquet_row(3, id="n" * 300), f"id {'n' * 197}...: this id cannot name the file", id="long-id"),
        pytest.param(parquet_row(3, prompt=None), "id 3: `prompt` is None, not a text", id="null"),
        pytest.param(parquet_row(3, image=b"x"), "id 3: the image cannot be decoded: ", id="image"),
    ],
)
def test_faulty_parquet_rows_are_refused(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    assert refusal(write_parquet(tmp_path, [row])).startswith(f"{tmp_path}/rows.parquet: {message}")


def test_image_columns_without_bytes_are_refused(tmp_path: Path) -> None:
    files = write_parquet(tmp_path, [parquet_row(3)], column=lambda content: {"bytes": None, "path": "0.png"})
    assert refusal(files).startswith(f"{tmp_path}/rows.parquet: id 3: the image is not stored in the file")


def test_a_parquet_file_without_a_column_is_refused(tmp_path: Path) -> None:
    row = parquet_row(3)
    del row["suffix"]
    assert refusal(write_parquet(tmp_path, [row])).startswith(
        f"{tmp_path}/rows.parquet: has no column suffix; its columns are"
    )


@pytest.mark.parametrize("content", [None, b"", b"PAR1 and nothing else"], ids=["absent", "empty", "damaged"])
def test_a_file_that_is_no_parquet_is_refused(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "rows.parquet").write_bytes(content)
    files = {"parquet": f"{tmp_path}/rows.parquet", "images": f"{tmp_path}/images"}
    assert refusal(files).startswith(f"{tmp_path}/rows.parquet: cannot be read as parquet; get the file again (")


def test_a_parquet_file_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    files = write_parquet(tmp_path, [parquet_row(3, image=b"\0" * 30_000_000)])
    pq.write_table(pq.read_table(files["parquet"]), files["parquet"], compression="zstd")
    packed = Path(files["parquet"]).stat().st_size
    assert packed < 20_000
    assert refusal(files).startswith(f"{files['parquet']}: {packed:,} bytes that unpack to 30,")


def test_a_text_of_absurd_length_is_refused(tmp_path: Path) -> None:
    """A dictionary holds one value for any number of rows."""
    files = write_parquet(tmp_path, [parquet_row(3, prompt="p" * 1_000_000)])
    assert "id 3: `prompt` has 1,000,000 characters" in refusal(files)


def test_of_large_columns_few_rows_are_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = write_parquet(tmp_path, [parquet_row(1), parquet_row(2)])
    monkeypatch.setattr(refspatial, "_MOST_AT_ONCE", 1)
    with pq.ParquetFile(files["parquet"]) as file:
        assert refspatial._rows_at_once(files["parquet"], file.metadata) == 1
    assert len(read(files).rows) == 2


def test_a_text_in_parquet_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    files = write_parquet(tmp_path, [parquet_row(3)])
    table = pq.read_table(files["parquet"])
    broken = pa.array([b"\xff"], pa.binary()).view(pa.string())
    place = table.schema.get_field_index("prompt")
    pq.write_table(table.set_column(place, "prompt", broken), files["parquet"])
    assert refusal(files).startswith(f"{tmp_path}/rows.parquet: cannot be read as parquet")


def test_a_raw_image_may_be_named_with_a_dot_first(tmp_path: Path) -> None:
    files = write_raw(tmp_path, [question(1, rgb_path="./image/1.jpg")])
    assert read(files).rows[0]["image"] == "image/1.jpg"
