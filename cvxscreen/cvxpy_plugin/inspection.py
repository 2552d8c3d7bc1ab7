"""A CVXPY problem and its answer looked into: ``explain``, ``certify``, ``verify``.

``explain(prob)`` says what a problem is recognised as, or why it is not; nothing is solved.

``certify(prob)`` says how far the answer that a problem holds is from optimal, whoever has solved
it: a first-order solver, one on a GPU, a colleague. The problem is recognised, the values of its
variables become the point x, and the duality gap of x is recomputed on the full data, as after
every screened solve. A gap needs slopes theta as well. Those at x itself are tried first, with the
constraints' dual values as multipliers; where a term lies on a kink or x has only a few digits they
prove little, and the dual is then found by a solve of our own. The certificate holds whatever the
slopes come from: they are checked, never trusted. Variables that are no coordinates (slacks,
epigraphs) are judged through the objective: what the problem's value at all of its variables
exceeds that of x by belongs to the gap, and by how much its constraints are violated to the
violation.

``verify(prob)`` solves a problem plainly and screened and compares; where the two do not agree,
certificates tell which one is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from time import process_time
from typing import Any, overload

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.tables import Record, fields, table
from cvxscreen._support.validation import positive
from cvxscreen.certificates.certificate import Certificate, certify
from cvxscreen.core.duality import reference_point
from cvxscreen.core.losses import LossTerms
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem, relative_gap
from cvxscreen.cvxpy_plugin.budgets import BudgetedProblem, ScreenedBudgets, certify_budgets
from cvxscreen.cvxpy_plugin.composite import (
    CompositeProblem,
    ScreenedComposite,
    evaluate,
    recognise_refused,
)
from cvxscreen.cvxpy_plugin.cvxpy_solver import CvxpySolver
from cvxscreen.cvxpy_plugin.history import short_squares_pay
from cvxscreen.cvxpy_plugin.plugin import recognise_any, run
from cvxscreen.cvxpy_plugin.recognise.check import at_best_helpers
from cvxscreen.cvxpy_plugin.recognise.expressions import preserved_values
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise
from cvxscreen.cvxpy_plugin.recognise.recognition import Recognition
from cvxscreen.cvxpy_plugin.recognise.short_squares import with_short_squares
from cvxscreen.cvxpy_plugin.recognise.standard import Standard
from cvxscreen.cvxpy_plugin.request import (
    Report,
    Request,
    chosen_solver,
    options_for,
    require_cvxpy_problem,
    solve,
    solver_name,
)
from cvxscreen.cvxpy_plugin.solution_cache import cached_recognition
from cvxscreen.cvxpy_plugin.weighed_losses import weighed_losses
from cvxscreen.errors import CvxscreenError, InvalidInput, NotScreenable
from cvxscreen.solvers.loop import run as run_rounds

Array = NDArray[np.float64]
Slopes = tuple[Array, Array, Array | None]


def explain(problem: Any) -> Explanation:
    """What `problem` is recognised as, or why it is not; nothing is solved.

    Parameters
    ----------
    problem : cvxpy.Problem

    Returns
    -------
    Explanation
        With ``recognised`` and ``reasons``; prints as a table.

    Examples
    --------
    >>> import cvxpy as cp, cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> w = cp.Variable(3)
    >>> loss = cp.sum(cp.pos(1 - cp.multiply(y, X @ w)))
    >>> prob = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + 0.1 * loss))
    >>> cvxscreen.explain(prob).recognised
    True
    >>> explanation = cvxscreen.explain(cp.Problem(cp.Minimize(cp.sum(w)), [w >= 1]))
    >>> explanation.recognised, explanation.reasons[0].split(":")[0]
    (False, 'no loss term was found')
    """
    require_cvxpy_problem(problem)
    began = process_time()
    try:
        recognition = recognise(problem)
    except NotScreenable as refusal:
        return _explain_composite(problem, refusal, began)
    return Explanation.of(recognition.problem, recognition.descriptions, process_time() - began)


def _explain_composite(problem: Any, refusal: NotScreenable, began: float) -> Explanation:
    """`problem` as losses in budgets, or beside another convex part, or the refusal."""
    try:
        made = recognise_refused(problem, refusal)
    except NotScreenable:
        weighed = weighed_losses(problem)
        if weighed is not None and weighed.cost() > 0.0:
            weighed.weight.value = weighed.first()
            found = explain(weighed.inner)
            if found.recognised:
                return replace(found, beside=weighed.descriptions)
        short = with_short_squares(problem) if short_squares_pay(problem) else None
        beside = () if short is None else tuple(one.text for one in short.shortened)
        return Explanation(
            False, (str(refusal),), beside=beside, seconds=process_time() - began
        )
    if isinstance(made, Recognition):
        found_in = made
    else:
        found_in = made.lagrangian if isinstance(made, BudgetedProblem) else made.recognition
    return Explanation.of(found_in.problem, made.descriptions, process_time() - began)


@dataclass(frozen=True, repr=False)
class Explanation(Record):
    """What a CVXPY problem was recognised as, or why it was not.

    Attributes
    ----------
    recognised : bool
    reasons : tuple of str
        Why not; empty when recognised.
    terms : mapping of str to int
        Loss terms by kind.
    coordinates : int
        Core variables.
    unpenalised : int
        Those among them without a square in the objective (an intercept).
    shrunk : int
        Those under an L1 norm, which can be dropped.
    side : tuple of (str, int)
        Side constraints: cone and size.
    beside : tuple of str
        Convex parts of the objective that are no sum of losses, and residuals as of fewer rows.
    seconds : float
        CPU time of the recognition.
    """

    recognised: bool
    reasons: tuple[str, ...] = ()
    terms: Mapping[str, int] = field(default_factory=dict)
    coordinates: int = 0
    unpenalised: int = 0
    shrunk: int = 0
    side: tuple[tuple[str, int], ...] = ()
    beside: tuple[str, ...] = ()
    seconds: float = 0.0

    @classmethod
    def of(cls, problem: Problem, beside: tuple[str, ...], seconds: float) -> Explanation:
        """Describe a recognised problem."""
        names, counts = np.unique(loss_names(problem.losses), return_counts=True)
        return cls(
            True,
            (),
            {str(name): int(count) for name, count in zip(names, counts, strict=True)},
            problem.d,
            int(problem.quadratic.free.sum()),
            int((problem.penalty.kappa > 0).sum()) if isinstance(problem.penalty, L1) else 0,
            () if problem.side is None else problem.side.dims,
            beside,
            seconds,
        )

    def __str__(self) -> str:
        if not self.recognised:
            listed = [("reason", reason) for reason in self.reasons]
            listed += [("shorter", words) for words in self.beside]
            return fields([("recognised", False), *listed], title="Explanation")
        return fields(
            [
                ("recognised", True),
                *((f"{name} terms", count) for name, count in self.terms.items()),
                ("coordinates", self.coordinates),
                ("unpenalised", self.unpenalised),
                *([("under an L1 norm", self.shrunk)] if self.shrunk else []),
                *(
                    (f"side constraint ({kind})" if count == 1 else
                     f"side constraints ({kind})", size if count == 1 else f"{count:,} of {size}")
                    for (kind, size), count in Counter(self.side).items()
                ),
                *(("beside", words) for words in self.beside),
                ("seconds (CPU)", self.seconds),
            ],
            title="Explanation",
        )


def loss_names(losses: LossTerms) -> NDArray[np.str_]:
    """The everyday name of each term, shape (n,)."""
    one_sided = (losses.lo == 0) | (losses.hi == 0)
    steep = np.isinf(losses.lo) | np.isinf(losses.hi)
    curved, flat = losses.q > 0, losses.e > 0
    equal = -losses.lo == losses.hi
    out = np.full(len(losses), "pinball", dtype="<U28")
    out[equal] = "absolute"
    out[flat] = "epsilon-insensitive"
    out[curved & flat] = "smoothed epsilon-insensitive"
    out[curved & ~flat] = "Huber"
    out[curved & steep] = "squared"
    out[curved & steep & flat] = "squared epsilon-insensitive"
    out[one_sided] = "hinge"
    out[one_sided & curved] = "smoothed hinge"
    out[one_sided & steep] = "squared hinge"
    out[steep & ~curved] = "inequality"
    return out


# -- certify ---------------------------------------------------------------------------------------


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
    recognition = cached_recognition(problem, recognise_any)
    if isinstance(recognition, BudgetedProblem):
        return _with_helpers(problem, _judged_budgets(recognition, tol), tol)
    if isinstance(recognition, CompositeProblem):
        made, recognition = recognition, recognition.recognition
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
    z = standard.join(standard.canonical.free_values())
    return at_best_helpers(recognition, z[recognition.core])


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


# -- verify ----------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Comparison(Record):
    """A plain solve and a screened one of the same problem.

    Attributes
    ----------
    agrees : bool
        Same status, and objective values within `tolerance`. Variables and duals are reported, not
        judged: they need not be unique.
    status, value, seconds : pair
        Plain first; CPU seconds.
    primal : float
        Largest difference of a variable's value, relative to the largest of all values.
    duals : mapping of str to float
        Largest difference of each constraint's dual value, relative to its own size.
    terms, kept : int
    tolerance : float
        Relative difference of the objective that still counts as agreement.
    report : Report
    gaps : pair
        Where they do not agree: the relative gap of either answer, certified on the full data (see
        `cvxscreen.certify`); NaN where there is nothing to certify.
    """

    agrees: bool
    status: tuple[str, str]
    value: tuple[float, float]
    seconds: tuple[float, float]
    primal: float
    duals: Mapping[str, float]
    terms: int
    kept: int
    tolerance: float
    report: Report
    gaps: tuple[float, float] = (float("nan"), float("nan"))

    @property
    def wrong(self) -> str:
        """Which of two answers that do not agree is proven to be off: "plain", "screened" or ""."""
        good = [gap <= self.tolerance for gap in self.gaps]
        if self.agrees or good[0] == good[1] or not np.isfinite(self.gaps).all():
            return ""
        return "screened" if good[0] else "plain"

    def _brief(self) -> str:
        plain, screened = (float(f"{s:.3g}") for s in self.seconds)
        return (
            f"{'agrees' if self.agrees else 'DISAGREES'}, {plain:g} s plain, {screened:g} s "
            f"screened, {self.kept:,} of {self.terms:,} terms kept"
        )

    def __str__(self) -> str:
        rows: list[tuple[object, ...]] = [
            ("status", *self.status, ""),
            ("objective", *(f"{v:.10g}" for v in self.value), _small(*self.value)),
            ("CPU seconds", *(f"{v:.3g}" for v in self.seconds), ""),
            ("loss terms", str(self.terms), str(self.kept), ""),
            ("variables", "", "", f"{self.primal:.2g}"),
            *((f"dual of {name}", "", "", f"{gap:.2g}") for name, gap in self.duals.items()),
        ]
        if not self.agrees:
            rows.append(("certified gap", *(f"{gap:.2g}" for gap in self.gaps), ""))
        word = "agree" if self.agrees else "DO NOT AGREE"
        if self.wrong:
            word += f": the {self.wrong} answer is wrong"
        title = f"plain and screened solve {word} ({self.report.solver})"
        return table(("", "plain", "screened", "difference"), rows, title=title)


@dataclass(frozen=True, repr=False)
class SolverComparisons(Record):
    """Plain and screened solves of one problem by several solvers.

    Attributes
    ----------
    runs : tuple of Comparison
        One for each solver that could take the problem.
    lines : tuple
        Of the table: solver, full or reduced, status, value, then differences from the first plain
        solve (of the value, the variables, the worst dual value), CPU seconds, terms.
    whole : bool
        Whether every solver could take the problem.
    """

    runs: tuple[Comparison, ...]
    lines: tuple[tuple[object, ...], ...]
    whole: bool

    @property
    def agrees(self) -> bool:
        """Whether plain and screened solve agree for every solver that took the problem."""
        return bool(self.runs) and all(run.agrees for run in self.runs)

    def __str__(self) -> str:
        header = (
            "solver", "problem", "status", "value", "of value", "of variables", "of duals",
            "CPU s", "terms",
        )
        word = "agree" if self.agrees else "DO NOT AGREE"
        for one in self.runs:
            if one.wrong:
                word += f"; the {one.wrong} answer of {one.report.solver} is wrong"
        title = f"full and reduced problem {word} (differences from the first line)"
        return table(header, self.lines, title=title)


def _small(first: float, second: float) -> str:
    return f"{abs(first - second) / max(1.0, abs(first)):.2g}"


SHOWN = 48
"""Characters of a constraint's text in a table."""


