"""Ranges of C and of lambda: what one reference proves holds all over its range, and no farther."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from metric_exact import small
from rational import Fraction
from strategies import LOSSES, Case, Reference, reference

import cvxscreen
from cvxscreen._support.rounding import gamma
from cvxscreen.bounds import ScaledReference, dvi_ball, midpoint_ball, named
from cvxscreen.bounds.regions import Functionals
from cvxscreen.core.closed_form import piece_ends
from cvxscreen.core.duality import Point, reference_point
from cvxscreen.core.losses import Piece
from cvxscreen.core.problem import Problem
from cvxscreen.errors import InvalidInput
from cvxscreen.models.linear import regression, svm
from cvxscreen.screening.ranges import (
    _smooth_error,
    _Sphere,
    _Sweep,
    c_interval,
    eps_interval,
    lam_interval,
)
from cvxscreen.screening.reduction import Selection, judge
from cvxscreen.solvers.newton import Newton

DATA = ("plain", "scaled", "twins", "integer", "wide")
STORAGE = ("dense64", "dense32", "csr64", "csr32")


def blurred(ref: Reference, blur: float, rng: np.random.Generator) -> Point:
    """A pair near the optimum, with ``x = x_theta`` in every second call."""
    problem = ref.problem
    x = ref.x * (1.0 + blur * rng.standard_normal(problem.d))
    theta = ref.theta * (1.0 + blur * rng.standard_normal(problem.n))
    point = reference_point(problem, x, theta)
    return reference_point(problem, point.x_theta, point.theta) if rng.random() < 0.5 else point


def cases(loss: str, count: int, **sizes: int) -> list[Case]:
    return [
        Case(loss, False, DATA[s % 5], STORAGE[s % 4], s % 3 == 0, s, C=0.5, **sizes)
        for s in range(count)
    ]


@pytest.mark.table
@pytest.mark.parametrize("loss", LOSSES)
def test_decisions_hold_all_over_their_interval(loss: str) -> None:
    """Solved exactly at points of the intervals: every decision there is right."""
    rng = np.random.default_rng(LOSSES.index(loss))
    looked_at = 0
    for case in cases(loss, 5, n=14, d=3):
        ref = reference(case)
        point = blurred(ref, float(10.0 ** -rng.uniform(1, 7)), rng)
        low, high = c_interval(ref.problem, point)
        codes = judge(ref.problem, midpoint_ball(ref.problem, point)).codes
        assert (np.isnan(low) == (codes < 0)).all()
        assert ((low <= 0.5) & (high >= 0.5))[codes >= 0].all()
        known = (codes >= 0) & (high > 0.5)
        if not known.any():
            continue
        for C in (np.min(high[known]), np.median(high[known]), np.median(low[known])):
            C = float(np.clip(C, 2.0**-8, 2.0**8))
            there = reference(replace(case, C=C))
            if there.truth is None:
                continue
            for i in np.flatnonzero((low <= C) & (high >= C)):
                first, last = there.exact.ends[i][codes[i]]  # type: ignore[union-attr]
                assert first <= there.truth.margins[i] <= last
                looked_at += 1
    assert looked_at >= 20


@pytest.mark.table
@pytest.mark.parametrize("count", [6, pytest.param(12, marks=pytest.mark.long)])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_static_rule_agrees_inside_and_fails_just_outside(loss: str, count: int) -> None:
    """Tight: at the roots the DVI interval touches the end of the piece, in both directions."""
    rng = np.random.default_rng(LOSSES.index(loss))
    inside, same, touched = 0, 0, 0
    for case in cases(loss, count, n=30, d=4):
        ref = reference(case)
        problem = ref.problem
        point = blurred(ref, 1e-3, rng)
        point = reference_point(problem, point.x_theta, point.theta)
        low, high = c_interval(problem, point)
        codes = judge(problem, midpoint_ball(problem, point)).codes
        below, above = piece_ends(problem.losses, codes)
        for i in np.flatnonzero(codes >= 0):
            for C, out in ((low[i], -1.0), (high[i], 1.0)):
                if not 2.0**-20 < C < 2.0**20:
                    continue
                span = C - 0.5
                for near in (0.5 + 0.5 * span, 0.5 + (1 - 1e-6) * span):
                    there = problem.with_(C=float(near))
                    found = judge(there, dvi_ball(there, point)).codes[i]
                    inside, same = inside + 1, same + int(found == codes[i])
                    # The rule may move its centre for a cheaper pass: 0.05 % of the radius.
                    assert found in (codes[i], -1)
                bound = dvi_ball(problem.with_(C=float(C)), point)
                ends = np.array(bound.intervals())[:, i]
                width = ends[1] - ends[0]
                away = min(abs(ends[0] - below[i]), abs(ends[1] - above[i]))
                assert away <= 2e-3 * width + 1e-9 * abs(ends).max(), (C, out)
                touched += 1
    assert touched >= 50
    assert inside >= 50
    assert same >= 0.9 * inside


def test_the_roots_are_those_of_the_hinge_formula() -> None:
    """``A s^2 + B s + D`` of the module's docstring, both roots."""
    rng = np.random.default_rng(3)
    checked = 0
    for seed in range(20):
        X = rng.standard_normal((30, 3))
        problem = svm(X, np.resize([1.0, -1.0], 30), C=0.5)
        found = Newton()(problem, target=1e-6)
        pair = reference_point(problem, found.x, found.theta)
        point = reference_point(problem, pair.x_theta, pair.theta)
        low, high = c_interval(problem, point)
        N, W, eps = problem.norms, np.linalg.norm(point.x), point.gap
        m = point.margins
        a, b = (m**2 - N**2 * W**2) / 4, m * (m / 2 - 1) - N**2 * (eps - W**2 / 2)
        d = (m / 2 - 1) ** 2 - N**2 * W**2 / 4
        for i in np.flatnonzero(~np.isnan(low)):
            roots = np.roots([a[i], b[i], d[i]])
            s = np.sort(roots[np.isreal(roots)].real)
            left, right = s[(s > 0) & (s < 1)], s[s > 1]
            expected_low = 0.5 * left.max() if len(left) else 0.0
            expected_high = 0.5 * right.min() if len(right) else np.inf
            assert low[i] == pytest.approx(expected_low, rel=1e-6, abs=1e-9), seed
            assert high[i] == pytest.approx(expected_high, rel=1e-6)
            checked += 1
    assert checked > 300


