"""Primal-dual interior point method for many terms, few coordinates and side constraints.

The method of Frisch and Newton for quantile regression (Portnoy and Koenker 1997, section 4) with
the predictor-corrector of Mehrotra (1992), for every loss of the table. Each term has its slope in
an interval, ``lo <= theta <= hi``, with multipliers ``below, above >= 0`` of the two ends::

    M x + q + A' theta - E' y = 0               stationarity
    A x - b - Q theta + below - above = 0       Q = diag(q)
    E x + e = 0                                 equalities
    (theta - lo) below = (hi - theta) above = level -> 0

A loss with a dead zone is the sum of two one-sided losses that share their row; an inequality
``F_j x + f_j >= 0`` is the term ``-F_j x <= f_j`` with slopes in ``[0, inf)``; an L1 norm is one
absolute value a coordinate. Eliminating everything but x and y leaves the normal equations

::

    (A' D A + M) dx - E' dy = right,    E dx = -(E x + e),    D = 1 / (q + below/(theta - lo)
                                                                         + above/(hi - theta))

of the size of x: ``n d^2`` operations a step, made block by block at the speed of a matrix product,
and four passes over the data.

It ends at a vertex, or on the face that holds the optimum (`_Face`): which slopes are inside their
intervals is read off, the linear equations of the optimum are solved with the others held at their
ends, and what violates a sign is exchanged. The pair that comes out is exact up to rounding; it is
taken where its gap is smaller. From a start that is already on the right face nothing else is done.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.linalg as sla
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen._support.rounding import UNIT
from cvxscreen.core.penalty import L1, NonNegative
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.solvers.interface import SolverTraits, Start, SubproblemResult, SubproblemSolver

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

MOST_COORDINATES = 2000
"""Coordinates up to which the matrix of the normal equations is formed."""
LINEAR = ("zero", "nonneg")
"""Kinds of side constraints that become terms and equalities."""
TO_BOUNDARY = 0.99
"""Share of the way to the boundary that a step may take."""
CENTRALITY, LONG = 3, 0.9
"""Correctors of centrality a step at most (Gondzio 1996; each costs two passes), and the length
from which on none is tried."""
FURTHER, LEAST_GAIN = (2.0, 0.1), 0.01
"""A corrector aims at so many times the step, and so much, further; a smaller gain is the last."""
CENTRAL = 10.0
"""How far products may lie from their level, as a factor, before they are corrected."""
IDLE = 15
"""Steps in a row that bring no better estimate of the gap, after which the method stops."""
SHORT = 1e-9
"""A step shorter than this is none."""
EXTRA = (0.0, 1e-14, 1e-12, 1e-10, 1e-8)
"""What is added to the unit diagonal of a matrix that is not positive definite to rounding."""
FACE_FROM = 1e-2
"""Estimated gap, relative to ``sum |theta_i| |<a_i, x> - b_i|`` early on the path, from which on
the face of the optimum is looked for."""
FACE_AGAIN = 0.03
"""The estimate falls by this factor between two such looks."""
EXCHANGES = 6
"""Rounds of exchanging terms between face and ends in one look."""
LARGE_FACE = 1000
"""Unknowns of a face from which on nothing is exchanged: its factorisation costs as much as a step
or more."""
CROWDED = 3
"""A face with more than so many terms a coordinate is not looked at."""
REGULAR = 1e-9
"""What makes the equations of a face regular, relative to its rows; refined away."""
SINGULAR = 1e-12
"""Ratio of pivots below which the rows of a vertex count as dependent."""
REFINEMENTS = 4
"""Steps of iterative refinement of the equations of a face."""
ON_BOUND = 1e-14
"""Distance, relative to the largest coordinate, at which a coordinate is on its bound."""
REGULAR_STEP = 1e-11
"""Proximal term of a step, relative to the curvature that the terms have at the start."""
VIOLATED = 1e-9
"""Violation of a constraint, relative to its terms, beyond which a point is none."""
INSIDE_UNTIL = 1e-4
"""An iterate well inside the constraints is kept until the estimated gap has fallen so far."""
RAY = 1e-8
"""How well, relatively, a direction has to fit to prove unboundedness or infeasibility."""
GROWN, FAR = 10.0, 1e6
"""Growth of x, and of the slopes, from which on such directions are looked for."""
FLAT = 1e-13
"""Curvature along a direction, relative to M, that is its rounding."""


def takes(problem: Problem) -> bool:
    """Whether `InteriorPoint` takes `problem`."""
    return not unfit(problem)


def unfit(problem: Problem) -> str:
    """Why `InteriorPoint` does not take `problem`; empty if it does."""
    if not isinstance(problem.design, Rows):
        return "its data are not rows in memory"
    if problem.d > MOST_COORDINATES:
        return f"it has {problem.d:,} coordinates; at most {MOST_COORDINATES:,} are taken"
    if not (problem.penalty is None or isinstance(problem.penalty, L1 | NonNegative)):
        return f"of its penalty ({problem.penalty.name})"
    kinds = () if problem.side is None else [kind for kind, _ in problem.side.dims]
    if any(kind not in LINEAR for kind in kinds):
        return "of its side constraints, which are not linear"
    return ""


@dataclass(frozen=True)
class InteriorPoint(SubproblemSolver):
    """The built-in solver for many terms in few coordinates, with linear side constraints or none.

    Parameters
    ----------
    max_steps : int
        Steps at most; 10 to 30 are usual.
    limits : Limits
        Of the whole call.
    """

    max_steps: int = 150
    name: str = "INTERIOR_POINT"
    limits: Limits = field(default=UNLIMITED, compare=False)
    traits: ClassVar[SolverTraits] = SolverTraits(reaches_target=True, few_iterations=True)

    def __call__(
        self, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> SubproblemResult:
        """Solve until the duality gap is at most `target` (absolute).

        Returns
        -------
        SubproblemResult
            ``"optimal"`` when the target was reached, ``"infeasible"`` or ``"unbounded"`` where
            there is a direction that proves it, ``"inaccurate"`` otherwise.

        Raises
        ------
        InvalidInput
            If the problem has a design, a penalty or a side constraint that this method does not
            take, or too many coordinates.
        """
        reason = unfit(problem)
        if reason:
            raise InvalidInput(
                f"`solver` is 'interior_point', which does not take this problem because {reason}."
            )
        run = _Run(_Terms.of(problem), target)
        status = self._follow(run, start)
        info = {"steps": run.steps, "passes": run.terms.passes, "gap": run.gap, "face": run.on_face}
        if status in ("infeasible", "unbounded"):
            return SubproblemResult(status, np.zeros(0), np.zeros(0), info=info)
        x, theta, multipliers = run.answer()
        return SubproblemResult(status, x, theta, multipliers, info)

    def _follow(self, run: _Run, start: Start | None) -> str:
        """Follow the central path until the target, a proof, or a limit; the status."""
        if run.terms.inconsistent:
            return "infeasible"
        if start is not None and run.begin_on_face(start):
            return "optimal"
        if run.reached or self.limits.spent():
            return "optimal" if run.reached else "inaccurate"
        status = self._along(run, run.path(start))
        if status == "inaccurate" and start is not None and not self.limits.spent(1):
            # Entered close to the boundary, at a start that is not the optimum, the steps can
            # shrink to nothing (constraints that hold with equality there). From the middle not.
            run.leave_path()
            status = self._along(run, run.path(None))
        return status

    def _along(self, run: _Run, path: _Path) -> str:
        """The same for one path from where it is entered."""
        if path.endless:
            return "unbounded"
        while run.steps < self.max_steps and not self.limits.spent(1):
            length = path.advance()
            run.steps += 1
            run.look(path)
            if run.reached:
                return "optimal"
            if path.far or not length > SHORT or run.idle > IDLE:
                proven = path.proven()
                if proven:
                    return proven
            if not length > SHORT or run.idle > IDLE:
                break
        run.last_look(path)
        return "optimal" if run.reached else path.proven() or "inaccurate"


# -- every problem as terms on intervals -------------------------------------------------------


def _halves(f: Any, split: NDArray[np.intp]) -> tuple[Array, Array, Array, Array]:
    """``b, q, lo, hi`` of the terms without dead zones; the left halves of `split` at the end."""
    b, lo = f.b.copy(), f.lo.copy()
    right = (f.e > 0) & (f.hi > 0)
    b[right] += f.e[right]
    left = (f.e > 0) & ~right
    b[left] -= f.e[left]
    lo[split] = 0.0
    return (
        np.concatenate([b, (f.b - f.e)[split]]), np.concatenate([f.q, f.q[split]]),
        np.concatenate([lo, f.lo[split]]), np.concatenate([f.hi, np.zeros(len(split))]),
    )


@dataclass(eq=False)
class _Terms:
    """A problem as terms ``theta in [lo, hi]`` without dead zones, and equalities.

    Terms come in this order: the rows of the design (of a loss with a dead zone the right half),
    the left halves, the rows of `own` (constraints, an L1 norm). `tied` are rows of the design that
    are equalities; their terms are idle, as are those with ``lo = hi``.

    Attributes
    ----------
    problem : Problem
    split : array of int
        Rows of the design with a left half.
    own : sparse matrix, shape (m, d)
    b, q, lo, hi : arrays, shape (N,)
    E, e : arrays, shape (k, d) and (k,)
        Equalities ``E x + e = 0``, linearly independent ones.
    chosen : array of int
        Which of the equalities these are.
    inconsistent : bool
        Whether the others contradict them.
    """

    problem: Problem
    split: NDArray[np.intp]
    own: Any
    b: Array
    q: Array
    lo: Array
    hi: Array
    E: Array
    e: Array
    chosen: NDArray[np.intp]
    tied: NDArray[np.intp]
    equal: int
    inconsistent: bool
    passes: int = 0

    @classmethod
    def of(cls, problem: Problem) -> _Terms:
        """Write `problem` so."""
        f, d = problem.losses, problem.d
        split = np.flatnonzero((f.e > 0) & (f.lo < 0) & (f.hi > 0))
        b, q, lo, hi = _halves(f, split)
        tied = np.flatnonzero((f.q == 0) & np.isinf(f.lo) & np.isinf(f.hi) & (f.e == 0))
        lo[tied], hi[tied] = 0.0, 0.0
        own, ends = [sp.csr_matrix((0, d))], [np.zeros((3, 0))]
        if isinstance(problem.penalty, L1):
            at = np.flatnonzero(problem.penalty.kappa)
            kappa = problem.penalty.kappa[at]
            own.append(sp.identity(d, format="csr")[at])
            ends.append(np.array([np.zeros(len(at)), -kappa, kappa]))
        elif problem.penalty is not None:
            own.append(-sp.identity(d, format="csr"))
            ends.append(np.array([np.zeros(d), np.zeros(d), np.full(d, np.inf)]))
        E, e = np.zeros((0, d)), np.zeros(0)
        if problem.side is not None:
            below, equal = _side_rows(problem)
            own.append(-problem.side.matrix[below])
            m = len(below)
            ends.append(np.array([problem.side.offset[below], np.zeros(m), np.full(m, np.inf)]))
            E, e = problem.side.matrix[equal].toarray(), problem.side.offset[equal]
        equal_rows = len(e)
        if len(tied):
            E = np.vstack([E, problem.design.dense(tied)])
            e = np.concatenate([e, -f.b[tied]])
        chosen, inconsistent = _independent(E, e)
        extra = np.hstack(ends)
        return cls(
            problem, split, sp.vstack(own, format="csr"),
            np.concatenate([b, extra[0]]), np.concatenate([q, np.zeros(extra.shape[1])]),
            np.concatenate([lo, extra[1]]), np.concatenate([hi, extra[2]]),
            E[chosen], e[chosen], chosen, tied, equal_rows, inconsistent,
        )

    def __len__(self) -> int:
        return len(self.b)

    @property
    def n(self) -> int:
        """Rows of the design."""
        return self.problem.n

    def forward(self, x: Array) -> Array:
        """``<a_i, x>`` of every term."""
        self.passes += 1
        t = self.problem.design.forward(x)
        if not len(self.split) and not self.own.shape[0]:
            return t
        return np.concatenate([t, t[self.split], self.own @ x])

    def rows(self, values: Array) -> tuple[Array, Array]:
        """Sums of `values` by row of the design, and by row of `own`."""
        if len(values) == self.n:
            return values, values[:0]
        own = values[self.n + len(self.split):]
        if not len(self.split):
            return values[: self.n], own
        of_rows = values[: self.n].copy()
        of_rows[self.split] += values[self.n: self.n + len(self.split)]
        return of_rows, own

    def adjoint(self, values: Array) -> Array:
        """``A' values``."""
        self.passes += 1
        of_rows, own = self.rows(values)
        out = self.problem.design.adjoint(of_rows)
        return out + self.own.T @ own if len(own) else out

    def gram(self, weights: Array) -> Array:
        """``A' diag(weights) A``."""
        self.passes += 1
        of_rows, own = self.rows(weights)
        out = self.problem.design.weighted_gram(None, of_rows)
        if len(own):
            scaled = sp.diags(np.sqrt(own)) @ self.own
            out += (scaled.T @ scaled).toarray()
        return out

    def take(self, index: NDArray[np.intp]) -> Array:
        """The rows of some terms, dense."""
        first = index < self.n
        second = ~first & (index < self.n + len(self.split))
        of_rows = np.where(second, 0, np.where(first, index, 0))
        of_rows[second] = self.split[index[second] - self.n]
        design = first | second
        out = np.empty((len(index), self.problem.d))
        out[design] = self.problem.design.dense(of_rows[design])
        own = index[~design] - self.n - len(self.split)
        out[~design] = self.own[own].toarray()
        return out

    def quadratic(self) -> Array:
        """M, dense; None would be a special case for little."""
        return self.problem.quadratic.dense()

    @cached_property
    def bounds(self) -> tuple[NDArray[np.intp], Array]:
        """Coordinates with a constraint of their own, and where it binds."""
        single = np.flatnonzero(np.diff(self.own.indptr) == 1)
        own = single + self.n + len(self.split)
        single = single[(self.lo[own] == 0.0) & np.isinf(self.hi[own])]
        entries = self.own.data[self.own.indptr[single]]
        at = self.own.indices[self.own.indptr[single]]
        return at, self.b[single + self.n + len(self.split)] / entries

    def at_bounds(self, x: Array) -> Array:
        """`x` with coordinates that are a rounding error from a bound of their own put on it."""
        at, bound = self.bounds
        if not len(at):
            return x
        reach = ON_BOUND * (float(np.abs(x).max()) + np.abs(bound))
        close = np.abs(x[at] - bound) <= reach
        out = x.copy()
        out[at[close]] = bound[close]
        return out

    @cached_property
    def endless(self) -> NDArray[np.intp]:
        """Terms that are inequalities: an infinite slope without curvature."""
        ends = np.isinf(self.lo) | np.isinf(self.hi)
        return np.flatnonzero((self.q == 0) & ends)

    def violation(self, t: Array) -> float:
        """The largest violation of an inequality, relative to the sizes of the inequalities."""
        z = (t - self.b)[self.endless]
        beyond = np.where(np.isinf(self.hi[self.endless]), z, -z)
        size = np.abs(t[self.endless]) + np.abs(self.b[self.endless])
        return float(beyond.max() / max(float(size.max()), 1e-300))

    def stationarity(self, x: Array, At_theta: Array, y: Array) -> Array:
        """``M x + q + A' theta - E' y``."""
        out = self.problem.quadratic.apply(x) + self.problem.linear + At_theta
        return out - self.E.T @ y if len(y) else out


