"""The certificate beside an L1 norm alone: slopes that are made feasible by moving a few of them.

Optima are planted in integers and dyadic numbers, so that ``P(x) - P*`` is known exactly.
"""

from __future__ import annotations

import numpy as np
import pytest
from rational import Fraction

from cvxscreen.certificates.certificate import certify, gap_beside_l1, pure_l1_gap
from cvxscreen.core.losses import Losses
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem, ZeroQuadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.solvers.solve import solve_problem

N, D = 24, 4


def of_rows(A: np.ndarray, losses: Losses, kappa: np.ndarray) -> Problem:
    return Problem(
        design=Rows(A), losses=losses, quadratic=ZeroQuadratic(np.zeros(A.shape[1])),
        linear=np.zeros(A.shape[1]), penalty=L1(kappa),
    )


def planted(
    seed: int, scale: float = 1.0, dtype: type = np.float64
) -> tuple[Problem, np.ndarray, np.ndarray]:
    """Huber's losses with a known optimum: problem, optimum and slopes there."""
    rng = np.random.default_rng(seed)
    A = rng.integers(-4, 5, (N, D)).astype(float)
    A[:, 0] *= scale
    q = np.where(np.arange(N) < N // 2, 1.0, 0.5)
    theta = rng.integers(-6, 7, N) / 8.0
    pull = A.T @ theta
    held = (np.arange(D) % 2 == 0) & (pull != 0.0)
    best = np.where(held, -np.sign(pull) * rng.integers(1, 4, D), 0.0)
    kappa = np.where(held, np.abs(pull), np.abs(pull) + 1.0)
    losses = Losses(A @ best - q * theta, np.zeros(N), q, -np.ones(N), np.ones(N))
    return of_rows(A.astype(dtype), losses, kappa), best, theta


def exact_value(problem: Problem, x: np.ndarray) -> Fraction:
    """P(x) in rational numbers."""
    f, point = problem.losses, [Fraction(float(v)) for v in x]
    total = sum(
        (Fraction(float(k)) * abs(v) for k, v in zip(problem.penalty.kappa, point, strict=True)),
        Fraction(),
    )
    rows = problem.design.dense()
    for row, b, q in zip(rows, f.b, f.q, strict=True):
        z = sum((Fraction(float(a)) * v for a, v in zip(row, point, strict=True)), Fraction())
        z = abs(z - Fraction(float(b)))
        q = Fraction(float(q))
        total += z * z / (2 * q) if z <= q else z - q / 2
    return total


def gaps(problem: Problem, x: np.ndarray, theta: np.ndarray) -> tuple[float, float]:
    """That of slopes close by, and the smaller one of it and that of a share of `theta`."""
    t, At = problem.design.forward(x), problem.design.adjoint(theta)
    error = (problem.design.adjoint_factor + 2e-15) * np.linalg.norm(theta) * problem.column_sizes
    values = problem.losses.value(t)
    near = gap_beside_l1(problem, x, theta, t, values, (At, error))
    return near, pure_l1_gap(problem, x, theta, t, values, At)


@pytest.mark.parametrize(("scale", "dtype"), [(1.0, float), (2.0**20, float), (1.0, np.float32)])
def test_the_gap_bounds_what_is_lost(scale: float, dtype: type) -> None:
    rng, known = np.random.default_rng(0), 0
    for seed in range(60):
        problem, best, theta = planted(seed, scale, dtype)
        least = exact_value(problem, best)
        for size in (0.0, 2.0**-30, 2.0**-12, 2.0**-4):
            x = best + size * rng.integers(-3, 4, D) / np.maximum(problem.column_sizes, 1.0)
            slopes = np.clip(theta + size * rng.integers(-3, 4, N) / 8.0, -1.0, 1.0)
            lost = exact_value(problem, x) - least
            for gap in gaps(problem, x, slopes):
                assert np.isinf(gap) or Fraction(gap) >= lost
            known += np.isfinite(gaps(problem, x, slopes)[0])
    assert known > 80  # of 240


def along_one(delta: float) -> tuple[Problem, np.ndarray, np.ndarray]:
    """``1/2 (x - 4)^2 + |x|`` at ``x = 3 - delta``, and the slope there: delta too steep."""
    wide = Losses(np.array([4.0]), np.zeros(1), np.ones(1), np.array([-9.0]), np.array([9.0]))
    problem = of_rows(np.ones((1, 1)), wide, np.ones(1))
    return problem, np.array([3.0 - delta]), np.array([-1.0 - delta])


def test_what_slopes_close_by_cost_is_attained() -> None:
    for delta in (2.0**-4, 2.0**-12):
        near, _ = gaps(*along_one(delta))
        assert 0.5 * delta**2 <= near <= 0.5 * delta**2 * (1.0 + 1e-3)  # P(x) - P* to the digit


def test_what_another_column_is_pushed_by_costs_x_there() -> None:
    """The slope that takes delta off the first column adds it to what the second has left."""
    delta, room, x = 2.0**-4, 2.0**-3, np.array([3.0 - 2.0**-4, 2.0])
    theta = np.array([-1.0 - delta, delta + room])
    A = np.array([[1.0, 1.0], [0.0, 1.0]])
    losses = Losses(A @ x - theta, np.zeros(2), np.ones(2), -9.0 * np.ones(2),
                    np.array([9.0, theta[1]]))  # which has no room itself
    near, _ = gaps(of_rows(A, losses, np.ones(2)), x, theta)
    exact = 0.5 * delta**2 + x[1] * (room + delta)
    assert exact <= near <= exact * (1.0 + 1e-3)


def test_a_slope_leaves_neither_its_box_nor_another_column_without_room() -> None:
    problem, x, theta = along_one(2.0**-4)
    f = problem.losses
    tight = Losses(f.b, f.e, f.q, theta - 2.0**-6, f.hi)
    assert np.isinf(gaps(of_rows(np.ones((1, 1)), tight, np.ones(1)), x, theta)[0])
    # The second column has half or twice the room that this slope would take.
    for room, known in ((2.0**-5, False), (2.0**-3, True)):
        slopes = np.array([-1.0 - 2.0**-4, room - 2.0 - 2.0**-4])
        losses = Losses(
            np.array([4.0, 0.0]), np.zeros(2), np.ones(2), np.array([-9.0, slopes[1]]), np.ones(2)
        )
        both = of_rows(np.array([[1.0, -1.0], [0.0, 1.0]]), losses, np.ones(2))
        assert np.isfinite(gaps(both, np.append(x, 0.0), slopes)[0]) == known


def test_an_l1_norm_alone_takes_one_round_and_a_wrong_slope_is_refused() -> None:
    """Where certificates cost a share of all slopes, the same was solved eight times."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((3000, 6))
    y = X @ rng.standard_normal(6) + rng.standard_t(3, 3000)
    losses = Losses(y, np.zeros(3000), np.ones(3000), -np.ones(3000), np.ones(3000))
    problem = of_rows(X, losses, np.full(6, 0.1))
    found = solve_problem(problem, tol=1e-11, solver="interior_point")
    assert found.certificate.ok
    assert len(found.rounds) == 1
    slopes = np.clip(found.theta * (1.0 + 1e-7), -1.0, 1.0)
    assert not certify(problem, found.x, slopes, tol=1e-11).ok
