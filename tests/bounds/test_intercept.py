"""One unpenalised coordinate: its interval holds the optimum, decisions are right and many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rational import Fraction
from strategies import CASES, LOSSES, Case, Reference, build, points, reference, solved

from cvxscreen.bounds import BOUNDS
from cvxscreen.bounds.regions import Ball, intercept_interval
from cvxscreen.core.duality import reference_point
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.models.linear import regression, svm
from cvxscreen.screening.reduction import judge

WITH_B = [case for case in CASES if case.intercept]


def interval(ball: Ball) -> tuple[float, float]:
    """The intercept's interval over a ball, rows taken as they are."""
    problem = ball.problem
    e = problem.free_columns[:, 0]
    w = np.where(problem.quadratic.free, 0.0, ball.centre)
    middle = problem.design.forward(w)
    reach = ball.radius * problem.norms * (1 + 1e-9) + 1e-9 * np.abs(middle)
    return intercept_interval(problem, middle, reach, e, float(ball.centre[-1]))


def midpoints(loss: str, rng: np.random.Generator) -> Iterator[tuple[Any, Any]]:
    """The optimum and the midpoint ball of two points, of every case with a loss."""
    for case in (case for case in WITH_B if case.loss == loss):
        ref = reference(case)
        assert ref.truth is not None
        for point in points(ref, rng, 2):
            yield ref.truth, BOUNDS["midpoint"](ref.problem, point)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_interval_contains_the_optimal_intercept(
    loss: str, rng: np.random.Generator
) -> None:
    """Every loss, every kind of data, balls of every size."""
    for truth, region in midpoints(loss, rng):
        if isinstance(region, Ball):
            low, high = interval(region)
            assert low <= truth.x[-1] <= high


@pytest.mark.parametrize("loss", LOSSES)
def test_margins_intervals_contain_the_exact_margins(
    loss: str, rng: np.random.Generator
) -> None:
    """Outward rounding in rational arithmetic, centring of the rows included."""
    for truth, region in midpoints(loss, rng):
        low, high = region.intervals()
        for a, t, b in zip(low, truth.margins, high, strict=True):
            assert float(a) <= t <= float(b)


@pytest.mark.parametrize("shift", [0.0, 1.0, 30.0, 1e3])
@pytest.mark.parametrize("loss", ["hinge", "absolute", "smoothed_epsilon"])
def test_shifted_data_are_decided_as_often(loss: str, shift: float) -> None:
    """Adding a constant to a feature is absorbed by b: right decisions, and not fewer."""
    rng = np.random.default_rng(2)
    X = rng.integers(-8, 9, (40, 3)) / 8.0  # exact after the shift, too
    response = X @ [1.0, -1.0, 0.5] + 0.3 * rng.standard_normal(40)
    counts = []
    for added in (0.0, shift):
        moved = X + added * np.array([1.0, -1.0, 0.5])
        problem = (
            svm(moved, np.where(response > 0, 1, -1), C=0.5, intercept=True) if loss == "hinge"
            else regression(moved, response, C=0.5, loss=loss, intercept=True)
        )
        ref = solved(problem)
        assert ref.truth is not None
        x = ref.x.copy()
        step = 1e-4 * np.random.default_rng(3).standard_normal(3)
        x[:3] += step
        x[3] -= float(added * np.array([1.0, -1.0, 0.5]) @ step)
        point = reference_point(problem, x, ref.theta)
        verdict = judge(problem, BOUNDS["midpoint"](problem, point))
        for i in np.flatnonzero(verdict.codes >= 0):
            first, last = ref.exact.ends[i][verdict.codes[i]]  # type: ignore[union-attr]
            assert first <= ref.truth.margins[i] <= last
        counts.append(int((verdict.codes >= 0).sum()))
    assert counts[0] >= 20
    assert counts[1] >= 0.9 * counts[0]


