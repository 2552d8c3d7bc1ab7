"""Losses by inequality and by special case: values, conjugates, subgradients, Fenchel-Young."""

from __future__ import annotations

import numpy as np
import pytest
from exact import Fraction, terms
from hypothesis import given, strategies as st
from strategies import arguments, loss_rows, slopes

from cvxscreen.core.losses import Losses, Piece, lowest_kink
from cvxscreen.errors import InvalidInput

RNG = np.random.default_rng(7)
T = np.unique(
    np.concatenate([np.linspace(-4, 4, 161), RNG.normal(0, 3, 40), [1.0, 0.5, -1e6, 1e6]])
)
C, GAMMA, EPS, TAU, DELTA, Y = 1.75, 0.5, 0.3, 0.2, 0.8, 0.4


def relu(t: np.ndarray) -> np.ndarray:
    return np.maximum(t, 0.0)


def corner(u: np.ndarray, gamma: float) -> np.ndarray:
    """``u^2 / (2 gamma)`` up to gamma, then ``u - gamma / 2``; u >= 0."""
    return np.where(u <= gamma, u**2 / (2 * gamma), u - gamma / 2)


NAMED = {
    "hinge": ((1.0, 0.0, 0.0, -C, 0.0), lambda t: C * relu(1 - t)),
    "smoothed hinge": ((1.0, 0.0, GAMMA / C, -C, 0.0), lambda t: C * corner(relu(1 - t), GAMMA)),
    "squared hinge": ((1.0, 0.0, 1 / C, -np.inf, 0.0), lambda t: C / 2 * relu(1 - t) ** 2),
    "absolute": ((Y, 0.0, 0.0, -C, C), lambda t: C * np.abs(t - Y)),
    "pinball": (
        (Y, 0.0, 0.0, -C * TAU, C * (1 - TAU)),
        lambda t: C * np.where(t < Y, TAU * (Y - t), (1 - TAU) * (t - Y)),
    ),
    "insensitive": ((Y, EPS, 0.0, -C, C), lambda t: C * relu(np.abs(t - Y) - EPS)),
    "smoothed insensitive": (
        (Y, EPS, GAMMA / C, -C, C), lambda t: C * corner(relu(np.abs(t - Y) - EPS), GAMMA)
    ),
    "huber": (
        (Y, 0.0, 1 / C, -C * DELTA, C * DELTA),
        lambda t: C * np.where(
            np.abs(t - Y) <= DELTA, (t - Y) ** 2 / 2, DELTA * np.abs(t - Y) - DELTA**2 / 2
        ),
    ),
}


def row(name: str, n: int = 1) -> Losses:
    b, e, q, lo, hi = NAMED[name][0]
    return Losses(np.full(n, b), e, q, lo, hi)


def grid(f: Losses, points: int = 41) -> np.ndarray:
    """Slopes of the box of a single row, its ends and 0 included."""
    lo, hi = max(float(f.lo[0]), -50.0), min(float(f.hi[0]), 50.0)
    return np.unique(np.concatenate([np.linspace(lo, hi, points), [lo, 0.0, hi]]))


