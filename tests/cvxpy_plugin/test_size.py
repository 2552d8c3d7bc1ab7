"""Where ``method="screen"`` steps aside: decided from sizes alone, before any work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from cvxpy.transforms.partial_optimize import partial_optimize
from sized_problems import (
    bounded,
    fit,
    lasso,
    limited,
    linear_program,
    loop,
    of_nested_slacks,
    sparse_svm,
    without_squares,
    words,
)

import cvxscreen
from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin import composite as composite_problem, plugin, request, size
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise
from cvxscreen.cvxpy_plugin.size import VISITS, measure
from cvxscreen.solvers import registry

cvxpy_plugin.register()


@pytest.fixture(autouse=True)
def deciding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "STEP_ASIDE", True)


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(problem: Any) -> Any:
        raise AssertionError("the problem was read")

    monkeypatch.setattr(plugin, "recognise", never)
    monkeypatch.setattr(composite_problem, "recognise_refused", never)


def slacks(n: int, d: int) -> Any:
    rng = np.random.default_rng(0)
    w, b, xi = cp.Variable(d), cp.Variable(), cp.Variable(n)
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    rows = [cp.multiply(y, rng.standard_normal((n, d)) @ w + b) >= 1 - xi, xi >= 0]
    return cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + cp.sum(xi)), rows)


def metric(n: int, d: int) -> Any:
    H = np.random.default_rng(0).standard_normal((n, d * d))
    M = cp.Variable((d, d), PSD=True)
    loss = cp.sum(cp.pos(1 - H @ cp.vec(M, order="F")))
    return cp.Problem(cp.Minimize(loss + cp.sum_squares(M)))


def many_rows(n: int, d: int) -> Any:
    rng = np.random.default_rng(0)
    x = cp.Variable(d)
    rows = [rng.standard_normal((n, d)) @ x <= 1.0 + rng.random(n)]
    return cp.Problem(cp.Minimize(cp.sum_squares(x - 1.0)), rows)


def spline(n: int, d: int) -> Any:
    at, c = np.linspace(0, 1, n), cp.Variable(d)
    B = sp.csr_array(np.maximum(0.0, 1.0 - np.abs(at[:, None] * (d - 1) - np.arange(d))))
    return cp.Problem(cp.Minimize(cp.norm1(B @ c - at)), [cp.diff(c, 2) <= 0])


def bent(term: Callable[[Any], Any], squares: bool = False, *bounds: Callable[[Any], Any]) -> Any:
    """Hinges beside a term, or with one that is bounded."""
    X, w = np.ones((20_000, 10)), cp.Variable(10)
    cost = cp.sum(cp.pos(1 - X @ w)) + term(w) + (cp.sum_squares(w) if squares else 0.0)
    return cp.Problem(cp.Minimize(cost), [bound(w) <= 1 for bound in bounds])


def worst(w: Any, loss: Callable[[Any], Any]) -> list[Any]:
    """The mean losses of three groups."""
    X = np.random.default_rng(0).standard_normal((9000, 10))
    return [cp.mean(loss(X[k::3] @ w - 1)) for k in range(3)]


def entropic(n: int, squares: float = 0.0, bound: float = 0.0) -> Any:
    w, X = cp.Variable(10), np.random.default_rng(0).standard_normal((n, 10))
    loss = cp.sum(cp.pos(1 - X @ w)) + (squares * cp.sum_squares(w) if squares else 0.0)
    spread = cp.sum(cp.entr(w))
    if bound:
        return cp.Problem(cp.Minimize(loss), [spread >= bound])
    return cp.Problem(cp.Minimize(loss - spread))


def rows_and_nuclear_norm() -> Any:
    M, X = cp.Variable((6, 6)), np.random.default_rng(0).standard_normal((5000, 6))
    return cp.Problem(cp.Minimize(cp.sum_squares(X @ M - 1.0) + cp.normNuc(M)))


def spectral(n: int, squares: float = 0.0) -> Any:
    M, X = cp.Variable((6, 6)), np.random.default_rng(0).standard_normal((n, 36))
    loss = cp.sum(cp.pos(1 - X @ cp.vec(M, order="F"))) + 0.1 * cp.normNuc(M)
    return cp.Problem(cp.Minimize(loss + squares * cp.sum_squares(M) if squares else loss))


def linear_program_of_errors(n: int, d: int) -> Any:
    rng = np.random.default_rng(0)
    x, error = cp.Variable(d), cp.Variable(n)
    residual = rng.standard_normal((n, d)) @ x - rng.standard_normal(n)
    return cp.Problem(cp.Minimize(cp.sum(error)), [error >= residual, error >= -residual])


def ranked(n: int, d: int, *, alike: bool = False) -> Any:
    """CVaR of sums of losses of two fits, or of the same one."""
    rng = np.random.default_rng(0)
    w, X, y = cp.Variable(d), rng.standard_normal((n, d)), rng.standard_normal(n)
    other = X if alike else rng.standard_normal((n, d))
    cost = 2 * cp.pos(y - X @ w) + cp.pos(X @ w - y) + cp.abs(other @ w - y)
    return cp.Problem(cp.Minimize(cp.cvar(cost, 0.9)))


def worst_of_two(n: int, d: int) -> Any:
    rng, w, h = np.random.default_rng(0), cp.Variable(d), n // 2
    e = rng.standard_normal((n, d)) @ w - rng.standard_normal(n)
    return cp.Problem(cp.Minimize(cp.maximum(cp.norm1(e[:h]), cp.norm1(e[h:]))))


def within_a_risk(n: int, d: int) -> Any:
    rng = np.random.default_rng(0)
    x = cp.Variable(d)
    return cp.Problem(cp.Maximize(cp.sum(x)), [cp.cvar(rng.standard_normal((n, d)) @ x, 0.9) <= 1])


def classes(n: int, d: int, k: int = 3, *, explained: bool = False) -> Any:
    """The multi-class losses of Crammer and Singer; labels by chance, or `explained` by the data.
    """
    rng = np.random.default_rng(0)
    W, X, labels = cp.Variable((d, k)), rng.standard_normal((n, d)), rng.integers(k, size=n)
    if explained:
        labels = (X @ rng.standard_normal((d, k)) + rng.standard_normal((n, k))).argmax(axis=1)
    Y, margins = np.eye(k)[labels], X @ W
    own = cp.sum(cp.multiply(Y, margins), axis=1)
    loss = cp.sum(cp.max(margins + 1 - Y, axis=1) - own)
    return cp.Problem(cp.Minimize(cp.sum_squares(W) + loss))


def smoothed(n: int, d: int) -> Any:
    B, w = np.random.default_rng(0).standard_normal((n, d)), cp.Variable(d)
    return cp.Problem(cp.Minimize(cp.norm1(B @ w - 1) + cp.sum_squares(cp.diff(w, 2))))


def beside_a_norm(n: int, d: int, squares: float = 0.0) -> Any:
    X, w = np.random.default_rng(0).standard_normal((n, d)), cp.Variable(d)
    cost = cp.sum(cp.pos(1 - X @ w)) + cp.norm(w)
    return cp.Problem(cp.Minimize(cost + squares * cp.sum_squares(w) if squares else cost))


def within_a_norm(n: int, d: int, budget: bool = False) -> Any:
    X, w = np.random.default_rng(0).standard_normal((n, d)), cp.Variable(d)
    rows = [cp.norm(X @ w - 1) <= n**0.5]
    rows += [cp.cvar(X @ w, 0.9) <= 2.0] if budget else []
    return cp.Problem(cp.Minimize(cp.norm1(X @ w - 2)), rows)


def squared_by_a_form(n: int, d: int) -> Any:
    rng = np.random.default_rng(0)
    w, X = cp.Variable(d), rng.standard_normal((n, d))
    return cp.Problem(cp.Minimize(cp.quad_form(w, np.eye(d)) + cp.sum(cp.pos(1 - X @ w))))


def kernel(n: int) -> Any:
    X = np.random.default_rng(0).standard_normal((n, 2))
    K = np.exp(-np.sum((X[:, None] - X) ** 2, axis=2))
    a = cp.Variable(n)
    return cp.Problem(cp.Minimize(cp.quad_form(a, cp.psd_wrap(K)) + cp.sum(cp.pos(1 - K @ a))))


TAKEN: dict[str, Callable[[], Any]] = {
    "absolute": lambda: fit(300, 10),
    "no squares": lambda: without_squares(6000, 10),
    "pinball": lambda: fit(5000, 10, lambda e: cp.maximum(0.3 * e, -0.7 * e)),
    "huber": lambda: fit(5000, 10, cp.huber),
    "slacks": lambda: slacks(5000, 10),
    "a loop": lambda: loop(300),
    "a metric": lambda: metric(6000, 10),
    "many terms of few coordinates": lambda: spline(30_000, 25),
    "a nuclear norm beside squares": lambda: spectral(20_000, 1.0),
    "many hinges and a nuclear norm": lambda: spectral(10_000),
    "an entropy beside squares": lambda: entropic(20_000, 1.0),
    "powers beside squares": lambda: bent(lambda w: cp.sum(cp.power(cp.abs(w), 1.5)), True),
    "more columns than rows": lambda: fit(400, 1000, cp.pos),
    "columns under an L1 norm": lambda: lasso(1000, 2000),
    "columns under an L1 norm, of one sign": lambda: lasso(300, 1000, nonneg=True),
    "a lasso of middle size": lambda: lasso(1000, 800),
    "Huber's loss without squares": lambda: without_squares(3000, 10, cp.huber),
    "rows of constraints": lambda: many_rows(5000, 10),
    "Huber's loss with bounds that OSQP is slow at": lambda: limited(4000, 20, cp.huber),
    "Huber's loss with bounds of middle size": lambda: limited(2600, 10, cp.huber),
    "a norm beside squares and many losses": lambda: beside_a_norm(15_000, 15, 1.0),
    "a norm beside losses": lambda: beside_a_norm(2000, 20),
    "losses within a norm of residuals": lambda: within_a_norm(3000, 20),
    "a squared norm beside losses": lambda: cp.Problem(
        fit(300, 10).objective + cp.Minimize(cp.norm(cp.Variable(10)) ** 2)),
    "kinks and a variance that OSQP is slow at": lambda: limited(4000, 20, cp.abs),
    "squares as a quadratic form": lambda: squared_by_a_form(300, 10),
    "no squares, some coordinates": lambda: without_squares(1000, 30),
    "constraints that OSQP is slow with": lambda: bounded(3000, 10),
    "constraints on many coordinates": lambda: bounded(2000, 100),
    "a linear program": lambda: linear_program(6000, 20),
    "a linear program of errors": lambda: linear_program_of_errors(5000, 5),
    "losses in a constraint": lambda: within_a_risk(12_000, 8),
    "a risk of losses by another name": lambda: of_nested_slacks(12_000, 20, equal=True),
    "a risk of sums of the same losses": lambda: ranked(9000, 5, alike=True),
    "the worst of two fits": lambda: worst_of_two(6000, 12),
    "dense data with few rows a coordinate": lambda: without_squares(1500, 300),
    "a risk of many assets": lambda: within_a_risk(1500, 300),
}


def test_nested_slacks_are_a_chain_where_there_are_many_coordinates() -> None:
    few, many = (measure(of_nested_slacks(12_000, d)) for d in (3, 20))
    assert few.why_not() == size.SHORT_CHAIN
    assert many.why_not() == size.CHAINED


@pytest.mark.parametrize("name", TAKEN)
def test_what_may_be_worthwhile_is_looked_at(name: str) -> None:
    assert measure(TAKEN[name]()).why_not() == ""


def total_variation() -> Any:
    x, y = cp.Variable(5000), np.random.default_rng(0).standard_normal(5000)
    return cp.Problem(cp.Minimize(cp.sum_squares(x - y) + cp.tv(x)))


def trend_filter() -> Any:
    x, y = cp.Variable(3000), np.random.default_rng(0).standard_normal(3000)
    return cp.Problem(cp.Minimize(cp.sum_squares(x - y) + 5.0 * cp.norm1(cp.diff(x, 2))))


def isotonic() -> Any:
    x, y = cp.Variable(3000), np.random.default_rng(0).standard_normal(3000)
    return cp.Problem(cp.Minimize(cp.norm1(x - y)), [x[1:] >= x[:-1]])


def control() -> Any:
    x, u = cp.Variable((4, 401)), cp.Variable((2, 400))
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((4, 4)), rng.standard_normal((4, 2))
    cost: Any = 0
    rows = [x[:, 0] == cp.Parameter(4, value=np.ones(4))]
    for t in range(400):
        cost = cost + cp.sum_squares(x[:, t + 1]) + cp.norm1(u[:, t])
        rows += [x[:, t + 1] == A @ x[:, t] + B @ u[:, t], cp.norm_inf(u[:, t]) <= 1.0]
    return cp.Problem(cp.Minimize(cost), rows)


def shared(n: int, d: int, term: Callable[[Any], Any]) -> Any:
    """Hinges with the same convex term inside each of them."""
    data, w = np.random.default_rng(0).standard_normal((n, d)), cp.Variable(d)
    hinges = cp.sum(cp.pos(1 - data @ w + term(w)))
    return cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + hinges))


def scenarios_of_control() -> Any:
    """One control for thirty courses of noise: a few equations of many rows for each of them."""
    rng, u = np.random.default_rng(0), cp.Variable((1, 15))
    cost, rows = cp.sum_squares(u), [cp.abs(u) <= 2.0]
    for _ in range(30):
        x, noise = cp.Variable((2, 16)), rng.standard_normal((2, 15))
        rows += [x[:, 0] == 1.0, x[:, 1:] == x[:, :-1] + np.ones((2, 1)) @ u + noise]
        cost = cost + cp.sum_squares(x) / 30
    return cp.Problem(cp.Minimize(cost), rows)


def copied_to_scenarios(n: int, d: int) -> Any:
    """Two stages: what was bought is there in every scenario, stacked in Python."""
    bought, sold = cp.Variable(d, nonneg=True), cp.Variable((n, d), nonneg=True)
    missed = cp.pos(np.random.default_rng(0).gamma(5.0, 2.0, (n, d)) - sold)
    rows = [sold <= cp.vstack([bought] * n)]
    return cp.Problem(cp.Minimize(cp.sum(bought) + cp.sum(missed) / n), rows)


def integers() -> Any:
    x = cp.Variable(5, boolean=True)
    data = np.random.default_rng(0).standard_normal((5000, 5))
    return cp.Problem(cp.Minimize(cp.sum(cp.pos(1 - data @ x))))


LEFT: dict[str, tuple[Callable[[], Any], str]] = {
    "total variation": (total_variation, "as many coordinates as terms"),
    "trend filter": (trend_filter, "as many coordinates as terms"),
    "isotonic": (isotonic, "as many coordinates as terms"),
    "control": (control, "as many coordinates as terms"),
    "least squares": (lambda: fit(5000, 10, cp.square), "small (50000 entries of data in"),
    "least squares of few rows": (lambda: fit(60, 10, cp.square), "as many coordinates as terms"),
    "small": (lambda: fit(150, 10), "small (150 terms)"),
    "small slacks": (lambda: slacks(150, 10), "small (150 terms)"),
    "no squares": (lambda: without_squares(1000, 10), "small (1000 terms)"),
    "little data with few rows a coordinate": (
        lambda: without_squares(400, 100), "as many coordinates as terms"),
    "squares of something else": (lambda: smoothed(1500, 20), "small (1500 terms)"),
    "Huber's loss with bounds": (lambda: limited(2000, 10, cp.huber), "small (2010 terms)"),
    "kinks and a variance": (lambda: limited(2000, 10, cp.abs), "small (2010 terms)"),
    "a norm beside squares and losses": (
        lambda: beside_a_norm(6000, 10, 1.0), "small (6000 terms)"),
    "a norm beside losses": (lambda: beside_a_norm(1000, 10), "small (1000 terms)"),
    "a norm, and losses in a constraint": (lambda: within_a_norm(1500, 20, True), "small"),
    "Huber's loss without squares": (lambda: without_squares(1500, 5, cp.huber), "small"),
    "constraints on the coordinates": (lambda: bounded(1000, 10), "small (1010 terms)"),
    "a sign of the coordinates": (lambda: bounded(1000, 10, nonneg=True), "small (1000 terms)"),
    "a linear program": (lambda: linear_program(6000, 8), "small (6008 terms)"),
    "a sparse linear program": (lambda: linear_program(12_000, 20, 0.1), "small (12020 terms)"),
    "a small lasso": (lambda: lasso(400, 50), "small (20000 entries of data in its squares)"),
    "a lasso of one sign": (
        lambda: lasso(600, 1000, nonneg=True), "as many coordinates as terms"),
    "losses of few coordinates in a constraint": (
        lambda: within_a_risk(6000, 5), "small (6000 terms)"),
    "few coordinates below nested slacks": (lambda: of_nested_slacks(12_000, 3), "in a chain or"),
    "coordinates below nested slacks": (lambda: of_nested_slacks(9000, 20), "in a chain or"),
    "a risk of sums of losses": (lambda: ranked(9000, 5), "sums of different losses"),
    "the worst of two small fits": (lambda: worst_of_two(4000, 8), "small (4000 terms)"),
    "a copy for each scenario": (
        lambda: copied_to_scenarios(500, 4), "small (2000 terms)"),
    "a kernel": (lambda: kernel(500), "as many coordinates as terms"),
    "a short loop": (lambda: loop(50), "small"),
    "few coordinates in each term": (lambda: spline(8000, 25), "small (8092 terms)"),
    "a nuclear norm without squares": (lambda: spectral(5000), "small (5000 terms)"),
    "powers without squares": (
        lambda: bent(lambda w: cp.sum(cp.power(cp.abs(w), 1.5))), "term (power 1.5) is of a kind"),
    "inverses, which are no squares": (
        lambda: bent(lambda w: cp.sum(cp.inv_pos(w))), "term (power -1) is of a kind"),
    "another norm": (lambda: bent(lambda w: cp.pnorm(w, 3)), "term (pnorm 3) is of a kind"),
    "a geometric mean": (lambda: bent(lambda w: -cp.geo_mean(w), True), "(geo_mean) is of a kind"),
    "bounded powers": (
        lambda: bent(cp.norm1, True, lambda w: cp.sum(cp.power(cp.abs(w), 3))),
        "in a constraint its term (power 3)"),
    "powers of residuals": (
        lambda: fit(5000, 10, lambda r: cp.power(cp.abs(r), 1.5)), "its loss (power 1.5)"),
    "several levels": (
        lambda: bent(
            cp.norm1, False, *[lambda w: cp.sum(cp.huber(np.ones((9000, 10)) @ w - 1))] * 2),
        "several sums of curved losses are below a level"),
    "the worst of curved losses": (
        lambda: bent(cp.norm1, True, lambda w: cp.max(cp.hstack(worst(w, cp.huber)))),
        "or the largest of sums"),
    "the worst of squared hinges": (
        lambda: bent(lambda w: cp.maximum(*worst(w, lambda r: cp.square(cp.pos(r)))), True),
        "or the largest of sums"),
    "the worst few of sums of losses": (
        lambda: bent(lambda w: cp.sum_largest(cp.hstack(worst(w, cp.abs)), 2)),
        "or the largest of sums"),
    "an entropy without squares": (lambda: entropic(20_000), "squares of the coordinates"),
    "an entropy in a constraint": (lambda: entropic(20_000, 1.0, 0.5), "in a constraint"),
    "squares and a nuclear norm": (rows_and_nuclear_norm, "squares of the coordinates"),
    "a norm in every loss": (lambda: shared(9000, 10, cp.norm), "hold convex terms (Pnorm"),
    "squares in every loss": (
        lambda: shared(9000, 10, cp.sum_squares), "hold convex terms (quad_over_lin"),
    "logistic": (lambda: fit(5000, 10, cp.logistic), "logistic"),
    "control of scenarios": (scenarios_of_control, "small"),
    "integers": (integers, "integer"),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_cannot_be_worthwhile_is_left_alone(name: str) -> None:
    make, words = LEFT[name]
    assert words in measure(make()).why_not()


def test_the_largest_of_many_losses_and_the_worst_of_sums_with_kinks_are_looked_at() -> None:
    for term in (
        lambda w: cp.max(cp.hstack(worst(w, cp.abs))),
        lambda w: cp.sum_largest(cp.hstack([cp.abs(np.ones((9000, 10)) @ w - 1), cp.abs(w)]), 9),
        lambda w: cp.maximum(cp.mean(cp.huber(np.ones((9000, 10)) @ w - 1)), cp.sum(w)),
    ):
        assert measure(bent(term)).reason == ""


def test_a_matrix_mixes_what_is_stacked() -> None:
    """Each part of a stack is in rows of its own, but in all of those of a matrix before it."""
    X, w, v = np.random.default_rng(0).standard_normal((3000, 6)), cp.Variable(3), cp.Variable(3)
    together = cp.Problem(cp.Minimize(cp.sum(cp.pos(1 - X @ cp.hstack([w, v])))))
    assert measure(together).terms == 3000
    apart = cp.hstack([X[:, :3] @ w, X[:, 3:] @ v])
    assert measure(cp.Problem(cp.Minimize(cp.sum(cp.pos(1 - apart))))).terms == 3000


@pytest.mark.parametrize(
    ("solver", "taken"), [("", True), ("CLARABEL", False), ("SCS", False)]
)
def test_the_solver_that_would_solve_it_plainly_decides(solver: str, taken: bool) -> None:
    assert (measure(bounded(3000, 10)).why_not(solver) == "") is taken
    assert measure(bounded(3000, 10)).why_not("OSQP") == ""
    middle = measure(limited(2600, 10, cp.huber))
    assert (middle.why_not(solver) == "") is taken
    assert (measure(classes(3000, 5)).why_not(solver) == "") is taken
    assert measure(classes(3000, 5)).terms == 3000
    assert measure(classes(20_000, 15)).why_not(solver) == ""
    linear = bounded(3000, 10)
    conic = cp.Problem(linear.objective, [cp.norm(linear.variables()[0]) <= 1.0])
    assert measure(conic).why_not(solver)  # no quadratic program, and OSQP is not asked


def test_the_larger_of_two_is_no_group() -> None:
    """A pinball loss, written as a maximum along an axis, is not the largest of many values."""
    e = np.random.default_rng(0).standard_normal((20_000, 30)) @ cp.Variable(30) - 1.0
    for rows, why_not in (([0.9 * e, -0.1 * e], ""), ([0.9 * e, -0.1 * e, 2.0 * e], "small")):
        largest = measure(cp.Problem(cp.Minimize(cp.sum(cp.max(cp.vstack(rows), axis=0)))))
        assert why_not in largest.why_not()
        assert bool(largest.why_not()) is bool(why_not)


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("solver", [None, "OSQP"])
def test_largest_values_that_a_few_steps_of_osqp_solve_are_not_read(solver: str | None) -> None:
    """Labels that nothing explains: every term stays undecided, and OSQP begins at the answer."""
    problem, plain = classes(1500, 10), classes(1500, 10)
    assert not measure(problem).why_not()
    value = problem.solve(method="screen", solver=solver)
    assert value == plain.solve(solver="OSQP")
    report = request.Report.of(problem)
    assert (report.recognised, report.solver) == (False, "OSQP")
    assert "steps of OSQP" in report.reason


def test_largest_values_that_take_osqp_long_are_screened(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first steps are tried once, with CVXPY's own options; whoever gives others is asked."""
    plain, asked = request.plain, []

    def listening(problem: Any, few: request.Request, reason: str, **how: Any) -> Any:
        asked.append(few)
        return plain(problem, few, reason, **how)

    monkeypatch.setattr(request, "plain", listening)
    problem = classes(1500, 10, explained=True)
    for _ in range(2):
        problem.solve(method="screen")
        assert request.Report.of(problem).recognised
    assert [r.options for r in asked] == [{"max_iter": request.FIRST_STEPS}]
    for options in ({"always": True}, {"solver": "OSQP", "max_iter": 20_000}):
        again = classes(1500, 10, explained=True)
        again.solve(method="screen", **options)
        assert request.Report.of(again).recognised
    assert len(asked) == 1
    monkeypatch.setattr(request, "STEPS", 0.0)  # where steps are dear
    classes(1500, 10, explained=True).solve(method="screen")
    assert asked[-1].options == {"max_iter": request.FEWEST_STEPS}


