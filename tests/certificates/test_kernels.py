"""Certificates of many kernel problems over one matrix: those of single ones, as hard to fool."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp

import cvxscreen
from cvxscreen.certificates import kernels
from cvxscreen.certificates.certificate import certify
from cvxscreen.certificates.kernels import (
    KernelParts,
    LeftOutOfGram,
    certify_parts,
    eigenvalues_above,
    margins,
)
from cvxscreen.data_changes.refits import Optimum, optimum_of_gram
from cvxscreen.data_changes.reweight import weighted
from cvxscreen.datasets import two_gaussians
from cvxscreen.designs.gram import Polynomial, Precomputed, Rbf
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
        exact = whole.design.kernel.matrix().astype(np.longdouble) @ c[own].astype(np.longdouble)
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


# -- how far an optimum may be, where the gap is rounding ------------------------------------------


def exact_optimum(problem: cvxscreen.Problem) -> Optimum:
    """Up to rounding, by the linear equations of its pieces."""
    theta = cvxscreen.solve(problem, tol=1e-9).theta
    at = optimum_of_gram(LeftOutOfGram(problem, theta, 1e-9))
    assert at is not None
    return at


def squared_distance(proofs: LeftOutOfGram, change: np.ndarray) -> float:
    """Of the coefficients of two points, summed in extended precision."""
    every = np.arange(len(change))
    gram, change = proofs.gram(every, every).astype(np.longdouble), change.astype(np.longdouble)
    return float(change @ gram @ change)


@pytest.mark.parametrize("C", [2.0, 1e3])
@pytest.mark.parametrize("loss", KERNEL)
def test_an_optimum_is_no_further_than_the_slopes_say(
    loss: str, C: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However far off the answers are; and this is shorter by far than the root of the gap."""
    rng = np.random.default_rng(8)
    X, target = rng.standard_normal((40, 3)), rng.standard_normal(40)
    door = cvxscreen.svm if "hinge" in loss else cvxscreen.regression
    target = np.sign(target) if "hinge" in loss else target
    problem = door(X, target, C=C, loss=loss, kernel="rbf", kernel_params={"gamma": 0.8},
                   **KERNEL[loss])
    f, rows, shorter = problem.losses, np.arange(40), 0
    for i in (3, 17, 31):
        alone = weighted(problem, (rows != i).astype(float))
        best = exact_optimum(alone)
        inside = best.kind != 0
        for size in (0.0, 1e-12, 1e-9, 1e-6, 1e-3):
            noise = size * np.where(inside, rng.standard_normal(40), 0.0)
            slopes = np.clip(best.theta + noise, f.lo, f.hi)[None]
            proofs = LeftOutOfGram(problem, best.theta, 1e-6)
            found = proofs.certify(np.array([i]), rows, slopes)
            true = squared_distance(proofs, slopes[0] - best.theta)
            assert true <= found.gap[0] * (1.0 + 1e-9)
            assert abs(found.margins[0] - best.margins[i]) <= found.error[0]
            with monkeypatch.context() as plain:
                plain.setattr(kernels, "SHARE", np.inf)
                gap = proofs.certify(np.array([i]), rows, slopes).gap[0]
            assert found.gap[0] <= gap
            shorter += found.gap[0] < 1e-3 * gap
    assert shorter or loss in ("squared_hinge", "smoothed_hinge", "huber")  # no kinks


def three_terms(corner: float, b: list[float]) -> cvxscreen.Problem:
    """The first has nothing to do with the others, whose points are as near as `corner` says."""
    gram = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, corner], [0.0, corner, 1.0]])
    return cvxscreen.regression(gram, np.array(b), C=1.0, loss="absolute", kernel="precomputed")


