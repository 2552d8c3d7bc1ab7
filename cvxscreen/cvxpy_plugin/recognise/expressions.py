"""What is read from CVXPY's expressions as numbers, and the values of its variables.

*Affine expressions*, one matrix a variable and a constant (`read_affine`)::

    vec(expression) = sum_v  blocks[v.id] @ vec(v)  +  constant         (column-major vec)

A walk over the expression tree with NumPy and SciPy. Nodes that only move entries around (slices,
reshapes, stacks ...) are read by letting the node act on an array of positions, so they need no
code of their own; a kind of node that is not known goes through CVXPY's `CoeffExtractor`.

*The canonical objective*, affine but for squares of variables (`read_objective`)::

    objective(z) = sum_v  1/2 <v, squares[v] v> + <slopes[v], v>   +  constant

Walked from the root towards the leaves with the weight that each entry has in the objective, so a
weighted sum of squares costs one pass. A node that is not known sends the whole objective through
CVXPY's own extraction; nothing is ever skipped. Parameters are read by value.

*Values of variables*, lent for a moment (`preserved_values`), and with or without their symmetry:
CVXPY's `CvxAttr2Constr` puts the upper triangle in the place of a symmetric variable and the
diagonal in the place of a diagonal one (``PSD=True``, ``diag=True`` ...). `free_entries` and
`full_value` are these two maps for values, which CVXPY keeps to itself under names that change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.cvxcore.python import canonInterface
from cvxpy.reductions.eval_params import EvalParams
from cvxpy.reductions.inverse_data import InverseData
from cvxpy.reductions.utilities import ReducedMat
from cvxpy.utilities.coeff_extractor import CoeffExtractor
from numpy.typing import NDArray

from cvxscreen.cvxpy_plugin.recognise.matrices import (
    Diagonal,
    Matrix,
    add,
    column_sums,
    csr,
    repeated,
    repeated_along,
    rows_of_several,
    scale_rows,
    stack,
    stored,
    take_rows,
    times,
)
from cvxscreen.errors import NotScreenable

Array = NDArray[np.float64]


MOVES = frozenset(
    (
        "index", "special_index", "reshape", "transpose", "permute_dims", "broadcast_to",
        "Promote", "Hstack", "Vstack", "Concatenate", "diag_vec", "diag_mat", "upper_tri",
    )
)
"""Kinds of nodes whose entries are entries of their arguments (or zero)."""

ENTRYWISE = frozenset(("AddExpression", "NegExpression", "multiply", "DivExpression"))
"""Affine nodes whose entries depend on the same entries of their arguments, or on a number."""

WRAPS = frozenset(
    (
        "nonneg_wrap", "nonpos_wrap", "psd_wrap", "nsd_wrap", "symmetric_wrap", "hermitian_wrap",
        "Wrap",
    )
)
"""Kinds of nodes that only assert something about their argument."""


class Affine(NamedTuple):
    """Numbers of one affine expression.

    Attributes
    ----------
    blocks : dict of int to matrix
        By variable identifier, shape (rows, size of the variable).
    constant : array, shape (rows,)
    """

    blocks: dict[int, Matrix]
    constant: Array

    def map(self, change: Callable[[Matrix], Matrix], constant: Array) -> Affine:
        """Every block changed alike, with a new constant."""
        return Affine({key: change(block) for key, block in self.blocks.items()}, constant)


def flat(value: Any, size: int) -> Array:
    """A constant's value as a column-major vector, scalars repeated, shape (size,)."""
    dense = value.toarray() if sp.issparse(value) else np.asarray(value, dtype=np.float64)
    vector = dense.ravel(order="F").astype(np.float64, copy=False)
    return np.full(size, vector[0]) if vector.size == 1 and size != 1 else vector


def read_affine(expr: Any, factor: float = 1.0) -> Affine:
    """Evaluate the affine expression ``factor * expr``; see the module's docstring."""
    found = _Sum(expr.size)
    _add_entries(expr, factor, found)
    return found.affine()


