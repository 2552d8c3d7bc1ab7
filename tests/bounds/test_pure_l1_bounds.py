"""The dual ball without a quadratic term: attained, never left, and no feature wrongly dropped."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import scipy.sparse as sp

from cvxscreen._support.rounding import gamma
from cvxscreen.bounds import dual_ball
from cvxscreen.core.duality import feasible_share, reference_point, rescaled_point
from cvxscreen.core.losses import Losses
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem, ZeroQuadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.screening.reduction import Screening, judge
from cvxscreen.solvers.prox_newton import ProxNewton

DATA = ("dense", "sparse", "float32", "scaled")
LOSSES = ("squared_hinge", "smoothed_hinge", "huber", "smoothed_epsilon")


def pure(design: Rows, losses: Losses, kappa: np.ndarray) -> Problem:
    """The problem with weights `kappa` in its L1 norm."""
    d = design.shape[1]
    return Problem(
        design, losses, ZeroQuadratic(np.zeros(d)), np.zeros(d), penalty=L1(kappa), lam=1.0
    )


def make(loss: str, data: str, seed: int, share: float, n: int = 50, d: int = 30) -> Problem:
    """A problem at `share` of its largest lambda, with weights of its own for each feature."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    t = X[:, 0] - 0.8 * X[:, 1] + 0.5 * rng.standard_normal(n)
    if data == "sparse":
        X *= rng.random((n, d)) < 0.3
    elif data == "scaled":
        X = X * 10.0 ** rng.uniform(-3, 3, d)
    c = rng.uniform(0.2, 3.0, n) / n
    if "hinge" in loss:
        X = X * np.where(t >= 0, 1.0, -1.0)[:, None]
    matrix = sp.csr_matrix(X) if data == "sparse" else X
    if data == "float32":
        matrix = matrix.astype(np.float32)
    losses = {
        "squared_hinge": lambda: Losses(np.ones(n), 0.0, 1 / c, -np.inf, 0.0),
        "smoothed_hinge": lambda: Losses(np.ones(n), 0.0, 0.5 / c, -c, 0.0),
        "huber": lambda: Losses(t, 0.0, 1 / c, -0.5 * c, 0.5 * c),
        "smoothed_epsilon": lambda: Losses(t, 0.1, 0.5 / c, -c, c),
    }[loss]()
    design = Rows(matrix)
    weight = rng.uniform(0.5, 2.0, d) * (np.std(X, axis=0) + 1e-3 if data == "scaled" else 1.0)
    top = np.max(np.abs(design.adjoint(losses.slope(np.zeros(n)))) / weight)
    return pure(design, losses, share * top * weight)


@dataclass(frozen=True, eq=False)
class Truth:
    """The optimum, its slopes within `blur` (in the metric of q)."""

    problem: Problem
    x: np.ndarray
    theta: np.ndarray
    value: float
    blur: float

    @classmethod
    def of(cls, problem: Problem) -> Truth:
        scale = problem.primal(np.zeros(problem.d))
        found = ProxNewton()(problem, None, 1e-14 * scale)
        point = reference_point(problem, found.x, found.theta)
        assert point.gap <= 1e-9 * scale
        return cls(problem, point.x, point.theta, point.primal, float(np.sqrt(2 * point.gap)))


def points(truth: Truth, rng: np.random.Generator, count: int) -> list:
    """Points from coarse to fine around the optimum, also with slopes that are not feasible."""
    made = []
    for size in 10.0 ** rng.uniform(-7, 0, count):
        noise = rng.standard_normal(truth.problem.d) * np.abs(truth.x)
        x, theta = truth.x + size * noise, None
        if rng.random() < 0.5:
            theta = truth.theta * (1 + size * rng.standard_normal(truth.problem.n))
            theta = np.clip(theta, truth.problem.losses.lo, truth.problem.losses.hi)
        made.append(reference_point(truth.problem, x, theta))
    return made


def line(rng: np.random.Generator, q: float, kappa: float = 100.0) -> tuple[Problem, np.ndarray]:
    """One feature, slopes inside their boxes: x = 0 is optimal, its slopes are known."""
    n = 12
    column = rng.uniform(0.5, 1.0, (n, 1))
    losses = Losses(0.2 * column[:, 0], 0.0, q, -1.0, 1.0)
    problem = pure(Rows(column), losses, np.full(1, kappa))
    return problem, losses.slope(np.zeros(n))


@pytest.mark.parametrize("q", [1.0, 3.0])
def test_the_dual_ball_is_attained(q: float, rng: np.random.Generator) -> None:
    """Slopes off along the column: the optimum's pull is an end of its interval; 0.99 misses it."""
    for _ in range(10):
        problem, best = line(rng, q)
        column = problem.design.dense()[:, 0]
        theta = best + rng.uniform(0.05, 0.2) * column
        boxes = dual_ball(problem, reference_point(problem, np.zeros(1), theta))
        low, high = boxes.v
        pull = -float(column @ best)
        assert low[0] <= pull <= high[0]
        middle, reach = 0.5 * (low[0] + high[0]), 0.5 * (high[0] - low[0])
        assert abs(pull - middle) > 0.99 * reach


