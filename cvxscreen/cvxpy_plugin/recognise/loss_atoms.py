"""Losses that are read off the objective as they are written, before anything is canonicalised.

::

    sum_i c_i max_k (s_k <a_i, z> + h_k)       pos, neg, abs, maximum, scalene and sums of these
    sum_i c_i max_k (s_k <a_i, z> + h_k)_+^2   their squares: sum_squares(pos(.)), square(pos(.))
    sum_i c_i huber(<a_i, z> + h)

CVXPY's cone form has a helper column and two rows or more for each such term, and all rules would
run over them. Here a whole elementwise expression is one group: its argument is read once, its five
numbers are worked out once, and what is left of the objective (the regulariser, say) is small. What
is not of these forms is left where it is, for CVXPY and the rules; so are terms of the coordinates
themselves, like an L1 norm.

Numbers are read at the parameters' present values; `read_losses` reads them again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.core.losses import Losses
from cvxscreen.cvxpy_plugin.recognise.expressions import MOVES, broadcast_positions
from cvxscreen.cvxpy_plugin.recognise.python_loops import summands_of

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

FEWER = frozenset(("diag", "PSD", "NSD", "symmetric", "hermitian", "sparsity"))
"""Attributes that leave a variable fewer free entries than it has; left to CVXPY's reductions."""


class _Other(Exception):
    """An expression of another form."""


@dataclass(frozen=True, eq=False)
class LossGroup:
    """Terms ``weight_i f_i(argument_i)``, one for each entry of an affine expression.

    Attributes
    ----------
    argument : cvxpy.Expression
        Affine, k entries.
    sign : float
        -1 where the terms see the argument's negative: one-sided losses fall.
    weight : array, shape (k,)
        Not negative.
    numbers : tuple of float or array
        ``b, e, q, lo, hi`` of ``f_i``, for weight 1.
    level : float or array
        Least value of ``f_i``, which the five numbers have at 0.
    """

    argument: Any
    sign: float
    weight: Array
    numbers: tuple[Any, ...]
    level: Any

    def weighed(self, paying: Index) -> tuple[Any, ...]:
        """The five numbers of the terms at `paying`, whose weights are positive."""
        whole = len(paying) == len(self.weight)
        weight = self.weight if whole else self.weight[paying]
        b, e, q, lo, hi = (
            part if whole or np.ndim(part) == 0 else part[paying] for part in self.numbers
        )
        return b, e, q / weight, weight * lo, weight * hi

    @property
    def constant(self) -> float:
        """What the terms add to the objective beside the five numbers."""
        return float((self.weight * self.level).sum())

    def value(self, arguments: Array) -> float:
        """The sum of the terms at the values of their arguments, shape (k,)."""
        paying = np.flatnonzero(self.weight > 0)
        numbers = (np.broadcast_to(part, len(paying)) for part in self.weighed(paying))
        losses = Losses(*numbers)
        return float(losses.value(arguments[paying]).sum()) + self.constant

    def times(self, factor: float) -> LossGroup:
        """The same with every weight times a positive `factor`."""
        return self if factor == 1.0 else replace(self, weight=self.weight * factor)

    def factor(self, new: LossGroup) -> Array | None:
        """What the terms of `new` are these times, shape (k,); None where they are others."""
        same = self.sign == new.sign and len(self.weight) == len(new.weight)
        pairs = zip((*self.numbers, self.level), (*new.numbers, new.level), strict=True)
        if not same or not all(a is b or np.array_equal(a, b) for a, b in pairs):
            return None
        if ((self.weight > 0) != (new.weight > 0)).any():
            return None
        return np.divide(new.weight, self.weight, out=np.ones(len(new.weight)),
                         where=self.weight > 0)


def take_losses(problem: Any) -> tuple[Any, tuple[LossGroup, ...]]:
    """`problem` without the losses that could be read off its objective, and these losses.

    Parameters
    ----------
    problem : cvxpy.Problem
        That follows the DCP rules.

    Returns
    -------
    cvxpy.Problem
        Of the same variables and constraints; `problem` itself where nothing was found.
    tuple of LossGroup
    """
    groups, rest = _split(problem)
    if not groups:
        return problem, ()
    sign = -1.0 if isinstance(problem.objective, cp.Maximize) else 1.0
    whole = sum(rest[1:], rest[0]) if rest else cp.Constant(0.0)
    left = {v.id for v in whole.variables()}
    left |= {v.id for constraint in problem.constraints for v in constraint.variables()}
    for variable in problem.variables():
        if variable.id not in left:  # CVXPY has a column only for what occurs
            whole = whole + 0.0 * cp.sum(variable)
    whole = whole if sign > 0 else -whole
    return cp.Problem(type(problem.objective)(whole), problem.constraints), groups


