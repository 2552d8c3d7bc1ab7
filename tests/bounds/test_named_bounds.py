"""The named bounds of one and two references: attained, never wrong, nested as their papers say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from strategies import LOSSES, Case, Reference, build, inside, reference, wrong

from cvxscreen.api import screen, solve
from cvxscreen.bounds import BOUNDS, PAIRS, PARAMETER_CHANGE, available, named, named_pair
from cvxscreen.bounds.regions import CutBall, Everywhere
from cvxscreen.core.duality import Point, reference_point
from cvxscreen.core.problem import Problem
from cvxscreen.errors import InvalidInput, UnknownName
from cvxscreen.models.linear import regression, sparse_svm, svm
from cvxscreen.screening.reduction import judge

GAPS = (1e-1, 1e-2, 1e-3, 1e-5, 1e-7, 1e-9)


# -- the optimum is inside, and nothing is decided wrongly --------------------------------------




def blurred(ref: Reference, gap: float, rng: np.random.Generator) -> Point:
    """A pair of relative gap about `gap`, with x and x_theta apart or not."""
    blur, problem = float(np.sqrt(gap)), ref.problem
    x = ref.x * (1.0 + blur * rng.standard_normal(problem.d))
    theta = ref.theta * (1.0 + blur * rng.standard_normal(problem.n))
    point = reference_point(problem, x, theta)
    return reference_point(problem, point.x_theta, point.theta) if rng.random() < 0.5 else point


def neighbours(loss: str, seeds: range) -> Iterator[tuple[Reference, Reference, Reference]]:
    """One problem at C_a < C < C_b with its exact optima, storages and data of all kinds."""
    for seed in seeds:
        data = ("plain", "scaled", "twins", "integer", "wide")[seed % 5]
        storage = ("dense64", "dense32", "csr64", "csr32")[seed % 4]
        case = Case(loss, seed % 2 == 1, data, storage, seed % 3 == 0, seed, 16, 3, 0.5)
        refs = [reference(replace(case, C=C)) for C in (0.4, 0.5, 0.7)]
        if all(ref.truth is not None for ref in refs):
            yield refs[0], refs[1], refs[2]


@pytest.mark.parametrize("loss", LOSSES)
def test_pairs_contain_the_optimum_and_decide_rightly(loss: str) -> None:
    """Two approximate references, all losses, with and without intercept, gaps 1e-1 to 1e-9."""
    rng = np.random.default_rng(LOSSES.index(loss))
    decided: Counter[str] = Counter()
    for a, ref, b in neighbours(loss, range(6)):
        for gap in rng.choice(GAPS, 4):
            first, second = blurred(a, gap, rng), blurred(b, gap, rng)
            for name, bound in PAIRS.items():
                region = bound(ref.problem, first, second)
                assert inside(ref, region), name
                verdict = judge(ref.problem, region)
                assert not wrong(ref, verdict), name
                decided[name] += int((verdict.codes >= 0).sum())
                swapped = judge(ref.problem, bound(ref.problem, second, first))
                assert (swapped.codes == verdict.codes).mean() > 0.9, name
    assert min(decided.values()) > 20


@pytest.mark.parametrize("loss", LOSSES)
def test_references_at_another_C_decide_rightly(loss: str) -> None:
    """Every bound of `PARAMETER_CHANGE` in both directions of C, gaps 1e-1 to 1e-9."""
    rng = np.random.default_rng(LOSSES.index(loss))
    decided: Counter[str] = Counter()
    for a, ref, b in neighbours(loss, range(6)):
        for gap in rng.choice(GAPS, 2):
            for other in (a, b):
                point = blurred(other, gap, rng)
                for name in PARAMETER_CHANGE:
                    region = BOUNDS[name](ref.problem, point)
                    assert inside(ref, region), name
                    verdict = judge(ref.problem, region)
                    assert not wrong(ref, verdict), name
                    decided[name] += int((verdict.codes >= 0).sum())
    assert min(decided.values()) > 20, decided


# -- attained, nested ---------------------------------------------------------------------------


def low_C(loss: str, d: int, seed: int) -> tuple[Problem, Point, np.ndarray]:
    """C so small that all terms stay on the linear piece at 0: its exact reference and slopes."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((12, d))
    C = 2.0**-8
    if loss == "hinge":
        problem = svm(X, np.resize([1.0, -1.0, -1.0], 12), C=C)
    else:
        y = rng.choice([-1.0, 1.0], 12) * rng.uniform(2.0, 3.0, 12)
        problem = regression(X, y, C=C, loss=loss)
    slopes = problem.losses.slope(np.zeros(12))
    return problem, reference_point(problem, -problem.design.adjoint(slopes), slopes), slopes


