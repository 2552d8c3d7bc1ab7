"""A canonical problem as numbers, with nothing left out.

::

    minimise over z    1/2 <z, P z> + <q, z> + constant
    subject to         A z + offset in K_1 x K_2 x ...

Losses that were read off the objective (`loss_atoms`) are added to it; their arguments are rows
behind those of the cones, which constrain nothing.

``z`` stacks the canonical variables column-major. Each cone remembers the constraint it comes from,
so that multipliers can be handed back. With ``L = objective - <multipliers, A z + offset>`` the
multipliers are CVXPY's dual values, up to the sign of equalities.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.cvxpy_plugin.recognise.affine import Affine, read_affine
from cvxscreen.cvxpy_plugin.recognise.canonical import Canonical
from cvxscreen.cvxpy_plugin.recognise.matrices import scale_rows, stack, take_rows
from cvxscreen.cvxpy_plugin.recognise.objective import read_objective
from cvxscreen.cvxpy_plugin.recognise.row_stack import Stack, assemble
from cvxscreen.cvxpy_plugin.worthwhile import EXPONENTIAL
from cvxscreen.errors import NotScreenable

Array = NDArray[np.float64]
Index = NDArray[np.intp]

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
    arguments : tuple of slice
        The rows of each of the canonical problem's groups of losses.
    """

    canonical: Canonical
    variables: tuple[Any, ...]
    starts: Index
    quadratic: Any
    linear: Array
    constant: float
    rows: Stack
    cones: tuple[Cone, ...]
    arguments: tuple[slice, ...] = ()

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
        """Kind of the cone of each row, empty for arguments of losses, shape (m,)."""
        out = np.full(self.rows.shape[0], "", dtype="<U6")
        for cone in self.cones:
            out[cone.rows] = cone.kind
        return out

    def inside(self, *kinds: str) -> NDArray[np.bool_]:
        """Rows in cones of some kinds, shape (m,)."""
        out = np.zeros(self.rows.shape[0], dtype=bool)
        for cone in self.cones:
            if cone.kind in kinds:
                out[cone.rows] = True
        return out

    def label(self, column: int, place: bool = True) -> str:
        """A name for messages: the user's name of the column's variable.

        A variable without one is told by its shape and, with `place`, by where it occurs.
        """
        variable = self.variables[int(self.owner()[column])]
        own = self.canonical.own.get(variable.id)
        if own is None:
            return "an epigraph variable of CVXPY"
        if own.name() != f"var{own.id}":
            return f"variable {own.name()}"
        kind = f"of shape {own.shape}" if own.shape else "(a scalar)"
        where = _place(self.canonical, own) if place else ""
        return f"the unnamed variable {own.name()} {kind}{where}"

    @property
    def constrained(self) -> int:
        """Number of rows in cones: those behind them are arguments of losses."""
        return self.cones[-1].rows.stop if self.cones else 0

    def argument_uses(self) -> NDArray[np.int64]:
        """How often each column occurs in arguments of losses, dense data aside, shape (N,)."""
        sparse = self.rows.sparse
        first = sparse.indptr[self.constrained]
        return np.bincount(sparse.indices[first:], minlength=self.size).astype(np.int64)

    def value(self, z: Array) -> float:
        """The canonical objective at `z`, without the losses that were read off it."""
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


FAMILIAR = frozenset(
    (
        "abs", "huber", "max", "maximum", "norm1", "pos", "neg", "Pnorm", "PnormApprox", "Power",
        "PowerApprox", "QuadForm", "quad_over_lin", "AddExpression", "NegExpression",
        "MulExpression", "multiply", "DivExpression", "Sum", "Promote", "index", "special_index",
        "reshape", "transpose", "Hstack", "Vstack", "Concatenate", "broadcast_to", "Trace",
        "diag_mat", "diag_vec", "upper_tri", "kron", "cumsum",
    )
)
"""Atoms that are not worth naming in a refusal."""

SHOWN = 80
"""Characters of an expression that a message quotes."""


def written(expr: Any) -> str:
    """A CVXPY expression on one line, nearly as it was typed, with ``[..]`` for arrays."""
    text = " ".join(str(expr).split())
    while (shorter := re.sub(r"\[[^\[\]]*[^\[\].][^\[\]]*\]", "[..]", text)) != text:
        text = shorter
    text = re.sub(r"\[(?:\[\.\.\] ?|\.\.\. ?)+\]", "[..]", text).replace("+ -", "- ")
    text = re.sub(r"Promote\(([^(),]*), \([\d, ]*\)\)", r"\1", text)
    text = text.replace("Sum(", "sum(").replace(", None, False)", ")")
    return text if len(text) < SHOWN else text[: SHOWN - 3] + "..."


