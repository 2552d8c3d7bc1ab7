"""A ball cut by the cone of metrics, its centre outside: attained, and never wrong."""

from __future__ import annotations

import numpy as np
import pytest

import cvxscreen
from cvxscreen.bounds.regions import Ball
from cvxscreen.bounds.regions.cone_ball import ConeBall
from cvxscreen.core.duality import reference_point
from cvxscreen.core.problem import Problem

A, B, DEPTH, RADIUS = 1.0, 0.1, 0.5, 1.0
LEAST = float(np.sqrt(RADIUS**2 - DEPTH**2))


def one_triplet() -> Problem:
    """``H = diag(A^2, -B^2)``: the far point lies along the first axis, the near one the second."""
    X = np.array([[0.0, 0.0], [0.0, B], [A, 0.0]])
    return cvxscreen.rtlm(X, np.array([[0, 1, 2]]), 1.0)


def low(first: float, radius: float = RADIUS) -> float:
    """The least margin over metrics within `radius` of ``diag(first, -DEPTH)``, as bounded."""
    problem = one_triplet()
    centre = np.diag([first, -DEPTH]).ravel()
    ball = Ball(problem, "test", centre, problem.design.forward(centre), radius, 1.0)
    return float(ConeBall(ball).intervals()[0][0])


def test_attained_where_the_ball_touches_the_cone_s_edge() -> None:
    """The least margin is ``A^2 (first - sqrt(r^2 - DEPTH^2))``, at a metric of rank one.

    At first = 1 + LEAST it is the hinge's threshold: a little more is decided, a little less is
    not, and 0.99 of the radius would decide wrongly.
    """
    assert low(1.0 + LEAST + 1e-4) >= 1.0
    assert low(1.0 + LEAST - 1e-4) < 1.0
    assert low(1.0 + LEAST - 1e-3, 0.99 * RADIUS) >= 1.0


@pytest.mark.parametrize("seed", range(20))
def test_no_metric_of_the_region_lies_below(seed: int) -> None:
    """Metrics drawn inside ball and cone, and the projections of the centre onto the cone."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((12, 3)) * 10.0 ** rng.uniform(-2, 2)
    y = np.repeat([0, 1], 6)
    problem = cvxscreen.rtlm(X, cvxscreen.triplets(X, y, k=3), 1.0)
    root = rng.standard_normal((3, 3))
    centre = root + root.T
    values, vectors = np.linalg.eigh(centre)
    nearest = (vectors * np.maximum(values, 0.0)) @ vectors.T
    radius = 1.2 * float(np.linalg.norm(centre - nearest))
    flat = centre.ravel()
    ball = Ball(problem, "test", flat, problem.design.forward(flat), radius, 1.0)
    least, most = ConeBall(ball).intervals()
    inside = [nearest]
    for _ in range(200):
        step = rng.standard_normal((3, 3))
        values, vectors = np.linalg.eigh(nearest + 0.3 * radius * rng.random() * (step + step.T))
        found = (vectors * np.maximum(values, 0.0)) @ vectors.T
        if np.linalg.norm(found - centre) <= radius:
            inside.append(found)
    assert len(inside) > 5
    for metric in inside:
        margins = problem.design.forward(metric.ravel())
        room = 1e-12 * np.abs(margins).max()
        assert (least <= margins + room).all()
        assert (margins <= most + room).all()


@pytest.mark.parametrize("bound", ["gb", "pgb", "midpoint", "dgb"])
@pytest.mark.parametrize("diagonal", [False, True])
def test_each_rule_proves_what_those_before_it_prove(bound: str, diagonal: bool, rng) -> None:
    """Term by term, from references of any roughness; a search must not lose what a formula has."""
    y = np.arange(90) % 3
    X = rng.standard_normal((90, 4)) + np.eye(4)[y]
    problem = cvxscreen.rtlm(X, cvxscreen.triplets(X, y, k=4), 1.0, diagonal=diagonal)
    problem = problem.with_(lam=0.01 * cvxscreen.lambda_max(problem))
    size = np.abs(cvxscreen.solve(problem).x).max()
    gained = 0
    for rough in (3.0, 0.3, 0.03, 0.003):
        near = cvxscreen.solve(problem, tol=1e-9).x
        point = reference_point(
            problem, problem.penalty.project(near + rough * size * rng.standard_normal(len(near)))
        )
        decided = [
            ~cvxscreen.screen(problem, reference=point, bound=bound, rule=rule).undecided
            for rule in ("sphere", "linear", "cone")
        ]
        assert not (decided[0] & ~decided[1]).any()
        assert not (decided[1] & ~decided[2]).any()
        gained += int(decided[2].sum() - decided[0].sum())
    assert gained > 0
