"""Cells about metric learning: full and diagonal metrics, every sphere under every rule."""

from __future__ import annotations

from dataclasses import replace

import adversary
import generators
import mpmath as mp
import numpy as np
from active_set import clipped, judged, optimum
from checks import Ledger, pieces, verdict
from linear import Vector, apply, solved
from references import Model, Reference
from terms import real

import cvxscreen
from cvxscreen.bounds import CONES, PAIRS, RULES, available, cut, named
from cvxscreen.core.duality import Point, reference_point
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem
from cvxscreen.screening.ranges import lam_interval
from cvxscreen.screening.reduction import judge

STEPS = 12
ACROSS = ("pgb", *CONES)
FACTORS = (0.5, 0.9, 1.0 + 1e-9, 1.1, 2.0)


class Spectral(Model):
    """A problem over the positive semidefinite cone."""

    def parts(self, v: Vector) -> tuple[list, object, Vector]:
        """Eigenvalues and eigenvectors of `v`, and its projection onto the cone."""
        d = self.side
        values, vectors = mp.eigsy(mp.matrix([v[d * i:d * i + d] for i in range(d)]))
        out = mp.zeros(d)
        for k in range(d):
            if values[k] > 0:
                out += values[k] * (vectors[:, k] * vectors[:, k].T)
        flat = [(out[i, j] + out[j, i]) / 2 for i in range(d) for j in range(d)]
        return list(values), vectors, flat

    @property
    def side(self) -> int:
        return self.problem.penalty.side

    def start(self, x: np.ndarray) -> Vector:
        return self.parts([real(v) for v in x])[2]

    def split(self, v: Vector) -> Vector:
        return [a - b for a, b in zip(v, self.parts(v)[2], strict=True)]


def spectral_optimum(problem: Problem, x: np.ndarray) -> Reference:
    """Semismooth Newton on ``lam X = [v(X)]_+`` in extended precision, from a solution."""
    model = Spectral(problem)
    lam = model.diagonal[0]
    best = None
    point = model.start(x)
    for _ in range(STEPS):
        t = apply(model.rows, point)
        theta = clipped(model, [f.slope(u) for f, u in zip(model.terms, t, strict=True)])
        found = (point, t, *model.gap(point, t, theta))
        if best is None or found[2] < best[2]:
            best = found
        elif found[2] > 0.5 * best[2]:
            break
        v = model.pull(theta)
        values, U, projected = model.parts(v)
        residual = [lam * a - b for a, b in zip(point, projected, strict=True)]
        J = jacobian(model, t, values, U)
        step = solved(J, residual)
        moved = [a - b for a, b in zip(point, step, strict=True)]
        point = model.parts(moved)[2]
    assert best is not None
    return judged(model, *best)


def jacobian(model: Spectral, t: Vector, values: list, U: object) -> list[Vector]:
    """``lam I + P'(v) sum over curved terms a_i a_i' / q_i``."""
    d = model.side
    share = mp.zeros(d)
    for i in range(d):
        for j in range(d):
            a, b = values[i], values[j]
            top = max(a, mp.mpf(0)) - max(b, mp.mpf(0))
            share[i, j] = top / (a - b) if a != b else mp.mpf(a > 0)
    bent = [i for i, f in enumerate(model.terms)
            if f.q > 0 and f.lo < (t[i] - f.b) / f.q < min(f.hi, mp.mpf(0))]
    columns = []
    for j in range(d * d):
        h = [mp.mpf(0)] * (d * d)
        for i in bent:
            weight = model.rows[i][j] / model.terms[i].q
            h = [u + weight * a for u, a in zip(h, model.rows[i], strict=True)]
        H = mp.matrix([h[d * i:d * i + d] for i in range(d)])
        G = U.T * H * U
        for i in range(d):
            for k in range(d):
                G[i, k] *= share[i, k]
        G = U * G * U.T
        columns.append([G[i, k] for i in range(d) for k in range(d)])
    rows = [list(row) for row in zip(*columns, strict=True)]
    for j in range(d * d):
        rows[j][j] += model.diagonal[0]
    return rows


def reference(problem: Problem) -> Reference:
    found = cvxscreen.solve(problem, tol=1e-13)
    if problem.penalty.name == "PSD":
        return spectral_optimum(problem, found.x)
    return optimum(problem, found.x, found.theta)


def points(ref: Reference, rng: np.random.Generator, count: int) -> list[Point]:
    """Symmetric steps away from the optimum, and what loose solves end with."""
    found = [reference_point(ref.problem, ref.x)]
    side = round(ref.problem.d**0.5)
    full = ref.problem.penalty.name == "PSD"
    size = float(np.abs(ref.x).max(initial=0.0)) + 1e-12 / float(ref.problem.norms.max() + 1e-300)
    for number in range(count):
        noise = rng.standard_normal(ref.problem.d)
        if full:
            noise = (noise.reshape(side, side) + noise.reshape(side, side).T).ravel()
        x = ref.x + 10.0 ** -rng.uniform(0, 15) * size * noise
        low, high = adversary.box(ref)
        blur = 10.0 ** -rng.uniform(0, 12)
        theta = ref.theta + blur * (high - low) * rng.standard_normal(ref.problem.n)
        found.append(reference_point(ref.problem, x, None if number % 3 else theta))
    return found


