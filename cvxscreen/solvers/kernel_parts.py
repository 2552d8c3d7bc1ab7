"""Small kernel problems over one Gram matrix, each by one compiled call.

A few hundred steps of coordinate descent solve a problem of some hundred points in a twentieth of a
millisecond: as long as a dozen operations of numpy. So nothing is reduced, and the descent, the
best intercept and the gap that decides when to stop are one loop (`descend_to_gap`). Where it gets
stuck `box_qp` goes on. All answers are certified at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.compiled import compiled
from cvxscreen.certificates.certificate import Certificate
from cvxscreen.certificates.kernel_parts import Index, KernelParts, certify_parts
from cvxscreen.core.problem import Problem
from cvxscreen.designs.gram import Gram, GramForm
from cvxscreen.solvers.box_qp import (
    BoxQp,
    BoxTerms,
    MatrixRows,
    descend_pairs,
    descend_singles,
    want_row,
)
from cvxscreen.solvers.smo import SlopeTerms, best_level, slope_at

Array = NDArray[np.float64]

AT_ONCE, OF_TWO_CLASSES = 1200, 2000
"""Most terms of a problem that is solved without screening; of one on a part of the points.
Measured at C = 100, where it is latest to pay, on six sets: one class against the rest takes 0.37
to 0.56 of the time at 700 samples, 0.46 to 0.78 at 1,000, 0.52 to 1.1 at 1,400; two classes 0.75 at
1,300."""
AIM = 0.8
"""Share of the tolerance that the descent uses up; the certificate charges rounding."""
FIRST = 3.0
"""Violation, in tolerances, at which the gap is first looked at: on digits, iris and satimage it is
then one to five times what is asked for."""
FALL = 0.05
"""The violation falls to this share at least before the gap is looked at again."""
TURN = 60
"""Coordinate steps before a Newton step where the descent has got stuck."""
TURNS = 4
"""How often `box_qp` goes on."""


@compiled(allocates=False)
def descend_to_gap(
    rows: MatrixRows, F: Array, c: Array, box: BoxTerms, terms: SlopeTerms, moving: Index | None,
    tol: float, limit: int,
) -> tuple[float, float, float]:
    """Coordinate descent until the relative gap is `tol`, or `limit` steps.

    c and ``F = K c - s b`` change in place, ``terms.u`` and `moving` are room. Without `moving`
    there is no intercept: that is another type, for which numba leaves out the search for the
    level, and the pairs: less than half of what there is to compile.

    Returns
    -------
    intercept, gap, violation : float
    """
    n, left, eps, level = len(c), limit, FIRST * tol, 0.0
    while True:
        if moving is None:
            done, violation = descend_singles(rows, F, c, box, eps, left)
        else:
            done, violation = descend_pairs(rows, F, c, box, eps, left)
        left -= done
        least, most = np.inf, -np.inf
        for i in range(n):
            terms.u[i] = F[i] + terms.sign[i] * terms.b[i]
            least, most = min(least, F[i] + box.rise[i]), max(most, F[i] + box.fall[i])
        if moving is not None:
            level = best_level(
                terms, moving, 0.0, -0.5 * (least + most), abs(most - least) + 1e-12
            )
        gap, primal = 0.0, 0.0
        for i in range(n):
            s, q, e = terms.sign[i], terms.q[i], terms.e[i]
            z, now = s * (terms.u[i] + level) - terms.b[i], -s * c[i]
            slope = s * slope_at(level, terms, i)
            primal += z * slope - e * abs(slope) - 0.5 * q * slope * slope
            primal += 0.5 * c[i] * terms.u[i]
            gap += (z - 0.5 * q * (slope + now)) * (slope - now) - e * (abs(slope) - abs(now))
        aim = tol * primal
        if gap <= aim or left <= 0 or not violation > 0.0:
            return level, gap / primal if primal > 0.0 else 0.0, violation
        eps = min(eps, violation) * min(max(0.5 * aim / gap, FALL), 0.5)


def solve_parts(parts: KernelParts, tol: float) -> tuple[Array, Array, list[Certificate]]:
    """Coefficients of all terms, an intercept for each problem, and the certificates."""
    c, b = np.zeros(len(parts.index)), np.zeros(len(parts))
    sizes = np.diff(parts.first)
    room = np.empty(int(sizes[sizes < len(parts.matrix)].max(initial=0)) ** 2)
    for k in range(len(parts)):
        b[k] = _solve(parts, k, c[parts.terms(k)], AIM * tol, room)
    return c, b, certify_parts(parts, c, b, tol)


def alone(problem: Problem) -> KernelParts | None:
    """A problem over all points of its kernel, as the only part; None where it does not suit."""
    gram, plain = problem.design, problem.side is None and problem.penalty is None
    if not isinstance(gram, Gram) or not isinstance(problem.quadratic, GramForm):
        return None
    if problem.n > AT_ONCE or not plain or problem.constant or problem.linear.any():
        return None
    kernel = gram.kernel
    if not np.array_equal(gram.index, np.arange(kernel.size)):
        return None
    if not (kernel.filled or kernel.fill()):
        return None
    return KernelParts.of(problem, [gram.index], [gram.sign])


def _solve(parts: KernelParts, k: int, c: Array, tol: float, room: Array) -> float:
    """Solve problem k, to a relative gap `tol`; returns the intercept, c changes in place.

    `room` is for the rows of its matrix, where that is not the whole one.
    """
    own = parts.terms(k)
    index, sign, matrix = parts.index[own], parts.sign[own], parts.matrix
    m = len(index)
    if m == len(matrix):
        rows = MatrixRows.of(matrix)
    else:
        block, there = room[: m * m].reshape(m, m), np.zeros(m, dtype=np.bool_)
        block[0] = 0.0  # read at once, with weight 0
        rows = MatrixRows(block, there, matrix, index)
    f, balanced = parts.whole.losses.take(index), parts.gram.intercept
    ends = -sign * f.lo, -sign * f.hi
    lo, hi = np.minimum(*ends), np.maximum(*ends)
    F = -sign * f.b
    if balanced and (not (hi > 0.0).any() or not (lo < 0.0).any()):
        # Of one class alone no coefficient balances another: all are 0, its label costs nothing.
        kinks = -F[lo < hi]
        return float(kinks.max() if (hi > 0.0).any() else kinks.min()) if len(kinks) else 0.0
    box = BoxTerms.of(lo, hi, f.e, f.q, matrix.diagonal()[index])
    terms = SlopeTerms.of(sign, np.empty(len(c)), f)
    moving = np.empty(len(c), dtype=np.intp) if balanced else None

    def go(limit: int) -> tuple[float, float, float]:
        return descend_to_gap(rows, F, c, box, terms, moving, tol, limit)

    level, gap, violation = go(1000 + 10 * len(c))
    for _ in range(TURNS):
        if gap <= tol or not violation > 0.0:
            break
        for i in np.flatnonzero(~rows.there):
            want_row(i, rows)
        BoxQp(rows.K, F, c, lo, hi, f.e, f.q, balanced).solve(
            violation * min(max(0.5 * tol / gap, FALL), 0.5), TURN
        )
        level, gap, violation = go(0)
    return level
