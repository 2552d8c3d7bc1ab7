"""Which comparisons of distances a metric should satisfy: triplets, pairs, quadruplets, mixtures.

A term says ``d^2(plus pair) - d^2(minus pair) >= threshold``; one of the two pairs may be missing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen.capacity import require
from cvxscreen.errors import InvalidInput
from cvxscreen.inputs import positive
from cvxscreen.matrices import stored
from cvxscreen.models.inputs import some_rows, vector
from cvxscreen.pair_table import PairTable, centred
from cvxscreen.term_sets import Indexed, Products, Terms

Array = NDArray[np.float64]
Points = NDArray[np.int64]

LISTED_BYTES = 57
"""Of memory, at the peak, for each triplet that is listed (measured)."""


@dataclass(frozen=True, eq=False)
class Comparisons:
    """A set of terms over n points; made by `triplets`, `pairs` and `quadruplets`.

    Attributes
    ----------
    n : int
        Number of points.
    left, right : array of int32, shape (P,)
        The unique pairs of points that the terms use.
    terms : Indexed or Products
    threshold, weight : array, shape (1,) or (T,)
        One entry for all terms, or one each.
    anchors, near, far : arrays of int, optional
        For triplets from labels: the anchor of each block and the points of its lists.
    listed : array of int, shape (T, 2, 3 or 4), optional
        The points of every term where they were given one by one.
    """

    n: int
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    terms: Terms
    threshold: Array
    weight: Array
    anchors: Points | None = None
    near: Points | None = None
    far: Points | None = None
    listed: Points | None = None

    def __len__(self) -> int:
        return len(self.terms)

    @property
    def index(self) -> Points:
        """The points of every term: (i, j, l) for triplets, same class first; shape (T, 3).

        (T, 2) for pairs and (T, 4), the closer pair first, for quadruplets.

        Raises
        ------
        TooLarge
            For a set that does not fit into memory when listed.
        InvalidInput
            For a mixture.
        """
        if self.listed is not None:
            return self.listed
        if self.anchors is None or self.near is None or self.far is None:
            raise InvalidInput("a mixture of comparisons has no single index; keep its parts.")
        require(
            LISTED_BYTES * len(self), f"the list of all {len(self):,} triplets",
            "use the set as it is (nothing else needs the list), or choose a smaller `k`",
        )
        shape = self.terms
        if not isinstance(shape, Products):
            raise InvalidInput("these comparisons were not made from labels; they have no lists.")
        rows = np.diff(shape.near_ptr)
        owner = np.repeat(np.arange(len(rows)), rows)
        width = np.diff(shape.far_ptr)[owner]
        i = np.repeat(self.anchors[owner], width)
        j = np.repeat(self.near, width)
        start = np.repeat(np.asarray(shape.far_ptr)[:-1][owner] - np.cumsum(width) + width, width)
        away = self.far[start + np.arange(len(i))]
        return np.column_stack([i, j, away])

    def weighted(self, weight: ArrayLike) -> Comparisons:
        """The same terms with other weights: one positive number, or one a term."""
        if np.ndim(weight) == 0:
            return replace(self, weight=np.array([positive("weight", weight)]))
        fresh = vector("weight", weight, len(self))
        if not (fresh > 0).all():
            raise InvalidInput("`weight` must be positive; leave out the terms of weight 0.")
        return replace(self, weight=fresh)

    def __add__(self, other: Comparisons) -> Comparisons:
        """A mixture: the terms of both, each with its own weight and threshold."""
        if not isinstance(other, Comparisons):
            return NotImplemented
        if other.n != self.n:
            raise InvalidInput(f"comparisons over {self.n} and {other.n} points cannot be mixed.")
        key = np.concatenate([_keys(part.left, part.right, self.n) for part in (self, other)])
        unique, place = np.unique(key, return_inverse=True)
        missing = len(unique)
        columns = []
        for part, offset in ((self, 0), (other, len(self.left))):
            map_ = np.append(place[offset:offset + len(part.left)], missing).astype(np.int32)
            columns.append([map_[side] for side in part.terms.index()])
        plus, minus = (np.concatenate(pair) for pair in zip(*columns, strict=True))
        both = [
            np.concatenate([np.broadcast_to(getattr(part, name), len(part))
                            for part in (self, other)])
            for name in ("threshold", "weight")
        ]
        left, right = _ends(unique, self.n)
        return Comparisons(self.n, left, right, Indexed(plus, minus, missing), *both)

    def table(self, X: Any, diagonal: bool) -> PairTable:
        """The pairs with their points, centred."""
        matrix = stored(X, "X")
        some_rows(*matrix.shape)
        points = centred(matrix)
        if len(points) != self.n:
            raise InvalidInput(
                f"`X` has {len(points)} rows but the comparisons are over {self.n} points."
            )
        return PairTable(points, self.left, self.right, diagonal)

    def pull(self, X: Any, *, diagonal: bool = False) -> Array:
        """``sum (x_i - x_j)(x_i - x_j)'`` over the unique minus pairs: LMNN's linear term.

        Returns
        -------
        array, shape (d, d), or (d,) when `diagonal`
        """
        used = np.zeros(len(self.left) + 1, dtype=bool)
        shape = self.terms
        used[shape.near if isinstance(shape, Products) else shape.minus] = True
        omega = used.astype(np.float64)
        return self.table(X, diagonal).pull(omega)

    def __str__(self) -> str:
        return f"{len(self):,} comparisons over {self.n:,} points and {len(self.left):,} pairs"


def _keys(first: ArrayLike, second: ArrayLike, n: int) -> Points:
    a, b = np.asarray(first, dtype=np.int64), np.asarray(second, dtype=np.int64)
    return np.minimum(a, b) * n + np.maximum(a, b)


def _ends(keys: Points, n: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    return (keys // n).astype(np.int32), (keys % n).astype(np.int32)


def from_points(
    n: int,
    plus: tuple[Points, Points] | None,
    minus: tuple[Points, Points] | None,
    listed: Points,
    threshold: ArrayLike,
) -> Comparisons:
    """Terms from the two points of their plus and of their minus pair.

    A pair of twice the same point, and one left out (-1), is missing.
    """
    sides = []
    for side in (plus, minus):
        if side is None:
            sides.append(np.full(len(listed), -1, dtype=np.int64))
            continue
        key = _keys(*side, n)
        sides.append(np.where((side[0] == side[1]) | (side[0] < 0), -1, key))
    unique, place = np.unique(np.concatenate(sides), return_inverse=True)
    if len(unique) and unique[0] == -1:
        place = np.where(place == 0, len(unique), place) - 1
        unique = unique[1:]
    p, m = place.astype(np.int32).reshape(2, -1)
    left, right = _ends(unique, n)
    return Comparisons(
        n, left, right, Indexed(p, m, len(unique)), np.atleast_1d(np.asarray(threshold, float)),
        np.ones(1), listed=listed,
    )


def from_lists(
    anchors: Points, near: list[Points], far: list[Points], order: Points
) -> Comparisons:
    """Triplets ``(anchor, near, far)`` for all near and far points of each anchor.

    Pairs are numbered along `order`, a permutation of the points: passes over the pairs find points
    that are close in it in the cache.
    """
    n = len(order)
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(n)
    used = [b for b in range(len(anchors)) if len(near[b]) and len(far[b])]
    anchors = np.asarray(anchors, dtype=np.int64)[used]
    near, far = [near[b] for b in used], [far[b] for b in used]
    sizes = [np.array([len(part) for part in lists], dtype=np.int64) for lists in (near, far)]
    flat = [np.concatenate(lists).astype(np.int64) for lists in (near, far)]
    keys = [
        _keys(rank[np.repeat(anchors, size)], rank[points], n)
        for size, points in zip(sizes, flat, strict=True)
    ]
    unique, place = np.unique(np.concatenate(keys), return_inverse=True)
    number: NDArray[np.int32] = place.astype(np.int32)
    pointers = [np.concatenate([[0], np.cumsum(size)]) for size in sizes]
    terms = Products.full(
        pointers[0], number[: len(keys[0])], pointers[1], number[len(keys[0]):], len(unique)
    )
    left, right = (order[side].astype(np.int32) for side in _ends(unique, n))
    return Comparisons(
        n, left, right, terms, np.ones(1), np.ones(1), anchors=anchors, near=flat[0], far=flat[1]
    )
