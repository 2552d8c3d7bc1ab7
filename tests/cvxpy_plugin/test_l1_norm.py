"""Under an L1 norm features leave the reduced problem, and come back as zeros with their duals."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import cvxscreen
from cvxscreen import cvxpy_plugin
from cvxscreen.core.penalty import L1
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise
from cvxscreen.cvxpy_plugin.recognise.recognition import L1Terms, Recognition
from cvxscreen.solvers.registry import compiled_path, engine

cvxpy_plugin.register()

TIGHT = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}


class Wide:
    """Forty features, four of which matter."""

    def __init__(self, n: int = 120, d: int = 40) -> None:
        rng = np.random.default_rng(5)
        self.X = rng.normal(size=(n, d))
        self.y = np.where(self.X[:, :4].sum(axis=1) + 0.3 * rng.normal(size=n) > 0, 1.0, -1.0)
        self.w, self.t, self.xi = cp.Variable(d), cp.Variable(d), cp.Variable(n)
        self.margin = cp.multiply(self.y, self.X @ self.w)
        self.slack = [self.margin >= 1 - self.xi, self.xi >= 0]
        self.square = 0.5 * cp.sum_squares(self.w)

    def problem(self, loss: str, norm: Any = 12.0) -> Any:
        """With every auxiliary variable spelled out, so that every multiplier can be compared."""
        cost = cp.sum(self.xi) if loss == "hinge" else cp.sum_squares(self.xi)
        total = self.square + cost + norm * cp.sum(self.t)
        return cp.Problem(
            cp.Minimize(total), [*self.slack, -self.t <= self.w, self.w <= self.t]
        )


def answer(problem: Any) -> tuple[float, list[Any], list[Any]]:
    values = [np.array(v.value) for v in problem.variables()]
    return problem.value, values, [np.array(c.dual_value) for c in problem.constraints]


def compare(found: Any, truth: Any) -> None:
    assert found[0] == pytest.approx(truth[0], rel=1e-7)
    for ours, theirs in zip(found[1] + found[2], truth[1] + truth[2], strict=True):
        # An interior point method leaves a slack that is squared at 1e-5 where it should be 0.
        assert np.abs(ours - theirs).max() <= 5e-5 * max(1.0, np.abs(theirs).max())


@pytest.mark.parametrize("loss", ["hinge", "squared"])
@pytest.mark.parametrize(
    ("solver", "mode"),
    [("CLARABEL", "certified"), ("CLARABEL", "safe"), ("SCS", "safe"), ("OSQP", "certified"),
     ("HIGHS", "certified"), ("builtin", "safe")],
)
def test_features_are_dropped_and_restored(loss: str, solver: str, mode: str) -> None:
    problem = Wide().problem(loss)
    problem.solve(solver="CLARABEL", **TIGHT)
    truth = answer(problem)
    fresh = Wide()
    problem = fresh.problem(loss)
    problem.solve(method="screen", solver=solver, mode=mode, tol=1e-9)
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert report.recognised
    compare(answer(problem), truth)
    assert report.dropped > 10
    assert (fresh.w.value == 0).sum() >= report.dropped
    # The multipliers at a zero are a subgradient strictly inside, split between the two rows.
    left, right = (np.asarray(c.dual_value) for c in problem.constraints[2:])
    zero = fresh.w.value == 0
    assert np.allclose((left + right)[zero], 12.0)
    assert (np.abs(left - right)[zero] < 12.0).all()


def test_the_reduced_problem_has_fewer_variables() -> None:
    data = Wide()
    problem = data.problem("squared")
    reduced = cvxpy_plugin.reduce(problem)
    screening = reduced.screening
    assert screening.dropped.sum() > 10
    sizes = [v.size for v in reduced.problem.variables()]
    assert 40 - screening.dropped.sum() in sizes
    assert 40 not in sizes
    reduced.problem.solve(solver="CLARABEL", **TIGHT)
    assert reduced.restore(tol=1e-8).ok
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert report.dropped == screening.dropped.sum()
    found = answer(problem)
    problem.solve(solver="CLARABEL", **TIGHT)
    compare(found, answer(problem))


def test_what_is_recognised_is_said() -> None:
    text = cvxpy_plugin.explain(Wide().problem("hinge"))
    assert text.shrunk == 40
    assert text.terms == {"hinge": 120}
    assert "under an L1 norm" in str(text)


def test_both_weights_may_change() -> None:
    """Costs alone: the rules do not run again, and the L1 norm follows its parameter."""
    data = Wide()
    norm = cp.Parameter(nonneg=True, value=12.0)
    problem = data.problem("squared", norm)
    for value in (12.0, 5.0, 20.0):
        norm.value = value
        problem.solve(method="screen", solver="CLARABEL", **TIGHT)
        assert problem.solver_stats.extra_stats["cvxscreen"].dropped > 0
        found = answer(problem)
        problem.solve(solver="CLARABEL", **TIGHT)
        compare(found, answer(problem))


@pytest.mark.parametrize("constraint", ["none", "bound", "intercept", "mixed"])
def test_where_features_cannot_be_screened_nothing_changes(constraint: str) -> None:
    data = Wide()
    more, extra = [], 0.0
    hinge = cp.sum(cp.pos(1 - data.margin))
    if constraint == "bound":
        more = [data.w >= -1]
    elif constraint == "intercept":
        hinge = cp.sum(cp.pos(1 - data.margin - cp.multiply(data.y, cp.Variable())))
    elif constraint == "mixed":
        extra = cp.square(data.w[0] + data.w[1])
    problem = cp.Problem(cp.Minimize(data.square + hinge + 3 * cp.norm1(data.w) + extra), more)
    found = recognise(problem).problem
    assert isinstance(found.penalty, L1) == (constraint == "none")
    assert found.n == (120 if constraint == "none" else 160)


def test_a_kink_elsewhere_is_a_loss() -> None:
    """Only ``|w_j|`` itself is part of the norm; ``|w_j - 1|`` is not."""
    data = Wide()
    hinge = cp.sum(cp.pos(1 - data.margin))
    problem = cp.Problem(cp.Minimize(data.square + hinge + 3 * cp.norm1(data.w - 1)))
    found = recognise(problem).problem
    assert found.penalty is None
    assert found.n == 160


def test_a_wrong_share_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The self check compares the multipliers of the norm's rows with the gradient."""
    original = L1Terms.slopes

    def wrong(self: L1Terms, theta: Any, penalty_subgradient: Any) -> Any:
        return original(self, theta, 0.5 * penalty_subgradient)

    monkeypatch.setattr(L1Terms, "slopes", wrong)
    explanation = cvxpy_plugin.explain(Wide().problem("hinge"))
    assert not explanation.recognised
    assert "multipliers" in explanation.reasons[0]


