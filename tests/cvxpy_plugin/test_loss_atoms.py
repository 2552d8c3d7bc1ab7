"""Losses as they are read off an objective: the value of every spelling, and what is left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from cvxscreen.cvxpy_plugin.recognise.check import check
from cvxscreen.cvxpy_plugin.recognise.expressions import read_affine
from cvxscreen.cvxpy_plugin.recognise.loss_atoms import LossGroup, read_losses, same, take_losses
from cvxscreen.cvxpy_plugin.recognise.matrices import csr
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import NotScreenable

RNG = np.random.default_rng(20261123)
N, D = 40, 3
X, Y, C = RNG.standard_normal((N, D)), RNG.standard_normal(N), RNG.random(N) + 0.1
LABEL = np.sign(Y)
TAU = 0.2 + 0.5 * RNG.random(N)
SHAPE = (N // 2, 2)
w, b = cp.Variable(D, name="w"), cp.Variable(name="b")
r = X @ w + b - Y
m = cp.multiply(LABEL, X @ w)

TAKEN = {
    "hinge": cp.sum(cp.pos(1 - m)),
    "hinge_neg": 3 * cp.mean(cp.neg(m - 1)),
    "hinge_maximum": cp.sum(cp.maximum(0, 1 - m)),
    "weights": C @ cp.pos(1 - m),
    "weights_inside": cp.sum(cp.multiply(C, cp.pos(1 - m))) / N,
    "weights_on_lines": cp.sum(cp.pos(cp.multiply(C, 1 - m))),
    "absolute": cp.norm1(r),
    "absolute_matrix": cp.sum(cp.abs(cp.reshape(r, SHAPE, order="F"))),
    "tilted": cp.sum(0.5 * cp.abs(r) + 0.2 * r),
    "shifted": cp.sum(cp.abs(r) + 3.0),
    "pinball": cp.sum(cp.maximum(0.3 * r, -0.7 * r)),
    "pinball_entries": cp.sum(cp.maximum(cp.multiply(TAU, r), cp.multiply(TAU - 1, r))),
    "pinball_written_twice": cp.sum(cp.maximum(0.3 * (Y - X @ w), -0.7 * (Y - X @ w))),
    "pinball_scalene": cp.sum(cp.scalene(r, 0.3, 0.7)),
    "pinball_two": 0.3 * cp.sum(cp.pos(r)) + 0.7 * cp.sum(cp.neg(r)),
    "zone": cp.sum(cp.pos(cp.abs(r) - 0.2)),
    "zone_three": cp.sum(cp.maximum(0, r - 0.2, -r - 0.3)),
    "zone_of_scales": cp.sum(cp.maximum(0, 1 - 100 * (X @ w), -2 + X @ w)),
    "zone_entries": cp.sum(cp.pos(cp.abs(r) - C)),
    "huber": 0.5 * cp.sum(cp.huber(r, 0.7)),
    "huber_scaled": cp.sum(cp.huber(2 * r, 0.7)),
    "huber_of_hinge": cp.sum(cp.huber(cp.pos(1 - m), 0.4)),
    "huber_of_steep_hinge": C @ cp.huber(3 * cp.pos(1 - m), 0.7),
    "huber_of_zone": cp.sum(cp.huber(cp.pos(cp.abs(r) - 0.2), 0.5)),
    "huber_of_absolute": cp.sum(cp.huber(cp.abs(2 * r), 0.5)),
    "squared_hinge": cp.sum_squares(cp.pos(1 - m)),
    "squared_hinge_power": 0.5 * cp.sum(cp.square(cp.pos(2 - 3 * m))),
    "squared_hinge_weights": C @ cp.square(cp.pos(1 - m)),
    "squared_over": cp.quad_over_lin(cp.pos(1 - m), 4.0),
    "squared_zone": cp.sum_squares(cp.pos(cp.abs(r) - 0.2)),
    "hinge_above": cp.sum(cp.maximum(r, 0.5)),
    "asymmetric_huber": cp.sum(3 * cp.huber(cp.pos(r), 0.4) + cp.huber(cp.neg(r), 0.7)),
    "asymmetric_squares": C @ (cp.square(cp.pos(r)) + 0.1 * cp.square(cp.neg(r))),
    "huber_and_absolute": cp.sum(cp.huber(r) + 0.5 * (cp.abs(r) + cp.square(cp.pos(1 - m)))),
    "squared_steep": cp.sum_squares(2 * cp.pos(1 - m)),
    "scalar": cp.pos(1 - X[0] @ w),
    "number_below_data": cp.sum(cp.pos(Y - b)),
    "number_among_data": cp.sum(cp.maximum(4 * (b - Y), 9 * (Y - b))) / N,
    "number_scaled": cp.sum(cp.maximum(-3 * (Y - 2 * b), 0.5 * (Y - 2 * b))),
    "number_or_data": -3 * cp.sum(cp.minimum(b, Y)) / N,
    "one_coordinate_or_data": -C @ cp.minimum(w[1], Y),
    "coordinates_among_rows": cp.sum(cp.multiply(C[:, None] * X**2, cp.maximum(w, X))),
}
LEFT = {
    "ridge": cp.sum_squares(w),
    "least_squares": cp.sum_squares(r),
    "l1_norm": cp.norm1(w),
    "l1_of_differences": cp.norm1(w[1:] - w[:-1]),
    "coordinates_among_few": cp.sum(cp.maximum(w, X[:2])),
    "linear": cp.sum(r),
    "different_data": cp.sum(cp.maximum(X @ w, Y - X[::-1] @ w)),
    "four_pieces": cp.sum(cp.maximum(0, r, 2 * r - 1, -r)),
    "one_slope": cp.sum(cp.maximum(r, 2 * r)),
    "uneven_squares": cp.sum_squares(cp.maximum(0, r - 0.2, -2 * r - 0.3)),
    "largest": cp.max(r),
    "huber_of_raised": cp.sum(cp.huber(cp.abs(r) + 1.0)),
    "cube": cp.sum(cp.power(cp.pos(r), 3)),
    "logistic": cp.sum(cp.logistic(r)),
    "norm": cp.norm(r, 2),
    "one_of_two": cp.sum(cp.huber(r) + cp.logistic(r)),
    "square_of_raised": cp.sum_squares(cp.maximum(r, -r) + 1.0),
}


def value(groups: tuple[LossGroup, ...]) -> float:
    """The losses at the variables' values, from what was read alone."""
    total = 0.0
    for group in groups:
        read = read_affine(group.argument)
        at = read.constant.copy()
        for variable in group.argument.variables():
            at += csr(read.blocks[variable.id]) @ np.atleast_1d(variable.value)
        total += group.value(group.sign * at)
    return total


