"""One problem in, one certified solution out: which engine solves it, for whoever asks.

`cvxscreen.solve` and ``prob.solve(method="screen")`` take the same way: the compiled path where the
problem suits it and the code is there (or has become due, see `CompileClock`; few terms go
by numpy until then), metric learning by its own method, everything else by the loop of screening
with the solver that suits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.compiled import at_hand
from cvxscreen._support.immutable import Immutable
from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen.bounds import Bound, default_bounds, midpoint_ball
from cvxscreen.certificates.certificate import Certificate, Passes
from cvxscreen.core.duality import dual_feasible
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.screening.reduction import Screening
from cvxscreen.solvers.compiled_path.loops import COLUMNS, newton
from cvxscreen.solvers.compiled_path.segments import (
    CALL,
    PARTS,
    KeptPath,
    before_loading,
    charge,
    charged,
    ready,
    stored,
)
from cvxscreen.solvers.few_terms import FEW_CALL, SHARE_OF_NEARBY, Continuation, few, solve_few
from cvxscreen.solvers.interface import Start, SubproblemResult, SubproblemSolver
from cvxscreen.solvers.registry import (
    PLAIN,
    WIDE_CALLS,
    begins_by_descent,
    builtin_takes,
    compiled_path,
    has_kernel,
    left_to_us,
    named_solver,
    newton_before_loops,
)
from cvxscreen.solvers.solution import Answer, Round, Solution, warm_start

Array = NDArray[np.float64]


def solve_problem(
    problem: Problem | InUnits,
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
    problem : Problem or InUnits
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

    Raises
    ------
    UnknownName, InvalidInput
        For a solver that does not exist, or does not take the problem.
    """
    asked = problem if isinstance(problem, InUnits) else InUnits.of(problem)
    problem = asked.problem
    chosen = default_bounds(problem) if bounds is None else bounds
    plain = start is None and bounds is None and mode == "certified" and on_round is None
    plain = plain and (limits is UNLIMITED or is_far(limits, problem))
    suits = plain and left_to_us(solver) and asked.on_path
    found: Solution | None = None
    begun, renting = None, charged if suits else nullcontext
    if suits:
        found = _without_the_loop(asked, tol, chosen, kept)
    elif plain and left_to_us(solver) and has_kernel(problem):
        from cvxscreen.solvers.smo import DEMAND_CLOCK

        found, begun = solve_with_kernel(problem, tol, chosen)
        renting = nullcontext if DEMAND_CLOCK.bought else DEMAND_CLOCK.rent
    if found is not None:
        return found
    soon = plain and left_to_us(solver) and newton_before_loops(problem)
    if soon:
        charge(problem, times=WIDE_CALLS - 1)  # once where it does not begin by coordinate descent
    inner = PLAIN.solver() if soon else named_solver(solver, problem, limits)
    if begun is not None:
        inner = replace(inner, begun=begun)  # type: ignore[type-var]  # of `Smo`
    free = left_to_us(solver) and not soon and begun is None and builtin_takes(problem)
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

    with renting():
        solution = solve_screened(
            problem,
            None if free else inner,
            mode=mode,
            tol=tol,
            start=warm_start(problem, start) if isinstance(start, Solution) else start,
            bounds=bounds,
            on_round=on_round,
            limits=limits,
        )
    if suits and kept is not None:
        _keep_near(kept, asked.unit, solution if solution.certificate.ok else None)
    return solution


AMPLE, ENTRY = 5.0, 1e-6
"""Seconds, and for each entry of the data, that a time limit leaves where it is far off: a thousand
passes, of which one solve takes 10 to 300. (With a limit of a minute, which nothing came near, CPU
time was 3.6 times that without in the geometric mean of nine problems from 100 x 5 to 20,000 x 400,
up to 20 times.)"""


def is_far(limits: Limits, problem: Problem) -> bool:
    """Whether `problem` is solved long before `limits` end, so that nobody need look at them.

    What is compiled as one loop cannot be interrupted.
    """
    seconds = limits.seconds
    if seconds is None or limits.iterations is not None or problem.design.streamed:
        return False
    return seconds >= AMPLE + ENTRY * stored(problem)


def _without_the_loop(
    asked: InUnits, tol: float, bounds: tuple[Bound, ...], kept: KeptPath | None
) -> Solution | None:
    """What the compiled path, or for few terms numpy, makes of a problem that suits both.

    None where the code is not there yet and the terms are many, or the certificate refuses it.
    """
    unit, again = asked.unit, kept is not None and kept.again()
    if before_loading(unit):  # asked first: `ready` imports numba
        near = solve_nearby(asked, tol, bounds, kept)
        if near is not None:
            charge(unit, times=SHARE_OF_NEARBY)
            return near
        # Who solves it again is likely to do so once more.
        charge(unit, FEW_CALL if few(unit) else CALL, 2 if again else 1)
        return solve_uncompiled(asked, tol, bounds, kept) if few(unit) else None
    if not ready():
        with PARTS.rent():
            near = solve_nearby(asked, tol, bounds, kept)
            if near is not None or not few(unit):
                return near
            return solve_uncompiled(asked, tol, bounds, kept)
    if kept is not None:
        kept.near = None
    if not again and _descends(unit):
        return solve_by_descent(asked, tol, bounds)
    found = solve_one(asked, tol, bounds, kept=kept)
    if found is None and kept is not None:
        kept.path = None  # nothing to go on from
    return found


