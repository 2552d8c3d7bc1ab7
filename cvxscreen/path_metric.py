"""A path of metric learning over lambda as it goes, one point at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen.limits import TIME, Limits
from cvxscreen.path_record import PathPoint, Points
from cvxscreen.problem import Problem
from cvxscreen.solvers.metric_rows import metric_rows

Array = NDArray[np.float64]


class MetricRun:
    """What `path_run.Run` is for the other models.

    With `stop` the path is at its end once the loss hardly falls any more.
    """

    def __init__(
        self, problem: Problem, points: Points, grid: Array, tol: float,
        done: tuple[dict[str, Any], ...], *, stop: bool, limits: Limits, max_iter: int | None,
    ) -> None:
        self.points, self.limits = points, limits
        self.ended, self.note = False, ""
        self._rows = metric_rows(
            problem, grid, tol, done, stop=stop, limits=limits, max_iter=max_iter
        )

    def advance(self, _: Array) -> None:
        """Add one point; none at the end, or where the time is up."""
        row = next(self._rows, None)
        if row is None:
            self.ended = True
        elif row["status"] == TIME:
            self.limits.spent()  # this point is not finished, so it does not count
        else:
            point = PathPoint(**row)
            self.points.append(point)
            self.note = f"lam={point.value:.3g}, kept {point.kept:,}"
