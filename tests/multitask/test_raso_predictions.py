"""Predictions that screening leaves out: what is said about them is true, and it is checked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from multitask.test_raso_screening import CASES, problem_of, run

from cvxscreen.multitask import bcd
from cvxscreen.multitask.bcd import Bcd, everything
from cvxscreen.multitask.screening import Screen, columns
from cvxscreen.multitask.task_solver import cold, solve_task


def u_steps(problem, metric, points, fixings):
    return [
        solve_task(X, f, metric, point, fixed=fixed)
        for X, f, point, fixed in zip(
            problem.X, problem.task_losses, points, fixings, strict=True
        )
    ]


def screened(problem, rounds=12):
    """After some U-steps: the screen, the metric, the points, what is known, the fixings."""
    screen, metric = Screen(problem, eager=True), problem.start_metric()
    points = u_steps(problem, metric, [cold(X) for X in problem.X], [None] * problem.m)
    known, fixings = everything(points), [None] * problem.m
    for _ in range(rounds):
        U, _, _ = columns(points)
        metric = metric.best(U, problem.h, problem.eta, problem.c)
        _, fixings = screen.decide(metric, points, known)
        points = u_steps(problem, metric, points, fixings)
        known = screen.predictions(metric, points)
    return screen, metric, points, known


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("offset", [0.0, 30.0])
def test_sums_without_the_predictions_are_those_with_them(kind: str, offset: float, rng) -> None:
    problem = problem_of(kind, 3, n=120)
    if offset:
        problem = replace(problem, X=tuple(X + offset for X in problem.X))
    _, _, points, known = screened(problem)
    assert known.held is not None
    assert known.held.sum() > 0.2 * problem.n
    U, V, b = columns(points)
    p, f = problem.predictions(U, b), problem.losses
    np.testing.assert_allclose(known.p[~known.held], p[~known.held], atol=1e-9)
    # The held terms are where they are said to be.
    assert (f.fenchel_young(p, known.theta)[known.held] == 0).all()
    assert known.total(problem, U, V, b) == pytest.approx(float(f.value(p).sum()), rel=1e-11)
    theta = known.theta.copy()
    some = rng.random(problem.n) < 0.3
    theta[some] = (0.5 * (np.maximum(f.lo, -1e3) + np.minimum(f.hi, 1e3)))[some]
    expected = float(f.fenchel_young(p, theta).sum())
    assert known.fenchel_young(problem, U, b, theta) == pytest.approx(expected, rel=1e-11)


def test_points_elsewhere_are_not_taken_for_granted() -> None:
    """Not where the test looked: all their predictions are computed, and only theirs."""
    problem = problem_of("hinge", 4, n=120)
    screen, metric, points, known = screened(problem)
    first, second, others = problem.parts[0], problem.parts[1], slice(problem.parts[2].start, None)
    assert known.held[first].any()
    assert known.held[second].any()
    points[0] = replace(points[0], u=-points[0].u)
    points[1] = replace(points[1], b=points[1].b + 5.0)
    after = screen.predictions(metric, points)
    assert not after.held[first].any()
    assert not after.held[second].any()
    np.testing.assert_array_equal(after.held[others], known.held[others])
    U, _, b = columns(points)
    p = problem.predictions(U, b)
    for part, point in zip((first, second), points[:2], strict=True):
        held = np.ones(len(p[part]), dtype=bool)
        held[point.kept] = False
        np.testing.assert_allclose(after.p[part][held], p[part][held], atol=1e-12)


def test_one_test_serves_several_metrics(monkeypatch) -> None:
    tests, decisions = [], []

    class Counting(Screen):
        def tested(self, *given):
            tests.append(1)
            return super().tested(*given)

        def decide(self, *given):
            decisions.append(1)
            return super().decide(*given)

    monkeypatch.setattr(bcd, "Screen", Counting)
    count, _ = run(problem_of("hinge", 1, n=120, eta=0.02), 1e-8)
    assert count.made > 0
    assert count.wrong == 0
    assert 0 < len(tests) < 0.7 * len(decisions)


def test_screening_waits_until_it_is_expected_to_pay() -> None:
    problem = problem_of("hinge", 2, n=300, m=6)
    rounds = Bcd()(problem, 1e-7).rounds
    kept = np.array([r.kept for r in rounds]) / problem.n
    assert kept[1] == 1.0
    assert kept[-1] < 0.6
    count, _ = run(problem, 1e-7, eager=False)
    assert count.made > 0
    assert count.wrong == 0
