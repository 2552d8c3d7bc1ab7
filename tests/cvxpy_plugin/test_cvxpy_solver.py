"""Problems handed to CVXPY, and back: every loss, cone and solver, points inside, first points."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from cvxpy.constraints import Equality
from cvxpy_plugin.zoo import Data
from rational import Fraction

from cvxscreen import cvxpy_plugin
from cvxscreen.bounds import midpoint_ball, theorems as balls
from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.duality import reference_point
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.cvxpy_plugin import cvxpy_solver
from cvxscreen.cvxpy_plugin.cvxpy_solver import (
    CvxpySolver,
    build,
    metric_start,
    strictly_feasible_point,
)
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise
from cvxscreen.cvxpy_plugin.request import Report
from cvxscreen.designs.rows import Rows
from cvxscreen.screening.reduction import judge
from cvxscreen.solvers.loop import solve_screened

INF = float("inf")
N, D = 25, 3
RNG = np.random.default_rng(11)
X, R = RNG.normal(size=(N, D)), RNG.normal(size=N)
TIGHT = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}

LOSSES: dict[str, tuple[Any, float, float, float, float]] = {
    "hinge": (1.0, 0, 0, -1, 0),
    "smoothed hinge": (1.0, 0, 0.5, -1, 0),
    "squared hinge": (1.0, 0, 0.5, -INF, 0),
    "rising hinge": (R, 0, 0, 0, 2),
    "rising smoothed hinge": (R, 0, 0.3, 0, 2),
    "rising squared hinge": (R, 0, 0.3, 0, INF),
    "absolute": (R, 0, 0, -1, 1),
    "pinball": (R, 0, 0, -0.3, 0.7),
    "epsilon": (R, 0.2, 0, -1, 1),
    "smoothed epsilon": (R, 0.2, 0.5, -1, 1),
    "huber": (R, 0, 0.5, -1, 1),
    "squared epsilon": (R, 0.1, 0.5, -INF, INF),
    "half squared": (R, 0.1, 0.3, -1, INF),
    "squares": (R, 0, 0.3, -INF, INF),
}
ROUND_TRIP = [name for name in LOSSES if name not in ("squared epsilon", "half squared", "squares")]


def rows(*names: str) -> Losses:
    tables = []
    for name in names:
        table = [np.broadcast_to(np.asarray(part, dtype=float), (N,)) for part in LOSSES[name]]
        tables.append(np.column_stack(table))
    return Losses(*np.concatenate(tables).T)


def problem_of(*names: str, quadratic: Quadratic | None = None, **more: Any) -> Problem:
    design = Rows(np.vstack([X] * len(names)))
    return Problem(
        design=design,
        losses=rows(*names),
        quadratic=quadratic or Quadratic(np.ones(D)),
        linear=more.pop("linear", np.zeros(D)),
        **more,
    )


def solved(problem: Problem, solver: str = "CLARABEL", **options: Any) -> Any:
    built = build(problem)
    built.problem.solve(solver=solver, **(options or (TIGHT if solver == "CLARABEL" else {})))
    assert built.problem.status == cp.OPTIMAL
    return built


@pytest.mark.parametrize("name", LOSSES)
def test_value_slopes_and_gap(name: str) -> None:
    problem = problem_of(name)
    built = solved(problem)
    x, theta, _ = built.read()
    assert built.problem.value == pytest.approx(problem.primal(x), rel=1e-7)
    assert reference_point(problem, x, theta).relative_gap <= 1e-7


def test_all_losses_together_with_everything_else() -> None:
    gram = RNG.normal(size=(D, D))
    problem = problem_of(
        *LOSSES,
        quadratic=Quadratic(np.ones(D), gram @ gram.T),
        linear=np.array([1.0, -2.0, 0.5]),
        constant=3.0,
    )
    built = solved(problem)
    x, theta, _ = built.read()
    assert built.problem.value == pytest.approx(problem.primal(x), rel=1e-8)
    assert reference_point(problem, x, theta).relative_gap <= 1e-8


def test_side_constraints_and_their_multipliers() -> None:
    """Stationarity: M x + q + A' theta - F' mu = 0, with mu in the dual cone."""
    d = 4
    frame = np.zeros((1 + 2 + 3 + 4, d))
    frame[0] = 1.0
    frame[1, 0], frame[2, 1] = 1.0, -1.0
    frame[4, 0], frame[5, 1] = 1.0, 1.0
    frame[6:] = np.array([[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]])
    offset = np.array([-1.0, 0.1, 0.5, 0.6, 0, 0, 0.2, 0, 0, 0.2])
    dims = (("zero", 1), ("nonneg", 2), ("soc", 3), ("psd", 2))
    data = RNG.normal(size=(N, d))
    problem = Problem(
        design=Rows(data),
        losses=rows("absolute"),
        quadratic=Quadratic(np.ones(d)),
        linear=np.array([1.0, -1.0, 2.0, -3.0]),
        side=SideConstraints(frame, offset, dims),
    )
    x, theta, multipliers = solved(problem).read()
    assert problem.side is not None
    assert problem.side.violation(x) <= 1e-7
    assert np.allclose(multipliers, problem.side.project_dual(multipliers), atol=1e-7)
    assert abs(multipliers @ problem.side.slack(x)) <= 1e-6
    pull = problem.quadratic.apply(x) + problem.linear + data.T @ theta
    assert np.allclose(pull, problem.side.adjoint(multipliers), atol=1e-6)


@pytest.mark.parametrize("solver", ["SCS", "OSQP", "HIGHS"])
def test_other_solvers_read_the_same(solver: str) -> None:
    problem = problem_of("hinge", "epsilon", "huber", "squared hinge")
    truth = solved(problem).read()
    options = {"SCS": {"eps": 1e-9}, "OSQP": {"eps_abs": 1e-9, "eps_rel": 1e-9}}
    found = solved(problem, solver, **options.get(solver, {})).read()
    assert np.allclose(found[0], truth[0], atol=1e-5)
    assert np.allclose(found[1], truth[1], atol=1e-4)


def test_highs_is_handed_no_bounds_on_variables() -> None:
    """Canonical helpers with bounds make some solvers of CVXPY 1.9 wrong; none are made here."""
    built = build(problem_of(*LOSSES))
    for variable in built.problem.variables():
        assert not any(variable.attributes[name] for name in ("nonneg", "nonpos", "bounds"))
    kinds = {atom.__name__ for atom in built.problem.atoms()}
    assert not kinds & {"maximum", "abs", "huber", "pos", "norm1", "max"}


def test_hinge_costs_one_row_and_one_slack() -> None:
    built = build(problem_of("hinge"))
    assert [constraint.size for constraint in built.problem.constraints] == [N, N]
    assert sorted(variable.size for variable in built.problem.variables()) == [D, N]


@pytest.mark.parametrize("solver", ["CLARABEL", "SCS", "OSQP"])
def test_a_problem_with_nothing_left_is_solved(solver: str) -> None:
    problem = Problem(
        design=Rows(np.zeros((0, D))),
        losses=Losses(*np.zeros((5, 0))),
        quadratic=Quadratic(np.full(D, 2.0)),
        linear=np.arange(3.0),
    )
    x, theta, multipliers = solved(problem, solver).read()
    assert np.allclose(x, [0.0, -0.5, -1.0], atol=1e-4)
    assert theta.shape == multipliers.shape == (0,)


def test_sparse_data_stay_sparse() -> None:
    sparse = sp.random(N, 40, 0.1, random_state=2, format="csr")
    problem = Problem(Rows(sparse), rows("hinge"), Quadratic(np.ones(40)), np.zeros(40))
    constants = [c.value for c in build(problem).problem.constants() if c.shape == (N, 40)]
    assert len(constants) == 1
    assert sp.issparse(constants[0])


@pytest.mark.parametrize("name", ROUND_TRIP)
def test_what_is_built_is_recognised_again(name: str) -> None:
    problem = problem_of(name)
    found = recognise(problem.to_cvxpy()).problem
    assert (found.n, found.d) == (N, D)
    for x in (np.zeros(D), RNG.normal(size=D), 3 * RNG.normal(size=D)):
        assert found.primal(x) == pytest.approx(problem.primal(x), rel=1e-12)
    for field in ("e", "q"):
        assert np.allclose(getattr(found.losses, field), getattr(problem.losses, field))


@pytest.mark.parametrize("name", ROUND_TRIP)
def test_multipliers_of_what_was_built_are_restored(name: str) -> None:
    found = recognise(problem_of(name).to_cvxpy())
    x, theta, side = solved(found.problem).read()
    z = found.columns(x)
    multipliers = found.multipliers(z, theta, side)
    assert np.abs(found.residual(z, multipliers)).max() <= 1e-6
    rows = found.standard.rows.values(z)
    bounds = found.standard.inside("nonneg")
    if bounds.any():
        assert rows[bounds].min() >= -1e-8
        assert multipliers[bounds].min() >= -1e-8
        assert np.abs(rows[bounds] * multipliers[bounds]).max() <= 1e-6
        return
    # Slack variables that are read as they are written have no rows: on the user's constraints.
    built = problem_of(name).to_cvxpy()
    built.solve(method="screen", solver="builtin", always=True, tol=1e-12)
    assert built.solver_stats.extra_stats["cvxscreen"].recognised
    assert sum(constraint.size for constraint in built.constraints) >= found.problem.n
    plain = problem_of(name).to_cvxpy()
    plain.solve(solver="CLARABEL", **TIGHT)
    for constraint, theirs in zip(built.constraints, plain.constraints, strict=True):
        room = -constraint.expr.value
        if isinstance(constraint, Equality):
            assert np.abs(room).max() <= 1e-8
            assert np.abs(constraint.dual_value - theirs.dual_value).max() <= 1e-5
            continue
        assert room.min() >= -1e-8
        assert constraint.dual_value.min() >= -1e-8
        assert np.abs(room * constraint.dual_value).max() <= 1e-6
    assert max(constraint.dual_value.max() for constraint in built.constraints) > 1e-3


# -- points inside side constraints for certain, and safe screening that rests on them -------------


cvxpy_plugin.register()


def box(d: int = 3) -> SideConstraints:
    rows = np.vstack([np.eye(d), -np.eye(d)])
    return SideConstraints(sp.csr_matrix(rows), np.tile([0.2, 0.6], (d, 1)).T.ravel(),
                           [("nonneg", 2 * d)])


def ball(d: int = 3) -> SideConstraints:
    rows = np.vstack([np.zeros(d), np.eye(d)])
    return SideConstraints(sp.csr_matrix(rows), np.append(0.7, np.zeros(d)), [("soc", d + 1)])


def psd(side: int = 2) -> SideConstraints:
    return SideConstraints(sp.eye(side * side), np.zeros(side * side), [("psd", side)])


@pytest.mark.parametrize("make", [box, ball, psd])
def test_a_strict_point_and_the_step_towards_it(make: Any) -> None:
    side = make()
    strict = strictly_feasible_point(side)
    assert strict is not None
    assert side.surely_holds(strict)
    away = 10.0 * np.ones(len(strict)) if make is not psd else -np.eye(2).ravel()
    assert np.array_equal(side.moved_inside(away, strict), away)  # too far for a small step
    assert np.array_equal(side.moved_inside(strict, strict), strict)


@pytest.mark.parametrize("make", [box, ball])
def test_certain_means_in_rational_arithmetic(make: Any) -> None:
    """Points around the boundary, an ulp apart: whatever is called inside is inside."""
    side = make()
    strict = strictly_feasible_point(side)
    rng = np.random.default_rng(4)
    F = [[Fraction(float(v)) for v in row] for row in side.matrix.toarray()]
    f = [Fraction(float(v)) for v in side.offset]
    told = 0
    for _ in range(200):
        x = rng.standard_normal(3)
        # On the boundary along a ray from the strict point, up to rounding.
        low, high = 0.0, 1e3
        for _ in range(80):
            middle = 0.5 * (low + high)
            fits = side.violation(strict + middle * x) == 0.0
            low, high = (middle, high) if fits else (low, middle)
        at = strict + low * (1 + rng.integers(-40, 2) * 1e-16) * x
        if not side.surely_holds(at):
            moved = side.moved_inside(at, strict)
            assert side.surely_holds(moved)
            assert np.abs(moved - at).max() <= 1e-8
            at = moved
        told += 1
        z = [Fraction(float(v)) for v in at]
        s = [sum(a * b for a, b in zip(row, z, strict=True)) + c
             for row, c in zip(F, f, strict=True)]
        if make is box:
            assert min(s) >= 0
        else:
            assert s[0] >= 0
            assert s[0] ** 2 >= sum(v * v for v in s[1:])
    assert told == 200


def test_an_eigenvalue_of_the_wrong_sign_is_never_inside() -> None:
    side, rng = psd(3), np.random.default_rng(5)
    for size in (1.0, 1e-6, 1e6):
        for _ in range(50):
            Q = np.linalg.qr(rng.standard_normal((3, 3)))[0]
            for small in (-1e-15, -1e-18, 0.0):
                M = (Q * (size * np.array([1.0, 0.3, small]))) @ Q.T
                assert not side.surely_holds(M.ravel())
            M = (Q * (size * np.array([1.0, 0.3, 1e-10]))) @ Q.T
            assert side.surely_holds(M.ravel())


def test_without_an_interior_there_is_no_strict_point() -> None:
    plane = SideConstraints(sp.csr_matrix(np.ones((1, 3))), [-1.0], [("zero", 1)])
    assert not plane.surely_holds(np.array([1.0, 0.0, 0.0]))
    twice = SideConstraints(sp.csr_matrix(np.ones((2, 3))), [-1.0, -1.0], [("zero", 2)])
    assert strictly_feasible_point(twice) is None  # equalities without full rank say nothing
    corner = SideConstraints(
        sp.csr_matrix(np.vstack([np.ones((1, 2)), np.eye(2)])), np.zeros(3),
        [("zero", 1), ("nonneg", 2)])
    assert strictly_feasible_point(corner) is None
    pinched = SideConstraints(sp.csr_matrix([[1.0], [-1.0]]), [0.0, 0.0], [("nonneg", 2)])
    assert strictly_feasible_point(pinched) is None
    empty = SideConstraints(sp.csr_matrix([[1.0], [-1.0]]), [-1.0, 0.0], [("nonneg", 2)])
    assert strictly_feasible_point(empty) is None


def test_nearness_is_a_distance_to_the_feasible_set() -> None:
    """Against the exact projection onto the plane, in rational arithmetic; never below it."""
    rng = np.random.default_rng(8)
    tight = 0
    for size in (1.0, 1e-4, 1e5):
        for _ in range(60):
            normal, offset = size * rng.standard_normal(3), float(size * rng.standard_normal())
            rows = np.vstack([normal, np.eye(3)])
            side = SideConstraints(
                sp.csr_matrix(rows), np.append(offset, np.full(3, 1e3)),
                [("zero", 1), ("nonneg", 3)])
            x = rng.standard_normal(3)
            x -= normal * (normal @ x + offset) / (normal @ normal)
            x += rng.choice([0.0, 1e-12, 1e-6]) * rng.standard_normal(3)
            exact = [Fraction(float(v)) for v in normal]
            left = sum(a * Fraction(float(v)) for a, v in zip(exact, x, strict=True))
            left = abs(left + Fraction(offset))
            distance = float(left) / float(sum(a * a for a in exact)) ** 0.5
            near = side.nearness(x)
            assert np.isfinite(near)
            assert near >= distance * (1 - 1e-12)
            if distance > 1e-8:
                assert near <= 1.001 * distance
                tight += 1
    assert tight > 30


CONSTRAINTS: dict[str, Any] = {
    "plane": lambda s: [cp.sum(s.w) == 0.2],
    "plane_and_box": lambda s: [cp.sum(s.w) == 0.2, s.w <= 0.15, s.w[0] + 2 * s.w[1] == 0.05],
    "box": lambda s: [s.w <= 0.1, s.w >= -0.1],
    "ball": lambda s: [cp.norm(s.w) <= 0.3],
    "both": lambda s: [cp.norm(s.w) <= 0.3, cp.sum(s.w) >= 0.05],
}


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_safe_mode_proves_under_constraints_and_never_wrongly(name: str) -> None:
    """Verdicts from a loose point hold at a far more accurate solution."""
    data = Data(n=600, d=4)
    hinge = cp.sum(cp.pos(1 - cp.multiply(data.y, data.X @ data.w)))
    problem = cp.Problem(cp.Minimize(data.ridge + hinge), CONSTRAINTS[name](data))
    found = recognise(problem).problem
    truth = solve_screened(found, CvxpySolver("CLARABEL", TIGHT), tol=1e-8)
    margins = found.design.forward(truth.x)
    proven = 0
    for tol in (1e-2, 1e-4, 1e-7):
        options = {"tol_gap_abs": tol, "tol_gap_rel": tol, "tol_feas": tol}
        loose = CvxpySolver("CLARABEL", options)(found)
        point = reference_point(found, loose.x, loose.theta, loose.multipliers)
        verdict = judge(found, midpoint_ball(found, point))
        proven = max(proven, int(verdict.zero.sum() + verdict.linear.sum()))
        accuracy = 1e-6
        low, high = found.losses.b - accuracy, found.losses.b + accuracy
        assert (margins[verdict.zero] >= low[verdict.zero]).all()
        assert (margins[verdict.linear] <= high[verdict.linear]).all()
    assert proven > 0.8 * found.n
    problem.solve(method="screen", mode="safe", solver="CLARABEL", **TIGHT)
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert report.fixed["zero"] + report.fixed["linear"] > 0.8 * report.terms
    assert report.fixed["predicted"] == 0


def test_being_off_an_equality_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """From points beside the plane the ball contains the optimum; without the charge it does not.

    ``x = x* + s n`` without any multiplier: for one sign of s the point lies between the optimum
    and ``x_theta``, and a ball over those two alone leaves the optimum out by s.
    """
    data = Data(n=200, d=4)
    hinge = cp.sum(cp.pos(1 - cp.multiply(data.y, data.X @ data.w)))
    problem = cp.Problem(cp.Minimize(data.ridge + hinge), [cp.sum(data.w) == 0.2])
    found = recognise(problem).problem
    truth = solve_screened(found, CvxpySolver("CLARABEL", TIGHT), tol=1e-9)
    normal = np.ones(4) / 2.0

    def excess() -> list[float]:
        """Distance of the optimum from the centre, minus the radius."""
        out = []
        for step in (1e-2, -1e-2, 1e-4, -1e-4, 1e-6, -1e-6):
            point = reference_point(
                found, truth.x + step * normal, truth.theta, np.zeros(1))
            region = midpoint_ball(found, point)
            out.append(float(np.linalg.norm(truth.x - region.centre)) - region.radius)
        return out

    assert max(excess()) <= 1e-7
    monkeypatch.setattr(balls, "_infeasibility", lambda *_: (0.0, 0.0))
    assert max(excess()) > 5e-3


# -- the first point for metric learning, and that nothing else gets one ---------------------------


cvxpy_plugin.register()


def learning(
    n: int = 1200, d: int = 4, factor: float | None = None, **kind: Any
) -> tuple[Any, Any]:
    """Triplets of random points, the metric to be learned, and the problem.

    With a `factor` of 1 every CVXPY keeps the square in a plain solve; see `Data`.
    """
    rng = np.random.default_rng(3)
    first, second = rng.normal(size=(n, d)) * (1 + np.arange(d)), rng.normal(size=(n, d))
    H = np.einsum("na,nb->nab", first, first) - np.einsum("na,nb->nab", second, second)
    M = cp.Variable((d, d), **(kind or {"PSD": True}))
    loss = cp.sum(cp.pos(1 - H.reshape(n, -1) @ cp.vec(M, order="F")))
    square = cp.sum_squares(M if factor is None else factor * M)
    return M, cp.Problem(cp.Minimize(40.0 * n * square + loss))


def test_the_start_is_near_the_optimum() -> None:
    problem = recognise(learning()[1]).problem
    start = metric_start(problem)
    assert start is not None
    point = reference_point(problem, start.x, start.theta, start.multipliers)
    assert point.relative_gap <= 1e-2
    wrong = reference_point(problem, start.x, start.theta, -start.multipliers)
    assert wrong.relative_gap > 2 * point.relative_gap


@pytest.mark.parametrize("solver", ["CLARABEL", "SCS"])
def test_the_answer_is_that_of_the_plain_solve(
    solver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = []

    def spy(problem: Any) -> Any:
        used.append(metric_start(problem))
        return used[-1]

    monkeypatch.setattr(cvxpy_solver, "metric_start", spy)
    M, problem = learning()
    problem.solve(method="screen", solver=solver)
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert used[0] is not None
    assert report.kept < report.terms
    truth, plain = learning(factor=1.0)
    plain.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    assert problem.value == pytest.approx(plain.value, rel=1e-7)
    assert np.abs(M.value - truth.value).max() <= 1e-4 * np.abs(truth.value).max()


def test_the_start_is_inside_so_that_it_proves() -> None:
    """From the first point alone, before any conic solver: most terms, and none of them wrongly."""
    problem = recognise(learning()[1]).problem
    start = metric_start(problem)
    assert start is not None
    assert problem.side.surely_holds(start.x)
    point = reference_point(problem, start.x, start.theta, start.multipliers)
    verdict = judge(problem, midpoint_ball(problem, point))
    assert verdict.zero.sum() + verdict.linear.sum() > 0.8 * problem.n
    options = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
    truth = CvxpySolver("CLARABEL", options)(problem)
    margins = problem.design.forward(truth.x) - problem.losses.b
    assert (margins[verdict.zero] > -1e-6).all()
    assert (margins[verdict.linear] < 1e-6).all()


def test_reduce_starts_from_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The conic solver never sees all terms."""
    sizes = []
    original = CvxpySolver.__call__

    def watched(self: CvxpySolver, problem: Any, *rest: Any) -> Any:
        sizes.append(problem.n)
        return original(self, problem, *rest)

    monkeypatch.setattr(CvxpySolver, "__call__", watched)
    M, problem = learning(n=3000)
    reduced = cvxpy_plugin.reduce(problem)
    assert sizes
    assert max(sizes) < 0.5 * 3000
    reduced.problem.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10)
    assert reduced.restore().ok
    truth, plain = learning(n=3000, factor=1.0)
    plain.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    assert problem.value == pytest.approx(plain.value, rel=1e-7)
    assert np.abs(M.value - truth.value).max() <= 1e-4 * np.abs(truth.value).max()


