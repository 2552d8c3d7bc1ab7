"""Squared distances of one moving point from many fixed ones, which differ by affine functions.

::

    |L z + b_i|^2 = s + <g_i, z> + h_i,      s = |L z + m|^2,  g_i = 2 L'(b_i - m),
                                             h_i = |b_i - m|^2 + 2 <b_i - m, m>

for any m (the mean of the b_i, so that little cancels). In a convex problem such squares stand only
where less of them is better, so that s may be a variable of its own with ``s >= |L z + m|^2``: one
cone where there were as many as rows, and rows of data where there was a square in each. Where a
radius of the user's takes s with it, ``r = a + s``, as in support vector data description::

    minimise  r + C sum_i xi_i     subject to     |c - x_i|^2 <= r + xi_i,     xi >= 0,

nothing is left of s but ``|L z + m|^2`` in the objective: a hinge of affine functions beside a
squared norm (Tax and Duin, "Support vector data description", 2004, in its primal form). A maximum
of such squares (the smallest enclosing ball) is s and a maximum of affine functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from cvxscreen.cvxpy_plugin.recognise.expressions import (
    as_vector,
    exchanged,
    read_affine,
)
from cvxscreen.cvxpy_plugin.recognise.matrices import csr
from cvxscreen.cvxpy_plugin.recognise.python_loops import summands_of
from cvxscreen.cvxpy_plugin.size import POWERS, ROWS, SIGNS, SQUARES, squared_rows

Array = NDArray[np.float64]

MANY = 50
"""Fewer squares are left as they are written."""

ROWS_OF_SQUARES = SQUARES | {"Sum"}


class Square(NamedTuple):
    """``s = |sum_v maps[v] vec(v) + centre|^2``.

    Attributes
    ----------
    maps : tuple of (cvxpy.Variable, CSR array)
    centre : array, shape (k,)
    """

    maps: tuple[tuple[Any, Any], ...]
    centre: Array

    def written(self) -> Any:
        """The square as an expression of CVXPY."""
        parts = [part @ as_vector(variable) for variable, part in self.maps]
        return cp.sum_squares(sum(parts[1:], parts[0]) + self.centre)

    def value(self, values: dict[int, Any]) -> float:
        """At values of the variables, by their identifiers."""
        inner = self.centre.copy()
        for variable, part in self.maps:
            inner += part @ np.asarray(values[variable.id]).ravel(order="F")
        return float(inner @ inner)


class Shifted(NamedTuple):
    """A scalar variable of the user's, ``variable = stand_in + square``."""

    variable: Any
    stand_in: Any
    square: Square

    def value(self, stand_in: Any, values: dict[int, Any]) -> Any:
        """The user's variable at the others' values, which it has the form of."""
        return np.asarray(stand_in) + self.square.value(values)


def without_shared_squares(problem: Any) -> tuple[Any, Shifted | None]:
    """`problem` with squares that differ by affine functions as these functions; see above.

    Parameters
    ----------
    problem : cvxpy.Problem

    Returns
    -------
    cvxpy.Problem
        `problem` itself where it has none. Constraints that are written anew keep their
        identifiers.
    Shifted or None
        The user's variable that is not in it any more.
    """
    if not SQUARES & {atom.__name__ for atom in problem.atoms()}:
        return problem, None
    common, anew, affine = cp.Variable(), dict[int, Any](), dict[int, Any]()
    square: Square | None = None
    roots = [problem.objective.expr, *(arg for c in problem.constraints for arg in c.args)]
    nodes = [node for root in roots for node in _candidates(root)]
    for node in nodes:
        read = _apart(node, square)
        if read is not None:
            square, affine[id(node)] = read
            anew[id(node)] = cp.reshape(affine[id(node)], node.shape, order="F") + common
    for node in nodes:
        if type(node) is cp.max and id(node.args[0]) in affine:
            anew[id(node)] = common + cp.max(affine[id(node.args[0])])
    if square is None:
        return problem, None
    for variable in (None, *(v for v in problem.variables() if v.size == 1 and not _signed(v))):
        taken = _without(problem, anew, common, square, variable)
        if taken is not None:
            return taken
    made = [exchanged(part, anew) for part in (problem.objective, *problem.constraints)]
    whole = cp.Problem(made[0], [*made[1:], square.written() <= common])
    return (whole, None) if whole.is_dcp() else (problem, None)


