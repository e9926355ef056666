"""Torch is an extra: without it the package is imported and the workflow is read as ever."""

import subprocess
import sys
from pathlib import Path

import pytest

from reftables.models import BACKENDS

LATE = {"torch", "transformers", "huggingface_hub", "safetensors", "tokenizers"}


@pytest.mark.parametrize("backend", BACKENDS)
def test_importing_a_backend_imports_no_torch(backend: str, repository: Path):
    program = f"import sys, reftables.models.{backend}; print(*sorted({LATE} & set(sys.modules)))"
    library = repository / "workflow" / "lib"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=library, check=True)
    assert done.stdout.split() == []
