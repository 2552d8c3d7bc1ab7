"""What a residual costs where norms bound better points: contained, and attained."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from rational import Fraction

from cvxscreen.certificates import residual_norms
from cvxscreen.certificates.certificate import certify
from cvxscreen.certificates.residual_norms import norms_growth_cost
from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows


def problem_of(
    blocks: np.ndarray, offset: np.ndarray, costs: np.ndarray, pull: float | np.ndarray = 0.0
) -> Problem:
    """``sum_i costs_i |blocks_i x + offset_i| + <pull, x>``, blocks of shape (n, k, d)."""
    n, k, d = blocks.shape
    F = np.zeros((n, k + 1, d + n))
    F[:, 1:, :d] = blocks
    F[np.arange(n), 0, d + np.arange(n)] = 1.0
    f = np.zeros((n, k + 1))
    f[:, 1:] = offset
    side = SideConstraints(sp.csr_matrix(F.reshape(-1, d + n)), f.ravel(), [("soc", k + 1)] * n)
    return Problem(
        design=Rows(np.zeros((0, d + n))), losses=Losses(*np.zeros((5, 0))),
        quadratic=Quadratic(np.zeros(d + n)), linear=np.append(np.zeros(d) + pull, costs),
        side=side, kind="cvxpy",
    )


def point(problem: Problem, x: np.ndarray, slopes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`x` with its norms, and multipliers with these tails."""
    side, d = problem.side, len(x)
    assert side is not None
    n, k = slopes.shape
    whole = np.append(x, np.zeros(problem.d - d))
    lengths = np.linalg.norm(side.slack(whole).reshape(n, k + 1)[:, 1:], axis=1)
    whole[d:] = lengths
    return whole, np.column_stack([problem.linear[d:], slopes]).ravel()


@pytest.mark.parametrize("pull", [0.0, 3.0])
@pytest.mark.parametrize("seed", range(5))
def test_no_better_point_gains_more(seed: int, pull: float) -> None:
    """``<r, x - y>`` for y that are no worse, of random slopes."""
    rng = np.random.default_rng(seed)
    blocks, offset = rng.standard_normal((40, 2, 3)), rng.standard_normal((40, 2))
    costs = rng.uniform(0.5, 2.0, 40)
    problem = problem_of(blocks, offset, costs, pull * rng.standard_normal(3))
    slopes = 0.3 * rng.standard_normal((40, 2)) * costs[:, None] / 2
    x, mu = point(problem, rng.standard_normal(3), slopes)
    mu = problem.side.project_dual(mu)  # type: ignore[union-attr]
    value = problem.primal(x)
    cost = norms_growth_cost(problem, x, np.zeros(0), mu, value)
    assert np.isfinite(cost)
    residual = problem.linear - problem.side.adjoint(mu)  # type: ignore[union-attr]
    tried = 0
    for _ in range(2000):
        y, _ = point(problem, rng.standard_normal(3) * rng.uniform(0.0, 2.0), slopes)
        if problem.primal(y) <= value:
            tried += 1
            assert float(residual @ (x - y)) <= cost
    assert tried > 20


@pytest.mark.parametrize(("pull", "at"), [(0.0, 0.0), (4.5, 0.0), (16.2, 0.0), (4.5, 50.0)])
def test_the_cost_is_attained(pull: float, at: float) -> None:
    """Norms of one coordinate alone: the point opposite to x loses all of it.

    A linear cost moves it away: ``18 |y - at| + pull y`` is the same at 3 beside and there.
    """
    problem = problem_of(np.ones((9, 1, 1)), np.full((9, 1), -at), np.full(9, 2.0), pull)
    x, mu = point(problem, np.array([at + 3.0]), np.full((9, 1), -0.25))
    cost = norms_growth_cost(problem, x, np.zeros(0), mu, problem.primal(x))
    residual = problem.linear - problem.side.adjoint(mu)  # type: ignore[union-attr]
    there = at - 3.0 * (18.0 + pull) / (18.0 - pull)
    opposite, _ = point(problem, np.array([there]), np.full((9, 1), -0.25))
    assert problem.primal(opposite) == pytest.approx(problem.primal(x))
    lost = float(residual @ (x - opposite))
    assert 0.99 * cost < lost <= cost


@pytest.mark.parametrize("pull", [18.0, 17.99, 40.0])
def test_a_linear_cost_that_norms_do_not_bound_costs_anything(pull: float) -> None:
    """Along it the objective falls, or all but does."""
    problem = problem_of(np.ones((9, 1, 1)), np.zeros((9, 1)), np.full(9, 2.0), pull)
    x, mu = point(problem, np.array([3.0]), np.full((9, 1), -0.25))
    assert norms_growth_cost(problem, x, np.zeros(0), mu, problem.primal(x)) == np.inf


