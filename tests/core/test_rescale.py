"""Points carried to another C without a pass: every reused number is still a bound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from exact import Exact, Fraction, dot, exact
from strategies import CASES, LOSSES, Case, Reference, reference, suboptimal

from cvxscreen.bounds import BOUNDS
from cvxscreen.bounds.regions import Ball
from cvxscreen.core.duality import Point, reference_point, rescaled_point
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows

PLAIN = [case for case in CASES if not case.intercept and case.storage in ("dense64", "csr32")]


def parts_are_bounds(problem: Problem, point: Point) -> None:
    """Gap, terms, dual point, margins and centre of `point` against rational arithmetic."""
    model = Exact(problem)
    x, theta = exact(point.x), exact(point.theta)
    true = model.dual_point(x, theta)
    off = [a - b for a, b in zip(exact(point.x_theta), true, strict=True)]
    assert Fraction(point.dual_error) ** 2 >= dot(off, model.apply(off))
    for t, computed, error in zip(
        model.margins(x), point.margins, point.margin_error, strict=True
    ):
        assert abs(Fraction(float(computed)) - t) <= Fraction(float(error))
    assert Fraction(point.gap) >= model.gap(x, theta)
    if point.centre is not None:
        middle = [(a + b) / 2 for a, b in zip(x, true, strict=True)]
        apart = [a - b for a, b in zip(exact(point.centre.x), middle, strict=True)]
        # The stored centre is rounded once; regions charge that with the margins' own rounding.
        allowed = Fraction(point.centre.error + point.dual_error) + Fraction(1, 2**52) * Fraction(
            problem.quadratic.norm(point.centre.x)
        )
        assert allowed**2 >= dot(apart, model.apply(apart))


def near(ref: Reference, rng: np.random.Generator) -> list[Point]:
    """A point with x off, one with theta off, and one that is its own dual point."""
    problem = ref.problem
    x = ref.x * (1 + 1e-4 * rng.standard_normal(problem.d))
    theta = ref.theta * (1 - 1e-4 * rng.random(problem.n))
    pair = reference_point(problem, x, theta)
    return [pair, reference_point(problem, x, ref.theta),
            reference_point(problem, pair.x_theta, pair.theta)]


@pytest.mark.parametrize("loss", LOSSES)
def test_rescaled_points_are_bounds(loss: str, rng: np.random.Generator) -> None:
    """One step to another C, up and down, for every kind of data."""
    with_centre = 0
    for case in (case for case in PLAIN if case.loss == loss):
        ref = reference(case)
        for point in near(ref, rng):
            for s in (0.3, 0.9, 1.0, 1.1, 3.0):
                there = ref.problem.with_(C=s * ref.problem.C)
                moved = rescaled_point(there, point)
                parts_are_bounds(there, moved)
                with_centre += moved.centre is not None
    assert with_centre > 10


@pytest.mark.parametrize("loss", ["hinge", "smoothed_epsilon"])
def test_a_long_chain_of_small_steps(loss: str) -> None:
    """A hundred changes of C, each rounding the slopes once: the drift from C0 is charged."""
    ref = reference(Case(loss))
    problem = ref.problem
    point = near(ref, np.random.default_rng(1))[2]
    for _ in range(100):
        problem = problem.with_(C=1.01 * problem.C)
    parts_are_bounds(problem, rescaled_point(problem, point))


@pytest.mark.parametrize("off", [1e-15, 3e-14, 1e-12, 1e-3])
def test_losses_that_are_almost_a_multiple(off: float) -> None:
    """Slopes that differ from the scaled ones by little are not taken for them uncharged."""
    for loss in ("hinge", "absolute", "smoothed_hinge"):
        ref = reference(Case(loss, C=2.0**-8))
        f = ref.problem.losses
        there = replace(
            ref.problem,
            losses=Losses(f.b, f.e, f.q / (1 + off), f.lo * (1 + off), f.hi * (1 + off)),
        )
        for point in near(ref, np.random.default_rng(2)):
            parts_are_bounds(there, rescaled_point(there, point))


def test_another_quadratic_term() -> None:
    """The same data and losses with another M: nothing is reused that depends on it."""
    ref = reference(Case("hinge"))
    there = replace(ref.problem, quadratic=Quadratic(np.linspace(0.5, 3.0, ref.problem.d)))
    for point in near(ref, np.random.default_rng(3)):
        parts_are_bounds(there, rescaled_point(there, point))


@pytest.mark.parametrize("loss", LOSSES)
def test_with_an_intercept(loss: str, rng: np.random.Generator) -> None:
    """The gap bounds the suboptimality and the ball contains the optimum at the new C."""
    for case in (c for c in CASES if c.loss == loss and c.intercept and c.storage == "dense64"):
        ref = reference(case)
        assert ref.truth is not None
        assert ref.exact is not None
        for s in (0.5, 0.95, 2.0):
            there = ref.problem.with_(C=s * ref.problem.C)
            x = ref.x * (1 + 1e-3 * rng.standard_normal(there.d))
            point = reference_point(there, x, s * ref.theta * (1 - 1e-3 * rng.random(there.n)))
            moved = rescaled_point(ref.problem, point)
            assert moved.gap >= suboptimal(ref, moved.x)
            ball = BOUNDS["dvi"](ref.problem, point)
            if isinstance(ball, Ball):
                step = [a - b for a, b in zip(ref.truth.x, exact(ball.centre), strict=True)]
                step[-1] = Fraction(0)
                assert dot(step, step) <= Fraction(ball.radius) ** 2


def test_a_pass_is_made_where_it_is_needed() -> None:
    """A copy of the data, a linear term or other losses: evaluated anew, same answer."""
    ref = reference(Case("hinge"))
    problem = ref.problem
    point = near(ref, np.random.default_rng(4))[0]
    copy = replace(problem, design=Rows(problem.design.matrix, problem.design.scale))
    linear = replace(problem, linear=np.full(problem.d, 0.01))
    for there in (copy, linear):
        moved = rescaled_point(there, point)
        assert moved.centre is None
        fresh = reference_point(there, point.x, point.theta)
        assert moved.gap == pytest.approx(fresh.gap, rel=1e-12)
        parts_are_bounds(there, moved)


def test_a_linear_term_that_one_of_the_two_problems_lacks() -> None:
    """The midpoint of a moved point is the scaled one only where neither has a linear term."""
    ref = reference(Case("hinge"))
    point = near(ref, np.random.default_rng(4))[0]
    linear = replace(ref.problem, linear=np.full(ref.problem.d, 0.05))
    there = rescaled_point(linear, point)
    for target, known in ((ref.problem, there), (linear, there)):
        moved = rescaled_point(target, known)
        fresh = reference_point(target, known.x, known.theta)
        assert moved.gap == pytest.approx(fresh.gap, rel=1e-12)
        assert moved.centre is None
        parts_are_bounds(target, moved)
