"""Losses that are read off the objective as they are written, before anything is canonicalised.

::

    sum_i c_i max_k (s_k <a_i, z> + h_k)       pos, neg, abs, maximum, scalene and sums of these
    sum_i c_i max_k (s_k <a_i, z> + h_k)_+^2   their squares: sum_squares(pos(.)), square(pos(.))
    sum_i c_i huber(<a_i, z> + h)                     and of a maximum, as huber(pos(.))

CVXPY's cone form has a helper column and two rows or more for each such term, and all rules would
run over them. Here a whole elementwise expression is one group: its argument is read once, its five
numbers are worked out once, and what is left of the objective (the regulariser, say) is small. What
is not of these forms is left where it is, for CVXPY and the rules; so are terms of the coordinates
themselves, like an L1 norm.

The same losses written with slack variables are read here, too::

    minimise  F(w) + <c, xi>     subject to     xi >= g_1(w), ..., xi >= g_k(w),     c > 0

is ``F + sum_i c_i max_k g_k,i`` where nothing else holds ``xi``. The slacks and their constraints
are then taken out of the problem (`Slack`), and come back with the solution: ``xi`` is the largest
bound, and the multipliers of its bounds are the shares of the loss's slope. Squares of slacks,
``<c, xi^2>``, are read in the same way; there zero is a bound even where nobody wrote it, as a
square pulls its slack no lower. So are two slacks that part a residual between them (`SplitSlack`),
as linear programs for quantiles have them, and with squares expectiles::

    minimise  F(w) + <c_u, u> + <d_u, u^2> + <c_v, v> + <d_v, v^2>
    subject to     y - X w = u - v,     u, v >= 0

A slack with a linear and a squared cost is two losses of one argument, and `u` and `v` are up to
three: values are the same by all of them, multipliers add up.

Numbers are read at the parameters' present values; `read_losses` reads them again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.atoms.affine.promote import promote
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen.core.losses import Losses
from cvxscreen.cvxpy_plugin.recognise.expressions import (
    MOVES,
    as_vector,
    broadcast_positions,
    exchanged,
    positions,
)
from cvxscreen.cvxpy_plugin.recognise.python_loops import STACKS, Term, sum_of, summands_of

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

FEWER = frozenset(("diag", "PSD", "NSD", "symmetric", "hermitian", "sparsity"))
"""Attributes that leave a variable fewer free entries than it has; left to CVXPY's reductions."""

ROUNDED = 4.0 * float(np.finfo(np.float64).eps)
"""Relative size of what is left of one product and one quotient more."""


def has_fewer_entries(expr: Any) -> bool:
    """Whether some variable in `expr` has fewer free entries than entries."""
    return any(v.attributes[name] for v in expr.variables() for name in FEWER)


class OtherForm(Exception):
    """An expression of another form."""


class LossGroup(Immutable):
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
    slack : Slack, SplitSlack or None
        The user's variables that are the loss, where it was written so.
    origin : pair of weak references, or None
        Where it was not: the summand of the objective, and the part of it that has an entry for
        each term and of which a term of value 0 adds nothing.
    budget : int or None
        The identifier of the constraint that bounds the terms; None where the objective has them.
    """

    argument: Any
    sign: float
    weight: Array
    numbers: tuple[Any, ...]
    level: Any
    slack: Slack | SplitSlack | None = None
    origin: tuple[Any, Any] | None = None
    budget: int | None = None

    def weighed(self, paying: Index) -> tuple[Any, ...]:
        """The five numbers of the terms at `paying`, whose weights are positive."""
        whole = len(paying) == len(self.weight)
        weight: Any = self.weight if whole else self.weight[paying]
        if self.even:
            weight = float(self.weight[0])
        b, e, q, lo, hi = (
            part if whole or np.ndim(part) == 0 else part[paying] for part in self.numbers
        )
        return b, e, q / weight, weight * lo, weight * hi

    @property
    def constant(self) -> float:
        """What the terms add to the objective beside the five numbers."""
        return self.constant_at(slice(None))

    def constant_at(self, index: Any) -> float:
        """The same for the terms at `index`."""
        level = self.level[index] if np.ndim(self.level) else self.level
        return float((self.weight[index] * level).sum()) if np.any(level) else 0.0

    def value(self, arguments: Array) -> float:
        """The sum of the terms at the values of their arguments, shape (k,)."""
        paying = np.flatnonzero(self.weight > 0)
        numbers = (np.broadcast_to(part, len(paying)) for part in self.weighed(paying))
        losses = Losses(*numbers)
        return float(losses.value(arguments[paying]).sum()) + self.constant

    def times(self, factor: float) -> LossGroup:
        """The same with every weight times a positive `factor`."""
        if factor == 1.0:
            return self
        weight = self.weight[:1] if self.even else self.weight
        return replace(self, weight=np.broadcast_to(factor * weight, len(self.weight)))

    @property
    def even(self) -> bool:
        """Whether all weights are one number, in one place."""
        return bool(len(self.weight)) and not any(self.weight.strides)

    def factor(self, new: LossGroup) -> Array | None:
        """What the terms of `new` are these times; None where they are others.

        Shape (k,), or (1,) where all weights are one number before and after.
        """
        same = self.sign == new.sign and len(self.weight) == len(new.weight)
        pairs = zip((*self.numbers, self.level), (*new.numbers, new.level), strict=True)
        if not same or not all(a is b or _nearly_equal(a, b) for a, b in pairs):
            return None
        few = slice(0, 1) if self.even and new.even else slice(None)
        before, after = self.weight[few], new.weight[few]
        if ((before > 0) != (after > 0)).any():
            return None
        return np.divide(after, before, out=np.ones(len(after)), where=before > 0)


def _nearly_equal(first: Any, second: Any) -> bool:
    """Whether numbers are the same up to the rounding of a weight that was divided out of them."""
    with np.errstate(invalid="ignore"):  # infinite slopes
        close = np.abs(first - second) <= ROUNDED * np.abs(first)
    return np.shape(first) == np.shape(second) and bool(np.all((first == second) | close))


class Slack(Immutable):
    """A slack variable of the user's, ``xi = max_k (slopes[k] t + heights[k])`` for arguments t.

    Attributes
    ----------
    variable : cvxpy.Variable
        k entries.
    constraints : tuple of cvxpy constraint
        All that hold it.
    lines : tuple of (int, slope, height)
        All bounds, with the position of the constraint that each is from; -1 for ``nonneg=True``.
    active : array of int, shape (a, k) or (a, 1)
        The two or three lines that are the largest somewhere, by increasing slope.
    factors : tuple of float
        By constraint: what it multiplies the variable by.
    squared : bool
        The loss is ``xi^2``, and not ``xi``.
    """

    variable: Any
    constraints: tuple[Any, ...]
    lines: tuple[tuple[int, Any, Any], ...]
    active: Index
    factors: tuple[float, ...]
    squared: bool = False

    @property
    def variables(self) -> tuple[Any, ...]:
        """The user's variables that the loss is."""
        return (self.variable,)

    def values(self, arguments: Array, index: Any = slice(None)) -> list[Array]:
        """The entries of each of `variables` at `index`, the arguments there being given."""
        return [self.bound(arguments, index)]

    def excesses(self, arguments: Array, index: Any = slice(None)) -> list[Array]:
        """What the left sides of the constraints exceed the right ones by, with these values."""
        level = self.bound(arguments, index)
        return [
            factor * (self.bound(arguments, index, of=k) - level)
            for k, factor in enumerate(self.factors)
        ]

    def bound(self, arguments: Array, index: Any = slice(None), of: int | None = None) -> Array:
        """The largest bound (of the constraint at position `of`) of the entries at `index`."""
        def at(part: Any) -> Any:
            return part[index] if np.ndim(part) else part

        lines = [line for line in self.lines if of is None or line[0] == of]
        bounds = (at(slope) * arguments + at(height) for _, slope, height in lines)
        return np.asarray(reduce(np.maximum, bounds))

    def multipliers(self, slope: Array, weight: Array) -> dict[int, Any]:
        """Multipliers of the constraints, by their identifiers.

        The two lines that meet at an entry's argument share its weight so that their slopes sum to
        the loss's own: ``sum_k lambda_k = c`` and ``sum_k lambda_k s_k = slope``. Of a square the
        first sum is ``2 c xi``, which is what the one line with a slope that is active must have.

        Parameters
        ----------
        slope : array, shape (k,)
            Of the losses, weights included.
        weight : array, shape (k,)
        """
        k = len(weight)
        at, active = np.arange(k), np.broadcast_to(self.active, (len(self.active), k))
        slopes = np.array([np.broadcast_to(s, k) for _, s, _ in self.lines])
        if self.squared:
            own = slopes[active, at]
            weight = np.divide(slope, own, out=np.zeros(own.shape), where=own != 0).max(axis=0)
            weight = np.maximum(weight, 0.0)
        first, second = active[0], active[1]
        if len(active) == 3:
            right = slope > weight * slopes[active[1], at]
            first, second = np.where(right, active[1], first), np.where(right, active[2], second)
        low, high = slopes[first, at], slopes[second, at]
        upper = np.clip((slope - weight * low) / (high - low), 0.0, weight)
        owners = np.array([owner for owner, _, _ in self.lines])
        out = {}
        for position, constraint in enumerate(self.constraints):
            value = np.where(owners[second] == position, upper, 0.0)
            value += np.where(owners[first] == position, weight - upper, 0.0)
            value /= self.factors[position]
            shape = self.variable.shape
            out[constraint.id] = value.reshape(shape, order="F") if shape else float(value[0])
        return out