def test_what_norms_do_not_bound_is_not_bounded() -> None:
    """A coordinate in no norm, a bound that costs nothing, a linear cost."""
    rng = np.random.default_rng(0)
    blocks, offset = rng.standard_normal((40, 2, 3)), rng.standard_normal((40, 2))
    blocks[:, :, 2] = 0.0
    free = problem_of(blocks, offset, np.ones(40))
    blocks[:, :, 2] = blocks[:, :, 1]  # two coordinates that move alike
    alike = problem_of(blocks, offset, np.ones(40))
    blocks = rng.standard_normal((40, 2, 3))
    idle = problem_of(blocks, offset, np.append(np.ones(39), 0.0))
    for problem in (free, alike, idle):
        x, mu = point(problem, rng.standard_normal(3), np.zeros((40, 2)))
        assert norms_growth_cost(problem, x, np.zeros(0), mu, problem.primal(x)) == np.inf


def test_a_bad_answer_is_refused() -> None:
    """Slopes that do not balance, by one part in a thousand, cost as much."""
    rng = np.random.default_rng(1)
    blocks, x = rng.standard_normal((300, 2, 3)), rng.standard_normal(3)
    offset = rng.standard_normal((300, 2))
    residuals = blocks @ x + offset
    slopes = -residuals / np.linalg.norm(residuals, axis=1)[:, None]
    problem = problem_of(blocks, offset, np.ones(300))
    whole, mu = point(problem, x, slopes * (1.0 - 1e-15))
    assert not certify(problem, whole, np.zeros(0), mu, tol=1e-3).ok


@pytest.mark.parametrize("seed", range(4))
def test_a_residual_of_long_sums_is_no_larger_than_its_bound(seed: int) -> None:
    """Of 3,000 rows that balance up to rounding, exactly."""
    rng = np.random.default_rng(seed)
    blocks, offset = rng.standard_normal((3000, 2, 5)), rng.standard_normal((3000, 2))
    problem = problem_of(blocks, offset, np.ones(3000))
    mu = point(problem, np.zeros(5), 0.1 * rng.standard_normal((3000, 2)))[1].reshape(3000, 3)
    flat, tails = blocks.reshape(6000, 5), mu[:, 1:].reshape(6000)
    mu[:, 1:] = (tails - flat @ np.linalg.solve(flat.T @ flat, flat.T @ tails)).reshape(3000, 2)
    known = residual_norms.GrowthOfNorms.of(problem)
    assert known is not None
    bound = residual_norms._residual_at_most(problem, np.zeros(0), mu.ravel(), known)[1]
    ends = [Fraction(float(part)) for part in mu[:, 1:].ravel()]
    for j in range(5):
        exact = sum(Fraction(float(a)) * b for a, b in zip(flat[:, j], ends, strict=True))
        assert abs(exact) <= Fraction(float(bound[j])) <= abs(exact) + Fraction(1, 10**11)


def test_products_that_all_round_the_same_way_are_no_more_than_the_bound() -> None:
    """They cancel as they are computed, but not exactly."""
    rng = np.random.default_rng(0)
    pairs = rng.uniform(0.5, 1.0, (20_000, 2))
    off = [float(abs(Fraction(a) * Fraction(m) - Fraction(a * m)) / Fraction(a * m))
           for a, m in pairs.tolist()]
    a, m = pairs[int(np.argmax(off))]
    n = 3000
    entries = np.where(np.arange(n) < n // 2, a, -1.0)
    problem = problem_of(entries[:, None, None], np.ones((n, 1)), np.ones(n))
    tails = np.where(np.arange(n) < n // 2, m, a * m)
    mu = point(problem, np.zeros(1), tails[:, None])[1]
    known = residual_norms.GrowthOfNorms.of(problem)
    assert known is not None
    bound = residual_norms._residual_at_most(problem, np.zeros(0), mu, known)[1]
    exact = (n // 2) * abs(Fraction(float(a)) * Fraction(float(m)) - Fraction(float(a * m)))
    assert 0 < exact <= Fraction(float(bound[0]))


def test_it_imports_nothing_that_solves() -> None:
    """As the certificate itself."""
    tree = ast.parse(Path(str(residual_norms.__file__)).read_text("utf-8"))
    own = {
        node.module for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cvxscreen")
    }
    core = {"cvxscreen.core.norm_blocks", "cvxscreen.core.problem"}
    assert own <= {"cvxscreen._support.rounding", *core}
