"""Projections and proximal operators against CVXPY, bisection and their own definitions."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from cvxscreen.errors import InvalidInput
from cvxscreen.multitask import prox

EXACT = {"solver": "CLARABEL", "tol_gap_abs": 1e-9, "tol_gap_rel": 1e-9}


def by_cvxpy(z, objective, constraints, *, symmetric=False):
    x = cp.Variable(z.shape, symmetric=symmetric)
    distance = 0.5 * cp.sum_squares(x - z)
    cp.Problem(cp.Minimize(distance + objective(x)), constraints(x)).solve(**EXACT)
    return x.value


def test_the_projections_agree_with_cvxpy(rng: np.random.Generator) -> None:
    z = rng.standard_normal(7)
    theirs = by_cvxpy(z, lambda x: 0, lambda x: [x >= 0, x <= 1, cp.sum(x) == 2.5])
    np.testing.assert_allclose(prox.capped_simplex(z, 2.5), theirs, atol=2e-6)
    z = rng.standard_normal((5, 5))
    z = z + z.T
    theirs = by_cvxpy(
        z, lambda x: 0, lambda x: [x >> 0, np.eye(5) - x >> 0, cp.trace(x) == 2], symmetric=True
    )
    np.testing.assert_allclose(prox.fantope(z, 2), theirs, atol=2e-5)


def spectral_box_norm(U, eta, h):
    """``min tr(U' (eta I + M)^{-1} U)`` over the set."""
    P, g = prox.spectral_box_norm_factor(U, eta, h)
    return float(np.sum((P.T @ U) ** 2 / (eta + g)[:, None]))


def dual_norm(V, eta, h):
    """``max tr(V' (eta I + M) V)`` over the same set."""
    s = np.linalg.svd(V, compute_uv=False)
    return float(eta * np.sum(s**2) + np.sum(s[:h] ** 2))


def omega(U, eta, h):
    """The spectral box norm in CVXPY: its value and the expression for a variable U."""
    d, m = U.shape
    M, T = cp.Variable((d, d), symmetric=True), cp.Variable((m, m), symmetric=True)
    block = cp.bmat([[eta * np.eye(d) + M, U], [U.T, T]])
    return cp.trace(T), [block >> 0, M >> 0, np.eye(d) - M >> 0, cp.trace(M) == h]


@pytest.mark.parametrize(("d", "m", "h"), [(4, 3, 1), (3, 5, 2), (5, 2, 4)])
def test_spectral_box_norm_agrees_with_cvxpy(d, m, h, rng) -> None:
    U, eta, step = rng.standard_normal((d, m)), 0.2, 0.3
    value, constraints = omega(U, eta, h)
    found = cp.Problem(cp.Minimize(value), constraints).solve(**EXACT)
    _, g = prox.spectral_box_norm_factor(U, eta, h)
    assert g.sum() == pytest.approx(h, abs=1e-12)
    assert spectral_box_norm(U, eta, h) == pytest.approx(found, rel=1e-7)
    X = cp.Variable((d, m))
    value, constraints = omega(X, eta, h)
    cp.Problem(cp.Minimize(0.5 * cp.sum_squares(X - U) + step * value), constraints).solve(**EXACT)
    np.testing.assert_allclose(prox.spectral_box_norm_prox(U, step, eta, h), X.value, atol=2e-5)


def test_prox_of_the_box_norm_uses_its_own_weights(rng: np.random.Generator) -> None:
    """Weights for ``eta`` instead of ``eta + 2 step`` give a point that is not optimal."""
    U, eta, h, step = rng.standard_normal((5, 4)), 0.1, 2, 0.5

    def objective(Z):
        return 0.5 * np.sum((Z - U) ** 2) + step * spectral_box_norm(Z, eta, h)

    right = prox.spectral_box_norm_prox(U, step, eta, h)
    P, s, Q = np.linalg.svd(U, full_matrices=False)
    padded = np.append(s, 0.0)
    g = prox.box_norm_weights(padded, eta, h)[:4]
    wrong = (P * (s * (eta + g) / (eta + g + 2 * step))) @ Q
    assert objective(right) < objective(wrong) - 1e-4
    for _ in range(50):
        assert objective(right) <= objective(right + 1e-3 * rng.standard_normal(U.shape)) + 1e-12


def test_the_dual_norm_is_the_conjugate(rng: np.random.Generator) -> None:
    """``<U, V> <= c Omega(U) + Omega0(V) / 4c``, with equality at ``U = A V / 2c``."""
    eta, h, c = 0.3, 2, 0.7
    for _ in range(30):
        U, V = rng.standard_normal((5, 4)), rng.standard_normal((5, 4))
        bound = dual_norm(V, eta, h) / (4 * c)
        assert np.vdot(U, V) <= c * spectral_box_norm(U, eta, h) + bound + 1e-12
        W = np.linalg.svd(V)[0][:, :h]
        best = (eta * V + W @ (W.T @ V)) / (2 * c)
        together = c * spectral_box_norm(best, eta, h) + bound
        assert np.vdot(best, V) == pytest.approx(together, rel=1e-12)


def bisected(s, eta, h):
    low, high = 0.0, 1.0
    while np.clip(s * high - eta, 0, 1).sum() < h:
        high *= 2
    for _ in range(200):
        middle = 0.5 * (low + high)
        enough = np.clip(s * middle - eta, 0, 1).sum() >= h
        low, high = (low, middle) if enough else (middle, high)
    return np.clip(s * high - eta, 0, 1)


def test_box_norm_weights_agree_with_bisection(rng: np.random.Generator) -> None:
    for k in range(400):
        q = int(rng.integers(1, 14))
        s = rng.random(q) if k % 3 else np.round(3 * rng.random(q))  # ties and zeros
        s[rng.random(q) < 0.2 * (k % 5 == 0)] = 0.0
        eta, h = 10.0 ** rng.uniform(-3, 1), (rng.random() * q if k % 2 else int(rng.integers(q)))
        g = prox.box_norm_weights(s, eta, h)
        assert g.sum() == pytest.approx(h, abs=1e-11)
        assert ((g >= 0) & (g <= 1)).all()
        if 0 < h < (s > 0).sum():
            np.testing.assert_allclose(g, bisected(s, eta, h), atol=1e-11)
        else:  # fewer non-zeros than h: they get 1, the others share the rest
            assert (g[s > 0] == (1.0 if h else 0.0)).all()


def test_scales_do_not_matter(rng: np.random.Generator) -> None:
    s = rng.random(9)
    for scale in (1e-200, 1e-20, 1e20, 1e200):
        np.testing.assert_allclose(
            prox.box_norm_weights(scale * s, 0.1, 3), prox.box_norm_weights(s, 0.1, 3), atol=1e-12
        )


def test_capped_simplex_keeps_to_its_set(rng: np.random.Generator) -> None:
    for k in range(500):
        size = int(rng.integers(1, 12))
        z = 10.0 ** rng.integers(-6, 6) * rng.standard_normal(size)
        z = z if k % 3 else np.round(z)
        total = rng.random() * size if k % 2 else float(rng.integers(size + 1))
        x = prox.capped_simplex(z, total)
        assert x.sum() == pytest.approx(total, abs=1e-9)
        assert ((x >= 0) & (x <= 1)).all()
        towards = rng.random(size)
        towards = prox.capped_simplex(towards, total)  # another point of the set
        assert (z - x) @ (towards - x) <= 1e-9 * (1 + np.abs(z).max())


@pytest.mark.parametrize(
    "call",
    [
        lambda: prox.capped_simplex([0.1, 0.2], 3),
        lambda: prox.box_norm_weights([1.0, 2.0], 0.1, 3),
        lambda: prox.box_norm_weights([1.0, 2.0], 0.0, 1),
        lambda: prox.box_norm_weights([-1.0, 2.0], 0.1, 1),
        lambda: prox.box_norm_weights([1.0, np.nan], 0.1, 1),
    ],
)
def test_refuses_bad_input(call) -> None:
    with pytest.raises(InvalidInput):
        call()
