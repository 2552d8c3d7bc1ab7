"""Fits under many weightings at once: those of one fit at a time, whatever the loss."""

from __future__ import annotations

import numpy as np
import pytest

import cvxscreen as cs
from cvxscreen._support import compiled as compiled_support
from cvxscreen.certificates.certificate import certify
from cvxscreen.data_changes import bootstrap as module
from cvxscreen.data_changes.bootstrap import BLOCK, Replicates, counts
from cvxscreen.data_changes.reweight import taken, weighted
from cvxscreen.datasets import two_gaussians

X, Y = two_gaussians(400, 5, seed=3)
T = X @ np.array([1.0, -2.0, 0.5, 0.0, 1.0]) + np.sin(5.0 * X[:, 0])
TIED = np.repeat(X[:100], 4, axis=0)
PROBLEMS = {
    "hinge": lambda: cs.svm(X, Y, C=0.5),
    "intercept": lambda: cs.svm(X, Y, C=0.5, intercept=True),
    "squared hinge": lambda: cs.svm(X, Y, loss="squared_hinge"),
    "smoothed hinge": lambda: cs.svm(X, Y, loss="smoothed_hinge", intercept=True),
    "float32, badly scaled": lambda: cs.svm((1e3 * X).astype(np.float32), Y, C=1e-4),
    "weights": lambda: cs.svm(X, Y, C=0.5, sample_weight=np.linspace(0.5, 2.0, 400)),
    "quantile": lambda: cs.regression(X, T, loss="quantile", tau=0.8, intercept=True),
    "absolute": lambda: cs.regression(X, T, C=0.5),
    "repeated rows": lambda: cs.regression(TIED, T, C=0.5, intercept=True),
    "constant response": lambda: cs.regression(X, np.ones(400), C=0.5, intercept=True),
    "epsilon": lambda: cs.regression(X, T, loss="epsilon", epsilon=0.2),
    "huber": lambda: cs.regression(X, T, C=0.5, loss="huber", intercept=True),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_block_holds_the_fits_of_each_weighting_alone(name: str) -> None:
    solution = cs.solve(PROBLEMS[name](), tol=1e-8)
    W = counts(3, 0, 400)
    x, gap, ok = Replicates(solution, 1e-8).solve(W)
    assert ok.mean() > 0.9 or name in ("constant response", "repeated rows")
    for k in range(0, BLOCK, 5):
        if not ok[k]:
            continue
        used = np.flatnonzero(W[k])
        there = weighted(taken(solution.problem, used), W[k, used])
        alone = cs.solve(there, tol=1e-9)
        assert there.primal(x[k]) <= alone.value * (1.0 + 1e-7) + 1e-9
        assert there.primal(x[k]) >= (alone.value - alone.certificate.gap) * (1.0 - 1e-12)
        assert there.primal(x[k]) - alone.value <= gap[k] * (1.0 + 1e-9) + 1e-9 * alone.value
        assert certify(there, alone.x, alone.theta, tol=1e-6).ok


@pytest.mark.parametrize("n", [1, 2, 7, 400, 99_999])
def test_samples_are_those_that_numpy_draws(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the same bits, and where there are not enough of them."""
    drawn = [np.random.default_rng((4, 64 + k)).integers(0, n, n) for k in range(BLOCK)]
    expected = [np.bincount(numbers, minlength=n) for numbers in drawn]
    np.testing.assert_array_equal(counts(4, 64, n), expected)
    monkeypatch.setattr(module, "tally", lambda bits, out: False)
    np.testing.assert_array_equal(counts(4, 64, n), expected)


def test_slopes_without_end_are_certified_in_blocks() -> None:
    """How steep a kink is cannot be read off ends that are infinite."""
    rng = np.random.default_rng(11)
    features = rng.normal(size=(6000, 20))
    labels = np.sign(features @ rng.normal(size=20) + rng.standard_t(4, 6000))
    problem = cs.svm(features, labels, loss="squared_hinge", intercept=True)
    solution = cs.solve(problem, tol=1e-6)
    assert Replicates(solution, 1e-6).solve(counts(0, 0, 6000))[2].all()


def test_what_a_block_does_not_certify_is_fitted_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    solution = cs.solve(PROBLEMS["quantile"](), tol=1e-9)
    whole = cs.bootstrap(solution, 6, seed=2, tol=1e-9)
    monkeypatch.setattr(
        Replicates, "solve",
        lambda self, W: (np.full((len(W), 6), np.nan), np.full(len(W), np.inf), W[:, 0] < 0),
    )
    monkeypatch.setattr(module, "together", lambda problem: True)
    alone = cs.bootstrap(solution, 6, seed=2, tol=1e-9)
    assert alone.certified.all()
    np.testing.assert_allclose(alone.coefficients, whole.coefficients, atol=1e-5)


def test_no_block_is_begun_before_compiling_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call on a machine makes its fits one by one, until they have cost as much."""
    solution = cs.solve(PROBLEMS["quantile"](), tol=1e-9)
    together = cs.bootstrap(solution, 5, seed=2, tol=1e-9)
    monkeypatch.setattr(module, "together", lambda problem: False)
    monkeypatch.setattr(module.TOGETHER, "spent", 0.0)
    monkeypatch.setattr(module, "Replicates", None)
    alone = cs.bootstrap(solution, 5, seed=2, tol=1e-9)
    assert module.TOGETHER.spent > 0
    np.testing.assert_allclose(alone.coefficients, together.coefficients, atol=1e-5)


def test_many_fits_buy_what_nothing_has_compiled_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a fresh machine a call goes on in blocks once it would cost more to do without."""
    solution, bought = cs.solve(PROBLEMS["quantile"](), tol=1e-9), []
    Replicates(solution, 1e-9).solve(counts(2, 0, 400))  # which compiles, whoever has waited
    blocks = cs.bootstrap(solution, 2 * BLOCK, seed=2, tol=1e-9)
    for clock in (module.TOGETHER, module.FRESH):
        monkeypatch.setattr(clock, "spent", 0.0)
    monkeypatch.setattr(compiled_support, "on_disk", lambda loop: False)
    monkeypatch.setattr(module, "ready", lambda: bool(bought))
    monkeypatch.setattr(module, "compile_now", lambda *clocks: bought.extend(clocks))
    made = []
    monkeypatch.setattr(module, "_fit", lambda *a, fit=module._fit: made.append(a[2]) or fit(*a))
    monkeypatch.setattr(module.FRESH, "price", 1e9)
    assert cs.bootstrap(solution, 5, seed=2, tol=1e-9).certified.all()
    assert made == list(range(5))
    assert not bought
    loaded = module.FRESH.spent
    cs.bootstrap(solution, 5, seed=2, tol=1e-9)
    spent = module.FRESH.spent
    monkeypatch.setattr(module.FRESH, "price", spent + 0.5 * (spent - loaded))  # 2 or 3 more fits
    made.clear()
    found = cs.bootstrap(solution, 2 * BLOCK, seed=2, tol=1e-9)
    assert bought
    assert 0 < len(made) < 2 * BLOCK
    np.testing.assert_allclose(found.coefficients, blocks.coefficients, atol=1e-5)


def test_the_same_draws_as_one_by_one() -> None:
    W = counts(7, 40, 50)
    for k in (0, 31):
        drawn = np.random.default_rng((7, 40 + k)).integers(0, 50, 50)
        np.testing.assert_array_equal(W[k], np.bincount(drawn, minlength=50))
