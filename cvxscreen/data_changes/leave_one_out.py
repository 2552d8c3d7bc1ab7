"""What if the data change: every left-out prediction from one solution, certified.

    loo = cvxscreen.leave_one_out(cvxscreen.solve(problem))
    loo.low, loo.high          # where each margin (or residual) is without its own term, proven
    loo.errors                 # the leave-one-out error: a number, or bounds of it

Three kinds of term, from cheap to dear. A term that is proven to lie on the zero piece of its loss
changes nothing: the optimum without it is the optimum with it. Any other term moves the optimum
within a ball that one pass over the data bounds for all terms at once
(`cvxscreen.bounds.data_changes`). What these two leave undecided is solved again without the term,
from the solution, through screening.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.extensions import or_cvxpy
from cvxscreen._support.limits import Limits, Progress
from cvxscreen._support.rounding import gamma, up
from cvxscreen._support.tables import Record, fields
from cvxscreen._support.validation import check_request, flag, positive, whole
from cvxscreen.bounds import midpoint_ball
from cvxscreen.bounds.data_changes import (
    left_out_groups,
    left_out_margins,
    takes_groups,
    takes_left_out,
)
from cvxscreen.bounds.regions.margins import outward
from cvxscreen.data_changes.bootstrap import in_order, mapped, waiting
from cvxscreen.data_changes.kernel_refits import KernelRefits, suits
from cvxscreen.data_changes.reweight import accepted, is_classification, taken, weighted
from cvxscreen.data_changes.reweight import refit as refit_from
from cvxscreen.data_changes.row_refits import PATHS, RowRefits, in_blocks
from cvxscreen.errors import InvalidInput
from cvxscreen.plots.records import left_out
from cvxscreen.solvers.solution import Solution

__all__ = ["LeaveOneOut", "group_numbers", "leave_one_out", "terms_left_out"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

ACCURACY = 0.01
"""Default width, as a share of the median size of the residuals, below which an interval needs no
refit: the error's third digit is then certain. A choice, not a measurement."""


FINER = 1e-4
"""Factor of the refit's tolerance where its interval, about the root of the gap wide, decides
nothing yet: a hundred times narrower."""

BALL = 1e-8
"""Relative gap of refits in blocks, where the tolerance is not smaller still: Newton's last steps
cost little, and the interval narrows with the root."""