@pytest.mark.parametrize("name", NAMED)
def test_value_is_the_textbook_formula(name: str) -> None:
    """The table's value equals the loss written out by hand."""
    # Both sides round a few times at the size of the largest intermediate, C t^2 / 2 at most.
    value = row(name, len(T)).value(T)
    np.testing.assert_allclose(value, NAMED[name][1](T), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("name", NAMED)
def test_conjugate_is_the_supremum(name: str) -> None:
    """``f*(theta) = sup_t t theta - f(t)``, attained at a subgradient's argument."""
    f = row(name)
    wide = np.linspace(-300.0, 300.0, 120_001)
    values = NAMED[name][1](wide)
    step = wide[1] - wide[0]
    for theta in grid(f, 9):
        best = float(np.max(wide * theta - values))
        star = float(f.conjugate(theta)[0])
        assert best <= star + 1e-9 * (1 + abs(star))
        # A grid misses the maximiser by half a step: at most curvature C over two times its square.
        assert star - best <= C * step**2 + step * 2 * C


@pytest.mark.parametrize("name", NAMED)
def test_conjugate_is_infinite_outside_the_box(name: str) -> None:
    """One ulp beyond a finite end of the box there is no supremum."""
    f = row(name)
    for end, away in ((f.lo[0], -np.inf), (f.hi[0], np.inf)):
        if np.isfinite(end):
            assert np.isfinite(f.conjugate(end)[0])
            assert f.conjugate(np.nextafter(end, away))[0] == np.inf


@pytest.mark.parametrize("name", NAMED)
def test_subgradients_are_monotone_and_support_the_loss(name: str) -> None:
    """``low <= slope <= high``, non-decreasing in t, and ``f(s) >= f(t) + theta (s - t)``."""
    f = row(name, len(T))
    low, high = f.subgradient(T)
    slope = f.slope(T)
    assert (low <= slope).all()
    assert (slope <= high).all()
    assert (np.diff(low) >= 0).all()
    assert (np.diff(high) >= 0).all()
    assert (high[:-1] <= low[1:]).all()
    value = f.value(T)
    for theta in (low, slope, high):
        rise = theta[:, None] * (T[None, :] - T[:, None])
        # Rounding at the size of the two summands of the tangent.
        size = 1 + np.abs(value[:, None]) + np.abs(rise)
        assert (value[None, :] >= value[:, None] + rise - 1e-15 * size).all()


@given(st.data())
def test_fenchel_young_is_nonnegative_and_exact(data: st.DataObject) -> None:
    """Never negative, right to rounding, and zero exactly on the subdifferential."""
    f = data.draw(loss_rows())
    t, theta = data.draw(arguments(f)), data.draw(slopes(f))
    [g] = terms(f)
    true = g.fenchel_young(Fraction(t), Fraction(theta))
    computed = float(f.fenchel_young(t, theta)[0])
    assert true >= 0
    assert computed >= 0
    s = float(f.slope(t)[0])
    # Backward stable in z = t - b and in the slopes, each entering once.
    size = (abs(t) + abs(float(f.b[0])) + float(f.e[0])) * abs(s - theta)
    size += float(f.q[0]) * (s**2 + theta**2)
    assert abs(computed - float(true)) <= 16 * 2.0**-53 * size + 1e-300
    assert f.fenchel_young(t, s)[0] == 0
    for end in (float(side[0]) for side in f.subgradient(t)):
        assert f.fenchel_young(t, end)[0] <= 8 * 2.0**-53 * (
            (abs(t) + abs(float(f.b[0])) + float(f.e[0])) * abs(end) + float(f.q[0]) * end**2
        )


@given(st.data())
def test_fenchel_young_above_bounds_the_whole_interval(data: st.DataObject) -> None:
    """The bound holds at every argument within the error, in exact arithmetic."""
    f = data.draw(loss_rows())
    t, theta = data.draw(arguments(f)), data.draw(slopes(f))
    error = data.draw(st.sampled_from([0.0, 2.0**-50, 1e-9, 1e-3, 1.0, 50.0])) * max(abs(t), 1.0)
    [g] = terms(f)
    bound = Fraction(float(f.fenchel_young_above(t, error, theta)[0]))
    for share in (Fraction(-1), Fraction(-1, 3), Fraction(0), Fraction(1, 2), Fraction(1)):
        argument = Fraction(t) + share * Fraction(error)
        assert g.fenchel_young(argument, Fraction(theta)) <= bound


def test_fenchel_young_above_charges_the_rounding_of_the_knot() -> None:
    """Next to ``b - e`` with b and e nearly equal, ``t - b`` is rounded by many ulp of t."""
    rng = np.random.default_rng(1)
    for _ in range(500):
        b = float(rng.uniform(1.0, 2.0))
        e = b * float(rng.uniform(0.9, 1.0))
        t = (b - e) + float(rng.integers(-4, 5)) * 2.0**-55
        for q in (0.0, 1e-3):
            f = Losses([b], e, q, -3.0, 5.0)
            [g] = terms(f)
            for theta in (-3.0, -1.0, 0.0, 5.0):
                for error in (0.0, 1e-300, 2.0**-60):
                    bound = Fraction(float(f.fenchel_young_above(t, error, theta)[0]))
                    assert g.fenchel_young(Fraction(t), Fraction(theta)) <= bound


@given(st.data())
def test_scaling_multiplies_values_and_slopes(data: st.DataObject) -> None:
    """``f.scaled(s)`` is ``s f``: values, slopes and conjugates, and scaling back returns."""
    f = data.draw(loss_rows())
    t, s = data.draw(arguments(f)), data.draw(st.sampled_from([2.0**-7, 0.5, 1.0, 4.0, 2.0**9]))
    g = f.scaled(s)
    # Powers of two only: nothing is rounded, up to the end of the range.
    assert g.value(t)[0] == s * f.value(t)[0]
    assert g.slope(t)[0] == s * f.slope(t)[0]
    theta = data.draw(slopes(f))
    assert g.conjugate(s * theta)[0] == s * f.conjugate(theta)[0]
    back = g.scaled(1 / s)
    assert all((getattr(back, k) == getattr(f, k)).all() for k in ("b", "e", "q", "lo", "hi"))
    assert g.factor_of(f) == s
    assert back.factor_of(g) == 1.0 / s
    assert not g.lo.flags.writeable


def test_losses_of_another_table_are_compared_number_by_number() -> None:
    """One that was scaled knows the table that it is a multiple of, and no other."""
    f, g = (Losses([1.0, 2.0], 0.0, 0.0, -1.0, [0.0, end]) for end in (1.0, 2.0))
    assert f.scaled(3.0).scaled(0.5).factor_of(f.scaled(2.0)) == 0.75
    assert f.scaled(3.0).factor_of(Losses(f.b, f.e, f.q, f.lo, f.hi)) == pytest.approx(3.0)
    assert f.scaled(3.0).factor_of(g) is None
    assert f.scaled(3.0).factor_of(g.scaled(3.0)) is None
    with np.errstate(over="ignore"), pytest.raises(InvalidInput, match="finite"):
        Losses([0.0], 0.0, 1e300, -1.0, 1.0).scaled(1e-300)


@given(st.data())
def test_proximal_slope_is_the_gradient_of_the_smoothed_loss(data: st.DataObject) -> None:
    """It solves its own optimality condition: theta in the subdifferential at the shifted point."""
    f = data.draw(loss_rows())
    t, theta0 = data.draw(arguments(f)), data.draw(slopes(f))
    weight = data.draw(st.sampled_from([1e-6, 0.1, 1.0, 1e3]))
    theta = float(f.proximal_slope(t, theta0, weight)[0])
    moved = t - weight * (theta - theta0)
    # theta is a subgradient at `moved`: the Fenchel-Young term vanishes up to rounding in z.
    size = (abs(t) + abs(float(f.b[0])) + float(f.e[0]) + weight * (abs(theta) + abs(theta0)))
    steepest = max(abs(theta), abs(theta0), float(f.hi[0]))
    if np.isfinite(f.lo[0]):
        steepest = max(steepest, -float(f.lo[0]))
    assert f.fenchel_young(moved, theta)[0] <= 1e-13 * size * steepest + 1e-300


def test_take_is_indexing() -> None:
    """Integer indices and masks pick rows; the result has its own read-only arrays."""
    f = Losses([0.0, 1.0, 2.0], 0.5, [1.0, 2.0, 0.0], -1.0, 2.0)
    assert len(f) == 3
    for index in (np.array([2, 0]), np.array([True, False, True])):
        g = f.take(index)
        for name in ("b", "e", "q", "lo", "hi"):
            np.testing.assert_array_equal(getattr(g, name), getattr(f, name)[index])
            assert not getattr(g, name).flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        f.b[0] = 5.0


def test_the_callers_arrays_are_copied() -> None:
    """Changing the array a table was made from does not change the table."""
    b = np.array([1.0, 2.0])
    f = Losses(b, 0.0, 0.0, -1.0, 1.0)
    b[0] = 9.0
    assert f.b[0] == 1.0


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ((np.nan, 0, 0, -1, 1), "finite"),
        ((np.inf, 0, 0, -1, 1), "finite"),
        ((0, -0.1, 0, -1, 1), "non-negative"),
        ((0, 0, -1.0, -1, 1), "non-negative"),
        ((0, 0, np.inf, -1, 1), "finite"),
        ((0, 0, 0, 0.5, 1), "lo <= 0 <= hi"),
        ((0, 0, 0, -1, -0.5), "lo <= 0 <= hi"),
        ((0, 0, 0, np.nan, 1), "lo <= 0 <= hi"),
        ((0, 0.1, 0, -np.inf, 1), "curvature"),
        ((0, 0.1, 0, -1, np.inf), "curvature"),
    ],
)
def test_rows_that_are_no_loss_are_refused(bad: tuple[float, ...], words: str) -> None:
    """Each broken number is refused with words that say which."""
    with pytest.raises(InvalidInput, match=words):
        Losses([bad[0], 0.0], *bad[1:])


