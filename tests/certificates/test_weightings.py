"""Certificates of many weightings at once: those of each weighted problem; bad answers refused."""

from __future__ import annotations

import numpy as np
import pytest

import cvxscreen as cs
from cvxscreen.certificates.certificate import certify
from cvxscreen.certificates.weightings import Linear, certify_weightings, linear_around
from cvxscreen.data_changes.changed import weighted
from cvxscreen.datasets import two_gaussians

X, Y = two_gaussians(300, 4, seed=2)
T = X @ np.array([1.0, -2.0, 0.5, 0.0]) + np.sin(5.0 * X[:, 0])
PROBLEMS = {
    "hinge": lambda i: cs.svm(X, Y, C=0.5, intercept=i),
    "squared hinge": lambda i: cs.svm(X, Y, C=0.5, loss="squared_hinge", intercept=i),
    "float32, badly scaled": lambda i: cs.svm(
        (X * [1.0, 1e3, 1e-3, 1.0]).astype(np.float32), Y, C=1e-4, intercept=i),
    "quantile": lambda i: cs.regression(X, T, loss="quantile", tau=0.8, intercept=i),
    "epsilon": lambda i: cs.regression(X, T, loss="epsilon", epsilon=0.1, intercept=i),
    "huber": lambda i: cs.regression(X, T, C=0.5, loss="huber", intercept=i),
}


def answers(problem: cs.Problem, tol: float = 1e-8):
    """Weights, answers and slopes of four weightings; the slopes of some terms are given."""
    rng = np.random.default_rng(5)
    W = rng.poisson(1.0, (4, problem.n)).astype(float)
    base = cs.solve(problem, tol=1e-10)
    found = [cs.solve(weighted(problem, w), tol=tol) for w in W]
    x, theta = np.array([s.x for s in found]), np.array([s.theta for s in found])
    slopes = problem.losses.slope(problem.design.forward(base.x))
    around = Linear.at(problem, base.x, slopes)
    away = float(np.linalg.norm(x - base.x, axis=1).max())
    rows = np.flatnonzero(~linear_around(around, 1.001 * away))
    return W, x, theta, around, rows


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("name", PROBLEMS)
def test_each_is_that_of_the_weighted_problem(name: str, intercept: bool) -> None:
    problem = PROBLEMS[name](intercept)
    W, x, theta, around, rows = answers(problem)
    assert len(rows) < problem.n or "squared" in name or name == "huber"
    given = np.take(theta, rows, axis=1)
    found = certify_weightings(problem, around, W, x, rows, given, tol=1e-6)
    assert found.ok.all()
    whole = np.tile(around.slopes, (4, 1)) * W
    whole[:, rows] = given
    for k in range(4):
        alone = certify(weighted(problem, W[k]), x[k], whole[k], tol=1e-6)
        assert alone.ok
        assert found.primal[k] == pytest.approx(alone.primal, rel=1e-10)
        assert found.gap[k] == pytest.approx(alone.gap, rel=1e-3, abs=1e-9 * abs(alone.primal))


@pytest.mark.parametrize("name", PROBLEMS)
def test_it_holds_the_gap_of_any_answer(name: str) -> None:
    """Far from the optimum too, where other terms have left their piece: none is overlooked."""
    problem = PROBLEMS[name](False)
    W, x, theta, around, rows = answers(problem)
    given = np.take(theta, rows, axis=1)
    size = np.linalg.norm(x[0])
    for shift in (1e-6, 1e-2, 1.0, 30.0):
        moved = x + shift * size * np.random.default_rng(1).normal(size=x.shape) / problem.d
        found = certify_weightings(problem, around, W, moved, rows, given, tol=1e-6)
        whole = np.tile(around.slopes, (4, 1)) * W
        whole[:, rows] = given
        for k in range(4):
            there = weighted(problem, W[k])
            pull = problem.design.adjoint(whole[k])
            dual = -0.5 * pull @ pull / problem.quadratic.diagonal[0]
            dual -= there.losses.conjugate(whole[k]).sum()
            true = there.primal(moved[k]) - dual
            assert found.gap[k] >= true - 1e-12 * abs(dual)
            assert found.gap[k] <= 1.001 * true + 1e-9 * abs(dual)


def test_bad_answers_are_refused() -> None:
    problem = PROBLEMS["quantile"](True)
    W, x, theta, around, rows = answers(problem)
    given = np.take(theta, rows, axis=1)

    def ok(**changed):
        asked = {"around": around, "W": W, "X": x, "rows": rows, "theta": given, **changed}
        return certify_weightings(problem, *asked.values(), tol=1e-6).ok

    assert ok().all()
    beyond, absent, missing = given.copy(), given.copy(), given.copy()
    beyond[1, 0] = 2.0 * W[1, rows[0]] + 1.0
    assert not ok(theta=beyond)[1]
    [i] = np.flatnonzero(np.take(W, rows, axis=1)[2] == 0)[:1]
    absent[2, i] = 1e-9  # a term of weight 0 pulls, be it ever so little
    assert not ok(theta=absent)[2]
    missing[3] *= 0.9
    assert not ok(theta=missing)[3]
    assert ok(theta=missing)[:3].all()
    elsewhere = x.copy()
    elsewhere[0, 0] += 0.1
    assert not ok(X=elsewhere)[0]
    negative = W.copy()
    [far] = np.flatnonzero((W[0] == 0) & ~np.isin(np.arange(problem.n), rows))[:1]
    negative[0, far] = -1e-12
    assert not ok(W=negative)[0]
    wrong = Linear.at(problem, around.x, problem.losses.lo + problem.losses.hi - around.slopes)
    assert (wrong.room <= 0).all()
    assert not ok(around=wrong).any()


@pytest.mark.parametrize("share", [0.999999, 1.000001])
def test_terms_stay_on_their_piece_up_to_their_knot_and_no_further(share: float) -> None:
    """One hinge term of length 2 whose margin is 3: its knot, 1, is a distance 1 away."""
    problem = cs.svm(np.array([[2.0, 0.0], [0.0, 1.0]]), np.array([1.0, -1.0]))
    x = np.array([1.5, 0.0])
    around = Linear.at(problem, x, problem.losses.slope(problem.design.forward(x)))
    assert linear_around(around, share * 1.0)[0] == (share < 1)


def test_it_does_not_change_what_it_is_given() -> None:
    problem = PROBLEMS["hinge"](True)
    W, x, theta, around, rows = answers(problem)
    given = np.take(theta, rows, axis=1)
    before = [a.copy() for a in (W, x, given, around.slopes, around.pulls)]
    certify_weightings(problem, around, W, x, rows, given, tol=1e-6)
    for old, new in zip(before, (W, x, given, around.slopes, around.pulls), strict=True):
        np.testing.assert_array_equal(old, new)
