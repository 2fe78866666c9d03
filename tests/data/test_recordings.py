"""Decoded frames are kept, found again, made anew when their files change, and leave damage out only when told to."""

import fcntl
import multiprocessing
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from episode_sets import FPS, SHAPE, episode, episodes, write_dexdata

from harness.data.dataset import Batches, open_dataset
from harness.data.lerobot import LeRobot
from harness.data.lerobot_writer import write_lerobot
from harness.data.recordings import View, open_recordings
from harness.data.source import DamagedEpisode
from harness.data.summary import statistics_of, windows
from harness.errors import BadInput, DamagedRecord
from harness.suite import Data

VIEW = View(cameras=SHAPE.cameras, image_size=SHAPE.image_size)


def ignore(_text):
    pass


def opened(folder: Path, cache: Path | None, **choices):
    return open_recordings(
        LeRobot(folder, {}), VIEW, cache, **{"skip_damaged": False, "on_progress": ignore, **choices}
    )


@pytest.fixture
def stored(tmp_path) -> Path:
    write_lerobot(tmp_path / "set", episodes(), FPS)
    return tmp_path / "set"


def test_kept_frames_are_those_read_anew(stored, tmp_path):
    told = []
    fresh = opened(stored, None)
    kept = opened(stored, tmp_path / "cache", on_progress=told.append)
    again = opened(stored, tmp_path / "cache", on_progress=told.append)
    assert told == [f"reading episode {number} of 3" for number in (1, 2, 3)]  # the second time nothing is read
    for one in (kept, again):
        assert one.record == fresh.record
        np.testing.assert_array_equal(one.images, fresh.images)
        np.testing.assert_array_equal(one.steps.states, fresh.steps.states)
    assert fresh.images.shape == (19, 3, 3, 8, 8) and not fresh.images[:, 2].any()
    np.testing.assert_allclose(fresh.images[6, 0].mean(), episodes()[1].images["agentview"][1].mean(), atol=3)


def test_another_file_or_another_view_is_another_set(stored, tmp_path):
    cache = tmp_path / "cache"
    opened(stored, cache)
    opened(stored, cache, skip_damaged=True)
    open_recordings(
        LeRobot(stored, {}), View(cameras=("agentview",), image_size=8), cache, skip_damaged=False, on_progress=ignore
    )
    open_recordings(LeRobot(stored, {}, 2), VIEW, cache, skip_damaged=False, on_progress=ignore)
    table = stored / "data/chunk-000/file-000.parquet"
    os.utime(table, ns=(1, 1))
    opened(stored, cache)
    assert len(list(cache.glob("*/recordings.json"))) == 5


def test_what_a_killed_maker_left_is_made_again(stored, tmp_path):
    cache = tmp_path / "cache"
    whole = np.array(opened(stored, cache).images)  # a copy: the file below it will change
    (made,) = cache.glob("*/recordings.json")
    made.parent.rename(made.parent.with_suffix(".part"))
    (made.parent.with_suffix(".part") / "images.bin").write_bytes(b"half")
    np.testing.assert_array_equal(opened(stored, cache).images, whole)
    (made.parent / "images.bin").write_bytes(b"half")
    with pytest.raises(DamagedRecord, match="delete this folder"):
        opened(stored, cache)


def _open_in_a_process(folder, cache, told):
    opened(folder, cache, on_progress=told.put)
    told.put("done")


def test_ranks_that_come_together_read_the_set_once(stored, tmp_path):
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    ranks = [context.Process(target=_open_in_a_process, args=(stored, tmp_path / "cache", queue)) for _ in range(3)]
    for rank in ranks:
        rank.start()
    told = []
    while told.count("done") < 3:
        told.append(queue.get())
    for rank in ranks:
        rank.join()
    read = [text for text in told if text.startswith("reading")]
    assert read == [f"reading episode {number} of 3" for number in (1, 2, 3)]
    assert {text for text in told if text.startswith("waiting")} <= {
        f"waiting: elsewhere {text}" for text in ["", *read]
    }


def test_whoever_waits_tells_how_far_the_other_is(stored, tmp_path):
    """A rank that only waits must not look hung, nor alive when the one it waits for is stuck."""
    cache, told = tmp_path / "cache", []
    opened(stored, cache)
    (lock,) = cache.glob("*.lock")
    with lock.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        lock.write_text("reading episode 7 of 9")
        waiting = threading.Thread(target=opened, args=(stored, cache), kwargs={"on_progress": told.append})
        waiting.start()
        while len(told) < 3:
            time.sleep(0.01)
    waiting.join()
    assert set(told) == {"waiting: elsewhere reading episode 7 of 9"}


