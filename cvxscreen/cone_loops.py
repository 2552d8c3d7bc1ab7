"""Loops behind the screening rules of a ball cut by a cone: one term at a time, O(d) or O(d log d).

Each only *proposes* a multiplier; what it proves is evaluated elsewhere, with its rounding. For a
term H, a ball of centre Q and radius r, and a threshold C, ``min <H, X>`` over ball and cone
is at least ``<H - N, Q> - r |H - N|`` for every N in the dual cone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from cvxscreen.compiling import together_or_plain

Loop = Callable[..., Any]

_STEPS, _SECULAR = 25, 60


def _negative(w, u, v, t, x):  # type: ignore[no-untyped-def]
    """The negative eigenvalue of ``diag(w) - t u u' + t v v'`` (0 if none), its vector in x.

    Rayleigh quotients of ``(diag(w) + t v v' - l)^-1 u``: Newton's method on the secular equation,
    every iterate an upper bound of the eigenvalue.
    """
    d = w.size
    uu = 0.0
    for k in range(d):
        uu += u[k] * u[k]
    low, level = -t * uu, -t * uu
    if low >= 0.0:
        return 0.0
    best = 0.0
    for _ in range(_SECULAR):
        bb, uv = 0.0, 0.0
        for k in range(d):
            s = 1.0 / max(w[k] - level, 1e-300)
            bb += v[k] * v[k] * s
            uv += u[k] * v[k] * s
        kappa = t * uv / (1.0 + t * bb)
        xx, wx, ux, vx = 0.0, 0.0, 0.0, 0.0
        for k in range(d):
            x[k] = (u[k] - kappa * v[k]) / max(w[k] - level, 1e-300)
            xx += x[k] * x[k]
            wx += w[k] * x[k] * x[k]
            ux += u[k] * x[k]
            vx += v[k] * x[k]
        new = (wx - t * ux * ux + t * vx * vx) / max(xx, 1e-300)
        if new >= 0.0:
            level *= 0.1
            if level > 1e-12 * low:
                return 0.0
            continue
        done = abs(new - level) <= 1e-13 * abs(low)
        level = max(new, low)
        best = new
        if done:
            break
    return best


def _semidefinite(w, near, far, surplus, square, radius, out_nu, out_x):  # type: ignore[no-untyped-def]
    """For every term a multiplier ``N = nu x x' / |x|^2`` that may lift the minimum above C.

    In the eigenbasis of Q (eigenvalues `w`) the term is ``far far' - near near'``; `surplus` is
    ``<H, Q> - C > 0`` and `square` is ``|H|^2``. ``D(t) = mu(t)^2 + 2 t surplus - t^2 |H|^2``, mu
    the negative eigenvalue of ``Q - t H``, is concave; the rule holds where ``D(t) > radius^2``.
    """
    d = w.size
    x = np.empty(d)
    for i in range(far.shape[0]):
        out_nu[i] = 0.0
        if not (surplus[i] > 0.0 and square[i] > 0.0):
            continue
        u, v = far[i], near[i]
        low, high = surplus[i] / square[i], 0.0  # D grows at `low`, falls at `high` (0: unknown)
        t = low
        for _ in range(_STEPS):
            mu = _negative(w, u, v, t, x)  # type: ignore[no-untyped-call]
            if mu == 0.0:
                break
            level = mu * mu + 2.0 * t * surplus[i] - t * t * square[i]
            xx, ux, vx = 0.0, 0.0, 0.0
            for k in range(d):
                xx += x[k] * x[k]
                ux += u[k] * x[k]
                vx += v[k] * x[k]
            slope = (vx * vx - ux * ux) / xx
            rise = 2.0 * mu * slope + 2.0 * surplus[i] - 2.0 * t * square[i]
            if level > radius * radius:
                out_nu[i] = -mu / t
                for k in range(d):
                    out_x[i, k] = x[k] / np.sqrt(xx)
                break
            if rise > 0.0:
                low = t
                t = 2.0 * t if high == 0.0 else 0.5 * (low + high)
            else:
                high = t
                t = 0.5 * (low + high)
            if high > 0.0 and high - low <= 1e-6 * high:
                break


def _nonnegative(q, h, radius, out_tau):  # type: ignore[no-untyped-def]
    """For every row h the multiplier tau with ``|[q - tau h]_+ - q| = radius`` (0 if none).

    ``phi(tau) = |[q - tau h]_+ - q|^2`` does not decrease; between its breakpoints it is
    ``tau^2 A + B``.
    """
    d = q.size
    ratio = np.empty(d)
    for i in range(h.shape[0]):
        out_tau[i] = 0.0
        a, b, count = 0.0, 0.0, 0
        for k in range(d):
            g, c = h[i, k], q[k]
            if c > 0.0 or (c == 0.0 and g <= 0.0):
                a += g * g
            else:
                b += c * c
            breaks = (g > 0.0 and c > 0.0) or (g < 0.0 and c < 0.0)
            ratio[k] = c / g if breaks else np.inf
            count += breaks
        if b > radius * radius:
            continue
        order = np.argsort(ratio)
        for step in range(count + 1):
            end = ratio[order[step]] if step < count else np.inf
            if a > 0.0:
                tau = np.sqrt(max(radius * radius - b, 0.0) / a)
                if tau <= end:
                    out_tau[i] = tau
                    break
            if step < count:
                k = order[step]
                if h[i, k] > 0.0:
                    a -= h[i, k] * h[i, k]
                    b += q[k] * q[k]
                else:
                    a += h[i, k] * h[i, k]
                    b -= q[k] * q[k]
                a, b = max(a, 0.0), max(b, 0.0)


class ConeLoops(NamedTuple):
    """The loops of this module, compiled where numba is installed."""

    negative: Loop
    semidefinite: Loop
    nonnegative: Loop


@lru_cache(maxsize=1)
def cone_loops() -> ConeLoops:
    """The loops, compiled on first use; interpreted without numba."""
    free = frozenset({"contract"})
    names = ("_negative", "_semidefinite", "_nonnegative")
    return ConeLoops(*together_or_plain(globals(), [(name, free) for name in names]).values())
