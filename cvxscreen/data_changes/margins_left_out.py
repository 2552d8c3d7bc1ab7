"""Every left-out margin in a certified interval: what one pass proves, and the refits of the rest.

`LeftOutMargins` holds what is known of one problem, `refit_undecided` spends refits where any of
several still need them, `LeaveOneOut` is the record that users get.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.limits import Limits, Progress
from cvxscreen._support.tables import Record, fields
from cvxscreen._support.validation import flag, whole
from cvxscreen.api import solve
from cvxscreen.bounds import midpoint_ball
from cvxscreen.bounds.data_changes import (
    left_out_groups,
    left_out_margins,
    takes_groups,
    takes_left_out,
)
from cvxscreen.bounds.regions.margins import outward
from cvxscreen.core.losses import Piece
from cvxscreen.data_changes.refits import margins_at_the_optimum, refits_of_groups, refits_of_terms
from cvxscreen.plots.records import left_out
from cvxscreen.solvers.centred import Centred
from cvxscreen.solvers.solution import Solution

__all__ = ["LeaveOneOut", "LeftOutMargins", "joined", "one_sided", "refit_undecided", "usual_width"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

ACCURACY = 0.01
"""Default width, as a share of the median size of the residuals, below which an interval needs no
refit: the error's third digit is then certain. A choice, not a measurement."""


FINER = 1e-4
"""Factor of the refit's tolerance where its interval, about the root of the gap wide, decides
nothing yet: a hundred times narrower."""

ARRAYS = ("low", "high", "value", "unchanged", "refitted", "decided")
"""Attributes of a record with an entry for each term."""

EXACT = 1e-9
"""Relative gap of a solution about the centre: what one pass decides narrows with its root."""


class LeaveOneOut(Record, Immutable):
    """Every left-out margin or residual, in a certified interval.

    Attributes
    ----------
    solution : Solution
        Of all terms; of several problems a tuple of theirs.
    classification : bool
        Whether the numbers are margins ``y_i f_{-i}(x_i)`` (right where positive) or residuals
        ``y_i - f_{-i}(x_i)``, with ``f_{-i}`` fitted without term i. Of a ``cvxpy.Problem`` they
        are read off the loss as it is written; see `leave_one_out`. Of more than two classes a
        margin is how far the score of the sample's own class is ahead of the best other one.
    low, high : arrays, shape (n,)
        Contain the margin or residual at the exact optimum without the term.
    value : array, shape (n,)
        The number itself where the term was refitted or changes nothing (within the interval), else
        NaN.
    unchanged, refitted : masks, shape (n,)
        Terms proven to change nothing, and terms that were solved again.
    decided : mask, shape (n,)
        Classification: the interval has one sign. Regression: it is narrower than was asked. Of a
        term that is not though it was refitted, the number is not unique at the optimum without it
        (an intercept may lie anywhere between two terms), or the end lies within its tolerance.
    finished : bool
        False where a limit or Ctrl-C ended the refits early; what is done is there.
    parts : tuple of LeaveOneOut
        Of several problems the record of each: a class against the rest, two classes, a task.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> solution = cvxscreen.solve(cvxscreen.svm(X, y, C=0.1), tol=1e-9)
    >>> loo = cvxscreen.leave_one_out(solution, refit=False)
    >>> loo.errors                                          # lowest and highest possible error rate
    (0.07, 0.1)
    >>> loo.score                                           # the share of right classes, at least
    0.9
    >>> int(loo.unchanged.sum()), int(loo.decided.sum())
    (135, 194)
    """

    solution: Any
    classification: bool
    low: Array
    high: Array
    value: Array
    unchanged: Mask
    refitted: Mask
    decided: Mask
    finished: bool = True
    parts: tuple[LeaveOneOut, ...] = ()

    @property
    def errors(self) -> tuple[float, float]:
        """Bounds of the leave-one-out error: share of wrong classes, or mean absolute residual.

        Equal (up to the intervals' width) once everything is decided.
        """
        if self.classification:
            return float((self.high <= 0).mean()), float((self.low <= 0).mean())
        away = np.maximum(np.maximum(self.low, -self.high), 0.0)
        return float(away.mean()), float(np.maximum(np.abs(self.low), np.abs(self.high)).mean())

    @property
    def score(self) -> float:
        """The leave-one-out score at least, the larger the better: what cross-validation averages.

        Share of right classes, or minus the mean absolute residual: scikit-learn's
        ``cross_val_score(..., cv=LeaveOneOut())`` with ``scoring="accuracy"`` and
        ``"neg_mean_absolute_error"``. A class that is not certified counts as wrong, a residual as
        the far end of its interval; so this is the score itself (up to the intervals' width) once
        everything is decided.
        """
        most = self.errors[1]
        return float((self.low > 0).mean()) if self.classification else -most

    def taken(self, order: NDArray[np.intp]) -> LeaveOneOut:
        """The same of the terms at `order`, in that order."""
        return replace(self, **{name: getattr(self, name)[order] for name in ARRAYS})

    def __str__(self) -> str:
        least, most = self.errors
        after = int((self.refitted & ~self.decided).sum()) if self.finished else 0
        name = "error rate" if self.classification else "mean absolute residual"
        share = f"{least:.6g}" if least == most else f"{least:.6g} to {most:.6g}"
        return fields(
            [
                ("terms", len(self.low)),
                ("unchanged", int(self.unchanged.sum())),
                ("bounded", int((self.decided & ~self.unchanged & ~self.refitted).sum())),
                ("refitted", int(self.refitted.sum())),
                ("undecided", int((~self.decided).sum())),
                *([("not unique, or within tolerance", after)] if after else []),
                (name, share),
            ],
            title="Leave one out",
        )

    def plot(self, ax: Any = None, figsize: tuple[float, float] | None = None) -> Any:
        """The intervals in order, refitted ones marked; a matplotlib Figure.

        `ax` are axes to draw on, `figsize` the inches of a new figure.
        """
        return left_out(
            self.low, self.high, self.refitted, classification=self.classification, ax=ax,
            figsize=figsize,
        )


