"""Coefficients of one affine number, read from the expression tree without building matrices.

::

    <weight, expr>  =  sum_v <coefficients of v, v>  +  constant

The weight that every entry has is passed on from the root towards the leaves, so that
``trace(H @ M)``, ``sum(multiply(H, M))`` and ``vec(H) @ vec(M)`` each cost one pass over ``H``.
Parameters are not read: whoever keeps the numbers would not notice that they change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.reducer.walker import MOVES, WRAPS, positions

Array = NDArray[np.float64]


class Unreadable(Exception):
    """The expression is not affine, holds a parameter, or a kind of node that is not known."""


class Row:
    """Coefficients of one affine number; see the module's docstring.

    Attributes
    ----------
    slopes : dict of int to array
        By variable identifier, of the variable's shape. Not to be written to.
    picks : list of (int, int, float)
        Single entries of variables: identifier, position (column-major), coefficient.
    constant : float
    """

    __slots__ = ("constant", "picks", "slopes")

    def __init__(self) -> None:
        self.slopes: dict[int, Array] = {}
        self.picks: list[tuple[int, int, float]] = []
        self.constant = 0.0

    def seen(self) -> list[int]:
        """Identifiers of the variables, perhaps more than once."""
        return [*self.slopes, *(key for key, _, _ in self.picks)]

    def entries(self, key: int) -> tuple[NDArray[np.intp], Array]:
        """Positions, perhaps more than once, and coefficients of one variable's entries."""
        flat = self.slopes[key].ravel(order="F") if key in self.slopes else np.zeros(0)
        where = np.flatnonzero(flat)
        alone = [(at, weight) for name, at, weight in self.picks if name == key]
        if not alone:
            return where, flat[where]
        at, weights = zip(*alone, strict=True)
        return np.append(where, at).astype(np.intp), np.append(flat[where], weights)

    def add(self, expr: Any, weight: Array) -> None:
        """Add ``<weight, expr>``.

        Parameters
        ----------
        expr : cvxpy.Expression
        weight : array
            Of the shape of `expr`.

        Raises
        ------
        Unreadable
            See there; the row is then of no use.
        """
        if isinstance(expr, cp.Constant):
            self.constant += float(np.sum(numbers(expr) * weight))
        elif isinstance(expr, cp.Variable):
            found = self.slopes.get(expr.id)
            self.slopes[expr.id] = weight if found is None else found + weight
        else:
            kind = type(expr).__name__
            if kind in _RULES:
                _RULES[kind](self, expr, weight)
            elif kind in WRAPS:
                self.add(expr.args[0], weight)
            elif kind in MOVES:
                _move(self, expr, weight)
            else:
                raise Unreadable


def numbers(constant: Any) -> Array:
    """The value of a constant as a dense array."""
    value = constant.value
    if np.iscomplexobj(value):
        raise Unreadable
    return np.asarray(value.toarray() if sp.issparse(value) else value, dtype=np.float64)


def fixed(expr: Any) -> bool:
    """Whether `expr` is a constant that no parameter changes."""
    if isinstance(expr, cp.Constant):
        return True
    return bool(expr.args and expr.is_constant() and not expr.parameters())


def _narrowed(weight: Array, shape: tuple[int, ...]) -> Array:
    """The weight of an array of `shape` that was broadcast to the shape of `weight`."""
    if weight.shape == shape:
        return weight
    spare = weight.ndim - len(shape)
    weight = weight.sum(axis=tuple(range(spare))) if spare else weight
    thin = tuple(k for k, n in enumerate(shape) if n == 1 and weight.shape[k] != 1)
    return np.asarray(weight.sum(axis=thin, keepdims=True) if thin else weight)


def _add(row: Row, expr: Any, weight: Array) -> None:
    for arg in expr.args:
        row.add(arg, _narrowed(weight, arg.shape))


def _negate(row: Row, expr: Any, weight: Array) -> None:
    row.add(expr.args[0], -weight)


