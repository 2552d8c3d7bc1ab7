"""The compiled path's proofs: its ball, its gap, its decisions, each rounded outward."""

from __future__ import annotations

import numpy as np
import pytest
from rational import Fraction
from strategies import LOSSES, Case, build, solved

import cvxscreen
from cvxscreen.bounds.regions import Ball
from cvxscreen.core.duality import reference_point
from cvxscreen.core.losses import Piece
from cvxscreen.datasets import two_gaussians
from cvxscreen.screening.reduction import judge
from cvxscreen.solvers.compiled_path.loops import (
    Data,
    Terms,
    fenchel_young_above,
    fix_terms,
    radius,
)
from cvxscreen.solvers.compiled_path.segments import CompiledPath


def test_safe_mode_fixes_only_what_is_true() -> None:
    """Every code of a fixed term is the piece of an optimum known to 1e-14, steps of any size."""
    fixed = 0
    for loss in LOSSES:
        for storage, data in (("dense64", "plain"), ("dense32", "scaled"), ("dense32", "integer")):
            problem = build(Case(loss, False, data, storage, n=120))
            for tol in (1e-2, 1e-4, 1e-9):
                grid = np.geomspace(0.05, 2.0, 12) if tol > 1e-3 else np.geomspace(2.0, 0.3, 12)
                run = CompiledPath(problem, "safe", tol)
                found = run.solve(grid)
                for k in range(1, len(found), 5):
                    ref = solved(problem.with_(C=float(grid[k])), rational=False)
                    codes = np.array(found.theta.codes[k])
                    f, slack = ref.problem.losses, ref.slack
                    k1, k2, k3, k4 = f.knots
                    t = ref.margins
                    zero = ((f.lo == 0) | (t + slack >= k2)) & ((f.hi == 0) | (t - slack <= k3))
                    assert (t - slack <= k1)[codes == 1].all()
                    assert (t + slack >= k4)[codes == 2].all()
                    assert zero[codes == 0].all()
                    fixed += int((codes != 3).sum())
    assert fixed > 1000


def test_the_ball_holds_the_optimum_and_is_tight() -> None:
    """Equality where every term stays on its linear piece; radius x 0.99 fails there."""
    problem = cvxscreen.svm(*two_gaussians(60, 5), C=1e-5)
    x0 = -problem.design.adjoint(problem.losses.lo)
    for ratio in (0.3, 0.9, 1.2, 2.0):
        centre, size = 0.5 * (1 + ratio) * x0, float(np.linalg.norm(x0))
        away = float(np.linalg.norm(ratio * x0 - centre))
        found = radius(0.0, ratio, size, 0.0)
        assert away <= found
        assert away > 0.99 * found


@pytest.mark.parametrize("loss", LOSSES)
def test_the_ball_holds_the_optimum_from_rough_points(loss: str, rng) -> None:
    """Any pair, however far from optimal, and any change of C."""
    problem = build(Case(loss, n=40, C=0.5))
    for ratio in (0.4, 0.95, 1.0, 1.1, 3.0):
        best = solved(problem.with_(C=0.5 * ratio), rational=False)
        near = solved(problem, rational=False)
        for blur in (0.0, 1e-6, 1e-2, 1.0):
            x = near.x + blur * rng.standard_normal(problem.d)
            theta = near.theta * (1 - 0.5 * blur * rng.random(problem.n))
            point = reference_point(problem, x, theta)
            gradient = point.primal_dual_distance + point.dual_error
            found = radius(point.terms, ratio, float(np.linalg.norm(x)), gradient)
            away = np.linalg.norm(best.x - 0.5 * (1 + ratio) * x)
            assert away <= found + best.error


