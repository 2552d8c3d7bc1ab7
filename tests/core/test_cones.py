"""Side constraints: projections by their own inequalities, duality of the cones, refusals."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from cvxscreen.core.cones import KINDS, SideConstraints, _project
from cvxscreen.errors import InvalidInput

SIZES = {"zero": 3, "nonneg": 4, "soc": 4, "psd": 3}


def rows(kind: str) -> int:
    return SIZES[kind] ** 2 if kind == "psd" else SIZES[kind]


def draw(kind: str, rng: np.random.Generator, size: float) -> np.ndarray:
    v = size * rng.standard_normal(rows(kind))
    if kind == "psd":
        square = v.reshape(3, 3)
        v = (square + square.T).ravel()
    return v


def alone(kind: str) -> SideConstraints:
    """One cone, ``x`` itself constrained to it."""
    m = rows(kind)
    return SideConstraints(sp.eye_array(m), np.zeros(m), ((kind, SIZES[kind]),))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_projection_is_characterised(kind: str, size: float, rng: np.random.Generator) -> None:
    """p = P(v): p in K, p - v in K*, <p, p - v> = 0 (Moreau); projecting again changes nothing."""
    side = alone(kind)
    for _ in range(20):
        v = draw(kind, rng, size)
        p = side.project(v)
        # Two eigenvalue or norm computations at the size of v.
        tiny = 1e-13 * np.linalg.norm(v)
        np.testing.assert_allclose(side.project(p), p, atol=tiny)
        np.testing.assert_allclose(side.project_dual(p - v), p - v, atol=tiny)
        assert abs(p @ (p - v)) <= tiny * np.linalg.norm(v)


@pytest.mark.parametrize("kind", KINDS)
def test_projection_is_nearest(kind: str, rng: np.random.Generator) -> None:
    """No other point of the cone is nearer."""
    side = alone(kind)
    for _ in range(20):
        v, other = draw(kind, rng, 1.0), side.project(draw(kind, rng, 2.0))
        assert np.linalg.norm(v - side.project(v)) <= np.linalg.norm(v - other) + 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_cone_and_dual_cone_have_nonnegative_products(
    kind: str, rng: np.random.Generator
) -> None:
    """``<s, mu> >= 0`` for s in K and mu in K*."""
    side = alone(kind)
    for _ in range(40):
        s, mu = side.project(draw(kind, rng, 1.0)), side.project_dual(draw(kind, rng, 1.0))
        assert s @ mu >= -1e-12


def test_second_order_cone_cases_by_hand() -> None:
    """Inside, polar, boundary, apex and a projection known in closed form."""
    for v, p in (
        ([2.0, 1.0, 0.0], [2.0, 1.0, 0.0]),
        ([-2.0, 1.0, 0.0], [0.0, 0.0, 0.0]),
        ([1.0, 1.0, 0.0], [1.0, 1.0, 0.0]),
        ([-1.0, 1.0, 0.0], [0.0, 0.0, 0.0]),
        ([0.0, 3.0, 4.0], [2.5, 1.5, 2.0]),
        ([-1.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
        ([1.0], [1.0]),
        ([-1.0], [0.0]),
    ):
        np.testing.assert_allclose(_project("soc", len(v), np.array(v)), p, atol=1e-15)


def test_semidefinite_projection_clips_eigenvalues() -> None:
    """Known spectrum in, clipped spectrum out, Fortran order."""
    q, _ = np.linalg.qr(np.random.default_rng(3).standard_normal((3, 3)))
    matrix = q @ np.diag([2.0, -1.0, 0.5]) @ q.T
    expected = q @ np.diag([2.0, 0.0, 0.5]) @ q.T
    got = _project("psd", 3, matrix.flatten(order="F")).reshape(3, 3, order="F")
    np.testing.assert_allclose(got, expected, atol=1e-14)


def test_a_product_is_projected_block_by_block(rng: np.random.Generator) -> None:
    """All kinds in one product, each with its own rows; the violation is the joint distance."""
    dims = tuple((kind, SIZES[kind]) for kind in KINDS)
    m = sum(rows(kind) for kind in KINDS)
    F, f = rng.standard_normal((m, 5)), rng.standard_normal(m)
    side = SideConstraints(sp.csr_matrix(F), f, dims)
    x = rng.standard_normal(5)
    np.testing.assert_allclose(side.slack(x), F @ x + f, rtol=1e-13)
    mu = rng.standard_normal(m)
    np.testing.assert_allclose(side.adjoint(mu), F.T @ mu, rtol=1e-12)
    seen, squares = [], 0.0
    for (kind, _, block), name in zip(side.blocks(), KINDS, strict=True):
        assert kind == name
        seen += range(block.start, block.stop)
        part = side.slack(x)[block]
        own = alone(kind).project(part)
        np.testing.assert_array_equal(side.project(side.slack(x))[block], own)
        squares += float(np.sum((part - own) ** 2))
    assert seen == list(range(m))
    assert side.violation(x) == pytest.approx(np.sqrt(squares), rel=1e-12)


def test_the_callers_offset_is_copied() -> None:
    """Changing the array afterwards changes nothing."""
    offset = np.ones(2)
    side = SideConstraints(np.eye(2), offset, [("nonneg", 2)])
    offset[:] = -5.0
    assert side.violation(np.zeros(2)) == 0.0


@pytest.mark.parametrize(
    ("matrix", "offset", "dims", "words"),
    [
        (np.eye(2), np.zeros(2), [("exp", 2)], "known cones"),
        (np.eye(2), np.zeros(2), [("nonneg", 3)], "describes 3 rows"),
        (np.eye(2), np.zeros(3), [("nonneg", 2)], "offset 3"),
        (np.eye(3), np.zeros(3), [("psd", 3)], "describes 9 rows"),
        (np.eye(2), np.array([np.nan, 0.0]), [("nonneg", 2)], "finite"),
        (np.array([[np.inf, 0.0], [0.0, 1.0]]), np.zeros(2), [("nonneg", 2)], "finite"),
    ],
)
def test_inconsistent_constraints_are_refused(
    matrix: np.ndarray, offset: np.ndarray, dims: list[tuple[str, int]], words: str
) -> None:
    """Unknown cones, row counts that disagree, NaN and infinity."""
    with pytest.raises(InvalidInput, match=words):
        SideConstraints(matrix, offset, dims)


def test_a_run_of_cones_is_judged_one_by_one(rng: np.random.Generator) -> None:
    """Many second-order cones next to each other are inside for certain where each of them is."""
    tails = rng.standard_normal((50, 3))
    norms = np.linalg.norm(tails, axis=1)
    verdicts = set()
    for room in (0.0, 1e-15, 1e-12, 1e-3):
        for out in (0.0, 1.0):
            heads = norms * (1.0 + room)
            heads[17] -= out * 1e-9
            v = np.column_stack([heads, tails]).ravel()
            eye = sp.csr_array((v.size, 1))
            whole = SideConstraints(eye, v, (("soc", 4),) * 50).surely_holds(np.zeros(1))
            single = [
                SideConstraints(eye[:4], part, (("soc", 4),)).surely_holds(np.zeros(1))
                for part in v.reshape(50, 4)
            ]
            assert whole == all(single)
            verdicts.add(whole)
    assert verdicts == {True, False}


def test_norms_of_blocks_are_found_among_other_cones() -> None:
    """One with a head and coordinates of its own; neither a shift, a shared coordinate, a head of
    two rows, nor a row of two coordinates."""
    d, rows, offset, dims = 20, [], [], []

    def cone(*entries: dict[int, float], shift: float = 0.0, kind: str = "soc") -> None:
        for entry in entries:
            row = np.zeros(d)
            row[list(entry)] = list(entry.values())
            rows.append(row)
            offset.append(shift)
        dims.append((kind, len(entries)))

    cone({0: 1.0}, {1: 1.0, 2: 1.0}, kind="nonneg")
    cone({3: 2.0}, {4: -1.0}, {5: 3.0})            # one
    cone({6: 1.0}, {7: 1.0}, {7: 2.0})             # a coordinate twice
    cone({8: 1.0}, {9: 1.0}, shift=1.0)
    cone({10: 1.0}, {11: 1.0, 12: 1.0})
    cone({0: 1.0}, {13: 1.0})                      # its head has another row
    cone({14: -1.0}, {15: 1.0})                    # a norm below a negative head
    cone({16: 0.5}, {17: 1.0}, {1: 1.0})           # one
    cone({18: 1.0}, {19: 0.0})
    side = SideConstraints(np.array(rows), np.array(offset), dims)
    norms = side.norms
    assert norms.heads.tolist() == [3, 16]
    assert norms.head_rows.tolist() == [2, 16]
    np.testing.assert_array_equal(norms.scales, [2.0, 0.5])
    np.testing.assert_array_equal(norms.coordinates, [4, 5, 17, 1])
    np.testing.assert_array_equal(norms.factors, [-1.0, 3.0, 1.0, 1.0])
    np.testing.assert_array_equal(norms.owner, [0, 0, 1, 1])
    for at, columns in ((norms.head_rows, norms.heads), (norms.rows, norms.coordinates)):
        np.testing.assert_array_equal(side.matrix[at].indices, columns)
    last = norms.take(np.array([False, True]))
    v = np.arange(d, dtype=float)
    np.testing.assert_allclose(norms.lengths(v), [np.hypot(4.0, 5.0 / 3.0), np.hypot(17.0, 1.0)])
    np.testing.assert_allclose(last.lengths(v), norms.lengths(v)[1:])
    assert not len(SideConstraints(np.eye(2), np.ones(2), (("soc", 2),)).norms)
    assert not len(SideConstraints(np.zeros((2, 2)), np.zeros(2), (("soc", 2),)).norms)


def budgeted(*more: np.ndarray, kinds: tuple[tuple[str, int], ...] = ()) -> SideConstraints:
    """``|2 x_0| <= 3 t_0`` in two rows, ``|x_1| <= t_1``, a block below ``t_2``, and a budget.

    Coordinates: x of 5, then the heads, then another one.
    """
    F = np.zeros((8, 9))
    F[0, [0, 5]], F[1, [0, 5]] = (-2.0, 3.0), (2.0, 3.0)
    F[2, [1, 6]], F[3, [1, 6]] = (1.0, 1.0), (-1.0, 1.0)
    F[4, 5:8] = [-1.0, -0.5, -2.0]
    F[5, 7], F[6, 2], F[7, 3] = 1.0, 2.0, -1.0
    F = np.vstack([F[[0, 2, 4, 1, 3]], F[5:], *more])
    offset = np.zeros(len(F))
    offset[2] = 4.0
    return SideConstraints(F, offset, (("nonneg", 5), ("soc", 3), *kinds))


def test_two_inequalities_are_a_norm_of_one_coordinate() -> None:
    side = budgeted()
    norms = side.norms
    assert norms.heads.tolist() == [7, 5, 6]
    assert norms.coordinates.tolist() == [2, 3, 0, 1]
    assert norms.paired.tolist() == [False, True, True]
    assert norms.limited.all()
    np.testing.assert_array_equal(norms.scales, [1.0, 3.0, 1.0])
    np.testing.assert_array_equal(np.abs(norms.factors), [2.0, 1.0, 2.0, 1.0])
    x = np.array([3.0, -5.0, 0.0, 7.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    x[norms.heads] = norms.least(x)
    np.testing.assert_allclose(x[5:8], [2.0, 5.0, 7.0])
    slack = side.slack(x)
    assert slack[[0, 1, 3, 4]].min() == 0.0  # of each pair one row binds, the other does not
    assert np.sort(slack[[0, 1, 3, 4]])[2] > 0.0


def test_multipliers_of_two_inequalities_are_those_of_the_cone() -> None:
    """What they come to at head and coordinate, and in K* as far as the cone's are."""
    side = budgeted()
    norms = side.norms
    mu = np.zeros(8)
    head, tail = np.array([5.0, 2.0, 1.0]), np.array([3.0, 4.0, -2.0, 0.5])
    norms.put(mu, head, tail)
    np.testing.assert_array_equal(mu, side.project_dual(mu))
    found = side.adjoint(mu)
    np.testing.assert_allclose(found[norms.heads], norms.scales * head)
    np.testing.assert_allclose(found[norms.coordinates], norms.factors * tail)
    last = norms.take(np.array([False, False, True]))
    last.put(mu, np.array([7.0]), np.array([7.0]))
    np.testing.assert_allclose(side.adjoint(mu)[[1, 6]], [7.0 * last.factors[0], 7.0])


