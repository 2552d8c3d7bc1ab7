"""Features and samples together: containment, tightness, no wrong decision, printed errors."""

from __future__ import annotations

import numpy as np
import pytest
from sparse_cases import CURVED, DATA, KINKED, Truth, decisions, make, points, sweep, wrong

from cvxscreen.bounds import available, dual_ball, joint, midpoint_ball, named, synergy
from cvxscreen.core.duality import reference_point
from cvxscreen.core.losses import Losses
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.screening.reduction import Screening, judge

NAMES = ("midpoint", "gap", "dual", "synergy", "joint")


@pytest.mark.table
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("loss", [*CURVED, *KINKED])
def test_intervals_contain_the_optimum(loss: str, data: str) -> None:
    truth = Truth.of(make(loss, data, 1))
    problem, rng = truth.problem, np.random.default_rng(2)
    slack = truth.blur / np.sqrt(problem.quadratic.diagonal)
    for point in points(truth, rng, 8):
        for bound in (dual_ball, synergy, joint):
            boxes = bound(problem, point)
            low, high = boxes.coordinates
            assert (truth.x >= low - slack).all()
            assert (truth.x <= high + slack).all()
            low, high = boxes.v
            size = 1e-6 * np.abs(truth.v).max()
            if loss in CURVED:  # otherwise theta* need not be unique
                assert (truth.v >= low - size).all()
                assert (truth.v <= high + size).all()
                low, high = boxes.slopes
                size = 1e-6 * np.abs(truth.theta).max()
                assert (truth.theta >= low - size).all()
                assert (truth.theta <= high + size).all()
            low, high = boxes.margins
            room = truth.blur * problem.norms
            assert (truth.margins >= low - room).all()
            assert (truth.margins <= high + room).all()


def test_no_wrong_decision() -> None:
    """All losses and kinds of data: none wrong, and many made."""
    total, bad = sweep(range(3), 5, NAMES)
    assert not bad.total(), bad
    assert total > 15_000


@pytest.mark.long
def test_no_wrong_decision_at_length() -> None:
    """A million decisions about features, samples and keepings."""
    total, seed = 0, 100
    while total < 1_000_000:
        more, bad = sweep(range(seed, seed + 5), 12, NAMES)
        assert not bad.total(), bad
        total, seed = total + more, seed + 5
    assert total >= 1_000_000


def test_more_is_proven_together() -> None:
    """joint contains synergy, synergy contains dual and midpoint."""
    counts = dict.fromkeys(NAMES, 0)
    for loss in CURVED:
        for seed in range(3):
            truth = Truth.of(make(loss, "dense", seed, share=0.3))
            rng = np.random.default_rng(seed)
            for point in points(truth, rng, 6):
                found = {n: judge(truth.problem, named(n)(truth.problem, point)) for n in NAMES}
                for name in NAMES:
                    counts[name] += decisions(found[name])
                assert not (found["dual"].dropped & ~found["synergy"].dropped).any()
                assert not (found["synergy"].dropped & ~found["joint"].dropped).any()
                flat = found["synergy"].zero | found["synergy"].linear
                assert not (flat & ~(found["joint"].zero | found["joint"].linear)).any()
                flat = found["midpoint"].zero | found["midpoint"].linear
                assert not (flat & ~(found["synergy"].zero | found["synergy"].linear)).any()
    assert counts["joint"] > counts["synergy"]
    assert counts["synergy"] > 1.1 * counts["dual"]


def test_dual_ball_is_tight() -> None:
    """x = x* = 0 and slopes away from theta*: the optimum is on the sphere."""
    rng = np.random.default_rng(0)
    n, d = 12, 3
    losses = Losses(np.full(n, 0.2), 0.0, 2.0, -1.0, 1.0)
    problem = Problem(
        Rows(rng.standard_normal((n, d))), losses, Quadratic(np.ones(d)), np.zeros(d),
        penalty=L1(np.full(d, 100.0)),
    )
    best = losses.slope(np.zeros(n))
    theta = best + 0.3 * rng.standard_normal(n)
    point = reference_point(problem, np.zeros(d), theta)
    boxes = dual_ball(problem, point)
    low, high = boxes.slopes
    middle, reach = 0.5 * (low + high), 0.5 * (high - low)
    away = np.sqrt(np.sum(losses.q * (best - middle) ** 2))
    radius = float(np.max(reach) * np.sqrt(2.0))
    assert away <= radius
    assert away > 0.99 * radius


@pytest.mark.parametrize("loss", KINKED)
def test_budget_finds_features_without_curvature(loss: str) -> None:
    """Plain hinge and eps-insensitive: the budget settles features, none wrongly."""
    found = 0
    for seed in range(4):
        truth = Truth.of(make(loss, "dense", seed, n=100, d=30, share=0.5))
        rng = np.random.default_rng(seed)
        for point in points(truth, rng, 6):
            verdict = judge(truth.problem, joint(truth.problem, point))
            assert not wrong(truth, verdict).total()
            found += int(verdict.dropped.sum())
    assert found > 50


def test_theorem_10_as_printed_is_wrong() -> None:
    """Printed: LB < -lam n and UB > lam n prove w_j != 0. They prove nothing."""
    printed = ours = asked = 0
    for seed in range(5):
        truth = Truth.of(make("smoothed_hinge", "dense", seed))
        kappa = truth.problem.penalty.kappa  # type: ignore[union-attr]
        for point in points(truth, np.random.default_rng(seed), 10):
            low, high = dual_ball(truth.problem, point).v
            zero = (truth.x == 0) & (np.abs(truth.v) < 0.999 * kappa)
            said = (low < -kappa) & (high > kappa)
            asked += int(said.sum())
            printed += int((said & zero).sum())
            ours += int((truth.problem.penalty.needed(low, high) & zero).sum())  # type: ignore[union-attr]
    assert asked > 100
    assert printed > 50
    assert ours == 0


def test_safe_keeping_ends_the_screening() -> None:
    """Near the optimum everything is decided or kept for good; then nothing is left to ask."""
    truth = Truth.of(make("smoothed_hinge", "dense", 3, share=0.3))
    point = reference_point(truth.problem, truth.x, truth.theta)
    screening = Screening.empty(truth.problem)
    assert not screening.exhausted
    verdict = judge(truth.problem, joint(truth.problem, point))
    screening = screening.tighten(verdict)
    assert screening.exhausted
    assert screening.needed_features.any()
    assert screening.needed_terms.any()
    assert not (screening.dropped & screening.needed_features).any()
    assert "features dropped" in str(verdict)
    assert "needed" in str(screening)
    assert joint(truth.problem, point).skipped > 0


def test_names_apply_under_an_l1_term_only() -> None:
    problem = make("huber", "dense", 0)
    assert {"dual", "synergy", "joint", "midpoint"} <= set(available(problem))
    plain = Problem(problem.design, problem.losses, problem.quadratic, problem.linear)
    assert not {"dual", "synergy", "joint"} & set(available(plain))
    point = reference_point(plain, np.zeros(plain.d))
    verdict = judge(plain, joint(plain, point))
    assert not (verdict.codes >= 0).any()
    assert not verdict.dropped.any()
    assert judge(plain, midpoint_ball(plain, point)).dropped.shape == (plain.d,)
