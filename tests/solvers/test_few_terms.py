"""A solve from near the last one: the optimum, or a word that it is too far; never a wrong one."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

import cvxscreen
from cvxscreen._support.compiled import CompileClock
from cvxscreen.certificates.certificate import certify
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows
from cvxscreen.solvers import dual_coordinate_descent, few_terms, loop, registry, solve
from cvxscreen.solvers.compiled_path import segments
from cvxscreen.solvers.compiled_path.segments import KeptPath
from cvxscreen.solvers.few_terms import CHANGES, MOST, Continuation, Curvature, Sides, solve_few
from cvxscreen.solvers.newton import Newton

LOSSES = ("hinge", "squared", "absolute", "quantile", "huber", "epsilon")


def problem_of(loss: str, intercept: bool, n: int = 600, d: int = 6) -> Problem:
    """Overlapping classes, or a noisy line."""
    if loss in ("hinge", "squared"):
        X, y = cvxscreen.datasets.two_gaussians(n, d, bayes_error=0.15)
        kind = "hinge" if loss == "hinge" else "squared_hinge"
        return cvxscreen.svm(X, y, loss=kind, intercept=intercept)
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n, d))
    y = X @ rng.standard_normal(d) + rng.standard_t(3, n)
    return cvxscreen.regression(X, y, loss=loss, intercept=intercept)


def after(problem: Problem) -> Continuation:
    """What is known once it was solved."""
    with np.errstate(all="ignore"):
        return Continuation.of(problem, solve_few(problem, 1e-12)[0])


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_along_a_path_every_answer_is_certified(loss: str, intercept: bool) -> None:
    """Up and down, by small and by large steps; only a part of the terms is looked at."""
    problem = problem_of(loss, intercept).with_(C=0.01)
    near, found = after(problem), 0
    for step in (1.15,) * 12 + (0.9,) * 4 + (1.0, 1.0 + 1e-9, 1.5, 0.6):
        problem = problem.with_(C=problem.C * step)
        factor = near.factor(problem)
        assert factor == pytest.approx(step, rel=1e-9)
        with np.errstate(all="ignore"):
            answer = near.solve(problem, factor, 1e-12)
        if answer is None:
            near = after(problem)
            continue
        x, theta, _ = answer
        proof = certify(problem, x, theta, tol=1e-8)
        assert proof.ok, (step, proof.reason)
        found += 1
    assert found >= 15


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_a_few_systems_settle_the_pieces_of_losses_without_kinks(
    loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last digits; where they do not settle, what is undecided is solved for as before."""
    problem = problem_of(loss, True).with_(C=0.05)
    for most, fewest, systems in ((few_terms.PIECES, 2, 6), (1, 5, 80)):
        monkeypatch.setattr(few_terms, "PIECES", most)
        near, asked = after(problem), problem
        for _ in range(5):
            asked = asked.with_(C=asked.C * 1.2)
            with np.errstate(all="ignore"):
                answer = near.solve(asked, near.factor(asked) or 0.0, 1e-12)
            assert answer is not None
            assert fewest <= answer[2] <= systems
            assert certify(asked, *answer[:2], tol=1e-10).ok


@pytest.mark.parametrize("loss", ["hinge", "absolute", "epsilon"])
def test_slopes_at_an_end_are_that_end_to_the_last_bit(loss: str) -> None:
    """After many steps, and in other units: nearly the end would be a term inside its box."""
    problem = problem_of(loss, True).with_(C=0.01)
    near, taken = after(problem), 0
    for _ in range(12):
        problem = problem.with_(C=problem.C * 1.1)
        answer = near.solve(problem, near.factor(problem) or 0.0, 1e-12)
        assert answer is not None
        theta, taken = answer[1], taken + answer[2]
    assert taken <= 12 * 11  # systems that are solved roughly took a third more
    f = problem.losses
    far = np.minimum(theta - f.lo, f.hi - theta) <= 1e-9 * (f.hi - f.lo)
    assert far.sum() > 0.9 * problem.n
    assert ((theta == f.lo) | (theta == f.hi))[far].all()
    squares = problem.quadratic.scaled(0.37)
    asked = solve.InUnits.of(replace(problem, quadratic=squares))
    unit = asked.unit.losses
    assert asked.size == pytest.approx(0.37)
    assert np.array_equal(asked.slopes(unit.lo), f.lo)
    assert np.array_equal(asked.slopes(unit.hi), f.hi)


