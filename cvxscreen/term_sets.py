"""Which differences of pair values are the terms: index arrays, or products of lists.

A term's margin is the value of its *plus* pair less the value of its *minus* pair; pair number P is
missing and counts 0. `Products` holds the triplets of an anchor as (near list) x (far list) and
never stores an index of a triplet; a row is a near pair with a window of the anchor's far list.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cvxscreen.pair_loops import loops
from cvxscreen.product_loops import product_loops

Array = NDArray[np.float64]
Index = NDArray[np.int32]
Pointer = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Indexed:
    """Terms given by the numbers of their two pairs.

    Attributes
    ----------
    plus, minus : array of int32, shape (T,)
    pairs : int
        P; the number that stands for a missing pair.
    """

    plus: Index
    minus: Index
    pairs: int

    def __len__(self) -> int:
        return int(self.plus.size)

    def margins(self, values: Array) -> Array:
        """``values[plus] - values[minus]``, shape (T,)."""
        return np.asarray(values[self.plus] - values[self.minus])

    def scatter(self, theta: Array) -> Array:
        """The sum of `theta` over the terms of every pair, signed, shape (P + 1,)."""
        omega = np.zeros(self.pairs + 1)
        loops().scatter(self.plus, self.minus, theta, omega)
        return omega

    def index(self) -> tuple[Index, Index]:
        """``(plus, minus)``."""
        return self.plus, self.minus

    @cached_property
    def load(self) -> int:
        """The largest number of terms of one pair."""
        both = np.bincount(self.plus, minlength=1)
        other = np.bincount(self.minus, minlength=len(both))
        both = np.pad(both, (0, len(other) - len(both)))
        return int((both + other)[: self.pairs].max(initial=0))

    def take(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> Indexed:
        """The terms at `index`."""
        return Indexed(self.plus[index], self.minus[index], self.pairs)

    def compact(self) -> tuple[Indexed, NDArray[np.intp]]:
        """The same terms over the pairs they use only, and which these are."""
        used = np.zeros(self.pairs + 1, dtype=bool)
        used[self.plus] = used[self.minus] = True
        used[-1] = False
        kept = np.flatnonzero(used)
        place = np.full(self.pairs + 1, len(kept), dtype=np.int32)
        place[kept] = np.arange(len(kept), dtype=np.int32)
        return Indexed(place[self.plus], place[self.minus], len(kept)), kept


@dataclass(frozen=True, eq=False)
class Products:
    """For every anchor, each near pair with a window of its far pairs.

    Attributes
    ----------
    near_ptr, near
        Block b has the near pairs ``near[near_ptr[b]:near_ptr[b + 1]]``.
    far_ptr, far
        And the far pairs ``far[far_ptr[b]:far_ptr[b + 1]]``.
    lo, hi : array of int64, shape (len(near),)
        Row r is combined with the far pairs number ``lo_r <= l < hi_r`` of its block.
    pairs : int
        P.
    """

    near_ptr: Pointer
    near: Index
    far_ptr: Pointer
    far: Index
    lo: Pointer
    hi: Pointer
    pairs: int

    @classmethod
    def full(
        cls, near_ptr: Pointer, near: Index, far_ptr: Pointer, far: Index, pairs: int
    ) -> Products:
        """Every near pair with the whole far list of its block."""
        rows = np.diff(near_ptr)
        hi = np.repeat(np.diff(far_ptr), rows)
        return cls(near_ptr, near, far_ptr, far, np.zeros_like(hi), hi, pairs)

    @cached_property
    def _count(self) -> int:
        return int((self.hi - self.lo).sum())

    def __len__(self) -> int:
        return self._count

    @property
    def arrays(self) -> tuple[Pointer, Index, Pointer, Index, Pointer, Pointer]:
        """What the loops take."""
        return self.near_ptr, self.near, self.far_ptr, self.far, self.lo, self.hi

    @cached_property
    def widest(self) -> int:
        """Length of the longest far list."""
        return int(np.diff(self.far_ptr).max(initial=0))

    def margins(self, values: Array) -> Array:
        """``values[plus] - values[minus]``, shape (T,)."""
        out = np.empty(len(self))
        product_loops().margins(*self.arrays, values, out)
        return out

    def scatter(self, theta: Array) -> Array:
        """The sum of `theta` over the terms of every pair, signed, shape (P + 1,)."""
        omega = np.zeros(self.pairs + 1)
        product_loops().scatter(*self.arrays, theta, omega)
        return omega

    @cached_property
    def _index(self) -> tuple[Index, Index]:
        plus, minus = np.empty(len(self), np.int32), np.empty(len(self), np.int32)
        product_loops().index(*self.arrays, plus, minus)
        return plus, minus

    def index(self) -> tuple[Index, Index]:
        """``(plus, minus)`` of every term; made on demand."""
        return self._index

    @cached_property
    def load(self) -> int:
        """An upper bound of the number of terms of one pair."""
        rows = int(np.diff(self.near_ptr).max(initial=0))
        twice = np.bincount(self.near, minlength=1).max(initial=0)
        thrice = np.bincount(self.far, minlength=1).max(initial=0)
        return int(twice) * self.widest + int(thrice) * rows

    def take(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> Indexed:
        """The terms at `index`, by index arrays."""
        plus, minus = self.index()
        return Indexed(plus[index], minus[index], self.pairs)

    def ordered(self, values: Array) -> Products:
        """The same terms, in another order: every far list by increasing value.

        Only for rows that still use the whole list.
        """
        # The order found last is nearly right the next time.
        last = self.__dict__.get("_order", self.far)
        far = np.empty_like(last)
        product_loops().sort_lists(self.far_ptr, last, values, far)
        self.__dict__["_order"] = far
        return replace(self, far=far)

    def compact(self) -> tuple[Products, NDArray[np.intp]]:
        """The same terms without empty rows, unused far pairs at the ends, and unused pairs."""
        place = np.zeros(self.pairs, dtype=np.int32)
        made = tuple(map(np.zeros_like, (
            self.near_ptr, self.near, self.far_ptr, self.far, self.lo, self.hi
        )))
        blocks, rows, fars = product_loops().used_rows(*self.arrays, place, *made)
        kept = np.flatnonzero(place)
        place[kept] = np.arange(len(kept), dtype=np.int32)
        near_ptr, near, far_ptr, far, lo, hi = made
        small = Products(
            near_ptr[: blocks + 1], place[near[:rows]], far_ptr[: blocks + 1], place[far[:fars]],
            lo[:rows], hi[:rows], len(kept),
        )
        return small, kept


Terms = Indexed | Products
