"""A certificate: how far a point is from optimal, recomputed on the full problem.

For x and slopes theta the gap is a sum of non-negative terms, never ``P - D`` of two large
numbers::

    P(x) - D(theta) = sum_i (f_i(t_i) + f_i*(theta_i) - t_i theta_i)    losses, t = A x
                      + g(x) + g*(v) - <v, x>                           regulariser
                      + <mu, F x + f>                                   side constraints

with ``g(x) = 1/2 <x, M x> + h(x)`` and ``v = -(A' theta + q - F' mu)``. Without a penalty h the
second line is ``1/2 ||x - x_theta||_M^2``, ``M x_theta = v``; with one, a remainder is added. What
the rounding of this computation can hide is added to the gap.

Of rows far from 0 beside an intercept it is these that hide most: where the gap so found is too
large, it is found once more about a point near them (`about_centre`).

Where the optimum is 0 (a constant target with an intercept, as many coefficients as targets) a
relative gap says nothing: the objective at x, and any bound of its distance from the optimum, is
then rounding. A point whose objective is no more than what rounding x may cost (`rounding_alone`)
is judged by the losses at ``x = 0`` instead: *optimal* then promises ``P(x) - P* <= P(x) <= tol
P(0)``, as losses and regularisers are not negative; constraints only raise P*, a constant shifts
both. Beside a linear term 0 is no lower bound: there the gap itself is judged, relative to the
numbers that cancel in it (`cancelled`), and so is any gap that is no more than the rounding of
those. The gap of such a point exceeds its objective, so that no relative gap below 1 could be
certified there.

**Without strong convexity** ``A' theta + M x + q - F' mu = r`` must vanish on the coordinates that
M does not hold. For every feasible y

::

    P(y) >= P(x) - G - <r, x - y>,        G = sum_i (f_i + f_i* - t_i theta_i) + <mu, F x + f>

(Fenchel's inequality for each f_i, the gradient inequality for M, mu in the dual cone), so the pair
``(G, r)`` says how much better any point at a distance D can be. What r may cost is found in this
order (`cost_of_free`): slopes close to theta that balance it exactly; constraints that bound x, and
so D; growth of the losses, which bounds any better y; else the statement is made for points within
``D = 1000 max(1, |x|)``, and says so (`Certificate.within`). Terms that are constraints
(`Losses.hard`) have an infinite value beyond their end: P is what the others are worth, and by how
much x violates them stands beside (`Certificate.primal_residual`).

Nothing is shared with the code that finds answers or proves bounds: losses are evaluated from their
pieces (not through subgradients), each Fenchel-Young term as ``f + f* - t theta``, the conjugate of
the regulariser from its own linear system. `certify` is the entry; below it come its parts in the
order of the formula: the losses, the quadratic term and side constraints, a penalty, a coordinate
that nothing penalises, and the case where an L1 norm alone does.

Proofs: ``docs/theory.md``, section 9.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular

from cvxscreen._support.compiled import compiled, not_imported, read_only
from cvxscreen._support.tables import Record, fields
from cvxscreen._support.validation import array, one_of, positive
from cvxscreen.certificates.residual_norms import norms_growth_cost
from cvxscreen.core.cones import MANY_CONES
from cvxscreen.core.penalty import L1, PSD, NonNegative
from cvxscreen.core.problem import NOTHING, Problem, Quadratic, relative_gap
from cvxscreen.designs.rows import ALONE, Rows, column_squares
from cvxscreen.designs.shift import Shift
from cvxscreen.errors import InvalidInput

Array = NDArray[np.float64]
Index = NDArray[np.intp]

EPS = float(np.finfo(np.float64).eps)
# Half and twice of each number in this file that has no figure of its own (of a tolerance a
# hundredth and a hundred times): all is certified as before, in 0.89 to 1.11 times the time, in up
# to 12 problems that come to it (examples/benchmarks/named_numbers.py; noise is 0.1).
ENOUGH = 0.1
"""Share of the gap asked for that the imbalance of free coordinates may cost; a better bound of it
balances all of them, at the cost of a factorisation (13 s for 2,000 assets, 0 s without)."""
FAR = 1000.0
"""Points within so many times the length of x are answered for where nothing bounds coordinates."""
NEGLIGIBLE = 0.01
"""Share of the gap asked for that rounding, or one free coordinate, may cost by a first bound."""
_SUMMED = 256
"""What numpy's sum by pairs of any number of products rounds like a sum of so many: 128 are added
up one by one, and 64 levels of pairs are more than there are."""
_REFINED = 2000
"""Terms at most whose margins are recomputed in extended precision."""
_ASKED = 200
"""Terms, about, that are asked to balance a point before all are."""
_BLOCK = 8192
"""Terms whose gaps numpy bounds at a time: its forty intermediate results then stay in the cache,
and 200,000 terms take a fifth of the time."""
_MANY = 10_000
"""Terms from which on their gaps are bounded by the compiled loop. That many take numpy 0.14 ms and
the loop 0.013 ms, once it is compiled or read from disk; a process with less has no need of it."""
_MANY_AT_FIRST = 500_000
"""The same before numba is imported, which takes 0.3 s: numpy's 0.14 ms become 10."""


@dataclass(frozen=True, repr=False)
class Certificate(Record):
    """What the recomputation found.

    Attributes
    ----------
    gap : float
        Upper bound of ``P(x) - P*``: the duality gap, rounding of this computation included.
    relative_gap : float
        ``gap / max(|primal|, |dual|)``; the share of the losses at ``x = 0`` where rounding
        accounts for the whole objective (see the module's docstring).
    primal, dual : float
        Objective at `x` and the bound below it (``primal - gap``).
    violation : float
        Distance of `x` from the side constraints (0 without them).
    tolerance : float
        The relative gap that was asked for.
    within : float
        The gap bounds what is lost against points at most so far from `x`; infinite (it bounds what
        is lost against every point) unless nothing bounds the coordinates that no quadratic term
        holds.
    residual : float
        Largest entry of ``A' theta + M x + q - F' mu`` on these coordinates; the gap includes what
        it costs.
    primal_residual : float
        By how much `x` violates a term that is a constraint, at most, over all of them.
    ok : bool
        Whether the dual point is feasible, `relative_gap` is within `tolerance` and `violation` is
        within ``tolerance * (1 + |f|)``.
    reason : str
        Why not, when not ok.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> solution = cvxscreen.solve(cvxscreen.svm(X, y, C=0.1), tol=1e-9)
    >>> proof = solution.certificate
    >>> proof.ok, bool(proof.relative_gap <= 1e-9), bool(proof.dual <= proof.primal)
    (True, True, True)
    """

    gap: float
    relative_gap: float
    primal: float
    dual: float
    violation: float
    tolerance: float
    ok: bool
    reason: str = ""
    within: float = float("inf")
    residual: float = 0.0
    primal_residual: float = 0.0

    def __str__(self) -> str:
        return fields(
            [
                ("certified", self.ok),
                ("relative gap", self.relative_gap),
                ("asked for", self.tolerance),
                ("gap", self.gap),
                ("objective", float(f"{self.primal:.12g}")),
                ("violation", self.violation),
                *([("primal residual", self.primal_residual)] if self.primal_residual else []),
                *([("dual residual", self.residual)] if self.residual else []),
                *([("holds within distance", self.within)] if np.isfinite(self.within) else []),
                *([("reason", self.reason)] if self.reason else []),
            ],
            title="Certificate (recomputed on the full problem)",
        )


@dataclass(eq=False)
class Passes:
    """``A x`` and ``A' theta`` as a certificate computed them, for those who go on from there."""

    margins: Array | None = None
    At_theta: Array | None = None


_OTHERS: dict[type, Callable[..., Certificate]] = {}


def register_certificate(kind: type, own: Callable[..., Certificate]) -> None:
    """Let `own` judge problems whose design is of `kind`; called by the module that defines it."""
    _OTHERS[kind] = own


def certify(
    problem: Problem,
    x: ArrayLike,
    theta: ArrayLike,
    multipliers: ArrayLike | None = None,
    *,
    tol: float = 1e-6,
    passes: Passes | None = None,
) -> Certificate:
    """Recompute the optimality of ``(x, theta)`` on all of `problem`.

    Parameters
    ----------
    problem : Problem
        The full problem.
    x : array_like, shape (d,)
    theta : array_like, shape (n,)
        Slopes; outside ``[lo, hi]`` the certificate is refused.
    multipliers : array_like, shape (m,), optional
        Multipliers of the side constraints, in the dual cone.
    tol : float
        Relative gap asked for.
    passes : Passes, optional
        Gets the two products (data in rows or kernels); nothing is taken from it.

    Returns
    -------
    Certificate

    Raises
    ------
    InvalidInput
        On wrong shapes, or a `tol` that is not positive.

    Notes
    -----
    ``P(x) - D(theta) = 1/2 ||x - x_theta||_M^2 + sum_i (f_i(t_i) + f_i*(theta_i) - t_i theta_i)
    + <mu, F x + f>`` with ``M x_theta = -(A' theta + q - F' mu)``. Without a quadratic term the
    gap is that of `theta` times the largest share that is dual feasible for certain.
    """
    one_of("problem", problem, Problem, "a `Problem` is needed (from `svm`, `regression`, ...)")
    for kind, own in _OTHERS.items():
        if isinstance(problem.design, kind):
            return own(problem, x, theta, tol=tol)
    x, theta, tol = array("x", x), array("theta", theta), positive("tol", tol)
    if x.shape != (problem.d,) or theta.shape != (problem.n,):
        raise InvalidInput(
            f"`x` {x.shape} and `theta` {theta.shape} must have shapes ({problem.d},) and "
            f"({problem.n},)."
        )
    m = 0 if problem.side is None else len(problem.side.offset)
    mu = np.zeros(m) if multipliers is None else array("multipliers", multipliers)
    if mu.shape != (m,):
        raise InvalidInput(f"`multipliers` has shape {mu.shape}; ({m},) is needed.")
    if not (np.isfinite(x).all() and np.isfinite(theta).all()):
        return refused("the point holds NaN or infinity", tol)
    found = _judged(problem, x, theta, mu, tol, passes)
    if tol < found.relative_gap < np.inf:
        about = about_centre(problem, x)
        if about is not None:
            found = min(found, _judged(*about, theta, mu, tol, None), key=lambda each: each.gap)
    return found


