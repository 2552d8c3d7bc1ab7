"""Interior point method for linear programs most of whose variables hang together like a chain.

A drawdown ``u_t >= u_{t-1} - <r_t, w>``, a running maximum ``m_t >= m_{t-1}, m_t >= <c_t, w>``, a
stock that is carried over: as many variables as rows, so that leaving rows out saves nothing, but
each of them meets only its two neighbours and a few variables w that all share. ::

    minimise  <q, x>   subject to   F x + s = f,  s >= 0,   E x = e

The predictor-corrector of Mehrotra (1992). Its normal equations ``F' D F``, with ``D = z / s``, are

::

    [ T   H ]     T tridiagonal, of the chain,
    [ H'  G ]     G of the shared variables,

so a step takes the factors of T in as many operations as it has rows, and products of dense
matrices with as many columns as there are shared variables: drawdowns of 3,000 days in 40 assets
take 3 ms a step, Clarabel, which has the same matrix as any sparse one, 20 to 40.

A slack ``z >= 0, z >= p(x)`` of its own row, as those of a conditional value at risk, is eliminated
before: of the two rows is left the one of p, at the weight ``D1 D2 / (D1 + D2)``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.sparse.csgraph import reverse_cuthill_mckee

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

FEW_ROWS, MOST_LOCAL = 8, 3
"""Rows of a link of the chain at most: its sign, a bound, its loss, and one for each neighbour; and
links and slacks in such a row."""

MOST_LONG = 30
"""Equations, and rows of more links and slacks, at most."""

SHORTEST, MOST_SHARED = 200, 200
"""Links and slacks at least, and variables at most that they share: their matrix is dense."""

START = 10.0
"""Slacks and multipliers at the start, in units of Mehrotra's: drawdowns of 3,000 days in 40 assets
take 23 to 28 steps, with his 30 to 34."""

DENSE_SHARE, DENSE_ROWS = 0.3, 100
"""Rows with such a share of the shared variables, if there are so many, are multiplied as a dense
matrix."""

TARGET, ENOUGH = 1e-9, 1e-8
"""Gap and residuals, relative to their sizes, at which it ends; those that are an answer where
rounding lets it come no further. The second is Clarabel's own."""

STEPS, IDLE = 80, 6
"""Steps at most (20 to 40 are usual), and those in a row without progress after which it stops."""

CLOSER = 0.98
"""Share to which one of product, residuals and error falls in a step that is not idle."""

CENTRALITY, LONG = 3, 0.9
"""Correctors of centrality a step at most (Gondzio 1996), and the length from which on none is
tried."""

FURTHER, LEAST_GAIN, CENTRAL = (2.0, 0.1), 0.01, 10.0
"""A corrector aims at so many times the step, and so much, further; a smaller gain is the last; how
far products may lie from their level, as a factor, before they are corrected."""

TO_BOUNDARY = 0.995
"""Share of the way to the boundary that a step may take."""

REGULAR = 1e-13
"""What is added to a unit diagonal, and refined away."""


class Structure(NamedTuple):
    """What the rows ``F x + s = f, E x = e`` are made of, by columns of the whole.

    Attributes
    ----------
    slack, of_slack, bound : arrays of int, shape (k,)
        Columns that are eliminated, the row that each is the slack of, and the row of its sign.
    links : array of int, shape (m,)
        Columns of the chain, each next to its neighbours.
    shared : array of int, shape (g,)
        The others.
    long : array of int
        Rows of many links or slacks, as a budget of them all is one.
    """

    slack: Index
    of_slack: Index
    bound: Index
    links: Index
    shared: Index
    long: Index

    @classmethod
    def of(cls, F: Any, E: Any) -> Structure | None:
        """The structure of some rows; None where few columns are local, or many are shared."""
        few = np.diff(sp.csc_matrix(F).indptr) <= FEW_ROWS + MOST_LONG
        entries = sp.csr_matrix((np.ones(F.nnz), F.indices, F.indptr), shape=F.shape)
        long = np.flatnonzero(entries @ few > MOST_LOCAL)
        if len(long) + E.shape[0] > MOST_LONG or not (np.diff(F.indptr) > 0).all():
            return None
        kept = np.ones(F.shape[0])
        kept[long] = 0.0
        F = sp.csr_matrix(sp.diags(kept) @ F)
        F.eliminate_zeros()
        columns, rows = F.tocsc(), np.diff(F.indptr)
        counts = np.diff(columns.indptr)
        local = (counts <= FEW_ROWS) & (counts > 0)
        if local.sum() < SHORTEST or (~local).sum() > MOST_SHARED:
            return None
        # One in no long equation is shared at no cost: it may be free but for that.
        short = np.diff(E.indptr) <= MOST_SHARED
        local[sp.csr_matrix(E[short]).indices] = False
        slack, of_slack, bound = _slacks(columns, rows, local)
        local[slack] = False
        links = np.flatnonzero(local)
        shared = np.setdiff1d(np.flatnonzero(~local), slack)
        inside = F[:, links]
        if len(shared) > MOST_SHARED or np.diff(inside.indptr).max(initial=0) > 2:
            return None
        order = _chain_order(inside)
        if order is None:
            return None
        return cls(slack, of_slack, bound, links[order], shared, long)


