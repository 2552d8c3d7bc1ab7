"""A recognised problem: the way back to all columns and multipliers, and itself at other costs.

A parameter in the objective (C, lambda, weights of the samples) multiplies the costs of columns and
changes nothing else. If all columns behind one loss term change by one factor, the term changes by
that factor; if all other squares change by one factor, so does the regulariser. Then no rule needs
to run again (`with_costs`). Anything else (a cost that becomes zero, a changed linear term, say) is
left to them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.core.losses import Losses, LossTerms
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.cvxpy_plugin.recognise.draft import Duals, Elimination, Step
from cvxscreen.cvxpy_plugin.recognise.elimination import (
    MinimisedOut,
    SplitVariable,
    SquaredNorm,
    SquaredResiduals,
)
from cvxscreen.cvxpy_plugin.recognise.epigraph import (
    GroupTerms,
    OneAboveAtMost,
    Pairing,
    PiecewiseLinear,
    PiecewiseQuadratic,
)
from cvxscreen.cvxpy_plugin.recognise.matrices import Stack
from cvxscreen.cvxpy_plugin.recognise.max_affine import MaxAffine, Maxima
from cvxscreen.cvxpy_plugin.recognise.standard import Standard
from cvxscreen.errors import CvxscreenError

Array = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Recognition:
    """A CVXPY problem read as a regularised sum of losses.

    Attributes
    ----------
    problem : Problem
        In the core coordinates.
    standard : Standard
        The canonical problem, all of it.
    core : array of int, shape (d,)
        The column of each core coordinate.
    steps : tuple of Step
        Everything else, undone in any order that their `needs` allow.
    side : CSR array, shape (k, m)
        The side constraints as combinations of rows.
    pairing : Pairing
        From all terms to those that the steps know.
    parts : CostParts
    l1_terms : L1Terms or None
        The terms that are no losses of `problem` but its L1 norm.
    maxima : Maxima or None
        A part of the objective that is not in `problem`.
    """

    problem: Problem
    standard: Standard
    core: Index
    steps: tuple[Step, ...]
    side: Any
    pairing: Pairing
    parts: CostParts
    l1_terms: L1Terms | None = None
    maxima: Maxima | None = None

    def columns(self, x: Array) -> Array:
        """All columns at their best values for the core coordinates `x`.

        Parameters
        ----------
        x : array, shape (d,)

        Returns
        -------
        array, shape (N,)

        Raises
        ------
        CvxscreenError
            If some helper depends on itself (a defect of a rule).
        """
        size = self.standard.size
        z, unknown = np.zeros(size), np.ones(size)
        z[self.core] = x
        unknown[self.core] = 0.0
        # SciPy takes longer for a new matrix than most of these products.
        needs = [abs(n) if (n.data < 0).any() else n for n in (s.needs for s in self.steps)]
        while unknown.any():
            values = self.standard.rows.values(z)
            before = unknown.sum()
            fresh: list[tuple[Index, Array]] = []
            for step, pattern in zip(self.steps, needs, strict=True):
                ready = (pattern @ unknown == 0.0) & (unknown[step.columns] > 0.0)
                if ready.any():
                    fresh.append((step.columns[ready], step.primal(values)[ready]))
            for columns, found in fresh:
                z[columns] = found
                unknown[columns] = 0.0
            if unknown.sum() == before:
                raise CvxscreenError("a helper variable depends on itself; please report this.")
        return z

    def value(self, z: Array) -> float:
        """The canonical objective at the columns `z`."""
        total, groups = self.standard.value(z), self.standard.canonical.groups
        if not groups:
            return total
        values = self.standard.rows.values(z)
        for group, rows in zip(groups, self.standard.arguments, strict=True):
            total += group.value(values[rows])
        return total

    def multipliers(
        self,
        z: Array,
        theta: Array,
        side: Array,
        penalty_subgradient: Array | None = None,
        shares: Array | None = None,
    ) -> Array:
        """Multipliers of all rows of the canonical problem.

        Parameters
        ----------
        z : array, shape (N,)
            All columns at the solution.
        theta : array, shape (n,)
            Slopes of the loss terms.
        side : array, shape (k,)
            Multipliers of the side constraints.
        penalty_subgradient : array, shape (d,), optional
            Subgradient of the L1 norm; the one that goes with `theta` when omitted.
        shares : array, shape (p,), optional
            Slopes of the pieces of `maxima`.

        Returns
        -------
        array, shape (m,)
        """
        rows = np.zeros(self.standard.rows.shape[0])
        if self.side.shape[0]:
            rows += self.side.T @ side
        if self.l1_terms is not None:
            given = penalty_subgradient
            if given is None:
                given = l1_subgradient(self.problem, theta)
            theta = self.l1_terms.slopes(theta, given)
        given_shares = np.zeros(0) if shares is None else shares
        duals = Duals(z, self.pairing.split(theta), rows, given_shares)
        for step in sorted(self.steps, key=_stage):
            step.dual(self.standard, duals)
        return duals.rows

    def tied(self, original: Any) -> Recognition:
        """The same of the problem `original` (or a weak reference of it)."""
        canonical = replace(self.standard.canonical, original=original)
        return replace(self, standard=replace(self.standard, canonical=canonical))

    def helpers(self) -> Index:
        """Positions of coordinates that no variable of the user's has."""
        return np.flatnonzero(~self.standard.own()[self.core])

    def residual(self, z: Array, multipliers: Array) -> Array:
        """Gradient of the Lagrangian of the canonical problem, shape (N,)."""
        own = self.standard.quadratic @ z + self.standard.linear
        return np.asarray(own - self.standard.rows.adjoint(multipliers))