def test_scaling_by_nothing_or_less_is_refused() -> None:
    """A factor that is not positive makes no loss, and says so without a warning."""
    f = Losses([0.0], 0.0, 1.0, -1.0, 1.0)
    for factor in (0.0, -1.0, np.nan):
        with pytest.raises(InvalidInput):
            f.scaled(factor)


def test_shapes_are_checked() -> None:
    """A matrix of rows or rows of different lengths are refused."""
    with pytest.raises(InvalidInput, match=r"`b` has shape \(2, 2\)"):
        Losses(np.zeros((2, 2)), 0.0, 0.0, -1.0, 1.0)
    with pytest.raises(ValueError):
        Losses([0.0, 1.0], [0.0, 1.0, 2.0], 0.0, -1.0, 1.0)


# Pieces of the losses: breakpoints, which interval lies in which, how they are counted.

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


def faced(name: str, n: int = 1) -> Losses:
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
    f, faces = faced(name), FACES[name][1]
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
    codes, single = faced(name, len(low)).piece_within(low, high), faced(name)
    t = np.linspace(low, high, 13)
    value = faced(name, t.size).value(t.ravel()).reshape(t.shape)
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
    f, faces = faced(name), FACES[name][1]
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
    f = faced(name)
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
    code = faced(name).piece_within(-INF, INF)[0]
    assert code == (Piece.ZERO if name == "nothing" else Piece.UNDECIDED)


