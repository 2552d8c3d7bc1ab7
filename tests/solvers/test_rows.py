"""When the loop interrupts a solver for a proof, and what a start spares `DualActiveSet`."""

from __future__ import annotations

import numpy as np
import pytest
from sparse_problems import make, target_of, words

import cvxscreen
from cvxscreen._support.limits import Limits
from cvxscreen.bounds import midpoint_ball
from cvxscreen.core.duality import reference_point, rescaled_point
from cvxscreen.screening.reduction import Screening, judge
from cvxscreen.solvers import rows
from cvxscreen.solvers.dual_active_set import DualActiveSet
from cvxscreen.solvers.interface import Start
from cvxscreen.solvers.loop import solve_screened
from cvxscreen.solvers.newton import Newton
from cvxscreen.solvers.prediction import SAMPLE, _order_statistic
from cvxscreen.solvers.rows import (
    FALL,
    LAST,
    WORTH,
    gap_that_pays,
    interrupting_can_pay,
    promising,
)


def test_a_start_at_the_optimum_is_returned_and_another_is_used(
    rng: np.random.Generator,
) -> None:
    problem = make("hinge", rng, 0.1, matrix=words(rng, 2000, 500))
    target = target_of(problem, 1e-9)
    cold = DualActiveSet()(problem, None, target)
    again = DualActiveSet()(problem, Start(cold.x, cold.theta), target)
    assert again.info["rounds"] == 0
    np.testing.assert_array_equal(again.theta, cold.theta)
    np.testing.assert_allclose(again.x, cold.x, rtol=1e-12, atol=1e-12)
    point = reference_point(problem, cold.x, cold.theta)
    known = DualActiveSet()(problem, Start(cold.x, cold.theta, point=point), target)
    assert known.info["passes"] == again.info["passes"] - 2 == 0
    np.testing.assert_array_equal(known.theta, cold.theta)
    other = problem.with_(C=0.11)
    moved = rescaled_point(other, point)
    warm = DualActiveSet()(other, Start(moved.x, moved.theta), target)
    free = DualActiveSet()(other, Start(moved.x, moved.theta, point=moved), target)
    # Stopped where it starts, the work is that of the start: a known point spares its products.
    # (Whole solves differ in their last bits, and with them in how many steps they take.)
    step = DualActiveSet(limits=Limits(None, 1))
    whole = step(other, Start(moved.x, moved.theta), target).info["passes"]
    spared = step(other, Start(moved.x, moved.theta, point=moved), target).info["passes"]
    assert spared == 0
    assert whole >= 2
    assert warm.status == free.status == "optimal"
    np.testing.assert_allclose(free.x, warm.x, atol=1e-3)
    assert warm.info["kept"] < problem.n  # only the terms near a kink were looked at
    assert warm.info["passes"] < cold.info["passes"]


@pytest.mark.parametrize("C", [0.02, 0.5])
def test_the_gap_that_pays_decides_about_its_share(C: float) -> None:
    """A ball from a point of that gap decides a fifth of the terms; from 30 times it, fewer."""
    X, y = cvxscreen.datasets.two_gaussians(3000, 10, bayes_error=0.2)
    problem = cvxscreen.svm(X, y, C=C)

    def decided(gap: float) -> float:
        found = Newton()(problem, None, gap)
        point = reference_point(problem, found.x, found.theta)
        codes = judge(problem, midpoint_ball(problem, point)).codes
        return float((codes >= 0).mean()) if point.gap > 0.05 * gap else 1.0

    rough = Newton()(problem, None, 0.2 * problem.primal(np.zeros(problem.d)))
    best = reference_point(problem, rough.x, rough.theta)
    gap = gap_that_pays(best, Screening.empty(problem), 1.0 - WORTH, 0.0)
    assert 0 < gap <= FALL * best.gap
    assert decided(0.5 * gap) > 0.1
    if gap < FALL * best.gap:
        assert decided(30.0 * gap) < 0.5
    assert gap_that_pays(best, Screening.empty(problem), 1.0 - WORTH, gap / LAST) == 0.0


