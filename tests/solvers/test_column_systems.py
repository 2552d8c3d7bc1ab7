"""Linear systems and steps of the proximal Newton solver: every way gives the same answer."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sparse_cases import make

from cvxscreen.core.duality import reference_point
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows, column_major
from cvxscreen.models.linear import sparse_svm, sparse_svr
from cvxscreen.solvers import column_systems as systems
from cvxscreen.solvers.column_systems import (
    CurvedRows,
    Factor,
    FactorCache,
    NamedFactors,
    System,
    conjugate_gradients,
    share_factors,
)
from cvxscreen.solvers.lambda_max import lambda_max
from cvxscreen.solvers.loop import solve_screened
from cvxscreen.solvers.prox_newton import Coordinates, ProxNewton, QuadraticModel
from cvxscreen.solvers.solution import warm_start


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


@pytest.mark.table
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
    model = QuadraticModel(block, Coordinates(np.full(columns, 0.1), np.full(columns, 0.3),
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


# -- Conjugate gradients with a kept factor: the answer is that of the system, whatever the
# factor.


def times_gram(matrix: np.ndarray):
    """The `gram` of a dense matrix."""
    def gram(some: np.ndarray, scale: np.ndarray) -> np.ndarray:
        part = matrix[:, some] * scale
        return (part.T @ part).astype(np.float32)
    return gram


def system_of(matrix: np.ndarray, weight: np.ndarray, right_side: np.ndarray) -> System:
    return System(lambda v: matrix.T @ (matrix @ v) + weight * v,
                  (matrix**2).sum(axis=0) + weight, right_side)


def plain_residual(system: System, x: np.ndarray) -> float:
    """The squared residual as a share of the first, in the metric of the diagonal."""
    left = system.right_side - system.product(x)
    first = system.right_side
    return float(left @ (left / system.curvature) / (first @ (first / system.curvature)))


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A factor at the first occasion."""
    monkeypatch.setattr(systems, "PATIENCE", 0)


@pytest.mark.parametrize("largest", [25, 1000])
def test_a_badly_conditioned_system_with_equal_columns(
    largest: int, hurry: None, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systems, "LARGEST", largest)
    matrix = rng.standard_normal((60, 40)) * 10.0 ** rng.uniform(-6, 6, 40)
    matrix[:, 20:30] = matrix[:, :10]
    weight = 1e-7 * (matrix**2).sum(axis=0)
    system = system_of(matrix, weight, matrix.T @ rng.standard_normal(60))
    factors = NamedFactors(FactorCache(), np.arange(40))
    x = conjugate_gradients(system, factors, times_gram(matrix), 5000, 1e-20)
    assert factors.cache.factor is not None
    assert len(factors.cache.factor.columns) == min(largest, 40)
    assert plain_residual(system, x) < 1e-18
    root = np.sqrt(system.curvature)
    scaled = (matrix.T @ matrix + np.diag(weight)) / root[:, None] / root
    expected = np.linalg.solve(scaled, system.right_side / root) / root
    # In the norm of the system, which is what the steps of a model are judged by.
    off = x - expected
    assert off @ system.product(off) < 1e-8 * (expected @ system.product(expected))


def test_a_factor_of_the_system_itself_takes_a_few_steps(
    hurry: None, rng: np.random.Generator
) -> None:
    matrix = rng.standard_normal((80, 60)) * 10.0 ** rng.uniform(-2, 2, 60)
    weight = 1e-4 * (matrix**2).sum(axis=0)
    factors = NamedFactors(FactorCache(), np.arange(60))
    system = system_of(matrix, weight, rng.standard_normal(60))
    for _ in range(2):
        x = conjugate_gradients(system, factors, times_gram(matrix), 1000, 1e-16)
        assert plain_residual(system, x) < 1e-15
    assert factors.cache.usual_steps < 10


def test_names_of_columns_survive_reductions_and_orders(rng: np.random.Generator) -> None:
    """What a factor says about a part of its columns is that part of the inverse."""
    problem = make("huber", "sparse", 3)
    first, second = np.sort(rng.permutation(40)[:30]), np.sort(rng.permutation(30)[:20])
    middle = problem.design.take_columns(first)
    last = middle.take_columns(second)
    share_factors(problem.design, middle, first)
    share_factors(middle, last, second)
    factors = NamedFactors.of(last)
    assert factors.cache is NamedFactors.of(problem.design).cache
    np.testing.assert_array_equal(factors.columns, first[second])

    matrix = rng.standard_normal((90, 40))
    curvature = (matrix**2).sum(axis=0) + 5.0
    gram = matrix.T @ matrix + 5.0 * np.eye(40)
    factors.cache.renew(np.arange(40), curvature, times_gram(matrix))
    right_side = rng.standard_normal(20)
    inverse = np.linalg.inv(gram)[np.ix_(factors.columns, factors.columns)]
    found = factors.cache.preconditioner(factors.columns, curvature[factors.columns])(right_side)
    np.testing.assert_allclose(found, inverse @ right_side, rtol=1e-3, atol=1e-5)


def test_a_column_without_a_factor_is_divided_by_its_curvature(rng: np.random.Generator) -> None:
    matrix = rng.standard_normal((50, 12))
    curvature = (matrix**2).sum(axis=0)
    cache = FactorCache()
    cache.renew(np.arange(12), curvature, times_gram(matrix))
    names, here = np.array([3, 7, 90, 95]), np.array([curvature[3], curvature[7], 4.0, 5.0])
    found = cache.preconditioner(names, here)(np.array([0.0, 0.0, 8.0, 10.0]))
    np.testing.assert_allclose(found, [0.0, 0.0, 2.0, 2.0], atol=1e-12)


