"""What is in it for whoever types ``cvxscreen demo``: one problem, solved three ways side by side.

A linear SVM (hinge loss, with an intercept) on 50,000 samples of two overlapping classes is solved
by CVXPY alone, by CVXPY with ``method="screen"`` and the same solver, and by the built-in solver.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path as FilePath
from time import perf_counter, process_time
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from cvxscreen import plots
from cvxscreen._support.compiled import ANNOUNCEMENT
from cvxscreen._support.immutable import Immutable
from cvxscreen._support.limits import ONE_BLAS_THREAD
from cvxscreen._support.tables import table
from cvxscreen.api import solve
from cvxscreen.datasets import two_gaussians
from cvxscreen.models.linear import svm

Array = NDArray[np.float64]

SAMPLES, FEATURES = 50_000, 30
"""Large enough for a gain that can be felt, small enough for CVXPY alone to need some seconds."""

EVERY = 4
"""Of so many samples one is in the problem that is solved first, to import solvers and load loops.

12,500 are left: certificates of more than 10,000 terms have a loop of their own."""

_TIGHT = {"tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9, "tol_feas": 1e-9}

OBJECTIVE_TOLERANCE = 1e-7
"""Relative difference up to which values count as the same: the solvers are asked for 1e-9."""

COEFFICIENT_TOLERANCE = 1e-4
"""The same for coefficients: near an optimum they move with the root of the value."""


class Solved(Immutable):
    """One way to solve one problem.

    Attributes
    ----------
    x : array, shape (d + 1,)
        Coefficients and the intercept.
    value : float
    seconds : float
        CPU time, CVXPY's compilation included.
    kept : int
        Terms that the solver had left (all of them where nothing is screened).
    gap : float
        Certified relative gap; NaN where nothing was certified, in a plain solve.
    compiling : float
        Of `seconds`, those spent compiling loops, which is done once a machine.
    """

    x: Array
    value: float
    seconds: float
    kept: int
    gap: float
    compiling: float = 0.0


def by_cvxpy(X: Array, y: Array, C: float, *, screened: bool) -> Solved:
    """The SVM as a CVXPY user writes it, solved by Clarabel, with screening or without."""
    w, b = cp.Variable(X.shape[1]), cp.Variable()
    hinge = cp.sum(cp.pos(1 - cp.multiply(y, X @ w + b)))
    prob = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + C * hinge))
    method: dict[str, Any] = {"method": "screen", "always": True} if screened else {}
    began, compiled = process_time(), ANNOUNCEMENT.seconds
    prob.solve(solver="CLARABEL", **method, **_TIGHT)
    seconds, compiled = process_time() - began, ANNOUNCEMENT.seconds - compiled
    kept, gap = len(y), float("nan")
    if screened:
        report = prob.solver_stats.extra_stats["cvxscreen"]
        kept, gap = report.kept, report.relative_gap
    return Solved(np.append(w.value, b.value), float(prob.value), seconds, kept, gap, compiled)


def built_in(X: Array, y: Array, C: float) -> Solved:
    """The same SVM by the package alone."""
    began, compiled = process_time(), ANNOUNCEMENT.seconds
    found = solve(svm(X, y, C=C, intercept=True), tol=1e-9)
    seconds, compiled = process_time() - began, ANNOUNCEMENT.seconds - compiled
    kept = found.rounds[-1].kept if found.rounds else found.problem.n
    coefficients = np.append(found.w, found.intercept)
    gap = found.certificate.relative_gap
    return Solved(coefficients, found.value, seconds, kept, gap, compiled)


class DemoRow(Immutable):
    """One value of C: what the three ways found.

    Attributes
    ----------
    C : float
    full, screened, built_in : Solved
    """

    C: float
    full: Solved
    screened: Solved
    built_in: Solved

    @property
    def ways(self) -> dict[str, Solved]:
        """The three ways of solving by the names that are printed."""
        return {"CVXPY alone": self.full, "CVXPY, screened": self.screened,
                "built in": self.built_in}

    def value_difference(self, found: Solved) -> float:
        """Of the objective from CVXPY's alone, relative."""
        return abs(found.value - self.full.value) / abs(self.full.value)

    def coefficient_difference(self, found: Solved) -> float:
        """The largest of a coefficient from CVXPY's alone."""
        return float(np.abs(found.x - self.full.x).max())

    @property
    def agrees(self) -> bool:
        """Whether all three agree (1e-7 of the objective, 1e-4 of a coefficient), with a proof."""
        return all(
            self.value_difference(found) <= OBJECTIVE_TOLERANCE
            and self.coefficient_difference(found) <= COEFFICIENT_TOLERANCE
            and found.gap <= 1e-6
            for found in (self.screened, self.built_in)
        )

    def record(self) -> dict[str, float]:
        """What the row shows, as numbers for a file."""
        numbers = {"C": self.C, "gap": max(self.screened.gap, self.built_in.gap)}
        for way, found in vars(self).items():
            if isinstance(found, Solved):
                numbers[f"{way}_seconds"] = found.seconds
                numbers[f"{way}_compiling_seconds"] = found.compiling
                numbers[f"{way}_kept"] = found.kept
                numbers[f"{way}_objective"] = found.value
        return numbers


