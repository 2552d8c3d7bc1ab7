"""Problems crossed by table, points near and far, and reference optima; nothing here is a test.

`CASES` crosses every loss with and without intercept, five kinds of data, four ways of storing them
and weights; it is cut into eight arrays (`array`) that hold every pair of levels each, so that a
dear test takes one or some of them and leaves the others to ``--long`` (`ONE_ARRAY`).

`reference` gives the optimum of a case: exact where the pieces could be identified
(`exact.optimum`), otherwise the built-in solver's with a bound on its distance from the optimum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from exact import Exact, Fraction, Optimum, dot, exact, optimum
from hypothesis import strategies as st

from cvxscreen.bounds import midpoint_ball
from cvxscreen.bounds.regions import Ball, CutBall, Everywhere, Region
from cvxscreen.certificates.certificate import certify
from cvxscreen.core.duality import Point, reference_point
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem
from cvxscreen.models.linear import regression, svm
from cvxscreen.models.samples import CLASSIFICATION, REGRESSION
from cvxscreen.screening.reduction import Selection, Verdict
from cvxscreen.solvers.newton import Newton
from cvxscreen.solvers.solution import Solution

LOSSES = (*CLASSIFICATION, *REGRESSION)
DATA = ("plain", "scaled", "twins", "integer", "wide")
STORAGE = ("dense64", "dense32", "csr64", "csr32")


@dataclass(frozen=True)
class Case:
    """One cell of the table; `seed` makes further problems of the same kind."""

    loss: str
    intercept: bool = False
    data: str = "plain"
    storage: str = "dense64"
    weighted: bool = False
    seed: int = 0
    n: int = 24
    d: int = 4
    C: float | None = None
    scale: float = 1.0

    def __str__(self) -> str:
        words = [self.loss, self.data, self.storage]
        words += ["intercept"] * self.intercept + ["weights"] * self.weighted
        return "-".join(words) + f"-{self.seed}"


def crossed(seeds: int = 1, **sizes: Any) -> tuple[Case, ...]:
    """Every loss, intercept, data and storage; weights in half of the cells."""
    cells = product(range(seeds), LOSSES, (False, True), DATA, STORAGE)
    return tuple(
        Case(loss, intercept, data, storage, bool((number + number // 4 + seed) % 2), seed, **sizes)
        for number, (seed, loss, intercept, data, storage) in enumerate(cells)
    )


CASES = crossed()


def array(case: Case) -> int:
    """Which of eight orthogonal arrays of 40 cells a case is in.

    Each holds every loss with every kind of data once, and every data with every storage, with and
    without intercept, once; hence each pair of levels of any two factors, weights among them. The
    even ones together hold for every loss each kind of data in each storage once.
    """
    loss, data = LOSSES.index(case.loss), DATA.index(case.data)
    offset = (STORAGE.index(case.storage) - loss - data) % len(STORAGE)
    return 2 * offset + (case.intercept + loss // 4 + data + offset // 2) % 2


ONE_ARRAY = tuple(
    pytest.param(case, id=str(case), marks=[pytest.mark.long] if array(case) else [])
    for case in CASES
)
"""All cells for ``parametrize``: one array in every run, the other seven with ``--long``."""

HALVES = (0, pytest.param(1, marks=pytest.mark.long))
"""``array(case) % 2`` for ``parametrize``: even arrays in every run, odd ones with ``--long``."""

QUARTERS = (0, *(pytest.param(part, marks=pytest.mark.long) for part in (1, 2, 3)))
"""``array(case) % 4``: two arrays in every run, the other six with ``--long``."""


def features(case: Case, rng: np.random.Generator) -> np.ndarray:
    """The data matrix of a case, dense float64 (representable in float32 where that is stored)."""
    n, d = (case.n, case.d) if case.data != "wide" else (max(case.n // 4, 3), case.n // 2)
    X = rng.standard_normal((n, d)) + rng.standard_normal(d)
    if case.data == "scaled":
        X *= 10.0 ** np.linspace(-6, 6, d)
    elif case.data == "integer":
        X = rng.integers(-2, 3, (n, d)).astype(float)
    elif case.data == "twins":
        X[1], X[3], X[5] = X[0], -X[2], 0.0
        X[:, -1] = X[:, 0]
    if "csr" in case.storage:
        X[rng.random((n, d)) < 0.3] = 0.0
    X *= case.scale
    return X.astype(np.float32).astype(np.float64) if case.storage.endswith("32") else X


def stored(X: np.ndarray, storage: str) -> Any:
    """`X` as one of `STORAGE`."""
    X = X.astype(np.float32) if storage.endswith("32") else X
    return sp.csr_matrix(X) if storage.startswith("csr") else X


def targets(case: Case, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Labels or responses that depend on the data, with noise."""
    n = len(X)
    direction = rng.standard_normal(X.shape[1]) / np.maximum(np.abs(X).max(axis=0), 1e-12)
    response = 1.5 * X @ direction + rng.standard_normal(n)
    if case.loss in CLASSIFICATION:
        y = np.where(response > np.median(response), 1.0, -1.0)
        if case.data == "twins":
            y[1], y[3] = y[0], -y[2]
        return y
    return np.round(response) if case.data == "integer" else response


