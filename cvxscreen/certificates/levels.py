"""Certificates of neighbouring quantile levels, all in one pass over the data.

Between neighbouring levels most terms stay on one side of their kink, and have the slope of that
side at all of them: ``h_i w_i - tau w_i``, ``h_i`` 1 where a term rises and 0 where it falls. Their
``A' theta`` at every level are two sums (`codes` says which side). The slopes of the other terms
are given level by level. Of a term on its side the Fenchel-Young term is 0; where rounding leaves
the side open it is charged with the whole jump of the slope times the rounding of the margin, and
where the margin is on the other side nothing is certified. Of the other terms it is ::

    f(t) + f*(theta) - t theta = (hi - theta) (t - b)    where t > b,
                                 (theta - lo) (b - t)    where t < b.

What is left of ``A' theta``, rounding included, has to be taken up by slopes inside their intervals
(`cvxscreen.certificates.certificate.nearby_cost`); objectives are summed from all terms.

Nothing is taken from the code that finds the points: neither margins nor sums.

Proofs: ``docs/theory.md``, section 9.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from cvxscreen.certificates.certificate import (
    ENOUGH,
    EPS,
    Certificate,
    Residual,
    certify,
    nearby_cost,
    relative_gap,
)
from cvxscreen.core.losses import Codes, Losses, Piece
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows

Array = NDArray[np.float64]


def certify_levels(
    problem: Problem, codes: Codes, levels: Array, X: Array, theta: Array, *, tol: float
) -> tuple[list[Certificate], Array, Array]:
    """Certificates of a quantile regression at K levels.

    Parameters
    ----------
    problem : Problem
        Pinball losses alone over rows, nothing else, at any level.
    codes : array, shape (n,)
        `Piece.LOW` or `Piece.HIGH`, the side of a term at all levels; -1 for the others.
    levels : array, shape (K,)
    X : array, shape (K, d)
        A point for each level.
    theta : array, shape (K, m)
        The slopes of the others, those of the first level first.
    tol : float
        Relative gap asked for.

    Returns
    -------
    list of Certificate
        Up to the first level that is not certified.
    array, shape (2, n)
        The margins at the last two levels (at one, where there is but one).
    array, shape (K, d)
        ``A' theta``.
    """
    f, design, sizes = problem.losses, cast(Rows, problem.design), problem.sizes
    K, kept, weight = len(levels), np.flatnonzero(codes < 0), f.hi - f.lo
    fixed, high = codes >= 0, codes == Piece.HIGH
    # Of a margin by its product, and of its difference from b.
    length = float(np.linalg.norm(X, axis=1).max()) * (1.0 + (problem.d + 8) * EPS)
    error = 8.0 * EPS * np.abs(f.b) + (design.forward_factor + 16.0 * EPS) * length * sizes
    clear = np.where(high, error, -error)
    last, others = np.empty((min(K, 2), problem.n)), np.empty((K, len(kept)))
    sums = dict[int, Array]()  # by the first row, the same whatever the threads

    def look(rows: slice, t: Array) -> Array:
        w, mine, side = weight[rows], fixed[rows], high[rows]
        last[:, rows] = t[-2:]
        t -= f.b[rows]
        at = slice(*np.searchsorted(kept, (rows.start, rows.stop)))
        others[:, at] = t[:, kept[at] - rows.start]
        wrong = charge = np.zeros(K)
        unsure = (t > clear[rows]) != side
        unsure &= mine
        if unsure.any():
            near = np.abs(t) <= error[rows]
            wrong, charge = (unsure & ~near).any(axis=1), (unsure & near) @ (w * error[rows])
        total = t @ w
        np.maximum(t, 0.0, out=t)
        sums[rows.start] = np.array([wrong, charge, total, t @ w])
        slopes = np.zeros((K + 2, len(w)))
        slopes[0], slopes[1] = w * side, w * mine
        slopes[2:, kept[at] - rows.start] = theta[:, at]
        return slopes

    adjoints = design.both_ways(X, look)
    wrong, charge, total, rising = np.sum([sums[start] for start in sorted(sums)], axis=0)
    At_theta = adjoints[0] - levels[:, None] * adjoints[1] + adjoints[2:]
    # Three sums of slopes no longer than all weights, and what they are multiplied with.
    unsure = (3.0 * design.adjoint_factor + 16.0 * EPS) * (1.0 + 4.0 * (problem.n + 8) * EPS)
    unsure *= float(np.linalg.norm(weight))
    found: list[Certificate] = []
    for k, level in enumerate(map(float, levels)):
        lo, hi = -level * weight[kept], (1.0 - level) * weight[kept]
        below, above, z, off = theta[k] - lo, hi - theta[k], others[k], error[kept]
        if wrong[k] or (below < 0.0).any() or (above < 0.0).any():
            break
        primal = float(rising[k] - level * total[k]) + problem.constant
        fy = np.maximum(above * (z + off), below * (off - z))
        gap = float(np.maximum(fy, 0.0).sum() + charge[k]) * (1.0 + (problem.n + 64) * EPS)
        inside = np.flatnonzero((below > 0.0) & (above > 0.0))
        r = Residual(np.arange(problem.d), At_theta[k], unsure * problem.column_sizes)
        none, some = np.zeros(len(inside)), kept[inside]
        movable = replace(
            problem, design=design.take_rows(some),
            losses=Losses(f.b[some], none, none, lo[inside], hi[inside]),
        )
        gap += nearby_cost(
            movable, r, np.ones(problem.d, dtype=bool), np.zeros(problem.d),
            (theta[k, inside], z[inside] + f.b[some], off[inside]), 0.0,
            ENOUGH * tol * abs(primal),
        )
        relative = float(relative_gap(gap, primal))
        proof = Certificate(
            gap, relative, primal, primal - gap, 0.0, tol, relative <= tol,
            residual=float(r.above.max()),
        )
        if np.isinf(gap):  # as where fewer slopes than coordinates have room
            here = problem.with_(tau=level)
            whole = np.where(high, here.losses.hi, here.losses.lo)
            whole[kept] = np.clip(theta[k], lo, hi)
            proof = certify(here, X[k], whole, tol=tol)
        if not proof.ok or np.isfinite(proof.within):
            break
        found.append(proof)
    return found, last, At_theta
