"""The front of the recogniser: a ``cvxpy.Problem`` in, a `Recognition` or a refusal out."""

from __future__ import annotations

from typing import Any

import numpy as np

from cvxscreen.reducer.check import check
from cvxscreen.reducer.elements import recognise_standard
from cvxscreen.reducer.recognition import Recognition
from cvxscreen.reducer.standard import standardise
from cvxscreen.reducer.symbolic import canonicalise


def recognise(problem: Any) -> Recognition:
    """Read a CVXPY problem as a regularised sum of losses.

    Parameters
    ----------
    problem : cvxpy.Problem
        Its variables' values are left as they are.

    Raises
    ------
    NotScreenable
        With the reason, naming the part that stands in the way.
    """
    with np.errstate(invalid="ignore", over="ignore"):  # data with NaN or infinity are refused
        standard = standardise(canonicalise(problem))
    recognition = recognise_standard(standard)
    check(recognition)
    return recognition
