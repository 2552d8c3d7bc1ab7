"""No wrong decision: every decision of every bound, judged by exact optima and counted.

A decision "term i is on piece k" is wrong if the exact margin lies strictly on another piece. The
counts are asserted, so that the test cannot pass by deciding nothing.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
from strategies import (
    CASES,
    LOSSES,
    QUARTERS,
    Case,
    Reference,
    array,
    build,
    crossed,
    points,
    reference,
    solved,
    wrong,
)

from cvxscreen.bounds import BOUNDS, PAIRS, PARAMETER_CHANGE
from cvxscreen.core.duality import Point, reference_point
from cvxscreen.core.problem import Problem
from cvxscreen.models.linear import regression, svm
from cvxscreen.screening.reduction import Verdict, judge

DECISIONS, DECISIONS_LONG = 10_000, 1_000_000
"""At least so many for each loss, and for all of them at length."""

CELLS = crossed(n=96)
"""As large as a quarter of them needs for so many: what takes time is the number of calls."""

PARTS = 4
SCALES = tuple(10.0**power for power in range(-6, 7, 2))


Tally = tuple[Counter[str], Counter[str]]
"""Decisions and wrong ones by bound."""



def count(ref: Reference, name: str, verdict: Verdict, tally: Tally) -> None:
    """Add a verdict to the tally."""
    tally[0][name] += int((verdict.codes >= 0).sum())
    tally[1][name] += wrong(ref, verdict)


def sweep(cases: Iterable[Case], number: int, seed: int) -> Tally:
    """Decisions and wrong ones by bound over points of `cases`, here and at another C."""
    tally = Counter[str](), Counter[str]()
    rng = np.random.default_rng(seed)
    for case in cases:
        ref = reference(case)
        if ref.truth is None:
            continue
        s = float(rng.choice([0.5, 0.9, 1.0, 1.1, 2.0]))
        there = ref.problem.with_(C=ref.problem.C * s)
        for point in points(ref, rng, number):
            moved = reference_point(there, point.x, s * point.theta)
            for name, bound in BOUNDS.items():
                used = moved if name in PARAMETER_CHANGE else point
                count(ref, name, judge(ref.problem, bound(ref.problem, used)), tally)
    return tally


def path_sweep(cases: Iterable[Case], number: int, seed: int) -> Tally:
    """The same from points near the optima at a smaller and at a larger C, alone and in pairs."""
    tally = Counter[str](), Counter[str]()
    rng = np.random.default_rng(seed)
    for case in cases:
        ref = reference(case)
        if ref.truth is None:
            continue
        factors = rng.choice([0.5, 0.9, 0.99]), rng.choice([1.01, 1.1, 2.0])
        sides = [near(ref.problem.with_(C=ref.problem.C * float(s)), rng, number) for s in factors]
        for first, second in zip(*sides, strict=True):
            for name in PARAMETER_CHANGE:
                for used in (first, second):
                    count(ref, name, judge(ref.problem, BOUNDS[name](ref.problem, used)), tally)
            for name, bound in PAIRS.items():
                count(ref, name, judge(ref.problem, bound(ref.problem, first, second)), tally)
    return tally


def near(problem: Problem, rng: np.random.Generator, number: int) -> list[Point]:
    """Points close to the optimum of `problem`, then the `number` that `points` makes of it."""
    ref = solved(problem, rational=False)
    x = ref.x * (1.0 + 1e-4 * rng.standard_normal(problem.d))
    return [reference_point(problem, x, ref.theta), *points(ref, rng, number)]


def report(decided: Counter[str], mistaken: Counter[str]) -> None:
    for name in decided:
        sys.stdout.write(f"{name}: {decided[name]} decisions checked, {mistaken[name]} wrong\n")
    sys.stdout.write(f"all: {decided.total()} decisions checked, {mistaken.total()} wrong\n")


@pytest.mark.parametrize("quarter", QUARTERS)
@pytest.mark.parametrize("loss", LOSSES)
def test_no_wrong_decision(loss: str, quarter: int) -> None:
    """Intercept or not, five kinds of data, four storages, weights: none wrong for any loss.

    Each quarter of the cells has all pairs of levels twice; all but the first are for ``--long``.
    """
    cases = [case for case in CELLS if case.loss == loss and array(case) % 4 == quarter]
    seed = LOSSES.index(loss) + len(LOSSES) * quarter
    decided, mistaken = path_sweep(cases, 1, seed)
    for more in range(seed, seed + 1000, 100):
        if enough(decided):
            break
        here = sweep(cases, 2, more)
        decided, mistaken = decided + here[0], mistaken + here[1]
    report(decided, mistaken)
    assert not mistaken.total()
    assert set(decided) == {*BOUNDS, *PAIRS}
    assert enough(decided)


def enough(decided: Counter[str]) -> bool:
    """So many decisions in all, of every bound, and of every pair."""
    return (
        decided.total() >= DECISIONS
        and min(decided[name] for name in BOUNDS) >= DECISIONS / 20
        and min(decided[name] for name in PAIRS) >= DECISIONS / 100
    )


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_no_wrong_decision_at_length(part: int) -> None:
    """Larger problems, scaled by 1e-6 to 1e6: a million decisions in all."""
    cases = [
        replace(case, scale=SCALES[number % len(SCALES)])
        for number, case in enumerate(crossed(2, n=96)) if case.seed == 1
    ][part::PARTS]
    here, there = sweep(cases, 11, part), path_sweep(cases, 5, part)
    reference.cache_clear()
    decided, mistaken = here[0] + there[0], here[1] + there[1]
    report(decided, mistaken)
    assert not mistaken.total()
    assert decided.total() >= DECISIONS_LONG / PARTS
    assert set(decided) == {*BOUNDS, *PAIRS}
    assert min(decided.values()) >= DECISIONS_LONG / PARTS / 500


def test_screening_is_nearly_complete_near_the_optimum() -> None:
    """At a relative gap below 1e-8 terms that are clearly on a piece are decided.

    All of them without an intercept; with one, whose optimum need not be unique, most.
    """
    shares: dict[bool, list[float]] = {False: [], True: []}
    rng = np.random.default_rng(3)
    for case in (case for case in CASES if case.data != "integer"):
        ref = solved(build(case), rational=False)  # nothing is judged by it
        x = ref.x * (1 + 1e-6 * rng.standard_normal(ref.problem.d))
        point = reference_point(ref.problem, x, ref.theta)
        if point.relative_gap > 1e-8:
            continue
        verdict = judge(ref.problem, BOUNDS["midpoint"](ref.problem, point))
        clear = ref.problem.losses.kink_distance(ref.margins) > 1e-2 * ref.problem.norms * (
            np.sqrt(2 * abs(point.primal))
        )
        if clear.any():
            shares[case.intercept].append(float((verdict.codes[clear] >= 0).mean()))
    assert min(len(some) for some in shares.values()) > 50
    assert np.mean(shares[False]) > 0.999
    assert np.mean(shares[True]) > 0.8


def test_the_printed_rule_is_wrong_with_an_approximate_reference() -> None:
    """DVI without the reference's gap decides falsely; with it never."""
    rng = np.random.default_rng(8)
    printed, ours, asked = 0, 0, 0
    for seed in range(12):
        X = rng.standard_normal((60, 3)) + 0.3
        direction = rng.standard_normal(3)
        noise = rng.standard_normal(60)
        problem = (
            svm(X, np.where(X @ direction + noise > 0, 1.0, -1.0), C=0.5) if seed % 2
            else regression(X, X @ direction + noise, C=0.5)
        )
        there = solved(problem, rational=False)
        for s in (0.95, 1.05):
            here = solved(problem.with_(C=0.5 * s))
            assert here.truth is not None
            for blur in (0.3, 0.1, 0.03):
                theta = there.theta * (1 - blur * rng.random(60))
                w0 = -problem.design.adjoint(theta)
                t0, size = problem.design.forward(w0), float(np.linalg.norm(w0))
                reach = abs(1 - s) / 2 * size * problem.norms
                middle = (1 + s) / 2 * t0
                codes = problem.losses.piece_within(middle - reach, middle + reach)
                asked += int((codes >= 0).sum())
                printed += wrong(here, Verdict(problem.losses, codes, "printed", 0.0, 0.0))
                point = reference_point(problem, w0, theta)
                verdict = judge(here.problem, BOUNDS["dvi"](here.problem, point))
                ours += wrong(here, verdict)
    assert asked > 1000
    assert printed > 20
    assert ours == 0
