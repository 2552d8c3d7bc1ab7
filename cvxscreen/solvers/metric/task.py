"""Metric learning as its solvers see it: cones, evaluation, what it proves, and a smaller task.

See the package for the formulas; ``minus_linear`` is minus the linear term, with the sum of what is
fixed on the linear piece, and `constant` the rest of the latter's value. The dual variable is
always that of the very M at hand, so that the gap needs no array over the terms.

A `FactoredMetric` is a member of its cone by construction: a matrix is the product of a factor with
its transpose, whatever the eigenvalue routine may have rounded.

An `Indexed` set is shrunk term by term with the exact norms ``|H|``; a product set closes the
window of every row from both ends, with ``|H|^2 <= |a|^4 + |b|^4``, and never lists a term. Whether
that pays along a path is counted in work, never in seconds: runs must repeat exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.rounding import UNIT, gamma, up
from cvxscreen.designs.comparisons import (
    Indexed,
    PairTable,
    Products,
    Terms,
    close_windows,
    indexed_pass,
    product_pass,
)

Array = NDArray[np.float64]


class FactoredMetric(NamedTuple):
    """A member of the cone, with the factor that shows it to be one.

    Attributes
    ----------
    value : array, shape (d, d) or (d,)
    factor : array, shape (d, r)
        ``value = factor factor'`` up to rounding; of a diagonal metric the roots, shape (d,).
    """

    value: Array
    factor: Array


class MoreauParts(NamedTuple):
    """Moreau's decomposition: ``matrix = positive - lift lift'``, both parts in the cone.

    Attributes
    ----------
    positive : array
        The projection, computed as the argument plus ``lift lift'``.
    lift : array, shape (d, s) or (d,)
        ``lift lift'`` lies in the cone exactly; for vectors the lift is the vector added itself.
    factor : array, shape (d, r)
        ``factor factor'`` is close to `positive`; empty for vectors.
    """

    positive: Array
    lift: Array
    factor: Array


@dataclass(frozen=True)
class Semidefinite:
    """Symmetric positive semidefinite matrices, shape (d, d)."""

    d: int

    def project(self, matrix: Array) -> FactoredMetric:
        """The nearest member, without eigenvalues that are mere rounding."""
        values, vectors = np.linalg.eigh(matrix)
        floor = self.d * UNIT * max(abs(float(values[0])), abs(float(values[-1])))
        used = values > floor
        factor = np.ascontiguousarray(vectors[:, used] * np.sqrt(values[used]))
        if not factor.shape[1]:
            factor = np.zeros((self.d, 1))
        value = factor @ factor.T
        if factor.shape[1] == self.d:
            factor = _triangular(value, factor)
        return FactoredMetric(value, factor)

    def moreau(self, matrix: Array) -> MoreauParts:
        """`matrix` with its negative part taken off."""
        values, vectors = np.linalg.eigh(matrix)
        used = values < 0.0
        lift = vectors[:, used] * np.sqrt(-values[used])
        factor = vectors[:, ~used] * np.sqrt(values[~used])
        return MoreauParts(matrix + lift @ lift.T, lift, factor)

    def inner_above(self, metric: FactoredMetric, lift: Array) -> float:
        """An upper bound of ``<metric, lift lift'>``, a sum of squares."""
        cross = float(np.linalg.norm(metric.factor.T @ lift)) * (1.0 + gamma(self.d**2))
        sizes = float(np.linalg.norm(metric.factor)) * float(np.linalg.norm(lift))
        return float((cross + gamma(self.d + 2) * sizes) ** 2)

    def metric_error(self, metric: FactoredMetric) -> float:
        """Bound of ``|value - factor factor'|``."""
        return gamma(self.d + 2) * float(np.linalg.norm(metric.factor)) ** 2

    def lift_error(self, lift: Array) -> float:
        """Bound of the rounding of ``lift lift'``, and its size."""
        return gamma(self.d + 3) * float(np.linalg.norm(lift)) ** 2


