"""An objective within budgets of losses: least F(x) with sum_i f_i(<a_i, x>) below a level.

What stands in the constraints is weighed by multipliers of its own, on the central path of
`cvxscreen.solvers.interior_point` (`within_budgets` says which equations that adds). Where most
coordinates are 0 at the optimum, as in portfolios of many assets, it is solved over some of them,
until the reduced costs of the others agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.linalg as sla
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.limits import UNLIMITED, Limits, blas_threads
from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.losses import FIELDS, Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.screening.reduction import with_features
from cvxscreen.solvers.interior_point import (
    CLOSE_RAY,
    LINEAR,
    SHORT,
    Attempt,
    IntervalTerms,
    PrimalDualPair,
    PrimalDualPath,
    linear_rows,
    takes,
)

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

BUDGET_GAP = 1e-10
"""Estimated gap, relative to the objective's terms, at which a problem with a budget is solved;
from `BUDGET_USABLE` on it will do where rounding allows no more."""
BUDGET_USABLE = 1e-8

RUNAWAY = 100.0
"""Growth of a budget's multiplier from which on it is tried as a proof that nothing is feasible:
where nothing is, it grows by 1e12 within 15 to 25 steps."""


class WithinBudgets(Immutable):
    """A solution of a problem with budgets.

    Attributes
    ----------
    x : array, shape (d,)
    slopes : tuple of array
        Of the objective's losses, and of each budget's, not yet times its multiplier.
    weights : array, shape (k,)
        Multipliers of the budgets, positive.
    multipliers : array
        Of the side constraints.
    steps : int
    """

    x: Array
    slopes: tuple[Array, ...]
    weights: Array
    multipliers: Array
    steps: int


class NothingWithin(Immutable):
    """Multipliers which show that nothing is within the budgets and the side constraints.

    By Farkas: their sum of what must not be positive is a positive constant, but for rounding.

    Attributes
    ----------
    x : array, shape (d,)
        Where the method stood.
    slopes : tuple of array
        Of the objective's losses, 0 but of those that are constraints, and of each budget's.
    weights, multipliers : array
        As of `WithinBudgets`.
    """

    x: Array
    slopes: tuple[Array, ...]
    weights: Array
    multipliers: Array


def within_budgets(
    objective: Problem, budgets: Sequence[Problem], limits: Limits = UNLIMITED,
    max_steps: int = 100,
) -> WithinBudgets | NothingWithin | None:
    """Minimise an objective within budgets of piecewise linear losses.

    ::

        minimise  F(x)   subject to   <l_k, x> + c_k + sum_i f_i(<a_i, x>) <= 0

    With a multiplier ``lambda_k >= 0`` the ends of a slope's interval are ``lambda_k lo_i`` and
    ``lambda_k hi_i``, and each budget adds one row and one column to the normal equations::

        (A'DA + M) dx - E' dy + g dlambda = right,   E dx = equal,   <g, dx> - k dlambda = over
        v = lo below/low + hi above/high,            g = l + A' D v
        k = slack/lambda + sum_i D (below/low) (above/high) (hi - lo)^2

    Returns
    -------
    WithinBudgets, NothingWithin or None
        None where the problem is of another kind, or was not solved: nothing is said of why.
    """
    if not isinstance(objective.quadratic, Quadratic) or not all(map(_is_budget, budgets)):
        return None
    columns = _Columns.of(objective) if budgets else None
    found = None
    if columns is not None:
        found = _over_columns(objective, budgets, columns, limits, max_steps)
    return _over_all(objective, budgets, limits, max_steps) if found is None else found


def _over_all(
    objective: Problem, budgets: Sequence[Problem], limits: Limits, max_steps: int
) -> WithinBudgets | NothingWithin | None:
    """`within_budgets` with every coordinate in the equations."""
    parts = (objective, *budgets)
    used = [part for part in parts if part.n]
    if not budgets or not all(isinstance(part.design, Rows) for part in used):
        return None
    design = used[0].design if len(used) == 1 else _together([part.design for part in used])
    losses = used[0].losses if len(used) == 1 else Losses(*(
        np.concatenate([getattr(part.losses, name) for part in used]) for name in FIELDS))
    whole = replace(objective, design=design, losses=losses, layout=None)
    if not takes(whole):
        return None
    terms = IntervalTerms.of(whole)
    if terms.inconsistent:
        return None
    sizes = [part.n for part in parts]

    def split(slopes: Array) -> tuple[Array, ...]:
        return tuple(np.split(slopes, np.cumsum(sizes)[:-1]))

    part = np.repeat(np.arange(len(parts)) - 1, sizes)
    terms.part[: len(part)] = part
    terms.part[len(part): len(part) + len(terms.split)] = part[terms.split]
    terms.linears = np.array([budget.linear for budget in budgets])
    terms.constants = np.array([budget.constant for budget in budgets])
    steps = 0
    try:
        with blas_threads(whole.n * whole.d), np.errstate(all="ignore"):
            path = PrimalDualPath(terms)
            last = best = path.estimate() / path.size()
            run, weights = Attempt(terms, 0.0), path.weights
            first, ray = weights.max(), None
            # Once rounding is what is left of the residuals, the next steps make them larger.
            while best > BUDGET_GAP and not best < BUDGET_USABLE < last and steps < max_steps:
                if limits.spent(1) or not path.advance() > SHORT:
                    break
                steps += 1
                if path.weights.max() > RUNAWAY * first:
                    ray = path.separating(CLOSE_RAY)
                    if ray is not None:
                        break
                last = path.estimate() / path.size()
                if last < best:
                    best, weights = last, path.weights.copy()
                    theta = path.theta / np.where(terms.part >= 0, path.of_terms(weights), 1.0)
                    run.best = PrimalDualPair(path.x, theta, path.multipliers, 0.0, 0.0)
    except (sla.LinAlgError, ValueError):
        return None
    if ray is not None:
        theta = ray / np.where(terms.part >= 0, path.of_terms(path.weights), 1.0)
        slopes, multipliers = terms.constraints_as_given(theta, path.multipliers)
        return NothingWithin(path.x, split(slopes), path.weights, multipliers)
    if run.best is None or not best <= BUDGET_USABLE:
        return None
    run.best = replace(run.best, x=terms.at_bounds(run.best.x))
    x, slopes, multipliers = run.answer()
    return WithinBudgets(x, split(slopes), weights, multipliers, steps)


MANY_COLUMNS = 400
"""Coordinates from which on some are left out at first: the normal equations cost their square."""
FIRST_COLUMNS = 10
"""One in so many is begun with for its cost, and one in so many for its place: half as many hold no
portfolio within the risk of 500 equal parts."""
MOST_COLUMNS = 0.4
"""Share up to which they grow: beyond it a solve with all of them costs little more than another
one and what has gone before."""
PRICED = 1e-9
"""Reduced cost, relative to the terms that it is the sum of, below which a coordinate stays 0."""


class _Columns(Immutable):
    """Coordinates that a constraint of their own holds at 0 or on one side of it.

    Attributes
    ----------
    at : array of int, shape (k,)
        The coordinates.
    rows : array of int, shape (k,)
        Their rows among the side constraints, ``entries x[at] >= 0``.
    entries : array, shape (k,)
    """

    at: NDArray[np.intp]
    rows: NDArray[np.intp]
    entries: Array

    @classmethod
    def of(cls, problem: Problem) -> _Columns | None:
        """Those of `problem`; None where they are too few for leaving some out to pay."""
        side = problem.side
        if side is None or problem.penalty is not None or problem.d < MANY_COLUMNS:
            return None
        if any(kind not in LINEAR for kind, _ in side.dims):
            return None
        below, _ = linear_rows(problem)
        single = below[(np.diff(side.matrix.indptr)[below] == 1) & (side.offset[below] == 0.0)]
        entries = side.matrix.data[side.matrix.indptr[single]]
        single, entries = single[entries != 0.0], entries[entries != 0.0]
        at, first = np.unique(side.matrix.indices[side.matrix.indptr[single]], return_index=True)
        if len(at) < 0.5 * problem.d:
            return None
        return cls(at.astype(np.intp), single[first], entries[first])


def _over_columns(
    objective: Problem, budgets: Sequence[Problem], columns: _Columns, limits: Limits,
    max_steps: int,
) -> WithinBudgets | NothingWithin | None:
    """`within_budgets` over some coordinates, the others 0 until their reduced costs object.

    A restriction: what is optimal over the chosen coordinates is so over all of them if every
    other one has a reduced cost of the sign that its constraint allows, which is its multiplier.
    Half as many as there are come in at once; one that is 0 by its reduced cost goes, but only
    once. Where nothing is within the budgets the same holds of the proof of it, and its reduced
    costs say which coordinates may help. None where that takes too many of them.
    """
    side, k = objective.side, len(columns.at)
    if side is None:
        return None
    used, stays = np.zeros(k, dtype=bool), np.zeros(k, dtype=bool)
    used[np.argsort(objective.linear[columns.at] / columns.entries)[: k // FIRST_COLUMNS]] = True
    used[::FIRST_COLUMNS] = True
    steps = 0
    while used.sum() <= MOST_COLUMNS * k and not limits.spent():
        keep, rows = np.ones(objective.d, dtype=bool), np.ones(len(side.offset), dtype=bool)
        keep[columns.at[~used]], rows[columns.rows[~used]] = False, False
        features = np.flatnonzero(keep)
        bare = [replace(part, side=None, layout=None) for part in (objective, *budgets)]
        small = [with_features(part, features) for part in bare]
        small[0] = replace(small[0], side=_with_rows(side, rows, features))
        found = _over_all(small[0], small[1:], limits, max_steps)
        if found is None:
            return None
        if isinstance(found, WithinBudgets):
            steps += found.steps
            found = replace(found, steps=steps)
        x, multipliers = np.zeros(objective.d), np.zeros(len(side.offset))
        x[features], multipliers[rows] = found.x, found.multipliers
        multipliers[columns.rows] = 0.0
        reduced, size = _reduced_costs(objective, budgets, found, x, multipliers, columns)
        wrong = np.flatnonzero(~used & (reduced < -PRICED * size))
        if not len(wrong):
            multipliers[columns.rows] = np.maximum(reduced, 0.0)
            multipliers[rows] = found.multipliers
            return replace(found, x=x, multipliers=multipliers)
        if isinstance(found, NothingWithin):
            # What makes the proof fail that nothing is within them; all that there are may be few.
            used[wrong[np.argsort(reduced[wrong])][: max(int(used.sum()), 1)]] = True
            continue
        value = np.abs(x[columns.at])
        zero = used & ~stays & (value <= PRICED * value.max(initial=0.0))
        stays |= used
        worst = wrong[np.argsort(reduced[wrong])][: max(int(used.sum()) // 2, 1)]
        used &= ~zero | (reduced <= PRICED * size)
        used[worst] = True
    return None


def _reduced_costs(
    objective: Problem, budgets: Sequence[Problem], found: WithinBudgets | NothingWithin,
    x: Array, multipliers: Array, columns: _Columns,
) -> tuple[Array, Array]:
    """The gradient of the Lagrangian at the columns, in units of their constraints' entries.

    And the sum of the sizes of what it is the sum of. `multipliers` are 0 for the constraints of
    the columns themselves. Of a proof that nothing is within the budgets, that of the constraints.
    """
    parts = []
    if isinstance(found, WithinBudgets):
        parts = [objective.linear, objective.quadratic.apply(x)]
    for part, slopes, weight in zip(
        (objective, *budgets), found.slopes, (1.0, *found.weights), strict=True
    ):
        if part.n:
            parts.append(weight * part.design.adjoint(slopes))
    parts += [weight * part.linear for part, weight in zip(budgets, found.weights, strict=True)]
    if objective.side is not None:
        parts.append(-objective.side.adjoint(multipliers))
    every = np.array(parts)[:, columns.at] / columns.entries
    return every.sum(axis=0), np.abs(every).sum(axis=0)


def _with_rows(side: SideConstraints, rows: Mask, features: NDArray[np.intp]) -> SideConstraints:
    """Some of the constraints, on some of the coordinates."""
    dims = tuple((kind, int(rows[at].sum())) for kind, _, at in side.blocks())
    matrix = side.matrix[np.flatnonzero(rows)][:, features]
    return SideConstraints(matrix, side.offset[rows], tuple(entry for entry in dims if entry[1]))


def _is_budget(part: Problem) -> bool:
    """Whether its losses are piecewise linear and finite, and all that it has but linear."""
    f = part.losses
    linear = part.n and not f.q.any() and bool((f.lo < f.hi).all())
    plain = part.penalty is None and part.side is None and not part.quadratic.dense().any()
    return bool(linear and plain and np.isfinite(f.hi - f.lo).all())


def _together(designs: list[Any]) -> Rows:
    """The rows of several designs, one after the other."""
    if any(design.sparse for design in designs):
        return Rows(sp.vstack(
            [design.rows_csr(np.arange(design.shape[0])) for design in designs], format="csr"))
    return Rows(np.vstack([design.dense() for design in designs]))
