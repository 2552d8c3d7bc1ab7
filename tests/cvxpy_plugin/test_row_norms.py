"""Norms of rows, read off the objective: medians and facilities, other values of parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import cvxscreen
from cvxscreen.core.norm_blocks import norm_frame
from cvxscreen.core.problem import Problem
from cvxscreen.cvxpy_plugin import request
from cvxscreen.cvxpy_plugin.recognise.python_loops import vectorised
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise
from cvxscreen.cvxpy_plugin.recognise.row_norms import numbers_of, take_row_norms
from cvxscreen.cvxpy_plugin.size import measured
from cvxscreen.solvers.registry import has_norms

TIGHT = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}

# CVXPY says so of every broadcast.
pytestmark = pytest.mark.filterwarnings("ignore:The problem includes expressions that don't")


def points(seed: int = 0, n: int = 400, d: int = 2) -> Any:
    """Points of heavy tails."""
    rng = np.random.default_rng(seed)
    return rng.standard_t(3, (n, d)) @ rng.standard_normal((d, d))


def to_points(P: Any, x: Any) -> Any:
    """The distances of `x` from them."""
    return cp.norm(P - x, 2, axis=1)


def median() -> Any:
    """As it is broadcast."""
    return cp.Problem(cp.Minimize(cp.sum(to_points(points(), cp.Variable(2)))))


def weighted() -> Any:
    """Some weights are 0; the mean of distances besides."""
    P, x, w = points(d=3), cp.Variable(3), np.random.default_rng(1).uniform(0, 2, 400)
    w[:50] = 0.0
    loss = w @ to_points(P, x) / 3 + cp.mean(cp.norm(x - P, axis=1))
    return cp.Problem(cp.Maximize(-loss))


def outside() -> Any:
    """A polygon that holds the median away from where it would be."""
    x = cp.Variable(2)
    region = [x[0] + x[1] <= -1, x >= -2, x <= 2]
    return cp.Problem(cp.Minimize(cp.sum(to_points(points(), x))), region)


def in_a_corner() -> Any:
    """Bounds as an attribute, which hold all coordinates."""
    x = cp.Variable(2, bounds=[0.5, 3.0])
    return cp.Problem(cp.Minimize(cp.sum(to_points(points(), x))))


def on_a_line() -> Any:
    """An equation."""
    x = cp.Variable(2)
    return cp.Problem(cp.Minimize(cp.sum(to_points(points(), x))), [x[0] - 2 * x[1] == 1])


def pulled() -> Any:
    """A linear term."""
    x = cp.Variable(2)
    return cp.Problem(cp.Minimize(cp.sum(to_points(points(), x)) + 100 * x[0]))


def two_that_meet() -> Any:
    """Facilities that are drawn to the same place, and a bound."""
    P, x, y = points(), cp.Variable(2), cp.Variable(2)
    apart = cp.sum(to_points(P, x)) + 2 * cp.sum(to_points(P[:200], y))
    return cp.Problem(cp.Minimize(apart + 300 * cp.norm(x - y)), [x[0] <= 0.1])


def at_a_heavy_point() -> Any:
    """The median is a point."""
    x, w = cp.Variable(2), np.ones(400)
    w[7] = 400.0
    return cp.Problem(cp.Minimize(w @ to_points(points(), x)))


def on_twins() -> Any:
    """Each point ten times."""
    x = cp.Variable(2)
    return cp.Problem(cp.Minimize(cp.sum(to_points(np.repeat(points(n=40), 10, axis=0), x))))


def in_columns() -> Any:
    """Outputs by columns, rows of zeros among the data."""
    rng = np.random.default_rng(2)
    X, V = rng.standard_normal((300, 4)), cp.Variable((3, 4))
    X[:20] = 0.0
    Y = X @ rng.standard_normal((4, 3)) + rng.standard_t(2, (300, 3))
    return cp.Problem(cp.Minimize(cp.sum(cp.norm(V @ X.T - Y.T, 2, axis=0))), [V >= -0.5])


def in_a_loop() -> Any:
    """Single norms, each with a weight of its own, and a bound."""
    x, w = cp.Variable(2), np.random.default_rng(1).uniform(0.1, 2, 300)
    P = points(n=300)
    loss = sum(w[i] * cp.norm(x - P[i]) for i in range(300))
    return cp.Problem(cp.Minimize(loss), [x[0] >= 0.2])


def beside_huber() -> Any:
    """Losses of another kind over the same rows."""
    rng = np.random.default_rng(3)
    X, W = rng.standard_normal((300, 4)), cp.Variable((4, 3))
    Y = X @ rng.standard_normal((4, 3)) + rng.standard_t(2, (300, 3))
    loss = cp.sum(cp.norm(X @ W - Y, 2, axis=1)) + cp.sum(cp.huber(X @ W[:, 0] - Y[:, 0]))
    return cp.Problem(cp.Minimize(loss))


FORMS: list[Callable[[], Any]] = [
    median, weighted, outside, in_a_corner, on_a_line, pulled, two_that_meet, at_a_heavy_point,
    on_twins, in_columns, in_a_loop, beside_huber,
]


def assert_agree(problem: Any, other: Any) -> None:
    """Value, variables and dual values."""
    assert problem.value == pytest.approx(other.value, rel=1e-8)
    for ours, theirs in zip(problem.variables(), other.variables(), strict=True):
        np.testing.assert_allclose(ours.value, theirs.value, atol=2e-5)
    for one, two in zip(problem.constraints, other.constraints, strict=True):
        np.testing.assert_allclose(one.dual_value, two.dual_value, atol=2e-4)


@pytest.mark.parametrize("form", FORMS)
def test_answers_agree_with_clarabel(form: Callable[[], Any]) -> None:
    """At first, and again."""
    problem, other = form(), form()
    other.solve(solver="CLARABEL", **TIGHT)
    for _ in range(2):
        problem.solve(method="screen", always=True)
        report = cvxscreen.Report.of(problem)
        assert (report.recognised, report.solver) == (True, "builtin"), report
        assert report.relative_gap <= 1e-8
        assert_agree(problem, other)


@pytest.mark.parametrize("form", FORMS)
def test_the_numbers_are_those_of_the_norms(form: Callable[[], Any]) -> None:
    """At random values: the objective is what the rows' lengths and the rest come to."""
    problem = vectorised(form())
    rest, found, alone = take_row_norms(problem)
    assert sum(len(part.costs) for part in found) >= 300
    assert not {v.id for v in alone} & {v.id for v in rest.variables()}
    rng, column, start = np.random.default_rng(5), {}, 0
    z = []
    for variable in (*problem.variables(), *(part.bounds for part in found)):
        variable.save_value(rng.uniform(0.5, 1.0, variable.shape))
        column[variable.id], start = start, start + variable.size
        z.append(np.ravel(variable.value, order="F"))
    total = 0.0
    for part in found:
        rows = numbers_of(part, column, start).values(np.concatenate(z)).reshape(-1, part.height)
        np.testing.assert_allclose(rows[:, 0], part.bounds.value)
        total += part.costs @ np.linalg.norm(rows[:, 1:], axis=1)
    sign = -1.0 if isinstance(problem.objective, cp.Maximize) else 1.0
    left = 0.0 if rest.objective.expr.value is None else float(rest.objective.expr.value)
    assert left + sign * total == pytest.approx(problem.objective.expr.value, rel=1e-12)