def test_several_terms_share_one_coordinate() -> None:
    """``3|w_0| + 2 max(0, 2 w_0) + max(0, -w_0)``: kappa 5.5, tilt 1.5."""
    data = Wide()
    w = data.w
    extra = 3 * cp.abs(w[0]) + 2 * cp.pos(2 * w[0]) + cp.neg(w[0])
    loss = cp.sum_squares(cp.pos(1 - data.margin))
    found: Recognition = recognise(cp.Problem(cp.Minimize(data.square + loss + extra)))
    problem = found.problem
    assert isinstance(problem.penalty, L1)
    first = int(np.flatnonzero(found.core == found.core.min())[0])
    assert problem.penalty.kappa[first] == pytest.approx(5.5)
    assert problem.linear[first] == pytest.approx(1.5)
    assert (np.delete(problem.penalty.kappa, first) == 0).all()


def _many_columns(name: str) -> tuple[Any, dict[str, Any]]:
    """Losses of 40 rows and 330 columns under an L1 norm, with an intercept."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((40, 330))
    y = X[:, :3].sum(axis=1) + 0.3 * rng.standard_normal(40)
    labels, w, b = np.where(y > 0, 1.0, -1.0), cp.Variable(330), cp.Variable()
    r, u = y - X @ w - b, cp.Variable(330, nonneg=True)
    cost = {
        "absolute": cp.norm1(r) + 4.0 * cp.norm1(w),
        "quantile": cp.sum(cp.maximum(0.8 * r, -0.2 * r)) + 2.0 * cp.norm1(w),
        "hinge": cp.sum(cp.pos(1 - cp.multiply(labels, X @ w + b))) + 2.0 * cp.norm1(w),
        "huber": cp.sum(cp.huber(r, 0.5)) + 3.0 * cp.norm1(w),
        "bounded": cp.norm1(y - X @ u - b) + 4.0 * cp.sum(u),
    }[name]
    return cp.Problem(cp.Minimize(cost)), {"w": u if name == "bounded" else w, "b": b}


@pytest.mark.parametrize("name", ["absolute", "quantile", "hinge", "huber", "bounded"])
def test_of_more_columns_than_terms_most_are_left_out(name: str) -> None:
    """They were called as many as the terms, and nothing was left out."""
    problem, parts = _many_columns(name)
    value = problem.solve(solver="CLARABEL", **TIGHT)
    known = parts["w"].value.copy()
    found = problem.solve(method="screen", always=True)
    report = cvxpy_plugin.request.Report.of(problem)
    assert report.recognised
    # Bounds that hold columns are no terms of the user's.
    assert report.kept <= (report.terms if name == "bounded" else 0.6 * report.terms)
    assert problem.status == "optimal"
    assert found == pytest.approx(value, rel=1e-7)
    np.testing.assert_allclose(parts["w"].value, known, atol=1e-5)


def test_in_safe_mode_columns_are_no_reason_to_screen() -> None:
    """Nothing proves that they are 0."""
    problem, _ = _many_columns("absolute")
    problem.solve(method="screen", mode="safe", always=True, solver="CLARABEL")
    report = cvxpy_plugin.request.Report.of(problem)
    assert not report.recognised
    assert "prediction alone" in report.reason


@pytest.mark.parametrize("loss", ["hinge", "quantile", "huber"])
def test_beside_an_intercept_kinks_go_to_the_interior_point_method(loss: str) -> None:
    """Columns of different units, too, where Newton's method over smoothed losses crawls."""
    rng = np.random.default_rng(3)
    standard, d = rng.standard_normal((3000, 6)), 6
    data = standard * 10.0 ** np.linspace(-1, 2, d)
    y = standard @ rng.standard_normal(d) + rng.standard_t(3, 3000)

    def made() -> Any:
        w, b = cp.Variable(d), cp.Variable()
        fitted = data @ w + b
        losses = {
            "hinge": lambda: cp.pos(1 - cp.multiply(np.sign(y), fitted)),
            "quantile": lambda: cp.maximum(0.8 * (y - fitted), -0.2 * (y - fitted)),
            "huber": lambda: cp.huber(y - fitted, 0.5),
        }[loss]()
        penalty = cp.norm1(w) + 0.5 * cp.sum_squares(w)
        return cp.Problem(cp.Minimize(10 * cp.sum(losses) / 3000 + penalty))

    screened, plain = made(), made()
    problem = recognise(screened).problem
    assert (engine(problem).name == "interior_point") is (loss != "huber")
    assert compiled_path(problem, "auto") is (loss == "huber")
    screened.solve(method="screen", always=True)
    assert cvxscreen.Report.of(screened).recognised
    plain.solve("CLARABEL", **TIGHT)
    assert screened.value == pytest.approx(plain.value, rel=1e-8)
    for ours, theirs in zip(screened.variables(), plain.variables(), strict=True):
        np.testing.assert_allclose(ours.value, theirs.value, atol=1e-6)
