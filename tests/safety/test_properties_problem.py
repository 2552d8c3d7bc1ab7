"""Contracts of problems by hypothesis: reduction, storage, weights, scaling, monotone screening."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from drawn import Drawn, drawn, elastic, pairs, sparse
from exact import Exact, Fraction, exact
from hypothesis import assume, given, settings, strategies as st

from cvxscreen.bounds import BOUNDS, PARAMETER_CHANGE, joint, midpoint_ball, moved
from cvxscreen.bounds.regions import Ball
from cvxscreen.certificates.certificate import certify
from cvxscreen.core.duality import reference_point
from cvxscreen.core.problem import Problem
from cvxscreen.screening.reduction import Screening, Selection, judge
from cvxscreen.solvers.newton import Newton

FEW = settings(max_examples=settings.default.max_examples // 2)
shares = st.sampled_from([0.0, 0.3, 0.7, 1.0])


def selection_at(problem: Problem, x: np.ndarray, share: float, seed: int = 0) -> Selection:
    """The pieces at `x` of some of the terms, as far as they can be folded."""
    t = problem.design.forward(x)
    codes = problem.losses.piece_within(t, t)
    skip = np.random.default_rng(seed).random(problem.n) > share
    return Selection(np.where(skip, -1, codes).astype(np.int8)).folded(problem)


def size_of(problem: Problem, x: np.ndarray) -> float:
    """What the objective's rounding is relative to."""
    t = problem.design.forward(x)
    return float(np.sum(problem.losses.value(t)) + np.sum(np.abs(problem.losses.value(0 * t)))
                 + x @ problem.quadratic.apply(x) + np.abs(problem.linear) @ np.abs(x)) + 1e-300


# -- duality ------------------------------------------------------------------------------------


@FEW
@given(st.data())
def test_weak_duality_holds_exactly(data: st.DataObject) -> None:
    """``P(x) - gap <= P(z)`` for every z, in rational arithmetic: the gap bounds every descent."""
    problem = data.draw(drawn(weights=True, intercept=False)).build()
    x, theta = data.draw(pairs(problem))
    z, _ = data.draw(pairs(problem))
    point = reference_point(problem, x, theta)
    model = Exact(problem)
    assert model.primal(exact(point.x)) - Fraction(point.gap) <= model.primal(exact(z))
    found = model.gap(exact(point.x), exact(point.theta))
    assert 0 <= found <= Fraction(point.gap)
    proof = certify(problem, x, theta)
    # Without a linear term 0 is a lower bound too, and the certificate may rest on that one.
    proven = min(found, model.primal(exact(x)))
    assert proven <= Fraction(proof.gap) * (1 + Fraction(1, 10**9)) + Fraction(1, 10**300)


# -- reduction ------------------------------------------------------------------------------------


@FEW
@given(st.data(), shares)
def test_a_reduction_is_a_problem_with_the_same_values(data: st.DataObject, share: float) -> None:
    """Where the selected pieces hold, reduced and full objective are equal."""
    problem = data.draw(drawn(weights=True)).build()
    x, _ = data.draw(pairs(problem))
    chosen = selection_at(problem, x, share)
    small = chosen.reduce(problem)
    assert isinstance(small, Problem)
    assert small.n == len(chosen.kept)
    assert small.d == problem.d
    assert abs(small.primal(x) - problem.primal(x)) <= 1e-12 * size_of(problem, x)


@FEW
@given(st.data(), shares, shares)
def test_reducing_in_two_steps_is_reducing_once(
    data: st.DataObject, first: float, second: float
) -> None:
    """Closed under reduction: a reduced problem reduces like any other."""
    problem = data.draw(drawn(weights=True)).build()
    x, _ = data.draw(pairs(problem))
    one = selection_at(problem, x, first, 1)
    small = one.reduce(problem)
    two = selection_at(small, x, second, 2)
    both = one.codes.copy()
    both[one.kept] = two.codes
    union = Selection(both).folded(problem)
    if (union.codes != both).any():  # what could not be folded at once
        return
    at_once, smaller = union.reduce(problem), two.reduce(small)
    assert at_once.n == smaller.n
    z, _ = data.draw(pairs(problem))
    size = size_of(problem, z) + size_of(problem, x)
    assert abs(at_once.primal(z) - smaller.primal(z)) <= 1e-11 * size
    np.testing.assert_array_equal(at_once.losses.b, smaller.losses.b)
    np.testing.assert_allclose(at_once.norms, smaller.norms, rtol=1e-6)


