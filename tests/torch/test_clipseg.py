"""The backend clipseg, from requests and image files to masks, on a tiny model from disk."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from pycocotools import mask as coco_mask

from reftables.errors import DataError
from reftables.models import clipseg, clipseg_model, local
from reftables.models.job import Job
from reftables.rows import AnswerFormat, Notation, Prediction, Request, Status, Task
from tests.torch import tiny_clipseg
from tests.torch.noise import draw_requests
from tests.workflow.conftest import Workspace

pytestmark = pytest.mark.torch

RLE = AnswerFormat(notation=Notation.RLE, coordinates=None, order=None, prompt="plain", grid=None)
SIZES = [(90, 60), (64, 101), (352, 352)]
TEXTS = ["red mug", "the one on the left", "dog 2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_clipseg.save(tmp_path_factory.mktemp("weights") / "clipseg")


@pytest.fixture(scope="module")
def requests(tmp_path_factory: pytest.TempPathFactory) -> list[Request]:
    return draw_requests(tmp_path_factory.mktemp("noise"), SIZES, TEXTS)


@pytest.fixture(scope="module")
def alone(folder: Path, requests: Sequence[Request]) -> dict[int, torch.Tensor]:
    """What the whole model answers to each request by itself."""
    return tiny_clipseg.logits_one_by_one(folder, requests)


def make_job(folder: Path, **identity: Any) -> Job:
    return Job(
        model="seg",
        benchmark="mine",
        split="val",
        task=Task.MASKS,
        form=RLE,
        identity={"backend": "clipseg", "weights": str(folder), **identity},
        execution={},
    )


def predict(requests: Sequence[Request], job: Job) -> list[Prediction]:
    return sorted(clipseg.predict(requests, job), key=lambda prediction: prediction.id)


def decode(prediction: Prediction) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = coco_mask.decode(prediction.rle).astype(bool)
    return found


def test_logits_with_the_image_seen_once_are_exactly_those_of_the_whole_model(
    folder: Path, requests: list[Request], alone: dict[int, torch.Tensor]
) -> None:
    model = clipseg_model.load(make_job(folder))
    sights = {request.image: model.look(local.read_image(request.image)) for request in requests}
    assert all(torch.equal(model.logits(sights[r.image], r.text), alone[r.id]) for r in requests)


def resize_bilinear(values: NDArray[np.float64], size_hw: tuple[int, int]) -> NDArray[np.float64]:
    """The value at each pixel's centre, between the four nearest centres; beyond the outermost ones, theirs."""
    for axis, target in enumerate(size_hw):
        length = values.shape[axis]
        places = np.clip((np.arange(target) + 0.5) * length / target - 0.5, 0, length - 1)
        below = np.floor(places).astype(int)
        share = np.expand_dims(places - below, 1 - axis)
        above = np.minimum(below + 1, length - 1)
        values = values.take(below, axis) * (1 - share) + values.take(above, axis) * share
    return values


def sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-values))


def in_the_right_order(logits: NDArray[np.float64], size_hw: tuple[int, int]) -> NDArray[np.bool_]:
    return resize_bilinear(sigmoid(logits), size_hw) > 0.35


def resized_before_the_sigmoid(logits: NDArray[np.float64], size_hw: tuple[int, int]) -> NDArray[np.bool_]:
    return sigmoid(resize_bilinear(logits, size_hw)) > 0.35


def threshold_before_resizing(logits: NDArray[np.float64], size_hw: tuple[int, int]) -> NDArray[np.bool_]:
    return resize_bilinear((sigmoid(logits) > 0.35).astype(float), size_hw) > 0.5


