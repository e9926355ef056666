"""The tiny Kosmos-2: its size, its vocabulary, its first weights, and the pass that trains it.

The class is transformers' own. It is trained on 64x64 images with patches of 8 pixels; `composed` turns
it into the same function of the processor's 224x224, by one patch kernel of 28 pixels.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    AttentionInterface,
    CLIPImageProcessorPil,
    Kosmos2Config,
    Kosmos2ForConditionalGeneration,
    Kosmos2Processor,
    XLMRobertaTokenizer,
)
from transformers.image_utils import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD

from reftables.benchmarks.sample_scenes import COLOURS, DOTS, SHAPES, SIDES
from training.scenes import GRID, PROCESSOR_SIDE, SIDE, Batch

LATENTS = 64
PATCH = 8  # pixels of a training image
_VISION_WIDTH = 96
_TEXT_WIDTH = 128
_LAYERS = 3
_HEADS = 4
_PLACE_WORDS = ("left", "right", "top", "bottom", "leftmost", "rightmost", "highest", "lowest")
_SMALL_WORDS = ("on", "at", "the", "of", "to", "above", "below", "under")
_WORDS = (*sorted(SIDES), *COLOURS, *SHAPES, DOTS, "object", *_PLACE_WORDS, *_SMALL_WORDS)
_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
_TAG_WEIGHT = 0.1  # of the loss at <object>, </object> and </s>, which are easy


def plain_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float, **_: Any
) -> tuple[Tensor, Tensor]:
    """Attention in four steps, for transformers' registry: fused kernels are slow backward on a CPU.

    The softmax keeps the products' type; autocasting it to float32 would double the time of the step.
    """
    scores = (query * scaling) @ key.transpose(-1, -2)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    shares = scores.softmax(dim=-1, dtype=scores.dtype)
    return (shares @ value).transpose(1, 2).contiguous(), shares


AttentionInterface.register("plain", plain_attention)


def make_processor() -> Kosmos2Processor:
    """The processor with the settings of the released model, over the words of the sample."""
    # The ids after <unk> stand for the image's places in a prompt: as in the released model, none is a tag's.
    unused = (f"unused_{number}" for number in range(LATENTS - len(_WORDS)))
    vocabulary = [*_SPECIAL, *(f"▁{word}" for word in (*_WORDS, *unused))]
    tokenizer = XLMRobertaTokenizer(vocab=[(token, 0.0) for token in vocabulary], mask_token=None)
    size = {"height": PROCESSOR_SIDE, "width": PROCESSOR_SIDE}
    image_processor = CLIPImageProcessorPil(size=size, crop_size=size, do_center_crop=False)
    return Kosmos2Processor(image_processor, tokenizer, num_patch_index_tokens=GRID**2)


def make_config(vocabulary: int, image_size: int, patch_size: int) -> Kosmos2Config:
    return Kosmos2Config(
        text_config={
            "vocab_size": vocabulary,
            "max_position_embeddings": 512,
            "embed_dim": _TEXT_WIDTH,
            "layers": _LAYERS,
            "ffn_dim": 4 * _TEXT_WIDTH,
            "attention_heads": _HEADS,
            "dropout": 0.0,
            "attention_dropout": 0.0,
        },
        vision_config={
            "hidden_size": _VISION_WIDTH,
            "intermediate_size": 4 * _VISION_WIDTH,
            "num_hidden_layers": _LAYERS,
            "num_attention_heads": _HEADS,
            "image_size": image_size,
            "patch_size": patch_size,
        },
        latent_query_num=LATENTS,
    )


def image_prefix(processor: Kosmos2Processor) -> list[int]:
    """The tokens before every phrase: <s>, <image>, the places of the latents, </image>."""
    ids = processor.tokenizer.get_vocab()
    first = ids["<unk>"] + 1
    return [ids["<s>"], ids["<image>"], *range(first, first + LATENTS), ids["</image>"]]


def first_weights(processor: Kosmos2Processor, seed: int) -> Kosmos2ForConditionalGeneration:
    """The model before training.

    Where things are is put in by hand, for training hardly finds it: the position embeddings of patches
    and the embeddings of the answer's cells are sines and cosines of column and row, and each latent
    query looks at one patch.
    """
    torch.manual_seed(seed)
    ids = processor.tokenizer.get_vocab()
    model = Kosmos2ForConditionalGeneration(make_config(len(ids), SIDE, PATCH))
    model.set_attn_implementation("plain")
    vision, text = model.vision_model.model, model.text_model.model
    with torch.no_grad():
        for block in (*vision.encoder.layers, *text.layers):
            _scale_layer(block)
        positions = _codes(SIDE // PATCH, _VISION_WIDTH)
        vision.embeddings.position_embedding.weight[1:] = positions
        nn.init.normal_(vision.embeddings.patch_embedding.weight, std=(3 * PATCH**2) ** -0.5)
        nn.init.normal_(text.embed_tokens.weight, std=_TEXT_WIDTH**-0.5)
        cells = _codes(GRID, _TEXT_WIDTH) * _TEXT_WIDTH**-0.5
        first = ids["<patch_index_0000>"]
        text.embed_tokens.weight[first : first + GRID**2] = cells
        _aim_latents(model, positions)
    return model


def _scale_layer(block: nn.Module) -> None:
    """Weights that keep the variance, smaller where they write into the residual stream."""
    for name, module in block.named_modules():
        if isinstance(module, nn.Linear):
            writes = name.endswith(("out_proj", "fc2"))
            nn.init.normal_(module.weight, std=module.in_features**-0.5 * ((2 * _LAYERS) ** -0.5 if writes else 1.0))
            nn.init.zeros_(module.bias)


def _codes(cells: int, width: int) -> Tensor:
    """Codes of the cells of a square grid, row by row: (cells * cells, width), each of norm sqrt(width)."""
    frequencies = torch.logspace(math.log10(math.pi / (2 * cells)), math.log10(math.pi * 0.75), width // 4)
    angles = torch.arange(cells)[:, None] * frequencies
    line = torch.cat((angles.sin(), angles.cos()), dim=1) * math.sqrt(2)
    columns = line[None, :, :].expand(cells, cells, -1)
    rows = line[:, None, :].expand(cells, cells, -1)
    return torch.cat((columns, rows), dim=2).reshape(cells**2, width)


def _aim_latents(model: Kosmos2ForConditionalGeneration, positions: Tensor) -> None:
    """Let latent i attend to patch i: its query is the key of the patch's position."""
    projection, attention = model.image_to_text_projection, model.image_to_text_projection.x_attn
    spread = nn.init.orthogonal_(torch.empty(_TEXT_WIDTH, _VISION_WIDTH))
    turn = nn.init.orthogonal_(torch.empty(_TEXT_WIDTH, _TEXT_WIDTH))
    # Image features reach the projection with norm 1.
    projection.dense.weight.copy_(spread * math.sqrt(_TEXT_WIDTH))
    nn.init.zeros_(projection.dense.bias)
    keys = functional.normalize(positions, dim=1) @ projection.dense.weight.T
    for layer in (attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj):
        nn.init.zeros_(layer.bias)
    mixing = nn.init.orthogonal_(torch.empty(_TEXT_WIDTH, _TEXT_WIDTH))
    attention.k_proj.weight.copy_(mixing)  # every head sees a bit of every frequency
    attention.q_proj.weight.copy_(mixing @ turn)
    # Turned, for the latents are keys too: none may find itself.
    projection.latent_query.copy_(2 * keys @ turn)
    nn.init.orthogonal_(attention.v_proj.weight)
    nn.init.orthogonal_(attention.out_proj.weight, gain=_TEXT_WIDTH**-0.5)  # embeddings are scaled up again


