"""Pieces of the losses: breakpoints, which interval lies in which, how they are counted."""

from __future__ import annotations

import numpy as np
import pytest
from exact import Fraction, terms
from hypothesis import given, strategies as st
from strategies import arguments, loss_rows

from cvxscreen.core.losses import Losses, Piece

INF = np.inf
FACES = {
    "hinge": ((1.0, 0.0, 0.0, -2.0, 0.0), [Piece.LOW, Piece.ZERO]),
    "smoothed hinge": ((1.0, 0.0, 0.25, -2.0, 0.0), [Piece.LOW, Piece.LEFT, Piece.ZERO]),
    "squared hinge": ((1.0, 0.0, 0.5, -INF, 0.0), [Piece.LEFT, Piece.ZERO]),
    "absolute": ((0.5, 0.0, 0.0, -2.0, 2.0), [Piece.LOW, Piece.HIGH]),
    "pinball": ((0.5, 0.0, 0.0, -0.5, 1.5), [Piece.LOW, Piece.HIGH]),
    "insensitive": ((0.5, 0.25, 0.0, -2.0, 2.0), [Piece.LOW, Piece.ZERO, Piece.HIGH]),
    "smoothed insensitive": (
        (0.5, 0.25, 0.25, -2.0, 2.0),
        [Piece.LOW, Piece.LEFT, Piece.ZERO, Piece.RIGHT, Piece.HIGH],
    ),
    "huber": ((0.5, 0.0, 0.5, -2.0, 2.0), [Piece.LOW, Piece.LEFT, Piece.HIGH]),
    "nothing": ((0.0, 0.0, 0.0, 0.0, 0.0), [Piece.ZERO]),
}


def row(name: str, n: int = 1) -> Losses:
    b, e, q, lo, hi = FACES[name][0]
    return Losses(np.full(n, b), e, q, lo, hi)


def formula(f: Losses, piece: Piece, t: np.ndarray) -> np.ndarray:
    """The loss extended from one piece to the whole line."""
    if piece == Piece.ZERO:
        return np.zeros_like(t)
    if piece in (Piece.LEFT, Piece.RIGHT):
        centre = f.piece_centre(np.array([piece], dtype=np.int8))[0]
        return (t - centre) ** 2 / (2 * f.q[0])
    slope = f.piece_slope(np.array([piece], dtype=np.int8))[0]
    return slope * t - f.conjugate(slope)[0]


@pytest.mark.parametrize("name", FACES)
def test_faces_are_numbered_by_increasing_argument(name: str) -> None:
    """Hinge 0 linear, 1 zero; LAD 0, 1; smoothed insensitive 0 to 4; and so on."""
    f, faces = row(name), FACES[name][1]
    assert [Piece(p) for p in np.flatnonzero(f.exists[0])] == faces
    for number, piece in enumerate(faces):
        assert f.piece_index(np.array([piece], dtype=np.int8))[0] == number
    assert f.piece_index(np.array([Piece.UNDECIDED], dtype=np.int8))[0] == -1


@pytest.mark.parametrize("name", FACES)
def test_an_interval_is_on_a_piece_iff_the_loss_equals_it_there(name: str) -> None:
    """Brute force: all short and long intervals of a grid, each sampled."""
    faces = FACES[name][1]
    ends = np.linspace(-3.0, 3.0, 49)  # every finite breakpoint of the table lies on this grid
    low, high = (side.ravel() for side in np.meshgrid(ends, ends))
    low, high = low[low <= high], high[low <= high]
    codes, single = row(name, len(low)).piece_within(low, high), row(name)
    t = np.linspace(low, high, 13)
    value = row(name, t.size).value(t.ravel()).reshape(t.shape)
    holds = {p: (np.abs(formula(single, p, t) - value) <= 1e-12).all(axis=0) for p in faces}
    for piece in np.unique(codes[codes >= 0]):
        assert holds[Piece(piece)][codes == piece].all()
    # Undecided: no piece holds, or an end sits at a breakpoint, where rounding is charged.
    knots = np.array([float(k[0]) for k in single.knots])
    away = np.abs(np.array([low, high])[..., None] - knots).min(axis=(0, 2), initial=np.inf)
    assert not (np.any(list(holds.values()), axis=0) & (away >= 1e-9))[codes < 0].any()


@given(st.data())
def test_a_decision_holds_exactly(data: st.DataObject) -> None:
    """Whatever interval is decided lies within the piece in rational arithmetic."""
    f = data.draw(loss_rows())
    ends = sorted([data.draw(arguments(f)), data.draw(arguments(f))])
    code = int(f.piece_within(*ends)[0])
    if code >= 0:
        first, last = terms(f)[0].ends(code)
        assert first <= Fraction(ends[0])
        assert Fraction(ends[1]) <= last


