"""LeRobot sets, v2.1 and v3.0, as others write them; and every way an episode can be damaged."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas
import pyarrow.parquet
import pytest
from episode_sets import FPS, assert_same, episode, episodes, read_all, write_v2

from harness.data.lerobot import LeRobot
from harness.data.lerobot_writer import write_lerobot
from harness.data.shape import CAMERAS
from harness.data.source import DamagedEpisode
from harness.data.video import VideoWriter
from harness.errors import BadInput, DamagedRecord

TABLE = "data/chunk-000/episode_000001.parquet"
WRIST = "videos/chunk-000/wrist_image/episode_000001.mp4"


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Path:
    return write_v2(tmp_path_factory.mktemp("v2") / "set", episodes(), "video")


@pytest.fixture
def copy(stored, tmp_path) -> Path:
    return Path(shutil.copytree(stored, tmp_path / "set"))


@pytest.mark.parametrize(("kind", "pixels"), [("video", 3), ("image", 0)])
def test_v2_is_read_as_it_was_written(tmp_path, kind, pixels):
    folder = write_v2(tmp_path / "set", episodes(), kind)
    assert_same(read_all(LeRobot(folder, {})), episodes(), pixels)


def test_v3_finds_each_episode_among_the_others(tmp_path):
    assert write_lerobot(tmp_path / "set", episodes(), FPS) == 3
    source = LeRobot(tmp_path / "set", {})
    assert_same(read_all(source), episodes(), 3)
    assert_same([source.read(2), source.read(0)], [episodes()[2], episodes()[0]], 3)
    assert len(LeRobot(tmp_path / "set", {}, first_episodes=2)) == 2


def test_a_suite_may_name_the_cameras(stored):
    swapped = dict(zip(CAMERAS, ("wrist_image", "image"), strict=True))
    found = LeRobot(stored, swapped).read(0)
    assert found.images["agentview"].mean() > found.images["robot0_eye_in_hand"].mean() + 50
    with pytest.raises(BadInput, match=r'data.cameras.agentview = .wrist_imag.*did you mean "wrist_image"'):
        LeRobot(stored, {"agentview": "wrist_imag"}).read(0)


def _cut_video(folder):
    path = folder / WRIST
    path.write_bytes(path.read_bytes()[:-400])


def _short_video(folder):
    frames = episodes()[1].images["robot0_eye_in_hand"][:6]
    (folder / WRIST).unlink()
    write_v2(folder.parent / "other", [episode(0, 1), episode(1, 6)], "video")
    assert len(frames) == 6
    shutil.copy(folder.parent / "other" / WRIST, folder / WRIST)


def _no_video(folder):
    (folder / WRIST).unlink()


def _table(change):
    def damage(folder):
        rows = pandas.read_parquet(folder / TABLE)
        change(rows).to_parquet(folder / TABLE)

    return damage


def _with_nan(rows):
    rows.at[4, "state"] = np.full(8, np.nan, np.float32)
    return rows


def _with_short_action(rows):
    rows["actions"] = [row[:6] if step == 2 else row for step, row in enumerate(rows["actions"])]
    return rows


def _without_a_row(rows):
    return rows.drop(index=3)


def _cut_table(folder):
    path = folder / TABLE
    path.write_bytes(path.read_bytes()[:-30])


def _other_size(folder):
    write_v2(folder.parent / "other", [episode(0, 5), episode(1, 8, size=24)], "video")
    shutil.copy(folder.parent / "other" / WRIST, folder / WRIST)


@pytest.mark.parametrize(
    ("damage", "file", "frame"),
    [
        (_cut_video, WRIST, 0),
        (_short_video, WRIST, 6),
        (_no_video, WRIST, 0),
        (_table(_with_nan), TABLE, 4),
        (_table(_with_short_action), TABLE, 2),
        (_table(_without_a_row), TABLE, 3),
        (_cut_table, TABLE, None),
        (_other_size, TABLE, 0),
    ],
)
def test_damage_is_told_with_file_and_frame(copy, damage, file, frame):
    damage(copy)
    source = LeRobot(copy, {})
    with pytest.raises(DamagedEpisode) as fault:
        source.read(1)
    assert fault.value.file == copy / file and fault.value.frame == frame
    assert str(copy / file) in str(fault.value) and "episode 1" in str(fault.value)
    assert_same([source.read(0), source.read(2)], [episodes()[0], episodes()[2]], 3)


def test_a_broken_png_in_a_table_is_told(tmp_path):
    folder = write_v2(tmp_path / "set", episodes(), "image")
    rows = pandas.read_parquet(folder / TABLE)
    cut = rows["image"][5]["bytes"][:40]
    rows.at[5, "image"] = {"bytes": cut, "path": None}
    rows.to_parquet(folder / TABLE)
    with pytest.raises(DamagedEpisode, match=r"episode 1, frame 5: not a readable image"):
        LeRobot(folder, {}).read(1)


def test_a_video_that_lacks_its_end_is_told_by_its_frame(tmp_path):
    """A file whose index comes first can be opened; what is missing shows when it is decoded."""
    folder = write_v2(tmp_path / "set", [episode(0, 30)], "video")
    path = folder / "videos/chunk-000/image/episode_000000.mp4"
    _index_first(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - 400])
    with pytest.raises(DamagedEpisode) as fault:
        LeRobot(folder, {}).read(0)
    assert fault.value.file == path and 0 < fault.value.frame < 30


def test_a_frame_that_is_missing_from_the_middle_is_told(copy):
    frames = episodes()[1].images["robot0_eye_in_hand"]
    writer = VideoWriter(copy / WRIST, FPS)
    writer.add(frames[:3])
    writer.frames += 1  # the next is shown one frame's time later
    writer.add(frames[4:])
    writer.close()
    with pytest.raises(DamagedEpisode, match=r"episode 1, frame 3: the video has 3 of 8 frames"):
        LeRobot(copy, {}).read(1)


def _index_first(path: Path) -> None:
    import av

    moved = path.with_suffix(".moved.mp4")
    with av.open(str(path)) as old, av.open(str(moved), "w", options={"movflags": "faststart"}) as new:
        stream = new.add_stream_from_template(old.streams.video[0])
        for packet in old.demux(old.streams.video[0]):
            if packet.dts is not None:
                packet.stream = stream
                new.mux(packet)
    moved.replace(path)


def _edit_info(folder, **changes):
    file = folder / "meta/info.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_what_is_not_such_a_set_is_one_clear_error(copy, tmp_path):
    with pytest.raises(BadInput, match=r"info\.json: expected a LeRobot data set"):
        len(LeRobot(tmp_path / "nothing", {}))
    _edit_info(copy, codebase_version="v1.6")
    with pytest.raises(BadInput, match=r"codebase_version = 'v1\.6': expected v2\.1 or v3\.0"):
        len(LeRobot(copy, {}))
    _edit_info(copy, codebase_version="v2.1", features={"state": {"dtype": "float32", "shape": [8]}})
    with pytest.raises(BadInput, match=r"data\.cameras in the suite"):
        len(LeRobot(copy, {}))
    (copy / "meta/info.json").write_text("{")
    with pytest.raises(DamagedRecord, match="not readable as JSON"):
        len(LeRobot(copy, {}))


def test_a_damaged_index_of_episodes_is_told(tmp_path):
    write_lerobot(tmp_path / "set", episodes(), FPS)
    index = tmp_path / "set/meta/episodes/chunk-000/file-000.parquet"
    table = pyarrow.parquet.read_table(index)
    empty = pyarrow.nulls(3, pyarrow.int64())
    pyarrow.parquet.write_table(table.drop_columns(["data/file_index"]).append_column("data/file_index", empty), index)
    with pytest.raises(BadInput, match=r"data/file_index: expected a value for every episode"):
        len(LeRobot(tmp_path / "set", {}))
    pyarrow.parquet.write_table(table.drop_columns(["data/file_index"]), index)
    with pytest.raises(DamagedRecord, match=r"not a readable index of episodes: .*data/file_index"):
        len(LeRobot(tmp_path / "set", {}))
    index.write_bytes(b"no table")
    with pytest.raises(DamagedRecord, match="not a readable index"):
        len(LeRobot(tmp_path / "set", {}))
