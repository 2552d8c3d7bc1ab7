"""Loops over product sets of triplets: a near list times a far list for every anchor.

Each near pair (a *row*) is combined with a window ``lo <= l < hi`` of the anchor's far list, so
that no index of a triplet is ever stored. Compiled on first use, interpreted without numba.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from cvxscreen.compiling import Loop, together_or_plain


def _product_pass(  # type: ignore[no-untyped-def]
    near_ptr, near, far_ptr, far, lo, hi, q, threshold, bend, weight, omega, held, pull
):
    """The sum of the losses of a product set and their pull on every pair.

    `held` and `pull` are work space as long as the longest far list.
    """
    inverse = 1e300 if bend == 0.0 else 1.0 / bend
    half = 0.5 * bend
    total = 0.0
    for block in range(near_ptr.size - 1):
        mine = far[far_ptr[block]:far_ptr[block + 1]]
        for j in range(mine.size):
            held[j] = q[mine[j]]
            pull[j] = 0.0
        for r in range(near_ptr[block], near_ptr[block + 1]):
            top = threshold + q[near[r]]
            row, part = 0.0, 0.0
            # Slices start at 0, so that no access asks whether it counts from the end.
            away, back = held[lo[r]:hi[r]], pull[lo[r]:hi[r]]
            for j in range(away.size):
                z = top - away[j]
                tau = min(max(z * inverse, 0.0), 1.0)
                part += tau * (z - half * tau)
                back[j] += tau
                row += tau
            total += part
            omega[near[r]] -= weight * row
        for j in range(mine.size):
            omega[mine[j]] += weight * pull[j]
    return weight * total


def _product_margins(near_ptr, near, far_ptr, far, lo, hi, q, out):  # type: ignore[no-untyped-def]
    """``q_far - q_near`` of every term, row by row."""
    t = 0
    for block in range(near_ptr.size - 1):
        first = far_ptr[block]
        for r in range(near_ptr[block], near_ptr[block + 1]):
            base = q[near[r]]
            for j in range(lo[r], hi[r]):
                out[t] = q[far[first + j]] - base
                t += 1


def _product_scatter(  # type: ignore[no-untyped-def]
    near_ptr, near, far_ptr, far, lo, hi, theta, omega
):
    """``omega += theta`` on the far pair of every term, ``-= theta`` on its near pair."""
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


def _product_index(near_ptr, near, far_ptr, far, lo, hi, plus, minus):  # type: ignore[no-untyped-def]
    """The far and the near pair of every term."""
    t = 0
    for block in range(near_ptr.size - 1):
        first = far_ptr[block]
        for r in range(near_ptr[block], near_ptr[block + 1]):
            for j in range(lo[r], hi[r]):
                plus[t] = far[first + j]
                minus[t] = near[r]
                t += 1


def _shrink(  # type: ignore[no-untyped-def]
    near_ptr, near, far_ptr, far, lo, hi, q, error, squares, radius, above, below, increasing,
    held, power, blur
):
    """Close the window of every row from both ends while the end terms are decided.

    A margin lies within ``radius |H| + error`` of ``q_far - q_near``, and ``|H|^2 <= a^4 + b^4``
    for the squared lengths `squares` of the two pairs. Terms surely above `above` are taken off
    from the upper end, terms surely below `below` from the lower one. Where the far lists are
    `increasing` in q, most ends are found by bisection. `held`, `power` and `blur` are work space
    as long as the longest far list.
    """
    unit = 2.0**-50
    for block in range(near_ptr.size - 1):
        mine = far[far_ptr[block]:far_ptr[block + 1]]
        widest, loosest, tallest, least = 0.0, 0.0, -math.inf, math.inf
        for j in range(mine.size):
            f = mine[j]
            held[j], power[j], blur[j] = q[f], squares[f] * squares[f], error[f]
            widest = max(widest, power[j])
            loosest = max(loosest, blur[j])
            tallest = max(tallest, held[j])
            least = min(least, held[j])
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
                    if held[middle] > high + room:
                        right = middle
                    else:
                        left = middle + 1
                j = left
                right = j
                left = i  # the first far value not below `low`
                while left < right:
                    middle = (left + right) // 2
                    if held[middle] < low - room:
                        left = middle + 1
                    else:
                        right = middle
                i = left
            while j > i:
                reach = radius * math.sqrt(square + power[j - 1]) + off + blur[j - 1]
                reach += unit * (reach + abs(base) + abs(held[j - 1]))
                if held[j - 1] - base - reach > above:
                    j -= 1
                else:
                    break
            while i < j:
                reach = radius * math.sqrt(square + power[i]) + off + blur[i]
                reach += unit * (reach + abs(base) + abs(held[i]))
                if held[i] - base + reach < below:
                    i += 1
                else:
                    break
            lo[r], hi[r] = i, j


def _sort_lists(far_ptr, far, q, out):  # type: ignore[no-untyped-def]
    """Every far list by increasing q: insertion where it is short, quicksort where it is long."""
    for block in range(far_ptr.size - 1):
        first = far_ptr[block]
        mine = far[first:far_ptr[block + 1]]
        into = out[first:far_ptr[block + 1]]
        if mine.size > 48:
            order = np.argsort(q[mine])
            for j in range(mine.size):
                into[j] = mine[order[j]]
        else:
            for j in range(mine.size):
                f = mine[j]
                value = q[f]
                k = j
                while k > 0 and q[into[k - 1]] > value:
                    into[k] = into[k - 1]
                    k -= 1
                into[k] = f


def _used_rows(  # type: ignore[no-untyped-def]
    near_ptr, near, far_ptr, far, lo, hi, place, new_near_ptr, new_near, new_far_ptr, new_far,
    new_lo, new_hi
):
    """Copy the rows that are not empty, the far lists cut to what they use, and mark the pairs.

    Returns the numbers of blocks, near pairs and far pairs; `place` is 1 on the pairs used.
    """
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


class ProductLoops(NamedTuple):
    """The loops of this module, compiled where numba is installed."""

    product_pass: Loop
    margins: Loop
    scatter: Loop
    index: Loop
    shrink: Loop
    sort_lists: Loop
    used_rows: Loop


@lru_cache(maxsize=1)
def product_loops() -> ProductLoops:
    """The loops; numba is imported here, not with the package."""
    exact, free = frozenset({"contract"}), frozenset({"contract", "reassoc", "nsz"})
    plain = (
        "_product_margins", "_product_scatter", "_product_index", "_shrink", "_sort_lists",
        "_used_rows",
    )
    names = [("_product_pass", free), *[(name, exact) for name in plain]]
    return ProductLoops(*together_or_plain(globals(), names).values())
