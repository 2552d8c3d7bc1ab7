"""Linear systems and steps of the proximal Newton solver: every way gives the same answer."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sparse_cases import make

from cvxscreen.core.duality import reference_point
from cvxscreen.designs.columns import column_major
from cvxscreen.designs.rows import Rows
from cvxscreen.solvers.prox_newton import systems
from cvxscreen.solvers.prox_newton.solver import Coordinates, Model, ProxNewton
from cvxscreen.solvers.prox_newton.systems import CurvedRows


def curved_rows(
    rng: np.random.Generator, kind: str, rows: int, columns: int
) -> tuple[CurvedRows, np.ndarray]:
    """Some rows and columns of a larger matrix, weighted; and the same as plain numpy."""
    share = 0.6 if kind == "crowded" else 0.1
    whole = rng.standard_normal((rows + 7, columns + 5))
    if kind != "dense":
        whole *= rng.random(whole.shape) < share
    chosen = np.sort(rng.permutation(rows + 7)[:rows])
    active = np.sort(rng.permutation(columns + 5)[:columns])
    factor = rng.uniform(0.5, 2.0, rows + 7)
    matrix = np.asfortranarray(whole) if kind == "dense" else sp.csc_matrix(whole)
    plain = (whole * factor[:, None])[np.ix_(chosen, active)]
    return CurvedRows.of(matrix, active, chosen, factor), plain


@pytest.mark.parametrize("kind", ["dense", "sparse", "crowded"])
@pytest.mark.parametrize("shape", [(120, 80), (90, 200), (0, 70)])
@pytest.mark.parametrize("way", ["direct", "conjugate", "factor", "heavy"])
def test_systems_on_chosen_columns(
    kind: str, shape: tuple[int, int], way: str, rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if way != "direct":
        monkeypatch.setattr(systems, "PATIENCE", 10_000 if way == "conjugate" else 0)
        monkeypatch.setattr(systems, "LARGEST", 20 if way == "heavy" else 1000)
        monkeypatch.setattr(systems, "BLOCK", 50)
        for name, value in (("DIRECT", -1), ("FEW", 0), ("STEPS", 10_000), ("SHARE", 1e-26)):
            monkeypatch.setattr(systems, name, value)
    block, plain = curved_rows(rng, kind, *shape)
    chosen = np.sort(rng.permutation(shape[1])[: shape[1] - 3])
    weight = rng.uniform(0.1, 1.0, len(chosen))
    right_side, u = rng.standard_normal(len(chosen)), rng.standard_normal(shape[0])
    part = plain[:, chosen]
    expected = np.linalg.solve(part.T @ part + np.diag(weight), right_side)
    found = block.solve(chosen, weight, right_side)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(block.forward(chosen, right_side), part @ right_side, atol=1e-12)
    np.testing.assert_allclose(block.adjoint(chosen, u), part.T @ u, atol=1e-12)
    np.testing.assert_allclose(block.squares, (plain**2).sum(axis=0), atol=1e-12)


def test_a_step_over_zero_is_cut_where_the_model_is_lowest(rng: np.random.Generator) -> None:
    """What a step leads over zero stops there; the rest goes on farther than to the first zero."""
    columns = 30
    block, _ = curved_rows(rng, "dense", 60, columns)
    x = rng.choice([-1.0, 1.0], columns) * rng.uniform(1e-3, 1.0, columns)
    x[:3] = (1e-6, -1e-6, 1e-6)
    model = Model(block, Coordinates(np.full(columns, 0.1), np.full(columns, 0.3),
                                     20.0 * rng.standard_normal(columns), x))
    before = model.value()
    assert model.newton()
    assert model.value() < before
    place = x + model.d
    assert int((place == 0).sum()) > 1
    assert not (place * np.sign(x) < 0).any()


@pytest.mark.parametrize("data", ["dense", "sparse"])
@pytest.mark.parametrize("loss", ["smoothed_hinge", "huber", "hinge"])
def test_all_features_at_every_step_lead_to_the_same_optimum(data: str, loss: str) -> None:
    problem = make(loss, data, 5)
    scale = problem.primal(np.zeros(problem.d))
    ends = [ProxNewton(moving=moving)(problem, None, 1e-10 * scale) for moving in (True, False)]
    for end in ends:
        assert end.status == "optimal"
        assert reference_point(problem, end.x, end.theta).gap <= 2e-10 * scale
    assert problem.primal(ends[0].x) == pytest.approx(problem.primal(ends[1].x), rel=1e-9)


def test_dense_rows_are_laid_out_once(rng: np.random.Generator) -> None:
    design = Rows(rng.standard_normal((6, 4)), scale=rng.uniform(1, 2, 6))
    made = column_major(design)
    assert made.flags.f_contiguous
    assert column_major(design) is made
    np.testing.assert_array_equal(made, design.dense())