def normalised(images: Tensor) -> Tensor:
    """Pixels as the processor gives them: (n, side, side, 3) bytes to (n, 3, side, side)."""
    mean, std = torch.tensor(OPENAI_CLIP_MEAN), torch.tensor(OPENAI_CLIP_STD)
    return ((images / 255 - mean) / std).permute(0, 3, 1, 2)


def hidden_states(model: Kosmos2ForConditionalGeneration, batch: Batch, tokens: Tensor) -> Tensor:
    """The text model's last states of packed sequences, (n, length, width); `tokens` replace the batch's."""
    blocks, places = batch.blocks, batch.places
    text = model.text_model.model
    image = model.get_image_features(normalised(batch.images)).pooler_output
    is_latent = (blocks == 0) & (places > 1) & (places < LATENTS + 2)
    states = text.forward_embedding(
        input_ids=tokens,
        image_embeds=image,
        img_input_mask=is_latent,
        position_ids=places + model.config.text_config.pad_token_id + 1,
    )
    mask = visible(blocks)[:, None]
    for layer in text.layers:
        states = layer(states, mask)
    return text.layer_norm(states)


def visible(blocks: Tensor) -> Tensor:
    """Which token (row) sees which (column), (n, length, length): earlier ones of the image and its own block."""
    length = blocks.shape[1]
    same = (blocks[:, None, :] == 0) | (blocks[:, None, :] == blocks[:, :, None])
    return same & torch.ones(length, length, dtype=torch.bool).tril()


