"""The L1-penalised SVM without a quadratic term (LP-SVM): screening, solving, certificate.

::

    min_w lam ||w||_1 + sum_i c_i max(0, 1 - <a_i, w>)
    max_alpha sum_i alpha_i   subject to  |<A_j, alpha>| <= lam,  0 <= alpha_i <= c_i

Nothing is strongly convex here, so there is no ball. What is known of the optima is one slab and
one cone: ``D <= sum alpha* <= P`` (Theorem 6 of Shibagaki et al. 2016, put right: see
`dropped_by_slab`), and ``lam ||w*||_1 - <v, w*> <= k`` with ``v = A' alpha``, ``k = P - sum alpha``
for any alpha in the box (Theorem 7, put right: see `margins_in_cone`).

Neither settles an optimum that has features, not even from the optimum itself: the slab does not
shrink to the optimal alpha, and the cone is unbounded along every feature with ``|v_j| = lam``.
What holds such an optimum in place are its kinks. For any feasible pair with gap G and any optimal
``w*`` all terms of

::

    sum_i [c_i h_i* - alpha_i (1 - t_i*)] + sum_j [lam |w_j*| - v_j w_j*] = P* - D(alpha) <= G

are non-negative, and where ``0 < alpha_i < c_i`` the margin ``t_i*`` pays for leaving 1.
So every row is written as a combination of rows at their kinks and a rest on cheap features
(`margins_from_kinks`), and every column, in the same way, as one of columns of features in use
(`v_from_support`). As ``G -> 0`` these decide all that a nondegenerate optimum decides.

Solving leaves out what is proven, lets in features as the dual point asks for them, and certifies
in full. With more terms than features the linear program is an ordinary problem without a quadratic
term, its L1 norm as terms: the loop and the interior point method take it. With more features the
simplex method of HiGHS is up to 80 times faster than they are, and stays.

**Why it is no `Problem`.** It shares the loop, the solver, `Certificate` and `Round`. But a
`Problem` without a quadratic term has smooth losses (`Problem` refuses others): its dual is then
strongly concave, and a point with a gap gives a `Region`, a region a `Verdict`, verdicts the
`Screening` that every `Solution` carries. Here neither side is strongly convex; what is proven are
intervals of margins and of ``A' alpha`` that no region stands behind, so that `LpVerdict` and
`LpSolution` say it instead. (The problem that `_by_interior_point` writes, its L1 norm as terms, is
a `Problem`, but of features nothing can be proven or left out in it.) To make it one, verdicts
would have to come from intervals, and the loop over terms and features to predict without a radius.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import numpy as np
import scipy.linalg as sla
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.extensions import supplied
from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen._support.rounding import UNIT, gamma
from cvxscreen._support.tables import Record, fields
from cvxscreen._support.validation import MODES, array, choice, one_of, positive, tolerance
from cvxscreen.certificates.certificate import Certificate, refused, verdict
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Layout, Problem, Quadratic
from cvxscreen.designs.rows import Rows, by_columns
from cvxscreen.errors import InvalidInput
from cvxscreen.solvers.interface import SubproblemResult
from cvxscreen.solvers.interior_point import InteriorPoint
from cvxscreen.solvers.loop import run, solve_screened
from cvxscreen.solvers.screened import ScreenedProblem, Times

Array = NDArray[np.float64]

LP_SOLVERS = ("auto", "builtin", "highs")
"""Names under which the solution of LP-SVMs goes; which method it takes, it chooses itself."""
Mask = NDArray[np.bool_]
Pair = tuple[Array, Array]


@dataclass(frozen=True, eq=False, repr=False)
class LpSvm(Record):
    """The problem in the module's docstring.

    Parameters
    ----------
    design : Rows
        Rows ``a_i = y_i x_i``, shape (n, d).
    c : array, shape (n,)
        Non-negative weights of the terms.
    lam : float
    """

    design: Rows
    c: Array
    lam: float
    bounds: tuple[str, ...] = ("lp",)
    kind: str = "LP-SVM"

    @property
    def n(self) -> int:
        """Number of terms."""
        return self.design.shape[0]

    @property
    def d(self) -> int:
        """Number of features."""
        return self.design.shape[1]

    def with_(self, *, lam: float) -> LpSvm:
        """The same problem at another lambda."""
        return replace(self, lam=positive("lam", lam))

    def primal(self, w: ArrayLike) -> float:
        """The objective at `w`."""
        w = np.asarray(w, dtype=np.float64)
        loss = np.maximum(1.0 - self.design.forward(w), 0.0)
        return self.lam * float(np.abs(w).sum()) + float(self.c @ loss)

    def feasible(self, alpha: ArrayLike) -> tuple[Array, Array, Array]:
        """``(alpha, v, error)``: `alpha` clipped and shrunk to be surely dual feasible."""
        alpha = np.clip(np.asarray(alpha, dtype=np.float64), 0.0, self.c)
        v = self.design.adjoint(alpha)
        error = self.design.adjoint_factor * np.asarray(abs(by_columns(self.design)).T @ alpha)
        top = float(np.max(np.abs(v) + error, initial=0.0))
        if top > self.lam:
            factor = self.lam / top * (1.0 - 8.0 * UNIT)
            alpha, v, error = factor * alpha, factor * v, factor * error + 4.0 * UNIT * np.abs(v)
        return alpha, v, error

    def to_cvxpy(self) -> Any:
        """Return the problem as a ``cvxpy.Problem`` in one vector variable."""
        return supplied("cvxpy.lp_svm")(self)

    def __str__(self) -> str:
        return fields([("terms", self.n), ("features", self.d), ("lambda", self.lam)],
                      title=f"Problem ({self.kind})")


def certify_lp(problem: LpSvm, w: ArrayLike, alpha: ArrayLike, tol: float = 1e-6) -> Certificate:
    """LP duality on the full data: `alpha` is made feasible, the gap a sum of terms >= 0.

    ``sum_i (c_i h_i - alpha_i (1 - t_i)) + sum_j (lam |w_j| - v_j w_j)``, with the rounding of both
    passes charged.
    """
    one_of("problem", problem, LpSvm, "a problem from `sparse_svm(..., l2=0)` is needed")
    tol, w, alpha = positive("tol", tol), array("w", w), array("alpha", alpha)
    if w.shape != (problem.d,) or alpha.shape != (problem.n,):
        raise InvalidInput(
            f"`w` {w.shape} and `alpha` {alpha.shape} must have shapes ({problem.d},) and "
            f"({problem.n},)."
        )
    primal = problem.primal(w) if np.isfinite(w).all() else float("nan")
    if not np.isfinite(primal) or not np.isfinite(alpha).all():
        return refused("the point holds NaN or infinity", tol, primal)
    alpha, v, error = problem.feasible(alpha)
    t = problem.design.forward(w)
    size = abs(by_columns(problem.design)) @ np.abs(w)
    noise = problem.design.forward_factor * np.asarray(size).ravel() + 4.0 * UNIT * (1 + np.abs(t))
    short = 1.0 - t
    over = np.where(short > 0, problem.c - alpha, alpha) * np.abs(short)
    terms = over + np.maximum(problem.c - alpha, alpha) * noise
    settled = ((short < -noise) & (alpha == 0)) | ((short > noise) & (alpha == problem.c))
    lean = np.maximum(problem.lam * np.abs(w) - v * w, 0.0) + np.abs(w) * (
        error + 4.0 * UNIT * problem.lam
    )
    gap = float(np.where(settled, 0.0, terms).sum() + lean.sum())
    gap *= 1.0 + gamma(problem.n + problem.d)
    return verdict(gap, primal, tol)


@dataclass(frozen=True, eq=False, repr=False)
class LpVerdict(Record):
    """What is proven: terms with ``t > 1`` (`zero`) or ``t < 1`` (`linear`), features `dropped`.

    It holds at every optimum, so the terms of each kind can be left out or put together.
    """

    problem: LpSvm
    zero: Mask
    linear: Mask
    dropped: Mask
    gap: float
    bound: str = "lp"

    def __str__(self) -> str:
        rows = [("bound", self.bound), ("gap", self.gap), ("zero", int(self.zero.sum())),
                ("linear", int(self.linear.sum())), ("undecided", int(self.undecided.sum())),
                ("features dropped", int(self.dropped.sum()))]
        return fields(rows, title="Verdict")

    @property
    def undecided(self) -> Mask:
        """Terms about which nothing is proven."""
        return ~(self.zero | self.linear)

    @property
    def kept(self) -> Mask:
        """Features that stay."""
        return ~self.dropped

    @property
    def piece(self) -> NDArray[np.int64]:
        """0 on the linear piece, 1 on the zero piece, -1 where undecided."""
        return np.where(self.linear, 0, np.where(self.zero, 1, -1)).astype(np.int64)

    def reduce(self) -> LpSvm:
        """The problem without what is proven, again an LP-SVM, with the same optima.

        All linear terms become one, their mean with their total weight, as the last: a hinge of
        the mean is at most the mean of the hinges, and the same near the optima of the full
        problem, so these are optima of the reduced one; others it has none, since the way from one
        of the former to one of the latter would have to leave the former's set somewhere.
        """
        problem = self.problem
        matrix = by_columns(problem.design)[:, np.flatnonzero(self.kept)].tocsr()
        rows, total = np.flatnonzero(self.undecided), float(problem.c[self.linear].sum())
        design, c = matrix[rows], problem.c[rows]
        if total > 0 or not len(rows):
            mean = np.where(self.linear, problem.c, 0.0) @ matrix / max(total, 1e-300)
            design = sp.vstack([design, sp.csr_matrix(mean)]).tocsr()
            c = np.append(c, total)
        if not problem.design.sparse:
            return replace(problem, design=Rows(design.toarray()), c=c)
        return replace(problem, design=Rows(design), c=c)

    def lift(self, w: ArrayLike, alpha: ArrayLike) -> tuple[Array, Array]:
        """From a pair of the reduced problem to one of the full problem."""
        problem, alpha = self.problem, np.asarray(alpha, dtype=np.float64)
        full, slopes = np.zeros(problem.d), np.zeros(problem.n)
        full[self.kept] = w
        rows = np.flatnonzero(self.undecided)
        slopes[rows] = alpha[: len(rows)]
        total = float(problem.c[self.linear].sum())
        if total > 0:
            slopes[self.linear] = problem.c[self.linear] * min(float(alpha[-1]) / total, 1.0)
        return full, slopes


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


def dropped_by_slab(problem: LpSvm, primal: float, dual: float) -> Mask:
    """Theorem 6: features with ``-lam < min <A_j, alpha>`` and ``max <A_j, alpha> < lam``.

    Over ``D <= sum alpha <= P``; printed with both inequalities reversed, and with P for nP.
    """
    matrix, total = by_columns(problem.design), float(problem.c.sum())
    slack = gamma(problem.n + 8)
    low, high = dual * (1 - slack) - 1e-300, primal * (1 + slack)
    dropped = np.zeros(problem.d, dtype=bool)
    for j in range(problem.d):
        part = slice(matrix.indptr[j], matrix.indptr[j + 1])
        values, mass = matrix.data[part], problem.c[matrix.indices[part]]
        rest = max(total - float(mass.sum()), 0.0)
        noise = 4.0 * slack * float(np.abs(values) @ mass)
        # `rest` is rounded: a little more of it only loosens the bound.
        rest += 4.0 * slack * total
        least = least_within_slab(values, mass, rest, low, high) - noise
        most = -least_within_slab(-values, mass, rest, low, high) + noise
        dropped[j] = -problem.lam < least and most < problem.lam
    return dropped


def margins_in_cone(problem: LpSvm, alpha: Array, primal: float) -> tuple[Array, Array]:
    """Theorem 7: intervals of ``<a_i, w*>`` over ``lam ||w||_1 - <v, w> <= k``, arrays (n,).

    ``max <a, w> = min mu k`` over ``mu >= 0`` with ``||a + mu v||_inf <= mu lam``: an interval of
    mu. Any alpha in the box is allowed; with the slopes at w the cut of the paper (its bounds and
    its four decisions put right). Where ``|v_j| > lam`` the set is unbounded, and only terms that
    reach into all such coordinates get a bound.
    """
    v = problem.design.adjoint(alpha)
    blur = problem.design.adjoint_factor * np.asarray(abs(by_columns(problem.design)).T @ alpha)
    k = primal - float(alpha.sum())
    noise = gamma(problem.n + 8) * (abs(primal) + float(alpha.sum()))
    above, below = problem.lam - v, problem.lam + v
    bad = np.flatnonzero(np.minimum(above, below) <= blur)
    high = _most(problem, 1.0, above, below, blur, bad, k, noise)
    low = -_most(problem, -1.0, above, below, blur, bad, k, noise)
    return low, high


@np.errstate(divide="ignore", over="ignore", invalid="ignore")  # no number decides nothing
def _most(
    problem: LpSvm, sign: float, above: Array, below: Array, blur: Array, bad: NDArray[np.intp],
    k: float, noise: float,
) -> Array:
    """Upper bounds of ``sign <a_i, w*>``."""
    good = np.ones(problem.d, dtype=bool)
    good[bad] = False
    rows = sp.csr_matrix(by_columns(problem.design)) * sign
    column = rows.indices
    up = np.where(good, 1.0 / np.where(good, above - blur, 1.0), 0.0)
    down = np.where(good, 1.0 / np.where(good, below - blur, 1.0), 0.0)
    need = np.maximum(rows.data * up[column], -rows.data * down[column])
    least = np.zeros(problem.n)
    np.maximum.at(least, np.repeat(np.arange(problem.n), np.diff(rows.indptr)), need)
    most = np.full(problem.n, np.inf)
    for j in bad:  # here mu is bounded above, on the side where v leans out
        entry = sign * problem.design.column(int(j))
        side = above[j] if above[j] <= below[j] else below[j]
        other = below[j] if above[j] <= below[j] else above[j]
        lean = -entry if above[j] <= below[j] else entry
        gap = -(side - blur[j])
        room = np.where(lean > 0, lean / gap if gap > 0 else np.inf, np.sign(lean))
        most = np.minimum(most, room * (1.0 - 8.0 * UNIT))
        least = np.maximum(least, lean / max(other - blur[j], 1e-300))
    least = least * (1.0 + 8.0 * UNIT)
    bound = np.where(k + noise >= 0, least * (k + noise), most * (k + noise))
    possible = (least <= most) & np.isfinite(bound)
    return np.where(possible, bound + 8.0 * UNIT * np.abs(bound), np.inf)


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


def margins_from_kinks(
    problem: LpSvm, feasible: tuple[Array, Array, Array], primal: float, gap: float
) -> tuple[Array, Array]:
    """Intervals of ``<a_i, w*>`` from the terms at their kinks, arrays (n,).

    With ``a_i = sum_k z_k a_k + r`` over terms k with ``0 < alpha_k < c_k``, for any z,

    ::

        <a_i, w*> <= sum_k z_k + G max(z_k^+ / alpha_k, z_k^- / (c_k - alpha_k),
                                       r_j^+ / (lam - v_j), r_j^- / (lam + v_j))

    where a feature with ``|v_j| = lam`` counts with ``|r_j| P / lam`` instead, as
    ``|w_j*| <= P / lam``. `feasible` is what `LpSvm.feasible` returns,
    `gap` the gap of a pair with it.
    """
    (alpha, v, error), n = feasible, problem.n
    least, most = np.full(n, -np.inf), np.full(n, np.inf)
    slack = np.minimum(alpha, problem.c - alpha)
    kinks = np.argsort(-slack)[: min(MOST, int((slack > ON_EDGE * problem.c).sum()))]
    if not len(kinks):
        return least, most
    matrix = by_columns(problem.design)
    rows = matrix[kinks].T.tocsc()  # features x kinks
    up, down = problem.lam - v - error, problem.lam + v - error
    edge = np.minimum(up, down) <= ON_EDGE * problem.lam
    up, down = np.where(edge, np.inf, up), np.where(edge, np.inf, down)
    tight = np.where(edge, ON_EDGE * problem.lam, np.minimum(up, down))
    rising, falling = alpha[kinks], problem.c[kinks] - alpha[kinks]
    width = max(BLOCK // problem.d, 1)
    for start in range(0, n, width):
        part = slice(start, min(start + width, n))
        target = matrix[part].T.toarray()
        Z = _combined(rows, tight, slack[kinks], target)
        rest = target - rows @ Z
        blur = gamma(len(kinks) + 4) * (np.abs(target) + abs(rows) @ np.abs(Z))
        boxed = np.where(edge[:, None], np.abs(rest) + blur, blur).sum(axis=0)
        loose = boxed * primal / problem.lam + gamma(len(kinks) + 4) * np.abs(Z).sum(axis=0)
        middle = Z.sum(axis=0)
        above = np.maximum(_price(Z, rising, falling), _price(rest, up, down))
        below = np.maximum(_price(-Z, rising, falling), _price(-rest, up, down))
        wide = 1.0 + gamma(problem.d + 32)
        most[part] = middle + (gap * above + loose) * wide + 8.0 * UNIT * np.abs(middle)
        least[part] = middle - (gap * below + loose) * wide - 8.0 * UNIT * np.abs(middle)
    return least, most


def v_from_support(problem: LpSvm, w: Array, gap: float) -> tuple[Array, Array]:
    """Intervals of ``v_j* = <A_j, alpha*>`` from the features in use at `w`, arrays (d,).

    With ``A_j = sum_f z_f A_f + r`` over features f with ``w_f`` not 0, of sign ``s_f``, for any z,

    ::

        v_j* <= sum_f z_f s_f lam + sum_{t_i < 1} r_i c_i
                + G max((-z_f s_f)^+ / |w_f|, r_i^- / (1 - t_i), r_i^+ / (t_i - 1))

    where a term at its kink counts with ``r_i^+ c_i`` instead. `gap` is that of a pair with `w`.
    """
    n, d = problem.n, problem.d
    matrix, t = by_columns(problem.design), problem.design.forward(w)
    noise = problem.design.forward_factor * np.asarray(abs(matrix) @ np.abs(w)).ravel()
    away = np.abs(1.0 - t) - noise - 4.0 * UNIT * (1.0 + np.abs(t))
    kink = away <= ON_EDGE
    full = np.where(~kink & (t < 1.0), problem.c, 0.0)
    up = np.where(~kink & (t > 1.0), away, np.inf)  # r > 0 gains where alpha* may leave 0
    down = np.where(~kink & (t < 1.0), away, np.inf)
    free = np.where(kink, problem.c, 0.0)
    used = np.argsort(-np.abs(w))[: min(MOST, int((w != 0).sum()))]
    size, sign = np.abs(w[used]), np.sign(w[used])
    rows, tight = matrix[:, used].tocsc(), np.where(kink, ON_EDGE, away)
    least, most, total = np.empty(d), np.empty(d), float(problem.c.sum())
    width = max(BLOCK // n, 1)
    for start in range(0, d, width):
        part = slice(start, min(start + width, d))
        target = matrix[:, part].toarray()
        Z = _combined(rows, tight, size, target) if len(used) else np.zeros((0, target.shape[1]))
        rest = target - rows @ Z
        blur = gamma(len(used) + 4) * (np.abs(target) + abs(rows) @ np.abs(Z))
        turned = Z * sign[:, None]
        middle = problem.lam * turned.sum(axis=0) + full @ rest
        rounding = blur.max(axis=0, initial=0.0) * total + gamma(n + d + 8) * (
            problem.lam * np.abs(Z).sum(axis=0) + problem.c @ np.abs(rest)
        )
        nothing = np.full(len(used), np.inf)
        above = np.maximum(_price(turned, nothing, size), _price(rest, up, down))
        below = np.maximum(_price(-turned, nothing, size), _price(-rest, up, down))
        wide = 1.0 + gamma(n + 32)
        most[part] = middle + (gap * above + free @ np.maximum(rest, 0.0)) * wide + rounding
        least[part] = middle - (gap * below + free @ np.maximum(-rest, 0.0)) * wide - rounding
    return least, most


def screen_lp(problem: LpSvm, w: ArrayLike, alpha: ArrayLike) -> LpVerdict:
    """What Theorems 6 and 7, and the kinks, prove from any pair ``(w, alpha)``."""
    w = np.asarray(w, dtype=np.float64)
    proof = certify_lp(problem, w, alpha)
    pair = problem.feasible(alpha)
    feasible = pair[0]
    t = problem.design.forward(w)
    low, high = np.full(problem.n, -np.inf), np.full(problem.n, np.inf)
    upper = proof.primal * (1.0 + gamma(problem.n + problem.d + 8))
    for cut in (feasible, np.where(t < 1.0, problem.c, 0.0)):
        one, two = margins_in_cone(problem, cut, upper)
        low, high = np.maximum(low, one), np.minimum(high, two)
    dual = float(feasible.sum()) * (1.0 - gamma(problem.n + 8))
    dropped = dropped_by_slab(problem, upper, dual)
    if proof.relative_gap <= CLOSE:
        one, two = margins_from_kinks(problem, pair, upper, proof.gap)
        low, high = np.maximum(low, one), np.minimum(high, two)
        least, most = v_from_support(problem, w, proof.gap)
        dropped |= (least > -problem.lam) & (most < problem.lam)
    above, below = low > 1.0 + 8.0 * UNIT, high < 1.0 - 8.0 * UNIT
    return LpVerdict(problem, above, below, dropped, proof.gap)


NEAR = 0.7
"""Features with ``|v_j|`` above this share of lambda at the start are let in at once."""
ASKED = 1e-9
"""A feature asks to be let in where ``|v_j|`` exceeds lambda by more than this share of it: HiGHS
is asked for 1e-10."""
MAX_ROUNDS = 60
FEW = 2
"""Terms a feature from which on the interior point method takes the linear program.

