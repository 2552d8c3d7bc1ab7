"""Sparse problems for the dual active set method: every loss, text-like rows, checked answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from cvxscreen.certificates.certificate import certify
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.solvers.dual_active_set import DualActiveSet
from cvxscreen.solvers.interface import Start
from cvxscreen.solvers.newton import Newton

N, D = 240, 320


def table(kind: str, n: int, rng: np.random.Generator, C: float = 1.0) -> Losses:
    """A row of the loss table with random weights and responses."""
    y, c = rng.standard_normal(n), C * rng.uniform(0.5, 2.0, n)
    return {
        "hinge": lambda: Losses(1.0, 0.0, 0.0, -c, 0.0),
        "smoothed hinge": lambda: Losses(1.0, 0.0, 0.5 / c, -c, 0.0),
        "squared hinge": lambda: Losses(1.0, 0.0, 1.0 / c, -np.inf, 0.0),
        "absolute": lambda: Losses(y, 0.0, 0.0, -c, c),
        "pinball": lambda: Losses(y, 0.0, 0.0, -0.3 * c, 0.7 * c),
        "eps-insensitive": lambda: Losses(y, 0.3, 0.0, -c, c),
        "smoothed eps-insensitive": lambda: Losses(y, 0.3, 0.5 / c, -c, c),
        "huber": lambda: Losses(y, 0.0, 1.0 / c, -0.7 * c, 0.7 * c),
        "squared": lambda: Losses(y, 0.0, 1.0 / c, -np.inf, np.inf),
    }[kind]()


KINDS = (
    "hinge", "smoothed hinge", "squared hinge", "absolute", "pinball", "eps-insensitive",
    "smoothed eps-insensitive", "huber", "squared",
)


def words(rng: np.random.Generator, n: int = N, d: int = D) -> sp.csr_matrix:
    """Sparse rows with a few columns that most of them share."""
    chance = np.minimum(0.9, 8.0 / np.arange(1, d + 1))
    dense = np.where(rng.random((n, d)) < chance, rng.standard_normal((n, d)), 0.0)
    return sp.csr_matrix(dense)


def make(kind: str, rng: np.random.Generator, C: float = 1.0, **parts: object) -> Problem:
    """A problem of that loss over `words`, unless other parts are given."""
    matrix = parts.pop("matrix", None)
    matrix = words(rng) if matrix is None else matrix
    n, d = matrix.shape
    given = {"quadratic": Quadratic(np.ones(d)), "linear": np.zeros(d), **parts}
    design = given.pop("design", Rows(matrix))
    return Problem(design, table(kind, n, rng, C), C=C, **given)


def newton(problem: Problem, target: float) -> np.ndarray:
    """The optimum by Newton's method, over dense rows: there it takes a tenth of the time."""
    rows = problem.design
    if rows.sparse and rows.matrix.shape[1] <= 10 * D:
        dense = Rows(rows.matrix.toarray(), rows.scale, rows.extra)
        problem = replace(problem, design=dense)
    return Newton()(problem, None, target).x


def target_of(problem: Problem, relative: float) -> float:
    """An absolute gap: `relative` times the optimal value, about."""
    rough = newton(problem, 1e-5 * problem.primal(np.zeros(problem.d)))
    return relative * abs(problem.primal(rough))


def solved(
    problem: Problem, start: Start | None = None, alone: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Solve (without Newton's help unless not `alone`), certify, compare with Newton."""
    target = target_of(problem, 3e-10)
    found = DualActiveSet()(problem, start, target)
    assert found.status == "optimal"
    assert not (alone and "dual_active_set" in found.info)
    proof = certify(problem, found.x, found.theta, tol=1e-9)
    assert proof.ok, proof.reason
    distance = problem.quadratic.norm(found.x - newton(problem, target))
    assert distance**2 <= 8.0 * target + 1e-20
    return found.x, found.theta
