"""What every screening rule decides from one reference, along a parameter: rules side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen import bounds as bound_table, plots
from cvxscreen._support.immutable import Immutable
from cvxscreen._support.tables import Record, table
from cvxscreen._support.validation import one_of
from cvxscreen.api import screen
from cvxscreen.core.duality import Point
from cvxscreen.core.problem import Problem
from cvxscreen.errors import InvalidInput
from cvxscreen.paths.path import checked_values
from cvxscreen.solvers.solution import Solution

Array = NDArray[np.float64]


class BoundComparison(Record, Immutable):
    """Shares that rules decide.

    Attributes
    ----------
    over : str
        The parameter: "C" or "lam".
    values : array, shape (m,)
        Of the parameter.
    decided : mapping of str to array, shape (m,)
        Share of the terms that each rule proves on a piece.
    dropped : mapping of str to array, shape (m,)
        Share of the features that it proves zero; empty without an L1 norm.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> solution = cvxscreen.solve(cvxscreen.svm(X, y, C=0.1), tol=1e-9)
    >>> found = cvxscreen.compare_bounds(solution.problem, solution, [0.11, 0.2], ["dvi", "gap"])
    >>> print(found)
    Terms decided by each rule, in percent
       C   dvi   gap
    ----  ----  ----
    0.11  93.5  89.5
     0.2  68.5   4.5
    """

    over: str
    values: Array
    decided: Mapping[str, Array]
    dropped: Mapping[str, Array]

    def __str__(self) -> str:
        shares = {
            **self.decided,
            **{f"{name}, features": share for name, share in self.dropped.items()},
        }
        rows = [
            (float(f"{value:.6g}"), *(round(100.0 * float(share[k]), 1)
                                      for share in shares.values()))
            for k, value in enumerate(self.values)
        ]
        return table((self.over, *shares), rows, title="Terms decided by each rule, in percent")

    def plot(
        self, title: str = "What each rule decides from one reference", *, ax: Any = None,
        figsize: tuple[float, float] | None = None,
    ) -> Any:
        """A line a rule over the parameter; a matplotlib Figure (that of `ax` where given)."""
        return plots.lines(
            self.values, self.decided, title=title, parameter=self.over, ax=ax, figsize=figsize
        )


def compare_bounds(
    problem: Problem,
    reference: Solution | Point | tuple[Solution | Point, Solution | Point],
    values: ArrayLike,
    bounds: Sequence[str] | None = None,
) -> BoundComparison:
    """What the rules of the papers decide about `problem` at other values of C or lambda.

    Parameters
    ----------
    problem : Problem
        With a parameter C, or lambda where it has one.
    reference : Solution or Point, or a pair of them
        Of the same data at any value: what every rule starts from. A pair for the rules of
        `bounds.PAIRS`, which are left out otherwise; the other rules then take the first.
    values : array_like, shape (m,)
        Of the parameter, positive.
    bounds : sequence of str, optional
        Names; all that apply to the problem when omitted.

    Returns
    -------
    BoundComparison
        Prints as a table, a column a rule; ``plot()`` draws it.

    Raises
    ------
    UnknownName
        For an unknown rule.
    InvalidInput
        For values that are not positive, no rule, or a rule that asks for two references.

    Examples
    --------
    >>> import cvxscreen
    >>> problem = cvxscreen.svm(*cvxscreen.datasets.two_gaussians(300, 3), C=1.0)
    >>> reference = cvxscreen.solve(problem, tol=1e-10)
    >>> found = cvxscreen.compare_bounds(problem, reference, [1.1, 1.5], ["dvi", "gap"])
    >>> bool((found.decided["dvi"] >= found.decided["gap"]).all())
    True
    """
    one_of("problem", problem, Problem, "a problem from `svm`, `regression`, ... is needed")
    grid = checked_values(values)
    pair = isinstance(reference, tuple | list)
    first: Any = reference[0] if isinstance(reference, tuple | list) else reference
    asked = bound_table.available(problem) if bounds is None else bounds
    names = [bound_table.canonical(name) for name in asked]
    if bounds is None and not pair:
        names = [name for name in names if name not in bound_table.PAIRS]
    if not names:
        raise InvalidInput("`bounds` is empty; no rule applies, or none was named.")
    over = "C" if problem.lam is None else "lam"
    decided: dict[str, list[float]] = {name: [] for name in names}
    dropped: dict[str, list[float]] = {name: [] for name in names}
    for value in map(float, grid):
        changed = problem.with_(**{over: value})
        for name in names:
            start = reference if name in bound_table.PAIRS else first
            verdict = screen(changed, reference=start, bound=name)
            decided[name].append(float((~verdict.undecided).mean()))
            dropped[name].append(float(verdict.dropped.mean()))
    features = dropped if problem.penalty is not None else {}
    return BoundComparison(
        over, grid, {name: np.array(share) for name, share in decided.items()},
        {name: np.array(share) for name, share in features.items()},
    )
