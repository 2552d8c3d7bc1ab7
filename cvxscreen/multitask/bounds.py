"""What a joint duality gap proves about the joint optimum and about every optimal intercept.

The joint objective is jointly convex but **not strongly convex** in U: along ``V = D A^{-1} U`` its
curvature vanishes, U* need not be unique, and a ball ``sum ||u_l - u_l*||^2 <= 2 gap / mu`` holds
only for the gap of the problem at a fixed M. It is easily refuted for the joint gap and is not
offered here. What is true, with ``G`` the joint gap of ``(U, b, M)`` and ``theta``:

* `dual_ball`: ``V* = -X' theta*`` is unique and within a ball; no condition;
* `eigengap`: every prediction within a computed distance, under the condition that the h-th and the
  next eigenvalue of ``VV'`` are apart by more than G explains.

Intercepts are not penalised: they are bounded for all tasks at once, from the terms that any
optimal one must leave in balance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.rounding import UNIT, gamma, up
from cvxscreen.multitask.problem import MultiTask
from cvxscreen.screening.verdict import Verdict

Array = NDArray[np.float64]


class Intercepts:
    """The kinks of piecewise linear losses, task by task, ready to be moved and sorted.

    The optimality sum of a task, ``sum_i f_i'(t_i + b)`` with ``t_i`` within ``reach_i`` of
    ``middle_i``, is a step function of b whose steps are known. Where even the largest arguments
    leave it negative b is too small, where even the smallest make it positive b is too large. With
    equal steps (the hinge loss) the ends are two order statistics.
    """

    def __init__(self, problem: MultiTask) -> None:
        f, self.m = problem.losses, problem.m
        left, right = np.flatnonzero(f.lo < 0), np.flatnonzero(f.hi > 0)
        source = np.concatenate([left, right])
        kinks = np.concatenate([(f.b - f.e)[left], (f.b + f.e)[right]])
        jumps = np.concatenate([-f.lo[left], f.hi[right]])
        task = np.repeat(np.arange(self.m), problem.sizes)[source]
        order = np.argsort(task, kind="stable")
        self.source, self.kinks, self.jumps = source[order], kinks[order], jumps[order]
        self.size = np.abs(self.kinks)
        self.task = task[order]
        counts = np.bincount(self.task, minlength=self.m)
        starts = np.cumsum(counts) - counts
        self.place = np.arange(len(order)) - starts[self.task]
        self.shape = (self.m, int(counts.max(initial=1)))
        self.counts = counts
        total = np.bincount(self.task, self.jumps, self.m)
        self.noise = gamma(2 * self.shape[1] + 8) * total
        self.below = -np.array([float(losses.lo.sum()) for losses in problem.task_losses])
        table = self._rows(self.jumps, 0.0)
        filled = table > 0
        least = np.where(filled, table, np.inf).min(axis=1)
        self.equal = bool((table.max(axis=1) == least).all())
        if self.equal:
            # How many equal jumps make up for the slopes far to the left, up to rounding.
            need = self.below / least
            self.few = np.ceil(need - 1e-6).astype(int) - 1
            self.many = np.floor(need + 1e-6).astype(int)

    def _rows(self, values: Array, empty: float) -> Array:
        """One row a task, padded with `empty`."""
        out = np.full(self.shape, empty)
        out[self.task, self.place] = values
        return out

    def ranges(self, middle: Array, reach: Array) -> tuple[Array, Array]:
        """Lowest and highest intercept of every task, rounded outward, two arrays (m,)."""
        at, width = middle[self.source], reach[self.source]
        slack = width + 8.0 * UNIT * (self.size + np.abs(at) + width)
        place = self.kinks - at
        first, last = self._rows(place - slack, np.inf), self._rows(place + slack, np.inf)
        everyone = np.arange(self.m)
        if self.equal:
            first.sort(axis=1)
            last.sort(axis=1)
            few, many = self.few, np.minimum(self.many, self.shape[1] - 1)
            lowest = np.where(few >= 0, first[everyone, np.maximum(few, 0)], -np.inf)
            highest = np.where(self.many < self.counts, last[everyone, many], np.inf)
            return lowest, highest
        jumps = self._rows(self.jumps, 0.0)
        order, turned = np.argsort(first, axis=1), np.argsort(last, axis=1)
        sums = np.cumsum(np.take_along_axis(jumps, order, 1), axis=1)
        enough = sums >= (self.below - self.noise)[:, None]
        lowest = first[everyone, order[everyone, enough.argmax(axis=1)]]
        lowest = np.where((self.below > self.noise) & enough.any(axis=1), lowest, -np.inf)
        sums = np.cumsum(np.take_along_axis(jumps, turned, 1), axis=1)
        beyond = sums > (self.below + self.noise)[:, None]
        highest = last[everyone, turned[everyone, beyond.argmax(axis=1)]]
        return lowest, np.where(beyond.any(axis=1), highest, np.inf)


@dataclass(frozen=True, eq=False)
class DualBall:
    """``||V - centre||_F <= radius`` contains the one ``V*`` of the optimum."""

    centre: Array
    radius: float

    def contains(self, V: Array) -> bool:
        """Whether `V` is in the ball."""
        return float(np.linalg.norm(V - self.centre)) <= self.radius


def dual_ball(problem: MultiTask, U: Array, M: Array, theta: Array, gap: float) -> DualBall:
    """``||V* - (V + V_U)/2||^2 <= 2 c G / eta - ||V - V_U||^2 / 4``, ``V_U = 2 c A^{-1} U``.

    From ``c ||U - A V / 2c||^2`` in the metric of ``A^{-1}`` and the optimality of ``V*`` in the
    dual: ``||V_U - V*||^2 + ||V - V*||^2 <= 4 c G / eta``. Holds for every joint gap G.
    """
    A = problem.eta * np.eye(problem.d) + M
    V, V_U = problem.pull(theta), 2.0 * problem.c * np.linalg.solve(A, U)
    apart = float(np.linalg.norm(V - V_U))
    size = float(np.linalg.norm(V)) + float(np.linalg.norm(V_U))
    noise = 16.0 * gamma(problem.n + problem.d**2) * size * (1.0 + 1.0 / problem.eta)
    square = 2.0 * problem.c * up(gap) / problem.eta - 0.25 * max(apart - noise, 0.0) ** 2
    return DualBall(0.5 * (V + V_U), up(float(np.sqrt(max(square, 0.0)))) + noise)


def eigengap(problem: MultiTask, theta: Array, gap: float) -> Verdict:
    """Pieces proven for the joint optimum, permanently, where ``VV'`` has a gap at h.

    With ``P`` the projector on the first h eigenvectors of ``S = VV'`` and ``delta`` the gap of its
    eigenvalues there, ``tr(S (P - M*)) >= delta (h - tr(P M*))`` bounds how far ``M*`` is from P,
    and with it every ``x' u_l*`` around ``x' (eta I + P) v_l / 2c``. Says nothing where ``delta``
    is lost in G or in rounding (as it is whenever the optimal M is no projector: then the
    eigenvalues of ``V* V*'`` tie at h), or for losses that are not piecewise linear.
    """
    d, h, c, eta = problem.d, problem.h, problem.c, problem.eta
    f = problem.losses
    nothing = Verdict(
        f, np.full(problem.n, -1, dtype=np.int8), "eigengap", np.inf, gap, np.zeros(d, dtype=bool)
    )
    if f.q.any() or not np.isfinite(gap):
        return nothing
    V = problem.pull(theta)
    W, s, _ = np.linalg.svd(V, full_matrices=True)
    values = np.zeros(d)
    values[: len(s)] = s**2
    top = float(values[0])
    # Computed eigenvalues and the rounding of V itself.
    size = sum(
        float(np.abs(part) @ np.linalg.norm(X, axis=1))
        for X, part in zip(problem.X, problem.split(theta), strict=True)
    )
    lost = 32.0 * gamma(problem.n + d * d) * np.sqrt(max(top, 0.0)) * size + 1e-300
    delta = float(values[h - 1] - (values[h] if h < d else 0.0)) - 2.0 * lost
    gap = up(gap)
    if h == d:
        tilt = reach_t = 0.0
        delta = np.inf
    else:
        if delta <= 0:
            return nothing
        reach_t = 4.0 * c * gap / delta
        tilt = 4.0 * lost / delta  # of the computed projector
    P = W[:, :h]
    low, high = np.empty(problem.n), np.empty(problem.n)
    middle, reach = np.empty(problem.n), np.empty(problem.n)
    for k, part in enumerate(problem.parts):
        X, v = problem.X[k], V[:, k]
        inside = X @ P
        centre = (eta * (X @ v) + inside @ (P.T @ v)) / (2.0 * c)
        whole = np.linalg.norm(X, axis=1) * up(1.0, d + 8)
        along = np.minimum(np.linalg.norm(inside, axis=1), whole) + tilt * whole
        across = np.sqrt(np.maximum(whole**2 - (along - 2.0 * tilt * whole).clip(0.0) ** 2, 0.0))
        across = across + tilt * whole
        v_along, v_size = float(np.linalg.norm(P.T @ v)), float(np.linalg.norm(v))
        v_across = float(np.sqrt(max(v_size**2 - v_along**2, 0.0))) + (tilt + 1e-12) * v_size
        v_along = v_along + (tilt + 1e-12) * v_size
        metric = np.minimum(
            (1.0 + eta) * whole**2,
            eta * whole**2 + along**2 + whole**2 * min(1.0, np.sqrt(reach_t) + reach_t),
        )
        cross, straight = along * v_across + across * v_along, along * v_along + across * v_across
        away = np.sqrt(gap / c) * np.sqrt(metric + cross**2 / delta) + 2.0 * gap * straight / delta
        noise = (tilt + 64.0 * gamma(d + sum(problem.sizes))) * whole * (
            (1.0 + eta) * size / (2.0 * c)
        )
        middle[part], reach[part] = centre, up(1.0, 64) * away + noise
    left, right = Intercepts(problem).ranges(middle, reach)
    low = middle - reach + np.repeat(left, problem.sizes)
    high = middle + reach + np.repeat(right, problem.sizes)
    slack = 8.0 * UNIT * (np.abs(low) + np.abs(high) + np.abs(middle))
    with np.errstate(invalid="ignore"):
        codes = f.piece_within(low - slack, high + slack)
    return Verdict(f, codes, "eigengap", float(np.max(reach)), gap, np.zeros(d, dtype=bool))