def _side_rows(problem: Problem) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The rows of the side constraints that are inequalities, and those that are equalities."""
    below, equal = [np.zeros(0, dtype=np.intp)], [np.zeros(0, dtype=np.intp)]
    for kind, _, rows in problem.side.blocks() if problem.side is not None else ():
        (equal if kind == "zero" else below).append(np.arange(rows.start, rows.stop))
    return np.concatenate(below), np.concatenate(equal)


def _independent(E: Array, e: Array) -> tuple[NDArray[np.intp], bool]:
    """A largest set of independent rows of E, and whether the other equations contradict them."""
    if not len(e):
        return np.zeros(0, dtype=np.intp), False
    sizes = np.linalg.norm(E, axis=1)
    scaled = E / np.where(sizes > 0, sizes, 1.0)[:, None]
    triangle, order = sla.qr(scaled.T, mode="r", pivoting=True)
    diagonal = np.abs(np.diag(triangle))
    rank = int((diagonal > 1e-11 * max(len(e), E.shape[1])).sum())
    chosen = np.sort(order[:rank]).astype(np.intp)
    x = np.linalg.lstsq(E[chosen], -e[chosen], rcond=None)[0] if rank else np.zeros(E.shape[1])
    room = 1e-9 * (np.abs(E) @ np.abs(x) + np.abs(e)) + 1e-300
    return chosen, bool((np.abs(E @ x + e) > room).any())


# -- the normal equations ----------------------------------------------------------------------


class _System:
    """``H dx - E' dy = r, E dx = s`` for one positive semidefinite H.

    A multiple of ``E' E`` is added to H, which changes nothing as ``E dx`` is given, and makes H
    definite where only the equalities see a coordinate. `regular` on the diagonal is a proximal
    term: it keeps x where no term says where to go.
    """

    def __init__(self, H: Array, E: Array, regular: Array | float = 0.0) -> None:
        self.E = E
        self.H = H.copy()
        self.H[np.diag_indices(len(H))] += regular
        H = self.H
        diagonal = np.diag(H)
        if len(E):
            squares = (E * E).sum(axis=0)
            top = float(diagonal.max(initial=0.0))
            self.weight = (top if top > 0 else 1.0) / float(squares.max())
            self.H = H + self.weight * (E.T @ E)
            diagonal = np.diag(self.H)
        self.scale = 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
        matrix = self.H * self.scale[:, None]
        matrix *= self.scale
        matrix[np.diag_indices(len(matrix))] += (diagonal <= 0).astype(float)
        for extra in EXTRA:
            if extra:
                matrix[np.diag_indices(len(matrix))] += extra
            try:
                self.factor = sla.cho_factor(matrix, lower=True, check_finite=False)
                self.exact = extra == 0.0
                break
            except sla.LinAlgError:
                continue
        else:
            raise sla.LinAlgError("the normal equations are not positive definite")
        if len(E):
            self.inverse_Et = self._inverse(np.ascontiguousarray(E.T))
            schur = E @ self.inverse_Et
            self.schur = _factor_of(0.5 * (schur + schur.T))

    def _inverse(self, right: Array) -> Array:
        scale = self.scale if right.ndim == 1 else self.scale[:, None]
        out = scale * sla.cho_solve(self.factor, scale * right, check_finite=False)
        for _ in range(1 if self.exact else 3):
            rest = right - self.H @ out
            out = out + scale * sla.cho_solve(self.factor, scale * rest, check_finite=False)
        return np.asarray(out)

    def solve(self, right: Array, gap: Array) -> tuple[Array, Array]:
        """The steps dx and dy."""
        if not len(self.E):
            return self._inverse(right), gap
        dx = self._inverse(right + self.weight * (self.E.T @ gap))
        dy = self.schur(gap - self.E @ dx)
        return dx + self.inverse_Et @ dy, dy


def _factor_of(matrix: Array) -> Any:
    """A function that multiplies by the inverse of a positive semidefinite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    kept = values > 1e-15 * float(np.abs(values).max(initial=0.0))
    basis, inverse = vectors[:, kept], 1.0 / values[kept]
    return lambda right: basis @ (inverse * (basis.T @ right))


