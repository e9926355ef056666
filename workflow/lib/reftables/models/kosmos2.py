"""Kosmos-2 through transformers, on this machine: boxes as the authors' evaluation asks for them.

The official settings: the image at 224 x 224 without crop; greedy; no three tokens twice; at most 500
tokens with prompt and image, to which transformers counts one more. The answers are those of `generate`
at batch size 1, whatever the batch size and the order (see `kosmos2_decoding`), so `batch_size` and, in
float32, the device are `exec` keys. bfloat16 and float16 are faster and answer a few percent otherwise,
by chance also with another batch size: of a batch and of one by one, the tests ask for nine equal answers
in ten.

Most answers are a box, some ten tokens. So all requests are decoded up to `FIRST_TOKENS` new tokens, and
those still unfinished then once more, together, up to `max_length`. An image is seen once for all its
phrases, and once more at most for those unfinished.

Source: microsoft/unilm, kosmos-2/evaluation/README.md and refcoco.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from reftables.files import VERBATIM_PROMPT
from reftables.models import local
from reftables.models.checks import read_count
from reftables.models.job import Job
from reftables.rows import Prediction, Request, Status, Task

if TYPE_CHECKING:
    from reftables.models.kosmos2_decoding import Decoded, Tensor
    from reftables.models.kosmos2_model import Kosmos2

READS_TRUTH = False
LOOKS = True
STORED = True
WRITES_FORMAT = False
TASKS = frozenset({Task.BOXES, Task.POINTS, Task.MASKS})
REQUIRED = local.REQUIRED
OPTIONAL = local.OPTIONAL | {"max_length"}  # tokens of prompt, image and answer; 501 unless given
EXECUTION = local.EXECUTION

MAX_LENGTH = 501
FIRST_TOKENS = 32
BATCH_SIZE = 32

answer_files = local.answer_files


def check(job: Job) -> None:
    """ConfigError where identity or execution cannot be."""
    local.check(job)
    local.read_batch_size(job, BATCH_SIZE)
    _max_length(job)


def decides(request: Request, job: Job, image_digest: str) -> dict[str, Any]:
    """Weights, decoding and code, the text asked, the image by its digest."""
    return {
        **local.decides(job, __name__),
        "max_length": _max_length(job),
        "text": prompt_text(request.text, job),
        "image": image_digest,
    }


def predict(requests: Sequence[Request], job: Job) -> Iterator[Prediction]:
    """Answers image by image, the short ones first."""
    local.require_torch(job)
    if not requests:
        return iter(())
    from reftables.models.kosmos2_model import load

    batch_size = local.read_batch_size(job, BATCH_SIZE)
    model = load(job, _max_length(job))
    texts = [prompt_text(request.text, job) for request in requests]
    prompts = map(_Prompt, texts, model.encode(texts))
    prompt_of = {request.id: prompt for request, prompt in zip(requests, prompts, strict=True)}
    in_order = sorted(requests, key=lambda request: (request.image, len(prompt_of[request.id].tokens)))
    predictions = _Grounder(model, prompt_of).answer_all(in_order, batch_size)
    return local.with_progress(predictions, len(requests), job)


def prompt_text(text: str, job: Job) -> str:
    """The text that the model reads: a Kosmos request as it stands, any other text as the phrase to ground."""
    return text if job.form.prompt == VERBATIM_PROMPT else f"<grounding><phrase>{text}</phrase>"


def _max_length(job: Job) -> int:
    return read_count(f"models.{job.model}.identity.max_length", job.identity.get("max_length", MAX_LENGTH), "tokens")


class _Prompt(NamedTuple):
    """What is asked: as the text that it came as, and as the model reads it, the image before the text."""

    text: str
    tokens: list[int]


class _Sight(NamedTuple):
    """What the model saw of an image."""

    pixels: "Tensor"
    prefix: "Tensor"


class _Grounder:
    """A loaded model with the prompts of a job, and the images that it saw last."""

    def __init__(self, model: "Kosmos2", prompts: Mapping[int, _Prompt]) -> None:
        self._model = model
        self._prompts = prompts
        self._seen: dict[str, _Sight] = {}

    def answer_all(self, requests: Sequence[Request], batch_size: int) -> Iterator[Prediction]:
        """One prediction a request; those that end early first."""
        for most in (FIRST_TOKENS, self._model.max_length):
            unfinished = []
            for found in local.answer_in_batches(requests, batch_size, partial(self._answer, most=most)):
                if isinstance(found, Prediction):
                    yield found
                else:
                    unfinished.append(found)
            requests = unfinished

    def _answer(self, batch: Sequence[Request], most: int) -> list[Prediction | Request]:
        """The prediction of each request, or the request again where it wants more than `most` new tokens."""
        decoded = zip(batch, self._decode(batch, most), strict=True)
        return [
            self._prediction(request, found) if self._ends(request, found) else request for request, found in decoded
        ]

    def _ends(self, request: Request, decoded: "Decoded") -> bool:
        """Whether the answer is complete, or has no room for another token."""
        length = len(self._prompts[request.id].tokens) + len(decoded.tokens)
        return decoded.stopped or length >= self._model.max_length

    def _decode(self, batch: Sequence[Request], most: int) -> list["Decoded"]:
        prompts = [self._prompts[request.id].tokens for request in batch]
        for request, prompt in zip(batch, prompts, strict=True):
            if self._model.is_empty(prompt):  # a model asked nothing answers, and what it answers means nothing
                raise local.SampleError(f"{request.image}: its request has no text. Write what to find.")
        self._look_at(list(dict.fromkeys(request.image for request in batch)))
        sights = [self._seen[request.image] for request in batch]
        found = self._model.decoder.decode(prompts, [sight.prefix for sight in sights], most)
        return [
            self._model.decoder.decode_alone(prompt, sight.pixels) if decoded.near_tie else decoded
            for prompt, sight, decoded in zip(prompts, sights, found, strict=True)
        ]

    def _look_at(self, images: Sequence[str]) -> None:
        """Have all `images` seen; of those seen before, only they are kept."""
        self._seen = {image: self._seen[image] for image in images if image in self._seen}
        fresh = [image for image in images if image not in self._seen]
        if fresh:
            pixels = self._model.look([local.read_image(image) for image in fresh])
            sights = zip(pixels.split(1), self._model.decoder.read_images(pixels), strict=True)
            self._seen |= {image: _Sight(*sight) for image, sight in zip(fresh, sights, strict=True)}

    def _prediction(self, request: Request, decoded: "Decoded") -> Prediction:
        prompt = self._prompts[request.id]
        return Prediction(
            id=request.id,
            status=Status.OK if decoded.stopped else Status.TRUNCATED,
            text=self._model.write(prompt.text, prompt.tokens, decoded.tokens),
            finish_reason="stop" if decoded.stopped else "length",
            tokens_in=len(prompt.tokens),
            tokens_out=len(decoded.tokens) + decoded.stopped,
            weights=self._model.version,
        )
