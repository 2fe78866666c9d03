"""Our LeRobot v3.0 sets: re-read by our reader (test_lerobot) and, with its own Python, by LeRobot."""

import json
from dataclasses import replace
from pathlib import Path

import lerobot_python
import numpy as np
import pandas
import pyarrow.parquet
import pytest
from episode_sets import FPS, assert_same, episode, episodes, read_all

from harness.data import lerobot_writer
from harness.data.lerobot import LeRobot
from harness.data.lerobot_writer import KEYS, write_lerobot
from harness.errors import BadInput

PEER = Path(__file__).with_name("lerobot_peer.py")


def test_the_layout_is_lerobots(tmp_path):
    folder = tmp_path / "set"
    write_lerobot(folder, episodes(), FPS)
    info = json.loads((folder / "meta/info.json").read_text())
    assert (info["codebase_version"], info["total_episodes"], info["total_frames"]) == ("v3.0", 3, 19)
    rows = pyarrow.parquet.ParquetFile(folder / info["data_path"].format(chunk_index=0, file_index=0))
    assert rows.num_row_groups == 3  # LeRobot takes single episodes out by their row groups
    table = rows.read().to_pandas()
    assert table["index"].tolist() == list(range(19)) and table["frame_index"].tolist()[5:8] == [0, 1, 2]
    np.testing.assert_allclose(table["timestamp"][6], 1 / FPS)
    tasks = pandas.read_parquet(folder / "meta/tasks.parquet")
    assert tasks.loc["move bowl 1"].task_index == 1
    index = pandas.read_parquet(folder / "meta/episodes/chunk-000/file-000.parquet")
    assert index["dataset_from_index"].tolist() == [0, 5, 13] and index["dataset_to_index"].tolist() == [5, 13, 19]
    np.testing.assert_allclose(index[f"videos/{KEYS['agentview']}/from_timestamp"], [0, 0.25, 0.65])


def test_statistics_are_those_of_all_rows(tmp_path):
    write_lerobot(tmp_path / "set", episodes(), FPS)
    found = json.loads((tmp_path / "set/meta/stats.json").read_text())
    actions = np.concatenate([one.actions for one in episodes()])
    np.testing.assert_allclose(found["action"]["mean"], actions.mean(0))
    np.testing.assert_allclose(found["action"]["q99"], np.quantile(actions, 0.99, axis=0))
    images = np.concatenate([one.images["agentview"] for one in episodes()]) / 255
    seen = found[KEYS["agentview"]]
    np.testing.assert_allclose(np.ravel(seen["mean"]), images.mean((0, 1, 2)))
    np.testing.assert_allclose(np.ravel(seen["std"]), images.std((0, 1, 2)), atol=1e-7)
    assert np.shape(seen["max"]) == (3, 1, 1) and np.ravel(seen["max"])[0] == images.max()


def test_videos_are_cut_into_files(tmp_path, monkeypatch):
    monkeypatch.setattr(lerobot_writer, "_VIDEO_MB", 0)
    monkeypatch.setattr(lerobot_writer, "_CHUNK_FILES", 2)
    write_lerobot(tmp_path / "set", episodes(), FPS)
    camera = tmp_path / "set/videos" / KEYS["agentview"]
    assert sorted(str(path.relative_to(camera)) for path in camera.rglob("*.mp4")) == [
        "chunk-000/file-000.mp4",
        "chunk-000/file-001.mp4",
        "chunk-001/file-000.mp4",
    ]
    assert_same(read_all(LeRobot(tmp_path / "set", {})), episodes(), 3)


def test_a_set_is_whole_or_not_there(tmp_path):
    made = episodes()
    sparse = replace(made[1], frame_steps=made[1].frame_steps[::2])
    with pytest.raises(BadInput, match=r"frames = '4 frames for 8 steps'.*--frame-stride 1"):
        write_lerobot(tmp_path / "set", [made[0], sparse], FPS)
    blind = replace(made[1], images={})
    with pytest.raises(BadInput, match="cameras of the first episode"):
        write_lerobot(tmp_path / "set", [made[0], blind], FPS)
    assert list(tmp_path.iterdir()) == []
    write_lerobot(tmp_path / "set", [episode(0, 2)], FPS)
    with pytest.raises(BadInput, match="not there yet"):
        write_lerobot(tmp_path / "set", made, FPS)


@pytest.mark.full
@lerobot_python.needed
def test_lerobot_reads_what_we_write(tmp_path):
    write_lerobot(tmp_path / "set", episodes(), FPS)
    told = lerobot_python.ask(PEER, "read", tmp_path / "set")
    for one, other in zip(told["episodes"], episodes(), strict=True):
        assert one["prompt"] == other.prompt
        np.testing.assert_array_equal(one["states"], other.states)
        np.testing.assert_array_equal(one["actions"], other.actions)
        for camera, key in KEYS.items():
            np.testing.assert_allclose(one["images"][key], other.images[camera].mean((1, 2, 3)), atol=2)
    np.testing.assert_allclose(told["stats"]["action"], np.concatenate([one.actions for one in episodes()]).mean(0))


@pytest.mark.full
@lerobot_python.needed
def test_we_read_what_lerobot_writes(tmp_path):
    told = lerobot_python.ask(PEER, "write", tmp_path / "set")
    for one, other in zip(told["episodes"], read_all(LeRobot(tmp_path / "set", {})), strict=True):
        assert one["prompt"] == other.prompt
        np.testing.assert_array_equal(one["states"], other.states)
        np.testing.assert_array_equal(one["actions"], other.actions)
        for camera, key in KEYS.items():
            np.testing.assert_allclose(one["images"][key], other.images[camera].mean((1, 2, 3)), atol=2)