class _Snapshot(Immutable):
    """A problem's answer, copied."""

    status: str
    value: float
    seconds: float
    variables: tuple[Array, ...]
    duals: tuple[Array | None, ...]

    @classmethod
    def of(cls, problem: Any, seconds: float) -> _Snapshot:
        found = [variable.value for variable in problem.variables()]
        return cls(
            problem.status,
            float("nan") if problem.value is None else float(problem.value),
            seconds,
            tuple(_flat(value) for value in found if value is not None),
            tuple(_dual(constraint) for constraint in problem.constraints),
        )


def _flat(value: Any) -> Array:
    dense = np.atleast_1d(value.toarray() if hasattr(value, "toarray") else np.asarray(value))
    if np.iscomplexobj(dense):
        dense = np.concatenate([dense.real, dense.imag])
    return np.asarray(dense, dtype=np.float64).ravel()


def _dual(constraint: Any) -> Array | None:
    value = constraint.dual_value
    parts = value if isinstance(value, list) else [value]
    if any(part is None for part in parts):
        return None
    return np.concatenate([_flat(part) for part in parts])


@overload
def verify(
    problem: Any,
    solver: list[Any] | tuple[Any, ...],
    *,
    mode: str = ...,
    tol: float = ...,
    **options: Any,
) -> SolverComparisons: ...


