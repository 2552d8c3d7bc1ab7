"""Two hinges that look at one argument from both sides are one loss with a dead zone.

``c_1 max(0, l - t) + c_2 max(0, t - r)`` with ``l <= r`` is an epsilon-insensitive loss (pinball
for ``l = r``), and so it is with two squares. This is what regression with two slack variables, and
sums of ``pos(e)`` and ``neg(e)``, come to; together they are one term instead of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cvxscreen.cvxpy_plugin.recognise.row_stack import Stack

Array = NDArray[np.float64]
Index = NDArray[np.intp]

SEED = 19790401
"""Of the random points that tell opposite arguments."""

CLOSE = 1e-11
"""Images of opposite rows differ by rounding only: relative, some 1e4 units in the last place."""


def join_opposite_hinges(
    rows: Stack, numbers: Array, expressions: Sequence[Index] = ()
) -> tuple[Pairing, Array]:
    """Join opposite hinges.

    Parameters
    ----------
    rows : Stack, shape (found, N)
        Arguments of the terms found.
    numbers : array, shape (found, 5)
        Their five numbers.
    expressions : sequence of array of int
        Consecutive terms that come from one expression each: a loss with two sides that is written
        as one has been read as one, so that no pairs are looked for where all are of one.

    Returns
    -------
    Pairing
    array, shape (n, 5)
        The five numbers of the joined terms.
    """
    count = len(numbers)
    b, e, q, lo, hi = numbers.T
    plain = np.flatnonzero((e == 0) & (hi == 0) & (lo < 0))
    second = np.full(count, -1, dtype=np.intp)
    within_one = any(
        len(index) and index[0] <= plain[0] and plain[-1] <= index[-1]
        for index in (expressions if len(plain) else ())
    )
    if len(plain) > 1 and not within_one:
        points = np.random.default_rng(SEED).standard_normal((rows.shape[1], 3))
        left, right = _opposite(plain, rows.apply(points)[plain])
        apart = (b[left] <= -b[right]) & (q[left] == q[right])
        second[left[apart]] = right[apart]
    if not (second >= 0).any():
        return Pairing(np.arange(count), second, count), numbers
    taken = np.zeros(count, dtype=bool)
    taken[second[second >= 0]] = True
    first = np.flatnonzero(~taken)
    joined, other = numbers[first].copy(), second[first]
    both = other >= 0
    near, far = numbers[first[both], 0], -numbers[other[both], 0]
    joined[both, 0], joined[both, 1] = (near + far) / 2, (far - near) / 2
    joined[both, 4] = -numbers[other[both], 3]
    return Pairing(first, other, count), joined


def _opposite(index: Index, images: Array) -> tuple[Index, Index]:
    """Neighbours by size whose images are each other's negative."""
    order = np.argsort(np.abs(images[:, 0]), kind="stable")
    sorted_images, names = images[order], index[order]
    size = np.abs(sorted_images).max(axis=1)
    gap = np.abs(sorted_images[1:] + sorted_images[:-1]).max(axis=1)
    match = (gap <= CLOSE * size[1:]) & (size[1:] > 0)
    # Every term belongs to one pair at most: take every other one of a run of matches.
    run = np.flatnonzero(match)
    keep: list[int] = []
    for place in run:
        if not keep or place > keep[-1] + 1:
            keep.append(int(place))
    spot = np.array(keep, dtype=np.intp)
    one, two = names[spot], names[spot + 1]
    return np.minimum(one, two), np.maximum(one, two)


@dataclass(frozen=True, eq=False)
class Pairing:
    """Which of the terms found are which of the problem's terms.

    Attributes
    ----------
    first : array of int, shape (n,)
        The found term whose row the problem's term has.
    second : array of int, shape (n,)
        The found term on the other side, with the opposite row; -1 for a term of its own.
    found : int
        Number of terms found.
    """

    first: Index
    second: Index
    found: int

    def split(self, theta: Array) -> Array:
        """Slopes of the problem's terms as slopes of the terms found, shape (found,)."""
        paired = self.second >= 0
        if not paired.any():
            return theta
        out = np.zeros(self.found)
        out[self.first] = np.where(paired, np.minimum(theta, 0.0), theta)
        out[self.second[paired]] = -np.maximum(theta[paired], 0.0)
        return out
