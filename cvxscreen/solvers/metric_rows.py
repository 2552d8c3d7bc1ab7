"""Points of a path over lambda as plain rows, and where such a path begins and ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen.errors import InvalidInput
from cvxscreen.limits import UNLIMITED, Limits
from cvxscreen.problem import Problem
from cvxscreen.solvers.metric_sequence import along, smooth_part
from cvxscreen.solvers.metric_start import lam_max

Array = NDArray[np.float64]

STOP = 0.01
"""A path ends where the loss hardly falls any more: see `ends`."""


def ends(before: tuple[float, float] | None, now: tuple[float, float]) -> bool:
    """The stopping rule of a path (Yoshida et al. 2019, section 7), on ``(lam, loss)``.

    Whether the relative fall of the loss, per relative fall of lam, is below `STOP`.
    """
    if before is None:
        return False
    (lam0, loss0), (lam1, loss1) = before, now
    if loss0 <= 0.0:
        return True
    return (loss0 - loss1) / loss0 * lam0 / (lam0 - lam1) < STOP


def metric_grid(problem: Problem) -> Array:
    """0.9 times the value before, from the largest lam that matters downwards.

    Raises
    ------
    InvalidInput
        If the problem has no such lam.
    """
    top = lam_max(problem)
    if not 0.0 < top < np.inf:
        raise InvalidInput("`values` is missing, and this problem has no largest lambda.")
    return np.asarray(top * 0.9 ** np.arange(1, 400))


def metric_rows(
    problem: Problem,
    grid: Array,
    tol: float,
    done: Sequence[dict[str, Any]],
    *,
    stop: bool,
    limits: Limits = UNLIMITED,
    max_iter: int | None = None,
) -> Iterator[dict[str, Any]]:
    """The points of a path after those `done`, each as the fields of its record.

    With `stop` it ends by the rule of `ends`, once the loss has begun to fall. `limits` are of all
    points together, `max_iter` of each.
    """
    descent = _Descent()
    for row in done:
        x, lam = row["x"], row["value"]
        if descent.over(lam, row["objective"] - smooth_part(problem, x, lam)) and stop:
            return
    first = [(row["value"], row["x"]) for row in done]
    stations = along(
        problem, grid[len(done):], tol=tol, first=first, limits=limits, max_iter=max_iter
    )
    for station in stations:
        proof, lam = station.certificate, float(station.problem.lam or 0.0)
        yield {
            "value": lam,
            "x": station.x,
            "theta": station.theta,
            "objective": proof.primal,
            "gap": proof.gap,
            "relative_gap": proof.relative_gap,
            "status": station.status,
            "before": {"zero": station.dropped, "linear": station.fixed, "quadratic": 0.0},
            "kept": station.kept,
            "predicted": 0,
            "refuted": 0,
            "rounds": station.looks,
            "seconds": station.seconds,
            "over": "lam",
        }
        if descent.over(lam, station.loss) and stop:
            return


class _Descent:
    """How the loss falls along lambda; near the largest lambda it hardly falls either."""

    def __init__(self) -> None:
        self.before: tuple[float, float] | None = None
        self.steep = False

    def over(self, lam: float, loss: float) -> bool:
        """Take in a point; whether it is the last."""
        flat = ends(self.before, (lam, loss))
        last = self.steep and flat
        self.steep = self.steep or (self.before is not None and not flat)
        self.before = lam, loss
        return last
