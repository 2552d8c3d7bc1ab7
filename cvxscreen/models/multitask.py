"""Relaxed alternating structure optimisation (multi-task learning) as a problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.validation import choice, positive
from cvxscreen.core.losses import FIELDS, Losses
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.models.samples import CLASSIFICATION, REGRESSION, Shape, named_loss, vector
from cvxscreen.multitask.problem import MultiTask

Array = NDArray[np.float64]

LARGEST = 1e140
"""Numbers from which on sums of products leave double precision: 1e280, added up 1e28 times."""

LOSSES = (*CLASSIFICATION, *REGRESSION, "squared")


def raso(
    tasks: Sequence[tuple[Any, Any]],
    *,
    h: int = 2,
    alpha: float,
    beta: float,
    loss: str = "hinge",
    gamma: float | None = None,
    epsilon: float | None = None,
    tau: float | None = None,
    delta: float | None = None,
) -> MultiTask:
    """Tasks that share a subspace: mean loss of each task plus a convex structure penalty.

    ::

        min_{U, b, M}  sum_l 1/n_l sum_i phi(x_i' u_l + b_l, y_i) + c tr(U' (eta I + M)^{-1} U)
        with           tr M = h, 0 <= M <= I,  c = alpha eta (1 + eta),  eta = beta / alpha

    Parameters
    ----------
    tasks : sequence of (X, y)
        ``X`` of shape (n_l, d), the same d in every task; sparse and integer data are converted to
        dense float64 (the shared matrix is dense, d x d). ``y`` holds labels -1/+1, or responses
        for a regression loss.
    h : int
        Dimension of the shared subspace, between 1 and d. ``h = d`` makes the tasks independent.
    alpha, beta : float
        Positive. A small ``beta / alpha`` ties the tasks closely to the shared subspace.
    loss : str
        ``"hinge"`` (Chen et al. 2013, (64)), ``"smoothed_hinge"``, ``"squared_hinge"``, or
        ``"absolute"``, ``"quantile"``, ``"epsilon"``, ``"smoothed_epsilon"``, ``"huber"``,
        ``"squared"`` (half the squared residual).
    gamma, epsilon, tau, delta : float, optional
        Shape of the loss, as in `svm` and `regression`.

    Returns
    -------
    MultiTask

    Raises
    ------
    InvalidInput
        On an empty task list, different d, NaN, labels other than -1/+1, ``h`` out of range,
        ``alpha`` or ``beta`` not positive.

    Notes
    -----
    A task with one class only is allowed for a classification loss: with an intercept that costs
    nothing its solution is ``u = 0`` and ``b`` the label. Chen, Tang, Liu, Ye, *A convex
    formulation for learning a shared predictive structure from multiple tasks*, TPAMI 2013.

    Examples
    --------
    >>> import numpy as np, cvxscreen
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(30, 4)) for _ in range(3)]
    >>> tasks = [(A, np.where(A[:, 0] > 0, 1.0, -1.0)) for A in X]
    >>> problem = cvxscreen.raso(tasks, h=1, alpha=0.1, beta=0.01)
    >>> solution = cvxscreen.solve(problem)
    >>> solution.U.shape, solution.certificate.ok
    ((4, 3), True)
    """
    positive("alpha", alpha), positive("beta", beta)
    loss = choice("loss", loss, LOSSES)
    shape = Shape(gamma=gamma, epsilon=epsilon, tau=tau, delta=delta)
    rows: list[Array] = []
    targets, tables, signs = [], [], []
    for number, (X, y) in enumerate(_pairs(tasks)):
        try:
            X, y = _task(X, y, loss)
        except InvalidInput as error:
            raise InvalidInput(f"task {number} of `tasks`: {error}") from None
        if rows and X.shape[1] != rows[0].shape[1]:
            raise InvalidInput(
                f"task {number} of `tasks` has {X.shape[1]} features, task 0 has "
                f"{rows[0].shape[1]}; all tasks need the same ones."
            )
        rows.append(X)
        targets.append(y)
        tables.append(_table(loss, y, shape))
        signs.append(y if loss in CLASSIFICATION else np.ones(len(y)))
    losses = Losses(*(np.concatenate([getattr(t, name) for t in tables]) for name in FIELDS))
    sign = np.concatenate(signs)
    return MultiTask(tuple(rows), tuple(targets), losses, sign, h, alpha, beta, loss)


def _pairs(tasks: Any) -> list[tuple[Any, Any]]:
    try:
        pairs = [(X, y) for X, y in tasks]
    except (TypeError, ValueError):
        raise InvalidInput("`tasks` must be a sequence of pairs (X, y), one a task.") from None
    if not pairs:
        raise InvalidInput("`tasks` is empty; at least one pair (X, y) is needed.")
    return pairs


def _task(X: Any, y: Any, loss: str) -> tuple[Array, Array]:
    X = Rows(X).dense()
    n, d = X.shape
    if n == 0 or d == 0:
        raise InvalidInput(f"`X` has {n} rows and {d} columns; at least one of each is needed.")
    if not float(np.abs(X).max()) < LARGEST:
        raise InvalidInput(
            f"`X` holds numbers of {float(np.abs(X).max()):.1e}; their squares overflow. Scale the "
            "features first."
        )
    y = vector("y", y, n)
    if loss in CLASSIFICATION and not np.isin(y, (-1.0, 1.0)).all():
        raise InvalidInput(
            f"`y` holds {float(y[~np.isin(y, (-1.0, 1.0))][0]):g}; labels -1 and +1 are needed."
        )
    return X, y


def _table(loss: str, y: Array, shape: Shape) -> Losses:
    """The losses of one task in the prediction, weights ``1/n`` included."""
    n = len(y)
    weight = np.full(n, 1.0 / n)
    if loss == "squared":
        return Losses(y, 0.0 * y, 1.0 / weight, np.full(n, -np.inf), np.full(n, np.inf))
    if loss in REGRESSION:
        return named_loss(loss, y, weight, shape, REGRESSION)
    f = named_loss(loss, np.ones(n), weight, shape, CLASSIFICATION)
    # phi(y t) in t: for y = -1 the axis is turned round.
    low, high = np.where(y > 0, f.lo, -f.hi), np.where(y > 0, f.hi, -f.lo)
    return Losses(y * f.b, f.e, f.q, low, high)
