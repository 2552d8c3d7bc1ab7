"""One problem in, one certified solution out: which engine solves it, for whoever asks.

`cvxscreen.solve` and ``prob.solve(method="screen")`` take the same way: the compiled path where the
problem suits it and the code is there (or has become due, see `segments.CompileClock`; few terms go
by numpy until then), metric learning by its own method, everything else by the loop of screening
with the solver that suits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from time import perf_counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen.bounds import Bound, default_bounds, midpoint_ball
from cvxscreen.certificates.certificate import Certificate, Passes
from cvxscreen.certificates.many import certify_many
from cvxscreen.core.duality import dual_feasible
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.screening.reduction import Screening
from cvxscreen.solvers.compiled_path.loops import COLUMNS
from cvxscreen.solvers.compiled_path.segments import (
    CALL,
    PARTS,
    KeptPath,
    before_loading,
    charge,
    ready,
)
from cvxscreen.solvers.interface import Start, SubproblemResult, SubproblemSolver
from cvxscreen.solvers.registry import compiled_path, has_kernel, left_to_us, named_solver
from cvxscreen.solvers.solution import Answer, Round, Solution, warm_start

Array = NDArray[np.float64]


def solve_problem(
    problem: Problem,
    *,
    tol: float,
    mode: str = "certified",
    solver: str | SubproblemSolver = "auto",
    bounds: tuple[Bound, ...] | None = None,
    start: Solution | Start | None = None,
    limits: Limits = UNLIMITED,
    on_round: Callable[[Round], None] | None = None,
    kept: KeptPath | None = None,
) -> Solution:
    """Solve `problem` by the engine that suits it, or by the solver that is named.

    Parameters
    ----------
    problem : Problem
    tol : float
        Relative duality gap on the full problem.
    mode : {"certified", "safe"}
    solver : str or SubproblemSolver
        As for `cvxscreen.solve`.
    bounds : tuple of Bound, optional
        What to prove with; the default of the problem when omitted.
    start : Solution or Start, optional
        Of the same problem or of the same data at another C (a solution), or on the very problem.
    limits : Limits
    on_round : callable, optional
        Gets the record of every finished round.
    kept : KeptPath, optional
        What earlier solves of the same data at other costs have left, and what this one leaves.

    Returns
    -------
    Solution

    Raises
    ------
    UnknownName, InvalidInput
        For a solver that does not exist, or does not take the problem.
    """
    chosen = default_bounds(problem) if bounds is None else bounds
    plain = start is None and bounds is None and mode == "certified" and on_round is None
    plain = plain and limits is UNLIMITED
    asked = InUnits.of(problem)
    suits = plain and compiled_path(asked.unit, solver)
    if suits:
        found = _without_the_loop(asked, tol, chosen, kept)
    else:
        with_kernel = plain and left_to_us(solver) and has_kernel(problem)
        found = solve_with_kernel(problem, tol, chosen) if with_kernel else None
    if found is not None:
        return found
    inner = named_solver(solver, problem, limits)
    # Metric learning has a way of its own, which proves by the midpoint ball alone.
    if chosen == (midpoint_ball,) and problem.penalty is not None:
        from cvxscreen.solvers.metric.solver import MetricSolver, solve_metric

        if isinstance(inner, MetricSolver):
            return solve_metric(
                problem, mode=mode, tol=tol, method=inner.method, bounds=chosen,
                on_round=on_round, limits=limits,
                start=None if start is None else Start(start.x, start.theta),
            )
    from cvxscreen.solvers.loop import solve_screened

    with PARTS.rent() if suits else nullcontext():
        return solve_screened(
            problem,
            inner,
            mode=mode,
            tol=tol,
            start=warm_start(problem, start) if isinstance(start, Solution) else start,
            bounds=chosen,
            on_round=on_round,
        )


def _without_the_loop(
    asked: InUnits, tol: float, bounds: tuple[Bound, ...], kept: KeptPath | None
) -> Solution | None:
    """What the compiled path, or for few terms numpy, makes of a problem that suits both.

    None where the code is not there yet and the terms are many, or the certificate refuses it.
    """
    unit, again = asked.unit, kept is not None and kept.again()
    if before_loading(unit):  # asked first: `ready` imports numba
        # Who solves it again is likely to do so once more.
        charge(unit, FEW_CALL if few(unit) else CALL, 2 if again else 1)
        return solve_uncompiled(asked, tol, bounds) if few(unit) else None
    if not ready():
        if not few(unit):
            return None
        with PARTS.rent():
            return solve_uncompiled(asked, tol, bounds)
    if not again and _descends(unit):
        return solve_by_descent(asked, tol, bounds)
    found = solve_one(asked, tol, bounds, kept=kept)
    if found is None and kept is not None:
        kept.path = None  # nothing to go on from
    return found


def _descends(problem: Problem) -> bool:
    """Whether coordinate descent is the way to begin with, and need not be compiled first."""
    from cvxscreen.solvers.dual_coordinate_descent import begins
    from cvxscreen.solvers.dual_coordinate_descent import ready as compiled

    return begins(problem) and compiled(problem)


@dataclass(frozen=True, eq=False)
class InUnits:
    """A problem divided by the factor of its squared norm, for engines of ``M = I``.

    ``lam |w|^2 + losses`` has the optimum of ``1/2 |w|^2 + losses / (2 lam)``.

    Attributes
    ----------
    problem : Problem
        As it was asked.
    unit : Problem
        Divided; `problem` itself where its squares have different factors, or no other.
    size : float
        The factor.
    """

    problem: Problem
    unit: Problem
    size: float = 1.0

    @classmethod
    def of(cls, problem: Problem) -> InUnits:
        """Divide `problem` where that can be done."""
        quadratic = problem.quadratic
        if problem.side is not None or problem.penalty is not None or quadratic.matrix is not None:
            return cls(problem, problem)
        squared = quadratic.diagonal[quadratic.diagonal > 0.0]
        size = float(squared[0]) if len(squared) else 1.0
        if size == 1.0 or not (squared == size).all() or not np.isfinite(1.0 / size):
            return cls(problem, problem)
        unit = replace(
            problem,
            losses=problem.losses.scaled(1.0 / size),
            quadratic=Quadratic((quadratic.diagonal > 0.0).astype(np.float64)),
            linear=problem.linear / size,
            constant=problem.constant / size,
        )
        if not problem.design.streamed:
            _ = problem.norms  # both need them, at the cost of a pass
        unit.known.inherit_rows(problem.known, form=1.0 / size)
        return cls(problem, unit, size)

    def slopes(self, theta: Array) -> Array:
        """Slopes of the losses of `unit` as those of `problem`, within their boxes."""
        losses = self.problem.losses
        return theta if self.size == 1.0 else np.clip(self.size * theta, losses.lo, losses.hi)


# -- one value of C, or few terms without a compiler: with the record of the loop ------------------


FEW, FINE = 400, 1e-13
"""Up to so many terms, a relative gap of 1e-13 is asked for: a Newton step or two, and then what
does not depend on the data's order or on repeated rows does not depend on them in the answer."""