def wide(n: int, d: int, loss: Callable[[Any], Any] = cp.abs, sparse: bool = False) -> Any:
    """An L1 norm of many columns beside losses of an intercept as well."""
    X, w, b = np.random.default_rng(0).standard_normal((n, d)), cp.Variable(d), cp.Variable()
    data = sp.csr_matrix(np.where(np.abs(X) > 2.0, X, 0.0)) if sparse else X
    return cp.Problem(cp.Minimize(cp.sum(loss(data @ w + b - 1.0)) + cp.norm1(w)))


@pytest.mark.parametrize("loss", [cp.abs, cp.pos, cp.huber])
def test_an_l1_norm_of_many_columns_is_looked_at(loss: Any) -> None:
    """Where the data are dense: of sparse ones CVXPY's solvers are quick."""
    found = measure(wide(150, 400, loss))
    assert found.columns == pytest.approx(150.0**2 * 400, rel=0.01)
    assert not found.why_not()
    assert found.seconds("CLARABEL") < found.at_least("CLARABEL")
    assert "small" in measure(wide(40, 320, loss)).why_not()
    assert measure(wide(150, 400, loss, sparse=True)).columns == 0.0


def test_data_in_a_parameter_take_cvxpy_long_beside_huber_s_loss() -> None:
    """How squares of slacks follow from a parameter is compiled for all of them."""
    data = np.random.default_rng(0).standard_normal((4000, 10))
    w, given = cp.Variable(10), cp.Parameter((4000, 10), value=data)
    cost = cp.sum(cp.huber(given @ w - 1)) + cp.sum_squares(w)
    curved, fixed = cp.Problem(cp.Minimize(cost)), fit(4000, 10, cp.huber)
    assert measure(curved).compiling == pytest.approx(size.OF_PARAMETER * 4000 * 40_000)
    assert measure(curved).seconds() > 5.0 > 10.0 * measure(fixed).seconds()
    kinked = cp.Problem(cp.Minimize(cp.norm1(given @ w - 1) + cp.sum_squares(w)))
    assert measure(kinked).compiling == 0.0