Seconds of HiGHS and of it, lambda at 0.02 of its largest value: 1.4 and 0.1 at 2,000 terms and 100
features, 3.0 and 0.12 at 10,000 and 50; with 1,000 terms for 3,000 features HiGHS is the faster.
"""
VERTEX = 1e-10
"""Relative gap asked of it, as of HiGHS; where it ends above (dependent rows), HiGHS is asked."""


@dataclass(frozen=True, eq=False, repr=False)
class LpSolution(Record):
    """An answer with its certificate; `screening` is what was proven before solving."""

    problem: LpSvm
    x: Array
    alpha: Array
    status: str
    certificate: Certificate
    screening: LpVerdict
    rounds: int
    kept: int
    features: int
    mode: str
    seconds: float = field(default=0.0)

    @property
    def value(self) -> float:
        """The objective at `x`."""
        return self.certificate.primal

    def __str__(self) -> str:
        return fields(
            [("status", self.status), ("objective", self.value),
             ("relative gap", self.certificate.relative_gap), ("terms solved", self.kept),
             ("features solved", self.features), ("rounds", self.rounds), ("mode", self.mode)],
            title="Solution (LP-SVM)",
        )


def solve_lp(
    problem: LpSvm,
    *,
    tol: float = 1e-6,
    mode: str = "certified",
    start: Any = None,
    limits: Limits = UNLIMITED,
) -> LpSolution:
    """Reduce, solve the linear program, certify on the full data.

    ``safe`` leaves out what `screen_lp` proves from the start (0 without one); ``certified`` lets
    features in as the dual point asks for them (column generation) and ends at an optimum of all.
    """
    mode = choice("mode", mode, MODES)
    tol = tolerance(tol)
    if start is not None:
        one_of("start", start, LpSolution, "what `solve` returned for an LP-SVM is needed")
    began = perf_counter()
    screened = ScreenedLp(problem, mode, limits)
    screened.begin(start)
    run(screened)
    return screened.solution(tol, began)


NONE: Pair = (np.zeros(0), np.zeros(0))
"""The pair of a solver that found none."""


class ScreenedLp(ScreenedProblem[Mask, LpSvm, Pair, tuple[Array, Array, Array], Array]):
    """An LP-SVM with what is proven of it, and the features that are solved for.

    Parameters
    ----------
    problem : LpSvm
    mode : {"certified", "safe"}
    limits : Limits
        Of the whole call.
    """

    known: LpVerdict
    reduced: LpSvm
    working_set: Mask

    def __init__(self, problem: LpSvm, mode: str, limits: Limits) -> None:
        self.problem, self.mode, self.limits, self.rounds = problem, mode, limits, []
        self.w, self.alpha = np.zeros(problem.d), problem.c
        self.missing = np.zeros(0, dtype=bool)

    def begin(self, start: LpSolution | None) -> None:
        """Screen from the start, or from 0, and choose the features to begin with."""
        problem = self.problem
        if start is not None:
            self.w = np.asarray(start.x, dtype=np.float64)
            self.alpha = np.asarray(start.alpha, dtype=np.float64)
        self.known = screen_lp(problem, self.w, self.alpha)
        self.reduced = self.known.reduce()
        self.working_set = np.ones(self.reduced.d, dtype=bool)
        if self.mode == "certified":
            v = np.abs(problem.design.adjoint(self.alpha))
            near = v >= NEAR * min(problem.lam, float(v.max(initial=0.0)))
            self.working_set = (near | (self.w != 0))[self.known.kept]

    def select(self) -> Mask:
        """The features of the proven reduction that are solved for; the others are predicted 0."""
        return self.working_set

    def reduce(
        self, selection: Mask
    ) -> tuple[LpSvm, Callable[[Pair], tuple[Array, Array, Array]]]:
        """The proven reduction; the linear program takes its features from the selection."""
        return self.reduced, lambda found: (*self.known.lift(*found), found[1])

    def solve(self, reduced: LpSvm, selection: Mask) -> Pair | None:
        """The optimum at a vertex: by the interior point method, or by HiGHS."""
        features = np.flatnonzero(selection)
        found = None
        if 0 < FEW * len(features) <= min(reduced.n, FEW * MOST):
            found = _by_interior_point(reduced, features, self.limits)
        if found is None and not (self.rounds and self.limits.spent()):
            found = _by_highs(reduced, features, self.limits)
        self.result = SubproblemResult("failed" if found is None else "optimal", *(found or NONE))
        return found

    def evaluate(self, lifted: tuple[Array, Array, Array], selection: Mask) -> Array:
        """``|v|`` of the features, the only ones that are predicted."""
        self.w, self.alpha, slopes = lifted
        return np.abs(self.reduced.design.adjoint(slopes))

    def put_back(self, selection: Mask, point: Array | None) -> int:
        """Let in the features that the dual point asks for (column generation)."""
        self.missing = np.zeros(self.reduced.d, dtype=bool)
        if point is not None:
            self.missing = ~selection & (point > self.problem.lam * (1 + ASKED))
        return int(self.missing.sum())

    def close(self, selection: Mask, refuted: int, times: Times) -> None:
        """Record the round; the reduction is solved when no feature asks to be let in."""
        known, features = self.known.undecided, int(selection.sum())
        counts = int((~known).sum()), int((~selection).sum()), refuted
        self.record(int(known.sum()), None, counts, times, features)
        self.finished = refuted == 0 or len(self.rounds) >= MAX_ROUNDS
        if not self.over:
            self.working_set = self.working_set | self.missing

    def solution(self, tol: float, began: float) -> LpSolution:
        """The answer, certified on the full data; the call began at that `perf_counter`."""
        proof = certify_lp(self.problem, self.w, self.alpha, tol)
        return LpSolution(
            self.problem, self.w, self.alpha, self.limits.word(proof.ok), proof, self.known,
            len(self.rounds), int(self.known.undecided.sum()), int(self.working_set.sum()),
            self.mode, perf_counter() - began,
        )


def _by_interior_point(problem: LpSvm, features: NDArray[np.intp], limits: Limits) -> Pair | None:
    """The ordinary problem without a quadratic term, its L1 norm as terms; None away from a vertex.

    Terms are left out as of every problem without strong convexity (`relaxation`).
    """
    matrix = by_columns(problem.design)[:, features]
    n, k = matrix.shape
    rows = sp.vstack([matrix, sp.identity(k)], format="csr")
    zero, c, weight = np.zeros(n + k), problem.c, np.full(k, problem.lam)
    losses = Losses(
        np.concatenate([np.ones(n), np.zeros(k)]), zero, zero, np.concatenate([-c, -weight]),
        np.concatenate([np.zeros(n), weight]),
    )
    whole = Problem(
        Rows(rows if problem.design.sparse else rows.toarray()), losses, Quadratic(np.zeros(k)),
        np.zeros(k), layout=Layout(penalty_terms=k),
    )
    found = solve_screened(whole, InteriorPoint(limits=limits), tol=VERTEX)
    if found.status != "optimal":
        return None
    w, sparse = np.zeros(problem.d), np.zeros(problem.d)
    w[features] = found.x
    # What is not at its bound for certain is 0, unless that is rounding and costs something.
    inside = np.abs(found.theta[n:]) < (1.0 - ON_EDGE) * problem.lam
    sparse[features] = np.where(inside, 0.0, found.x)
    if problem.primal(sparse) <= problem.primal(w) * (1.0 + 8.0 * gamma(n + k)):
        w = sparse
    return w, np.clip(-found.theta[:n], 0.0, c)


def _by_highs(problem: LpSvm, features: NDArray[np.intp], limits: Limits) -> Pair | None:
    """The linear program in ``w = p - m`` and the hinges; None where HiGHS ends without one."""
    from scipy.optimize import linprog  # a sixth of a second of every model's first call

    matrix, n = by_columns(problem.design)[:, features], problem.n
    k = len(features)
    cost = np.concatenate([np.full(2 * k, problem.lam), problem.c])
    table = sp.hstack([-matrix, matrix, -sp.eye(n)], format="csc")
    tight: dict[str, float] = {
        "primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10
    }
    if limits.seconds is not None:
        tight["time_limit"] = limits.seconds
    if limits.iterations is not None:
        tight["maxiter"] = limits.iterations
    right = -np.ones(n)
    found = linprog(cost, A_ub=table, b_ub=right, bounds=(0, None), method="highs", options=tight)
    limits.spent(int(found.nit))
    if found.x is None or found.status != 0:
        return None
    w = np.zeros(problem.d)
    w[features] = found.x[:k] - found.x[k : 2 * k]
    return w, np.clip(-found.ineqlin.marginals, 0.0, problem.c)
