"""CLIPSeg at its true size with random weights: the image seen once for its captions against the model one by one.

    PYTHONPATH=workflow/lib:. python -m tests.speed.bench_clipseg [--images 2] [--captions 8] [--threads N]

Needs the extra `torch`, 1 GB of memory and a minute. Both ways see the same pixels and tokens in one process and make
the same masks of 640 x 480 pixels. The weights mean nothing. Prints captions a second, their ratio (wanted: 4 or more
with eight captions an image), whether all logits are exactly the same, and what a batch of captions would bring.
"""

import argparse
import random
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

if find_spec("torch") is None or find_spec("transformers") is None:
    print("not measured: needs torch and transformers (make bench EXTRAS=torch)")
    sys.exit()

import numpy as np
import torch
from PIL import Image
from transformers import CLIPSegConfig, CLIPSegForImageSegmentation, ViTImageProcessorPil
from transformers.image_utils import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD

from reftables import rle
from reftables.models.clipseg_model import ClipSeg, segment

SIZE_HW = (480, 640)
BEGIN, END = 49406, 49407
THRESHOLD = 0.35


class Tokens:
    """In the place of a tokenizer: a text is its tokens already, written as numbers."""

    def __call__(self, text: str, **_: Any) -> dict[str, torch.Tensor]:
        return {"input_ids": torch.tensor([[BEGIN, *map(int, text.split()), END]])}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--images", type=int, default=2)
    options.add_argument("--captions", type=int, default=8, help="of each image")
    options.add_argument("--threads", type=int, default=1, help="more measure what else the machine does as well")
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    model = random_model()
    print(f"{sum(weight.numel() for weight in model.parameters()):,} weights, {args.threads} threads")
    images = ViTImageProcessorPil(size=352, image_mean=IMAGENET_DEFAULT_MEAN, image_std=IMAGENET_DEFAULT_STD)
    pictures = draw_pictures(args.images)
    captions = [draw_captions(args.captions, seed) for seed in range(args.images)]
    one_by_one(model, images, pictures[:1], [captions[0][:1]])  # the first call of a kernel is slow
    start = time.perf_counter()
    alone = one_by_one(model, images, pictures, captions)
    between = time.perf_counter()
    shared = seen_once(ClipSeg(model, images, Tokens(), "random"), pictures, captions)
    end = time.perf_counter()
    n, slow, fast = len(alone), between - start, end - between
    print(f"{args.images} images, {args.captions} captions each")
    print(f"one by one {n / slow:.2f} captions/s, image seen once {n / fast:.2f}: {slow / fast:.2f} times faster")
    same = sum(torch.equal(one, other) for one, other in zip(alone, shared, strict=True))
    print(f"exactly the same logits: {same} of {n}")
    report_batch(model, images, pictures[0], captions[0], alone[: args.captions], slow / args.images)


def random_model() -> CLIPSegForImageSegmentation:
    """As CIDAS/clipseg-rd64-refined is configured."""
    torch.manual_seed(0)
    config = CLIPSegConfig(vision_config={"patch_size": 16}, use_complex_transposed_convolution=True)
    return CLIPSegForImageSegmentation(config).eval()


def draw_pictures(number: int) -> list[Image.Image]:
    draw = np.random.default_rng(0)
    return [Image.fromarray(draw.integers(0, 256, (*SIZE_HW, 3), dtype=np.uint8)) for _ in range(number)]


def draw_captions(number: int, seed: int) -> list[str]:
    """Captions of 2 to 7 words, as the real ones mostly have."""
    draw = random.Random(seed)
    return [" ".join(str(draw.randrange(300, 49000)) for _ in range(draw.randint(2, 7))) for _ in range(number)]


def one_by_one(
    model: CLIPSegForImageSegmentation,
    images: Any,
    pictures: Sequence[Image.Image],
    captions: Sequence[Sequence[str]],
) -> list[torch.Tensor]:
    """The logits of every caption of every image, each by the whole model; masks are made and thrown away."""
    found = []
    for picture, texts in zip(pictures, captions, strict=True):
        for caption in texts:
            pixels = images(picture, return_tensors="pt")["pixel_values"]
            with torch.inference_mode():
                logits = model(**Tokens()(caption), pixel_values=pixels).logits.view(352, 352)
            rle.from_mask(segment(logits, SIZE_HW, THRESHOLD))
            found.append(logits)
    return found


def seen_once(model: ClipSeg, pictures: Sequence[Image.Image], captions: Sequence[Sequence[str]]) -> list[torch.Tensor]:
    """The same as the backend has it."""
    found = []
    for picture, texts in zip(pictures, captions, strict=True):
        sight = model.look(picture)
        for caption in texts:
            logits = model.logits(sight, caption)
            rle.from_mask(segment(logits, SIZE_HW, THRESHOLD))
            found.append(logits)
    return found


def report_batch(
    model: CLIPSegForImageSegmentation,
    images: Any,
    picture: Image.Image,
    captions: Sequence[str],
    alone: Sequence[torch.Tensor],
    alone_s: float,
) -> None:
    """How much faster an image's captions are as one batch, and by how much its logits are off."""
    start = time.perf_counter()
    sight = ClipSeg(model, images, Tokens(), "random").look(picture)
    texts = [Tokens()(caption)["input_ids"][0] for caption in captions]
    ids = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=END)
    with torch.inference_mode():
        # What follows the end of a text is never looked back at, so it needs no mask.
        embeddings = model.clip.get_text_features(ids).pooler_output
        states = [state.expand(len(captions), -1, -1) for state in sight.states]
        logits = model.decoder(states, embeddings).logits
    for one in logits:
        rle.from_mask(segment(one, SIZE_HW, THRESHOLD))
    seconds = time.perf_counter() - start
    moved = max(float((one - other).abs().max() / other.abs().max()) for one, other in zip(logits, alone, strict=True))
    print(
        f"as one batch: {alone_s / seconds:.2f} times faster than one by one, logits off by {moved:.1e} of the largest"
    )


if __name__ == "__main__":
    main()