def _chain_order(links: Any) -> Index | None:
    """An order in which each link meets only the next one; None where there is none."""
    if not links.shape[1]:
        return np.zeros(0, dtype=np.intp)
    ones = np.ones(links.nnz)
    pattern = sp.csr_matrix((ones, links.indices, links.indptr), links.shape)
    meet = sp.csr_matrix(pattern.T @ pattern)
    order = np.asarray(reverse_cuthill_mckee(meet, symmetric_mode=True), dtype=np.intp)
    place = np.empty(len(order), dtype=np.intp)
    place[order] = np.arange(len(order))
    met = meet.tocoo()
    return order if np.abs(place[met.row] - place[met.col]).max() <= 1 else None


def _slacks(columns: Any, rows: Index, local: Mask) -> tuple[Index, Index, Index]:
    """Columns with a sign and one more row, these rows, and those of their signs."""
    twice = np.flatnonzero(local & (np.diff(columns.indptr) == 2))
    at = columns.indptr[twice]
    first, second = columns.indices[at], columns.indices[at + 1]
    swap = (rows[first] > 1) & (rows[second] == 1)
    bound, other = np.where(swap, second, first), np.where(swap, first, second)
    good = (rows[bound] == 1) & (rows[other] > 1)
    twice, bound, other = twice[good], bound[good], other[good]
    _, once = np.unique(other, return_index=True)
    once.sort()
    return twice[once], other[once].astype(np.intp), bound[once].astype(np.intp)


class _Rows:
    """``F`` and ``E``, multiplied with what is dense of F as a dense matrix."""

    def __init__(self, F: Any, E: Any, parts: Structure) -> None:
        self.E, self.shared = E, parts.shared
        inside = F[:, self.shared]
        dense = np.diff(inside.indptr) >= max(DENSE_SHARE * len(self.shared), 2.0)
        dense[parts.long] = False
        if dense.sum() < DENSE_ROWS:
            dense[:] = False
        self.dense = np.flatnonzero(dense)
        self.block = inside[self.dense].toarray()
        rest = F.tocoo()
        kept = ~(dense[rest.row] & np.isin(rest.col, self.shared))
        self.rest = sp.csr_matrix(
            (rest.data[kept], (rest.row[kept], rest.col[kept])), shape=F.shape)
        self.rest_T, self.E_T = sp.csr_matrix(self.rest.T), sp.csr_matrix(E.T)
        self.of_slack = sp.csr_matrix(F[parts.of_slack])
        self.of_slack_T = sp.csr_matrix(self.of_slack.T)
        self.border = np.vstack([E.toarray(), F[parts.long].toarray()])

    def forward(self, x: Array) -> Array:
        """``F x``."""
        out = self.rest @ x
        out[self.dense] += self.block @ x[self.shared]
        return np.asarray(out)

    def adjoint(self, z: Array) -> Array:
        """``F' z``."""
        out = self.rest_T @ z
        out[self.shared] += z[self.dense] @ self.block
        return np.asarray(out)