def one_sided(low: Array, high: Array) -> Mask:
    """Which intervals tell whether a number is positive."""
    return (low > 0) | (high <= 0)


class LeftOutMargins:
    """Where the margin of every term is without it, as far as is known; refits narrow it.

    Parameters
    ----------
    solution : Solution
        Accepted.
    mode, n_jobs
        Of the refits.
    labels, origin
        As in `cvxscreen.data_changes.leave_one_out.terms_left_out`.

    Attributes
    ----------
    low, high, value : array, shape (n,)
    unchanged, refitted : masks, shape (n,)
    """

    def __init__(
        self, solution: Solution, mode: str, n_jobs: int, labels: NDArray[np.intp] | None = None,
        origin: tuple[Array, Array] | None = None,
    ) -> None:
        whole("n_jobs", n_jobs if n_jobs != -1 else 1, 1)
        self.solution, self.origin = solution, origin
        solution = _about_the_centre(solution, mode)
        point = solution.point()
        f = solution.problem.losses
        flat = (f.lo == 0.0) & (f.hi == 0.0)
        refits = partial(refits_of_terms, solution, mode=mode, n_jobs=n_jobs)
        bounds, known = left_out_margins, takes_left_out(point)
        if labels is not None:
            order, ends = np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels))
            groups = np.split(order, ends[:-1])
            refits = partial(refits_of_groups, solution, groups, labels, mode=mode, n_jobs=n_jobs)
            bounds = partial(left_out_groups, groups=groups)
            known = takes_groups(point)
        low, high = bounds(point) if known else margins_at_the_optimum(solution)
        # An optimum at which what is left out has no slope is that of all terms, and conversely.
        unchanged = (f.piece_within(low, high) == Piece.ZERO) | solution.earlier.zero | flat
        if solution.bounds != (midpoint_ball,):  # others may prove more
            unchanged |= solution.screening.zero
        if labels is not None:
            unchanged = ~np.isin(labels, labels[~unchanged])
        if not known:
            low, high = np.where(unchanged, low, -np.inf), np.where(unchanged, high, np.inf)
        value = np.where(unchanged, point.margins, np.nan)
        self.low, self.high, self.value = _counted(origin, slice(None), low, high, value)
        self.unchanged, self.refitted = unchanged, np.zeros(len(low), dtype=bool)
        self._refits = refits

    def refit(self, index: NDArray[np.intp], gap: float) -> Iterator[NDArray[np.intp]]:
        """Solve again without each of the terms at `index`: those that are done, some at a time."""
        for found in self._refits(index, gap):
            done = found[:, 0].astype(np.intp)
            ends = _counted(self.origin, done, *found[:, 1:].T)
            self.low[done], self.high[done], self.value[done] = ends
            self.refitted[done] = True
            yield done

    def undecided(self, classification: bool, width: float) -> NDArray[np.intp]:
        """The terms whose interval has two signs, or of residuals is wider than `width`."""
        return np.flatnonzero(~self._decided(classification, width))

    def _decided(self, classification: bool, width: float) -> Mask:
        low, high = self.low, self.high
        return one_sided(low, high) if classification else high - low <= width

    def record(self, classification: bool, width: float, finished: bool) -> LeaveOneOut:
        """What is known, in terms of margins or residuals."""
        decided = self._decided(classification, width)
        low, high, value = self.low, self.high, self.value
        if not classification:
            target = self.solution.problem.losses.b
            low, high, value = target - high, target - low, target - value
        return LeaveOneOut(
            self.solution, classification, low, high, value, self.unchanged, self.refitted,
            decided, finished,
        )


