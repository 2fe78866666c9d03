"""The weights of LeRobot's own models, by its own Python: `lerobot_weights_peer.py pi0|pi05 FILE`.

FILE holds the names and shapes of a checkpoint, as JSON. Prints, as JSON, the names and shapes of the model's state
dict, and which names are missing or unexpected when it is loaded with the checkpoint. All on `meta`.

LeRobot wants its own fork of transformers, which is in no package index, and asks for it by a module that is made up
here. What the fork changes of the weights are the norms of pi05's expert (adaRMS).
"""

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import torch

fork = ModuleType("transformers.models.siglip.check")
fork.check_whether_transformers_replace_is_installed_correctly = lambda: True
sys.modules[fork.__name__] = fork
importlib.import_module("transformers.models.siglip").check = fork


def main() -> None:
    name, file = sys.argv[1], Path(sys.argv[2])
    modeling = importlib.import_module(f"lerobot.policies.{name}.modeling_{name}")
    configuration = importlib.import_module(f"lerobot.policies.{name}.configuration_{name}")
    config = getattr(configuration, f"{name.upper()}Config")(dtype="float32", device="cpu")
    policy = torch.nn.Module()
    with torch.device("meta"):
        policy.model = getattr(modeling, f"{name.upper()}Pytorch")(config)
    checkpoint = {key: torch.empty(shape, device="meta") for key, shape in json.loads(file.read_text()).items()}
    policy_class = getattr(modeling, f"{name.upper()}Policy")
    fixed = policy_class._fix_pytorch_state_dict_keys(policy, checkpoint, config)
    missing, unexpected = policy.load_state_dict(fixed, strict=False, assign=True)
    shapes = {key: list(tensor.shape) for key, tensor in policy.state_dict().items()}
    print(json.dumps({"shapes": shapes, "missing": missing, "unexpected": unexpected}))


if __name__ == "__main__":
    main()
