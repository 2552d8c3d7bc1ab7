"""What if a term leaves the fit: every left-out prediction from one solution, certified.

    loo = cvxscreen.leave_one_out(cvxscreen.solve(problem))
    loo.low, loo.high          # where each margin (or residual) is without its own term, proven
    loo.errors                 # the leave-one-out error: a number, or bounds of it

Three kinds of term, from cheap to dear. A term that is proven to lie on the zero piece of its loss
changes nothing: the optimum without it is the optimum with it. Any other term moves the optimum
within a ball that one pass over the data bounds for all terms at once
(`cvxscreen.bounds.data_changes`). What these two leave undecided is solved again without the term,
from the solution, through screening.

`LeftOutMargins` holds what is known of one problem, `refit_undecided` spends refits
(`cvxscreen.data_changes.refits`) where any of several still need them, `LeaveOneOut` is the record
that users get.

Of several classes each against the rest, or each two, is a problem of its own, over the same rows.
From the intervals of all their left-out margins follow intervals of the scores of the classes
(`Scores`), and from these how far a sample's own class is ahead of the best other one. Only
problems that may still change who is ahead are refitted without a sample: its own class's first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.extensions import or_cvxpy
from cvxscreen._support.immutable import Immutable
from cvxscreen._support.limits import Limits, Progress
from cvxscreen._support.rounding import UNIT, gamma
from cvxscreen._support.tables import Record, data_frame, fields, table
from cvxscreen._support.validation import check_request, flag, positive, whole
from cvxscreen.api import solve
from cvxscreen.bounds import midpoint_ball
from cvxscreen.bounds.data_changes import (
    left_out_groups,
    left_out_margins,
    takes_groups,
    takes_left_out,
)
from cvxscreen.bounds.regions.margins import outward
from cvxscreen.core.duality import Point
from cvxscreen.core.losses import Losses, Piece
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.data_changes.refits import (
    Groups,
    margins_at_the_optimum,
    over_its_rows,
    refits_of_groups,
    refits_of_terms,
    suits,
)
from cvxscreen.data_changes.reweight import accepted, is_classification
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.multitask import MultiTaskSolution
from cvxscreen.plots.records import left_out
from cvxscreen.solvers.reformulations import Centred
from cvxscreen.solvers.solution import Solution

__all__ = [
    "LeaveOneOut", "LeftOutMargins", "OneVsOneScores", "OneVsRestScores", "Scores",
    "classes_left_out", "group_numbers", "joined", "leave_one_out", "one_sided", "refit_undecided",
    "terms_left_out",
]

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

ACCURACY = 0.01
"""Default width, as a share of the median size of the residuals, below which an interval needs no
refit: the error's third digit is then certain. A choice, not a measurement."""

FINER = 1e-4, 1e-6
"""Factors of the refit's tolerance where its interval, about the root of the gap wide, decides
nothing yet: a hundred times narrower, and a thousand times. (50 samples, a width of 1e-4 asked for:
1.8e-4 after the first. Of the usual 1e-6 that leaves 1e-12, about what rounding lets be proven.)"""

SHOWN = 10
"""Terms that a record's table shows."""

ARRAYS = ("low", "high", "value", "unchanged", "refitted", "decided")
"""Attributes of a record with an entry for each term."""

EXACT = 1e-9
"""Relative gap of a solution about the centre, and of each task at the fixed matrix: what one pass
decides narrows with its root."""