def _multiply(row: Row, expr: Any, weight: Array) -> None:
    first, second = expr.args
    if not fixed(first):
        first, second = second, first
    if not fixed(first):
        raise Unreadable
    row.add(second, _narrowed(weight * numbers(first), second.shape))


def _divide(row: Row, expr: Any, weight: Array) -> None:
    first, second = expr.args
    if not fixed(second):
        raise Unreadable
    row.add(first, _narrowed(weight / numbers(second), first.shape))


def _matmul(row: Row, expr: Any, weight: Array) -> None:
    first, second = expr.args
    if first.shape == () or second.shape == ():
        _multiply(row, expr, weight)
        return
    if max(len(first.shape), len(second.shape)) > 2:
        raise Unreadable
    if fixed(first):
        left = numbers(first)
        if left.ndim == 1:
            row.add(second, left * weight if weight.ndim == 0 else np.outer(left, weight))
        else:
            row.add(second, left.T @ weight)
    elif fixed(second):
        right = numbers(second)
        if right.ndim == 1:
            row.add(first, right * weight if weight.ndim == 0 else np.outer(weight, right))
        else:
            row.add(first, right @ weight if weight.ndim == 1 else weight @ right.T)
    else:
        raise Unreadable


def _trace(row: Row, expr: Any, weight: Array) -> None:
    """``trace(A X) = <A', X>``: no product of matrices."""
    inner = expr.args[0]
    if type(inner).__name__ == "MulExpression":
        first, second = inner.args
        if len(first.shape) == len(second.shape) == 2:
            if fixed(first):
                row.add(second, weight * numbers(first).T)
                return
            if fixed(second):
                row.add(first, weight * numbers(second).T)
                return
    if len(inner.shape) != 2:
        raise Unreadable
    row.add(inner, weight * np.eye(inner.shape[0]))


def _sum(row: Row, expr: Any, weight: Array) -> None:
    if expr.axis is not None or expr.size != 1:
        raise Unreadable
    row.add(expr.args[0], np.full(expr.args[0].shape, weight.item()))


def _reshape(row: Row, expr: Any, weight: Array) -> None:
    arg = expr.args[0]
    row.add(arg, weight.reshape(arg.shape, order=expr.order))


def _transpose(row: Row, expr: Any, weight: Array) -> None:
    if weight.ndim == 2 and expr.axes in (None, (1, 0), [1, 0]):
        row.add(expr.args[0], weight.T)
    else:
        _move(row, expr, weight)


def _conjugate(row: Row, expr: Any, weight: Array) -> None:
    """Traces of real products were written with conjugates before CVXPY 1.9."""
    if expr.args[0].is_complex():
        raise Unreadable
    row.add(expr.args[0], weight)


def _index(row: Row, expr: Any, weight: Array) -> None:
    """A single entry of a variable, or a slice of anything."""
    arg = expr.args[0]
    if expr.size != 1 or not isinstance(arg, cp.Variable):
        _move(row, expr, weight)
        return
    place = tuple(part.start for part in expr.key)
    at = int(np.ravel_multi_index(place, arg.shape, order="F"))
    row.picks.append((arg.id, at, weight.item()))


def _move(row: Row, expr: Any, weight: Array) -> None:
    """Nodes whose entries are entries of their arguments, or zero."""
    flat = weight.ravel(order="F")
    for arg, index in zip(expr.args, positions(expr), strict=True):
        inside = index >= 0
        pulled = np.bincount(index[inside], weights=flat[inside], minlength=arg.size)
        row.add(arg, pulled.reshape(arg.shape, order="F"))


_RULES: dict[str, Callable[[Row, Any, Array], None]] = {
    "AddExpression": _add,
    "NegExpression": _negate,
    "multiply": _multiply,
    "DivExpression": _divide,
    "MulExpression": _matmul,
    "Trace": _trace,
    "trace": _trace,
    "Sum": _sum,
    "reshape": _reshape,
    "transpose": _transpose,
    "conj": _conjugate,
    "index": _index,
}
