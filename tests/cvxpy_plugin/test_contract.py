"""CVXPY's contract around the answer: arguments, options, warnings, statistics, the least norm."""

from __future__ import annotations

import pickle
import re
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from cvxpy_plugin.zoo import SPELLINGS, Data

import cvxscreen
from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin import request
from cvxscreen.errors import InvalidInput

cvxpy_plugin.register()


def svm(C: Any = 1.0, n: int = 120) -> Any:
    data = Data(n=n)
    return cp.Problem(cp.Minimize(data.ridge + C * data.hinge))


OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("CLARABEL", {"mod": "safe"}),
    ("CLARABEL", {"max_iters": 5}),
    ("SCS", {"epss": 1e-3}),
    ("OSQP", {"foo": 3}),
    ("HIGHS", {"foo": 3}),
]


@pytest.mark.parametrize(("solver", "options"), OPTIONS)
def test_options_that_the_solver_does_not_know_are_its_own_error(
    solver: str, options: dict[str, Any]
) -> None:
    with pytest.raises(Exception) as truth:
        svm().solve(solver=solver, **options)
    problem = svm()
    with pytest.raises(truth.type) as found:
        problem.solve(method="screen", solver=solver, **options)
    assert str(found.value) == str(truth.value)
    assert problem.status is None


def test_options_that_it_knows_are_taken() -> None:
    problem = svm()
    problem.solve(method="screen", solver="CLARABEL", max_iter=60, time_limit=10.0)
    assert problem.status == cp.OPTIMAL


@pytest.mark.parametrize("aside", [False, True])
def test_positional_arguments_are_cvxpys(aside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "STEP_ASIDE", aside)
    problem, plain = svm(), svm()
    value = problem.solve("CLARABEL", True, False, method="screen")
    assert value == pytest.approx(plain.solve("CLARABEL", True, False), rel=1e-7)
    assert problem.solver_stats.extra_stats["cvxscreen"].recognised is not aside


def test_positional_verbose_talks(capsys: pytest.CaptureFixture[str]) -> None:
    svm().solve("CLARABEL", True, True, method="screen")
    assert "relative gap" in capsys.readouterr().out


def bilinear() -> Any:
    data = Data(n=200)
    X, C = cp.Parameter((200, data.d), value=data.X), cp.Parameter(nonneg=True, value=1.0)
    margin = C * cp.multiply(data.y, X @ data.w)
    return cp.Problem(cp.Minimize(data.ridge + cp.sum(cp.pos(1 - margin))))


@pytest.mark.parametrize("always", ["yes", None, 2, np.ones(2)])
def test_always_is_a_truth_value(always: Any) -> None:
    with pytest.raises(InvalidInput, match=r"`always` is .*True or False is needed"):
        svm().solve(method="screen", always=always)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"time_limit": -1.0}, "`time_limit` is -1.0; a positive number of seconds"),
        ({"time_limit": "long"}, "`time_limit` is 'long'; a positive number of seconds"),
        ({"max_iter": 1.5}, "`max_iter` is 1.5; a whole number"),
        ({"alway": True}, "`alway` is no option of the built-in solver, which takes time_limit"),
    ],
)
def test_options_that_the_built_in_solver_does_not_take(
    options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInput, match=re.escape(said)):
        svm().solve(method="screen", solver="builtin", **options)


def test_positional_arguments_are_as_many_as_cvxpys_and_given_once() -> None:
    with pytest.raises(TypeError, match="takes at most 12 positional arguments but 13"):
        svm().solve("CLARABEL", *[False] * 11, method="screen")
    with pytest.raises(TypeError, match="multiple values for argument 'warm_start'"):
        svm().solve("CLARABEL", True, method="screen", warm_start=False)


def test_dpp_is_enforced_where_the_problem_is_recognised() -> None:
    with pytest.raises(cp.error.DPPError) as truth:
        bilinear().solve(enforce_dpp=True)
    problem = bilinear()
    with pytest.raises(cp.error.DPPError) as found:
        problem.solve(method="screen", enforce_dpp=True)
    assert str(found.value) == str(truth.value)
    svm(cp.Parameter(nonneg=True, value=1.0)).solve(method="screen", enforce_dpp=True)


def test_what_is_not_dpp_warns_as_in_cvxpy() -> None:
    with pytest.warns(UserWarning, match="not DPP"):
        bilinear().solve(method="screen")
    problem = bilinear()
    problem.solve(method="screen", ignore_dpp=True)
    assert problem.solver_stats.extra_stats["cvxscreen"].recognised


@pytest.mark.parametrize("aside", [False, True])
def test_a_solvers_own_statistics_are_found_as_before(
    aside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request, "STEP_ASIDE", aside)
    problem = next(entry for entry in SPELLINGS if entry.name == "bounds").make(Data())
    problem.solve(method="screen", solver="OSQP")
    extra = problem.solver_stats.extra_stats
    assert extra.info.status == "solved"
    assert extra["cvxscreen"].recognised is not aside
    with pytest.raises(AttributeError):
        _ = extra.nothing
    kept = pickle.loads(pickle.dumps(request.ExtraStats({"iterations": 3})))
    assert kept == {"iterations": 3}