class LeaveOneOut(Record, Immutable):
    """Every left-out margin or residual, in a certified interval.

    Where each term has several groups, of which one after another leaves, the arrays are of shape
    (n, k): a column for each.

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
                *([("groups of each", self.low.shape[1])] if self.low.ndim > 1 else []),
                ("unchanged", int(self.unchanged.sum())),
                ("bounded", int((self.decided & ~self.unchanged & ~self.refitted).sum())),
                ("refitted", int(self.refitted.sum())),
                ("undecided", int((~self.decided).sum())),
                *([("not unique, or within tolerance", after)] if after else []),
                (name, share),
            ],
            title="Leave one out",
        )

    def table(self) -> str:
        """What `print` shows, and the terms that are worst off without themselves."""
        worst = self.low if self.classification else -np.maximum(-self.low, self.high)
        order = np.argsort(worst, axis=None, kind="stable")[:SHOWN]
        places = zip(*np.unravel_index(order, worst.shape), strict=True)
        rows = [
            (*map(int, at), float(self.low[at]), float(self.high[at]),
             None if np.isnan(self.value[at]) else float(self.value[at]),
             "unchanged" if self.unchanged[at] else "refitted" if self.refitted[at] else "bounded",
             bool(self.decided[at]))
            for at in places
        ]
        head = ("term", *["group"] * (worst.ndim - 1), *ARRAYS[:3], "by", "decided")
        return f"{self}\n{table(head, rows, title='Worst off')}"

    def to_frame(self) -> Any:
        """A pandas DataFrame, one row a term; where it has several groups one for each of them.

        Raises
        ------
        MissingDependency
            If pandas is not installed.
        """
        place = np.indices(self.low.shape).reshape(self.low.ndim, -1)
        names = dict(zip(("term", "group"), place, strict=False))
        return data_frame(names | {name: getattr(self, name).ravel() for name in ARRAYS})

    def plot(self, ax: Any = None, figsize: tuple[float, float] | None = None) -> Any:
        """The intervals in order, refitted ones marked; a matplotlib Figure.

        `ax` are axes to draw on, `figsize` the inches of a new figure.
        """
        return left_out(
            self.low.ravel(), self.high.ravel(), self.refitted.ravel(),
            classification=self.classification, ax=ax, figsize=figsize,
        )


@or_cvxpy("cvxpy.leave_one_out")
def leave_one_out(
    solution: Solution | MultiTaskSolution,
    *,
    refit: bool = True,
    accuracy: float | None = None,
    tol: float = 1e-6,
    mode: str = "certified",
    n_jobs: int = 1,
    progress: bool = False,
    time_limit: float | None = None,
    groups: ArrayLike | None = None,
) -> LeaveOneOut:
    """Where every term's own prediction is when the term is left out of the fit.

    Parameters
    ----------
    solution : Solution or cvxpy.Problem
        What `solve` returned for a problem of `svm`, `regression` (kernels, weights and an
        intercept included), `sparse_svm`, `sparse_svr`, `rtlm` with `groups`, or `raso`: there each
        sample leaves its task, the shared matrix and the weights of the others held as they are,
        and the record has all tasks, one after another. The smaller its gap, the shorter the
        intervals. Or a ``cvxpy.Problem`` that has been solved, by whatever solver, with one loss
        over the rows of the data; its values stay as they are.
    refit : bool
        Whether to solve again, without their term, what neither ball nor verdict decides.
    accuracy : float, optional
        For regression: intervals no wider than this are not refitted; by default a hundredth of the
        median absolute residual.
    tol : float
        Relative gap of the refits; where that leaves a term undecided, it is refitted once more to
        a ten-thousandth of it, and then to a millionth.
    mode : {"certified", "safe"}
        Of the refits that are made alone; those made in blocks, as of rows with few features and of
        kernels, are certified on all of the data in either mode.
    n_jobs : int
        Threads for the refits, as in joblib.
    progress : bool
        Whether to show how many refits are done.
    time_limit : float, optional
        Wall seconds after which no further refit begins; so does Ctrl-C. The record keeps what is
        done.
    groups : array_like, shape (n,) or (n, k), optional
        Labels of one kind, numbers or text: all terms of one label leave together, as the rows of a
        customer do, and every interval is of a term's margin without its whole group. Comparisons
        of a metric share points, so that one alone says little: there the anchor of each,
        ``T.index[:, 0]``, or all its points, ``T.index``. With k labels a term leaves with each of
        them, and ``low[i, j]`` is of term i without all that have the label ``groups[i, j]``
        anywhere. Of `raso`, and of a ``cvxpy.Problem``, there is one label a term.

    Returns
    -------
    LeaveOneOut

    Raises
    ------
    InvalidInput
        For something else than a solution of such a problem, over data in chunks, of a metric
        without `groups`, of a reduced problem, without a quadratic term (``l2=0``), or without an
        optimum; for a ``cvxpy.Problem`` that has not been solved; for other than n labels, labels
        that are missing (NaN), or one that all terms have.
    NotScreenable
        For a ``cvxpy.Problem`` that is not recognised, or of which it cannot be said which row of
        the data a term belongs to, with the reason.

    Notes
    -----
    Of a ``cvxpy.Problem`` the arrays are in the order of the loss's entries (of the constraint's
    rows, where slacks stand in the objective). A hinge counts as ``pos(1 - margin)``, so the margin
    is 1 minus its argument; the residual of any other loss is its argument, as it is written,
    counted from the middle of its flat or lowest place. What is left out is the entry of the loss
    with its weight, nothing else of the objective or the constraints.

    The refit's own answer is bounded, too: its margin is only as good as its certificate, so the
    interval of a refitted term is that of the refit's midpoint ball.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> solution = cvxscreen.solve(cvxscreen.svm(X, y, C=0.1), tol=1e-9)
    >>> print(cvxscreen.leave_one_out(solution))
    Leave one out
      terms       200
      unchanged   135
      bounded     59
      refitted    6
      undecided   0
      error rate  0.085
    """
    if isinstance(solution, MultiTaskSolution):
        return tasks_left_out(
            solution, refit=refit, accuracy=accuracy, tol=tol, mode=mode, n_jobs=n_jobs,
            progress=progress, time_limit=time_limit,
            labels=None if groups is None else group_numbers(groups, solution.problem.n),
        )
    problem = accepted(solution, metrics=groups is not None)
    return terms_left_out(
        solution, is_classification(problem), refit=refit, accuracy=accuracy, tol=tol, mode=mode,
        n_jobs=n_jobs, progress=progress, time_limit=time_limit,
        labels=None if groups is None else group_numbers(groups, problem.n, several=True),
    )


def group_numbers(groups: ArrayLike, n: int, several: bool = False) -> NDArray[np.intp]:
    """The number of each term's group; of each of its groups, (n, k), where there are `several`."""
    try:
        given = np.asarray(groups)
        missing = bool((given != given).any())  # NaN, and dates that are none
        names, labels = np.unique(given, return_inverse=True)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            "`groups` holds labels that cannot be sorted, as text beside numbers or None; give all "
            "of one kind."
        ) from error
    fits = given.shape == (n,) or (several and given.ndim == 2 and len(given) == n and given.size)
    if not fits:
        raise InvalidInput(
            f"`groups` has shape {given.shape}; one label for each of the {n} terms is needed."
        )
    if missing:
        raise InvalidInput(
            "`groups` holds labels that are missing (NaN); give terms that belong to no group "
            "labels of their own."
        )
    if len(names) < 2:
        raise InvalidInput("`groups` holds one label only; without its terms nothing is left.")
    labels = np.asarray(labels, dtype=np.intp).reshape(given.shape)
    rows = labels.reshape(n, -1)
    for k in rows[0]:
        if (rows == k).any(axis=1).all():
            raise InvalidInput(
                f"`groups`: all terms have the label {names[k]}; without them nothing is left."
            )
    return labels


