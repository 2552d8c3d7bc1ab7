"""Norms of residuals as losses: their bounds are eliminated, so that x alone is left.

::

    minimise  sum_i c_i t_i + rest(x)   subject to   |A_i x + b_i| <= a_i t_i

with t_i in no other row is a sum of Euclidean norms of blocks (geometric medians, facilities,
regressions with several outputs). No block can be left out, every one is bent. But its cone's
multiplier has ``c_i / a_i`` for head on the whole path, and what its step adds to the normal
equations of the interior point method is, with ``W^-2 = (2 w w' - J)/eta^2`` as in `second_order`
and t_i eliminated from it, a matrix of the size of the block::

    A_i' H_i A_i,    H_i = (I - 2 w_1 w_1' / (2 w_0^2 - 1)) / eta^2

so a step costs n products of d^2 however many blocks there are, and no factorisation has more
unknowns than x. At the end norms that are not 0 are curved functions of x and those that are 0 are
equations: Newton's method ends on them as on any other face.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from cvxscreen.core.cones import MANY_CONES, ResidualNorms, SideConstraints
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.solvers.cones import ScreenedCones
from cvxscreen.solvers.interface import Start, SubproblemResult, call_checked
from cvxscreen.solvers.second_order import (
    NORMS_PER_COORDINATE,
    Scaling,
    SecondOrderCones,
)
from cvxscreen.solvers.solution import Solution

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

FILLED = 0.2
"""Share of their columns that blocks side by side have to fill."""

SHARE = 0.1
"""Share of the tolerance that the gap may have before the certificate charges rounding."""

CROWDED = 3
"""With more equations of norms that are 0 for each coordinate a face is not looked at."""

INSIDE = 1.0 - 4.0 * float(np.finfo(np.float64).eps)
"""What a multiplier on the boundary of its cone is drawn in by, so that rounding leaves it there.
"""


def norms_of_residuals(problem: Problem) -> ResidualNorms | None:
    """The norms of residuals of `problem`; None where it is not one for their sake."""
    side, design = problem.side, problem.design
    if side is None or len(side.dims) < MANY_CONES or not isinstance(design, Rows):
        return None
    if problem.penalty is not None:
        return None
    found = side.residual_norms
    if len(found.heads) < MANY_CONES or any(kind == "psd" for kind, _ in side.dims):
        return None
    if int(side.second_order.sum()) > len(found.heads):
        return None
    form, heads = problem.quadratic, found.heads
    if not isinstance(form, Quadratic):
        return None
    if not (problem.linear[heads] > 0.0).all() or form.diagonal[heads].any():
        return None
    if form.matrix is not None and form.matrix[heads].any():
        return None
    if problem.n and problem.column_sizes[heads].any():
        return None
    coordinates = problem.d - len(heads)
    return found if len(heads) >= NORMS_PER_COORDINATE * coordinates > 0 else None


class Compact(NamedTuple):
    """A problem without the bounds of its norms, these norms, and the way back.

    Attributes
    ----------
    problem : Problem
        Of the other coordinates.
    norms : NormTerms
    size : int
        Coordinates of the whole.
    found : ResidualNorms
    others : array of int
        Its coordinates in the whole.
    kept : array of int
        The rows of its side constraints there.
    """

    problem: Problem
    norms: NormTerms
    size: int
    found: ResidualNorms
    others: Index
    kept: Index

    def lifted(self, x: Array, multipliers: Array, tails: Array) -> tuple[Array, Array]:
        """The whole x and all multipliers; `tails` are those of the norms, heads included."""
        z, mu = np.zeros(self.size), np.zeros(len(self.norms.rows_of) + len(self.kept))
        z[self.others] = x
        z[self.found.heads] = self.norms.lengths(x) / self.found.scales
        mu[self.kept] = multipliers
        mu[self.norms.rows_of] = tails
        return z, mu


_KNOWN: weakref.WeakKeyDictionary[Problem, Compact | None] = weakref.WeakKeyDictionary()


def compact(problem: Problem) -> Compact | None:
    """`problem` without the bounds of its norms; None where it has none, or sparse blocks."""
    if problem not in _KNOWN:
        _KNOWN[problem] = _compact(problem)
    return _KNOWN[problem]


def _compact(problem: Problem) -> Compact | None:
    found, side, form = norms_of_residuals(problem), problem.side, problem.quadratic
    if found is None or side is None or not isinstance(form, Quadratic):
        return None
    others = np.ones(problem.d, dtype=bool)
    others[found.heads] = False
    others = np.flatnonzero(others)
    mine, rows = side.take(found.cones)
    rest, kept = side.take(~found.cones)
    blocks = Blocks.of(mine.matrix[:, others], found.sizes)
    if blocks is None:
        return None
    norms = NormTerms.made(blocks, mine, rows, problem.linear[found.heads] / found.scales)
    left = None
    if rest.dims:
        left = SideConstraints(rest.matrix[:, others], rest.offset, rest.dims)
    inner = replace(
        problem, design=problem.design.take_columns(others),
        quadratic=form.take(others), linear=problem.linear[others],
        side=left, layout=None,
    )
    return Compact(inner, norms, problem.d, found, others, kept)


# -- the blocks ----------------------------------------------------------------------------------


class Group(NamedTuple):
    """Blocks of one size over the same few columns.

    Attributes
    ----------
    at : array of int, shape (n, k)
        Their rows among those of all blocks.
    columns : tuple of arrays of int
        Which columns the first, the second, ... row of a block has.
    parts : tuple of arrays, shape (n, d_a)
        The entries of these.
    """

    at: Index
    columns: tuple[Index, ...]
    parts: tuple[Array, ...]

    def add_gram(self, diagonal: Array, along: Array, out: Array) -> None:
        """Add ``A' (diag(diagonal) - along along') A``, block by block, to `out` in place.

        Both of shape (n, k).
        """
        touched = np.unique(np.concatenate(self.columns))
        place = np.searchsorted(touched, np.arange(out.shape[0]))
        crossed = np.zeros((len(self.at), len(touched)))
        own = np.zeros((len(touched), len(touched)))
        for a, (columns, part) in enumerate(zip(self.columns, self.parts, strict=True)):
            here = place[columns]
            crossed[:, here] += along[:, a, None] * part
            own[np.ix_(here, here)] += (part.T * diagonal[:, a]) @ part
        own -= crossed.T @ crossed
        out[np.ix_(touched, touched)] += own


class Blocks(NamedTuple):
    """``A_i`` of all norms, one below the other.

    Attributes
    ----------
    matrix : CSR matrix, shape (m, d)
        With a row of zeros for the head of each.
    groups : tuple of Group
    """

    matrix: Any
    groups: tuple[Group, ...]

    @classmethod
    def of(cls, matrix: Any, sizes: Index) -> Blocks | None:
        """The blocks of cones of these sizes, heads included; None where they are sparse."""
        matrix = sp.csr_matrix(matrix)
        starts = np.cumsum(sizes) - sizes
        owner = np.repeat(np.arange(len(sizes)), sizes)
        label = _sharing_columns(matrix, owner, len(sizes)) * (int(sizes.max()) + 1) + sizes
        groups: list[Group] = []
        for value in np.unique(label):
            mine = np.flatnonzero(label == value)
            at = starts[mine][:, None] + 1 + np.arange(sizes[mine[0]] - 1)
            columns, parts = [], []
            for rows in at.T:
                part = matrix[rows]
                used = np.flatnonzero(np.bincount(part.indices, minlength=matrix.shape[1]))
                if len(rows) * len(used) > part.nnz / FILLED:
                    return None
                place = np.zeros(matrix.shape[1], dtype=np.intp)
                place[used] = np.arange(len(used))
                dense = np.zeros((len(rows), len(used)))
                row = np.repeat(np.arange(len(rows)), np.diff(part.indptr))
                dense[row, place[part.indices]] = part.data
                columns.append(used)
                parts.append(dense)
            groups.append(Group(at, tuple(columns), tuple(parts)))
        return cls(matrix, tuple(groups))

    def gram(self, diagonal: Array, along: Array) -> Array:
        """``A' (diag(diagonal) - along along') A``, block by block; both of shape (m,)."""
        out = np.zeros((self.matrix.shape[1],) * 2)
        for group in self.groups:
            group.add_gram(diagonal[group.at], along[group.at], out)
        return out


def _sharing_columns(matrix: Any, owner: Index, count: int) -> Index:
    """A label for each of `count` blocks, the same where blocks share columns, however far apart.

    Of the facilities of a location problem each has its own.
    """
    d = matrix.shape[1]
    rows = np.repeat(owner, np.diff(matrix.indptr))
    first = np.full(count, d)
    begins = np.flatnonzero(np.diff(rows, prepend=-1))
    first[rows[begins]] = np.minimum.reduceat(matrix.indices, begins) if len(begins) else 0
    graph = np.zeros((d + 1, d + 1), dtype=bool)
    graph[first[rows], matrix.indices] = True
    labels = connected_components(sp.csr_matrix(graph), directed=False)[1]
    return np.asarray(labels[first], dtype=np.intp)


# -- in the interior point method ------------------------------------------------------------------


class NormTerms(SecondOrderCones):
    """``c_i |A_i x + b_i|`` as cones whose heads are eliminated; see the module's docstring.

    The head of a slack is the bound of the norm, that of a multiplier ``c_i``.
    """

    costly: ClassVar[bool] = True
    costs: Array
    blocks: Blocks
    rows_of: Index

    @classmethod
    def made(cls, blocks: Blocks, side: SideConstraints, rows: Index, costs: Array) -> NormTerms:
        """Of cones alone, which have these `rows` in the whole, at these costs."""
        sizes = np.array([size for _, size in side.dims], dtype=np.intp)
        heads = (np.cumsum(sizes) - sizes).astype(np.intp)
        offset = side.offset.copy()
        matrix = np.zeros((0, blocks.matrix.shape[1]))
        out = cls(matrix, offset, heads, np.zeros(0, dtype=np.intp))
        out.costs, out.blocks, out.rows_of = costs, blocks, rows
        return out

    def slack(self, x: Array) -> Array:
        """``A x + b``, and the lengths in the heads."""
        out = np.asarray(self.blocks.matrix @ x) + self.offset
        out[self.heads] = 0.0
        out[self.heads] = np.sqrt(self.sums(out * out))
        return out

    def lengths(self, x: Array) -> Array:
        """``|A_i x + b_i|``, shape (c,)."""
        return self.slack(x)[self.heads]

    def adjoint(self, z: Array) -> Array:
        """``A' z``; what z has in the heads is what the bounds cost."""
        return np.asarray(self.blocks.matrix.T @ z)

    def apart(self, x: Array, s: Array) -> Array:
        """By how much the slacks s are not those of x; their heads are what they are."""
        return self.tail * (self.slack(x) - s)

    def violation(self, x: Array) -> float:
        """Nothing is violated by any x."""
        return 0.0

    @cached_property
    def column_squares(self) -> Array:
        """``sum A_ij^2`` of each column, shape (d,)."""
        return np.asarray(self.blocks.matrix.power(2).sum(axis=0)).ravel()

    @cached_property
    def spread(self) -> float:
        """About how long the norms are: how far the constants of the residuals lie apart."""
        b = self.offset[self.tail > 0.0]
        found = float(np.std(b))
        size = float(np.abs(b).max(initial=0.0))
        return found if found > 1e-12 * size else (size if size > 0.0 else 1.0)

    def parabolas(self) -> tuple[Array, Array]:
        """Matrix and right side of squares that are about as steep as the norms."""
        weight = self.tail * (self.costs / self.spread)[self.owner]
        return self.blocks.gram(weight, np.zeros(len(weight))), -self.adjoint(weight * self.offset)

    @property
    def steepness(self) -> float:
        """The sum of the squares' weights."""
        return float(self.tail @ (self.costs / self.spread)[self.owner])

    def grows(self, p: Array, share: float) -> bool:
        """Whether some norm grows along p, by more than such a share of what it may."""
        size = np.sqrt(self.column_squares) @ np.abs(p)
        return float(np.linalg.norm(self.blocks.matrix @ p)) > share * float(size)

    def reach(self, x: Array) -> Array:
        """Sizes of the norms, shape (c,)."""
        return np.maximum(self.lengths(x), self.spread)

    def value(self, x: Array) -> float:
        """``sum_i c_i |A_i x + b_i|``."""
        return float(self.costs @ self.lengths(x))

    def central(self, x: Array, level: float) -> tuple[Array, Array]:
        """Slacks of x and multipliers with all products at `level`."""
        s = self.slack(x)
        half = 0.5 * level / self.costs
        s[self.heads] = half + np.hypot(half, s[self.heads])
        share = (self.costs / s[self.heads])[self.owner]
        z = self.signs * s * share
        return s, z

    def scaling(self, s: Array, z: Array) -> NormScaling:
        """The scaling of a pair."""
        return NormScaling(self, s, z)

    def project(self, u: Array) -> Array:
        """Multipliers that are as long as their heads at most, which are the costs."""
        length = np.sqrt(self.sums(self.tail * u * u))
        share = np.minimum(1.0, INSIDE * self.costs / np.where(length > 0.0, length, 1.0))
        out = u * share[self.owner]
        out[self.heads] = self.costs
        return out

    def rounded(self, s: Array, z: Array, usual: Array, width: Array) -> Array:
        """Multipliers on the boundary as the slacks are; as they are, inside, where norms go to 0.

        A norm is 0 at the optimum if its multiplier stays inside by more than its slack does.
        """
        length = np.sqrt(self.sums(self.tail * s * s))
        inside = 1.0 - np.sqrt(self.sums(self.tail * z * z)) / self.costs
        zero = inside * self.spread > length
        return np.where(zero[self.owner], z, self._steepest(s, length))

    def _steepest(self, s: Array, length: Array) -> Array:
        share = INSIDE * self.costs / np.where(length > 0.0, length, 1.0)
        out = -s * share[self.owner]
        out[self.heads] = self.costs
        return out

    def _at_zero(self, z: Array) -> Mask:
        """Norms whose multipliers are inside."""
        length = np.sqrt(self.sums(self.tail * z * z))
        return np.asarray(length < (1.0 - 1e-12) * self.costs)

    def face(self, x: Array, z: Array) -> tuple[Array, Array, Array] | None:
        """Curvature of the norms that are not 0, and the equations of those that are; at x."""
        s = self.slack(x)
        length, zero = s[self.heads], self._at_zero(z)
        if not (length[~zero] > 0.0).all():
            return None
        length = np.where(zero, 1.0, length)
        weight = np.where(zero, 0.0, self.costs / length)[self.owner] * self.tail
        along = np.sqrt(weight) * s / length[self.owner]
        curvature = self.blocks.gram(weight, along)
        rows = np.flatnonzero(zero[self.owner] & (self.tail > 0.0))
        if len(rows) > CROWDED * len(x):
            return None
        return curvature, self.blocks.matrix[rows].toarray(), -s[rows]

    def moved(self, x: Array, z: Array, step: Array) -> Array:
        """The multipliers after a step of those of norms that are 0; the others' as x has them."""
        s, zero = self.slack(x), self._at_zero(z)
        rows = np.flatnonzero(zero[self.owner] & (self.tail > 0.0))
        out = np.where(zero[self.owner], z, self._steepest(s, s[self.heads]))
        out[rows] += step[: len(rows)]
        return out


