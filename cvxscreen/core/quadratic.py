"""The quadratic term of a problem: a diagonal, plus a dense positive semidefinite matrix."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg as sla
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.limits import require
from cvxscreen._support.rounding import UNIT, gamma
from cvxscreen._support.validation import array
from cvxscreen.designs.protocols import Design
from cvxscreen.errors import InvalidInput

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_ROUNDED = 1e-11
"""Relative to the largest eigenvalue, how far below 0 the rounding of a matrix product (X'X from a
million rows) and of its eigenvalues may put one that is 0."""


@dataclass(frozen=True, eq=False)
class Quadratic:
    """``1/2 <x, M x>`` with ``M = diag(diagonal) + matrix``.

    Coordinates that M does not touch are *free*. Where M is singular on those that it touches
    nothing says which directions it holds: then all coordinates count as free, and whatever rests
    on strong convexity decides nothing about them.

    Parameters
    ----------
    diagonal : array_like, shape (d,)
        Non-negative.
    matrix : array_like, shape (d, d), optional
        Symmetric positive semidefinite; quadratic pieces are folded into it.

    Raises
    ------
    InvalidInput
        If ``M`` is not positive semidefinite, beyond the rounding of its eigenvalues.

    Examples
    --------
    >>> import numpy as np, cvxscreen
    >>> form = cvxscreen.Quadratic(np.array([1.0, 2.0, 0.0]))   # the last one is not penalised
    >>> form.apply(np.ones(3)), form.free
    (array([1., 2., 0.]), array([False, False,  True]))
    """

    diagonal: Array
    matrix: Array | None = None

    def __post_init__(self) -> None:
        diagonal = array("diagonal", self.diagonal).copy()
        if diagonal.ndim != 1 or not np.isfinite(diagonal).all() or (diagonal < 0).any():
            raise InvalidInput("`diagonal` must be a vector of finite, non-negative numbers.")
        object.__setattr__(self, "diagonal", diagonal)
        if self.matrix is not None:
            matrix = array("matrix", self.matrix)
            d = len(diagonal)
            if matrix.shape != (d, d) or not np.isfinite(matrix).all():
                raise InvalidInput(f"`matrix` must be finite with shape ({d}, {d}).")
            object.__setattr__(self, "matrix", 0.5 * (matrix + matrix.T))
            if self.singular and not self.dip <= _ROUNDED * self._size:
                raise InvalidInput(
                    "the quadratic term is not positive definite nor semidefinite: "
                    f"an eigenvalue is {-self.dip:.3g}."
                )

    @cached_property
    def untouched(self) -> Mask:
        """Mask of the coordinates with a zero row in M, shape (d,)."""
        untouched = self.diagonal == 0.0
        if self.matrix is not None:
            untouched = untouched & ~self.matrix.any(axis=0)
        return untouched

    @cached_property
    def free(self) -> Mask:
        """Mask of the unpenalised coordinates, shape (d,): all of them where M is `singular`."""
        return np.ones(len(self.diagonal), dtype=bool) if self.singular else self.untouched

    @cached_property
    def singular(self) -> bool:
        """Whether M cannot be shown to be positive definite on the coordinates that it touches."""
        return self.matrix is not None and self._lowest <= 0.0

    @cached_property
    def _size(self) -> float:
        """An upper bound of the largest eigenvalue of M."""
        return float(np.abs(self.dense()).sum(axis=0).max(initial=0.0))

    @cached_property
    def dip(self) -> float:
        """How far below 0 an eigenvalue of M may be, rounding included; 0 unless `singular`."""
        if not self.singular:
            return 0.0
        lowest = float(np.linalg.eigvalsh(self.dense()).min())
        return max(8.0 * len(self.diagonal) * UNIT * self._size - lowest, 0.0)

    @cached_property
    def _block(self) -> Array:
        kept = ~self.untouched
        return self.dense()[np.ix_(kept, kept)]

    @cached_property
    def _factor(self) -> tuple[Array, bool]:
        return sla.cho_factor(self._block, lower=True)

    @cached_property
    def _relative_floor(self) -> float:
        """A lower bound of the smallest eigenvalue of M scaled to a unit diagonal.

        Cholesky's error depends on this number only, not on how the coordinates are scaled.
        """
        diagonal = np.diag(self._block)
        if (diagonal <= 0).any():
            return -1.0
        scale = 1.0 / np.sqrt(diagonal)
        values = np.linalg.eigvalsh(scale[:, None] * self._block * scale)
        return float(values.min()) - 8.0 * len(values) * UNIT * float(np.abs(values).max())

    @cached_property
    def floor(self) -> float:
        """A guaranteed lower bound of M's eigenvalues on the penalised coordinates."""
        return float("inf") if self.singular else self._lowest

    @cached_property
    def _lowest(self) -> float:
        """The same on the coordinates that M touches, not positive where nothing is guaranteed."""
        kept = ~self.untouched
        if not kept.any():
            return float("inf")
        lowest = float(self.diagonal[kept].min())
        if self.matrix is None:
            return lowest
        top = float(np.abs(self._block).sum(axis=0).max())
        low = min(float(np.linalg.eigvalsh(self.matrix[np.ix_(kept, kept)]).min()), 0.0)
        return max(
            lowest + low - 8.0 * len(self._block) * UNIT * top,
            self._relative_floor * max(float(np.diag(self._block).min()), 0.0),
        )

    def apply(self, x: ArrayLike) -> Array:
        """``M x``."""
        x = np.asarray(x, dtype=np.float64)
        out = self.diagonal * x
        return out if self.matrix is None else out + self.matrix @ x

    def solve(self, v: ArrayLike) -> Array:
        """``M^{-1} v`` on the penalised coordinates, 0 on the others."""
        v = np.asarray(v, dtype=np.float64)
        out = np.zeros_like(v)
        kept = ~self.free
        if not kept.any():
            return out
        if self.matrix is None:
            out[kept] = v[kept] / self.diagonal[kept]
        else:
            out[kept] = sla.cho_solve(self._factor, v[kept])
        return out

    def inner(self, v: ArrayLike, x: ArrayLike) -> float:
        """The value of the functional v at x: ``v' x``, unless coordinates mean something else."""
        return float(np.asarray(v) @ np.asarray(x))

    def dual_reach(self, v: ArrayLike) -> float:
        """An upper bound of ``||v||`` in the metric of ``M^{-1}``, penalised coordinates only."""
        return float(np.linalg.norm(np.asarray(v)[~self.free]) / np.sqrt(self.floor))

    def norm(self, x: ArrayLike) -> float:
        """``sqrt(<x, M x>)``."""
        x = np.asarray(x, dtype=np.float64)
        return float(np.sqrt(max(float(x @ self.apply(x)), 0.0)))

    def dual_norms(self, design: Design) -> Array:
        """``||a_i||`` in the metric of ``M^{-1}`` over the penalised coordinates, shape (n,)."""
        kept = ~self.free
        if not kept.any():
            return np.zeros(design.shape[0])
        if self.matrix is None:
            weights = np.where(kept, 1.0 / np.where(kept, self.diagonal, 1.0), 0.0)
            return np.sqrt(design.weighted_squares(weights))
        rows = design.take_columns(np.flatnonzero(kept)).dense()
        plain = np.sqrt(np.einsum("ij,ij->i", rows, rows) / self.floor)
        half = sla.solve_triangular(self._factor[0], rows.T, lower=True, check_finite=False)
        norms = np.sqrt(np.einsum("ij,ij->j", half, half))
        # Cholesky's backward error (Higham, Theorem 10.3), relative in the metric of M^-1.
        d = rows.shape[1]
        error = 4.0 * d * gamma(d + 2) / max(self._relative_floor, 1e-300)
        return np.asarray(np.minimum(norms * (1.0 + error), plain * (1.0 + gamma(d + 4))))

    def dense(self) -> Array:
        """``M`` as a dense matrix."""
        d = len(self.diagonal)
        require(8 * d * d, f"a dense quadratic form in {d:,} coordinates", "use fewer coordinates")
        full = np.diag(self.diagonal)
        return full if self.matrix is None else full + self.matrix

    def scaled(self, factor: float) -> Quadratic:
        """``factor M``."""
        matrix = None if self.matrix is None else factor * self.matrix
        return Quadratic(factor * self.diagonal, matrix)

    def take(self, index: NDArray[np.intp]) -> Quadratic:
        """The quadratic restricted to the coordinates at `index`."""
        matrix = None if self.matrix is None else self.matrix[np.ix_(index, index)]
        return Quadratic(self.diagonal[index], matrix)


class ZeroQuadratic(Quadratic):
    """``M = 0`` where an L1 norm holds every coordinate: none of them is free.

    There is no ball around any x and no ``x_theta``: norms in the metric of ``M^{-1}`` are
    infinite, so that whatever rests on them decides nothing.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.matrix is not None or self.diagonal.any():
            raise InvalidInput("`diagonal` must be 0 where there is no quadratic term.")

    @cached_property
    def free(self) -> Mask:
        """None: the L1 norm holds them all."""
        return np.zeros(len(self.diagonal), dtype=bool)

    def solve(self, v: ArrayLike) -> Array:
        """0: nothing rests on it."""
        return np.zeros(len(self.diagonal))

    def dual_reach(self, v: ArrayLike) -> float:
        """Infinite, but for v = 0."""
        return float("inf") if np.any(v) else 0.0

    def dual_norms(self, design: Design) -> Array:
        """Infinite."""
        return np.full(design.shape[0], np.inf)

    def scaled(self, factor: float) -> ZeroQuadratic:
        """Itself."""
        return self

    def take(self, index: NDArray[np.intp]) -> ZeroQuadratic:
        """The same over the coordinates at `index`."""
        return ZeroQuadratic(self.diagonal[index])
