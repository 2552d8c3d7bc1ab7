"""The Newton system ``(M + diag(damping) + A_J' diag(bend) A_J) step = right`` by size.

* few coordinates: the dense d x d matrix and Cholesky;
* few bending rows and a diagonal M: the |J| x |J| matrix of the Woodbury identity;
* otherwise: conjugate gradients on the rows J with a diagonal preconditioner, never forming either.
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
    """
    quadratic, d = problem.quadratic, problem.d
    diagonal = quadratic.diagonal + damping
    if not len(rows) and quadratic.matrix is None:
        return right / diagonal
    if quadratic.matrix is None and len(rows) < min(d, DENSE_LIMIT) and (diagonal > 0).all():
        return _woodbury(problem, rows, bend, diagonal, right)
    if d <= DENSE_LIMIT or quadratic.matrix is not None:
        matrix = problem.design.weighted_gram(rows, bend)
        matrix[np.diag_indices(d)] += diagonal
        if quadratic.matrix is not None:
            matrix += quadratic.matrix
        factor = sla.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
        return np.asarray(sla.cho_solve(factor, right, check_finite=False))
    return _conjugate_gradients(problem, rows, bend, diagonal, right)


def _woodbury(
    problem: Problem, rows: NDArray[np.intp], bend: Array, diagonal: Array, right: Array
) -> Array:
    sparse = problem.design.sparse
    block: Any = problem.design.rows_csr(rows) if sparse else problem.design.dense(rows)
    scaled = right / diagonal
    if sparse:
        small = np.asarray((block @ (block.multiply(1.0 / diagonal).tocsr()).T).toarray())
    else:
        small = (block / diagonal) @ block.T
    small[np.diag_indices(len(rows))] += 1.0 / bend
    factor = sla.cho_factor(small, lower=True, overwrite_a=True, check_finite=False)
    inner = sla.cho_solve(factor, block @ scaled, check_finite=False)
    return np.asarray(scaled - (block.T @ inner) / diagonal)


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