def read_losses(problem: Any) -> tuple[LossGroup, ...]:
    """The losses in the objective of `problem` at the parameters' present values."""
    return _split(problem)[0]


def _split(problem: Any) -> tuple[tuple[LossGroup, ...], list[Any]]:
    """The losses, and the other summands of the objective to be minimised."""
    sign = -1.0 if isinstance(problem.objective, cp.Maximize) else 1.0
    groups: list[LossGroup] = []
    rest: list[Any] = []
    for part in summands_of(problem.objective.expr, sign):
        try:
            factor = part.factor
            for scale in part.scales:
                factor *= float(_values(scale, 1)[0])
            groups += _groups_of(part.expr, factor)
        except _Other:
            rest.append(part.written())
    return tuple(groups), rest


_UNITS: dict[int, tuple[weakref.ref[Any], tuple[LossGroup, ...]]] = {}
"""The groups of summands without parameters at weight 1, by the expression's identity: what a
parameter in front of them changes is their weight alone."""


def _groups_of(expr: Any, factor: float) -> list[LossGroup]:
    """The groups of ``factor * expr``."""
    known = _UNITS.get(id(expr))
    if known is not None and known[0]() is expr and factor > 0:
        return [unit.times(factor) for unit in known[1]]
    found: list[tuple[Any, Array]] = []
    _weigh(expr, np.array([factor]), found)
    groups = [_group(inner, weight) for inner, weight in found]
    if factor > 0 and not expr.parameters():
        key = id(expr)
        unit = tuple(group.times(1.0 / factor) for group in groups)
        _UNITS[key] = weakref.ref(expr, lambda _: _UNITS.pop(key, None)), unit
    return groups


# -- from the root of the objective to elementwise expressions ------------------------------------


def _weigh(expr: Any, weight: Array, found: list[tuple[Any, Array]]) -> None:
    """Collect ``<weight, vec(expr)>`` as weighted elementwise expressions."""
    kind = type(expr).__name__
    if kind == "Sum":
        if expr.size != 1:
            raise _Other
        _weigh(expr.args[0], np.broadcast_to(weight, expr.args[0].size), found)
    elif kind == "norm1" and expr.size == 1 and expr.args[0].is_affine():
        found.append((cp.abs(expr.args[0]), np.broadcast_to(weight, expr.args[0].size)))
    elif kind == "quad_over_lin" and expr.size == 1 and expr.args[1].is_constant():
        inner = expr.args[0]
        if inner.is_affine():
            raise _Other
        divided = weight / _values(expr.args[1], 1)
        found.append((cp.square(inner), np.broadcast_to(divided, inner.size)))
    elif kind == "MulExpression" and expr.size == 1 and expr.args[0].is_constant():
        inner = expr.args[1]
        _weigh(inner, weight[0] * _values(expr.args[0], inner.size), found)
    elif kind in ("multiply", "DivExpression") and _scaled(expr) is not None:
        inner, values = _scaled(expr)  # type: ignore[misc]
        if inner.size != expr.size:
            raise _Other
        _weigh(inner, weight * values, found)
    elif kind == "NegExpression":
        _weigh(expr.args[0], -weight, found)
    elif kind in ("reshape", "Promote") and expr.size == expr.args[0].size == 1:
        _weigh(expr.args[0], weight, found)
    elif expr.is_affine():
        raise _Other
    else:
        found.append((expr, np.broadcast_to(weight, expr.size)))


def _values(expr: Any, size: int) -> Array:
    """A constant's entries, column-major, a scalar repeated, shape (size,)."""
    value = expr.value
    if value is None or expr.is_complex():
        raise _Other
    dense = np.asarray(value.toarray() if sp.issparse(value) else value, dtype=np.float64)
    flat = dense.flatten(order="F")
    if flat.size not in (1, size):
        raise _Other
    return np.broadcast_to(flat, size)


