"""What the loop asks of any solver of a (reduced) problem: start, call, result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cvxscreen.duality import Point
from cvxscreen.problem import Problem

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Start:
    """A warm start: primal, dual and the proximal weight reached there (None: choose one).

    `point` is the same pair where it has been evaluated on the very problem already.
    """

    x: Array
    theta: Array
    weight: float | None = None
    multipliers: Array | None = None
    point: Point | None = None


@dataclass(frozen=True, eq=False)
class InnerResult:
    """What a solver returns for one (reduced) problem.

    Attributes
    ----------
    status : str
        ``"optimal"``, ``"inaccurate"``, or the solver's own word for a failure.
    x, theta, multipliers : arrays
        Empty when there is no solution.
    info : dict
        Solver statistics; ``weight`` is kept for warm starts of `Newton`.
    """

    status: str
    x: Array
    theta: Array
    multipliers: Array = field(default_factory=lambda: np.zeros(0))
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def usable(self) -> bool:
        """Whether there is a point to go on from."""
        return self.status in ("optimal", "inaccurate")


class Inner(Protocol):
    """Any solver of a (reduced) problem."""

    @property
    def name(self) -> str:
        """What to call it in records."""
        ...

    def __call__(
        self, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> InnerResult:
        """Solve `problem` from `start` to an absolute duality gap of about `target`."""
        ...
