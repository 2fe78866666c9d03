"""Many tests at once."""

from __future__ import annotations

import math
from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p values, in the order given: compare each with the whole family's rate.

    Holm 1979, Scandinavian Journal of Statistics 6: 65-70. The k-th smallest of m is multiplied by m - k + 1 and
    never falls below a smaller one's. Same figures as `statsmodels.stats.multitest.multipletests(method="holm")`,
    which collects the whole process's garbage at every call. A NaN counts as 1.0: it can never be significant.
    """
    usable = [1.0 if math.isnan(p) else p for p in p_values]
    adjusted = [1.0] * len(usable)
    running = 0.0
    for rank, index in enumerate(sorted(range(len(usable)), key=usable.__getitem__)):
        running = max(running, min(1.0, usable[index] * (len(usable) - rank)))
        adjusted[index] = running
    return adjusted
