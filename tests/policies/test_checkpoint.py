"""A checkpoint as a policy: what was trained is what acts, alone or in company."""

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from harness.data.dataset import open_dataset
from harness.data.transforms import pixels
from harness.errors import DamagedRecord
from harness.models import build, input_shape
from harness.plan import EpisodeKey
from harness.policies.base import Look, PolicyFault
from harness.policies.checkpoint import CheckpointPolicy, write_card
from harness.policies.openpi import OpenpiPolicy
from harness.policies.serve import PolicyServer
from harness.suite import Data

SHAPE = input_shape("pi0", "tiny")
KEY = EpisodeKey(task_suite="libero_object", task=0, initial_state=0, seed=0)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    torch.manual_seed(5)
    save_file(build("pi0", "tiny").state_dict(), folder / "model.safetensors")
    write_card(folder, "pi0", "tiny", open_dataset(Data(tasks=[0, 1]), None, SHAPE))
    return folder


def look(seed: int = 0, **changes) -> Look:
    random = np.random.default_rng(seed)
    images = {camera: random.integers(0, 256, (48, 48, 3), dtype=np.uint8) for camera in SHAPE.cameras}
    made = Look(KEY, 0, images, random.uniform(-1, 1, 8), "reach for object 1", seed)
    return replace(made, **changes)


def test_actions_are_those_of_the_saved_model(checkpoint):
    dataset = open_dataset(Data(tasks=[0, 1]), None, SHAPE)
    torch.manual_seed(5)
    model = build("pi0", "tiny").eval()
    size, sample = SHAPE.image_size, dataset.samples - 1
    frames = dataset.images[sample].permute(0, 2, 3, 1).numpy()
    random = np.random.default_rng(0)  # the synthetic source's own states, drawn again
    raw = random.uniform(-1, 1, 8)
    shown = look(images={camera: frames[number] for number, camera in enumerate(SHAPE.cameras)}, state=raw, seed=11)
    assert frames.shape == (2, size, size, 3)
    (chunk,) = CheckpointPolicy(checkpoint).act([shown])
    seen = dataset.observation(torch.tensor([sample]), pixels(dataset.images[sample : sample + 1]))
    observation = replace(seen, state=torch.from_numpy(dataset.statistics.states(raw[None])))
    expected = model.sample(observation, torch.Generator().manual_seed(11))[0].numpy()
    np.testing.assert_array_equal(chunk, dataset.statistics.action.unnormalise(expected))
    assert chunk.shape == (SHAPE.chunk, 7) and chunk.dtype == np.float32


def test_an_answer_does_not_depend_on_company_or_order(checkpoint):
    policy = CheckpointPolicy(checkpoint)
    looks = [look(seed) for seed in range(5)]
    together = policy.act(looks)
    backwards = policy.act(looks[::-1])[::-1]
    for number, one in enumerate(looks):
        np.testing.assert_array_equal(policy.act([one])[0], together[number])
        np.testing.assert_array_equal(backwards[number], together[number])


def test_the_seed_the_state_the_images_and_the_words_matter(checkpoint):
    policy = CheckpointPolicy(checkpoint)
    (first,) = policy.act([look()])
    for changed in (
        look(seed=1, images=look().images, state=look().state),
        look(state=look(1).state),
        look(images=look(1).images),
        look(prompt="reach for object 0"),
    ):
        assert not np.array_equal(policy.act([changed])[0], first)


def test_what_the_policy_cannot_answer_is_a_fault(checkpoint):
    policy = CheckpointPolicy(checkpoint)
    with pytest.raises(PolicyFault, match="robot0_eye_in_hand"):
        policy.act([look(images={"agentview": look().images["agentview"]})])
    with pytest.raises(PolicyFault, match="state"):
        policy.act([look(state=np.full(8, np.nan))])


def test_foreign_weights_are_listed_in_one_error(checkpoint, tmp_path):
    weights = load_file(checkpoint / "model.safetensors")
    del weights["norm.weight"]
    weights["extra"] = torch.zeros(1)
    weights["state_proj.bias"] = torch.zeros(3)
    save_file(weights, tmp_path / "model.safetensors")
    (tmp_path / "policy.json").write_bytes((checkpoint / "policy.json").read_bytes())
    with pytest.raises(
        DamagedRecord, match=r"1 missing \(norm.weight\); 1 unexpected \(extra\); 1 .*bias is \(3,\), not"
    ):
        CheckpointPolicy(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(DamagedRecord, match=r"model\.safetensors"):
        CheckpointPolicy(tmp_path)


def test_weights_that_are_not_finite_are_a_fault_not_an_action(checkpoint, tmp_path):
    weights = load_file(checkpoint / "model.safetensors")
    weights["action_out_proj.bias"][0] = float("nan")
    save_file(weights, tmp_path / "model.safetensors")
    (tmp_path / "policy.json").write_bytes((checkpoint / "policy.json").read_bytes())
    with pytest.raises(PolicyFault, match="not finite"):
        CheckpointPolicy(tmp_path).act([look()])


def test_a_card_does_not_name_the_trainer(checkpoint):
    text = (checkpoint / "policy.json").read_text()
    assert not any(word in text for word in ("ddp", "fsdp", "deepspeed", "zero"))


def test_served_it_answers_bit_for_bit_as_in_process(checkpoint):
    policy = CheckpointPolicy(checkpoint)
    server = PolicyServer(policy, {}, "127.0.0.1", 0)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    client = OpenpiPolicy("ws://{}:{}".format(*server.address))
    looks = [look(seed) for seed in range(3)]
    answers = client.act(looks)
    client.close()
    server.stop()
    thread.join()
    for answer, expected in zip(answers, policy.act(looks), strict=True):
        assert answer.dtype == expected.dtype
        np.testing.assert_array_equal(answer, expected)
