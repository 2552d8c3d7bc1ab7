"""The LP-SVM along a grid of lambda: every point is screened from the one before it.

The pair of the point before is a pair at the new lambda as well (its dual point shrunk until it is
feasible), so Theorems 6 and 7 apply to it as they stand; what it pulls at decides which features
are let in first.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.limits import TIME, Limits
from cvxscreen.errors import InvalidInput
from cvxscreen.paths.record import PathPoint, Points
from cvxscreen.solvers.lp_svm import LpSolution, LpSvm, solve_lp

Array = NDArray[np.float64]


class LpRun:
    """What `path_run.Run` is for the other models."""

    ended = False

    def __init__(
        self, problem: LpSvm, tol: float, mode: str, limits: Limits, max_iter: int | None
    ) -> None:
        self.problem, self.tol, self.mode, self.points = problem, tol, mode, Points()
        self.limits, self.max_iter = limits, max_iter
        self.previous: LpSolution | None = None
        self.note = ""

    def advance(self, grid: Array) -> None:
        """Add one point; none where the time is up."""
        lam = float(grid[0])
        found = solve_lp(
            self.problem.with_(lam=lam), tol=self.tol, mode=self.mode, start=self.previous,
            limits=self.limits.each(self.max_iter),
        )
        if found.status == TIME:
            self.limits.spent()  # this point is not finished, so it does not count
            return
        self.points.append(_record(found, started=self.previous is not None))
        self.previous, self.note = found, f"lam={lam:.3g}, kept {found.kept:,}"


def lambda_only(over: str, checkpoint: object) -> None:
    """Refuse what the path of an LP-SVM does not have.

    Raises
    ------
    InvalidInput
        For another parameter than ``"lam"``, and for a checkpoint.
    """
    if over != "lam":
        raise InvalidInput(f"`over` is {over!r}; the parameter of an LP-SVM is 'lam'.")
    if checkpoint is not None:
        raise InvalidInput(
            "`checkpoint`: the path of an LP-SVM keeps none; use `Path.save` when it is done."
        )


def _record(found: LpSolution, *, started: bool) -> PathPoint:
    said, proof = found.screening, found.certificate
    before = {"zero": 0.0, "linear": 0.0, "quadratic": 0.0, "dropped": 0.0}
    if started:
        shares = {"zero": said.zero, "linear": said.linear, "dropped": said.dropped}
        before.update({name: float(mask.mean()) for name, mask in shares.items()})
    point = PathPoint(
        value=found.problem.lam, x=found.x, theta=-found.alpha, objective=proof.primal,
        gap=proof.gap, relative_gap=proof.relative_gap, status=found.status, before=before,
        kept=found.kept, predicted=0, refuted=0, rounds=found.rounds, seconds=found.seconds,
    )
    return replace(point, over="lam", features=found.features)
