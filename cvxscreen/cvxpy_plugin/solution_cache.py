"""What is kept of a CVXPY problem between solves: its recognition and its last solution.

A parameter that got another value changes numbers, not the structure: the cone form is kept (for
problems that follow the DPP rules, as CVXPY keeps its own), and where only costs changed, so are
rows and rules. The last solution, its dual scaled along, is then the reference to screen from.

Entries live as long as their problem. They hold what a recognition holds: dense data by reference,
sparse data once more.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen.bounds import moved
from cvxscreen.certificates.certificate import Certificate
from cvxscreen.core.duality import Point
from cvxscreen.core.problem import Problem
from cvxscreen.cvxpy_plugin.answer import Restored, statistics, status_of, write_back
from cvxscreen.cvxpy_plugin.history import Fingerprints, fingerprints
from cvxscreen.cvxpy_plugin.recognise.check import check, last_check_point
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise_numbers
from cvxscreen.cvxpy_plugin.recognise.recognition import Recognition
from cvxscreen.cvxpy_plugin.recognise.standard import (
    Standard,
    standardise,
    with_current_costs,
    without_value,
)
from cvxscreen.cvxpy_plugin.request import Report
from cvxscreen.errors import NotScreenable
from cvxscreen.solvers.compiled_path.segments import KeptPath
from cvxscreen.solvers.interface import Start
from cvxscreen.solvers.solution import Solution, moved_slopes

if TYPE_CHECKING:
    from cvxscreen.cvxpy_plugin.recognise.changed_costs import CostsByWeight, Weights

Array = NDArray[np.float64]


class LastSolution(Immutable):
    """The last solution.

    Attributes
    ----------
    problem : Problem
        The recognised one that it solves.
    x, theta, multipliers : arrays
    weight : float or None
        Proximal weight that the built-in solver reached.
    evaluated : callable or None
        Gives the same as a point; looked at when a start is needed.
    solution : Solution or None
        All of it.
    """

    problem: Problem
    x: Array
    theta: Array
    multipliers: Array
    weight: float | None = None
    evaluated: Callable[[], Point] | None = None
    solution: Solution | None = None

    @cached_property
    def reference(self) -> Point | None:
        """The same, evaluated; None where it was not kept."""
        return None if self.evaluated is None else self.evaluated()

    @classmethod
    def of(cls, found: Solution) -> LastSolution:
        """What is worth keeping of a solution."""
        weight = found.rounds[-1].solver_info.get("weight") if found.rounds else None
        parts = (found.problem, found.x, found.theta, found.multipliers)
        return cls(*parts, None if weight is None else float(weight), found.point, found)


@dataclass(eq=False)
class CachedProblem:
    """What is kept of one problem.

    Attributes
    ----------
    parts : tuple
        Objective and constraints, to notice another problem in the same object.
    parameters : tuple of cvxpy.Parameter
        In these.
    bare : Recognition, CompositeProblem or BudgetedProblem
        As the rules found it, its problem a weak reference.
    fingerprints : dict of int to bytes
        Fingerprints of the parameters' values that `bare` has.
    inside : frozenset of int
        Parameters that the constraints of the cone form hold.
    last : LastSolution or None
        The last one, of any values.
    answer : LastAnswer or None
        The same where something stands beside the losses, or losses in budgets.
    path : KeptPath or None
        What the built-in engine goes on from, where parameters may change.
    recent : pair or None
        Fingerprints of the last solve and its recognition, a rescaled `bare`.
    at : array or None
        Point at which rescaled recognitions are checked.
    weights : Weights or None
        Of the objective's summands, at the values that `bare` has.
    costs : CostsByWeight or None
        How the costs follow these; learned from the first that differ.
    """

    parts: tuple[Any, ...]
    parameters: tuple[Any, ...]
    bare: Any
    fingerprints: Fingerprints
    inside: frozenset[int]
    last: LastSolution | None = None
    recent: tuple[Fingerprints, Any] | None = None
    at: Array | None = None
    answer: LastAnswer | None = None
    path: KeptPath | None = None
    weights: Weights | None = None
    costs: CostsByWeight | None = None

    def weighed(self, changed: set[int], problem: Any) -> Recognition | None:
        """`bare` at the present weights of summands, where they are all that has `changed`."""
        if self.costs is None or self.weights is None or changed & self.weights.inside:
            return None
        return self.costs.now(problem)


_ENTRIES: weakref.WeakKeyDictionary[Any, CachedProblem] = weakref.WeakKeyDictionary()


def cached_recognition(problem: Any, recognise: Callable[[Any], Any]) -> Any:
    """The recognition of `problem`, from memory as far as possible, or what `recognise` gives else.

    Losses beside a convex part, and losses in budgets, say themselves how they are at other costs
    (``at_costs``) and at other numbers (``anew``).

    Parameters
    ----------
    problem : cvxpy.Problem
    recognise : callable
        What to call when nothing is known.

    Raises
    ------
    NotScreenable
        As from `recognise`.
    """
    entry = _ENTRIES.get(problem)
    if entry is None or not _same(entry.parts, _parts(problem)):
        return _recognise_anew(problem, recognise)
    reason = without_value(entry.parameters)
    if reason:
        raise NotScreenable(reason)
    now = fingerprints(entry.parameters)
    changed = {key for key, value in now.items() if entry.fingerprints.get(key) != value}
    if not changed:
        return entry.bare.tied(problem)
    if entry.recent is not None and entry.recent[0] == now:
        return entry.recent[1].tied(problem)
    found = entry.weighed(changed, problem)
    if found is not None:
        entry.recent = now, found.tied(weakref.proxy(problem))
        return found
    known = entry.bare.tied(problem)
    if not changed & entry.inside:
        current = with_current_costs(known.standard)
        if current is None:
            return _recognise_anew(problem, recognise)
        standard = current
        found = _at_costs(entry, known, standard)
        if found is not None:
            entry.recent = now, found.tied(weakref.proxy(problem))
            return found
    else:
        canonical = known.standard.canonical.with_current_groups()
        if canonical is None:
            return _recognise_anew(problem, recognise)
        standard = standardise(canonical)
    anew = recognise_numbers if isinstance(known, Recognition) else known.anew
    found = anew(standard)
    store_recognition(found)
    if problem in _ENTRIES:
        _ENTRIES[problem].last, _ENTRIES[problem].answer = entry.last, entry.answer
    return found


def _at_costs(entry: CachedProblem, known: Any, standard: Standard) -> Any:
    """What was recognised at other costs, checked; None where the rules must run."""
    if not isinstance(known, Recognition):
        return known.at_costs(standard)
    from cvxscreen.cvxpy_plugin.recognise.changed_costs import CostsByWeight, factors, with_costs

    change = factors(known, standard)
    found = with_costs(known, standard, change)
    if found is None or change is None:
        return None
    if entry.at is None:
        entry.at = last_check_point(found)
    try:
        check(found, at=entry.at)
    except NotScreenable:
        return None
    if entry.weights is not None:
        entry.costs = CostsByWeight.learned(entry.weights, entry.bare, standard, change)
    return found


def _recognise_anew(problem: Any, recognise: Callable[[Any], Any]) -> Any:
    drop(problem)
    found = recognise(problem)
    store_recognition(found)
    return found


def store_recognition(recognition: Any) -> None:
    """Keep what was recognised, as the rules found it at the parameters' present values."""
    canonical = recognition.standard.canonical
    problem = canonical.original
    parameters = tuple(problem.parameters())
    if parameters and not problem.is_dpp():
        return  # what the cone form looks like may depend on their values
    read = (*canonical.groups, *canonical.norms)
    data = [*canonical.problem.constraints, *(part.argument for part in read)]
    inside = frozenset(p.id for part in data for p in part.parameters())
    bare = recognition.tied(weakref.proxy(problem))
    weights = None
    if parameters and isinstance(recognition, Recognition):
        from cvxscreen.cvxpy_plugin.recognise.changed_costs import Weights

        weights = Weights.of(canonical)
    _ENTRIES[problem] = CachedProblem(
        _parts(problem), parameters, bare, fingerprints(parameters), inside,
        path=KeptPath() if parameters else None, weights=weights,
    )


