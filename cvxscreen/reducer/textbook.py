"""The SVM as a CVXPY user writes it, solved with and without screening; used by the demo."""

from __future__ import annotations

from dataclasses import dataclass
from time import process_time
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_TIGHT = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}


@dataclass(frozen=True, eq=False)
class BookSolution:
    """One solve of the textbook problem.

    Attributes
    ----------
    w : array, shape (d,)
    value : float
    kept : int
        Terms the solver saw.
    gap : float
        Certified relative gap (0 where nothing was certified, in a plain solve).
    seconds : float
        CPU time, canonicalisation included.
    """

    w: Array
    value: float
    kept: int
    gap: float
    seconds: float


class TextbookSVM:
    """``minimise 1/2 ||w||^2 + C sum(pos(1 - y * (X w)))`` with ``C`` a parameter."""

    def __init__(self, X: Array, y: Array) -> None:
        self.terms, d = X.shape
        self.w = cp.Variable(d)
        self.C = cp.Parameter(pos=True)
        hinge = cp.sum(cp.pos(1 - cp.multiply(y, X @ self.w)))
        self.problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(self.w) + self.C * hinge))

    def solve(self, C: float, *, screened: bool) -> BookSolution:
        """Solve at `C` with Clarabel, on the full or on the screened problem."""
        self.C.value = C
        method: dict[str, Any] = {"method": "screen"} if screened else {}
        began = process_time()
        self.problem.solve(solver="CLARABEL", **method, **_TIGHT)
        seconds = process_time() - began
        kept, gap = self.terms, 0.0
        if screened:
            report = self.problem.solver_stats.extra_stats["cvxscreen"]
            kept, gap = report.kept, report.relative_gap
        return BookSolution(
            np.array(self.w.value), float(self.problem.value), kept, gap, seconds
        )


def textbook_svm(X: Array, y: Array) -> TextbookSVM:
    """The textbook problem on `X` (n, d) with labels `y` (n,)."""
    return TextbookSVM(X, y)
