"""Intervals that contain every optimal intercept, for all tasks at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cvxscreen.multitask.problem import MultiTask
from cvxscreen.rounding import UNIT, gamma

Array = NDArray[np.float64]


class Intercepts:
    """The kinks of piecewise linear losses, task by task, ready to be moved and sorted.

    The optimality sum of a task, ``sum_i f_i'(t_i + b)`` with ``t_i`` within ``reach_i`` of
    ``middle_i``, is a step function of b whose steps are known. Where even the largest arguments
    leave it negative b is too small, where even the smallest make it positive b is too large. With
    equal steps (the hinge loss) the ends are two order statistics.
    """

    def __init__(self, problem: MultiTask) -> None:
        f, self.m = problem.losses, problem.m
        left, right = np.flatnonzero(f.lo < 0), np.flatnonzero(f.hi > 0)
        source = np.concatenate([left, right])
        kinks = np.concatenate([(f.b - f.e)[left], (f.b + f.e)[right]])
        jumps = np.concatenate([-f.lo[left], f.hi[right]])
        task = np.repeat(np.arange(self.m), problem.sizes)[source]
        order = np.argsort(task, kind="stable")
        self.source, self.kinks, self.jumps = source[order], kinks[order], jumps[order]
        self.size = np.abs(self.kinks)
        self.task = task[order]
        counts = np.bincount(self.task, minlength=self.m)
        starts = np.cumsum(counts) - counts
        self.place = np.arange(len(order)) - starts[self.task]
        self.shape = (self.m, int(counts.max(initial=1)))
        self.counts = counts
        total = np.bincount(self.task, self.jumps, self.m)
        self.noise = gamma(2 * self.shape[1] + 8) * total
        self.below = -np.array([float(losses.lo.sum()) for losses in problem.task_losses])
        table = self._rows(self.jumps, 0.0)
        filled = table > 0
        least = np.where(filled, table, np.inf).min(axis=1)
        self.equal = bool((table.max(axis=1) == least).all())
        if self.equal:
            # How many equal jumps make up for the slopes far to the left, up to rounding.
            need = self.below / least
            self.few = np.ceil(need - 1e-6).astype(int) - 1
            self.many = np.floor(need + 1e-6).astype(int)

    def _rows(self, values: Array, empty: float) -> Array:
        """One row a task, padded with `empty`."""
        out = np.full(self.shape, empty)
        out[self.task, self.place] = values
        return out

    def ranges(self, middle: Array, reach: Array) -> tuple[Array, Array]:
        """Lowest and highest intercept of every task, rounded outward, two arrays (m,)."""
        at, width = middle[self.source], reach[self.source]
        slack = width + 8.0 * UNIT * (self.size + np.abs(at) + width)
        place = self.kinks - at
        first, last = self._rows(place - slack, np.inf), self._rows(place + slack, np.inf)
        everyone = np.arange(self.m)
        if self.equal:
            first.sort(axis=1)
            last.sort(axis=1)
            few, many = self.few, np.minimum(self.many, self.shape[1] - 1)
            lowest = np.where(few >= 0, first[everyone, np.maximum(few, 0)], -np.inf)
            highest = np.where(self.many < self.counts, last[everyone, many], np.inf)
            return lowest, highest
        jumps = self._rows(self.jumps, 0.0)
        order, turned = np.argsort(first, axis=1), np.argsort(last, axis=1)
        sums = np.cumsum(np.take_along_axis(jumps, order, 1), axis=1)
        enough = sums >= (self.below - self.noise)[:, None]
        lowest = first[everyone, order[everyone, enough.argmax(axis=1)]]
        lowest = np.where((self.below > self.noise) & enough.any(axis=1), lowest, -np.inf)
        sums = np.cumsum(np.take_along_axis(jumps, turned, 1), axis=1)
        beyond = sums > (self.below + self.noise)[:, None]
        highest = last[everyone, turned[everyone, beyond.argmax(axis=1)]]
        return lowest, np.where(beyond.any(axis=1), highest, np.inf)
