"""The compiled loops of the L1 solver's steps against the table of losses and the problem."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sparse_cases import make

from cvxscreen.core.duality import reference_point
from cvxscreen.core.losses import Losses
from cvxscreen.core.quadratic import ZeroQuadratic
from cvxscreen.designs.columns import by_columns
from cvxscreen.solvers.prox_newton.objective import Terms, curved_terms, subgradients
from cvxscreen.solvers.prox_newton.solver import Iterate


def every_loss(rng: np.random.Generator, n: int) -> tuple[Losses, np.ndarray]:
    """Terms of every kind, and arguments on all of their pieces and at their kinks."""
    q = rng.choice([0.0, 0.3, 2.0], n)
    lo, hi = rng.choice([0.0, -1.0, -np.inf], n), rng.choice([0.0, 0.5, np.inf], n)
    lo, hi = np.where((q == 0) & np.isinf(lo), -2.0, lo), np.where((q == 0) & np.isinf(hi), 2.0, hi)
    losses = Losses(rng.standard_normal(n), rng.choice([0.0, 0.4], n), q, lo, hi)
    return losses, losses.b + rng.choice([0.0, 0.4, 1.0], n) * rng.standard_normal(n).round(1)


def test_slopes_of_every_loss(rng: np.random.Generator) -> None:
    losses, t = every_loss(rng, 500)
    found = np.empty(500)
    subgradients(t, Terms.of(losses), found)
    np.testing.assert_allclose(found, losses.slope(t), rtol=1e-14, atol=0)


def test_terms_with_curvature_are_those_with_a_slope_inside_and_a_parabola(
    rng: np.random.Generator,
) -> None:
    losses, t = every_loss(rng, 750)
    curved = losses.q > 0  # a kink is smoothed before there is curvature
    losses, t = losses.take(curved), t[curved]
    theta, rows, factor = losses.slope(t), np.empty(len(t), dtype=np.intp), np.empty(len(t))
    rows = rows[: curved_terms(theta, Terms.of(losses), rows, factor)]
    ahead, behind = losses.slope(t + 1e-9), losses.slope(t - 1e-9)
    curved_there = (ahead != theta) & (behind != theta)
    np.testing.assert_array_equal(rows, np.flatnonzero(curved_there))
    assert 0.1 < len(rows) / len(t) < 0.9
    np.testing.assert_allclose(factor[rows] ** 2 * losses.q[rows], 1.0)
    assert not np.delete(factor, rows).any()


@pytest.mark.parametrize("loss", ["hinge", "smoothed_hinge", "huber", "squared_hinge"])
@pytest.mark.parametrize("length", [1.0, 0.3, 1e-9])
def test_a_step_changes_the_objective_by_so_much(
    loss: str, length: float, rng: np.random.Generator
) -> None:
    problem = make(loss, "sparse", 3)
    x = rng.standard_normal(problem.d) * (rng.random(problem.d) < 0.7)
    matrix, features = by_columns(problem.design), np.arange(0, problem.d, 2)
    iterate = Iterate(problem, matrix, problem.penalty.kappa, problem.quadratic.diagonal, x,
                  matrix @ x, problem.losses)
    d = rng.standard_normal(len(features))
    d[: len(d) // 2] = -x[features][: len(d) // 2]  # onto 0, or beyond
    full = np.zeros(problem.d)
    full[features] = length * d
    expected = problem.primal(x + full) - problem.primal(x)
    found = iterate.change(features, d, iterate.forward(features, d), length)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-14)


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("loss", ["smoothed_hinge", "huber", "squared_hinge"])
def test_the_gap_is_that_of_the_point(loss: str, held: bool, rng: np.random.Generator) -> None:
    problem = make(loss, "sparse", 3)
    if held:
        nothing = ZeroQuadratic(np.zeros(problem.d))
        problem = replace(problem, quadratic=nothing, linear=np.zeros(problem.d))
    x = 0.1 * rng.standard_normal(problem.d)
    matrix = by_columns(problem.design)
    iterate = Iterate(problem, matrix, problem.penalty.kappa, problem.quadratic.diagonal, x,
                  matrix @ x, problem.losses)
    iterate.evaluate()
    point = reference_point(problem, x, iterate.theta)
    np.testing.assert_allclose(iterate.gap, point.gap, rtol=1e-9)
    assert held == (not np.array_equal(point.theta, iterate.theta))
    residual = matrix.T @ iterate.theta + problem.linear
    np.testing.assert_allclose(iterate.dual_residual, residual, rtol=1e-10)
