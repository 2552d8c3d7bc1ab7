"""Accelerated proximal gradient: the algorithm, and as a solver of smooth problems."""

from __future__ import annotations

import numpy as np
import pytest

import cvxscreen
from cvxscreen.errors import InvalidInput
from cvxscreen.solvers.apg import Apg, Momentum, auslender_teboulle, fista


class LeastSquares:
    """``1/2 ||A x - y||^2``."""

    def __init__(self, A, y):
        self.A, self.y, self.seen = A, y, []

    def value(self, x):
        self.seen.append(x)
        return 0.5 * float(np.sum((self.A @ x - self.y) ** 2))

    def value_gradient(self, x):
        residual = self.A @ x - self.y
        self.seen.append(x)
        return 0.5 * float(residual @ residual), self.A.T @ residual


@pytest.fixture
def lasso(rng: np.random.Generator):
    """An ill-conditioned lasso with its optimal value from a long run."""
    A = rng.standard_normal((40, 25)) * np.geomspace(1, 8, 25)
    y = A @ np.where(rng.random(25) < 0.3, 1.0, 0.0) + rng.standard_normal(40)
    f = LeastSquares(A, y)

    def F(x):
        return f.value(x) + np.abs(x).sum()

    def gap(x):
        scaled = A @ x - y
        theta = scaled / max(1.0, np.abs(A.T @ scaled).max())
        return F(x) + 0.5 * theta @ theta + theta @ y

    return f, F, gap


def prox_l1(z, step):
    return np.sign(z) * np.maximum(np.abs(z) - step, 0.0)


FORM = {
    "plain": lambda f, s, stop, **k: fista(f, prox_l1, s, stop, restart=False, **k),
    "restart": lambda f, s, stop, **k: fista(f, prox_l1, s, stop, **k),
    "at": lambda f, s, stop, **k: auslender_teboulle(f, prox_l1, s, stop, **k),
}


@pytest.mark.parametrize("form", FORM)
def test_every_form_closes_the_gap(form: str, lasso) -> None:
    f, F, gap = lasso
    result = FORM[form](f, np.zeros(25), lambda x, k: gap(x) <= 1e-8 * F(x), max_iterations=20_000)
    assert result.stopped
    assert gap(result.x) <= 1e-8 * F(result.x)


@pytest.mark.parametrize("form", ["plain", "restart"])
def test_a_run_goes_on_where_another_has_stopped(form: str, lasso) -> None:
    f, F, gap = lasso
    run = FORM[form]
    whole = run(f, np.zeros(25), lambda x, k: gap(x) <= 1e-8 * F(x))
    first = run(f, np.zeros(25), lambda x, k: gap(x) <= 1e-3 * F(x))
    assert 0 < first.iterations < whole.iterations
    second = run(f, first.x, lambda x, k: gap(x) <= 1e-8 * F(x), momentum=first.momentum)
    assert first.iterations + second.iterations == whole.iterations
    np.testing.assert_array_equal(second.x, whole.x)


def test_momentum_of_some_coordinates() -> None:
    momentum = Momentum(np.arange(5.0), 2.0, 3.0)
    some = momentum.take(np.array([1, 4]))
    np.testing.assert_array_equal(some.search, [1.0, 4.0])
    assert (some.weight, some.lipschitz) == (2.0, 3.0)


def test_restarts_pay_on_ill_conditioned_problems(lasso) -> None:
    f, F, gap = lasso
    steps = {
        form: FORM[form](f, np.zeros(25), lambda x, k: gap(x) <= 1e-9 * F(x)).iterations
        for form in ("plain", "restart", "at")
    }
    assert steps["restart"] < 0.7 * steps["plain"]
    assert steps["at"] < steps["plain"]


def test_the_rate_of_the_paper_holds(lasso) -> None:
    """``F(x_k) - F* <= 2 L ||x_0 - x*||^2 / (k+1)^2`` with L at most twice the best constant."""
    f, F, gap = lasso
    end = fista(f, prox_l1, np.zeros(25), lambda x, k: gap(x) <= 1e-12 * F(x))
    best = 2 * np.linalg.norm(f.A, 2) ** 2
    worst = []

    def stop(x, k):
        if k:
            worst.append((F(x) - F(end.x)) * (k + 1) ** 2 / (2 * best * np.sum(end.x**2)))
        return False

    fista(f, prox_l1, np.zeros(25), stop, restart=False, max_iterations=200)
    assert len(worst) == 200
    assert max(worst) <= 1.0