def build(case: Case) -> Problem:
    """The problem of a case, by the front doors."""
    rng = np.random.default_rng([LOSSES.index(case.loss), DATA.index(case.data), case.seed])
    X = features(case, rng)
    y = targets(case, X, rng)
    weight = rng.integers(1, 9, len(X)) / 4.0 if case.weighted else None
    if weight is not None:
        weight[rng.integers(0, len(X))] = 0.0
    C = case.C if case.C is not None else float(rng.choice([2.0**-5, 2.0**-3, 0.5, 4.0]))
    C /= case.scale**2
    shape: dict[str, float] = {}
    if case.loss in CLASSIFICATION:
        shape = {"gamma": 0.5} if case.loss == "smoothed_hinge" else {}
        return svm(
            stored(X, case.storage), y, C=C, loss=case.loss, sample_weight=weight,
            intercept=case.intercept, **shape,
        )
    if "epsilon" in case.loss:
        shape["epsilon"] = 0.5
    if case.loss == "smoothed_epsilon":
        shape["gamma"] = 0.25
    if case.loss == "quantile":
        shape["tau"] = 0.25
    if case.loss == "huber":
        shape["delta"] = 0.75
    return regression(
        stored(X, case.storage), y, C=C, loss=case.loss, sample_weight=weight,
        intercept=case.intercept, **shape,
    )


@dataclass(frozen=True, eq=False)
class Reference:
    """A problem with its optimum.

    ``truth`` is exact or None; ``error`` bounds the distance of `x` from the optimum in the metric
    of M (0 with a truth: `x` is then the optimum rounded once).
    """

    problem: Problem
    x: np.ndarray
    theta: np.ndarray
    margins: np.ndarray
    point: Point
    truth: Optimum | None
    error: float
    exact: Exact | None = field(default=None)

    @property
    def slack(self) -> np.ndarray:
        """How far the margins may be from the optimum's."""
        if self.truth is not None:
            return 4e-16 * np.abs(self.margins)
        return self.error * self.problem.norms


def solved(problem: Problem, *, rational: bool = True) -> Reference:
    """The optimum of `problem`."""
    target = 1e-14 * abs(problem.primal(np.zeros(problem.d)))
    found = Newton()(problem, target=target)
    point = reference_point(problem, found.x, found.theta)
    truth = optimum(problem, point.x, point.theta) if rational else None
    if truth is not None:
        x = np.array([float(value) for value in truth.x])
        theta = np.array([float(value) for value in truth.theta])
        margins = np.array([float(value) for value in truth.margins])
        return Reference(problem, x, theta, margins, point, truth, 0.0, truth.model)
    ball = midpoint_ball(problem, point)
    error = 2.0 * ball.radius if isinstance(ball, Ball) else float("inf")
    return Reference(problem, point.x, point.theta, point.margins, point, None, error)


