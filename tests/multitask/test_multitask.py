"""The joint problem: algorithms against each other and against CVXPY, edge cases, the record."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tasks import shared_tasks

import cvxscreen
from cvxscreen.errors import InvalidInput, UnknownName
from cvxscreen.multitask import solve_multitask
from cvxscreen.multitask.gap import DualCandidate, PrimalCandidate, joint_gap
from cvxscreen.multitask.solve import Bcd
from cvxscreen.solvers.smo import Smo

CONIC = {
    "CLARABEL": {},
    "SCS": {"eps_abs": 1e-8, "eps_rel": 1e-8, "max_iters": 100_000},
}


def small(k: int, loss: str = "hinge"):
    """A random small problem; every third has h > m, sizes are unequal."""
    rng = np.random.default_rng(100 + k)
    m, d = int(rng.integers(2, 6)), int(rng.integers(4, 9))
    h = int(rng.integers(m + 1, d + 1)) if k % 3 == 0 and d > m else int(rng.integers(1, d))
    sizes = [int(rng.integers(6, 30)) for _ in range(m)]
    tasks = shared_tasks(m, d, 0, min(h, 2), seed=k, sizes=sizes)
    if loss not in ("hinge", "squared_hinge", "smoothed_hinge"):
        w = rng.standard_normal(d)
        tasks = [(X, X @ w + 0.5 * y + 0.2 * rng.standard_normal(len(y))) for X, y in tasks]
    alpha, beta = 10.0 ** rng.uniform(-2, 0, size=2)
    return cvxscreen.raso(tasks, h=h, alpha=alpha, beta=beta, loss=loss)


@pytest.mark.table
@pytest.mark.parametrize("k", range(10))
def test_every_algorithm_agrees_with_conic_solvers(k: int) -> None:
    problem = small(k)
    values = {}
    for solver in ("bcd", "plain", "admm", "apg"):
        found = solve_multitask(problem, tol=5e-7, solver=solver)
        assert found.status == "optimal", (solver, found.certificate.reason)
        values[solver] = found.value
    for solver, options in CONIC.items():
        values[solver] = problem.to_cvxpy().solve(solver=solver, **options)
    spread = max(values.values()) - min(values.values())
    assert spread <= 1e-6 * abs(values["bcd"]), values


def test_some_of_them_have_more_directions_than_tasks() -> None:
    assert sum(small(k).h > small(k).m for k in range(10)) >= 2


LOSSES = (
    "squared_hinge", "smoothed_hinge", "epsilon", "absolute", "quantile", "squared", "huber",
    "smoothed_epsilon",
)


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_agrees_with_clarabel(loss: str) -> None:
    problem = small(LOSSES.index(loss), loss)
    reference = problem.to_cvxpy().solve(solver="CLARABEL")
    solvers = ("bcd", "fista") if problem.smooth else ("bcd", "admm")
    for solver in solvers:
        found = solve_multitask(problem, tol=1e-7, solver=solver)
        assert found.status == "optimal", found.certificate.reason
        assert found.value == pytest.approx(reference, rel=2e-7)


def test_the_dual_as_a_semidefinite_program() -> None:
    """``max sum beta - (1/4c) (eta |V|^2 + top-h eigenvalues of VV')`` has the same value."""
    import cvxpy as cp

    problem = small(3)
    d, m, h = problem.d, problem.m, problem.h
    betas = [cp.Variable(n) for n in problem.sizes]
    V = cp.hstack([
        cp.reshape(X.T @ cp.multiply(y, beta), (d, 1), order="F")
        for X, y, beta in zip(problem.X, problem.y, betas, strict=True)
    ])
    Z, s = cp.Variable((d, d), symmetric=True), cp.Variable()
    block = cp.bmat([[Z + s * np.eye(d), V], [V.T, np.eye(m)]])
    constraints = [block >> 0, Z >> 0]
    for n, y, beta in zip(problem.sizes, problem.y, betas, strict=True):
        constraints += [beta >= 0, beta <= 1 / n, y @ beta == 0]
    top = h * s + cp.trace(Z)
    spectral = (problem.eta * cp.sum_squares(V) + top) / (4 * problem.c)
    total = sum(cp.sum(beta) for beta in betas)
    value = cp.Problem(cp.Maximize(total - spectral), constraints).solve(solver="CLARABEL")
    found = cvxscreen.solve(problem, tol=1e-8)
    assert found.value == pytest.approx(value, rel=1e-6)
    dual = DualCandidate.of(found.theta, problem.minus_adjoint(found.theta))
    assert dual.value(problem) == pytest.approx(value, rel=1e-6)


def test_the_gap_is_primal_minus_dual_without_the_cancellation() -> None:
    problem = small(4)
    rng = np.random.default_rng(0)
    for _ in range(20):
        metric = problem.metric(np.diag(rng.random(problem.d)))
        U, b = rng.standard_normal((problem.d, problem.m)), rng.standard_normal(problem.m)
        theta = np.concatenate([
            -y * np.where(y > 0, (y < 0).sum(), (y > 0).sum()) * rng.random() / n**2
            for y, n in zip(problem.y, problem.sizes, strict=True)
        ])
        dual = DualCandidate.of(theta, problem.minus_adjoint(theta))
        primal = PrimalCandidate.of(problem, U, b, metric, problem.predictions(U, b))
        assert primal.value == pytest.approx(problem.primal(U, b, metric.M), rel=1e-12)
        gap = joint_gap(problem, primal, dual)
        assert gap >= 0
        assert gap == pytest.approx(primal.value - dual.value(problem), rel=1e-10)


def test_medium_problem_is_certified() -> None:
    tasks = shared_tasks(10, 30, 200, 3, seed=1)
    found = cvxscreen.solve(cvxscreen.raso(tasks, h=3, alpha=1.0, beta=0.01))
    assert found.status == "optimal"
    assert found.certificate.relative_gap <= 1e-6


@pytest.mark.long
def test_large_problem_is_certified() -> None:
    tasks = shared_tasks(50, 100, 500, 5, seed=1)
    for alpha, eta in ((0.1, 0.1), (0.1, 1.0), (1.0, 0.01)):
        found = cvxscreen.solve(cvxscreen.raso(tasks, h=5, alpha=alpha, beta=alpha * eta))
        assert found.status == "optimal"
        assert found.certificate.relative_gap <= 1e-6


@pytest.mark.long
def test_acceleration_needs_fewer_rounds_for_the_same_answer() -> None:
    problem = cvxscreen.raso(shared_tasks(8, 20, 100, 3), h=3, alpha=1.0, beta=0.01)
    fast, plain = (solve_multitask(problem, solver=s, tol=1e-7) for s in ("bcd", "plain"))
    assert len(fast.rounds) < 0.6 * len(plain.rounds)
    assert fast.value == pytest.approx(plain.value, rel=2e-7)
    objectives = [r.objective for r in fast.rounds]
    assert (np.diff(objectives) <= 0).all()


# -- edge cases -----------------------------------------------------------------------------


def test_full_dimension_makes_the_tasks_independent() -> None:
    tasks = shared_tasks(3, 4, 30, 2)
    problem = cvxscreen.raso(tasks, h=4, alpha=0.3, beta=0.1)
    joint = cvxscreen.solve(problem, tol=1e-9)
    np.testing.assert_allclose(joint.M, np.eye(4), atol=1e-12)
    for k, (X, y) in enumerate(tasks):
        C = (1 + problem.eta) / (2 * problem.c * len(y))
        own = cvxscreen.solve(cvxscreen.svm(X, y, C=C, intercept=True), tol=1e-10)
        np.testing.assert_allclose(joint.U[:, k], own.w, atol=1e-5)


@pytest.mark.parametrize("label", [-1.0, 1.0])
def test_a_task_with_one_class_predicts_it(label: float) -> None:
    tasks = shared_tasks(3, 5, 30, 2)
    tasks[1] = (tasks[1][0], np.full(30, label))
    for solver in ("bcd", "admm", "apg"):
        found = cvxscreen.solve(cvxscreen.raso(tasks, alpha=0.1, beta=0.1), solver=solver)
        assert found.status == "optimal"
        np.testing.assert_allclose(found.U[:, 1], 0.0, atol=1e-3)
        assert (np.sign(found.predict(tasks[1][0], 1)) == label).all()
        assert np.abs(found.alpha[1]).max() <= 1e-12
    without = cvxscreen.solve(cvxscreen.raso([tasks[0], tasks[2]], alpha=0.1, beta=0.1))
    assert found.value == pytest.approx(without.value, rel=2e-6)


def test_one_sample_and_one_feature() -> None:
    tasks = [(np.array([[2.0]]), [1.0]), (np.array([[1.0], [-1.0], [3.0]]), [1, -1, 1])]
    found = cvxscreen.solve(cvxscreen.raso(tasks, h=1, alpha=0.1, beta=0.1))
    assert found.status == "optimal"


def test_float32_sparse_and_integer_data_give_the_same() -> None:
    import scipy.sparse as sp

    tasks = [(np.round(X, 1), y) for X, y in shared_tasks(2, 4, 25, 1)]
    settings = {"h": 1, "alpha": 0.1, "beta": 0.05}
    plain = cvxscreen.solve(cvxscreen.raso(tasks, **settings), tol=1e-9)
    for change in (sp.csr_matrix, np.asfortranarray):
        other = [(change(X), y.astype(int)) for X, y in tasks]
        found = cvxscreen.solve(cvxscreen.raso(other, **settings), tol=1e-9)
        assert found.value == pytest.approx(plain.value, rel=1e-9)


def test_badly_scaled_features_are_solved() -> None:
    scale = np.geomspace(1e-3, 1e3, 6)
    tasks = [(X * scale, y) for X, y in shared_tasks(4, 6, 40, 2)]
    found = cvxscreen.solve(cvxscreen.raso(tasks, alpha=1e-3, beta=1e-4), tol=1e-6)
    assert found.status == "optimal"


def test_the_arrays_of_the_caller_are_left_alone() -> None:
    tasks = shared_tasks(3, 5, 30, 2)
    copies = [(X.copy(), y.copy()) for X, y in tasks]
    cvxscreen.solve(cvxscreen.raso(tasks, alpha=0.1, beta=0.01))
    for (X, y), (X0, y0) in zip(tasks, copies, strict=True):
        np.testing.assert_array_equal(X, X0)
        np.testing.assert_array_equal(y, y0)


def test_a_warm_start_is_used() -> None:
    problem = cvxscreen.raso(shared_tasks(6, 12, 60, 2), alpha=0.5, beta=0.01)
    first = cvxscreen.solve(problem)
    again = cvxscreen.solve(problem, start=first)
    assert len(again.rounds) <= 3 < len(first.rounds)
    moved = cvxscreen.solve(problem.with_(alpha=0.6), start=first)
    assert moved.status == "optimal"
    with pytest.raises(InvalidInput, match="other tasks"):
        cvxscreen.solve(small(1), start=first)


# -- the record -----------------------------------------------------------------------------


def test_the_record_is_immutable_and_readable() -> None:
    problem = small(2)
    found = cvxscreen.solve(problem)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.status = "optimal"
    for name in ("U", "b", "M", "theta"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(found, name)[0] = 1.0
    text = str(found)
    for word in ("MultiTask solution", "optimal", "relative gap", "round", "accelerated"):
        assert word in text
    assert "tasks" in str(problem)
    assert found.x.shape == (problem.d, problem.m)
    assert found.intercept.shape == (problem.m,)
    assert found.subspace.shape == (problem.d, problem.h)
    np.testing.assert_allclose(found.V, found.subspace.T @ found.U)
    for a, n in zip(found.alpha, problem.sizes, strict=True):
        assert ((a >= 0) & (a <= 1 / n)).all()
    assert found.value == pytest.approx(problem.primal(found.U, found.b, found.M), rel=1e-12)


def test_too_few_rounds_are_no_success() -> None:
    found = solve_multitask(small(5), tol=1e-8, max_rounds=1)
    assert found.status == "inaccurate"
    assert not found.certificate.ok


GOOD = [(np.eye(3), [1, -1, 1]), (np.ones((2, 3)), [1, -1])]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tasks": []}, "empty"),
        ({"tasks": 3}, "pairs"),
        ({"tasks": [(np.eye(3),)]}, "pairs"),
        ({"tasks": [GOOD[0], (np.ones((2, 2)), [1, -1])]}, "features"),
        ({"tasks": [(np.full((2, 3), np.nan), [1, -1])]}, "NaN"),
        ({"tasks": [(np.eye(3), [1, -1, np.nan])]}, "NaN"),
        ({"tasks": [(np.eye(3), [1, -1])]}, "entries"),
        ({"tasks": [(np.eye(3), [1, 0, 1])]}, "labels -1 and"),
        ({"tasks": [(np.zeros((0, 3)), [])]}, "at least one"),
        ({"h": 0}, "between 1 and"),
        ({"h": 4}, "between 1 and"),
        ({"h": 1.5}, "whole number"),
        ({"alpha": 0.0}, "`alpha`"),
        ({"alpha": -1.0}, "`alpha`"),
        ({"beta": 0.0}, "`beta`"),
        ({"beta": np.inf}, "`beta`"),
        ({"beta": 1e-14}, "ratio"),
        ({"loss": "logistic"}, "choose one of"),
    ],
)
def test_bad_input_is_named(change, words) -> None:
    given = {"tasks": GOOD, "h": 1, "alpha": 0.1, "beta": 0.1, **change}
    with pytest.raises(InvalidInput, match=words):
        cvxscreen.raso(given.pop("tasks"), **given)