def _scaled(expr: Any) -> tuple[Any, Array] | None:
    """What a constant multiplies or divides in `expr`, and that constant's entries."""
    first, second = expr.args
    if type(expr).__name__ == "DivExpression":
        return (first, 1.0 / _entries(second, expr)) if second.is_constant() else None
    if second.is_constant():
        first, second = second, first
    return (second, _entries(first, expr)) if first.is_constant() else None


def _entries(expr: Any, whole: Any) -> Array:
    """A constant's entries broadcast to the shape of `whole`: one where they are all the same."""
    value = _values(expr, expr.size)
    return value if value.size == 1 else value[broadcast_positions(expr, whole.shape)]


# -- from an elementwise expression to lines in one argument --------------------------------------


@dataclass(frozen=True, eq=False)
class _Lines:
    """``max_k (slopes[k] t + heights[k])`` of one affine argument, None for constants."""

    argument: Any
    slopes: tuple[Any, ...]
    heights: tuple[Any, ...]

    def mapped(self, change: Callable[[Any, Any], tuple[Any, Any]]) -> _Lines:
        """Every line changed alike."""
        pairs = [change(s, h) for s, h in zip(self.slopes, self.heights, strict=True)]
        return _Lines(self.argument, tuple(s for s, _ in pairs), tuple(h for _, h in pairs))

    def scaled(self, factor: Any) -> _Lines:
        """Times a number, which must not be negative under a maximum."""
        if len(self.slopes) > 1 and np.min(factor) < 0:
            raise _Other
        return self.mapped(lambda s, h: (s * factor, h * factor))

    def maximum(self, other: _Lines) -> _Lines:
        """The larger one."""
        first, second = _common(self, other)
        return _Lines(
            first.argument, first.slopes + second.slopes, first.heights + second.heights
        )

    def plus(self, other: _Lines) -> _Lines:
        """The sum: every line of one with every line of the other."""
        first, second = _common(self, other)
        pairs = [(i, j) for i in range(len(first.slopes)) for j in range(len(second.slopes))]
        return _Lines(
            first.argument,
            tuple(first.slopes[i] + second.slopes[j] for i, j in pairs),
            tuple(first.heights[i] + second.heights[j] for i, j in pairs),
        )


NOTHING = _Lines(None, (0.0,), (0.0,))
"""The constant 0."""


def _common(first: _Lines, second: _Lines) -> tuple[_Lines, _Lines]:
    """Both in one argument."""
    if first.argument is None or second.argument is None or first.argument is second.argument:
        argument = second.argument if first.argument is None else first.argument
    elif same(first.argument, second.argument):
        argument = first.argument
    else:
        first, second = _bare(first), _bare(second)
        if not same(first.argument, second.argument):
            raise _Other
        argument = first.argument
    return replace(first, argument=argument), replace(second, argument=argument)


def _bare(lines: _Lines) -> _Lines:
    """The same with constant factors of the argument in the lines."""
    expr = lines.argument
    kind = type(expr).__name__
    if kind == "NegExpression":
        return _bare(replace(lines, argument=expr.args[0]).mapped(lambda s, h: (-s, h)))
    if kind in ("multiply", "DivExpression", "MulExpression"):
        if kind == "MulExpression" and () not in (expr.args[0].shape, expr.args[1].shape):
            return lines
        found = _scaled(expr)
        if found is not None and found[0].size == expr.size:
            inner, factor = found
            scale = factor[0] if factor.size == 1 else factor
            return _bare(replace(lines, argument=inner).mapped(lambda s, h: (s * scale, h)))
    if kind == "AddExpression":
        moving = [arg for arg in expr.args if not arg.is_constant()]
        if len(moving) < len(expr.args) and max(arg.size for arg in moving) == expr.size:
            shift = sum(_entries(arg, expr) for arg in expr.args if arg.is_constant())
            inner = replace(lines, argument=sum(moving[1:], moving[0]))
            return _bare(inner.mapped(lambda s, h: (s, h + s * shift)))
    return lines


