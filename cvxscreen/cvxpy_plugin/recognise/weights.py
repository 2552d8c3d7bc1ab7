"""How the costs of a recognised problem follow the weights of the objective's summands.

Where parameters only weigh summands, ``s_1(p) g_1(x) + s_2(p) g_2(x) + ...``, the values of
``s_k`` say all costs. Which of them each cost follows is learned when they change for the first
time: there `factors` reads all costs anew, and each has changed as one of the weights. From then on
no expression of the user's is walked through again but the weights themselves.

A cost that two weights share would follow neither. No variable of the cone form is therefore in
summands of two weights; and weights are only told apart where they have changed by clearly
different factors (`APART`), those that have not are one for as long as they go together.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvxscreen.cvxpy_plugin.recognise.python_loops import Unreadable, fixed, numbers, summands_of
from cvxscreen.cvxpy_plugin.recognise.recognition import SAME, Recognition
from cvxscreen.cvxpy_plugin.recognise.standard import Canonical, Standard

if TYPE_CHECKING:
    from cvxscreen.cvxpy_plugin.recognise.changed_costs import Factors

Array = NDArray[np.float64]
Index = NDArray[np.intp]

APART = 1e-3
"""Relative difference of two factors from which on they are told apart."""


class Weights(NamedTuple):
    """What parameters weigh the summands of an objective by.

    Attributes
    ----------
    scales : tuple of tuple of cvxpy.Expression
        Factors of each weight, without numbers; the first is that of summands without parameters.
    before : array, shape (k,)
        Their products when they were read.
    inside : frozenset of int
        Parameters within summands or constraints: what else a change of theirs does is not known.
    """

    scales: tuple[tuple[Any, ...], ...]
    before: Array
    inside: frozenset[int]

    @classmethod
    def of(cls, canonical: Canonical) -> Weights | None:
        """Those of a problem of the user's; None where they share a column of its cone form."""
        weights: dict[tuple[int, ...], int] = {(): 0}
        scales: list[tuple[Any, ...]] = [()]
        owner: dict[int, int] = {}
        inside: set[int] = set()
        whole, cone = canonical.whole or canonical.original, canonical.problem
        for written in (canonical.original, whole, cone):
            for constraint in written.constraints:
                inside |= {parameter.id for parameter in constraint.parameters()}
        try:
            for problem in (whole, cone):
                for part in summands_of(problem.objective.expr):
                    inner = tuple(_without_numbers(scale) for scale in part.scales)
                    own = weights.setdefault(tuple(sorted(map(id, inner))), len(scales))
                    if own == len(scales):
                        scales.append(inner)
                    inside |= {parameter.id for parameter in part.expr.parameters()}
                    for variable in part.expr.variables() if problem is cone else ():
                        if owner.setdefault(variable.id, own) != own:
                            return None
            before = np.array([_product(factors) for factors in scales])
        except Unreadable:
            return None
        return cls(tuple(scales), before, frozenset(inside))

    def factors(self) -> Array | None:
        """The present weights over those before; None where one has lost its sign, or is 0."""
        found = np.array([_product(factors) for factors in self.scales])
        with np.errstate(divide="ignore", invalid="ignore"):
            found = found / self.before
        return found if (np.isfinite(found) & (found > 0)).all() else None


def _without_numbers(scale: Any) -> Any:
    """A constant without the numbers that multiply or divide it."""
    kind = type(scale).__name__
    if kind in ("Promote", "reshape", "NegExpression"):
        return _without_numbers(scale.args[0])
    if kind in ("multiply", "MulExpression", "DivExpression"):
        first, second = scale.args
        if fixed(second):
            return _without_numbers(first)
        if fixed(first) and kind != "DivExpression":
            return _without_numbers(second)
    return scale


def _product(factors: Iterable[Any]) -> float:
    product = 1.0
    for factor in factors:
        product *= numbers(factor).item()
    return product


class _Mixed(Exception):
    """A cost has changed as no weight has."""