@pytest.mark.parametrize("shift", [1e3, 1e6])
def test_shifted_responses_are_decided_as_often(shift: float) -> None:
    """A constant added to y moves b and nothing else, however small the ball."""
    rng = np.random.default_rng(12)
    X = rng.integers(-8, 9, (60, 3)) / 8.0
    y = np.round(1024 * (X @ [1.0, -1.0, 0.5] + 0.3 * rng.standard_normal(60))) / 1024
    counts = []
    for added in (0.0, shift):
        ref = solved(regression(X, y + added, C=0.5, intercept=True))
        assert ref.truth is not None
        x = ref.x + np.r_[1e-6 * np.ones(3), 0.0]
        point = reference_point(ref.problem, x, ref.theta)
        counts.append(int((judge(ref.problem, BOUNDS["midpoint"](ref.problem, point)).codes
                           >= 0).sum()))
    assert counts[0] >= 50
    assert counts[1] >= 0.9 * counts[0]


def known_b(ref: Reference, ball: Ball) -> np.ndarray:
    """What could be decided if the optimal intercept were known: the ceiling."""
    problem = ref.problem
    e = problem.free_columns[:, 0]
    w = np.where(problem.quadratic.free, 0.0, ball.centre)
    middle = problem.design.forward(w) + e * ref.x[-1]
    reach = ball.radius * problem.norms
    return problem.losses.piece_within(middle - reach, middle + reach) >= 0


def test_decisions_are_not_far_below_those_with_a_known_intercept() -> None:
    """At relative gaps of 1e-4 to 1e-8, at least two thirds of what a known b would decide."""
    decided, ceiling = 0, 0
    rng = np.random.default_rng(5)
    for loss in LOSSES:
        for seed in range(6):
            ref = reference(Case(loss, True, "plain", seed=seed, n=60, d=3, C=0.25))
            for blur in (1e-3, 1e-4):
                x = ref.x + blur * rng.standard_normal(ref.problem.d)
                ball = BOUNDS["midpoint"](ref.problem, reference_point(ref.problem, x, ref.theta))
                if not isinstance(ball, Ball):
                    continue
                decided += int((judge(ref.problem, ball).codes >= 0).sum())
                ceiling += int(known_b(ref, ball).sum())
    assert ceiling > 2000
    assert decided > 0.66 * ceiling


def test_a_bad_intercept_in_the_reference_costs_little(rng: np.random.Generator) -> None:
    """The ball bounds w only: with the same radius, a centre whose b is off decides as much."""
    for loss in ("hinge", "absolute", "huber"):
        ref = reference(Case(loss, True, "plain", n=60, d=3, C=0.25))
        problem = ref.problem
        x = ref.x + 1e-4 * rng.standard_normal(problem.d)
        ball = BOUNDS["midpoint"](problem, reference_point(problem, x, ref.theta))
        assert isinstance(ball, Ball)
        before = (judge(problem, ball).codes >= 0).sum()
        for off in (-30.0, -1.0, 1.0, 30.0):
            e = problem.free_columns[:, 0]
            centre = ball.centre.copy()
            centre[-1] += off
            moved = replace(ball, centre=centre, margins=ball.margins + off * e)
            assert (judge(problem, moved).codes >= 0).sum() >= 0.95 * before - 1


@pytest.mark.parametrize("loss", ["hinge", "smoothed_hinge", "squared_hinge"])
def test_nearly_one_class(loss: str) -> None:
    """59 rows of one class and 1 of the other: intervals are right, ends may be infinite."""
    rng = np.random.default_rng(6)
    X, y = rng.standard_normal((60, 3)), np.r_[np.ones(59), -1.0]
    for C in (2.0**-10, 1.0, 2.0**10):
        ref = solved(svm(X, y, C=C, loss=loss, intercept=True))
        assert ref.truth is not None
        for point in points(ref, rng, 6):
            low, high = BOUNDS["midpoint"](ref.problem, point).intervals()
            for a, t, b in zip(low, ref.truth.margins, high, strict=True):
                assert float(a) <= t <= float(b)