@overload
def verify(
    problem: Any,
    solver: str | None = ...,
    *,
    mode: str = ...,
    tol: float = ...,
    **options: Any,
) -> Comparison: ...


def verify(
    problem: Any,
    solver: Any = None,
    *,
    mode: str = "certified",
    tol: float = 1e-6,
    **options: Any,
) -> Comparison | SolverComparisons:
    """Solve `problem` plainly and by screening, and compare; with one solver or with several.

    Afterwards the problem holds the screened solution. Both solves get the same options: those
    given, or tight tolerances for solvers whose defaults are loose.

    Parameters
    ----------
    problem : cvxpy.Problem
    solver : str or list of str, optional
        Clarabel when omitted.
    mode, tol
        As in ``prob.solve(method="screen")``.
    **options
        Passed to the solver.

    Returns
    -------
    Comparison, or SolverComparisons for a list
        With ``agrees``; prints as a table: time, value, variables, dual values, kept terms.

    Raises
    ------
    InvalidInput
        For what is no cvxpy.Problem, an empty list of solvers, or a tolerance outside (0, 1).
    cvxpy.error.SolverError
        As from ``prob.solve()``, for one solver; within a list, a solver that cannot take the
        problem gets a line that says so.

    Examples
    --------
    >>> import cvxpy as cp, cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> w = cp.Variable(3)
    >>> loss = cp.sum(cp.pos(1 - cp.multiply(y, X @ w)))
    >>> prob = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + 0.1 * loss))
    >>> found = cvxscreen.verify(prob, solver="CLARABEL")
    >>> found.agrees, found.status, found.terms
    (True, ('optimal', 'optimal'), 200)
    """
    require_cvxpy_problem(problem)
    Request(None, mode, tol).check()
    if isinstance(solver, list | tuple):
        return _several(problem, list(solver), mode, tol, options)
    return _one(problem, solver, mode, tol, options)[0]