def misleading(columns: int) -> FactorCache:
    """A factor that takes the second half of the columns for very heavy ones."""
    heavy = np.where(np.arange(columns) < columns // 2, 1.0, 1e4)
    upper = np.asfortranarray(np.diag(heavy).astype(np.float32))
    return FactorCache(Factor(np.arange(columns), upper))


def test_a_misleading_factor_is_not_trusted(rng: np.random.Generator) -> None:
    """In its own metric next to nothing is left, when half of the system is not solved at all."""
    half = 30
    matrix = np.diag(rng.uniform(0.9, 1.1, 2 * half))
    right_side = np.concatenate([0.01 * rng.standard_normal(half), rng.standard_normal(half)])
    system = system_of(matrix, np.full(2 * half, 0.1), right_side)
    cache = misleading(2 * half)
    factors = NamedFactors(cache, np.arange(2 * half))
    x = conjugate_gradients(system, factors, times_gram(matrix), 500, 1e-2)
    assert plain_residual(system, x) <= 1.01e-2


def test_a_factor_of_other_data_is_replaced_and_does_no_harm(rng: np.random.Generator) -> None:
    matrix, other = rng.standard_normal((300, 200)), rng.standard_normal((250, 200))
    weight = 1e-4 * (matrix**2).sum(axis=0)
    factors = NamedFactors(FactorCache(), np.arange(200))
    factors.cache.renew(np.arange(200), (other**2).sum(axis=0) + 1.0, times_gram(other))
    before = factors.cache.factor
    system = system_of(matrix, weight, rng.standard_normal(200))
    x = conjugate_gradients(system, factors, times_gram(matrix), 1000, 1e-16)
    assert factors.cache.factor is not before
    expected = np.linalg.solve(matrix.T @ matrix + np.diag(weight), system.right_side)
    np.testing.assert_allclose(x, expected, rtol=1e-5, atol=1e-9)


def test_without_a_factor_the_diagonal_serves(
    hurry: None, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Cholesky breaks down with every ridge."""
    monkeypatch.setattr(systems, "RIDGES", (-2.0,))
    matrix = rng.standard_normal((90, 40))
    factors = NamedFactors(FactorCache(), np.arange(40))
    system = system_of(matrix, np.full(40, 1.0), rng.standard_normal(40))
    x = conjugate_gradients(system, factors, times_gram(matrix), 1000, 1e-20)
    assert factors.cache.factor is None
    assert plain_residual(system, x) < 1e-18


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_the_range_of_single_precision_is_no_limit(
    scale: float, hurry: None, rng: np.random.Generator
) -> None:
    """Squares of the data, and the residuals, lie beyond what single precision can hold."""
    whole = scale * rng.standard_normal((60, 30)) * (rng.random((60, 30)) < 0.3)
    every = np.arange(30)
    block = CurvedRows.of(sp.csc_matrix(whole), every, np.arange(60), np.ones(60),
                          NamedFactors(FactorCache(), every))
    weight = np.full(30, scale**2)
    system = system_of(whole, weight, scale * rng.standard_normal(30))
    x = conjugate_gradients(system, block.factors, block._single_gram, 500, 1e-20)  # type: ignore[arg-type]
    assert block.factors is not None
    assert block.factors.cache.factor is not None
    assert plain_residual(system, x) < 1e-18


@pytest.mark.parametrize("mode", ["certified", "safe"])
@pytest.mark.parametrize("kind", ["huber", "smoothed_hinge", "squared_hinge alone"])
def test_a_path_by_factors_ends_where_a_direct_one_does(
    mode: str, kind: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = sp.random(220, 150, 0.1, format="csr", random_state=rng)
    t = X @ rng.standard_normal(150) + 0.3 * rng.standard_normal(220)
    y = np.where(t > 0, 1.0, -1.0)

    def base() -> Problem:
        if kind == "huber":
            return sparse_svr(X, t, 1.0, loss="huber", delta=0.5)
        alone = {"l2": 0.0} if "alone" in kind else {}
        return sparse_svm(X, y, 1.0, loss=kind.split()[0], **alone)  # type: ignore[return-value]

    # An L1 norm alone asks for more than loosely solved systems give, in reach of a smaller gap.
    tol = 1e-6 if "alone" in kind else 1e-9

    def path(problem: Problem) -> list[float]:
        values, before = [], None
        for lam in lambda_max(problem) * np.geomspace(0.5, 1e-3, 6):
            here = problem.with_(lam=float(lam))
            start = None if before is None else warm_start(here, before)
            before = solve_screened(here, tol=tol, start=start, mode=mode)
            assert before.status == "optimal"
            values.append(before.value)
        return values

    direct = path(base())
    for name, value in (("DIRECT", -1), ("FEW", 0)):
        monkeypatch.setattr(systems, name, value)
    for name, value in (("PATIENCE", 2), ("LARGEST", 30)):
        monkeypatch.setattr(systems, name, value)
    by_factors = base()
    assert path(by_factors) == pytest.approx(direct, rel=3.0 * tol)
    kept = NamedFactors.of(by_factors.design).cache.factor
    assert kept is not None
    assert len(kept.columns) <= 30
    assert kept.columns.max() < 150