def terms_left_out(
    solution: Solution,
    classification: bool,
    origin: tuple[Array, Array] | None = None,
    *,
    refit: bool,
    accuracy: float | None,
    tol: float,
    mode: str,
    n_jobs: int,
    progress: bool,
    time_limit: float | None,
    labels: NDArray[np.intp] | None = None,
) -> LeaveOneOut:
    """`leave_one_out` of an accepted solution, for margins that may be counted from elsewhere.

    Parameters
    ----------
    classification : bool
        Whether the arguments of the losses are margins.
    origin : pair of arrays, shape (n,), optional
        Contain the arguments that are margins of 0; these are at 0 where it is omitted.
    labels : array of int, shape (n,) or (n, k), optional
        Groups of terms that leave together, numbered from 0.
    """
    mode = check_request(mode, tol)
    limits = Limits(time_limit, None)
    part = LeftOutMargins(solution, mode, n_jobs, labels, origin)
    width = wanted_width([part], classification, accuracy)
    steps = [(part, partial(part.undecided, classification, width))]
    finished = refit_undecided(steps, tol, limits, refit, progress)
    return part.record(classification, width, finished)


def task_alone(solution: MultiTaskSolution, index: int) -> Problem:
    """Task `index` at the matrix of `solution`: rows times labels, the intercept last.

    At a fixed M the tasks fall apart: with ``u = R v``, ``R R' = (eta I + M) / 2c``, each is a
    problem of its own with the regulariser ``1/2 |v|^2``. What M itself would become without a
    sample no ball bounds.
    """
    whole = solution.problem
    part, f = whole.parts[index], whole.task_losses[index]
    sign, X = whole.sign[part], whole.X[index] @ whole.metric(solution.M).root
    turned = sign < 0
    losses = Losses(
        sign * f.b, f.e, f.q, np.where(turned, -f.hi, f.lo), np.where(turned, -f.lo, f.hi)
    )
    form = Quadratic(np.append(np.ones(whole.d), 0.0))
    kind = "svm" if classifies(solution) else "regression"
    rows = Rows(X, sign if turned.any() else None, np.ones((len(X), 1)))
    return Problem(rows, losses, form, np.zeros(whole.d + 1), kind=kind)


