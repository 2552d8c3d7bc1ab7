"""What a screening remembers: proofs that only grow, and guesses that never become proofs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from strategies import Case, build, pieces_at, reference

from cvxscreen.bounds import BOUNDS
from cvxscreen.core.duality import reference_point
from cvxscreen.core.losses import Losses, Piece
from cvxscreen.core.problem import Problem
from cvxscreen.errors import UnsafeEvidence
from cvxscreen.screening.reduction import Prediction, Screening, Verdict, judge


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
