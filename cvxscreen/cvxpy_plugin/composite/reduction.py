"""What is left of ``F + g`` when some terms of F and some pieces of g's maxima are decided."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen.core.problem import Problem
from cvxscreen.cvxpy_plugin.composite.problem import CompositeProblem
from cvxscreen.cvxpy_plugin.recognise.max_affine import Maxima
from cvxscreen.screening.reduction import Selection

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class CompositeReduction:
    """The smaller problem; see the module's docstring.

    Attributes
    ----------
    made : Beside
    selection : Selection
        Of the terms of F, folded.
    pieces : array of bool, shape (p,)
        Pieces that may be active.
    reduced : Problem
        F without what is decided, with the maxima of one piece as a linear term.
    rest : Maxima or None
        The others.
    index : array of int
        Positions of their pieces.
    """

    made: CompositeProblem
    selection: Selection
    pieces: Mask
    reduced: Problem
    rest: Maxima | None
    index: Index

    @classmethod
    def of(cls, made: CompositeProblem, selection: Selection, pieces: Mask) -> CompositeReduction:
        """Leave out what is decided."""
        problem, maxima = made.recognition.problem, made.maxima
        selection = selection.folded(problem)
        reduced, rest, index = selection.reduce(problem), maxima, np.arange(len(pieces))
        if maxima is not None:
            slope, constant, rest, index = maxima.split(pieces)
            reduced = replace(
                reduced, linear=reduced.linear + slope, constant=reduced.constant + constant
            )
        return cls(made, selection, pieces, reduced, rest, index)

    @property
    def kept(self) -> int:
        """Terms and maxima that are left."""
        return len(self.selection.kept) + (0 if self.rest is None else self.rest.n)

    def lift(self, x: Array, theta: Array, found: Array | None) -> tuple[Array, Array, Any]:
        """A solution of what is left on all of the terms and pieces.

        Parameters
        ----------
        x, theta : arrays
        found : array or None
            Slopes of the pieces that are left.

        Returns
        -------
        x, theta : arrays
        shares : array, shape (p,), or None where there are no maxima
        """
        problem, maxima = self.made.recognition.problem, self.made.maxima
        x, theta = self.selection.lift(problem, self.reduced, x, theta)
        if maxima is None:
            return x, theta, None
        shares = np.zeros(len(self.pieces))
        if self.rest is not None and found is not None:
            shares[self.index] = found
        alone = self.pieces.copy()
        alone[self.index] = False
        shares[alone] = maxima.cost[maxima.owner][alone]
        return x, theta, shares


@dataclass(eq=False)
class WriteComposite:
    """The part of g that goes into a program of CVXPY, and where its slopes are found there.

    Attributes
    ----------
    maxima : Maxima or None
    unscreened : Verbatim or None
    """

    maxima: Maxima | None
    unscreened: Any
    _row: Any = field(default=None, init=False)

    def __call__(self, z: Any) -> tuple[Any, list[Any]]:
        """Cost and constraints in terms of the vector variable `z`."""
        cost: Any = 0.0
        constraints: list[Any] = []
        if self.maxima is not None:
            cost, self._row = self.maxima.written(z)
            constraints = [self._row]
        if self.unscreened is not None:
            cost = cost + self.unscreened.written(z)
        return cost, constraints

    def shares(self) -> Array | None:
        """Slopes of the pieces after a solve; None where the solver gave none."""
        if self._row is None or self._row.dual_value is None:
            return None
        return np.asarray(self._row.dual_value, dtype=np.float64).ravel()