def _stage(step: Step) -> int:
    """Multipliers of equalities come after those of the terms, those of dead zones last."""
    return 1 if isinstance(step, Elimination) else 2 if isinstance(step, MinimisedOut) else 0


@dataclass(frozen=True, eq=False)
class CostParts:
    """Where the linear term and the constant of the recognised problem come from.

    Attributes
    ----------
    slope, loss_slope : array, shape (d,)
        Linear term of the regulariser, and of the losses.
    base, level : float
        What squares of eliminated columns, and what the losses, add to the constant.
    """

    slope: Array
    loss_slope: Array
    base: float
    level: float


@dataclass(frozen=True, eq=False)
class UnusedColumns:
    """Columns that nothing depends on; they are put at 0. See `Step`.

    Attributes
    ----------
    columns : array of int, shape (k,)
    needs : CSR array, shape (k, N)
    """

    columns: Index
    needs: Any

    def primal(self, values: Array) -> Array:
        """See `Step.primal`."""
        return np.zeros(len(self.columns))

    def dual(self, standard: Standard, duals: Duals) -> None:
        """See `Step.dual`: no rows."""


# -- the L1 norm ----------------------------------------------------------------------------------
#
# Absolute values of single coordinates are the L1 norm of the regulariser, not losses.
#
# A term ``f(gamma x_j)`` with its kink at 0 is ``kappa |x_j| + tilt x_j``. Taken out of the losses
# it lets coordinates be screened: those proven zero leave the reduced problem altogether. On the
# way back the slope of every such term is its share of the subgradient of the L1 norm.


def find_l1_norm(rows: Stack, numbers: Array, core: Index, quadratic: Any) -> L1Terms | None:
    """The terms that are absolute values of single coordinates, where features can be screened.

    Parameters
    ----------
    rows : Stack, shape (k + n, N)
        Arguments of all terms, without their offsets.
    numbers : array, shape (k + n, 5)
    core : array of int, shape (d,)
        Columns of the coordinates.
    quadratic : CSR array, shape (d, d)

    Returns
    -------
    Shrinkage or None
        None as well where nothing but such terms is left, or where the quadratic term is not a
        positive diagonal.
    """
    b, e, q, low, high = numbers.T
    terms = (np.diff(rows.sparse.indptr) == 1) & ~rows.dense_rows()
    if terms.any():
        terms &= (b == 0) & (e == 0) & (q == 0) & np.isfinite(low) & np.isfinite(high)
    if not terms.any() or terms.all():
        return None
    diagonal = quadratic.diagonal()
    absent = quadratic.nnz == 0
    if not absent and ((diagonal <= 0).any() or quadratic.nnz > len(diagonal)):
        return None
    index = np.flatnonzero(terms)
    spot = rows.sparse.indptr[index]
    place = np.full(rows.shape[1], -1, dtype=np.intp)
    place[core] = np.arange(len(core))
    found = L1Terms(
        index,
        np.flatnonzero(~terms),
        place[rows.sparse.indices[spot]],
        np.asarray(rows.sparse.data[spot], dtype=np.float64),
        low[index],
        high[index],
    )
    return found if not absent or _needs_no_square(found, q[~terms], len(core)) else None


def _needs_no_square(found: L1Terms, q: Array, size: int) -> bool:
    """Whether the L1 norm can do without a quadratic term: on every coordinate, beside smooth f."""
    everywhere = (found.coordinates >= 0).all() and (found.total(found.weights, size) > 0).all()
    return bool(everywhere and (q > 0).all() and not found.total(found.linear_slopes, size).any())


