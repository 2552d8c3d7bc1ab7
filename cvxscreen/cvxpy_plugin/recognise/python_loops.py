"""Sums and constraints written in a Python loop, as a few vectorised ones.

::

    sum_i c_i f(<a_i, x> + b_i)                     becomes     c @ f(A x + b)
    for i: y_i (<x_i, w> + b) >= 1 - xi_i           becomes     A z + c >= 0

Every scalar term of a loop is an expression of its own to CVXPY, with rows and helper variables of
its own. Terms that are the same elementwise atoms of different affine numbers are written as one
before anything is canonicalised (`vectorised`), and so are scalar constraints, whose dual values
are taken apart again (`bundled`). Variables are the user's; the check of the recognition compares
with the user's own objective, and CVXPY evaluates every bundled row at a random point.

The affine numbers are read from the expression tree without building matrices (`Row`): the weight
that every entry has is passed on from the root towards the leaves, so that ``trace(H @ M)``,
``sum(multiply(H, M))`` and ``vec(H) @ vec(M)`` each cost one pass over ``H``. Parameters are not
read: whoever keeps the numbers would not notice that they change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.atoms.elementwise.elementwise import Elementwise
from cvxpy.constraints.nonpos import Inequality
from cvxpy.constraints.zero import Equality
from numpy.typing import NDArray

from cvxscreen.cvxpy_plugin.recognise.expressions import (
    MOVES,
    WRAPS,
    as_vector,
    positions,
    preserved_values,
    read_affine,
)
from cvxscreen.cvxpy_plugin.recognise.matrices import csr
from cvxscreen.cvxpy_plugin.size import NORMS

Array = NDArray[np.float64]

MANY = 50
"""Objectives of fewer terms are left as they are written."""

SPARSE = 0.25
"""Coefficients of which a smaller share is filled are kept sparse."""

DISTANCES = dict.fromkeys(NORMS, "norm") | {"quad_over_lin": "square"}
"""Atoms of one vector, many of which are bounded one by one."""

STACKS = ("Hstack", "Vstack", "Concatenate")

AGREEMENT = 1e-11
"""Largest relative difference between a row and CVXPY's own evaluation of it."""

SEED = 20141203
"""Of the values that rows are compared at; any will do, but a loop is always read alike."""


def vectorised(problem: Any) -> Any:
    """`problem`, or the same with the loops in its objective vectorised.

    Parameters
    ----------
    problem : cvxpy.Problem

    Returns
    -------
    cvxpy.Problem
        Of the same variables, parameters and constraints.
    """
    try:
        parts = list(summands_of(problem.objective.expr))
    except Unreadable:
        return problem
    if len(parts) < MANY:
        return problem
    groups: dict[tuple[Any, ...], TermGroup] = {}
    rest: list[Any] = []
    far: dict[tuple[Any, ...], list[Term]] = {}
    for part in parts:
        if _is_distance(part.expr):
            key = part.expr.args[0].size, *(id(scale) for scale in part.scales)
            far.setdefault(key, []).append(part)
            continue
        rows: list[Row] = []
        try:
            shape = _template(part.expr, rows) if part.expr.size == 1 else None
        except Unreadable:
            shape = None
        if shape is None:
            rest.append(part.written())
            continue
        key = (shape, *(id(scale) for scale in part.scales))
        group = groups.setdefault(key, TermGroup(part.scales, part.expr))
        group.factors.append(part.factor)
        group.rows.append(rows)
    variables = {variable.id: variable for variable in problem.variables()}
    for alike in far.values():
        whole = _summed_distances(problem, alike, variables)
        rest += [part.written() for part in alike] if whole is None else [whole]
    if len(groups) + len(rest) > 0.5 * len(parts):
        return problem
    made = [*rest, *(group.written(variables) for group in groups.values())]
    objective = type(problem.objective)(sum(made[1:], made[0]))
    whole = cp.Problem(objective, problem.constraints)
    # What CVXPY knows of the sign of an argument may be lost; the user's problem is then taken.
    return whole if whole.is_dcp() else problem


def _is_distance(expr: Any) -> bool:
    """Whether `expr` is the Euclidean norm of an affine vector without parameters."""
    if type(expr).__name__ not in NORMS or expr.size != 1 or float(expr.p) != 2.0:
        return False
    inner = expr.args[0]
    return inner.size > 1 and inner.is_affine() and not inner.parameters()


def _summed_distances(problem: Any, parts: list[Term], variables: dict[int, Any]) -> Any:
    """Norms of vectors that differ by constants as norms of rows; None where they do otherwise."""
    if len(parts) < MANY:
        return None
    stacked = _stacked_vectors(problem, [part.expr.args[0] for part in parts], variables)
    if stacked is None:
        return None
    whole = np.array([part.factor for part in parts]) @ cp.norm(stacked, 2, axis=1)
    for scale in parts[0].scales:
        whole = scale * whole
    return whole