def drop(problem: Any) -> None:
    """Keep nothing of `problem`."""
    _ENTRIES.pop(problem, None)


def changes_only_costs(problem: Any, parameter: Any) -> bool:
    """Whether `parameter` occurs in the objective of the cone form alone."""
    entry = _ENTRIES.get(problem)
    return entry is not None and parameter.id not in entry.inside


def store_solution(problem: Any, last: LastSolution) -> None:
    """Keep `last` as the reference of the next solve."""
    entry = _ENTRIES.get(problem)
    if entry is not None:
        entry.last = last


def last_solution(recognition: Recognition) -> Solution | None:
    """The last solution where it is one of the very problem that is recognised now, else None."""
    entry = _ENTRIES.get(recognition.standard.canonical.original)
    last = None if entry is None else entry.last
    return last.solution if last is not None and last.problem is recognition.problem else None


def kept_path(problem: Any) -> KeptPath | None:
    """What the built-in engine has left of earlier solves; None where no parameter can change."""
    entry = _ENTRIES.get(problem)
    return None if entry is None else entry.path


class LastAnswer(NamedTuple):
    """The last answer of losses beside another convex part, or of losses in budgets.

    Attributes
    ----------
    found : CompositeProblem or BudgetedProblem
        What it is an answer of, its problem a weak reference.
    point : tuple
        A point of the loop that solves such a problem, to start from.
    recognition : Recognition
        Whose columns and rows `restored` has.
    restored : Restored
    report : Report
        Of the solve.
    """

    found: Any
    point: Any
    recognition: Recognition
    restored: Restored
    report: Report

    def is_of(self, found: Any) -> bool:
        """Whether `found` is what it is an answer of, at the same numbers."""
        return _problem_of(found) is _problem_of(self.found)

    def written_again(self, proof: Certificate, recognised: float, seconds: float) -> Report:
        """The answer, certified once more by `proof`, written to the user's problem."""
        times = dict.fromkeys(self.report.times, 0.0) | {"recognise": recognised, "screen": seconds}
        report = replace(
            self.report, gap=proof.gap, relative_gap=proof.relative_gap, rounds=0, times=times
        )
        counts = statistics(report, solve_time=0.0, setup_time=0.0, iterations=0, inner=None)
        write_back(
            self.recognition, self.restored.copy(), status=status_of(True), solver=report.solver,
            statistics=counts,
        )
        return report


