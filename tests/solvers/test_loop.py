"""The solving loop: whatever is guessed, the status says what the certificate says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from strategies import CASES, LOSSES, Case, build, honest, pieces_at, reference, solved

from cvxscreen.bounds import BOUNDS, midpoint_ball
from cvxscreen.core.problem import Problem
from cvxscreen.datasets import two_gaussians
from cvxscreen.errors import InvalidInput, UnknownName
from cvxscreen.models.linear import regression, svm
from cvxscreen.screening.reduction import Prediction, Selection
from cvxscreen.solvers import beginning, dual_coordinate_descent, rows
from cvxscreen.solvers.dual_active_set import DualActiveSet
from cvxscreen.solvers.interface import Start, SubproblemResult
from cvxscreen.solvers.interior_point import InteriorPoint
from cvxscreen.solvers.loop import MODES, solve_screened
from cvxscreen.solvers.newton import (
    Newton,
    interior_point_outpaces,
    systems_are_cheap,
    takes_over,
)
from cvxscreen.solvers.prediction import SMALL, PredictionRadius
from cvxscreen.solvers.rows import MAX_ROUNDS
from cvxscreen.solvers.solution import Round, Solution

LARGE = 3 * SMALL


def proven_right(solution: Solution) -> None:
    """What the screening of a solution claims holds at the exact optimum."""
    ref = solved(solution.problem)
    slack = ref.slack
    codes = solution.screening.codes
    f = ref.problem.losses
    low, high = ref.margins - slack, ref.margins + slack
    sure = f.piece_within(low, high)
    clash = (codes >= 0) & (sure >= 0) & (codes != sure)
    assert not clash.any()


@pytest.mark.table
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tol", [1e-6, 1e-9])
@pytest.mark.parametrize("case", CASES[::9], ids=str)
def test_small_problems_are_certified(case: Case, tol: float, mode: str) -> None:
    """Every loss, storage and scale, in both modes and to both tolerances."""
    ref = reference(case)
    solution = honest(solve_screened(ref.problem, mode=mode, tol=tol))
    assert solution.status == "optimal", solution.certificate.reason
    assert solution.certificate.relative_gap <= tol
    codes, right = solution.screening.codes, pieces_at(ref)
    assert not ((codes >= 0) & (right >= 0) & (codes != right)).any()


@pytest.mark.table
@pytest.mark.parametrize("C", [1e-6, 1e-2, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_modes_agree_for_every_C(loss: str, intercept: bool, C: float) -> None:
    """Large enough to predict: safe and certified are both optimal with equal values."""
    problem = build(Case(loss, intercept, n=LARGE, d=6, C=C))
    values = []
    for mode in MODES:
        solution = honest(solve_screened(problem, mode=mode, tol=1e-9))
        assert solution.status == "optimal", (mode, solution.certificate.reason)
        assert len(solution.rounds) <= MAX_ROUNDS
        values.append((solution.value, solution.certificate.gap))
    (a, gap_a), (b, gap_b) = values
    # A gap can be below the rounding of the objective as it is reported.
    assert abs(a - b) <= gap_a + gap_b + 4 * np.spacing(max(abs(a), abs(b)))


@pytest.mark.parametrize("data", ["scaled", "twins", "integer"])
@pytest.mark.parametrize("loss", LOSSES)
def test_odd_data_in_certified_mode(loss: str, data: str) -> None:
    """Badly scaled, repeated and integer rows at a size where predictions are made."""
    for intercept in (False, True):
        problem = build(Case(loss, intercept, data, "csr32", True, n=LARGE, d=6, C=0.5))
        solution = honest(solve_screened(problem, tol=1e-6))
        assert solution.status == "optimal", solution.certificate.reason


@pytest.mark.table
@pytest.mark.parametrize("C", [1e3, 1e6])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_badly_scaled_data_with_a_large_C(loss: str, intercept: bool, C: float) -> None:
    """Features of 1e-6 to 1e6: certified at C = 1e3; at 1e6 rounding may leave a gap of 1e-4."""
    problem = build(Case(loss, intercept, "scaled", n=LARGE, d=5, C=C))
    solution = honest(solve_screened(problem, tol=1e-6))
    assert solution.status in ("optimal", "inaccurate")
    assert solution.certificate.relative_gap <= (1e-6 if C < 1e6 else 1e-4)


@pytest.mark.parametrize("loss", ["hinge", "smoothed_epsilon"])
def test_more_columns_than_rows(loss: str) -> None:
    """n < d at a size where predictions are made."""
    problem = build(Case(loss, True, "wide", n=1800, C=0.5))
    assert SMALL < problem.n < problem.d
    solution = honest(solve_screened(problem, tol=1e-6))
    assert solution.status == "optimal", solution.certificate.reason


@pytest.mark.parametrize("loss", ["absolute", "quantile", "epsilon", "huber"])
def test_a_perfect_fit(loss: str) -> None:
    """A constant response and an intercept: the optimal value is 0, found without a warning."""
    X = np.random.default_rng(0).standard_normal((40, 3))
    problem = regression(X, np.full(40, 2.5), loss=loss, intercept=True)
    solution = honest(solve_screened(problem))
    # No gap is small relative to 0, so the status may be either; the answer is right.
    assert solution.status in ("optimal", "inaccurate")
    assert solution.intercept == pytest.approx(2.5, abs=0.11)
    assert solution.certificate.gap <= 1e-9


@pytest.mark.parametrize("bound", BOUNDS)
def test_any_bound_can_do_the_proving(bound: str) -> None:
    """The loop takes the theorems as arguments."""
    problem = build(Case("hinge", n=LARGE, d=4, C=0.5))
    solution = honest(solve_screened(problem, bounds=(BOUNDS[bound],)))
    assert solution.status == "optimal"
    assert {e.bound for e in solution.screening.evidence} == {bound}
    proven_right(solution)


# -- wrong guesses ------------------------------------------------------------------------------


def narrow(problem: Problem, point: object, share: float) -> PredictionRadius:
    return PredictionRadius(1e-12, 0.0, 1)


@pytest.mark.table
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_far_too_narrow_prediction_is_survived(
    loss: str, intercept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A far start, theta = 0, and a first guess that fixes all but one term: certified anyway."""
    monkeypatch.setattr(PredictionRadius, "near", staticmethod(narrow))
    monkeypatch.setattr(rows, "WORTH", 1.0)  # reduce by it, however few terms go
    problem = build(Case(loss, intercept, n=LARGE, d=5, C=1.0))
    far = Start(np.full(problem.d, 30.0), np.zeros(problem.n))
    seen: list[Round] = []
    solution = honest(solve_screened(problem, start=far, tol=1e-6, on_round=seen.append))
    # With an intercept enough terms are kept to balance the dual; otherwise all but a few go.
    assert seen[0].predicted > (100 if intercept else 0.9 * problem.n - seen[0].proven)
    assert solution.status == "optimal", solution.certificate.reason
    assert len(solution.rounds) <= MAX_ROUNDS
    proven_right(solution)


