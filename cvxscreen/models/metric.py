"""Metric learning from comparisons as a `Problem`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.validation import array, finite, flag, number, one_of, positive, real, whole
from cvxscreen.core.losses import Losses
from cvxscreen.core.penalty import PSD, NonNegative
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.comparisons import Pairs
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.models.comparisons import Comparisons, triplets
from cvxscreen.models.samples import some_rows

Array = NDArray[np.float64]

LARGEST = 1e70
"""Coordinates from which on products of squared distances leave double precision."""


def rtlm(
    X: Any,
    T: Comparisons | ArrayLike,
    lam: float,
    *,
    gamma: float = 0.05,
    diagonal: bool = False,
    linear: float | ArrayLike | None = None,
) -> Problem:
    """Regularised triplet loss minimisation: a Mahalanobis metric from comparisons.

    ::

        minimise over M >= 0   sum_t w_t l(<H_t, M>; b_t) + <linear, M> + lam/2 |M|_F^2

    with ``H_ijl = (x_i - x_l)(x_i - x_l)' - (x_i - x_j)(x_i - x_j)'`` and the hinge
    ``l(m; b) = max(0, b - m)``, its corner smoothed over a width of `gamma`.

    Parameters
    ----------
    X : array_like or sparse matrix, shape (n, d)
        Its features should be of similar scale.
    T : Comparisons, or array_like of int, shape (T, 3)
        From `triplets`, `pairs`, `quadruplets`, a mixture of them, or plain indices of triplets.
    lam : float
        Weight of the regulariser, positive.
    gamma : float
        Width of the smoothed corner; 0 for the plain hinge.
    diagonal : bool
        Learn a diagonal M; the solution is then a vector (d,).
    linear : float or array_like, shape (d, d) or (d,), optional
        A linear term: a number for the trace norm, ``T.pull(X)`` times a weight for LMNN.

    Returns
    -------
    Problem
        Its coordinates are all entries of M in row order; see `metric_of`.

    Raises
    ------
    InvalidInput
        On NaN, wrong shapes, non-positive `lam`, negative `gamma`.

    Notes
    -----
    Yoshida, Takeuchi, Karasuyama 2019, (2.1), with weights, thresholds and a linear term
    (section 6.3). An optimum at a kink (`gamma` 0) is found to the same certified gap, but slower.

    Examples
    --------
    >>> import numpy as np, cvxscreen
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> y = X[:, 0] > 0
    >>> T = cvxscreen.triplets(X, y, k=2)
    >>> solution = cvxscreen.solve(cvxscreen.rtlm(X, T, lam=10.0), tol=1e-8)
    >>> metric = cvxscreen.metric_of(solution.problem, solution.x)
    >>> metric.shape, int(metric.diagonal().argmax())
    ((3, 3), 0)
    """
    rows = Rows(X)
    some_rows(*rows.shape)
    lam = positive("lam", lam)
    width = _width(gamma)
    diagonal = flag("diagonal", diagonal)
    chosen = T if isinstance(T, Comparisons) else triplets(rows.matrix, index=real("T", T))
    if not len(chosen):
        raise InvalidInput("`T` is empty; there is nothing to learn from.")
    table = chosen.table(rows.matrix, diagonal)
    if len(table) and not float(np.abs(table.points).max()) < LARGEST:
        raise InvalidInput(
            f"`X` holds numbers of {float(np.abs(table.points).max()):.1e} after centring; their "
            "fourth powers overflow. Scale the features first."
        )
    weight, n = chosen.weight, len(chosen)
    if weight.size == 1 and chosen.threshold.size == 1:
        w = float(weight[0])
        losses = Losses.repeated(n, float(chosen.threshold[0]), 0.0, width / w, -w, 0.0)
    else:
        ones = np.ones(n)
        none = np.zeros(n)
        losses = Losses(
            chosen.threshold * ones, none, width / weight * ones, -weight * ones, none
        )
    return Problem(
        Pairs(table, chosen.terms),
        losses,
        Quadratic(np.full(table.size, lam)),
        _linear(linear, table.d, diagonal),
        kind="metric learning",
        penalty=NonNegative() if diagonal else PSD(table.d),
        lam=lam,
    )


def metric_of(problem: Problem, x: ArrayLike) -> Array:
    """The matrix M, shape (d, d), of a solution's coordinates.

    Examples
    --------
    >>> import numpy as np, cvxscreen
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> y = X[:, 0] > 0
    >>> T = cvxscreen.triplets(X, y, k=2)
    >>> solution = cvxscreen.solve(cvxscreen.rtlm(X, T, lam=10.0))
    >>> metric = cvxscreen.metric_of(solution.problem, solution.x)
    >>> metric.shape, int(metric.diagonal().argmax())
    ((3, 3), 0)
    """
    one_of("problem", problem, Problem, "a problem from `rtlm` is needed")
    design = problem.design
    if not isinstance(design, Pairs):
        raise InvalidInput("`problem` is not one of metric learning; see `rtlm`.")
    x = finite("x", x, (problem.d,))
    return np.diag(x) if design.diagonal else x.reshape(design.table.d, design.table.d).copy()


def factor_of(problem: Problem, x: ArrayLike, rank: int | None = None) -> Array:
    """L with ``M = L' L``, shape (r, d): new data transformed by ``X @ L.T`` have the metric.

    Examples
    --------
    >>> import numpy as np, cvxscreen
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> y = X[:, 0] > 0
    >>> T = cvxscreen.triplets(X, y, k=2)
    >>> solution = cvxscreen.solve(cvxscreen.rtlm(X, T, lam=10.0))
    >>> L = cvxscreen.factor_of(solution.problem, solution.x)
    >>> bool(np.allclose(L.T @ L, cvxscreen.metric_of(solution.problem, solution.x)))
    True
    >>> (X @ L.T).shape                                         # the data, in the metric
    (40, 2)
    """
    rank = None if rank is None else whole("rank", rank, 1)
    values, vectors = np.linalg.eigh(metric_of(problem, x))
    order = np.argsort(-values)[: len(values) if rank is None else rank]
    kept = order[values[order] > 1e-12 * max(float(values[-1]), 0.0)]
    return np.asarray((vectors[:, kept] * np.sqrt(values[kept])).T)


def _width(gamma: object) -> float:
    width = number("gamma", gamma, "a number >= 0 is needed")
    if not (np.isfinite(width) and width >= 0):
        raise InvalidInput(f"`gamma` is {width}; a finite number >= 0 is needed.")
    return width


def _linear(linear: float | ArrayLike | None, d: int, diagonal: bool) -> Array:
    shape = (d,) if diagonal else (d, d)
    if linear is None:
        return np.zeros(d if diagonal else d * d)
    given = array("linear", linear)
    if given.ndim == 0:
        given = float(given) * (np.ones(d) if diagonal else np.eye(d))
    if given.shape != shape or not np.isfinite(given).all():
        raise InvalidInput(f"`linear` has shape {given.shape}; finite numbers {shape} are needed.")
    return given if diagonal else 0.5 * (given + given.T).ravel()
