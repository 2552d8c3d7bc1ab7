"""The problem class: quadratic terms, their norms and floors, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import NOTHING, Problem, Quadratic, relative_gap
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.screening.reduction import Selection

RNG = np.random.default_rng(5)
B = RNG.standard_normal((3, 5))
PSD = B.T @ B
DIAGONAL = np.array([1.0, 2.0, 0.5, 4.0, 0.25])


@pytest.mark.parametrize("matrix", [None, PSD])
def test_apply_solve_and_norm_agree_with_the_dense_matrix(matrix: np.ndarray | None) -> None:
    """All operations of the quadratic term against numpy."""
    quadratic = Quadratic(DIAGONAL, matrix)
    M = np.diag(DIAGONAL) + (0.0 if matrix is None else matrix)
    x = RNG.standard_normal(5)
    np.testing.assert_allclose(quadratic.dense(), M, rtol=1e-14)
    np.testing.assert_allclose(quadratic.apply(x), M @ x, rtol=1e-12)
    np.testing.assert_allclose(quadratic.solve(M @ x), x, rtol=1e-10)
    assert quadratic.norm(x) == pytest.approx(np.sqrt(x @ M @ x))
    A = Rows(RNG.standard_normal((6, 5)))
    expected = np.sqrt(np.einsum("ij,jk,ik->i", A.dense(), np.linalg.inv(M), A.dense()))
    np.testing.assert_allclose(quadratic.dual_norms(A), expected, rtol=1e-10)
    lowest = float(np.linalg.eigvalsh(M).min())
    assert 0 < quadratic.floor <= lowest
    assert quadratic.floor >= lowest * (1 - 1e-9) or quadratic.floor >= DIAGONAL.min() - 1e-9
    assert not quadratic.free.any()


def test_unpenalised_coordinates_are_left_out() -> None:
    """Zero rows are free: `solve` gives 0 there, norms ignore them."""
    quadratic = Quadratic([1.0, 0.0, 4.0])
    np.testing.assert_array_equal(quadratic.free, [False, True, False])
    np.testing.assert_array_equal(quadratic.solve([1.0, 7.0, 4.0]), [1.0, 0.0, 1.0])
    np.testing.assert_allclose(quadratic.dual_norms(Rows([[3.0, 99.0, 8.0]])), [5.0])
    matrix = np.zeros((3, 3))
    matrix[2, 2] = 1.0
    mixed = Quadratic([1.0, 0.0, 0.0], matrix)
    np.testing.assert_array_equal(mixed.free, [False, True, False])
    assert mixed.floor == pytest.approx(1.0)


def test_an_indefinite_quadratic_term_is_refused() -> None:
    """Also when every diagonal entry is positive."""
    for matrix in ([[0.0, 5.0], [5.0, 0.0]], [[-3.0, 0.0], [0.0, 0.0]]):
        with pytest.raises(InvalidInput, match="definite"):
            Quadratic([1.0, 1.0], matrix)


def test_the_floor_does_not_trust_the_diagonal() -> None:
    """A matrix with a negative eigenvalue is refused, or its floor is the sum's."""
    for matrix in ([[0.0, 0.5], [0.5, 0.0]], [[-0.5, 0.0], [0.0, 0.0]]):
        try:
            quadratic = Quadratic([1.0, 1.0], matrix)
        except InvalidInput:
            continue
        assert 0 < quadratic.floor <= 0.5