def half_touched(weight: float) -> Problem:
    """A coordinate without penalty that only half of the rows use, all of one sign."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((20, 2))
    e = np.r_[np.ones(10), np.zeros(10)][:, None]
    y = np.r_[np.ones(10), np.resize([1.0, -1.0], 10)]
    losses = Losses(np.ones(20), 0.0, 0.0, -weight, 0.0)
    return Problem(Rows(X, y, e), losses, Quadratic([1.0, 1.0, 0.0]), np.zeros(3))


def test_an_unbounded_intercept_is_no_trouble() -> None:
    """All rows that use b are of one class: b* is unbounded, other rows are decided anyway."""
    problem = half_touched(2.0**-6)
    x = np.array([0.0, 0.0, 5.0])
    theta = np.where(np.arange(20) < 10, 0.0, -(2.0**-6))
    pair = reference_point(problem, x, theta)
    point = reference_point(problem, np.r_[pair.x_theta[:2], 50.0], theta)
    region = BOUNDS["midpoint"](problem, point)
    low, high = region.intervals()
    assert not np.isnan(low).any()
    assert not np.isnan(high).any()
    assert (high[:10] == np.inf).all()
    codes = judge(problem, region).codes
    assert (codes[10:] >= 0).all()


def test_rows_without_the_free_coordinate_ignore_its_interval() -> None:
    """Their intervals are those of the ball alone, whatever b is."""
    problem = half_touched(1.0)
    point = reference_point(problem, np.array([0.2, -0.1, 0.3]))
    region = BOUNDS["midpoint"](problem, point)
    assert isinstance(region, Ball)
    low, high = region.intervals()
    w = np.where(problem.quadratic.free, 0.0, region.centre)
    middle, reach = problem.design.forward(w)[10:], region.radius * problem.norms[10:]
    assert (low[10:] <= middle - reach + 1e-12).all()
    assert (high[10:] >= middle + reach - 1e-12).all()


@pytest.mark.parametrize("m", [2, 3])
def test_several_free_coordinates_decide_only_what_they_do_not_touch(m: int) -> None:
    """No theorem bounds two free coordinates here: intervals of touched rows are the whole line."""
    rng = np.random.default_rng(8)
    E = rng.standard_normal((20, m))
    E[12:] = 0.0
    losses = Losses(np.ones(20), 0.0, 0.0, -0.1, 0.0)
    y = np.resize([1.0, -1.0], 20)
    problem = Problem(
        Rows(rng.standard_normal((20, 2)), y, E), losses, Quadratic(np.r_[1.0, 1.0, np.zeros(m)]),
        np.zeros(2 + m),
    )
    point = reference_point(problem, np.zeros(2 + m), np.full(20, -0.05))
    region = BOUNDS["midpoint"](problem, point)
    low, high = region.intervals()
    assert np.isneginf(low[:12]).all()
    assert np.isposinf(high[:12]).all()
    assert np.isfinite(low[12:]).all()
    assert np.isfinite(high[12:]).all()


def test_scaled_intercept_column() -> None:
    """A free column of 1e-6 or 1e6 instead of ones: same margins, same decisions."""
    base = build(Case("hinge", True, n=40, C=0.25))
    counts = []
    for size in (1.0, 1e-6, 1e6):
        design = Rows(base.design.matrix, base.design.scale, size * base.design.extra)
        problem = Problem(design, base.losses, base.quadratic, base.linear)
        ref = solved(problem)
        assert ref.truth is not None
        point = reference_point(problem, ref.x * (1 + 1e-5), ref.theta)
        verdict = judge(problem, BOUNDS["midpoint"](problem, point))
        counts.append(int((verdict.codes >= 0).sum()))
        low, high = BOUNDS["midpoint"](problem, point).intervals()
        for a, t, b in zip(low, ref.truth.margins, high, strict=True):
            assert Fraction(float(a)) <= t <= Fraction(float(b))
    assert min(counts) >= 0.9 * max(counts) > 10