@dataclass(eq=False)
class _Sum:
    """An affine expression while it is read.

    Factors are carried from the root of the expression to its leaves, so that no matrix and no
    vector is scaled twice, and data are held as they are as long as nothing multiplies them.

    Attributes
    ----------
    size : int
        Number of entries.
    constant : float or array, shape (size,)
    parts : dict of int to list of matrix
        By variable: the matrices whose sum is its block.
    """

    size: int
    constant: Any = 0.0
    parts: dict[int, list[Matrix]] = field(default_factory=dict)

    def add_constant(self, value: Any, scale: Any) -> None:
        """Add ``scale * value``, each a number or a vector."""
        self.constant = self.constant + (value if _is_one(scale) else scale * value)

    def add_block(self, key: int, block: Matrix, scale: Any) -> None:
        """Add ``diag(scale) @ block`` to what the variable `key` has."""
        if not _is_one(scale):
            block = scale_rows(block, np.broadcast_to(scale, block.shape[0]))
        self.parts.setdefault(key, []).append(block)

    def add(self, other: Affine, scale: Any) -> None:
        """Add ``scale`` times an affine expression that has been read."""
        if other.constant.any():
            self.add_constant(other.constant, scale)
        for key, block in other.blocks.items():
            self.add_block(key, block, scale)

    def affine(self) -> Affine:
        """What was read, as one affine function."""
        blocks = {key: _total(parts) for key, parts in self.parts.items()}
        constant = np.asarray(self.constant, dtype=np.float64)
        return Affine(blocks, np.full(self.size, constant) if not constant.ndim else constant)


def _is_one(scale: Any) -> bool:
    """Whether a factor is the number 1."""
    return isinstance(scale, float) and scale == 1.0


def _total(parts: list[Matrix]) -> Matrix:
    """The sum of matrices of one shape."""
    if len(parts) > 2 and not any(isinstance(part, Diagonal) for part in parts):
        rows, columns = parts[0].shape
        return stack([(0, part) for part in parts], rows, columns)
    total = parts[0]
    for part in parts[1:]:
        total = add(total, part)
    return total


def _add_entries(expr: Any, scale: Any, out: _Sum) -> None:
    """Add ``scale * vec(expr)``, `scale` a float or one factor for every entry."""
    kind = type(expr).__name__
    if isinstance(expr, cp.Variable):
        out.add_block(expr.id, Diagonal(np.ones(expr.size)), scale)
    elif kind == "Promote":
        _add_broadcast(expr.args[0], expr.shape, scale, out)
    elif expr.is_constant():
        out.add_constant(flat(expr.value, expr.size), scale)
    elif kind in WRAPS:
        _add_entries(expr.args[0], scale, out)
    elif kind == "NegExpression":
        _add_entries(expr.args[0], -scale, out)
    elif kind == "AddExpression":
        for arg in expr.args:
            _add_broadcast(arg, expr.shape, scale, out)
    elif kind in MOVES:
        out.add(_move(expr), scale)
    elif (found := _multiple(kind, expr)) is not None:
        other, factor = found
        if np.any(factor) or other.is_affine():  # a weight of 0 makes whatever it weighs affine
            _add_broadcast(other, expr.shape, factor if _is_one(scale) else scale * factor, out)
    else:
        read = _RULES[kind](expr) if kind in _RULES else None
        out.add(extract_affine(expr) if read is None else read, scale)


def _add_broadcast(arg: Any, shape: tuple[int, ...], scale: Any, out: _Sum) -> None:
    """Add ``scale`` times the entries of `arg`, broadcast to `shape`."""
    if arg.shape == shape:
        _add_entries(arg, scale, out)
        return
    if arg.size > 1:
        part, index = read_affine(arg), broadcast_positions(arg, shape)
        moved = part.map(lambda block: take_rows(block, index), part.constant[index])
        out.add(moved, scale)
        return
    part = read_affine(arg)
    if part.constant.any():
        out.add_constant(part.constant[0], scale)
    for key, block in part.blocks.items():
        if block.shape[1] == 1:
            one = block.entries if isinstance(block, Diagonal) else csr(block).toarray()
            out.add_block(key, repeated(np.full(out.size, scale * one.item())), 1.0)
        else:
            out.add_block(key, take_rows(block, np.zeros(out.size, dtype=np.intp)), scale)


def _multiple(kind: str, expr: Any) -> tuple[Any, Any] | None:
    """What a constant multiplies or divides, entry by entry, and the factor of each entry."""
    if kind not in ("multiply", "DivExpression", "MulExpression"):
        return None
    first, second = expr.args
    if kind == "MulExpression" and not (first.shape == () or second.shape == ()):
        return None
    factor, other = (second, first) if kind == "DivExpression" else (first, second)
    if kind != "DivExpression" and not first.is_constant():
        factor, other = second, first
    if not factor.is_constant():
        return None
    value = factor.value
    value = value.toarray() if sp.issparse(value) else np.asarray(value, dtype=np.float64)
    if kind == "DivExpression":
        value = 1.0 / value
    if value.size == 1:
        return other, float(value.item())
    return other, np.broadcast_to(value, expr.shape).flatten(order="F")


