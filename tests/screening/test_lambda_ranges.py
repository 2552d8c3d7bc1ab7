"""Ranges over lambda: never too long, and not much too short."""

from __future__ import annotations

import numpy as np
import pytest
from metric_exact import small

import cvxscreen
from cvxscreen.bounds import named
from cvxscreen.core.duality import reference_point
from cvxscreen.core.losses import Piece
from cvxscreen.screening.lambda_ranges import lam_interval
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
