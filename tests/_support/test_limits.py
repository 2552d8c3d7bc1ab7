"""A limit ends a solve with the best point, its gap and a status that says so; never "optimal"."""

from __future__ import annotations

import warnings
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import cvxscreen
from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen.errors import InvalidInput

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


@pytest.mark.parametrize(("solver", "looks"), [("auto", 50.0), ("CLARABEL", 4.0)])
def test_a_path_over_a_parameter_keeps_finished_points(solver, looks, monkeypatch) -> None:
    w, lam = cp.Variable(6), cp.Parameter(nonneg=True, name="lam")
    loss = cp.sum(cp.pos(1 - cp.multiply(Y, X @ w)))
    prob = cp.Problem(cp.Minimize(loss + lam * cp.sum_squares(w)))
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
