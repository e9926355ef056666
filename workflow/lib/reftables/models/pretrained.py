"""Models of transformers from a folder on this machine: whole or not at all, from safetensors only."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError

from reftables.errors import DataError, preview
from reftables.models.local import is_out_of_memory

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


@contextmanager
def loading(folder: Path, lacks: str) -> Iterator[None]:
    """DataError, which says what the folder `lacks`, where what stands in the block cannot load its files.

    Nothing but loading may stand there: these errors are faults of the folder there, elsewhere of the code.
    """
    try:
        yield
    except LOADING_ERRORS as error:
        raise DataError(f"{folder}: {lacks}: {error} ({type(error).__name__}).") from error


def load_model(model_class: Any, folder: Path, dtype: str, device: str, *, name: str, **options: Any) -> Any:
    """The model in `folder`, ready to answer; DataError, which calls it `name`, where weights are missing."""
    if not (folder / "config.json").is_file():  # transformers would take the largest model of the class
        raise DataError(f"{folder}: no config.json of {name} here.")
    with loading(folder, f"no weights of {name} as safetensors here, or none that fit its config.json"):
        model, report = model_class.from_pretrained(
            folder,
            dtype=getattr(torch, dtype),
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
    return _move(model.eval(), device, folder)


def _move(model: Any, device: str, folder: Path) -> Any:
    try:
        return model.to(device)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise DataError(
            f"{folder}: too large for the memory of {device}. Choose another device, or a smaller identity.dtype."
        ) from error