def test_weights_in_a_parameter_take_cvxpy_long() -> None:
    """How each row follows from each weight is compiled: 34 s of least squares, 20,000 x 12."""
    data = np.random.default_rng(0).standard_normal((20_000, 12))
    w, weights = cp.Variable(12), cp.Parameter(20_000, nonneg=True, value=np.ones(20_000))
    squares = cp.square(data @ w - 1)
    for weighed in (weights @ squares, cp.sum(cp.multiply(weights, squares))):
        found = measure(cp.Problem(cp.Minimize(weighed + cp.norm1(w))))
        assert found.compiling == pytest.approx(size.OF_WEIGHTED_SQUARES * 20_000**2)
        assert not found.why_not()
        assert found.at_least() > 20.0
    inside = cp.sum_squares(cp.multiply(weights, data @ w - 1)) + cp.norm1(w)
    assert 2.0 < measure(cp.Problem(cp.Minimize(inside))).at_least() < 20.0
    number = cp.Parameter(nonneg=True, value=1.0) * cp.sum(squares) + cp.norm1(w)
    assert measure(cp.Problem(cp.Minimize(number))).compiling == 0.0


@pytest.mark.filterwarnings("ignore:Reading from a sparse CVXPY expression")  # CVXPY does
def test_bounds_of_variables_may_be_sparse_or_unknown() -> None:
    """As attributes: numbers, sparse arrays at the entries of a sparse variable, parameters."""
    pattern = ([0, 0, 1, 2, 2, 2], [0, 2, 2, 0, 1, 2])
    top = sp.coo_array(([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], pattern), shape=(3, 3))
    sparse = cp.Variable((3, 3), sparsity=pattern, bounds=[-1, top])
    for w in (sparse, cp.Variable((3, 3), bounds=[0, 5]), cp.Variable(3, bounds=[-np.ones(3), 1])):
        problem = cp.Problem(cp.Minimize(-cp.sum(w)))
        assert not size.measured(problem).reason.startswith("its size")
        screened = problem.solve(method="screen", solver="CLARABEL")
        assert screened == pytest.approx(problem.solve(solver="CLARABEL"), rel=1e-6)
    low = cp.Parameter(3)
    unknown = cp.Problem(cp.Minimize(cp.sum_squares(cp.Variable(3, bounds=[low, None]) - 1)))
    assert not size.measured(unknown).reason.startswith("its size")


