"""Proofs and reductions in turns under an L1 term: what is proven holds, and passes are saved."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from sparse_cases import CURVED, KINKED, Truth, make

import cvxscreen as cs
from cvxscreen.bounds import dual_ball, joint, midpoint_ball, synergy
from cvxscreen.bounds.features_and_samples import bound_components, primal_ball
from cvxscreen.bounds.regions import Region
from cvxscreen.core.duality import Point, reference_point
from cvxscreen.core.losses import Piece
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import (
    OFTEN,
    Rows,
    by_columns,
    by_rows,
    column_counts,
    entries,
    narrowed,
)
from cvxscreen.screening.reduction import Selection, judge, with_features
from cvxscreen.solvers import rows_and_columns
from cvxscreen.solvers.apg import Apg, Momentum
from cvxscreen.solvers.interface import Start, SubproblemResult, SubproblemSolver
from cvxscreen.solvers.loop import solve_screened
from cvxscreen.solvers.prox_newton import ProxNewton
from cvxscreen.solvers.rows_and_columns import (
    EAGER,
    LARGE_SHARE,
    MANY_FEATURES,
    NEARBY_SHARE,
    NEGLIGIBLE,
    WORTH,
    IndexedSubproblem,
    ScreeningCostModel,
    ZeroIterate,
    beginning,
    first_target,
    predicted_pieces,
    takes_all_features,
)
from cvxscreen.solvers.solution import warm_start
from cvxscreen.solvers.stochastic import Sdca, Spdc


@pytest.mark.table
@pytest.mark.parametrize("loss", [*CURVED, *KINKED])
@pytest.mark.parametrize(("inner", "data"), [
    (None, "dense"), (None, "sparse"), (None, "scaled"),
    (Sdca(every=2), "dense"), (Sdca(every=2), "sparse"),
    pytest.param(Sdca(every=2), "scaled", marks=pytest.mark.long),  # tens of times as many epochs
])
def test_nothing_wrong_is_proven_in_turns(loss: str, data: str, inner: Sdca | None) -> None:
    """Along a path, whatever the solver, what was proven on reduced problems holds on the full."""
    proven, previous = 0, None
    base = make(loss, data, 5, n=80, d=60, share=1.0)
    for share in (0.7, 0.5, 0.35)[: 3 if inner is None else 2]:  # the stochastic one takes long
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
        found = solve_screened(problem, inner, mode="safe", start=start._replace(rate=rate_known),
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
    assert cost_model.remaining_share(subproblem, 1.0, 1e-3) == WORTH  # nothing is known
    cost_model.rate = 100.0
    assert cost_model.remaining_share(subproblem, 1.0, 1e-3) == EAGER
    cost_model.rate = 1.0
    assert cost_model.remaining_share(subproblem, 1.0, 1e-3, 1.0) == pytest.approx(
        2.0 / 3.0, rel=1e-5
    )
    assert cost_model.remaining_share(subproblem, 1.0, 1e-3, 4.0) < 0.0
    assert cost_model.remaining_share(subproblem, 1e-3, 1e-3) < 0.0
    little = IndexedSubproblem.whole(problem)
    cost_model.rate = 10.0
    assert cost_model.remaining_share(little, 1.0, 1e-3) < cost_model.remaining_share(
        subproblem, 1.0, 1e-3
    )  # calls cost, too
    assert (
        ScreeningCostModel(little, Sdca(), ()).remaining_share(little, 1.0, 1e-3) == EAGER
    )  # little data


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
    assert rest.size < NEGLIGIBLE * whole.size
    parts = (dual_ball, primal_ball)
    slow, quick = (
        ScreeningCostModel(whole, Sdca(), parts),
        ScreeningCostModel(whole, ProxNewton(), parts),
    )
    assert not slow.is_negligible(rest)
    assert quick.is_negligible(rest)
    assert slow.is_negligible(nothing)
    assert not quick.is_negligible(whole)


def test_few_features_are_worth_a_cut_of_their_own() -> None:
    """Features at 0 that are near to leaving it cost a slow solver iterations, not entries."""
    subproblem = IndexedSubproblem.whole(make("smoothed_hinge", "dense", 2))
    subproblem.__dict__["size"] = 1e6 * rows_and_columns.SMALL
    for inner, few in ((Sdca(), True), (ProxNewton(), False)):
        cost_model = ScreeningCostModel(subproblem, inner, (dual_ball, primal_ball))
        assert cost_model.worth_reducing(subproblem, 0.99 * subproblem.size, 3, 0.5) == few
        assert not cost_model.worth_reducing(
            subproblem, 0.99 * subproblem.size, subproblem.problem.d, 0.5
        )
        assert cost_model.worth_reducing(
            subproblem, 0.4 * subproblem.size, subproblem.problem.d, 0.5
        )


# -- Under an L1 term: where a call begins, and which answers are taken as they are.


def alone(share: float, sparse: bool = False, n: int = 60, d: int = 40) -> Problem:
    """A squared hinge under an L1 norm without a quadratic term."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.3 if sparse else 1.0)
    y = np.where(X[:, 0] - X[:, 1] + 0.7 * rng.standard_normal(n) >= 0, 1.0, -1.0)
    data = sp.csr_matrix(X) if sparse else X
    problem = cs.sparse_svm(data, y, 1.0, loss="squared_hinge", l2=0)
    assert isinstance(problem, Problem)
    return problem.with_(lam=share * cs.lambda_max(problem))


