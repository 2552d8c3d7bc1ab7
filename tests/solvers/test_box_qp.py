"""Blocks of nearly singular kernels: the central path ends where optimality says, and is needed."""

from __future__ import annotations

import numpy as np
import pytest

from cvxscreen.solvers import box_qp
from cvxscreen.solvers.box_qp import BoxQp, CentralPath, interior


def program(seed: int, m: int = 40, rank: int = 12) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((m, rank)) * 10.0 ** rng.uniform(-4, 0, rank)
    lo, hi = -rng.random(m) * 10.0, rng.random(m) * 10.0
    return A @ A.T, rng.standard_normal(m), rng.uniform(lo, hi), lo, hi


def violation(slope, e, c, lo, hi, balanced: bool) -> float:  # type: ignore[no-untyped-def]
    """The largest decrease of the objective per unit, along a pair or along one coordinate."""
    least = (slope + np.where(c >= 0, e, -e))[c < hi].min(initial=np.inf)
    most = (slope + np.where(c > 0, e, -e))[c > lo].max(initial=-np.inf)
    return max(most - least, 0.0) if balanced else max(most, -least, 0.0)


@pytest.mark.parametrize("dead", [0.0, 0.3])
@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_minimiser_is_optimal_and_at_its_bounds_exactly(
    seed: int, balanced: bool, dead: float
) -> None:
    K, f, c, lo, hi = program(seed)
    e = np.where(np.arange(40) % 3 > 0, dead, 0.0)
    lo[::5] = np.minimum(0.5, 0.5 * hi[::5]) * (dead > 0)  # some boxes on one side of the kink
    c = np.clip(c, lo, hi)
    kept = [array.copy() for array in (K, f, e, c, lo, hi)]
    found = interior(K, f, e, c, lo, hi, balanced, 1e-7)
    assert found is not None
    assert (found >= lo).all()
    assert (found <= hi).all()
    assert violation(K @ found + f, e, found, lo, hi, balanced) <= 1e-6
    settled = (found == lo) | (found == hi) | ((found == 0) & (e > 0))
    assert settled.sum() >= 20  # the rank is 12, so 28 of 40 terms or nearly
    if balanced:
        assert found.sum() == pytest.approx(c.sum(), abs=1e-10)
    for array, before in zip((K, f, e, c, lo, hi), kept, strict=True):
        assert np.array_equal(array, before)


@pytest.mark.parametrize("balanced", [False, True])
def test_boxes_on_one_side_of_the_kink(balanced: bool) -> None:
    """Above 0 a dead zone costs ``+e c``, below it ``-e c``."""
    K, f, c, lo, hi = program(3)
    e = np.full(40, 0.3)
    lo[::3], hi[::3] = 0.1 * hi[::3], hi[::3]
    lo[1::3], hi[1::3] = lo[1::3], 0.1 * lo[1::3]
    c = np.clip(c, lo, hi)
    found = interior(K, f, e, c, lo, hi, balanced, 1e-7)
    assert found is not None
    assert ((found >= lo) & (found <= hi)).all()
    assert violation(K @ found + f, e, found, lo, hi, balanced) <= 1e-6


def test_the_sum_is_restored_on_the_side_a_kinked_term_is_on() -> None:
    """What is missing is shared by terms that keep their piece: none of them passes 0."""
    m = 4
    lo, hi, e = np.full(m, -1.0), np.full(m, 1.0), np.array([0.5, 0.5, 0.0, 0.0])
    for short in (1.5, -1.5):
        path = CentralPath(np.eye(m), np.zeros(m), e, np.zeros(m), lo, hi, True)
        at = np.array([-0.01, 0.01, 0.2, 0.3])
        path.total = float(at.sum()) + short
        path.v = np.concatenate([at - path.base, [0.0, 0.0]])
        path.v[:2], path.v[m:] = np.maximum(at[:2], 0.0), np.maximum(-at[:2], 0.0)
        path.room = path.width - path.v
        path.z_low[:], path.z_high[:] = 0.0, 0.0
        found = path.rounded_to_bounds(lo, hi, 1e-7)
        assert found is not None
        assert found.sum() == pytest.approx(path.total, abs=1e-14)
        assert found[0] <= 0.0 <= found[1]


def test_what_is_not_finite_is_refused() -> None:
    K, f, c, lo, hi = program(0)
    K[0, 0] = np.nan
    assert interior(K, f, np.zeros(40), c, lo, hi, True, 1e-7) is None


@pytest.mark.parametrize("balanced", [False, True])
def test_a_block_of_nothing_takes_no_step(balanced: bool) -> None:
    none = np.zeros(0)
    block = BoxQp(np.zeros((0, 0)), none, none, none, none, none, none, balanced)
    assert block.solve(1e-9) == 0


@pytest.mark.parametrize("balanced", [False, True])
def test_boxes_of_one_point_take_no_step(balanced: bool) -> None:
    K, f, c, _, _ = program(1)
    block = BoxQp(K, f + K @ c, c.copy(), c, c, np.zeros(40), np.zeros(40), balanced)
    assert block.solve(1e-9) == 0
    assert np.array_equal(block.c, c)