def _judged(
    problem: Problem, x: Array, theta: Array, mu: Array, tol: float, passes: Passes | None
) -> Certificate:
    """The certificate of finite points of the right shapes, by the numbers as they are."""
    f, quadratic = problem.losses, problem.quadratic
    t = problem.design.forward(x)
    values = piecewise_value(f, t)
    primal = float(values.sum()) + quadratic.inner(0.5 * quadratic.apply(x) + problem.linear, x)
    primal += problem.constant
    if problem.penalty is not None:
        primal += problem.penalty.value(x)
    if (theta < f.lo).any() or (theta > f.hi).any():
        return refused("a dual variable lies outside its box", tol, primal)
    At_theta = problem.design.adjoint(theta)
    if passes is not None:
        passes.margins, passes.At_theta = t, At_theta
    if problem.pure_l1:
        enough = tol * abs(primal)
        return verdict(pure_l1_gap(problem, x, theta, t, values, At_theta, enough), primal, tol)

    singular = isinstance(quadratic, Quadratic) and quadratic.singular
    gradient = At_theta + problem.linear
    side = side_part(problem, x, mu, gradient + quadratic.apply(x) if singular else gradient)
    if side.refused:
        return refused(side.refused, tol, primal)
    penalty = None if problem.penalty is None else penalty_part(problem, x, -side.residual)
    if penalty is not None and penalty.outside:
        return refused(penalty.outside, tol, primal, side.violation)

    if penalty is None:  # a problem has a penalty or side constraints, not both
        x_theta = primal_of_dual(problem, x, side.residual)
        rest, distance_error = side.gap, side.distance_error
    else:
        x_theta, rest = penalty.x_theta, penalty.remainder
        distance_error = penalty.x_error * float(np.sqrt(quadratic.diagonal.max(initial=0.0)))
        distance_error += penalty.dual_error / float(np.sqrt(quadratic.floor))
    At_error = float(np.abs(theta) @ problem.rounding_norms) * problem.design.adjoint_factor
    distance = quadratic.norm(x - x_theta) + At_error + problem.drift
    distance += 8 * EPS * quadratic.norm(x_theta)
    distance += distance_error
    distance *= 1.0 + (problem.d + 8) * EPS  # the norm of the difference rounds, and so do sums
    rest += 0.5 * distance * distance
    asked, scale, of_free = tol * abs(primal), None, None
    negligible = NEGLIGIBLE * asked
    if penalty is None and len(problem.free_index) <= 1 and isinstance(problem.design, Rows):
        t_error = problem.design.largest_forward_error(x, problem.sizes)
        gap, rounding = summed_gap(t, theta, t_error, values, f)
        if rounding <= negligible and gap + rest <= asked:
            of_free = cost_of_free(problem, x, theta, t, t_error, primal, side, distance, asked)
            gap += rest + of_free.cost
    if of_free is None or not gap <= asked:
        t, values, t_error = refined_margins(problem, x, theta, t, values, negligible)
        if penalty is not None:
            t_error = t_error + penalty.x_error * problem.sizes
        fy = loss_gaps(t, theta, t_error, values, f)
        of_free = cost_of_free(problem, x, theta, t, t_error, primal, side, distance, asked)
        if f.q.any() and not relative_gap(float(fy.sum()) + rest + of_free.cost, primal) <= tol:
            fy = smooth_gap_above(fy, t, theta, t_error, values, columns(f))
        gap = float(fy.sum()) * (1 + problem.n * EPS) + rest + of_free.cost
        if abs(primal) <= gap:
            counted = counted_slopes(problem, x, theta)
            alone = rounding_alone(problem, x, counted, fy, primal - problem.constant)
            # 0 is a lower bound, whatever the slopes are, unless a linear term is known roughly.
            if alone and not problem.linear.any() and problem.imbalance == 0.0:
                high = objective_above(problem, x, t, t_error)
                unit = losses_at_zero(problem) or cancelled(problem, x, counted, t, values)
                found = verdict(high, primal, tol, side=side, scale=unit)
                return _with_residuals(
                    found, problem, t, FreeCost(0.0, residual=of_free.residual)
                )
            size = cancelled(problem, x, counted, t, values)
            scale = size if size < np.inf and (alone or gap <= EPS * size) else None
    found = verdict(gap, primal, tol, of_free.cost, side, scale=scale)
    if found.ok and len(problem.free_index) and lost_in_rounding(problem, x, theta, values, primal):
        reason = "the point is so far out that its objective is lost in rounding"
        found = replace(found, ok=False, reason=reason)
    if not len(problem.free_index) and not hard_rows(f).any():
        return found
    return _with_residuals(found, problem, t, of_free)


def refused(
    reason: str, tol: float, primal: float = float("nan"), violation: float = 0.0
) -> Certificate:
    """A certificate that proves nothing, and why."""
    return Certificate(np.inf, np.inf, primal, -np.inf, violation, tol, False, reason)


def verdict(
    gap: float, primal: float, tol: float, imbalance: float = 0.0, side: SidePart | None = None,
    scale: float | None = None,
) -> Certificate:
    """Whether the gap, relative to any `scale` given, and the violation are within `tol`."""
    relative = float(relative_gap(gap, primal)) if scale is None else gap / max(scale, NOTHING)
    violation, size = (0.0, 1.0) if side is None else (side.violation, side.size)
    reason = ""
    if not relative <= tol:
        reason = f"the relative gap {relative:.3g} exceeds the tolerance {tol:.3g}"
        if np.isinf(imbalance):
            reason = "the dual point is not balanced on the unpenalised coordinates"
    elif violation > tol * size:
        reason = f"the side constraints are violated by {violation:.3g}"
    return Certificate(gap, relative, primal, primal - gap, violation, tol, not reason, reason)


def _with_residuals(
    found: Certificate, problem: Problem, t: Array, of_free: FreeCost
) -> Certificate:
    """`found` with what is said beside the gap: residuals, and how far it reaches."""
    f = problem.losses
    found = replace(found, within=of_free.within, residual=of_free.residual)
    if not found.ok and np.isfinite(found.gap) and of_free.cost > 0.5 * found.gap:
        reason = (
            "the dual point is not balanced on the unpenalised coordinates: a residual of "
            f"{of_free.residual:.3g} may cost {of_free.cost:.3g}"
        )
        found = replace(found, reason=reason)
    hard = np.flatnonzero(hard_rows(f))
    if not len(hard):
        return found
    z, lo, hi = t[hard] - f.b[hard], f.lo[hard], f.hi[hard]
    above, below = np.where(np.isinf(hi), z, 0.0), np.where(np.isinf(lo), -z, 0.0)
    beyond = max(float(np.maximum(above, below).max()), 0.0)
    if found.ok and beyond > found.tolerance * (1.0 + float(np.abs(f.b[hard]).max())):
        reason = f"a term that is a constraint is violated by {beyond:.3g}"
        found = replace(found, ok=False, reason=reason)
    return replace(found, primal_residual=beyond)


# -- the losses, from their pieces ----------------------------------------------------------------
# `value_above`, `gap_above` and `endless_above` are written without branches over numbers *or*
# arrays, so that the certificate of one point and that of a whole path are the same formulas.


def steepness(q: Any) -> Any:
    """``1 / (2 q)``; a huge number, only ever multiplied by 0, where ``q = 0``."""
    return 0.5 / np.maximum(q, 1e-300)


def value_above(t: Any, b: Any, e: Any, q: Any, lo: Any, hi: Any, steep: Any) -> Any:
    """``f(t)`` from the pieces: distance to the flat part, then parabola, then line.

    `steep` is ``steepness(q)``.
    """
    total = 0.0 * t
    for distance, slope in ((b - e - t, -lo), (t - b - e, hi)):
        u = np.maximum(distance, 0.0)
        inner = np.minimum(u, q * slope)
        # Beyond the parabola, where the slope is finite; the minimum only keeps 0 * inf away.
        total = total + inner * inner * steep + np.minimum(slope, 1e300) * (u - inner)
    return total


def gap_above(
    t: Any, theta: Any, error: Any, value: Any, b: Any, e: Any, q: Any, lo: Any, hi: Any
) -> Any:
    """``f(t) + f*(theta) - t theta`` and what rounding can hide, margins within `error` of `t`.

    Rounding is charged only where the term is not plainly zero: where theta sits at the slope of
    the linear piece that t is on, the three parts cancel identically.
    """
    product = t * theta
    conjugate = b * theta + e * np.abs(theta) + 0.5 * q * theta * theta
    size = value + np.abs(conjugate) + np.abs(product)
    # The steepest slope, |theta| in place of an infinite one.
    steepest = np.maximum(np.minimum(-lo, np.abs(theta) + 1e300 * (lo > -1e300)),
                          np.minimum(hi, np.abs(theta) + 1e300 * (hi < 1e300)))
    fy = np.maximum(value + conjugate - product, 0.0)
    tiny = error + 8.0 * EPS * (np.abs(t) + np.abs(b) + e)
    low = (theta == lo) & (t + tiny <= b - e + q * lo)
    high = (theta == hi) & (t - tiny >= b + e + q * hi)
    left = (lo == 0.0) | (t - tiny >= b - e)
    right = (hi == 0.0) | (t + tiny <= b + e)
    flat = left & right
    same_piece = low | high | ((theta == 0.0) & flat)
    cancels = same_piece & (fy <= 16.0 * EPS * size)
    # The derivative in t: f' - theta, and f' is 0 wherever the margin may be on the zero piece.
    slope = flat * np.abs(theta) + (1.0 - flat) * 2.0 * steepest
    return (1.0 - cancels) * (fy + 16.0 * EPS * size + slope * error)


@compiled()
def each_gap_above(t, theta, error, value, terms, out):  # type: ignore[no-untyped-def]
    """`gap_above` of every term, to `out`; `terms` are the `columns` of the losses."""
    b, e, q, lo, hi = terms
    for i in range(t.size):
        out[i] = compiled_gap_above(
            t[i], theta[i], error[i], value[i], b[i], e[i], q[i], lo[i], hi[i]
        )


def endless_above(value: Any, error: Any, q: Any, lo: Any, hi: Any) -> Any:
    """What the rounding of a margin hides beyond `gap_above` where a slope is unbounded.

    That is charged with ``|theta|`` for the slope; the loss's own, ``sqrt(2 f / q)``, and how it
    grows within the error come on top. 0 where both slopes are bounded.
    """
    endless = (lo < -1e300) | (hi > 1e300)
    width = q + (1.0 - endless)
    return endless * error * (np.sqrt(2.0 * value / width) + error / width)


# The same formulas of one term, which numpy runs on arrays, for compiled loops.
_of_one_term = compiled(allocates=False, alone=False)
compiled_steepness, compiled_value_above = _of_one_term(steepness), _of_one_term(value_above)
compiled_gap_above, compiled_endless_above = _of_one_term(gap_above), _of_one_term(endless_above)


def smooth_gap_above(
    coarse: Array, t: Array, theta: Array, error: Any, value: Array, terms: tuple[Any, ...]
) -> Array:
    """`coarse`, the sum of `gap_above` and `endless_above`, with less for the rounding of margins.

    `terms` are the `columns` of the losses.

    Where f* is q-strongly convex, f is 1/q-smooth, and so is the term ``g(t) = f(t) + f*(theta) -
    t theta >= 0``: its derivative is at most ``sqrt(2 g / q)``, and within the error it grows by at
    most ``error sqrt(2 g / q) + error^2 / (2 q)``.
    """
    b, e, q, _, _ = terms
    bent = q > 0.0
    width = np.where(bent, q, 1.0)
    product, conjugate = t * theta, b * theta + e * np.abs(theta) + 0.5 * q * theta * theta
    size = value + np.abs(conjugate) + np.abs(product)
    here = np.maximum(value + conjugate - product, 0.0) + 16.0 * EPS * size
    growth = error * (np.sqrt(2.0 * here / width) + 0.5 * error / width)
    return np.where(bent, np.minimum(coarse, (here + growth) * (1.0 + 16.0 * EPS)), coarse)


def columns(losses: Any) -> tuple[Any, ...]:
    """The five columns of a table of losses: ``b, e, q, lo, hi``."""
    return losses.b, losses.e, losses.q, losses.lo, losses.hi


def hard_rows(losses: Any) -> NDArray[np.bool_]:
    """Terms that are constraints: an infinite slope without curvature."""
    lines = losses.q == 0.0
    if not lines.any():
        return np.asarray(lines)
    return np.asarray((np.isinf(losses.lo) | np.isinf(losses.hi)) & lines)


