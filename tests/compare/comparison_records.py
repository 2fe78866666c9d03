"""A plausible result of the fsdp2 suite: four cells, two repeats, two learnt arms, two controls."""

from __future__ import annotations

import hashlib
import math
from typing import Any

from harness.backends.options import BackendOptions, DdpOptions, DeepSpeedOptions, Fsdp2Options
from harness.compare.results import Results
from harness.libero.records import ArmRecord, EpisodeRecord, Protocol
from harness.machine import Fingerprint
from harness.plan import Cell, EpisodeKey, Plan, PlannedArm, PlannedRun, RunKind
from harness.suite import Data, Evaluation, Gate, Optimizer, Scope
from harness.train.facts import InForce, ShardBytes, Workload
from harness.train.records import Failure, Memory, Outcome, RunRecord, Speed, StepRow

MACHINE = Fingerprint(
    hardware_key="cpu-example-2c-24g",
    hostname="bench-1",
    cpu="Example CPU 9000",
    cores=2,
    memory_bytes=24 * 2**30,
    gpus=[],
    kernel="6.8.0",
    python="3.11.9",
    versions={"torch": "2.13.0", "deepspeed": "0.19.8", "transformers": "5.24.0", "mujoco": "3.3.2"},
)
PROTOCOL = Protocol(
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
OPTIONS: dict[str, BackendOptions] = {
    "zero3": DeepSpeedOptions(zero_stage=3),
    "zero2": DeepSpeedOptions(zero_stage=2),
    "fsdp2": Fsdp2Options(),
    "ddp": DdpOptions(),
}
STEP_SECONDS = {"zero3": 0.300, "zero2": 0.262, "fsdp2": 0.240, "ddp": 0.238}
WRAPPERS = {
    "zero3": "DeepSpeedEngine",
    "zero2": "DeepSpeedEngine",
    "fsdp2": "FSDPPi0",
    "ddp": "DistributedDataParallel",
}
NOISE = (0.996, 1.003, 1.001, 0.998, 1.0045, 0.9985, 1.002, 0.9965, 1.0005, 0.999, 1.0015, 0.997)
PARAMETERS = 6_000_000


def a_cell(key: str = "zero3", **changes: Any) -> Cell:
    plain = {
        "label": f"pi0-{key}",
        "model": "pi0",
        "size": "micro",
        "backend": OPTIONS[key],
        "data": Data(source="expert"),
    }
    return Cell(**{**plain, **changes})


def a_planned_run(key: str = "zero3", kind: RunKind = RunKind.TIMING, repeat: int = 0) -> PlannedRun:
    if kind is RunKind.TIMING:
        return PlannedRun(cell=a_cell(key), kind=kind, repeat=repeat, training_seed=7, steps=35, warmup_steps=5)
    learning = a_cell(key, micro_batch=24, optimizer=Optimizer(schedule="cosine", warmup_steps=50))
    return PlannedRun(
        cell=learning, kind=kind, repeat=repeat, training_seed=repeat, steps=200, warmup_steps=5, checkpoint_every=100
    )


def in_force(run: PlannedRun) -> InForce:
    cell, key = run.cell, run.cell.label.removeprefix("pi0-")
    return InForce(
        backend=cell.backend.backend,
        wrapper=WRAPPERS[key],
        parameter_class="DTensor" if key == "fsdp2" else "Parameter",
        sharded_units=5 if key == "fsdp2" else 0,
        zero_stage=getattr(cell.backend, "zero_stage", None),
        world_size=cell.ranks,
        collective_backend="gloo",
        parameter_dtype="float32",
        master_dtype="float32",
        reduce_dtype="float32",
        micro_batch=cell.micro_batch,
        accumulation=cell.accumulation,
        clip=cell.clip,
        activation_checkpointing=False,
        optimizer_class="AdamW",
        optimizer=cell.optimizer,
    )


def workload(run: PlannedRun) -> Workload:
    return Workload(
        parameters=PARAMETERS,
        trainable_parameters=PARAMETERS,
        initial_weights_sha256="a1" * 32,
        data_sha256=hashlib.sha256(f"{run.kind}{run.training_seed}".encode()).hexdigest(),
        hashed_batches=4,
        samples_per_step=run.cell.samples_per_step,
        tokens_per_sample=120,
        tokens_definition="positions per sample: 2 x 32 image tokens, 48 text slots, 8 action slots",
    )


def a_run(key: str = "zero3", kind: RunKind = RunKind.TIMING, repeat: int = 0, **changes: Any) -> RunRecord:
    """A run that ended well; `changes` replace fields of the record."""
    run = a_planned_run(key, kind, repeat)
    seconds = STEP_SECONDS[key] * NOISE[(repeat * 5 + list(OPTIONS).index(key) * 3) % len(NOISE)]
    seconds *= run.cell.micro_batch / 8
    share = 1 if key in ("ddp", "zero2") else 2
    state = 1 if key == "ddp" else 2
    shard = ShardBytes(
        parameter_bytes=PARAMETERS * 4 // share,
        gradient_bytes=PARAMETERS * 4 // state,
        optimizer_bytes=PARAMETERS * 8 // state,
    )
    learning = kind is RunKind.LEARNING
    plain: dict[str, Any] = {
        "run": run,
        "attempt": 1,
        "seed": run.training_seed,
        "outcome": Outcome.OK,
        "failure": None,
        "started_at": f"2026-03-01T10:{repeat:02d}:00+00:00",
        "wall_seconds": 40.0,
        "fingerprint": MACHINE,
        "workload": workload(run),
        "in_force": in_force(run),
        "speed": a_speed(seconds, run),
        "memory": Memory(
            peak_resident_bytes=(900 + 40 * share + list(OPTIONS).index(key)) * 2**20,
            peak_allocated_bytes=None,
            peak_reserved_bytes=None,
            shards=[shard, shard],
            activation_bytes=84 * 2**20,
        ),
        "final_loss": 0.21 if learning else 0.9,
        "checkpoint_save_seconds": 1.5 + 0.1 * list(OPTIONS).index(key) if learning else None,
        "checkpoint_load_seconds": None,
        "checkpoint_bytes": PARAMETERS * 12 if learning else None,
        "export": "export" if learning else None,
    }
    return RunRecord(**{**plain, **changes})


def a_speed(seconds: float, run: PlannedRun, steadiness: str = "STEADY") -> Speed:
    samples = run.cell.samples_per_step
    return Speed(
        warmup_steps=run.warmup_steps,
        measured_steps=run.steps - run.warmup_steps,
        median_step_seconds=seconds,
        p95_step_seconds=seconds * 1.08,
        p99_step_seconds=seconds * 1.15,
        median_forward_seconds=seconds * 0.31,
        median_backward_seconds=seconds * 0.55,
        median_optimizer_seconds=seconds * 0.11,
        median_skew_seconds=seconds * 0.02,
        median_data_seconds=0.004,
        samples_per_second=samples / seconds,
        tokens_per_second=samples * 120 / seconds,
        cpu_seconds_per_step=seconds * 0.95,
        steadiness=steadiness,
    )


def a_failed_run(key: str, outcome: Outcome, repeat: int = 0, kind: RunKind = RunKind.TIMING) -> RunRecord:
    traceback = "Traceback (most recent call last):\n" + "\n".join(f"  frame {i}" for i in range(20))
    failure = Failure(
        reason="a rank was killed for memory", rank=1, exit_code=-9, traceback=f"{traceback}\nMemoryError: 3 GiB"
    )
    nothing = dict.fromkeys(("workload", "in_force", "speed", "memory", "final_loss"), None)
    return a_run(key, kind, repeat, outcome=outcome, failure=failure, **nothing)


def some_steps(count: int, drift: float = 0.0, rounding: float = 3e-7) -> list[StepRow]:
    """A falling loss curve. `drift`: its relative distance at the end, growing from step 20 on."""
    rows = []
    for step in range(count):
        late = max(0, step - 20) / max(1, count)
        loss = (0.2 + 0.8 * math.exp(-step / 60)) * (1 + drift * late) + rounding * (step % 3)
        rows.append(
            StepRow(
                step=step, step_seconds=0.3, data_seconds=0.004, loss=loss, gradient_norm=1.5, learning_rate=1e-3,
                samples=16, tokens=1920,
            )
        )  # fmt: skip
    return rows


def some_keys() -> list[EpisodeKey]:
    objects = [
        EpisodeKey(task_suite="libero_object", task=task, initial_state=state, seed=7)
        for task in (0, 1)
        for state in range(40, 50)
    ]
    others = [
        EpisodeKey(task_suite=suite, task=task, initial_state=40, seed=7)
        for suite, task in (("libero_spatial", 0), ("libero_goal", 8), ("libero_10", 0))
    ]
    return objects + others


def an_episode(arm: str, key: EpisodeKey, outcome: str, **changes: Any) -> EpisodeRecord:
    scene = hashlib.sha256(key.model_dump_json().encode()).hexdigest()
    plain = {
        "arm": arm,
        "key": key,
        "protocol": PROTOCOL.digest(),
        "outcome": outcome,
        "reason": "no skill for this goal" if outcome == "uncovered" else None,
        "scene_sha256": scene,
        "steps": 120,
        "looks": 15,
        "wall_seconds": 3.0,
        "tries": 1,
    }
    return EpisodeRecord(**{**plain, **changes})


def some_episodes(arm: str, keys: list[EpisodeKey], successes: int) -> list[EpisodeRecord]:
    """Success on the first `successes` keys, failure on the rest."""
    return [an_episode(arm, key, "success" if i < successes else "failure") for i, key in enumerate(keys)]


def an_arm(name: str, **changes: Any) -> ArmRecord:
    plain = {
        "arm": name, "policy": name, "protocol": PROTOCOL, "fingerprint": MACHINE, "gl_vendor": None,
        "gl_renderer": None,
    }  # fmt: skip
    return ArmRecord(**{**plain, **changes})


def a_plan(repeats: int = 2, seeds: int = 1, **changes: Any) -> Plan:
    timing = [a_planned_run(key, repeat=repeat) for repeat in range(repeats) for key in OPTIONS]
    learning = [a_planned_run(key, RunKind.LEARNING, seed) for seed in range(seeds) for key in ("zero3", "fsdp2")]
    learnt = [PlannedArm(name=f"{run.cell.label}-seed{run.training_seed}", run_key=run.key) for run in learning]
    scope = Scope(task_suite="libero_object", tasks=[0, 1], initial_states="40-49")
    plain = {
        "suite": "fsdp2",
        "purpose": "bench",
        "seed": 7,
        "hardware_key": MACHINE.hardware_key,
        "runs": timing + learning,
        "unsupported": [],
        "reference": "zero3",
        "arms": [*learnt, PlannedArm(name="expert"), PlannedArm(name="still")],
        "episodes": some_keys(),
        "evaluation": Evaluation(scopes=[scope]),
        "gate": Gate(),
    }
    return Plan(**{**plain, **changes})


def some_results(plan: Plan | None = None, result_id: str = "20260301-100000-abc123") -> Results:
    """Everything of `a_plan()` ended well: FSDP2 about 1.25 times as fast as ZeRO-3, success alike."""
    plan = plan or a_plan()
    keys = plan.episodes
    runs = [a_run(run.cell.label.removeprefix("pi0-"), run.kind, run.repeat) for run in plan.runs]
    steps = {run.key: some_steps(run.steps, 0.02 if "fsdp2" in run.key else 0.0) for run in plan.runs}
    successes = {"pi0-zero3": 17, "pi0-fsdp2": 18, "expert": 20, "still": 0}
    episodes = []
    for arm in plan.arms:
        count = successes[arm.name.split("-seed")[0]]
        episodes += some_episodes(arm.name, keys, count)
    episodes = [
        an_episode("expert", e.key, "uncovered") if e.arm == "expert" and e.key.task_suite != "libero_object" else e
        for e in episodes
    ]
    return Results(
        result_id=result_id,
        command="harness run suites/fsdp2.toml",
        runs=runs,
        steps=steps,
        arms=[an_arm(arm.name) for arm in plan.arms],
        episodes=episodes,
    )