@pytest.mark.parametrize(("row", "kind"), [
    ([0, 0, 0, 0, 0, 1.0, 0, 0, 0], "nonneg"),   # pushes the head up
    ([0, 0, 0, 0, 0, -1.0, 0, 0, 1.0], "zero"),
    ([1.0, 0, 0, 0, 0, 3.0, 0, 0, 0], "nonneg"),  # a third row of the two
])
def test_heads_that_other_constraints_may_push_up_hold_nothing(
    row: list[float], kind: str
) -> None:
    norms = budgeted(np.array([row]), kinds=((kind, 1),)).norms
    assert norms.heads.tolist() == [7, 6]


@pytest.mark.parametrize("first", [[-2.0, 3.0], [2.0, -3.0], [-2.0, 2.0], [2.0, 3.0]])
def test_two_rows_that_are_no_norm(first: list[float]) -> None:
    """But ``3 t - 2 x`` and ``3 t + 2 x``, or with the other one as the head."""
    F = np.zeros((2, 2))
    F[0], F[1] = first, [2.0, 3.0]
    side = SideConstraints(F, np.zeros(2), (("nonneg", 2),))
    assert len(side.norms) == (first in ([-2.0, 3.0], [2.0, -3.0]))
    assert not len(SideConstraints(F, [0.0, 1.0], (("nonneg", 2),)).norms)
    assert not len(SideConstraints(F, np.zeros(2), (("nonneg", 1), ("zero", 1))).norms)


def test_rows_go_one_by_one_and_cones_as_a_whole() -> None:
    side = budgeted(np.ones((2, 9)), kinds=(("zero", 2),))
    gone = np.zeros(10, dtype=bool)
    gone[[0, 3, 5, 6, 7, 8]] = True
    left, rows = side.without(gone)
    assert rows.tolist() == [1, 2, 4, 9]
    assert left.dims == (("nonneg", 3), ("zero", 1))
    np.testing.assert_array_equal(left.matrix.toarray(), side.matrix[rows].toarray())
