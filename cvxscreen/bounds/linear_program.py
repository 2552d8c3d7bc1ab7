"""Theorems 6 and 7 of Shibagaki et al. 2016 put right, and what kinks prove of a linear program.

::

    min_w sum_j kappa_j |w_j| + sum_i c_i max(0, 1 - <a_i, w>)
    max_alpha sum_i alpha_i   subject to  |<A_j, alpha>| <= kappa_j,  0 <= alpha_i <= c_i

Nothing is strongly convex here, so there is no ball. What is known of the optima is one slab and
one cone: ``D <= sum alpha* <= P`` (Theorem 6, put right: see `v_in_slab`), and ``sum_j kappa_j
|w_j*| - <v, w*> <= k`` with ``v = A' alpha``, ``k = P - sum alpha`` for any alpha in the box
(Theorem 7, put right: see `margins_in_cone`).

Neither settles an optimum that has features, not even from the optimum itself: the slab does not
shrink to the optimal alpha, and the cone is unbounded along every feature with ``|v_j| = kappa_j``.
What holds such an optimum in place are its kinks. For any feasible pair with gap G and any optimal
``w*`` all terms of

::

    sum_i [c_i h_i* - alpha_i (1 - t_i*)] + sum_j [kappa_j |w_j*| - v_j w_j*] = P* - D(alpha) <= G

are non-negative, and where ``0 < alpha_i < c_i`` the margin ``t_i*`` pays for leaving 1.
So every row is written as a combination of rows at their kinks and a rest on cheap features
(`margins_from_kinks`), and every column, in the same way, as one of columns of features in use
(`v_from_support`). As ``G -> 0`` these decide all that a nondegenerate optimum decides.

What is proven holds at *every* optimum, of which there may be many. In the notation of the package
``alpha = -theta``, ``c = -lo``; `Problem.linear_program` says what problems these are.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg as sla
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen._support.rounding import UNIT, gamma
from cvxscreen.bounds.regions.balls import Boxes, Interval, narrower
from cvxscreen.core.duality import Point
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import by_columns

Array = NDArray[np.float64]

MOST = 500
"""At most so many kinks, or features in use, are combined.

A bound of the work, not of what is proven: any combination is safe.
"""
ON_EDGE = 1e-9
"""Distances below this are taken for 0: features on their bound, margins at their kink.

Rounding leaves about 1e-15 there, HiGHS its tolerance of 1e-10.
"""
CLOSE = 1e-2
"""Kinks and support are asked only below this relative gap.

Measured on heart and on two Gaussian classes (n = 270 and 500), at 0.9 to 0.1 of lambda_max: from
gaps of 1e-6, 1e-4, 1e-3 and 5e-3 they decide 80 to 95, 20 to 50, up to 25 and 1 % of the terms; on
pcmac (1,946 x 7,511) they cost as much as a reduced linear program.
"""
BLOCK = 2_000_000
"""Numbers in a block of remainders."""


def lp(problem: Problem, point: Point) -> Boxes:
    """Intervals of the margins and of ``A' alpha*`` from any pair, by all that the module says."""
    nothing = Boxes.nothing(problem, "lp", point.gap)
    if not (problem.linear_program and np.isfinite(point.gap)):
        return nothing
    alpha, c, t = -point.theta, -problem.losses.lo, point.margins
    slack = gamma(problem.n + problem.d + 8)
    hinges = np.maximum(1.0 - t + point.margin_error, 0.0)
    primal = (float(weights(problem) @ np.abs(point.x)) + float(c @ hinges)) * (1.0 + slack)
    dual = float(alpha.sum()) * (1.0 - gamma(problem.n + 8))
    low, high = nothing.margins
    for cut in (alpha, np.where(t < 1.0, c, 0.0)):
        low, high = narrower((low, high), margins_in_cone(problem, cut, primal))
    v = v_in_slab(problem, primal, dual)
    if point.gap <= CLOSE * primal:
        low, high = narrower((low, high), margins_from_kinks(problem, alpha, primal, point.gap))
        v = narrower(v, v_from_support(problem, point.x, point.gap))
    margins = low - 8.0 * UNIT, high + 8.0 * UNIT  # the ends themselves are rounded
    return Boxes(
        problem, "lp", margins, nothing.slopes, nothing.coordinates, v, np.inf, point.gap
    )


