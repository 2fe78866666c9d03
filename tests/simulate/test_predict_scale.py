"""What is predicted in one process is what real ranks have recorded: bytes held, collectives, payloads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from harness.backends.options import VARIANTS, DeepSpeedOptions
from harness.cli import app
from harness.errors import BadInput
from harness.plan import Cell
from harness.simulate import fsdp2, zero
from harness.simulate.prediction import Question, on_the_machine, predict
from harness.simulate.records import Counted, Prediction, Traffic
from harness.simulate.shapes import Piece, elements, shapes_of

Payloads = dict[str, tuple[int, int]]
"""Kind → calls and payload bytes."""


@dataclass(frozen=True)
class Recorded:
    """Of rank 0 of a run under torchrun and gloo, in float32 and with AdamW (`RankReport`).

    Attributes:
        held: bytes of parameters, gradients and optimizer state between two steps.
    """

    model: str
    size: str
    backend: str
    ranks: int
    micro_batch: int
    accumulation: int
    held: tuple[int, int, int]
    sent: Payloads

    def cell(self) -> Cell:
        return Cell.model_validate(
            {
                "label": self.backend,
                "model": self.model,
                "size": self.size,
                "ranks": self.ranks,
                "micro_batch": self.micro_batch,
                "accumulation": self.accumulation,
                "backend": VARIANTS[self.backend].model_dump(),
                "data": {"source": "synthetic"},
            }
        )


RECORDED = [
    Recorded("pi0", "tiny", "ddp", 2, 4, 2, (188828, 155932, 312080), {"all_reduce": (1, 155932)}),
    Recorded(
        "pi0", "tiny", "fsdp", 2, 4, 2, (94416, 0, 123128),
        {"all_gather": (10, 658240), "all_reduce": (1, 4), "reduce_scatter": (3, 188832)},
    ),
    Recorded(
        "pi0", "tiny", "fsdp2", 2, 4, 2, (94480, 0, 156280),
        {"all_gather": (10, 658496), "all_reduce": (1, 216), "reduce_scatter": (3, 156064)},
    ),
    Recorded("pi0", "tiny", "ddp", 4, 2, 2, (188828, 155932, 312080), {"all_reduce": (1, 155932)}),
    Recorded(
        "pi0", "tiny", "fsdp2", 4, 2, 2, (47240, 0, 78248),
        {"all_gather": (10, 658496), "all_reduce": (1, 216), "reduce_scatter": (3, 156064)},
    ),
    Recorded(
        "pi0", "tiny", "fsdp2-root", 4, 2, 2, (47240, 0, 78248),
        {"all_gather": (2, 377920), "all_reduce": (1, 216), "reduce_scatter": (1, 156064)},
    ),
    Recorded("pi05", "micro", "ddp", 2, 8, 1, (7390364, 6865564, 13731532), {"all_reduce": (2, 6865564)}),
    Recorded(
        "pi05", "micro", "fsdp2", 2, 8, 1, (3695440, 0, 6866484),
        {"all_gather": (9, 13436576), "all_reduce": (1, 404), "reduce_scatter": (5, 6866080)},
    ),
    Recorded("dm0", "micro", "ddp", 2, 8, 1, (5810332, 5285404, 10571236), {"all_reduce": (2, 5285404)}),
    Recorded(
        "dm0", "micro", "fsdp2", 2, 8, 1, (2905424, 0, 5286348),
        {"all_gather": (9, 10539680), "all_reduce": (1, 428), "reduce_scatter": (5, 5285920)},
    ),
]  # fmt: skip
RECORDED_ZERO = [
    Recorded(
        "pi0", "tiny", "zero1", 2, 4, 2, (188828, 0, 233908), {"all_gather": (1, 155936), "all_reduce": (2, 155936)}
    ),
    Recorded(
        "pi0", "tiny", "zero2", 2, 4, 2, (188828, 0, 233908), {"all_gather": (1, 155936), "all_reduce": (3, 311868)}
    ),
    Recorded(
        "pi05", "micro", "zero3", 2, 8, 1, (3695184, 3432784, 10298356),
        {"all_gather": (34, 6865568), "all_reduce": (1, 8), "reduce_scatter": (1, 6865568)},
    ),
    Recorded(
        "dm0", "micro", "zero3", 2, 8, 1, (2905168, 2642704, 7928116),
        {"all_gather": (29, 5285408), "all_reduce": (1, 8), "reduce_scatter": (1, 5285408)},
    ),
]  # fmt: skip


def named(cases: list[Recorded], default: tuple[str, ...] = ("tiny",)) -> pytest.MarkDecorator:
    """A test for each, those of other sizes than the default for the full run only."""
    return pytest.mark.parametrize(
        "real",
        [
            pytest.param(
                one,
                id=f"{one.model}-{one.size}-{one.backend}-{one.ranks}",
                marks=() if one.size in default else pytest.mark.full,
            )
            for one in cases
        ],
    )


def payloads(counted: Counted) -> Payloads:
    return {one.kind: (one.calls, one.payload_bytes) for one in counted.traffic}


@named(RECORDED)
def test_simulated_ranks_hold_and_send_what_real_ones_did(real):
    from harness.simulate.engines import count

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        counted = count(real.cell())
    assert counted.method == "engine"
    assert payloads(counted) == real.sent
    held = counted.shard
    assert (held.parameter_bytes, counted.kept_gradient_bytes, held.optimizer_bytes) == real.held


@named([one for one in RECORDED if one.backend.startswith("fsdp2")], default=("tiny", "micro"))
def test_the_formula_of_fsdp2_gives_the_recorded_bytes_and_calls(real):
    counted = fsdp2.by_formula(real.cell())
    assert payloads(counted) == real.sent
    held = counted.shard
    assert (held.parameter_bytes, counted.kept_gradient_bytes, held.optimizer_bytes) == real.held


@pytest.mark.full
@pytest.mark.parametrize("backend", ["fsdp2", "fsdp2-root"])
@pytest.mark.parametrize("model", ["pi0", "pi05", "dm0", "cogact"])
def test_the_formula_of_fsdp2_is_its_engine_on_many_ranks(model, backend):
    question = Question(model, "micro", [backend], [3, 64, 1024], accumulation=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engines = [one.counted for one in predict(question)]
    formulas = [one.counted for one in predict(replace(question, formula=True))]
    assert [one.method for one in engines] == ["engine"] * 3
    assert [one.model_copy(update={"method": "engine"}) for one in formulas] == engines


@pytest.mark.full
def test_deepspeed_simulated_apart_too():
    from harness.simulate.worker import count_apart

    for real, counted in zip(RECORDED_ZERO, count_apart([one.cell() for one in RECORDED_ZERO]), strict=True):
        assert payloads(counted) == real.sent
        held = counted.shard
        assert (held.parameter_bytes, counted.kept_gradient_bytes, held.optimizer_bytes) == real.held


@named(RECORDED_ZERO, default=("tiny", "micro"))
def test_the_formula_of_zero_gives_the_recorded_bytes(real):
    counted = zero.by_formula(real.cell())
    for one in counted.traffic:
        assert one.calls is None
        assert one.payload_bytes == pytest.approx(real.sent[one.kind][1], abs=64)  # norms and padding
    assert counted.shard.parameter_bytes == pytest.approx(real.held[0], abs=64)
    assert counted.shard.optimizer_bytes == pytest.approx(real.held[2], abs=64)


FORGETFUL = """
import sys
import deepspeed
from harness.simulate import worker, zero

