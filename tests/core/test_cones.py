"""Side constraints: projections onto their cones, feasibility, what multipliers add to a gap."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from exact import Exact, Fraction, dot, exact
from strategies import Case, build

from cvxscreen.certificates.certificate import certify
from cvxscreen.core.cones import KINDS, SideConstraints, _project
from cvxscreen.core.duality import reference_point
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
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


# Side constraints: the multipliers' part of gap and certificate, its rounding, feasibility.

def boxed(size: float, n: int = 20) -> Problem:
    """``x <= 1e-3`` in every coordinate, badly scaled: multipliers matter."""
    base = build(Case("hinge", n=n))
    d = base.d
    scale = size ** np.linspace(-1, 1, d)
    side = SideConstraints(sp.diags_array(-scale), 1e-3 * scale, [("nonneg", d)])
    return Problem(base.design, base.losses, base.quadratic, base.linear, side=side)


@pytest.mark.parametrize("size", [1.0, 1e3, 1e6])
def test_gap_with_side_constraints_bounds_the_exact_gap(
    size: float, rng: np.random.Generator
) -> None:
    """The multipliers' part in rational arithmetic, large and small multipliers mixed."""
    problem = boxed(size)
    assert problem.side is not None
    F = [exact(row) for row in problem.side.matrix.toarray()]
    f = exact(problem.side.offset)
    model = Exact(problem)
    for _ in range(40):
        x = -np.abs(rng.standard_normal(problem.d)) * rng.choice([1e-6, 1.0])
        mu = np.abs(rng.standard_normal(problem.d)) * size ** rng.uniform(-1, 1, problem.d)
        point = reference_point(problem, x, rng.uniform(-1, 0, problem.n), mu)
        assert point.feasible
        pushed = Exact(problem)
        pushed.linear = [
            q - dot(list(column), exact(point.multipliers))
            for q, column in zip(model.linear, zip(*F, strict=True), strict=True)
        ]
        slack = [dot(row, exact(x)) + value for row, value in zip(F, f, strict=True)]
        true = pushed.gap(exact(x), exact(point.theta)) + dot(exact(point.multipliers), slack)
        assert Fraction(point.gap) >= true


def test_rounding_of_multipliers_is_charged() -> None:
    """At an optimum held by multipliers the gap is rounding; it is not below the exact gap."""
    rng = np.random.default_rng(6)
    for _ in range(60):
        d = 3
        F = rng.standard_normal((d, d)) * 10.0 ** rng.uniform(-3, 3, (d, 1))
        x = rng.standard_normal(d)
        mu = np.abs(rng.standard_normal(d)) * 10.0 ** rng.uniform(-3, 3, d)
        # Slack just large enough to be provably feasible; x is then almost F' mu / M.
        offset = -(F @ x) + 1e-13 * (np.abs(F) @ np.abs(x))
        side = SideConstraints(F, offset, [("nonneg", d)])
        problem = Problem(
            Rows(np.zeros((1, d))), Losses([1.0], 0.0, 0.0, 0.0, 0.0), Quadratic(np.ones(d)),
            x * 0.0, side=side,
        )
        problem = replace(problem, linear=F.T @ mu - x)
        point = reference_point(problem, x, np.zeros(1), mu)
        assert point.feasible
        rows, f = [exact(row) for row in F], exact(offset)
        pushed = Exact(problem)
        pushed.linear = [
            q - dot(list(column), exact(mu))
            for q, column in zip(pushed.linear, zip(*rows, strict=True), strict=True)
        ]
        slack = [dot(row, exact(x)) + value for row, value in zip(rows, f, strict=True)]
        true = pushed.gap(exact(x), [Fraction(0)]) + dot(exact(mu), slack)
        assert Fraction(point.gap) >= true
        assert Fraction(certify(problem, x, np.zeros(1), mu).gap) >= true
        dual = pushed.dual_point(exact(x), [Fraction(0)])
        off = [a - b for a, b in zip(exact(point.x_theta), dual, strict=True)]
        assert Fraction(point.dual_error) ** 2 >= dot(off, off)


def test_a_point_outside_its_side_constraints_is_not_called_feasible() -> None:
    """On the wrong side of an inequality, or of a cone that cannot be checked for certain."""
    problem = boxed(1.0)
    assert reference_point(problem, np.zeros(problem.d)).feasible
    assert not reference_point(problem, np.full(problem.d, 1.0)).feasible
    assert not reference_point(problem, np.full(problem.d, 1e-3)).feasible


# -- in the certificate -------------------------------------------------------------------------