@pytest.mark.parametrize("loss", [*CURVED, *KINKED, "alone"])
@pytest.mark.parametrize("share", [0.2, 1.5])
def test_the_origin_is_the_point_at_zero(loss: str, share: float) -> None:
    problem = alone(share) if loss == "alone" else make(loss, "dense", 3, share=share)
    point, origin = reference_point(problem, np.zeros(problem.d)), ZeroIterate.of(problem)
    np.testing.assert_array_equal(origin.x, point.x)
    np.testing.assert_array_equal(origin.At_theta, point.At_theta)
    assert origin.primal == point.primal
    assert origin.gap == pytest.approx(point.gap, rel=1e-9, abs=1e-9 * point.primal)


def test_what_proves_begins_at_a_point() -> None:
    problem = make("huber", "dense", 3)
    assert isinstance(beginning(problem, None, True), Point)
    assert not isinstance(beginning(problem, None, False), Point)
    x, theta = np.ones(problem.d), np.zeros(problem.n)
    point = reference_point(problem, x, theta)
    assert beginning(problem, Start(x, theta, point=point), False) is point
    assert beginning(problem, Start(x, theta), False).gap == point.gap


class Beyond(ProxNewton):
    """The built-in solver with slopes that are a little too large for the constraint."""

    def __call__(
        self, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> SubproblemResult:
        found = super().__call__(problem, start, target)
        return SubproblemResult(found.status, found.x, found.theta * (1.0 + 1e-9), info=found.info)


@pytest.mark.parametrize("mode", ["certified", "safe"])
@pytest.mark.parametrize("inner", [ProxNewton(), Beyond()])
def test_slopes_of_an_answer_are_feasible(inner: ProxNewton, mode: str) -> None:
    problem = alone(0.1)
    found = solve_screened(problem, inner, mode=mode)
    assert found.certificate is not None
    assert found.certificate.ok
    pull = np.abs(problem.design.adjoint(found.theta))
    assert (pull <= problem.penalty.kappa * (1.0 + 1e-12)).all()  # type: ignore[union-attr]
    again = cs.certify(problem, found.x, found.theta)
    assert again.gap == pytest.approx(found.certificate.gap, abs=1e-8 * abs(again.primal))


def test_slopes_that_are_feasible_are_taken_as_they_are() -> None:
    """The point with its rounding is made when somebody asks for it."""
    found = cs.solve(alone(0.1))
    assert found.answer is not None
    assert "point" not in found.answer.__dict__
    assert found.point().gap == pytest.approx(found.certificate.gap, rel=1e-3)


@pytest.mark.parametrize(
    ("wanted", "features", "all_of_them"),
    [
        (MANY_FEATURES, 100 * MANY_FEATURES, False),
        (MANY_FEATURES + 1, 100 * MANY_FEATURES, True),
        (5, 50, False),
        (6, 50, True),
    ],
)
def test_how_many_wanted_features_make_all(wanted: int, features: int, all_of_them: bool) -> None:
    assert LARGE_SHARE == 0.1
    X = sp.random(20, features, 0.01, format="csr", random_state=np.random.default_rng(0))
    y = np.where(np.arange(20) % 2, 1.0, -1.0)
    problem = cs.sparse_svm(X, y, 1.0, loss="squared_hinge", l2=0)
    assert isinstance(problem, Problem)
    mask = np.arange(features) < wanted
    assert takes_all_features(problem, ProxNewton(), mask) == all_of_them
    assert not takes_all_features(problem, ProxNewton(moving=False), mask)


# -- Under an L1 term: terms predicted to stay on their piece, and what a reduction leaves going.


@pytest.fixture
def any_size_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little data are treated as large ones are."""
    monkeypatch.setattr(rows_and_columns, "SMALL", 0)
    monkeypatch.setattr(rows_and_columns, "LEAST_VIOLATORS", 5)


def noisy(n: int = 600, d: int = 40) -> cs.Problem:
    """Terms on all pieces."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((n, d)) / np.sqrt(d)
    w = np.where(np.arange(d) < 8, 3.0, 0.0)
    return cs.sparse_svm(X, np.where(X @ w + 0.3 * rng.standard_normal(n) > 0, 1.0, -1.0), 1.0)


@pytest.mark.usefixtures("any_size_will_do")
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
    assert near.sum() == int(NEARBY_SHARE * bends.sum()) + 1
    assert ratio[near].max() < ratio[out].min()
    kept = np.arange(problem.n) % 2 == 0
    assert ((predicted_pieces(point, kept) < 0) == (kept | ~out)).all()


@pytest.mark.usefixtures("any_size_will_do")
def test_nothing_is_left_out_where_most_terms_bend() -> None:
    problem = make("huber", "dense", 3, share=0.01)
    problem = problem.with_(lam=1e-3 * problem.lam)
    point = reference_point(problem, cs.solve(problem, tol=1e-8).x)
    bends = problem.losses.piece_within(point.margins, point.margins)
    assert ((bends == Piece.LEFT) | (bends == Piece.RIGHT)).mean() > 0.7
    assert (predicted_pieces(point, np.zeros(problem.n, dtype=bool)) < 0).all()


@pytest.mark.usefixtures("any_size_will_do")
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


@pytest.mark.usefixtures("any_size_will_do")
def test_a_solver_of_few_passes_sees_every_term() -> None:
    base = noisy()
    top = cs.lambda_max(base)
    before = cs.solve(base.with_(lam=0.5 * top), tol=1e-8)
    problem = base.with_(lam=0.4 * top)
    found = solve_screened(problem, ProxNewton(), start=warm_start(problem, before), bounds=())
    assert found.status == "optimal"
    assert found.rounds[0].kept == problem.n


@pytest.mark.usefixtures("any_size_will_do")
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


# -- What a nest of reduced problems is made of: rows, columns, the work of a pass, goals, looks.


@pytest.mark.parametrize("kind", ["plain", "scaled", "extra", "float32", "dense"])
def test_rows_and_columns_of_a_design(kind: str) -> None:
    rng = np.random.default_rng(3)
    X = sp.random(30, 200, 0.1, format="csr", random_state=rng)
    scale = rng.uniform(0.5, 2.0, 30) if kind == "scaled" else None
    extra = rng.standard_normal((30, 2)) if kind == "extra" else None
    X = X.astype(np.float32) if kind == "float32" else X.toarray() if kind == "dense" else X
    design = Rows(X, scale, extra)
    full = design.dense()
    assert by_rows(design) is by_rows(design)
    np.testing.assert_array_equal(by_rows(design).toarray(), full)
    for features in (np.array([3, 7]), np.arange(0, 200, 2)):
        np.testing.assert_array_equal(narrowed(design, features).dense(), full[:, features])
        by_columns(design)
        part = narrowed(design, features)
        np.testing.assert_array_equal(part.dense(), full[:, features])
        np.testing.assert_array_equal(by_columns(part).toarray(), full[:, features])
    if kind != "dense":
        np.testing.assert_array_equal(column_counts(design), (full != 0).sum(axis=0))
        assert entries(design) == np.count_nonzero(full)
    else:
        assert entries(design) == full.size


def test_rows_are_turned_once_columns_are_cut_often() -> None:
    """And are the same to the last bit before and after."""
    problem = make("huber", "sparse", 1)
    design, subproblem = problem.design, IndexedSubproblem.whole(problem)
    dropped = np.arange(problem.d) % 3 > 0
    selection = Selection(np.full(problem.n, -1, dtype=np.int8), dropped)
    cuts = []
    for number in range(OFTEN + 2):
        assert (design.copies.by_columns is not None) == (number > OFTEN)
        cuts.append(by_columns(subproblem.within(selection).problem.design))
    for cut in cuts:
        np.testing.assert_array_equal(cut.data, cuts[0].data)
        np.testing.assert_array_equal(cut.indices, cuts[0].indices)


@pytest.mark.parametrize(("kept", "goal"), [(500, 0.03), (499, 1e-6), (700, 0.03), (800, 1e-6)])
def test_the_first_goal_from_zero(kept: int, goal: float) -> None:
    """Rough where as many features as may be are let in, and others are left out."""
    X = np.random.default_rng(0).standard_normal((4, 800))
    whole = IndexedSubproblem.whole(cs.sparse_svm(X, [1.0, -1.0, 1.0, -1.0], 0.1))  # type: ignore[arg-type]
    some = whole.within(Selection(np.full(4, -1, dtype=np.int8), np.arange(800) >= kept))
    assert first_target(some, 800, 1e-6, 1.0) == goal
    assert first_target(some, 800, 2.0, 1.0) == 2.0


def test_the_work_of_a_pass() -> None:
    problem = make("huber", "sparse", 1)
    subproblem = IndexedSubproblem.whole(problem)
    rows, columns = np.ones(problem.n, dtype=bool), np.ones(problem.d, dtype=bool)
    assert subproblem.size == entries(problem.design) + problem.n + problem.d
    assert subproblem.size_of(rows, columns) == pytest.approx(subproblem.size)
    assert subproblem.size_of(rows, columns & (np.arange(problem.d) < 4)) < 0.5 * subproblem.size
    assert subproblem.size_of(np.arange(0), np.arange(3)) == 3.0


def test_looks_are_far_apart_only_later() -> None:
    problem = make("smoothed_hinge", "dense", 2, share=0.1)
    assert Sdca(max_epochs=1)(problem, None, 0.0).info["epochs"] == 1
    loose = Sdca(every=50)(problem, None, 0.05 * problem.primal(np.zeros(problem.d)))
    assert loose.info["epochs"] in (1, 2, 4, 8, 16, 32)
    start = Start(np.zeros(problem.d), np.zeros(problem.n))
    assert Sdca()(problem, start, 1e9).info["epochs"] == 0


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("share", [0.2, 0.9])
def test_rows_before_columns_or_after(turned: bool, share: float) -> None:
    """The same reduced problem, in whatever order it is cut."""
    problem = make("smoothed_hinge", "sparse", 1)
    kept = np.arange(problem.n) < share * problem.n
    flat = np.where(np.arange(problem.n) % 2, Piece.LOW, Piece.ZERO)
    codes = np.where(kept, Piece.UNDECIDED, flat).astype(np.int8)
    selection = Selection(codes, np.arange(problem.d) % 3 == 0)
    features = selection.features(problem)
    if turned:
        by_columns(problem.design)
    first = selection.reduce(problem)
    other = Selection(codes).reduce(with_features(problem, features))
    assert first.design.shape == other.design.shape == (kept.sum(), len(features))
    np.testing.assert_array_equal(first.design.dense(), other.design.dense())
    np.testing.assert_allclose(first.linear, other.linear, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(first.penalty.kappa, other.penalty.kappa)  # type: ignore[union-attr]
    np.testing.assert_allclose(first.norms, other.norms, rtol=1e-12)
    np.testing.assert_allclose(first.column_norms, other.column_norms, rtol=1e-12)
    assert first.constant == pytest.approx(other.constant, rel=1e-12)
    wide = problem.design.dense().astype(np.longdouble).T @ problem.losses.piece_slope(codes)
    off = (first.linear - wide[features]).astype(float)
    assert np.sqrt(np.sum(off**2 / first.quadratic.diagonal)) <= first.drift
    assert 0.99 * other.drift <= first.drift < 100 * other.drift
