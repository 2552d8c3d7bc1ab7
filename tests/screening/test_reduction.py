"""Reducing by a selection and lifting back: the identities that make a reduced problem exact."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from rational import Fraction
from strategies import CASES, LOSSES, Case, build, pieces_at, reference, solved_floats, some

from cvxscreen.core.duality import reference_point, rescaled_point
from cvxscreen.core.losses import Piece
from cvxscreen.core.problem import Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.models.linear import regression
from cvxscreen.screening.reduction import FOLD_LIMIT, Screening, Selection

CURVED = ("smoothed_hinge", "squared_hinge", "smoothed_epsilon", "huber")


@pytest.mark.parametrize("loss", LOSSES)
def test_the_reduced_optimum_is_the_full_one(loss: str) -> None:
    """Same minimiser, value (constants included) and dual variables, to solver accuracy.

    With an intercept the reduced problem can be flat in it, so only its value is compared.
    """
    for case in (case for case in CASES[::2] if case.loss == loss and case.data != "scaled"):
        ref = reference(case)
        selection = some(ref, case.seed).folded(ref.problem)
        reduced = selection.reduce(ref.problem)
        x, theta_kept = solved_floats(reduced)
        value = float(ref.truth.value) if ref.truth else np.nan
        # Constants of discarded terms cancel: rounding at the size of P(0).
        size = abs(ref.problem.primal(np.zeros(ref.problem.d)))
        assert abs(reduced.primal(x) - value) <= 1e-10 * size
        if case.intercept:
            continue
        assert abs(ref.problem.primal(x) - value) <= 1e-10 * size
        lifted, theta = selection.lift(ref.problem, reduced, x, theta_kept)
        np.testing.assert_array_equal(lifted, x)
        np.testing.assert_array_equal(theta[selection.kept], theta_kept)
        full = reference_point(ref.problem, x, theta)
        assert full.gap <= 1e-9 * size


@pytest.mark.parametrize("loss", LOSSES)
def test_values_and_gaps_agree_where_the_selection_holds(loss: str) -> None:
    """Near the optimum reduced and full objective are equal, and so are the duality gaps."""
    rng, compared = np.random.default_rng(2), 0
    for case in (case for case in CASES[1::3] if case.loss == loss and not case.intercept):
        if case.data == "scaled":
            continue  # a folded matrix of condition 1e12 makes the reduced gap's bound lax
        ref = reference(case)
        problem, selection = ref.problem, some(ref, 1)
        reduced = selection.reduce(problem)
        x = ref.x * (1 + 1e-9 * rng.standard_normal(problem.d))
        if (problem.losses.piece_within(*2 * (problem.design.forward(x),))
                != selection.codes)[selection.codes >= 0].any():
            continue
        size = abs(problem.primal(np.zeros(problem.d)))
        assert abs(reduced.primal(x) - problem.primal(x)) <= 1e-12 * size
        theta_kept = (1 - 1e-6) * ref.theta[selection.kept]
        small = reference_point(reduced, x, theta_kept)
        lifted, theta = selection.lift(problem, reduced, x, theta_kept)
        large = reference_point(problem, lifted, theta)
        there = problem.design.forward(small.x_theta)
        codes = problem.losses.piece_within(there, there)
        curved = np.isin(selection.codes, (Piece.LEFT, Piece.RIGHT))
        # Curved terms take their slope at x_theta, so their piece has to hold there, too.
        if (codes == selection.codes)[curved].all():
            assert large.gap == pytest.approx(small.gap, rel=1e-6, abs=1e-12 * size)
            compared += 1
    assert compared >= 3


@pytest.mark.parametrize("loss", CURVED)
def test_folded_pieces_become_part_of_the_quadratic_term(loss: str) -> None:
    """With every term fixed the problem is a linear system; its solution is the full optimum."""
    for case in (case for case in CASES if case.loss == loss and not case.intercept):
        ref = reference(case)
        codes = pieces_at(ref)
        if (codes < 0).any() or not np.isin(codes, (Piece.LEFT, Piece.RIGHT)).any():
            continue
        reduced = Selection(codes).reduce(ref.problem)
        assert reduced.n == 0
        assert reduced.quadratic.matrix is not None
        x, theta_kept = solved_floats(reduced)
        assert theta_kept.shape == (0,)
        size = np.linalg.norm(ref.x * np.sqrt(ref.problem.quadratic.diagonal))
        assert ref.problem.quadratic.norm(x - ref.x) <= 1e-6 * size + 1e-300
        _, theta = Selection(codes).lift(ref.problem, reduced, x, theta_kept)
        np.testing.assert_allclose(
            theta, ref.theta, atol=1e-6 * np.abs(ref.theta).max() + 1e-300
        )


def test_everything_fixed_on_linear_pieces() -> None:
    """n = 0 is left and the minimiser is ``-M^-1 q``, exactly the lifted dual's point."""
    ref = reference(Case("hinge", C=2.0**-12))
    codes = pieces_at(ref)
    assert (codes == Piece.LOW).all()
    reduced = Selection(codes).reduce(ref.problem)
    assert (reduced.n, reduced.d) == (0, ref.problem.d)
    x, theta_kept = solved_floats(reduced)
    np.testing.assert_allclose(x, ref.x, rtol=1e-12)
    _, theta = Selection(codes).lift(ref.problem, reduced, x, theta_kept)
    np.testing.assert_array_equal(theta, ref.problem.losses.lo)