def _triangular(value: Array, factor: Array) -> Array:
    """The Cholesky factor, cheaper to multiply with, if rounding lets there be one.

    ``|value - L L'| <= gamma(d + 1) |L|^2`` (Higham 2002, Theorem 10.3), as for any other factor.
    """
    try:
        return np.asarray(np.linalg.cholesky(value), dtype=np.float64)
    except np.linalg.LinAlgError:
        return factor


@dataclass(frozen=True)
class Nonnegative:
    """Vectors with non-negative entries, shape (d,)."""

    d: int

    def project(self, vector: Array) -> FactoredMetric:
        """The vector with 0 in place of its negative entries."""
        value = np.maximum(vector, 0.0)
        return FactoredMetric(value, np.sqrt(value))

    def moreau(self, vector: Array) -> MoreauParts:
        """`vector` with its negative part taken off."""
        return MoreauParts(np.maximum(vector, 0.0), np.maximum(-vector, 0.0), np.zeros(0))

    def inner_above(self, metric: FactoredMetric, lift: Array) -> float:
        """An upper bound of the inner product of two non-negative vectors."""
        return float(metric.value @ lift) * (1.0 + gamma(self.d + 2))

    def metric_error(self, metric: FactoredMetric) -> float:
        """0: taking the positive part of a vector rounds nothing."""
        return 0.0

    def lift_error(self, lift: Array) -> float:
        """0: taking the negative part of a vector rounds nothing."""
        return 0.0


Cone = Semidefinite | Nonnegative


class MetricIterate(NamedTuple):
    """A metric evaluated on a task, with the dual point ``alpha = -losses.slope(margins)``.

    Attributes
    ----------
    metric : FactoredMetric
    primal : float
    values : array, shape (P + 1,)
        The pairs' squared distances.
    omega : array, shape (P + 1,)
        Of each pair the sum of alpha over its terms, with the sign that the pair has there.
    v : array, shape (d, d) or (d,)
        ``sum alpha H + minus_linear``, that is ``-A' theta - q`` of `cvxscreen.core.duality` (K in
        Yoshida et al. 2019).
    """

    metric: FactoredMetric
    primal: float
    values: Array
    omega: Array
    v: Array

    def gradient(self, lam: float) -> Array:
        """Gradient of the primal objective at `M`."""
        return lam * self.metric.value - self.v


class Sphere(NamedTuple):
    """``|M* - centre| <= radius``, proven, rounding included; from the pair (M, alpha(M))."""

    centre: Array
    radius: float
    gap: float
    dual: Array  # M_alpha
    factor: Array  # about its root, empty for a diagonal metric


@dataclass(eq=False)
class TermFacts:
    """What does not depend on lam, made when first needed; tasks of the same terms share it.

    Attributes
    ----------
    norms : array, shape (T,)
        ``|H_t|`` rounded up.
    one_signed : bool
        Whether no pair is the plus pair of one term and the minus pair of another.
    largest_pair_weights : array, shape (P + 1,)
        The sum of the weights of each pair's terms.
    window_space, point_space : arrays
        Workspaces of a pass over windows and over points.
    """

    norms: Array | None = None
    one_signed: bool | None = None
    largest_pair_weights: Array | None = None
    window_space: Array | None = None
    point_space: Array | None = None


