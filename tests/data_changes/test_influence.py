"""`influence`: bounds that refits keep, distances that blocks and single refits find alike."""

from __future__ import annotations

import numpy as np
import pytest

import cvxscreen as cs
from cvxscreen.data_changes import influence as module
from cvxscreen.data_changes.refits import moves_without
from cvxscreen.datasets import two_gaussians

X, Y = two_gaussians(60, 3, seed=1)
T = X @ np.array([1.0, -2.0, 0.5]) + np.sin(5.0 * X[:, 0])
PROBLEMS = {
    "hinge": lambda: cs.svm(X, Y, C=0.5),
    "intercept": lambda: cs.svm(X, Y, C=0.5, intercept=True),
    "smoothed": lambda: cs.svm(X, Y, loss="smoothed_hinge", intercept=True),
    "quantile": lambda: cs.regression(X, T, loss="quantile", tau=0.8, intercept=True),
    "elastic net": lambda: cs.sparse_svm(X, Y, 0.02),
    "kernel": lambda: cs.svm(X, Y, kernel="rbf", kernel_params={"gamma": 0.5}),
}


def test_influence_bounds_what_refits_find() -> None:
    solution = cs.solve(cs.svm(X, Y, C=0.5), tol=1e-11)
    found = cs.influence(solution, refit=60)
    assert (found.distance <= found.bound + 1e-6).all()
    assert (found.bound[solution.screening.zero] == 0).all()
    assert (found.distance > 0.4 * found.bound).any()
    assert "without influence" in str(found)
    some = cs.influence(solution, refit=3)
    assert (~np.isnan(some.distance)).sum() == 3


@pytest.mark.parametrize("name", [name for name in PROBLEMS if name != "hinge"])
def test_influence_beside_an_intercept_under_penalties_and_of_kernels(name: str) -> None:
    solution = cs.solve(PROBLEMS[name](), tol=1e-11)
    found = cs.influence(solution)
    free = solution.problem.quadratic.free
    for i in range(0, 60, 6):
        weights = (np.arange(60) != i).astype(float)
        without = cs.reweight(solution, weights, tol=1e-12).solution
        away = solution.problem.quadratic.norm(without.x - solution.x)
        assert away <= found.bound[i] + 1e-5 * (1.0 + away)
    assert np.isfinite(found.bound).any()
    assert free.any() == (name not in ("elastic net", "kernel"))


@pytest.mark.parametrize("name", ["hinge", "intercept", "smoothed", "quantile"])
def test_blocks_find_the_distances_of_refits_made_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    solution = cs.solve(PROBLEMS[name](), tol=1e-12)
    together = cs.influence(solution, refit=60, tol=1e-11)
    in_blocks = moves_without(solution, np.arange(60), 1e-8)
    assert np.isfinite(in_blocks).mean() > 0.9
    known = np.isfinite(in_blocks)
    np.testing.assert_allclose(together.distance[known], in_blocks[known], atol=1e-5)
    monkeypatch.setattr(module, "moves_without", lambda *_: np.full(60, np.nan))
    alone = cs.influence(solution, refit=60, tol=1e-11)
    np.testing.assert_allclose(together.distance, alone.distance, atol=1e-5)


@pytest.mark.parametrize("name", ["elastic net", "kernel"])
def test_what_no_block_takes_is_left_to_refits_made_alone(name: str) -> None:
    solution = cs.solve(PROBLEMS[name](), tol=1e-10)
    assert np.isnan(moves_without(solution, np.arange(60), 1e-8)).all()
    assert np.isfinite(cs.influence(solution, refit=2).distance).sum() == 2
    assert moves_without(solution, np.arange(0), 1e-8).shape == (0,)
