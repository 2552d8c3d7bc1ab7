"""Proofs and reductions in turns under an L1 term: what is proven holds, and passes are saved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sparse_cases import CURVED, KINKED, Truth, make

import cvxscreen as cs
from cvxscreen.bounds import dual_ball, joint, midpoint_ball, synergy
from cvxscreen.bounds.features_and_samples import bound_components, primal_ball
from cvxscreen.bounds.regions import Region
from cvxscreen.core.duality import Point, reference_point
from cvxscreen.core.losses import Piece
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows
from cvxscreen.screening.reduction import Selection
from cvxscreen.screening.verdict import judge
from cvxscreen.solvers.interface import SubproblemResult
from cvxscreen.solvers.loop import solve_screened
from cvxscreen.solvers.prox_newton import rows_and_columns
from cvxscreen.solvers.prox_newton.rows_and_columns import (
    EAGER,
    LITTLE,
    WORTH,
    IndexedSubproblem,
    ScreeningCostModel,
)
from cvxscreen.solvers.prox_newton.solver import ProxNewton
from cvxscreen.solvers.stochastic import Sdca
from cvxscreen.solvers.warm_start import warm_start


@pytest.mark.parametrize("data", ["dense", "sparse", "scaled"])
@pytest.mark.parametrize("loss", [*CURVED, *KINKED])
@pytest.mark.parametrize("inner", [None, Sdca(every=2)])
def test_nothing_wrong_is_proven_in_turns(loss: str, data: str, inner: Sdca | None) -> None:
    """Along a path, whatever the solver, what was proven on reduced problems holds on the full."""
    proven, previous = 0, None
    base = make(loss, data, 5, n=80, d=60, share=1.0)
    for share in (0.7, 0.5, 0.35):
        problem = base.with_(lam=share * base.lam)
        start = None if previous is None else warm_start(problem, previous)
        tol = 1e-6 if loss in CURVED else 1e-4
        found = solve_screened(problem, inner, mode="safe", tol=tol, start=start)
        assert found.status == "optimal"
        previous = found
        truth = Truth.of(problem)
        slack = truth.blur / np.sqrt(problem.quadratic.diagonal)
        assert (np.abs(truth.x[found.earlier.dropped]) <= slack[found.earlier.dropped]).all()
        room = truth.blur * problem.norms + 1e-9 * (1.0 + np.abs(truth.margins))
        codes = found.earlier.codes
        pieces = [problem.losses.piece_within(t, t) for t in
                  (truth.margins - room, truth.margins, truth.margins + room)]
        agrees = np.any([(codes == p) | (p == Piece.UNDECIDED) for p in pieces], axis=0)
        assert agrees[codes >= 0].all()
        proven += int(found.earlier.dropped.sum()) + int((codes >= 0).sum())
    assert proven > 50 or inner is None


def test_turns_reduce_step_by_step() -> None:
    """With a slow solver rounds get smaller, and the sweeps are those of what is left."""
    X, y = cs.datasets.sparse_text_like(400, 800, density=0.02)
    base = cs.sparse_svm(X, y, 1.0)
    top = cs.lambda_max(base)
    before = cs.solve(base.with_(lam=0.12 * top), tol=1e-6)
    problem = base.with_(lam=0.1 * top)
    found = solve_screened(problem, Sdca(), mode="safe", start=warm_start(problem, before))
    sizes = [r.features for r in found.rounds]
    assert found.status == "optimal"
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 0.5 * problem.d
    plain = solve_screened(problem, Sdca(), mode="safe", bounds=())
    assert plain.value == pytest.approx(found.value, rel=2e-6)
    assert len(plain.rounds) == 1


def test_parts_of_a_bound() -> None:
    problem, kinked = make("huber", "dense", 0), make("hinge", "dense", 0)
    assert (
        bound_components(problem, joint)
        == bound_components(problem, synergy)
        == (dual_ball, primal_ball)
    )
    assert bound_components(kinked, joint) == (joint,)
    assert bound_components(problem, midpoint_ball) == (midpoint_ball,)


def test_the_samples_part_is_the_midpoint_ball() -> None:
    problem = make("smoothed_hinge", "sparse", 3, share=0.3)
    truth, rng = Truth.of(problem), np.random.default_rng(0)
    for size in (1e-1, 1e-2, 1e-3):
        x = truth.x + size * np.abs(truth.x).max() * rng.standard_normal(problem.d)
        point = reference_point(problem, x)
        ours, ball = judge(problem, primal_ball(problem, point)), midpoint_ball(problem, point)
        assert (ours.codes >= 0).sum() >= (judge(problem, ball).codes >= 0).sum()
        assert not ours.dropped.any()


def test_a_known_pull_costs_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where theta are the slopes at x, the ball lies around theta and nothing is computed."""
    problem = make("smoothed_hinge", "dense", 4, share=0.3)
    truth = Truth.of(problem)
    rng = np.random.default_rng(1)
    x = truth.x + 1e-3 * np.abs(truth.x).max() * rng.standard_normal(problem.d)
    on, off = reference_point(problem, x), reference_point(problem, x, 0.5 * truth.theta)
    assert problem.column_norms.all()
    passes = []
    adjoint = Rows.adjoint
    monkeypatch.setattr(Rows, "adjoint", lambda self, t: passes.append(1) or adjoint(self, t))
    low, high = dual_ball(problem, on).v
    assert not passes
    dual_ball(problem, off)
    assert passes
    size = 1e-9 * np.abs(truth.v).max()
    assert (truth.v >= low - size).all()
    assert (truth.v <= high + size).all()


