"""From a floating-point solution to the pieces of the optimum, and the optimum on them."""

from __future__ import annotations

import mpmath as mp
import numpy as np
from linear import DIGITS, Vector, apply, solved
from references import Model, Reference, floats
from terms import OPEN, RIGHT, WRONG, kept_states, real, states_of

from cvxscreen.core.losses import Piece
from cvxscreen.core.problem import Problem

STARTS = (1e-9, 1e-6, 1e-3)
ROUNDS = 12

PredictionRadius = tuple[list, list]
"""For every term a piece or the knot it sits at; for every feature a sign (0: it is zero)."""


def first_guess(model: Model, x: Vector, t: Vector, theta: Vector, fine: float) -> PredictionRadius:
    """Slopes within `fine` of an end of a linear piece belong to it; others sit at a knot."""
    places: list[object] = []
    largest = max((abs(s) for s in theta), default=mp.mpf(0))
    for f, margin, s in zip(model.terms, t, theta, strict=True):
        if f.q > 0 or f.lo == f.hi:
            places.append(f.piece(margin))
            continue
        near = fine * (f.hi - f.lo if f.hi - f.lo < mp.inf else largest)
        if f.lo < 0 and s - f.lo <= near:
            places.append(Piece.LOW)
        elif f.hi > 0 and f.hi - s <= near:
            places.append(Piece.HIGH)
        elif abs(s) <= near and (f.e > 0 or f.lo == 0 or f.hi == 0):
            places.append(Piece.ZERO)
        else:
            places.append(f.b - f.e if s < 0 else f.b + f.e)
    top = max((abs(u) for u in x), default=mp.mpf(0))
    signs = [(mp.sign(u) if abs(u) > fine * fine * top else 0) if k > 0 or model.cone else 1
             for u, k in zip(x, model.kappa, strict=True)]
    return places, signs


def next_guess(
    model: Model, guess: PredictionRadius, x: Vector, t: Vector, theta: Vector
) -> PredictionRadius:
    """The pieces with what the solution contradicts put right."""
    places: list[object] = []
    for f, old, margin, s in zip(model.terms, guess[0], t, theta, strict=True):
        out_of_reach = isinstance(old, mp.mpf) and margin != old
        if f.q > 0 or f.lo == f.hi or out_of_reach:
            places.append(f.piece(margin))
        elif isinstance(old, mp.mpf):
            left = old == f.b - f.e
            right = old == f.b + f.e
            low = f.lo if left else mp.mpf(0)
            high = f.hi if right else mp.mpf(0)
            if s < low:
                places.append(Piece.LOW if left and f.lo < 0 else Piece.ZERO)
            elif s > high:
                places.append(Piece.HIGH if right and f.hi > 0 else Piece.ZERO)
            else:
                places.append(old)
        else:
            first, last = f.range_of(old)
            places.append(first if margin < first else last if margin > last else old)
    v = model.pull(theta)
    signs = []
    for old, u, pull, k in zip(guess[1], x, v, model.kappa, strict=True):
        if model.cone:
            signs.append(1 if (pull > 0 if old == 0 else u > 0) else 0)
        elif k == 0:
            signs.append(1)
        elif old == 0:
            signs.append(mp.sign(pull) if abs(pull) > k else 0)
        else:
            signs.append(old if mp.sign(u) == old else 0)
    return places, signs


def on_pieces(
    model: Model, guess: PredictionRadius, x: Vector, theta: Vector
) -> tuple[Vector, Vector, Vector]:
    """``(x, t, theta)`` from the conditions of a guess; `x` and `theta` fill what is open."""
    places, signs = guess
    some = [j for j, sign in enumerate(signs) if sign != 0]
    kinks = [i for i, place in enumerate(places) if isinstance(place, mp.mpf)]
    bent = [i for i, place in enumerate(places) if place in (Piece.LEFT, Piece.RIGHT)
            and not isinstance(place, mp.mpf)]
    fixed = {}
    for i, (f, place) in enumerate(zip(model.terms, places, strict=True)):
        if not isinstance(place, mp.mpf) and place not in (Piece.LEFT, Piece.RIGHT):
            fixed[i] = {Piece.LOW: f.lo, Piece.HIGH: f.hi}.get(place, mp.mpf(0))
    centre = {i: model.terms[i].b + (model.terms[i].e if places[i] == Piece.RIGHT
                                     else -model.terms[i].e) for i in bent}
    weight = [1 / model.terms[i].q for i in bent]
    cut = {j: [model.columns[j][i] for i in bent] for j in some}
    scaled = {j: [w * a for w, a in zip(weight, cut[j], strict=True)] for j in some}
    pushed = [(i, s) for i, s in fixed.items() if s]
    matrix, right = [], []
    for j in some:
        row = [mp.fdot(scaled[j], cut[k]) for k in some]
        if model.dense:
            row = [a + model.M[j][k] for a, k in zip(row, some, strict=True)]
        else:
            row[some.index(j)] += model.diagonal[j]
        matrix.append(row + [model.columns[j][i] for i in kinks])
        value = mp.fdot(scaled[j], [centre[i] for i in bent]) - model.linear[j]
        value -= mp.fsum(model.columns[j][i] * s for i, s in pushed)
        right.append(value - model.kappa[j] * signs[j])
    zero = [mp.mpf(0)] * len(kinks)
    for i in kinks:
        matrix.append([model.rows[i][j] for j in some] + zero)
        right.append(places[i])
    base = [x[j] for j in some] + [theta[i] for i in kinks]
    residual = [b - a for a, b in zip(apply(matrix, base), right, strict=True)]
    z = [a + b for a, b in zip(base, solved(matrix, residual), strict=True)]
    point = [mp.mpf(0)] * len(x)
    for j, value in zip(some, z, strict=False):
        point[j] = value
    t = apply(model.rows, point)
    slopes = [fixed.get(i, mp.mpf(0)) for i in range(len(t))]
    for i in bent:
        slopes[i] = (t[i] - centre[i]) / model.terms[i].q
    for i, value in zip(kinks, z[len(some):], strict=True):
        slopes[i] = value
        reach = abs(places[i]) + mp.fdot([abs(a) for a in model.rows[i]], [abs(u) for u in point])
        if abs(t[i] - places[i]) <= reach * mp.mpf(10) ** (-60):  # the knot can be reached
            t[i] = places[i]
    return point, t, slopes


