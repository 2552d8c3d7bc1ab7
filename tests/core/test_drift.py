"""Rounding through reductions: what a reduced problem charges bounds what was rounded."""

from __future__ import annotations

import numpy as np
import pytest
from exact import Exact, Fraction, Vector, dot, exact, solve as solve_exactly
from strategies import (
    CLASSIFICATION,
    LOSSES,
    Case,
    array,
    crossed,
    reference,
    solved_floats,
    some,
)

from cvxscreen.bounds import BOUNDS
from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.duality import reference_point
from cvxscreen.core.losses import Losses, Piece
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.screening.reduction import Selection, judge


def perturbation(problem: Problem, codes: np.ndarray, reduced: Problem, x: Vector) -> Fraction:
    """Square of ``||(M^ - M) x + q^ - q||`` in the metric of M^-1: hats for what was computed."""
    full, small = Exact(problem), Exact(reduced)
    d = len(x)
    matrix = [list(row) for row in full.M]
    linear = list(full.linear)
    for f, row, code in zip(full.terms, full.rows, codes, strict=True):
        if code in (Piece.LOW, Piece.HIGH):
            slope = Fraction(f.lo if code == Piece.LOW else f.hi)
            linear = [q + slope * a for q, a in zip(linear, row, strict=True)]
        elif code in (Piece.LEFT, Piece.RIGHT):
            centre = f.b + f.e if code == Piece.RIGHT else f.b - f.e
            linear = [q - centre / f.q * a for q, a in zip(linear, row, strict=True)]
            for j in range(d):
                matrix[j] = [m + row[j] * a / f.q for m, a in zip(matrix[j], row, strict=True)]
    off = [
        dot(small.M[j], x) - dot(matrix[j], x) + small.linear[j] - linear[j] for j in range(d)
    ]
    inverse = solve_exactly(small.M, off)
    assert inverse is not None
    return dot(off, inverse)


@pytest.mark.parametrize("loss", LOSSES)
def test_drift_bounds_the_rounding_of_a_reduction(loss: str) -> None:
    """In rational arithmetic, for one term and one coordinate as for many, all scales."""
    cases = [c for c in crossed() if c.loss == loss and not c.intercept and c.storage != "csr64"]
    cases += [Case(loss, n=n, d=d, seed=s, weighted=False) for n in (1, 2) for d in (1, 2)
              for s in range(3) if n > 1 or loss not in CLASSIFICATION]
    charged = 0
    for case in cases:
        ref = reference(case)
        assert ref.truth is not None
        for seed in range(2):
            selection = some(ref, seed, 0.8)
            if (selection.codes < 0).all():
                continue
            reduced = selection.reduce(ref.problem)
            square = perturbation(ref.problem, selection.codes, reduced, ref.truth.x)
            assert square <= Fraction(float(reduced.drift)) ** 2
            charged += square > 0
    assert charged > 5


def test_drift_with_side_constraints_that_keep_the_optimum_away_from_0() -> None:
    """The size of the optimum enters; P(0) says nothing about it when 0 is not feasible."""
    d, far = 3, 1e6
    rng = np.random.default_rng(3)
    side = SideConstraints(np.eye(d), np.full(d, -far), [("nonneg", d)])
    design = Rows(rng.standard_normal((4, d)))
    huber = Losses(rng.standard_normal(4), 0.0, 0.3, -1e9, 1e9)
    problem = Problem(design, huber, Quadratic(np.ones(d)), np.zeros(d), side=side)
    codes = np.full(4, Piece.LEFT, dtype=np.int8)
    reduced = Selection(codes).reduce(problem)
    x = exact(np.full(d, 1.1 * far))
    square = perturbation(problem, codes, reduced, x)
    assert np.isposinf(reduced.drift) or square <= Fraction(float(reduced.drift)) ** 2


@pytest.mark.parametrize("loss", LOSSES)
def test_bounds_on_a_reduced_problem_contain_the_full_optimum(loss: str) -> None:
    """``drift`` charges the rounding of the reduction: exact optimum inside, all scales."""
    rng = np.random.default_rng(7)
    looked_at = 0
    for case in (c for c in crossed() if c.loss == loss and not c.intercept and array(c) % 2 == 0):
        ref = reference(case)
        assert ref.truth is not None
        reduced = some(ref, 8).reduce(ref.problem)
        x, theta = solved_floats(reduced)
        model = Exact(reduced)
        for blur in (0.0, 1e-7, 1e-3):
            point = reference_point(
                reduced, x * (1 + blur * rng.standard_normal(reduced.d)),
                theta * (1 - blur * rng.random(reduced.n)),
            )
            for ball in [part for bound in BOUNDS.values() for part in bound(reduced, point).balls]:
                step = [a - b for a, b in zip(ref.truth.x, exact(ball.centre), strict=True)]
                # In the metric of the reduced problem, whose matrix is rounded at 1e-16.
                assert float(dot(step, model.apply(step))) <= ball.radius**2 * (1 + 1e-12)
                codes = judge(reduced, ball).codes
                kept = some(ref, 8).kept
                for i in np.flatnonzero(codes >= 0):
                    first, last = model.terms[i].ends(codes[i])
                    assert first <= ref.truth.margins[kept[i]] <= last
                    looked_at += 1
    assert looked_at > 200