def test_a_size_that_cannot_be_read_costs_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(problem: Any) -> Any:
        raise AttributeError("a defect")

    monkeypatch.setattr(size, "measure", broken)
    problem = fit(300, 3)
    screened = problem.solve(method="screen", solver="CLARABEL")
    assert screened == pytest.approx(fit(300, 3).solve(solver="CLARABEL"), rel=1e-8)
    assert "AttributeError: a defect" in request.Report.of(problem).reason


def test_a_problem_within_an_expression_is_not_read() -> None:
    """`partial_optimize` makes an expression whose argument is a problem."""
    w, t = cp.Variable(3), cp.Variable(3)
    norm = partial_optimize(cp.Problem(cp.Minimize(cp.sum(t)), [-t <= w, w <= t]), [t], [w])
    losses = cp.sum(cp.pos(1 - np.random.default_rng(0).standard_normal((400, 3)) @ w))
    for objective in (norm, norm + losses):
        problem = cp.Problem(cp.Minimize(objective), [w >= 0.1])
        assert not size.measured(problem).reason.startswith("its size")
        screened = problem.solve(method="screen", solver="CLARABEL")
        assert screened == pytest.approx(problem.solve(solver="CLARABEL"), rel=1e-6)


def test_small_problems_are_left_to_osqp_while_it_is_quick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its steps are limited where they are dear, and nobody has named it or given options."""
    asked, plain = [], request.plain

    def listening(problem: Any, few: request.Request, reason: str, **how: Any) -> Any:
        asked.append((few.solver, few.options))
        return plain(problem, few, reason, **how)

    def smooth(n: int, d: int) -> Any:
        X, w = np.random.default_rng(0).standard_normal((n, d)), cp.Variable(d)
        losses = cp.sum(cp.square(cp.pos(1 - X @ w)))
        return cp.Problem(cp.Minimize(losses + cp.norm1(w) + cp.sum_squares(w)))

    monkeypatch.setattr(request, "plain", listening)
    smooth(100, 5).solve(method="screen")
    assert asked.pop() == (None, {})
    given = {"solver": "OSQP"}, {"max_iter": 9000}
    for options in given:
        smooth(1500, 8).solve(method="screen", **options)
        assert asked.pop() == (options.pop("solver", None), options)
    quick = smooth(3000, 8)
    value = quick.solve(method="screen")
    solver, options = asked.pop()
    assert solver == "OSQP"
    assert request.FEWEST_OF_SMALL <= options["max_iter"] < request.MOST_STEPS
    assert value == smooth(3000, 8).solve(solver="OSQP")
    monkeypatch.setattr(request, "PATIENCE", 0.0)
    monkeypatch.setattr(request, "FEWEST_OF_SMALL", 1)
    slow = smooth(3000, 8)
    assert slow.solve(method="screen") == pytest.approx(value, rel=1e-4)
    assert slow.status == "optimal"
    assert request.Report.of(slow).solver == "CLARABEL"


def test_small_systems_mean_the_same_here_and_there() -> None:
    """From where on an L1 norm takes compiled loops; `size` is read before any solver is."""
    assert size.SOON == registry.SOON


def test_complex_variables_are_left_to_cvxpy_unread() -> None:
    z = cp.Variable(3, complex=True)
    data = np.random.default_rng(0).standard_normal((9000, 3))
    assert "complex" in measure(cp.Problem(cp.Minimize(cp.sum(cp.abs(data @ z - 1.0))))).reason


@pytest.mark.usefixtures("unread")
def test_nothing_is_read_and_the_report_says_why() -> None:
    problem, plain = fit(150, 10), fit(150, 10)
    assert problem.solve(method="screen") == plain.solve()
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert not report.recognised
    assert "small (150 terms)" in report.reason
    assert "always=True" in report.reason
    assert problem.solver_stats.solver_name == plain.solver_stats.solver_name


@pytest.mark.parametrize(
    "insisting", [{"always": True}, {"mode": "safe"}, {"solver": "builtin"}]
)
def test_whoever_insists_is_screened(insisting: dict[str, Any]) -> None:
    problem = fit(150, 10)
    problem.solve(method="screen", **insisting)
    assert problem.solver_stats.extra_stats["cvxscreen"].recognised


def test_the_decision_is_made_once_for_each_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, seen = fit(150, 10), []
    monkeypatch.setattr(size, "measure", lambda p: seen.append(p) or measure(p))
    for _ in range(3):
        problem.solve(method="screen")
    assert len(seen) == 1


@pytest.fixture
def visited(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    seen: list[Any] = []
    monkeypatch.setattr(size, "_entries", lambda atom: seen.append(atom) or 0.0)
    return seen


@pytest.mark.filterwarnings("ignore:Objective contains too many subexpressions")
@pytest.mark.parametrize("n", [300, 3000])
def test_a_few_pieces_of_a_loop_stand_for_all(n: int, visited: list[Any]) -> None:
    found = measure(loop(n))
    assert found.terms == pytest.approx(n, rel=0.05)
    assert found.pieces == pytest.approx(n, rel=0.05)
    assert len(visited) < 200


def test_the_walk_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size, "VISITS", 10)
    assert measure(loop(300)).coordinates == 0
    monkeypatch.setattr(size, "VISITS", VISITS)
    assert measure(loop(300)).coordinates == 3


def test_texts_have_many_columns_and_are_screened() -> None:
    assert measure(sparse_svm(words(1000, 4000, 20))).why_not() == ""
    assert measure(sparse_svm(words(100, 4000, 20))).why_not()  # small
    differences = sp.diags_array([np.ones(5000), -np.ones(4999)], offsets=[0, -1], format="csr")
    assert measure(sparse_svm(differences)).why_not()


def test_the_plain_time_grows_with_what_clarabel_factorises() -> None:
    def seconds(X: Any) -> float:
        y = np.where(np.arange(X.shape[0]) % 2, 1.0, -1.0)
        return plugin.plain_seconds(cvxscreen.svm(X, y))

    band = sp.diags_array([np.ones(2000 - k) for k in range(9)], offsets=list(range(9)))
    assert seconds(sp.csr_array(band)) < seconds(words(2000, 2000, 9))
    dense = np.random.default_rng(0).standard_normal((4000, 40))
    assert seconds(dense[:, :20]) < seconds(dense) < 4 * seconds(dense[:, :20]) + 1.0


def test_what_takes_longer_than_a_plain_solve_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    X = words(600, 600, 30)
    plain = sparse_svm(X)
    plain.solve(solver="CLARABEL")
    monkeypatch.setattr(plugin, "most_seconds", lambda *_: 1e-9)
    given_up = sparse_svm(X)
    given_up.solve(method="screen")
    report = given_up.solver_stats.extra_stats["cvxscreen"]
    if report.recognised:  # the first round's answer was certified
        assert report.relative_gap <= 1e-6
    else:
        assert "about as long as a plain solve" in report.reason
    assert given_up.status == "optimal"
    assert given_up.value == pytest.approx(plain.value, rel=1e-6)
    insisting = sparse_svm(X)
    insisting.solve(method="screen", always=True)
    assert insisting.solver_stats.extra_stats["cvxscreen"].recognised


def test_the_same_solver_is_not_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failure Clarabel comes first; for a linear program it is CVXPY's own choice."""
    asked = []
    monkeypatch.setattr(plugin, "best_plain", lambda *given: asked.append(given[-1]))
    for problem in (without_squares(100, 3), fit(100, 3)):
        plugin.plain_after_failure(problem, request.Request(), "it failed")
    assert asked == [[None], ["CLARABEL", None]]


