"""Numbers of an affine CVXPY expression: one matrix a variable, and a constant.

::

    vec(expression) = sum_v  blocks[v.id] @ vec(v)  +  constant         (column-major vec)

A walk over the expression tree with NumPy and SciPy. Nodes that only move entries around (slices,
reshapes, stacks ...) are read by letting the node act on an array of positions, so they need no
code of their own; a kind of node that is not known goes through CVXPY's `CoeffExtractor`.
Parameters are read by value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.cvxcore.python import canonInterface
from cvxpy.reductions.eval_params import EvalParams
from cvxpy.reductions.inverse_data import InverseData
from cvxpy.utilities.coeff_extractor import CoeffExtractor
from numpy.typing import NDArray

from cvxscreen.cvxpy_plugin.recognise.matrices import (
    Diagonal,
    Matrix,
    add,
    column_sums,
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

WRAPS = frozenset(
    (
        "nonneg_wrap", "nonpos_wrap", "psd_wrap", "nsd_wrap", "symmetric_wrap", "hermitian_wrap",
    )
)
"""Kinds of nodes that only assert something about their argument."""


@dataclass(frozen=True, eq=False)
class Affine:
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
    vector = dense.flatten(order="F").astype(np.float64, copy=False)
    return np.full(size, vector[0]) if vector.size == 1 and size != 1 else vector


def read_affine(expr: Any) -> Affine:
    """Evaluate the affine expression `expr`; see the module's docstring."""
    kind = type(expr).__name__
    if isinstance(expr, cp.Variable):
        return Affine({expr.id: Diagonal(np.ones(expr.size))}, np.zeros(expr.size))
    if expr.is_constant():
        return Affine({}, flat(expr.value, expr.size))
    if kind in WRAPS:
        return read_affine(expr.args[0])
    if kind in MOVES:
        return _move(expr)
    if kind in _RULES:
        found = _RULES[kind](expr)
        if found is not None:
            return found
    return extract_affine(expr)


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
    total: dict[int, Matrix] = {}
    constant = np.zeros(expr.size)
    for arg, index in zip(expr.args, positions(expr), strict=True):
        part = read_affine(arg)
        constant += np.where(index < 0, 0.0, part.constant[np.maximum(index, 0)])
        _collect(total, part, index)
    return Affine(total, constant)


def _collect(total: dict[int, Matrix], part: Affine, index: NDArray[np.intp]) -> None:
    for key, block in part.blocks.items():
        moved = take_rows(block, index)
        total[key] = add(total[key], moved) if key in total else moved


def broadcast_positions(arg: Any, shape: tuple[int, ...]) -> NDArray[np.intp]:
    """Positions of the entries of `arg` broadcast to `shape`, column-major."""
    ladder = np.arange(arg.size).reshape(arg.shape, order="F")
    return np.broadcast_to(ladder, shape).flatten(order="F")


def _add(expr: Any) -> Affine:
    total: dict[int, list[tuple[int, Matrix]]] = {}
    constant = np.zeros(expr.size)
    sums: dict[int, Matrix] = {}
    for arg in expr.args:
        part, index = read_affine(arg), broadcast_positions(arg, expr.shape)
        constant += part.constant[index]
        for key, block in part.blocks.items():
            total.setdefault(key, []).append((0, take_rows(block, index)))
    for key, parts in total.items():
        if len(parts) > 2 and not any(isinstance(p, Diagonal) for _, p in parts):
            sums[key] = stack(parts, expr.size, parts[0][1].shape[1])
            continue
        sums[key] = parts[0][1]
        for _, part_matrix in parts[1:]:
            sums[key] = add(sums[key], part_matrix)
    return Affine(sums, constant)


def _negate(expr: Any) -> Affine:
    part = read_affine(expr.args[0])
    minus = np.full(expr.size, -1.0)
    return part.map(lambda block: scale_rows(block, minus), -part.constant)


def _multiply(expr: Any) -> Affine | None:
    first, second = expr.args
    factor, other = (first, second) if first.is_constant() else (second, first)
    if not factor.is_constant():
        return None
    value = factor.value
    value = value.toarray() if sp.issparse(value) else np.asarray(value, dtype=np.float64)
    scale = np.broadcast_to(value, expr.shape).flatten(order="F").astype(np.float64)
    part, index = read_affine(other), broadcast_positions(other, expr.shape)
    return part.map(
        lambda block: scale_rows(take_rows(block, index), scale),
        part.constant[index] * scale,
    )


def _divide(expr: Any) -> Affine | None:
    if not expr.args[1].is_constant():
        return None
    value = np.asarray(expr.args[1].value, dtype=np.float64)
    scale = np.broadcast_to(1.0 / value, expr.shape).flatten(order="F").astype(np.float64)
    part, index = read_affine(expr.args[0]), broadcast_positions(expr.args[0], expr.shape)
    return part.map(
        lambda block: scale_rows(take_rows(block, index), scale),
        part.constant[index] * scale,
    )


def _matmul(expr: Any) -> Affine | None:
    first, second = expr.args
    if first.shape == () or second.shape == ():
        return _multiply(expr)
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
        left = sp.csr_array(sp.kron(sp.eye_array(copies, format="csr"), sp.csr_array(left)))
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


_RULES: dict[str, Callable[[Any], Affine | None]] = {
    "AddExpression": _add,
    "NegExpression": _negate,
    "multiply": _multiply,
    "DivExpression": _divide,
    "MulExpression": _matmul,
    "Sum": _sum,
}
