"""The same optimum as Newton for every loss, whatever the storage, and an honest status."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import children
import numpy as np
import pytest
import scipy.sparse as sp
from sparse_problems import KINDS, D, N, make, solved, table, target_of, words

import cvxscreen
from cvxscreen._support import compiled as compiled_support
from cvxscreen._support.compiled import CompileClock
from cvxscreen.certificates.certificate import Passes, certify
from cvxscreen.core.closed_form import c_min
from cvxscreen.core.duality import reference_point
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.solvers import dual_active_set as module, dual_coordinate_descent
from cvxscreen.solvers.dual_active_set import (
    FARTHEST,
    DualActiveSet,
    DualIterate,
    PathCache,
    SavedIterate,
    suits,
)
from cvxscreen.solvers.interface import Start, SubproblemSolver
from cvxscreen.solvers.newton import Newton, _NewtonIterate
from cvxscreen.solvers.registry import CROSSOVER, builtin_solver
from cvxscreen.solvers.solution import Answer, warm_start
from cvxscreen.solvers.working_set import ScaledRows, WorkingSet


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


def test_the_central_path_takes_over_where_it_would_have_been_quicker(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From nothing: what is known by then leads Newton's method astray."""
    problem = make("absolute", rng, 5.0, matrix=sp.random(300, 200, 0.2, "csr", random_state=0))
    target = target_of(problem, 1e-9)
    followed = Mock(wraps=_NewtonIterate.follow_central_path)
    monkeypatch.setattr(
        _NewtonIterate, "follow_central_path", lambda state, limits: followed(state, limits)
    )
    monkeypatch.setattr(module, "SIDE", 1)
    assert "dual_active_set" not in DualActiveSet()(problem, None, target).info
    assert not followed.called
    monkeypatch.setattr(module, "FACTORS", 0.0)
    found = DualActiveSet()(problem, None, target)
    assert found.status == "optimal"
    assert found.info["dual_active_set"]["rounds"] == 0
    assert followed.called
    assert module.passes_for_path(make("hinge", rng)) == np.inf  # slopes of one sign have no path


