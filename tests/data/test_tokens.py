"""Instructions to ids."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from harness.data.shape import InputShape
from harness.data.tokens import FileTokenizer, WordTokenizer
from harness.errors import BadInput
from harness.libero.tasks import task, task_names
from harness.models import input_shape
from harness.task_suites import TASK_SUITES

SHAPE = InputShape(cameras=("a",), image_size=8, text_slots=4, vocabulary=8, state_dim=8, action_dim=7, chunk=1)


def test_ids_are_the_sorted_words():
    tokenizer = WordTokenizer.of(["Open the drawer.", "close drawer"], SHAPE)
    assert tokenizer.words == ("close", "drawer", "open")
    ids, filled = tokenizer.encode("OPEN the cupboard drawer!")
    assert ids.tolist() == [4, 1, 3, 0]
    assert filled.tolist() == [True, True, True, False]
    assert tokenizer == WordTokenizer.of(["close drawer", "open drawer", "close drawer"], SHAPE)


def test_too_long_or_too_rich_is_an_error():
    with pytest.raises(BadInput, match="at most 4 words"):
        WordTokenizer.of(["one two three four five"], SHAPE)
    with pytest.raises(BadInput, match="at most 6 different words"):
        WordTokenizer.of(["one two three four", "five six seven"], SHAPE)


@pytest.fixture
def files(tmp_path) -> Path:
    """A tokenizer as a checkpoint brings it: a beginning of sequence, padding that is not 0, a token for line ends."""
    words = ["<bos>", "open", "the", "drawer", "<unk>", "\n", "<pad>"]
    inner = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Split(" ", "removed")
    inner.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 0)])
    PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", bos_token="<bos>").save_pretrained(
        tmp_path / "t"
    )
    return tmp_path / "t"


def test_a_checkpoints_own_tokenizer_is_read_from_its_folder(files, tmp_path):
    shape = SHAPE.model_copy(update={"text_slots": 6, "prompt_template": "{prompt} \n"})
    tokenizer = FileTokenizer.of(files, ["open the drawer"], shape)
    ids, filled = tokenizer.encode(" open_the\ndrawer ")
    assert ids.tolist() == [0, 1, 2, 3, 5, 6] and filled.tolist() == [True] * 5 + [False]
    assert tokenizer.encode("open the drawer " * 3)[0].tolist() == [0, 1, 2, 3, 1, 2]
    tokenizer.save(tmp_path / "saved")
    again = FileTokenizer(tmp_path / "saved", 6, "{prompt} \n")
    np.testing.assert_array_equal(again.encode("open drawer")[0], tokenizer.encode("open drawer")[0])


def test_a_tokenizer_that_does_not_fit_is_one_clear_error(files, tmp_path):
    with pytest.raises(BadInput, match="at most 4 tokens, these are 5"):
        FileTokenizer.of(files, ["open the drawer open"], SHAPE)
    small = SHAPE.model_copy(update={"vocabulary": 3})
    with pytest.raises(BadInput, match="token = 3: expected ids below 3"):
        FileTokenizer.of(files, ["open drawer"], small)
    with pytest.raises(BadInput, match="a folder of tokenizer files"):
        FileTokenizer.of(tmp_path / "nowhere", ["open"], SHAPE)
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match=r"data: tokenizer = .*expected tokenizer files"):
        FileTokenizer.of(tmp_path / "empty", ["open"], SHAPE)


@pytest.mark.parametrize("size", ["tiny", "micro"])
def test_every_instruction_of_a_task_suite_fits(size):
    for task_suite in TASK_SUITES:
        prompts = [task(task_suite, number).instruction for number in range(len(task_names(task_suite)))]
        tokenizer = WordTokenizer.of(prompts, input_shape("pi0", size))
        encoded = {tuple(tokenizer.encode(prompt)[0].tolist()) for prompt in prompts}
        assert len(encoded) == len(set(prompts))
