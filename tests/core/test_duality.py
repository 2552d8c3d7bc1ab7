"""Points: their gap is never below the true one, also balanced or carried to another C."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from exact import Exact, Fraction, dot, exact
from strategies import (
    CASES,
    DATA,
    LOSSES,
    Case,
    Reference,
    build,
    crossed,
    points,
    reference,
    suboptimal,
)

from cvxscreen._support.rounding import UNIT
from cvxscreen.bounds import BOUNDS
from cvxscreen.bounds.regions import Ball
from cvxscreen.core import duality as module
from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.duality import Point, dual_feasible, reference_point, rescaled_point
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput

PLAIN = [case for case in CASES if not case.intercept]
WITH_B = [case for case in CASES if case.intercept]


@pytest.mark.parametrize("loss", LOSSES)
def test_gap_bounds_the_exact_gap(loss: str, rng: np.random.Generator) -> None:
    """``gap >= P(x) - D(theta)`` in rational arithmetic, near and far, every storage and scale."""
    ratios = []
    for case in (case for case in PLAIN if case.loss == loss):
        ref = reference(case)
        model = Exact(ref.problem)
        for point in points(ref, rng):
            true = model.gap(exact(point.x), exact(point.theta))
            assert Fraction(point.gap) >= true
            ratios.append(float(true) / point.gap)
    # Not by being lax: in half of the cases less than a millionth is added.
    assert np.median(ratios) > 1 - 1e-6


@pytest.mark.parametrize("loss", LOSSES)
def test_gap_bounds_the_suboptimality_with_an_intercept(
    loss: str, rng: np.random.Generator
) -> None:
    """``gap >= P(x) - P*`` exactly, although the dual point is balanced to rounding only."""
    for case in (case for case in WITH_B if case.loss == loss):
        ref = reference(case)
        for point in points(ref, rng):
            assert point.gap >= suboptimal(ref, point.x)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_parts_add_up(loss: str, rng: np.random.Generator) -> None:
    """``terms`` bounds the sum of Fenchel-Young terms and `primal_dual_distance` the distance,
    exactly."""
    for case in (case for case in PLAIN if case.loss == loss and case.storage == "dense64"):
        ref = reference(case)
        model = Exact(ref.problem)
        for point in points(ref, rng):
            x, theta = exact(point.x), exact(point.theta)
            margins = model.margins(x)
            fy = [f.fenchel_young(t, s)
                  for f, t, s in zip(model.terms, margins, theta, strict=True)]
            assert Fraction(point.terms) >= sum(fy, Fraction(0))
            off = [a - b for a, b in zip(exact(point.x_theta), model.dual_point(x, theta),
                                         strict=True)]
            assert Fraction(point.dual_error) ** 2 >= dot(off, model.apply(off))
            for t, computed, error in zip(margins, point.margins, point.margin_error, strict=True):
                assert abs(Fraction(float(computed)) - t) <= Fraction(float(error))


def naive_gap(problem: Problem, x: np.ndarray, theta: np.ndarray) -> float:
    """The old way: ``max(P - D, 0)`` in double precision."""
    v = -problem.design.adjoint(theta) - problem.linear
    dual = -0.5 * float(v @ problem.quadratic.solve(v)) - float(
        np.sum(problem.losses.conjugate(theta))
    )
    return max(problem.primal(x) - dual, 0.0)


def test_subtracting_primal_and_dual_is_unsafe() -> None:
    """Near convergence ``max(P - D, 0)`` falls below the true suboptimality; the sum never does."""
    below = 0
    rng = np.random.default_rng(5)
    for case in (case for case in PLAIN if case.data in ("plain", "twins")):
        ref = reference(case)
        for size in (1e-9, 1e-8):
            step = size * rng.standard_normal(ref.problem.d)
            point = reference_point(ref.problem, ref.x + step, ref.theta)
            true = suboptimal(ref, point.x)
            assert point.gap >= true
            below += naive_gap(ref.problem, point.x, point.theta) < true
    assert below > 20


def test_a_point_without_theta_uses_subgradients() -> None:
    """Fenchel-Young terms vanish up to the margins' rounding: only the distance is left."""
    problem = build(Case("smoothed_hinge"))
    point = reference_point(problem, np.full(problem.d, 0.3))
    # The margins may have been computed once more, better.
    np.testing.assert_allclose(point.theta, problem.losses.slope(point.margins), rtol=1e-12)
    assert point.terms < 1e-12 * point.gap
    assert point.gap == pytest.approx(0.5 * point.primal_dual_distance**2, rel=1e-9)