def test_small_problems_do_not_wait_for_a_compiler(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Newton's method answers, and its time is counted; what is large is compiled for."""
    problem = make("hinge", rng)
    clock = CompileClock(np.inf, SimpleNamespace(signatures=()))
    for loops in (module, dual_coordinate_descent):
        monkeypatch.setattr(loops, "CLOCK", clock)
    monkeypatch.setattr(compiled_support, "on_disk", lambda loop: False)
    monkeypatch.setattr(dual_coordinate_descent, "before_loading", lambda problem: False)
    with monkeypatch.context() as patch:
        patch.setattr(module, "_Run", None)
        found = DualActiveSet()(problem, target=target_of(problem, 1e-6))
    assert found.status == "optimal"
    assert clock.spent > 0.0
    assert not dual_coordinate_descent.ready(problem)
    for loops in (module, dual_coordinate_descent):
        monkeypatch.setattr(loops, "SIDE", min(problem.n, problem.d) - 1)
    assert module.ready(problem)
    assert dual_coordinate_descent.ready(problem, Newton())
    assert not dual_coordinate_descent.ready(problem, DualActiveSet())  # one call compiles one
    clock.price = 0.0
    assert dual_coordinate_descent.ready(problem, DualActiveSet())


@pytest.mark.parametrize("storage", [sp.csr_matrix, np.asarray])
@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
def test_smooth_losses_of_sparse_rows_do_not_wait_for_what_is_loaded(
    loss: str, storage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others do, as does everything before coordinate descent has been used."""
    A = np.eye(60, 6, k=-1) + np.eye(60, 6)
    problem = cvxscreen.svm(storage(A), np.where(np.arange(60) % 2, 1.0, -1.0), loss=loss)
    descend = dual_coordinate_descent.descend
    monkeypatch.setattr(dual_coordinate_descent, "before_loading", lambda problem: True)
    monkeypatch.setattr(dual_coordinate_descent, "charge", lambda problem, times: None)
    monkeypatch.setattr(dual_coordinate_descent, "CLOCK", SimpleNamespace(bought=True))
    for loaded in (False, True):
        stand_in = SimpleNamespace(loaded=loaded, signatures=descend.signatures)
        monkeypatch.setattr(dual_coordinate_descent, "descend", stand_in)
        ready = dual_coordinate_descent.ready(problem, Newton())
        assert ready is (loaded and loss == "squared_hinge" and problem.design.sparse)


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


def test_newton_is_chosen_where_its_systems_are_cheap() -> None:
    """Many rows a coordinate, and losses that are all smooth."""
    X = sp.random_array((1600, 160), density=0.05, rng=np.random.default_rng(0), format="csr")
    y = np.resize([1.0, -1.0], 1600)
    hinge, smooth = (cvxscreen.svm(X, y, loss=loss) for loss in ("hinge", "squared_hinge"))
    assert isinstance(builtin_solver(hinge), DualActiveSet)
    assert isinstance(builtin_solver(smooth), Newton)
    few = cvxscreen.svm(X[:400], y[:400], loss="squared_hinge")
    assert isinstance(builtin_solver(few), DualActiveSet)
    budget = dual_coordinate_descent.budget
    assert budget(hinge, DualActiveSet()) > budget(smooth, Newton())
    assert budget(few, DualActiveSet()) == budget(smooth, Newton())


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
import numpy as np, scipy.sparse as sp
import cvxscreen
from cvxscreen.solvers.dual_active_set import DualActiveSet
X = sp.random(40, 60, 0.2, format="csr", random_state=3, dtype=float)
y = np.where(np.arange(40) % 2 == 0, 1.0, -1.0)
problem = cvxscreen.svm(X, y, C=3.0)
found = DualActiveSet()(problem, None, 1e-10)
answer = [found.status, "dual_active_set" in found.info, found.x.tolist()]
"""


def test_interpreted_loops_give_the_same_result() -> None:
    here: dict[str, Any] = {}
    exec(PROBE, here)
    tell = "\nimport json\nprint(json.dumps(answer))"
    done = children.run(PROBE + tell, NUMBA_DISABLE_JIT="1", PYTHONWARNINGS="error")
    assert done.returncode == 0, done.stderr
    answers = [here["answer"], json.loads(done.stdout)]
    for status, helped, _ in answers:
        assert (status, helped) == ("optimal", False)
    np.testing.assert_allclose(answers[0][2], answers[1][2], atol=1e-5)


# -- Where `DualActiveSet` begins without a start: the slopes at x = 0, unless a share of them is
# better.


BEGUN_KINDS = ("hinge", "absolute", "smoothed hinge")


def begun(problem: Problem) -> DualIterate:
    return DualIterate(problem, problem.design, None, 0.0, PathCache())  # type: ignore[arg-type]


def dual(problem: Problem, theta: np.ndarray) -> float:
    """The dual objective, written out."""
    f, pull = problem.losses, problem.design.adjoint(theta) + problem.linear
    conjugate = f.b * theta + f.e * np.abs(theta) + 0.5 * f.q * theta**2
    return -float(conjugate.sum()) - 0.5 * float(pull**2 @ (1.0 / problem.quadratic.diagonal))


@pytest.mark.parametrize("kind", BEGUN_KINDS)
def test_where_a_closed_form_is_known_nothing_is_left_to_do(
    kind: str, rng: np.random.Generator
) -> None:
    """Below ``C_min`` the solution is there before the first round; not so at 30 times that."""
    problem = make(kind, rng)
    if kind == "smoothed hinge":
        problem = problem.with_(C=1e-3)  # slopes at the end of the box
    least = c_min(problem).C
    low, high = (problem.with_(C=share * least) for share in (0.9, 30.0))
    target = 1e-9 * low.primal(np.zeros(low.d))
    found = DualActiveSet()(low, None, target)
    assert found.info["rounds"] == 0
    assert found.info["gap"] <= target
    assert DualActiveSet()(high, None, 1e-9 * high.primal(np.zeros(high.d))).info["rounds"] > 0


@pytest.mark.parametrize("C", [0.01, 0.1, 1.0, 10.0, 100.0])
@pytest.mark.parametrize("kind", BEGUN_KINDS)
def test_the_better_of_two_points(kind: str, C: float, rng: np.random.Generator) -> None:
    """All slopes where no share of them has a larger dual objective, else none."""
    problem = make(kind, rng, C)
    slopes, theta = problem.losses.slope(np.zeros(problem.n)), begun(problem).theta
    best = max(dual(problem, s * slopes) for s in np.linspace(0.0, 0.999, 40))
    whole = dual(problem, slopes) > best
    np.testing.assert_array_equal(theta, slopes if whole else 0.0)


# -- What `DualActiveSet` keeps between values of C changes the work, never the answer.


GRID = np.geomspace(0.05, 5.0, 12)


def along(problem: Problem, cache: PathCache | None) -> list[np.ndarray]:
    """The solutions at `GRID`, each certified."""
    found, start, before = [], None, 1.0
    for value in GRID:
        here = problem.with_(C=float(value))
        if start is not None:
            start = Start(start.x, value / before * start.theta)
        target = target_of(here, 1e-10)
        result = DualActiveSet(path_cache=cache)(here, start, target)
        assert result.status == "optimal"
        assert "dual_active_set" not in result.info
        assert certify(here, result.x, result.theta, tol=1e-9).ok
        found.append(result.x)
        start, before = Start(result.x, result.theta), value
    return found


@pytest.mark.parametrize("kind", ["hinge", "smoothed hinge", "eps-insensitive", "huber"])
def test_the_same_path_with_and_without_a_cache(kind: str, rng: np.random.Generator) -> None:
    problem = make(kind, rng)
    for kept, fresh in zip(along(problem, PathCache()), along(problem, None), strict=True):
        np.testing.assert_allclose(kept, fresh, atol=1e-4 * np.abs(fresh).max())


def test_with_an_unpenalised_coordinate(rng: np.random.Generator) -> None:
    design = Rows(words(rng), rng.choice([-1.0, 1.0], N), np.ones((N, 1)))
    parts = {"quadratic": Quadratic(np.r_[np.ones(D), 0.0]), "linear": np.zeros(D + 1)}
    along(make("hinge", rng, design=design, **parts), PathCache())


def test_what_is_remembered_belongs_together(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Margins are those of the x beside them, also after the last step of the proximal centre."""
    remember, seen = DualIterate.remember, []

    def checked(self: DualIterate) -> None:
        remember(self)
        x = (self.v + self.correction) * self.root
        np.testing.assert_allclose(self.t, self.problem.design.forward(x), atol=1e-9)
        seen.append(self.centre)

    monkeypatch.setattr(DualIterate, "remember", checked)
    design = Rows(words(rng), rng.choice([-1.0, 1.0], N), np.ones((N, 1)))
    parts = {"quadratic": Quadratic(np.r_[np.ones(D), 0.0]), "linear": np.zeros(D + 1)}
    along(make("hinge", rng, design=design, **parts), PathCache())
    assert any(centre.any() for centre in seen)


def test_a_cache_of_other_rows_or_another_metric_is_forgotten(rng: np.random.Generator) -> None:
    cache, first = PathCache(), make("hinge", rng)
    along(first, cache)
    along(make("hinge", rng), cache)
    along(make("hinge", rng, design=first.design, quadratic=Quadratic(np.full(D, 3.0))), cache)


def test_a_block_made_from_another_is_what_it_would_be_afresh(rng: np.random.Generator) -> None:
    source = ScaledRows.of(Rows(words(rng)), np.ones(D))
    losses = table("hinge", N, rng)
    before = WorkingSet(source, np.arange(10, 60), np.arange(100, 130), losses, 16)
    before.cholesky(np.arange(40))
    urgent, near = np.arange(30, 80), np.arange(110, 150)
    fresh = WorkingSet(source, urgent, near, losses, 16)
    block = WorkingSet(source, urgent, near, losses, 16, before)
    assert block.k == before.k
    np.testing.assert_array_equal(np.sort(block.rows), np.sort(fresh.rows))
    v = rng.standard_normal(D)
    order, other = np.argsort(block.rows), np.argsort(fresh.rows)
    np.testing.assert_allclose(
        block.forward(v[block.columns])[order], fresh.forward(v[fresh.columns])[other]
    )
    np.testing.assert_allclose(block.terms.square[order], fresh.terms.square[other])
    # The matrix of the heavy columns has lost the rows that are gone, and got the new ones.
    rows = np.arange(5, 70)
    heavy = np.array([
        np.bincount(block.heavy[2][a:b].astype(int), block.heavy[3][a:b], block.k)
        for a, b in zip(block.heavy[0][rows].astype(int), block.heavy[1][rows].astype(int),
                        strict=True)
    ])
    gram = np.eye(block.k) + heavy.T @ (block.weight[rows, None] * heavy)
    factor = block.cholesky(rows)
    np.testing.assert_allclose(factor @ factor.T, gram, atol=1e-12)


def test_a_block_used_again_takes_the_new_losses(rng: np.random.Generator) -> None:
    source = ScaledRows.of(Rows(words(rng)), np.ones(D))
    losses = table("smoothed hinge", N, rng)
    block = WorkingSet(source, np.arange(50), np.arange(90, 120), losses, 16)
    block.cholesky(np.arange(40))
    block.renew(losses.scaled(0.2))
    fresh = WorkingSet(source, np.arange(50), np.arange(90, 120), losses.scaled(0.2), 16)
    np.testing.assert_array_equal(block.losses.hi, fresh.losses.hi)
    np.testing.assert_array_equal(block.weight, fresh.weight)
    rows = np.arange(30)
    np.testing.assert_allclose(block.cholesky(rows), fresh.cholesky(rows), atol=1e-12)


def test_a_light_start_says_what_an_evaluated_one_says(rng: np.random.Generator) -> None:
    X, y = words(rng), rng.choice([-1.0, 1.0], N)
    first = cvxscreen.solve(cvxscreen.svm(X, y, C=0.9), tol=1e-8)
    before = cvxscreen.solve(first.problem.with_(C=1.0), tol=1e-8, start=first)
    for value in (0.6, 1.7):
        here = before.problem.with_(C=value)
        light, known = warm_start(here, before, True), warm_start(here, before)
        assert light.point is None
        assert light.passes is not None
        assert light.size is not None
        np.testing.assert_allclose(light.theta, known.theta, rtol=1e-14)
        np.testing.assert_allclose(light.passes[1], here.design.adjoint(light.theta), atol=1e-12)
        x_theta = -here.quadratic.solve(light.passes[1])
        np.testing.assert_allclose(light.passes[0], here.design.forward(x_theta), atol=1e-7)
        best = cvxscreen.solve(here, tol=1e-8).value
        assert 0.5 * best <= light.size <= best * (1.0 + 1e-7)
        assert warm_start(here, before, False).point is not None


def test_no_light_start_where_margins_do_not_scale(rng: np.random.Generator) -> None:
    X, y = words(rng), rng.choice([-1.0, 1.0], N)
    free = cvxscreen.solve(cvxscreen.svm(X, y, intercept=True))
    assert warm_start(free.problem.with_(C=2.0), free, True).passes is None
    tilted = make("hinge", rng, linear=rng.standard_normal(D))
    found = cvxscreen.solve(tilted)
    assert warm_start(tilted.with_(C=2.0), found, True).passes is None
    other = cvxscreen.solve(cvxscreen.svm(words(rng), y))
    start = warm_start(cvxscreen.svm(X, y, C=2.0), other, True)
    assert start.passes is None


def test_the_certificate_gives_its_passes_and_takes_none(rng: np.random.Generator) -> None:
    problem = make("hinge", rng)
    found = DualActiveSet()(problem, None, target_of(problem, 1e-8))
    passes = Passes(np.full(N, 7.0), np.full(D, 7.0))
    proof = certify(problem, found.x, found.theta, passes=passes)
    assert proof == certify(problem, found.x, found.theta)
    np.testing.assert_allclose(passes.margins, problem.design.forward(found.x), atol=1e-12)
    np.testing.assert_array_equal(passes.At_theta, problem.design.adjoint(found.theta))


def test_a_point_from_known_products_is_the_point(rng: np.random.Generator) -> None:
    """Products of slopes that had to be changed are not taken over."""
    problem = make("hinge", rng)
    x, theta = rng.standard_normal(D), problem.losses.lo * rng.uniform(0.0, 1.0, N)
    answer = Answer.of(problem, x, theta, np.zeros(0), 1e-6)
    plain = reference_point(problem, x, theta)
    assert answer.point.gap == pytest.approx(plain.gap, rel=1e-13)
    np.testing.assert_array_equal(answer.point.At_theta, plain.At_theta)
    theta[3] = 5.0
    wrong = reference_point(
        problem, x, theta, known=(problem.design.forward(x), problem.design.adjoint(theta))
    )
    np.testing.assert_array_equal(wrong.At_theta, problem.design.adjoint(wrong.theta))


def test_a_solution_certified_first_is_still_a_reference(rng: np.random.Generator) -> None:
    X, y = words(rng), rng.choice([-1.0, 1.0], N)
    found = cvxscreen.solve(cvxscreen.svm(X, y), tol=1e-7)
    assert found.certificate.ok
    point = found.point()
    assert point.gap == pytest.approx(found.certificate.gap, rel=1e-3)
    assert found.screening.proven_from(found.bounds, point).codes.max() >= 0
    assert (found.screening.codes >= 0).any()
    assert cvxscreen.solve(found.problem.with_(C=1.3), start=found, mode="safe").certificate.ok


# -- Where the next solution should be: a point of the problem, better than the last one scaled.


def passed(problem: Problem, values: Sequence[float], relative: float = 1e-10) -> PathCache:
    """A cache that `DualActiveSet` has solved `problem` with at some values of C."""
    cache, start = PathCache(), None
    for value in values:
        here = problem.with_(C=value)
        found = DualActiveSet(path_cache=cache)(here, start, target_of(here, relative))
        assert found.status == "optimal"
        start = Start(found.x, found.theta)
    return cache


def scaled(here: Problem, C: float, theta: np.ndarray) -> np.ndarray:
    """The solution at C as a dual point of `here`."""
    return np.clip(here.C / C * theta, here.losses.lo, here.losses.hi)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_a_point_of_the_problem(kind: str, rng: np.random.Generator) -> None:
    problem = make(kind, rng)
    here = problem.with_(C=1.5)
    place = passed(problem, (0.9, 1.2)).extrapolate(here)
    assert place is not None
    f, design, root = here.losses, here.design, 1.0 / np.sqrt(here.quadratic.diagonal)
    assert (place.theta >= f.lo).all()
    assert (place.theta <= f.hi).all()
    v = -root * (design.adjoint(place.theta) + here.linear)
    np.testing.assert_allclose(place.v, v, atol=1e-9 * np.abs(v).max())
    t = design.forward(root * place.x)
    np.testing.assert_allclose(place.t, t, atol=1e-9 * np.abs(t).max())


def test_on_one_face_it_is_the_solution(rng: np.random.Generator) -> None:
    problem = make("hinge", rng)
    cache = passed(problem, (1.0, 1.0 + 1e-7), 1e-14)
    here = problem.with_(C=1.0 + 2e-7)
    place = cache.extrapolate(here)
    assert place is not None
    last = cache._line.last  # type: ignore[union-attr]
    best = dual(here, DualActiveSet()(here, None, target_of(here, 1e-14)).theta)
    other = dual(here, scaled(here, last.C, last.theta))
    assert best - dual(here, place.theta) < 0.2 * (best - other)


@pytest.mark.parametrize("kind", ["hinge", "squared hinge", "absolute"])
@pytest.mark.parametrize("values", [np.geomspace(0.6, 3.0, 12), np.geomspace(3.0, 0.6, 12)])
def test_it_is_nearer_than_the_last_point_scaled(
    kind: str, values: np.ndarray, rng: np.random.Generator
) -> None:
    problem, cache, start, before = make(kind, rng), PathCache(), None, 1.0
    ratios = []
    for value in values:
        here, place = problem.with_(C=float(value)), None
        if start is not None:
            start = Start(start.x, scaled(here, before, start.theta))
            place = cache.extrapolate(here)
        target = target_of(here, 1e-7)
        found = DualActiveSet(path_cache=cache)(here, start, target)
        assert certify(here, found.x, found.theta, tol=1.0).gap <= 1.01 * target
        if place is not None and start is not None:
            best = dual(here, found.theta)
            ratios.append((best - dual(here, place.theta)) / (best - dual(here, start.theta)))
        start, before = Start(found.x, found.theta), value
    assert len(ratios) >= 0.8 * (len(values) - 2)
    assert np.median(ratios) < 0.5


def test_it_is_refused_where_the_last_point_is_better(rng: np.random.Generator) -> None:
    problem = make("hinge", rng)
    cache = passed(problem, (0.9, 1.2))
    here = problem.with_(C=1.5)
    assert cache.extrapolate(here) is not None
    first, key = cache._line._first  # type: ignore[union-attr, misc]
    wrong = SavedIterate(first.C, first.theta, -first.v, first.x, first.t, first.centre)
    cache._line._first = wrong, -key  # type: ignore[union-attr]
    assert cache.extrapolate(here) is None


def test_no_line_back_too_far_or_through_one_point(rng: np.random.Generator) -> None:
    problem = make("hinge", rng)
    assert passed(problem, (1.0,)).extrapolate(problem.with_(C=1.2)) is None
    cache = passed(problem, (1.0, 1.25))
    assert cache.extrapolate(problem.with_(C=1.0)) is None
    assert cache.extrapolate(problem.with_(C=1.25)) is None
    assert cache.extrapolate(problem.with_(C=1.25 + 1.01 * FARTHEST * 0.25)) is None
    assert passed(problem, (1.25, 1.25)).extrapolate(problem.with_(C=1.5)) is None


def test_a_second_call_at_the_same_C_replaces_the_first(rng: np.random.Generator) -> None:
    problem, here = make("hinge", rng), 1.5
    once = passed(problem, (0.9, 1.2), 1e-12).extrapolate(problem.with_(C=here))
    twice = passed(problem, (0.9, 1.2, 1.2), 1e-12).extrapolate(problem.with_(C=here))
    assert once is not None
    assert twice is not None
    np.testing.assert_allclose(once.theta, twice.theta, atol=1e-4)


def test_another_linear_term_is_another_problem(rng: np.random.Generator) -> None:
    problem = make("hinge", rng)
    cache = passed(problem, (0.9, 1.2))
    parts = {"design": problem.design, "linear": problem.linear + rng.standard_normal(D)}
    other = make("hinge", rng, **parts)
    assert cache.extrapolate(other.with_(C=1.5)) is None
    found = DualActiveSet(path_cache=cache)(other.with_(C=1.5), None, 1e-6)
    assert certify(other.with_(C=1.5), found.x, found.theta, tol=1.0).gap <= 1.01e-6
    assert cache.extrapolate(other.with_(C=1.7)) is None


def test_the_gap_with_an_unpenalised_coordinate_counts_the_move_of_x(
    rng: np.random.Generator,
) -> None:
    design = Rows(words(rng), rng.choice([-1.0, 1.0], N), np.ones((N, 1)))
    parts = {"quadratic": Quadratic(np.r_[np.ones(D), 0.0]), "linear": np.zeros(D + 1)}
    problem = make("hinge", rng, design=design, **parts)
    cache, here = passed(problem, (1.0, 1.2)), problem.with_(C=1.5)
    iterate = DualIterate(here, design, Start(np.zeros(D + 1), np.zeros(N)), np.inf, cache)
    assert iterate.extrapolated
    assert np.abs(iterate.correction).max() > 1e-3
    x = iterate.root * (iterate.v + iterate.correction)
    proof = certify(here, x, iterate.balanced, tol=1.0)
    assert iterate.gap == pytest.approx(proof.gap, rel=1e-6)
