"""Columns of a design: their norms and the matrix by columns, for every way rows are stored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import cvxscreen as cs
from cvxscreen.core.losses import Losses
from cvxscreen.designs import rows as columns
from cvxscreen.designs.rows import Rows


@pytest.fixture(params=["dense", "float32", "sparse", "sparse float32"])
def design(request: pytest.FixtureRequest, rng: np.random.Generator) -> Rows:
    """Rows with factors that are no signs, and two columns besides."""
    X: Any = rng.standard_normal((40, 7)) * (rng.random((40, 7)) < 0.6)
    if "float32" in request.param:
        X = X.astype(np.float32)
    if "sparse" in request.param:
        X = sp.csr_matrix(X)
    return Rows(X, rng.uniform(0.5, 2.0, 40), rng.standard_normal((40, 2)))


@pytest.mark.parametrize("block", [16, 1024])
def test_squares_of_columns_are_those_of_the_rows_with_their_factors(
    design: Rows, block: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "_BLOCK_ROWS", block)
    weights = rng.uniform(0.0, 2.0, 40) * (rng.random(40) < 0.7)
    found = columns.column_squares(design, weights)
    np.testing.assert_allclose(found, weights @ design.dense() ** 2, rtol=1e-13)


def test_the_matrix_by_columns_is_the_design(design: Rows) -> None:
    made = columns.by_columns(design).toarray() if design.sparse else columns.column_major(design)
    np.testing.assert_array_equal(made, design.dense())
    assert design.sparse or not np.shares_memory(made, design.matrix)


@pytest.mark.parametrize("equal", [True, False])
def test_norms_of_columns_are_in_the_metric_of_the_curvatures(
    design: Rows, equal: bool, rng: np.random.Generator
) -> None:
    """One pass serves both norms where all curvatures are equal; terms without one do not count."""
    q = np.full(40, 0.3) if equal else rng.choice([0.0, 0.3, 2.0], 40)
    losses = Losses(np.zeros(40), np.zeros(40), q, np.full(40, -1.0), np.zeros(40))
    base = cs.Problem(design, losses, cs.Quadratic(np.ones(9)), np.zeros(9))
    inverse = np.divide(1.0, q, out=np.zeros(40), where=q > 0)
    whole = design.dense()
    np.testing.assert_allclose(base.column_norms, np.sqrt(inverse @ whole**2), rtol=1e-13)
    np.testing.assert_allclose(base.column_sizes, np.sqrt((whole**2).sum(axis=0)), rtol=1e-13)
    assert not replace(base, losses=replace(losses, q=np.zeros(40))).column_norms.any()
