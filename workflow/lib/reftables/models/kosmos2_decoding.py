"""Greedy decoding of Kosmos-2 in batches, with the tokens of `generate` at batch size 1.

The official settings: one beam, no sampling, no three tokens twice in prompt and answer, `max_length`
tokens in all. The ban on repeated threes sees the placeholders of the image too, as in fairseq and in
transformers; where the two differ (fairseq never ends on the first new token, nor bans it) this follows
transformers.

Tokens are as at batch size 1 because
- an answer's prompt is the image's prefix, whose keys and values are computed once and copied, and its own
  tokens, filled up at the left of the batch; the filling is masked and counts in no position (`generate`
  counts it in the positions of new tokens, which then are wrong in a batch);
- sums in a batch are added up in another order, which moves logits by about a millionth, so an answer
  whose two best tokens come closer than `NEAR` is decoded anew by `generate`, alone. In float32 only: half
  precision is too coarse to tell.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from transformers import DynamicCache

NO_REPEAT = 3  # tokens in a row that may not come twice
NEAR = 2**-14  # of the best logit; at true size a batch was seen to move logits by 2**-20 of it

Tensor = Any  # of torch, which is checked without its types


class Decoded(NamedTuple):
    """The new tokens of one prompt, without the stop token."""

    tokens: list[int]
    stopped: bool  # by itself, not by the limit
    near_tie: bool  # a batch does not decide it


class Decoder:
    """A `Kosmos2ForConditionalGeneration` that answers prompts of tokens; each begins with `prefix`."""

    def __init__(self, model: Any, prefix: Sequence[int], max_length: int) -> None:
        config = model.config.text_config
        self._model = model
        self._text = model.text_model
        self._prefix = list(prefix)
        self._slots = model.config.latent_query_num  # of the prefix, after its first two tokens
        self._max_length = max_length
        self._pad = config.pad_token_id
        self._stop = config.eos_token_id
        self._near = NEAR if model.dtype == torch.float32 else -1

    def read_images(self, pixels: Tensor) -> list[Tensor]:
        """Keys and values of each image's prefix, (layers, 2, heads, tokens, width), of pixels (n, 3, side, side)."""
        cache = DynamicCache(config=self._text.config)
        with torch.inference_mode():
            self._text.model(
                input_ids=self._tensor([self._prefix] * len(pixels)),
                image_embeds=self._embed(pixels),
                image_embeds_position_mask=self._image_places(len(pixels), len(self._prefix)),
                cache=cache,
                use_cache=True,
            )
            states = torch.stack([torch.stack([layer.keys, layer.values]) for layer in cache.layers])
        return [states[:, :, image].clone() for image in range(len(pixels))]

    def decode(self, prompts: Sequence[Sequence[int]], prefixes: Sequence[Tensor], most: int) -> list[Decoded]:
        """Up to `most` new tokens for each prompt; `prefixes[i]` is that of the image of `prompts[i]`."""
        rows = [_Row(prompt, min(most, self._max_length - len(prompt))) for prompt in prompts]
        steps = max(row.limit for row in rows)
        if steps < 1:
            return [row.decoded for row in rows]
        shared, lengths = len(self._prefix), self._tensor([[len(prompt)] for prompt in prompts])
        longest = max(map(len, prompts))
        cache = _Cache(prefixes, longest + steps)
        places = self._tensor([range(longest + steps)])
        attended = ((places < shared) | (places >= shared + longest - lengths)).long()
        ids = self._tensor([[self._pad] * (longest - len(prompt)) + [*prompt[shared:]] for prompt in prompts])
        before = torch.full_like(lengths, shared)
        with torch.inference_mode():
            for step in range(steps):
                output = self._text(
                    input_ids=ids,
                    attention_mask=attended[:, : longest + step],
                    position_ids=self._positions(ids, before),
                    cache=cache,
                    use_cache=True,
                    logits_to_keep=1,
                )
                self._choose(rows, output.logits[:, -1].float())
                if all(row.done for row in rows):
                    break
                ids, before = self._tensor([[row.last] for row in rows]), lengths + step
        return [row.decoded for row in rows]

    def decode_alone(self, prompt: Sequence[int], pixels: Tensor) -> Decoded:
        """What `generate` answers to one prompt about one image, (1, 3, side, side)."""
        ids = self._tensor([prompt])
        with torch.inference_mode():
            found = self._text.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                image_embeds=self._embed(pixels),
                image_embeds_position_mask=self._image_places(1, len(prompt)),
                max_length=self._max_length,
                do_sample=False,
                num_beams=1,
                no_repeat_ngram_size=NO_REPEAT,
                eos_token_id=self._stop,
                pad_token_id=self._pad,
            )
        tokens = found[0, len(prompt) :].tolist()
        stopped = bool(tokens) and tokens[-1] == self._stop
        return Decoded(tokens[:-1] if stopped else tokens, stopped, near_tie=False)

    def _tensor(self, values: Any) -> Tensor:
        return torch.tensor(values, device=self._model.device)

    def _embed(self, pixels: Tensor) -> Tensor:
        """What the text model is given of each image, (n, slots, width)."""
        return self._model.get_image_features(pixels.to(self._model.device)).pooler_output

    def _image_places(self, rows: int, length: int) -> Tensor:
        """Which tokens of (rows, length) stand for the image: those behind `<s>` and `<image>`."""
        places = self._tensor([range(length)] * rows)
        return (places >= 2) & (places < 2 + self._slots)

    def _positions(self, ids: Tensor, before: Tensor) -> Tensor:
        """The positions of (n, m) tokens with `before` tokens, (n, 1), ahead of them, as the model numbers them.

        From the id of padding on, which is that of the filling and of the word `<pad>` in a text as well.
        """
        real = ids != self._pad
        return (before + real.cumsum(1)) * real + self._pad

    def _choose(self, rows: Sequence["_Row"], logits: Tensor) -> None:
        """Add to every row that is not done the best token of its logits, (n, vocabulary)."""
        for row, scores in zip(rows, logits, strict=True):
            if row.forbidden:
                scores[row.forbidden] = -torch.inf
        best, second = logits.topk(2).values.unbind(1)
        near = (best - second <= self._near * best.abs()).tolist()
        for row, token, is_near in zip(rows, logits.argmax(1).tolist(), near, strict=True):
            if not row.done:
                row.take(token, is_near, stop=self._stop)


