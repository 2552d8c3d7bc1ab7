"""A recognised problem at other costs.

A parameter in the objective (C, lambda, weights of the samples) multiplies the costs of columns and
changes nothing else. If all columns behind one loss term change by one factor, the term changes by
that factor; if all other squares change by one factor, so does the regulariser. A linear term of
coordinates may be any other. Then no rule needs to run again (`with_costs`). Anything else (a cost
that becomes zero, say) is left to them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.core.losses import LossTerms
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.cvxpy_plugin.recognise.recognition import SAME, Recognition
from cvxscreen.cvxpy_plugin.recognise.standard import Standard
from cvxscreen.cvxpy_plugin.recognise.steps import GroupTerms, Step

Array = NDArray[np.float64]
Index = NDArray[np.intp]


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
