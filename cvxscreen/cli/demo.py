"""The main job on embedded data: one C path, three ways, compared point by point.

On scikit-learn's bundled breast cancer data (569 x 30, standardised) the hinge SVM is solved along
a grid of C by CVXPY alone (as a CVXPY user writes it), by CVXPY with ``method="screen"``, and by
the built-in solver, and the three answers are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path as FilePath
from time import process_time
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from cvxscreen import plots
from cvxscreen._support.tables import table
from cvxscreen.datasets import breast_cancer
from cvxscreen.models.svm import svm
from cvxscreen.paths.path import Path, path

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
        method: dict[str, Any] = {"method": "screen", "always": True} if screened else {}
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


OBJECTIVE_TOLERANCE = 1e-7
WEIGHT_TOLERANCE = 1e-5


@dataclass(frozen=True)
class DemoRow:
    """One value of C: what the three ways found."""

    C: float
    kept: int
    gap: float
    objective_difference: float
    weight_difference: float
    full_seconds: float
    screened_seconds: float
    builtin_seconds: float


@dataclass(frozen=True, eq=False)
class Demo:
    """The comparison along the path.

    Attributes
    ----------
    rows : tuple of DemoRow
    path : Path
        The built-in solver's path.
    picture : Path or None
        Where the picture of the rejection rates was written.
    preparing : float
        CPU seconds before the first timed call: compiled loops made (once a machine) or loaded.
    """

    rows: tuple[DemoRow, ...]
    path: Path
    picture: FilePath | None
    preparing: float = 0.0

    @property
    def agrees(self) -> bool:
        """Whether all optima agree to 1e-7 (objective, relative) and 1e-5 (weights)."""
        return all(
            row.objective_difference <= OBJECTIVE_TOLERANCE
            and row.weight_difference <= WEIGHT_TOLERANCE
            and row.gap <= 1e-6
            for row in self.rows
        )

    def __str__(self) -> str:
        header = (
            "C", "kept by CVXPY", "certified gap", "objective diff", "w diff",
            "full CVXPY ms", "screened ms", "built-in ms",
        )
        body = [
            (
                r.C, r.kept, r.gap, r.objective_difference, r.weight_difference,
                *(round(1e3 * s, 1) for s in (r.full_seconds, r.screened_seconds,
                                              r.builtin_seconds)),
            )
            for r in self.rows
        ]
        n = self.path.terms
        lines = [
            table(header, body, title=f"Breast cancer, {n} x 30, hinge SVM along C (CPU time)"),
            "",
            "kept: terms of the reduced problem that CVXPY's solver saw "
            f"(of {n}); gap: relative, recomputed on all data;",
            "differences: worst of (screened, built-in) against full CVXPY, relative for the "
            "objective, absolute for w;",
            "built-in: certified at 1e-9; its loops were compiled or loaded before, in "
            f"{self.preparing:.1f} s.",
            "",
            "Full and reduced optima agree to 1e-7 in objective and 1e-5 in w at every point."
            if self.agrees
            else "DISAGREEMENT: at least one point exceeds 1e-7 in objective or 1e-5 in w.",
        ]
        if self.picture is not None:
            lines.append(f"Picture of the rejection rates: {self.picture}")
        return "\n".join(lines)


def run_demo(
    picture: FilePath | None, points: int = 15, show: Callable[[str], None] | None = None
) -> Demo:
    """Run the comparison on `points` values of C between 1e-2 and 10.

    Parameters
    ----------
    picture : Path or None
        File for the picture; None draws none.
    points : int
        Values of C.
    show : callable, optional
        Gets a line of progress a point.

    Returns
    -------
    Demo
    """
    X, y = breast_cancer()
    grid = np.geomspace(1e-2, 10.0, points)
    if show is not None:
        show("compiling the loops (once a machine) or loading them")
    began = process_time()
    path(svm(X, y), values=grid[:1], tol=1e-9)
    preparing = process_time() - began
    began = process_time()
    builtin = path(svm(X, y), values=grid, tol=1e-9)
    builtin_seconds = (process_time() - began) / points
    book = textbook_svm(X, y)
    rows = []
    for point in builtin.points:
        full = book.solve(point.value, screened=False)
        small = book.solve(point.value, screened=True)
        scale = abs(full.value)
        rows.append(
            DemoRow(
                C=point.value,
                kept=small.kept,
                gap=max(small.gap, point.relative_gap),
                objective_difference=max(
                    abs(small.value - full.value), abs(point.objective - full.value)
                ) / scale,
                weight_difference=float(
                    max(np.abs(small.w - full.w).max(), np.abs(point.x - full.w).max())
                ),
                full_seconds=full.seconds,
                screened_seconds=small.seconds,
                builtin_seconds=builtin_seconds,
            )
        )
        if show is not None:
            show(f"C = {point.value:.3g}: kept {small.kept} of {builtin.terms}")
    if picture is not None:
        figure = builtin.plot("Breast cancer: terms proven before each solve, from the C before")
        plots.save(figure, picture)
    return Demo(tuple(rows), builtin, picture, preparing)
