import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.train.local_barrier import LocalBarrier


def of_ranks(ranks, body, timeout_seconds=20.0):
    """What `body(rank, barrier)` gives on each rank of one barrier; the ranks are threads."""
    place, known = [], threading.Event()

    def one(rank):
        def share(mine):
            if rank == 0:
                place.append(mine)
                known.set()
            known.wait(20)
            return place[0]

        barrier = LocalBarrier(rank, ranks, share, timeout_seconds)
        try:
            return body(rank, barrier)
        finally:
            barrier.close()

    with ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(one, range(ranks)))


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_all_ranks_have_the_same_mean(ranks):
    means = of_ranks(ranks, lambda rank, barrier: [barrier.mean(rank + turn / 7) for turn in range(50)])
    expected = [sum(rank + turn / 7 for rank in range(ranks)) / ranks for turn in range(50)]
    assert means == [expected] * ranks


def test_nobody_goes_on_before_all_have_come():
    came, went = [], []

    def body(rank, barrier):
        time.sleep(0.05 * rank)
        came.append(time.monotonic())
        barrier.mean(0.0)
        went.append(time.monotonic())

    of_ranks(4, body)
    assert max(came) <= min(went)


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_rank_that_is_gone_is_named(gone):
    def body(rank, barrier):
        if rank == gone:
            return None
        with pytest.raises(ConnectionError) as raised:
            barrier.mean(0.0)
        return str(raised.value)

    # Those at the tips know the rank in the middle alone, which leaves when one is gone.
    named = {of for of in of_ranks(3, body) if of is not None}
    assert f"Connection closed by peer: rank {gone} is gone" in named
    assert named <= {f"Connection closed by peer: rank {rank} is gone" for rank in (0, gone)}


def test_a_rank_that_does_not_come_is_waited_for_so_long_and_no_longer():
    over = threading.Event()

    def body(rank, barrier):
        if rank == 1:
            over.wait(20)
            return None
        try:
            with pytest.raises(TimeoutError, match="Timed out waiting for rank 1"):
                barrier.mean(0.0)
        finally:
            over.set()
        return True

    assert of_ranks(2, body, timeout_seconds=0.3) == [True, None]


def test_a_barrier_that_rank_0_never_opens_times_out(tmp_path):
    with pytest.raises(TimeoutError, match="rank 0 to open"):
        LocalBarrier(1, 2, lambda _: str(tmp_path), 0.1)