def positions(expr: Any) -> list[NDArray[np.intp]]:
    """Where a moving node takes its entries from.

    Returns
    -------
    list of array, shape (rows,)
        For each argument: the position of every entry in the argument, -1 where it comes from
        elsewhere.
    """
    start, marks = 1, []
    for arg in expr.args:
        ladder = np.arange(start, start + arg.size, dtype=np.float64)
        marks.append(ladder.reshape(arg.shape, order="F"))
        start += arg.size
    moved = np.asarray(expr.numeric(marks)).flatten(order="F").astype(np.intp)
    found, start = [], 1
    for arg in expr.args:
        inside = (moved >= start) & (moved < start + arg.size)
        found.append(np.where(inside, moved - start, -1))
        start += arg.size
    return found


def _move(expr: Any) -> Affine:
    parts: dict[int, list[tuple[Matrix, NDArray[np.intp]]]] = {}
    constant = np.zeros(expr.size)
    for arg, index in zip(expr.args, positions(expr), strict=True):
        part = read_affine(arg)
        constant += np.where(index < 0, 0.0, part.constant[np.maximum(index, 0)])
        for key, block in part.blocks.items():
            parts.setdefault(key, []).append((block, index))
    return Affine({key: rows_of_several(found) for key, found in parts.items()}, constant)


def broadcast_positions(arg: Any, shape: tuple[int, ...]) -> NDArray[np.intp]:
    """Positions of the entries of `arg` broadcast to `shape`, column-major."""
    ladder = np.arange(arg.size).reshape(arg.shape, order="F")
    return np.broadcast_to(ladder, shape).flatten(order="F")


def _matmul(expr: Any) -> Affine | None:
    first, second = expr.args
    if max(len(first.shape), len(second.shape)) > 2:
        return None
    if first.is_constant():
        left, other = stored(first.value), second
        left = left.reshape(1, -1) if len(first.shape) == 1 else left
        copies = 1 if len(second.shape) == 1 else second.shape[1]
    elif second.is_constant():
        right, other = stored(second.value), first
        right = right.reshape(-1, 1) if len(second.shape) == 1 else right
        if len(first.shape) == 1 or first.shape[0] == 1:
            left, copies = right.T, 1
        else:
            eye = sp.eye_array(first.shape[0], format="csr")
            left, copies = sp.csr_array(sp.kron(sp.csr_array(right.T), eye)), 1
    else:
        return None
    if copies > 1:
        left = repeated_along(left, copies)
    if sp.issparse(left):
        left = sp.csr_array(left)
    part = read_affine(other)
    constant = np.zeros(left.shape[0])
    if part.constant.any():
        constant = np.asarray(left @ part.constant).ravel()
    return part.map(lambda block: times(left, block), constant)


def _sum(expr: Any) -> Affine | None:
    arg = expr.args[0]
    ladder = np.arange(expr.size).reshape(expr.shape, order="F")
    if expr.axis is not None and not expr.keepdims:
        ladder = np.expand_dims(ladder, expr.axis)
    if expr.axis is None:
        ladder = ladder.reshape((1,) * len(arg.shape))
    group = np.broadcast_to(ladder, arg.shape).flatten(order="F")
    part = read_affine(arg)
    if expr.size == 1:
        one = np.ones(arg.size)
        return part.map(
            lambda block: sp.csr_array(column_sums(block, one)[None, :]),
            np.array([part.constant.sum()]),
        )
    gather = sp.csr_array(
        (np.ones(arg.size), (group, np.arange(arg.size))), shape=(expr.size, arg.size)
    )
    return part.map(lambda block: times(gather, block), gather @ part.constant)


def extract_affine(expr: Any) -> Affine:
    """The same numbers by CVXPY's own coefficient extraction, sparse.

    Raises
    ------
    NotScreenable
        If CVXPY cannot read the expression either.
    """
    problem, _ = EvalParams().apply(cp.Problem(cp.Minimize(0), [expr == 0]))
    inverse = InverseData(problem)
    difference = problem.constraints[0].args[0] - problem.constraints[0].args[1]
    try:
        tensor = CoeffExtractor(inverse, "SCIPY").affine(difference)
    except (AssertionError, NotImplementedError) as error:
        raise NotScreenable(
            f"no affine map can be read from {' '.join(str(expr).split())[:80]}: write it with "
            f"products, sums, indices and stacks of variables ({type(error).__name__}: {error})"
        ) from None
    matrix, offset = canonInterface.get_matrix_from_tensor(
        tensor, None, inverse.x_length, with_offset=True
    )
    columns = sp.csc_array(matrix)
    blocks = {
        v.id: sp.csr_array(columns[:, start : start + v.size])
        for v in problem.variables()
        for start in [inverse.var_offsets[v.id]]
    }
    return Affine(blocks, np.asarray(offset, dtype=np.float64).ravel())


_RULES: dict[str, Callable[[Any], Affine | None]] = {"MulExpression": _matmul, "Sum": _sum}