class MetricTask(Immutable):
    """See the module's docstring; `b`, `smoothing` and `weight` have one entry, or one a term.

    `smoothing` is the width of the quadratic piece (gamma), `drift` a bound of the error of
    `minus_linear` as stored.
    """

    table: PairTable
    terms: Terms
    b: Array
    smoothing: Array
    weight: Array
    lam: float
    minus_linear: Array
    constant: float = 0.0
    drift: float = 0.0
    facts: TermFacts = field(default_factory=TermFacts, repr=False)

    @cached_property
    def cone(self) -> Cone:
        """The cone that the metric is in: semidefinite matrices, or non-negative diagonals."""
        return (Nonnegative if self.table.diagonal else Semidefinite)(self.table.d)

    @property
    def window_space(self) -> Array:
        """See `TermFacts`."""
        if self.facts.window_space is None:
            widest = self.terms.widest if isinstance(self.terms, Products) else 0
            self.facts.window_space = np.empty((2, widest))
        return self.facts.window_space

    @property
    def point_space(self) -> Array:
        """See `TermFacts`."""
        if self.facts.point_space is None:
            self.facts.point_space = np.empty_like(self.table.points)
        return self.facts.point_space

    def pair_values(self, metric: FactoredMetric) -> Array:
        """The squared distances of the pairs under `metric`, shape (P + 1,)."""
        if self.table.diagonal:
            return self.table.values(metric.value)
        return self.table.distances(metric.factor, self.point_space)

    def evaluate(self, metric: FactoredMetric) -> MetricIterate:
        """One pass: objective and the gradient's data."""
        q = self.pair_values(metric)
        total, omega = self.losses(q)
        v = self.table.adjoint(omega, self.point_space) + self.minus_linear
        value = metric.value
        smooth = 0.5 * self.lam * np.vdot(value, value) - np.vdot(self.minus_linear, value)
        return MetricIterate(metric, float(total + smooth) + self.constant, q, omega, v)

    def losses(self, q: Array) -> tuple[float, Array]:
        """Sum of the losses at pair values `q`, and ``omega`` (see `MetricIterate`)."""
        omega = np.zeros(len(self.table) + 1)
        if isinstance(self.terms, Products):
            total = product_pass(
                self.terms.arrays, q, self.b[0], self.smoothing[0], self.weight[0], omega,
                self.window_space,
            )
        else:
            total = indexed_pass(
                self.terms.plus, self.terms.minus, q, self.b, self.smoothing, self.weight, omega
            )
        omega[-1] = 0.0
        return float(total), omega

    # -- what a state proves --------------------------------------------------------------------

    def gap(self, state: MetricIterate) -> float:
        """The duality gap, not rounded outward: for stopping, never for proofs."""
        split = self.cone.moreau(state.v)
        step = state.metric.value - split.positive / self.lam
        return float(0.5 * self.lam * np.vdot(step, step)) + self.cone.inner_above(
            state.metric, split.lift
        )

    def sphere(self, state: MetricIterate) -> Sphere:
        """The midpoint sphere of the state with its own dual point, rounded outward.

        ``|M* - (M + M_alpha)/2|^2 <= |M - M_alpha|^2 / 4 + (FY + <M, Gamma>) / lam``, where FY is
        only what the rounding of the margins leaves.
        """
        cone, lam, metric = self.cone, self.lam, state.metric
        split = cone.moreau(state.v)
        dual = split.positive / lam
        size_k, size_m = (float(np.linalg.norm(v)) for v in (state.v, metric.value))
        size_b, lifted = float(np.linalg.norm(dual)), float(np.linalg.norm(split.lift)) ** 2
        dual_error = self.v_error(state) + cone.lift_error(split.lift)
        dual_error = up(dual_error + 4.0 * UNIT * (size_k + lifted)) / lam
        metric_error = cone.metric_error(metric)
        distance = float(np.linalg.norm(metric.value - dual)) * (1.0 + gamma(metric.value.size))
        distance = up(distance + metric_error + dual_error + 2.0 * UNIT * (size_m + size_b))
        terms = up(self.fenchel_young_error(metric) + cone.inner_above(metric, split.lift), 32)
        radius = up(float(np.sqrt(up(0.25 * distance**2 + terms / lam, 16))))
        radius = up(radius + 0.5 * (metric_error + dual_error) + 2.0 * UNIT * (size_m + size_b))
        gap = up(0.5 * lam * distance**2 + terms, 16)
        factor = split.factor / np.sqrt(lam)
        return Sphere(0.5 * (metric.value + dual), radius, gap, dual, factor)

    def v_error(self, state: MetricIterate) -> float:
        """Bound of the rounding of `MetricIterate.v`."""
        weighted = float(self._pair_weights(state.omega) @ self.table.spread)
        return up(self.table.adjoint_factor(self.terms.load) * weighted, 64) + up(
            self.drift + 4.0 * UNIT * float(np.linalg.norm(self.minus_linear))
        )

    def _pair_weights(self, omega: Array) -> Array:
        """At least the sum of alpha over the terms of each pair, shape (P + 1,)."""
        return np.abs(omega) if self.one_signed else self.largest_pair_weights

    @property
    def one_signed(self) -> bool:
        """See `TermFacts`."""
        if self.facts.one_signed is None:
            terms = self.terms
            sides = (terms.far, terms.near) if isinstance(terms, Products) else terms.index()
            role = np.zeros((2, len(self.table) + 1), dtype=bool)
            for row, side in zip(role, sides, strict=True):
                row[side] = True
            self.facts.one_signed = not (role[0] & role[1])[:-1].any()
        return self.facts.one_signed

    @property
    def largest_pair_weights(self) -> Array:
        """See `TermFacts`."""
        if self.facts.largest_pair_weights is None:
            plus, minus = self.terms.index()
            weight = np.broadcast_to(self.weight, len(plus))
            size = len(self.table) + 1
            both = np.bincount(plus, weight, size) + np.bincount(minus, weight, size)
            self.facts.largest_pair_weights = np.asarray(both, dtype=np.float64)
        return self.facts.largest_pair_weights

    def margin_error(self, size: float) -> float:
        """Bound of the rounding of any margin of a metric of norm `size`, thresholds included."""
        square, reach = self.table.most
        pair = self.table.value_factor * size * reach
        most = float(np.abs(self.b).max(initial=0.0) + self.smoothing.max(initial=0.0))
        return up(2.0 * pair + 8.0 * UNIT * (most + 2.0 * size * square))

    def fenchel_young_error(self, metric: FactoredMetric) -> float:
        """Upper bound of the Fenchel-Young terms that rounding leaves between M and alpha(M).

        With margins off by e: at most ``2 w e^2 / g`` a term, or ``w e`` at a kink (g = 0).
        """
        e = self.margin_error(float(np.linalg.norm(metric.value)))
        kinked = self.smoothing <= e
        safe = np.where(kinked, 1.0, self.smoothing)
        each = self.weight * np.where(kinked, 2.0 * e, 2.0 * e**2 / safe)
        return up(float(each.sum()) * (len(self.terms) if each.size == 1 else 1.0), 64)

    @property
    def norms(self) -> Array:
        """``|H_t|`` rounded up, shape (T,)."""
        if self.facts.norms is None:
            self.facts.norms = self.table.norms(*self.terms.index())
        return self.facts.norms

    def at(self, lam: float) -> MetricTask:
        """The same task at another lam: if terms were taken off, one where they are decided too."""
        return replace(self, lam=lam)


