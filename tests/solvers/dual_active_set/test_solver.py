"""The same optimum as Newton for every loss, whatever the storage, and an honest status."""

from __future__ import annotations

import json

import children
import numpy as np
import pytest
import scipy.sparse as sp
from sparse_problems import KINDS, D, N, make, solved, table, target_of, words

import cvxscreen
from cvxscreen.core.duality import reference_point
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.solvers.dual_active_set import solver as module
from cvxscreen.solvers.dual_active_set.solver import DualActiveSet, suits
from cvxscreen.solvers.dual_active_set.working_set import ScaledRows, WorkingSet
from cvxscreen.solvers.interface import Start, SubproblemSolver
from cvxscreen.solvers.newton import Newton
from cvxscreen.solvers.registry import CROSSOVER, builtin_solver


@pytest.mark.parametrize("C", [0.05, 1.0, 20.0])
@pytest.mark.parametrize("kind", KINDS)
def test_same_optimum_as_newton(kind: str, C: float, rng: np.random.Generator) -> None:
    solved(make(kind, rng, C))


@pytest.mark.parametrize("kind", ["hinge", "eps-insensitive"])
def test_scaled_rows_other_metrics_linear_terms_and_extra_columns(
    kind: str, rng: np.random.Generator
) -> None:
    matrix, sign = words(rng), rng.choice([-1.0, 1.0], N)
    quadratic = Quadratic(10.0 ** rng.uniform(-1, 1, D))
    linear = rng.standard_normal(D)
    solved(make(kind, rng, design=Rows(matrix, sign), quadratic=quadratic, linear=linear))
    design = Rows(matrix, 0.5 * sign, rng.standard_normal((N, 2)))
    solved(make(kind, rng, design=design, quadratic=Quadratic(np.full(D + 2, 2.0)),
                linear=np.zeros(D + 2)))


@pytest.mark.parametrize("size", [1.0, 30.0])
@pytest.mark.parametrize("kind", ["hinge", "squared hinge", "absolute", "smoothed eps-insensitive"])
def test_one_unpenalised_coordinate(kind: str, size: float, rng: np.random.Generator) -> None:
    """The dual point is balanced, whatever the scale of the column, with a linear term on it."""
    sign = rng.choice([-1.0, 1.0], N)
    design = Rows(words(rng), sign, np.full((N, 1), size))
    parts = {"quadratic": Quadratic(np.r_[np.ones(D), 0.0]), "linear": np.r_[np.zeros(D), 0.1]}
    problem = make(kind, rng, design=design, **parts)
    x, theta = solved(problem)
    assert abs(size * (sign @ theta) + 0.1) <= 1e-10 * size
    other = problem.with_(C=1.2)
    warm = DualActiveSet()(other, Start(x, 1.2 * theta), target_of(other, 1e-8))
    assert warm.status == "optimal"
    assert "dual_active_set" not in warm.info


def test_more_coordinates_than_entries(rng: np.random.Generator) -> None:
    """Columns without an entry are left out of a block, also when it grows."""
    matrix = sp.random(60, 50_000, 2e-4, format="csr", random_state=1, dtype=np.float64)
    solved(make("absolute", rng, 5.0, matrix=matrix))


def test_zero_rows_empty_columns_and_duplicates(rng: np.random.Generator) -> None:
    matrix = words(rng).tolil()
    matrix[:7] = 0.0
    matrix[:, 5] = 0.0
    matrix[100:130] = matrix[130:160]
    for kind in ("hinge", "huber"):
        solved(make(kind, rng, matrix=matrix.tocsr()))
    # Equal rows with unequal responses: the face has no minimum, and the boxes must be filled.
    solved(make("absolute", rng, matrix=matrix.tocsr()), alone=False)


def test_stored_zeros_and_single_rows(rng: np.random.Generator) -> None:
    matrix = words(rng)
    matrix.data[::3] = 0.0
    solved(make("hinge", rng, matrix=matrix))
    solved(make("hinge", rng, matrix=words(rng, 1, 200)))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_single_precision_data_are_solved_in_double_precision(
    dtype: type, rng: np.random.Generator
) -> None:
    matrix = words(rng).astype(np.float32)
    matrix.indices, matrix.indptr = matrix.indices.astype(dtype), matrix.indptr.astype(dtype)
    problem = make("hinge", rng, matrix=matrix)
    assert problem.design.matrix.dtype == np.float32
    solved(problem)


def test_arrays_of_the_caller_are_only_read(rng: np.random.Generator) -> None:
    matrix = words(rng)
    problem = make("hinge", rng, matrix=matrix)
    x, theta = solved(problem)
    start = Start(x.copy(), theta.copy())
    for array in (matrix.data, matrix.indices, matrix.indptr, start.x, start.theta):
        array.flags.writeable = False
    before = matrix.copy()
    solved(problem.with_(C=1.5), start)
    assert (before != matrix).nnz == 0
    np.testing.assert_array_equal(start.theta, theta)


def test_a_wrong_start_does_no_harm(rng: np.random.Generator) -> None:
    problem = make("pinball", rng)
    solved(problem, Start(rng.standard_normal(D), 100.0 * rng.standard_normal(N)))