def test_relative_gap_divides_by_the_larger_objective() -> None:
    """``gap / max(|P|, |D|)``."""
    problem = build(Case("hinge"))
    point = reference_point(problem, np.full(problem.d, 0.1))
    dual = point.primal - point.gap
    assert point.relative_gap == point.gap / max(abs(point.primal), abs(dual))


# -- unpenalised columns -----------------------------------------------------------------------


def several_free(seed: int, m: int, loss: str = "hinge") -> Problem:
    """A problem with `m` unpenalised columns, the first of ones, and a linear term on them."""
    rng = np.random.default_rng(seed)
    case = Case(loss, seed=seed, n=40, data=DATA[seed % 2])
    base = build(case)
    n, d = base.n, base.d
    extra = np.column_stack([np.ones(n), rng.standard_normal((n, max(m - 1, 0)))])[:, :m]
    design = Rows(base.design.matrix, base.design.scale, extra)
    linear = np.concatenate([0.1 * rng.standard_normal(d), np.zeros(m)])
    return Problem(design, base.losses, Quadratic(np.r_[np.ones(d), np.zeros(m)]), linear)


@pytest.mark.parametrize("m", [0, 1, 2, 4])
@pytest.mark.parametrize("loss", LOSSES)
def test_dual_points_are_balanced(loss: str, m: int, rng: np.random.Generator) -> None:
    """``E' theta = 0`` to a few ulp of ``sum |e theta|``, inside the box, from any start."""
    for seed in range(4):
        problem = several_free(seed, m, loss)
        f = problem.losses
        top = np.where(np.isfinite(f.hi), f.hi, 1.0)
        low = np.where(np.isfinite(f.lo), f.lo, -3.0)
        size = float((top - low).max())
        starts = (
            rng.uniform(low, top), low, top, np.zeros(problem.n),
            1e3 * size * rng.standard_normal(problem.n), f.slope(rng.standard_normal(problem.n)),
        )
        for start in starts:
            theta, _ = dual_feasible(problem, start)
            assert (theta >= f.lo).all()
            assert (theta <= f.hi).all()
            columns = problem.free_columns
            residual = np.abs(columns.T @ theta)
            allowed = 64 * 2.0**-53 * (np.abs(columns).T @ np.abs(theta)) + 1e-300
            assert (residual <= allowed).all()


def test_balancing_moves_a_balanced_point_by_rounding_only() -> None:
    """A dual optimum is not disturbed."""
    for case in WITH_B[::7]:
        ref = reference(case)
        theta, _ = dual_feasible(ref.problem, ref.theta)
        size = np.abs(ref.theta).max()
        np.testing.assert_allclose(theta, ref.theta, atol=1e-12 * size + 1e-300)


def test_balanced_point_at_the_box_has_a_finite_gap() -> None:
    """Every theta at an end of its box and exactly balanced: feasible, so the gap is finite."""
    n = 20
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((2 * n, 3)), np.repeat([1.0, -1.0], n)
    losses = Losses(np.ones(2 * n), 0.0, 0.0, -0.001, 0.0)
    problem = Problem(
        Rows(X, y, np.ones((2 * n, 1))), losses, Quadratic([1.0, 1, 1, 0]), np.zeros(4)
    )
    theta = np.full(2 * n, -0.001)
    point = reference_point(problem, np.zeros(4), theta)
    np.testing.assert_array_equal(point.theta, theta)
    assert np.isfinite(point.gap)


