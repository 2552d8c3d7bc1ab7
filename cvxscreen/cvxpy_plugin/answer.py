"""What a solve leaves on the user's problem: values, status and dual values, by CVXPY's own means.

All canonical columns and multipliers are computed first; CVXPY's reductions then take them back,
and `Problem.unpack_results` sets value, status, variables, dual values and statistics. Nothing of
the user's problem changes before that call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import cvxpy as cp
import numpy as np
from cvxpy.problems.problem import SolverStats
from cvxpy.reductions.solution import Solution
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen.cvxpy_plugin.recognise.auxiliary_variables import places
from cvxscreen.cvxpy_plugin.recognise.triangular import lengthened
from cvxscreen.cvxpy_plugin.request import Report, with_report

if TYPE_CHECKING:  # a plain solve with short residuals takes nothing else of the recogniser
    from cvxscreen.cvxpy_plugin.recognise.recognition import Recognition
    from cvxscreen.cvxpy_plugin.recognise.short_squares import ShortProblem
    from cvxscreen.cvxpy_plugin.recognise.standard import Canonical, Cone, Standard

Array = NDArray[np.float64]


class _Named(NamedTuple):
    """What `unpack_results` asks of a solver: its name."""

    title: str

    def name(self) -> str:
        """The name for ``solver_stats``."""
        return self.title


class _WayBack(NamedTuple):
    """What `unpack_results` asks of a chain: `invert` and a solver."""

    canonical: Canonical
    solver: _Named

    def invert(self, solution: Solution, inverse_data: Any) -> Solution:
        """The canonical solution as one of the user's problem."""
        return self.canonical.invert(solution)


def dual_values(standard: Standard, multipliers: Array) -> dict[int, Any]:
    """Multipliers of all rows as CVXPY's dual values, by identifier of the canonical constraint."""
    grouped: dict[int, list[Cone]] = {}
    for cone in standard.cones:
        grouped.setdefault(cone.constraint, []).append(cone)
    out: dict[int, Any] = {}
    for position, cones in grouped.items():
        constraint = standard.canonical.problem.constraints[position]
        part = np.concatenate([multipliers[cone.rows] for cone in cones])
        kind = cones[0].kind
        if kind == "soc":
            out[constraint.id] = part
            continue
        shape = constraint.shape
        value = np.reshape(-part if kind == "zero" else part, shape, order="F")
        if kind == "psd":
            value = 0.5 * (value + value.T)
        out[constraint.id] = float(value) if shape == () else value
    for group, slack, rows in standard.slacks():  # arguments carry minus the slopes of their losses
        weight = group.weight
        if group.budget is not None:
            weight = weight * multipliers[standard.budget_of(group)]
        found = slack.multipliers(-group.sign * multipliers[rows], weight)
        out |= {key: out[key] + part if key in out else part for key, part in found.items()}
    groups, defined = standard.canonical.groups, standard.canonical.defined
    if defined:
        back = places(defined)
        slopes = [
            -group.sign * multipliers[rows]
            for group, rows in zip(groups, standard.arguments, strict=True)
        ]
        for one in defined:  # the rest of what pulls at them is known with all dual values
            out[one.constraint.id] = one.pull(zip(groups, slopes, strict=True), back)
    return out


def not_solved(status: str) -> str:
    """Why nothing is written of a reduced problem that ended with `status`."""
    return f"the reduced problem was not solved to optimality ({status})"


class Restored(NamedTuple):
    """A solution of the whole canonical problem.

    Attributes
    ----------
    z : array, shape (N,)
        All columns.
    multipliers : array, shape (m,)
        Of all rows.
    """

    z: Array
    multipliers: Array

    def copy(self) -> Restored:
        """Apart from what the user's variables are given, which the user may write into."""
        return Restored(self.z.copy(), self.multipliers.copy())


def restore(
    recognition: Recognition, x: Array, theta: Array, side: Array, shares: Array | None = None
) -> Restored:
    """From the core coordinates to everything.

    Parameters
    ----------
    x : array, shape (d,)
    theta : array, shape (n,)
    side : array, shape (k,)
        Multipliers of the side constraints.
    shares : array, shape (p,), optional
        Slopes of the pieces of maxima.
    """
    z = recognition.columns(x)
    standard = recognition.standard
    held = standard.cones or standard.canonical.defined or any(True for _ in standard.slacks())
    if not held:  # nothing has a dual value
        return Restored(z, np.zeros(recognition.standard.rows.shape[0]))
    return Restored(z, recognition.multipliers(z, theta, side, shares=shares))


def status_of(ok: bool, last: str | None = None, limited: bool = False) -> str:
    """CVXPY's status of an answer: whether its certificate holds, how the solver's last call ended.

    A solver that a limit of the user's stopped, built in or not, is reported as CVXPY reports it.
    """
    if ok:
        return str(cp.OPTIMAL)
    return str(cp.USER_LIMIT if limited or last == cp.USER_LIMIT else cp.OPTIMAL_INACCURATE)


