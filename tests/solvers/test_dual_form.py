"""Problems of many coordinates and few rows, and their dual."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import cvxscreen as cs
from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.solvers.dual_form import Box, DualForm, couples_few, distances
from cvxscreen.solvers.interface import Start
from cvxscreen.solvers.loop import solve_screened

D = 600


def made(seed: int, *, scale: float = 1.0, curved: float = 1.0, squares: int = 3) -> Problem:
    """Squares of few rows, two equations, two inequalities, and boxes of every kind."""
    rng = np.random.default_rng(seed)
    low, high = -rng.uniform(0.0, 1.0, D), rng.uniform(0.0, 1.0, D)
    low[:50], high[:50] = 0.2, 0.7  # without 0 inside
    low[50:70] = high[50:70] = -0.3  # a single point
    x = rng.uniform(low, high)
    diagonal = rng.uniform(0.1, 2.0, D) * (rng.random(D) < curved)
    if curved > 0.0:
        diagonal[70:90], low[70:80], high[75:90] = 1.0, -np.inf, np.inf
    F = rng.standard_normal((4, D)) * scale
    offset = -F @ x + np.array([0.0, 0.0, 0.1, 0.0]) * scale
    matrix, values, dims = [sp.csr_array(F)], [offset], [("zero", 2), ("nonneg", 2)]
    for ends, sign in ((low, 1.0), (high, -1.0)):
        held = np.flatnonzero(np.isfinite(ends))
        for factor, slack in ((2.0, 0.0), (1.0, 0.3)):  # the second row is the weaker bound
            rows = sp.csr_array(
                (np.full(len(held), sign * factor), held, np.arange(len(held) + 1)),
                shape=(len(held), D),
            )
            matrix.append(rows)
            values.append(factor * (slack - sign * ends[held]))
            dims.append(("nonneg", len(held)))
    side = SideConstraints(
        sp.csr_array(sp.vstack(matrix, format="csr")), np.concatenate(values), tuple(dims)
    )
    ends = np.full(squares, np.inf)
    return Problem(
        Rows(rng.standard_normal((squares, D))),
        Losses(rng.standard_normal(squares), 0.0, rng.uniform(0.5, 2.0, squares), -ends, ends),
        Quadratic(diagonal), rng.standard_normal(D), constant=3.0, side=side,
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("curved", "squares"), [(1.0, 3), (0.5, 3), (0.0, 0), (1.0, 0)])
def test_both_have_one_optimum(seed: int, curved: float, squares: int) -> None:
    """The dual's is minus the problem's, and its slopes and coordinates are a certified answer."""
    problem = made(seed, curved=curved, squares=squares)
    form = DualForm.of(problem)
    assert form is not None
    assert form.equivalent.n == D
    assert form.equivalent.d == squares + 4
    dual = solve_screened(form.equivalent, tol=1e-11)
    found = form.invert(dual, 1e-9)
    assert found.status == "optimal", found.certificate.reason
    assert dual.value == pytest.approx(-found.value, rel=1e-9)
    assert problem.side.violation(found.x) <= 1e-10
    bounds = problem.side.matrix[4:] @ found.x + problem.side.offset[4:]
    assert bounds.min() >= -1e-15  # inside its box whatever the rounding
    assert found.multipliers[2:].min() >= 0.0


K = 80


def with_distances(
    seed: int, problem: Problem | None = None, first: int = 100, **changed: float
) -> Problem:
    """`made`, or a `problem`, and K coordinates that cost or are limited.

    Each is above `2 |x_j - v|` for j >= `first`, 100.
    """
    rng = np.random.default_rng(seed)
    problem = problem or made(seed)
    spread = changed.get("spread", 1e-3)
    centres = np.full(K, changed.get("centre", 0.0)) + spread * rng.standard_normal(K)
    if "spread" in changed:
        box, own = Box.of(problem.side, problem.d), slice(first, first + K)
        centres = np.clip(centres, 0.9 * box.low[own], 0.9 * box.high[own])
    wide = lambda part: sp.csr_array(sp.hstack([part, sp.csr_array((part.shape[0], K))]))  # noqa: E731
    at, one = sp.eye_array(K, problem.d, k=first), sp.eye_array(K)
    above = [sp.hstack([-2.0 * at, one]), sp.hstack([2.0 * changed.get("other", 1.0) * at, one])]
    total = sp.csr_array(
        np.append(np.zeros(problem.d), np.full(K, changed.get("sign", -1.0)))[None]
    )
    side = SideConstraints(
        sp.csr_array(sp.vstack([wide(problem.side.matrix), *above, total], format="csr")),
        np.concatenate([
            problem.side.offset, 2.0 * centres, -2.0 * centres, [changed.get("limit", 0.4) * K],
        ]),
        (*problem.side.dims, ("nonneg", 2 * K + 1)),
    )
    data = np.hstack([problem.design.matrix, np.zeros((problem.n, K))])
    return replace(
        problem, design=Rows(data), side=side,
        quadratic=Quadratic(np.append(problem.quadratic.diagonal, np.zeros(K))),
        linear=np.append(problem.linear, np.full(K, changed.get("cost", 0.05))),
    )


@pytest.mark.parametrize("cost", [0.0, 0.05])
def test_absolute_values_are_two_terms_each(cost: float) -> None:
    """As the optimum of the problem as it is; what they cost is what their rows press with."""
    problem = with_distances(3, cost=cost)
    form = DualForm.of(problem)
    assert form is not None
    assert (form.equivalent.n, form.equivalent.d) == (D + K, 3 + 5)
    dual = solve_screened(form.equivalent, tol=1e-11)
    found = form.invert(dual, 1e-9)
    assert found.status == "optimal", found.certificate.reason
    assert problem.side.violation(found.x) <= 1e-10
    far = distances(problem)
    np.testing.assert_array_equal(found.x[D:], far.least(found.x))
    moved = np.abs(found.x[100: 100 + K] - far.centres) > 1e-7
    assert 0 < moved.sum() < K  # some stay at their centres
    start = form.apply(Start(found.x, found.theta, None, found.multipliers))
    np.testing.assert_allclose(start.x, dual.x, atol=1e-9)
    np.testing.assert_allclose(start.theta, dual.theta, atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_several_distances_are_pieces_between_their_centres(seed: int) -> None:
    """Limits and costs of two and three of one coordinate; for a few their centres are the same.

    Others are outside the box.
    """
    problem = with_distances(seed, limit=0.25, cost=0.0, spread=0.05)
    problem = with_distances(seed + 10, problem, 140, limit=0.2, cost=0.1 * (seed % 2), spread=0.1)
    problem = with_distances(seed + 20, problem, 150, limit=9.0, cost=0.2, spread=0.0)
    problem = with_distances(seed + 20, problem, 220, limit=9.0, cost=0.3, spread=0.0)
    problem = with_distances(seed + 30, problem, 180, limit=9.0, cost=0.02 * seed, centre=0.8)
    problem = with_distances(seed + 30, problem, 110, limit=9.0, cost=0.01, centre=-0.8)
    form = DualForm.of(problem)
    assert form is not None
    far, box = form.parts.distances, form.parts.box
    assert (len(far.points), len(np.unique(far.points))) == (6 * K, 200)
    inside = (box.low[far.points] < far.centres) & (far.centres < box.high[far.points])
    apart = np.unique(np.column_stack([far.points, far.centres])[inside], axis=0)
    assert len(apart) <= 4.5 * K - 10
    assert form.equivalent.n == D + len(apart)  # a piece more for each place of a kink
    dual = solve_screened(form.equivalent, tol=1e-11)
    found = form.invert(dual, 1e-9)
    assert found.status == "optimal", found.certificate.reason
    assert dual.value == pytest.approx(-found.value, rel=1e-9)
    assert problem.side.violation(found.x) <= 1e-10
    np.testing.assert_allclose(found.x[far.sizes], far.least(found.x), atol=1e-15)
    start = form.apply(Start(found.x, found.theta, None, found.multipliers))
    np.testing.assert_allclose(start.x, dual.x, atol=1e-8)
    np.testing.assert_allclose(start.theta, dual.theta, atol=1e-7)


@pytest.mark.parametrize(
    "changed", [{"sign": 1.0}, {"other": 2.0}, {"cost": -0.01}],
    ids=lambda changed: next(iter(changed)),
)
def test_what_is_no_distance_is_left_alone(changed: dict[str, float]) -> None:
    """Coordinates that something gains by, other factors on each side."""
    assert len(distances(with_distances(3)).sizes) == K
    assert not len(distances(with_distances(3, **changed)).sizes)


def test_sparse_rows_stay_sparse(monkeypatch: Any) -> None:
    """The same dual; dense rows of more entries than are copied are left alone."""
    problem = made(6)
    side, data = problem.side, problem.design.matrix.copy()
    matrix = side.matrix.tolil()
    data[:, 40:], matrix[:4, 40:] = 0.0, 0.0
    side = SideConstraints(sp.csr_array(matrix), side.offset, side.dims)
    dense = replace(problem, design=Rows(data), side=side)
    thin = replace(dense, design=Rows(sp.csr_matrix(data)))
    form, sparse = DualForm.of(dense), DualForm.of(thin)
    assert sparse.equivalent.design.sparse
    assert not form.equivalent.design.sparse
    np.testing.assert_array_equal(
        sparse.equivalent.design.dense(), form.equivalent.design.dense()
    )
    np.testing.assert_allclose(sparse.equivalent.linear, form.equivalent.linear, rtol=1e-12)
    monkeypatch.setattr("cvxscreen.solvers.dual_form.ENTRIES", 1000)
    assert not couples_few(replace(dense))
    assert couples_few(replace(thin))


def test_every_point_of_the_dual_is_a_lower_bound() -> None:
    """Weak duality, at points far from the optimum; only the optimum's value is both."""
    problem = made(5)
    form = DualForm.of(problem)
    best = solve_screened(problem, tol=1e-10).value
    rng = np.random.default_rng(0)
    y = solve_screened(form.equivalent, tol=1e-11).x
    for distance in (0.0, 0.01, 0.3, 3.0):
        z = y + distance * rng.standard_normal(len(y))
        z[5:] = np.maximum(z[5:], 0.0)
        below = -form.equivalent.primal(z)
        assert below <= best + 1e-9 * abs(best)
        assert (below > best - 1e-8 * abs(best)) == (distance == 0.0)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_it_is_what_solves_such_problems(scale: float, monkeypatch: Any) -> None:
    """Badly scaled rows, too; the answer is that of the problem solved as it is."""
    problem = made(2, scale=scale)
    found = cs.solve(problem, tol=1e-8)
    assert found.status == "optimal", found.certificate.reason
    assert found.problem is problem
    monkeypatch.setattr("cvxscreen.solvers.loop.dual_form", lambda problem: None)
    other = cs.solve(problem, tol=1e-8)
    assert found.value == pytest.approx(other.value, rel=1e-7)