def at_random(number: int) -> None:
    rng = np.random.default_rng(number + 2)
    w.value, b.value = rng.standard_normal(D) * 3.0**number, rng.standard_normal()


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("way", [cp.Minimize, lambda expr: cp.Maximize(-expr)])
def test_what_is_taken_has_its_value(name: str, way: Any) -> None:
    problem = cp.Problem(way(TAKEN[name] + cp.sum_squares(w)))
    rest, groups, free = take_losses(problem)
    assert groups
    sign = 1.0 if isinstance(problem.objective, cp.Minimize) else -1.0
    assert {v.id for v in (*rest.variables(), *free)} == {v.id for v in problem.variables()}
    for number in (-2, 0, 1):
        at_random(number)
        left = sign * float(rest.objective.value)
        assert left == pytest.approx(float(cp.sum_squares(w).value), rel=1e-12)
        assert value(groups) == pytest.approx(float(TAKEN[name].value), rel=1e-12)


@pytest.mark.filterwarnings("ignore:.*support CPP backend:UserWarning")  # of rows of `maximum`
@pytest.mark.parametrize("name", TAKEN)
def test_what_is_taken_is_recognised(name: str) -> None:
    """The whole way, against CVXPY's own solution."""
    problem = cp.Problem(cp.Minimize(TAKEN[name] + 0.5 * cp.sum_squares(w) + 0.1 * cp.square(b)))
    check(recognise(problem))
    truth = problem.solve(solver="CLARABEL")
    best = w.value
    assert problem.solve(method="screen") == pytest.approx(truth, rel=1e-7, abs=1e-9)
    assert problem.status == cp.OPTIMAL
    assert np.abs(w.value - best).max() <= 1e-4


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_is_left_whole(name: str) -> None:
    problem = cp.Problem(cp.Minimize(LEFT[name]))
    rest, groups, _ = take_losses(problem)
    assert rest is problem
    assert groups == ()


def test_negative_weights_are_left_to_cvxpys_rules() -> None:
    """Which refuse them: nothing that is not convex is solved."""
    problem = cp.Problem(cp.Minimize(cp.sum_squares(w) - cp.sum(cp.pos(1 - m))))
    assert take_losses(problem)[1] == ()
    mixed = np.where(np.arange(N) % 2, 1.0, -1.0) @ cp.pos(1 - m)
    assert take_losses(cp.Problem(cp.Minimize(mixed)))[1] == ()
    with pytest.raises(NotScreenable, match="DCP"):
        recognise(problem)


def test_matrices_with_fewer_entries_are_left_to_cvxpys_reductions() -> None:
    matrix = cp.Variable((2, 2), PSD=True)
    problem = cp.Problem(cp.Minimize(cp.sum(cp.pos(1 - X[:, [0, 1, 1, 2]] @ cp.vec(matrix, "F")))))
    assert take_losses(problem)[1] == ()


def test_numbers_follow_the_parameters() -> None:
    """Weights and levels are read anew; where another form comes out, it is recognised anew."""
    scale, tau = cp.Parameter(nonneg=True, value=2.0), cp.Parameter(value=0.3)
    loss = cp.sum(cp.maximum(tau * r, (tau - 1) * r))
    hinge = cp.sum(cp.pos(1 - m))
    problem = cp.Problem(cp.Minimize(cp.sum_squares(w) + cp.square(b) + loss + scale * hinge))
    for values in ((2.0, 0.3), (5.0, 0.3), (5.0, 0.8), (0.0, 0.8), (1.0, 0.5), (1.0, 1.5)):
        scale.value, tau.value = values
        truth = cp.Problem(problem.objective).solve(solver="CLARABEL")
        assert problem.solve(method="screen") == pytest.approx(truth, rel=1e-6, abs=1e-7)
    scale.value, tau.value = 3.0, 0.4
    first = read_losses(problem)
    scale.value = 6.0
    factors = [old.factor(new) for old, new in zip(first, read_losses(problem), strict=True)]
    assert all((factor == by).all() for factor, by in zip(factors, (1.0, 2.0), strict=True))
    tau.value = 0.5
    assert first[0].factor(read_losses(problem)[0]) is None