def clipped(model: Model, theta: Vector) -> Vector:
    return [min(max(s, f.lo), f.hi) for f, s in zip(model.terms, theta, strict=True)]


def optimum(
    problem: Problem, x: np.ndarray, theta: np.ndarray, model: Model | None = None
) -> Reference:
    """The reference near a floating-point solution."""
    model = Model(problem) if model is None else model
    x0 = model.start(x)
    theta0 = clipped(model, [real(v) for v in theta])
    t0 = apply(model.rows, x0)
    best = (x0, t0, *model.gap(x0, t0, theta0))
    size = mp.fsum(f.fenchel_young(t, mp.mpf(0)) for f, t in zip(model.terms, t0, strict=True)
                   if f.q > 0 or f.hi - f.lo < mp.inf)
    enough = mp.mpf(10) ** (-60) * (size + mp.fdot(x0, model.times(x0)))
    for fine in STARTS:
        guess = first_guess(model, x0, t0, theta0, fine)
        here, seen = (x0, theta0), []
        for _ in range(ROUNDS):
            if best[2] <= enough or guess in seen:
                break
            seen.append(guess)
            point, t, raw = on_pieces(model, guess, *here)
            inside = [max(v, mp.mpf(0)) for v in point] if model.cone else point
            margins = t if inside == point else apply(model.rows, inside)
            found = (inside, margins, *model.gap(inside, margins, clipped(model, raw)))
            if found[2] < best[2]:
                best = found
            guess = next_guess(model, guess, point, t, raw)
            here = (point, raw)
    return judged(model, *best)


def judged(model: Model, x: Vector, t: Vector, gap: mp.mpf, v: Vector, theta: Vector) -> Reference:
    """The tables that follow from a point and its gap."""
    size = mp.fdot([abs(u) for u in x], [abs(u) for u in model.times(x)])
    e = mp.sqrt(2 * (gap + mp.mpf(10) ** (20 - DIGITS) * size))
    error = [n * e for n in model.norms()]
    if model.free:
        error = with_intercept(model, t, error)
    reach = [mp.fdot([abs(a) for a in row], [abs(u) for u in x]) for row in model.rows]
    fine = [mp.mpf(10) ** (-25) * (abs(f.b) + f.e + r)
            for f, r in zip(model.terms, reach, strict=True)]
    states = states_of(model.terms, t, error, fine)
    dropped, needed = feature_states(model, x, v, e)
    return Reference(model.problem, floats(x), floats(theta), floats(t), float(gap), states,
                     kept_states(states), dropped, needed)


def with_intercept(model: Model, t: Vector, error: Vector) -> Vector:
    """`error` and how far the best intercept for ``w*`` may be from the one at hand.

    The largest and the smallest slope of the loss along the intercept, at margins a little to the
    right and to the left, must have 0 between them: then an optimal intercept is within `room`.
    """
    column = model.columns[model.free[0]]
    fine = mp.mpf(10) ** (-45) * (1 + max(abs(u) for u in t))
    room = max(error, default=mp.mpf(0)) + fine
    slope = [mp.mpf(0), mp.mpf(0)]
    for f, a, margin in zip(model.terms, column, t, strict=True):
        for side, sign in enumerate((1, -1)):
            slope[side] += a * f.slope(margin + mp.sign(a) * sign * fine)
    q = model.linear[model.free[0]]
    if not slope[0] + q >= 0 >= slope[1] + q:
        return [mp.inf] * len(t)
    return [u + 2 * room * abs(a) for u, a in zip(error, column, strict=True)]


def feature_states(
    model: Model, x: Vector, v: Vector, e: mp.mpf
) -> tuple[np.ndarray, np.ndarray]:
    """About "feature j is 0" and "feature j is not 0"."""
    zero, other = [], []
    for j, (u, k) in enumerate(zip(x, model.kappa, strict=True)):
        if k == 0 or not v:
            zero.append(WRONG if k == 0 and abs(u) > e else OPEN)
            other.append(OPEN)
            continue
        room = e / mp.sqrt(model.diagonal[j])
        away = abs(u) > room
        inside = u == 0 and abs(v[j]) < k * (1 - mp.mpf(10) ** (-20)) and e < mp.mpf(10) ** (-25)
        zero.append(WRONG if away else RIGHT if inside else OPEN)
        other.append(RIGHT if away else WRONG if inside else OPEN)
    return np.array(zero, dtype=np.int8), np.array(other, dtype=np.int8)
