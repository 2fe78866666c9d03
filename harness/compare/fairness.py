"""Do two runs differ in anything but the thing compared? Names every difference, with why it matters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from harness.records import Value
from harness.train.facts import InForce, Workload
from harness.train.records import RunRecord

SUBJECTS = ("torch", "transformers")
"""Software both sides run on: another release (2.13 → 2.14) blocks. DeepSpeed is one side's own."""


class Difference(Value):
    """Something two runs do not share."""

    name: str
    reference: str
    candidate: str
    why: str
    blocking: bool = True
    """False: named beside the figures, but the pair may still be compared."""


class Audit(Value):
    """The audit of one cell against its reference, over all pairs of runs."""

    reference: str
    candidate: str
    audited_pairs: int
    differences: list[Difference]

    @property
    def fair(self) -> bool:
        """Audited at all, and nothing blocking was found."""
        return self.audited_pairs > 0 and not any(d.blocking for d in self.differences)


class _Fact(NamedTuple):
    name: str
    reference: object
    candidate: object
    why: str


def audit(a: RunRecord, b: RunRecord) -> list[Difference]:
    """Differences of candidate `b` from reference `a`; empty when they are alike.

    Backend, wrapper, ZeRO stage and parameter class are what is compared, hence no differences.
    A run without facts (it did not end well) differs by that.
    """
    if a.workload is None or a.in_force is None or b.workload is None or b.in_force is None:
        return [_missing(a, b)]
    facts = [
        *_workload(a.workload, b.workload),
        *_in_force(a.in_force, b.in_force),
        *_request(a, b),
    ]
    blocking = [
        Difference(name=f.name, reference=str(f.reference), candidate=str(f.candidate), why=f.why)
        for f in facts
        if f.reference != f.candidate
    ]
    return [*blocking, *_wrapping(a, b, a.in_force, b.in_force), *_layout(a, b), *_versions(a, b)]


def _missing(a: RunRecord, b: RunRecord) -> Difference:
    return Difference(
        name="facts", reference=a.outcome, candidate=b.outcome, why="a run that left no facts cannot be compared"
    )


def _workload(a: Workload, b: Workload) -> Iterator[_Fact]:
    yield _Fact("parameters", a.parameters, b.parameters, "a different model")
    yield _Fact(
        "trainable parameters", a.trainable_parameters, b.trainable_parameters, "less to differentiate, less to update"
    )
    yield _Fact(
        "initial weights", a.initial_weights_sha256[:12], b.initial_weights_sha256[:12], "another starting point"
    )
    yield _Fact("hashed batches", a.hashed_batches, b.hashed_batches, "the data hashes cover different spans")
    yield _Fact("data", a.data_sha256[:12], b.data_sha256[:12], "other samples, or another order of them")
    yield _Fact(
        "episodes left out", a.damaged_episodes, b.damaged_episodes, "damaged episodes of the data set were skipped"
    )
    yield _Fact("global batch", a.samples_per_step, b.samples_per_step, "another amount of work per step")
    yield _Fact("tokens per sample", a.tokens_per_sample, b.tokens_per_sample, "another amount of work per sample")
    yield _Fact(
        "operations per sample",
        a.training_flops_per_sample,
        b.training_flops_per_sample,
        "another amount of arithmetic",
    )
    yield _Fact("tokens definition", a.tokens_definition, b.tokens_definition, "tokens/s would mean two things")


def _in_force(a: InForce, b: InForce) -> Iterator[_Fact]:
    yield _Fact("world size", a.world_size, b.world_size, "another number of ranks")
    yield _Fact("collective backend", a.collective_backend, b.collective_backend, "another transport")
    yield _Fact("parameter dtype", a.parameter_dtype, b.parameter_dtype, "the forward computes in another precision")
    yield _Fact("autocast dtype", a.autocast_dtype, b.autocast_dtype, "another part of the forward is rounded")
    yield _Fact("master dtype", a.master_dtype, b.master_dtype, "the optimizer updates in another precision")
    yield _Fact("reduce dtype", a.reduce_dtype, b.reduce_dtype, "gradients travel in another precision")
    yield _Fact("micro-batch", a.micro_batch, b.micro_batch, "other kernel shapes and activation memory")
    yield _Fact("accumulation", a.accumulation, b.accumulation, "another number of passes per step")
    yield _Fact("gradient clipping", a.clip, b.clip, "other updates, and another pass over the gradients")
    yield _Fact(
        "activation checkpointing", a.activation_checkpointing, b.activation_checkpointing, "memory traded for time"
    )
    yield _Fact("optimizer class", a.optimizer_class, b.optimizer_class, "another update rule or kernel")
    for name in type(a.optimizer).model_fields:
        yield _Fact(f"optimizer {name}", getattr(a.optimizer, name), getattr(b.optimizer, name), "other updates")


def _request(a: RunRecord, b: RunRecord) -> Iterator[_Fact]:
    yield _Fact("seed", (a.seed, a.run.training_seed), (b.seed, b.run.training_seed), "other random numbers")
    yield _Fact("stack", a.run.cell.stack, b.run.cell.stack, "another training loop around the backend")
    yield _Fact("steps", a.run.steps, b.run.steps, "another length of run")
    yield _Fact("hardware", a.fingerprint.hardware_key, b.fingerprint.hardware_key, "another machine")


def _wrapping(a: RunRecord, b: RunRecord, old: InForce, new: InForce) -> Iterator[Difference]:
    """Of two cells that both wrap. It blocks where the same was asked for in the same way, and something else came out;
    what a suite or accelerate wraps otherwise is named."""
    if old.sharded_units and new.sharded_units and old.sharded_units != new.sharded_units:
        asked = [
            (side.run.cell.layout, side.run.cell.profile, getattr(side.run.cell.backend, "wrap", None))
            for side in (a, b)
        ]
        yield Difference(
            name="wrapped units",
            reference=str(old.sharded_units),
            candidate=str(new.sharded_units),
            why="other modules are gathered and freed as one",
            blocking=asked[0] == asked[1] and old.resolved_mode == new.resolved_mode,
        )


def _layout(a: RunRecord, b: RunRecord) -> Iterator[Difference]:
    """The same computation; what can be wrapped and recomputed is another thing, and may be what is compared."""
    old, new = a.run.cell.layout, b.run.cell.layout
    if old != new:
        why = "the same computation, with other modules to shard and to recompute"
        yield Difference(name="layout", reference=old, candidate=new, why=why, blocking=False)


def _versions(a: RunRecord, b: RunRecord) -> Iterator[Difference]:
    old, new = a.fingerprint.versions, b.fingerprint.versions
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            same_release = _release(old.get(name)) == _release(new.get(name))
            yield Difference(
                name=f"{name} version", reference=old.get(name, "–"), candidate=new.get(name, "–"),
                why="another version of software",
                blocking=name in SUBJECTS and not same_release and a.run.python == b.run.python,
            )  # fmt: skip


def _release(version: str | None) -> list[str]:
    """`2.13` of `2.13.0+cpu`."""
    return [] if version is None else version.split(".")[:2]


def audit_pairs(reference: str, candidate: str, pairs: list[tuple[RunRecord, RunRecord]]) -> Audit:
    """The audit over all pairs of two cells: each difference once, as first seen."""
    found: dict[str, Difference] = {}
    for a, b in pairs:
        for difference in audit(a, b):
            found.setdefault(difference.name, difference)
    return Audit(reference=reference, candidate=candidate, audited_pairs=len(pairs), differences=list(found.values()))
