"""Sections on training: speed, memory, fairness and parity, checkpoints."""

from __future__ import annotations

from harness.compare.comparison import Comparison
from harness.compare.results import unique
from harness.compare.summary import CellSummary
from harness.compare.throughput import Speedup
from harness.plan import Plan, backend_key, model_key
from harness.report.figures import MISSING, mib, milliseconds, number, pair, percent, plural, speedup_cell
from harness.report.steps import steps_tables
from harness.report.table import Table, bullet
from harness.report.verdicts import peak_bytes


def speed(comparison: Comparison, plan: Plan) -> str:
    """Step time and throughput, one table per model."""
    parts = ["## Speed"]
    within = steps_tables(comparison)
    for model, table in speed_tables(comparison, plan).items():
        parts += [f"### {model}", table.text()]
        parts += [f"### {model}, within a step", within[model].text()] if model in within else []
    if len(parts) == 1:
        parts.append("No timing runs were planned.")
    return "\n\n".join(parts)


def speed_tables(comparison: Comparison, plan: Plan) -> dict[str, Table]:
    """Model key → every timed cell against each DeepSpeed cell."""
    tables = {}
    for model in unique(model_key(cell.label) for cell in comparison.cells):
        cells = [cell for cell in comparison.cells if model_key(cell.label) == model and cell.planned_runs]
        if cells:
            tables[model] = _speed_table(cells, comparison, plan)
    return tables


def _speed_table(cells: list[CellSummary], comparison: Comparison, plan: Plan) -> Table:
    labels = [cell.label for cell in cells]
    every = {(s.reference, s.candidate): s for s in comparison.other_speedups + comparison.speedups}
    references = unique(r for r, c in reversed(every) if c in labels)
    table = Table(
        ["Backend", "Step ms", "Samples/s", "Tokens/s", *(f"vs {backend_key(r)}" for r in references), "Runs"],
        reading=f"Step: geometric mean over fresh process groups of the median step of the slowest rank. vs: how many "
        f"times faster than that cell, with its {comparison.confidence:.0%} interval over pairs of runs; [–] is one "
        "pair or no steady one. Bold: shown different. Runs: used of planned; ~ marks figures of runs that never "
        "settled.",
        spare=("Tokens/s", "Runs", "Samples/s"),
    )
    for cell in cells:
        against = [_against(every.get((r, cell.label)), cell.label == r) for r in references]
        mark = "~" if cell.steady is False else ""
        table.add(
            backend_key(cell.label),
            mark + milliseconds(cell.step_seconds),
            number(cell.samples_per_second),
            number(cell.tokens_per_second),
            *against,
            f"{cell.used_runs}/{cell.planned_runs}",
        )
        if cell.step_seconds is None:
            table.notes.append(f"{cell.label} has no figures: {_why_missing(cell.label, comparison)}.")
    definitions = unique(cell.tokens_definition for cell in cells if cell.tokens_definition)
    table.notes += [f"Tokens: {definition}." for definition in definitions]
    table.notes += [_reservation(s) for s in every.values() if s.candidate in labels]
    table.notes = [note for note in table.notes if note]
    table.notes += _disturbances(cells)
    table.notes += [f"{u.label} is unsupported: {u.reason}." for u in plan.unsupported]
    return table


_NAMED_RUNS = 2
"""Disturbed runs told of each by itself: on a busy machine all of them are."""


def _disturbances(cells: list[CellSummary]) -> list[str]:
    runs = [(key, told) for cell in cells for key, told in cell.disturbed_runs.items()]
    notes = [f"{key} was disturbed: {told}." for key, told in runs[:_NAMED_RUNS]]
    if len(runs) > _NAMED_RUNS:
        notes.append(f"So were {len(runs) - _NAMED_RUNS} other runs.")
    aside = {cell.label: cell.set_aside_runs for cell in cells if cell.set_aside_runs}
    if aside:
        told = ", ".join(f"{count} of {label}" for label, count in aside.items())
        notes.append(f"Measured again because others disturbed their block, kept and in no figure: {told}.")
    return notes


def _against(speedup: Speedup | None, itself: bool) -> str:
    return "1" if itself else speedup_cell(speedup)


def _reservation(speedup: Speedup) -> str:
    name = pair(speedup.candidate, speedup.reference)
    if speedup.speedup is not None and not speedup.comparable:
        return f"{name}: no ratio, since the cells differ in more than the backend; see the audit."
    return f"{name} is not credited: {', '.join(speedup.reservations)}." if speedup.reservations else ""


def _why_missing(label: str, comparison: Comparison) -> str:
    found = [j.reason for j in comparison.judgements if j.question == "run" and j.subject.startswith(f"{label}/")]
    return found[0] if found else "no timing run ended well"


def memory(comparison: Comparison) -> str:
    return f"## Memory\n\n{memory_table(comparison).text()}"


