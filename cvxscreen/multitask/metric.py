"""The shared matrix ``M`` with its eigenvalues, and what a task sees of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen.errors import InvalidInput
from cvxscreen.inputs import array
from cvxscreen.prox import capped_simplex, spectral_box_norm_factor

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Metric:
    """``M = P diag(g) P'`` with ``0 <= g <= 1``; ``A = eta I + M``.

    Attributes
    ----------
    P : array, shape (d, d)
        Orthogonal.
    g : array, shape (d,)
    eta, c : float
    """

    P: Array
    g: Array
    eta: float
    c: float

    @classmethod
    def at(cls, M: ArrayLike, h: float, eta: float, c: float) -> Metric:
        """The feasible matrix nearest to `M`."""
        M = array("M", M)
        if M.ndim != 2 or M.shape[0] != M.shape[1] or not np.isfinite(M).all():
            raise InvalidInput(f"`M` must be a finite square matrix; found shape {M.shape}.")
        values, vectors = np.linalg.eigh(0.5 * (M + M.T))
        return cls(vectors, capped_simplex(values, h), eta, c)

    @classmethod
    def best(cls, U: Array, h: float, eta: float, c: float) -> Metric:
        """The minimiser of ``tr(U' (eta I + M)^{-1} U)``: the M-step."""
        P, g = spectral_box_norm_factor(U, eta, h)
        return cls(P, g, eta, c)

    @classmethod
    def plain(cls, d: int, weight: float) -> Metric:
        """``B = I / weight``: the metric of ``weight/2 ||u||^2``."""
        return cls(np.eye(d), np.zeros(d), 1.0, 0.5 * weight)

    def _made(self, weights: Array) -> Array:
        out = (self.P * weights) @ self.P.T
        return 0.5 * (out + out.T)

    @cached_property
    def M(self) -> Array:
        """The matrix itself, shape (d, d)."""
        return self._made(self.g)

    @cached_property
    def inverse(self) -> Array:
        """``(eta I + M)^{-1}``, shape (d, d)."""
        return self._made(1.0 / (self.eta + self.g))

    @cached_property
    def root(self) -> Array:
        """A square root of `B`: ``B = root root'``, shape (d, d)."""
        return self.P * np.sqrt((self.eta + self.g) / (2.0 * self.c))

    @cached_property
    def B(self) -> Array:
        """``A / (2 c)``: a task's ``u`` is ``B v``."""
        return self.root @ self.root.T

    def penalty(self, U: Array) -> float:
        """``c tr(U' A^{-1} U)``; also of a vector."""
        weights = 1.0 / (self.eta + self.g)
        return self.c * float(np.sum((self.P.T @ U).T ** 2 * weights))

    def top(self) -> float:
        """The largest eigenvalue of `B`."""
        return (self.eta + float(self.g.max())) / (2.0 * self.c)

    def floor(self) -> float:
        """The smallest eigenvalue of `B`."""
        return (self.eta + float(self.g.min())) / (2.0 * self.c)
