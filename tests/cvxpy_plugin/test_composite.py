"""Losses beside a convex part that is no sum of losses: kept verbatim, or maxima of many pieces."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from cvxpy_plugin.composite_zoo import BOTH, Data, Maker, problem_of

from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin.composite import recognise_composite, summands
from cvxscreen.cvxpy_plugin.recognise.loss_atoms import in_simpler_atoms
from cvxscreen.errors import NotScreenable

cvxpy_plugin.register()

TIGHT = {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12}
TIGHTER = {
    "CLARABEL": TIGHT,
    # With its own rho_x, SCS goes round and round three of these problems a hair above 1e-11.
    "SCS": {"eps_abs": 1e-11, "eps_rel": 1e-11, "max_iters": 500_000, "rho_x": 1e-3},
    "OSQP": {"eps_abs": 1e-11, "eps_rel": 1e-11, "max_iter": 500_000, "polishing": True},
    "HIGHS": {},  # its solver of quadratic programs has no tolerance to tighten
}


def duals(constraint: Any) -> list[Any]:
    value = constraint.dual_value
    return [np.array(part) for part in (value if isinstance(value, list) else [value])]


def answer(problem: Any) -> tuple[float, list[Any], list[Any]]:
    values = [np.array(v.value) for v in problem.variables()]
    return problem.value, values, [part for c in problem.constraints for part in duals(c)]


def plainly(problem: Any) -> tuple[float, list[Any], list[Any]]:
    """The plain solve as far as Clarabel gets, whether it calls that optimal or inaccurate."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Solution may be inaccurate")
        problem.solve(solver="CLARABEL", tol_gap_abs=1e-13, tol_gap_rel=1e-13, tol_feas=1e-13)
    assert problem.status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE)
    return answer(problem)


@cache
def plain_answer(name: str) -> Any:
    return plainly(problem_of(name))


def compare(found: Any, truth: Any, size: float = 1e-6) -> None:
    assert found[0] == pytest.approx(truth[0], rel=1e-7)
    for ours, theirs in zip(found[1] + found[2], truth[1] + truth[2], strict=True):
        assert np.abs(ours - theirs).max() <= size * max(1.0, np.abs(theirs).max())


@pytest.mark.table
@pytest.mark.parametrize("mode", ["certified", "safe"])
@pytest.mark.parametrize("name", BOTH)
def test_clarabel(name: str, mode: str) -> None:
    truth = plain_answer(name)
    problem = problem_of(name)
    problem.solve(method="screen", solver="CLARABEL", mode=mode, **TIGHT)
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert report.recognised, report.reason
    assert problem.status == cp.OPTIMAL
    assert report.relative_gap <= 1e-6
    assert report.beside
    # Beside a norm in its cone, 1e-13 in the value is 3e-6 in the point.
    compare(answer(problem), truth, size=5e-6 if name == "both" else 1e-6)
    if mode == "safe" and name != "logistic_intercept":
        assert report.kept < 0.6 * report.terms


def tied(name: str) -> Any:
    """With an equality, bounds and a norm ball, all of them active for most."""
    data = Data()
    objective, constraints = BOTH[name](data)
    x = data.W if any(v is data.W for v in objective.variables()) else data.w
    radius = 0.55 if x is data.w else 1.0
    rows = [x <= 0.25, cp.norm(cp.vec(x, order="F")) <= radius]
    if name != "slack_sum_fixed":  # which says so of every row
        rows.append(cp.sum(x) == 0.3)
    if name in ("exponential", "both"):
        constraints = [*constraints, data.b == 0.1]  # not determined otherwise
    least = objective if isinstance(objective, cp.Maximize) else cp.Minimize(objective)
    return cp.Problem(least, [*constraints, *rows])


@cache
def tied_answer(name: str) -> Any:
    return plainly(tied(name))


@pytest.mark.table
@pytest.mark.parametrize("solver", ["CLARABEL", "SCS"])
@pytest.mark.parametrize("name", BOTH)
def test_every_dual_value(name: str, solver: str) -> None:
    """Of constraints that stay beside what is screened, at tight tolerances on both sides."""
    problem = tied(name)
    problem.solve(method="screen", solver=solver, mode="safe", **TIGHTER[solver])
    assert problem.solver_stats.extra_stats["cvxscreen"].recognised
    assert problem.status == cp.OPTIMAL
    truth = tied_answer(name)
    assert max(np.abs(part).max() for part in truth[2]) > 0.1
    compare(answer(problem), truth)


@pytest.mark.parametrize("name", ["norm", "nuclear", "exponential", "slack", "three_rows", "both"])
def test_scs(name: str) -> None:
    problem = problem_of(name)
    problem.solve(method="screen", solver="SCS", mode="safe", **TIGHTER["SCS"])
    assert problem.solver_stats.extra_stats["cvxscreen"].recognised
    assert problem.status == cp.OPTIMAL
    compare(answer(problem), plain_answer(name))


