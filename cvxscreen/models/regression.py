"""Robust regression (absolute, quantile, eps-insensitive, Huber) as a `Problem`.

With a squared norm of the coefficients, with their absolute values, or with no penalty at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cvxscreen._support.validation import choice, flag, positive
from cvxscreen.core.problem import Layout, Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.models.kernel import KernelChoice, KernelSetting, check_kernel_arguments
from cvxscreen.models.samples import (
    OF_ONE_NORM,
    REGRESSION,
    WITH_SQUARED,
    Constraints,
    Shape,
    chunked_terms,
    filled_rows,
    losses_of_samples,
    one_norm,
    refuse_beside,
    ridge,
    side_constraints,
    vector,
)
from cvxscreen.out_of_core.streams import opened


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
    penalty: str = "l2",
    nonneg: bool = False,
    monotone: ArrayLike | None = None,
    constraints: Constraints | None = None,
    kernel: KernelChoice | None = None,
    kernel_params: Mapping[str, float] | None = None,
    cache_bytes: int = 2**30,
) -> Problem:
    """The problem ``min_w 1/2 ||w||^2 + C sum_i c_i phi(<x_i, w> + b - y_i)``.

    With ``penalty="l1"`` the first term is ``sum_j |w_j|``; with ``C=inf`` there is none, and the
    losses have the weights ``c_i``.

    Parameters
    ----------
    X : array_like, sparse matrix, or data in chunks, shape (n, d)
        As in `svm`.
    y : array_like, shape (n,)
        Responses, in their own units.
    C : float
        Weight of the loss, positive; infinite for a fit without a penalty.
    loss : {"absolute", "quantile", "epsilon", "smoothed_epsilon", "huber", "squared"}
        ``"squared"``, half the square, beside ``penalty="l1"`` (the lasso, its intercept
        unpenalised), constraints, or ``C=inf``; beside the squared norm alone it is refused.
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
    penalty : {"l2", "l1"}
        What holds the coefficients. The absolute values are d further terms of the problem, the
        last ones, with slopes in ``[-1, 1]`` and unit rows (the data are copied once); beside a
        squared or Huber's loss without an intercept or constraints they are the problem's penalty.
    nonneg, monotone, constraints, kernel, kernel_params, cache_bytes
        Constraints on the coefficients, and kernels, as in `svm`.

    Returns
    -------
    Problem

    Raises
    ------
    InvalidInput
        On NaN, wrong shapes, empty data, non-positive parameters.

    Notes
    -----
    Wang et al. 2014, section 5, for the absolute loss (LAD). Without the squared norm nothing is
    strongly convex: see `cvxscreen.solvers.relaxation`. With C infinite the minimiser need not be
    unique.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.heavy_tailed_regression(100, 3)
    >>> problem = cvxscreen.regression(X, y, C=1.0, loss="quantile", tau=0.9, intercept=True)
    >>> solution = cvxscreen.solve(problem, tol=1e-9)
    >>> below = y < X @ solution.w + solution.intercept - 1e-6
    >>> bool(0.85 < below.mean() <= 0.9)
    True
    """
    unpenalised = isinstance(C, float) and bool(np.isposinf(C))
    if not unpenalised:
        C = positive("C", C)
    intercept = flag("intercept", intercept)
    penalty = choice("penalty", penalty, ("l2", "l1"))
    loss = choice("loss", loss, WITH_SQUARED)
    if unpenalised and penalty == "l1":
        raise InvalidInput("`C` is infinite: give a finite weight of the loss beside penalty='l1'.")
    check_kernel_arguments(kernel, kernel_params, loss, gamma)
    shape = Shape(gamma=gamma, epsilon=epsilon, tau=tau, delta=delta)
    plain = penalty == "l2" and not unpenalised
    bound = flag("nonneg", nonneg) or monotone is not None or constraints is not None
    chunks = opened(X, kernel)
    if loss == "squared" and plain and not bound:
        raise InvalidInput(
            "`loss` is 'squared' beside a squared norm: a linear system, with nothing to leave out "
            "(scikit-learn's Ridge solves it); give penalty='l1', constraints or C=inf."
        )
    if (bound or not plain) and (kernel is not None or chunks is not None):
        refuse_beside(bound, kernel, "a finite `C` and penalty='l2'")
    if chunks is not None:
        parts = chunked_terms(chunks, y, loss, shape, REGRESSION, C, sample_weight, intercept)
        return ridge(*parts, C, intercept, "regression")
    rows = filled_rows(X)
    n, d = rows.shape
    target = vector("y", y, n)
    factor = 1.0 if unpenalised else C
    losses = losses_of_samples(loss, target, factor, sample_weight, shape, WITH_SQUARED)
    if kernel is not None:
        gram, form = KernelSetting(kernel, kernel_params, cache_bytes).terms(X, None, intercept)
        linear = np.zeros(gram.shape[1])
        return Problem(gram, losses, form, linear, C=C, kind="kernel regression")
    layout = Layout(
        intercept,
        tau=(0.5 if tau is None else float(tau)) if loss == "quantile" else None,
    )
    extra = np.ones((n, 1)) if intercept else None
    design = Rows(rows.matrix, None, extra, known=True) if intercept else rows
    if penalty == "l1":
        alone = loss in OF_ONE_NORM and not (intercept or bound)
        found = one_norm(design, losses, C, "regression", layout, alone=alone)
    else:
        found = ridge(design, losses, factor, intercept, "regression")
        if unpenalised:
            found = replace(found, quadratic=Quadratic(np.zeros(design.shape[1])))
        found = replace(found, layout=layout)
    side = side_constraints(d, intercept, nonneg, monotone, constraints)
    return found if side is None else replace(found, side=side)
