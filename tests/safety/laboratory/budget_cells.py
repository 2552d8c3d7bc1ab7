"""Cells about losses in budgets: certificates of altered points, multipliers and slopes.

Data are integers, slopes and multipliers quarters, and the linear term follows without rounding, so
the optimum is known exactly. What a certificate claims about any other point, feasible or not, is
compared with what that point loses and exceeds in rational arithmetic.
"""

from __future__ import annotations

from fractions import Fraction

import cvxpy as cp
import numpy as np
from checks import Ledger
from ground_cells import ROUNDING, TOLERANCES, Exact
from terms import RIGHT, WRONG

from cvxscreen import cvxpy_plugin
from cvxscreen.core.problem import Problem
from cvxscreen.cvxpy_plugin.budgets import (
    BudgetedPoint,
    BudgetedProblem,
    certify_budgets,
    recognise_budgets,
)
from cvxscreen.cvxpy_plugin.recognise.standard import canonicalise, standardise
from cvxscreen.errors import NotScreenable

cvxpy_plugin.register()

MULTIPLIER = 0.5
"""Of a budget that is used up at the planted optimum."""


def planted(number: int, rng: np.random.Generator) -> tuple[cp.Problem, np.ndarray]:
    """Hinges with one or two budgets of hinges or deviations, some with something left.

    Without a term at its kink the Lagrangian is flat around the optimum: nothing but the budgets
    tells one point from another.
    """
    away = [-2, -1, 1, 2] if number % 2 else [-2, -1, 0, 1, 2]
    d = int(rng.integers(1, 4))
    x = rng.integers(-3, 4, d).astype(float)
    w = cp.Variable(d)
    A = rng.integers(-3, 4, (int(rng.integers(0, 30)), d)).astype(float)
    r = A @ x - rng.choice(away, len(A))
    slopes = np.where(A @ x > r, 1.0, np.where(A @ x < r, 0.0, 0.5))
    pull, constraints = A.T @ slopes, []
    for _ in range(int(rng.integers(1, 3))):
        B = rng.integers(-2, 3, (int(rng.integers(110, 150)), d)).astype(float)
        k = B @ x - rng.choice(away, len(B))
        z, left = B @ x - k, float(rng.choice([0.0, 0.0, 1.0]))
        if rng.random() < 0.5:
            loss, spent = cp.sum(cp.pos(B @ w - k)), np.maximum(z, 0.0).sum()
            slopes = np.where(z > 0, 1.0, np.where(z < 0, 0.0, 0.5))
        else:
            loss, spent, slopes = cp.norm1(B @ w - k), np.abs(z).sum(), np.sign(z)
        constraints.append(loss <= spent + left)
        pull = pull + (0.0 if left else MULTIPLIER) * (B.T @ slopes)
    cost = -pull @ w + (cp.sum(cp.pos(A @ w - r)) if len(A) else 0.0)
    return cp.Problem(cp.Minimize(cost), constraints), x


def middle_slopes(part: Problem, x: np.ndarray) -> np.ndarray:
    """The slopes at x that were planted: in the middle of the interval at a kink."""
    t, f = part.design.forward(x), part.losses
    return np.where(t == f.b, 0.5 * (f.lo + f.hi), f.slope(t))


def altered(made: BudgetedProblem, best: BudgetedPoint, rng: np.random.Generator) -> BudgetedPoint:
    """Another point, other multipliers (negative and none as well), other slopes."""
    size = 10.0 ** -rng.uniform(0, 16)
    x, slopes, multipliers = best.x, list(best.slopes), best.budget_multipliers.copy()
    for kind in rng.choice(4, int(rng.integers(1, 3)), replace=False):
        if kind == 0:
            x = x + size * rng.standard_normal(len(x))
        elif kind == 1:
            multipliers = multipliers * (1.0 + size * rng.standard_normal(len(multipliers)))
        elif kind == 2:
            multipliers = rng.choice([0.0, 0.25, 1.0, 3.0, -1.0], len(multipliers))
        else:
            k = int(rng.integers(0, len(slopes)))
            f = made.parts[k].losses
            slopes[k] = np.clip(slopes[k] + size * rng.standard_normal(len(slopes[k])), f.lo, f.hi)
    margins = tuple(part.design.forward(x) for part in made.parts)
    return BudgetedPoint(x, tuple(slopes), multipliers, best.side_multipliers, margins)


def kept(part: Problem, exact: Exact, x: np.ndarray, tol: float) -> bool:
    """Whether a budget is kept, relative to the numbers that it is a sum of."""
    value, linear = float(exact.at(x)[0]), part.linear * x
    losses = value - float(linear.sum()) - part.constant
    size = losses + float(np.abs(linear).sum()) + abs(part.constant)
    return value <= tol * (1.0 + 1e-9) * size + ROUNDING * (size + part.n)


def budgets(ledger: Ledger, number: int, rng: np.random.Generator, count: int) -> None:
    """What is certified of one problem's points."""
    problem, x = planted(number, rng)
    try:
        made = recognise_budgets(standardise(canonicalise(problem)))
    except NotScreenable:
        return
    if made.objective.d != len(x) or made.objective.side is not None:
        return
    exact = [Exact(part, part.design.dense()) for part in made.parts]
    best = exact[0].at(x)[0]
    spent = [one.at(x)[0] for one in exact[1:]]
    slopes = tuple(middle_slopes(part, x) for part in made.parts)
    weights = np.array([0.0 if value < 0 else MULTIPLIER for value in spent])
    optimum = BudgetedPoint(x, slopes, weights, np.zeros(0), ())
    lagrangian = made.objective.linear + made.objective.design.adjoint(slopes[0]) + sum(
        weight * (part.linear + part.design.adjoint(s))
        for weight, part, s in zip(weights, made.budgets, slopes[1:], strict=True))
    if max(spent) > 0 or lagrangian.any():  # the recogniser wrote it in another way
        return
    kind = f"{len(spent)} budgets"
    for turn in range(25 * count):
        tol = float(rng.choice(TOLERANCES))
        point = optimum if turn == 0 else altered(made, optimum, rng)
        proof = certify_budgets(made, point, tol)
        lost = exact[0].at(point.x)[0] - best
        near = float(np.linalg.norm(point.x - x)) <= proof.within
        said = [Fraction(proof.gap) >= lost] if np.isfinite(proof.gap) and near else []
        if proof.ok:
            value = max(abs(proof.primal), abs(float(best)))
            said.append(not near or float(lost) <= tol * value * (1.0 + 1e-9))
            said += [kept(part, one, point.x, tol) for part, one in
                     zip(made.budgets, exact[1:], strict=True)]
        states = np.array([RIGHT if right else WRONG for right in said], dtype=np.int8)
        key = ("budgets", "hinge", "certificate", kind, "float64")
        ledger.add(key, 2 + len(spent), states, f"tol {tol:g}, turn {turn}")