class _Row:
    """One answer as it grows."""

    def __init__(self, prompt: Sequence[int], limit: int) -> None:
        self.limit = limit
        self.decoded = Decoded([], stopped=False, near_tie=False)
        self.last = prompt[-1]
        self._before_last = prompt[-2]
        self._followers: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for first, second, third in zip(prompt, prompt[1:], prompt[2:], strict=False):
            self._followers[first, second].append(third)

    @property
    def done(self) -> bool:
        return self.decoded.stopped or len(self.decoded.tokens) >= self.limit

    @property
    def forbidden(self) -> list[int]:
        """The tokens that have followed the last two before."""
        return self._followers[self._before_last, self.last]

    def take(self, token: int, is_near: bool, *, stop: int) -> None:
        tokens, _, near_tie = self.decoded
        if token != stop:
            tokens.append(token)
            self.forbidden.append(token)
            self._before_last, self.last = self.last, token
        self.decoded = Decoded(tokens, token == stop, near_tie or is_near)


class _Cache:
    """Keys and values of a batch behind its prefixes, in room that is taken once.

    It is the part of transformers' caches that the text model uses. They would copy all keys and values to
    a larger room with every token.
    """

    def __init__(self, prefixes: Sequence[Tensor], room: int) -> None:
        layers, _, heads, shared, width = map(int, prefixes[0].shape)
        self._filled = [shared] * layers
        self._states = [prefixes[0].new_empty(2, len(prefixes), heads, room, width) for _ in range(layers)]
        for layer, states in enumerate(self._states):
            states[:, :, :, :shared] = torch.stack([prefix[layer] for prefix in prefixes], dim=1)

    def get_seq_length(self, layer: int = 0) -> int:
        return self._filled[layer]

    def update(self, keys: Tensor, values: Tensor, layer: int, **_: Any) -> tuple[Tensor, Tensor]:
        """Keep the keys and values, (n, heads, m, width), of the next m tokens; all of the layer so far."""
        begin, end = self._filled[layer], self._filled[layer] + int(keys.shape[2])
        self._filled[layer] = end
        states = self._states[layer]
        states[0, :, :, begin:end] = keys
        states[1, :, :, begin:end] = values
        return states[0, :, :, :end], states[1, :, :, :end]