@FEW
@given(st.data(), shares)
def test_lifting_undoes_reducing(data: st.DataObject, share: float) -> None:
    """``lift`` gives back x and the kept slopes, and the slopes of the pieces elsewhere."""
    problem = data.draw(drawn(weights=True)).build()
    x, theta = data.draw(pairs(problem))
    chosen = selection_at(problem, x, share)
    linear = np.isin(chosen.codes, (0, 2, 4))
    small = chosen.reduce(problem)
    lifted, slopes = chosen.lift(problem, small, x, theta[chosen.kept])
    np.testing.assert_array_equal(lifted, x)
    np.testing.assert_array_equal(slopes[chosen.kept], theta[chosen.kept])
    np.testing.assert_array_equal(
        slopes[linear], problem.losses.slope(problem.design.forward(x))[linear]
    )
    losses = problem.losses
    assert ((slopes >= losses.lo) & (slopes <= losses.hi)).all()
    if linear.sum() + len(chosen.kept) == problem.n and not problem.quadratic.free.any():
        small_gap = reference_point(small, x, theta[chosen.kept]).gap
        full_gap = reference_point(problem, lifted, slopes).gap
        size = size_of(problem, x) + float(np.abs(slopes) @ problem.norms) ** 2
        assert abs(small_gap - full_gap) <= 1e-11 * size


# -- storage, weights, order --------------------------------------------------------------------


def together(first: np.ndarray, second: np.ndarray) -> None:
    """Two sets of decisions about the same terms do not contradict each other."""
    both = (first >= 0) & (second >= 0)
    np.testing.assert_array_equal(first[both], second[both])


@FEW
@given(st.data())
def test_every_storage_says_the_same(data: st.DataObject) -> None:
    """Dense or CSR, float64 or float32: one problem, within the stated rounding."""
    parts = data.draw(drawn(weights=True))
    problem = parts.build()
    x, theta = data.draw(pairs(problem))
    point = reference_point(problem, x, theta)
    codes = judge(problem, midpoint_ball(problem, point)).codes
    for X in (sparse(parts.X), parts.X.astype(np.float32), sparse(parts.X.astype(np.float32)),
              np.asfortranarray(parts.X)):
        other = parts.build(X=X)
        there = reference_point(other, x, theta)
        room = point.margin_error + there.margin_error
        assert (np.abs(point.margins - there.margins) <= room + 1e-300).all()
        np.testing.assert_allclose(other.norms, problem.norms, rtol=1e-14)
        size = size_of(problem, x) + point.gap
        assert abs(other.primal(x) - problem.primal(x)) <= 1e-13 * size
        if np.isfinite(point.gap):
            assert abs(there.gap - point.gap) <= 1e-10 * size
        together(codes, judge(other, midpoint_ball(other, there)).codes)


@FEW
@given(st.data())
def test_weights_are_repetitions(data: st.DataObject) -> None:
    """A row of weight k is k rows of weight 1: values, gaps and decisions."""
    parts = data.draw(drawn(weights=True, intercept=False))
    assert parts.weight is not None
    count = parts.weight.astype(int)
    weighted = parts.build()
    repeated = parts.build(X=np.repeat(parts.X, count, axis=0), y=np.repeat(parts.y, count),
                           sample_weight=None)
    x, theta = data.draw(pairs(weighted))
    share = np.repeat(theta / np.maximum(count, 1), count)
    size = size_of(weighted, x)
    assert abs(weighted.primal(x) - repeated.primal(x)) <= 1e-12 * size
    first, second = reference_point(weighted, x, theta), reference_point(repeated, x, share)
    assert abs(first.gap - second.gap) <= 1e-11 * (size + first.gap)
    codes = judge(weighted, midpoint_ball(weighted, first)).codes
    together(np.repeat(codes, count), judge(repeated, midpoint_ball(repeated, second)).codes)


@FEW
@given(st.data(), st.integers(0, 100))
def test_the_order_of_the_rows_does_not_matter(data: st.DataObject, seed: int) -> None:
    """Decisions are permuted with the rows."""
    parts = data.draw(drawn())
    order = np.random.default_rng(seed).permutation(len(parts.y))
    problem = parts.build()
    other = parts.build(X=parts.X[order], y=parts.y[order])
    x, theta = data.draw(pairs(problem))
    codes = judge(problem, midpoint_ball(problem, reference_point(problem, x, theta))).codes
    there = reference_point(other, x, theta[order])
    together(codes[order], judge(other, midpoint_ball(other, there)).codes)


# -- scaling ------------------------------------------------------------------------------------


def scaled(parts: Drawn, s: float) -> Problem:
    return parts.build(X=s * parts.X, C=parts.C / s**2)


