"""What undoes an elimination: from the core coordinates and slopes to all columns and multipliers.

Every rule leaves a `Step`, beside the rule (`elimination`, `epigraph`, `max_affine`). Here is what
all of them have, and what a problem takes that no rule has anything to do with.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen.cvxpy_plugin.recognise.standard import Standard

Array = NDArray[np.float64]
Index = NDArray[np.intp]


class Step:
    """One elimination, undone; the base of all steps.

    Attributes
    ----------
    columns : array of int, shape (k,)
        The columns it eliminated.
    needs : CSR array, shape (k, N)
        Non-zero where a column must be known before.
    stage : int
        Multipliers of equalities come after those of the terms, those of dead zones last.
    substituted : bool
        Whether the columns are substituted everywhere by what `needs` holds.
    """

    columns: Index
    needs: Any
    stage: ClassVar[int] = 0
    substituted: ClassVar[bool] = False

    def primal(self, values: Array) -> Array:
        """Values of `columns` from the rows' values (own columns at 0), shape (k,)."""
        return np.zeros(len(self.columns))

    def dual(self, standard: Standard, duals: Duals) -> None:
        """Fill in the multipliers of the rows that the step used."""

    def within(self, core: Index, x: Array) -> Array:
        """The values `x` of the columns `core`, moved to where the step holds."""
        return x

    def still_held(self) -> Index:
        """Inequalities of the user's that are losses now, and may be violated on the way."""
        return np.zeros(0, dtype=np.intp)

    def paid(self) -> list[tuple[Index, Index]]:
        """Which columns pay for which of the terms found, -1 for none: pairs of both."""
        return []

    def times(self, ratio: Array) -> Step:
        """The same with the cost of each column multiplied by its entry of `ratio`, shape (N,)."""
        return self


@dataclass(eq=False)
class Duals:
    """A solution on its way back to the canonical problem.

    Attributes
    ----------
    z : array, shape (N,)
        All columns.
    theta : array, shape (n,)
        Slopes of the loss terms.
    rows : array, shape (m,)
        Multipliers found so far, 0 elsewhere.
    shares : array, shape (p,)
        Slopes of the pieces of maxima that are no loss terms.
    """

    z: Array
    theta: Array
    rows: Array
    shares: Array = field(default_factory=lambda: np.zeros(0))


class GroupTerms(Step, Immutable):
    """The terms of one group of losses that was read off the objective; see `Step`.

    Attributes
    ----------
    columns : array of int, shape (0,)
    needs : CSR array, shape (0, N)
    group : int
        Its position.
    paying : array of int, shape (k,)
        Which entries of the group have a weight.
    rows : array of int, shape (k,)
        Their rows.
    terms : array of int, shape (k,)
        Their positions among the terms found.
    """

    columns: Index
    needs: Any
    group: int
    paying: Index
    rows: Index
    terms: Index

    def dual(self, standard: Standard, duals: Duals) -> None:
        """See `Step.dual`: no constraint; what the terms pull at the columns of their rows."""
        duals.rows[self.rows] = -duals.theta[self.terms]


class Pairing(NamedTuple):
    """Which of the terms found are which of the problem's terms.

    Attributes
    ----------
    first : array of int, shape (n,)
        The found term whose row the problem's term has.
    second : array of int, shape (n,)
        The found term on the other side, with the opposite row; -1 for a term of its own.
    found : int
        Number of terms found.
    """

    first: Index
    second: Index
    found: int

    def split(self, theta: Array) -> Array:
        """Slopes of the problem's terms as slopes of the terms found, shape (found,)."""
        paired = self.second >= 0
        if not paired.any():
            return theta
        out = np.zeros(self.found)
        out[self.first] = np.where(paired, np.minimum(theta, 0.0), theta)
        out[self.second[paired]] = -np.maximum(theta[paired], 0.0)
        return out
