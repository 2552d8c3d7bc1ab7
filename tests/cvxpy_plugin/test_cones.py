"""Many second-order cones: few are kept, the plain answer on all of them with dual values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import cvxscreen
from cvxscreen import cvxpy_plugin
from cvxscreen.certificates.certificate import certify
from cvxscreen.cvxpy_plugin.cvxpy_solver import ACCURATE, CvxpySolver
from cvxscreen.cvxpy_plugin.plugin import recognise_any
from cvxscreen.cvxpy_plugin.size import measure
from cvxscreen.solvers.cones import ScreenedCones
from cvxscreen.solvers.loop import solve_screened

cvxpy_plugin.register()

N, D = 400, 3
RNG = np.random.default_rng(20261125)
X = RNG.standard_normal((N, D)) * [1.0, 2.0, 0.5] + [3.0, -1.0, 0.0]
WEIGHTS, ROOM = RNG.uniform(0.5, 2.0, N), RNG.uniform(0.0, 0.5, N)
WIDTH = RNG.uniform(0.05, 0.3, (N, D))


def ball() -> cp.Problem:
    c, r = cp.Variable((1, D)), cp.Variable()
    return cp.Problem(cp.Minimize(r), [cp.norm(X - c, axis=1) <= r])


def largest() -> cp.Problem:
    return cp.Problem(cp.Minimize(cp.max(cp.norm(X - cp.Variable((1, D)), 2, axis=1))))


def loop() -> cp.Problem:
    c, r = cp.Variable(D), cp.Variable()
    return cp.Problem(cp.Minimize(r), [cp.norm(x - c) <= r for x in X])


def weighted() -> cp.Problem:
    c, r = cp.Variable((1, D)), cp.Variable()
    return cp.Problem(cp.Minimize(r), [cp.multiply(WEIGHTS, cp.norm(X - c, 2, axis=1)) <= r])


def of_balls() -> cp.Problem:
    c, r = cp.Variable((1, D)), cp.Variable(nonneg=True)
    return cp.Problem(cp.Minimize(r), [cp.norm(X - c, 2, axis=1) + ROOM <= r, c >= 2.0])


def robust() -> cp.Problem:
    c = cp.Variable((1, D))
    spread = cp.norm(cp.multiply(WIDTH, np.ones((N, 1)) @ c), 2, axis=1)
    rows = spread + (X - X.mean(axis=0)) @ c[0] <= 1.0
    return cp.Problem(cp.Maximize(cp.sum(c)), [rows])


def cones() -> cp.Problem:
    c, r = cp.Variable((1, D)), cp.Variable()
    return cp.Problem(cp.Minimize(r), [cp.SOC(r * np.ones(N), (X - np.ones((N, 1)) @ c).T, axis=0)])


MAKE: dict[str, Callable[[], cp.Problem]] = {
    make.__name__: make for make in (ball, largest, loop, weighted, of_balls, robust, cones)
}


def duals(problem: cp.Problem) -> list[np.ndarray]:
    """All dual values."""
    values: list[Any] = []
    for constraint in problem.constraints:
        value = constraint.dual_value
        values += value if isinstance(value, list) else [value]
    return [np.asarray(value, dtype=float) for value in values]


@pytest.mark.parametrize("name", sorted(MAKE))
def test_the_plain_answer_with_dual_values(name: str) -> None:
    ours, truth = MAKE[name](), MAKE[name]()
    truth.solve(solver="CLARABEL", **ACCURATE)
    ours.solve(method="screen", solver="CLARABEL")
    report = cvxscreen.Report.of(ours)
    assert report.recognised, report.reason
    assert report.terms == N
    assert report.kept < N
    assert report.relative_gap <= 1e-6
    assert ours.status == truth.status == cp.OPTIMAL
    assert ours.value == pytest.approx(truth.value, rel=1e-6)
    for mine, theirs in zip(ours.variables(), truth.variables(), strict=True):
        np.testing.assert_allclose(mine.value, theirs.value, atol=1e-4)
    for mine, theirs in zip(duals(ours), duals(truth), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-4)
    for constraint in ours.constraints:
        assert np.max(constraint.violation()) <= 1e-7


def test_infeasible_cones_have_cvxpys_status() -> None:
    c = cp.Variable((1, D))
    problem = cp.Problem(cp.Minimize(cp.sum(c)), [cp.norm(X - c, axis=1) <= 0.1])
    problem.solve(method="screen", solver="CLARABEL")
    assert problem.status == cp.INFEASIBLE


def test_what_an_answer_violates_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """One cone at the start is enough; without putting back the certificate refuses the answer."""
    problem = recognise_any(ball()).problem
    solver = CvxpySolver("CLARABEL", dict(ACCURATE))
    monkeypatch.setattr("cvxscreen.solvers.cones.FIRST", 1)
    monkeypatch.setattr("cvxscreen.solvers.cones.PER_COORDINATE", 0)
    monkeypatch.setattr("cvxscreen.solvers.cones.AT_ONCE", 5)
    found = solve_screened(problem, solver)
    assert found.certificate.ok
    assert len(found.rounds) > 1
    assert found.rounds[0].refuted > 0
    monkeypatch.setattr(ScreenedCones, "keep", lambda *_: None)
    monkeypatch.setattr("cvxscreen.solvers.cones.OUTSIDE", 10.0)
    bad = solve_screened(problem, solver)
    assert not bad.certificate.ok


def test_a_certificate_refuses_bad_answers() -> None:
    problem = recognise_any(ball()).problem
    found = solve_screened(problem, CvxpySolver("CLARABEL", dict(ACCURATE)))
    x, theta, mu = found.x, found.theta, found.multipliers
    assert certify(problem, x, theta, mu).ok
    assert not certify(problem, x + 1e-3, theta, mu).ok
    assert not certify(problem, x, theta, 0.9 * mu).ok
    assert not certify(problem, x, theta, np.zeros_like(mu)).ok
    away = replace(problem.side, offset=problem.side.offset - 1e-3)
    assert not certify(replace(problem, side=away), x, theta, mu).ok


def test_in_safe_mode_every_cone_is_kept() -> None:
    problem = ball()
    problem.solve(method="screen", mode="safe", solver="CLARABEL")
    report = cvxscreen.Report.of(problem)
    assert not report.recognised or report.kept == N


def test_what_is_solved_as_quickly_as_it_is_read_is_left_to_cvxpy_at_once() -> None:
    """Balls in the plane; a geometric median is not, since it is read as it is written."""
    points = np.ones((20_000, 10))
    distances = cp.norm(points - cp.Variable((1, 10)), 2, axis=1)
    assert not measure(cp.Problem(cp.Minimize(cp.sum(distances)))).why_not()
    assert not measure(cp.Problem(cp.Minimize(cp.max(distances)))).why_not()
    flat = cp.norm(points[:, :2] - cp.Variable((1, 2)), 2, axis=1)
    assert measure(cp.Problem(cp.Minimize(cp.max(flat)))).why_not()
