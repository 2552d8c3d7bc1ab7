"""``prob.solve(method="screen")``: recognise, screen, solve what is left, certify, write back.

A problem that is not recognised, or whose reduced problem is not solved to optimality, goes to
CVXPY as it is, with the reason in the report: the answer, the status and the exceptions are then
CVXPY's.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np

from cvxscreen._support.extensions import supplied
from cvxscreen._support.limits import ITERATIONS, TIME, Limits
from cvxscreen.certificates.certificate import certify
from cvxscreen.certificates.residual_norms import norms_alone_prove_nothing
from cvxscreen.core.duality import balance, balance_with_multipliers, linear_at
from cvxscreen.core.problem import Problem
from cvxscreen.cvxpy_plugin.answer import (
    USELESS,
    StoredAnswer,
    not_solved,
    restore,
    statistics,
    status_of,
    write_back,
)
from cvxscreen.cvxpy_plugin.history import history, loops_loaded
from cvxscreen.cvxpy_plugin.infeasible import shown_infeasible
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise
from cvxscreen.cvxpy_plugin.recognise.recognition import Recognition
from cvxscreen.cvxpy_plugin.request import (
    BUILTIN,
    DEFAULT,
    LIMITS,
    Report,
    Request,
    chosen_solver,
    ignore_warnings,
    installed,
    plain,
    solved_shorter,
    warn_once,
)
from cvxscreen.cvxpy_plugin.size import CANNOT_PAY, FEWEST, MOST_TRIED, OF_CHAIN, measured
from cvxscreen.cvxpy_plugin.solution_cache import (
    LastSolution,
    cached_recognition,
    kept_path,
    known_refusal,
    last_solution,
    last_start,
    store_refusal,
    store_solution,
)
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import NotScreenable
from cvxscreen.solvers.compiled_path.segments import KeptPath, before_loading, one_purchase, ready
from cvxscreen.solvers.cones import compact
from cvxscreen.solvers.dual_form import couples_few
from cvxscreen.solvers.interface import WITHOUT_SOLUTION, Start
from cvxscreen.solvers.registry import (
    builtin_solver,
    builtin_takes,
    fine_gap,
    has_norms,
)
from cvxscreen.solvers.solution import LazyNumbers, Round, Solution
from cvxscreen.solvers.solve import InUnits, solve_problem

if TYPE_CHECKING:
    from cvxscreen.cvxpy_plugin.budgets import BudgetedProblem
    from cvxscreen.cvxpy_plugin.composite import CompositeProblem
    from cvxscreen.cvxpy_plugin.cvxpy_solver import CvxpySolver

    Found = Recognition | CompositeProblem | BudgetedProblem

# Most problems are solved by the built-in engine alone. What the others need (solvers of CVXPY,
# further convex parts, multi-task learning) is a tenth of the package, and imported where they do.

CvxpyProblem = cp.Problem
"""The type of the problems that the plugin takes."""

SMALL_MATRIX = 30
"""Sides of matrices up to which Clarabel comes as far as `ACCURATE` asks: Huber's loss or absolute
values beside `sigma_max` or `lambda_max`, 20,000 terms, certified from 1,861 and 656 of them; at
its own tolerances from all, 6 and 5 s for 2 and 0.8."""

NO_SIDE = "the built-in solver takes no such side constraints (linear ones only)"

OF_NORMS = "sums of norms of rows are for the built-in engine only, in certified mode"


def screened_solve(problem: Any, request: Request) -> Any:
    """Solve a ``cvxpy.Problem`` by screening, once nothing speaks against it from outside.

    Returns
    -------
    float
        The optimal value, as from ``prob.solve()``.

    Raises
    ------
    InvalidInput
        For limits of the built-in solver that are none.
    """
    began, began_cpu = perf_counter(), thread_time()
    if request.builtin:
        Limits(*map(request.options.get, LIMITS))
    weighed = _screened_by_weight(problem, request)
    if isinstance(weighed, Report):
        return problem.value
    if weighed:
        return plain_after_failure(problem, request, weighed)
    found = _recognised(problem, request)
    if isinstance(found, str):
        if _solved_as_chain(problem, request):
            return problem.value
        value = plain(problem, request, found, DEFAULT if found == NO_SIDE else None)
        if request.leaves_choice and problem.status == cp.USER_LIMIT:
            value = another_solver(problem, request, found)
        expected = found in (NO_SIDE, OF_NORMS) or found.endswith(CANNOT_PAY)
        if not (expected or solved_shorter(problem)):
            warn_once(found)
        return value
    spent = perf_counter() - began
    request.check_options(problem)
    # Where another solve follows an answer without certificate, its warning is not the last word.
    with nullcontext() if request.chooses_accuracy else ignore_warnings():
        if not isinstance(found, Recognition):
            outcome = _screened_beside(found, request, spent)
        else:
            request.say(found.problem)
            outcome = _screened(found, request, spent)
    if isinstance(outcome, Report) and (
        problem.status in (cp.OPTIMAL, cp.INFEASIBLE) or request.chooses_accuracy
    ):
        return problem.value
    history(problem).vain += thread_time() - began_cpu
    if isinstance(outcome, Report):
        reason = f"the answer is not certified: its relative gap is {outcome.relative_gap:.3g}"
        return plain_after_failure(problem, request, reason, StoredAnswer.of(problem))
    return plain_after_failure(problem, request, outcome)


def _solved_as_chain(problem: Any, request: Request) -> bool:
    """Solve a linear program that is no sum of losses by its long variables; whether it was."""
    size = measured(problem)
    if not request.leaves_choice or size.quadratic or size.seconds() < OF_CHAIN:
        return False
    return not supplied("cvxpy.chained")(problem, request)


def _screened_beside(
    found: CompositeProblem | BudgetedProblem, request: Request, recognised: float
) -> Report | str:
    """Losses beside another convex part, or in budgets, solved and written back; or why not."""
    from cvxscreen.cvxpy_plugin.budgets import BudgetedProblem, screened_budgets
    from cvxscreen.cvxpy_plugin.composite import screened_composite

    screened: Any = screened_budgets if isinstance(found, BudgetedProblem) else screened_composite
    solver = cvxpy_solver_of(request)
    outcome: Report | str = screened(found, solver, request.mode, request.tol, recognised)
    if isinstance(outcome, Report):
        request.say(outcome)
    return outcome


def _screened_by_weight(problem: Any, request: Request) -> Report | str:
    """Solve a problem with a norm, or a level, of many losses at weights, and write it back.

    Or why nothing else can be done for it; an empty text where something can.
    """
    from cvxscreen.cvxpy_plugin.weighed_losses import screened_by_weight, weighed_losses

    made = weighed_losses(problem)
    if made is None:
        return ""
    if not request.leaves_choice:
        asked = "losses below a level are for the built-in engine only, in certified mode"
        return "" if made.limit is None else asked
    request.check_options(problem)

    def solve(inner: Any) -> tuple[Solution, Report] | str:
        began, found = perf_counter(), _recognised(inner, request)
        if not isinstance(found, Recognition):
            return found if isinstance(found, str) else "its losses stand beside another part"
        outcome = _screened(found, request, perf_counter() - began)
        last = last_solution(found)
        if isinstance(outcome, str):
            return outcome
        if last is None or not last.certificate.ok:
            return "the problem with its losses at a weight was not solved"
        return last, outcome

    began = thread_time()
    with ignore_warnings():
        outcome = screened_by_weight(made, problem, solve, request.tol, not request.insists)
    if isinstance(outcome, Report):
        return outcome
    history(problem).vain += thread_time() - began
    return outcome if made.limit is not None else ""


def _recognised(problem: Any, request: Request) -> Found | str:
    """The recognition, or why there is none."""
    known = known_refusal(problem, request.builtin)
    if known is not None:
        return known
    if measured(problem).norms and not (request.leaves_choice or request.builtin):
        return OF_NORMS
    found: Found | str
    try:
        found = cached_recognition(problem, recognise_any)
    except NotScreenable as refusal:
        found = str(refusal)
    except Exception as defect:  # a problem that CVXPY can solve must not fail on its way here
        found = f"the recogniser stopped with {type(defect).__name__}: {defect}"
    if request.builtin and not isinstance(found, Recognition | str):
        beside = ", ".join(found.descriptions)
        found = f"the built-in solver does not take what stands beside the losses ({beside})"
    if isinstance(found, str):
        store_refusal(problem, request.builtin, found)
    elif request.builtin and isinstance(found, Recognition) and not builtin_takes(found.problem):
        return NO_SIDE
    elif request.mode == "safe" and isinstance(found, Recognition) and _is_wide(found.problem):
        return "columns are left out on a prediction alone, which the safe mode makes none of"
    return found


def _is_wide(problem: Problem) -> bool:
    """Whether it is for its columns that a problem without squares, or with norms, is screened."""
    few = problem.n < FEWEST * problem.d > FEWEST * MOST_TRIED
    return few and (problem.without_curvature or _of_norms(problem))


def _of_norms(problem: Problem) -> bool:
    """Whether norms of blocks are among its constraints, and none of residuals.

    Those of single entries are no such where few rows couple these: the dual has terms for them.
    """
    if problem.side is None or has_norms(problem):
        return False
    return len(problem.side.norms) > 0 and not couples_few(problem)


def recognise_any(problem: Any) -> Found:
    """`problem` as losses; else with losses in budgets, beside another convex part, or in general.

    Raises
    ------
    NotScreenable
        With the reason.
    """
    try:
        return recognise(problem)
    except NotScreenable as refusal:
        from cvxscreen.cvxpy_plugin.composite import recognise_refused

        return recognise_refused(problem, refusal)


def plain_after_failure(
    problem: Any, request: Request, reason: str, screened: StoredAnswer | None = None
) -> Any:
    """Solve `problem` plainly after a screened solve without a certificate; keep the better answer.

    Where the user names no solver, Clarabel comes first: it copes with scales at which the solver
    that CVXPY would choose for a quadratic program stops at its iteration limit. Not where that one
    has solved the problem before, at other parameters, and goes on from there.

    Parameters
    ----------
    screened : StoredAnswer, optional
        What the screened solve found, where that is worth comparing.
    """
    named = not (request.builtin or request.solver is None)
    first = chosen_solver(None, request.options)
    # Of a linear program Clarabel is CVXPY's choice as well, and unnamed compiles for later calls.
    only = named or first is None or problem.is_lp()
    solvers = [None] if only else [first, None]
    if history(problem).answered is not None:
        solvers.reverse()
    return best_plain(problem, request, reason, screened, solvers)


def best_plain(
    problem: Any, request: Request, reason: str, before: StoredAnswer | None, solvers: Sequence[Any]
) -> Any:
    """Solve `problem` plainly by one solver after the other until one calls it optimal.

    The best of the answers, that of `before` with them, is what the problem has afterwards.

    Parameters
    ----------
    before : StoredAnswer or None
        What there is to compare with.
    solvers : sequence
        As `plain` takes them: None for the one that was asked for.
    """
    answers = [] if before is None else [before]
    failures: list[cp.error.SolverError] = []
    for solver in solvers:
        try:
            value = plain(problem, request, reason, solver)
        except cp.error.SolverError as error:
            failures.append(error)
            continue
        if problem.status == cp.OPTIMAL:
            return value
        answers.append(StoredAnswer.of(problem))
        if problem.status in cp.settings.INF_OR_UNB and problem.constraints:
            break  # without constraints that word of a solver is a numerical failure
        if problem.status == cp.UNBOUNDED and reason == not_solved("unbounded"):
            break  # but for the engine's own
    if not answers:
        raise failures[-1]
    best = min(answers, key=StoredAnswer.rank)
    if best is before or best.solution is not problem.solution:
        best.write(problem)
    return problem.value


def another_solver(
    problem: Any, request: Request, reason: str, failure: cp.error.SolverError | None = None
) -> Any:
    """Clarabel's answer to `problem` where CVXPY's own choice has stopped early; the better one.

    Parameters
    ----------
    failure : SolverError, optional
        What CVXPY's choice raised in place of an answer.
    """
    before = StoredAnswer.of(problem) if failure is None else None
    return best_plain(problem, request, reason, before, [DEFAULT])


def cvxpy_solver_of(request: Request) -> CvxpySolver:
    """The solver of CVXPY that was asked for."""
    from cvxscreen.cvxpy_plugin.cvxpy_solver import CvxpySolver

    return CvxpySolver(request.solver, request.solver_options)


@one_purchase()
def run(recognition: Recognition, request: Request) -> tuple[Solution, CvxpySolver | None]:
    """A recognised problem solved, and the solver of CVXPY that took part.

    Where the user names no solver, the built-in engine solves it as `cvxscreen.solve` does; a
    solver of CVXPY comes in where the engine does not take the problem or certifies no answer.
    """
    problem, request_of = recognition.problem, request.options.get
    warm = bool(request_of("warm_start", True))
    again = same_solution(recognition, request) if warm and request.leaves_choice else None
    if again is not None:
        return again, None
    own = request.leaves_choice and builtin_takes(problem)
    asked = InUnits.of(problem) if own else InUnits(problem, problem)
    # The compiled path is at its end before it could have made use of a start; so is numpy's. What
    # is solved again at other parameters goes on from where these have ended.
    kept = kept_path(recognition.standard.canonical.original) if own else None
    cold = own and asked.on_path and (kept is not None or before_loading(asked.unit) or ready())
    start: Start | None = None
    if warm and not cold:
        # The values that other solvers have left in the variables are theirs to go on from.
        start = last_start(recognition) if own else warm_start(recognition)
    with np.errstate(over="ignore", invalid="ignore"):  # of an unbounded problem's iterates
        if request.builtin:
            from cvxscreen.solvers.loop import solve_screened

            limits = Limits(*(request_of(name) for name in LIMITS))
            return solve_screened(
                problem, builtin_solver(problem, limits), mode=request.mode,
                tol=request.tol, start=start,
            ), None
        if own:
            found = engine_solution(recognition, asked, request, start, kept)
            proof = found.certificate
            if not proof.ok and proof.relative_gap <= request.tol:
                proof = certify(problem, found.x, found.theta, found.multipliers, tol=request.tol)
                found = replace(found, status="optimal", certificate=proof)
            # Where there is no solution CVXPY's own word on that is next.
            if proof.ok or found.status in WITHOUT_SOLUTION:
                return found, None
            if found.status == TIME:
                raise TooSlow(
                    f"screening took {found.seconds:.2g} s, about as long as a plain solve is "
                    "likely to take (`always=True` goes on)"
                )
            if has_norms(problem) and request.leaves_choice:
                # Of these nothing is left out: another solver would do all of a plain solve's work.
                raise TooSlow(f"the built-in engine stopped at a gap of {proof.relative_gap:.2g}")
            if np.isfinite(found.x).all():
                start = Start(found.x, found.theta)
        from cvxscreen.cvxpy_plugin.cvxpy_solver import ACCURATE, metric_start
        from cvxscreen.solvers.loop import solve_screened

        cvxpy_solver = cvxpy_solver_of(request)
        side = () if problem.side is None else problem.side.dims
        # Clarabel seldom comes that far in a cone of large matrices.
        matrices = problem.penalty is not None or any(
            kind == "psd" and size > SMALL_MATRIX for kind, size in side
        )
        # Cones alone: nothing but their own multipliers is there to balance.
        alone = not problem.n and cvxpy_solver.name == DEFAULT
        if (request.leaves_choice or alone) and not matrices:
            cvxpy_solver.solver = DEFAULT  # with options, nobody's name would leave it to CVXPY
            cvxpy_solver.options = {**ACCURATE, **cvxpy_solver.options}
        start = metric_start(problem) if start is None else start
        return solve_screened(
            problem, cvxpy_solver, mode=request.mode, tol=request.tol, start=start
        ), cvxpy_solver


def same_solution(recognition: Recognition, request: Request) -> Solution | None:
    """The last solution, certified once more on the data, where the same problem is solved again.

    None where another problem was solved, by a solver of CVXPY's (which is then asked for its own
    account), or the answer is not precise enough: an answer that the engine has left at the
    tolerance, short of its own aim, is as far as it would come again.
    """
    began, last = perf_counter(), last_solution(recognition)
    if last is None or not last.rounds or last.solver in installed():
        return None
    problem = recognition.problem
    aim = min(request.tol, fine_gap(problem))
    stalled = last.certificate.relative_gap > aim
    proof = certify(
        problem, last.x, last.theta, last.multipliers, tol=request.tol if stalled else aim
    )
    if not proof.ok:
        return None
    rounds = (replace(last.rounds[-1], number=1, solve_seconds=0.0),)
    return replace(
        last, status="optimal", certificate=proof, rounds=rounds, seconds=perf_counter() - began
    )


class TooSlow(Exception):
    """What a solve of the reduced problem costs exceeds what it can save."""


COMPILE, STEPS, FLOP = 1e-6, 10.0, 3e-10
"""Seconds for an entry of the data; Clarabel's steps, and seconds for each of their products (made
data, 100 to 20,000 terms x 20 to 10,000: mostly 0.2 to 1 times what was measured)."""

LEAST = 0.1
"""Seconds that a solve may take before it is given up for a plain one, however small."""

OF_COLUMNS = 2.0
"""The same in units of what is estimated of a plain solve where columns are left out: it takes 2 to
10 times that where they are kinks' (absolute, quantile and hinge losses, 150 x 600 to 300 x 1,500,
L1 norms, signs and sums beside them), and 1.3 to 7 times where they are squares'."""

