"""Cells about side constraints: inequalities and equalities that every reduction keeps.

For the reference a constraint is one more term, the indicator of ``t >= b`` or ``t = b``: a loss
without curvature whose slope is unbounded on one side or on both.
"""

from __future__ import annotations

from dataclasses import replace

import adversary
import generators
import mpmath as mp
import numpy as np
from active_set import optimum
from checks import Ledger, verdict
from references import Model, Reference
from terms import Term, real

import cvxscreen
from cvxscreen.bounds import PAIRS, PARAMETER_CHANGE, available, named
from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.duality import Point, reference_point
from cvxscreen.core.problem import Problem
from cvxscreen.screening.reduction import judge


class Constrained(Model):
    """The constraints as terms after the problem's own."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        side = problem.side
        kinds = [kind for kind, size in side.dims for _ in range(size)]
        self.rows += [[real(v) for v in row] for row in side.matrix.toarray()]
        self.columns = [list(column) for column in zip(*self.rows, strict=True)]
        zero = mp.mpf(0)
        for f, kind in zip(side.offset, kinds, strict=True):
            top = mp.inf if kind == "zero" else zero
            self.terms.append(Term(-real(f), zero, zero, -mp.inf, top))


def reference(problem: Problem) -> tuple[Reference, np.ndarray]:
    """The optimum and its multipliers."""
    found = cvxscreen.solve(problem, tol=1e-8)
    theta = np.concatenate([found.theta, -found.multipliers])
    ref = optimum(problem, found.x, theta, Constrained(problem))
    n = problem.n
    return replace(
        ref, theta=ref.theta[:n], margins=ref.margins[:n], states=ref.states[:n], kept=ref.kept[:n]
    ), -ref.theta[n:]


def make(number: int, rng: np.random.Generator) -> tuple[Problem, str, str, np.ndarray]:
    """A problem with a box, a half-space or an equality, and a point well inside."""
    loss = generators.LOSSES[number % 8]
    kind = str(rng.choice(["plain", "duplicates", "integer", "collinear", "constant"]))
    storage = generators.STORAGE[number % 5]
    base = generators.vectors(loss, kind, storage, rng, n=int(rng.integers(15, 50)),
                              d=int(rng.integers(2, 6)))
    d = base.d
    free = cvxscreen.solve(base, tol=1e-6).x
    size = float(np.abs(free).max()) + 1e-6
    inside = 0.3 * free
    F, f = [np.eye(d), -np.eye(d)], [0.5 * size - inside, 0.5 * size + inside]
    dims: list[tuple[str, int]] = [("nonneg", 2 * d)]
    if number % 3 == 1:
        G = rng.standard_normal((2, d))
        F, f, dims = [G], [0.1 * size - G @ inside], [("nonneg", 2)]
    elif number % 3 == 2:
        G = rng.standard_normal((1, d))
        F, f, dims = [*F, G], [*f, -G @ inside], [*dims, ("zero", 1)]
    side = SideConstraints(np.vstack(F), np.concatenate(f), tuple(dims))
    return replace(base, side=side), loss, storage[1], inside


def points(
    ref: Reference, mu: np.ndarray, inside: np.ndarray, rng: np.random.Generator, count: int
) -> list[Point]:
    """Pairs at all distances, drawn towards the inside until they are feasible."""
    problem, found = ref.problem, []
    side = problem.side
    flat = side.matrix.toarray()[-1] if ("zero", 1) in side.dims else np.zeros(problem.d)
    low, high = adversary.box(ref)
    for _ in range(count):
        blur = 10.0 ** -rng.uniform(0, 14)
        step = blur * np.abs(ref.x).max(initial=1e-9) * rng.standard_normal(problem.d)
        step -= flat * (flat @ step) / max(float(flat @ flat), 1e-300)
        x = ref.x + step
        for share in (0.0, 1e-14, 1e-11, 1e-8, 1e-5, 1e-2, 0.3):
            if np.isfinite(side.nearness(x + share * (inside - x))):
                x = x + share * (inside - x)
                break
        theta = ref.theta + blur * (high - low) * rng.standard_normal(problem.n)
        slack = mu * (1.0 + blur * rng.standard_normal(len(mu)))
        found.append(reference_point(problem, x, theta, slack))
    return found


def constraints(ledger: Ledger, number: int, rng: np.random.Generator, count: int) -> None:
    """Every bound under side constraints, from the same and another C, and both modes."""
    problem, loss, dtype, inside = make(number, rng)
    if not problem.norms.any():  # integers may all be 0: C, in units of the rows, is then any
        return
    ref, mu = reference(problem)
    design = ("box", "half-spaces", "equality")[number % 3]
    for point in points(ref, mu, inside, rng, 2 * count):
        factor = float(rng.choice([0.8, 1.0 + 1e-9, 1.25]))
        there = problem.with_(C=problem.C * factor)
        moved = reference_point(there, point.x, factor * point.theta, factor * point.multipliers)
        for name in available(problem):
            if name in PAIRS:
                continue
            for at in [point, moved] if name in PARAMETER_CHANGE else [point]:
                found = judge(problem, named(name)(problem, at))
                verdict(ledger, ("side constraints", loss, name, design, dtype), ref, found)
    for mode in ("safe", "certified"):
        solution = cvxscreen.solve(problem, tol=1e-6, mode=mode)
        key = ("side constraints", loss, f"{mode} mode", design, dtype)
        verdict(ledger, key, ref, solution.screening, "1e-6")
