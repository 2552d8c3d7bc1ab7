"""Stretches of a path over C for problems of few coordinates, solved compiled and certified.

`CompiledPath` prepares the arrays of `small_loops.run` once, keeps the state between stretches, and
lets `certify_many` recompute every point before anybody sees it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from cvxscreen.certificates.path import Certificates, PackedSlopes, certify_many
from cvxscreen.core.duality import reference_point
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows
from cvxscreen.solvers.compiled_path.path_loop import (
    CERTIFIED,
    COLUMNS,
    MEMORY,
    OFF,
    SAFE,
    compiled,
)
from cvxscreen.solvers.newton import default_weight

Array = NDArray[np.float64]

WIDTH = 64
"""Most coordinates."""

ENTRIES = 10_000_000
"""Most numbers in the data."""

SLOPES = 10_000_000
"""Most numbers in the dual points of one stretch."""

SECONDS = 0.3
"""How long a stretch may take, so that progress is shown and an interrupt is heard."""

SCREENS = {"off": OFF, "safe": SAFE, "certified": CERTIFIED}


def suits(problem: Problem) -> bool:
    """Whether `CompiledPath` takes `problem`: dense rows, few coordinates, ``M`` the identity.

    One coordinate may be unpenalised. False without numba.
    """
    diagonal = problem.quadratic.diagonal
    return (
        isinstance(problem.design, Rows)
        and not problem.design.sparse
        and 0 < problem.d <= WIDTH
        and problem.n * problem.d <= ENTRIES
        and problem.side is None
        and problem.penalty is None
        and problem.quadratic.matrix is None
        and bool(((diagonal == 1.0) | (diagonal == 0.0)).all())
        and int((diagonal == 0.0).sum()) <= 1
        and not problem.linear.any()
        and problem.drift == problem.imbalance == 0.0
        and compiled() is not None
    )


@dataclass(frozen=True, eq=False)
class PathSegment:
    """Points that were solved together, K of them.

    Attributes
    ----------
    values : array, shape (K,)
        C of each.
    X : array, shape (K, d)
    theta : PackedSlopes
    record : array, shape (K, len(COLUMNS))
        What the compiled loop says about its work.
    proofs : Certificates
        Of all K points.
    seconds : float
        Wall time of the stretch.
    """

    values: Array
    X: Array
    theta: PackedSlopes
    record: Array
    proofs: Certificates
    seconds: float

    def __len__(self) -> int:
        return len(self.values)


class CompiledPath:
    """The compiled path of one problem.

    Parameters
    ----------
    problem : Problem
        One that `suits`.
    screen : {"certified", "safe", "off"}
        What may be fixed before a point is solved. ``"certified"`` guesses from the ball of the
        point before, reduced to a share of its radius that adapts; ``"safe"`` fixes what that ball
        proves (nothing with an unpenalised coordinate); ``"off"`` nothing.
    tol : float
        Relative gap.
    """

    def __init__(self, problem: Problem, screen: str, tol: float) -> None:
        self.problem, self.screen, self.tol = problem, SCREENS[screen], tol
        losses, (n, d) = problem.losses, problem.design.shape
        self.rows = np.ascontiguousarray(problem.design.dense())
        self.A = np.ascontiguousarray(self.rows.T)
        free = np.flatnonzero(problem.quadratic.free)
        self.free = int(free[0]) if len(free) else -1
        self.base = float(np.square(self.A[self.free]).sum()) if len(free) else 0.0
        # A guess is about all coordinates, a proof about the penalised ones.
        self.norms = problem.norms if self.screen == SAFE or not len(free) else problem.sizes
        self.inverse = 1.0 / np.maximum(losses.q, 1e-300)
        far, (k1, k2, k3, k4) = np.inf, losses.knots
        falls, rises = losses.lo < 0.0, losses.hi > 0.0
        self.knots = np.stack([
            np.where(falls, k1, -far), np.where(falls, k2, -far),
            np.where(rises, k3, far), np.where(rises, k4, far),
        ])
        self.x, self.theta = np.zeros(d), np.zeros(n)
        self.t, self.older = np.zeros(n), np.zeros(n)
        self.memory = np.zeros(MEMORY)
        self.recall(None)
        self.pace = 1e-5 + 1e-8 * n * (d + 10)  # seconds a point, until one has been measured

    def recall(self, memory: Sequence[float] | None) -> None:
        """Take over what another run had learnt; the beginner's guesses when None."""
        if memory is not None and len(memory) == MEMORY:
            self.memory[:] = memory
            return
        self.memory[:] = 0.0
        self.memory[1], self.memory[2], self.memory[6] = default_weight(self.problem), 0.5, 1e-5
        span = self.problem.losses.hi - self.problem.losses.lo
        span = span[(span > 0) & np.isfinite(span)]
        self.memory[10] = 1.0 / (float(np.median(span)) * self.memory[1]) if len(span) else 1.0

    def restart(self, value: float, x: Array, theta: Array) -> None:
        """Go on from a point that was solved elsewhere, at C = `value`."""
        point = reference_point(self.problem.with_(C=value), x, theta)
        self.x[:], self.theta[:], self.t[:] = point.x, point.theta, point.margins
        factor = value / self.problem.C
        reach = point.primal_dual_distance * (1.0 + 1e-14) + point.dual_error
        self.memory[[0, 3, 4, 5, 7]] = factor, point.primal, point.terms, reach, 0.0

    def length(self, left: int) -> int:
        """How many of the `left` points the next stretch takes."""
        return max(1, min(left, SLOPES // self.problem.n, int(SECONDS / max(self.pace, 1e-9))))

    def solve(self, values: Array) -> PathSegment:
        """The points at `values`, in that order; the stretch ends after a point that was missed."""
        began = perf_counter()
        losses, K, n = self.problem.losses, len(values), self.problem.n
        X, record = np.empty((K, self.problem.d)), np.zeros((K, len(COLUMNS)))
        factors, codes = values / self.problem.C, np.empty((K, n), dtype=np.int8)
        pool, first = np.empty(K * n), np.zeros(K, dtype=np.int64)  # what is not used costs nothing
        loop = compiled()
        count = 0 if loop is None else loop(
            self.A, self.rows, losses.b, losses.e, losses.q, self.inverse, losses.lo, losses.hi,
            self.norms, losses.knot_error, self.knots, self.free, self.base, factors, self.screen,
            self.tol, self.x, self.theta, self.t, self.older, self.memory, X, codes, pool, first,
            record,
        )
        values, X = values[:count], X[:count]
        theta = PackedSlopes(losses.lo, losses.hi, factors, codes, pool, first).head(count)
        proofs = certify_many(self.problem, values, X, theta, tol=self.tol)
        seconds = perf_counter() - began
        self.pace = seconds / max(count, 1)
        return PathSegment(values, X, theta, record[:count], proofs, seconds)
