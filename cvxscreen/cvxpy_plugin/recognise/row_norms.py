"""Norms of rows that an objective adds up, read as they are written.

::

    sum_i c_i |A_i z + b_i|        sum(norm(X @ W - Y, 2, axis=1)), weights @ norm(P - x, axis=1),
                                   mixed_norm(E, 2, 1), and single norms of a few entries beside

CVXPY's cone form has a bound and a cone for each of them, and all rules would look at every one.
Where nearly all that an objective has are such norms, they are taken out before it is
canonicalised: the bounds are a variable of ours (`RowNorms.bounds`), whose columns come behind all
others, as the rows of the cones do (`numbers_of`). No constraint of CVXPY's stands for them, and
the user has no dual value of theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen.core.cones import MANY_CONES
from cvxscreen.cvxpy_plugin.recognise.expressions import read_affine
from cvxscreen.cvxpy_plugin.recognise.loss_atoms import (
    OtherForm,
    factor_of,
    has_fewer_entries,
    same,
    weigh,
    without_what_was_read,
)
from cvxscreen.cvxpy_plugin.recognise.matrices import Stack, csr
from cvxscreen.cvxpy_plugin.recognise.python_loops import Term, summands_of
from cvxscreen.cvxpy_plugin.size import LONGEST, NORMS, is_two
from cvxscreen.solvers.second_order import NORMS_PER_COORDINATE

Array = NDArray[np.float64]
Index = NDArray[np.intp]


class RowNorms(Immutable):
    """``sum_i costs[i] |argument at entries[i]|``.

    Attributes
    ----------
    argument : cvxpy.Expression
        Affine.
    entries : array of int, shape (k, s)
        Positions in the argument, column-major, of what each norm is of.
    costs : array, shape (k,)
        Positive.
    bounds : cvxpy.Variable
        k entries: the norms.
    """

    argument: Any
    entries: Index
    costs: Array
    bounds: Any

    @property
    def height(self) -> int:
        """Rows of each cone."""
        return self.entries.shape[1] + 1

    def is_at_other_costs(self, other: RowNorms) -> bool:
        """Whether `other` has the same norms."""
        alike = np.array_equal(self.entries, other.entries)
        return alike and same(self.argument, other.argument)


def take_row_norms(problem: Any) -> tuple[Any, tuple[RowNorms, ...], tuple[Any, ...]]:
    """`problem` without the norms of rows that its objective adds up, and these.

    Parameters
    ----------
    problem : cvxpy.Problem
        That follows the DCP rules.

    Returns
    -------
    cvxpy.Problem
        Of what is left; `problem` itself where such norms are not nearly all that it has.
    tuple of RowNorms
    tuple of cvxpy.Variable
        Variables that occur in these norms alone.
    """
    found, rest = _split(problem)
    count = sum(len(norms.costs) for norms in found)
    coordinates = sum(variable.size for variable in problem.variables())
    if count < max(MANY_CONES, NORMS_PER_COORDINATE * coordinates):
        return problem, (), ()
    left, alone = without_what_was_read(problem, rest, problem.constraints)
    return left, found, alone


def read_row_norms(problem: Any) -> tuple[RowNorms, ...]:
    """The same norms at the parameters' present values."""
    return _split(problem)[0]


def _split(problem: Any) -> tuple[tuple[RowNorms, ...], list[Term]]:
    """The norms, and the other summands of the objective to be minimised."""
    sign = -1.0 if isinstance(problem.objective, cp.Maximize) else 1.0
    found: list[RowNorms] = []
    rest: list[Term] = []
    for part in summands_of(problem.objective.expr, sign):
        try:
            found += _norms_of(part)
        except OtherForm:
            rest.append(part)
    return tuple(found), rest


def _norms_of(part: Term) -> list[RowNorms]:
    """One summand as norms of rows.

    Raises
    ------
    OtherForm
        If it is something else.
    """
    if not any(type(atom).__name__ in NORMS for atom in _outer(part.expr)):
        raise OtherForm
    out = []
    for atom, weight in _weighed_atoms(part.expr, np.array([factor_of(part)])):
        if not (type(atom).__name__ in NORMS and is_two(atom.p)):
            raise OtherForm
        inner = atom.args[0]
        if not inner.is_affine() or inner.is_constant() or has_fewer_entries(inner):
            raise OtherForm
        if not np.isfinite(weight).all() or (weight < 0.0).any():
            raise OtherForm
        entries, paying = _entries(atom), np.flatnonzero(weight)
        if len(paying) < len(weight):
            entries = entries[paying]
        if len(paying):
            out.append(RowNorms(inner, entries, weight[paying], cp.Variable(len(paying))))
    return out


def _weighed_atoms(expr: Any, weight: Array) -> Iterator[tuple[Any, Array]]:
    """Functions with a weight for each of their values, whose sum ``<weight, expr>`` is."""
    parts: list[tuple[Any, Array, Any]] = []
    weigh(expr, weight, parts)
    for atom, of_atom, _ in parts:
        if type(atom).__name__ != "AddExpression":
            yield atom, of_atom
            continue
        if any(arg.size != atom.size for arg in atom.args):
            raise OtherForm
        for arg in atom.args:
            yield from _weighed_atoms(arg, of_atom)


def _outer(expr: Any) -> Iterator[Any]:
    """`expr` and what it is a function of, affine parts left out."""
    yield expr
    for arg in expr.args:
        if not arg.is_affine():
            yield from _outer(arg)


def _entries(atom: Any) -> Index:
    """Positions of the entries of each norm in the argument, column-major; shape (k, s)."""
    inner = atom.args[0]
    ladder = np.arange(inner.size).reshape(inner.shape, order="F")
    if atom.axis is None or inner.ndim < 2:
        if inner.size > LONGEST:
            raise OtherForm
        return np.ascontiguousarray(ladder.reshape(1, -1, order="F"))
    if inner.ndim != 2 or not isinstance(atom.axis, int):
        raise OtherForm
    return np.ascontiguousarray(ladder if atom.axis % 2 == 1 else ladder.T)


def numbers_of(norms: RowNorms, column: dict[int, int], size: int) -> Stack:
    """The rows of the cones of `norms`, cone by cone and head first, shape (m, N).

    Parameters
    ----------
    norms : RowNorms
    column : dict of int to int
        First column of each variable, by identifier.
    size : int
        Number N of columns.
    """
    part = read_affine(norms.argument)
    k, height = len(norms.costs), norms.height
    table = np.empty((k, height), dtype=np.intp)
    table[:, 0], table[:, 1:] = norms.argument.size + np.arange(k), norms.entries
    order = table.ravel()
    first = column[norms.bounds.id]
    heads = sp.csr_array((np.ones(k), first + np.arange(k), np.arange(k + 1)), shape=(k, size))
    blocks = [_at(csr(block), column[key], size) for key, block in part.blocks.items()]
    tails = blocks[0]
    for block in blocks[1:]:
        tails = tails + block
    matrix = sp.csr_array(sp.vstack([tails, heads], format="csr")[order])
    matrix.eliminate_zeros()
    matrix.sort_indices()
    return Stack(matrix, (), np.concatenate([part.constant, np.zeros(k)])[order])


def _at(block: Any, first: int, size: int) -> Any:
    """A CSR block with its columns from `first` on, of `size`."""
    return sp.csr_array(
        (block.data, block.indices + first, block.indptr), shape=(block.shape[0], size)
    )
