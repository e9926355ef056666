"""Models of transformers from a folder on this machine: whole or not at all, from safetensors only."""

from pathlib import Path
from typing import Any

import torch

from reftables.errors import DataError, preview


def load_model(model_class: Any, folder: Path, dtype: str, device: str, *, name: str, **options: Any) -> Any:
    """The model in `folder`, ready to answer; DataError, which calls it `name`, where weights are missing."""
    try:
        model, loading = model_class.from_pretrained(
            folder,
            dtype=getattr(torch, dtype),
            use_safetensors=True,
            local_files_only=True,
            output_loading_info=True,
            **options,
        )
    except (OSError, ValueError) as error:  # a ValueError where the config is that of another kind of model
        raise DataError(f"{folder}: no weights of {name} as safetensors here: {error}") from error
    if missing := sorted(loading["missing_keys"]):
        raise DataError(f"{folder}: {len(missing):,} weights of {name} are missing: {preview(missing)}.")
    return model.eval().to(device)
