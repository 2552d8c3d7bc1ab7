"""`leave_one_out` of CVXPY problems: what refits without each row say, and refusals."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from rational import Fraction

import cvxscreen
from cvxscreen import InvalidInput, NotScreenable, leave_one_out
from cvxscreen.core.losses import Losses
from cvxscreen.cvxpy_plugin.rows_left_out import _margin_of_zero
from cvxscreen.data_changes.leave_one_out import _counted

N, D = 30, 3
RNG = np.random.default_rng(5)
X = RNG.standard_normal((N, D))
Y = np.where(X[:, 0] + 0.7 * RNG.standard_normal(N) > 0, 1.0, -1.0)
T = X @ np.array([1.0, -2.0, 0.5]) + RNG.standard_normal(N)
WEIGHT = RNG.uniform(0.2, 2.0, N)
ALL = np.arange(N)


def hinge(keep):
    w, x, y = cp.Variable(D), X[keep], Y[keep]
    margins = cp.multiply(y, x @ w)
    loss = cp.sum(cp.multiply(WEIGHT[keep], cp.pos(1 - margins)))
    return cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + 0.3 * loss)), lambda i: Y[i] * X[i] @ w


def with_offset(keep):
    """The target function has a constant part, so the recognised arguments are not the margins."""
    w, b, x, y = cp.Variable(D), cp.Variable(), X[keep], Y[keep]
    loss = cp.sum(cp.maximum(0, 2 - 2 * cp.multiply(y, x @ w + b + 0.7)))
    return (
        cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + 0.2 * loss)),
        lambda i: 2 * Y[i] * (X[i] @ w + b + 0.7) - 1,
    )


def squared(keep):
    w, b, x, y = cp.Variable(D), cp.Variable(), X[keep], Y[keep]
    loss = cp.sum_squares(cp.pos(1 - cp.multiply(y, x @ w + b)))
    return (
        cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + loss)), lambda i: Y[i] * (X[i] @ w + b)
    )


def slacks(keep):
    w, b, x, y = cp.Variable(D), cp.Variable(), X[keep], Y[keep]
    xi = cp.Variable(len(keep))
    constraints = [xi >= 0, cp.multiply(y, x @ w + b) >= 1 - xi]
    objective = 0.5 * cp.sum_squares(w) + 0.4 * WEIGHT[keep] @ xi
    return cp.Problem(cp.Minimize(objective), constraints), lambda i: Y[i] * (X[i] @ w + b)


def slacks_from_the_end(keep):
    """The terms, in the order of the slacks, are not in the order of the constraint's rows."""
    w, x, y = cp.Variable(D), X[keep], Y[keep]
    xi = cp.Variable(len(keep), nonneg=True)
    constraints = [cp.multiply(y, x @ w) >= 1 - xi[::-1]]
    objective = 0.5 * cp.sum_squares(w) + 0.5 * cp.sum(xi)
    return cp.Problem(cp.Minimize(objective), constraints), lambda i: Y[i] * X[i] @ w


def squared_slacks(keep):
    w, x, y = cp.Variable(D), X[keep], Y[keep]
    xi = cp.Variable(len(keep), nonneg=True)
    objective = 0.5 * cp.sum_squares(w) + cp.sum_squares(xi)
    constraints = [1 - xi <= cp.multiply(y, x @ w)]
    return cp.Problem(cp.Minimize(objective), constraints), lambda i: Y[i] * X[i] @ w


def loop(keep):
    w = cp.Variable(D)
    loss = sum(WEIGHT[i] * cp.pos(1 - Y[i] * (X[i] @ w)) for i in keep)
    return cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + loss)), lambda i: Y[i] * X[i] @ w


def loop_of_constraints(keep):
    w, xi = cp.Variable(D), cp.Variable(len(keep), nonneg=True)
    constraints = [Y[i] * (X[i] @ w) >= 1 - xi[k] for k, i in enumerate(keep)]
    objective = 0.5 * cp.sum_squares(w) + 0.5 * cp.sum(xi)
    return cp.Problem(cp.Minimize(objective), constraints), lambda i: Y[i] * X[i] @ w


def absolute(keep):
    w = cp.Variable(D)
    loss = cp.norm1(X[keep] @ w - T[keep])
    return cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + loss)), lambda i: X[i] @ w - T[i]


