"""The built-in solver: every loss, shape and size of C, to the target it was given."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
import pytest
import scipy.sparse as sp
from strategies import CLASSIFICATION, LOSSES, ONE_ARRAY, Case, build, reference

from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen.certificates.certificate import certify
from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.models.linear import regression, svm
from cvxscreen.solvers import newton
from cvxscreen.solvers.interface import Start
from cvxscreen.solvers.newton import (
    Newton,
    _NewtonIterate,
    default_weight,
    solve_newton_system,
    typical_span,
)


def scale_of(problem: Problem) -> float:
    return abs(problem.primal(np.zeros(problem.d)))


@pytest.mark.parametrize("case", ONE_ARRAY)
def test_every_case_is_solved(case: Case) -> None:
    """To a relative gap of 1e-10 of P(0), certified, and at the exact optimum's value."""
    problem = build(case)
    found = Newton()(problem, target=1e-10 * scale_of(problem))
    assert found.status == "optimal"
    assert found.usable
    ref = reference(case)
    if ref.truth is not None:
        value = float(ref.truth.value)
        assert problem.primal(found.x) - value <= 2e-10 * scale_of(problem)
    assert found.info["steps"] < 200


@pytest.mark.parametrize("loss", LOSSES)
def test_it_stops_where_rounding_hides_every_step(loss: str) -> None:
    """As accurate as it gets, whatever is asked for, without steps that change nothing."""
    problem = build(Case(loss, intercept=True, n=60, d=5))
    found = Newton()(problem, target=0.0)
    assert found.info["gap"] <= 1e-13 * scale_of(problem)
    assert found.info["steps"] <= 120


