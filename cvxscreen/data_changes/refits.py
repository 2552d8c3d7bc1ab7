"""Fits without what is left out, from the solution with all terms: in blocks, or one by one.

A block of terms goes through one solver after another, each of which looks at the terms near a kink
only and certifies its answers on all of them; those that turn out to be on another piece join, and
what is not certified is solved again (`left_out_of`). The solvers are two: a path for each term
of rows (`cvxscreen.data_changes.row_refits`), a small program for each of a kernel (`Programs`).
What is left uncertified, and what no block takes, is refitted alone, screened.

*Of a kernel*: without a term few slopes change, those at a kink and the terms next to one. So each
refit is a small quadratic program over a box (`cvxscreen.solvers.box_qp`), over the terms whose
margins are nearest to a kink, all others held at their slopes. Their Gram matrix is the same for
all refits. A block of answers is certified on all terms at once: the margins of all are one matrix
product with the slopes that changed (`cvxscreen.certificates.many.LeftOutOfGram`). Dense rows with
many features are points of the linear kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.compiled import CompileClock
from cvxscreen._support.rounding import gamma, up
from cvxscreen.bounds import midpoint_ball
from cvxscreen.bounds.regions.margins import outward
from cvxscreen.certificates.many import LeftOutOfGram, LeftOutProofs
from cvxscreen.core.losses import LossTerms
from cvxscreen.core.problem import Problem
from cvxscreen.data_changes.bootstrap import in_order, mapped, together, waiting
from cvxscreen.data_changes.reweight import refit, taken, weighted
from cvxscreen.data_changes.row_refits import PATHS, at_once, in_blocks, row_solvers
from cvxscreen.designs.gram import Gram, GramForm, Kernel, Polynomial
from cvxscreen.designs.rows import Rows
from cvxscreen.solvers.box_qp import BoxQp, descend_singles
from cvxscreen.solvers.registry import compiled_path
from cvxscreen.solvers.solution import Solution

Array = NDArray[np.float64]
Index = NDArray[np.intp]

BALL = 1e-8
"""Relative gap of refits in blocks, where the tolerance is not smaller still: Newton's last steps
cost little, and the interval narrows with the root."""

KERNEL_BLOCK = 32
"""Refits of a kernel that are made together: each looks at the terms of all of a block."""

NEAREST = 150
"""Terms, those inside their box apart, that a first program looks at. Measured on satimage, 6,435
points, 61 inside their box: 80 to 250 take as long, with fewer there are more second programs."""

TURN = 60
"""Coordinate steps before a Newton step, as a program begins near its answer: 30 to 120 take as
long, the thousands of a start from anywhere three times as long."""

RIDGE = 1e-12
"""Added to the diagonal of the terms inside their box, relative: points may be there twice."""

STEPS = 12
"""Steps of `faces` at most."""

SETTLE = 0.7
"""Share of a block's answers that have to settle in so many steps, for the next to take them."""

MOST = 2000
"""Most terms of a program, and most rows that are taken by their Gram matrix; beyond, and for what
is not certified, refits go through `solve`."""

ROUNDS = 4
"""How often terms on another piece than was thought may join."""