class _Normal:
    """The normal equations, for one D after the other.

    ::

        [ N   B' ]     N = F' D F without the long rows,
        [ B  -K  ]     B the equations (K = 0) and the long rows (K = 1 / D).
    """

    def __init__(self, rows: _Rows, parts: Structure) -> None:
        self.rows, self.parts = rows, parts
        columns = sp.csc_matrix(rows.rest)
        self.of_bound = _entry(columns, parts.slack, parts.bound)
        self.of_row = _entry(columns, parts.slack, parts.of_slack)
        links = sp.csr_matrix(columns[:, parts.links])
        links.sort_indices()
        links_T = sp.csr_matrix(links.T)
        self.of_dense = sp.csr_matrix(links_T[:, rows.dense])
        few = sp.csr_matrix(columns[:, parts.shared])
        counts = np.diff(few.indptr)
        counts[parts.long] = 0
        self.sparse = np.flatnonzero(counts)
        self.few = few[self.sparse]
        self.few_T = sp.csr_matrix(self.few.T)
        self.of_few = sp.csr_matrix(links_T[:, self.sparse])
        self.squared = links_T.copy()
        self.squared.data **= 2
        count = np.diff(links.indptr)
        count[parts.long] = 0
        two = np.flatnonzero(count == 2)
        at = links.indptr[two]
        self.products = sp.csr_matrix(
            (links.data[at] * links.data[at + 1], (links.indices[at], two)),
            shape=(max(len(parts.links) - 1, 0), links.shape[0]),
        )

    def factor(self, D: Array) -> bool:
        """Factorise for `D`; whether that went well."""
        p, rows = self.parts, self.rows
        self.pivots = self.of_bound**2 * D[p.bound] + self.of_row**2 * D[p.of_slack]
        self.pull = self.of_row * D[p.of_slack] / self.pivots
        left = D.copy()
        left[p.of_slack] *= self.of_bound**2 * D[p.bound] / self.pivots
        left[p.bound] = left[p.long] = 0.0
        weighed = left[rows.dense][:, None] * rows.block
        few = self.few.copy()
        few.data *= np.repeat(left[self.sparse], np.diff(few.indptr))
        # What the equations and long rows have of slacks goes to the rows that these are in.
        of_slacks = rows.border[:, p.slack]
        beside = rows.border - (of_slacks * self.pull) @ rows.of_slack
        g, k = len(p.shared), len(rows.border)
        self.H = np.empty((len(p.links), g + k), order="F")
        self.H[:, :g] = self.of_dense @ weighed + (self.of_few @ few).toarray()
        self.H[:, g:] = beside[:, p.links].T
        if len(p.links):
            diagonal, off = self.squared @ left, self.products @ left
            self.diagonal, self.off, failed = lapack.dpttrf(diagonal * (1.0 + REGULAR), off)
            if failed:
                return False
        self.back = self._of_links(self.H)
        matrix = -(self.H.T @ self.back)
        matrix[:g, :g] += rows.block.T @ weighed + (self.few_T @ few).toarray()
        matrix[g:, :g] += beside[:, p.shared]
        matrix[:g, g:] = matrix[g:, :g].T
        matrix[g:, g:] -= (of_slacks / self.pivots) @ of_slacks.T
        at = np.arange(g + k - len(p.long), g + k)
        matrix[at, at] -= 1.0 / D[p.long]
        size = np.abs(np.diag(matrix))
        self.scale = 1.0 / np.sqrt(np.where(size > 0.0, size, 1.0))
        matrix *= self.scale * self.scale[:, None]
        at = np.arange(g + k)
        matrix[at, at] += np.where(at < g, REGULAR, -REGULAR)
        if not np.isfinite(matrix).all():
            return False
        self.core, self.order, failed = lapack.dgetrf(matrix)
        return not failed

    def _of_links(self, right: Array) -> Array:
        """The inverse of the chain's matrix times `right`."""
        if not len(right):
            return right
        return np.asarray(lapack.dpttrs(self.diagonal, self.off, right)[0])

    def solve(self, right: Array, equal: Array) -> tuple[Array, Array]:
        """``dx`` and the multipliers ``dy`` of the equations."""
        p, g = self.parts, len(self.parts.shared)
        of_slack, rest = right[p.slack], right
        border = np.concatenate([equal, np.zeros(len(p.long))])
        slacks = self.rows.border[:, p.slack]
        if len(p.slack):
            rest = right - self.rows.of_slack_T @ (self.pull * of_slack)
            border = border - slacks @ (of_slack / self.pivots)
        own = self._of_links(rest[p.links])
        core = np.concatenate([rest[p.shared], border]) - self.H.T @ own
        found = self.scale * lapack.dgetrs(self.core, self.order, self.scale * core)[0]
        x = np.zeros(len(right))
        x[p.shared] = found[:g]
        x[p.links] = own - self.back @ found
        if len(p.slack):
            moved = self.rows.of_slack @ x
            x[p.slack] = (of_slack - found[g:] @ slacks) / self.pivots - self.pull * moved
        return x, found[g: g + len(equal)]


