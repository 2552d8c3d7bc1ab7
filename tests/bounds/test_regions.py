"""Regions: two balls and a cut ball give exact ranges; the cut for an intercept is never wrong."""

from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from strategies import LOSSES, Case, reference, solved

from cvxscreen.bounds import BOUNDS
from cvxscreen.bounds.regions import Ball, CutBall, Place, TwoBalls
from cvxscreen.core.duality import reference_point
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.screening.reduction import judge


def plain(A: np.ndarray, M: np.ndarray | None = None) -> Problem:
    """A problem that only lends its rows and its metric to a region."""
    d = A.shape[1]
    losses = Losses(np.zeros(len(A)), 0.0, 0.0, -1.0, 1.0)
    diagonal = np.full(d, 1.0 if M is None else 0.5)
    return Problem(Rows(A), losses, Quadratic(diagonal, M), np.zeros(d))


def ranges(problem: Problem, region: TwoBalls | CutBall) -> tuple[np.ndarray, np.ndarray]:
    """The same intervals by CLARABEL; NaN where it does not reach full accuracy."""
    A, root = problem.design.dense(), np.linalg.cholesky(problem.quadratic.dense()).T
    x = cp.Variable(problem.d)
    inside = [cp.norm(root @ (x - b.centre)) <= b.radius for b in region.balls]
    if isinstance(region, CutBall):
        inside.append(region.normal.x @ problem.quadratic.dense() @ x >= region.level)
    ends, along = [], cp.Parameter(problem.d)
    model = cp.Problem(cp.Minimize(along @ x), inside)
    for row in A:
        for side in (1.0, -1.0):
            along.value = side * row
            try:
                model.solve(solver="CLARABEL")
            except cp.error.SolverError:
                ends.append(np.nan)
                continue
            ends.append(side * model.value if model.status == "optimal" else np.nan)
    return np.array(ends[::2]), np.array(ends[1::2])


def agreeing(problem: Problem, region: TwoBalls | CutBall) -> int:
    """Of how many rows CLARABEL finds the same interval: all those where it is accurate."""
    low, high = region.intervals()
    size = 1.0 + np.abs(low) + np.abs(high)
    below, above = ranges(problem, region)
    good = np.isfinite(below) & np.isfinite(above)
    assert (np.abs(low - below)[good] <= 1e-6 * size[good]).all()
    assert (np.abs(high - above)[good] <= 1e-6 * size[good]).all()
    return int(good.sum())


def second_radius(kind: str, r: float, D: float, rng: np.random.Generator) -> float:
    """Radius of the other ball at distance D so that the two are as `kind` says."""
    return {
        "overlapping": abs(D - r) + rng.uniform(0.05, 0.95) * 2.0 * min(D, r),
        "nested": D + r + rng.uniform(0.1, 1.0),
        "inner tangent": D + r,
        "nearly disjoint": abs(D - r) + 1e-3 * min(D, r),
        "one a point": max(D, 1e-3) * 1.5,
        "concentric": rng.uniform(0.1, 2.0),
    }[kind]


@pytest.mark.parametrize(
    "kind",
    ["overlapping", "nested", "inner tangent", "nearly disjoint", "one a point", "concentric"],
)
def test_two_balls_give_the_exact_range(kind: str) -> None:
    """Theorem 8 against an SOCP, plain and dense metric, rows along the line of centres too."""
    checked = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        d = int(rng.integers(1, 5))
        A = rng.standard_normal((3, d))
        B = rng.standard_normal((d, d))
        M = B @ B.T if seed % 2 else None
        first, second = rng.standard_normal((2, d))
        if kind == "concentric":
            second = first.copy()
        if seed % 3 == 0:
            A[0] = (np.eye(d) if M is None else M + 0.5 * np.eye(d)) @ (first - second)
        problem = plain(A, M)
        r = 0.0 if kind == "one a point" else rng.uniform(0.2, 2.0)
        D = problem.quadratic.norm(first - second)
        s = second_radius(kind, r, D, rng)
        region = TwoBalls("two", *(
            Ball(problem, "two", c, A @ c, radius, 0.0) for c, radius in ((first, r), (second, s))
        ))
        checked += agreeing(problem, region)
        assert region.radius <= min(r, s) * (1 + 1e-9) + 1e-9
    assert checked >= 15


