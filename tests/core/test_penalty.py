"""Penalties: their parts, the gap and balls that rest on them, the certificate's formulas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from rational import Fraction

from cvxscreen._support.rounding import gamma
from cvxscreen.bounds import available, midpoint_ball
from cvxscreen.bounds.regions import Ball
from cvxscreen.certificates.certificate import certify
from cvxscreen.core.duality import reference_point, rescaled_point
from cvxscreen.core.losses import Losses
from cvxscreen.core.penalty import L1, PSD, NonNegative, Penalty
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.screening.reduction import judge
from cvxscreen.solvers.registry import builtin_solver

KINDS = ("L1", "x >= 0", "PSD")
SIDE = 3


def symmetric(rng: np.random.Generator, n: int) -> np.ndarray:
    rows = rng.standard_normal((n, SIDE, SIDE))
    return (rows + rows.transpose(0, 2, 1)).reshape(n, -1)


def penalty_of(kind: str, d: int, lam: float) -> Penalty:
    return {"L1": L1(np.full(d, 1.5 * lam)), "x >= 0": NonNegative(), "PSD": PSD(SIDE)}[kind]


def smooth(kind: str, seed: int, n: int = 40, lam: float = 0.5, scale: float = 1.0) -> Problem:
    """A smoothed hinge problem whose optimum has both free and pressed coordinates."""
    rng = np.random.default_rng(seed)
    d = SIDE**2
    rows = symmetric(rng, n) if kind == "PSD" else rng.standard_normal((n, d))
    losses = Losses(np.ones(n), 0.0, 0.5, -1.0, 0.0)
    quadratic = Quadratic(np.full(d, lam * scale**2))
    penalty = penalty_of(kind, d, lam * (scale if kind == "L1" else 1.0))
    return Problem(Rows(scale * rows), losses, quadratic, np.zeros(d), penalty=penalty, lam=lam)


def solved(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """The optimum by proximal gradient steps, run until they stand still."""
    assert problem.penalty is not None
    rows, losses = problem.design.dense(), problem.losses
    diagonal = problem.quadratic.diagonal
    step = np.linalg.norm(rows, 2) ** 2 / float(losses.q.min())
    x = np.zeros(problem.d)
    for _ in range(20_000):
        force = -rows.T @ losses.slope(rows @ x) - problem.linear + step * x
        moved, _ = problem.penalty.prox_and_subgradient(force, diagonal + step)
        if np.linalg.norm(moved - x) <= 4e-15 * np.linalg.norm(x):
            break
        x = moved
    return x, losses.slope(rows @ x)


@pytest.mark.parametrize("kind", KINDS)
def test_split_solves_its_own_problem(kind: str) -> None:
    """``s`` is a subgradient of h at ``x_theta``: nothing is left of the complement."""
    rng = np.random.default_rng(0)
    d = SIDE**2
    diagonal = np.full(d, 0.7) if kind == "PSD" else rng.uniform(0.5, 2.0, d)
    penalty = penalty_of(kind, d, 0.4)
    for _ in range(20):
        v = symmetric(rng, 1)[0] if kind == "PSD" else rng.standard_normal(d)
        x, s = penalty.prox_and_subgradient(v, diagonal)
        np.testing.assert_allclose(diagonal * x + s, v, atol=1e-14)
        rounding = 8.0 * gamma(SIDE + 8) * float(np.abs(x).sum() * np.abs(v).sum())
        assert penalty.fenchel_gap(penalty.project(x), s) <= rounding
        better = penalty.project(x + 1e-3 * rng.standard_normal(d))

        def value(z: np.ndarray, v: np.ndarray = v) -> float:
            return float(0.5 * diagonal @ z**2 - v @ z) + penalty.value(z)

        assert value(penalty.project(x)) <= value(better) + 1e-13


def leading_minors(matrix: np.ndarray) -> list[Fraction]:
    """Pivots of rational Gaussian elimination: all non-negative only if the matrix is PSD."""
    work = [[Fraction(float(value)) for value in row] for row in matrix]
    pivots = []
    for k in range(len(work)):
        pivots.append(work[k][k])
        if work[k][k] == 0:
            assert all(value == 0 for value in work[k][k:])
            continue
        for i in range(k + 1, len(work)):
            ratio = work[i][k] / work[k][k]
            work[i] = [a - ratio * b for a, b in zip(work[i], work[k], strict=True)]
    return pivots


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_settled_matrices_are_psd_exactly(scale: float) -> None:
    """In rational arithmetic, for rank-deficient and badly scaled matrices too."""
    rng = np.random.default_rng(3)
    for rank in (1, 2, 4):
        factor = rng.standard_normal((4, rank)) * np.array([[1.0], [scale], [1.0], [1.0]])
        raw = factor @ factor.T - 1e-3 * np.eye(4)
        x = PSD(4).project(raw.ravel()).reshape(4, 4)
        assert np.array_equal(x, x.T)
        assert min(leading_minors(x)) >= 0
        _, s = PSD(4).prox_and_subgradient(raw.ravel(), np.ones(16))
        assert min(leading_minors(-s.reshape(4, 4))) >= 0


@pytest.mark.parametrize("kind", KINDS)
def test_complement_is_an_upper_bound(kind: str) -> None:
    """Against the exact sum in rationals."""
    rng = np.random.default_rng(1)
    d = SIDE**2
    penalty = penalty_of(kind, d, 0.4)
    for scale in (1e-6, 1.0, 1e6):
        x = penalty.project(scale * (symmetric(rng, 1)[0] if kind == "PSD" else rng.normal(size=d)))
        _, s = penalty.prox_and_subgradient(
            symmetric(rng, 1)[0] if kind == "PSD" else rng.normal(size=d), np.ones(d)
        )
        exact = -sum(Fraction(float(a)) * Fraction(float(b)) for a, b in zip(x, s, strict=True))
        if isinstance(penalty, L1):
            exact += sum(Fraction(float(k)) * abs(Fraction(float(a)))
                         for k, a in zip(penalty.kappa, x, strict=True))
        assert exact >= 0
        assert Fraction(penalty.fenchel_gap(x, s)) >= exact
        assert penalty.fenchel_gap(x, s) <= float(exact) * (1 + 1e-9) + 1e-12 * scale


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("kind", KINDS)
def test_gap_is_primal_minus_dual(kind: str, scale: float) -> None:
    """The sum of non-negative terms equals P - D where that does not cancel."""
    problem = smooth(kind, 5, scale=scale)
    rng = np.random.default_rng(2)
    start, _ = solved(problem)
    x = start + 0.3 * np.abs(start).max() * rng.standard_normal(problem.d)
    theta = problem.losses.slope(0.5 * problem.design.forward(x))
    point = reference_point(problem, x, theta)
    v = -problem.design.adjoint(point.theta)
    if kind == "PSD":
        v = (0.5 * (v.reshape(SIDE, SIDE) + v.reshape(SIDE, SIDE).T)).ravel()
    assert problem.penalty is not None
    z, _ = problem.penalty.prox_and_subgradient(v, problem.quadratic.diagonal)
    dual = -float(problem.losses.conjugate(point.theta).sum())
    dual -= 0.5 * problem.quadratic.norm(z) ** 2
    assert point.gap == pytest.approx(point.primal - dual, rel=1e-9)
    proof = certify(problem, point.x, point.theta)
    assert proof.gap == pytest.approx(point.gap, rel=1e-9)
    assert proof.primal == pytest.approx(point.primal, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_ball_contains_the_optimum_and_decides_rightly(kind: str) -> None:
    """Containment and consequence from coarse to fine references, float32 data included."""
    decided = 0
    for seed in range(4):
        problem = smooth(kind, seed)
        if seed == 3:
            problem = replace(
                problem, design=Rows(problem.design.dense().astype(np.float32).astype(np.float64))
            )
        best, theta = solved(problem)
        truth = problem.losses.piece_within(*(problem.design.forward(best),) * 2)
        rng = np.random.default_rng(seed)
        for size in (1.0, 1e-1, 1e-2, 1e-4, 1e-7):
            x = best + size * np.abs(best).max() * rng.standard_normal(problem.d)
            point = reference_point(problem, x, theta + size * rng.standard_normal(problem.n))
            region = midpoint_ball(problem, point)
            assert isinstance(region, Ball)
            assert problem.quadratic.norm(best - region.centre) <= region.radius + 1e-13
            codes = judge(problem, region).codes
            assert (codes[codes >= 0] == truth[codes >= 0]).all()
            decided += int((codes >= 0).sum())
    assert decided > 100


@pytest.mark.parametrize("kind", KINDS)
def test_midpoint_ball_is_tight(kind: str) -> None:
    """With the dual optimum and x on the same face the optimum lies on the sphere."""
    problem = smooth(kind, 7)
    losses = Losses(np.ones(problem.n), 0.0, 0.0, -1e-3, 0.0)
    rows = problem.design.dense()
    weight = np.full(problem.d, 2.0**-10)
    problem = replace(problem, losses=losses, quadratic=Quadratic(weight))
    if kind == "L1":
        problem = replace(problem, penalty=L1(np.full(problem.d, 1e-3)))
    theta = losses.lo.copy()
    assert problem.penalty is not None
    best, _ = problem.penalty.prox_and_subgradient(-rows.T @ theta, weight)
    best = 1e-3 * problem.penalty.project(best) / np.abs(best).max()  # margins below 1
    scaled = replace(problem, quadratic=Quadratic(weight), linear=np.zeros(problem.d))
    # Choose the linear term that makes `best` optimal with every term on its linear piece.
    force = -rows.T @ theta
    _, s = problem.penalty.prox_and_subgradient(force, weight)
    if kind == "L1":
        s = np.where(best != 0, problem.penalty.kappa * np.sign(best), 0.0)  # type: ignore[attr-defined]
    scaled = replace(scaled, linear=force - weight * best - s)
    x = 1.5 * best
    point = reference_point(scaled, x, theta)
    region = midpoint_ball(scaled, point)
    assert isinstance(region, Ball)
    away = scaled.quadratic.norm(scaled.penalty.project(best) - region.centre)  # type: ignore[union-attr]
    assert away <= region.radius
    assert away > 0.99 * region.radius


@pytest.mark.parametrize("kind", KINDS)
def test_certificate(kind: str) -> None:
    """It accepts the optimum and refuses what is not one, or not in the cone."""
    problem = smooth(kind, 11)
    best, theta = solved(problem)
    point = reference_point(problem, best, theta)
    assert certify(problem, point.x, point.theta, tol=1e-9).ok
    rng = np.random.default_rng(0)
    bent = problem.penalty.project(best + 1e-3 * rng.standard_normal(problem.d))  # type: ignore[union-attr]
    assert not certify(problem, bent, point.theta, tol=1e-9).ok
    assert not certify(problem, point.x, 0.9 * point.theta, tol=1e-9).ok
    if kind != "L1":
        outside = point.x.copy()
        outside[0] = -1e-6
        refused = certify(problem, outside, point.theta, tol=1e-3)
        assert not refused.ok
        assert "negative" in refused.reason or "semidefinite" in refused.reason
    if kind == "PSD":
        lopsided = point.x.copy()
        lopsided[1] *= 1 + 1e-12
        assert "symmetric" in certify(problem, lopsided, point.theta).reason


@pytest.mark.parametrize("kind", KINDS)
def test_another_lambda(kind: str) -> None:
    """``with_(lam=)`` scales M and h; a reference moves there without a pass, and stays safe."""
    problem = smooth(kind, 13)
    other = problem.with_(lam=0.9 * problem.lam)  # type: ignore[operator]
    best, theta = solved(problem)
    there, _ = solved(other)
    assert other.primal(there) == pytest.approx(
        0.9 * (problem.primal(there) - problem.losses.value(problem.design.forward(there)).sum())
        + problem.losses.value(problem.design.forward(there)).sum()
    )
    point = reference_point(problem, best, theta)
    moved = rescaled_point(other, point)
    anew = reference_point(other, best, theta)
    assert moved.gap == pytest.approx(anew.gap, rel=1e-9)
    region = midpoint_ball(other, moved)
    assert isinstance(region, Ball)
    assert other.quadratic.norm(there - region.centre) <= region.radius
    with pytest.raises(InvalidInput, match="`lam`"):
        problem.with_(lam=-1.0)
    with pytest.raises(InvalidInput, match="one of"):
        problem.with_()


@pytest.mark.parametrize("kind", KINDS)
def test_written_for_cvxpy(kind: str) -> None:
    """The exported problem has the same optimum."""
    problem = smooth(kind, 17)
    best, _ = solved(problem)
    exported = problem.to_cvxpy()
    exported.solve(solver="CLARABEL")
    assert exported.value == pytest.approx(problem.primal(best), rel=1e-7)


def test_refusals() -> None:
    """A penalty that does not fit its problem is refused by name."""
    problem = smooth("L1", 0)
    for penalty in (PSD(2), L1(np.ones(3)), L1(np.ones(9))):
        weights = np.ones(9) if penalty.name != "L1" else np.zeros(9)
        with pytest.raises(InvalidInput, match="`penalty`"):
            replace(problem, penalty=penalty, quadratic=Quadratic(weights))
    with pytest.raises(InvalidInput, match="`kappa`"):
        L1(np.array([1.0, -1.0]))
    with pytest.raises(InvalidInput, match="dropped"):
        PSD(2).take(np.array([0]))
    assert "dome" not in available(problem)
    with pytest.raises(InvalidInput, match="`solver`"):
        builtin_solver(smooth("x >= 0", 0))


def test_the_certificate_charges_what_an_l1_term_leaves_over() -> None:
    """The optimum is 0 and every slope right: to first order ``kappa |x| - v x`` is all."""
    problem = Problem(
        Rows(np.array([[1.0, 0.5], [0.5, -1.0]])), Losses(np.ones(2), 0.0, 0.0, -1.0, 0.0),
        Quadratic(np.ones(2)), np.zeros(2), penalty=L1(np.full(2, 10.0)),
    )
    for x in (np.array([1e-3, 0.0]), np.array([0.0, -1e-3])):
        proof = certify(problem, x, -np.ones(2), tol=0.9)
        assert proof.gap >= problem.primal(x) - problem.primal(np.zeros(2))
