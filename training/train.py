"""Train the tiny Kosmos-2 from scratch and write it as transformers reads it.

    PYTHONPATH=workflow/lib python -m training.train --out models/kosmos-2-tiny

One thread trains, one process draws. The same seed gives the same weights on the same machine with the
same libraries, also after an interruption: with --checkpoint the run goes on where it stopped.
"""

import argparse
import json
import time
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.optim import AdamW, Muon, Optimizer
from torch.utils.data import DataLoader, Dataset
from transformers import Kosmos2ForConditionalGeneration, Kosmos2Processor

from reftables.kosmos import decode_pairs
from reftables.scoring.boxes import paired_iou
from training.model import answers, composed, first_weights, image_prefix, loss_of, make_processor
from training.scenes import GRID, Batch, examples_of, pack

_HIDDEN_RATE = 4e-3  # of Muon, for the matrices of the layers
_RATE = 1e-3  # of AdamW, for all else
_WARM_UP = 200  # steps
_FALL = 0.3  # share of the steps, the last ones, in which the rates fall to zero
_DECAY = 0.03  # of the matrices
_CLIP = 1.0
_AVERAGE = 0.998  # of the weight average, a step
_BLUR = 0.8  # cells by which a target spreads, at the start
_SHARP = 2000  # step from which targets are sharp
_CHECK_EVERY = 200  # steps
_CHECK_SEED = -1  # of scenes that no training seed draws
_CHECK_BATCHES = 6


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--out", type=Path, required=True, help="folder to write the model to")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--steps", type=int, default=2900)
    options.add_argument("--batch", type=int, default=32, help="images a step, eight expressions each")
    options.add_argument("--workers", type=int, default=1, help="processes that draw; 0: drawn between the steps")
    options.add_argument("--checkpoint", type=Path, help="file to go on from, written every few minutes")
    return options


class Steps(Dataset[Batch]):
    """Item i is the batch of step `steps[i]`; it depends on seed and step alone."""

    def __init__(self, processor: Kosmos2Processor, seed: int, size: int, steps: range) -> None:
        self._ids = processor.tokenizer.get_vocab()
        self._prefix = image_prefix(processor)
        self._seed, self._size, self._steps = seed, size, steps

    def __len__(self) -> int:
        return len(self._steps)

    def __getitem__(self, index: int) -> Batch:
        return pack(examples_of(self._seed, self._steps[index], self._size), self._ids, self._prefix)


class Run(NamedTuple):
    """What changes while training."""

    model: Kosmos2ForConditionalGeneration
    average: Kosmos2ForConditionalGeneration  # of the weights so far: what is kept in the end
    optimizers: tuple[Optimizer, ...]

    def save(self, path: Path, done: int) -> None:
        optimizers = [optimizer.state_dict() for optimizer in self.optimizers]
        partial = path.with_suffix(".partial")
        torch.save((done, self.model.state_dict(), self.average.state_dict(), optimizers), partial)
        partial.replace(path)

    def restore(self, path: Path) -> int:
        """Go back to a saved state; the number of steps done."""
        done, model, average, optimizers = torch.load(path)
        self.model.load_state_dict(model)
        self.average.load_state_dict(average)
        for optimizer, state in zip(self.optimizers, optimizers, strict=True):
            optimizer.load_state_dict(state)
        return int(done)


def begin(processor: Kosmos2Processor, seed: int) -> Run:
    model = first_weights(processor, seed)
    return Run(model, deepcopy(model).requires_grad_(False), make_optimizers(model))


def make_optimizers(model: nn.Module) -> tuple[Optimizer, ...]:
    """Muon for the matrices of the layers, which learn several times faster by it, AdamW for the rest."""
    hidden, rest = [], []
    for name, parameter in model.named_parameters():
        is_hidden = parameter.ndim == 2 and any(part in name for part in (".layers.", ".x_attn.", ".dense."))
        (hidden if is_hidden else rest).append(parameter)
    return (
        Muon(hidden, lr=_HIDDEN_RATE, weight_decay=_DECAY, adjust_lr_fn="match_rms_adamw"),
        AdamW(rest, lr=_RATE, betas=(0.9, 0.98), weight_decay=0.0),
    )