@dataclass(frozen=True, eq=False)
class L1Terms:
    """Which of the recognised terms are absolute values of single coordinates.

    Attributes
    ----------
    terms : array of int, shape (k,)
        Their positions among all terms.
    rest : array of int, shape (n,)
        Positions of the others, which are the problem's losses.
    coordinates : array of int, shape (k,)
        ``j``.
    factors : array, shape (k,)
        ``gamma``, not 0.
    low, high : array, shape (k,)
        Box of the slopes.
    """

    terms: Index
    rest: Index
    coordinates: Index
    factors: Array
    low: Array
    high: Array

    @property
    def weights(self) -> Array:
        """``kappa`` of each term, shape (k,)."""
        return np.asarray(np.abs(self.factors) * (0.5 * self.high - 0.5 * self.low))

    @property
    def linear_slopes(self) -> Array:
        """Slope of the linear part of each term, shape (k,)."""
        return np.asarray(self.factors * (0.5 * self.high + 0.5 * self.low))

    def total(self, values: Array, size: int) -> Array:
        """Sum of `values`, shape (k,), by coordinate, shape (size,)."""
        out = np.zeros(size)
        np.add.at(out, self.coordinates, values)
        return out

    def penalty(self, size: int) -> L1:
        """The L1 norm over `size` coordinates."""
        return L1(self.total(self.weights, size))

    def slopes(self, theta: Array, penalty_subgradient: Array) -> Array:
        """Slopes of all terms.

        Parameters
        ----------
        theta : array, shape (n,)
            Of the losses.
        penalty_subgradient : array, shape (d,)
            A subgradient of the L1 norm.
        """
        out = np.zeros(len(self.terms) + len(self.rest))
        out[self.rest] = theta
        kappa = self.total(self.weights, len(penalty_subgradient))
        with np.errstate(invalid="ignore", over="ignore"):
            share = penalty_subgradient / np.where(kappa > 0, kappa, 1.0)
        term_slopes = self.linear_slopes + self.weights * share[self.coordinates]
        out[self.terms] = np.clip(term_slopes / self.factors, self.low, self.high)
        return out

    def reordered(self, order: Index) -> L1Terms:
        """The same with coordinate ``order[i]`` at place i."""
        place = np.argsort(order)
        return replace(self, coordinates=place[self.coordinates])

    def scaled(self, factor: Array) -> L1Terms:
        """The terms times their entries of `factor`, shape (k + n,)."""
        own = factor[self.terms]
        return replace(self, low=self.low * own, high=self.high * own)


def l1_subgradient(problem: Problem, theta: Array) -> Array:
    """The subgradient of the L1 norm that goes with the slopes `theta`, shape (d,)."""
    if problem.penalty is None:
        return np.zeros(problem.d)
    gradient = problem.design.adjoint(theta) + problem.linear
    return problem.penalty.prox_and_subgradient(-gradient, problem.quadratic.diagonal)[1]


# -- the same at other costs ----------------------------------------------------------------------


SAME = 1e-14
"""Factors that differ relatively by less are one factor."""


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
    if parts.slope.any() and change.slopes != sigma:  # a linear term changes with the squares
        if not np.array_equal(parts.slope, old):  # but for one that is as the user wrote it
            return None
        slope = standard.linear[recognition.core]
    linear = slope + (rho or 1.0) * parts.loss_slope
    constant = standard.constant + sigma * parts.base + (rho or 1.0) * parts.level
    steps = tuple(rescaled_step(step, change.ratio) for step in recognition.steps)
    l1_terms, terms = recognition.l1_terms, change.terms
    if l1_terms is not None and terms is not None:
        l1_terms, terms = l1_terms.scaled(terms), terms[l1_terms.rest]
        problem = replace(problem, penalty=l1_terms.penalty(problem.d))
    changed = _problem(problem, terms, rho, sigma, linear, constant)
    maxima = recognition.maxima
    if maxima is not None:
        costs = [step.cost for step in steps if isinstance(step, MaxAffine)]
        maxima = replace(maxima, cost=np.concatenate(costs))
    return replace(
        recognition, problem=changed, standard=standard, steps=steps, l1_terms=l1_terms,
        maxima=maxima,
    )


def _problem(
    problem: Problem, terms: Array | None, rho: float | None, sigma: float, linear: Array,
    constant: float,
) -> Problem:
    """The problem with its terms times `terms` and its squares times `sigma`."""
    C = problem.C
    if rho is None:
        known = np.ones(problem.n) if terms is None else terms
        losses: LossTerms = scaled_losses(problem.losses, known)
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