LEAST_SHARE = 0.02
"""Terms are taken off if they are no less than this share."""

Proof = tuple[Array, Array, float]
"""Of a sphere: the pairs' values at its centre, their errors, and its radius."""


def reduce_task(
    task: MetricTask, sphere: Sphere, state: MetricIterate, *, sort: bool = False
) -> tuple[MetricTask, MetricIterate, int, int]:
    """The task without the terms that `sphere` decides, the task itself if they are hardly any.

    `state` is the one the sphere was made from. Its metric lies in the sphere, so every decided
    term sits on its piece there too: what is fixed is the state's `v` less what is left.

    Parameters
    ----------
    sort : bool
        Put the far lists in order first; for a task nothing was taken from.

    Returns
    -------
    task : MetricTask
    state : MetricIterate
        The same metric on it.
    dropped, fixed : int
        Terms proven on the zero piece (R) and on the linear one (L).
    """
    left, kept, dropped, fixed = _undecided_terms(task, (sphere,), state, sort)
    if dropped + fixed < LEAST_SHARE * len(task.terms):
        return task, state, 0, 0
    small, used = left.compact()
    return *_reduced(task, small, used, state, kept), dropped, fixed


def reduce_for_interval(
    task: MetricTask, spheres: Sequence[Sphere], state: MetricIterate, most: int
) -> tuple[MetricTask, int, int] | None:
    """The task without the terms on which `spheres`, all of them made from `state`, agree.

    None where more than `most` terms are left; for a task nothing was taken from.
    """
    left, kept, dropped, fixed = _undecided_terms(task, spheres, state, True)
    if len(left) > most:
        return None
    small, used = left.compact()
    return _reduced(task, small, used, state, kept)[0], dropped, fixed


