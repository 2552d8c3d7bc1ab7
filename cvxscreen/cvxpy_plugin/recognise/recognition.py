"""A recognised problem, and the way back to all columns and multipliers."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem
from cvxscreen.cvxpy_plugin.recognise.draft import Duals, Pairing, Step
from cvxscreen.cvxpy_plugin.recognise.matrices import Stack
from cvxscreen.cvxpy_plugin.recognise.standard import Standard
from cvxscreen.errors import CvxscreenError

if TYPE_CHECKING:
    from cvxscreen.cvxpy_plugin.recognise.max_affine import Maxima
    from cvxscreen.cvxpy_plugin.recognise.short_cones import ShortCone

Array = NDArray[np.float64]
Index = NDArray[np.intp]

SAME = 1e-14
"""Factors of costs that differ relatively by less are one factor."""


class Recognition(NamedTuple):
    """A CVXPY problem read as a regularised sum of losses.

    Attributes
    ----------
    problem : Problem
        In the core coordinates.
    standard : Standard
        The canonical problem, all of it.
    core : array of int, shape (d,)
        The column of each core coordinate.
    steps : tuple of Step
        Everything else, undone in any order that their `needs` allow.
    side : CSR array, shape (k, m)
        The side constraints as combinations of rows.
    pairing : Pairing
        From all terms to those that the steps know.
    parts : CostParts
    l1_terms : L1Terms or None
        The terms that are no losses of `problem` but its L1 norm.
    maxima : Maxima or None
        A part of the objective that is not in `problem`.
    short : tuple of ShortCone
        Cones of many rows of which `side` has combinations that are as long.
    """

    problem: Problem
    standard: Standard
    core: Index
    steps: tuple[Step, ...]
    side: Any
    pairing: Pairing
    parts: CostParts
    l1_terms: L1Terms | None = None
    maxima: Maxima | None = None
    short: tuple[ShortCone, ...] = ()

    @property
    def descriptions(self) -> tuple[str, ...]:
        """What stands in place of longer residuals, for records."""
        as_written = tuple(one.text for one in self.standard.canonical.shortened)
        return (*as_written, *(one.text for one in self.short))

    def as_long(self, z: Array) -> bool:
        """Whether short residuals are as long as those that they stand for, at the columns `z`.

        Where the user's variables have these values.
        """
        if not all(one.agrees() for one in self.standard.canonical.shortened):
            return False
        if not self.short:
            return True
        values = self.standard.rows.values(z)
        return all(one.agrees(values) for one in self.short)

    def columns(self, x: Array) -> Array:
        """All columns at their best values for the core coordinates `x`.

        Parameters
        ----------
        x : array, shape (d,)

        Returns
        -------
        array, shape (N,)

        Raises
        ------
        CvxscreenError
            If some helper depends on itself (a defect of a rule).
        """
        size = self.standard.size
        z, unknown = np.zeros(size), np.ones(size)
        z[self.core] = x
        unknown[self.core] = 0.0
        # SciPy takes longer for a new matrix than most of these products.
        needs = [abs(n) if (n.data < 0).any() else n for n in (s.needs for s in self.steps)]
        while unknown.any():
            values = self.standard.rows.values(z)
            before = unknown.sum()
            fresh: list[tuple[Index, Array]] = []
            for step, pattern in zip(self.steps, needs, strict=True):
                ready = (pattern @ unknown == 0.0) & (unknown[step.columns] > 0.0)
                if ready.any():
                    fresh.append((step.columns[ready], step.primal(values)[ready]))
            for columns, found in fresh:
                z[columns] = found
                unknown[columns] = 0.0
            if unknown.sum() == before:
                raise CvxscreenError("a helper variable depends on itself; please report this.")
        return z

    def value(self, z: Array) -> float:
        """The canonical objective at the columns `z`."""
        total, groups = self.standard.value(z), self.standard.canonical.groups
        if not groups:
            return total
        values = self.standard.rows.values(z)
        for group, rows in zip(groups, self.standard.arguments, strict=True):
            if group.budget is None:
                total += group.value(values[rows])
        return total

    def multipliers(
        self,
        z: Array,
        theta: Array,
        side: Array,
        penalty_subgradient: Array | None = None,
        shares: Array | None = None,
    ) -> Array:
        """Multipliers of all rows of the canonical problem.

        Parameters
        ----------
        z : array, shape (N,)
            All columns at the solution.
        theta : array, shape (n,)
            Slopes of the loss terms.
        side : array, shape (k,)
            Multipliers of the side constraints.
        penalty_subgradient : array, shape (d,), optional
            Subgradient of the L1 norm; the one that goes with `theta` when omitted.
        shares : array, shape (p,), optional
            Slopes of the pieces of `maxima`.

        Returns
        -------
        array, shape (m,)
        """
        rows = np.zeros(self.standard.rows.shape[0])
        if self.side.shape[0]:
            rows += self.side.T @ side
        if self.l1_terms is not None:
            given = penalty_subgradient
            if given is None:
                given = l1_subgradient(self.problem, theta)
            theta = self.l1_terms.slopes(theta, given)
        given_shares = np.zeros(0) if shares is None else shares
        duals = Duals(z, self.pairing.split(theta), rows, given_shares)
        for step in sorted(self.steps, key=attrgetter("stage")):
            step.dual(self.standard, duals)
        return duals.rows

    def tied(self, original: Any) -> Recognition:
        """The same of the problem `original` (or a weak reference of it)."""
        canonical = self.standard.canonical._replace(original=original)
        return self._replace(standard=self.standard._replace(canonical=canonical))

    def helpers(self) -> Index:
        """Positions of coordinates that no variable of the user's has."""
        return np.flatnonzero(~self.standard.own()[self.core])

    def place(self, variable: Any) -> int:
        """The coordinate that a variable of one column is, -1 if none."""
        standard = self.standard
        column = standard.starts[next(k for k, v in enumerate(standard.variables) if v is variable)]
        found = np.flatnonzero(self.core == column)
        return int(found[0]) if len(found) else -1

    def residual(self, z: Array, multipliers: Array) -> Array:
        """Gradient of the Lagrangian of the canonical problem, shape (N,)."""
        own = self.standard.quadratic @ z + self.standard.linear
        return np.asarray(own - self.standard.rows.adjoint(multipliers))