def test_data_in_a_parameter_are_read_anew() -> None:
    data = cp.Parameter((N, D), value=X)
    problem = cp.Problem(cp.Minimize(cp.sum_squares(w) + cp.sum(cp.pos(1 - data @ w))))
    for factor in (1.0, -2.0):
        data.value = factor * X
        truth = cp.Problem(problem.objective).solve(solver="CLARABEL")
        assert problem.solve(method="screen") == pytest.approx(truth, rel=1e-7)


def test_the_same_is_the_same_in_every_entry() -> None:
    """Two expressions are one argument only if all they are made of is equal."""
    other = X.copy()
    assert same(X @ w + b - Y, other @ w + b - Y)
    other[-1, -1] += 1e-9
    for pair in (other @ w + b - Y, X @ w + b + Y, X @ w - Y, X @ (2 * w) + b - Y):
        assert not same(X @ w + b - Y, pair)
    assert not same((X @ w)[:5], (X @ w)[1:6])
    assert same((X @ w)[:5], (X @ w)[:5])
    u, v = cp.Variable(D), cp.Variable(D)
    assert not same(X @ u, X @ v)


def test_terms_without_weight_are_none() -> None:
    weights = np.where(np.arange(N) % 2, 0.0, 1.0)
    found = recognise(cp.Problem(cp.Minimize(cp.sum_squares(w) + weights @ cp.pos(1 - m))))
    assert found.problem.n == N // 2


def test_the_data_are_not_copied_nor_changed() -> None:
    """The design holds CVXPY's own array of the data, labels beside it."""
    big = np.random.default_rng(1).standard_normal((4000, 5))
    label = np.where(np.arange(4000) % 2, 1.0, -1.0)
    before = big.copy()
    v = cp.Variable(5)
    margin = cp.multiply(label, big @ v + b)
    problem = cp.Problem(cp.Minimize(cp.sum_squares(v) + cp.sum(cp.pos(1 - margin))))
    held = next(c.value for c in problem.constants() if c.shape == big.shape)
    assert np.shares_memory(recognise(problem).problem.design.matrix, held)
    problem.solve(method="screen")
    assert np.array_equal(big, before)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_data_that_are_not_finite_are_refused(bad: float) -> None:
    big = np.random.default_rng(1).standard_normal((4000, 5))
    big[-1, -1] = bad
    v = cp.Variable(5)
    problem = cp.Problem(cp.Minimize(cp.sum_squares(v) + cp.sum(cp.pos(1 - big @ v))))
    with pytest.raises(NotScreenable, match="NaN or infinity"):
        recognise(problem)


@pytest.mark.parametrize("place", [0, 1999, 3999])
def test_one_wrong_number_among_many_is_found(place: int) -> None:
    """Of many terms one point is compared: a wrong entry of the data shows there, too."""
    big = np.random.default_rng(1).standard_normal((4000, 5))
    v = cp.Variable(5)
    found = recognise(cp.Problem(cp.Minimize(cp.sum_squares(v) + cp.norm1(big @ v))))
    wrong = big.copy()
    wrong[place, 2] += 1e-3
    problem = replace(found.problem, design=Rows(wrong))
    with pytest.raises(NotScreenable, match="recognised"):
        check(found._replace(problem=problem))


@pytest.mark.parametrize("several", [False, True])
def test_parts_of_predictions_under_hubers_loss_are_losses_of_their_data(several: bool) -> None:
    f = cp.Variable(len(Y))
    above, below = 2 * cp.huber(cp.pos(Y - f), 0.4), cp.huber(cp.neg(Y - f), 0.7)
    cost = cp.sum(above + below if several else above)
    problem = cp.Problem(cp.Minimize(cost + 0.5 * cp.sum_squares(w)), [f == X @ w])
    check(recognise(problem))
    truth = problem.solve(solver="CLARABEL")
    slopes = problem.constraints[0].dual_value
    assert problem.solve(method="screen") == pytest.approx(truth, rel=1e-7, abs=1e-9)
    assert np.allclose(f.value, X @ w.value, atol=1e-9)
    assert np.allclose(problem.constraints[0].dual_value, slopes, atol=1e-4)


def test_hubers_loss_of_a_part_of_coordinates_is_a_loss_too() -> None:
    problem = cp.Problem(cp.Minimize(cp.sum(cp.huber(cp.pos(1 - w), 0.3)) + cp.norm1(r)))
    truth = problem.solve(solver="CLARABEL")
    assert problem.solve(method="screen") == pytest.approx(truth, rel=1e-7)
