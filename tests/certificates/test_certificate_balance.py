"""What a dual point costs that is out of balance on an unpenalised coordinate: enough, or all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cvxscreen as cs
from cvxscreen.certificates.certificate import imbalance_cost
from cvxscreen.certificates.one_pass import certify_chunks
from cvxscreen.core.streamed import ChunkTerms, UnitLoss
from cvxscreen.designs.chunks import Chunks
from cvxscreen.designs.rows import Rows
from cvxscreen.out_of_core.streams import Blocks, LocalEngine

KINKS, WEIGHTS, SIGNS = np.array([1.0, 1.0, 0.0]), np.array([2.0, 1.0, 5.0]), np.array([1, -1, 1])
"""2 max(0, 1 - b) + max(0, 1 + b) + 5 max(0, -b): 3 at b = 0, and 2 at its minimum b = 1."""


def in_memory() -> cs.Problem:
    losses = cs.Losses(KINKS, 0.0, 0.0, -WEIGHTS, 0.0)
    rows = Rows(np.zeros((3, 1)), None, SIGNS[:, None].astype(float))
    return cs.Problem(rows, losses, cs.Quadratic(np.array([1.0, 0.0])), np.zeros(2))


def in_chunks() -> cs.Problem:
    terms = ChunkTerms(3, UnitLoss(0.0, 0.0, 0.0, -1.0, 0.0), KINKS, WEIGHTS)
    design = Chunks(
        Blocks((np.zeros((2, 1)), np.zeros((1, 1)))), LocalEngine(), SIGNS, intercept=True
    )
    return cs.Problem(design, terms, cs.Quadratic(np.array([1.0, 0.0])), np.zeros(2))


@pytest.mark.parametrize(
    ("problem", "certify"), [(in_memory(), cs.certify), (in_chunks(), certify_chunks)]
)
def test_the_cost_is_that_of_the_direction_that_is_needed(problem: Any, certify: Any) -> None:
    # At b = 0 the slopes (-2, -1, 0) leave no Fenchel-Young term, and are out of balance by 1. To
    # raise the first costs exactly what is missing; to lower the third would cost nothing.
    x, theta = np.zeros(2), np.array([-2.0, -1.0, 0.0])
    proof = certify(problem, x, theta)
    assert proof.primal == pytest.approx(3.0)
    assert 1.0 <= proof.gap <= 1.0 + 1e-5
    best = certify(problem, np.array([0.0, 1.0]), np.array([-1.0, -1.0, 0.0]))
    assert best.primal == pytest.approx(2.0)
    assert best.gap <= 1e-12


@pytest.mark.parametrize("room", [1e-3, 0.5])
def test_several_coordinates_need_room_for_the_move(room: float) -> None:
    losses = cs.Losses(np.zeros(2), 0.0, 0.0, -1.0, 0.0)
    rows = Rows(np.zeros((2, 1)), None, np.eye(2))
    linear = np.array([0.0, room - 0.1, room - 0.1])
    problem = cs.Problem(rows, losses, cs.Quadratic(np.array([1.0, 0.0, 0.0])), linear)
    proof = cs.certify(problem, np.zeros(3), np.full(2, -room))
    assert np.isinf(proof.within) == (room > 0.1)
    assert np.isfinite(proof.within) == (proof.gap > 1.0)


def test_the_terms_that_are_asked_first_may_cost_little_more_but_never_less(
    rng: np.random.Generator,
) -> None:
    """One in many is asked, and all of them where that is no longer negligible."""
    n = 5000
    problem = cs.regression(rng.standard_normal((n, 2)), rng.standard_normal(n), loss="absolute",
                            intercept=True)
    theta = rng.uniform(-0.5, 0.5, n)
    theta -= theta.mean()
    margins = problem.losses.b + rng.uniform(0.1, 1.0, n)
    least = int(margins.argmin()) | 1  # not one of those asked first
    margins[least] = 0.0

    def cost(residual: float, negligible: float) -> float:
        pull = np.array([0.0, 0.0, residual])
        return imbalance_cost(problem, theta, margins, pull, 0.0, negligible)

    first, best = cost(1e-12, np.inf), cost(1e-12, 0.0)
    assert 0.0 < best < first < 100.0 * best
    assert cost(1e-12, 1.01 * first) == first
    assert cost(1e-12, 0.99 * first) == best
    assert cost(0.1, 1e-9) > 1e-3
    assert cost(10.0, np.inf) == np.inf  # no term has so much room
