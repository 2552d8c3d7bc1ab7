"""More columns than rows: those that an L1 norm or bounds hold at 0 are left out, whatever else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import cvxscreen as cs
from cvxscreen.cvxpy_plugin.size import measure

N, D = 40, 330
TIGHT = ("tol_gap_abs", "tol_gap_rel", "tol_feas")

LOSSES: dict[str, tuple[Callable[[Any], Any], float]] = {
    "squares": (lambda e: 0.5 * cp.sum_squares(e), 15.0),
    "absolute": (lambda e: cp.norm1(e), 8.0),
    "huber": (lambda e: cp.sum(cp.huber(e, 0.5)), 8.0),
    "quantile": (lambda e: cp.sum(cp.maximum(0.8 * e, -0.2 * e)), 4.0),
}
"""Losses of residuals, and a weight of the norm under which few columns are not 0."""

ROWS = np.random.default_rng(5).standard_normal((3, D))


def slack(w: Any) -> tuple[Any, list[Any]]:
    t = cp.Variable(D)
    return cp.sum(t), [t >= cp.abs(w)]


def two_slacks(w: Any) -> tuple[Any, list[Any]]:
    t = cp.Variable(D)
    return cp.sum(t), [-t <= w, w <= t]


def split(w: Any) -> tuple[Any, list[Any]]:
    u, v = cp.Variable(D, nonneg=True), cp.Variable(D, nonneg=True)
    return cp.sum(u) + cp.sum(v), [w == u - v]


def within(
    *constraints: Callable[[Any], Any], share: float = 0.0, norm: Callable[[Any], Any] = cp.norm1
) -> Callable[[Any], Any]:
    """An L1 norm, perhaps with squares, and constraints beside it."""
    def spelled(w: Any) -> tuple[Any, list[Any]]:
        penalty = norm(w) + (share * cp.sum_squares(w) if share else 0.0)
        return penalty, [constraint(w) for constraint in constraints]
    return spelled


HELD: dict[str, Callable[[Any], tuple[Any, list[Any]]]] = {
    "sum of 0": within(lambda w: cp.sum(w) == 0),
    "sum of 1": within(lambda w: cp.sum(w) == 1),
    "rows": within(lambda w: ROWS @ w <= 0.1, lambda w: ROWS[0] @ w >= -2.0),
    "equations": within(lambda w: ROWS @ w == np.array([0.5, -1.0, 2.0])),
    "sign and rows": within(lambda w: w >= 0, lambda w: ROWS @ w <= 0.1, norm=cp.sum),
    "elastic net": within(share=0.05),
    "elastic net, sum": within(lambda w: cp.sum(w) == 0, share=0.05),
    "elastic net, sign": within(lambda w: w >= 0, share=0.05, norm=cp.sum),
    "slack": slack,
    "two slacks": two_slacks,
    "split": split,
}


def problem(loss: str, held: str, intercept: bool = True, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, D))
    y = X[:, :3] @ np.array([2.0, -1.5, 1.0]) + 1.0 + 0.3 * rng.standard_normal(N)
    w, b = cp.Variable(D, name="w"), cp.Variable(name="b")
    make, weight = LOSSES[loss]
    penalty, constraints = HELD[held](w)
    e = X @ w + (b if intercept else 0.0) - y
    return cp.Problem(cp.Minimize(make(e) + weight * penalty), constraints)


def same(
    found: Any, plain: Any, duals: bool = True, tight: float = 1e-11, near: float = 2e-4
) -> Any:
    """Solve both and compare; the report of the screened one."""
    plain.solve(solver="CLARABEL", **dict.fromkeys(TIGHT, tight))
    found.solve(method="screen", always=True)
    report = cs.Report.of(found)
    assert report.recognised, report.reason
    assert (found.status, plain.status) == ("optimal", "optimal")
    assert found.value == pytest.approx(plain.value, rel=1e-7)
    names = {v.name(): v.value for v in plain.variables() if v.name() in ("w", "b")}
    for variable in found.variables():
        if variable.name() in names:
            other = names[variable.name()]
            np.testing.assert_allclose(variable.value, other, atol=0.1 * near)
    for one, other in zip(found.constraints, plain.constraints, strict=True):
        if duals:
            several = isinstance(one.dual_value, list)  # of a cone: its head's and the others
            pairs = zip(one.dual_value, other.dual_value, strict=True) if several else (
                (one.dual_value, other.dual_value),)
            for mine, theirs in pairs:
                np.testing.assert_allclose(np.ravel(mine), np.ravel(theirs), atol=near)
    return report


@pytest.mark.table
@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("loss", LOSSES)
def test_values_and_dual_values_are_those_of_a_plain_solve(loss: str, held: str) -> None:
    report = same(problem(loss, held), problem(loss, held))
    assert report.relative_gap <= 1e-8


@pytest.mark.parametrize("loss", LOSSES)
def test_a_simplex_of_more_assets_than_days(loss: str) -> None:
    rng = np.random.default_rng(3)
    returns = rng.standard_normal((N, D))
    target = returns @ rng.dirichlet(np.ones(D)) + rng.standard_normal(N)

    def tracking() -> Any:
        w = cp.Variable(D, name="w")
        cost = LOSSES[loss][0](returns @ w - target)
        return cp.Problem(cp.Minimize(cost), [w >= 0, cp.sum(w) == 1, w <= 0.2])

    same(tracking(), tracking())


LENGTHS: dict[str, Callable[[Any, Any], tuple[Any, list[Any]]]] = {
    "square-root lasso": lambda w, e: (cp.norm(e) + 1.5 * cp.norm1(w), []),
    "beside a sum": lambda w, e: (cp.norm(e) + 1.5 * cp.norm1(w), [cp.sum(w) == 1]),
    "denoising": lambda w, e: (cp.norm1(w), [cp.norm(e) <= 8.0]),
    "squares in a constraint": lambda w, e: (cp.norm1(w), [cp.sum_squares(e) <= 60.0]),
}


@pytest.mark.parametrize("name", LENGTHS)
def test_a_norm_of_residuals_is_a_loss_beside_an_l1_norm(name: str) -> None:
    def made() -> Any:
        rng = np.random.default_rng(2)
        X, w = rng.standard_normal((N, D)), cp.Variable(D, name="w")
        y = X[:, :3] @ np.array([2.0, -1.5, 1.0]) + rng.standard_normal(N)
        cost, constraints = LENGTHS[name](w, X @ w - y)
        return cp.Problem(cp.Minimize(cost), constraints)

    same(made(), made(), tight=1e-9)
    if made().constraints:  # what has none is a lasso, as large as its squares
        assert measure(made()).columns == pytest.approx(N * N * D, rel=0.1)


def blocks(*more: Callable[[Any], Any], own: float = 0.0) -> Callable[[Any], Any]:
    """Norms of blocks of five, those of the first ones scaled, maybe an L1 norm and constraints."""
    def spelled(w: Any) -> tuple[Any, list[Any]]:
        norms = [cp.norm(w[i: i + 5] * (2.0 if i < 50 else 1.0)) for i in range(0, D, 5)]
        penalty = 1.2 * sum(norms) + (own * cp.norm1(w) if own else 0.0)
        return penalty, [constraint(w) for constraint in more]
    return spelled


def bounded_blocks(w: Any) -> tuple[Any, list[Any]]:
    t = cp.Variable(D // 5, name="t")
    return 2.0 * cp.sum(t), [cp.SOC(t, cp.reshape(w, (5, D // 5), order="F"))]


GROUPED: dict[str, Callable[[Any], tuple[Any, list[Any]]]] = {
    "blocks": blocks(),
    "rows": lambda w: (
        2.0 * cp.sum(cp.norm(cp.reshape(w, (D // 5, 5), order="C"), 2, axis=1)), []
    ),
    "mixed": lambda w: (2.0 * cp.mixed_norm(cp.reshape(w, (D // 5, 5), order="C"), 2, 1), []),
    "sparse blocks": blocks(own=0.3),
    "signs": blocks(lambda w: w >= 0),
    "sum": blocks(lambda w: cp.sum(w) == 1),
    "bounds of norms": bounded_blocks,
}


@pytest.mark.table
@pytest.mark.parametrize("held", GROUPED)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_group_lasso_is_solved_by_its_blocks(
    loss: str, held: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(HELD, held, GROUPED[held])
    found = problem(loss, held)
    # Blocks at 0 with signs share what balances them among norm and signs as they like; Clarabel's
    # own values are 2e-5 off, and come no further in three of these.
    report = same(found, problem(loss, held), duals=held != "signs", tight=3e-9, near=1e-3)
    assert report.solver == "builtin"
    assert any(np.abs(v.value).max() > 0.1 for v in found.variables() if v.name() == "w")
    assert report.relative_gap <= 1e-7
    assert measure(problem(loss, held)).columns > 0.0 or held == "bounds of norms"


def test_tasks_that_share_their_features_are_one_group_lasso() -> None:
    def made(penalty: Callable[[Any], Any]) -> Any:
        rng = np.random.default_rng(7)
        X, W = rng.standard_normal((N, D)), cp.Variable((D, 3), name="w")
        Y = X[:, :4] @ rng.standard_normal((4, 3)) + 0.1 * rng.standard_normal((N, 3))
        return cp.Problem(cp.Minimize(cp.sum_squares(X @ W - Y) + 25.0 * penalty(W)))

    for penalty in (
        lambda W: cp.mixed_norm(W, 2, 1), lambda W: cp.sum(cp.norm(W, 2, axis=1)),
        lambda W: sum(cp.norm(W[j]) for j in range(D)),
    ):
        same(made(penalty), made(penalty), tight=1e-10)
        assert measure(made(penalty)).columns == pytest.approx(3 * N * N * D * 3, rel=0.25)


def slacks(w: Any) -> tuple[Any, list[Any]]:
    u = cp.Variable(D)
    return 0.0, [cp.sum(u) <= 2.0, -u <= w, w <= u]


def parametric(w: Any) -> tuple[Any, list[Any]]:
    return 0.0, [cp.norm1(w) <= cp.Parameter(nonneg=True, value=2.0)]


def budget(
    norm: Callable[[Any], Any], *more: Callable[[Any], Any], level: float = 2.0
) -> Callable[[Any], Any]:
    """No penalty, but a sum of norms below a level, and constraints beside it."""
    return lambda w: (0.0, [norm(w) <= level, *(constraint(w) for constraint in more)])


def added(w: Any) -> Any:
    return sum(cp.norm(w[i: i + 5]) for i in range(0, D, 5))


WEIGHTS = np.random.default_rng(6).uniform(0.5, 2.0, D)

BUDGETS: dict[str, Callable[[Any], tuple[Any, list[Any]]]] = {
    "norm1": budget(cp.norm1),
    "weighed": budget(lambda w: cp.sum(cp.multiply(WEIGHTS, cp.abs(w)))),
    "inside": budget(lambda w: cp.norm1(cp.multiply(WEIGHTS, w))),
    "Parameter": parametric,
    "slacks": slacks,
    "with a sum": budget(cp.norm1, lambda w: cp.sum(w) == 0.5),
    "with rows": budget(cp.norm1, lambda w: ROWS @ w <= 0.1, lambda w: ROWS[0] @ w >= -2.0),
    "two": budget(lambda w: cp.norm1(w[:200]), lambda w: cp.norm1(w[200:]) <= 0.5),
    "blocks": budget(added),
    "rows": budget(lambda w: cp.sum(cp.norm(cp.reshape(w, (D // 5, 5), order="C"), 2, axis=1))),
    "mixed": budget(lambda w: cp.mixed_norm(cp.reshape(w, (D // 5, 5), order="C"), 2, 1)),
    "blocks, sum": budget(added, lambda w: cp.sum(w) == 0.5),
    "blocks, L1 norm": lambda w: (0.3 * cp.norm1(w), [added(w) <= 2.0]),
}


@pytest.mark.table
@pytest.mark.parametrize("held", BUDGETS)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_budget_holds_columns_as_a_penalty_does(
    loss: str, held: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(HELD, held, BUDGETS[held])
    monkeypatch.setitem(LOSSES, loss, (LOSSES[loss][0], 1.0))
    found = problem(loss, held, intercept=loss != "huber")
    blocked = held in ("rows", "mixed") or "blocks" in held
    # Clarabel's own dual values are off by 1e-4 below cones.
    report = same(
        found, problem(loss, held, intercept=loss != "huber"), tight=3e-9 if blocked else 1e-10,
        near=3e-3 if blocked else 1e-3,
    )
    assert report.solver == "builtin"
    assert report.relative_gap <= 1e-7
    (size, *_), k = found.constraints[0].shape or (1,), int(held == "slacks")
    assert size == 1
    assert float(np.ravel(found.constraints[0].dual_value)[0]) > 0.1  # the budget is tight
    assert found.constraints[k].dual_value is not None
    # From the expressions alone; of slacks and of two halves it is not seen how few there are.
    assert measure(problem(loss, held)).columns > 0.0 or held in ("slacks", "two")


@pytest.mark.parametrize("norm", [cp.norm1, added])
def test_other_levels_of_a_budget_are_other_problems(norm: Callable[[Any], Any]) -> None:
    def made() -> Any:
        level = cp.Parameter(nonneg=True, name="level")
        X = np.random.default_rng(3).standard_normal((N, D))
        w = cp.Variable(D, name="w")
        cost = cp.sum_squares(X @ w - X[:, :3] @ np.array([2.0, -1.5, 1.0]))
        return cp.Problem(cp.Minimize(cost), [norm(w) <= level]), level

    (found, one), (plain, other) = made(), made()
    for level in (0.5, 2.0, 1.5):
        one.value = other.value = level
        same(found, plain, tight=1e-8, near=3e-3)


def test_a_loose_budget_is_left_to_cvxpy_or_ends_at_nothing() -> None:
    """As soon as few columns fit the data there is nothing to gain; the budget costs nothing."""
    X, w = np.random.default_rng(3).standard_normal((N, D)), cp.Variable(D)
    whole = cp.Problem(cp.Minimize(cp.norm1(X @ w - X[:, 0])), [cp.norm1(w) <= 30.0])
    whole.solve(method="screen", always=True)
    report = cs.Report.of(whole)
    assert report.recognised
    assert whole.value == pytest.approx(0.0, abs=1e-9)
    assert whole.constraints[0].dual_value == 0.0


def test_what_takes_long_within_a_budget_is_left_to_cvxpy(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a share of what a plain solve takes, whatever that of a penalty may be."""
    monkeypatch.setattr("cvxscreen.cvxpy_plugin.plugin.LEAST", 1e-6)
    monkeypatch.setattr("cvxscreen.cvxpy_plugin.plugin.OF_BUDGET", 0.0)
    monkeypatch.setattr("cvxscreen.cvxpy_plugin.plugin.CROWDED", 2.0)
    monkeypatch.setattr("cvxscreen.cvxpy_plugin.request.STEP_ASIDE", True)
    monkeypatch.setattr("cvxscreen.cvxpy_plugin.size.BLOCKS", 0.0)
    monkeypatch.setitem(HELD, "blocks", BUDGETS["blocks"])
    found = problem("absolute", "blocks")
    found.solve(method="screen")
    report = cs.Report.of(found)
    assert not report.recognised
    assert "as long as a plain solve" in report.reason


