"""Cells about vectors: front doors, planted optima, L1 terms, reductions, ranges, both modes."""

from __future__ import annotations

import adversary
import generators
import numpy as np
from active_set import optimum
from checks import Ledger, pieces, verdict
from references import Reference
from terms import OPEN

from cvxscreen import solve
from cvxscreen.bounds import BOUNDS, PAIRS, PARAMETER_CHANGE, available, named
from cvxscreen.core.duality import Point, reference_point
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows
from cvxscreen.screening.ranges import c_interval
from cvxscreen.screening.reduction import Selection, judge
from cvxscreen.solvers.newton import Newton
from cvxscreen.solvers.prox_newton import ProxNewton

Names = tuple[str, str]
"""Design and dtype, as the table has them."""


def reference(problem: Problem) -> Reference:
    """The optimum, from what the package's solver finds."""
    target = 1e-14 * abs(problem.primal(np.zeros(problem.d)))
    found = (Newton() if problem.penalty is None else ProxNewton())(problem, None, target)
    return optimum(problem, found.x, found.theta)


def one(ledger: Ledger, model: str, loss: str, names: Names, ref: Reference, found: list[Point]
        ) -> None:
    """Every bound of one reference point, here and from the same pair at another C."""
    problem = ref.problem
    able = available(problem)
    for number, point in enumerate(found):
        for name in able:
            if name in PAIRS:
                continue
            key = (model, loss, name, *names)
            verdict(ledger, key, ref, judge(problem, named(name)(problem, point)), f"{number}")
        if problem.lam is not None:
            continue
        factor = adversary.FACTORS[number % len(adversary.FACTORS)]
        there = problem.with_(C=problem.C * factor)
        moved = reference_point(there, point.x, factor * point.theta)
        for name in PARAMETER_CHANGE:
            key = (model, loss, name, *names)
            verdict(ledger, key, ref, judge(problem, BOUNDS[name](problem, moved)), f"{number} C")


def two(ledger: Ledger, model: str, loss: str, names: Names, ref: Reference,
        rng: np.random.Generator, count: int) -> None:
    """Every bound of two references, at a smaller and a larger C, and ranges of C."""
    problem = ref.problem
    factors = float(rng.choice([0.5, 0.9, 1 - 1e-6])), float(rng.choice([1 + 1e-6, 1.1, 2.0]))
    refs = [reference(problem.with_(C=problem.C * s)) for s in factors]
    sides = [list(adversary.points(side, rng, count)) for side in refs]
    for first, second in zip(*sides, strict=True):
        for name, bound in PAIRS.items():
            found = judge(problem, bound(problem, first, second))
            verdict(ledger, (model, loss, name, *names), ref, found)
    # What a reference proves for a range of C must hold at every C inside it.
    everyone = [ref, *refs]
    for point in [next(adversary.points(side, rng, 0)) for side in everyone] + sides[0] + sides[1]:
        low, high = c_interval(problem, point)
        codes = judge(point.problem, BOUNDS["midpoint"](point.problem, point)).codes
        for side in everyone:
            held = (low <= side.problem.C) & (high >= side.problem.C)
            pieces(ledger, (model, loss, "C range", *names), side,
                   np.where(held, codes, -1), "range")


def modes(ledger: Ledger, model: str, loss: str, names: Names, ref: Reference, tol: float) -> None:
    """What a whole solve says in the end."""
    for mode in ("safe", "certified"):
        found = solve(ref.problem, tol=tol, mode=mode).screening
        verdict(ledger, (model, loss, f"{mode} mode", *names), ref, found, f"tol {tol}")


def reduced(ledger: Ledger, model: str, loss: str, names: Names, ref: Reference,
            rng: np.random.Generator, count: int) -> None:
    """Bounds on problems reduced by right decisions, folded parabolas included."""
    problem = ref.problem
    exact = problem.losses.piece_within(ref.margins, ref.margins)
    known = (exact >= 0) & (ref.states[np.arange(problem.n), np.maximum(exact, 0)] == 0)
    for share in (0.5, 0.95):
        said = np.where(known & (rng.random(problem.n) < share), exact, -1).astype(np.int8)
        dropped = (ref.dropped == 0) & (rng.random(problem.d) < share)
        chosen = Selection(said, dropped if dropped.any() else None).folded(problem)
        small = chosen.reduce(problem)
        if small.n == 0:
            continue
        kept, some = chosen.kept, chosen.features(problem)
        short = Reference(
            small, ref.x[some], ref.theta[kept], ref.margins[kept], ref.gap, ref.states[kept],
            ref.kept[kept], ref.dropped[some], ref.needed[some],
        )
        for point in adversary.points(short, rng, count):
            for name in available(small):
                if name in PAIRS:
                    continue
                verdict(ledger, (model, loss, name, f"reduced {names[0]}", names[1]), short,
                        judge(small, named(name)(small, point)))


