"""A whole range of weights: what no weighting in it can change, from one solution.

    found = cvxscreen.weight_range(solution, X_new, size=2.0)
    found.certain              # predictions that keep their side, whatever the weights are
    found.largest              # for each prediction, how far the weights may go before it is not

A shift of the sample, a class weight that is not known, costs that are rough: the optimum is a
function of the terms' weights ``w``, and for all weights with ``|w - 1| <= S`` at once it lies in
one ball around the solution at hand (`cvxscreen.bounds.data_changes.over_weights`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.tables import Record, fields
from cvxscreen._support.validation import choice, finite, number, positive
from cvxscreen.bounds.data_changes import OverWeights, WeightSet, over_weights, takes_weights
from cvxscreen.core.losses import Piece
from cvxscreen.core.problem import Problem
from cvxscreen.data_changes.reweight import accepted, bounded
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.plots.records import surviving
from cvxscreen.solvers.solution import Solution

__all__ = ["WeightRange", "weight_range"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

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
        What `solve` returned for a problem of `svm`, `regression`, `sparse_svm` or `sparse_svr`
        without a kernel. The smaller its gap, the shorter the intervals.
    X : array_like or sparse matrix, shape (m, p), optional
        Points whose predictions ``f(x) = <x, w> + b`` are asked about.
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
        for another norm, points with another number of features, a kernel, constraints, a solution
        whose gap is not finite, and for what `leave_one_out` refuses.

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
    if not (takes_weights(point) and isinstance(problem.design, Rows)):
        raise InvalidInput(
            "`solution` is of a problem with a kernel or a dense quadratic form; ranges of weights "
            "are for rows of features and a diagonal one."
        )
    norm = choice("norm", norm, NORMS)
    S, side = positive("size", size), number("threshold", threshold)
    weights = _weights(problem, norm, low, high)
    over = over_weights(point, problem.design, weights)
    below, above = over.at(S)
    unchanged = problem.losses.piece_within(below, above) != Piece.UNDECIDED
    extra = problem.design.extra.shape[1]
    points = Rows(np.zeros((0, problem.d - extra)) if X is None else X)
    if points.shape[1] != problem.d - extra:
        raise InvalidInput(
            f"`X` has {points.shape[1]} features; {problem.d - extra} are needed."
        )
    tests = Rows(points.matrix, None, np.ones((points.shape[0], extra)), known=True)
    there = over_weights(point, tests, weights)
    bottom, top = there.at(S)
    values = tests.forward(solution.x)
    certain = (bottom > side) | (top < side)
    largest = np.maximum(_largest(there, side), np.where(certain, S, 0.0))
    return WeightRange(
        solution, norm, S, below, above, unchanged, values, bottom, top, certain, largest
    )


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