class CostParts(NamedTuple):
    """Where the linear term and the constant of the recognised problem come from.

    Attributes
    ----------
    slope, loss_slope : array, shape (d,)
        Linear term of the regulariser, and of the losses.
    base, level : float
        What squares of eliminated columns, and what the losses, add to the constant.
    """

    slope: Array
    loss_slope: Array
    base: float
    level: float


# -- the L1 norm ----------------------------------------------------------------------------------
#
# Absolute values of single coordinates are the L1 norm of the regulariser, not losses.
#
# A term ``f(gamma x_j)`` with its kink at 0 is ``kappa |x_j| + tilt x_j``. Taken out of the losses
# it lets coordinates be screened: those proven zero leave the reduced problem altogether. On the
# way back the slope of every such term is its share of the subgradient of the L1 norm.


def find_l1_norm(rows: Stack, numbers: Array, core: Index, quadratic: Any) -> L1Terms | None:
    """The terms that are absolute values of single coordinates, where features can be screened.

    Parameters
    ----------
    rows : Stack, shape (k + n, N)
        Arguments of all terms, without their offsets.
    numbers : array, shape (k + n, 5)
    core : array of int, shape (d,)
        Columns of the coordinates.
    quadratic : CSR array, shape (d, d)

    Returns
    -------
    Shrinkage or None
        None as well where nothing but such terms is left, or where the quadratic term is not a
        positive diagonal.
    """
    b, e, q, low, high = numbers.T
    terms = (np.diff(rows.sparse.indptr) == 1) & ~rows.dense_rows()
    if terms.any():
        terms &= (b == 0) & (e == 0) & (q == 0) & np.isfinite(low) & np.isfinite(high)
    if not terms.any() or terms.all():
        return None
    diagonal = quadratic.diagonal()
    absent = quadratic.nnz == 0
    if not absent and ((diagonal <= 0).any() or quadratic.nnz > len(diagonal)):
        return None
    index = np.flatnonzero(terms)
    spot = rows.sparse.indptr[index]
    place = np.full(rows.shape[1], -1, dtype=np.intp)
    place[core] = np.arange(len(core))
    found = L1Terms(
        index,
        np.flatnonzero(~terms),
        place[rows.sparse.indices[spot]],
        np.asarray(rows.sparse.data[spot], dtype=np.float64),
        low[index],
        high[index],
    )
    return found if not absent or _needs_no_square(found, q[~terms], len(core)) else None


