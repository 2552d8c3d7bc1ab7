"""Portfolios of least conditional value at risk as a `Problem`.

::

    minimise over w, a     a + sum_i p_i max(0, -<r_i, w> - a) / (1 - beta)
    subject to             sum_j w_j = budget,  lower <= w <= upper,  <mean, w> >= min_return,
                           A w <= b

(Rockafellar and Uryasev 2000, (4) and (5)). The n losses of the scenarios are hinges in ``(w, a)``;
there is no quadratic term. The last coordinate, a, is the value at risk where it is unique, and the
objective the mean of the worst share ``1 - beta`` of the losses.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.validation import array, finite, number, tolerance
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Layout, Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.models.samples import filled_rows, linear_constraints, weights

Array = NDArray[np.float64]


def cvar(
    R: Any,
    beta: float = 0.95,
    *,
    budget: float | None = 1.0,
    lower: ArrayLike | None = 0.0,
    upper: ArrayLike | None = None,
    min_return: float | None = None,
    mean: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    A: ArrayLike | None = None,
    b: ArrayLike | None = None,
) -> Problem:
    """The portfolio whose worst losses are smallest on average; see the module's docstring.

    Parameters
    ----------
    R : array_like or sparse matrix, shape (n, d)
        Returns of d assets in n scenarios; used as they are, never written to.
    beta : float
        Level in (0, 1): the worst share ``1 - beta`` of the losses counts.
    budget : float, optional
        What the weights add up to; None for no such constraint.
    lower, upper : float or array_like, shape (d,), optional
        Bounds of the weights (infinite entries bound nothing); long only as it is.
    min_return : float, optional
        Least mean return.
    mean : array_like, shape (d,), optional
        Mean returns for `min_return`; those of the scenarios when omitted.
    sample_weight : array_like, shape (n,), optional
        Probabilities of the scenarios, non-negative; they are scaled to add up to 1. Equal when
        omitted.
    A, b : array_like, shape (m, d) and (m,), optional
        Further constraints ``A w <= b``.

    Returns
    -------
    Problem
        In d + 1 coordinates. Of a solution ``w`` are the weights, ``intercept`` the value at risk
        and ``value`` the conditional value at risk.

    Raises
    ------
    InvalidInput
        On NaN, wrong shapes, empty data, or a level outside (0, 1).

    Examples
    --------
    >>> import numpy as np, cvxscreen
    >>> R = np.random.default_rng(0).normal(0.01, 0.05, size=(200, 4))
    >>> solution = cvxscreen.solve(cvxscreen.cvar(R, 0.9), tol=1e-8)
    >>> round(float(solution.w.sum()), 6), round(solution.value, 4)
    (1.0, 0.0371)
    """
    rows = filled_rows(R)
    n, d = rows.shape
    beta = tolerance(beta, "beta")
    share = weights(sample_weight, n)
    share = share / (float(share.sum()) * (1.0 - beta))
    losses = Losses(np.zeros(n), 0.0, 0.0, 0.0, share)  # type: ignore[arg-type]
    linear = np.zeros(d + 1)
    linear[-1] = 1.0
    bound = [np.eye(d)]
    low, high = [_ends("lower", lower, -np.inf, d)], [_ends("upper", upper, np.inf, d)]
    if budget is not None:
        bound.append(np.ones((1, d)))
        low.append(np.atleast_1d(finite("budget", number("budget", budget))))
        high.append(low[-1])
    if min_return is not None:
        usual = np.asarray(rows.adjoint(share / float(share.sum())))
        bound.append((usual if mean is None else finite("mean", mean, (d,)))[None])
        low.append(np.array([number("min_return", min_return)]))
        high.append(np.array([np.inf]))
    if (A is None) != (b is None):
        raise InvalidInput("`A` and `b` belong together; one of them is missing.")
    if A is not None and b is not None:
        matrix, ends = finite("A", A), finite("b", b)
        if matrix.ndim != 2 or matrix.shape[1] != d or ends.shape != (len(matrix),):
            raise InvalidInput(
                f"`A` {matrix.shape} and `b` {ends.shape} must have shapes (m, {d}) and (m,)."
            )
        bound.append(matrix)
        low.append(np.full(len(ends), -np.inf))
        high.append(ends)
    side = linear_constraints(
        np.vstack(bound), np.concatenate(low), np.concatenate(high), intercept=True
    )
    design = Rows(rows.matrix, -np.ones(n), np.ones((n, 1)))
    return Problem(
        design, losses, Quadratic(np.zeros(d + 1)), linear, side=side, kind="cvar",
        layout=Layout(intercept=True),
    )


def _ends(name: str, values: ArrayLike | None, default: float, d: int) -> Array:
    """Bounds of the weights, shape (d,); NaN is refused, infinity says that there is none."""
    ends = array(name, default if values is None else values)
    if ends.ndim > 1 or ends.size not in (1, d) or np.isnan(ends).any():
        raise InvalidInput(f"`{name}` must be a number or a vector ({d},) without NaN.")
    return np.broadcast_to(ends, (d,))
