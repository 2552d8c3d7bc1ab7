"""Solvers that lie, fail or break: the loop never calls their answer optimal."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
from sparse_cases import make
from strategies import Case, build, honest

from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.problem import Problem
from cvxscreen.solvers import rows_and_columns
from cvxscreen.solvers.interface import Start, SubproblemResult, SubproblemSolver
from cvxscreen.solvers.loop import solve_screened
from cvxscreen.solvers.newton import Newton
from cvxscreen.solvers.prediction import SMALL
from cvxscreen.solvers.prox_newton import ProxNewton
from cvxscreen.solvers.rows import MAX_ROUNDS

LARGE = 3 * SMALL


class MadeSolver(SubproblemSolver):
    """An inner solver made of a function."""

    name = "TEST"

    def __init__(self, answer: Callable[[Problem], SubproblemResult]) -> None:
        self.answer, self.calls = answer, 0

    def __call__(
        self, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> SubproblemResult:
        self.calls += 1
        return self.answer(problem)


def raising(problem: Problem) -> SubproblemResult:
    raise RuntimeError("the solver broke")


def mu(problem: Problem) -> np.ndarray:
    """Multipliers of the right shape."""
    return np.zeros(0 if problem.side is None else len(problem.side.offset))


RNG = np.random.default_rng(4)
BROKEN: dict[str, Callable[[Problem], SubproblemResult]] = {
    "zeros called optimal": lambda p: SubproblemResult(
        "optimal", np.zeros(p.d), np.zeros(p.n), mu(p)
    ),
    "noise called optimal": lambda p: SubproblemResult(
        "optimal", RNG.standard_normal(p.d), RNG.standard_normal(p.n), mu(p)
    ),
    "huge called optimal": lambda p: SubproblemResult(
        "optimal", np.full(p.d, 1e200), np.full(p.n, 1e200), mu(p)
    ),
    "NaN called optimal": lambda p: SubproblemResult(
        "optimal", np.full(p.d, np.nan), np.full(p.n, np.nan), mu(p)
    ),
    "infinite theta called optimal": lambda p: SubproblemResult(
        "optimal", np.zeros(p.d), np.full(p.n, np.inf), mu(p)
    ),
    "NaN multipliers called optimal": lambda p: SubproblemResult(
        "optimal", np.zeros(p.d), np.zeros(p.n), np.nan * mu(p)
    ),
    "no multipliers called optimal": lambda p: SubproblemResult(
        "optimal", np.zeros(p.d), np.zeros(p.n)
    ),
    "wrong shapes called optimal": lambda p: SubproblemResult("optimal", np.zeros(1), np.zeros(1)),
    "empty and failed": lambda p: SubproblemResult("solver_error", np.zeros(0), np.zeros(0)),
    "infeasible": lambda p: SubproblemResult("infeasible", np.zeros(0), np.zeros(0)),
    "raises": raising,
}


def fenced(n: int) -> Problem:
    """A hinge problem in a cone of matrices, so that no built-in solve comes to the rescue."""
    base = build(Case("hinge", n=n, d=4, C=1.0))
    # [[0.1, w_0 + 0.01], [w_0 + 0.01, 0.1]]
    rows = sp.csr_array(([1.0, 1.0], ([1, 2], [0, 0])), shape=(4, 4))
    side = SideConstraints(rows, np.array([0.1, 0.01, 0.01, 0.1]), [("psd", 2)])
    return Problem(base.design, base.losses, base.quadratic, base.linear, side=side)


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("n", [24, 6 * SMALL])
def test_a_broken_solver_never_yields_optimal(name: str, n: int) -> None:
    """Alone with a broken solver: an honest status and a certificate that does not hold."""
    inner = MadeSolver(BROKEN[name])
    solution = honest(solve_screened(fenced(n), inner))
    assert solution.status != "optimal"
    assert not solution.certificate.ok
    assert inner.calls <= MAX_ROUNDS + 1
    assert str(solution)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_solver_beside_the_pilot(name: str) -> None:
    """Without side constraints the built-in solver goes first; the certificate still decides."""
    problem = build(Case("hinge", True, n=LARGE, d=4, C=1.0))
    inner = MadeSolver(BROKEN[name])
    honest(solve_screened(problem, inner))
    assert inner.calls <= MAX_ROUNDS + 1


@pytest.mark.table
@pytest.mark.parametrize("mode", ["certified", "safe"])
@pytest.mark.parametrize("loss", ["huber", "hinge"])
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_solver_under_an_l1_term(
    name: str, loss: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a start and without: no wrong answer is called optimal."""
    problem, calls = make(loss, "dense", 3), []
    best = solve_screened(problem, tol=1e-8)

    def broken(
        self: ProxNewton, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> SubproblemResult:
        calls.append(problem.n)
        return BROKEN[name](problem)

    monkeypatch.setattr(ProxNewton, "__call__", broken)
    for start in (None, Start(0.5 * best.x, best.theta)):
        solution = honest(solve_screened(problem, ProxNewton(), mode=mode, start=start))
        assert solution.status != "optimal"
        assert not solution.certificate.ok
    assert 0 < len(calls) <= 2 * rows_and_columns.MAX_ROUNDS


def test_the_solvers_own_word_is_passed_on() -> None:
    """A failure without any point reports the solver's status."""
    solution = solve_screened(fenced(24), MadeSolver(BROKEN["infeasible"]))
    assert solution.status == "infeasible"
    assert np.isnan(solution.x).all()
    assert "infeasible" in solution.certificate.reason


def test_a_solver_that_fails_once_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure on a predicted problem leads to a wider guess, not to the end."""
    problem = build(Case("hinge", n=LARGE, d=5, C=1.0))
    original, failed = Newton.__call__, []

    def once(self: Newton, problem: Problem, start: Start | None = None,
             target: float = 0.0) -> SubproblemResult:
        if problem.n < LARGE and not failed:
            failed.append(problem.n)
            return SubproblemResult("unbounded", np.zeros(0), np.zeros(0))
        return original(self, problem, start, target)

    monkeypatch.setattr(Newton, "__call__", once)
    start = Start(np.full(problem.d, 0.1), np.full(problem.n, -0.5))
    solution = honest(solve_screened(problem, start=start))
    assert failed
    assert solution.status == "optimal"
