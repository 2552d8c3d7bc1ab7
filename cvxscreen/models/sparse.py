"""Doubly sparse models: an L1 and a quadratic term, losses with flat pieces."""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike

from cvxscreen._support.validation import choice, number, positive
from cvxscreen.core.losses import LossTerms
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem, Quadratic, ZeroQuadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.models.samples import (
    CLASSIFICATION,
    REGRESSION,
    WITH_SQUARED,
    Shape,
    chunked_terms,
    filled_rows,
    labels,
    losses_of_samples,
    vector,
    weights,
)
from cvxscreen.out_of_core.streams import opened
from cvxscreen.solvers.lp_svm import LpSvm


@overload
def sparse_svm(
    X: Any,
    y: ArrayLike,
    lam: float,
    *,
    loss: Literal["hinge"],
    l2: Literal[0],
    sample_weight: ArrayLike | None = None,
) -> LpSvm: ...


@overload
def sparse_svm(
    X: Any,
    y: ArrayLike,
    lam: float,
    *,
    loss: str = "smoothed_hinge",
    gamma: float | None = None,
    l2: float = 1.0,
    sample_weight: ArrayLike | None = None,
) -> Problem: ...


def sparse_svm(
    X: Any,
    y: ArrayLike,
    lam: float,
    *,
    loss: str = "smoothed_hinge",
    gamma: float | None = None,
    l2: float = 1.0,
    sample_weight: ArrayLike | None = None,
) -> Problem | LpSvm:
    """The problem ``min_w lam (||w||_1 + l2/2 ||w||^2) + 1/n sum_i c_i phi(y_i <x_i, w>)``.

    Parameters
    ----------
    X : array_like or sparse matrix, shape (n, d)
    y : array_like, shape (n,)
        Labels -1/+1, both present.
    lam : float
        Positive.
    loss : {"smoothed_hinge", "squared_hinge", "hinge"}
    gamma : float, optional
        Corner width of the smoothed hinge (default 0.5).
    l2 : float
        Weight of the quadratic term beside the L1 norm. 0 leaves the L1 norm alone: with the
        squared hinge the problem of LIBLINEAR's L1-regularised L2-loss SVM (its C is
        ``1 / (2 n lam)``), with the plain hinge the LP-SVM; other losses are refused.
    sample_weight : array_like, shape (n,), optional
        Non-negative factors ``c_i``.

    Returns
    -------
    Problem or LpSvm
        Parametrised by ``lam``; see `lambda_max`.

    Raises
    ------
    InvalidInput
        On NaN, wrong shapes, one class, labels other than -1/+1, parameters that are not positive.

    Notes
    -----
    Shibagaki et al. 2016, (1), with the smoothed hinge of its Table 1.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(100, 20)
    >>> problem = cvxscreen.sparse_svm(X, y, 1.0)
    >>> problem = problem.with_(lam=0.5 * cvxscreen.lambda_max(problem))
    >>> solution = cvxscreen.solve(problem, tol=1e-9)
    >>> int((solution.x != 0).sum()), int(solution.screening.dropped.sum())
    (9, 11)
    """
    lp = number("l2", l2, "0 (for the LP-SVM) or a positive number is needed") == 0
    chunks = None if lp and isinstance(X, np.memmap) else opened(X)
    if chunks is not None:
        if lp:
            raise InvalidInput(
                "`l2` is 0; without a quadratic term (as for the LP-SVM) all rows are needed in "
                "memory: give `X` as an array."
            )
        n = chunks[0].shape[0]
        given = (loss, Shape(gamma=gamma), CLASSIFICATION, 1.0 / n, sample_weight)
        return _elastic(*chunked_terms(chunks, y, *given), lam, l2, "sparse svm")
    rows = filled_rows(X)
    n = rows.shape[0]
    design = Rows(rows.matrix, labels(y, n), known=True)
    if lp:
        loss = choice("loss", loss, CLASSIFICATION)
        if loss not in ("hinge", "squared_hinge"):
            raise InvalidInput(
                f"`l2` is 0, and `loss` is {loss!r}; loss=\"squared_hinge\" or \"hinge\" (the "
                "LP-SVM), or a positive l2, is needed."
            )
    if lp and loss == "hinge":
        return LpSvm(design, weights(sample_weight, n) / n, positive("lam", lam))
    losses = losses_of_samples(
        loss, np.ones(n), 1.0 / n, sample_weight, Shape(gamma=gamma), CLASSIFICATION
    )
    return _elastic(design, losses, lam, l2, "sparse svm")


