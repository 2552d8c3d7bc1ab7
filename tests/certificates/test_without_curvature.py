"""The certificate where no quadratic term holds the coordinates: (G, r), and how far it reaches.

Optima are planted in integers and dyadic numbers, so that ``P(x) - P*`` is known exactly.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from rational import Fraction

import cvxscreen as cs
from cvxscreen.certificates import certificate as module
from cvxscreen.certificates.certificate import certify
from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput

N, D = 40, 4


def exact_value(problem: Problem, A: np.ndarray, x: np.ndarray) -> Fraction:
    """P(x) of kinked losses and a linear term, in rational numbers."""
    point, f = [Fraction(float(v)) for v in x], problem.losses
    total = sum((Fraction(float(q)) * v for q, v in zip(problem.linear, point, strict=True)),
                Fraction(float(problem.constant)))
    for row, b, lo, hi in zip(A, f.b, f.lo, f.hi, strict=True):
        z = sum((Fraction(float(a)) * v for a, v in zip(row, point, strict=True) if a), Fraction())
        z -= Fraction(float(b))
        slope = Fraction(float(hi)) if z > 0 else Fraction(float(lo))
        total += slope * z
    if problem.quadratic.matrix is not None:
        M = problem.quadratic.matrix
        total += sum(Fraction(float(M[i, j])) * point[i] * point[j] / 2
                     for i in range(len(point)) for j in range(len(point)))
    return total


def planted(
    seed: int, *, linear: bool, scale: float = 1.0, dtype: type = np.float64
) -> tuple[Problem, np.ndarray, np.ndarray, np.ndarray]:
    """A pinball problem with a known vertex: problem, rows, optimum and slopes there.

    Rows come in opposite pairs with equal slopes, so that ``A' theta = 0`` exactly; with `linear`
    the slopes of single rows are free and q makes up for them.
    """
    rng = np.random.default_rng(seed)
    half = rng.integers(-4, 5, (N // 2, D)).astype(float) * scale
    half[:D] += 8 * scale * np.eye(D)
    A = np.vstack([half, -half])
    best = rng.integers(-3, 4, D).astype(float)
    side = rng.choice([-1.0, 1.0], N // 2)
    side[:D] = 0.0  # at their kinks
    theta = np.where(side < 0, -0.25, 0.5)
    theta[:D] = rng.integers(-1, 3, D) / 8.0
    sides, theta = np.concatenate([side, side]), np.concatenate([theta, theta])
    if linear:
        theta[-D:], sides[-D:] = 0.5, 1.0
    room = rng.integers(1, 20, N) * scale
    b = A @ best - sides * room
    q = -A.T @ theta if linear else np.zeros(D)
    problem = Problem(
        Rows(A.astype(dtype)), Losses(b, 0.0, 0.0, -0.25, 0.5), Quadratic(np.zeros(D)), q
    )
    return problem, A, best, theta


CASES = [(linear, scale, dtype) for linear in (False, True)
         for scale, dtype in ((1.0, np.float64), (2.0**-20, np.float64), (2.0**20, np.float32))]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("linear", "scale", "dtype"), CASES)
def test_the_optimum_is_certified_for_every_distance(
    linear: bool, scale: float, dtype: type, seed: int
) -> None:
    problem, A, best, theta = planted(seed, linear=linear, scale=scale, dtype=dtype)
    proof = certify(problem, best, theta, tol=1e-9)
    assert proof.ok, proof.reason
    assert np.isinf(proof.within)
    assert proof.gap >= 0.0
    assert proof.primal == pytest.approx(float(exact_value(problem, A, best)), rel=1e-14)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("linear", "scale", "dtype"), CASES)
def test_the_gap_bounds_what_is_lost(
    linear: bool, scale: float, dtype: type, seed: int
) -> None:
    """At any point with any slopes in their boxes, the rounding of both included."""
    problem, A, best, theta = planted(seed, linear=linear, scale=scale, dtype=dtype)
    rng = np.random.default_rng(100 + seed)
    lowest = exact_value(problem, A, best)
    for size in (0.0, 1e-12, 1e-6, 1e-2, 1.0):
        x = best + size * rng.standard_normal(D)
        slopes = np.clip(theta + size * rng.standard_normal(N), -0.25, 0.5)
        lost = exact_value(problem, A, x) - lowest
        proof = certify(problem, x, slopes, tol=1e-9)
        assert Fraction(proof.gap) >= lost
        if size >= 1e-2:
            assert not proof.ok


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("slope", [0.0, 2.0**-60, -(2.0**-60), 2.0**-10])
def test_a_coordinate_that_no_loss_sees_is_charged_apart(slope: float, seed: int) -> None:
    """A level that budgets share: the others are proven as without it, it as far as is said.

    At that distance along it so much is gained, and at any closer point no more than the gap.
    """
    seen, A, best, theta = planted(seed, linear=True)
    problem = Problem(
        Rows(np.column_stack([A, np.zeros(N)])), seen.losses, Quadratic(np.zeros(D + 1)),
        np.append(seen.linear, slope),
    )
    proof = certify(problem, np.append(best, 700.0), theta, tol=1e-9)
    assert proof.ok == (abs(slope) < 1e-9)
    assert np.isfinite(proof.within) == bool(slope)
    if slope:
        gained = abs(slope) * proof.within
        assert gained <= proof.gap <= 1.001 * gained + 1e-9 * abs(proof.primal)
    rng = np.random.default_rng(seed)
    here = exact_value(problem, problem.design.dense(), np.append(best, 700.0))
    for size in (1e-9, 1e-3, 1.0, 0.9 * min(proof.within, 1e6)):
        step = rng.standard_normal(D + 1)
        x = np.append(best, 700.0) + size * step / np.linalg.norm(step)
        assert here - exact_value(problem, problem.design.dense(), x) <= Fraction(proof.gap)


@pytest.mark.parametrize("seed", range(4))
def test_growth_of_the_losses_bounds_every_better_point(seed: int) -> None:
    """Slopes of x itself, without room to move: no term of the gap is left but the residual's."""
    problem, A, best, _ = planted(seed, linear=False)
    rng = np.random.default_rng(seed)
    lowest = exact_value(problem, A, best)
    for size in (1e-3, 0.1, 1.0):
        x = best + size * rng.standard_normal(D)
        theta = np.where(A @ x > problem.losses.b, 0.5, -0.25)
        proof = certify(problem, x, theta)
        assert np.isinf(proof.within)
        assert np.isfinite(proof.gap)
        assert Fraction(proof.gap) >= exact_value(problem, A, x) - lowest > 0


def linear_over_box(x: np.ndarray, q: np.ndarray) -> Problem:
    """``<q, x>`` over ``[0, 1]^d``, with one idle term."""
    d = len(q)
    side = SideConstraints(
        sp.vstack([sp.eye(d), -sp.eye(d)]), np.r_[np.zeros(d), np.ones(d)], (("nonneg", 2 * d),)
    )
    return Problem(
        Rows(np.zeros((1, d))), Losses([0.0], 0.0, 0.0, [0.0], [1.0]), Quadratic(np.zeros(d)), q,
        side=side,
    )


def test_what_a_residual_costs_over_a_box_is_attained() -> None:
    """``<q, x>`` from the worst corner: the gap is what is lost, and not one per cent less."""
    q = np.array([1.0, -2.0, 0.5])
    worst, best = (q > 0).astype(float), (q < 0).astype(float)
    proof = certify(linear_over_box(worst, q), worst, np.zeros(1))
    lost = float(q @ (worst - best))
    assert np.isinf(proof.within)
    assert lost <= proof.gap <= lost * (1.0 + 1e-12)