def finite_columns(losses: Any, theta: Array) -> tuple[Any, ...]:
    """The same, the ends of hard rows put at ``-+ 2 |theta|`` instead of infinity.

    The conjugate at theta is the same, and the value 0 where the constraint holds; beyond its end
    the Fenchel-Young term is at most ``(b - t) theta < 0`` for the true ends, and 0 is charged.
    """
    b, e, q, lo, hi = columns(losses)
    hard = hard_rows(losses)
    if not hard.any():
        return b, e, q, lo, hi
    end = 2.0 * np.abs(theta)
    return (b, e, q, np.where(hard & np.isinf(lo), -end, lo),
            np.where(hard & np.isinf(hi), end, hi))


def piecewise_value(f: Any, t: Array) -> Array:
    """``f_i(t_i)``, shape (n,); `value_above` where a loss has a parabola, else its lines alone.

    Beyond the end of a hard row 0: by how much it is violated is said elsewhere.
    """
    b, e, q, lo, hi = finite_columns(f, np.zeros(1))
    if f.q.any():
        return np.asarray(value_above(t, b, e, q, lo, hi, steepness(q)))
    total = np.zeros_like(t)
    for side, slope in ((-1.0, -lo), (1.0, hi)):
        if slope.any():
            total += slope * np.maximum(side * (t - b) - e, 0.0)
    return total


def on_its_line(
    t: Array, theta: Array, error: Array, b: Array, e: Array, q: Array, lo: Array, hi: Array
) -> NDArray[np.bool_]:
    """Terms without curvature whose slope is that of the line that the margin is surely on.

    There the three parts of `gap_above` cancel identically, and it is 0.
    """
    tiny = error + 8.0 * EPS * (np.abs(t) + np.abs(b) + e)
    z = t - b
    beyond = tiny + e
    return ((theta == lo) & (z <= -beyond)) | ((theta == hi) & (z >= beyond))


def loss_gaps(t: Array, theta: Array, error: Array, value: Array, losses: Any) -> Array:
    """``f_i(t_i) + f_i*(theta_i) - t_i theta_i`` at most, margins within `error`, shape (n,)."""
    terms = finite_columns(losses, theta)
    if not losses.q.any() and len(t) > _BLOCK:
        open_terms = np.flatnonzero(~on_its_line(t, theta, error, *terms))
        if len(open_terms) < len(t) // 2:
            gaps = np.zeros(len(t))
            gaps[open_terms] = loss_gaps(
                t[open_terms], theta[open_terms], error[open_terms], value[open_terms],
                losses.take(open_terms),
            )
            return gaps
    if len(t) >= (_MANY_AT_FIRST if not_imported() else _MANY):
        gaps = np.empty(len(t))
        each_gap_above(t, theta, error, value, tuple(read_only(*terms)), gaps)
    else:
        gaps = np.concatenate([
            gap_above(*(part[at: at + _BLOCK] for part in (t, theta, error, value, *terms)))
            for at in range(0, max(len(t), 1), _BLOCK)
        ])
    lo, hi = terms[3:]
    if (lo < -1e300).any() or (hi > 1e300).any():
        gaps = gaps + endless_above(value, error, losses.q, lo, hi)
    return gaps


def summed_gap(
    t: Array, theta: Array, error: Array, value: Array, losses: Any
) -> tuple[float, float]:
    """The sum of `loss_gaps` at most, and what of it is rounding, from sums over all terms.

    That takes a fifth of the time and charges the rounding of every term, also of those whose parts
    cancel identically: a loss changes within `tiny` of a margin by its slope there, which is at
    most that of its lines, and ``sqrt(2 f / q) + tiny / q`` on a parabola. Where a term is a
    constraint that is endless.
    """
    b, e, q, lo, hi = columns(losses)
    size, places = np.abs(theta), np.abs(t) + np.abs(b) + e
    tiny = error + 8.0 * EPS * places
    steep = np.maximum(-lo, hi)
    if q.any():
        width = np.maximum(q, 1e-300)
        steep = np.minimum(steep, np.sqrt(2.0 * value / width) + tiny / width)
    if not steep.max(initial=0.0) < 1e200:
        return float("inf"), float("inf")
    total = float(value.sum())
    parabolas = 0.5 * float((q * theta) @ theta)
    gap = total + parabolas + float(b @ theta) + float(e @ size) - float(t @ theta)
    parts = total + parabolas + float(places @ size)
    rounding = float((steep + size) @ tiny) + (len(t) + 32) * EPS * parts
    return max(gap, 0.0) + rounding, rounding


def refined_margins(
    problem: Problem, x: Array, theta: Array, t: Array, values: Array, negligible: float
) -> tuple[Array, Array, Array]:
    """Margins, values and the margins' error, recomputed where rounding matters to the gap.

    At a kink the rounding of a margin is multiplied by the whole jump of the slope. Recomputed are
    terms inside their box (some of them), unless all their rounding is less than a two-hundredth of
    the terms themselves, or `negligible` (it is charged all the same).
    """
    f, error = problem.losses, problem.design.forward_error(x, problem.sizes)
    inside = np.flatnonzero((theta > f.lo) & (theta < f.hi) & (theta != 0))
    s, rows = theta[inside], inside[:_REFINED]
    hidden = float(steepest_slopes(s, f.lo[inside], f.hi[inside]) @ error[inside])
    if not len(rows) or hidden <= negligible:
        return t, values, error
    b, e, q = f.b[inside], f.e[inside], f.q[inside]
    conjugate = b * s + e * np.abs(s) + 0.5 * q * s**2
    gap = float(np.maximum(values[inside] + conjugate - t[inside] * s, 0.0).sum())
    if not hidden <= 0.005 * gap:
        t[rows], error[rows] = problem.design.forward_precise(rows, x)
        values[rows] = piecewise_value(f.take(rows), t[rows])
    return t, values, error


def steepest_slopes(theta: Array, lo: Array, hi: Array) -> Array:
    """The larger of a loss's two last slopes, ``|theta|`` for an infinite one, shape (n,)."""
    return np.maximum(np.where(np.isfinite(lo), -lo, np.abs(theta)),
                      np.where(np.isfinite(hi), hi, np.abs(theta)))


# -- an optimum of 0 ------------------------------------------------------------------------------


def counted_slopes(problem: Problem, x: Array, theta: Array) -> Array:
    """`theta` as far as it tells the scale of a gap: no constraint balances more than there is.

    That is the other slopes, the linear and the quadratic term. On a face without end multipliers
    may be anything (1e58, whose rounding is larger than any objective).
    """
    hard, sizes = hard_rows(problem.losses), problem.sizes
    if not hard.any():
        return theta
    others = np.abs(theta[~hard]) @ sizes[~hard] + np.linalg.norm(problem.linear)
    others += np.linalg.norm(problem.quadratic.apply(x))
    most = float(others) / np.maximum(sizes, 1e-300)
    return np.where(hard, np.clip(theta, -most, most), theta)


def rounding_alone(
    problem: Problem, x: Array, theta: Array, fy: Array, objective: float
) -> bool:
    """Whether rounding `x` to double precision accounts for the whole `objective`.

    That moves margins by a unit of ``|a_i| |x|``, so that no point nearby need fit better. The
    constant is not part of the objective; counted are the terms whose rounding is charged in `fy`,
    each with less than it is charged there.
    """
    if problem.penalty is not None or problem.drift > 0.0:
        return False
    steepest = steepest_slopes(theta, problem.losses.lo, problem.losses.hi)
    moved = float((steepest * problem.sizes)[fy > 0.0].sum()) * float(np.linalg.norm(x))
    return abs(objective) <= EPS * moved


def objective_above(problem: Problem, x: Array, t: Array, t_error: Array) -> float:
    """The objective at `x` at most, its margins being within `t_error` of `t`."""
    f = problem.losses
    reach = t_error + 4.0 * EPS * (np.abs(t) + np.abs(f.b) + f.e)
    ends = [piecewise_value(f, t + side * reach) for side in (-1.0, 1.0)]
    values = float(np.maximum(*ends).sum()) + 0.5 * problem.quadratic.norm(x) ** 2
    return values * (1.0 + (problem.n + 8 * problem.d + 64) * EPS)


def losses_at_zero(problem: Problem) -> float:
    """The losses at ``x = 0``, without terms that are constraints: those may be infinite there."""
    values = piecewise_value(problem.losses, np.zeros(problem.n))
    return float(values[~hard_rows(problem.losses)].sum())


FAR_AWAY, LOST = 4.0, 1e-3
"""How much may cancel where there are kinks, in units of what their places add: at a perfect fit it
is 2. And the share of the objective, or of this unit, that rounding may be. Of what is flat forever
(Huber's loss beside a line) points at 1e23 are optimal to the rounding of their losses, and have no
value."""


FEW_ENTRIES = 10_000_000
"""Of the data, up to which they are copied to see what cancels in squares (80 MB)."""


def size_of_kinks(problem: Problem, theta: Array) -> float:
    """The losses at 0 and ``sum_i |b_i theta_i|``: what the places of the kinks add."""
    return float(np.abs(problem.losses.b * theta).sum()) + losses_at_zero(problem)


def lost_in_rounding(
    problem: Problem, x: Array, theta: Array, values: Array, primal: float
) -> bool:
    """Whether losses and linear term are so large at x that nothing is left of their sum."""
    rounding = EPS * (float(np.abs(values).sum()) + float(np.abs(problem.linear) @ np.abs(x)))
    if rounding <= LOST * abs(primal):
        return False
    if not problem.losses.b.any():
        return False
    return rounding > LOST * size_of_kinks(problem, counted_slopes(problem, x, theta))


def cancelled(problem: Problem, x: Array, theta: Array, t: Array, values: Array) -> float:
    """What cancels where objective and gap are 0.

    ``sum_i f_i + |b_i theta_i| + |t_i theta_i|``; and, where all kinks are at 0, so that nothing
    else has a scale, ``1/2 (sum_i |theta_i| |a_i|)^2 / |M|`` for the dual objective's ``1/2 |A'
    theta + q|^2`` in ``M^{-1}``, of which A' theta may cancel, too; for squares alone without M
    (the distance of sets that meet) ``1/2 sum_i (sum_j |a_ij x_j|)^2 / q_i``. Beside other kinks
    that would dwarf all losses where the data are large, and any point would be exact to its
    rounding.
    """
    total = float(values.sum() + np.abs(problem.losses.b * theta).sum() + np.abs(t * theta).sum())
    if problem.losses.b.any():
        return min(total, FAR_AWAY * size_of_kinks(problem, theta))
    form = problem.quadratic
    steepest = float(form.diagonal.max(initial=0.0))
    if form.matrix is not None:
        steepest += float(np.abs(form.matrix).sum(axis=1).max())
    if steepest > 0.0:
        longest = float(np.abs(theta) @ problem.sizes)
        total += 0.5 * longest * longest / steepest
    elif problem.n * problem.d <= FEW_ENTRIES and isinstance(problem.design, Rows):
        _, e, q, low, high = columns(problem.losses)
        if (q > 0.0).all() and not e.any() and np.isinf(low).all() and np.isinf(high).all():
            parts = np.abs(problem.design.dense()) @ np.abs(x)
            total += 0.5 * float((parts * parts / q).sum())
    return total


# -- the quadratic term and the side constraints --------------------------------------------------


