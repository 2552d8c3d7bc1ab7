"""Every bound: attained with equality somewhere, containing the exact optimum everywhere.

The loops run over `BOUNDS` itself, so a new bound is met as soon as it is in the table; without a
family in `ATTAINED` it fails `test_every_bound_is_attained_somewhere`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
from strategies import (
    CASES,
    HALVES,
    LOSSES,
    Case,
    Reference,
    array,
    build,
    inside,
    points,
    reference,
)

from cvxscreen.api import solve
from cvxscreen.bounds import BOUNDS, PAIRS, PARAMETER_CHANGE, available, midpoint_ball, named
from cvxscreen.bounds.regions import Ball, Everywhere, Region
from cvxscreen.core.duality import Point, reference_point
from cvxscreen.core.losses import Losses, Piece
from cvxscreen.core.problem import Problem
from cvxscreen.datasets import two_gaussians
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput, UnknownName
from cvxscreen.models.linear import regression, svm
from cvxscreen.screening.reduction import judge


def linear_pieces(loss: str, d: int, seed: int) -> Problem:
    """C so small that at the optimum (and around it) every term is on a linear piece."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((12, d))
    if loss == "hinge":
        return svm(X, np.resize([1.0, -1.0, -1.0], 12), C=2.0**-8)
    y = rng.choice([-1.0, 1.0], 12) * rng.uniform(2.0, 3.0, 12)
    return regression(X, y, C=2.0**-8, loss=loss)


def ends_of_the_box(problem: Problem) -> np.ndarray:
    """The dual optimum of `linear_pieces`: the slope at 0."""
    return problem.losses.slope(np.zeros(problem.n))


def optimum_of(problem: Problem) -> np.ndarray:
    return -problem.design.adjoint(ends_of_the_box(problem))


Family = Callable[[str, int, int], tuple[Problem, Point]]


def for_gap(loss: str, d: int, seed: int) -> tuple[Problem, Point]:
    """Any small x with the dual optimum: the whole gap is ``1/2 ||x - w*||^2``."""
    problem = linear_pieces(loss, d, seed)
    rng = np.random.default_rng(seed)
    size = np.linalg.norm(optimum_of(problem))
    x = optimum_of(problem) + size * rng.standard_normal(d)
    return problem, reference_point(problem, x, ends_of_the_box(problem))


def for_dvi(loss: str, d: int, seed: int) -> tuple[Problem, Point]:
    """The exact optimum at C0 as a reference at C = s C0: w*(C) = s w*(C0) is on the sphere."""
    problem = linear_pieces(loss, d, seed)
    s = 2.0 ** np.random.default_rng(seed).uniform(-2, 2)
    point = reference_point(problem, optimum_of(problem), ends_of_the_box(problem))
    return problem.with_(C=s * problem.C), point


ATTAINED: dict[str, Family] = {
    "midpoint": for_gap, "gap": for_gap, "pgb": for_gap, "dvi": for_dvi, "dvi_star": for_dvi,
    "rpb": for_dvi, "bt1": for_dvi, "bt2": for_dvi, "it": for_dvi,
}


def ball(region: Region) -> Ball:
    assert isinstance(region, Ball)
    return region


@pytest.mark.table
@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("loss", ["hinge", "absolute", "quantile", "epsilon"])
@pytest.mark.parametrize("d", [1, 2, 6])
def test_every_bound_is_attained_somewhere(name: str, loss: str, d: int) -> None:
    """The optimum lies on the sphere: inside the ball, outside one with 0.99 of its radius."""
    assert name in ATTAINED, f"add a family of problems where {name!r} holds with equality"
    for seed in range(8):
        problem, point = ATTAINED[name](loss, d, seed)
        parts = BOUNDS[name](problem, point).balls
        x = optimum_of(problem)
        assert (problem.losses.piece_within(*2 * (problem.design.forward(x),)) >= 0).all()
        assert parts
        for region in parts:
            assert region.contains(x)
            assert not replace(region, radius=0.99 * region.radius).contains(x)
            # Margins, too: the interval of some direction is attained.
            low, high = region.intervals()
            margins = problem.design.forward(x)
            assert (low <= margins).all()
            assert (margins <= high).all()
            if d == 1:
                reach = region.radius * problem.norms
                touched = np.minimum(margins - low, high - margins) <= 1e-3 * reach
                assert touched.all()