def test_a_matrix_that_need_not_be_symmetric() -> None:
    """CVXPY asks of its symmetric part that it be positive semidefinite."""
    rng = np.random.default_rng(0)
    H = rng.standard_normal((200, 9))

    def made() -> Any:
        W = cp.Variable((3, 3))
        loss = cp.sum(cp.pos(1 - H @ cp.vec(W, order="F")))
        return cp.Problem(cp.Minimize(0.5 * cp.sum_squares(W) + loss), [W >> 0])

    problem, plain = made(), made()
    plain.solve(solver="CLARABEL")
    problem.solve(method="screen")
    assert problem.status == cp.OPTIMAL
    assert problem.solver_stats.extra_stats["cvxscreen"].recognised
    assert problem.value == pytest.approx(plain.value, rel=1e-7)
    for ours, theirs in zip(problem.variables(), plain.variables(), strict=True):
        assert np.abs(ours.value - theirs.value).max() <= 1e-5
        assert np.abs(ours.value - ours.value.T).max() > 1e-2
    ours, theirs = problem.constraints[0].dual_value, plain.constraints[0].dual_value
    assert np.abs(ours - theirs).max() <= 1e-4 * max(1.0, np.abs(theirs).max())
    assert cvxscreen.certify(plain).ok


def test_one_class_has_an_intercept_of_reasonable_size() -> None:
    """With one label the intercept is not unique; an absurd one is optimal, too."""
    data = Data(n=200)
    loss = cp.sum(cp.pos(1 - (data.X @ data.w + data.b)))
    problem = cp.Problem(cp.Minimize(data.ridge + loss))
    problem.solve(method="screen")
    assert problem.status == cp.OPTIMAL
    assert problem.value == pytest.approx(0.0, abs=1e-9)
    assert abs(data.b.value) <= 2.0


def test_verify_says_who_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain solver that returns another point as optimal is told from a wrong screened one."""
    problem, original = svm(), cp.Problem._solve

    def wrong(self: Any, *arguments: Any, **options: Any) -> Any:
        original(self, *arguments, **options)
        if self is problem:
            for variable in self.variables():
                variable.save_value(0.0 * variable.value)
            self._value = self.objective.value
        return self._value

    monkeypatch.setattr(cp.Problem, "_solve", wrong)
    found = cvxscreen.verify(problem, "CLARABEL")
    assert not found.agrees
    assert found.wrong == "plain"
    assert found.gaps[0] > 0.1
    assert found.gaps[1] <= 1e-6
    assert "the plain answer is wrong" in str(found)
    both = cvxscreen.verify(problem, ["CLARABEL", "SCS"])
    assert "the plain answer of CLARABEL is wrong" in str(both)


def test_verify_goes_on_behind_a_solver_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, original = svm(), cp.Problem._solve

    def raising(self: Any, solver: Any = None, **options: Any) -> Any:
        if self is problem and solver == "SCS":
            raise ValueError("Variable value must be in bounds.")
        return original(self, solver, **options)

    monkeypatch.setattr(cp.Problem, "_solve", raising)
    found = cvxscreen.verify(problem, ["SCS", "CLARABEL"])
    assert found.agrees
    assert not found.whole
    assert "failed: Variable value must be in bounds." in str(found)


# -- the numbers of a problem are the user's -------------------------------------------------------


def _whole_numbers(n: int, d: int, sparse: bool) -> Any:
    """Data a third of which are zeros; sparse ones with zeros that are stored."""
    rng = np.random.default_rng(8)
    X = np.round(rng.standard_normal((n, d)))
    if not sparse:
        return X
    full = sp.csr_array(np.ones((n, d)))
    return sp.csr_array((X.ravel(), full.indices, full.indptr), shape=(n, d))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("n", "d"), [(300, 4), (40, 330)])
@pytest.mark.parametrize("name", ["absolute", "hinge", "huber", "slack", "largest", "rows", "many"])
def test_constants_of_a_problem_stay_as_they_are(name: str, n: int, d: int, sparse: bool) -> None:
    """To leave out their zeros in place moved all other entries of the problem's own data."""
    X, w, b = _whole_numbers(n, d, sparse), cp.Variable(d), cp.Variable()
    y = np.random.default_rng(9).standard_normal(n)
    r, xi = X @ w + b - y, cp.Variable(n, nonneg=True)
    several, W = np.random.default_rng(3).standard_normal(n), cp.Variable((d, 3))
    cost, constraints = {
        "absolute": lambda: (cp.norm1(r) + cp.norm1(w), []),
        "hinge": lambda: (cp.sum(cp.pos(1 - cp.multiply(np.sign(y), r + y))) + cp.norm1(w), []),
        "huber": lambda: (cp.sum(cp.huber(r)) + cp.sum_squares(w), []),
        "slack": lambda: (cp.sum(xi) + cp.norm1(w), [r >= -xi, r <= xi]),
        "largest": lambda: (cp.sum_largest(cp.abs(r), 5) + cp.norm1(w), []),
        "rows": lambda: (cp.sum_squares(w - 1), [X @ w <= np.abs(several)]),
        "many": lambda: (cp.sum(cp.max(X @ W, axis=1)) + cp.sum_squares(W - 1), []),
    }[name]()
    problem = cp.Problem(cp.Minimize(cost), constraints)

    def numbers() -> list[bytes]:
        values = [constant.value for constant in problem.constants()]
        dense = (v.toarray() if sp.issparse(v) else v for v in values)
        return [np.ascontiguousarray(v).tobytes() for v in dense]

    before = numbers()
    problem.solve(method="screen", always=True)
    assert problem.status == "optimal"
    assert numbers() == before
