"""Large problems begin at a sample's optimum: the same answer, and no harm where it misleads.

By the ordinary loop (`solver="newton"`): the compiled path samples in a way of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cvxscreen
from cvxscreen.solvers import prediction as guess
from cvxscreen.solvers.prediction import PredictionRadius, samples

N = 6000


@pytest.fixture(autouse=True)
def _sampled_from_few_terms_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guess, "PILOT", 2000)
    monkeypatch.setattr(guess, "SHARE", 5)
    monkeypatch.setattr(guess, "FAR", 0.7)


def problem(loss: str = "hinge", intercept: bool = False, **options: Any) -> Any:
    X, y = cvxscreen.datasets.two_gaussians(N, 4, seed=0)
    if "hinge" in loss:
        return cvxscreen.svm(X, y, C=0.1, loss=loss, intercept=intercept, **options)
    target = X[:, 0] + np.random.default_rng(0).standard_t(3, N)
    return cvxscreen.regression(X, target, C=0.1, loss=loss, intercept=intercept, **options)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["hinge", "smoothed_hinge", "squared_hinge", "absolute", "huber"])
def test_the_optimum_is_that_of_a_solve_without_samples(loss, intercept, monkeypatch) -> None:
    p = problem(loss, intercept)
    found = cvxscreen.solve(p, tol=1e-8, solver="newton")
    monkeypatch.setattr(guess, "PILOT", 10**9)
    plain = cvxscreen.solve(p, tol=1e-8, solver="newton")
    assert found.status == plain.status == "optimal"
    assert found.value == pytest.approx(plain.value, rel=2e-8)
    assert plain.rounds[0].kept == N
    smooth = intercept and loss in ("squared_hinge", "smoothed_hinge", "huber")
    assert smooth or found.rounds[0].kept < 0.7 * N


def test_samples_are_nested_and_stand_for_all_terms() -> None:
    small, large = samples(problem()) or pytest.fail("no samples")
    assert (small.n, large.n) == (N // guess.SHARE // guess.NESTED, N // guess.SHARE)
    rows = {tuple(row) for row in large.design.dense()}
    assert all(tuple(row) in rows for row in small.design.dense())
    for part in (small, large):
        assert part.losses.hi.sum() - part.losses.lo.sum() == pytest.approx(0.1 * N)


def test_the_width_covers_the_error_of_the_sample() -> None:
    p = problem()
    small, large = samples(p) or pytest.fail("no samples")
    first, second = (cvxscreen.solve(part, tol=1e-8).x for part in (small, large))
    width = PredictionRadius.from_samples(p, large, first, second)
    assert width is not None
    moved = np.abs(p.design.forward(cvxscreen.solve(p, tol=1e-8).x - second)) / p.norms
    assert np.quantile(moved, 0.9) <= width.width
    assert (
        PredictionRadius.from_samples(p, large, first + 100.0, second) is None
    )  # far: says little


def test_terms_on_parabolas_beside_an_intercept_are_not_sampled() -> None:
    assert samples(problem("squared_hinge", True)) is None
    assert samples(problem("squared_hinge")) is not None


@pytest.mark.parametrize("case", ["rare class", "sorted", "weights", "outliers"])
def test_a_sample_that_misleads_costs_rounds_not_the_answer(case: str) -> None:
    rng = np.random.default_rng(0)
    X, y = cvxscreen.datasets.two_gaussians(N, 4, seed=0)
    weight = None
    if case == "rare class":
        y = np.where(np.arange(N) == 17, 1.0, -1.0)
    elif case == "sorted":
        order = np.argsort(y + 0.1 * X[:, 0])
        X, y = X[order], y[order]
    elif case == "weights":
        weight = np.exp(3.0 * rng.standard_normal(N))
    else:
        X = X * np.abs(rng.standard_cauchy(N))[:, None] ** 2
    for intercept in (False, True):
        p = cvxscreen.svm(X, y, C=0.1, intercept=intercept, sample_weight=weight)
        found = cvxscreen.solve(p, tol=1e-7)
        assert found.status == "optimal"
        assert found.certificate.ok


def test_small_problems_and_starts_take_no_samples() -> None:
    X, y = cvxscreen.datasets.two_gaussians(1500, 4, seed=0)
    assert samples(cvxscreen.svm(X, y)) is None
    wide = cvxscreen.svm(np.random.default_rng(0).standard_normal((3000, 40)), np.resize(y, 3000))
    assert samples(wide) is None
    first = cvxscreen.solve(problem(), tol=1e-6)
    again = cvxscreen.solve(problem(), tol=1e-8, start=first)
    assert again.status == "optimal"