class SplitSlack(Immutable):
    """Two slack variables of the user's with ``f_u u - f_v v = t`` for arguments t: its two parts.

    Attributes
    ----------
    variables : tuple of cvxpy.Variable
        ``u`` and ``v``, k entries each.
    constraints : tuple of cvxpy constraint
        All that hold them: the equality first, then bounds.
    owners : tuple of int
        By constraint: which variable it bounds from below by 0; -1 for the equality.
    scales : tuple of float
        By constraint: what a bound multiplies its variable by.
    sign : float
        Of ``u`` in what the equality puts at 0, its left side minus its right one.
    shares : tuple of float or array
        Slopes of the loss right and left of 0, as parts of the group's weight: of ``u`` and ``v``
        what they cost, divided by their factors; 0 where squares cost.
    factors : tuple of float
        ``f_u`` and ``f_v``, positive.
    """

    variables: tuple[Any, Any]
    constraints: tuple[Any, ...]
    owners: tuple[int, ...]
    scales: tuple[float, ...]
    sign: float
    shares: tuple[Any, Any]
    factors: tuple[float, float] = (1.0, 1.0)

    def values(self, arguments: Array, index: Any = slice(None)) -> list[Array]:
        """The entries of each of `variables` at `index`, the arguments there being given."""
        first, second = self.factors
        return [np.maximum(arguments, 0.0) / first, np.maximum(-arguments, 0.0) / second]

    def excesses(self, arguments: Array, index: Any = slice(None)) -> list[Array]:
        """What the left sides of the constraints exceed the right ones by, with these values."""
        below = (*(-part for part in self.values(arguments)), 0.0 * arguments)
        pairs = zip(self.owners, self.scales, strict=True)
        return [scale * below[owner] for owner, scale in pairs]

    def multipliers(self, slope: Array, weight: Array) -> dict[int, Any]:
        """Multipliers of the constraints, by their identifiers.

        The equality's is the slope of the loss, and each bound's what the slope leaves of its cost;
        the first of two bounds has it all.

        Parameters
        ----------
        slope : array, shape (k,)
            Of the losses, weights included.
        weight : array, shape (k,)
        """
        left = [
            factor * np.maximum(weight * share - pull, 0.0)
            for factor, share, pull in zip(self.factors, self.shares, (slope, -slope), strict=True)
        ]
        shape = self.variables[0].shape
        out = {}
        rows = zip(self.constraints, self.owners, self.scales, strict=True)
        for constraint, owner, scale in rows:
            value = -self.sign * slope if owner < 0 else left[owner] / scale
            out[constraint.id] = value.reshape(shape, order="F")
            if owner >= 0:
                left[owner] = np.zeros(len(slope))
        return out


def same_slack(first: Slack | SplitSlack | None, second: Slack | SplitSlack | None) -> bool:
    """Whether both are the same variables with the same constraints, or none."""
    if first is None or second is None:
        return first is second
    pairs = ((first.variables, second.variables), (first.constraints, second.constraints))
    return all(
        len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True)) for a, b in pairs
    )


def take_losses(problem: Any) -> tuple[Any, tuple[LossGroup, ...], tuple[Any, ...]]:
    """`problem` without the losses that could be read off it, and these losses.

    Parameters
    ----------
    problem : cvxpy.Problem
        That follows the DCP rules.

    Returns
    -------
    cvxpy.Problem
        Of what is left; `problem` itself where nothing was found.
    tuple of LossGroup
    tuple of cvxpy.Variable
        Variables that occur in arguments of these losses alone (an intercept). Slack variables are
        in neither: the losses say what they are.
    """
    groups, others = split_losses(problem)
    if not groups:
        return problem, (), ()
    slacks = [group.slack for group in groups if group.slack is not None]
    taken = {constraint.id for slack in slacks for constraint in slack.constraints}
    constraints = [c for c in problem.constraints if c.id not in taken]
    gone = frozenset(v.id for slack in slacks for v in slack.variables)
    small, free = without_what_was_read(problem, others, constraints, gone)
    return small, groups, free


def without_what_was_read(
    problem: Any, others: list[Term], constraints: list[Any], gone: frozenset[int] = frozenset()
) -> tuple[Any, tuple[Any, ...]]:
    """The problem that is left of `problem`, and the variables that nothing in it has.

    What attributes of such a variable ask for is for CVXPY to say: it stays in the objective, at 0.

    Parameters
    ----------
    problem : cvxpy.Problem
    others : list of Term
        The summands of the objective, to be minimised, that are left.
    constraints : list of cvxpy constraint
        Those that are.
    gone : frozenset of int
        Variables that are neither left nor among those returned.
    """
    rest, present = sum_of(others), set(gone)
    for part in (rest, *constraints):
        present |= {v.id for v in part.variables()}
    alone = [variable for variable in problem.variables() if variable.id not in present]
    bare = [not any(map(bool, variable.attributes.values())) for variable in alone]
    for variable, free in zip(alone, bare, strict=True):
        rest = rest if free else rest + 0.0 * cp.sum(variable)
    rest = -rest if isinstance(problem.objective, cp.Maximize) else rest
    left = cp.Problem(type(problem.objective)(rest), constraints)
    return left, tuple(v for v, free in zip(alone, bare, strict=True) if free)


