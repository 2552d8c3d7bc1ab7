"""From a `Problem` to the task its solvers work on, and where a path over lam begins."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cvxscreen.designs.pairs import Pairs
from cvxscreen.errors import InvalidInput
from cvxscreen.inputs import one_of
from cvxscreen.losses import Losses
from cvxscreen.penalty import PSD, NonNegative
from cvxscreen.problem import Problem
from cvxscreen.solvers.metric_cone import Metric
from cvxscreen.solvers.metric_task import Task
from cvxscreen.term_sets import Indexed, Products

Array = NDArray[np.float64]


def is_metric(problem: Problem) -> bool:
    """Whether `problem` is metric learning with (smoothed) hinges, which this module solves."""
    if not isinstance(problem.design, Pairs) or problem.side is not None:
        return False
    if not isinstance(problem.penalty, PSD | NonNegative) or problem.quadratic.matrix is not None:
        return False
    return _hinges(problem.losses)


def _hinges(losses: Losses) -> bool:
    ends = (losses.e, losses.hi, losses.lo)
    some = [row[:1] if row.strides == (0,) else row for row in ends]
    return not some[0].any() and not some[1].any() and bool(np.isfinite(some[2]).all())


def task_of(problem: Problem) -> Task:
    """`problem` in the form its solvers work on."""
    one_of("problem", problem, Problem, "a problem of metric learning, from `rtlm`, is needed")
    design, f = problem.design, problem.losses
    if not isinstance(design, Pairs):
        raise InvalidInput("`problem` is not one of metric learning.")
    b, weight = _short(f.b), -_short(f.lo)
    bend = _short(f.q) * weight
    terms: Indexed | Products = design.terms
    if max(b.size, weight.size, bend.size) > 1:
        b, bend, weight = (np.array(np.broadcast_to(c, len(terms))) for c in (b, bend, weight))
        if isinstance(terms, Products):
            terms = Indexed(*terms.index(), terms.pairs)
    lam, table = float(problem.quadratic.diagonal[0]), design.table
    push = -problem.linear if table.diagonal else -problem.linear.reshape(table.d, table.d)
    drift = problem.drift * float(np.sqrt(lam)) * (1.0 + 1e-15)
    return Task(table, terms, b, bend, weight, lam, push, problem.constant, drift)


def _short(column: Array) -> Array:
    """One entry where all are the same, a fresh array."""
    if not column.size:
        return np.ones(1)
    same = column.strides == (0,) or bool((column == column[0]).all())
    return np.array(column[:1] if same else column)


def closed_form(task: Task) -> Metric:
    """``[K(w)]_+ / lam``: the optimum for every large lam, a start for the others."""
    return task.cone.project(full_force(task) / task.lam)


def full_force(task: Task) -> Array:
    """``K(w)``: every term pulling with its whole weight."""
    flat = replace(task, b=np.full(1, 1.0), bend=np.zeros(1))
    if isinstance(task.terms, Indexed) and task.weight.size > 1:
        size = len(task.terms)
        flat = replace(task, b=np.ones(size), bend=np.zeros(size))
    # At pair values 0 every margin is 0, below a threshold of 1.
    _, omega = flat.losses(np.zeros(len(task.table) + 1))
    return task.table.pull(omega) + task.push


def lam_max(problem: Problem) -> float:
    """The smallest lam from which on every term pulls with its whole weight; 0 if none does.

    ``max_t <H_t, [K(w)]_+> / (b_t - g_t)`` (all ``b_t > g_t``); from there on the optimum is
    ``[K(w)]_+ / lam``. Where some threshold is not above its corner there is no such lam: infinity.
    """
    task = task_of(problem)
    room = float((task.b - task.bend).min())
    metric = task.cone.project(full_force(task))
    if (task.b - task.bend <= 0).any():
        return float("inf")
    q = task.pair_values(metric)
    if task.b.size > 1:
        return float((task.terms.margins(q) / (task.b - task.bend)).max())
    if isinstance(task.terms, Products):
        return max(_largest_margin(task.terms, q) / room, 0.0)
    return max(float(task.terms.margins(q).max()) / room, 0.0)


def _largest_margin(terms: Products, q: Array) -> float:
    far = np.maximum.reduceat(q[terms.far], terms.far_ptr[:-1])
    near = np.minimum.reduceat(q[terms.near], terms.near_ptr[:-1])
    return float((far - near).max())