def _without(
    problem: Any, anew: dict[int, Any], common: Any, square: Square, variable: Any
) -> tuple[Any, Shifted | None] | None:
    """The problem without `common`, which `variable` takes with it; None where it does not."""
    places, shifted = dict(anew), None
    if variable is not None:
        shifted = Shifted(variable, cp.Variable(variable.shape), square)
        places[id(variable)] = shifted.stand_in + common
    made = [exchanged(part, places) for part in (problem.objective, *problem.constraints)]
    sides = [part for c in made[1:] for part in ([c.expr] if type(c) in ROWS else c.args)]
    if any(_share(part, common) != 0.0 for part in sides):
        return None
    costs = [(part, _share(part.expr, common)) for part in summands_of(made[0].expr)]
    if any(share is None for _, share in costs):
        return None
    nothing = {id(common): cp.Constant(0.0)}
    objective, *constraints = (exchanged(part, nothing) for part in made)
    total = objective.expr
    for part, share in costs:
        if share:
            total = total + part._replace(expr=share * square.written()).written()
    whole = cp.Problem(type(objective)(total), constraints)
    return (whole, shifted) if whole.is_dcp() else None


def _share(expr: Any, common: Any) -> float | None:
    """What every entry of `expr` has of `common`; None where that is not one number.

    Inside of an atom that is not affine it must be nothing.
    """
    if all(variable is not common for variable in expr.variables()):
        return 0.0
    if expr.is_affine():
        block = csr(read_affine(expr).blocks[common.id])
        entries = block.toarray().ravel()
        return float(entries[0]) if (entries == entries[0]).all() else None
    if type(expr).__name__ == "AddExpression":
        shares = [_share(arg, common) for arg in expr.args]
        return None if None in shares else sum(share for share in shares if share is not None)
    return 0.0 if all(_share(arg, common) == 0.0 for arg in expr.args) else None


def _signed(variable: Any) -> bool:
    return any(variable.attributes[name] for name in (*SIGNS, "integer", "boolean"))


def _candidates(expr: Any) -> Iterator[Any]:
    """Rows of squares, and maxima, from the leaves up."""
    for arg in expr.args:
        yield from _candidates(arg)
    if type(expr) is cp.max or (expr.size >= MANY and type(expr).__name__ in ROWS_OF_SQUARES):
        yield expr


def _rows(node: Any) -> tuple[Any, int] | None:
    """The affine expression in two dimensions whose rows `node` squares, and their axis."""
    inner = squared_rows(node)
    if inner is None or inner.parameters():
        return None
    if type(node) is cp.quad_over_lin:
        divisor = node.args[1]
        if not divisor.is_constant() or divisor.parameters() or divisor.value != 1.0:
            return None
    axis = getattr(node.args[0] if type(node).__name__ in POWERS else node, "axis", None)
    return (inner, axis % 2) if axis in (0, 1, -1, -2) else None


def _apart(node: Any, square: Square | None) -> tuple[Square, Any] | None:
    """The square that the rows of `node` share, `square` if that is given, and their affine rest.

    None where they share none, or another one.
    """
    found = _rows(node) if type(node).__name__ in ROWS_OF_SQUARES else None
    if found is None:
        return None
    inner, axis = found
    n, k = inner.shape if axis == 1 else inner.shape[::-1]
    read, order = read_affine(inner), np.arange(n * k).reshape(k, n)
    if axis == 0:
        order = np.arange(n * k).reshape(n, k).T
    fixed = read.constant[order]  # (k, n)
    if not np.isfinite(fixed).all() or not read.blocks:
        return None
    known = {variable.id: variable for variable in inner.variables()}
    maps = []
    for key, block in read.blocks.items():
        rows = csr(block)[order.ravel()]
        rows.sum_duplicates()
        first = _same_rows(rows, k, n)
        if first is None:
            return None
        maps.append((known[key], first))
    if square is None:
        square = Square(tuple(maps), fixed.mean(axis=1))
    elif not _same_maps(square.maps, tuple(maps)):
        return None
    away = fixed - square.centre[:, None]
    height = np.einsum("kn,kn->n", away, away + 2.0 * square.centre[:, None])
    parts = []
    for variable, part in maps:
        slope = 2.0 * np.ascontiguousarray((part.T @ away).T)
        parts.append(cp.multiply(slope.ravel(), variable) if variable.ndim == 0
                     else slope @ as_vector(variable))
    return square, sum(parts[1:], parts[0]) + height


def _same_rows(rows: Any, k: int, n: int) -> Any:
    """One row of each of `k` groups of `n` equal ones, shape (k, N); None where they differ."""
    counts = np.diff(rows.indptr).reshape(k, n)
    if (counts != counts[:, :1]).any():
        return None
    for j in range(k):
        span = slice(rows.indptr[j * n], rows.indptr[(j + 1) * n])
        for part in (rows.indices[span], rows.data[span]):
            table = part.reshape(n, -1)
            if (table != table[0]).any():
                return None
    return rows[np.arange(k) * n]


def _same_maps(first: Any, second: Any) -> bool:
    return len(first) == len(second) and all(
        one is two and a.shape == b.shape and (a != b).nnz == 0
        for (one, a), (two, b) in zip(first, second, strict=True)
    )