def test_balance_is_judged_on_the_exact_column() -> None:
    """``scale * extra`` is rounded when multiplied out; a zero computed from it proves nothing."""
    a, b = 0.1, 0.3
    rounded = a * b
    assert Fraction(a) * Fraction(b) != Fraction(rounded)
    design = Rows([[0.0], [0.0]], [b, -1.0], [[a], [rounded]])
    losses = Losses([1e3, 1e3], 0.0, 0.0, -1.0, 0.0)
    problem = Problem(design, losses, Quadratic([1.0, 0.0]), np.zeros(2))
    point = reference_point(problem, np.zeros(2), np.array([-1.0, -1.0]))
    # In truth the two do not cancel, so moving b far gains a little.
    model = Exact(problem)
    start = model.primal([Fraction(0), Fraction(0)])
    ends = [sign * 1000 / abs(row[1]) for row in model.rows for sign in (-1, 1)]
    best = min(model.primal([Fraction(0), end]) for end in ends)
    assert start > best
    assert not np.isfinite(point.gap) or Fraction(point.gap) >= start - best


def test_weight_zero_terms_do_not_disturb_the_balance() -> None:
    """More than half of the terms with an empty box: a median over them must not count."""
    case = Case("hinge", intercept=True, n=30)
    problem = build(case)
    f = problem.losses
    off = np.arange(problem.n) < 20
    losses = Losses(f.b, f.e, f.q, np.where(off, 0.0, f.lo), f.hi)
    problem = Problem(problem.design, losses, problem.quadratic, problem.linear)
    point = reference_point(problem, np.full(problem.d, 0.1))
    assert np.isfinite(point.theta).all()
    assert not point.theta[off].any()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_bad_points_are_refused_by_name(bad: float) -> None:
    """NaN, infinity and wrong shapes in `x` and `theta`."""
    problem = build(Case("hinge"))
    x, theta = np.zeros(problem.d), np.zeros(problem.n)
    for wrong in (x[:-1], np.r_[x, 0.0], x[None], np.r_[x[:-1], bad]):
        with pytest.raises(InvalidInput, match="`x`"):
            reference_point(problem, wrong)
    for wrong in (theta[:-1], theta[None], np.r_[theta[:-1], bad]):
        with pytest.raises(InvalidInput, match="`theta`"):
            reference_point(problem, x, wrong)


def test_the_callers_arrays_are_not_kept_or_changed() -> None:
    """`x` and `theta` are copied: changing them later does not change the point."""
    case = crossed()[0]
    problem = build(case)
    x, theta = np.full(problem.d, 0.5), np.full(problem.n, -9.0)
    point = reference_point(problem, x, theta)
    assert (theta == -9.0).all()
    x[:], theta[:] = 7.0, 7.0
    assert (point.x == 0.5).all()
    assert (point.theta <= 0.0).all()


# Points carried to another C without a pass: every reused number is still a bound.

FEW_STORED = [case for case in CASES if not case.intercept and case.storage in ("dense64", "csr32")]


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
    for case in (case for case in FEW_STORED if case.loss == loss):
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


# Balancing a dual point: accurate to rounding, and in few trials however uneven the terms.

