"""What solves have taken decides: what is waited for, tried, and not tried again."""

from __future__ import annotations

from itertools import count
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from sized_problems import (
    fit,
    lasso,
    limited,
    linear_program,
    loop,
    shrunk,
    sparse_svm,
    without_squares,
    words,
)

import cvxscreen
from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin import history, plugin, request, size
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise
from cvxscreen.cvxpy_plugin.size import measure

cvxpy_plugin.register()


@pytest.fixture(autouse=True)
def deciding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "STEP_ASIDE", True)


def test_the_first_small_problems_of_a_process_wait_for_no_import(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until they have taken about as long; larger ones, and long loops, do not wait at all."""
    monkeypatch.setattr(history.RENT, "paid", 0.0)
    monkeypatch.setattr(history, "_imported", lambda: False)
    for small in (fit(4000, 10, cp.huber), fit(60, 400, cp.pos), limited(3000, 10, cp.huber)):
        assert "import" in request.Request().why_plain(small)
    numerous = fit(12_000, 10, cp.huber), limited(4000, 10, cp.huber)
    for large in (fit(2000, 10), loop(300), fit(400, 1000, cp.pos), *numerous):
        monkeypatch.setattr(history.RENT, "paid", 0.0)
        monkeypatch.setattr(history, "_imported", lambda: False)
        assert not request.Request().why_plain(large)
    monkeypatch.setattr(history.RENT, "paid", 0.0)
    estimated = measure(fit(300, 10)).seconds()
    clock = count(step=estimated)  # CVXPY takes as long as that
    monkeypatch.setattr(history, "thread_time", lambda: next(clock))
    screened = []
    for _ in range(6):
        problem = fit(300, 10)
        problem.solve(method="screen")
        report = request.Report.of(problem)
        screened.append(report.recognised)
        assert report.recognised or "import" in report.reason
    waiting = int(np.ceil(size.FIRST / estimated)) - 1
    assert screened == [False] * waiting + [True] * (6 - waiting)
    assert 0 < waiting < 6
    monkeypatch.setattr(history.RENT, "paid", 0.0)
    monkeypatch.setattr(history, "thread_time", lambda: 0.0)
    for _ in range(6):  # what CVXPY does at once
        problem.solve(method="screen")
        assert "import" in request.Report.of(problem).reason
    monkeypatch.setattr(history.RENT, "paid", 0.0)
    assert not request.Request(always=True).why_plain(problem)
    monkeypatch.setattr(history, "_imported", lambda: True)
    assert not request.Request().why_plain(fit(300, 10))
    assert history.RENT.paid == 0.0


def test_what_takes_no_compiled_loops_waits_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses without squares beside an L1 norm: at once where Clarabel takes long enough."""
    monkeypatch.setattr(history.RENT, "paid", 0.0)
    monkeypatch.setattr(history, "_imported", lambda: False)
    assert not request.Request().why_plain(shrunk(4000, 20))
    middling = shrunk(2500, 12)
    assert "import" in request.Request().why_plain(middling)
    monkeypatch.setattr(history, "_imported", lambda: True)
    assert not request.Request().why_plain(middling)
    assert "small (1510 terms)" in request.Request().why_plain(shrunk(1500, 10))
    monkeypatch.setattr(history, "_imported", lambda: False)
    history.RENT.paid = 0.06  # what a plain solve of it has taken
    assert not request.Request().why_plain(middling)


def test_rows_of_a_linear_program_wait_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """They pay later from a third on of what they have to take in a new process."""
    monkeypatch.setattr(history.RENT, "paid", 0.0)
    monkeypatch.setattr(history, "_imported", lambda: False)
    middling = linear_program(6000, 16)
    assert not request.Request().why_plain(linear_program(8000, 24))
    assert "import" in request.Request().why_plain(middling)
    monkeypatch.setattr(history, "_imported", lambda: True)
    assert not request.Request().why_plain(middling)
    assert "small" in request.Request().why_plain(linear_program(6000, 8))


def test_what_takes_compiled_loops_waits_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts, and squares beside an L1 norm alone: a few tenths of a second, once a process."""
    monkeypatch.setattr(history.RENT, "paid", 0.0)
    monkeypatch.setattr(history, "_imported", lambda: True)
    monkeypatch.setattr(history, "loops_loaded", lambda: False)
    asked = request.Request()
    huber = cp.Problem(without_squares(30_000, 8, cp.huber).objective)
    assert not asked.why_plain(huber)
    normed = cp.Problem(huber.objective + cp.Minimize(cp.norm1(huber.variables()[0])))
    for problem in (lasso(900, 100), normed):  # the interior point method is done before
        assert not asked.why_plain(problem)
    small = [lasso(300, 400), lasso(1100, 115), sparse_svm(words(1000, 200, 10))]
    for problem in small:
        assert "import" in asked.why_plain(problem)
    large = [lasso(3500, 360), sparse_svm(words(2000, 2000, 20)), sparse_svm(words(6000, 300, 15))]
    numpy_alone = [fit(2000, 10), fit(60, 400, cp.pos), sparse_svm(words(3000, 100, 15))]
    for problem in (*large, *numpy_alone):
        assert not asked.why_plain(problem)
    history.RENT.paid = 0.6  # what plain solves of them have taken
    assert not asked.why_plain(lasso(300, 400))
    monkeypatch.setattr(history.RENT, "paid", 0.0)
    monkeypatch.setattr(history, "loops_loaded", lambda: True)
    for problem in small:
        assert not asked.why_plain(problem)


def test_solves_that_cvxpy_does_at_once_do_not_count_towards_what_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history, "_imported", lambda: False)
    for took, counted in ((0.009, 0.0), (0.02, 0.02)):
        clock = iter((1.0, 1.0 + took))
        monkeypatch.setattr(history, "thread_time", lambda: next(clock))  # noqa: B023 - used at once
        monkeypatch.setattr(history.RENT, "paid", 0.0)
        with history.RENT.paying():
            pass
        assert history.RENT.paid == pytest.approx(counted)


def test_what_a_plain_solve_has_taken_counts_for_more_than_an_estimate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """OSQP takes up to ten times what sizes tell; the second solve of the same problem knows."""
    problem = shrunk(1500, 10)
    assert "small" in request.Request().why_plain(problem)
    value = problem.solve(method="screen")
    assert not request.Report.of(problem).recognised
    assert 0.0 < history.history(problem).solving < 10.0
    history.history(problem).solving = 0.5
    assert not request.Request().why_plain(problem)
    monkeypatch.setattr(history, "_imported", lambda: False)
    monkeypatch.setattr(history.RENT, "paid", 0.0)
    assert not request.Request().why_plain(problem)
    assert plugin.most_seconds(recognise(problem).problem, problem) >= 0.5
    assert problem.solve(method="screen") == pytest.approx(value, rel=1e-6)
    assert request.Report.of(problem).recognised
    little = cp.Problem(cp.Minimize(cp.norm1(cp.diff(cp.Variable(50)) - 1)))
    history.history(little).solving = 9.0
    assert "nothing to be saved" in request.Request().why_plain(little)


def test_what_two_solvers_have_taken_is_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """OSQP at its limit, and Clarabel after it."""
    problem = shrunk(1500, 10)

    def at_its_limit(asked: Any, *_: Any, **options: Any) -> None:
        history.history(asked).solving = 2.0
        asked._status = cp.USER_LIMIT

    def another(asked: Any, *_: Any) -> float:
        history.history(asked).solving = 0.25
        return 7.0

    monkeypatch.setattr(request, "plain", at_its_limit)
    monkeypatch.setattr(request, "supplied", lambda _: another)
    assert problem.solve(method="screen") == 7.0
    assert history.history(problem).solving == 2.25


def weighed(weight: float = 1.0) -> tuple[cp.Problem, cp.Parameter]:
    rng = np.random.default_rng(3)
    X, w = rng.standard_normal((200, 5)), cp.Variable(5)
    parameter = cp.Parameter(nonneg=True, value=weight)
    losses = cp.sum(cp.pos(1 - X @ w))
    return cp.Problem(cp.Minimize(losses + parameter * cp.sum_squares(w))), parameter


def test_what_cvxpy_goes_on_from_is_left_to_it_while_nothing_changes() -> None:
    """OSQP has it after 25 steps; with other numbers, or asked otherwise, it is screened."""
    problem, weight = weighed()
    asked = request.Request()
    assert not asked.why_plain(problem)
    request.plain(problem, asked, "a first solve")
    assert problem.solver_stats.solver_name == "OSQP"
    value = problem.value
    problem.solve(method="screen")
    assert "nothing has changed" in request.Report.of(problem).reason
    assert problem.solver_stats.solver_name == "OSQP"
    assert problem.solver_stats.num_iters <= 25
    assert problem.value == pytest.approx(value, rel=1e-6)
    for other in ({"always": True}, {"mode": "safe"}, {"solver": "OSQP"},
                  {"options": {"warm_start": False}}):
        assert not request.Request(**other).why_plain(problem)
    weight.value = 2.0
    problem.solve(method="screen")
    assert request.Report.of(problem).recognised
    weight.value = 1.0
    assert "nothing has changed" in asked.why_plain(problem)  # OSQP still has that answer


def test_complex_parameters_are_remembered_like_others() -> None:
    x, p = cp.Variable(2, complex=True), cp.Parameter(complex=True)
    problem = cp.Problem(cp.Maximize(cp.sum(cp.real(x) + cp.imag(x))), [cp.abs(p * x) <= 2.0])
    for value in (1.0 + 0.5j, 1.0 + 0.5j, 1.0 - 2.0j):
        p.value = np.complex128(value)
        found = problem.solve(method="screen", solver="SCS", eps=1e-7)
        assert found == pytest.approx(4.0 * np.sqrt(2.0) / abs(value), rel=1e-4)


def test_what_a_limit_of_steps_was_for_goes_on_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """CVXPY compiles anew for another solver; a limit that nobody asks for now is not its."""
    problem, _ = weighed()
    monkeypatch.setattr(request, "PATIENCE", 0.0)
    few = request.with_fewer_steps(problem, request.Request())
    assert few.options == {"max_iter": request.FEWEST_OF_SMALL}
    request.plain(problem, few, "it is small")
    assert request.within_patience(problem, request.Request(), request.AS_IT_WAS) == few
    problem.solve(method="screen")
    assert problem.solver_stats.num_iters <= 25
    request.plain(problem, request.Request("OSQP", options={"max_iter": 5000}), "asked so")
    assert request.going_on(problem, request.Request()) is None


def test_answers_that_nothing_goes_on_from_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clarabel's, those that OSQP is not sure of, and those of many numbers."""
    problem, weight = weighed()
    request.plain(problem, request.Request(), "", "CLARABEL")
    assert history.history(problem).answered is None
    with pytest.warns(UserWarning, match="inaccurate"):
        request.plain(problem, request.Request(options={"max_iter": 1}), "")
    assert history.history(problem).answered is None
    monkeypatch.setattr(history, "MOST_COMPARED", 0)
    request.plain(problem, request.Request(), "")
    assert history.history(problem).answered is None
    monkeypatch.setattr(history, "MOST_COMPARED", 1)
    request.plain(problem, request.Request(), "")
    assert history.as_it_was(problem)
    weight.value = 3.0
    assert not history.as_it_was(problem)


def test_what_was_in_vain_is_tried_again_when_plain_solves_have_taken_five_times_as_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history.RENT, "paid", 9.0)
    problem, tried = sparse_svm(words(600, 600, 30)), []

    def too_slow(*_: Any) -> Any:
        tried.append(1)
        raise plugin.TooSlow("it took too long")

    monkeypatch.setattr(plugin, "run", too_slow)
    problem.solve(method="screen")
    assert request.Report.of(problem).reason == "it took too long"
    known = history.history(problem)
    assert known.vain > 0.0 < known.since
    known.vain, known.since = 1.0, 4.5
    problem.solve(method="screen")
    report = request.Report.of(problem)
    assert "1 s in vain, and CVXPY 4.5 s" in report.reason
    assert report.solver == "OSQP"  # CVXPY's own choice, as without us
    assert len(tried) == 1
    assert known.since > 4.5
    problem.solve(method="screen", always=True)
    assert len(tried) == 2
    known.vain, known.since = 1.0, 5.5
    problem.solve(method="screen")
    assert len(tried) == 2  # OSQP goes on from its answer
    known.answered = None
    problem.solve(method="screen")
    assert len(tried) == 3
    assert known.vain > 1.0
    other = fit(150, 10)
    other.solve(method="screen")
    assert history.history(other).vain == history.history(other).since == 0.0