def count_decided(task: MetricTask, sphere: Sphere, state: MetricIterate) -> tuple[int, int]:
    """How many terms `sphere`, made from `state`, puts on the zero piece and on the linear one.

    For a task nothing was taken from.
    """
    _, _, dropped, fixed = _undecided_terms(task, (sphere,), state, True)
    return dropped, fixed


def _undecided_terms(
    task: MetricTask, spheres: Sequence[Sphere], state: MetricIterate, sort: bool
) -> tuple[Terms, NDArray[np.bool_] | None, int, int]:
    """The terms that are left, which of all they are where these are listed, and two counts."""
    proofs = [_centre_margins(task, sphere, state) for sphere in spheres]
    if isinstance(task.terms, Indexed):
        return _undecided_listed(task, task.terms, proofs)
    terms = task.terms.ordered(proofs[0][0]) if sort else task.terms
    return _undecided_windows(task, terms, proofs, sort)


def _centre_margins(task: MetricTask, sphere: Sphere, state: MetricIterate) -> Proof:
    size = float(np.linalg.norm(sphere.centre)) * (1.0 + gamma(sphere.centre.size))
    # What is decided is decided by more than the rounding of the state's own margins, too.
    size += float(np.linalg.norm(state.metric.value)) * (1.0 + gamma(sphere.centre.size))
    q, error = _centre_values(task, sphere, state), task.table.value_error(size)
    error = error + 8.0 * UNIT * np.abs(q)
    error += 0.5 * _off_centre(task, sphere, state) * task.table.squares
    return q, error, sphere.radius


def _centre_values(task: MetricTask, sphere: Sphere, state: MetricIterate) -> Array:
    if task.table.diagonal:
        return task.table.values(sphere.centre)
    return 0.5 * (state.values + task.table.distances(sphere.factor))


def _off_centre(task: MetricTask, sphere: Sphere, state: MetricIterate) -> float:
    """How far the factors behind `_centre_values` are from the matrices, both together."""
    if task.table.diagonal:
        return 0.0
    made = sphere.factor @ sphere.factor.T
    size = float(np.linalg.norm(sphere.factor)) ** 2 + float(np.linalg.norm(sphere.dual))
    away = float(np.linalg.norm(made - sphere.dual)) + gamma(task.table.d + 8) * size
    return up(away + task.cone.metric_error(state.metric), task.table.size)


def _undecided_windows(
    task: MetricTask, terms: Products, proofs: list[Proof], sort: bool
) -> tuple[Products, None, int, int]:
    b, g = float(task.b[0]), float(task.smoothing[0])
    knot_error, low, high = 16.0 * UNIT * (abs(b) + g), terms.hi, terms.lo
    for number, (q, error, radius) in enumerate(proofs):
        lo, hi = terms.lo.copy(), terms.hi.copy()
        close_windows(
            terms.arrays._replace(lo=lo, hi=hi), q, error, task.table.squares, radius,
            b + knot_error, b - g - knot_error, sort and number == 0, np.empty((3, terms.widest)),
        )
        low, high = np.minimum(low, lo), np.maximum(high, hi)
    dropped, fixed = int(terms.hi.sum() - high.sum()), int(low.sum() - terms.lo.sum())
    return replace(terms, lo=low, hi=high), None, dropped, fixed


def _undecided_listed(
    task: MetricTask, terms: Indexed, proofs: list[Proof]
) -> tuple[Indexed, NDArray[np.bool_], int, int]:
    zero = linear = np.ones(len(terms), dtype=bool)
    for q, error, radius in proofs:
        middle = terms.margins(q)
        reach = radius * task.norms * (1.0 + 8.0 * UNIT) + error[terms.plus] + error[terms.minus]
        reach = reach + 16.0 * UNIT * (np.abs(middle) + np.abs(task.b) + task.smoothing)
        zero = zero & (middle - reach > task.b)
        linear = linear & (middle + reach < task.b - task.smoothing)
    kept = ~(zero | linear)
    return terms.take(kept), kept, int(zero.sum()), int(linear.sum())


