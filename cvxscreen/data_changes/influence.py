"""How far each term moves the optimum by being there: bounded for all, exact where it is refitted.

found = cvxscreen.influence(solution, refit=100)
found.bound                # of every term, from one pass
found.distance             # of the hundred terms with the largest bounds: the distance itself
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.tables import Record, fields
from cvxscreen._support.validation import check_request, whole
from cvxscreen.bounds.data_changes import left_out_distances
from cvxscreen.data_changes.refits import moves_without
from cvxscreen.data_changes.reweight import accepted, bounded, remove
from cvxscreen.solvers.solution import Solution

__all__ = ["Influence", "influence"]

Array = NDArray[np.float64]


class Influence(Record, Immutable):
    """How far each term moves the optimum by being there.

    Attributes
    ----------
    bound : array, shape (n,)
        At least ``|x* - x*_{-i}|`` in the norm of M, the distance between the optima with and
        without term i.
    distance : array, shape (n,)
        The distance itself where it was computed by a refit (as exact as that), else NaN.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> solution = cvxscreen.solve(cvxscreen.svm(X, y, C=0.1), tol=1e-9)
    >>> found = cvxscreen.influence(solution, refit=2)
    >>> refitted = found.distance >= 0                          # elsewhere NaN
    >>> int(refitted.sum()), bool((found.distance <= found.bound)[refitted].all())
    (2, True)
    """

    bound: Array
    distance: Array

    def __str__(self) -> str:
        order = np.argsort(-self.bound, kind="stable")[:5]
        return fields(
            [
                ("terms", len(self.bound)),
                ("without influence", int((self.bound == 0).sum())),
                ("median of the bounds", float(np.median(self.bound))),
                ("largest bound", float(self.bound.max())),
                ("refitted", int((~np.isnan(self.distance)).sum())),
                ("of the terms", ", ".join(str(i) for i in order) + ", ..."),
            ],
            title="Influence of single terms",
        )


def influence(
    solution: Solution, *, refit: int = 0, tol: float = 1e-8, mode: str = "certified"
) -> Influence:
    """How far each term moves the optimum: bounded for all, exact for the first few.

    Parameters
    ----------
    solution : Solution
        As in `reweight`.
    refit : int
        For so many terms, those with the largest bounds first, the optimum without them is
        computed.
    tol, mode
        Of the refits, as in `solve`.

    Returns
    -------
    Influence

    Raises
    ------
    InvalidInput
        For what `leave_one_out` refuses, with side constraints or more than one unpenalised
        coordinate, and where the gap of the solution is not finite.

    Notes
    -----
    The bounds are those of `cvxscreen.bounds.data_changes.left_out_distances`: at an exact optimum
    ``|theta_i| |a_i|``, beside an intercept of rows that are centred at the terms that can balance
    it, infinite where there are none. Terms that are proven to change nothing have the bound 0.
    Refits of rows with few features go along paths, in blocks that are certified on all of the
    data; others are made one by one.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> solution = cvxscreen.solve(cvxscreen.svm(X, y, C=0.1), tol=1e-9)
    >>> print(cvxscreen.influence(solution))
    Influence of single terms
      terms                 200
      without influence     135
      median of the bounds  0
      largest bound         0.3272
      refitted              0
      of the terms          51, 122, 87, 95, 20, ...
    """
    refit = whole("refit", refit, 0)
    mode = check_request(mode, tol)
    problem, point = accepted(solution), solution.point()
    bounded(point)
    bound = left_out_distances(point)
    bound = np.where(solution.screening.zero, 0.0, bound)
    distance = np.full(problem.n, np.nan)
    chosen = np.argsort(-bound, kind="stable")[:refit]
    distance[chosen] = moves_without(solution, chosen, tol)
    for i in chosen[np.isnan(distance[chosen])]:
        without = remove(solution, [i], tol=tol, mode=mode).solution
        distance[i] = problem.quadratic.norm(without.x - solution.x)
    return Influence(bound, distance)
