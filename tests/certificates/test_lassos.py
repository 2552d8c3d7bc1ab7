"""Certificates of a lasso along C: bounds of what is lost, in exact arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from rational import Fraction

import cvxscreen as cs
from cvxscreen.certificates.certificate import certify
from cvxscreen.certificates.many import certify_lassos
from cvxscreen.core.duality import margin_error
from cvxscreen.core.lasso import Lasso
from cvxscreen.core.losses import Losses
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem, ZeroQuadratic
from cvxscreen.designs.rows import Rows

VALUES = np.array([0.02, 0.1, 0.7])


def drawn(intercept: bool, n: int = 40, d: int = 6, offset: float = 0.0, kind=np.float64):
    """A weighted lasso, of centred features but for the `offset`."""
    rng = np.random.default_rng(n + d)
    X = rng.standard_normal((n, d))
    weights = rng.uniform(0.5, 2.0, n)
    X = (X - weights @ X / weights.sum() + offset).astype(kind)
    y = 2.0 * X[:, 0] - X[:, 1] + rng.standard_normal(n) + 3.0
    return cs.regression(
        X, y, C=0.3, loss="squared", penalty="l1", sample_weight=weights, intercept=intercept
    )


def at(problem: Problem, values=VALUES):
    """The factors of weights and norm at values of C."""
    return values / problem.C, np.ones(len(values))


def exact(problem: Problem, x) -> Fraction:
    """The objective at x."""
    f, rows = problem.losses, problem.design.dense()
    point = [Fraction(float(value)) for value in x]
    total = Fraction(0)
    for i, row in enumerate(rows):
        z = sum(Fraction(float(a)) * v for a, v in zip(row, point, strict=True))
        z -= Fraction(float(f.b[i]))
        q = Fraction(float(f.q[i]))
        total += z * z / (2 * q) if q else abs(z) * Fraction(float(f.hi[i]))
    kappa = problem.penalty.kappa if problem.penalty is not None else []
    return total + sum(Fraction(float(k)) * abs(v) for k, v in zip(kappa, point, strict=False))


def test_the_parts_are_the_problem() -> None:
    """Its objective, written out from them; and slopes that are feasible for it."""
    for intercept in (False, True):
        problem = drawn(intercept)
        lasso = Lasso.of(problem)
        assert lasso is not None
        assert lasso.intercept == intercept
        x = np.random.default_rng(0).standard_normal(problem.d)
        r = lasso.rows.forward(x) - lasso.targets
        value = 0.5 * lasso.weights @ r**2 + lasso.kappa @ np.abs(x[:6])
        assert value == pytest.approx(problem.primal(x), rel=1e-13)
        theta = lasso.slopes(x)
        assert (theta >= problem.losses.lo).all()
        assert (theta <= problem.losses.hi).all()
        assert Lasso.of(cs.regression(np.eye(3), np.ones(3), loss="huber", penalty="l1")) is None


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_the_gap_bounds_what_is_lost(intercept: bool, kind, offset: float) -> None:
    """Of points that are off, none is closer to the optimum than the gap says."""
    problem = drawn(intercept, offset=offset, kind=kind)
    lasso, rng = Lasso.of(problem), np.random.default_rng(1)
    best = [cs.solve(problem.with_(C=value), tol=1e-10) for value in VALUES]
    for size in (0.0, 1e-9, 1e-6, 1e-3, 1.0):
        X = np.array([one.x + size * rng.standard_normal(problem.d) for one in best])
        proofs = certify_lassos(lasso, *at(problem), X, tol=1e-7)
        for value, one, x, gap, primal in zip(
            VALUES, best, X, proofs.gap, proofs.primal, strict=True
        ):
            here = problem.with_(C=value)
            assert float(exact(here, x) - exact(here, one.x)) <= gap
            # Margins of data far from 0 are known to a rounding that is no such part of the sum.
            slopes = here.losses.slope(here.design.forward(x))
            room = 2.0 * float(np.abs(slopes) @ margin_error(here, x))
            assert primal == pytest.approx(here.primal(x), rel=1e-12, abs=room)
        if not size and not offset:
            assert proofs.ok.all()


def test_what_another_intercept_costs_is_charged() -> None:
    """And no more, where the walls of all features are far: all coefficients are 0 there."""
    problem, values = drawn(True).with_(C=1e-4), np.array([1e-4, 2e-4])
    lasso = Lasso.of(problem)
    best = np.zeros(7)
    best[-1] = lasso.weights @ lasso.targets / lasso.weights.sum()
    X = np.array([best] * 2)
    X[:, -1] += 1e-2
    proofs = certify_lassos(lasso, *at(problem, values), X, tol=1e-6)
    for value, x, gap in zip(values, X, proofs.gap, strict=True):
        here = problem.with_(C=value)
        lost = float(exact(here, x) - exact(here, best))
        assert 0.0 < lost <= gap <= 1.001 * lost
    assert not proofs.ok.any()
    assert certify_lassos(lasso, *at(problem, values), np.array([best] * 2), tol=1e-9).ok.all()


def test_the_rounding_of_margins_is_charged() -> None:
    """Targets that are the margins as computed: the residuals that there are do not show."""
    rng = np.random.default_rng(0)
    X, x, n = 1e8 * rng.standard_normal((30, 5)), rng.standard_normal(5), 30
    b, ends, none = X @ x, np.full(n, np.inf), np.zeros(n)
    losses = Losses(b, none, np.full(n, 1e-16), -ends, ends)
    problem = Problem(
        Rows(X), losses, ZeroQuadratic(np.zeros(5)), np.zeros(5), penalty=L1(np.full(5, 1e-30))
    )
    value = float(exact(problem, x))
    proofs = certify_lassos(Lasso.of(problem), np.ones(1), np.ones(1), x[None], tol=1e-6)
    assert value > 1e-3
    assert proofs.gap[0] >= value
    assert not proofs.ok[0]


@pytest.mark.parametrize("intercept", [False, True])
def test_dual_points_beyond_the_walls_are_shrunk(intercept: bool) -> None:
    """At 0 and at the least squares fit, whose slopes are not those of the optimum."""
    problem = drawn(intercept)
    fit = np.linalg.lstsq(problem.design.dense()[:40], problem.losses.b[:40], rcond=None)[0]
    for x in (np.zeros(problem.d), fit, 3.0 * fit):
        proofs = certify_lassos(Lasso.of(problem), *at(problem), np.array([x] * 3), tol=1e-6)
        for value, gap in zip(VALUES, proofs.gap, strict=True):
            best = cs.solve(problem.with_(C=value), tol=1e-10)
            assert problem.with_(C=value).primal(x) - best.value <= gap * (1.0 + 1e-9)


def test_the_norm_may_change_instead() -> None:
    """Along lambda."""
    X, y = np.random.default_rng(0).standard_normal((60, 5)), np.arange(60.0)
    problem, lams = cs.sparse_svr(X, y, 1.0, loss="squared", l2=0.0), np.array([0.3, 2.0])
    best = [cs.solve(problem.with_(lam=lam), tol=1e-10) for lam in lams]
    for size in (0.0, 1e-3, 1.0):
        points = np.array([one.x + size for one in best])
        proofs = certify_lassos(Lasso.of(problem), np.ones(2), lams, points, tol=1e-8)
        assert proofs.ok.all() == (not size)
        for lam, one, x, gap, primal in zip(
            lams, best, points, proofs.gap, proofs.primal, strict=True
        ):
            here = problem.with_(lam=lam)
            assert primal == pytest.approx(here.primal(x), rel=1e-12)
            assert float(exact(here, x) - exact(here, one.x)) <= gap


def test_points_that_are_none_are_refused() -> None:
    problem = drawn(False)
    X = np.full((3, 6), np.nan)
    assert not certify_lassos(Lasso.of(problem), *at(problem), X, tol=1e-6).ok.any()
    found = cs.solve(problem, tol=1e-9)
    one = certify_lassos(Lasso.of(problem), np.ones(1), np.ones(1), found.x[None], tol=1e-9)
    assert one.ok.all()
    assert certify(problem, found.x, Lasso.of(problem).slopes(found.x), tol=1e-9).ok
