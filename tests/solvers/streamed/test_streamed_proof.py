"""What an answer over data in chunks proves: right, no smaller than the ball, and not more."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import cvxscreen as cs
from cvxscreen.core.streamed import ChunkTerms, Unit
from cvxscreen.designs.chunks import Chunks
from cvxscreen.out_of_core.streams import Blocks, Local
from cvxscreen.solvers.streamed.passes import proof_task

CASES = [("hinge", np.float64), ("hinge", np.float32), ("smoothed_hinge", np.float64),
         ("absolute", np.float64), ("epsilon", np.float32), ("huber", np.float64)]


def problems(loss: str, dtype: Any, scale: float = 1.0) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = (scale * rng.standard_normal((1500, 4)) * [1.0, 1e-3, 10.0, 1.0]).astype(dtype)
    f = X @ rng.standard_normal(4) / scale + 0.3 * rng.standard_normal(1500)
    chunks = Blocks(tuple(X[k : k + 400] for k in range(0, 1500, 400)))
    if "hinge" in loss:
        y = np.where(f > 0, 1, -1)
        return tuple(cs.svm(given, y, C=0.1, loss=loss) for given in (X, chunks))
    return tuple(cs.regression(given, f, C=0.1, loss=loss) for given in (X, chunks))


@pytest.mark.parametrize("scale", [1.0, 1e4])
@pytest.mark.parametrize(("loss", "dtype"), CASES)
def test_nothing_proven_is_wrong(loss: str, dtype: Any, scale: float) -> None:
    whole, parts = problems(loss, dtype, scale)
    best = cs.solve(whole, tol=1e-13)
    right = whole.losses.piece_within(*(2 * [whole.design.forward(best.x)]))
    for tol in (1e-3, 1e-6, 1e-10):
        found = cs.solve(parts, tol=tol)
        task = proof_task(parts, found.x, found.certificate.gap)
        assert task is not None
        X, sign, target = whole.design.matrix, whole.design.scale, None
        if "hinge" not in loss:
            target = whole.losses.b
        codes = task.codes(np.ascontiguousarray(X), sign, target, None)
        sure = (codes >= 0) & (right >= 0)
        assert np.array_equal(codes[sure], right[sure])
        assert sum(found.decided) == (codes >= 0).sum()
        zero = np.isin(codes, (2,)).sum()
        assert found.decided[0] == zero
        assert found.status == "optimal"
    assert scale > 1.0 or sum(found.decided) > 0.8 * 1500  # a ball is small only beside the rows


def test_as_much_as_the_gap_ball_in_memory() -> None:
    whole, parts = problems("hinge", np.float64)
    found = cs.solve(parts, tol=1e-5)
    point = cs.reference_point(whole, found.x, np.asarray(found.theta))
    verdict = cs.screen(whole, reference=point, bound="gap")
    assert found.decided[0] == pytest.approx(int(verdict.zero.sum()), abs=2)
    assert found.decided[1] == pytest.approx(int(verdict.linear.sum()), abs=2)


def test_the_radius_is_not_larger_than_it_must_be() -> None:
    # One term on its linear piece: P is 1/2 |x - x*|^2 plus a constant, so the gap ball is tight.
    whole, parts = problems("hinge", np.float64)
    best = cs.solve(whole, tol=1e-13)
    x = best.x + 1e-9
    off = float(np.linalg.norm(x - best.x))
    task = proof_task(parts, x, 0.5 * off**2)
    assert task is not None
    assert off <= task.radius <= 1.0001 * off
    assert 0.99 * task.radius < off


def over_chunks(rows: Any, diagonal: Any) -> cs.Problem:
    """Hinges over two chunks beside ``1/2 sum_j m_j x_j^2``."""
    half = len(rows) // 2
    design = Chunks(Blocks((rows[:half], rows[half:])), Local())
    terms = ChunkTerms(len(rows), Unit(1.0, 0.0, 0.0, -1.0, 0.0))
    quadratic = cs.Quadratic(np.asarray(diagonal))
    return cs.Problem(design, terms, quadratic, linear=np.zeros(len(quadratic.diagonal)))


@pytest.mark.parametrize("j", range(4))
def test_the_ball_is_measured_in_the_metric_of_the_quadratic_term(j: int) -> None:
    diagonal, rows = np.array([4.0, 0.25, 1.0, 30.0]), np.diag([1.5, 0.4, 0.9, 5.0])
    problem = over_chunks(rows, diagonal)
    best = rows.sum(axis=0) / diagonal  # every term on its linear piece
    margins = rows @ best
    assert (margins < 1.0).all()
    x = best.copy()
    x[j] += 30.0 * (1.0 - margins[j]) / rows[j, j]  # so that term j bends just beside the optimum
    task = proof_task(problem, x, problem.primal(x) - problem.primal(best))
    assert task is not None
    codes = task.codes(rows, None, None, None)
    assert codes[j] == -1
    far = proof_task(problem, best, 1e-12)
    assert far is not None
    assert (far.codes(rows, None, None, None) == 0).all()


def test_rounding_of_a_margin_near_a_kink_is_charged() -> None:
    rng = np.random.default_rng(3)
    large = 1e8 * rng.standard_normal((300, 2))
    x = np.array([0.7, 1.3, 1.0])
    rows = np.column_stack([large, 1.0 - large @ x[:2]])  # margins of 1 and some 1e-8
    exact = [
        sum(Fraction(a) * Fraction(c) for a, c in zip(row, x, strict=True)) for row in rows.tolist()
    ]
    problem = over_chunks(rows, np.ones(3))
    task = proof_task(problem, x, 0.0)
    assert task is not None
    for code, t in zip(task.codes(rows, None, None, None), exact, strict=True):
        assert code == -1 or (code == 0) == (t < 1)


def test_an_intercept_is_not_bounded() -> None:
    whole, parts = problems("hinge", np.float64)
    problem = cs.svm(parts.design.source, whole.design.scale, C=0.1, intercept=True)
    assert cs.solve(problem).decided == (0, 0, 0)


def test_a_radius_that_is_too_small_would_be_noticed() -> None:
    whole, parts = problems("hinge", np.float64)
    best = cs.solve(whole, tol=1e-13)
    right = whole.losses.piece_within(*(2 * [whole.design.forward(best.x)]))
    x = best.x + 0.05
    task = proof_task(parts, x, whole.primal(x) - best.value)
    assert task is not None
    X, sign = np.ascontiguousarray(whole.design.matrix), whole.design.scale

    def wrong(radius: float) -> int:
        codes = replace(task, radius=radius).codes(X, sign, None, None)
        return int(((codes >= 0) & (right >= 0) & (codes != right)).sum())

    assert wrong(task.radius) == 0
    assert wrong(1e-2 * float(np.linalg.norm(x - best.x))) > 0
