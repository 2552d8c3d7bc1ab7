"""Cells about problems that no squared norm holds, rows that are constraints, and pure L1 columns.

Data are integers times powers of two, slopes are chosen first and the rest follows without
rounding: the optimum is known exactly. Certificates are attacked by altered answers; what they
claim is compared with what is lost in rational arithmetic.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from active_set import optimum
from checks import Ledger, verdict
from terms import RIGHT, WRONG

import cvxscreen
from cvxscreen.bounds import PAIRS, PARAMETER_CHANGE, available, named
from cvxscreen.certificates.certificate import Certificate, certify
from cvxscreen.core.duality import reference_point
from cvxscreen.core.losses import Losses
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem, Quadratic, ZeroQuadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.screening.reduction import judge

TOLERANCES = (1e-12, 1e-9, 1e-6, 1e-3)
ROUNDING = 1e-13
"""Of a violation, relative to the size of its sum: what `certify` reports is computed in floats."""


class Exact:
    """Objective and violation of piecewise linear terms in rational numbers.

    Parameters
    ----------
    problem : Problem
        Losses without curvature and dead zone; slopes may be infinite on one side.
    rows : array, shape (n, d)
        Dense, as the problem has them.
    """

    def __init__(self, problem: Problem, rows: np.ndarray) -> None:
        self.rows = [[Fraction(v) for v in row.tolist()] for row in rows]
        losses = problem.losses
        self.terms = list(zip(losses.b.tolist(), losses.lo.tolist(), losses.hi.tolist(),
                              strict=True))
        self.linear = [Fraction(v) for v in problem.linear.tolist()]
        self.constant = Fraction(problem.constant)
        matrix = problem.quadratic.matrix
        self.M = None if matrix is None else [[Fraction(v) for v in row]
                                              for row in matrix.tolist()]

    def at(self, x: np.ndarray) -> tuple[Fraction, Fraction]:
        """``P(x)`` without the constraints, and the largest violation of one."""
        point = [Fraction(v) for v in x.tolist()]
        total = sum((q * v for q, v in zip(self.linear, point, strict=True)), self.constant)
        worst = Fraction(0)
        for row, (b, lo, hi) in zip(self.rows, self.terms, strict=True):
            z = sum((a * v for a, v in zip(row, point, strict=True)), -Fraction(b))
            slope = hi if z > 0 else lo
            if np.isinf(slope):
                worst = max(worst, abs(z))
            else:
                total += Fraction(slope) * z
        if self.M is not None:
            total += sum(m * u * v for row, u in zip(self.M, point, strict=True)
                         for m, v in zip(row, point, strict=True)) / 2
        return total, worst


def planted(number: int, rng: np.random.Generator
            ) -> tuple[Problem, np.ndarray, np.ndarray, np.ndarray]:
    """Problem, rows, an optimum and slopes there; some terms at their kinks."""
    n, d = int(rng.integers(12, 45)), int(rng.integers(1, 6))
    scale = 2.0 ** rng.choice([-20, -3, 0, 0, 0, 4, 20])
    A = rng.integers(-4, 5, (n, d)) * scale
    if number % 4 == 1:
        A[n // 2:] = A[: n - n // 2]  # repeated rows: many optimal slopes, degenerate vertices
    best = rng.integers(-3, 4, d).astype(float)
    place = rng.choice([-1.0, 0.0, 1.0], n, p=[0.4, 0.2, 0.4])
    theta = np.where(place < 0, -0.25, np.where(place > 0, 0.5, rng.integers(-2, 5, n) / 8.0))
    lo, hi = np.full(n, -0.25), np.full(n, 0.5)
    if number % 2:  # a third of the rows are constraints a x <= b
        hard = rng.random(n) < 0.33
        lo, hi = np.where(hard, 0.0, lo), np.where(hard, np.inf, hi)
        place = np.where(hard, np.minimum(place, 0.0), place)
        theta = np.where(hard, np.where(place < 0, 0.0, rng.integers(0, 5, n) / 4.0), theta)
    room = rng.choice([1.0, 7.0, 2.0**-30], n) * scale
    b = A @ best - place * room
    matrix = None
    q = -A.T @ theta
    if number % 3 == 2 and d > 1:
        F = rng.integers(-2, 3, (d - 1, d)).astype(float)
        matrix = F.T @ F
        q = q - matrix @ best
    problem = Problem(Rows(A), Losses(b, 0.0, 0.0, lo, hi), Quadratic(np.zeros(d), matrix), q)
    return problem, A, best, theta


def altered(problem: Problem, A: np.ndarray, x: np.ndarray, theta: np.ndarray,
            rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Another answer: moved, moved where few rows see it, balanced slopes, ends exchanged."""
    f, size = problem.losses, 10.0 ** -rng.uniform(0, 16)
    kind = rng.integers(0, 6)
    step = size * (np.abs(x).max(initial=0.0) + 1.0) * rng.standard_normal(len(x))
    slopes = theta.copy()
    top = np.where(np.isinf(f.hi), np.abs(theta) + 1.0, f.hi)
    if kind in (0, 3):
        x = x + step
    if kind in (1, 3):
        slopes = theta + size * rng.standard_normal(len(theta)) * (top - f.lo)
    if kind == 2:  # A' theta stays as it is, to rounding
        z = size * rng.standard_normal(len(theta))
        slopes = theta + z - A @ np.linalg.lstsq(A, z, rcond=None)[0]
    if kind == 4:  # out of the constraints along the rows that are active
        some = np.flatnonzero(np.isinf(f.hi) | (theta != f.lo))
        if len(some):
            row = A[rng.choice(some)]
            x = x + size * rng.choice([-1.0, 1.0]) * row / max(float(np.abs(row).max()), 1e-300)
    if kind == 5:
        i = rng.integers(0, len(theta))
        slopes[i] = rng.choice([f.lo[i], top[i], 0.5 * (f.lo[i] + top[i])])
        x = x + rng.choice([0.0, 1.0]) * step
    return x, np.clip(slopes, f.lo, f.hi)