def test_what_does_not_promise_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warm start that decides nothing is taken as it is by a solver of a few passes.

    That is so on data of some size; little data are always asked about.
    """
    monkeypatch.setattr(rows_and_columns, "SMALL", 0)
    asked = []

    def counted(problem: Problem, point: Point) -> Region:
        asked.append(problem)
        return joint(problem, point)

    problem = make("huber", "dense", 6, n=150, d=80, share=0.1)
    best = cs.solve(problem.with_(lam=2.0 * problem.lam), tol=1e-6)
    start = warm_start(problem, best)
    found = solve_screened(problem, mode="safe", start=start, bounds=(counted,))
    assert found.status == "optimal"
    assert not asked
    assert found.screening.dropped.any()  # what the answer proves is said all the same
    assert asked


def test_few_iterations_are_not_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many iterations the last value took decides whether a proof can save some."""
    monkeypatch.setattr(rows_and_columns, "SMALL", 0)
    asked = []

    def counted(problem: Problem, point: Point) -> Region:
        asked.append(problem)
        return joint(problem, point)

    X, y = cs.datasets.sparse_text_like(300, 400, density=0.03)
    base = cs.sparse_svm(X, y, 1.0)
    top = cs.lambda_max(base)
    inner = Sdca(every=1)
    before = solve_screened(base.with_(lam=0.2 * top), inner, mode="safe", bounds=())
    rate = before.rounds[-1].solver_info["rate"]
    assert rate > 0
    problem = base.with_(lam=0.15 * top)
    start = warm_start(problem, before)
    assert start.rate == rate
    for rate_known, some in ((1e-3, False), (100.0, True), (None, True)):
        asked.clear()
        found = solve_screened(problem, inner, mode="safe", start=replace(start, rate=rate_known),
                               bounds=(counted,))
        assert found.status == "optimal"
        assert bool(asked) == some, rate_known


def test_what_may_be_left() -> None:
    """The more iterations are to come, the less a proof need save."""
    problem = make("smoothed_hinge", "dense", 2)
    subproblem = IndexedSubproblem.whole(problem)
    subproblem.__dict__["size"] = 1e6 * rows_and_columns.SMALL
    cost_model = ScreeningCostModel(subproblem, Sdca(), (dual_ball, primal_ball))
    assert not cost_model.eager
    assert cost_model.share(subproblem, 1.0, 1e-3) == WORTH  # nothing is known
    cost_model.rate = 100.0
    assert cost_model.share(subproblem, 1.0, 1e-3) == EAGER
    cost_model.rate = 1.0
    assert cost_model.share(subproblem, 1.0, 1e-3, 1.0) == pytest.approx(2.0 / 3.0, rel=1e-5)
    assert cost_model.share(subproblem, 1.0, 1e-3, 4.0) < 0.0
    assert cost_model.share(subproblem, 1e-3, 1e-3) < 0.0
    little = IndexedSubproblem.whole(problem)
    cost_model.rate = 10.0
    assert cost_model.share(little, 1.0, 1e-3) < cost_model.share(
        subproblem, 1.0, 1e-3
    )  # calls cost, too
    assert ScreeningCostModel(little, Sdca(), ()).share(little, 1.0, 1e-3) == EAGER  # little data


