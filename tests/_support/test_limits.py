"""Time and iterations end a solve with the best point; what cannot fit is refused; BLAS threads."""

from __future__ import annotations

import threading
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import cvxscreen
from cvxscreen._support import limits as capacity
from cvxscreen._support.limits import (
    ONE_BLAS_THREAD,
    UNLIMITED,
    Limits,
    blas_libraries,
    memory_limit,
    memory_of_machine,
    readable,
    require,
)
from cvxscreen.core.problem import Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput, TooLarge
from cvxscreen.solvers import interior_point
from cvxscreen.solvers.loop import solve_screened

X, Y = cvxscreen.datasets.two_gaussians(300, 6, seed=3)
WORDS = ("optimal", "time_limit", "iteration_limit")


def models() -> dict[str, Any]:
    sparse = sp.random(200, 300, 0.05, random_state=1, format="csr")
    few = slice(0, 60)
    triplets = cvxscreen.triplets(X[few], Y[few], k=2)
    return {
        "newton": cvxscreen.svm(X, Y, intercept=True),
        "faces": cvxscreen.svm(sparse, Y[:200]),
        "smo": cvxscreen.svm(X, Y, kernel="rbf"),
        "sparse": cvxscreen.sparse_svm(X, Y, 0.01),
        "kinked": cvxscreen.sparse_svr(X, 2.0 * X[:, 0], 0.01, loss="epsilon"),
        "lp": cvxscreen.sparse_svm(X, Y, 0.01, loss="hinge", l2=0),
        "metric": cvxscreen.rtlm(X[few], triplets, 0.1),
        "kinked metric": cvxscreen.rtlm(X[few], triplets, 0.1, gamma=0),
        "raso": cvxscreen.raso(
            [(X[:80], Y[:80]), (X[80:160], Y[80:160])], h=1, alpha=0.1, beta=0.01
        ),
    }


MODELS = models()


@pytest.mark.parametrize("name", MODELS)
def test_limits_end_with_the_best_point_and_say_so(name: str) -> None:
    problem = MODELS[name]
    for limit, word in (({"max_iter": 1}, WORDS[2]), ({"time_limit": 1e-9}, WORDS[1])):
        cut = cvxscreen.solve(problem, tol=1e-7, **limit)
        assert cut.status == word
        assert not cut.certificate.ok
        assert np.isfinite(cut.certificate.gap)
        assert cut.certificate.relative_gap > 1e-7
        assert word in str(cut)
    free = cvxscreen.solve(problem, tol=1e-5, max_iter=10**6, time_limit=1e6)
    assert free.status == "optimal"
    assert free.certificate.ok


@pytest.mark.parametrize("solver", ["CLARABEL", "SCS", "OSQP", "apg", "sdca", "spdc"])
def test_other_solvers_are_cut_short_too(solver: str) -> None:
    named = solver.isupper()
    problem = MODELS["newton" if named else "sparse"]
    for limit, word in (({"max_iter": 2}, WORDS[2]), ({"time_limit": 1e-9}, WORDS[1])):
        cut = cvxscreen.solve(problem, tol=1e-9, solver=solver, **limit)
        assert cut.status == word
        assert np.isfinite(cut.certificate.gap)


@pytest.mark.parametrize("solver", ["admm", "apg", "plain"])
def test_multitask_algorithms_are_cut_short(solver: str) -> None:
    cut = cvxscreen.solve(MODELS["raso"], tol=1e-9, solver=solver, max_iter=2)
    assert cut.status == "iteration_limit"
    assert len(cut.rounds) == 2


def test_more_iterations_never_lose_ground() -> None:
    gaps = [
        cvxscreen.solve(MODELS["smo"], tol=1e-12, max_iter=k).certificate.gap for k in (1, 2, 4, 8)
    ]
    assert gaps == sorted(gaps, reverse=True)


def test_a_limit_that_is_just_enough_is_optimal() -> None:
    """The status tells of the certificate first: what was reached in time is optimal."""
    problem = MODELS["newton"]
    plain = cvxscreen.solve(problem, solver="newton")  # as a call with limits is
    steps = sum(r.solver_info["steps"] for r in plain.rounds)
    assert cvxscreen.solve(problem, max_iter=steps).status == "optimal"
    assert cvxscreen.solve(problem, max_iter=steps - 1).status == "iteration_limit"