@pytest.mark.parametrize("solver", ["OSQP", "HIGHS"])
@pytest.mark.parametrize("name", ["crammer_singer", "slack_sum_fixed", "largest_entry"])
def test_quadratic_programs(name: str, solver: str) -> None:
    problem = problem_of(name)
    problem.solve(method="screen", solver=solver, mode="safe", **TIGHTER[solver])
    assert problem.solver_stats.solver_name == solver
    assert problem.solver_stats.extra_stats["cvxscreen"].recognised
    size = 2e-6 if solver == "HIGHS" else 1e-6
    compare(answer(problem), plain_answer(name), size=size)


@pytest.mark.parametrize("name", ["norm", "slack", "logistic_intercept"])
def test_many_terms_are_predicted_away(name: str) -> None:
    data, again = Data(n=2500), Data(n=2500)
    problem = problem_of(name, data)
    problem.solve(method="screen", solver="CLARABEL", **TIGHT)
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert report.recognised
    assert report.kept < report.terms
    compare(answer(problem), plainly(problem_of(name, again)), size=1e-5)


def test_explain_names_the_part() -> None:
    text = cvxpy_plugin.explain(problem_of("norm"))
    assert text.recognised
    assert text.terms == {"hinge": 50}
    assert "kept as it is: " in text.beside[0]
    assert "norm" in str(text).lower()
    assert cvxpy_plugin.explain(problem_of("slack")).beside == ("50 maxima of 200 affine pieces",)


REFUSED: dict[str, tuple[Maker, str]] = {
    "own_variable": (lambda s: (
        s.ridge + s.hinge + cp.norm(cp.hstack([s.w, s.b])), []), "variable b|not squared|square"),
    "intercepts": (lambda s: (
        s.square + cp.sum(cp.max(s.scores + cp.reshape(
            cp.Variable(4), (1, 4), order="F") + 1 - s.Y, axis=1) - s.own), []), "not square"),
    "nothing_else": (lambda s: (s.ridge + cp.norm(s.X @ s.w - s.r, 3), []), "no loss"),
    "shared_budget": (lambda s: (
        s.ridge + cp.sum(s.xi) + cp.norm(s.w), [s.margin >= 1 - s.xi, s.xi >= 0,
                                                cp.sum(s.xi) <= 5]), "shared"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_certified_is_solved_plainly(name: str) -> None:
    """Or without the proofs: a norm of unpenalised coordinates is a side constraint then."""
    make, words = REFUSED[name]
    objective, constraints = make(Data())
    problem = cp.Problem(cp.Minimize(objective), constraints)
    with pytest.raises(NotScreenable, match=words):
        recognise_composite(problem)
    value = problem.solve(method="screen", solver="CLARABEL")
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert report.recognised == (name == "own_variable")
    assert value == pytest.approx(problem.solve(solver="CLARABEL"), rel=1e-6)


def test_the_summands_add_up() -> None:
    data = Data()
    lam = cp.Parameter(value=0.7)
    expr = 2 * (data.hinge - (3 - cp.norm(data.w)) * lam) / 4 + data.ridge - data.w[0]
    data.w.value = np.arange(4.0)
    parts = list(summands(expr))
    assert len(parts) >= 4
    assert sum(float(part.value) for part in parts) == pytest.approx(float(expr.value))


def test_statuses_are_those_of_cvxpy() -> None:
    data = Data()
    bad = cp.Problem(
        cp.Minimize(data.ridge + data.hinge + cp.norm(data.w)), [data.w >= 1, data.w <= 0]
    )
    assert bad.solve(method="screen") == np.inf
    assert bad.status == cp.INFEASIBLE
    free = cp.Problem(cp.Minimize(
        data.ridge + cp.sum(cp.pos(1 - data.X @ data.w - data.b)) - data.b + cp.norm(data.w)))
    assert free.solve(method="screen") == -np.inf
    assert free.status == cp.UNBOUNDED
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        short, plain = problem_of("slack_sum_fixed"), problem_of("slack_sum_fixed")
        short.solve(method="screen", solver="SCS", max_iters=3)
        plain.solve(solver="SCS", max_iters=3)
    assert short.status == plain.status != cp.OPTIMAL


@pytest.mark.parametrize("part", ["norm", "groups", "logistic"])
def test_what_stands_beside_is_approached_before_anything_is_left_out(part: str) -> None:
    rng = np.random.default_rng(5)
    n, d = 4000, 12
    X = rng.standard_normal((n, d))
    y = np.sign(X @ rng.standard_normal(d) + rng.standard_normal(n))

    def made() -> Any:
        w = cp.Variable(d)
        beside = {
            "norm": lambda: 30 * cp.norm(w),
            "groups": lambda: 30 * cp.norm(w[:4]) + 90 * cp.norm(w[4:8]),
            "logistic": lambda: cp.sum(cp.logistic(X[:200] @ w)),
        }[part]()
        loss = cp.sum(cp.pos(1 - cp.multiply(y, X @ w)))
        return cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + loss + beside))

    found, truth = made(), made()
    found.solve(method="screen")
    report = found.solver_stats.extra_stats["cvxscreen"]
    assert report.recognised, report.reason
    assert report.rounds == 1
    assert report.kept <= 0.2 * n
    compare(answer(found), plainly(truth), size=1e-5)