def weights(problem: Problem) -> Array:
    """``kappa``, shape (d,)."""
    return problem.penalty.kappa  # type: ignore[union-attr]


def v_with_error(problem: Problem, alpha: Array) -> Interval:
    """``A' alpha`` and a bound of its rounding, arrays (d,)."""
    size = np.asarray(abs(by_columns(problem.design)).T @ alpha)
    return problem.design.adjoint(alpha), problem.design.adjoint_factor * size


def least_within_slab(
    values: Array, mass: Array, rest: float, low: float, high: float
) -> float:
    """``min sum values_i alpha_i`` over ``0 <= alpha <= mass`` with ``low <= sum alpha <= high``.

    `rest` is the mass of terms whose value is 0. The smallest values are filled up first: all
    negative ones if `high` allows, more only if `low` asks for it.
    """
    order = np.argsort(values)
    v, m = values[order], mass[order]
    negative = v < 0
    down = np.minimum(np.cumsum(m[negative]), high)
    total = float(v[negative] @ np.diff(down, prepend=0.0))
    asked = low - float(m[negative].sum()) - rest
    if asked > 0:
        more = np.minimum(np.cumsum(m[~negative]), asked)
        total += float(v[~negative] @ np.diff(more, prepend=0.0))
    return total


def v_in_slab(problem: Problem, primal: float, dual: float) -> Interval:
    """Theorem 6: intervals of ``<A_j, alpha*>`` over ``D <= sum alpha <= P``, arrays (d,).

    A feature is 0 where its interval lies strictly within ``[-kappa_j, kappa_j]``; printed with
    both inequalities reversed, and with P for nP.
    """
    matrix, c = by_columns(problem.design), -problem.losses.lo
    total, slack = float(c.sum()), gamma(problem.n + 8)
    low, high = dual * (1 - slack) - 1e-300, primal * (1 + slack)
    least, most = np.empty(problem.d), np.empty(problem.d)
    for j in range(problem.d):
        part = slice(matrix.indptr[j], matrix.indptr[j + 1])
        values, mass = matrix.data[part], c[matrix.indices[part]]
        rest = max(total - float(mass.sum()), 0.0)
        rounding = 4.0 * slack * float(np.abs(values) @ mass)
        # `rest` is rounded: a little more of it only loosens the bound.
        rest += 4.0 * slack * total
        least[j] = least_within_slab(values, mass, rest, low, high) - rounding
        most[j] = -least_within_slab(-values, mass, rest, low, high) + rounding
    return least, most


def margins_in_cone(problem: Problem, alpha: Array, primal: float) -> Interval:
    """Theorem 7: intervals of ``<a_i, w*>`` over ``<kappa, |w|> - <v, w> <= k``, arrays (n,).

    ``max <a, w> = min mu k`` over ``mu >= 0`` with ``|a_j + mu v_j| <= mu kappa_j``: an interval of
    mu. Any alpha in the box is allowed; with the slopes at w the cut of the paper (its bounds and
    its four decisions put right). Where ``|v_j| > kappa_j`` the set is unbounded, and only terms
    that reach into all such coordinates get a bound.
    """
    v, v_error = v_with_error(problem, alpha)
    k = primal - float(alpha.sum())
    rounding = gamma(problem.n + 8) * (abs(primal) + float(alpha.sum()))
    above, below = weights(problem) - v, weights(problem) + v
    bad = np.flatnonzero(np.minimum(above, below) <= v_error)
    high = _most(problem, 1.0, above, below, v_error, bad, k, rounding)
    low = -_most(problem, -1.0, above, below, v_error, bad, k, rounding)
    return low, high