def test_how_far_slopes_say_is_attained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slopes of two terms at a kink are off along the eigenvector that is shortest."""
    corner, delta = 0.75, 2.0**-12
    problem = three_terms(corner, [5.0, 0.25, 0.1])
    best = exact_optimum(weighted(problem, np.array([0.0, 1.0, 1.0])))
    assert (best.kind[1:] != 0).all()
    slopes = best.theta + np.array([0.0, delta, -delta])
    monkeypatch.setattr(kernels, "LEAST", (0.9999 * (1.0 - corner),))
    proofs = LeftOutOfGram(problem, best.theta, 1e-4)
    found = proofs.certify(np.array([0]), np.arange(3), slopes[None])
    true = squared_distance(proofs, slopes - best.theta)
    assert true == pytest.approx(2.0 * (1.0 - corner) * delta**2, rel=1e-9)
    assert true <= found.gap[0] <= 1.001 * true
    monkeypatch.setattr(kernels, "LEAST", (1.0001 * (1.0 - corner),))
    proofs = LeftOutOfGram(problem, best.theta, 1e-4)
    assert proofs.certify(np.array([0]), np.arange(3), slopes[None]).gap[0] > 2.0 * true


def test_terms_that_are_about_to_come_to_a_kink_stand_in_the_way(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is at its slope's end, by a hair; with it the optimum is 20 times as far as without."""
    corner, hair, delta = 0.999, 1e-12, 1e-6
    monkeypatch.setattr(kernels, "LEAST", (0.9, 0.9 * (1.0 - corner)))
    for sign in (-1.0, 1.0):
        answer = np.array([0.0, 0.25, sign])
        there = -np.array([0.25 + corner * sign, sign + 0.25 * corner])
        for side in (-1.0, 1.0):
            problem = three_terms(corner, [0.0, there[0] + side * delta, there[1] - sign * hair])
            best = exact_optimum(weighted(problem, np.array([0.0, 1.0, 1.0])))
            proofs = LeftOutOfGram(problem, answer, 1e-6)
            found = proofs.certify(np.array([0]), np.arange(3), answer[None])
            true = squared_distance(proofs, answer - best.theta)
            assert true <= found.gap[0]
            if best.kind[2] != 0:
                assert true > 300.0 * delta**2
                assert found.gap[0] < 3.0 * true
                break
        else:
            pytest.fail("it was never in the way")


