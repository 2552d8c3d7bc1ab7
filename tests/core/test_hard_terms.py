"""Constraints written as terms, and the squared loss: rows of the table like all others."""

from __future__ import annotations

import numpy as np
import pytest

from cvxscreen.core.duality import reference_point
from cvxscreen.core.losses import Losses, Piece
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.solvers.loop import solve_screened

INEQUALITY, EQUALITY, SQUARED = (1.0, 0.0, np.inf), (1.0, -np.inf, np.inf), (1.0, -np.inf, np.inf)


def table() -> Losses:
    """``t <= 1``, ``t = 1``, ``(t - 1)^2`` (c = 2), and an absolute value with a dead zone."""
    return Losses(
        [1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.5], [0.0, 0.0, 0.5, 0.0],
        [0.0, -np.inf, -np.inf, -2.0], [np.inf, np.inf, np.inf, 2.0],
    )


def test_values_and_what_is_violated() -> None:
    losses = table()
    assert losses.hard.tolist() == [True, True, False, False]
    assert losses.any_hard
    assert losses.value([1.0, 1.0, 3.0, 1.25]).tolist() == [0.0, 0.0, 4.0, 0.0]
    assert losses.value([0.0, 0.0, 0.0, 3.0]).tolist() == [0.0, np.inf, 1.0, 3.0]
    assert losses.violation([3.0, -2.0, 9.0, 9.0]).tolist() == [2.0, 3.0, 0.0, 0.0]
    assert losses.violation([0.0, 1.0, 9.0, 9.0]).tolist() == [0.0] * 4
    assert np.isfinite(losses.slope([3.0, 3.0, 3.0, 3.0])).all()


def test_conjugates_are_suprema() -> None:
    """``f*(s) = sup_t s t - f(t)`` over a grid, where the supremum is within it."""
    losses, grid = table(), np.linspace(-20.0, 20.0, 4001)
    values = np.array([losses.value(np.full(4, t)) for t in grid])
    for s in (0.0, 0.5, 1.5):
        sup = (s * grid[:, None] - values).max(axis=0)
        np.testing.assert_allclose(losses.conjugate(np.full(4, s)), sup, atol=1e-9)
    assert losses.conjugate([-1.0, -1.0, -1.0, -1.0])[0] == np.inf


def test_fenchel_young_is_complementarity_where_the_constraint_holds() -> None:
    losses = table()
    gap = losses.fenchel_young([0.0, 1.0, 1.0, 1.0], [3.0, -2.0, 0.0, 0.0])
    assert gap.tolist() == [3.0, 0.0, 0.0, 0.0]
    beyond = losses.fenchel_young([1.5, 1.5, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0])
    assert beyond.tolist() == [np.inf, np.inf, 0.0, 0.0]
    above = losses.fenchel_young_above([0.999, 1.0, 1.0, 1.0], np.full(4, 0.01), np.zeros(4))
    assert np.isinf(above[:2]).all()
    assert np.isfinite(above[2:]).all()


def test_an_inactive_inequality_is_on_its_zero_piece_and_an_equality_never_is() -> None:
    losses = table()
    codes = losses.piece_within(np.full(4, 0.6), np.full(4, 0.9))
    assert codes.tolist() == [Piece.ZERO, -1, Piece.LEFT, Piece.ZERO]
    assert losses.piece_within(np.full(4, 0.6), np.full(4, 1.1))[0] == -1
    assert losses.kink_distance(np.full(4, 0.25)).tolist() == [0.75, 0.75, np.inf, 0.25]


def test_a_dead_zone_beside_an_endless_slope_is_refused() -> None:
    with pytest.raises(InvalidInput, match="curvature"):
        Losses([0.0], [0.1], [0.0], [0.0], [np.inf])


def test_weights_of_their_own() -> None:
    losses = table().weighted([1.0, 2.0, 4.0, 3.0])
    assert losses.value([1.0, 1.0, 3.0, 3.0]).tolist() == [0.0, 0.0, 16.0, 9.0]
    for bad in ([1.0, 0.0, 1.0, 1.0], [1.0], [np.inf] * 4):
        with pytest.raises(InvalidInput, match="factors"):
            table().weighted(bad)


def test_bounds_decide_nothing_from_a_point_that_violates_a_constraint() -> None:
    """Its objective is infinite: so is the gap."""
    problem = Problem(
        Rows(np.eye(2)), Losses([1.0, 1.0], 0.0, 0.0, [0.0, -1.0], [np.inf, 1.0]),
        Quadratic(np.ones(2)), np.zeros(2),
    )
    assert reference_point(problem, [2.0, 0.0], [0.0, 0.0]).gap == np.inf
    assert np.isfinite(reference_point(problem, [0.5, 0.0], [0.0, 0.0]).gap)
    assert reference_point(problem, [2.0, 0.0]).gap == np.inf  # slopes of its own choice


def test_least_squares_is_a_table_row() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 4)), rng.standard_normal(60)
    problem = Problem(
        Rows(X), Losses(y, 0.0, 1.0, -np.inf, np.inf), Quadratic(np.zeros(4)), np.zeros(4)
    )
    found = solve_screened(problem, tol=1e-9)
    assert found.status == "optimal"
    assert np.isinf(found.certificate.within)
    np.testing.assert_allclose(found.x, np.linalg.lstsq(X, y, rcond=None)[0], atol=1e-9)
