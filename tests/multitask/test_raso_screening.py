"""Screened U-steps: decided by the package's own bound and rule, and never wrongly."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tasks import shared_tasks

import cvxscreen
from cvxscreen.core.losses import Piece
from cvxscreen.multitask.gap import intercept_ranges
from cvxscreen.multitask.solve import Bcd, fixed_terms, proven_pieces
from cvxscreen.multitask.task_solver import TaskPoint, solve_task, zero_point


def solved(problem, metric, points=None):
    """Every task's optimum at `metric`, nothing fixed."""
    points = [zero_point(X) for X in problem.X] if points is None else points
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


@pytest.mark.table
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


@pytest.mark.table
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


# -- at one metric -----------------------------------------------------------------------------


def random_metric(problem, rng):
    M = rng.standard_normal((problem.d, problem.d))
    return problem.metric(M @ M.T / problem.d)


def test_decisions_hold_at_the_optimum_of_the_next_metric(rng) -> None:
    """What `proven_pieces` proves from the last metric's optima, against the next one's."""
    problem = problem_of("hinge", 2)
    metric = problem.start_metric()
    points = solved(problem, metric)
    made = 0
    for _ in range(15):
        metric = problem.metric(0.9 * metric.M + 0.1 * random_metric(problem, rng).M)
        codes = proven_pieces(problem, metric, points)
        points = solved(problem, metric, points)
        p = np.concatenate([point.p for point in points])
        known = codes >= 0
        made += int(known.sum())
        assert (problem.losses.piece_within(p, p) == codes)[known].all()
    assert made > 100


def test_a_sample_whose_slope_is_not_there_yet_is_not_fixed() -> None:
    """It is decided, but to hold it where it is would be wrong, and to move it alone unbalanced."""
    problem = problem_of("hinge", 4)
    points = solved(problem, problem.start_metric())
    codes = np.full(problem.n, Piece.ZERO, dtype=np.int8)  # as if all were proven on the zero piece
    zero = np.concatenate([point.theta for point in points]) == 0.0
    for k, (part, fixed) in enumerate(
        zip(problem.parts, fixed_terms(problem, points, codes), strict=True)
    ):
        if fixed is not None:
            np.testing.assert_array_equal(fixed.kept, np.flatnonzero(~zero[part]))
        else:
            assert zero[part].mean() < 0.25, k
    assert any(fixed is not None for fixed in fixed_terms(problem, points, codes))


def test_decisions_outlive_a_gap_below_rounding() -> None:
    """At the metric just solved the true gap is all but zero; ``P - D`` is noise of either sign."""
    problem = problem_of("hinge", 7, n=200)
    metric = problem.start_metric()
    codes = proven_pieces(problem, metric, solved(problem, metric))
    again = solved(problem, metric)  # from cold, another way to the same optimum
    p = np.concatenate([point.p for point in again])
    known = codes >= 0
    assert known.mean() > 0.9
    assert (problem.losses.piece_within(p, p) == codes)[known].all()


def test_unbalanced_slopes_prove_nothing_wrong() -> None:
    """Slopes of one sign are no dual point; what stands in for them may prove little, not more."""
    problem = problem_of("hinge", 8)
    metric = problem.start_metric()
    points = solved(problem, metric)
    p = np.concatenate([point.p for point in points])
    bad = points[0]
    theta = np.where(problem.y[0] > 0, problem.task_losses[0].lo, 0.0)  # all of one sign
    points[0] = TaskPoint(theta, -(theta @ problem.X[0]), bad.u, bad.b, bad.p)
    codes = proven_pieces(problem, metric, points)
    known = codes >= 0
    assert (problem.losses.piece_within(p, p) == codes)[known].all()
    assert known[problem.parts[0]].mean() < known[problem.parts[1]].mean()


def balanced(f, p) -> tuple[float, float]:
    """The least and the most optimal intercept: where the slopes can sum to 0, by bisection."""
    ends = []
    for side in (0, 1):
        low, high = -100.0, 100.0
        for _ in range(100):
            b = 0.5 * (low + high)
            below, above = (math.fsum(slopes) for slopes in f.subgradient(p + b))
            right = below > 1e-13 if side else above >= -1e-13
            low, high = (low, b) if right else (b, high)
        ends.append(0.5 * (low + high))
    return ends[0], ends[1]


@pytest.mark.parametrize("kind", CASES)
def test_intercepts_are_bracketed(kind: str, rng) -> None:
    """Beyond the ends the loss grows, and an optimal intercept of any scores within lies inside."""
    problem = problem_of(kind, 9, n=31)
    scores = problem.predictions(rng.standard_normal((8, 4)), np.zeros(4))
    nothing = np.full(problem.n, 1e-6)
    low, high = intercept_ranges(problem, scores, nothing)
    for k, (p, f) in enumerate(zip(problem.split(scores), problem.task_losses, strict=True)):
        least, most = balanced(f, p)
        # As far out as the scores may move, by a search that ends at 0.004 of that, or at 2^-24 of
        # the distance from where it begins (0), whichever is more.
        assert least - 1.01e-6 - 2.0**-23 * abs(least) <= low[k] <= least
        assert most <= high[k] <= most + 1.01e-6 + 2.0**-23 * abs(most)
    reach = 0.2 * rng.random(problem.n)
    wide = intercept_ranges(problem, scores, reach)
    for _ in range(20):
        moved = scores + reach * rng.uniform(-1, 1, problem.n)
        left, right = intercept_ranges(problem, moved, nothing)
        assert (wide[0] <= right).all()
        assert (wide[1] >= left).all()


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


def test_screening_waits_while_the_metric_moves_too_fast() -> None:
    problem = problem_of("hinge", 2, n=300, m=6)
    kept = np.array([r.kept for r in Bcd()(problem, 1e-7).rounds]) / problem.n
    assert kept[0] == 1.0
    assert kept[-1] < 0.6
