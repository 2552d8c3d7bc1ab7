"""The set of M, ``{tr M = h, 0 <= M <= I}``, and the spectral box norm of U that it leaves.

The projection goes through eigenvalues, the prox of the norm through singular values. Between them
are the weights of the box norm: ``min sum_i s_i^2 / (eta + g_i)`` over ``sum g = h, 0 <= g <= 1``.
At its optimum ``g_i = clip(s_i / sqrt(t) - eta, 0, 1)`` for one ``t > 0`` (Chen et al. 2013, (78)).
One sort finds it, up to some ten thousand numbers sooner than the linear-time search of the paper's
Algorithm 3, in which the names of the two critical parameters in (80) are exchanged (``g = 0`` from
``t = s^2 / eta^2`` on, ``g = 1`` up to ``t = s^2 / (1 + eta)^2``). Fewer than ``h`` non-zero
``s_i`` are no reason to give up: the rest of ``h`` goes to directions that cost nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.validation import array, finite, number, positive
from cvxscreen.errors import InvalidInput

__all__ = [
    "box_norm_weights",
    "capped_simplex",
    "fantope",
    "spectral_box_norm_factor",
    "spectral_box_norm_prox",
]

Array = NDArray[np.float64]


def capped_simplex(z: ArrayLike, total: float) -> Array:
    """Projection onto ``{sum x = total, 0 <= x <= 1}``.

    ``x = clip(z - tau, 0, 1)``; the sum is piecewise linear in ``tau`` with knots ``z - 1`` and
    ``z``, so one sort finds ``tau`` (Chen et al. 2013, (75), eigenvalue by eigenvalue).

    Parameters
    ----------
    z : array_like, shape (k,)
    total : float
        In [0, k].

    Raises
    ------
    InvalidInput
        If no point has that sum.
    """
    z = array("z", z)
    if z.ndim != 1 or not np.isfinite(z).all():
        raise InvalidInput(f"`z` has shape {z.shape}; a vector of finite numbers is needed.")
    k = len(z)
    if not 0.0 <= number("total", total) <= k:
        raise InvalidInput(f"`total` is {total}; a number between 0 and {k} is needed.")
    if total == k:
        return np.ones(k)
    if total == 0:
        return np.zeros(k)
    knots = np.concatenate([z - 1.0, z])
    order = np.argsort(knots, kind="stable")
    knots = knots[order]
    slopes = np.cumsum(np.where(order < k, -1.0, 1.0))
    sums = np.concatenate([[float(k)], k + np.cumsum(slopes[:-1] * np.diff(knots))])
    j = int(np.searchsorted(-sums, -total, side="right")) - 1
    low, high = knots[j], knots[min(j + 1, 2 * k - 1)]
    # Between two knots the members are known, and with them tau without the cumulated rounding.
    ones, middle = z - 1.0 >= high, (z - 1.0 <= low) & (z >= high)
    tau = low
    if middle.any():
        tau = (float(z[middle].sum()) + int((ones & ~middle).sum()) - total) / int(middle.sum())
        tau = min(max(tau, low), high)
    return np.clip(z - tau, 0.0, 1.0)


_NOTHING = 1e-150
"""Relative to the largest: what is smaller counts as zero (its breakpoints would overflow)."""


def box_norm_weights(s: ArrayLike, eta: float, h: float) -> Array:
    """The weights ``g`` by sorting, O(q log q).

    With ``r = 1/sqrt(t)`` every ``g_i`` is piecewise linear, with knots ``eta/s_i`` and
    ``(1 + eta)/s_i``.

    Parameters
    ----------
    s : array_like, shape (q,)
        Non-negative, in any order.
    eta : float
        Positive.
    h : float
        In [0, q].

    Returns
    -------
    array, shape (q,)

    Raises
    ------
    InvalidInput
        If ``h`` is not in [0, q], or ``eta`` not positive.
    """
    s, easy = _easy(s, eta, h)
    if easy is not None:
        return easy
    used = s > 0
    p = s[used]
    starts, ends = eta / p, (1.0 + eta) / p
    knots = np.concatenate([starts, ends])
    order = np.argsort(knots, kind="stable")
    knots = knots[order]
    slopes = np.cumsum(np.concatenate([p, -p])[order])
    sums = np.concatenate([[0.0], np.cumsum(np.maximum(slopes[:-1], 0.0) * np.diff(knots))])
    j = int(np.searchsorted(sums, h, side="right")) - 1
    low, high = knots[j], knots[min(j + 1, len(knots) - 1)]
    ones = ends <= low
    middle = (starts <= low) & (ends >= high) & ~ones
    r = low
    if middle.any():
        r = (h - int(ones.sum()) + eta * int(middle.sum())) / float(p[middle].sum())
        r = min(max(r, low), high)
    g = np.zeros(len(s))
    g[used] = np.clip(p * r - eta, 0.0, 1.0)
    return g


def _easy(s: ArrayLike, eta: float, h: float) -> tuple[Array, Array | None]:
    """Checked and scaled ``s``, and the answer where no search is needed."""
    s, eta = array("s", s), positive("eta", eta)
    if s.ndim != 1 or not np.isfinite(s).all() or (s < 0).any():
        raise InvalidInput("`s` must be a vector of finite, non-negative numbers.")
    if not 0 <= number("h", h) <= len(s):
        raise InvalidInput(f"`h` is {h}; a number between 0 and {len(s)} is needed.")
    top = float(s.max(initial=0.0))
    if top > 0:
        s = s / top
    s = np.where(s > _NOTHING, s, 0.0)
    nonzero = s > 0
    count = int(nonzero.sum())
    if h == 0:
        return s, np.zeros(len(s))
    if h >= count:
        g = np.where(nonzero, 1.0, 0.0)
        if count < len(s):
            g[~nonzero] = (h - count) / (len(s) - count)
        return s, g
    return s, None


def _matrix(name: str, values: ArrayLike) -> Array:
    found = finite(name, values)
    if found.ndim != 2:
        raise InvalidInput(f"`{name}` has shape {found.shape}; a matrix is needed.")
    return found


def fantope(A: ArrayLike, h: float) -> Array:
    """Projection of the symmetric part onto ``{tr M = h, 0 <= M <= I}`` (d x d)."""
    A = _matrix("A", A)
    if A.shape[0] != A.shape[1]:
        raise InvalidInput(f"`A` has shape {A.shape}; a square matrix is needed.")
    values, vectors = np.linalg.eigh(0.5 * (A + A.T))
    out = (vectors * capped_simplex(values, h)) @ vectors.T
    return 0.5 * (out + out.T)


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


def spectral_box_norm_prox(U: ArrayLike, step: float, eta: float, h: float) -> Array:
    """Prox of ``step Omega``: singular values times ``(eta + g) / (eta + g + 2 step)``.

    ``g`` are the weights for ``eta + 2 step``: minimising over U first leaves
    ``min_g sum s_i^2 / (eta + 2 step + g_i)``.
    """
    U = _matrix("U", U)
    step, eta = number("step", step, "a number >= 0 is needed"), positive("eta", eta)
    if not step >= 0.0:
        raise InvalidInput(f"`step` is {step}; a number >= 0 is needed.")
    P, s, Q = np.linalg.svd(U, full_matrices=False)
    padded = np.zeros(len(U))
    padded[: len(s)] = s
    g = box_norm_weights(padded, eta + 2.0 * step, h)[: len(s)]
    return np.asarray((P * (s * (eta + g) / (eta + g + 2.0 * step))) @ Q)