# -- the central path --------------------------------------------------------------------------


@dataclass(eq=False)
class _Step:
    """A step of everything that moves; `At` is ``A' dtheta``."""

    x: Array
    y: Array
    t: Array
    theta: Array
    below: Array
    above: Array
    At: Array


class _Path:
    """An iterate, and the step to the next one.

    `low` and `high` are ``theta - lo`` and ``hi - theta`` (1 where that end is infinite, with
    multiplier 0), `below` and `above` the multipliers; `t` is ``A x``, `At` is ``A' theta``.
    """

    def __init__(self, terms: _Terms, x: Array | None, level: float | None) -> None:
        self.terms = terms
        f = terms
        self.live = f.lo < f.hi
        self.has_low, self.has_high = np.isfinite(f.lo) & self.live, np.isfinite(f.hi) & self.live
        self.pairs = max(int(self.has_low.sum() + self.has_high.sum()), 1)
        everywhere = bool(self.has_low.all() and self.has_high.all())
        # Numbers in place of arrays of ones: most problems have two ends everywhere.
        self.low_is = 1.0 if everywhere else self.has_low.astype(np.float64)
        self.high_is = 1.0 if everywhere else self.has_high.astype(np.float64)
        self.live_is = 1.0 if self.live.all() else self.live.astype(np.float64)
        self.curved = bool(f.q.any())
        self.M = terms.quadratic()
        self.linear_program = not (self.curved or self.M.any())
        self._begin(x, level)

    # -- where it begins ------------------------------------------------------------------------

    def _begin(self, x: Array | None, level: float | None) -> None:
        """At `x` (of a proximal problem when omitted), every term central for it."""
        f = self.terms
        width = np.where(self.has_low & self.has_high, f.hi - f.lo, np.inf)
        finite = np.isfinite(width) & (width > 0)
        usual = float(np.median(width[finite])) if finite.any() else 1.0
        self.width = np.where(finite, width, usual)
        spread = float(np.std(f.b[self.live])) if self.live.any() else 1.0
        size = float(np.abs(f.b).max(initial=0.0))
        if not spread > 1e-12 * size:
            spread = size if size > 0 else 1.0
        proximal = self._proximal(spread)
        if x is None:
            x = proximal
        self.x, self.t = x, f.forward(x)
        away = np.abs(self.t - f.b)[self.live]
        self.reach = max(float(away.mean()) if len(away) else 1.0, 1e-3 * spread)
        if level is None:
            level = 0.3 * self.reach * float(np.mean(self.width))
        self.level = level
        self._central(level)
        self.At = f.adjoint(self.theta)
        self.y = np.zeros(len(f.e))
        self.first = (float(np.abs(x).max(initial=0.0)) + 1e-300, float(self.width.max()))

    def _proximal(self, spread: float) -> Array:
        """The minimiser when every loss is a parabola about as wide as the losses' kinks lie."""
        f = self.terms
        weight = self.live_is / (f.q + spread / self.width)
        middle = np.where(
            self.has_low & self.has_high, 0.5 * (np.where(self.has_low, f.lo, 0.0)
                                                 + np.where(self.has_high, f.hi, 0.0)), 0.0)
        one_sided = self.live & ~(self.has_low & self.has_high) & (f.q == 0)
        weight = np.where(one_sided, 0.01 * weight, weight)
        H = f.gram(weight) + self.M
        H[np.diag_indices(len(H))] *= 1.0 + 1e-8
        diagonal = np.diag(H)
        self.unseen = (diagonal == 0.0) & ~f.E.any(axis=0)
        top = float(diagonal.max(initial=0.0))
        self.regular = REGULAR_STEP * np.where(diagonal > 0, diagonal, top if top > 0 else 1.0)
        right = f.adjoint(weight * f.b - middle * self.live_is) - f.problem.linear
        return _System(H, f.E).solve(right, -f.e)[0]

    def _central(self, level: float) -> None:
        """Slopes and multipliers with all products at `level`, given x."""
        f = self.terms
        r = self.t - f.b
        both = self.has_low & self.has_high
        width = np.where(both, f.hi - f.lo, 1.0)
        half = np.abs(r)
        # The root of r = level / (hi - theta) - level / (theta - lo), measured from the near end.
        near = 2.0 * level * width / (2.0 * level + half * width
                                      + np.sqrt(4.0 * level**2 + (half * width) ** 2))
        low = np.where(r > 0, width - near, near)
        high = np.where(r > 0, near, width - near)
        if not both.all():
            # One end only: as if the slope were some way inside; x need not fit yet.
            root = level / np.maximum(half, level / self.width)
            low = np.where(both, low, np.where(self.has_low, root, 1.0))
            high = np.where(both, high, np.where(self.has_high, root, 1.0))
        if self.curved:
            low, high = self._curved_start(r, level, low, high)
        self.low, self.high = low, high
        self.below = np.where(self.has_low, level / low, 0.0)
        self.above = np.where(self.has_high, level / high, 0.0)
        self.theta = self._slopes()
        if self.curved:
            free = self.live & ~self.has_low & ~self.has_high
            self.theta[free] = (r[free] / np.where(f.q > 0, f.q, 1.0)[free])

    def _curved_start(
        self, r: Array, level: float, low: Array, high: Array
    ) -> tuple[Array, Array]:
        """Slopes of curved terms: near the parabola's, well inside the interval."""
        f = self.terms
        curve = np.where(f.q > 0, f.q, 1.0)
        own = r / curve
        inner_low = np.where(self.has_low, f.lo, -np.inf)
        inner_high = np.where(self.has_high, f.hi, np.inf)
        both = self.has_low & self.has_high
        margin = np.where(both, 0.05 * self.width, np.maximum(0.05 * np.abs(own),
                                                              np.sqrt(level / curve)))
        theta = np.clip(own, inner_low + margin, inner_high - margin)
        bent = (f.q > 0) & self.live
        with np.errstate(invalid="ignore"):
            low = np.where(bent & self.has_low, theta - inner_low, low)
            high = np.where(bent & self.has_high, inner_high - theta, high)
        return low, high

    def _slopes(self) -> Array:
        """The slopes, from the nearer end, so that small distances keep their digits."""
        f = self.terms
        with np.errstate(invalid="ignore"):
            from_low = f.lo + self.low
            theta = np.where(
                self.has_low & (~self.has_high | (self.low <= self.high)), from_low,
                np.where(self.has_high, f.hi - self.high, 0.0),
            )
        return theta

    # -- the step --------------------------------------------------------------------------------

    def advance(self) -> float:
        """One step of predictor and corrector; its length (the shorter of the two)."""
        f = self.terms
        curvature = f.q + self.below / self.low + self.above / self.high
        np.maximum(curvature, 1e-300, out=curvature)
        D = self.live_is / curvature
        H = f.gram(D)
        H += self.M
        try:
            system = _System(H, f.E, self.regular)
        except (sla.LinAlgError, ValueError):
            return 0.0
        residual = f.stationarity(self.x, self.At, self.y)
        equal = -(f.E @ self.x + f.e) if len(f.e) else f.e
        short = self.t - f.b - f.q * self.theta
        # Predictor: straight to products of 0.
        rho = -short
        dx, _ = system.solve(f.adjoint(D * rho) - residual, equal)
        dtheta = D * (f.forward(dx) - rho)
        dbelow = -self.below * (1.0 + dtheta / self.low)
        dabove = self.above * (dtheta / self.high - 1.0)
        dlow, dhigh = dtheta * self.low_is, -dtheta * self.high_is
        to_dual = min(1.0, self._length((self.low, dlow), (self.high, dhigh)))
        to_primal = min(1.0, self._length((self.below, dbelow), (self.above, dabove)))
        if not self.linear_program:
            to_dual = to_primal = min(to_dual, to_primal)
        product = float(self.below @ (self.low * self.low_is)
                        + self.above @ (self.high * self.high_is))
        predicted = float(
            (self.below + to_primal * dbelow) @ ((self.low + to_dual * dtheta) * self.low_is)
            + (self.above + to_primal * dabove) @ ((self.high - to_dual * dtheta) * self.high_is)
        )
        mean = product / self.pairs
        share = min(max(predicted / product, 0.0), 1.0) if product > 0 else 0.0
        level = share**3 * mean
        # Corrector: towards products at `level`, with what the predictor's products leave out.
        c_low = (level - dtheta * dbelow) * self.low_is / self.low
        c_high = (level + dtheta * dabove) * self.high_is / self.high

        def towards(c_low: Array, c_high: Array) -> _Step:
            rho = c_high - c_low - short
            w = f.adjoint(D * rho)
            dx, dy = system.solve(w - residual, equal)
            dt = f.forward(dx)
            dtheta = D * (dt - rho)
            return _Step(
                dx, dy, dt, dtheta, c_low - self.below * (1.0 + dtheta / self.low),
                c_high + self.above * (dtheta / self.high - 1.0), H @ dx - self.M @ dx - w,
            )

        step = towards(c_low, c_high)
        reach = self._lengths(step)
        for _ in range(CENTRALITY):
            if min(reach) >= LONG:
                break
            further = [min(1.0, FURTHER[0] * size + FURTHER[1]) for size in reach]
            for c, value, multiplier, dvalue, dmultiplier, real in (
                (c_low, self.low, self.below, step.theta, step.below, self.low_is),
                (c_high, self.high, self.above, -step.theta, step.above, self.high_is),
            ):
                ahead = (value + further[0] * dvalue) * (multiplier + further[1] * dmultiplier)
                wanted = np.clip(ahead, level / CENTRAL, CENTRAL * level) - ahead
                c += np.maximum(wanted, -CENTRAL * level) * real / value
            better = towards(c_low, c_high)
            found = self._lengths(better)
            if min(found) < min(reach) + LEAST_GAIN:
                if min(found) > min(reach):
                    step, reach = better, found
                break
            step, reach = better, found
        if not np.isfinite(step.x).all():
            return 0.0
        to_dual, to_primal = reach
        self.x = self.x + to_primal * step.x
        self.t = self.t + to_primal * step.t
        self.below += to_primal * step.below
        self.above += to_primal * step.above
        self.low += to_dual * step.theta * self.low_is
        self.high -= to_dual * step.theta * self.high_is
        self.theta += to_dual * step.theta
        self.y = self.y + to_dual * step.y
        self.At = self.At + to_dual * step.At
        self.dx = step.x
        self.level = level
        return min(to_dual, to_primal)

    def _lengths(self, step: _Step) -> tuple[float, float]:
        """How far slopes and multipliers may go along `step`."""
        dual = self._length((self.low, step.theta * self.low_is),
                            (self.high, -step.theta * self.high_is))
        primal = self._length((self.below, step.below), (self.above, step.above))
        dual, primal = min(1.0, TO_BOUNDARY * dual), min(1.0, TO_BOUNDARY * primal)
        if not self.linear_program:
            dual = primal = min(dual, primal)
        return dual, primal

    @staticmethod
    def _length(*pairs: tuple[Array, Array]) -> float:
        """How far the values stay positive, a million at most."""
        most = 1e-6
        for value, change in pairs:
            if len(value):
                most = max(most, float(np.max(-change / np.maximum(value, 1e-300))))
        return 1.0 / most

    # -- what is known of it ---------------------------------------------------------------------

    def estimate(self) -> float:
        """About the duality gap: the products, and what the residuals may hide."""
        f = self.terms
        product = float(self.below @ (self.low * self.low_is)
                        + self.above @ (self.high * self.high_is))
        short = self.t - f.b - f.q * self.theta + self.below - self.above
        slope = np.maximum(np.abs(self.theta), self.width) * self.live_is
        residual = f.stationarity(self.x, self.At, self.y)
        size = np.abs(self.x) + float(np.abs(self.x).mean()) if len(self.x) else self.x
        total = product + float(np.abs(short) @ slope) + float(np.abs(residual) @ size)
        if len(f.e):
            total += float(np.abs(f.E @ self.x + f.e) @ np.abs(self.y))
        return total

    @property
    def far(self) -> bool:
        """Whether the iterates have grown beyond anything that an optimum should be."""
        size = float(np.abs(self.x).max(initial=0.0))
        slope = float(np.abs(self.theta).max(initial=0.0))
        slope = max(slope, float(np.abs(self.y).max(initial=0.0)))
        return size > GROWN * self.first[0] or slope > FAR * self.first[1]

    @property
    def endless(self) -> bool:
        """Whether the linear term pulls at a coordinate that nothing else sees."""
        return bool((self.terms.problem.linear[self.unseen] != 0).any())

    def proven(self) -> str:
        """``"unbounded"`` or ``"infeasible"`` where a direction of the iterates shows it."""
        if self.endless:
            return "unbounded"
        for direction in (self.x, getattr(self, "dx", self.x)):
            if self._descends(direction):
                return "unbounded"
        return "infeasible" if self._separates() else ""

    def _descends(self, p: Array) -> bool:
        """Whether P falls without end along p: its recession function is negative there."""
        f = self.terms
        size = float(np.linalg.norm(p))
        if not (np.isfinite(size) and size > 0):
            return False
        p = p / size
        t = f.forward(p)
        rows = np.abs(t)
        top = float(rows.max(initial=0.0)) + 1e-300
        scale = max(float(np.abs(self.M).max(initial=0.0)), 1e-300)
        if float(p @ (self.M @ p)) > FLAT * scale:
            return False
        t = np.where(rows <= RAY * top, 0.0, t)
        rising, falling = np.maximum(t, 0.0), np.maximum(-t, 0.0)
        blocked = (rising > 0) & ~self.has_high & self.live
        blocked |= (falling > 0) & ~self.has_low & self.live
        if blocked.any():
            return False
        if len(f.e) and float(np.abs(f.E @ p).max()) > RAY * float(np.abs(f.E).max()):
            return False
        up = np.where(self.has_high, f.hi, 0.0)
        down = np.where(self.has_low, f.lo, 0.0)
        parts = up * rising - down * falling
        linear = f.problem.linear * p
        value = float(parts.sum() + linear.sum())
        return value < -1e-9 * float(np.abs(parts).sum() + np.abs(linear).sum())

    def _separates(self) -> bool:
        """Whether slopes of constraints and equalities show that nothing satisfies them all."""
        f = self.terms
        ray = np.where(self.live & (f.q == 0) & ~(self.has_low & self.has_high), self.theta, 0.0)
        value = float(f.b @ ray) + float(f.e @ self.y)
        if not value < 0:
            return False
        of_terms = f.adjoint(ray)
        left = of_terms - (f.E.T @ self.y if len(f.e) else 0.0)
        size = float(np.abs(f.b) @ np.abs(ray)) + float(np.abs(f.e) @ np.abs(self.y))
        reach = 1.0 + float(np.abs(self.x).max(initial=0.0))
        return -value > 1e-9 * size and float(np.abs(left).sum()) * reach <= -RAY * value


