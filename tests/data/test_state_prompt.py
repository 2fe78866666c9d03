"""The robot's state as words of the prompt."""

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from harness.data.dataset import Batches, open_dataset
from harness.data.state_prompt import spoken_state, with_state_in_prompt
from harness.data.tokens import FileTokenizer, words_of
from harness.errors import BadInput
from harness.models import input_shape
from harness.suite import Data


def test_bins_are_256_equal_ones_from_minus_one_to_one():
    edges = np.array([-1.0, -1.0 + 1 / 128, -0.0001, 0.0, 0.9999, 1.0, -7.0, 7.0])
    assert spoken_state(edges) == "0 1 127 128 255 255 0 255"
    between = np.linspace(-1, 1, 1001)[:-1]
    as_openpi = np.digitize(between, np.linspace(-1, 1, 257)[:-1]) - 1
    assert spoken_state(between) == " ".join(map(str, as_openpi))


def test_each_sample_tells_its_own_state():
    shape = with_state_in_prompt(input_shape("pi05", "tiny"))
    dataset = open_dataset(Data(source="synthetic", tasks=[0, 1]), None, shape)
    seen = Batches(dataset, seed=0, rank=0, ranks=1, micro_batch=4, accumulation=1).at(0, 0).observation
    words = ["<padding>", "<unknown>", *dataset.tokenizer.words]
    for ids, filled, state in zip(seen.input_ids, seen.attention_mask, seen.state, strict=True):
        told = [words[number] for number in ids[filled].tolist()]
        assert told[-8:] == words_of(spoken_state(state[:8].numpy()))
        assert told[:3] == ["reach", "for", "object"]
    plain = open_dataset(Data(source="synthetic", tasks=[0, 1]), None, input_shape("pi05", "tiny"))
    assert torch.equal(plain.states, dataset.states)
    assert not set(map(str, range(2, 256))) & set(plain.tokenizer.words)


def test_a_model_without_room_for_it_says_so():
    shape = with_state_in_prompt(input_shape("pi0", "tiny")).model_copy(update={"text_slots": 10})
    with pytest.raises(BadInput, match='at most 2 words besides "the"'):
        open_dataset(Data(source="synthetic"), None, shape)


def test_the_template_is_pi05s_with_a_checkpoints_own_tokenizer(tmp_path):
    inner = Tokenizer(
        models.WordLevel({"<unk>": 0, "Task:": 1, "go": 2, "up,": 3, "State:": 4, "0": 5, "128;\nAction:": 6}, "<unk>")
    )
    inner.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<unk>").save_pretrained(tmp_path)
    shape = with_state_in_prompt(input_shape("pi05", "tiny"))
    tokenizer = FileTokenizer.of(tmp_path, ["go_up"], shape, "0 128")
    ids, filled = tokenizer.encode("go_up", spoken_state(np.array([-1.0, 0.0])))
    assert ids[filled].tolist() == [1, 2, 3, 4, 5, 6]
