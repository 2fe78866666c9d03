"""A policy reads looks, and writes actions, as its training read the demonstrations."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from harness.data.dataset import Dataset, open_dataset
from harness.data.transforms import pixels
from harness.models import build, input_shape
from harness.plan import EpisodeKey
from harness.policies.base import Look, PolicyFault
from harness.policies.checkpoint import CheckpointPolicy, read_card, write_card
from harness.suite import Data

SHAPE = input_shape("pi0", "tiny")
KEY = EpisodeKey(task_suite="libero_object", task=0, initial_state=0, seed=0)


def tokenizer_files(folder: Path) -> str:
    words = ["<pad>", "reach", "for", "object", "0", "1", "<unk>"]
    inner = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>").save_pretrained(folder)
    return str(folder)


def export(folder: Path, data: Data) -> Dataset:
    dataset = open_dataset(data, None, SHAPE)
    torch.manual_seed(5)
    folder.mkdir()
    save_file(build("pi0", "tiny").state_dict(), folder / "model.safetensors")
    write_card(folder, "pi0", "tiny", dataset)
    return dataset


def look(dataset: Dataset, sample: int) -> Look:
    frames = dataset.images[sample].permute(0, 2, 3, 1).numpy()
    images = {camera: frames[number] for number, camera in enumerate(SHAPE.cameras)}
    return Look(KEY, 0, images, dataset.steps.states[sample], "reach for object 1", 11)


@pytest.mark.parametrize("normalisation", ["z-score", "quantile", "clipped-quantile", "min-max"])
@pytest.mark.parametrize("delta", [False, True])
def test_a_look_is_read_as_the_sample_it_is(tmp_path, normalisation, delta):
    data = Data(
        tasks=[0, 1],
        normalisation=normalisation,
        delta_actions=delta,
        tokenizer=tokenizer_files(tmp_path / "files") if delta else None,
    )
    dataset = export(tmp_path / "export", data)
    sample = dataset.samples - 1
    for file in tmp_path.glob("files/*"):
        file.unlink()  # the export needs nothing but itself
    shown = look(dataset, sample)
    (chunk,) = CheckpointPolicy(tmp_path / "export").act([shown])
    chosen = torch.tensor([sample])
    torch.manual_seed(5)
    model = build("pi0", "tiny").eval()
    told = model.sample(dataset.observation(chosen, pixels(dataset.images[chosen])), torch.Generator().manual_seed(11))
    expected = dataset.statistics.controller(told[..., :7].numpy(), shown.state[None])[0]
    np.testing.assert_array_equal(chunk, expected)
    plain = dataset.statistics.action.unnormalise(told[0, :, :7].numpy())
    moved = not np.array_equal(chunk[:, :6], plain[:, :6])
    assert moved == delta and np.array_equal(chunk[:, 6], plain[:, 6])


def test_a_policy_of_narrower_states_says_so(tmp_path):
    dataset = export(tmp_path / "export", Data(tasks=[0]))
    shown = look(dataset, 0)
    with pytest.raises(PolicyFault, match="the state must be 8 finite numbers, as in training"):
        CheckpointPolicy(tmp_path / "export").act([Look(KEY, 0, shown.images, shown.state[:7], "x", 0)])
    assert read_card(tmp_path / "export").words is not None