def loss_of(model: Kosmos2ForConditionalGeneration, batch: Batch, blur: float) -> Tensor:
    """Mean cross-entropy of the cells, plus that of the tags around them.

    The target of a cell is spread over its neighbours as a Gaussian of `blur` cells; 0 spreads nothing.
    """
    tokens, objects = batch.tokens, batch.objects
    states = hidden_states(model, batch, tokens)
    rows = torch.arange(len(objects))[:, None, None]
    cells = _logits(model, states[rows, objects[:, :, None] + torch.tensor([0, 1])])
    first = _first_cell(model)
    targets = _spread(batch.cells, blur)
    logs = cells.log_softmax(dim=-1)[..., first : first + GRID**2]
    tag_places = objects[:, :, None] + torch.tensor([-1, 2, 3])
    tags = _logits(model, states[rows, tag_places])
    tag_loss = functional.cross_entropy(tags.flatten(0, 2), tokens[rows, tag_places + 1].flatten())
    return -(targets * logs).sum(dim=-1).mean() + _TAG_WEIGHT * tag_loss


def _logits(model: Kosmos2ForConditionalGeneration, states: Tensor) -> Tensor:
    return model.text_model.lm_head(states).float()


def _first_cell(model: Kosmos2ForConditionalGeneration) -> int:
    return model.config.text_config.vocab_size - GRID**2


def _spread(cells: Tensor, blur: float) -> Tensor:
    """Targets over the grid, (..., grid * grid), of the true cells (...)."""
    distances = (torch.arange(GRID)[:, None] - torch.arange(GRID)).float()
    line = torch.softmax(-(distances**2) / (2 * max(blur, 1e-3) ** 2), dim=1)
    rows, columns = line[cells // GRID], line[cells % GRID]
    return (rows[..., :, None] * columns[..., None, :]).flatten(-2)


@torch.no_grad()
def answers(model: Kosmos2ForConditionalGeneration, batch: Batch) -> Tensor:
    """The pairs of cells that the model decodes greedily, (n, m, 2), the tags taken for granted."""
    tokens, objects = batch.tokens.clone(), batch.objects
    rows, first = torch.arange(len(objects))[:, None], _first_cell(model)
    pair = []
    for place in (objects, objects + 1):
        states = hidden_states(model, batch, tokens)[rows, place]
        pair.append(_logits(model, states)[..., first:].argmax(dim=-1))
        tokens[rows, place + 1] = pair[-1] + first
    return torch.stack(pair, dim=-1)


def composed(model: Kosmos2ForConditionalGeneration) -> Kosmos2ForConditionalGeneration:
    """The same function of 224x224 images: the mean of areas, then the patch kernel, is one kernel."""
    side = PATCH * PROCESSOR_SIDE // SIDE
    config = make_config(model.config.text_config.vocab_size, PROCESSOR_SIDE, side)
    large = Kosmos2ForConditionalGeneration(config)
    weights = {name: value.detach().clone() for name, value in model.state_dict().items()}
    name = "vision_model.model.embeddings.patch_embedding.weight"
    areas = _area_means(side, PATCH)
    weights[name] = torch.einsum("ocij,iy,jx->ocyx", weights[name], areas, areas)
    large.load_state_dict(weights)
    return large


def _area_means(many: int, few: int) -> Tensor:
    """Row i holds the share of each of `many` pixels in pixel i of `few`."""
    edges = torch.arange(few + 1) * (many / few)
    starts = torch.arange(many)
    overlaps = torch.minimum(edges[1:, None], starts + 1.0) - torch.maximum(edges[:-1, None], starts.float())
    return overlaps.clamp(min=0) * (few / many)
