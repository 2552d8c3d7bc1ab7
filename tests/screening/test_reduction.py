"""Screenings: what they remember, and the identities that make a problem they reduce exact."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from exact import Exact, Fraction, Vector, dot, exact, solve as solve_exactly
from strategies import (
    CASES,
    CLASSIFICATION,
    LOSSES,
    Case,
    array,
    build,
    crossed,
    pieces_at,
    reference,
    solved_floats,
    some,
)

from cvxscreen.bounds import BOUNDS
from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.duality import reference_point, rescaled_point
from cvxscreen.core.losses import Losses, Piece
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput, UnsafeEvidence
from cvxscreen.models.linear import regression
from cvxscreen.screening.reduction import (
    FOLD_LIMIT,
    Prediction,
    Screening,
    Selection,
    Verdict,
    judge,
)

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


# What a screening remembers: proofs that only grow, and guesses that never become proofs.

def verdict(problem: Problem, codes: np.ndarray) -> Verdict:
    return Verdict(problem.losses, codes.astype(np.int8), "by hand", 0.5, 0.25)


def test_tightening_only_adds() -> None:
    """Proven terms stay proven whatever later verdicts leave open; evidence is listed."""
    ref = reference(Case("hinge"))
    right = pieces_at(ref)
    first, second = right.copy(), right.copy()
    first[::2], second[::3] = -1, -1
    start = Screening.empty(ref.problem)
    one = start.tighten(verdict(ref.problem, first))
    two = one.tighten(verdict(ref.problem, second))
    again = two.tighten(verdict(ref.problem, np.full(ref.problem.n, -1)))
    assert not (start.codes >= 0).any()
    np.testing.assert_array_equal(one.codes, first)
    np.testing.assert_array_equal(two.codes, np.where(first >= 0, first, second))
    np.testing.assert_array_equal(again.codes, two.codes)
    assert [e.new for e in again.evidence] == [
        int((first >= 0).sum()), int(((second >= 0) & (first < 0)).sum()), 0
    ]
    assert again.evidence[-1].decided == int((two.codes >= 0).sum())
    assert (again.evidence[0].bound, again.evidence[0].radius) == ("by hand", 0.5)


def test_tightening_some_terms_only() -> None:
    """A verdict about a reduced problem's terms is entered at their places."""
    problem = build(Case("hinge"))
    index = np.array([4, 1, 7])
    screening = Screening.empty(problem).tighten(
        verdict(problem, np.array([Piece.ZERO, -1, Piece.LOW])), index
    )
    assert screening.codes[4] == Piece.ZERO
    assert screening.codes[7] == Piece.LOW
    assert (screening.codes >= 0).sum() == 2


def one_after_the_other(row: tuple[float, ...], first: Piece, second: Piece) -> Screening:
    """The screening after a proof that term 3 is on one piece and then on the other."""
    base = build(Case("hinge"))
    problem = replace(base, losses=Losses(np.full(base.n, row[0]), *row[1:]))
    codes, found = np.full(base.n, -1), Screening.empty(problem)
    for piece in (first, second):
        codes[3] = piece
        found = found.tighten(verdict(problem, codes))
    return found


@pytest.mark.parametrize(
    ("row", "first", "second"),
    [
        ((1.0, 0.0, 0.0, -1.0, 0.0), Piece.LOW, Piece.ZERO),
        ((0.0, 0.0, 0.0, -1.0, 1.0), Piece.LOW, Piece.HIGH),
        ((0.0, 0.5, 0.0, -1.0, 1.0), Piece.ZERO, Piece.HIGH),
        ((0.0, 0.5, 0.5, -1.0, 1.0), Piece.LEFT, Piece.RIGHT),
        ((1.0, 0.0, 0.5, -1.0, 0.0), Piece.LOW, Piece.ZERO),
    ],
)
def test_contradictory_proofs_are_refused(
    row: tuple[float, ...], first: Piece, second: Piece
) -> None:
    """Two pieces that do not touch cannot both be proven: one of the proofs is wrong."""
    one_after_the_other(row, first, first)
    with pytest.raises(UnsafeEvidence, match="term 3"):
        one_after_the_other(row, first, second)