def same(first: Any, second: Any) -> bool:
    """Whether two expressions are written alike, with equal constants."""
    if first is second:
        return True
    if type(first) is not type(second) or first.shape != second.shape:
        return False
    if isinstance(first, cp.Constant):
        one, two = first.value, second.value
        if one is two:
            return True
        if sp.issparse(one) or sp.issparse(two):
            return bool(sp.issparse(one) and sp.issparse(two) and (one != two).nnz == 0)
        return np.array_equal(one, two)
    if not first.args:
        return False  # two variables, or two parameters
    if len(first.args) != len(second.args):
        return False
    data = (first.get_data(), second.get_data())
    if any(entry is not None for entry in data) and not _same_data(*data):
        return False
    return all(same(a, b) for a, b in zip(first.args, second.args, strict=True))


def _same_data(first: Any, second: Any) -> bool:
    """The same for what an atom holds beside its arguments."""
    if isinstance(first, cp.Constant) and isinstance(second, cp.Constant):
        return same(first, second)
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        pairs = zip(first, second, strict=False)
        return len(first) == len(second) and all(_same_data(a, b) for a, b in pairs)
    plain = isinstance(first, bool | int | float | str | slice | type(None))
    return first is second or (plain and type(first) is type(second) and first == second)


def _lines(expr: Any, sign: float = 1.0) -> _Lines:
    """An elementwise expression times `sign` as the largest of some lines."""
    kind = type(expr).__name__
    if expr.is_constant():
        value = sign * _values(expr, expr.size)
        return _Lines(None, (0.0,), (float(value[0]) if value.size == 1 else value,))
    if expr.is_affine():
        return _Lines(expr, (sign,), (0.0,))
    if kind in ("pos", "neg", "abs") and sign > 0:
        inner = _lines(expr.args[0])
        if kind == "pos":
            return inner.maximum(NOTHING)
        return inner.scaled(-1.0).maximum(NOTHING if kind == "neg" else inner)
    if (kind, sign) in (("maximum", 1.0), ("minimum", -1.0)):
        out = _stretched(expr.args[0], expr, sign)
        for arg in expr.args[1:]:
            out = out.maximum(_stretched(arg, expr, sign))
        return out
    if kind == "AddExpression":
        out = _stretched(expr.args[0], expr, sign)
        for arg in expr.args[1:]:
            out = out.plus(_stretched(arg, expr, sign))
        return out
    if kind == "NegExpression":
        return _lines(expr.args[0], -sign)
    if kind in ("multiply", "DivExpression", "MulExpression"):
        if kind == "MulExpression" and () not in (expr.args[0].shape, expr.args[1].shape):
            raise _Other
        found = _scaled(expr)
        if found is None or found[0].size != expr.size:
            raise _Other
        inner, factor = found
        if factor.max(initial=0.0) <= 0.0:
            sign, factor = -sign, -factor
        return _lines(inner, sign).scaled(factor[0] if factor.size == 1 else factor)
    raise _Other


def _stretched(arg: Any, whole: Any, sign: float) -> _Lines:
    """The lines of `arg`, which has as many entries as `whole` or is one constant for all."""
    if arg.is_constant():
        value = sign * _entries(arg, whole)
        return _Lines(None, (0.0,), (float(value[0]) if value.size == 1 else value,))
    if arg.size != whole.size:
        raise _Other
    return _lines(arg, sign)


# -- from lines to the five numbers ---------------------------------------------------------------


def _group(expr: Any, weight: Array) -> LossGroup:
    """The terms ``<weight, vec(expr)>`` of an elementwise expression."""
    sign = 1.0
    if weight.max(initial=0.0) <= 0.0:
        sign, weight = -1.0, -weight
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise _Other
    kind = type(expr).__name__
    if kind in ("huber", "Power", "PowerApprox") and sign < 0:
        raise _Other
    if kind == "huber":
        inner, M = _lines(expr.args[0]), _values(expr.M, 1)[0]
        if len(inner.slopes) > 1 or not (np.isfinite(M) and M > 0):
            raise _Other
        return _made(inner.argument, weight, (0.0, 0.0, 0.5, -2.0 * M, 2.0 * M))
    if kind in ("Power", "PowerApprox"):
        if float(_values(expr.p, 1)[0]) != 2.0 or expr.args[0].is_affine():
            raise _Other
        return _folded(_lines(expr.args[0]), weight, squared=True)
    return _folded(_lines(expr, sign), weight, squared=False)