def quantile(keep):
    w, b = cp.Variable(D), cp.Variable()
    e = T[keep] - X[keep] @ w - b
    loss = cp.sum(cp.maximum(0.8 * e, -0.2 * e))
    return cp.Problem(cp.Minimize(cp.sum_squares(w) + loss)), lambda i: T[i] - X[i] @ w - b


def both_sides(keep):
    w = cp.Variable(D)
    e = X[keep] @ w - T[keep]
    loss = 0.9 * cp.sum(cp.pos(e)) + 0.3 * cp.sum(cp.neg(e))
    return cp.Problem(cp.Minimize(cp.sum_squares(w) + loss)), lambda i: X[i] @ w - T[i]


def dead_zone(keep):
    w = cp.Variable(D)
    loss = cp.sum(cp.pos(cp.abs(X[keep] @ w - T[keep]) - 0.2))
    return cp.Problem(cp.Minimize(cp.sum_squares(w) + loss)), lambda i: X[i] @ w - T[i]


def huber(keep):
    w = cp.Variable(D)
    loss = cp.sum(cp.huber(T[keep] - X[keep] @ w, 0.5))
    return cp.Problem(cp.Minimize(cp.sum_squares(w) + loss)), lambda i: T[i] - X[i] @ w


def elastic_net(keep):
    w = cp.Variable(D)
    loss = cp.sum(cp.pos(1 - cp.multiply(Y[keep], X[keep] @ w)))
    objective = cp.sum_squares(w) + 0.5 * cp.norm1(w) + loss
    return cp.Problem(cp.Minimize(objective)), lambda i: Y[i] * X[i] @ w


def constrained(keep):
    w = cp.Variable(D)
    loss = cp.sum(cp.abs(X[keep] @ w - T[keep]))
    problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + loss), [cp.sum(w) == 0.3])
    return problem, lambda i: X[i] @ w - T[i]


def hardly_squared(keep):
    """Two of three coordinates are in no square: no ball bounds a prediction."""
    w = cp.Variable(D)
    loss = cp.sum(cp.abs(X[keep] @ w - T[keep]))
    return cp.Problem(cp.Minimize(cp.sum_squares(w[:1]) + loss)), lambda i: X[i] @ w - T[i]


def maximised(keep):
    w = cp.Variable(D)
    loss = cp.sum(cp.abs(X[keep] @ w - T[keep]))
    return cp.Problem(cp.Maximize(-cp.sum_squares(w) - loss)), lambda i: X[i] @ w - T[i]


FORMS = [
    hinge, with_offset, squared, slacks, slacks_from_the_end, squared_slacks, loop,
    loop_of_constraints, absolute, quantile, both_sides, dead_zone, huber, elastic_net,
    constrained, maximised,
]
LOOPS = {loop, loop_of_constraints}
"""Slow in CVXPY itself: every third row is refitted."""
RESIDUALS = {absolute, quantile, both_sides, dead_zone, huber, constrained, maximised}

CLOSE = 1e-5
"""What Clarabel's answers, to a gap of about 1e-10, leave uncertain of a prediction."""


def refits(form, rows):
    """The number of each row at the optimum of the problem without it, by plain CVXPY."""
    out = []
    for i in rows:
        without, number = form(np.delete(ALL, i))
        without.solve(
            solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11
        )
        expression = number(i)
        out.append(float(np.asarray(expression.value).item()))
    return np.array(out)


@pytest.mark.table
@pytest.mark.parametrize("form", FORMS)
def test_every_row_is_what_a_refit_of_the_problem_without_it_says(form) -> None:
    problem, _ = form(ALL)
    problem.solve(method="screen")
    quick = leave_one_out(problem, refit=False)
    found = leave_one_out(problem, tol=1e-9, accuracy=1e-3)
    rows = ALL[::3] if form in LOOPS else ALL
    truth = refits(form, rows)
    assert found.classification == (form not in RESIDUALS)
    assert found.decided.all()
    for record in (quick, found):
        assert (record.low[rows] <= truth + CLOSE).all()
        assert (record.high[rows] >= truth - CLOSE).all()
    value = found.value[rows]
    known = np.isfinite(value)
    assert known.any()
    np.testing.assert_allclose(value[known], truth[known], atol=2e-3)
    if found.classification and form not in LOOPS:
        assert found.errors[0] == found.errors[1] == (truth <= 0).mean()