CLOSE = 0.95
"""Share of the tolerance that coordinate descent is asked for: the certificate charges rounding."""

NEAR = 1e-2
"""Relative gap up to which the path begins where coordinate descent was given up. On 12 problems
that it gives up with a smaller one, it and the path take 0.55 to 1.5 times as long as the path
alone, and 1.1 to 1.7 where that begins anew."""


def solve_one(
    asked: InUnits, tol: float, bounds: tuple[Bound, ...], start: SubproblemResult | None = None,
    kept: KeptPath | None = None,
) -> Solution | None:
    """Solve a problem in the certified mode; None where the certificate refuses the answer.

    Parameters
    ----------
    asked : InUnits
        Whose unit `suits`.
    tol : float
        Relative gap.
    bounds : tuple of Bound
        What the answer proves is proven by.
    start : SubproblemResult, optional
        Where another solver has got to, for the unit.
    kept : KeptPath, optional
        Where an earlier solve of the same data has.
    """
    began = perf_counter()
    problem, unit = asked.problem, asked.unit
    aim = min(tol, FINE) if problem.n <= FEW else tol
    path, value = (kept or KeptPath()).to(unit, aim)
    if start is not None and start.info["relative_gap"] <= NEAR:
        path.restart(unit.C, start.x, start.theta)
    found = path.points(np.array([value]))
    del path  # its copy of the data is gone before the answer is certified, which takes room, too
    if not len(found.values):
        return None
    theta = found.theta
    if asked.size != 1.0 or value != unit.C:
        theta = theta.times(asked.size, problem.losses)
    proofs = certify_many(problem, np.array([problem.C]), found.X, theta, tol=tol)
    spent = perf_counter() - began
    if not proofs.relative_gap[0] <= tol:
        return None
    gap, primal = float(proofs.gap[0]), float(proofs.primal[0])
    proof = Certificate(
        gap, float(proofs.relative_gap[0]), primal, primal - gap, 0.0, tol, True
    )
    answer = Answer(problem, found.X[0], theta.row(0), np.zeros(0), proof, Passes())
    work = dict(zip(COLUMNS, found.record[0].tolist(), strict=True))
    counts = {name: int(work[name]) for name in ("kept", "predicted", "refuted")}
    info = {"steps": int(work["steps"]), "passes": work["passes"]}
    return _solution(answer, bounds, counts, info, (began, spent))


