"""What the backends share that run a model on this machine: weights, device, images, batches.

`identity.weights` names a model of the Hugging Face hub, then `identity.revision` (best a full commit) says
which one; or it is a folder with the weights, which is known by its content (`bundled:NAME` is a folder
that comes with the workflow). `exec.weights_folder` is a copy of the hub's weights on this machine, for work
without a network.

Float32 gives the same answers on every device, up to ties that no rounding decides; half precision does
not, so there the kind of device is part of the identity.
"""

import hashlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from reftables.errors import ConfigError, DataError
from reftables.fingerprint import fingerprint
from reftables.models.checks import read_count
from reftables.models.job import Job
from reftables.pictures import PictureError, load_rgb
from reftables.rows import Prediction, Request, Status

if TYPE_CHECKING:
    from PIL import Image

T = TypeVar("T")

REQUIRED = frozenset({"weights"})
OPTIONAL = frozenset(
    {
        "revision",  # of the weights in the hub; must not be there where `weights` is a folder
        "dtype",  # float32 unless given
        "device",  # its kind: cpu, cuda, mps; a must in half precision
    }
)
EXECUTION = frozenset(
    {
        "batch_size",
        "device",  # cpu, cuda, cuda:1 and so on, mps; the first GPU, else the processor, unless given
        "weights_folder",  # copy of the hub's weights
    }
)

BUNDLED = "bundled:"
BUNDLED_FOLDER = Path(__file__).parents[4] / "models"

DTYPES = ("float32", "bfloat16", "float16")
DEVICES = ("cpu", "cuda", "mps")
_DEVICE = re.compile(r"cpu|mps|cuda(:\d+)?")
# Never pickles: a file of weights must not be able to run code.
_WEIGHT_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
_COMMIT = re.compile("[0-9a-f]{40}")
# What the errors of torch say when memory is too small; only one of them has a class of its own.
_EXHAUSTED = ("out of memory", "DefaultCPUAllocator", "CUBLAS_STATUS_ALLOC_FAILED")


class SampleError(DataError):
    """A fault of one request by itself, whose image the message names: the others can be answered."""


class Weights(NamedTuple):
    """Where the weights lie, and which they are: the commit in the hub, or the digest of the folder."""

    folder: Path
    version: str


def check(job: Job) -> None:
    """ConfigError where a key that these backends share cannot be; no device is looked for, nothing is loaded."""
    own, copy = _own_folder(job.identity, job.model), _copy_folder(job)
    if own is not None and copy is not None:
        raise ConfigError(
            f"models.{job.model}.exec.weights_folder: {copy} is no copy of {own}, which identity.weights names: "
            "that is a folder itself. Leave one of the two out."
        )
    _read_device(job)


def answer_files(identity: Mapping[str, Any], *, model: str, benchmark: str, split: str) -> list[str]:
    """The folder of the weights with a slash at its end, where they come from none of the hub's models."""
    folder = _own_folder(identity, model)
    return [] if folder is None else [f"{folder}/"]


def decides(job: Job, module: str) -> dict[str, Any]:
    """The part of the store's key that all requests of a job share; `module` is the backend's full name."""
    dtype, device = read_precision(job)
    folder = _own_folder(job.identity, job.model)
    named = [job.identity["weights"], job.identity["revision"]] if folder is None else [folder_digest(folder)]
    return {"weights": named, "dtype": dtype, "device": device, "code": _code(module)}


@cache
def _code(module: str) -> str:
    return fingerprint([module])


def require_torch(job: Job) -> None:
    """ConfigError where the extra `torch` is not installed."""
    if missing := [name for name in ("torch", "transformers") if find_spec(name) is None]:
        raise ConfigError(
            f"models.{job.model}.identity.backend: {job.identity['backend']} needs {' and '.join(missing)}. "
            "Install requirements-torch.txt, or set exec.env: torch and run with --sdm conda."
        )


def read_precision(job: Job) -> tuple[str, str | None]:
    """`identity.dtype` and `identity.device`: half precision rounds differently on every kind of device."""
    key = f"models.{job.model}.identity"
    dtype, device = job.identity.get("dtype", "float32"), job.identity.get("device")
    if dtype not in DTYPES:
        raise ConfigError(f"{key}.dtype: {dtype!r} is none; choose from {', '.join(DTYPES)}.")
    if device is not None and device not in DEVICES:
        raise ConfigError(f"{key}.device: {device!r} is none; choose from {', '.join(DEVICES)}.")
    if dtype != "float32" and device is None:
        raise ConfigError(f"{key}.device: {dtype} answers differently on cpu, cuda and mps. Say on which it runs.")
    return dtype, device


