"""Under an L1 term: terms predicted to stay on their piece, and what a reduction leaves going."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from sparse_cases import make

import cvxscreen as cs
from cvxscreen.core.duality import reference_point
from cvxscreen.core.losses import Piece
from cvxscreen.core.problem import Problem
from cvxscreen.solvers.apg import Apg, Momentum
from cvxscreen.solvers.interface import Start, SubproblemResult, SubproblemSolver
from cvxscreen.solvers.loop import solve_screened
from cvxscreen.solvers.prox_newton import rows_and_columns
from cvxscreen.solvers.prox_newton.rows_and_columns import BESIDE, predicted_pieces
from cvxscreen.solvers.prox_newton.solver import ProxNewton
from cvxscreen.solvers.stochastic import Sdca, Spdc
from cvxscreen.solvers.warm_start import warm_start


@pytest.fixture(autouse=True)
def any_size_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little data are treated as large ones are."""
    monkeypatch.setattr(rows_and_columns, "SMALL", 0)
    monkeypatch.setattr(rows_and_columns, "FIRST", 5)


def noisy(n: int = 600, d: int = 40) -> cs.Problem:
    """Terms on all pieces."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((n, d)) / np.sqrt(d)
    w = np.where(np.arange(d) < 8, 3.0, 0.0)
    return cs.sparse_svm(X, np.where(X @ w + 0.3 * rng.standard_normal(n) > 0, 1.0, -1.0), 1.0)


def test_terms_that_bend_or_are_near_to_it_are_worked_on() -> None:
    problem = noisy()
    problem = problem.with_(lam=0.1 * cs.lambda_max(problem))
    best = cs.solve(problem, tol=1e-10)
    point = reference_point(problem, best.x, best.theta)
    codes = predicted_pieces(point, np.zeros(problem.n, dtype=bool))
    actual = problem.losses.piece_within(point.margins, point.margins)
    bends = (actual == Piece.LEFT) | (actual == Piece.RIGHT)
    assert 10 < bends.sum() < 0.4 * problem.n
    out = codes >= 0
    assert not (bends & out).any()
    assert (codes[out] == actual[out]).all()
    ratio = problem.losses.kink_distance(point.margins) / problem.norms
    near = ~out & ~bends
    assert near.sum() == int(BESIDE * bends.sum()) + 1
    assert ratio[near].max() < ratio[out].min()
    kept = np.arange(problem.n) % 2 == 0
    assert ((predicted_pieces(point, kept) < 0) == (kept | ~out)).all()


def test_nothing_is_left_out_where_most_terms_bend() -> None:
    problem = make("huber", "dense", 3, share=0.01)
    problem = problem.with_(lam=1e-3 * problem.lam)
    point = reference_point(problem, cs.solve(problem, tol=1e-8).x)
    bends = problem.losses.piece_within(point.margins, point.margins)
    assert ((bends == Piece.LEFT) | (bends == Piece.RIGHT)).mean() > 0.7
    assert (predicted_pieces(point, np.zeros(problem.n, dtype=bool)) < 0).all()


@pytest.mark.parametrize("inner", [Sdca(), Spdc(), Apg()])
@pytest.mark.parametrize("step", [0.8, 0.05])
def test_what_is_left_out_comes_back_where_it_is_refuted(
    inner: SubproblemSolver, step: float
) -> None:
    """From near by and from far away."""
    base = noisy()
    top = cs.lambda_max(base)
    before = cs.solve(base.with_(lam=0.5 * top), tol=1e-8)
    problem = base.with_(lam=0.5 * step * top)
    found = solve_screened(problem, inner, start=warm_start(problem, before), bounds=())
    plain = solve_screened(problem, inner, mode="safe", bounds=())
    assert found.status == "optimal"
    assert cs.certify(problem, found.x, found.theta, tol=1e-6).ok
    assert found.value == pytest.approx(plain.value, rel=2e-6)
    first = found.rounds[0]
    assert first.kept < 0.7 * problem.n
    assert first.predicted >= problem.n - first.kept
    if step < 0.1:
        assert first.refuted > 0
        assert found.rounds[-1].kept > first.kept


def test_a_solver_of_few_passes_sees_every_term() -> None:
    base = noisy()
    top = cs.lambda_max(base)
    before = cs.solve(base.with_(lam=0.5 * top), tol=1e-8)
    problem = base.with_(lam=0.4 * top)
    found = solve_screened(problem, ProxNewton(), start=warm_start(problem, before), bounds=())
    assert found.status == "optimal"
    assert found.rounds[0].kept == problem.n


def test_proofs_do_not_stop_what_is_in_motion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accelerated gradients go on with their search point on the coordinates that are left."""
    monkeypatch.setattr(rows_and_columns, "SMALL", 50_000)  # every proof that there may be
    problem = noisy()
    problem = problem.with_(lam=0.1 * cs.lambda_max(problem))
    seen: list[tuple[Start | None, SubproblemResult]] = []
    call = Apg.__call__

    def noted(self: Apg, task: Problem, start: Start | None, target: float) -> SubproblemResult:
        seen.append((start, call(self, task, start, target)))
        return seen[-1][1]

    monkeypatch.setattr(Apg, "__call__", noted)
    found = solve_screened(problem, Apg(check=1), mode="safe")
    assert found.status == "optimal"
    widths = [len(result.x) for _, result in seen]
    assert widths[-1] < widths[0]
    for (_, before), (start, _) in pairwise(seen):
        assert start is not None
        assert isinstance(before.state, Momentum)
        assert isinstance(start.state, Momentum)
        assert start.state.weight == before.state.weight
        assert set(start.state.search) <= set(before.state.search)
        assert start.state.search.shape == start.x.shape
