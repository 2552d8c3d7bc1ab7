"""The interior point method: every loss, with constraints, degenerate, infeasible, unbounded."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from portfolios import portfolio
from strategies import ONE_ARRAY, Case, build, reference

from cvxscreen._support.limits import Limits
from cvxscreen.certificates.certificate import certify
from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.datasets import two_gaussians
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.models.linear import svm
from cvxscreen.solvers import interior_point
from cvxscreen.solvers.interface import Start
from cvxscreen.solvers.interior_point import (
    RAY,
    Attempt,
    InteriorPoint,
    IntervalTerms,
    PrimalDualPath,
    fenchel_young,
    optimum_on_face,
)
from cvxscreen.solvers.loop import solve_screened
from cvxscreen.solvers.newton import Newton
from cvxscreen.solvers.solution import Round

SOLVE = InteriorPoint()


def size_of(problem: Problem) -> float:
    return max(abs(problem.primal(np.zeros(problem.d))), 1e-300)


def solved_by_cvxpy(problem: Problem, solver: str = "CLARABEL") -> float:
    written = problem.to_cvxpy()
    options = {"eps_abs": 1e-8, "eps_rel": 1e-8, "max_iters": 50_000} if solver == "SCS" else {}
    written.solve(solver=solver, **options)
    return float(written.value)


@pytest.mark.parametrize("case", ONE_ARRAY)
def test_every_case_is_solved(case: Case) -> None:
    """To a relative gap of 1e-10 of P(0), certified, and at the exact optimum's value."""
    problem = build(case)
    found = SOLVE(problem, target=1e-10 * size_of(problem))
    assert found.status == "optimal"
    assert certify(problem, found.x, found.theta, tol=1e-8).ok
    ref = reference(case)
    if ref.truth is not None:
        assert problem.primal(found.x) - float(ref.truth.value) <= 2e-10 * size_of(problem)
    assert found.info["steps"] < 60


@pytest.mark.parametrize("solver", ["CLARABEL", "SCS"])
@pytest.mark.parametrize("ridge", [0.1, 0.0])
def test_constraints(ridge: float, solver: str) -> None:
    """The value that another solver finds; feasible, with multipliers that fit."""
    problem = portfolio(ridge=ridge)
    found = SOLVE(problem, target=1e-12)
    assert found.status == "optimal"
    value, slack = problem.primal(found.x), problem.side.slack(found.x)
    assert value == pytest.approx(solved_by_cvxpy(problem, solver), rel=1e-4)
    assert problem.side.violation(found.x) <= 1e-12
    assert (found.multipliers[1:] >= 0).all()
    assert abs(found.multipliers @ slack) <= 1e-12
    left = (problem.design.adjoint(found.theta) + problem.quadratic.apply(found.x)
            + problem.linear - problem.side.adjoint(found.multipliers))
    assert np.abs(left).max() <= 1e-12


@pytest.mark.parametrize("seed", [0, 2])
def test_squares_of_one_side_beside_very_narrow_intervals(seed: int) -> None:
    """What a limit of turnover comes to: slopes without end, and ends that are all but 0."""
    rng = np.random.default_rng(seed)
    n, d = 2000, 8
    A, far = rng.standard_normal((n, d)), rng.standard_normal(n) * 0.3
    bends, ends = rng.uniform(0.2, 2.0, n), rng.exponential(size=n) ** 4
    sides = np.vstack([np.c_[A, -np.ones(n)], np.c_[-A, -np.ones(n)]])
    problem = Problem(
        Rows(sides),
        Losses(np.concatenate([far, -far]), 0.0, np.tile(bends, 2), 0.0,
               np.concatenate([np.full(n, np.inf), ends / ends.sum()])),
        Quadratic(np.append(np.ones(d), 0.0)), np.append(0.05 * rng.standard_normal(d), 0.3),
    )
    found = SOLVE(problem)
    assert found.status == "optimal"
    assert certify(problem, found.x, found.theta).relative_gap <= 1e-9
    assert found.info["steps"] <= 25


def test_a_bound_that_binds_has_a_multiplier() -> None:
    """An asset that costs more than it is worth: its weight is 0, its multiplier balances."""
    problem = portfolio()
    tilted = replace(problem, linear=problem.linear + np.r_[5.0, np.zeros(8)])
    found = SOLVE(tilted, target=1e-12)
    assert found.x[0] == 0.0
    assert found.multipliers[1] > 1.0
    left = (tilted.design.adjoint(found.theta) + tilted.quadratic.apply(found.x)
            + tilted.linear - tilted.side.adjoint(found.multipliers))
    assert np.abs(left).max() <= 1e-12


