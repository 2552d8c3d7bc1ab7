"""Certificates of many answers at once: those of single ones, and as hard to fool."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from strategies import LOSSES, Case, build, points, reference, suboptimal

import cvxscreen
from cvxscreen._support.compiled import read_only
from cvxscreen.certificates import certificate as certificate_terms, many as certificate_batch
from cvxscreen.certificates.certificate import Certificate, certify
from cvxscreen.certificates.many import (
    HIGH,
    LOW,
    OTHER,
    ZERO,
    PackedPoints,
    PackedSlopes,
    ProblemConstants,
    StoredRows,
    TermBlock,
    _stored_sums,
    certify_many,
    stored_sums,
    sums,
    takers,
    totals,
    unpack,
)
from cvxscreen.core.duality import dual_feasible
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


@pytest.mark.parametrize("module", ["many", "weightings", "kernels"])
def test_it_shares_nothing_with_what_it_judges(module: str) -> None:
    """Nothing that solves, bounds or evaluates a duality gap is imported."""
    file = Path(str(certificate_batch.__file__)).with_name(f"{module}.py")
    own = {
        node.module for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cvxscreen")
    }
    names = ("_support.compiled", "_support.immutable", "_support.limits", "_support.rounding",
             "_support.validation", "certificates.certificate", "certificates.many",
             "certificates.weightings", "core.lasso", "core.losses", "core.problem", "designs.gram",
             "designs.rows", "designs.rows_on_demand", "errors")
    assert own <= {f"cvxscreen.{name}" for name in names}


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