@pytest.mark.parametrize("height", [-1.5, -0.5, 0.0, 0.5, 0.97])
def test_a_cut_ball_gives_the_exact_range(height: float) -> None:
    """The dome against an SOCP, the half-space from slack to nearly tangent, rows along it too."""
    checked = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        d = int(rng.integers(1, 5))
        A, B = rng.standard_normal((3, d)), rng.standard_normal((d, d))
        problem = plain(A, B @ B.T if seed % 2 else None)
        centre, v = rng.standard_normal((2, d))
        if seed % 3 == 0:
            A = np.vstack([problem.quadratic.apply(v), -problem.quadratic.apply(v), A[:1]])
            problem = plain(A, problem.quadratic.matrix)
        r = rng.uniform(0.2, 2.0)
        level = v @ problem.quadratic.apply(centre) + height * r * problem.quadratic.norm(v)
        ball = Ball(problem, "cut", centre, A @ centre, r, 0.0)
        region = CutBall("cut", ball, Place(v, A @ v), float(level))
        checked += agreeing(problem, region)
    assert checked >= 10


# -- the cut for the intercept ------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
def test_the_cut_adds_decisions_and_loses_none(loss: str) -> None:
    """A ball that knows its dual point decides what it did without, and more; all of it right."""
    rng = np.random.default_rng(LOSSES.index(loss))
    plain_count, cut_count = 0, 0
    for seed in range(3):
        ref = reference(Case(loss, True, "plain", seed=seed, n=40, d=3, C=0.25))
        assert ref.truth is not None
        for blur in (1e-2, 1e-3, 1e-5):
            x = ref.x + blur * rng.standard_normal(ref.problem.d)
            ball = BOUNDS["midpoint"](ref.problem, reference_point(ref.problem, x, ref.theta))
            assert isinstance(ball, Ball)
            before = judge(ref.problem, replace(ball, theta=None)).codes
            after = judge(ref.problem, ball).codes
            assert (after[before >= 0] == before[before >= 0]).all()
            low, high = ball.intervals()
            for a, t, b in zip(low, ref.truth.margins, high, strict=True):
                assert float(a) <= t <= float(b)
            plain_count += int((before >= 0).sum())
            cut_count += int((after >= 0).sum())
    assert cut_count > plain_count


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_the_cut_with_an_uneven_free_column(size: float) -> None:
    """Free coordinates of any sign and scale, some rows without: exact margins stay inside."""
    tightened = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X, e = rng.standard_normal((20, 2)), size * rng.integers(-3, 4, (20, 1)) / 2.0
        y = np.round(2.0 * rng.standard_normal(20), 2)
        weight = rng.integers(1, 5, 20) / 8.0
        problem = Problem(
            Rows(X, None, e), Losses(y, 0.0, 0.0, -weight, weight), Quadratic([1.0, 1.0, 0.0]),
            np.zeros(3),
        )
        ref = solved(problem)
        assert ref.truth is not None
        for blur in (1e-1, 1e-3, 1e-6):
            x = ref.x * (1.0 + blur * rng.standard_normal(3))
            region = BOUNDS["midpoint"](problem, reference_point(problem, x, ref.theta))
            if not isinstance(region, Ball):
                continue
            low, high = region.intervals()
            for a, t, b in zip(low, ref.truth.margins, high, strict=True):
                assert float(a) <= t <= float(b)
            wide_low, wide_high = replace(region, theta=None).intervals()
            tightened += int((high - low < 0.9 * (wide_high - wide_low)).sum())
    assert tightened > 50


def test_a_perfect_point_gives_no_cut_made_of_rounding() -> None:
    """At the exact optimum the steps are rounding; intervals stay around the exact margins."""
    for loss in LOSSES:
        ref = reference(Case(loss, True, "plain", n=40, d=3, C=0.25))
        assert ref.truth is not None
        point = reference_point(ref.problem, ref.x, ref.theta)
        low, high = BOUNDS["midpoint"](ref.problem, point).intervals()
        for a, t, b in zip(low, ref.truth.margins, high, strict=True):
            assert float(a) <= t <= float(b)
