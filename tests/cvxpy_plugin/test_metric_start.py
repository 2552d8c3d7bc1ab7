"""The first point for metric learning in CVXPY, and that nothing else gets one."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from cvxscreen import cvxpy_plugin
from cvxscreen.bounds import midpoint_ball
from cvxscreen.core.duality import reference_point
from cvxscreen.cvxpy_plugin import plugin
from cvxscreen.cvxpy_plugin.cvxpy_solver import CvxpySolver
from cvxscreen.cvxpy_plugin.metric_start import metric_start
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise
from cvxscreen.screening.verdict import judge

cvxpy_plugin.register()


def learning(
    n: int = 1200, d: int = 4, factor: float | None = None, **kind: Any
) -> tuple[Any, Any]:
    """Triplets of random points, the metric to be learned, and the problem.

    With a `factor` of 1 every CVXPY keeps the square in a plain solve; see `Data`.
    """
    rng = np.random.default_rng(3)
    first, second = rng.normal(size=(n, d)) * (1 + np.arange(d)), rng.normal(size=(n, d))
    H = np.einsum("na,nb->nab", first, first) - np.einsum("na,nb->nab", second, second)
    M = cp.Variable((d, d), **(kind or {"PSD": True}))
    loss = cp.sum(cp.pos(1 - H.reshape(n, -1) @ cp.vec(M, order="F")))
    square = cp.sum_squares(M if factor is None else factor * M)
    return M, cp.Problem(cp.Minimize(40.0 * n * square + loss))


def test_the_start_is_near_the_optimum() -> None:
    problem = recognise(learning()[1]).problem
    start = metric_start(problem)
    assert start is not None
    point = reference_point(problem, start.x, start.theta, start.multipliers)
    assert point.relative_gap <= 1e-2
    wrong = reference_point(problem, start.x, start.theta, -start.multipliers)
    assert wrong.relative_gap > 2 * point.relative_gap


@pytest.mark.parametrize("solver", ["CLARABEL", "SCS"])
def test_the_answer_is_that_of_the_plain_solve(
    solver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = []

    def spy(problem: Any) -> Any:
        used.append(metric_start(problem))
        return used[-1]

    monkeypatch.setattr(plugin, "metric_start", spy)
    M, problem = learning()
    problem.solve(method="screen", solver=solver)
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert used[0] is not None
    assert report.kept < report.terms
    truth, plain = learning(factor=1.0)
    plain.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    assert problem.value == pytest.approx(plain.value, rel=1e-7)
    assert np.abs(M.value - truth.value).max() <= 1e-4 * np.abs(truth.value).max()


def test_the_start_is_inside_so_that_it_proves() -> None:
    """From the first point alone, before any conic solver: most terms, and none of them wrongly."""
    problem = recognise(learning()[1]).problem
    start = metric_start(problem)
    assert start is not None
    assert problem.side.surely_holds(start.x)
    point = reference_point(problem, start.x, start.theta, start.multipliers)
    verdict = judge(problem, midpoint_ball(problem, point))
    assert verdict.zero.sum() + verdict.linear.sum() > 0.8 * problem.n
    options = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
    truth = CvxpySolver("CLARABEL", options)(problem)
    margins = problem.design.forward(truth.x) - problem.losses.b
    assert (margins[verdict.zero] > -1e-6).all()
    assert (margins[verdict.linear] < 1e-6).all()


def test_reduce_starts_from_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The conic solver never sees all terms."""
    sizes = []
    original = CvxpySolver.__call__

    def watched(self: CvxpySolver, problem: Any, *rest: Any) -> Any:
        sizes.append(problem.n)
        return original(self, problem, *rest)

    monkeypatch.setattr(CvxpySolver, "__call__", watched)
    M, problem = learning(n=3000)
    reduced = cvxpy_plugin.reduce(problem)
    assert sizes
    assert max(sizes) < 0.5 * 3000
    reduced.problem.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10)
    assert reduced.restore().ok
    truth, plain = learning(n=3000, factor=1.0)
    plain.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    assert problem.value == pytest.approx(plain.value, rel=1e-7)
    assert np.abs(M.value - truth.value).max() <= 1e-4 * np.abs(truth.value).max()


def test_other_problems_get_none() -> None:
    assert metric_start(recognise(learning(n=200)[1]).problem) is None
    assert metric_start(recognise(learning(symmetric=True)[1]).problem) is None
    M, problem = learning()
    tied = cp.Problem(problem.objective, [cp.trace(M) == 1])
    assert metric_start(recognise(tied).problem) is None
    off = cp.Problem(problem.objective, [M >> 0.01 * np.eye(4)])
    assert metric_start(recognise(off).problem) is None
