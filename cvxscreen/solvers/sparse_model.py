"""The piecewise quadratic model of `ProxNewton`, minimised by sweeps and linear systems."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg as sla
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.solvers.sparse_loops import loops

Array = NDArray[np.float64]

DIRECT = 1000
"""Largest side of a linear system that is solved by Cholesky."""
CYCLES = 8


@dataclass(eq=False)
class Model:
    """The quadratic model on some features; d is the step, ``u = B d``.

    `block` holds the features' columns, `bent` their bending rows over ``sqrt(q)``; both are CSC,
    or dense where the data are.
    """

    block: Any
    bent: Any
    weight: Array
    kappa: Array
    slope: Array
    x: Array
    d: Array = field(init=False)
    u: Array = field(init=False)

    def __post_init__(self) -> None:
        self.d, self.u = np.zeros(len(self.x)), np.zeros(self.bent.shape[0])
        if sp.issparse(self.bent):
            arrays = self.bent.indptr, self.bent.indices, self.bent.data
        else:
            rows, columns = self.bent.shape
            every = np.tile(np.arange(rows, dtype=np.int32), columns)
            arrays = np.arange(columns + 1) * rows, every, self.bent.ravel(order="F")
        self.arrays = arrays
        squares = np.zeros(len(self.x))
        used = np.flatnonzero(np.diff(arrays[0]))
        if len(used):
            squares[used] = np.add.reduceat(arrays[2] ** 2, arrays[0][used])
        self.curve = squares + self.weight

    @classmethod
    def around(
        cls, matrix: Any, active: NDArray[np.intp], rows: NDArray[np.intp], factor: Array,
        weight: Array, kappa: Array, slope: Array, x: Array,
    ) -> Model:
        """The model on the `active` columns of `matrix`; `factor` multiplies the bending `rows`."""
        block = matrix[:, active]
        if not sp.issparse(matrix):
            bent = np.asfortranarray(block[rows] * factor[rows, None])
            return cls(block, bent, weight, kappa, slope, x)
        rank = np.full(matrix.shape[0], -1, dtype=np.int32)
        rank[rows] = np.arange(len(rows))
        indptr = np.zeros(len(active) + 1, dtype=np.int32)
        indices, data = np.empty(block.nnz, dtype=np.int32), np.empty(block.nnz)
        size = loops().chosen_rows(
            np.arange(len(active)), block.indptr, block.indices, block.data, rank, factor, indptr,
            indices, data,
        )
        entries = data[:size], indices[:size], indptr
        bent = sp.csc_matrix(entries, shape=(len(rows), len(active)))
        return cls(block, bent, weight, kappa, slope, x)

    @cached_property
    def gram(self) -> Array | None:
        """``B'B`` where it is small and B dense: every linear system then is a part of it."""
        if sp.issparse(self.bent) or self.bent.shape[1] > DIRECT:
            return None
        return np.asarray(self.bent.T @ self.bent)

    def value(self, d: Array, u: Array) -> float:
        """The model's change against no step."""
        change = self.kappa @ (np.abs(self.x + d) - np.abs(self.x))
        return float(self.slope @ d + 0.5 * u @ u + 0.5 * self.weight @ d**2 + change)

    def sweep(self, order: NDArray[np.intp]) -> float:
        """Coordinate descent over `order`."""
        return float(loops().descend(
            order, *self.arrays, self.curve, self.weight, self.kappa, self.slope, self.x, self.d,
            self.u,
        ))

    def newton(self) -> bool:
        """Solve on the current signs; steps over zero stop there. Whether the model decreased."""
        here = self.x + self.d
        chosen = np.flatnonzero(here)
        if not len(chosen):
            return False
        matrix, weight = self.bent[:, chosen], self.weight[chosen]
        sign = np.sign(here[chosen])
        residual = self.slope[chosen] + matrix.T @ self.u + weight * self.d[chosen]
        residual += self.kappa[chosen] * sign
        if self.gram is not None and len(chosen) <= self.bent.shape[0]:
            gram = self.gram[np.ix_(chosen, chosen)]
            gram.flat[:: len(chosen) + 1] += weight
            step = -sla.solve(gram, residual, assume_a="pos", check_finite=False)
        else:
            step = -_solve(matrix, weight, residual)
        before = self.value(self.d, self.u)
        moved = here[chosen] + step
        crossed = moved * sign < 0
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(crossed, here[chosen] / np.where(crossed, -step, 1.0), 1.0)
        for length in (1.0, float(room.min(initial=1.0))):
            d = self.d.copy()
            place = here[chosen] + length * step
            place[place * sign <= 0] = 0.0
            d[chosen] = place - self.x[chosen]
            u = self.u + matrix @ (d[chosen] - self.d[chosen])
            if self.value(d, u) < before:
                self.d, self.u = d, u
                return True
            if not crossed.any():
                break
        return False

    def minimise(self, cold: bool) -> int:
        """Alternate sweeps and linear systems until little is left; sweeps made."""
        total, made = 0.0, 0
        every = np.arange(len(self.x))
        for cycle in range(CYCLES):
            before = self.value(self.d, self.u)
            self.sweep(every)
            some = np.flatnonzero(self.x + self.d)
            made += 1
            for _ in range(8 if cold and cycle == 0 else 2):
                self.sweep(some)
                made += 1
            signs = np.sign(self.x + self.d)
            self.newton()
            after = self.value(self.d, self.u)
            total += before - after
            same = bool((np.sign(self.x + self.d) == signs).all())
            if before - after <= 1e-3 * total or (same and cycle >= 1 and not cold):
                break
        return made


