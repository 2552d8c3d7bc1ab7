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

from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.extensions import or_cvxpy
from cvxscreen._support.limits import Limits
from cvxscreen._support.validation import check_request, positive
from cvxscreen.api import solve
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.data_changes.margins_left_out import (
    LeaveOneOut,
    LeftOutMargins,
    joined,
    refit_undecided,
    usual_width,
)
from cvxscreen.data_changes.reweight import accepted, is_classification
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.multitask import MultiTaskSolution
from cvxscreen.solvers.solution import Solution

__all__ = ["group_numbers", "leave_one_out", "terms_left_out"]

Array = NDArray[np.float64]

EXACT = 1e-9
"""Relative gap of each task at the fixed matrix: what one pass decides narrows with its root."""


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
        a ten-thousandth of it.
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
    mode = check_request(mode, tol)
    limits = Limits(time_limit, None)
    part = LeftOutMargins(solution, mode, n_jobs, labels, origin)
    width = usual_width([part]) if accuracy is None else positive("accuracy", accuracy)
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
    width = usual_width(parts) if accuracy is None else positive("accuracy", accuracy)
    steps = [(part, partial(part.undecided, classification, width)) for part in parts]
    finished = refit_undecided(steps, tol, limits, refit, progress)
    return joined([part.record(classification, width, finished) for part in parts])
