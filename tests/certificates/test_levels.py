"""Certificates of neighbouring quantile levels: what the lines are, and when they are refused."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from rational import Fraction

import cvxscreen as cs
from cvxscreen.certificates.many import certify_levels
from cvxscreen.core.losses import Piece
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows

LEVELS = np.array([0.48, 0.5, 0.53])


def fitted(
    n: int = 400, d: int = 3, *, store: str = "dense", scale: float = 1.0, weights: bool = True
) -> tuple[Problem, list[cs.Solution], np.ndarray]:
    """A quantile regression, its solutions at `LEVELS`, and lines that hold at all of them."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n, d)) * scale
    y = X @ rng.standard_normal(d) / scale + rng.standard_t(3, n)
    X = X.astype(np.float32) if store == "float32" else sp.csr_matrix(X) if store == "csr" else X
    weight = rng.uniform(0.5, 2.0, n) if weights else None
    problem = cs.regression(
        X, y, C=np.inf, loss="quantile", tau=0.5, intercept=True, sample_weight=weight
    )
    found = [cs.solve(problem.with_(tau=level), tol=1e-9) for level in LEVELS]
    margins = np.array([problem.design.forward(one.x) for one in found]) - problem.losses.b
    codes = np.full(n, Piece.UNDECIDED, dtype=np.int8)
    codes[(margins > 0.05).all(axis=0)] = Piece.HIGH
    codes[(margins < -0.05).all(axis=0)] = Piece.LOW
    assert (codes >= 0).sum() > n // 2
    return problem, found, codes


def slopes(problem: Problem, codes: np.ndarray, found: list[cs.Solution]) -> np.ndarray:
    """Those of the terms without a side, at all levels."""
    kept = codes < 0
    ends = [problem.with_(tau=level).losses.take(np.flatnonzero(kept)) for level in LEVELS]
    return np.array([
        np.clip(one.theta[kept], f.lo, f.hi) for one, f in zip(found, ends, strict=True)
    ])


def judged(
    problem: Problem, found: list[cs.Solution], codes: np.ndarray, X: np.ndarray | None = None,
    theta: np.ndarray | None = None, tol: float = 1e-9,
) -> list[cs.Certificate]:
    """What is certified of the solutions' points, or of X, with their slopes or `theta`."""
    X = np.array([one.x for one in found]) if X is None else X
    theta = slopes(problem, codes, found) if theta is None else theta
    certified, margins, At_theta = certify_levels(problem, codes, LEVELS, X, theta, tol=tol)
    np.testing.assert_allclose(
        margins, [problem.design.forward(x) for x in X[-2:]], atol=1e-10 * np.abs(margins).max()
    )
    for level, own, product in zip(LEVELS, theta, At_theta, strict=True):
        losses = problem.with_(tau=level).losses
        whole = np.where(codes == Piece.HIGH, losses.hi, losses.lo)
        whole[codes < 0] = own
        size = float(np.abs(whole) @ problem.sizes)
        np.testing.assert_allclose(product, problem.design.adjoint(whole), atol=1e-14 * size)
    return certified


@pytest.mark.parametrize("store", ["dense", "float32", "csr"])
@pytest.mark.parametrize("scale", [1.0, 1e6, 1e-6])
def test_what_is_proven_together_is_what_is_proven_alone(store: str, scale: float) -> None:
    problem, found, codes = fitted(store=store, scale=scale)
    certified = judged(problem, found, codes)
    assert len(certified) == len(LEVELS)
    for one, proof in zip(found, certified, strict=True):
        whole = one.certificate
        assert proof.ok
        assert np.isinf(proof.within)
        assert proof.primal == pytest.approx(whole.primal, rel=1e-13)
        assert proof.gap <= 1e-9 * proof.primal


def test_the_gap_bounds_what_is_lost() -> None:
    """Of points that are off, none is closer to the optimum than the gap says."""
    problem, found, codes = fitted()
    rng = np.random.default_rng(0)
    for size in (1e-6, 1e-4, 1e-3):
        X = np.array([one.x + size * rng.standard_normal(problem.d) for one in found])
        certified = judged(problem, found, codes, X, tol=0.1)
        assert len(certified) == len(LEVELS)
        for level, one, x, proof in zip(LEVELS, found, X, certified, strict=True):
            lost = problem.with_(tau=level).primal(x) - one.value
            rounding = 1e-13 * one.value
            assert 0.0 < lost <= proof.gap + rounding
            assert proof.gap <= 1.001 * lost + rounding  # attained: these slopes are optimal