def _solve(matrix: Any, weight: Array, force: Array) -> Array:
    """``(B'B + diag(weight))^{-1} force`` by Cholesky on the smaller side, or roughly by CG."""
    rows, columns = matrix.shape
    if columns <= min(rows, DIRECT) or columns <= 64:
        gram = _gram(matrix.T)
        gram.flat[:: columns + 1] += weight
        return np.asarray(sla.solve(gram, force, assume_a="pos", check_finite=False))
    if rows <= DIRECT:
        inverse = 1.0 / np.sqrt(weight)
        scaled = matrix @ sp.diags(inverse) if sp.issparse(matrix) else matrix * inverse
        gram = _gram(scaled)
        gram.flat[:: rows + 1] += 1.0
        inner = force * inverse
        back = sla.solve(gram, scaled @ inner, assume_a="pos", check_finite=False)
        return np.asarray((inner - scaled.T @ back) * inverse)
    return _conjugate(matrix, weight, force)


def _gram(matrix: Any) -> Array:
    """``B B'`` dense."""
    if not sp.issparse(matrix):
        return np.asarray(matrix @ matrix.T)
    if matrix.nnz > 0.1 * matrix.shape[0] * matrix.shape[1]:
        dense = matrix.toarray()
        return np.asarray(dense @ dense.T)
    return np.asarray((matrix @ matrix.T).toarray())


def _conjugate(matrix: Any, weight: Array, force: Array) -> Array:
    """Jacobi-preconditioned conjugate gradients to a hundredth of the residual."""
    sparse = sp.issparse(matrix)
    by_rows, turned = (matrix.tocsr(), matrix.T.tocsr()) if sparse else (matrix, matrix.T)
    squares = matrix.power(2) if sparse else matrix**2
    precond = 1.0 / (np.asarray(squares.sum(axis=0)).ravel() + weight)
    x, r = np.zeros_like(force), force.copy()
    z = precond * r
    p, rz = z.copy(), float(r @ z)
    aim = 1e-4 * rz
    for _ in range(200):
        hp = turned @ (by_rows @ p) + weight * p
        size = rz / float(p @ hp)
        x += size * p
        r -= size * hp
        z = precond * r
        fresh = float(r @ z)
        if fresh <= aim:
            break
        p, rz = z + (fresh / rz) * p, fresh
    return x
