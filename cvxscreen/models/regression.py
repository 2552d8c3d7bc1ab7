"""Robust regression (absolute, quantile, eps-insensitive, Huber) as a `Problem`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cvxscreen._support.validation import flag, positive
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows
from cvxscreen.models.kernel import KernelChoice, KernelSetting, check_kernel_arguments
from cvxscreen.models.samples import REGRESSION, Shape, named_loss, some_rows, vector, weights
from cvxscreen.models.streamed import chunked_terms
from cvxscreen.models.svm import ridge, spread
from cvxscreen.out_of_core.in_memory import opened


def regression(
    X: Any,
    y: ArrayLike,
    *,
    C: float = 1.0,
    loss: str = "absolute",
    epsilon: float | None = None,
    tau: float | None = None,
    gamma: float | None = None,
    delta: float | None = None,
    sample_weight: ArrayLike | None = None,
    intercept: bool = False,
    kernel: KernelChoice | None = None,
    kernel_params: Mapping[str, float] | None = None,
    cache_bytes: int = 2**30,
) -> Problem:
    """The problem ``min_w 1/2 ||w||^2 + C sum_i c_i phi(<x_i, w> + b - y_i)``.

    Parameters
    ----------
    X : array_like, sparse matrix, or data in chunks, shape (n, d)
        As in `svm`.
    y : array_like, shape (n,)
        Responses, in their own units.
    C : float
        Weight of the loss, positive.
    loss : {"absolute", "quantile", "epsilon", "smoothed_epsilon", "huber"}
    epsilon : float, optional
        Half-width of the insensitive zone, in units of `y` (default 0.1).
    tau : float, optional
        Quantile level in (0, 1) (default 0.5): residuals ``y - t > 0`` cost ``tau`` each unit.
    gamma : float, optional
        Corner width of the smoothed eps-insensitive loss, in units of `y` (default 0.5).
    delta : float, optional
        Huber's threshold, in units of `y` (default 1): ``1/2 r^2`` inside, ``delta |r|`` beyond.
    sample_weight : array_like, shape (n,), optional
        Non-negative factors ``c_i``.
    intercept : bool
        Whether to add an unpenalised ``b``, the last coordinate of the solution.
    kernel : str or callable, optional
        ``"precomputed"`` (`X` is then the Gram matrix), a name as in scikit-learn ("linear",
        "poly", "rbf", ...), or ``k(A, B) -> matrix``; x then holds coefficients of the points.
    kernel_params : mapping, optional
        ``gamma`` (default 1 / d), ``coef0``, ``degree`` of a named kernel.
    cache_bytes : int
        Most memory that is spent on stored kernel rows.

    Returns
    -------
    Problem

    Raises
    ------
    InvalidInput
        On NaN, wrong shapes, empty data, non-positive parameters.

    Notes
    -----
    Wang et al. 2014, section 5, for the absolute loss (LAD).
    """
    C, intercept = positive("C", C), flag("intercept", intercept)
    check_kernel_arguments(kernel, kernel_params, loss, gamma)
    shape = Shape(gamma=gamma, epsilon=epsilon, tau=tau, delta=delta)
    chunks = opened(X, kernel)
    if chunks is not None:
        parts = chunked_terms(chunks, y, loss, shape, REGRESSION, C, sample_weight, intercept)
        return ridge(*parts, C, intercept, "regression")
    rows = Rows(X)
    n, d = rows.shape
    some_rows(n, d)
    target = vector("y", y, n)
    c = C * weights(sample_weight, n)
    used = np.flatnonzero(c > 0)
    losses = spread(named_loss(loss, target[used], c[used], shape, REGRESSION), used, n)
    if kernel is not None:
        gram, form = KernelSetting(kernel, kernel_params, cache_bytes).terms(X, None, intercept)
        linear = np.zeros(gram.shape[1])
        return Problem(gram, losses, form, linear, C=C, kind="kernel regression")
    extra = np.ones((n, 1)) if intercept else None
    return ridge(Rows(rows.matrix, None, extra), losses, C, intercept, "regression")