@pytest.mark.parametrize("name", FACES)
def test_kink_distance_is_the_distance_to_a_change_of_piece(name: str) -> None:
    """Moving by less keeps the piece, moving past it changes the piece on one side."""
    t = np.linspace(-3.0, 3.0, 121) + 0.003
    f = faced(name, len(t))
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


def test_the_lowest_point_along_a_coordinate_is_one_of_the_kinks() -> None:
    """At any slope of the rest, as far as it is bounded; and of other losses there is none."""
    n = 400
    losses = Losses(RNG.standard_normal(n), 0.0, 0.0, np.zeros(n), np.full(n, 0.05))
    column, margins = np.full(n, -1.0), RNG.standard_normal(n)
    for first in (0.3, 0.95, 1.0 - 1e-9, 13.7, 19.99):
        level = lowest_kink(losses, column, margins, first)
        assert level is not None

        def value(step: float, first: float = first) -> float:
            return first * step + float(losses.value(margins + step * column).sum())

        best = value(level)
        assert all(best <= value(level + away) + 1e-9 for away in (-1.0, -1e-3, 1e-3, 1.0))
    assert lowest_kink(losses, column, margins, 21.0) == -np.inf
    uneven = losses.weighted(RNG.uniform(1.0, 2.0, n))
    assert lowest_kink(uneven, column, margins, 1.0) is None
