"""Piecewise linear-quadratic losses as rows of one table, and the pieces they are made of.

A term ``f(t)`` is described by five numbers through its conjugate::

    f*(theta) = b theta + e |theta| + (q / 2) theta^2     on  [lo, hi],   lo <= 0 <= hi

==========================  ===  =========  =========  ===========  ============
loss, weight c              b    e          q          lo           hi
==========================  ===  =========  =========  ===========  ============
hinge c max(0, 1 - t)       1    0          0          -c           0
smoothed hinge (gamma)      1    0          gamma/c    -c           0
squared hinge c/2 (1-t)+^2  1    0          1/c        -inf         0
absolute c |t - y|          y    0          0          -c           c
pinball, level tau          y    0          0          -c tau       c (1 - tau)
eps-insensitive             y    epsilon    0          -c           c
smoothed eps-insensitive    y    epsilon    gamma/c    -c           c
Huber (delta)               y    0          1/c        -c delta     c delta
squared c/2 (t - y)^2       y    0          1/c        -inf         inf
inequality t <= y           y    0          0          0            inf
equality t = y              y    0          0          -inf         inf
==========================  ===  =========  =========  ===========  ============

(pinball: slope ``-tau`` where the prediction ``t`` is below ``y``.) Every loss has minimum 0. By
increasing argument ``f`` runs through at most five pieces: linear with slope ``lo``, quadratic,
zero, quadratic, linear with slope ``hi``; the numbers say which exist. ``f(t + o)`` has ``b - o``.

The last two rows of the table are *hard*: constraints written as terms, an infinite slope without
curvature. Beyond their end the value is infinite and there is no slope; ``an inequality is
inactive`` is ``the term is on its zero piece``. Their conjugate is ``b theta``, as the table says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import IntEnum
from functools import cached_property
from math import isfinite

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.rounding import UNIT
from cvxscreen._support.validation import positive, together
from cvxscreen.errors import InvalidInput

__all__ = ["Codes", "FIELDS", "LossTerms", "Losses", "Piece"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Codes = NDArray[np.int8]
"""A `Piece` a term, shape (n,)."""


class Piece(IntEnum):
    """The five possible pieces of a loss by increasing argument, and "not proven"."""

    UNDECIDED = -1
    LOW = 0  # linear, slope lo
    LEFT = 1  # quadratic left of the zero piece (or all of it when there is no zero piece)
    ZERO = 2
    RIGHT = 3  # quadratic right of the zero piece
    HIGH = 4  # linear, slope hi


def on_parabola(codes: Codes) -> Mask:
    """Terms whose code is a quadratic piece, shape (n,)."""
    return (codes == Piece.LEFT) | (codes == Piece.RIGHT)


def locate(
    ends: tuple[Array, Array, Array],
    knots: tuple[Array, Array, Array, Array],
    error: Array,
    smooth: Mask,
    exists: Mask,
    flat: tuple[Mask, Mask],
) -> Codes:
    """The piece that contains each interval, or `Piece.UNDECIDED`; shape (n,).

    Parameters
    ----------
    ends : (low, end of the LEFT piece, high)
        The intervals, and where the LEFT piece ends on its right.
    knots : four arrays, shape (n,)
        LOW|LEFT, LEFT|ZERO, ZERO|RIGHT, RIGHT|HIGH.
    error : array, shape (n,)
        Rounding of the knots, charged against the decision.
    smooth : mask, shape (n,)
        Rows whose pieces join smoothly: there a comparison may be non-strict, at a kink it is
        strict, since both neighbours are possible there.
    exists : mask, shape (n, 5)
        The pieces that a row has.
    flat : pair of masks
        Rows whose zero piece has no end on the left, on the right.
    """
    low, bowl_end, high = ends
    k1, k2, k3, k4 = knots
    mixed = bool(smooth.any())
    any_of = [bool(column.any()) for column in exists.T]

    def below(x: Array, knot: Array) -> Mask:
        strict = x < knot - error
        return np.where(smooth, x <= knot - error, strict) if mixed else strict

    def above(x: Array, knot: Array) -> Mask:
        strict = x > knot + error
        return np.where(smooth, x >= knot + error, strict) if mixed else strict

    codes = np.full(len(error), Piece.UNDECIDED, dtype=np.int8)
    if any_of[Piece.LEFT]:
        left = exists[:, Piece.LEFT] & above(low, k1) & below(high, bowl_end)
        np.copyto(codes, Piece.LEFT, where=left)
    if any_of[Piece.RIGHT]:
        right = exists[:, Piece.RIGHT] & above(low, k3) & below(high, k4)
        np.copyto(codes, Piece.RIGHT, where=right)
    if any_of[Piece.LOW]:
        np.copyto(codes, Piece.LOW, where=exists[:, Piece.LOW] & below(high, k1))
    if any_of[Piece.HIGH]:
        np.copyto(codes, Piece.HIGH, where=exists[:, Piece.HIGH] & above(low, k4))
    if any_of[Piece.ZERO]:
        inside = exists[:, Piece.ZERO] & (flat[0] | above(low, k2))
        if not flat[1].all():
            inside &= flat[1] | below(high, k3)
        np.copyto(codes, Piece.ZERO, where=inside)
    return codes


def _clipped(values: Array, low: Array, high: Array) -> Array:
    """``np.clip`` in half of its time, short arrays and long ones."""
    out = np.maximum(values, low)
    return np.minimum(out, high, out=out)


def kinked(q: Array, lo: Array, hi: Array) -> NDArray[np.bool_]:
    """Which terms have a kink: two slopes and no curvature between them."""
    return (q == 0) & (lo < hi)


SUMMED = 1e-9
"""A fall that is none beside what it is summed of: what nine million roundings may add up to."""


def falls_without_end(t: Array, lo: Array, hi: Array, linear: Array) -> bool:
    """Whether losses beside a linear term fall for ever along a direction.

    By the recession function, the slope of the sum far out: infinite where a constraint is met.

    Parameters
    ----------
    t : array, shape (n,)
        How the direction changes the margins; 0 where that is rounding.
    lo, hi : array, shape (n,)
        The slopes of the losses far out, infinite for constraints.
    linear : array, shape (d,)
        Linear term times direction, entry by entry.
    """
    with np.errstate(invalid="ignore"):  # 0 times infinity, in a term that does not change
        parts = np.where(t == 0.0, 0.0, np.where(t > 0.0, hi, lo) * t)
    total = float(parts.sum() + linear.sum())
    return total < -SUMMED * float(np.abs(parts).sum() + np.abs(linear).sum())


FIELDS = ("b", "e", "q", "lo", "hi")


class LossTerms(ABC):
    """What a table of loss terms answers, wherever it keeps its columns.

    `Losses` holds them as arrays; data in chunks make them as they are asked for. Whoever derives
    from this gives the five columns, shape (n,), the length, `take` and `scaled`.
    """

    b: Array
    e: Array
    q: Array
    lo: Array
    hi: Array

    @abstractmethod
    def __len__(self) -> int:
        """Number of terms."""

    @abstractmethod
    def take(self, index: NDArray[np.intp] | Mask) -> Losses:
        """The rows at `index` (integers or a mask)."""

    @abstractmethod
    def scaled(self, factor: float) -> LossTerms:
        """The losses multiplied by ``factor > 0``: slopes grow, curvature radii shrink."""

    def weighted(self, factors: ArrayLike) -> Losses:
        """Each loss multiplied by a factor of its own, all positive, shape (n,)."""
        c = np.asarray(factors, dtype=np.float64)
        if c.shape != (len(self),) or not (np.isfinite(c) & (c > 0)).all():
            raise InvalidInput("`factors` must be positive and finite, one a term.")
        return Losses(self.b, self.e, self.q / c, self.lo * c, self.hi * c)

    def is_multiple(self, other: LossTerms, factor: float) -> bool:
        """Whether these are the losses `other` times `factor`, up to rounding."""
        def same(name: str, scale: float) -> bool:
            mine, wanted = getattr(self, name), scale * getattr(other, name)
            with np.errstate(invalid="ignore"):  # infinity is infinity
                close = np.abs(mine - wanted) <= (scale != 1.0) * 1e-13 * np.abs(wanted)
            return bool((close | (mine == wanted)).all())

        inverse = {"b": 1.0, "e": 1.0, "q": 1.0 / factor, "lo": factor, "hi": factor}
        return len(self) == len(other) and all(same(*pair) for pair in inverse.items())

    def factor_of(self, other: LossTerms) -> float | None:
        """The factor by which these are the losses `other`, up to rounding; None without one."""
        sizes = other.hi, -other.lo, np.divide(1.0, other.q, out=np.zeros(len(other)),
                                               where=other.q > 0.0)
        mine = self.hi, -self.lo, 1.0 / np.maximum(self.q, 1e-300)
        for known, now in zip(sizes, mine, strict=True):
            at = int(np.argmax(np.where(np.isfinite(known), known, 0.0)))
            if 0.0 < known[at] < np.inf:
                factor = float(now[at] / known[at])
                usable = 0.0 < factor < np.inf and len(self) == len(other)
                return factor if usable and self.is_multiple(other, factor) else None
        return None

    # -- values -----------------------------------------------------------------------------
    @cached_property
    def _flat(self) -> NDArray[np.bool_]:
        return self.q == 0.0

    @cached_property
    def hard(self) -> NDArray[np.bool_]:
        """Rows that are constraints: an infinite slope without curvature, shape (n,)."""
        return self._flat & (np.isinf(self.lo) | np.isinf(self.hi))

    @cached_property
    def any_hard(self) -> bool:
        """Whether there is a hard row."""
        ends = self.ends("lo")[0], self.ends("hi")[1]
        return not all(map(isfinite, ends)) and bool(self.hard.any())

    def violation(self, t: ArrayLike) -> Array:
        """How far `t` is beyond the end of a hard row, 0 for every other row, shape (n,)."""
        return self._violation(np.asarray(t, dtype=np.float64) - self.b)

    def _violation(self, z: Array) -> Array:
        """`violation` at ``z = t - b``."""
        above = np.where(np.isinf(self.hi), z, 0.0)
        beyond = np.maximum(above, np.where(np.isinf(self.lo), -z, 0.0))
        return np.where(self.hard, np.maximum(beyond, 0.0), 0.0)

    @cached_property
    def _ends(self) -> dict[str, tuple[float, float]]:
        return {}

    def ends(self, name: str) -> tuple[float, float]:
        """The least and the largest number of the column `name`."""
        if name not in self._ends:
            self._ends[name] = _extremes(getattr(self, name))
        return self._ends[name]

    def _has(self, name: str) -> bool:
        """Whether the column `name` has a non-zero entry."""
        return self.ends(name) != (0.0, 0.0)

    def slope(self, t: ArrayLike) -> Array:
        """One subgradient ``theta(t)``: soft(t - b, e) / q clipped, and 0 at a kink.

        Beyond the end of a hard row there is none: 0.
        """
        return self.proximal_slope(t, 0.0, 0.0)

    def proximal_slope(self, t: ArrayLike, theta0: ArrayLike, weight: float) -> Array:
        """``argmax_theta  t theta - f*(theta) - weight/2 (theta - theta0)^2``, shape (n,).

        With ``weight = 0`` a subgradient of ``f`` at ``t``; with ``weight > 0`` the gradient of
        the proximally smoothed loss used by the Newton solver.
        """
        shifted = np.asarray(t, dtype=np.float64) - self.b
        if weight:
            shifted = shifted + weight * np.asarray(theta0)
        z = shifted - _clipped(shifted, -self.e, self.e) if self._has("e") else shifted
        if weight or self.ends("q")[0] > 0.0:
            return _clipped(z / (self.q + weight), self.lo, self.hi)
        right = np.where(z > 0, self.hi, 0.0) if self._has("hi") else 0.0
        jump = np.where(z < 0, self.lo, right)
        if self.any_hard:
            jump = np.where(np.isinf(jump) & self.hard, 0.0, jump)
        if not self._has("q"):
            return jump
        curve = np.where(self._flat, 1.0, self.q)
        return np.where(self._flat, jump, _clipped(z / curve, self.lo, self.hi))

    def subgradient(self, t: ArrayLike) -> tuple[Array, Array]:
        """The interval ``[low, high]`` of subgradients at `t`, two arrays (n,)."""
        z = np.asarray(t, dtype=np.float64) - self.b
        low = high = middle = self.slope(t)
        kinks = self._flat & (np.abs(z) == self.e)
        if kinks.any():  # hardly ever
            left, right = kinks & (z == -self.e), kinks & (z == self.e)
            low = np.where(right & (self.e > 0), 0.0, np.where(left, self.lo, middle))
            high = np.where(left & (self.e > 0), 0.0, np.where(right, self.hi, middle))
        return low, high

    def value(self, t: ArrayLike) -> Array:
        """``f_i(t_i)``, shape (n,)."""
        z = np.asarray(t, dtype=np.float64) - self.b
        if not (self._has("q") or self._has("e") or self.any_hard):
            return z * np.where(z < 0, self.lo, self.hi)  # two lines
        s = self.slope(t)
        value = z * s - self.e * np.abs(s) if self._has("e") else z * s
        if self._has("q"):
            value = value - 0.5 * self.q * s * s
        return np.where(self._violation(z) > 0, np.inf, value) if self.any_hard else value

    def conjugate(self, theta: ArrayLike) -> Array:
        """``f_i*(theta_i)``, shape (n,); infinity outside ``[lo, hi]``."""
        s = np.asarray(theta, dtype=np.float64)
        inside = (s >= self.lo) & (s <= self.hi)
        values = self.b * s + self.e * np.abs(s) + 0.5 * self.q * s * s
        return np.where(inside, values, np.inf)

    def fenchel_young(self, t: ArrayLike, theta: ArrayLike) -> Array:
        """``f(t) + f*(theta) - t theta >= 0`` without cancellation, shape (n,).

        With ``s`` the subgradient at ``t``:
        ``(t - b)(s - theta) - e(|s| - |theta|) - q/2 (s^2 - theta^2)``; `theta` must lie in
        ``[lo, hi]``.
        """
        t, th = np.asarray(t, dtype=np.float64), np.asarray(theta, dtype=np.float64)
        return self._fenchel_young(t - self.b, self.slope(t), th)

    def _fenchel_young(self, z: Array, s: Array, theta: Array) -> Array:
        """The equation of `fenchel_young` with ``z = t - b`` and the subgradient s at t."""
        lean = z - 0.5 * self.q * (s + theta) if self._has("q") else z
        gap = lean * (s - theta)
        if self._has("e"):
            gap -= self.e * (np.abs(s) - np.abs(theta))
        np.maximum(gap, 0.0, out=gap)
        return np.where(self._violation(z) > 0, np.inf, gap) if self.any_hard else gap

    def fenchel_young_above(self, t: ArrayLike, error: ArrayLike, theta: ArrayLike) -> Array:
        """An upper bound of the Fenchel-Young term over all arguments within `error` of `t`.

        The term is convex in ``t``, so the larger end decides; the rounding of its own evaluation
        is added.
        """
        t, error = np.asarray(t, dtype=np.float64), np.asarray(error, dtype=np.float64)
        th = np.asarray(theta, dtype=np.float64)
        worst = np.zeros(len(self))
        error = error * (1.0 + 4.0 * UNIT) + np.where(error > 0, 2.0 * UNIT * np.abs(t), 0.0)
        if self._has("e"):  # the knot b -+ e itself is rounded
            error = error + np.where(self.e > 0, 2.0 * UNIT * (np.abs(self.b) + self.e), 0.0)
        for end in (t - error, t + error):
            s = self.slope(end)
            z = end - self.b
            size = np.abs(z)
            if self._has("q"):
                # s itself is rounded; the term is flat there, so that enters squared.
                size = (size + 0.5 * self.q * np.abs(s + th)) * np.abs(s - th)
                size = size + 8.0 * UNIT * self.q * s**2
            else:
                size = size * np.abs(s - th)
            if self._has("e"):
                size = size + self.e * np.abs(np.abs(s) - np.abs(th))
            np.maximum(worst, self._fenchel_young(z, s, th) + 8.0 * UNIT * size, out=worst)
        return worst

    # -- pieces -----------------------------------------------------------------------------
    @cached_property
    def two_sided_quadratic(self) -> NDArray[np.bool_]:
        """Rows whose two quadratic pieces are one parabola around b (Huber), shape (n,)."""
        return (self.q > 0) & (self.e == 0) & (self.lo < 0) & (self.hi > 0)

    @cached_property
    def knots(self) -> tuple[Array, Array, Array, Array]:
        """The four breakpoints LOW|LEFT, LEFT|ZERO, ZERO|RIGHT, RIGHT|HIGH."""
        left, right = self.b - self.e, self.b + self.e
        if not self._has("q"):
            return left, left, right, right
        with np.errstate(invalid="ignore"):
            down = np.where(self._flat, 0.0, self.q * self.lo)
            rise = np.where(self._flat, 0.0, self.q * self.hi)
        return left + down, left, right, right + rise

    @cached_property
    def knot_error(self) -> Array:
        """Rounding error of the finite `knots`, shape (n,); 0 where ``b`` is the knot itself."""
        if not (self._has("e") or self._has("q")):
            return np.zeros(len(self))
        reach = np.where(np.isfinite(self.lo), np.abs(self.lo), 0.0)
        reach = np.maximum(reach, np.where(np.isfinite(self.hi), self.hi, 0.0))
        rounded = (self.e > 0) | (self.q > 0)
        return np.where(rounded, 4.0 * UNIT * (np.abs(self.b) + self.e + self.q * reach), 0.0)

    @cached_property
    def exists(self) -> NDArray[np.bool_]:
        """Which of the five pieces a row has, shape (n, 5)."""
        falls, rises = self.lo < 0, self.hi > 0
        return np.array([  # a piece at a time is asked for: each is contiguous
            falls & np.isfinite(self.lo), falls & (self.q > 0),
            (self.e > 0) | ~falls | ~rises,
            rises & (self.q > 0) & ~self.two_sided_quadratic, rises & np.isfinite(self.hi),
        ]).T

    def piece_within(self, low: ArrayLike, high: ArrayLike) -> Codes:
        """The piece that contains ``[low, high]``, or ``Piece.UNDECIDED``, shape (n,).

        Comparisons are strict at a kink (both neighbours are possible there) and non-strict where
        two pieces join smoothly; the rounding of the knots is charged against the decision.
        """
        low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
        ends = (low, np.where(self.two_sided_quadratic, self.knots[3], self.knots[1]), high)
        return locate(ends, self.knots, self.knot_error, ~self._flat, self.exists,
                      (self.lo == 0, self.hi == 0))

    def piece_index(self, codes: Codes) -> NDArray[np.int64]:
        """Codes as indices 0, 1, ... among the pieces a row really has; -1 stays -1."""
        rank = np.cumsum(self.exists, axis=1) - 1
        safe = np.maximum(codes, 0).astype(np.intp)
        index = np.take_along_axis(rank, safe[:, None], axis=1)[:, 0]
        return np.where(codes < 0, -1, index).astype(np.int64)

    def kink_distance(self, t: ArrayLike) -> Array:
        """Distance from `t` to the nearest knot that separates two pieces, shape (n,)."""
        t = np.asarray(t, dtype=np.float64)
        falls, rises = self.lo < 0, self.hi > 0
        if not (self._has("q") or self._has("e")):  # all knots are b
            return np.where(falls | rises, np.abs(t - self.b), np.inf)
        k1, k2, k3, k4 = self.knots
        best = np.full(len(self), np.inf)
        inside = ~self.two_sided_quadratic
        inner, outer = [(k2, falls & inside), (k3, rises & inside)], []
        if self._has("q"):  # otherwise they are the same knots
            outer = [(k1, falls & np.isfinite(self.lo)), (k4, rises & np.isfinite(self.hi))]
        for knot, real in (*outer, *inner):
            if real.any():  # a knot that is none may be NaN
                np.minimum(best, np.abs(t - np.where(real, knot, 0.0)), out=best, where=real)
        return best

    def piece_slope(self, codes: Codes) -> Array:
        """Slope of the linear piece named by `codes` (0 elsewhere), shape (n,)."""
        return np.where(codes == Piece.LOW, self.lo, np.where(codes == Piece.HIGH, self.hi, 0.0))

    def piece_centre(self, codes: Codes) -> Array:
        """Centre of the parabola of a LEFT or RIGHT piece, shape (n,)."""
        return np.where(codes == Piece.RIGHT, self.b + self.e, self.b - self.e)


def _extremes(column: Array) -> tuple[float, float]:
    """The least and the largest number; what is one number for all is not looked through."""
    if not column.ndim:
        return float(column), float(column)
    return (float(column.min()), float(column.max())) if column.size else (0.0, 0.0)


class Losses(LossTerms, Immutable):
    """A table of loss terms, one row each.

    Parameters
    ----------
    b, e, q, lo, hi : array_like, shape (n,)
        The five numbers of the module's docstring; scalars are broadcast. ``e, q >= 0`` and
        ``lo <= 0 <= hi``; an infinite ``lo`` or ``hi`` without curvature makes a constraint
        (`hard`) and needs ``e = 0``.

    Raises
    ------
    InvalidInput
        If the numbers do not describe a convex loss with minimum 0.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxscreen import Losses
    >>> hinge = Losses(b=[1.0], e=0.0, q=0.0, lo=-1.0, hi=0.0)  # max(0, 1 - t)
    >>> hinge.value(np.array([0.25])), hinge.slope(np.array([0.25]))
    (array([0.75]), array([-1.]))
    """

    b: Array
    e: Array
    q: Array
    lo: Array
    hi: Array

    def __post_init__(self) -> None:
        shape, rows = together({name: getattr(self, name) for name in FIELDS})
        if len(shape) != 1:
            raise InvalidInput(f"`{FIELDS[0]}` has shape {shape}; a vector (n,) is needed.")
        for name, row in zip(FIELDS, rows, strict=True):
            fresh = np.empty(shape)
            fresh[:] = row
            fresh.setflags(write=False)
            object.__setattr__(self, name, fresh)
        ends = dict(zip(FIELDS, map(_extremes, rows), strict=True))
        object.__setattr__(self, "_ends", ends)
        if not all(map(isfinite, (*ends["b"], *ends["e"], *ends["q"]))):
            raise InvalidInput("`b`, `e` and `q` of a loss must be finite; found NaN or infinity.")
        signs = ends["e"][0], ends["q"][0], -ends["lo"][1], ends["hi"][0]
        if not all(number >= 0.0 for number in signs):
            raise InvalidInput("a loss needs non-negative `e`, `q` and slopes lo <= 0 <= hi.")
        if self._has("e") and self.any_hard and (self.hard & (self.e > 0)).any():
            raise InvalidInput(
                "a loss with an unbounded slope needs curvature, q > 0, or is a constraint with "
                "e = 0: shift its end `b` instead."
            )

    @classmethod
    def repeated(cls, n: int, b: float, e: float, q: float, lo: float, hi: float) -> Losses:
        """`n` times the same term, in no memory: the columns are one number each, n times."""
        one = cls([b], [e], [q], [lo], [hi])  # type: ignore[arg-type]
        _ = one.any_hard  # looked at while it is one row
        for name in FIELDS:
            object.__setattr__(one, name, np.broadcast_to(getattr(one, name), (n,)))
        return one

    def __len__(self) -> int:
        return self.b.size

    def take(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> Losses:
        """The rows at `index` (integers or a mask)."""
        return self._unchecked(*(getattr(self, name)[index] for name in FIELDS))

    @classmethod
    def _unchecked(cls, *columns: Array) -> Losses:
        """Of columns that are its own, whose numbers have been looked at."""
        made = object.__new__(Losses)
        for name, column in zip(FIELDS, columns, strict=True):
            column.flags.writeable = False
            object.__setattr__(made, name, column)
        return made

    def scaled(self, factor: float) -> Losses:
        """The losses multiplied by ``factor > 0``: slopes grow, curvature radii shrink."""
        factor = positive("factor", factor)
        q, lo, hi = self.q / factor, self.lo * factor, self.hi * factor
        if not np.isfinite(q).all():
            return Losses(self.b, self.e, q, lo, hi)  # which says what is wrong
        made = self._unchecked(self.b, self.e, q, lo, hi)
        root, times = self._multiple_of
        object.__setattr__(made, "_multiple_of", (root, times * factor))
        return made

    @cached_property
    def _multiple_of(self) -> tuple[object, float]:
        """What stands for the losses that these are multiples of, and by what factor."""
        return object(), 1.0

    def factor_of(self, other: LossTerms) -> float | None:
        """The factor by which these are the losses `other`, up to rounding; None without one."""
        if isinstance(other, Losses) and self._multiple_of[0] is other._multiple_of[0]:
            factor = self._multiple_of[1] / other._multiple_of[1]
            if 0.0 < factor < np.inf:
                return factor
        return super().factor_of(other)


SAME_STEP = 1e-13
"""Relative difference up to which steps of slopes are one, and count as many."""


def lowest_kink(
    losses: LossTerms, entries: Array, margins: Array, first: float
) -> float | None:
    """The step along a coordinate to the lowest point, for losses that change as much at one kink.

    So many kinks lie below that point as slopes of one size are missing far to the left.

    Parameters
    ----------
    losses : LossTerms
    entries, margins : arrays, shape (n,)
        What a step of 1 adds to the margins, no entry 0, and these.
    first : float
        The slope of all else.

    Returns
    -------
    float or None
        -inf where the sum only ever falls or rises; None for other losses.
    """
    if losses.any_hard or np.any(losses.q) or np.any(losses.e):
        return None
    low, high = entries * losses.lo, entries * losses.hi
    step = abs(float(high[0] - low[0]))
    if not step > 0.0 or np.abs(np.abs(high - low) - step).max() > SAME_STEP * step:
        return None
    below = -(first + float(np.minimum(low, high).sum())) / step
    count = int(np.ceil(below - SAME_STEP * len(entries)))
    if not 0 < count <= len(entries):
        return -np.inf
    return float(np.partition((losses.b - margins) / entries, count - 1)[count - 1])
