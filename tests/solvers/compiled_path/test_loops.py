"""The compiled path's loops: proofs, each rounded outward, and guesses, which cost time at most."""

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
from cvxscreen.solvers import prediction
from cvxscreen.solvers.compiled_path.loops import (
    COLUMNS,
    FOLLOW,
    STATE,
    Data,
    Terms,
    Workspace,
    band,
    fenchel_young_above,
    fix_terms,
    fixed_sum,
    predict_margins,
    radius,
    update_prediction,
)
from cvxscreen.solvers.compiled_path.segments import CompiledPath

# -- what is proven: the ball, the gap, the decisions ---------------------------------------------


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


# -- what is expected of the next point -----------------------------------------------------------


def fresh():
    """Nothing known."""
    state = np.zeros(1, STATE).view(np.recarray)[0]
    state.unit = 1.0
    return state


def test_steps_that_grow_alike_are_carried_on(rng) -> None:
    """Margins linear in C on a geometric grid: the next are met exactly; turns fall back."""
    n, ratio, state = 40, 1.6, fresh()
    start, slope = rng.standard_normal(n), rng.standard_normal(n)
    norms, centre = np.ones(n), np.empty(n)
    t = [start + slope * ratio**k for k in range(4)]
    older = t[0].copy()
    update_prediction(t[2], t[1], t[1], older, norms, state, np.log(ratio), 0.0, 0.0)
    np.testing.assert_array_equal(older, t[1])
    assert state.follow == pytest.approx(ratio)
    assert state.error == pytest.approx(np.abs(t[2] - t[1]).max())
    reach = predict_margins(t[2], older, norms, centre, state, np.log(ratio), 0.0)
    np.testing.assert_allclose(centre, t[3], rtol=1e-12)
    assert reach >= state.error
    across = np.zeros(n)
    across[:2] = -slope[1], slope[0]  # at right angles to the step before
    older = t[1] - np.where(np.arange(n) < 2, slope, 0.0)
    update_prediction(t[1] + across, t[1], t[1], older, norms, state, np.log(ratio), 0.0, 0.0)
    assert state.follow == pytest.approx(FOLLOW)


def test_two_points_without_a_step_leave_no_nan() -> None:
    """Margins that rest twice, as where a prediction is already the answer, say nothing."""
    state, t, norms = fresh(), np.linspace(-1.0, 1.0, 9), np.ones(9)
    update_prediction(t, t, t, t.copy(), norms, state, 0.5, 0.0, 0.0)
    assert np.isfinite(list(state)).all()
    assert state.follow == FOLLOW


def test_the_band_is_in_units_of_the_margins() -> None:
    """The weight that it gives makes a band of that width: weight times the span of the slopes."""
    for loss, y in (("hinge", None), ("absolute", 30.0)):
        X, labels = two_gaussians(60, 3)
        problem = (cvxscreen.svm(X, labels, C=0.7) if y is None
                   else cvxscreen.regression(X, y * labels, C=0.7, loss=loss))
        run = CompiledPath(problem, "certified", 1e-6)
        span = float((problem.losses.hi - problem.losses.lo)[0])
        assert band(run.state, 0.01) * run.state.weight * span == pytest.approx(0.01)


@pytest.mark.parametrize("ratio", [1.5, 0.5])
def test_the_tangent_is_exact_where_no_term_changes_its_piece(ratio: float) -> None:
    """At tiny C every slope is at its end and x = C v: one step back is ``before / ratio``."""
    problem = cvxscreen.svm(*two_gaussians(60, 5), C=1e-6)
    run = CompiledPath(problem, "certified", 1e-6)
    run.restart(1e-6, -problem.design.adjoint(problem.losses.lo), problem.losses.lo)
    run.look_back(ratio)
    np.testing.assert_allclose(run.along.older, run.t / ratio, rtol=1e-12)
    assert run.state.stride == np.log(ratio)


