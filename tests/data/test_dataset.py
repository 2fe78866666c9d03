"""Samples and batches: every sample once per epoch, the same step however it is spread, nothing remembered."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.data.dataset import Batches, Dataset, open_dataset
from harness.data.shape import ABSENT, InputShape
from harness.suite import Data

SHAPE = InputShape(
    cameras=("agentview", ABSENT), image_size=8, text_slots=6, vocabulary=16, state_dim=9, action_dim=10, chunk=3
)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return open_dataset(Data(tasks=[0, 1, 2]), None, SHAPE)


def cut(dataset: Dataset, samples: int) -> Dataset:
    return replace(dataset, states=dataset.states[:samples])


@given(
    samples=st.integers(1, 40),
    ranks=st.integers(1, 4),
    micro_batch=st.integers(1, 5),
    accumulation=st.integers(1, 3),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=60, deadline=None)
def test_every_sample_once_per_epoch(dataset, samples, ranks, micro_batch, accumulation, seed):
    small = cut(dataset, samples)
    batches = [Batches(small, seed, rank, ranks, micro_batch, accumulation) for rank in range(ranks)]
    stream: list[int] = []
    step = 0
    while len(stream) < 2 * samples:
        for micro_step in range(accumulation):
            for one in batches:
                stream.extend(one.indices(step, micro_step).tolist())
        step += 1
    assert sorted(stream[:samples]) == list(range(samples))
    assert sorted(stream[samples : 2 * samples]) == list(range(samples))


@given(step=st.integers(0, 50), spread=st.permutations([2, 3, 2]), seed=st.integers(0, 100))
@settings(max_examples=40, deadline=None)
def test_a_step_has_the_same_samples_on_any_number_of_ranks(dataset, step, spread, seed):
    ranks, micro_batch, accumulation = spread

    def of_step(ranks: int, micro_batch: int, accumulation: int) -> list[int]:
        return [
            int(index)
            for micro_step in range(accumulation)
            for rank in range(ranks)
            for index in Batches(dataset, seed, rank, ranks, micro_batch, accumulation).indices(step, micro_step)
        ]

    assert of_step(ranks, micro_batch, accumulation) == of_step(1, 12, 1)


@given(
    samples=st.integers(1, 30),
    ranks=st.integers(1, 3),
    micro_batch=st.integers(1, 4),
    resumed_at=st.integers(1, 12),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=30, deadline=None)
def test_a_run_resumed_at_a_step_sees_what_an_unbroken_one_saw(dataset, samples, ranks, micro_batch, resumed_at, seed):
    small = cut(dataset, samples)

    def order(first: int) -> list[list[int]]:
        ranked = [Batches(small, seed, rank, ranks, micro_batch, 2) for rank in range(ranks)]
        steps = range(first, 14)
        return [one.indices(step, micro).tolist() for step in steps for micro in (0, 1) for one in ranked]

    unbroken = order(0)
    assert order(resumed_at) == unbroken[resumed_at * 2 * ranks :]


def test_batches_are_a_pure_function(dataset):
    batches = Batches(dataset, 3, 0, 2, 4, 2)
    late = batches.at(5, 1)
    batches.at(0, 0).generator.manual_seed(1)
    again = Batches(dataset, 3, 0, 2, 4, 2).at(5, 1)
    assert torch.equal(late.observation.images, again.observation.images)
    assert torch.equal(late.actions, again.actions)
    assert torch.equal(torch.rand(3, generator=late.generator), torch.rand(3, generator=again.generator))


def test_noise_differs_by_seed_step_micro_step_and_rank(dataset):
    drawn = set()
    for seed, step, micro_step, rank in [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)]:
        batch = Batches(dataset, seed, rank, 2, 4, 2).at(step, micro_step)
        drawn.add(torch.rand(1, generator=batch.generator, dtype=torch.float64).item())
    assert len(drawn) == 5


def test_hashes_tell_data_seed_and_rank_apart(dataset):
    batches = Batches(dataset, 0, 0, 2, 4, 2)
    assert batches.sha256(3) == Batches(dataset, 0, 0, 2, 4, 2).sha256(3)
    others = [Batches(dataset, 1, 0, 2, 4, 2), Batches(dataset, 0, 1, 2, 4, 2), Batches(dataset, 0, 0, 2, 2, 4)]
    assert len({one.sha256(3) for one in (batches, *others)}) == 4
    other = open_dataset(Data(tasks=[0, 1]), None, SHAPE)
    assert other.content_sha256 != dataset.content_sha256
    assert open_dataset(Data(tasks=[0, 1]), None, SHAPE).content_sha256 == other.content_sha256


def test_samples_fill_the_shape(dataset):
    assert dataset.images.shape == (255, 2, 3, 8, 8) and dataset.images.dtype == torch.uint8
    assert dataset.cameras == ("agentview",)
    assert dataset.image_masks.all(0).tolist() == [True, False] and not dataset.image_masks[:, 1].any()
    assert not dataset.images[:, 1].any()
    assert dataset.states.shape == (255, 9) and not dataset.states[:, 8].any()
    actions = dataset.actions(torch.arange(255))
    assert actions.shape == (255, 3, 10) and not actions[..., 7:].any()
    np.testing.assert_allclose(dataset.states[:, :3].mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(dataset.states[:, :3].std(0), 1, atol=1e-2)
    batch = Batches(dataset, 0, 0, 1, 5, 1).at(0, 0)
    assert batch.observation.images.shape == (5, 2, 3, 8, 8)
    assert batch.observation.images.min() >= -1 and batch.observation.images.max() <= 1