def test_other_problems_get_none() -> None:
    assert metric_start(recognise(learning(n=200)[1]).problem) is None
    assert metric_start(recognise(learning(symmetric=True)[1]).problem) is None
    M, problem = learning()
    tied = cp.Problem(problem.objective, [cp.trace(M) == 1])
    assert metric_start(recognise(tied).problem) is None
    off = cp.Problem(problem.objective, [M >> 0.01 * np.eye(4)])
    assert metric_start(recognise(off).problem) is None


# -- squares that are folded for a named solver ----------------------------------------------------


def _curved_fit(name: str) -> tuple[Any, Any]:
    """A fit of 1,500 curved losses, and a constraint whose dual value is unique (or None)."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(1500, 6))
    r = X @ rng.normal(size=6) + rng.standard_t(2, size=1500) + 1.0
    y = np.sign(r + 2.0 * rng.normal(size=1500))
    w, b = cp.Variable(6), cp.Variable()
    huber = cp.sum(cp.huber(X @ w + b - r))
    if name == "squared hinge":
        loss = cp.sum(cp.square(cp.pos(1 - cp.multiply(y, X @ w + b))))
        return cp.Problem(cp.Minimize(loss + cp.sum_squares(w))), None
    if name == "constrained":
        budget = cp.sum(w) == 0.5
        return cp.Problem(cp.Minimize(huber + cp.sum_squares(w)), [budget, w >= -0.2]), budget
    if name == "beside another term":
        budget = cp.sum(w) == 1.0
        cost = huber + 0.1 * cp.sum_squares(w) + 5.0 * cp.norm(w[:3]) + cp.sum(cp.logistic(w))
        return cp.Problem(cp.Minimize(cost), [budget]), budget
    ridge = 0.0 if name == "no ridge" else cp.sum_squares(w)
    return cp.Problem(cp.Minimize(huber + ridge)), None


CURVED_FITS = ("huber", "squared hinge", "no ridge", "constrained", "beside another term")


@pytest.mark.parametrize(
    ("name", "solver"),  # SCS ends short of the certificate beside exponential cones
    [(name, "CLARABEL") for name in CURVED_FITS] + [(name, "SCS") for name in CURVED_FITS[:-1]],
)
def test_a_named_solver_gets_squares_as_one_form(name: str, solver: str) -> None:
    """Terms on a parabola are in the quadratic form: few rows are left for the solver."""
    problem, constraint = _curved_fit(name)
    value = problem.solve(solver="CLARABEL", tol_gap_rel=1e-9, tol_gap_abs=1e-9, tol_feas=1e-9)
    known = {v.id: v.value.copy() for v in problem.variables()}
    dual = None if constraint is None else float(constraint.dual_value)
    found = problem.solve(method="screen", solver=solver, always=True)
    report = Report.of(problem)
    assert (problem.status, report.recognised) == ("optimal", True)
    assert solver in report.solver.upper()
    assert report.kept <= 0.4 * report.terms
    assert abs(found - value) <= 1e-7 * abs(value)
    for variable in problem.variables():
        np.testing.assert_allclose(variable.value, known[variable.id], rtol=1e-4, atol=1e-4)
    if dual is not None:
        assert float(constraint.dual_value) == pytest.approx(dual, rel=1e-4, abs=1e-4)


def test_scs_ends_beside_an_intercept() -> None:
    """A reduced hinge problem with a coordinate that is not squared is solved, not given up."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 30))
    y = np.sign(X @ rng.normal(size=30) + 2.0 * rng.normal(size=3000))
    w, b = cp.Variable(30), cp.Variable()
    cost = 0.5 * cp.sum_squares(w) + cp.sum(cp.pos(1 - cp.multiply(y, X @ w + b)))
    problem = cp.Problem(cp.Minimize(cost))
    problem.solve(method="screen", solver="SCS")
    report = Report.of(problem)
    assert report.named.startswith("optimal after")
    assert problem.solver_stats.num_iters <= 20_000
