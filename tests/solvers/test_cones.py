"""The step of norms whose bounds are eliminated is that of the whole cones."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.norm_blocks import Blocks
from cvxscreen.solvers.cones import NormTerms


def made(seed: int) -> tuple[NormTerms, np.random.Generator]:
    """Norms of blocks of one to four rows over five columns, in two groups that share none."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 6, 30)
    rows, heads = int(sizes.sum()), np.cumsum(sizes) - sizes
    F = rng.standard_normal((rows, 5))
    for i, (head, size) in enumerate(zip(heads, sizes, strict=True)):
        F[head] = 0.0
        F[head + 1: head + size, 3 if i % 2 else 0: 5 if i % 2 else 3] *= 0.0
    dims = [("soc", int(size)) for size in sizes]
    side = SideConstraints(sp.csr_matrix(F), rng.standard_normal(rows) * (F != 0).any(axis=1), dims)
    blocks = Blocks.of(side.matrix, sizes)
    assert blocks is not None
    costs = rng.uniform(0.5, 2.0, 30)
    return NormTerms.made(blocks, sizes, side.offset, np.arange(rows), costs), rng


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_step_solves_the_whole_equations(seed: int) -> None:
    """``W dz + W^-1 ds = right`` with heads of dz 0 and tails of ds ``A dx + apart``."""
    norms, rng = made(seed)
    s, z = norms.central(rng.standard_normal(5), 0.3)
    s[norms.heads] += rng.uniform(0.0, 2.0, 30)
    scaling = norms.scaling(s, z)
    right, dx = rng.standard_normal(len(s)), rng.standard_normal(5)
    apart = norms.tail * rng.standard_normal(len(s))
    rest = scaling.rest(right, apart)
    ds, dz = scaling.steps(dx, rest, apart)
    np.testing.assert_allclose(scaling.times(dz) + scaling.undone(ds), right, atol=1e-9)
    assert not dz[norms.heads].any()
    np.testing.assert_allclose(norms.tail * ds, norms.blocks.matrix @ dx + apart, atol=1e-12)
    moved = norms.adjoint(rest) - norms.adjoint(dz)
    np.testing.assert_allclose(scaling.normal @ dx, moved, atol=1e-9)


def test_central_points_are_central() -> None:
    """``s o z = level e``, with heads of z the costs."""
    norms, rng = made(5)
    s, z = norms.central(rng.standard_normal(5), 0.3)
    np.testing.assert_allclose(norms.product(s, z), 0.3 * norms.unit, atol=1e-12)
    np.testing.assert_allclose(z[norms.heads], norms.costs, rtol=1e-12)


def test_the_face_is_newtons_step() -> None:
    """Its curvature is the derivative of the norms' gradients."""
    norms, rng = made(6)
    x = rng.standard_normal(5)

    def gradient(x: np.ndarray) -> np.ndarray:
        s = norms.slack(x)
        return -norms.adjoint(norms._steepest(s, s[norms.heads]))

    s = norms.slack(x)
    found = norms.face(x, norms._steepest(s, s[norms.heads]))
    assert found is not None
    assert not len(found[2])
    small = 1e-6 * np.eye(5)
    slopes = np.array([(gradient(x + e) - gradient(x - e)) / 2e-6 for e in small])
    np.testing.assert_allclose(found[0], slopes, atol=1e-6)


def test_of_sparse_blocks_no_dense_ones_are_made() -> None:
    """Each block with columns of its own, but one that all share."""
    rows = 400
    F = sp.lil_matrix((2 * rows, rows + 1))
    for i in range(rows):
        F[2 * i + 1, i] = 1.0
        F[2 * i + 1, rows] = -1.0
    blocks = Blocks.of(F.tocsr(), np.full(rows, 2))
    assert blocks.groups is None
    weight = np.linspace(0.0, 1.0, 2 * rows)
    np.testing.assert_allclose(blocks.gram(weight), F.T @ np.diag(weight) @ F, rtol=1e-13)