@pytest.mark.parametrize("left", [
    lambda w: cp.norm1(w) + cp.exp(w[0]) <= 2.0, lambda w: cp.norm_inf(w) + cp.norm1(w) <= 2.0,
    lambda w: cp.norm1(w) <= w[0] + 2.0, lambda w: cp.norm1(w[1:] - w[:-1]) <= 2.0,
    lambda w: cp.norm(w) <= 2.0,
])
def test_the_size_knows_no_other_budgets(left: Callable[[Any], Any]) -> None:
    w = cp.Variable(D)
    cost = cp.norm1(np.ones((N, D)) @ w - 1.0)
    assert measure(cp.Problem(cp.Minimize(cost), [left(w)])).columns == 0.0
    assert measure(cp.Problem(cp.Minimize(cost), [cp.norm1(w) <= 2.0])).columns > 0.0


def test_a_group_lasso_without_a_feasible_point_or_an_end_says_so() -> None:
    w = cp.Variable(D)
    norms = sum(cp.norm(w[i: i + 5]) for i in range(0, D, 5))
    cost = cp.sum_squares(np.random.default_rng(0).standard_normal((N, D)) @ w - 1.0)
    for objective, constraints, status in (
        (cost + norms, [cp.sum(w) == 1, w <= -1.0], "infeasible"),
        (cost + norms - 3.0 * cp.sum(w), [], "unbounded"),
    ):
        found = cp.Problem(cp.Minimize(objective), constraints)
        found.solve(method="screen", always=True)
        assert found.status == status


