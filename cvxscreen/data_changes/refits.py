"""Fits without what is left out, from the solution with all terms: in blocks, or one by one.

A block of terms goes through one solver after another, each of which looks at the terms near a kink
only and certifies its answers on all of them; those that turn out to be on another piece join, and
what is not certified is solved again (`left_out_of`). The solvers are two: a path for each term
of rows (`cvxscreen.data_changes.row_refits`), a small program for each of a kernel
(`cvxscreen.data_changes.kernel_refits`). What is left uncertified, and what no block takes, is
refitted alone, screened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.rounding import gamma, up
from cvxscreen.bounds import midpoint_ball
from cvxscreen.bounds.regions.margins import outward
from cvxscreen.certificates.many import LeftOutProofs
from cvxscreen.data_changes.bootstrap import in_order, mapped, together, waiting
from cvxscreen.data_changes.kernel_refits import Programs, suits
from cvxscreen.data_changes.reweight import refit, taken, weighted
from cvxscreen.data_changes.row_refits import PATHS, at_once, in_blocks, row_solvers
from cvxscreen.solvers.solution import Solution

Array = NDArray[np.float64]
Index = NDArray[np.intp]

BALL = 1e-8
"""Relative gap of refits in blocks, where the tolerance is not smaller still: Newton's last steps
cost little, and the interval narrows with the root."""

KERNEL_BLOCK = 32
"""Refits of a kernel that are made together: each looks at the terms of all of a block."""


class Solver(Protocol):
    """What finds the optima of one problem without single terms.

    Attributes
    ----------
    near : array of int
        The terms that it looks at first.
    rounds : int
        How often it may be asked, each time with those that moved beside them.
    """

    near: Index
    rounds: int

    def without(self, index: Index, near: Index) -> LeftOutProofs | None:
        """Certified answers without each of the terms at `index`; None where it takes none.

        It looks at the terms `near`, and at those at `index`; those that `moved` are to join.
        """


def left_out_of(
    solvers: Sequence[Solver], index: Index
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """The margin of each term of `index` at the optimum without it.

    Returns
    -------
    margins, error : arrays, shape (K,)
        The optimum's is within `error`, proven.
    ok : mask, shape (K,)
        Which answers are certified to the tolerance.
    """
    K = len(index)
    margins, error, ok = np.zeros(K), np.full(K, np.inf), np.zeros(K, dtype=bool)
    for solver in solvers:
        near = solver.near
        for _ in range(solver.rounds):
            waiting = np.flatnonzero(~ok)
            proofs = solver.without(index[waiting], near) if len(waiting) else None
            if proofs is None:
                break
            margins[waiting], error[waiting], ok[waiting] = proofs.margins, proofs.error, proofs.ok
            more = np.union1d(near, proofs.moved)
            if len(more) == len(near):
                break
            near = more
    return margins, error, ok


def margins_at_the_optimum(solution: Solution) -> tuple[Array, Array]:
    """Intervals of all margins at the optimum of all terms: those of the midpoint ball."""
    return midpoint_ball(solution.problem, solution.point()).intervals()


def refits_of_terms(
    solution: Solution, terms: Index, tol: float, mode: str, n_jobs: int
) -> Iterator[Array]:
    """The refits without each of `terms`, as they are finished, some at a time.

    Arrays of shape (K, 4): the position of a term, the interval of its left-out margin, its value.
    Terms that move the optimum about as far are taken together: all of a block look at the terms
    that any of its answers may have moved.
    """
    problem, gap = solution.problem, min(tol, BALL)
    kernel = suits(problem)
    size = KERNEL_BLOCK if kernel else at_once(problem)
    solvers = cache(
        lambda: [Programs(solution, gap)] if kernel else row_solvers(solution, gap)
    )
    terms = terms[np.argsort((np.abs(solution.theta) * problem.norms)[terms], kind="stable")]

    def one(k: int) -> Array:
        return _refitted(solution, terms[k:k + 1], tol, mode)

    def block(start: int) -> Array:
        return several(terms[start:start + size])

    def several(index: Index) -> Array:
        margins, error, ok = left_out_of(solvers(), index)
        found = np.column_stack((index.astype(float), *outward(margins, error), margins))
        left = np.flatnonzero(~ok)
        waits = len(left) > 1 and not together(problem)  # asking may compile
        for done, k in enumerate(left, 1):
            # The first may load what it needs; the second tells what the others would cost.
            with waiting().rent(len(left) - done if done > 1 else 0):
                found[k] = _refitted(solution, index[k:k + 1], tol, mode)
            if waits and together(problem):
                found[left[done:]] = several(index[left[done:]])
                break
        return found

    blocks = problem.side is None and problem.penalty is None
    if blocks and kernel:
        yield from mapped(block, range(0, len(terms), size), n_jobs)
        return
    yield from in_order(
        problem, len(terms), one, block if blocks else None, n_jobs, size=size,
        own=(in_blocks, PATHS),
    )


def refits_of_groups(
    solution: Solution, groups: list[Index], labels: Index,
    terms: Index, tol: float, mode: str, n_jobs: int,
) -> Iterator[Array]:
    """As `refits_of_terms`, without the whole group of each of `terms`, one group after another."""
    def one(group: int) -> Array:
        return _refitted(solution, groups[group], tol, mode)

    yield from mapped(one, np.unique(labels[terms]), n_jobs)


def _refitted(solution: Solution, terms: Index, tol: float, mode: str) -> Array:
    """As `refits_of_terms`, of `terms` at the optimum without all of them, solved for.

    They stay as rows without a loss, so that their margins are bounded with the others; those of a
    metric leave, and the optimum is within ``sqrt(2 gap)`` of the answer, in the norm of M.
    """
    problem, others = solution.problem, np.ones(solution.problem.n)
    others[terms] = 0.0
    if problem.penalty is None or problem.penalty.name == "L1":
        found = refit(
            solution, weighted(problem, others), others * solution.theta, tol, mode
        )
        below, above = (end[terms] for end in margins_at_the_optimum(found))
        value = found.point().margins[terms]
    else:
        rest, rows = np.flatnonzero(others), problem.design.take_rows(terms)
        found = refit(solution, taken(problem, rest), solution.theta[rest], tol, mode)
        value = rows.forward(found.x)
        reach = np.sqrt(2.0 * up(found.certificate.gap)) * problem.norms[terms]
        reach = up(1.0, 16) * reach * (1.0 + gamma(problem.d + 8))
        error = rows.forward_error(found.x, problem.sizes[terms])
        below, above = outward(value, reach + up(1.0) * error)
    return np.column_stack((terms.astype(float), below, above, value))
