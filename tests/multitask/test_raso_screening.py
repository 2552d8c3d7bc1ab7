"""Screened U-steps: the ball is tight, contains the optimum, and never decides wrongly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tasks import shared_tasks

import cvxscreen
from cvxscreen.multitask.bcd import Bcd
from cvxscreen.multitask.bounds import Intercepts, Screen
from cvxscreen.multitask.problem import Metric
from cvxscreen.multitask.task_solver import TaskPoint, cold, solve_task


def solved(problem, metric, points=None):
    """Every task's optimum at `metric`, nothing fixed."""
    points = [cold(X) for X in problem.X] if points is None else points
    return [
        solve_task(X, f, metric, point)
        for X, f, point in zip(problem.X, problem.task_losses, points, strict=True)
    ]


class Count:
    """Decisions of a run, and those that the exact U-step contradicts.

    A term that was fixed wrongly shows as well: the U-step then ends with its prediction on another
    piece than the one it was fixed to.
    """

    def __init__(self, problem) -> None:
        self.problem, self.made, self.wrong = problem, 0, 0

    def __call__(self, metric, points, codes) -> None:
        if codes is None:
            return
        p = np.concatenate([point.p for point in points])
        decided = codes >= 0
        self.made += int(decided.sum())
        self.wrong += int((self.problem.losses.piece_within(p, p) != codes)[decided].sum())


def run(problem, tol=1e-6, **settings):
    count = Count(problem)
    outcome = Bcd(watch=count, **settings)(problem, tol)
    return count, outcome


CASES = {
    "hinge": {"loss": "hinge"},
    "epsilon": {"loss": "epsilon"},
    "absolute": {"loss": "absolute"},
    "quantile": {"loss": "quantile", "tau": 0.3},
}


def problem_of(kind: str, seed: int, *, n=60, m=4, d=8, eta=0.05, scale=None, dtype=None):
    tasks = shared_tasks(m, d, n, 2, seed=seed)
    if kind != "hinge":
        rng = np.random.default_rng(seed)
        w = rng.standard_normal(d)
        tasks = [(X, X @ w + y + 0.3 * rng.standard_normal(n)) for X, y in tasks]
    if scale is not None:
        tasks = [(X * scale, y) for X, y in tasks]
    if dtype is not None:
        tasks = [(X.astype(dtype), y) for X, y in tasks]
    return cvxscreen.raso(tasks, h=2, alpha=0.3, beta=0.3 * eta, **CASES[kind])


@pytest.mark.parametrize("kind", CASES)
def test_no_wrong_decision(kind: str) -> None:
    made = 0
    for seed in range(3):
        count, _ = run(problem_of(kind, seed))
        assert count.wrong == 0
        made += count.made
    assert made > 3000


@pytest.mark.parametrize("setting", ["float32", "scaled", "offset", "tiny eta"])
def test_no_wrong_decision_on_hard_data(setting: str) -> None:
    more = {
        "float32": {"dtype": np.float32},
        "scaled": {"scale": np.geomspace(1e-3, 1e3, 8)},
        "offset": {},
        "tiny eta": {"eta": 1e-4},
    }[setting]
    problem = problem_of("hinge", 5, **more)
    if setting == "offset":  # far from the origin: rounding of <x, u> is large
        tasks = [(X + 1e4, y) for X, y in zip(problem.X, problem.y, strict=True)]
        problem = cvxscreen.raso(tasks, h=2, alpha=0.3, beta=0.015)
    count, _ = run(problem, tol=1e-5, max_rounds=60)
    assert count.wrong == 0
    assert count.made > 0


@pytest.mark.long
def test_long_campaign_of_decisions() -> None:
    made = wrong = 0
    for seed in range(12):
        for kind in CASES:
            for eta in (0.01, 0.3):
                problem = problem_of(kind, seed, n=150, m=5, d=12, eta=eta)
                count, _ = run(problem, 1e-7)
                made, wrong = made + count.made, wrong + count.wrong
    print(f"{made:,} decisions, {wrong} wrong")  # noqa: T201
    assert made > 100_000
    assert wrong == 0


