"""The check of a recognition: it must be the user's problem, and its duals the user's duals.

At a few points the helpers are restored, the values are put into the user's variables for a moment,
and the user's own objective and constraints are evaluated by CVXPY. With random slopes and
multipliers, the gradient of the Lagrangian of the whole canonical problem must be that of the
recognised one on the core coordinates. A recognition that fails is refused; it is never solved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem
from cvxscreen.cvxpy_plugin.recognise.epigraph import InequalityTerms
from cvxscreen.cvxpy_plugin.recognise.expressions import preserved_values
from cvxscreen.cvxpy_plugin.recognise.recognition import Recognition
from cvxscreen.cvxpy_plugin.recognise.standard import FAMILIAR, written
from cvxscreen.errors import NotScreenable

Array = NDArray[np.float64]

SEED = 20240229

FAR = 1e9
"""No helper is looked for beyond this."""

HALVINGS = 80
"""Of an interval of at most 2e9: its end is then exact up to rounding."""

MANY = 2000
"""From this many terms on one point is enough: at random margins that are twice as large as the
kinks a term is on each of three pieces with a probability above 0.3."""

AGREEMENT = 1e-9
"""Largest relative difference of the two objectives."""


def check_points(recognition: Recognition) -> Iterator[Array]:
    """Core points to compare at: zero, and random ones that reach all pieces of the losses.

    Of many terms (`MANY`) a single point: a wrong number anywhere shows at almost every point, and
    among so many terms all pieces occur.
    """
    problem = recognition.problem
    many = problem.n >= MANY
    if not many:
        yield np.zeros(problem.d)
    rng = np.random.default_rng(SEED)
    sizes, knots = _sizes(problem), np.abs(problem.losses.b) + problem.losses.e
    if recognition.maxima is not None:
        sizes = np.append(sizes, recognition.maxima.sizes)
        knots = np.append(knots, np.abs(recognition.maxima.heights))
    typical = float(np.median(sizes)) or 1.0
    reach = max(1.0, float(np.median(knots)))
    for scale in (2.0,) if many else (1.0, 5.0):
        yield rng.standard_normal(problem.d) * (scale * reach / typical)


def _sizes(problem: Problem) -> Array:
    """Norms of the rows, of some of them where there are many."""
    every = max(problem.n // MANY, 1)
    if every == 1:
        return problem.sizes
    some = problem.design.take_rows(np.arange(0, problem.n, every))
    return np.sqrt(some.weighted_squares(np.ones(problem.d)))


def last_check_point(recognition: Recognition) -> Array:
    """The last of the points that `check` compares at, shape (d,)."""
    return list(check_points(recognition))[-1]


def check(
    recognition: Recognition, *, at: Array | None = None,
    beyond: Callable[[Array], float] | None = None,
) -> None:
    """Compare the recognised problem with the user's.

    Parameters
    ----------
    at : array, shape (d,), optional
        A point to compare at instead, for a recognition that differs from a checked one by factors.
    beyond : callable, optional
        From all columns to what the recognised objective has beyond the user's (to be minimised).

    Raises
    ------
    NotScreenable
        If objective or eliminated constraints differ somewhere.
    """
    canonical = recognition.standard.canonical
    original = canonical.original
    own = [] if original is None else original.variables()
    with preserved_values(own):
        chosen = check_points(recognition) if at is None else [at]
        points = [at_best_helpers(recognition, x) for x in chosen]
        for x in points:
            z = recognition.columns(x)
            truth = recognition.standard.value(z)
            if original is not None:
                values = canonical.user_values(recognition.standard.split(z))
                for variable in own:
                    variable.save_value(values[variable.id])
                # A loop of many terms takes its time: it is evaluated as it is written once.
                fast = canonical.whole is not None and x is not points[-1]
                said = (canonical.whole if fast else original).objective.value
                truth = float("nan") if said is None else float(np.real(said))
                if beyond is not None:
                    truth += canonical.sign * beyond(z)
            _compare(recognition, x, z, truth)
            _compare_slacks(recognition, z)
    if recognition.standard.cones:  # what is restored are multipliers of rows in cones
        _compare_gradients(recognition, x, z)


def at_best_helpers(recognition: Recognition, x: Array) -> Array:
    """`x` with CVXPY's own helpers among the coordinates at their best values for the others.

    The user's objective is the minimum over them (the bound of a norm or of a maximum, the level
    of a sum of largest entries). They are put at the lowest point of the objective along their own
    axis, not below what a constraint asks for.
    """
    problem, standard = recognition.problem, recognition.standard
    helpers = np.flatnonzero(~standard.own()[recognition.core])
    if standard.canonical.original is None or not len(helpers):
        return x
    x = x.copy()
    columns = {int(j): problem.design.column(int(j)) for j in helpers}
    frame = None if problem.side is None else sp.csc_array(problem.side.matrix)
    for _ in range(2):  # a helper may bound another one
        for j, column in columns.items():
            margins = problem.design.forward(x) if column.any() else np.zeros(problem.n)
            away = _lowest_along(problem, x, j, column, margins)
            low = _least_step(problem, x, frame, j, column, margins)
            x[j] += max(away, low) if np.isfinite(away) else max(low, -x[j])
    return x


def _least_step(
    problem: Problem, x: Array, frame: Any, j: int, column: Array, margins: Array
) -> float:
    """The smallest step along coordinate j that satisfies what bounds it from below, or -inf."""
    found = [-np.inf]
    if problem.losses.any_hard:
        bounding = problem.losses.hard & np.isinf(problem.losses.hi) & (column < 0)
        over = margins[bounding] - problem.losses.b[bounding]
        found += [float(np.max(over / -column[bounding], initial=-np.inf))]
    if problem.side is not None:
        slack, own = problem.side.slack(x), frame[:, [j]].toarray().ravel()
        for kind, _, rows in problem.side.blocks():
            if kind == "nonneg":
                rising = own[rows] > 0
                needed = -slack[rows][rising] / own[rows][rising]
                found.append(float(np.max(needed, initial=-np.inf)))
            elif kind == "soc" and own[rows.start] > 0 and not own[rows][1:].any():
                short = float(np.linalg.norm(slack[rows][1:])) - float(slack[rows.start])
                found.append(short / float(own[rows.start]))
    return max(found)


def _lowest_along(problem: Problem, x: Array, j: int, column: Array, margins: Array) -> float:
    """The step along coordinate j to the lowest objective; -inf where it only ever falls."""
    losses, quadratic = problem.losses, problem.quadratic
    first = float(quadratic.apply(x)[j] + problem.linear[j])
    unit = np.zeros(problem.d)
    unit[j] = 1.0
    curve = float(quadratic.apply(unit)[j])

    def slope(step: float) -> float:
        return first + curve * step + float(column @ losses.slope(margins + step * column))

    ends = []
    for sign in (-1.0, 1.0):
        reach = sign * (1.0 + abs(float(x[j])))
        while slope(reach) * sign < 0 and abs(reach) < FAR:
            reach *= 2.0
        ends.append(reach)
    low, high = ends
    if slope(low) > 0 or slope(high) < 0:
        return -np.inf
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return high


def _compare(recognition: Recognition, x: Array, z: Array, truth: float) -> None:
    model = recognition.problem.primal(x)
    if recognition.maxima is not None:
        model += recognition.maxima.value(x)
    model *= recognition.standard.canonical.sign
    parts = abs(float(recognition.problem.linear @ x)) + abs(recognition.problem.constant)
    scale = 1.0 + abs(truth) + parts
    if not np.isfinite(model) and not np.isfinite(recognition.problem.design.forward(x)).all():
        raise NotScreenable("the data hold NaN or infinity")
    if not np.isfinite(truth):
        raise NotScreenable(
            f"the objective is {truth} at a test point: variables may be outside its domain"
        )
    if not abs(model - truth) <= AGREEMENT * scale:
        raise NotScreenable(
            f"the recognised objective does not agree with the problem's: {model:.6g} against "
            f"{truth:.6g} at a test point{_unfamiliar(recognition)}"
        )
    if not recognition.standard.cones:
        return
    values = recognition.standard.rows.values(z)
    left = _eliminated(recognition, values)
    if left > 1e-8 * (1.0 + float(np.abs(values).max(initial=0.0)) + float(np.abs(z).max())):
        raise NotScreenable(
            f"the recognised problem violates a constraint of the original by {left:.3g} at a "
            "test point"
        )


def _compare_slacks(recognition: Recognition, z: Array) -> None:
    """Every constraint of a slack variable is the bound that it was read as.

    The user's variables have the values of `z`. With the slack at its largest bound that also says
    that it is feasible, and no larger than it must be.
    """
    standard = recognition.standard
    values = standard.rows.values(z) if any(True for _ in standard.slacks()) else np.zeros(0)
    for group, slack, rows in standard.slacks():
        arguments = group.sign * values[rows]
        level = slack.bound(arguments)
        for position, constraint in enumerate(slack.constraints):
            lower, upper = (np.asarray(arg.value, dtype=np.float64) for arg in constraint.args)
            said = np.broadcast_to(lower - upper, slack.variable.shape).flatten(order="F")
            ours = slack.bound(arguments, of=position) - level
            size = 1.0 + float(np.abs(level).max()) + float(np.abs(ours).max())
            if not float(np.abs(said - ours).max()) <= AGREEMENT * size:
                raise NotScreenable(
                    f"the constraint {written(constraint)} is no bound of a slack variable"
                )


def _unfamiliar(recognition: Recognition) -> str:
    """The atoms that may be why, for a message."""
    original = recognition.standard.canonical.original
    atoms = () if original is None else {atom.__name__ for atom in original.atoms()} - FAMILIAR
    source = f" (from {', '.join(sorted(atoms))}, perhaps)" if atoms else ""
    return f"{source}; write losses and squared norms as summands of their own"


def _compare_gradients(recognition: Recognition, x: Array, z: Array) -> None:
    """Both Lagrangians have the same gradient on the core, whatever the multipliers."""
    problem, losses = recognition.problem, recognition.problem.losses
    rng = np.random.default_rng(SEED + 1)
    low = np.where(np.isfinite(losses.lo), losses.lo, -1.0)
    high = np.where(np.isfinite(losses.hi), losses.hi, 1.0)
    theta = low + (high - low) * rng.random(problem.n)
    side = rng.standard_normal(recognition.side.shape[0])
    model = problem.quadratic.apply(x) + problem.linear + problem.design.adjoint(theta)
    if problem.side is not None:
        model = model - problem.side.adjoint(side)
    penalty_subgradient = None
    if isinstance(problem.penalty, L1):
        penalty_subgradient = problem.penalty.kappa * (2.0 * rng.random(problem.d) - 1.0)
        model = model + penalty_subgradient
    shares = None
    if recognition.maxima is not None:
        shares = recognition.maxima.shares(recognition.maxima.values(x), None)
        model = model + recognition.maxima.rows.T @ shares
    multipliers = recognition.multipliers(z, theta, side, penalty_subgradient, shares)
    truth = recognition.residual(z, multipliers)[recognition.core]
    scale = 1.0 + float(np.abs(model).max()) + float(np.abs(multipliers).max(initial=0.0))
    steepest = float(np.abs(theta).max(initial=0.0))
    scale += float(np.sqrt(problem.n) * _sizes(problem).max(initial=0.0) * steepest)
    if not float(np.abs(model - truth).max()) <= AGREEMENT * scale:
        raise NotScreenable("the multipliers of the recognised problem are not the original's")


def _eliminated(recognition: Recognition, values: Array) -> float:
    """Largest violation of the rows that are neither side constraints nor terms."""
    kept = np.zeros(len(values), dtype=bool)
    kept[recognition.side.indices] = True
    for step in recognition.steps:
        if isinstance(step, InequalityTerms):
            kept[step.weights.indices] = True
    worst = 0.0
    for cone in recognition.standard.cones:
        rows, free = values[cone.rows], ~kept[cone.rows]
        if cone.kind == "zero":
            worst = max(worst, float(np.abs(rows[free]).max(initial=0.0)))
        elif cone.kind == "nonneg":
            worst = max(worst, float((-rows[free]).max(initial=0.0)))
        elif cone.kind == "soc" and free.all():
            worst = max(worst, float(np.linalg.norm(rows[1:]) - rows[0]))
    return worst
