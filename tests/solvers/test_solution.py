"""The record of a call: the best point, its own certificate, a point that rests on its products."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from metric_exact import small
from strategies import Case, build

import cvxscreen
from cvxscreen.core.duality import Point, reference_point
from cvxscreen.core.problem import Problem
from cvxscreen.solvers.dual_active_set import DualIterate, PathCache
from cvxscreen.solvers.newton import Newton
from cvxscreen.solvers.rows import ScreenedRows
from cvxscreen.solvers.solution import Answer, Solution, warm_start


def pair(problem: Problem) -> tuple[Point, Point]:
    """A rough point and a good one."""
    scale = problem.primal(np.zeros(problem.d))
    found = [Newton()(problem, None, share * scale) for share in (1e-1, 1e-9)]
    rough, good = (reference_point(problem, f.x, f.theta) for f in found)
    assert good.gap < 1e-3 * rough.gap
    return rough, good


def test_every_point_gets_its_own_certificate() -> None:
    """Computed once for a point, and anew for the next."""
    problem = build(Case("hinge", n=60))
    run = ScreenedRows(problem, Newton(), "safe", 1e-6, (), None)
    rough, good = pair(problem)
    assert not run.certified(rough).ok
    assert run.certified(good).ok
    assert run.certified(good) is run.certified(good)
    assert run.certified(rough).primal == pytest.approx(rough.primal, rel=1e-12)


def test_the_best_point_stays_the_best() -> None:
    """A worse point does not take the place of a better one, nor the better one's duals."""
    problem = build(Case("hinge", n=60))
    run = ScreenedRows(problem, Newton(), "safe", 1e-6, (), None)
    rough, good = pair(problem)
    none = np.zeros(problem.n, dtype=bool)
    for point in (rough, good, rough):
        run.learn(point, none)
    assert run.best is good
    assert run.solution(0.0).certificate.ok
    np.testing.assert_array_equal(run.solution(0.0).theta, good.theta)


def test_points_without_a_finite_gap_are_told_apart_by_their_certificates() -> None:
    """An answer whose balance is a matter of rounding replaces a start; what is no better stays."""
    problem = build(Case("hinge", n=60))
    rough, good = pair(problem)
    blind, none = replace(good, gap=np.inf, terms=np.inf), np.zeros(problem.n, dtype=bool)
    for start in (rough, replace(rough, gap=np.inf, terms=np.inf)):
        run = ScreenedRows(problem, Newton(), "certified", 1e-6, (), None)
        run.learn(start, none)
        run.learn(blind, none)
        assert run.best is blind
        run.learn(replace(rough, gap=np.inf, terms=np.inf), none)
        assert run.best is blind
    run.learn(good, none)
    assert run.best is good
    run.learn(blind, none)
    assert run.best is good


@pytest.mark.parametrize("diagonal", [False, True])
def test_the_point_of_an_answer_under_a_penalty(diagonal: bool) -> None:
    """An x outside the cone is settled first; products of the x that was given do not count."""
    problem = small(0, diagonal=diagonal)
    rng = np.random.default_rng(0)
    x = rng.standard_normal(problem.d)
    if not diagonal:
        side = round(problem.d**0.5)
        x = (x.reshape(side, side) + x.reshape(side, side).T).ravel()
    answer = Answer.of(problem, x, problem.losses.lo, np.zeros(0), 1e-6)
    assert not answer.proof.ok
    assert not np.allclose(answer.point.x, x)
    np.testing.assert_allclose(
        answer.point.margins, problem.design.forward(answer.point.x), atol=1e-12
    )


def test_no_light_start_from_what_is_not_certified() -> None:
    """Products of an answer count where it is one; another start is evaluated."""
    problem = build(Case("hinge", n=60))
    after = problem.with_(C=2.0 * problem.C)
    solved = cvxscreen.solve(problem, solver="newton")
    assert warm_start(after, solved, True).passes is not None
    cut = cvxscreen.solve(problem, max_iter=1)
    assert cut.status == "iteration_limit"
    start = warm_start(after, replace(cut, answer=known(cut)), True)
    assert start.passes is None
    assert start.point is not None


@pytest.mark.parametrize("off", [1e-6, 1e-2])
def test_a_light_start_keeps_x_apart_from_that_of_the_duals(off: float) -> None:
    """Its products are those of its own pair, and what lies between x and the duals' is charged."""
    problem = cvxscreen.svm(*cvxscreen.datasets.sparse_text_like(400, 200, 0.05))
    found = cvxscreen.solve(problem, tol=1e-8)
    answer = Answer.of(problem, (1.0 + off) * found.x, found.theta, np.zeros(0), 1.0)
    assert answer.proof.ok
    after = problem.with_(C=2.0 * problem.C)
    start = warm_start(after, replace(found, answer=answer), True)
    assert start.passes is not None
    assert start.size is not None
    np.testing.assert_allclose(start.passes[0], after.design.forward(start.x), atol=1e-12)
    np.testing.assert_allclose(start.passes[1], after.design.adjoint(start.theta), atol=1e-12)
    assert start.size <= found.problem.with_(C=after.C).primal(start.x)
    state = DualIterate(after, after.design, start, 0.0, PathCache())
    plain = reference_point(after, start.x, start.theta)
    assert state.gap == pytest.approx(plain.gap, rel=1e-9)


def known(solution: Solution) -> Answer:
    """The uncertified answer with its products and with x where its duals are."""
    x = -solution.problem.quadratic.solve(solution.problem.design.adjoint(solution.theta))
    return Answer.of(solution.problem, x, solution.theta, np.zeros(0), 1e-6)