def test_small_group_lassos_are_left_to_cvxpy() -> None:
    """And so are norms of what is not a part of the coefficients, or of most of them."""
    def size(norm: Callable[[Any], Any], n: int = N) -> Any:
        w = cp.Variable(D)
        cost = cp.sum_squares(np.ones((n, D)) @ w - 1.0)
        return measure(cp.Problem(cp.Minimize(cost + norm(w))))

    assert size(lambda w: sum(cp.norm(w[i: i + 5]) for i in range(0, D, 5))).columns > 0.0
    assert size(lambda w: sum(cp.norm(w[i: i + 5]) for i in range(0, D, 5))).why_not()
    assert size(lambda w: sum(cp.norm(w[i: i + 5]) for i in range(0, 100, 5))).columns == 0.0
    assert size(lambda w: cp.norm(w)).columns == 0.0
    assert size(lambda w: sum(cp.norm(w[i: i + 5]) for i in range(0, D, 5)), D).columns == 0.0


def test_basis_pursuit_is_solved_by_its_dual() -> None:
    """As many equations as the data have rows: no columns go, and small ones are left to CVXPY."""
    rng = np.random.default_rng(2)
    X, w = rng.standard_normal((N, D)), cp.Variable(D)
    pursuit = cp.Problem(cp.Minimize(cp.norm1(w)), [X @ w == X[:, :5] @ np.ones(5)])
    assert measure(pursuit).columns == 0.0
    assert measure(pursuit).why_not()
    value = pursuit.solve(solver=cp.CLARABEL)
    assert pursuit.solve(method="screen", always=True) == pytest.approx(value, rel=1e-6)
    assert pursuit.solver_stats.extra_stats["cvxscreen"].terms == 2 * D