def test_auslender_teboulle_stays_in_the_set(rng: np.random.Generator) -> None:
    """All evaluations of f lie in the box; the other form leaves it."""
    A = rng.standard_normal((30, 12)) * np.geomspace(1, 10, 12)
    f = LeastSquares(A, 5 * rng.standard_normal(30))

    def inside(x):
        return ((x >= -1e-12) & (x <= 1 + 1e-12)).all()

    def project(z, step):
        return np.clip(z, 0.0, 1.0)

    for run, stays in ((auslender_teboulle, True), (fista, False)):
        f.seen.clear()
        run(f, project, np.full(12, 0.5), lambda x, k: False, max_iterations=60)
        assert all(inside(x) for x in f.seen) is stays


def test_the_line_search_ends_at_rounding(lasso) -> None:
    """At the optimum both sides agree to all digits; without the slack L would double for ever."""
    f, F, gap = lasso
    end = fista(f, prox_l1, np.zeros(25), lambda x, k: False, max_iterations=4000)
    assert end.lipschitz <= 4 * np.linalg.norm(f.A, 2) ** 2
    assert gap(end.x) <= 1e-10 * F(end.x)


def problems():
    X, y = cvxscreen.datasets.two_gaussians(300, 6, seed=3)
    return {
        "squared hinge": cvxscreen.svm(X, y, C=0.5, loss="squared_hinge"),
        "smoothed hinge, intercept": cvxscreen.svm(X, y, loss="smoothed_hinge", intercept=True),
        "huber, intercept": cvxscreen.regression(X, 3 * X[:, 0] + y, loss="huber", intercept=True),
        "smoothed epsilon": cvxscreen.regression(X, X[:, 1] + y, C=0.2, loss="smoothed_epsilon"),
    }


@pytest.mark.parametrize("name", problems())
def test_agrees_with_newton(name: str) -> None:
    problem = problems()[name]
    found = Apg()(problem, None, 1e-9)
    assert found.status == "optimal"
    proof = cvxscreen.certify(problem, found.x, found.theta, tol=1e-8)
    assert proof.ok, proof.reason
    newton = cvxscreen.solve(problem, tol=1e-9)
    assert proof.primal == pytest.approx(newton.value, rel=1e-8)


def test_the_name_forces_it_with_screening_around() -> None:
    problem = problems()["squared hinge"]
    solution = cvxscreen.solve(problem, solver="apg", tol=1e-8)
    assert solution.status == "optimal"
    assert solution.solver == "APG"


def test_learns_a_metric() -> None:
    """The prox of ``||M||_F^2`` over positive semidefinite M."""
    X, y = cvxscreen.datasets.two_gaussians(40, 4, seed=1)
    problem = cvxscreen.rtlm(X, cvxscreen.triplets(X, y, k=2), 5.0, gamma=0.5)
    usual = cvxscreen.solve(problem, tol=1e-10)
    found = cvxscreen.solve(problem, tol=1e-8, solver="apg")
    assert (found.solver, found.status) == ("APG", "optimal")
    assert found.certificate.ok, found.certificate.reason
    assert found.value == pytest.approx(usual.value, rel=1e-6)
    M, expected = found.x.reshape(4, 4), usual.x.reshape(4, 4)
    assert np.linalg.eigvalsh(expected)[0] < 1e-9  # the constraint does something
    assert np.linalg.norm(M - expected) <= 1e-3 * np.linalg.norm(expected)


def test_takes_a_dense_quadratic_and_penalties(rng: np.random.Generator) -> None:
    from dataclasses import replace

    from cvxscreen.core.penalty import L1, NonNegative
    from cvxscreen.core.problem import Quadratic

    problem = problems()["smoothed epsilon"]
    G = rng.standard_normal((6, 6))
    dense = replace(problem, quadratic=Quadratic(np.ones(6), G @ G.T))
    found = Apg()(dense, None, 1e-10)
    assert cvxscreen.certify(dense, found.x, found.theta, tol=1e-8).ok
    for penalty in (L1(np.full(6, 5.0)), NonNegative()):
        bent = replace(problem, penalty=penalty)
        found = Apg()(bent, None, 1e-9)
        assert cvxscreen.certify(bent, found.x, found.theta, tol=1e-8).ok


def test_refuses_kinks_and_side_constraints() -> None:
    X, y = cvxscreen.datasets.two_gaussians(50, 3, seed=0)
    with pytest.raises(InvalidInput, match="smooth losses"):
        cvxscreen.solve(cvxscreen.svm(X, y), solver="apg")
    with pytest.raises(InvalidInput, match="kernel"):
        cvxscreen.solve(cvxscreen.svm(X, y, loss="squared_hinge", kernel="rbf"), solver="apg")
