"""Ranges over lambda: never too long, and not much too short."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from metric_exact import small

import cvxscreen
from cvxscreen._support.rounding import gamma
from cvxscreen.bounds import named
from cvxscreen.core.duality import reference_point
from cvxscreen.core.losses import Piece
from cvxscreen.screening.lambda_ranges import _Sphere, lam_interval
from cvxscreen.screening.verdict import judge


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