def solve_by_descent(
    asked: InUnits, tol: float, bounds: tuple[Bound, ...]
) -> Solution | None:
    """The same by coordinate descent; where that would cost more, the path goes on from there."""
    from cvxscreen.solvers.dual_coordinate_descent import DualCoordinateDescent

    began = perf_counter()
    descent = DualCoordinateDescent.beginning(asked.unit, None, CLOSE * tol)
    found = descent(asked.unit)
    spent = perf_counter() - began
    if found.status == "optimal":
        pair = (found.x, found.theta)
        answer = _certified(asked, pair, tol, bounds, found.info, (began, spent))
        if answer is not None:
            return answer
    return solve_one(asked, tol, bounds, found)


def solve_uncompiled(
    asked: InUnits, tol: float, bounds: tuple[Bound, ...]
) -> Solution | None:
    """The same for a problem of `few` terms, compiling nothing."""
    began = perf_counter()
    unit = asked.unit
    aim = min(1e-2 * tol, FINE) if unit.n <= FEW else 1e-2 * tol
    with np.errstate(all="ignore"):  # judged by the certificate
        x, theta, steps = solve_few(unit, aim)
    spent = perf_counter() - began
    if not np.isfinite(x).all():
        return None
    theta, _ = dual_feasible(unit, theta)  # what is left on an intercept costs the certificate
    info = {"steps": steps, "passes": 3.0 * steps}
    return _certified(asked, (x, theta), tol, bounds, info, (began, spent))


def solve_with_kernel(problem: Problem, tol: float, bounds: tuple[Bound, ...]) -> Solution | None:
    """The same for a kernel problem of few points, over its whole matrix."""
    from cvxscreen.solvers.kernel_parts import alone, solve_parts

    began = perf_counter()
    parts = alone(problem)
    if parts is None:
        return None
    c, intercepts, (proof,) = solve_parts(parts, tol)
    if not proof.ok:
        return None
    x = c
    if parts.gram.intercept:
        x = np.append(c, intercepts[0] + parts.gram.offset(c))
    spent = perf_counter() - began
    answer = Answer(problem, x, -parts.sign * c, np.zeros(0), proof, Passes())
    return _solution(answer, bounds, {}, {}, (began, spent))


