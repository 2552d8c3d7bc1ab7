"""Statements of Chen et al. (2013) as printed, where they are wrong, next to what is right."""

from __future__ import annotations

import numpy as np
import pytest
from tasks import shared_tasks

import cvxscreen
from cvxscreen.multitask import prox
from cvxscreen.multitask.solve import ApgJoint, Coupling, RunRecord
from cvxscreen.solvers.apg import auslender_teboulle, fista


def test_the_relaxation_agrees_on_projectors(rng) -> None:
    """``(1 + eta) I - P = eta (1 + eta) (eta I + P)^{-1}``: the factor c is used exactly once."""
    W, _ = np.linalg.qr(rng.standard_normal((6, 2)))
    P, eta = W @ W.T, 0.3
    right = eta * (1 + eta) * np.linalg.inv(eta * np.eye(6) + P)
    np.testing.assert_allclose((1 + eta) * np.eye(6) - P, right, atol=1e-13)


def test_the_loss_is_the_mean_of_each_task() -> None:
    """(65), (70), (72)-(74) lose the 1/n of (64); with a task repeated nothing may change."""
    tasks = shared_tasks(3, 5, 30, 2)
    doubled = [(np.vstack([X, X]), np.concatenate([y, y])) for X, y in tasks[:1]] + tasks[1:]
    settings = {"h": 2, "alpha": 0.2, "beta": 0.05}
    plain = cvxscreen.solve(cvxscreen.raso(tasks, **settings), tol=1e-8)
    again = cvxscreen.solve(cvxscreen.raso(doubled, **settings), tol=1e-8)
    assert again.value == pytest.approx(plain.value, rel=1e-7)
    summed = sum(
        np.maximum(1 - y * plain.predict(X, k), 0).sum() for k, (X, y) in enumerate(tasks)
    )
    means = sum(
        np.maximum(1 - y * plain.predict(X, k), 0).mean() for k, (X, y) in enumerate(tasks)
    )
    metric = plain.problem.metric(plain.M)
    assert plain.value == pytest.approx(means + metric.penalty(plain.U), rel=1e-9)
    assert summed + metric.penalty(plain.U) > 2 * plain.value


def test_the_substitution_turns_rows_the_other_way(rng) -> None:
    """(66): ``xhat = Sigma^{-1/2} P' x``; with P as printed the margins are not kept."""
    M = prox.fantope(np.diag(rng.random(4)) + 0.1 * np.ones((4, 4)), 2)
    M = prox.fantope(M + 0.2 * (rng.standard_normal((4, 4))), 2)
    values, P = np.linalg.eigh(np.linalg.inv(0.2 * np.eye(4) + M))
    x, u = rng.standard_normal(4), rng.standard_normal(4)
    turned = np.sqrt(values) * (P.T @ u)
    assert turned @ ((P.T @ x) / np.sqrt(values)) == pytest.approx(x @ u, rel=1e-12)
    assert abs(turned @ ((P @ x) / np.sqrt(values)) - x @ u) > 1e-2


def test_the_critical_parameters_are_exchanged(rng) -> None:
    """(80): g reaches 0 at ``s^2 / eta^2`` and 1 at ``s^2 / (1 + eta)^2``, not the reverse."""
    s, eta = 0.7, 0.2
    for t, expected in ((s**2 / eta**2, 0.0), (s**2 / (1 + eta) ** 2, 1.0)):
        assert np.clip(s / np.sqrt(t) - eta, 0, 1) == pytest.approx(expected, abs=1e-12)

        def cost(g, t=t):
            return s**2 / (eta + g) + t * g

        grid = np.linspace(0, 1, 1001)
        assert grid[np.argmin(cost(grid))] == pytest.approx(expected, abs=2e-3)


def test_a_weight_needs_the_square_root(rng) -> None:
    """Line 32 as printed, ``s / t - eta``, does not give weights that sum to h."""
    s, eta, h = rng.random(8) + 0.2, 0.3, 3
    g = prox.box_norm_weights(s, eta, h)
    inner = np.flatnonzero((g > 0) & (g < 1))
    t = ((s[inner] / (g[inner] + eta)) ** 2)[0]
    np.testing.assert_allclose(s[inner] / np.sqrt(t) - eta, g[inner], atol=1e-12)
    printed = np.clip(s / t - eta, 0, 1)
    assert abs(printed.sum() - h) > 0.1


def test_fewer_tasks_than_directions_is_feasible() -> None:
    """(71) asks the weights of at most rank(U) directions to sum to h: impossible if h > m."""
    problem = cvxscreen.raso(shared_tasks(2, 6, 40, 1), h=4, alpha=0.2, beta=0.02)
    found = cvxscreen.solve(problem, tol=1e-7)
    assert found.status == "optimal"
    assert np.trace(found.M) == pytest.approx(4, abs=1e-10)
    assert found.value == pytest.approx(problem.to_cvxpy().solve(solver="CLARABEL"), rel=1e-6)


def test_the_shared_matrix_is_features_by_features() -> None:
    """(75) prints m x m."""
    found = cvxscreen.solve(cvxscreen.raso(shared_tasks(3, 7, 20, 2), alpha=0.2, beta=0.02))
    assert found.M.shape == (7, 7)


@pytest.mark.long
def test_the_printed_apg_leaves_the_domain() -> None:
    """For small eta its search point passes ``eta I + M > 0``; the other form stays inside."""
    problem = cvxscreen.raso(shared_tasks(4, 8, 40, 2), h=2, alpha=1.0, beta=0.003)
    outside = {}
    for name, form in (("printed", fista), ("inside", auslender_teboulle)):
        run = Coupling(problem, RunRecord(problem, 1e-5))
        start = np.hstack([np.zeros((8, 4)), problem.start_metric().M])
        form(run, run.prox, start, run.stop, max_iterations=80, restart=name == "inside",
             lipschitz=2 * problem.c)
        outside[name] = run.outside
    assert outside["inside"] == 0
    assert outside["printed"] > 0
    assert ApgJoint()(problem, 1e-3).rounds[-1].relative_gap <= 1e-3


def test_the_coupling_is_not_smooth_everywhere() -> None:
    """Its curvature at ``M = 0`` is ``(2c / eta)(1 + u^2 / eta^2)``: unbounded in U."""
    eta, c, step = 0.1, 1.0, 1e-4
    for u in (0.1, 1.0, 10.0):
        def f(v, m):
            return c * v**2 / (eta + m)

        H = np.empty((2, 2))
        H[0, 0] = (f(u + step, 0) - 2 * f(u, 0) + f(u - step, 0)) / step**2
        H[1, 1] = (f(u, step) - 2 * f(u, 0) + f(u, -step)) / step**2
        H[0, 1] = H[1, 0] = (
            f(u + step, step) - f(u + step, -step) - f(u - step, step) + f(u - step, -step)
        ) / (4 * step**2)
        bound = 2 * c / eta * (1 + u**2 / eta**2)
        assert np.linalg.eigvalsh(H)[-1] == pytest.approx(bound, rel=1e-3)