@pytest.mark.parametrize("error", [1e-14, 0.0])
@pytest.mark.parametrize("loss", LOSSES)
def test_charged_terms_are_above_the_exact_ones(loss: str, error: float, rng) -> None:
    """In rational arithmetic, margins anywhere within their error, near kinks above all."""
    f = build(Case(loss, n=30, C=0.7)).losses
    n = len(f)
    inverse = 1.0 / np.maximum(f.q, 1e-300)
    t = np.where(rng.random(n) < 0.5, f.b + f.e, f.b - f.e) + 1e-13 * rng.standard_normal(n)
    theta = np.clip(rng.standard_normal(n), f.lo, f.hi)
    theta[::3] = f.slope(t)[::3]
    norms = rng.random(n)
    terms = Terms(np.zeros((1, n)), f.b, f.e, f.q, inverse, f.lo, f.hi)
    total = fenchel_young_above(t, error, norms, theta, terms, 1.0)
    for sign in (-1.0, 1.0):
        exact = Fraction(0)
        for i in range(n):
            at = Fraction(t[i]) + Fraction(sign * error) * Fraction(norms[i])
            z, e, q = at - Fraction(f.b[i]), Fraction(f.e[i]), Fraction(f.q[i])
            y = z - min(max(z, -e), e)
            ends = [Fraction(v) if np.isfinite(v) else None for v in (f.lo[i], f.hi[i])]
            r = y / q if q else (None if y == 0 else ends[y > 0])
            r = Fraction(0) if r is None else r
            r = r if ends[0] is None else max(r, ends[0])
            r = r if ends[1] is None else min(r, ends[1])
            s = Fraction(theta[i])
            exact += z * (r - s) - e * (abs(r) - abs(s)) - q / 2 * (r * r - s * s)
        assert exact <= Fraction(float(total))


def test_choose_rounds_outward() -> None:
    """A margin whose interval touches a knot is kept; one unit farther it is fixed."""
    knots = np.array([[1.0], [1.0], [np.inf], [np.inf]])
    one, codes, kept = np.ones(1), np.zeros(1, np.int8), np.zeros(2, np.int64)

    def code(t: float, slop: float = 0.0) -> int:
        terms = Terms(one.reshape(1, 1), one, 0 * one, 0 * one, one, -one, 0 * one)
        data = Data(terms, one, slop * one, knots, -1, 0.0)
        fix_terms(data, np.array([t]), 0.25, 1.0, np.empty(1), codes, kept)
        return int(codes[0])

    assert code(0.75) == code(1.25) == code(1.0) == 3
    assert code(np.nextafter(0.75, 0)) == 1
    assert code(np.nextafter(1.25, 2)) == 0
    assert code(np.nan) == 3
    assert code(0.5, 0.25) == code(1.5, 0.25) == 3  # the knot itself is only known so well
    assert code(0.5 - 1e-15, 0.25) == 1
    assert code(1.5 + 1e-15, 0.25) == 0


@pytest.mark.parametrize("loss", LOSSES)
def test_choose_decides_every_term_as_the_rule_does(loss: str, rng) -> None:
    """Over one and the same ball; it does not fix on a parabola, and says 3 for what it keeps."""
    problem = build(Case(loss, n=200, C=0.7))
    data = CompiledPath(problem, "safe", 1e-6).data
    own = {int(Piece.ZERO): 0, int(Piece.LOW): 1, int(Piece.HIGH): 2}
    decided = 0
    for reach in (0.0, 1e-3, 0.1, 1.0):
        x = rng.standard_normal(problem.d)
        ball = Ball(problem, "given", x, problem.design.forward(x), reach, 1.0)
        codes, kept = np.empty(problem.n, np.int8), np.empty(problem.n, np.int64)
        new = np.empty(problem.n)
        m = fix_terms(data, ball.margins, reach, 1.0, new, codes, kept)
        wanted = np.array([own.get(int(code), 3) for code in judge(problem, ball).codes])
        low, high = ball.intervals()
        knots = np.array(problem.losses.knots)
        slack = 1e-12 * (1.0 + np.abs(low) + np.abs(high))
        near = (np.abs(low - knots) <= slack) | (np.abs(high - knots) <= slack)
        assert not ((codes != wanted) & ~near.any(axis=0)).any()
        np.testing.assert_array_equal(kept[:m], np.flatnonzero(codes == 3))
        ends = np.select([codes == 1, codes == 2], [problem.losses.lo, problem.losses.hi], 0.0)
        np.testing.assert_array_equal(new, ends)
        decided += int((codes != 3).sum())
    assert decided > 100


@pytest.mark.parametrize("loss", ["hinge", "absolute"])
def test_safe_mode_fixes_nothing_with_an_intercept(loss: str) -> None:
    """The ball bounds the penalised coordinates alone: every term stays in the solve."""
    found = CompiledPath(build(Case(loss, True, n=60)), "safe", 1e-4).solve(np.geomspace(2, 0.5, 6))
    assert len(found) == 6
    assert (found.theta.codes == 3).all()


# -- compilation -------------------------------------------------------------------------------