@pytest.mark.parametrize(
    "bad", [{"time_limit": 0}, {"time_limit": -1.0}, {"time_limit": float("nan")},
            {"time_limit": "1"}, {"max_iter": 0}, {"max_iter": 1.5}, {"max_iter": True}],
)
def test_bad_limits_are_refused(bad: dict[str, Any]) -> None:
    [name] = bad
    with pytest.raises(InvalidInput, match=f"`{name}`"):
        cvxscreen.solve(MODELS["newton"], **bad)
    with pytest.raises(InvalidInput, match=f"`{name}`"):
        cvxscreen.path(MODELS["newton"], values=[1.0], **bad)


def test_no_limits_are_shared_and_never_spent() -> None:
    assert not UNLIMITED.spent(10**9)
    assert UNLIMITED.reached == ""
    both = Limits(1e6, 3)
    assert not both.spent(2)
    assert both.spent(1)
    assert (both.reached, both.iterations) == ("iteration_limit", 0)
    part = Limits(1e6, 3).each(5)
    assert part.iterations == 5
    assert part.seconds is not None


# -- paths ---------------------------------------------------------------------------------------


class Clock:
    """Seconds that pass by the look."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


@pytest.mark.parametrize(("solver", "looks"), [("auto", 7.0), ("newton", 90.0)])
def test_a_path_out_of_time_keeps_finished_points(solver, looks, monkeypatch, tmp_path) -> None:
    grid, file = np.geomspace(0.01, 1, 8), tmp_path / "c.npz"
    problem = MODELS["newton"]
    whole = cvxscreen.path(problem, values=grid, solver=solver, checkpoint=tmp_path / "whole.npz")
    monkeypatch.setattr("cvxscreen._support.limits.perf_counter", Clock(1.0))
    cut = cvxscreen.path(problem, values=grid, solver=solver, time_limit=looks, checkpoint=file)
    monkeypatch.undo()
    assert not cut.finished
    assert cut.stopped == "time_limit"
    assert "time limit after" in str(cut)
    assert 0 < len(cut.points) < len(grid)
    assert {p.status for p in cut.points} == {"optimal"}
    resumed = cvxscreen.path(problem, values=grid, solver=solver, checkpoint=file)
    assert resumed.finished
    assert [p.gap for p in resumed.points] == [p.gap for p in whole.points]


def test_a_metric_path_out_of_time_keeps_finished_points(monkeypatch) -> None:
    problem = MODELS["metric"]
    monkeypatch.setattr("cvxscreen._support.limits.perf_counter", Clock(1.0))
    cut = cvxscreen.path(problem, over="lam", time_limit=40.0)
    assert not cut.finished
    assert cut.stopped == "time_limit"
    assert len(cut.points)
    assert {p.status for p in cut.points} == {"optimal"}


def test_points_of_a_path_have_iterations_each() -> None:
    found = cvxscreen.path(MODELS["newton"], values=[0.1, 1.0], tol=1e-9, max_iter=1)
    assert found.finished
    assert [p.status for p in found.points] == ["iteration_limit"] * 2


# -- CVXPY ---------------------------------------------------------------------------------------


def cvxpy_svm(*, budget: bool = False) -> cp.Problem:
    w = cp.Variable(X.shape[1])
    side = [cp.sum(w) == 1.0, w >= -1.0] if budget else []
    loss = cp.sum(cp.pos(1 - cp.multiply(Y, X @ w)))
    return cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + loss), side)


LIMITED = [
    ("SCS", {"max_iters": 1}), ("SCS", {"max_iters": 20}), ("CLARABEL", {"max_iter": 1}),
    ("CLARABEL", {"time_limit": 1e-9}), ("OSQP", {"max_iter": 1}),
]


@pytest.mark.parametrize(("solver", "options"), LIMITED)
@pytest.mark.parametrize("budget", [False, True])
def test_statuses_of_a_limited_guest_are_cvxpys(solver, options, budget) -> None:
    """Where it is not certified the answer has the status that a plain solve has."""
    plain, screened = cvxpy_svm(budget=budget), cvxpy_svm(budget=budget)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        said = []
        for problem, extra in ((plain, {}), (screened, {"method": "screen"})):
            try:
                problem.solve(solver=solver, **options, **extra)
                said.append(problem.status)
            except cp.error.SolverError:
                said.append(cp.SOLVER_ERROR)
    if screened.status == cp.OPTIMAL:  # certified through the built-in pilot all the same
        assert screened.solver_stats.extra_stats["cvxscreen"].relative_gap <= 1e-6
        exact = cvxpy_svm(budget=budget)
        exact.solve(solver="CLARABEL")
        assert screened.value == pytest.approx(exact.value, rel=1e-5)
    else:
        assert said[1] == said[0]


def test_the_builtin_solver_takes_limits_and_reports_a_users_limit() -> None:
    problem = cvxpy_svm()
    for limit in ({"max_iter": 1}, {"time_limit": 1e-9}):
        with pytest.warns(UserWarning, match="inaccurate"):
            problem.solve(method="screen", solver="builtin", tol=1e-9, **limit)
        assert problem.status == cp.USER_LIMIT
        report = problem.solver_stats.extra_stats["cvxscreen"]
        assert report.recognised
        assert report.relative_gap > 1e-9
        assert np.isfinite(problem.value)
    problem.solve(method="screen", solver="builtin", max_iter=10_000)
    assert problem.status == cp.OPTIMAL


@pytest.mark.parametrize("loss", [None, "rbf", "sparse", "lp", "regressor", "metric", "tasks"])
def test_estimators_keep_the_best_point_and_warn(loss: str | None) -> None:
    from sklearn.exceptions import ConvergenceWarning

    from cvxscreen import estimators as est

    few: dict[str, float] = {"time_limit": 1e-9, "tol": 1e-7}
    model: Any = {
        None: est.ScreenedSVC(**few), "rbf": est.ScreenedSVC(kernel="rbf", **few),
        "sparse": est.SparseSVC(**few), "lp": est.SparseSVC(loss="hinge", l2=0, **few),
        "regressor": est.ScreenedRegressor(**few), "metric": est.TripletMetricLearner(**few),
        "tasks": est.MultiTaskSVC(**few),
    }[loss]
    data = (X, Y, np.arange(len(Y)) % 3) if loss == "tasks" else (X, Y)
    with pytest.warns(ConvergenceWarning, match="longer `time_limit`") as caught:
        model.fit(*data)
    assert caught[0].filename == __file__  # the line of the user, not one of ours
    given = model.transform(X) if loss == "metric" else model.predict(*data[::2][:2])
    assert np.isfinite(np.asarray(given, dtype=float)).all()
    model.set_params(time_limit=1e6, tol=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model.fit(*data)
    with pytest.raises(InvalidInput, match="time_limit"):
        model.set_params(time_limit=-1.0).fit(*data)


@pytest.mark.parametrize(("solver", "looks"), [("auto", 8.0), ("CLARABEL", 4.0)])
def test_a_path_over_a_parameter_keeps_finished_points(solver, looks, monkeypatch) -> None:
    w, lam = cp.Variable(6), cp.Parameter(nonneg=True, name="lam")
    loss = cp.sum(cp.pos(1 - cp.multiply(Y, X @ w)))
    # Within a bound values are solved one by one; without it the compiled path takes them at once.
    prob = cp.Problem(cp.Minimize(loss + lam * cp.sum_squares(w)), [w <= 10])
    grid = np.geomspace(10, 0.1, 8)
    whole = cvxscreen.path(prob, lam, grid, solver=solver)
    assert (whole.finished, whole.stopped) == (True, "")
    monkeypatch.setattr("cvxscreen._support.limits.perf_counter", Clock(1.0))
    cut = cvxscreen.path(prob, lam, grid, solver=solver, time_limit=looks)
    assert (cut.finished, cut.stopped) == (False, "time_limit")
    assert "time limit after" in str(cut)
    done = len(cut.points)
    assert 0 < done < len(grid)
    assert np.allclose(cut.of(w), whole.of(w)[:done], atol=1e-4)
    assert lam.value == grid[done - 1]
    with pytest.raises(InvalidInput, match="time_limit"):
        cvxscreen.path(prob, lam, grid, time_limit=0)


# -- memory: refused before it is made, with its size and what to use instead ----------------------


N = 100_000
GIB = 2.0**30


@pytest.fixture
def small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of 1 GiB, whatever this one has."""
    monkeypatch.setattr(capacity, "memory_of_machine", lambda: 2**30)