@dataclass(eq=False)
class Objective:
    """The objective's numbers by variable identifier.

    Attributes
    ----------
    squares : dict of int to matrix, shape (size, size)
        Twice the matrix of the squares, symmetric: diagonal or CSR.
    slopes : dict of int to array, shape (size,)
    constant : float
    """

    squares: dict[int, Any] = field(default_factory=dict)
    slopes: dict[int, Array] = field(default_factory=dict)
    constant: float = 0.0

    def add_square(self, key: int, matrix: Any) -> None:
        """Add ``1/2 <v, matrix v>``."""
        self.squares[key] = add(self.squares[key], matrix) if key in self.squares else matrix

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


def as_vector(expr: Any) -> Any:
    """An expression that is no number as a vector, column-major."""
    return expr if expr.ndim == 1 else cp.vec(expr, order="F")


def exchanged(part: Any, places: dict[int, Any]) -> Any:
    """An expression, objective or constraint with others at the places of some expressions.

    CVXPY's own `tree_copy` does not exchange powers.
    """
    if id(part) in places:
        return places[id(part)]
    args = [exchanged(arg, places) for arg in part.args]
    if all(new is old for new, old in zip(args, part.args, strict=True)):
        return part
    return part.copy(args)


def holds(part: Any, variable: Any) -> bool:
    """Whether an expression or a constraint holds `variable`; CVXPY compares to make equations."""
    return any(own is variable for own in part.variables())


def is_quadratic_as_written(expr: Any) -> bool:
    """Whether the walk of `read_objective` knows all of `expr`."""
    try:
        _add_weighted(expr, np.ones(1), Objective())
    except _Unknown:
        return False
    return True


class _Unknown(Exception):
    """A node kind that the walk does not know."""


def _add_weighted(expr: Any, weight: Array, out: Objective) -> None:
    """Add ``<weight, vec(expr)>`` to `out`."""
    kind = type(expr).__name__
    if kind == "SymbolicQuadForm":
        _add_square_form(expr, weight, out)
        return
    if kind == "quad_over_lin" and isinstance(expr.args[0], cp.Variable) and expr.size == 1:
        variable, below = expr.args
        if not below.is_constant():
            raise _Unknown
        rate = 2.0 * weight[0] / float(flat(below.value, 1)[0])
        out.add_square(variable.id, Diagonal(np.full(variable.size, rate)))
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
    elif (found := _multiple(kind, expr)) is not None:
        other, factor = found
        _add_weighted(other, _gather(other, expr.shape, weight * factor), out)
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


def _gather(arg: Any, shape: tuple[int, ...], weight: Array) -> Array:
    """Weights of the entries of `arg` when it is broadcast to `shape`."""
    if arg.shape == shape:
        return weight
    carried = np.zeros(arg.size)
    np.add.at(carried, broadcast_positions(arg, shape), weight)
    return carried


def _add_square_form(expr: Any, weight: Array, out: Objective) -> None:
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


@contextmanager
def preserved_values(variables: list[Any]) -> Iterator[None]:
    """Give back the values of `variables` on the way out, whatever happens."""
    before = [(variable, variable.value) for variable in variables]
    try:
        yield
    finally:
        for variable, value in before:
            variable.save_value(value)


def value_at(expr: Any, values: dict[int, Any]) -> Any:
    """The value of `expr` at values of its variables, by their identifiers."""
    inside = expr.variables()
    with preserved_values(inside):
        for variable in inside:
            variable.save_value(values[variable.id])
        return expr.value


def free_entries(variable: Any, value: Any) -> NDArray[np.float64]:
    """The free entries of `value`, as the variable behind `variable` has them.

    Parameters
    ----------
    variable : cvxpy.Variable
    value : array or sparse array, of the variable's shape
    """
    dense = np.asarray(value.toarray() if sp.issparse(value) else value, dtype=np.float64)
    if variable.attributes["diag"]:
        return np.diagonal(dense)
    if _triangular(variable):
        return dense[np.triu_indices(variable.shape[0])]
    return dense


def full_value(variable: Any, entries: NDArray[np.float64]) -> Any:
    """The value of `variable` with the free entries `entries`: the inverse of `free_entries`.

    Returns
    -------
    array, or sparse array for a diagonal variable
        Of the variable's shape; not projected onto its set.
    """
    if variable.attributes["diag"]:
        return sp.diags_array(entries.flatten(order="F"))
    if not _triangular(variable):
        return entries
    upper = np.zeros(variable.shape)
    upper[np.triu_indices(variable.shape[0])] = entries.flatten(order="F")
    return upper + upper.T - np.diag(np.diagonal(upper))


def _triangular(variable: Any) -> bool:
    return any(variable.attributes[name] for name in ("PSD", "NSD", "symmetric"))
