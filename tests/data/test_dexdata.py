"""Dexdata folders, with images and with videos; and every way an episode can be damaged."""

import json
from pathlib import Path

import numpy as np
import pytest
from episode_sets import assert_same, episode, episodes, read_all, write_dexdata

from harness.data.dexdata import DexData
from harness.data.shape import CAMERAS
from harness.data.source import DamagedEpisode
from harness.errors import BadInput


@pytest.mark.parametrize(("kind", "pixels"), [("video", 3), ("image", 0)])
def test_a_folder_is_read_as_it_was_written(tmp_path, kind, pixels):
    source = DexData(write_dexdata(tmp_path, episodes(), kind), {})
    assert_same(read_all(source), episodes(), pixels)
    assert len(DexData(tmp_path, {}, first_episodes=2)) == 2
    assert {path.suffix for path in source.files} == {".jsonl", ".mp4" if kind == "video" else ".png"}


def test_without_actions_they_are_the_changes_of_state(tmp_path):
    made = episode(0, 6, state_width=7)
    found = DexData(write_dexdata(tmp_path, [made], "image", actions=False), {}).read(0)
    assert found.actions.shape == (5, 7) and found.states.shape == (5, 7) and len(found.images["agentview"]) == 5
    np.testing.assert_allclose(found.actions[2, :6], made.states[3, :6] - made.states[2, :6])
    np.testing.assert_array_equal(found.actions[:, 6], made.states[1:, 6])


def test_states_of_two_fingers_cannot_stand_in_for_actions(tmp_path):
    source = DexData(write_dexdata(tmp_path, [episode(0, 4)], "image", actions=False), {})
    with pytest.raises(DamagedEpisode, match="no action, and a state of 8 numbers"):
        source.read(0)


def test_a_suite_may_name_the_cameras(tmp_path):
    write_dexdata(tmp_path, [episode(0, 3)], "image")
    found = DexData(tmp_path, dict(zip(CAMERAS, ("images_2", "images_1"), strict=True))).read(0)
    np.testing.assert_array_equal(found.images["agentview"], episode(0, 3).images["robot0_eye_in_hand"])
    with pytest.raises(BadInput, match=r"data\.cameras\.agentview = 'images_7'"):
        DexData(tmp_path, {"agentview": "images_7"}).read(0)


def _edit(frame, **changes):
    def damage(folder: Path, file: Path):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        lines[frame] |= changes
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))

    return damage


def _cut_line(folder, file):
    file.write_text(file.read_text()[:-60])


def _cut_video(folder, file):
    path = folder / "video/1/view2.mp4"
    path.write_bytes(path.read_bytes()[:-500])


def _broken_text(folder, file):
    file.write_bytes(b"\xff\xfe\x00")


def _one_line(folder, file):
    file.write_text(file.read_text().splitlines()[0] + "\n")


@pytest.mark.parametrize(
    ("damage", "frame", "reason"),
    [
        (_edit(3, state=[1.0] * 5), 3, "state must be 7 or 8 numbers"),
        (_edit(4, state=[float("nan")] * 8), 4, "state is not finite"),
        (_edit(3, state=[[1.0, 2.0], [3.0]]), 3, "state must be 7 or 8 numbers"),
        (_edit(3, state=["far"] * 8), None, "state must be numbers"),
        (_edit(2, action=None), 2, "action must be 7 numbers"),
        (_edit(5, images_1={"type": "image"}), 5, "an image must be"),
        (_edit(5, images_1={"type": "video", "url": "1/view1.mp4", "frame_idx": -1}), 5, "frame_idx"),
        (_edit(5, images_1={"type": "video", "url": "1/view1.mp4", "frame_idx": 99}), 99, "the video ends before it"),
        (_edit(5, images_2=None), 5, "an image must be"),
        (_edit(0, prompt=3), 0, "prompt must be the instruction"),
        (_edit(1, is_robot=False), 1, "not a frame of a robot's episode"),
        (_cut_line, 7, "its line is not JSON"),
        (_cut_video, 2, "not a whole video"),
        (_broken_text, None, "not readable"),
        (_one_line, None, "at least 2 frames"),
    ],
)
def test_damage_is_told_with_file_and_frame(tmp_path, damage, frame, reason):
    write_dexdata(tmp_path, episodes(), "video")
    damage(tmp_path, tmp_path / "jsonl/episode1.jsonl")
    source = DexData(tmp_path, {})
    with pytest.raises(DamagedEpisode, match=reason) as fault:
        source.read(1)
    assert fault.value.frame == frame
    assert fault.value.file.name in ("episode1.jsonl", "view1.mp4", "view2.mp4")
    assert len(source.read(0).actions) == 5


def test_missing_and_broken_images_are_told(tmp_path):
    write_dexdata(tmp_path, episodes(), "image")
    (tmp_path / "image/1/view1/4.png").write_bytes(b"no image")
    with pytest.raises(DamagedEpisode, match=r"episode1\.jsonl: frame 4: not a readable image"):
        DexData(tmp_path, {}).read(1)
    (tmp_path / "image/1/view1/4.png").unlink()
    with pytest.raises(DamagedEpisode, match=r"episode1\.jsonl: frame 4: no file 1/view1/4\.png"):
        DexData(tmp_path, {}).read(1)
    large = episode(1, 8, size=24)
    write_dexdata(tmp_path / "large", [episode(0, 2), large], "image")
    (tmp_path / "large/image/1/view1/3.png").replace(tmp_path / "image/1/view1/4.png")
    with pytest.raises(DamagedEpisode, match=r"frame 4: the image is \(24, 24, 3\), the first was \(16, 16, 3\)"):
        DexData(tmp_path, {}, first_episodes=2).read(1)


def test_an_empty_folder_is_one_clear_error(tmp_path):
    with pytest.raises(BadInput, match=r"expected a folder of Dexdata"):
        len(DexData(tmp_path, {}))