def test_damage_stops_or_is_left_out_and_named(tmp_path):
    folder = write_dexdata(tmp_path / "set", episodes(), "image")
    (folder / "image/1/view2/3.png").write_bytes(b"no image")
    data = Data(source="dexdata", path=str(folder))
    for cache in (None, tmp_path / "cache"):
        with pytest.raises(DamagedEpisode, match=r"episode1\.jsonl: frame 3"):
            open_dataset(data, folder, SHAPE, cache=cache)
        assert not list(tmp_path.glob("cache/*/"))  # nothing half-made stays
        kept = open_dataset(data.model_copy(update={"skip_damaged": True}), folder, SHAPE, cache=cache)
        assert kept.samples == 5 + 6
        (named,) = kept.damaged
        assert "episode1.jsonl: frame 3: not a readable image" in named
        assert torch.equal(kept.text.of_sample, torch.zeros(11, dtype=torch.int64))  # both left are "move bowl 0"


def test_nothing_but_damage_is_an_error(tmp_path):
    folder = write_dexdata(tmp_path / "set", [episode(0, 3)], "image")
    (folder / "image/0/view1/0.png").unlink()
    with pytest.raises(BadInput, match=r"at least one whole episode; the first fault: .*episode0\.jsonl: frame 0"):
        open_dataset(Data(source="dexdata", skip_damaged=True), folder, SHAPE)


def test_states_of_two_widths_are_an_error(tmp_path):
    write_dexdata(tmp_path / "set", [episode(0, 3, state_width=7), episode(1, 3)], "image")
    with pytest.raises(BadInput, match=r"states = \[7, 8\]"):
        open_dataset(Data(source="dexdata"), tmp_path / "set", SHAPE)


def test_an_episodes_window_ends_with_it(stored):
    steps = opened(stored, None).steps
    found = windows(steps, np.array([3, 4, 5]), 3)
    first, second = episodes()[:2]
    np.testing.assert_array_equal(found[0], first.actions[[3, 4, 4]])
    np.testing.assert_array_equal(found[1], first.actions[[4, 4, 4]])
    np.testing.assert_array_equal(found[2], second.actions[:3])


def test_delta_actions_are_told_relative_to_each_samples_state(tmp_path):
    folder = write_dexdata(tmp_path / "set", episodes(), "image")
    dataset = open_dataset(Data(source="dexdata", delta_actions=True), folder, SHAPE)
    every = np.arange(dataset.samples)
    chunks = dataset.actions(torch.from_numpy(every))
    assert chunks.shape == (19, 4, 32) and not chunks[..., 7:].any()
    spread = chunks[..., :7].reshape(-1, 7)
    np.testing.assert_allclose(spread.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(spread.std(0, unbiased=False), 1, atol=1e-4)
    back = dataset.statistics.controller(chunks[..., :7].numpy(), dataset.steps.states)
    np.testing.assert_allclose(back, windows(dataset.steps, every, 4), atol=1e-5)


def test_statistics_are_found_again_by_content_and_settings(stored, tmp_path, monkeypatch):
    cache, data = tmp_path / "cache", Data(source="lerobot")
    choices = [
        data,
        data.model_copy(update={"delta_actions": True}),
        data.model_copy(update={"normalisation": "quantile"}),
    ]
    first = [open_dataset(one, stored, SHAPE, cache=cache).statistics for one in choices]
    assert len(list(cache.glob("*/statistics-*.json"))) == 3
    assert len({one.action.mean for one in first}) == 2 and first[2].action.normalisation == "quantile"
    monkeypatch.setattr("harness.data.summary.moments", None)  # taking them again would fail
    assert [open_dataset(one, stored, SHAPE, cache=cache).statistics for one in choices] == first
    other_chunk = SHAPE.model_copy(update={"chunk": 5})
    open_dataset(data, stored, other_chunk, cache=cache)  # plain actions do not depend on it
    with pytest.raises(TypeError):
        open_dataset(choices[1], stored, other_chunk, cache=cache)
    kept = opened(stored, cache)
    other_content = replace(kept, record=kept.record.model_copy(update={"content_sha256": "other"}))
    assert statistics_of(kept, data, 4) == first[0]
    with pytest.raises(TypeError):
        statistics_of(other_content, data, 4)


def test_batches_do_not_depend_on_where_frames_are_kept(stored, tmp_path):
    data = Data(source="lerobot")
    hashes = {
        Batches(open_dataset(data, stored, SHAPE, cache=cache), 1, 0, 2, 3, 1).sha256(4)
        for cache in (None, tmp_path / "cache", tmp_path / "cache")
    }
    assert len(hashes) == 1
    other = replace(open_dataset(data, stored, SHAPE), content_sha256="")
    assert Batches(other, 2, 0, 2, 3, 1).sha256(4) not in hashes