# -- the face of the optimum -------------------------------------------------------------------


@dataclass(eq=False)
class _Pair:
    """A primal and a dual point of the problem as terms, its gap, and what that is the sum of."""

    x: Array
    theta: Array
    y: Array
    gap: float
    size: float


class _Run:
    """One call: the best pair so far, and when to look for the face of the optimum."""

    def __init__(self, terms: _Terms, target: float) -> None:
        self.terms, self.target = terms, target
        self.best: _Pair | None = None
        self.steps = 0
        self.on_face = False
        self.inside: Array | None = None
        self.leave_path()

    def leave_path(self) -> None:
        """Forget what belongs to one path; the best pair and a point inside are kept."""
        self.idle, self.least, self.most = 0, np.inf, 0.0
        self.nearest: tuple[Array, Array, Array] | None = None
        self.next_look = np.inf

    @property
    def gap(self) -> float:
        """Of the best pair."""
        return np.inf if self.best is None else self.best.gap

    @property
    def provable(self) -> bool:
        """Whether bounds can rest on a point that satisfies the side constraints for certain."""
        side, free = self.terms.problem.side, self.terms.problem.quadratic.free
        if side is None:
            return False
        return not (free.any() and any(kind == "zero" for kind, _ in side.dims))

    @property
    def reached(self) -> bool:
        """Whether the target has been reached, or rounding is all that is left."""
        return self.gap <= max(self.target, 0.0 if self.best is None else UNIT * self.best.size)

    def consider(self, x: Array, theta: Array, y: Array) -> bool:
        """Evaluate a pair and keep it if it is the best; whether it is."""
        x = self.terms.at_bounds(x)
        gap, size = self.gap_of(x, theta, y)
        better = self.best is None or gap < self.best.gap
        if better:
            self.best = _Pair(x.copy(), theta.copy(), y.copy(), gap, size)
        return better

    def gap_of(self, x: Array, theta: Array, y: Array) -> tuple[float, float]:
        """The Fenchel-Young terms and what the residuals cost; ``sum |theta_i| |<a_i, x>|``."""
        f = self.terms
        t = f.forward(x)
        gap = float(fenchel_young(f, t - f.b, theta).sum())
        residual = f.stationarity(x, f.adjoint(theta), y)
        usual = float(np.abs(x).mean()) if len(x) else 0.0
        cost = np.abs(residual) * (np.abs(x) + usual)
        diagonal = f.problem.quadratic.diagonal
        if f.problem.quadratic.matrix is None:
            held = diagonal > 0
            cost[held] = np.minimum(cost[held], 0.5 * residual[held] ** 2 / diagonal[held])
        gap += float(cost.sum())
        if len(f.e):
            gap += float(np.abs(f.E @ x + f.e) @ np.abs(y))
        size = float(np.abs(theta) @ np.abs(t))
        apart = bool(len(f.endless)) and f.violation(t) > VIOLATED
        if len(f.e) and not apart:
            reach = np.abs(f.E) @ np.abs(x) + np.abs(f.e)
            apart = bool((np.abs(f.E @ x + f.e) > VIOLATED * reach).any())
        return (gap, size) if np.isfinite(gap) and not apart else (np.inf, 0.0)

    def path(self, start: Start | None) -> _Path:
        """Where the central path is entered."""
        if start is None or not np.isfinite(start.x).all():
            return _Path(self.terms, None, None)
        level = None
        if self.best is not None and np.isfinite(self.best.gap):
            level = self.best.gap / max(len(self.terms), 1)
        path = _Path(self.terms, np.array(start.x, dtype=np.float64), None)
        if level is not None and level < path.level:
            path._central(max(level, 1e-6 * path.level))
            path.At = self.terms.adjoint(path.theta)
        return path

    def answer(self) -> tuple[Array, Array, Array]:
        """x, slopes of the problem's own terms, multipliers of its side constraints."""
        f, best = self.terms, self.best
        if best is None:
            nothing = np.zeros(0)
            return nothing, nothing, nothing
        of_rows, own = f.rows(best.theta)
        theta = of_rows.copy() if of_rows is best.theta else of_rows
        y = np.zeros(f.equal + len(f.tied))
        y[f.chosen] = best.y
        theta[f.tied] = -y[f.equal:]
        losses, side = f.problem.losses, f.problem.side
        theta = np.clip(theta, losses.lo, losses.hi)
        if side is None:
            return best.x, theta, np.zeros(0)
        below, equal = _side_rows(f.problem)
        multipliers = np.zeros(len(side.offset))
        multipliers[below] = own[len(own) - len(below):] if len(below) else 0.0
        multipliers[equal] = y[: f.equal]
        return self.moved_inside(best), theta, multipliers

    def moved_inside(self, best: _Pair) -> Array:
        """The best x, or a point beside it that satisfies the constraints for certain."""
        side = self.terms.problem.side
        if self.inside is None or side is None:
            return best.x
        x = side.moved_inside(best.x, self.inside)
        if x is best.x or np.array_equal(x, best.x):
            return best.x
        gap, _ = self.gap_of(x, best.theta, best.y)
        return x if gap <= max(self.target, 2.0 * best.gap) else best.x

    # -- looks -----------------------------------------------------------------------------------

    def look(self, path: _Path) -> None:
        """Evaluate the iterate where it may do; look for the face where that may be seen."""
        estimate = path.estimate()
        self.most = max(self.most, estimate)
        if self.provable and (self.inside is None or estimate > INSIDE_UNTIL * self.most):
            side = self.terms.problem.side
            if side is not None and np.isfinite(side.nearness(path.x)):
                self.inside = path.x
        if estimate < self.least:
            self.nearest = (path.x, self.clipped(path), path.y)
        if estimate < 0.7 * self.least:
            self.least, self.idle = estimate, 0
        else:
            self.idle += 1
        if estimate <= self.target:
            self.consider(path.x, self.clipped(path), path.y)
            if self.reached:
                self.consider_face(path)  # for slopes and multipliers that are 0, not nearly so
                return
        if self.next_look == np.inf:
            self.next_look = FACE_FROM * float(np.abs(path.theta) @ np.abs(path.t - self.terms.b))
        if estimate <= self.next_look:
            self.next_look = FACE_AGAIN * estimate
            self.consider_face(path)

    def last_look(self, path: _Path) -> None:
        """Where the path has ended: the iterate itself and its face."""
        self.consider(path.x, self.clipped(path), path.y)
        if self.nearest is not None and not self.reached:
            self.consider(*self.nearest)
        if not self.reached:
            self.consider_face(path)

    def clipped(self, path: _Path) -> Array:
        """The slopes within their intervals to the last bit."""
        f = self.terms
        return np.clip(path.theta, np.where(path.live, f.lo, 0.0), np.where(path.live, f.hi, 0.0))

    def consider_face(self, path: _Path) -> None:
        """The optimum on the face that the iterate points at."""
        f = self.terms
        usual = max(float(np.median(np.abs(path.t - f.b)[path.live])), 1e-300) if path.live.any() \
            else 1.0
        with np.errstate(over="ignore"):
            at_low = path.has_low & (path.low * usual < path.below * path.width)
            at_high = path.has_high & (path.high * usual < path.above * path.width)
        theta = self.clipped(path)
        theta = np.where(at_low, f.lo, np.where(at_high, f.hi, theta))
        inside = path.live & ~at_low & ~at_high
        if self.reached and self.large(inside):
            return
        self.settle(_Face(f, path.M), path.x, theta, path.y, inside)

    def begin_on_face(self, start: Start) -> bool:
        """Whether the start's face holds the optimum; its best pair is kept in any case."""
        f, n = self.terms, self.terms.n
        if len(start.x) != f.problem.d or len(start.theta) != n:
            return False
        if not (np.isfinite(start.x).all() and np.isfinite(start.theta).all()):
            return False
        theta = np.zeros(len(f))
        given = np.array(start.theta, dtype=np.float64)
        theta[:n] = given
        k = len(f.split)
        theta[n: n + k] = np.minimum(given[f.split], 0.0)
        theta[f.split] = np.maximum(given[f.split], 0.0)
        y = np.zeros(len(f.e))
        side = f.problem.side
        if side is not None and start.multipliers is not None and len(start.multipliers):
            below, equal = _side_rows(f.problem)
            theta[len(f) - len(below):] = start.multipliers[below]
            both = np.concatenate([start.multipliers[equal], -given[f.tied]])
            y = both[f.chosen]
        if isinstance(f.problem.penalty, L1):
            at = np.flatnonzero(f.problem.penalty.kappa)
            free = -(f.problem.design.adjoint(given) + f.problem.linear
                     + f.problem.quadratic.apply(start.x))[at]
            theta[n + k: n + k + len(at)] = free
        theta = np.clip(theta, f.lo, f.hi)
        self.consider(np.array(start.x, dtype=np.float64), theta, y)
        if self.reached:
            return True
        inside = (theta > f.lo) & (theta < f.hi)
        if not 0 < int((inside & (f.q == 0)).sum()) <= CROWDED * f.problem.d:
            return False
        self.settle(_Face(f, f.quadratic()), np.array(start.x), theta, y, inside)
        return self.reached

    def large(self, inside: Mask) -> bool:
        """Whether the equations of a face cost as much as a step."""
        kinks = int((inside & (self.terms.q == 0)).sum())
        return self.terms.problem.d + kinks > LARGE_FACE

    def settle(self, face: _Face, x: Array, theta: Array, y: Array, inside: Mask) -> None:
        """Solve the equations of a face; exchange what violates a sign, a few times."""
        f, violations = self.terms, len(self.terms) + 1
        for _ in range(1 if self.large(inside) else EXCHANGES):
            found = face.optimum(x, theta, y, inside)
            if found is None:
                return
            x, theta, y = found
            low, high = theta < f.lo, theta > f.hi
            theta = np.clip(theta, f.lo, f.hi)
            self.on_face |= self.consider(x, theta, y)
            if self.reached:
                return
            z = f.forward(x) - f.b - f.q * theta
            room = 1e-12 * (np.abs(z) + np.abs(f.b)) + 1e-14 * float(np.abs(z).max(initial=0.0))
            wrong = ~inside & (f.lo < f.hi) & (
                ((theta == f.lo) & (z > room)) | ((theta == f.hi) & (z < -room)))
            leave = low | high
            before, violations = violations, int(wrong.sum() + leave.sum())
            if not 0 < violations < before:
                return
            inside = (inside & ~leave) | wrong


