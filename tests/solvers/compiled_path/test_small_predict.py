"""What the compiled path expects of its next point; a wrong guess costs time, never the answer."""

from __future__ import annotations

import numpy as np
import pytest

import cvxscreen
from cvxscreen.datasets import two_gaussians
from cvxscreen.solvers import prediction
from cvxscreen.solvers.compiled_path.loops import (
    COLUMNS,
    FOLLOW,
    STATE,
    Terms,
    Workspace,
    band,
    fixed_sum,
    predict_margins,
    update_prediction,
)
from cvxscreen.solvers.compiled_path.segments import CompiledPath


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