def test_reducing_by_nothing_is_the_same_object() -> None:
    """Nothing selected, nothing built."""
    problem = build(Case("hinge"))
    nothing = Selection(np.full(problem.n, -1, dtype=np.int8))
    assert nothing.reduce(problem) is problem
    assert Screening.empty(problem).reduce() is problem
    assert nothing.folded(problem) is nothing


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("intercept", [False, True])
def test_reducing_twice_is_reducing_once_by_the_union(loss: str, intercept: bool) -> None:
    """Quadratic and linear terms, constant and kept rows agree."""
    ref = reference(Case(loss, intercept, "plain", "csr64", weighted=True))
    problem = ref.problem
    both = some(ref, 3).folded(problem)
    first = both.codes.copy()
    first[::2] = -1
    once = both.reduce(problem)
    middle = Selection(first)
    twice = Selection(both.codes[middle.kept]).reduce(middle.reduce(problem))
    np.testing.assert_allclose(twice.linear, once.linear, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(twice.quadratic.dense(), once.quadratic.dense(), rtol=1e-12)
    assert twice.constant == pytest.approx(once.constant, rel=1e-12, abs=1e-14)
    np.testing.assert_array_equal(twice.design.dense(), once.design.dense())
    np.testing.assert_array_equal(twice.losses.lo, once.losses.lo)
    # What is charged for rounding adds up; it does not explode.
    assert 0.1 * once.drift <= twice.drift <= 10 * once.drift


def test_a_reduced_problem_has_the_norms_of_its_rows() -> None:
    """Cached norms that travel along are those computed anew."""
    for loss in ("hinge", "squared_hinge"):
        for warm in (False, True):
            ref = reference(Case(loss, n=20))
            problem = replace(ref.problem)
            if warm:
                for name in ("norms", "sizes", "rounding_norms", "free_columns"):
                    getattr(problem, name)
            reduced = some(ref, 4).reduce(problem)
            fresh = replace(reduced)
            for name in ("norms", "sizes", "rounding_norms", "free_columns"):
                np.testing.assert_allclose(
                    getattr(reduced, name), getattr(fresh, name), rtol=1e-12
                )


def test_the_problem_is_not_changed_by_reducing() -> None:
    """Arrays of the full problem hold the same numbers before and after."""
    ref = reference(Case("smoothed_hinge", data="scaled", storage="csr32"))
    problem = ref.problem
    before = (problem.design.dense(), problem.linear.copy(), problem.quadratic.dense(),
              problem.losses.b.copy(), problem.constant)
    selection = some(ref, 5)
    reduced = selection.reduce(problem)
    x, theta_kept = solved_floats(reduced)
    kept = theta_kept.copy()
    selection.lift(problem, reduced, x, theta_kept)
    np.testing.assert_array_equal(theta_kept, kept)
    after = (problem.design.dense(), problem.linear, problem.quadratic.dense(),
             problem.losses.b, problem.constant)
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)