class _Face:
    """The linear equations of the optimum, given which slopes are inside their intervals."""

    def __init__(self, terms: _Terms, M: Array) -> None:
        self.terms, self.M = terms, M

    def optimum(
        self, x: Array, theta: Array, y: Array, inside: Mask
    ) -> tuple[Array, Array, Array] | None:
        """The solution of the equations nearest to ``(x, theta, y)``; None where there is none.

        Terms inside with curvature are eliminated; those without give the equations ``<a_i, x> =
        b_i``, with their slopes as multipliers. A multiple of the identity makes the system regular
        where the optimum is not unique or the vertex degenerate, and is refined away.
        """
        f, d = self.terms, self.terms.problem.d
        bent, kinks = np.flatnonzero(inside & (f.q > 0)), np.flatnonzero(inside & (f.q == 0))
        if len(kinks) > CROWDED * d:
            return None
        H = self.M
        if len(bent):
            weights = np.zeros(len(f))
            weights[bent] = 1.0 / f.q[bent]
            H = H + f.gram(weights)
        B = np.vstack([f.take(kinks), f.E])
        k = len(kinks)
        try:
            system = _FaceSystem(H, B)
        except (sla.LinAlgError, ValueError):
            return None
        for _ in range(2):
            t = f.forward(x)
            slopes = theta.copy()
            slopes[bent] = (t[bent] - f.b[bent]) / f.q[bent]
            first = -f.stationarity(x, f.adjoint(slopes), y)
            second = np.concatenate([f.b[kinks], -f.e]) - B @ x
            step = system.solve(first, second)
            if step is None:
                return None
            x = x + step[0]
            theta = theta.copy()
            theta[kinks] += step[1][:k]
            y = y - step[1][k:]
        if len(bent):
            theta[bent] = (f.forward(x)[bent] - f.b[bent]) / f.q[bent]
        return x, theta, y


