"""Several classes, each sample left out: one certified answer from the margins of all problems.

A class against the rest, or two classes, is a problem of its own, over the same rows. From the
intervals of all their left-out margins follow intervals of the scores of the classes, and from
these how far a sample's own class is ahead of the best other one. Only problems that may still
change who is ahead are refitted without a sample: its own class's first.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import combinations
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.limits import Limits
from cvxscreen._support.rounding import UNIT, gamma
from cvxscreen._support.validation import check_request
from cvxscreen.bounds.regions.margins import outward
from cvxscreen.data_changes.leave_one_out import (
    LeaveOneOut,
    LeftOutMargins,
    one_sided,
    refit_undecided,
)
from cvxscreen.data_changes.reweight import accepted
from cvxscreen.solvers.solution import Solution

__all__ = ["OneVsRestScores", "OneVsOneScores", "Scores", "classes_left_out"]

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]


class Scores(Protocol):
    """How the scores of K classes follow from the margins of P problems; `own` are the labels."""

    own: Index

    def scores(self, rows: Index, low: Array, high: Array) -> tuple[Array, Array]:
        """Intervals of the scores of samples from those of their margins: (m, P) to (m, K)."""

    def matters(
        self, problem: int, rows: Index, able: Mask, low: Array, high: Array, first: bool
    ) -> Mask:
        """Whether a refit of a problem may change who is ahead; the most telling ones `first`.

        `able` says which classes may win, shape (m, K).
        """


class OneVsRestScores:
    """One problem a class, labels +1 for its samples; its decision is the class's score."""

    def __init__(self, own: Index, classes: int) -> None:
        self.own, self.classes = own, classes

    def scores(self, rows: Index, low: Array, high: Array) -> tuple[Array, Array]:
        """See `Scores`."""
        mine = self.own[rows][:, None] == np.arange(self.classes)
        return np.where(mine, low, -high), np.where(mine, high, -low)

    def matters(
        self, problem: int, rows: Index, able: Mask, low: Array, high: Array, first: bool
    ) -> Mask:
        """See `Scores`; first that of a sample's own class, where its slope is largest."""
        return self.own[rows] == problem if first else able[:, problem]


class OneVsOneScores:
    """One problem for each two classes, labels +1 for the second and -1 for all others; votes.

    A class's score is how many problems it wins, and less than half a vote more for how surely:
    ``s / (3 (|s| + 1))`` with the sum s of its decisions, as scikit-learn's ``SVC`` has it. Samples
    of other classes have the weight 0 in a problem.
    """

    def __init__(self, own: Index, classes: int) -> None:
        self.own, self.classes = own, classes
        self.pairs = list(combinations(range(classes), 2))

    def scores(self, rows: Index, low: Array, high: Array) -> tuple[Array, Array]:
        """See `Scores`."""
        second = self.own[rows][:, None] == np.array([j for _, j in self.pairs])
        low, high = np.where(second, low, -high), np.where(second, high, -low)
        won, sure, size = (np.zeros((2, len(rows), self.classes)) for _ in range(3))
        for p, (i, j) in enumerate(self.pairs):
            for end, value, other in ((0, low[:, p], high[:, p]), (1, high[:, p], low[:, p])):
                won[end, :, j] += value > 0
                won[end, :, i] += other <= 0
                sure[end, :, j] += value
                sure[end, :, i] -= other
                size[end, :, j] += np.abs(value)
                size[end, :, i] += np.abs(other)
        with np.errstate(invalid="ignore"):
            off = np.where(np.isfinite(size), gamma(self.classes + 4) * size, 0.0)
        sure[0], sure[1] = sure[0] - off[0], sure[1] + off[1]
        more = np.where(np.isfinite(sure), sure, 0.0)
        more = np.where(np.isfinite(sure), more / (3.0 * (np.abs(more) + 1.0)), np.sign(sure) / 3.0)
        rounding = 8.0 * UNIT * (self.classes + 1)
        return won[0] + more[0] - rounding, won[1] + more[1] + rounding

    def matters(
        self, problem: int, rows: Index, able: Mask, low: Array, high: Array, first: bool
    ) -> Mask:
        """See `Scores`; first those whose vote is open. Of other classes nothing is left out."""
        i, j = self.pairs[problem]
        inside = ((self.own[rows] == i) | (self.own[rows] == j)) & (able[:, i] | able[:, j])
        return inside & (low[:, problem] <= 0) & (high[:, problem] > 0) if first else inside


def classes_left_out(
    solutions: Sequence[Solution], scores: Scores, *, refit: bool = True, tol: float = 1e-6,
    mode: str = "certified", n_jobs: int = 1, progress: bool = False,
    time_limit: float | None = None, labels: Index | None = None,
) -> LeaveOneOut:
    """How far each sample's own class is ahead where it is left out, of one solution a problem.

    Parameters
    ----------
    solutions : sequence of Solution
        Over the same rows.
    scores : Scores
    refit, tol, mode, n_jobs, progress, time_limit
        As in `cvxscreen.leave_one_out`.
    labels : array of int, shape (n,), optional
        Groups of samples that leave together, numbered from 0.
    """
    mode, limits = check_request(mode, tol), Limits(time_limit, None)
    for solution in solutions:
        accepted(solution)
    parts = [LeftOutMargins(solution, mode, n_jobs, labels) for solution in solutions]
    n = len(parts[0].low)
    open_ = [np.arange(n)]
    steps = [
        (part, partial(_wanted, parts, scores, problem, first, open_))
        for first in (True, False) for problem, part in enumerate(parts)
    ]
    finished = refit_undecided(steps, tol, limits, refit, progress)
    every = np.arange(n)
    low, high, _ = _ahead(scores, every, *(_stacked(parts, name) for name in ("low", "high")))
    value = _ahead(scores, every, *[_stacked(parts, "value")] * 2)[0]
    return LeaveOneOut(
        tuple(solutions), True, low, high, value,
        np.all([part.unchanged for part in parts], axis=0),
        np.any([part.refitted for part in parts], axis=0),
        one_sided(low, high), finished,
        tuple(part.record(True, 0.0, finished) for part in parts),
    )


def _stacked(parts: Sequence[LeftOutMargins], name: str, rows: Any = slice(None)) -> Array:
    """Numbers of the samples `rows` in all problems, shape (m, P)."""
    return np.column_stack([getattr(part, name)[rows] for part in parts])


def _ahead(
    scores: Scores, rows: Index, low: Array, high: Array
) -> tuple[Array, Array, Mask]:
    """How far their own class is ahead, and which classes may win, from intervals of margins."""
    least, most = scores.scores(rows, low, high)
    able = most >= least.max(axis=1, keepdims=True)
    mine = (np.arange(len(rows)), scores.own[rows])
    own = least[mine], most[mine]
    least[mine] = most[mine] = -np.inf
    below, above = own[0] - most.max(axis=1), own[1] - least.max(axis=1)
    return outward(below, np.zeros(()))[0], outward(above, np.zeros(()))[1], able


def _wanted(
    parts: Sequence[LeftOutMargins], scores: Scores, problem: int, first: bool, open_: list[Index]
) -> Index:
    """The samples whose class is open and hangs on this problem; `open_` holds those that were."""
    rows = open_[0]
    low, high = (_stacked(parts, name, rows) for name in ("low", "high"))
    below, above, able = _ahead(scores, rows, low, high)
    left = ~one_sided(below, above)
    open_[0] = rows[left]
    matters = scores.matters(problem, rows, able, low, high, first)
    return np.asarray(rows[left & matters])
