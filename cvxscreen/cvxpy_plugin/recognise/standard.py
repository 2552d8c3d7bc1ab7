"""A canonical problem as numbers, with nothing left out.

All constraint rows of a problem as one matrix: a sparse part and large dense blocks.

::

    rows(z) = A z + offset,      A = sparse + sum of dense blocks

Data that come dense stay dense: they are never turned into a sparse matrix and back. New rows are
linear combinations of old ones (`combine`), which is all that eliminating helper columns takes.

Numbers of the canonical objective: affine but for squares of variables.

::

    objective(z) = sum_v  1/2 <v, squares[v] v> + <slopes[v], v>   +  constant

Walked from the root towards the leaves with the weight that each entry has in the objective, so a
weighted sum of squares costs one pass. A node that is not known sends the whole objective through
CVXPY's own extraction; nothing is ever skipped.

::

    minimise over z    1/2 <z, P z> + <q, z> + constant
    subject to         A z + offset in K_1 x K_2 x ...

``z`` stacks the canonical variables column-major. Each cone remembers the constraint it comes from,
so that multipliers can be handed back. With ``L = objective - <multipliers, A z + offset>`` the
multipliers are CVXPY's dual values, up to the sign of equalities.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.reductions.eval_params import EvalParams
from cvxpy.reductions.inverse_data import InverseData
from cvxpy.reductions.utilities import ReducedMat
from cvxpy.utilities.coeff_extractor import CoeffExtractor
from numpy.typing import NDArray

from cvxscreen.cvxpy_plugin.recognise import affine
from cvxscreen.cvxpy_plugin.recognise.affine import Block, Matrix, Scaled, as_slice, csr, is_dense
from cvxscreen.cvxpy_plugin.recognise.symbolic import Canonical
from cvxscreen.cvxpy_plugin.recognise.walker import MOVES, WRAPS, Affine, positions, spread, walk
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import NotScreenable

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

FEW_MORE = 4
"""At most so many columns beside a dense block leave it where it is (an intercept)."""

CHUNK = 65536
"""Rows that are looked at together, so that no temporary grows with the data."""


@dataclass(frozen=True, eq=False)
class Stack:
    """``A z + offset``; see the module's docstring.

    Parameters
    ----------
    sparse : CSR array, shape (m, N)
        Without explicit zeros.
    blocks : tuple of Block
    offset : array, shape (m,)
    """

    sparse: Any
    blocks: tuple[Block, ...]
    offset: Array

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = self.sparse.shape
        return rows, columns

    def apply(self, z: Array) -> Array:
        """``A z`` without the offset, for one vector (N,) or several (N, k)."""
        out = np.asarray(self.sparse @ z)
        for block in self.blocks:
            out[block.place] += block.times(z[block.span])
        return out

    def values(self, z: Array) -> Array:
        """``A z + offset``, shape (m,)."""
        return self.apply(z) + self.offset

    def adjoint(self, multipliers: Array) -> Array:
        """``A' multipliers``, shape (N,)."""
        out = np.asarray(self.sparse.T @ multipliers)
        for block in self.blocks:
            out[block.span] += block.weigh(multipliers[block.place]) @ block.matrix
        return out

    def counts(self) -> NDArray[np.int64]:
        """Number of entries of each row, dense blocks counted in full, shape (m,)."""
        out = np.diff(self.sparse.indptr).astype(np.int64)
        for block in self.blocks:
            out[block.place] += block.matrix.shape[1]
        return out

    def filled(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Number of non-zero entries of each row, shape (m,), and of each column, shape (N,)."""
        rows = np.diff(self.sparse.indptr).astype(np.int64)
        columns = np.bincount(self.sparse.indices, minlength=self.shape[1]).astype(np.int64)
        for block in self.blocks:
            for start in range(0, len(block.rows), CHUNK):
                part = block.matrix[start : start + CHUNK] != 0
                if block.factor is not None:
                    part &= (block.factor[start : start + CHUNK] != 0)[:, None]
                rows[block.rows[start : start + CHUNK]] += np.count_nonzero(part, axis=1)
                columns[block.span] += np.count_nonzero(part, axis=0)
        return rows, columns

    def dense_columns(self) -> Mask:
        """Columns that a dense block touches, shape (N,)."""
        out = np.zeros(self.shape[1], dtype=bool)
        for block in self.blocks:
            out[block.span] = True
        return out

    def dense_rows(self) -> Mask:
        """Rows that a dense block touches, shape (m,)."""
        out = np.zeros(self.shape[0], dtype=bool)
        for block in self.blocks:
            out[block.place] = True
        return out

    def combine(self, weights: Any) -> Stack:
        """The rows ``weights @ A`` with offset ``weights @ offset``.

        Parameters
        ----------
        weights : CSR array, shape (k, m)
        """
        sparse = sp.csr_array(weights @ self.sparse)
        sparse.eliminate_zeros()
        by_column = sp.csc_array(weights) if self.blocks else None
        blocks = []
        for block in self.blocks:
            found = _pick(by_column, block)
            if found is not None:
                blocks.append(found)
        return Stack(sparse, tuple(blocks), np.asarray(weights @ self.offset))

    def columns(self, index: Index) -> Array | Any:
        """The columns at `index`: a dense array where at least a quarter is filled, else CSR.

        Parameters
        ----------
        index : array of int, shape (d,)
            Increasing.

        Returns
        -------
        array or CSR matrix, shape (m, d)
        """
        sparse = sp.csr_array(self.sparse[:, index])
        rows, d = sparse.shape
        parts = []
        for block in self.blocks:
            inside = (index >= block.start) & (index < block.start + block.matrix.shape[1])
            if inside.any():
                wanted = index[inside] - block.start
                whole = len(wanted) == block.matrix.shape[1]
                matrix = block.columns(None if whole else wanted)
                parts.append((block.place, as_slice(np.flatnonzero(inside)), matrix))
        filled = sparse.nnz + sum(matrix.size for _, _, matrix in parts)
        if filled < 0.25 * rows * d:
            for place, where, matrix in parts:
                wide = sp.lil_array((rows, d))
                wide[place, where] = matrix
                sparse = sp.csr_array(sparse + sp.csr_array(wide))
            return sp.csr_matrix(sparse)
        out = sparse.toarray()
        for place, where, matrix in parts:
            if isinstance(place, slice) or isinstance(where, slice):
                out[place, where] += matrix
            else:
                out[np.ix_(place, where)] += matrix
        return out

    def design(self, index: Index) -> tuple[Rows, Index]:
        """The columns at `index` as a design, and the order in which it has them.

        One dense block over all rows, with a few other columns beside it, stays the caller's array.

        Parameters
        ----------
        index : array of int, shape (d,)
            Increasing.

        Returns
        -------
        Rows, shape (m, d)
        array of int, shape (d,)
            Positions in `index`.
        """
        same = np.arange(len(index))
        if len(self.blocks) != 1 or len(self.blocks[0].rows) != self.shape[0]:
            return Rows(self.columns(index)), same
        block = self.blocks[0]
        inside = (index >= block.start) & (index < block.span.stop)
        others = index[~inside]
        factor = block.factor
        plain = factor is None or bool((np.abs(factor) == 1.0).all())
        overlap = bool(self.sparse[:, index[inside]].nnz)
        if overlap or len(others) > FEW_MORE or not (plain or not len(others)):
            return Rows(self.columns(index)), same
        extra = self.sparse[:, others].toarray()
        if factor is not None:
            extra *= factor[:, None]  # of size 1, so that multiplying divides
        wanted = index[inside] - block.start
        matrix = block.matrix
        if len(wanted) != matrix.shape[1]:
            matrix = matrix[:, wanted]
        order = np.concatenate([same[inside], same[~inside]])
        return Rows(matrix, factor, extra if len(others) else None), order


def _pick(weights: Any, block: Block) -> Block | None:
    """The part of ``weights @ A`` that comes from one dense block."""
    place = block.place
    part = sp.csr_array(weights[:, place])
    count = np.diff(part.indptr)
    rows = np.flatnonzero(count)
    if not len(rows):
        return None
    if count.max() > 1:
        if block.factor is not None:
            part = sp.csr_array(part @ sp.diags_array(block.factor))
        return Block(rows, block.start, np.asarray(part[rows] @ block.matrix))
    source = as_slice(part.indices.astype(np.intp))
    factor = part.data if block.factor is None else part.data * block.factor[source]
    plain = bool((factor == 1.0).all())
    return Block(rows, block.start, block.matrix[source], None if plain else factor)


def assemble(
    entries: list[tuple[int, int, Matrix]], offset: Array, columns: int
) -> Stack:
    """Put matrices at their places.

    Parameters
    ----------
    entries : list of (first row, first column, matrix)
    offset : array, shape (m,)
    columns : int
        Number N of columns.
    """
    blocks, rows, cols, data = [], [], [], []
    for row, column, matrix in entries:
        if is_dense(matrix):
            place = np.arange(row, row + matrix.shape[0])
            data_of, factor = matrix, None
            if isinstance(matrix, Scaled):
                data_of, factor = matrix.matrix, matrix.factor
            blocks.append(Block(place, column, data_of, factor))
            continue
        part = csr(matrix).tocoo()
        rows.append(part.row + row)
        cols.append(part.col + column)
        data.append(part.data)
    shape = (len(offset), columns)
    if not data:
        return Stack(sp.csr_array(shape), tuple(blocks), offset)
    where = (np.concatenate(rows), np.concatenate(cols))
    sparse = sp.csr_array((np.concatenate(data), where), shape=shape)
    sparse.sum_duplicates()
    sparse.eliminate_zeros()
    return Stack(sparse, tuple(blocks), offset)


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


class _Unknown(Exception):
    """A node kind that the walk does not know."""


def read(expr: Any) -> Objective:
    """Evaluate the canonical objective `expr`; see the module's docstring.

    Raises
    ------
    NotScreenable
        If CVXPY cannot extract it either.
    """
    out = Objective()
    try:
        _walk(expr, np.ones(1), out)
    except _Unknown:
        return _extract(expr)
    return out


def _walk(expr: Any, weight: Array, out: Objective) -> None:
    """Add ``<weight, vec(expr)>`` to `out`."""
    kind = type(expr).__name__
    if kind == "SymbolicQuadForm":
        _square(expr, weight, out)
        return
    if expr.is_affine():
        part = walk(expr)
        for key, block in part.blocks.items():
            out.add_slope(key, affine.column_sums(block, weight))
        out.constant += float(part.constant @ weight)
        return
    if kind in WRAPS:
        _walk(expr.args[0], weight, out)
    elif kind == "NegExpression":
        _walk(expr.args[0], -weight, out)
    elif kind == "AddExpression":
        for arg in expr.args:
            _walk(arg, _gather(arg, expr.shape, weight), out)
    elif kind in ("multiply", "DivExpression") or (kind == "MulExpression" and _scalar(expr)):
        _scaled(expr, weight, out)
    elif kind == "MulExpression" and expr.args[0].is_constant() and len(expr.shape) == 0:
        left = np.asarray(expr.args[0].value, dtype=np.float64).ravel()
        _walk(expr.args[1], left * weight[0], out)
    elif kind == "Sum" and expr.size == 1:
        _walk(expr.args[0], np.full(expr.args[0].size, weight[0]), out)
    elif kind in MOVES:
        for arg, index in zip(expr.args, positions(expr), strict=True):
            pulled = np.zeros(arg.size)
            np.add.at(pulled, index[index >= 0], weight[index >= 0])
            _walk(arg, pulled, out)
    else:
        raise _Unknown


def _scalar(expr: Any) -> bool:
    return expr.args[0].shape == () or expr.args[1].shape == ()


def _gather(arg: Any, shape: tuple[int, ...], weight: Array) -> Array:
    """Weights of the entries of `arg` when it is broadcast to `shape`."""
    pulled = np.zeros(arg.size)
    np.add.at(pulled, spread(arg, shape), weight)
    return pulled


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
    _walk(other, _gather(other, expr.shape, weight * scale), out)


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


EXPONENTIAL = frozenset(
    (
        "exp", "log", "log1p", "entr", "kl_div", "rel_entr", "logistic", "log_sum_exp",
        "log_det", "xexp",
    )
)
"""Atoms that need the exponential cone, named in a refusal."""


@dataclass(frozen=True)
class Cone:
    """Consecutive rows in one cone.

    Attributes
    ----------
    kind : str
        ``"zero"``, ``"nonneg"``, ``"soc"`` (head first) or ``"psd"`` (column-major).
    rows : slice
    size : int
        Rows, or the side of a PSD matrix.
    constraint : int
        Position of the constraint among those of the canonical problem.
    """

    kind: str
    rows: slice
    size: int
    constraint: int


@dataclass(frozen=True, eq=False)
class Standard:
    """The numbers of a canonical problem; see the module's docstring.

    Attributes
    ----------
    canonical : Canonical
    variables : tuple of cvxpy.Variable
        In the order of the columns.
    starts : array of int, shape (v + 1,)
        First column of each variable, and N.
    quadratic : CSR array, shape (N, N)
        ``P``.
    linear : array, shape (N,)
        ``q``.
    constant : float
    rows : Stack
    cones : tuple of Cone
    """

    canonical: Canonical
    variables: tuple[Any, ...]
    starts: Index
    quadratic: Any
    linear: Array
    constant: float
    rows: Stack
    cones: tuple[Cone, ...]

    @property
    def size(self) -> int:
        """Number N of columns."""
        return int(self.starts[-1])

    def owner(self) -> Index:
        """Position of the variable of each column, shape (N,)."""
        return np.repeat(np.arange(len(self.variables)), np.diff(self.starts))

    def own(self) -> NDArray[np.bool_]:
        """Columns of the user's variables, shape (N,)."""
        flags = np.array([v.id in self.canonical.own for v in self.variables], dtype=bool)
        return flags[self.owner()]

    def kinds(self) -> NDArray[np.str_]:
        """Kind of the cone of each row, shape (m,)."""
        out = np.empty(self.rows.shape[0], dtype="<U6")
        for cone in self.cones:
            out[cone.rows] = cone.kind
        return out

    def label(self, column: int) -> str:
        """A name for messages: the user's name of the column's variable."""
        variable = self.variables[int(self.owner()[column])]
        own = self.canonical.own.get(variable.id)
        return "an epigraph variable of CVXPY" if own is None else f"variable {own.name()}"

    def value(self, z: Array) -> float:
        """The canonical objective at `z`."""
        smooth = 0.5 * float(z @ (self.quadratic @ z)) + float(self.linear @ z)
        return smooth + self.constant

    def join(self, values: dict[int, Array]) -> Array:
        """Values of canonical variables as columns, 0 where there is none; see `split`."""
        z = np.zeros(self.size)
        for variable, start in zip(self.variables, self.starts, strict=False):
            if variable.id in values:
                z[start : start + variable.size] = values[variable.id].flatten(order="F")
        return z

    def split(self, z: Array) -> dict[int, Array]:
        """`z` as values of the canonical variables, by identifier."""
        return {
            variable.id: z[start : start + variable.size].reshape(variable.shape, order="F")
            for variable, start in zip(self.variables, self.starts, strict=False)
        }


def _minus(part: Affine) -> Affine:
    size = len(part.constant)
    return part.map(lambda block: affine.scale_rows(block, -np.ones(size)), -part.constant)


def _cone_rows(constraint: Any) -> tuple[str, Affine, list[int]]:
    """Kind, rows and cone sizes of one affine constraint."""
    kind, args = type(constraint).__name__, constraint.args
    if kind == "Inequality":
        return "nonneg", walk(args[1] - args[0]), [constraint.size]
    if kind == "NonNeg":
        return "nonneg", walk(args[0]), [constraint.size]
    if kind == "NonPos":
        return "nonneg", _minus(walk(args[0])), [constraint.size]
    if kind == "Equality":
        return "zero", walk(args[0] - args[1]), [constraint.size]
    if kind == "Zero":
        return "zero", walk(args[0]), [constraint.size]
    if kind == "SOC":
        return "soc", _second_order(constraint), constraint.cone_sizes()
    if kind == "PSD" and len(args[0].shape) == 2:
        return "psd", walk(args[0]), [args[0].shape[0]]
    raise NotScreenable(_unknown_cone(kind))


def _unknown_cone(kind: str) -> str:
    names = {"ExpCone": "an exponential cone", "PSD": "a stack of PSD cones"}
    return f"the problem needs {names.get(kind, f'a {kind} cone')}, which is not supported"


def _second_order(constraint: Any) -> Affine:
    """Rows of a second-order constraint, cone by cone and head first."""
    head, tail = walk(constraint.args[0]), walk(constraint.args[1])
    cones = len(head.constant)
    ladder = np.arange(len(tail.constant))
    by_column = ladder.reshape(cones, -1)
    by_row = ladder.reshape(-1, cones).T
    by_cone = by_row if constraint.axis == 1 else by_column
    order = np.column_stack([np.arange(cones), cones + by_cone]).ravel()
    blocks = {}
    for key in {**head.blocks, **tail.blocks}:
        parts = [(0, head.blocks[key])] if key in head.blocks else []
        parts += [(cones, tail.blocks[key])] if key in tail.blocks else []
        whole = affine.stack(parts, len(order), parts[0][1].shape[1])
        blocks[key] = affine.take_rows(whole, order)
    return Affine(blocks, np.concatenate([head.constant, tail.constant])[order])


def standardise(canonical: Canonical) -> Standard:
    """Read all numbers of a canonical problem.

    Raises
    ------
    NotScreenable
        If it needs a cone other than zero, non-negative, second-order and PSD.
    """
    problem = canonical.problem
    variables = tuple(problem.variables())
    starts = np.concatenate([[0], np.cumsum([v.size for v in variables])]).astype(np.intp)
    column = {v.id: int(start) for v, start in zip(variables, starts, strict=False)}

    entries, offsets, cones, row = [], [], [], 0
    for position, constraint in enumerate(problem.constraints):
        try:
            kind, part, sizes = _cone_rows(constraint)
        except NotScreenable as refusal:
            atoms = {atom.__name__ for atom in canonical.original.atoms()} & EXPONENTIAL
            extra = f" (from {', '.join(sorted(atoms))})" if atoms else ""
            raise NotScreenable(f"{refusal}{extra}") from None
        entries += [(row, column[key], block) for key, block in part.blocks.items()]
        offsets.append(part.constant)
        for size in sizes:
            stop = row + (size * size if kind == "psd" else size)
            cones.append(Cone(kind, slice(row, stop), size, position))
            row = stop
    offset = np.concatenate(offsets) if offsets else np.zeros(0)
    rows = assemble(entries, offset, int(starts[-1]))

    quadratic, linear, constant = _objective(canonical, column, int(starts[-1]))
    data = [linear, offset, rows.sparse.data]
    for block in rows.blocks:
        data += [block.matrix, *([] if block.factor is None else [block.factor])]
    if not all(np.isfinite(numbers).all() for numbers in data):
        raise NotScreenable("the data hold NaN or infinity")
    return Standard(
        canonical, variables, starts, quadratic, linear, constant, rows, tuple(cones)
    )


def _objective(canonical: Canonical, column: dict[int, int], size: int) -> tuple[Any, Array, float]:
    """The objective's squares, slopes and constant over all columns."""
    objective = read(canonical.problem.objective.expr)
    linear = np.zeros(size)
    for key, slope in objective.slopes.items():
        linear[column[key] : column[key] + len(slope)] += slope
    squares = [(column[key], square.tocoo()) for key, square in objective.squares.items()]
    quadratic = sp.csr_array((size, size))
    if squares:
        entries = np.concatenate([part.data for _, part in squares])
        at = [np.concatenate([getattr(p, name) + s for s, p in squares]) for name in ("row", "col")]
        quadratic = sp.csr_array((entries, (at[0], at[1])), shape=quadratic.shape)
        quadratic.eliminate_zeros()
    return quadratic, linear, objective.constant


def reread(standard: Standard) -> Standard:
    """`standard` with the objective's numbers read anew, at the parameters' present values.

    Raises
    ------
    NotScreenable
        If they hold NaN or infinity.
    """
    column = {v.id: int(s) for v, s in zip(standard.variables, standard.starts, strict=False)}
    quadratic, linear, constant = _objective(standard.canonical, column, standard.size)
    if not (np.isfinite(linear).all() and np.isfinite(quadratic.data).all()):
        raise NotScreenable("the data hold NaN or infinity")
    return replace(standard, quadratic=quadratic, linear=linear, constant=constant)