def read_losses(problem: Any) -> tuple[LossGroup, ...]:
    """The losses in `problem` at the parameters' present values."""
    return split_losses(problem)[0]


def split_losses(problem: Any) -> tuple[tuple[LossGroup, ...], list[Term]]:
    """The losses, and the other summands of the objective to be minimised."""
    sign = -1.0 if isinstance(problem.objective, cp.Maximize) else 1.0
    groups: list[LossGroup] = []
    rest: list[tuple[Term, float]] = []
    for part in summands_of(problem.objective.expr, sign):
        factor = part.factor
        try:
            factor = factor_of(part)
            groups += _groups_of(part.expr, factor)
        except OtherForm:
            rest.append((part, factor))
    slacks, others = _slack_losses(problem, groups, rest)
    return (*groups, *slacks), [part for part, _ in others]


def factor_of(part: Term) -> float:
    """What a summand is multiplied by, at the parameters' present values."""
    factor = part.factor
    for scale in part.scales:
        factor *= float(_values(scale, 1)[0])
    return factor


_UNITS: dict[int, tuple[weakref.ref[Any], tuple[LossGroup, ...]]] = {}
"""The groups of summands without parameters at weight 1, by the expression's identity: what a
parameter in front of them changes is their weight alone."""


def _groups_of(expr: Any, factor: float) -> list[LossGroup]:
    """The groups of ``factor * expr``."""
    known = _UNITS.get(id(expr))
    if known is not None and known[0]() is expr and factor > 0:
        return [unit.times(factor) for unit in known[1]]
    found: list[tuple[Any, Array, Any]] = []
    weigh(expr, np.array([factor]), found)
    groups = [
        replace(group, origin=(weakref.ref(expr), weakref.ref(source)))
        for part in found for group, source in _one_or_each(*part)
    ]
    if factor > 0 and not expr.parameters():
        key = id(expr)
        unit = tuple(group.times(1.0 / factor) for group in groups)
        _UNITS[key] = weakref.ref(expr, lambda _: _UNITS.pop(key, None)), unit
    return groups


def _one_or_each(expr: Any, weight: Array, source: Any) -> Iterator[tuple[LossGroup, Any]]:
    """The terms of an elementwise expression: one a number, or one for each summand of a sum.

    Lines add up to lines (``pos(t) + abs(t)``); squares and Huber losses of parts of t do not.
    """
    try:
        yield _group(expr, weight), source
    except OtherForm:
        if type(expr).__name__ != "AddExpression" or any(p.size != expr.size for p in expr.args):
            raise
        for summand in expr.args:
            parts: list[tuple[Any, Array, Any]] = []
            weigh(summand, weight, parts)
            for part in parts:
                yield from _one_or_each(*part)


# -- from the root of the objective to elementwise expressions ------------------------------------


def weigh(expr: Any, weight: Array, found: list[tuple[Any, Array, Any]]) -> None:
    """Collect ``<weight, vec(expr)>`` as weighted elementwise expressions.

    With each goes the part of `expr` that is, or has as many entries as, the elementwise one: an
    entry of 0 adds nothing.
    """
    kind = type(expr).__name__
    if kind == "Sum":
        if expr.size != 1:
            raise OtherForm
        weigh(expr.args[0], np.broadcast_to(weight, expr.args[0].size), found)
    elif kind == "norm1" and expr.size == 1 and expr.args[0].is_affine():
        inner = expr.args[0]
        found.append((cp.abs(inner), np.broadcast_to(weight, inner.size), inner))
    elif kind == "quad_over_lin" and expr.size == 1 and expr.args[1].is_constant():
        inner = expr.args[0]
        if inner.is_affine():
            raise OtherForm
        divided = weight / _values(expr.args[1], 1)
        found.append((cp.square(inner), np.broadcast_to(divided, inner.size), inner))
    elif kind == "MulExpression" and expr.size == 1 and expr.args[0].is_constant():
        inner = expr.args[1]
        weigh(inner, weight[0] * _values(expr.args[0], inner.size), found)
    elif kind in ("multiply", "DivExpression") and _scaled(expr) is not None:
        inner, values = _scaled(expr)  # type: ignore[misc]
        if inner.size != expr.size:
            raise OtherForm
        weigh(inner, weight * values, found)
    elif kind == "NegExpression":
        weigh(expr.args[0], -weight, found)
    elif kind in ("reshape", "Promote") and expr.size == expr.args[0].size == 1:
        weigh(expr.args[0], weight, found)
    elif expr.is_affine():
        raise OtherForm
    else:
        found.append((expr, np.broadcast_to(weight, expr.size), expr))


def _values(expr: Any, size: int) -> Array:
    """A constant's entries, column-major, a scalar repeated, shape (size,)."""
    value = _unpromoted(expr).value
    if value is None or expr.is_complex():
        raise OtherForm
    dense = np.asarray(value.toarray() if sp.issparse(value) else value, dtype=np.float64)
    flat = dense.flatten(order="F")
    if flat.size not in (1, size):
        raise OtherForm
    return np.broadcast_to(flat, size)


def _scaled(expr: Any) -> tuple[Any, Array] | None:
    """What a constant multiplies or divides in `expr`, and that constant's entries.

    None where none does, and for products of matrices.
    """
    first, second = expr.args
    kind = type(expr).__name__
    if kind == "MulExpression" and () not in (first.shape, second.shape):
        return None
    if kind == "DivExpression":
        return (first, 1.0 / _entries(second, expr)) if second.is_constant() else None
    if second.is_constant():
        first, second = second, first
    return (second, _entries(first, expr)) if first.is_constant() else None


def _unpromoted(expr: Any) -> Any:
    """A number that CVXPY has repeated as the number that it was."""
    return _unpromoted(expr.args[0]) if type(expr).__name__ == "Promote" else expr


def number_or_all(values: Array) -> Any:
    """One number where all are the same, which is then looked at once; else all of them."""
    return float(values[0]) if len(values) and (values == values[0]).all() else values


def _entries(expr: Any, whole: Any) -> Array:
    """A constant's entries broadcast to the shape of `whole`: one where they are all the same."""
    expr = _unpromoted(expr)
    value = _values(expr, expr.size)
    return value if value.size == 1 else value[broadcast_positions(expr, whole.shape)]


# -- from an elementwise expression to lines in one argument --------------------------------------


