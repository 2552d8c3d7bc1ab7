"""Where a path begins: below ``C_min`` the solution is known in closed form.

For small C the margins stay near those of ``o = -M^{-1} q`` (0 for the plain models), every term on
the linear piece it has there. With ``theta0`` the slopes of these pieces at the problem's own C0,

::

    x(C) = o - (C/C0) M^{-1} A' theta0,    theta(C) = (C/C0) theta0

is optimal until the first margin reaches an end of its piece (Ogawa et al. 2014, Lemma 9, for the
hinge: ``C_min = 1 / max_i (Q 1)_i``; here for every loss, with weights).

Worked instances. Hinge: ``C_min = C0 / max_i (Q c)_i``, infinite if the rows cancel exactly.
Absolute loss with some ``y_i = 0``: a margin starts at a kink, ``C_min = 0``. With an intercept the
slopes at the best ``b`` alone must balance (as many positive as negative rows, for equal weights);
``b`` is then chosen to make ``C_min`` largest. Otherwise nothing is known in closed form:
``C_min = 0``.

Proofs: ``docs/theory.md``, section 4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.rounding import UNIT, gamma, up
from cvxscreen._support.tables import Record, fields
from cvxscreen._support.validation import one_of
from cvxscreen.core.duality import exact_sum
from cvxscreen.core.losses import Codes, LossTerms, Piece
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput

Array = NDArray[np.float64]

_HALVINGS = 200
"""More than a double can be halved between two others; the loop ends where it cannot be."""


class ClosedForm(Record, Immutable):
    """The closed-form part of a path over C.

    Attributes
    ----------
    problem : Problem
    C : float
        ``C_min`` rounded down: the closed form is optimal for all C up to it. 0 where there is no
        closed form, infinity where it always holds.
    origin, direction : array, shape (d,)
        ``x(C) = origin + (C / problem.C) direction``.
    slopes : array, shape (n,)
        ``theta(C) = (C / problem.C) slopes``.
    """

    problem: Problem
    C: float
    origin: Array
    direction: Array
    slopes: Array

    def at(self, C: float) -> tuple[Array, Array]:
        """``(x, theta)`` of the optimum at `C`, arrays (d,) and (n,).

        Raises
        ------
        InvalidInput
            For C outside ``(0, C_min]``.
        """
        if not (np.isfinite(C) and 0.0 < C <= self.C):
            raise InvalidInput(f"`C` is {C!r}; the closed form holds for 0 < C <= {self.C:g}.")
        factor = C / self.problem.C
        return self.origin + factor * self.direction, factor * self.slopes

    def __str__(self) -> str:
        return fields([("C_min", self.C)], title="Closed form")


class _Line(NamedTuple):
    """Margins ``t + s m`` with their errors, and the pieces they must stay on; arrays (n,)."""

    t: Array
    t_error: Array
    m: Array
    m_error: Array
    low: Array
    high: Array

    def room(self, s: float, side: float) -> Array:
        """Distance to the upper (side 1) or lower (side -1) end at ``s``, rounded inward."""
        end = self.high if side > 0 else self.low
        with np.errstate(invalid="ignore"):
            moved = s * self.m
        size = np.abs(self.t) + np.abs(moved) + np.where(np.isfinite(end), np.abs(end), 0.0)
        rounding = self.t_error + s * self.m_error + 8.0 * UNIT * size
        return side * (end - self.t - moved) - rounding

    def reach(self, rows: NDArray[np.bool_]) -> float:
        """The largest ``s`` for which the margins of `rows` stay, rounded down."""
        best = np.inf
        for side, end in ((1.0, self.high), (-1.0, self.low)):
            space, speed = self.room(0.0, side)[rows], (side * self.m + self.m_error)[rows]
            if (space < 0).any():
                return 0.0
            bound = np.isfinite(end[rows]) & (speed > 0)
            if bound.any():
                best = min(best, float((space[bound] / (speed[bound] * (1 + 16 * UNIT))).min()))
        return best


def c_min(problem: Problem) -> ClosedForm:
    """The largest C below which the solution is known in closed form, with that solution.

    Parameters
    ----------
    problem : Problem
        Any losses; side constraints or several unpenalised coordinates give ``C = 0``.

    Returns
    -------
    ClosedForm

    Raises
    ------
    InvalidInput
        For anything but a `Problem`.

    Examples
    --------
    >>> import cvxscreen
    >>> problem = cvxscreen.svm(*cvxscreen.datasets.two_gaussians(200, 3))
    >>> start = cvxscreen.c_min(problem)
    >>> x, theta = start.at(start.C)
    >>> again = cvxscreen.solve(problem.with_(C=start.C), tol=1e-10)
    >>> bool(abs(again.x - x).max() < 1e-6 * abs(x).max())
    True
    """
    one_of("problem", problem, Problem, "a problem from `svm`, `regression`, ... is needed")
    losses, quadratic, free = problem.losses, problem.quadratic, problem.quadratic.free
    origin = -quadratic.solve(problem.linear)
    none = ClosedForm(problem, 0.0, origin, np.zeros(problem.d), np.zeros(problem.n))
    if problem.side is not None or problem.penalty is not None or int(free.sum()) > 1:
        return none
    e = problem.free_columns[:, 0] if free.any() else np.zeros(problem.n)
    t, t_error = _margins(problem, origin, problem.drift)
    b = _resting_intercept(problem, t, e) if e.any() else 0.0
    if b is None:
        return none
    t = t + e * b
    t_error = t_error + 2.0 * UNIT * (np.abs(e * b) + np.abs(t)) * (b != 0.0)
    codes = losses.piece_within(t - t_error, t + t_error)
    fixed = (problem.norms == 0.0) & (e == 0.0)
    linear = (codes == Piece.LOW) | (codes == Piece.ZERO) | (codes == Piece.HIGH)
    if not (linear | fixed).all():
        return none
    slopes = np.where(linear, losses.piece_slope(codes), losses.slope(t))
    At_slopes = problem.design.adjoint(slopes)
    At_slopes[free] = 0.0
    direction = -quadratic.solve(At_slopes)
    rounding = problem.design.adjoint_factor * float(np.abs(slopes) @ problem.rounding_norms)
    if quadratic.norm(direction) <= 4.0 * rounding and _cancels(problem, slopes):
        direction, rounding = np.zeros(problem.d), 0.0
    m, m_error = _margins(problem, direction, rounding)
    low, high = piece_ends(losses, np.where(linear, codes, Piece.UNDECIDED).astype(np.int8))
    line = _Line(t, t_error, m, m_error, low, high)
    s = line.reach((e == 0.0) & ~fixed)
    b_step = 0.0
    if e.any():
        s, b_step = _with_intercept(line, e, s)
    if free.any():
        origin[free], direction[free] = b, b_step
    return ClosedForm(problem, s * problem.C * (1.0 - 4.0 * UNIT), origin, direction, slopes)


def _margins(problem: Problem, x: Array, rounding: float) -> tuple[Array, Array]:
    """``A x`` and its error, where `x` is itself off by `rounding` and by a solve with M."""
    quadratic = problem.quadratic
    if not x.any() and rounding == 0.0:
        return np.zeros(problem.n), np.zeros(problem.n)
    conditioned = 1.0
    if quadratic.matrix is not None:
        conditioned = float(np.abs(quadratic.dense()).sum()) / quadratic.floor
    off = rounding + gamma(4 * problem.d + 8) * conditioned * quadratic.norm(x)
    rounded = problem.design.forward_factor * float(np.linalg.norm(x)) * problem.sizes
    return problem.design.forward(x), up(1.0) * (rounded + up(off) * problem.norms * (1 + 1e-9))


def _cancels(problem: Problem, theta: Array) -> bool:
    """Whether ``A' theta`` is 0 on the penalised coordinates exactly, not only as computed."""
    if not theta.any():
        return True
    design = problem.design
    if not isinstance(design, Rows):
        return False
    if design.scale is not None and not (np.abs(design.scale) == 1.0).all():
        return False
    bent = np.flatnonzero(~problem.quadratic.free)
    return not any(exact_sum(design.column(int(j)), theta, 0.0) for j in bent)