def test_a_part_without_a_value_at_the_first_point_is_taken_all_the_same() -> None:
    rng = np.random.default_rng(6)
    X, w = rng.standard_normal((600, 4)), cp.Variable(4)
    cost = cp.sum_squares(w) + cp.norm1(X @ w - 1) - cp.log(w[0] + w[1] - 2)
    found = cp.Problem(cp.Minimize(cost))
    assert found.solve(method="screen") == pytest.approx(found.solve("CLARABEL"), rel=1e-7)


@pytest.mark.parametrize("loss", ["huber", "squared hinge"])
@pytest.mark.parametrize("norm", ["one", "groups", "mixed"])
def test_smooth_losses_beside_norms_are_certified(loss: str, norm: str) -> None:
    """Multipliers are good to the solver's tolerance; slopes of smooth losses are exact."""
    rng = np.random.default_rng(6)
    X, w = rng.standard_normal((3_000, 10)), cp.Variable((5, 2))
    y, scores = X.sum(axis=1) + rng.standard_normal(3_000), X @ cp.vec(w, order="F")
    cost = {
        "huber": cp.sum(cp.huber(scores - y)),
        "squared hinge": cp.sum_squares(cp.pos(1 - cp.multiply(np.sign(y), scores))),
    }[loss]
    norms = {
        "one": cp.norm(w, "fro"),
        "groups": sum(cp.norm(w[k]) for k in range(5)),
        "mixed": cp.mixed_norm(w, 2, 1),
    }[norm]
    problem = cp.Problem(cp.Minimize(cost + 30 * norms + cp.sum_squares(w)))
    problem.solve(method="screen", always=True)
    report = cvxpy_plugin.Report.of(problem)
    assert report.recognised, report.reason
    assert report.relative_gap <= 1e-6
    ours = problem.value
    assert ours == pytest.approx(plainly(problem)[0], rel=1e-6)


@pytest.mark.parametrize(
    ("turned", "p", "atom"),
    [
        (False, 1, "norm1"), (True, "inf", "norm1"),
        (False, "inf", "norm_inf"), (True, 1, "norm_inf"),
    ],
)
def test_a_matrix_norm_of_one_column_or_row_is_a_vector_norm(
    turned: bool, p: Any, atom: str
) -> None:
    """The largest sum of a column's absolute values, of one column or of columns of one entry."""
    W = cp.Variable((4, 1))
    other = cp.Variable((4, 2))
    matrix = 2.0 * W.T - 1.0 if turned else 2.0 * W - 1.0
    written = in_simpler_atoms(cp.Problem(cp.Minimize(3.0 * cp.norm(matrix, p) + cp.max(W[0]))))
    assert {cp.max, getattr(cp, atom)} & set(written.atoms()) == {getattr(cp, atom)}
    W.value = np.array([[1.0], [-3.0], [0.5], [2.0]])
    rows = (2.0 * W.value - 1.0).T if turned else 2.0 * W.value - 1.0
    size = np.linalg.norm(rows, np.inf if p == "inf" else 1)
    assert written.objective.value == pytest.approx(3.0 * size + 1.0)
    for kept in (cp.norm(other, 1), cp.norm(other.T, "inf"), cp.max(W)):
        plain = cp.Problem(cp.Minimize(kept))
        assert in_simpler_atoms(plain) is plain


def test_an_absolute_value_of_norms_is_idle() -> None:
    """`mixed_norm` is read as a sum of norms; what may be negative keeps its sign."""
    W = cp.Variable((4, 3))
    norms, scores = cp.norm(W, 2, axis=1), cp.sum(W, axis=1)
    mixed = cp.Problem(cp.Minimize(cp.mixed_norm(W, 2, 1)), [cp.sum(cp.abs(norms)) <= 3])
    written = in_simpler_atoms(mixed)
    assert not {cp.norm1, cp.abs} & set(written.atoms())
    W.value = np.arange(12.0).reshape(4, 3) - 4
    assert written.objective.value == pytest.approx(mixed.objective.value)
    assert written.constraints[0].id == mixed.constraints[0].id
    for kept in (cp.norm1(scores), cp.sum(cp.abs(scores)), cp.norm1(cp.abs(scores) - 1)):
        plain = cp.Problem(cp.Minimize(kept))
        assert in_simpler_atoms(plain) is plain