def train(
    processor: Kosmos2Processor, *, seed: int, steps: int, batch: int, workers: int = 0, checkpoint: Path | None = None
) -> tuple[Kosmos2ForConditionalGeneration, list[float]]:
    """The averaged weights after `steps` steps, and the loss of each step that this call made."""
    run = begin(processor, seed)
    done = run.restore(checkpoint) if checkpoint and checkpoint.exists() else 0
    held_out = [*Steps(processor, _CHECK_SEED, batch, range(_CHECK_BATCHES))]
    drawn = Steps(processor, seed, batch, range(done, steps))
    loader = DataLoader(drawn, batch_size=None, num_workers=workers, prefetch_factor=16 if workers else None)
    started, losses = time.monotonic(), []
    for step, examples in enumerate(loader, start=done):
        losses.append(train_step(run, examples, step, steps))
        if (step + 1) % _CHECK_EVERY == 0:
            half, strict = accuracies(run.average, held_out, (0.5, 0.75))
            print(
                f"step {step + 1:,}, {time.monotonic() - started:.0f} s: loss {np.mean(losses[-_CHECK_EVERY:]):.3f},"
                f" {half:.1%} of held-out boxes at IoU 0.5, {strict:.1%} at 0.75",
                flush=True,
            )
            if checkpoint:
                run.save(checkpoint, step + 1)
    return run.average, losses


def train_step(run: Run, batch: Batch, step: int, steps: int) -> float:
    """One step of the optimizers and of the average; the loss before it."""
    for optimizer, peak in zip(run.optimizers, (_HIDDEN_RATE, _RATE), strict=True):
        for group in optimizer.param_groups:
            group["lr"] = peak * rate(step, steps)
    with torch.autocast("cpu", torch.bfloat16):
        loss = loss_of(run.model, batch, blur=_BLUR * max(0.0, 1 - step / _SHARP))
    loss.backward()
    nn.utils.clip_grad_norm_(run.model.parameters(), _CLIP)
    for optimizer in run.optimizers:
        optimizer.step()
        optimizer.zero_grad()
    share = 1 - min(_AVERAGE, step / (step + 10))  # the first weights soon count for nothing
    for average, parameter in zip(run.average.parameters(), run.model.parameters(), strict=True):
        average.lerp_(parameter.detach(), share)
    return loss.item()


def rate(step: int, steps: int) -> float:
    """The learning rate's share of its peak: a ramp, a plateau, a straight fall to zero."""
    return min(1.0, (step + 1) / _WARM_UP, (steps - step) / (_FALL * steps))


def accuracies(
    model: Kosmos2ForConditionalGeneration, batches: Sequence[Batch], thresholds: Sequence[float]
) -> list[float]:
    """Shares of answers whose box overlaps the box of the true cells by at least each threshold."""
    with torch.autocast("cpu", torch.bfloat16):
        found = torch.cat([answers(model, batch) for batch in batches])
    true = torch.cat([batch.cells for batch in batches])
    boxes, truth = (decode_pairs(pairs.numpy().reshape(-1, 2), GRID).astype(np.float32) for pairs in (found, true))
    ious = paired_iou(boxes, truth)
    return [float((ious >= threshold).mean()) for threshold in thresholds]


def main(argv: Sequence[str] | None = None) -> None:
    args = parser().parse_args(argv)
    torch.set_num_threads(1)
    processor = make_processor()
    model, _ = train(
        processor,
        seed=args.seed,
        steps=args.steps,
        batch=args.batch,
        workers=args.workers,
        checkpoint=args.checkpoint,
    )
    write_model(model, processor, args.out)


def write_model(model: Kosmos2ForConditionalGeneration, processor: Kosmos2Processor, folder: Path) -> None:
    """The files that transformers loads, weights in half precision."""
    composed(model).half().save_pretrained(folder)
    processor.save_pretrained(folder)
    tokenizer = folder / "tokenizer.json"  # half of it would be blanks
    content = json.loads(tokenizer.read_text(encoding="utf-8"))
    tokenizer.write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