def sparse_svr(
    X: Any,
    y: ArrayLike,
    lam: float,
    *,
    loss: str = "smoothed_epsilon",
    epsilon: float | None = None,
    gamma: float | None = None,
    delta: float | None = None,
    l2: float = 1.0,
    sample_weight: ArrayLike | None = None,
) -> Problem:
    """The problem ``min_w lam (||w||_1 + l2/2 ||w||^2) + 1/n sum_i c_i phi(<x_i, w> - y_i)``.

    Parameters
    ----------
    X : array_like or sparse matrix, shape (n, d)
    y : array_like, shape (n,)
        Responses, in their own units.
    lam : float
        Positive.
    loss : {"smoothed_epsilon", "huber", "epsilon", "absolute", "squared"}
        ``"squared"``, half the square, makes it the lasso or the elastic net.
    epsilon : float, optional
        Half-width of the insensitive zone, in units of `y` (default 0.1).
    gamma : float, optional
        Corner width of the smoothed eps-insensitive loss (default 0.5).
    delta : float, optional
        Huber's threshold, in units of `y` (default 1).
    l2 : float
        Weight of the quadratic term beside the L1 norm; 0 (with Huber's or the squared loss)
        leaves the L1 norm alone.
    sample_weight : array_like, shape (n,), optional
        Non-negative factors ``c_i``.

    Returns
    -------
    Problem
        Parametrised by ``lam``; see `lambda_max`.

    Raises
    ------
    InvalidInput
        On NaN, wrong shapes, empty data, parameters that are not positive.

    Examples
    --------
    >>> import numpy as np, cvxscreen
    >>> X = np.random.default_rng(0).normal(size=(100, 20))
    >>> solution = cvxscreen.solve(cvxscreen.sparse_svr(X, 3 * X[:, 0], 0.2), tol=1e-9)
    >>> np.flatnonzero(solution.x)
    array([0])
    """
    shape = Shape(gamma=gamma, epsilon=epsilon, delta=delta)
    pure = number("l2", l2, "0 (Huber's or the squared loss) or a positive number is needed") == 0
    if pure and choice("loss", loss, WITH_SQUARED) not in ("huber", "squared"):
        raise InvalidInput(
            f"`l2` is 0, and `loss` is {loss!r}; loss=\"huber\" or \"squared\", or a positive l2, "
            "is needed."
        )
    chunks = None if pure and isinstance(X, np.memmap) else opened(X)
    if chunks is not None:
        if pure:
            raise InvalidInput(
                "`l2` is 0; without a quadratic term all rows are needed in memory: give `X` as an "
                "array."
            )
        n = chunks[0].shape[0]
        parts = chunked_terms(chunks, y, loss, shape, REGRESSION, 1.0 / n, sample_weight)
        return _elastic(*parts, lam, l2, "sparse svr")
    rows = filled_rows(X)
    n = rows.shape[0]
    target = vector("y", y, n)
    losses = losses_of_samples(loss, target, 1.0 / n, sample_weight, shape, WITH_SQUARED)
    return _elastic(rows, losses, lam, l2, "sparse svr")


def _elastic(design: Any, losses: LossTerms, lam: float, l2: float, kind: str) -> Problem:
    lam, d = positive("lam", lam), design.shape[1]
    form = (
        ZeroQuadratic(np.zeros(d)) if l2 == 0 else Quadratic(np.full(d, lam * positive("l2", l2)))
    )
    return Problem(
        design, losses, form, np.zeros(d),
        penalty=L1(np.full(d, lam)), lam=lam, kind=kind,
    )