@np.errstate(divide="ignore", over="ignore", invalid="ignore")  # no number decides nothing
def _most(
    problem: Problem, sign: float, above: Array, below: Array, v_error: Array,
    bad: NDArray[np.intp], k: float, rounding: float,
) -> Array:
    """Upper bounds of ``sign <a_i, w*>``."""
    good = np.ones(problem.d, dtype=bool)
    good[bad] = False
    rows = sp.csr_matrix(by_columns(problem.design)) * sign
    column = rows.indices
    up = np.where(good, 1.0 / np.where(good, above - v_error, 1.0), 0.0)
    down = np.where(good, 1.0 / np.where(good, below - v_error, 1.0), 0.0)
    need = np.maximum(rows.data * up[column], -rows.data * down[column])
    least = np.zeros(problem.n)
    np.maximum.at(least, np.repeat(np.arange(problem.n), np.diff(rows.indptr)), need)
    most = np.full(problem.n, np.inf)
    for j in bad:  # here mu is bounded above, on the side where v leans out
        entry = sign * problem.design.column(int(j))
        side = above[j] if above[j] <= below[j] else below[j]
        other = below[j] if above[j] <= below[j] else above[j]
        lean = -entry if above[j] <= below[j] else entry
        gap = -(side - v_error[j])
        room = np.where(lean > 0, lean / gap if gap > 0 else np.inf, np.sign(lean))
        most = np.minimum(most, room * (1.0 - 8.0 * UNIT))
        least = np.maximum(least, lean / max(other - v_error[j], 1e-300))
    least = least * (1.0 + 8.0 * UNIT)
    bound = np.where(k + rounding >= 0, least * (k + rounding), most * (k + rounding))
    possible = (least <= most) & np.isfinite(bound)
    return np.where(possible, bound + 8.0 * UNIT * np.abs(bound), np.inf)


def _combined(rows: sp.csc_matrix, tight: Array, loose: Array, target: Array) -> Array:
    """Z with small ``(target - rows Z) / tight`` and ``Z / loose``, in least squares.

    Only the `MOST` rows with the smallest `tight` are looked at.
    """
    first = np.argsort(tight)[: 2 * MOST]
    scale = 1.0 / tight[first]
    table = np.vstack([rows[first].toarray() * scale[:, None], np.diag(1.0 / loose)])
    order = np.argsort(-np.abs(table).max(axis=1))  # heavy rows first: the factors stay accurate
    Q, R = np.linalg.qr(table[order])
    right = np.zeros((len(table), target.shape[1]))
    right[: len(first)] = target[first] * scale[:, None]
    Z = sla.solve_triangular(R, Q.T @ right[order])
    # Once more for what rounding left of the heavy rows.
    right[: len(first)] -= (rows[first] @ Z) * scale[:, None]
    right[len(first):] = -Z / loose[:, None]
    return np.asarray(Z + sla.solve_triangular(R, Q.T @ right[order]))


def _price(amount: Array, dear: Array, cheap: Array) -> Array:
    """``max(amount / dear, -amount / cheap)`` column by column: what a unit of gap can buy."""
    each = np.where(amount > 0, amount / dear[:, None], -amount / cheap[:, None])
    return np.asarray(each.max(axis=0, initial=0.0))