def claims(exact: Exact, best: tuple[Fraction, np.ndarray], proof: Certificate, x: np.ndarray,
           size: float) -> np.ndarray:
    """Whether the gap, the violation and the verdict of a certificate are what they say."""
    value, beyond = exact.at(x)
    lost, said = value - best[0], []
    near = float(np.linalg.norm(x - best[1])) <= proof.within
    if np.isfinite(proof.gap) and near:
        said.append(Fraction(proof.gap) >= lost)
    if np.isfinite(proof.primal):
        said.append(float(beyond) <= proof.primal_residual + ROUNDING * size)
    if proof.ok and near:
        allowed = proof.tolerance * max(abs(proof.primal), abs(proof.dual), size)
        said.append(float(lost) <= allowed * (1.0 + 1e-9))
        said.append(float(beyond) <= proof.tolerance * (1.0 + size))
    return np.array([RIGHT if right else WRONG for right in said], dtype=np.int8)


def without_curvature(ledger: Ledger, number: int, rng: np.random.Generator, count: int) -> None:
    """Certificates of altered answers; solves in both modes, and by the interior point method."""
    problem, A, x, theta = planted(number, rng)
    exact = Exact(problem, A)
    best = exact.at(x)[0], x
    # The losses at 0, which a certificate may take for its scale where the optimum is rounding.
    size = float(np.abs(A).max() * np.abs(x).max() * len(x) + np.abs(problem.losses.b).max())
    at_zero = float(abs(exact.at(np.zeros(problem.d))[0])) + size
    model = "rows as constraints" if number % 2 else "without curvature"
    kind = "singular M" if problem.quadratic.matrix is not None else "no M"
    for _ in range(25 * count):
        tol = float(rng.choice(TOLERANCES))
        answer = altered(problem, A, x, theta, rng)
        proof = certify(problem, *answer, tol=tol)
        states = claims(exact, best, proof, answer[0], at_zero)
        ledger.add((model, "pinball", "certificate", kind, "float64"), 4, states, f"{tol:g}")
    for mode, solver in (("safe", None), ("certified", None), ("certified", "interior_point")):
        options = {} if solver is None else {"solver": solver}
        found = cvxscreen.solve(problem, tol=1e-9, mode=mode, **options)
        key = (model, "pinball", solver or f"{mode} mode", kind, "float64")
        if found.answer is None:  # an optimum is known: infeasible or unbounded is wrong
            bad = found.status in ("infeasible", "unbounded")
            ledger.add(key, 4, np.array([WRONG] if bad else [], dtype=np.int8), found.status)
            continue
        ledger.add(key, 4, claims(exact, best, found.certificate, found.x, at_zero), "answer")


