"""Certificates of many answers at once: those of single ones, and as hard to fool."""

from __future__ import annotations

import ast
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from strategies import LOSSES, Case, build, points, reference, suboptimal
from weightings import PROBLEMS, answers

import cvxscreen
from cvxscreen._support.compiled import read_only
from cvxscreen.certificates import certificate as certificate_terms
from cvxscreen.certificates import many as certificate_batch
from cvxscreen.certificates.certificate import Certificate, certify
from cvxscreen.certificates.many import (
    HIGH,
    LOW,
    OTHER,
    ZERO,
    Around,
    LeftOut,
    LeftOutOfGram,
    PackedPoints,
    PackedSlopes,
    ProblemConstants,
    StoredRows,
    TermBlock,
    _stored_sums,
    certify_many,
    certify_weightings,
    stays_around,
    stored_sums,
    sums,
    takers,
    totals,
    unpack,
)
from cvxscreen.core.duality import dual_feasible
from cvxscreen.core.losses import Losses
from cvxscreen.data_changes.reweight import taken, weighted
from cvxscreen.datasets import two_gaussians
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput

CELLS = [
    Case(loss, intercept, data, storage, weighted)
    for loss in LOSSES
    for intercept, data, storage, weighted in (
        (False, "plain", "dense64", True), (True, "integer", "dense32", False),
        (False, "scaled", "dense32", False), (True, "twins", "dense64", True),
        (False, "scaled", "csr32", True), (True, "plain", "csr64", False),
    )
]


def stack(case: Case, rng: np.random.Generator):
    """A problem with points far and near, the optimum last."""
    ref = reference(case)
    pairs = [(p.x, p.theta) for p in points(ref, rng, 6)]
    pairs.append((ref.x, dual_feasible(ref.problem, ref.theta)[0]))
    X, theta = (np.array(column) for column in zip(*pairs, strict=True))
    return ref, np.full(len(X), ref.problem.C), X, theta