def choose_device(job: Job) -> str:
    """The device to run on, as torch names it; ConfigError where this machine has none such."""
    import torch

    device = _read_device(job) or ("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, number = device.partition(":")
    key = f"models.{job.model}.exec.device"
    if kind == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"{key}: torch finds no GPU here. Install its CUDA build, or choose cpu.")
    if number and int(number) >= torch.cuda.device_count():
        raise ConfigError(f"{key}: there is no {device}; the last of the GPUs here is {torch.cuda.device_count() - 1}.")
    if kind == "mps" and not torch.backends.mps.is_available():
        raise ConfigError(f"{key}: torch finds no mps here, which only a Mac has. Choose cpu or cuda.")
    return device


def _read_device(job: Job) -> str | None:
    """`exec.device`, else the kind that the identity asks for; None where neither is given."""
    _, kind = read_precision(job)
    device = job.execution.get("device")
    key = f"models.{job.model}.exec.device"
    if device is None:
        return kind
    if not isinstance(device, str) or not _DEVICE.fullmatch(device):
        raise ConfigError(f"{key}: {device!r} is none; choose cpu, cuda, one GPU of several as cuda:1, or mps.")
    if kind is not None and device.partition(":")[0] != kind:
        raise ConfigError(f"{key}: {device} is no {kind}, which identity.device asks for.")
    return device


def forbid_tf32() -> None:
    """Keep float32 float32: by default a GPU convolves with mantissas of ten bits."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


def read_batch_size(job: Job, default: int) -> int:
    """`exec.batch_size`."""
    return read_count(f"models.{job.model}.exec.batch_size", job.execution.get("batch_size", default), "requests")


def find_weights(job: Job, *, code: bool = False) -> Weights:
    """The weights of a job on this machine, downloaded from the hub where neither a copy nor its cache has them.

    With `code`, Python files that come with them are fetched as well.
    """
    own = _own_folder(job.identity, job.model)
    if own is not None:
        return Weights(own, folder_digest(own))
    copy = _copy_folder(job)
    if copy is not None:
        return _copied_weights(copy, job)
    from huggingface_hub import snapshot_download

    name, revision = job.identity["weights"], job.identity["revision"]
    wanted = [*_WEIGHT_FILES, "*.py"] if code else _WEIGHT_FILES
    try:
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=wanted))
    except (OSError, ValueError) as error:  # the hub's errors are OSErrors, a malformed name is a ValueError
        raise DataError(
            f"models.{job.model}.identity.weights: {name} at {revision} can't be had: {error} "
            "Check name and revision, or give a copy by exec.weights_folder."
        ) from error
    return Weights(folder, folder.name)


def _copied_weights(copy: Path, job: Job) -> Weights:
    """The weights in `exec.weights_folder`, by their commit only where the hub's cache vouches for it.

    The cache names its folders by model and commit. What another folder holds nobody can tell, so it is
    known by its content, whatever the revision says.
    """
    name, revision = job.identity["weights"], job.identity["revision"]
    key = f"models.{job.model}.exec.weights_folder"
    if not copy.is_dir():
        raise DataError(f"{key}: {copy} is no folder. Copy the weights there, or leave the key out.")
    *_, model, snapshots, commit = ("", "", *copy.resolve().parts)
    is_commit = _COMMIT.fullmatch(commit) is not None
    if is_commit and _COMMIT.fullmatch(revision) and commit != revision:
        raise DataError(f"{key}: {copy} holds commit {commit}, but identity.revision is {revision}.")
    in_cache = (model, snapshots) == (f"models--{name.replace('/', '--')}", "snapshots")
    return Weights(copy, commit if is_commit and in_cache else folder_digest(copy))


def _copy_folder(job: Job) -> Path | None:
    """`exec.weights_folder`; None where it is not given."""
    folder = job.execution.get("weights_folder")
    if folder is None:
        return None
    if not isinstance(folder, str) or not folder:
        raise ConfigError(f"models.{job.model}.exec.weights_folder: {folder!r} is no path of a folder.")
    return Path(folder)


def _own_folder(identity: Mapping[str, Any], model: str) -> Path | None:
    """The folder that `identity.weights` names; None where it is a name of the hub."""
    weights, revision = identity["weights"], identity.get("revision")
    key = f"models.{model}.identity"
    if not isinstance(weights, str) or not weights:
        raise ConfigError(f"{key}.weights: {weights!r} is neither a name of the hub nor a folder.")
    folder = BUNDLED_FOLDER / weights.removeprefix(BUNDLED) if weights.startswith(BUNDLED) else Path(weights)
    if folder.is_dir():
        if revision is not None:
            raise ConfigError(f"{key}.revision: {weights} is a folder, which is known by its content. Leave it out.")
        return folder
    if weights.startswith((BUNDLED, "/", ".", "~")):
        raise ConfigError(f"{key}.weights: there is no folder {folder}.")
    if not isinstance(revision, str) or not revision:
        raise ConfigError(
            f"{key}.revision: {weights} is no folder, so a model of the hub; name its revision, in quotes, "
            "best the full commit."
        )
    return None


@cache
def folder_digest(folder: Path) -> str:
    """sha256 of the names and contents of all files of a folder; hidden ones don't count."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and not any(part.startswith(".") for part in name.parts):
            with path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
            digest.update(f"{name.as_posix()}\0{content}\n".encode())
    return digest.hexdigest()


