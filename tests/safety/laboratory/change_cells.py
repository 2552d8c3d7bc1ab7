"""Cells about changed data: other weights, a range of weights, removed terms, one term left out.

What the old solution proves about the changed problem is held against the changed problem's own
optimum, found to a hundred digits.
"""

from __future__ import annotations

from collections.abc import Callable

import generators
import kernel_cells
import numpy as np
from checks import Ledger, verdict
from references import Reference
from terms import OPEN, RIGHT, WRONG
from vector_cells import ELASTIC, reference

import cvxscreen
from cvxscreen.core.problem import Problem
from cvxscreen.data_changes.reweight import weighted
from cvxscreen.designs.gram import Gram

LEFT_OUT = 6
"""Terms of a problem whose refit without them is found exactly."""

TESTS = 8
"""Points whose predictions a range of weights is asked about."""


def spread_of(ref: Reference) -> np.ndarray:
    """How far the reference's margins may be from the optimum's; infinite with an intercept."""
    problem = ref.problem
    ulp = 4.0 * np.spacing(np.abs(ref.margins) + problem.sizes * np.linalg.norm(ref.x))
    free = problem.quadratic.free.any()
    return np.full(problem.n, np.inf) if free else np.sqrt(2.0 * ref.gap) * problem.norms + ulp