def margins_from_kinks(problem: Problem, alpha: Array, primal: float, gap: float) -> Interval:
    """Intervals of ``<a_i, w*>`` from the terms at their kinks, arrays (n,).

    With ``a_i = sum_k z_k a_k + r`` over terms k with ``0 < alpha_k < c_k``, for any z,

    ::

        <a_i, w*> <= sum_k z_k + G max(z_k^+ / alpha_k, z_k^- / (c_k - alpha_k),
                                       r_j^+ / (kappa_j - v_j), r_j^- / (kappa_j + v_j))

    where a feature with ``|v_j| = kappa_j`` counts with ``|r_j| P / kappa_j`` instead, as
    ``|w_j*| <= P / kappa_j``. `alpha` is feasible, `gap` the gap of a pair with it.
    """
    n, kappa, c = problem.n, weights(problem), -problem.losses.lo
    v, error = v_with_error(problem, alpha)
    least, most = np.full(n, -np.inf), np.full(n, np.inf)
    slack = np.minimum(alpha, c - alpha)
    kinks = np.argsort(-slack)[: min(MOST, int((slack > ON_EDGE * c).sum()))]
    if not len(kinks):
        return least, most
    matrix = by_columns(problem.design)
    rows = matrix[kinks].T.tocsc()  # features x kinks
    up, down = kappa - v - error, kappa + v - error
    edge = np.minimum(up, down) <= ON_EDGE * kappa
    up, down = np.where(edge, np.inf, up), np.where(edge, np.inf, down)
    tight = np.where(edge, ON_EDGE * kappa, np.minimum(up, down))
    rising, falling = alpha[kinks], c[kinks] - alpha[kinks]
    width = max(BLOCK // max(problem.d, 1), 1)
    for start in range(0, n, width):
        part = slice(start, min(start + width, n))
        target = matrix[part].T.toarray()
        Z = _combined(rows, tight, slack[kinks], target)
        rest = target - rows @ Z
        v_error = gamma(len(kinks) + 4) * (np.abs(target) + abs(rows) @ np.abs(Z))
        boxed = np.where(edge[:, None], np.abs(rest) + v_error, v_error)
        loose = primal * (boxed / kappa[:, None]).sum(axis=0)
        loose = loose + gamma(len(kinks) + 4) * np.abs(Z).sum(axis=0)
        middle = Z.sum(axis=0)
        above = np.maximum(_price(Z, rising, falling), _price(rest, up, down))
        below = np.maximum(_price(-Z, rising, falling), _price(-rest, up, down))
        wide = 1.0 + gamma(problem.d + 32)
        most[part] = middle + (gap * above + loose) * wide + 8.0 * UNIT * np.abs(middle)
        least[part] = middle - (gap * below + loose) * wide - 8.0 * UNIT * np.abs(middle)
    return least, most


def v_from_support(problem: Problem, w: Array, gap: float) -> Interval:
    """Intervals of ``v_j* = <A_j, alpha*>`` from the features in use at `w`, arrays (d,).

    With ``A_j = sum_f z_f A_f + r`` over features f with ``w_f`` not 0, of sign ``s_f``, for any z,

    ::

        v_j* <= sum_f z_f s_f kappa_f + sum_{t_i < 1} r_i c_i
                + G max((-z_f s_f)^+ / |w_f|, r_i^- / (1 - t_i), r_i^+ / (t_i - 1))

    where a term at its kink counts with ``r_i^+ c_i`` instead. `gap` is that of a pair with `w`.
    """
    n, d, c = problem.n, problem.d, -problem.losses.lo
    matrix, t = by_columns(problem.design), problem.design.forward(w)
    t_error = problem.design.forward_factor * np.asarray(abs(matrix) @ np.abs(w)).ravel()
    away = np.abs(1.0 - t) - t_error - 4.0 * UNIT * (1.0 + np.abs(t))
    kink = away <= ON_EDGE
    full = np.where(~kink & (t < 1.0), c, 0.0)
    up = np.where(~kink & (t > 1.0), away, np.inf)  # r > 0 gains where alpha* may leave 0
    down = np.where(~kink & (t < 1.0), away, np.inf)
    free = np.where(kink, c, 0.0)
    used = np.argsort(-np.abs(w))[: min(MOST, int((w != 0).sum()))]
    size, sign, kappa = np.abs(w[used]), np.sign(w[used]), weights(problem)[used]
    rows, tight = matrix[:, used].tocsc(), np.where(kink, ON_EDGE, away)
    least, most, total = np.empty(d), np.empty(d), float(c.sum())
    width = max(BLOCK // max(n, 1), 1)
    for start in range(0, d, width):
        part = slice(start, min(start + width, d))
        target = matrix[:, part].toarray()
        Z = _combined(rows, tight, size, target) if len(used) else np.zeros((0, target.shape[1]))
        rest = target - rows @ Z
        v_error = gamma(len(used) + 4) * (np.abs(target) + abs(rows) @ np.abs(Z))
        turned = Z * sign[:, None]
        middle = kappa @ turned + full @ rest
        rounding = v_error.max(axis=0, initial=0.0) * total + gamma(n + d + 8) * (
            kappa @ np.abs(Z) + c @ np.abs(rest)
        )
        nothing = np.full(len(used), np.inf)
        above = np.maximum(_price(turned, nothing, size), _price(rest, up, down))
        below = np.maximum(_price(-turned, nothing, size), _price(-rest, up, down))
        wide = 1.0 + gamma(n + 32)
        most[part] = middle + (gap * above + free @ np.maximum(rest, 0.0)) * wide + rounding
        least[part] = middle - (gap * below + free @ np.maximum(-rest, 0.0)) * wide - rounding
    return least, most
