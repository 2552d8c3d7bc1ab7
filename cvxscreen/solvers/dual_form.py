"""Problems of many coordinates and few rows, by their dual: each coordinate is a term of it.

Where nothing couples the coordinates of

::

    min_x  sum_j (d_j / 2 x_j^2 + c_j x_j) + sum_i f_i(<a_i, x>)    subject to
           F x + f in K,   l <= x <= u

but few rows a_i and F (a support vector machine's dual, a portfolio of many assets under a model of
few factors, weights that balance few moments, least squares with far more columns than rows), it is
that of fewer coordinates, one for each row, with a term for each x_j (Fenchel and Rockafellar)::

    min_y  sum_j phi_j(y)  +  sum_i f_i*(theta_i)  +  <f, mu>,      y = (theta, mu),  mu in K*
    phi_j(y) = max_{l_j <= t <= u_j} (<F_j, mu> - <A_j, theta> - c_j) t - d_j / 2 t^2,

A_j and F_j the columns of the rows. ``phi_j`` is a loss of the table of `cvxscreen.core.losses`,
whose conjugate is the cost of ``x_j`` in its box: the dual of a support vector machine's dual is
that machine, with a hinge for each sample. Most terms are on a linear piece at the optimum, since
most ``x_j`` are at an end of their box, and are left out as those of any problem. The slopes of the
terms are x itself, inside its box whatever the rounding, and where the ends of the box press, what
is left of the stationarity of ``x_j`` is the bound's multiplier.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.screening.reduction import Screening
from cvxscreen.solvers.interface import WITHOUT_SOLUTION, Start
from cvxscreen.solvers.solution import Solution

Array = NDArray[np.float64]
Index = NDArray[np.intp]

LEAST = 500
"""Coordinates from which on the dual is taken: below, any solver takes milliseconds."""
ROWS, MOST = 0.1, 1000
"""Rows at most for each coordinate, and in all (300 rows over 5,000 coordinates 0.5 s, 500 over
20,000 3 to 7 s; Clarabel takes 19 to 31 s for the former)."""
DENSE, ENTRIES = 0.1, 100_000_000
"""Share of the entries of the rows from which on they are copied as dense ones, and how many of
these there may be (0.8 GB)."""


class Box(NamedTuple):
    """The bounds among side constraints, ``l <= x <= u``.

    Attributes
    ----------
    low, high : arrays, shape (d,)
        Infinite where there is none.
    below, above : arrays of int, shape (d,)
        The row of the side constraints that says so; -1 where there is none.
    factors : array, shape (k,)
        The entry of each such row, of all side constraints: 0 for the others.
    others : array of int
        The side constraints that are none of these, or weaker.
    """

    low: Array
    high: Array
    below: Index
    above: Index
    factors: Array
    others: Index

    @classmethod
    def of(cls, side: SideConstraints, d: int) -> Box:
        """The tightest bounds of each coordinate."""
        low, high = np.full(d, -np.inf), np.full(d, np.inf)
        below, above = np.full(d, -1), np.full(d, -1)
        matrix = sp.csr_array(side.matrix)
        factors, single = np.zeros(matrix.shape[0]), np.diff(matrix.indptr) == 1
        linear = np.zeros(len(single), dtype=bool)
        for kind, _, rows in side.blocks():
            linear[rows] = kind == "nonneg"
        bounds = np.flatnonzero(single & linear)
        entries, columns = matrix.data[matrix.indptr[bounds]], matrix.indices[matrix.indptr[bounds]]
        used = entries != 0.0
        bounds, entries, columns = bounds[used], entries[used], columns[used]
        factors[bounds] = entries
        with np.errstate(over="ignore"):
            values = -side.offset[bounds] / entries
        for rising, ends, places in ((True, low, below), (False, high, above)):
            some = (entries > 0.0) == rising
            # The last of equal columns stays: the tightest bound.
            order = np.argsort(values[some] if rising else -values[some], kind="stable")
            ends[columns[some][order]] = values[some][order]
            places[columns[some][order]] = bounds[some][order]
        return cls(low, high, below, above, factors, np.flatnonzero(factors == 0.0))


class DualForm(NamedTuple):
    """A problem of many coordinates and few rows, and its dual: a `Reformulation`.

    Attributes
    ----------
    problem, equivalent : Problem
        The coordinates of `equivalent` are the slopes of the terms of `problem`, then the
        multipliers of its side constraints but bounds.
    box : Box
    origin : array, shape (d,)
        Where the losses of `equivalent` have their slope 0: the point of the box nearest to 0.
    """

    problem: Problem
    equivalent: Problem
    box: Box
    origin: Array

    @property
    def lossy(self) -> bool:
        """No: slopes are x to the last digit."""
        return False

    @classmethod
    def of(cls, problem: Problem) -> DualForm | None:
        """`problem` so; None where other solvers do better, or do not need it."""
        box, side = _box_of(problem), problem.side
        if box is None or side is None:
            return None
        design: Any = problem.design  # `Rows`, or there would be no box
        form, (n, d) = problem.quadratic, design.shape
        rows = n + len(box.others)
        frame, dims = _others(side, box.others)
        columns: Any
        if _is_sparse(design, side, box):
            every = np.arange(n)
            columns = sp.csr_matrix(sp.vstack([-design.rows_csr(every), frame]).T)
        else:
            columns = np.empty((d, rows))
            columns[:, :n] = -design.dense().T
            columns[:, n:] = frame.toarray().T
        curvature, f = form.diagonal, problem.losses
        origin = np.clip(0.0, box.low, box.high)
        losses = Losses(
            problem.linear + curvature * origin, np.zeros(d), curvature,
            box.low - origin, box.high - origin,
        )
        offset = side.offset[box.others]
        equivalent = Problem(
            design=Rows(columns, known=True),
            losses=losses,
            quadratic=Quadratic(np.concatenate([f.q, np.zeros(len(offset))])),
            linear=np.concatenate([f.b, offset]) + columns.T @ origin,
            constant=-problem.constant
            - float(problem.linear @ origin) - 0.5 * float(curvature @ origin**2),
            side=_signs(f.lo, f.hi, dims),
            kind=problem.kind,
        )
        return cls(problem, equivalent, box, origin)

    def apply(self, start: Start) -> Start:
        """A start as one of `equivalent`."""
        others, mu = self.box.others, start.multipliers
        own = np.zeros(len(others)) if mu is None else mu[others]
        return Start(np.concatenate([start.theta, own]), start.x - self.origin)

    def invert(self, found: Solution, tol: float) -> Solution:
        """A solution of `equivalent` as one of `problem`, certified there to `tol`.

        What falls for ever there has no feasible point here. What has none there falls for ever
        here, or has none either: nothing is said.
        """
        problem, box, y = self.problem, self.box, found.x
        if found.status in WITHOUT_SOLUTION or not np.isfinite(y).all():
            word = "infeasible" if found.status == "unbounded" else "inaccurate"
            return Solution.failed(problem, word, Screening.empty(problem), found.rounds)
        n, f = problem.n, problem.losses
        x = np.clip(self.origin + found.theta, box.low, box.high)
        theta = np.clip(y[:n], f.lo, f.hi)
        mu = np.zeros(len(box.factors))
        mu[box.others] = y[n:]
        side: Any = problem.side  # there are bounds, or rows between coordinates
        mu = side.project_dual(mu)
        left = problem.quadratic.apply(x) + problem.linear + problem.design.adjoint(theta)
        left = left - side.adjoint(mu)
        # Left to the square of a coordinate it costs half of left^2 / d, left to a bound left times
        # the distance from that: more, but at the bound itself.
        with np.errstate(divide="ignore", invalid="ignore"):
            alone = 0.5 * left**2 / problem.quadratic.diagonal
            ends = ((box.below, x - box.low, 1.0), (box.above, box.high - x, -1.0))
            for rows, room, sign in ends:
                some = (rows >= 0) & (sign * left > 0.0) & ~(np.abs(left) * room > alone)
                mu[rows[some]] = left[some] / box.factors[rows[some]]
        return found.carried_to(problem, x, theta, mu, tol)


def couples_few(problem: Problem) -> bool:
    """Whether `problem` has far more coordinates than rows between them, and so a `DualForm`."""
    return _box_of(problem) is not None


def _box_of(problem: Problem) -> Box | None:
    """The bounds of such a problem; None of others."""
    form, side, design = problem.quadratic, problem.side, problem.design
    n, d = design.shape
    if side is None or d < LEAST or n > ROWS * d or not isinstance(design, Rows):
        return None  # losses and squares alone have solvers for wide data
    if not isinstance(form, Quadratic) or form.matrix is not None:
        return None
    beside = problem.penalty is not None or problem.drift or problem.imbalance
    if beside or np.any(problem.losses.e):
        return None
    if any(kind not in ("zero", "nonneg") for kind, _ in side.dims):
        return None
    box = Box.of(side, d)
    rows = n + len(box.others)
    if not (len(box.others) or form.diagonal.any() or problem.linear.any()):
        return None  # a perfect fit, often: columns are left out of that (`columns.BoundsAsTerms`)
    # What has neither a square nor a bound holds the multipliers to an equation.
    loose = (form.diagonal == 0.0) & np.isinf(box.low) & np.isinf(box.high)
    fits = 0 < rows <= min(ROWS * d, MOST) and int(loose.sum()) <= rows
    fits &= bool((box.low <= box.high).all())
    return box if fits and (rows * d <= ENTRIES or _is_sparse(design, side, box)) else None


def _is_sparse(design: Rows, side: SideConstraints, box: Box) -> bool:
    """Whether the rows between coordinates have few entries."""
    (n, d), counts = design.shape, np.diff(side.matrix.indptr)
    filled = int(counts[box.others].sum()) + n * d * (design.filled if design.sparse else 1.0)
    return filled <= DENSE * (n + len(box.others)) * d


def _others(side: SideConstraints, others: Index) -> tuple[Any, tuple[tuple[str, int], ...]]:
    """The rows of side constraints that are no bounds, and their cones."""
    kept = np.zeros(side.matrix.shape[0], dtype=bool)
    kept[others] = True
    sizes = [(kind, int(kept[rows].sum())) for kind, _, rows in side.blocks()]
    return sp.csr_array(side.matrix)[others], tuple(entry for entry in sizes if entry[1])


def _signs(low: Array, high: Array, dims: tuple[tuple[str, int], ...]) -> SideConstraints | None:
    """Boxes of slopes, and signs of multipliers, as side constraints."""
    n, m = len(low), sum(size for _, size in dims)
    places, factors, offsets = [], [], []
    for ends, factor in ((low, 1.0), (high, -1.0)):
        held = np.flatnonzero(np.isfinite(ends))
        places.append(held)
        factors.append(np.full(len(held), factor))
        offsets.append(-factor * ends[held])
    first = n
    for kind, size in dims:
        if kind == "nonneg":
            places.append(np.arange(first, first + size))
            factors.append(np.ones(size))
            offsets.append(np.zeros(size))
        first += size
    place = np.concatenate(places)
    if not len(place):
        return None
    k = len(place)
    matrix = sp.csr_array((np.concatenate(factors), place, np.arange(k + 1)), shape=(k, n + m))
    return SideConstraints(matrix, np.concatenate(offsets), (("nonneg", k),))