def write_back(
    recognition: Recognition,
    restored: Restored,
    *,
    status: str,
    solver: str,
    statistics: dict[str, Any],
    value: float | None = None,
) -> None:
    """Set value, status, variables, dual values and statistics of the user's problem.

    Parameters
    ----------
    restored : Restored
    status : str
        One of CVXPY's.
    solver : str
        Name for ``solver_stats``.
    statistics : dict
        By CVXPY's attribute names (``cvxpy.settings``).
    value : float, optional
        The canonical objective, where it is known.
    """
    standard = recognition.standard
    solution = Solution(
        status,
        recognition.value(restored.z) if value is None else value,
        standard.split(restored.z),
        dual_values(standard, restored.multipliers),
        dict(statistics),
    )
    original = standard.canonical.original
    original._compilation_time = statistics[cp.settings.EXTRA_STATS]["compilation_time"]
    if status == cp.OPTIMAL and value is not None:
        _unpack(original, standard.canonical.invert(solution), solver)
        return
    way = _WayBack(standard.canonical, _Named(solver))
    original.unpack_results(solution, way, None)


def write_infeasible(
    standard: Standard, duals: dict[int, Any], solver: str, statistics: dict[str, Any]
) -> None:
    """Make the user's problem one without feasible points, `duals` by which that is shown.

    Parameters
    ----------
    duals : dict
        As `dual_values` gives them; the user's constraints have them from CVXPY 1.9 on.
    solver, statistics
        As of `write_back`.
    """
    original = standard.canonical.original
    original._compilation_time = statistics[cp.settings.EXTRA_STATS]["compilation_time"]
    solution = Solution(cp.INFEASIBLE, float("inf"), {}, duals, dict(statistics))
    original.unpack_results(solution, _WayBack(standard.canonical, _Named(solver)), None)


def _unpack(problem: Any, solution: Solution, solver: str) -> None:
    """What ``problem.unpack_results`` does with an optimal solution, whose value is known.

    CVXPY evaluates the objective's expression over all terms for its value.
    """
    for variable in problem.variables():
        variable.save_value(solution.primal_vars[variable.id])
    for constraint in problem.constraints:
        if constraint.id in solution.dual_vars:
            constraint.save_dual_value(solution.dual_vars[constraint.id])
    problem._value = solution.opt_val
    problem._status = solution.status
    problem._solution = solution
    problem._solver_stats = SolverStats.from_dict(solution.attr, solver)


def statistics(
    report: Report,
    *,
    solve_time: float,
    setup_time: float,
    iterations: Any,
    inner: Any,
    compilation_time: float = 0.0,
) -> dict[str, Any]:
    """Attributes for ``solver_stats``; the report goes beside what the inner solver says.

    ``extra_stats["compilation_time"]`` are the seconds that the recognition and CVXPY's compilation
    of the reduced problems took: what ``write_back`` makes ``prob.compilation_time``.
    """
    extra = with_report(report, inner)
    extra["compilation_time"] = report.times.get("recognise", 0.0) + compilation_time
    settings = cp.settings
    return {
        settings.SOLVE_TIME: solve_time,
        settings.SETUP_TIME: setup_time,
        settings.NUM_ITERS: iterations,
        settings.EXTRA_STATS: extra,
    }


USELESS = 1e-2
"""An answer with a larger certified gap (relative) is not handed out, but solved again plainly."""

RANKS = {cp.OPTIMAL: 0, cp.OPTIMAL_INACCURATE: 1, cp.USER_LIMIT: 2}
"""Which of two answers is better; any other status of CVXPY's comes behind these."""


class StoredAnswer(Immutable):
    """The answer that a problem of the user's holds, to compare it with another one.

    Attributes
    ----------
    solution : cvxpy Solution
    solver : str
        Name of the solver.
    objective : float
        Value to be minimised.
    extra : dict
        The extra statistics, with the report.
    """

    solution: Solution
    solver: str
    objective: float
    extra: Any

    @classmethod
    def of(cls, problem: Any) -> StoredAnswer:
        """The answer that `problem` holds."""
        sign = -1.0 if isinstance(problem.objective, cp.Maximize) else 1.0
        value = float("inf") if problem.value is None else sign * float(problem.value)
        stats = problem.solver_stats
        return cls(problem.solution, stats.solver_name, value, stats.extra_stats)

    def rank(self) -> tuple[int, float]:
        """A key that sorts better answers first: by status, then by objective."""
        return RANKS.get(self.solution.status, 3), self.objective

    def write(self, problem: Any) -> None:
        """Make it the answer of `problem`."""
        self.solution.attr[cp.settings.EXTRA_STATS] = self.extra
        problem.unpack_results(self.solution, _Unchanged(_Named(self.solver)), None)


class _Unchanged(NamedTuple):
    """A chain for a solution that is one of the user's problem already."""

    solver: _Named

    def invert(self, solution: Solution, inverse_data: Any) -> Solution:
        """The solution as it is."""
        return solution


def write_short_answer(problem: Any, short: ShortProblem) -> bool:
    """Make the answer of a problem with short residuals the user's; False where it is not theirs.

    CVXPY evaluates the user's own objective for its value, on all of the data.
    """
    if not all(one.agrees() for one in short.shortened):
        return False
    answer = StoredAnswer.of(short.problem)
    solution = answer.solution
    solution.dual_vars = lengthened(solution.dual_vars, short.shortened)
    if solution.primal_vars:
        for one in short.defined:
            one.variable.save_value(one.residuals.value)
            solution.primal_vars[one.variable.id] = one.variable.value
        for one in short.defined:
            multipliers = one.multipliers(problem.objective)
            if multipliers is None:
                return False
            solution.dual_vars[one.constraint] = multipliers
    answer.write(problem)
    problem._compilation_time = short.problem.compilation_time
    return True