def test_the_order_of_a_long_loop() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((400, D)), np.where(rng.random(400) > 0.5, 1.0, -1.0)
    c = rng.uniform(0.1, 1.0, 400)
    w, xi = cp.Variable(D), cp.Variable(400, nonneg=True)
    regulariser = 0.5 * cp.sum_squares(w)
    whole = c @ cp.pos(1 - cp.multiply(y, x @ w))
    loop = sum(c[i] * cp.pos(1 - y[i] * (x[i] @ w)) for i in range(400))
    constraints = [y[i] * (x[i] @ w) + xi[i] >= 1 for i in range(400)]
    records = []
    for cost, held in ((whole, []), (loop, []), (c @ xi, constraints)):
        problem = cp.Problem(cp.Minimize(regulariser + cost), held)
        problem.solve(method="screen")
        records.append(leave_one_out(problem, refit=False))
    for record in records[1:]:
        np.testing.assert_allclose(record.low, records[0].low, atol=1e-3)
        np.testing.assert_allclose(record.high, records[0].high, atol=1e-3)


@pytest.mark.parametrize("kind", [hinge, slacks_from_the_end])
def test_groups_of_rows_leave_together(kind) -> None:
    """In the order of the rows, whatever that of the terms is."""
    labels = ALL % 7
    problem, _ = kind(ALL)
    problem.solve(method="screen")
    found = leave_one_out(problem, tol=1e-9, groups=labels)
    for label in (0, 5):
        rest, margin = kind(np.flatnonzero(labels != label))
        rest.solve(method="screen")
        for i in np.flatnonzero(labels == label):
            true = float(margin(i).value)
            assert found.low[i] - 1e-3 <= true <= found.high[i] + 1e-3


def test_no_interval_is_claimed_where_nothing_bounds_a_prediction() -> None:
    problem, _ = hardly_squared(ALL)
    problem.solve(method="screen")
    found = leave_one_out(problem, tol=1e-9)
    rows = ALL[:4]
    truth = refits(hardly_squared, rows)
    assert ((found.low[rows] <= truth) & (truth <= found.high[rows])).all()
    assert (found.high - found.low)[~found.decided].min() > 1e-2
    np.testing.assert_allclose(found.value[rows], truth, atol=1e-4)


def test_after_another_solver_and_nothing_of_the_problem_changes() -> None:
    problem, _ = hinge(ALL)
    problem.solve(solver="CLARABEL")
    before = [variable.value.copy() for variable in problem.variables()], problem.value
    found = leave_one_out(problem)
    for variable, value in zip(problem.variables(), before[0], strict=True):
        np.testing.assert_array_equal(variable.value, value)
    assert problem.value == before[1]
    again, _ = hinge(ALL)
    again.solve(method="screen")
    other = leave_one_out(again)
    both = found.refitted & other.refitted
    np.testing.assert_allclose(found.value[both], other.value[both], atol=2e-3)


def test_the_present_value_of_a_parameter_counts() -> None:
    C, w = cp.Parameter(nonneg=True, value=5.0), cp.Variable(D)
    loss = cp.sum(cp.abs(X @ w - T))
    problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + C * loss))
    problem.solve(method="screen")
    C.value = 1.0
    found = leave_one_out(problem, tol=1e-9, accuracy=1e-3)
    np.testing.assert_allclose(found.value, refits(absolute, ALL), atol=2e-3)


def test_the_problem_may_be_named_and_a_solution_too() -> None:
    problem, _ = absolute(ALL)
    problem.solve(method="screen")
    assert not leave_one_out(solution=problem, refit=False).classification
    solution = cvxscreen.solve(cvxscreen.svm(X, Y, C=0.5))
    assert leave_one_out(solution=solution, refit=False).classification
    assert cvxscreen.certify(problem=problem, tol=1e-4).ok


def test_the_origin_of_margins_is_rounded_outward() -> None:
    rng = np.random.default_rng(1)
    b, e = 1e3 * rng.standard_normal(200), rng.random(200)
    losses = Losses(b, e, 0.0 * b, -np.ones(200), 0.0 * b)
    origin = _margin_of_zero(losses)
    t = b + 1e-3 * rng.standard_normal(200)
    low, high, value = _counted(origin, np.arange(200), t, t, t)
    exact = [Fraction(t[i]) - (Fraction(b[i]) - Fraction(e[i]) - 1) for i in range(200)]
    for i, margin in enumerate(exact):
        assert Fraction(low[i]) <= margin <= Fraction(high[i])
    assert ((low <= value) & (value <= high)).all()
    assert (high - low <= 1e-11).all()