def piece_ends(losses: LossTerms, codes: Codes) -> tuple[Array, Array]:
    """Ends of the pieces named by `codes`, rounded inward; infinite where undecided."""
    k1, k2, k3, k4 = losses.knots
    inf = np.full(len(losses), np.inf)
    falls, rises = losses.lo < 0, losses.hi > 0
    rows = [codes == piece for piece in (Piece.LOW, Piece.LEFT, Piece.ZERO, Piece.RIGHT)]
    left_end = np.where(losses.two_sided_quadratic, k4, k2)
    high = np.select(rows, [k1, left_end, np.where(rises, k3, inf), k4], inf)
    rows = [codes == piece for piece in (Piece.LEFT, Piece.ZERO, Piece.RIGHT, Piece.HIGH)]
    low = np.select(rows, [k1, np.where(falls, k2, -inf), k3, k4], -inf)
    error = losses.knot_error
    return low + error, high - error


def without_loss(problem: Problem) -> Array | None:
    """The point that moves at most an unpenalised coordinate and has no loss at all, shape (d,).

    It is optimal whatever C is: an intercept that is the target itself, where that is constant, or
    the label, where all that has a weight is of one class; 0 where all kinks are at 0. None where
    there is no such point, which the first terms tell in most cases.
    """
    f, x = problem.losses, np.zeros(problem.d)
    if problem.side is not None or problem.penalty is not None or problem.design.streamed:
        return None
    if problem.linear.any():
        return None
    free = problem.free_index
    for stop in (FIRST_TERMS, problem.n):
        terms = f.lo[:stop] < f.hi[:stop]
        b = f.b[:stop][terms]
        if not len(b) or not b[0]:
            if b.any():
                return None
            continue
        if len(free) != 1 or abs(b[0]) != abs(b[-1]):
            return None
        column = problem.design.column(int(free[0]))[:stop][terms]
        value = b[0] / column[0] if column[0] else 0.0
        if not np.isfinite(value) or not (column * value == b).all():
            return None
        x[free] = value
    return x


