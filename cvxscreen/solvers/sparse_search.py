"""How far to go along a step under an L1 norm alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cvxscreen.losses import Losses

Array = NDArray[np.float64]

LONGEST, HALVINGS, FLAT = 8.0, 12, 0.3
"""The largest length, the halvings of the search, and the share of the first slope along the step
that is left where a whole step is good enough."""


def best_length(x: Array, kappa: Array, t: Array, losses: Losses, d: Array, dt: Array) -> float:
    """About where ``sum_i f_i(t + s dt) + kappa'|x + s d|`` is smallest, ``s > 0``.

    It is the root of a derivative that increases. Newton steps for a squared hinge need it: without
    a quadratic term rows change their piece far from the model's minimum.
    """
    def slope(length: float) -> float:
        theta = np.clip(losses.slope(t + length * dt), losses.lo, losses.hi)
        here = x + length * d
        return float(theta @ dt + kappa @ np.where(here == 0, 0.0, np.sign(here) * d))

    low, high = 0.0, 1.0
    at = slope(high)
    if abs(at) <= FLAT * abs(slope(low)):
        return high  # exactly: what the model put to 0 stays 0
    while at < 0 and high < LONGEST:
        low, high = high, 2.0 * high
        at = slope(high)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return high if low == 0.0 else low
