"""Certificates of many kernel problems over one matrix: those of single ones, as hard to fool."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import cvxscreen
from cvxscreen.certificates.certificate import certify
from cvxscreen.certificates.kernels import (
    KernelParts,
    LeftOutOfGram,
    certify_parts,
    margins,
)
from cvxscreen.data_changes.reweight import weighted
from cvxscreen.datasets import two_gaussians
from cvxscreen.solvers.smo import solve_parts

CASES = [
    (loss, intercept, kernel)
    for loss in ("hinge", "smoothed_hinge", "squared_hinge")
    for intercept in (False, True)
    for kernel in ("rbf", "poly")
]


def pairs_of_classes(
    loss: str = "hinge", intercept: bool = True, kernel: str = "rbf", C: float = 1.0, n: int = 90
) -> KernelParts:
    """Three classes, each against another, some samples with weights of their own."""
    rng = np.random.default_rng(3)
    label = np.arange(n) % 3
    X = rng.standard_normal((n, 4)) + label[:, None] * np.array([0.8, -0.5, 0.0, 0.3])
    whole = cvxscreen.svm(
        X, np.where(label == 0, 1.0, -1.0), C=C, loss=loss, intercept=intercept, kernel=kernel,
        sample_weight=np.where(np.arange(n) % 4, 1.0, 0.3),
    )
    assert whole.design.kernel.fill()
    rows = [np.flatnonzero((label == i) | (label == j)) for i, j in combinations(range(3), 2)]
    signs = [
        np.where(label[some] == j, 1.0, -1.0)
        for some, (_, j) in zip(rows, combinations(range(3), 2), strict=True)
    ]
    return KernelParts.of(whole, rows, signs)


def pair(parts: KernelParts, k: int, c: np.ndarray, b: np.ndarray):
    """The points of problem k over all coefficients: x, with the centre's margin, and theta."""
    own, problem = parts.terms(k), parts.problem(k)
    x = np.zeros(problem.d)
    x[parts.index[own]] = c[own]
    if parts.gram.intercept:
        x[-1] = b[k] + problem.design.offset(x)
    return problem, x, -parts.sign[own] * c[own]


@pytest.mark.parametrize(("loss", "intercept", "kernel"), CASES)
def test_says_what_the_certificates_of_the_problems_say(
    loss: str, intercept: bool, kernel: str
) -> None:
    parts = pairs_of_classes(loss, intercept, kernel)
    c, b, proofs = solve_parts(parts, 1e-9)
    for k, proof in enumerate(proofs):
        other = certify(*pair(parts, k, c, b), tol=1e-9)
        assert proof.ok
        assert other.ok
        assert proof.primal == pytest.approx(other.primal, rel=1e-12)
        assert proof.gap <= 1.01 * other.gap + 1e-10 * other.primal


@pytest.mark.parametrize(("loss", "intercept", "kernel"), CASES)
def test_gap_bounds_the_suboptimality_and_is_no_larger_than_it_must(
    loss: str, intercept: bool, kernel: str
) -> None:
    parts = pairs_of_classes(loss, intercept, kernel)
    best, b, exact = solve_parts(parts, 1e-9)
    rng = np.random.default_rng(0)
    for share in (0.5, 1e-2, 1e-4):
        # Moved towards another feasible point: the sum stays, up to rounding.
        other, _, _ = solve_parts(pairs_of_classes(loss, intercept, kernel, C=0.1), 1e-3)
        c = best + share * (other - best)
        shift = share * rng.standard_normal(len(b)) * intercept
        for k, proof in enumerate(certify_parts(parts, c, b + shift, 1e-9)):
            assert proof.primal - exact[k].dual <= 1.0000001 * proof.gap + exact[k].gap
            assert proof.dual <= exact[k].primal
            single = certify(*pair(parts, k, c, b + shift), tol=1e-9)
            assert proof.gap <= single.gap * (1.0 + 1e-6) + 1e-10 * single.primal


