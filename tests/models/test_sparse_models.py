"""Doubly sparse models through the face: against CVXPY, along lambda, by every solver."""

from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from sparse_cases import CURVED, KINKED, make

import cvxscreen as cs
from cvxscreen.bounds import dual_ball, joint, midpoint_ball
from cvxscreen.errors import InvalidInput, UnsafeEvidence
from cvxscreen.screening.reduction import Selection
from cvxscreen.solvers.column_systems import compressed
from cvxscreen.solvers.loop import solve_screened
from cvxscreen.solvers.prox_newton import Coordinates, coordinate_descent
from cvxscreen.solvers.stochastic import Sdca, Spdc


def by_hand(problem: cs.Problem, X: np.ndarray, y: np.ndarray, lam: float) -> cp.Problem:
    w = cp.Variable(X.shape[1])
    gap = 1 - cp.multiply(y, X @ w)
    # the smoothed hinge with corner 1/2 is a Huber function of the positive part
    loss = cp.sum(cp.huber(cp.pos(gap), 0.5)) / (2 * 0.5) / len(y)
    problem_ = cp.Problem(cp.Minimize(lam * (cp.norm1(w) + cp.sum_squares(w) / 2) + loss))
    problem_.solve(solver="CLARABEL")
    return problem_


@pytest.mark.parametrize("mode", ["safe", "certified"])
def test_equals_cvxpy_written_by_hand(mode: str) -> None:
    """The objective is the documented one; value and weights agree."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 20))
    y = np.where(X[:, 0] + 0.3 * rng.standard_normal(50) > 0, 1.0, -1.0)
    problem = cs.sparse_svm(X, y, 0.05)
    found = cs.solve(problem, tol=1e-9, mode=mode)
    hand = by_hand(problem, X, y, 0.05)
    assert found.status == "optimal"
    assert found.value == pytest.approx(hand.value, rel=1e-6)
    np.testing.assert_allclose(found.x, hand.variables()[0].value, atol=1e-4)


@pytest.mark.parametrize("loss", [*CURVED, *KINKED])
@pytest.mark.parametrize("mode", ["safe", "certified"])
def test_optimum_features_and_duals(loss: str, mode: str) -> None:
    """Against the unscreened solve and the exported problem; what is dropped is 0, duals fit."""
    problem = make(loss, "sparse" if mode == "safe" else "dense", 5)
    plain = cs.solve(problem, tol=1e-10, mode="safe", bounds=())
    found = cs.solve(problem, tol=1e-9, mode=mode)
    assert plain.status == found.status == "optimal"
    assert not plain.screening.dropped.any()
    assert found.value == pytest.approx(plain.value, rel=1e-8)
    np.testing.assert_allclose(found.x, plain.x, atol=1e-4 * np.abs(plain.x).max())
    assert (found.x[found.screening.dropped] == 0).all()
    assert (np.abs(plain.x[found.screening.dropped]) <= 1e-5).all()
    if loss in CURVED:
        size = np.abs(plain.alpha).max()
        np.testing.assert_allclose(found.alpha, plain.alpha, atol=1e-3 * size)
    exported = problem.to_cvxpy()
    exported.solve(solver="CLARABEL")
    assert exported.value == pytest.approx(found.value, rel=1e-6)


@pytest.mark.parametrize("solver", ["sdca", "spdc", "CLARABEL"])
def test_other_solvers(solver: str) -> None:
    problem = make("smoothed_hinge", "dense", 2, share=0.3)
    best = cs.solve(problem, tol=1e-10)
    found = cs.solve(problem, solver=solver, mode="safe")
    assert found.status == "optimal"
    assert found.value == pytest.approx(best.value, rel=1e-5)


@pytest.mark.parametrize("kind", [Sdca, Spdc])
def test_stochastic_solvers_say_when_they_did_not_finish(kind: type) -> None:
    problem = make("smoothed_epsilon", "dense", 2, share=0.05)
    result = kind(max_epochs=kind().every)(problem, None, 1e-14)
    assert result.status == "inaccurate"
    assert result.info["gap"] > 1e-14


@pytest.mark.parametrize("loss", ["smoothed_hinge", "huber", "hinge"])
def test_path_over_lambda(loss: str) -> None:
    """Certified at every lambda, features reported; at lambda_max nothing is left."""
    problem = make(loss, "sparse", 4, n=80, d=60)
    top = cs.lambda_max(problem)
    path = cs.path(problem, over="lam", values=top * np.geomspace(1.001, 0.02, 8))
    assert all(point.status == "optimal" for point in path.points)
    assert not path.points[0].x.any()
    assert path.points[-1].x.any()
    assert path.points[3].features < problem.d  # type: ignore[operator]
    assert "over lam" in path.table()
    assert "dropped %" in path.table()
    for point in path.points[::3]:
        alone = cs.solve(problem.with_(lam=point.value), mode="safe", bounds=())
        assert point.objective == pytest.approx(alone.value, rel=1e-5)


@pytest.mark.parametrize("loss", [*CURVED, "hinge"])
def test_lambda_max(loss: str) -> None:
    problem = make(loss, "dense", 6)
    top = cs.lambda_max(problem)
    assert not cs.solve(problem.with_(lam=1.0001 * top), tol=1e-9).x.any()
    assert cs.solve(problem.with_(lam=0.98 * top), tol=1e-9).x.any()


@pytest.mark.parametrize("intercept", [False, True])
def test_lambda_max_of_models_with_a_weight(intercept: bool) -> None:
    """Up to C = 1 / lambda_max every term is where it is at C = 0, and no longer."""
    X, y = cs.datasets.two_gaussians(60, 3, seed=2)
    if intercept:
        X = np.vstack([X, -X])  # balanced classes: the lemma's case
        y = np.concatenate([y, -y])
    top = cs.lambda_max(cs.svm(X, y, intercept=intercept))
    assert cs.solve(cs.svm(X, y, C=0.999 / top), tol=1e-10).screening.linear.all()
    beyond = cs.solve(cs.svm(X, y, C=1.02 / top), tol=1e-10)
    assert (beyond.theta > beyond.problem.losses.lo).any()


def test_safe_rounds_use_only_what_their_bounds_prove() -> None:
    """None, features only, samples only, both: the same optimum, and the reductions differ."""
    problem = make("smoothed_hinge", "dense", 8, n=150, d=80, share=0.3)
    found = {
        name: solve_screened(problem, mode="safe", tol=1e-9, bounds=bounds)
        for name, bounds in {
            "none": (), "features": (dual_ball,), "samples": (midpoint_ball,), "both": (joint,),
        }.items()
    }
    values = [s.value for s in found.values()]
    np.testing.assert_allclose(values, values[0], rtol=1e-8)
    assert found["features"].earlier.dropped.any()
    assert not (found["features"].earlier.zero | found["features"].earlier.linear).any()
    assert not found["samples"].earlier.dropped.any()
    assert "features" in str(found["both"])


def test_reduced_problem_and_lift() -> None:
    """Dropping what is zero and fixing what is flat: same value, zeros and duals restored."""
    problem = make("smoothed_hinge", "sparse", 9, n=100, d=50, share=0.3)
    best = cs.solve(problem, tol=1e-12)
    screening = best.screening
    assert screening.dropped.any()
    assert (screening.zero | screening.linear).any()
    reduced = screening.reduce()
    assert reduced.d == int(screening.kept.sum())
    assert reduced.n < problem.n
    small = cs.solve(reduced, tol=1e-12)
    assert small.value == pytest.approx(best.value, rel=1e-10)
    x, theta = screening.lift(small.x, small.theta)
    assert cs.certify(problem, x, theta, tol=1e-9).ok
    assert not x[screening.dropped].any()
    with pytest.raises(InvalidInput, match="features"):
        Selection(np.full(problem.n, -1, dtype=np.int8), np.zeros(3, dtype=bool)).reduce(problem)


def test_contradicting_evidence_about_a_feature_is_refused() -> None:
    problem = make("smoothed_hinge", "dense", 3, share=0.3)
    solution = cs.solve(problem, tol=1e-12)
    verdict = cs.screen(problem, reference=solution, bound="joint")
    assert verdict.needed_features.any()
    assert (verdict.kept == ~verdict.dropped).all()
    lie = replace(verdict, dropped=verdict.needed_features)
    with pytest.raises(UnsafeEvidence, match="feature"):
        solution.screening.tighten(lie)


def test_descent_is_the_same_interpreted() -> None:
    """The plain loop and the compiled one take the same steps."""
    rng = np.random.default_rng(0)
    B = sp.csc_matrix(rng.standard_normal((8, 5)))
    x, slope = rng.standard_normal(5), rng.standard_normal(5)
    weight, kappa = np.full(5, 0.3), np.full(5, 0.2)
    curve = np.asarray(B.power(2).sum(axis=0)).ravel() + weight
    ends = []
    at = Coordinates(weight, kappa, slope, x)
    for loop in (coordinate_descent.py_func, coordinate_descent):
        d, u, gains = np.zeros(5), np.zeros(8), np.empty(1)
        loop(np.arange(5), compressed(B), curve, at, d, u, gains)
        value = slope @ d + 0.5 * u @ u + 0.5 * weight @ d**2
        value += kappa @ (np.abs(x + d) - np.abs(x))
        assert gains[0] == pytest.approx(-value)
        np.testing.assert_allclose(u, B @ d, atol=1e-13)
        ends.append(d)
    np.testing.assert_allclose(*ends, atol=1e-14)


@pytest.mark.parametrize(
    ("change", "name"),
    [({"lam": 0.0}, "lam"), ({"l2": -1.0}, "l2"), ({"gamma": 0.0}, "gamma"),
     ({"sample_weight": [1.0]}, "sample_weight"), ({"loss": "logistic"}, "loss")],
)
def test_bad_arguments(change: dict[str, object], name: str) -> None:
    arguments = {"lam": 0.1, **change}
    with pytest.raises(InvalidInput, match=f"`{name}`"):
        cs.sparse_svm(np.eye(4), [1, -1, 1, -1], **arguments)  # type: ignore[arg-type]