def test_bad_calls_are_named() -> None:
    problem = cvxscreen.raso(GOOD, h=1, alpha=0.1, beta=0.1)
    for call, words in (
        ({"solver": "magic"}, "choose one of"),
        ({"mode": "fast"}, "choose one of"),
        ({"tol": 0}, "strictly between"),
        ({"solver": "fista"}, "smooth"),
        ({"bounds": ("dvi",)}, "midpoint"),
    ):
        with pytest.raises(InvalidInput, match=words):
            cvxscreen.solve(problem, **call)
    with pytest.raises(UnknownName):
        cvxscreen.solve(problem, mode="fast")
    with pytest.raises(InvalidInput, match="there are tasks"):
        problem.task(2, np.eye(3) / 3)


def test_rounds_are_reported_as_they_happen() -> None:
    seen = []
    outcome = Bcd()(small(1), 1e-6, None, seen.append)
    assert tuple(seen) == outcome.rounds


def test_naming_the_bound_asks_for_screening() -> None:
    problem = cvxscreen.raso(shared_tasks(4, 8, 150, 2, seed=1), h=2, alpha=0.3, beta=0.015)
    plain = cvxscreen.solve(problem, solver="BCD", tol=1e-8)
    screened = cvxscreen.solve(problem, solver="bcd", tol=1e-8, bounds="midpoint")
    assert {round_.kept for round_ in plain.rounds} == {problem.n}
    assert min(round_.kept for round_ in screened.rounds) < 0.7 * problem.n
    assert screened.value == pytest.approx(plain.value, rel=1e-7)