def test_degenerate_points_are_solved_by_somebody() -> None:
    """All the same, all on a line, one and its copies."""
    for P in (np.tile([1.0, 2.0], (300, 1)), np.outer(np.arange(300.0), [1.0, 2.0])):
        x, y = cp.Variable(2), cp.Variable(2)
        problem = cp.Problem(cp.Minimize(cp.sum(to_points(P, x))))
        problem.solve(method="screen", always=True)
        truth = cp.Problem(cp.Minimize(cp.sum(to_points(P, y)))).solve("CLARABEL")
        assert problem.value == pytest.approx(truth, rel=1e-7, abs=1e-5)


def test_no_norms_are_taken_where_they_are_few_or_nonconvex() -> None:
    """Fewer than four a coordinate, weights of both signs, other norms."""
    X, W = np.random.default_rng(0).standard_normal((300, 50)), cp.Variable((50, 2))
    assert take_row_norms(cp.Problem(cp.Minimize(cp.sum(cp.norm(X @ W, axis=1)))))[1] == ()
    x, w = cp.Variable(2), np.where(np.arange(400) < 9, -1.0, 1.0)
    with pytest.raises(cp.error.DCPError):
        cp.Problem(cp.Minimize(w @ to_points(points(), x))).solve(method="screen", always=True)
    largest = cp.Problem(cp.Minimize(cp.sum(cp.norm(points() - x, "inf", axis=1))))
    assert take_row_norms(largest)[1] == ()


@pytest.mark.parametrize("change", [["weights"], ["ridge"], ["targets"], ["slope"],
                                    ["weights", "ridge", "slope"], ["targets", "ridge"]])
def test_other_values_of_a_parameter_start_from_the_last_optimum(change: list[str]) -> None:
    """And are as precise as at first, with some norms at 0 and a constraint that is active."""

    def made() -> tuple[Any, dict[str, Any]]:
        rng = np.random.default_rng(7)
        X, W = rng.standard_normal((300, 4)), cp.Variable((4, 3))
        Y = X @ rng.standard_normal((4, 3)) + rng.standard_t(2, (300, 3))
        given = {
            "weights": cp.Parameter(300, nonneg=True, value=np.ones(300)),
            "ridge": cp.Parameter(nonneg=True, value=1.0),
            "targets": cp.Parameter((300, 3), value=Y),
            "slope": cp.Parameter(value=1.0),
        }
        if "targets" in change:
            loss = cp.sum(cp.norm(X @ W - given["targets"], 2, axis=1))
        else:
            loss = given["weights"] @ cp.norm(X @ W - Y, 2, axis=1)
        loss = loss + given["ridge"] * cp.sum_squares(W) + given["slope"] * cp.sum(W)
        return cp.Problem(cp.Minimize(loss), [W <= 1.0]), given

    problem, given = made()
    other, same = made()
    problem.solve(method="screen", always=True)
    rng = np.random.default_rng(8)
    for _ in range(3):
        new = {
            "weights": rng.uniform(0.8, 1.2, 300), "ridge": rng.uniform(0.5, 2.0),
            "targets": given["targets"].value + 0.02 * rng.standard_normal((300, 3)),
            "slope": rng.uniform(-2, 2),
        }
        for name in change:
            given[name].value = same[name].value = new[name]
        problem.solve(method="screen", always=True)
        other.solve(solver="CLARABEL", **TIGHT)
        assert cvxscreen.Report.of(problem).solver == "builtin"
        assert_agree(problem, other)


