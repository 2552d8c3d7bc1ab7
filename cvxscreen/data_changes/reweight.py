"""Other weights, fewer or more terms: what the solution at hand proves, then the fit from there.

    change = cvxscreen.reweight(solution, weights)  # or remove(solution, index)
    change.solution                                 # the new optimum, certified
    change.verdict, change.low, change.high         # what was proven about it before

Weights multiply the boxes of the slopes; a removed term leaves, or stays as a row of weight 0,
which keeps its margin in view; an added one begins with slope 0. The pair ``(x, w theta)`` is
feasible for the changed problem; what it proves is its midpoint ball
(`cvxscreen.bounds.data_changes`), and it is where the fit begins, except of few coordinates: there
one from nothing costs less. The ball itself is made when it is asked for.

    found = cvxscreen.weight_range(solution, X_new, size=2.0)
    found.certain              # predictions that keep their side, whatever the weights are
    found.largest              # for each prediction, how far the weights may go before it is not

A shift of the sample, a class weight that is not known, costs that are rough: the optimum is a
function of the terms' weights ``w``, and for all weights with ``|w - 1| <= S`` at once it lies in
one ball around the solution at hand (`cvxscreen.bounds.data_changes.over_weights`): nothing is
fitted.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.tables import Record, fields
from cvxscreen._support.validation import (
    array,
    check_request,
    choice,
    finite,
    number,
    one_of,
    positive,
    tolerance,
)
from cvxscreen.api import solve
from cvxscreen.bounds import default_bounds, midpoint_ball
from cvxscreen.bounds.data_changes import (
    OverWeights,
    WeightSet,
    over_weights,
    takes_left_out,
    takes_weights,
)
from cvxscreen.bounds.regions import Region
from cvxscreen.core.duality import Point, reference_point
from cvxscreen.core.losses import FIELDS, Losses, Piece
from cvxscreen.core.problem import Problem
from cvxscreen.designs.gram import Gram, GramForm
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.plots.records import surviving
from cvxscreen.screening.reduction import Verdict, judge
from cvxscreen.solvers.compiled_path.segments import ready
from cvxscreen.solvers.registry import compiled_path
from cvxscreen.solvers.solution import Solution

__all__ = ["DataChange", "WeightRange", "add", "remove", "reweight", "weight_range"]


Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


def accepted(solution: Any, *, metrics: bool = False) -> Problem:
    """The problem of `solution`, if its terms can change; of metric learning where that is asked.

    Raises
    ------
    InvalidInput
        For something else than a solution, data in chunks, no quadratic term, no optimum, a metric,
        a reduced problem.
    """
    one_of("solution", solution, Solution, "what `solve` returned for a problem of terms is needed")
    problem = solution.problem
    if problem.design.streamed:
        raise InvalidInput("`solution` is over data in chunks; terms are left out in memory only.")
    if problem.pure_l1:
        raise InvalidInput(
            "`solution` is of a problem without a quadratic term, whose margins nothing bounds."
        )
    if solution.answer is None:
        raise InvalidInput(f"`solution` has no optimum (its status is {solution.status!r}).")
    if not np.isfinite(solution.certificate.gap):
        raise InvalidInput(
            f"`solution` has a duality gap of {solution.certificate.gap} (its status is "
            f"{solution.status!r}), which says nothing of the optimum; solve it to a finite gap."
        )
    if not metrics and problem.penalty is not None and problem.penalty.name != "L1":
        raise InvalidInput(
            "`solution` is a metric, whose comparisons share points; there are `remove`, and "
            "`leave_one_out` with `groups`, say the points of the comparisons."
        )
    if problem.drift > 0 or problem.imbalance > 0:
        raise InvalidInput("`solution` is of a reduced problem; solve the full one.")
    return problem


def bounded(point: Point) -> None:
    """Nothing, if the ball of changed data is known for `point`.

    Raises
    ------
    InvalidInput
        With side constraints, several unpenalised coordinates, or a gap that is not finite.
    """
    if not np.isfinite(point.gap):
        raise InvalidInput(
            "`solution` has no finite duality gap, so nothing bounds its optimum; solve again with "
            "more iterations, or with features of comparable size."
        )
    if not takes_left_out(point):
        raise InvalidInput(
            "`solution` is of a problem with constraints, or with several unpenalised coordinates; "
            "`remove` tells the exact change for the terms of interest."
        )


def is_classification(problem: Problem) -> bool:
    """Whether margins are right where they are positive, or belong to residuals."""
    return "regression" not in problem.kind and "svr" not in problem.kind


def weighted(problem: Problem, w: Array) -> Problem:
    """`problem` with the weights of its terms multiplied by `w`; a term of weight 0 is a bare row.

    Raises
    ------
    InvalidInput
        For negative weights, or none that is positive.
    """
    if (w < 0).any() or not (w > 0).any():
        raise InvalidInput(
            f"`weights` go from {w.min():g} to {w.max():g}; they must not be negative, and one "
            "must be positive."
        )
    f, used = problem.losses, w > 0
    factor = np.where(used, w, 1.0)
    lo, hi = np.where(used, factor * f.lo, 0.0), np.where(used, factor * f.hi, 0.0)
    table = Losses(f.b, f.e, np.where(used, f.q / factor, 0.0), lo, hi)
    new = replace(problem, losses=table)
    new.known.inherit_rows(problem.known)
    return new


def taken(problem: Problem, rows: NDArray[np.intp]) -> Problem:
    """`problem` with the terms at `rows` only, in that order."""
    left = replace(
        problem, design=problem.design.take_rows(rows), losses=problem.losses.take(rows)
    )
    left.known.inherit_rows(problem.known, rows)
    return left


def refit(
    solution: Solution, problem: Problem, theta: Array, tol: float, mode: str
) -> Solution:
    """Solve the changed `problem` from ``(x, theta)``, with the old x."""
    start = replace(solution, problem=problem, theta=theta, answer=None)
    return solve(problem, tol=tol, mode=mode, start=start)


class DataChange(Record, Immutable):
    """A changed problem: its fit, and what the fit before the change proves about it.

    Attributes
    ----------
    before : Solution
        Of the problem as it was.
    solution : Solution
        Of the changed problem.
    scaled : array, shape (n,)
        The slopes of `before` under the new weights.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> solution = cvxscreen.solve(cvxscreen.svm(X, y, C=0.1), tol=1e-9)
    >>> change = cvxscreen.remove(solution, [0, 1])
    >>> change.problem.n, int(change.verdict.undecided.sum())   # most was known before
    (198, 5)
    >>> change.solution.certificate.ok
    True
    """

    before: Solution
    solution: Solution
    scaled: Array

    @property
    def problem(self) -> Problem:
        """The problem with the changed data."""
        return self.solution.problem

    @cached_property
    def verdict(self) -> Verdict:
        """What `before` proves about the terms of the changed problem."""
        problem, bound = self.problem, default_bounds(self.problem)[0]
        if bound is midpoint_ball:
            return judge(problem, self._ball, self._intervals)
        return judge(problem, bound(problem, self._point))

    @property
    def low(self) -> Array:
        """What `before` proves each margin ``<a_i, x>`` at the new optimum to be at least, (n,).

        A prediction, times the label in classification; `high` is what it is at most.
        """
        return self._intervals[0]

    @property
    def high(self) -> Array:
        """See `low`."""
        return self._intervals[1]

    @cached_property
    def _point(self) -> Point:
        return reference_point(self.problem, self.before.x, self.scaled)

    @cached_property
    def _ball(self) -> Region:
        return midpoint_ball(self.problem, self._point)

    @cached_property
    def _intervals(self) -> tuple[Array, Array]:
        return self._ball.intervals()

    def __str__(self) -> str:
        undecided = int(self.verdict.undecided.sum())
        n = self.problem.n
        return fields(
            [
                ("terms before", self.before.problem.n),
                ("terms now", n),
                ("decided by the ball", f"{n - undecided} ({(n - undecided) / n:.1%})"),
                ("status", self.solution.status),
                ("objective", float(f"{self.solution.value:.12g}")),
                ("relative gap", self.solution.certificate.relative_gap),
                ("distance of x", float(np.linalg.norm(self.solution.x - self.before.x))),
                ("seconds", self.solution.seconds),
            ],
            title="Changed data",
        )


def reweight(
    solution: Solution, weights: ArrayLike, *, tol: float = 1e-6, mode: str = "certified"
) -> DataChange:
    """The optimum when the weight of every term is multiplied by a number of its own.

    Parameters
    ----------
    solution : Solution
        What `solve` returned for a problem of `svm`, `regression` (kernels, weights and an
        intercept included), `sparse_svm` or `sparse_svr`.
    weights : array_like, shape (n,)
        Factors of the terms' present weights, not negative: 0 removes a term, 2 counts it twice.
    tol, mode
        As in `solve`.

    Returns
    -------
    DataChange

    Raises
    ------
    InvalidInput
        For negative weights or none that is positive, and for what `leave_one_out` refuses.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> solution = cvxscreen.solve(cvxscreen.svm(X, y, C=0.1), tol=1e-9)
    >>> change = cvxscreen.reweight(solution, np.where(y > 0, 2.0, 1.0))
    >>> change.solution.certificate.ok, bool(change.solution.value > solution.value)
    (True, True)
    """
    problem = accepted(solution)
    w = finite("weights", weights, (problem.n,))
    return _changed(solution, weighted(problem, w), w * solution.theta, tol, mode)


def remove(
    solution: Solution, index: ArrayLike, *, tol: float = 1e-6, mode: str = "certified"
) -> DataChange:
    """The optimum without some of the terms, say without a customer's rows.

    Parameters
    ----------
    solution : Solution
        As in `reweight`, or a metric of `rtlm`: the comparisons that a point p is in, for one, are
        ``np.flatnonzero((T.index == p).any(axis=1))``.
    index : array_like of int or bool
        Positions of the terms to remove, or a mask of them, shape (n,). The others keep their
        weights and their order.
    tol, mode
        As in `solve`.

    Returns
    -------
    DataChange
        Its problem has the terms that are left.

    Raises
    ------
    InvalidInput
        For positions that do not exist, all terms, and for what `leave_one_out` refuses.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> solution = cvxscreen.solve(cvxscreen.svm(X, y, C=0.1), tol=1e-9)
    >>> without = cvxscreen.remove(solution, [0, 1])
    >>> without.problem.n, without.solution.certificate.ok
    (198, True)
    """
    problem = accepted(solution, metrics=True)
    keep = np.flatnonzero(~_chosen(index, problem.n))
    if not len(keep):
        raise InvalidInput(f"`index` removes all {problem.n} terms; at least one must stay.")
    return _changed(solution, taken(problem, keep), solution.theta[keep], tol, mode)


def add(
    solution: Solution, X: Any, y: ArrayLike, *, tol: float = 1e-6, mode: str = "certified"
) -> DataChange:
    """The optimum with further samples, which get the loss and the weight of the others.

    Parameters
    ----------
    solution : Solution
        Of `svm` or `regression` without weights of their own for the samples; of a kernel one that
        was named, not of a Gram matrix.
    X : array_like or sparse matrix, shape (m, p)
    y : array_like, shape (m,)
        Labels -1/+1 or responses.
    tol, mode
        As in `solve`.

    Returns
    -------
    DataChange
        Its problem has the old terms, then the new ones; the data are copied together. Of a kernel
        its `before` has coefficients for the new points, too, which are 0.

    Raises
    ------
    InvalidInput
        For another number of features, other labels, NaN, and for problems of other kinds.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> solution = cvxscreen.solve(cvxscreen.svm(X, y, C=0.1), tol=1e-9)
    >>> more = cvxscreen.add(solution, X[:2] + 0.1, y[:2])
    >>> more.problem.n, more.solution.certificate.ok
    (202, True)
    """
    problem = accepted(solution)
    old, losses = problem.design, problem.losses
    labels = problem.kind in ("svm", "kernel svm")
    known = labels or problem.kind in ("regression", "kernel regression")
    if not (known and isinstance(old, Rows | Gram)):
        raise InvalidInput(
            f"`solution` is of a problem of kind {problem.kind!r}; samples can be added to `svm` "
            "and `regression`. Build the larger problem and solve it."
        )
    row = [getattr(losses, name)[0] for name in FIELDS[1:]]
    if any((getattr(losses, name) != row[k]).any() for k, name in enumerate(FIELDS[1:])):
        raise InvalidInput(
            "`solution`: its terms have weights of their own, so that of a new one is not known. "
            "Build the larger problem and solve it."
        )
    fresh, target = Rows(X), finite("y", y)
    m, p = fresh.shape
    width = old.matrix.shape[1] if isinstance(old, Rows) else old.width
    if p != width or target.shape != (m,):
        raise InvalidInput(
            f"`X` has shape {fresh.shape} and `y` {target.shape}; shapes (m, {width}) and (m,) are "
            "needed."
        )
    if labels and not np.isin(target, (-1.0, 1.0)).all():
        raise InvalidInput("`y`: labels -1 and +1 are needed.")
    ends = np.concatenate([losses.b, np.ones(m) if labels else target])
    table = Losses(ends, *(np.full(len(ends), number) for number in row))
    theta = np.concatenate([solution.theta, np.zeros(m)])
    if isinstance(old, Gram):
        wider, gram, x = _with_points(solution, old, X)
        signs = np.concatenate([old.sign, target if labels else np.ones(m)])
        index = np.concatenate([old.index, np.arange(old.kernel.size, gram.kernel.size)])
        larger = replace(
            wider, design=Gram(gram.kernel, signs, old.intercept, index), losses=table
        )
        before = replace(solution, problem=wider, x=x, answer=None)
        return _changed(before, larger, theta, tol, mode)
    stack = sp.vstack if old.sparse else np.vstack
    new_rows = fresh.matrix if fresh.sparse == old.sparse else (
        sp.csr_matrix(fresh.matrix) if old.sparse else fresh.matrix.toarray()
    )
    matrix = stack([old.matrix, new_rows])
    extra = np.vstack([old.extra, np.ones((m, old.extra.shape[1]))])
    scale = np.concatenate([old.scale, target]) if labels and old.scale is not None else None
    larger = replace(problem, design=Rows(matrix, scale, extra), losses=table)
    return _changed(solution, larger, theta, tol, mode)


def _changed(
    solution: Solution, problem: Problem, theta: Array, tol: float, mode: str
) -> DataChange:
    """The solution of `problem`, and whence what ``(x, theta)`` proves about it."""
    mode = check_request(mode, tolerance(tol))
    if mode == "certified" and compiled_path(problem, "auto") and ready():
        # From nothing: what a start saves, there costs more, even of one term of 50,000.
        return DataChange(solution, solve(problem, tol=tol), theta)
    return DataChange(solution, refit(solution, problem, theta, tol, mode), theta)


def _chosen(index: ArrayLike, n: int) -> NDArray[np.bool_]:
    """Mask of the terms that `index` names."""
    given = np.atleast_1d(array("index", index))
    whole = np.asarray(index)
    if whole.dtype == bool:
        if whole.shape != (n,):
            raise InvalidInput(f"`index` is a mask of shape {whole.shape}; ({n},) is needed.")
        return whole.copy()
    if given.ndim != 1 or not np.isfinite(given).all() or (given != np.round(given)).any():
        raise InvalidInput("`index` must hold whole numbers, or be a mask of the terms.")
    if len(given) and not (-n <= given.min() and given.max() < n):
        raise InvalidInput(f"`index` goes beyond the {n} terms, 0 to {n - 1}.")
    mask = np.zeros(n, dtype=bool)
    mask[given.astype(np.intp)] = True
    return mask


# -- a whole range of weights ---------------------------------------------------------------------

NORMS = ("l2", "l1", "interval")

HALVINGS = 50
"""Steps of the bisection for the largest S: to 1e-15 of its bound."""


class WeightRange(Record, Immutable):
    """What holds for every weighting in a set around the present one.

    Attributes
    ----------
    solution : Solution
        At the present weights.
    norm : {"l2", "l1", "interval"}
        Of the set.
    size : float
        Its S.
    low, high : array, shape (n,)
        Contain every term's margin ``<a_i, x*>``, whatever the weights are.
    unchanged : mask, shape (n,)
        Terms that stay on their piece of the loss: not a support vector before, none after, and
        likewise above and below a fit.
    predictions : array, shape (m,)
        Of the points that were asked about, at the present weights.
    prediction_low, prediction_high : array, shape (m,)
        Contain each prediction, whatever the weights are.
    certain : mask, shape (m,)
        Predictions that stay on their side of the threshold (0, the class, by default).
    largest : array, shape (m,)
        The largest S for which the same is proven of each prediction; 0 where it is not proven
        at the present weights, infinite where no weights can change it.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> solution = cvxscreen.solve(cvxscreen.svm(X, y, C=0.1), tol=1e-9)
    >>> print(cvxscreen.weight_range(solution, X[:5], size=0.1))
    Range of weights
      weights                     l2, size 0.1
      terms                       200
      stay on their piece         191 (95.5%)
      predictions                 5
      certain                     3 (60.0%)
      median of the largest size  0.5154
    """

    solution: Solution
    norm: str
    size: float
    low: Array
    high: Array
    unchanged: Mask
    predictions: Array
    prediction_low: Array
    prediction_high: Array
    certain: Mask
    largest: Array

    def __str__(self) -> str:
        n, m = len(self.low), len(self.predictions)
        rows: list[tuple[str, object]] = [
            ("weights", f"{self.norm}, size {self.size:g}"),
            ("terms", n),
            ("stay on their piece", f"{int(self.unchanged.sum())} ({self.unchanged.mean():.1%})"),
        ]
        if m:
            rows += [
                ("predictions", m),
                ("certain", f"{int(self.certain.sum())} ({self.certain.mean():.1%})"),
                ("median of the largest size", float(np.median(self.largest))),
            ]
        return fields(rows, title="Range of weights")

    def plot(self, ax: Any = None, figsize: tuple[float, float] | None = None) -> Any:
        """The share of the predictions that survive, over the size; a matplotlib Figure.

        `ax` are axes to draw on, `figsize` the inches of a new figure.
        """
        return surviving(self.largest, self.size, self.norm, ax=ax, figsize=figsize)


def weight_range(
    solution: Solution,
    X: Any = None,
    *,
    norm: str = "l2",
    size: float = 1.0,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
    threshold: float = 0.0,
) -> WeightRange:
    """Which terms and predictions no weights in a set around the present ones can change.

    The weight of term i is multiplied by ``w_i >= 0``; the set is

    ::

        "l2"        |w - 1|_2 <= size
        "l1"        |w - 1|_1 <= size
        "interval"  1 + size (low_i - 1) <= w_i <= 1 + size (high_i - 1)

    Parameters
    ----------
    solution : Solution
        What `solve` returned for a problem of `svm`, `regression` (with a kernel, too),
        `sparse_svm` or `sparse_svr`. The smaller its gap, the shorter the intervals.
    X : array_like or sparse matrix, shape (m, p), optional
        Points whose predictions ``f(x) = <x, w> + b`` are asked about; none where a Gram matrix was
        given in place of a kernel.
    norm : {"l2", "l1", "interval"}
    size : float
        S. At 1 in the l2 norm one term may leave; in the l1 norm also two by a half each.
    low, high : array_like, shape (n,) or one number, optional
        Of ``"interval"``, ``low <= 1 <= high``; 0 and 2 by default.
    threshold : float
        A prediction is certain while it stays on its side of it: 0 for a class; in regression,
        say, a limit.

    Returns
    -------
    WeightRange

    Raises
    ------
    InvalidInput
        For an unknown norm, a size that is not positive, intervals that do not hold 1 or are given
        for another norm, points with another number of features, points beside a Gram matrix that
        was given, constraints, a solution whose gap is not finite, and for what `leave_one_out`
        refuses.

    Notes
    -----
    Tabata et al. (2024), arXiv 2406.05964, bound the optimum over ``|w - 1|_2 <= S`` by the ball of
    the duality gap; here it is the midpoint ball, which is never larger and does not need an exact
    optimum. A set is bounded as a whole: the most that single weightings in it do is less. Beside
    an intercept terms at a kink of their loss take up what the weights no longer balance; beyond
    the S that leaves them room nothing is known, as the intercept is anywhere then.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> solution = cvxscreen.solve(cvxscreen.svm(X, y, C=0.1), tol=1e-9)
    >>> found = cvxscreen.weight_range(solution, X[:5], size=0.1)
    >>> found.certain                                           # predictions that keep their sign
    array([ True, False,  True, False,  True])
    """
    problem = accepted(solution)
    point = solution.point()
    bounded(point)
    if not (takes_weights(point) and isinstance(problem.design, Rows | Gram)):
        raise InvalidInput(
            "`solution` is of a problem with a dense quadratic form; ranges of weights are for a "
            "diagonal one, and for kernels."
        )
    norm = choice("norm", norm, NORMS)
    S, side = positive("size", size), number("threshold", threshold)
    if not np.isfinite(side):
        raise InvalidInput(f"`threshold` is {side}; a finite number is needed.")
    weights = _weights(problem, norm, low, high)
    point, tests = _asked_about(solution, X)
    over = over_weights(point, point.problem.design, weights)
    below, above = over.at(S)
    unchanged = problem.losses.piece_within(below, above) != Piece.UNDECIDED
    there = over_weights(point, tests, weights)
    bottom, top = there.at(S)
    values = tests.forward(point.x)
    certain = (bottom > side) | (top < side)
    largest = np.maximum(_largest(there, side), np.where(certain, S, 0.0))
    return WeightRange(
        solution, norm, S, below, above, unchanged, values, bottom, top, certain, largest
    )


def _asked_about(solution: Solution, X: Any) -> tuple[Point, Rows | Gram]:
    """The point of `solution`, and rows whose products with it are the predictions for `X`."""
    design = solution.problem.design
    if isinstance(design, Gram):
        if X is None:
            return solution.point(), design.at_points(np.arange(0))
        wider, gram, x = _with_points(solution, design, X)
        new = np.arange(design.kernel.size, gram.kernel.size)
        return reference_point(wider, x, solution.theta), gram.at_points(new)
    extra = cast(Rows, design).extra.shape[1]
    width = design.shape[1] - extra
    points = Rows(np.zeros((0, width)) if X is None else X)
    if points.shape[1] != width:
        raise InvalidInput(f"`X` has {points.shape[1]} features; {width} are needed.")
    return solution.point(), Rows(
        points.matrix, None, np.ones((points.shape[0], extra)), known=True
    )


def _with_points(solution: Solution, design: Gram, X: Any) -> tuple[Problem, Gram, Array]:
    """The kernel problem of `solution` with coefficients for new points, too: its design and x.

    The centre of the points is another one then, and with it what the intercept is counted from.
    """
    problem, points = solution.problem, Rows(X).matrix
    if points.shape[1] != design.width:
        raise InvalidInput(f"`X` has {points.shape[1]} features; {design.width} are needed.")
    wider, N = design.with_points(points), design.kernel.size
    none = np.zeros(points.shape[0])
    x, linear = (np.concatenate([v[:N], none, v[N:]]) for v in (solution.x, problem.linear))
    if design.intercept:
        x[-1] = solution.intercept + wider.offset(x)
    form = GramForm(wider.at_points(np.arange(wider.kernel.size)))
    return replace(problem, design=wider, quadratic=form, linear=linear), wider, x


def _weights(problem: Problem, norm: str, low: Any, high: Any) -> WeightSet:
    """The set of weights, about 1."""
    given = low is not None or high is not None
    if given and norm != "interval":
        raise InvalidInput(f"`low` and `high` belong to norm='interval'; `norm` is {norm!r}.")
    ends = [
        np.broadcast_to(finite(name, default if end is None else end), (problem.n,)) - 1.0
        if np.ndim(end) == 0 or end is None
        else finite(name, end, (problem.n,)) - 1.0
        for name, end, default in (("low", low, 0.0), ("high", high, 2.0))
    ]
    if (ends[0] > 0).any() or (ends[1] < 0).any():
        raise InvalidInput("`low` and `high` must hold the present weight: low <= 1 <= high.")
    return WeightSet(norm, *ends)


def _largest(over: OverWeights, side: float) -> Array:
    """The largest S, each to its own, at which the intervals keep to one side; by bisection.

    The lower end of every bisection is proven, as `OverWeights.at` is rounded outward.
    """
    def keeps(S: Array) -> Mask:
        low, high = over.at(S)
        return (low > side) | (high < side)

    distance = np.abs(over.middle - side)
    # At an exact optimum the end nearest the side moves by this much a unit of S, and no slower.
    toward = np.where(over.middle > side, over.down, over.up)
    rate = 0.5 * (toward + over.norms * over.x_rate)
    turn = 0.0 if over.balance is None else over.balance.turn
    with np.errstate(divide="ignore", invalid="ignore"):
        most = np.where(rate > 0, distance / rate, np.inf)
        most = np.minimum(most, np.divide(1.0, turn))  # nothing holds an intercept beyond
    endless = np.isinf(most)
    lower = np.zeros_like(distance)
    start = keeps(lower)
    upper = np.where(endless, 0.0, most)
    for _ in range(HALVINGS):
        middle = 0.5 * (lower + upper)
        good = keeps(middle)
        lower, upper = np.where(good, middle, lower), np.where(good, upper, middle)
    return np.where(start, np.where(endless, np.inf, lower), 0.0)
