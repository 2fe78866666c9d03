"""The table of a validation is a function of its records: every combination, every reason, and no wider than a page."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.models import MODELS
from harness.validate.records import CHECKS, Answer, Row, Trial, unsupported_trial
from harness.validate.request import STACKS
from harness.validate.table import details, markdown

VERSIONS = {"torch": "2.13.0", "deepspeed": "0.19.8", "numpy": "2.4"}
OK = Answer(outcome="ok", detail="fine")
BACKENDS = ("ddp", "fsdp", "fsdp2", "fsdp2-root", "zero1", "zero2", "zero3")


def a_row(model: str = "pi0", backend: str = "fsdp2", stack: str = "native") -> Row:
    return Row(label=f"{model}-{backend}_{stack}", model=model, backend=backend, stack=stack)


def a_trial(row: Row | None = None, **answers: Answer) -> Trial:
    return Trial(
        row=row or a_row(),
        run=None,
        answers=dict.fromkeys(CHECKS, OK) | answers,
        loss_gap=2.4e-7,
        resume_gap=0.0,
        checkpoint_bytes=24_300_000,
    )


def test_a_row_says_a_word_and_its_figure() -> None:
    [line] = [line for line in markdown([a_trial()], VERSIONS).splitlines() if "fsdp2" in line]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells == ["fsdp2", "native", "ok", "ok 2e-07", "ok 24.3 MB", "ok 0", "ok"]


def test_what_is_not_ok_has_its_reason_below_once() -> None:
    broken = a_trial(
        resume=Answer(outcome="FAILED", detail="losses after the resume differ by up to 3.0e-02"),
        export=Answer(outcome="FAILED", detail="no weights were exported"),
    )
    text = markdown([broken, unsupported_trial(a_row(backend="fsdp"), "FSDP1 does not shard over one rank")], VERSIONS)
    assert "- fsdp2, native: resume FAILED: losses after the resume differ by up to 3.0e-02" in text
    assert "- fsdp2, native: export FAILED: no weights were exported" in text
    assert text.count("FSDP1 does not shard over one rank") == 1
    assert "2 combinations of model, backend and stack: 1 FAILED, 1 UNSUPPORTED." in text


def test_versions_that_decide_are_named() -> None:
    assert "torch 2.13.0, deepspeed 0.19.8\n" in markdown([a_trial()], VERSIONS)


ANSWERS = st.builds(
    Answer,
    outcome=st.sampled_from(["ok", "FAILED", "UNSUPPORTED", "not reached"]),
    detail=st.text("abcdef", min_size=1, max_size=30),
)
TRIALS = st.lists(
    st.builds(
        lambda row, answers: a_trial(row, **answers),
        st.builds(a_row, st.sampled_from(list(MODELS)), st.sampled_from(BACKENDS), st.sampled_from(STACKS)),
        st.fixed_dictionaries(dict.fromkeys(CHECKS, ANSWERS)),
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda trial: trial.row.label,
)


@settings(max_examples=30)
@given(TRIALS)
def test_every_trial_has_a_line_every_fault_a_reason_and_no_line_is_too_wide(trials: list[Trial]) -> None:
    lines = markdown(trials, VERSIONS).splitlines()
    table = [line for line in lines if line.startswith("|")]
    models = {trial.row.model for trial in trials}
    assert len(table) == len(trials) + 2 * len(models)  # a head and its rule for each model
    assert max(map(len, table)) <= 100
    for trial in trials:
        reasons = [line for line in lines if line.startswith(f"- {trial.row.backend}, {trial.row.stack}: ")]
        for answer in trial.answers.values():
            assert answer.outcome == "ok" or any(answer.detail in reason for reason in reasons)


def test_details_have_a_line_per_check() -> None:
    assert [line.split()[0] for line in details(a_trial())] == list(CHECKS)