def read_image(path: str) -> "Image.Image":
    """The image at `path` in RGB; SampleError where it cannot be read."""
    try:
        return load_rgb(path)
    except PictureError as error:
        raise SampleError(f"{path}: not a readable image ({error}). Get it anew.") from error


def answer_in_batches(
    requests: Sequence[Request], size: int, answer: Callable[[Sequence[Request]], Sequence[T]]
) -> Iterator[T | Prediction]:
    """`answer` of at most `size` requests at a time, in order.

    A request that is at fault by itself gets a prediction that says so. A batch that the memory is too small
    for is halved, and all after it are no larger; DataError where it is too small for one request.
    """
    start = 0
    while start < len(requests):
        batch = requests[start : start + size]
        answers = _within_memory(answer, batch)
        if answers is None:
            size = len(batch) // 2
            print(f"out of memory with {len(batch):,} requests at once: going on with {size:,}", file=sys.stderr)
        else:
            start += len(batch)
            yield from answers


def _within_memory(
    answer: Callable[[Sequence[Request]], Sequence[T]], batch: Sequence[Request]
) -> Sequence[T | Prediction] | None:
    """The answers of a batch; None where the memory is too small for more than one request."""
    import torch

    try:
        return _without_faults(answer, batch)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        if len(batch) == 1:
            raise DataError(
                f"{batch[0].image}: out of memory with this request alone, id {batch[0].id} ({_first_line(error)}). "
                "Choose a device with more memory, or a smaller identity.dtype."
            ) from error
    torch.cuda.empty_cache()  # after the handler, when the traceback no longer keeps the tensors
    return None


def _without_faults(
    answer: Callable[[Sequence[Request]], Sequence[T]], batch: Sequence[Request]
) -> Sequence[T | Prediction]:
    """The answers of a batch; halved as long as a request in it is at fault, until that one is alone."""
    try:
        return answer(batch)
    except SampleError as error:
        if len(batch) == 1:
            return [_failed(batch[0], error)]
    middle = len(batch) // 2
    return [*_without_faults(answer, batch[:middle]), *_without_faults(answer, batch[middle:])]


def _failed(request: Request, error: SampleError) -> Prediction:
    """The prediction of a request that cannot be answered; said at once, since the job goes on until its end."""
    reason = " ".join(str(error).split())
    print(f"request {request.id} can't be answered: {reason}", file=sys.stderr)
    return Prediction(id=request.id, status=Status.ERROR, finish_reason=reason)


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error of torch or Python means that memory was too small."""
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in _EXHAUSTED)


def _first_line(error: Exception) -> str:
    """Of an error's text, without what torch adds about its own source."""
    return str(error).partition("\n")[0] or type(error).__name__


def with_progress(predictions: Iterator[Prediction], total: int, job: Job) -> Iterator[Prediction]:
    """`predictions`, counted on the terminal or in the log."""
    from tqdm import tqdm

    yield from tqdm(
        predictions,
        total=total,
        desc=f"{job.model} {job.benchmark} {job.split}",
        unit="request",
        mininterval=0.5 if sys.stderr.isatty() else 15,
    )