def held_rows(ledger: Ledger, number: int, rng: np.random.Generator, count: int) -> None:
    """Bounds and both modes where a squared norm stands beside rows that are constraints."""
    n, d = int(rng.integers(10, 40)), int(rng.integers(1, 5))
    A = rng.integers(-8, 9, (n, d)) * 2.0 ** rng.integers(-3, 4, (n, 1))
    hard = rng.random(n) < 0.3
    inwards = rng.integers(1, 4, d).astype(float)
    A[hard] *= -np.where(A[hard] @ inwards > 0, 1.0, -1.0)[:, None]
    A[hard & (A @ inwards == 0)] = -inwards
    lo, hi = np.where(hard, 0.0, -1.0), np.where(hard, np.inf, 0.0)
    theta = np.where(hard, rng.choice([0.0, 0.0, 0.5, 2.0], n), rng.choice([-1.0, -0.5, 0.0], n))
    q = rng.integers(-8, 9, d) / 4.0
    x = -A.T @ theta - q
    t = A @ x
    ulp = np.spacing(np.maximum(np.abs(t), 1.0))
    away = np.choose(rng.integers(0, 4, n), [0 * t, ulp, 2.0**-20 + 0 * t, 0.25 + 0 * t])
    b = np.where(hard, np.where(theta > 0, t, t + away),
                 np.where(theta == -1.0, t + away, np.where(theta == 0.0, t - away, t)))
    problem = Problem(Rows(A), Losses(b, 0.0, 0.0, lo, hi), Quadratic(np.ones(d)), q,
                      kind="planted")
    ref = optimum(problem, x, theta)
    names = (f"dense, d = {d}", "float64")
    for _ in range(2 * count):
        blur = 10.0 ** -rng.uniform(0, 15)
        moved = x + blur * (np.abs(x).max() + 1e-3) * rng.standard_normal(d)
        for share in (0.0, 1e-15, 1e-12, 1e-9, 1e-6, 1e-3, 0.1, 1.0, 30.0):
            inside = moved + share * inwards
            if not problem.losses.violation(A @ inside).any():
                moved = inside
                break
        slopes = np.clip(theta + blur * rng.standard_normal(n), lo, hi)
        point = reference_point(problem, moved, slopes)
        there = problem.with_(C=problem.C * float(rng.choice([0.8, 1.0 + 1e-9, 1.25])))
        scaled = reference_point(there, moved, slopes)
        for name in available(problem):
            if name in PAIRS:
                continue
            for at in [point, scaled] if name in PARAMETER_CHANGE else [point]:
                key = ("rows as constraints", "hinge", name, *names)
                verdict(ledger, key, ref, judge(problem, named(name)(problem, at)))
    for mode in ("safe", "certified"):
        found = cvxscreen.solve(problem, tol=1e-9, mode=mode)
        key = ("rows as constraints", "hinge", f"{mode} mode", *names)
        verdict(ledger, key, ref, found.screening, "1e-9")


def columns(ledger: Ledger, number: int, rng: np.random.Generator, count: int) -> None:
    """A lasso whose support is known: columns whose correlations are hardly below their bound.

    Others have a coefficient of an ulp or so: to drop them is wrong.
    """
    n, d = int(rng.integers(8, 25)), int(rng.integers(4, 30))
    some = int(rng.integers(1, min(n - 1, d)))
    kappa = 4.0
    A = rng.integers(-3, 4, (n, d)).astype(float)
    theta = np.append(rng.integers(-4, 5, n - 1) / 4.0, 1.0)
    x = np.zeros(d)
    x[:some] = rng.choice([-1.0, 1.0], some) * rng.choice([1.0, 2.0**-10, 2.0**-40], some)
    inside = rng.choice([0.0, 0.5, 1.0 - 2.0**-10, 1.0 - 2.0**-30], d) * rng.choice([-1, 1], d)
    pull = np.where(x != 0.0, -np.sign(x), inside) * kappa  # A' theta
    A[-1] = pull - A[:-1].T @ theta[:-1]
    b = A @ x - theta
    problem = Problem(
        Rows(A), Losses(b, 0.0, 1.0, -np.inf, np.inf), ZeroQuadratic(np.zeros(d)), np.zeros(d),
        penalty=L1(np.full(d, kappa)), kind="planted", lam=1.0,
    )
    off = np.abs(b + theta - A @ x).max()  # rounding of the targets moves the optimum a little
    unique = np.linalg.matrix_rank(A[:, :some]) == some
    if not unique or off > 0.0:
        return
    states = np.where(x != 0.0, WRONG, RIGHT).astype(np.int8)
    key = ("pure L1", "squared", "dual", "dense", "float64")
    for _ in range(4 * count):
        size = 10.0 ** -rng.uniform(0, 16)
        near = x + size * rng.standard_normal(d) * (rng.random(d) < 0.5)
        slopes = theta + size * rng.standard_normal(n) * rng.integers(0, 2)
        point = reference_point(problem, near, slopes)
        found = judge(problem, named("dual")(problem, point))
        ledger.add(key, d, states[found.dropped], f"{size:.0e}")
        if found.needed_features.any():
            kept = np.where(x == 0.0, WRONG, RIGHT).astype(np.int8)
            ledger.add(key, d, kept[found.needed_features], "needed")
    for mode in ("safe", "certified"):
        solution = cvxscreen.solve(problem, tol=1e-9, mode=mode)
        ledger.add((*key[:2], f"{mode} mode", *key[3:]), d, states[solution.screening.dropped])