@pytest.mark.parametrize("accelerate", [True, False])
def test_screened_iterates_are_the_same(accelerate: bool) -> None:
    problem = problem_of("hinge", 1, n=120, eta=0.02)
    trace = {}
    for screening in (True, False):
        seen = trace[screening] = []

        def watch(metric, points, codes, seen=seen):
            seen.append(np.column_stack([np.append(point.u, point.b) for point in points]))

        Bcd(accelerate, screening, watch=watch)(problem, 1e-6)
    assert len(trace[True]) == len(trace[False]) > 5
    for first, second in zip(trace[True], trace[False], strict=True):
        np.testing.assert_allclose(first, second, atol=1e-10, rtol=0)


# -- the ball ---------------------------------------------------------------------------------


def radii_of(problem, metric, points):
    return Screen(problem).radii(metric, points)


def distance(problem, metric, u, centre) -> float:
    return float(np.sqrt(2.0 * metric.penalty(u - centre)))


def random_metric(problem, rng):
    M = rng.standard_normal((problem.d, problem.d))
    return problem.metric(M @ M.T / problem.d)


def test_the_ball_contains_the_optimum_of_the_next_metric(rng) -> None:
    problem = problem_of("hinge", 2)
    points = solved(problem, problem.start_metric())
    for _ in range(15):
        metric = random_metric(problem, rng)
        radius, centre = radii_of(problem, metric, points)
        following = solved(problem, metric, points)
        for k, point in enumerate(following):
            assert distance(problem, metric, point.u, centre[:, k]) <= radius[k]
        points = following


def test_the_ball_is_attained() -> None:
    """All slopes at their bounds: the optimum moves to ``B v``, the far end of the diameter."""
    X = 0.01 * np.array([[1.0, 0.5], [-0.3, 1.0]])
    problem = cvxscreen.raso([(X, [1.0, -1.0])], h=1, alpha=1.0, beta=1.0)
    points = solved(problem, problem.start_metric())
    np.testing.assert_allclose(np.abs(points[0].theta), 0.5, rtol=1e-12)
    metric = problem.metric(np.diag([1.0, 0.0]))
    radius, centre = radii_of(problem, metric, points)
    after = solved(problem, metric, points)[0]
    away = distance(problem, metric, after.u, centre[:, 0])
    assert 0.99 * radius[0] < away <= radius[0]


@pytest.mark.parametrize("blur", [0.0, 0.1])
def test_it_is_the_midpoint_ball_of_the_hub(blur: float, rng) -> None:
    """From an optimum, and from points where the Fenchel-Young terms are not small."""
    problem = problem_of("hinge", 4)
    points = solved(problem, problem.start_metric())
    if blur:
        moved = [point.u + blur * rng.standard_normal(problem.d) for point in points]
        points = [
            TaskPoint(point.theta, point.v, u, point.b, X @ u + point.b)
            for point, u, X in zip(points, moved, problem.X, strict=True)
        ]
    metric = random_metric(problem, rng)
    radius, _ = radii_of(problem, metric, points)
    for k, point in enumerate(points):
        task = problem.task(k, metric.M)
        reference = cvxscreen.reference_point(task, np.append(point.u, point.b), point.theta)
        region = cvxscreen.bounds.midpoint_ball(task, reference)
        assert radius[k] == pytest.approx(region.radius, rel=1e-6)


def test_a_task_goes_through_the_hub(rng) -> None:
    """Its optimum, its screening and the reduced problem are those of a plain `Problem`."""
    problem = problem_of("hinge", 6)
    M = random_metric(problem, rng).M
    point = solved(problem, problem.metric(M))[2]
    task = problem.task(2, M)
    own = cvxscreen.solve(task, tol=1e-10, mode="safe")
    np.testing.assert_allclose(own.w, point.u, atol=1e-6)
    reduced = own.screening.reduce()
    assert reduced.n < task.n
    for solver in ("CLARABEL", "SCS"):
        tight = {"eps_abs": 1e-9, "eps_rel": 1e-9} if solver == "SCS" else {}
        value = reduced.to_cvxpy().solve(solver=solver, **tight)
        assert value == pytest.approx(own.value, rel=1e-6)


def test_the_radius_outlives_a_gap_below_rounding() -> None:
    """At the metric just solved the true gap is all but zero; ``P - D`` is noise of either sign."""
    problem = problem_of("hinge", 7, n=200)
    metric = problem.start_metric()
    points = solved(problem, metric)
    radius, centre = radii_of(problem, metric, points)
    assert (radius > 0).all()
    assert (radius < 1e-5).all()
    again = solved(problem, metric)  # from cold, another way to the same optimum
    for k, point in enumerate(again):
        assert distance(problem, metric, point.u, centre[:, k]) <= radius[k]


