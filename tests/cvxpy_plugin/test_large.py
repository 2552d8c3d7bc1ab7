"""Large dense data stay where the caller has them; what is read off them is the same."""

from __future__ import annotations

import tracemalloc
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from cvxpy.cvxcore.python import canonInterface

from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise

cvxpy_plugin.register()

N, D = 1500, 6


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((N, D))
    return X, np.where(X @ rng.standard_normal(D) + rng.standard_normal(N) > 0, 1.0, -1.0)


def slack(X: Any, y: Any) -> Any:
    w, b, xi = cp.Variable(D), cp.Variable(), cp.Variable(N)
    rows = [cp.multiply(y, X @ w + b) >= 1 - xi, xi >= 0]
    return cp.Problem(cp.Minimize(cp.sum_squares(w) + cp.sum(xi)), rows)


def pos(X: Any, y: Any) -> Any:
    w, b = cp.Variable(D), cp.Variable()
    hinge = cp.sum(cp.pos(1 - cp.multiply(y, X @ w + b)))
    return cp.Problem(cp.Minimize(cp.sum_squares(w) + hinge))


def residual(X: Any, y: Any) -> Any:
    w, b = cp.Variable(D), cp.Variable()
    return cp.Problem(cp.Minimize(cp.sum_squares(w) + cp.norm1(X @ w + b - y)))


@pytest.mark.parametrize("make", [slack, pos, residual])
def test_dense_data_are_held_by_reference(make: Any) -> None:
    """CVXPY's constant is a copy of the caller's array already; there is no second one."""
    X, y = data()
    problem = make(X, y)
    design = recognise(problem).problem.design
    held = [leaf.value for leaf in problem.constants() if leaf.shape == (N, D)]
    assert any(np.shares_memory(design.matrix, value) for value in held)
    assert all(np.array_equal(value, X) for value in held)
    assert design.shape == (N, D + 1)


@pytest.mark.parametrize("factor", [1.0, 0.37])
def test_the_design_is_the_labelled_data(factor: float) -> None:
    """Factors of size 1 stay factors beside an intercept; others are multiplied out."""
    X, y = data()
    found = recognise(slack(X, factor * y))
    dense = found.problem.design.dense()
    truth = factor * y[:, None] * np.column_stack([X, np.ones(N)])
    sign = np.sign(dense[0, 0] * truth[0, 0])
    assert np.allclose(sign * dense, truth, rtol=1e-15, atol=0)
    assert found.problem.quadratic.free.tolist() == [False] * D + [True]


def test_two_classes_in_two_matrices_and_weights() -> None:
    X, y = data()
    w, b = cp.Variable(D), cp.Variable()
    up, down = X[y > 0], X[y < 0]
    loss = cp.sum(cp.pos(1 - 2.5 * (up @ w + b))) + cp.sum(cp.pos(1 + down @ w + b))
    found = recognise(cp.Problem(cp.Minimize(cp.sum_squares(w) + loss))).problem
    rows = np.vstack([2.5 * np.column_stack([up, np.ones(len(up))]),
                      -np.column_stack([down, np.ones(len(down))])])
    assert np.allclose(np.sort(np.abs(found.design.dense()), axis=0),
                       np.sort(np.abs(rows), axis=0), rtol=1e-14)


def test_data_in_a_parameter_never_become_a_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 x 50 in a `Parameter`: CVXPY would ask for (10,051 x 500,001) numbers, 37 GiB.

    What CVXPY compiles is the reduced problem, which has no parameters; and all that is allocated
    on the way is a few times the data.
    """
    n, d = 10_000, 50
    rng = np.random.default_rng(0)
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    X = rng.standard_normal((n, d)) + 0.3 * y[:, None]
    compiled: list[dict[int, int]] = []
    original = canonInterface.get_problem_matrix

    def watched(*given: Any, **named: Any) -> Any:
        compiled.append({key: int(size) for key, size in given[3].items()})
        return original(*given, **named)

    monkeypatch.setattr(canonInterface, "get_problem_matrix", watched)
    w, b, data = cp.Variable(d), cp.Variable(), cp.Parameter((n, d), value=y[:, None] * X)
    hinge = cp.sum(cp.pos(1 - data @ w - cp.multiply(y, b)))
    problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + 0.01 * hinge))
    assert problem.is_dpp()
    problem.solve(method="screen", solver="CLARABEL")  # compiles what is compiled
    for sign in (-1.0, 1.0):
        data.value = sign * y[:, None] * X[::-1]
        compiled.clear()
        tracemalloc.start()
        try:
            problem.solve(method="screen", solver="CLARABEL")
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        report = problem.solver_stats.extra_stats["cvxscreen"]
        assert report.recognised
        assert report.kept < 0.2 * n
        assert compiled
        assert all(set(sizes.values()) == {1} for sizes in compiled)
        assert peak <= 12 * X.nbytes
        v, c = cp.Variable(d), cp.Variable()
        loss = cp.sum(cp.pos(1 - data.value @ v - cp.multiply(y, c)))
        same = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(v) + 0.01 * loss))
        assert problem.value == pytest.approx(same.solve(method="screen", tol=1e-9), rel=1e-6)
        assert problem.value == pytest.approx(problem.objective.value, rel=1e-9)
