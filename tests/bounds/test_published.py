"""Formulas as printed in the two papers: where they are wrong, and that ours are what they mean.

"Ogawa" is Ogawa et al., Safe sample screening for SVMs; "Wang" is Wang et al., Scaling SVM and LAD
via exact data reduction. Hinge without intercept, rows ``z_i = y_i x_i``.
"""

from __future__ import annotations

from collections import Counter
from itertools import product

import cvxpy as cp
import numpy as np
import pytest

from cvxscreen.bounds import BOUNDS, PAIRS
from cvxscreen.bounds.regions import Ball, CutBall, Place, TwoBalls
from cvxscreen.core.duality import Point, reference_point
from cvxscreen.core.problem import Problem
from cvxscreen.models.linear import regression, svm
from cvxscreen.screening.reduction import judge
from cvxscreen.solvers.newton import Newton

Interval = tuple[np.ndarray, np.ndarray]


def best(problem: Problem) -> Point:
    """The optimum, to a relative gap of about 1e-13."""
    found = Newton()(problem, target=1e-14 * problem.primal(np.zeros(problem.d)))
    return reference_point(problem, found.x, found.theta)


def worse(point: Point, relative: float, rng: np.random.Generator) -> Point:
    """A pair ``x = x_theta`` whose relative gap is about `relative`."""
    problem, f = point.problem, point.problem.losses
    noise = rng.standard_normal(problem.n) * (f.hi - f.lo)
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        near = reference_point(problem, point.x, point.theta + middle * noise)
        near = reference_point(problem, near.x_theta, near.theta)
        low, high = (middle, high) if near.relative_gap < relative else (low, middle)
    return near


def blobs(seed: int, C: float, loss: str = "hinge") -> Problem:
    rng = np.random.default_rng(seed)
    n = 600
    y = np.resize([1.0, -1.0], n)
    X = rng.standard_normal((n, 3)) + 0.6 * y[:, None]
    if loss == "hinge":
        return svm(X, y, C=C)
    return regression(X, X @ [1.0, -1.0, 0.5] + rng.standard_normal(n), C=C)


def printed_dvi(problem: Problem, point: Point) -> Interval:
    """Wang, Corollaries 12 and 15: the reference taken for an optimum."""
    s = problem.C / point.problem.C
    reach = 0.5 * abs(1 - s) * np.linalg.norm(point.x) * problem.norms
    middle = 0.5 * (1 + s) * (problem.design.forward(point.x))
    return middle - reach, middle + reach


def ball(problem: Problem, centre: np.ndarray, radius: float) -> Ball:
    return Ball(problem, "printed", centre, problem.design.forward(centre), radius, 0.0)


def best_binary(problem: Problem, point: Point) -> np.ndarray:
    """Ogawa, (25)."""
    s = problem.C / point.problem.C
    return (0.5 * (1 + s) * point.margins < 1.0).astype(float)


def second_ball(problem: Problem, x: np.ndarray, binary: np.ndarray) -> Ball:
    """Ogawa, Theorem 7."""
    centre = 0.5 * (x + problem.C * problem.design.adjoint(binary))
    excess = np.maximum(1.0 - problem.design.forward(x), 0.0).sum() - binary.sum()
    return ball(problem, centre, float(np.sqrt(max(centre @ centre + problem.C * excess, 0.0))))


def printed_it(problem: Problem, point: Point) -> Interval:
    """Ogawa, Theorem 8 with Theorems 6 and 7: the reference taken for an optimum."""
    s = problem.C / point.problem.C
    first = ball(
        problem, 0.5 * (1 + s) * point.x, 0.5 * abs(1 - s) * float(np.linalg.norm(point.x))
    )
    second = second_ball(problem, point.x, best_binary(problem, point))
    return TwoBalls("printed", first, second).intervals()


def printed_ssnsv(problem: Problem, low: Point, high: Point) -> Interval:
    """Wang, (29), exactly evaluated: the references taken for optima."""
    whole = ball(problem, np.zeros(problem.d), float(np.linalg.norm(high.x)))
    normal = Place(low.x, problem.design.forward(low.x))
    return CutBall("printed", whole, normal, float(low.x @ low.x)).intervals()


def wrong(problem: Problem, interval: Interval, margins: np.ndarray) -> int:
    """Decisions that the optimal margins contradict by more than rounding."""
    codes = problem.losses.piece_within(*interval)
    actual = problem.losses.piece_within(margins, margins)
    clear = np.abs(margins - problem.losses.b) > 1e-6
    return int(((codes >= 0) & clear & (codes != actual)).sum())