def test_folding_is_left_out_where_it_does_not_pay() -> None:
    """Curved pieces stay when a coordinate is free or there are many coordinates."""
    ref = reference(Case("squared_hinge", intercept=True))
    codes = pieces_at(ref)
    folded = Selection(codes).folded(ref.problem)
    assert not np.isin(folded.codes, (Piece.LEFT, Piece.RIGHT)).any()
    np.testing.assert_array_equal(folded.codes == Piece.ZERO, codes == Piece.ZERO)
    rng = np.random.default_rng(1)
    wide = regression(rng.standard_normal((5, FOLD_LIMIT + 1)), rng.standard_normal(5),
                      loss="huber")
    bowl = Selection(np.full(5, Piece.LEFT, dtype=np.int8))
    assert (bowl.folded(wide).codes == Piece.UNDECIDED).all()


@pytest.mark.parametrize("loss", CURVED)
def test_beside_a_free_coordinate_parabolas_fold_for_another_solver(loss: str) -> None:
    """With all that is on a parabola folded the intercept is held, and the optimum is the same."""
    compared = 0
    for case in (case for case in CASES if case.loss == loss and case.intercept):
        if case.data == "scaled":
            continue
        ref = reference(case)
        problem, codes = ref.problem, pieces_at(ref)
        selection = Selection(codes).folded(problem, written=True)
        if not np.isin(selection.codes, (Piece.LEFT, Piece.RIGHT)).any():
            continue
        assert not selection.left_free(problem).any()
        reduced = selection.reduce(problem)
        assert reduced.n == int((codes < 0).sum())
        assert not reduced.quadratic.free.any()
        x, theta_kept = solved_floats(reduced)
        size = abs(problem.primal(np.zeros(problem.d)))
        value = float(ref.truth.value) if ref.truth else np.nan
        assert abs(problem.primal(x) - value) <= 1e-9 * size
        full = reference_point(problem, *selection.lift(problem, reduced, x, theta_kept))
        assert full.gap <= 1e-8 * size
        compared += 1
    assert compared >= 2


@pytest.mark.parametrize("loss", CURVED)
def test_slopes_beside_a_part_that_the_reduced_problem_does_not_tell(loss: str) -> None:
    """A linear cost that only the solver knew: slopes of folded terms are those at its answer."""
    compared = 0
    for case in (case for case in CASES if case.loss == loss and not case.intercept):
        if case.data == "scaled":
            continue
        alone = build(case)
        pull = 0.3 * np.random.default_rng(3).standard_normal(alone.d) * alone.norms.mean()
        x, theta = solved_floats(replace(alone, linear=alone.linear + pull))
        margins = alone.design.forward(x)
        selection = Selection(alone.losses.piece_within(margins, margins)).folded(alone)
        if not np.isin(selection.codes, (Piece.LEFT, Piece.RIGHT)).any():
            continue
        reduced = selection.reduce(alone)
        lifted = selection.lift(alone, reduced, x, theta[selection.kept], beside=True)[1]
        np.testing.assert_allclose(lifted, theta, atol=1e-6 * np.abs(theta).max())
        compared += 1
    assert compared >= 2


def test_what_no_parabola_touches_is_left_free() -> None:
    """Of two intercepts, one a group's, only that one is held whose terms are folded."""
    rng = np.random.default_rng(5)
    group = np.repeat([1.0, 0.0], 10)
    rows = np.column_stack([rng.normal(size=(20, 2)), group, 1.0 - group])
    ref = regression(rows, rng.normal(size=20), loss="huber")
    problem = replace(ref, quadratic=Quadratic(np.array([1.0, 1.0, 0.0, 0.0])))
    codes = np.full(20, Piece.UNDECIDED, dtype=np.int8)
    codes[:10] = Piece.LEFT
    folded = Selection(codes).folded(problem, written=True)
    np.testing.assert_array_equal(folded.codes, codes)
    np.testing.assert_array_equal(folded.left_free(problem), [False, False, False, True])


