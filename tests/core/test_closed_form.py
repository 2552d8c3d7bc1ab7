"""`c_min`: the closed-form start of a path is optimal up to it, and no farther."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from exact import optimum

from cvxscreen.core.closed_form import c_min, piece_ends
from cvxscreen.core.duality import reference_point
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.models.linear import regression, svm

LINEAR = ["hinge", "absolute", "quantile", "epsilon"]


def some_problem(
    loss: str, seed: int, *, intercept: bool = False, scale: float = 1.0, weighted: bool = True
) -> Problem:
    """Random data whose margins start inside a linear piece; classes balance with an intercept."""
    rng = np.random.default_rng(seed)
    n, d = 24, int(rng.integers(1, 6))
    X = scale * (rng.standard_normal((n, d)) + 0.3)
    weight = rng.integers(1, 9, n) / 4.0 if weighted else np.ones(n)
    C = float(2.0 ** rng.integers(-4, 5))
    if loss in ("hinge", "smoothed_hinge"):
        y = np.resize([1.0, -1.0], n)
        weight = np.repeat(weight[::2], 2)
        return svm(X, y, C=C, loss=loss, sample_weight=weight, intercept=intercept)
    y = 2.0 * rng.standard_normal(n)
    used = None if intercept else weight
    return regression(X, y, C=C, loss=loss, sample_weight=used, intercept=intercept)


def relative_gap(problem: Problem, C: float, x: np.ndarray, theta: np.ndarray) -> float:
    point = reference_point(problem.with_(C=C), x, theta)
    return point.relative_gap


@pytest.mark.table
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", [*LINEAR, "smoothed_hinge"])
def test_exact_up_to_c_min_and_false_beyond(loss: str, intercept: bool, scale: float) -> None:
    """A gap of rounding at C_min and C_min/2; at 1.05 C_min the same formula is not optimal."""
    found = 0
    for seed in range(12):
        problem = some_problem(loss, seed, intercept=intercept, scale=scale)
        start = c_min(problem)
        if start.C == 0.0:
            continue
        found += 1
        for share in (1.0, 0.5, 1e-3):
            x, theta = start.at(share * start.C)
            assert relative_gap(problem, share * start.C, x, theta) <= 1e-12
        factor = 1.05 * start.C / problem.C
        x, theta = start.origin + factor * start.direction, factor * start.slopes
        assert relative_gap(problem, 1.05 * start.C, x, theta) > 1e-9
    assert found >= (6 if intercept and loss != "hinge" else 12)


@pytest.mark.parametrize("loss", LINEAR)
def test_it_is_the_optimum_in_rational_arithmetic(loss: str) -> None:
    """At C_min the exact optimum is the closed form, rounding apart."""
    for seed in range(4):
        problem = some_problem(loss, seed)
        start = c_min(problem)
        x, theta = start.at(start.C)
        truth = optimum(problem.with_(C=start.C), x, theta)
        assert truth is not None
        np.testing.assert_allclose(x, [float(v) for v in truth.x], rtol=1e-12, atol=0)


def test_hinge_is_the_printed_formula() -> None:
    """``1 / max_i (Q c)_i`` with weights c, in units of C (Lemma 9; 1 with unit weights)."""
    for seed in range(20):
        problem = some_problem("hinge", seed)
        A, c = problem.design.dense(), -problem.losses.lo / problem.C
        printed = 1.0 / (A @ (A.T @ c)).max()
        found = c_min(problem).C
        assert found == pytest.approx(printed, rel=1e-10)
        assert found <= printed * (1 + 1e-15)


def test_infinite_where_the_rows_cancel() -> None:
    """``max (Q 1) <= 0`` only if the rows sum to 0 exactly: w = 0 for every C."""
    rng = np.random.default_rng(1)
    half = rng.standard_normal((6, 3))
    problem = svm(np.vstack([half, half]), np.repeat([1.0, -1.0], 6), C=0.1)
    start = c_min(problem)
    assert np.isposinf(start.C)
    for C in (1e-3, 1.0, 1e6):
        x, theta = start.at(C)
        assert not x.any()
        assert relative_gap(problem, C, x + 0.0, theta) <= 1e-12
    # A sum that only rounds to 0 is not one.
    half[0, 0] *= 1 + 2.0**-52
    assert np.isfinite(c_min(svm(np.vstack([half, half[::-1] * (1 - 2.0**-53)]),
                                 np.repeat([1.0, -1.0], 6))).C)


def test_infinite_inside_the_insensitive_zone() -> None:
    """All |y_i| < epsilon: the loss is 0 at w = 0, which stays optimal."""
    rng = np.random.default_rng(2)
    problem = regression(
        rng.standard_normal((8, 2)), rng.uniform(-0.4, 0.4, 8), loss="epsilon", epsilon=0.5
    )
    assert np.isposinf(c_min(problem).C)
    assert not c_min(problem).at(5.0)[0].any()


def test_zero_where_there_is_no_closed_form() -> None:
    """A margin that starts at a kink or on a parabola, unbalanced classes, side constraints."""
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((9, 2)), rng.standard_normal(9)
    labels = np.resize([1.0, -1.0], 9)
    y[4] = 0.0
    none = [
        regression(X, y), regression(X, y, loss="huber"), svm(X, labels, loss="squared_hinge"),
        svm(X, labels, intercept=True), regression(X, y, intercept=True),
    ]
    for problem in none:
        start = c_min(problem)
        assert start.C == 0.0
        with pytest.raises(InvalidInput, match="`C`"):
            start.at(1e-6)


def test_a_row_of_zeros_at_its_kink_is_harmless() -> None:
    """A term that w cannot move needs no piece of its own."""
    rng = np.random.default_rng(4)
    X, y = rng.standard_normal((9, 2)), rng.uniform(1.0, 2.0, 9)
    X[3], y[3] = 0.0, 0.0
    start = c_min(regression(X, y))
    assert 0.0 < start.C < np.inf
    x, theta = start.at(start.C)
    assert relative_gap(start.problem, start.C, x, theta) <= 1e-12


def test_the_intercept_is_chosen_to_make_c_min_largest() -> None:
    """Balanced hinge: ``2 / (max over class + of Q c + max over class - of Q c)``."""
    for seed in range(20):
        problem = some_problem("hinge", seed, intercept=True)
        A, c = problem.design.dense()[:, :-1], -problem.losses.lo / problem.C
        pull, positive = A @ (A.T @ c), problem.design.scale == 1.0
        best = 2.0 / (pull[positive].max() + pull[~positive].max())
        found = c_min(problem).C
        assert found == pytest.approx(best, rel=1e-8)


def test_other_metrics_linear_terms_and_storage() -> None:
    """Dense and weighted M, a linear term, CSR float32: gaps of rounding at C_min."""
    rng = np.random.default_rng(5)
    B = rng.standard_normal((3, 3))
    for number in range(12):
        X = rng.standard_normal((20, 3)).astype(np.float32 if number % 2 else np.float64)
        design = Rows(sp.csr_matrix(X) if number % 3 else X)
        y = rng.choice([-1.0, 1.0], 20) * rng.uniform(0.5, 1.5, 20)
        quadratic = Quadratic(rng.uniform(0.5, 2.0, 3), B @ B.T if number % 4 else None)
        linear = 0.05 * rng.standard_normal(3) if number % 5 else np.zeros(3)
        problem = Problem(design, Losses(y, 0.0, 0.0, -1.0, 1.0), quadratic, linear)
        start = c_min(problem)
        assert start.C > 0.0
        for share in (1.0, 0.3):
            changed = Problem(
                design, problem.losses.scaled(share * start.C), quadratic, linear, C=share
            )
            point = reference_point(changed, *start.at(share * start.C))
            assert point.gap <= 1e-12 * (1.0 + abs(point.primal))


def test_piece_ends_are_those_of_the_losses() -> None:
    """Every interval of a piece is within ``piece_within``'s own decision."""
    losses = Losses(
        [1.0, 1.0, 0.5, 2.0, 0.0], [0.0, 0.0, 0.25, 0.25, 0.0], [0.0, 0.5, 0.0, 0.5, 1.0],
        [-1.0, -1.0, -2.0, -2.0, -1.0], [0.0, 0.0, 2.0, 2.0, 1.0],
    )
    for t in np.linspace(-4.0, 6.0, 201):
        codes = losses.piece_within(np.full(5, t), np.full(5, t))
        low, high = piece_ends(losses, codes)
        assert ((low <= t) & (t <= high) | (codes < 0)).all()
        finite = np.where(np.isfinite(high), high - 1e-9, t)
        known = codes >= 0
        again = losses.piece_within(np.full(5, t), np.maximum(finite, t))
        assert (again == codes)[known].all()


def test_nothing_is_written_into_the_problem() -> None:
    """What `at` returns may be changed by the caller."""
    problem = some_problem("hinge", 0)
    start = c_min(problem)
    for kept in start.at(0.5 * start.C):
        kept += 1.0
    x, theta = start.at(0.5 * start.C)
    assert relative_gap(problem, 0.5 * start.C, x, theta) <= 1e-12
    assert not problem.linear.any()
