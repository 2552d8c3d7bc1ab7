"""Terms screened without strong convexity: right answers, and relaxations that do not run away."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from portfolios import portfolio
from scipy.optimize import linprog

import cvxscreen as cs
from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Layout, Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.paths import path as path_module
from cvxscreen.screening.reduction import KnownSlopes, Selection
from cvxscreen.solvers import relaxation
from cvxscreen.solvers.interface import SolverTraits, Start
from cvxscreen.solvers.interior_point import InteriorPoint
from cvxscreen.solvers.loop import one_round, solve_screened
from cvxscreen.solvers.relaxation import ScreenedRelaxation, draw, sample, spread

LOSSES = ("absolute", "quantile", "epsilon", "smoothed_epsilon", "huber")


def heavy(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows with a column of ones, noise with heavy tails that grows with a feature."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    noise = rng.standard_t(3, n) * (1.0 + 0.5 * np.abs(X[:, 0]))
    X[:, -1] = 1.0
    return X, X @ rng.standard_normal(d) + noise


def scenarios(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Returns of assets with common factors and heavy tails."""
    rng = np.random.default_rng(seed)
    common = rng.standard_t(4, (n, 3)) @ (0.007 * rng.standard_normal((3, d)))
    return common + 0.01 * rng.standard_t(4, (n, d)) + rng.uniform(0, 0.002, d)


def quantile_by_highs(X: Any, y: np.ndarray, tau: float) -> float:
    n, d = X.shape
    unit = sp.identity(n, format="csr")
    found = linprog(
        np.r_[np.zeros(d), np.full(n, tau), np.full(n, 1.0 - tau)],
        A_eq=sp.hstack([sp.csr_matrix(X), unit, -unit]), b_eq=y,
        bounds=[(None, None)] * d + [(0, None)] * (2 * n), method="highs",
    )
    return float(found.fun)


@pytest.mark.table
@pytest.mark.parametrize("tau", [0.1, 0.5, 0.95])
def test_quantile_regression_agrees_with_a_linear_program(tau: float) -> None:
    X, y = heavy(5000, 8)
    found = cs.solve(cs.regression(X, y, C=np.inf, loss="quantile", tau=tau), tol=1e-10)
    assert found.status == "optimal"
    assert np.isinf(found.certificate.within)
    assert found.value == pytest.approx(quantile_by_highs(X, y, tau), rel=1e-9)
    assert found.rounds[-1].kept < 0.5 * len(y)
    at_kinks = np.sort(np.abs(X @ found.x - y))[:8]
    assert at_kinks.max() <= 1e-9  # a vertex: d terms are at their kinks


@pytest.mark.parametrize("storage", ["float64", "float32", "csr"])
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_is_solved_to_rounding(loss: str, storage: str) -> None:
    """Sampled, reduced, put back: the value is that of the interior point method on everything."""
    X, y = heavy(6000, 6)
    data: Any = sp.csr_matrix(X) if storage == "csr" else X.astype(storage)
    problem = cs.regression(data, y, C=np.inf, loss=loss)
    found = solve_screened(problem, tol=1e-9)
    assert found.status == "optimal", found.certificate.reason
    whole = InteriorPoint()(problem, None, 0.0)
    assert found.value == pytest.approx(problem.primal(whole.x), rel=1e-9)


@pytest.mark.parametrize("loss", ["absolute", "quantile", "huber"])
def test_absolute_values_of_the_coefficients_are_terms(loss: str) -> None:
    X, y = heavy(6000, 10)
    problem = cs.regression(X, y, C=0.002, loss=loss, penalty="l1", intercept=True)
    found = cs.solve(problem, tol=1e-9)
    assert found.status == "optimal", found.certificate.reason
    cost = problem.losses.take(np.arange(6000)).value(X @ found.w + found.intercept).sum()
    assert found.value == pytest.approx(cost + np.abs(found.w).sum(), rel=1e-12)
    if loss == "quantile":
        assert (np.abs(found.w) < 1e-10).any()


def test_a_bad_start_does_not_make_it_diverge() -> None:
    """CVaR with a free threshold, 97 % of the scenarios collapsed around a threshold far off."""
    problem = cs.cvar(scenarios(8_000, 10), 0.95, min_return=0.0005)
    best = cs.solve(problem, tol=1e-8)
    assert best.status == "optimal", best.certificate.reason
    for threshold in (-5.0, -0.05, 0.0, 0.5):
        start = Start(np.r_[np.full(10, 0.1), threshold], np.zeros(problem.n))
        found = solve_screened(problem, tol=1e-8, start=start)
        assert found.status == "optimal", found.certificate.reason
        assert found.value == pytest.approx(best.value, rel=1e-7)
        assert len(found.rounds) <= 25


