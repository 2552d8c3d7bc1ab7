"""One table of engines for one value and for many; what is compiled, and when that pays."""

from __future__ import annotations

import numpy as np
import pytest
from strategies import LOSSES, Case, build

import cvxscreen
from cvxscreen.datasets import two_gaussians
from cvxscreen.paths import run as path_run
from cvxscreen.solvers import registry, solve
from cvxscreen.solvers.compiled_path import segments
from cvxscreen.solvers.compiled_path.segments import CompileClock

X, Y = two_gaussians(700, 5, bayes_error=0.1)


@pytest.fixture
def nothing_ready(monkeypatch: pytest.MonkeyPatch) -> CompileClock:
    """A machine that has compiled nothing yet, with a price that is never reached."""
    clock = CompileClock(np.inf)
    for module in (segments, path_run, solve):
        monkeypatch.setattr(module, "PARTS", clock)
    for module in (path_run, solve):
        monkeypatch.setattr(module, "ready", lambda: clock.due)
    return clock


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("intercept", [False, True])
def test_solve_takes_the_engine_of_a_path(loss: str, intercept: bool, monkeypatch) -> None:
    """One round, certified anew; the same optimum as the ordinary loop's, and as much proven."""
    problem = build(Case(loss, intercept, n=500))
    assert registry.engine(problem).name == "compiled_path"
    theirs = cvxscreen.solve(problem, solver="newton", tol=1e-8)
    monkeypatch.setattr(solve, "solve_screened", None)
    ours = cvxscreen.solve(problem, tol=1e-8)
    assert ours.status == "optimal"
    assert len(ours.rounds) == 1
    assert cvxscreen.certify(problem, ours.x, ours.theta, tol=1e-8).ok
    assert abs(ours.value - theirs.value) <= ours.certificate.gap + theirs.certificate.gap
    assert ours.screening.zero.mean() == pytest.approx(theirs.screening.zero.mean(), abs=0.02)


def test_what_the_compiled_loop_cannot_do_goes_to_the_ordinary_one(monkeypatch) -> None:
    """Bounds, a start, a limit, proofs before solving, or a solver by name."""
    problem = cvxscreen.svm(X, Y)
    start = cvxscreen.solve(problem.with_(C=0.5))
    monkeypatch.setattr(solve, "solve_one", None)
    for options in (
        {"mode": "safe"}, {"bounds": ["midpoint"]}, {"start": start}, {"max_iter": 100},
        {"time_limit": 100.0}, {"solver": "newton"}, {"progress": True},
    ):
        assert cvxscreen.solve(problem, **options).status == "optimal"


def test_a_refused_answer_is_solved_again(monkeypatch) -> None:
    """By the ordinary loop, whatever the compiled one claims."""
    problem, real = cvxscreen.svm(X, Y), segments.run

    def lying(arguments, first):
        count = real(arguments, first)
        arguments[-1].X[:count] *= 1.001
        return count

    monkeypatch.setattr(segments, "run", lying)
    found = cvxscreen.solve(problem, tol=1e-8)
    assert found.status == "optimal"
    assert cvxscreen.certify(problem, found.x, found.theta, tol=1e-8).ok


def test_small_problems_do_not_wait_for_a_compiler(nothing_ready: CompileClock) -> None:
    """The ordinary loop answers, and its time is counted; compiled once it is due."""
    problem = cvxscreen.svm(X, Y)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(path_run, "CompiledPath", None)
        patch.setattr(solve, "solve_one", None)
        solved = cvxscreen.solve(problem)
        spent = nothing_ready.spent
        path = cvxscreen.path(problem, values=[0.1, 1.0])
    assert spent > 0
    assert nothing_ready.spent > spent
    again = cvxscreen.path(problem, values=[0.1, 1.0])
    for other in (path.points[1], again.points[1]):
        assert abs(other.objective - solved.value) <= other.gap + solved.certificate.gap
    nothing_ready.price = 0.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(vars(path_run), "_one", None)
        assert cvxscreen.path(problem, values=[0.1, 1.0]).finished


def test_a_path_goes_over_to_the_compiled_loop_when_it_is_due(nothing_ready) -> None:
    """After the points that cost as much as compiling: the rest are compiled, from where it is."""
    nothing_ready.price = 1e-9
    found = cvxscreen.path(cvxscreen.svm(X, Y), values=np.geomspace(0.1, 1.0, 5), tol=1e-8)
    assert found.finished
    assert all(point.status == "optimal" for point in found.points)


def test_a_call_buys_one_part_of_the_code_unless_the_rest_of_it_pays_for_all(
    nothing_ready: CompileClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of a short path is not worth the other parts: the next call buys them."""
    problem, asked = cvxscreen.svm(X, Y), []

    def bought() -> bool:
        asked.append(1)
        return len(asked) > 1  # the first question compiles the largest part, and says no

    monkeypatch.setattr(path_run, "ready", bought)
    with monkeypatch.context() as patch:
        patch.setattr(path_run, "CompiledPath", None)
        assert cvxscreen.path(problem, values=np.geomspace(0.1, 1.0, 5)).finished
    assert len(asked) == 1
    with monkeypatch.context() as patch:
        patch.setitem(vars(path_run), "_one", None)
        assert cvxscreen.path(problem, values=np.geomspace(0.1, 1.0, 5)).finished
    asked.clear()
    nothing_ready.price = 1e-9  # what is left costs more than compiling
    compiled = []
    monkeypatch.setattr(
        path_run, "CompiledPath", lambda *given: compiled.append(1) or segments.CompiledPath(*given)
    )
    assert cvxscreen.path(problem, values=np.geomspace(0.1, 1.0, 5)).finished
    assert compiled


def test_the_loop_uncompiled_over_compiled_parts_is_the_same(monkeypatch) -> None:
    """To the last rounding: the time until the loop itself is compiled changes no answer."""
    problem, grid = cvxscreen.svm(X, Y, intercept=True), np.geomspace(0.01, 10.0, 12)
    fast = segments.CompiledPath(problem, "certified", 1e-8).solve(grid)
    monkeypatch.setattr(segments, "LOOP", CompileClock(np.inf))
    monkeypatch.setattr(segments, "on_disk", lambda loop: False)
    slow = segments.CompiledPath(problem, "certified", 1e-8).solve(grid)
    assert slow.proofs.ok.all()
    np.testing.assert_allclose(slow.X, fast.X, rtol=1e-6, atol=1e-9)
    assert segments.LOOP.spent > 0