OF_BUDGET, OF_BUDGET_BLOCKS = 1.4e-8, 5e-9
"""Seconds for each entry of the data and each of their rows where a budget holds the columns, a
seventh of what a plain solve takes (kinks and blocks by Clarabel, squares and Huber's by OSQP under
an L1 norm, 200 x 1,000 and 300 x 1,500: 9e-8 to 4e-7; squares and Huber's under norms of blocks, by
Clarabel, 3e-8 to 4e-8). Tight budgets take a tenth to a half of it; near the least one that all
data can be fitted within columns come and go for longer than a plain solve takes."""

LOADING = 0.6
"""Seconds on top where numba is yet to be imported and what it compiled to be loaded: once a
process, and the solves after it gain. (a9a: 0.8 s in the first call, 0.3 after it; plainly 2.1.)"""

NEARLY = 10.0
"""From a gap so many times the one aimed at on, as much again as was spent may be spent on it:
the last digits can lie below rounding."""


OF_COUPLED = 3.0
"""Solves of variables that few rows couple may take so many times the least that plain ones take:
OSQP takes 5 to 50 times that, Clarabel 2 to 10."""


def most_seconds(problem: Problem, original: Any) -> float:
    """CPU seconds that solving a recognised problem may take before a plain solve follows.

    By the numbers of the recognised problem, and by what `size` says of the `original`, where
    CVXPY's own choice may be OSQP, which takes a multiple of Clarabel's time (hinges and absolute
    values, 5,000 x 20 with constraints: 2.2 to 3.7 s, estimated as 0.95, and Clarabel 0.1 to 0.4):
    as Clarabel is what follows, there is time for both. Many terms of few coordinates have few
    numbers (30,000 of one: 0.3 s, of which `plain_seconds` knows 0.03).
    """
    size = measured(original)
    if _of_norms(problem) and problem.side is not None and problem.side.norms.limited.any():
        norms = problem.side.norms
        blocks = bool(problem.losses.q.any()) and not norms.paired.any()
        rate = OF_BUDGET_BLOCKS if blocks else OF_BUDGET
        return max(LEAST, rate * problem.n**2 * len(norms.rows))
    # Small problems are solved in numpy until enough of them have been: then one waits.
    waits = not loops_loaded() and (size.compiled or not before_loading(problem))
    loading = LOADING if waits else 0.0
    of_columns, taken = OF_COLUMNS * size.seconds_of_columns(), history(original).solving
    coupled = OF_COUPLED * size.seconds_of_coupled()
    return max(LEAST, plain_seconds(problem), size.at_least(), of_columns, coupled, taken) + loading


