"""Many tests at once."""

from __future__ import annotations

import math
from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p values (Holm 1979), in the order given: compare each with the family's rate.

    `statsmodels.stats.multitest.multipletests(method="holm")`. A NaN counts as 1.0: it can never be significant.
    """
    from statsmodels.stats.multitest import multipletests

    if not p_values:
        return []
    usable = [1.0 if math.isnan(p) else p for p in p_values]
    return [float(p) for p in multipletests(usable, method="holm")[1]]