def test_constraints_are_multiplied_dense_or_sparse_to_the_same_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem, rng = portfolio(60, 6), np.random.default_rng(2)
    dense, sparse = IntervalTerms.of(problem), IntervalTerms.of(problem)
    assert not sp.issparse(dense._multiplied)
    monkeypatch.setattr(interior_point, "DENSE_OWN", 0)
    assert sp.issparse(sparse._multiplied)
    weights, x = rng.random(len(dense)), rng.standard_normal(problem.d)
    for terms in (dense, sparse):
        rows = terms.take(np.arange(len(terms)))
        np.testing.assert_allclose(terms.forward(x), rows @ x, atol=1e-14)
        np.testing.assert_allclose(terms.adjoint(weights), rows.T @ weights, atol=1e-13)
        np.testing.assert_allclose(terms.gram(weights), rows.T @ (weights[:, None] * rows),
                                   atol=1e-13)


NORMS: dict[str, Any] = {
    # Rows (of x, of helpers), so that the norm of x is at most the offset of the last.
    "L1": (lambda d: np.vstack([
        np.c_[np.eye(d), np.eye(d)], np.c_[-np.eye(d), np.eye(d)],
        np.r_[np.zeros(d), -np.ones(d)],
    ]), lambda x: cp.norm1(x)),
    "sum of largest sizes": (lambda d: np.vstack([
        # |x_j| <= t_j, t_j <= s_j + q, s_j >= 0, sum_j s_j + 2 q <= radius.
        np.c_[np.eye(d), np.eye(d), np.zeros((d, d + 1))],
        np.c_[-np.eye(d), np.eye(d), np.zeros((d, d + 1))],
        np.c_[np.zeros((d, d)), -np.eye(d), np.eye(d), np.ones(d)],
        np.c_[np.zeros((d, 2 * d)), np.eye(d), np.zeros(d)],
        np.r_[np.zeros(2 * d), -np.ones(d), -2.0],
    ]), lambda x: cp.sum_largest(cp.abs(x), 2)),
}


@pytest.mark.table
@pytest.mark.parametrize("radius", [0.01, 1.0])
@pytest.mark.parametrize("ridge", [0.0, 1.0])
@pytest.mark.parametrize("loss", ["hinge", "absolute"])
@pytest.mark.parametrize("norm", NORMS)
def test_a_norm_in_a_constraint(norm: str, loss: str, ridge: float, radius: float) -> None:
    """Helpers of a norm, which no loss sees, are as large as what they bound: few steps."""
    n, d = 300, 6
    rng = np.random.default_rng(d)
    X = rng.standard_normal((n, d))
    y = X @ rng.standard_normal(d) + rng.standard_normal(n)
    A, b = (X, y) if loss == "absolute" else (-np.sign(y)[:, None] * X, np.full(n, -1.0))
    rows, written = NORMS[norm]
    F, zeros = rows(d), np.zeros(n)
    helpers = F.shape[1] - d
    side = SideConstraints(
        sp.csr_matrix(F), np.r_[np.zeros(len(F) - 1), radius], (("nonneg", len(F)),)
    )
    losses = Losses(b, zeros, zeros, zeros - (loss == "absolute"), np.ones(n))
    problem = Problem(
        Rows(np.c_[A, np.zeros((n, helpers))]), losses,
        Quadratic(np.r_[np.full(d, ridge), np.zeros(helpers)]), np.zeros(d + helpers), side=side,
    )
    found = SOLVE(problem, target=1e-9 * size_of(problem))
    assert found.status == "optimal"
    assert found.info["steps"] <= 40
    x = cp.Variable(d)
    part = cp.norm1(A @ x - b) if loss == "absolute" else cp.sum(cp.pos(A @ x - b))
    square = 0.5 * ridge * cp.sum_squares(x) if ridge else 0.0
    truth = cp.Problem(cp.Minimize(part + square), [written(x) <= radius]).solve(solver="CLARABEL")
    assert problem.primal(found.x) == pytest.approx(truth, rel=1e-7)


def test_only_what_is_taken() -> None:
    """A cone of matrices, long cones or too many coordinates: refused, with the reason."""
    problem = portfolio()
    cone = SideConstraints(sp.identity(9, format="csr"), np.ones(9), (("psd", 3),))
    with pytest.raises(InvalidInput, match="cone of matrices"):
        SOLVE(replace(problem, side=cone))
    rows = sp.csr_matrix(np.ones((50, 9)))
    with pytest.raises(InvalidInput, match="50 rows"):
        SOLVE(replace(problem, side=SideConstraints(rows, np.ones(50), (("soc", 50),))))
    wide = Problem(
        Rows(np.ones((3, 2001))), Losses.repeated(3, 1.0, 0.0, 0.0, -1.0, 0.0),
        Quadratic(np.ones(2001)), np.zeros(2001),
    )
    with pytest.raises(InvalidInput, match="2,001 coordinates"):
        SOLVE(wide)


