"""Evaluation protocols by name. A protocol is data: it is stored with the result and is part of the pairing key."""

from __future__ import annotations

from typing import Any

from harness.errors import BadInput
from harness.libero.records import Protocol, Resizing

_MICRO = Protocol(
    name="micro",
    camera_height=128,
    camera_width=128,
    cameras=("agentview", "robot0_eye_in_hand"),
    rotate_180=True,
    settle_steps=10,
    step_budgets={"libero_spatial": 220, "libero_object": 280, "libero_goal": 300, "libero_10": 520, "libero_90": 400},
    replan_steps=8,
    prompt_template="{instruction}",
    gripper="continuous",
    state_layout="eef_pos+axis_angle+gripper",
)
"""The harness's own small model: LIBERO's native image size, the budgets and settling that published evaluators
share (openpi `examples/libero/main.py`, openvla-oft `run_libero_eval.py`)."""

_PUBLISHED = _MICRO.model_copy(
    update={"camera_height": 256, "camera_width": 256, "replan_steps": 5, "prompt_template": "{task_language}"}
)
"""Common to evaluators of published checkpoints: images of 256 × 256, the benchmark's `task.language` as prompt."""

_DIFFERENCES: dict[str, dict[str, Any]] = {
    # Dexbotic's benchmark, `evaluation/evaluator/libero_evaluator.py`, with `configs/libero/example_pi0_libero.yaml`.
    "dexbotic-pi0": {},
    # No configuration of pi0.5 is published; it is evaluated as pi0 here.
    "dexbotic-pi05": {},
    # `configs/libero/example_dm0_libero.yaml`.
    "dexbotic-dm0": {"replan_steps": 12},
    # `configs/libero/libero_*.yaml`: one camera, a question as prompt, the gripper's sign, whole chunks but in two.
    "dexbotic-cogact": {
        "cameras": ("agentview",),
        "replan_steps": 16,
        "replan_steps_in": {"libero_spatial": 12, "libero_10": 15},
        "prompt_template": "What action should the robot take to {task_language}?",
        "gripper": "sign",
    },
    # openpi `examples/libero/main.py`: resized by Pillow on the evaluator's side.
    "openpi": {"resize": Resizing(size=224, kernel="bilinear")},
    # openvla-oft `experiments/robot/libero/run_libero_eval.py`: through JPEG, Lanczos to 224. The prompt's template and
    # the centre crop are the model's own. TensorFlow does there what Pillow does here.
    "openvla-oft": {
        "resize": Resizing(size=224, kernel="lanczos", jpeg_first=True),
        "replan_steps": 8,
        "gripper": "unit-inverted",
    },
    # vla-eval `benchmarks/libero/benchmark.py`: an observation at every step, the chunk is the server's affair.
    "vla-eval": {"replan_steps": 1, "gripper": "sign"},
    # lerobot `envs/libero.py` and `docs/source/libero.mdx`: a longer budget in libero_spatial.
    "lerobot": {"replan_steps": 10, "step_budgets": {**_MICRO.step_budgets, "libero_spatial": 280}},
    # The original LIBERO, `libero/lifelong/metric.py` and `configs/eval/default.yaml`: images as they are rendered
    # (upside down), joints as state, five steps of zeros, 600 steps, a new action at every step.
    "libero": {
        "camera_height": 128,
        "camera_width": 128,
        "rotate_180": False,
        "settle_steps": 0,
        "zero_steps": 5,
        "step_budgets": dict.fromkeys(_MICRO.step_budgets, 600),
        "replan_steps": 1,
        "state_layout": "joints+gripper",
    },
}

_JITTERED = _MICRO.model_copy(update={"name": "micro-jittered", "object_jitter_m": 0.03})
"""Where objects hardly vary over the official initial states, a policy can succeed blind. Moved by ±3 cm, they have to
be looked for."""

PRESETS: dict[str, Protocol] = {"micro": _MICRO, "micro-jittered": _JITTERED} | {
    name: _PUBLISHED.model_copy(update={"name": name, **different}) for name, different in _DIFFERENCES.items()
}


def preset(name: str, replan_steps: int | None = None) -> Protocol:
    """The protocol of that name.

    Args:
        name: a key of `PRESETS`.
        replan_steps: executed per chunk in every task suite, in place of the preset's own.

    Raises:
        BadInput: no such name; the names there are.
    """
    if name not in PRESETS:
        raise BadInput("protocol", None, name, "one of the named protocols", choices=PRESETS)
    if replan_steps is None:
        return PRESETS[name]
    return PRESETS[name].model_copy(update={"replan_steps": replan_steps, "replan_steps_in": {}})
