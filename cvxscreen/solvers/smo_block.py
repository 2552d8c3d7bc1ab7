"""One dense block of a kernel problem, solved by coordinates and finished by Newton steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg as sla
from numpy.typing import NDArray

from cvxscreen.solvers.smo_interior import interior
from cvxscreen.solvers.smo_loops import compiled

Array = NDArray[np.float64]

NEWTON_LIMIT = 3000
"""Largest number of terms inside their box for which a Newton step is taken."""
INTERIOR_LIMIT = 2000
"""Largest block for which the central path is followed where steps get stuck."""
_CYCLES, _IDLE, _FACES = 30, 2, 6


@dataclass(eq=False)
class Block:
    """``minimise 1/2 c' K c + f' c + sum_k (e_k |c_k| + q_k/2 c_k^2)`` over a box.

    Parameters
    ----------
    K : array, shape (m, m)
    F : array, shape (m,)
        ``K c + f`` at the start; kept up to date.
    c, lo, hi, e, q : arrays, shape (m,)
        `c` and `F` belong to the block, which changes them.
    balanced : bool
        Whether the sum of c is kept.
    """

    K: Array
    F: Array
    c: Array
    lo: Array
    hi: Array
    e: Array
    q: Array
    balanced: bool

    def solve(self, eps: float) -> int:
        """Reduce the violation of optimality to `eps`; returns the number of coordinate steps."""
        run = compiled()[0 if self.balanced else 1]
        m, steps, before, idle, fallen = len(self.c), 0, float("inf"), 0, False
        for _ in range(_CYCLES):
            done, violation = run(
                self.K, self.F, self.c, self.lo, self.hi, self.e, self.q, eps, 1000 + 10 * m
            )
            steps += done
            idle = idle + 1 if violation > 0.5 * before else 0
            before = min(before, violation)
            if violation <= eps:
                break
            if idle > _IDLE or not self._newton():
                if fallen or not self._interior(0.5 * eps):
                    break
                fallen, before, idle = True, float("inf"), 0
        return steps

    def _interior(self, accuracy: float) -> bool:
        """The minimiser by the central path; whether it is better than what is there."""
        c, e = self.c, self.e
        if len(c) > INTERIOR_LIMIT or not (np.isfinite(self.lo) & np.isfinite(self.hi)).all():
            return False
        moves = np.flatnonzero(self.lo < self.hi)
        held, e = c[moves], e[moves]
        K = self.K[np.ix_(moves, moves)]
        f = self.F[moves] - K @ held
        K[np.diag_indices_from(K)] += self.q[moves]
        found = interior(
            K, f, e, held, self.lo[moves], self.hi[moves], self.balanced, accuracy
        )
        if found is None:
            return False
        move = found - held
        fall = float(move @ (f + K @ (held + 0.5 * move)))
        if not fall + float(e @ (np.abs(found) - np.abs(held))) < 0.0:
            return False
        self.F += move @ self.K[moves]
        c[moves] = found
        return True

    def _newton(self) -> bool:
        """Newton steps on the terms inside their box; those it would push out are then held."""
        c, e = self.c, self.e
        inside = np.flatnonzero((c > self.lo) & (c < self.hi) & ((e == 0) | (c != 0)))
        moved = False
        for _ in range(_FACES):
            if not 0 < len(inside) <= NEWTON_LIMIT:
                break
            step = self._direction(inside)
            if step is None or not np.isfinite(step).all():
                break
            held = c[inside]
            kink = e[inside] > 0
            low = np.where(kink & (held > 0), np.maximum(self.lo[inside], 0.0), self.lo[inside])
            high = np.where(kink & (held < 0), np.minimum(self.hi[inside], 0.0), self.hi[inside])
            with np.errstate(divide="ignore", invalid="ignore"):
                room = np.where(step > 0, (high - held) / step, (low - held) / step)
            room = np.where(step == 0, np.inf, room)
            size = min(1.0, float(room.min()))
            after = np.clip(held + size * step, low, high)
            hit = room <= size
            after[hit] = np.where(step > 0, high, low)[hit]
            c[inside] = after
            self.F += (after - held) @ self.K[inside]
            moved = True
            if size == 1.0:
                break
            inside = inside[room > 1.0]
        return moved

    def _direction(self, inside: NDArray[np.intp]) -> Array | None:
        """Minimiser over the face through the current point (less a tiny ridge), relative to it."""
        matrix = self.K[np.ix_(inside, inside)]
        diagonal = matrix.diagonal() + self.q[inside]
        ridge = 1e-13 * len(inside) * float(diagonal.max())
        c = self.c[inside]
        gradient = self.F[inside] + self.q[inside] * c + self.e[inside] * np.sign(c)
        for _ in range(3):
            np.fill_diagonal(matrix, diagonal + ridge)
            try:
                factor = sla.cho_factor(matrix, lower=True, check_finite=False)
            except sla.LinAlgError:
                ridge *= 1e3
                continue
            step = np.asarray(sla.cho_solve(factor, gradient, check_finite=False))
            if self.balanced:
                ones = np.asarray(sla.cho_solve(factor, np.ones(len(inside)), check_finite=False))
                step = step - (step.sum() / ones.sum()) * ones
            return -step
        return None
