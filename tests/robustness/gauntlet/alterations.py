"""What can be wrong with a claim of optimality: every function yields changed parts of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from gauntlet.claims import BUILD, Claim

import cvxscreen as cs
from cvxscreen.core.losses import Piece
from cvxscreen.designs.comparisons import Pairs
from cvxscreen.screening.reduction import Selection

Change = Callable[[Claim], Iterator[dict[str, Any]]]


def with_entry(values: np.ndarray, place: Any, value: float) -> np.ndarray:
    out = np.array(values)
    out[place] = value
    return out


def moved_x(claim: Claim) -> Iterator[dict[str, Any]]:
    """By a thousandth, in several directions, and back towards 0."""
    rng, x = np.random.default_rng(3), claim.parts[claim.x]
    for _ in range(3):
        step = rng.standard_normal(x.shape)
        if isinstance(getattr(claim.problem, "design", None), Pairs) and not (
            claim.problem.design.diagonal
        ):
            side = int(np.sqrt(len(x)))
            step = (step.reshape(side, side) + step.reshape(side, side).T).ravel()
        yield {claim.x: x + 1e-3 * np.linalg.norm(x) * step / np.linalg.norm(step)}
    yield {claim.x: 0.999 * x}
    yield {claim.x: -x}
    yield {claim.x: 0.0 * x}


def swapped(claim: Claim) -> Iterator[dict[str, Any]]:
    """The most different pairs of dual variables exchanged, then all of them reversed."""
    theta = claim.parts[claim.dual]
    order = np.argsort(theta)
    for low, high in ((order[0], order[-1]), (order[1], order[-2])):
        if theta[low] != theta[high]:
            out = theta.copy()
            out[[low, high]] = out[[high, low]]
            yield {claim.dual: out}
    yield {claim.dual: theta[::-1]}
    yield {claim.dual: np.roll(theta, 1)}


def outside_the_box(claim: Claim) -> Iterator[dict[str, Any]]:
    """By one unit in the last place, by a thousandth, and far."""
    if claim.dual == "alpha":
        return  # the LP's certificate clips into the box first: see `scaled` and `flipped`
    f, theta = claim.problem.losses, claim.parts[claim.dual]
    for end, away in ((f.lo, -np.inf), (f.hi, np.inf)):
        if np.isfinite(end[0]):
            far = end[0] + np.sign(away) * (1.0 + abs(end[0]))
            near = end[0] + np.sign(away) * 1e-3 * (1e-6 + abs(end[0]))
            for value in (np.nextafter(end[0], away), near, far):
                yield {claim.dual: with_entry(theta, 0, value)}


def flipped(claim: Claim) -> Iterator[dict[str, Any]]:
    """The sign of the largest dual variable, and of all."""
    theta = claim.parts[claim.dual]
    place = int(np.argmax(np.abs(theta)))
    yield {claim.dual: with_entry(theta, place, -theta[place])}
    yield {claim.dual: -theta}


def scaled(claim: Claim) -> Iterator[dict[str, Any]]:
    """Dual variables a little and a lot too small; none at all."""
    for factor in (0.99, 0.5, 0.0):
        yield {claim.dual: factor * claim.parts[claim.dual]}


def unbalanced(claim: Claim) -> Iterator[dict[str, Any]]:
    """The equality that an intercept asks for broken inside the box; the intercept moved."""
    theta, losses = claim.parts[claim.dual], claim.problem.losses
    room = np.minimum(losses.hi - theta, 1.0)
    place = int(np.argmax(room))
    for share in (0.01, 0.5, 1.0):
        yield {claim.dual: with_entry(theta, place, theta[place] + share * room[place])}
    free = claim.problem.quadratic.free
    yield {"x": np.where(free, claim.parts["x"] + 0.01, claim.parts["x"])}


def no_numbers(claim: Claim) -> Iterator[dict[str, Any]]:
    """NaN or infinity in any one entry of any part, and everywhere."""
    for name, values in claim.parts.items():
        for value in (np.nan, np.inf, -np.inf):
            flat = values.copy().reshape(-1)
            flat[-1] = value
            yield {name: flat.reshape(values.shape)}
            yield {name: np.full(values.shape, value)}


def overflowing(claim: Claim) -> Iterator[dict[str, Any]]:
    """So large that products leave double precision."""
    for size in (1e76, 1e77, 1e78, 1e100, *(10.0 ** np.linspace(152.0, 156.0, 17)), 1e200, 1e300):
        yield {claim.x: np.full(claim.parts[claim.x].shape, size)}


def wrongly_fixed(claim: Claim) -> Iterator[dict[str, Any]]:
    """A screening record that is false: a term on a piece where it is not, solved and lifted."""
    problem, theta = claim.problem, claim.parts[claim.dual]
    losses = problem.losses
    margins = problem.design.forward(claim.parts["x"])
    actual = losses.piece_within(margins, margins)
    inside = (theta > losses.lo + 1e-3 * np.abs(losses.lo)) & (theta < -1e-6)
    terms = [int(np.argmin(margins)), int(np.argmax(margins)), *np.flatnonzero(inside)[:2]]
    for i in terms:
        for piece in (Piece.ZERO, Piece.LOW, Piece.HIGH):
            possible = piece is Piece.ZERO or (losses.hi if piece is Piece.HIGH else -losses.lo)[i]
            if piece != actual[i] and possible:
                codes = np.full(problem.n, Piece.UNDECIDED, dtype=np.int8)
                codes[i] = piece
                yield _lifted(claim, Selection(codes))


def wrongly_dropped(claim: Claim) -> Iterator[dict[str, Any]]:
    """A feature that the optimum uses, left out, solved and lifted."""
    x = claim.parts["x"]
    for j in np.argsort(-np.abs(x))[:2]:
        dropped = np.zeros(claim.problem.d, dtype=bool)
        dropped[j] = True
        codes = np.full(claim.problem.n, Piece.UNDECIDED, dtype=np.int8)
        yield _lifted(claim, Selection(codes, dropped))


def _lifted(claim: Claim, selection: Selection) -> dict[str, Any]:
    reduced = selection.reduce(claim.problem)
    found = cs.solve(reduced, tol=claim.tol / 100)
    assert found.status == "optimal"  # of the wrong problem
    x, theta = selection.lift(claim.problem, reduced, found.x, found.theta)
    lifted = {"x": x, "theta": theta}
    if claim.problem.side is not None:
        lifted["multipliers"] = found.multipliers
    return lifted


def off_the_cone(claim: Claim) -> Iterator[dict[str, Any]]:
    """A metric with one negative eigenvalue, or one that is not symmetric."""
    x = claim.parts["x"]
    size = np.linalg.norm(x)
    if claim.problem.design.diagonal:
        for amount in (1e-3, 1e-12):
            yield {"x": with_entry(x, int(np.argmin(x)), -amount * size)}
        return
    side = int(np.sqrt(len(x)))
    values, vectors = np.linalg.eigh(x.reshape(side, side))
    lowered = x.reshape(side, side) - (values[0] + 1e-3 * size) * np.outer(vectors[:, 0],
                                                                           vectors[:, 0])
    yield {"x": lowered.ravel()}
    turned = x.reshape(side, side).copy()
    turned[0, 1] += 1e-2 * size
    turned[1, 0] -= 1e-2 * size
    yield {"x": turned.ravel()}


def off_the_fantope(claim: Claim) -> Iterator[dict[str, Any]]:
    """M with another trace, an eigenvalue outside [0, 1], not symmetric, or of other tasks."""
    M = claim.parts["M"]
    values, vectors = np.linalg.eigh(M)
    outer = [np.outer(vectors[:, j], vectors[:, j]) for j in (0, -1)]
    yield {"M": 1.001 * M}
    yield {"M": M - (values[0] + 1e-3) * outer[0] + (values[0] + 1e-3) * outer[1]}
    yield {"M": M + (1.001 - values[-1]) * (outer[1] - outer[0])}
    yield {"M": M + 1e-3 * np.triu(np.ones_like(M), 1)}
    yield {"M": np.eye(len(M)) * (claim.problem.h / len(M))}
    yield {"b": claim.parts["b"] + 0.01}
    yield {"theta": with_entry(claim.parts["theta"], 0, 0.5 * claim.parts["theta"].min())}


def off_the_side(claim: Claim) -> Iterator[dict[str, Any]]:
    """The constraints violated; multipliers out of the dual cone, left out, or too large."""
    x, mu = claim.parts["x"], claim.parts["multipliers"]
    place = int(np.argmax(mu))
    yield {"x": with_entry(x, place, x[place] + 1e-3)}
    yield {"multipliers": -mu}
    yield {"multipliers": 0.0 * mu}
    yield {"multipliers": 1.01 * mu}
    yield {"multipliers": with_entry(mu, int(np.argmin(mu)), -1e-3)}


METRICS = {name for name in BUILD if name.startswith("triplets")}
ALONE = {"L1 alone", "L1 alone sparse rows"}  # features are dropped there, no term is fixed
PROBLEMS = set(BUILD) - {"tasks", "L1 without squares", "triplets streamed"} - ALONE
DUAL = set(BUILD) - {"triplets streamed"}
FREE = {"dense with intercept", "sparse rows with intercept", "quantile with intercept",
        "kernel with intercept", "one task", "batch"}
FEATURES = {"dense", "dense float32", "sparse rows", "smoothed", "absolute", "huber", "L1",
            "L1 sparse rows", *ALONE}

ALTERATIONS: list[tuple[Change, set[str]]] = [
    (moved_x, set(BUILD)),
    (swapped, DUAL),
    (outside_the_box, DUAL),
    (flipped, DUAL),
    (scaled, DUAL),
    (unbalanced, FREE),
    (no_numbers, set(BUILD)),
    (overflowing, set(BUILD)),
    (wrongly_fixed, PROBLEMS),
    (wrongly_dropped, FEATURES),
    (off_the_cone, METRICS),
    (off_the_fantope, {"tasks"}),
    (off_the_side, {"side constraints"}),
]
