"""One task at a fixed metric: a support vector machine's dual by active sets, started warm.

::

    minimise over u, b    sum_i f_i(<x_i, u> + b) + 1/2 (u - centre)' B^{-1} (u - centre)

With ``theta_i`` the slope of ``f_i``, ``u = centre - B X' theta`` and ``sum theta = 0``. A face is
the set of terms whose slope may move; a Newton step on it (a linear system with one equality) ends
at its minimiser or where a slope meets a bound and leaves the face, and then the terms that violate
optimality most enter. Where many violate (a cold start), a block of them is first brought near its
optimum by pairs of coordinates. Between the metrics of neighbouring outer iterations one to three
faces are enough.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dposv

from cvxscreen._support.immutable import Immutable
from cvxscreen.core.losses import LossTerms
from cvxscreen.multitask.problem import MultiTask, TaskMetric
from cvxscreen.solvers.box_qp import BoxQp

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


def newton_direction(K: Array, q: Array, r: Array, defect: float) -> tuple[Array, float]:
    """``step, change`` with ``(K + diag q) step - change 1 = r`` and ``sum step = defect``.

    A step of the slopes on a face and that of the intercept, by one factorisation with two right
    sides; `K` is overwritten.
    """
    k = len(q)
    diagonal = K.ravel()[:: k + 1]
    diagonal += q
    ridge = 1e-14 * k * float(diagonal.max())
    right = np.empty((k, 2), order="F")
    while True:
        matrix = K.copy(order="F")
        matrix.ravel(order="F")[:: k + 1] += ridge
        right[:, 0], right[:, 1] = r, 1.0
        _, both, failed = dposv(matrix, right, lower=1, overwrite_a=1)
        if not failed:
            break
        ridge = max(100.0 * ridge, 1e-300)
    first, ones = both[:, 0], both[:, 1]
    change = (defect - float(first.sum())) / float(ones.sum())
    return first + change * ones, change


def bounded_direction(
    K: Array, q: Array, r: Array, defect: float, limits: tuple[Array, Array, Array]
) -> tuple[Array, Mask, float, int] | None:
    """The direction with all that would pass a bound held there, until nothing passes.

    Parameters
    ----------
    limits : three arrays
        How far each may fall and rise, and where those start that the plain direction takes beyond
        (0 for the others).

    Returns
    -------
    move, held, change, solves
        Or None where everything would be held.
    """
    low, high, move = limits[0], limits[1], limits[2].copy()
    held, solves = move != 0, 0
    while not held.all():
        inner, fixed = np.flatnonzero(~held), np.flatnonzero(held)
        solves += 1
        pushed = r[inner] - K[inner[:, None], fixed] @ move[fixed]
        left = defect - float(move[fixed].sum())
        step, change = newton_direction(K[inner[:, None], inner], q[inner], pushed, left)
        below, above = step < low[inner], step > high[inner]
        if not (below.any() or above.any()):
            move[inner] = step
            return move, held, change, solves
        for out, end in ((inner[below], low), (inner[above], high)):
            held[out] = True
            move[out] = end[out]
    return None


Index = NDArray[np.intp]

BLOCK_FROM = 60
"""More violating terms than this are first brought near their optimum by a block. No answer depends
on this number or the next four: they say when one method gives way to the other. (Four tasks of 80
samples, hinges and their squares: 120 takes 2.7 times as long, 30 as long; half and twice of the
next four take 0.93 to 1.09 times as long, which is noise.)"""
BLOCK_TERMS = 320
"""Terms of a block."""
BLOCK_ACCURACY = 1e-2
"""A block reduces the largest violation by this factor."""
ENTERING = 8
"""Violating terms that enter a face at once."""
MAX_FACES = 400
"""Newton steps at most."""
_TOLERANCE = 1e-12
"""Derivative that counts as none, relative to margins and intercept: their rounding."""
_STALLED = 6
"""Faces in a row that do not lower the largest violation by a tenth."""


class TaskActiveSet:
    """The iterate of one task: its slopes, intercept, and which slopes are free to move (the face).

    Parameters
    ----------
    X : array, shape (n, d)
    table : five arrays, shape (n,)
        Rows ``b, e, q, lo, hi`` of the losses.
    metric : TaskMetric
    base : array, shape (d,)
        ``u = base - B X' theta``.
    total : float
        What the slopes must sum to.
    theta, b : array and float
        Start.
    """

    def __init__(
        self,
        X: Array,
        table: tuple[Array, ...],
        metric: TaskMetric,
        base: Array,
        total: float,
        theta: Array,
        b: float,
    ) -> None:
        self.X, self.metric, self.base, self.total = X, metric, base, total
        self.shift, self.e, self.q, self.lo, self.hi = table
        self.kinked, self.curved = bool(self.e.any()), bool(self.q.any())
        self.theta = np.minimum(np.maximum(theta, self.lo), self.hi)
        self.b = b
        self.newton_steps = 0
        self.free = self.inside()
        self.slot = np.full(len(theta), -1)
        self.filled = 0
        self.K, self.roots = np.zeros((0, 0)), np.zeros((0, X.shape[1]))
        self.refresh()
        self.size = float(np.abs(self.p).max(initial=0.0) + np.abs(self.shift).max(initial=0.0))

    def inside(self) -> NDArray[np.bool_]:
        """Slopes strictly inside their boxes; those at 0 enter when they want to move."""
        return (self.theta > self.lo) & (self.theta < self.hi) & (self.theta != 0)

    # -- optimality ---------------------------------------------------------------------------

    def refresh(self) -> None:
        """``u`` and predictions (without the intercept) at the current slopes."""
        self.v = -(self.theta @ self.X)
        self.u = self.base + self.metric.B @ self.v
        self.p = self.X @ self.u

    def dual_gradients(self) -> tuple[Array, Array, Array]:
        """``z = p + b - b_i - q theta``, and the dual's derivatives along rising, falling slopes.

        Minus infinity where a slope is at that end of its box; all at most 0 at the optimum.
        """
        theta = self.theta
        z = self.p - self.shift + self.b
        if self.curved:
            z -= self.q * theta
        rise, fall = z.copy(), -z
        if self.kinked:
            rise -= np.where(theta >= 0, self.e, -self.e)
            fall -= np.where(theta <= 0, self.e, -self.e)
        rise[theta >= self.hi] = -np.inf
        fall[theta <= self.lo] = -np.inf
        return z, rise, fall

    # -- the loop -----------------------------------------------------------------------------

    def run(self) -> None:
        """Solve on one face after another until no derivative is positive.

        ``u``, ``v`` and ``p`` are then those of ``theta``.
        """
        best, idle, adding, blocks = np.inf, 0, ENTERING, 0
        while len(self.theta):
            z, rise, fall = self.dual_gradients()
            # b may grow by `above` and has to grow by `below`; any b between will do.
            above, below = -float(rise.max()), float(fall.max())
            left = max(below - above, 0.0)
            move = min(max(0.0, below), above) if left == 0.0 else 0.5 * (below + above)
            self.b += move
            z, rise, fall = z + move, rise + move, fall - move
            tolerance = _TOLERANCE * (self.size + abs(self.b))
            any_free = bool(self.free.any())
            if left <= tolerance:
                off = abs(self.total - float(self.theta.sum()))
                if not any_free or off <= 1e-15 * (1.0 + float(np.abs(self.theta).sum())):
                    return
            idle = 0 if left < 0.9 * best else idle + 1
            best = min(best, left)
            if self.newton_steps >= MAX_FACES or (idle > _STALLED and left <= 1e3 * tolerance):
                return
            violation = np.maximum(rise, fall)
            violation[self.free] = 0.0
            out = np.flatnonzero(violation > tolerance)
            if (len(out) > BLOCK_FROM and blocks < 12) or (idle > 3 * _STALLED and blocks < 20):
                blocks += 1
                self.solve_block(rise, fall, BLOCK_ACCURACY * float(violation.max()))
                continue
            if idle > 4 * _STALLED:
                return
            if len(out):
                adding = adding if idle == 0 else max(adding // 2, 1)
                if len(out) > adding:
                    out = out[np.argsort(-violation[out])[:adding]]
                if not any_free or adding == 1:
                    out = np.array([int(np.argmax(rise)), int(np.argmax(fall))])
                self.free[out] = True
            self.newton_on_face(z)
            self.refresh()

    def products(self, rows: Index) -> Array:
        """``X_F B X_F'``, a fresh array; what is known already is not computed again."""
        at = self.slot[rows]
        new = rows[at < 0]
        if len(new):
            old, count = self.filled, self.filled + len(new)
            roots = np.empty((count, self.X.shape[1]))
            roots[:old] = self.roots[:old]
            np.matmul(self.X[new], self.metric.root, out=roots[old:])
            if old == 0:
                K = roots @ roots.T
            else:
                K = np.empty((count, count))
                K[:old, :old] = self.K
                K[old:] = roots[old:] @ roots.T
                K[:old, old:] = K[old:, :old].T
            self.K, self.roots, self.filled = K, roots, count
            self.slot[new] = np.arange(old, count)
            at = self.slot[rows]
        return self.K[at[:, None], at]

    def newton_on_face(self, z: Array) -> None:
        """Newton steps on the face until one is taken in full."""
        rows = np.flatnonzero(self.free)
        theta, r = self.theta[rows], z[rows]
        low, high, q = self.lo[rows], self.hi[rows], self.q[rows]
        if self.kinked:
            e = self.e[rows]
            # A slope may not pass 0 within a step: the insensitive zone's cost has a kink there.
            up = (theta > 0) | ((theta == 0) & (r > 0))
            r = r - np.where(up, e, -e)
            low = np.where((e > 0) & up, np.maximum(low, 0.0), low)
            high = np.where((e > 0) & ~up, np.minimum(high, 0.0), high)
        defect = self.total - float(self.theta.sum())
        while len(rows):
            self.newton_steps += 1
            step, change = newton_direction(self.products(rows), q, r, defect)
            outward = ((theta <= low) & (step < 0)) | ((theta >= high) & (step > 0))
            # Slopes at an end that the step would push out of the box leave the face first.
            if outward.any() and not outward.all():
                self.free[rows[outward]] = False
                keep = ~outward
            else:
                after = theta + step
                beyond = (after < low) | (after > high)
                if not beyond.any():
                    self.theta[rows] = after
                    self.b += change
                    return
                end = np.where(step > 0, high, low)
                room = np.full(len(rows), np.inf)
                room[beyond] = np.maximum((end[beyond] - theta[beyond]) / step[beyond], 0.0)
                size = min(1.0, float(room.min()))
                # What the plain step would gain up to the first bound it meets; several bounds at
                # once are tried first, where they gain as much, instead of one face a bound.
                least = (size - 0.5 * size**2) * float(r @ step)
                bounds = (low, high, np.where(beyond, end, theta))
                if int(beyond.sum()) > 1 and self.step_with_bounds(
                    rows, theta, r, defect, bounds, least
                ):
                    return
                hit = room <= size
                after = np.minimum(np.maximum(theta + size * step, low), high)
                after[hit] = end[hit]
                self.theta[rows] = after
                self.b += size * change
                self.free[rows[hit]] = False
                if self.newton_steps >= MAX_FACES:
                    return
                # On a quadratic the residual shrinks by what is left of the step.
                r, defect, theta = (1.0 - size) * r, (1.0 - size) * defect, after
                keep = ~hit
            rows, theta, r, q = rows[keep], theta[keep], r[keep], q[keep]
            low, high = low[keep], high[keep]

    def step_with_bounds(
        self,
        rows: Index,
        theta: Array,
        r: Array,
        defect: float,
        bounds: tuple[Array, Array, Array],
        least: float,
    ) -> bool:
        """A Newton step with every slope that would leave its box held at the end it would pass.

        Taken only where the dual objective gains at least `least`, what the plain step to the
        first bound would gain.
        """
        low, high, target = bounds
        q, K = self.q[rows], self.products(rows)
        found = bounded_direction(K, q, r, defect, (low - theta, high - theta, target - theta))
        if found is None:
            return False
        move, held, change, solves = found
        self.newton_steps += solves
        if not float(r @ move - 0.5 * (move @ (K @ move + q * move))) >= least:
            return False
        after = np.minimum(np.maximum(theta + move, low), high)
        ends = held & (move != 0)
        after[ends] = np.where(move > 0, high, low)[ends]
        self.theta[rows] = after
        self.b += change
        self.free[rows[held]] = False
        return True

    # -- far from the optimum -------------------------------------------------------------------

    def solve_block(self, rise: Array, fall: Array, target: float) -> None:
        """Bring the face and the worst terms near their optimum by pairs of coordinates."""
        chosen = np.flatnonzero(self.free)
        if len(self.theta) <= BLOCK_TERMS:
            chosen = np.arange(len(self.theta))
        else:
            for key in (rise, fall):
                key = np.where(self.free, -np.inf, key)
                order = np.argpartition(-key, BLOCK_TERMS // 2)[: BLOCK_TERMS // 2]
                chosen = np.union1d(chosen, order[np.isfinite(key[order])])
        self.restore_sum(chosen)
        roots = self.X[chosen] @ self.metric.root
        before = self.theta[chosen]
        block = BoxQp(
            roots @ roots.T, (self.shift - self.p)[chosen], before.copy(),
            self.lo[chosen], self.hi[chosen], self.e[chosen], self.q[chosen], True,
        )
        block.solve(max(target, 1e-10 * self.size))
        self.theta[chosen] = block.c
        self.free = self.inside()
        self.refresh()

    def restore_sum(self, chosen: Index) -> None:
        """Give the slopes at `chosen` the sum they need; the block keeps it."""
        need = self.total - float(self.theta.sum())
        room = (self.hi - self.theta if need > 0 else self.theta - self.lo)[chosen]
        room = np.minimum(room, abs(need))
        if room.sum() > 0:
            move = np.sign(need) * room * min(1.0, abs(need) / float(room.sum()))
            moved = np.clip(self.theta[chosen] + move, self.lo[chosen], self.hi[chosen])
            self.theta[chosen] = moved
            self.refresh()


class TaskPoint(Immutable):
    """Where one task stands.

    Attributes
    ----------
    theta : array, shape (n,)
        Slopes in their boxes, summing to 0.
    v : array, shape (d,)
        ``-X' theta``.
    u : array, shape (d,)
    b : float
    p : array, shape (n,)
        Predictions ``X u + b``.
    newton_steps : int
        Newton steps it took.
    """

    theta: Array
    v: Array
    u: Array
    b: float
    p: Array
    newton_steps: int = 0


class FixedTerms(Immutable):
    """What does not move: all but the terms at `kept`.

    Attributes
    ----------
    kept : array of int
    rows : array, shape (len(kept), d)
        Their features.
    table : five arrays, shape (len(kept),)
        Their losses, ``b, e, q, lo, hi``.
    """

    kept: Index
    rows: Array
    table: tuple[Array, ...]


def zero_point(X: Array) -> TaskPoint:
    """The point 0, for a task to begin with that has no other."""
    n, d = X.shape
    return TaskPoint(np.zeros(n), np.zeros(d), np.zeros(d), 0.0, np.zeros(n))


def solve_task(
    X: Array,
    losses: LossTerms,
    metric: TaskMetric,
    start: TaskPoint,
    *,
    centre: Array | None = None,
    fixed: FixedTerms | None = None,
) -> TaskPoint:
    """The minimiser, to rounding.

    Parameters
    ----------
    X : array, shape (n, d)
    losses : Losses
        In the prediction ``<x_i, u> + b``.
    metric : TaskMetric
        Its ``B`` is the one above.
    start : TaskPoint
        Its ``theta`` and ``b`` are used.
    centre : array, shape (d,), optional
        Zero when omitted.
    fixed : FixedTerms, optional
        Terms that hold the slopes they have in `start`.
    """
    B = metric.B
    if fixed is None:
        table = (losses.b, losses.e, losses.q, losses.lo, losses.hi)
        base = np.zeros(X.shape[1]) if centre is None else centre
        face = TaskActiveSet(X, table, metric, base, 0.0, start.theta, start.b)
        face.run()
        return TaskPoint(face.theta, face.v, face.u, face.b, face.p + face.b, face.newton_steps)
    kept, rows, theta = fixed.kept, fixed.rows, start.theta.copy()
    mine = theta[kept]
    held = start.v + mine @ rows  # -X' theta of the terms that stay where they are
    base = B @ held if centre is None else centre + B @ held
    total = float(mine.sum() - theta.sum())  # so that rounding does not add up
    face = TaskActiveSet(rows, fixed.table, metric, base, total, mine, start.b)
    face.run()
    theta[kept] = face.theta
    return TaskPoint(theta, held + face.v, face.u, face.b, X @ face.u + face.b, face.newton_steps)


class Stacked(NamedTuple):
    """The points of all m tasks: U and V (d, m), b (m,), p and theta (n,), task after task."""

    U: Array
    V: Array
    b: Array
    p: Array
    theta: Array

    @classmethod
    def of(cls, points: list[TaskPoint]) -> Stacked:
        """Stack the points of all tasks, those of the first one first."""
        return cls(
            np.column_stack([point.u for point in points]),
            np.column_stack([point.v for point in points]),
            np.array([point.b for point in points]),
            np.concatenate([point.p for point in points]),
            np.concatenate([point.theta for point in points]),
        )


def solve_tasks(
    problem: MultiTask, metric: TaskMetric, points: list[TaskPoint], centres: Array
) -> list[TaskPoint]:
    """Every task around its column of `centres`, shape (d, m), from its point in `points`."""
    tables = zip(problem.X, problem.task_losses, points, strict=True)
    return [
        solve_task(X, losses, metric, point, centre=centres[:, k])
        for k, (X, losses, point) in enumerate(tables)
    ]