def classifies(solution: MultiTaskSolution) -> bool:
    """Whether the losses are of margins."""
    return "hinge" in solution.problem.loss


def tasks_left_out(
    solution: MultiTaskSolution, *, refit: bool, accuracy: float | None, tol: float, mode: str,
    n_jobs: int, progress: bool, time_limit: float | None, labels: NDArray[np.intp] | None,
) -> LeaveOneOut:
    """Every sample's margin or residual in its task without it; see `cvxscreen.leave_one_out`."""
    mode, limits = check_request(mode, tol), Limits(time_limit, None)
    whole, classification = solution.problem, classifies(solution)
    parts = []
    for index, part in enumerate(whole.parts):
        own = None
        if labels is not None:
            own = np.asarray(np.unique(labels[part], return_inverse=True)[1], dtype=np.intp)
        if whole.sizes[index] < 2 or (own is not None and own.max() == 0):
            raise InvalidInput(
                f"task {index} of `solution` has one sample, or one group, only; without it "
                "nothing is left there."
            )
        found = solve(task_alone(solution, index), tol=min(tol, EXACT), mode=mode)
        parts.append(LeftOutMargins(found, mode, n_jobs, own))
    width = wanted_width(parts, classification, accuracy)
    steps = [(part, partial(part.undecided, classification, width)) for part in parts]
    finished = refit_undecided(steps, tol, limits, refit, progress)
    return joined([part.record(classification, width, finished) for part in parts])


def one_sided(low: Array, high: Array) -> Mask:
    """Which intervals tell whether a number is positive."""
    return (low > 0) | (high <= 0)


