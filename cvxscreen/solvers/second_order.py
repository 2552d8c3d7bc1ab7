"""Second-order cones of an interior point method: Nesterov and Todd's scaling, cone by cone.

A slack ``s = G x + g`` and its multiplier z lie in a product of cones ``Q = {(u0, u1): u0 >=
|u1|}``. The scaling W of a pair inside is the symmetric automorphism of the cone with

::

    W z = W^-1 s = lambda,        W = eta (2 v v' - J),     J = diag(1, -1, ..., -1),
    eta^4 = (s' J s) / (z' J z),  v = (w + e) / sqrt(2 (w_0 + 1)),
    w = (s / |s|_J + J z / |z|_J) / sqrt(2 + 2 s' z / (|s|_J |z|_J)),   |u|_J^2 = u' J u

(Nesterov and Todd 1997; Vandenberghe 2010, "The CVXOPT linear and quadratic cone program solvers",
section 4). In it a step of Newton's method is ``W dz + W^-1 ds = right``, and what it adds to the
normal equations is ``G' W^-2 G``. Cones of all sizes lie one after the other in the same vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cvxscreen.core.problem import Problem

Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]

APEX = 1e-9
"""By how much, relative to it, a multiplier must be inside the cone for its slack to be 0."""
NORMS_PER_COORDINATE = 4
"""Such norms for each other coordinate from which on it is worth it to have these alone left."""
FIRST_SHARE = 1.0
"""First products of slacks and multipliers, in units of their usual sizes."""
LEAST_ROOM = 0.1
"""How far inside a first slack is at least, in units of what it is a length of."""
SHORT = 8
"""Rows of cones up to which these are summed row by row (100,000 cones of 3 rows: 0.4 ms for 2)."""


@dataclass(eq=False)
class SecondOrderCones:
    """``G x + g`` in a product of second-order cones.

    Attributes
    ----------
    matrix, offset : arrays, shape (m, d) and (m,)
        G and g.
    heads : array of int, shape (c,)
        The first row of each cone.
    at : array of int, shape (m,)
        Their rows among those of the side constraints.
    """

    costly: ClassVar[bool] = False
    """Whether they are norms in the objective, with bounds that are eliminated (`cones`)."""
    matrix: Array
    offset: Array
    heads: Index
    at: Index

    @classmethod
    def of(cls, problem: Problem) -> SecondOrderCones:
        """Those of `problem`, of which there may be none."""
        none = np.zeros(0, dtype=np.intp)
        side = problem.side
        if side is None:
            return cls(np.zeros((0, problem.d)), np.zeros(0), none, none)
        cones = [rows for kind, _, rows in side.blocks() if kind == "soc"]
        at = np.concatenate([none, *(np.arange(rows.start, rows.stop) for rows in cones)])
        sizes = np.array([rows.stop - rows.start for rows in cones], dtype=np.intp)
        heads = np.cumsum(sizes) - sizes
        return cls(side.matrix[at].toarray(), side.offset[at], heads.astype(np.intp), at)

    def __len__(self) -> int:
        return len(self.heads)

    @cached_property
    def owner(self) -> Index:
        """The cone of each row."""
        sizes = np.diff(np.append(self.heads, len(self.offset)))
        return np.repeat(np.arange(len(self.heads)), sizes)

    @cached_property
    def tail(self) -> Array:
        """1 for the rows that are no head."""
        out = np.ones(len(self.offset))
        out[self.heads] = 0.0
        return out

    @cached_property
    def signs(self) -> Array:
        """The diagonal of J: 1 for the head of each cone, -1 for its tail."""
        return 1.0 - 2.0 * self.tail

    @cached_property
    def unit(self) -> Array:
        """e, the unit of every cone."""
        return 1.0 - self.tail

    # -- vectors of the cones ---------------------------------------------------------------

    @cached_property
    def height(self) -> int:
        """Rows of each cone where all have as many, and few; else 0."""
        sizes = np.diff(np.append(self.heads, len(self.offset)))
        return int(sizes[0]) if len(sizes) and sizes[0] <= SHORT and np.ptp(sizes) == 0 else 0

    def sums(self, values: Array) -> Array:
        """Sums over the rows of each cone."""
        if not self.height or values.ndim > 1:
            return np.asarray(np.add.reduceat(values, self.heads, axis=0))
        out = values[:: self.height].copy()
        for row in range(1, self.height):
            out += values[row :: self.height]
        return out

    def split(self, u: Array) -> tuple[Array, Array]:
        """Head and length of the rest, each of shape (c,)."""
        return u[self.heads], np.sqrt(self.sums(self.tail * u * u))

    def room(self, u: Array) -> Array:
        """``u0 - |u1|``, negative outside."""
        head, length = self.split(u)
        return head - length

    def squares(self, u: Array) -> Array:
        """``u' J u``, without cancelling more than `room` does; positive for u inside."""
        head, length = self.split(u)
        return np.maximum((head - length) * (head + length), 1e-300)

    def product(self, u: Array, v: Array) -> Array:
        """Jordan product ``(u' v, u0 v1 + v0 u1)``."""
        out = u[self.heads][self.owner] * v + v[self.heads][self.owner] * u
        out[self.heads] = self.sums(u * v)
        return out

    def quotient(self, u: Array, by: Array) -> Array:
        """The v with ``by o v = u``."""
        first = self.sums(self.signs * by * u) / self.squares(by)
        out = (u - first[self.owner] * by) / by[self.heads][self.owner]
        out[self.heads] = first
        return out

    def inverse(self, u: Array) -> Array:
        """The v with ``u o v = e``."""
        return self.signs * u / self.squares(u)[self.owner]

    def project(self, u: Array) -> Array:
        """The nearest point of the cones, which are their own duals."""
        head, length = self.split(u)
        inside = length <= head
        middle = np.where(length <= -head, 0.0, 0.5 * (head + length))
        share = np.where(inside, 1.0, middle / np.where(length > 0.0, length, 1.0))
        out = u * share[self.owner]
        out[self.heads] = np.where(inside, head, middle)
        return out

    def longest_step(self, u: Array, change: Array) -> float:
        """How far ``u + t change`` stays inside, a million at most; u is inside."""
        root = np.sqrt(self.squares(u))
        unit = u / root[self.owner]
        along = self.sums(self.signs * unit * change)
        share = (along + change[self.heads]) / (unit[self.heads] + 1.0)
        rest = np.sqrt(self.sums(self.tail * (change - share[self.owner] * unit) ** 2))
        return 1.0 / max(1e-6, float(((rest - along) / root).max(initial=0.0)))

    # -- of points --------------------------------------------------------------------------

    def slack(self, x: Array) -> Array:
        """``G x + g``."""
        return self.matrix @ x + self.offset

    def apart(self, x: Array, s: Array) -> Array:
        """By how much the slacks s are not those of x."""
        return self.slack(x) - s

    def scaling(self, s: Array, z: Array) -> Scaling:
        """The scaling of a pair inside the cones."""
        return Scaling(self, s, z)

    def adjoint(self, z: Array) -> Array:
        """``G' z``."""
        return self.matrix.T @ z

    @cached_property
    def sizes(self) -> Array:
        """``|G|``."""
        return np.abs(self.matrix)

    def reach(self, x: Array) -> Array:
        """Sizes of what the slacks are sums of, shape (c,)."""
        of_rows = self.sizes @ np.abs(x) + np.abs(self.offset)
        return np.asarray(np.sqrt(self.sums(of_rows * of_rows)))

    def violation(self, x: Array) -> float:
        """How far outside of a cone x is, relative to the terms of its rows."""
        units = self.reach(x)
        room = self.room(self.slack(x))
        return float((-room / np.where(units > 0.0, units, 1.0)).max(initial=0.0))

    def tight(self, x: Array, room: float) -> tuple[Array, Array]:
        """Gradients at x of ``u0 - |u1|`` where that is at most `room`, relative; and its units.

        At a slack of 0 that of its head.
        """
        units = self.reach(x)
        units = np.where(units > 0.0, units, 1.0)
        s = self.slack(x)
        length = self.split(s)[1]
        along = -self.tail * s / np.where(length > 0.0, length, 1.0)[self.owner] + self.unit
        close = self.room(s) <= room * units
        return self.sums(along[:, None] * self.matrix)[close], units[close]

    def helpers(self, alone: Mask) -> tuple[Index, Index, Array]:
        """Coordinates `alone` in the head of one cone; that cone, and what the head has of them.

        Bounds of norms in the objective are of this kind.
        """
        columns = np.flatnonzero(alone & (np.count_nonzero(self.matrix, axis=0) == 1))
        rows = np.argmax(self.matrix[:, columns] != 0.0, axis=0)
        entries = self.matrix[rows, columns]
        ours = (self.tail[rows] == 0.0) & (entries > 0.0)
        _, first = np.unique(np.where(ours, self.owner[rows], -1), return_index=True)
        kept = first[ours[first]]
        return columns[kept], self.owner[rows[kept]], entries[kept]

    def levels(self, x: Array, level: float, usual: Array) -> Array:
        """First products: no smaller share of slack times multiplier than the terms begin with."""
        head, length = self.split(self.slack(x))
        return np.maximum(level, FIRST_SHARE * usual * np.maximum(np.abs(head), length))

    def at_cost(self, x: Array, cones: Index, cost: Array, level: Array) -> Array:
        """Heads with which the multipliers of `cones` have these heads, products at `level`."""
        length = self.split(self.slack(x))[1][cones]
        half = length - 0.5 * level / cost
        return length + np.sqrt(half * half + length * level / cost) - half

    def first(self, x: Array, level: Array, usual: Array) -> tuple[Array, Array]:
        """A slack near that of x, and a multiplier, with products at `level`.

        Where x is outside, the multiplier is of its `usual` size, shape (c,), at least: a smaller
        one lets the slack fall long before the constraint holds.
        """
        s = self.slack(x)
        head, length = self.split(s)
        outside = head <= length
        least = LEAST_ROOM * np.maximum(np.abs(head), length) + level / usual
        s[self.heads] = np.where(outside, length + least, head)
        z = level[self.owner] * self.inverse(s)
        raised = np.where(outside, np.maximum(usual / z[self.heads], 1.0), 1.0)
        return s, z * raised[self.owner]

    def rounded(self, s: Array, z: Array, usual: Array, width: Array) -> Array:
        """The multipliers of the face that a pair points at.

        0 where the slack is going to be inside of its cone; on the boundary as the slack is; left
        as they are, inside, where the slack is going to be 0.

        Parameters
        ----------
        usual, width : arrays, shape (c,)
            Sizes of the slacks and of the multipliers.
        """
        (s0, s1), (z0, z1) = self.split(s), self.split(z)
        free = (z0 + z1) * usual < (s0 - s1) * width
        apex = ~free & ((z0 - z1) * usual > (s0 + s1) * width)
        value = np.where(free, 0.0, 0.5 * (z0 + z1))
        boundary = -s * (value / np.where(s1 > 0.0, s1, 1.0))[self.owner]
        boundary[self.heads] = value
        return np.where(apex[self.owner], z, boundary)

    def face(self, x: Array, z: Array) -> tuple[Array, Array, Array] | None:
        """Curvature, rows and their right sides of the face that multipliers point at; at x.

        A slack on the boundary has ``u0 - |u1| = 0``, linear at x; one with a multiplier inside
        the cone is 0, row by row. None where there is no such face: a slack of 0 on a boundary.
        """
        s, z0 = self.slack(x), z[self.heads]
        s1, (curved, taken) = self.split(s)[1], self._faces(z)
        if not (s1[curved] > 0.0).all():
            return None
        length = np.where(curved, s1, 1.0)
        unit = np.where(curved[self.owner], self.tail * s / length[self.owner], 0.0)
        across = self.sums(unit[:, None] * self.matrix)
        weight = np.where(curved, z0 / length, 0.0)
        bent = self.matrix * np.sqrt(weight[self.owner] * self.tail)[:, None]
        along = across * np.sqrt(weight)[:, None]
        curvature = bent.T @ bent - along.T @ along
        rows, right = self.matrix[taken].copy(), -s[taken]
        edge = curved[self.owner[taken]]
        rows[edge] -= across[curved]
        right[edge] += s1[curved]
        return curvature, rows, right

    def _faces(self, z: Array) -> tuple[Mask, Mask]:
        """The cones on whose boundary slacks are, and the rows of the `face`.

        Rows in the order of the cones: the head of those, all rows of the cones whose slack is 0.
        """
        z0, z1 = self.split(z)
        on = z0 > 0.0
        apex = on & (z0 - z1 > APEX * z0)
        return on & ~apex, on[self.owner] & (apex[self.owner] | (self.tail == 0.0))

    def moved(self, x: Array, z: Array, step: Array) -> Array:
        """The multipliers after a step of those of the `face`, on its boundaries at x."""
        s, z0 = self.slack(x), z[self.heads]
        s1, (curved, taken) = self.split(s)[1], self._faces(z)
        moves = np.zeros(len(z))
        moves[taken] = step[: int(taken.sum())]
        value = z0 + np.where(curved, moves[self.heads], 0.0)
        along = -s * (value / np.maximum(s1, 1e-300))[self.owner]
        along[self.heads] = value
        return np.where(curved[self.owner], along, z + moves)


