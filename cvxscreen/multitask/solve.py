"""Solve a joint problem by one of the algorithms and certify the answer."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.extensions import supplied
from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen._support.validation import choice, one_of, tolerance, word
from cvxscreen.core.duality import dual_feasible
from cvxscreen.errors import InvalidInput
from cvxscreen.multitask.bcd import Bcd
from cvxscreen.multitask.certificate import certify_multitask
from cvxscreen.multitask.first_order import Admm, ApgJoint, Record, SmoothFista
from cvxscreen.multitask.problem import Metric, MultiTask
from cvxscreen.multitask.solution import MultiTaskSolution, Outcome, Round

Array = NDArray[np.float64]

SOLVERS = ("auto", "builtin", "bcd", "plain", "admm", "apg", "fista")
MODES = ("safe", "certified")
DENSE = 500
"""Up to so many samples a task smooth losses go to block coordinate descent as well."""

Watch = Callable[[Round], None] | None


def solve_multitask(
    problem: MultiTask,
    *,
    tol: float = 1e-6,
    mode: str = "certified",
    solver: str = "auto",
    screening: bool = False,
    start: MultiTaskSolution | None = None,
    max_rounds: int | None = None,
    on_round: Watch = None,
    limits: Limits = UNLIMITED,
) -> MultiTaskSolution:
    """Solve to a joint relative gap of `tol`, certified on all tasks.

    Parameters
    ----------
    problem : MultiTask
    tol : float
        In (0, 1).
    mode : {"certified", "safe"}
        Nothing is ever guessed here, so both say the same.
    solver : str
        ``"bcd"``: block coordinate descent with accelerated steps (the default but for smooth
        losses on large tasks); ``"plain"``: without them; ``"admm"``; ``"apg"``: accelerated
        projected gradient on (U, M), a reference; ``"fista"``: on U, for smooth losses. Any other
        name is a solver that CVXPY has installed for semidefinite programs (``"SCS"``,
        ``"CLARABEL"``): a reference again, on the whole problem.
    screening : bool
        Whether block coordinate descent screens its U-steps (losses with kinks). The answer is the
        same either way, and it takes longer; see `cvxscreen.multitask.screening`.
    start : MultiTaskSolution, optional
        Of the same tasks at other parameters; for block coordinate descent.
    max_rounds : int, optional
    on_round : callable, optional
        Gets the record of every round.
    limits : Limits

    Raises
    ------
    UnknownName, InvalidInput
    """
    one_of("problem", problem, MultiTask, "a problem from `raso` is needed")
    choice("mode", mode, MODES)
    tol = tolerance(tol)
    name = word("solver", solver, "the name of a solver is needed").lower()
    if start is not None:
        one_of("start", start, MultiTaskSolution, "what `solve` returned for such tasks is needed")
    if name in ("auto", "builtin"):
        name = "fista" if problem.smooth and max(problem.sizes) > DENSE else "bcd"
    began = perf_counter()
    outcome = _run(problem, 0.5 * tol, name, screening, start, max_rounds, on_round, limits)
    M = outcome.metric.M
    proof = certify_multitask(problem, outcome.U, outcome.b, M, outcome.theta, tol=tol)
    return MultiTaskSolution(
        problem=problem,
        U=outcome.U,
        b=outcome.b,
        M=M,
        theta=outcome.theta,
        status=limits.word(proof.ok),
        certificate=proof,
        rounds=outcome.rounds,
        solver=name.upper(),
        mode=mode,
        seconds=perf_counter() - began,
    )


def _run(
    problem: MultiTask,
    target: float,
    name: str,
    screening: bool,
    start: MultiTaskSolution | None,
    max_rounds: int | None,
    on_round: Watch,
    limits: Limits,
) -> Outcome:
    limit: dict[str, Any] = {} if max_rounds is None else {"max_rounds": max_rounds}
    if name in ("bcd", "plain"):
        algorithm = Bcd(accelerate=name == "bcd", screening=screening, **limit)
        first = None if start is None else warm(problem, start)
        return algorithm(problem, target, first, on_round, limits)
    if start is not None:
        raise InvalidInput(f"`start` is used by solver 'bcd' only; `solver` is {name!r}.")
    if name == "admm":
        return Admm(**limit)(problem, target, on_round, limits)
    if name == "apg":
        return ApgJoint(**limit)(problem, target, on_round, limits)
    if name == "fista":
        return SmoothFista(**limit)(problem, target, on_round, limits)
    U, b, M, theta = supplied("cvxpy.multitask_solver")(problem, name, limits, SOLVERS)
    # Each task's slopes must sum to 0 exactly, where a solver leaves a rest.
    tasks = (problem.task(k, M) for k in range(problem.m))
    parts = zip(tasks, problem.split(theta), strict=True)
    theta = np.concatenate([dual_feasible(task, part)[0] for task, part in parts])
    record = Record(problem, target, on_round, limits)
    record.offer(U, b, problem.predictions(U, b), theta)
    record.note(1)
    return record.outcome()


def warm(problem: MultiTask, start: MultiTaskSolution) -> tuple[Metric, Array, Array]:
    """The start's M (projected onto this problem's set), slopes and intercepts."""
    if start.problem.sizes != problem.sizes or start.problem.d != problem.d:
        raise InvalidInput("`start` belongs to other tasks than `problem`.")
    if start.problem.loss != problem.loss:
        raise InvalidInput(
            f"`start` is of a {start.problem.loss!r} problem; this one is {problem.loss!r}."
        )
    theta = np.clip(start.theta, problem.losses.lo, problem.losses.hi)
    return problem.metric(start.M), theta, start.b.copy()
