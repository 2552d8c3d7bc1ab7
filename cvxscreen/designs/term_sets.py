"""Which differences of pair values are the terms: pair numbers, or products of lists.

A term's margin is the value of its *plus* pair less the value of its *minus* pair; pair number P is
missing and counts 0. `Indexed` stores both numbers of every term. `Products` holds the triplets of
an anchor as (near list) x (far list) and never stores an index of a triplet: each near pair (a
*row*) is combined with a window ``lo <= l < hi`` of the anchor's far list.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.compiled import CONTRACT, SUMS, compiled
from cvxscreen.designs.pair_table import scatter

Array = NDArray[np.float64]
Index = NDArray[np.int32]
Pointer = NDArray[np.int64]

SHORT = 48
"""Pairs of a list that is sorted by insertion: it is nearly in order most of the time."""


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
        scatter(self.plus, self.minus, theta, omega)
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


class ProductArrays(NamedTuple):
    """The arrays of `Products`, as the compiled loops take them."""

    near_ptr: Pointer
    near: Index
    far_ptr: Pointer
    far: Index
    lo: Pointer
    hi: Pointer


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
    def arrays(self) -> ProductArrays:
        """What the compiled loops take."""
        return ProductArrays(
            self.near_ptr, self.near, self.far_ptr, self.far, self.lo, self.hi
        )

    @cached_property
    def widest(self) -> int:
        """Length of the longest far list."""
        return int(np.diff(self.far_ptr).max(initial=0))

    def margins(self, values: Array) -> Array:
        """``values[plus] - values[minus]``, shape (T,)."""
        out = np.empty(len(self))
        product_margins(self.arrays, values, out)
        return out

    def scatter(self, theta: Array) -> Array:
        """The sum of `theta` over the terms of every pair, signed, shape (P + 1,)."""
        omega = np.zeros(self.pairs + 1)
        product_scatter(self.arrays, theta, omega)
        return omega

    @cached_property
    def _index(self) -> tuple[Index, Index]:
        plus, minus = np.empty(len(self), np.int32), np.empty(len(self), np.int32)
        product_index(self.arrays, plus, minus)
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
        sort_short_lists(self.far_ptr, last, values, far)
        for block in np.flatnonzero(np.diff(self.far_ptr) > SHORT):
            mine = slice(self.far_ptr[block], self.far_ptr[block + 1])
            far[mine] = last[mine][np.argsort(values[last[mine]])]
        self.__dict__["_order"] = far
        return replace(self, far=far)

    def compact(self) -> tuple[Products, NDArray[np.intp]]:
        """The same terms without empty rows, unused far pairs at the ends, and unused pairs."""
        place = np.zeros(self.pairs, dtype=np.int32)
        made = ProductArrays(*map(np.zeros_like, self.arrays))
        blocks, rows, fars = copy_used_rows(self.arrays, place, made)
        kept = np.flatnonzero(place)
        place[kept] = np.arange(len(kept), dtype=np.int32)
        near_ptr, near, far_ptr, far, lo, hi = made
        small = Products(
            near_ptr[: blocks + 1], place[near[:rows]], far_ptr[: blocks + 1], place[far[:fars]],
            lo[:rows], hi[:rows], len(kept),
        )
        return small, kept


Terms = Indexed | Products


# -- compiled loops over product sets -------------------------------------------------------------


@compiled(fastmath=SUMS)
def product_pass(terms, q, threshold, width, weight, omega, work):  # type: ignore[no-untyped-def]
    """The sum of the smoothed hinges of a product set; adds their slopes to `omega`, by pair.

    The loss is that of `indexed_pass`, with one threshold, width and weight for all terms. `work`
    has shape (2, longest far list) or more.
    """
    near_ptr, near, far_ptr, far, lo, hi = terms
    values, slopes = work[0], work[1]
    inverse = 1e300 if width == 0.0 else 1.0 / width
    half = 0.5 * width
    total = 0.0
    for block in range(near_ptr.size - 1):
        mine = far[far_ptr[block]:far_ptr[block + 1]]
        for j in range(mine.size):
            values[j] = q[mine[j]]
            slopes[j] = 0.0
        for r in range(near_ptr[block], near_ptr[block + 1]):
            top = threshold + q[near[r]]
            row, part = 0.0, 0.0
            # Slices start at 0, so that no access asks whether it counts from the end.
            away, back = values[lo[r]:hi[r]], slopes[lo[r]:hi[r]]
            for j in range(away.size):
                z = top - away[j]
                tau = min(max(z * inverse, 0.0), 1.0)
                part += tau * (z - half * tau)
                back[j] += tau
                row += tau
            total += part
            omega[near[r]] -= weight * row
        for j in range(mine.size):
            omega[mine[j]] += weight * slopes[j]
    return weight * total


@compiled(fastmath=CONTRACT)
def product_margins(terms, q, out):  # type: ignore[no-untyped-def]
    """``q_far - q_near`` of every term, row by row."""
    near_ptr, near, far_ptr, far, lo, hi = terms
    t = 0
    for block in range(near_ptr.size - 1):
        first = far_ptr[block]
        for r in range(near_ptr[block], near_ptr[block + 1]):
            base = q[near[r]]
            for j in range(lo[r], hi[r]):
                out[t] = q[far[first + j]] - base
                t += 1


@compiled(fastmath=CONTRACT)
def product_scatter(terms, theta, omega):  # type: ignore[no-untyped-def]
    """``omega += theta`` on the far pair of every term, ``-= theta`` on its near pair."""
    near_ptr, near, far_ptr, far, lo, hi = terms
    t = 0
    for block in range(near_ptr.size - 1):
        first = far_ptr[block]
        for r in range(near_ptr[block], near_ptr[block + 1]):
            row = 0.0
            for j in range(lo[r], hi[r]):
                omega[far[first + j]] += theta[t]
                row += theta[t]
                t += 1
            omega[near[r]] -= row


@compiled(fastmath=CONTRACT)
def product_index(terms, plus, minus):  # type: ignore[no-untyped-def]
    """The far and the near pair of every term."""
    near_ptr, near, far_ptr, far, lo, hi = terms
    t = 0
    for block in range(near_ptr.size - 1):
        first = far_ptr[block]
        for r in range(near_ptr[block], near_ptr[block + 1]):
            for j in range(lo[r], hi[r]):
                plus[t] = far[first + j]
                minus[t] = near[r]
                t += 1


@compiled(fastmath=CONTRACT)
def close_windows(  # type: ignore[no-untyped-def]
    terms, q, error, squares, radius, above, below, increasing, work
):
    """Close the window ``[lo, hi)`` of every row from both ends while the end terms are decided.

    A margin lies within ``radius |H| + error`` of ``q_far - q_near``, and ``|H|^2 <= a^4 + b^4``
    for the squared lengths `squares` of the two pairs. Terms surely above `above` are taken off
    from the upper end, terms surely below `below` from the lower one. Where the far lists are
    `increasing` in q, most ends are found by bisection. `work` has shape (3, longest far list).
    """
    near_ptr, near, far_ptr, far, lo, hi = terms
    values, power, errors = work[0], work[1], work[2]
    unit = 2.0**-50
    for block in range(near_ptr.size - 1):
        mine = far[far_ptr[block]:far_ptr[block + 1]]
        widest, loosest, tallest, least = 0.0, 0.0, -math.inf, math.inf
        for j in range(mine.size):
            f = mine[j]
            values[j], power[j], errors[j] = q[f], squares[f] * squares[f], error[f]
            widest = max(widest, power[j])
            loosest = max(loosest, errors[j])
            tallest = max(tallest, values[j])
            least = min(least, values[j])
        size = max(abs(tallest), abs(least)) if mine.size else 0.0
        for r in range(near_ptr[block], near_ptr[block + 1]):
            base, off = q[near[r]], error[near[r]]
            square = squares[near[r]] * squares[near[r]]
            start, stop = lo[r], hi[r]
            i, j = start, stop
            # All terms of a row at once, where that is enough.
            reach = radius * math.sqrt(square + widest) + off + loosest
            reach += unit * (reach + abs(base) + size)
            if tallest - base + reach < below:
                i = stop
            elif least - base - reach > above:
                j = start
            elif increasing:
                high, low = above + base + reach, below + base - reach
                room = 4.0 * unit * (abs(above) + abs(below) + abs(base) + reach)
                left, right = i, j  # the first far value above `high`
                while left < right:
                    middle = (left + right) // 2
                    if values[middle] > high + room:
                        right = middle
                    else:
                        left = middle + 1
                j = left
                right = j
                left = i  # the first far value not below `low`
                while left < right:
                    middle = (left + right) // 2
                    if values[middle] < low - room:
                        left = middle + 1
                    else:
                        right = middle
                i = left
            while j > i:
                reach = radius * math.sqrt(square + power[j - 1]) + off + errors[j - 1]
                reach += unit * (reach + abs(base) + abs(values[j - 1]))
                if values[j - 1] - base - reach > above:
                    j -= 1
                else:
                    break
            while i < j:
                reach = radius * math.sqrt(square + power[i]) + off + errors[i]
                reach += unit * (reach + abs(base) + abs(values[i]))
                if values[i] - base + reach < below:
                    i += 1
                else:
                    break
            lo[r], hi[r] = i, j


@compiled(fastmath=CONTRACT)
def sort_short_lists(far_ptr, far, q, out):  # type: ignore[no-untyped-def]
    """Every far list of at most `SHORT` pairs by increasing q, by insertion."""
    for block in range(far_ptr.size - 1):
        first = far_ptr[block]
        mine = far[first:far_ptr[block + 1]]
        into = out[first:far_ptr[block + 1]]
        if mine.size <= SHORT:
            for j in range(mine.size):
                f = mine[j]
                value = q[f]
                k = j
                while k > 0 and q[into[k - 1]] > value:
                    into[k] = into[k - 1]
                    k -= 1
                into[k] = f


@compiled(fastmath=CONTRACT)
def copy_used_rows(terms, place, made):  # type: ignore[no-untyped-def]
    """Copy the rows that are not empty, the far lists cut to what they use, and mark the pairs.

    They go to `made`; returns its numbers of blocks, near pairs and far pairs. `place` is 1 on the
    pairs used.
    """
    near_ptr, near, far_ptr, far, lo, hi = terms
    new_near_ptr, new_near, new_far_ptr, new_far, new_lo, new_hi = made
    blocks, rows, fars = 0, 0, 0
    for block in range(near_ptr.size - 1):
        first, last = far_ptr[block + 1] - far_ptr[block], 0
        for r in range(near_ptr[block], near_ptr[block + 1]):
            if hi[r] > lo[r]:
                first, last = min(first, lo[r]), max(last, hi[r])
        if last == 0:
            continue
        for r in range(near_ptr[block], near_ptr[block + 1]):
            if hi[r] > lo[r]:
                new_near[rows] = near[r]
                new_lo[rows], new_hi[rows] = lo[r] - first, hi[r] - first
                place[near[r]] = 1
                rows += 1
        for j in range(first, last):
            f = far[far_ptr[block] + j]
            new_far[fars] = f
            place[f] = 1
            fars += 1
        blocks += 1
        new_near_ptr[blocks], new_far_ptr[blocks] = rows, fars
    return blocks, rows, fars