class SidePart(NamedTuple):
    """What constraints ``F x + f in K`` add, with multipliers mu; nothing without constraints.

    Attributes
    ----------
    residual : array, shape (d,)
        ``A' theta + q - F' mu`` (and ``M x`` where M is singular).
    residual_error : array, shape (d,)
        Rounding of ``F' mu``.
    gap : float
        ``<mu, F x + f>`` at most.
    distance_error : float
        Of ``||x - x_theta||_M`` by the rounding of ``F' mu``.
    violation, size : float
        Distance of ``F x + f`` from K, and what it is relative to.
    multipliers : array
        In the dual cone.
    refused : str
        Why the multipliers prove nothing; empty if they do.
    """

    residual: Array
    residual_error: Array | float = 0.0
    gap: float = 0.0
    distance_error: float = 0.0
    violation: float = 0.0
    size: float = 1.0
    multipliers: Array | None = None
    refused: str = ""


def side_part(
    problem: Problem, x: Array, mu: Array, residual: Array
) -> SidePart:
    """The part of the side constraints of `problem`; `residual` is ``A' theta + q``."""
    side = problem.side
    if side is None:
        return SidePart(residual)
    if not np.isfinite(mu).all():
        return SidePart(
            residual, refused="the multipliers of the side constraints hold NaN or infinity"
        )
    away = float(np.linalg.norm(mu - side.project_dual(mu)))
    if away > 1e-9 * (1.0 + float(np.linalg.norm(mu))):
        return SidePart(
            residual, refused="the multipliers of the side constraints leave the dual cone"
        )
    mu = side.project_dual(mu)  # only an exact member of K* proves anything
    residual = residual - side.adjoint(mu)
    slack = side.slack(x)
    violation = float(np.linalg.norm(slack - side.project(slack)))
    # Rows without a multiplier add zeros to the sums, which rounds nothing.
    matrix, filled = abs(side.matrix), int(np.diff(side.matrix.indptr).max(initial=0))
    unit: float = 4 * (min(int(np.count_nonzero(mu)), _SUMMED) + filled + 8) * EPS
    reach = matrix @ np.abs(x) + np.abs(side.offset)
    gap = abs(float((mu * slack).sum())) + unit * float(np.abs(mu) @ reach)
    load = matrix.T @ np.abs(mu) + np.abs(residual)
    size = 1.0 + float(np.linalg.norm(side.offset))
    unit = 4 * (np.count_nonzero(mu) + problem.d + 8) * EPS
    reach_error = unit * problem.quadratic.dual_reach(load)
    # Each column is a sum over the multipliers in it.
    counts = np.bincount(matrix.indices, minlength=problem.d)
    error = 4 * (np.minimum(counts, np.count_nonzero(mu)) + 8) * EPS * load
    return SidePart(residual, error, gap, reach_error, violation, size, mu)


def primal_of_dual(problem: Problem, x: Array, residual: Array) -> Array:
    """``x_theta = -M^{-1} residual`` where M has curvature; x itself on free coordinates."""
    return np.where(problem.quadratic.free, x, -_independent_solve(problem, residual))


def _independent_solve(problem: Problem, residual: Array) -> Array:
    """``M^{-1} residual`` by LU of the dense matrix (or a division), with one refinement."""
    quadratic = problem.quadratic
    if quadratic.matrix is None:
        out = np.zeros_like(residual)
        return np.divide(residual, quadratic.diagonal, out=out, where=quadratic.diagonal > 0)
    curved = np.flatnonzero(~quadratic.free)
    matrix = quadratic.dense()[np.ix_(curved, curved)]
    solution = np.linalg.solve(matrix, residual[curved])
    solution += np.linalg.solve(matrix, residual[curved] - matrix @ solution)
    out = np.zeros_like(residual)
    out[curved] = solution
    return out


# -- a penalty ------------------------------------------------------------------------------------


class PenaltyPart(NamedTuple):
    """The parts of the regulariser's Fenchel-Young term ``g(x) + g*(v) - <v, x>``.

    It is ``1/2 ||x - x_v||_M^2`` plus a non-negative remainder, ``x_v`` the maximiser in ``g*(v)``.

    Attributes
    ----------
    x_theta : array, shape (d,)
        ``x_v``, within `dual_error` (Euclidean) of one that belongs to a feasible dual point.
    remainder : float
        Upper bound of the term without ``1/2 ||x - x_v||_M^2``.
    x_error, dual_error : float
        Euclidean distance of x from a point surely in the domain; the same for ``M x_v``.
    outside : str
        Why x is refused; empty if it is in the domain.
    """

    x_theta: Array
    remainder: float
    x_error: float = 0.0
    dual_error: float = 0.0
    outside: str = ""


def penalty_part(problem: Problem, x: Array, v: Array) -> PenaltyPart:
    """The regulariser's Fenchel-Young term of `problem` at ``(x, v)``.

    Raises
    ------
    InvalidInput
        For a penalty it does not know: no certificate without a formula of its own.
    """
    penalty, diagonal = problem.penalty, problem.quadratic.diagonal
    if isinstance(penalty, L1):
        return _l1(penalty.kappa, diagonal, x, v)
    if isinstance(penalty, NonNegative):
        outside = f"x has a negative entry, {x.min():.3g}" if (x < 0).any() else ""
        positive_part = np.where(v > 0, v, 0.0)
        remainder = float(np.sum(np.where(v < 0, x * np.abs(v), 0.0))) * (1 + 4 * len(x) * EPS)
        return PenaltyPart(positive_part / diagonal, remainder, outside=outside)
    if isinstance(penalty, PSD):
        return _psd(penalty.side, float(diagonal[0]), x, v)
    raise InvalidInput(f"`penalty` {penalty!r} is not known to the certificate.")


def _l1(kappa: Array, diagonal: Array, x: Array, v: Array) -> PenaltyPart:
    """Of soft thresholding; ``|v_j| <= kappa_j`` wherever there is no quadratic term."""
    beyond = np.abs(v) - kappa
    curved = diagonal > 0
    x_theta = x.copy()
    x_theta[curved] = np.where(
        beyond[curved] > 0, np.sign(v[curved]) * beyond[curved] / diagonal[curved], 0.0
    )
    aligned = v * np.sign(x)
    inner = np.where(np.abs(v) <= kappa, kappa - aligned, np.where(aligned < 0, 2.0 * kappa, 0.0))
    remainder = float(np.sum(np.abs(x[curved]) * inner[curved])) * (1 + 4 * len(x) * EPS)
    return PenaltyPart(x_theta, remainder)


def _psd(side: int, weight: float, x: Array, v: Array) -> PenaltyPart:
    """Of a matrix in the cone up to the rounding of its eigenvalues, whose distance is charged."""
    square, dual = x.reshape(side, side), v.reshape(side, side)
    if not np.array_equal(square, square.T):
        return PenaltyPart(np.zeros_like(x), np.inf, outside="x is not a symmetric matrix")
    values = np.linalg.eigvalsh(square)
    x_error = 32.0 * side * EPS * float(np.abs(values).max(initial=0.0))
    outside = ""
    if side and values[0] < -x_error:
        outside = f"x is not positive semidefinite: smallest eigenvalue {values[0]:.3g}"
    dual = 0.5 * (dual + dual.T)
    levels, frame = np.linalg.eigh(dual)
    lifted = np.maximum(levels, 0.0)
    positive_part = (frame * lifted) @ frame.T
    positive_part = 0.5 * (positive_part + positive_part.T)
    dual_error = 32.0 * side * EPS * float(np.abs(levels).max(initial=0.0))
    negative_part = positive_part - dual  # -s, up to dual_error
    product = square.astype(np.longdouble) * negative_part
    rounding = 4.0 * side**2 * float(np.finfo(np.longdouble).eps) * float(np.abs(product).sum())
    remainder = max(float(product.sum()), 0.0) + rounding
    remainder += x_error * (float(np.trace(np.abs(negative_part))) + side * dual_error)
    remainder += dual_error * float(np.trace(np.abs(square)))
    root = float(np.sqrt(side))
    return PenaltyPart(
        positive_part.ravel() / weight, remainder, root * x_error, root * dual_error, outside
    )


# -- a coordinate that nothing penalises ----------------------------------------------------------