class Scaling:
    """The scaling of a pair inside the cones; see the module's docstring."""

    def __init__(self, cones: SecondOrderCones, s: Array, z: Array) -> None:
        self.cones = cones
        owner = cones.owner
        of_s, of_z = np.sqrt(cones.squares(s)), np.sqrt(cones.squares(z))
        unit_s, unit_z = s / of_s[owner], z / of_z[owner]
        w = unit_s + cones.signs * unit_z
        w /= np.sqrt(2.0 + 2.0 * cones.sums(unit_s * unit_z))[owner]
        self.v = (w + cones.unit) / np.sqrt(2.0 * (w[cones.heads] + 1.0))[owner]
        self.eta = np.sqrt(of_s / of_z)[owner]
        self.point = self.times(z)

    def times(self, u: Array) -> Array:
        """``W u``."""
        along = self.cones.sums(self.v * u)[self.cones.owner]
        return self.eta * (2.0 * along * self.v - self.cones.signs * u)

    def undone(self, u: Array) -> Array:
        """``W^-1 u``, of a vector or of every column of a matrix."""
        reflected, signs = self.cones.signs * self.v, self.cones.signs
        eta, owner = self.eta, self.cones.owner
        if u.ndim == 1:
            return (2.0 * self.cones.sums(reflected * u)[owner] * reflected - signs * u) / eta
        along = self.cones.sums(reflected[:, None] * u)[owner]
        return (2.0 * along * reflected[:, None] - signs[:, None] * u) / eta[:, None]

    @cached_property
    def matrix(self) -> Array:
        """``W^-1 G``."""
        return self.undone(self.cones.matrix)

    @property
    def normal(self) -> Array:
        """What the normal equations get."""
        return self.matrix.T @ self.matrix

    def rest(self, of_cones: Array, apart: Array) -> Array:
        """``W dz`` where x stays, for ``W dz + W^-1 ds = of_cones``."""
        return of_cones - self.undone(apart)

    def back(self, rest: Array) -> Array:
        """``G' dz`` of such a step."""
        return self.matrix.T @ rest

    def steps(self, dx: Array, rest: Array, apart: Array) -> tuple[Array, Array]:
        """Of slacks and multipliers, where x moves by `dx`."""
        return self.cones.matrix @ dx + apart, self.undone(rest - self.matrix @ dx)