def _lu(matrix: Array) -> tuple[Array, NDArray[np.int32]]:
    """Its LU factors for `scipy.linalg.lu_solve`, which may be singular without a warning."""
    (factorise,) = sla.get_lapack_funcs(("getrf",), (matrix,))
    factors, pivots, _ = factorise(matrix)
    return factors, pivots


class _FaceSystem:
    """``[[H, B'], [B, 0]] step = (first, second)``, scaled and made regular.

    Where H is 0 and B square, at the vertex of a linear program, B alone is factorised.
    """

    def __init__(self, H: Array, B: Array) -> None:
        d, k = H.shape[0], len(B)
        columns = np.sqrt(np.diag(H) + (B * B).max(axis=0, initial=0.0))
        self.columns = 1.0 / np.where(columns > 0, columns, 1.0)
        scaled = B * self.columns
        rows = np.linalg.norm(scaled, axis=1)
        self.rows = 1.0 / np.where(rows > 0, rows, 1.0)
        scaled *= self.rows[:, None]
        self.vertex = d == k and not H.any()
        if self.vertex:
            self.K = scaled
            self.factor = _lu(scaled)
            pivots = np.abs(np.diag(self.factor[0]))
            self.vertex = bool(pivots.min() > SINGULAR * pivots.max())
        if self.vertex:
            return
        self.K = np.zeros((d + k, d + k))
        self.K[:d, :d] = H * self.columns[:, None] * self.columns
        self.K[d:, :d], self.K[:d, d:] = scaled, scaled.T
        regular = self.K.copy()
        at = np.arange(d + k)
        regular[at, at] += np.where(at < d, REGULAR, -REGULAR)
        self.factor = _lu(regular)

    def solve(self, first: Array, second: Array) -> tuple[Array, Array] | None:
        """The steps of x and of the multipliers; None where there is none."""
        first, second = self.columns * first, self.rows * second
        d = len(first)
        if self.vertex:
            x = sla.lu_solve(self.factor, second, check_finite=False)
            x += sla.lu_solve(self.factor, second - self.K @ x, check_finite=False)
            slopes = sla.lu_solve(self.factor, first, trans=1, check_finite=False)
            slopes += sla.lu_solve(self.factor, first - self.K.T @ slopes, 1, check_finite=False)
            step = np.concatenate([x, slopes])
        else:
            right, step = np.concatenate([first, second]), np.zeros(len(self.K))
            for _ in range(REFINEMENTS):
                step += sla.lu_solve(self.factor, right - self.K @ step, check_finite=False)
        if not np.isfinite(step).all():
            return None
        return self.columns * step[:d], self.rows * step[d:]