def _problem_of(found: Any) -> Problem:
    """The numbers of what was recognised, which are kept as they are where nothing changed."""
    part = found.lagrangian if hasattr(found, "lagrangian") else found.recognition
    return part.problem


def store_answer(
    found: Any, point: Any, recognition: Recognition, restored: Restored, report: Report
) -> None:
    """Keep an answer as the start of the next solve."""
    problem = found.standard.canonical.original
    entry = _ENTRIES.get(problem)
    if entry is not None:
        tied = weakref.proxy(problem)
        entry.answer = LastAnswer(
            found.tied(tied), point, recognition.tied(tied), restored.copy(), report
        )


def last_answer(problem: Any) -> LastAnswer | None:
    """The last answer, of any values of the parameters; None without one."""
    entry = _ENTRIES.get(problem)
    return None if entry is None else entry.answer


def last_start(recognition: Recognition) -> Start | None:
    """The last solution as a start for `recognition`; None without one."""
    entry = _ENTRIES.get(recognition.standard.canonical.original)
    last = None if entry is None else entry.last
    return None if last is None else start_from(last, recognition.problem)


def start_from(last: LastSolution, problem: Problem) -> Start | None:
    """`last` as a start for `problem`, its dual scaled to the present costs; None if it is odd."""
    if (last.problem.n, last.problem.d) != (problem.n, problem.d):
        return None
    old, factor = last.problem, problem.C / last.problem.C
    sides = [None if p.side is None else p.side.dims for p in (old, problem)]
    if sides[0] != sides[1]:
        return None
    weight = None if last.weight is None else 4.0 * last.weight / factor
    alike = problem.side is None and problem.losses.is_multiple(old.losses, factor)
    if alike and last.reference is not None:
        point = moved(problem, last.reference)
        return Start(point.x, point.theta, weight, point.multipliers, point)
    theta = moved_slopes(last.theta, old.losses, problem.losses)
    return Start(last.x, theta, weight, last.multipliers)


def _parts(problem: Any) -> tuple[Any, ...]:
    return (problem.objective, *problem.constraints)


def _same(first: tuple[Any, ...], second: tuple[Any, ...]) -> bool:
    return len(first) == len(second) and all(a is b for a, b in zip(first, second, strict=True))


@dataclass(eq=False)
class Refusals:
    """Why a problem was not recognised.

    Attributes
    ----------
    parts : tuple
        Objective and constraints, to notice another problem in the same object.
    reasons : dict
        By whether the built-in solver was asked for, and the signs of the parameters' entries.
    """

    parts: tuple[Any, ...]
    reasons: dict[tuple[bool, bytes], str] = field(default_factory=dict)


_REFUSALS: weakref.WeakKeyDictionary[Any, Refusals] = weakref.WeakKeyDictionary()


def _signs(problem: Any) -> bytes:
    """Fingerprint of where the parameters are positive, negative, zero or missing.

    A structure that was refused is refused at other numbers as well, but a weight that becomes zero
    takes a term away, and a sign turns a loss round. Where that is not all that decides, a problem
    that could be screened is solved plainly, never wrongly.
    """
    digest = hashlib.blake2b(digest_size=16)
    for parameter in problem.parameters():
        value = parameter.value
        digest.update(str(parameter.id).encode())
        if value is not None:
            dense = value.toarray() if sp.issparse(value) else np.asarray(value)
            digest.update(np.ascontiguousarray(np.sign(np.real(dense))).data)
    return digest.digest()


def known_refusal(problem: Any, builtin: bool) -> str | None:
    """Why `problem` was refused at an earlier solve; None where it was not, or may not be now.

    Parameters
    ----------
    builtin : bool
        Whether the built-in solver is asked for.
    """
    known = _REFUSALS.get(problem)
    if known is None or not _same(known.parts, _parts(problem)):
        return None
    return known.reasons.get((builtin, _signs(problem)))


def store_refusal(problem: Any, builtin: bool, reason: str) -> None:
    """Remember that `problem` is not recognised, so that its next solve goes straight to CVXPY."""
    known = _REFUSALS.get(problem)
    if known is None or not _same(known.parts, _parts(problem)):
        known = _REFUSALS[problem] = Refusals(_parts(problem))
    known.reasons[builtin, _signs(problem)] = reason
