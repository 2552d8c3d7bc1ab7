"""Losses that constraints bound, as they are read: the plain answer, and what is not read so."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin.budgets import recognise_budgets
from cvxscreen.cvxpy_plugin.infeasible import least_coordinate
from cvxscreen.cvxpy_plugin.plugin import recognise_any
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise, with_losses_in_budgets
from cvxscreen.cvxpy_plugin.recognise.standard import Standard
from cvxscreen.errors import NotScreenable

cvxpy_plugin.register()

TIGHT = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}
N, D = 2_000, 5
RNG = np.random.default_rng(20261129)
OWN = RNG.standard_normal((N, D)) * RNG.uniform(0.5, 1.5, D)
R = 0.01 * (OWN + RNG.standard_t(4, N)[:, None]) + RNG.uniform(0, 0.002, D)
MEAN, SHARE = R.mean(axis=0), 0.05 * N
RISK = float(np.sort(-R.mean(axis=1))[-N // 20:].mean())
w, t, u = cp.Variable(D, name="w"), cp.Variable(name="t"), cp.Variable(N, name="u")
held = cp.Variable(N, nonneg=True, name="held")
LARGEST = float(np.sort(np.abs(R.mean(axis=1)))[-100:].sum())
WHOLE = [cp.sum(w) == 1, w >= 0]

READ: dict[str, list[Any]] = {
    "cvar": [cp.cvar(-R @ w, 0.95) <= RISK],
    "difference": [RISK - cp.cvar(-R @ w, 0.95) >= 0],
    "largest": [cp.sum_largest(-R @ w, 100) <= 100 * RISK],
    "largest_absolute": [cp.sum_largest(cp.abs(R @ w), 100) <= 1.2 * LARGEST],
    "level": [t + cp.sum(cp.pos(-R @ w - t)) / SHARE <= RISK],
    "slack": [u >= 0, u >= -R @ w - t, t + cp.sum(u) / SHARE <= RISK],
    "slack_with_a_sign": [held + t >= -R @ w, SHARE * t + cp.sum(held) <= SHARE * RISK],
    "deviation": [cp.mean(cp.abs(R @ w - MEAN @ w)) <= 0.4 * RISK],
    "short": [cp.sum(cp.pos(-R @ w)) <= 0.2 * N * RISK],
    "beside_a_norm": [cp.cvar(-R @ w, 0.95) + 1e-3 * cp.norm1(w - 0.2) <= RISK],
    "beside_a_maximum": [cp.cvar(-R @ w, 0.95) <= 1.2 * RISK - 0.01 * cp.max(w)],
    "with_a_norm": [cp.cvar(-R @ w, 0.95) <= RISK, cp.norm(w) <= 0.6],
    "maximum": [cp.max(-R @ w) <= float((-R.mean(axis=1)).max())],
    "columns": [cp.cvar(u, 0.95) <= RISK, u == -R @ w],
    "two": [cp.cvar(-R @ w, 0.95) <= RISK, cp.sum(cp.pos(-R[:900] @ w)) <= 180 * RISK],
}


def program(rows: list[Any], objective: Any = None) -> cp.Problem:
    sense = cp.Maximize(MEAN @ w - 1e-3 * cp.sum_squares(w)) if objective is None else objective
    return cp.Problem(sense, [*rows, *WHOLE])


def numbers(problem: cp.Problem) -> Standard:
    found = with_losses_in_budgets(problem)
    assert found is not None
    return found


@pytest.mark.parametrize("name", READ)
def test_the_plain_answer(name: str) -> None:
    problem = program(READ[name])
    assert numbers(problem).size <= 2 * D + 3  # no loss is a column
    for variable in problem.variables():
        variable.save_value(None)  # CVXPY 1.9 fails to compile `cvar` of known values
    problem.solve("CLARABEL", **TIGHT)
    value, duals = problem.value, [constraint.dual_value for constraint in problem.constraints]
    problem.solve(method="screen", always=True)
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert report.recognised, report.reason
    assert report.beside[0].startswith("a budget of")
    assert problem.value == pytest.approx(value, rel=1e-6)
    for constraint, right in zip(problem.constraints, duals, strict=True):
        assert np.max(constraint.violation()) <= 1e-9
        size = max(1e-3, float(np.abs(right).max()))
        assert np.abs(constraint.dual_value - right).max() <= 1e-3 * size


OTHERS: dict[str, cp.Problem] = {
    "linear": program([]),
    "coordinates": program([cp.norm1(w) <= 1.2]),
    "few": program([cp.sum(cp.pos(-R[:60] @ w)) <= RISK]),
    "curved": program([cp.sum(cp.huber(R @ w, 0.01)) <= N * RISK**2]),
    "paid_for": program(
        [u >= 0, u >= -R @ w, cp.sum(u) <= N * RISK], cp.Minimize(cp.sum_squares(u) - MEAN @ w)
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_read_as_before(name: str) -> None:
    assert with_losses_in_budgets(OTHERS[name]) is None


@pytest.mark.parametrize("rows", [
    lambda v: [cp.sum(v) <= 1.0], lambda v: [cp.norm1(v - 0.1) <= 0.3],
    lambda v: [cp.sum_squares(v) <= 1.0, MEAN @ w >= 0.0],
])
def test_few_losses_are_seen_without_a_reading(
    rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounds of many coordinates are no budgets: nothing is canonicalised to find that out."""
    monkeypatch.setattr("cvxscreen.cvxpy_plugin.recognise.recognise.canonicalise", None)
    assert with_losses_in_budgets(program(rows(cp.Variable(300)))) is None