def test_safe_mode_does_not_pause_where_nothing_is_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Random labels: the solver's own numbers tell, no point is evaluated on the way."""
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((6000, 20)), np.where(rng.random(6000) < 0.5, 1.0, -1.0)
    problem = cvxscreen.svm(X, y, C=10.0)
    assert interrupting_can_pay(problem)
    evaluated: list[object] = []

    def counted(*args: object, **given: object) -> object:
        evaluated.append(args)
        return reference_point(*args, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(rows, "reference_point", counted)
    solution = solve_screened(problem, mode="safe", tol=1e-6)
    assert solution.status == "optimal"
    assert len(solution.rounds) == 1
    assert not evaluated
    assert solution.rounds[-1].kept == problem.n
    info = solution.rounds[-1].solver_info
    alone = Newton()(problem, None, info["gap"]).info  # stopped nowhere, the same steps
    assert (info["steps"], info["passes"]) == (alone["steps"], alone["passes"])
    small = cvxscreen.svm(X[:900, :2], y[:900], C=10.0)
    assert not interrupting_can_pay(small)
    assert len(solve_screened(small, mode="safe", tol=1e-6).rounds) == 1


def test_safe_mode_still_reduces_where_it_pays() -> None:
    """Separable classes: most terms are decided long before the tolerance is met."""
    X, y = cvxscreen.datasets.two_gaussians(6000, 20, bayes_error=0.01)
    solution = solve_screened(cvxscreen.svm(X, y, C=0.1), mode="safe", tol=1e-9)
    assert solution.status == "optimal"
    assert len(solution.rounds) > 1
    assert solution.rounds[-1].kept < 0.5 * len(y)


@pytest.mark.parametrize("gap", [1e-1, 1e-3, 1e-6])
def test_promising_counts_what_the_ball_will_decide(gap: float) -> None:
    """The share that the midpoint ball decides, foretold to a few percent."""
    X, y = cvxscreen.datasets.two_gaussians(3000, 10, bayes_error=0.2)
    problem = cvxscreen.svm(X, y, C=0.5)
    found = Newton()(problem, None, gap * problem.primal(np.zeros(problem.d)))
    best = reference_point(problem, found.x, found.theta)
    codes = judge(problem, midpoint_ball(problem, best)).codes
    share, nothing = float((codes >= 0).mean()), Screening.empty(problem)
    assert promising(best, nothing, max(share - 0.05, 0.0))
    assert not promising(best, nothing, share + 0.05)


def test_newton_takes_known_margins() -> None:
    """A start with its point spares the pass over the data; the result is the same."""
    X, y = cvxscreen.datasets.two_gaussians(500, 10, bayes_error=0.2)
    problem = cvxscreen.svm(X, y, C=0.5)
    rough = Newton()(problem, None, 1e-1 * problem.primal(np.zeros(problem.d)))
    point = reference_point(problem, rough.x, rough.theta)
    plain = Newton()(problem, Start(point.x, point.theta), 1e-6)
    known = Newton()(problem, Start(point.x, point.theta, point=point), 1e-6)
    assert known.info["passes"] == plain.info["passes"] - 1
    np.testing.assert_allclose(known.x, plain.x, rtol=1e-9)


@pytest.mark.parametrize("n", [1, 7, 5000, 100_000])
@pytest.mark.parametrize("share", [0.01, 0.5, 1.0])
def test_order_statistics_are_exact_or_close(n: int, share: float) -> None:
    """Exact where all values are looked at, within a percent of the ranks otherwise."""
    values = np.random.default_rng(n).permutation(n).astype(float)
    rank = max(1, int(share * n))
    found = _order_statistic(values, rank)
    assert abs(found - (rank - 1)) <= (0 if n <= SAMPLE else 0.02 * n)
