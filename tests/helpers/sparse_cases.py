"""Small problems under an L1 term with their optima, and a count of wrong decisions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from cvxscreen.bounds import midpoint_ball, named
from cvxscreen.bounds.regions import Ball
from cvxscreen.core.duality import Point, reference_point
from cvxscreen.core.losses import Piece
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem
from cvxscreen.models.linear import sparse_svm, sparse_svr
from cvxscreen.screening.reduction import Verdict, judge
from cvxscreen.solvers.lambda_max import lambda_max
from cvxscreen.solvers.prox_newton import ProxNewton

CURVED = ("smoothed_hinge", "squared_hinge", "smoothed_epsilon", "huber")
KINKED = ("hinge", "epsilon")
DATA = ("dense", "sparse", "float32", "scaled")


def make(
    loss: str, data: str, seed: int, n: int = 60, d: int = 40, share: float = 0.2
) -> Problem:
    """A problem at `share` of its lambda_max."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    w = np.where(rng.random(d) < 0.15, rng.standard_normal(d), 0.0)
    t = X @ w + 0.5 * rng.standard_normal(n)
    if data == "sparse":
        X = sp.csr_matrix(X * (rng.random((n, d)) < 0.3))
    elif data == "float32":
        X = X.astype(np.float32)
    elif data == "scaled":
        X = X * 10.0 ** rng.uniform(-3, 3, d)
    weights = rng.uniform(0.2, 3.0, n)
    if "hinge" in loss:
        y = np.where(t >= 0, 1.0, -1.0)
        y[:2] = (1.0, -1.0)
        p = sparse_svm(X, y, 1.0, loss=loss, sample_weight=weights, l2=rng.uniform(0.3, 2.0))
    else:
        p = sparse_svr(X, t, 1.0, loss=loss, sample_weight=weights, l2=rng.uniform(0.3, 2.0))
    return p.with_(lam=share * lambda_max(p))


@dataclass(frozen=True, eq=False)
class Truth:
    """The optimum of `problem` up to `blur` (in the norm of M)."""

    problem: Problem
    x: np.ndarray
    theta: np.ndarray
    margins: np.ndarray
    v: np.ndarray
    blur: float

    @classmethod
    def of(cls, problem: Problem) -> Truth:
        scale = problem.primal(np.zeros(problem.d))
        found = ProxNewton()(problem, None, 1e-15 * scale)
        point = reference_point(problem, found.x, found.theta)
        ball = midpoint_ball(problem, point)
        assert isinstance(ball, Ball)
        assert point.gap <= 1e-10 * scale
        pull = -(problem.design.adjoint(point.theta) + problem.linear)
        return cls(problem, point.x, point.theta, point.margins, pull, 2.0 * ball.radius)


def wrong(truth: Truth, verdict: Verdict) -> Counter[str]:
    """Wrong decisions about features, terms and keepings; within `blur` either answer passes."""
    problem, slack = truth.problem, truth.blur / np.sqrt(truth.problem.quadratic.diagonal)
    assert isinstance(problem.penalty, L1)
    kappa = problem.penalty.kappa
    bad: Counter[str] = Counter()
    bad["dropped"] = int((verdict.dropped & (np.abs(truth.x) > slack)).sum())
    # v* - M x* is a subgradient of kappa |.|: where x* = 0 for certain v* is inside.
    surely_zero = np.abs(truth.v) < kappa * (1 - 1e-5)
    bad["needed"] = int((verdict.needed_features & surely_zero & (np.abs(truth.x) == 0)).sum())
    room = truth.blur * problem.norms + 1e-9 * (1 + np.abs(truth.margins))
    pieces = [problem.losses.piece_within(t, t) for t in
              (truth.margins - room, truth.margins, truth.margins + room)]
    said = verdict.codes >= 0
    agrees = np.any([verdict.codes == p for p in pieces], axis=0)
    agrees |= np.any([p == Piece.UNDECIDED for p in pieces], axis=0)
    bad["terms"] = int((said & ~agrees).sum())
    flat = [(p == Piece.LOW) | (p == Piece.ZERO) | (p == Piece.HIGH) for p in pieces]
    bad["kept terms"] = int((verdict.needed_terms & np.all(flat, axis=0)).sum())
    return bad


def decisions(verdict: Verdict) -> int:
    """How many things a verdict says."""
    masks = (verdict.codes >= 0, verdict.dropped, verdict.needed_features, verdict.needed_terms)
    return int(sum(mask.sum() for mask in masks))


def points(truth: Truth, rng: np.random.Generator, count: int) -> list[Point]:
    """Points from coarse to fine around the optimum, on and off the face of the solution."""
    found = []
    for size in 10.0 ** rng.uniform(-6, 0, count):
        noise = rng.standard_normal(truth.problem.d) * (np.abs(truth.x).max() + 1e-12)
        if rng.random() < 0.5:
            noise[truth.x == 0] = 0.0
        x = truth.x + size * noise
        theta = None
        if rng.random() < 0.5:
            span = np.abs(truth.theta).max()
            theta = truth.theta + size * span * rng.standard_normal(truth.problem.n)
        found.append(reference_point(truth.problem, x, theta))
    return found


def sweep(seeds: range, count: int, names: tuple[str, ...]) -> tuple[int, Counter[str]]:
    """Decisions and wrong ones over all losses and kinds of data."""
    total, bad = 0, Counter[str]()
    for seed in seeds:
        rng = np.random.default_rng(seed)
        for loss in (*CURVED, *KINKED):
            data = DATA[int(rng.integers(len(DATA)))]
            truth = Truth.of(make(loss, data, seed, share=float(rng.choice([0.5, 0.2, 0.05]))))
            for point in points(truth, rng, count):
                for name in names:
                    verdict = judge(truth.problem, named(name)(truth.problem, point))
                    total += decisions(verdict)
                    bad += wrong(truth, verdict)
    return total, bad