def test_a_prediction_that_is_all_wrong_is_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every term predicted on the piece of the opposite sign: refuted, put back, certified."""
    def opposite(
        problem: Problem, margins: np.ndarray, reach: np.ndarray, keep: int = 0
    ) -> Prediction:
        turned = 2.0 - margins
        codes = problem.losses.piece_within(turned, turned)
        codes[:: max(2, int(1e6 * reach.mean()))] = -1
        return Prediction(Selection(codes))

    monkeypatch.setattr(Prediction, "from_margins", staticmethod(opposite))
    for loss in ("hinge", "smoothed_hinge"):
        problem = build(Case(loss, n=LARGE, d=5, C=1.0))
        start = Start(np.full(problem.d, 0.1), np.zeros(problem.n))
        solution = honest(solve_screened(problem, start=start))
        assert solution.status == "optimal", solution.certificate.reason
        assert len(solution.rounds) <= MAX_ROUNDS


def test_predictions_are_never_recorded_as_proofs() -> None:
    """`screening` of a certified solve contains evidence of bounds only."""
    problem = build(Case("hinge", n=LARGE, d=5, C=1.0))
    solution = solve_screened(problem, mode="certified")
    assert any(r.predicted for r in solution.rounds)
    assert sum(e.new for e in solution.screening.evidence) == int(
        (solution.screening.codes >= 0).sum()
    )
    proven_right(solution)
    safe = solve_screened(problem, mode="safe")
    assert not any(r.predicted for r in safe.rounds)


@pytest.mark.parametrize("C", [1.0, 10.0])
def test_safe_mode_leaves_out_only_what_is_proven(C: float) -> None:
    """In several rounds, the first of them loose: what is guessed there may help nobody."""
    X, y = two_gaussians(4000, 30, bayes_error=0.1)
    safe = honest(solve_screened(svm(X, y, C=C), mode="safe"))
    assert len(safe.rounds) > 1
    for record in safe.rounds:
        assert record.predicted == 0
        assert record.kept >= 4000 - record.proven


@pytest.mark.parametrize("intercept", [False, True])
def test_safe_mode_takes_no_more_steps_where_nothing_is_decided(intercept: bool) -> None:
    """Random labels: the solver stops on the way, and takes the steps of one call all the same."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((4000, 30)), np.where(rng.random(4000) < 0.5, 1.0, -1.0)
    problem = svm(X, y, C=10.0, intercept=intercept)
    safe = honest(solve_screened(problem, mode="safe"))
    assert safe.status == "optimal"
    assert len(safe.rounds) == 1
    assert all(r.kept == problem.n for r in safe.rounds)
    once = Newton()(problem, None, 0.8e-6 * safe.value)
    assert sum(r.solver_info["steps"] for r in safe.rounds) == once.info["steps"]
    np.testing.assert_array_equal(safe.x, once.x)


