"""Projections and proximal operators of vectors."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen.errors import InvalidInput
from cvxscreen.inputs import array, number

Array = NDArray[np.float64]


def weight(name: str, value: object) -> float:
    """`value` as a number that is not negative."""
    found = number(name, value, "a number >= 0 is needed")
    if not found >= 0.0:
        raise InvalidInput(f"`{name}` is {found}; a number >= 0 is needed.")
    return found


def _ends(low: ArrayLike, high: ArrayLike) -> tuple[Array, Array]:
    """The ends of a box."""
    low, high = array("low", low), array("high", high)
    if (low > high).any():
        raise InvalidInput("`low` exceeds `high` somewhere; the box is empty.")
    return low, high


def nonneg(z: ArrayLike) -> Array:
    """Projection onto ``x >= 0``."""
    return np.maximum(array("z", z), 0.0)


def box(z: ArrayLike, low: ArrayLike, high: ArrayLike) -> Array:
    """Projection onto ``low <= x <= high``."""
    return np.clip(array("z", z), *_ends(low, high))


def l1(z: ArrayLike, step: float) -> Array:
    """Prox of ``step ||x||_1``: soft thresholding."""
    z, step = array("z", z), weight("step", step)
    return np.asarray(np.sign(z) * np.maximum(np.abs(z) - step, 0.0))


def elastic_net(z: ArrayLike, step: float, l1_weight: float, l2_weight: float) -> Array:
    """Prox of ``step (l1 ||x||_1 + l2/2 ||x||^2)``."""
    step, l2_weight = weight("step", step), weight("l2_weight", l2_weight)
    return l1(z, step * weight("l1_weight", l1_weight)) / (1.0 + step * l2_weight)


def nonneg_elastic_net(z: ArrayLike, step: float, l1_weight: float, l2_weight: float) -> Array:
    """Prox of ``step (l1 ||x||_1 + l2/2 ||x||^2)`` over ``x >= 0``."""
    z, step = array("z", z), weight("step", step)
    l1_weight, l2_weight = weight("l1_weight", l1_weight), weight("l2_weight", l2_weight)
    return np.asarray(np.maximum(z - step * l1_weight, 0.0) / (1.0 + step * l2_weight))


def box_l1(z: ArrayLike, step: float, low: ArrayLike, high: ArrayLike) -> Array:
    """Prox of ``step ||x||_1`` over a box (the objective is separable, so clipping is exact)."""
    return np.clip(l1(z, step), *_ends(low, high))


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