def refused(objective, constraints=(), text="."):
    problem = cp.Problem(cp.Minimize(objective), list(constraints))
    problem.solve(solver="CLARABEL")
    with pytest.raises(NotScreenable, match=text):
        leave_one_out(problem)


def test_one_slack_for_both_sides_is_the_loss_it_stands_for() -> None:
    w, xi = cp.Variable(D), cp.Variable(N, nonneg=True)
    e, found = X @ w - T, []
    slack = cp.sum(xi), [e <= 0.1 + xi, e >= -0.1 - xi]
    for loss, constraints in (slack, (cp.sum(cp.pos(cp.abs(e) - 0.1)), [])):
        problem = cp.Problem(cp.Minimize(cp.sum_squares(w) + loss), constraints)
        problem.solve(method="screen")
        found.append(leave_one_out(problem, tol=1e-9, accuracy=1e-4).value)
    np.testing.assert_allclose(found[0], found[1], atol=1e-3)


def test_where_it_cannot_be_said_which_row_a_term_is() -> None:
    w, v, xi = cp.Variable(D), cp.Variable(D), cp.Variable(N, nonneg=True)
    regulariser = cp.sum_squares(w)
    margins, e = cp.multiply(Y, X @ w), X @ w - T
    hinges = cp.pos(1 - margins)
    first, second = cp.pos(1 - margins[:9]), cp.pos(1 - margins[9:])
    refused(regulariser + cp.sum(first) + 2 * cp.sum(second), text="come from 2 losses")
    refused(regulariser + cp.sum(hinges[:9]) + 2 * cp.sum(hinges[9:]), text="one slack each")
    refused(regulariser + cp.sum(hinges) + cp.sum(cp.abs(e)), text="2 losses")
    refused(
        regulariser + cp.sum_squares(v) + cp.sum(cp.abs(e)) + cp.sum(cp.abs(X @ v - Y)),
        text="come from 2 losses",
    )
    refused(regulariser + np.r_[0.0, WEIGHT[1:]] @ hinges, text="entry 0 of the loss has no weight")
    refused(
        regulariser + 0.5 * cp.sum(cp.abs(e)) + 0.3 * np.ones(N) @ e, text="linear part"
    )
    refused(
        regulariser + cp.sum(xi), [margins[:9] >= 1 - xi[:9], margins[9:] >= 1 - xi[9:]],
        "2 losses or constraints",
    )
    W = cp.Variable((D, 2))
    both = X @ W - np.column_stack([T, Y])
    refused(cp.sum_squares(W) + cp.sum(cp.abs(both)), text="several terms")


def test_refusals_of_whole_problems() -> None:
    w = cp.Variable(D)
    unsolved, _ = hinge(ALL)
    with pytest.raises(InvalidInput, match="solve it first"):
        leave_one_out(unsolved)
    refused(cp.sum_squares(w) + cp.sum(cp.logistic(X @ w)), text="exponential")
    composite = cp.sum_squares(w) + cp.sum(cp.pos(1 - X @ w)) + 3 * cp.norm(X @ w - T, 2)
    refused(composite, text="beside the losses")
    refused(cp.sum(cp.pos(1 - X @ w)), text="no squares of the coordinates.*sum_squares")
    refused(
        cp.sum_squares(w) + cp.tv(w) + cp.sum(cp.pos(1 - X @ w)), text="kinks of the regulariser"
    )
    refused(cp.sum_squares(X @ w - T), text="no squares of the coordinates.*sum_squares")
    refused(cp.sum_squares(X[:5] @ w - 1), text="not recognised.*needs one loss over the rows")
    infeasible = cp.Problem(
        cp.Minimize(cp.sum_squares(w) + cp.sum(cp.pos(1 - X @ w))), [w >= 1, w <= 0]
    )
    infeasible.solve(solver="CLARABEL")
    with pytest.raises(InvalidInput, match="solve it first"):
        leave_one_out(infeasible)
    solved, _ = hinge(ALL)
    solved.solve(method="screen")
    for wrong in ({"tol": -1.0}, {"n_jobs": 0}, {"mode": "quick"}):
        with pytest.raises(cvxscreen.CvxscreenError, match=next(iter(wrong))):
            leave_one_out(solved, **wrong)
