"""Features and samples together, where the theorems hold with equality: 0.99 of any box fails."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog
from sparse_cases import Truth, make

from cvxscreen.bounds import dual_ball, joint, synergy
from cvxscreen.bounds.features_and_samples import v_within_gap
from cvxscreen.core.duality import reference_point
from cvxscreen.core.losses import Losses
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows, by_columns


def line(q: float, rng: np.random.Generator) -> tuple[Problem, float]:
    """One coordinate, every term on its linear piece wherever it matters, and the optimum."""
    a = rng.uniform(0.5, 1.5, (15, 1)) * np.where(np.arange(15) < 3, -1.0, 1.0)[:, None]
    c = 2.0**-8
    problem = Problem(
        Rows(a), Losses(np.ones(15), 0.0, q, -c, 0.0), Quadratic(np.ones(1)), np.zeros(1),
        penalty=L1(np.full(1, 2.0**-8)),
    )
    return problem, float(c * a.sum() - 2.0**-8)


@pytest.mark.parametrize("bound", [synergy, joint])
@pytest.mark.parametrize("q", [0.0, 1.0])
def test_the_primal_box_is_attained(bound, q: float, rng: np.random.Generator) -> None:
    """Slopes at the ends: the gap is ``1/2 (x - x*)^2``, x* an end of its box and of each margin's.

    With curvature features are asked first, and again after the samples; the box is the first one.
    """
    for size in rng.uniform(0.1, 1.0, 10):
        problem, best = line(q, rng)
        assert best > 0.0
        point = reference_point(problem, [best * (1.0 + size)], problem.losses.lo)
        boxes = bound(problem, point)
        margins = best * problem.design.dense()[:, 0]
        for values, (low, high) in (([best], boxes.coordinates), (margins, boxes.margins)):
            rounding = 1e-13 * np.abs(values)  # of `best` itself
            assert (values >= low - rounding).all()
            assert (values <= high + rounding).all()
            assert (np.minimum(values - low, high - values) <= 0.004 * (high - low)).all()


def test_the_box_of_a_pull_is_attained(rng: np.random.Generator) -> None:
    """Slopes off along a column: its pull at the optimum is an end of its interval."""
    n = 12
    column = rng.uniform(0.5, 1.0, (n, 1))
    losses = Losses(np.full(n, 0.2), 0.0, 2.0, -1.0, 1.0)
    problem = Problem(
        Rows(column), losses, Quadratic(np.ones(1)), np.zeros(1), penalty=L1(np.full(1, 100.0))
    )
    best = losses.slope(np.zeros(n))
    theta = best + 0.4 * column[:, 0]
    low, high = dual_ball(problem, reference_point(problem, np.zeros(1), theta)).v
    pull = -float(column[:, 0] @ best)
    assert low[0] <= pull <= high[0]
    assert min(pull - low[0], high[0] - pull) <= 0.004 * (high[0] - low[0])


@pytest.mark.parametrize("bound", [synergy, joint])
def test_what_settled_samples_have_used_of_the_gap_is_taken_off_exactly(
    bound, rng: np.random.Generator
) -> None:
    """Some samples at their knots, one feature undecided: the rest's optimum is on its sphere."""
    n, settled = 24, np.arange(24) >= 12
    losses = Losses(
        np.where(settled, 0.6 + 1e-5, 0.2), 0.0, 2.0, np.where(settled, -0.3, -1.0), 1.0
    )
    best, off = losses.slope(np.zeros(n)), 0.1 * rng.standard_normal(n)
    X = rng.standard_normal((n, 3))
    X[:, 0] = np.where(settled, 0.0, 1e-3 * off)
    theta = best + np.where(settled, 0.2, off)
    pulls = -X[:, 0] @ np.array([best, theta]).T
    problem = Problem(
        Rows(X), losses, Quadratic(np.ones(3)), np.zeros(3),
        penalty=L1(np.array([1.0001 * np.abs(pulls).max(), 100.0, 100.0])),
    )
    boxes = bound(problem, reference_point(problem, np.zeros(3), theta))
    assert boxes.rounds > 1
    assert (boxes.slopes[0][settled] == -0.3).all()
    low, high = boxes.v[0][0], boxes.v[1][0]
    assert low <= pulls[0] <= high
    assert min(pulls[0] - low, high - pulls[0]) <= 0.004 * (high - low)


@pytest.mark.parametrize("loss", ["hinge", "epsilon"])
def test_the_budget_is_the_optimum_of_its_linear_program(loss: str) -> None:
    """All slopes in their boxes that the gap can pay for: the pulls reach both ends."""
    binding = 0
    for seed in range(3):
        problem = make(loss, "dense", seed, n=30, d=6)
        rng = np.random.default_rng(seed)
        near = Truth.of(problem).x
        x = near + 1e-4 * np.abs(near).max() * rng.standard_normal(problem.d)
        point = reference_point(problem, x)
        losses = problem.losses
        room = np.where(rng.random(problem.n) < 0.3, rng.uniform(0.2, 1.0, problem.n), 1.0)
        slopes = (room * losses.lo, room * losses.hi)
        at_x = np.clip(losses.slope(point.margins), *slopes)
        same = at_x == losses.slope(point.margins)
        claim = np.where(same, losses.kink_distance(point.margins), 0.0)
        low, high = v_within_gap(problem, point, slopes)
        # theta = at_x + up - down, and claim'(up + down) <= G.
        bounds = [(0.0, v) for v in (*(slopes[1] - at_x), *(at_x - slopes[0]))]
        cost = np.concatenate([claim, claim])[None]
        for j, a in enumerate(by_columns(problem.design).toarray().T):
            ends = []
            for sign in (1.0, -1.0):
                pulled = np.concatenate([-sign * a, sign * a])
                found = linprog(-pulled, A_ub=cost, b_ub=[point.gap], bounds=bounds)
                ends.append(sign * -found.fun - a @ at_x - problem.linear[j])
            size = ends[0] - ends[1]
            assert low[j] <= ends[1] + 1e-9 * size
            assert high[j] >= ends[0] - 1e-9 * size
            assert high[j] - low[j] <= 1.004 * size
            binding += size < 0.9 * float(np.abs(a) @ (slopes[1] - slopes[0]))
    assert binding > 10