@pytest.mark.table
@pytest.mark.parametrize("C", [1e-6, 1e-3, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_steps_do_not_grow_with_C(loss: str, intercept: bool, C: float) -> None:
    """Tiny and huge C: at most 120 Newton steps to 1e-9 of P(0), where descent methods stall."""
    problem = build(Case(loss, intercept, n=60, d=5, C=C))
    found = Newton()(problem, target=1e-9 * scale_of(problem))
    assert found.status == "optimal"
    assert found.info["steps"] <= 120


def small(loss: str, X: np.ndarray, intercept: bool) -> Problem:
    n = len(X)
    if loss in CLASSIFICATION:
        if n == 1:
            f = build(Case(loss, intercept)).losses.take(np.array([0]))
            d = X.shape[1]
            return Problem(
                Rows(X, None, np.ones((1, 1)) if intercept else None), f,
                Quadratic(np.r_[np.ones(d), np.zeros(int(intercept))]), np.zeros(d + intercept),
            )
        return svm(X, np.resize([1.0, -1.0], n), loss=loss, intercept=intercept)
    return regression(X, np.linspace(-2.0, 3.0, n), loss=loss, intercept=intercept)


SHAPES = {
    "one row": np.array([[0.7, -1.2, 0.4]]),
    "one column": np.linspace(-1.0, 2.0, 9)[:, None],
    "one number": np.array([[1.5]]),
    "two equal rows": np.array([[1.0, 2.0], [1.0, 2.0]]),
    "zero matrix": np.zeros((4, 2)),
    "zero column": np.c_[np.linspace(-1.0, 1.0, 8), np.zeros(8)],
    "more columns than rows": np.random.default_rng(0).standard_normal((4, 15)),
}


@pytest.mark.table
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_extreme_shapes(loss: str, intercept: bool, shape: str) -> None:
    """n = 1, d = 1, zero rows and columns, duplicates, n < d: solved without a warning."""
    problem = small(loss, SHAPES[shape], intercept)
    found = Newton()(problem, target=1e-10 * max(scale_of(problem), 1e-3))
    assert found.status == "optimal"
    assert np.isfinite(found.x).all()


def test_no_terms_left() -> None:
    """n = 0: the minimiser of the quadratic alone."""
    quadratic = Quadratic([2.0, 4.0])
    problem = Problem(Rows(np.zeros((0, 2))), Losses(np.zeros(0), 0.0, 0.0, 0.0, 0.0), quadratic,
                      np.array([1.0, -2.0]))
    found = Newton()(problem, target=1e-14)
    assert found.status == "optimal"
    np.testing.assert_allclose(found.x, [-0.5, 0.5])
    assert found.theta.shape == (0,)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_most_weights_zero(loss: str, intercept: bool) -> None:
    """Three quarters of the rows without weight: as if they were not there."""
    base = build(Case(loss, intercept, n=60))
    X = base.design.matrix
    y = base.design.scale if loss in CLASSIFICATION else base.losses.b
    weight = np.zeros(60)
    weight[::4] = 1.0
    make = svm if loss in CLASSIFICATION else regression
    full = make(X, y, loss=loss, sample_weight=weight, intercept=intercept)
    few = make(X[::4], y[::4], loss=loss, intercept=intercept)
    target = 1e-11 * scale_of(few)
    a, b = Newton()(full, target=target), Newton()(few, target=target)
    assert a.status == b.status == "optimal"
    assert full.primal(a.x) == pytest.approx(few.primal(b.x), rel=1e-9)


@pytest.mark.parametrize("loss", ["hinge", "absolute"])
def test_several_free_coordinates(loss: str) -> None:
    """Two unpenalised columns beside the penalised ones."""
    base = build(Case(loss, n=50, C=0.5))
    rng = np.random.default_rng(1)
    extra = np.c_[np.ones(50), rng.standard_normal(50)]
    problem = Problem(
        Rows(base.design.matrix, base.design.scale, extra), base.losses,
        Quadratic(np.r_[np.ones(base.d), 0.0, 0.0]), np.zeros(base.d + 2),
    )
    found = Newton()(problem, target=1e-9 * scale_of(problem))
    assert found.status == "optimal"
    assert certify(problem, found.x, found.theta, tol=1e-7).ok


def test_a_dense_quadratic_term_and_a_linear_term() -> None:
    """Neither is special: compare with the optimality condition of a smooth loss."""
    rng = np.random.default_rng(2)
    base = build(Case("huber", n=40, d=5))
    B = rng.standard_normal((3, 5))
    problem = Problem(base.design, base.losses, Quadratic(np.full(5, 0.5), B.T @ B),
                      rng.standard_normal(5))
    found = Newton()(problem, target=1e-13 * scale_of(problem))
    gradient = (
        problem.quadratic.apply(found.x) + problem.linear
        + problem.design.adjoint(problem.losses.slope(problem.design.forward(found.x)))
    )
    assert np.linalg.norm(gradient) <= 1e-5 * np.linalg.norm(problem.linear)


def test_many_sparse_coordinates_use_conjugate_gradients() -> None:
    """d above the limit for factorising, CSR: solved all the same."""
    rng = np.random.default_rng(3)
    n, d = 1500, 1300
    X = sp.random_array((n, d), density=0.01, rng=rng, format="csr")
    y = np.where(X @ rng.standard_normal(d) + 0.05 * rng.standard_normal(n) > 0, 1.0, -1.0)
    problem = svm(X, y, C=10.0, loss="squared_hinge")
    found = Newton()(problem, target=1e-7 * scale_of(problem))
    assert found.status == "optimal"
    assert certify(problem, found.x, found.theta, tol=1e-5).ok


SMOOTH = ["squared_hinge", "huber"]


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
def test_smooth_losses_take_few_steps_beside_an_intercept(loss: str, C: float) -> None:
    """It has the curvature of its terms and next to nothing more, so Newton steps stay Newton's."""
    problem = build(Case(loss, True, n=400, d=8, C=C))
    found = Newton()(problem, target=1e-9 * scale_of(problem))
    assert found.status == "optimal"
    assert found.info["steps"] <= 4
    assert certify(problem, found.x, found.theta, tol=1e-6).ok


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("storage", [np.asarray, sp.csr_matrix])
def test_values_of_C_are_followed(loss: str, intercept: bool, storage: type) -> None:
    """Each is certified, in hardly more steps than the first alone takes; from what is known, too.
    """
    rng, values, tol = np.random.default_rng(5), np.geomspace(0.01, 10.0, 8), 1e-8
    X = rng.standard_normal((600, 70)) * (rng.random((600, 70)) < 0.2)
    y = np.sign(X[:, 0] + 0.5 * rng.standard_normal(600))
    make = svm if loss == "squared_hinge" else regression
    problem = make(storage(X), y, loss=loss, intercept=intercept)
    assert newton.follows(problem)
    found = list(newton.along(problem, values, tol))
    onward = list(newton.along(problem, values[3:], tol, known=found[:3]))
    for C, x, theta in found + onward:
        assert certify(problem.with_(C=C), x, theta, tol=1.1 * tol).ok
    assert [C for C, _, _ in found] == list(values)
    assert [C for C, _, _ in onward] == list(values[3:])


def test_only_smooth_losses_are_followed_to_what_can_be_reached() -> None:
    """No kinks, many rows, no system dearer than passes; no point where the target is out of reach.
    """
    problem = build(Case("squared_hinge", True, n=60))
    assert newton.follows(problem)
    assert list(newton.along(problem, np.array([1.0]), -1.0)) == []
    assert not newton.follows(build(Case("hinge", n=60)))
    for n, d in ((100, 30), (1600, 200)):
        light = sp.random_array((n, d), density=0.01, rng=np.random.default_rng(0), format="csr")
        assert not newton.follows(svm(light, np.resize([1.0, -1.0], n), loss="squared_hinge"))


def test_slopes_are_balanced_by_those_that_can_move() -> None:
    """All stay in their boxes; None where they would not, or none is inside."""
    problem = build(Case("huber", True, n=60))
    near = Newton()(problem, target=1e-9 * scale_of(problem))
    aside = near.x + np.r_[np.zeros(problem.d - 1), 1e-3]
    state = _NewtonIterate(problem, Start(aside, near.theta))
    theta = state.balanced()
    assert theta is not None
    assert abs(state.gradient[-1]) > 1e-6 * np.abs(theta).sum()
    assert abs(problem.free_columns[:, 0] @ theta) <= 1e-12 * np.abs(theta).sum()
    assert (theta >= problem.losses.lo).all()
    assert (theta <= problem.losses.hi).all()
    assert set(np.flatnonzero(theta != state.theta)) <= set(state.inside())
    state.gradient[-1] += 1e9
    assert state.balanced() is None
    state.theta = problem.losses.hi.copy()
    assert state.balanced() is None


def square(loss: str, C: float, *, intercept: bool, n: int = 120) -> Problem:
    """As many rows as columns: a median goes through nearly all of them."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((n, n))
    y = X @ rng.standard_normal(n) / np.sqrt(n) + rng.standard_t(3, n) + 3.0
    return regression(X, y, C=C, loss=loss, intercept=intercept)


@pytest.mark.table
@pytest.mark.parametrize("loss", ["absolute", "quantile", "epsilon"])
@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("intercept", [False, True])
def test_two_sided_losses_on_square_data(loss: str, C: float, intercept: bool) -> None:
    """The central path comes first, and Newton's steps end it: certified, in few steps."""
    problem = square(loss, C, intercept=intercept)
    found = Newton()(problem, target=1e-9 * scale_of(problem))
    assert found.status == "optimal"
    assert found.info["steps"] <= 100
    assert certify(problem, found.x, found.theta, tol=1e-5).gap <= 1e-8 * scale_of(problem)


@pytest.mark.parametrize("loss", ["absolute", "epsilon"])
def test_the_central_path_on_a_problem_with_a_linear_term(loss: str) -> None:
    """A reduced problem has one, on the intercept too; M need not be the identity."""
    base, rng = square(loss, 1.0, intercept=True), np.random.default_rng(8)
    quadratic = Quadratic(np.r_[rng.uniform(0.5, 2.0, base.d - 1), 0.0])
    problem = Problem(base.design, base.losses, quadratic, rng.standard_normal(base.d))
    state = _NewtonIterate(problem, None)
    state.follow_central_path(UNLIMITED)
    lowest = Newton()(problem, target=1e-10 * scale_of(problem))
    value = problem.primal(lowest.x)
    assert problem.primal(state.x) - value <= 1e-4 * value
    assert certify(problem, lowest.x, lowest.theta, tol=1e-6).ok


def test_the_central_path_stops_at_the_limit() -> None:
    """Its steps count as iterations of the call."""
    problem = square("absolute", 1.0, intercept=True)
    found = Newton(limits=Limits(None, 3))(problem, target=1e-12 * scale_of(problem))
    assert found.status == "inaccurate"
    assert found.info["steps"] == 3
    assert np.isfinite(found.x).all()


def test_a_warm_start_saves_steps() -> None:
    """From the solution with the weight reached there, hardly a step is needed."""
    problem = build(Case("hinge", n=80, C=1.0))
    target = 1e-9 * scale_of(problem)
    cold = Newton()(problem, target=target)
    warm = Newton()(problem, Start(cold.x, cold.theta, cold.info["weight"]), target)
    assert warm.status == "optimal"
    assert warm.info["steps"] <= cold.info["steps"] // 2


@pytest.mark.parametrize("intercept", [False, True])
def test_a_solver_that_stopped_goes_on_as_if_it_had_not(intercept: bool) -> None:
    """Twice from the same state: the same point after as many steps as without the stop."""
    problem = build(Case("hinge", intercept, n=80, C=1.0))
    target = 1e-9 * scale_of(problem)
    whole = Newton()(problem, target=target)
    first = Newton()(problem, target=1e-2 * scale_of(problem))
    assert 0 < first.info["steps"] < whole.info["steps"]
    for _ in range(2):
        onward = Newton()(problem, Start(first.x, first.theta, state=first.state), target)
        np.testing.assert_array_equal(onward.x, whole.x)
        np.testing.assert_array_equal(onward.theta, whole.theta)
        assert first.info["steps"] + onward.info["steps"] == whole.info["steps"]
        assert onward.info["weight"] == whole.info["weight"]


def test_a_solver_goes_on_only_where_it_stopped() -> None:
    """From another point, or on another problem of the same shape, the state counts for nothing."""
    problem = build(Case("hinge", n=80, C=1.0))
    target = 1e-6 * scale_of(problem)
    left = Newton()(problem, target=1e-2 * scale_of(problem))
    for here, x in ((problem, left.x + 0.1), (problem.with_(C=3.0), left.x)):
        plain = Newton()(here, Start(x, left.theta), target)
        found = Newton()(here, Start(x, left.theta, state=left.state), target)
        np.testing.assert_array_equal(found.x, plain.x)
        assert found.info == plain.info
        assert certify(here, found.x, found.theta, tol=1e-5).ok


def test_a_far_start_is_survived() -> None:
    """A start at 1e8 with theta outside its box."""
    problem = build(Case("absolute", True, n=40))
    start = Start(np.full(problem.d, 1e8), np.full(problem.n, -1e9), 1e-12)
    found = Newton()(problem, start, 1e-8 * scale_of(problem))
    assert found.status == "optimal"


@pytest.mark.parametrize(("pull", "status"), [(5.0, "unbounded"), (0.5, "optimal")])
@pytest.mark.parametrize("one_sided", [False, True])
def test_what_falls_without_end_is_said(
    pull: float, status: str, one_sided: bool, rng: np.random.Generator
) -> None:
    """Twelve of fifty hinges hold, by 1.2 in all, what the linear term pulls along (-1, 2).

    The coordinates by themselves are held by terms of both signs; what has no upper end or no lower
    one, and does not see the direction, changes nothing.
    """
    E = np.array([[2.0, 1.0]]) * rng.normal(size=(38, 1))
    E = np.vstack([E, np.array([[1.0, 0.0]]) + 0.1 * rng.normal(size=(12, 1)) * [2.0, 1.0]])
    hi = np.zeros(50)
    hi[:3] = np.inf if one_sided else 0.0
    losses = Losses(np.ones(50), 0.0, np.where(np.isinf(hi), 1.0, 0.0), -0.1, hi)
    problem = Problem(
        Rows(np.column_stack([rng.normal(size=50), E])), losses, Quadratic([1.0, 0.0, 0.0]),
        pull * np.array([0.0, 0.2, -0.4]),
    )
    found = Newton()(problem, None, 1e-9)
    assert found.status == status
    assert found.info["steps"] <= 60
    assert found.usable == (status == "optimal")


def test_running_out_of_steps_is_said() -> None:
    """``"inaccurate"``, with the best point so far and its gap."""
    problem = build(Case("hinge", n=60, C=10.0))
    found = Newton(max_steps=2)(problem, target=1e-12 * scale_of(problem))
    assert found.status == "inaccurate"
    assert found.usable
    assert np.isfinite(found.info["gap"])
    assert found.info["steps"] == 2


def test_an_impossible_target_ends() -> None:
    """Target 0 cannot be reached in floating point: the solver stops by itself."""
    for loss in LOSSES:
        found = Newton()(build(Case(loss, True, n=40)), target=0.0)
        assert found.info["steps"] < 500
        assert np.isfinite(found.x).all()


@pytest.mark.parametrize("loss", ["absolute", "quantile", "epsilon", "smoothed_epsilon", "huber"])
def test_a_perfect_fit(loss: str) -> None:
    """A constant response and an intercept: the optimal value is 0, reached without a warning."""
    X = np.random.default_rng(0).standard_normal((40, 3))
    problem = regression(X, np.full(40, 2.5), loss=loss, intercept=True)
    found = Newton()(problem, target=0.0)
    assert problem.primal(found.x) <= 1e-12 * scale_of(problem)
    assert np.isfinite(found.theta).all()
    proof = certify(problem, found.x, found.theta)
    assert proof.gap <= 1e-9 * scale_of(problem)


def test_the_weight_does_not_vanish() -> None:
    """Target 0 where the gap can fall without end: the proximal weight stops before 1e-200."""
    problem = Problem(
        Rows([[0.0]], None, [[1.0]]), Losses([0.0], 0.0, 0.0, -0.02, 0.02), Quadratic([1.0, 0.0]),
        np.array([-0.25, -0.0078125]),
    )
    found = Newton()(problem, target=0.0)
    np.testing.assert_allclose(found.x, [0.25, 0.0], atol=1e-12)
    assert found.info["weight"] > 1e-200


def test_side_constraints_are_refused() -> None:
    """The message says who takes them."""
    base = build(Case("hinge"))
    side = SideConstraints(np.eye(base.d), np.zeros(base.d), [("nonneg", base.d)])
    problem = Problem(base.design, base.losses, base.quadratic, base.linear, side=side)
    with pytest.raises(InvalidInput, match="side constraints"):
        Newton()(problem)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_first_weight_is_positive(loss: str) -> None:
    """Whatever the share of rows without weight: zero would divide."""
    for off in (0, 10, 20, 24):
        f = build(Case(loss)).losses
        keep = np.arange(len(f)) >= off
        losses = Losses(*(np.where(keep, getattr(f, k), 0.0) for k in ("b", "e", "q", "lo", "hi")))
        weight = default_weight(losses, typical_span(losses))
        assert np.isfinite(weight)
        assert weight > 0


def test_the_start_is_not_changed() -> None:
    """Arrays of a start are copied."""
    problem = build(Case("hinge"))
    x, theta = np.ones(problem.d), np.full(problem.n, -5.0)
    Newton()(problem, Start(x, theta), 1e-6)
    assert (x == 1.0).all()
    assert (theta == -5.0).all()


def test_a_carried_matrix_is_the_one_made_afresh(monkeypatch) -> None:
    """Rows come and go, and the weights of all others grow a thousandfold; few rows are read."""
    rng = np.random.default_rng(8)
    n, d = 600, 70
    problem = svm(rng.standard_normal((n, d)), np.sign(rng.standard_normal(n)), intercept=True)
    carried, inside = newton.CarriedGram(problem), rng.random(n) < 0.4
    asked, form = [], Rows.weighted_gram

    def counted(design, index, weights):
        asked.append(len(index))
        return form(design, index, weights)

    for step in range(newton.CARRIED + 8):
        weight = 10.0 ** (step % 4)
        inside[rng.integers(0, n, 6)] ^= True
        rows = np.flatnonzero(inside)
        weights = np.full(len(rows), weight)
        if step % 5 == 0:  # some of them change by another factor
            weights[:3] *= 2.0
        monkeypatch.setattr(Rows, "weighted_gram", counted)
        found = carried.at(rows, weights)
        monkeypatch.undo()
        exact = problem.design.weighted_gram(rows, weights)
        np.testing.assert_allclose(found, exact, rtol=0.0, atol=1e-12 * np.abs(exact).max())
        found[:] = np.nan  # the caller's own
    assert sum(size > n // 8 for size in asked) == 2  # the first, and once it is too old
    assert sum(asked) < 0.1 * n * (newton.CARRIED + 8)


def test_a_matrix_is_made_afresh_where_most_rows_are_others() -> None:
    """No carried sum would save anything."""
    rng = np.random.default_rng(9)
    problem = svm(rng.standard_normal((300, 65)), np.sign(rng.standard_normal(300)))
    carried = newton.CarriedGram(problem)
    for rows in (np.arange(0, 140), np.arange(100, 260), np.arange(270, 300)):
        found = carried.at(rows, np.full(len(rows), 3.0))
        assert (found == problem.design.weighted_gram(rows, np.full(len(rows), 3.0))).all()
        assert carried.age == 0


def test_products_of_all_rows_are_not_formed_for_a_system_of_more_rows_than_columns(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Squares all along: every row has curvature, and the system of the coordinates is smaller."""
    X = rng.standard_normal((70, 40))
    problem = regression(X, rng.standard_normal(70), C=1.0, loss="huber", delta=1e6)
    assert newton.products_pay(problem)
    monkeypatch.setattr(_NewtonIterate, "products", None)
    target = 1e-9 * scale_of(problem)
    assert Newton()(problem, target=target).status == "optimal"
    monkeypatch.setattr(newton, "DENSE_LIMIT", 10)  # nor where that is left to conjugate gradients
    assert Newton()(problem, target=target).status == "optimal"


# The Newton system by its three ways: all solve the same equations.

def problem_of(
    n: int, d: int, *, sparse: bool, free: bool = False, single: bool = False,
    matrix: bool = False, seed: int = 0,
) -> Problem:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < (0.2 if sparse else 1.0))
    X = X.astype(np.float32) if single else X
    extra = np.ones((n, 1)) if free else None
    diagonal = np.r_[rng.uniform(0.5, 2.0, d), np.zeros(int(free))]
    B = rng.standard_normal((2, d + int(free)))
    return Problem(
        Rows(sp.csr_matrix(X) if sparse else X, rng.uniform(-2, 2, n), extra),
        Losses(np.zeros(n), 0.0, 0.0, -1.0, 1.0),
        Quadratic(diagonal, B.T @ B if matrix else None),
        np.zeros(len(diagonal)),
    )


def residual(problem: Problem, rows: np.ndarray, bend: np.ndarray, damping: np.ndarray,
             right: np.ndarray, step: np.ndarray) -> float:
    """Relative difference from numpy's solution of the dense system."""
    A = problem.design.dense()[rows]
    H = problem.quadratic.dense() + np.diag(damping) + A.T @ (bend[:, None] * A)
    expected = np.linalg.solve(H, right)
    return float(np.linalg.norm(step - expected) / np.linalg.norm(expected))


def system(problem: Problem, k: int, seed: int = 1) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.choice(problem.n, k, replace=False))
    damping = np.where(problem.quadratic.free, 0.1, 0.0)
    return rows, rng.uniform(0.1, 10.0, k), damping, rng.standard_normal(problem.d)


BRANCHES: dict[str, Callable[[bool, bool, bool], tuple[Problem, int, str]]] = {
    "few coordinates": lambda s, f, h: (problem_of(60, 6, sparse=s, free=f, single=h), 40, ""),
    "few rows": lambda s, f, h: (problem_of(60, 30, sparse=s, free=f, single=h), 9, "_woodbury"),
    "dense quadratic": lambda s, f, h: (
        problem_of(60, 30, sparse=s, free=f, single=h, matrix=True), 9, ""
    ),
    "no rows": lambda s, f, h: (problem_of(60, 6, sparse=s, free=f, single=h), 0, ""),
}


@pytest.mark.parametrize("branch", BRANCHES)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("single", [False, True])
def test_direct_ways_agree_with_numpy(
    branch: str, sparse: bool, free: bool, single: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cholesky by coordinates or by rows, to rounding; the expected way is the one taken."""
    problem, k, expected = BRANCHES[branch](sparse, free, single)
    rows, bend, damping, right = system(problem, k)
    taken: list[str] = []
    for name in ("_woodbury", "_conjugate_gradients"):
        original = getattr(newton, name)
        monkeypatch.setattr(
            newton, name, lambda *a, _n=name, _f=original: (taken.append(_n), _f(*a))[1]
        )
    step = solve_newton_system(problem, rows, bend, damping, right)
    assert taken == [expected] * bool(expected)
    # The systems here have condition numbers below 1e4.
    assert residual(problem, rows, bend, damping, right, step) <= 1e-10


@pytest.mark.parametrize("shape", [(60, 30, 9), (60, 6, 5), (60, 6, 40)])
@pytest.mark.parametrize("damping", [1e-2, 1e-8, 1e-12, 1e-14])
def test_little_damping_on_a_free_coordinate(shape: tuple[int, int, int], damping: float) -> None:
    """The rows curve it, so the system is well conditioned however small its own diagonal is."""
    n, d, k = shape
    problem = problem_of(n, d, sparse=False, free=True)
    rows, bend, extra, right = system(problem, k)
    extra = np.where(problem.quadratic.free, damping, 0.0)
    step = solve_newton_system(problem, rows, bend, extra, right)
    # A direction for a line search: six digits are plenty.
    assert residual(problem, rows, bend, extra, right, step) <= 1e-6


@pytest.mark.parametrize("k", [3, 5, 40])
@pytest.mark.parametrize("bend", [1.0, 1e6, 1e12])
def test_badly_scaled_columns_do_not_break_the_factorisation(k: int, bend: float) -> None:
    """Columns of 1e-6 to 1e6, a free coordinate, huge second derivatives: still a descent step."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 5)) * 10.0 ** np.linspace(-6, 6, 5)
    problem = Problem(
        Rows(X, None, np.ones((60, 1))), Losses(np.zeros(60), 0.0, 0.0, -1.0, 1.0),
        Quadratic(np.r_[np.ones(5), 0.0]), np.zeros(6),
    )
    rows, right = np.arange(k), rng.standard_normal(6) * np.r_[10.0 ** np.linspace(-6, 6, 5), 1.0]
    damping = np.r_[np.zeros(5), 1e-12]
    step = solve_newton_system(problem, rows, np.full(k, bend), damping, right)
    assert np.isfinite(step).all()
    assert step @ right > 0


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("free", [False, True])
def test_conjugate_gradients_agree_with_numpy(
    sparse: bool, free: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the limit for factorising, the system is solved to the forcing tolerance of 1e-3."""
    monkeypatch.setattr(newton, "DENSE_LIMIT", 10)
    problem = problem_of(80, 30, sparse=sparse, free=free)
    rows, bend, damping, right = system(problem, 40)
    step = solve_newton_system(problem, rows, bend, damping, right)
    A = problem.design.dense()[rows]
    H = problem.quadratic.dense() + np.diag(damping) + A.T @ (bend[:, None] * A)
    assert np.linalg.norm(H @ step - right) <= 2e-3 * np.linalg.norm(right)
    assert step @ right > 0


def test_conjugate_gradients_never_form_the_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    """With many coordinates neither Gram matrix is asked for."""
    problem = problem_of(2000, 1300, sparse=True)
    monkeypatch.setattr(
        Rows, "weighted_gram", lambda *_: pytest.fail("the d x d matrix was formed")
    )
    monkeypatch.setattr(newton, "_woodbury", lambda *_: pytest.fail("the k x k matrix was formed"))
    rows, bend, damping, right = system(problem, 1500)
    step = solve_newton_system(problem, rows, 0.01 * bend, damping, right)
    assert np.isfinite(step).all()


def test_the_inputs_are_not_changed() -> None:
    """Factorisations may overwrite their own copies only."""
    for matrix in (False, True):
        problem = problem_of(40, 8, sparse=False, matrix=matrix)
        rows, bend, damping, right = system(problem, 20)
        copies = [array.copy() for array in (rows, bend, damping, right)]
        before = problem.quadratic.dense().copy()
        solve_newton_system(problem, rows, bend, damping, right)
        for old, new in zip(copies, (rows, bend, damping, right), strict=True):
            np.testing.assert_array_equal(old, new)
        np.testing.assert_array_equal(before, problem.quadratic.dense())


@pytest.mark.parametrize("bend", [1.0, 1e8, 1e16])
@pytest.mark.parametrize("size", [1.0, 1e4])
def test_few_rows_that_curve_a_free_coordinate_ever_more(bend: float, size: float) -> None:
    """Wide data, an intercept, huge second derivatives: against the system in fifty digits.

    As a difference of two numbers of the size of W the intercept's curvature would be noise, and
    no Cholesky factor of it exist.
    """
    rng = np.random.default_rng(5)
    problem = Problem(
        Rows(size * rng.uniform(0.5, 1.5, (6, 30)), None, np.ones((6, 1))),
        Losses(np.zeros(6), 0.0, 0.0, -1.0, 1.0), Quadratic(np.r_[np.ones(30), 0.0]), np.zeros(31),
    )
    right, damping = rng.standard_normal(31), np.r_[np.zeros(30), 1e-12 * bend]
    step = solve_newton_system(problem, np.arange(6), np.full(6, bend), damping, right)
    with mpmath.workdps(50):
        A = mpmath.matrix(problem.design.dense().tolist())
        H = bend * A.T * A + mpmath.diag((np.r_[np.ones(30), 0.0] + damping).tolist())
        expected = np.array([float(x) for x in mpmath.lu_solve(H, mpmath.matrix(right.tolist()))])
    assert np.linalg.norm(step - expected) <= 1e-6 * np.linalg.norm(expected)


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("k", [3, 25, 40])
def test_products_of_all_rows_solve_the_same_system(free: bool, k: int) -> None:
    """The part of them that a step needs stands for the rows; with more rows than columns, none."""
    problem = problem_of(60, 40, sparse=False, free=free)
    rows, bend, damping, right = system(problem, k)
    kept = ~problem.quadratic.free
    A = problem.design.dense()[:, kept]
    products = (A / problem.quadratic.diagonal[kept]) @ A.T
    before = products.copy()
    step = solve_newton_system(problem, rows, bend, damping, right, products)
    assert residual(problem, rows, bend, damping, right, step) <= 1e-10
    np.testing.assert_array_equal(products, before)
    if 2 * k > problem.d:  # where they are used at all, wrong ones are noticed
        other = solve_newton_system(problem, rows, bend, damping, right, 2.0 * products)
        assert residual(problem, rows, bend, damping, right, other) > 1e-3