@pytest.mark.table
@pytest.mark.parametrize("at", [
    (0.4, 0.49, 0.505, 0.6), pytest.param((0.45, 0.47, 0.52, 0.54), marks=pytest.mark.long),
])
@pytest.mark.parametrize("loss", LOSSES)
def test_with_an_intercept_decisions_hold_over_whole_ranges(
    loss: str, at: tuple[float, ...]
) -> None:
    """Coarser than the roots, as safe: solved exactly at the ends of the ranges."""
    rng = np.random.default_rng(LOSSES.index(loss))
    looked_at, wide = 0, 0
    for seed in range(5):
        case = Case(loss, True, DATA[seed % 5], STORAGE[seed % 4], False, seed, 16, 3, 0.5)
        ref = reference(case)
        point = blurred(ref, 1e-4, rng)
        low, high = c_interval(ref.problem, point)
        codes = judge(ref.problem, midpoint_ball(ref.problem, point)).codes
        wide += int((high > 1.04 * low).sum())
        for C in at:
            known = np.flatnonzero((low <= C) & (high >= C))
            there = reference(replace(case, C=C)) if len(known) else ref
            if there.truth is None or there is ref:
                continue
            for i in known:
                first, last = there.exact.ends[i][codes[i]]  # type: ignore[union-attr]
                assert first <= there.truth.margins[i] <= last
                looked_at += 1
    assert looked_at > 10
    assert wide > 2


# -- the next C of an eps-approximate path ------------------------------------------------------


def some_problem(loss: str, seed: int, *, intercept: bool = False) -> Problem:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40, 4)) + 0.2
    if loss in ("hinge", "smoothed_hinge", "squared_hinge"):
        y = np.where(X[:, 0] + rng.standard_normal(40) > 0.2, 1.0, -1.0)
        return svm(X, y, C=0.3, loss=loss, intercept=intercept)
    y = X @ [1.0, -1.0, 0.5, 0.0] + rng.standard_normal(40)
    return regression(X, y, C=0.3, loss=loss, intercept=intercept)


def lowest_value(problem: Problem) -> float:
    found = Newton()(problem, target=1e-12 * problem.primal(np.zeros(problem.d)))
    point = reference_point(problem, found.x, found.theta)
    return point.primal - point.gap