class Term(NamedTuple):
    """One summand.

    Attributes
    ----------
    factor : float
        What it is multiplied by.
    scales : tuple of cvxpy.Expression
        Constants with parameters that it is multiplied by.
    expr : cvxpy.Expression
        A scalar.
    """

    factor: float
    scales: tuple[Any, ...]
    expr: Any

    def written(self) -> Any:
        """The summand as it stands in the sum."""
        whole = self.expr if self.factor == 1.0 else self.factor * self.expr
        for scale in self.scales:
            whole = scale * whole
        return whole


def sum_of(terms: Sequence[Term]) -> Any:
    """The sum of some terms; 0 of none."""
    written = [term.written() for term in terms]
    return sum(written[1:], written[0]) if written else cp.Constant(0.0)


def summands_of(expr: Any, factor: float = 1.0, scales: tuple[Any, ...] = ()) -> Iterator[Term]:
    """The summands of a scalar, none of them built anew."""
    kind = type(expr).__name__
    if kind == "AddExpression" and all(arg.size == 1 for arg in expr.args):
        for arg in expr.args:
            yield from summands_of(arg, factor, scales)
    elif kind == "NegExpression":
        yield from summands_of(expr.args[0], -factor, scales)
    elif kind == "Sum" and type(expr.args[0]).__name__ in STACKS:
        parts = expr.args[0].args
        if all(part.size == 1 for part in parts):
            for part in parts:
                yield from summands_of(part, factor, scales)
        else:
            yield Term(factor, scales, expr)
    elif kind in ("multiply", "MulExpression", "DivExpression"):
        yield from _multiple(kind, expr, factor, scales)
    elif kind in ("reshape", "Promote") and expr.size == expr.args[0].size == 1:
        yield from summands_of(expr.args[0], factor, scales)
    else:
        yield Term(factor, scales, expr)


def _multiple(kind: str, expr: Any, factor: float, scales: tuple[Any, ...]) -> Iterator[Term]:
    first, second = expr.args
    divided = kind == "DivExpression"
    outer, inner = (second, first) if divided or not first.is_constant() else (first, second)
    if not (outer.size == inner.size == 1 and outer.is_constant()):
        yield Term(factor, scales, expr)
    elif fixed(outer):
        number = numbers(outer).item()
        yield from summands_of(inner, factor / number if divided else factor * number, scales)
    else:
        yield from summands_of(inner, factor, (*scales, 1 / outer if divided else outer))


@dataclass(eq=False)
class TermGroup:
    """Terms that are the same atoms of different affine numbers.

    Attributes
    ----------
    scales : tuple of cvxpy.Expression
    sample : cvxpy.Expression
        One of the terms.
    factors : list of float
    rows : list of list of Row
        The affine numbers of every term, in the order of the tree.
    """

    scales: tuple[Any, ...]
    sample: Any
    factors: list[float] = field(default_factory=list)
    rows: list[list[Row]] = field(default_factory=list)

    def written(self, variables: dict[int, Any]) -> Any:
        """The sum of the terms."""
        count = len(self.rows[0])
        holes = iter([stacked_rows([row[k] for row in self.rows], variables) for k in range(count)])
        whole = np.array(self.factors) @ _filled(self.sample, holes)
        for scale in self.scales:
            whole = scale * whole
        return whole


def _template(expr: Any, rows: list[Row]) -> tuple[Any, ...]:
    """What tells apart the atoms of `expr`, its affine numbers appended to `rows`."""
    if not isinstance(expr, Elementwise):
        row = Row()
        row.add(expr, np.ones(expr.shape))
        rows.append(row)
        return ()
    data = tuple(_key(entry) for entry in expr.get_data() or ())
    return (type(expr), data, *(_template(arg, rows) for arg in expr.args))


def _key(entry: Any) -> Any:
    if isinstance(entry, cp.Constant) and entry.size == 1:
        return numbers(entry).item()
    if isinstance(entry, bool | int | float | str | type(None)):
        return entry
    raise Unreadable


def _filled(sample: Any, holes: Iterator[Any]) -> Any:
    """The atoms of `sample` around other arguments."""
    if not isinstance(sample, Elementwise):
        return next(holes)
    return sample.copy([_filled(arg, holes) for arg in sample.args])


def stacked_rows(rows: list[Row], variables: dict[int, Any]) -> Any:
    """Affine numbers as one vector."""
    constant = np.array([row.constant for row in rows])
    same = bool((constant == constant[0]).all())
    total: Any = cp.Constant(constant[0] if same else constant)
    keys = dict.fromkeys(key for row in rows for key in row.seen())
    if not keys:
        return total if not same else cp.Constant(constant)
    parts = []
    for key in keys:
        variable = variables[key]
        matrix = _stacked(rows, key, variable.size)
        if variable.shape == ():
            parts.append(cp.multiply(matrix.toarray().ravel(), variable))
            continue
        parts.append(matrix @ as_vector(variable))
    whole = sum(parts[1:], parts[0])
    return whole if same and constant[0] == 0.0 else whole + total


