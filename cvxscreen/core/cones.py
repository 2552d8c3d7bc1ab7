"""Side constraints ``F x + f in K`` with K a product of simple cones, each its own projection."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.rounding import gamma
from cvxscreen.errors import InvalidInput

Array = NDArray[np.float64]

MANY_CONES = 200
"""As many second-order cones as nobody writes one by one: fewer are all kept, and each is looked at
for bounds (2,000 take seconds); among so many, norms of residuals are looked for."""
KINDS = ("zero", "nonneg", "soc", "psd")


STEPS = (0.0, 1e-14, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-7)
"""Parts of the way inside that are tried; further ones would cost more than they are worth."""

EQUALITIES = 300
"""More equalities than this are not looked at for `SideConstraints.nearness`."""


def height(kind: str, size: int) -> int:
    """How many rows a cone has."""
    return size * size if kind == "psd" else size


def _project(kind: str, size: int, v: Array) -> Array:
    """Projection of `v` onto one cone, or onto a run of cones that are alike."""
    if kind == "zero":
        return np.zeros_like(v)
    if kind == "nonneg":
        return np.maximum(v, 0.0)
    if kind == "soc":
        table = v.reshape(-1, size)
        head, norm = table[:, 0], np.linalg.norm(table[:, 1:], axis=1)
        middle = np.where(norm <= -head, 0.0, 0.5 * (head + norm))
        inside = norm <= head
        share = np.where(inside, 1.0, middle / np.where(norm > 0.0, norm, 1.0))
        out = table * share[:, None]
        out[:, 0] = np.where(inside, head, middle)
        return np.asarray(out.ravel())
    square = v.reshape(size, size, order="F")
    values, vectors = np.linalg.eigh(0.5 * (square + square.T))
    return np.asarray(((vectors * np.maximum(values, 0.0)) @ vectors.T).flatten(order="F"))


def _surely_inside(kind: str, size: int, v: Array, rounding: Array) -> bool:
    """Whether everything within `rounding` of `v` (entry by entry) lies in a run of cones."""
    if kind == "zero":
        return not len(v)
    if kind == "nonneg":
        return bool((v >= rounding).all())
    table = v.reshape(-1, height(kind, size))
    reach = np.linalg.norm(rounding.reshape(table.shape), axis=1)
    reach *= 1.0 + gamma(table.shape[1] + 4)
    room = gamma(10 * size * size + 16) * np.linalg.norm(table, axis=1) + 2.0 * reach
    if kind == "soc":
        return bool((table[:, 0] - np.linalg.norm(table[:, 1:], axis=1) >= room).all())
    square = v.reshape(size, size, order="F")
    # Symmetric eigenvalues are computed within a small multiple of the unit of |v| (Weyl).
    return bool(np.linalg.eigvalsh(0.5 * (square + square.T))[0] >= room[0])


class NormCones(Immutable):
    """Cones ``|D x_g| <= a t_g``, each of a block g of coordinates and a head ``t_g`` of its own.

    Of one coordinate they are two inequalities, ``a t_g - D x_g >= 0`` and ``a t_g + D x_g >= 0``.
    No coordinate is in two of them. Heads are in no other constraints but inequalities that bound
    them from above, as a budget for their sum does.

    Attributes
    ----------
    head_rows, heads : arrays of int, shape (c,)
        The row of ``a t_g``, or the first of two inequalities, and the coordinate ``t_g``.
    scales : array, shape (c,)
        ``a > 0``.
    paired, limited : masks, shape (c,)
        Which of them are two inequalities, and which heads are in others.
    rows, coordinates, owner : arrays of int, shape (k,)
        The rows of all ``D x_g``, or the second of two inequalities, the coordinate in each, and
        which of the c cones it is in.
    factors : array, shape (k,)
        The diagonals of all D.
    """

    head_rows: NDArray[np.intp]
    heads: NDArray[np.intp]
    scales: Array
    paired: NDArray[np.bool_]
    limited: NDArray[np.bool_]
    rows: NDArray[np.intp]
    coordinates: NDArray[np.intp]
    owner: NDArray[np.intp]
    factors: Array

    def __len__(self) -> int:
        return len(self.heads)

    def take(self, kept: NDArray[np.bool_]) -> NormCones:
        """Those that are `kept`, by their positions among these."""
        mine = kept[self.owner]
        return NormCones(
            self.head_rows[kept], self.heads[kept], self.scales[kept], self.paired[kept],
            self.limited[kept], self.rows[mine], self.coordinates[mine],
            (np.cumsum(kept) - 1)[self.owner[mine]], self.factors[mine],
        )

    def lengths(self, v: Array) -> Array:
        """``|D^-1 v_g|`` of each block of `v`, the norm that is dual to ``|D x_g|``; shape (c,)."""
        squares = (v[self.coordinates] / self.factors) ** 2
        return np.sqrt(np.bincount(self.owner, squares, len(self.heads)))

    def least(self, x: Array) -> Array:
        """``|D x_g| / a``, the least that each head may be; shape (c,)."""
        squares = (self.factors * x[self.coordinates]) ** 2
        return np.sqrt(np.bincount(self.owner, squares, len(self.heads))) / self.scales

    def any_of(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Cones of which `mask` has a coordinate, or the head; shape (c,)."""
        found = np.bincount(self.owner, mask[self.coordinates], len(self.heads)) > 0.0
        return np.asarray(found | mask[self.heads])

    def spread(self, values: NDArray[Any], out: NDArray[Any]) -> None:
        """Put one of `values` a cone to its head and coordinates in `out`, in place."""
        out[self.heads], out[self.coordinates] = values, values[self.owner]

    def put(self, multipliers: Array, head: Array, tail: Array) -> None:
        """Put multipliers ``(head, tail)`` of the cones to those of their rows, in place.

        Two inequalities have ``(head - tail) / 2`` and ``(head + tail) / 2``: with them they come
        to ``a head`` at the head and ``D tail`` at the coordinate, as the cone does.
        """
        two = self.paired[self.owner]  # whose owners are in order, and have one row each
        multipliers[self.head_rows], multipliers[self.rows] = head, tail
        one, other = head[self.paired], tail[two]
        multipliers[self.head_rows[self.paired]] = 0.5 * (one - other)
        multipliers[self.rows[two]] = 0.5 * (one + other)


