"""A parameter that only weighs the losses against the regulariser, as a change of C.

With the regulariser times ``sigma(v)`` and the losses times ``rho(v)`` at the parameter's value
``v``, the problem is ``sigma(v)`` times that of ``C = rho(v) / sigma(v)``. Under CVXPY's DPP rules
both factors are affine in a scalar parameter of the objective, so two values of it give all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen.duality import reference_point
from cvxscreen.errors import NotScreenable
from cvxscreen.problem import Problem
from cvxscreen.reducer import memory
from cvxscreen.reducer.recognise import recognise
from cvxscreen.reducer.recognition import Recognition
from cvxscreen.reducer.rescale import factors
from cvxscreen.reducer.standard import reread

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scale:
    """A path over a parameter as a path over C.

    Attributes
    ----------
    problem : Problem
        With ``C = 1`` at costs where both factors are 1.
    recognition : Recognition
        At the same costs.
    C : array, shape (k,)
        One for each value of the parameter.
    factor : array, shape (k,)
        ``sigma``: objective, slopes and multipliers are those of `problem` times this.
    sign : float
        -1 for a maximisation.
    """

    problem: Problem
    recognition: Recognition
    C: Array
    factor: Array
    sign: float

    def variables(self, x: Array) -> Mapping[int, Any]:
        """Values of the user's variables for the core coordinates `x`, by identifier."""
        standard = self.recognition.standard
        columns = self.recognition.columns(x)
        return standard.canonical.user_values(standard.split(columns))

    def remember(self, x: Array, theta: Array, k: int) -> None:
        """Make point `k` the reference of the user's next solve."""
        here = self.problem.with_(C=float(self.C[k]))
        point = reference_point(here, x, theta)
        original = self.recognition.standard.canonical.original
        memory.keep(original, memory.Last(here, point.x, point.theta, point.multipliers))


def weigh(problem: Any, parameter: Any, values: Array) -> Scale | None:
    """The path of `problem` over `values` of `parameter` as one over C; None where it is not.

    The parameter's value is changed on the way.

    Parameters
    ----------
    problem : cvxpy.Problem
    parameter : cvxpy.Parameter
        A scalar.
    values : array, shape (k,)
    """
    first, second = float(values[0]), float(values[0]) * 2.0
    try:
        parameter.value = first
        found = memory.recall(problem, recognise)
        parameter.value = second
        if not memory.only_costs(problem, parameter):
            return None
        there = reread(found.standard)
        change = factors(found, there)
    except (NotScreenable, ValueError):
        return None
    parts = found.parts
    plain = not parts.tilt.any() and found.problem.side is None and found.shrinkage is None
    plain = plain and not any((found.standard.constant, there.constant, parts.base, parts.level))
    if first == 0.0 or change is None or change.squares is None or change.losses is None:
        return None
    if not plain or (parts.slope.any() and change.slopes != change.squares):
        return None
    step = (values - first) / first
    rho, sigma = 1.0 + step * (change.losses - 1.0), 1.0 + step * (change.squares - 1.0)
    if not ((rho > 0) & (sigma > 0)).all():
        return None
    base = replace(found.problem, C=1.0)
    sign = found.standard.canonical.sign
    return Scale(base, found, rho / sigma, sigma, sign)


def builtin_suits(problem: Any) -> bool:
    """Whether `problem` is recognised, and without side constraints."""
    try:
        return memory.recall(problem, recognise).problem.side is None
    except Exception:  # whatever is wrong with it, its solve will say so
        return False