@pytest.mark.table
@pytest.mark.parametrize("accuracy", [1e-10, 1e-4])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_reference_is_eps_optimal_over_its_interval(
    loss: str, intercept: bool, accuracy: float
) -> None:
    """Gap and true error at the ends and inside are at most eps; just outside the gap is more."""
    eps = 1e-3
    for seed in range(3):
        problem = some_problem(loss, seed, intercept=intercept)
        found = Newton()(problem, target=accuracy * problem.primal(np.zeros(problem.d)))
        point = reference_point(problem, found.x, found.theta)
        low, high = eps_interval(problem, point, eps)
        assert 0.0 < low <= 0.3 <= high < np.inf
        assert high / low > 1.02
        for C in (low, 0.5 * (low + 0.3), 0.5 * (0.3 + high), high):
            there = problem.with_(C=C)
            moved = reference_point(there, point.x, C / 0.3 * point.theta)
            best = lowest_value(there)
            assert moved.gap <= eps * best * (1 + 1e-6)
            assert there.primal(point.x) - best <= eps * best * (1 + 1e-6)
        for C in (0.999 * low, 1.001 * high):
            there = problem.with_(C=C)
            moved = reference_point(there, point.x, C / 0.3 * point.theta)
            assert moved.gap > eps * (there.primal(point.x) - moved.gap) * (1 - 1e-2)


def test_an_exact_hinge_reference_gives_the_closed_form() -> None:
    """``[B + sqrt(B^2 - (1+eps) W^4)] / ((1+eps) W^2)`` with ``B = W^2 + eps sum alpha``."""
    for seed in range(10):
        problem = some_problem("hinge", seed)
        found = Newton()(problem, target=1e-13)
        point = reference_point(problem, found.x, found.theta)
        for eps in (1e-2, 1e-3):
            square = float(point.x @ point.x)
            B = square - eps * float(point.theta.sum())
            root = np.sqrt(B**2 - (1 + eps) * square**2)
            low, high = eps_interval(problem, point, eps)
            assert high == pytest.approx(0.3 * (B + root) / ((1 + eps) * square), rel=1e-5)
            assert low == pytest.approx(0.3 * (B - root) / ((1 + eps) * square), rel=1e-5)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("reduced", [False, True])
def test_a_linear_kernel_has_the_ranges_of_its_features(reduced: bool, intercept: bool) -> None:
    """The same problem through a kernel, whole or with a linear term: the same intervals of C."""
    rng = np.random.default_rng(8)
    X = rng.standard_normal((60, 4)) * 30.0
    y = np.where(X[:, 0] + 20.0 * rng.standard_normal(60) > 0, 1.0, -1.0)
    explicit = svm(X, y, C=1e-4, intercept=intercept)
    kernel = svm(X, y, C=1e-4, intercept=intercept, kernel="linear")
    found = Newton()(explicit, target=1e-9 * explicit.primal(np.zeros(explicit.d)))
    first = reference_point(explicit, found.x, found.theta)
    coefficients = -kernel.quadratic.solve(kernel.design.adjoint(first.theta))
    if intercept:
        coefficients[-1] = found.x[-1] - (kernel.design.offset(coefficients))
        margins = explicit.design.forward(found.x)
        coefficients[-1] += np.median((margins - kernel.design.forward(coefficients)) * y)
    second = reference_point(kernel, coefficients, first.theta)
    np.testing.assert_allclose(second.margins, first.margins, atol=1e-4)
    if reduced and not intercept:
        gone = Selection(np.where(np.arange(60) % 2, -1, judge(
            explicit, midpoint_ball(explicit, first)).codes).astype(np.int8))
        assert len(gone.kept) < 50
        one, two = gone.reduce(explicit), gone.reduce(kernel)
        first = reference_point(one, first.x_theta, first.theta[gone.kept])
        second = reference_point(two, coefficients, second.theta[gone.kept])
        explicit, kernel = one, two
    ends = [eps_interval(p, q, 1e-2) for p, q in ((explicit, first), (kernel, second))]
    assert np.isfinite(ends[0]).all()
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-3)
    spans = [c_interval(p, q) for p, q in ((explicit, first), (kernel, second))]
    known = ~np.isnan(spans[0][0])
    assert (known == ~np.isnan(spans[1][0])).mean() > 0.95
    if not intercept:
        both = known & ~np.isnan(spans[1][0])
        np.testing.assert_allclose(spans[0][1][both], spans[1][1][both], rtol=1e-2)


def test_the_error_of_the_smooth_part_is_one(rng: np.random.Generator) -> None:
    """``1/2 <x, M x> + <q, x>`` of cancelling parts, against rational arithmetic."""
    for seed in range(20):
        base = some_problem("hinge", seed % 4)
        x = rng.standard_normal(4) * 10.0 ** rng.uniform(-3, 8, 4)
        problem = replace(base, linear=-0.5 * x * (1 + 1e-9 * rng.standard_normal(4)))
        exact = sum(
            Fraction(float(a)) * (Fraction(float(a)) / 2 + Fraction(float(b)))
            for a, b in zip(x, problem.linear, strict=True)
        )
        computed = problem.primal(x, np.full(40, 2.0))
        error = abs(Fraction(computed) - exact)
        bound = _smooth_error(problem, x)
        assert error <= Fraction(bound)
        assert bound <= 1e-13 * float(x @ x)


