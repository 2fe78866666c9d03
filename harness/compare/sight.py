"""Can a gate's tests fire at all? Asked before anything is run."""

from __future__ import annotations

from harness.compare.baseline import Baseline
from harness.compare.gated import gated_metrics
from harness.compare.metrics import METRICS, noise_correlation, smallest_effect
from harness.compare.results import unique
from harness.errors import BadInput
from harness.plan import Plan, RunKind, model_key
from harness.statistics.power import detectable_shift, processes_needed
from harness.statistics.prediction import Spread, spread_for

STEP = METRICS["step_seconds"]


def refuse_blind_gate(plan: Plan, baseline: Baseline | None) -> None:
    """A gate that could not find a slowdown that matters would be green, or undecided, for ever.

    The plan itself was checked with the noise that the suite expects (`gate.run_noise`); here the accepted values
    tell. Cells they do not hold have nothing to be blind against.

    Raises:
        BadInput: names the cell, and the number of repeats that would do.
    """
    timing = [run for run in plan.runs if run.kind is RunKind.TIMING]
    labels = unique(run.cell.label for run in timing)
    if baseline is None or not labels:
        return
    alpha = plan.gate.false_alarm_rate / (len(labels) * len(gated_metrics(RunKind.TIMING)))
    for label in labels:
        accepted = baseline.cell(label, RunKind.TIMING)
        if accepted is not None and (values := accepted.values.get(STEP.name)):
            _refuse_blind_cell(plan, label, values, _spread(baseline, label, values), alpha)


def _spread(baseline: Baseline, label: str, values: list[float]) -> Spread | None:
    timing = [cell for cell in baseline.cells if cell.kind is RunKind.TIMING and STEP.name in cell.values]
    like = [c.values[STEP.name] for c in timing if model_key(c.subject) == model_key(label)]
    return spread_for(values, like, noise_correlation(STEP))


def _refuse_blind_cell(plan: Plan, label: str, values: list[float], spread: Spread | None, alpha: float) -> None:
    repeats = sum(run.cell.label == label and run.kind is RunKind.TIMING for run in plan.runs)
    needed_ratio = 1 + smallest_effect(STEP, plan.gate)
    seen = detectable_shift(len(values), repeats, spread, alpha)
    if seen is not None and seen <= needed_ratio:
        return
    if spread is None:
        raise BadInput(plan.suite, "baseline", len(values), f"two accepted processes of {label} at the very least")
    enough = processes_needed(needed_ratio, spread.log_sd, alpha)
    advice = f"at least {enough}, here and in the baseline" if enough else "a quieter machine, for no number would do"
    sees = "no change at all" if seen is None or seen > 10 else f"{seen - 1:.0%}"
    raise BadInput(
        plan.suite,
        "throughput.repeats",
        repeats,
        f"{advice}, so that a step of {label} slower by {needed_ratio - 1:.0%} can be told at a false-alarm rate of "
        f"{plan.gate.false_alarm_rate:g} over all figures, since its processes differ by {spread.log_sd:.1%}; or a "
        f"larger gate.smallest_effect.step_seconds: {repeats} against {len(values)} see {sees}",
    )