@pytest.mark.parametrize("loss", LOSSES)
def test_what_was_predicted_wrongly_is_found(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Margins that are said to stay where they are not: opened again, or given up."""
    problem = problem_of(loss, True).with_(C=0.01)
    near = after(problem)
    rng = np.random.default_rng(0)
    monkeypatch.setattr(few_terms, "ROUNDS", 20)
    near.z = near.z + 0.3 * np.abs(near.z).mean() * rng.standard_normal(len(near.z))
    near.error = 1e-6
    problem = problem.with_(C=0.012)
    with np.errstate(all="ignore"):
        answer = near.solve(problem, 1.2, 1e-12)
    assert answer is None or certify(problem, *answer[:2], tol=1e-8).ok


def test_a_sum_that_follows_changes_is_the_one_made_anew() -> None:
    """At other costs, and after more changes than it takes; also where most of it goes."""
    problem = problem_of("huber", True)
    rows = problem.design.dense().copy()
    rows[0] *= 1e8
    problem = replace(problem, design=Rows(rows))
    sides, kept, rng = Sides.of(problem), Curvature(), np.random.default_rng(4)
    curved = rng.random(len(sides.q)) < 0.5
    for k in range(2 * CHANGES):
        curved = curved ^ (rng.random(len(curved)) < 0.02)
        curved[sides.terms == 0] = k % 20 < 10
        sides = sides.at(problem.losses.scaled(1.0 + 0.01 * k))
        some = np.flatnonzero(curved)
        anew = sides.gram(some, 1.0 / sides.q[some])
        np.testing.assert_allclose(kept.of(sides, curved), anew, rtol=1e-9)
    assert 0 < kept.changes < CHANGES


def test_other_data_and_far_steps_are_no_neighbours() -> None:
    """Nor are losses that differ by more than one factor."""
    problem = problem_of("hinge", True)
    near = after(problem)
    assert near.factor(problem.with_(C=1.2)) == pytest.approx(1.2)
    assert near.factor(problem.with_(C=10.0)) is None
    assert near.factor(problem_of("hinge", True)) is None
    rng = np.random.default_rng(1)
    unequal = problem.losses.weighted(rng.uniform(0.9, 1.1, problem.n))
    assert near.factor(replace(problem, losses=unequal)) is None


def test_where_everything_may_move_nothing_is_left_out() -> None:
    """As many terms are undecided as would be solved for anew."""
    near = after(problem_of("hinge", False))
    near.error = 1e6
    assert MOST < 1.0
    assert near.solve(near.problem.with_(C=1.1), 1.1, 1e-12) is None


def test_the_engine_goes_on_from_near_while_nothing_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From its first answer on, or from the loop's where terms are many; not after a far step."""
    monkeypatch.setattr(solve, "before_loading", lambda problem: True)
    monkeypatch.setattr(solve, "charge", lambda *arguments, **named: None)
    anew: list[int] = []
    whole = solve.solve_uncompiled
    monkeypatch.setattr(
        solve, "solve_uncompiled", lambda *given: (anew.append(1), whole(*given))[1]
    )
    for n, first in ((600, [1]), (3000, [])):
        problem, kept = problem_of("hinge", True, n), KeptPath()
        anew.clear()
        for step in (0.01, 0.011, 0.012):
            found = solve.solve_problem(problem.with_(C=step), tol=1e-10, kept=kept)
            assert found.status == "optimal"
            assert kept.near is not None
            alone = cvxscreen.solve(problem.with_(C=step), solver="newton", tol=1e-10)
            assert found.value == pytest.approx(alone.value, rel=1e-9)
        assert anew == first
        solve.solve_problem(problem.with_(C=10.0), tol=1e-10, kept=kept)
        assert anew == 2 * first


def test_near_goes_on_where_numba_is_imported_and_nothing_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A machine that compiles nothing yet: the loop of screening is not gone back to."""
    monkeypatch.setattr(solve, "before_loading", lambda problem: False)
    monkeypatch.setattr(solve, "ready", lambda: False)
    monkeypatch.setattr(solve, "at_hand", lambda loop: False)
    problem, kept, rounds = problem_of("hinge", True, 3000), KeptPath(), []
    for C in (0.01, 0.011, 0.012):
        found = solve.solve_problem(problem.with_(C=C), tol=1e-10, kept=kept)
        assert found.status == "optimal"
        assert kept.near is not None
        rounds.append(found.rounds[-1].solver_info)
    assert [set(info) == {"steps", "passes"} for info in rounds] == [False, True, True]


@pytest.mark.parametrize("loss", ["squared", "huber", "absolute"])
def test_under_an_l1_norm_no_loop_is_waited_for(
    loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dense data of few columns go to the interior point method until loading is due."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((400, 8))
    y = X[:, 0] - 2 * X[:, 1] + rng.standard_t(3, 400)
    if loss == "squared":
        problem = cvxscreen.regression(X, y, C=0.05, loss=loss, penalty="l1")
    else:
        held = cvxscreen.regression(X, y, loss=loss)
        problem = replace(held, penalty=L1(np.full(8, 20.0)))
    assert not registry.sooner_than_loops(problem)
    loops = cvxscreen.solve(problem, tol=1e-9)
    clock = CompileClock(0.25)
    monkeypatch.setattr(segments, "LOADING", clock)
    monkeypatch.setattr(segments, "newton", SimpleNamespace(loaded=False))
    found = cvxscreen.solve(problem, tol=1e-9)
    assert found.certificate.ok
    np.testing.assert_allclose(found.x, loops.x, atol=1e-6)
    while registry.sooner_than_loops(problem):  # rented before it is bought
        spent = clock.spent
        assert cvxscreen.solve(problem).solver == found.solver == "INTERIOR_POINT"
        assert clock.spent > spent
    assert cvxscreen.solve(problem).solver == loops.solver


def test_few_sparse_rows_wait_for_no_loop_beside_parabolas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Newton's method answers until loading is due; kinks and large C do not wait."""
    X = sp.random(400, 300, 0.05, "csr", random_state=0)
    y = np.where(np.random.default_rng(0).random(400) < 0.4, 1.0, -1.0)
    problem = cvxscreen.svm(X, y, C=0.1, loss="squared_hinge", intercept=True)
    assert not registry.newton_before_loops(problem)
    loops = cvxscreen.solve(problem, tol=1e-9)
    clock = CompileClock(0.1)
    monkeypatch.setattr(segments, "LOADING", clock)
    monkeypatch.setattr(segments, "newton", SimpleNamespace(loaded=False))
    monkeypatch.setattr(dual_coordinate_descent, "descend", SimpleNamespace(loaded=False))
    assert not registry.newton_before_loops(problem)  # numba is there
    monkeypatch.setattr(registry, "not_imported", lambda: True)
    assert not registry.newton_before_loops(cvxscreen.svm(X, y, C=0.1, intercept=True))
    assert not registry.newton_before_loops(problem.with_(C=1e4))
    asked, plain = [], loop.solve_screened
    monkeypatch.setattr(
        loop, "solve_screened",
        lambda problem, inner, **more: asked.append(inner) or plain(problem, inner, **more),
    )
    found = cvxscreen.solve(problem, tol=1e-9)
    assert found.certificate.ok
    np.testing.assert_allclose(found.x, loops.x, atol=2e-4)  # the root of twice the gap
    while registry.newton_before_loops(problem):  # rented before it is bought
        spent = clock.spent
        cvxscreen.solve(problem)
        assert clock.spent > spent
    assert len(asked) > 1
    assert all(isinstance(solver, Newton) for solver in asked)
    cvxscreen.solve(problem)
    assert asked[-1] is None
    monkeypatch.setattr(segments, "LOADING", CompileClock(0.1))
    monkeypatch.setattr(registry, "FEW_STORED", X.nnz)
    assert not registry.newton_before_loops(problem)


ALONE = """
import sys
import numpy as np
import scipy.sparse as sp
import cvxscreen

X = sp.random(400, 300, 0.05, "csr", random_state=0)
y = np.where(np.arange(400) % 3, 1.0, -1.0)
found = cvxscreen.solve(cvxscreen.svm(X, y, C=0.1, loss="squared_hinge"))
assert found.certificate.ok
assert "numba" not in sys.modules
"""


def test_the_first_solve_of_a_process_over_few_sparse_rows_imports_no_compiler() -> None:
    """Numba is 0.35 CPU seconds."""
    done = subprocess.run(
        [sys.executable, "-c", ALONE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
