"""The check of a recognition: it must be the user's problem, and its duals the user's duals.

At a few points the helpers are restored, the values are put into the user's variables for a moment,
and the user's own objective and constraints are evaluated by CVXPY. With random slopes and
multipliers, the gradient of the Lagrangian of the whole canonical problem must be that of the
recognised one on the core coordinates. A recognition that fails is refused; it is never solved.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from cvxscreen.core.penalty import L1
from cvxscreen.cvxpy_plugin.recognise.recognition import Recognition
from cvxscreen.cvxpy_plugin.recognise.variable_values import preserved_values
from cvxscreen.errors import NotScreenable

Array = NDArray[np.float64]

SEED = 20240229

AGREEMENT = 1e-9
"""Largest relative difference of the two objectives."""


def check_points(recognition: Recognition) -> Iterator[Array]:
    """Core points to compare at: zero, and random ones that reach all pieces of the losses."""
    problem = recognition.problem
    yield np.zeros(problem.d)
    rng = np.random.default_rng(SEED)
    sizes, knots = problem.sizes, np.abs(problem.losses.b) + problem.losses.e
    if recognition.maxima is not None:
        sizes = np.append(sizes, recognition.maxima.sizes)
        knots = np.append(knots, np.abs(recognition.maxima.heights))
    typical = float(np.median(sizes)) or 1.0
    reach = max(1.0, float(np.median(knots)))
    for scale in (1.0, 5.0):
        yield rng.standard_normal(problem.d) * (scale * reach / typical)


def check(recognition: Recognition, *, quick: bool = False) -> None:
    """Compare the recognised problem with the user's.

    Parameters
    ----------
    quick : bool
        At one point only, for a recognition that differs from a checked one by factors.

    Raises
    ------
    NotScreenable
        If objective or eliminated constraints differ somewhere.
    """
    canonical = recognition.standard.canonical
    original = canonical.original
    own = [] if original is None else original.variables()
    with preserved_values(own):
        at = list(check_points(recognition))[2 if quick else 0 :]
        for x in at:
            z = recognition.columns(x)
            truth = recognition.standard.value(z)
            if original is not None:
                values = canonical.user_values(recognition.standard.split(z))
                for variable in own:
                    variable.save_value(values[variable.id])
                # A loop of many terms takes its time: it is evaluated as it is written once.
                fast = canonical.whole is not None and x is not at[-1]
                said = (canonical.whole if fast else original).objective.value
                truth = float("nan") if said is None else float(np.real(said))
            _compare(recognition, x, z, truth)
    _compare_gradients(recognition, x, z)


def _compare(recognition: Recognition, x: Array, z: Array, truth: float) -> None:
    model = recognition.problem.primal(x)
    if recognition.maxima is not None:
        model += recognition.maxima.value(x)
    model *= recognition.standard.canonical.sign
    parts = abs(float(recognition.problem.linear @ x)) + abs(recognition.problem.constant)
    scale = 1.0 + abs(truth) + parts
    if not abs(model - truth) <= AGREEMENT * scale:
        raise NotScreenable(
            f"the recognised objective does not agree with the problem's: {model!r} against "
            f"{truth!r} at a test point"
        )
    values = recognition.standard.rows.values(z)
    left = _eliminated(recognition, values)
    if left > 1e-8 * (1.0 + float(np.abs(values).max(initial=0.0)) + float(np.abs(z).max())):
        raise NotScreenable(
            f"the recognised problem violates a constraint of the original by {left:.3g} at a "
            "test point"
        )


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
    scale += float(np.sqrt(problem.n) * problem.sizes.max(initial=0.0) * steepest)
    if not float(np.abs(model - truth).max()) <= AGREEMENT * scale:
        raise NotScreenable("the multipliers of the recognised problem are not the original's")


def _eliminated(recognition: Recognition, values: Array) -> float:
    """Largest violation of the rows that are no side constraints."""
    kept = np.zeros(len(values), dtype=bool)
    kept[recognition.side.indices] = True
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
