"""Metrics learned from a data file, ready to be saved and used elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.files import written_whole
from cvxscreen._support.validation import file_path
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.models.comparisons import triplets
from cvxscreen.models.metric import factor_of, metric_of, rtlm
from cvxscreen.paths.path import Path, path
from cvxscreen.solvers.lambda_max import lambda_max

Array = NDArray[np.float64]

SHARE = 0.01
"""Of the largest lambda that matters, where none is given."""


@dataclass(frozen=True, eq=False)
class LearnedMetrics:
    """One metric for each lambda.

    Attributes
    ----------
    problem : Problem
    path : Path
    scale : array, shape (d,)
        What every feature was divided by before; distances of raw data are those of ``x / scale``.
    """

    problem: Problem
    path: Path
    scale: Array

    def save(self, file: FilePath) -> None:
        """Write ``lam``, ``metric``, ``components`` (of the last lambda), ``scale``, the gaps.

        Whole or not at all.
        """
        points = self.path.points
        with written_whole(file_path("file", file)) as stream:
            np.savez(
                stream,
                lam=self.path.values,
                metric=np.array([metric_of(self.problem, point.x) for point in points]),
                components=factor_of(self.problem, points[-1].x),
                scale=self.scale,
                relative_gap=np.array([point.relative_gap for point in points]),
            )

    def __str__(self) -> str:
        return self.path.table()


def learn_metrics(
    X: Any,
    y: ArrayLike,
    k: str,
    values: Array | None,
    *,
    gamma: float,
    diagonal: bool,
    standardise: bool,
    tol: float,
) -> LearnedMetrics:
    """Metrics along `values` of lambda; a hundredth of the largest that matters when None.

    Raises
    ------
    InvalidInput
        For a `k` that is neither a number nor "all", or data without triplets.
    """
    if not (k == "all" or k.isdecimal()):
        raise InvalidInput(f"`--k` is {k!r}; a number of neighbours or 'all' is needed.")
    points = Rows(X).dense()
    scale = np.ones(points.shape[1])
    if standardise:
        spread = points.std(axis=0)
        scale = np.where(spread > 0, spread, 1.0)
    points = points / scale
    chosen = triplets(points, y, "all" if k == "all" else int(k))
    problem = rtlm(points, chosen, 1.0, gamma=gamma, diagonal=diagonal)
    if values is None:
        largest = lambda_max(problem)
        values = np.array([SHARE * largest if 0.0 < largest < np.inf else 1.0])
    return LearnedMetrics(problem, path(problem, over="lam", values=values, tol=tol), scale)
