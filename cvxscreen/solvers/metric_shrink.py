"""A task without the terms that a sphere decides.

An `Indexed` set is sifted term by term with the exact norms ``|H|``; a product set closes the
window of every row from both ends, with ``|H|^2 <= |a|^4 + |b|^4``, and never lists a term.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cvxscreen.product_loops import product_loops
from cvxscreen.rounding import UNIT, gamma, up
from cvxscreen.solvers.metric_task import Sphere, State, Task
from cvxscreen.term_sets import Indexed, Products, Terms

Array = NDArray[np.float64]


WORTH = 0.02
"""Terms are taken off if they are no less than this share."""

Proof = tuple[Array, Array, float]
"""Of a sphere: the pairs' values at its centre, their errors, and its radius."""


def shrink(
    task: Task, sphere: Sphere, state: State, *, sort: bool = False
) -> tuple[Task, State, int, int]:
    """The task without the terms that `sphere` decides, the task itself if they are hardly any.

    `state` is the one the sphere was made from. Its metric lies in the sphere, so every decided
    term sits on its piece there too: what is fixed is the state's force less what is left.

    Parameters
    ----------
    sort : bool
        Put the far lists in order first; for a task nothing was taken from.

    Returns
    -------
    task : Task
    state : State
        The same metric on it.
    dropped, fixed : int
        Terms proven on the zero piece (R) and on the linear one (L).
    """
    left, kept, dropped, fixed = _decided(task, (sphere,), state, sort)
    if dropped + fixed < WORTH * len(task.terms):
        return task, state, 0, 0
    small, used = left.compact()
    return *_without(task, small, used, state, kept), dropped, fixed


def shrink_together(
    task: Task, spheres: Sequence[Sphere], state: State, most: int
) -> tuple[Task, int, int] | None:
    """The task without the terms on which `spheres`, all of them made from `state`, agree.

    None where more than `most` terms are left; for a task nothing was taken from.
    """
    left, kept, dropped, fixed = _decided(task, spheres, state, True)
    if len(left) > most:
        return None
    small, used = left.compact()
    return _without(task, small, used, state, kept)[0], dropped, fixed


def _decided(
    task: Task, spheres: Sequence[Sphere], state: State, sort: bool
) -> tuple[Terms, NDArray[np.bool_] | None, int, int]:
    """The terms that are left, which of all they are where these are listed, and two counts."""
    proofs = [_proof(task, sphere, state) for sphere in spheres]
    if isinstance(task.terms, Indexed):
        return _sift(task, task.terms, proofs)
    terms = task.terms.ordered(proofs[0][0]) if sort else task.terms
    return _close_windows(task, terms, proofs, sort)


def _proof(task: Task, sphere: Sphere, state: State) -> Proof:
    size = float(np.linalg.norm(sphere.centre)) * (1.0 + gamma(sphere.centre.size))
    # What is decided is decided by more than the rounding of the state's own margins, too.
    size += float(np.linalg.norm(state.metric.value)) * (1.0 + gamma(sphere.centre.size))
    q, error = _centre_values(task, sphere, state), task.table.value_error(size)
    error = error + 8.0 * UNIT * np.abs(q)
    error += 0.5 * _off_centre(task, sphere, state) * task.table.squares
    return q, error, sphere.radius


def _centre_values(task: Task, sphere: Sphere, state: State) -> Array:
    if task.table.diagonal:
        return task.table.values(sphere.centre)
    return 0.5 * (state.values + task.table.distances(sphere.factor))


def _off_centre(task: Task, sphere: Sphere, state: State) -> float:
    """How far the factors behind `_centre_values` are from the matrices, both together."""
    if task.table.diagonal:
        return 0.0
    made = sphere.factor @ sphere.factor.T
    size = float(np.linalg.norm(sphere.factor)) ** 2 + float(np.linalg.norm(sphere.dual))
    away = float(np.linalg.norm(made - sphere.dual)) + gamma(task.table.d + 8) * size
    return up(away + task.cone.metric_error(state.metric), task.table.size)


def _close_windows(
    task: Task, terms: Products, proofs: list[Proof], sort: bool
) -> tuple[Products, None, int, int]:
    b, g = float(task.b[0]), float(task.bend[0])
    slack, low, high = 16.0 * UNIT * (abs(b) + g), terms.hi, terms.lo
    for number, (q, error, radius) in enumerate(proofs):
        lo, hi = terms.lo.copy(), terms.hi.copy()
        product_loops().shrink(
            terms.near_ptr, terms.near, terms.far_ptr, terms.far, lo, hi, q, error,
            task.table.squares, radius, b + slack, b - g - slack, sort and number == 0,
            *(np.empty(terms.widest) for _ in range(3)),
        )
        low, high = np.minimum(low, lo), np.maximum(high, hi)
    dropped, fixed = int(terms.hi.sum() - high.sum()), int(low.sum() - terms.lo.sum())
    return replace(terms, lo=low, hi=high), None, dropped, fixed


def _sift(
    task: Task, terms: Indexed, proofs: list[Proof]
) -> tuple[Indexed, NDArray[np.bool_], int, int]:
    zero = linear = np.ones(len(terms), dtype=bool)
    for q, error, radius in proofs:
        middle = terms.margins(q)
        reach = radius * task.norms * (1.0 + 8.0 * UNIT) + error[terms.plus] + error[terms.minus]
        reach = reach + 16.0 * UNIT * (np.abs(middle) + np.abs(task.b) + task.bend)
        zero = zero & (middle - reach > task.b)
        linear = linear & (middle + reach < task.b - task.bend)
    kept = ~(zero | linear)
    return terms.take(kept), kept, int(zero.sum()), int(linear.sum())


def _without(
    full: Task, left: Terms, used: NDArray[np.intp], state: State,
    kept: NDArray[np.bool_] | None = None,
) -> tuple[Task, State]:
    def part(row: Array) -> Array:
        return row if row.size == 1 or kept is None else row[kept]

    nothing = np.zeros_like(full.push)
    task = Task(
        full.table.take(used), left, part(full.b), part(full.bend), part(full.weight),
        full.lam, nothing,
    )
    if kept is not None:
        task.__dict__["norms"] = full.norms[kept]
    values = np.append(state.values[used], 0.0)
    task.__dict__["_one_signed"] = full._one_signed  # True stays true
    total, omega = task.losses(values)
    pulled, value = task.table.pull(omega), state.metric.value
    push = state.force - pulled
    smooth = 0.5 * full.lam * np.vdot(value, value) - np.vdot(push, value)
    probe = State(state.metric, state.primal, values, omega, pulled)
    noise = full.force_error(state) + task.force_error(probe)
    noise += 4.0 * UNIT * float(np.linalg.norm(push))
    made = replace(
        task, push=push, constant=state.primal - total - float(smooth), drift=up(noise)
    )
    for name in ("norms", "_one_signed"):
        if name in task.__dict__:
            made.__dict__[name] = task.__dict__[name]
    return made, State(state.metric, state.primal, values, omega, state.force)