def _certified(
    asked: InUnits, pair: tuple[Array, Array], tol: float, bounds: tuple[Bound, ...],
    info: Mapping[str, object], times: tuple[float, float],
) -> Solution | None:
    """``(x, theta)`` of the unit as a solution of the problem; None where it is refused."""
    problem, (x, theta) = asked.problem, pair
    answer = Answer.of(problem, x, asked.slopes(theta), np.zeros(0), tol)
    if not answer.proof.ok:
        return None
    return _solution(answer, bounds, {}, info, times)


def _solution(
    answer: Answer, bounds: tuple[Bound, ...], counts: dict[str, int], info: Mapping[str, object],
    times: tuple[float, float],
) -> Solution:
    """The record of a call of one round that began at the first of `times`.

    It kept all terms where `counts` says nothing.
    """
    began, spent = times
    counts = counts or {"kept": answer.problem.n, "predicted": 0, "refuted": 0}
    only = Round(
        number=1, proven=0, **counts, gap=answer.proof.gap,
        relative_gap=answer.proof.relative_gap, solver_status="optimal", solver_info=info,
        solve_seconds=spent, seconds=perf_counter() - began,
    )
    return Solution(
        problem=answer.problem, x=answer.x, theta=answer.theta, multipliers=answer.multipliers,
        status="optimal", certificate=answer.proof, earlier=Screening.empty(answer.problem),
        rounds=(only,), bounds=bounds, answer=answer, solver="BUILTIN", mode="certified",
        seconds=perf_counter() - began,
    )


# -- without a compiler ---------------------------------------------------------------------------
#
# In numpy alone, in about a millisecond: few terms wait for no compiler. Every loss is the sum of
# at most two one-sided ones, max_{0 <= s <= u} s z - q/2 s^2 with z = +-(t - b) - e. With their
# rows G (plus or minus the rows of the design) and offsets beta the optimum is where
#
#     M x + G' s = 0,    G x - beta - q s + low - high = 0,
#     low s = 0,    high (u - s) = 0,    s, u - s, low, high >= 0.
#
# Newton's method with the right-hand sides of the last two lines on the way to 0, a predictor and a
# corrector (Mehrotra 1992): ten to fifteen systems of size d whatever C is.
#
# `cvxscreen.solvers.interior_point` is the method in full, with constraints, data by blocks and
# exact faces; on 100 x 5 it takes 3.5 ms where this one takes 0.7 (hinge, CPU), and `Newton` 4 to
# 7.


TERMS, ENTRIES = 2000, 40_000
"""Most terms, and most numbers in their rows: about where `Newton`, in numpy too, is as fast."""

FEW_CALL = 1e-3
"""CPU seconds of such a call, about; `segments.charge` counts them."""

STEPS = 60
"""Most steps; a dozen is usual."""

BACK = 0.995
"""Share of the way to the boundary that a step goes."""

STUCK = 8
"""Steps without a smaller sum of products that end the search."""


class Sides(NamedTuple):
    """One-sided losses, m of them.

    Attributes
    ----------
    rows : array, shape (m, d)
    beta, q, u : array, shape (m,)
        `u` is 1 where there is no end.
    ended : array, shape (m,)
        1 where there is one, else 0.
    right, left : array of int
        The terms that they belong to: those that rise, then those that fall.
    """

    rows: Array
    beta: Array
    q: Array
    u: Array
    ended: Array
    right: NDArray[np.intp]
    left: NDArray[np.intp]

    @classmethod
    def of(cls, problem: Problem) -> Sides:
        """The two sides of every loss of `problem`."""
        f, rows = problem.losses, problem.design.dense()
        right, left = np.flatnonzero(f.hi > 0.0), np.flatnonzero(f.lo < 0.0)
        u = np.concatenate([f.hi[right], -f.lo[left]])
        ended = np.isfinite(u)
        return cls(
            np.concatenate([rows[right], -rows[left]]),
            np.concatenate([f.b[right] + f.e[right], f.e[left] - f.b[left]]),
            np.concatenate([f.q[right], f.q[left]]), np.where(ended, u, 1.0),
            ended.astype(np.float64), right, left,
        )

    def slopes(self, s: Array, n: int) -> Array:
        """The slopes of the losses themselves, shape (n,)."""
        theta, cut = np.zeros(n), len(self.right)
        theta[self.right] = s[:cut]
        theta[self.left] -= s[cut:]
        return theta


