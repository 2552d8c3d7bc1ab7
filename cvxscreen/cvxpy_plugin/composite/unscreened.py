"""A convex term that cannot be screened, kept as it is beside the losses that can.

It goes into every reduced problem word for word. What the proofs need of it is an affine minorant,
from subgradients that CVXPY computes: one where the term is smooth, a convex combination of several
where it has a kink.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from cvxscreen.cvxpy_plugin.composite.minorant import Minorant
from cvxscreen.cvxpy_plugin.recognise.recognition import Recognition
from cvxscreen.cvxpy_plugin.recognise.variable_values import preserved_values
from cvxscreen.errors import NotScreenable

Array = NDArray[np.float64]
Index = NDArray[np.intp]

ROUNDING = 1e-11
"""Relative rounding error that values and gradients of CVXPY are charged with."""

STEPS = (1e-8, 1e-7, 1e-6, 1e-5)
"""How far from a kink its other subgradients are looked for, relative to the point."""

TRIES = 12
"""Subgradients asked for at one distance."""


@dataclass(frozen=True, eq=False)
class UnscreenedTerm:
    """A convex expression in variables that are core coordinates.

    Attributes
    ----------
    expr : cvxpy.Expression
        To be minimised.
    places : tuple of (cvxpy.Variable, array of int)
        Its variables and the coordinates of their entries, column-major.
    size : int
        Number d of coordinates.
    """

    expr: Any
    places: tuple[tuple[Any, Index], ...]
    size: int

    @classmethod
    def of(cls, expr: Any, recognition: Recognition) -> UnscreenedTerm:
        """`expr` in the coordinates of `recognition`.

        Raises
        ------
        NotScreenable
            If it has variables that are none of them.
        """
        standard = recognition.standard
        place = np.full(standard.size, -1, dtype=np.intp)
        place[recognition.core] = np.arange(len(recognition.core))
        known = {v.id: k for k, v in enumerate(standard.variables)}
        places = []
        for variable in expr.variables():
            index = np.zeros(0, dtype=np.intp)
            if variable.id in known:
                k = known[variable.id]
                index = place[standard.starts[k] : standard.starts[k + 1]]
            if len(index) != variable.size or (index < 0).any():
                raise NotScreenable(
                    f"variable {variable.name()} of a term that cannot be screened is not among "
                    "those that the objective squares and the losses use"
                )
            places.append((variable, index))
        return cls(expr, tuple(places), recognition.problem.d)

    def touched(self) -> NDArray[np.bool_]:
        """Coordinates that occur, shape (d,)."""
        out = np.zeros(self.size, dtype=bool)
        for _, index in self.places:
            out[index] = True
        return out

    def written(self, z: Any) -> Any:
        """The expression in the entries of ``z`` instead of its variables."""
        ids = {
            id(variable): cp.reshape(z[index], variable.shape, order="F")
            for variable, index in self.places
        }
        return self.expr.tree_copy(ids)

    def at(self, x: Array) -> tuple[float, Array]:
        """Value and a subgradient at `x`.

        Raises
        ------
        NotScreenable
            Outside the domain, or where CVXPY knows no subgradient.
        """
        with preserved_values([variable for variable, _ in self.places]):
            for variable, index in self.places:
                variable.save_value(x[index].reshape(variable.shape, order="F"))
            value, found = self.expr.value, self.expr.grad
        slope = np.zeros(self.size)
        for variable, index in self.places:
            part = found.get(variable)
            if part is None:
                raise NotScreenable("CVXPY has no subgradient of a term that cannot be screened")
            dense = part.toarray() if hasattr(part, "toarray") else np.asarray(part)
            slope[index] += dense.ravel()
        if value is None or not (np.isfinite(value) and np.isfinite(slope).all()):
            raise NotScreenable("a term that cannot be screened is not finite at a solution")
        return float(value), slope

    def value(self, x: Array) -> float:
        """The value at `x`; infinite outside the domain."""
        try:
            return self.at(x)[0]
        except NotScreenable:
            return float("inf")

    def minorant(self, x: Array, target: Array, aim: float, weight: Array) -> Minorant:
        """An affine minorant near `x` whose slope is close to `target`.

        Parameters
        ----------
        x, target : array, shape (d,)
        aim : float
            What ``1/2 |slope - target|^2`` in the metric of `weight`, and the slack, may cost.
        weight : array, shape (d,)
            Positive.
        """
        value, slope = self.at(x)
        slopes, slacks = [slope], [0.0]
        best, slack = slope, 0.0
        root = np.sqrt(weight)
        touched = self.touched()
        size = 1.0 + float(np.abs(x[touched]).max(initial=0.0))

        def cost(found: Array, lost: float) -> float:
            return 0.5 * float(np.sum((root * (found - target))[touched] ** 2)) + lost

        for step in STEPS:
            for _ in range(TRIES):
                if cost(best, slack) <= aim:
                    break
                direction = np.where(touched, target - best, 0.0)
                length = float(np.linalg.norm(direction))
                if length == 0.0:
                    break
                there = x + (step * size / length) * direction
                level, other = self.at(there)
                lost = value - level - float(other @ (x - there))
                self._check(value, level, slope, other, x, there)
                slopes.append(other)
                slacks.append(max(lost, 0.0))
                mixed = _nearest(np.array(slopes) * root, target * root)
                found, spent = mixed @ np.array(slopes), float(mixed @ np.array(slacks))
                if cost(found, spent) >= cost(best, slack) * (1.0 - 1e-3):
                    break
                best, slack = found, spent
        rounding_bound = ROUNDING * (abs(value) + float(np.abs(best) @ np.abs(x)) + size)
        return Minorant(value, best, slack + rounding_bound, ROUNDING * np.abs(best))

    @staticmethod
    def _check(
        value: float, level: float, slope: Array, other: Array, x: Array, there: Array
    ) -> None:
        """Refuse gradients that are no subgradients: a convex function lies above both."""
        step = there - x
        room = 1e-9 * (1.0 + abs(value) + float(np.abs(slope) @ np.abs(x)))
        above = level - value - float(slope @ step)
        below = value - level + float(other @ step)
        if min(above, below) < -room:
            raise NotScreenable("CVXPY's gradient of a term that cannot be screened is wrong")


def _nearest(check_points: Array, target: Array) -> Array:
    """Weights of the convex combination of the rows of `points` nearest to `target`."""
    scale = max(1.0, float(np.abs(check_points).max()), float(np.abs(target).max()))
    heavy = 1e4 * scale
    matrix = np.vstack([check_points.T, np.full(len(check_points), heavy)])
    try:
        found = nnls(matrix, np.append(target, heavy))[0]
    except RuntimeError:
        found = np.zeros(len(check_points))
    total = float(found.sum())
    if not total > 0:
        found, total = np.eye(len(check_points))[0], 1.0
    return np.asarray(found / total)