def _descends(problem: Problem) -> bool:
    """Whether coordinate descent is the way to begin with, and need not be compiled first."""
    if not begins_by_descent(problem):
        return False
    from cvxscreen.solvers.dual_coordinate_descent import ready as compiled

    return compiled(problem)


class InUnits(Immutable):
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

    @cached_property
    def on_path(self) -> bool:
        """Whether `unit` goes to the compiled path, where nobody names another solver."""
        return compiled_path(self.unit, "auto")

    def slopes(self, theta: Array) -> Array:
        """Slopes of the losses of `unit` as those of `problem`, an end of a box as that end."""
        if self.size == 1.0:
            return theta
        losses, unit = self.problem.losses, self.unit.losses
        slopes = np.clip(self.size * theta, losses.lo, losses.hi)
        np.copyto(slopes, losses.lo, where=theta == unit.lo)
        np.copyto(slopes, losses.hi, where=theta == unit.hi)
        return slopes


# -- one value of C, or few terms without a compiler: with the record of the loop ------------------


FEW, FINE = 400, 1e-13
"""Up to so many terms, a relative gap of 1e-13 is asked for: a Newton step or two, and then what
does not depend on the data's order or on repeated rows does not depend on them in the answer."""

CLOSE = 0.95
"""Share of the tolerance that coordinate descent is asked for: the certificate charges rounding."""

NEAR = 1e-3
"""Relative gap up to which the path begins where coordinate descent was given up. From 1.5e-4 to
7.5e-4 it takes 0.7 to 1.15 of the time that it takes when it begins anew, at 2.9e-3 1.6, at 6.3e-3
0.97 (ijcnn1, covtype, normal rows of 40 columns)."""


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
    from cvxscreen.certificates.many import certify_many

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
    """The same by cheap passes; where these would cost more, the path goes on from there."""
    from cvxscreen.solvers.beginning import beginning
    from cvxscreen.solvers.truncated_newton import without_newton_steps

    began = perf_counter()
    found = beginning(asked.unit, None, CLOSE * tol)(asked.unit)
    spent = perf_counter() - began
    if found.status == "optimal":
        pair = (found.x, found.theta)
        answer = _certified(asked, pair, tol, bounds, found.info, (began, spent))
        if answer is not None:
            return answer
    with without_newton_steps(asked.unit):
        return solve_one(asked, tol, bounds, found)


def solve_nearby(
    asked: InUnits, tol: float, bounds: tuple[Bound, ...], kept: KeptPath | None
) -> Solution | None:
    """The same from the last solve on, compiling nothing; None where that was none, or too far."""
    if kept is None or kept.near is None:
        return None
    near, kept.near = kept.near, None  # nothing to go on from, unless the answer is certified
    factor = near.factor(asked.unit)
    if factor is None:
        return None
    found = _uncompiled(
        asked, tol, bounds, lambda unit, aim: near.solve(unit, factor, aim)
    )
    kept.near = None if found is None else near
    return found


def solve_uncompiled(
    asked: InUnits, tol: float, bounds: tuple[Bound, ...], kept: KeptPath | None = None
) -> Solution | None:
    """The same for a problem of `few` terms, compiling nothing."""
    found = _uncompiled(asked, tol, bounds, solve_few)
    if kept is not None:
        _keep_near(kept, asked.unit, found)
    return found


def _keep_near(kept: KeptPath, unit: Problem, found: Solution | None) -> None:
    """Let the next solve begin at `found`, if that is an answer and nothing is compiled till then.

    Asked in this order: what is compiled is known once numba is imported.
    """
    kept.near = None
    if found is not None and (before_loading(unit) or not at_hand(newton)):
        with np.errstate(all="ignore"):
            kept.near = Continuation.of(unit, found.x)


def _uncompiled(
    asked: InUnits, tol: float, bounds: tuple[Bound, ...],
    method: Callable[[Problem, float], tuple[Array, Array, int] | None],
) -> Solution | None:
    """What `method` finds for the unit, certified."""
    began = perf_counter()
    unit = asked.unit
    aim = min(1e-2 * tol, FINE) if unit.n <= FEW else 1e-2 * tol
    with np.errstate(all="ignore"):  # judged by the certificate
        answer = method(unit, aim)
    spent = perf_counter() - began
    if answer is None or not np.isfinite(answer[0]).all():
        return None
    x, theta, steps = answer
    info, times = {"steps": steps, "passes": 3.0 * steps}, (began, spent)
    found = _certified(asked, (x, theta), tol, bounds, info, times)
    if found is not None:
        return found
    theta, _ = dual_feasible(unit, theta)  # what is left on an intercept costs the certificate
    return _certified(asked, (x, theta), tol, bounds, info, times)


def solve_with_kernel(
    problem: Problem, tol: float, bounds: tuple[Bound, ...]
) -> tuple[Solution | None, Array | None]:
    """The same for a kernel problem of few points, or of few support vectors among many.

    Where that is no answer, the coefficients that it got to, if it got anywhere.
    """
    from cvxscreen.solvers.smo import alone, solve_parts

    began = perf_counter()
    parts = alone(problem)
    if parts is None:
        return None, None
    c, intercepts, (proof,) = solve_parts(parts, tol)
    if not proof.ok:
        return None, c if c.any() else None
    x = c
    if parts.gram.intercept:
        x = np.append(c, intercepts[0] + parts.gram.offset(c))
    spent = perf_counter() - began
    answer = Answer(problem, x, -parts.sign * c, np.zeros(0), proof, Passes())
    return _solution(answer, bounds, {}, {}, (began, spent)), None


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