class _Lines(NamedTuple):
    """``max_k (slopes[k] t + heights[k])`` of one affine argument, None for constants."""

    argument: Any
    slopes: tuple[Any, ...]
    heights: tuple[Any, ...]

    def mapped(self, change: Callable[[Any, Any], tuple[Any, Any]]) -> _Lines:
        """The lines with `change` of their slopes and heights, all alike."""
        pairs = [change(s, h) for s, h in zip(self.slopes, self.heights, strict=True)]
        return _Lines(self.argument, tuple(s for s, _ in pairs), tuple(h for _, h in pairs))

    def scaled(self, factor: Any) -> _Lines:
        """Times a number, which must not be negative under a maximum."""
        if len(self.slopes) > 1 and np.min(factor) < 0:
            raise OtherForm
        return self.mapped(lambda s, h: (s * factor, h * factor))

    def maximum(self, other: _Lines) -> _Lines:
        """The pointwise maximum: the lines of both."""
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
    """Both written in one affine argument, which one may lack as a constant."""
    if first.argument is None or second.argument is None or first.argument is second.argument:
        argument = second.argument if first.argument is None else first.argument
    elif _opposite(first.argument, second.argument):
        argument, second = first.argument, second.mapped(lambda s, h: (-s, h))
    else:
        # Without factors most arguments are one expression; only then are constants added up.
        for bare in (_same_lines, _unscaled, _bare):
            first, second = bare(first), bare(second)
            if same(first.argument, second.argument):
                break
        else:
            raise OtherForm
        argument = first.argument
    return first._replace(argument=argument), second._replace(argument=argument)


def _same_lines(lines: _Lines) -> _Lines:
    return lines


def _unscaled(lines: _Lines) -> _Lines:
    """The same with constant factors of the argument in the lines."""
    expr = lines.argument
    kind = type(expr).__name__
    if kind == "NegExpression":
        return _unscaled(lines._replace(argument=expr.args[0]).mapped(lambda s, h: (-s, h)))
    if kind in ("Promote", "broadcast_to"):
        inner = _unscaled(_Lines(expr.args[0], (1.0,), (0.0,)))
        number = inner.slopes[0]
        if inner.argument is not expr.args[0] and not np.ndim(number):
            lines = lines._replace(argument=_repeated(inner.argument, expr.shape))
            return lines.mapped(lambda s, h: (s * number, h))
    if kind in ("multiply", "DivExpression", "MulExpression"):
        found = _scaled(expr)
        if found is not None and found[0].size == expr.size:
            inner, factor = found
            scale = factor[0] if factor.size == 1 else factor
            return _unscaled(lines._replace(argument=inner).mapped(lambda s, h: (s * scale, h)))
    return lines


def _bare(lines: _Lines) -> _Lines:
    """The same with constant summands of the argument in the lines, too."""
    lines = _unscaled(lines)
    expr = lines.argument
    if type(expr).__name__ == "AddExpression":
        moving = [arg for arg in expr.args if not arg.is_constant()]
        if len(moving) < len(expr.args) and max(arg.size for arg in moving) == expr.size:
            shift = sum(_entries(arg, expr) for arg in expr.args if arg.is_constant())
            inner = lines._replace(argument=sum(moving[1:], moving[0]))
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


def _opposite(first: Any, second: Any) -> bool:
    """Whether one is written as the other with every sign turned: ``q - D`` and ``D - q``.

    Their kinks are then one, to the last bit, as they are not where constants are added up.
    """
    for one, other in ((first, second), (second, first)):
        if type(one).__name__ == "NegExpression":
            return same(one.args[0], other)
    kind = type(first).__name__
    if kind != type(second).__name__ or first.shape != second.shape:
        return False
    if kind in ("Promote", "broadcast_to"):
        return _opposite(first.args[0], second.args[0])
    others = list(second.args)
    if kind != "AddExpression" or len(first.args) != len(others) or len(others) > MOST_TURNED:
        return False
    for part in first.args:
        k = next((k for k, other in enumerate(others) if _opposite(part, other)), None)
        if k is None:
            return False
        del others[k]
    return True


MOST_TURNED = 4
"""Summands up to which two arguments are compared with their signs turned: data, products with
coordinates, an intercept."""


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
        return _Lines(None, (0.0,), (number_or_all(sign * _values(expr, expr.size)),))
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
        found = _scaled(expr)
        if found is None or found[0].size != expr.size:
            raise OtherForm
        inner, factor = found
        if factor.max(initial=0.0) <= 0.0:
            sign, factor = -sign, -factor
        return _lines(inner, sign).scaled(factor[0] if factor.size == 1 else factor)
    raise OtherForm


def _repeated(expr: Any, shape: tuple[int, ...]) -> Any:
    """`expr` broadcast to `shape`, as CVXPY itself writes it in sums."""
    return promote(expr, shape) if expr.shape == () else cp.broadcast_to(expr, shape)


def _stretched(arg: Any, whole: Any, sign: float) -> _Lines:
    """The lines of `arg`, broadcast to the entries of `whole`."""
    if arg.is_constant():
        return _Lines(None, (0.0,), (number_or_all(sign * _entries(arg, whole)),))
    if arg.size != whole.size:
        if not arg.is_affine():
            raise OtherForm
        arg = _repeated(arg, whole.shape)
    return _lines(arg, sign)


# -- sums of the largest losses -------------------------------------------------------------------


class Level(NamedTuple):
    """A number q that ``sum_largest(e, k)`` is the least value over; see `above_levels`.

    Attributes
    ----------
    variable : cvxpy.Variable
        q.
    atom : cvxpy.sum_largest or cvxpy.max
    """

    variable: Any
    atom: Any

    @property
    def k(self) -> float:
        """How many entries the atom adds up."""
        return 1.0 if type(self.atom) is cp.max else float(self.atom.k)

    def among(self, kinks: Array) -> float:
        """The best level for entries of which some lie at `kinks` and no others above the level.

        At most k may lie above it, and at least k there or above: so it is where it parts these as
        the atom parts all, and enough of the `others` are there.
        """
        share = self.k / self.atom.args[0].size
        return float(np.sort(kinks)[::-1][int(share * len(kinks))])

    def others(self, level: float, some: int) -> Array:
        """Entries that add nothing to `some` others, not all at the level: ties take longer."""
        out = np.full(self.atom.args[0].size, level)
        out[int(self.k) + 1 + some :] -= 1.0 + abs(level)
        return out


def above_levels(problem: Any) -> tuple[Any, tuple[Level, ...]]:
    """`problem` with sums of largest affine entries in the objective as losses above a level.

    ``sum_largest(e, k)`` (which ``cvar(e, beta)`` is) is the least value over a number q of
    ``k q + sum(pos(e - q))`` (Rockafellar and Uryasev 2000): one loss over the data. A maximum of
    data is the largest of them.
    """
    levels = [
        Level(cp.Variable(), part.expr) for part in summands_of(problem.objective.expr)
        if is_above_a_level(part.expr)
    ]
    if not levels:
        return problem, ()
    anew = {id(level.atom): above_a_level(level) for level in levels}
    return cp.Problem(exchanged(problem.objective, anew), problem.constraints), tuple(levels)


def above_a_level(level: Level) -> Any:
    """What a sum of largest entries is the least value of over a level."""
    q, atom = level
    return level.k * q + cp.sum(cp.pos(atom.args[0] - q))


MANY_ENTRIES = 1000
"""Entries from which on a maximum is one of data: one of fewer is kept as it is beside squares
(`max_affine`)."""


def is_above_a_level(expr: Any) -> bool:
    """Whether an expression is a sum of largest affine entries that leaves some out."""
    if type(expr) not in (cp.sum_largest, cp.max) or not expr.args[0].is_affine():
        return False
    entries, axis = expr.args[0], getattr(expr, "axis", None)  # none before CVXPY 1.9
    if type(expr) is cp.max:
        return axis is None and entries.size >= MANY_ENTRIES and not _without_data(entries)
    return axis is None and 0 < expr.k < entries.size


