import math
import random

import pytest

from harness.train.meter import (
    Steadiness,
    Stopwatch,
    final_loss,
    merge_ranks,
    paired_steadiness,
    percentile,
    speed,
    steadiness,
)
from harness.train.records import StepRow


def row(step: int, seconds: float = 1.0, *, loss: float | None = 1.0, data: float = 0.1, **more):
    return StepRow(
        step=step,
        step_seconds=seconds,
        data_seconds=data,
        loss=loss,
        gradient_norm=1.0,
        learning_rate=1e-3,
        samples=16,
        tokens=960,
        **more,
    )


def noisy(centre: float, count: int, seed: int = 0) -> list[float]:
    generator = random.Random(seed)
    return [centre * math.exp(generator.gauss(0, 0.02)) for _ in range(count)]


def test_stopwatch_reads_only_its_clocks():
    wall, cpu = iter([10.0, 100.0, 103.5]), iter([1.0, 2.0, 2.25])
    watch = Stopwatch(lambda: next(wall), lambda: next(cpu))
    watch.start()
    lap = watch.stop()
    assert (lap.wall_seconds, lap.cpu_seconds) == (3.5, 0.25)


def test_slowest_rank_counts_and_unshared_steps_do_not():
    merged = merge_ranks([[row(0, 1.0, data=0.5), row(1, 3.0)], [row(0, 2.0, data=0.1), row(1, 1.0), row(2)]])
    assert [(r.step, r.step_seconds, r.data_seconds) for r in merged] == [(0, 2.0, 0.5), (1, 3.0, 0.1)]
    assert merge_ranks([]) == []


def test_speed_drops_warmup_and_resumed_rows():
    rows = [row(0, 99.0, resumed=True), row(1, 50.0), *(row(step, 2.0) for step in range(2, 11)), row(11, 4.0)]
    figures = speed(rows, warmup_steps=1, cpu_seconds_per_step=0.5)
    assert figures.measured_steps == 10
    assert figures.median_step_seconds == 2.0
    assert figures.p95_step_seconds == pytest.approx(2.0 + 0.55 * 2.0)
    assert figures.samples_per_second == pytest.approx(160 / 22)
    assert figures.tokens_per_second == pytest.approx(9600 / 22)
    assert figures.steadiness == "STEADY"


def test_no_step_after_warmup_is_no_speed():
    assert speed([row(0), row(1)], warmup_steps=2, cpu_seconds_per_step=0.5) is None
    assert speed([row(0, resumed=True)], warmup_steps=0, cpu_seconds_per_step=None) is None


@pytest.mark.parametrize("seed", range(20))
def test_noise_alone_is_steady(seed):
    assert steadiness(noisy(1.0, 30, seed)) is Steadiness.STEADY


def test_drifts_are_told_by_their_direction():
    assert steadiness(noisy(1.0, 15) + noisy(1.2, 15)) is Steadiness.SLOWING
    assert steadiness(noisy(1.3, 15) + noisy(1.0, 15)) is Steadiness.UNSTEADY
    assert steadiness([1.0] * 15 + [1.04] * 15) is Steadiness.STEADY


def test_drift_within_chance_is_steady():
    wild = [1.0, 1.4, 1.1, 1.5, 1.2, 1.3, 1.2, 1.6, 1.1]
    assert steadiness(wild) is Steadiness.STEADY


def test_scatter_or_too_few_steps_is_unsteady():
    assert steadiness([1.0, 2.0] * 10) is Steadiness.UNSTEADY
    assert steadiness([1.0] * 5) is Steadiness.UNSTEADY
    assert steadiness([1.0] * 6) is Steadiness.STEADY


def test_one_slow_step_is_no_drift():
    assert steadiness([1.0] * 25 + [9.0] + [1.0] * 4) is Steadiness.STEADY


def test_percentile_between_neighbours():
    assert percentile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.5
    assert percentile([7.0], 0.95) == 7.0


def test_final_loss_is_over_the_last_tenth():
    rows = [row(step, loss=float(step)) for step in range(20)]
    assert final_loss(rows) == 18.5
    assert final_loss(rows[:3]) == 2.0
    assert final_loss([*rows, row(20, loss=None)]) is None
    assert final_loss([]) is None