def test_the_gap_bounds_what_slopes_lose_that_do_not_balance() -> None:
    """Optimal points with other slopes: the gap is what exactly balanced slopes nearby lose.

    Slopes that only a part of the terms could balance prove nothing.
    """
    problem, found, codes = fitted(n=120)
    X = np.array([one.x for one in found])
    for size in (1e-9, 1e-6, 1e-3):
        theta = slopes(problem, codes, found)
        for k, level in enumerate(LEVELS):
            losses = problem.with_(tau=level).losses.take(np.flatnonzero(codes < 0))
            inside = (theta[k] > losses.lo) & (theta[k] < losses.hi)
            theta[k, inside] += size * np.array([1.0, -1.0, 1.0, -1.0])[: int(inside.sum())]
            theta[k] = np.clip(theta[k], losses.lo, losses.hi)
        certified, _, At_theta = certify_levels(problem, codes, LEVELS, X, theta, tol=1.0)
        assert len(certified) == len(LEVELS)
        for proof, pull in zip(certified, At_theta, strict=True):
            assert proof.residual >= np.abs(pull).max() > 0.1 * size
    nothing = np.zeros_like(theta)
    nothing[:] = problem.losses.take(np.flatnonzero(codes < 0)).hi * 0.4
    assert certify_levels(problem, codes, LEVELS, X, nothing, tol=1e-9)[0] == []


def test_slopes_beyond_their_ends_are_refused() -> None:
    """Of two opposite rows, so that they balance, whichever end it is."""
    problem, found, codes = fitted()
    f, row, x = problem.losses, problem.design.dense()[0], found[1].x
    rows, t = np.vstack([problem.design.dense(), row, -row]), float(row @ x)
    for piece, way in ((Piece.HIGH, 1.0), (Piece.LOW, -1.0)):
        b, zeros = np.append(f.b, np.array([t, -t]) - way), np.zeros(problem.n + 2)
        losses = cs.Losses(b, zeros, zeros, np.append(f.lo, [-0.5] * 2), np.append(f.hi, [0.5] * 2))
        wider = cs.Problem(
            Rows(rows), losses, problem.quadratic, problem.linear, layout=problem.layout
        )
        end = 1.0 - LEVELS[1] if piece == Piece.HIGH else -LEVELS[1]
        sides = np.append(codes, [Piece.UNDECIDED] * 2).astype(np.int8)
        for factor, count in ((1.0, 1), (1.5, 0)):
            theta = np.append(slopes(problem, codes, found)[1], [factor * end] * 2)[None]
            proofs, _, _ = certify_levels(wider, sides, LEVELS[1:2], x[None], theta, tol=1e-9)
            assert len(proofs) == count


def test_a_side_that_is_not_that_of_the_margin_is_refused() -> None:
    """Whichever of the two it is: the level is not certified, and those after it are not, either.
    """
    problem, found, codes = fitted()
    for piece, other in ((Piece.HIGH, Piece.LOW), (Piece.LOW, Piece.HIGH)):
        wrong, at = codes.copy(), int(np.flatnonzero(codes == piece)[0])
        wrong[at] = other
        assert judged(problem, found, wrong) == []
    assert len(judged(problem, found, codes)) == len(LEVELS)


def test_two_wrong_sides_that_balance_each_other_are_refused() -> None:
    """Equal rows with kinks on both sides of a margin: exchanging their slopes changes no sum."""
    problem, found, codes = fitted(weights=False)
    low, high = (int(np.flatnonzero(codes == piece)[0]) for piece in (Piece.LOW, Piece.HIGH))
    rows, b, f = problem.design.dense(), problem.losses.b.copy(), problem.losses
    t = [float(rows[low] @ one.x) for one in found]
    rows[high], b[low], b[high] = rows[low], max(t) + 1.0, min(t) - 1.0
    losses = cs.Losses(b, f.e, f.q, f.lo, f.hi)
    moved = cs.Problem(Rows(rows), losses, problem.quadratic, problem.linear, layout=problem.layout)
    found = [cs.solve(moved.with_(tau=level), tol=1e-9) for level in LEVELS]
    margins = np.array([moved.design.forward(one.x) for one in found]) - b
    codes = np.full(len(b), Piece.UNDECIDED, dtype=np.int8)
    codes[(margins > 0.05).all(axis=0)] = Piece.HIGH
    codes[(margins < -0.05).all(axis=0)] = Piece.LOW
    assert codes[low] == Piece.LOW
    assert codes[high] == Piece.HIGH
    assert len(judged(moved, found, codes)) == len(LEVELS)
    codes[low], codes[high] = Piece.HIGH, Piece.LOW
    assert judged(moved, found, codes) == []