class Demo(Immutable):
    """The comparison.

    Attributes
    ----------
    rows : tuple of DemoRow
    picture : Path or None
        Where the picture was written.
    preparing, seconds : float
        Wall seconds before the first timed call (solvers imported, loops loaded or compiled), and
        of everything.
    """

    rows: tuple[DemoRow, ...]
    picture: FilePath | None
    preparing: float = 0.0
    seconds: float = 0.0

    @property
    def agrees(self) -> bool:
        """Whether all optima agree, with a proof."""
        return all(row.agrees for row in self.rows)

    def _headline(self) -> str:
        """What became smaller, how much faster, the same optimum, certified."""
        full = sum(row.full.seconds for row in self.rows)
        screened = full / max(sum(row.screened.seconds for row in self.rows), 1e-9)
        builtin = full / max(sum(row.built_in.seconds for row in self.rows), 1e-9)
        kept = max(row.screened.kept for row in self.rows)
        worst = max(
            row.value_difference(found)
            for row in self.rows for found in (row.screened, row.built_in)
        )
        same = (
            f"the same optimum (to {worst:.0e} of its value), certified on all of the data."
            if self.agrees else "DISAGREEMENT: an answer differs from CVXPY's, see the table."
        )
        return (
            f"{SAMPLES:,} loss terms became {kept}: {screened:.1f} times faster than CVXPY alone\n"
            f"with the same solver, {builtin:.1f} times with the built-in one;\n{same}"
        )

    def __str__(self) -> str:
        header = ("C", "way", "seconds", "terms solved for", "objective", "differs by", "in w",
                  "certified gap")
        body: list[tuple[object, ...]] = []
        for row in self.rows:
            for way, found in row.ways.items():
                numbers = (
                    row.value_difference(found), row.coefficient_difference(found), found.gap,
                )
                known = np.isfinite(found.gap)
                body.append((
                    row.C, way, float(f"{found.seconds:.3g}"), found.kept, f"{found.value:.10g}",
                    *(f"{v:.0e}" if known else "-" for v in numbers),
                ))
        compiling = sum(found.compiling for row in self.rows for found in row.ways.values())
        size = f"{SAMPLES:,} samples x {FEATURES} features"
        title = f"A linear SVM, {size}, CPU seconds on one thread"
        lines = [
            self._headline(),
            "",
            table(header, body, title=title),
            "",
            "differs by, in w: from CVXPY alone, relative in the objective, absolute in the "
            "coefficients;",
            "certified gap: relative duality gap, recomputed on all of the data.",
            *([f"Counted above: {compiling:.1f} s of compiling, once a machine."]
              if compiling > 0.0 else []),
            f"Not counted above: {self.preparing:.1f} s to import the solvers and to load or "
            f"compile loops; {self.seconds:.0f} s in all.",
            "",
            'Yours next: prob.solve(method="screen") on a cvxpy.Problem, or',
            "            cvxscreen path DATA.csv --target NAME",
        ]
        if self.picture is not None:
            lines.append(f"Picture: {self.picture}")
        return "\n".join(lines)


def run_demo(
    picture: FilePath | None, points: int = 1, show: Callable[[str], None] | None = None
) -> Demo:
    """Run the comparison.

    Parameters
    ----------
    picture : Path or None
        File for the picture; None draws none.
    points : int
        Values of C, between 0.1 and 10; one is 1.
    show : callable, optional
        Gets a line before each step.
    """
    say = show or (lambda text: None)
    began = perf_counter()
    X, y = two_gaussians(SAMPLES, FEATURES)
    say("loading the solvers; the first time on a machine some loops are compiled as well")
    rows = []
    with ONE_BLAS_THREAD:  # CPU seconds of threads that wait for each other compare nothing
        by_cvxpy(X[::EVERY], y[::EVERY], 1.0, screened=True)
        built_in(X[::EVERY], y[::EVERY], 1.0)
        preparing = perf_counter() - began
        for C in map(float, np.geomspace(0.1, 10.0, points) if points > 1 else (1.0,)):
            say(f"C = {C:.3g}: CVXPY alone, some seconds")
            full = by_cvxpy(X, y, C, screened=False)
            say(f"C = {C:.3g}: {full.seconds:.2f} s; now with screening")
            small = by_cvxpy(X, y, C, screened=True)
            say(f"C = {C:.3g}: {small.seconds:.2f} s; now built in")
            rows.append(DemoRow(C, full, small, built_in(X, y, C)))
    if picture is not None:
        last = rows[-1]
        margins = y * (X @ last.screened.x[:-1] + last.screened.x[-1])
        figure = plots.three_ways(
            {way: found.seconds for way, found in last.ways.items()}, margins, last.screened.kept,
            title=f"The same SVM three ways: {SAMPLES:,} samples x {FEATURES} features",
        )
        plots.save(figure, picture)
    return Demo(tuple(rows), picture, preparing, perf_counter() - began)