def make(number: int, rng: np.random.Generator) -> tuple[Problem, str]:
    """A small problem of triplets, pairs or quadruplets."""
    d, n = 2 + number % 2, 14
    dtype = np.float32 if number % 4 == 0 else np.float64
    y = np.repeat(np.arange(2), n // 2)
    kind = ("plain", "scales", "duplicates", "integer", "far", "constant")[number % 6]
    X = generators.features(kind, rng, n, d)
    if kind == "scales":  # one coordinate would be all there is
        size = 10.0 ** rng.uniform(-1, 1, d) * 10.0 ** rng.integers(-6, 7)
        X = rng.standard_normal((n, d)) * size
    X = (X + np.outer(y, X.std(axis=0))).astype(dtype)
    T = cvxscreen.triplets(X, y, k=(1, 3))
    if number % 5 == 1:
        T = T + cvxscreen.pairs(X, y, k=2)
    gamma = float(rng.choice([0.05, 0.5, 0.0 if number % 2 else 0.05]))
    p = cvxscreen.rtlm(X, T, 1.0, gamma=gamma, diagonal=bool(number % 2))
    top = cvxscreen.lambda_max(p)
    if not 0 < top < np.inf:  # pairs of one class stay on a linear piece at no lambda
        top = float((p.norms**2).sum())
    share = float(rng.choice([3.0, 0.3, 0.05, 1e-2, 1e-4]))
    return p.with_(lam=share * top), np.dtype(dtype).name


def planted(number: int, rng: np.random.Generator) -> tuple[Problem, np.ndarray]:
    """A problem whose optimum is known: every term on a linear piece, hardly beyond its knot.

    The thresholds are put where the margins at ``X* = [sum of w_t H_t]_+ / lam`` want them. In one
    coordinate all H are parallel, and on the ray through ``X*`` the spheres are attained.
    """
    d = 1 + (number // 2) % 2
    y = np.repeat(np.arange(2), 6)
    X = rng.integers(-8, 9, (12, d)) / 4.0 + 3.0 * y[:, None]
    T = cvxscreen.triplets(X, y, k=(1, 4))
    base = cvxscreen.rtlm(X, T, 4.0, gamma=0.25, diagonal=bool(number % 2))
    model = Model(base) if number % 2 else Spectral(base)
    low = rng.random(base.n) < 0.6
    theta = np.where(low, base.losses.lo, 0.0)
    v = model.pull([real(s) for s in theta])
    cut = [max(u, mp.mpf(0)) for u in v] if number % 2 else model.parts(v)[2]
    x = [u / model.diagonal[0] for u in cut]
    t = np.array([float(u) for u in apply(model.rows, x)])
    ulp = np.spacing(np.maximum(np.abs(t), 1.0))
    away = np.choose(rng.integers(0, 4, base.n), [2 * ulp, 8 * ulp, 2.0**-20, 0.25])
    b = np.where(low, t + 0.25 + away, t - away)
    losses = Losses(b, 0.0, base.losses.q, base.losses.lo, 0.0)
    return replace(base, losses=losses), np.array([float(u) for u in x])


def metrics(ledger: Ledger, number: int, rng: np.random.Generator, count: int) -> None:
    """Data of all kinds."""
    problem, dtype = make(number, rng)
    ref = reference(problem)
    names = ("diagonal" if number % 2 else "full", dtype)
    spheres(ledger, "metric", names, ref, points(ref, rng, count), rng)
    modes(ledger, "metric", names, ref)


def planted_metrics(ledger: Ledger, number: int, rng: np.random.Generator, count: int) -> None:
    """Margins next to their knots, spheres that are attained."""
    problem, x = planted(number, rng)
    ref = optimum(problem, x, problem.losses.slope(problem.design.forward(x))) if number % 2 else (
        spectral_optimum(problem, x))
    names = ("planted diagonal" if number % 2 else "planted full", "float64")
    steps = 10.0 ** -rng.uniform(0, 14, count) * rng.choice([-1.0, 1.0], count)
    on_ray = [reference_point(problem, (1.0 + step) * ref.x) for step in steps]
    spheres(ledger, "metric", names, ref, [*points(ref, rng, count // 2), *on_ray], rng)
    modes(ledger, "metric", names, ref)


def loss_of(problem: Problem) -> str:
    return "smoothed_hinge" if problem.losses.q.any() else "hinge"


def spheres(ledger: Ledger, model: str, names: tuple[str, str], ref: Reference,
            found: list[Point], rng: np.random.Generator) -> None:
    """Every sphere under every rule, here and from another lambda, and ranges of lambda."""
    problem = ref.problem
    loss = loss_of(problem)
    for point in found:
        other = problem.with_(lam=problem.lam * FACTORS[int(rng.integers(0, 5))])
        moved = reference_point(other, point.x)
        for name in available(problem):
            if name in PAIRS:
                continue
            some = [point, moved] if name in ACROSS else [point]
            for at in some:
                region = named(name)(problem, at)
                for rule in RULES:
                    said = judge(problem, cut(problem, region, rule))
                    verdict(ledger, (model, loss, f"{name}, {rule}", *names), ref, said)
        for bound in ("midpoint", "rrpb"):
            low, high, codes = lam_interval(moved, bound)
            held = (low <= problem.lam) & (problem.lam <= high)
            key = (model, loss, f"lambda range, {bound}", *names)
            pieces(ledger, key, ref, np.where(held, codes, -1), "range")


def modes(ledger: Ledger, model: str, names: tuple[str, str], ref: Reference) -> None:
    """What a whole solve says in the end."""
    for mode in ("safe", "certified"):
        for tol in (1e-2, 1e-6):
            found = cvxscreen.solve(ref.problem, tol=tol, mode=mode).screening
            key = (model, loss_of(ref.problem), f"{mode} mode", *names)
            pieces(ledger, key, ref, found.codes, f"{tol}")
