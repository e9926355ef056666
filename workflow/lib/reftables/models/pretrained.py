"""Models of transformers from a folder on this machine: whole or not at all, from safetensors only."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from huggingface_hub.errors import StrictDataclassError
from numpy.typing import NDArray
from PIL.Image import Resampling, fromarray
from safetensors import SafetensorError

from reftables.errors import DataError, preview
from reftables.models import local
from reftables.models.job import Job

if TYPE_CHECKING:
    from PIL.Image import Image

# transformers checks its files by using them, so a broken or foreign one shows as whatever its use runs into.
LOADING_ERRORS = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ImportError,  # names the package that the folder's classes need
    RuntimeError,  # say weights of other sizes than the config has
    SafetensorError,  # say the pointer that Git LFS leaves in place of a file
    StrictDataclassError,  # a setting of another type
)


class Place(NamedTuple):
    """Where a model is read from, which weights are there, and how and where it is to run."""

    folder: Path
    version: str
    dtype: str
    device: str


def find_place(job: Job, *, code: bool = False) -> Place:
    """Weights and device of a job, said in the log; with `code`, Python files beside the weights are fetched too."""
    dtype, _ = local.read_precision(job)
    device = local.choose_device(job)
    weights = local.find_weights(job, code=code)
    print(f"weights: {weights.folder}, version {weights.version}; {dtype} on {device}", flush=True)
    local.forbid_tf32()
    return Place(weights.folder, weights.version, dtype, device)


@contextmanager
def loading(folder: Path, lacks: str) -> Iterator[None]:
    """DataError, which says what the folder `lacks`, where what stands in the block cannot load its files.

    Nothing but loading may stand there: these errors are faults of the folder there, elsewhere of the code.
    """
    try:
        yield
    except LOADING_ERRORS as error:
        raise DataError(f"{folder}: {lacks}: {error} ({type(error).__name__}).") from error


def load_model(model_class: Any, place: Place, *, name: str, **options: Any) -> Any:
    """The model at `place`, ready to answer; DataError, which calls it `name`, where weights are missing."""
    folder = place.folder
    if not (folder / "config.json").is_file():  # transformers would take the largest model of the class
        raise DataError(f"{folder}: no config.json of {name} here.")
    with loading(folder, f"no weights of {name} as safetensors here, or none that fit its config.json"):
        model, report = model_class.from_pretrained(
            folder,
            dtype=getattr(torch, place.dtype),
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
            **options,
        )
    if missing := sorted(report["missing_keys"]):
        raise DataError(f"{folder}: {len(missing):,} weights of {name} are missing: {preview(missing)}.")
    # Files of the hub may hold tables that are computed nowadays; but so looks a config with too few layers.
    if unexpected := sorted(report["unexpected_keys"]):
        print(
            f"warning: {folder}: {len(unexpected):,} of its weights have no place in the {name} of its config.json "
            f"and are left out: {preview(unexpected)}.",
            file=sys.stderr,
        )
    return _move(model.eval(), place)


def _move(model: Any, place: Place) -> Any:
    try:
        return model.to(place.device)
    except RuntimeError as error:
        if not local.is_out_of_memory(error):
            raise
        raise DataError(
            f"{place.folder}: too large for the memory of {place.device}. Choose another device, or a smaller "
            "identity.dtype."
        ) from error


def square_pixels(
    image: "Image", side: int, *, resampling: Resampling, mean: Sequence[float], deviation: Sequence[float]
) -> NDArray[np.float32]:
    """A whole RGB image as a square, its values from 0 to 1 normalised by channel, (3, side, side)."""
    square = np.asarray(image.resize((side, side), resampling), dtype=np.float32) / 255
    means, deviations = np.array([mean, deviation], dtype=np.float32)
    pixels: NDArray[np.float32] = ((square - means) / deviations).transpose(2, 0, 1)
    return pixels


def makes_pixels(
    folder: Path, images: Any, official: Callable[["Image", int], NDArray[np.float32]], side: int | None = None
) -> bool:
    """Whether an image processor shows its model an image as `official` does, at `side` or at the side it has itself.

    DataError where the settings of the processor, which come from `folder`, make no pixels at all.
    """
    ramp = np.arange(60 * 90 * 3, dtype=np.uint32).reshape(60, 90, 3)
    image = fromarray((ramp * 37 % 256).astype(np.uint8))
    with loading(folder, "the settings of its image processor can't be used"):
        pixels = images(image, return_tensors="np")["pixel_values"][0]
    expected = official(image, side or pixels.shape[-1])
    return pixels.shape == expected.shape and bool(np.abs(pixels - expected).max() <= 1e-5)