@pytest.mark.parametrize("size", [0.0, 1e-9, 1e-3])
def test_bounded_coordinates_are_charged_where_that_is_enough(
    size: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what nothing bounds is balanced by slopes, unless the bounds make that dear."""
    problem, A, best, theta = planted(3, linear=False)
    box = sp.eye(D, format="csr")[: D - 1]
    side = SideConstraints(
        sp.vstack([box, -box]), np.full(2 * (D - 1), 8.0), (("nonneg", 2 * (D - 1)),)
    )
    problem = replace(problem, side=side)
    asked, cost = [], module.nearby_cost
    monkeypatch.setattr(module, "nearby_cost", lambda problem, r, mask, *rest: (
        asked.append(int(mask.sum())) or cost(problem, r, mask, *rest)))
    slopes = theta.copy()
    slopes[:D] += size * np.arange(1, D + 1)
    proof = certify(problem, best, slopes, np.zeros(2 * (D - 1)), tol=1e-6)
    assert asked == ([1] if size < 1e-6 else [1, D])
    assert proof.ok, proof.reason
    x = best + np.r_[8.0 - best[:-1], 0.0] * 0.5
    for other in (x, best - 1.0):  # any feasible point
        lost = exact_value(problem, A, best) - exact_value(problem, A, other)
        assert Fraction(proof.gap) >= lost


def test_a_point_so_far_out_that_its_value_is_rounding_is_refused() -> None:
    """Huber's loss falls beside a line that rises as steeply: flat forever, and optimal there."""
    n = 64
    y = np.random.default_rng(3).integers(-200, 200, n) / 64.0
    losses = Losses(y, 0.0, np.full(n, float(n)), np.full(n, -1.0 / n), np.full(n, 1.0 / n))
    rows = np.c_[np.ones(n), np.tile([1.0, -1.0], n // 2)]
    problem = Problem(Rows(rows), losses, Quadratic(np.zeros(2)), np.array([1.0, 0.0]))
    slopes = np.full(n, -1.0 / n)
    assert certify(problem, np.array([-100.0, 0.0]), slopes, tol=1e-8).ok
    for far in (-1e18, -1e23):
        proof = certify(problem, np.array([far, 0.0]), slopes, tol=1e-7)
        assert not proof.ok
        # Slopes that are off by their last bits: a gap that is small beside what cancels alone.
        off = slopes * (1.0 - 2.0**-40)
        proof = certify(problem, np.array([far, 0.0]), off, tol=1e-7)
        assert not proof.ok
        assert proof.relative_gap > 1.0
    one = replace(problem, design=Rows(rows[:, :1]), linear=np.ones(1),
                  quadratic=Quadratic(np.zeros(1)), layout=None)
    proof = certify(one, np.array([-1e23]), slopes, tol=1e-7)
    assert proof.gap == 0.0
    assert "lost in rounding" in proof.reason
    fitted = replace(one, linear=np.zeros(1), losses=replace(losses, b=np.full(n, 2.0)))
    assert certify(fitted, np.array([2.0]), np.zeros(n), tol=1e-9).ok


@pytest.mark.parametrize("steep", [0.0, 1.0, 1e12, 1e30, 1e58])
def test_multipliers_without_end_say_nothing_of_a_scale(steep: float) -> None:
    """``x_1 + x_2 == 1`` and ``<= 1``: multipliers of both cancel, and round by any objective."""
    losses = Losses(
        np.array([1.0, 0.0, 1.0]), 0.0, 0.0, np.array([-1.0, -1.0, 0.0]),
        np.array([1.0, 1.0, np.inf]),
    )
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    side = SideConstraints(sp.csr_matrix([[1.0, 1.0]]), np.array([-1.0]), [("zero", 1)])
    problem = Problem(
        Rows(rows), losses, Quadratic(np.zeros(2)), np.array([0.0, 0.5]), side=side, kind="cvxpy"
    )
    slopes, multiplier = np.array([-0.5, -1.0, steep]), np.array([steep - 0.5])
    at = np.array([0.0, 1.0]), np.array([1.0, 0.0])  # 2.5, and the optimum, 0
    assert not certify(problem, at[0], slopes, multiplier, tol=1e-6).ok
    assert certify(problem, at[1], slopes, multiplier, tol=1e-6).ok == (steep <= 1.0)


def at_the_ends() -> tuple[Problem, np.ndarray, np.ndarray, np.ndarray]:
    """Three terms, none with a slope inside, a coordinate that nothing bounds and one in [0, 4].

    Problem, rows, an optimum y, and the point x at which the first term is what balances cheapest:
    it pushes the other coordinate as well. Upward the last one is asked, which is at its kink.
    """
    A = np.array([[-1.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    losses = Losses(np.array([-3.0, 1.0, 9.0]), 0.0, 0.0, np.zeros(3), np.array([0.5, 0.5, 0.5]))
    linear = np.array([2.0**-10 - 0.5, 2.0**-11])
    box = SideConstraints(
        np.array([[0.0, 1.0], [0.0, -1.0]]), np.array([0.0, 4.0]), (("nonneg", 2),)
    )
    problem = Problem(Rows(A), losses, Quadratic(np.zeros(2)), linear, side=box)
    return problem, A, np.array([3.0, 0.0]), np.array([9.0, 4.0])


def test_what_one_slope_takes_up_beside_bounds_is_attained() -> None:
    """With no slope inside its interval: what is lost is the cost, no less than 0.99 of it."""
    problem, A, best, x = at_the_ends()
    theta = np.array([0.0, 0.5, 0.0])
    r = A.T @ theta + problem.linear
    residual = module.Residual(np.arange(2), r, np.zeros(2))
    mask, reach = np.array([True, False]), np.array([0.0, 4.0])
    pair = theta, A @ x, np.zeros(3)
    cost = Fraction(module.one_slope_cost(problem, residual, mask, reach, pair, 0.0))
    lost = exact_value(problem, A, x) - exact_value(problem, A, best)
    assert lost <= cost
    assert cost * (1 - Fraction(1, 10**5)) <= lost
    assert Fraction(99, 100) * cost < lost
    # Slopes that all have to fall, or to rise, leave one way without room.
    for ends in (np.array([0.0, 0.0, 0.0]), np.array([0.0, 0.5, 0.5])):
        cannot = ends, A @ x, np.zeros(3)
        some = residual if ends[1] else residual._replace(value=-r)
        assert np.isinf(module.one_slope_cost(
            problem, some, mask, reach, cannot, 0.0)) == (ends[2] > 0.0)
    far = residual._replace(value=2.0**12 * r)
    assert np.isinf(module.one_slope_cost(problem, far, mask, reach, pair, 0.0))


@pytest.mark.table
@pytest.mark.parametrize("stored", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_whole_number_of_terms_in_the_tail_is_certified(
    stored: Any, dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value at risk: 40 of 400 terms at one end, all others at the other one, none inside."""
    rng, n, d = np.random.default_rng(5), 400, 3
    returns = rng.integers(-8, 9, (n, d)) / 64.0
    A = np.c_[-returns, -np.ones(n)].astype(dtype)
    losses = Losses(np.zeros(n), 0.0, 0.0, np.zeros(n), np.full(n, 1.0 / 40.0))
    side = SideConstraints(
        sp.csr_matrix(np.vstack([np.r_[np.ones(d), 0.0], np.eye(d, d + 1)])),
        np.r_[-1.0, np.zeros(d)], (("zero", 1), ("nonneg", d)),
    )
    problem = Problem(
        Rows(stored(A)), losses, Quadratic(np.zeros(d + 1)), np.r_[np.zeros(d), 1.0], side=side
    )
    for x in np.vstack([np.eye(d), rng.dirichlet(np.ones(d), 3)]):
        loss = np.sort(-returns @ x)[::-1]
        level = loss[39]
        theta = np.where(-returns @ x > level, 1.0 / 40.0, 0.0)
        at = np.flatnonzero(-returns @ x == level)
        theta[at[: 40 - int(np.count_nonzero(theta))]] = 1.0 / 40.0
        assert np.count_nonzero(theta) == 40
        point = np.r_[x, level]
        pull = A.astype(np.float64).T @ theta + problem.linear
        multipliers = np.r_[pull[:d].min(), pull[:d] - pull[:d].min()]
        proof = certify(problem, point, theta, multipliers, tol=1e-9)
        assert np.isinf(proof.within)
        exact = A.astype(np.float64)
        here = exact_value(problem, exact, point)
        for other in rng.dirichlet(np.ones(d), 20):
            away = np.r_[other, np.sort(-returns @ other)[::-1][39]]
            assert Fraction(proof.gap) >= here - exact_value(problem, exact, away)
    best = cs.solve(problem, tol=1e-9)
    assert best.certificate.ok
    monkeypatch.setattr(module, "one_slope_cost", lambda *_: np.inf)
    without = certify(problem, best.x, best.theta, best.multipliers, tol=1e-12)
    assert without.gap >= best.certificate.gap


def normed(
    seed: int, *, free: int = 0, units: bool = False, dtype: type = np.float64
) -> tuple[Problem, np.ndarray, np.ndarray, np.ndarray]:
    """Pinball losses and a term ``|a_j x_j - b_j|`` for every coordinate but `free` ones.

    The planted optimum has all of these at their kinks, with room for their slopes; a linear term
    balances the free coordinates. `units` are those of the columns: powers of two, 2^-20 to 2^20.
    """
    rng, n, d = np.random.default_rng(seed), 14, module._MANY_FREE + 5
    A = rng.integers(-4, 5, (n, d)).astype(float)
    A[:free, :free] += 16.0 * np.eye(free)
    side = rng.choice([-1.0, 1.0], n)
    side[:free] = 0.0
    theta = np.where(side < 0, -0.25, np.where(side > 0, 0.5, 0.125))
    own = np.diag(rng.choice([-2.0, 0.5, 1.0, 4.0], d))[free:]
    pull = A.T @ theta
    slopes = -pull[free:] / own.sum(axis=1)
    best, unit = rng.integers(-3, 4, d).astype(float), np.ones(d)
    if units:
        unit = 2.0 ** rng.integers(-20, 21, d)
    rows, best = np.vstack([A, own]) * unit, best / unit
    b = rows @ best
    b[:n] -= side * rng.integers(200, 300, n)
    ends = np.abs(slopes) + 1.0
    losses = Losses(
        b, 0.0, 0.0, np.r_[np.full(n, -0.25), -ends], np.r_[np.full(n, 0.5), ends]
    )
    linear = np.where(np.arange(d) < free, -pull * unit, 0.0)
    problem = Problem(Rows(rows.astype(dtype)), losses, Quadratic(np.zeros(d)), linear)
    return problem, rows, best, np.r_[theta, slopes]


def taken_up(problem: Problem, x: np.ndarray, theta: np.ndarray, r: np.ndarray) -> float:
    """What `alone_cost` charges for a residual of exactly `r` at all coordinates."""
    residual = module.Residual(np.arange(problem.d), r, np.zeros(problem.d))
    pair = theta, problem.design.forward(x), np.zeros(problem.n)
    every = np.ones(problem.d, dtype=bool)
    return module.alone_cost(problem, residual, every, np.zeros(problem.d), pair, 0.0)


@pytest.mark.parametrize("free", [0, 1])
@pytest.mark.parametrize("units", [False, True])
def test_what_terms_of_one_coordinate_take_up_is_attained(units: bool, free: int) -> None:
    """Away from their kinks, to the dearer side: the gap is what is lost, no less than 0.99 of it.

    With a free coordinate, which one slope balances that pushes all the others.
    """
    problem, rows, best, theta = normed(0, free=free, units=units)
    rng, d, n = np.random.default_rng(1), problem.d, 14
    move = np.zeros(problem.n)
    move[:free] = 2.0**-12
    push = rows.T @ move
    r = -push
    factors, size = rows[n:].sum(axis=1), np.abs(rows[n:]).sum(axis=1)
    sign = np.where(push[free:] == 0.0, rng.choice([-1.0, 1.0], d - free), np.sign(push[free:]))
    r[free:] = 2.0**-10 * size * sign
    move[n:] = -(r + push)[free:] / factors
    step = np.zeros(d)
    step[free:] = -np.sign(move[n:]) * rng.integers(1, 3, d - free) / factors
    if free:
        step[0] = -(1.0 + rows[0] @ step) / rows[0, 0]
    x = best + step
    lost = exact_value(problem, rows, x) - exact_value(problem, rows, best)
    t, unbalanced = rows @ x, theta - move
    np.testing.assert_allclose(rows.T @ unbalanced + problem.linear, r, rtol=1e-12, atol=0.0)
    pairs = Fraction(float(np.sum(problem.losses.value(t) - unbalanced * (t - problem.losses.b))))
    cost = Fraction(taken_up(problem, x, unbalanced, r))
    assert lost <= pairs + cost
    assert cost * (1 - Fraction(1, 10**3)) <= lost - pairs
    assert pairs + Fraction(99, 100) * cost < lost


KINDS = [(free, units, dtype) for free in (0, 3) for units, dtype in (
    (False, np.float64), (True, np.float64), (True, np.float32))]


@pytest.mark.parametrize(("free", "units", "dtype"), KINDS)
def test_the_gap_bounds_what_is_lost_beside_terms_of_one_coordinate(
    free: int, units: bool, dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the optimum, where it is certified, and at any other point with any slopes."""
    problem, rows, best, theta = normed(1, free=free, units=units, dtype=dtype)
    found, cost = [], module.alone_cost
    monkeypatch.setattr(
        module, "alone_cost", lambda *given: found.append(cost(*given)) or found[-1]
    )
    rng = np.random.default_rng(2)
    lowest, f = exact_value(problem, rows, best), problem.losses
    unit = np.abs(rows).max(axis=0)
    for size in (0.0, 1e-13, 1e-5, 1e-2, 1.0):
        x = best + size * rng.standard_normal(problem.d) / unit
        slopes = np.clip(theta + size * rng.standard_normal(problem.n), f.lo, f.hi)
        proof = certify(problem, x, slopes, tol=1e-9)
        assert Fraction(proof.gap) >= exact_value(problem, rows, x) - lowest
        assert np.isinf(proof.within) or size > 1e-3
        assert proof.ok or size > 1e-13, proof.reason
        assert not proof.ok or size < 1e-5
    assert np.isfinite(found[:3]).all()


def test_terms_of_one_coordinate_without_room_leave_it_to_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At an end of their range; by a factorisation, if there are slopes enough, or not at all."""
    problem, rows, x, theta = normed(3)
    d, f, r = problem.d, problem.losses, np.full(problem.d, 2.0**-30)
    residual = module.Residual(np.arange(d), r, np.zeros(d))
    assert np.isfinite(taken_up(problem, x, theta, r))
    assert np.isinf(taken_up(problem, x, theta, 2.0**33 * r))  # farther than there is room
    ended = theta.copy()
    ended[14:14 + d // 2 + 5] = f.hi[14:14 + d // 2 + 5]
    assert np.isinf(taken_up(problem, x, ended, r))
    few = theta.copy()
    few[14:14 + 20] = f.hi[14:14 + 20]  # 20 coordinates are left, and 14 slopes
    assert np.isinf(taken_up(problem, x, few, r))
    twice = np.vstack([rows, np.random.default_rng(0).integers(-4, 5, (2 * d, d))])
    more = Problem(
        Rows(twice), Losses(np.r_[f.b, twice[14 + d:] @ x], 0.0, 0.0, np.r_[f.lo, -np.ones(2 * d)],
                            np.r_[f.hi, np.ones(2 * d)]),
        problem.quadratic, problem.linear,
    )
    pair = np.r_[ended, np.zeros(2 * d)], twice @ x, np.zeros(more.n)
    given = more, residual, np.ones(d, dtype=bool), np.zeros(d), pair, 0.0
    assert np.isinf(module.alone_cost(*given))
    assert np.isfinite(module.nearby_cost(*given, 0.0))
    monkeypatch.setattr(module, "_ROOM", 0.0)  # chosen all the same, and found to have none
    assert np.isfinite(taken_up(problem, x, theta, r))
    assert np.isinf(taken_up(problem, x, theta, 2.0**33 * r))


@pytest.mark.parametrize("units", [1.0, 2.0**-30, 2.0**30])
def test_rows_of_one_entry_bound_coordinates_however_many_they_are(
    units: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As constraints and as terms; quotients are rounded outwards, and others are tried as well."""
    monkeypatch.setattr(module, "_MOST_ENTRIES", 8)
    entries = np.array([3.0, -3.0, 7.0, -0.1]) * units
    rows = np.zeros((5, 3))
    rows[[0, 1, 2, 3], [0, 0, 1, 2]] = entries
    rows[4, :2] = 1.0
    side = SideConstraints(
        rows, np.array([-1.0, 5.0, -1.0, 1.0, 9.0]), (("nonneg", 2), ("zero", 1), ("nonneg", 2))
    )
    low, high = boxed(side, 3)
    exact = [Fraction(v) / Fraction(float(e)) for v, e in zip((1, -5, 1, -1), entries, strict=True)]
    np.testing.assert_allclose(low * units, [1 / 3, 1 / 7, -np.inf], rtol=1e-14)
    np.testing.assert_allclose(high * units, [5 / 3, 1 / 7, 10.0], rtol=1e-14)
    assert low[0] <= exact[0]
    assert high[0] >= exact[1]
    assert low[1] <= exact[2] <= high[1]
    assert high[2] >= exact[3]


def test_a_simplex_bounds_every_coordinate() -> None:
    side = SideConstraints(
        sp.vstack([sp.csr_array(np.ones((1, 3))), sp.eye(3)]), np.array([-1.0, 0.0, 0.0, 0.0]),
        (("zero", 1), ("nonneg", 3)),
    )
    problem = Problem(
        Rows(np.zeros((1, 3))), Losses([0.0], 0.0, 0.0, [0.0], [1.0]), Quadratic(np.zeros(3)),
        np.ones(3), side=side,
    )
    low, high = module.bounding_box(problem)
    np.testing.assert_allclose([low, high], [np.zeros(3), np.ones(3)], atol=1e-12)
    assert (low <= 0).all()
    assert (high >= 1).all()


def test_terms_that_are_constraints_bound_coordinates_too() -> None:
    rows = np.vstack([np.eye(2), -np.eye(2)])
    problem = Problem(
        Rows(rows), Losses([3.0, 4.0, 0.0, 1.0], 0.0, 0.0, 0.0, np.inf), Quadratic(np.zeros(2)),
        np.zeros(2),
    )
    low, high = module.bounding_box(problem)
    np.testing.assert_allclose([low, high], [[0.0, -1.0], [3.0, 4.0]], atol=1e-12)
    assert (low <= [0.0, -1.0]).all()
    assert (high >= [3.0, 4.0]).all()


@pytest.mark.parametrize("bounded", ["by the constraints", "by some rows", "by one row", "never"])
def test_of_many_rows_as_few_are_looked_at_as_bound_the_box(
    bounded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 losses of two coordinates below a level t: all of them where one may bound what is left.

    The first ones lie highest, t = 1 where both coordinates are at their lower ends.
    """
    looked: list[int] = []
    rows_csr = Rows.rows_csr
    monkeypatch.setattr(Rows, "rows_csr", lambda s, i: looked.append(len(i)) or rows_csr(s, i))
    rng = np.random.default_rng(5)
    rows = np.hstack([rng.uniform(0.5, 1.0, (100, 2)), -np.ones((100, 1))])
    rows[:25, :2] = 1.0
    top = np.where(np.arange(100) < 25, -3.0, -0.1)
    if bounded == "by one row":
        rows[17], top[17] = [0.3, 0.2, 1.0], 0.6
    box = sp.csr_array(np.vstack([np.eye(2, 3), -np.eye(2, 3)]))
    side = SideConstraints(box, [1.0, 1.0, 1.0, 1.0], (("nonneg", 4),))
    if bounded == "by the constraints":
        more = sp.csr_array([[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]])
        both = sp.vstack([box, more], format="csr")
        side = SideConstraints(both, [1.0, 1.0, 1.0, 1.0, 5.0, 5.0], (("nonneg", 6),))
    if bounded == "never":
        side = SideConstraints(box[:2], [1.0, 1.0], (("nonneg", 2),))
    problem = Problem(
        Rows(rows), Losses(top, 0.0, 0.0, 0.0, np.inf), Quadratic(np.zeros(3)), np.ones(3),
        side=side,
    )
    low, high = module.bounding_box(problem)
    few = bounded in ("by the constraints", "by some rows")
    assert all(count <= module.ALONE * 3 for count in looked) == few
    assert max(looked) == (25 if few else 100)
    assert (low[:2] <= -1.0).all()
    assert np.isfinite(low[2])
    assert low[2] <= 1.0
    assert np.isinf(high[2]) == (bounded in ("by some rows", "never"))
    if bounded == "by one row":
        assert 1.1 <= high[2] <= 1.1 + 1e-12
    for x in rng.uniform(-1.0, 1.0, (200, 3)) * [1.0, 1.0, 5.0]:
        if (rows @ x <= top).all() and (side.slack(x) >= 0.0).all():
            assert ((low <= x) & (x <= high)).all()


def boxed(side: SideConstraints, d: int) -> tuple[Any, Any]:
    problem = Problem(
        Rows(np.zeros((1, d))), Losses([0.0], 0.0, 0.0, [0.0], [1.0]), Quadratic(np.zeros(d)),
        np.ones(d), side=side,
    )
    return module.bounding_box(problem)


def test_a_cone_in_one_coordinate_bounds_it() -> None:
    """``|(x - 1, 1)| <= 3``, whose rows have no two coordinates that could be compared."""
    side = SideConstraints(sp.csr_array([[0.0], [1.0], [0.0]]), [3.0, -1.0, 1.0], (("soc", 3),))
    low, high = boxed(side, 1)
    np.testing.assert_allclose([low, high], [[-2.0], [4.0]], rtol=1e-12)
    assert low[0] <= 1.0 - 8.0**0.5
    assert high[0] >= 1.0 + 8.0**0.5


def test_a_ball_of_the_l1_norm_bounds_every_coordinate_and_its_helpers() -> None:
    """``s u >= w`` and ``u >= -s w``, whose sum has no w, and ``sum u <= 3``."""
    one, s = np.eye(3), np.array([2.0, 0.3, 1.0])
    rows = np.block([[-one, np.diag(s)], [np.diag(s), one], [np.zeros(3), -np.ones(3)]])
    order = np.random.default_rng(0).permutation(7)
    offset = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0])
    low, high = boxed(SideConstraints(rows[order], offset[order], (("nonneg", 7),)), 6)
    least = np.r_[np.full(3, -np.inf), np.zeros(3)]
    least[:3] = -3.0 / s
    np.testing.assert_allclose(low, least, atol=1e-12)
    np.testing.assert_allclose(high, np.r_[3.0 * s, np.full(3, 3.0)], rtol=1e-12)
    assert (low <= least).all()
    assert (high >= np.r_[3.0 * s, np.full(3, 3.0)]).all()


@pytest.mark.parametrize(("second", "low", "high"), [
    ([1.0, 1.0], [-np.inf, -1.0], [np.inf, np.inf]),
    ([-1.0, 1.0], [-np.inf, -np.inf], [np.inf, np.inf]),  # not opposite
    ([1.0, -1.0], [-np.inf, -np.inf], [np.inf, np.inf]),  # the sum is 0
    ([1.0, -2.0], [-np.inf, -np.inf], [3.0, 2.0]),
])
def test_pairs_of_rows_say_what_their_sum_says(
    second: list[float], low: list[float], high: list[float]
) -> None:
    """``u >= w - 1`` and a second row, whose right side is -1 too."""
    rows = np.array([[-1.0, 1.0], second, [0.0, 0.0]])
    found = boxed(SideConstraints(rows, np.ones(3), (("nonneg", 3),)), 2)
    np.testing.assert_allclose(found, [low, high], rtol=1e-12)


def test_a_second_order_cone_bounds_its_tail() -> None:
    rows = np.vstack([np.zeros(3), [[2.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, 0.0]]])
    side = SideConstraints(rows, np.array([5.0, 1.0, 2.0, 0.5]), (("soc", 4),))
    low, high = boxed(side, 3)
    np.testing.assert_allclose(low, [-3.0, -3.0, -np.inf], rtol=1e-12)
    np.testing.assert_allclose(high, [2.0, 7.0, np.inf], rtol=1e-12)
    assert (low <= [-3.0, -3.0, -np.inf]).all()
    assert (high >= [2.0, 7.0, np.inf]).all()


@pytest.mark.parametrize(("row", "slope"), [(0.0, 1.0), (1.0, 0.0)])
def test_without_any_bound_the_statement_says_how_far_it_reaches(row: float, slope: float) -> None:
    """A linear function: what is lost within that distance is the gap, and not one per cent less.

    Of coordinates that no loss sees, and of those that one without any slope does.
    """
    q, x = np.array([3.0, -4.0]), np.array([3.0, 4.0])
    problem = Problem(
        Rows(np.full((1, 2), row)), Losses([0.0], 0.0, 0.0, [0.0], [slope]), Quadratic(np.zeros(2)),
        q,
    )
    proof = certify(problem, x, np.zeros(1))
    assert proof.within == pytest.approx(5000.0)
    lost = 5.0 * proof.within  # at x - within q / |q|
    assert lost <= proof.gap <= lost * (1.0 + 1e-6)
    assert not proof.ok
    assert proof.residual == 4.0
    assert "holds within" in str(proof)
    assert "balanced" in proof.reason


@pytest.mark.parametrize("seed", range(4))
def test_a_singular_matrix_leaves_its_kernel_to_the_terms(seed: int) -> None:
    """M of rank 2 in 4 coordinates, integers: slopes balance ``A' theta + M x + q``."""
    problem, A, best, theta = planted(seed, linear=False)
    rng = np.random.default_rng(seed)
    F = rng.integers(-2, 3, (2, D)).astype(float)
    M = F.T @ F
    curved = Problem(problem.design, problem.losses, Quadratic(np.zeros(D), M), -M @ best)
    assert curved.quadratic.singular
    assert curved.quadratic.free.all()
    lowest = exact_value(curved, A, best)
    assert certify(curved, best, theta, tol=1e-6).ok
    for size in (1e-9, 1e-3, 1.0):
        x = best + size * rng.standard_normal(D)
        proof = certify(curved, x, theta, tol=1e-8)
        assert Fraction(proof.gap) >= exact_value(curved, A, x) - lowest
    assert not certify(problem, best + 0.1, theta, tol=1e-6).ok
    with pytest.raises(InvalidInput, match="semidefinite"):
        Quadratic(np.zeros(D), M - np.eye(D))


def constrained(x: float) -> tuple[Problem, np.ndarray]:
    """``|x_0 - 3| + |x_1|`` subject to ``x_0 <= 1`` and ``x_1 = 0`` as terms, at ``(x, 0)``."""
    problem = Problem(
        Rows(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])),
        Losses([3.0, 0.0, 1.0, 0.0], 0.0, 0.0, [-1.0, -1.0, 0.0, -np.inf],
               [1.0, 1.0, np.inf, np.inf]),
        Quadratic(np.zeros(2)), np.zeros(2),
    )
    return problem, np.array([x, 0.0])


def test_constraints_as_terms_stand_beside_the_gap() -> None:
    problem, x = constrained(1.0)
    proof = certify(problem, x, [-1.0, 0.0, 1.0, 0.0])
    assert proof.ok
    assert proof.primal == 2.0
    assert proof.primal_residual == 0.0
    assert proof.gap <= 1e-12
    problem, x = constrained(2.0)
    proof = certify(problem, x, [-1.0, 0.0, 1.0, 0.0])
    assert proof.primal_residual == 1.0
    assert not proof.ok
    assert "constraint is violated by 1" in proof.reason
    assert proof.primal == 1.0
    problem, x = constrained(0.0)  # feasible, and complementary slackness is missing
    proof = certify(problem, x, [-1.0, 0.0, 1.0, 0.0])
    assert 1.0 <= proof.gap <= 1.0 + 1e-9
    assert proof.primal_residual == 0.0


def test_a_multiplier_of_the_wrong_sign_is_refused() -> None:
    problem, x = constrained(1.0)
    assert "outside its box" in certify(problem, x, [1.0, 0.0, -1.0, 0.0]).reason


def held(idle: int, seed: int = 0) -> tuple[Problem, np.ndarray, np.ndarray]:
    """A linear function over rows, `idle` of them far from binding; the optimum, multipliers."""
    rng = np.random.default_rng(seed)
    rows, mu = rng.standard_normal((D, D)) * 10.0 ** rng.uniform(-3, 3, (D, 1)), rng.random(D)
    x = rng.standard_normal(D)
    matrix = np.vstack([rows, rng.standard_normal((idle, D))])
    offset = np.concatenate([-rows @ x, 1.0 - matrix[D:] @ x])
    side = SideConstraints(sp.csr_array(matrix), offset, (("nonneg", D + idle),))
    linear = rows.T @ mu
    problem = Problem(
        Rows(np.zeros((0, D))), Losses(*[np.zeros(0)] * 5), Quadratic(np.zeros(D)), linear,
        side=side,
    )
    return problem, x, np.concatenate([mu, np.zeros(idle)])


def test_rows_without_a_multiplier_cost_nothing() -> None:
    """Of 100,000 constraints a few bind: the rounding of the others' zeros is none."""
    few, x, mu = held(10)
    many, _, multipliers = held(100_000)
    assert np.array_equal(few.linear, many.linear)
    proofs = [certify(p, x, np.zeros(0), m) for p, m in ((few, mu), (many, multipliers))]
    assert all(proof.ok for proof in proofs)
    assert proofs[1].gap <= 1.01 * proofs[0].gap


@pytest.mark.parametrize("seed", range(6))
def test_what_rounding_may_hide_of_the_multipliers_is_contained(seed: int) -> None:
    """Residual and complementarity in rational numbers lie within what is charged, near it."""
    problem, x, mu = held(200, seed)
    side, worst = problem.side, 0.0
    assert side is not None
    part = module.side_part(problem, x, mu, problem.linear)
    exact = [Fraction(float(q)) for q in problem.linear]
    product = Fraction(0)
    for row, f, m in zip(side.matrix.toarray(), side.offset, mu, strict=True):
        slack = Fraction(float(f))
        for j, a in enumerate(row):
            exact[j] -= Fraction(float(a)) * Fraction(float(m))
            slack += Fraction(float(a)) * Fraction(float(x[j]))
        product += Fraction(float(m)) * slack
    for j in range(D):
        away = abs(float(exact[j] - Fraction(float(part.residual[j]))))
        assert away <= part.residual_error[j]
        worst = max(worst, away / part.residual_error[j])
    assert abs(float(product)) <= part.gap
    assert worst > 1e-4  # a hundredth of a per cent of the charge does occur


def test_units_of_the_columns_do_not_matter() -> None:
    """Over twelve orders of magnitude, by powers of two: the same pair with the same gap."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((500, 5))
    y = X @ rng.standard_normal(5) + rng.standard_t(3, 500)
    units = 2.0 ** np.array([-20, -9, 0, 8, 20])

    def problem(units: np.ndarray) -> Problem:
        return cs.regression(X * units, y, C=np.inf, loss="quantile", tau=0.3, intercept=True)

    found = cs.solve(problem(np.ones(5)), tol=1e-9)
    for size in (0.0, 1e-6):
        x = found.x + size * rng.standard_normal(6)
        one = certify(problem(np.ones(5)), x, found.theta)
        x[:5] /= units
        other = certify(problem(units), x, found.theta)
        assert one.ok
        assert other.ok
        assert np.isinf(other.within)
        assert other.gap == pytest.approx(one.gap, rel=1e-6, abs=1e-15 * one.primal)
    scaled = cs.solve(problem(units), tol=1e-9)
    assert scaled.status == "optimal"
    assert scaled.value == pytest.approx(found.value, rel=1e-12)


def prices(seed: int, n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Years, prices and a mark, and what depends on none of them: as data come."""
    rng = np.random.default_rng(seed)
    X = np.c_[rng.integers(1990, 2024, n), np.exp(12 + rng.standard_normal(n)),
              rng.integers(0, 2, n)]
    return X, rng.standard_t(2, n) * 1e4 + 2e5


@pytest.mark.parametrize("seed", range(4))
def test_slopes_with_next_to_no_room_hardly_move(seed: int) -> None:
    """Four of Huber's parabolas hold four coordinates, among slopes a billionth from their ends."""
    X, y = prices(seed)
    found = cs.solve(cs.regression(X, y, C=np.inf, loss="huber", intercept=True), tol=1e-9)
    assert found.status == "optimal", found.certificate
    assert found.certificate.within == np.inf


@pytest.mark.parametrize("seed", [4, 9, 18])
def test_growth_is_known_whatever_the_units_of_the_columns(seed: int) -> None:
    """An optimum along an edge: three slopes have room, and nothing else balances the fourth."""
    X, y = prices(seed)
    found = cs.solve(cs.regression(X, y, C=np.inf, loss="absolute", intercept=True), tol=1e-7)
    assert found.status == "optimal", found.certificate
    assert found.certificate.within == np.inf


@pytest.mark.parametrize("tau", [0.1, 0.5, 0.9])
def test_an_optimum_of_marks_is_certified_though_fewer_slopes_than_coordinates_have_room(
    tau: float
) -> None:
    """Shares of whole groups: their slopes are at their ends, and balance to rounding."""
    rng = np.random.default_rng(3)
    group = rng.permutation(np.repeat(np.arange(6), 4000))
    X, y = np.eye(6)[group], group + rng.standard_normal(24_000)
    problem = cs.regression(X, y, C=np.inf, loss="quantile", tau=tau)
    ends, x = problem.losses, np.zeros(6)
    for k in range(6):
        mine = np.sort(y[group == k])
        x[k] = mine[round(tau * 4000)]  # anything up to the one before would do
    t = problem.design.forward(x)
    theta = np.where(t > ends.b, ends.hi, ends.lo)
    proof = certify(problem, x, theta, tol=1e-11)
    assert proof.ok, proof
    assert np.isinf(proof.within)
    assert proof.residual < 1e-10
    assert not certify(problem, x + 1e-3, theta, tol=1e-11).ok
    theta[np.flatnonzero(t == ends.b)[0]] += 1e-8  # a residual that is no rounding
    assert not certify(problem, x, theta, tol=1e-11).ok


def own_terms(seed: int, *, others: int, linear: bool, side: bool) -> tuple[Problem, np.ndarray]:
    """Losses of more coordinates than terms, all but `others` with a term of their own.

    An L1 norm, or signs and a linear term; with one equation beside that the point satisfies.
    """
    rng = np.random.default_rng(seed)
    n, d = 6, 14
    A = rng.standard_normal((n, d + others))
    unit = np.eye(d, d + others) * rng.choice([-1.0, 0.5, 2.0], d)[:, None]
    x = np.where(rng.random(d + others) < 0.4, np.abs(rng.standard_normal(d + others)), 0.0)
    b = np.r_[A @ x + rng.standard_normal(n), np.zeros(d)]
    kappa = rng.uniform(1.0, 3.0, d)
    q = np.r_[kappa * np.abs(np.diag(unit)), np.zeros(others)] if linear else np.zeros(d + others)
    sign = np.sign(np.diag(unit))
    lo = np.r_[np.full(n, -1.0), np.where(sign > 0, -np.inf, 0.0) if linear else -kappa]
    hi = np.r_[np.full(n, 1.0), np.where(sign > 0, 0.0, np.inf) if linear else kappa]
    row = rng.standard_normal((1, d + others))
    constraint = SideConstraints(row, -row @ x, (("zero", 1),)) if side else None
    problem = Problem(
        Rows(np.vstack([A, unit])), Losses(b, 0.0, 0.0, lo, hi),
        Quadratic(np.zeros(d + others)), q, side=constraint,
    )
    return problem, x


OWN = [(others, linear, side) for others in (0, 1, 2) for linear in (False, True)
       for side in (False, True)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("others", "linear", "side"), OWN)
def test_terms_of_single_coordinates_bound_every_better_point(
    others: int, linear: bool, side: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever slopes and multipliers are, no point is better by more than the gap."""
    monkeypatch.setattr(module, "nearby_cost", lambda *_: np.inf)
    problem, x = own_terms(seed, others=others, linear=linear, side=side)
    rng = np.random.default_rng(50 + seed)
    best = cs.solve(problem, tol=1e-9)
    assert best.status == "optimal"
    for size in (0.0, 1e-6, 0.1):
        f = problem.losses
        theta = best.theta + size * rng.standard_normal(problem.n)
        theta = np.clip(theta, f.lo, f.hi)
        mu = best.multipliers + size * rng.standard_normal(int(side))
        for point in (best.x, x):
            proof = certify(problem, point, theta, mu)
            assert np.isinf(proof.within)
            assert np.isfinite(proof.gap)
            lost = problem.primal(point) - best.certificate.dual
            assert proof.gap >= problem.primal(point) - best.value
            assert lost >= -1e-9


@pytest.mark.parametrize("side", [False, True])
@pytest.mark.parametrize("slope", [0.7, -1.3])
def test_what_a_residual_costs_beside_an_l1_norm_is_attained(slope: float, side: bool) -> None:
    """``2 |x|`` at 3: -3 is no worse, and there the residual pays all of it."""
    constraint = SideConstraints([[0.0]], [1.0], (("nonneg", 1),)) if side else None
    problem = Problem(
        Rows(np.ones((1, 1))), Losses(0.0, 0.0, 0.0, [-2.0], [2.0]), Quadratic(np.zeros(1)),
        np.zeros(1), side=constraint,
    )
    x = np.array([3.0 * np.sign(slope)])
    r = module.Residual(np.arange(1), np.array([slope]), np.zeros(1))
    cost = module.own_growth_cost(problem, x, np.zeros(1), x, np.zeros(1), problem.primal(x), r)
    paid = slope * float(x[0] - -x[0])
    assert problem.primal(-x) == problem.primal(x)
    assert 0.99 * cost < paid <= cost


@pytest.mark.parametrize("a", [0.2, -5.0])
def test_what_an_intercept_without_a_term_of_its_own_costs_is_attained(a: float) -> None:
    """``|a y + b| + |y|``, of which a residual in b alone is taken up by the first term.

    What that leaves in y is paid along the other term where a is large: ``b = -a y``.
    """
    problem = Problem(
        Rows(np.array([[a, 1.0], [1.0, 0.0]])), Losses(0.0, 0.0, 0.0, [-1.0] * 2, [1.0] * 2),
        Quadratic(np.zeros(2)), np.zeros(2),
    )
    x = np.array([2.0, -2.0 * a]) if abs(a) > 1.0 else np.array([0.0, 2.0])
    r = module.Residual(np.arange(2), np.array([0.0, np.sign(x[1]) * 0.3]), np.zeros(2))
    t = problem.design.forward(x)
    cost = module.own_growth_cost(
        problem, x, np.zeros(2), t, np.zeros(2), problem.primal(x), r
    )
    paid = float(r.value @ (x - -x))
    assert problem.primal(-x) == problem.primal(x) == 2.0
    assert 0.99 * cost < paid <= cost


def blocks(seed: int, *, others: int, hinge: bool) -> tuple[Problem, np.ndarray]:
    """Losses of more coordinates than terms, all but `others` in blocks of three with a norm each.

    The last block's coordinates have an L1 norm besides; tails and heads are scaled.
    """
    rng = np.random.default_rng(seed)
    n, count = 6, 5
    d = 3 * count + others
    A = np.hstack([rng.standard_normal((n, d)), np.zeros((n, count))])
    unit = np.eye(d + count)[d - others - 3: d - others]
    F, dims = np.zeros((4 * count, d + count)), [("soc", 4)] * count
    scales = rng.uniform(0.5, 2.0, (2, count))
    for k in range(count):
        F[4 * k, d + k] = scales[0, k]
        F[4 * k + np.arange(1, 4), 3 * k + np.arange(3)] = scales[1, k] * rng.choice([-1, 2], 3)
    q = np.r_[np.zeros(d), rng.uniform(1.0, 3.0, count)]
    low, one = np.full(n, -1.0), np.ones(n)
    high = np.r_[0.0 * one if hinge else one, np.full(3, 0.5)]
    b = np.r_[rng.standard_normal(n), np.zeros(3)]
    losses = Losses(b, 0.0, 0.0, np.r_[low, np.full(3, -0.5)], high)
    side = SideConstraints(F, np.zeros(4 * count), dims)
    x = np.r_[rng.standard_normal(d), np.zeros(count)]
    x[d:] = np.linalg.norm((F @ x).reshape(count, 4)[:, 1:], axis=1) / scales[0]
    return Problem(
        Rows(np.vstack([A, unit])), losses, Quadratic(np.zeros(d + count)), q, side=side
    ), x


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("hinge", [False, True])
def test_norms_of_blocks_bound_every_better_point(
    others: int, hinge: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever slopes and multipliers are; hinges alone leave an intercept to the distance."""
    monkeypatch.setattr(module, "nearby_cost", lambda *_: np.inf)
    problem, x = blocks(seed, others=others, hinge=hinge)
    rng = np.random.default_rng(50 + seed)
    best = cs.solve(problem, tol=1e-8)
    for size in (0.0, 1e-6, 0.1):
        f = problem.losses
        theta = np.clip(best.theta + size * rng.standard_normal(problem.n), f.lo, f.hi)
        mu = problem.side.project_dual(
            best.multipliers + size * rng.standard_normal(len(best.multipliers))
        )
        for point in (best.x, x):
            proof = certify(problem, point, theta, mu)
            assert np.isinf(proof.within) == (not (hinge and others))
            assert np.linalg.norm(best.x - point) <= proof.within
            assert np.isfinite(proof.gap)
            assert proof.gap >= problem.primal(point) - best.value
            if size == 1e-6:
                assert proof.gap <= 0.1 + problem.primal(point) - best.certificate.dual


@pytest.mark.parametrize("slope", [0.7, -1.3])
def test_what_a_residual_costs_below_a_norm_is_attained(slope: float) -> None:
    """``2 t`` with ``|(3 u, v)| <= 0.5 t``: along the residual the opposite point is no worse."""
    side = SideConstraints(
        [[0.0, 0.0, 0.5], [3.0, 0.0, 0.0], [0.0, 1.0, 0.0]], np.zeros(3), (("soc", 3),)
    )
    problem = Problem(
        Rows(np.zeros((1, 3))), Losses(0.0, 0.0, 0.0, [-1.0], [1.0]), Quadratic(np.zeros(3)),
        np.array([0.0, 0.0, 2.0]), side=side,
    )
    x = np.array([slope / 9.0, slope, 0.0])  # D^-2 r, the direction in which r is steepest
    x[2] = 2.0 * np.hypot(3.0 * x[0], x[1])
    r = np.array([slope, slope, 0.0])
    residual = module.Residual(np.arange(3), r, np.zeros(3))
    cost = module.own_growth_cost(
        problem, x, np.zeros(1), np.zeros(1), np.zeros(1), problem.primal(x), residual
    )
    paid = float(r @ (x - np.array([-x[0], -x[1], x[2]])))
    assert 0.99 * cost < paid <= cost


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_fewer_rows_than_other_coordinates_bound_none_of_these(rows: int) -> None:
    """Along ``x_6 = -x_7`` a single row sees nothing, and no row sees anything; two see all."""
    d = 8
    side = SideConstraints(np.eye(6, d), np.zeros(6), (("nonneg", 6),))
    data = np.zeros((2, d))
    data[:, 6:] = [[1.0, 1.0], [1.0, -1.0]]
    cost = np.where(np.arange(d) < 6, 1.0, 0.0)
    problem = Problem(
        Rows(data[:rows]), Losses(np.zeros(rows), 0.0, 0.0, -np.ones(rows), np.ones(rows)),
        Quadratic(np.zeros(d)), cost, side=side,
    )
    x, none = np.zeros(d), np.zeros(rows)
    residual = module.Residual(np.arange(d), np.full(d, 0.1), np.zeros(d))
    found = module.own_growth_cost(problem, x, none, none, none, problem.primal(x), residual)
    assert np.isfinite(found) == (rows == 2)


def test_a_norm_that_costs_nothing_bounds_nothing() -> None:
    """Nor does one below a head that is held at 0, or of coordinates with a linear term."""
    problem, x = blocks(0, others=0, hinge=False)
    r = module.Residual(np.arange(problem.d), np.ones(problem.d), np.zeros(problem.d))
    t = problem.design.forward(x)
    arguments = (x, np.zeros(problem.n), t, np.zeros(problem.n), problem.primal(x), r)
    assert np.isfinite(module.own_growth_cost(problem, *arguments))
    for j, value in ((-1, 0.0), (-1, -1.0), (0, 0.3)):
        q = problem.linear.copy()
        q[j] = value
        assert np.isinf(module.own_growth_cost(replace(problem, linear=q), *arguments))
    kappa = np.where(problem.linear > 0.0, np.inf, 0.0)
    blocked = module.Blocks.of(problem, kappa, problem.linear)
    assert not blocked.covered.any()


def within_a_budget(seed: int, *, hinge: bool) -> tuple[Problem, np.ndarray]:
    """`blocks` whose heads cost nothing but share a budget, a pair of rows among them; a point."""
    problem, x = blocks(seed, others=1, hinge=hinge)
    d, side = problem.d, problem.side
    rows = np.zeros((3, d + 2))
    rows[0, [d, d + 1]], rows[1, [d, d + 1]] = (-0.5, 2.0), (0.5, 2.0)
    rows[2, d - 5: d], rows[2, d + 1] = -problem.linear[d - 5:], -1.5
    frame = np.hstack([side.matrix.toarray(), np.zeros((len(side.offset), 2))])
    A = np.hstack([problem.design.dense(), np.zeros((problem.n, 2))])
    A[0, d] = 1.0
    share = 0.02 * float(problem.linear[d - 5:] @ x[d - 5:])
    return Problem(
        Rows(A), problem.losses, Quadratic(np.zeros(d + 2)), np.zeros(d + 2),
        side=SideConstraints(
            np.vstack([frame, rows]), np.r_[side.offset, 0.0, 0.0, share],
            (*side.dims, ("nonneg", 3)),
        ),
    ), np.r_[0.02 * x, 0.0, 0.0]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("hinge", [False, True])
def test_a_budget_for_norms_bounds_every_better_point(
    hinge: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever slopes and multipliers are: no feasible point is better by more than the gap."""
    monkeypatch.setattr(module, "nearby_cost", lambda *_: np.inf)
    endless = np.full(23, np.inf)
    monkeypatch.setattr(module, "bounding_box", lambda _: (-endless, endless))
    problem, x = within_a_budget(seed, hinge=hinge)
    assert len(problem.side.norms) == 6
    rng = np.random.default_rng(50 + seed)
    best = cs.solve(problem, tol=1e-8)
    assert problem.d == len(endless)
    assert best.multipliers[-1] > 0.1
    for size in (0.0, 1e-6, 0.1):
        f = problem.losses
        theta = np.clip(best.theta + size * rng.standard_normal(problem.n), f.lo, f.hi)
        mu = best.multipliers + size * rng.standard_normal(len(best.multipliers))
        for point in (best.x, x):
            proof = certify(problem, point, theta, problem.side.project_dual(mu))
            assert np.linalg.norm(best.x - point) <= proof.within
            assert np.isfinite(proof.gap)
            assert proof.gap >= problem.primal(point) - best.value
            if size == 1e-6:
                assert proof.gap <= 0.1 + problem.primal(point) - best.certificate.dual


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("slope", [0.7, -1.3])
def test_what_a_residual_costs_within_a_budget_is_attained(slope: float, paired: bool) -> None:
    """Nothing but ``|3 x| <= 0.5 t`` and ``2 t <= 5``: from one end of it to the other."""
    F = [[3.0, 0.5], [-3.0, 0.5], [0.0, -2.0]] if paired else [[0.0, 0.5], [3.0, 0.0], [0.0, -2.0]]
    dims = (("nonneg", 3),) if paired else (("soc", 2), ("nonneg", 1))
    problem = Problem(
        Rows(np.zeros((1, 2))), Losses(0.0, 0.0, 0.0, [-1.0], [1.0]), Quadratic(np.zeros(2)),
        np.zeros(2), side=SideConstraints(F, [0.0, 0.0, 5.0], dims),
    )
    x = np.array([np.sign(slope) * 1.25 / 3.0, 2.5])
    no, r = np.zeros(1), module.Residual(np.arange(2), np.array([slope, 0.0]), np.zeros(2))
    arguments = (problem, x, no, no, no, problem.primal(x), r)
    cost = module.own_growth_cost(*arguments, mu=np.array([0.0, 0.0, 0.4]))
    assert 0.99 * cost < slope * (x[0] - -x[0]) <= cost
    for mu in (None, np.zeros(3)):  # a budget that costs nothing bounds nothing
        assert np.isinf(module.own_growth_cost(*arguments, mu=mu))


def test_multipliers_of_a_budget_are_known_to_their_rounding(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """``1e9 - 1e9`` of two budgets: what is left of it may be nothing."""
    F = [[1.0, 1.0], [-1.0, 1.0], [0.0, -1.0]]
    problem = Problem(
        Rows(np.zeros((1, 2))), Losses(0.0, 0.0, 0.0, [-1.0], [1.0]), Quadratic(np.zeros(2)),
        np.array([0.0, 1e9]), side=SideConstraints(F, [0.0, 0.0, 1.0], (("nonneg", 3),)),
    )
    part = module.LinearPart.of(problem, np.array([0.0, 0.0, 1e9]))
    np.testing.assert_array_equal(part.slopes, [0.0, 2e9])
    assert part.error[1] >= 1e9 * np.finfo(float).eps
    assert part.level >= 1e9
    np.testing.assert_array_equal(module.LinearPart.of(problem, None).slopes, problem.linear)


def test_norms_below_heads_bound_a_box() -> None:
    """Each coordinate by its head, and that by the budget, whatever else is there."""
    problem, _ = within_a_budget(0, hinge=False)
    low, high = module.bounding_box(problem)
    side, norms = problem.side, problem.side.norms
    budget = side.matrix[[-1]].toarray()[0]
    for k in range(len(norms)):
        top = side.offset[-1] / -budget[norms.heads[k]]
        assert low[norms.heads[k]] == 0.0
        assert high[norms.heads[k]] == pytest.approx(top)
        mine = norms.owner == k
        reach = norms.scales[k] * top / np.abs(norms.factors[mine])
        np.testing.assert_allclose(high[norms.coordinates[mine]], reach)
        np.testing.assert_allclose(low[norms.coordinates[mine]], -reach)
        assert (high[norms.coordinates[mine]] >= reach).all()


def test_a_coordinate_held_at_zero_from_both_sides_still_costs_what_x_has_there() -> None:
    """``x >= 0`` and ``x <= 0`` leave 0 alone: from 1e-7 a residual of 5 loses 5e-7."""
    side = SideConstraints([[1.0], [-1.0]], [0.0, 0.0], (("nonneg", 2),))
    problem = Problem(
        Rows(np.ones((1, 1))), Losses(0.0, 0.0, 0.0, [-2.0], [2.0]), Quadratic(np.zeros(1)),
        np.zeros(1), side=side,
    )
    x = np.array([1e-7])
    r = module.Residual(np.arange(1), np.array([5.0]), np.zeros(1))
    cost = module.own_growth_cost(problem, x, np.zeros(1), x, np.zeros(1), problem.primal(x), r)
    assert 0.99 * cost < 5e-7 <= cost


def test_an_intercept_that_no_loss_bounds_costs_what_it_may_move_within_a_distance() -> None:
    """``|y| + max(0, b)`` is 0 for any b below 0: a residual there pays all of the distance."""
    problem = Problem(
        Rows(np.array([[1.0, 0.0], [0.0, 1.0]])), Losses(0.0, 0.0, 0.0, [-1.0, 0.0], [1.0, 1.0]),
        Quadratic(np.zeros(2)), np.zeros(2),
    )
    x, far = np.zeros(2), np.array([0.0, -7.0])
    r = module.Residual(np.arange(2), np.array([0.0, 0.3]), np.zeros(2))
    arguments = (x, np.zeros(2), x, np.zeros(2), problem.primal(x), r)
    assert problem.primal(far) == problem.primal(x) == 0.0
    assert np.isinf(module.own_growth_cost(problem, *arguments))
    cost = module.own_growth_cost(problem, *arguments, within=7.0)
    assert 0.99 * cost < float(r.value @ (x - far)) <= cost


def test_what_only_half_of_the_coordinates_have_bounds_nothing() -> None:
    """Without terms of their own, or with a linear term that these do not outweigh."""
    problem, x = own_terms(0, others=1, linear=False, side=False)
    q = problem.linear.copy()
    q[3] = 100.0
    r = module.Residual(np.arange(problem.d), np.ones(problem.d), np.zeros(problem.d))
    t = problem.design.forward(x)
    arguments = (x, np.zeros(problem.n), t, np.zeros(problem.n), problem.primal(x), r)
    assert np.isfinite(module.own_growth_cost(problem, *arguments))
    assert np.isinf(module.own_growth_cost(replace(problem, linear=q), *arguments))
    few = replace(
        problem, design=problem.design.take_rows(np.arange(9)),
        losses=problem.losses.take(np.arange(9)),
    )
    assert np.isinf(module.own_growth_cost(few, *(
        arguments[0], np.zeros(9), t[:9], np.zeros(9), few.primal(x), r
    )))


def test_rows_of_one_entry_round_in_their_own_coordinate_alone() -> None:
    """``A' theta`` of steep terms of single coordinates, which the others do not feel."""
    rng = np.random.default_rng(0)
    A, steep = rng.standard_normal((5, 40)), 10.0 ** rng.uniform(0, 12, 40)
    losses = Losses(0.0, 0.0, 0.0, np.full(45, -1e13), np.full(45, 1e13))
    problem = Problem(
        Rows(np.vstack([A, np.eye(40)])), losses, Quadratic(np.zeros(40)), np.zeros(40)
    )
    theta = np.r_[rng.standard_normal(5), steep]
    error = module.adjoint_error(problem, theta)
    computed = problem.design.adjoint(theta)
    for j in range(40):
        exact = sum(
            (Fraction(float(a)) * Fraction(float(s))
             for a, s in zip(A[:, j], theta[:5], strict=True)),
            Fraction(float(steep[j])),
        )
        assert abs(Fraction(float(computed[j])) - exact) <= Fraction(float(error[j]))
    assert error.min() < 1e-6 * error.max()


@pytest.mark.parametrize("kind", ["dense", "float32", "sparse", "scaled"])
def test_slopes_that_are_small_round_little(kind: str) -> None:
    """``A' theta`` of few slopes that count among many: in every column, against exact sums."""
    rng = np.random.default_rng(1)
    A = rng.standard_normal((300, 6)) * np.geomspace(1e-6, 1e6, 6)
    A[5:, 0] *= 1e9  # steep rows do not see a column that others fill
    A[:5, 0] = 0.0
    theta = np.r_[rng.standard_normal(5), 1e-13 * rng.standard_normal(295)]
    scale = rng.uniform(0.5, 2.0, 300) if kind == "scaled" else None
    data = {"float32": A.astype(np.float32), "sparse": sp.csr_matrix(A)}.get(kind, A)
    ends = np.full(300, 10.0)
    losses = Losses(np.zeros(300), 0.0, 0.0, -ends, ends)
    problem = Problem(Rows(data, scale), losses, Quadratic(np.zeros(6)), np.zeros(6))
    error, plain = module.closer_adjoint_error(problem, theta), module.adjoint_error(problem, theta)
    computed = problem.design.adjoint(theta)
    factors = np.ones(300) if scale is None else scale
    entries = data.toarray() if kind == "sparse" else data
    for j in range(6):
        exact = sum(
            Fraction(float(c)) * Fraction(float(a)) * Fraction(float(s))
            for c, a, s in zip(factors, entries[:, j], theta, strict=True)
        )
        assert abs(Fraction(float(computed[j])) - exact) <= Fraction(float(error[j]))
        size = sum(abs(Fraction(float(a)) * Fraction(float(s)))
                   for a, s in zip(entries[:, j], theta, strict=True))
        assert error[j] >= 0.49 * problem.design.adjoint_factor * float(size)
    assert error[0] < 1e-5 * plain[0]
    assert (error[1:] <= 20 * plain[1:]).all()


def test_the_sum_of_products_is_bounded_where_all_rows_are_alike() -> None:
    """By the inequality itself, which is then an equation: a share of the error would be less."""
    design = Rows(np.full((64, 3), -0.5))
    losses = Losses(np.zeros(64), 0.0, 0.0, np.full(64, -1.0), np.full(64, 1.0))
    problem = Problem(design, losses, Quadratic(np.zeros(3)), np.zeros(3))
    error = module.closer_adjoint_error(problem, np.full(64, 0.25))
    assert (error >= design.adjoint_factor * 8.0).all()
    assert (0.99 * error < design.adjoint_factor * 8.0).all()
