"""What is said of a problem that is not recognised: a reason to act on, and one warning."""

from __future__ import annotations

import warnings
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import cvxscreen
from cvxscreen.cvxpy_plugin import request
from cvxscreen.cvxpy_plugin.recognise import elimination, standard
from cvxscreen.errors import NotScreenedWarning

N, D = 300, 5


def loss(w: Any) -> Any:
    X = np.random.default_rng(0).standard_normal((N, D))
    return cp.sum(cp.pos(1 - X @ w))


def reason(objective: Any, *constraints: Any) -> str:
    found = cvxscreen.explain(cp.Problem(cp.Minimize(objective), list(constraints)))
    assert not found.recognised
    return found.reasons[0]


def least_squares() -> Any:
    return cp.Problem(cp.Minimize(cp.sum_squares(cp.Variable(D) - 1.0)))


def small_svm() -> Any:
    w = cp.Variable(D)
    return cp.Problem(cp.Minimize(loss(w) + cp.sum_squares(w)))


@pytest.fixture
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process."""
    monkeypatch.setattr(request, "ALREADY_SAID", [])


def said(problem: Any, **options: Any) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        problem.solve(method="screen", **options)
    return [w for w in found if issubclass(w.category, NotScreenedWarning)]


@pytest.mark.usefixtures("nothing_said")
def test_the_first_problem_that_is_not_recognised_gives_one_warning_where_it_was_solved() -> None:
    problem = least_squares()
    (warning,) = said(problem)
    text = str(warning.message)
    assert problem.solver_stats.extra_stats["cvxscreen"].reason in text
    assert "cvxscreen.explain(prob)" in text
    assert warning.filename == __file__
    assert not said(problem)
    assert not said(least_squares())


@pytest.mark.usefixtures("nothing_said")
def test_a_loss_that_cannot_be_screened_gives_the_warning_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cvxscreen.cvxpy_plugin.request.STEP_ASIDE", True)
    w = cp.Variable(D)
    losses = cp.sum(cp.logistic(np.ones((5000, D)) @ w))
    logistic = cp.Problem(cp.Minimize(losses + cp.sum_squares(w)))
    (warning,) = said(logistic)
    assert "logistic" in str(warning.message)
    assert warning.filename == __file__
    assert not said(logistic)


@pytest.mark.usefixtures("nothing_said")
def test_what_is_recognised_or_left_to_cvxpy_for_its_size_gives_no_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not said(small_svm())
    few = cp.Variable(N)
    as_many = cp.Problem(cp.Minimize(cp.tv(few) + cp.sum_squares(few)))
    assert not said(as_many)
    assert "cannot pay" in as_many.solver_stats.extra_stats["cvxscreen"].reason
    monkeypatch.setattr("cvxscreen.cvxpy_plugin.request.STEP_ASIDE", True)
    assert not said(least_squares())
    assert said(least_squares(), always=True)


@pytest.mark.usefixtures("nothing_said")
def test_verbose_says_it_every_time(capsys: pytest.CaptureFixture[str]) -> None:
    problem = least_squares()
    for _ in range(2):
        said(problem, verbose=True)
        assert "solved plainly by CVXPY, because" in capsys.readouterr().out


def test_a_negative_square_names_its_variable_and_what_to_add() -> None:
    w = cp.Variable(D, name="w")
    slightly = cp.psd_wrap(np.diag([-1e-9, 1.0, 1.0, 1.0, 1.0]))
    text = reason(loss(w) + cp.quad_form(w, slightly))
    assert "an entry of variable w has a negative weight (-1e-09)" in text
    assert "`+ 1e-09 * cp.sum_squares(...)`" in text


def test_a_variable_without_a_name_is_told_by_its_shape_and_place() -> None:
    xi, w = cp.Variable(N), cp.Variable(D, name="w")
    data = np.random.default_rng(0).standard_normal((N, D))
    text = reason(
        cp.sum_squares(w) + cp.sum(xi), data @ w >= 1 - xi, xi >= 0, cp.sum(xi) <= 5
    )
    assert f"unnamed variable {xi.name()} of shape ({N},) is shared" in text
    assert f"in the constraint sum({xi.name()}) <= 5.0 (a slack" in text


def test_a_constraint_is_written_out_once_for_a_variable_not_for_each_of_its_coordinates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def counted(expr: Any) -> str:
        asked.append(str(expr))
        return "there"

    monkeypatch.setattr(standard, "written", counted)
    u, v = cp.Variable(D), cp.Variable(D)
    A = np.random.default_rng(1).standard_normal((20, D))
    found = cvxscreen.explain(cp.Problem(cp.Minimize(loss(u) + loss(-v)), [A @ u <= A @ v]))
    assert found.recognised
    assert len(asked) == 2


def test_an_objective_that_is_not_finite_at_a_test_point_is_said_to_be_so() -> None:
    w, scale = cp.Variable(D), cp.Variable()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # CVXPY's, of its own atom
        text = reason(loss(w) + cp.quad_over_lin(w, scale))
    assert "outside its domain" in text


def test_nan_in_the_data_is_said_also_where_variables_have_values() -> None:
    w, data = cp.Variable(D), np.ones((N, D))
    data[3, 1] = np.nan
    w.value = np.ones(D)
    assert "NaN" in reason(cp.sum(cp.pos(1 - data @ w)) + cp.sum_squares(w))


def test_verify_of_variables_with_bounds() -> None:
    w = cp.Variable(D, bounds=[-1.0, 0.01])
    assert cvxscreen.verify(cp.Problem(cp.Minimize(loss(w) + cp.sum_squares(w)))).agrees


def test_a_path_of_what_is_not_recognised_has_no_gaps() -> None:
    w, lam = cp.Variable(D), cp.Parameter(nonneg=True)
    data = np.random.default_rng(0).standard_normal((N, D))
    problem = cp.Problem(cp.Minimize(lam * cp.sum_squares(w) + cp.sum(cp.logistic(-data @ w))))
    path = cvxscreen.path(problem, lam, [1.0, 0.1])
    assert [point.relative_gap for point in path.points] == [None, None]


def test_a_chain_of_variables_is_refused_after_a_few_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cumulative sum of n numbers would take n rounds, each over all rows."""
    rounds = []
    look = elimination._definitions
    monkeypatch.setattr(
        elimination, "_definitions", lambda *given: rounds.append(1) or look(*given)
    )
    w, wealth = cp.Variable(D), cp.Variable(N)
    moves = np.random.default_rng(0).standard_normal((N, D)) @ w
    assert "defined by the one before" in reason(
        cp.sum(cp.abs(wealth - 1.0)) + cp.sum_squares(w),
        wealth[0] == moves[0], wealth[1:] == wealth[:-1] + moves[1:],
    )
    assert len(rounds) < N // 2


def test_the_constraint_that_holds_a_slack_variable_is_found_behind_others() -> None:
    w, xi = cp.Variable(D), cp.Variable(N)
    X = np.random.default_rng(0).standard_normal((N, D))
    held = reason(
        cp.sum_squares(w) + cp.sum(xi), w[0] >= 0.125, cp.norm(w) <= 8.0, X @ w >= 1 - xi, xi >= 0,
        cp.norm(w[1:]) <= 7.0, cp.sum(xi) <= 5.0,
    )
    assert "xi" in held or "shared" in held
    assert "<= 5.0" in held
