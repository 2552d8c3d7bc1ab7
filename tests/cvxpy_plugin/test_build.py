"""Problems handed to CVXPY: every row of the loss table, every cone, any solver, and back again."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.duality import reference_point
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.cvxpy_plugin.build import build
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise
from cvxscreen.designs.rows import Rows

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
    bounds = found.standard.kinds() == "nonneg"
    assert rows[bounds].min() >= -1e-8
    assert multipliers[bounds].min() >= -1e-8
    assert np.abs(rows[bounds] * multipliers[bounds]).max() <= 1e-6
