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
that machine, with a hinge for each sample. A coordinate t that two rows hold above ``|x_j - v|``
and that only costs, or takes from what inequalities leave (a portfolio's leverage or turnover), is
two such terms in the place of x_j and t: ``x_j = v + p - m`` and ``t = p + m`` with ``p, m >= 0``,
of which one is 0 at the optimum: ``x_j^2`` is taken as if it always were. Of several such t, of
leverage and turnover, x_j is a term for each piece between their centres, and each t grows or
shrinks with it: as no t pays, what a piece costs grows from one to the next away from the first
centre, and no piece is used before the one that leads to it is full.

Most terms are on a linear piece at the optimum, since most ``x_j`` are at an end of their box, and
are left out as those of any problem. The slopes of the terms are x itself, inside its box whatever
the rounding, and where the ends of the box press, what is left of the stationarity of ``x_j`` is
the bound's multiplier.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

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


class Distances(NamedTuple):
    """Coordinates t that two rows hold above multiples of ``|x - v|``, with the others x.

    In the order of x, and of v where x has several.

    Attributes
    ----------
    points, sizes : arrays of int, shape (k,)
        The coordinates x and t.
    centres, factors : arrays, shape (k,)
        v, and ``t >= factor |x - v|``.
    left, right : arrays of int, shape (k,)
        The side constraints ``t >= factor (x - v)`` and ``t >= factor (v - x)``.
    of_left, of_right : arrays, shape (k,)
        The entry of t in each.
    """

    points: Index
    sizes: Index
    centres: Array
    factors: Array
    left: Index
    right: Index
    of_left: Array
    of_right: Array

    def least(self, x: Array) -> Array:
        """``factor |x - v|``, what the others are at least, shape (k,)."""
        return np.asarray(self.factors * np.abs(x[self.points] - self.centres))

    @classmethod
    def none(cls) -> Distances:
        """No such coordinates."""
        places, numbers = np.zeros(0, dtype=np.intp), np.zeros(0)
        return cls(places, places, numbers, numbers, places, places, numbers, numbers)

    @classmethod
    def of(cls, problem: Problem, box: Box) -> Distances:
        """Those of a problem; t only costs, or uses up inequalities."""
        side: Any = problem.side
        d, matrix = problem.d, sp.csr_array(side.matrix)
        free = np.isinf(box.low) & np.isinf(box.high) & (problem.quadratic.diagonal == 0.0)
        free &= (problem.linear >= 0.0) & (problem.column_sizes == 0.0)
        zero = np.zeros(matrix.shape[0], dtype=bool)
        for kind, _, rows in side.blocks():
            zero[rows] = kind == "zero"
        # Rows of two entries, t and x: t >= factor (x - centre) from one side, or from the other.
        two = box.others[(np.diff(matrix.indptr)[box.others] == 2) & ~zero[box.others]]
        first, second = matrix.indptr[two], matrix.indptr[two] + 1
        pairs = [(matrix.indices[a], matrix.data[a], matrix.indices[b], matrix.data[b])
                 for a, b in ((first, second), (second, first))]
        seen: dict[str, tuple[Any, ...]] = {}
        for name, sign in (("left", -1.0), ("right", 1.0)):
            parts = []
            for t, of_t, x, of_x in pairs:
                fits = free[t] & (of_t > 0.0) & (sign * of_x > 0.0)
                parts.append((t[fits], x[fits], np.abs(of_x[fits]) / of_t[fits], of_t[fits],
                              two[fits]))
            seen[name] = tuple(np.concatenate(part) for part in zip(*parts, strict=True))
        # A distance |x - centre| has one row of either side and t in no other row: then t is as
        # small as the two let it be, and both rows and t leave for a kink of x.
        (t, x, factor, of_left, left), others = seen["left"], seen["right"]
        right = np.full(d, -1)
        right[others[0]] = np.arange(len(others[0]))
        match = right[t]
        good = (match >= 0) & (np.bincount(t, minlength=d)[t] == 1)
        good &= np.bincount(others[0], minlength=d)[t] == 1
        t, x, factor, of_left, left, match = (
            part[good] for part in (t, x, factor, of_left, left, match)
        )
        centres = side.offset[left] / of_left / factor
        back = side.offset[others[4][match]] / others[3][match] / factor
        # Other rows may only use t up, never ask for more of it.
        rest = np.ones(matrix.shape[0], dtype=bool)
        rest[left] = rest[others[4][match]] = False
        used = matrix[np.flatnonzero(rest)]
        rises = np.bincount(used.indices[used.data > 0.0], minlength=d) > 0
        equal = matrix[np.flatnonzero(zero)]
        rises |= np.bincount(equal.indices, minlength=d) > 0
        same = (others[1][match] == x) & (others[2][match] == factor) & (centres == -back)
        same &= ~rises[t]
        index = np.flatnonzero(same)
        index = index[np.lexsort((centres[index], x[index]))]
        return cls(
            x[index], t[index], centres[index], factor[index], left[index],
            others[4][match][index], of_left[index], others[3][match][index],
        )

    def multipliers(
        self, x: Array, box: Box, press: Array, left: Array
    ) -> tuple[Array, Array]:
        """Of the rows of both sides, where they `press` each t with so much together.

        x says with how much each: with all on the side where it is, and at a centre with what is
        `left` of the stationarity of x, shape (d,), which is changed.
        """
        away, pushed = x[self.points] - self.centres, np.zeros(len(press))
        outside = (self.centres < box.low[self.points]) | (self.centres > box.high[self.points])
        order = np.lexsort((-np.abs(away), self.points))
        points = self.points[order]
        start = np.flatnonzero(np.append(True, points[1:] != points[:-1]))
        count = np.diff(np.append(start, len(points)))
        for rank in range(int(count.max(initial=0))):  # the nearest last
            some = order[start[count > rank] + rank]
            beyond = outside[some] | ((away[some] != 0.0) & (rank < count[count > rank] - 1))
            here, most = self.points[some], press[some]
            pushed[some] = np.where(
                beyond, -np.sign(away[some]) * most, np.clip(left[here], -most, most)
            )
            left[here] -= pushed[some]
        return 0.5 * (press - pushed), 0.5 * (press + pushed)


class Pieces(NamedTuple):
    """What an x with distances is made of: the way down from its first centre, and up from each.

    Inside its box; of centres outside from where they come in.

    Attributes
    ----------
    points : array of int, shape (p,)
        The coordinate x.
    signs, bases, lengths : arrays, shape (p,)
        Which way, from where, and how far at most.
    tolls : sparse array, shape (p, k)
        By how much each t grows along the piece.
    """

    points: Index
    signs: Array
    bases: Array
    lengths: Array
    tolls: Any

    @classmethod
    def of(cls, far: Distances, box: Box) -> Pieces:
        """Those of all x with distances; none of length 0."""
        x, k = far.points, len(far.points)
        first = np.flatnonzero(np.append(True, x[1:] != x[:-1])) if k else np.zeros(0, dtype=int)
        after = np.append(first[1:], k)
        group = np.repeat(np.arange(len(first)), after - first)
        bases, ends = np.clip(far.centres, box.low[x], box.high[x]), box.high[x]
        within = np.append(x[1:] == x[:-1], False) if k else np.zeros(0, dtype=bool)
        ends[within] = bases[1:][within[:-1]]
        lengths = np.append(ends - bases, (bases - box.low[x])[first])
        # Every t of x with every piece of it: those passed grow on the way up, the others shrink.
        every, count = np.arange(k), (after - first)[group]
        piece = np.repeat(every, count)
        before = np.cumsum(count) - count
        other = np.arange(len(piece)) + np.repeat(first[group] - before, count)
        up = np.where(other <= piece, 1.0, -1.0) * far.factors[other]
        places = np.append(piece, k + group), np.append(other, every)
        shape = (k + len(first), k)
        tolls = sp.csr_array(sp.coo_array((np.append(up, far.factors), places), shape=shape))
        some = np.flatnonzero(lengths > 0.0)
        signs = np.append(np.ones(k), np.full(len(first), -1.0))
        return cls(
            np.append(x, x[first])[some], signs[some],
            np.append(bases, bases[first])[some], lengths[some], tolls[some],
        )

    def filled(self, x: Array) -> Array:
        """How much of each piece leads to `x`, shape (p,)."""
        return np.clip(self.signs * (x[self.points] - self.bases), 0.0, self.lengths)


class Parts(NamedTuple):
    """What a problem of few rows has: boxes, distances, and the rows between coordinates."""

    box: Box
    distances: Distances
    others: Index

    def alone(self, d: int) -> Index:
        """The coordinates that are terms by themselves."""
        mine = np.ones(d, dtype=bool)
        mine[self.distances.points] = mine[self.distances.sizes] = False
        return np.flatnonzero(mine)


class DualForm(NamedTuple):
    """A problem of many coordinates and few rows, and its dual: a `Reformulation`.

    Attributes
    ----------
    problem, equivalent : Problem
        The coordinates of `equivalent` are the slopes of the terms of `problem`, then the
        multipliers of the rows between its coordinates. Its terms are the coordinates that are
        terms by themselves, then the pieces of those with distances.
    parts : Parts
    pieces : Pieces
    origin : array, shape (d,)
        Where the losses of `equivalent` have their slope 0: the point of the box nearest to 0, or
        to the first centre of distances.
    """

    problem: Problem
    equivalent: Problem
    parts: Parts
    pieces: Pieces
    origin: Array

    @property
    def lossy(self) -> bool:
        """No: slopes are x to the last digit."""
        return False

    @classmethod
    def of(cls, problem: Problem) -> DualForm | None:
        """`problem` so; None where other solvers do better, or do not need it."""
        parts, side = _parts_of(problem), problem.side
        if parts is None or side is None:
            return None
        design: Any = problem.design  # `Rows`, or there were no parts
        box, far, f = parts.box, parts.distances, problem.losses
        (n, d), alone = design.shape, parts.alone(problem.d)
        frame, dims = _others(side, parts.others)
        columns: Any
        if _is_sparse(design, side, parts.others):
            columns = sp.csr_matrix(sp.vstack([-design.rows_csr(np.arange(n)), frame]).T)
        else:
            columns = np.empty((d, n + len(parts.others)))
            columns[:, :n] = -design.dense().T
            columns[:, n:] = frame.toarray().T
        curvature, cost = problem.quadratic.diagonal, problem.linear
        origin = np.zeros(d)
        origin[far.points[::-1]] = far.centres[::-1]  # the first of each
        origin = np.clip(origin, box.low, box.high)
        origin[far.sizes] = far.least(origin)
        rows, pieces = columns[alone], Pieces.of(far, box)
        x, signs = pieces.points, pieces.signs
        if len(x):
            moved = sp.diags_array(signs) @ columns[x] + pieces.tolls @ columns[far.sizes]
            rows = np.vstack([rows, moved]) if isinstance(rows, np.ndarray) else sp.csr_matrix(
                sp.vstack([rows, moved])
            )
        pull = signs * (cost[x] + curvature[x] * pieces.bases) + pieces.tolls @ cost[far.sizes]
        losses = Losses(
            np.append((cost + curvature * origin)[alone], pull), np.zeros(rows.shape[0]),
            np.append(curvature[alone], curvature[x]),
            np.append((box.low - origin)[alone], np.zeros(len(x))),
            np.append((box.high - origin)[alone], pieces.lengths),
        )
        offset = side.offset[parts.others]
        equivalent = Problem(
            design=Rows(rows, known=True),
            losses=losses,
            quadratic=Quadratic(np.concatenate([f.q, np.zeros(len(offset))])),
            linear=np.concatenate([f.b, offset]) + columns.T @ origin,
            constant=-problem.constant
            - float(cost @ origin) - 0.5 * float(curvature @ origin**2),
            side=_signs(f.lo, f.hi, dims),
            kind=problem.kind,
        )
        return cls(problem, equivalent, parts, pieces, origin)

    def apply(self, start: Start) -> Start:
        """A start as one of `equivalent`."""
        others, mu, alone = self.parts.others, start.multipliers, self.parts.alone(self.problem.d)
        own = np.zeros(len(others)) if mu is None else mu[others]
        slopes = np.append((start.x - self.origin)[alone], self.pieces.filled(start.x))
        return Start(np.concatenate([start.theta, own]), slopes)

    def invert(self, found: Solution, tol: float) -> Solution:
        """A solution of `equivalent` as one of `problem`, certified there to `tol`.

        What falls for ever there has no feasible point here. What has none there falls for ever
        here, or has none either: nothing is said.
        """
        problem, (box, far, others), y = self.problem, self.parts, found.x
        if found.status in WITHOUT_SOLUTION or not np.isfinite(y).all():
            word = "infeasible" if found.status == "unbounded" else "inaccurate"
            return Solution.failed(problem, word, Screening.empty(problem), found.rounds)
        n, f = problem.n, problem.losses
        x, slopes = self.origin.copy(), found.theta
        alone = self.parts.alone(problem.d)
        x[alone] += slopes[: len(alone)]
        np.add.at(x, self.pieces.points, self.pieces.signs * slopes[len(alone):])
        x = np.clip(x, box.low, box.high)
        x[far.sizes] = far.least(x)
        theta = np.clip(y[:n], f.lo, f.hi)
        side: Any = problem.side  # there are bounds, or rows between coordinates
        mu = np.zeros(len(side.offset))
        mu[others] = y[n:]
        mu = side.project_dual(mu)
        left = problem.quadratic.apply(x) + problem.linear + problem.design.adjoint(theta)
        left = left - side.adjoint(mu)
        # What t costs is what both of its rows press with together.
        press = np.maximum(left[far.sizes] * far.factors, 0.0)
        of_left, of_right = far.multipliers(x, box, press, left)
        mu[far.left] = of_left / far.factors / far.of_left
        mu[far.right] = of_right / far.factors / far.of_right
        # Left to the square of a coordinate it costs half of left^2 / d, left to a bound left times
        # the distance from that: more, but at the bound itself.
        with np.errstate(divide="ignore", invalid="ignore"):
            by_square = 0.5 * left**2 / problem.quadratic.diagonal
            ends = ((box.below, x - box.low, 1.0), (box.above, box.high - x, -1.0))
            for rows, room, sign in ends:
                some = (rows >= 0) & (sign * left > 0.0) & ~(np.abs(left) * room > by_square)
                mu[rows[some]] = left[some] / box.factors[rows[some]]
        return found.carried_to(problem, x, theta, mu, tol)


_PARTS: WeakKeyDictionary[Problem, Parts | None] = WeakKeyDictionary()
"""Of problems asked about before, which never change: a solve asks up to nine times."""


def couples_few(problem: Problem) -> bool:
    """Whether `problem` has far more coordinates than rows between them, and so a `DualForm`."""
    return _parts_of(problem) is not None


def distances(problem: Problem) -> Distances:
    """The coordinates of such a problem that two rows hold above distances; none in others."""
    parts = _parts_of(problem)
    return Distances.none() if parts is None else parts.distances


def _parts_of(problem: Problem) -> Parts | None:
    """What `DualForm` is made of, looked for once a problem; None if it has none."""
    if problem not in _PARTS:
        _PARTS[problem] = _find_parts(problem)
    return _PARTS[problem]


def _find_parts(problem: Problem) -> Parts | None:
    """What `DualForm` is made of; None if the problem has none."""
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
    if not (len(box.others) or form.diagonal.any() or problem.linear.any()):
        return None  # a perfect fit, often: columns are left out of that (`columns.BoundsAsTerms`)
    far = Distances.of(problem, box) if len(box.others) > ROWS * d else Distances.none()
    others = np.setdiff1d(box.others, np.concatenate([far.left, far.right]))
    parts, rows = Parts(box, far, others), n + len(others)
    # What has neither a square nor a bound holds the multipliers to an equation.
    loose = (form.diagonal == 0.0) & np.isinf(box.low) & np.isinf(box.high)
    loose[far.points] = loose[far.sizes] = False
    fits = 0 < rows <= min(ROWS * d, MOST) and int(loose.sum()) <= rows
    fits &= len(others) > 0 or not len(far.points)  # a lasso, which features are left out of
    fits &= bool((box.low <= box.high).all())
    return parts if fits and (rows * d <= ENTRIES or _is_sparse(design, side, others)) else None


def _is_sparse(design: Rows, side: SideConstraints, others: Index) -> bool:
    """Whether the rows between coordinates have few entries."""
    (n, d), counts = design.shape, np.diff(side.matrix.indptr)
    filled = int(counts[others].sum()) + n * d * (design.filled if design.sparse else 1.0)
    return filled <= DENSE * (n + len(others)) * d


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