def plain_seconds(problem: Problem) -> float:
    """About how long CVXPY and Clarabel take for a recognised problem, rather too little.

    CVXPY's compilation goes with the entries of the data. Each of Clarabel's steps factorises a
    system of which rows or columns, whichever are fewer, remain; rows whose entries lie side by
    side (a convolution) fill in no more than a band.
    """
    n, d = problem.design.shape
    design = problem.design
    entries, band = float(n * d), float(d)
    if isinstance(design, Rows) and design.sparse:
        matrix = design.matrix
        entries = float(matrix.nnz)
        filled = np.flatnonzero(np.diff(matrix.indptr))
        if len(filled):
            starts = matrix.indptr[filled]
            low, high = (f.reduceat(matrix.indices, starts) for f in (np.minimum, np.maximum))
            band = float(np.mean(high - low + 1))
    fewer = min(n, d)
    products = entries * (entries / max(n, d, 1)) + fewer * min(fewer, band) ** 2 / 3.0
    return COMPILE * entries + STEPS * FLOP * products


CROWDED, GROWING = 0.485, 0.1
"""Shares of the columns: where more than the one would be in, and more than the other come in at
once, norms of blocks hold too few of them. In the end most come in, and plain Clarabel is quicker
(hinge, absolute and Huber losses at a tenth of the largest weight, 300 x 1,500: 1.6 to 3.3 times a
plain solve without this, 0.9 to 1.3 with it)."""