def uneven(n: int, seed: int) -> tuple[Problem, np.ndarray, np.ndarray]:
    """A hinge problem with an intercept, theta almost balanced, few margins close to the kink."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.uniform(size=n) < 0.5, 1.0, -1.0)
    C = 10.0 ** rng.uniform(-2, 2)
    problem = Problem(
        Rows(np.zeros((n, 1)), y, np.ones((n, 1))), Losses(np.ones(n), 0.0, 0.0, -C, 0.0),
        Quadratic([1.0, 0.0]), np.zeros(2),
    )
    margins = 1.0 + rng.standard_normal(n) * 10.0 ** rng.uniform(-9, 1, n)
    theta = np.where(margins < 1, -C, 0.0)
    near = np.abs(margins - 1) < 1e-3
    theta[near] = -C * rng.uniform(size=int(near.sum()))
    return problem, theta, margins


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The residuals of all trial points of the calls in a test."""
    seen: list[float] = []
    plain = module._Projection.at

    def at(self: object, tau: np.ndarray) -> object:
        found = plain(self, tau)
        seen.append(float(np.abs(found.residual).max()))
        return found

    monkeypatch.setattr(module._Projection, "at", at)
    return seen


@pytest.mark.parametrize("n", [500, 5000])
@pytest.mark.parametrize("seed", range(6))
def test_few_trials_to_rounding(n: int, seed: int, trials: list[float]) -> None:
    """The dual's value is flat to rounding near the solution; the search must not die there."""
    problem, theta, margins = uneven(n, seed)
    found = module.balance(problem, theta, np.zeros(1), margins)
    columns, losses = problem.free_columns, problem.losses
    assert ((found >= losses.lo) & (found <= losses.hi)).all()
    size = np.abs(columns).T @ np.abs(found)
    assert (np.abs(columns.T @ found) <= (4 + np.log2(n)) * UNIT * size).all()
    assert len(trials) <= 80


@pytest.mark.parametrize("all_of_them", [False, True])
def test_a_target_is_met(all_of_them: bool) -> None:
    """By the few terms near a kink, the others' pull counted in, or by all of them."""
    problem, theta, margins = uneven(800, 3)
    losses, columns = problem.losses, problem.free_columns
    target = np.array([-float(losses.hi[0] - losses.lo[0]) * 1.5])
    found = module.balance(problem, theta, target, None if all_of_them else margins)
    assert ((found >= losses.lo) & (found <= losses.hi)).all()
    size = np.abs(columns).T @ np.abs(found) + np.abs(target)
    assert (np.abs(columns.T @ found + target) <= (4 + np.log2(800)) * UNIT * size).all()
    if not all_of_them:
        assert (found != theta).sum() < 0.5 * problem.n