def test_a_margin_within_its_rounding_of_the_kink_is_charged() -> None:
    """One unit in the last place beyond the kink the true margin may be on the other side of it.

    Two opposite rows, whose slopes balance, with kinks near 0 and margins that are differences of
    large products, so that nothing else is rounded but these.
    """
    problem, found, codes = fitted()
    x, level, f = found[1].x, LEVELS[1:2], problem.losses
    theta, row = slopes(problem, codes, found)[1:2], problem.design.dense()[0]
    plain = certify_levels(problem, codes, level, x[None], theta, tol=1e-9)[0][0]
    row = row - x * float(row @ x) / float(x @ x)
    rows = np.vstack([problem.design.dense(), row, -row])
    rounding, heavy = 2.0**-53 * float(np.abs(row) @ np.abs(x)), 1e6
    margins = []

    def look(rows: slice, t: np.ndarray) -> np.ndarray:
        margins.extend(t[0])
        return np.zeros((1, t.shape[1]))

    Rows(rows).both_ways(x[None], look)
    for piece, way in ((Piece.HIGH, 1.0), (Piece.LOW, -1.0)):
        sides = np.append(codes, [piece, piece]).astype(np.int8)
        for distance in (1.0, -1.0, 1000.0, -1000.0):
            b = np.append(f.b, np.array(margins[-2:]) - way * distance * rounding)
            zeros, ends = np.zeros(len(b)), np.full(2, 0.5 * heavy)
            losses = cs.Losses(b, zeros, zeros, np.append(f.lo, -ends), np.append(f.hi, ends))
            wider = cs.Problem(
                Rows(rows), losses, problem.quadratic, problem.linear, layout=problem.layout
            )
            proofs = certify_levels(wider, sides, level, x[None], theta, tol=1e-6)[0]
            if distance == -1000.0:
                assert proofs == []
            elif distance == 1000.0:
                assert proofs[0].gap <= plain.gap + 0.5 * heavy * rounding
            else:
                assert proofs[0].gap >= plain.gap + 2.0 * heavy * rounding


def test_the_residual_is_at_least_the_exact_one() -> None:
    for scale in (1.0, 1e6):
        problem, found, codes = fitted(scale=scale)
        rows, X = problem.design.dense(), np.array([one.x for one in found])
        theta = slopes(problem, codes, found)
        proofs = certify_levels(problem, codes, LEVELS, X, theta, tol=1e-9)[0]
        assert len(proofs) == len(LEVELS)
        for level, own, proof in zip(LEVELS, theta, proofs, strict=True):
            losses = problem.with_(tau=level).losses
            whole = np.where(codes == Piece.HIGH, losses.hi, losses.lo)
            whole[codes < 0] = own
            exact = [
                sum((Fraction(float(s)) * Fraction(float(a))
                     for s, a in zip(whole, column, strict=True)), Fraction(0))
                for column in rows.T
            ]
            assert 0.0 < max(map(abs, map(float, exact))) <= proof.residual
            # What is charged is rounding.
            assert proof.residual < 1e-11 * float(np.abs(rows).sum(axis=0).max())


def test_a_gap_beyond_the_tolerance_is_refused() -> None:
    problem, found, codes = fitted()
    X = np.array([one.x + 1e-4 for one in found])
    gaps = [proof.relative_gap for proof in judged(problem, found, codes, X, tol=1.0)]
    assert len(gaps) == len(LEVELS)
    assert judged(problem, found, codes, X, tol=0.9 * gaps[0]) == []
    assert len(judged(problem, found, codes, X, tol=1.1 * max(gaps))) == len(LEVELS)
