"""The design of data in chunks keeps its promises, and so does the certificate over it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from rational import Fraction

import cvxscreen as cs
from cvxscreen.certificates.one_pass import certify_chunks
from cvxscreen.core.streamed import ChunkTerms, Slopes, UnitLoss
from cvxscreen.designs.chunks import ABSENT, Chunks, ListedValues
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.out_of_core import streams
from cvxscreen.out_of_core.streams import Blocks, LocalEngine
from cvxscreen.solvers.streamed import lowest_along


def cut(X: Any, rows: int) -> Blocks:
    return Blocks(tuple(X[k : k + rows] for k in range(0, X.shape[0], rows)))


def designs(kind: Any, scaled: bool, intercept: bool, dtype: Any) -> tuple[Chunks, Rows]:
    rng = np.random.default_rng(0)
    X = kind((rng.standard_normal((230, 7)) * (rng.random((230, 7)) < 0.7)).astype(dtype))
    sign = rng.choice([-2, -1, 1, 3], 230).astype(np.int8) if scaled else None
    extra = np.ones((230, 1)) if intercept else None
    scale = ABSENT if sign is None else sign
    return Chunks(cut(X, 41), LocalEngine(), scale, intercept), Rows(X, sign, extra)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_same_methods_as_rows(kind: Any, scaled: bool, intercept: bool, dtype: Any) -> None:
    ours, rows = designs(kind, scaled, intercept, dtype)
    rng = np.random.default_rng(1)
    x, theta = rng.standard_normal(rows.shape[1]), rng.standard_normal(230)
    some = np.array([229, 3, 41, 40, 3])
    mask = theta > 1.0
    close = np.testing.assert_allclose
    assert ours.shape == rows.shape
    assert ours.sparse == rows.sparse
    close(ours.forward(x), rows.forward(x), rtol=1e-13, atol=1e-13)
    close(ours.adjoint(theta), rows.adjoint(theta), rtol=1e-12)
    close(ours.weighted_squares(x**2), rows.weighted_squares(x**2), rtol=1e-13)
    close(ours.column(2), rows.column(2), rtol=1e-14)
    close(ours.dense(some), rows.dense(some))
    close(ours.rows_csr(some).toarray(), rows.rows_csr(some).toarray())
    close(ours.take_rows(mask).dense(), rows.take_rows(mask).dense())
    kept = np.array([0, 3, rows.shape[1] - 1])
    close(ours.take_columns(kept).dense(), rows.take_columns(kept).dense())
    weights = theta[some] ** 2
    distinct = np.array([229, 3, 41, 40, 7])
    close(ours.weighted_gram(distinct, weights), rows.weighted_gram(distinct, weights), rtol=1e-12)
    near, left = ours.forward_precise(some, x)
    close(near, rows.forward_precise(some, x)[0], rtol=1e-15)
    assert (left <= 1e-14 * np.linalg.norm(x) * 10).all()


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_rounding_stays_within_the_factors(kind: Any) -> None:
    rng = np.random.default_rng(2)
    X = (rng.standard_normal((6000, 2)) * 10.0 ** rng.integers(-6, 7, (6000, 2)))
    theta = rng.standard_normal(6000) * 10.0 ** rng.integers(-6, 7, 6000)
    ours = Chunks(cut(kind(X), 1500), LocalEngine())
    found = ours.adjoint(theta)
    for j in range(2):
        products = [Fraction(a) * Fraction(t) for a, t in zip(X[:, j], theta, strict=True)]
        off = abs(Fraction(float(found[j])) - sum(products))
        assert off <= Fraction(ours.adjoint_factor) * sum(map(abs, products))
    wide = rng.standard_normal((300, 40))
    x = rng.standard_normal(40)
    ours_wide = Chunks(cut(kind(wide), 150), LocalEngine())
    worst = Fraction(0)
    for found_t, row in zip(ours_wide.forward(x), wide, strict=True):
        terms = [Fraction(a) * Fraction(b) for a, b in zip(row, x, strict=True)]
        off = abs(Fraction(float(found_t)) - sum(terms))
        worst = max(worst, off / (Fraction(ours_wide.forward_factor) * sum(map(abs, terms))))
    assert Fraction(1, 200) < worst <= 1  # the factor is neither too small nor idle
    # Strips, chunks and the tree: far fewer roundings in a row than there are rows.
    limit = 1500 if sp.issparse(kind(X[:1])) else 1024 + 2
    assert ours.adjoint_factor <= (limit + 2 + 4 + 1) * 2.0**-53


def test_compiled_products_and_einsum_agree() -> None:
    rng = np.random.default_rng(3)
    block = rng.standard_normal((2500, 5)).astype(np.float32)
    block.flags.writeable = False
    theta = rng.standard_normal(2500)
    theta[::3] = 0.0
    x, weights, wide = rng.standard_normal(5), rng.random(5), block.astype(np.float64)
    for found, expected in [
        (streams.margins(block, x), np.einsum("ij,j->i", wide, x)),
        (streams.squares(block, weights), np.einsum("ij,ij,j->i", wide, wide, weights)),
        (streams.adjoint(block, theta), np.einsum("ij,i->j", wide, theta)),
    ]:
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def solved(intercept: bool, loss: str = "hinge") -> tuple[Any, Any]:
    rng = np.random.default_rng(4)
    X = rng.standard_normal((3000, 5)).astype(np.float32)
    f = X @ rng.standard_normal(5) + 0.3 + rng.standard_normal(3000)
    made = cs.svm if loss == "hinge" else cs.regression
    y = np.where(f > 0, 1, -1) if loss == "hinge" else f
    problem = made(cut(X, 512), y, C=0.5, loss=loss, intercept=intercept)
    return problem, cs.solve(problem, tol=1e-9)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["hinge", "huber", "epsilon"])
def test_the_certificate_refuses_what_is_wrong(loss: str, intercept: bool) -> None:
    problem, found = solved(intercept, loss)
    assert found.certificate.ok
    theta = np.asarray(found.theta)
    assert cs.certify(problem, found.x, found.theta, tol=1e-9) == found.certificate
    assert cs.certify(problem, found.x, theta, tol=1e-9).ok
    moved = found.x + 1e-3 * np.linalg.norm(found.x)
    assert cs.certify(problem, moved, found.theta) == cs.certify(problem, moved, theta)
    for wrong in (found.theta, theta, Slopes(problem, moved, found.theta.listed)):
        proof = cs.certify(problem, moved, wrong, tol=1e-9)
        assert not proof.ok
        assert "exceeds" in proof.reason or "balanced" in proof.reason
    out = theta.copy()
    out[17] = 1.001 * problem.losses.hi[17] + 1e-3
    assert "outside its box" in cs.certify(problem, found.x, out).reason
    assert "NaN" in cs.certify(problem, found.x * np.nan, theta).reason
    tilted = theta.copy()
    inside = np.flatnonzero((theta > problem.losses.lo) & (theta < problem.losses.hi))
    tilted[inside] *= 0.5
    assert not cs.certify(problem, found.x, tilted, tol=1e-9).ok
    listed = ListedValues(found.theta.listed.index, 0.5 * found.theta.listed.values)
    assert not certify_chunks(problem, found.x, Slopes(problem, found.x, listed), tol=1e-9).ok


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["hinge", "huber", "epsilon"])
def test_the_gap_is_that_of_the_certificate_in_memory(loss: str, intercept: bool) -> None:
    problem, found = solved(intercept, loss)
    X = np.concatenate(problem.design.source.blocks)
    sign = np.asarray(problem.design.scale) if loss == "hinge" else None
    extra = np.ones((3000, 1)) if intercept else None
    whole = cs.Problem(
        Rows(X, sign, extra), problem.losses.take(np.arange(3000)), problem.quadratic,
        problem.linear,
    )
    rng = np.random.default_rng(5)
    for size in (0.0, 1e-6, 1e-3):
        x = found.x + size * rng.standard_normal(len(found.x))
        theta = np.asarray(found.theta)
        one, other = cs.certify(whole, x, theta), cs.certify(problem, x, theta)
        assert other.primal == pytest.approx(one.primal, rel=1e-13)
        assert other.gap == pytest.approx(one.gap, rel=1e-3, abs=1e-11 * one.primal)
        assert one.gap >= 0
        assert other.gap >= 0


def test_the_gap_under_an_l1_term_is_that_of_the_certificate_in_memory() -> None:
    rng = np.random.default_rng(7)
    X = rng.standard_normal((1500, 12))
    y = np.where(X[:, 0] - X[:, 1] + 0.5 * rng.standard_normal(1500) > 0, 1, -1)
    problem = cs.sparse_svm(cut(X, 400), y, 0.3)
    found = cs.solve(problem, tol=1e-8)
    whole = cs.sparse_svm(X, y, 0.3)
    absent = np.flatnonzero(found.x == 0)
    assert len(absent) > 3
    theta = np.asarray(found.theta)
    for size in (0.0, 1e-4, -1e-4):
        x = found.x.copy()
        x[absent] += size
        one, other = cs.certify(whole, x, theta), cs.certify(problem, x, theta)
        assert other.gap == pytest.approx(one.gap, rel=1e-3, abs=1e-11 * one.primal)
    assert not cs.certify(problem, x, theta, tol=1e-8).ok


def exact_gap(rows: Any, x: Any, linear: Any) -> Fraction:
    """Of hinges with slope -1 throughout and ``1/2 |x|^2 + linear'x``, in rational arithmetic."""
    rows = [[Fraction(a) for a in row] for row in rows]
    point = [Fraction(c) for c in x]
    total = Fraction(0)
    for row in rows:
        t = sum((a * c for a, c in zip(row, point, strict=True)), Fraction(0))
        total += max(Fraction(0), t - 1)
    for j, c in enumerate(point):
        away = c + Fraction(linear[j]) - sum((row[j] for row in rows), Fraction(0))
        total += away * away / 2
    return total