def test_status_is_honest_when_the_work_is_used_up(rng: np.random.Generator) -> None:
    problem = make("hinge", rng, 5.0)
    target = target_of(problem, 1e-9)
    found = DualActiveSet(max_rounds=1, max_steps=1)(problem, None, target)
    assert found.status == "inaccurate"
    assert found.info["gap"] > target
    full = reference_point(problem, found.x, found.theta)
    assert full.gap == pytest.approx(found.info["gap"], rel=1e-6)
    assert DualActiveSet()(problem, None, 0.0).status == "inaccurate"  # no gap is exactly zero here


def test_newton_takes_over_where_it_must(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    dense = make("hinge", rng, design=Rows(words(rng).toarray()))
    assert not suits(dense)
    target = target_of(dense, 1e-9)
    assert DualActiveSet()(dense, None, target).status == "optimal"
    many = make("hinge", rng, 50.0, matrix=sp.csr_matrix(rng.standard_normal((600, 20))))
    monkeypatch.setattr(module, "PATIENCE", 1)
    found = DualActiveSet(max_rounds=6)(many, None, target_of(many, 1e-9))
    assert found.status == "optimal"
    assert "dual_active_set" in found.info


def test_side_constraints_are_refused(rng: np.random.Generator) -> None:
    problem = make("hinge", rng)
    side = cvxscreen.core.cones.SideConstraints(np.eye(D), np.zeros(D), (("nonneg", D),))
    constrained = Problem(problem.design, problem.losses, problem.quadratic, problem.linear,
                          side=side)
    with pytest.raises(InvalidInput, match="side constraints"):
        DualActiveSet()(constrained)


def test_the_choice_goes_by_storage_size_and_metric(rng: np.random.Generator) -> None:
    solver: SubproblemSolver = builtin_solver(make("hinge", rng))
    assert isinstance(solver, DualActiveSet)
    one = Quadratic(np.r_[0.0, np.ones(D - 1)])
    assert isinstance(builtin_solver(make("hinge", rng, quadratic=one)), DualActiveSet)
    few = words(rng, 50, CROSSOVER - 1)
    dense = Rows(words(rng).toarray())
    two = Quadratic(np.r_[0.0, 0.0, np.ones(D - 2)])
    matrix = Quadratic(np.ones(D), np.eye(D))
    for other in (make("hinge", rng, matrix=few), make("hinge", rng, design=dense),
                  make("hinge", rng, quadratic=two), make("hinge", rng, quadratic=matrix)):
        assert isinstance(builtin_solver(other), Newton)


def test_the_block_splits_and_multiplies_as_the_rows_do(rng: np.random.Generator) -> None:
    matrix, factor, root = words(rng), rng.uniform(0.5, 2.0, N), rng.uniform(0.5, 2.0, D)
    source = ScaledRows.of(Rows(matrix, factor), root)
    losses = table("huber", N, rng)
    block = WorkingSet(source, np.arange(0, 40), np.arange(40, 90), losses, 16)
    block = block.extended(np.arange(120, 150), losses)
    plain = factor[:, None] * matrix.toarray() * root
    x, v = rng.standard_normal(len(block.rows)), rng.standard_normal(D)
    assert sorted(block.rows) == [*range(90), *range(120, 150)]
    np.testing.assert_allclose(block.forward(v[block.columns]), plain[block.rows] @ v)
    np.testing.assert_allclose(block.adjoint(x), (plain[block.rows].T @ x)[block.columns])
    np.testing.assert_allclose(block.terms.square, (plain[block.rows] ** 2).sum(axis=1))
    np.testing.assert_allclose(source.forward(v), plain @ v)
    part = np.arange(5, 60)
    block.cholesky(np.arange(30))
    heavy = plain[np.ix_(block.rows[part], block.columns[: block.k])]
    gram = np.eye(block.k) + heavy.T @ (block.weight[part, None] * heavy)
    factor = block.cholesky(part)
    np.testing.assert_allclose(factor @ factor.T, gram, atol=1e-12)


PROBE = """
import json, sys
import numpy as np, scipy.sparse as sp
import cvxscreen
from cvxscreen.solvers.dual_active_set.solver import DualActiveSet
X = sp.random(40, 60, 0.2, format="csr", random_state=3, dtype=float)
y = np.where(np.arange(40) % 2 == 0, 1.0, -1.0)
problem = cvxscreen.svm(X, y, C=3.0)
found = DualActiveSet()(problem, None, 1e-10)
print(json.dumps([found.status, "dual_active_set" in found.info, found.x.tolist()]))
"""


def test_interpreted_loops_give_the_same_result() -> None:
    answers = []
    for disabled in ("0", "1"):
        done = children.run(PROBE, NUMBA_DISABLE_JIT=disabled, PYTHONWARNINGS="error")
        assert done.returncode == 0, done.stderr
        answers.append(json.loads(done.stdout))
    for status, helped, _ in answers:
        assert (status, helped) == ("optimal", False)
    np.testing.assert_allclose(answers[0][2], answers[1][2], atol=1e-5)
