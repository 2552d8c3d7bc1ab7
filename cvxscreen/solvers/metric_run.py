"""One value of lambda: evaluate, prove, shrink, iterate, and come back to the full task.

The reduced task is safe (every decision rests on a sphere that contains the optimum), so its
optimum is the full one; the last state is evaluated on the full task all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from cvxscreen.limits import UNLIMITED, Limits
from cvxscreen.solvers.metric_cone import Metric
from cvxscreen.solvers.metric_newton import newton
from cvxscreen.solvers.metric_shrink import shrink
from cvxscreen.solvers.metric_steps import accelerated, projected_gradient
from cvxscreen.solvers.metric_task import Sphere, State, Task
from cvxscreen.solvers.metric_thrift import shrinking, work

SMALL = 20_000
"""A task of fewer terms, already a reduced one, is solved as it is."""

PATIENCE = 8
"""Iterations before a task with less than a tenth of all terms is shrunk again."""

NEWTON_LIMIT = 60
"""It converges in some ten steps, or not at all: at the limit of rounding."""


@dataclass(frozen=True)
class Step:
    """What one look at the gap saw.

    Attributes
    ----------
    iterations : int
        Made so far.
    kept, pairs : int
        Terms and pairs of the reduced task after the look.
    dropped, fixed : int
        Terms proven so far on the zero piece and on the linear one.
    gap, primal : float
    """

    iterations: int
    kept: int
    pairs: int
    dropped: int
    fixed: int
    gap: float
    primal: float


@dataclass
class Run:
    """The options and the record of a solve.

    Attributes
    ----------
    tol : float
        Relative gap.
    screen : bool
        Whether to shrink the task.
    method : {"auto", "bb", "apg", "newton"}
        ``"auto"``: projected gradient, then Newton where that is slow.
    every : int
        Iterations between two looks at the gap.
    limit : int
        Most iterations in all.
    limits : Limits
        Of the whole call.
    dropped, fixed : int
        Terms the task lacks from the start.
    opening : State
        The first one of a solve, on the whole task.
    saved, spent : float
        Work that shrinking saved the iterations, and work it took; see `metric_thrift`.
    """

    tol: float = 1e-6
    screen: bool = True
    method: str = "auto"
    every: int = 2
    limit: int = 20_000
    limits: Limits = UNLIMITED
    on_step: Callable[[Step], None] | None = None
    dropped: int = 0
    fixed: int = 0
    opening: State | None = None
    steps: list[Step] = field(default_factory=list)
    iterations: int = 0
    passes: int = 0
    saved: float = 0.0
    spent: float = 0.0
    _whole: int = 0
    _work: float = 0.0
    _dropped: int = 0
    _fixed: int = 0
    _memory: dict[str, float] = field(default_factory=dict)

    def solve(
        self, task: Task, start: Metric, accept: Callable[[Metric], bool] | None = None
    ) -> tuple[State, Sphere]:
        """The last state on the full task with the sphere it proves.

        With `accept`, a metric it accepts is returned as it is, on the reduced task.
        """
        state = task.evaluate(start)
        sphere = task.sphere(state)
        self.passes += 1
        first, self.opening = (state, sphere), state
        self._whole = len(task.terms) + self.dropped + self.fixed
        self._work = work(task)
        aim = 0.5 * self.tol
        for _ in range(8):
            if sphere.gap <= self.tol * abs(state.primal) or self.limits.spent():
                break
            reduced = task
            self._dropped, self._fixed = self.dropped, self.fixed
            if self.dropped + self.fixed and len(task.terms) < SMALL:
                self._note(task, sphere.gap, state.primal)
            elif self.screen:
                reduced, state = self._shrink(task, state, sphere, sort=True)
            metric = self._iterate(reduced, state, aim, sphere.gap)
            if accept is not None and accept(metric):
                return state._replace(metric=metric), sphere
            state = task.evaluate(metric)
            sphere = task.sphere(state)
            self.passes += 1
            aim *= 0.1
            if self.iterations >= self.limit:
                break
        if sphere.gap > first[1].gap:
            return first
        self._note(task, sphere.gap, state.primal)
        return state, sphere

    def _shrink(
        self, task: Task, state: State, sphere: Sphere, *, sort: bool = False
    ) -> tuple[Task, State]:
        reduced, state, dropped, fixed = shrink(task, sphere, state, sort=sort)
        self.spent += shrinking(task, reduced)
        self._dropped += dropped
        self._fixed += fixed
        self._note(reduced, sphere.gap, state.primal)
        return reduced, state

    def _note(self, task: Task, gap: float, primal: float) -> None:
        step = Step(
            self.iterations, len(task.terms), len(task.table), self._dropped, self._fixed, gap,
            primal,
        )
        self.steps.append(step)
        if self.on_step is not None:
            self.on_step(step)

    def _iterate(self, task: Task, state: State, aim: float, gap: float) -> Metric:
        """Down to a relative gap of `aim` on `task`, shrinking it on the way."""
        if not len(task.terms):
            return task.cone.project(task.push / task.lam)
        shrunk_at = last = gap
        begun, many = self.iterations, 0.1 * self._whole
        slow, method, finishing = 0, self.method, 0
        states = self._method(method)(task, state)
        best, best_gap = state, gap
        while self.iterations < self.limit and not self.limits.spent():
            new = next(states, None)
            if new is None:
                if method != "auto":
                    break
                method, state = "newton", best
                states = self._method(method)(task, state)
                continue
            state = new
            self.iterations += 1
            self.limits.spent(1)
            self.saved += self._work - work(task)
            finishing += method == "newton"
            if finishing > NEWTON_LIMIT:
                break
            if self.iterations % self.every and method != "newton":
                continue
            gap = task.gap(state)
            if gap < best_gap:
                best, best_gap = state, gap
            if gap <= aim * abs(state.primal):
                break
            slow = slow + 1 if gap > 0.1 * last else 0
            last = gap if slow == 0 else last
            late = self.iterations - begun >= PATIENCE
            if self.screen and gap < 0.1 * shrunk_at and (late or len(task.terms) > many):
                shrunk_at, begun = gap, self.iterations
                before = len(task.terms)
                task, state = self._shrink(task, state, task.sphere(state))
                if not len(task.terms):
                    return task.cone.project(task.push / task.lam)
                if len(task.terms) < before:
                    best, best_gap = state, task.gap(state)
                    states = self._method(method)(task, state)
            if slow * self.every >= 200 and method == "auto":
                method, slow = "newton", 0
                state, last = best, best_gap
                states = self._method(method)(task, state)
        return state.metric if gap <= best_gap else best.metric

    def _method(self, name: str) -> Callable[[Task, State], Iterator[State]]:
        known = {"apg": accelerated, "newton": newton}
        return known.get(name, partial(projected_gradient, memory=self._memory))