def refused(size: float, *words: str) -> Any:
    """The refusal of something of about `size` bytes, before anything was made."""

    class Refused:
        def __enter__(self) -> None:
            tracemalloc.start()
            self.raised = pytest.raises(TooLarge)
            self.found = self.raised.__enter__()

        def __exit__(self, *error: Any) -> bool:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert self.raised.__exit__(*error)
            text = str(self.found.value)
            assert isinstance(self.found.value, MemoryError)
            assert "1 GiB" in text
            assert "memory_limit" in text
            said = int(text.split("(")[1].split(" bytes")[0].replace(",", ""))
            assert said == pytest.approx(size, rel=0.01)
            for word in words:
                assert word in text
            assert peak < 1e-2 * size
            return True

    return Refused()


def test_a_gram_matrix_of_a_hundred_thousand_rows(small_machine) -> None:
    X = np.zeros((N, 2), dtype=np.float32)
    X[::2] = 1.0
    y = np.where(np.arange(N) % 2, 1.0, -1.0)
    with refused(8.0 * N**2, "Gram matrix", "cache_bytes", "74.5 GiB"):
        cvxscreen.svm(X, y, kernel="rbf", cache_bytes=8 * N * N)
    cvxscreen.svm(X, y, kernel="rbf", cache_bytes=2**26)  # what it says to do instead