def test_no_other_form_sees_numbers_without_their_losses() -> None:
    """What budgets do not take is read once more, whole."""
    with pytest.raises(NotScreenable, match="constraints"):
        recognise(program(READ["cvar"]))
    many = [cp.cvar(-R[k::9] @ w, 0.95) <= 2 * RISK for k in range(9)]
    with suppress(NotScreenable):
        assert not recognise_any(program(many)).standard.budgets


@pytest.mark.parametrize("where", ["losses", "rest", "objective"])
def test_another_reading_is_refused(where: str) -> None:
    standard = numbers(program(READ["deviation"]))
    canonical, (row,) = standard.canonical, (row for row in standard.budgets if row >= 0)
    rows, linear = standard.rows, standard.linear.copy()
    if where == "losses":
        groups = tuple(group.times(1.0 + 1e-6) for group in canonical.groups)
        standard = standard._replace(canonical=canonical._replace(groups=groups))
    elif where == "rest":
        offset = rows.offset.copy()
        offset[row] += 1e-6  # and the objective as much less, so that their sum is right
        standard = standard._replace(
            rows=replace(rows, offset=offset), constant=standard.constant + 1e-6
        )
    else:
        linear[0] += 1e-6
        standard = standard._replace(linear=linear)
    with pytest.raises(NotScreenable, match=r"not read as it is written|does not agree"):
        recognise_budgets(standard)


def test_parts_are_those_of_the_general_reading() -> None:
    """With what is assumed of neither: the value of the objective and of both budgets."""
    problem = program(READ["two"])
    made = recognise_budgets(numbers(problem))
    x = RNG.standard_normal(made.objective.d)
    z = made.lagrangian.columns(x)
    standard = made.standard
    values = standard.canonical.user_values(standard.split(z))
    w.save_value(values[w.id])
    assert -made.objective.primal(x) == pytest.approx(problem.objective.value, rel=1e-10)
    short = float(problem.constraints[1].args[0].value) - 180 * RISK
    assert made.budgets[1].primal(x) == pytest.approx(short, rel=1e-10)
    level = float(x[made.lagrangian.helpers()[0]])
    above = level + np.maximum(-R @ w.value - level, 0.0).sum() / SHARE
    assert made.budgets[0].primal(x) == pytest.approx(above - RISK, rel=1e-10)


a = cp.Variable(name="a")
SAME = np.ones((200, 1)) @ cp.reshape(a, (1,), order="F")
KINKS = np.repeat([2.0, 0.0], 100)
ABOVE: dict[str, tuple[Any, float, float]] = {
    # What a sum of losses of one coordinate may be at most, and the least such coordinate.
    "hinge": (cp.sum(cp.maximum(1 - SAME, 0)), 0.0, 1.0),
    "steeper_than_it_is": (cp.sum(cp.pos(KINKS - SAME)), 100.0, 1.0),
    "dead_zone": (cp.sum(cp.pos(cp.abs(SAME - 3) - 1)), 0.0, 2.0),
    "least_value": (cp.sum(cp.maximum(0.5, 3 - SAME)), 200.0, 2.0),
}


@pytest.mark.parametrize("name", ABOVE)
def test_multipliers_show_what_there_is_and_no_more(name: str) -> None:
    """Steepest slopes on the kinks above the least coordinate show it; no others show more."""
    losses, most, least = ABOVE[name]
    standard = numbers(cp.Problem(cp.Minimize(a), [losses <= most]))
    (group,), (rows,) = standard.canonical.groups, standard.arguments
    rises = standard.rows.values(np.ones(1))[rows] > standard.rows.offset[rows]
    proof, row = np.zeros(standard.rows.shape[0]), standard.budgets[0]
    _, _, _, low, high = group.weighed(np.arange(200))
    steepest = np.where(rises, low, high)
    falling = KINKS > 0.0 if name == "steeper_than_it_is" else np.ones(200, dtype=bool)
    proof[row], proof[rows] = 1.0, -np.where(falling, steepest, 0.0)
    for size in (1.0, 3.0):
        assert 0.999 * least <= least_coordinate(standard, size * proof) <= least
    steeper = proof.copy()
    steeper[row] = 0.3  # the slopes are beyond what that leaves them
    assert least_coordinate(standard, steeper) <= least
    for _ in range(200):
        other = proof * RNG.uniform(-1.0, 3.0, len(proof))
        assert least_coordinate(standard, other) <= least
    proof[row] = 0.0  # nothing holds the losses
    assert least_coordinate(standard, proof) == 0.0


def test_a_helper_goes_below_zero() -> None:
    """The largest of coordinates that are all negative."""
    problem = cp.Problem(cp.Minimize(cp.cvar(-R[:500] @ w, 0.95) + 0.01 * cp.max(w)), WHOLE)
    assert recognise(problem).problem.n >= 500