def in_simpler_atoms(problem: Any) -> Any:
    """`problem` with atoms that the rules do not take as equal ones that they do.

    An absolute value of what is not negative anyway is idle: ``norm1(norm(W, 2, axis=1))``, which
    is `mixed_norm`, is a sum of norms. So is a maximum of a single entry: ``norm(W, 1)``, the
    largest sum of a column's absolute values, is that of all of them where W is one column, and
    their maximum where W is one row; ``norm(W, "inf")`` the other way round.

    A loss that rises on both sides of its least value m is the larger one of two lines, of which
    the other one is at most m. So among twice as many lines the k largest are those of the losses::

        sum_largest(abs(e), k) = sum_largest(hstack([e, -e]), k),       k <= n,

    and where each loss has a constant piece m, k copies of that suffice::

        sum_largest(pos(e), k) = sum_largest(hstack([e, zeros(k)]), k).

    So are their maxima, ``norm_inf(e)`` among them, with k = 1.

    Affine arguments are what the rules take. Both sides are equal everywhere; constraints that are
    written anew keep their identifiers, by which dual values go back to the user's.
    """
    if not SIMPLER.keys() & set(problem.atoms()):
        return problem
    anew: dict[int, Any] = {}
    written = [
        exchanged(part, anew) if _find_simpler(part, anew) else part
        for part in (problem.objective, *problem.constraints)
    ]
    return cp.Problem(written[0], written[1:]) if anew else problem


def _find_simpler(expr: Any, anew: dict[int, Any]) -> bool:
    """Whether `expr` holds atoms with simpler equals, which are stored by the atoms' identity."""
    if id(expr) in anew:
        return True
    if type(expr) in SIMPLER:
        with suppress(OtherForm):
            anew[id(expr)] = SIMPLER[type(expr)](expr)
            return True
    found = [_find_simpler(arg, anew) for arg in expr.args]
    return any(found)


def _without_sign(expr: Any) -> Any:
    """The argument of an absolute value, or its sum, where it is never negative."""
    arg = expr.args[0]
    if arg.is_affine() or not arg.is_nonneg() or getattr(expr, "axis", None) is not None:
        raise OtherForm
    return arg if type(expr) is cp.abs else cp.sum(arg)


def _largest_loss(expr: Any) -> Any:
    """The maximum of many losses, or absolute values, as the sum of the one largest."""
    entries = expr.args[0]
    if getattr(expr, "axis", None) is not None or entries.size < MANY_ENTRIES:
        raise OtherForm
    losses = cp.abs(entries) if type(expr) is cp.norm_inf else entries
    if _without_data(entries):
        raise OtherForm
    return largest_of_lines(cp.sum_largest(losses, 1))


def _simpler_maximum(expr: Any) -> Any:
    """A maximum of a single entry, of sums of absolute values of one row or column, or of many."""
    arg = expr.args[0]
    if type(arg) is cp.norm1 and arg.axis is not None and expr.size == 1:
        matrix = arg.args[0]
        if arg.size == 1:
            return cp.norm1(matrix)
        if matrix.shape[arg.axis] == 1:
            return cp.norm_inf(matrix)
    return cp.sum(arg) if arg.size == expr.size == 1 else _largest_loss(expr)


def largest_of_lines(expr: Any) -> Any:
    """A sum of the largest losses, in lines; see `in_simpler_atoms`."""
    losses, k = expr.args[0], expr.k
    axis = getattr(expr, "axis", None)  # none before CVXPY 1.9
    if axis is not None or k > losses.size or losses.is_affine():
        raise OtherForm
    lines = _lines(losses)
    if _parameters_outside(losses, lines.argument):  # slopes and heights are read once for all
        raise OtherForm
    slopes, heights, _ = _active(lines)
    rising, falling = (slopes > 0.0).all(axis=1), (slopes < 0.0).all(axis=1)
    flat = (slopes == 0.0).all(axis=1)
    if rising.sum() > 1 or falling.sum() > 1 or not (rising | falling | flat).all():
        raise OtherForm
    if flat.any():
        level, rounding = heights[flat][0], 0.0
    elif len(slopes) == 2:
        crossed = slopes[1] * heights[0], slopes[0] * heights[1]
        level = (crossed[0] - crossed[1]) / (slopes[1] - slopes[0])
        rounding = ROUNDED * float((np.abs(crossed).sum(axis=0) / (slopes[1] - slopes[0])).max())
    else:
        raise OtherForm
    if np.ptp(level) > rounding:
        raise OtherForm
    entries = as_vector(lines.argument)
    pieces = [
        cp.multiply(slope, entries) + height
        for slope, height in zip(slopes[~flat], heights[~flat], strict=True)
    ]
    if flat.any():
        pieces.append(np.full(int(np.ceil(k)), level[0]))
    return cp.sum_largest(cp.hstack(pieces), k)


SIMPLER = {
    cp.sum_largest: largest_of_lines, cp.abs: _without_sign, cp.norm1: _without_sign,
    cp.max: _simpler_maximum, cp.norm_inf: _largest_loss,
}
"""What an atom may be written as, or `OtherForm`; see `in_simpler_atoms`."""


def _parameters_outside(expr: Any, inner: Any) -> bool:
    """Whether `expr` has parameters that are no part of `inner`."""
    if expr is inner:
        return False
    if isinstance(expr, cp.Parameter):
        return True
    return any(_parameters_outside(arg, inner) for arg in expr.args)


# -- from lines to the five numbers ---------------------------------------------------------------


def _group(expr: Any, weight: Array) -> LossGroup:
    """The terms ``<weight, vec(expr)>`` of an elementwise expression."""
    sign = 1.0
    if weight.max(initial=0.0) <= 0.0:
        sign, weight = -1.0, -weight
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise OtherForm
    kind = type(expr).__name__
    if kind in ("huber", "Power", "PowerApprox") and sign < 0:
        raise OtherForm
    if kind == "huber":
        inner, M = _lines(expr.args[0]), _values(expr.M, 1)[0]
        if not (np.isfinite(M) and M > 0):
            raise OtherForm
        if len(inner.slopes) > 1:
            return _folded(inner, weight, squared=True, steepest=2.0 * M)
        return _made(inner.argument, weight, (0.0, 0.0, 0.5, -2.0 * M, 2.0 * M))
    if kind in ("Power", "PowerApprox"):
        if float(_values(expr.p, 1)[0]) != 2.0 or expr.args[0].is_affine():
            raise OtherForm
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


def _active(lines: _Lines) -> tuple[Array, Array, Index]:
    """The lines that are the largest somewhere by increasing slope, and which they are.

    Slopes, heights and positions have shape (a, k), or (a, 1) where all entries have the same.
    """
    if lines.argument is None:
        raise OtherForm
    parts = (*lines.slopes, *lines.heights)
    length = max(np.size(part) for part in parts)
    if length == 1:
        return _active_numbers(tuple(np.asarray(part).item() for part in parts))
    return _active_lines(*(
        np.column_stack([np.broadcast_to(part, length) for part in group])
        for group in (lines.slopes, lines.heights)
    ))


@lru_cache(maxsize=256)
def _active_numbers(numbers: tuple[float, ...]) -> tuple[Array, Array, Index]:
    """The same for slopes and heights, one after the other, that are numbers."""
    return _active_lines(*np.array(numbers).reshape(2, 1, -1))