@dataclass(frozen=True)
class Factors:
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
        The one factor of all other squares and of all other linear costs.
    """

    ratio: Array
    terms: Array | None
    losses: float | None
    squares: float | None
    slopes: float | None

    def each(self, put: Callable[[Any], Any]) -> Factors:
        """The same with ``put(factors)`` in place of all factors there are."""
        def known(part: Any) -> Any:
            return None if part is None else put(part)

        parts = (self.ratio, self.terms, self.losses, self.squares, self.slopes)
        return Factors(*map(known, parts))


def factors(recognition: Recognition, standard: Standard) -> Factors | None:
    """How the costs of `standard` differ from those of `recognition`; None if too freely."""
    old = recognition.standard
    first, second = (_sorted(s.quadratic) for s in (old, standard))
    if not np.array_equal(first.indptr, second.indptr):
        return None
    if not np.array_equal(first.indices, second.indices):
        return None
    slope, square = _ratios(old.linear, standard.linear), _ratios(first.data, second.data)
    if slope is None or square is None:
        return None
    row = np.repeat(np.arange(old.size), np.diff(first.indptr))
    own = np.full(old.size, np.nan)
    own[row[row == first.indices]] = square[row == first.indices]
    sources = _sources(recognition)
    paying = np.zeros(old.size, dtype=bool)
    for columns, _ in sources:
        paying[columns] = True
    ratio = np.where(np.isfinite(slope), slope, own)
    eliminations = [step for step in recognition.steps if isinstance(step, Elimination)]
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
    return None if (ratio < 0).any() else ratio


def _common(ratio: Array) -> float | None:
    """The value that all entries have, 1 for none, or None where they differ."""
    if not len(ratio):
        return 1.0
    first = float(ratio[0])
    close = np.abs(ratio - first) <= SAME * abs(first)
    return first if np.isfinite(first) and first > 0 and close.all() else None


def _passed_on(step: Elimination, ratio: Array) -> bool:
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
    return None if (np.abs(other - one) > SAME * one).any() else one


def _sources(recognition: Recognition) -> list[tuple[Index, Index]]:
    """Which columns pay for which of the terms found: pairs of (columns, terms), -1 for none."""
    return [pair for step in recognition.steps for pair in _paid_terms(step)]


@singledispatch
def _paid_terms(step: Any) -> list[tuple[Index, Index]]:
    """The same for one step; a step without terms of its own gives none."""
    return []


@_paid_terms.register(MinimisedOut)
@_paid_terms.register(SquaredResiduals)
def _(step: MinimisedOut | SquaredResiduals) -> list[tuple[Index, Index]]:
    return [(step.columns, step.terms)]


@_paid_terms.register
def _(step: MaxAffine) -> list[tuple[Index, Index]]:
    return [(step.columns, np.full(len(step.columns), -1, dtype=np.intp))]


@_paid_terms.register
def _(step: SquaredNorm) -> list[tuple[Index, Index]]:
    if step.terms is None:
        return []
    return [(np.repeat(step.columns, len(step.terms)), step.terms)]


@_paid_terms.register(OneAboveAtMost)
@_paid_terms.register(PiecewiseLinear)
@_paid_terms.register(PiecewiseQuadratic)
def _(step: OneAboveAtMost | PiecewiseLinear | PiecewiseQuadratic) -> list[tuple[Index, Index]]:
    none = [np.full(len(step.columns), -1, dtype=np.intp)] if not step.terms else []
    return [(step.columns, terms) for terms in [*step.terms, *none]]


@_paid_terms.register
def _(step: SplitVariable) -> list[tuple[Index, Index]]:
    k = len(step.terms)
    return [(step.columns[:k], step.terms), (step.columns[k:], step.terms)]


@singledispatch
def rescaled_step(step: Any, ratio: Array) -> Any:
    """`step` with the costs of its columns multiplied by ``ratio[column]``."""
    return step


@rescaled_step.register(OneAboveAtMost)
@rescaled_step.register(PiecewiseLinear)
@rescaled_step.register(MaxAffine)
def _(step: Any, ratio: Array) -> Any:
    return replace(step, cost=step.cost * ratio[step.columns])


@rescaled_step.register
def _(step: PiecewiseQuadratic, ratio: Array) -> PiecewiseQuadratic:
    factor = ratio[step.columns]
    return replace(step, cost=step.cost * factor, curve=step.curve * factor)


@rescaled_step.register
def _(step: SplitVariable, ratio: Array) -> SplitVariable:
    factor = ratio[step.columns].reshape(2, -1)
    return replace(step, costs=step.costs * factor, base=step.base * factor[0])


@rescaled_step.register
def _(step: MinimisedOut, ratio: Array) -> MinimisedOut:
    factor = ratio[step.columns]
    return replace(step, losses=scaled_losses(step.losses, factor), curve=step.curve * factor)


@rescaled_step.register
def _(step: SquaredResiduals, ratio: Array) -> SquaredResiduals:
    return replace(step, slope=step.slope * ratio[step.columns])


@rescaled_step.register
def _(step: SquaredNorm, ratio: Array) -> SquaredNorm:
    return replace(step, rho=step.rho * float(ratio[step.columns[0]]))


def scaled_losses(losses: LossTerms, factor: Array) -> Losses:
    """Every loss times its own factor."""
    return Losses(losses.b, losses.e, losses.q / factor, losses.lo * factor, losses.hi * factor)