def test_turns_have_a_median_each_and_the_warm_up_has_none():
    rows = [row(0, 9.0, turn=0), *(row(1 + step, 1.0 + step, turn=1 + step // 3) for step in range(6))]
    assert speed(rows, warmup_steps=1, cpu_seconds_per_step=0.5).turn_step_seconds == [2.0, 5.0]
    assert speed([row(step) for step in range(7)], 1, 0.5).turn_step_seconds == []


def test_a_drift_of_the_machine_cancels_in_the_ratio():
    machine = [1.0 + 0.1 * turn for turn in range(10)]
    reference, candidate = noisy(1.0, 10, seed=1), noisy(1.3, 10, seed=2)
    reference = [a * m for a, m in zip(reference, machine, strict=True)]
    candidate = [b * m for b, m in zip(candidate, machine, strict=True)]
    assert steadiness(reference) is Steadiness.SLOWING
    assert paired_steadiness(reference, candidate) is Steadiness.STEADY


def test_a_run_that_changes_by_itself_is_unsteady_in_the_ratio():
    reference = noisy(1.0, 12, seed=3)
    for factor in (0.8, 1.25):
        candidate = [b * (factor if turn < 5 else 1.0) for turn, b in enumerate(noisy(1.0, 12, seed=4))]
        assert paired_steadiness(reference, candidate) is Steadiness.UNSTEADY
    assert paired_steadiness(reference, [1.0, 2.0] * 6) is Steadiness.UNSTEADY
    assert paired_steadiness(reference[:5], reference[:5]) is Steadiness.UNSTEADY


def test_the_ratio_of_runs_in_turns_is_the_mean_ratio_of_their_turns():
    """The machine is three times as slow in its second half: it cancels turn by turn."""
    machine = [1.0] * 5 + [3.0] * 5
    reference, candidate = ([row(1 + t, s * m, turn=1 + t) for t, m in enumerate(machine)] for s in (1.0, 1.2))
    a, b = (speed([row(0, turn=0), *rows], 1, 0.5) for rows in (reference, candidate))
    assert b.step_seconds / a.step_seconds == pytest.approx(1.2)
    assert speed([row(t) for t in range(7)], 1, 0.5).step_seconds == 1.0


def parts(forward: float, backward: float, optimizer: float, **more):
    return {"forward_seconds": forward, "backward_seconds": backward, "optimizer_seconds": optimizer, **more}


def test_a_merged_row_has_the_busiest_ranks_phases_and_the_ranks_distance_at_the_end_of_each():
    quick = row(0, 3.0, **parts(0.5, 1.5, 0.5), joules=40.0, built=True)
    late = row(0, 3.0, **parts(1.2, 1.0, 0.6), joules=60.0)
    [merged] = merge_ranks([[quick], [late]])
    assert (merged.forward_seconds, merged.backward_seconds, merged.optimizer_seconds) == (1.2, 1.0, 0.6)
    assert merged.skew_seconds == pytest.approx(0.7)  # after the forward; later they are 0.2 and 0.3 apart
    assert merged.joules == 100.0
    assert merged.built
    [unknown] = merge_ranks([[quick], [row(0)]])
    assert (unknown.skew_seconds, unknown.joules) == (None, None)
    [alone] = merge_ranks([[quick]])
    assert (alone.forward_seconds, alone.skew_seconds) == (0.5, None)


def test_speed_tells_percentiles_phases_energy_and_what_was_compiled():
    rows = [row(0, 9.0, built=True)]
    rows += [
        row(step, 1.0 + step / 100, **parts(0.3, 0.6, 0.1, skew_seconds=0.05, joules=32.0)) for step in range(1, 101)
    ]
    rows[50] = rows[50].model_copy(update={"built": True})
    figures = speed(rows, warmup_steps=1, cpu_seconds_per_step=0.5)
    assert figures.p99_step_seconds == pytest.approx(1.9901)
    assert figures.median_step_seconds <= figures.p95_step_seconds <= figures.p99_step_seconds
    assert (figures.median_forward_seconds, figures.median_backward_seconds) == (0.3, 0.6)
    assert (figures.median_optimizer_seconds, figures.median_skew_seconds) == (0.1, 0.05)
    assert figures.joules_per_sample == pytest.approx(2.0)
    assert figures.built_steps == [50]
    rows[7] = rows[7].model_copy(update={"joules": None, "skew_seconds": None})
    partly = speed(rows, warmup_steps=1, cpu_seconds_per_step=0.5)
    assert (partly.joules_per_sample, partly.median_skew_seconds) == (None, None)
