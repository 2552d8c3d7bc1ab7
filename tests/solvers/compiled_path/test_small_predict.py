"""What the compiled path expects of its next point; a wrong guess costs time, never the answer."""

from __future__ import annotations

import numpy as np
import pytest

import cvxscreen
from cvxscreen.datasets import two_gaussians
from cvxscreen.solvers.compiled_path import path_loop as small_predict
from cvxscreen.solvers.compiled_path.newton import direction
from cvxscreen.solvers.compiled_path.path_loop import (
    FOLLOW,
    MEMORY,
    band,
    fixed_pull,
    foresee,
    learn,
    tangent,
)
from cvxscreen.solvers.compiled_path.segments import CompiledPath


def test_steps_that_grow_alike_are_carried_on(rng) -> None:
    """Margins linear in C on a geometric grid: the next are met exactly; turns fall back."""
    n, ratio, memory = 40, 1.6, np.zeros(MEMORY)
    memory[10] = 1.0
    start, slope = rng.standard_normal(n), rng.standard_normal(n)
    norms, centre = np.ones(n), np.empty(n)
    t = [start + slope * ratio**k for k in range(4)]
    older = t[0].copy()
    learn(n, t[2], t[1], t[1], older, norms, memory, np.log(ratio), 5, 0.0, 0.0)
    np.testing.assert_array_equal(older, t[1])
    assert memory[9] == pytest.approx(ratio)
    assert memory[8] == pytest.approx(np.abs(t[2] - t[1]).max())
    reach = foresee(n, t[2], older, norms, centre, memory, np.log(ratio), 0.0)
    np.testing.assert_allclose(centre, t[3], rtol=1e-12)
    assert reach >= memory[8]
    across = np.zeros(n)
    across[:2] = -slope[1], slope[0]  # at right angles to the step before
    older = t[1] - np.where(np.arange(n) < 2, slope, 0.0)
    learn(n, t[1] + across, t[1], t[1], older, norms, memory, np.log(ratio), 5, 0.0, 0.0)
    assert memory[9] == pytest.approx(FOLLOW)


def test_two_points_without_a_step_leave_no_nan() -> None:
    """Margins that rest twice, as where a prediction is already the answer, say nothing."""
    memory, t, norms = np.zeros(MEMORY), np.linspace(-1.0, 1.0, 9), np.ones(9)
    memory[10] = 1.0
    learn(9, t, t, t, t.copy(), norms, memory, 0.5, 0, 0.0, 0.0)
    assert np.isfinite(memory).all()
    assert memory[9] == FOLLOW


def test_the_band_is_in_units_of_the_margins() -> None:
    """The weight that it gives makes a band of that width: weight times the span of the slopes."""
    for loss, y in (("hinge", None), ("absolute", 30.0)):
        X, labels = two_gaussians(60, 3)
        problem = (cvxscreen.svm(X, labels, C=0.7) if y is None
                   else cvxscreen.regression(X, y * labels, C=0.7, loss=loss))
        run = CompiledPath(problem, "certified", 1e-6)
        span = float((problem.losses.hi - problem.losses.lo)[0])
        assert band(run.memory, 0.01) * run.memory[1] * span == pytest.approx(0.01)


@pytest.mark.parametrize("ratio", [1.5, 0.5])
def test_the_tangent_is_exact_where_no_term_changes_its_piece(ratio: float, monkeypatch) -> None:
    """At tiny C every slope is at its end and x = C v: one step back is ``before / ratio``."""
    monkeypatch.setattr(small_predict, "direction", direction, raising=False)
    problem = cvxscreen.svm(*two_gaussians(60, 5), C=1e-6)
    A, f = np.ascontiguousarray(problem.design.dense().T), problem.losses
    d, n = A.shape
    x = -problem.design.adjoint(f.lo)
    memory, older = np.zeros(MEMORY), np.empty(n)
    memory[:2] = 1.0
    room = np.empty((5, n))
    before = A.T @ x
    tangent(
        d, n, A, f.b, f.e, f.q, f.lo, f.hi, -1, 0.0, x, f.lo.copy(), memory, ratio, before, older,
        np.empty((d, n)), *room, np.empty(n + 1, np.int64), np.empty((64, 128)), np.empty((d, d)),
        np.empty(d), np.empty(d), np.empty(d),
    )
    np.testing.assert_allclose(older, before / ratio, rtol=1e-12)
    assert memory[7] == np.log(ratio)


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
            run.older[:] = rng.standard_normal(problem.n)
        elif spoil == 1:
            run.memory[8] = 0.0
        elif spoil == 2:
            run.memory[9] = -50.0
        else:
            run.memory[6] = 1e-9
        found = run.solve(np.array([0.3, 0.1, 7.0]))
        assert len(found) == 3
        assert found.proofs.ok.all()


def test_the_pull_of_fixed_terms_is_kept_up_to_date(rng) -> None:
    """From the codes before, at another C, as from all rows; afresh where too many have changed."""
    d, n, ratio = 4, 300, 1.7
    A, lo, hi = rng.standard_normal((d, n)), -rng.random(n), rng.random(n)
    last = rng.integers(0, 4, n).astype(np.int8)
    codes = last.copy()
    codes[::20] = (codes[::20] + 1) % 4
    ends = np.stack([np.zeros(n), lo, hi, np.zeros(n)])
    new = ends[codes, np.arange(n)] * ratio
    for most in (0, 10, 50):
        rho = A @ ends[last, np.arange(n)]
        share = fixed_pull(
            d, n, A, lo, hi, ratio, ratio, codes, last, new, rho, np.empty(n, np.int64), most
        )
        np.testing.assert_allclose(rho, A @ new, rtol=1e-10, atol=1e-12)
        assert share == (15 / n if most == 50 else 1.0)