@pytest.mark.parametrize("solver", ["SCS", "Clarabel"])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "absolute"])
def test_solvers_of_cvxpy_by_name(solver: str, loss: str) -> None:
    """They solve the whole problem, and their answer is certified like any other."""
    problem = small(3, loss=loss)
    ours, theirs = cvxscreen.solve(problem, tol=1e-8), cvxscreen.solve(problem, solver=solver)
    assert theirs.certificate.ok
    assert theirs.solver == solver.upper()
    assert theirs.value == pytest.approx(ours.value, rel=1e-6)


def test_a_solver_that_nobody_has_is_refused() -> None:
    with pytest.raises(cvxscreen.UnknownName, match="bcd"):
        cvxscreen.solve(small(3), solver="nothing")


# -- along alpha and beta -------------------------------------------------------------------------


@pytest.mark.parametrize("over", ["alpha", "beta"])
def test_a_path_has_the_answers_of_single_solves_and_the_subspaces(over: str, tmp_path) -> None:
    problem = cvxscreen.raso(shared_tasks(4, 8, 60, 2, seed=0), h=2, alpha=0.1, beta=0.01)
    values = [0.003, 0.02, 0.2]
    path = cvxscreen.path(problem, over=over, values=values, tol=1e-8)
    assert path.finished
    assert path.points[0].over == over
    np.testing.assert_array_equal(path.values, values)
    for value, point in zip(values, path.points, strict=True):
        alone = cvxscreen.solve(problem.with_(**{over: value}), tol=1e-8)
        assert point.status == "optimal"
        assert point.objective == pytest.approx(alone.value, rel=2e-8)
        again = point.solution
        assert getattr(again.problem, over) == value
        np.testing.assert_array_equal(point.x.reshape(4, 8).T, again.U)
        V = again.subspace
        np.testing.assert_allclose(V.T @ V, np.eye(2), atol=1e-12)
        # It is the subspace of M: no other two directions hold more of it.
        assert np.trace(V.T @ again.M @ V) == pytest.approx(
            np.linalg.eigvalsh(again.M)[-2:].sum(), rel=1e-12
        )
    path.save(tmp_path / "path.npz")
    loaded = cvxscreen.load_path(tmp_path / "path.npz")
    np.testing.assert_array_equal(loaded.points[2].x, path.points[2].x)
    assert loaded.points[2].solution is None
    assert over in str(path)