@pytest.mark.parametrize(
    ("row", "first", "second"),
    [
        ((1.0, 0.0, 0.5, -1.0, 0.0), Piece.LOW, Piece.LEFT),
        ((1.0, 0.0, 0.5, -1.0, 0.0), Piece.LEFT, Piece.ZERO),
        ((0.0, 0.5, 0.5, -1.0, 1.0), Piece.ZERO, Piece.RIGHT),
        ((0.0, 0.0, 0.5, -1.0, 1.0), Piece.LEFT, Piece.HIGH),
    ],
)
def test_a_smooth_join_may_be_on_both_sides(
    row: tuple[float, ...], first: Piece, second: Piece
) -> None:
    """A margin exactly at a smooth join is on both pieces; the first one stays."""
    assert one_after_the_other(row, first, second).codes[3] == first


def test_masks_and_indices_of_a_screening() -> None:
    """zero, linear, quadratic and undecided are a partition; `piece` counts existing faces."""
    ref = reference(Case("smoothed_hinge", n=60))
    point = reference_point(ref.problem, ref.x * (1 + 1e-6), ref.theta)
    seen = judge(ref.problem, BOUNDS["midpoint"](ref.problem, point))
    screening = Screening.empty(ref.problem).tighten(seen)
    for record in (seen, screening):
        total = record.zero.astype(int) + record.linear + record.quadratic + record.undecided
        assert (total == 1).all()
        np.testing.assert_array_equal(record.piece == 0, record.linear)
        np.testing.assert_array_equal(record.piece == 1, record.quadratic)
        np.testing.assert_array_equal(record.piece == 2, record.zero)
        assert record.zero.any()
        assert record.linear.any()
        assert str(record)
    assert not screening.dropped.any()
    assert screening.kept.all()


# -- predictions --------------------------------------------------------------------------------


def test_predictions_stay_beside_what_is_proven() -> None:
    """`beside` prefers proofs, changes neither, and a screening has no way to take a guess in."""
    ref = reference(Case("hinge"))
    problem, right = ref.problem, pieces_at(ref)
    proven = right.copy()
    proven[::2] = -1
    screening = Screening.empty(problem).tighten(verdict(problem, proven))
    guess = Prediction.from_margins(problem, -ref.margins + 2.0, 0.0)
    chosen = guess.beside(screening)
    np.testing.assert_array_equal(chosen.codes[proven >= 0], proven[proven >= 0])
    np.testing.assert_array_equal(screening.codes, proven)
    open_terms = (chosen.codes >= 0) & (proven < 0)
    assert open_terms.any()
    off = guess.refuted(problem, ref.margins, screening)
    assert not off[proven >= 0].any()
    assert off.any()
    with pytest.raises(AttributeError):
        screening.tighten(guess)  # type: ignore[arg-type]


def test_wider_predictions_predict_less() -> None:
    """Terms within the width of a kink, and the nearest ones asked for, are left alone."""
    ref = reference(Case("absolute", n=60))
    problem = ref.problem
    counts = []
    for width in (0.0, 0.01, 0.1, 1.0, 1e6):
        prediction = Prediction.from_margins(problem, ref.margins, width * problem.norms)
        near = problem.losses.kink_distance(ref.margins) <= width * problem.norms
        assert (prediction.selection.codes[near] < 0).all()
        counts.append(int((prediction.selection.codes >= 0).sum()))
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 0
    assert counts[0] > 40
    held = Prediction.from_margins(problem, ref.margins, 0.0, keep=50)
    assert (held.selection.codes >= 0).sum() <= 10


# Rounding through reductions: what a reduced problem charges bounds what was rounded.

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