def few(problem: Problem) -> bool:
    """Whether `problem` has so few terms that `solve_few` is the quickest without a compiler."""
    return problem.n <= TERMS and problem.n * problem.d <= ENTRIES


def solve_few(problem: Problem, tol: float) -> tuple[Array, Array, int]:
    """``(x, theta, steps)`` to a relative gap of about `tol`, by its own numbers.

    For dense rows and a diagonal M without a linear term; theta lies within its boxes.
    """
    sides = Sides.of(problem)
    rows, beta, q, u, ended = sides[:5]
    diagonal, least = np.diag(problem.quadratic.diagonal), 1e-300
    x = np.zeros(problem.d)
    typical = np.abs(beta) / np.maximum(q, 1e-12) + 1.0  # only where there is no end: q > 0
    s = np.where(ended > 0.0, 0.5 * u, typical)
    excess = beta + q * s
    middle = float(np.abs(excess).mean()) + least
    low = np.maximum(excess, 0.0) + middle
    high = ended * (np.maximum(-excess, 0.0) + middle)
    count = len(s) + float(ended.sum())
    best, kept, waited, step = np.inf, (x, s), 0, 0
    while step < STEPS and len(s):
        room = ended * (u - s) + (1.0 - ended)
        dual = diagonal @ x + s @ rows
        z = rows @ x - beta
        slack = z - q * s + low - high
        value = 0.5 * float(x @ diagonal @ x) + float(s @ (z - 0.5 * q * s))
        first, second = low * s, high * room
        total = float(first.sum() + second.sum())
        gap = total + float(np.square(np.abs(dual).max())) + float(np.abs(slack) @ s)
        waited += 1
        if gap < best:
            waited = 0 if gap < 0.5 * best else waited
            best, kept = gap, (x, s)
        done = best <= tol * abs(value) or waited > STUCK
        if done or not (np.isfinite(gap) and total > 0.0):  # all targets 0: nothing is left to pull
            break
        over, under = low / s, high / room
        weight = 1.0 / (q + over + under)
        matrix = diagonal + (rows * weight[:, None]).T @ rows
        try:
            inverse = np.linalg.inv(matrix)
        except np.linalg.LinAlgError:
            break
        change = (x, s, low, high)
        for corrector in (False, True):
            if corrector:
                affine = _length((s, room, low, high), (change[1], -change[1], *change[2:]), ended)
                left = (low + affine * change[2]) @ (s + affine * change[1])
                left += (high + affine * change[3]) @ (room - affine * change[1])
                aim = total / count * (max(float(left), 0.0) / total) ** 3
                first = low * s + change[2] * change[1] - aim
                second = ended * (high * room - change[3] * change[1] - aim)
            right = first / s - second / room - slack
            dx = inverse @ ((weight * right) @ rows - dual)
            ds = weight * (rows @ dx - right)
            change = (dx, ds, -first / s - over * ds, ended * (under * ds - second / room))
        length = BACK * _length((s, room, low, high), (change[1], -change[1], *change[2:]), ended)
        length = min(length / BACK, 1.0) if length >= BACK else length
        x, s, low, high = (
            old + length * new for old, new in zip((x, s, low, high), change, strict=True)
        )
        step += 1
    x, s = kept
    theta = np.clip(sides.slopes(s, problem.n), problem.losses.lo, problem.losses.hi)
    return x, theta, step


def _length(now: tuple[Array, ...], change: tuple[Array, ...], ended: Array) -> float:
    """The longest step, at most 1, that leaves everything positive."""
    longest = 1.0
    for index, (value, move) in enumerate(zip(now, change, strict=True)):
        ratio = -move / value if index % 2 == 0 else ended * -move / np.maximum(value, 1e-300)
        most = float(ratio.max())
        if most * longest > 1.0:
            longest = 1.0 / most
    return longest


