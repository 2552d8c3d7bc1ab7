"""What a nest of reduced problems is made of: rows, columns, the work of a pass, goals, looks."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sparse_cases import make

import cvxscreen as cs
from cvxscreen.core.losses import Piece
from cvxscreen.designs.columns import OFTEN, by_columns, by_rows, column_counts, entries, narrowed
from cvxscreen.designs.rows import Rows
from cvxscreen.screening.reduction import Selection, _narrowed
from cvxscreen.solvers.interface import Start
from cvxscreen.solvers.prox_newton.rows_and_columns import IndexedSubproblem, first_goal
from cvxscreen.solvers.stochastic import Sdca


@pytest.mark.parametrize("kind", ["plain", "scaled", "extra", "float32", "dense"])
def test_rows_and_columns_of_a_design(kind: str) -> None:
    rng = np.random.default_rng(3)
    X = sp.random(30, 200, 0.1, format="csr", random_state=rng)
    scale = rng.uniform(0.5, 2.0, 30) if kind == "scaled" else None
    extra = rng.standard_normal((30, 2)) if kind == "extra" else None
    X = X.astype(np.float32) if kind == "float32" else X.toarray() if kind == "dense" else X
    design = Rows(X, scale, extra)
    full = design.dense()
    assert by_rows(design) is by_rows(design)
    np.testing.assert_array_equal(by_rows(design).toarray(), full)
    for features in (np.array([3, 7]), np.arange(0, 200, 2)):
        np.testing.assert_array_equal(narrowed(design, features).dense(), full[:, features])
        by_columns(design)
        part = narrowed(design, features)
        np.testing.assert_array_equal(part.dense(), full[:, features])
        np.testing.assert_array_equal(by_columns(part).toarray(), full[:, features])
    if kind != "dense":
        np.testing.assert_array_equal(column_counts(design), (full != 0).sum(axis=0))
        assert entries(design) == np.count_nonzero(full)
    else:
        assert entries(design) == full.size


def test_rows_are_turned_once_columns_are_cut_often() -> None:
    """And are the same to the last bit before and after."""
    problem = make("huber", "sparse", 1)
    design, subproblem = problem.design, IndexedSubproblem.whole(problem)
    dropped = np.arange(problem.d) % 3 > 0
    selection = Selection(np.full(problem.n, -1, dtype=np.int8), dropped)
    cuts = []
    for number in range(OFTEN + 2):
        assert (design.copies.by_columns is not None) == (number > OFTEN)
        cuts.append(by_columns(subproblem.within(selection).problem.design))
    for cut in cuts:
        np.testing.assert_array_equal(cut.data, cuts[0].data)
        np.testing.assert_array_equal(cut.indices, cuts[0].indices)


@pytest.mark.parametrize(("kept", "goal"), [(500, 0.03), (499, 1e-6), (700, 0.03), (800, 1e-6)])
def test_the_first_goal_from_zero(kept: int, goal: float) -> None:
    """Rough where as many features as may be are let in, and others are left out."""
    X = np.random.default_rng(0).standard_normal((4, 800))
    whole = IndexedSubproblem.whole(cs.sparse_svm(X, [1.0, -1.0, 1.0, -1.0], 0.1))  # type: ignore[arg-type]
    some = whole.within(Selection(np.full(4, -1, dtype=np.int8), np.arange(800) >= kept))
    assert first_goal(some, 800, 1e-6, 1.0) == goal
    assert first_goal(some, 800, 2.0, 1.0) == 2.0


def test_the_work_of_a_pass() -> None:
    problem = make("huber", "sparse", 1)
    subproblem = IndexedSubproblem.whole(problem)
    rows, columns = np.ones(problem.n, dtype=bool), np.ones(problem.d, dtype=bool)
    assert subproblem.size == entries(problem.design) + problem.n + problem.d
    assert subproblem.size_of(rows, columns) == pytest.approx(subproblem.size)
    assert subproblem.size_of(rows, columns & (np.arange(problem.d) < 4)) < 0.5 * subproblem.size
    assert subproblem.size_of(np.arange(0), np.arange(3)) == 3.0


def test_looks_are_far_apart_only_later() -> None:
    problem = make("smoothed_hinge", "dense", 2, share=0.1)
    assert Sdca(max_epochs=1)(problem, None, 0.0).info["epochs"] == 1
    loose = Sdca(every=50)(problem, None, 0.05 * problem.primal(np.zeros(problem.d)))
    assert loose.info["epochs"] in (1, 2, 4, 8, 16, 32)
    start = Start(np.zeros(problem.d), np.zeros(problem.n))
    assert Sdca()(problem, start, 1e9).info["epochs"] == 0


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("share", [0.2, 0.9])
def test_rows_before_columns_or_after(turned: bool, share: float) -> None:
    """The same reduced problem, in whatever order it is cut."""
    problem = make("smoothed_hinge", "sparse", 1)
    kept = np.arange(problem.n) < share * problem.n
    flat = np.where(np.arange(problem.n) % 2, Piece.LOW, Piece.ZERO)
    codes = np.where(kept, Piece.UNDECIDED, flat).astype(np.int8)
    selection = Selection(codes, np.arange(problem.d) % 3 == 0)
    features = selection.features(problem)
    if turned:
        by_columns(problem.design)
    first = selection.reduce(problem)
    other = Selection(codes).reduce(_narrowed(problem, features))
    assert first.design.shape == other.design.shape == (kept.sum(), len(features))
    np.testing.assert_array_equal(first.design.dense(), other.design.dense())
    np.testing.assert_allclose(first.linear, other.linear, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(first.penalty.kappa, other.penalty.kappa)  # type: ignore[union-attr]
    np.testing.assert_allclose(first.norms, other.norms, rtol=1e-12)
    np.testing.assert_allclose(first.column_norms, other.column_norms, rtol=1e-12)
    assert first.constant == pytest.approx(other.constant, rel=1e-12)
    wide = problem.design.dense().astype(np.longdouble).T @ problem.losses.piece_slope(codes)
    off = (first.linear - wide[features]).astype(float)
    assert np.sqrt(np.sum(off**2 / first.quadratic.diagonal)) <= first.drift
    assert 0.99 * other.drift <= first.drift < 100 * other.drift