def fenchel_young(f: _Terms, z: Array, theta: Array) -> Array:
    """The Fenchel-Young terms at ``t = z + b``; an infinite slope is charged as ``|theta|``."""
    low = np.where(np.isfinite(f.lo), f.lo, np.minimum(theta, 0.0))
    high = np.where(np.isfinite(f.hi), f.hi, np.maximum(theta, 0.0))
    flat = f.q == 0
    slope = np.where(z > 0, high, low)
    if not flat.all():
        curve = np.where(flat, 1.0, f.q)
        slope = np.where(flat, slope, np.clip(z / curve, f.lo, f.hi))
    return np.maximum((z - 0.5 * f.q * (slope + theta)) * (slope - theta), 0.0)


# -- a budget of losses ------------------------------------------------------------------------

BUDGET_GAP = 1e-10
"""Estimated gap, relative to the objective's terms, at which a problem with a budget is solved;
from `BUDGET_USABLE` on it will do where rounding allows no more."""
BUDGET_USABLE = 1e-8
BUDGET_WIDTH = 4.0
"""Width of the parabolas whose minimiser is the start, in deviations of the margins: 1, 2 and 4
took 39, 33 and 27 steps for a conditional value at risk of 10,000 scenarios."""
BUDGET_LEVEL = 1.0
"""The first level of the products, in units of ``mean |margin| mean width``."""
BUDGET_MULTIPLIER = 0.3
"""The first multiplier, in units of the objective's size over the budget's: 24 steps, 39 at 1."""


@dataclass(frozen=True, eq=False)
class WithinBudget:
    """A solution of a problem with a budget.

    Attributes
    ----------
    x : array, shape (d,)
    slopes : array, shape (n,)
        Of the budget's losses, not yet times the multiplier.
    multiplier : float
        Of the budget, positive.
    multipliers : array
        Of the side constraints.
    steps : int
    """

    x: Array
    slopes: Array
    multiplier: float
    multipliers: Array
    steps: int


def within_budget(
    objective: Problem, budget: Problem, limits: Limits = UNLIMITED, max_steps: int = 100
) -> WithinBudget | None:
    """Minimise an objective without losses within one budget of piecewise linear losses.

    ::

        minimise  F(x)   subject to   <l, x> + c + sum_i f_i(<a_i, x>) <= 0

    With a multiplier ``lambda >= 0`` the ends of a slope's interval are ``lambda lo_i`` and
    ``lambda hi_i``, and lambda adds one row and one column to the normal equations::

        (A'DA + M) dx - E' dy + g dlambda = right,   E dx = equal,   <g, dx> - k dlambda = over
        v = lo below/low + hi above/high,            g = l + A' D v
        k = slack/lambda + sum_i D (below/low) (above/high) (hi - lo)^2

    (``k = lo^2 below/low + hi^2 above/high - D v^2`` summed, which would cancel.)

    Returns
    -------
    WithinBudget or None
        None where the problem is of another kind, or was not solved: nothing is said of why.
    """
    f, q = budget.losses, objective.quadratic
    if objective.n or not isinstance(q, Quadratic) or not np.isfinite(f.hi - f.lo).all():
        return None
    if f.q.any() or not (f.lo < f.hi).all() or budget.quadratic.dense().any():
        return None
    whole = replace(objective, design=budget.design, losses=f, layout=None)
    if not budget.n or not takes(whole) or budget.penalty is not None or budget.side is not None:
        return None
    terms = _Terms.of(whole)
    if terms.inconsistent:
        return None
    try:
        with np.errstate(all="ignore"):
            path = _BudgetPath(terms, budget.linear, budget.constant)
            while path.estimate() > BUDGET_GAP * path.size() and path.steps < max_steps:
                if limits.spent(1) or not path.advance() > SHORT:
                    break
            if not path.estimate() <= BUDGET_USABLE * path.size():
                return None
    except (sla.LinAlgError, ValueError):
        return None
    theta = np.where(path.counted, path.theta / path.weight, path.theta)
    run = _Run(terms, 0.0)
    run.best = _Pair(terms.at_bounds(path.x), theta, path.y, 0.0, 0.0)
    x, slopes, multipliers = run.answer()
    return WithinBudget(x, slopes, path.weight, multipliers, path.steps)


class _Border:
    """``[[H, -B'], [B, K]]`` with B the equalities and the budget's g, and K = diag(0, .., 0, k).

    Multiples of B'B make H definite, as in `_System`; for g, which is no equality, one below 1/k.
    """

    def __init__(self, H: Array, E: Array, g: Array, k: float) -> None:
        self.H, self.B = H, np.vstack([E, g])
        self.k = np.append(np.zeros(len(E)), k)
        squares = np.maximum((self.B * self.B).sum(axis=1), 1e-300)
        self.added = float(np.diag(H).max()) / squares
        self.added[-1] = min(self.added[-1], 0.5 / max(k, 1e-300))
        self.inner = _System(H + (self.B.T * self.added) @ self.B, np.zeros((0, len(g))))
        self.inverse = self.inner._inverse(np.ascontiguousarray(self.B.T))
        schur = self.B @ self.inverse * (1.0 - self.added * self.k) + np.diag(self.k)
        self.scale = 1.0 / np.sqrt(np.maximum(np.abs(np.diag(schur)), 1e-300))
        self.factor = _lu(schur * self.scale[:, None] * self.scale)

    def _once(self, first: Array, second: Array) -> tuple[Array, Array]:
        x = self.inner._inverse(first + self.B.T @ (self.added * second))
        right = self.scale * (second - self.B @ x)
        z = self.scale * sla.lu_solve(self.factor, right, check_finite=False)
        return x + self.inverse @ ((1.0 - self.added * self.k) * z), z

    def solve(self, first: Array, equal: Array, over: float) -> tuple[Array, Array, float]:
        """The steps dx, dy and dlambda, refined once."""
        second = np.append(equal, over)
        x, z = self._once(first, second)
        more = self._once(
            first - self.H @ x + self.B.T @ z, second - self.B @ x - self.k * z
        )
        x, z = x + more[0], z + more[1]
        return x, z[:-1], -float(z[-1])


class _Move(NamedTuple):
    """A step of everything that moves: primal, then dual; products are of one with the other."""

    x: Array
    t: Array
    primal: Array
    theta: Array
    y: Array
    dual: Array


