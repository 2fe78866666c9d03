"""What LeRobot itself makes of a data set, run by its own Python: `lerobot_peer.py read|write FOLDER`.

Prints JSON: for each episode its instruction, states, actions, and each camera's mean value frame by frame.
"""

import json
import sys
from pathlib import Path

import numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset

FPS, SIZE = 20, 32
FEATURES = {
    "observation.state": {"dtype": "float32", "shape": (8,), "names": None},
    "action": {"dtype": "float32", "shape": (7,), "names": None},
    "observation.images.image": {"dtype": "video", "shape": (SIZE, SIZE, 3), "names": ["height", "width", "channels"]},
    "observation.images.image2": {"dtype": "image", "shape": (SIZE, SIZE, 3), "names": ["height", "width", "channels"]},
}


def read(folder: Path) -> None:
    dataset = LeRobotDataset("local/set", root=folder, video_backend="pyav")
    told = [{"prompt": None, "states": [], "actions": [], "images": {}} for _ in range(dataset.num_episodes)]
    for number in range(len(dataset)):
        row = dataset[number]
        episode = told[int(row["episode_index"])]
        episode["prompt"] = row["task"]
        episode["states"].append(row["observation.state"].tolist())
        episode["actions"].append(row["action"].tolist())
        for camera in dataset.meta.camera_keys:
            episode["images"].setdefault(camera, []).append(float(row[camera].mean()) * 255)
    stats = {key: values["mean"].tolist() for key, values in dataset.meta.stats.items() if key in ("action",)}
    print(json.dumps({"episodes": told, "stats": stats}))


def write(folder: Path) -> None:
    dataset = LeRobotDataset.create("local/set", fps=FPS, features=FEATURES, root=folder)
    random, told = np.random.default_rng(0), []
    for number, length in enumerate((6, 9)):
        episode = {"prompt": f"task {number}", "states": [], "actions": [], "images": {}}
        for step in range(length):
            frame = {
                "observation.state": random.normal(size=8).astype(np.float32),
                "action": random.uniform(-1, 1, 7).astype(np.float32),
                "observation.images.image": np.full((SIZE, SIZE, 3), 20 * step + 5 * number, np.uint8),
                "observation.images.image2": np.full((SIZE, SIZE, 3), 10 * step + number, np.uint8),
            }
            dataset.add_frame({**frame, "task": episode["prompt"]})
            episode["states"].append(frame["observation.state"].tolist())
            episode["actions"].append(frame["action"].tolist())
            for camera in ("observation.images.image", "observation.images.image2"):
                episode["images"].setdefault(camera, []).append(float(frame[camera].mean()))
        dataset.save_episode()
        told.append(episode)
    dataset.finalize()
    print(json.dumps({"episodes": told, "stats": {}}))


if __name__ == "__main__":
    {"read": read, "write": write}[sys.argv[1]](Path(sys.argv[2]))