class LeftOutMargins:
    """Where the margin of every term is without it, as far as is known; refits narrow it.

    Without groups the entries of its arrays are the terms; else those of `Groups`.

    Parameters
    ----------
    solution : Solution
        Accepted.
    mode, n_jobs
        Of the refits.
    labels, origin
        As in `terms_left_out`.

    Attributes
    ----------
    low, high, value : array, shape (m,)
    unchanged, refitted : masks, shape (m,)
    """

    def __init__(
        self, solution: Solution, mode: str, n_jobs: int, labels: NDArray[np.intp] | None = None,
        origin: tuple[Array, Array] | None = None,
    ) -> None:
        whole("n_jobs", n_jobs if n_jobs != -1 else 1, 1)
        if solution.problem.n < 2:
            raise InvalidInput("`solution` is of one term only; without it nothing is left.")
        self.solution = solution
        # Programs over the slopes of a kernel end nearer than paths where these are large.
        self._by_kernel = None
        over = _over_its_rows(solution, mode)
        if over is not solution and labels is None and suits(solution.problem):
            self._by_kernel = partial(refits_of_terms, solution, mode=mode, n_jobs=n_jobs)
        solution = _about_the_centre(over, mode)
        point = solution.point()
        f, groups = solution.problem.losses, None if labels is None else Groups(labels)
        self.shape = (len(f),) if labels is None else labels.shape
        self.terms: Any = slice(None) if groups is None else groups.of_entries
        self.origin = None if origin is None else (origin[0][self.terms], origin[1][self.terms])
        zero = solution.earlier.zero | ((f.lo == 0.0) & (f.hi == 0.0))
        if solution.bounds != (midpoint_ball,):  # others may prove more
            zero |= solution.screening.zero
        if groups is None:
            self._refits = partial(refits_of_terms, solution, mode=mode, n_jobs=n_jobs)
            known = takes_left_out(point)
            low, high = left_out_margins(point) if known else margins_at_the_optimum(solution)
        else:
            self._refits = partial(refits_of_groups, solution, groups, mode=mode, n_jobs=n_jobs)
            known = takes_groups(point)
            low, high = _without_groups(point, groups) if known else (
                end[self.terms] for end in margins_at_the_optimum(solution)
            )
            f, zero = f.take(groups.of_entries), zero[self.terms]
        # An optimum at which what is left out has no slope is that of all terms, and conversely.
        unchanged = (f.piece_within(low, high) == Piece.ZERO) | zero
        if groups is not None:
            unchanged = ~np.isin(groups.labels, groups.labels[~unchanged])
        if not known:
            low, high = np.where(unchanged, low, -np.inf), np.where(unchanged, high, np.inf)
        value = np.where(unchanged, point.margins[self.terms], np.nan)
        self.low, self.high, self.value = _counted(self.origin, slice(None), low, high, value)
        self.unchanged, self.refitted = unchanged, np.zeros(len(low), dtype=bool)

    def refit(
        self, index: NDArray[np.intp], gap: float, last: bool = False
    ) -> Iterator[NDArray[np.intp]]:
        """Solve again without each of the terms at `index`: those that are done, some at a time.

        At `last` in another way, if there is one; what it leaves longer stays.
        """
        way = self._by_kernel if last else self._refits
        for found in way(index, gap) if way else ():
            if last:
                now = found[:, 0].astype(np.intp)
                found = found[found[:, 2] - found[:, 1] < self.high[now] - self.low[now]]
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
            target = self.solution.problem.losses.b[self.terms]
            low, high, value = target - high, target - low, target - value
        arrays: Any = (low, high, value, self.unchanged, self.refitted, decided)
        named = zip(ARRAYS, (array.reshape(self.shape) for array in arrays), strict=True)
        return LeaveOneOut(self.solution, classification, **dict(named), finished=finished)


def _without_groups(point: Point, groups: Groups) -> tuple[Array, Array]:
    """Of every entry the interval of its term's margin without its group."""
    low, high = np.empty((2, len(groups.labels)))
    places = zip(groups.entries, groups.places, strict=True)
    for (own, place), ends in zip(places, left_out_groups(point, groups.terms), strict=True):
        low[own], high[own] = (end[place] for end in ends)
    return low, high


def refit_undecided(
    steps: Sequence[tuple[LeftOutMargins, Callable[[], NDArray[np.intp]]]], tol: float,
    limits: Limits, refit: bool, progress: bool,
) -> bool:
    """Refit, one step after another, what each then wants: to `tol`, and what it still wants finer.

    Then in another way what is left. Nothing without `refit`. Returns whether everything that was
    wanted has been refitted once.
    """
    refit, progress = flag("refit", refit), flag("progress", progress)
    if not refit:
        return True
    total = sum(len(wanted()) for _, wanted in steps)
    with Progress(total, "refits", shown=progress) as bar:
        try:
            for gap in (tol, *(share * tol for share in FINER), None):
                finer, last = gap != tol, gap is None
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
                    for done in part.refit(index, gap or FINER[0] * tol, last):
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


def wanted_width(
    parts: Sequence[LeftOutMargins], classification: bool, accuracy: float | None
) -> float:
    """The width of an interval of a residual that needs no refit: as asked, or the usual one."""
    if accuracy is not None:
        return positive("accuracy", accuracy)
    if classification:
        return np.inf
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


def _over_its_rows(solution: Solution, mode: str) -> Solution:
    """That of the problem of a linear kernel over its rows, where these have few features.

    Optima, margins and values are the same; refits go along paths through as many coordinates, not
    through as many slopes as there are terms inside their box.
    """
    rows = over_its_rows(solution.problem)
    if rows is None:
        return solution
    found = solve(rows, tol=min(solution.certificate.tolerance, EXACT), mode=mode)
    return found if found.certificate.ok else solution


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