@pytest.mark.table
@pytest.mark.parametrize("as_stored", [False, True])
@pytest.mark.parametrize("case", CELLS, ids=str)
def test_agrees_with_single_certificates(
    case: Case, as_stored: bool, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same number up to rounding, and never below the true suboptimality."""
    if as_stored:
        monkeypatch.setattr(certificate_batch, "FILLED", 1.1)
    ref, values, X, theta = stack(case, rng)
    proofs = certify_many(ref.problem, values, X, theta, tol=0.9)
    assert len(proofs) == len(X)
    for k, (x, s) in enumerate(zip(X, theta, strict=True)):
        single = certify(ref.problem, x, s, tol=0.9)
        assert proofs.ok[k] == single.ok
        assert proofs.primal[k] == pytest.approx(single.primal, rel=1e-12)
        if np.isfinite(single.gap):
            assert proofs.gap[k] >= suboptimal(ref, x)
        if single.relative_gap > 1e-9:
            assert proofs.gap[k] == pytest.approx(single.gap, rel=1e-3)
        if k == len(X) - 1:
            assert certify_many(ref.problem, values, X, theta, tol=1e-8).ok[k]


def test_the_compiled_passes_were_used(rng: np.random.Generator, monkeypatch) -> None:
    """Points within the tolerance do not go through `certify` one by one."""
    ref, values, X, theta = stack(Case("hinge"), rng)
    monkeypatch.setattr(certificate_batch, "certify", None)
    assert certify_many(ref.problem, values[-1:], X[-1:], theta[-1:], tol=1e-8).ok.all()


def test_the_passes_take_sparse_rows_that_are_well_filled(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they take dense ones, rounding charged for every column; others go as they are stored."""
    ref, values, X, theta = stack(Case("hinge", storage="csr64"), rng)
    last = values[-1:], X[-1:], theta[-1:]
    singly = certify_many(ref.problem, *last, tol=1e-300).gap[0]
    for other in ("_stored_sums", "_sums"):
        with monkeypatch.context() as changed:
            changed.setattr(certificate_batch, "certify", None)
            changed.setattr(certificate_batch, other, None)
            proofs = certify_many(ref.problem, *last, tol=1e-8)
        assert suboptimal(ref, X[-1]) <= proofs.gap[0] <= 2.0 * singly + 1e-12
        monkeypatch.setattr(certificate_batch, "FILLED", 1.1)


def test_points_that_the_passes_do_not_take_are_certified_one_by_one(rng, monkeypatch) -> None:
    ref, values, X, theta = stack(Case("epsilon", True), rng)
    quick = certify_many(ref.problem, values, X, theta, tol=1e-3)
    monkeypatch.setattr(certificate_batch, "WIDTH", 0)
    slow = certify_many(ref.problem, values, X, theta, tol=1e-3)
    np.testing.assert_array_equal(quick.ok, slow.ok)
    assert slow.ok[-1]


@pytest.mark.parametrize("storage", ["dense64", "csr64"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("intercept", [False, True])
def test_refuses_bad_points(
    loss: str, intercept: bool, storage: str, rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Moved, NaN, infinite, outside the box by one unit in the last place."""
    monkeypatch.setattr(certificate_batch, "FILLED", 1.0)
    ref, values, X, theta = stack(Case(loss, intercept, storage=storage), rng)
    x, s = X[-1], theta[-1]
    bad = []
    for value in (np.nan, np.inf, -np.inf, x[0] + 0.1 * (1.0 + abs(x[0]))):
        bad.append((x.copy(), s))
        bad[-1][0][0] = value
    for value in (np.nan, np.inf, -np.inf):
        bad.append((x, s.copy()))
        bad[-1][1][1] = value
    bad.append((x, 0.99 * s))
    for end, away in ((ref.problem.losses.lo, -np.inf), (ref.problem.losses.hi, np.inf)):
        if np.isfinite(end).all():
            bad.append((x, s.copy()))
            bad[-1][1][2] = np.nextafter(end[2], away)
    X, theta = (np.array(column) for column in zip(*bad, strict=True))
    with np.errstate(invalid="ignore", over="ignore"):
        proofs = certify_many(ref.problem, np.full(len(X), values[0]), X, theta, tol=1e-7)
    assert not proofs.ok.any()


def test_the_value_of_c_matters() -> None:
    """The optimum at C is refused at 1.01 C."""
    ref = reference(Case("hinge"))
    theta, _ = dual_feasible(ref.problem, ref.theta)
    C = ref.problem.C
    proofs = certify_many(ref.problem, [C, 1.01 * C], [ref.x, ref.x], [theta, theta], tol=1e-8)
    assert proofs.ok.tolist() == [True, False]


def test_linear_and_constant_terms_take_part() -> None:
    """As in the certificate of one point."""
    ref = reference(Case("smoothed_hinge"))
    theta, _ = dual_feasible(ref.problem, ref.theta)
    other = replace(ref.problem, linear=np.full(ref.problem.d, 0.05), constant=2.0)
    single = certify(other, ref.x, theta, tol=0.99)
    many = certify_many(other, [other.C], [ref.x], [theta], tol=0.99)
    assert many.gap[0] == pytest.approx(single.gap, rel=1e-9)
    assert many.primal[0] == pytest.approx(single.primal, rel=1e-12)


def two_hinges(A: np.ndarray, sizes: np.ndarray) -> TermBlock:
    """Two hinge terms of weight 1."""
    one = np.ones(2)
    return TermBlock(A, *read_only(sizes, sizes, one, 0 * one, 0 * one, -one, 0 * one))


def one_point(
    x: float, pool: list[float], free: int, forward: float, *, squared: bool = False
) -> PackedPoints:
    """A point of one coordinate whose slopes are all in the pool."""
    (slopes,) = read_only(np.array(pool))
    kinds = (squared, squared)
    return PackedPoints(np.full((1, 1), x), np.ones(1), slopes, free, forward, *kinds)


def all_other(n: int) -> tuple[np.ndarray, np.ndarray]:
    """The codes of `n` slopes in the pool, and where they begin."""
    return np.full((1, n), OTHER, dtype=np.int8), np.zeros(1, dtype=np.int64)


def test_an_imbalance_needs_a_way_up_and_a_way_down() -> None:
    """Either may be the one that is needed: the dearer of the two counts, a closed one infinitely.

    ``needed (|t| + |b| + |x| distance) / |e|`` for the cheapest term with room.
    """
    block = two_hinges(np.array([[1.0, 2.0]]), np.array([0.5, 0.5]))

    def cost(theta: list[float]) -> float:
        out = np.full(1, np.inf)
        points = one_point(0.0, theta, 0, 0.0)
        takers(block, points, *all_other(2), np.full(1, 0.1), np.full(1, 2.0), out)
        return float(out[0])

    assert cost([-0.5, -0.5]) == pytest.approx(0.1 * 2.0 / 2.0)
    assert cost([-0.5, -0.01]) == pytest.approx(0.1 * 2.0)  # upwards only the first has room
    assert cost([-1.0, -1.0]) == cost([0.0, 0.0]) == np.inf
    known = np.full(1, 3.0)
    points = one_point(0.0, [-0.5, -0.5], 0, 0.0)
    takers(block, points, *all_other(2), np.full(1, 0.1), np.full(1, 2.0), known)
    assert known[0] == 3.0


def test_the_noise_of_a_margin_counts_with_the_slope_of_a_squared_loss() -> None:
    """Slopes without a bound: ``f'(t)`` and its growth over the noise on top of ``|theta|``."""
    one, noise = np.ones(1), 1e-3
    squared = TermBlock(np.ones((1, 1)), *read_only(
        one, one, 0 * one, 0 * one, one, -np.inf * one, np.inf * one
    ))
    out, pull = np.zeros((1, 5)), np.zeros((1, 1))
    point = one_point(1.0, [0.5], -1, noise, squared=True)
    sums(squared, point, *all_other(1), np.empty((4, 1)), out, pull)
    assert out[0, 1] == pytest.approx(0.125 + noise * (1.0 + noise) + 2.0 * 0.5 * noise, rel=1e-9)


@pytest.mark.parametrize("intercept", [False, True])
def test_blocks_of_rows_add_up(intercept: bool, rng, monkeypatch) -> None:
    """The same sums whatever the blocks; a few takers instead of all are dearer if anything."""
    problem = reference(Case("hinge", intercept)).problem
    path = cvxscreen.path(problem, values=[0.3, 0.5, 0.9], tol=1e-7)
    values, X = path.values, 1.00001 * np.array([p.x for p in path.points])  # gaps above rounding
    theta = np.array([p.theta for p in path.points])
    codes = np.where(theta == 0, ZERO, OTHER).astype(np.int8)
    first = np.r_[0, np.cumsum((codes == OTHER).sum(axis=1))[:-1]]
    packed = PackedSlopes(problem.losses.lo, problem.losses.hi, values / problem.C, codes,
                          theta[codes == OTHER], first)
    whole = certify_many(problem, values, X, packed, tol=1e-5)
    assert whole.ok.all()
    monkeypatch.setattr(certificate_batch, "BLOCK", 1)
    monkeypatch.setattr(certificate_batch, "ROWS", 7)
    monkeypatch.setattr(certificate_batch, "certify", None)
    parts = certify_many(problem, values, X, packed, tol=1e-5)
    np.testing.assert_allclose(parts.primal, whole.primal, rtol=1e-12)
    assert (parts.gap >= (1 - 1e-9) * whole.gap).all()
    assert (parts.gap <= (1 + (1e-2 if intercept else 1e-9)) * whole.gap).all()
    assert (packed.first == first).all()


def test_the_noise_of_margins_is_in_the_sums() -> None:
    """At a kink it is multiplied by the jump of the slope: ``2 sum noise_i``, the terms being 0."""
    block = two_hinges(np.array([[1.0, 1.0]]), np.array([1.0, 3.0]))
    out, pull = np.zeros((1, 5)), np.zeros((1, 1))
    sums(block, one_point(1.0, [-0.5, -0.5], -1, 1e-3), *all_other(2), np.empty((4, 2)), out, pull)
    assert out[0, 1] == pytest.approx(2e-3 * 4.0, rel=1e-9)


def test_of_stored_rows_all_that_a_gap_consists_of_counts() -> None:
    """Rows, scale and a further column; margins' rounding; the losses' size."""
    rows = StoredRows(*read_only(
        np.array([0, 1, 3], dtype=np.uint32), np.array([0, 0, 1], dtype=np.uint32),
        np.array([2.0, 1.0, 3.0]), np.array([1.0, -1.0]), np.array([[0.5], [0.25]]),
        np.array([1.0, 3.0]), np.array([2.0, 5.0]), np.ones(2), np.zeros(2), np.zeros(2),
        np.array([-1.0, -1.0]), np.zeros(2),
    ))
    x, theta, t, pull, out = np.array([1.0, 2.0, 4.0]), np.array([-2.0, -1.0]), *map(
        np.zeros, (2, 3, 5)
    )
    stored_sums(rows, x, theta, 2.0, 1e-3, t, pull, out)
    assert t.tolist() == [4.0, -8.0]
    assert pull.tolist() == [-3.0, 3.0, -0.75]
    assert out[0] == 2.0 * 9.0
    # f + f* - t theta is 0 - 2 + 8 on the flat piece, 18 - 1 - 8 on the steep one.
    noise = 1e-3 * np.sqrt(21.0)
    assert out[1] == pytest.approx(6.0 + 9.0 + noise * (2.0 * 1.0 + 4.0 * 3.0), rel=1e-12)
    assert out[2:].tolist() == [2.0 * 2.0 + 5.0, 0.0, 0.0]
    stored_sums(rows, x, np.nextafter(theta, -np.inf), 2.0, 0.0, t, pull, out)
    assert out[4] == 1.0


def test_beside_its_terms_a_gap_consists_of_the_way_to_x_theta() -> None:
    """The form at x, the distance from x_theta with its rounding, and what is off balance."""
    found, terms = np.empty((3, 4)), np.zeros((3, 5))
    terms[0] = 10.0, 3.0, 100.0, 50.0, 0.0
    terms[2, 4] = 1.0
    X = np.array([[1.0, 2.0, 4.0]] * 3)
    pull = np.array([[-3.0, 3.0, -0.75], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    diagonal, linear = np.array([1.0, 4.0, 0.0]), np.array([0.1, 0.2, 0.3])
    totals(X, pull, diagonal, linear, terms, ProblemConstants(7.0, 0.5, 0.25, 1e-3, 1e-2), found)
    own = np.array([-2.9, 3.2])
    distance = np.hypot(1.0 + own[0], (8.0 + own[1]) / 2.0) + 0.1 + 0.5
    assert found[0].tolist() == pytest.approx([
        10.0 + 0.5 * (1.0 + 16.0) + 0.1 + 0.4 + 1.2 + 7.0, 3.0 * 1.01 + 0.5 * distance**2,
        (0.45 + 0.25 + 0.05) * (1.0 + 1e-6), distance,
    ])
    assert found[1, 2] == pytest.approx(0.55)
    assert found[2, 1] == np.inf  # a slope is outside its box
    here = X[:1], -X[:1] * diagonal  # x is x_theta: what is left is the rounding of the latter
    totals(*here, diagonal, np.zeros(3), np.zeros((1, 5)), ProblemConstants(*np.zeros(5)), found)
    assert found[0, 3] >= 8.0 * np.finfo(float).eps * np.sqrt(17.0)


def test_an_imbalance_of_stored_rows_needs_a_way_up_and_a_way_down(rng) -> None:
    """What balancing costs is what it costs the certificate of one point."""
    ref, _, X, theta = stack(Case("hinge", True, storage="csr64"), rng)
    off = theta[-1:].copy()
    inside = np.flatnonzero((off[0] > ref.problem.losses.lo) & (off[0] < 0.0))
    off[0, inside[0]] *= 0.999
    single = certify(ref.problem, X[-1], off[0], tol=0.9)
    found = _stored_sums(
        ref.problem, np.ones(1), X[-1:], PackedSlopes.of(off, ref.problem.losses, np.ones(1))
    )
    assert found[0][0] == pytest.approx(single.gap, rel=1e-6)


def test_the_rounding_of_a_balance_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slopes whose sum is 0 as computed may be off by rounding: that has to be balanced as well."""
    n, asked = 40, []
    X = np.random.default_rng(0).standard_normal((n, 2))
    problem = cvxscreen.svm(X, np.resize([1.0, -1.0], n), C=0.7, intercept=True)
    theta = np.zeros((1, n))
    theta[0, :2] = problem.losses.lo[:2]

    def moves(*args: Any) -> np.ndarray:
        asked.append(float(args[3][0]))
        return np.zeros(1)

    monkeypatch.setattr(certificate_batch, "_moves", moves)
    certify_many(problem, [0.7], np.zeros((1, 3)), theta, tol=0.9)
    assert asked[0] >= 2.0**-53 * np.abs(theta).sum()


def test_what_a_single_certificate_refuses_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its reason, and however small the gap beside it."""
    problem = reference(Case("hinge")).problem

    def refused(*args: object, **options: object) -> Certificate:
        return replace(certify(*args, **options), ok=False, relative_gap=0.0)

    monkeypatch.setattr(certificate_batch, "certify", refused)
    monkeypatch.setattr(certificate_batch, "WIDTH", 0)
    proofs = certify_many(problem, [problem.C], np.zeros((1, problem.d)), np.zeros((1, problem.n)))
    assert not proofs.ok.any()


def test_wrong_shapes_are_an_error() -> None:
    ref = reference(Case("hinge"))
    for X, theta in ((ref.x, ref.theta), ([ref.x], [ref.theta[:-1]]), ([ref.x[:-1]], [ref.theta])):
        with pytest.raises(InvalidInput, match="shapes"):
            certify_many(ref.problem, [1.0], X, theta)


def test_it_shares_nothing_with_what_it_judges() -> None:
    """Nothing that solves, bounds or evaluates a duality gap is imported."""
    tree = ast.parse(Path(str(certificate_batch.__file__)).read_text("utf-8"))
    own = {
        node.module for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cvxscreen")
    }
    names = ("_support.compiled", "_support.immutable", "_support.limits",
             "_support.validation", "certificates.certificate", "core.losses", "core.problem",
             "designs.gram", "designs.rows", "errors")
    assert own == {f"cvxscreen.{name}" for name in names}


@pytest.mark.parametrize("loss", LOSSES)
def test_compiled_terms_are_those_of_numpy(loss: str, rng: np.random.Generator) -> None:
    """Bit for bit: margins on and beside knots, slopes anywhere in their box."""
    n = certificate_terms._MANY
    few = build(Case(loss, n=50, C=0.7)).losses
    f = few.take(rng.integers(0, 50, n))
    t = f.b + rng.choice([-1.0, 0.0, 1.0], n) * f.e + rng.choice([0.0, 1e-16, 1e-3, 1.0], n)
    low, high = np.maximum(f.lo, -9.0), np.minimum(f.hi, 9.0)
    theta = low + (high - low) * rng.choice([0.0, 0.3, 1.0], n)
    noise, columns = rng.choice([0.0, 1e-16, 1e-6], n), certificate_terms.columns(f)
    value = certificate_terms.value_above(t, *columns, certificate_terms.steepness(f.q))
    plain = certificate_terms.gap_above(t, theta, noise, value, *columns)
    assert (plain > 0).any()
    found = np.empty(n)
    certificate_terms.each_gap_above(t, theta, noise, value, columns, found)
    np.testing.assert_array_equal(found, plain)
    found = certificate_terms.loss_gaps(t, theta, noise, value, f)
    endless = certificate_terms.endless_above(value, noise, *columns[2:])
    np.testing.assert_array_equal(found, plain + endless)


@pytest.mark.parametrize("loss", ["hinge", "absolute", "epsilon", "quantile"])
def test_terms_on_their_lines_are_left_out_and_no_others(
    loss: str, rng: np.random.Generator
) -> None:
    """Bit for bit what all terms amount to, most of them on the line of their slope."""
    n = certificate_terms._MANY
    few = build(Case(loss, n=50, C=0.7)).losses
    f = few.take(rng.integers(0, 50, n))
    noise = rng.choice([0.0, 1e-16, 1e-6], n)
    step = rng.choice([0.0, 1e-16, 1e-7, 1.0, 3.0], n, p=[0.05, 0.05, 0.05, 0.35, 0.5])
    right = rng.random(n) < 0.5
    t = np.where(right, f.b + f.e + step, f.b - f.e - step)
    wrong = rng.random(n) < 0.1
    theta = np.where(right ^ wrong, f.hi, f.lo)
    columns = certificate_terms.columns(f)
    value = certificate_terms.value_above(t, *columns, certificate_terms.steepness(f.q))
    plain = certificate_terms.gap_above(t, theta, noise, value, *columns)
    line = certificate_terms.on_its_line(t, theta, noise, *columns)
    assert line.mean() > 0.5
    assert not plain[line].any()
    np.testing.assert_array_equal(certificate_terms.loss_gaps(t, theta, noise, value, f), plain)


def test_packed_slopes_are_what_the_certificate_reads(rng: np.random.Generator) -> None:
    """`row` in numpy and `unpack`, which is compiled, give the same numbers."""
    n, factors = 50, np.array([0.3, 7.0])
    lo, hi = read_only(-rng.random(n), rng.random(n))
    codes = rng.choice([ZERO, LOW, HIGH, OTHER], size=(2, n)).astype(np.int8)
    first = np.array([0, (codes[0] == OTHER).sum()])
    packed = PackedSlopes(lo, hi, factors, codes, rng.random(2 * n), first)
    for k in range(2):
        out = np.full(n, np.nan)
        unpack(codes[k], packed.pool, first[k], lo, hi, factors[k], out)
        np.testing.assert_array_equal(out, packed.row(k))
        np.testing.assert_array_equal(out[codes[k] == LOW], (lo * factors[k])[codes[k] == LOW])
    assert len(packed.head(1)) == 1


# -- under many weightings ------------------------------------------------------------------------

def slopes_of_pieces(problem: cvxscreen.Problem, around: Around, W, x) -> np.ndarray:
    """The slopes that a certificate takes all terms to have of which none is given."""
    every = around.slopes_at(np.arange(problem.n), x @ around.columns)
    return W * np.clip(every, problem.losses.lo, problem.losses.hi)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("name", PROBLEMS)
def test_each_is_that_of_the_weighted_problem(name: str, intercept: bool) -> None:
    problem = PROBLEMS[name](intercept)
    W, x, theta, around, rows = answers(problem)
    assert len(rows) < problem.n
    given = np.take(theta, rows, axis=1)
    found = certify_weightings(problem, around, W, x, rows, given, tol=1e-6)
    assert found.ok.all()
    whole = slopes_of_pieces(problem, around, W, x)
    whole[:, rows] = given
    for k in range(4):
        alone = certify(weighted(problem, W[k]), x[k], whole[k], tol=1e-6)
        assert alone.ok
        assert found.primal[k] == pytest.approx(alone.primal, rel=1e-10)
        # What a slope on a parabola costs to balance, the certificate of one fit takes for more.
        noise = 1e-9 * abs(alone.primal)
        assert found.gap[k] <= 1.001 * alone.gap + noise
        best = cvxscreen.solve(weighted(problem, W[k]), tol=1e-12).value
        least = alone.primal - best if intercept and around.rates.any() else alone.gap / 1.001
        assert found.gap[k] >= least - noise


@pytest.mark.parametrize("name", PROBLEMS)
def test_it_holds_the_gap_of_any_answer(name: str) -> None:
    """Far from the optimum too, where other terms have left their piece: none is overlooked."""
    problem = PROBLEMS[name](False)
    W, x, theta, around, rows = answers(problem)
    size, best, old = np.linalg.norm(x[0]), theta[:, rows], (W * around.slopes)[:, rows]
    for shift, given in product((1e-6, 1e-2, 1.0, 30.0), (best, old)):
        moved = x + shift * size * np.random.default_rng(1).normal(size=x.shape) / problem.d
        found = certify_weightings(problem, around, W, moved, rows, given, tol=1e-6)
        whole = slopes_of_pieces(problem, around, W, moved)
        whole[:, rows] = given
        for k in range(4):
            there = weighted(problem, W[k])
            pull = problem.design.adjoint(whole[k])
            dual = -0.5 * pull @ pull / problem.quadratic.diagonal[0]
            dual -= there.losses.conjugate(whole[k]).sum()
            true = there.primal(moved[k]) - dual
            assert found.gap[k] >= true - 1e-12 * abs(dual)
            assert found.gap[k] <= 1.001 * true + 1e-9 * abs(dual)


def test_bad_answers_are_refused() -> None:
    problem = PROBLEMS["quantile"](True)
    W, x, theta, around, rows = answers(problem)
    given = np.take(theta, rows, axis=1)

    def ok(**changed):
        asked = {"around": around, "W": W, "X": x, "rows": rows, "theta": given, **changed}
        return certify_weightings(problem, *asked.values(), tol=1e-6).ok

    assert ok().all()
    beyond, absent, missing = given.copy(), given.copy(), given.copy()
    beyond[1, 0] = 2.0 * W[1, rows[0]] + 1.0
    assert not ok(theta=beyond)[1]
    [i] = np.flatnonzero(np.take(W, rows, axis=1)[2] == 0)[:1]
    absent[2, i] = 1e-9  # a term of weight 0 pulls, be it ever so little
    assert not ok(theta=absent)[2]
    missing[3] *= 0.9
    assert not ok(theta=missing)[3]
    assert ok(theta=missing)[:3].all()
    elsewhere = x.copy()
    elsewhere[0, 0] += 0.1
    assert not ok(X=elsewhere)[0]
    negative = W.copy()
    [far] = np.flatnonzero((W[0] == 0) & ~np.isin(np.arange(problem.n), rows))[:1]
    negative[0, far] = -1e-12
    assert not ok(W=negative)[0]
    wrong = Around.at(problem, around.x, problem.losses.lo + problem.losses.hi - around.slopes)
    assert (wrong.room <= 0).all()
    assert not ok(around=wrong).any()


@pytest.mark.parametrize("share", [0.999999, 1.000001])
def test_terms_stay_on_their_piece_up_to_their_knot_and_no_further(share: float) -> None:
    """One hinge term of length 2 whose margin is 3: its knot, 1, is a distance 1 away."""
    problem = cvxscreen.svm(np.array([[2.0, 0.0], [0.0, 1.0]]), np.array([1.0, -1.0]))
    x = np.array([1.5, 0.0])
    around = Around.at(problem, x, problem.losses.slope(problem.design.forward(x)))
    assert stays_around(around, share * 1.0)[0] == (share < 1)


PARABOLAS = {  # b = 0: e, q, lo, hi, where it begins and ends, and a margin near either end
    "huber": ((0.0, 1.0, -1.0, 2.0), (-1.0, 2.0), (-0.5, 1.0)),
    "squared": ((0.0, 0.5, -np.inf, np.inf), (-np.inf, np.inf), (-0.5, 1.0)),
    "beyond a zone": ((0.5, 0.75, -0.75, 0.75), (0.5, 1.0625), (0.6, 1.0)),
}


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("share", [0.999999, 1.000001])
@pytest.mark.parametrize("loss", PARABOLAS)
def test_terms_stay_on_their_parabola_up_to_its_ends_and_no_further(
    loss: str, share: float, side: int
) -> None:
    """One term whose row has length 2."""
    numbers, ends, margins = PARABOLAS[loss]
    table = Losses(*(np.array([number]) for number in (0.0, *numbers)))
    design = Rows(np.array([[2.0, 0.0, 0.0, 0.0]]))
    problem = replace(PROBLEMS["hinge"](False), design=design, losses=table)
    around = Around.at(problem, np.array([0.5 * margins[side], 0.0, 0.0, 0.0]), np.zeros(1))
    far = 0.5 * abs(ends[side] - margins[side])
    assert stays_around(around, share * far)[0] == (share < 1 or far == np.inf)
    there = margins[side] + 0.999 * np.clip(ends[side] - margins[side], -9.0, 9.0)
    slope = around.slopes_at(np.zeros(1, dtype=int), np.array([[there]]))
    assert slope[0, 0] == pytest.approx(table.slope(np.array([there]))[0], abs=1e-12)


@pytest.mark.parametrize("share", [0.999999, 1.000001])
@pytest.mark.parametrize("factor", [1.0, 0.9])
def test_distances_by_the_curvature_reach_the_knot_and_no_further(
    share: float, factor: float
) -> None:
    """The nearest point of a knot in the norm of a curvature; proven with a factor that is off."""
    problem = cvxscreen.svm(np.array([[2.0, 1.0], [0.0, 1.0]]), np.array([1.0, -1.0]))
    x, curvature = np.array([1.0, 1.0]), np.array([[5.0, 2.0], [2.0, 1.0]])
    slopes = problem.losses.slope(problem.design.forward(x))
    around = Around.at(problem, x, slopes, curvature)
    around = around._replace(into=factor * around.into)
    a = np.array([2.0, 1.0])  # of margin 3, whose knot is 1
    towards = np.linalg.solve(curvature, a)
    step = -2.0 * towards / (a @ towards)
    distance = around.distance(np.array([x + 0.5 * step, x + share * step]))
    assert stays_around(around, distance)[0] == (share < 1 and factor == 1.0)


def test_a_curvature_without_a_factor_leaves_distances_euclidean() -> None:
    problem = PROBLEMS["hinge"](False)
    x = np.ones(problem.d)
    slopes = problem.losses.slope(problem.design.forward(x))
    plain = Around.at(problem, x, slopes)
    other = Around.at(problem, x, slopes, -np.eye(problem.d))
    np.testing.assert_array_equal(other.room, plain.room)
    assert plain.distance(x[None] + [3.0, 4.0, 0.0, 0.0]) == pytest.approx(5.0)


def test_it_does_not_change_what_it_is_given() -> None:
    problem = PROBLEMS["hinge"](True)
    W, x, theta, around, rows = answers(problem)
    given = np.take(theta, rows, axis=1)
    before = [a.copy() for a in (W, x, given, around.slopes, around.parts)]
    certify_weightings(problem, around, W, x, rows, given, tol=1e-6)
    for old, new in zip(before, (W, x, given, around.slopes, around.parts), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_left_out_term_is_a_weight_of_zero(name: str) -> None:
    """The sparse record of weightings that each leave one term out, against its numbers."""
    problem = PROBLEMS[name](True)
    index = np.array([3, 250, 17, 99])
    W = np.ones((4, problem.n))
    W[np.arange(4), index] = 0.0
    sparse = LeftOut(index, problem.n)
    _, x, _, around, rows = answers(problem)
    np.testing.assert_array_equal(sparse.take(rows), W[:, rows])
    found = [cvxscreen.solve(weighted(problem, w), tol=1e-8) for w in W]
    x, theta = np.array([s.x for s in found]), np.array([s.theta for s in found])
    away = float(np.linalg.norm(x - around.x, axis=1).max())
    rows = np.flatnonzero(~stays_around(around, 1.001 * away))
    given = np.take(theta, rows, axis=1)
    one, other = (certify_weightings(problem, around, w, x, rows, given, tol=1e-6)
                  for w in (W, sparse))
    np.testing.assert_allclose(other.gap, one.gap, rtol=1e-6, atol=1e-10 * one.primal.max())
    np.testing.assert_allclose(other.primal, one.primal, rtol=1e-12)
    assert one.ok.all()
    assert other.ok.all()


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_intercept_of_the_optimum_is_within_its_shift(name: str) -> None:
    """From answers near and far; and not so far off as to be of no use."""
    problem = PROBLEMS[name](True)
    W, x, theta, around, rows = answers(problem, tol=1e-6)
    best = np.array([cvxscreen.solve(weighted(problem, w), tol=1e-12).x[-1] for w in W])
    rng = np.random.default_rng(1)
    for blur in (0.0, 1e-6, 1e-3, 1.0):
        moved = x + blur * np.abs(x).max() * rng.normal(size=x.shape)
        away = float(np.linalg.norm(moved - around.x, axis=1).max())
        seen = np.union1d(rows, np.flatnonzero(~stays_around(around, 1.001 * away)))
        whole = W * around.slopes
        whole[:, rows] = theta[:, rows]
        shift = np.full(4, np.nan)
        proofs = certify_weightings(
            problem, around, W, moved, seen, whole[:, seen], tol=1e-6, shift=shift
        )
        error = 1e-5 * np.abs(best).max()  # of the optima that it is held against
        assert (np.abs(best - moved[:, -1]) <= shift + error).all()
        if blur == 0.0:
            reach = np.sqrt(2.0 * proofs.gap) * np.median(problem.norms)
            assert (shift <= 60.0 * reach + 1e-12).all()


def test_the_shift_of_an_intercept_is_attained_between_two_medians() -> None:
    """Any b in [0, 1] has the least absolute deviation from 0 and 1: from either end the other."""
    problem = cvxscreen.regression(np.zeros((2, 1)), np.array([0.0, 1.0]), C=1.0, intercept=True)
    theta = np.array([[1.0, -1.0]])
    for b in (0.0, 1.0, 0.25):
        x, shift = np.array([[0.0, b]]), np.empty(1)
        around = Around.at(problem, x[0], theta[0])
        found = certify_weightings(problem, around, np.ones((1, 2)), x, np.arange(2), theta,
                                   tol=1e-6, shift=shift)
        assert found.ok.all()
        farther = max(b, 1.0 - b)
        assert farther <= shift[0] <= farther * (1.0 + 1e-12)
        assert 0.99 * shift[0] < farther


def test_what_balancing_costs_is_attained() -> None:
    """Slopes 0.5 and -0.3 balance at 0.3 and -0.3: of a margin of 0.25 that costs 0.2 * 0.25."""
    problem = cvxscreen.regression(np.zeros((2, 1)), np.array([0.0, 1.0]), C=1.0, intercept=True)
    x, theta = np.array([[0.0, 0.25]]), np.array([[0.5, -0.3]])
    around = Around.at(problem, x[0], np.array([1.0, -1.0]))
    found = certify_weightings(problem, around, np.ones((1, 2)), x, np.arange(2), theta, tol=1e-6)
    true = 0.25 - 0.3 * 0.25 + 0.75 - 0.3 * 0.75
    assert true <= found.gap[0] <= true * (1.0 + 1e-5)


def test_no_shift_is_proven_where_no_term_can_balance() -> None:
    """One class alone: every slope can lower the sum, none can raise it."""
    problem = cvxscreen.svm(np.zeros((3, 1)), np.array([1.0, 1.0, -1.0]), C=1.0, intercept=True)
    problem = taken(problem, np.arange(2))
    x, theta, shift = np.array([[0.0, 3.0]]), np.zeros((1, 2)), np.empty(1)
    around = Around.at(problem, x[0], theta[0])
    certify_weightings(problem, around, np.ones((1, 2)), x, np.arange(2), theta,
                       tol=1e-6, shift=shift)
    assert shift[0] == np.inf  # any b >= 1 is optimal


# -- kernels --------------------------------------------------------------------------------------

KERNEL = {
    "hinge": {}, "squared_hinge": {}, "smoothed_hinge": {}, "absolute": {}, "huber": {},
    "epsilon": {"epsilon": 0.3}, "quantile": {"tau": 0.3},
}


def of_kernel(loss: str) -> tuple[cvxscreen.Problem, np.ndarray]:
    """A small problem with near duplicates, and slopes near the optimum's."""
    X, y = two_gaussians(60, 3, seed=4)
    X[:6] = X[6:12] + 1e-9
    door = cvxscreen.svm if "hinge" in loss else cvxscreen.regression
    target = y if "hinge" in loss else X[:, 0] + 0.3 * y
    problem = door(X, target, C=2.0, loss=loss, kernel="rbf", **KERNEL[loss])
    return problem, cvxscreen.solve(problem, tol=1e-9).theta


@pytest.mark.parametrize("loss", KERNEL)
def test_without_a_term_of_a_kernel_it_is_that_of_the_weighted_problem(loss: str) -> None:
    problem, theta = of_kernel(loss)
    rng, f = np.random.default_rng(0), problem.losses
    for size in (0.0, 1e-12, 1e-6, 1e-2, 1.0):
        index = rng.choice(60, 5, replace=False)
        rows = np.union1d(index, rng.choice(60, 20, replace=False))
        noise = size * rng.standard_normal((5, len(rows)))
        slopes = np.clip(theta[rows] + noise, f.lo[rows], f.hi[rows])
        slopes[np.arange(5), np.searchsorted(rows, index)] = 0.0
        found = LeftOutOfGram(problem, theta, 1e-3).certify(index, rows, slopes)
        for k, i in enumerate(index):
            alone = weighted(problem, (np.arange(60) != i).astype(float))
            s = theta.copy()
            s[rows] = slopes[k]
            x = -problem.design.adjoint(s)
            proof = certify(alone, x, s, tol=1e-3)
            assert found.gap[k] == pytest.approx(proof.gap, rel=1e-6, abs=1e-10 * abs(proof.primal))
            best = cvxscreen.solve(alone, tol=1e-11)
            assert found.gap[k] >= alone.primal(x) - best.value - 1e-9
            assert found.ok[k] == (proof.relative_gap <= 1e-3)
            there = float(problem.design.forward(best.x)[i])
            loose = float(problem.norms[i] * np.sqrt(2.0 * best.certificate.gap))
            assert abs(found.margins[k] - there) <= found.error[k] + loose


def test_the_reach_without_a_term_of_a_kernel_is_attained() -> None:
    """Two terms at one point; what is left pulls as far as its box allows, delta too little."""
    delta = 0.125
    problem = cvxscreen.regression(
        np.ones((2, 2)), np.array([5.0, -1.0]), C=1.0, loss="absolute", kernel="precomputed")
    slopes = np.array([[0.0, 1.0 - delta]])
    proofs = LeftOutOfGram(problem, np.array([0.5, 0.25]), 1e-6)
    found = proofs.certify(np.array([0]), np.arange(2), slopes)
    optimum = -1.0  # the kink of the other term, at its slope 1
    assert abs(found.margins[0] - optimum) == pytest.approx(delta, rel=1e-12)
    assert abs(found.margins[0] - optimum) <= found.error[0]
    assert abs(found.margins[0] - optimum) > 0.99 * found.error[0]


def test_bad_answers_without_a_term_of_a_kernel_are_refused() -> None:
    problem, theta = of_kernel("hinge")
    index = np.flatnonzero(theta)[:1]
    proofs = LeftOutOfGram(problem, theta, 1e-6)
    rows = np.arange(60)
    without = cvxscreen.solve(
        weighted(problem, (rows != index).astype(float)), tol=1e-11).theta[None, :]
    good = proofs.certify(index, rows, without)
    assert good.ok[0]
    kept = without.copy()
    kept[0, index] = theta[index]
    outside = without.copy()
    outside[0, np.argmin(without[0])] -= 1e-9
    spoiled = without.copy()
    spoiled[0, rows != index[0]] *= 0.9
    for bad in (kept, outside, spoiled, np.full((1, 60), np.nan)):
        assert not proofs.certify(index, rows, bad).ok[0]
    assert not np.isfinite(proofs.certify(index, rows, kept).gap[0])
    # Others keep their slopes, which are wrong by what the left-out term pulled.
    alone = proofs.certify(index, index, np.zeros((1, 1)))
    assert not alone.ok[0]
    assert len(alone.moved)