def iou(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    return float((one & other).sum() / (one | other).sum())


def test_a_mask_is_made_by_sigmoid_then_resizing_then_threshold(
    folder: Path, requests: list[Request], alone: dict[int, torch.Tensor]
) -> None:
    for prediction in predict(requests, make_job(folder)):
        width, height = SIZES[prediction.id % len(SIZES)]
        expected = in_the_right_order(alone[prediction.id].double().numpy(), (height, width))
        assert (decode(prediction) != expected).sum() <= 2  # pixels at the threshold, for float32's rounding


@pytest.mark.parametrize("order", [resized_before_the_sigmoid, threshold_before_resizing], ids=lambda o: o.__name__)
def test_another_order_gives_other_masks(
    requests: list[Request],
    alone: dict[int, torch.Tensor],
    order: Callable[[NDArray[np.float64], tuple[int, int]], NDArray[np.bool_]],
) -> None:
    logits = alone[0].double().numpy()
    right = clipseg_model.segment(alone[0], (60, 90), 0.35)
    assert iou(right, order(logits, (60, 90))) < 0.97


def test_a_pixel_at_the_threshold_is_outside() -> None:
    half = torch.zeros(352, 352)
    assert not clipseg_model.segment(half, (20, 30), 0.5).any()
    assert clipseg_model.segment(half, (20, 30), 0.4999).all()


def test_a_mask_of_no_pixels_claims_nothing(folder: Path, requests: list[Request]) -> None:
    (prediction,) = predict(requests[:1], make_job(folder, threshold=0.999999))
    assert (prediction.rle, prediction.no_target) == ({"size": [60, 90], "counts": "hX5"}, None)


def test_a_higher_threshold_leaves_fewer_pixels(folder: Path, requests: list[Request]) -> None:
    areas = [decode(*predict(requests[:1], make_job(folder, threshold=at))).sum() for at in (0.0, 0.35, 0.7)]
    assert areas[0] == 60 * 90 > areas[1] > areas[2] > 0


def test_masks_differ_by_image_and_by_text_and_say_which_weights_answered(
    folder: Path, requests: list[Request]
) -> None:
    predictions = predict(requests, make_job(folder))
    assert len({prediction.rle["counts"] for prediction in predictions if prediction.rle}) == len(requests)
    assert {prediction.status for prediction in predictions} == {Status.OK}
    assert {prediction.weights for prediction in predictions} == {local.folder_digest(folder)}


def test_masks_do_not_depend_on_the_order_of_the_requests(folder: Path, requests: list[Request]) -> None:
    expected = predict(requests, make_job(folder))
    assert predict(requests[::-1], make_job(folder)) == expected
    assert predict(requests[4:5], make_job(folder)) == expected[4:5]


def count_calls(monkeypatch: pytest.MonkeyPatch, name: str) -> list[str]:
    """Grows by one whenever `CLIPSegModel.name` is called."""
    from transformers import CLIPSegModel

    calls: list[str] = []
    method = getattr(CLIPSegModel, name)

    def counted(*args: Any, **options: Any) -> Any:
        calls.append(name)
        return method(*args, **options)

    monkeypatch.setattr(CLIPSegModel, name, counted)
    return calls


def test_an_image_is_seen_once_and_a_text_read_once(
    folder: Path, requests: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = count_calls(monkeypatch, "get_image_features")
    read = count_calls(monkeypatch, "get_text_features")
    predict(requests, make_job(folder))
    assert (len(seen), len(read)) == (len(SIZES), len(TEXTS))


def test_a_text_beyond_the_longest_is_cut_and_named(
    folder: Path, requests: list[Request], capsys: pytest.CaptureFixture[str]
) -> None:
    letters = "a b c d e f g h i j k l m n o p q r s t u v"  # with both ends, as many tokens as there may be
    whole, longer = (Request(0, requests[0].image, text) for text in (letters, f"{letters} w x y z"))
    expected = predict([whole], make_job(folder))
    assert "cut from" not in capsys.readouterr().err
    assert predict([longer], make_job(folder)) == expected
    assert re.search(
        rf"cut from \d+ to \d+ tokens, the most that the model reads: '{longer.text}'", capsys.readouterr().err
    )


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_image_that_cannot_be_read_costs_its_own_masks_only(
    folder: Path, requests: list[Request], tmp_path: Path, place: int
) -> None:
    (tmp_path / "half.jpg").write_bytes(b"\xff\xd8\xff\xe0half")
    expected = predict(requests, make_job(folder))
    broken = [replace(r, image=str(tmp_path / "half.jpg")) if r.id % 3 == place else r for r in requests]
    for prediction, whole in zip(predict(broken, make_job(folder)), expected, strict=True):
        if prediction.id % 3 == place:
            assert (prediction.status, prediction.rle) == (Status.ERROR, None)
            assert (prediction.finish_reason or "").startswith(f"{tmp_path}/half.jpg: not a readable image")
        else:
            assert prediction == whole


def test_no_requests_load_nothing(tmp_path: Path) -> None:
    assert predict([], make_job(tmp_path)) == []  # where there is nothing to load


def test_half_precision_gives_nearly_the_same_masks(folder: Path, requests: list[Request]) -> None:
    exact = predict(requests[:3], make_job(folder))
    halved = predict(requests[:3], make_job(folder, dtype="bfloat16", device="cpu"))
    assert all(0.8 < iou(decode(one), decode(other)) < 1 for one, other in zip(exact, halved, strict=True))


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "RGBA"])
def test_pixels_are_those_of_the_authors(folder: Path, requests: list[Request], tmp_path: Path, mode: str) -> None:
    Image.open(requests[1].image).convert(mode).save(tmp_path / "image.png")
    image = local.read_image(str(tmp_path / "image.png"))
    images, _ = clipseg_model.load_processor(folder)
    shown = images(image, return_tensors="np")["pixel_values"][0]
    assert np.abs(shown - clipseg_model.official_pixels(image, 352)).max() < 1e-6


