"""A lasso with an intercept is solved as one without, and certified as it was asked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import cvxscreen
from cvxscreen._support.limits import Limits
from cvxscreen.certificates.certificate import certify
from cvxscreen.solvers import loop
from cvxscreen.solvers.lasso_path import LassoPath
from cvxscreen.solvers.reformulations import KeptForm, ShortSquares, WithoutIntercept
from cvxscreen.solvers.solve import solve_problem

SHAPES = {"tall": (2000, 45), "square": (120, 100), "wide": (40, 150)}


def lasso(n: int, d: int, C: float = 0.02, weighted: bool = True, **options):
    rng = np.random.default_rng(n + d)
    X = rng.standard_normal((n, d)) + rng.standard_normal(d)
    y = X[:, :4] @ np.array([2.0, -1.0, 1.0, 0.5]) + 7.0 + rng.standard_normal(n)
    weights = rng.uniform(0.5, 2.0, n) if weighted else None
    return cvxscreen.regression(
        X, y, C=C, penalty="l1", sample_weight=weights,
        **{"loss": "squared", "intercept": True, **options},
    )


@pytest.mark.parametrize("name", SHAPES)
def test_it_is_the_problem_at_the_best_intercept(name: str) -> None:
    """Whatever w is: ``min_b P(w, b)``."""
    problem, rng = lasso(*SHAPES[name]), np.random.default_rng(0)
    form = WithoutIntercept.of(problem)
    assert form is not None
    parts = form.lasso
    for _ in range(3):
        w = rng.standard_normal(problem.d - 1)
        left = parts.targets - parts.rows.forward(np.append(w, 0.0))
        best = np.append(w, left @ parts.weights / parts.weights.sum())
        assert form.equivalent.primal(w) == pytest.approx(problem.primal(best), rel=1e-9)


@pytest.mark.table
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("C", [1e-4, 0.02, 1.0])
@pytest.mark.parametrize("name", SHAPES)
def test_the_answer_is_that_of_the_problem_as_it_is(name: str, C: float, weighted: bool) -> None:
    """Its value, certified there, with every slope in its box; w = 0 where C is small, too."""
    problem = lasso(*SHAPES[name], C, weighted)
    found = cvxscreen.solve(problem, tol=1e-7)
    plain = cvxscreen.solve(replace(problem, layout=None), tol=1e-7)
    assert found.status == plain.status == "optimal"
    assert found.value == pytest.approx(plain.value, rel=3e-7)
    assert certify(problem, found.x, found.theta, tol=1e-7).ok
    assert found.intercept == found.x[-1]
    assert found.problem is problem
    _ = found.screening  # by bounds that are the problem's


@pytest.mark.parametrize(
    "options", [{"loss": "huber"}, {"loss": "absolute"}, {"intercept": False}, {"nonneg": True}]
)
def test_what_is_no_lasso_with_an_intercept_stays_as_it_is(options) -> None:
    """Other losses, none, or constraints beside it; nor one of very many rows."""
    assert WithoutIntercept.of(lasso(60, 20)) is not None
    assert WithoutIntercept.of(lasso(60, 20, **options)) is None
    assert WithoutIntercept.of(lasso(1060, 20)) is None
    assert WithoutIntercept.of(lasso(1060, 20), often=True) is not None


def test_sparse_rows_are_not_centred() -> None:
    """That would fill them."""
    X = sp.random(80, 30, 0.1, "csr", random_state=0)
    y = np.random.default_rng(0).standard_normal(80)
    problem = cvxscreen.regression(X, y, loss="squared", penalty="l1", intercept=True)
    assert WithoutIntercept.of(problem) is None
    assert cvxscreen.solve(problem).status == "optimal"


def test_a_solver_that_is_named_gets_the_problem_itself() -> None:
    """And so does safe mode."""
    problem = lasso(120, 30)
    named = cvxscreen.solve(problem, solver="interior_point")
    assert named.solver == "INTERIOR_POINT"
    assert named.status == cvxscreen.solve(problem, mode="safe").status == "optimal"


def test_what_the_certificate_refuses_is_solved_as_it_is(monkeypatch) -> None:
    """From there."""
    plain = WithoutIntercept.invert
    monkeypatch.setattr(
        WithoutIntercept, "invert",
        lambda form, found, tol: replace(plain(form, found, tol), status="inaccurate"),
    )
    found = cvxscreen.solve(lasso(120, 30), tol=1e-8)
    assert found.status == "optimal"
    assert found.certificate.ok


def test_a_start_and_limits_reach_the_lasso(monkeypatch) -> None:
    """The lasso begins at its coefficients."""
    problem, calls = lasso(120, 100), []
    plain = loop.solve_screened
    monkeypatch.setattr(
        loop, "solve_screened",
        lambda *args, **options: calls.append(options) or plain(*args, **options),
    )
    first = solve_problem(problem, tol=1e-8)
    again = solve_problem(problem, tol=1e-8, start=first, limits=Limits(60.0))
    inner = calls[-1]
    assert again.status == "optimal"
    assert 0.0 < inner["limits"].seconds <= 60.0
    np.testing.assert_array_equal(inner["start"].x, first.x[:-1])


@pytest.mark.parametrize("shape", [(250, 220), (3200, 60)])
def test_a_path_makes_the_form_once_and_is_that_of_single_solves(shape, monkeypatch) -> None:
    """Of tall rows a form of the form, too: a triangle."""
    problem, made = lasso(*shape), []
    monkeypatch.setattr(LassoPath, "of", lambda *_: None)  # which has other ways
    for kind in (WithoutIntercept, ShortSquares):
        plain = kind.of
        monkeypatch.setattr(
            kind, "of", lambda *args, plain=plain, **options: _noted(made, plain(*args, **options))
        )
    values = [0.003, 0.01, 0.1]
    points = cvxscreen.path(problem, values=values, tol=1e-8).points
    assert len(made) == (1 if shape[0] < 1000 else 2)
    for value, point in zip(values, points, strict=True):
        alone = cvxscreen.solve(problem.with_(C=value), tol=1e-8)
        assert point.status == alone.status == "optimal"
        assert point.objective == pytest.approx(alone.value, rel=3e-8)
        assert certify(problem.with_(C=value), point.x, point.theta, tol=1e-8).ok


def test_a_path_of_a_small_one_waits_for_no_loop(monkeypatch) -> None:
    """Nothing is compiled for it: it stays as it is, whatever is loaded."""
    monkeypatch.setattr(WithoutIntercept, "of", lambda *_, **options: pytest.fail("another form"))
    points = cvxscreen.path(lasso(300, 15), values=[0.003, 0.1], tol=1e-8).points
    assert [point.status for point in points] == ["optimal", "optimal"]


def _noted(made: list, form):
    if form is not None:
        made.append(form)
    return form


def test_a_kept_form_is_of_the_same_data_alone() -> None:
    """Other targets, weights or penalties of single coefficients make another one."""
    problem = lasso(120, 100)
    kept = KeptForm()
    assert kept.at(problem) is None
    kept.form = WithoutIntercept.of(problem)
    again = kept.at(problem.with_(C=7.0))
    fresh = WithoutIntercept.of(problem.with_(C=7.0))
    x = np.random.default_rng(1).standard_normal(100)
    assert again.equivalent.primal(x) == pytest.approx(fresh.equivalent.primal(x), rel=1e-12)
    assert again.equivalent.C == 7.0
    assert kept.at(lasso(120, 100)) is None  # equal data, but who knows
    f = problem.losses
    factors = np.where(np.arange(problem.n) == 3, 2.0, 1.0)
    assert kept.at(replace(problem, losses=f.weighted(factors))) is None
    assert kept.at(replace(problem, linear=np.eye(101)[0])) is None
    heavier = replace(problem, losses=f.weighted(np.where(np.arange(problem.n) < 120, 1.0, 3.0)))
    kappa = kept.at(heavier).equivalent.penalty.kappa
    np.testing.assert_array_equal(kappa, heavier.losses.hi[120:])
