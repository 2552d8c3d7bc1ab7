"""Points inside side constraints for certain, and safe screening that rests on them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from cvxpy_plugin.zoo import Data

from cvxscreen import cvxpy_plugin
from cvxscreen.bounds import midpoint_ball
from cvxscreen.bounds import one_reference as balls
from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.duality import reference_point
from cvxscreen.cvxpy_plugin.cvxpy_solver import CvxpySolver, strictly_feasible_point
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise
from cvxscreen.screening.verdict import judge
from cvxscreen.solvers.loop import solve_screened

cvxpy_plugin.register()
TIGHT = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}


def box(d: int = 3) -> SideConstraints:
    rows = np.vstack([np.eye(d), -np.eye(d)])
    return SideConstraints(sp.csr_matrix(rows), np.tile([0.2, 0.6], (d, 1)).T.ravel(),
                           [("nonneg", 2 * d)])


def ball(d: int = 3) -> SideConstraints:
    rows = np.vstack([np.zeros(d), np.eye(d)])
    return SideConstraints(sp.csr_matrix(rows), np.append(0.7, np.zeros(d)), [("soc", d + 1)])


def psd(side: int = 2) -> SideConstraints:
    return SideConstraints(sp.eye(side * side), np.zeros(side * side), [("psd", side)])


@pytest.mark.parametrize("make", [box, ball, psd])
def test_a_strict_point_and_the_step_towards_it(make: Any) -> None:
    side = make()
    strict = strictly_feasible_point(side)
    assert strict is not None
    assert side.surely_holds(strict)
    away = 10.0 * np.ones(len(strict)) if make is not psd else -np.eye(2).ravel()
    assert np.array_equal(side.moved_inside(away, strict), away)  # too far for a small step
    assert np.array_equal(side.moved_inside(strict, strict), strict)


@pytest.mark.parametrize("make", [box, ball])
def test_certain_means_in_rational_arithmetic(make: Any) -> None:
    """Points around the boundary, an ulp apart: whatever is called inside is inside."""
    side = make()
    strict = strictly_feasible_point(side)
    rng = np.random.default_rng(4)
    F = [[Fraction(float(v)) for v in row] for row in side.matrix.toarray()]
    f = [Fraction(float(v)) for v in side.offset]
    told = 0
    for _ in range(200):
        x = rng.standard_normal(3)
        # On the boundary along a ray from the strict point, up to rounding.
        low, high = 0.0, 1e3
        for _ in range(80):
            middle = 0.5 * (low + high)
            fits = side.violation(strict + middle * x) == 0.0
            low, high = (middle, high) if fits else (low, middle)
        at = strict + low * (1 + rng.integers(-40, 2) * 1e-16) * x
        if not side.surely_holds(at):
            moved = side.moved_inside(at, strict)
            assert side.surely_holds(moved)
            assert np.abs(moved - at).max() <= 1e-8
            at = moved
        told += 1
        z = [Fraction(float(v)) for v in at]
        s = [sum(a * b for a, b in zip(row, z, strict=True)) + c
             for row, c in zip(F, f, strict=True)]
        if make is box:
            assert min(s) >= 0
        else:
            assert s[0] >= 0
            assert s[0] ** 2 >= sum(v * v for v in s[1:])
    assert told == 200


def test_an_eigenvalue_of_the_wrong_sign_is_never_inside() -> None:
    side, rng = psd(3), np.random.default_rng(5)
    for size in (1.0, 1e-6, 1e6):
        for _ in range(50):
            Q = np.linalg.qr(rng.standard_normal((3, 3)))[0]
            for small in (-1e-15, -1e-18, 0.0):
                M = (Q * (size * np.array([1.0, 0.3, small]))) @ Q.T
                assert not side.surely_holds(M.ravel())
            M = (Q * (size * np.array([1.0, 0.3, 1e-10]))) @ Q.T
            assert side.surely_holds(M.ravel())


def test_without_an_interior_there_is_no_strict_point() -> None:
    plane = SideConstraints(sp.csr_matrix(np.ones((1, 3))), [-1.0], [("zero", 1)])
    assert not plane.surely_holds(np.array([1.0, 0.0, 0.0]))
    twice = SideConstraints(sp.csr_matrix(np.ones((2, 3))), [-1.0, -1.0], [("zero", 2)])
    assert strictly_feasible_point(twice) is None  # equalities without full rank say nothing
    corner = SideConstraints(
        sp.csr_matrix(np.vstack([np.ones((1, 2)), np.eye(2)])), np.zeros(3),
        [("zero", 1), ("nonneg", 2)])
    assert strictly_feasible_point(corner) is None
    pinched = SideConstraints(sp.csr_matrix([[1.0], [-1.0]]), [0.0, 0.0], [("nonneg", 2)])
    assert strictly_feasible_point(pinched) is None
    empty = SideConstraints(sp.csr_matrix([[1.0], [-1.0]]), [-1.0, 0.0], [("nonneg", 2)])
    assert strictly_feasible_point(empty) is None


def test_nearness_is_a_distance_to_the_feasible_set() -> None:
    """Against the exact projection onto the plane, in rational arithmetic; never below it."""
    rng = np.random.default_rng(8)
    tight = 0
    for size in (1.0, 1e-4, 1e5):
        for _ in range(60):
            normal, offset = size * rng.standard_normal(3), float(size * rng.standard_normal())
            rows = np.vstack([normal, np.eye(3)])
            side = SideConstraints(
                sp.csr_matrix(rows), np.append(offset, np.full(3, 1e3)),
                [("zero", 1), ("nonneg", 3)])
            x = rng.standard_normal(3)
            x -= normal * (normal @ x + offset) / (normal @ normal)
            x += rng.choice([0.0, 1e-12, 1e-6]) * rng.standard_normal(3)
            exact = [Fraction(float(v)) for v in normal]
            left = sum(a * Fraction(float(v)) for a, v in zip(exact, x, strict=True))
            left = abs(left + Fraction(offset))
            distance = float(left) / float(sum(a * a for a in exact)) ** 0.5
            near = side.nearness(x)
            assert np.isfinite(near)
            assert near >= distance * (1 - 1e-12)
            if distance > 1e-8:
                assert near <= 1.001 * distance
                tight += 1
    assert tight > 30


CONSTRAINTS: dict[str, Any] = {
    "plane": lambda s: [cp.sum(s.w) == 0.2],
    "plane_and_box": lambda s: [cp.sum(s.w) == 0.2, s.w <= 0.15, s.w[0] + 2 * s.w[1] == 0.05],
    "box": lambda s: [s.w <= 0.1, s.w >= -0.1],
    "ball": lambda s: [cp.norm(s.w) <= 0.3],
    "both": lambda s: [cp.norm(s.w) <= 0.3, cp.sum(s.w) >= 0.05],
}


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_safe_mode_proves_under_constraints_and_never_wrongly(name: str) -> None:
    """Verdicts from a loose point hold at a far more accurate solution."""
    data = Data(n=600, d=4)
    hinge = cp.sum(cp.pos(1 - cp.multiply(data.y, data.X @ data.w)))
    problem = cp.Problem(cp.Minimize(data.ridge + hinge), CONSTRAINTS[name](data))
    found = recognise(problem).problem
    truth = solve_screened(found, CvxpySolver("CLARABEL", TIGHT), tol=1e-8)
    margins = found.design.forward(truth.x)
    proven = 0
    for tol in (1e-2, 1e-4, 1e-7):
        options = {"tol_gap_abs": tol, "tol_gap_rel": tol, "tol_feas": tol}
        loose = CvxpySolver("CLARABEL", options)(found)
        point = reference_point(found, loose.x, loose.theta, loose.multipliers)
        verdict = judge(found, midpoint_ball(found, point))
        proven = max(proven, int(verdict.zero.sum() + verdict.linear.sum()))
        accuracy = 1e-6
        low, high = found.losses.b - accuracy, found.losses.b + accuracy
        assert (margins[verdict.zero] >= low[verdict.zero]).all()
        assert (margins[verdict.linear] <= high[verdict.linear]).all()
    assert proven > 0.8 * found.n
    problem.solve(method="screen", mode="safe", solver="CLARABEL", **TIGHT)
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert report.fixed["zero"] + report.fixed["linear"] > 0.8 * report.terms
    assert report.fixed["predicted"] == 0


def test_being_off_an_equality_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """From points beside the plane the ball contains the optimum; without the charge it does not.

    ``x = x* + s n`` without any multiplier: for one sign of s the point lies between the optimum
    and ``x_theta``, and a ball over those two alone leaves the optimum out by s.
    """
    data = Data(n=200, d=4)
    hinge = cp.sum(cp.pos(1 - cp.multiply(data.y, data.X @ data.w)))
    problem = cp.Problem(cp.Minimize(data.ridge + hinge), [cp.sum(data.w) == 0.2])
    found = recognise(problem).problem
    truth = solve_screened(found, CvxpySolver("CLARABEL", TIGHT), tol=1e-9)
    normal = np.ones(4) / 2.0

    def excess() -> list[float]:
        """Distance of the optimum from the centre, minus the radius."""
        out = []
        for step in (1e-2, -1e-2, 1e-4, -1e-4, 1e-6, -1e-6):
            point = reference_point(
                found, truth.x + step * normal, truth.theta, np.zeros(1))
            region = midpoint_ball(found, point)
            out.append(float(np.linalg.norm(truth.x - region.centre)) - region.radius)
        return out

    assert max(excess()) <= 1e-7
    monkeypatch.setattr(balls, "_infeasibility", lambda *_: (0.0, 0.0))
    assert max(excess()) > 5e-3
