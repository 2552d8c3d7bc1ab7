"""``cvxscreen.certify(prob)``: how far the answer that a CVXPY problem holds is from optimal.

Whoever has solved it: a first-order solver, one on a GPU, a colleague. The problem is recognised,
the values of its variables become the point x, and the duality gap of x is recomputed on the full
data, as after every screened solve. A gap needs slopes theta as well. Those at x itself are tried
first, with the constraints' dual values as multipliers; where a term lies on a kink or x has only a
few digits they prove little, and the dual is then found by a solve of our own. The certificate
holds whatever the slopes come from: they are checked, never trusted.

Variables that are no coordinates (slacks, epigraphs) are judged through the objective: what the
problem's value at all of its variables exceeds that of x by belongs to the gap, and by how much its
constraints are violated to the violation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.validation import positive
from cvxscreen.certificates.certificate import Certificate, certify, relative_gap
from cvxscreen.core.duality import reference_point
from cvxscreen.cvxpy_plugin.budgets import ScreenedBudgets, certify_budgets
from cvxscreen.cvxpy_plugin.composite.problem import (
    CompositeProblem,
    evaluate,
    recognise_refused,
)
from cvxscreen.cvxpy_plugin.composite.rounds import ScreenedComposite
from cvxscreen.cvxpy_plugin.cvxpy_solver import CvxpySolver
from cvxscreen.cvxpy_plugin.plugin import run
from cvxscreen.cvxpy_plugin.recognise.budgets import BudgetedProblem
from cvxscreen.cvxpy_plugin.recognise.check import at_best_helpers
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise
from cvxscreen.cvxpy_plugin.recognise.recognition import Recognition
from cvxscreen.cvxpy_plugin.recognise.standard import Standard
from cvxscreen.cvxpy_plugin.recognise.variable_values import free_entries
from cvxscreen.cvxpy_plugin.request import Request, require_cvxpy_problem
from cvxscreen.cvxpy_plugin.solution_cache import cached_recognition
from cvxscreen.errors import InvalidInput, NotScreenable
from cvxscreen.solvers.loop import run as run_rounds

Array = NDArray[np.float64]
Slopes = tuple[Array, Array, Array | None]


def certify_cvxpy(problem: Any, *, tol: float = 1e-6) -> Certificate:
    """Certify the answer that a ``cvxpy.Problem`` holds, whoever has found it.

    Parameters
    ----------
    problem : cvxpy.Problem
        With values in all of its variables; they are left as they are.
    tol : float
        Relative gap asked for.

    Returns
    -------
    Certificate
        Of the values that the variables have now, on the full data: ``ok``, the duality gap (what
        slacks and epigraph variables waste included), the violation of the constraints.

    Raises
    ------
    InvalidInput
        If a variable has no value.
    NotScreenable
        If `problem` is not recognised, with the reason.
    """
    require_cvxpy_problem(problem)
    tol = positive("tol", tol)
    missing = [v.name() for v in problem.variables() if v.value is None]
    if missing:
        raise InvalidInput(
            f"variable {missing[0]} has no value, so there is no answer to certify: solve the "
            "problem first, with any solver."
        )
    made: CompositeProblem | None = None
    try:
        recognition = cached_recognition(problem, recognise)
    except NotScreenable as refusal:
        found = recognise_refused(problem, refusal)
        if isinstance(found, BudgetedProblem):
            return _with_helpers(problem, _judged_budgets(found, tol), tol)
        if isinstance(found, CompositeProblem):
            made, recognition = found, found.recognition
        else:
            general = found
            recognition = cached_recognition(problem, lambda _: general)
    x = current_point(recognition)
    if not np.isfinite(x).all():
        raise InvalidInput("a variable holds NaN or infinity, so there is no answer to certify.")
    proofs: list[Certificate] = []
    for slopes in _slopes(recognition, made, x, tol):
        proofs.append(_judge(recognition, made, x, slopes, tol))
        if proofs[-1].ok:
            break
    return _with_helpers(problem, min(proofs, key=lambda proof: (not proof.ok, proof.gap)), tol)


def _judged_budgets(made: BudgetedProblem, tol: float) -> Certificate:
    """The values of the user's variables, by multipliers of a solve of our own."""
    x = current_point(made.lagrangian)
    if not np.isfinite(x).all():
        raise InvalidInput("a variable holds NaN or infinity, so there is no answer to certify.")
    screened = ScreenedBudgets(made, made.parts, CvxpySolver(), 0.1 * tol)
    screened.begin()
    run_rounds(screened)
    best = screened.centre
    if best is None:
        raise NotScreenable("no multipliers were found: the problem was not solved to optimality")
    return certify_budgets(made, best._replace(x=x), tol)