def test_an_exact_sum_is_the_correctly_rounded_one() -> None:
    """Products and sums without rounding, as fractions say; 0 only where it is 0."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        e, theta = rng.standard_normal((2, 50)) * 10.0 ** rng.uniform(-3, 3, (2, 50))
        whole = sum((Fraction(a) * Fraction(b) for a, b in zip(e, theta, strict=True)), Fraction())
        start = -float(whole)
        assert module.exact_sum(e, theta, start) == float(whole + Fraction(start))
    third = np.array([1.0, 1.0, 1.0]) / 3.0
    assert module.exact_sum(third, third, -float(third @ third)) != 0.0


@pytest.mark.parametrize("seed", range(4))
def test_a_balanced_point_needs_no_step(seed: int, trials: list[float]) -> None:
    """Balancing twice is balancing once."""
    problem, theta, margins = uneven(2000, seed)
    once = module.balance(problem, theta, np.zeros(1), margins)
    trials.clear()
    twice = module.balance(problem, once, np.zeros(1), margins)
    assert len(trials) == 1
    size = float(np.abs(once).sum())
    assert float(np.abs(twice - once).max()) <= 64 * UNIT * size


def test_where_terms_near_a_kink_have_no_room_the_others_move(trials: list[float]) -> None:
    """Few terms at the kink cannot take up a large residual: all terms share it, at once."""
    n = 1000
    problem, _, _ = uneven(n, 0)
    columns, losses = problem.free_columns, problem.losses
    margins = np.full(n, 3.0)
    margins[:5] = 1.0
    theta = np.where(columns[:, 0] > 0, losses.lo, 0.5 * losses.lo)
    found = module.balance(problem, theta, np.zeros(1), margins)
    size = np.abs(columns).T @ np.abs(found)
    assert (np.abs(columns.T @ found) <= (4 + np.log2(n)) * UNIT * size).all()
    assert (np.abs(found - theta)[5:] > 0).sum() > 100
    assert len(trials) <= 30


def test_one_class_cannot_be_balanced(trials: list[float]) -> None:
    """All slopes pull the same way: the search ends, and what is left over is infinitely dear."""
    n = 300
    problem = Problem(
        Rows(np.zeros((n, 1)), np.ones(n), np.ones((n, 1))),
        Losses(np.ones(n), 0.0, 0.0, -1.0, 0.0), Quadratic([1.0, 0.0]), np.array([0.0, -1.0]),
    )
    theta = module.balance(problem, np.full(n, -0.5), np.array([-1.0]))
    residual = problem.free_columns.T @ theta + np.array([-1.0])
    assert (residual < 0).all()
    assert len(trials) <= 60 * 31
    cost = module.imbalance_cost(
        problem, theta, residual, np.full(1, 1e-12), np.array([-1.0]), np.ones(n)
    )
    assert cost == np.inf
    assert reference_point(problem, np.zeros(2)).gap == np.inf


def test_what_is_left_over_is_charged_by_the_cheapest_term_with_room() -> None:
    """Two terms have room upwards, one of them far from its kink: ``needed * reach / |e|``."""
    problem = Problem(
        Rows(np.zeros((3, 1)), np.ones(3), np.array([[1.0], [2.0], [-1.0]])),
        Losses(np.ones(3), 0.0, 0.0, -1.0, 0.0), Quadratic([1.0, 0.0]), np.zeros(2),
    )
    theta, reach = np.array([-0.5, -0.25, 0.0]), np.array([3.0, 1.0, 1.0])
    residual = np.full(1, -0.25)  # e' theta has to rise by a quarter
    cost = module.imbalance_cost(problem, theta, residual, np.zeros(1), np.zeros(1), reach)
    assert cost == pytest.approx(0.25 * 0.5, rel=1e-5)
    cost = module.imbalance_cost(problem, theta, -residual, np.zeros(1), np.zeros(1), reach)
    assert cost == pytest.approx(0.25 * 0.5, rel=1e-5)
    stuck = np.array([-0.5, 0.0, -1.0])  # only the first can rise, for three times as much
    cost = module.imbalance_cost(problem, stuck, residual, np.zeros(1), np.zeros(1), reach)
    assert cost == pytest.approx(0.25 * 3.0, rel=1e-5)


def test_coordinates_of_which_others_terms_have_more_room() -> None:
    """Four classes of 50 terms, each with an intercept of its own: what is left over costs little.

    The sixteen terms with the most room of all belong to the first class.
    """
    classes, n = 4, 50
    columns = np.kron(np.eye(classes), np.ones((n, 1)))
    problem = Problem(
        Rows(np.zeros((classes * n, 1)), np.ones(classes * n), columns),
        Losses(np.ones(classes * n), 0.0, 0.0, -1.0, 0.0),
        Quadratic(np.r_[1.0, np.zeros(classes)]), np.zeros(1 + classes),
    )
    theta = -np.repeat([0.5, 0.1, 0.2, 0.3], n)
    target, off = -columns.T @ theta, np.array([1e-9, 0.0, -1e-9, 0.0])
    cost = module.imbalance_cost(
        problem, theta, off, np.full(classes, 1e-12), target, np.full(classes * n, 2.0)
    )
    # A class alone takes its rest up by at least |off| / n in each term.
    assert 2.0 * np.abs(off).sum() <= cost <= 1e-6
    moved = module.balance(problem, theta + np.repeat(off, n), target)
    assert np.abs(columns.T @ moved + target).max() <= 1e-14
    top = np.full(classes * n, 0.0)
    assert module.imbalance_cost(
        problem, top, off, np.full(classes, 1e-12), target, np.ones(classes * n)
    ) == np.inf


def test_directions_that_the_terms_with_most_room_leave_out() -> None:
    """Parts above and below a centre: their sum is what most terms have, few the difference.

    The four with the most room have the sum for each coordinate, too.
    """
    columns = np.array([[1.0, 1.0]] * 100 + [[1.0, -1.0]] * 3)
    n = len(columns)
    problem = Problem(
        Rows(np.zeros((n, 1)), np.ones(n), columns), Losses(np.ones(n), 0.0, 0.0, -1.0, 0.0),
        Quadratic(np.r_[1.0, np.zeros(2)]), np.zeros(3),
    )
    theta = -np.repeat([0.5, 0.1], [100, 3])
    target, off = -columns.T @ theta, np.array([1e-9, -1e-9])
    cost = module.imbalance_cost(problem, theta, off, np.zeros(2), target, np.full(n, 2.0))
    # The difference alone takes it up: 1e-9 in all of the three, which cost 2 each at least.
    assert 2e-9 <= cost <= 1e-7
    theta[100:] = 0.0  # no room: nothing moves along the difference
    target = off - columns.T @ theta
    assert module.imbalance_cost(
        problem, theta, off, np.full(2, 1e-12), target, np.ones(n)
    ) == np.inf


@pytest.mark.parametrize("seed", range(8))
def test_multipliers_take_up_what_slopes_alone_cannot(seed: int) -> None:
    """One slope inside its box and two coordinates out of balance: the equality's moves, too."""
    rng = np.random.default_rng(seed)
    n, d = 6, 2
    A = rng.standard_normal((n, d))
    losses = Losses(rng.standard_normal(n), 0.0, 0.0, np.zeros(n), np.ones(n))
    side = SideConstraints(
        sp.csr_matrix([[1.0, 2.0], [1.0, -1.0], [0.0, 1.0]]), np.array([-1.0, 3.0, 2.0]),
        (("zero", 1), ("nonneg", 2)),
    )
    theta = np.array([0.0, 1.0, 0.5, 1.0, 0.0, 1.0])
    mu = np.array([0.7, 0.0, 0.2])
    linear = side.adjoint(mu) - A.T @ theta
    problem = Problem(Rows(A), losses, Quadratic(np.zeros(d)), linear, side=side)
    off, wrong = theta.copy(), mu.copy()
    off[2], wrong[0] = 0.45, 0.6
    moved, pressed = module.balance_with_multipliers(problem, off, wrong, linear)
    left = A.T @ moved - side.adjoint(pressed) + linear
    assert np.abs(left).max() <= 1e-12
    np.testing.assert_array_equal(np.delete(moved, 2), np.delete(theta, 2))  # at their ends
    assert 0.0 <= moved[2] <= 1.0
    assert pressed[1] == 0.0  # does not press
    assert pressed[2] >= 0.0
    assert (off[2], wrong[0]) == (0.45, 0.6)  # what was given is as it was


