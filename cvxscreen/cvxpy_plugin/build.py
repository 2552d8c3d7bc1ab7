"""A `Problem`, an LP-SVM or a multi-task problem as a ``cvxpy.Problem``, and its solution read.

A regularised problem is written in one vector variable ``z`` (`build`). With ``theta in [lo, hi]``
and ``f* = b theta + e |theta| + q/2 theta^2``, every loss is

::

    f(t) = minimum of  hi u - lo v + n^2 / (2 q)   over  u, v >= 0, |w| <= e, n
           subject to  t - b = u - v + w - n

which needs the data once, and linear constraints only. Slacks that cannot help are left out (``u``
where ``hi = 0`` turns the equation into ``>=``, ``v`` where ``lo = 0`` into ``<=``; ``w`` where
``e = 0``; ``n`` where ``q = 0``), so a hinge costs one row and one slack. The multiplier of the row
is ``theta``. Bounds are explicit constraints, never attributes of a variable: solvers that take
bounds on variables are then handed none.

The LP-SVM is written as anybody would (`lp_to_cvxpy`), the joint problem of rASO as a semidefinite
program (`joint_sdp`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.core.losses import Losses
from cvxscreen.core.penalty import L1, PSD, NonNegative
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.columns import by_columns
from cvxscreen.designs.gram import Gram
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.multitask.problem import MultiTask
from cvxscreen.solvers.lp_svm import LpSvm

Array = NDArray[np.float64]
Index = NDArray[np.intp]
LossRows = tuple[Any, Index, float]
"""A constraint of CVXPY with loss terms: which terms, and the sign from dual value to slope."""


@dataclass(frozen=True, eq=False)
class Built:
    """A problem built for CVXPY.

    Attributes
    ----------
    problem : cvxpy.Problem
    source : Problem
    variable : cvxpy.Expression
        ``z``, shape (d,): a variable, or the entries of a symmetric one.
    rows : tuple of LossRows
    side : tuple of (cvxpy constraint, function)
        Constraints of the side rows and how to read their multipliers.
    """

    problem: Any
    source: Problem
    variable: Any
    rows: tuple[LossRows, ...]
    side: tuple[tuple[Any, Callable[[Any], Array]], ...]

    def read(self) -> tuple[Array, Array, Array]:
        """The solution after a solve.

        Returns
        -------
        x : array, shape (d,)
        theta : array, shape (n,)
            Clipped into ``[lo, hi]``; subgradients at `x` where the solver gave no dual values.
        multipliers : array, shape (m,)
        """
        losses = self.source.losses
        x = np.asarray(self.variable.value, dtype=np.float64)
        theta = losses.slope(self.source.design.forward(x)) if self.source.n else np.zeros(0)
        theta = slopes_of(self.rows, theta)
        parts = [pick(constraint) for constraint, pick in self.side]
        multipliers = np.concatenate(parts) if parts else np.zeros(0)
        return x, np.clip(theta, losses.lo, losses.hi), multipliers


def build(
    problem: Problem, further: Callable[[Any], tuple[Any, list[Any]]] | None = None
) -> Built:
    """Write `problem` for CVXPY; see the module's docstring.

    Parameters
    ----------
    problem : Problem
    further : callable, optional
        From ``z`` to a further cost and its constraints.
    """
    z, penalty, constraints = _variable(problem)
    objective = penalty + problem.linear @ z + problem.constant
    objective = objective + _regulariser(problem, z)
    cost, more, rows = written_losses(problem, z)
    objective = objective + cost
    constraints += more
    side = _side(problem, z)
    constraints += [entry[0] for entry in side]
    if further is not None:
        cost, more = further(z)
        objective = objective + cost
        constraints += more
    if not constraints:
        # Some solvers refuse a problem without a single row.
        constraints = [cp.Variable(1) == 0]
    made = cp.Problem(cp.Minimize(objective), constraints)
    return Built(made, problem, z, rows, side)


def written_losses(problem: Problem, z: Any) -> tuple[Any, list[Any], tuple[LossRows, ...]]:
    """The losses of `problem` at the vector variable `z`: cost, constraints, and where slopes are.

    The constraints hold for slacks of their own. See `slopes_of` for the last entry.
    """
    losses, rows = problem.losses, []
    cost: Any = 0.0
    constraints: list[Any] = []
    down, up = losses.lo < 0, losses.hi > 0
    for mask, kind in ((down & ~up, "ge"), (up & ~down, "le"), (down & up, "eq")):
        index = np.flatnonzero(mask)
        if len(index):
            more_cost, more, main = _losses(problem, z, index, kind)
            cost = cost + more_cost
            constraints += [main, *more]
            rows.append((main, index, -1.0 if kind == "ge" else 1.0))
    return cost, constraints, tuple(rows)


def slopes_of(rows: tuple[LossRows, ...], theta: Array) -> Array:
    """`theta` with the slopes that dual values say; as it is where a solver gave none."""
    out = theta.copy()
    for constraint, index, sign in rows:
        if constraint.dual_value is not None:
            out[index] = sign * np.asarray(constraint.dual_value).ravel()
    return out


def _variable(problem: Problem) -> tuple[Any, Any, list[Any]]:
    """``z`` with what the penalty asks of it: its cost and its constraints."""
    penalty = problem.penalty
    if isinstance(penalty, PSD):
        matrix = cp.Variable((penalty.side, penalty.side), symmetric=True)
        return cp.vec(matrix, order="C"), 0.0, [matrix >> 0]
    z = cp.Variable(problem.d)
    if isinstance(penalty, L1):
        return z, penalty.kappa @ cp.abs(z), []
    if isinstance(penalty, NonNegative):
        return z, 0.0, [z >= 0]
    if penalty is not None:
        raise InvalidInput(f"`penalty` {penalty!r} cannot be written for CVXPY.")
    return z, 0.0, []


def _regulariser(problem: Problem, z: Any) -> Any:
    quadratic = problem.quadratic
    if not isinstance(quadratic, Quadratic) or quadratic.matrix is not None:
        return 0.5 * cp.quad_form(z, quadratic.dense(), assume_PSD=True)
    if (quadratic.diagonal == 1.0).all():
        return 0.5 * cp.sum_squares(z)
    if not quadratic.diagonal.any():
        return 0.0
    return 0.5 * cp.quad_form(z, sp.diags_array(quadratic.diagonal, format="csc"), assume_PSD=True)


def _losses(problem: Problem, z: Any, index: Index, kind: str) -> tuple[Any, list[Any], Any]:
    """Cost, bounds of the slacks, and the main rows of some terms."""
    losses = problem.losses.take(index)
    design = problem.design.take_rows(index)
    data = design.rows_csr(np.arange(len(index))) if design.sparse else design.dense()
    b = losses.b
    if kind != "eq":
        b = b - losses.e if kind == "ge" else b + losses.e
    left = data @ z - b
    cost: Any = 0.0
    more: list[Any] = []

    def slack(mask: Any) -> tuple[Any, Any, Index]:
        """A variable for some of the rows, and its place in them."""
        where = np.flatnonzero(mask)
        variable = cp.Variable(len(where))
        if len(where) == len(index):
            return variable, variable, where
        place = sp.csc_array(
            (np.ones(len(where)), (where, np.arange(len(where)))), shape=(len(index), len(where))
        )
        return variable, place @ variable, where

    for kinds, slopes, sign in ((("ge", "eq"), -losses.lo, 1.0), (("le", "eq"), losses.hi, -1.0)):
        if kind in kinds and np.isfinite(slopes).any():
            variable, placed, where = slack(np.isfinite(slopes))
            cost = cost + slopes[where] @ variable
            more.append(variable >= 0)
            left = left + placed if sign > 0 else left - placed
    if kind == "eq" and (losses.e > 0).any():
        variable, placed, where = slack(losses.e > 0)
        more += [variable <= losses.e[where], variable >= -losses.e[where]]
        left = left - placed
    if (losses.q > 0).any():
        variable, placed, where = slack(losses.q > 0)
        weight = sp.diags_array(0.5 / losses.q[where], format="csc")
        cost = cost + cp.quad_form(variable, weight, assume_PSD=True)
        left = left - placed if kind == "le" else left + placed
    main = {"ge": left >= 0, "le": left <= 0}.get(kind)
    return cost, more, left == 0 if main is None else main


def _vector(constraint: Any) -> Array:
    return np.atleast_1d(np.asarray(constraint.dual_value, dtype=np.float64)).ravel()


def _minus_vector(constraint: Any) -> Array:
    return -_vector(constraint)


def _head_first(constraint: Any) -> Array:
    head, tail = constraint.dual_value
    parts = [np.atleast_1d(np.asarray(part, dtype=np.float64)).ravel() for part in (head, tail)]
    return np.concatenate(parts)


def _symmetric(constraint: Any) -> Array:
    square = np.asarray(constraint.dual_value, dtype=np.float64)
    return np.asarray((0.5 * (square + square.T)).flatten(order="F"))


def _side(problem: Problem, z: Any) -> tuple[tuple[Any, Callable[[Any], Array]], ...]:
    """The side constraints, cone by cone."""
    if problem.side is None:
        return ()
    made: list[tuple[Any, Callable[[Any], Array]]] = []
    for kind, size, rows in problem.side.blocks():
        value = sp.csc_array(problem.side.matrix[rows]) @ z + problem.side.offset[rows]
        if kind == "zero":
            made.append((value == 0, _minus_vector))
        elif kind == "nonneg":
            made.append((value >= 0, _vector))
        elif kind == "soc":
            made.append((cp.SOC(value[0], value[1:]), _head_first))
        else:
            square = cp.reshape(value, (size, size), order="F")
            made.append((square >> 0, _symmetric))
    return tuple(made)


def to_cvxpy(problem: Problem) -> Any:
    """`problem` as a ``cvxpy.Problem`` in one vector variable.

    Of a kernel problem the variable is w in coordinates of the points' own span; see
    `explicit_features`.
    """
    return build(explicit_features(problem)).problem


def explicit_features(problem: Problem) -> Problem:
    """A kernel problem as one in rows of numbers; any other problem as it is.

    With ``K = Z Z'`` the point ``w = sum_j c_j z_j`` of the kernel's space is ``Z' c``: the same
    margins, the same norm. The optima agree, and so do slopes and intercept.
    """
    gram = problem.design
    if not isinstance(gram, Gram):
        return problem
    Z = gram.features()
    rows = gram.sign[:, None] * Z[gram.index]
    linear = Z.T @ problem.linear[: len(Z)]
    diagonal = np.ones(Z.shape[1])
    if gram.intercept:
        rows = np.column_stack([rows, gram.sign])
        linear, diagonal = np.append(linear, problem.linear[-1]), np.append(diagonal, 0.0)
    return Problem(
        Rows(rows), problem.losses, Quadratic(diagonal), linear, constant=problem.constant,
        C=problem.C, kind=problem.kind,
    )


def lp_to_cvxpy(problem: LpSvm) -> Any:
    """``minimise lam ||w||_1 + sum_i c_i max(0, 1 - <a_i, w>)`` in one vector variable."""
    w = cp.Variable(problem.d)
    rows = by_columns(problem.design).tocsr()
    matrix = rows if problem.design.sparse else np.asarray(rows.toarray())
    loss = problem.c @ cp.pos(1.0 - matrix @ w)
    return cp.Problem(cp.Minimize(problem.lam * cp.norm1(w) + loss))


def joint_sdp(problem: MultiTask) -> Any:
    """``min losses + c tr T`` over ``[[eta I + M, U], [U', T]] >= 0, 0 <= M <= I, tr M = h``.

    Parameters
    ----------
    problem : MultiTask

    Returns
    -------
    cvxpy.Problem
        With variables named ``U`` (d, m), ``b`` (m,), ``M`` (d, d), ``T`` (m, m), ``p`` (n,); the
        first constraint says that ``p`` are the predictions, its dual value is minus their slopes.
    """
    d, m, f = problem.d, problem.m, problem.losses
    U, b = cp.Variable((d, m), name="U"), cp.Variable(m, name="b")
    M = cp.Variable((d, d), symmetric=True, name="M")
    T = cp.Variable((m, m), symmetric=True, name="T")
    p = cp.Variable(problem.n, name="p")
    predicted = p == cp.hstack([X @ U[:, k] + b[k] for k, X in enumerate(problem.X)])
    eye = np.eye(d)
    block = cp.bmat([[problem.eta * eye + M, U], [U.T, T]])
    constraints = [predicted, block >> 0, M >> 0, eye - M >> 0, cp.trace(M) == problem.h]
    losses, more = _joint_losses(p - f.b, f)
    constraints += more
    objective = cp.sum(losses) + problem.c * cp.trace(T)
    return cp.Problem(cp.Minimize(objective), constraints)


def _joint_losses(z: Any, f: Losses) -> tuple[Any, list[Any]]:
    """The losses of the distances ``z`` from their centres, and constraints they need."""
    n = len(f)
    if f.q.any():
        # f(z) = min over r, w, |w| <= e of r^2 / 2q + the lines beyond, z = r + w + the rest.
        r, extra = cp.Variable(n, name="r"), []
        rest = z - r
        for bounded, side in ((np.isfinite(f.lo), -1.0), (np.isfinite(f.hi), 1.0)):
            if not bounded.all():  # no line on this side: the parabola never ends
                extra.append(side * rest[~bounded] <= f.e[~bounded])
        curve = cp.multiply(0.5 / np.where(f.q > 0, f.q, 1.0), cp.square(r))
        if (f.q == 0).any():
            extra.append(r[f.q == 0] == 0)
    else:
        rest, extra, curve = z, [], 0.0
    high = np.where(np.isfinite(f.hi), f.hi, 0.0)
    low = np.where(np.isfinite(f.lo), -f.lo, 0.0)
    lines = []
    if high.any():
        lines.append(cp.multiply(high, cp.pos(rest - f.e)))
    if low.any():
        lines.append(cp.multiply(low, cp.pos(-rest - f.e)))
    return sum(lines, curve), extra
