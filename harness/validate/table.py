"""The table of a validation: models × backends × stacks, and below it every reason. Pure functions of records."""

from __future__ import annotations

from collections.abc import Sequence

from harness.report.table import Table
from harness.validate.records import CHECKS, Answer, Check, Trial

_ORDER = ("FAILED", "UNSUPPORTED", "not reached", "ok")


def markdown(trials: Sequence[Trial], versions: dict[str, str]) -> str:
    """One table per model, at most 100 columns wide, and the reasons of what is not ok below it."""
    parts = [_summary(trials), _versions(versions)]
    for model in dict.fromkeys(trial.row.model for trial in trials):
        parts.append(_of_model(model, [trial for trial in trials if trial.row.model == model]))
    return "\n\n".join(part for part in parts if part) + "\n"


def _summary(trials: Sequence[Trial]) -> str:
    counts = {outcome: sum(_worst(trial) == outcome for trial in trials) for outcome in _ORDER}
    told = [f"{count} {outcome}" for outcome, count in counts.items() if count]
    return f"{len(trials)} combinations of model, backend and stack: {', '.join(told)}."


def _worst(trial: Trial) -> str:
    found = {answer.outcome for answer in trial.answers.values()}
    return next(outcome for outcome in _ORDER if outcome in found)


def _versions(versions: dict[str, str]) -> str:
    named = ("torch", "deepspeed", "transformers", "accelerate")
    return ", ".join(f"{name} {versions[name]}" for name in named if name in versions)


def _of_model(model: str, trials: list[Trial]) -> str:
    table = Table(["backend", "stack", *CHECKS], reading="")
    for trial in trials:
        table.add(trial.row.backend, trial.row.stack, *(_short(check, trial) for check in CHECKS))
        table.notes += [f"{trial.row.backend}, {trial.row.stack}: {text}" for text in _reasons(trial)]
    return f"### {model}\n\n{table.text()}"


def _short(check: Check, trial: Trial) -> str:
    """A word, and the figure that belongs to it."""
    answer = trial.answers[check]
    if answer.outcome != "ok":
        return answer.outcome
    if check == "parity" and trial.loss_gap is not None:
        return f"ok {trial.loss_gap:.0e}" if trial.loss_gap else "ok 0"
    if check == "resume" and trial.resume_gap is not None:
        return f"ok {trial.resume_gap:.0e}" if trial.resume_gap else "ok 0"
    if check == "checkpoint" and trial.checkpoint_bytes is not None:
        return f"ok {trial.checkpoint_bytes / 1e6:.3g} MB"
    return answer.outcome


def _reasons(trial: Trial) -> list[str]:
    """Every answer that is not ok, once for all checks that say the same."""
    found: dict[Answer, list[str]] = {}
    for check in CHECKS:
        answer = trial.answers[check]
        if answer.outcome != "ok":
            found.setdefault(answer, []).append(check)
    return [_reason(answer, checks) for answer, checks in found.items()]


def _reason(answer: Answer, checks: list[str]) -> str:
    if len(checks) == len(CHECKS):
        return f"{answer.outcome}, {answer.detail}"
    return f"{', '.join(checks)} {answer.outcome}: {answer.detail}"


def details(trial: Trial) -> list[str]:
    """A line per check, with what was found: for one model on the terminal."""
    return [f"{check:<10} {answer.outcome:<11} {answer.detail}".rstrip() for check, answer in trial.answers.items()]
