"""Certificates of many weightings at once: those of single ones, and as hard to fool."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from weightings import PROBLEMS, answers

import cvxscreen
from cvxscreen.certificates.certificate import certify
from cvxscreen.certificates.weightings import (
    Around,
    LeftOut,
    certify_weightings,
    stays_around,
)
from cvxscreen.core.losses import Losses
from cvxscreen.data_changes.reweight import taken, weighted
from cvxscreen.designs.rows import Rows


def slopes_of_pieces(problem: cvxscreen.Problem, around: Around, W, x) -> np.ndarray:
    """The slopes that a certificate takes all terms to have of which none is given."""
    every = around.slopes_at(np.arange(problem.n), x @ around.rows.T)
    return W * np.clip(every, problem.losses.lo, problem.losses.hi)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("name", PROBLEMS)
def test_each_is_that_of_the_weighted_problem(name: str, intercept: bool) -> None:
    problem = PROBLEMS[name](intercept)
    W, x, theta, around, rows = answers(problem)
    assert len(rows) < problem.n
    given = np.take(theta, rows, axis=1)
    found = certify_weightings(problem, around, W, x, rows, given, tol=1e-6)
    assert found.ok.all()
    whole = slopes_of_pieces(problem, around, W, x)
    whole[:, rows] = given
    for k in range(4):
        alone = certify(weighted(problem, W[k]), x[k], whole[k], tol=1e-6)
        assert alone.ok
        assert found.primal[k] == pytest.approx(alone.primal, rel=1e-10)
        # What a slope on a parabola costs to balance, the certificate of one fit takes for more.
        noise = 1e-9 * abs(alone.primal)
        assert found.gap[k] <= 1.001 * alone.gap + noise
        best = cvxscreen.solve(weighted(problem, W[k]), tol=1e-12).value
        least = alone.primal - best if intercept and around.rates.any() else alone.gap / 1.001
        assert found.gap[k] >= least - noise


@pytest.mark.parametrize("name", PROBLEMS)
def test_it_holds_the_gap_of_any_answer(name: str) -> None:
    """Far from the optimum too, where other terms have left their piece: none is overlooked."""
    problem = PROBLEMS[name](False)
    W, x, theta, around, rows = answers(problem)
    size, best, old = np.linalg.norm(x[0]), theta[:, rows], (W * around.slopes)[:, rows]
    for shift, given in product((1e-6, 1e-2, 1.0, 30.0), (best, old)):
        moved = x + shift * size * np.random.default_rng(1).normal(size=x.shape) / problem.d
        found = certify_weightings(problem, around, W, moved, rows, given, tol=1e-6)
        whole = slopes_of_pieces(problem, around, W, moved)
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
    wrong = Around.at(problem, around.x, problem.losses.lo + problem.losses.hi - around.slopes)
    assert (wrong.room <= 0).all()
    assert not ok(around=wrong).any()


@pytest.mark.parametrize("share", [0.999999, 1.000001])
def test_terms_stay_on_their_piece_up_to_their_knot_and_no_further(share: float) -> None:
    """One hinge term of length 2 whose margin is 3: its knot, 1, is a distance 1 away."""
    problem = cvxscreen.svm(np.array([[2.0, 0.0], [0.0, 1.0]]), np.array([1.0, -1.0]))
    x = np.array([1.5, 0.0])
    around = Around.at(problem, x, problem.losses.slope(problem.design.forward(x)))
    assert stays_around(around, share * 1.0)[0] == (share < 1)


PARABOLAS = {  # b = 0: e, q, lo, hi, where it begins and ends, and a margin near either end
    "huber": ((0.0, 1.0, -1.0, 2.0), (-1.0, 2.0), (-0.5, 1.0)),
    "squared": ((0.0, 0.5, -np.inf, np.inf), (-np.inf, np.inf), (-0.5, 1.0)),
    "beyond a zone": ((0.5, 0.75, -0.75, 0.75), (0.5, 1.0625), (0.6, 1.0)),
}


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("share", [0.999999, 1.000001])
@pytest.mark.parametrize("loss", PARABOLAS)
def test_terms_stay_on_their_parabola_up_to_its_ends_and_no_further(
    loss: str, share: float, side: int
) -> None:
    """One term whose row has length 2."""
    numbers, ends, margins = PARABOLAS[loss]
    table = Losses(*(np.array([number]) for number in (0.0, *numbers)))
    design = Rows(np.array([[2.0, 0.0, 0.0, 0.0]]))
    problem = replace(PROBLEMS["hinge"](False), design=design, losses=table)
    around = Around.at(problem, np.array([0.5 * margins[side], 0.0, 0.0, 0.0]), np.zeros(1))
    far = 0.5 * abs(ends[side] - margins[side])
    assert stays_around(around, share * far)[0] == (share < 1 or far == np.inf)
    there = margins[side] + 0.999 * np.clip(ends[side] - margins[side], -9.0, 9.0)
    slope = around.slopes_at(np.zeros(1, dtype=int), np.array([[there]]))
    assert slope[0, 0] == pytest.approx(table.slope(np.array([there]))[0], abs=1e-12)


@pytest.mark.parametrize("share", [0.999999, 1.000001])
@pytest.mark.parametrize("factor", [1.0, 0.9])
def test_distances_by_the_curvature_reach_the_knot_and_no_further(
    share: float, factor: float
) -> None:
    """The nearest point of a knot in the norm of a curvature; proven with a factor that is off."""
    problem = cvxscreen.svm(np.array([[2.0, 1.0], [0.0, 1.0]]), np.array([1.0, -1.0]))
    x, curvature = np.array([1.0, 1.0]), np.array([[5.0, 2.0], [2.0, 1.0]])
    slopes = problem.losses.slope(problem.design.forward(x))
    around = Around.at(problem, x, slopes, curvature)
    around = around._replace(into=factor * around.into)
    a = np.array([2.0, 1.0])  # of margin 3, whose knot is 1
    towards = np.linalg.solve(curvature, a)
    step = -2.0 * towards / (a @ towards)
    distance = around.distance(np.array([x + 0.5 * step, x + share * step]))
    assert stays_around(around, distance)[0] == (share < 1 and factor == 1.0)


def test_a_curvature_without_a_factor_leaves_distances_euclidean() -> None:
    problem = PROBLEMS["hinge"](False)
    x = np.ones(problem.d)
    slopes = problem.losses.slope(problem.design.forward(x))
    plain = Around.at(problem, x, slopes)
    other = Around.at(problem, x, slopes, -np.eye(problem.d))
    np.testing.assert_array_equal(other.room, plain.room)
    assert plain.distance(x[None] + [3.0, 4.0, 0.0, 0.0]) == pytest.approx(5.0)


def test_it_does_not_change_what_it_is_given() -> None:
    problem = PROBLEMS["hinge"](True)
    W, x, theta, around, rows = answers(problem)
    given = np.take(theta, rows, axis=1)
    before = [a.copy() for a in (W, x, given, around.slopes, around.parts)]
    certify_weightings(problem, around, W, x, rows, given, tol=1e-6)
    for old, new in zip(before, (W, x, given, around.slopes, around.parts), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_left_out_term_is_a_weight_of_zero(name: str) -> None:
    """The sparse record of weightings that each leave one term out, against its numbers."""
    problem = PROBLEMS[name](True)
    index = np.array([3, 250, 17, 99])
    W = np.ones((4, problem.n))
    W[np.arange(4), index] = 0.0
    sparse = LeftOut(index, problem.n)
    _, x, _, around, rows = answers(problem)
    np.testing.assert_array_equal(sparse.take(rows), W[:, rows])
    found = [cvxscreen.solve(weighted(problem, w), tol=1e-8) for w in W]
    x, theta = np.array([s.x for s in found]), np.array([s.theta for s in found])
    away = float(np.linalg.norm(x - around.x, axis=1).max())
    rows = np.flatnonzero(~stays_around(around, 1.001 * away))
    given = np.take(theta, rows, axis=1)
    one, other = (certify_weightings(problem, around, w, x, rows, given, tol=1e-6)
                  for w in (W, sparse))
    np.testing.assert_allclose(other.gap, one.gap, rtol=1e-6, atol=1e-10 * one.primal.max())
    np.testing.assert_allclose(other.primal, one.primal, rtol=1e-12)
    assert one.ok.all()
    assert other.ok.all()


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_intercept_of_the_optimum_is_within_its_shift(name: str) -> None:
    """From answers near and far; and not so far off as to be of no use."""
    problem = PROBLEMS[name](True)
    W, x, theta, around, rows = answers(problem, tol=1e-6)
    best = np.array([cvxscreen.solve(weighted(problem, w), tol=1e-12).x[-1] for w in W])
    rng = np.random.default_rng(1)
    for blur in (0.0, 1e-6, 1e-3, 1.0):
        moved = x + blur * np.abs(x).max() * rng.normal(size=x.shape)
        away = float(np.linalg.norm(moved - around.x, axis=1).max())
        seen = np.union1d(rows, np.flatnonzero(~stays_around(around, 1.001 * away)))
        whole = W * around.slopes
        whole[:, rows] = theta[:, rows]
        shift = np.full(4, np.nan)
        proofs = certify_weightings(
            problem, around, W, moved, seen, whole[:, seen], tol=1e-6, shift=shift
        )
        error = 1e-5 * np.abs(best).max()  # of the optima that it is held against
        assert (np.abs(best - moved[:, -1]) <= shift + error).all()
        if blur == 0.0:
            reach = np.sqrt(2.0 * proofs.gap) * np.median(problem.norms)
            assert (shift <= 60.0 * reach + 1e-12).all()


def test_the_shift_of_an_intercept_is_attained_between_two_medians() -> None:
    """Any b in [0, 1] has the least absolute deviation from 0 and 1: from either end the other."""
    problem = cvxscreen.regression(np.zeros((2, 1)), np.array([0.0, 1.0]), C=1.0, intercept=True)
    theta = np.array([[1.0, -1.0]])
    for b in (0.0, 1.0, 0.25):
        x, shift = np.array([[0.0, b]]), np.empty(1)
        around = Around.at(problem, x[0], theta[0])
        found = certify_weightings(problem, around, np.ones((1, 2)), x, np.arange(2), theta,
                                   tol=1e-6, shift=shift)
        assert found.ok.all()
        farther = max(b, 1.0 - b)
        assert farther <= shift[0] <= farther * (1.0 + 1e-12)
        assert 0.99 * shift[0] < farther


def test_what_balancing_costs_is_attained() -> None:
    """Slopes 0.5 and -0.3 balance at 0.3 and -0.3: of a margin of 0.25 that costs 0.2 * 0.25."""
    problem = cvxscreen.regression(np.zeros((2, 1)), np.array([0.0, 1.0]), C=1.0, intercept=True)
    x, theta = np.array([[0.0, 0.25]]), np.array([[0.5, -0.3]])
    around = Around.at(problem, x[0], np.array([1.0, -1.0]))
    found = certify_weightings(problem, around, np.ones((1, 2)), x, np.arange(2), theta, tol=1e-6)
    true = 0.25 - 0.3 * 0.25 + 0.75 - 0.3 * 0.75
    assert true <= found.gap[0] <= true * (1.0 + 1e-5)


def test_no_shift_is_proven_where_no_term_can_balance() -> None:
    """One class alone: every slope can lower the sum, none can raise it."""
    problem = cvxscreen.svm(np.zeros((3, 1)), np.array([1.0, 1.0, -1.0]), C=1.0, intercept=True)
    problem = taken(problem, np.arange(2))
    x, theta, shift = np.array([[0.0, 3.0]]), np.zeros((1, 2)), np.empty(1)
    around = Around.at(problem, x[0], theta[0])
    certify_weightings(problem, around, np.ones((1, 2)), x, np.arange(2), theta,
                       tol=1e-6, shift=shift)
    assert shift[0] == np.inf  # any b >= 1 is optimal
