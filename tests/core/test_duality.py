"""The gap of a point is never below the true gap, and dual points are feasible to rounding."""

from __future__ import annotations

import numpy as np
import pytest
from exact import Exact, Fraction, dot, exact
from strategies import CASES, DATA, LOSSES, Case, build, crossed, points, reference, suboptimal

from cvxscreen.core.duality import dual_feasible, reference_point
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