def _stacked(rows: list[Row], key: int, size: int) -> Any:
    """Coefficients below each other, column-major each: dense, or CSR where few are filled."""
    filled = sum(int(np.count_nonzero(row.slopes[key])) for row in rows if key in row.slopes)
    if size > 1 and filled >= SPARSE * len(rows) * size:
        out = np.zeros((len(rows), size))
        for line, row in zip(out, rows, strict=True):
            if key in row.slopes:
                line[:] = row.slopes[key].ravel(order="F")
            for name, at, weight in row.picks:
                if name == key:
                    line[at] += weight
        return out
    found = [row.entries(key) for row in rows]
    index = np.concatenate([index for index, _ in found])
    data = np.concatenate([part for _, part in found])
    owner = np.repeat(np.arange(len(rows)), [len(index) for index, _ in found])
    return sp.csr_array((data, (owner, index)), shape=(len(rows), size))


def bundled(problem: Any) -> tuple[Any, tuple[Bundle, ...]]:
    """`problem` with its many scalar constraints in a few, and which those are.

    Taken are affine ones, and bounds of a norm or a sum of squares of vectors ``L z + b_i`` that
    differ by constants (``cp.norm(x_i - c) <= r``).

    Parameters
    ----------
    problem : cvxpy.Problem

    Returns
    -------
    cvxpy.Problem
        `problem` itself where there are few, or a row is not what CVXPY says.
    tuple of Bundle
    """
    found: dict[type, list[tuple[Any, Row]]] = {Inequality: [], Equality: []}
    far: dict[tuple[str, int], list[Any]] = {}
    rest: list[Any] = []
    for constraint in problem.constraints:
        row = _row(constraint) if type(constraint) in found and constraint.size == 1 else None
        if row is not None:
            found[type(constraint)].append((constraint, row))
        elif (distance := _distance(constraint)) is not None:
            far.setdefault((distance, constraint.args[0].args[0].size), []).append(constraint)
        else:
            rest.append(constraint)
    variables = {variable.id: variable for variable in problem.variables()}
    bundles = []
    for (distance, _), alike in far.items():
        bound = _stacked_distances(problem, distance, alike, variables)
        if bound is None:
            rest += alike
        else:
            bundles.append(Bundle(bound, tuple(alike)))
    large = {kind: pairs for kind, pairs in found.items() if len(pairs) >= MANY}
    rest += [c for kind, pairs in found.items() if kind not in large for c, _ in pairs]
    if not (large or bundles) or not all(_agrees(problem, pairs) for pairs in large.values()):
        return problem, ()
    for kind, pairs in large.items():
        whole = stacked_rows([row for _, row in pairs], variables)
        made = whole >= 0 if kind is Inequality else whole == 0
        bundles.append(Bundle(made, tuple(constraint for constraint, _ in pairs)))
    constraints = [*rest, *(bundle.whole for bundle in bundles)]
    return cp.Problem(problem.objective, constraints), tuple(bundles)


def _distance(constraint: Any) -> str | None:
    """The kind of distance, of those that many constraints bound, that `constraint` bounds."""
    if type(constraint) is not Inequality or constraint.size != 1:
        return None
    lower, upper = constraint.args
    name = type(lower).__name__
    if name not in DISTANCES or lower.parameters() or not upper.is_affine():
        return None
    inner = lower.args[0]
    plain = float(lower.p) == 2.0 if name in NORMS else lower.args[1].value == 1.0
    return DISTANCES[name] if plain and inner.is_affine() and inner.size > 1 else None


def _stacked_distances(
    problem: Any, kind: str, constraints: list[Any], variables: dict[int, Any]
) -> Any:
    """Constraints of one kind of distance as one; None where the vectors differ otherwise."""
    if len(constraints) < MANY:
        return None
    read_rows = [_summed(constraint.args[1]) for constraint in constraints]
    rows = [row for row in read_rows if row is not None]
    inner = [constraint.args[0].args[0] for constraint in constraints]
    if len(rows) < len(constraints):
        return None
    points = _points(problem)
    flat = {key: point.ravel(order="F") for key, point in points.items()}
    with preserved_values(problem.variables()):
        for key, variable in variables.items():
            variable.save_value(points[key])
        bounds = [float(np.sum(constraint.args[1].value)) for constraint in constraints]
    for row, bound in zip(rows, bounds, strict=True):
        ours, size = _value(row, flat)
        if not abs(ours - bound) <= AGREEMENT * (1.0 + size + abs(bound)):
            return None
    stacked = _stacked_vectors(problem, inner, variables)
    if stacked is None:
        return None
    lower = cp.norm(stacked, 2, axis=1) if kind == "norm" else cp.sum(cp.square(stacked), axis=1)
    return lower <= stacked_rows(rows, variables)