def test_a_reference_that_is_too_rough_covers_nothing() -> None:
    """NaN, which no C lies between; eps outside (0, 1) and other data are refused."""
    problem = some_problem("hinge", 0)
    rough = reference_point(problem, np.zeros(4))
    assert np.isnan(eps_interval(problem, rough, 1e-3)).all()
    for eps in (0.0, 1.0, -1e-3, float("nan")):
        with pytest.raises(InvalidInput, match="`eps`"):
            eps_interval(problem, rough, eps)
    other = svm(np.eye(3), [1, -1, 1])
    for call in (c_interval, lambda p, q: eps_interval(p, q, 0.1)):
        with pytest.raises(InvalidInput, match="`point`"):
            call(other, rough)


def test_a_ray_bounds_gap_and_radius_at_every_C(rng: np.random.Generator) -> None:
    """Its closed forms are the evaluated ones: gap and midpoint radius agree to rounding."""
    for loss in LOSSES:
        ref = reference(Case(loss, n=30, C=0.5))
        point = blurred(ref, 1e-2, rng)
        ray = ScaledReference.of(point)
        assert ray is not None
        for s in (0.3, 0.9, 1.0, 1.1, 3.0):
            there = ref.problem.with_(C=0.5 * s)
            moved = reference_point(there, point.x, s * point.theta)
            assert ray.gap(s) >= moved.gap * (1 - 1e-9)
            assert ray.gap(s) == pytest.approx(moved.gap, rel=1e-6)
            square = moved.terms + 0.25 * moved.primal_dual_distance**2
            assert ray.radius(s) == pytest.approx(np.sqrt(square), rel=1e-6)


@pytest.mark.parametrize("bound", ["midpoint", "rrpb"])
@pytest.mark.parametrize("diagonal", [False, True])
def test_ranges_hold_at_optima_of_every_lambda(bound: str, diagonal: bool) -> None:
    checked = 0
    for seed in range(3):
        p = small(seed, diagonal=diagonal, share=0.1)
        for tol in (1e-2, 1e-6):
            low, high, codes = lam_interval(cvxscreen.solve(p, tol=tol).point(), bound)
            rows = codes >= 0
            assert np.isnan(low[~rows]).all()
            assert (low[rows] <= float(p.lam or 0)).all()
            assert (high[rows] >= float(p.lam or 0)).all()
            for factor in (0.3, 0.8, 0.95, 1.05, 1.5, 4.0):
                there = p.with_(lam=factor * float(p.lam or 0))
                margins = there.design.forward(cvxscreen.solve(there, tol=1e-12).x)
                inside = rows & (low <= there.lam) & (there.lam <= high)
                zero, linear = codes == Piece.ZERO, codes == Piece.LOW
                assert (margins[inside & zero] >= 1 - 1e-6).all()
                assert (margins[inside & linear] <= 0.95 + 1e-6).all()
                checked += int(inside.sum())
    assert checked > 50


@pytest.mark.parametrize("bound", ["midpoint", "rrpb"])
def test_ranges_end_where_the_sphere_stops_deciding(bound: str) -> None:
    p = small(1, share=0.1)
    point = cvxscreen.solve(p, tol=1e-5).point()
    low, high, codes = lam_interval(point, bound)
    assert (codes == Piece.ZERO).any()
    assert (codes == Piece.LOW).any()
    for ends, step in ((low, -1.0), (high, 1.0)):
        rows = np.flatnonzero((codes >= 0) & (ends > 1e-9 * p.lam) & (ends < 1e9 * p.lam))
        assert len(rows)
        for t in rows[:10]:
            for inside in (True, False):
                lam = ends[t] * (1.0 + (-1e-9 if inside else 1e-4) * step)
                there = p.with_(lam=float(lam))
                moved = point if bound == "rrpb" else reference_point(there, point.x, point.theta)
                found = judge(there, named(bound)(there, moved)).codes[t]
                assert bool(found == codes[t]) == inside


def test_midpoint_ranges_contain_those_of_the_path_sphere() -> None:
    for seed in range(4):
        point = cvxscreen.solve(small(seed, share=0.05), tol=1e-4).point()
        inner, outer = lam_interval(point, "rrpb"), lam_interval(point, "midpoint")
        rows = inner[2] >= 0
        assert (outer[2][rows] == inner[2][rows]).all()
        assert (outer[0][rows] <= inner[0][rows] * (1 + 1e-6)).all()
        assert (outer[1][rows] >= inner[1][rows] * (1 - 1e-6)).all()