def engine_solution(
    recognition: Recognition, asked: InUnits, request: Request, start: Start | None,
    kept: KeptPath | None,
) -> Solution:
    """The built-in engine's answer, within the time that a plain solve would take.

    The compiled path is at its end before it could be interrupted.

    Parameters
    ----------
    asked : InUnits
        The recognised problem.
    kept : KeptPath, optional
        What earlier solves at other parameters have left.
    """
    problem = recognition.problem
    reason = "" if request.insists else _why_no_norms(problem)
    if reason:
        raise TooSlow(f"{reason}: {CANNOT_PAY}")
    fine = fine_gap(problem)
    aim, near = min(request.tol, fine), NEARLY * fine
    if request.insists or asked.on_path:
        return solve_problem(asked, tol=aim, start=start, kept=kept)
    # By this thread's own time: what other programs take tells nothing about a plain solve.
    most = most_seconds(problem, recognition.standard.canonical.original)
    began, limits = thread_time(), Limits(most, clock=thread_time)
    of_norms, crowded, in_dual = _of_norms(problem), False, couples_few(problem)

    def last_digits(entry: Round) -> None:
        nonlocal crowded
        # 0 where the round has no certificate; of the dual the last step is half of the way back.
        if 0.0 < entry.relative_gap <= near and not in_dual:
            limits.within(thread_time() - began)
        if of_norms and entry.features is not None and entry.refuted > GROWING * problem.d:
            crowded |= entry.features + entry.refuted > CROWDED * problem.d
            if crowded:
                limits.within(0.0)

    found = solve_problem(problem, tol=aim, start=start, limits=limits, on_round=last_digits)
    if crowded and found.status == TIME:
        raise TooSlow(
            "about half of its columns or more are needed, so there is little to be saved by "
            "leaving the others out (`always=True` goes on)"
        )
    close = found.certificate.relative_gap <= near
    return replace(found, status="inaccurate") if close and found.status == TIME else found