def test_unbalanced_slopes_prove_nothing() -> None:
    problem = problem_of("hinge", 8)
    metric = problem.start_metric()
    points = solved(problem, metric)
    bad = points[0]
    theta = np.where(problem.y[0] > 0, problem.task_losses[0].lo, 0.0)  # all of one sign
    points[0] = TaskPoint(theta, -(theta @ problem.X[0]), bad.u, bad.b, bad.p)
    radius, _ = radii_of(problem, metric, points)
    assert np.isposinf(radius[0])
    assert np.isfinite(radius[1:]).all()


@pytest.mark.parametrize("kind", CASES)
def test_intercepts_are_bracketed_tightly(kind: str, rng) -> None:
    problem = problem_of(kind, 9, n=31)
    ranges = Intercepts(problem).ranges
    scores = problem.predictions(rng.standard_normal((8, 4)), np.zeros(4))
    low, high = ranges(scores, np.zeros(problem.n))
    for k, (p, f) in enumerate(zip(problem.split(scores), problem.task_losses, strict=True)):

        def loss(b, p=p, f=f):
            return float(np.sum(f.value(p + b)))

        best = min(loss(low[k]), loss(high[k]))
        assert loss(low[k]) == pytest.approx(best, rel=1e-12)
        assert loss(high[k]) == pytest.approx(best, rel=1e-12)
        assert loss(low[k] - 1e-3) > best
        assert loss(high[k] + 1e-3) > best
    reach = 0.2 * rng.random(problem.n)
    wide = ranges(scores, reach)
    for _ in range(20):
        moved = scores + reach * rng.uniform(-1, 1, problem.n)
        left, right = ranges(moved, np.zeros(problem.n))
        assert (wide[0] <= right).all()
        assert (wide[1] >= left).all()
        assert (wide[0] <= left + 1e-12).all()
        assert (wide[1] >= right - 1e-12).all()


def test_norms_of_rows_are_upper_bounds_and_tight(rng) -> None:
    problem = problem_of("hinge", 10)
    problem = replace(problem, X=tuple(X + 30.0 for X in problem.X))
    screen, metric = Screen(problem), random_metric(problem, rng)
    for size in (1e-3, 1e-2, 0.3):
        near = Metric.at(metric.M + size * rng.standard_normal((8, 8)), 2, metric.eta, metric.c)
        rows = np.concatenate(screen.rows)
        true = np.sqrt(np.einsum("ij,jk,ik->i", rows, near.B, rows))
        bound = screen.norms(near)
        assert (true <= bound * (1 + 1e-13)).all()
        assert (bound <= true * (1 + 1e-9)).all()


def test_a_decision_holds_all_over_its_ball(rng) -> None:
    """Every decision, at the point of the ball that is worst for it, with its best intercepts."""
    problem = problem_of("hinge", 3)
    metric = random_metric(problem, rng)
    U = np.column_stack([point.u for point in solved(problem, metric)])
    screen = Screen(problem)
    away = 0.1 * np.sqrt(np.einsum("ij,jk,ki->i", U.T, np.linalg.inv(metric.B), U))
    codes = screen.pieces(metric, U, away)
    decided = np.flatnonzero(codes >= 0)
    assert len(decided) > 20
    task, rows = np.repeat(np.arange(problem.m), problem.sizes), np.concatenate(screen.rows)
    for i in decided:
        k, v = task[i], metric.B @ rows[i]
        for sign in (-1.0, 1.0):
            moved = U.copy()
            moved[:, k] += sign * (1 - 1e-9) * away[k] * v / np.sqrt(rows[i] @ v)
            scores = problem.predictions(moved, np.zeros(problem.m))
            for ends in Intercepts(problem).ranges(scores, np.zeros(problem.n)):
                at = scores + ends[k]
                assert problem.losses.piece_within(at, at)[i] == codes[i]


def test_screening_waits_while_the_metric_moves_too_fast() -> None:
    problem = problem_of("hinge", 2, n=300, m=6)
    kept = np.array([r.kept for r in Bcd()(problem, 1e-7).rounds]) / problem.n
    assert kept[0] == 1.0
    assert kept[-1] < 0.6
