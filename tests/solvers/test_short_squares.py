"""Squares of many terms in few coordinates as those of a triangle, certified on the data."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Lasso

import cvxscreen as cs
from cvxscreen.certificates.certificate import certify
from cvxscreen.solvers import loop, reformulations
from cvxscreen.solvers.interface import Start
from cvxscreen.solvers.reformulations import ShortSquares

RNG = np.random.default_rng(20261128)
N, D = 600, 12
X = RNG.standard_normal((N, D)) @ RNG.standard_normal((D, D)) + 0.5
Y = X @ (RNG.standard_normal(D) * (RNG.random(D) < 0.4)) + RNG.standard_normal(N)
WEIGHTS = RNG.uniform(0.1, 3.0, N)


@pytest.fixture(autouse=True)
def however_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reformulations, "ENTRIES", 0)


def lasso(data: Any = X, share: float = 0.05, **more: Any) -> Any:
    if "l2" in more:
        return cs.sparse_svr(data, Y, share, loss="squared", **more)
    C = 1.0 / (share * np.abs(X.T @ Y).max())
    return cs.regression(data, Y, C=C, loss="squared", penalty="l1", **more)


DATA = {
    "dense": {},
    "float32": {"data": X.astype(np.float32)},
    "sparse": {"data": sp.csr_array(X * (np.abs(X) > 0.5))},
    "weights": {"sample_weight": WEIGHTS},
    "hardly any penalty": {"share": 1e-5},
    "an elastic net": {"l2": 0.5},
}


@pytest.mark.parametrize("kind", DATA)
def test_both_are_the_same_function(kind: str) -> None:
    """At any point, so that both optima are the same."""
    problem = lasso(**DATA[kind])
    short = ShortSquares.of(problem)
    assert short is not None
    assert short.equivalent.n == problem.d + 1
    for x in RNG.standard_normal((5, problem.d)):
        full = problem.primal(x, problem.design.forward(x))
        less = short.equivalent.primal(x, short.equivalent.design.forward(x))
        assert less == pytest.approx(full, rel=1e-11)


@pytest.mark.parametrize("kind", DATA)
def test_answers_are_those_of_the_data_and_certified_there(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = lasso(**DATA[kind])
    found = cs.solve(problem, tol=1e-9)
    assert found.status == "optimal"
    assert found.problem is problem
    assert len(found.theta) == N
    assert certify(problem, found.x, found.theta, tol=1e-9).ok
    assert not certify(problem, found.x + 0.01, found.theta, tol=1e-9).ok
    monkeypatch.setattr(reformulations, "ENTRIES", np.inf)
    full = cs.solve(problem, tol=1e-9)
    assert found.value == pytest.approx(full.value, rel=1e-8)
    assert np.allclose(found.x, full.x, atol=1e-3 * np.abs(full.x).max())


def test_scikit_learn_agrees() -> None:
    alpha = 0.05 * np.abs(X.T @ Y).max() / N
    peer = Lasso(alpha, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(X, Y)
    assert np.allclose(cs.solve(lasso(), tol=1e-10).x, peer.coef_, atol=1e-4)


def test_a_start_leads_there_and_an_answer_back() -> None:
    problem = lasso()
    found = cs.solve(problem, tol=1e-9)
    short = ShortSquares.of(problem)
    assert short is not None
    moved = short.apply(Start(found.x, found.theta))
    assert np.allclose(moved.theta[-1], -short.equivalent.losses.b[-1])
    there = loop.solve_screened(short.equivalent, tol=1e-10)
    assert short.invert(there, 1e-9).status == "optimal"
    again = cs.solve(problem, tol=1e-9, start=found)
    assert again.value == pytest.approx(found.value, rel=1e-8)


def test_constraints_stand_beside_them() -> None:
    """As the reduced problem of a CVXPY problem has them; dual values are those of the data."""
    w = cp.Variable(D, nonneg=True)
    problem = cp.Problem(cp.Minimize(cp.sum_squares(X @ w - Y)), [cp.sum(w) == 1.0, w <= 0.4])
    problem.solve(method="screen", always=True)
    assert cs.Report.of(problem).recognised
    plain = cp.Problem(problem.objective, [cp.sum(w) == 1.0, w <= 0.4])
    value, x = problem.value, w.value
    plain.solve(solver="CLARABEL", tol_gap_rel=1e-11)
    assert value == pytest.approx(plain.value, rel=1e-8)
    assert np.allclose(x, w.value, atol=1e-5)
    for mine, other in zip(problem.constraints, plain.constraints, strict=True):
        scale = 1.0 + np.abs(other.dual_value).max()
        assert np.allclose(mine.dual_value, other.dual_value, atol=1e-5 * scale)


def test_what_is_left_as_it_is() -> None:
    """Other losses, few terms, columns that depend on others, and digits that would be lost."""
    doubled = np.column_stack([X, X[:, 0]])
    steep = X * np.logspace(0, 9, D)
    others = [
        cs.regression(X, Y, loss="huber", penalty="l1"),
        cs.regression(X, Y, loss="absolute"),
        cs.regression(X[:40], Y[:40], loss="squared", penalty="l1"),
        cs.regression(doubled, Y, loss="squared", penalty="l1"),
        cs.regression(steep, Y, loss="squared", penalty="l1"),
    ]
    for problem in others:
        assert ShortSquares.of(problem) is None
    assert ShortSquares.of(lasso()) is not None


def test_where_the_certificate_refuses_it_the_data_are_solved_from_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A triangle that is wrong costs time, not the answer."""
    true = np.linalg.cholesky
    monkeypatch.setattr(
        reformulations.np.linalg, "cholesky", lambda gram: true(gram + 0.1 * np.diag(np.diag(gram)))
    )
    problem = lasso()
    refused = loop.reformulated(problem)
    assert isinstance(refused, ShortSquares)
    there = loop.solve_screened(refused.equivalent, tol=1e-9)
    assert refused.invert(there, 1e-9).status == "inaccurate"
    found = loop.solve_screened(problem, tol=1e-9)
    assert found.status == "optimal"
    assert certify(problem, found.x, found.theta, tol=1e-9).ok