def test_all_triplets_of_many_points_listed_or_joined(small_machine) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 500)
    X = rng.standard_normal((500, 2))
    T = cvxscreen.triplets(X, y, k="all")
    assert len(T) > 2e7
    with refused(57.0 * len(T), f"{len(T):,} triplets", "smaller `k`"):
        _ = T.index
    many = rng.integers(0, 3, N)
    with refused(73.0 * N * (N - 1), "neighbours", "`k`"):
        cvxscreen.triplets(np.zeros((N, 2)), many, k="all")
    problem = cvxscreen.rtlm(X, T, 1.0)
    with refused(24.0 * len(T) * 4, "built-in solver", "diagonal=True"):
        problem.design.dense()


def test_metric_learning_for_other_solvers(small_machine) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 100)), rng.integers(0, 3, 300)
    problem = cvxscreen.rtlm(X, cvxscreen.triplets(X, y, k=12), 1.0)
    assert cvxscreen.cvxpy_plugin  # CVXPY is loaded: its own memory does not count
    with refused(24.0 * problem.n * 100**2, "exports"):
        problem.to_cvxpy()


def test_dense_copies_and_forms(small_machine) -> None:
    wide = sp.csr_matrix((10_000, 2_000_000))
    with refused(8.0 * 10_000 * 2_000_000, "dense copy", "sparse"):
        Rows(wide).dense()
    with refused(8.0 * N**2, "quadratic form"):
        Quadratic(np.ones(N)).dense()


def test_the_limit_is_the_callers_to_set(small_machine) -> None:
    with memory_limit(2**20), pytest.raises(TooLarge, match=r"`memory_limit` allows 1 MiB"):
        require(2**21, "a thing", "do without")
    with memory_limit(float("inf")):
        require(2**50, "a thing", "do without")
        with memory_limit(10), pytest.raises(TooLarge):
            require(11, "a thing", "do without")
        require(2**50, "a thing", "do without")
    with pytest.raises(TooLarge):
        require(2**50, "a thing", "do without")
    with pytest.raises(InvalidInput, match="`size`"), memory_limit(0):
        pass
    with pytest.raises(InvalidInput, match="`size`"), memory_limit(float("nan")):
        pass


def test_a_limit_holds_in_its_thread_only(small_machine) -> None:
    seen: list[Exception] = []

    def other() -> None:
        try:
            require(2**30, "a thing", "do without")
        except TooLarge as error:
            seen.append(error)

    with memory_limit(10):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert seen == []


