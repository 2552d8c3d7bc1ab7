"""The compiled loops of the L1 solver's steps against the table of losses and the problem."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sparse_cases import make

from cvxscreen.core.duality import reference_point
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import ZeroQuadratic
from cvxscreen.designs.rows import by_columns
from cvxscreen.solvers.column_systems import compressed
from cvxscreen.solvers.prox_newton import (
    LENGTHS,
    Coordinates,
    Iterate,
    LossColumns,
    best_length,
    curved_terms,
    descend_along,
    subgradients,
)


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
    subgradients(t, LossColumns.of(losses), found)
    np.testing.assert_allclose(found, losses.slope(t), rtol=1e-14, atol=0)


def test_terms_with_curvature_are_those_with_a_slope_inside_and_a_parabola(
    rng: np.random.Generator,
) -> None:
    losses, t = every_loss(rng, 750)
    curved = losses.q > 0  # a kink is smoothed before there is curvature
    losses, t = losses.take(curved), t[curved]
    theta, rows, factor = losses.slope(t), np.empty(len(t), dtype=np.intp), np.empty(len(t))
    rows = rows[: curved_terms(theta, LossColumns.of(losses), rows, factor)]
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


# -- How far a step under an L1 norm goes: of the model and of the objective.


def problem(seed: int) -> tuple[Losses, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Losses, rows, weights, a point and a step down from it."""
    rng = np.random.default_rng(seed)
    n, d = 30, 8
    if seed % 2:
        losses = Losses(np.ones(n), 0.0, rng.uniform(0.5, 2.0, n), -np.inf, 0.0)
    else:
        losses = Losses(rng.standard_normal(n), 0.0, 1.0, -0.7, 0.7)
    x = rng.standard_normal(d) * (rng.random(d) < 0.6)
    A, kappa = rng.standard_normal((n, d)), np.full(d, 0.3)
    steepest = A.T @ losses.slope(A @ x) + kappa * np.sign(x)
    return losses, A, kappa, x, -rng.uniform(0.02, 0.2) * steepest * (x != 0)


@pytest.mark.parametrize("seed", range(12))
def test_the_length_is_where_the_objective_is_lowest(seed: int) -> None:
    losses, A, kappa, x, d = problem(seed)
    length = best_length(x, kappa, A @ x, LossColumns.of(losses), d, A @ d)

    def value(s: float) -> float:
        return float(losses.value(A @ (x + s * d)).sum() + kappa @ np.abs(x + s * d))

    lengths = np.linspace(0.0, 8.0, 4001)
    least = min(value(s) for s in lengths)
    first = value(0.0)
    # A whole step is good enough where it has less than a third of the slope left.
    assert value(length) <= least + (0.35 if length == 1.0 else 1e-4) * (first - least) + 1e-12


def test_the_length_has_an_end() -> None:
    losses, A, kappa, x, d = problem(1)
    terms = LossColumns.of(losses)
    assert 7.9 < best_length(x, kappa, A @ x, terms, 1e-9 * d, 1e-9 * A @ d) <= 8.0


@pytest.mark.parametrize("seed", range(8))
def test_a_shortened_step_lowers_the_model_by_what_it_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    B = sp.csc_matrix(rng.standard_normal((12, 6)) * (rng.random((12, 6)) < 0.7))
    x, slope = rng.standard_normal(6), rng.standard_normal(6)
    x[5] = 0.0
    weight, kappa = np.full(6, 0.3), np.full(6, 0.2)
    chosen = np.flatnonzero(x)
    H = (B[:, chosen].T @ B[:, chosen]).toarray() + np.diag(weight[chosen])
    step = -np.linalg.solve(H, slope[chosen] + kappa[chosen] * np.sign(x[chosen]))

    def value(d: np.ndarray) -> float:
        u = B @ d
        part = slope @ d + 0.5 * u @ u + 0.5 * weight @ d**2
        return float(part + kappa @ (np.abs(x + d) - np.abs(x)))

    ends = []
    at = Coordinates(weight, kappa, slope, x)
    for loop in (descend_along.py_func, descend_along):
        d, u = np.zeros(6), np.zeros(12)
        gained = loop(chosen, compressed(B), at, step, LENGTHS, d, u, np.empty((2, 12)))
        assert gained > 0
        assert gained == pytest.approx(-value(d))
        np.testing.assert_allclose(u, B @ d, atol=1e-12)
        assert ((x + d) * x >= 0).all()
        assert d[5] == 0
        ends.append(d)
    np.testing.assert_allclose(*ends, atol=1e-12)
    # The best of the lengths, each with what steps over zero put to 0.
    whole = x[chosen] + step
    first = min([1.0, *(-x[chosen] / step)[whole * x[chosen] < 0]])
    tried = []
    for length in np.maximum(LENGTHS, first):
        place = x[chosen] + length * step
        d = np.zeros(6)
        d[chosen] = np.where(place * x[chosen] <= 0, 0.0, place) - x[chosen]
        tried.append(value(d))
    assert -gained <= tried[0] + 1e-12
    assert any(-gained == pytest.approx(one) for one in tried)


def test_a_step_that_raises_the_model_is_not_taken() -> None:
    one = np.ones(1)
    empty = sp.csc_matrix((2, 1))
    d, u = np.zeros(1), np.zeros(2)
    gained = descend_along(np.array([0]), compressed(empty), Coordinates(one, one, one, one), one,
                           LENGTHS, d, u, np.empty((2, 2)))
    assert gained == 0.0
    assert not d.any()
    assert not u.any()


def test_the_search_is_the_same_interpreted() -> None:
    losses, A, kappa, x, d = problem(3)
    given = (x, kappa, A @ x, LossColumns.of(losses), d, A @ d)
    assert best_length.py_func(*given) == pytest.approx(best_length(*given))
