import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.train.trace import Span, exposed_share, exposed_share_of_trace


def test_what_is_hidden_behind_computation_is_not_exposed():
    compute = [Span(0, 4), Span(3, 6), Span(8, 10)]
    assert exposed_share([Span(1, 5)], compute) == 0
    assert exposed_share([Span(5, 9)], compute) == pytest.approx(0.2)
    assert exposed_share([Span(5, 9), Span(6, 7)], compute) == pytest.approx(0.2)
    assert exposed_share([Span(0, 2)], []) == 1
    assert exposed_share([], []) is None


spans = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)).map(lambda s: Span(s[0], s[0] + s[1])), max_size=8)


@given(spans, spans)
def test_it_is_the_share_of_moments_with_communication_alone(communication, compute):
    share = exposed_share(communication, compute)
    every = communication + compute
    if not every:
        assert share is None
        return
    moments = range(min(s.begin for s in every), max(s.end for s in every))
    alone = [
        m for m in moments
        if any(s.begin <= m < s.end for s in communication) and not any(s.begin <= m < s.end for s in compute)
    ]  # fmt: skip
    assert share == pytest.approx(len(alone) / len(moments))


def test_kernels_of_a_trace_are_told_apart_by_name():
    events = [
        {"cat": "kernel", "name": "ncclDevKernel_AllGather_RING_LL(…)", "ts": 10.0, "dur": 10.0},
        {"cat": "kernel", "name": "ampere_bf16_gemm", "ts": 0.0, "dur": 15.0},
        {"cat": "cpu_op", "name": "aten::mm", "ts": 0.0, "dur": 1000.0},
        {"ph": "M", "name": "process_name"},
    ]
    assert exposed_share_of_trace(events) == pytest.approx(0.25)
    assert exposed_share_of_trace(events[2:]) is None