@pytest.mark.parametrize("name", sorted(set(FACES) - {"hinge", "absolute", "pinball", "nothing"}))
def test_a_margin_at_a_rounded_knot_is_not_decided_wrongly(
    name: str, rng: np.random.Generator
) -> None:
    """Knots are sums and products, rounded either way: intervals that end at one, and beside it."""
    for scale in rng.uniform(0.5, 2.0, (100, 5)):
        f = Losses([FACES[name][0][0] * scale[0]], *(np.array(FACES[name][0][1:]) * scale[1:]))
        term = terms(f)[0]
        for knot in (float(k[0]) for k in f.knots if np.isfinite(k[0])):
            for end in (np.nextafter(knot, -9.0), knot, np.nextafter(knot, 9.0)):
                for low, high in ((end - 0.01, end), (end, end + 0.01)):
                    code = int(f.piece_within(low, high)[0])
                    if code >= 0:
                        first, last = term.ends(code)
                        assert first <= Fraction(low)
                        assert Fraction(high) <= last


@given(st.data())
def test_well_inside_a_piece_is_decided(data: st.DataObject) -> None:
    """An interval that keeps a relative distance of 1e-14 from every breakpoint is decided."""
    f = data.draw(loss_rows())
    piece = data.draw(st.sampled_from(list(np.flatnonzero(f.exists[0]))))
    first, last = (float(end) for end in terms(f)[0].ends(int(piece)))
    size = sum(abs(float(k[0])) for k in f.knots if np.isfinite(k[0])) + 1.0
    low = max(first + 1e-14 * size, -1e5) if np.isfinite(first) else -1e5
    high = min(last - 1e-14 * size, 1e5) if np.isfinite(last) else 1e5
    if low < high:
        assert f.piece_within(low, high)[0] == piece


@pytest.mark.parametrize("name", ["hinge", "absolute", "pinball", "insensitive"])
def test_a_kink_belongs_to_no_piece(name: str) -> None:
    """Comparisons at a kink are strict: both neighbours are possible there."""
    f, faces = row(name), FACES[name][1]
    for knot in {float(f.knots[1][0]), float(f.knots[2][0])}:
        assert f.piece_within(knot, knot)[0] == Piece.UNDECIDED
        assert f.piece_within(knot - 1.0, knot)[0] == Piece.UNDECIDED
        assert f.piece_within(knot, knot + 1.0)[0] == Piece.UNDECIDED
    assert f.piece_within(-INF, float(f.knots[1][0]) - 1e-9)[0] == faces[0]
    assert f.piece_within(float(f.knots[2][0]) + 1e-9, INF)[0] == faces[-1]


@pytest.mark.parametrize(
    "name", ["smoothed hinge", "squared hinge", "smoothed insensitive", "huber"]
)
def test_smooth_joins_do_not_block_their_neighbours(name: str) -> None:
    """An interval that ends a rounding away from a smooth join is decided."""
    f = row(name)
    for knot in (float(k[0]) for k in f.knots):
        if not np.isfinite(knot) or (name == "huber" and knot == float(f.b[0])):
            continue
        close = 4e-15
        assert f.piece_within(knot - 0.05, knot - close)[0] >= 0
        assert f.piece_within(knot + close, knot + 0.05)[0] >= 0


def test_a_join_without_rounding_is_on_both_sides() -> None:
    """Squared hinge with its join at 0: the breakpoint is exact, the comparison non-strict."""
    f = Losses([0.0], 0.0, 1.0, -INF, 0.0)
    assert f.piece_within(-1.0, 0.0)[0] == Piece.LEFT
    assert f.piece_within(0.0, 1.0)[0] == Piece.ZERO


@pytest.mark.parametrize("name", FACES)
def test_the_whole_line_decides_only_a_loss_of_one_piece(name: str) -> None:
    """No information, no decision; a term of weight 0 is on its only piece from the start."""
    code = row(name).piece_within(-INF, INF)[0]
    assert code == (Piece.ZERO if name == "nothing" else Piece.UNDECIDED)


@pytest.mark.parametrize("name", FACES)
def test_kink_distance_is_the_distance_to_a_change_of_piece(name: str) -> None:
    """Moving by less keeps the piece, moving past it changes the piece on one side."""
    t = np.linspace(-3.0, 3.0, 121) + 0.003
    f = row(name, len(t))
    distance = f.kink_distance(t)
    here = f.piece_within(t, t)
    near = np.where(np.isfinite(distance), 0.999 * distance, 1.0)
    np.testing.assert_array_equal(f.piece_within(t - near, t + near), here)
    if name == "nothing":
        assert np.isinf(distance).all()
        return
    far = 1.001 * distance + 1e-9
    left, right = f.piece_within(t - far, t - far), f.piece_within(t + far, t + far)
    assert ((left != here) | (right != here)).all()