def _stacked_vectors(problem: Any, inner: list[Any], variables: dict[int, Any]) -> Any:
    """Affine vectors that differ by constants as rows; None where they differ otherwise."""
    points = _points(problem)
    with preserved_values(problem.variables()):
        for key, variable in variables.items():
            variable.save_value(np.zeros_like(points[key]))
        fixed = np.array([np.asarray(expr.value).ravel(order="F") for expr in inner])
        for key, variable in variables.items():
            variable.save_value(points[key])
        moved = np.array([np.asarray(expr.value).ravel(order="F") for expr in inner])
    read = read_affine(inner[0])
    shift = sum(
        (csr(block) @ points[key].ravel(order="F") for key, block in read.blocks.items()), 0.0
    )
    room = AGREEMENT * (1.0 + np.abs(fixed).max() + np.abs(moved).max())
    if not read.blocks or not np.abs(moved - fixed - shift).max() <= room:
        return None
    parts = [csr(block) @ as_vector(variables[key]) for key, block in read.blocks.items()]
    return fixed + cp.reshape(sum(parts[1:], parts[0]), (1, fixed.shape[1]), order="F")


class Bundle(NamedTuple):
    """Constraints of the user's that became one.

    Attributes
    ----------
    whole : cvxpy constraint
    parts : tuple of cvxpy constraint
        In the order of the entries of `whole`.
    """

    whole: Any
    parts: tuple[Any, ...]

    def apart(self, duals: dict[int, Any]) -> dict[int, Any]:
        """Dual values by identifier of the user's constraints instead of that of `whole`."""
        if self.whole.id not in duals:
            return duals
        left = dict(duals)
        values = np.asarray(left.pop(self.whole.id), dtype=np.float64).ravel()
        for part, value in zip(self.parts, values, strict=True):
            # CVXPY's cone form of a sum of squares has one row, not a number.
            squared = type(part.args[0]).__name__ == "quad_over_lin"
            shape = (1,) if squared else part.shape
            left[part.id] = float(value) if shape == () else np.full(shape, value)
        return left


def _row(constraint: Any) -> Row | None:
    """The right side minus the left one, or the other way round for an equality."""
    sign = 1.0 if type(constraint) is Equality else -1.0
    return _summed(*zip(constraint.args, (sign, -sign), strict=True))


def _summed(*parts: Any) -> Row | None:
    """An affine number, or the sum of some times their signs; None where one is not read."""
    row = Row()
    try:
        for part in parts:
            arg, weight = part if isinstance(part, tuple) else (part, 1.0)
            row.add(arg, np.full(arg.shape, weight))
    except Unreadable:
        return None
    return row if row.seen() else None


def _points(problem: Any) -> dict[int, Array]:
    """Random values for all variables, by their identifiers."""
    rng = np.random.default_rng(SEED)
    variables = problem.variables()
    points = {v.id: rng.standard_normal(v.shape) for v in variables}
    for variable in variables:
        if any(variable.attributes[name] for name in ("PSD", "NSD", "symmetric")):
            points[variable.id] = points[variable.id] + points[variable.id].T
        elif variable.attributes["diag"]:
            points[variable.id] = np.diag(np.diag(points[variable.id]))
    return points


def _value(row: Row, flat: dict[int, Array]) -> tuple[float, float]:
    """A row at values of the variables, and the sum of the sizes of its summands."""
    ours, size = row.constant, abs(row.constant)
    for key in dict.fromkeys(row.seen()):
        index, weights = row.entries(key)
        summands = weights * flat[key][index]
        ours, size = ours + summands.sum(), size + np.abs(summands).sum()
    return ours, size


def _agrees(problem: Any, pairs: list[tuple[Any, Row]]) -> bool:
    """Whether all rows are what CVXPY says at a random point."""
    variables, points = problem.variables(), _points(problem)
    flat = {key: point.ravel(order="F") for key, point in points.items()}
    with preserved_values(variables):
        for variable in variables:
            variable.save_value(points[variable.id])
        for constraint, row in pairs:
            first, second = (np.asarray(arg.value, dtype=float).sum() for arg in constraint.args)
            sign = 1.0 if type(constraint) is Equality else -1.0
            ours, size = _value(row, flat)
            size += abs(first) + abs(second)
            if not abs(ours - sign * (first - second)) <= AGREEMENT * (1.0 + size):
                return False
    return True


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
        carried = np.bincount(index[inside], weights=flat[inside], minlength=arg.size)
        row.add(arg, carried.reshape(arg.shape, order="F"))


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
