"""Certificates of answers without single terms of rows: those of the weighted problems, or none."""

from __future__ import annotations

import numpy as np
import pytest
from weightings import PROBLEMS, answers

import cvxscreen
from cvxscreen.certificates.weightings import (
    Around,
    LeftOut,
    LeftOutOfRows,
    by_room,
    certify_weightings,
    stays_around,
)
from cvxscreen.core.problem import relative_gap
from cvxscreen.data_changes.reweight import weighted

Array = np.ndarray
TERMS = np.array([3, 250, 17, 99])


def fits(problem: cvxscreen.Problem, tol: float = 1e-8) -> tuple[Array, Array]:
    """Optima without each of `TERMS`, and their slopes."""
    W = np.ones((4, problem.n))
    W[np.arange(4), TERMS] = 0.0
    found = [cvxscreen.solve(weighted(problem, w), tol=tol) for w in W]
    return np.array([s.x for s in found]), np.array([s.theta for s in found])


def certified(
    problem: cvxscreen.Problem, around: Around, near: Array, X: Array, theta: Array,
    shift: Array | None = None,
) -> tuple[Array, Array, Array]:
    """As `LeftOutOfRows.certify`, of answers without `TERMS`, whose slopes are known everywhere."""
    own = np.array([next(iter(np.flatnonzero(near == i)), -1) for i in TERMS])
    given = theta[:, near].copy()
    given[np.flatnonzero(own >= 0), own[own >= 0]] = 0.0
    rows = LeftOutOfRows(problem, around, near, by_room(around))
    gap, relative, distance = rows.certify(TERMS, own, X, given, shift)
    return gap, relative <= 1e-6, distance


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("name", PROBLEMS)
def test_each_is_that_of_its_weights(name: str, intercept: bool) -> None:
    """Of terms among those near and of others, of answers at the optimum and a little off it."""
    problem = PROBLEMS[name](intercept)
    around = answers(problem)[3]
    X, theta = fits(problem)
    for curvature in (None, np.diag(1.0 + np.arange(problem.d)) + 0.3):
        here = Around.at(problem, around.x, around.slopes, curvature)
        near = np.flatnonzero(~stays_around(here, 1.001 * here.distance(X)))
        for blur in (0.0, 1e-7):
            moved = X * (1.0 + blur)
            shift, other = np.empty(4), np.empty(4)
            gap, ok, distance = certified(
                problem, here, near, moved, theta, shift if intercept else None
            )
            given = theta[:, near].copy()
            given[:, np.isin(near, TERMS)] *= TERMS[:, None] != near[np.isin(near, TERMS)]
            known = certify_weightings(
                problem, here, LeftOut(TERMS, problem.n), moved, near, given, tol=1e-6,
                shift=other if intercept else None,
            )
            np.testing.assert_allclose(gap, known.gap, rtol=1e-6, atol=1e-12 * known.primal.max())
            np.testing.assert_array_equal(ok, known.ok)
            assert ok.all()
            assert distance.max() == pytest.approx(here.distance(moved), rel=1e-9)
            if intercept:
                np.testing.assert_allclose(shift, other, rtol=1e-6)


@pytest.mark.parametrize("name", PROBLEMS)
def test_it_holds_the_gap_of_any_answer(name: str) -> None:
    """Or is infinite: however far off the answer is, and however few terms are near."""
    problem = PROBLEMS[name](False)
    around = answers(problem)[3]
    X, theta = fits(problem)
    size, n = np.linalg.norm(X[0]), problem.n
    finite = 0
    for few in (0.0, 0.5, 1.001):
        near = np.flatnonzero(~stays_around(around, few * around.distance(X)))
        for shift in (0.0, 1e-6, 1e-2, 1.0, 30.0):
            noise = np.random.default_rng(1).normal(size=X.shape)
            moved = X + shift * size * noise / problem.d
            gap, ok, _ = certified(problem, around, near, moved, theta)
            slopes = around.slopes_at(np.arange(n), moved @ around.rows.T)
            whole = np.clip(slopes, problem.losses.lo, problem.losses.hi)
            whole[:, near] = theta[:, near]
            whole[np.arange(4), TERMS] = 0.0
            for k in range(4):
                weights = np.ones(n)
                weights[TERMS[k]] = 0.0
                there = weighted(problem, weights)
                pull = problem.design.adjoint(whole[k])
                dual = -0.5 * pull @ pull / problem.quadratic.diagonal[0]
                dual -= there.losses.conjugate(whole[k]).sum()
                primal = there.primal(moved[k])
                true = primal - dual
                assert gap[k] >= true - 1e-12 * abs(dual)
                if np.isfinite(gap[k]):
                    finite += 1
                    assert gap[k] <= 1.001 * true + 1e-9 * abs(dual)
                assert ok[k] <= (relative_gap(true, primal) <= 1.001e-6)
    assert finite > 8


@pytest.mark.parametrize("share", [0.999999, 1.000001])
@pytest.mark.parametrize("factor", [1.0, 0.9])
@pytest.mark.parametrize("curvature", [None, np.array([[5.0, 2.0], [2.0, 1.0]])])
def test_a_term_beyond_those_near_may_go_up_to_its_knot_and_no_further(
    share: float, factor: float, curvature: Array | None
) -> None:
    """By the shortest way, in the norm of a curvature too, with a factor of it that is off."""
    problem = cvxscreen.svm(
        np.array([[2.0, 1.0], [0.0, 1.0], [1.0, 0.0]]), np.array([1.0, -1.0, 1.0])
    )
    x = np.array([1.0, 1.0])
    slopes = problem.losses.slope(problem.design.forward(x))
    around = Around.at(problem, x, slopes, curvature)
    around = around._replace(into=factor * around.into)
    a = np.array([2.0, 1.0])  # of margin 3, whose knot is 1
    towards = a if curvature is None else np.linalg.solve(curvature, a)
    X = (x - share * 2.0 * towards / (a @ towards))[None]
    near = np.array([1, 2])
    rows = LeftOutOfRows(problem, around, near, by_room(around))
    gap, _, distance = rows.certify(
        np.array([2]), np.array([1]), X, np.array([[slopes[1], 0.0]]), None
    )
    assert np.isinf(gap[0]) == (share > 1)
    if factor == 1.0:
        assert distance[0] == pytest.approx(share * around.room[0], rel=1e-9)
    else:
        assert distance[0] > around.room[0]