def memory_table(comparison: Comparison) -> Table:
    """Peaks, and what each rank holds between steps."""
    cuda = any(cell.peak_allocated_bytes is not None for cell in comparison.cells)
    kept = any(cell.activation_bytes is not None for cell in comparison.cells)
    on_cpu = ("Peak RSS", "resident-set peak on CPU, libraries included")
    peak, meaning = ("Peak alloc.", "CUDA allocator's peak") if cuda else on_cpu
    columns = [peak, *(["Reserved"] if cuda else []), "Params", "Grads", "Optimizer"]
    table = Table(
        ["Cell", *columns, *(["Activations"] if kept else []), "Share", "Expected"],
        reading=f"MiB, the largest rank's. {peak}: {meaning} after warm-up{_company(comparison)}. "
        + ("Reserved: what the allocator took from the device. " if cuda else "")
        + "Params, Grads, Optimizer: bytes held between two steps. "
        + ("Activations: what autograd keeps of one micro-batch. " if kept else "")
        + "Share: what a rank holds of the parameters, or where only that is divided of the optimizer state; Expected: "
        "1/ranks for cells that shard.",
        spare=("Expected", "Grads", "Activations", "Optimizer", "Params"),
    )
    shares = {j.subject: j for j in comparison.judgements if j.question == "sharding"}
    for cell in comparison.cells:
        judged = shares.get(cell.label)
        table.add(
            cell.label,
            mib(peak_bytes(cell)),
            *([mib(cell.peak_reserved_bytes)] if cuda else []),
            mib(max((s.parameter_bytes for s in cell.shards), default=None)),
            mib(max((s.gradient_bytes for s in cell.shards), default=None)),
            mib(max((s.optimizer_bytes for s in cell.shards), default=None)),
            *([mib(cell.activation_bytes)] if kept else []),
            MISSING if judged is None else f"{percent(judged.value)}%",
            MISSING if judged is None else f"{percent(judged.reference)}%",
        )
        if not cell.shards:
            table.notes.append(f"{cell.label} has no figures: {_why_missing(cell.label, comparison)}.")
    return table


def _company(comparison: Comparison) -> str:
    """Whether the peaks are of runs that were alone on the machine."""
    found = {cell.peaks_in_turns for cell in comparison.cells if cell.peaks_in_turns is not None}
    if len(found) > 1:
        return ", of runs in turns where there are such"
    return f", of runs {'in turns' if found.pop() else 'that were alone on the machine'}" if found else ""


def fairness(comparison: Comparison) -> str:
    return f"## Fair, and the same loss?\n\n{parity_table(comparison).text()}" if comparison.audits else ""


def parity_table(comparison: Comparison) -> Table:
    """What differs besides the backend, and whether the losses agree."""
    table = Table(
        ["Pair", "Audited", "Differences", "Δ first", "Δ max", "Block Δ", "Loss"],
        reading="Audited: pairs of runs whose real settings, weights and data were compared. Δ first, Δ max: absolute "
        "difference of the loss at the first step, and the largest in the first 20. Block Δ: largest relative "
        "difference of the mean loss over 50 steps, where rounding has had time to grow. Loss: whether all of it is "
        "within tolerance.",
        spare=("Δ first", "Audited", "Block Δ"),
    )
    for audit in comparison.audits:
        records = [p for p in comparison.parity if (p.reference, p.candidate) == (audit.reference, audit.candidate)]
        first = max((p.first_loss_difference for p in records if p.first_loss_difference is not None), default=None)
        largest = max((p.max_difference for p in records if p.max_difference is not None), default=None)
        blocks = max((p.max_block_deviation for p in records if p.max_block_deviation is not None), default=None)
        table.add(
            pair(audit.candidate, audit.reference),
            str(audit.audited_pairs),
            str(sum(d.blocking for d in audit.differences)) if audit.audited_pairs else MISSING,
            MISSING if first is None else f"{first:.1e}",
            MISSING if largest is None else f"{largest:.1e}",
            MISSING if blocks is None else f"{blocks:.1%}",
            MISSING if not records else ("agrees" if all(p.holds for p in records) else "**departs**"),
        )
        name = pair(audit.candidate, audit.reference)
        for d in audit.differences:
            word = "differ" if d.blocking else "named only"
            table.notes.append(f"{name}, {word}: {d.name} {d.reference} → {d.candidate} ({d.why}).")
        table.notes += [f"{name}, {p.kind} run: {p.reason}." for p in records if not p.holds]
        if not audit.audited_pairs:
            table.notes.append(f"{name}: no pair of runs ended well.")
    return table


def checkpoints(comparison: Comparison) -> str:
    table = checkpoint_table(comparison)
    return "## Checkpoints\n\n" + (table.text() if table.rows else bullet("No run saved a checkpoint."))


def checkpoint_table(comparison: Comparison) -> Table:
    """Saving and loading; no rows where no run saved one."""
    table = Table(
        ["Cell", "Save s", "Load s", "Size MiB"],
        reading="Save: until every rank's part is on disk. Load: a dash where no run was resumed. Size: parameters, "
        "optimizer and generator states of all ranks.",
    )
    saved = [cell for cell in comparison.cells if cell.checkpoint_bytes or cell.checkpoint_save_seconds]
    for cell in saved:
        table.add(
            cell.label,
            number(cell.checkpoint_save_seconds),
            number(cell.checkpoint_load_seconds),
            mib(cell.checkpoint_bytes),
        )
    left = len(comparison.cells) - len(saved)
    if left:
        table.notes.append(f"{plural(left, 'cell')} without learning runs saved none.")
    return table
