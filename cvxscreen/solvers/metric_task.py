"""Metric learning as its solvers see it: evaluate, bound the optimum, shrink.

::

    P(M) = sum_t l_t(<H_t, M>) - <push, M> + lam/2 |M|^2 + constant      over the cone
    l_t  = w (z tau - g/2 tau^2),  tau = clip(z/g, 0, 1),  z = b - <H_t, M>

The dual variable is always ``alpha_t = w tau`` at the very M at hand, so that the duality gap
``lam/2 |M - M_alpha|^2 + <M, Gamma>`` needs no array over the terms:
``K = sum alpha_t H_t + push``, ``Gamma = [-K]_+``, ``M_alpha = [K]_+ / lam``. A shrunken task has
the same optimum (Yoshida et al. 2019, Lemma 1); what is fixed on the linear piece is in `push` and
`constant`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvxscreen.pair_loops import loops
from cvxscreen.pair_table import PairTable
from cvxscreen.product_loops import product_loops
from cvxscreen.rounding import UNIT, gamma, up
from cvxscreen.solvers.metric_cone import Cone, Metric, Nonnegative, Semidefinite
from cvxscreen.term_sets import Indexed, Products, Terms

Array = NDArray[np.float64]


class State(NamedTuple):
    """A metric evaluated on a task."""

    metric: Metric
    primal: float
    omega: Array
    force: Array  # K = sum alpha H + push

    def gradient(self, lam: float) -> Array:
        """Of the primal objective."""
        return lam * self.metric.value - self.force


class Sphere(NamedTuple):
    """``|M* - centre| <= radius``, proven, rounding included; from the pair (M, alpha(M))."""

    centre: Array
    radius: float
    gap: float
    dual: Array  # M_alpha


@dataclass(frozen=True, eq=False)
class Task:
    """See the module's docstring; `b`, `bend` and `weight` have one entry, or one a term."""

    table: PairTable
    terms: Terms
    b: Array
    bend: Array
    weight: Array
    lam: float
    push: Array
    constant: float = 0.0
    drift: float = 0.0
    """Bound of the error of `push` as stored."""

    @cached_property
    def cone(self) -> Cone:
        """Where the metric lives."""
        return (Nonnegative if self.table.diagonal else Semidefinite)(self.table.d)

    @cached_property
    def _space(self) -> tuple[Array, Array]:
        width = self.terms.widest if isinstance(self.terms, Products) else 0
        return np.empty(width), np.empty(width)

    def pair_values(self, metric: Metric) -> Array:
        """The squared distances of the pairs under `metric`, shape (P + 1,)."""
        if self.table.diagonal:
            return self.table.values(metric.value)
        return self.table.distances(metric.factor)

    def evaluate(self, metric: Metric) -> State:
        """One pass: objective and the gradient's data."""
        q = self.pair_values(metric)
        total, omega = self.losses(q)
        force = self.table.pull(omega) + self.push
        value = metric.value
        smooth = 0.5 * self.lam * np.vdot(value, value) - np.vdot(self.push, value)
        return State(metric, float(total + smooth) + self.constant, omega, force)

    def losses(self, q: Array) -> tuple[float, Array]:
        """Sum of the losses at pair values `q`, and their pull on every pair."""
        omega = np.zeros(len(self.table) + 1)
        if isinstance(self.terms, Products):
            total = product_loops().product_pass(
                *self.terms.arrays, q, self.b[0], self.bend[0], self.weight[0], omega, *self._space
            )
        else:
            total = loops().indexed_pass(
                self.terms.plus, self.terms.minus, q, self.b, self.bend, self.weight, omega
            )
        omega[-1] = 0.0
        return float(total), omega

    # -- what a state proves --------------------------------------------------------------------

    def gap(self, state: State) -> float:
        """The duality gap, not rounded outward: for stopping, never for proofs."""
        split = self.cone.split(state.force)
        step = state.metric.value - split.positive / self.lam
        return float(0.5 * self.lam * np.vdot(step, step)) + self.cone.inner_above(
            state.metric, split.lift
        )

    def sphere(self, state: State) -> Sphere:
        """The midpoint sphere of the state with its own dual point, rounded outward.

        ``|M* - (M + M_alpha)/2|^2 <= |M - M_alpha|^2 / 4 + (FY + <M, Gamma>) / lam``, where FY is
        only what the rounding of the margins leaves.
        """
        cone, lam, metric = self.cone, self.lam, state.metric
        split = cone.split(state.force)
        dual = split.positive / lam
        size_k, size_m = (float(np.linalg.norm(v)) for v in (state.force, metric.value))
        size_b, lifted = float(np.linalg.norm(dual)), float(np.linalg.norm(split.lift)) ** 2
        noise = self.force_error(state) + cone.lift_error(split.lift)
        noise = up(noise + 4.0 * UNIT * (size_k + lifted)) / lam
        own = cone.metric_error(metric)
        apart = float(np.linalg.norm(metric.value - dual)) * (1.0 + gamma(metric.value.size))
        apart = up(apart + own + noise + 2.0 * UNIT * (size_m + size_b))
        slack = up(self.left_over(metric) + cone.inner_above(metric, split.lift), 32)
        radius = up(float(np.sqrt(up(0.25 * apart**2 + slack / lam, 16))))
        radius = up(radius + 0.5 * (own + noise) + 2.0 * UNIT * (size_m + size_b))
        gap = up(0.5 * lam * apart**2 + slack, 16)
        return Sphere(0.5 * (metric.value + dual), radius, gap, dual)

    def force_error(self, state: State) -> float:
        """Bound of the rounding of K."""
        pulled = float(np.sum(self._pulled(state.omega) * self.table.reach))
        return up(self.table.pull_factor(self.terms.load) * pulled, 64) + up(
            self.drift + 4.0 * UNIT * float(np.linalg.norm(self.push))
        )

    def _pulled(self, omega: Array) -> Array:
        """At least the sum of alpha over the terms of each pair, shape (P + 1,)."""
        return np.abs(omega) if self._one_signed else self._most

    @cached_property
    def _one_signed(self) -> bool:
        """Whether no pair is the plus pair of one term and the minus pair of another."""
        terms = self.terms
        sides = (terms.far, terms.near) if isinstance(terms, Products) else terms.index()
        role = np.zeros((2, len(self.table) + 1), dtype=bool)
        for row, side in zip(role, sides, strict=True):
            row[side] = True
        return not (role[0] & role[1])[:-1].any()

    @cached_property
    def _most(self) -> Array:
        plus, minus = self.terms.index()
        weight = np.broadcast_to(self.weight, len(plus))
        size = len(self.table) + 1
        return np.asarray(
            np.bincount(plus, weight, size) + np.bincount(minus, weight, size), dtype=np.float64
        )

    def margin_error(self, size: float) -> float:
        """Bound of the rounding of any margin of a metric of norm `size`, thresholds included."""
        pair = float(self.table.value_error(size).max(initial=0.0))
        most = float(np.abs(self.b).max(initial=0.0) + self.bend.max(initial=0.0))
        both = 2.0 * size * float(self.table.squares.max(initial=0.0))
        return up(2.0 * pair + 8.0 * UNIT * (most + both))

    def left_over(self, metric: Metric) -> float:
        """Upper bound of the Fenchel-Young terms that rounding leaves between M and alpha(M).

        With margins off by e: at most ``2 w e^2 / g`` a term, or ``w e`` at a kink (g = 0).
        """
        e = self.margin_error(float(np.linalg.norm(metric.value)))
        kinked = self.bend <= e
        safe = np.where(kinked, 1.0, self.bend)
        each = self.weight * np.where(kinked, 2.0 * e, 2.0 * e**2 / safe)
        return up(float(each.sum()) * (len(self.terms) if each.size == 1 else 1.0), 64)

    # -- shrinking ------------------------------------------------------------------------------

    def shrunk(
        self, sphere: Sphere, state: State, *, sort: bool = False
    ) -> tuple[Task, State, int, int]:
        """The task without the terms that `sphere` decides.

        `state` is the one the sphere was made from. Its metric lies in the sphere, so every decided
        term sits on its piece there too: what is fixed is the state's force less what is left.

        Parameters
        ----------
        sort : bool
            Put the far lists in order first; for a task nothing was taken from.

        Returns
        -------
        task : Task
        state : State
            The same metric on it.
        dropped, fixed : int
            Terms proven on the zero piece (R) and on the linear one (L).
        """
        size = float(np.linalg.norm(sphere.centre)) * (1.0 + gamma(sphere.centre.size))
        # What is decided is decided by more than the rounding of the state's own margins, too.
        size += float(np.linalg.norm(state.metric.value)) * (1.0 + gamma(sphere.centre.size))
        q, error = self.table.values(sphere.centre.ravel()), self.table.value_error(size)
        error = error + 8.0 * UNIT * np.abs(q)
        if isinstance(self.terms, Products):
            terms = self.terms.ordered(q) if sort else self.terms
            return self._close_windows(terms, q, error, sphere.radius, state, sort)
        return self._sift(self.terms, q, error, sphere.radius, state)

    def _close_windows(
        self, terms: Products, q: Array, error: Array, radius: float, state: State, sort: bool
    ) -> tuple[Task, State, int, int]:
        b, g = float(self.b[0]), float(self.bend[0])
        lo, hi = terms.lo.copy(), terms.hi.copy()
        counts, slack = np.zeros(2, dtype=np.int64), 16.0 * UNIT * (abs(b) + g)
        product_loops().shrink(
            terms.near_ptr, terms.near, terms.far_ptr, terms.far, lo, hi, q, error,
            self.table.squares, radius, b + slack, b - g - slack, counts, sort,
            *(np.empty(terms.widest) for _ in range(3)),
        )
        left, used = replace(terms, lo=lo, hi=hi).compact()
        return *self._without(left, used, state), int(counts[0]), int(counts[1])

    def _sift(
        self, terms: Indexed, q: Array, error: Array, radius: float, state: State
    ) -> tuple[Task, State, int, int]:
        middle = terms.margins(q)
        reach = radius * self.norms * (1.0 + 8.0 * UNIT) + error[terms.plus] + error[terms.minus]
        reach = reach + 16.0 * UNIT * (np.abs(middle) + np.abs(self.b) + self.bend)
        zero = middle - reach > self.b
        linear = middle + reach < self.b - self.bend
        kept = ~(zero | linear)
        left, used = terms.take(kept).compact()
        return *self._without(left, used, state, kept), int(zero.sum()), int(linear.sum())

    def _without(
        self, left: Terms, used: NDArray[np.intp], state: State,
        kept: NDArray[np.bool_] | None = None,
    ) -> tuple[Task, State]:
        def part(row: Array) -> Array:
            return row if row.size == 1 or kept is None else row[kept]

        nothing = np.zeros_like(self.push)
        task = Task(
            self.table.take(used), left, part(self.b), part(self.bend), part(self.weight),
            self.lam, nothing,
        )
        if kept is not None:
            task.__dict__["norms"] = self.norms[kept]
        total, omega = task.losses(task.pair_values(state.metric))
        pulled, value = task.table.pull(omega), state.metric.value
        push = state.force - pulled
        smooth = 0.5 * self.lam * np.vdot(value, value) - np.vdot(push, value)
        probe = State(state.metric, state.primal, omega, pulled)
        noise = self.force_error(state) + task.force_error(probe)
        noise += 4.0 * UNIT * float(np.linalg.norm(push))
        made = replace(
            task, push=push, constant=state.primal - total - float(smooth), drift=up(noise)
        )
        for name in ("norms", "_one_signed"):
            if name in task.__dict__:
                made.__dict__[name] = task.__dict__[name]
        return made, State(state.metric, state.primal, omega, state.force)

    @cached_property
    def norms(self) -> Array:
        """``|H_t|`` rounded up, shape (T,)."""
        plus, minus = self.terms.index()
        out = np.empty(len(plus))
        table = self.table
        if table.diagonal:
            loops().cross_diagonal(plus, minus, table.left, table.right, table.points, out)
        else:
            loops().cross(plus, minus, table.left, table.right, table.points, out)
        tiny = 16.0 * UNIT * (table.squares[plus] + table.squares[minus])
        return out * (1.0 + gamma(2 * table.d + 8)) + tiny

    def at(self, lam: float) -> Task:
        """The same task at another lam (only for a task nothing was taken from)."""
        fresh = replace(self, lam=lam)
        for name in ("norms", "_one_signed", "_most", "_space"):
            if name in self.__dict__:
                fresh.__dict__[name] = self.__dict__[name]
        return fresh