def _why_no_norms(problem: Problem) -> str:
    """Why norms of residuals are better left to CVXPY; an empty text where they are not.

    Where there is a bound of something else (``norm_inf(W)``, ``norm1(W) <= r``, 4,000 to 8,000 x 6
    in 3 outputs) the path stops early, or takes 0.7 times what a plain solve does or more.
    """
    whole = compact(problem)
    if whole is None:
        return ""
    if norms_alone_prove_nothing(problem):
        return "of some directions its norms say nothing"
    inner = whole.problem
    unseen = (whole.norms.column_squares == 0.0) & (inner.column_sizes == 0.0)
    bounds = unseen & inner.quadratic.free & (inner.linear != 0.0)
    if inner.side is not None:
        held = np.bincount(inner.side.matrix.indices, minlength=inner.d) > 0
        bounds |= unseen & inner.quadratic.free & held
    return "a bound of another term stands beside its norms" if bounds.any() else ""


UNBALANCED = 1e-8
"""What Clarabel leaves of ``A' theta + q`` at its default tolerances, relative to the value and 1;
where coordinates are unpenalised, dual values prove nothing far away unless it is about 0."""


def warm_start(recognition: Recognition) -> Start | None:
    """The problem's last solution (at other parameters, say) as a start; None without one."""
    known = last_start(recognition)
    if known is not None:
        return known
    standard, problem = recognition.standard, recognition.problem
    values = standard.canonical.current()
    if values is None:
        return None
    x = standard.join(values)[recognition.core]
    if not np.isfinite(x).all():
        return None
    return Start(x, problem.losses.slope(problem.design.forward(x)))