# -- arguments and records ----------------------------------------------------------------------


def sparse_and_hard(loss: str, C: float, rows: int = 660) -> Problem:
    """Rows of five entries, correlated with nothing, and slopes that end between their limits."""
    rng = np.random.default_rng(0)
    X = sp.random_array((rows, 160), density=5 / 160, rng=rng, format="csr")
    scores = X @ rng.standard_normal(160) + 0.1 * rng.standard_normal(rows)
    if loss == "hinge":
        return svm(X, np.where(scores > 0, 1.0, -1.0), C=C, intercept=True)
    return regression(X, scores, C=C, loss=loss, intercept=True)


@pytest.mark.parametrize("loss", ["hinge", "absolute"])
@pytest.mark.parametrize("fails", [False, True])
def test_the_interior_point_method_takes_over_from_descent(
    loss: str, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where that has not come near; where it fails, too, the answer is another solver's."""
    monkeypatch.setattr(dual_coordinate_descent, "ready", lambda *_: True)
    monkeypatch.setattr(dual_coordinate_descent, "FACES", 0)  # no pivots, which would do
    problem = sparse_and_hard(loss, 100.0)
    assert interior_point_outpaces(problem)
    called, answer = [], InteriorPoint.__call__

    def watched(self: InteriorPoint, *args: Any) -> SubproblemResult:
        found = answer(self, *args)
        called.append(found.status)
        return replace(found, status="inaccurate") if fails else found

    monkeypatch.setattr(InteriorPoint, "__call__", watched)
    solution = honest(solve_screened(problem, tol=1e-6))
    assert called == ["optimal"]
    assert solution.status == "optimal"
    assert ("face" in solution.rounds[-1].solver_info) is not fails
    other = honest(solve_screened(problem, Newton(), mode="safe", tol=1e-8))
    assert abs(solution.value - other.value) <= solution.certificate.gap + other.certificate.gap
    assert called == ["optimal"]  # in safe mode what is proven is to leave the problem first


@pytest.mark.parametrize(("C", "rows", "taken"), [(100.0, 320, True), (1.0, 320, False),
                                                  (100.0, 180, False)])
def test_of_few_sparse_rows_it_takes_over_what_has_hardly_begun(
    C: float, rows: int, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rows a coordinate will do where both signs of a slope are open, and a dozen steps."""
    monkeypatch.setattr(dual_coordinate_descent, "ready", lambda *_: True)
    monkeypatch.setattr(dual_coordinate_descent, "FACES", 0)
    found = honest(solve_screened(sparse_and_hard("absolute", C, rows), tol=1e-6))
    assert found.status == "optimal"
    assert ("face" in found.rounds[-1].solver_info) is taken


def test_fewer_rows_a_coordinate_will_do_where_they_are_dense() -> None:
    """1.25 of them; sparse rows and hinges have a quicker way from where the descent has got to."""
    sparse = sparse_and_hard("absolute", 100.0, 320)
    assert not interior_point_outpaces(sparse)
    assert interior_point_outpaces(sparse, gap=0.99)
    assert not interior_point_outpaces(sparse_and_hard("hinge", 100.0, 320), gap=0.99)
    for number, outpaces in (640, True), (200, True), (190, False):
        X = np.random.default_rng(0).standard_normal((number, 160))
        assert interior_point_outpaces(regression(X, X @ np.ones(160))) is outpaces


@pytest.mark.parametrize(("loss", "rows", "from_gap"), [
    ("squared_hinge", 2700, 0.0), ("smoothed_hinge", 2700, 0.0), ("squared_hinge", 1300, 0.9),
    ("squared_hinge", 1200, np.inf),
])
def test_newton_takes_over_from_descent_far_from_the_optimum(
    loss: str, rows: int, from_gap: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over smooth losses and many rows a coordinate, though a factor costs 800 passes or more.

    Until its steps with conjugate gradients are compiled, which are quicker.
    """
    monkeypatch.setattr(dual_coordinate_descent, "ready", lambda *_: True)
    monkeypatch.setattr(beginning, "newton_pays", lambda problem: False)
    rng = np.random.default_rng(0)
    X = sp.random_array((rows, 160), density=2 / 160, rng=rng, format="csr")
    y = np.where(X @ rng.standard_normal(160) + 0.1 * rng.standard_normal(rows) > 0, 1.0, -1.0)
    problem = svm(X, y, C=1e4, loss=loss)
    assert not systems_are_cheap(problem)
    for gap in (0.5, 0.95):
        assert takes_over(problem, gap) is (gap > from_gap)
    assert not takes_over(svm(X, y, C=1e4), 0.95)
    called, answer = [], DualActiveSet.__call__

    def watched(self: DualActiveSet, *args: Any) -> SubproblemResult:
        called.append(self)
        return answer(self, *args)

    monkeypatch.setattr(DualActiveSet, "__call__", watched)
    solution = honest(solve_screened(problem, tol=1e-6))
    assert bool(called) is (from_gap > 1.0)
    other = honest(solve_screened(problem, Newton(), mode="safe", tol=1e-8))
    assert abs(solution.value - other.value) <= solution.certificate.gap + other.certificate.gap


@pytest.mark.parametrize(("gap", "takes_over"), [(5e-3, False), (8e-3, True)])
def test_how_near_descent_has_to_come(
    gap: float, takes_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nearer where the systems of others cost little: here a factor costs 1,240 passes."""
    monkeypatch.setattr(dual_coordinate_descent, "ready", lambda *_: True)
    monkeypatch.setattr(dual_coordinate_descent, "FACES", 0)  # no pivots, which would do
    method, called = dual_coordinate_descent.DualCoordinateDescent, []
    descend, found = method.__call__, InteriorPoint.__call__

    def as_far(self: Any, *args: Any) -> SubproblemResult:
        result = descend(self, *args)
        assert result.status == "inaccurate"
        return replace(result, info={**result.info, "relative_gap": gap})

    def watched(self: InteriorPoint, *args: Any) -> SubproblemResult:
        called.append(True)
        return found(self, *args)

    monkeypatch.setattr(method, "__call__", as_far)
    monkeypatch.setattr(InteriorPoint, "__call__", watched)
    assert honest(solve_screened(sparse_and_hard("hinge", 100.0), tol=1e-6)).status == "optimal"
    assert called == [True] * takes_over


def test_an_easy_problem_is_left_to_descent(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what has come near to the solver that selects terms."""
    monkeypatch.setattr(dual_coordinate_descent, "ready", lambda *_: True)
    monkeypatch.setattr(InteriorPoint, "__call__", None)
    monkeypatch.setattr(Newton, "__call__", None)
    for C in (0.01, 1.0):
        assert honest(solve_screened(sparse_and_hard("hinge", C), tol=1e-6)).certificate.ok


def test_arguments_are_validated() -> None:
    """Modes by name, tolerances strictly between 0 and 1."""
    problem = build(Case("hinge"))
    with pytest.raises(UnknownName, match=r"`mode` is 'exact'.*certified, safe"):
        solve_screened(problem, mode="exact")
    for tol in (0.0, 1.0, -1e-6, np.nan, np.inf):
        with pytest.raises(InvalidInput, match="`tol`"):
            solve_screened(problem, tol=tol)
    for bad in ("1e-6", None):
        with pytest.raises(InvalidInput, match="`tol`"):
            solve_screened(problem, tol=bad)  # type: ignore[arg-type]
    for start in (Start(np.zeros(problem.d + 1), np.zeros(problem.n)),
                  Start(np.zeros(problem.d), np.zeros(3)),
                  Start(np.full(problem.d, np.nan), np.zeros(problem.n))):
        with pytest.raises(InvalidInput):
            solve_screened(problem, start=start)


def test_every_round_is_reported() -> None:
    """`on_round` gets the records that the solution keeps, in order, as they happen."""
    problem = build(Case("absolute", n=LARGE, d=5, C=1.0))
    seen: list[Round] = []
    solution = solve_screened(problem, on_round=seen.append)
    assert tuple(seen) == solution.rounds
    assert [r.number for r in seen] == list(range(1, len(seen) + 1))
    for record in seen:
        assert 0 <= record.kept <= problem.n
        assert record.solver_status in ("optimal", "inaccurate")
        assert record.seconds >= record.solve_seconds >= 0.0
    assert [r.proven for r in seen] == sorted(r.proven for r in seen)
    assert solution.seconds >= sum(r.seconds for r in seen)


def test_a_callback_that_raises_stops_the_loop() -> None:
    """The caller's exception is the caller's: it is not swallowed."""
    def stop(record: Round) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solve_screened(build(Case("hinge")), on_round=stop)


def test_the_callers_arrays_are_not_written_to() -> None:
    """Data, labels, weights and the start hold the same numbers afterwards."""
    for storage in ("dense64", "dense32", "csr64"):
        problem = build(Case("smoothed_hinge", True, "plain", storage, True, n=LARGE, C=1.0))
        matrix = problem.design.matrix
        held = matrix.data if "csr" in storage else matrix
        before, theta = held.copy(), np.full(problem.n, -9.0)
        x = np.full(problem.d, 0.1)
        solve_screened(problem, start=Start(x, theta))
        np.testing.assert_array_equal(held, before)
        assert (x == 0.1).all()
        assert (theta == -9.0).all()


def test_the_answer_is_the_same_every_time() -> None:
    """No randomness: two calls give the same bytes."""
    problem = build(Case("hinge", True, n=LARGE, d=5, C=1.0))
    first, second = solve_screened(problem), solve_screened(problem)
    np.testing.assert_array_equal(first.x, second.x)
    np.testing.assert_array_equal(first.theta, second.theta)


def test_fields_of_a_solution() -> None:
    """alpha is minus theta, w and the intercept are parts of x, the value is the objective."""
    problem = build(Case("hinge", True, n=40, C=1.0))
    solution = solve_screened(problem)
    np.testing.assert_array_equal(solution.alpha, -solution.theta)
    assert (solution.alpha >= 0).all()
    np.testing.assert_array_equal(np.r_[solution.w, solution.intercept], solution.x)
    assert solution.value == pytest.approx(problem.primal(solution.x), rel=1e-12)
    assert solution.point().gap == pytest.approx(solution.certificate.gap, rel=1e-3, abs=1e-12)
    verdict_region = midpoint_ball(problem, solution.point())
    assert verdict_region.contains(solution.x)
    assert str(solution)
    assert MAX_ROUNDS >= len(solution.rounds) >= 1