def _active_lines(slopes: Array, heights: Array) -> tuple[Array, Array, Index]:
    """The same for slopes and heights of shape (k, lines)."""
    active = envelope(slopes, heights)
    count = active.sum(axis=1)
    if not (np.isfinite(slopes).all() and np.isfinite(heights).all()) or (count != count[0]).any():
        raise OtherForm
    order = np.argsort(np.where(active, slopes, np.inf), axis=1, kind="stable")[:, : count[0]]
    slopes, heights = (np.take_along_axis(p, order, axis=1).T for p in (slopes, heights))
    return slopes, heights, order.T


def _folded(
    lines: _Lines, weight: Array, *, squared: bool, steepest: float = np.inf
) -> LossGroup:
    """Terms that are the largest of some lines; or the square of that, up to a slope in it."""
    slopes, heights, order = _active(lines)
    if len(order) == 2:
        left = right = (heights[0] - heights[1]) / (slopes[1] - slopes[0])
        level, low, high = slopes[0] * left + heights[0], slopes[0], slopes[1]
    elif len(order) == 3 and (slopes[1] == 0.0).all():
        left, right = heights[0] - heights[1], heights[1] - heights[2]
        left, right = left / (slopes[1] - slopes[0]), right / (slopes[2] - slopes[1])
        level, low, high = heights[1], slopes[0], slopes[2]
    else:
        raise OtherForm
    if (low > 0).any() or (high < 0).any():
        raise OtherForm  # its least value is nowhere
    centre, reach = 0.5 * (left + right), 0.5 * (right - left)
    if not squared:
        return _made(lines.argument, weight, (centre, reach, 0.0, low, high), level)
    sides = np.where(low == 0.0, high, -low)
    if level.any() or ((low != 0.0) & (high != 0.0) & (low != -high)).any():
        raise OtherForm
    if not ((low != 0.0) & (high != 0.0)).all() and not ((low == 0.0) ^ (high == 0.0)).all():
        raise OtherForm
    with np.errstate(invalid="ignore"):  # infinite times 0
        ends = tuple(np.where(s == 0.0, 0.0, steepest * s) for s in (low, high))
    numbers = (centre, reach, 0.5 / sides**2, *ends)
    return _made(lines.argument, weight, numbers, bare=bool(np.isfinite(steepest)))


MOVING = MOVES | {
    "Variable", "AddExpression", "NegExpression", "multiply", "DivExpression", "Constant",
}
"""Nodes of expressions whose entries are single coordinates, or a few of them."""


ROWS_OF_EACH = 10.0
"""Entries for each coordinate from which on they are data (demands that an order is compared with,
``pos(D - x)``), be they as they are: fewer are bounds, differences or an L1 norm."""


def _without_data(expr: Any) -> bool:
    """Whether each entry is a coordinate (``norm1(w)``): what such terms are is for the rules."""
    if expr.size >= ROWS_OF_EACH * sum(variable.size for variable in expr.variables()):
        return False
    return _moving(expr)


def _moving(expr: Any) -> bool:
    """Whether all nodes of `expr` are of the kinds `MOVING`."""
    return type(expr).__name__ in MOVING and all(_moving(arg) for arg in expr.args)


def _made(
    argument: Any, weight: Array, numbers: tuple[Any, ...], level: Any = 0.0, *, bare: bool = False
) -> LossGroup:
    """The group, one-sided losses falling; of `bare` coordinates where no rule knows such a loss.

    Huber's loss of a part of predictions that an equation defines (``huber(pos(y - f))``), say.
    """
    if argument is None or (_without_data(argument) and not bare):
        raise OtherForm
    if has_fewer_entries(argument):
        raise OtherForm
    b, e, q, lo, hi = (
        float(part[0]) if np.size(part) == 1 and np.ndim(part) else part for part in numbers
    )
    level = float(level[0]) if np.size(level) == 1 and np.ndim(level) else level
    if np.all(np.equal(lo, 0.0)):
        return LossGroup(argument, -1.0, weight, (-b, e, q, -hi, -lo), level)
    return LossGroup(argument, 1.0, weight, (b, e, q, lo, hi), level)


# -- losses written with slack variables ----------------------------------------------------------


def _slack_losses(
    problem: Any, groups: list[LossGroup], rest: list[tuple[Term, float]]
) -> tuple[list[LossGroup], list[tuple[Term, float]]]:
    """The losses that are slack variables, and the summands that are left."""
    if not problem.constraints:
        return [], rest
    costs = [_slack_costs(part.expr, factor) for part, factor in rest]
    wanted: dict[int, Any] = {}
    total: dict[int, _Costs] = {}
    for variable, weight, power in (term for cost in costs for term in cost):
        if variable.size > 1:  # of a loop over scalars the rules make one group
            wanted[variable.id] = variable
            paid = total.setdefault(variable.id, {})
            paid[power] = paid[power] + weight if power in paid else weight
    # What occurs elsewhere in the objective is no slack.
    others = [part.expr for (part, _), cost in zip(rest, costs, strict=True) if not cost]
    for expr in [*others, *(group.argument for group in groups)]:
        for variable in expr.variables():
            wanted.pop(variable.id, None)
    # Two slacks of opposite sign are a loss where one of them costs nothing, too.
    costly = {variable.id for variable in problem.objective.variables()}
    shapes = {variable.shape for variable in wanted.values()}
    idle: dict[int, Any] = {
        variable.id: variable for variable in problem.variables()
        if variable.id not in costly and variable.shape in shapes
    }
    total |= {key: {} for key in idle}
    holding: dict[int, list[Any]] = {key: [] for key in (*wanted, *idle)}
    for constraint in problem.constraints:
        for variable in constraint.variables():
            if variable.id in holding:
                holding[variable.id].append(constraint)
    found: dict[int, tuple[LossGroup, ...]] = {}
    for key, variable in wanted.items():
        equal = [c for c in holding[key] if type(c).__name__ == "Equality"]
        try:
            if not equal:
                found[key] = _slack_groups(variable, total[key], holding[key])
            elif key not in found:
                pair, split = _split_groups(equal[0], {**idle, **wanted}, total, holding)
                found |= {slack.id: split for slack in pair}
        except OtherForm:
            continue
    # A bound of two slacks, and a cost that is shared with what is no slack, are for the rules.
    while True:
        bad = {
            key
            for group in [[v.id for v, _, _ in cost] for cost in costs]
            if not all(key in found for key in group)
            for key in group
        }
        for own in holding.values():
            for constraint in own:
                inside = [v.id for v in constraint.variables() if v.id in found]
                bad |= set(inside) if len({id(found[key]) for key in inside}) > 1 else set()
        bad = {key for key, group in found.items() if any(group is found.get(b) for b in bad)}
        if not bad:
            break
        for key in bad:
            del found[key]
    left = [
        pair for pair, cost in zip(rest, costs, strict=True)
        if not cost or any(v.id not in found for v, _, _ in cost)
    ]
    return [group for groups in dict.fromkeys(found.values()) for group in groups], left