class NormScaling(Scaling):
    """The scaling of a pair whose multipliers have fixed heads, with these eliminated."""

    def __init__(self, cones: NormTerms, s: Array, z: Array) -> None:
        super().__init__(cones, s, z)
        self.norms = cones
        v0 = self.v[cones.heads][cones.owner]
        self.w = 2.0 * v0 * self.v - cones.unit
        self.w0 = self.w[cones.heads]
        self.curve = (2.0 * self.w0**2 - 1.0)[cones.owner]

    @cached_property
    def normal(self) -> Array:
        """What the normal equations get."""
        tail, root = self.norms.tail, np.sqrt(2.0 / self.curve)
        return self.norms.blocks.gram(tail / self.eta**2, tail * root * self.w / self.eta)

    def _curved(self, u: Array) -> Array:
        """``H u``, of the tails."""
        tail = self.norms.tail
        along = self.norms.sums(tail * self.w * u)[self.norms.owner]
        return tail * (u - (2.0 / self.curve) * along * self.w) / self.eta**2

    def rest(self, of_cones: Array, apart: Array) -> Array:
        """The step of the multipliers where x stays, for ``W dz + W^-1 ds = of_cones``."""
        owner = self.norms.owner
        self.wanted = self.undone(of_cones)
        first = self.wanted[self.norms.heads][owner]
        ratio = -2.0 * self.w0[owner] / self.curve * self.w
        return self.norms.tail * (self.wanted - ratio * first) - self._curved(apart)

    def back(self, rest: Array) -> Array:
        """``G'`` of a step of the multipliers."""
        return self.norms.adjoint(rest)

    def steps(self, dx: Array, rest: Array, apart: Array) -> tuple[Array, Array]:
        """Of slacks and multipliers."""
        norms, heads = self.norms, self.norms.heads
        moved = norms.tail * np.asarray(norms.blocks.matrix @ dx)
        ds, dz = moved + apart, rest - self._curved(moved)
        along = norms.sums(norms.tail * self.w * ds)
        first = self.wanted[heads] * self.eta[heads] ** 2 + 2.0 * self.w0 * along
        ds[heads] = first / self.curve[heads]
        return ds, dz


# -- in the loop -----------------------------------------------------------------------------------


class ScreenedNorms(ScreenedCones):
    """A problem of norms of residuals, of which none is left out."""

    def set_up(self) -> None:
        """All cones stay."""
        super().set_up()
        self.kept[:] = True

    def begin(self, start: Start | None, solve: Callable[..., Solution]) -> None:
        """Nothing is to be chosen."""

    def reduce(
        self, selection: Mask
    ) -> tuple[Problem, Callable[[SubproblemResult], SubproblemResult]]:
        """The problem itself."""
        return self.problem, lambda found: found

    def solve(self, reduced: Problem, selection: Mask) -> SubproblemResult | None:
        """Solve it to a part of the tolerance: the certificate charges rounding as well."""
        target = 0.0 if self.best is None else SHARE * self.tol * abs(self.best.primal)
        self.result = call_checked(self.inner, reduced, None, target)
        return self.result if self.result.usable else None