def _needs_no_square(found: L1Terms, q: Array, size: int) -> bool:
    """Whether the L1 norm can do without a quadratic term: on every coordinate, beside smooth f."""
    everywhere = (found.coordinates >= 0).all() and (found.total(found.weights, size) > 0).all()
    return bool(everywhere and (q > 0).all() and not found.total(found.linear_slopes, size).any())


class L1Terms(NamedTuple):
    """Which of the recognised terms are absolute values of single coordinates.

    Attributes
    ----------
    terms : array of int, shape (k,)
        Their positions among all terms.
    rest : array of int, shape (n,)
        Positions of the others, which are the problem's losses.
    coordinates : array of int, shape (k,)
        ``j``.
    factors : array, shape (k,)
        ``gamma``, not 0.
    low, high : array, shape (k,)
        Box of the slopes.
    """

    terms: Index
    rest: Index
    coordinates: Index
    factors: Array
    low: Array
    high: Array

    @property
    def weights(self) -> Array:
        """``kappa`` of each term, shape (k,)."""
        return np.asarray(np.abs(self.factors) * (0.5 * self.high - 0.5 * self.low))

    @property
    def linear_slopes(self) -> Array:
        """Slope of the linear part of each term, shape (k,)."""
        return np.asarray(self.factors * (0.5 * self.high + 0.5 * self.low))

    def total(self, values: Array, size: int) -> Array:
        """Sum of `values`, shape (k,), by coordinate, shape (size,)."""
        out = np.zeros(size)
        np.add.at(out, self.coordinates, values)
        return out

    def penalty(self, size: int) -> L1:
        """The L1 norm over `size` coordinates."""
        return L1(self.total(self.weights, size))

    def slopes(self, theta: Array, penalty_subgradient: Array) -> Array:
        """Slopes of all terms.

        Parameters
        ----------
        theta : array, shape (n,)
            Of the losses.
        penalty_subgradient : array, shape (d,)
            A subgradient of the L1 norm.
        """
        out = np.zeros(len(self.terms) + len(self.rest))
        out[self.rest] = theta
        kappa = self.total(self.weights, len(penalty_subgradient))
        with np.errstate(invalid="ignore", over="ignore"):
            share = penalty_subgradient / np.where(kappa > 0, kappa, 1.0)
        term_slopes = self.linear_slopes + self.weights * share[self.coordinates]
        out[self.terms] = np.clip(term_slopes / self.factors, self.low, self.high)
        return out

    def reordered(self, order: Index) -> L1Terms:
        """The same with coordinate ``order[i]`` at place i."""
        place = np.argsort(order)
        return self._replace(coordinates=place[self.coordinates])

    def scaled(self, factor: Array) -> L1Terms:
        """The terms times their entries of `factor`, shape (k + n,)."""
        own = factor[self.terms]
        return self._replace(low=self.low * own, high=self.high * own)


def l1_subgradient(problem: Problem, theta: Array) -> Array:
    """The subgradient of the L1 norm that goes with the slopes `theta`, shape (d,)."""
    if problem.penalty is None:
        return np.zeros(problem.d)
    gradient = problem.design.adjoint(theta) + problem.linear
    return problem.penalty.prox_and_subgradient(-gradient, problem.quadratic.diagonal)[1]