def envelope(slopes: Array, heights: Array) -> Mask:
    """Which of the lines ``slope u + height`` are the largest somewhere, shape (g, k)."""
    g, k = slopes.shape
    active = np.zeros((g, k), dtype=bool)
    for j in range(k):
        low, high = np.full(g, -np.inf), np.full(g, np.inf)
        beaten = np.zeros(g, dtype=bool)
        for i in range(k):
            if i == j:
                continue
            rise = slopes[:, j] - slopes[:, i]
            lift = heights[:, i] - heights[:, j]
            equal = rise == 0.0
            beaten |= equal & ((lift > 0) | ((lift == 0) & (i < j)))
            cross = lift / np.where(equal, 1.0, rise)
            low = np.where(rise > 0, np.maximum(low, cross), low)
            high = np.where(rise < 0, np.minimum(high, cross), high)
        active[:, j] = ~beaten & (low < high)
    return active


def _folded(lines: _Lines, weight: Array, *, squared: bool) -> LossGroup:
    """Terms that are the largest of some lines, or the square of that."""
    if lines.argument is None:
        raise _Other
    parts = (*lines.slopes, *lines.heights)
    length = max(np.size(part) for part in parts)
    slopes, heights = (
        np.column_stack([np.broadcast_to(part, length) for part in group])
        for group in (lines.slopes, lines.heights)
    )
    active = envelope(slopes, heights)
    count = active.sum(axis=1)
    if not (np.isfinite(slopes).all() and np.isfinite(heights).all()) or (count != count[0]).any():
        raise _Other
    order = np.argsort(np.where(active, slopes, np.inf), axis=1, kind="stable")[:, : count[0]]
    slopes, heights = (np.take_along_axis(p, order, axis=1).T for p in (slopes, heights))
    if count[0] == 2:
        left = right = (heights[0] - heights[1]) / (slopes[1] - slopes[0])
        level, low, high = slopes[0] * left + heights[0], slopes[0], slopes[1]
    elif count[0] == 3 and (slopes[1] == 0.0).all():
        left, right = heights[0] - heights[1], heights[1] - heights[2]
        left, right = left / (slopes[1] - slopes[0]), right / (slopes[2] - slopes[1])
        level, low, high = heights[1], slopes[0], slopes[2]
    else:
        raise _Other
    if (low > 0).any() or (high < 0).any():
        raise _Other  # its least value is nowhere
    centre, reach = 0.5 * (left + right), 0.5 * (right - left)
    if not squared:
        return _made(lines.argument, weight, (centre, reach, 0.0, low, high), level)
    sides = np.where(low == 0.0, high, -low)
    if level.any() or ((low != 0.0) & (high != 0.0) & (low != -high)).any():
        raise _Other
    if not ((low != 0.0) & (high != 0.0)).all() and not ((low == 0.0) ^ (high == 0.0)).all():
        raise _Other
    infinite = tuple(np.where(s == 0.0, 0.0, np.copysign(np.inf, s)) for s in (low, high))
    return _made(lines.argument, weight, (centre, reach, 0.5 / sides**2, *infinite))


MOVING = MOVES | {
    "Variable", "AddExpression", "NegExpression", "multiply", "DivExpression", "Constant",
}
"""Nodes of expressions whose entries are single coordinates, or a few of them."""


def _without_data(expr: Any) -> bool:
    """Whether each entry is a coordinate (``norm1(w)``): what such terms are is for the rules."""
    return type(expr).__name__ in MOVING and all(_without_data(arg) for arg in expr.args)


def _made(argument: Any, weight: Array, numbers: tuple[Any, ...], level: Any = 0.0) -> LossGroup:
    """The group, one-sided losses falling."""
    if argument is None or _without_data(argument):
        raise _Other
    if any(v.attributes[name] for v in argument.variables() for name in FEWER):
        raise _Other
    b, e, q, lo, hi = (
        float(part[0]) if np.size(part) == 1 and np.ndim(part) else part for part in numbers
    )
    level = float(level[0]) if np.size(level) == 1 and np.ndim(level) else level
    if np.all(np.equal(lo, 0.0)):
        return LossGroup(argument, -1.0, weight, (-b, e, q, -hi, -lo), level)
    return LossGroup(argument, 1.0, weight, (b, e, q, lo, hi), level)