def test_slopes_move_where_they_have_room() -> None:
    """All but one of many slopes are at their ends but for 1e-40, as an interior point leaves them.

    The same step for each would be clipped in all of them, and what is out of balance would stay.
    """
    n = 50
    A = np.column_stack([np.ones(n), np.linspace(-1.0, 1.0, n)])
    losses = Losses(np.zeros(n), 0.0, 0.0, np.zeros(n), np.ones(n))
    side = SideConstraints(
        sp.csr_matrix([[1.0, 0.0], [0.0, 1.0]]), np.zeros(2), (("nonneg", 1), ("zero", 1))
    )
    theta, mu = np.full(n, 1e-40), np.array([1e-40, 0.3])
    theta[7] = 0.5
    problem = Problem(Rows(A), losses, Quadratic(np.zeros(2)), np.zeros(2), side=side)
    linear = side.adjoint(mu) - A.T @ theta + [1e-9, 0.0]
    moved, pressed = module.balance_with_multipliers(problem, theta, mu, linear)
    assert np.abs(A.T @ moved - side.adjoint(pressed) + linear).max() <= 1e-16
    assert moved.min() >= 0.0
    assert pressed[0] >= 0.0


def test_the_rounding_of_multipliers_is_charged() -> None:
    """In exact arithmetic ``F' mu`` is as near as it says, and what cancels does not hide it."""
    rng = np.random.default_rng(5)
    m, d = 400, 3
    F = np.column_stack([rng.standard_normal((m, 2)), np.zeros(m)])
    F[7, 2] = -1.0
    side = SideConstraints(sp.csr_matrix(F), np.zeros(m), (("zero", m),))
    problem = Problem(
        Rows(np.ones((2, d))), Losses(np.zeros(2), 0.0, 0.0, -np.ones(2), np.ones(2)),
        Quadratic(np.zeros(d)), np.zeros(d), side=side,
    )
    mu = rng.standard_normal(m)
    mu[-1] -= (F[:, 0] @ mu) / F[-1, 0]
    error = module._multipliers_error(problem, mu)
    exact = [
        sum((Fraction(float(a)) * Fraction(float(b)) for a, b in zip(F[:, j], mu, strict=True)),
            Fraction(0)) for j in range(d)
    ]
    off = [abs(float(Fraction(float(v)) - e)) for v, e in zip(side.adjoint(mu), exact, strict=True)]
    assert off[0] > abs(float(exact[0])) * UNIT  # beyond the rounding of what is left
    assert (np.array(off) <= error).all()
    assert error[2] == 0.0  # one multiplier alone
    assert (error[:2] <= 4.0 * m * UNIT * (np.abs(F).T @ np.abs(mu))[:2]).all()
    x = np.zeros(d)
    point = reference_point(problem, x, np.zeros(2), np.where(np.arange(m) == 7, 0.5, 0.0))
    assert point.gap == np.inf  # nothing takes up that the multiplier is not balanced


