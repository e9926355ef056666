"""Kosmos-2 at its true size with random weights: batches with shared image prefixes against `generate` one by one.

    PYTHONPATH=workflow/lib:. python -m tests.speed.bench_kosmos2 [--images 2] [--phrases 7] [--dtype float32]

Needs the extra `torch`, 7 GB of memory for the weights (half of it in bfloat16) and some minutes. Both ways see the
same pixels and prompts in one process. The weights mean nothing, so answers end by their limit, after as many tokens
as one box takes. Prints samples a second, their ratio (wanted: 2.5 or more in float32), whether all tokens are the
same, how far a batch moves the logits (the margin of near ties must be well above), and the memory at its peak.
"""

import argparse
import random
import resource
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec

if find_spec("torch") is None or find_spec("transformers") is None:
    print("not measured: needs torch and transformers (make bench EXTRAS=torch)")
    sys.exit()

import torch
from transformers import Kosmos2Config, Kosmos2ForConditionalGeneration

from reftables.models.kosmos2_decoding import NEAR, Decoded, Decoder

PREFIX = [0, 64003, *range(4, 68), 64004]
GROUNDING, PHRASE, PHRASE_END = 64012, 64007, 64008
NEW_TOKENS = 6  # <object>, two cells, </object>, and the end; one more for good measure


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--images", type=int, default=2)
    options.add_argument("--phrases", type=int, default=7, help="of each image; the real splits have 5 to 9")
    options.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    args = options.parse_args()
    model = random_model(getattr(torch, args.dtype))
    print(f"{sum(weight.numel() for weight in model.parameters()):,} weights, {torch.get_num_threads()} threads")
    pixels = torch.randn(args.images, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    shown = [image for image in range(args.images) for _ in range(args.phrases)]
    prompts = draw_prompts(len(shown))
    Decoder(model, PREFIX, 90).read_images(pixels[:1])  # the first call of a kernel is slow
    start = time.perf_counter()
    batch, near_ties = decode_as_batch(model, pixels, shown, prompts)
    together = time.perf_counter() - start
    start = time.perf_counter()
    singles = [decode_alone(model, pixels[[image]], prompt) for image, prompt in zip(shown, prompts, strict=True)]
    alone = time.perf_counter() - start
    same = sum(one.tokens == other.tokens for one, other in zip(batch, singles, strict=True))
    n = len(prompts)
    print(f"{n} samples of {args.images} images, {NEW_TOKENS} new tokens each, {args.dtype}")
    print(f"one by one {n / alone:.3f} samples/s, as a batch {n / together:.3f}: {alone / together:.2f} times faster")
    print(f"the same tokens: {same} of {n}; near ties, decoded alone within the batch's time: {near_ties}")
    print(f"a batch moves logits by {logits_moved(model, pixels, shown, prompts):.1e} of the best; near is {NEAR:.1e}")
    print(f"memory at its peak: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GB")


def random_model(dtype: torch.dtype) -> Kosmos2ForConditionalGeneration:
    torch.manual_seed(0)
    torch.set_default_dtype(dtype)
    model = Kosmos2ForConditionalGeneration(Kosmos2Config()).eval()
    torch.set_default_dtype(torch.float32)
    return model


def draw_prompts(number: int) -> list[list[int]]:
    """Prompts whose phrases have 2 to 7 words, as the real ones mostly do."""
    draw = random.Random(0)
    phrases = [[draw.randrange(68, 64000) for _ in range(draw.randint(2, 7))] for _ in range(number)]
    return [[*PREFIX, GROUNDING, PHRASE, *phrase, PHRASE_END] for phrase in phrases]


def decode_as_batch(
    model: Kosmos2ForConditionalGeneration, pixels: torch.Tensor, shown: Sequence[int], prompts: Sequence[list[int]]
) -> tuple[list[Decoded], int]:
    """The answers as the backend makes them, near ties decoded anew alone, and how many were such."""
    decoder = Decoder(model, PREFIX, 501)
    prefixes = decoder.read_images(pixels)
    batch = decoder.decode(prompts, [prefixes[image] for image in shown], NEW_TOKENS)
    rows = zip(shown, prompts, batch, strict=True)
    answers = [
        decode_alone(model, pixels[[image]], prompt) if decoded.near_tie else decoded for image, prompt, decoded in rows
    ]
    return answers, sum(decoded.near_tie for decoded in batch)


def decode_alone(model: Kosmos2ForConditionalGeneration, pixels: torch.Tensor, prompt: list[int]) -> Decoded:
    return Decoder(model, PREFIX, len(prompt) + NEW_TOKENS).decode_alone(prompt, pixels)


def logits_moved(
    model: Kosmos2ForConditionalGeneration, pixels: torch.Tensor, shown: Sequence[int], prompts: Sequence[list[int]]
) -> float:
    """The largest change of a first token's logit between a batch and one prompt alone, as a share of the best."""
    seen: list[torch.Tensor] = []
    hook = model.text_model.lm_head.register_forward_hook(lambda _, __, logits: seen.append(logits[:, -1].float()))
    decoder = Decoder(model, PREFIX, 501)
    prefixes = decoder.read_images(pixels)
    decoder.decode(prompts, [prefixes[image] for image in shown], 1)
    together = seen.pop()
    Decoder(model, PREFIX, len(prompts[0]) + 1).decode_alone(prompts[0], pixels[[shown[0]]])
    hook.remove()
    (alone,) = seen.pop()
    return float((together[0] - alone).abs().max() / alone.abs().max())


if __name__ == "__main__":
    main()