def test_other_problems_and_bounds_are_refused() -> None:
    X, y = cvxscreen.datasets.two_gaussians(20, 2, seed=0)
    with pytest.raises(cvxscreen.InvalidInput, match="cone"):
        lam_interval(cvxscreen.solve(cvxscreen.svm(X, y)).point())
    with pytest.raises(cvxscreen.UnknownName, match="bound"):
        lam_interval(cvxscreen.solve(small(0)).point(), "gb")


@pytest.mark.parametrize("bound", ["midpoint", "rrpb"])
def test_decisions_at_the_references_own_lambda_are_those_of_the_sphere(bound: str) -> None:
    """No more than the sphere there decides, for references of every quality."""
    decided = 0
    for seed in range(6):
        p = small(seed, share=0.05)
        exact = cvxscreen.solve(p, tol=1e-9).x
        for blur in np.geomspace(1e-3, 0.3, 12):
            point = reference_point(p, exact * (1.0 + blur))
            codes = lam_interval(point, bound)[2]
            sphere = judge(p, named(bound)(p, point)).codes
            assert (sphere[codes >= 0] == codes[codes >= 0]).all()
            decided += int((codes >= 0).sum())
    assert decided > 200


def test_an_accurate_reference_decides_no_less_than_a_rough_one() -> None:
    """At an exact reference the radius is ``|M0 - s G0| / 2``: convex, with nothing to spare."""
    for seed in range(3):
        p = small(seed, share=0.1)
        rough, exact = (lam_interval(cvxscreen.solve(p, tol=tol).point()) for tol in (1e-3, 1e-12))
        assert (exact[2] >= 0).sum() >= (rough[2] >= 0).sum() > 0
        rows = rough[2] >= 0
        assert (exact[2][rows] == rough[2][rows]).all()


def test_the_radius_is_called_convex_only_where_it_is(rng: np.random.Generator) -> None:
    """By the discriminant in rational numbers, for terms on both sides of the limit."""
    zero = np.zeros(1)
    said = np.zeros(2, dtype=int)
    for _ in range(300):
        M, G = rng.normal(size=(2, 3)) * 10.0 ** rng.uniform(-3, 3, (2, 1))
        if rng.random() < 0.4:
            G = M * rng.uniform(0.5, 2.0)
        product = float(np.linalg.norm(M) * np.linalg.norm(G))
        limit = 0.5 * (float(M @ G) + product)
        terms = max(limit, 0.0) * float(rng.choice([0.0, 1e-12, 0.5, 1 - 1e-9, 1.0, 1 + 1e-9, 2.0]))
        sphere = _Sphere(
            lam=1.0, m=zero, m_error=zero, k=zero, k_error=zero, h=zero,
            M_norm=float(np.linalg.norm(M)), G_norm=float(np.linalg.norm(G)), cross=float(M @ G),
            terms=terms, off=0.0, relative_error=gamma(16), distance=0.0,
        )
        (mm, mg, gg) = (
            sum(Fraction(float(a)) * Fraction(float(b)) for a, b in zip(u, v, strict=True))
            for u, v in ((M, M), (M, G), (G, G))
        )
        exact = (Fraction(terms) - mg / 2) ** 2 <= mm * gg / 4
        assert exact or not sphere.convex()
        if terms < limit * (1.0 - 1e-8):
            assert sphere.convex()
        said[int(sphere.convex())] += 1
    assert (said > 30).all()


# Whole ranges of C as one region.

def test_a_sweep_contains_the_balls_at_both_of_its_ends(rng: np.random.Generator) -> None:
    """The radius is convex along a ray: the larger of the two ends counts, whichever it is."""
    ref = reference(Case("hinge"))
    x = ref.x * (1.0 + 0.1 * rng.standard_normal(ref.problem.d))
    ray = ScaledReference.of(reference_point(ref.problem, x, ref.theta))
    assert ray is not None
    wanted = Functionals.rows(ref.problem)
    (start, _), (rate, _) = map(wanted.at, ray.places())
    for first, last in ((0.5, 1.0), (1.0, 1.5), (0.7, 1.4)):
        low, high = _Sweep(ray, first, last).span(wanted)
        for s in (first, last):
            middle, reach = 0.5 * (start + s * rate), ray.radius(s) * wanted.norms
            assert (low <= middle - reach).all()
            assert (high >= middle + reach).all()