def test_the_floor_is_below_every_eigenvalue() -> None:
    """For any matrix that is accepted, badly conditioned ones included."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        C = rng.standard_normal((4, 4)) * 10.0 ** rng.uniform(-3, 3, (4, 1))
        diagonal = 10.0 ** rng.uniform(-2, 2, 4)
        quadratic = Quadratic(diagonal, C.T @ C)
        values = np.linalg.eigvalsh(quadratic.dense())
        assert quadratic.floor <= values.min() + 1e-14 * values.max()
        assert quadratic.floor > 0


@pytest.mark.parametrize(
    "bad",
    [
        ([1.0, -1.0], None), ([1.0, np.nan], None), ([1.0, np.inf], None), ([[1.0, 1.0]], None),
        ([1.0, 1.0], np.eye(3)), ([1.0, 1.0], [[np.nan, 0.0], [0.0, 1.0]]),
    ],
)
def test_bad_quadratic_terms_are_refused(bad: tuple[object, object]) -> None:
    """Negative, NaN, infinite entries and shapes that do not fit."""
    with pytest.raises(InvalidInput, match=r"`diagonal`|`matrix`"):
        Quadratic(*bad)  # type: ignore[arg-type]


def parts() -> dict[str, object]:
    return {
        "design": Rows(RNG.standard_normal((4, 3))),
        "losses": Losses(np.ones(4), 0.0, 0.0, -1.0, 0.0),
        "quadratic": Quadratic(np.ones(3)),
        "linear": np.zeros(3),
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("losses", Losses(np.ones(5), 0.0, 0.0, -1.0, 0.0)),
        ("linear", np.zeros(4)),
        ("linear", np.array([0.0, np.nan, 0.0])),
        ("quadratic", Quadratic(np.ones(4))),
        ("constant", np.inf),
        ("side", SideConstraints(np.eye(2), np.zeros(2), [("nonneg", 2)])),
    ],
)
def test_parts_that_do_not_fit_are_named(name: str, value: object) -> None:
    """Each part is checked against the design."""
    with pytest.raises(InvalidInput, match=f"`{name}`"):
        Problem(**{**parts(), name: value})  # type: ignore[arg-type]


def test_the_linear_term_is_copied() -> None:
    """Changing the caller's array afterwards changes nothing."""
    linear = np.zeros(3)
    problem = Problem(**{**parts(), "linear": linear})  # type: ignore[arg-type]
    linear[:] = 5.0
    assert not problem.linear.any()


def test_constant_and_linear_terms_enter_the_objective() -> None:
    """The objective is what the module's first line says."""
    made = {**parts(), "linear": np.array([1.0, -1.0, 0.5]), "constant": 2.5}
    problem = Problem(**made)  # type: ignore[arg-type]
    x = np.array([0.1, 0.2, 0.3])
    t = problem.design.forward(x)
    expected = np.maximum(1 - t, 0).sum() + 0.5 * x @ x + x @ problem.linear + 2.5
    assert problem.primal(x) == pytest.approx(expected, rel=1e-14)
    assert problem.primal(x, t) == pytest.approx(expected, rel=1e-14)


def test_changing_C_of_a_reduced_problem_is_refused() -> None:
    """Slopes already moved into the linear term would not be scaled: say so."""
    problem = Problem(**parts())  # type: ignore[arg-type]
    reduced = Selection(np.array([0, -1, -1, 2], dtype=np.int8)).reduce(problem)
    with pytest.raises(InvalidInput, match=r"`C`|reduced"):
        reduced.with_(C=2.0)


def test_problems_print_their_sizes() -> None:
    """Terms, coordinates, storage and C, whatever the parts."""
    text = str(Problem(**parts()))  # type: ignore[arg-type]
    for word in ("terms", "coordinates", "dense"):
        assert word in text


def test_a_relative_gap_is_in_units_of_the_larger_bound() -> None:
    """Below the smallest value of all a gap is in units of that, and without end it proves none."""
    assert relative_gap(0.5, 2.0) == 0.25
    assert relative_gap(0.5, -2.0) == 0.2
    assert relative_gap(3.0, 1.0) == 1.5
    assert relative_gap(1e-3 * NOTHING, 0.0) == pytest.approx(1e-3)
    np.testing.assert_array_equal(
        relative_gap([0.0, 1.0, np.inf, np.nan, np.inf], [0.0, 0.0, 1.0, 1.0, np.inf]),
        [0.0, 1.0, np.inf, np.inf, np.inf],
    )