SHARE = 0.1
"""Of the tolerance, for what the program's violation may add to the gap."""


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
    solvers: Sequence[Solver], index: Index, enough: float = 0.0
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """The margin of each term of `index` at the optimum without it.

    Parameters
    ----------
    solvers : sequence of Solver
    index : array of int, shape (K,)
    enough : float
        Relative gap that will do where no solver comes to its own tolerance, as where the rounding
        of large slopes is more than that.

    Returns
    -------
    margins, error : arrays, shape (K,)
        The optimum's is within `error`, proven.
    ok : mask, shape (K,)
        Which answers are certified to the tolerance.
    """
    K = len(index)
    margins, ok = np.zeros(K), np.zeros(K, dtype=bool)
    error, relative = np.full((2, K), np.inf)
    for solver in solvers:
        near = solver.near
        for _ in range(solver.rounds):
            waiting = np.flatnonzero(~ok)
            proofs = solver.without(index[waiting], near) if len(waiting) else None
            if proofs is None:
                break
            better = np.flatnonzero(proofs.relative_gap < relative[waiting])
            now = waiting[better]
            margins[now], error[now] = proofs.margins[better], proofs.error[better]
            relative[now], ok[now] = proofs.relative_gap[better], proofs.ok[better]
            more = np.union1d(near, proofs.moved) if len(proofs.moved) else near
            if len(more) == len(near):
                break
            near = more
    return margins, error, ok | (relative <= enough)


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
    plain = problem.side is None and problem.penalty is None
    kernel, wide = suits(problem), plain and of_rows_with_many_features(problem)
    in_vain: list[bool] = []
    size = KERNEL_BLOCK if kernel or wide else at_once(problem)

    @cache
    def solvers() -> Sequence[Solver]:
        if kernel or wide:
            return [Programs(over_their_gram(problem) if wide else problem, solution, gap)]
        return row_solvers(solution, gap)

    terms = terms[np.argsort((np.abs(solution.theta) * problem.norms)[terms], kind="stable")]

    def one(k: int) -> Array:
        return _refitted(solution, terms[k:k + 1], tol, mode)

    def block(start: int) -> Array:
        return several(terms[start:start + size])

    def several(index: Index) -> Array:
        margins, error, ok = left_out_of([] if in_vain else solvers(), index, tol)
        if wide and not ok.any():  # long rows round more than is asked for
            in_vain.append(True)
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

    if plain and kernel:
        yield from mapped(block, range(0, len(terms), size), n_jobs)
        return
    own = (lambda _: PROGRAMS.loaded_or_due, PROGRAMS) if wide else (in_blocks, PATHS)
    blocks = wide or (plain and compiled_path(problem, "auto", many=True))
    yield from in_order(
        problem, len(terms), one, block if blocks else None, n_jobs, size=size, own=own
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


def suits(problem: Problem) -> bool:
    """Whether `Programs` take `problem`: a kernel, a point for each term, no intercept."""
    design = problem.design
    return (
        isinstance(design, Gram) and not design.intercept and not problem.linear.any()
        and len(np.unique(design.index)) == len(design.index)
    )


def of_rows_with_many_features(problem: Problem) -> bool:
    """Whether `Programs` take `problem` over the Gram matrix of its rows.

    Where no path leads through few coordinates, and M is the identity; a label is a sign. Of sparse
    rows one refit takes a few milliseconds, less than its program.
    """
    design = problem.design
    return (
        isinstance(design, Rows) and not design.sparse and problem.n <= MOST
        and design.extra.shape[1] == 0
        and (design.scale is None or bool((np.abs(design.scale) == 1.0).all()))
        and problem.quadratic.matrix is None and bool((problem.quadratic.diagonal == 1.0).all())
        and not problem.linear.any() and problem.drift == problem.imbalance == 0.0
        and not problem.losses.any_hard and not compiled_path(problem, "auto", many=True)
    )


def over_their_gram(problem: Problem) -> Problem:
    """`problem` over the Gram matrix of its rows, whose margins and optimal values are the same."""
    design = cast(Rows, problem.design)
    points = design.matrix.astype(np.float64, copy=False)
    kernel = Kernel(Polynomial(points))
    return Problem(
        Gram(kernel, design.scale), problem.losses, GramForm(Gram(kernel)),
        np.zeros(kernel.size), problem.constant, kind="kernel",
    )


PROGRAMS = CompileClock(2.0, descend_singles)
"""Of `Programs` for rows, against refits one after another. Measured: numba 0.4 CPU seconds, the
loops of programs 1 to 1.5."""


class Programs:
    """Refits of a kernel problem without single terms by small quadratic programs; a `Solver`.

    Parameters
    ----------
    problem : Problem
        Which `suits`.
    solution : Solution
        Of all terms, of the same problem or of that over rows.
    tol : float
        Relative gap of each answer.
    """

    rounds = ROUNDS

    def __init__(self, problem: Problem, solution: Solution, tol: float) -> None:
        theta = solution.theta
        self.problem, self.theta = problem, theta
        self.proofs = LeftOutOfGram(problem, theta, tol)
        losses, t = problem.losses, self.proofs.margins
        away = losses.kink_distance(t)
        # The slope of a term inside its box changes with any other's.
        between = (theta > losses.lo) & (theta < losses.hi)
        self.inside = between & ((theta != 0.0) | (losses.e == 0.0))
        away[self.inside] = 0.0
        few = int(self.inside.sum()) + NEAREST
        self.near = np.sort(np.argsort(away, kind="stable")[:few])
        span = np.minimum(losses.hi - losses.lo, 2.0 * float(np.abs(theta).max(initial=0.0)))
        self.steps = STEPS
        self.eps = SHARE * tol * abs(solution.value) / max(float(span[self.near].sum()), 1e-300)

    def without(self, index: Index, near: Index) -> LeftOutProofs | None:
        """See `Solver`; None where too many terms are near."""
        rows = np.union1d(near, index)
        if len(rows) > MOST:
            return None
        slopes = self._answers(self.proofs.gram(rows, rows), rows, index)
        return self.proofs.certify(index, rows, slopes)

    def _answers(self, gram: Array, rows: Index, index: Index) -> Array:
        """The best slopes at `rows` without each term of `index`, all other terms keeping theirs.

        Where the steps of `faces` do not settle, programs are solved from where the first leads.
        Where many do not, as beside tubes or points that are there often, later blocks take one.
        """
        f, theta, own = self.problem.losses.take(rows), self.theta[rows], rows.searchsorted(index)
        margins = self.proofs.margins[rows]
        found, settled = faces(gram, f, theta, margins, self.inside[rows], own, self.steps)
        if settled.mean() < SETTLE:
            self.steps = 1
        for k in np.flatnonzero(~settled):
            lo, hi, slopes = f.lo.copy(), f.hi.copy(), found[k]
            lo[own[k]] = hi[own[k]] = 0.0
            gradient = f.b - margins + (slopes - theta) @ gram
            program = BoxQp(gram, gradient, slopes, lo, hi, f.e, f.q, balanced=False)
            program.solve(self.eps, turn=TURN)
        return found


def faces(
    gram: Array, f: LossTerms, theta: Array, margins: Array, inside: NDArray[np.bool_], own: Index,
    most: int,
) -> tuple[Array, NDArray[np.bool_]]:
    """Slopes at the optimum without each of the terms `own`, and which of the K answers they are.

    Semismooth Newton steps of all programs together: terms are held at an end of their box or free,
    as a proximal step of each tells, and those that are free are solved for until none changes
    (Hintermueller, Ito and Kunisch 2003). What is free differs by a few terms from those `inside`
    their box at `theta`, where the inverse is known: each program is a system of these few.
    """
    K, answers, base = len(own), np.arange(len(own)), np.flatnonzero(inside)
    matrix = gram[np.ix_(base, base)] + np.diag(f.q[base] + RIDGE * gram.diagonal()[base])
    free, held = np.tile(inside, (K, 1)), np.tile(theta, (K, 1))
    free[answers, own], held[answers, own] = False, 0.0
    weight = float(np.median(gram.diagonal()))
    settled, first_at = np.zeros(K, dtype=bool), held
    try:
        inverse = np.linalg.inv(matrix)
        for step in range(most):
            other = free != inside
            few = np.flatnonzero(other.any(axis=0))
            leave, other, set_to = inside[few], other[:, few], (held - theta)[:, few]
            # Those that become free enter with their row, those that leave with a multiplier.
            rows = gram[:, few]
            U = np.where(leave, base[:, None] == few, rows[base])
            W = np.where(leave | leave[:, None], 0.0, rows[few]) + np.diag(~leave * f.q[few])
            RU, change = inverse @ U, np.where(free | inside, 0.0, held - theta)
            ends = f.b + f.e * np.sign(held) + f.q * theta
            residual = margins - ends - change @ gram
            first = residual[:, base] @ inverse
            right = np.where(leave, set_to, residual[:, few]) - first @ U
            # Each program has its own few of them, put in front.
            order = np.argsort(~other, axis=1, kind="stable")[:, :other.sum(axis=1).max()]
            there, eye = np.take_along_axis(other, order, axis=1), np.eye(order.shape[1])
            systems = (W - U.T @ RU)[order[:, :, None], order[:, None]]
            systems = np.where(there[:, :, None] & there[:, None], systems, eye)
            right = np.where(there, np.take_along_axis(right, order, axis=1), 0.0)
            steps = np.zeros(other.shape)
            np.put_along_axis(steps, order, np.linalg.solve(systems, right[:, :, None])[..., 0], 1)
            change[:, base] = first - steps @ RU.T
            change[:, few] = np.where(other, np.where(leave, set_to, steps), change[:, few])
            t, at = margins - change @ gram, theta + change
            if step == 0:
                first_at = np.clip(at, f.lo, f.hi)
            slopes = f.proximal_slope(t, at, weight)
            slopes[answers, own] = 0.0
            moves = (slopes > f.lo) & (slopes < f.hi) & ((slopes != 0.0) | (f.e == 0.0))
            moves[answers, own] = False
            settled = ((moves == free) & (free | (slopes == held))).all(axis=1)
            free, held = moves, slopes
            if settled.all():
                break
    except np.linalg.LinAlgError:
        pass
    settled &= np.isfinite(held).all(axis=1)
    return np.where(settled[:, None], held, np.nan_to_num(first_at)), settled