def test_the_machine_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    have = memory_of_machine()
    assert have is None or have > 2**26
    place = tmp_path / "memory.max"
    place.write_text("123456789\n")
    monkeypatch.setattr(capacity, "CGROUPS", (str(tmp_path / "none"), str(place)))
    assert memory_of_machine() in (None, 123456789)
    place.write_text("max\n")
    assert memory_of_machine() != 123456789


def test_small_requests_are_not_questioned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "memory_of_machine", lambda: 1)
    require(capacity.SMALL, "a thing", "do without")
    with pytest.raises(TooLarge):
        require(capacity.SMALL + 1, "a thing", "do without")


@pytest.mark.parametrize(
    ("size", "text"),
    [(12, "12 bytes"), (2048, "2 KiB"), (74.5 * GIB, "74.5 GiB"), (3e15, "2,728.5 TiB")],
)
def test_sizes_are_readable(size: float, text: str) -> None:
    assert readable(size) == text


def test_a_limit_goes_by_the_clock_that_it_is_given() -> None:
    """The part of one of several calls too."""
    now = [0.0]
    whole = Limits(2.0, clock=lambda: now[0])
    part = whole.each(3)
    now[0] = 1.5
    assert not whole.spent()
    assert whole.seconds == part.seconds == 0.5
    whole.within(0.25)
    now[0] = 1.75
    assert whole.spent()
    assert not part.spent()
    now[0] = 2.0
    assert part.spent()


# -- threads --------------------------------------------------------------------------------------


def blas_threads() -> list[int]:
    """What each library of BLAS would take, as it says itself."""
    return [lib["num_threads"] for lib in blas_libraries().info() if lib["user_api"] == "blas"]


def test_a_block_takes_one_thread_and_gives_back_what_it_has_taken() -> None:
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with ONE_BLAS_THREAD:
            entered.set()
            leave.wait(30)

    with blas_libraries().limit(limits=2, user_api="blas"):
        before = blas_threads()
        worker = threading.Thread(target=other)
        with ONE_BLAS_THREAD:
            worker.start()
            assert entered.wait(30)
            with ONE_BLAS_THREAD:
                assert set(blas_threads()) == {1}
            assert set(blas_threads()) == {1}, "the outer block is still going on"
        assert blas_threads() == before, "the other thread's block is not its owner"
        leave.set()
        worker.join()
        assert blas_threads() == before
        with pytest.raises(ZeroDivisionError), ONE_BLAS_THREAD:
            _ = 1 / 0
        assert blas_threads() == before


def test_interior_points_take_one_thread_where_there_is_enough_to_do(monkeypatch) -> None:
    seen: list[int] = []
    path = interior_point.PrimalDualPath

    def watched(*given: Any) -> Any:
        seen.append(max(blas_threads()))
        return path(*given)

    monkeypatch.setattr(interior_point, "PrimalDualPath", watched)
    rng = np.random.default_rng(0)
    with blas_libraries().limit(limits=2, user_api="blas"):
        several = max(blas_threads())
        for n in (6_000, 600):
            fit = cvxscreen.regression(rng.normal(size=(n, 10)), rng.normal(size=n), C=np.inf,
                                       loss="absolute")
            assert interior_point.InteriorPoint()(fit, None, 1e-6).status == "optimal"
    assert seen == [1, several]


@pytest.mark.parametrize("sparse", [False, True])
def test_rounds_take_one_thread_where_there_is_enough_to_do(sparse: bool) -> None:
    """Not for small data, for which BLAS takes one anyway; what was set is given back."""
    seen: list[int] = []
    rng = np.random.default_rng(0)
    with blas_libraries().limit(limits=2, user_api="blas"):
        several = max(blas_threads())
        for n in (1_500, 150):
            X = rng.normal(size=(n, 70))
            data = sp.csr_array(X) if sparse else X
            problem = cvxscreen.svm(data, np.resize([1.0, -1.0], n), C=0.01)
            solve_screened(problem, on_round=lambda record: seen.append(max(blas_threads())))
            assert max(blas_threads()) == several
    assert set(seen) == {1, several}
    assert seen == sorted(seen)


def test_long_products_keep_their_threads() -> None:
    assert capacity.blas_threads(10**6, 10**3) is ONE_BLAS_THREAD
    assert capacity.blas_threads(10**8, 10**4) is not ONE_BLAS_THREAD
