"""Second-order cones in the interior point method: the scaling, faces, and whole problems."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

from cvxscreen.certificates.certificate import certify
from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.solvers.interior_point import (
    RAY,
    Attempt,
    InteriorPoint,
    IntervalTerms,
    PrimalDualPath,
)
from cvxscreen.solvers.registry import builtin_takes
from cvxscreen.solvers.second_order import Scaling, SecondOrderCones
from cvxscreen.solvers.within_budgets import within_budgets

SIZES = (3, 1, 5, 2)


def cones(seed: int = 0) -> SecondOrderCones:
    """Cones of several sizes over four coordinates."""
    rng = np.random.default_rng(seed)
    rows, heads = sum(SIZES), np.cumsum((0, *SIZES[:-1]))
    matrix, offset = rng.standard_normal((rows, 4)), rng.standard_normal(rows)
    return SecondOrderCones(matrix, offset, heads, np.arange(rows))


def inside(of: SecondOrderCones, seed: int, room: float = 0.3) -> Any:
    """A vector inside all of them."""
    u = np.random.default_rng(seed).standard_normal(len(of.offset))
    u[of.heads] = of.split(u)[1] + room
    return u


def test_products_quotients_and_inverses_are_those_of_the_algebra() -> None:
    """``(u' v, u0 v1 + v0 u1)`` cone by cone; e is its unit."""
    of = cones()
    u, v = inside(of, 1), np.random.default_rng(2).standard_normal(len(of.offset))
    found, ends = of.product(u, v), np.cumsum(SIZES)
    for start, stop in zip(of.heads, ends, strict=True):
        a, b = u[start:stop], v[start:stop]
        np.testing.assert_allclose(
            found[start:stop], np.append(a @ b, a[0] * b[1:] + b[0] * a[1:]), atol=1e-14)
    np.testing.assert_allclose(of.quotient(found, u), v, atol=1e-13)
    np.testing.assert_allclose(of.product(u, of.inverse(u)), of.unit, atol=1e-13)
    side = SideConstraints(sp.identity(sum(SIZES)), np.zeros(sum(SIZES)),
                           [("soc", size) for size in SIZES])
    np.testing.assert_allclose(of.project(v), side.project(v), atol=1e-15)


@pytest.mark.parametrize("room", [1.0, 1e-3, 1e-7])
def test_the_scaling_maps_a_pair_to_one_point(room: float) -> None:
    """``W z = W^-1 s``; W is symmetric, keeps the cones, and its two ways undo each other."""
    of = cones()
    s, z = inside(of, 1, room), inside(of, 2, 0.5)
    scaling = Scaling(of, s, z)
    np.testing.assert_allclose(scaling.undone(s), scaling.times(z), rtol=1e-6, atol=1e-6)
    assert of.room(scaling.point).min() > 0
    u, v = (np.random.default_rng(k).standard_normal(len(of.offset)) for k in (3, 4))
    np.testing.assert_allclose(scaling.undone(scaling.times(u)), u, atol=1e-7)
    assert u @ scaling.times(v) == pytest.approx(v @ scaling.times(u), rel=1e-12)
    each = np.column_stack([scaling.undone(column) for column in of.matrix.T])
    np.testing.assert_allclose(scaling.matrix, each, rtol=1e-12)


def test_a_step_ends_where_the_first_cone_does() -> None:
    """A part of it less is inside, a part more outside; where nothing ends it is a million."""
    of = cones()
    for seed in range(20):
        u = inside(of, seed)
        change = 3.0 * np.random.default_rng([seed, 1]).standard_normal(len(of.offset))
        length = of.longest_step(u, change)
        assert of.room(u + (1.0 - 1e-9) * length * change).min() > 0
        assert of.room(u + (1.0 + 1e-9) * length * change).min() < 0
    assert of.longest_step(u, u) == 1e6


def test_a_helper_begins_with_the_multiplier_that_it_costs() -> None:
    """The bound of a norm, ``cost t`` with ``(t, x)`` in the cone: stationary from the start."""
    matrix = np.vstack([[0.0, 0.0, 2.0], np.eye(3)[:2]])
    of = SecondOrderCones(matrix, np.zeros(3), np.zeros(1, dtype=np.intp), np.arange(3))
    at, owner, entries = of.helpers(np.array([False, False, True]))
    assert (list(at), list(owner), list(entries)) == ([2], [0], [2.0])
    assert not len(of.helpers(np.array([True, True, False]))[0])
    x, cost, level = np.array([3.0, 4.0, 0.0]), np.array([0.7]), np.array([0.01])
    x[2] = (of.at_cost(x, owner, cost, level) / entries)[0]
    s, z = of.first(x, level, cost)
    np.testing.assert_allclose(s, matrix @ x, rtol=1e-14)
    assert z[0] == pytest.approx(0.7, rel=1e-9)
    np.testing.assert_allclose(of.product(s, z), [0.01, 0.0, 0.0], atol=1e-12)


def drawn(seed: int) -> Problem:
    """Losses of four kinds with bounds of norms in the objective, and cones, rows and bounds."""
    rng = np.random.default_rng(seed)
    n, d, helpers = int(rng.integers(5, 200)), int(rng.integers(1, 9)), int(rng.integers(0, 3))
    A = np.zeros((n, d + helpers))
    A[:, :d] = rng.standard_normal((n, d)) * 10 ** rng.uniform(-1, 1, d)
    kind = seed % 4
    lo = np.zeros(n) if kind == 1 else -rng.uniform(0.1, 1, n) / n
    losses = Losses(rng.standard_normal(n), np.full(n, 0.2 * (kind == 3)),
                    np.full(n, 0.3 * n * (kind == 2)), lo, rng.uniform(0.1, 1, n) / n)
    linear = np.zeros(d + helpers)
    linear[d:] = 10 ** rng.uniform(-2, 0.5, helpers)
    inner = rng.standard_normal(d) * 0.1  # a point that all constraints hold at
    rows, offsets, dims = [], [], []
    for k in range(helpers):
        F = np.zeros((d + 1, d + helpers))
        F[0, d + k], F[1:, :d] = 1.0, np.eye(d)
        rows, offsets, dims = [*rows, F], [*offsets, np.zeros(d + 1)], [*dims, ("soc", d + 1)]
    for _ in range(int(rng.integers(0 if helpers else 1, 3))):
        k = int(rng.integers(1, d + 2))
        F = np.zeros((k + 1, d + helpers))
        F[1:, :d] = rng.standard_normal((k, d))
        g = np.append(10 ** rng.uniform(-1, 1), -F[1:, :d] @ inner)
        rows, offsets, dims = [*rows, F], [*offsets, g], [*dims, ("soc", k + 1)]
    if seed % 3 == 0:
        F = np.zeros((1, d + helpers))
        F[0, :d] = 1.0
        rows, offsets = [*rows, F], [*offsets, -F[:, :d] @ inner]
        dims.append(("zero", 1))
    if seed % 5 == 0:
        F = np.eye(d, d + helpers)
        rows, offsets, dims = [*rows, F], [*offsets, 0.1 - inner], [*dims, ("nonneg", d)]
    side = SideConstraints(sp.csr_matrix(np.vstack(rows)), np.concatenate(offsets), dims)
    ridge = Quadratic(np.where(np.arange(d + helpers) < d, 0.1 * (seed % 2), 0.0))
    return Problem(Rows(A), losses, ridge, linear, side=side)


@pytest.mark.table
@pytest.mark.parametrize("seed", range(60))
def test_any_problem(seed: int) -> None:
    """The value of Clarabel; feasible, balanced, and multipliers in the cones."""
    problem = drawn(seed)
    written = problem.to_cvxpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short of such tolerances it is an answer all the same
        written.solve(solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    value = float(written.value)
    found = InteriorPoint()(problem, target=1e-9 * abs(value))
    assert found.status == "optimal"
    assert found.info["steps"] < 70
    assert problem.primal(found.x) == pytest.approx(value, rel=1e-7, abs=1e-9)
    side = problem.side
    assert side.violation(found.x) <= 1e-9 * (1.0 + np.abs(side.offset).max())
    apart = found.multipliers - side.project_dual(found.multipliers)
    assert np.abs(apart).max() <= 1e-9 * (1.0 + np.abs(found.multipliers).max())
    proof = certify(problem, found.x, found.theta, found.multipliers, tol=1e-6)
    assert proof.gap <= 1e-6 * (abs(value) + 1e-3)


@pytest.mark.parametrize("offset", [0.0, 0.3])
@pytest.mark.parametrize("weight", [0.02, 0.5])
def test_the_answer_is_exact_on_boundaries_and_at_points_of_cones(
    weight: float, offset: float
) -> None:
    """A norm that is 0 at the optimum and one that is not: the equations hold to rounding."""
    rng = np.random.default_rng(1)
    A, b = rng.standard_normal((300, 5)), rng.standard_normal(300)
    frame = sp.csr_matrix(np.vstack([np.eye(5)[4], np.eye(5)[:4]]))
    shift = np.append(0.0, np.full(4, offset))
    problem = Problem(
        Rows(np.column_stack([A[:, :4], np.zeros(300)])),
        Losses.repeated(300, 0.0, 0.0, 0.0, -1 / 300, 1 / 300), Quadratic(np.zeros(5)),
        np.append(np.zeros(4), weight), side=SideConstraints(frame, shift, [("soc", 5)]),
    )
    problem = replace(problem, losses=Losses(b, *(getattr(problem.losses, name) for name in
                                                  ("e", "q", "lo", "hi"))))
    found = InteriorPoint()(problem, target=1e-15)
    left = (problem.design.adjoint(found.theta) + problem.linear
            - problem.side.adjoint(found.multipliers))
    assert np.abs(left).max() <= 1e-14
    z = found.multipliers
    assert z[0] >= np.linalg.norm(z[1:]) - 1e-15
    assert abs(z @ problem.side.slack(found.x)) <= 1e-14
    tail = np.linalg.norm(found.x[:4] + offset)
    assert (tail <= 1e-12) == (weight == 0.5)


def test_infeasible_and_unbounded() -> None:
    """Two balls that do not meet; a fall that no cone holds back."""
    rng = np.random.default_rng(0)
    problem = drawn(4)
    d = problem.d
    ball = np.vstack([np.zeros((1, d)), np.eye(d)])
    centre = np.zeros(d)
    centre[0] = 5.0
    side = SideConstraints(
        sp.csr_matrix(np.vstack([ball, ball])),
        np.concatenate([[1.0], centre, [1.0], -centre]), [("soc", d + 1)] * 2,
    )
    assert InteriorPoint()(replace(problem, side=side)).status == "infeasible"
    A = rng.standard_normal((30, 2))
    falling = Problem(
        Rows(A), Losses.repeated(30, 1.0, 0.0, 0.0, 0.0, 1.0), Quadratic(np.zeros(2)),
        -10.0 * np.abs(A).sum(axis=0),
        side=SideConstraints(sp.csr_matrix([[1.0, 0.0], [0.0, 1.0]]), np.ones(2), [("soc", 2)]),
    )
    assert InteriorPoint()(falling).status == "unbounded"


def test_a_budget_and_a_norm() -> None:
    """Losses in a budget beside a bound on a norm: the value that Clarabel finds."""
    rng = np.random.default_rng(3)
    A, R = rng.standard_normal((400, 5)), rng.standard_normal((300, 5))
    b = A @ rng.standard_normal(5) + rng.standard_normal(400)
    frame = sp.csr_matrix(np.vstack([np.zeros((1, 5)), np.eye(5)]))
    side = SideConstraints(frame, np.append(0.9, np.zeros(5)), [("soc", 6)])
    objective = Problem(
        Rows(A), Losses(b, np.zeros(400), np.zeros(400), np.full(400, -1 / 400),
                        np.full(400, 1 / 400)),
        Quadratic(np.zeros(5)), np.zeros(5), side=side,
    )
    budget = Problem(
        Rows(R), Losses.repeated(300, 0.0, 0.0, 0.0, 0.0, 1 / 300), Quadratic(np.zeros(5)),
        np.zeros(5), constant=-0.25,
    )
    found = within_budgets(objective, [budget])
    assert found is not None
    w = cp.Variable(5)
    truth = cp.Problem(
        cp.Minimize(cp.norm1(A @ w - b) / 400),
        [cp.sum(cp.pos(R @ w)) / 300 <= 0.25, cp.norm(w) <= 0.9],
    )
    truth.solve(solver="CLARABEL")
    assert objective.primal(found.x) == pytest.approx(truth.value, rel=1e-7)
    assert found.weights[0] == pytest.approx(truth.constraints[0].dual_value, rel=1e-4)
    assert np.linalg.norm(found.x) <= 0.9 + 1e-9


def disc(radius: float, slope: float) -> Problem:
    """``slope x_0`` where ``|x| <= radius``, beside a loss that is 0 there."""
    frame = sp.csr_matrix(np.vstack([np.zeros((1, 2)), np.eye(2)]))
    return Problem(
        Rows(np.eye(2)), Losses.repeated(2, 50.0, 0.0, 0.0, 0.0, 1.0), Quadratic(np.zeros(2)),
        np.array([slope, 0.0]), side=SideConstraints(frame, np.array([radius, 0.0, 0.0]),
                                                     [("soc", 3)]),
    )


def test_the_gap_charges_cones_and_knows_no_point_outside() -> None:
    """``<z, s>`` and what z leaves unbalanced; at the optimum there is none."""
    run, theta = Attempt(IntervalTerms.of(disc(2.0, -1.0)), 0.0), np.zeros(2)
    best, z = np.array([2.0, 0.0]), np.array([1.0, -1.0, 0.0])
    assert run.gap_of(best, theta, z)[0] == 0.0
    assert run.gap_of(0.5 * best, theta, z)[0] == pytest.approx(1.0, rel=1e-12)
    assert run.gap_of(best, theta, 0.5 * z)[0] == pytest.approx(1.5, rel=1e-12)
    assert run.gap_of(1.01 * best, theta, z)[0] == np.inf
    assert run.gap_of((1.0 + 1e-12) * best, theta, z)[0] < np.inf


def test_directions_and_multipliers_prove_what_cones_allow() -> None:
    """A disc holds every direction, a cone those inside it; multipliers prove if they balance."""
    path = PrimalDualPath(IntervalTerms.of(disc(2.0, -1.0)))
    assert not path._descends(np.array([1.0, 0.0]))
    wide = replace(disc(2.0, -1.0), side=SideConstraints(
        sp.csr_matrix([[1.0, 0.0], [0.0, 1.0]]), np.zeros(2), [("soc", 2)]))
    path = PrimalDualPath(IntervalTerms.of(replace(wide, linear=np.array([-9.0, 0.0]))))
    assert path._descends(np.array([1.0, 0.5]))
    assert not path._descends(np.array([1.0, 1.5]))
    path = PrimalDualPath(IntervalTerms.of(disc(-1.0, 0.0)))
    path.theta[:] = 0.0
    path.z = np.array([1.0, 0.0, 0.0])
    assert path.separating(RAY) is not None
    path.z = np.array([1.0, -0.5, 0.0])
    assert path.separating(RAY) is None


def test_cones_alone_are_solved_while_they_are_few() -> None:
    """Without losses: the built-in method up to some number of cones, Clarabel beyond."""
    few = replace(disc(2.0, -1.0), design=Rows(np.zeros((0, 2))),
                  losses=Losses(*(np.zeros(0) for _ in range(5))))
    found = InteriorPoint()(few)
    assert found.status == "optimal"
    np.testing.assert_allclose(found.x, [2.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(found.multipliers, [1.0, -1.0, 0.0], atol=1e-12)
    assert builtin_takes(few)
    side = few.side
    many = SideConstraints(sp.vstack([side.matrix] * 300), np.tile(side.offset, 300),
                           side.dims * 300)
    assert not builtin_takes(replace(few, side=many))