def test_an_indefinite_matrix_has_no_newton_step_and_no_central_path() -> None:
    """Nothing but coordinate steps is left, and these end; nothing leaves the box."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((12, 12))
    K = A + A.T - 9.0 * np.eye(12)  # no ridge that is tried makes it positive definite
    lo, hi, c = np.full(12, -1.0), np.full(12, 1.0), rng.uniform(-0.5, 0.5, 12)
    zero = np.zeros(12)
    block = BoxQp(K, K @ c, c.copy(), lo, hi, zero, zero, False)
    assert not block._newton()
    path = CentralPath(K - 1e6 * np.eye(12), zero, zero, c, lo, hi, False)
    assert not path.advance()
    block.solve(1e-9)
    assert (np.abs(block.c) <= 1.0).all()


def test_without_bounds_there_is_no_central_path() -> None:
    K, f, c, _, _ = program(2)
    far = np.full(40, np.inf)
    block = BoxQp(K, f + K @ c, c.copy(), -far, far, np.zeros(40), np.zeros(40), True)
    assert not block._interior(1e-7)
    assert np.array_equal(block.c, c)


def test_a_sum_that_the_boxes_cannot_hold_is_no_answer() -> None:
    lo, hi = np.zeros(3), np.ones(3)
    path = CentralPath(np.eye(3), np.zeros(3), np.zeros(3), np.full(3, 0.5), lo, hi, True)
    path.total = 7.0
    assert path.rounded_to_bounds(lo, hi, 1e-7) is None


@pytest.mark.parametrize("dead", [0.0, 0.1])
@pytest.mark.parametrize("balanced", [False, True])
def test_blocks_reach_an_accuracy_that_steps_alone_do_not(
    dead: float, balanced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def left(seed: int) -> float:
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((300, 5))
        K = np.exp(-0.02 * ((X[:, None] - X[None]) ** 2).sum(-1))
        f = -np.sign(X[:, 0] + rng.standard_normal(300))
        box = np.where(f < 0, 0.0, -1e4), np.where(f < 0, 1e4, 0.0)
        if dead:
            box = np.full(300, -1e4), np.full(300, 1e4)
        block = BoxQp(
            K, f.copy(), np.zeros(300), *box, np.full(300, dead), np.zeros(300), balanced
        )
        block.solve(1e-6)
        assert np.allclose(block.F, K @ block.c + f, atol=1e-6)
        return violation(block.F, block.e, block.c, *box, balanced)

    seeds = range(5)  # with some rounding the steps are lucky in one of them
    assert max(left(seed) for seed in seeds) <= 2e-6
    monkeypatch.setattr(box_qp, "INTERIOR_LIMIT", 0)
    assert np.median([left(seed) for seed in seeds]) > 1e-5


def slopes(F, e, c, lo, hi) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[no-untyped-def]
    """Upwards and downwards, by the words of the module."""
    up = np.where(c < hi, F + np.where(c >= 0, e, -e), np.inf)
    return up, np.where(c > lo, F + np.where(c > 0, e, -e), -np.inf)


@pytest.mark.parametrize("dead", [0.0, 0.4])
@pytest.mark.parametrize("balanced", [False, True])
def test_every_step_is_the_best_of_its_rule(balanced: bool, dead: float) -> None:
    """It goes to a minimum along its direction, a kink or the end of a box, whichever is first."""
    K, f, c, lo, hi = program(5, 150)
    q = np.random.default_rng(0).random(150)
    e = np.where(np.arange(150) % 2 > 0, dead, 0.0)
    hi[::7] = lo[::7] = c[::7]  # cannot move
    c[::5] = np.clip(0.0, lo[::5], hi[::5])
    F, own = K @ c + f, K.diagonal() + q
    terms = box_qp.BoxTerms.of(lo, hi, e, q, K.diagonal())
    descend = box_qp.descend_pairs if balanced else box_qp.descend_singles
    kinds = set()
    for _ in range(400):
        up, down = slopes(F + q * c, e, c, lo, hi)
        if balanced:
            i = int(np.argmin(up))
            need = np.maximum(down - up[i], 0.0)
            bend = np.maximum(own[i] + own - 2.0 * K[i], 1e-12 * (own[i] + own))
            j = int(np.argmax(need**2 / bend))
            moves, size = {i: 1.0, j: -1.0}, need[j] / bend[j]
        else:
            need = np.maximum(np.maximum(-up, down), 0.0)
            i = int(np.argmax(need**2 / own))
            moves, size = {i: 1.0 if up[i] < 0 else -1.0}, need[i] / own[i]
        kind = "inside"
        for k, sign in moves.items():
            end = hi[k] if sign > 0 else lo[k]
            if e[k] > 0 and c[k] * sign < 0 < end * sign:
                end = 0.0
            if abs(end - c[k]) < size:
                size, kind = abs(end - c[k]), "kink" if end == 0.0 else "end"
        kinds.add(kind)
        expected = c.copy()
        for k, sign in moves.items():
            expected[k] += sign * size
        before = F.copy()
        steps, _ = descend(box_qp.RowsOnDemand.of(K), F, c, terms, 1e-9, 1)
        if not steps:
            break
        np.testing.assert_allclose(c, expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose(F, K @ c + f, rtol=0, atol=1e-9)
        assert (before != F).any()
        assert ((c >= lo) & (c <= hi)).all()
    assert kinds == ({"inside", "end", "kink"} if dead else {"inside", "end"})


@pytest.mark.parametrize("size", [1, 63, 64, 65, 200])
def test_a_value_is_found_where_it_first_stands(size: int) -> None:
    values = np.arange(size, dtype=float)
    assert [box_qp.first_of(float(k), values) for k in range(size)] == list(range(size))
    assert box_qp.first_of(-1.0, values) == box_qp.first_of(np.nan, values) == -1
    assert box_qp.first_of(0.0, np.zeros(size)) == 0