def _place(canonical: Canonical, variable: Any) -> str:
    """Where the user's problem has `variable`: its first constraint, or the objective."""
    original = canonical.original
    if original is None:
        return ""
    for constraint in original.constraints:
        if any(found.id == variable.id for found in constraint.variables()):
            return f" in the constraint {written(constraint)}"
    return " in the objective"


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
    arguments = []
    stands_for = {user.id: key for key, user in canonical.own.items()}
    for group in canonical.groups:
        part = read_affine(group.argument)
        if group.sign < 0:
            part = _minus(part)
        entries += [
            (row, column[stands_for[key]], block) for key, block in part.blocks.items()
        ]
        offsets.append(part.constant)
        arguments.append(slice(row, row + len(part.constant)))
        row = arguments[-1].stop
    offset = np.concatenate(offsets) if offsets else np.zeros(0)
    rows = assemble(entries, offset, int(starts[-1]))

    quadratic, linear, constant = _objective(canonical, column, int(starts[-1]))
    if not (np.isfinite(linear).all() and rows.finite()):
        raise NotScreenable("the data hold NaN or infinity")
    return Standard(
        canonical, variables, starts, quadratic, linear, constant, rows, tuple(cones),
        tuple(arguments),
    )


def with_current_costs(standard: Standard) -> Standard | None:
    """`standard` with the objective's numbers read anew, at the parameters' present values.

    None where the objective has other losses than before.

    Raises
    ------
    NotScreenable
        If they hold NaN or infinity.
    """
    canonical = standard.canonical.with_current_groups()
    if canonical is None:
        return None
    if not canonical.problem.objective.parameters():  # those that changed weigh losses
        return replace(standard, canonical=canonical)
    column = {v.id: int(s) for v, s in zip(standard.variables, standard.starts, strict=False)}
    quadratic, linear, constant = _objective(standard.canonical, column, standard.size)
    if not (np.isfinite(linear).all() and np.isfinite(quadratic.data).all()):
        raise NotScreenable("the data hold NaN or infinity")
    return replace(
        standard, canonical=canonical, quadratic=quadratic, linear=linear, constant=constant
    )


def _objective(canonical: Canonical, column: dict[int, int], size: int) -> tuple[Any, Array, float]:
    """The objective's squares, slopes and constant over all columns."""
    objective = read_objective(canonical.problem.objective.expr)
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


def _cone_rows(constraint: Any) -> tuple[str, Affine, list[int]]:
    """Kind, rows and cone sizes of one affine constraint."""
    kind, args = type(constraint).__name__, constraint.args
    if kind == "Inequality":
        return "nonneg", read_affine(args[1] - args[0]), [constraint.size]
    if kind == "NonNeg":
        return "nonneg", read_affine(args[0]), [constraint.size]
    if kind == "NonPos":
        return "nonneg", _minus(read_affine(args[0])), [constraint.size]
    if kind == "Equality":
        return "zero", read_affine(args[0] - args[1]), [constraint.size]
    if kind == "Zero":
        return "zero", read_affine(args[0]), [constraint.size]
    if kind == "SOC":
        return "soc", _second_order(constraint), constraint.cone_sizes()
    if kind == "PSD" and len(args[0].shape) == 2:
        matrix = args[0]  # CVXPY asks of one that is not symmetric that its symmetric part be PSD
        if not matrix.is_symmetric():
            matrix = 0.5 * (matrix + matrix.T)
        return "psd", read_affine(matrix), [matrix.shape[0]]
    raise NotScreenable(_unknown_cone(kind))


def _second_order(constraint: Any) -> Affine:
    """Rows of a second-order constraint, cone by cone and head first."""
    head, tail = read_affine(constraint.args[0]), read_affine(constraint.args[1])
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
        whole = stack(parts, len(order), parts[0][1].shape[1])
        blocks[key] = take_rows(whole, order)
    return Affine(blocks, np.concatenate([head.constant, tail.constant])[order])


def _minus(part: Affine) -> Affine:
    size = len(part.constant)
    return part.map(lambda block: scale_rows(block, -np.ones(size)), -part.constant)


def _unknown_cone(kind: str) -> str:
    names = {"ExpCone": "an exponential cone", "PSD": "a stack of PSD cones"}
    return f"the problem needs {names.get(kind, f'a {kind} cone')}, which is not supported"