def _several(
    problem: Any, solvers: list[Any], mode: str, tol: float, options: dict[str, Any]
) -> SolverComparisons:
    """One comparison a solver, all against the first plain solve."""
    if not solvers:
        raise InvalidInput("`solver` is an empty list; name at least one.")
    runs: list[Comparison] = []
    lines: list[tuple[object, ...]] = []
    truth: _Snapshot | None = None
    for solver in solvers:
        name = solver_name(solver)
        try:
            found, plain, screened = _one(problem, solver, mode, tol, options)
        except Exception as error:  # the others go on, whatever this one cannot do
            text = " ".join(str(error).split())
            lines.append((name, "full", f"failed: {text[:SHOWN]}", *6 * ("",)))
            continue
        truth = plain if truth is None else truth
        runs.append(found)
        kept = found.kept if found.report.recognised else found.terms
        lines.append((name, "full", *_line(plain, truth, found.terms)))
        lines.append((name, "reduced", *_line(screened, truth, kept)))
    return SolverComparisons(tuple(runs), tuple(lines), len(runs) == len(solvers))


def _line(run: _Snapshot, truth: _Snapshot, terms: int) -> tuple[object, ...]:
    """Status, value, seconds, terms, and differences from `truth`."""
    primal, dual = float("nan"), float("nan")
    if truth.variables and len(run.variables) == len(truth.variables):
        primal = _distance(np.concatenate(truth.variables), np.concatenate(run.variables))
    pairs = [
        _distance(a, b)
        for a, b in zip(truth.duals, run.duals, strict=True)
        if a is not None and b is not None
    ]
    dual = max(pairs) if pairs else dual
    gap = abs(run.value - truth.value) / max(1.0, abs(truth.value))
    seconds = float(f"{run.seconds:.3g}")
    return run.status, f"{run.value:.10g}", gap, primal, dual, seconds, terms