class _BudgetPath:
    """An iterate of a problem with a budget.

    `primal` holds below, above (of the terms with an upper end) and the budget's slack; `dual` what
    they are complementary to: low, high and the budget's multiplier.
    """

    def __init__(self, terms: _Terms, linear: Array, constant: float) -> None:
        f = self.terms = terms
        self.linear, self.constant, self.steps = linear, constant, 0
        self.counted = np.arange(len(f)) < f.n + len(f.split)
        self.lo, self.hi = np.where(self.counted, f.lo, 0.0), np.where(self.counted, f.hi, 0.0)
        self.upper = np.flatnonzero(np.isfinite(f.hi))
        self.M = terms.quadratic()
        self.equal_lengths = bool(self.M.any())
        width = self.hi - self.lo
        # The point of least squares of the margins tells how wide they are; then the minimiser of
        # the budget with parabolas of that width. The objective has no say: without curvature it
        # has no size to pull with.
        self.x = self._least(width / width.max(), np.zeros(len(f)), np.zeros_like(linear))
        z = (f.forward(self.x) - f.b)[self.counted]
        wide = BUDGET_WIDTH * max(float(np.std(z)), 1e-3 * float(np.abs(z).mean()), 1e-300)
        self.x = self._least(width / wide, 0.5 * (self.lo + self.hi), linear)
        self.t = f.forward(self.x)
        z = self.t - f.b
        reach = max(float(np.abs(z[self.counted]).mean()), 1e-300)
        size = max(abs(constant), 1e-3 * reach * float(width.sum()), 1e-300)
        pull = np.abs(f.problem.linear) + np.abs(self.M) @ np.abs(self.x)
        usual = np.abs(self.x) + 1e-3 * float(np.abs(self.x).mean())
        self.weight = max(BUDGET_MULTIPLIER * float(pull @ usual) / size, 1e-300)
        self.regular *= self.weight
        level = BUDGET_LEVEL * reach * self.weight * float(width[self.counted].mean())
        # Two ends: the root of z = level / high - level / low, from the near end. One end: a slack
        # that is there, or some share of what is usual.
        width = np.where(self.counted, self.weight * width, f.hi - f.lo)
        two = np.isfinite(width)
        full, half = np.where(two, width, 1.0), np.abs(z)
        near = 2.0 * level * full / (
            2.0 * level + half * full + np.sqrt(4.0 * level**2 + (half * full) ** 2))
        apart = half[~two]
        room = np.maximum(-z, 0.1 * (float(apart.mean()) if len(apart) else 0.0)
                          + 1e-3 * float(np.abs(self.x).max()) + 1e-300)
        low = np.where(two, np.where(z > 0, full - near, near), level / room)
        high = np.where(z > 0, near, full - near)[self.upper]
        self.theta = np.where(self.counted, self.weight * self.lo, f.lo) + low
        self.y = np.zeros(len(f.e))
        below, above = level / low, level / high
        over = self._budget(below, above)
        slack = max(-over, level / self.weight, 0.1 * abs(over))
        self.primal = np.concatenate([below, above, [slack]])
        self.dual = np.concatenate([low, high, [self.weight]])

    def _least(self, weights: Array, middle: Array, linear: Array) -> Array:
        """The minimiser of parabolas with these weights and slopes at their kinks."""
        f = self.terms
        H = f.gram(weights)
        diagonal = np.diag(H)
        usual = np.where(diagonal > 0, diagonal, max(float(diagonal.max()), 1e-300))
        self.regular = REGULAR_STEP * usual
        H[np.diag_indices(len(H))] += 1e-8 * usual
        return _System(H, f.E).solve(f.adjoint(weights * f.b - middle) - linear, -f.e)[0]

    def _budget(self, below: Array, above: Array) -> float:
        """The budget's value for margins ``b + above - below``."""
        value = float(self.linear @ self.x) + self.constant - float(self.lo @ below)
        return value + float(self.hi[self.upper] @ above)

    def residuals(self) -> tuple[Array, Array, float, Array]:
        """Of stationarity, of the margins, of the budget and of the equalities."""
        f, m = self.terms, len(self.terms)
        below, above = self.primal[:m], self.primal[m:-1]
        apart = self.t - f.b + below
        apart[self.upper] -= above
        of_x = f.stationarity(self.x, f.adjoint(self.theta), self.y) + self.weight * self.linear
        return of_x, apart, self._budget(below, above) + self.primal[-1], f.E @ self.x + f.e

    def size(self) -> float:
        """Of the objective's terms."""
        linear = float(np.abs(self.terms.problem.linear @ self.x))
        return max(linear + 0.5 * float(self.x @ self.M @ self.x), 1e-300)

    def estimate(self) -> float:
        """About the duality gap: the products, and what the residuals may hide."""
        of_x, apart, over, equal = self.residuals()
        size = np.abs(self.x) + float(np.abs(self.x).mean())
        total = float(self.primal @ self.dual) + float(np.abs(apart) @ np.abs(self.theta))
        total += float(np.abs(of_x) @ size) + abs(over) * self.weight
        total += float(np.abs(equal) @ np.abs(self.y))
        return total if np.isfinite(total) else np.inf

    def advance(self) -> float:
        """One step of predictor, corrector and correctors of centrality; the longer length."""
        f, m, upper = self.terms, len(self.terms), self.upper
        ratio = self.primal / self.dual
        low_ratio, high_ratio = ratio[:m], np.zeros(m)
        high_ratio[upper] = ratio[m:-1]
        D = 1.0 / (low_ratio + high_ratio)
        v = self.lo * low_ratio + self.hi * high_ratio
        H = f.gram(D) + self.M
        H[np.diag_indices(len(H))] += self.regular
        k = ratio[-1] + float((D * low_ratio * high_ratio) @ (self.hi - self.lo) ** 2)
        system = _Border(H, f.E, self.linear + f.adjoint(D * v), k)
        of_x, apart, over, equal = self.residuals()

        def towards(products: Array) -> _Move:
            """The step to these products of primal and dual."""
            left = products / self.dual - self.primal
            rho = -apart - left[:m]
            rho[upper] += left[m:-1]
            rest = -over - float(self.hi[upper] @ left[m:-1]) + float(self.lo @ left[:m])
            x, y, weight = system.solve(
                f.adjoint(D * rho) - of_x, -equal, rest - left[-1] + float((v * D) @ rho)
            )
            t = f.forward(x)
            theta = D * (t + v * weight - rho)
            high = (self.hi * weight - theta)[upper]
            dual = np.concatenate([theta - self.lo * weight, high, [weight]])
            return _Move(x, t, left - ratio * dual, theta, y, dual)

        product = float(self.primal @ self.dual)
        move = towards(np.zeros_like(ratio))
        reach = self._lengths(move, 1.0)
        after = (self.primal + reach[0] * move.primal) @ (self.dual + reach[1] * move.dual)
        level = min(max(float(after) / product, 0.0), 1.0) ** 3 * product / len(ratio)
        products = level - move.primal * move.dual
        move = towards(products)
        reach = self._lengths(move, TO_BOUNDARY)
        for _ in range(CENTRALITY):
            if min(reach) >= LONG:
                break
            further = [min(1.0, FURTHER[0] * length + FURTHER[1]) for length in reach]
            ahead = self.primal + further[0] * move.primal
            ahead *= self.dual + further[1] * move.dual
            wanted = np.clip(ahead, level / CENTRAL, CENTRAL * level) - ahead
            products = products + np.maximum(wanted, -CENTRAL * level)
            better = towards(products)
            found = self._lengths(better, TO_BOUNDARY)
            gained = min(found) - min(reach)
            if gained > 0:
                move, reach = better, found
            if gained < LEAST_GAIN:
                break
        if not (np.isfinite(move.x).all() and np.isfinite(move.dual).all()):
            return 0.0
        self.x, self.t = self.x + reach[0] * move.x, self.t + reach[0] * move.t
        self.primal = self.primal + reach[0] * move.primal
        self.theta, self.y = self.theta + reach[1] * move.theta, self.y + reach[1] * move.y
        self.dual = self.dual + reach[1] * move.dual
        self.weight = float(self.dual[-1])
        self.steps += 1
        return max(reach)

    def _lengths(self, move: _Move, share: float) -> tuple[float, float]:
        primal = min(1.0, share * _Path._length((self.primal, move.primal)))
        dual = min(1.0, share * _Path._length((self.dual, move.dual)))
        return (min(primal, dual),) * 2 if self.equal_lengths else (primal, dual)