distance, real = int(sys.argv.pop()), deepspeed.initialize

def initialize(*given, config, **named):
    config["zero_optimization"]["stage3_max_reuse_distance"] = distance
    return real(*given, config=config, **named)

deepspeed.initialize = initialize
worker.main()
"""
"""ZeRO-3 that gives up parameters sooner than by default, so that a small model shows what a large one does."""


@pytest.mark.full
def test_zero3_gathers_again_no_more_than_the_formula_says(monkeypatch, tmp_path):
    """It keeps between half and all of its reuse distance: the formula says the former."""
    cell = RECORDED_ZERO[2].cell().model_copy(update={"ranks": 8})
    trained = elements(shapes_of(cell).trained)
    distance = int(0.6 * trained)
    place = {"DS_ACCELERATOR": "cpu", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    order = [sys.executable, "-c", FORGETFUL, str(tmp_path), str(distance)]
    subprocess.run(order, input=f"[{cell.model_dump_json()}]", env=os.environ | place, text=True, check=True)
    counted = Counted.model_validate_json((tmp_path / "counted-0.json").read_text())
    monkeypatch.setattr(zero, "REUSE_DISTANCE", distance)
    most = next(one.payload_bytes for one in zero.by_formula(cell).traffic if one.kind == "all_gather")
    assert most - 4 * distance // 2 <= payloads(counted)["all_gather"][1] <= most


@given(stage=st.sampled_from([1, 2, 3]), trained=st.integers(1, 10**10), a=st.integers(1, 8))
def test_zero_sends_more_with_accumulation_and_never_less_than_once(stage, trained, a):
    options = DeepSpeedOptions(zero_stage=stage)
    once, often = (zero.traffic_of(options, "bf16", trained, times) for times in (1, a))
    for first, more in zip(once, often, strict=True):
        assert 2 * trained <= first.payload_bytes <= 4 * trained
        grows = stage == 3 or (stage == 2 and first.kind == "all_reduce")
        assert more.payload_bytes == first.payload_bytes * (a if grows else 1)


@given(rows=st.integers(1, 10**6), row_elements=st.integers(1, 10**4), ranks=st.integers(1, 1024))
def test_equal_pieces_hold_a_parameter_with_less_than_a_row_each_to_spare(rows, row_elements, ranks):
    piece = Piece(rows, row_elements, trains=True)
    assert piece.elements <= ranks * piece.cut(ranks) < piece.elements + ranks * row_elements


def test_the_machine_decides_what_fits_and_how_long_it_takes():
    def asked(**machine: float) -> Question:
        return Question("pi0", "tiny", ["ddp"], [4], precision="fp32", micro_batch=2, **machine)

    (unstated,) = predict(asked())
    assert isinstance(unstated, Prediction)
    assert (unstated.fits, unstated.communication_seconds, unstated.step_seconds) == (None, None, None)
    assert unstated.wire_bytes == 2 * 155932 * 3 / 4
    assert unstated.peak_bytes > 188828 + 155932 + 312080
    peak, bandwidth = unstated.peak_bytes, 233898
    tight = on_the_machine(asked(device_bytes=peak - 1, bandwidth_bytes_per_second=bandwidth), unstated)
    assert (tight.fits, tight.communication_seconds, tight.step_seconds) == (False, 1.0, None)
    roomy = asked(device_bytes=peak, bandwidth_bytes_per_second=bandwidth, compute_seconds=3.0)
    assert on_the_machine(roomy, unstated).fits
    assert on_the_machine(roomy, unstated).step_seconds == (3.0, 4.0)


def test_padding_is_what_an_even_share_would_not_hold():
    (many,) = predict(Question("pi0", "tiny", ["fsdp2"], [64], precision="fp32", micro_batch=1))
    assert many.padding_bytes == many.counted.shard.parameter_bytes - 188828 // 64
    assert many.padding_bytes > 0.1 * many.counted.shard.parameter_bytes
    assert many.activation_bytes > 0


def test_wire_bytes_follow_the_ring():
    assert Traffic(kind="all_reduce", calls=1, payload_bytes=800).wire_bytes(8) == 1400
    assert Traffic(kind="reduce_scatter", calls=None, payload_bytes=800).wire_bytes(8) == 700


RUNNER = CliRunner()
ASKED = ["simulate", "pi0", "--size", "tiny", "--precision", "fp32", "--micro-batch", "2"]


def test_the_command_prints_a_row_per_backend():
    machine = ["--device-memory", "80GiB", "--bandwidth", "1GB", "--compute-seconds", "0.5"]
    answer = RUNNER.invoke(app, [*ASKED, "--world", "4", "--backend", "ddp", *machine], catch_exceptions=False)
    assert answer.exit_code == 0
    rows = [line.split() for line in answer.output.splitlines() if line.startswith("ddp")]
    memory, communication = rows
    assert (memory[1], memory[-1]) == ("4", "yes")
    assert communication[1:] == ["4", "0.000156", "in", "1", "0.000234", "0.000234", "0.5-0.5"]


def test_json_has_the_sums_too():
    answer = RUNNER.invoke(app, [*ASKED, "--world", "2", "--backend", "ddp", "--json"], catch_exceptions=False)
    (one,) = json.loads(answer.output)
    assert one["counted"]["traffic"] == [{"kind": "all_reduce", "calls": 1, "payload_bytes": 155932}]
    assert one["peak_bytes"] > one["counted"]["shard"]["optimizer_bytes"]


def test_what_cannot_run_is_a_line_with_its_reason():
    answer = RUNNER.invoke(app, [*ASKED, "--world", "1", "--backend", "fsdp"], catch_exceptions=False)
    assert answer.exit_code == 0
    assert "fsdp on 1: FSDP1 does not shard over one rank" in answer.output


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--backend", "fsdp3"], 'did you mean "fsdp"|did you mean "fsdp2"'),
        (["--world", "8,x"], "--world = 'x'|numbers of ranks"),
        (["--world", "0"], "numbers of ranks"),
        (["--device-memory", "80"], "a number and its unit"),
        (["--bandwidth", "50Gb"], "a number and its unit"),
        (["--compute-seconds", "1"], "a --bandwidth beside it"),
        (["--precision", "fp8"], "a precision"),
    ],
)
def test_what_cannot_be_answered_is_said(options, says):
    with pytest.raises(BadInput, match=says):
        RUNNER.invoke(app, [*ASKED, *options], catch_exceptions=False)