@pytest.mark.parametrize("s", [0.4, 1.7])
@pytest.mark.parametrize("loss", ["hinge", "absolute", "quantile", "epsilon"])
def test_bounds_of_another_C_are_attained(loss: str, s: float) -> None:
    """``w*(C) = s w*(C0)`` is on the sphere of every ball, and on both spheres of `it`."""
    for seed, d in enumerate((1, 2, 6)):
        problem, point, slopes = low_C(loss, d, seed)
        here = problem.with_(C=s * problem.C)
        x = -here.design.adjoint(s * slopes)
        for name in ("pgb", "dvi", "dvi_star", "rpb", "bt1", "bt2", "it"):
            region = BOUNDS[name](here, point)
            assert not isinstance(region, Everywhere)
            assert region.contains(x), name
            for ball in region.balls:
                assert not replace(ball, radius=0.99 * ball.radius).contains(x), name


@pytest.mark.parametrize("loss", ["hinge", "absolute", "quantile", "epsilon"])
def test_pairs_are_attained(loss: str) -> None:
    """At C = C_a the optimum is in the plane of the cut, at C = C_b on the sphere."""
    for seed, d in enumerate((1, 2, 6)):
        problem, low, slopes = low_C(loss, d, seed)
        there = problem.with_(C=1.5 * problem.C)
        high = reference_point(there, 1.5 * low.x, 1.5 * slopes)
        for name in ("ssnsv", "essnsv", "dome"):
            at_low, at_high = PAIRS[name](problem, low, high), PAIRS[name](there, low, high)
            assert isinstance(at_low, CutBall)
            assert isinstance(at_high, CutBall)
            square = float(low.x @ low.x)
            assert at_low.level == pytest.approx(square, rel=1e-5)
            assert not replace(at_low, level=1.01 * at_low.level).contains(low.x)
            ball = at_high.ball
            assert ball.contains(high.x)
            assert not replace(ball, radius=0.99 * ball.radius).contains(high.x)
        between = PAIRS["two_sided"](problem.with_(C=1.2 * problem.C), low, high)
        assert len(between.balls) == 2
        for ball in between.balls:
            assert ball.contains(1.2 * low.x)
            assert not replace(ball, radius=0.99 * ball.radius).contains(1.2 * low.x)


@pytest.mark.parametrize("s", [0.1, 0.5, 1.0])
def test_essnsv_counts_the_gap_of_the_reference_above(s: float) -> None:
    """From ``x_b = 0``, ``theta_b = 0`` the ball without eps_b excludes ``w* = 1``.

    Four rows 1 and one 1.2, all of one class, C = 1/4: below 1 the objective falls with slope
    ``w - 4 C``. That ball reaches ``sqrt(5/8)``, so it would call the last row, whose margin is
    1.2, below its kink.
    """
    sides = np.array([1.0, -1.0, 1.0, -1.0, 1.0])
    problem = svm((sides * [1.0, 1.0, 1.0, 1.0, 1.2])[:, None], sides, C=0.25)
    below, above = problem.with_(C=0.125), problem.with_(C=0.25 / s)
    low = reference_point(below, -below.design.adjoint(below.losses.lo), below.losses.lo)
    assert low.gap < 1e-12
    high = reference_point(above, np.zeros(1), np.zeros(5))
    region = PAIRS["essnsv"](problem, low, high)
    assert isinstance(region, CutBall)
    assert region.contains(np.ones(1))
    assert judge(problem, region).codes[-1] < 0
    bare = np.sqrt(region.ball.radius**2 - s * high.gap)
    assert not replace(region.ball, radius=1.01 * bare).contains(np.ones(1))


def test_it_decides_at_least_as_much_as_its_two_balls(rng: np.random.Generator) -> None:
    """`it` contains the decisions of `bt1` (`dvi`) and `bt2`, for references at any C."""
    more = 0
    for loss in LOSSES:
        for a, ref, b in neighbours(loss, range(0, 6, 2)):  # even seeds: no intercept
            for other in (a, b):
                point = blurred(other, 1e-3, rng)
                found = {
                    name: judge(ref.problem, BOUNDS[name](ref.problem, point)).codes >= 0
                    for name in ("it", "bt1", "bt2", "dvi")
                }
                assert (found["bt1"] == found["dvi"]).all()
                assert (found["bt1"] <= found["it"]).all()
                assert (found["bt2"] <= found["it"]).all()
                more += int((found["it"] & ~(found["bt1"] | found["bt2"])).sum())
    assert more > 0


