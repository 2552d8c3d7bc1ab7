"""A recognised problem at other costs.

A parameter in the objective (C, lambda, weights of the samples) multiplies the costs of columns and
changes nothing else. If all columns behind one loss term change by one factor, the term changes by
that factor; if all other squares change by one factor, so does the regulariser. A linear term of
coordinates may be any other. Then no rule needs to run again (`with_costs`). Anything else (a cost
that becomes zero, say) is left to them.

Where parameters only weigh summands, ``s_1(p) g_1(x) + s_2(p) g_2(x) + ...``, the values of
``s_k`` say all costs (`CostsByWeight`). Which of them each cost follows is learned when they change
for the first time: there `factors` reads all costs anew, and each has changed as one of the
weights. From then on no expression of the user's is walked through again but the weights
themselves. A cost that two weights share would follow neither. No variable of the cone form is
therefore in summands of two weights; and weights are only told apart where they have changed by
clearly different factors (`APART`), those that have not are one for as long as they go together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.core.losses import LossTerms
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.cvxpy_plugin.recognise.draft import GroupTerms, Step
from cvxscreen.cvxpy_plugin.recognise.python_loops import Unreadable, fixed, numbers, summands_of
from cvxscreen.cvxpy_plugin.recognise.recognition import SAME, Recognition
from cvxscreen.cvxpy_plugin.recognise.standard import Canonical, Standard

Array = NDArray[np.float64]
Index = NDArray[np.intp]

APART = 1e-3
"""Relative difference of two factors from which on they are told apart."""


def at_costs(recognition: Recognition, standard: Standard) -> Recognition | None:
    """`recognition` at the costs of `standard`, which has the same rows; None where rules must run.

    Whoever takes it compares it with the user's problem; see `check`.
    """
    return with_costs(recognition, standard, factors(recognition, standard))


def with_costs(
    recognition: Recognition, standard: Standard, change: Factors | None
) -> Recognition | None:
    """`recognition` at the costs of `standard`, which has the same rows; None where rules must run.

    Parameters
    ----------
    recognition : Recognition
    standard : Standard
        With the same variables and rows.
    change : Factors or None
        What `factors` says of the two.
    """
    if change is None or change.squares is None:
        return None
    problem, parts = recognition.problem, recognition.parts
    sigma, rho = change.squares, change.losses
    if rho is None and (parts.loss_slope.any() or parts.level):
        return None
    slope, old = sigma * parts.slope, recognition.standard.linear[recognition.core]
    apart = change.slopes is None or (parts.slope.any() and change.slopes != sigma)
    if apart:  # a linear term changes with the squares, but for one that is as the user wrote it
        if not np.array_equal(parts.slope, old):
            return None
        slope = standard.linear[recognition.core]
    linear = slope + (rho or 1.0) * parts.loss_slope
    constant = standard.constant + sigma * parts.base + (rho or 1.0) * parts.level
    steps = tuple(step.times(change.ratio) for step in recognition.steps)
    l1_terms, terms = recognition.l1_terms, change.terms
    if l1_terms is not None and terms is not None:
        l1_terms, terms = l1_terms.scaled(terms), terms[l1_terms.rest]
        problem = replace(problem, penalty=l1_terms.penalty(problem.d))
    changed = _problem(problem, terms, rho, sigma, linear, constant)
    maxima = recognition.maxima and recognition.maxima.paid_by(steps)
    return recognition._replace(
        problem=changed, standard=standard, steps=steps, l1_terms=l1_terms, maxima=maxima
    )


def _problem(
    problem: Problem, terms: Array | None, rho: float | None, sigma: float, linear: Array,
    constant: float,
) -> Problem:
    """The problem with its terms times `terms` and its squares times `sigma`."""
    C = problem.C
    if rho is None:
        losses: LossTerms = problem.losses if terms is None else problem.losses.weighted(terms)
    else:
        losses, C = problem.losses.scaled(rho) if rho != 1.0 else problem.losses, rho * C
    quadratic = problem.quadratic
    if sigma != 1.0 and isinstance(quadratic, Quadratic):
        quadratic = quadratic.scaled(sigma)
    changed = replace(
        problem, losses=losses, quadratic=quadratic, linear=linear, constant=constant, C=C
    )
    if sigma != 1.0 and quadratic is not problem.quadratic:
        _ = problem.norms  # a pass over the data, once for all other costs
    changed.known.inherit_rows(problem.known, form=sigma)
    return changed


class Factors(NamedTuple):
    """How costs changed.

    Attributes
    ----------
    ratio : array, shape (N,)
        By column; 1 where a column costs nothing.
    terms : array, shape (n,), or None
        By term, absolute values in the L1 norm among them; None where `losses` says it all.
    losses : float or None
        The one factor of all columns behind losses, None where they differ.
    squares, slopes : float or None
        The one factor of all other squares and of all other linear costs; None where they differ.
    """

    ratio: Array
    terms: Array | None
    losses: float | None
    squares: float | None
    slopes: float | None

    def each(self, put: Callable[[Any], Any]) -> Factors:
        """The same with ``put(factors)`` in place of all factors there are."""
        known: Any = (None if part is None else put(part) for part in self)
        return Factors(*known)


def factors(recognition: Recognition, standard: Standard) -> Factors | None:
    """How the costs of `standard` differ from those of `recognition`; None if too freely."""
    old = recognition.standard
    first, second = (_sorted(s.quadratic) for s in (old, standard))
    if not np.array_equal(first.indptr, second.indptr):
        return None
    if not np.array_equal(first.indices, second.indices):
        return None
    sources = [pair for step in recognition.steps for pair in step.paid()]
    paying = np.zeros(old.size, dtype=bool)
    for columns, _ in sources:
        paying[columns] = True
    # What coordinates cost that pay for no term is taken as it is.
    free = np.zeros(old.size, dtype=bool)
    free[recognition.core] = True
    free &= ~paying
    # CVXPY's own that cost something now, as below an L1 norm of weight 0, are other terms.
    idle = (old.linear == 0.0) != (standard.linear == 0.0)
    if (idle & free & ~old.own()).any():
        return None
    freely = _ratios(old.linear[free], standard.linear[free])
    slope = _ratios(np.where(free, 0.0, old.linear), np.where(free, 0.0, standard.linear))
    square = _ratios(first.data, second.data)
    if slope is None or square is None:
        return None
    if freely is not None:
        slope[free] = freely
    row = np.repeat(np.arange(old.size), np.diff(first.indptr))
    own = np.full(old.size, np.nan)
    own[row[row == first.indices]] = square[row == first.indices]
    ratio = np.where(np.isfinite(slope), slope, own)
    eliminations = [step for step in recognition.steps if step.substituted]
    helpers = paying.copy()
    for step in eliminations:
        helpers[step.columns] = True
        if not _passed_on(step, ratio):
            return None
    for step in reversed(eliminations):
        paying[step.columns] |= np.asarray(step.needs @ paying.astype(float)) > 0
    apart = np.isfinite(own) & helpers & (np.abs(own - ratio) > SAME * ratio)
    if apart.any() or paying[row[row != first.indices]].any():
        return None
    groups = _group_factors(recognition, standard)
    if groups is None:
        return None
    losses = _common(
        np.concatenate([ratio[paying & np.isfinite(ratio)], *(part for _, part in groups)])
    )
    terms = None
    if losses is None or recognition.l1_terms is not None:
        terms = _by_term(recognition, sources, ratio, groups)
        if terms is None:
            return None
    squares = _common(square[~paying[row]])
    others = np.isfinite(slope) & ~paying
    slopes = _common(slope[others]) if others.any() else squares
    if freely is None:
        slopes = None
    return Factors(np.where(np.isfinite(ratio), ratio, 1.0), terms, losses, squares, slopes)


def _sorted(matrix: Any) -> Any:
    """`matrix` with its columns in order in each row, itself where they are."""
    if matrix.has_sorted_indices:
        return matrix
    matrix = sp.csr_array(matrix, copy=True)
    matrix.sort_indices()
    return matrix


def _ratios(before: Array, after: Array) -> Array | None:
    """``after / before``, NaN where both are 0; None if only one of them is somewhere."""
    if ((before == 0) != (after == 0)).any():
        return None
    ratio = np.full(len(before), np.nan)
    np.divide(after, before, out=ratio, where=before != 0)
    known = ratio[before != 0]
    return ratio if ((known > 0) & np.isfinite(known)).all() else None


def _common(ratio: Array) -> float | None:
    """The value that all entries have, 1 for none, or None where they differ."""
    if not len(ratio):
        return 1.0
    first = float(ratio[0])
    close = np.abs(ratio - first) <= SAME * abs(first)
    return first if np.isfinite(first) and first > 0 and close.all() else None


def _passed_on(step: Step, ratio: Array) -> bool:
    """Hand the factors of defined columns to those that define them; False if two disagree."""
    known = np.flatnonzero(np.isfinite(ratio[step.columns]))
    needs = sp.coo_array(step.needs[known])
    given = ratio[step.columns[known]][needs.row]
    fresh = np.isnan(ratio[needs.col])
    ratio[needs.col[fresh]] = given[fresh]
    return bool((np.abs(ratio[needs.col] - given) <= SAME * given).all())


def _group_factors(
    recognition: Recognition, standard: Standard
) -> list[tuple[Index, Array]] | None:
    """Terms of losses that were read off the objective, and their factors; None if not all have."""
    before, after = recognition.standard.canonical.groups, standard.canonical.groups
    out = []
    for step in recognition.steps:
        if isinstance(step, GroupTerms):
            factor = before[step.group].factor(after[step.group])
            if factor is None:
                return None
            out.append((step.terms, factor if len(factor) == 1 else factor[step.paying]))
    return out


def _by_term(
    recognition: Recognition,
    sources: list[tuple[Index, Index]],
    ratio: Array,
    groups: list[tuple[Index, Array]],
) -> Array | None:
    """The factor of each term; None if a term's columns have different ones."""
    pairing = recognition.pairing
    found = np.full(pairing.found, np.nan)
    for where, value in groups:
        found[where] = value
    for columns, terms in sources:
        hit = (terms >= 0) & np.isfinite(ratio[columns])
        value, where = ratio[columns[hit]], terms[hit]
        known = np.isfinite(found[where])
        if (np.abs(found[where] - value)[known] > SAME * value[known]).any():
            return None
        found[where] = value
    found[np.isnan(found)] = 1.0
    one = found[pairing.first]
    other = np.where(pairing.second >= 0, found[pairing.second], one)
    return one if ((np.abs(other - one) <= SAME * one) & (one > 0)).all() else None


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
