"""Accelerated projected (proximal) gradient: minimise ``f + g``, f smooth, g with a prox.

Three forms of the same scheme, over arrays of any shape:

* `fista` with a gradient restart (Chen et al. 2013, Algorithm 1; O'Donoghue and Candes 2015 for the
  restart), for f that is finite and convex everywhere: its search point leaves the domain of g;
* `auslender_teboulle`, whose search point is a convex combination of points of the domain, for f
  that must not be evaluated outside (Tseng 2008, Algorithm 1);
* `fista(..., monotone=g)`: the objective never grows (Beck and Teboulle 2009, MFISTA).

The step comes from a backtracking search on ``f(x+) <= f(x) + <f'(x), x+ - x> + L/2 ||x+ - x||^2``
with a slack for rounding; near the optimum, where the two sides agree to all digits, on
``<f'(x+) - f'(x), x+ - x> <= L ||x+ - x||^2``, which is the same for a quadratic f.
L decreases at restarts only, as the proof asks. Whether to stop is the caller's business: by the
duality gap, not by the change of the objective.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FLAT = 1e-10
"""Below this share of the value the quadratic part of the model is lost in the value's rounding."""
SLACK = 1e-13
"""Relative rounding of a value of f that the line search forgives."""
_RELAX = 0.7
_MOST_DOUBLINGS = 100


class Smooth(Protocol):
    """A convex function with a Lipschitz gradient."""

    def value(self, x: Array) -> float:
        """``f(x)``."""
        ...

    def value_gradient(self, x: Array) -> tuple[float, Array]:
        """``f(x)`` and its gradient."""
        ...


Prox = Callable[[Array, float], Array]
"""``(z, step) -> argmin_x g(x) + ||x - z||^2 / (2 step)``."""

Stop = Callable[[Array, int], bool]
"""Called with every iterate and its number; True ends the run."""


@dataclass(frozen=True, eq=False)
class Momentum:
    """What a run of `fista` holds beside its iterate: its search point, the weight of its past, L.

    Another run, of the same or a slightly different problem, that goes on with it loses nothing.
    """

    search: Array
    weight: float
    lipschitz: float

    def take(self, index: NDArray[np.intp]) -> Momentum:
        """The same for some coordinates."""
        return replace(self, search=self.search[index])


@dataclass(frozen=True, eq=False)
class ApgResult:
    """Where a run ended.

    Attributes
    ----------
    x : array
    iterations : int
    lipschitz : float
        The last L, for a warm start.
    restarts : int
    stopped : bool
        Whether `stop` ended it, rather than the limit of iterations.
    momentum : Momentum or None
        For `fista` to go on with.
    """

    x: Array
    iterations: int
    lipschitz: float
    restarts: int
    stopped: bool
    momentum: Momentum | None = None


def _dot(a: Array, b: Array) -> float:
    return float(np.vdot(a, b))


def _search(
    smooth: Smooth, take: Callable[[float], tuple[Array, Array]], base: Array, value: float,
    gradient: Array, lipschitz: float,
) -> tuple[Array, Array, float]:
    """Double L until the quadratic model at `base` lies above f at the new point.

    `take` maps L to the prox point and the new iterate.
    """
    for _ in range(_MOST_DOUBLINGS):
        point, new = take(lipschitz)
        move = new - base
        found, bend = smooth.value(new), 0.5 * lipschitz * _dot(move, move)
        size = max(abs(value), abs(found))
        if bend <= FLAT * size:
            # Values agree to too many digits to tell; gradients along the move still differ.
            if _dot(smooth.value_gradient(new)[1] - gradient, move) <= 2.0 * bend + SLACK * bend:
                break
        elif found <= value + _dot(gradient, move) + bend + SLACK * size:
            break
        lipschitz *= 2.0
    return point, new, lipschitz


def fista(
    smooth: Smooth,
    prox: Prox,
    start: Array,
    stop: Stop,
    *,
    lipschitz: float = 1.0,
    max_iterations: int = 10_000,
    restart: bool = True,
    monotone: Callable[[Array], float] | None = None,
    onward: Momentum | None = None,
) -> ApgResult:
    """FISTA from `start`.

    Parameters
    ----------
    smooth : Smooth
    prox : callable
    start : array
    stop : callable
    lipschitz : float
        First guess of L; it only grows between restarts.
    max_iterations : int
    restart : bool
        Whether momentum is dropped when it points uphill.
    monotone : callable, optional
        The value of g; given, an iterate that is worse than the one before is not kept as such
        (momentum then goes through it, MFISTA).
    onward : Momentum, optional
        To go on with from `start`; its L takes the place of `lipschitz`.
    """
    z = s = np.array(start, dtype=np.float64)
    t, restarts = 1.0, 0
    if onward is not None:
        s, t, lipschitz = onward.search, onward.weight, onward.lipschitz
    best = None if monotone is None else smooth.value(z) + monotone(z)
    for k in range(max_iterations):
        if stop(z, k):
            return ApgResult(z, k, lipschitz, restarts, True, Momentum(s, t, lipschitz))
        value, gradient = smooth.value_gradient(s)

        def take(L: float, s: Array = s, gradient: Array = gradient) -> tuple[Array, Array]:
            point = prox(s - gradient / L, 1.0 / L)
            return point, point

        new, _, lipschitz = _search(smooth, take, s, value, gradient, lipschitz)
        grown = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * t * t))
        if monotone is not None and best is not None:
            level = smooth.value(new) + monotone(new)
            kept, best = (new, level) if level <= best else (z, best)
            s = kept + (t / grown) * (new - kept) + ((t - 1.0) / grown) * (kept - z)
            t, z = grown, kept
        elif restart and _dot(s - new, new - z) > 0.0:
            t, s, z, restarts = 1.0, new, new, restarts + 1
            lipschitz *= _RELAX
        else:
            s = new + ((t - 1.0) / grown) * (new - z)
            t, z = grown, new
    return ApgResult(z, max_iterations, lipschitz, restarts, bool(stop(z, max_iterations)))


def auslender_teboulle(
    smooth: Smooth,
    prox: Prox,
    start: Array,
    stop: Stop,
    *,
    lipschitz: float = 1.0,
    max_iterations: int = 10_000,
    restart: bool = True,
) -> ApgResult:
    """The form whose search point stays in the domain; arguments as of `fista`.

    A function restart would never fire here (the scheme is monotone); the gradient test does.
    """
    z = w = np.array(start, dtype=np.float64)
    theta, restarts = 1.0, 0
    for k in range(max_iterations):
        if stop(z, k):
            return ApgResult(z, k, lipschitz, restarts, True)
        y = (1.0 - theta) * z + theta * w
        value, gradient = smooth.value_gradient(y)

        def take(
            L: float, z: Array = z, w: Array = w, gradient: Array = gradient, theta: float = theta
        ) -> tuple[Array, Array]:
            step = 1.0 / (theta * L)
            point = prox(w - step * gradient, step)
            return point, (1.0 - theta) * z + theta * point

        point, new, lipschitz = _search(smooth, take, y, value, gradient, lipschitz)
        if restart and _dot(y - new, new - z) > 0.0:
            z = w = new
            theta, restarts = 1.0, restarts + 1
            lipschitz *= _RELAX
        else:
            z, w = new, point
            theta = 0.5 * (np.sqrt(theta**4 + 4.0 * theta**2) - theta**2)
    return ApgResult(z, max_iterations, lipschitz, restarts, bool(stop(z, max_iterations)))