FIRST_TERMS = 64
"""Terms that are looked at before all are: what is none there is none at all."""


# -- one unpenalised coordinate -----------------------------------------------------------------


def _resting_intercept(problem: Problem, t: Array, e: Array) -> float | None:
    """A ``b`` well inside the interval where ``sum_i f_i(t_i + e_i b) + q_b b`` is smallest.

    None where the minimum is a single point: some margin then rests at a kink.
    """
    losses = problem.losses
    offset = float(problem.linear[problem.quadratic.free][0])
    touched = e != 0
    places = [(knot[touched] - t[touched]) / e[touched] for knot in losses.knots]
    breaks = np.unique(np.concatenate([place[np.isfinite(place)] for place in places]))
    if problem.imbalance > 0.0 or not len(breaks):
        return None
    margin = 1.0 + abs(breaks[0]) + abs(breaks[-1])
    ends = np.concatenate([[breaks[0] - margin], breaks, [breaks[-1] + margin]])

    def total(index: int) -> float:
        """The derivative between two successive breaks."""
        middle = 0.5 * (ends[index] + ends[index + 1])
        return exact_sum(e, losses.slope(t + e * middle), offset)

    first = _first(lambda index: total(index) >= 0.0, len(ends) - 1)
    last = _first(lambda index: total(index) > 0.0, len(ends) - 1)
    return None if first == last else float(0.5 * (ends[first] + ends[last]))


def _first(holds: Callable[[int], bool], count: int) -> int:
    """The first index at which the monotone predicate `holds`, `count` if there is none."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _with_intercept(line: _Line, e: Array, limit: float) -> tuple[float, float]:
    """The largest ``s <= limit`` that some change of the intercept allows, and that change over s.

    The margins are ``t + s m + e beta`` with ``beta = 0`` at ``s = 0``; where the last ``s`` is
    allowed with ``beta``, all smaller ones are with a proportional part of it.
    """
    touched = e != 0

    def window(s: float) -> tuple[float, float]:
        """The values of ``beta`` allowed at ``s``, rounded inward."""
        up_room, down_room = line.room(s, 1.0)[touched], line.room(s, -1.0)[touched]
        size = np.abs(e[touched]) * (1.0 + 8.0 * UNIT)
        positive = e[touched] > 0
        highest = float((np.where(positive, up_room, down_room) / size).min())
        lowest = -float((np.where(positive, down_room, up_room) / size).min())
        return lowest, highest

    def allowed(s: float) -> bool:
        lowest, highest = window(s)
        return lowest <= highest

    if not (line.m[touched].any() or line.m_error[touched].any()):
        return (limit, 0.0) if allowed(0.0) else (0.0, 0.0)
    if not allowed(0.0):
        return 0.0, 0.0
    good, bad = 0.0, min(limit, 1.0)
    while allowed(bad):
        good = bad
        if bad == limit:
            break
        bad = min(2.0 * bad, limit)
    else:
        for _ in range(_HALVINGS):
            middle = 0.5 * (good + bad)
            if not good < middle < bad:
                break
            good, bad = (middle, bad) if allowed(middle) else (good, middle)
    if good == 0.0:
        return 0.0, 0.0
    lowest, highest = window(good)
    return good, 0.5 * (lowest + highest) / good