def test_limits() -> None:
    """One step is one step, and still an answer."""
    problem = portfolio()
    found = InteriorPoint(limits=Limits(max_iter=2))(problem, target=1e-12)
    assert found.status == "inaccurate"
    assert found.info["steps"] <= 2
    assert np.isfinite(found.x).all()


def test_a_relative_gap_without_faces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The path itself comes there; a face that costs more than its steps is for its end."""
    rng = np.random.default_rng(0)
    X = sp.random_array((800, 180), density=5 / 180, rng=rng, format="csr")
    problem = svm(X, np.where(X @ rng.standard_normal(180) > 0, 1.0, -1.0), C=10.0)
    monkeypatch.setattr(interior_point, "optimum_on_face", None)
    steps = []
    for tol in (1e-3, 1e-6, 1e-9):
        found = InteriorPoint(tol=tol)(problem)
        proof = certify(problem, found.x, found.theta)
        assert found.status == "optimal"
        assert proof.relative_gap <= tol
        assert np.count_nonzero(found.theta) < 400  # at an end, not nearly so
        steps.append(found.info["steps"])
    assert steps[0] < steps[1] < steps[2]


def test_warm_start_on_the_face() -> None:
    """From the optimum, a little off: the equations of its face, and no step at all."""
    problem = portfolio(ridge=0.0)
    first = SOLVE(problem, target=1e-13)
    near = first.x + 1e-6 * np.random.default_rng(0).standard_normal(problem.d)
    start = Start(near, first.theta, multipliers=first.multipliers)
    again = SOLVE(problem, start, 1e-13)
    assert again.status == "optimal"
    assert again.info["steps"] == 0
    np.testing.assert_allclose(again.x, first.x, atol=1e-10)


def test_a_start_far_from_the_optimum_costs_no_look_at_its_face(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A neighbour's optimum is on another face; what is near is looked at, and found."""
    looked: list[int] = []
    look = Attempt.solve_face

    def solve_face(run: Attempt, *given: object) -> None:
        looked.append(run.steps)
        look(run, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Attempt, "solve_face", solve_face)
    monkeypatch.setattr(interior_point, "PIVOTED", 0.0)
    X, y = two_gaussians(400, 12)
    problem = svm(X, y, C=0.05, intercept=True)
    first = SOLVE(problem, target=1e-12)
    looked.clear()
    again = SOLVE(problem.with_(C=0.5), Start(first.x, 10.0 * first.theta), 1e-12)
    assert again.status == "optimal"
    assert 0 not in looked
    looked.clear()
    near = problem.with_(C=0.05 * (1.0 + 1e-5))
    again = SOLVE(near, Start(first.x, first.theta * (1.0 + 1e-5)), 1e-12)
    assert again.status == "optimal"
    assert again.info["steps"] == 0
    assert looked == [0]


CURVED = ("none", "diagonal", "form", "Huber", "one-sided")


