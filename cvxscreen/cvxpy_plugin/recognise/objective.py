"""Numbers of the canonical objective: affine but for squares of variables.

::

    objective(z) = sum_v  1/2 <v, squares[v] v> + <slopes[v], v>   +  constant

Walked from the root towards the leaves with the weight that each entry has in the objective, so a
weighted sum of squares costs one pass. A node that is not known sends the whole objective through
CVXPY's own extraction; nothing is ever skipped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.reductions.eval_params import EvalParams
from cvxpy.reductions.inverse_data import InverseData
from cvxpy.reductions.utilities import ReducedMat
from cvxpy.utilities.coeff_extractor import CoeffExtractor
from numpy.typing import NDArray

from cvxscreen.cvxpy_plugin.recognise.affine import (
    MOVES,
    WRAPS,
    broadcast_positions,
    positions,
    read_affine,
)
from cvxscreen.cvxpy_plugin.recognise.matrices import column_sums
from cvxscreen.errors import NotScreenable

Array = NDArray[np.float64]


@dataclass(eq=False)
class Objective:
    """The objective's numbers by variable identifier.

    Attributes
    ----------
    squares : dict of int to CSR array, shape (size, size)
        Twice the matrix of the squares, symmetric.
    slopes : dict of int to array, shape (size,)
    constant : float
    """

    squares: dict[int, Any] = field(default_factory=dict)
    slopes: dict[int, Array] = field(default_factory=dict)
    constant: float = 0.0

    def add_square(self, key: int, matrix: Any) -> None:
        """Add ``1/2 <v, matrix v>``."""
        self.squares[key] = self.squares[key] + matrix if key in self.squares else matrix

    def add_slope(self, key: int, vector: Array) -> None:
        """Add ``<vector, v>``."""
        self.slopes[key] = self.slopes[key] + vector if key in self.slopes else vector


def read_objective(expr: Any) -> Objective:
    """Evaluate the canonical objective `expr`; see the module's docstring.

    Raises
    ------
    NotScreenable
        If CVXPY cannot extract it either.
    """
    out = Objective()
    try:
        _add_weighted(expr, np.ones(1), out)
    except _Unknown:
        return _extract(expr)
    return out


class _Unknown(Exception):
    """A node kind that the walk does not know."""


def _add_weighted(expr: Any, weight: Array, out: Objective) -> None:
    """Add ``<weight, vec(expr)>`` to `out`."""
    kind = type(expr).__name__
    if kind == "SymbolicQuadForm":
        _square(expr, weight, out)
        return
    if expr.is_affine():
        part = read_affine(expr)
        for key, block in part.blocks.items():
            out.add_slope(key, column_sums(block, weight))
        out.constant += float(part.constant @ weight)
        return
    if kind in WRAPS:
        _add_weighted(expr.args[0], weight, out)
    elif kind == "NegExpression":
        _add_weighted(expr.args[0], -weight, out)
    elif kind == "AddExpression":
        for arg in expr.args:
            _add_weighted(arg, _gather(arg, expr.shape, weight), out)
    elif kind in ("multiply", "DivExpression") or (kind == "MulExpression" and _scalar(expr)):
        _scaled(expr, weight, out)
    elif kind == "MulExpression" and expr.args[0].is_constant() and len(expr.shape) == 0:
        left = np.asarray(expr.args[0].value, dtype=np.float64).ravel()
        _add_weighted(expr.args[1], left * weight[0], out)
    elif kind == "Sum" and expr.size == 1:
        _add_weighted(expr.args[0], np.full(expr.args[0].size, weight[0]), out)
    elif kind in MOVES:
        for arg, index in zip(expr.args, positions(expr), strict=True):
            carried = np.zeros(arg.size)
            np.add.at(carried, index[index >= 0], weight[index >= 0])
            _add_weighted(arg, carried, out)
    else:
        raise _Unknown


def _scalar(expr: Any) -> bool:
    return expr.args[0].shape == () or expr.args[1].shape == ()


def _gather(arg: Any, shape: tuple[int, ...], weight: Array) -> Array:
    """Weights of the entries of `arg` when it is broadcast to `shape`."""
    carried = np.zeros(arg.size)
    np.add.at(carried, broadcast_positions(arg, shape), weight)
    return carried


def _numbers(constant: Any) -> Array:
    """The value of a constant as a dense array."""
    value = constant.value
    return np.asarray(value.toarray() if sp.issparse(value) else value, dtype=np.float64)


def _scaled(expr: Any, weight: Array, out: Objective) -> None:
    first, second = expr.args
    if type(expr).__name__ == "DivExpression":
        factor, other = 1.0 / _numbers(second), first
    elif first.is_constant():
        factor, other = _numbers(first), second
    elif second.is_constant():
        factor, other = _numbers(second), first
    else:
        raise _Unknown
    scale = np.broadcast_to(factor, expr.shape).flatten(order="F")
    _add_weighted(other, _gather(other, expr.shape, weight * scale), out)


def _square(expr: Any, weight: Array, out: Objective) -> None:
    variable, value = expr.args[0], expr.P.value
    if not isinstance(variable, cp.Variable) or value is None:
        raise _Unknown
    if sp.issparse(value):
        matrix = sp.csr_array(value, dtype=np.float64)
    else:
        matrix = sp.csr_array(np.asarray(value, dtype=np.float64))
    if expr.size == 1:
        out.add_square(variable.id, sp.csr_array((matrix + matrix.T) * weight[0]))
        return
    diagonal = matrix.diagonal()
    if abs(matrix - sp.diags_array(diagonal)).sum() > 0:
        raise _Unknown
    groups = getattr(expr, "block_indices", None)
    if groups is None:
        rows = weight
    else:
        rows = np.zeros(variable.size)
        for value_weight, index in zip(weight, groups, strict=True):
            rows[index] += value_weight
    out.add_square(variable.id, sp.csr_array(sp.diags_array(2.0 * diagonal * rows)))


def _extract(expr: Any) -> Objective:
    """The same numbers by CVXPY's own extraction."""
    problem, _ = EvalParams().apply(cp.Problem(cp.Minimize(expr)))
    inverse = InverseData(problem)
    try:
        squares, slopes = CoeffExtractor(inverse, "SCIPY").quad_form(problem.objective.expr.copy())
    except (AssertionError, NotImplementedError, ValueError) as error:
        raise NotScreenable(f"the objective cannot be read as a quadratic: {error}") from None
    size = inverse.x_length
    matrix, _ = _apply(ReducedMat(squares, size, quad_form=True))
    linear = np.asarray(sp.csr_array(slopes).toarray())[:, -1]
    out = Objective(constant=float(linear[-1]))
    full = sp.csr_array(matrix)
    for variable in problem.variables():
        start = inverse.var_offsets[variable.id]
        span = slice(start, start + variable.size)
        block = sp.csr_array(full[span, span])
        out.add_square(variable.id, sp.csr_array(block + block.T))
        out.add_slope(variable.id, linear[span].astype(np.float64))
    return out


def _apply(reduced: Any) -> tuple[Any, Any]:
    reduced.cache()
    return reduced.get_matrix_from_tensor(np.ones(1), with_offset=False)