def slack_variables(problem: Any, least: int) -> dict[Any, list[Any]]:
    """Variables that constraints bound from below, entry by entry, and scalar ones beside them.

    Parameters
    ----------
    problem : cvxpy.Problem
    least : int
        Entries of a variable that is looked at.

    Returns
    -------
    dict
        By variable, its bounds as expressions, which hold it themselves: it cancels there.
    """
    found: dict[Any, list[Any]] = {}
    other: set[Any] = set()
    if all(variable.size < least for variable in problem.variables()):
        return found
    for constraint in problem.constraints:
        for variable in constraint.variables():
            if constraint.size == 1 or variable.size < least:
                continue
            try:
                _, factor = _lower_bound(constraint, variable)
                found.setdefault(variable, []).append(constraint.expr / factor + variable)
            except OtherForm:
                other.add(variable)
    return {variable: bounds for variable, bounds in found.items() if variable not in other}


def _slack_costs(expr: Any, factor: float) -> list[tuple[Any, Array, int]]:
    """Variables, weights and powers (1 or 2), where ``factor * expr`` is ``sum <c, v^power>``."""
    found: list[tuple[Any, Array, int]] = []
    try:
        _weigh_variables(expr, np.array([factor]), found)
    except OtherForm:
        return []
    return found


def _weigh_variables(expr: Any, weight: Array, found: list[tuple[Any, Array, int]]) -> None:
    """Collect ``<weight, vec(expr)>`` as weighted variables and squares of variables."""
    kind = type(expr).__name__
    if isinstance(expr, cp.Variable):
        found.append((expr, np.broadcast_to(weight, expr.size), 1))
    elif kind in ("Power", "PowerApprox") and float(_values(expr.p, 1)[0]) == 2.0:
        inner = expr.args[0]
        if type(inner).__name__ in ("Pnorm", "PnormApprox") and inner.p == 2 and expr.size == 1:
            inner = inner.args[0]
        _weigh_squares(inner, np.broadcast_to(weight, inner.size), found)
    elif kind == "quad_over_lin" and expr.size == 1 and expr.args[1].is_constant():
        each = weight / _values(expr.args[1], 1)
        _weigh_squares(expr.args[0], np.broadcast_to(each, expr.args[0].size), found)
    elif kind == "Sum":
        inner, axis = expr.args[0], expr.axis
        if axis is not None:
            kept = weight.reshape(expr.shape, order="F")
            kept = kept if expr.keepdims else np.expand_dims(kept, axis)
            weight = np.broadcast_to(kept, inner.shape).flatten(order="F")
        _weigh_variables(inner, np.broadcast_to(weight, inner.size), found)
    elif kind == "AddExpression" and all(arg.size == expr.size for arg in expr.args):
        for arg in expr.args:
            _weigh_variables(arg, weight, found)
    elif kind == "NegExpression":
        _weigh_variables(expr.args[0], -weight, found)
    elif kind in WHOLE:
        for arg, carried in _carried(expr, weight):
            _weigh_variables(arg, carried, found)
    elif kind == "QuadForm" and expr.args[1].is_constant():
        _weigh_squares(expr.args[0], weight[0] * _diagonal(expr.args[1]), found)
    elif kind == "MulExpression" and expr.size == 1:
        first, second = expr.args
        outer, inner = (first, second) if first.is_constant() else (second, first)
        if not outer.is_constant():
            raise OtherForm
        _weigh_variables(inner, weight[0] * _values(outer, inner.size), found)
    elif kind in ("multiply", "DivExpression") and _scaled(expr) is not None:
        inner, values = _scaled(expr)  # type: ignore[misc]
        if inner.size != expr.size:
            raise OtherForm
        _weigh_variables(inner, weight * values, found)
    else:
        raise OtherForm


def _weigh_squares(expr: Any, weight: Array, found: list[tuple[Any, Array, int]]) -> None:
    """Collect ``<weight, vec(expr)^2>``: squares of variables that numbers multiply or not."""
    kind = type(expr).__name__
    if isinstance(expr, cp.Variable):
        found.append((expr, weight, 2))
    elif kind == "NegExpression":
        _weigh_squares(expr.args[0], weight, found)
    elif kind in WHOLE:  # a reshape, as `norm(., "fro")` has it
        for arg, carried in _carried(expr, weight):
            _weigh_squares(arg, carried, found)
    elif kind in ("multiply", "DivExpression", "MulExpression"):
        scaled = _scaled(expr)
        if scaled is None or scaled[0].size != expr.size:
            raise OtherForm
        _weigh_squares(scaled[0], weight * scaled[1] ** 2, found)
    else:
        raise OtherForm


WHOLE = ("reshape", "transpose", *STACKS)
"""Kinds of nodes that hold every entry of their arguments once."""


def _carried(expr: Any, weight: Array) -> Iterator[tuple[Any, Array]]:
    """The arguments of such a node, and the weights of their entries in place of its own."""
    for arg, index in zip(expr.args, positions(expr), strict=True):
        carried, inside = np.empty(arg.size), index >= 0
        carried[index[inside]] = weight[inside]
        yield arg, carried


def _diagonal(matrix: Any) -> Array:
    """The diagonal of a constant matrix that has nothing else."""
    value = matrix.value
    if value is None or matrix.is_complex():
        raise OtherForm
    diagonal = np.asarray(value.diagonal(), dtype=np.float64)
    entries = value.count_nonzero() if sp.issparse(value) else np.count_nonzero(value)
    if entries != np.count_nonzero(diagonal):
        raise OtherForm
    return diagonal


_Costs = dict[int, Array]
"""What a slack's entries cost by power: 1, 2, both, or nothing."""


def _paid(costs: _Costs) -> _Costs:
    """Those of `costs` that are not 0 everywhere, which then must be positive everywhere."""
    paid = {power: weight for power, weight in sorted(costs.items()) if weight.any()}
    if not all((weight > 0).all() and np.isfinite(weight).all() for weight in paid.values()):
        raise OtherForm
    return paid


def _slack_groups(
    variable: Any, costs: _Costs, constraints: list[Any]
) -> tuple[LossGroup, ...]:
    """The losses that `variable` is, where all of `constraints` are lower bounds of its entries."""
    given = {name for name, value in variable.attributes.items() if value not in (None, False)}
    paid = _paid(costs)
    if not (given <= {"nonneg"} and paid):
        raise OtherForm
    # A square does not go below zero by itself, so that zero as a bound has no multiplier. Beside a
    # linear cost it does.
    lines = NOTHING if "nonneg" in given or 1 not in paid else None
    owners, factors = [] if lines is None else [-1], []
    for position, constraint in enumerate(constraints):
        bound, factor = _lower_bound(constraint, variable)
        factors.append(factor)
        lines = bound if lines is None else lines.maximum(bound)
        owners += [position] * len(bound.slopes)
    if lines is None:
        raise OtherForm
    every = tuple(zip(owners, lines.slopes, lines.heights, strict=True))
    active = _active(lines)[2]
    return tuple(
        replace(
            _folded(lines, weight, squared=power == 2),
            slack=Slack(
                variable, tuple(constraints), every, active, tuple(factors), squared=power == 2
            ),
        )
        for power, weight in paid.items()
    )