@pytest.mark.parametrize("at_points", [False, True])
def test_a_start_takes_no_path(at_points: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights change a little: medians on an edge, or each at a point of its own, stay there."""
    from cvxscreen.solvers.interior_point import InteriorPoint

    def made() -> tuple[Any, Any]:
        x, y, w = cp.Variable(2), cp.Variable(2), cp.Parameter(400, nonneg=True, value=np.ones(400))
        P, apart = points(), np.ones(400)
        apart[7] = 400.0 if at_points else 1.0
        loss = w @ cp.multiply(apart, to_points(P, x))
        loss = loss + w @ cp.multiply(apart[::-1], to_points(P, y))
        edge = [] if at_points else [x[0] + x[1] <= -1]
        return cp.Problem(cp.Minimize(loss + 5 * cp.norm(x - y)), edge), w

    problem, w = made()
    problem.solve(method="screen", always=True)
    monkeypatch.setattr(InteriorPoint, "_follow", lambda *_: pytest.fail("a path was followed"))
    new = np.random.default_rng(0).uniform(0.9, 1.1, 400)
    w.value = new
    problem.solve(method="screen", always=True)
    other, w = made()
    w.value = new
    other.solve("CLARABEL", **TIGHT)
    assert cvxscreen.Report.of(problem).solver == "builtin"
    assert_agree(problem, other)


def test_sizes_that_pay_are_screened_and_others_left_to_cvxpy() -> None:
    """Medians from a few thousand points on, and none beside cones in constraints."""
    def of(n: int, *constraints: Callable[[Any], Any]) -> str:
        x = cp.Variable(2)
        distances = cp.sum(to_points(points(n=n), x))
        return measured(cp.Problem(cp.Minimize(distances), [c(x) for c in constraints])).why_not()

    assert of(500)
    assert not of(10_000)
    assert "small" in of(10_000, lambda x: x <= 3)  # the path along a bound takes longer
    assert not of(40_000, lambda x: x <= 3)
    x = cp.Variable(2)
    looped = cp.sum([cp.norm(x - p) for p in points(n=300)])
    assert not measured(cp.Problem(cp.Minimize(looped))).why_not()
    assert "cones in constraints" in of(10_000, lambda x: cp.norm(x) <= 1)


def test_blocks_are_told_apart_once_for_all_costs() -> None:
    """They hang on the constraints, which a change of costs leaves as they are."""
    problem = recognise(median()).problem
    assert has_norms(problem)
    other = Problem(
        design=problem.design, losses=problem.losses, quadratic=problem.quadratic,
        linear=2.0 * problem.linear, side=problem.side,
    )
    assert has_norms(other)
    frame = norm_frame(problem.side)
    assert frame is not None
    assert norm_frame(other.side) is frame
    np.testing.assert_array_equal(
        frame.blocks.matrix.toarray(), problem.side.matrix[frame.rows][:, frame.others].toarray()
    )


def test_an_explanation_counts_cones_that_are_alike() -> None:
    """Hundreds of norms are one line."""
    text = str(cvxscreen.explain(outside()))
    assert "side constraints (soc)" in text
    assert "400 of 3" in text
    assert len(text.splitlines()) < 12


@pytest.mark.parametrize("kind", ["norm_inf", "budget", "twice"])
def test_norms_that_cannot_pay_are_given_up_before_anything_is_solved(
    kind: str, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beside a bound of something else, and where a column stands twice."""
    from cvxscreen.cvxpy_plugin.plugin import _why_no_norms

    rng = np.random.default_rng(6)
    X, W = rng.standard_normal((300, 4)), cp.Variable((4, 2))
    X[:, 1] = X[:, 0] if kind == "twice" else X[:, 1]
    loss = cp.sum(cp.norm(X @ W - rng.standard_normal((300, 2)), axis=1))
    if kind == "norm_inf":
        loss = loss + 5 * cp.norm(W, "inf")
    problem = cp.Problem(cp.Minimize(loss), [cp.norm1(W) <= 1] if kind == "budget" else [])
    assert _why_no_norms(recognise(problem).problem)
    assert not _why_no_norms(recognise(median()).problem)
    monkeypatch.setattr(request, "STEP_ASIDE", True)
    monkeypatch.setattr(type(measured(problem)), "why_not", lambda *_: "")
    value = problem.solve(method="screen")
    assert "leaving some out cannot pay" in cvxscreen.Report.of(problem).reason
    assert value == pytest.approx(problem.solve("CLARABEL"), rel=1e-8)