def test_a_smaller_radius_would_drop_a_feature_that_is_needed(rng: np.random.Generator) -> None:
    """At a weight just below the pull at 0 the feature enters; with 0.99 it would be left out."""
    problem, best = line(rng, 1.0)
    column = problem.design.dense()[:, 0]
    pull = abs(float(column @ best))
    problem = replace(problem, penalty=L1(np.full(1, pull * (1 - 1e-4))))
    point = reference_point(problem, np.zeros(1), 0.9 * best)
    boxes = dual_ball(problem, point)
    assert not judge(problem, boxes).dropped[0]
    assert ProxNewton()(problem, None, 1e-14).x[0] != 0.0
    low, high = boxes.v
    middle, reach = 0.5 * (low + high), 0.5 * (high - low)
    short = replace(boxes, v=(middle - 0.99 * reach, middle + 0.99 * reach))
    assert judge(problem, short).dropped[0]


@pytest.mark.table
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("data", DATA)
def test_nothing_wrong_is_decided(loss: str, data: str) -> None:
    """The intervals contain the optimum, and without the dropped features it is the same."""
    said = {"dropped": 0, "needed": 0, "terms": 0}
    for seed in range(4):
        rng = np.random.default_rng(seed)
        truth = Truth.of(make(loss, data, seed, [0.6, 0.3, 0.1, 0.03][seed]))
        problem, losses = truth.problem, truth.problem.losses
        pull = -problem.design.adjoint(truth.theta)
        off = truth.blur * problem.column_norms + 1e-12 * np.abs(pull)
        near = truth.blur / np.sqrt(losses.q)
        dropped = np.zeros(problem.d, dtype=bool)
        for point in points(truth, rng, 25):
            boxes = dual_ball(problem, point)
            verdict = judge(problem, boxes)
            assert (pull >= boxes.v[0] - off).all()
            assert (pull <= boxes.v[1] + off).all()
            assert (truth.theta >= boxes.slopes[0] - near).all()
            assert (truth.theta <= boxes.slopes[1] + near).all()
            assert np.isinf(boxes.coordinates[1][~verdict.dropped]).all()
            dropped |= verdict.dropped
            inside = (truth.theta > losses.lo - near) & (truth.theta < losses.hi + near)
            assert inside[verdict.needed_terms].all()
            assert not verdict.zero.any()
            assert not verdict.linear.any()
            said["needed"] += int(verdict.needed_features.sum())
            said["terms"] += int(verdict.needed_terms.sum())
        said["dropped"] += int(dropped.sum())
        whole = Screening.empty(problem)
        less = replace(whole, selection=replace(whole.selection, dropped=dropped)).reduce()
        if less.d:
            assert Truth.of(less).value <= truth.value + truth.blur**2 + 1e-12 * truth.value
    assert said["dropped"] > 20
    assert said["needed"] == 0  # at most kappa in absolute value: no rule can tell
    assert said["terms"] > 20


@pytest.mark.parametrize("data", DATA)
def test_slopes_are_feasible_in_exact_arithmetic(data: str) -> None:
    """``|A_j' theta| <= kappa_j`` for the slopes of a point, computed in rational numbers."""
    from rational import Fraction

    for seed in range(6):
        rng = np.random.default_rng(seed)
        problem = make("huber", data, seed, 0.05, n=20, d=8)
        x = rng.standard_normal(8) * 10.0 ** rng.uniform(-8, 2)
        point = reference_point(problem, x)
        moved = rescaled_point(problem.with_(lam=0.7), point)
        rows = problem.design.dense().astype(np.float64)
        for here in (point, moved, rescaled_point(problem.with_(lam=0.3), moved)):
            kappa = here.problem.penalty.kappa
            for j in range(8):
                total = sum((Fraction(float(a)) * Fraction(float(s))
                             for a, s in zip(rows[:, j], here.theta, strict=True)), Fraction(0))
                assert abs(total) <= Fraction(float(kappa[j]))
                error = abs(Fraction(float(-here.penalty_subgradient[j])) - total)
                size = np.linalg.norm(here.theta) * np.linalg.norm(rows[:, j])
                assert error <= Fraction(1e-13 * float(size))
        assert point.gap >= 0


def test_a_share_is_lost_only_where_it_must_be() -> None:
    problem = make("huber", "dense", 0, 0.3)
    theta = problem.losses.slope(np.zeros(problem.n))
    force = problem.design.adjoint(theta)
    share, blur = feasible_share(problem, theta, force)
    kappa = problem.penalty.kappa  # type: ignore[union-attr]
    assert share * np.max(np.abs(force) / kappa) == pytest.approx(1.0, rel=1e-12)
    assert feasible_share(problem, 0.5 * share * theta, 0.5 * share * force)[0] == 1.0
    assert (blur <= 2 * gamma(problem.n + 64) * np.linalg.norm(theta) * problem.column_sizes).all()