def test_what_an_iteration_does_is_learnt() -> None:
    problem = make("smoothed_hinge", "dense", 2, share=0.1)
    subproblem = IndexedSubproblem.whole(problem)
    subproblem.__dict__["size"] = 1e6 * rows_and_columns.SMALL
    point = reference_point(problem, np.zeros(problem.d))
    cost_model = ScreeningCostModel(subproblem, Sdca(), (dual_ball,))
    cost_model.begin(point, False, 7.0)
    none = SubproblemResult("optimal", point.x, point.theta, info={"epochs": 0})
    cost_model.learn(none, 1e-9 * point.gap, 1e-3 * point.gap, True)
    assert cost_model.rate == 7.0
    some = SubproblemResult("optimal", point.x, point.theta, info={"epochs": 6})
    cost_model.learn(some, 1e-9 * point.gap, 1e-3 * point.gap, False)
    assert cost_model.rate == 7.0  # a reduced problem may have been the easier one
    cost_model.begin(point, False, 7.0)
    cost_model.iterations = 0
    cost_model.learn(some, 1e-9 * point.gap, 1e-3 * point.gap, True)
    assert cost_model.rate == pytest.approx(2.0)  # beyond the goal nothing counts
    assert some.info["rate"] == cost_model.rate
    quick = ScreeningCostModel(subproblem, ProxNewton(), (dual_ball,))
    quick.begin(point, True, 7.0)
    quick.learn(some, 1e-3 * point.gap, 1e-3 * point.gap, True)
    assert quick.rate is None


def test_the_part_that_leaves_less_comes_first() -> None:
    X, y = cs.datasets.sparse_text_like(2000, 300, density=0.03)
    base = cs.sparse_svm(X, y, 1.0)
    top = cs.lambda_max(base)
    before = cs.solve(base.with_(lam=0.99 * top), tol=1e-8)
    problem = base.with_(lam=0.9 * top)
    point = warm_start(problem, before).point
    assert point is not None
    subproblem, parts = IndexedSubproblem.whole(problem), [dual_ball, primal_ball]
    cost_model = ScreeningCostModel(subproblem, Sdca(), parts)
    left = {part: rows_and_columns.size_after(subproblem, point, point.gap, side)
            for part, side in zip(parts, ("features", "samples"), strict=True)}
    first = cost_model.most_promising(subproblem, point, parts, 1e-12)
    assert first is min(left, key=lambda part: left[part])
    assert left[dual_ball] != left[primal_ball]
    cost_model.eager, cost_model.rate = False, 1e-3  # hardly an iteration to come
    assert cost_model.most_promising(subproblem, point, parts, 1e-12) is None
    assert cost_model.most_promising(subproblem, point, [*parts, joint], 1e-12) is joint
    assert cost_model.most_promising(subproblem, point, [], 1e-12) is None


def test_what_is_little_depends_on_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A problem that is small beside the whole still takes a slow solver many iterations."""
    monkeypatch.setattr(rows_and_columns, "SMALL", 0)
    whole = IndexedSubproblem.whole(make("smoothed_hinge", "dense", 2))
    rest = IndexedSubproblem.whole(make("smoothed_hinge", "dense", 2, n=5, d=4))
    nothing = IndexedSubproblem.whole(make("smoothed_hinge", "dense", 2, n=5, d=4))
    nothing = nothing.within(Selection(np.zeros(5, dtype=np.int8)))
    assert rest.size < LITTLE * whole.size
    parts = (dual_ball, primal_ball)
    slow, quick = (
        ScreeningCostModel(whole, Sdca(), parts),
        ScreeningCostModel(whole, ProxNewton(), parts),
    )
    assert not slow.little(rest)
    assert quick.little(rest)
    assert slow.little(nothing)
    assert not quick.little(whole)


def test_few_features_are_worth_a_cut_of_their_own() -> None:
    """Features at 0 that are near to leaving it cost a slow solver iterations, not entries."""
    subproblem = IndexedSubproblem.whole(make("smoothed_hinge", "dense", 2))
    subproblem.__dict__["size"] = 1e6 * rows_and_columns.SMALL
    for inner, few in ((Sdca(), True), (ProxNewton(), False)):
        cost_model = ScreeningCostModel(subproblem, inner, (dual_ball, primal_ball))
        assert cost_model.fits(subproblem, 0.99 * subproblem.size, 3, 0.5) == few
        assert not cost_model.fits(subproblem, 0.99 * subproblem.size, subproblem.problem.d, 0.5)
        assert cost_model.fits(subproblem, 0.4 * subproblem.size, subproblem.problem.d, 0.5)