class CostsByWeight(NamedTuple):
    """Which weight each cost of a recognised problem follows.

    Attributes
    ----------
    weights : Weights
    known : Recognition
        At the weights before.
    first, kinds : array of int, shapes (l,) and (k,)
        Kinds of weights, all of which have changed by the same factor: the first one of each kind,
        and the kind of each.
    linear, squares : arrays of int, shape (N,) and one entry for each of the squares
        Kinds of the costs.
    constant : int
    groups : tuple of int
    change : Factors
        With kinds in place of factors.
    """

    weights: Weights
    known: Recognition
    first: Index
    kinds: Index
    linear: Index
    squares: Index
    constant: Index
    groups: tuple[Index, ...]
    change: Factors

    @classmethod
    def learned(
        cls, weights: Weights, known: Recognition, standard: Standard, change: Factors
    ) -> CostsByWeight | None:
        """Learned from costs that have been read anew; None where they do not tell.

        Parameters
        ----------
        weights : Weights
            Of the problem that was recognised, read when `known` was.
        standard : Standard
            With the present costs.
        change : Factors
            How they differ from those of `known`.
        """
        found, old = weights.factors(), known.standard
        if found is None or not np.array_equal(old.quadratic.indices, standard.quadratic.indices):
            return None
        levels = np.sort(found)
        levels = levels[np.append(True, np.diff(levels) > APART * levels[:-1])]
        pairs = zip(old.canonical.groups, standard.canonical.groups, strict=True)
        try:
            kinds = _nearest(found, levels)
            return cls(
                weights,
                known,
                np.unique(kinds, return_index=True)[1],
                kinds,
                _nearest(_ratio(old.linear, standard.linear), levels),
                _nearest(_ratio(old.quadratic.data, standard.quadratic.data), levels),
                _nearest(_ratio(old.constant, standard.constant), levels),
                tuple(_nearest(_largest(b.weight) / _largest(a.weight), levels) for a, b in pairs),
                change.each(lambda factor: _nearest(factor, levels)),
            )
        except _Mixed:
            return None

    def now(self, original: Any) -> Recognition | None:
        """The recognition at the present weights; None where they do not tell.

        Parameters
        ----------
        original : cvxpy.Problem
            The user's, which `known` has as a weak reference.
        """
        from cvxscreen.cvxpy_plugin.recognise.changed_costs import with_costs

        found, old = self.weights.factors(), self.known.standard
        if found is None:
            return None
        level = found[self.first]
        if (np.abs(found - level[self.kinds]) > SAME * found).any():
            return None

        def put(kind: Index) -> Any:
            return level[kind] if kind.ndim else float(level[kind])

        groups = zip(old.canonical.groups, self.groups, strict=True)
        canonical = old.canonical._replace(
            original=original,
            groups=tuple(group.times(float(level[kind])) for group, kind in groups),
        )
        quadratic = copy(old.quadratic)
        quadratic.data = old.quadratic.data * level[self.squares]
        standard = old._replace(
            canonical=canonical, quadratic=quadratic, linear=old.linear * level[self.linear],
            constant=old.constant * float(level[self.constant]),
        )
        return with_costs(self.known, standard, self.change.each(put))


def _ratio(before: Any, after: Any) -> Array:
    """``after / before``, 1 where both are 0."""
    zero = np.equal(before, 0.0) & np.equal(after, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(zero, 1.0, np.divide(after, before))


def _nearest(values: Any, levels: Array) -> Index:
    """Which of the levels each of the values is.

    Raises
    ------
    _Mixed
        Where one is none of them.
    """
    apart = np.abs(np.subtract.outer(values, levels))
    kinds = apart.argmin(axis=-1)
    if not (apart.min(axis=-1) <= SAME * levels[kinds]).all():
        raise _Mixed
    return kinds


def _largest(weight: Array) -> float:
    """The largest weight of a group, all of which have changed by one factor."""
    return float(weight[0] if not weight.strides[0] else weight.max())