def front_doors(ledger: Ledger, number: int, rng: np.random.Generator, count: int) -> None:
    """`svm` and `regression`."""
    loss = generators.LOSSES[number % 8]
    kind = generators.KINDS[(number // 8 + number) % len(generators.KINDS)]
    storage = generators.STORAGE[(number // 3) % 5]
    problem = generators.vectors(
        loss, kind, storage, rng, intercept=bool(rng.integers(0, 2)),
        weighted=bool(rng.integers(0, 4) == 0), n=int(rng.integers(30, 120)),
        d=int(rng.integers(1, 8)),
    )
    model = "svm" if "hinge" in loss else "regression"
    model += " + intercept" * bool(problem.quadratic.free.any())
    names = (storage[0], storage[1])
    ref = reference(problem)
    one(ledger, model, loss, names, ref, list(adversary.points(ref, rng, count)))
    two(ledger, model, loss, names, ref, rng, count // 2)
    reduced(ledger, model, loss, names, ref, rng, count // 3)
    modes(ledger, model, loss, names, ref, float(10.0 ** rng.uniform(-10, -2)))


def planted(ledger: Ledger, number: int, rng: np.random.Generator, count: int) -> None:
    """Optima known exactly, with margins at kinks and next to them."""
    loss, d = generators.LOSSES[number % 8], 1 + (number // 8) % 3
    problem, x, theta = generators.planted(loss, rng, n=int(rng.integers(20, 80)), d=d)
    ref = optimum(problem, x, theta)
    names = (f"dense, d = {d}", "float64")
    one(ledger, "planted", loss, names, ref, list(adversary.points(ref, rng, 2 * count)))
    two(ledger, "planted", loss, names, ref, rng, count // 2)
    reduced(ledger, "planted", loss, names, ref, rng, count // 3)
    modes(ledger, "planted", loss, names, ref, float(10.0 ** rng.uniform(-12, -2)))


ELASTIC = ("smoothed_hinge", "squared_hinge", "smoothed_epsilon", "huber", "hinge", "epsilon")


def elastic(ledger: Ledger, number: int, rng: np.random.Generator, count: int) -> None:
    """`sparse_svm` and `sparse_svr`: features, samples and keepings."""
    loss = ELASTIC[number % 6]
    kind = generators.KINDS[(number // 6 + number) % len(generators.KINDS)]
    storage = generators.STORAGE[(number // 5) % 5]
    problem = generators.elastic(
        loss, kind, storage, rng, n=int(rng.integers(20, 80)), d=int(rng.integers(3, 20)))
    ref = reference(problem)
    one(ledger, "elastic net", loss, storage, ref, list(adversary.points(ref, rng, count)))
    reduced(ledger, "elastic net", loss, storage, ref, rng, count // 3)
    modes(ledger, "elastic net", loss, storage, ref, float(10.0 ** rng.uniform(-9, -2)))


def single(ledger: Ledger, number: int, rng: np.random.Generator, count: int) -> None:
    """Folds of a single class: what `svm` refuses is a problem all the same."""
    loss = generators.LOSSES[number % 3]
    drawn = generators.vectors(loss, "plain", ("dense", "float64"), rng, d=3, intercept=True)
    design = drawn.design
    assert isinstance(design, Rows)
    sign = np.ones(drawn.n) if number % 2 else -np.ones(drawn.n)
    extra = np.ones((drawn.n, 1)) if number % 4 < 2 else None
    rows = Rows(design.matrix, sign, extra)
    d = rows.shape[1]
    quadratic = drawn.quadratic if extra is not None else drawn.quadratic.take(np.arange(d))
    problem = Problem(rows, drawn.losses, quadratic, np.zeros(d), C=drawn.C)
    ref = reference(problem)
    if (ref.states == OPEN).all():  # the optimum is at infinity, or not unique
        return
    one(ledger, "one class", loss, ("dense", "float64"), ref,
        list(adversary.points(ref, rng, count)))


