"""Episodes played in a scene, then replayed from their records in scenes of their own."""

import io
import shutil
from itertools import pairwise

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from harness.errors import BadInput
from harness.libero.episode import play
from harness.libero.film import contact_sheet, write_video
from harness.libero.pool import actions_name
from harness.libero.protocol import preset
from harness.libero.records import ArmRecord, EpisodeRecord
from harness.libero.replay import NotTheEpisode, Replayer, View, recorded_episode, recorded_episodes
from harness.libero.sheets import moments, write_sheets
from harness.machine import fingerprint
from harness.policies.base import PolicyFault
from harness.store import ResultFolder, append_line, write_atomically, write_record

PROTOCOL = preset("micro").model_copy(update={"step_budgets": {"libero_object": 12}})
CHUNK = np.tile(np.array([0.6, 0.1, -0.7, 0, 0.2, 0, -1], np.float32), (8, 1))


@pytest.fixture(scope="module")
def arm(scenes, key, tmp_path_factory):
    """The folder of an arm with two episodes on record, as an evaluation leaves it."""
    folder = tmp_path_factory.mktemp("result") / "evaluate" / "mine"
    made = ArmRecord(
        arm="mine",
        policy="export",
        protocol=PROTOCOL,
        fingerprint=fingerprint(),
        gl_vendor=None,
        gl_renderer=None,
    )
    write_record(folder / "protocol.json", made)
    scene = scenes("libero_object", 0)
    for state in (3, 4):
        of = key(state=state)
        start = scene.reset(of)
        episode = play(scene, start.observation, of, PROTOCOL, "go")
        next(episode)
        try:
            while True:
                episode.send(CHUNK)
        except StopIteration as stop:
            end = stop.value
        buffer = io.BytesIO()
        np.savez_compressed(buffer, actions=end.actions)
        write_atomically(folder / "actions" / actions_name(of), buffer.getvalue())
        record = EpisodeRecord(
            arm="mine",
            key=of,
            protocol=PROTOCOL.digest(),
            outcome=end.outcome,
            reason=None,
            scene_sha256=start.scene_sha256,
            steps=end.steps,
            looks=end.looks,
            wall_seconds=1.0,
            tries=1,
            first_images_sha256=end.first_images_sha256,
            last_images_sha256=end.last_images_sha256,
        )
        append_line(folder / "episodes.jsonl", record.model_dump_json())
    return folder


@pytest.fixture(scope="module")
def replayer():
    made = Replayer(None)
    yield made
    made.close()


def files(arm):
    return sorted((arm / "actions").glob("*.npz"))


def test_a_replay_shows_the_policy_the_same_pixels(arm, replayer):
    first, second = (recorded_episode(file) for file in files(arm))
    assert first.record.first_images_sha256 != first.record.last_images_sha256 is not None
    assert first.record.first_images_sha256 != second.record.first_images_sha256
    replayer.check(second)
    replayer.check(first)
    frames = list(replayer.frames(first))
    assert len(frames) == 13
    assert frames[0].shape == (128, 256, 3)
    some = list(replayer.frames(first, [0, 5, 12]))
    assert all((frame == frames[moment]).all() for frame, moment in zip(some, [0, 5, 12], strict=True))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"scene_sha256": "0" * 64}, "scene"),
        ({"outcome": "success"}, "outcome"),
        ({"first_images_sha256": "0" * 64}, "images of the first look"),
        ({"last_images_sha256": "0" * 64}, "images of the last look"),
    ],
)
def test_what_is_not_the_episode_is_named(arm, replayer, change, reason):
    episode = recorded_episode(files(arm)[0])
    false = type(episode)(episode.record.model_copy(update=change), episode.protocol, episode.actions)
    with pytest.raises(NotTheEpisode, match=f"differs in {reason}"):
        replayer.check(false)


def test_other_actions_are_another_episode(arm, replayer):
    episode = recorded_episode(files(arm)[0])
    changed = episode.actions.copy()
    changed[0, 0] += 1e-3
    with pytest.raises(NotTheEpisode, match="images of the last look"):
        replayer.check(type(episode)(episode.record, episode.protocol, changed))