def test_compiled_loops_have_time_to_be_loaded_where_they_are_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plugin, "loops_loaded", lambda: False)
    texts, narrow = sparse_svm(words(1000, 200, 10)), bounded(3000, 10, nonneg=True)
    for problem, numpy_answers, loading in (
        (texts, True, plugin.LOADING), (narrow, True, 0.0), (narrow, False, plugin.LOADING)
    ):
        monkeypatch.setattr(plugin, "before_loading", lambda _, answers=numpy_answers: answers)
        most = plugin.most_seconds(recognise(problem).problem, problem)
        assert most == max(plugin.LEAST, measure(problem).at_least()) + loading


def test_there_is_as_much_time_as_the_solver_would_take_that_solves_it_plainly() -> None:
    """OSQP takes a multiple of Clarabel's time; where it is not asked, Clarabel's counts."""
    linear, smooth = bounded(3000, 10), fit(3000, 10, cp.huber)
    conic = cp.Problem(linear.objective, [cp.norm(linear.variables()[0]) <= 1.0])
    for problem, osqp in ((linear, True), (conic, False), (smooth, False)):
        found = recognise(problem).problem
        short = max(plugin.LEAST, plugin.plain_seconds(found))
        most = plugin.most_seconds(found, problem)
        assert most == (measure(problem).seconds("OSQP") if osqp else short)
        assert (most > short) is osqp


