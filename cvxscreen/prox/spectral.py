"""Projections and proximal operators of matrices, through their eigenvalues or singular values."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen.errors import InvalidInput
from cvxscreen.inputs import finite, positive, whole
from cvxscreen.prox.box_norm import box_norm_weights
from cvxscreen.prox.vectors import capped_simplex, weight

Array = NDArray[np.float64]


def _eigen(A: ArrayLike) -> tuple[Array, Array]:
    A = finite("A", A)
    if A.ndim != 2 or A.shape[0] != A.shape[1]:
        raise InvalidInput(f"`A` has shape {A.shape}; a square matrix is needed.")
    values, vectors = np.linalg.eigh(0.5 * (A + A.T))
    return values, vectors


def _matrix(name: str, values: ArrayLike) -> Array:
    found = finite(name, values)
    if found.ndim != 2:
        raise InvalidInput(f"`{name}` has shape {found.shape}; a matrix (d, m) is needed.")
    return found


def _rebuilt(values: Array, vectors: Array) -> Array:
    out = (vectors * values) @ vectors.T
    return 0.5 * (out + out.T)


def psd(A: ArrayLike) -> Array:
    """Projection of the symmetric part onto the positive semidefinite matrices."""
    values, vectors = _eigen(A)
    return _rebuilt(np.maximum(values, 0.0), vectors)


def psd_elastic(A: ArrayLike, step: float, trace_weight: float, l2_weight: float) -> Array:
    """Prox of ``step (trace_weight tr X + l2/2 ||X||_F^2)`` over positive semidefinite ``X``."""
    step, l2_weight = weight("step", step), weight("l2_weight", l2_weight)
    trace_weight = weight("trace_weight", trace_weight)
    values, vectors = _eigen(A)
    values = np.maximum(values - step * trace_weight, 0.0) / (1.0 + step * l2_weight)
    return _rebuilt(values, vectors)


def fantope(A: ArrayLike, h: float) -> Array:
    """Projection of the symmetric part onto ``{tr M = h, 0 <= M <= I}`` (d x d)."""
    values, vectors = _eigen(A)
    return _rebuilt(capped_simplex(values, h), vectors)


def spectral_box_norm_factor(U: ArrayLike, eta: float, h: float) -> tuple[Array, Array]:
    """The minimiser ``M = P diag(g) P'`` of ``tr(U' (eta I + M)^{-1} U)`` over the Fantope.

    Returns
    -------
    P : array, shape (d, d)
        Left singular vectors of `U`, null directions included: they take what is left of ``h``
        where the rank of `U` is smaller.
    g : array, shape (d,)
    """
    U = _matrix("U", U)
    P, s, _ = np.linalg.svd(U, full_matrices=True)
    padded = np.zeros(len(U))
    padded[: len(s)] = s
    return P, box_norm_weights(padded, eta, h)


def spectral_box_norm(U: ArrayLike, eta: float, h: float) -> float:
    """``Omega(U) = min tr(U' (eta I + M)^{-1} U)`` over ``{tr M = h, 0 <= M <= I}``."""
    U = _matrix("U", U)
    s = np.zeros(len(U))
    found = np.linalg.svd(U, compute_uv=False)
    s[: len(found)] = found
    return float(np.sum(s**2 / (eta + box_norm_weights(s, eta, h))))


def spectral_box_norm_dual(V: ArrayLike, eta: float, h: int) -> float:
    """``max tr(V' (eta I + M) V)`` over the same set: ``eta ||V||_F^2`` plus the top h ``s_i^2``.

    The conjugate of ``c Omega`` is this over ``4 c``.
    """
    V, eta = _matrix("V", V), positive("eta", eta)
    h = whole("h", h, 0, len(V))
    s = np.linalg.svd(V, compute_uv=False)
    return float(eta * np.sum(s**2) + np.sum(s[:h] ** 2))


def spectral_box_norm_prox(U: ArrayLike, step: float, eta: float, h: float) -> Array:
    """Prox of ``step Omega``: singular values times ``(eta + g) / (eta + g + 2 step)``.

    ``g`` are the weights for ``eta + 2 step``: minimising over U first leaves
    ``min_g sum s_i^2 / (eta + 2 step + g_i)``.
    """
    U = _matrix("U", U)
    step, eta = weight("step", step), positive("eta", eta)
    P, s, Q = np.linalg.svd(U, full_matrices=False)
    padded = np.zeros(len(U))
    padded[: len(s)] = s
    g = box_norm_weights(padded, eta + 2.0 * step, h)[: len(s)]
    return np.asarray((P * (s * (eta + g) / (eta + g + 2.0 * step))) @ Q)