@pytest.mark.parametrize("loss", CURVED)
def test_badly_scaled_data_can_be_folded(loss: str) -> None:
    """Features of 1e-6 to 1e6 and C = 1e6: the folded matrix is positive definite all the same."""
    base = build(Case(loss, data="scaled", n=40, d=6, C=1e6))
    first, second, _, _ = base.losses.knots
    t = second - 0.5 * np.minimum(second - first, 1.0)
    selection = Selection(base.losses.piece_within(t, t))
    assert (selection.codes == Piece.LEFT).all()
    reduced = selection.reduce(base)
    assert reduced.quadratic.floor > 0


def test_a_kernel_has_no_matrix_to_fold_into(rng: np.random.Generator) -> None:
    problem = regression(rng.normal(size=(30, 2)), rng.normal(size=30), loss="huber", kernel="rbf")
    codes = np.full(30, Piece.UNDECIDED, dtype=np.int8)
    codes[:5], codes[5:10] = Piece.LEFT, Piece.LOW
    kept = Selection(codes).folded(problem).codes
    assert (kept[:5] == Piece.UNDECIDED).all()
    assert (kept[5:10] == Piece.LOW).all()


def test_a_selection_of_another_size_is_refused() -> None:
    """A selection names every term of its problem."""
    problem = build(Case("hinge"))
    with pytest.raises(InvalidInput, match="selection"):
        Selection(np.full(problem.n + 1, -1, dtype=np.int8)).reduce(problem)


@pytest.mark.parametrize("storage", ["dense64", "csr32"])
@pytest.mark.parametrize("loss", ["hinge", "epsilon", "absolute"])
def test_reducing_near_a_known_point(loss: str, storage: str) -> None:
    """The linear term from a point's own ``A' theta`` is within the drift of the exact one."""
    problem = build(Case(loss, storage=storage, n=200, d=5))
    rng = np.random.default_rng(3)
    known = reference_point(problem.with_(C=0.7 * problem.C), 0.3 * rng.standard_normal(problem.d))
    point = rescaled_point(problem, known)
    codes = problem.losses.piece_within(point.margins, point.margins)
    codes[rng.permutation(problem.n)[:20]] = Piece.UNDECIDED
    selection = Selection(codes)
    reduced, plain = selection.reduce(problem, point), selection.reduce(problem)
    assert (reduced.linear != plain.linear).any()  # it did take the short way
    rows, force = problem.design.dense(), problem.losses.piece_slope(codes)
    for made in (reduced, plain):
        for j in range(problem.d):
            truth = sum(
                (Fraction(float(a)) * Fraction(float(f))
                 for a, f in zip(rows[:, j], force, strict=True)), Fraction(0)
            )
            assert abs(Fraction(float(made.linear[j])) - truth) <= Fraction(made.drift)
    other = reference_point(problem.with_(C=3.0), point.x)
    np.testing.assert_array_equal(selection.reduce(problem, other).linear, plain.linear)


def test_a_near_point_of_other_data_is_not_used(rng: np.random.Generator) -> None:
    """Its ``A' theta`` belongs to other rows of the same shape."""
    ref = reference(Case("hinge"))
    problem = ref.problem
    other = replace(problem, design=Rows(rng.standard_normal((problem.n, problem.d))))
    near = reference_point(other, ref.x, ref.theta)
    codes = problem.losses.piece_within(ref.margins - 1e-6, ref.margins + 1e-6)
    plain, given = Selection(codes).reduce(problem), Selection(codes).reduce(problem, near)
    np.testing.assert_array_equal(plain.linear, given.linear)
