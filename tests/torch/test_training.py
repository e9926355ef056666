"""The script that trains the tiny Kosmos-2, for a few steps."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import Kosmos2ForConditionalGeneration, Kosmos2Processor

from reftables.benchmarks.sample_expressions import expressions
from reftables.benchmarks.sample_scenes import Scene, random_scene
from training import train
from training.model import composed, first_weights, hidden_states, image_prefix, make_processor, normalised
from training.scenes import PROCESSOR_SIDE, SIDE, Example, Referral, draw_example, examples_of, mirror, pack

pytestmark = pytest.mark.torch

SEED = 3
SMALL = {"seed": SEED, "steps": 12, "batch": 4}


@pytest.fixture(scope="module")
def processor():
    return make_processor()


@pytest.fixture(autouse=True)
def quick_warm_up(monkeypatch):
    monkeypatch.setattr(train, "_WARM_UP", 4)


def weights(model) -> torch.Tensor:
    return torch.cat([parameter.flatten() for parameter in model.parameters()])


def test_loss_falls_within_a_dozen_steps(processor):
    _, losses = train.train(processor, **SMALL)
    assert losses[-1] < 0.8 * losses[0]


def test_one_seed_gives_the_same_weights_twice(processor):
    once, again = (train.train(processor, **SMALL | {"steps": 3})[0] for _ in range(2))
    assert torch.equal(weights(once), weights(again))


def test_other_seed_gives_other_weights(processor):
    once, other = (train.train(processor, **SMALL | {"steps": 1, "seed": seed})[0] for seed in (SEED, SEED + 1))
    assert not torch.equal(weights(once), weights(other))


def test_interrupted_training_ends_at_the_same_weights(processor, monkeypatch, tmp_path):
    monkeypatch.setattr(train, "_CHECK_EVERY", 2)
    monkeypatch.setattr(train, "_CHECK_BATCHES", 1)
    whole, _ = train.train(processor, **SMALL | {"steps": 4})
    checkpoint = tmp_path / "run.pt"
    step = train.train_step

    def stop_at_the_third(run, batch, number, steps):
        if number == 3:
            raise KeyboardInterrupt
        return step(run, batch, number, steps)

    monkeypatch.setattr(train, "train_step", stop_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        train.train(processor, **SMALL | {"steps": 4}, checkpoint=checkpoint)
    monkeypatch.setattr(train, "train_step", step)
    resumed, losses = train.train(processor, **SMALL | {"steps": 4}, checkpoint=checkpoint)
    assert (len(losses), torch.equal(weights(whole), weights(resumed))) == (2, True)


def test_command_writes_a_model_that_transformers_loads(tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)  # the other tests may use more
    train.main(["--out", str(tmp_path), "--seed", "3", "--steps", "1", "--batch", "4", "--workers", "0"])
    processor = Kosmos2Processor.from_pretrained(tmp_path)
    model = Kosmos2ForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.float32)
    inputs = processor(
        images=Image.new("RGB", (160, 120), "gray"),
        text="<grounding><phrase>red circle</phrase>",
        return_tensors="pt",
    )
    assert model(**inputs).logits.shape == (1, inputs["input_ids"].shape[1], len(processor.tokenizer))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 3_000_000


def test_packed_pass_is_that_of_each_prompt_alone(processor):
    model = first_weights(processor, SEED).eval()
    batch = pack(examples_of(SEED, 0, 4), processor.tokenizer.get_vocab(), image_prefix(processor))
    prefix, last = batch.blocks[2] == 0, batch.objects[2, 5] + 2
    own = (batch.blocks[2] == batch.blocks[2, last]) & (torch.arange(batch.tokens.shape[1]) <= last)
    ids = torch.cat((batch.tokens[2][prefix], batch.tokens[2][own]))[None]
    places = (torch.arange(ids.shape[1]) > 1) & (torch.arange(ids.shape[1]) < prefix.sum() - 1)
    with torch.no_grad():
        packed = model.text_model.lm_head(hidden_states(model, batch, batch.tokens))[2, last]
        model.set_attn_implementation("sdpa")
        alone = model(
            pixel_values=normalised(batch.images[2:3]), input_ids=ids, image_embeds_position_mask=places[None]
        ).logits[0, -1]
    torch.testing.assert_close(packed, alone, atol=1e-4, rtol=1e-4)


def test_large_kernel_sees_the_mean_of_areas(processor):
    small = first_weights(processor, SEED)
    pixels = torch.rand(1, 3, PROCESSOR_SIDE, PROCESSOR_SIDE, generator=torch.manual_seed(0))
    # 3.5 pixels of 224 are one of 64: doubled, seven are.
    areas = torch.nn.functional.avg_pool2d(pixels.repeat_interleave(2, 2).repeat_interleave(2, 3), 7)
    with torch.no_grad():
        found = composed(small).vision_model.model.embeddings(pixels)
        expected = small.vision_model.model.embeddings(areas)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    assert areas.shape[-1] == SIDE


def test_processor_knows_every_word_of_the_generator(processor):
    texts = {text for number in range(40) for text, _ in draw_example(Random(number), 32).referrals}
    encoded = processor.tokenizer(sorted(texts), add_special_tokens=False)["input_ids"]
    assert [len(ids) for ids in encoded] == [len(text.split()) for text in sorted(texts)]
    assert processor.tokenizer.unk_token_id not in {token for ids in encoded for token in ids}


def test_training_and_processor_write_the_same_tokens(processor):
    example = draw_example(Random(SEED), 8)
    batch = pack([example], processor.tokenizer.get_vocab(), image_prefix(processor))
    text, box_xyxy = example.referrals[0]
    image = Image.fromarray(example.image)
    prompt = f"<grounding><phrase>{text}</phrase>"
    ids = processor(images=image, text=prompt, bboxes=[tuple(map(float, box_xyxy))])["input_ids"]
    assert batch.tokens[0][(batch.blocks[0] <= 1) & (batch.blocks[0] >= 0)].tolist() == [*ids, 2]  # </s>


def mirrored_scene(scene: Scene) -> Scene:
    things = [replace(thing, left=scene.width - thing.right, hidden=None) for thing in scene.things]
    return replace(scene, things=tuple(things))


@pytest.mark.parametrize("seed", range(8))
def test_mirrored_texts_are_those_of_the_mirrored_scene(seed):
    scene = random_scene(Random(seed), count=2 + seed % 4)
    flipped = mirrored_scene(scene)
    for target in range(len(scene.things)):
        texts = [Referral(expression.text, (0.1, 0.2, 0.3, 0.4)) for expression in expressions(scene, target)]
        found = mirror(Example(np.zeros((SIDE, SIDE, 3), np.uint8), texts)).referrals
        assert {text for text, _ in found} == {expression.text for expression in expressions(flipped, target)}


def test_mirrored_box_keeps_its_order():
    example = Example(np.zeros((SIDE, SIDE, 3), np.uint8), [Referral("left circle", (0.1, 0.2, 0.3, 0.4))])
    [referral] = mirror(example).referrals
    assert referral == ("right circle", pytest.approx((0.7, 0.2, 0.9, 0.4)))
