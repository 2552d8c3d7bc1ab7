"""What is proven of losses beside another convex part: minorants, balls, pieces, certificates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from cvxpy_plugin.composite_zoo import BOTH, Data, problem_of

from cvxscreen.bounds import midpoint_ball
from cvxscreen.bounds.regions import Ball
from cvxscreen.cvxpy_plugin.composite import ScreenedComposite, UnscreenedTerm, recognise_composite
from cvxscreen.cvxpy_plugin.cvxpy_solver import CvxpySolver
from cvxscreen.cvxpy_plugin.recognise.max_affine import Maxima
from cvxscreen.errors import NotScreenable
from cvxscreen.solvers.loop import one_round

TIGHT = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}


def solved(name: str, data: Data | None = None) -> ScreenedComposite:
    made = recognise_composite(problem_of(name, data))
    rounds = ScreenedComposite(made, CvxpySolver("CLARABEL", TIGHT), "certified", 1e-7)
    one_round(rounds)
    assert not rounds.hopeless
    assert rounds.best is not None
    return rounds


@pytest.mark.parametrize("name", ["norm", "norm_at_its_kink", "sum_largest", "nuclear", "factors"])
def test_minorants_lie_below(name: str) -> None:
    """Anywhere, not only where the subgradients were taken."""
    rounds = solved(name)
    part, x = rounds.made.unscreened, rounds.best.point.x
    assert isinstance(part, UnscreenedTerm)
    rng = np.random.default_rng(3)
    target = rng.normal(size=len(x))
    below = part.minorant(x, target, 1e-9, np.ones(len(x)))
    assert below.slack >= 0
    for size in (1e-6, 1e-2, 1.0, 1e2):
        y = x + size * rng.normal(size=len(x))
        line = below.value - below.slack + below.slope @ (y - x)
        assert line <= part.value(y) + 1e-9 * (1.0 + abs(part.value(y)))


def test_a_kink_needs_more_than_one_subgradient() -> None:
    """At ``w = 0`` the gradient of the norm says nothing; a combination certifies."""
    rounds = solved("norm_at_its_kink")
    assert rounds.proof.ok
    assert np.abs(rounds.best.point.x).max() <= 1e-6
    part = rounds.made.unscreened
    slope = part.minorant(np.zeros(4), np.full(4, 100.0), 1e-9, np.ones(4)).slope
    assert np.allclose(slope, 100.0, rtol=1e-3)


# With an unpenalised coordinate the ball is for the others.
@pytest.mark.table
@pytest.mark.parametrize("name", [n for n in BOTH if n not in ("logistic_intercept", "both")])
def test_the_ball_holds_the_optimum(name: str) -> None:
    """From points far from it, and so do the decisions: pieces and terms."""
    rounds = solved(name)
    exact, rng = rounds.best.point, np.random.default_rng(2)
    problem, maxima = rounds.problem, rounds.maxima
    for size in (1e-4, 1e-2, 0.3):
        step = size * np.linalg.norm(exact.x) * rng.normal(size=problem.d)
        x = exact.x + step
        if problem.side is not None:
            continue
        theta = np.clip(exact.theta + size * rng.normal(size=problem.n),
                        problem.losses.lo, problem.losses.hi)
        relaxed, _ = rounds.judged(x, theta, exact.multipliers, rounds.shares)
        ball = midpoint_ball(relaxed.problem, relaxed.point)
        assert isinstance(ball, Ball)
        assert ball.contains(exact.x)
        rounds.best = relaxed
        rounds.prove()
        codes = problem.losses.piece_within(exact.margins, exact.margins)
        decided = rounds.screening.codes >= 0
        assert (codes[decided] == rounds.screening.codes[decided]).all()
        if maxima is not None:
            lead = maxima.leaders(maxima.values(exact.x))
            assert rounds.possible[lead].all()


def test_the_gap_is_above_the_truth() -> None:
    rounds = solved("norm")
    best, made = rounds.best.point, rounds.made
    rng = np.random.default_rng(4)
    optimum = made.value(best.x)
    for size in (1e-6, 1e-3, 1e-1):
        x = best.x + size * rng.normal(size=len(best.x))
        relaxed, _ = rounds.judged(x, best.theta, best.multipliers, None)
        excess = made.value(x) - optimum
        assert relaxed.point.gap >= excess * (1 - 1e-9)
        proof = relaxed.certify(1e-7)
        assert proof.gap >= excess * (1 - 1e-9)
        assert not proof.ok or excess <= 1e-6 * abs(optimum)


def test_a_wrong_subgradient_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = solved("sum_largest")
    original = UnscreenedTerm.at

    def wrong(self: UnscreenedTerm, x: Any) -> Any:
        value, slope = original(self, x)
        return value, slope + 1.0

    monkeypatch.setattr(UnscreenedTerm, "at", wrong)
    point = rounds.best.point
    with pytest.raises(NotScreenable, match="wrong"):
        rounds.judged(point.x, point.theta, point.multipliers, None)


def test_a_wrong_answer_is_not_certified() -> None:
    for name in ("norm", "slack"):
        rounds = solved(name)
        point = rounds.best.point
        relaxed, _ = rounds.judged(point.x + 0.05, point.theta, point.multipliers, rounds.shares)
        assert not relaxed.certify(1e-6).ok


def pair(height: float) -> Maxima:
    """``max(0, 3 x_0 + 4 x_1 - height)``."""
    rows = sp.csr_array(np.array([[0.0, 0.0], [3.0, 4.0]]))
    return Maxima(rows, np.array([0.0, -height]), np.array([0, 2]), np.ones(1))


def test_pieces_on_the_edge_of_the_ball_stay() -> None:
    """The second piece is active at one boundary point of a ball of radius 1: 0.99 is too small."""
    data = Data(d=2)
    problem = recognise_composite(problem_of("three_rows", data)).recognition.problem

    def kept(radius: float, height: float) -> bool:
        ball = Ball(problem, "test", np.zeros(2), np.zeros(problem.n), radius, 0.0)
        return bool(pair(height).proven(problem, ball)[1])

    assert kept(1.0, 5.0)
    assert not kept(0.99, 5.0)
    assert not kept(1.0, 5.0 + 1e-9)