def imbalance_cost(
    problem: Problem, theta: Array, t: Array, residual: Array, distance: float, negligible: float
) -> float:
    """What it costs that ``e' theta + q`` is not exactly 0 on one free coordinate's column e.

    A dual point that is balanced exactly must exist nearby; infinite if that is not clear. Of the
    terms that may take the residual up one in many is asked first.

    Parameters
    ----------
    residual : array, shape (d,)
        ``A' theta + q``.
    distance : float
        Upper bound of ``||x - x_theta||_M``.
    negligible : float
        A cost so small that no better bound of it is looked for.
    """
    free_columns, terms = problem.free_columns, columns(problem.losses)
    residual = np.abs(residual[problem.free_index]) + problem.imbalance
    residual = residual + problem.design.adjoint_factor * (np.abs(free_columns).T @ np.abs(theta))
    if not residual.any():
        return 0.0
    need = float(residual[0]) * (1.0 + 1e-6)
    for every in sorted({1, max(problem.n // _ASKED, 1)}, reverse=True):
        e, s, at, norms, b, width, q, lo, hi = (
            numbers[::every] for numbers in (free_columns[:, 0], theta, t, problem.norms, *terms)
        )
        # What the gap grows by for a unit of a slope.
        rate = np.abs(at) + np.abs(b) + width + q * np.abs(s) + norms * distance
        cost = taken_up(e, hi - s, s - lo, rate, need)
        if cost <= negligible:
            return cost
    if np.isfinite(cost):
        return cost
    return 0.0 if balanced_exactly(problem, theta) else float("inf")


def taken_up(e: Array, rise: Array, fall: Array, rate: Array, need: float) -> float:
    """What it costs that one term takes up ``need > 0`` of ``sum_i e_i theta_i``, either way.

    Infinite where no term has the room one of the ways.

    Parameters
    ----------
    e : array, shape (n,)
    rise, fall : array, shape (n,)
        How far each slope may go up and down.
    rate : array, shape (n,)
        How fast the gap grows with a move of it.
    """
    costs, size = [], np.abs(e)
    for up, down in ((rise, fall), (fall, rise)):
        room = np.where(e > 0.0, up, np.where(e < 0.0, down, 0.0))  # it may be infinite
        fit = (size > 0.0) & (room * size >= need)
        costs.append(float((rate[fit] / size[fit]).min(initial=np.inf)))
    return need * max(costs)


def balanced_exactly(problem: Problem, theta: Array) -> bool:
    """Whether ``E' theta + q = 0`` in rational arithmetic (and nothing in it is rounded)."""
    if problem.side is not None or problem.imbalance > 0:
        return False
    used = np.flatnonzero(theta)
    for j, target in enumerate(problem.linear[problem.quadratic.free]):
        column = problem.free_columns[used, j]
        products = (Fraction(float(c)) * Fraction(float(s))
                    for c, s in zip(column, theta[used], strict=True) if c)
        if sum(products, Fraction(float(target))) != 0:
            return False
    return True


# -- rows far from 0 -------------------------------------------------------------------------------


MOST, LEAST = 1e300, 1e-290
"""Coordinates between which rounding is relative: 1e8 times below the largest number there is, and
4e17 times above the least one that has all its digits."""


def about_centre(problem: Problem, x: Array) -> tuple[Problem, Array] | None:
    """The problem of shifted rows, and `x` there; None where rows are near, or nothing takes it up.

    Let nothing know the coordinate b of ``x = (w, b)`` but the losses: no squares, constraints,
    penalty or linear term. For any fixed m with ``m_b = 0``

    ::

        <a_i, x> = <a_i - e_i m, w> + e_i (b + <m, w>),      e the column of b,

    so that ``(w, b) -> (w, b + <m, w>)`` takes every x of the problem to one of the problem of the
    shifted rows with the same objective, and every such point back: a gap of the one is a gap of
    the other, for the same slopes. What rounding hides of it grows with the length of the rows,
    which is all that m changes: means of 10,000 times the spread cost four digits.

    Rounded are the entries, ``fl(a_ij - e_i m_j) = (a_ij - e_i m_j)(1 + u)``, ``e_i m_j`` being
    exact where e is 0, 1 or -1, and the coordinate, ``fl(b + <m, w>)``, which is summed in rational
    arithmetic. In a margin each is one more rounding of one product, in ``A' theta`` the former
    (`Rows.roundings`).

    Parameters
    ----------
    problem : Problem
    x : array, shape (d,)
        Finite.

    Returns
    -------
    equivalent : Problem
        Rows `Rows.roundings` of which covers what has been rounded, in rows and point.
    x : array, shape (d,)
    """
    form = problem.quadratic
    if problem.penalty is not None or problem.drift or problem.imbalance:
        return None
    if not isinstance(form, Quadratic) or form.singular or not form.untouched.any():
        return None
    shift = Shift.of(problem.design, form.held_with(problem.side) | (problem.linear != 0.0))
    if shift is None or not np.isin(shift.ones, (-1.0, 0.0, 1.0)).all():
        return None
    free, mean = shift.free, shift.mean
    if not float(np.abs(mean) @ np.abs(x)) + abs(x[free]) < MOST:
        return None
    used = np.flatnonzero((mean != 0.0) & (x != 0.0))
    products = (Fraction(float(m)) * Fraction(float(w))
                for m, w in zip(mean[used], x[used], strict=True))
    moved = x.copy()
    moved[free] = float(sum(products, Fraction(float(x[free]))))
    if 0.0 < abs(moved[free]) < LEAST:
        return None
    return replace(problem, design=shift.rows(roundings=1)), moved


# -- several coordinates that no quadratic term holds ---------------------------------------------


class FreeCost(NamedTuple):
    """What the residual r on coordinates that no quadratic term holds may cost, and how far.

    Attributes
    ----------
    cost : float
        To be added to the gap.
    within : float
        For points at most so far from x; infinite for all points.
    residual : float
        Largest entry of r.
    """

    cost: float
    within: float = float("inf")
    residual: float = 0.0


class Residual(NamedTuple):
    """r on the free coordinates, at the indices `free`: as computed, and its rounding."""

    free: NDArray[np.intp]
    value: Array
    error: Array

    @property
    def above(self) -> Array:
        """Upper bounds of ``|r|``, rounding included."""
        return np.abs(self.value) + self.error

    def take(self, mask: NDArray[np.bool_]) -> Residual:
        """The same of the coordinates at `mask`."""
        return Residual(self.free[mask], self.value[mask], self.error[mask])


def cost_of_free(
    problem: Problem, x: Array, theta: Array, t: Array, t_error: Array, primal: float,
    side: SidePart, distance: float, tolerance: float,
) -> FreeCost:
    """What the free coordinates of `problem` cost, by the first source that bounds it.

    Where there is one, and losses see it, only its slopes are moved.

    Parameters
    ----------
    t, t_error : array, shape (n,)
        ``A x`` and its error.
    primal : float
        Objective at x.
    distance : float
        Upper bound of ``||x - x_theta||_M``.
    tolerance : float
        The gap that is asked for; of a cost that is a part of it no better bound is looked for.
    """
    free = problem.free_index
    if not len(free):
        return FreeCost(0.0)
    if len(free) == 1 and problem.free_columns.any():
        enough = NEGLIGIBLE * tolerance
        return FreeCost(imbalance_cost(problem, theta, t, side.residual, distance, enough))
    design, quadratic, enough = problem.design, problem.quadratic, ENOUGH * tolerance
    size = float(np.sqrt(np.sum(theta * theta))) * (1.0 + 4 * (problem.n + 8) * EPS)
    within = FAR * max(1.0, float(np.linalg.norm(x)))
    error = adjoint_error(problem, theta)
    if isinstance(design, Rows) and float(error.max()) * within > enough:
        error = np.minimum(error, closer_adjoint_error(problem, theta))
    error = error[free] + problem.imbalance + np.broadcast_to(side.residual_error, x.shape)[free]
    error = error + 4.0 * EPS * np.abs(side.residual[free])
    indefiniteness = 0.0
    if isinstance(quadratic, Quadratic) and quadratic.singular:
        matrix = quadratic.dense()
        top = float(np.abs(matrix).sum(axis=0).max())
        # How far below 0 an eigenvalue may be: that much the gradient inequality may be off.
        indefiniteness = max(
            4.0 * problem.d * EPS * top - float(np.linalg.eigvalsh(matrix)[0]), 0.0
        )
        error = error + 4 * (problem.d + 4) * EPS * (np.abs(matrix) @ np.abs(x))[free]
    r = Residual(free, side.residual[free], error)
    largest = float(np.abs(r.value).max())
    if not r.above.any() and not indefiniteness:
        return FreeCost(0.0, residual=largest)
    own = float("inf")
    if not indefiniteness:
        if problem.side is not None and problem.side.many_cones:
            own = norms_growth_cost(problem, x, theta, side.multipliers, primal)
        if own > enough:
            own = min(own, own_growth_cost(
                problem, x, theta, t, t_error, primal, r, mu=side.multipliers
            ))
        if own <= enough:
            return FreeCost(own, residual=largest)
    if problem not in _BOXES:  # a problem never changes, and is judged at many points
        _BOXES[problem] = bounding_box(problem)
    low, high = _BOXES[problem]
    away = np.maximum(np.maximum(x - low, high - x), 0.0)[free]
    unbounded, pair = ~np.isfinite(away), (theta, t, t_error)
    reach = np.where(unbounded, 0.0, away)
    if not unbounded.any():
        cost = float(r.above @ reach)
        if cost > enough:
            cost = min(cost, own, alone_cost(problem, r, ~unbounded, reach, pair, distance))
        return FreeCost(
            cost + 0.5 * indefiniteness * float(reach @ reach), residual=largest
        )
    rest = float(r.above[~unbounded] @ reach[~unbounded])
    # What no loss sees, as a level that budgets share, no slope can take up.
    unseen = unbounded & (problem.column_sizes[free] == 0.0)
    far = float(np.linalg.norm(r.above[unseen])) * within * (1.0 + 1e-9)
    taken_up = unbounded & ~unseen
    cost = rest
    if taken_up.any():
        # The bounded coordinates may be charged, too: thousands of columns fewer to balance.
        cost = nearby_cost(problem, r, taken_up, reach, pair, distance, enough)
    if not (cost <= enough or unbounded.all()):
        cost = min(cost, nearby_cost(problem, r, ~unseen, reach, pair, distance, enough))
    if own <= cost + far and np.isfinite(own):
        return FreeCost(own, residual=largest)
    cost += far
    if np.isfinite(cost):
        if not (indefiniteness or far):
            return FreeCost(cost, residual=largest)
        return FreeCost(cost + 0.5 * indefiniteness * within * within, within, largest)
    if len(free) == problem.d:
        curved = isinstance(quadratic, Quadratic) and quadratic.dense().any()
        cost = growth_cost(problem, x, theta, t, t_error, primal, r, indefiniteness)
        exact = problem.imbalance == 0.0 and not curved
        if enough < cost < np.inf and exact and isinstance(design, Rows):
            # Where fewer slopes than coordinates have room, rounding is all that there is to r.
            value, factor = design.adjoint_precise(theta)
            error = factor * size * problem.column_sizes + EPS * np.abs(value)
            r = Residual(free, value, error)
            cost = min(cost, growth_cost(problem, x, theta, t, t_error, primal, r, indefiniteness))
        if np.isfinite(cost):
            return FreeCost(cost, residual=largest)
    cost = rest + float(np.linalg.norm(r.above[unbounded])) * within * (1.0 + 1e-9)
    if not indefiniteness:
        near = within * (1.0 + 1e-9)
        own = own_growth_cost(problem, x, theta, t, t_error, primal, r, near, side.multipliers)
        cost = min(cost, own)
    return FreeCost(cost + 0.5 * indefiniteness * within * within, within, largest)


def adjoint_error(problem: Problem, theta: Array) -> Array:
    """Rounding of ``A' theta`` at most, shape (d,): a share of ``sum_i |a_ij theta_i|``.

    Rows of one entry, as of an L1 norm, are in the sum of that coordinate alone.
    """
    design, others, own = problem.design, theta, np.zeros(problem.d)
    if isinstance(design, Rows) and problem.n <= ALONE * problem.d:
        terms, places, factors = design.single
        np.add.at(own, places, np.abs(factors * theta[terms]))
        others = theta.copy()
        others[terms] = 0.0
    size = float(np.sqrt(np.sum(others * others))) * (1.0 + 4 * (problem.n + 8) * EPS)
    return np.asarray(design.adjoint_factor * (size * problem.column_sizes + own))


def closer_adjoint_error(problem: Problem, theta: Array) -> Array:
    """The same, at the cost of a pass; far less where few of many slopes are not small.

    By the inequality of Cauchy and Schwarz, too, but of ``|theta_i|^(1/2)`` and ``|theta_i|^(1/2)
    a_ij``: a row with a small slope adds little to any column.
    """
    sizes = np.abs(theta)
    sums = np.sqrt(float(sizes.sum()) * column_squares(problem.design, sizes))
    return np.asarray(problem.design.adjoint_factor * sums * (1.0 + 4 * (problem.n + 8) * EPS))


def nearby_cost(
    problem: Problem, r: Residual, mask: NDArray[np.bool_], reach: Array,
    pair: tuple[Array, Array, Array], distance: float, enough: float,
) -> float:
    """What exactly balanced slopes close to theta cost, or infinity if none are known to be near.

    Of a cost up to `enough` no better bound is looked for.

    Some slopes with room in their boxes take up r at the coordinates of `mask`; what that does to
    the others is charged over their `reach`. A slope moved by s changes its term by at most
    ``|s| (|b + q theta - t| + e) + q s^2 / 2``.
    """
    wanted, cost = int(mask.sum()), float("inf")
    if wanted == 1:
        cost = one_slope_cost(problem, r, mask, reach, pair, distance)
    elif wanted >= _MANY_FREE:
        cost = alone_cost(problem, r, mask, reach, pair, distance)
    if cost <= enough:
        return cost
    movable, most = Movable.of(problem, pair), 4 * wanted + 4
    if len(movable.terms) < wanted:
        return cost
    for score in (movable.cheapness, movable.weight):
        if cost <= enough:
            break
        cost = min(cost, moved_cost(
            problem, r, mask, reach, movable.best(score, most), distance
        ))
    return cost


_CANDIDATES = 16
"""Slopes that are asked for each way."""


def one_slope_cost(
    problem: Problem, r: Residual, mask: NDArray[np.bool_], reach: Array,
    pair: tuple[Array, Array, Array], distance: float,
) -> float:
    """The same where one coordinate is left: one slope takes up r there, either way another one.

    That may be at an end of its box, with room one way: where whole numbers of terms balance, as
    for a value at risk, none is inside.
    """
    if not isinstance(problem.design, Rows):
        return float("inf")
    theta, f = pair[0], problem.losses
    column = problem.design.take_columns(r.free[mask]).dense()[:, 0]
    seen = np.flatnonzero(column)
    e, need = column[seen], float(r.above[mask][0]) * (1.0 + 1e-6)
    rise, fall = (f.hi - theta)[seen], (theta - f.lo)[seen]
    size, rate = np.abs(e), unit_costs(problem, pair, seen)
    some = []
    for room in (np.where(e > 0.0, rise, fall), np.where(e > 0.0, fall, rise)):
        fit = np.flatnonzero(room * size >= need)
        if len(fit) > _CANDIDATES:
            fit = fit[np.argpartition(rate[fit] / size[fit], _CANDIDATES)[:_CANDIDATES]]
        some.append(fit)
    at = np.unique(np.concatenate(some))
    left, move, terms = ~mask & (reach > 0), need / size[at], seen[at]
    pushed = np.abs(problem.design.dense(terms)[:, r.free[left]]) @ reach[left]
    shift = problem.norms[terms] * (distance + 0.5 * problem.norms[terms] * move)
    rates = rate[at] + 0.5 * f.q[terms] * move + pushed + shift
    cost = taken_up(e[at], rise[at], fall[at], rates, need)
    return (cost + float(r.above[left] @ reach[left])) * (1.0 + 1e-6)


_ROOM = 100.0
"""Room of such a slope in units of what it takes up for sure: others push as much, or more."""
_MANY_FREE = 100
"""Coordinates from which on rows of one entry are looked for: a factorisation takes longer."""


def alone_cost(
    problem: Problem, r: Residual, mask: NDArray[np.bool_], reach: Array,
    pair: tuple[Array, Array, Array], distance: float,
) -> float:
    """The same where most coordinates of `mask` have a row of that one entry whose slope has room.

    As of an L1 norm, at coordinates that are 0. It takes up what is left there once the others are
    balanced: no more than these have to be factorised. Infinity where there are few such rows.
    """
    if not isinstance(problem.design, Rows) or problem.n > ALONE * problem.d:
        return float("inf")
    rows, columns, _ = problem.design.single
    movable = Movable.of(problem, pair)
    at, place = np.full(problem.n, -1, dtype=np.intp), np.full(problem.d, -1, dtype=np.intp)
    at[movable.terms] = np.arange(len(movable.terms))
    place[r.free[mask]] = np.flatnonzero(mask)
    use = (at[rows] >= 0) & (place[columns] >= 0)
    rows, columns = at[rows[use]], place[columns[use]]
    use = movable.weight[rows] > _ROOM * r.above[columns]
    rows, columns = rows[use], columns[use]
    order = np.argsort(movable.weight[rows], kind="stable")
    best = np.full(len(mask), -1, dtype=np.intp)
    best[columns[order]] = rows[order]  # of several the last one stays
    places = np.flatnonzero(best >= 0)
    mask = mask.copy()
    mask[places] = False
    wanted, rest = int(mask.sum()), np.delete(np.arange(len(movable.terms)), best[places])
    if wanted > min(len(places), len(rest)):
        return float("inf")
    rest = rest[np.argsort(-movable.weight[rest], kind="stable")[: 4 * wanted]]
    alone = places, movable.take(best[places])
    return moved_cost(problem, r, mask, reach, movable.take(rest), distance, alone)


def unit_costs(
    problem: Problem, pair: tuple[Array, Array, Array], terms: NDArray[np.intp]
) -> Array:
    """What moving the slopes of some terms costs a unit, at first; curvature adds to it."""
    (theta, t, t_error), f = pair, problem.losses
    b, e, curve, s, margin = f.b[terms], f.e[terms], f.q[terms], theta[terms], t[terms]
    cost = np.abs(b + curve * s - margin) + e + t_error[terms]
    return np.asarray(cost + 4.0 * EPS * (np.abs(b) + np.abs(curve * s) + np.abs(margin)))


class Movable(NamedTuple):
    """Slopes with room in their boxes: where they are, and what it costs to move them.

    `unit_cost` is what a unit costs at first: least where a margin is the one of its slope; `room`
    the way to the nearer end, `far` how far each may go in comparison, `weight` the same in units
    of its row.
    """

    terms: NDArray[np.intp]
    unit_cost: Array
    room: Array
    far: Array
    weight: Array

    @classmethod
    def of(cls, problem: Problem, pair: tuple[Array, Array, Array]) -> Movable:
        """Those of a pair: slopes, margins and their errors."""
        theta, f = pair[0], problem.losses
        room = np.minimum(theta - f.lo, f.hi - theta)
        far = np.minimum(room, 1.0 + np.abs(theta))
        inside = np.flatnonzero(far * problem.sizes > 0)
        unit_cost, weight = unit_costs(problem, pair, inside), far * problem.sizes
        return cls(inside, unit_cost, room[inside], far[inside], weight[inside])

    def take(self, which: NDArray[np.intp] | NDArray[np.bool_]) -> Movable:
        """The same of some of its terms, by their positions in `terms`."""
        terms, unit_cost, room, far, weight = self
        return Movable(terms[which], unit_cost[which], room[which], far[which], weight[which])

    @property
    def cheapness(self) -> Array:
        """How far each goes at the cost of a unit, shape (m,)."""
        return self.weight / np.maximum(self.unit_cost, 1e-300)

    def best(self, score: Array, most: int) -> Movable:
        """The same of so many at most, by a score that is high for the best."""
        return self.take(np.argpartition(-score, most)[:most]) if len(score) > most else self


def ways_to_move(columns: Array, above: Array, movable: Movable) -> Array | None:
    """How far slopes go at most, shape (m,), to take up exactly what is at most `above`; or None.

    Parameters
    ----------
    columns : array, shape (m, k)
        Entries of the rows of the `movable` slopes in k columns.
    above : array, shape (k,)
    movable : Movable
        Slopes; those with next to no room hardly move.

    Returns
    -------
    array, shape (m,), or None
        None where the slopes have not the room for it, or where rounding hides it.
    """
    if columns.shape[0] < columns.shape[1]:
        return None
    # In units of each coordinate, powers of two: nothing is rounded, and columns may differ.
    _, power = np.frexp(np.abs(columns).max(axis=0, initial=0.0))
    columns, above, far = np.ldexp(columns, -power), np.ldexp(above, -power), movable.far
    q, triangle = np.linalg.qr(far[:, None] * columns)
    if not np.abs(np.diag(triangle)).min(initial=np.inf) > 0.0:
        return None
    # columns' inverse = I
    inverse = far[:, None] * solve_triangular(triangle, q.T, check_finite=False).T
    defect = float(np.linalg.norm(columns.T @ inverse - np.eye(columns.shape[1])))
    # Of ``(I + E)^-1 above``, E the defect: off by 2e-6 of its norm in each entry.
    above = above + 1e-5 * float(np.linalg.norm(above))
    move = np.abs(inverse) @ above * (1.0 + 1e-4)
    return move if defect <= 1e-6 and (move <= movable.room).all() else None


def moved_cost(
    problem: Problem, r: Residual, mask: NDArray[np.bool_], reach: Array, movable: Movable,
    distance: float, alone: tuple[NDArray[np.intp], Movable] | None = None,
) -> float:
    """What it costs that slopes take up r at the coordinates of `mask`, all of the `movable` ones.

    `alone` are places in r and slopes with a row of that
    one entry each: what the others leave there is taken up by these.
    """
    inside, unit_cost = movable.terms, movable.unit_cost
    rows = problem.design.dense(inside)
    move = ways_to_move(rows[:, r.free[mask]], r.above[mask], movable)
    if move is None:
        return float("inf")
    cost = float(move @ (unit_cost + 0.5 * problem.losses.q[inside] * move))
    shift = float(move @ problem.norms[inside])
    left = ~mask & (reach > 0)
    if alone is not None:
        places, own = alone
        left[places] = False
        more = r.above[places] + np.abs(rows[:, r.free[places]]).T @ move
        more = more / problem.sizes[own.terms] * (1.0 + 1e-6)
        if not (more <= own.room).all():
            return float("inf")
        cost += float(more @ (own.unit_cost + 0.5 * problem.losses.q[own.terms] * more))
        shift += float(more @ problem.norms[own.terms])
    cost += shift * distance + 0.5 * shift * shift
    pushed = r.above[left] + np.abs(rows[:, r.free[left]]).T @ move
    return (cost + float(pushed @ reach[left])) * (1.0 + 1e-6)


_BOXES: weakref.WeakKeyDictionary[Problem, tuple[Array, Array]] = weakref.WeakKeyDictionary()
"""What is known of each problem's coordinates."""


def bounding_box(problem: Problem) -> tuple[Array, Array]:
    """Bounds of every feasible x, from its constraints, shape (d,) each; infinite if unknown.

    Each row ``lo <= <g, x> <= hi`` bounds a coordinate once it is known what the others do to it;
    a few rounds of that find boxes, simplices, balls, and what follows from these. Two rows
    ``u >= w`` and ``u >= -w`` say that u is not negative, which is how balls of the L1 norm begin;
    a second-order cone has two such rows for each entry of its tail. Where they hold norms of
    blocks, one head each, neither rows nor pairs of them are looked for. Ends are moved outward.
    """
    d = problem.d
    low, high = np.full(d, -np.inf), np.full(d, np.inf)
    parts, norms = [], None
    if problem.side is not None:
        offset, norms = problem.side.offset, problem.side.norms
        below = np.zeros(len(offset), dtype=bool)
        below[norms.head_rows] = below[norms.rows] = True
        low[norms.heads] = 0.0
        many = len(problem.side.dims) - int((~norms.paired).sum()) > MANY_CONES
        for kind, _, rows in problem.side.blocks():
            if kind == "psd" or (kind == "soc" and (many or below[rows.start])):
                continue
            some, least = problem.side.matrix[rows], -offset[rows]
            if below[rows].any():
                some, least = some[~below[rows]], least[~below[rows]]
            if kind != "soc":
                single = np.diff(some.indptr) == 1
                at, end = some.indptr[:-1][single], least[single]
                ends = end, end if kind == "zero" else np.full(len(end), np.inf)
                _within_bounds(some.indices[at], some.data[at], *ends, low, high)
                some, least = some[~single], least[~single]
            if kind == "soc":
                heads = sp.csr_array(np.ones((some.shape[0] - 1, 1))) @ some[:1]
                some = sp.vstack([heads - some[1:], heads + some[1:]], format="csr")
                least = np.concatenate([least[0] - least[1:], least[0] + least[1:]])
                least = least - 2.0 * EPS * np.abs(least)
            if not 0 < some.nnz <= _MOST_ENTRIES:
                continue
            top = least if kind == "zero" else np.full(len(least), np.inf)
            parts.append(_RowBounds.of(some, least, top))
            parts[-1].opposite().tighten(low, high)  # by one coordinate each: once is enough
    hard = np.flatnonzero(hard_rows(problem.losses))
    f = problem.losses.take(hard)
    least, most = np.where(np.isinf(f.lo), f.b, -np.inf), np.where(np.isinf(f.hi), f.b, np.inf)
    if 0 < len(hard) <= ALONE * d and isinstance(problem.design, Rows):
        alone, columns, factors = problem.design.take_rows(hard).single
        _within_bounds(columns, factors, least[alone], most[alone], low, high)
        rest = np.delete(np.arange(len(hard)), alone)
        hard, least, most = hard[rest], least[rest], most[rest]
    step = -(-len(hard) // (ALONE * d))
    # Of many rows of data a few bound about as much, all of them what these leave endless.
    for some in (slice(None, None, step or 1), slice(None)):
        if 0 < len(hard) * d <= _MOST_ENTRIES:
            rows = problem.design.rows_csr(hard[some])
            parts.append(_RowBounds.of(rows, least[some], most[some]))
        for _ in range(_BOX_ROUNDS if parts else 0):
            before = low.copy(), high.copy()
            for part in parts:
                part.tighten(low, high)
            if norms is not None:
                reach = (norms.scales * high[norms.heads])[norms.owner]
                _within_bounds(norms.coordinates, norms.factors, -reach, reach, low, high)
            if np.array_equal(before[0], low) and np.array_equal(before[1], high):
                break
        if step <= 1 or not _may_end(problem, hard, least, most, low, high):
            break
    return low, high


_MANY_ENDLESS = 20
"""Coordinates without an end of the box of which each is looked at, whether a row may say one."""


def _may_end(
    problem: Problem, rows: Index, least: Array, most: Array, low: Array, high: Array
) -> bool:
    """Whether rows ``least <= <a, x> <= most`` of the data may bound what the box leaves endless.

    By the signs of their entries: whatever losses lie below ``t`` says nothing of t from above.
    """
    endless = np.flatnonzero(np.isinf(low) | np.isinf(high))
    if len(endless) > _MANY_ENDLESS:
        return True
    for j in endless:
        column = problem.design.column(int(j))[rows]
        rising = ((column > 0.0) & np.isfinite(least)) | ((column < 0.0) & np.isfinite(most))
        falling = ((column < 0.0) & np.isfinite(least)) | ((column > 0.0) & np.isfinite(most))
        if (np.isinf(low[j]) and rising.any()) or (np.isinf(high[j]) and falling.any()):
            return True
    return False


def _within_bounds(
    columns: Index, factors: Array, least: Array, most: Array, low: Array, high: Array
) -> None:
    """Sharpen the box, in place, by ``least <= a x_j <= most``: rounded is but a quotient."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ends = np.sort(np.stack([least, most]) / factors, axis=0)
        below, above = ends[0] - 4.0 * EPS * np.abs(ends[0]), ends[1] + 4.0 * EPS * np.abs(ends[1])
    np.maximum.at(low, columns, np.where(np.isfinite(below), below, -np.inf))
    np.minimum.at(high, columns, np.where(np.isfinite(above), above, np.inf))


_MOST_ENTRIES, _BOX_ROUNDS = 20_000_000, 4
"""Entries of the constraints that are looked at (half a second), and how often."""


class _RowBounds(NamedTuple):
    """Rows ``least <= <g, x> <= most`` by their entries, none of which is 0.

    Attributes
    ----------
    owner, columns : arrays of int, shape (k,)
        Row and coordinate of each entry, row by row.
    factors : array, shape (k,)
    least, most : arrays, shape (m,)
    """

    owner: Index
    columns: Index
    factors: Array
    least: Array
    most: Array

    @classmethod
    def of(cls, rows: Any, least: Array, most: Array) -> _RowBounds:
        """The rows of a sparse matrix; entries that are stored and 0 are left out."""
        rows = sp.csr_array(rows, copy=True)
        rows.sum_duplicates()
        rows.eliminate_zeros()
        owner = np.repeat(np.arange(len(least)), np.diff(rows.indptr))
        return cls(owner, rows.indices.astype(np.intp), rows.data, least, most)

    def opposite(self) -> _RowBounds:
        """What pairs of rows with the same two coordinates say of one, as rows of one entry.

        Of ``a u + b w >= e`` and ``a' u - b' w >= e'``, b and b' positive, the sum without w.
        """
        count = np.bincount(self.owner, minlength=len(self.least))
        two = np.flatnonzero(count == 2)
        first = (np.cumsum(count) - count)[two]
        at = np.stack([self.columns[first], self.columns[first + 1]], axis=1)
        order = np.lexsort((at[:, 1], at[:, 0]))
        at, end = at[order], self.least[two][order]
        a = np.stack([self.factors[first], self.factors[first + 1]], axis=1)[order]
        pairs = np.flatnonzero((at[1:] == at[:-1]).all(axis=1))
        columns, factors, ends = [], [], []
        for gone, left in ((0, 1), (1, 0)):
            one, other = a[pairs, gone], a[pairs + 1, gone]
            sizes = np.abs(other), np.abs(one)
            kept = [s * a[k, left] for s, k in zip(sizes, (pairs, pairs + 1), strict=True)]
            least = [s * end[k] for s, k in zip(sizes, (pairs, pairs + 1), strict=True)]
            total = kept[0] + kept[1]
            use = (one * other < 0) & (np.abs(total) >= 0.3 * (np.abs(kept[0]) + np.abs(kept[1])))
            rounding = 16.0 * EPS * (np.abs(least[0]) + np.abs(least[1]))
            columns.append(at[pairs, left][use])
            factors.append(total[use])
            ends.append((least[0] + least[1] - rounding)[use])
        found = np.concatenate(ends)
        every = np.arange(len(found))
        return _RowBounds(
            every, np.concatenate(columns), np.concatenate(factors), found,
            np.full(len(found), np.inf),
        )

    def tighten(self, low: Array, high: Array) -> None:
        """Sharpen the box by these rows, in place: from below, then from above."""
        m, d = len(self.least), len(low)
        for a, end in ((self.factors, self.least), (-self.factors, -self.most)):  # <a, x> >= end
            rising = a > 0.0
            most = a * np.where(rising, high[self.columns], low[self.columns])
            endless = np.isinf(most)
            finite = np.where(endless, 0.0, most)
            total = np.bincount(self.owner, finite, m)
            size = np.bincount(self.owner, np.abs(finite), m) + np.abs(end)
            # a_j x_j >= end - (what the others reach at most), known if none of them is endless.
            known = np.isfinite(end)[self.owner]
            known &= np.bincount(self.owner, endless, m)[self.owner] == endless
            owner, own = self.owner[known], finite[known]
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                least = end[owner] - (total[owner] - own) - 4 * (d + 8) * EPS * size[owner]
                bound = least / a[known]
            rising, columns = rising[known], self.columns[known]
            bound = bound + np.where(rising, -4.0, 4.0) * EPS * np.abs(bound)
            np.maximum.at(low, columns[rising], bound[rising])
            np.minimum.at(high, columns[~rising], bound[~rising])


def _growth_slopes(problem: Problem, theta: Array) -> Array:
    """Slopes ``s_i = min(-lo_i, hi_i)``, those of `theta` where parabolas have no end."""
    f = problem.losses
    s = np.minimum(-f.lo, f.hi)
    usual = float(np.abs(theta).max(initial=0.0))
    return np.where(np.isfinite(s), s, np.where(f.q > 0, usual, 0.0))


def _growth_at_most(problem: Problem, s: Array, primal: float) -> float:
    """``B = primal + sum_i s_i (|b_i| + e_i + q_i s_i / 2)``, rounded up."""
    f = problem.losses
    reach = primal - problem.constant + float(s @ (np.abs(f.b) + f.e + 0.5 * f.q * s))
    return (reach + 4 * problem.n * EPS * abs(reach)) * (1.0 + 1e-9)


def growth_cost(
    problem: Problem, x: Array, theta: Array, t: Array, t_error: Array, primal: float, r: Residual,
    indefiniteness: float,
) -> float:
    """What r costs against any better y, from the growth of the losses; infinite if unknown.

    ``f_i(t) >= s_i (|t - b_i| - e_i - q_i s_i / 2)`` for the slopes ``s_i = min(-lo_i, hi_i)``, so
    without a linear term every y that is no worse has ``sum_i s_i |<a_i, y>| <= B = P(x) + sum_i
    s_i (|b_i| + e_i + q_i s_i / 2)``. With u such that ``A' u = r``

    ::

        <r, x - y> <= max_i |u_i / s_i| (B + sum_i s_i |t_i|),      |y| <= B / sigma

    sigma the smallest singular value of ``diag(s) A``; what is left of r by rounding is charged
    with the second bound.
    """
    design, d = problem.design, problem.d
    if problem.linear.any() or problem.side is not None:
        return float("inf")
    s = _growth_slopes(problem, theta)
    used = np.flatnonzero(s > 0)
    if len(used) < d:
        return float("inf")
    # In units of each coordinate, powers of two: nothing is rounded, and columns may differ.
    _, power = np.frexp(problem.column_sizes)
    gram = np.ldexp(design.weighted_gram(used, s[used] ** 2), -(power[:, None] + power))
    values = np.linalg.eigvalsh(gram)
    rounding = 4 * (len(used) + 8 * d) * EPS * float(np.trace(gram))
    square = float(values[0]) - rounding
    if not square > 0.0:
        return float("inf")
    reach = _growth_at_most(problem, s, primal)
    u = np.linalg.solve(gram, np.ldexp(r.value, -power))
    u = s * s * design.forward(np.ldexp(u, -power))
    ratio = float(np.abs(u[used] / s[used]).max()) * (1.0 + 1e-9)
    left = np.abs(r.value - design.adjoint(u)) + r.error
    size = float(np.sqrt(np.sum(u * u))) * (1.0 + 1e-9)
    left = left + (design.adjoint_factor + 4.0 * EPS) * size * problem.column_sizes
    far = reach / float(np.sqrt(square)) * (1.0 + 1e-9)
    far += float(np.linalg.norm(np.ldexp(x, power))) * (1.0 + 1e-9)
    cost = ratio * (reach + float(s @ (np.abs(t) + t_error)) * (1.0 + 1e-9))
    cost += float(np.linalg.norm(np.ldexp(left, -power))) * far * (1.0 + 1e-9)
    if not indefiniteness:
        return cost
    return cost + 0.5 * indefiniteness * (far / float(np.ldexp(1.0, int(power.min())))) ** 2


_FEW_OTHERS = 20
"""Coordinates at most, an intercept among them, that may be without a term of their own."""


class Blocks(NamedTuple):
    """Norms of blocks of coordinates whose heads are held, ``|D x_g| <= a x_h``.

    Attributes
    ----------
    norms : cvxscreen.core.cones.NormCones or None
    covered : mask, shape (d,)
        The coordinates of the blocks that are not held themselves.
    """

    norms: Any
    covered: NDArray[np.bool_]

    @classmethod
    def of(cls, problem: Problem, kappa: Array, linear: Array) -> Blocks:
        """Those of `problem` without an entry of `linear`; losses are never negative."""
        covered = np.zeros(problem.d, dtype=bool)
        if problem.side is None or not len(problem.side.norms):
            return cls(None, covered)
        norms = problem.side.norms
        norms = norms.take((kappa > 0.0)[norms.heads] & np.isfinite(kappa[norms.heads]))
        covered[norms.coordinates] = True
        return cls(norms, covered & (kappa <= 0.0) & (linear == 0.0))

    def at_heads(self, v: Array) -> Array:
        """`v` >= 0 with ``a |D^-1 v_g|`` of the covered coordinates added at the heads."""
        out = v.copy()
        if self.norms is not None:
            seen = self.norms.lengths(np.where(self.covered, v, 0.0))
            out[self.norms.heads] += self.norms.scales * seen
        return out

    def sizes(self, x: Array) -> Array:
        """``|x|``, at the heads no less than ``|D x_g| / a`` of the covered coordinates."""
        out = np.abs(x)
        if self.norms is not None:
            heads, least = self.norms.heads, self.norms.least(np.where(self.covered, x, 0.0))
            out[heads] = np.maximum(out[heads], least)
        return out


class LinearPart(NamedTuple):
    """``q - F_o' mu_o`` of budgets o for heads of norms, its rounding, and ``<mu_o, f_o>``."""

    slopes: Array
    error: Array
    level: float

    @classmethod
    def of(cls, problem: Problem, mu: Array | None) -> LinearPart:
        """That of the inequalities that bound heads from above, by their multipliers `mu`."""
        slopes, side = problem.linear, problem.side
        if side is None or mu is None or not side.norms.limited.any():
            return cls(slopes, np.zeros(len(slopes)), 0.0)
        norms, budgets = side.norms, np.zeros(len(mu), dtype=bool)
        budgets[side.matrix[:, norms.heads[norms.limited]].tocoo().row] = True
        budgets[norms.head_rows] = budgets[norms.rows] = False
        rows = np.flatnonzero(budgets)
        frame, mu, offset = side.matrix[rows], mu[rows], side.offset[rows]
        unit = 4 * (len(rows) + 4) * EPS
        sizes, levels = np.abs(slopes) + abs(frame).T @ np.abs(mu), np.abs(mu * offset)
        level = float(mu @ offset) + unit * float(levels.sum())
        return cls(slopes - frame.T @ mu, unit * sizes, level)


def own_growth_cost(
    problem: Problem, x: Array, theta: Array, t: Array, t_error: Array, primal: float, r: Residual,
    within: float = float("inf"), mu: Array | None = None,
) -> float:
    """The same where nearly all coordinates have terms of their own, as of an L1 norm; else inf.

    With the linear term these are worth at least ``kappa_j |y_j|``, so that a y that is no worse
    has ``sum_i s_i |<a_i, y>| + sum_j kappa_j |y_j| <= B`` over the other terms i, whatever
    constraints say. Slopes u of these take up r at the few other coordinates O, the terms of their
    own the rest, ``rho = r - A' u``::

        <r, x - y> <= max(|u_i| / s_i, |rho_j| / kappa_j)
                      (B + sum_i s_i |t_i| + sum_j kappa_j |x_j|).

    A coordinate that constraints hold at zero from both sides costs ``|rho_j x_j|`` instead. A head
    that holds a norm of a block, ``|D y_g| <= a y_h``, takes the block's part on itself: ``|rho_h|
    + a |D^-1 rho_g|`` stands for ``|rho_h|``, and ``max(|x_h|, |D x_g| / a)`` for ``|x_h|``.
    No factorisation is needed. What rounding leaves at O is charged with ``|y_O| <= B (1 + max_j
    |S A_j| / kappa_j) / sigma``, sigma the smallest singular value of ``S A_O``, ``S = diag(s)``.
    Where the losses do not bound them (hinges, an intercept), all of r at O is charged with
    `within`, if that is finite: it is then against points no farther from x.

    What heads cost may be the multiplier of a budget for them, ``F_o y + f_o >= 0``: as ``<mu_o,
    F_o y + f_o> >= 0`` for every feasible y, ``q - F_o' mu_o`` stands for q and ``B + <mu_o, f_o>``
    for B.
    """
    f, design, d = problem.losses, problem.design, problem.d
    if not isinstance(design, Rows) or problem.penalty is not None or len(r.free) < d:
        return float("inf")
    if problem.n > ALONE * d:
        return float("inf")
    terms, places, factors = design.single
    count = 0 if problem.side is None else len(problem.side.offset)
    if len(terms) + count < max(d - _FEW_OTHERS, 0.5 * d):
        return float("inf")
    plain = (f.b[terms] == 0.0) & (f.e[terms] == 0.0) & (f.q[terms] == 0.0)
    terms, places, factors = terms[plain], places[plain], factors[plain]
    ends = np.sort([factors * f.lo[terms], factors * f.hi[terms]], axis=0)
    linear = LinearPart.of(problem, mu)
    up, down = linear.slopes.copy(), -linear.slopes
    np.add.at(up, places, ends[1])
    np.add.at(down, places, -ends[0])
    if problem.side is not None:
        for kind, _, rows in problem.side.blocks():
            if kind != "nonneg":
                continue
            some, offset = problem.side.matrix[rows], problem.side.offset[rows]
            single = (np.diff(some.indptr) == 1) & (offset == 0.0)
            entry = some.indptr[:-1][single]
            positive = some.data[entry] > 0.0
            down[some.indices[entry[positive]]] = np.inf
            up[some.indices[entry[~positive & (some.data[entry] < 0.0)]]] = np.inf
        down[problem.side.norms.heads] = np.inf  # a head is no less than a norm
    kappa = np.minimum(up, down)
    sizes = np.abs(linear.slopes) + np.bincount(
        places, np.where(np.isfinite(ends), np.abs(ends), 0.0).sum(axis=0), d
    )
    kappa -= 4 * (len(terms) + 4) * EPS * sizes + linear.error
    held = kappa > 0.0
    blocks = Blocks.of(problem, kappa, linear.slopes)
    others = np.flatnonzero(~(held | blocks.covered))
    if len(others) > min(_FEW_OTHERS, 0.5 * d) or linear.slopes[others].any():
        return float("inf")
    s = _growth_slopes(problem, theta)
    s[terms] = 0.0
    reach = _growth_at_most(problem, s, primal + linear.level)
    bounded = np.where(np.isfinite(kappa), kappa, 0.0)[held] @ blocks.sizes(x)[held]
    across = (reach + float(s @ (np.abs(t) + t_error)) + float(bounded)) * (1.0 + 1e-9)
    rho, ratio, rest = r.above.copy(), 0.0, 0.0
    if len(others):
        columns = s[:, None] * design.take_columns(others).dense()
        values = np.linalg.svd(columns, compute_uv=False)
        # Fewer rows than these coordinates leave some of their directions unseen.
        least = float(values[-1]) if problem.n >= len(others) else 0.0
        least -= 4 * (problem.n + 8) * EPS * float(values.sum())
        seen = least > 0.0
        if not (seen or np.isfinite(within)):
            return float("inf")
        if not seen:
            rest = float(np.linalg.norm(r.above[others])) * within * (1.0 + 1e-9)
    if len(others) and seen:
        u = s * np.linalg.lstsq(columns.T, r.value[others], rcond=None)[0]
        ratio = float(np.abs(u[s > 0.0] / s[s > 0.0]).max())
        moved = design.adjoint(u)
        size = float(np.sqrt(np.sum(u * u))) * (1.0 + 1e-9)
        error = (design.adjoint_factor + 4.0 * EPS) * size * problem.column_sizes
        rho += np.abs(moved) + error
        left = np.abs(r.value - moved)[others] + r.error[others] + error[others]
        steep = float(s.max()) * blocks.at_heads(problem.column_sizes)[held] / kappa[held]
        far = reach * (1.0 + float(steep.max(initial=0.0))) / least * (1.0 + 1e-9)
        far += float(np.linalg.norm(x[others])) * (1.0 + 1e-9)
        rest = float(np.linalg.norm(left)) * far * (1.0 + 1e-9)
    fixed = held & np.isinf(kappa)  # y_j = 0: what x has there is all that it can lose
    rest += float(rho[fixed] @ np.abs(x[fixed])) * (1.0 + 1e-9)
    rho = blocks.at_heads(rho)
    ratio = max(ratio, float((rho[held] / kappa[held]).max(initial=0.0))) * (1.0 + 1e-9)
    return ratio * across + rest


# -- an L1 norm without a quadratic term ----------------------------------------------------------


def pure_l1_gap(
    problem: Problem, x: Array, theta: Array, t: Array, values: Array, At_theta: Array,
    enough: float = 0.0,
) -> float:
    """The gap of `x` and the feasible share of `theta`, rounding included.

    Without a quadratic term the dual has the constraints ``|A_j' theta| <= kappa_j``; the largest
    share s of theta that satisfies them for certain is judged::

        P(x) - D(s theta) = sum_i (f_i(t_i) + f_i*(s theta_i) - s theta_i t_i)
                            + sum_j (kappa_j |x_j| + s x_j A_j' theta)

    A share less by the rounding of ``A' theta`` costs that much of the objective over kappa_j;
    feasible slopes close by cost less (`gap_beside_l1`).

    Parameters
    ----------
    x : array, shape (d,)
    theta : array, shape (n,)
        Within the boxes.
    t, values : array, shape (n,)
        ``A x`` and the terms' values, as computed.
    At_theta : array, shape (d,)
        ``A' theta`` as computed.
    enough : float
        Of a gap up to this no better bound is looked for.
    """
    kappa, f = problem.penalty.kappa, problem.losses  # type: ignore[union-attr]
    size = float(np.sqrt(np.sum(theta * theta))) * (1.0 + 4 * (problem.n + 8) * EPS)
    At_error = (problem.design.adjoint_factor + 8.0 * EPS) * size * problem.column_sizes
    room = kappa - At_error
    if not (room > 0).all():
        return float("inf")  # rounding hides whether any multiple of theta is feasible
    beyond = float(np.max(np.abs(At_theta) / room, initial=0.0)) * (1.0 + 8.0 * EPS)
    share = 1.0 if beyond <= 1.0 else (1.0 - 8.0 * EPS) / beyond
    fy = loss_gaps(t, share * theta, problem.design.forward_error(x, problem.sizes), values, f)
    norm = np.abs(x) * (kappa + share * np.sign(x) * At_theta + At_error + 4.0 * EPS * kappa)
    gap = float(fy.sum() + np.maximum(norm, 0.0).sum()) * (1 + (problem.n + problem.d) * EPS)
    if gap <= enough or share == 1.0:
        return gap
    return min(gap, gap_beside_l1(problem, x, theta, t, values, (At_theta, At_error)))


_CLOSE = 1000.0
"""Columns whose ``|A' theta|`` is within so many roundings of kappa are held: others are pushed."""
_ENTRIES = 5e6
"""Most entries of the rows of the slopes that are moved for them."""


def gap_beside_l1(
    problem: Problem, x: Array, theta: Array, t: Array, values: Array, At: tuple[Array, Array]
) -> float:
    """The same of feasible slopes close to theta, or infinity if none are known to be near.

    At the columns where ``|A_j' theta|`` may exceed kappa_j, a few slopes take that off. It costs
    ``|x_j|`` a unit, and what moving these slopes does (`nearby_cost`).

    Parameters
    ----------
    At : tuple of array, shape (d,)
        ``A' theta`` and its rounding.
    """
    (At_theta, At_error), f = At, problem.losses
    kappa = problem.penalty.kappa  # type: ignore[union-attr]
    over = np.abs(At_theta) * (1.0 + 4.0 * EPS) + At_error - kappa * (1.0 - 4.0 * EPS)
    close, above = over > -_CLOSE * At_error, np.maximum(over, 0.0)
    wanted = int(close.sum())
    most = 4 * wanted + 4
    if not isinstance(problem.design, Rows) or most * problem.d > _ENTRIES:
        return float("inf")
    t_error = problem.design.forward_error(x, problem.sizes)
    movable = Movable.of(problem, (theta, t, t_error))
    movable = movable.best(movable.cheapness, most)
    rows = problem.design.dense(movable.terms)
    move = ways_to_move(rows[:, close], above[close], movable)
    if move is None:
        return float("inf")
    pushed = np.where(close, above, np.abs(rows).T @ move * (1.0 + 1e-6))
    if (pushed > np.maximum(-over, 0.0))[~close].any():
        return float("inf")
    fy = loss_gaps(t, theta, t_error, values, f)
    norm = np.maximum(kappa * (1.0 + 4.0 * EPS) + np.sign(x) * At_theta + At_error + pushed, 0.0)
    cost = float(move @ (movable.unit_cost + 0.5 * f.q[movable.terms] * move))
    return (float(fy.sum()) + float(np.abs(x) @ norm) + cost) * (1.0 + 1e-6)
