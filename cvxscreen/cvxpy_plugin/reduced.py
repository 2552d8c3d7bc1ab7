"""``cvxscreen.reduce``: a smaller ``cvxpy.Problem`` to solve with anything, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.tables import Record
from cvxscreen._support.validation import positive
from cvxscreen.certificates.certificate import Certificate, certify
from cvxscreen.core.duality import reference_point
from cvxscreen.core.problem import Problem
from cvxscreen.cvxpy_plugin.answer import Restored, restore, statistics, status_of, write_back
from cvxscreen.cvxpy_plugin.budgets import BudgetedProblem
from cvxscreen.cvxpy_plugin.composite import (
    CompositeProblem,
    CompositeReduction,
    ScreenedComposite,
    WriteComposite,
    evaluate,
    recognise_refused,
)
from cvxscreen.cvxpy_plugin.cvxpy_solver import Built, CvxpySolver, build, metric_start
from cvxscreen.cvxpy_plugin.history import Fingerprints, fingerprints
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise
from cvxscreen.cvxpy_plugin.recognise.recognition import Recognition
from cvxscreen.cvxpy_plugin.request import Report, require_cvxpy_problem
from cvxscreen.errors import NotCertified, NotScreenable
from cvxscreen.screening.reduction import Screening, Selection, piece_masks
from cvxscreen.solvers.loop import solve_screened
from cvxscreen.solvers.registry import builtin_takes

FIRST_GAP = 1e-8
"""Relative gap of the solve that fixings are proven from."""


def reduce(problem: Any) -> Reduced:
    """A smaller ``cvxpy.Problem`` with the same solution, to be solved with anything.

    Every fixing is proven (nothing is predicted), from a solve by the built-in solver or, with side
    constraints or terms that cannot be screened, by Clarabel. Squares need no proof: tall least
    squares fold into a matrix of the size of their coordinates.

    Parameters
    ----------
    problem : cvxpy.Problem

    Returns
    -------
    Reduced

    Raises
    ------
    InvalidInput
        If `problem` is no cvxpy.Problem.
    NotScreenable
        If `problem` is not recognised, or nothing can be proven of it, with the reason.
    NotCertified
        If no first point was found, because the problem is infeasible or unbounded.

    Examples
    --------
    >>> import cvxpy as cp, cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> w = cp.Variable(3)
    >>> loss = cp.sum(cp.pos(1 - cp.multiply(y, X @ w)))
    >>> prob = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + 0.1 * loss))
    >>> reduced = cvxscreen.reduce(prob)
    >>> value = reduced.problem.solve(solver="CLARABEL")
    >>> reduced.restore().ok, prob.status
    (True, 'optimal')
    """
    require_cvxpy_problem(problem)
    try:
        recognition = recognise(problem)
    except NotScreenable as refusal:
        made = recognise_refused(problem, refusal)
        if isinstance(made, CompositeProblem):
            return reduced_composite(made)
        if isinstance(made, BudgetedProblem):
            raise NotScreenable(
                "nothing can be proven of losses in a budget before the solve "
                "(`prob.solve(method='screen')` predicts them, and certifies the answer)"
            ) from None
        recognition = made
    return reduced_plain(recognition)


class Reduced(Record, Immutable):
    """A smaller problem with the same solution, and the way back.

    Attributes
    ----------
    problem : cvxpy.Problem
        To be solved with anything; its only vector variable of the original's are the core
        coordinates.
    screening : Screening
        What was proven, and from what.
    """

    problem: Any
    screening: Screening
    _back: Callable[[float], Restoration]
    _original: Any
    _values: Fingerprints

    def restore(self, tol: float = 1e-6) -> Certificate:
        """Write the solution of `problem` onto the original, values and duals.

        Parameters
        ----------
        tol : float
            Relative gap that the certificate asks for.

        Returns
        -------
        Certificate
            Recomputed on the full problem.

        Raises
        ------
        NotCertified
            If `problem` has not been solved, or a parameter of the original has another value than
            it was reduced for; the original is then left as it is.
        """
        tol = positive("tol", tol)
        now = fingerprints(self._original.parameters())
        changed = [p.name() for p in self._original.parameters() if now[p.id] != self._values[p.id]]
        if changed:
            raise NotCertified(
                f"parameter {', '.join(changed)} has changed since the problem was reduced, so the "
                "reduced problem is that of another value: call `cvxscreen.reduce(prob)` again."
            )
        status = self.problem.status
        if status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE, cp.USER_LIMIT):
            word = "has not been solved" if status is None else f"has status {status!r}"
            raise NotCertified(
                f"the reduced problem {word}, so there is nothing to restore: call "
                "`reduced.problem.solve()` first."
            )
        back, stats = self._back(tol), self.problem.solver_stats
        write_back(
            back.recognition,
            back.restored,
            status=status_of(back.proof.ok, status),
            solver=stats.solver_name,
            statistics=statistics(
                Report(recognised=True, mode="safe", solver=stats.solver_name, **back.report),
                solve_time=stats.solve_time,
                setup_time=stats.setup_time,
                iterations=stats.num_iters,
                inner=stats.extra_stats,
            ),
        )
        return back.proof

    def __str__(self) -> str:
        return str(self.screening)


class Restoration(Immutable):
    """A solution of the reduced problem, on the original's columns and rows.

    Attributes
    ----------
    recognition : Recognition
    restored : Restored
    proof : Certificate
        Of the full problem.
    report : Report
        But for the solver's name.
    """

    recognition: Recognition
    restored: Restored
    proof: Certificate
    report: dict[str, Any]


def reduced_plain(recognition: Recognition) -> Reduced:
    """What is left of a recognised problem when all that can be proven is taken away.

    Raises
    ------
    NotScreenable
        If the objective squares nothing, or leaves a coordinate free beside equalities, so that no
        fixing can be proven.
    NotCertified
        If no point to screen from is found.
    """
    full, values = recognition.problem, fingerprints(
        recognition.standard.canonical.original.parameters()
    )
    if full.penalty is None and full.quadratic.free.all():
        screening = Screening.from_definition(full)
        if (screening.codes < 0).all():
            raise NotScreenable(
                "nothing can be proven of a problem whose objective has no squared norm of its "
                "variables; `prob.solve(method='screen')` predicts there."
            )
    else:
        inner = None if builtin_takes(full) else CvxpySolver()
        found = solve_screened(full, inner, tol=FIRST_GAP, start=metric_start(full))
        if found.status not in ("optimal", "inaccurate"):
            raise _no_point(found.status)
        screening = found.screening
    selection = screening.selection.folded(full)
    equal = full.side is not None and full.side.has("zero")
    if equal and full.quadratic.free.any() and len(selection.kept) == full.n:
        raise NotScreenable(
            "nothing can be proven beside an equality constraint when the objective does not "
            "square every variable (an intercept); `prob.solve(method='screen')` predicts there."
        )
    source = selection.reduce(full)
    built = build(source)

    def back(tol: float) -> Restoration:
        x, theta, side = built.read()
        x, theta = selection.lift(full, source, x, theta)
        point = reference_point(full, x, theta, side)
        proof = certify(full, point.x, point.theta, point.multipliers, tol=tol)
        report = _report(full.n, source.n, fixed(full, selection), proof)
        report["dropped"] = full.d - source.d
        restored = restore(recognition, point.x, point.theta, point.multipliers)
        return Restoration(recognition, restored, proof, report)

    original = recognition.standard.canonical.original
    return Reduced(built.problem, screening, back, original, values)


def reduced_composite(made: CompositeProblem) -> Reduced:
    """The same for losses beside another convex part; see `reduced_plain`.

    Raises
    ------
    NotScreenable
        If nothing can be proven, because the other part uses unpenalised coordinates.
    NotCertified
        If no point to screen from is found.
    """
    if not made.provable:
        raise NotScreenable(
            "nothing can be proven of a problem whose unscreenable terms use a coordinate that the "
            "objective does not square; `prob.solve(method='screen')` predicts there."
        )
    full = made.recognition.problem
    values = fingerprints(made.recognition.standard.canonical.original.parameters())
    screened = ScreenedComposite(made, CvxpySolver(), "certified", FIRST_GAP)
    found = screened.solved()
    if found.relaxed is None:
        raise _no_point(found.status)
    cut = CompositeReduction.of(made, screened.screening.selection, screened.possible)
    further = WriteComposite(cut.rest, made.unscreened)
    built: Built = build(cut.reduced, further)

    def back(tol: float) -> Restoration:
        x, theta, side = built.read()
        x, theta, shares = cut.lift(x, theta, further.shares())
        relaxed, shares = evaluate(made, x, theta, side, shares, tol)
        point, proof = relaxed.point, relaxed.certify(tol)
        report = _report(made.terms, cut.kept, fixed(full, cut.selection), proof)
        report["beside"] = made.descriptions
        restored = restore(
            made.recognition, point.x, point.theta, point.multipliers, shares
        )
        return Restoration(made.recognition, restored, proof, report)

    original = made.recognition.standard.canonical.original
    return Reduced(built.problem, screened.screening, back, original, values)


def fixed(problem: Problem, selection: Selection) -> dict[str, int]:
    """Number of terms that `selection` takes out, by kind of piece."""
    masks = piece_masks(selection.codes)
    return {name: int(masks[name].sum()) for name in ("zero", "linear", "quadratic")}


def _report(terms: int, kept: int, masks: dict[str, int], proof: Certificate) -> dict[str, Any]:
    return {
        "terms": terms, "kept": kept, "fixed": masks, "gap": proof.gap,
        "relative_gap": proof.relative_gap,
    }


def _no_point(status: str) -> NotCertified:
    return NotCertified(f"no point to screen from was found: the solver says {status!r}.")