@pytest.mark.table
@pytest.mark.parametrize("loss", ["hinge", "absolute"])
def test_printed_rules_are_wrong_with_an_approximate_reference(loss: str) -> None:
    """DVI, IT and SSNSV as printed make hundreds of wrong decisions, the safe ones none."""
    rng = np.random.default_rng(5)
    bad: Counter[str] = Counter()
    made: Counter[str] = Counter()
    for seed, C in product(range(3), (0.01, 0.1)):
        references = {s: best(blobs(seed, s * C, loss)) for s in (0.8, 0.98, 1.0, 1.02, 1.25)}
        problem, truth = references[1.0].problem, references[1.0].margins
        for relative in (1e-1, 1e-2):
            near = {s: worse(point, relative, rng) for s, point in references.items()}
            for s in (0.8, 1.25):
                printed = {"dvi": printed_dvi(problem, near[s])}
                if loss == "hinge":
                    printed["it"] = printed_it(problem, near[s])
                for name, interval in printed.items():
                    bad[f"printed {name}"] += wrong(problem, interval, truth)
                    region = BOUNDS[name](problem, near[s])
                    bad[name] += wrong(problem, region.intervals(), truth)
                    made[name] += int((judge(problem, region).codes >= 0).sum())
            printed_dome = printed_ssnsv(problem, near[0.98], near[1.02])
            bad["printed ssnsv"] += wrong(problem, printed_dome, truth)
            for name in PAIRS:
                region = PAIRS[name](problem, near[0.98], near[1.02])
                bad[name] += wrong(problem, region.intervals(), truth)
                made[name] += int((judge(problem, region).codes >= 0).sum())
    rules = ("dvi", "it", "ssnsv") if loss == "hinge" else ("dvi",)
    assert all(bad[f"printed {name}"] > 20 for name in rules), bad
    assert not any(bad[name] for name in made), bad
    assert made["dvi"] > 200
    assert made["two_sided"] > 200


def test_exact_references_reproduce_the_printed_regions() -> None:
    """DVI, BT2, IT and the half-space of SSNSV agree with print, rounding of the optimum apart."""
    for seed in range(4):
        points = {s: best(blobs(seed, 0.05 * s)) for s in (0.7, 1.0, 1.3)}
        problem = points[1.0].problem
        for s in (0.7, 1.3):
            for name, printed in (("dvi", printed_dvi), ("it", printed_it)):
                ours = BOUNDS[name](problem, points[s]).intervals()
                for a, b in zip(ours, printed(problem, points[s]), strict=True):
                    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
        ours = PAIRS["ssnsv"](problem, points[0.7], points[1.3]).intervals()
        for a, b in zip(ours, printed_ssnsv(problem, points[0.7], points[1.3]), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("seed", range(6))
def test_the_binary_vector_is_the_best_one(seed: int) -> None:
    """Ogawa, (25): it maximises ``||m1 - m2||^2 - r2^2`` over all of them; ours is that ball."""
    rng = np.random.default_rng(seed)
    problem = svm(rng.standard_normal((8, 2)), np.resize([1.0, -1.0], 8), C=0.5)
    s = float(rng.choice([0.6, 1.5]))
    point = best(problem.with_(C=0.5 / s))
    first = 0.5 * (1 + s) * point.x

    def power(binary: np.ndarray) -> float:
        second = second_ball(problem, point.x, binary)
        return float(np.sum((first - second.centre) ** 2)) - second.radius**2

    values = [power(np.array(choice, dtype=float)) for choice in product((0, 1), repeat=8)]
    chosen = best_binary(problem, point)
    assert power(chosen) == pytest.approx(max(values), abs=1e-9)
    printed, region = second_ball(problem, point.x, chosen), BOUNDS["bt2"](problem, point)
    assert isinstance(region, Ball)
    np.testing.assert_allclose(region.centre, printed.centre, atol=1e-5)
    assert region.radius == pytest.approx(printed.radius, rel=1e-3, abs=1e-5)


def test_the_printed_dome_exceeds_the_true_minimum() -> None:
    """Ogawa, Theorem 11, lower bound: with the printed switch it is often above the minimum."""
    rng = np.random.default_rng(7)
    exceeds = 0
    for _ in range(400):
        z, w = rng.standard_normal((2, 3))
        a = float(w @ w)
        b = a * rng.uniform(1.0, 3.0)
        N, t = float(np.linalg.norm(z)), float(z @ w)
        sliced = t - np.sqrt((b - a) / a * max(a * N**2 - t**2, 0.0))
        printed = -np.sqrt(2 * b) * N if -t / N >= a * np.sqrt(2) / np.sqrt(b) else sliced
        corrected = -np.sqrt(b) * N if -t / N >= a / np.sqrt(b) else sliced
        problem = svm(np.vstack([z, z]), [1.0, -1.0])
        whole = ball(problem, np.zeros(3), np.sqrt(b))
        region = CutBall("dome", whole, Place(w, problem.design.forward(w)), a)
        low = region.intervals()[0][0]
        assert low == pytest.approx(corrected, rel=1e-6, abs=1e-6)
        exceeds += printed > low + 1e-6
    assert exceeds > 25


def test_the_reduced_problem_has_its_signs_corrected() -> None:
    """Ogawa, p. 3: ``-1/2 sum a_i a_j Q_ij + sum a_i (1 - d_i)``, ``d_i = C sum_L Q_ij``."""
    for seed in range(3):
        problem = blobs(seed, 0.05)
        point = best(problem)
        alpha, C = -point.theta, problem.C
        upper, lower = point.margins < 0.9, point.margins > 1.1
        rest = ~(upper | lower)
        A = problem.design.dense()
        d = C * (A[rest] @ A[upper].sum(axis=0))
        a = cp.Variable(int(rest.sum()))
        objective = -0.5 * cp.sum_squares(A[rest].T @ a) + (1 - d) @ a
        cp.Problem(cp.Maximize(objective), [a >= 0, a <= C]).solve(solver="CLARABEL")
        w = A[rest].T @ a.value + C * A[upper].sum(axis=0)
        np.testing.assert_allclose(w, point.x, rtol=1e-4, atol=1e-5)
        assert alpha[lower].max() < 1e-9
