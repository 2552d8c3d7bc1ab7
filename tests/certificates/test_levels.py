"""Certificates of neighbouring quantile levels: what the lines are, and when they are refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

import cvxscreen as cs
from cvxscreen.certificates.levels import Lines
from cvxscreen.core.losses import Piece
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows
from cvxscreen.screening.reduction import Selection

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


def judged(
    problem: Problem, found: list[cs.Solution], codes: np.ndarray, X: np.ndarray | None = None
) -> list[cs.Certificate]:
    """What `Lines` certify of the solutions' points, or of X."""
    lines, kept = Lines.of(problem, codes), codes < 0
    X = np.array([one.x for one in found]) if X is None else X
    proofs = [
        cs.certify(lines.at(level), x, one.theta[kept], tol=1e-9)
        for level, x, one in zip(LEVELS, X, found, strict=True)
    ]
    certified, margins = lines.over_all(LEVELS, X, proofs)
    np.testing.assert_allclose(
        margins, [problem.design.forward(x) for x in X[-2:]], atol=1e-10 * np.abs(margins).max()
    )
    return certified


@pytest.mark.parametrize("store", ["dense", "float32", "csr"])
@pytest.mark.parametrize("scale", [1.0, 1e6, 1e-6])
def test_what_the_lines_prove_is_what_all_terms_prove(store: str, scale: float) -> None:
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
    lines, rng = Lines.of(problem, codes), np.random.default_rng(0)
    for level, one in zip(LEVELS, found, strict=True):
        for size in (1e-6, 1e-4, 1e-3):
            x = one.x + size * rng.standard_normal(problem.d)
            here = lines.at(level)
            theta = one.theta[codes < 0]
            proof = cs.certify(here, x, theta, tol=0.1)
            certified, _ = lines.over_all(np.array([level]), x[None], [proof])
            lost = problem.with_(tau=level).primal(x) - one.value
            rounding = 1e-13 * one.value
            assert 0.0 < lost <= certified[0].gap + rounding
            assert certified[0].gap <= 1.001 * lost + rounding  # attained: these slopes are optimal


def test_the_linear_term_is_within_what_is_charged_of_the_exact_one() -> None:
    for scale in (1.0, 1e8):
        problem, _, codes = fitted(n=120, scale=scale)
        lines = Lines.of(problem, codes)
        rows = problem.design.dense()
        for level in LEVELS:
            here, losses = lines.at(level), problem.with_(tau=level).losses
            ends = np.where(codes == Piece.HIGH, losses.hi, losses.lo)
            for j in range(problem.d):
                exact = sum(
                    (Fraction(float(ends[i])) * Fraction(float(rows[i, j]))
                     for i in np.flatnonzero(codes >= 0)), Fraction(0),
                )
                error = abs(float(Fraction(float(here.linear[j])) - exact))
                assert error <= here.imbalance
        # What is charged is rounding, and it is charged.
        size = float(np.abs(rows).sum(axis=0).max())
        assert 1e-18 * size < lines.small.imbalance < 1e-11 * size


def test_the_problem_of_the_others_is_that_of_a_selection() -> None:
    problem, _, codes = fitted()
    lines = Lines.of(problem, codes)
    for level in LEVELS:
        here, same = lines.at(level), Selection(codes).reduce(problem.with_(tau=level))
        np.testing.assert_array_equal(here.losses.lo, same.losses.lo)
        np.testing.assert_array_equal(here.losses.hi, same.losses.hi)
        np.testing.assert_allclose(here.linear, same.linear, atol=1e-10)
        assert here.constant == pytest.approx(same.constant, abs=1e-9)


def test_a_line_that_does_not_belong_to_its_margin_is_refused() -> None:
    """Whichever of the two it is: the level is not certified, and those after it are not, either.

    A line on the wrong side makes the smaller problem a worse relaxation, whose own certificate may
    hold all the same.
    """
    problem, found, codes = fitted()
    for piece, other in ((Piece.HIGH, Piece.LOW), (Piece.LOW, Piece.HIGH)):
        at = int(np.flatnonzero(codes == piece)[0])
        wrong = codes.copy()
        wrong[at] = other
        lines = Lines.of(problem, wrong)
        X = np.array([one.x for one in found])
        proofs = [one.certificate for one in found]
        assert lines.over_all(LEVELS, X, proofs)[0] == []
    right, _ = Lines.of(problem, codes).over_all(LEVELS, X, proofs)
    assert len(right) == len(LEVELS)


def test_a_margin_within_its_rounding_of_the_kink_is_not_taken_to_be_on_a_side() -> None:
    """One unit in the last place beyond the kink the true margin may be on the other side of it.

    The kink is near 0 and the margin a difference of large products, so that nothing else is
    rounded but these.
    """
    problem, found, codes = fitted()
    x, proof = found[1].x, found[1].certificate
    for piece, way in ((Piece.HIGH, 1.0), (Piece.LOW, -1.0)):
        at = int(np.flatnonzero(codes == piece)[0])
        rows, b = problem.design.dense(), problem.losses.b.copy()
        rows[at] -= x * float(rows[at] @ x) / float(x @ x)
        design = Rows(rows)
        blocks: list[np.ndarray] = []
        design.forward_blocks(x[None], lambda _, t, blocks=blocks: blocks.append(t[0]))
        margins = np.concatenate(blocks)
        rounding = 2.0**-53 * float(np.abs(rows[at]) @ np.abs(x))
        assert abs(margins[at]) < 100 * rounding
        for distance, count in ((1.0, 0), (1000.0, 1)):
            b[at] = margins[at] - way * distance * rounding
            f = problem.losses
            losses = cs.Losses(b, f.e, f.q, f.lo, f.hi)
            moved = cs.Problem(
                design, losses, problem.quadratic, problem.linear, layout=problem.layout
            )
            certified, _ = Lines.of(moved, codes).over_all(LEVELS[1:2], x[None], [proof])
            assert len(certified) == count


def test_a_gap_is_judged_by_the_objective_of_all_terms() -> None:
    """Where most is explained the lines' constants cancel; the objective is a sum of all terms."""
    problem, found, codes = fitted()
    lines, X = Lines.of(problem, codes), np.array([one.x for one in found])
    proofs = [one.certificate for one in found]
    for off in (0.5, 2.0):
        given = [replace(proof, primal=off * proof.primal) for proof in proofs]
        for one, proof in zip(found, lines.over_all(LEVELS, X, given)[0], strict=True):
            assert proof.primal == pytest.approx(one.value, rel=1e-13)
    small = [replace(proof, gap=1e-8 * proof.primal, relative_gap=1e-10) for proof in proofs]
    assert lines.over_all(LEVELS, X, small)[0] == []
    nearby = [replace(proof, within=10.0) for proof in proofs]
    assert lines.over_all(LEVELS, X, nearby)[0] == []
