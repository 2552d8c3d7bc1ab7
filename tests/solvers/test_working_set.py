"""The step on a face: it stays in the boxes, v follows, and the dual improves."""

from __future__ import annotations

import numpy as np
import pytest
from sparse_problems import D, N, make, solved, table, target_of, words

from cvxscreen.certificates.certificate import certify
from cvxscreen.core.duality import reference_point
from cvxscreen.designs.rows import Rows
from cvxscreen.solvers import dual_active_set as solver, working_set as face_module
from cvxscreen.solvers.dual_active_set import DualActiveSet, PathCache
from cvxscreen.solvers.working_set import Face, ScaledRows, WorkingSet


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


# -- A move of x alone: it closes the gap it says it closes, and only where it may.


FLAT = ("hinge", "absolute", "pinball", "eps-insensitive")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faces of any size may be left by a move of x."""
    monkeypatch.setattr(solver, "LEAST_FREE", 1)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", FLAT)
@pytest.mark.parametrize("relative", [1e-2, 1e-3, 1e-4])
def test_the_gap_is_that_of_the_pair_handed_out(
    kind: str, relative: float, rng: np.random.Generator
) -> None:
    """x and theta are two points: the certificate of both says what the solver says."""
    problem = make(kind, rng, C=3.0)
    target = target_of(problem, relative)
    found = DualActiveSet()(problem, None, target)
    assert found.status == "optimal"
    assert "dual_active_set" not in found.info
    assert found.info["correction_steps"] > 0
    point = reference_point(problem, found.x, found.theta)
    assert point.primal_dual_distance > 0
    assert point.gap == pytest.approx(found.info["gap"], rel=1e-6)
    assert certify(problem, found.x, found.theta, tol=1.0).gap <= 1.001 * target


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", FLAT)
def test_the_same_optimum_to_many_digits(kind: str, rng: np.random.Generator) -> None:
    solved(make(kind, rng, C=5.0))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", ["smoothed hinge", "huber"])
def test_nothing_is_moved_where_terms_bend(kind: str, rng: np.random.Generator) -> None:
    """The gap is quadratic in the residual there."""
    problem = make(kind, rng)
    assert DualActiveSet()(problem, None, target_of(problem, 1e-6)).info["correction_steps"] == 0


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("kind", ["hinge", "absolute", "pinball"])
def test_a_move_leaves_what_it_says(kind: str, rng: np.random.Generator) -> None:
    """Away from the optimum too, the terms that take part without being free among them."""
    losses = table(kind, N, rng)
    source = ScaledRows.of(Rows(words(rng)), np.ones(D))
    block = WorkingSet(source, np.arange(N), np.arange(0), losses, 8)
    f = block.losses
    theta = np.where(rng.random(N) < 0.5, f.lo, np.clip(0.0, f.lo, f.hi))
    v = -block.adjoint(theta)
    block.sweep(theta, v, 30)
    face = Face(block, theta, v)
    enough = 0.1 * float(f.fenchel_young(block.forward(v), theta)[face.rows].sum())
    found = face_module.correct_primal(block, face, theta, v, enough)
    assert 0 < found.steps <= face_module.CORRECTION_STEPS
    part = face_module.participants(block, face, theta, v)
    after = f.fenchel_young(block.forward(v + found.move), theta)
    price = 0.5 * float(found.move @ found.move)
    assert float(after[part.rows].sum()) + price <= found.gap * (1.0 + 1e-9)


@pytest.mark.usefixtures("small")
def test_it_is_given_up_where_it_keeps_failing(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """Dual steps alone finish the work; what failed is not paid for at every value of C."""
    calls: list[int] = []

    def failing(block: WorkingSet, *_: object) -> face_module.PrimalCorrection:
        calls.append(1)
        return face_module.PrimalCorrection(np.zeros(len(block.columns)), np.inf, 1)

    monkeypatch.setattr(solver, "correct_primal", failing)
    problem, cache = make("hinge", rng, C=3.0), PathCache()
    for value in (3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0):
        here = problem.with_(C=value)
        target = target_of(here, 1e-6)
        found = DualActiveSet(path_cache=cache)(here, None, target)
        assert found.status == "optimal"
        assert certify(here, found.x, found.theta, tol=1.0).gap <= 1.001 * target
    assert cache.failed_corrections == solver.FAILED_CORRECTIONS
    assert len(calls) <= 4 * solver.FAILED_CORRECTIONS


# -- A face's own factor: the whole step at once, bought where conjugate gradients find no end.


def face_of(kind: str, rng: np.random.Generator) -> Face:
    """Half of the rows free, some columns split off."""
    losses = table(kind, N, rng)
    source = ScaledRows.of(Rows(words(rng, N, D)), rng.uniform(0.5, 2.0, size=D))
    block = WorkingSet(source, np.arange(N), np.arange(0), losses, 8)
    f = block.losses
    middle = 0.5 * (np.maximum(f.lo, -1.0) + np.minimum(f.hi, 1.0))
    theta = np.where(np.arange(N) % 2 == 0, middle + 1e-3, np.maximum(f.lo, -1.0))
    face = Face(block, theta, -block.adjoint(theta))
    assert 0 < len(face.rows) < N
    return face


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("kind", ["absolute", "huber"])
def test_the_factor_solves_the_system_of_the_face(
    kind: str, dense: bool, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    if dense:
        monkeypatch.setattr(face_module, "ENTRYWISE", 0.0)
    face = face_of(kind, rng)
    block, nothing = face._working_set, np.full(len(face.rows), np.nan)
    step = face._solved_directly(nothing)
    product = block.forward(block.adjoint(step, face.rows), face.rows) + face._terms.q * step
    np.testing.assert_allclose(product, face.residual, atol=1e-9 * np.abs(face.residual).max())
    assert face.gap == 0.0


def test_the_factor_is_bought_once_products_have_cost_as_much(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And again only after as many more."""
    face = face_of("absolute", rng)
    block = face._working_set
    monkeypatch.setattr(
        face_module, "conjugate_gradients", lambda *_: (face_module.STEPS, np.inf, False)
    )
    once = 2.0 * face_module.STEPS * block.stored(face.rows)
    monkeypatch.setattr(WorkingSet, "factor_cost", lambda *_: 2.5 * once)
    direct = [bool(face._solve(0.0, 0.0).any()) for _ in range(6)]
    assert direct == [False, False, True, False, False, True]


def test_more_free_terms_than_columns_have_no_factor(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kinks then ask for more than x can give; the matrix is singular."""
    losses = table("absolute", N, rng)
    source = ScaledRows.of(Rows(words(rng, N, 4)), np.ones(4))
    block = WorkingSet(source, np.arange(N), np.arange(0), losses, 2)
    theta = 0.5 * (block.losses.lo + block.losses.hi) + 1e-3
    face = Face(block, theta, -block.adjoint(theta))
    monkeypatch.setattr(
        face_module, "conjugate_gradients", lambda *_: (face_module.STEPS, np.inf, False)
    )
    monkeypatch.setattr(WorkingSet, "factor_cost", lambda *_: 0.0)
    assert not face._solve(0.0, 0.0).any()