def _entry(columns: Any, at: Index, row: Index) -> Array:
    """The entries of some columns in these rows."""
    return np.asarray(columns.tocsr()[row, at]).ravel() if len(at) else np.zeros(0)


class ChainSolution(NamedTuple):
    """What `solve_chain` found.

    Attributes
    ----------
    x, s, z, y : arrays
        Point, slacks, multipliers of the inequalities and of the equalities.
    steps : int
    error : float
        The largest of the gap and the residuals, relative to their sizes.
    """

    x: Array
    s: Array
    z: Array
    y: Array
    steps: int
    error: float

    @property
    def solved(self) -> bool:
        """Whether it is an optimum to within what Clarabel asks for."""
        return self.error <= ENOUGH


def solve_chain(
    q: Array, rows: tuple[Any, Array], equations: tuple[Any, Array]
) -> ChainSolution | None:
    """Minimise ``<q, x>`` subject to ``F x <= f`` and ``E x = e``.

    Parameters
    ----------
    rows, equations : (CSR matrix, array)
        F and f, E and e.

    Returns
    -------
    ChainSolution or None
        None where the rows are no long chain of variables beside few others.
    """
    (F, f), (E, e) = rows, equations
    if not F.shape[0]:
        return None
    parts = Structure.of(F, E)
    if parts is None:
        return None
    sizes = np.maximum(abs(F).max(axis=1).toarray().ravel(), 1e-300)
    scaled = sp.csr_matrix(sp.diags(1.0 / sizes) @ F)
    path = _Path(q, _Rows(scaled, E, parts), parts, f / sizes, e)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        found = path.followed()
    return found._replace(s=found.s * sizes, z=found.z / sizes)