def test_a_start_goes_there_and_back() -> None:
    """Of the optimum the start is the dual's optimum: nothing is left to do but its certificate."""
    problem = made(4)
    form = DualForm.of(problem)
    dual = solve_screened(form.equivalent, tol=1e-11)
    found = form.invert(dual, 1e-9)
    start = form.apply(Start(found.x, found.theta, None, found.multipliers))
    np.testing.assert_allclose(start.x, dual.x, atol=1e-9)
    np.testing.assert_allclose(start.theta, dual.theta, atol=1e-9)


def test_constraints_that_nothing_satisfies() -> None:
    """The dual falls for ever: the problem has no feasible point, and says so."""
    problem = made(1, curved=0.0, squares=0)
    side = problem.side
    offset = side.offset.copy()
    offset[0] += 1e4
    nothing = replace(problem, side=SideConstraints(side.matrix, offset, side.dims))
    assert couples_few(nothing)
    assert cs.solve(nothing).status in ("infeasible", "inaccurate")


def test_other_problems_are_left_alone() -> None:
    problem = made(0)
    full = Quadratic(np.zeros(D), np.eye(D))
    ends = np.full(3, np.inf)
    tube = Losses(np.zeros(3), 0.1, 1.0, -ends, ends)
    many = Rows(np.ones((D // 5, D)))
    ends = np.full(D // 5, np.inf)
    squares = Losses(np.zeros(D // 5), 0.0, 1.0, -ends, ends)
    alone = replace(problem, side=None)
    apart = SideConstraints(problem.side.matrix[4:], problem.side.offset[4:], problem.side.dims[2:])
    for other in (
        replace(problem, quadratic=full), replace(problem, losses=tube), alone,
        replace(problem, design=many, losses=squares),
        replace(problem, design=Rows(np.zeros((0, D))), losses=problem.losses.take([]), side=apart),
    ):
        assert not couples_few(other)
        assert DualForm.of(other) is None
    assert couples_few(problem)