@dataclass(frozen=True, eq=False, repr=False)
class LeaveOneOut(Record):
    """Every left-out margin or residual, in a certified interval.

    Attributes
    ----------
    solution : Solution
        Of all terms.
    classification : bool
        Whether the numbers are margins ``y_i f_{-i}(x_i)`` (right where positive) or residuals
        ``y_i - f_{-i}(x_i)``, with ``f_{-i}`` fitted without term i. Of a ``cvxpy.Problem`` they
        are read off the loss as it is written; see `leave_one_out`.
    low, high : arrays, shape (n,)
        Contain the margin or residual at the exact optimum without the term.
    value : array, shape (n,)
        The number itself where the term was refitted or changes nothing (within the interval), else
        NaN.
    unchanged, refitted : masks, shape (n,)
        Terms proven to change nothing, and terms that were solved again.
    decided : mask, shape (n,)
        Classification: the interval has one sign. Regression: it is narrower than was asked.
    finished : bool
        False where a limit or Ctrl-C ended the refits early; what is done is there.

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

    solution: Solution
    classification: bool
    low: Array
    high: Array
    value: Array
    unchanged: Mask
    refitted: Mask
    decided: Mask
    finished: bool = True

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

    def __str__(self) -> str:
        least, most = self.errors
        name = "error rate" if self.classification else "mean absolute residual"
        share = f"{least:.6g}" if least == most else f"{least:.6g} to {most:.6g}"
        return fields(
            [
                ("terms", len(self.low)),
                ("unchanged", int(self.unchanged.sum())),
                ("bounded", int((self.decided & ~self.unchanged & ~self.refitted).sum())),
                ("refitted", int(self.refitted.sum())),
                ("undecided", int((~self.decided).sum())),
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


@or_cvxpy("cvxpy.leave_one_out")
def leave_one_out(
    solution: Solution,
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
        intercept included), `sparse_svm`, `sparse_svr`, or `rtlm` with `groups`. The smaller its
        gap, the shorter the intervals. Or a ``cvxpy.Problem`` that has been solved, by whatever
        solver, with one loss over the rows of the data; its values stay as they are.
    refit : bool
        Whether to solve again, without their term, what neither ball nor verdict decides.
    accuracy : float, optional
        For regression: intervals no wider than this are not refitted; by default a hundredth of the
        median absolute residual.
    tol : float
        Relative gap of the refits; where that leaves a term undecided, it is refitted once more to
        a ten-thousandth of it.
    mode : {"certified", "safe"}
        Of the refits.
    n_jobs : int
        Threads for the refits, as in joblib.
    progress : bool
        Whether to show how many refits are done.
    time_limit : float, optional
        Wall seconds after which no further refit begins; so does Ctrl-C. The record keeps what is
        done.
    groups : array_like, shape (n,), optional
        Labels of one kind, numbers or text: all terms of one label leave together, as the rows of a
        customer do, and every interval is of a term's margin without its whole group. Of a metric
        the anchor of each comparison, ``T.index[:, 0]``: comparisons share points, so that one
        alone says little.

    Returns
    -------
    LeaveOneOut

    Raises
    ------
    InvalidInput
        For something else than a solution of such a problem, over data in chunks, of a metric
        without `groups`, of a reduced problem, without a quadratic term (``l2=0``), or without an
        optimum; for a ``cvxpy.Problem`` that has not been solved; for other than n labels, or one
        label for all terms.
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
    problem = accepted(solution, metrics=groups is not None)
    return terms_left_out(
        solution, is_classification(problem), refit=refit, accuracy=accuracy, tol=tol, mode=mode,
        n_jobs=n_jobs, progress=progress, time_limit=time_limit,
        labels=None if groups is None else group_numbers(groups, problem.n),
    )


def group_numbers(groups: ArrayLike, n: int) -> NDArray[np.intp]:
    """The number of each term's group."""
    try:
        given = np.asarray(groups)
        names, labels = np.unique(given, return_inverse=True)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            "`groups` holds labels that cannot be sorted, as text beside numbers or None; give all "
            "of one kind."
        ) from error
    if given.shape != (n,):
        raise InvalidInput(
            f"`groups` has shape {given.shape}; one label for each of the {n} terms is needed."
        )
    if len(names) < 2:
        raise InvalidInput("`groups` holds one label only; without its terms nothing is left.")
    return np.asarray(labels, dtype=np.intp)


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
    labels : array of int, shape (n,), optional
        Groups of terms that leave together, numbered from 0.
    """
    problem = solution.problem
    mode = check_request(mode, tol)
    refit, progress = flag("refit", refit), flag("progress", progress)
    whole("n_jobs", n_jobs if n_jobs != -1 else 1, 1)
    width = None if accuracy is None else positive("accuracy", accuracy)
    point = solution.point()
    limits = Limits(time_limit, None)
    unchanged = solution.screening.zero.copy()
    refits, bounds = partial(_refits, solution, mode=mode, n_jobs=n_jobs), left_out_margins
    known = takes_left_out(point)
    if labels is not None:
        groups = np.split(np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels))[:-1])
        unchanged = ~np.isin(labels, labels[~unchanged])
        refits = partial(_refits_of_groups, solution, groups, labels, mode=mode, n_jobs=n_jobs)
        bounds = partial(left_out_groups, groups=groups)
        known = takes_groups(point)
    low, high = _at_the_optimum(solution)
    if known:
        below, above = bounds(point)
        low = np.where(unchanged, low, below)
        high = np.where(unchanged, high, above)
    else:
        low, high = np.where(unchanged, low, -np.inf), np.where(unchanged, high, np.inf)
    value = np.where(unchanged, point.margins, np.nan)
    low, high, value = _counted(origin, slice(None), low, high, value)
    if width is None:
        width = ACCURACY * float(np.median(np.abs(point.margins - problem.losses.b)))
    refitted = np.zeros(problem.n, dtype=bool)
    finished = True
    if refit:
        wanted = waiting = np.flatnonzero(~_decided(low, high, classification, width))
        with Progress(len(waiting), "refits", shown=progress) as bar:
            try:
                for gap in (tol, FINER * tol):
                    if limits.spent():
                        break
                    for found in refits(waiting, gap):
                        index = found[:, 0].astype(np.intp)
                        ends = _counted(origin, index, *found[:, 1:].T)
                        low[index], high[index], value[index] = ends
                        bar.step(count=int(np.isin(index, wanted[~refitted[wanted]]).sum()))
                        refitted[index] = True
                        if limits.spent():
                            break
                    waiting = waiting[~_decided(low[waiting], high[waiting], classification, width)]
                finished = bool(refitted[wanted].all())
            except KeyboardInterrupt:
                finished = False
    decided = _decided(low, high, classification, width)
    if not classification:
        target = problem.losses.b
        low, high, value = target - high, target - low, target - value
    return LeaveOneOut(
        solution, classification, low, high, value, unchanged, refitted, decided, finished
    )


def _counted(
    origin: tuple[Array, Array] | None, index: Any, low: Any, high: Any, value: Any
) -> tuple[Any, Any, Any]:
    """Intervals and values of the terms at `index`, counted from `origin` and rounded outward."""
    if origin is None:
        return low, high, value
    first, last = origin[0][index], origin[1][index]
    below, above = outward(low - last, np.zeros(()))[0], outward(high - first, np.zeros(()))[1]
    return below, above, value - 0.5 * (first + last)


def _decided(low: Any, high: Any, classification: bool, width: float) -> Any:
    """Whether an interval has one sign, or is narrow enough."""
    return (low > 0) | (high <= 0) if classification else high - low <= width


def _at_the_optimum(solution: Solution) -> tuple[Array, Array]:
    """Intervals of all margins at the optimum of all terms: those of the midpoint ball."""
    return midpoint_ball(solution.problem, solution.point()).intervals()


KERNEL_BLOCK, ROW_BLOCK = 32, 512
"""Refits that are made together: of a kernel each looks at the terms of all of a block; of rows it
is what a block costs beside its refits that is shared."""


def _refits(
    solution: Solution, terms: NDArray[np.intp], tol: float, mode: str, n_jobs: int
) -> Iterator[Array]:
    """The refits without each of `terms`, as they are finished, some at a time.

    Arrays of shape (K, 4): the position of a term, the interval of its left-out margin, its value.
    Terms that move the optimum about as far are taken together: all of a block look at the terms
    that any of its answers may have moved.
    """
    problem, gap = solution.problem, min(tol, BALL)
    kernel = suits(problem)
    size = KERNEL_BLOCK if kernel else ROW_BLOCK
    solver = cache(lambda: KernelRefits(solution, gap) if kernel else RowRefits(solution, gap))
    terms = terms[np.argsort((np.abs(solution.theta) * problem.norms)[terms], kind="stable")]

    def one(k: int) -> Array:
        return _refitted(solution, terms[k:k + 1], tol, mode)

    def block(start: int) -> Array:
        index = terms[start:start + size]
        margins, error, ok = solver().margins(index)
        found = np.column_stack((index.astype(float), *outward(margins, error), margins))
        for k in np.flatnonzero(~ok):
            with waiting().rent():
                found[k] = one(start + int(k))
        return found

    blocks = mode == "certified" and problem.side is None and problem.penalty is None
    if blocks and kernel:
        yield from mapped(block, range(0, len(terms), size), n_jobs)
        return
    yield from in_order(
        problem, len(terms), one, block if blocks else None, n_jobs, size=size,
        own=(in_blocks, PATHS),
    )


def _refits_of_groups(
    solution: Solution, groups: list[NDArray[np.intp]], labels: NDArray[np.intp],
    terms: NDArray[np.intp], tol: float, mode: str, n_jobs: int,
) -> Iterator[Array]:
    """As `_refits`, without the whole group of each of `terms`, one group after another."""
    def one(group: int) -> Array:
        return _refitted(solution, groups[group], tol, mode)

    yield from mapped(one, np.unique(labels[terms]), n_jobs)


def _refitted(solution: Solution, terms: NDArray[np.intp], tol: float, mode: str) -> Array:
    """As `_refits`, of `terms` at the optimum without all of them, solved for.

    They stay as rows without a loss, so that their margins are bounded with the others; those of a
    metric leave, and the optimum is within ``sqrt(2 gap)`` of the answer, in the norm of M.
    """
    problem, others = solution.problem, np.ones(solution.problem.n)
    others[terms] = 0.0
    if problem.penalty is None or problem.penalty.name == "L1":
        found = refit_from(
            solution, weighted(problem, others), others * solution.theta, tol, mode
        )
        below, above = (end[terms] for end in _at_the_optimum(found))
        value = found.point().margins[terms]
    else:
        rest, rows = np.flatnonzero(others), problem.design.take_rows(terms)
        found = refit_from(solution, taken(problem, rest), solution.theta[rest], tol, mode)
        value = rows.forward(found.x)
        reach = np.sqrt(2.0 * up(found.certificate.gap)) * problem.norms[terms]
        reach = up(1.0, 16) * reach * (1.0 + gamma(problem.d + 8))
        error = rows.forward_error(found.x, problem.sizes[terms])
        below, above = outward(value, reach + up(1.0) * error)
    return np.column_stack((terms.astype(float), below, above, value))