class _Path:
    """The iterates of the method."""

    def __init__(self, q: Array, rows: _Rows, parts: Structure, f: Array, e: Array) -> None:
        self.q, self.rows, self.f, self.e = q, rows, f, e
        self.normal = _Normal(rows, parts)
        self.failed = not self.normal.factor(np.ones(len(f)))
        if self.failed:
            self.x, self.y = np.zeros(len(q)), np.zeros(len(e))
            self.s = self.z = np.ones(len(f))
            return
        # Mehrotra's start: least squares of both, moved inside.
        self.x, _ = self.normal.solve(rows.adjoint(f), e)
        t, self.y = self.normal.solve(-q, np.zeros(len(e)))
        s, z = f - rows.forward(self.x), rows.forward(t)
        s, z = s + max(-1.5 * float(s.min()), 0.0), z + max(-1.5 * float(z.min()), 0.0)
        product = max(float(s @ z), 1e-300)
        self.s = s + START * 0.5 * product / max(float(z.sum()), 1e-300)
        self.z = z + START * 0.5 * product / max(float(s.sum()), 1e-300)

    def residuals(self) -> tuple[Array, Array, Array]:
        """Of stationarity, of the inequalities and of the equalities."""
        of_x = self.q + self.rows.adjoint(self.z) + self.rows.E_T @ self.y
        return of_x, self.rows.forward(self.x) + self.s - self.f, self.rows.E @ self.x - self.e

    def error(self, of_x: Array, short: Array, equal: Array) -> float:
        """The largest of gap and residuals, relative to their sizes."""
        def size(*parts: Array) -> float:
            return max((float(np.abs(part).max(initial=0.0)) for part in parts), default=0.0)

        value, bound = float(self.q @ self.x), -float(self.f @ self.z) - float(self.e @ self.y)
        apart = abs(value - bound) / max(abs(value), abs(bound), 1e-300)
        primal = size(short, equal) / max(size(self.f, self.e), size(self.x), size(self.s), 1e-300)
        dual = size(of_x) / max(size(self.q), size(self.z), 1e-300)
        worst = max(apart, primal, dual)
        return worst if np.isfinite(worst) else np.inf

    def followed(self) -> ChainSolution:
        """The best iterate, when the path is at its end or leads no further."""
        best, idle, steps, least = self._now(0, np.inf), 0, 0, np.inf
        while not self.failed and steps < STEPS and idle < IDLE:
            found = self.residuals()
            error = self.error(*found)
            sizes = np.array([self.s @ self.z, *(np.abs(part).sum() for part in found), error])
            idle = 0 if (sizes < CLOSER * least).any() else idle + 1
            least = np.minimum(sizes, least)
            if error < best.error:
                best = self._now(steps, error)
            if error <= TARGET or not self._advance(*found):
                break
            steps += 1
        return best

    def _now(self, steps: int, error: float) -> ChainSolution:
        return ChainSolution(self.x, self.s, self.z, self.y, steps, error)

    def _advance(self, of_x: Array, short: Array, equal: Array) -> bool:
        """One step of predictor and corrector; whether there is one."""
        s, z = self.s, self.z
        ratio = z / s
        if not (np.isfinite(ratio).all() and self.normal.factor(ratio)):
            return False

        def once(of_x: Array, short: Array, equal: Array, product: Array) -> tuple[Array, ...]:
            right = -of_x - self.rows.adjoint((z * short - product) / s)
            dx, dy = self.normal.solve(right, -equal)
            ds = -short - self.rows.forward(dx)
            return dx, ds, (-product - z * ds) / s, dy

        def towards(product: Array) -> tuple[Array, ...]:
            return once(of_x, short, equal, product)

        # Mehrotra's predictor: what a step to the boundary would leave of the mean product says how
        # far the corrector aims.
        _, ds, dz, _ = towards(s * z)
        primal, dual = _longest(s, ds), _longest(z, dz)
        mean = float(s @ z) / len(s)
        share = float((s + primal * ds) @ (z + dual * dz)) / len(s) / mean
        level = share**3 * mean
        product = s * z + ds * dz - level
        step = towards(product)
        reach = self._reach(step)
        # Gondzio's correctors, each one solve with the factor that is there: products that a longer
        # step would take away from their level are brought back to it.
        for _ in range(CENTRALITY):
            if min(reach) >= LONG:
                break
            far, further = (min(1.0, FURTHER[0] * size + FURTHER[1]) for size in reach)
            ahead = (s + far * step[1]) * (z + further * step[2])
            wanted = np.clip(ahead, level / CENTRAL, CENTRAL * level) - ahead
            product = product - np.maximum(wanted, -CENTRAL * level)
            better = towards(product)
            found = self._reach(better)
            gained = min(found) - min(reach)
            if gained > 0.0:
                step, reach = better, found
            if gained < LEAST_GAIN:
                break
        # One refinement: near the optimum the ratios are so uneven that the factor loses digits.
        left = of_x + self.rows.adjoint(step[2]) + self.rows.E_T @ step[3]
        over = equal + self.rows.E @ step[0]
        none = np.zeros(len(s))
        more = once(left, none, over, none)
        dx, ds, dz, dy = (a + b for a, b in zip(step, more, strict=True))
        primal, dual = self._reach((dx, ds, dz))
        if not (np.isfinite(dx).all() and np.isfinite(dz).all()):
            return False
        self.x, self.s = self.x + primal * dx, s + primal * ds
        self.y, self.z = self.y + dual * dy, z + dual * dz
        return True

    def _reach(self, step: tuple[Array, ...]) -> tuple[float, float]:
        """How far slacks and multipliers may go along `step`."""
        return (min(1.0, TO_BOUNDARY * _longest(self.s, step[1])),
                min(1.0, TO_BOUNDARY * _longest(self.z, step[2])))


def _longest(value: Array, change: Array) -> float:
    """The share of `change`, 1 at most, up to which all values stay positive."""
    falls = change < 0.0
    return min(1.0, float(np.min(-value[falls] / change[falls], initial=np.inf)))