def inside(ref: Reference, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Whether intervals hold the margins of the optimum, as far as the reference can say."""
    error, t = spread_of(ref), ref.margins
    held = (low <= t) & (t <= high)
    missed = (t + error < low) | (t - error > high)
    sure = (low <= t - error) & (t + error <= high)
    return np.where(missed, WRONG, np.where(sure | held, RIGHT, OPEN)).astype(np.int8)


def drawn(number: int, rng: np.random.Generator) -> tuple[Problem, str, tuple[str, str]]:
    """A small problem by the front doors, or under an L1 term."""
    loss = generators.LOSSES[number % 8]
    storage = generators.STORAGE[(number // 3) % 5]
    kind = ("plain", "duplicates", "integer", "collinear", "scales", "constant")[number % 6]
    n, d = int(rng.integers(12, 40)), int(rng.integers(1, 5))
    if number % 5 == 4 and loss in ELASTIC:
        made = generators.elastic(loss, kind, storage, rng, n=n, d=d + 3)
    else:
        made = generators.vectors(loss, kind, storage, rng, n=n, d=d, intercept=number % 7 == 3)
    return made, loss, (storage[0], storage[1])


def changes(ledger: Ledger, number: int, rng: np.random.Generator, count: int) -> None:
    """Rows, with and without an L1 term."""
    problem, loss, names = drawn(number, rng)
    changed(ledger, problem, ("changed data", loss, names), rng, count, reference)


def kernel_changes(ledger: Ledger, number: int, rng: np.random.Generator, count: int) -> None:
    """Kernels, some nearly singular: the rows of the changed problem are the exact factor's."""
    problem, L, loss, *names = kernel_cells.drawn(number, rng)
    model = "changed kernel problem"
    changed(ledger, problem, (model, loss, (names[0], names[1])), rng, count,
            lambda changed: kernel_cells.reference(changed, L))


def changed(ledger: Ledger, problem: Problem, name: tuple[str, str, tuple[str, str]],
            rng: np.random.Generator, count: int, reference: Callable[[Problem], Reference]
            ) -> None:
    """`reweight`, `remove` and `leave_one_out` from solutions of any accuracy."""
    model, loss, names = name
    n = problem.n
    for _ in range(max(1, count // 3)):
        tol = float(10.0 ** rng.uniform(-10, -1))
        solution = cvxscreen.solve(problem, tol=tol)
        if solution.answer is None or not np.isfinite(solution.certificate.gap):
            return
        few = rng.random(n) < 0.15
        few[rng.integers(0, n)] = False
        for what, weights in (
            ("reweight", rng.choice([0.0, 1.0, 2.0, 0.5, 1.0 + 1e-9], n, p=[.1, .6, .1, .1, .1])),
            ("remove", np.where(few, 0.0, 1.0)),
        ):
            if not weights.any():
                continue
            ref = reference(weighted(problem, weights))
            if what == "reweight":
                change, rows = cvxscreen.reweight(solution, weights, tol=1e-4), np.arange(n)
            else:
                change, rows = cvxscreen.remove(solution, few, tol=1e-4), np.flatnonzero(~few)
            key = (model, loss, what, *names)
            low, high = np.full(n, -np.inf), np.full(n, np.inf)
            low[rows], high[rows] = change.low, change.high
            ledger.add(key, n, inside(ref, low, high)[rows], "margins")
            short = ref if what == "reweight" else Reference(
                change.problem, ref.x, ref.theta[rows], ref.margins[rows], ref.gap,
                ref.states[rows], ref.kept[rows], ref.dropped, ref.needed)
            used = np.flatnonzero(weights[rows] > 0)
            codes = change.verdict.codes
            said = used[codes[used] >= 0]
            ledger.add(key, len(used), short.states[said, codes[said]], "terms")
            if (weights > 0).all():
                verdict(ledger, key, short, change.solution.screening, "refit")
        left_out(ledger, (model, loss, "leave one out", *names), solution, rng, reference)
        groups_left_out(ledger, (model, loss, "leave a group out", *names), solution, rng,
                        reference)
        if isinstance(problem.design, Gram):
            range_of_a_kernel(ledger, (model, loss, "range of weights", *names), solution, rng,
                              reference)


def left_out(ledger: Ledger, key: tuple[str, str, str, str, str], solution: cvxscreen.Solution,
             rng: np.random.Generator, reference: Callable[[Problem], Reference]) -> None:
    """Intervals of left-out margins, terms that change nothing, and signs that are decided."""
    problem = solution.problem
    found = cvxscreen.leave_one_out(solution, refit=bool(rng.integers(0, 2)), tol=1e-4)
    target = problem.losses.b
    low, high = (found.low, found.high) if found.classification else (
        target - found.high, target - found.low)
    for i in rng.choice(problem.n, min(LEFT_OUT, problem.n), replace=False):
        others = (np.arange(problem.n) != i).astype(float)
        ref = reference(weighted(problem, others))
        # The subtraction from the target rounds.
        slack = 4.0 * np.spacing(np.abs(target[i]) + np.abs(ref.margins[i]))
        ends = np.full((2, problem.n), [[-np.inf], [np.inf]])
        ends[:, i] = low[i] - slack, high[i] + slack
        ledger.add(key, 1, inside(ref, *ends)[[i]], f"term {i}")


def groups_left_out(
    ledger: Ledger, key: tuple[str, str, str, str, str], solution: cvxscreen.Solution,
    rng: np.random.Generator, reference: Callable[[Problem], Reference],
) -> None:
    """Intervals of the margins of terms that leave together, with one group or with each of two."""
    problem = solution.problem
    sides = int(rng.integers(1, 3))
    labels = rng.integers(0, max(problem.n // 3, 2), (problem.n, sides))
    if any((labels == k).any(axis=1).all() for k in labels[0]):
        return  # without it nothing is left
    found = cvxscreen.leave_one_out(
        solution, refit=bool(rng.integers(0, 2)), tol=1e-4, groups=labels
    )
    target = problem.losses.b[:, None]
    low, high = (found.low, found.high) if found.classification else (
        target - found.high, target - found.low)
    for label in np.unique(labels)[:LEFT_OUT]:
        mine = labels == label
        ref = reference(weighted(problem, np.where(mine.any(axis=1), 0.0, 1.0)))
        slack = 4.0 * np.spacing(np.abs(target) + np.abs(ref.margins)[:, None])
        for side in range(sides):
            ends = np.where(mine, (low - slack, high + slack), [[[-np.inf]], [[np.inf]]])
            states = inside(ref, *ends[:, :, side])[mine[:, side]]
            ledger.add(key, len(states), states, f"group {label}")


def range_of_a_kernel(
    ledger: Ledger, key: tuple[str, str, str, str, str], solution: cvxscreen.Solution,
    rng: np.random.Generator, reference: Callable[[Problem], Reference],
) -> None:
    """Margins over a set of weights, at its worst for one of them and at drawn weights."""
    problem = solution.problem
    if not np.isfinite(solution.point().gap):
        return
    norm, n = str(rng.choice(["l2", "l1", "interval"])), problem.n
    ends = {"low": rng.uniform(0.0, 1.0, n), "high": rng.uniform(1.0, 3.0, n)}
    given = ends if norm == "interval" else {}
    size = float(10.0 ** rng.uniform(-3, 0))
    found = cvxscreen.weight_range(solution, norm=norm, size=size, **given)
    [gram] = problem.design.kernel.block(np.arange(n), rng.integers(0, n, 1)).T
    for v in (solution.theta * problem.design.sign * gram, rng.standard_normal(n)):
        w = np.maximum(1.0 + size * inside_set(norm, v, ends), 0.0)
        if (w > 0.0).any():
            ref = reference(weighted(problem, w))
            ledger.add(key, n, inside(ref, found.low, found.high), "margins")


def ranges(ledger: Ledger, number: int, rng: np.random.Generator, count: int) -> None:
    """What `weight_range` says, at weightings in its set: drawn ones, and those that look worst."""
    loss, storage = generators.LOSSES[number % 8], generators.STORAGE[(number // 3) % 5]
    kind = ("plain", "duplicates", "integer", "collinear", "scales", "constant")[number % 6]
    problem = generators.vectors(
        loss, kind, storage, rng, n=int(rng.integers(8, 30)), d=int(rng.integers(1, 5)),
        intercept=number % 5 < 2)
    if problem.C > 1e100:  # of data that are all but zero; squares of the slopes overflow
        return
    solution = cvxscreen.solve(problem, tol=float(10.0 ** rng.uniform(-12, -2)))
    if solution.answer is None or not np.isfinite(solution.point().gap):
        return
    norm = ("l2", "l1", "interval")[number % 3]
    beside = bool(problem.quadratic.free.any())
    key = ("range of weights" + ", intercept" * beside, loss, norm, *storage)
    rows = problem.design.dense()[:, ~problem.quadratic.free]
    tests = rows[rng.integers(0, problem.n, TESTS)] * rng.uniform(0.5, 2.0, (TESTS, 1))
    tests = tests + rng.standard_normal(tests.shape) * np.abs(tests).max(axis=0, initial=1e-300)
    ends = (rng.uniform(0.0, 1.0, problem.n), rng.uniform(1.0, 3.0, problem.n))
    given = {"low": ends[0], "high": ends[1]} if norm == "interval" else {}
    size = float(10.0 ** rng.uniform(-3, 0.5)) if norm != "interval" else float(rng.uniform(0, 1))
    found = cvxscreen.weight_range(solution, tests, norm=norm, size=size, **given)
    held_over(ledger, key, found, tests, rng, count, given)
    finite = found.largest[np.isfinite(found.largest) & (found.largest > 0.0)]
    if len(finite):  # the largest size of which a prediction is certain, nothing to spare
        size = float(min(rng.choice(finite), 1e6))
        found = cvxscreen.weight_range(solution, tests, norm=norm, size=size, **given)
        held_over(ledger, key, found, tests, rng, count, given)


def held_over(ledger: Ledger, key: tuple[str, str, str, str, str], found: cvxscreen.WeightRange,
              tests: np.ndarray, rng: np.random.Generator, count: int,
              ends: dict[str, np.ndarray]) -> None:
    """Margins, pieces and predictions of a range, at `count` weightings in it."""
    problem, theta = found.solution.problem, found.solution.theta
    codes = problem.losses.piece_within(found.low, found.high)
    assert ((codes >= 0) == found.unchanged).all()
    free = problem.quadratic.free
    metric = np.where(free, 0.0, np.sqrt(1.0 / np.where(free, 1.0, problem.quadratic.diagonal)))
    for turn in range(count):
        z = (tests, problem.design.dense())[1 if free.any() else turn % 2]
        [z] = z[rng.integers(0, len(z), 1)]
        # Along this direction <z, x> moves fastest; a few weights alone, and any.
        slope = theta * problem.design.forward(z * metric**2) * rng.choice([-1.0, 1.0])
        few = rng.random(problem.n) < 2.0 / problem.n
        v = (slope, rng.standard_normal(problem.n), few * slope)[turn % 3]
        w = 1.0 + found.size * inside_set(found.norm, v, ends)
        w = np.maximum(w, 0.0)
        if not (w > 0.0).any():
            continue
        ref = reference(weighted(problem, w))
        ledger.add(key, problem.n, inside(ref, found.low, found.high), "margins")
        said = np.flatnonzero((codes >= 0) & (w > 0.0))
        ledger.add(key, problem.n, ref.states[said, codes[said]], "terms")
        if free.any():  # how far a prediction's intercept is off a gap alone does not tell
            continue
        now = tests @ ref.x
        lengths = np.linalg.norm(tests * metric, axis=1)
        error = np.sqrt(2.0 * ref.gap) * lengths + 8.0 * len(ref.x) * np.spacing(
            np.abs(tests) @ np.abs(ref.x))
        low, high = found.prediction_low, found.prediction_high
        states = np.where(
            (now + error < low) | (now - error > high), WRONG,
            np.where((low <= now - error) & (now + error <= high), RIGHT, OPEN))
        ledger.add(key, len(now), states.astype(np.int8), "predictions")
        side, certain = np.sign(found.predictions), found.certain
        other = np.where(side * now < -error, WRONG, np.where(side * now > error, RIGHT, OPEN))
        ledger.add(key, len(now), other[certain].astype(np.int8), "certain predictions")


def inside_set(norm: str, v: np.ndarray, ends: dict[str, np.ndarray]) -> np.ndarray:
    """The point of a set of directions at its end in the direction of `v`, not beyond it."""
    if norm == "interval":
        return np.where(v > 0.0, ends["high"] - 1.0, ends["low"] - 1.0)
    if norm == "l1":
        worst = np.zeros(len(v))
        k = int(np.argmax(np.abs(v)))
        worst[k] = np.sign(v[k])
        return worst
    length = float(np.linalg.norm(v))
    return v / (length * (1.0 + 1e-15)) if length > 0.0 else v
