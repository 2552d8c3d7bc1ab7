"""Contracts of functions by hypothesis: Fenchel-Young, Moreau, cones, pieces and their scaling."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from drawn import entries
from exact import Fraction, terms
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from strategies import arguments, loss_rows, slopes

from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.penalty import L1, PSD, NonNegative, Penalty
from cvxscreen.multitask import prox

vectors = arrays(np.float64, 4, elements=entries)
positive = st.integers(-6, 6).map(lambda k: 2.0**k)


# -- losses -------------------------------------------------------------------------------------


@given(st.data())
def test_the_biconjugate_is_the_loss(data: st.DataObject) -> None:
    """``f(t) >= t theta - f*(theta)`` in exact arithmetic, with equality at a subgradient."""
    f = data.draw(loss_rows())
    [g] = terms(f)
    t, theta = Fraction(data.draw(arguments(f))), Fraction(data.draw(slopes(f)))
    assert g.value(t) >= t * theta - g.conjugate(theta)
    s = g.slope(t)
    assert g.value(t) == t * s - g.conjugate(s)


@given(st.data())
def test_moreau_decomposes_an_argument(data: st.DataObject) -> None:
    """``t = prox_{wf}(t) + w prox_{f*/w}(t/w)``: the two parts are subgradients of each other."""
    f = data.draw(loss_rows())
    t, w = data.draw(arguments(f)), data.draw(positive)
    theta = float(f.proximal_slope(t, 0.0, w)[0])
    p = t - w * theta
    low, high = f.subgradient(p)
    inside = float(low[0]) <= theta <= float(high[0])
    # p is rounded by one unit of t: the subgradients a little to either side count as well.
    step = 1e-14 * (abs(t) + abs(float(f.b[0])) + float(f.e[0]) + w * abs(theta))
    left, right = f.subgradient(p - step)[0], f.subgradient(p + step)[1]
    slack = 1e-14 * abs(theta)
    assert inside or left[0] - slack <= theta <= right[0] + slack


@given(st.data())
def test_the_smoothed_slope_is_monotone_and_nonexpansive(data: st.DataObject) -> None:
    """``0 <= w (theta(t) - theta(s)) <= t - s``: the envelope's gradient is 1/w-Lipschitz."""
    f = data.draw(loss_rows())
    s, t = sorted([data.draw(arguments(f)), data.draw(arguments(f))])
    w = data.draw(positive)
    rise = w * float(f.proximal_slope(t, 0.0, w)[0] - f.proximal_slope(s, 0.0, w)[0])
    slack = 1e-14 * (abs(s) + abs(t) + abs(float(f.b[0])) + float(f.e[0]))
    assert -slack <= rise <= t - s + slack


@given(st.data())
def test_narrower_intervals_decide_the_same_or_more(data: st.DataObject) -> None:
    """A decision about an interval holds for each interval inside it."""
    f = data.draw(loss_rows())
    a, b, c, d = sorted(data.draw(arguments(f)) for _ in range(4))
    wide, narrow = int(f.piece_within(a, d)[0]), int(f.piece_within(b, c)[0])
    if wide >= 0 and narrow != wide:  # only at a smooth join, which is on both pieces
        assert narrow >= 0
        assert f.q[0] > 0
        assert b == c
    if wide >= 0:
        assert narrow >= 0


@given(st.data())
def test_pieces_do_not_depend_on_the_weight(data: st.DataObject) -> None:
    """``f.scaled(s)`` has the pieces of f, at the same arguments."""
    f = data.draw(loss_rows())
    low, high = sorted([data.draw(arguments(f)), data.draw(arguments(f))])
    g = f.scaled(data.draw(positive))
    assert f.piece_within(low, high)[0] == g.piece_within(low, high)[0]


# -- penalties and cones --------------------------------------------------------------------------

PENALTIES: dict[str, tuple[Penalty, Callable[[np.ndarray], np.ndarray]]] = {
    "L1": (L1(np.array([1.0, 0.5, 0.0, 4.0])), lambda v: v),
    "x >= 0": (NonNegative(), lambda v: v),
    "PSD": (PSD(2), lambda v: v[[0, 1, 1, 3]]),
}


@pytest.mark.parametrize("kind", PENALTIES)
@given(v=vectors, weight=positive, u=vectors)
def test_moreau_splits_a_force(kind: str, v: np.ndarray, weight: float, u: np.ndarray) -> None:
    """``v = M x + s`` with s a subgradient of h at x: no other point does better."""
    penalty, shape = PENALTIES[kind]
    v, other = shape(v), penalty.project(shape(u))
    diagonal = np.full(4, weight)
    x, s = penalty.prox_and_subgradient(v, diagonal)
    size = float(np.abs(v).max()) + 1e-300
    np.testing.assert_allclose(diagonal * x + s, v, atol=1e-14 * size)
    # h(y) >= h(x) + <s, y - x> for every y of the domain
    lean = penalty.value(other) - penalty.value(x) - float(s @ (other - x))
    reach = float(np.abs(other).max()) + size / weight  # x itself is rounded relative to the latter
    assert lean >= -1e-13 * size * reach
    assert penalty.fenchel_gap(x, s) <= 1e-13 * size * size / weight + 1e-290


@given(v=arrays(np.float64, 8, elements=entries), w=arrays(np.float64, 8, elements=entries))
def test_moreau_splits_a_slack_along_a_cone_and_its_dual(v: np.ndarray, w: np.ndarray) -> None:
    """``v = P_K(v) - P_{K*}(-v)``, orthogonal, and ``<u, z> >= 0`` across K and K*."""
    cone = SideConstraints(np.zeros((8, 1)), np.zeros(8), (("nonneg", 2), ("soc", 3), ("zero", 1),
                                                           ("nonneg", 2)))
    inside, dual = cone.project(v), cone.project_dual(-v)
    size = float(np.abs(v).max()) + 1e-300
    np.testing.assert_allclose(inside - dual, v, atol=1e-14 * size)
    assert abs(float(inside @ dual)) <= 1e-13 * size**2
    assert float(inside @ cone.project_dual(w)) >= -1e-13 * size * float(np.abs(w).max())
    np.testing.assert_allclose(cone.project(inside), inside, atol=1e-14 * size)


PROX: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "capped_simplex": lambda z: prox.capped_simplex(z, 2.0),
    "fantope": lambda z: prox.fantope(z.reshape(2, 2), 1.0).ravel(),
}


@pytest.mark.parametrize("name", PROX)
@settings(max_examples=settings.default.max_examples // 3)
@given(u=vectors, v=vectors)
def test_proximal_operators_are_firmly_nonexpansive(
    name: str, u: np.ndarray, v: np.ndarray
) -> None:
    """``|p - q|^2 <= <p - q, u - v>``."""
    if name == "fantope":
        u, v = u[[0, 1, 1, 3]], v[[0, 1, 1, 3]]
    p, q = PROX[name](u), PROX[name](v)
    size = float(np.abs(u).max() + np.abs(v).max()) + 1.0
    assert float((p - q) @ (p - q)) <= float((p - q) @ (u - v)) + 1e-12 * size**2