def refit_undecided(
    steps: Sequence[tuple[LeftOutMargins, Callable[[], NDArray[np.intp]]]], tol: float,
    limits: Limits, refit: bool, progress: bool,
) -> bool:
    """Refit, one step after another, what each then wants: to `tol`, and what it still wants finer.

    Nothing without `refit`. Returns whether everything that was wanted has been refitted once.
    """
    refit, progress = flag("refit", refit), flag("progress", progress)
    if not refit:
        return True
    total = sum(len(wanted()) for _, wanted in steps)
    with Progress(total, "refits", shown=progress) as bar:
        try:
            for finer, gap in ((False, tol), (True, FINER * tol)):
                for part, wanted in steps:
                    index = wanted()
                    if not finer:
                        index = index[~part.refitted[index]]
                    if not len(index):
                        continue
                    if limits.spent():
                        return finer
                    counts = np.zeros(len(part.low), dtype=bool)
                    counts[index] = not finer
                    for done in part.refit(index, gap):
                        bar.step(count=int(np.count_nonzero(counts[done])))
                        if limits.spent():
                            break
                    if not part.refitted[index].all():
                        return False
        except KeyboardInterrupt:
            return False
    return True


def _counted(
    origin: tuple[Array, Array] | None, index: Any, low: Any, high: Any, value: Any
) -> tuple[Any, Any, Any]:
    """Intervals and values of the terms at `index`, counted from `origin` and rounded outward."""
    if origin is None:
        return low, high, value
    first, last = origin[0][index], origin[1][index]
    below, above = outward(low - last, np.zeros(()))[0], outward(high - first, np.zeros(()))[1]
    return below, above, value - 0.5 * (first + last)


def usual_width(parts: Sequence[LeftOutMargins]) -> float:
    """The width of an interval of a residual that needs no refit, where none is asked for."""
    sizes = [np.abs(p.solution.point().margins - p.solution.problem.losses.b) for p in parts]
    return ACCURACY * float(np.median(np.concatenate(sizes)))


def joined(parts: Sequence[LeaveOneOut]) -> LeaveOneOut:
    """One record of the terms of several problems, one after another."""
    low, high, value, unchanged, refitted, decided = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ARRAYS
    )
    return LeaveOneOut(
        tuple(part.solution for part in parts), parts[0].classification, low, high, value,
        unchanged, refitted, decided, all(part.finished for part in parts), tuple(parts),
    )


def _about_the_centre(solution: Solution, mode: str) -> Solution:
    """That of the same problem about the centre of its features, where these are far from 0.

    The margins are the same, where no entry is rounded; rows that are so much shorter bound them so
    much closer, and refits end.
    """
    centred = Centred.of(solution.problem)
    if centred is None or not centred.exact:
        return solution
    found = solve(centred.equivalent, tol=min(solution.certificate.tolerance, EXACT), mode=mode)
    return found if found.certificate.ok else solution
