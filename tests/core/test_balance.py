"""Balancing a dual point: accurate to rounding, and in few trials however uneven the terms."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from rational import Fraction

from cvxscreen._support.rounding import UNIT
from cvxscreen.core import duality as module
from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.duality import reference_point
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows


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
