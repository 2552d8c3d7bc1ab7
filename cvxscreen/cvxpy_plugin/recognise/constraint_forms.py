"""Constraints as ``lower <= upper`` and ``left == right``, of one expression each.

::

    NonNeg(e), NonPos(e), Zero(e)          0 <= e,  e <= 0,  e == 0
    hstack([u, v]) >= hstack([a, b])       u >= a,  v >= b          (vstack and the like, too)
    U.T >= A.T                             U >= A

The rules, and what reads slack variables, know the forms on the right. Every entry of a new
constraint is one of the user's, whose dual value it gives back (`Rewritten`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
from cvxpy.atoms.affine.promote import promote
from cvxpy.constraints.nonpos import Inequality
from cvxpy.constraints.zero import Equality
from numpy.typing import NDArray

from cvxscreen.cvxpy_plugin.recognise.expressions import ENTRYWISE, flat, positions
from cvxscreen.cvxpy_plugin.recognise.python_loops import STACKS

Index = NDArray[np.intp]
Sides = tuple[Any, Any]

FORMS = (Inequality, Equality)

MOST_PARTS = 20
"""A stack of more comes from a loop; it is one expression to the rules as well."""


class Rewritten(NamedTuple):
    """A constraint of the user's and those in its place.

    Attributes
    ----------
    constraint : cvxpy constraint
    parts : tuple of (cvxpy constraint, array of int)
        With the places of its entries among those of `constraint`, column-major.
    """

    constraint: Any
    parts: tuple[tuple[Any, Index], ...]

    def together(self, duals: dict[int, Any]) -> dict[int, Any]:
        """Dual values by identifier of the user's constraint instead of those of its parts."""
        if any(part.id not in duals for part, _ in self.parts):
            return duals
        left, whole = dict(duals), np.zeros(self.constraint.size)
        for part, places in self.parts:
            whole[places] = np.asarray(left.pop(part.id), dtype=np.float64).ravel(order="F")
        shape = self.constraint.shape
        left[self.constraint.id] = whole.reshape(shape, order="F") if shape else float(whole[0])
        return left


def in_two_forms(problem: Any) -> tuple[Any, tuple[Rewritten, ...]]:
    """`problem` with its constraints in these forms, and which of them had another one.

    Parameters
    ----------
    problem : cvxpy.Problem

    Returns
    -------
    cvxpy.Problem
        `problem` itself where all of them are as they should be.
    tuple of Rewritten
    """
    made: list[Any] = []
    found: list[Rewritten] = []
    for constraint in problem.constraints:
        sides = _sides(constraint)
        parts = [] if sides is None else list(_parts(sides, np.arange(constraint.size)))
        if sides is None or (type(constraint) in FORMS and parts[0][0] is sides):
            made.append(constraint)
            continue
        form = Equality if type(constraint) in (Equality, cp.Zero) else Inequality
        written = tuple((form(*pair), places) for pair, places in parts)
        found.append(Rewritten(constraint, written))
        made += [part for part, _ in written]
    return (cp.Problem(problem.objective, made), tuple(found)) if found else (problem, ())


def _sides(constraint: Any) -> Sides | None:
    """The lower and the upper side, or both of an equation; None of other constraints."""
    if type(constraint) in FORMS:
        lower, upper = constraint.args
        return lower, upper
    if type(constraint) is cp.NonNeg:
        return cp.Constant(0.0), constraint.args[0]
    if type(constraint) in (cp.NonPos, cp.Zero):
        return constraint.args[0], cp.Constant(0.0)
    return None


def _parts(sides: Sides, places: Index) -> Iterator[tuple[Sides, Index]]:
    """Pairs of sides that say the same, and the places of their entries; `sides` if it is all.

    Parameters
    ----------
    places : array of int
        Those of the entries of `sides`.
    """
    shape = np.broadcast_shapes(*(side.shape for side in sides))
    apart = _unstacked(sides, shape)
    if apart:
        for pair, inside in apart:
            yield from _parts(pair, places[inside])
    elif len(shape) == 2 and any(map(_has_turned, sides)) and not any(s.ndim == 1 for s in sides):
        back = places.reshape(shape, order="F").T.flatten(order="F")
        yield (_turned(sides[0]), _turned(sides[1])), back
    else:
        yield sides, places


def _unstacked(sides: Sides, shape: tuple[int, ...]) -> list[tuple[Sides, Index]]:
    """The same for each of what a side stacks, or both stack alike; empty where none does."""
    stacks = [_stacked(side) for side in sides]
    whole = stacks[0] or stacks[1]
    if whole is None:
        return []
    shapes = [part.shape for part in whole[0]]
    for side, stack in zip(sides, stacks, strict=True):
        number = side.is_constant() and not side.parameters()
        if not (number if stack is None else [part.shape for part in stack[0]] == shapes):
            return []
    found = []
    for k, index in enumerate(whole[1]):
        pair = [
            stack[0][k] if stack is not None else _entries(side, shape, index, whole[0][k].shape)
            for side, stack in zip(sides, stacks, strict=True)
        ]
        found.append(((pair[0], pair[1]), index))
    return found


def _stacked(side: Any) -> tuple[list[Any], list[Index]] | None:
    """What `side` is a stack of, or the negative of one, and the places of each; else None.

    Not of numbers, which come from a loop.
    """
    if type(side).__name__ == "NegExpression":
        inner = _stacked(side.args[0])
        return None if inner is None else ([-part for part in inner[0]], inner[1])
    if type(side).__name__ not in STACKS or side.is_constant():
        return None
    parts = list(side.args)
    if not 2 <= len(parts) <= MOST_PARTS or any(part.size < 2 for part in parts):
        return None
    index = []
    for at in positions(side):
        inside = np.flatnonzero(at >= 0)
        index.append(inside[np.argsort(at[inside])])
    return parts, index


def _entries(side: Any, shape: tuple[int, ...], index: Index, part: tuple[int, ...]) -> Any:
    """The entries at `index` of a constant broadcast to `shape`, in the shape of a `part`."""
    if side.size == 1:
        return cp.Constant(float(flat(side.value, 1)[0]))
    value = side.value
    dense = value.toarray() if hasattr(value, "toarray") else np.asarray(value, dtype=np.float64)
    entries = np.broadcast_to(dense, shape).flatten(order="F")[index]
    return cp.Constant(entries.reshape(part, order="F"))


def _has_turned(side: Any) -> bool:
    """Whether a summand of `side` is the transpose of what is not constant."""
    if type(side).__name__ in ENTRYWISE:
        return any(map(_has_turned, side.args))
    return type(side).__name__ == "transpose" and not side.is_constant()


def _turned(side: Any) -> Any:
    """The transpose of `side`, that of a transpose being what it is of."""
    if type(side).__name__ == "transpose":
        return side.args[0]
    if type(side).__name__ == "Promote":
        return promote(side.args[0], side.shape[::-1])
    if type(side).__name__ in ENTRYWISE and all(arg.ndim in (0, 2) for arg in side.args):
        return side.copy([_turned(arg) for arg in side.args])
    return side.T