def _screened(recognition: Recognition, request: Request, recognised: float) -> Report | str:
    """Solve and write back; or why the answer of CVXPY itself is needed."""
    try:
        solution, cvxpy_solver = run(recognition, request)
    except TooSlow as reason:
        return str(reason)
    except Exception as error:  # whatever it is, CVXPY may solve the problem all the same
        return f"the screening loop stopped with {type(error).__name__}: {error}"
    limited = solution.status in (TIME, ITERATIONS)
    if solution.infeasible is not None and cvxpy_solver is None:
        report = Report(
            recognised=True, mode=request.mode, solver=BUILTIN.lower(), terms=solution.problem.n,
            kept=solution.rounds[-1].kept, beside=recognition.descriptions,
            rounds=len(solution.rounds),
            times={"recognise": recognised, "solve": solution.seconds},
        )
        shown = shown_infeasible(recognition, solution.infeasible, report)
        if shown is not None:
            request.say(shown)
            return shown
    if solution.status not in ("optimal", "inaccurate") and not limited:
        return not_solved(solution.status)
    last = None if cvxpy_solver is None else cvxpy_solver.problem_solved
    if cvxpy_solver is not None and last is None and cvxpy_solver.failure:
        return f"the solver failed on the reduced problem: {cvxpy_solver.failure}"
    proof = solution.certificate
    room = USELESS * (1.0 + float(np.linalg.norm(solution.x)))
    outside = max(proof.violation, proof.primal_residual)
    useful = proof.relative_gap <= USELESS and outside <= room
    if not (proof.ok or limited or useful):
        return f"the answer could not be certified: {proof.reason}"
    store_solution(recognition.standard.canonical.original, LastSolution.of(solution))
    began = perf_counter()
    theta, problem = solution.theta, solution.problem
    mu = solution.multipliers
    if proof.residual > UNBALANCED * (1.0 + abs(solution.value)):
        # The certificate knows that balanced slopes are near; the dual values are to be such.
        if problem.side is None:
            margins = problem.design.forward(solution.x)
            theta = balance(problem, theta, problem.linear[problem.quadratic.free], margins)
        else:
            near = balance_with_multipliers(problem, theta, mu, linear_at(problem, solution.x))
            if certify(problem, solution.x, *near, tol=max(request.tol, proof.relative_gap)).ok:
                theta, mu = near
    restored = restore(recognition, solution.x, theta, mu)
    stats = None if last is None else last.solver_stats
    name = BUILTIN.lower() if stats is None else stats.solver_name
    report = make_report(solution, request, name, recognised, perf_counter() - began)
    report = replace(report, beside=recognition.descriptions)
    if cvxpy_solver is not None:
        # Its rounds start from a first point's, which is no reference of an earlier solve.
        report = replace(report, before={}, named=cvxpy_solver.account())
    write_back(
        recognition,
        restored,
        status=status_of(proof.ok, None if last is None else last.status, limited),
        value=solution.value,
        solver=report.solver,
        statistics=statistics(
            report,
            solve_time=report.times["solve"] if cvxpy_solver is None else cvxpy_solver.solve_time,
            setup_time=0.0 if cvxpy_solver is None else cvxpy_solver.setup_time,
            iterations=len(solution.rounds) if stats is None else stats.num_iters,
            inner=None if stats is None else stats.extra_stats,
            compilation_time=0.0 if cvxpy_solver is None else cvxpy_solver.compilation_time,
        ),
    )
    if not recognition.as_long(restored.z):
        return "a norm of residuals is another one at the answer than what was solved for"
    request.say(report)
    return report