def test_without_a_feasible_point_the_status_says_so() -> None:
    found = problem("squares", "sum of 1")
    w = next(v for v in found.variables() if v.name() == "w")
    impossible = cp.Problem(found.objective, [*found.constraints, w <= -1.0])
    impossible.solve(method="screen", always=True)
    assert impossible.status == "infeasible"


def test_constraints_that_few_columns_cannot_satisfy_let_in_more() -> None:
    """Bounds of 1 / 200 on a sum of 1: at least 200 columns are not 0."""
    def spread() -> Any:
        rng = np.random.default_rng(1)
        w = cp.Variable(D, name="w", nonneg=True)
        cost = cp.sum_squares(rng.standard_normal((N, D)) @ w - rng.standard_normal(N))
        return cp.Problem(cp.Minimize(cost), [cp.sum(w) == 1, w <= 1 / 200])

    same(spread(), spread(), duals=False)


@pytest.mark.parametrize(("loss", "held"), [
    ("squares", "sum of 0"), ("absolute", "sum of 0"), ("squares", "elastic net"),
    ("absolute", "elastic net"), ("huber", "elastic net"), ("squares", "slack"),
    ("absolute", "two slacks"), ("squares", "split"), ("absolute", "rows"),
])
def test_the_size_tells_what_columns_are_held(loss: str, held: str) -> None:
    """From the expressions alone: entries of the data, times the rows, constraints among them."""
    size = measure(problem(loss, held))
    assert size.columns == pytest.approx(N * N * D, rel=0.25)
    assert size.curved == (loss != "absolute")