def test_midpoint_is_attained_with_primal_and_dual_both_off() -> None:
    """Interpolation with n < d: x moves in the null space, theta anywhere inside the box."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        A, y = rng.standard_normal((3, 6)), rng.standard_normal(3)
        optimum = np.linalg.pinv(A) @ y
        problem = regression(A, y, C=1e3)
        null = np.linalg.svd(A)[2][3:]
        theta = -np.linalg.solve(A @ A.T, y) + rng.standard_normal(3)
        point = reference_point(problem, optimum + null.T @ rng.standard_normal(3), theta)
        region = ball(BOUNDS["midpoint"](problem, point))
        assert region.contains(optimum)
        assert not replace(region, radius=0.99 * region.radius).contains(optimum)



@cache
def near_and_far(loss: str, half: int) -> list[tuple[Reference, Point]]:
    """Points of every kind of data, the same for every bound."""
    rng = np.random.default_rng(20130617 + half)
    refs = [reference(c) for c in CASES if c.loss == loss and array(c) % 2 == half]
    return [(ref, point) for ref in refs for point in points(ref, rng, 2)]


@pytest.mark.table
@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_exact_optimum_is_inside(name: str, loss: str, half: int) -> None:
    """Containment in rational arithmetic, for points near and far and every kind of data."""
    for ref, point in near_and_far(loss, half):
        assert inside(ref, BOUNDS[name](ref.problem, point))


@cache
def across(loss: str, half: int) -> list[tuple[Reference, Point, Point]]:
    """References at s C, both directions, approximate with relative gaps 1e-1 to 1e-12."""
    rng, found = np.random.default_rng(20130617 + half), []
    cases = [c for c in CASES if c.loss == loss and array(c) % 2 == half]
    for ref in (reference(case) for case in cases if case.storage == "dense64"):
        for s in (0.25, 0.9, 1.0, 1.1, 4.0):
            there = ref.problem.with_(C=ref.problem.C * s)
            for blur in 10.0 ** rng.uniform(-6, -0.5, 2):
                x = ref.x * (1 + blur * rng.standard_normal(there.d))
                theta = s * ref.theta * (1 + blur * rng.standard_normal(there.n))
                point = reference_point(there, x, theta)
                found.append((ref, point, reference_point(there, point.x_theta, point.theta)))
    return found


@pytest.mark.table
@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", PARAMETER_CHANGE)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_optimum_at_another_C_is_inside(name: str, loss: str, half: int) -> None:
    """From primal and dual points, and from dual points alone."""
    for ref, point, dual_only in across(loss, half):
        assert inside(ref, BOUNDS[name](ref.problem, point))
        assert inside(ref, BOUNDS[name](ref.problem, dual_only))


@pytest.mark.parametrize("name", PARAMETER_CHANGE)
def test_a_reference_with_other_losses_on_the_same_data_is_still_safe(name: str) -> None:
    """Same design object, other weights: whatever is reused must not assume scaled losses."""
    rng = np.random.default_rng(4)
    for loss in ("hinge", "absolute", "smoothed_hinge"):
        ref = reference(Case(loss, n=30))
        problem = ref.problem
        for _ in range(10):
            factor = rng.choice([0.0, 0.25, 1.0, 4.0], problem.n)
            f = problem.losses
            q = np.where(factor > 0, f.q / np.maximum(factor, 0.25), 0.0)
            other = replace(problem, losses=Losses(f.b, f.e, q, factor * f.lo, factor * f.hi))
            pair = reference_point(other, ref.x, factor * ref.theta)
            point = reference_point(other, pair.x_theta, pair.theta)
            assert inside(ref, BOUNDS[name](problem, point))


def test_midpoint_lies_within_gap_ball(rng: np.random.Generator) -> None:
    """``||c - x|| + r <= sqrt(2 G)`` always: the midpoint ball is a subset, intervals nest."""
    for case in CASES[::2]:
        ref = reference(case)
        for point in points(ref, rng):
            if not np.isfinite(point.gap):
                continue
            small, large = (ball(BOUNDS[k](ref.problem, point)) for k in ("midpoint", "gap"))
            kept = ~ref.problem.quadratic.free
            step = np.where(kept, small.centre - large.centre, 0.0)
            reach = ref.problem.quadratic.norm(step) + small.radius
            # The two radii are rounded outward separately, each with the rounding of theta once.
            slack = 1e-3 * small.radius + 4.0 * point.dual_error
            assert small.radius <= large.radius
            assert reach <= large.radius + slack


def test_exact_points_give_balls_of_rounding_size() -> None:
    """At the exact optimum every region at the same C has a radius of square root of rounding.

    Not those that choose a point of their own: at a kink theta is then any subgradient.
    """
    for case in CASES[::4]:
        ref = reference(case)
        point = reference_point(ref.problem, ref.x, ref.theta)
        if not np.isfinite(point.gap):
            continue
        for name in set(BOUNDS) - {"bt2", "dvi_star", "pgb"}:
            region = BOUNDS[name](ref.problem, point)
            assert not isinstance(region, Everywhere)
            size = np.sqrt(abs(point.primal))
            assert region.radius <= 1e-5 * size, name


def test_dvi_with_an_exact_reference_is_the_printed_ball() -> None:
    """Centre ``(1+s)/2 w0``, radius ``|1-s|/2 ||w0||``, rounding apart, in both directions."""
    for loss in LOSSES:
        ref = reference(Case(loss))
        point = reference_point(ref.problem, ref.x, ref.theta)
        w = np.linalg.norm(ref.x)
        for s in (0.5, 0.8, 1.25, 2.0):
            region = ball(BOUNDS["dvi"](ref.problem.with_(C=s * ref.problem.C), point))
            np.testing.assert_allclose(region.centre, (1 + s) / 2 * ref.x, rtol=1e-7)
            # The reference's own gap is rounding, about 1e-15 P; its square root enters.
            assert region.radius == pytest.approx(abs(1 - s) / 2 * w, rel=1e-6)


@pytest.mark.parametrize("kind", ["dense", "sparse", "factors", "sparse factors"])
def test_rows_whose_squares_underflow_are_decided_rightly(kind: str) -> None:
    """The same problem with some rows times s and their weights by s: no ball may see points.

    Or with rows that are long in the matrix and have short factors, whose squares underflow.
    """
    decided = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X, small = rng.standard_normal((40, 3)), rng.random(40) < 0.3
        y = np.where(small, 0.0, X @ rng.standard_normal(3) + rng.standard_normal(40))
        plain = regression(X, y, C=0.3)
        optimum = solve(plain, tol=1e-12).x
        rest = X @ optimum - y
        for s in (1e-155, 1e-160, 1e-170, 1e-250):
            factor = np.where(small, s, 1.0)
            long = np.where(small, min(1e150, 1e-30 / s), 1.0) if "factors" in kind else 1.0
            weight = 1.0 / (factor * long)
            rows = (long if "factors" in kind else factor)[:, None] * X
            tiny = regression(sp.csr_matrix(rows) if "sparse" in kind else rows, y, C=0.3,
                              sample_weight=weight)
            if "factors" in kind:
                tiny = replace(tiny, design=Rows(tiny.design.matrix, factor))
            point = reference_point(tiny, optimum * (1.0 + 0.2 * rng.standard_normal(3)))
            for name in BOUNDS:
                codes = judge(tiny, named(name)(tiny, point)).codes
                assert not ((codes == Piece.HIGH) & (rest < -1e-9)).any()
                assert not ((codes == Piece.LOW) & (rest > 1e-9)).any()
                decided += int((codes >= 0).sum())
    assert decided > 300


def test_points_of_another_problem_are_refused() -> None:
    """`midpoint` and `gap` need the very problem; `dvi` and `rpb` the same sizes."""
    problem, other = build(Case("hinge")), build(Case("hinge", n=25))
    point = reference_point(problem, np.zeros(problem.d))
    for name in BOUNDS:
        with pytest.raises(InvalidInput, match="`reference`"):
            BOUNDS[name](other, point)
    for name in set(BOUNDS) - set(PARAMETER_CHANGE):
        with pytest.raises(InvalidInput, match="another problem"):
            BOUNDS[name](problem.with_(C=2.0), point)


def test_bounds_by_name() -> None:
    """`available` lists the tables that names are looked up in; an unknown name lists the known."""
    problem = build(Case("hinge", intercept=True))
    assert available(problem) == tuple(sorted({*BOUNDS, *PAIRS}))
    for name in BOUNDS:
        assert named(name) is BOUNDS[name]
    with pytest.raises(UnknownName, match="midpoint"):
        named("sphere")


def test_an_equal_problem_is_the_same_and_no_other() -> None:
    """`with_` makes a new object of the same parts; one other number is another problem."""
    X, y = two_gaussians(60, 3, seed=4)
    base = svm(X, y, C=0.5)
    point = solve(base.with_(C=0.6)).point()
    twin = base.with_(C=0.6)
    ball = midpoint_ball(twin, point)
    assert ball.radius == midpoint_ball(point.problem, point).radius
    assert judge(twin, ball).undecided.sum() < 60
    f = twin.losses
    moved = f.b.copy()
    moved[7] = np.nextafter(moved[7], np.inf)
    for other in (
        base, svm(X, y, C=0.6), replace(twin, losses=Losses(moved, f.e, f.q, f.lo, f.hi)),
        replace(twin, linear=np.ones(3)),
    ):
        with pytest.raises(InvalidInput, match="another problem"):
            midpoint_ball(other, point)