def make_report(
    solution: Solution, request: Request, name: str, recognised: float, restored: float
) -> Report:
    """What the loop did, as a record; the last two arguments are seconds."""
    last, features = solution.rounds[-1], 0
    if solution.problem.penalty is not None:
        # A solver that finds the features that are not 0 by itself has been given all of them.
        left_out = 0 if last.features is None else solution.problem.d - last.features
        features = max(left_out, int(np.count_nonzero(solution.screening.dropped)))
    inner = sum(entry.solve_seconds for entry in solution.rounds)
    problem = solution.problem
    terms = problem.n + _cones(problem) if has_norms(problem) else problem.n or _cones(problem)
    if couples_few(problem):
        terms = problem.d  # each column is one of the dual
    return Report(
        recognised=True,
        mode=request.mode,
        solver=name,
        terms=terms,
        kept=min(last.kept, terms),  # bounds that were made terms are none of the user's
        fixed=LazyNumbers(lambda: _fixed(solution)),
        dropped=features,
        gap=solution.certificate.gap,
        relative_gap=solution.certificate.relative_gap,
        rounds=len(solution.rounds),
        before=solution.before,  # worked out when somebody looks
        times={
            "recognise": recognised,
            "screen": max(solution.seconds - inner, 0.0),
            "solve": inner,
            "restore": restored,
        },
    )


def _cones(problem: Problem) -> int:
    """How many cones a problem without losses has, of which some may be left out."""
    return 0 if problem.side is None else int(problem.side.second_order.sum())


def _fixed(solution: Solution) -> dict[str, int]:
    """Terms by what is proven of them, and those that were only predicted."""
    screening = solution.screening
    proven = {"zero": screening.zero, "linear": screening.linear, "quadratic": screening.quadratic}
    counts = {name: int(mask.sum()) for name, mask in proven.items()}
    return {**counts, "predicted": solution.rounds[-1].predicted}
