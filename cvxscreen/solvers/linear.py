"""The Newton system ``(M + diag(damping) + A_J' diag(bend) A_J) step = right`` by size.

* few coordinates: the dense d x d matrix, scaled to a unit diagonal, and Cholesky;
* few bending rows: the |J| x |J| matrix of the Woodbury identity for the penalised coordinates, and
  a Schur complement for the unpenalised ones;
* otherwise: conjugate gradients on the rows J with a diagonal preconditioner, forming neither.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg as sla
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, cg

from cvxscreen.problem import Problem

Array = NDArray[np.float64]

DENSE_LIMIT = 1200
"""Largest side of a matrix that is formed and factorised."""


def solve_newton_system(
    problem: Problem, rows: NDArray[np.intp], bend: Array, damping: Array, right: Array
) -> Array:
    """Solve the Newton system; see the module's docstring.

    Parameters
    ----------
    rows : array of int, shape (k,)
        Indices J of the bending rows.
    bend : array, shape (k,)
        Their second derivatives.
    damping : array, shape (d,)
        Added to the diagonal (0 on penalised coordinates).
    right : array, shape (d,)

    Returns
    -------
    array, shape (d,)

    Raises
    ------
    scipy.linalg.LinAlgError
        If the matrix is not positive definite even with a little more on its diagonal.
    """
    quadratic, d = problem.quadratic, problem.d
    diagonal = quadratic.diagonal + damping
    if not len(rows) and quadratic.matrix is None and (diagonal > 0).all():
        return right / diagonal
    if quadratic.matrix is None and 2 * len(rows) < min(d, 2 * DENSE_LIMIT):
        try:
            return _woodbury(problem, rows, bend, diagonal, right)
        except sla.LinAlgError:
            if d > DENSE_LIMIT:
                raise
    if d <= DENSE_LIMIT or quadratic.matrix is not None:
        matrix = problem.design.weighted_gram(rows, bend)
        matrix[np.diag_indices(d)] += diagonal
        if quadratic.matrix is not None:
            matrix += quadratic.matrix
        return solve_positive(matrix, right)
    return _conjugate_gradients(problem, rows, bend, diagonal, right)


def solve_positive(matrix: Array, right: Array) -> Array:
    """``matrix^{-1} right`` by Cholesky after scaling the diagonal to 1.

    Badly scaled coordinates do not matter to it; a matrix that is singular to rounding gets a
    little more on its diagonal, so the result is a descent direction in any case.
    """
    diagonal = np.diag(matrix)
    scale = 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    scaled = matrix * scale[:, None] * scale
    for extra in (0.0, 1e-14, 1e-12, 1e-10, 1e-8):
        if extra:
            scaled[np.diag_indices(len(scaled))] += extra
        try:
            factor = sla.cho_factor(scaled, lower=True, check_finite=False)
        except sla.LinAlgError:
            continue
        weights = scale if right.ndim == 1 else scale[:, None]
        return np.asarray(weights * sla.cho_solve(factor, weights * right, check_finite=False))
    raise sla.LinAlgError("the Newton matrix is not positive definite")


def _woodbury(
    problem: Problem, rows: NDArray[np.intp], bend: Array, diagonal: Array, right: Array
) -> Array:
    """Woodbury on the penalised coordinates; the unpenalised ones by their Schur complement."""
    design, free = problem.design, problem.quadratic.free
    block: Any = design.rows_csr(rows) if design.sparse else design.dense(rows)
    if not free.any():
        return _woodbury_solve(block, bend, diagonal, right)
    kept, own = np.flatnonzero(~free), np.flatnonzero(free)
    border = block[:, own].toarray() if design.sparse else block[:, own]
    inner = block[:, kept]
    corner = border.T @ (bend[:, None] * border) + np.diag(diagonal[own])
    cross = np.asarray(inner.T @ (bend[:, None] * border))
    both = _woodbury_solve(
        inner, bend, diagonal[kept], np.column_stack([right[kept], cross])
    )
    schur = corner - cross.T @ both[:, 1:]
    step = np.empty_like(right)
    step[own] = solve_positive(0.5 * (schur + schur.T), right[own] - cross.T @ both[:, 0])
    step[kept] = both[:, 0] - both[:, 1:] @ step[own]
    return step


def _woodbury_solve(block: Any, bend: Array, diagonal: Array, right: Array) -> Array:
    """``(diag(diagonal) + B' diag(bend) B)^{-1} right`` for one or several columns."""
    weights = 1.0 / diagonal if right.ndim == 1 else (1.0 / diagonal)[:, None]
    scaled = weights * right
    if isinstance(block, np.ndarray):
        small = (block / diagonal) @ block.T
    else:
        small = np.asarray((block @ (block.multiply(1.0 / diagonal).tocsr()).T).toarray())
    small[np.diag_indices(len(bend))] += 1.0 / bend
    inner = solve_positive(small, np.asarray(block @ scaled))
    return np.asarray(scaled - weights * (block.T @ inner))


def _conjugate_gradients(
    problem: Problem, rows: NDArray[np.intp], bend: Array, diagonal: Array, right: Array
) -> Array:
    block = problem.design.take_rows(rows)
    squares = block.matrix.multiply(block.matrix) if block.sparse else np.square(block.matrix)
    weights = bend if block.scale is None else bend * block.scale**2
    head = np.asarray(squares.T @ weights).ravel()
    curvature = np.concatenate([head, np.square(block.extra).T @ weights])
    preconditioner = 1.0 / (diagonal + curvature)

    def apply(v: Array) -> Array:
        v = np.ravel(v)
        return diagonal * v + block.adjoint(bend * block.forward(v))

    d = problem.d
    operator = LinearOperator((d, d), matvec=apply, dtype=np.float64)
    scale = LinearOperator((d, d), matvec=lambda v: preconditioner * np.ravel(v), dtype=np.float64)
    step, _ = cg(operator, right, rtol=1e-3, maxiter=200, M=scale)
    return np.asarray(step)
