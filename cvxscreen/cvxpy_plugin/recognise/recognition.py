"""A recognised problem, and the exact way from its solution to all columns and multipliers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.core.problem import Problem
from cvxscreen.cvxpy_plugin.recognise.draft import Duals, Elimination, Step
from cvxscreen.cvxpy_plugin.recognise.l1_norm import L1Terms, l1_subgradient
from cvxscreen.cvxpy_plugin.recognise.max_affine import Maxima
from cvxscreen.cvxpy_plugin.recognise.opposite_hinges import Pairing
from cvxscreen.cvxpy_plugin.recognise.partial_minimisation import MinimisedOut
from cvxscreen.cvxpy_plugin.recognise.standard import Standard
from cvxscreen.errors import CvxscreenError

Array = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Recognition:
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
    parts : Parts
    l1_terms : Shrinkage or None
        The terms that are no losses of `problem` but its L1 norm.
    maxima : Maxima or None
        A part of the objective that is not in `problem`.
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
        needs = [abs(step.needs) for step in self.steps]
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
        for step in sorted(self.steps, key=_stage):
            step.dual(self.standard, duals)
        return duals.rows

    def residual(self, z: Array, multipliers: Array) -> Array:
        """Gradient of the Lagrangian of the canonical problem, shape (N,)."""
        own = self.standard.quadratic @ z + self.standard.linear
        return np.asarray(own - self.standard.rows.adjoint(multipliers))


def _stage(step: Step) -> int:
    """Multipliers of equalities come after those of the terms, those of dead zones last."""
    return 1 if isinstance(step, Elimination) else 2 if isinstance(step, MinimisedOut) else 0


@dataclass(frozen=True, eq=False)
class CostParts:
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


@dataclass(frozen=True, eq=False)
class UnusedColumns:
    """Columns that nothing depends on; they are put at 0. See `Step`.

    Attributes
    ----------
    columns : array of int, shape (k,)
    needs : CSR array, shape (k, N)
    """

    columns: Index
    needs: Any

    def primal(self, values: Array) -> Array:
        """See `Step.primal`."""
        return np.zeros(len(self.columns))

    def dual(self, standard: Standard, duals: Duals) -> None:
        """See `Step.dual`: no rows."""


def unused_columns(columns: Index, size: int) -> UnusedColumns:
    """A step that puts `columns` at 0."""
    return UnusedColumns(columns, sp.csr_array((len(columns), size)))
