"""Words to ids."""

import pytest

from harness.data.shape import InputShape
from harness.data.tokens import WordTokenizer
from harness.errors import BadInput
from harness.libero.tasks import task, task_names
from harness.models import input_shape
from harness.suite import TASK_SUITES

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


@pytest.mark.parametrize("size", ["tiny", "micro"])
def test_every_instruction_of_a_task_suite_fits(size):
    for task_suite in TASK_SUITES:
        prompts = [task(task_suite, number).instruction for number in range(len(task_names(task_suite)))]
        tokenizer = WordTokenizer.of(prompts, input_shape("pi0", size))
        encoded = {tuple(tokenizer.encode(prompt)[0].tolist()) for prompt in prompts}
        assert len(encoded) == len(set(prompts))