def _split_groups(
    equality: Any,
    wanted: dict[int, Any],
    total: dict[int, _Costs],
    holding: dict[int, list[Any]],
) -> tuple[tuple[Any, Any], tuple[LossGroup, ...]]:
    """Two slacks of opposite sign in `equality`, and the losses that they are.

    Nothing else may hold them but ``u, v >= 0``.
    """
    factors: dict[int, float] = {}
    plus: list[Any] = []
    minus: list[Any] = []
    for factor, part in _summands((1.0, equality.args[0]), (-1.0, equality.args[1]), among=wanted):
        if isinstance(part, cp.Variable) and part.id in wanted and part.id not in factors:
            factors[part.id] = factor
        else:
            (plus if factor > 0 else minus).append(_times(part, abs(factor)))
    if len(factors) != 2 or np.prod(list(factors.values())) >= 0:
        raise OtherForm
    if any(slack.id in factors for part in (*plus, *minus) for slack in part.variables()):
        raise OtherForm
    # Either of the two may be called u. Of ``y - X w`` and its negative, the residual is taken.
    moving = [sum(not part.is_constant() for part in side) for side in (plus, minus)]
    sign = 1.0 if moving[0] > moving[1] else -1.0
    plus, minus = (minus, plus) if sign > 0 else (plus, minus)
    u, v = sorted((wanted[key] for key in factors), key=lambda slack: -sign * factors[slack.id])
    argument: Any = sum(plus[1:], plus[0]) if plus else cp.Constant(0.0)
    for part in minus:
        argument = argument - part
    if argument.shape != u.shape or not argument.is_affine() or argument.is_constant():
        raise OtherForm
    constraints, owners, scales = [equality], [-1], [1.0]
    for k, slack in enumerate((u, v)):
        given = {name for name, value in slack.attributes.items() if value not in (None, False)}
        bounds = [constraint for constraint in holding[slack.id] if constraint is not equality]
        if not (given <= {"nonneg"} and (given or bounds)):
            raise OtherForm
        for constraint in bounds:
            bound, factor = _lower_bound(constraint, slack)
            if bound.argument is not None or np.any(bound.heights):
                raise OtherForm
            scales.append(factor)
        constraints += bounds
        owners += [k] * len(bounds)
    sizes = abs(factors[u.id]), abs(factors[v.id])
    whole = SplitSlack(
        (u, v), tuple(constraints), tuple(owners), tuple(scales), sign, (0.0, 0.0), sizes
    )
    linear, squares = (
        [
            total[slack.id].get(power, np.zeros(slack.size)) / size**power
            for slack, size in zip((u, v), sizes, strict=True)
        ]
        for power in (1, 2)
    )
    if np.min(linear) < 0:
        raise OtherForm
    groups = []
    for weight in _paid({1: linear[0] + linear[1]}).values():
        right, left = (number_or_all(cost / weight) for cost in linear)
        lines = _Lines(argument, (right, -left), (0.0, 0.0))
        slack = replace(whole, shares=(right, left))
        groups.append(replace(_folded(lines, weight, squared=False), slack=slack))
    # Equal squares of both are the square of what they part.
    sides = [((1.0, 0.0), squares[0]), ((-1.0, 0.0), squares[1])]
    if np.array_equal(squares[0], squares[1]):
        sides = [((1.0, -1.0), squares[0])]
    for slopes, cost in sides:
        for weight in _paid({2: cost}).values():
            lines = _Lines(argument, slopes, (0.0, 0.0))
            groups.append(replace(_folded(lines, weight, squared=True), slack=whole))
    if not groups:
        raise OtherForm
    return (u, v), tuple(groups)


def _times(expr: Any, factor: float) -> Any:
    """`expr` times a number, `expr` itself where that is 1."""
    return expr if factor == 1.0 else factor * expr


def _summands(
    *factored: tuple[float, Any], among: Collection[int]
) -> Iterator[tuple[float, Any]]:
    """Factors and summands of expressions with factors, sums and minus signs taken apart.

    And numbers that multiply what holds one of the variables `among`, by identifier.
    """
    for factor, part in factored:
        kind = type(part).__name__
        if kind in ("AddExpression", "NegExpression"):
            factor = -factor if kind == "NegExpression" else factor
            yield from _summands(*((factor, arg) for arg in part.args), among=among)
        elif (number := _number_before(part, among)) is not None:
            yield from _summands((factor * number[0], number[1]), among=among)
        elif not (part.is_constant() and part.size == 1 and _values(part, 1)[0] == 0.0):
            yield factor, part


def _number_before(expr: Any, among: Collection[int]) -> tuple[float, Any] | None:
    """A number that multiplies or divides what holds a variable `among`, and the rest."""
    if type(expr).__name__ not in ("multiply", "DivExpression", "MulExpression"):
        return None
    found = _scaled(expr)
    if found is None or found[0].shape != expr.shape or np.ptp(found[1]) or expr.parameters():
        return None
    if not any(variable.id in among for variable in expr.variables()):
        return None
    return float(found[1][0]), found[0]


def _lower_bound(constraint: Any, variable: Any) -> tuple[_Lines, float]:
    """What bounds `variable` from below, entry by entry, if `constraint` does just that.

    With the positive number that it is multiplied by there.
    """
    if type(constraint).__name__ != "Inequality" or constraint.shape != variable.shape:
        raise OtherForm
    lower, upper = constraint.args  # lower <= upper
    above, below = _summands_but(upper, variable, 1.0), _summands_but(lower, variable, -1.0)
    if (above is None) == (below is None):
        raise OtherForm
    others, factor = above or below or ([], 1.0)
    plus, minus = ([lower], others) if above is not None else (others, [upper])
    parts = [*plus, *minus]
    if any(v.id == variable.id for part in parts for v in part.variables()):
        raise OtherForm
    if any(not part.is_constant() for part in parts) and all(part.is_affine() for part in parts):
        whole = sum(plus[1:], plus[0]) if plus else -minus[0]
        for part in minus if plus else minus[1:]:
            if not (part.is_constant() and part.size == 1 and _values(part, 1)[0] == 0.0):
                whole = whole - part
        if whole.shape != variable.shape:
            raise OtherForm
        return _Lines(whole, (1.0 / factor,), (0.0,)), factor
    lines = NOTHING
    for sign, side in ((1.0, plus), (-1.0, minus)):
        for part in side:
            lines = lines.plus(_stretched(part, variable, sign))
    return lines.scaled(1.0 / factor), factor


def _summands_but(side: Any, variable: Any, sign: float) -> tuple[list[Any], float] | None:
    """The summands of `side` but for ``sign * factor * variable``, and the factor, if positive.

    None where it is not just one of them.
    """
    parts = side.args if type(side).__name__ == "AddExpression" else [side]
    factors = [_multiple_of(part, variable) for part in parts]
    mine = [k for k, factor in enumerate(factors) if sign * factor > 0.0]
    if len(mine) != 1:
        return None
    return [part for k, part in enumerate(parts) if k != mine[0]], abs(factors[mine[0]])


def _multiple_of(expr: Any, variable: Any) -> float:
    """What number `variable` is multiplied by in `expr`; 0 where it is anything else."""
    if expr is variable:
        return 1.0
    kind = type(expr).__name__
    if kind == "NegExpression":
        return -_multiple_of(expr.args[0], variable)
    if kind in ("multiply", "DivExpression", "MulExpression"):
        found = _scaled(expr)
        if found is not None and found[1].size == 1 and not expr.parameters():
            return float(found[1][0]) * _multiple_of(found[0], variable)
    return 0.0
