"""What the algorithms of this package hand back: the rounds they ran and where they ended."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cvxscreen.multitask.metric import Metric

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Round:
    """One outer iteration.

    Attributes
    ----------
    number : int
    objective, gap, relative_gap : float
        Of the best primal and the best dual point so far.
    kept : int
        Samples that were not fixed by screening in the U-step.
    steps : int
        Newton steps of the U-step, or iterations since the last record.
    accelerated : bool
        Whether an extrapolated point was accepted.
    seconds : float
        Wall time.
    """

    number: int
    objective: float
    gap: float
    relative_gap: float
    kept: int
    steps: int
    accelerated: bool
    seconds: float


@dataclass(frozen=True, eq=False)
class Outcome:
    """Where an algorithm ended: ``(U, b, M)``, slopes ``theta`` and its rounds."""

    U: Array
    b: Array
    metric: Metric
    theta: Array
    rounds: tuple[Round, ...]
