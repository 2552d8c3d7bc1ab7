"""Metric learning end to end: our solvers, CVXPY full and reduced, certificates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris

import cvxscreen
from cvxscreen.certificates.certificate import certify
from cvxscreen.certificates.one_pass import certify_metric
from cvxscreen.core.problem import Problem
from cvxscreen.data_changes.reweight import taken, weighted
from cvxscreen.designs.comparisons import Indexed
from cvxscreen.errors import InvalidInput, UnknownName
from cvxscreen.solvers.lambda_max import lambda_max
from cvxscreen.solvers.metric import solver as metric
from cvxscreen.solvers.metric.solver import (
    MetricOptimisation,
    active_set,
    closed_form,
    solve_metric,
    task_of,
)
from cvxscreen.solvers.metric.task import active_terms
from cvxscreen.solvers.registry import named_solver


def iris(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    X, y = load_iris(return_X_y=True)
    return (X - X.mean(axis=0)) / X.std(axis=0), y


def problem(share: float, **options: Any) -> Problem:
    """At `share` of the largest lam that matters."""
    X, y = iris()
    p = cvxscreen.rtlm(X, cvxscreen.triplets(X, y, k=3), 1.0, **options)
    return p.with_(lam=share * lambda_max(p))


VARIANTS: list[dict[str, Any]] = [
    {},
    {"gamma": 0.0},
    {"diagonal": True},
    {"diagonal": True, "gamma": 0.0},
    {"linear": 20.0},
]


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_full_reduced_and_builtin_agree(options: dict[str, Any]) -> None:
    p = problem(1e-2, **options)
    ours = cvxscreen.solve(p, tol=1e-9)
    assert ours.status == "optimal"
    full = p.to_cvxpy()
    full.solve(solver="CLARABEL")
    assert full.value == pytest.approx(ours.value, rel=1e-6)
    known = cvxscreen.solve(p, tol=1e-4).screening
    assert known.undecided.sum() < 0.5 * p.n
    reduced = known.reduce()
    assert reduced.n < 0.6 * p.n
    small = reduced.to_cvxpy()
    small.solve(solver="CLARABEL")
    assert small.value == pytest.approx(ours.value, rel=1e-6)
    through = cvxscreen.solve(p, solver="CLARABEL", tol=1e-7)
    assert through.status == "optimal"
    size = np.abs(ours.x).max()
    np.testing.assert_allclose(through.x, ours.x, atol=1e-3 * size)
    # One dual variable a term: in [0, w], and together they make the metric.
    assert (ours.alpha >= 0).all()
    assert (ours.alpha <= 1).all()
    v = p.design.adjoint(ours.alpha) - p.linear
    made = p.penalty.prox_and_subgradient(v, p.quadratic.diagonal)[0]  # type: ignore[union-attr]
    np.testing.assert_allclose(made, ours.x, atol=1e-3 * size)


@pytest.mark.parametrize("method", ["bb", "newton", "auto"])
@pytest.mark.parametrize("screen", [True, False])
@pytest.mark.parametrize("diagonal", [True, False])
def test_methods_agree_with_and_without_screening(
    method: str, screen: bool, diagonal: bool
) -> None:
    p = problem(1e-3, diagonal=diagonal)
    reference = solve_metric(p, tol=1e-10)
    found = solve_metric(p, tol=1e-8, method=method, screen=screen)
    assert found.certificate.ok
    assert found.value == pytest.approx(reference.value, rel=1e-8)
    reduced = any(r.kept < p.n for r in found.rounds)
    assert reduced is screen or (method == "newton" and not reduced)  # it may not need to


def test_terms_of_their_own_weight_and_threshold() -> None:
    X, y = iris()
    T = cvxscreen.triplets(X, y, k=2)
    T = T.weighted(np.linspace(0.5, 2.0, len(T))) + cvxscreen.pairs(X, y, k=2)
    p = cvxscreen.rtlm(X, T, 30.0)
    ours = cvxscreen.solve(p, tol=1e-8)
    assert ours.status == "optimal"
    full = p.to_cvxpy()
    full.solve(solver="CLARABEL")
    assert full.value == pytest.approx(ours.value, rel=1e-6)


@pytest.mark.parametrize("gamma", [0.0, 0.05])
@pytest.mark.parametrize("diagonal", [False, True])
def test_terms_without_weight_are_as_if_they_were_not_there(diagonal: bool, gamma: float) -> None:
    X, y = iris()
    terms = cvxscreen.triplets(X, y, k=3)
    whole = cvxscreen.rtlm(X, terms, 10.0, gamma=gamma, diagonal=diagonal)
    weight = np.arange(whole.n) % 3 > 0
    bare = cvxscreen.solve(weighted(whole, weight.astype(float)), tol=1e-9)
    left = cvxscreen.solve(taken(whole, np.flatnonzero(weight)), tol=1e-9)
    assert bare.certificate.ok
    assert bare.value == pytest.approx(left.value, rel=1e-8)


def test_the_closed_form_holds_down_to_lambda_max_and_no_further() -> None:
    for diagonal in (False, True):
        p = problem(1.0, diagonal=diagonal)
        largest = lambda_max(p)
        for share, all_linear in ((1.001, True), (0.99, False)):
            q = p.with_(lam=share * largest)
            x = closed_form(task_of(q)).value.ravel()
            alpha = -q.losses.slope(q.design.forward(x))
            assert bool((alpha == 1.0).all()) is all_linear
            proof = certify(q, p.penalty.project(x), -np.ones(q.n), tol=1e-9)  # type: ignore[union-attr]
            assert proof.ok is all_linear


def test_where_every_metric_is_bad_the_answer_is_zero() -> None:
    X = np.array([[0.0], [10.0], [1.0], [12.0]])
    p = cvxscreen.rtlm(X, [[0, 1, 2], [1, 0, 3]], 1.0)
    s = cvxscreen.solve(p)
    assert s.status == "optimal"
    assert abs(s.x).max() < 1e-12
    assert (s.alpha == 1.0).all()


def test_terms_without_a_direction_stay_constants() -> None:
    """Equal points make H = 0: the margin is 0 whatever the metric."""
    X = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    p = cvxscreen.rtlm(X, [[0, 1, 2], [0, 1, 3]], 0.1)
    s = cvxscreen.solve(p, tol=1e-9)
    assert s.status == "optimal"
    assert s.alpha[0] == 1.0
    assert s.screening.linear[0]


@pytest.mark.parametrize("diagonal", [False, True])
def test_the_streamed_certificate_agrees_with_the_general_one(diagonal: bool) -> None:
    p = problem(1e-2, diagonal=diagonal)
    for tol in (1e-3, 1e-6, 1e-10):
        s = solve_metric(p, tol=tol)
        theta = p.losses.slope(p.design.forward(s.x))
        general, streamed = certify(p, s.x, theta, tol=tol), certify_metric(p, s.x, tol=tol)
        assert streamed.ok
        assert streamed.primal == pytest.approx(general.primal, rel=1e-12)
        assert streamed.gap == pytest.approx(general.gap, rel=1e-3, abs=1e-12 * streamed.primal)


def test_the_streamed_certificate_refuses_bad_answers() -> None:
    p = problem(1e-2)
    s = solve_metric(p, tol=1e-9)
    square = s.x.reshape(4, 4)
    assert certify_metric(p, s.x, tol=1e-8).ok
    assert not certify_metric(p, 1.01 * s.x, tol=1e-6).ok
    assert "nan" in certify_metric(p, np.full(16, np.nan)).reason.lower()
    values, vectors = np.linalg.eigh(square)
    values[0] = -1e-6
    indefinite = (vectors * values) @ vectors.T
    assert "semidefinite" in certify_metric(p, (0.5 * (indefinite + indefinite.T)).ravel()).reason
    skew = square.copy()
    skew[0, 1] += 1e-3
    assert "symmetric" in certify_metric(p, skew.ravel()).reason
    negative = problem(1e-2, diagonal=True)
    assert "negative" in certify_metric(negative, np.array([1.0, 1.0, -1e-9, 0.0])).reason
    with pytest.raises(InvalidInput, match="shape"):
        certify_metric(p, np.zeros(3))
    with pytest.raises(InvalidInput, match="product set"):
        certify_metric(cvxscreen.rtlm(iris()[0], [[0, 1, 60]], 1.0), np.zeros(16))


def test_a_set_too_large_to_list_is_solved_and_certified(monkeypatch: pytest.MonkeyPatch) -> None:
    p = problem(1e-2)
    listed = solve_metric(p, tol=1e-7)
    monkeypatch.setattr(metric, "LISTED", 10)
    s = solve_metric(p, tol=1e-7)
    assert s.certificate.ok
    np.testing.assert_allclose(s.x, listed.x, atol=1e-3 * np.abs(listed.x).max())
    assert len(s.theta) == 0
    zero, linear = s.decided  # type: ignore[attr-defined]
    assert zero <= listed.screening.zero.sum()
    assert linear <= listed.screening.linear.sum()
    assert zero + linear > 0.5 * p.n
    assert "proven zero" in str(s)
    with pytest.raises(InvalidInput, match="not listed"):
        _ = s.screening


def test_the_active_problems_gap_is_no_radius() -> None:
    """The objective over a subset of the terms is too low: its gap excludes the optimum."""
    p = problem(1e-2)
    task = task_of(p)
    exact, _ = MetricOptimisation(tol=1e-12).solve(task, closed_form(task))
    start, _ = MetricOptimisation(tol=1e-3).solve(task, closed_form(task))
    margins = p.design.forward(start.metric.value.ravel())
    active = task_of(replace(
        p, design=p.design.take_rows(margins < 0.3), losses=p.losses.take(margins < 0.3)
    ))
    state, sphere = MetricOptimisation(tol=1e-11).solve(active, start.metric)
    away = np.linalg.norm(state.metric.value - exact.metric.value)
    assert away > 10.0 * np.sqrt(2.0 * sphere.gap / p.quadratic.diagonal[0])
    honest = task.sphere(task.evaluate(state.metric))
    assert np.linalg.norm(honest.centre - exact.metric.value) <= honest.radius


def test_metrics_transform_new_data() -> None:
    X, y = iris()
    p = problem(1e-2)
    s = cvxscreen.solve(p)
    M = cvxscreen.metric_of(p, s.x)
    L = cvxscreen.factor_of(p, s.x)
    step = X[0] - X[77]
    assert step @ M @ step == pytest.approx(float(np.sum((L @ step) ** 2)), rel=1e-9)
    assert len(cvxscreen.factor_of(p, s.x, rank=1)) == 1
    with pytest.raises(InvalidInput, match="shape"):
        cvxscreen.metric_of(p, np.zeros(3))
    assert len(y) == 150


def test_wrong_options_are_named() -> None:
    p = problem(0.1)
    with pytest.raises(UnknownName, match="mode"):
        solve_metric(p, mode="brave")
    with pytest.raises(InvalidInput, match="tol"):
        solve_metric(p, tol=0.0)


def test_warm_starts_and_rounds() -> None:
    p = problem(1e-2)
    seen = []
    s = solve_metric(p, on_round=seen.append)
    assert tuple(seen) == s.rounds
    again = cvxscreen.solve(p.with_(lam=0.98 * p.lam), start=s)  # type: ignore[operator]
    assert again.status == "optimal"
    assert len(again.rounds) <= len(s.rounds)


def test_the_streamed_certificate_charges_what_the_cone_leaves_over() -> None:
    """Far pairs nearer than near ones: the optimum is 0, and a small metric has a gap to tell."""
    X, y = np.array([[0.0], [10.0], [1.0], [11.0]]), np.array([0, 0, 1, 1])
    p = cvxscreen.rtlm(X, cvxscreen.triplets(X, y, k=1), 1.0)
    for size in (1e-3, 1e-6):
        proof = certify_metric(p, np.full(1, size), tol=0.9)
        missed = p.primal(np.full(1, size)) - p.primal(np.zeros(1))
        assert proof.gap >= missed - 1e-14 * p.primal(np.zeros(1))


def test_the_bounds_asked_for_are_those_that_reduce() -> None:
    """Each proves as much as its theorem does, and the answer is the same."""
    p = problem(0.05)
    usual = solve_metric(p, tol=1e-7)
    assert cvxscreen.solve(p, tol=1e-7, bounds="midpoint").rounds[0].kept == usual.rounds[0].kept
    proven = {}
    for name in ("gb", "pgb", "dgb", "bt2", "rrpb"):
        found = cvxscreen.solve(p, tol=1e-7, mode="safe", bounds=[name])
        assert found.status == "optimal"
        assert found.value == pytest.approx(usual.value, rel=2e-7)
        assert {entry.bound for entry in found.screening.evidence} == {name}
        proven[name] = found.rounds[-1].proven
    assert proven["gb"] <= proven["pgb"]
    assert len(set(proven.values())) > 1


@pytest.mark.parametrize("name", ["projected_gradient", "Newton", "active_set"])
@pytest.mark.parametrize("gamma", [0.05, 0.0])
def test_methods_by_name_for_one_lambda_and_for_a_path(name: str, gamma: float) -> None:
    p = problem(0.1, gamma=gamma)
    usual, named = cvxscreen.solve(p, tol=1e-8), cvxscreen.solve(p, tol=1e-8, solver=name)
    assert named.certificate.ok
    assert named.value == pytest.approx(usual.value, rel=1e-7)
    chosen = named_solver(name, p)
    assert isinstance(chosen, metric.MetricSolver)
    assert chosen.method == {"projected_gradient": "bb"}.get(name, name.lower())
    values = lambda_max(p) * np.array([0.3, 0.2])
    found = cvxscreen.path(p, over="lam", values=values, solver=name)
    assert all(point.status == "optimal" for point in found.points)


@pytest.mark.parametrize("name", ["projected_gradient", "active_set"])
def test_methods_of_metrics_are_for_metrics(name: str) -> None:
    with pytest.raises(InvalidInput, match="apg"):
        cvxscreen.solve(cvxscreen.svm(np.eye(2), [1.0, -1.0]), solver=name)


@pytest.mark.parametrize("listed", [True, False])
def test_an_active_set_holds_every_term_with_a_loss_and_judges_by_all(listed: bool) -> None:
    """What the active terms alone say is a lower value, and its gap no bound."""
    task = task_of(problem(0.001))
    if listed:
        task = replace(task, terms=Indexed(*task.terms.index(), task.terms.pairs))
    states = active_set(task, task.evaluate(closed_form(task)))
    for _, found in zip(range(30), states, strict=False):
        assert found.primal == task.evaluate(found.metric).primal
    assert task.gap(found) <= 1e-9 * found.primal
    for slack in (0.0, 0.3):
        margins = task.terms.margins(found.values)
        small = active_terms(task, found.values, slack)
        assert len(small.terms) == int((margins < task.b + slack).sum()) < len(task.terms)
        assert small.evaluate(found.metric).primal == pytest.approx(found.primal, rel=1e-12)
