"""Small episodes, and their writers in the layouts that others write."""

import io
import json
from pathlib import Path

import numpy as np
import pandas
from PIL import Image

from harness.data.shape import CAMERAS, InputShape
from harness.data.source import Episode, EpisodeSource
from harness.data.video import VideoWriter

FPS, SIZE = 20, 16
LENGTHS = (5, 8, 6)
SHAPE = InputShape(
    cameras=(*CAMERAS, "absent"),
    image_size=8,
    text_slots=8,
    vocabulary=32,
    state_dim=32,
    action_dim=32,
    chunk=4,
)


def episode(number: int, steps: int, state_width: int = 8, size: int = SIZE) -> Episode:
    """Frames are flat and tell episode, step and camera; float32 numbers, so that nothing is lost on disk."""
    random = np.random.default_rng(number)
    level = 10 * np.arange(steps)[:, None, None, None] + 3 * number + np.zeros((steps, size, size, 3))
    return Episode(
        name=f"episode {number}",
        prompt=f"move bowl {number % 2}",
        frame_steps=np.arange(steps),
        images={camera: (level + 60 * place).astype(np.uint8) for place, camera in enumerate(CAMERAS)},
        states=random.normal(size=(steps, state_width)).astype(np.float32).astype(np.float64),
        actions=random.uniform(-1, 1, (steps, 7)).astype(np.float32).astype(np.float64),
    )


def episodes() -> list[Episode]:
    return [episode(number, steps) for number, steps in enumerate(LENGTHS)]


def read_all(source: EpisodeSource) -> list[Episode]:
    return [source.read(number) for number in range(len(source))]


def assert_same(found: list[Episode], expected: list[Episode], pixels: int) -> None:
    """Equal but for `pixels` levels of colour, which a video may change."""
    assert [one.prompt for one in found] == [one.prompt for one in expected]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.states, other.states)
        np.testing.assert_array_equal(one.actions, other.actions)
        np.testing.assert_array_equal(one.frame_steps, other.frame_steps)
        assert one.images.keys() == other.images.keys()
        for camera, frames in one.images.items():
            assert frames.dtype == np.uint8 and frames.shape == other.images[camera].shape
            assert np.abs(frames.astype(int) - other.images[camera]).max() <= pixels


def png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "png")
    return buffer.getvalue()


def video(path: Path, frames: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = VideoWriter(path, FPS)
    writer.add(frames)
    writer.close()


def write_v2(folder: Path, made: list[Episode], kind: str) -> Path:
    """LeRobot v2.1: a table per episode, and its cameras as a video each or (kind "image") as PNG in the table."""
    (folder / "meta").mkdir(parents=True)
    prompts = list(dict.fromkeys(one.prompt for one in made))
    camera = {"dtype": kind, "shape": [SIZE, SIZE, 3], "names": ["height", "width", "channel"]}
    features = {"state": {"dtype": "float32", "shape": [8]}, "actions": {"dtype": "float32", "shape": [7]}}
    info = {
        "codebase_version": "v2.1",
        "fps": FPS,
        "chunks_size": 2,
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
        "features": features | {"image": camera, "wrist_image": camera},
    }
    (folder / "meta/info.json").write_text(json.dumps(info))
    lines = [{"episode_index": n, "tasks": [one.prompt], "length": len(one.actions)} for n, one in enumerate(made)]
    (folder / "meta/episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for number, one in enumerate(made):
        where = {"episode_chunk": number // 2, "episode_index": number}
        columns = {
            "state": list(one.states.astype(np.float32)),
            "actions": list(one.actions.astype(np.float32)),
            "frame_index": np.arange(len(one.actions)),
            "episode_index": number,
            "task_index": prompts.index(one.prompt),
        }
        for key, camera_name in zip(("image", "wrist_image"), CAMERAS, strict=True):
            frames = one.images[camera_name]
            if kind == "image":
                columns[key] = [{"bytes": png(frame), "path": None} for frame in frames]
            else:
                video(folder / info["video_path"].format(video_key=key, **where), frames)
        table = folder / info["data_path"].format(**where)
        table.parent.mkdir(parents=True, exist_ok=True)
        pandas.DataFrame(columns).to_parquet(table)
    return folder


def write_dexdata(folder: Path, made: list[Episode], kind: str, actions: bool = True) -> Path:
    """Dexdata: a .jsonl file per episode, and below `video` or `image` what it shows."""
    for number, one in enumerate(made):
        lines = []
        for step in range(len(one.states)):
            line = {"state": one.states[step].tolist(), "prompt": one.prompt, "is_robot": True}
            if actions:
                line["action"] = one.actions[step].tolist()
            for view, camera in enumerate(CAMERAS, 1):
                name = f"{number}/view{view}"
                if kind == "video":
                    # Two frames that no line refers to come first.
                    line[f"images_{view}"] = {"type": "video", "url": f"{name}.mp4", "frame_idx": step + 2}
                else:
                    line[f"images_{view}"] = {"type": "image", "url": f"{name}/{step}.png"}
                    path = folder / f"image/{name}/{step}.png"
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(png(one.images[camera][step]))
            lines.append(line)
        for view, camera in enumerate(CAMERAS, 1):
            if kind == "video":
                black = np.zeros((2, SIZE, SIZE, 3), np.uint8)
                video(folder / f"video/{number}/view{view}.mp4", np.concatenate([black, one.images[camera]]))
        path = folder / f"jsonl/episode{number}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder
