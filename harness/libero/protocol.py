"""Evaluation protocols by name. A protocol is data: it is stored with the result and is part of the pairing key."""

from __future__ import annotations

from harness.errors import BadInput
from harness.libero.records import Protocol

_MICRO = Protocol(
    name="micro",
    camera_height=128,
    camera_width=128,
    cameras=("agentview", "robot0_eye_in_hand"),
    rotate_180=True,
    settle_steps=10,
    step_budgets={"libero_spatial": 220, "libero_object": 280, "libero_goal": 300, "libero_10": 520},
    replan_steps=8,
    prompt_template="{instruction}",
    gripper="continuous",
    state_layout="eef_pos+axis_angle+gripper",
)

PRESETS: dict[str, Protocol] = {
    # The harness's own small model: LIBERO's native image size, the budgets and settling every published
    # evaluator shares (openpi `examples/libero/main.py`, `run_libero_eval.py` of openvla-oft).
    "micro": _MICRO,
    # Dexbotic's benchmark, `evaluation/evaluator/libero_evaluator.py` with pi0: 256 × 256 images, five of the
    # predicted actions executed, the raw instruction, the gripper as predicted.
    "dexbotic-pi0": _MICRO.model_copy(
        update={"name": "dexbotic-pi0", "camera_height": 256, "camera_width": 256, "replan_steps": 5}
    ),
    # The same evaluator with CogACT: one camera, a question as prompt, the gripper's sign. Twelve of sixteen actions
    # are executed in libero_spatial; Dexbotic's own configurations use 16, 16 and 15 in object, goal and 10.
    "dexbotic-cogact": _MICRO.model_copy(
        update={
            "name": "dexbotic-cogact",
            "camera_height": 256,
            "camera_width": 256,
            "cameras": ("agentview",),
            "replan_steps": 12,
            "prompt_template": "What action should the robot take to {task_language}?",
            "gripper": "sign",
        }
    ),
    # openpi `examples/libero/main.py`: 256 × 256 images (its policy resizes them to 224 with padding), replan 5,
    # `task.language` as prompt.
    "openpi": _MICRO.model_copy(
        update={
            "name": "openpi",
            "camera_height": 256,
            "camera_width": 256,
            "replan_steps": 5,
            "prompt_template": "{task_language}",
        }
    ),
}
PRESETS["dexbotic-pi0"] = PRESETS["dexbotic-pi0"].model_copy(update={"prompt_template": "{task_language}"})


def preset(name: str) -> Protocol:
    """The protocol of that name. Raises BadInput with the names there are."""
    if name not in PRESETS:
        raise BadInput("protocol", None, name, "one of the named protocols", choices=PRESETS)
    return PRESETS[name]