def asked_again(plain: float) -> Any:
    """A small problem that CVXPY has solved six times, in so many seconds each but the first."""
    problem = fit(150, 10)
    for seconds in (9.0, *[plain] * 5):
        history.history(problem).count_plain(seconds)
    return problem


def test_a_small_problem_that_is_asked_again_and_again_is_tried() -> None:
    problem = asked_again(0.9 * history.OF_TRIAL / 5)  # its first solve does not count
    problem.solve(method="screen")
    assert request.Report.of(problem).reason.startswith(size.SMALL)
    problem = asked_again(1.1 * history.OF_TRIAL / 5)
    for _ in range(4):
        problem.solve(method="screen")
        assert request.Report.of(problem).recognised
    # A call that has loaded something does not count, others that are slower end the trial.
    history.history(problem).count_trial(9.0, True)
    assert history.on_trial(problem)
    for _ in range(3):
        history.history(problem).count_trial(0.1, True)
    problem.solve(method="screen")
    assert request.Report.of(problem).reason.startswith(size.SMALL)


def test_where_cvxpy_is_quick_or_nothing_can_be_screened_nothing_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(history, "OF_TRIAL", 0.0)
    problem = asked_again(0.9 * size.NO_QUICKER)
    problem.solve(method="screen")
    assert request.Report.of(problem).reason.startswith(size.SMALL)
    problem, tried = asked_again(2.0), []

    def refuse(*_: Any) -> Any:
        tried.append(1)
        raise cvxscreen.NotScreenable("it cannot be screened")

    monkeypatch.setattr(plugin, "recognise_any", refuse)
    for _ in range(3):
        problem.solve(method="screen")
    assert len(tried) == 1
    assert request.Report.of(problem).reason.startswith(size.SMALL)
