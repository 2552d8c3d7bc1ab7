"""Proof on all of the user's problem that no point satisfies its constraints, and its status.

A reduced problem is a relaxation: where it has no feasible point the whole one has none, and the
multipliers that show the one show the other (Farkas). Restored to all rows ``R z + r`` of the
canonical problem, in the duals m of its cones, they say of every feasible z

::

    <R' m, z>  >=  -<r, m>,    hence    |z|_inf  >=  -<r, m> / |R' m|_1

where ``R' m`` is 0 but for rounding. The problem gets the status and the value that CVXPY has for
this, and these multipliers as dual values, as from a solver of CVXPY's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen._support.rounding import UNIT, gamma, up
from cvxscreen.cvxpy_plugin.answer import dual_values, statistics, write_infeasible
from cvxscreen.cvxpy_plugin.recognise.matrices import Stack
from cvxscreen.cvxpy_plugin.recognise.recognition import Recognition, l1_subgradient
from cvxscreen.cvxpy_plugin.recognise.standard import Standard
from cvxscreen.cvxpy_plugin.request import Report
from cvxscreen.solvers.interface import SubproblemResult

Array = NDArray[np.float64]

BEYOND = 1e8
"""Size that a coordinate of any feasible point must have, relative to that of the last iterate, for
there to be none: the tolerance of Clarabel and SCS for such proofs."""


def shown_infeasible(
    recognition: Recognition, shown: SubproblemResult, report: Report
) -> Report | None:
    """The same as `written_infeasible` from what a solver says of the recognised problem.

    With slopes and multipliers of the constraints on top of others, as the losses' own cancel in
    the difference.

    Parameters
    ----------
    recognition : Recognition
    shown : SubproblemResult
        Of all of its terms.
    """
    problem = recognition.problem
    if recognition.short or recognition.standard.canonical.shortened:
        return None  # as long as what they stand for up to rounding
    if recognition.maxima is not None or not np.isfinite(shown.x).all():
        return None
    z = recognition.columns(shown.x)
    theta = problem.losses.slope(problem.design.forward(shown.x))
    theta[problem.losses.hard] = 0.0
    none = np.zeros(len(shown.multipliers))
    of_norm = l1_subgradient(problem, theta)
    before = recognition.multipliers(z, theta, none, of_norm)
    after = recognition.multipliers(z, theta + shown.theta, shown.multipliers, of_norm)
    steps = shown.info.get("steps", 0)
    return written_infeasible(recognition.standard, z, before, after, report, steps)


def written_infeasible(
    standard: Standard, z: Array, before: Array, after: Array, report: Report, steps: int
) -> Report | None:
    """Give the user's problem the status of one without feasible points; None if nothing is shown.

    Parameters
    ----------
    standard : Standard
        The canonical problem.
    z : array, shape (N,)
        All columns where the solver stood.
    before, after : array, shape (m,)
        Multipliers of all rows, and the same with those on top that are the proof.
    report : Report
        What is known of the solve.
    steps : int
        Of the solver.
    """
    usual, proof = float(np.abs(z).max(initial=0.0)) + UNIT, after - before
    least = least_coordinate(standard, proof)
    if not least >= BEYOND * usual:
        return None
    size = -float(standard.rows.offset @ proof)  # solvers hand out such multipliers in its units
    first, second = dual_values(standard, before), dual_values(standard, after)
    reason = f"infeasible: nothing with coordinates below {least:.0e} satisfies its constraints"
    report = replace(report, reason=reason)
    attributes = statistics(
        report, solve_time=report.times.get("solve", 0.0), setup_time=0.0, iterations=steps,
        inner=None,
    )
    duals = {key: (second[key] - first[key]) / size for key in second}
    write_infeasible(standard, duals, report.solver, attributes)
    return report


def least_coordinate(standard: Standard, multipliers: Array) -> float:
    """What ``max |z_j|`` of any feasible z exceeds, by `multipliers`; 0 where they show nothing.

    Parameters
    ----------
    standard : Standard
    multipliers : array, shape (m,)
        Of all rows; they are moved into the cones' duals first.
    """
    m = np.zeros(len(multipliers))
    for cone in standard.cones:
        part = multipliers[cone.rows].copy()
        if cone.kind == "nonneg":
            np.maximum(part, 0.0, out=part)
        elif cone.kind == "soc":
            part[0] = max(part[0], up(float(np.linalg.norm(part[1:])), len(part)))
        elif cone.kind != "zero":
            return 0.0  # of matrices: nothing is said
        m[cone.rows] = part
    of_losses = list(_of_losses(standard, multipliers, m))
    terms = np.concatenate([standard.rows.offset * m, *of_losses])
    value = -math.fsum(terms)  # rounded once
    value -= up(4.0 * UNIT * (float(np.abs(terms).sum()) + abs(value)))
    if not value > 0.0:
        return 0.0
    left, error = _adjoint(standard.rows, m)
    total = up(float((np.abs(left) + error).sum()), len(left))
    return value / total if total > 0.0 else np.inf


def _of_losses(standard: Standard, multipliers: Array, m: Array) -> Iterator[Array]:
    """What losses of constraints, which are above their tangents, add to the offsets' products.

    A loss ``f(u) = max over theta in [lo, hi] of theta (u - b) - e |theta|``, above its least
    value, is part of what its budget puts below 0. Its row of `m` becomes ``-theta``, of which the
    interval is that of the loss times the budget's multiplier.
    """
    for group, rows, row in zip(
        standard.canonical.groups, standard.arguments, standard.budgets, strict=False
    ):
        if row < 0 or not m[row] > 0.0:
            continue
        priced = group.times(float(m[row]))
        paying = np.flatnonzero(priced.weight > 0)
        b, e, _, lo, hi = priced.weighed(paying)
        within = 1.0 - 8.0 * UNIT  # of ends that are products
        theta = np.clip(-multipliers[rows][paying], within * lo, within * hi)
        m[rows.start + paying] = -theta
        yield theta * b
        yield np.abs(theta) * e
        yield -priced.weight[paying] * (
            priced.level[paying] if np.ndim(priced.level) else priced.level
        )


CHUNK = 1024
"""Rows of a dense block whose sums are added up by themselves, for sums of few roundings each;
longer sums of sparse columns are rounded once."""


def _adjoint(rows: Stack, m: Array) -> tuple[Array, Array]:
    """``R' m`` and a bound of its rounding errors, column by column."""
    sparse, sizes = rows.sparse, np.abs(m)
    left = np.asarray(sparse.T @ m)
    counts = np.bincount(sparse.indices, minlength=len(left))
    error = (np.minimum(counts, CHUNK) + 1) * UNIT * np.asarray(abs(sparse).T @ sizes)
    long = np.flatnonzero(counts > CHUNK)
    columns = sp.csc_array(sparse[:, long])
    terms = np.split(columns.data * m[columns.indices], columns.indptr[1:-1])
    left[long] = [math.fsum(part) for part in terms[: len(long)]]
    for block in rows.blocks:
        weights, span = block.weigh(m[block.place]), block.span
        starts = range(0, len(weights), CHUNK)
        for k in starts:
            part, matrix = weights[k: k + CHUNK], block.matrix[k: k + CHUNK]
            added = part @ matrix
            left[span] += added
            reach = np.abs(part) @ np.abs(matrix)
            error[span] += gamma(CHUNK + 4) * reach + UNIT * (np.abs(left[span]) + np.abs(added))
    return left, error * (1.0 + 1e-6)
