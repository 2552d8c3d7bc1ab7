"""The walker reads the same numbers as CVXPY's own extraction, and keeps the storage."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

from cvxscreen.cvxpy_plugin.recognise.expressions import extract_affine, read_affine, read_objective
from cvxscreen.cvxpy_plugin.recognise.matrices import Scaled, csr, rows_of_several
from cvxscreen.cvxpy_plugin.recognise.standard import canonicalise
from cvxscreen.errors import NotScreenable

N, D = 7, 4
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(N, D)), RNG.normal(size=N)
S = sp.random(N, D, 0.5, random_state=1, format="csr")
w, b = cp.Variable(D), cp.Variable()
W, V = cp.Variable((D, 3)), cp.Variable((D, 1))
two = cp.Parameter(value=2.0, pos=True)
py, px = cp.Parameter(N, value=Y), cp.Parameter((N, D), value=X)

EXPRESSIONS: list[Any] = [
    X @ w, S @ w, X @ w + b, cp.multiply(Y, X @ w + b), 1 - cp.multiply(Y, S @ w + b), X @ V, X @ W,
    W.T @ X.T, w @ X.T, S @ W, cp.sum(W), cp.sum(W, axis=0), cp.sum(W, axis=1, keepdims=True),
    W[1:3, ::2], W[[0, 2], :], W[:, 1], cp.hstack([w, b, V[:, 0]]), cp.vstack([w, W[:, 1]]),
    cp.bmat([[W, V], [W, V]]), cp.diag(w), cp.diag(W[:3, :]), cp.trace(W[:3, :]),
    cp.kron(np.eye(2), W), cp.vec(W, order="F"), cp.vec(W, order="C"),
    cp.reshape(W, (2, 6), order="C"), two * w + b, cp.multiply(py, px @ w - two * b), (X @ w) / two,
    cp.upper_tri(W[:3, :]), W * 3 - 2, cp.convolve([1.0, 2.0], w), X[0] @ w, Y @ X @ W,
    w[0] + w[2] * 3 - Y[1], cp.multiply(X, cp.reshape(w, (1, D), order="F")), W @ np.ones(3),
    cp.multiply(V, np.ones((1, 3))), w.T @ X[0], -W.T, sum(W[i, 2] for i in range(D)),
    cp.concatenate([w, w * 2]), cp.Constant(Y) - 1, b * Y, 2 - (-w) - (b - w), cp.multiply(2.0, b),
]  # fmt: skip


@pytest.mark.parametrize("expr", EXPRESSIONS, ids=[str(k) for k in range(len(EXPRESSIONS))])
def test_same_numbers_as_cvxpy(expr: Any) -> None:
    found = read_affine(expr)
    assert found.constant.shape == (expr.size,)
    if expr.variables():
        truth = extract_affine(expr)
        assert np.allclose(found.constant, truth.constant)
        for key, block in truth.blocks.items():
            ours = csr(found.blocks[key]).toarray() if key in found.blocks else 0.0
            assert np.allclose(ours, block.toarray())
    else:
        assert np.allclose(found.constant, np.ravel(expr.value, order="F"))


def test_values_at_a_point_agree() -> None:
    variables = (w, b, W, V)
    for variable in variables:
        variable.value = RNG.normal(size=variable.shape)
    try:
        for expr in EXPRESSIONS:
            found = read_affine(expr)
            total = found.constant.copy()
            for variable in expr.variables():
                point = np.ravel(variable.value, order="F")
                total += csr(found.blocks[variable.id]) @ point
            assert np.allclose(total, np.ravel(expr.value, order="F"))
    finally:
        for variable in variables:
            variable.value = None


def test_dense_stays_dense_and_sparse_stays_sparse() -> None:
    assert isinstance(read_affine(1 - cp.multiply(Y, X @ w + b)).blocks[w.id], np.ndarray)
    assert sp.issparse(read_affine(1 - cp.multiply(Y, S @ w + b)).blocks[w.id])
    data = cp.Constant(X)
    assert np.shares_memory(read_affine(data @ w).blocks[w.id], data.value)


@pytest.mark.parametrize("mixed", [False, True])
def test_rows_of_several_matrices_come_to_their_places(mixed: bool) -> None:
    """One behind the other, or in turn, with factors and without, and from sparse ones."""
    first, second, factor = RNG.random((6, 3)), RNG.random((6, 3)), RNG.random(6)
    ours = np.full(12, -1)
    ours[slice(None, None, 2) if mixed else slice(6)] = np.arange(6)[:: -1 if mixed else 1]
    theirs = np.full(12, -1)
    theirs[ours < 0] = np.arange(6)
    expected = np.zeros((12, 3))
    expected[ours >= 0] = first[ours[ours >= 0]]
    expected[ours < 0] = factor[:, None] * second
    for kind in (np.asarray, sp.csr_array):
        dense = [(kind(first), ours), (Scaled(second, factor), theirs)]
        np.testing.assert_array_equal(csr(rows_of_several(dense)).toarray(), expected)


def test_parameters_are_read_when_asked() -> None:
    scale = cp.Parameter(value=1.0)
    expr = scale * w
    assert csr(read_affine(expr).blocks[w.id]).toarray()[0, 0] == 1.0
    scale.value = 5.0
    assert csr(read_affine(expr).blocks[w.id]).toarray()[0, 0] == 5.0


def test_what_cvxpy_cannot_read_either_is_refused() -> None:
    with pytest.raises(NotScreenable, match="cumsum"):
        read_affine(cp.cumsum(w))


def canonical_objective(expr: Any) -> Any:
    return canonicalise(cp.Problem(cp.Minimize(expr))).problem


OBJECTIVES = [
    cp.sum_squares(w),
    2 * cp.sum_squares(w) - 3 * cp.sum(w) + 1,
    cp.quad_form(w, X.T @ X) / 2 + w[0],
    cp.sum(cp.multiply(np.arange(1.0, D + 1), cp.square(w))),
    np.arange(1.0, D + 1) @ cp.square(w),
    cp.sum(cp.hstack([cp.square(w[:2]), 2 * cp.square(w[2:])])),
    cp.trace(cp.diag(cp.square(w))),
    cp.quad_over_lin(w, 3.0),
    cp.sum(cp.quad_over_lin(W, 2.0, axis=0)),
    cp.sum_squares(w) / two,
    1 - (-cp.sum_squares(w)),
    cp.sum(w) + 0.0 * cp.sum_squares(w),
    cp.sum_squares(w) + cp.sum(cp.multiply(np.zeros(D), cp.square(w))),
]


@pytest.mark.parametrize("expr", OBJECTIVES, ids=[str(k) for k in range(len(OBJECTIVES))])
def test_objectives_are_read_in_full(expr: Any) -> None:
    cone = canonical_objective(expr)
    found = read_objective(cone.objective.expr)
    point = {v.id: RNG.normal(size=v.shape) for v in expr.variables()}
    for variable in expr.variables():
        variable.value = point[variable.id]
    truth = float(expr.value)
    # Helpers of the cone form are defined by equalities: solve for them by reading those.
    values = {v.id: np.ravel(v.value, order="F") for v in expr.variables()}
    for constraint in cone.constraints:
        part = read_affine(constraint.args[0] - constraint.args[1])
        for key in [key for key in part.blocks if key not in values]:
            rest = part.constant.copy()
            for other, block in part.blocks.items():
                rest += 0 if other == key else csr(block) @ values[other]
            values[key] = -rest / csr(part.blocks[key]).diagonal()
    total = found.constant
    for key, square in found.squares.items():
        total += 0.5 * values[key] @ (csr(square) @ values[key])
    total += sum(float(slope @ values[key]) for key, slope in found.slopes.items())
    assert total == pytest.approx(truth, rel=1e-12)
    for variable in expr.variables():
        variable.value = None
