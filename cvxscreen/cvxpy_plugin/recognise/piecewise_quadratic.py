"""Epigraph columns with a square: ``c t + rho/2 t^2`` over ``t >= p_1, ...`` (squared slacks).

Without any row the column would sit at ``-c/rho``; that is one more constant piece. Above it the
column is a squared hinge of its piece, with a hinge on top where a constant piece lies higher; two
opposite pieces give a squared distance with a dead zone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen.cvxpy_plugin.recognise.draft import Draft, Duals
from cvxscreen.cvxpy_plugin.recognise.piecewise_linear import EpigraphGroup
from cvxscreen.cvxpy_plugin.recognise.standard import Standard

Array = NDArray[np.float64]
Index = NDArray[np.intp]


def fold_quadratic(draft: Draft, group: EpigraphGroup) -> Index:
    """Turn a group with curvature into loss terms; returns the columns that were folded."""
    rest = -group.cost / group.curve
    floor = -group.offsets[:, -1] if group.constant else np.full(len(rest), -np.inf)
    data = len(group.pieces) - int(group.constant)
    if data == 1:
        above = floor > rest
        _one_sided(draft, group.take(~above), rest[~above])
        _above_a_floor(draft, group.take(above), floor[above], rest[above])
        return group.columns
    if data == 0:
        height = np.maximum(floor, rest)
        _keep(draft, group, (), group.cost * height + 0.5 * group.curve * height**2)
        return group.columns
    if data == 2:
        return _two_sided(draft, group, floor, rest)
    draft.notes.append("the square of a maximum of more than two pieces is not a loss of the table")
    return np.zeros(0, dtype=np.intp)


def _one_sided(draft: Draft, group: EpigraphGroup, rest: Array) -> None:
    """``rho/2 (t + c/rho)^2`` above its own minimum: a squared hinge."""
    if not len(rest):
        return
    terms = draft.terms.add(group.pieces[0], b=-rest, q=1.0 / group.curve, lo=-np.inf)
    _keep(draft, group, (terms,), -0.5 * group.curve * rest**2)


def _above_a_floor(draft: Draft, group: EpigraphGroup, floor: Array, rest: Array) -> None:
    """The constant piece lies above the minimum: a squared hinge and a hinge from there."""
    if not len(rest):
        return
    height = floor - rest
    square = draft.terms.add(group.pieces[0], b=-floor, q=1.0 / group.curve, lo=-np.inf)
    line = draft.terms.add(group.pieces[0], b=-floor, lo=-group.curve * height)
    _keep(draft, group, (square, line), 0.5 * group.curve * (height**2 - rest**2))


def _two_sided(draft: Draft, group: EpigraphGroup, floor: Array, rest: Array) -> Index:
    """Opposite pieces that are never both above the minimum: a squared distance."""
    pair = EpigraphGroup(
        group.columns,
        group.needs,
        group.cost,
        group.curve,
        group.pieces[:2],
        group.fingerprints[:, :2],
        group.offsets[:, :2],
        False,
    )
    ratio, _, fits = pair.parallel()
    opposite = (ratio[:, 0] == -ratio[:, 1]) & (np.abs(ratio[:, 0]) == 1.0)
    left = -rest
    right = group.offsets[:, :2].sum(axis=1) + rest
    scale = np.abs(left) + np.abs(right)
    apart = left <= right + 1e-12 * scale
    good = fits & opposite & apart & (floor <= rest)
    if not good.all():
        draft.notes.append("the square of a maximum of two such pieces is not a loss of the table")
    part = group.take(good)
    if good.any():
        b, e = (left + right)[good] / 2, np.maximum(right - left, 0.0)[good] / 2
        terms = draft.terms.add(
            part.pieces[0], b=b, e=e, q=1.0 / part.curve, lo=-np.inf, hi=np.inf
        )
        _keep(draft, part, (terms,), -0.5 * part.curve * rest[good] ** 2)
    return part.columns


def _keep(draft: Draft, group: EpigraphGroup, terms: tuple[Index, ...], constant: Array) -> None:
    draft.constant += float(constant.sum())
    draft.steps.append(
        PiecewiseQuadratic(
            group.columns,
            group.needs,
            group.cost,
            group.curve,
            group.pieces,
            group.constant,
            terms,
        )
    )


@dataclass(frozen=True, eq=False)
class PiecewiseQuadratic:
    """``t = max(-c/rho, max_k -(pieces_k @ rows))``; see `Step`.

    Attributes
    ----------
    columns : array of int, shape (g,)
    needs : CSR array, shape (g, N)
    cost, curve : array, shape (g,)
    pieces : tuple of CSR array, each of shape (g, m)
        One or two pieces with data, then the constant one if there is one.
    constant : bool
    terms : tuple of array of int, each of shape (g,)
        Positions of the loss terms of the piece(s) with data.
    """

    columns: Index
    needs: Any
    cost: Array
    curve: Array
    pieces: tuple[Any, ...]
    constant: bool
    terms: tuple[Index, ...]

    def primal(self, values: Array) -> Array:
        """See `Step.primal`."""
        return np.max([-self.cost / self.curve, *(-(p @ values) for p in self.pieces)], axis=0)

    def dual(self, standard: Standard, duals: Duals) -> None:
        """See `Step.dual`: the pieces with data take the slope, the constant one what is left."""
        total = self.cost + self.curve * duals.z[self.columns]
        data = self.pieces[:-1] if self.constant else self.pieces
        slope = sum((duals.theta[index] for index in self.terms), np.zeros(len(self.columns)))
        shares = [np.maximum(-slope, 0.0), np.maximum(slope, 0.0)][: len(data)]
        for piece, share in zip(data, shares, strict=True):
            duals.rows += piece.T @ share
            total = total - share
        if self.constant:
            duals.rows += self.pieces[-1].T @ np.maximum(total, 0.0)