def test_a_report_has_an_estimate_of_the_plain_solve_and_says_that_it_is_one() -> None:
    problem = slacks(5_000, 10)
    problem.solve(method="screen", solver="CLARABEL")
    report = cvxscreen.Report.of(problem)
    assert report.recognised
    assert report.plain_estimate == measure(problem).seconds("CLARABEL")
    assert "ESTIMATE" in str(report)
    assert "guess" in str(report)
    plainly = fit(100, 3)
    plainly.solve(method="screen")
    assert np.isnan(cvxscreen.Report.of(plainly).plain_estimate)
    assert "ESTIMATE" not in str(cvxscreen.Report.of(plainly))


def test_nothing_is_estimated_where_it_was_not_compared_with_measurements() -> None:
    dense = measure(slacks(2_000, 10))
    assert dense.estimate("CLARABEL") == dense.seconds("CLARABEL") < dense.estimate("OSQP")
    assert dense.estimate() == dense.estimate("OSQP")  # CVXPY's choice for a quadratic program
    assert np.isnan(dense.estimate("SCS"))
    huber = measure(fit(2_000, 10, cp.huber))
    squared = measure(fit(2_000, 10, lambda e: cp.square(cp.pos(1 - e))))
    assert squared.estimate() == huber.estimate() < 0.3 * measure(fit(2_000, 10)).estimate()
    beside = measure(cp.Problem(fit(2_000, 10, cp.huber).objective + cp.Minimize(
        cp.norm1(cp.Variable(10)))))
    assert beside.estimate() == huber.estimate()  # OSQP again, with squares of its own
    assert measure(bounded(2_000, 10, cp.huber)).estimate() > 5.0 * huber.estimate()
    w, X = cp.Variable(500), sp.random(20_000, 500, 0.02, random_state=0, format="csr")
    sparse = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + cp.sum(cp.abs(X @ w - 1))))
    assert np.isnan(measure(sparse).estimate("CLARABEL"))
    lasso = cp.Problem(cp.Minimize(cp.sum_squares(np.ones((2_000, 10)) @ w[:10]) + cp.norm1(w)))
    assert np.isnan(measure(lasso).estimate("CLARABEL"))