class ResidualNorms(NamedTuple):
    """Norms of residuals with bounds of their own, ``|N_h x + b_h| <= a_h x_h``.

    Attributes
    ----------
    cones : array of bool
        Which of all cones these are.
    head_rows, heads : arrays of int, shape (c,)
        The rows of the bounds, and the coordinates that these are.
    scales : array, shape (c,)
        ``a``.
    sizes : array of int, shape (c,)
        Rows of each cone.
    """

    cones: NDArray[np.bool_]
    head_rows: NDArray[np.intp]
    heads: NDArray[np.intp]
    scales: Array
    sizes: NDArray[np.intp]

    @property
    def tails(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The rows of the residuals, and the norm of each."""
        owner = np.repeat(np.arange(len(self.heads)), self.sizes - 1)
        ends = np.cumsum(self.sizes - 1)
        place = np.arange(len(owner)) - np.repeat(ends - (self.sizes - 1), self.sizes - 1)
        return self.head_rows[owner] + 1 + place, owner


def _joined(first: NormCones, second: NormCones) -> NormCones:
    """The cones of the first, and after them those of the second."""
    second = replace(second, owner=second.owner + len(first))
    return NormCones(*(
        np.concatenate([getattr(first, name), getattr(second, name)])
        for name in NormCones.__annotations__
    ))


class SideConstraints(Immutable):
    """``F x + f in K``, kept as they are by every reduction.

    Parameters
    ----------
    matrix : sparse matrix, shape (m, d)
    offset : array_like, shape (m,)
    dims : sequence of (kind, size)
        In row order; kinds ``"zero"``, ``"nonneg"``, ``"soc"`` (size rows, head first) and
        ``"psd"`` (side ``size``, so ``size**2`` rows of a symmetric matrix in Fortran order).
    """

    matrix: Any
    offset: Array
    dims: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "matrix", sp.csr_matrix(self.matrix, dtype=np.float64))
        object.__setattr__(self, "offset", np.array(self.offset, dtype=np.float64))
        # Of many cones few are of different kinds and sizes.
        entries: tuple[tuple[Any, Any], ...] = tuple(map(tuple, self.dims))  # type: ignore[arg-type]
        known = {entry: (str(entry[0]), int(entry[1])) for entry in set(entries)}
        object.__setattr__(self, "dims", tuple(map(known.__getitem__, entries)))
        if not (np.isfinite(self.matrix.data).all() and np.isfinite(self.offset).all()):
            raise InvalidInput("side constraints must be finite; found NaN or infinity.")
        bad = [kind for kind, _ in known.values() if kind not in KINDS]
        if bad:
            raise InvalidInput(f"`dims` has cone {bad[0]!r}; known cones: {', '.join(KINDS)}.")
        rows = int(self.heights.sum())
        if not rows == self.matrix.shape[0] == len(self.offset):
            raise InvalidInput(
                f"`dims` describes {rows} rows but the matrix has {self.matrix.shape[0]} and the "
                f"offset {len(self.offset)}."
            )

    def blocks(self) -> Iterator[tuple[str, int, slice]]:
        """Each cone with its rows."""
        start = 0
        for kind, size in self.dims:
            stop = start + height(kind, size)
            yield kind, size, slice(start, stop)
            start = stop

    @cached_property
    def runs(self) -> tuple[tuple[str, int, slice], ...]:
        """Kind, size and rows of cones that lie next to each other and are alike.

        A cone of matrices is a run of its own.
        """
        entries, which = self._alike
        single = np.array([kind == "psd" for kind, _ in entries], dtype=bool)[which]
        first = np.flatnonzero((np.diff(which, prepend=-1) != 0) | single)
        ends = np.append(0, np.cumsum(self.heights))
        stops = ends[np.append(first, len(which))[1:]] if len(first) else first
        found = [
            (*entries[which[k]], slice(int(ends[k]), int(stop)))
            for k, stop in zip(first, stops, strict=True)
        ]
        return tuple(found)

    @cached_property
    def _alike(self) -> tuple[list[tuple[str, int]], NDArray[np.intp]]:
        """Kinds and sizes that occur, and which of them each cone has."""
        entries = list(dict.fromkeys(self.dims))
        place = {entry: k for k, entry in enumerate(entries)}
        return entries, np.fromiter(map(place.__getitem__, self.dims), np.intp, len(self.dims))

    @cached_property
    def heights(self) -> NDArray[np.intp]:
        """How many rows each cone has."""
        entries, which = self._alike
        return np.array([height(*entry) for entry in entries], dtype=np.intp)[which]

    @cached_property
    def second_order(self) -> NDArray[np.bool_]:
        """Which of the cones are second-order cones."""
        entries, which = self._alike
        return np.array([kind == "soc" for kind, _ in entries], dtype=bool)[which]

    def has(self, *kinds: str) -> bool:
        """Whether there are cones of these kinds."""
        return any(kind in kinds for kind, _ in self._alike[0])

    @property
    def many_cones(self) -> bool:
        """Whether there are more second-order cones than anybody writes one by one."""
        return len(self.dims) >= MANY_CONES and bool(self.second_order.sum() >= MANY_CONES)

    @cached_property
    def residual_norms(self) -> ResidualNorms:
        """The second-order cones whose heads are coordinates that no other row has."""
        matrix, soc = self.matrix, self.second_order
        heights = self.heights
        rows = (np.cumsum(heights) - heights)[soc]
        entry = np.minimum(matrix.indptr[rows], max(matrix.nnz - 1, 0))
        heads, scales = matrix.indices[entry].astype(np.intp), matrix.data[entry]
        uses = np.bincount(matrix.indices, minlength=matrix.shape[1])
        alone = (np.diff(matrix.indptr)[rows] == 1) & (self.offset[rows] == 0.0)
        alone &= (uses[heads] == 1) & (scales > 0.0) & (heights[soc] > 1)
        cones = np.zeros(len(self.dims), dtype=bool)
        cones[np.flatnonzero(soc)[alone]] = True
        return ResidualNorms(cones, rows[alone], heads[alone], scales[alone], heights[soc][alone])

    @cached_property
    def norms(self) -> NormCones:
        """The cones and pairs of inequalities that hold the norm of a block below a head."""
        found, wide = _joined(self._norms_in_cones, self._norms_in_pairs), self.matrix.shape[1]
        mine = np.zeros(self.matrix.shape[0], dtype=bool)
        mine[found.head_rows] = mine[found.rows] = True
        columns = self.matrix.indices
        row = np.repeat(np.arange(len(mine)), np.diff(self.matrix.indptr))
        limits = self._inequalities[row] & ~mine[row] & (self.matrix.data < 0.0)
        uses, limited = np.bincount(columns, minlength=wide), np.bincount(columns[limits],
                                                                          minlength=wide)
        own = 1 + found.paired.astype(np.intp)
        found = replace(found, limited=limited[found.heads] > 0)
        often = np.bincount(found.coordinates, minlength=wide) > 1
        alone = np.bincount(found.owner, often[found.coordinates], len(found)) == 0.0
        return found.take(alone & (uses[found.heads] == own + limited[found.heads]))

    @cached_property
    def _inequalities(self) -> NDArray[np.bool_]:
        """Rows that are inequalities, shape (m,)."""
        out = np.zeros(self.matrix.shape[0], dtype=bool)
        for kind, _, rows in self.runs:
            out[rows] = kind == "nonneg"
        return out

    @cached_property
    def _norms_in_cones(self) -> NormCones:
        """Those in second-order cones, wherever else their heads may be."""
        matrix, heights = self.matrix, self.heights
        entry = np.minimum(matrix.indptr[:-1], max(matrix.nnz - 1, 0))
        plain = (np.diff(matrix.indptr) == 1) & (self.offset == 0.0)
        if not plain.any():
            plain, column, factor = plain, np.zeros(len(plain), np.intp), np.zeros(len(plain))
        else:
            column, factor = matrix.indices[entry].astype(np.intp), matrix.data[entry]
        plain &= factor != 0.0
        starts, ends = np.cumsum(heights) - heights, np.cumsum(heights)
        strange = np.append(0, np.cumsum(~plain))
        cones = np.flatnonzero(self.second_order & (strange[ends] == strange[starts]))
        cones = cones[(factor[starts[cones]] > 0.0) & (heights[cones] > 1)]
        first, sizes = starts[cones], heights[cones] - 1
        owner = np.repeat(np.arange(len(cones)), sizes)
        place = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        rows, no = first[owner] + 1 + place, np.zeros(len(cones), dtype=bool)
        return NormCones(
            first, column[first], factor[first], no, no, rows, column[rows], owner, factor[rows]
        )

    @cached_property
    def _norms_in_pairs(self) -> NormCones:
        """Those in two inequalities ``a t - d x >= 0`` and ``a t + d x >= 0``."""
        matrix = self.matrix
        two = self._inequalities & (np.diff(matrix.indptr) == 2) & (self.offset == 0.0)
        two = np.flatnonzero(two)
        entry = matrix.indptr[two][:, None] + np.arange(2)
        order = np.argsort(matrix.indices[entry], axis=1)
        entry = np.take_along_axis(entry, order, axis=1)
        column, factor = matrix.indices[entry].astype(np.intp), matrix.data[entry]
        order = np.lexsort((column[:, 1], column[:, 0]))
        two, column, factor = two[order], column[order], factor[order]
        # Rows of the same two coordinates lie side by side; of three the head has one too many.
        first = np.flatnonzero((column[1:] == column[:-1]).all(axis=1))
        f, g = factor[first], factor[first + 1]
        head = (f == g) & (f > 0.0) & (f[:, ::-1] == -g[:, ::-1]) & (f[:, ::-1] != 0.0)
        first, at = first[head.any(axis=1)], np.argmax(head[head.any(axis=1)], axis=1)
        owner, no = np.arange(len(first)), np.zeros(len(first), dtype=bool)
        return NormCones(
            two[first], column[first, at], factor[first, at], ~no, no, two[first + 1],
            column[first, 1 - at], owner, factor[first + 1, 1 - at],
        )

    def without(self, gone: NDArray[np.bool_]) -> tuple[SideConstraints, NDArray[np.intp]]:
        """The rows that are not `gone`, all of a cone or none, and which these are."""
        rows = np.flatnonzero(~gone)
        heights = self.heights
        cone = np.repeat(np.arange(len(heights)), heights)
        left = np.bincount(cone[rows], minlength=len(heights))
        dims = tuple(
            (kind, int(k) if kind in ("zero", "nonneg") else size)
            for (kind, size), k in zip(self.dims, left, strict=True) if k
        )
        return SideConstraints(self.matrix[rows], self.offset[rows], dims), rows

    def take(self, kept: NDArray[np.bool_]) -> tuple[SideConstraints, NDArray[np.intp]]:
        """The cones that are `kept`, by their positions, and which rows these have."""
        rows = np.flatnonzero(np.repeat(kept, self.heights))
        dims = tuple(compress(self.dims, kept.tolist()))
        return SideConstraints(self.matrix[rows], self.offset[rows], dims), rows

    def slack(self, x: ArrayLike) -> Array:
        """``F x + f``, shape (m,)."""
        return np.asarray(self.matrix @ np.asarray(x, dtype=np.float64) + self.offset)

    def adjoint(self, multipliers: ArrayLike) -> Array:
        """``F' mu``, shape (d,)."""
        return np.asarray(self.matrix.T @ np.asarray(multipliers, dtype=np.float64))

    def project(self, v: ArrayLike) -> Array:
        """Projection of `v` onto K."""
        v = np.asarray(v, dtype=np.float64)
        out = np.empty_like(v)
        for kind, size, rows in self.runs:
            out[rows] = _project(kind, size, v[rows])
        return out

    def project_dual(self, multipliers: ArrayLike) -> Array:
        """Projection of `multipliers` onto the dual cone K*."""
        v = np.asarray(multipliers, dtype=np.float64)
        out = np.empty_like(v)
        for kind, size, rows in self.runs:
            out[rows] = v[rows] if kind == "zero" else _project(kind, size, v[rows])
        return out

    def _rounding(self, x: Array) -> Array:
        """What `slack` may be off at `x`, shape (m,)."""
        return np.asarray(gamma(len(x) + 4) * (self._sizes @ np.abs(x) + np.abs(self.offset)))

    @cached_property
    def _sizes(self) -> Any:
        """``|F|``."""
        return abs(self.matrix)

    @cached_property
    def _reach(self) -> Array:
        """How far each row moves at most with a point that moves by 1, shape (m,)."""
        return np.sqrt(np.asarray(self._sizes.power(2).sum(axis=1)).ravel()) * (1.0 + 1e-9)

    @cached_property
    def _equalities(self) -> tuple[NDArray[np.intp], float, float]:
        """The rows that are equalities, their greatest singular value and a bound on the least."""
        rows = [np.arange(r.start, r.stop) for k, _, r in self.runs if k == "zero"]
        index = np.concatenate([np.zeros(0, dtype=np.intp), *rows])
        d = self.matrix.shape[1]
        if not 0 < len(index) <= min(d, EQUALITIES):
            return index, 0.0, 0.0
        values = np.linalg.svd(self.matrix[index].toarray(), compute_uv=False)
        return index, float(values[0]), float(values[-1] - gamma(50 * (d + 1)) * values[0])

    def surely_holds(self, x: ArrayLike) -> bool:
        """Whether ``F x + f`` lies in K for certain, rounding included.

        No point of floating-point numbers satisfies an equality for certain.
        """
        x = np.asarray(x, dtype=np.float64)
        slack, rounding = self.slack(x), self._rounding(x)
        return all(
            _surely_inside(kind, size, slack[rows], rounding[rows])
            for kind, size, rows in self.runs
        )

    def nearness(self, x: ArrayLike) -> float:
        """A distance within which, for certain, some point has ``F x + f`` in K; or infinity.

        Without equalities 0 where `surely_holds`. With equalities of full rank (smallest singular
        value ``s``) the nearest point that satisfies them is within ``|E x + e| / s``; the other
        constraints must hold with that much to spare.
        """
        x = np.asarray(x, dtype=np.float64)
        index, greatest, least = self._equalities
        if not len(index):
            return 0.0 if self.surely_holds(x) else float("inf")
        if not least > 1e-8 * greatest:
            return float("inf")
        slack, rounding = self.slack(x), self._rounding(x)
        away = float(np.linalg.norm(np.abs(slack[index]) + rounding[index])) / least * (1.0 + 1e-9)
        rounding = rounding + self._reach * away
        inside = all(
            _surely_inside(kind, size, slack[part], rounding[part])
            for kind, size, part in self.runs
            if kind != "zero"
        )
        return away if inside else float("inf")

    def moved_inside(self, x: ArrayLike, towards: ArrayLike) -> Array:
        """`x`, or the nearest of a few points on the way to `towards` that is inside for certain.

        Solvers end on the boundary, a rounding error inside or outside, and no theorem holds for a
        point outside. Returns `x` itself where none of the points is inside.
        """
        x, towards = np.asarray(x, dtype=np.float64), np.asarray(towards, dtype=np.float64)
        for part in STEPS:
            moved = x + part * (towards - x)
            if np.isfinite(self.nearness(moved)):
                return np.asarray(moved)
        return x

    def violation(self, x: ArrayLike) -> float:
        """Euclidean distance of ``F x + f`` from K."""
        s = self.slack(x)
        return float(np.linalg.norm(s - self.project(s)))
