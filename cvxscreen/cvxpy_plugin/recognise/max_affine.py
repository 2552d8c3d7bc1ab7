"""Convex parts beside the losses: affine minorants, and maxima of affine functions.

`relaxation` makes a problem with any convex part certifiable by an affine function below it;
`Maxima` is the part that the rules themselves find and whose pieces are screened, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.rounding import gamma, up
from cvxscreen.bounds.regions import Ball
from cvxscreen.certificates.certificate import Certificate, certify
from cvxscreen.core.duality import Point, reference_point
from cvxscreen.core.problem import Problem, Quadratic, relative_gap
from cvxscreen.cvxpy_plugin.recognise.draft import (
    Draft,
    Duals,
    Step,
    substitute_defined,
    without_columns,
)
from cvxscreen.cvxpy_plugin.recognise.standard import Standard
from cvxscreen.designs.protocols import Form

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]


# -- affine functions below a convex one -----------------------------------------------------------
#
# Affine functions below a convex one, which make a problem with any convex part certifiable.
#
# Let ``m <= g`` be affine. Then ``F + m`` is a relaxation of ``F + g``, its dual bounds the optimum
# from below, and at a point x the gap of ``F + g`` is that of ``F + m`` plus ``g(x) - m(x)``. With
# F strongly convex, the optimum x* of ``F + g`` satisfies for every dual point of ``F + m``
#
#     1/2 ||x* - x||^2 + 1/2 ||x* - x_theta||^2 + sum_i FY_i(t_i*, theta_i) <= gap,
#
# because ``(F + m)(x*) <= (F + g)(x*) <= (F + g)(x) - 1/2 ||x* - x||^2``. That is what the midpoint
# ball rests on, so it holds for x* whatever g is.


class Minorant(Immutable):
    """``m(y) = value - slack + <slope, y - x>`` for a point x.

    Attributes
    ----------
    value : float
        ``g(x)``.
    slope : array, shape (d,)
    slack : float
        Upper bound of ``g(x) - m(x)``, rounding included.
    error : array, shape (d,)
        Bound of the rounding error of `slope`.
    """

    value: float
    slope: Array
    slack: float
    error: Array


class Relaxed(Immutable):
    """A point of ``F + g``, judged through ``F + m``.

    Attributes
    ----------
    problem : Problem
        ``F + m``.
    point : Point
        On `problem`, with the slack among its terms: whatever rests on it holds for ``F + g``.
    slack : float
        ``g(x) - m(x)``.
    """

    problem: Problem
    point: Point
    slack: float

    def certify(self, tol: float) -> Certificate:
        """The certificate of the point for ``F + g``, all of the gap computed anew."""
        point = self.point
        proof = certify(self.problem, point.x, point.theta, point.multipliers, tol=tol)
        gap, primal = up(proof.gap + self.slack), proof.primal + self.slack
        relative = float(relative_gap(gap, primal))
        ok, reason = proof.ok and relative <= tol, proof.reason
        if proof.ok and not ok:
            reason = f"the relative gap {relative:.3g} exceeds the tolerance {tol:.3g}"
        return replace(
            proof, gap=gap, relative_gap=relative, primal=primal, dual=primal - gap, ok=ok,
            reason=reason,
        )


def relaxation(
    problem: Problem,
    x: Array,
    theta: Array,
    multipliers: Array,
    minorants: Sequence[Minorant],
) -> Relaxed:
    """Evaluate a pair of F beside convex parts.

    Parameters
    ----------
    problem : Problem
        ``F``.
    x, theta, multipliers : arrays
    minorants : sequence of Minorant
        One for each part, all at `x`.
    """
    slope, error = np.zeros(problem.d), np.zeros(problem.d)
    value, slack = 0.0, 0.0
    for part in minorants:
        slope, error = slope + part.slope, error + part.error
        value, slack = value + part.value, slack + part.slack
    error = error + 4.0 * np.finfo(float).eps * (np.abs(slope) + np.abs(problem.linear))
    free = problem.quadratic.free
    # The constant puts F + m at value - slack above F in x; its own rounding moves no minimiser.
    size = np.finfo(float).eps * (len(x) + 8) * (float(np.abs(slope) @ np.abs(x)) + abs(value))
    slack = up(slack + 4.0 * size)
    relaxed = replace(
        problem,
        linear=problem.linear + slope,
        constant=problem.constant + value - slack - float(slope @ x),
        drift=up(problem.drift + up(problem.quadratic.dual_reach(error))),
        imbalance=problem.imbalance + float(error[free].max(initial=0.0)),
    )
    problem.compute_row_norms()
    relaxed.known.inherit_rows(problem.known)
    point = reference_point(relaxed, x, theta, multipliers)
    point = replace(
        point,
        terms=up(point.terms + slack),
        gap=up(point.gap + slack),
        primal=point.primal + slack,
    )
    return Relaxed(relaxed, point, slack)


# -- maxima with different data --------------------------------------------------------------------
#
# Maxima of affine functions with different data: ``c t`` over ``t >= p_1, ..., t >= p_k``.
#
# The multi-class hinge of Crammer and Singer (2001) is one. No function of one argument represents
# it, so it is no loss of a `Problem`; it is a part of the objective of its own::
#
#     g(x) = sum_i c_i max_k (b_ik' x + h_ik)
#
# With ``theta_i >= 0`` that sums to ``c_i``, ``sum_ik theta_ik (b_ik' x + h_ik)`` lies below g, and
# the distance is the term's Fenchel-Young loss. Over a ball that holds the optimum a piece that
# stays below another one is not active and can be left out.


class Maxima(Immutable):
    """``sum_i c_i max_k (b_ik' x + h_ik)`` in the core coordinates; see the module's docstring.

    Attributes
    ----------
    rows : CSR array, shape (p, d)
        ``b``, the pieces of one maximum next to each other.
    heights : array, shape (p,)
        ``h``.
    starts : array of int, shape (g + 1,)
        The first piece of each maximum, and p.
    cost : array, shape (g,)
        ``c``, non-negative.
    """

    rows: Any
    heights: Array
    starts: Index
    cost: Array

    @property
    def n(self) -> int:
        """Number g of maxima."""
        return len(self.cost)

    @property
    def owner(self) -> Index:
        """The maximum of each piece, shape (p,)."""
        return np.repeat(np.arange(self.n), np.diff(self.starts))

    @property
    def sizes(self) -> Array:
        """Euclidean norms of the rows, shape (p,)."""
        return np.asarray(np.sqrt(abs(self.rows).power(2).sum(axis=1))).ravel()

    def paid_by(self, steps: Sequence[Step]) -> Maxima:
        """The same with the costs that the steps of these maxima have."""
        costs = [step.cost for step in steps if isinstance(step, MaxAffine)]
        return replace(self, cost=np.concatenate(costs))

    def touched(self) -> Mask:
        """Coordinates that occur, shape (d,)."""
        return np.bincount(self.rows.indices, minlength=self.rows.shape[1]) > 0

    def values(self, x: Array) -> Array:
        """All pieces at `x`, shape (p,)."""
        return np.asarray(self.rows @ x + self.heights)

    def value(self, x: Array) -> float:
        """The sum of all maxima at `x`."""
        return float(self.cost @ np.maximum.reduceat(self.values(x), self.starts[:-1]))

    def leaders(self, values: Array) -> Index:
        """The largest piece of each maximum, shape (g,)."""
        top = np.maximum.reduceat(values, self.starts[:-1])
        hit = np.flatnonzero(values == top[self.owner])
        return hit[np.unique(self.owner[hit], return_index=True)[1]]

    def shares(self, values: Array, given: Array | None) -> Array:
        """Dual feasible slopes: `given` projected, or all on the largest piece, shape (p,)."""
        if given is None:
            out = np.zeros(len(values))
            out[self.leaders(values)] = self.cost
            return out
        out = np.maximum(np.where(np.isfinite(given), given, 0.0), 0.0)
        total = np.add.reduceat(out, self.starts[:-1])
        short = np.zeros(len(out))
        short[self.leaders(values)] = np.maximum(self.cost - total, 0.0)
        over = np.where(total > self.cost, self.cost / np.maximum(total, 1e-300), 1.0)
        return out * over[self.owner] + short

    def minorant(self, x: Array, shares: Array) -> Minorant:
        """The affine minorant of the slopes `shares`, at `x`."""
        values, owner = self.values(x), self.owner
        top = np.maximum.reduceat(values, self.starts[:-1])
        sizes = np.asarray(abs(self.rows) @ np.abs(x)) + np.abs(self.heights)
        width = gamma(self.rows.shape[1] + 8)
        left = np.abs(self.cost - np.add.reduceat(shares, self.starts[:-1]))
        loss = float(shares @ (top[owner] - values)) + float(left @ np.abs(top))
        rounding_bound = width * (float(shares @ sizes) + float(self.cost @ np.maximum.reduceat(
            sizes, self.starts[:-1])))
        slope = np.asarray(self.rows.T @ shares)
        error = gamma(len(values) + 8) * np.asarray(abs(self.rows).T @ shares)
        value = float(self.cost @ top)
        return Minorant(value, slope, up(loss, len(values) + 8) + 2.0 * rounding_bound, error)

    def differences(self, values: Array) -> Any:
        """Every piece minus the largest of its maximum, shape (p, d)."""
        lead = self.leaders(values)[self.owner]
        return sp.csr_array(self.rows - self.rows[lead])

    def proven(self, problem: Problem, ball: Ball) -> Mask:
        """Pieces that may be active somewhere in `ball`, shape (p,); the others never are.

        Parameters
        ----------
        problem : Problem
            Whose metric the ball has; no unpenalised coordinate occurs in the maxima.
        ball : Ball
        """
        values = self.values(ball.centre)
        lead = self.leaders(values)[self.owner]
        away = self.differences(values)
        reach = (
            up(ball.radius) * up(1.0, self.rows.shape[1] + 8) * row_norms(problem.quadratic, away)
        )
        sizes = np.asarray(abs(self.rows) @ np.abs(ball.centre)) + np.abs(self.heights)
        rounding_bound = gamma(self.rows.shape[1] + 16) * (sizes + sizes[lead]) * 4.0
        below = values - values[lead] + reach + rounding_bound < 0.0
        return ~below

    def nearest(self, problem: Problem, x: Array, count: int) -> Mask:
        """The largest pieces at `x`, and about `count` of those nearest to them, shape (p,)."""
        values = self.values(x)
        lead = self.leaders(values)
        away = row_norms(problem.quadratic, self.differences(values))
        ratio = (values[lead[self.owner]] - values) / np.maximum(away, 1e-300)
        ratio[lead] = -1.0
        if count + self.n >= len(ratio):
            return np.ones(len(ratio), dtype=bool)
        return np.asarray(ratio <= np.partition(ratio, count + self.n)[count + self.n])

    def refuted(self, x: Array, kept: Mask) -> Mask:
        """The largest pieces at `x` that are not among those `kept`, shape (p,)."""
        values = self.values(x)
        out = np.zeros(len(kept), dtype=bool)
        out[self.leaders(values)] = True
        return out & ~kept

    def counts(self, kept: Mask) -> Index:
        """Number of pieces `kept` of each maximum, shape (g,)."""
        return np.add.reduceat(kept.astype(np.intp), self.starts[:-1])

    def split(self, kept: Mask) -> tuple[Array, float, Maxima | None, Index]:
        """What is left of the maxima when only the pieces `kept` remain.

        Returns
        -------
        slope : array, shape (d,)
        constant : float
            Of the maxima of one piece.
        Maxima or None
            The others.
        array of int
            Positions of their pieces.
        """
        count = self.counts(kept)
        alone = kept & (count[self.owner] == 1)
        cost = self.cost[self.owner]
        slope = np.asarray(self.rows[np.flatnonzero(alone)].T @ cost[alone])
        constant = float(cost[alone] @ self.heights[alone])
        index = np.flatnonzero(kept & (count[self.owner] > 1))
        if not len(index):
            return slope, constant, None, index
        left = np.flatnonzero(count > 1)
        starts = np.concatenate([[0], np.cumsum(count[left])]).astype(np.intp)
        rest = Maxima(self.rows[index], self.heights[index], starts, self.cost[left])
        return slope, constant, rest, index

    def sample(self, index: Index, factor: float) -> Maxima:
        """The maxima at `index`, their costs times `factor`."""
        owner = self.owner
        chosen = np.zeros(self.n, dtype=bool)
        chosen[index] = True
        pieces = np.flatnonzero(chosen[owner])
        starts = np.concatenate([[0], np.cumsum(np.diff(self.starts)[chosen])]).astype(np.intp)
        return Maxima(
            self.rows[pieces], self.heights[pieces], starts, factor * self.cost[chosen]
        )

    def written(self, z: Any) -> tuple[Any, Any]:
        """For CVXPY: the cost, and the constraint whose dual values are the slopes."""
        top = cp.Variable(self.n)
        place = sp.csc_array(
            (np.ones(len(self.heights)), (np.arange(len(self.heights)), self.owner)),
            shape=(len(self.heights), self.n),
        )
        return self.cost @ top, place @ top - sp.csc_array(self.rows) @ z >= self.heights


def row_norms(quadratic: Form, rows: Any) -> Array:
    """Upper bounds of the norms of `rows` in the metric of ``M^{-1}``, shape (p,).

    No row may touch an unpenalised coordinate.
    """
    squares = rows.copy()
    squares.data = squares.data**2
    if not isinstance(quadratic, Quadratic) or quadratic.matrix is not None:
        return np.asarray(np.sqrt(squares.sum(axis=1)) / np.sqrt(quadratic.floor)) * up(1.0)
    bent = quadratic.diagonal > 0
    inverse = np.where(bent, 1.0 / np.where(bent, quadratic.diagonal, 1.0), 0.0)
    return np.asarray(np.sqrt(squares @ inverse)) * up(1.0, 8)


def keep_maximum(
    draft: Draft, columns: Index, needs: Any, cost: Array, pieces: tuple[Any, ...]
) -> Index:
    """Note a group of maxima in the draft; returns the columns."""
    first = draft.maxima[-1].terms.max() + 1 if draft.maxima else 0
    terms = first + np.arange(len(columns) * len(pieces)).reshape(len(columns), len(pieces))
    step = MaxAffine(columns, needs, cost, pieces, terms)
    draft.maxima.append(step)
    draft.steps.append(step)
    return columns


def collect_maxima(draft: Draft) -> Maxima | None:
    """The maxima over all columns, pieces in the order of their positions."""
    if not draft.maxima:
        return None
    pieces, starts, costs = [], [np.zeros(1, dtype=np.intp)], []
    for step in draft.maxima:
        g, k = step.terms.shape
        order = np.arange(g * k).reshape(k, g).T.ravel()
        pieces.append(sp.vstack(step.pieces, format="csr")[order])
        starts.append(starts[-1][-1] + k * np.arange(1, g + 1))
        costs.append(step.cost)
    weights = substitute_defined(draft, sp.csr_array(-sp.vstack(pieces, format="csr")))
    rows = without_columns(draft.standard.rows.combine(weights), draft.eliminated)
    matrix = sp.csr_array(rows.columns(np.arange(rows.shape[1])), copy=True)
    matrix.eliminate_zeros()
    return Maxima(matrix, rows.offset, np.concatenate(starts), np.concatenate(costs))


class MaxAffine(Step, Immutable):
    """``t = max_k -(pieces_k @ rows)`` with pieces of different data; see `Step`.

    Attributes
    ----------
    columns : array of int, shape (g,)
    needs : CSR array, shape (g, N)
    cost : array, shape (g,)
    pieces : tuple of CSR array, each of shape (g, m)
    terms : array of int, shape (g, k)
        Positions of the pieces among those of all maxima, counted behind the loss terms.
    """

    columns: Index
    needs: Any
    cost: Array
    pieces: tuple[Any, ...]
    terms: Index

    def primal(self, values: Array) -> Array:
        """See `Step.primal`."""
        return np.max([-(piece @ values) for piece in self.pieces], axis=0)

    def dual(self, standard: Standard, duals: Duals) -> None:
        """See `Step.dual`: the share of each piece is its multiplier."""
        for k, piece in enumerate(self.pieces):
            duals.rows += piece.T @ duals.shares[self.terms[:, k]]

    def paid(self) -> list[tuple[Index, Index]]:
        """See `Step.paid`."""
        return [(self.columns, np.full(len(self.columns), -1, dtype=np.intp))]

    def times(self, ratio: Array) -> MaxAffine:
        """See `Step.times`."""
        return replace(self, cost=self.cost * ratio[self.columns])