def test_what_cannot_come_nearer_stays() -> None:
    """Every slope at its end and no multiplier that may move."""
    A = np.array([[1.0], [2.0]])
    losses = Losses(np.zeros(2), 0.0, 0.0, np.zeros(2), np.ones(2))
    side = SideConstraints(sp.csr_matrix([[1.0]]), np.array([1.0]), (("nonneg", 1),))
    problem = Problem(Rows(A), losses, Quadratic(np.zeros(1)), np.zeros(1), side=side)
    theta, mu = np.array([1.0, 0.0]), np.zeros(1)
    assert module.balance_with_multipliers(problem, theta, mu, np.zeros(1)) == (theta, mu)


def test_coordinates_that_no_term_has_are_left_as_they_are() -> None:
    """Bounds of norms, beside coordinates that terms balance as they would alone."""
    rng = np.random.default_rng(4)
    n, d, k = 60, 2, 40
    rows = np.hstack([rng.standard_normal((n, d)), np.zeros((n, k))])
    losses = Losses(rng.standard_normal(n), *np.zeros((2, n)), -np.ones(n), np.ones(n))
    whole = Problem(
        design=Rows(rows), losses=losses, quadratic=Quadratic(np.zeros(d + k)),
        linear=np.zeros(d + k),
    )
    alone = Problem(
        design=Rows(rows[:, :d].copy()), losses=losses, quadratic=Quadratic(np.zeros(d)),
        linear=np.zeros(d),
    )
    theta, target = rng.uniform(-0.9, 0.9, n), rng.standard_normal(d + k)
    found = module.balance(whole, theta, target, rows @ np.zeros(d + k))
    np.testing.assert_array_equal(
        found, module.balance(alone, theta, target[:d], rows @ np.zeros(d + k))
    )
    np.testing.assert_allclose(rows[:, :d].T @ found, -target[:d], atol=1e-10)
    cost = module.imbalance_cost(
        whole, found, np.full(d + k, 1e-9), np.zeros(d + k), target, np.ones(n)
    )
    assert cost == np.inf
