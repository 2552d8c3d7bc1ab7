"""The step on a face: it stays in the boxes, v follows, and the dual improves."""

from __future__ import annotations

import numpy as np
import pytest
from sparse_problems import table, words

from cvxscreen.designs.rows import Rows
from cvxscreen.solvers.dual_active_set.face import Face
from cvxscreen.solvers.dual_active_set.working_set import ScaledRows, WorkingSet

N, D = 60, 40


def moved(times: float, monkeypatch: pytest.MonkeyPatch) -> float:
    """What a step of `times` the residual gains in the dual; the invariants hold after it."""
    rng = np.random.default_rng(1)
    losses = table("hinge", N, rng)
    source = ScaledRows.of(Rows(words(rng, N, D)), np.ones(D))
    block = WorkingSet(source, np.arange(N), np.arange(0), losses, 8)
    monkeypatch.setattr(Face, "_solve", lambda face, *_: times * face.residual)
    f = block.losses
    theta = f.lo + rng.uniform(0.1, 0.9, size=N) * (f.hi - f.lo)
    v = -block.adjoint(theta)
    before = float(0.5 * v @ v + f.b @ theta)
    Face(block, theta, v).move(theta, v, 0.0)
    assert (theta >= f.lo).all()
    assert (theta <= f.hi).all()
    np.testing.assert_allclose(v, -block.adjoint(theta), atol=1e-12)
    return before - float(0.5 * v @ v + f.b @ theta)


@pytest.mark.parametrize("times", [0.1, 1e2, 1e8])
def test_a_step_never_makes_the_dual_worse(times: float, monkeypatch: pytest.MonkeyPatch) -> None:
    assert moved(times, monkeypatch) > 0