def held(
    kind: str, d: int, seed: int, shift: float = 0.0, weight: float = 5.0, curved: str = "none"
) -> Problem:
    """Absolute losses with an L1 norm beside linear constraints, no two terms alike.

    Some of the losses may be `curved`, or a quadratic form be there as well.
    """
    rng, n = np.random.default_rng(seed), 25 * d
    A, w = rng.standard_normal((n, d)), rng.standard_normal(d) * (rng.random(d) < 0.7)
    ends = np.r_[np.ones(n), np.full(d, weight)]
    kinks, q = np.r_[A @ w + 0.5 * rng.standard_t(3, n), np.zeros(d)], np.zeros(n + d)
    lo, hi, form = -ends, ends.copy(), Quadratic(np.zeros(d))
    if curved == "Huber":
        q[: n // 2] = 1.0
    elif curved == "one-sided":
        q[: n // 2], lo[: n // 2], hi[: n // 2] = 2.0, 0.0, np.inf
    elif curved == "diagonal":
        form = Quadratic(np.where(np.arange(d) % 3 > 0, 2.0 * weight, 0.0))
    elif curved == "form":
        form = Quadratic(np.zeros(d), weight * A[: 2 * d].T @ A[: 2 * d])
    signs, total, none = np.eye(d), np.ones((1, d)), np.zeros((0, d))
    equal, below, offsets = {
        "signs": (none, signs, np.zeros(d) - 0.1 * shift),
        "box": (none, np.vstack([signs, -signs]), np.full(2 * d, 0.3 + 0.1 * shift)),
        "sum": (total, none, np.array([-1.0 - shift])),
        "simplex": (total, signs, np.r_[-1.0 - shift, np.zeros(d)]),
        "rows": (none, -np.abs(A[:7]), np.full(7, 0.5 + 0.1 * shift)),
    }[kind]
    dims = ("zero", len(equal)), ("nonneg", len(below))
    side = SideConstraints(
        np.vstack([equal, below]), offsets, tuple(pair for pair in dims if pair[1])
    )
    return Problem(
        Rows(np.vstack([A, np.eye(d)])), Losses(kinks, np.zeros(n + d), q, lo, hi), form,
        np.zeros(d), side=side,
    )


@pytest.mark.parametrize("kind", ["signs", "box", "sum", "simplex", "rows"])
@pytest.mark.parametrize("curved", CURVED)
def test_pivots_lead_from_a_neighbour_to_the_optimum_beside_constraints(
    kind: str, curved: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another weight, also where the start is no longer feasible; no step, and exact duals."""
    monkeypatch.setattr(interior_point, "SEARCHES", (8, 40))
    problem = held(kind, 12, 0, curved=curved)
    first = SOLVE(problem, target=1e-12)
    start = Start(first.x, first.theta, multipliers=first.multipliers)
    for shift, weight in ((0.0, 7.0), (0.0, 3.0), (0.5, 5.0), (-0.4, 5.0)):
        near = held(kind, 12, 0, shift, weight, curved)
        again = SOLVE(near, start, 1e-12)
        assert again.status == "optimal"
        assert again.info["steps"] == 0
        proof = certify(near, again.x, again.theta, again.multipliers, tol=1e-9)
        assert proof.ok, proof.reason
        cold = SOLVE(near, None, 1e-12)
        assert cold.info["steps"] > 0
        assert near.primal(again.x) == pytest.approx(near.primal(cold.x), rel=1e-10)
        if "si" not in kind:  # a sign and an absolute value share their kink
            np.testing.assert_allclose(again.multipliers, cold.multipliers, atol=1e-7)


@pytest.mark.parametrize("curved", CURVED)
def test_a_guess_that_is_wrong_is_left_to_the_path(
    curved: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too few searches for the kinks of a point with nothing of the optimum; and enough of them."""
    problem = held("box", 12, 0, curved=curved)
    A, b = problem.design.dense(np.arange(12)), problem.losses.b[:12]
    start = Start(np.linalg.solve(A, b), np.zeros(problem.n))
    cold = SOLVE(problem, None, 1e-12)
    for searches in ((0, 3), (8, 40)):
        monkeypatch.setattr(interior_point, "SEARCHES", searches)
        found = SOLVE(problem, start, 1e-12)
        assert found.status == "optimal"
        assert (found.info["steps"] > 0) == (searches[0] == 0)
        assert problem.primal(found.x) == pytest.approx(problem.primal(cold.x), rel=1e-10)
        proof = certify(problem, found.x, found.theta, found.multipliers, tol=1e-9)
        assert proof.ok, proof.reason


@pytest.mark.parametrize("curved", CURVED)
def test_pivots_are_refused_where_a_constraint_stays_broken(curved: str) -> None:
    """No point satisfies both; a slope that holds one at any cost is no multiplier."""
    problem = held("signs", 6, 1, curved=curved)
    start = Start(np.ones(6), np.zeros(problem.n))
    side = SideConstraints(
        np.vstack([np.eye(6), -np.ones((1, 6))]), np.r_[np.zeros(6), -1.0], (("nonneg", 7),)
    )
    never = replace(problem, side=side)
    assert not Attempt(IntervalTerms.of(never), 0.0).go_to_face(start.x)
    assert SOLVE(never, start, 1e-10).status == "infeasible"


def test_a_budget_asks_of_each_bound_what_it_takes_up() -> None:
    """``u_j >= |x_j|``, ``sum u <= t``: the multiplier of the sum is shared by every pair."""
    rng, d = np.random.default_rng(4), 8
    X, w = rng.standard_normal((60, d)), np.r_[3.0, np.zeros(d - 1)]
    X[:, 1:] *= 1e-3
    y, eye = X @ w, np.eye(d)
    form = np.zeros((2 * d, 2 * d))
    form[:d, :d] = X.T @ X
    below = np.vstack([
        np.hstack([eye, eye]), np.hstack([-eye, eye]), np.r_[np.zeros(d), -np.ones(d)][None]
    ])
    none = np.zeros(0)

    def budget(t: float) -> Problem:
        side = SideConstraints(below, np.r_[np.zeros(2 * d), t], (("nonneg", 2 * d + 1),))
        return Problem(
            Rows(np.zeros((0, 2 * d))), Losses(none, none, none, none, none),
            Quadratic(np.zeros(2 * d), form), np.r_[-X.T @ y, np.zeros(d)], side=side,
        )

    first = SOLVE(budget(1.0), None, 1e-12)
    run = Attempt(IntervalTerms.of(budget(1.2)), 1e-12)
    assert run.go_to_face(first.x)
    expected = SOLVE(budget(1.2), None, 1e-12).x
    np.testing.assert_allclose(run.answer()[0][:d], expected[:d], atol=1e-8)


def test_cones_and_many_entries_are_no_matter_for_pivots(monkeypatch: pytest.MonkeyPatch) -> None:
    """What curves without being a term, and what would take longer, is left to the path."""
    problem = held("box", 5, 2)
    x = SOLVE(problem, target=1e-12).x
    assert Attempt(IntervalTerms.of(problem), 0.0).go_to_face(x)
    ball = SideConstraints(np.vstack([np.zeros((1, 5)), np.eye(5)]), np.r_[1.0, np.zeros(5)],
                           (("soc", 6),))
    assert not Attempt(IntervalTerms.of(replace(problem, side=ball)), 0.0).go_to_face(x)
    monkeypatch.setattr(interior_point, "PIVOTED", 100.0)
    assert not Attempt(IntervalTerms.of(problem), 0.0).go_to_face(x)


def wide(n: int = 20, d: int = 60, twice: bool = False) -> Problem:
    """An absolute loss with an L1 norm; `twice`: half of it in terms of their own."""
    r = np.random.default_rng(1)
    X, eye = r.standard_normal((n, d)), np.eye(d)
    y = X[:, 0] + r.standard_normal(n)
    k = 2 * d if twice else d
    design = Rows(np.vstack([X, eye, -3.0 * eye] if twice else [X, eye]))
    kappa = np.concatenate([np.ones(n), np.full(d, 2.0), np.full(k - d, 0.5)])
    no = np.zeros(n + k)
    return Problem(
        design, Losses(np.concatenate([y, no[n:]]), no, no, -kappa, kappa),
        Quadratic(np.zeros(d)), np.zeros(d),
    )


@pytest.mark.parametrize("twice", [False, True])
def test_where_most_terms_end_at_their_kinks_the_vertex_is_found(twice: bool) -> None:
    """The median margin goes to 0 there, and is no size to compare slopes with."""
    problem = wide(twice=twice)
    found = SOLVE(problem, target=0.0)
    at_kinks = problem.design.forward(found.x) == problem.losses.b
    assert found.info["face"]
    assert int(at_kinks.sum()) > 0.5 * problem.n
    assert found.info["gap"] <= 1e-13 * problem.primal(found.x)
    assert found.info["steps"] < 20


@pytest.mark.parametrize("twice", [False, True])
def test_coordinates_that_a_term_of_their_own_holds_are_no_unknowns_of_a_face(
    twice: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless two of them do, whose slopes the equations share; the answer is that of them all."""
    problem = wide(twice=twice)
    f = IntervalTerms.of(problem)
    found = SOLVE(problem, target=0.0)
    inside = (found.theta > f.lo) & (found.theta < f.hi)
    near = found.x + 1e-3, found.theta + 1e-3, np.zeros(0)
    sizes: list[int] = []
    system = interior_point._FaceSystem
    monkeypatch.setattr(
        interior_point, "_FaceSystem", lambda H, B: sizes.append(len(H)) or system(H, B)
    )
    x, theta, _ = optimum_on_face(f, f.quadratic(), near, inside)
    np.testing.assert_allclose(x, found.x, atol=1e-12)
    assert np.abs(f.adjoint(theta)).max() < 1e-11
    own = inside[20:].reshape(-1, problem.d).sum(axis=0)
    assert sizes == [problem.d - int((own == 1).sum())]
    assert own.max() == (2 if twice else 1)


@pytest.mark.parametrize("kinks", [0, 4, 9])
def test_coordinates_with_squares_of_their_own_are_no_unknowns_of_the_factor(kinks: int) -> None:
    """Nor are they lost: the step solves the whole system, whatever else there is in it."""
    rng, d = np.random.default_rng(kinks), 10
    H = np.diag(10.0 ** rng.uniform(-1, 2, d))
    H[0, 0] = 0.0  # an intercept
    H[1:3, 1:3] = [[2.0, 1.0], [1.0, 2.0]]
    H[3, 3] = 1e-9  # next to none beside its column
    B = rng.standard_normal((kinks, d)) * 10.0 ** rng.uniform(-1, 0, (kinks, 1))
    if not kinks:
        H[0, 0] = 1.0
    system = interior_point._FaceSystem(H, B)
    assert len(system.others) == (2 if not kinks else 4)
    assert len(system.factor.pivots) == len(system.others) + kinks
    first, second = rng.standard_normal(d), rng.standard_normal(kinks)
    step = system.solve(first, second)
    assert step is not None
    x, slopes = step
    np.testing.assert_allclose(H @ x + B.T @ slopes, first, atol=1e-10)
    np.testing.assert_allclose(B @ x, second, atol=1e-10)
    everything = np.block([[H, B.T], [B, np.zeros((kinks, kinks))]])
    np.testing.assert_allclose(
        np.concatenate(step), np.linalg.solve(everything, np.concatenate([first, second])),
        rtol=1e-6, atol=1e-8,
    )


# -- against another solver, on anything --------------------------------------------------------

ROWS = {  # e, q, -lo, hi
    "hinge": (0, 0, 1, 0), "absolute": (0, 0, 1, 1), "quantile": (0, 0, 0.1, 0.9),
    "epsilon": (0.3, 0, 1, 1), "smoothed_epsilon": (0.3, 0.5, 1, 1), "one_sided": (0.2, 0, 0, 1),
    "smoothed_hinge": (0, 0.5, 1, 0), "squared_hinge": (0, 1, np.inf, 0),
    "huber": (0, 1, 0.7, 0.7), "squared": (0, 1, np.inf, np.inf), "nothing": (0, 0, 0, 0),
}


def drawn(seed: int) -> Problem:
    """A small problem of any kind: losses mixed, M = 0, singular or dense, ties, duplicates.

    Most are feasible by a planted point; about one in ten is infeasible or unbounded.
    """
    r = np.random.default_rng(seed)
    n, d = int(r.integers(1, 80)), int(r.integers(1, 9))
    A = r.standard_normal((n, d))
    if r.random() < 0.2:
        A = np.round(A)  # degenerate vertices
    if r.random() < 0.15:
        A[:, int(r.integers(d))] = 0.0
    if r.random() < 0.15:
        A[n // 2:] = A[: n - n // 2]
    if r.random() < 0.15:
        A *= 10.0 ** r.integers(-3, 4, (1, d))
    if r.random() < 0.1:
        A = A.astype(np.float32)
    names = list(ROWS)
    kinds = [str(r.choice(names))] * n if r.random() < 0.6 else [str(k) for k in r.choice(names, n)]
    x, e, q, down, up = r.standard_normal(d), *np.array([ROWS[kind] for kind in kinds]).T
    b = A @ x + r.standard_normal(n) * r.choice([0.0, 0.1, 1.0])
    if r.random() < 0.2:
        b = np.round(b)
    c = np.exp(r.standard_normal(n) * r.choice([0.0, 1.0]))
    lo, hi = -down * c, up * c
    if r.random() < 0.3:  # constraints as terms
        for i in r.choice(n, min(n, int(r.integers(1, 4))), replace=False):
            e[i] = q[i] = 0.0
            equal = r.random() < 0.3
            lo[i], hi[i] = -np.inf if equal else 0.0, np.inf
            b[i] = A[i] @ x + (0.0 if equal else r.random())
    B = r.standard_normal((d, max(1, d // 2)))
    form = [
        Quadratic(np.zeros(d)), Quadratic(np.ones(d)), Quadratic(np.zeros(d), B @ B.T),
        Quadratic((r.random(d) < 0.5).astype(float)), Quadratic(np.full(d, 1e-3), B @ B.T),
    ][int(r.integers(5))]
    side = None
    if r.random() < 0.6:
        k = int(r.integers(1, 6))
        equal = int(r.integers(0, min(k, d) + 1))
        F = np.eye(d)[r.integers(d, size=k)] if r.random() < 0.3 else r.standard_normal((k, d))
        offset = np.where(np.arange(k) < equal, 0.0, r.random(k) * r.integers(0, 2, k)) - F @ x
        if r.random() < 0.1:
            offset[-1] -= 5.0
        dims = (("zero", equal), ("nonneg", k - equal))
        side = SideConstraints(sp.csr_matrix(F), offset, tuple(x for x in dims if x[1]))
    return Problem(
        Rows(sp.csr_matrix(A) if r.random() < 0.3 else A), Losses(b, e, q / c, lo, hi), form,
        r.standard_normal(d) * r.choice([0.0, 0.1, 3.0]), side=side,
    )


@pytest.mark.table
@pytest.mark.parametrize("seed", range(60))
def test_any_problem(seed: int) -> None:
    """Clarabel's status and value; the constraints hold and the multipliers fit."""
    problem = drawn(seed)
    written = problem.to_cvxpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        written.solve(solver="CLARABEL")
    status, size = written.status, 1.0 + abs(written.value)
    found = SOLVE(problem, target=1e-8 * size if np.isfinite(size) else 1e-8)
    assert found.status == status.removesuffix("_inaccurate")
    if found.status != "optimal":
        return
    assert problem.primal(found.x) == pytest.approx(written.value, abs=2e-6 * size)
    t = problem.design.forward(found.x)
    assert float(problem.losses.violation(t).max()) <= 1e-8 * size
    assert problem.side is None or problem.side.violation(found.x) <= 1e-8 * size
    proof = certify(problem, found.x, found.theta, found.multipliers, tol=1e-6)
    left = problem.design.adjoint(found.theta) + problem.linear + problem.quadratic.apply(found.x)
    if problem.side is not None:
        left = left - problem.side.adjoint(found.multipliers)
    load = np.abs(problem.design.dense()).T @ np.abs(found.theta) + np.abs(problem.linear) + 1.0
    assert proof.ok or (np.abs(left) <= 1e-6 * load).all()


def test_unbounded() -> None:
    """Nothing holds a coordinate: said so, not an answer."""
    n = 30
    problem = Problem(
        Rows(np.random.default_rng(0).standard_normal((n, 3))),
        Losses.repeated(n, 0.0, 0.0, 0.0, -0.01, 0.01), Quadratic(np.zeros(3)), np.r_[5.0, 0, 0],
    )
    assert SOLVE(problem, target=1e-9).status == "unbounded"


def test_infeasible() -> None:
    """Constraints that nothing satisfies, and equations that contradict each other."""
    base = portfolio()
    d = base.d
    F = np.zeros((2, d))
    F[0, 0], F[1, 0] = 1.0, -1.0
    apart = SideConstraints(sp.csr_matrix(F), np.r_[-1.0, 0.5], (("nonneg", 2),))
    assert SOLVE(replace(base, side=apart), target=1e-9).status == "infeasible"
    equal = SideConstraints(sp.csr_matrix(F), np.r_[-1.0, 0.5], (("zero", 2),))
    assert SOLVE(replace(base, side=equal), target=1e-9).status == "infeasible"


# -- what its answers rest on ------------------------------------------------------------------


def test_fenchel_young_terms_are_those_of_the_losses() -> None:
    """Value plus conjugate minus product, for every loss without a dead zone."""
    rng = np.random.default_rng(0)
    for kind in ("hinge", "absolute", "quantile", "smoothed_hinge", "huber", "squared_hinge"):
        e, q, down, up = np.array(ROWS[kind]).T
        losses = Losses.repeated(200, 0.3, float(e), float(q), -float(down), float(up))
        problem = Problem(Rows(np.ones((200, 1))), losses, Quadratic(np.ones(1)), np.zeros(1))
        t = 2.0 * rng.standard_normal(200)
        theta = np.clip(2.0 * rng.standard_normal(200), losses.lo, losses.hi)
        mine = fenchel_young(IntervalTerms.of(problem), t - losses.b, theta)
        np.testing.assert_allclose(mine, losses.fenchel_young(t, theta), rtol=1e-12, atol=1e-14)


def test_the_gap_charges_what_is_not_balanced() -> None:
    """At twice the optimum, with the slopes of that point, the residual is all that is wrong."""
    rng = np.random.default_rng(1)
    A, n = rng.standard_normal((60, 4)), 60
    problem = Problem(
        Rows(A), Losses(A @ np.ones(4), np.zeros(n), np.zeros(n), np.full(n, -1.0), np.ones(n)),
        Quadratic(np.zeros(4)), np.zeros(4),
    )
    x = 2.0 * np.ones(4)
    theta = problem.losses.slope(problem.design.forward(x))
    gap, _ = Attempt(IntervalTerms.of(problem), 0.0).gap_of(x, theta, np.zeros(0))
    assert gap >= problem.primal(x)  # the optimum is worth 0


def bounded(b: float, lo: float, hi: float, linear: float, m: float = 0.0) -> PrimalDualPath:
    """One coordinate, one term ``[lo, hi]`` at b; an infinite slope makes it a constraint."""
    problem = Problem(
        Rows(np.ones((1, 1))), Losses([b], [0.0], [0.0], [lo], [hi]),
        Quadratic(np.array([m])), np.array([linear]),
    )
    return PrimalDualPath(IntervalTerms.of(problem))


def test_a_point_outside_the_constraints_is_none() -> None:
    """Whatever its Fenchel-Young terms: of an inequality and of an equality."""
    path = bounded(1.0, 0.0, np.inf, 0.0)
    run = Attempt(path.terms, 0.0)
    assert run.gap_of(np.array([1.0]), np.zeros(1), np.zeros(0))[0] == 0.0
    assert np.isinf(run.gap_of(np.array([1.1]), np.zeros(1), np.zeros(0))[0])
    problem = portfolio()
    run = Attempt(IntervalTerms.of(problem), 0.0)
    inside, theta = np.r_[np.full(8, 0.125), 0.0], np.zeros(len(run.terms))
    assert np.isfinite(run.gap_of(inside, theta, np.zeros(1))[0])
    assert np.isinf(run.gap_of(1.01 * inside, theta, np.zeros(1))[0])


def test_a_direction_proves_unboundedness_only_where_nothing_holds_it() -> None:
    """Neither a constraint on either side, nor a square, nor a slope that is steeper."""
    one = np.ones(1)
    assert bounded(1.0, -0.5, 0.5, -1.0)._descends(one)
    assert not bounded(1.0, -0.5, 0.5, 1.0)._descends(one)
    assert not bounded(1.0, -0.5, 1.5, -1.0)._descends(one)
    assert not bounded(1.0, 0.0, np.inf, -1.0)._descends(one)
    assert not bounded(1.0, -np.inf, 0.0, 1.0)._descends(-one)
    assert not bounded(1.0, -0.5, 0.5, -1.0, m=1.0)._descends(one)


def test_slopes_prove_infeasibility_only_where_they_cancel() -> None:
    """``x <= -1`` has a value of -1 and points; with ``-x <= 0`` beside it there are none."""
    path = bounded(-1.0, 0.0, np.inf, 0.0)
    path.theta = np.ones(1)
    assert path.separating(RAY) is None
    both = Problem(
        Rows(np.array([[1.0], [-1.0]])),
        Losses([-1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [np.inf, np.inf]),
        Quadratic(np.zeros(1)), np.zeros(1),
    )
    path = PrimalDualPath(IntervalTerms.of(both))
    path.theta = np.ones(2)
    np.testing.assert_array_equal(path.separating(RAY), [1.0, 1.0])


def test_only_a_rounding_error_is_moved_onto_a_bound() -> None:
    """A coordinate at 1e-15 becomes 0, one at 1e-9 stays."""
    terms = IntervalTerms.of(portfolio())
    x = np.r_[1e-15, 1e-9, np.full(6, 1 / 6), 0.1]
    moved = terms.at_bounds(x)
    assert moved[0] == 0.0
    np.testing.assert_array_equal(moved[1:], x[1:])


def tail(n: int, side: bool, noise: float) -> Problem:
    """Losses of a nu-SVM, ``mean_i [rho - y_i <a_i, x>]_+ - 0.5 rho + 1/2 |x|^2``: kinks at 0."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((n, 5))
    y = np.sign(X @ rng.standard_normal(5) + noise * rng.standard_normal(n))
    zero, none = np.zeros(n), np.r_[np.ones(5), 0.0]
    held = SideConstraints(np.eye(6)[5:], np.zeros(1), [("nonneg", 1)]) if side else None
    return Problem(
        Rows(np.c_[-y[:, None] * X, np.ones(n)]), Losses(zero, zero, zero, zero, zero + 1.0 / n),
        Quadratic(none), np.r_[np.zeros(5), -0.5], side=held,
    )


@pytest.mark.parametrize("noise", [1.0, 10.0])
@pytest.mark.parametrize(("inner", "side"), [
    (InteriorPoint(max_steps=30), False), (InteriorPoint(max_steps=30), True),
    (Newton(max_steps=30), False),
])
def test_losses_without_a_scale_of_their_own(
    inner: InteriorPoint | Newton, side: bool, noise: float
) -> None:
    """All kinks at 0: neither is a point near 0 an optimum, nor one at 0 none.

    A residual is charged with the size that the squared norm gives the coordinates, and an optimum
    of 0 is met to the rounding of what cancels in it, in one call and few steps.
    """
    problem, rounds = tail(400, side, noise), list[Round]()
    found = solve_screened(problem, inner, tol=1e-9, on_round=rounds.append)
    clarabel = solved_by_cvxpy(problem)
    assert found.certificate.ok
    assert found.certificate.primal == pytest.approx(clarabel, abs=1e-8)
    assert (abs(clarabel) < 1e-8) == (noise == 10.0)
    assert len(rounds) == 1


# -- a budget of losses ----------------------------------------------------------------------------