def _reduced(
    full: MetricTask, left: Terms, used: NDArray[np.intp], state: MetricIterate,
    kept: NDArray[np.bool_] | None = None,
) -> tuple[MetricTask, MetricIterate]:
    def part(row: Array) -> Array:
        return row if row.size == 1 or kept is None else row[kept]

    nothing = np.zeros_like(full.minus_linear)
    norms = None if kept is None else full.norms[kept]
    task = MetricTask(
        full.table.take(used), left, part(full.b), part(full.smoothing), part(full.weight),
        full.lam, nothing, facts=TermFacts(norms, full.one_signed),  # one sign stays one sign
    )
    values = np.append(state.values[used], 0.0)
    total, omega = task.losses(values)
    weighted, value = task.table.adjoint(omega), state.metric.value
    minus_linear = state.v - weighted
    smooth = 0.5 * full.lam * np.vdot(value, value) - np.vdot(minus_linear, value)
    probe = MetricIterate(state.metric, state.primal, values, omega, weighted)
    error = full.v_error(state) + task.v_error(probe)
    error += 4.0 * UNIT * float(np.linalg.norm(minus_linear))
    constant = state.primal - total - float(smooth)
    made = replace(task, minus_linear=minus_linear, constant=constant, drift=up(error))
    return made, MetricIterate(state.metric, state.primal, values, omega, state.v)


def active_terms(task: MetricTask, values: Array, slack: float) -> MetricTask:
    """The task of the terms whose margin at pair values `values` is below ``b`` plus `slack`.

    The others are left out, not proven zero: a heuristic. Of a product set a few of them stay where
    the far lists are in the order of other values.
    """
    terms, rows = task.terms, [task.b, task.smoothing, task.weight]
    left: Terms
    if isinstance(terms, Indexed):
        kept = terms.margins(values) < task.b + slack
        left, rows = terms.take(kept), [row if row.size == 1 else row[kept] for row in rows]
    else:
        whole = int(terms.hi.sum() - terms.lo.sum()) == int(
            np.diff(terms.far_ptr) @ np.diff(terms.near_ptr)
        )
        terms = terms.ordered(values) if whole else terms
        left = replace(terms, lo=terms.lo.copy(), hi=terms.hi.copy())
        close_windows(
            left.arrays, values, np.zeros_like(values), task.table.squares, 0.0,
            float(task.b[0]) + slack, -np.inf, whole, np.empty((3, terms.widest)),
        )
    small, used = left.compact()
    b, smoothing, weight = rows
    return replace(
        task, table=task.table.take(used), terms=small, b=b, smoothing=smoothing, weight=weight,
        facts=TermFacts(),
    )


CHEAP = 2e5
"""Nanoseconds below which an evaluation does not matter: the terms are then always screened."""

LONGEST_PAUSE = 16
"""Values of lam without screening between two trials, at most."""


def evaluation_cost(task: MetricTask) -> float:
    """About the nanoseconds one evaluation takes, without what every one takes."""
    table = task.table
    dense = 0.0 if table.diagonal else 0.07 * len(table.points) * table.d**2
    return 0.4 * len(table) * table.d + 0.5 * len(task.terms) + dense


def reduction_cost(task: MetricTask, reduced: MetricTask) -> float:
    """The same for one shrinking of `task` to `reduced`."""
    table = task.table
    copied = 0.0 if reduced is task else evaluation_cost(reduced)
    return 1e5 + (0.2 * table.d + 10.0) * len(table) + 0.5 * len(task.terms) + copied


@dataclass
class ScreeningPauses:
    """Screening is left out for a while where it cost more than it saved.

    Attributes
    ----------
    pause : int
        For how many values of lam the next time; doubled every time.
    """

    pause: int = 1
    _left: int = 0

    def screens(self) -> bool:
        """Whether to screen at the next value of lam."""
        if self._left:
            self._left -= 1
            return False
        return True

    def learn(self, saved: float, spent: float) -> None:
        """Take in what screening saved and what it cost at one value of lam."""
        if saved >= spent:
            self.pause = 1
        else:
            self._left, self.pause = self.pause, min(2 * self.pause, LONGEST_PAUSE)