def judged(rows: Any, x: Any, linear: Any) -> Any:
    design = Chunks(cut(rows, 500), LocalEngine(), intercept=False)
    problem = cs.Problem(
        design, ChunkTerms(len(rows), UnitLoss(1.0, 0.0, 0.0, -1.0, 0.0)), cs.Quadratic(np.ones(3)),
        linear=linear,
    )
    return design, certify_chunks(problem, x, np.full(len(rows), -1.0))


@pytest.mark.parametrize("seed", range(5))
def test_rounding_of_margins_near_a_kink_is_charged(seed: int) -> None:
    rng = np.random.default_rng(seed)
    large = 1e8 * rng.standard_normal((8, 2))
    rows = np.column_stack([large, 1.0 - large.sum(axis=1)])  # margins of 1 and some 1e-8
    x = np.ones(3)
    linear = rows.sum(axis=0) - x
    _, proof = judged(rows, x, linear)
    assert 0 < exact_gap(rows, x, linear) <= Fraction(proof.gap)
    assert proof.gap < 1e-4


@pytest.mark.parametrize("seed", range(3))
def test_rounding_of_the_pull_is_charged(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = 1e12 * rng.standard_normal((2000, 3))
    rows[:, 0] = 1e13 * (1.0 + rng.random(2000))
    x = np.array([-1.0, 0.0, 0.0])  # far below the kink: the hinges are exact
    design = Chunks(cut(rows, 500), LocalEngine())
    linear = design.adjoint(np.ones(2000)) - x
    linear += -x - (linear - design.adjoint(np.ones(2000)))  # what is computed cancels
    _, proof = judged(rows, x, linear)
    assert 0 < exact_gap(rows, x, linear) <= Fraction(proof.gap)
    assert proof.gap < 1e8


def test_an_unbalanced_dual_point_proves_nothing() -> None:
    problem, found = solved(True)
    theta = np.zeros(problem.n)
    theta[:5] = problem.losses.lo[:5]
    proof = cs.certify(problem, found.x, theta)
    assert not proof.ok
    assert np.isinf(proof.gap)


def test_other_problems_are_sent_away() -> None:
    problem, found = solved(False)
    whole = cs.svm(np.ones((2, 1)) * [[1], [-1]], np.array([1, -1]))
    with pytest.raises(InvalidInput, match="not over data in chunks"):
        certify_chunks(whole, np.zeros(1), np.zeros(2))
    with pytest.raises(InvalidInput, match="must have shapes"):
        certify_chunks(problem, found.x[:-1], found.theta)


def test_steps_along_a_segment_never_raise_the_objective() -> None:
    problem, found = solved(True, "huber")
    rng = np.random.default_rng(6)
    values = [problem.primal(found.x + 2.0)]
    x = found.x + 2.0
    for _ in range(4):
        step = rng.standard_normal(len(x))
        for end in (x + step, x - step):
            x = lowest_along(problem, x, end)
            values.append(problem.primal(x))
    assert all(after <= before for before, after in pairwise(values))
    assert values[-1] < values[0]
    end = lowest_along(problem, np.zeros(len(x)), found.x)
    assert problem.primal(end) < problem.primal(np.zeros(len(x)))