def solved_floats(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """``(x, theta)`` of the built-in solver, as accurate as it gets."""
    scale = abs(problem.primal(np.zeros(problem.d)) - problem.constant)
    found = Newton()(problem, target=1e-15 * scale)
    return found.x, found.theta


@cache
def reference(case: Case) -> Reference:
    """The optimum of a case, remembered."""
    return solved(build(case))


def points(ref: Reference, rng: np.random.Generator, count: int = 3) -> Iterator[Point]:
    """Pairs at relative distances 1 to 1e-12 of the optimum, and some that ignore it."""
    problem = ref.problem
    size = float(np.linalg.norm(ref.x)) + 1e-3
    box = np.where(np.isfinite(problem.losses.lo), problem.losses.lo, -np.abs(ref.theta) - 1.0)
    top = np.where(np.isfinite(problem.losses.hi), problem.losses.hi, np.abs(ref.theta) + 1.0)
    width = 1.0 / np.sqrt(np.maximum(problem.quadratic.diagonal, 1e-12))
    width = np.where(problem.quadratic.free, 1.0, width)
    for number in range(count):
        blur = 10.0 ** -rng.uniform(0, 6 if number % 2 else 2)
        x = ref.x + blur * size * width * rng.standard_normal(problem.d) / np.sqrt(problem.d)
        theta = ref.theta + blur * (top - box) * rng.standard_normal(problem.n)
        kind = rng.integers(0, 5)
        if kind == 0:
            yield reference_point(problem, x)
        elif kind == 1:
            yield reference_point(problem, ref.x, theta)
        elif kind == 2:
            yield reference_point(problem, x, ref.theta)
        else:
            pair = reference_point(problem, x, theta)
            yield pair if kind == 3 else reference_point(problem, pair.x_theta, pair.theta)


def inside(ref: Reference, region: Region) -> bool:
    """Whether the exact optimum is in every part of the region, in rational arithmetic.

    Of the penalised coordinates: balls say nothing of the others.
    """
    if isinstance(region, Everywhere):
        return True
    assert ref.truth is not None
    assert ref.exact is not None
    free = ref.problem.quadratic.free
    x = [Fraction(0) if free[j] else value for j, value in enumerate(ref.truth.x)]
    for ball in region.balls:
        centre = exact(np.where(free, 0.0, ball.centre))
        step = [a - b for a, b in zip(x, centre, strict=True)]
        if dot(step, ref.exact.apply(step)) > Fraction(ball.radius) ** 2:
            return False
    if isinstance(region, CutBall):
        return dot(exact(region.normal.x), ref.exact.apply(x)) >= Fraction(region.level)
    return True


def wrong(ref: Reference, verdict: Verdict) -> int:
    """How many decisions the exact optimum contradicts."""
    assert ref.truth is not None
    assert ref.exact is not None
    bad = 0
    for i in np.flatnonzero(verdict.codes >= 0):
        first, last = ref.exact.ends[i][verdict.codes[i]]
        bad += not first <= ref.truth.margins[i] <= last
    return bad


def suboptimal(ref: Reference, x: np.ndarray) -> float:
    """``P(x) - P*`` of a reference with a truth, exact up to one rounding."""
    assert ref.truth is not None
    assert ref.exact is not None
    return float(ref.exact.primal(exact(x)) - ref.truth.value)


def pieces_at(ref: Reference) -> np.ndarray:
    """The piece of every term at the optimum, -1 at kinks."""
    return ref.problem.losses.piece_within(ref.margins, ref.margins)


def some(ref: Reference, seed: int, share: float = 0.7) -> Selection:
    """A right selection: the pieces at the optimum of a random share of the terms."""
    keep = np.random.default_rng(seed).random(ref.problem.n) > share
    return Selection(np.where(keep, -1, pieces_at(ref)).astype(np.int8))


def honest(solution: Solution) -> Solution:
    """The status agrees with a certificate made here and now."""
    problem = solution.problem
    if solution.solver == "BUILTIN":  # the loop survives exceptions; our own solver has none
        assert not [r.solver_info["error"] for r in solution.rounds if "error" in r.solver_info]
    if not np.isfinite(solution.x).all():
        assert solution.status not in ("optimal", "inaccurate")
        assert not solution.certificate.ok
        return solution
    proof = certify(problem, solution.x, solution.theta, solution.multipliers,
                    tol=solution.certificate.tolerance)
    assert (solution.status == "optimal") == proof.ok
    assert solution.certificate.gap == proof.gap
    return solution


# -- single terms -------------------------------------------------------------------------------

_finite = st.floats(-1e3, 1e3).map(lambda value: value if abs(value) > 1e-100 else 0.0)
_positive = st.floats(2.0**-10, 2.0**10)


@st.composite
def loss_rows(draw: st.DrawFn) -> Losses:
    """One row of any named loss, with kinks at integers, halves or anywhere."""
    b = draw(st.one_of(st.integers(-3, 3).map(float), _finite))
    c, gamma, e = draw(_positive), draw(_positive), draw(_positive)
    tau = draw(st.floats(0.05, 0.95))
    inf = float("inf")
    e_, q_, lo, hi = draw(
        st.sampled_from([
            (0.0, 0.0, -c, 0.0),
            (0.0, gamma / c, -c, 0.0),
            (0.0, 1.0 / c, -inf, 0.0),
            (0.0, 0.0, -c, c),
            (0.0, 0.0, -c * tau, c * (1 - tau)),
            (e, 0.0, -c, c),
            (e, gamma / c, -c, c),
            (0.0, 1.0 / c, -c * gamma, c * gamma),
        ])
    )
    return Losses([b], e_, q_, lo, hi)


def _plain(value: float) -> float:
    """The value, or 0 where products with it could underflow."""
    return value if abs(value) > 1e-100 else 0.0


def arguments(losses: Losses) -> st.SearchStrategy[float]:
    """Arguments of a single row: its knots, their neighbours, and anything."""
    knots = [float(k[0]) for k in losses.knots if np.isfinite(k[0])]
    near = [float(np.nextafter(k, s)) for k in knots if k for s in (-np.inf, np.inf)]
    return st.one_of(st.sampled_from(knots + near), st.floats(-2e3, 2e3).map(_plain))


def slopes(losses: Losses) -> st.SearchStrategy[float]:
    """Slopes inside the box of a single row, its ends and 0 included."""
    lo = float(losses.lo[0]) if np.isfinite(losses.lo[0]) else -1e4
    hi = float(losses.hi[0]) if np.isfinite(losses.hi[0]) else 1e4
    return st.one_of(st.sampled_from([lo, hi, 0.0]), st.floats(lo, hi).map(_plain))
