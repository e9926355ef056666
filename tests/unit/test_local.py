"""Backends that run on this machine: which weights, which precision, which image; none of it needs torch."""

from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from reftables.errors import ConfigError, DataError
from reftables.models import kosmos2, local
from reftables.models.job import Job
from reftables.rows import AnswerFormat, Notation, Request, Task

HUB = {"weights": "microsoft/kosmos-2-patch14-224", "revision": "e91cfbcb4ce051b6a55bfb5f96165a3bbf5eb82c"}
KOSMOS = AnswerFormat(notation=Notation.KOSMOS, coordinates=None, order=None, prompt="kosmos", grid=32)


def make_job(identity: dict[str, Any], **execution: Any) -> Job:
    return Job(
        model="k2",
        benchmark="mine",
        split="val",
        task=Task.BOXES,
        form=KOSMOS,
        identity={"backend": "kosmos2", **identity},
        execution=execution,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of weights, as far as its digest is concerned."""
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "config.json").write_text("{}")
    (tmp_path / "weights" / "model.safetensors").write_bytes(b"1")
    return tmp_path / "weights"


def files_of(identity: dict[str, Any]) -> list[str]:
    return local.answer_files(identity, model="k2", benchmark="mine", split="val")


def test_weights_of_the_hub_are_no_local_file():
    assert files_of(HUB) == []


def test_a_folder_of_weights_counts_in_the_lineage(folder: Path):
    assert files_of({"weights": str(folder)}) == [f"{folder}/"]


def test_bundled_weights_lie_in_the_repository(monkeypatch: pytest.MonkeyPatch, folder: Path, repository: Path):
    assert repository / "models" == local.BUNDLED_FOLDER
    monkeypatch.setattr(local, "BUNDLED_FOLDER", folder.parent)
    assert files_of({"weights": "bundled:weights"}) == [f"{folder}/"]


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        pytest.param({"weights": "org/name"}, "revision: org/name is no folder, so a model of the hub", id="none"),
        pytest.param({"weights": "org/name", "revision": 12345678}, "name its revision, in quotes", id="a number"),
        pytest.param({"weights": "./absent"}, r"identity\.weights: there is no folder absent", id="absent folder"),
        pytest.param({"weights": "bundled:absent"}, "there is no folder .*/models/absent", id="absent bundle"),
        pytest.param({"weights": 7}, "weights: 7 is neither a name of the hub nor a folder", id="no text"),
        pytest.param({"weights": ".", "revision": "main"}, "revision: . is a folder, .* Leave it out", id="both"),
    ],
)
def test_weights_that_cannot_be_known_are_refused_before_anything_runs(identity: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        files_of(identity)


def decided(identity: dict[str, Any] = HUB, text: str = "mug", digest: str = "d1", **execution: Any) -> dict[str, Any]:
    return kosmos2.decides(Request(len(execution), "a.png", text), make_job(identity, **execution), digest)


@pytest.mark.parametrize(
    "change",
    [
        {"text": "dog"},
        {"digest": "d2"},
        {"identity": HUB | {"revision": "main"}},
        {"identity": HUB | {"max_length": 101}},
        {"identity": HUB | {"dtype": "bfloat16", "device": "cuda"}},
    ],
    ids=str,
)
def test_what_can_change_an_answer_asks_anew(change: dict[str, Any]):
    assert decided(**change) != decided()


def test_batch_size_device_and_a_copy_of_the_weights_do_not_ask_anew():
    assert decided(batch_size=3, device="cuda:1", weights_folder="/copy") == decided()
    assert decided(HUB | {"dtype": "float32", "max_length": 501}) == decided()


def test_the_devices_of_half_precision_are_told_apart():
    half = HUB | {"dtype": "float16"}
    assert decided(half | {"device": "cuda"}) != decided(half | {"device": "cpu"})


def test_a_folder_is_known_by_its_content_wherever_it_lies(folder: Path, tmp_path: Path):
    before = decided({"weights": str(folder)})
    moved = folder.rename(tmp_path / "moved")
    assert decided({"weights": str(moved)}) == before
    (moved / ".cache").mkdir()
    (moved / ".cache" / "log").write_text("hidden files don't count")
    local.folder_digest.cache_clear()
    assert decided({"weights": str(moved)}) == before
    (moved / "model.safetensors").write_bytes(b"2")
    local.folder_digest.cache_clear()
    assert decided({"weights": str(moved)}) != before


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        pytest.param({"dtype": "int8"}, "dtype: 'int8' is none; choose from float32, bfloat16, float16", id="dtype"),
        pytest.param({"dtype": "bfloat16"}, "device: bfloat16 answers differently on cpu, cuda and mps", id="device"),
        pytest.param({"max_length": 0}, "max_length: 0 is no number of tokens, 1 or more", id="length"),
        pytest.param({"max_length": "501"}, "max_length: '501' is no number of tokens", id="text"),
    ],
)
def test_an_identity_that_decides_nothing_is_refused(identity: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=rf"models\.k2\.identity\.{message}"):
        decided(HUB | identity)
    with pytest.raises(ConfigError, match=rf"models\.k2\.identity\.{message}"):
        kosmos2.check(make_job(HUB | identity))


@pytest.mark.parametrize("device", ["gpu", "cpu:3", "cuda:x", "cuda:", "meta", "", 5, ["cpu"]], ids=str)
def test_a_device_that_torch_has_not_is_refused_with_the_config(device: Any):
    with pytest.raises(ConfigError, match=r"models\.k2\.exec\.device: .* is none; choose cpu, cuda, one GPU"):
        kosmos2.check(make_job(HUB, device=device))
    if device != "":
        with pytest.raises(ConfigError, match=r"models\.k2\.identity\.device: .* is none; choose from cpu, cuda, mps"):
            kosmos2.check(make_job(HUB | {"device": device}))


def test_a_device_of_another_kind_than_the_identity_asks_for_is_refused_with_the_config():
    with pytest.raises(ConfigError, match=r"exec\.device: cpu is no cuda, which identity\.device asks for"):
        kosmos2.check(make_job(HUB | {"device": "cuda"}, device="cpu"))


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:7", "mps", None])
def test_a_device_is_looked_for_only_where_the_model_runs(device: str | None):
    kosmos2.check(make_job(HUB, device=device))


@pytest.mark.parametrize("folder", [5, "", ["a"]], ids=str)
def test_a_copy_of_the_weights_is_the_path_of_a_folder(folder: Any):
    with pytest.raises(ConfigError, match=r"models\.k2\.exec\.weights_folder: .* is no path of a folder"):
        kosmos2.check(make_job(HUB, weights_folder=folder))


def test_a_folder_has_no_copy(tmp_path: Path):
    job = make_job({"weights": str(tmp_path)}, weights_folder="/copy")
    with pytest.raises(ConfigError, match=rf"exec\.weights_folder: /copy is no copy of {tmp_path}.* Leave one"):
        kosmos2.check(job)


@pytest.mark.parametrize("size", [0, -1, 2.5, "8", True])
def test_a_batch_size_is_a_number_of_requests(size: Any):
    with pytest.raises(ConfigError, match=r"models\.k2\.exec\.batch_size: .* is no number of requests, 1 or more"):
        kosmos2.check(make_job(HUB, batch_size=size))


def test_a_folder_of_its_own_needs_no_hub(folder: Path):
    weights = local.find_weights(make_job({"weights": str(folder)}))
    assert weights == (folder, local.folder_digest(folder))


def test_what_has_to_be_installed_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(local, "find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"models\.k2\.identity\.backend: kosmos2 needs torch and transformers\. Install"
    ):
        kosmos2.predict([], make_job(HUB))


COMMIT = HUB["revision"]
SNAPSHOT = f"models--microsoft--kosmos-2-patch14-224/snapshots/{COMMIT}"


@pytest.mark.parametrize("revision", ["main", COMMIT])
def test_a_copy_is_known_by_its_commit_where_the_hubs_cache_names_it_so(tmp_path: Path, revision: str):
    (tmp_path / SNAPSHOT).mkdir(parents=True)
    job = make_job(HUB | {"revision": revision}, weights_folder=str(tmp_path / SNAPSHOT))
    assert local.find_weights(job) == (tmp_path / SNAPSHOT, COMMIT)


@pytest.mark.parametrize(
    "name", ["copy", COMMIT, f"snapshots/{COMMIT}", f"models--another--model/snapshots/{COMMIT}"], ids=str
)
def test_any_other_copy_is_known_by_its_content_whatever_the_revision_says(tmp_path: Path, name: str):
    (tmp_path / name).mkdir(parents=True)
    (tmp_path / name / "model.safetensors").write_bytes(name.encode())
    job = make_job(HUB, weights_folder=str(tmp_path / name))
    assert local.find_weights(job) == (tmp_path / name, local.folder_digest(tmp_path / name))


def test_a_copy_of_another_commit_is_refused(tmp_path: Path):
    (tmp_path / ("0" * 40)).mkdir()
    with pytest.raises(DataError, match=f"weights_folder: .* holds commit 0+, but identity.revision is {COMMIT}"):
        local.find_weights(make_job(HUB, weights_folder=str(tmp_path / ("0" * 40))))


def test_an_absent_copy_is_named(tmp_path: Path):
    with pytest.raises(DataError, match=r"models\.k2\.exec\.weights_folder: .*/absent is no folder"):
        local.find_weights(make_job(HUB, weights_folder=str(tmp_path / "absent")))


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGBA", "CMYK"])
def test_images_are_read_as_rgb(tmp_path: Path, mode: str):
    path = tmp_path / ("image.jpg" if mode == "CMYK" else "image.png")
    Image.new("RGB", (6, 4), "white").convert(mode).save(path)
    image = local.read_image(str(path))
    assert (image.mode, image.size, image.getpixel((0, 0))) == ("RGB", (6, 4), (255, 255, 255))


def saved(form: str, mode: str = "RGB") -> bytes:
    """A small image as a file."""
    file = BytesIO()
    Image.new(mode, (4, 4)).save(file, form)
    return file.getvalue()


UNREADABLE = {
    "absent": None,
    "empty": b"",
    "no PNG": b"\x89PNG\r\n\x1a\n0000",
    "no JPEG": b"\xff\xd8\xff\xe0",
    "another format": saved("TIFF"),
}


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_an_unreadable_image_is_named(tmp_path: Path, content: bytes | None):
    if content is not None:
        (tmp_path / "image.png").write_bytes(content)
    with pytest.raises(local.SampleError, match=r"image\.png: not a readable image \(.+\)"):
        local.read_image(str(tmp_path / "image.png"))


def test_an_image_that_claims_more_memory_than_there_is_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "image.png").write_bytes(saved("PNG"))

    def exhaust(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(Image.Image, "convert", exhaust)
    with pytest.raises(local.SampleError, match=r"image\.png: not a readable image \(MemoryError\)"):
        local.read_image(str(tmp_path / "image.png"))


def test_an_image_of_more_than_8_bits_is_refused_rather_than_clipped(tmp_path: Path):
    (tmp_path / "image.png").write_bytes(saved("PNG", "I;16"))
    with pytest.raises(local.SampleError, match=r"image\.png: .*grey with more than 8 bits a pixel.*save it with 8"):
        local.read_image(str(tmp_path / "image.png"))