def test_a_path_of_tasks_goes_along_with_solvers_that_take_no_start() -> None:
    problem = cvxscreen.raso(
        shared_tasks(3, 5, 60, 2, seed=1), h=2, alpha=0.1, beta=0.01, loss="squared_hinge"
    )
    for solver in ("fista", "admm"):
        path = cvxscreen.path(problem, over="beta", values=[0.01, 0.02], tol=1e-4, solver=solver)
        assert [point.status for point in path.points] == ["optimal", "optimal"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"over": "C"}, "`over` is 'C'"),
        ({"over": "alpha", "eps": 0.1}, "`eps`"),
        ({"over": "alpha", "checkpoint": "x.npz"}, "`checkpoint`"),
        ({"over": "alpha", "solver": Smo()}, "`solver`.*by name only"),
    ],
)
def test_what_a_path_of_tasks_does_not_take_is_named(more, message: str) -> None:
    problem = cvxscreen.raso(shared_tasks(2, 4, 20, 1, seed=1), h=1, alpha=0.1, beta=0.01)
    with pytest.raises(InvalidInput, match=message):
        cvxscreen.path(problem, values=[0.1], **more)
    with pytest.raises(InvalidInput, match="`raso`"):
        cvxscreen.path(cvxscreen.svm(problem.X[0], problem.y[0]), over="alpha", values=[0.1])


def test_a_point_of_a_path_of_tasks_that_is_cut_short_does_not_count() -> None:
    problem = cvxscreen.raso(shared_tasks(2, 4, 20, 1, seed=1), h=1, alpha=0.1, beta=0.01)
    path = cvxscreen.path(problem, over="beta", values=[0.1, 0.2], time_limit=1e-9)
    assert path.stopped == "time_limit"
    assert not path.points
