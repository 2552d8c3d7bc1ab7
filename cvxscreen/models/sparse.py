"""Doubly sparse models: an L1 and a quadratic term, losses with flat pieces."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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
)
from cvxscreen.out_of_core.streams import opened


def sparse_svm(
    X: Any,
    y: ArrayLike,
    lam: float,
    *,
    loss: str = "smoothed_hinge",
    gamma: float | None = None,
    l2: float = 1.0,
    sample_weight: ArrayLike | None = None,
) -> Problem:
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
    Problem
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
    alone = number("l2", l2, "0 (for the LP-SVM) or a positive number is needed") == 0
    if alone:
        _check_alone(X, choice("loss", loss, CLASSIFICATION), ("squared_hinge", "hinge"))
    chunks, shape = None if alone else opened(X), Shape(gamma=gamma)
    if chunks is not None:
        factor = 1.0 / chunks[0].shape[0]
        terms = chunked_terms(chunks, y, loss, shape, CLASSIFICATION, factor, sample_weight)
        return _elastic(*terms, lam, l2, "sparse svm")
    rows = filled_rows(X)
    n = rows.shape[0]
    design = Rows(rows.matrix, labels(y, n), known=True)
    losses = losses_of_samples(loss, np.ones(n), 1.0 / n, sample_weight, shape, CLASSIFICATION)
    found = _elastic(design, losses, lam, l2, "sparse svm")
    return replace(found, kind="LP-SVM") if found.linear_program else found


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
    alone = number("l2", l2, "0 (Huber's or the squared loss) or a positive number is needed") == 0
    if alone:
        _check_alone(X, choice("loss", loss, WITH_SQUARED), ("huber", "squared"))
    chunks, shape = None if alone else opened(X), Shape(gamma=gamma, epsilon=epsilon, delta=delta)
    if chunks is not None:
        factor = 1.0 / chunks[0].shape[0]
        terms = chunked_terms(chunks, y, loss, shape, REGRESSION, factor, sample_weight)
        return _elastic(*terms, lam, l2, "sparse svr")
    rows = filled_rows(X)
    n = rows.shape[0]
    losses = losses_of_samples(
        loss, vector("y", y, n), 1.0 / n, sample_weight, shape, WITH_SQUARED
    )
    return _elastic(rows, losses, lam, l2, "sparse svr")


def _check_alone(X: Any, loss: str, known: tuple[str, ...]) -> None:
    """Refuse what takes no L1 norm alone: other losses than the `known`, and data in chunks.

    A file that is mapped into memory is read as an array.
    """
    if loss not in known:
        names = " or ".join(f'loss="{name}"' for name in known)
        raise InvalidInput(
            f"`l2` is 0, and `loss` is {loss!r}; {names}, or a positive l2, is needed."
        )
    if not isinstance(X, np.memmap) and opened(X) is not None:
        raise InvalidInput(
            "`l2` is 0; without a quadratic term (as for the LP-SVM) all rows are needed in "
            "memory: give `X` as an array."
        )


def _elastic(design: Any, losses: LossTerms, lam: float, l2: float, kind: str) -> Problem:
    lam, d = positive("lam", lam), design.shape[1]
    form = (
        ZeroQuadratic(np.zeros(d)) if l2 == 0 else Quadratic(np.full(d, lam * positive("l2", l2)))
    )
    return Problem(
        design, losses, form, np.zeros(d),
        penalty=L1(np.full(d, lam)), lam=lam, kind=kind,
    )