def changed_copy(folder: Path, target: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of the folder in which `change` was made to the settings of the image processor."""
    shutil.copytree(folder, target)
    path = target / "processor_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    change(settings["image_processor"])
    path.write_text(json.dumps(settings), encoding="utf-8")
    return target


def keep_the_shape(settings: dict[str, Any]) -> None:
    settings["size"] = {"height": 352, "width": 224}


def use_other_constants(settings: dict[str, Any]) -> None:
    settings["image_mean"] = settings["image_std"] = [0.5, 0.5, 0.5]


def resize_bicubic(settings: dict[str, Any]) -> None:
    settings["resample"] = 3


@pytest.mark.parametrize("change", [keep_the_shape, use_other_constants, resize_bicubic], ids=lambda c: c.__name__)
def test_another_image_processor_is_refused(
    folder: Path, tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    with pytest.raises(DataError, match="its image processor makes other pixels than CLIPSeg was trained on"):
        clipseg_model.load(make_job(changed_copy(folder, tmp_path / "copy", change)))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("model.safetensors", "no weights of CLIPSeg as safetensors here", id="weights"),
        pytest.param("tokenizer.json", "its tokenizer has 2 tokens, its model 74", id="tokenizer"),
        pytest.param("processor_config.json", "no tokenizer and image processor of CLIPSeg here", id="processor"),
    ],
)
def test_a_missing_file_is_named(folder: Path, tmp_path: Path, name: str, message: str) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / name).unlink()
    with pytest.raises(DataError, match=message):
        clipseg_model.load(make_job(copy))


def test_incomplete_weights_are_refused(folder: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    copy = shutil.copytree(folder, tmp_path / "copy")
    weights = load_file(copy / "model.safetensors")
    del weights["decoder.film_mul.weight"]
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(DataError, match=r"1 weights of CLIPSeg are missing: decoder\.film_mul\.weight"):
        clipseg_model.load(make_job(copy))


def test_the_sample_is_segmented_scored_and_never_asked_again(folder: Path, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "work")
    workspace.config = {
        "models": {
            "tiny": {
                "identity": {"backend": "clipseg", "weights": str(folder)},
                "exec": {"env": "torch"},
                "formats": {"masks": {"notation": "rle"}},
            }
        },
        "run": {"models": ["tiny"], "benchmarks": ["sample-masks"], "limit": 6},
    }
    workspace.run()
    lines = workspace.read("results/predictions/tiny/sample-masks/val.jsonl").split("\n")[:-1]
    assert Counter(json.loads(line)["status"] for line in lines) == {"ok": 6}
    metrics = workspace.metrics("tiny", "sample-masks", "val")
    assert (metrics["n"], metrics["weights"]) == (6, [local.folder_digest(folder)])
    assert metrics["official"]["mean_iou"] > 0
    assert workspace.run().jobs == Counter()
    workspace.run("--forcerun", "infer_tiny")
    log = workspace.read("results/logs/infer_tiny/sample-masks/val.log")
    assert "6 requests, 0 to ask" in log
    assert "weights:" not in log  # the model is not even loaded