def current_point(recognition: Recognition) -> Array:
    """The values of the user's variables as core coordinates."""
    standard = recognition.standard
    values = {
        key: free_entries(variable, variable.value)
        for key, variable in standard.canonical.own.items()
    }
    return at_best_helpers(recognition, standard.join(values)[recognition.core])


def _slopes(
    recognition: Recognition, made: CompositeProblem | None, x: Array, tol: float
) -> Iterator[Slopes]:
    """Dual points to judge `x` by: those at hand first, then those of a solve."""
    problem = recognition.problem
    theta = problem.losses.slope(problem.design.forward(x))
    yield theta, side_multipliers(recognition), None
    if made is None:
        found, _ = run(recognition, Request(tol=min(0.1 * tol, 1e-8), always=True))
        if found.status in ("optimal", "inaccurate"):
            yield found.theta, found.multipliers, None
        return
    outcome = ScreenedComposite(made, CvxpySolver(), "certified", 0.1 * tol).solved()
    if outcome.relaxed is not None:
        point = outcome.relaxed.point
        yield point.theta, point.multipliers, outcome.shares


def _judge(
    recognition: Recognition,
    made: CompositeProblem | None,
    x: Array,
    slopes: Slopes,
    tol: float,
) -> Certificate:
    theta, mu, shares = slopes
    if made is not None:
        return evaluate(made, x, theta, mu, shares, tol)[0].certify(tol)
    problem = recognition.problem
    point = reference_point(problem, x, theta, mu)
    return certify(problem, x, point.theta, point.multipliers, tol=tol)


def side_multipliers(recognition: Recognition) -> Array:
    """Multipliers of the side constraints from the user's dual values; 0 where there are none."""
    rows = known_multipliers(recognition.standard)
    side = recognition.side.tocsr()
    out = np.zeros(side.shape[0])
    for k in range(side.shape[0]):
        span = slice(side.indptr[k], side.indptr[k + 1])
        # The row that the constraint was, before definitions of helpers were added to it.
        place = span.start + int(np.argmax(np.abs(side.data[span])))
        out[k] = rows[side.indices[place]] / side.data[place]
    return out


def known_multipliers(standard: Standard) -> Array:
    """Multipliers of the canonical rows that are constraints of the user's; 0 elsewhere."""
    own = standard.canonical.user_constraints()
    out = np.zeros(standard.rows.shape[0])
    for cone in standard.cones:
        constraint = own.get(cone.constraint)
        value = None if constraint is None else constraint.dual_value
        if value is None or cone.kind == "soc":
            continue
        flat = np.asarray(value, dtype=np.float64).flatten(order="F")
        if len(flat) == cone.rows.stop - cone.rows.start:
            out[cone.rows] = -flat if cone.kind == "zero" else flat
    return out


def _with_helpers(problem: Any, proof: Certificate, tol: float) -> Certificate:
    """`proof` with what the variables that are no coordinates add to it."""
    sign = -1.0 if isinstance(problem.objective, cp.Maximize) else 1.0
    value = sign * float(np.real(problem.objective.value))
    wasted = abs(value - proof.primal)
    violation = max([proof.violation, *_violations(problem)])
    gap = proof.gap + wasted
    relative = float(relative_gap(gap, proof.primal))
    ok, reason = proof.ok, proof.reason
    if ok and not relative <= tol:
        ok = False
        reason = (
            f"the objective of all variables is {value:.12g}, that of the coordinates alone "
            f"{proof.primal:.12g}: slack or epigraph variables do not have their best values"
        )
    size = 1.0 + max((float(np.abs(v.value).max()) for v in _dense(problem)), default=0.0)
    if ok and not violation <= max(tol, LOOSEST) * size:
        ok, reason = False, f"a constraint is violated by {violation:.3g}"
    return replace(
        proof, gap=gap, relative_gap=relative, dual=proof.primal - gap, violation=violation,
        ok=ok, reason=reason,
    )


LOOSEST = 1e-6
"""Violation of constraints, relative to the variables, that solvers leave at their defaults and
that is no reason to refuse an answer (Clarabel's ``tol_feas`` is 1e-8, SCS's and OSQP's 1e-4 and
1e-5: theirs is refused where it shows)."""


def _dense(problem: Any) -> list[Any]:
    return [v for v in problem.variables() if v.size and not hasattr(v.value, "toarray")]


def _violations(problem: Any) -> Iterator[float]:
    """Largest violation of each constraint, and of each variable's own bounds and signs."""
    for constraint in problem.constraints:
        yield float(np.max(np.abs(constraint.violation()), initial=0.0))
    for variable in _dense(problem):
        project: Callable[[Any], Any] = variable.project
        yield float(np.max(np.abs(project(variable.value) - variable.value), initial=0.0))
