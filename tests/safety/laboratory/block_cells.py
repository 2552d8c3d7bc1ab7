"""Cells about data in chunks, with and without Dask, and about blocks of weightings.

Neither says on which piece a term is: what they say is a certificate. Its gap is held against what
the answer loses in extended precision, on all terms; certificates are also asked about altered
answers.
"""

from __future__ import annotations

import dask.array as da
import generators
import mpmath as mp
import numpy as np
from checks import Ledger
from linear import Vector, apply
from references import Model
from terms import RIGHT, WRONG, Real, real
from vector_cells import reference

import cvxscreen
from cvxscreen.certificates.certificate import Certificate
from cvxscreen.certificates.one_pass import certify_chunks
from cvxscreen.core.problem import Problem
from cvxscreen.data_changes.bootstrap import Replicates
from cvxscreen.data_changes.reweight import weighted
from cvxscreen.models.samples import CLASSIFICATION
from cvxscreen.out_of_core.streams import Blocks

WEIGHTINGS = 24
"""In a block; every fourth of them is held against its own optimum."""


class Optimum:
    """The objective of a problem in memory to a hundred digits, and its least value."""

    def __init__(self, problem: Problem) -> None:
        self.model = Model(problem)
        self.constant = real(problem.constant)
        ref = reference(problem)
        self.x, self.theta = ref.x, ref.theta
        self.least = self.value(ref.x)  # of a rounded optimum: never below the optimal value

    def value(self, x: np.ndarray) -> Real:
        model, point = self.model, [real(v) for v in x]
        t: Vector = apply(model.rows, point)
        losses = mp.fsum(f.fenchel_young(margin, mp.mpf(0))
                         for f, margin in zip(model.terms, t, strict=True))
        return (losses + mp.fdot(point, model.times(point)) / 2 + mp.fdot(model.linear, point)
                + self.constant)

    def claims(self, proof: Certificate, x: np.ndarray) -> np.ndarray:
        """Whether the gap and the verdict of a certificate are what they say."""
        value = self.value(x)
        lost, said = value - self.least, []
        if np.isfinite(proof.gap):
            said.append(real(proof.gap) >= lost)
        if proof.ok:
            scale = max(abs(value), abs(real(proof.dual)))
            said.append(lost <= real(proof.tolerance) * scale * (1 + mp.mpf(10) ** (-9)))
        return np.array([RIGHT if right else WRONG for right in said], dtype=np.int8)


def chunks(ledger: Ledger, number: int, rng: np.random.Generator, count: int) -> None:
    """Answers over data in chunks of any size, and certificates of altered ones."""
    loss = generators.LOSSES[number % 8]
    kind = ("plain", "duplicates", "integer", "collinear", "scales", "constant")[number % 6]
    dtype = "float32" if number % 4 == 1 else "float64"
    n, d = int(rng.integers(20, 60)), int(rng.integers(1, 5))
    X = generators.stored(generators.features(kind, rng, n, d), ("dense", dtype), rng)
    y = generators.response(kind, X, loss, rng)
    C = generators.strength(rng) / max(float(np.square(X, dtype=float).sum(axis=1).mean()), 1e-300)
    door = cvxscreen.svm if loss in CLASSIFICATION else cvxscreen.regression
    options = {"C": C, "loss": loss, "intercept": number % 3 == 2, **generators.SHAPES[loss]}
    truth = Optimum(door(X, y, **options))
    size = int(rng.integers(1, n + 1))
    source: object = Blocks(tuple(X[k:k + size] for k in range(0, n, size)))
    if number % 2:
        source = cvxscreen.on_dask(da.from_array(X, chunks=(size, X.shape[1])), workers=2)
    problem = door(source, y, **options)
    key = ("data in chunks", loss, "certificate", "dask" if number % 2 else "blocks", dtype)
    reach = np.abs(truth.theta).max(initial=1e-300)
    f = truth.model.problem.losses
    for _ in range(8 * count):
        blur = 10.0 ** -rng.uniform(0, 16)
        x = truth.x + blur * np.abs(truth.x).max(initial=1e-9) * rng.standard_normal(
            problem.d) * rng.integers(0, 2)
        noise = blur * rng.standard_normal(problem.n) * np.minimum(f.hi - f.lo, reach)
        theta = np.clip(truth.theta + noise * rng.integers(0, 2), f.lo, f.hi)
        proof = certify_chunks(problem, x, theta, tol=float(rng.choice([1e-12, 1e-6, 1e-2])))
        ledger.add(key, 2, truth.claims(proof, x), f"{blur:.0e}")
    for tol in (1e-9, 1e-4):
        found = cvxscreen.solve(problem, tol=tol)
        ledger.add((*key[:2], "certified mode", *key[3:]), 2,
                   truth.claims(found.certificate, found.x), f"{tol:g}")


def blocks(ledger: Ledger, number: int, rng: np.random.Generator, count: int) -> None:
    """Samples drawn with replacement, single terms left out, other weights: many fits at once."""
    loss = generators.LOSSES[number % 8]
    kind = ("plain", "duplicates", "integer", "collinear", "constant")[number % 5]
    n, d = int(rng.integers(25, 70)), int(rng.integers(1, 5))
    made = generators.vectors(loss, kind, ("dense", "float64"), rng, n=n, d=d,
                              intercept=number % 3 == 2)
    tol = float(10.0 ** rng.uniform(-9, -3))
    solution = cvxscreen.solve(made, tol=tol)
    if solution.answer is None:
        return
    n = made.n
    single = np.ones((WEIGHTINGS, n))
    single[np.arange(WEIGHTINGS), rng.integers(0, n, WEIGHTINGS)] = 0.0
    tables = {
        "bootstrap": rng.multinomial(n, np.full(n, 1.0 / n), WEIGHTINGS).astype(float),
        "leave one out": single,
        "weights": rng.choice([0.5, 1.0, 1.0 + 1e-9, 2.0], (WEIGHTINGS, n)),
    }
    solver = Replicates(solution, tol)
    for what, W in tables.items():
        X, gaps, ok = solver.solve(W)
        for k in range(0, WEIGHTINGS, 4)[:count]:
            truth = Optimum(weighted(made, W[k]))
            value = truth.value(X[k])
            lost, said = value - truth.least, []
            if np.isfinite(gaps[k]):
                said.append(real(gaps[k]) >= lost)
            if ok[k]:
                said.append(lost <= real(tol) * abs(value) * (1 + mp.mpf(10) ** (-9)))
            states = np.array([RIGHT if right else WRONG for right in said], dtype=np.int8)
            ledger.add(("blocks", loss, what, "dense", "float64"), 2, states, f"{tol:.0e}")