def pinned() -> tuple[Problem, np.ndarray, np.ndarray, np.ndarray]:
    """One hinge term that wants x1 large, ``x1 <= 1/4`` and ``x2 = 1``; optimum by hand.

    minimise 1/2 |x|^2 + max(0, 1 - x1): without the bound x1 = 1; with it x = (1/4, 1),
    theta = -1, multiplier of 1/4 - x1 >= 0 equal to 3/4, of x2 - 1 = 0 equal to 1.
    """
    side = SideConstraints(
        sp.csr_matrix([[-1.0, 0.0], [0.0, 1.0]]), [0.25, -1.0], [("nonneg", 1), ("zero", 1)]
    )
    problem = Problem(
        Rows([[1.0, 0.0]]), Losses([1.0], 0.0, 0.0, -1.0, 0.0), Quadratic([1.0, 1.0]),
        np.zeros(2), side=side,
    )
    return problem, np.array([0.25, 1.0]), np.array([-1.0]), np.array([0.75, 1.0])


def test_side_constraints_are_part_of_the_proof() -> None:
    """Right multipliers certify; wrong ones, missing ones and a violated constraint do not."""
    problem, x, theta, mu = pinned()
    assert certify(problem, x, theta, mu, tol=1e-9).ok
    assert certify(problem, x, theta, mu, tol=1e-9).gap <= 1e-13
    for wrong in (mu + np.array([0.1, 0.0]), mu - np.array([0.0, 0.1]), None):
        assert not certify(problem, x, theta, wrong, tol=1e-9).ok
    negative = certify(problem, x, theta, [-0.75, 1.0], tol=0.5)
    assert not negative.ok
    assert "dual cone" in negative.reason
    for moved in ([0.25 + 1e-3, 1.0], [0.25, 1.0 + 1e-3]):
        outside = certify(problem, moved, theta, mu, tol=1e-4)
        assert not outside.ok
    far = certify(problem, [0.25, 1.0 + 1e-3], theta, mu, tol=0.2)
    assert far.violation == pytest.approx(1e-3)


def test_violated_constraints_are_named() -> None:
    """A point that is optimal but for its violation is refused because of it."""
    problem, x, theta, mu = pinned()
    assert problem.side is not None
    tight = replace(problem, side=SideConstraints(problem.side.matrix, [0.2499, -1.0],
                                                  problem.side.dims))
    proof = certify(tight, x, theta, mu, tol=1e-5)
    assert not proof.ok
    loose = certify(tight, x, theta, mu, tol=1e-2)
    assert loose.violation == pytest.approx(1e-4)
    free = certify(problem, [1.0, 1.0], theta, [0.0, 1.0], tol=1e-2)  # as if x1 <= 1/4 were not
    assert free.gap <= 1e-13
    assert not free.ok
    assert "side constraints" in free.reason


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_multipliers_that_are_no_numbers_are_refused(bad: float) -> None:
    """NaN or infinity among the multipliers is refused like any other."""
    problem, x, theta, mu = pinned()
    mu[0] = bad
    proof = certify(problem, x, theta, mu, tol=0.5)
    assert not proof.ok


def test_multipliers_of_a_wrong_shape_are_an_error() -> None:
    """Their number is the number of constraint rows."""
    problem, x, theta, mu = pinned()
    with pytest.raises(InvalidInput, match="multipliers"):
        certify(problem, x, theta, mu[:1])


def test_multipliers_a_little_outside_the_dual_cone_prove_nothing() -> None:
    """A negative multiplier of 1e-6 on a slack of 1000 may not pay for another one's gap.

    minimise 1/2 |x|^2 + 1000 x2 + 1 with x1 >= -1000, x2 >= 0: optimum x = 0, value 1.
    """
    side = SideConstraints(np.eye(2), [1e3, 0.0], [("nonneg", 2)])
    problem = Problem(
        Rows(np.zeros((1, 2))), Losses([0.0], 0.0, 0.0, 0.0, 0.0), Quadratic([1.0, 1.0]),
        np.array([0.0, 1e3]), 1.0, side=side,
    )
    x2 = 1e-6
    mu2 = 1e3 + x2
    # mu1 = x1 cancels the complementarity of the second row: mu1 (mu1 + 1000) = -mu2 x2.
    mu1 = -500.0 + float(np.sqrt(250000.0 - mu2 * x2))
    x, mu = np.array([mu1, x2]), np.array([mu1, mu2])
    off = problem.primal(x) - 1.0
    assert off > 9e-4
    proof = certify(problem, x, np.zeros(1), mu, tol=1e-5)
    assert not proof.ok
    assert proof.gap >= off * (1 - 1e-9)