def test_any_size_and_camera_makes_a_video(arm, tmp_path):
    replayer = Replayer(View(("frontview", "agentview"), 64))
    file = tmp_path / "x.mp4"
    assert write_video(file, replayer.frames(recorded_episode(files(arm)[0]))) == 13
    replayer.close()
    with av.open(str(file)) as video:
        frames = [frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)]
        assert video.streams.video[0].average_rate == 20
    assert len(frames) == 13
    assert frames[0].shape == (64, 128, 3)
    assert np.abs(frames[0].astype(int) - frames[-1].astype(int)).max() > 20


def test_an_episode_is_found_by_its_file_or_the_nearest_is_named(arm, tmp_path):
    assert [record.key.initial_state for record in recorded_episodes(arm)] == [3, 4]
    with pytest.raises(BadInput, match=r"did you mean .*libero_object-0-3-7"):
        recorded_episode(arm / "actions" / "libero_object-0-3-8.npz")
    stray = tmp_path / "actions" / "x.npz"
    write_atomically(stray, b"")
    with pytest.raises(BadInput, match=r"an episode of .*episodes.jsonl"):
        recorded_episode(stray)


def test_a_video_needs_frames_and_a_format(tmp_path):
    with pytest.raises(BadInput, match="with frames"):
        write_video(tmp_path / "x.mp4", [])
    assert not (tmp_path / "x.mp4").exists()
    with pytest.raises(BadInput, match="a video file"):
        write_video(tmp_path / "x.nothing", [])
    odd = np.zeros((33, 17, 3), np.uint8)
    assert write_video(tmp_path / "odd.mp4", [odd, odd]) == 2


def test_a_contact_sheet_has_a_row_an_episode():
    red, blue = np.zeros((10, 20, 3), np.uint8), np.zeros((10, 20, 3), np.uint8)
    red[..., 0], blue[..., 2] = 255, 255
    sheet = contact_sheet([("one", [red, blue]), ("two", [blue])])
    assert sheet.shape == (60, 48, 3)
    assert (sheet[20, 5] == [255, 0, 0]).all()
    assert (sheet[20, 30] == [0, 0, 255]).all()
    assert (sheet[50, 5] == [0, 0, 255]).all()
    assert (sheet[50, 30] == 255).all()


def test_contact_sheets_are_made_once_and_what_cannot_be_replayed_is_told(arm, tmp_path):
    result = ResultFolder(tmp_path / "result")
    shutil.copytree(arm, result.arm("mine"))
    (result.arm("mine") / "actions" / "libero_object-0-4-7.npz").unlink()
    told = []
    [sheet] = write_sheets(result, "failures", told.append)
    assert sheet == result.arm("mine") / "sheets" / "libero_object-0-3-7.jpg"
    with Image.open(sheet) as picture:
        assert picture.size == (4 * 164, 2 * 180)
        rows = np.asarray(picture.convert("RGB")).astype(int)
    first, last = rows[16:176, :160], rows[196:356, 492:652]
    assert first.std() > 20 and np.abs(first - last).max() > 40
    assert len(told) == 1 and "libero_object-0-4-7.npz is not there" in told[0]
    made = sheet.stat().st_mtime_ns
    assert write_sheets(result, "all", told.append) == [sheet]
    assert sheet.stat().st_mtime_ns == made


@given(steps=st.integers(1, 600), count=st.integers(2, 12))
def test_moments_are_even_and_reach_from_rest_to_the_end(steps, count):
    found = moments(steps, count)
    assert (len(found), found[0], found[-1]) == (count, 0, steps)
    apart = [b - a for a, b in pairwise(found)]
    assert min(apart) >= 0 and max(apart) - min(apart) <= 1


def test_a_policy_that_cannot_answer_keeps_the_actions_so_far(scenes, key):
    scene = scenes("libero_object", 0)
    start = scene.reset(key(state=3))
    episode = play(scene, start.observation, key(state=3), PROTOCOL, "go")
    next(episode)
    episode.send(CHUNK)
    with pytest.raises(StopIteration) as stop:
        episode.throw(PolicyFault("gone"))
    assert (stop.value.value.outcome, stop.value.value.reason, stop.value.value.steps) == ("error", "gone", 8)
