"""What the sparse solvers keep from one problem for the next belongs to that problem only."""

from __future__ import annotations

import numpy as np
import pytest
from sparse_cases import make as sparse_model
from sparse_problems import D, N, make, solved, target_of, words

from cvxscreen.certificates.certificate import certify
from cvxscreen.core.duality import reference_point, rescaled_point
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.screening.reduction import Selection
from cvxscreen.solvers.dual_active_set import DualActiveSet, PathCache, known_margins
from cvxscreen.solvers.interface import Start
from cvxscreen.solvers.rows_and_columns import IndexedSubproblem


def test_a_start_evaluated_elsewhere_is_evaluated_again(rng: np.random.Generator) -> None:
    """A point of other data with the same losses: its products are not those of its slopes."""
    first = make("hinge", rng)
    other = Problem(Rows(words(rng)), first.losses, first.quadratic, first.linear)
    point = reference_point(first, np.zeros(D), 0.5 * first.losses.lo)
    solved(other, Start(point.x, point.theta, point=point))


def test_rows_kept_in_another_metric_are_forgotten(rng: np.random.Generator) -> None:
    """Straight after each other, on the same rows; both answers are certified."""
    cache, first = PathCache(), make("hinge", rng)
    other = Problem(first.design, first.losses, Quadratic(np.linspace(1.0, 9.0, D)), first.linear)
    for problem in (first, other):
        found = DualActiveSet(path_cache=cache)(problem, None, target_of(problem, 1e-9))
        assert found.status == "optimal"
        assert "dual_active_set" not in found.info
        assert certify(problem, found.x, found.theta, tol=1e-8).ok


def test_margins_of_a_rescaled_point_are_those_of_its_duals(rng: np.random.Generator) -> None:
    """Known from the middle without a pass."""
    problem = make("hinge", rng)
    theta = problem.losses.lo * rng.uniform(0.0, 1.0, N)
    point = reference_point(problem, -problem.design.adjoint(theta), theta)
    moved = rescaled_point(problem.with_(C=3.0), point)
    margins = known_margins(moved)
    assert margins is not None
    np.testing.assert_allclose(margins, problem.design.forward(moved.x_theta), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("relative", [1e-1, 1e-2, 1e-4])
def test_the_gap_of_an_active_set_is_that_of_its_pair(
    relative: float, rng: np.random.Generator
) -> None:
    """With an unpenalised coordinate the dual point is balanced first, which costs something."""
    design = Rows(words(rng), rng.choice([-1.0, 1.0], N), np.ones((N, 1)))
    parts = {"quadratic": Quadratic(np.r_[np.ones(D), 0.0]), "linear": np.zeros(D + 1)}
    problem = make("hinge", rng, design=design, **parts)
    found = DualActiveSet()(problem, None, target_of(problem, relative))
    point = reference_point(problem, found.x, found.theta)
    assert point.gap <= 1.001 * found.info["gap"] + 1e-9 * abs(point.primal)


def test_a_reduction_of_a_reduction_knows_where_its_parts_lie() -> None:
    """Indices are those of the full problem however often it was reduced."""
    problem = sparse_model("hinge", "dense", 3, n=12, d=6)
    subproblem = IndexedSubproblem(problem, np.arange(problem.n), np.arange(problem.d))
    codes, dropped = np.full(12, -1, dtype=np.int8), np.zeros(6, dtype=bool)
    codes[[0, 4]], dropped[1] = 0, True
    subproblem = subproblem.within(Selection(codes, dropped))
    codes, dropped = np.full(10, -1, dtype=np.int8), np.zeros(5, dtype=bool)
    codes[[2, 9]], dropped[[0, 3]] = 0, True
    subproblem = subproblem.within(Selection(codes, dropped))
    np.testing.assert_array_equal(subproblem.terms, [1, 2, 5, 6, 7, 8, 9, 10])
    np.testing.assert_array_equal(subproblem.features, [2, 3, 5])
    np.testing.assert_array_equal(
        subproblem.problem.design.dense(),
        problem.design.dense()[np.ix_(subproblem.terms, subproblem.features)],
    )