def _one(
    problem: Any, solver: Any, mode: str, tol: float, options: dict[str, Any]
) -> tuple[Comparison, _Snapshot, _Snapshot]:
    """Both solves with one solver."""
    Request(solver, mode, tol).check()
    given = options_for(solver, options)
    for variable in problem.variables():
        # With values, CVXPY may refuse its own helpers' within bounds that it derives for HIGHS.
        variable.save_value(None)
    began = process_time()
    problem.solve(solver=chosen_solver(solver, given), **given)
    plain = _Snapshot.of(problem, process_time() - began)
    began = process_time()
    solve(problem, solver, mode=mode, tol=tol, always=True, **given)
    screened = _Snapshot.of(problem, process_time() - began)
    found = _compare(problem, plain, screened, tol)
    if not found.agrees:
        gaps = _certified_gap(problem, plain, tol), _certified_gap(problem, screened, tol)
        found = replace(found, gaps=gaps)
    return found, plain, screened


def _certified_gap(problem: Any, answer: _Snapshot, tol: float) -> float:
    """The relative gap of an answer on the full data; NaN where there is nothing to certify."""
    variables = problem.variables()
    if len(answer.variables) != len(variables) or not np.isfinite(answer.value):
        return float("nan")
    with preserved_values(variables):
        try:
            for variable, value in zip(variables, answer.variables, strict=True):
                variable.save_value(value.reshape(variable.shape))
            proof = certify_cvxpy(problem, tol=tol)
        except (CvxscreenError, ValueError):
            return float("nan")
    return proof.relative_gap if proof.ok or proof.violation <= tol else float("inf")


def _compare(problem: Any, plain: _Snapshot, screened: _Snapshot, tol: float) -> Comparison:
    report: Report = problem.solver_stats.extra_stats["cvxscreen"]
    primal = float("nan")
    if plain.variables and len(plain.variables) == len(screened.variables):
        first, second = np.concatenate(plain.variables), np.concatenate(screened.variables)
        primal = _distance(first, second)
    duals = {}
    for k, constraint in enumerate(problem.constraints):
        one, other = plain.duals[k], screened.duals[k]
        if one is not None and other is not None:
            text = " ".join(str(constraint).split())
            name = f"{k}: {text if len(text) <= SHOWN else text[: SHOWN - 3] + '...'}"
            duals[name] = _distance(one, other)
    gap = abs(plain.value - screened.value) / max(1.0, abs(plain.value))
    same = plain.status == screened.status
    agrees = same and (plain.value == screened.value or gap <= max(tol, 1e-6))
    return Comparison(
        agrees=bool(agrees),
        status=(plain.status, screened.status),
        value=(plain.value, screened.value),
        seconds=(plain.seconds, screened.seconds),
        primal=primal,
        duals=duals,
        terms=report.terms,
        kept=report.kept,
        tolerance=max(tol, 1e-6),
        report=report,
    )


def _distance(first: Array, second: Array) -> float:
    """Largest difference relative to the largest entry."""
    size = max(1.0, float(np.abs(first).max(initial=0.0)))
    return float(np.abs(first - second).max(initial=0.0)) / size
