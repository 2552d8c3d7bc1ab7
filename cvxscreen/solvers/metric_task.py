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
from cvxscreen.term_sets import Products, Terms

Array = NDArray[np.float64]


class State(NamedTuple):
    """A metric evaluated on a task."""

    metric: Metric
    primal: float
    values: Array  # of the pairs
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
    factor: Array  # about its root, empty for a diagonal metric


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

    @cached_property
    def _room(self) -> Array:
        return np.empty_like(self.table.points)

    def pair_values(self, metric: Metric) -> Array:
        """The squared distances of the pairs under `metric`, shape (P + 1,)."""
        if self.table.diagonal:
            return self.table.values(metric.value)
        return self.table.distances(metric.factor, self._room)

    def evaluate(self, metric: Metric) -> State:
        """One pass: objective and the gradient's data."""
        q = self.pair_values(metric)
        total, omega = self.losses(q)
        force = self.table.pull(omega, self._room) + self.push
        value = metric.value
        smooth = 0.5 * self.lam * np.vdot(value, value) - np.vdot(self.push, value)
        return State(metric, float(total + smooth) + self.constant, q, omega, force)

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
        factor = split.factor / np.sqrt(lam)
        return Sphere(0.5 * (metric.value + dual), radius, gap, dual, factor)

    def force_error(self, state: State) -> float:
        """Bound of the rounding of K."""
        pulled = float(self._pulled(state.omega) @ self.table.spread)
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
        square, reach = self.table.most
        pair = self.table.value_factor * size * reach
        most = float(np.abs(self.b).max(initial=0.0) + self.bend.max(initial=0.0))
        return up(2.0 * pair + 8.0 * UNIT * (most + 2.0 * size * square))

    def left_over(self, metric: Metric) -> float:
        """Upper bound of the Fenchel-Young terms that rounding leaves between M and alpha(M).

        With margins off by e: at most ``2 w e^2 / g`` a term, or ``w e`` at a kink (g = 0).
        """
        e = self.margin_error(float(np.linalg.norm(metric.value)))
        kinked = self.bend <= e
        safe = np.where(kinked, 1.0, self.bend)
        each = self.weight * np.where(kinked, 2.0 * e, 2.0 * e**2 / safe)
        return up(float(each.sum()) * (len(self.terms) if each.size == 1 else 1.0), 64)

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

    def share(self) -> None:
        """Work out once what does not depend on lam, for every task made by `at`."""
        _ = self._one_signed, self._space, self._room

    def at(self, lam: float) -> Task:
        """The same task at another lam: if terms were taken off, one where they are decided too."""
        fresh = replace(self, lam=lam)
        for name in ("norms", "_one_signed", "_most", "_space", "_room"):
            if name in self.__dict__:
                fresh.__dict__[name] = self.__dict__[name]
        return fresh