@pytest.mark.parametrize("kernel", ["rbf", "linear", "precomputed"])
@pytest.mark.parametrize("loss", ["hinge", "absolute", "epsilon", "quantile"])
def test_terms_at_one_point_are_one(
    loss: str, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one target or of several, wherever their slopes are; apart they would say nothing."""
    rng, rows = np.random.default_rng(12), np.arange(36)
    points = rng.standard_normal((12, 20))
    target = rng.standard_normal(12)[rows // 3]
    target[5:9] = -target[5:9]
    more = {"kernel_params": {"gamma": 0.1}} if kernel == "rbf" else {}
    door = cvxscreen.svm if "hinge" in loss else cvxscreen.regression
    # Products of equal rows need not be equal, as libraries sum some rows in another order.
    data = (points @ points.T)[:, rows // 3] if kernel == "precomputed" else points
    problem = door(
        data[rows // 3], np.sign(target) if "hinge" in loss else target, C=1e3, loss=loss,
        kernel=kernel, **more, **KERNEL[loss],
    )
    f, shorter = problem.losses, 0
    for i in (3, 17, 31):
        best = exact_optimum(weighted(problem, (rows != i).astype(float)))
        for size in (0.0, 1e-12, 1e-9, 1e-6, 1e-3):
            at = f.kink_distance(best.margins) < 1e-9
            side = np.where(f.e > 0.0, np.sign(best.margins - f.b), 0.0)
            moved = size * np.where(at, rng.standard_normal(36), 0.0)
            # Slopes at one point against each other, and their sum.
            for noise in (moved, moved - moved.reshape(12, 3).mean(axis=1).repeat(3)):
                slopes = np.clip(best.theta + noise, f.lo, f.hi)[None]
                slopes[:, (slopes[0] * side < 0.0) | (rows == i)] = 0.0
                proofs = LeftOutOfGram(problem, best.theta, 1e-6)
                found = proofs.certify(np.array([i]), rows, slopes)
                true = squared_distance(proofs, slopes[0] - best.theta)
                assert true <= found.gap[0] * (1.0 + 1e-9) + 1e-20
                assert abs(found.margins[0] - best.margins[i]) <= found.error[0]
                with monkeypatch.context() as apart:
                    apart.setattr(LeftOutOfGram, "_apart", lambda self, near: np.flatnonzero(near))
                    proofs = LeftOutOfGram(problem, best.theta, 1e-6)
                    gap = proofs.certify(np.array([i]), rows, slopes).gap[0]
                assert found.gap[0] <= gap
                shorter += found.gap[0] < 1e-3 * gap
    assert shorter


def test_how_far_slopes_at_one_point_say_is_attained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the number of terms there: each counts by itself how far off its margin is."""
    delta = 2.0**-12
    problem = three_terms(1.0, [5.0, 0.25, 0.25])
    best = exact_optimum(weighted(problem, np.array([0.0, 1.0, 1.0])))
    monkeypatch.setattr(kernels, "LEAST", (0.9999,))
    for change in ([delta, 0.0], [2.0 * delta, -delta], [0.0, delta]):
        slopes = np.clip(best.theta + np.array([0.0, *change]), -1.0, 1.0)
        proofs = LeftOutOfGram(problem, best.theta, 1e-4)
        found = proofs.certify(np.array([0]), np.arange(3), slopes[None])
        true = squared_distance(proofs, slopes - best.theta)
        assert true == pytest.approx(delta**2, rel=1e-9)
        assert true <= found.gap[0] <= 2.001 * true


def test_points_that_are_nearly_one_stay_apart() -> None:
    """One number in the last place, and a matrix of which either of two entries may be meant."""
    X = np.ones((3, 2))
    X[1, 1] += 2.0**-52
    near, every = np.ones(3, dtype=bool), np.arange(3)

    def apart(features: np.ndarray, kernel: str, loss: str = "absolute") -> list[int]:
        problem = cvxscreen.regression(features, np.zeros(3), loss=loss, kernel=kernel)
        return LeftOutOfGram(problem, np.zeros(3), 1e-6)._apart(near).tolist()

    for kernel in ("linear", "poly"):
        assert apart(X, kernel) == [0, 1]
        assert apart(X, kernel, "huber") == [0, 1, 2]
    for points in (X, sp.csr_matrix(X)):
        for function in (Rbf(points, 1.0), Polynomial(points)):
            first, second, third = function.identities(every)
            assert first == third != second
    matrix = np.ones((3, 3))
    assert apart(matrix, "precomputed") == [0]
    assert Precomputed(matrix).identities(every)[0] == Precomputed(matrix).identities(every)[2]
    assert len(set(Precomputed(matrix, 1e-15).identities(every))) == 3


def test_what_is_proven_of_some_terms_is_not_said_of_others() -> None:
    """One term is proven by itself; it and another at the same point are not."""
    problem = three_terms(1.0, [0.0, 0.0, 0.0])
    proofs, scale = LeftOutOfGram(problem, np.zeros(3), 1e-6), np.ones(3)
    assert proofs._independent(np.array([1]), scale, 1e-2)
    assert not proofs._independent(np.array([1, 2]), scale, 1e-2)
    assert proofs._independent(np.array([0, 1]), scale, 0.5)
    assert proofs._independent(np.array([1]), scale, 1e-2)
    assert not proofs._independent(np.array([1, 2]), scale, 1e-8)


def test_a_margin_that_is_at_its_kink_but_for_rounding_is_charged() -> None:
    """As it is computed it is there."""
    point, slope = 0.1, 0.3
    gram = np.diag([1.0, point])
    margin = -(slope * point)
    problem = cvxscreen.regression(
        gram, np.array([5.0, margin]), C=1.0, loss="absolute", kernel="precomputed")
    answer = np.array([0.0, slope])
    proofs = LeftOutOfGram(problem, answer, 1e-16)
    assert proofs.margins[1] == margin
    found = proofs.certify(np.array([0]), np.arange(2), answer[None])
    wide = np.longdouble
    off = wide(slope) * wide(point) + wide(margin)
    assert off != 0.0
    assert off * off / wide(point) <= found.gap[0] < 1e-20


def test_eigenvalues_are_proven_for_all_matrices_within_the_error() -> None:
    corner = 0.75
    matrix = np.array([[1.0, corner], [corner, 1.0]])
    for error in (0.0, 1e-9, 1e-3):
        least = 1.0 - corner - 2.0 * error
        assert eigenvalues_above(least - 1e-13, matrix, error)
        assert not eigenvalues_above(least + 1e-16, matrix, error)
    twice = np.ones((3, 3))
    assert not eigenvalues_above(0.0, twice, 0.0)
