"""Problems in another form that is easier to solve, and the way there and back.

`Reformulation` is the contract; `cvxscreen.solvers.loop.reformulated` finds the form that pays.
Nothing is proven in it: an answer is certified on the problem as it was asked. A form that may lose
digits is `lossy`, and where the certificate refuses its answer the problem is solved as it is, from
there.

`Centred`: features far from 0 beside an intercept, about their centre. ``<a_i, x> = <a_i - e_i mu,
x> + e_i <mu, x>``, e the column of a coordinate that nothing holds, is the same problem with that
coordinate larger by ``<mu, x>``. Years, prices and identifiers are features whose mean is a hundred
or a million times their spread; systems of such columns are singular to rounding, and no solver
gets to the end of them. The compiled path centres the copy of the data that it makes anyway
(`compiled_path.segments`); this is for all others. Mostly no entry is rounded (`Centred.exact`),
and the two problems are the same.

`WithoutIntercept`: squares under an L1 norm, whose intercept is eliminated::

    min_b  sum_i c_i (<x_i, w> + b - y_i)^2 / 2 = sum_i c_i (<x_i - m, w> - (y_i - l))^2 / 2,

m and l the means of rows and targets with weights ``c_i``: beside absolute values of w alone
nothing else knows b. What solves a lasso without an intercept knows its features; with one, their
absolute values are d further terms, which is as quick where the rows are tall only.

`ShortSquares`: squares of many terms in few coordinates, as those of a triangle::

    sum_i (<a_i, x> - b_i)^2 / (2 q_i) = |R x - c|^2 / 2 + rho^2 / 2

with ``A' Q^{-1} A = R' R``, ``R' c = A' Q^{-1} b`` and ``rho^2 = b' Q^{-1} b - |c|^2``: whatever
stands beside the squares (an L1 norm, constraints, other squares), d + 1 terms are the n of the
data. Cholesky's factor of a Gram matrix has half the digits of a triangle by reflections (Higham,
"Accuracy and stability of numerical algorithms", 2002, section 20.4), and takes a tenth of the
time.

`columns.BoundsAsTerms` is imported by those who have very many bounds.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from cvxscreen._support.limits import has_room
from cvxscreen.core.duality import dual_feasible
from cvxscreen.core.lasso import Lasso, lasso_rows, squares_alone
from cvxscreen.core.losses import Losses
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem, Quadratic, ZeroQuadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.designs.shift import Shift
from cvxscreen.solvers.interface import Start
from cvxscreen.solvers.solution import Solution

Array = NDArray[np.float64]


class Reformulation(Protocol):
    """A problem in another form that is easier to solve, and the way there and back."""

    @property
    def equivalent(self) -> Problem:
        """The problem in the other form."""
        ...

    @property
    def lossy(self) -> bool:
        """Whether digits may be lost in it that the problem has as it is."""
        ...

    def apply(self, start: Start) -> Start:
        """A start of the problem as one of `equivalent`."""
        ...

    def invert(self, found: Solution, tol: float) -> Solution:
        """A solution of `equivalent` as one of the problem, certified there to `tol`."""
        ...


class KeptForm:
    """The form of data that are solved again and again, their losses times a factor.

    Attributes
    ----------
    form : WithoutIntercept, ShortSquares or None
        The last one; the others are soon made again, and hold a copy of the data.
    within : KeptForm
        The same of the problem in that form.
    """

    form: WithoutIntercept | ShortSquares | None = None

    def keep(self, form: Reformulation) -> None:
        """Keep `form`, if it is one of those."""
        if isinstance(form, WithoutIntercept | ShortSquares):
            self.form = form

    @cached_property
    def within(self) -> KeptForm:
        """Where the form of that form is kept: one may be made of another."""
        return KeptForm()

    def at(self, problem: Problem) -> Reformulation | None:
        """That of `problem`, if it is of the same data."""
        if self.form is None or problem.design is not self.form.problem.design:
            return None
        return self.form.at(problem)


# -- features far from 0 --------------------------------------------------------------------------


WITHIN = 0.51
"""Of the centre, and its inverse: between them an entry is within a factor 2 of it."""


class Centred(NamedTuple):
    """A problem about the centre of its features: a `Reformulation`.

    Attributes
    ----------
    problem, equivalent : Problem
    free : int
        The coordinate that takes up the shift.
    mean : array, shape (d,)
        The shift, 0 where features are near enough.
    """

    problem: Problem
    equivalent: Problem
    free: int
    mean: Array

    @property
    def lossy(self) -> bool:
        """No: the data as they are lose more."""
        return False

    @classmethod
    def of(cls, problem: Problem, exact: bool = True) -> Centred | None:
        """`problem` centred; None where no feature is far off, or nothing could take it up.

        With `exact` at one of the rows, about which most differences are not rounded; else, where
        nothing but that coordinate is unpenalised, at the mean of all of them.
        """
        if problem.penalty is not None or not isinstance(problem.quadratic, Quadratic):
            return None
        if problem.drift or problem.imbalance:
            return None
        held = problem.quadratic.held_with(problem.side)
        shift = Shift.of(problem.design, held)
        if shift is None:
            return None
        if not exact and problem.free_index.tolist() == [shift.free]:
            mean = Shift.shortest(problem.design, problem.free_columns[:, 0], shift.free)
            form = None if mean is None else cls._about(problem, mean)
            # A row far from all others draws the mean so far away that the rest would be far again.
            if form is not None and Shift.of(form.equivalent.design, held) is None:
                return form
        return cls._about(problem, shift)

    @classmethod
    def shortest(cls, problem: Problem) -> Centred | None:
        """`problem` about the centre that makes its rows the shortest; None where they are so.

        Of one unpenalised coordinate. For methods whose steps are many where rows are alike.
        """
        free = problem.free_index
        if len(free) != 1 or problem.side is not None or problem.penalty is not None:
            return None
        if problem.drift or problem.imbalance:
            return None
        shift = Shift.shortest(problem.design, problem.free_columns[:, 0], int(free[0]))
        return None if shift is None else cls._about(problem, shift)

    @classmethod
    def _about(cls, problem: Problem, shift: Shift) -> Centred:
        """`problem` with the rows of `shift`."""
        free, mean = shift.free, shift.mean
        equivalent = replace(
            problem, design=shift.rows(), linear=problem.linear - problem.linear[free] * mean,
        )
        equivalent.known.free_columns = problem.known.free_columns
        return cls(problem, equivalent, free, mean)

    @property
    def exact(self) -> bool:
        """Whether no entry has been rounded, so that both problems have the same margins.

        Sterbenz (1974): a difference of numbers within a factor 2 of each other is exact.
        """
        design, far = cast(Rows, self.problem.design), np.flatnonzero(self.mean)
        p = design.matrix.shape[1]
        ones = design.beside[:, self.free - p] if self.free >= p else design.matrix[:, self.free]
        if self.problem.linear[self.free] or not (ones == 1.0).all():
            return False
        share = design.matrix[:, far] / self.mean[far]
        return bool(((share > WITHIN) & (share < 1.0 / WITHIN)).all())

    def apply(self, start: Start) -> Start:
        """A start as one of `equivalent`."""
        x = start.x.copy()
        x[self.free] += self.mean @ x
        return Start(x, start.theta, multipliers=start.multipliers)

    def restored(self, x: Array) -> Array:
        """A point of `equivalent` as one of `problem`."""
        x = x.copy()
        x[self.free] -= self.mean @ x
        return x

    def invert(self, found: Solution, tol: float) -> Solution:
        """A solution of `equivalent` as one of `problem`, certified there to `tol`.

        What its slopes lack to balance costs next to nothing about the centre; here every far
        feature multiplies it, so that they are balanced to rounding first.
        """
        x, theta = self.restored(found.x), found.theta
        if self.problem.side is None and np.isfinite(x).all():
            margins = self.equivalent.design.forward(found.x)
            theta = dual_feasible(self.equivalent, theta, margins=margins, x=found.x)[0]
        return found.carried_to(self.problem, x, theta, found.multipliers, tol)


# -- a lasso with an intercept --------------------------------------------------------------------


ROWS = 50
"""Rows for each coordinate up to which it pays for one solve (features kept by weights of 0.1 and
0.01 of the largest, CPU ms as terms and so: 800 x 400 53 to 70 and 340 to 370 -> 7 and 33 to 42,
2,000 x 400 55 and 350 to 450 -> 16 and 60, 1,200 x 1,500 1,300 to 1,800 and 7,000 -> 47 and 113,
3,000 x 300 88 and 100 -> 72 and 76, 5,000 x 100 16 to 26 -> 14; 50,000 x 50 37 to 54 -> 44 to
56)."""


class WithoutIntercept(NamedTuple):
    """A lasso whose intercept is eliminated.

    Attributes
    ----------
    problem, equivalent : Problem
    lasso : Lasso
        The parts of the problem.
    """

    problem: Problem
    equivalent: Problem
    lasso: Lasso

    @property
    def lossy(self) -> bool:
        """Yes: features and targets are rounded."""
        return True

    @classmethod
    def of(cls, problem: Problem, *, often: bool = False) -> WithoutIntercept | None:
        """`problem` so; None where it is no such lasso, or its rows are sparse.

        Nor where they are tall, unless it is to be solved `often`.
        """
        n, d = lasso_rows(problem), problem.d
        if not n or not (often or n <= ROWS * d):
            return None
        lasso = Lasso.of(problem)
        if lasso is None or not has_room(8 * n * d):
            return None
        share, f = lasso.weights / lasso.weights.sum(), problem.losses.take(np.arange(n))
        b, ends, matrix = f.b - share @ f.b, np.full(n, np.inf), lasso.rows.matrix
        equivalent = replace(
            problem, design=Rows(matrix - share @ matrix, known=True),
            losses=Losses(b, 0.0 * b, f.q, -ends, ends),
            quadratic=ZeroQuadratic(np.zeros(d - 1)), linear=np.zeros(d - 1), layout=None,
            penalty=L1(lasso.kappa.copy()),
        )
        return cls(problem, equivalent, lasso)

    def at(self, problem: Problem) -> WithoutIntercept | None:
        """The form of `problem`, whose squares are those of the same data times a factor."""
        n = len(self.lasso.targets)
        if lasso_rows(problem) != n:
            return None
        squares = problem.losses.take(np.arange(n))
        factor = squares.factor_of(self.problem.losses.take(np.arange(n)))
        if factor is None:
            return None
        known, kappa = self.equivalent, problem.losses.hi[n:]
        equivalent = _again(
            problem, known, factor, quadratic=known.quadratic, linear=known.linear,
            penalty=L1(kappa.copy()),
        )
        lasso = replace(self.lasso, problem=problem, weights=1.0 / squares.q, kappa=kappa)
        return WithoutIntercept(problem, equivalent, lasso)

    def apply(self, start: Start) -> Start:
        """A start of the problem as one of `equivalent`."""
        x = start.x[:-1]
        return Start(x, self.equivalent.losses.slope(self.equivalent.design.forward(x)))

    def invert(self, found: Solution, tol: float) -> Solution:
        """A solution of `equivalent` as one of `problem`, certified there to `tol`.

        The intercept is the weighted mean of what is left. Slopes are those at x, made smaller
        until the absolute values can balance them.
        """
        x, lasso, theta = np.append(found.x, 0.0), self.lasso, np.zeros(self.problem.n)
        if np.isfinite(x).all():
            left = lasso.targets - lasso.rows.forward(x)
            x[-1] = float(left @ lasso.weights) / float(lasso.weights.sum())
            theta = lasso.slopes(x, x[-1] - left)
        return found.carried_to(self.problem, x, theta, np.zeros(0), tol)


# -- tall squares ---------------------------------------------------------------------------------


TALL, COLUMNS, ENTRIES = 5, 500, 100_000
"""Terms for each coordinate, coordinates up to which, and entries of the data from which on it pays
(lasso by the built-in solvers at weights of 0.3, 0.05 and 0.001 of the largest, CPU, loaded
machine: 2,500 x 40 13, 14 and 19 -> 12, 11 and 7 ms; 20,000 x 50 29, 25 and 88 -> 18, 19 and 18;
100,000 x 30 77, 81 and 244 -> 41, 53 and 56; 5,000 x 300 39, 59 and 212 -> 39, 35 and 49; at three
terms for each of 300 and 1,000 coordinates 14 to 1,150 -> 11 to 540, and 55 -> 127 in one case)."""

DIGITS = 1e-6
"""Least diagonal entry of R, as a share of the largest: below, what Cholesky's method loses is too
much of the rest."""


class ShortSquares(NamedTuple):
    """A problem of squares with as many terms as coordinates: a `Reformulation`.

    Attributes
    ----------
    problem, equivalent : Problem
    """

    problem: Problem
    equivalent: Problem

    @property
    def lossy(self) -> bool:
        """Whether digits are lost on the way: half of them are, to a product of the rows."""
        return True

    @classmethod
    def of(cls, problem: Problem) -> ShortSquares | None:
        """`problem` so; None where it has other losses, or is not tall or well-conditioned."""
        design, f, (n, d) = problem.design, problem.losses, problem.design.shape
        if not isinstance(design, Rows) or n < TALL * (d + 1) or d > COLUMNS or n * d < ENTRIES:
            return None
        if _beside_squares(problem) or not squares_alone(f):
            return None
        weights = 1.0 / f.q
        gram, pull = design.weighted_gram(None, weights), design.adjoint(weights * f.b)
        try:
            triangle = np.linalg.cholesky(gram).T
        except np.linalg.LinAlgError:
            return None
        diagonal = triangle.diagonal()
        if not diagonal.min() > DIGITS * diagonal.max():
            return None
        c = solve_triangular(triangle, pull, trans="T")
        left = float(weights * f.b @ f.b - c @ c)
        rows = Rows(np.vstack([triangle, np.zeros(d)]), known=True)
        none, ends = np.zeros(d + 1), np.full(d + 1, np.inf)
        targets = np.append(c, np.sqrt(max(left, 0.0)))
        losses = Losses(targets, none, none + 1.0, -ends, ends)
        return cls(problem, replace(problem, design=rows, losses=losses, layout=None))

    def at(self, problem: Problem) -> ShortSquares | None:
        """The form of `problem`, whose squares are those of the same data times a factor."""
        if _beside_squares(problem):
            return None
        factor = problem.losses.factor_of(self.problem.losses)
        if factor is None:
            return None
        return ShortSquares(problem, _again(problem, self.equivalent, factor))

    def apply(self, start: Start) -> Start:
        """A start as one of `equivalent`."""
        theta = self.equivalent.losses.slope(self.equivalent.design.forward(start.x))
        return Start(start.x, theta, multipliers=start.multipliers)

    def invert(self, found: Solution, tol: float) -> Solution:
        """A solution of `equivalent` as one of `problem`, certified there to `tol`.

        Its slopes are those at x; the certificate shrinks what an L1 norm does not let pass.
        """
        theta = found.theta
        if np.isfinite(found.x).all():
            theta = self.problem.losses.slope(self.problem.design.forward(found.x))
        return found.carried_to(self.problem, found.x, theta, found.multipliers, tol)


def _beside_squares(problem: Problem) -> bool:
    """Whether a problem has what a triangle cannot stand beside."""
    penalised = problem.penalty is not None and not isinstance(problem.penalty, L1)
    return bool(penalised or problem.drift or problem.imbalance)


def _again(problem: Problem, known: Problem, factor: float, **changed: Any) -> Problem:
    """`problem` with the rows of `known`, `factor` times its losses, and what has `changed`."""
    losses = known.losses.scaled(factor)
    again = replace(problem, design=known.design, losses=losses, layout=None, **changed)
    again.known.inherit_rows(known.known, form=None)
    again.known.inherit_columns(known.known, same_losses=False)
    return again