@pytest.mark.parametrize("gap", [0.0, 1e-6, 1e-3, 1e-1])
def test_two_sided_decides_at_least_as_much_as_essnsv_and_ssnsv(
    gap: float, rng: np.random.Generator
) -> None:
    """For references with ``x = x_theta``: two-sided, then ESSNSV, then SSNSV (= the dome)."""
    counts: Counter[str] = Counter()
    for loss in LOSSES:
        for a, ref, b in neighbours(loss, range(0, 6, 2)):
            pair = []
            for other in (a, b):
                point = blurred(other, gap, rng)
                pair.append(reference_point(other.problem, point.x_theta, point.theta))
            masks = {
                name: judge(ref.problem, bound(ref.problem, *pair)).codes >= 0
                for name, bound in PAIRS.items()
            }
            assert (masks["essnsv"] <= masks["two_sided"]).all()
            assert (masks["ssnsv"] == masks["dome"]).all()
            if gap == 0.0:
                assert (masks["ssnsv"] <= masks["essnsv"]).all()
            for name, mask in masks.items():
                counts[name] += int(mask.sum())
    assert counts["ssnsv"] <= counts["essnsv"] <= counts["two_sided"]
    assert counts["two_sided"] > 20


# -- doors --------------------------------------------------------------------------------------


def test_screen_takes_pairs_for_pair_bounds_only() -> None:
    """A tuple of solutions or points for `PAIRS`, one for `BOUNDS`; everything else is refused."""
    problem = build(Case("hinge", n=30, C=0.5))
    a, b = solve(problem.with_(C=0.4)), solve(problem.with_(C=0.7)).point()
    for name in PAIRS:
        assert named_pair(name) is PAIRS[name]
        verdict = screen(problem, reference=(a, b), bound=name)
        assert verdict.bound == name
        with pytest.raises(InvalidInput, match="two references"):
            screen(problem, reference=a, bound=name)
        with pytest.raises(InvalidInput, match="two references"):
            named(name)
    for name in BOUNDS:
        assert screen(problem, reference=a, bound=name).bound == name
        with pytest.raises(InvalidInput, match="one reference"):
            screen(problem, reference=(a, b), bound=name)
    with pytest.raises(InvalidInput, match="pair"):
        screen(problem, reference=(a,), bound="two_sided")  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="two_sided"):
        screen(problem, reference=(a, b), bound="three_sided")
    assert set(available(problem)) == {*BOUNDS, *PAIRS}


def test_a_pair_says_nothing_without_a_quadratic_term() -> None:
    """Under an L1 norm alone every bound of a pair is refused, with what to take instead."""
    X, y = np.random.default_rng(0).standard_normal((40, 3)), np.resize([1.0, -1.0], 40)
    for loss, instead in (("squared_hinge", "dual"), ("hinge", "lp")):
        problem = sparse_svm(X, y, 0.1, loss=loss, l2=0.0)
        found = solve(problem)
        for name in PAIRS:
            with pytest.raises(InvalidInput, match=f"quadratic term.*take '{instead}'"):
                screen(problem, reference=(found, found), bound=name)


@pytest.mark.parametrize("name", sorted(PAIRS))
@pytest.mark.parametrize("intercept", [False, True])
def test_numbers_whose_squares_overflow_say_nothing(name: str, intercept: bool) -> None:
    """Badly scaled references are no information, and no error."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((12, 3)), np.where(rng.random(12) < 0.5, -1.0, 1.0)
    nothing = 0
    for size, C in ((1e-170, 1e100), (1e-150, 1e200), (1e100, 1e100), (1e140, 1.0), (1e153, 1.0)):
        with np.errstate(over="ignore", invalid="ignore"):
            problem = svm(size * X, y, C=C, intercept=intercept)
            first, second = (
                reference_point(there, np.full(there.d, 1.0 / size))
                for there in (problem.with_(C=0.5 * C), problem.with_(C=2.0 * C))
            )
            region = named_pair(name)(problem, first, second)
            codes = judge(problem, region).codes
        nothing += isinstance(region, Everywhere)
        assert (codes < 0).all() or np.isfinite(region.gap)
    assert nothing or name == "two_sided"
