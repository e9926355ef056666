"""Chat models that see, through transformers on this machine: Qwen2.5-VL, Qwen3-VL, LLaVA, Idefics and others.

Any image-text-to-text model of transformers with a chat template. One request is one user message, the
image before the text, with a system message before it where `system` is given. Decoding is greedy, up to
`max_new_tokens`; what else the model's own `generation_config.json` asks for (stop tokens, a repetition
penalty) holds.

Only requests of one length in tokens share a batch, so nothing is filled up: that padding leaves a model's
answers as they are is not proven for any, and of one it is known to be wrong. In float32 the answers of a
batch are those of batch size 1, up to ties that no rounding decides, so `batch_size` is an `exec` key; half
precision rounds more coarsely, and a few answers may differ: the tests ask for nine equal ones in ten.

Where the image processor says the grid of patches that it makes of an image (`image_grid_thw`), the size
that the model saw is recorded; only such models can answer in `resized_pixels`.

Code that comes with the weights is run only where `trust_remote_code` says so and `revision` is a full
commit, so that nobody can change what is run.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from reftables.errors import ConfigError
from reftables.models import local
from reftables.models.checks import read_count
from reftables.models.job import Job
from reftables.rows import Prediction, Request, Status, Task

if TYPE_CHECKING:
    from reftables.models.vlm_model import Answer, ChatModel

READS_TRUTH = False
LOOKS = True
STORED = True
WRITES_FORMAT = False
TASKS = frozenset({Task.BOXES, Task.POINTS, Task.ANSWERS})
REQUIRED = local.REQUIRED
OPTIONAL = local.OPTIONAL | {
    "max_new_tokens",  # of an answer; 512 unless given
    "system",  # text of a system message
    "min_pixels",  # limits of the image that the model is shown, where its image processor has them
    "max_pixels",
    "trust_remote_code",
}
EXECUTION = local.EXECUTION

MAX_NEW_TOKENS = 512
BATCH_SIZE = 1

answer_files = local.answer_files


def check(job: Job) -> None:
    """ConfigError where the identity makes no request, or would run code that is not pinned."""
    local.check(job)
    local.read_batch_size(job, BATCH_SIZE)
    _decoding(job)


def decides(request: Request, job: Job, image_digest: str) -> dict[str, Any]:
    """Weights, decoding and code, the messages, the image by its digest and the limits of its size."""
    return {
        **local.decides(job, __name__),
        **_decoding(job),
        "text": request.text,
        "image": image_digest,
    }


def predict(requests: Sequence[Request], job: Job) -> Iterator[Prediction]:
    """Answers image by image; in batches by their length in tokens first."""
    local.require_torch(job)
    if not requests:
        return iter(())
    from reftables.models.vlm_model import load

    batch_size = local.read_batch_size(job, BATCH_SIZE)
    predictions = _answer_all(requests, load(job, **_decoding(job)), batch_size)
    return local.with_progress(predictions, len(requests), job)


def _answer_all(requests: Sequence[Request], model: "ChatModel", batch_size: int) -> Iterator[Prediction]:
    from reftables.models.vlm_model import Question

    read = lru_cache(batch_size)(local.read_image)
    in_order = sorted(requests, key=attrgetter("image"))
    if batch_size > 1:
        images = {path: _image_tokens(path, model) for path in dict.fromkeys(r.image for r in in_order)}
        in_order.sort(key=lambda request: images[request.image] + model.count_words(request.text))

    def predict_batch(batch: Sequence[Request]) -> list[Prediction]:
        answers = model.answer([Question(request.image, read(request.image), request.text) for request in batch])
        return [_prediction(request, answer, model.version) for request, answer in zip(batch, answers, strict=True)]

    return local.answer_in_batches(in_order, batch_size, predict_batch)


def _image_tokens(path: str, model: "ChatModel") -> int:
    """The length of a message with the image and no text; 0 where there is none, which is told in its turn."""
    try:
        return model.count_tokens(path, local.read_image(path))
    except local.SampleError:
        return 0


def _prediction(request: Request, answer: "Answer", version: str) -> Prediction:
    status = Status.OK if answer.text.strip() else Status.EMPTY
    return Prediction(
        id=request.id,
        status=status if answer.stopped else Status.TRUNCATED,
        text=answer.text,
        image_size=answer.seen_wh,
        finish_reason="stop" if answer.stopped else "length",
        tokens_in=answer.tokens_in,
        tokens_out=answer.tokens_out,
        weights=version,
    )


def _decoding(job: Job) -> dict[str, Any]:
    """What decides an answer beside weights, text and image, checked; the arguments of `vlm_model.load`."""
    return {
        "max_new_tokens": _count(job, "max_new_tokens", "tokens", MAX_NEW_TOKENS),
        "system": _system(job),
        "pixels": _pixels(job),
        "trust_remote_code": _trust(job),
    }


def _count(job: Job, name: str, unit: str, default: int | None) -> int | None:
    if name not in job.identity:
        return default
    return read_count(f"models.{job.model}.identity.{name}", job.identity[name], unit)


def _pixels(job: Job) -> dict[str, int]:
    """The limits that are given, by their names."""
    counts = {name: _count(job, name, "pixels", None) for name in ("min_pixels", "max_pixels")}
    limits = {name: count for name, count in counts.items() if count is not None}
    if len(limits) == 2 and limits["min_pixels"] > limits["max_pixels"]:
        raise ConfigError(f"models.{job.model}.identity.min_pixels: more than max_pixels.")
    return limits


def _system(job: Job) -> str | None:
    system = job.identity.get("system")
    if not isinstance(system, str | None):
        raise ConfigError(f"models.{job.model}.identity.system: {system!r} is no text.")
    return system


def _trust(job: Job) -> bool:
    """Whether code that comes with the weights may run."""
    trust, revision = job.identity.get("trust_remote_code", False), job.identity.get("revision")
    key = f"models.{job.model}.identity"
    if type(trust) is not bool:
        raise ConfigError(f"{key}.trust_remote_code: {trust!r} is neither true nor false.")
    # A folder is known by its content when it is read, not when its code was: only a commit says which code.
    if trust and local.answer_files(job.identity, model=job.model, benchmark=job.benchmark, split=job.split):
        raise ConfigError(
            f"{key}.trust_remote_code: code runs only from the hub, pinned by its commit; weights is a folder."
        )
    if trust and job.execution.get("weights_folder") is not None:
        raise ConfigError(
            f"{key}.trust_remote_code: code runs only from the hub, pinned by its commit; nothing says that the code "
            "in exec.weights_folder is that. Leave one of the two out."
        )
    if trust and not (isinstance(revision, str) and re.fullmatch("[0-9a-f]{40}", revision)):
        raise ConfigError(
            f"{key}.trust_remote_code: {revision!r} can change under its name. Read the code, then make revision its "
            "full commit of 40 characters."
        )
    return trust