@pytest.mark.parametrize("held", ["slack", "two slacks", "sum of 0"])
def test_a_lasso_in_slacks_takes_compiled_loops(held: str) -> None:
    """As one that is written with its norm; with an intercept or constraints it takes none."""
    slacks = held != "sum of 0"
    assert measure(problem("squares", held, intercept=False)).compiled == slacks
    assert not measure(problem("squares", held)).compiled


def test_constraints_as_many_as_columns_leave_none_to_go() -> None:
    w = cp.Variable(D)
    cost = cp.norm1(np.ones((N, D)) @ w - 1.0) + cp.norm1(w)
    assert measure(cp.Problem(cp.Minimize(cost), [cp.sum(w) <= 1.0])).columns > 0.0
    assert measure(cp.Problem(cp.Minimize(cost), [cp.cumsum(w) <= 1.0])).columns == 0.0
    assert measure(cp.Problem(cp.Minimize(cost + cp.normNuc(cp.diag(w))))).columns == 0.0


def test_where_most_blocks_come_in_it_is_left_to_cvxpy_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long the plain solve may take: in the end all columns would be in."""
    monkeypatch.setattr("cvxscreen.cvxpy_plugin.plugin.most_seconds", lambda *_: 1000.0)
    monkeypatch.setattr("cvxscreen.cvxpy_plugin.request.STEP_ASIDE", True)
    monkeypatch.setattr("cvxscreen.cvxpy_plugin.size.BLOCKS", 0.0)
    rng = np.random.default_rng(8)
    X, w = rng.standard_normal((120, 400)), cp.Variable(400)
    y = X @ rng.standard_normal(400) + rng.standard_normal(120)
    cost = cp.norm1(X @ w - y) + 0.2 * sum(cp.norm(w[i: i + 5]) for i in range(0, 400, 5))
    whole = cp.Problem(cp.Minimize(cost))
    best = whole.solve(solver="CLARABEL")
    assert whole.solve(method="screen") == pytest.approx(best, rel=1e-6)
    report = cs.Report.of(whole)
    assert not report.recognised
    assert "about half of its columns" in report.reason
    assert whole.solve(method="screen", always=True) == pytest.approx(best, rel=1e-6)
    assert cs.Report.of(whole).recognised
