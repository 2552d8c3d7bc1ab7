"""Cells about kernels: the exact feature space, by a Cholesky factor of a hundred digits."""

from __future__ import annotations

from dataclasses import replace

import adversary
import generators
import mpmath as mp
import numpy as np
from active_set import optimum
from checks import Ledger
from linear import Vector
from references import Model, Reference
from terms import RIGHT, WRONG, real
from vector_cells import modes, one

from cvxscreen import InvalidInput, regression, svm
from cvxscreen.core.problem import Problem
from cvxscreen.solvers.smo import Smo

KERNELS = ("rbf", "poly", "linear", "precomputed", "narrow", "flat")


class NotAKernel(ArithmeticError):
    """A matrix with a negative eigenvalue."""


def exact_kernel(name: str, X: np.ndarray, params: dict[str, float]) -> list[Vector]:
    """The kernel's matrix to a hundred digits; `X` is the matrix itself where it was given."""
    points = [[real(v) for v in row] for row in X]
    if name == "precomputed":
        return [[(a + b) / 2 for a, b in zip(*pair, strict=True)]
                for pair in zip(points, zip(*points, strict=True), strict=True)]
    inner = [[mp.fdot(a, b) for b in points] for a in points]
    if name == "linear":
        return inner
    g = real(params["gamma"])
    if name == "poly":
        return [[(g * v + real(params["coef0"])) ** int(params["degree"]) for v in row]
                for row in inner]
    return [[mp.exp(-g * mp.fsum((u - v) ** 2 for u, v in zip(a, b, strict=True))) for b in points]
            for a in points]


def factor(K: list[Vector]) -> list[Vector]:
    """Lower triangular L with ``L L' = K``."""
    n = len(K)
    level = max(K[i][i] for i in range(n)) * mp.mpf(10) ** (-70)
    L = [[mp.mpf(0)] * n for _ in range(n)]
    for j in range(n):
        rest = K[j][j] - mp.fdot(L[j][:j], L[j][:j])
        if rest < -level:
            raise NotAKernel
        if rest <= level:  # a combination of the points before
            continue
        L[j][j] = mp.sqrt(rest)
        for i in range(j + 1, n):
            L[i][j] = (K[i][j] - mp.fdot(L[i][:j], L[j][:j])) / L[j][j]
    return L


class Features(Model):
    """A kernel problem in the coordinates of the factor."""

    def __init__(self, problem: Problem, L: list[Vector]) -> None:
        self.L = L
        sign = [real(v) for v in problem.design.sign]
        more = [[mp.mpf(1)]] * len(L) if problem.design.intercept else [[]] * len(L)
        rows = [[s * v for v in row + last] for s, row, last in zip(sign, L, more, strict=True)]
        super().__init__(problem, rows)

    def start(self, x: np.ndarray) -> Vector:
        n = len(self.L)
        c = [real(v) for v in x[:n]]
        point = [mp.fdot(column, c) for column in zip(*self.L, strict=True)]
        if len(x) > n:  # the package's intercept belongs to centred points
            point.append(real(x[n]) - real(self.problem.design.offset(x)))
        return point


def reference(problem: Problem, L: list[Vector]) -> Reference:
    """The optimum, written in coefficients of the points as the package does."""
    target = 1e-14 * abs(problem.primal(np.zeros(problem.d)))
    found = Smo()(problem, None, target)
    ref = optimum(problem, found.x, found.theta, Features(problem, L))
    sign = problem.design.sign
    x = -sign * ref.theta
    if problem.design.intercept:
        x = np.append(x, 0.0)
        x[-1] = float(np.mean(sign * ref.margins - sign * problem.design.forward(x)))
    none = np.zeros(0, dtype=np.int8)
    return replace(ref, x=x, dropped=none, needed=none)


def drawn(number: int, rng: np.random.Generator) -> tuple[Problem, list[Vector], str, str, str]:
    """A problem, the exact factor of its kernel, the loss, the kernel's name, the data's type."""
    loss = generators.LOSSES[number % 8]
    name = KERNELS[(number // 8 + number) % 6]
    dtype = "float32" if number % 5 == 0 else "float64"
    n = int(rng.integers(12, 32))
    kind = str(rng.choice(["plain", "duplicates", "integer", "imbalanced", "far"]))
    X = generators.features(kind, rng, n, 3).astype(dtype).astype(float)
    if name in ("poly", "linear") and kind == "far":
        X = X - 1e6
    y = generators.response(kind, X, loss, rng)
    params: dict[str, float] = {}
    kernel = {"narrow": "rbf", "flat": "rbf"}.get(name, name)
    if kernel == "rbf":
        params = {"gamma": {"rbf": 0.3, "narrow": 30.0, "flat": 1e-4}[name]}
    elif kernel == "poly":
        params = {"gamma": 0.3, "coef0": 1.0, "degree": 3}
    elif kernel == "precomputed":
        Z = rng.integers(-3, 4, (n, n)).astype(float)
        X = Z @ Z.T
    given = X.astype(dtype)
    L = factor(exact_kernel(kernel, given.astype(float), params))
    C = generators.strength(rng)
    door = svm if "hinge" in loss else regression
    problem = door(
        given, y, C=C, loss=loss, intercept=bool(number % 3), kernel=kernel,
        kernel_params=params or None, **generators.SHAPES[loss],
    )
    return problem, L, loss, name, dtype


def kernels(ledger: Ledger, number: int, rng: np.random.Generator, count: int) -> None:
    """Six kernels (some nearly singular), all losses, intercept or not, float32 data."""
    problem, L, loss, *names = drawn(number, rng)
    ref = reference(problem, L)
    model = "kernel" + " + intercept" * bool(number % 3)
    one(ledger, model, loss, tuple(names), ref, list(adversary.points(ref, rng, count)))
    modes(ledger, model, loss, tuple(names), ref, float(10.0 ** rng.uniform(-8, -2)))


def refusals(ledger: Ledger, number: int, rng: np.random.Generator, count: int) -> None:
    """Indefinite matrices and functions must be refused; a refusal is a right decision."""
    n = 8 + number % 20
    Z = rng.standard_normal((n, n))
    values = rng.uniform(0.1, 1.0, n)
    values[: 1 + number % 3] = -(10.0 ** rng.uniform(-6, 0))
    Q, _ = np.linalg.qr(Z)
    K = (Q * values) @ Q.T
    K = 0.5 * (K + K.T)
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    y[:2] = (1.0, -1.0)

    def function(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return K[np.ix_(left[:, 0].astype(int), right[:, 0].astype(int))]

    asked = {"precomputed": (K, "precomputed"), "function": (np.arange(n)[:, None], function)}
    for name, (data, kernel) in asked.items():
        try:
            svm(data, y, kernel=kernel)
            state = WRONG
        except InvalidInput:
            state = RIGHT
        ledger.add(("kernel", "hinge", "refusal", name, "float64"), 1, np.array([state]))