@FEW
@given(st.data(), st.sampled_from([2.0**-20, 0.25, 2.0, 2.0**20]))
def test_units_of_the_features_do_not_matter(data: st.DataObject, s: float) -> None:
    """``X -> s X, C -> C / s^2, x -> x / s``: powers of two leave every decision as it is."""
    parts = data.draw(drawn(weights=True, intercept=False))
    problem, other = parts.build(), scaled(parts, s)
    x, theta = data.draw(pairs(problem))
    there = reference_point(other, x / s, theta / s**2)
    here = reference_point(problem, x, theta)
    np.testing.assert_array_equal(there.margins, here.margins)
    assert np.isclose(there.gap * s**2, here.gap, rtol=1e-12, atol=1e-280)
    for name in ("midpoint", "gap", "pgb"):
        np.testing.assert_array_equal(
            judge(other, BOUNDS[name](other, there)).codes,
            judge(problem, BOUNDS[name](problem, here)).codes,
        )


@FEW
@given(st.data(), st.sampled_from([0.25, 0.5, 2.0, 8.0]))
def test_the_dual_scales_with_C(data: st.DataObject, s: float) -> None:
    """Of a reference at C0 the pair ``(x, s theta)`` at ``s C0``, evaluated or carried over."""
    problem = data.draw(drawn(weights=True, intercept=False)).build()
    x, theta = data.draw(pairs(problem))
    point = reference_point(problem, x, theta)
    there = problem.with_(C=s * problem.C)
    carried, fresh = moved(there, point), reference_point(there, x, s * point.theta)
    np.testing.assert_array_equal(carried.theta, fresh.theta)
    assert np.isclose(carried.gap, fresh.gap, rtol=1e-9, atol=1e-12 * size_of(there, x))
    for name in PARAMETER_CHANGE:
        together(judge(there, BOUNDS[name](there, point)).codes,
                 judge(there, midpoint_ball(there, fresh)).codes)


# -- screening ----------------------------------------------------------------------------------


@FEW
@given(st.data())
def test_screening_only_grows_and_order_does_not_matter(data: st.DataObject) -> None:
    """Verdicts from any points and bounds: never taken back, the same in every order, once."""
    problem = data.draw(st.one_of(drawn().map(Drawn.build), elastic()))
    verdicts = []
    for _ in range(3):
        point = reference_point(problem, *data.draw(pairs(problem)))
        bound = BOUNDS["gap"] if problem.penalty is None else joint
        verdicts += [judge(problem, bound(problem, point)),
                     judge(problem, midpoint_ball(problem, point))]
    found = Screening.empty(problem)
    for verdict in verdicts:
        more = found.tighten(verdict)
        known = found.codes >= 0
        np.testing.assert_array_equal(more.codes[known], found.codes[known])
        assert (found.dropped <= more.dropped).all()
        assert (found.needed_features <= more.needed_features).all()
        assert (more.tighten(verdict).codes == more.codes).all()
        found = more
    again = Screening.empty(problem)
    for verdict in reversed(verdicts):
        again = again.tighten(verdict)
    np.testing.assert_array_equal(found.codes >= 0, again.codes >= 0)
    np.testing.assert_array_equal(found.dropped, again.dropped)
    assert len(found.evidence) == len(verdicts)


@FEW
@given(st.data(), st.sampled_from([0.0, 0.1, 0.5, 0.999]))
def test_smaller_balls_decide_the_same_or_more(data: st.DataObject, share: float) -> None:
    """Shrinking a ball about its centre takes no decision back."""
    problem = data.draw(drawn()).build()
    point = reference_point(problem, *data.draw(pairs(problem)))
    ball = midpoint_ball(problem, point)
    assume(isinstance(ball, Ball))
    assert isinstance(ball, Ball)
    codes = judge(problem, ball).codes
    smaller = judge(problem, replace(ball, radius=share * ball.radius)).codes
    known = (codes >= 0) & (problem.losses.q == 0)
    np.testing.assert_array_equal(smaller[known], codes[known])
    assert (smaller[codes >= 0] >= 0).all()


@settings(max_examples=settings.default.max_examples // 3)
@given(st.data())
def test_no_decision_contradicts_the_solution(data: st.DataObject) -> None:
    """Whatever point a bound starts from, what it decides is where the solver ends."""
    problem = data.draw(drawn(weights=True, intercept=False)).build()
    found = Newton()(problem, target=1e-13 * size_of(problem, np.zeros(problem.d)))
    best = reference_point(problem, found.x, found.theta)
    room = 2.0 * np.sqrt(2.0 * best.gap) * problem.norms + best.margin_error
    sure = problem.losses.piece_within(best.margins - room, best.margins + room)
    point = reference_point(problem, *data.draw(pairs(problem)))
    for name, bound in BOUNDS.items():
        codes = judge(problem, bound(problem, point)).codes
        both = (codes >= 0) & (sure >= 0)
        assert (codes == sure)[both].all(), name