def test_guesses_save_passes() -> None:
    """After the first points hardly more than the two passes that every point needs."""
    problem = cvxscreen.svm(*two_gaussians(12_000, 8, bayes_error=0.1), intercept=True)
    found = CompiledPath(problem, "certified", 1e-6).solve(np.geomspace(0.01, 10.0, 40))
    assert len(found) == 40
    assert found.proofs.ok.all()
    assert found.record[2:, 5].mean() < 4.0
    assert found.record[2:, 0].mean() < 0.05 * problem.n


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "smoothed_hinge"])
def test_wrong_guesses_are_put_right(loss: str, rng) -> None:
    """Nonsense in what is remembered, of every kind: the points are certified all the same."""
    problem = cvxscreen.svm(*two_gaussians(5000, 4, bayes_error=0.1), loss=loss, intercept=True)
    for spoil in range(4):
        run = CompiledPath(problem, "certified", 1e-6)
        assert run.solve(np.array([0.01, 0.03, 0.1])).proofs.ok.all()
        if spoil == 0:
            run.along.older[:] = rng.standard_normal(problem.n)
        elif spoil == 1:
            run.state.error = 0.0
        elif spoil == 2:
            run.state.follow = -50.0
        else:
            run.state.begin = 1e-9
        found = run.solve(np.array([0.3, 0.1, 7.0]))
        assert len(found) == 3
        assert found.proofs.ok.all()


def test_the_sum_of_fixed_terms_is_kept_up_to_date(rng) -> None:
    """From the codes before, at another C, as from all rows; afresh where too many have changed."""
    d, n, ratio = 4, 300, 1.7
    A, lo, hi = rng.standard_normal((d, n)), -rng.random(n), rng.random(n)
    last = rng.integers(0, 4, n).astype(np.int8)
    codes = last.copy()
    codes[::20] = (codes[::20] + 1) % 4
    terms = Terms(A, *np.zeros((4, n)), lo, hi)
    ends = np.stack([np.zeros(n), lo, hi, np.zeros(n)])
    new = ends[codes, np.arange(n)] * ratio
    for most in (0, 10, 50):
        work = Workspace.of_size(d, n)
        work.rho[:] = A @ ends[last, np.arange(n)]
        share = fixed_sum(terms, ratio, ratio, codes, last, new, work, most)
        np.testing.assert_allclose(work.rho, A @ new, rtol=1e-10, atol=1e-12)
        assert share == (15 / n if most == 50 else 1.0)


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_many_terms_are_begun_at_two_samples(repeated, intercept, monkeypatch) -> None:
    """With fewer passes than from a rough solution of all of them, and the same certificate.

    Where every term of the samples is the same one, they say that nothing moves: what they guess
    is refuted, and the answer is as good.
    """
    X, y = two_gaussians(40_000, 4, seed=3)
    if repeated:
        X[::60], y[::60] = X[0], y[0]
    problem = cvxscreen.svm(X, y, C=10.0, intercept=intercept)
    passes = []
    for least in (30_000, 10**9):
        monkeypatch.setattr(prediction, "PILOT", least)
        found = CompiledPath(problem, "certified", 1e-8).solve(np.array([10.0, 10.0, 20.0]))
        assert len(found) == 3
        assert found.proofs.ok.all()
        passes.append(found.record[0, COLUMNS.index("passes")])
    assert repeated or passes[0] < passes[1]


def test_a_few_refuted_terms_do_not_widen_a_rough_guess(rng) -> None:
    """A rough answer that refutes a hundred of 120,000 still says where margins go.

    (LAD kept 35,000 terms instead, and of 1,000,000 x 50 406,000 for 28,000.)
    """
    X = rng.standard_normal((120_000, 4))
    y = X @ rng.standard_normal(4) + rng.standard_normal(120_000)
    problem = cvxscreen.regression(X, y, C=1.0, loss="absolute", intercept=True)
    found = CompiledPath(problem, "certified", 1e-10).solve(np.array([1.0]))
    assert found.proofs.ok.all()
    assert found.record[0, COLUMNS.index("kept")] < 0.1 * problem.n
