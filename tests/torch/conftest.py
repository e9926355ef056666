"""Tiny models, made once a session. Without torch and transformers every module here is skipped, and says so."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from reftables.models.job import Job
from reftables.rows import AnswerFormat, Notation, Request, Task

if TYPE_CHECKING:
    from tests.torch.tiny_kosmos2 import Single

KOSMOS = AnswerFormat(notation=Notation.KOSMOS, coordinates=None, order=None, prompt="kosmos", grid=32)
COLOURS = ("red", "green", "blue", "white")
# Of all lengths; `two` and `every` begin answers of two and eleven boxes.
PHRASES = [
    "every old red chair on the left side of the table, next to two small boats and a green car",
    "mug",
    "two red cars",
    "blue plate left",
    "every dog",
    "an umpire & a catcher, seen from behind",
]


class _SkippedModule(pytest.Module):
    """A module that is not even imported."""

    def collect(self) -> Any:
        pytest.skip("needs torch and transformers: make test EXTRAS=torch", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if find_spec("torch") and find_spec("transformers"):
        return None
    return _SkippedModule.from_parent(parent, path=module_path)


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def kosmos2_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Kosmos-2 that answers in boxes: its files as in the hub."""
    from tests.torch.tiny_kosmos2 import save, taught_model, tiny_processor

    processor = tiny_processor()
    return save(tmp_path_factory.mktemp("weights") / "kosmos2", taught_model(processor), processor)


@pytest.fixture(scope="session")
def restless_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Kosmos-2 with random weights, whose answers never end by themselves."""
    from tests.torch.tiny_kosmos2 import random_model, save, tiny_processor

    processor = tiny_processor()
    return save(tmp_path_factory.mktemp("weights") / "restless", random_model(len(processor.tokenizer)), processor)


@pytest.fixture(scope="session")
def qwen_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen2.5-VL with random weights, as all chat models here."""
    from tests.torch import tiny_qwen

    return tiny_qwen.save(tmp_path_factory.mktemp("weights") / "qwen")


@pytest.fixture(scope="session")
def qwen3_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen3-VL."""
    from tests.torch import tiny_qwen

    return tiny_qwen.save(tmp_path_factory.mktemp("weights") / "qwen3", tiny_qwen.QWEN3)


@pytest.fixture(scope="session")
def llava_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LLaVA."""
    from tests.torch import tiny_llava

    return tiny_llava.save(tmp_path_factory.mktemp("weights") / "llava")


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The images that the tiny model has learnt to tell apart, of one size each."""
    from tests.torch.tiny_kosmos2 import plain_image

    folder = tmp_path_factory.mktemp("images")
    for number, colour in enumerate(COLOURS):
        plain_image(colour, (64 + 16 * number, 48)).save(folder / f"{number}.png")
    return [str(folder / f"{number}.png") for number in range(len(COLOURS))]


@pytest.fixture(scope="session")
def requests(images: list[str]) -> list[Request]:
    """Every phrase of every image, images in turn."""
    pairs = [(image, phrase) for phrase in PHRASES for image in images]
    return [
        Request(number, image, f"<grounding><phrase>{phrase}</phrase>") for number, (image, phrase) in enumerate(pairs)
    ]


def kosmos2_job(folder: Path, *, execution: dict[str, Any] | None = None, **identity: Any) -> Job:
    return Job(
        model="k2",
        benchmark="mine",
        split="val",
        task=Task.BOXES,
        form=KOSMOS,
        identity={"backend": "kosmos2", "weights": str(folder), **identity},
        execution=execution or {},
    )


@pytest.fixture(scope="session")
def one_by_one(kosmos2_folder: Path, requests: Sequence[Request]) -> "dict[int, Single]":
    """What a user of transformers gets for each request at batch size 1."""
    from tests.torch.tiny_kosmos2 import generate_one_by_one

    return generate_one_by_one(kosmos2_folder, requests)