def test_a_portfolio_agrees_with_a_linear_program() -> None:
    R = scenarios(6000, 5)
    n, d = R.shape
    found = cs.solve(cs.cvar(R, 0.9, min_return=0.0, upper=0.4), tol=1e-9)
    assert found.status == "optimal"
    assert found.certificate.violation <= 1e-9
    c = np.r_[np.zeros(d), 1.0, np.full(n, 1.0 / (0.1 * n))]
    rows = sp.hstack([sp.csr_matrix(-R), sp.csr_matrix(-np.ones((n, 1))), -sp.identity(n)])
    lp = linprog(
        c, A_ub=sp.vstack([rows, sp.csr_matrix(np.r_[-R.mean(0), np.zeros(n + 1)])]),
        b_ub=np.zeros(n + 1), A_eq=np.r_[np.ones(d), np.zeros(n + 1)][None], b_eq=[1.0],
        bounds=[(0, 0.4)] * d + [(None, None)] + [(0, None)] * n, method="highs",
    )
    assert found.value == pytest.approx(lp.fun, rel=1e-8)
    losses = np.sort(-R @ found.w)[::-1]
    assert found.value == pytest.approx(losses[: n // 10].mean(), rel=1e-7)
    assert found.w.sum() == pytest.approx(1.0, abs=1e-9)
    assert (found.w >= -1e-10).all()


@pytest.mark.parametrize("loss", ["quantile", "huber"])
def test_safe_mode_proves_terms_of_proximal_steps(loss: str) -> None:
    X, y = heavy(1500, 4)
    problem = cs.regression(X, y, C=np.inf, loss=loss)
    found = cs.solve(problem, tol=1e-6, mode="safe")
    assert found.status == "optimal", found.certificate.reason
    assert found.value == pytest.approx(cs.solve(problem, tol=1e-9).value, rel=1e-6)
    assert all(r.predicted == r.refuted == 0 for r in found.rounds)
    assert max(r.proven for r in found.rounds) > 0
    assert not (found.screening.codes >= 0).any()  # of a step, not of the problem


def test_safe_mode_keeps_constraints_in_every_step() -> None:
    problem = cs.cvar(scenarios(2000, 4), 0.9)
    found = cs.solve(problem, tol=1e-6, mode="safe")
    assert found.status == "optimal", found.certificate.reason
    assert found.value == pytest.approx(cs.solve(problem, tol=1e-8).value, rel=1e-6)


@pytest.mark.parametrize("held", [0.0, 1.0])
def test_safe_mode_solves_the_whole_problem_beside_terms_that_are_constraints(held: float) -> None:
    """Nothing can be proven there, and nothing is: no step within a step without end."""
    A = np.array([[1.0, 2.0], [-3.0, 1.0], [2.0, -1.0], [1.0, 1.0]])
    losses = cs.Losses([2.0, 1.0, -1.0, 3.0], 0.0, 0.0, [0.0, -0.25, -0.25, 0.0],
                       [np.inf, 0.5, 0.5, np.inf])
    problem = cs.Problem(Rows(A), losses, cs.Quadratic(np.full(2, held)), np.array([0.1, -0.2]))
    safe, other = (cs.solve(problem, tol=1e-9, mode=mode) for mode in ("safe", "certified"))
    assert safe.status == other.status == "optimal"
    assert safe.value == pytest.approx(other.value, rel=1e-8, abs=1e-12)
    assert not (safe.screening.codes >= 0).any()
    again = cs.solve(problem, tol=1e-9, mode="safe", start=other)
    assert again.value == pytest.approx(other.value, rel=1e-8, abs=1e-12)


def test_rows_that_repeat_and_columns_of_zeros() -> None:
    X, y = heavy(5000, 5)
    X = np.hstack([np.repeat(X, 2, axis=0), np.zeros((10_000, 1))])
    y = np.repeat(y, 2)
    found = cs.solve(cs.regression(X, y, C=np.inf, loss="absolute"), tol=1e-8)
    assert found.certificate.relative_gap <= 1e-8
    once = cs.solve(cs.regression(X[::2, :-1], y[::2], C=np.inf, loss="absolute"), tol=1e-9)
    assert found.value == pytest.approx(2.0 * once.value, rel=1e-9)


def test_many_constraints_are_terms_that_are_inactive() -> None:
    """A linear program in a polyhedron of 6000 facets: the kept ones are few, all hold."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((6000, 5))
    A /= np.linalg.norm(A, axis=1)[:, None]
    q = rng.standard_normal(5)
    problem = Problem(
        Rows(A), Losses(np.ones(6000), 0.0, 0.0, 0.0, np.inf), Quadratic(np.zeros(5)), q
    )
    found = solve_screened(problem, tol=1e-8)
    assert found.status == "optimal", found.certificate.reason
    assert found.certificate.primal_residual <= 1e-9
    lp = linprog(q, A_ub=A, b_ub=np.ones(6000), bounds=(None, None), method="highs")
    assert found.value == pytest.approx(lp.fun, rel=1e-9)
    assert np.isinf(found.certificate.within)


@pytest.mark.parametrize("n", [30, 9000])
def test_what_has_no_optimum_says_so(n: int) -> None:
    X, y = heavy(n, 3)
    quantile = cs.regression(X, y, C=np.inf, loss="quantile")
    unbounded = Problem(quantile.design, quantile.losses, quantile.quadratic, np.full(3, 2.0 * n))
    found = solve_screened(unbounded)
    assert found.status == "unbounded"
    assert not found.certificate.ok
    rows = np.vstack([X, -X[:1]])
    losses = Losses(
        np.r_[y, -y[0] - 1.0], 0.0, 0.0, np.r_[0.0, np.full(n - 1, -1.0), 0.0],
        np.r_[np.inf, np.ones(n - 1), np.inf],
    )
    infeasible = Problem(Rows(rows), losses, quantile.quadratic, np.zeros(3))
    assert solve_screened(infeasible).status == "infeasible"


def test_a_limit_leaves_the_best_point_with_its_certificate() -> None:
    X, y = heavy(20_000, 10)
    problem = cs.regression(X, y, C=np.inf, loss="absolute")
    found = cs.solve(problem, tol=1e-9, time_limit=1e-6)
    assert found.status in ("time_limit", "optimal")
    if np.isfinite(found.x).all():
        assert found.certificate.gap >= 0.0


def test_what_rounding_alone_leaves_is_not_solved_again(monkeypatch: Any) -> None:
    """The certificate's own rounding exceeds what is asked for: all terms would change nothing."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((20_000, 5))
    y = X @ [1.0, 0.0, 2.0, -0.5, 0.0] + rng.standard_t(3, 20_000)
    box = np.vstack([np.eye(5), -np.eye(5)]), np.r_[np.zeros(5), np.full(5, -1.5)]
    problem = cs.regression(X, y, C=np.inf, loss="absolute", constraints=box)
    found = cs.solve(problem, tol=1e-13)
    assert not found.certificate.ok
    assert len(found.rounds) == 1
    assert found.rounds[-1].kept < 0.2 * problem.n
    monkeypatch.setattr(relaxation, "ROUNDED", 0.0)
    whole = cs.solve(problem, tol=1e-13)
    assert whole.rounds[-1].kept == problem.n
    assert not whole.certificate.ok
    assert found.value <= whole.value + whole.certificate.gap
    np.testing.assert_allclose(found.x, whole.x, atol=1e-9)


def test_a_sample_keeps_penalties_and_constraints() -> None:
    X, y = heavy(50_000, 4)
    problem = cs.regression(X, y, C=0.5, loss="quantile", penalty="l1")
    part = sample(problem)
    assert part.n < 0.2 * problem.n
    assert part.layout == Layout(False, 4, 0.5)
    np.testing.assert_array_equal(part.design.dense(np.arange(part.n - 4, part.n)), np.eye(4))
    assert (part.losses.hi[-4:] == 1.0).all()
    assert (part.losses.lo[-4:] == -1.0).all()
    total = float((part.losses.hi - part.losses.lo)[:-4].sum())
    assert total == pytest.approx(0.5 * 50_000, rel=1e-9)


def test_a_level_is_that_of_all_terms_before_any_is_taken_for_a_line(monkeypatch: Any) -> None:
    """The largest loss: above the level of a sample's largest lie others, and relaxations end.

    A level that constraints hold, and rows of zeros, stay as they are.
    """
    R = scenarios(20_000, 12)
    n, d = R.shape
    unit = sp.csr_array(np.hstack([np.ones((1, d)), [[0.0]]]))
    side = SideConstraints(
        sp.vstack([unit, sp.eye_array(d, d + 1)]), np.r_[-1.0, np.zeros(d)],
        (("zero", 1), ("nonneg", d)),
    )
    problem = Problem(
        Rows(R, -np.ones(n), np.ones((n, 1))), Losses(0.0, 0.0, 0.0, np.zeros(n), np.ones(n)),
        Quadratic(np.zeros(d + 1)), np.r_[np.zeros(d), 1.0], side=side,
    )
    x = np.r_[np.full(d, 1.0 / d), 0.0]
    found = relaxation.at_best_level(problem, x)
    np.testing.assert_array_equal(found[:-1], x[:-1])
    assert problem.primal(found) == pytest.approx((-R @ x[:-1]).max(), rel=1e-12)
    level = SideConstraints(sp.eye_array(1, d + 1, k=d), [1.0], (("zero", 1),))
    held = replace(problem, side=level)
    assert relaxation.at_best_level(held, x) is x
    assert relaxation.at_best_level(replace(problem, design=Rows(problem.design.dense())), x) is x
    solution = cs.solve(problem)
    assert solution.certificate.ok
    assert max(one.kept for one in solution.rounds) < n // 2
    steps: list[float] = []
    proximal = ScreenedRelaxation.retreat
    monkeypatch.setattr(
        ScreenedRelaxation, "retreat", lambda self: steps.append(1.0) or proximal(self)
    )
    cs.solve(problem)
    assert not steps


@pytest.mark.parametrize("stored", [np.asarray, sp.csr_matrix])
def test_terms_of_few_coordinates_stay_in_samples_and_relaxations(stored: Any) -> None:
    """Costs of moving away from a portfolio: eight terms among thousands that decide the optimum.

    With some of them drawn, or on the pieces of a sample's optimum, relaxations ran away.
    """
    d = 8
    near = portfolio(8000, d, ridge=0.0)
    losses, middle = near.losses, np.full(d, 1.0 / d)
    move = np.full(d, 0.02 * float((losses.hi - losses.lo).sum()))
    both = Losses(*(np.concatenate(pair) for pair in zip(
        (losses.b, losses.e, losses.q, losses.lo, losses.hi),
        (middle, np.zeros(d), np.zeros(d), -move, move), strict=True)))
    wide = np.eye(d, near.d)
    problem = replace(
        near, losses=both, layout=None,
        design=Rows(stored(np.vstack([near.design.dense(), wide]))),
    )
    chosen = draw(problem)
    np.testing.assert_array_equal(chosen.stay, near.n + np.arange(d))
    found = solve_screened(problem, InteriorPoint(), tol=1e-7)
    assert found.certificate.ok
    assert len(found.rounds) == 1
    whole = InteriorPoint()(problem, None, 0.0)
    assert found.value == pytest.approx(problem.primal(whole.x), rel=1e-9)


def test_a_start_at_the_optimum_takes_one_round() -> None:
    X, y = heavy(20_000, 6)
    problem = cs.regression(X, y, C=np.inf, loss="quantile", tau=0.3)
    first = cs.solve(problem, tol=1e-9)
    again = cs.solve(problem, tol=1e-9, start=first)
    assert again.status == "optimal"
    assert len(again.rounds) == 1
    assert again.value == pytest.approx(first.value, rel=1e-12)


@pytest.mark.parametrize("changed", [20, 1500])
def test_a_reduced_problem_made_from_known_slopes_is_the_same_but_proves_nothing(
    changed: int,
) -> None:
    X, y = heavy(2000, 4, seed=8)
    problem = cs.regression(X, y, C=np.inf, loss="quantile", tau=0.3)
    margins = problem.design.forward(np.zeros(4))
    codes = problem.losses.piece_within(margins, margins)
    codes[:200] = -1
    theta = problem.losses.piece_slope(codes)
    theta[-changed:] = 0.0
    known = KnownSlopes(theta, problem.design.adjoint(theta))
    plain, quick = Selection(codes).reduce(problem), Selection(codes).reduce(problem, known)
    assert quick.linear == pytest.approx(plain.linear, rel=1e-12, abs=1e-10)
    assert quick.constant == plain.constant
    assert np.isfinite(plain.imbalance)
    assert np.isinf(quick.imbalance)


@pytest.mark.parametrize("penalty", ["l2", "l1"])
def test_a_path_over_tau_continues_the_products_of_its_points(penalty: str, monkeypatch) -> None:
    """Margins and ``A' theta`` of each start are those of its x and theta, without a pass."""
    X, y = heavy(6000, 4, seed=7)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, 6000)
    C = np.inf if penalty == "l2" else 1.0
    problem = cs.regression(
        X, y, C=C, loss="quantile", tau=0.5, penalty=penalty, sample_weight=weight
    )
    starts: list[bool] = []

    def checked(here: Problem, *given: Any, start: Start | None = None, **options: Any) -> Any:
        known = start is not None and start.passes is not None
        starts.append(known)
        if known:
            margins, At_theta = start.passes
            assert margins == pytest.approx(here.design.forward(start.x), abs=1e-12)
            exact = here.design.adjoint(start.theta)
            assert At_theta == pytest.approx(exact, abs=1e-11 * np.abs(start.theta).sum())
            assert np.array_equal(start.theta, np.clip(start.theta, here.losses.lo, here.losses.hi))
        return solve_screened(here, *given, start=start, **options)

    monkeypatch.setattr(path_module, "solve_screened", checked)
    taus = [0.2, 0.25, 0.3, 0.3, 0.45]
    path = cs.path(problem, over="tau", values=taus, tol=1e-9)
    assert [point.status for point in path.points] == ["optimal"] * 5
    for point in path.points:
        alone = cs.solve(problem.with_(tau=point.value), tol=1e-9)
        assert point.objective == pytest.approx(alone.value, rel=1e-8)
    if penalty == "l2":
        assert starts == [False, True, True, False, True]


def test_a_path_over_tau_is_the_quantile_process() -> None:
    X, y = heavy(8000, 4)
    problem = cs.regression(X, y, C=np.inf, loss="quantile", tau=0.5)
    taus = [0.1, 0.2, 0.5, 0.8]
    path = cs.path(problem, over="tau", values=taus, tol=1e-9)
    for point, tau in zip(path.points, taus, strict=True):
        assert point.status == "optimal"
        assert point.over == "tau"
        alone = cs.solve(cs.regression(X, y, C=np.inf, loss="quantile", tau=tau), tol=1e-9)
        assert point.objective == pytest.approx(alone.value, rel=1e-9)
        below = float((y < X @ point.x - 1e-9).mean())
        assert below <= tau <= below + 2 * 4 / 8000 + 1e-9


def test_the_parameters_that_a_problem_does_not_have_are_refused() -> None:
    X, y = heavy(100, 3)
    free = cs.regression(X, y, C=np.inf, loss="absolute")
    with pytest.raises(cs.InvalidInput, match="C"):
        free.with_(C=2.0)
    with pytest.raises(cs.InvalidInput, match="tau"):
        free.with_(tau=0.2)
    with pytest.raises(cs.InvalidInput, match="over"):
        cs.path(free, over="tau", values=[0.2])
    pinball = cs.regression(X, y, C=1.0, loss="quantile", penalty="l1")
    with pytest.raises(cs.InvalidInput, match="between 0 and 1"):
        pinball.with_(tau=1.5)
    moved = pinball.with_(tau=0.9).with_(C=3.0)
    np.testing.assert_allclose(moved.losses.lo[:100], -2.7)
    np.testing.assert_allclose(moved.losses.hi[:100], 0.3)
    assert (moved.losses.hi[100:] == 1.0).all()
    for arguments in ({"C": np.inf, "penalty": "l1"}, {"C": np.inf, "kernel": "rbf"},
                      {"penalty": "l1", "kernel": "rbf"}, {"penalty": "l3"}):
        with pytest.raises(cs.InvalidInput):
            cs.regression(X, y, **arguments)


def test_a_relaxation_that_ran_away_becomes_a_proximal_step(monkeypatch: Any) -> None:
    """With next to nothing kept relaxations run away: the best point stays, a step is held back.

    What was refuted is kept from then on.
    """
    monkeypatch.setattr(relaxation, "AROUND", 0.0)
    monkeypatch.setattr(relaxation, "LEAST", 1)
    monkeypatch.setattr(relaxation, "applies", lambda problem: False)  # no way but the rounds
    X, y = heavy(6000, 5)
    problem = cs.regression(X, y, C=np.inf, loss="absolute")
    screened = ScreenedRelaxation(problem, InteriorPoint(), "certified", 1e-9, (), None)
    screened.begin(Start(np.full(5, 30.0), np.zeros(6000)), solve_screened)
    screened.anew = None  # nor a sample's optimum
    values, weights, refuted = [], [], np.zeros(6000, dtype=bool)
    while not screened.over:
        one_round(screened)
        assert screened.centre is not None
        values.append(screened.centre.value)
        weights.append(screened.weight)
        assert (refuted <= screened.held).all()  # it only grows
        refuted = screened.held.copy()
        assert not (screened.select().codes[refuted] >= 0).any()
    assert np.diff(values).max(initial=0.0) <= 0.0
    assert max(weights) > 0.0
    assert refuted.any()
    found = screened.solution(0.0)
    assert found.status == "optimal", found.certificate.reason
    assert found.value == pytest.approx(cs.solve(problem, tol=1e-9).value, rel=1e-9)


@pytest.mark.parametrize("n", [3000, 8000])
def test_a_start_that_leads_astray_is_left_for_a_sample(n: int) -> None:
    """The optimum at a hundred times the weight of a norm: what rounds from nothing take, one more.

    Steps from there kept ever more terms: nine rounds, half of the terms at the end.
    """
    rng = np.random.default_rng(7)
    X = rng.standard_normal((n, 12))
    y = np.sign(X @ rng.standard_normal(12) + rng.standard_normal(n))
    cone = sp.csr_array(sp.eye_array(13, format="csr")[[12, *range(12)]])
    held = SideConstraints(cone, np.zeros(13), (("soc", 13),))

    def at(weight: float) -> Problem:
        linear = np.append(np.zeros(12), weight * n)
        design = Rows(np.column_stack([y[:, None] * X, np.zeros(n)]))
        losses = Losses(np.ones(n), 0.0, 0.0, -1.0, 0.0)
        return Problem(design, losses, Quadratic(np.zeros(13)), linear, side=held)

    far = solve_screened(at(0.3), InteriorPoint(), tol=1e-9)
    assert far.certificate.ok
    alone = solve_screened(at(0.003), InteriorPoint(), tol=1e-9)
    start = Start(far.x, far.theta, None, far.multipliers)
    found = solve_screened(at(0.003), InteriorPoint(), tol=1e-9, start=start)
    assert found.certificate.ok
    assert found.value == pytest.approx(alone.value, rel=1e-9)
    assert len(found.rounds) <= len(alone.rounds) + 1


def test_a_proximal_step_adds_the_squared_distance() -> None:
    """``weight/2 ||y - x||_W^2``, W the mean squares of the columns, and nothing else."""
    X, y = heavy(500, 5)
    problem = cs.regression(X, y, C=1.0, loss="absolute", penalty="l1")
    screened = ScreenedRelaxation(problem, InteriorPoint(), "certified", 1e-9, (), None)
    rng = np.random.default_rng(0)
    x = rng.standard_normal(5)
    screened.begin(Start(x, np.zeros(problem.n)), solve_screened)
    screened.weight = 3.0
    step, W = screened.proximal(problem), screened.metric()
    np.testing.assert_allclose(W, (np.r_[X, np.eye(5)] ** 2).mean(axis=0) * 505 / problem.n)
    for _ in range(5):
        z = rng.standard_normal(5)
        more = 1.5 * float(W @ (z - x) ** 2)
        assert step.primal(z) == pytest.approx(problem.primal(z) + more, rel=1e-12)


def test_relaxations_go_to_any_solver_of_cvxpy() -> None:
    X, y = heavy(6000, 4)
    for problem in (cs.regression(X, y, C=np.inf, loss="quantile", tau=0.8),
                    cs.cvar(scenarios(6000, 4), 0.9)):
        best = cs.solve(problem, tol=1e-9)
        found = cs.solve(problem, tol=1e-6, solver="CLARABEL")
        assert found.status == "optimal", found.certificate.reason
        assert found.value == pytest.approx(best.value, rel=1e-6)
        assert found.rounds[-1].kept < 0.5 * problem.n
        whole = problem.to_cvxpy()
        whole.solve(solver="CLARABEL")
        assert float(whole.value) == pytest.approx(best.value, rel=1e-6)


@pytest.mark.table
@pytest.mark.parametrize("scale", [1.0, 1e3, 1e-3])
@pytest.mark.parametrize("intercept", [False, True])
def test_an_optimum_of_zeros_is_certified(scale: float, intercept: bool) -> None:
    """Constraints, or an absolute value, at which all coefficients end: slopes are not unique."""
    rng = np.random.default_rng(0)
    X = scale * rng.standard_normal((5_000, 3))
    y = np.where(rng.random(5_000) < 0.5, 1.0, -1.0)
    wrong = X - scale * y[:, None]
    noise = rng.standard_normal(5_000) - 3.0 * X.sum(axis=1) / scale
    rising = np.ones(3)
    problems = [
        cs.svm(wrong, y, C=1.0, penalty="l1", monotone=rising, intercept=intercept),
        cs.regression(X, noise, C=np.inf, monotone=rising, intercept=intercept),
        cs.regression(
            X, noise, C=np.inf, loss="epsilon", monotone=rising, intercept=intercept
        ),
        cs.regression(X, 0.0 * y, C=np.inf, loss="quantile", tau=0.9, intercept=intercept),
        cs.regression(X, 0.0 * y, C=1.0, penalty="l1", nonneg=True, intercept=intercept),
    ]
    for problem in problems:
        found = cs.solve(problem, tol=1e-6)
        assert found.status == "optimal"
        assert float(np.abs(found.w).max()) <= 1e-9 / scale


def fit_without_noise(n: int = 20_000, d: int = 5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, targets that some coefficients fit, and these."""
    rng = np.random.default_rng(3)
    X, w = rng.standard_normal((n, d)), rng.standard_normal(d)
    return X, X @ w, w


def direction_that_gains_nothing(n: int = 20_000, d: int = 4) -> Problem:
    """``max_i <a_i, w> + |w|^2``, 0 in the rows' convex hull; the largest value is a variable."""
    X = np.random.default_rng(4).standard_normal((n, d))
    rows = np.hstack([X, -np.ones((n, 1))])
    losses = Losses(np.zeros(n), 0.0, 0.0, 0.0, np.inf)
    form = Quadratic(np.r_[np.full(d, 2.0), 0.0])
    return Problem(Rows(rows), losses, form, np.r_[np.zeros(d), 1.0])


@pytest.mark.parametrize("loss", ["absolute", "quantile", "epsilon"])
def test_a_sample_that_is_fitted_exactly_proves_the_optimum(loss: str) -> None:
    X, y, w = fit_without_noise()
    found = cs.solve(cs.regression(X, y, C=np.inf, loss=loss), solver="interior_point", tol=1e-9)
    assert found.status == "optimal"
    assert len(found.rounds) == 1
    assert found.rounds[0].kept < 0.5 * len(y)
    if loss != "epsilon":
        np.testing.assert_allclose(found.x, w, atol=1e-12)


def test_a_direction_that_gains_nothing_in_a_sample_gains_nothing_at_all() -> None:
    problem = direction_that_gains_nothing()
    found = solve_screened(problem, InteriorPoint(), tol=1e-9)
    assert found.status == "optimal"
    assert len(found.rounds) == 1
    assert abs(found.value) <= 1e-12
    assert found.certificate.primal_residual <= 1e-12
    np.testing.assert_allclose(found.x, 0.0, atol=1e-12)


def test_terms_that_are_all_tied_are_not_predicted() -> None:
    """The largest absolute residual of a fit without noise, beside squares that pull it away."""
    X, y, w = fit_without_noise(10_000)
    ones = -np.ones((len(y), 1))
    rows, b = np.vstack([np.hstack([X, ones]), np.hstack([-X, ones])]), np.r_[y, -y]
    form = Quadratic(np.r_[np.full(len(w), 0.01), 0.0])
    losses = Losses(b, 0.0, 0.0, 0.0, np.inf)
    problem = Problem(Rows(rows), losses, form, np.r_[np.zeros(len(w)), 1.0])
    found = solve_screened(problem, InteriorPoint(), tol=1e-9)
    assert found.status == "optimal"
    assert len(found.rounds) == 1
    assert found.value == pytest.approx(0.005 * float(w @ w), rel=1e-9)
    np.testing.assert_allclose(found.x[:-1], w, atol=1e-9)


def test_a_sample_that_is_fitted_exactly_proves_nothing_of_terms_that_are_not() -> None:
    X, y, w = fit_without_noise()
    problem = cs.regression(X, y, C=np.inf)
    others = np.setdiff1d(np.arange(len(y)), draw(problem).index)
    y[others[:40]] += 7.0
    found = cs.solve(cs.regression(X, y, C=np.inf), solver="interior_point", tol=1e-9)
    assert found.status == "optimal"
    assert found.value == pytest.approx(280.0, rel=1e-9)
    np.testing.assert_allclose(found.x, w, atol=1e-9)


def test_squares_fold_and_nothing_else_is_taken_for_granted() -> None:
    rng = np.random.default_rng(11)
    X, n = rng.standard_normal((300, 4)), 300
    y = X @ np.array([1.0, -2.0, 0.0, 0.5]) + rng.standard_normal(n)
    square = np.arange(n) < 200
    bend = np.where(square, np.inf, 1.0)  # squares, and absolute values below them
    losses = Losses(y, 0.0, np.where(square, 1.0, 0.0), -bend, bend)
    mixed = Problem(Rows(X), losses, Quadratic(np.zeros(4)), np.zeros(4))
    found = solve_screened(mixed, InteriorPoint(), tol=1e-9)
    assert found.status == "optimal"
    assert found.rounds[-1].kept == 100
    assert (found.screening.quadratic[square] & ~found.screening.undecided[square]).all()
    assert found.screening.undecided[~square].all()
    reference = solve_screened(
        Problem(Rows(X), losses, Quadratic(np.full(4, 1e-9)), np.zeros(4)), tol=1e-10
    )
    assert found.value == pytest.approx(reference.value, rel=1e-7)


def whole_numbers(n: int = 6000, d: int = 4) -> cs.Problem:
    """A quantile fit with a seventh of the terms at their kinks."""
    rng = np.random.default_rng(2)
    X = rng.integers(0, 3, (n, d)).astype(float)
    y = np.round(X @ rng.integers(-2, 3, d) + 2.0 * rng.standard_normal(n))
    return cs.regression(X, y, C=np.inf, loss="quantile", tau=0.5, intercept=True)


def test_kinks_that_repeat_are_moved_less_than_to_the_next() -> None:
    b = np.random.default_rng(0).integers(-3, 9, 5000) / 4.0
    moved = spread(b)
    assert moved is not None
    assert len(np.unique(moved)) == len(b)
    assert 0.0 < np.abs(moved - b).max() <= 0.01 * 0.25
    assert spread(np.random.default_rng(0).standard_normal(5000)) is None
    assert spread(np.ones(5000)) is None
    half = np.where(np.arange(5000) % 3 == 0, np.linspace(1.0, 2.0, 5000), 0.0)
    moved = spread(half)
    assert moved is not None
    np.testing.assert_array_equal(moved[half > 0.0], half[half > 0.0])


def test_the_vertex_of_kinks_moved_apart_is_that_of_kinks_that_repeat() -> None:
    problem = whole_numbers()
    found = cs.solve(problem, tol=1e-10)
    assert found.status == "optimal"
    assert len(found.rounds) == 1
    assert found.rounds[0].kept < 1000
    margins = problem.design.forward(found.x)
    assert np.count_nonzero(margins == problem.losses.b) > 100 * problem.d
    whole = InteriorPoint()(problem)
    assert found.value == pytest.approx(problem.primal(whole.x), rel=1e-9)
    assert found.value <= problem.primal(whole.x) * (1.0 + 1e-12)


@pytest.mark.parametrize("aside", [0.5, 3.0])
def test_another_vertex_is_not_taken_for_it(aside: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of kinks so far off that others change sides the certificate refuses it; rounds follow."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((6000, 5))
    y = rng.poisson(np.exp(0.3 * X[:, 0])).astype(float)
    problem = cs.regression(X, y, C=np.inf, loss="quantile", tau=0.5, intercept=True)
    monkeypatch.setattr(relaxation, "foreseen", lambda problem: None)  # pivots would end it
    right = cs.solve(problem, tol=1e-10)
    monkeypatch.setattr(relaxation, "ASIDE", aside)
    found = cs.solve(problem, tol=1e-10)
    assert found.status == "optimal"
    assert len(found.rounds) > len(right.rounds)
    assert found.value == pytest.approx(right.value, rel=1e-10)


@pytest.mark.parametrize("shape", [(30, 3), (200, 20), (60, 55), (40, 40), (30, 45)])
def test_few_kinks_end_at_a_vertex_or_a_fit_without_an_interior_point(
    shape: tuple[int, int], monkeypatch: Any
) -> None:
    X, y = heavy(*shape)
    problem = cs.regression(X, y, C=np.inf, loss="quantile", tau=0.3)
    by_steps = cs.solve(problem, solver="clarabel", tol=1e-7)
    monkeypatch.setattr(InteriorPoint, "__call__", None)
    found = cs.solve(problem, tol=1e-9)
    assert found.status == "optimal"
    assert found.value == pytest.approx(by_steps.value, rel=1e-6, abs=1e-6)
    on = np.abs(X @ found.x - y) <= 1e-10 * (1.0 + np.abs(y))
    assert on.sum() >= min(shape)


def test_a_solver_that_was_named_is_not_passed_over() -> None:
    X, y = heavy(6000, 5)
    asked = list[int]()

    class Named(InteriorPoint):
        traits = SolverTraits()

        def __call__(self, problem: Any, *given: Any) -> Any:
            asked.append(problem.n)
            return super().__call__(problem, *given)

    for rows in (500, 6000):
        asked.clear()
        problem = cs.regression(X[:rows], y[:rows], C=np.inf, loss="absolute")
        found = cs.solve(problem, solver=Named(), tol=1e-8)
        assert found.status == "optimal"
        assert asked


@pytest.mark.parametrize("least", [0.2, 0.5, 0.9])
def test_a_start_outside_the_constraints_has_no_value_to_compare_with(least: float) -> None:
    """Another right side moves the optimum uphill, which is no sign of a relaxation that ran away.

    The step of an efficient frontier: a few rounds over some of the terms, not sets that double.
    """
    before = portfolio(6000, 8, ridge=0.0)
    known = solve_screened(before, InteriorPoint(), tol=1e-9)
    F, offset = before.side.matrix, before.side.offset.copy()
    offset[1] = -least  # x_1 >= least, a row of its own
    after = replace(before, side=SideConstraints(F, offset, before.side.dims))
    start = Start(known.x, known.theta, None, known.multipliers)
    found = solve_screened(after, InteriorPoint(), tol=1e-9, start=start)
    alone = solve_screened(after, InteriorPoint(), tol=1e-9)
    assert found.value > known.value
    assert found.certificate.ok
    assert found.value == pytest.approx(alone.value, rel=1e-9)
    assert len(found.rounds) <= 4
    assert max(step.kept for step in found.rounds) < 0.4 * after.n
    if least == 0.2:  # close enough to go on from: not left for a sample
        assert sum(step.kept for step in found.rounds) < 0.15 * after.n