def test_refuses_a_coefficient_one_bit_outside_its_box() -> None:
    parts = pairs_of_classes()
    c, b, proofs = solve_parts(parts, 1e-6)
    assert all(proof.ok for proof in proofs)
    at = int(np.argmax(np.abs(c[parts.terms(1)]))) + parts.terms(1).start
    assert abs(c[at]) == parts.whole.losses.hi[parts.index[at]] - parts.whole.losses.lo[
        parts.index[at]
    ]
    c[at] = np.nextafter(c[at], 2.0 * c[at])
    assert [proof.ok for proof in certify_parts(parts, c, b, 1e-6)] == [True, False, True]


@pytest.mark.parametrize("loss", ["hinge", "smoothed_hinge", "squared_hinge"])
def test_an_optimum_without_an_intercept_is_none_with_one(loss: str) -> None:
    """All terms agree there; that the coefficients do not sum to 0 is all that is wrong."""
    bare, parts = pairs_of_classes(loss, False), pairs_of_classes(loss, True)
    c, b, proofs = solve_parts(bare, 1e-9)
    _, _, best = solve_parts(parts, 1e-9)
    for k, proof in enumerate(certify_parts(parts, c, b, 1e-9)):
        assert proofs[k].ok
        assert not proof.ok
        assert proof.dual <= best[k].primal < proofs[k].dual


def test_a_sum_that_is_off_by_its_last_bits_costs_next_to_nothing() -> None:
    parts = pairs_of_classes()
    c, b, _ = solve_parts(parts, 1e-9)
    before = certify_parts(parts, c, b, 1e-9)
    inside = np.flatnonzero((np.abs(c) > 0.01) & (np.abs(c) < 0.2))
    c[inside] += 1e-13
    for old, proof in zip(before, certify_parts(parts, c, b, 1e-9), strict=True):
        assert proof.ok
        assert proof.gap <= old.gap + 1e-10


def test_without_room_for_what_the_sum_lacks_there_is_no_dual_point() -> None:
    """Every coefficient of one sign: its end would have to be passed."""
    parts = pairs_of_classes()
    lo, hi = parts.whole.losses.lo[parts.index], parts.whole.losses.hi[parts.index]
    c = np.maximum(-parts.sign * lo, -parts.sign * hi)  # all that pull up, at their end
    c[parts.terms(0)] = 0.0
    found = certify_parts(parts, c, np.zeros(len(parts)), 1e-6)
    assert np.isfinite(found[0].gap)
    assert np.isinf(found[1].gap)
    assert not found[1].ok


@pytest.mark.parametrize("kernel", ["poly", "precomputed"])
def test_margins_are_within_their_error_of_the_exact_ones(kernel: str) -> None:
    """Those of whole numbers have no error but their sums'."""
    rng = np.random.default_rng(1)
    n = 300
    X = rng.integers(-9, 10, (n, 6)).astype(float)
    signs = [np.where(np.arange(n) % 3 == k, 1.0, -1.0) for k in range(3)]
    given = X @ X.T if kernel == "precomputed" else X
    whole = cvxscreen.svm(given, signs[0], kernel=kernel, intercept=True)
    assert whole.design.kernel.fill()
    parts = KernelParts.of(whole, [np.arange(n)] * 3, signs)
    c = rng.standard_normal(3 * n)
    u, t, error = margins(parts, c, np.zeros(3))
    for k in range(3):
        own = parts.terms(k)
        exact = parts.matrix.astype(np.longdouble) @ c[own].astype(np.longdouble)
        off = np.abs(parts.sign[own] * exact - t[own])
        assert (off <= error[own]).all()
        assert off.max() > 0.0
        assert error[own].max() <= 1e-9 * np.abs(u[own]).max()


def test_what_rounding_hides_is_charged() -> None:
    """Margins at a kink are known up to their error, and the loss grows by it on either side."""
    parts = pairs_of_classes(C=1e6)
    c, b, _ = solve_parts(parts, 1e-6)
    _, _, error = margins(parts, c, b)
    for k, proof in enumerate(certify_parts(parts, c, b, 1e-6)):
        own = parts.terms(k)
        width = parts.whole.losses.hi - parts.whole.losses.lo
        inside = (np.abs(c[own]) > 0) & (np.abs(c[own]) < width[parts.index[own]])
        assert inside.any()
        assert proof.gap >= float((width[parts.index[own]] * error[own])[inside].sum())


# -- without a term of its own ------------------------------------------------------------------

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
