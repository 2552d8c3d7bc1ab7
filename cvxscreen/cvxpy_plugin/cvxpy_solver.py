"""A solver of CVXPY as the solver of the reduced problems: written, solved, read.

A regularised problem is written in one vector variable ``z`` (`build`). With ``theta in [lo, hi]``
and ``f* = b theta + e |theta| + q/2 theta^2``, every loss is

::

    f(t) = minimum of  hi u - lo v + n^2 / (2 q)   over  u, v >= 0, |w| <= e, n
           subject to  t - b = u - v + w - n

which needs the data once, and linear constraints only. Slacks that cannot help are left out (``u``
where ``hi = 0`` turns the equation into ``>=``, ``v`` where ``lo = 0`` into ``<=``; ``w`` where
``e = 0``; ``n`` where ``q = 0``), so a hinge costs one row and one slack. The multiplier of the row
is ``theta``. Bounds are explicit constraints, never attributes of a variable: solvers that take
bounds on variables are then handed none.

The LP-SVM is written as anybody would (`lp_to_cvxpy`), the joint problem of rASO as a semidefinite
program (`joint_sdp`). `CvxpySolver` solves what is written and moves the answer strictly inside the
side constraints where that can be done; `metric_start` gives metric learning a first point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.duality import reference_point
from cvxscreen.core.losses import Losses, LossTerms
from cvxscreen.core.penalty import L1, PSD, NonNegative
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.cvxpy_plugin.recognise.matrices import gathered
from cvxscreen.cvxpy_plugin.request import (
    GENERAL,
    chosen_solver,
    ignore_warnings,
    installed,
    options_for,
    solver_name,
)
from cvxscreen.designs.gram import Gram
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import CvxscreenError, InvalidInput, UnknownName
from cvxscreen.solvers.apg import Apg
from cvxscreen.solvers.interface import Start, SubproblemResult, SubproblemSolver

if TYPE_CHECKING:
    from cvxscreen.multitask.problem import MultiTask

Array = NDArray[np.float64]
Index = NDArray[np.intp]
LossRows = tuple[Any, Index, float]
"""A constraint of CVXPY with loss terms: which terms, and the sign from dual value to slope."""


class Built(Immutable):
    """A problem built for CVXPY.

    Attributes
    ----------
    problem : cvxpy.Problem
    source : Problem
    variable : cvxpy.Expression
        ``z``, shape (d,): a variable, or the entries of a symmetric one.
    rows : tuple of LossRows
    side : tuple of (cvxpy constraint, function)
        Constraints of the side rows and how to read their multipliers.
    """

    problem: Any
    source: Problem
    variable: Any
    rows: tuple[LossRows, ...]
    side: tuple[tuple[Any, Callable[[Any], Array]], ...]

    def read(self) -> tuple[Array, Array, Array]:
        """The solution after a solve.

        Returns
        -------
        x : array, shape (d,)
        theta : array, shape (n,)
            Clipped into ``[lo, hi]``; subgradients at `x` where the solver gave no dual values.
        multipliers : array, shape (m,)
        """
        losses = self.source.losses
        x = np.asarray(self.variable.value, dtype=np.float64)[: self.source.d]
        theta = losses.slope(self.source.design.forward(x)) if self.source.n else np.zeros(0)
        theta = slopes_of(self.rows, theta)
        parts = [pick(constraint) for constraint, pick in self.side]
        multipliers = np.concatenate(parts) if parts else np.zeros(0)
        return x, np.clip(theta, losses.lo, losses.hi), multipliers


def build(
    problem: Problem, further: Callable[[Any], tuple[Any, list[Any]]] | None = None
) -> Built:
    """Write `problem` for CVXPY; see the module's docstring.

    Parameters
    ----------
    problem : Problem
    further : callable, optional
        From ``z`` to a further cost and its constraints.
    """
    asked, problem = problem, problem if problem.d else _held_at_zero(problem)
    z, penalty, constraints = _variable(problem)
    objective = penalty + problem.linear @ z + problem.constant
    objective = objective + _regulariser(problem, z)
    cost, more, rows = written_losses(problem, z)
    objective = objective + cost
    constraints += more
    side = _side(problem, z)
    constraints += [entry[0] for entry in side]
    if further is not None:
        cost, more = further(z)
        objective = objective + cost
        constraints += more
    if not constraints:
        # Some solvers refuse a problem without a single row.
        constraints = [cp.Variable(1) == 0]
    made = cp.Problem(cp.Minimize(objective), constraints)
    return Built(made, asked, z, rows, side)


def _held_at_zero(problem: Problem) -> Problem:
    """A problem without coordinates, all of them dropped, as one in a coordinate that is 0.

    CVXPY knows no variable without entries.
    """
    side = problem.side
    if side is not None:
        side = SideConstraints(sp.csr_matrix((len(side.offset), 1)), side.offset, side.dims)
    return replace(
        problem, design=Rows(np.zeros((problem.n, 1))), quadratic=Quadratic(np.ones(1)),
        linear=np.zeros(1), penalty=None, side=side,
    )


def written_losses(problem: Problem, z: Any) -> tuple[Any, list[Any], tuple[LossRows, ...]]:
    """The losses of `problem` at the vector variable `z`: cost, constraints, and where slopes are.

    The constraints hold for slacks of their own. See `slopes_of` for the last entry.
    """
    losses, rows = problem.losses, []
    cost: Any = 0.0
    constraints: list[Any] = []
    down, up = losses.lo < 0, losses.hi > 0
    for mask, kind in ((down & ~up, "ge"), (up & ~down, "le"), (down & up, "eq")):
        index = np.flatnonzero(mask)
        if len(index):
            more_cost, more, main = _losses(problem, z, index, kind)
            cost = cost + more_cost
            constraints += [main, *more]
            rows.append((main, index, -1.0 if kind == "ge" else 1.0))
    return cost, constraints, tuple(rows)


def slopes_of(rows: tuple[LossRows, ...], theta: Array) -> Array:
    """`theta` with the slopes that dual values say; as it is where a solver gave none."""
    out = theta.copy()
    for constraint, index, sign in rows:
        if constraint.dual_value is not None:
            out[index] = sign * np.asarray(constraint.dual_value).ravel()
    return out


def _variable(problem: Problem) -> tuple[Any, Any, list[Any]]:
    """``z`` with what the penalty asks of it: its cost and its constraints."""
    penalty = problem.penalty
    if isinstance(penalty, PSD):
        matrix = cp.Variable((penalty.side, penalty.side), symmetric=True)
        return cp.vec(matrix, order="C"), 0.0, [matrix >> 0]
    z = cp.Variable(problem.d)
    if isinstance(penalty, L1):
        return z, penalty.kappa @ cp.abs(z), []
    if isinstance(penalty, NonNegative):
        return z, 0.0, [z >= 0]
    if penalty is not None:
        raise InvalidInput(f"`penalty` {penalty!r} cannot be written for CVXPY.")
    return z, 0.0, []


def _regulariser(problem: Problem, z: Any) -> Any:
    quadratic = problem.quadratic
    if not isinstance(quadratic, Quadratic) or quadratic.matrix is not None:
        return 0.5 * cp.quad_form(z, quadratic.dense(), assume_PSD=True)
    if (quadratic.diagonal == 1.0).all():
        return 0.5 * cp.sum_squares(z)
    if not quadratic.diagonal.any():
        return 0.0
    return 0.5 * cp.quad_form(z, sp.diags_array(quadratic.diagonal, format="csc"), assume_PSD=True)


def _losses(problem: Problem, z: Any, index: Index, kind: str) -> tuple[Any, list[Any], Any]:
    """Cost, bounds of the slacks, and the main rows of some terms."""
    losses = problem.losses.take(index)
    design = problem.design.take_rows(index)
    data = design.rows_csr(np.arange(len(index))) if design.sparse else design.dense()
    b = losses.b
    if kind != "eq":
        b = b - losses.e if kind == "ge" else b + losses.e
    left = data @ z - b
    cost: Any = 0.0
    more: list[Any] = []

    def slack(mask: Any) -> tuple[Any, Any, Index]:
        """A variable for some of the rows, and its place in them."""
        where = np.flatnonzero(mask)
        variable = cp.Variable(len(where))
        if len(where) == len(index):
            return variable, variable, where
        place = sp.csc_array(
            (np.ones(len(where)), (where, np.arange(len(where)))), shape=(len(index), len(where))
        )
        return variable, place @ variable, where

    for kinds, slopes, sign in ((("ge", "eq"), -losses.lo, 1.0), (("le", "eq"), losses.hi, -1.0)):
        if kind in kinds and np.isfinite(slopes).any():
            variable, placed, where = slack(np.isfinite(slopes))
            cost = cost + slopes[where] @ variable
            more.append(variable >= 0)
            left = left + placed if sign > 0 else left - placed
    if kind == "eq" and (losses.e > 0).any():
        variable, placed, where = slack(losses.e > 0)
        more += [variable <= losses.e[where], variable >= -losses.e[where]]
        left = left - placed
    if (losses.q > 0).any():
        variable, placed, where = slack(losses.q > 0)
        weight = sp.diags_array(0.5 / losses.q[where], format="csc")
        cost = cost + cp.quad_form(variable, weight, assume_PSD=True)
        left = left - placed if kind == "le" else left + placed
    main = {"ge": left >= 0, "le": left <= 0}.get(kind)
    return cost, more, left == 0 if main is None else main


def _vector(constraint: Any) -> Array:
    return np.atleast_1d(np.asarray(constraint.dual_value, dtype=np.float64)).ravel()


def _minus_vector(constraint: Any) -> Array:
    return -_vector(constraint)


def _heads_first(constraint: Any) -> Array:
    """Of cones of one size, whose tails are columns: one after the other, head first."""
    head, tail = (np.asarray(part, dtype=np.float64) for part in constraint.dual_value)
    return np.vstack([head.ravel(), tail.reshape(-1, head.size)]).ravel(order="F")


def _symmetric(constraint: Any) -> Array:
    square = np.asarray(constraint.dual_value, dtype=np.float64)
    return np.asarray((0.5 * (square + square.T)).flatten(order="F"))


def _side(problem: Problem, z: Any) -> tuple[tuple[Any, Callable[[Any], Array]], ...]:
    """The side constraints, cone by cone."""
    if problem.side is None:
        return ()
    made: list[tuple[Any, Callable[[Any], Array]]] = []
    for kind, size, rows in problem.side.runs:
        value = sp.csc_array(problem.side.matrix[rows]) @ z + problem.side.offset[rows]
        if kind == "zero":
            made.append((value == 0, _minus_vector))
        elif kind == "nonneg":
            made.append((value >= 0, _vector))
        elif kind == "soc":
            table = cp.reshape(value, (size, value.size // size), order="F")
            made.append((cp.SOC(table[0], table[1:], axis=0), _heads_first))
        else:
            square = cp.reshape(value, (size, size), order="F")
            made.append((square >> 0, _symmetric))
    return tuple(made)


def to_cvxpy(problem: Problem) -> Any:
    """`problem` as a ``cvxpy.Problem`` in one vector variable.

    Of a kernel problem the variable is w in coordinates of the points' own span; see
    `explicit_features`.
    """
    return build(explicit_features(problem)).problem


def explicit_features(problem: Problem) -> Problem:
    """A kernel problem as one in rows of numbers; any other problem as it is.

    With ``K = Z Z'`` the point ``w = sum_j c_j z_j`` of the kernel's space is ``Z' c``: the same
    margins, the same norm. The optima agree, and so do slopes and intercept.
    """
    gram = problem.design
    if not isinstance(gram, Gram):
        return problem
    Z = gram.features()
    rows = gram.sign[:, None] * Z[gram.index]
    linear = Z.T @ problem.linear[: len(Z)]
    diagonal = np.ones(Z.shape[1])
    if gram.intercept:
        rows = np.column_stack([rows, gram.sign])
        linear, diagonal = np.append(linear, problem.linear[-1]), np.append(diagonal, 0.0)
    return Problem(
        Rows(rows), problem.losses, Quadratic(diagonal), linear, constant=problem.constant,
        C=problem.C, kind=problem.kind,
    )


def joint_sdp(problem: MultiTask) -> Any:
    """``min losses + c tr T`` over ``[[eta I + M, U], [U', T]] >= 0, 0 <= M <= I, tr M = h``.

    Returns
    -------
    cvxpy.Problem
        With variables named ``U`` (d, m), ``b`` (m,), ``M`` (d, d), ``T`` (m, m), ``p`` (n,); the
        first constraint says that ``p`` are the predictions, its dual value is minus their slopes.
    """
    d, m, f = problem.d, problem.m, problem.losses
    U, b = cp.Variable((d, m), name="U"), cp.Variable(m, name="b")
    M = cp.Variable((d, d), symmetric=True, name="M")
    T = cp.Variable((m, m), symmetric=True, name="T")
    p = cp.Variable(problem.n, name="p")
    predicted = p == cp.hstack([X @ U[:, k] + b[k] for k, X in enumerate(problem.X)])
    eye = np.eye(d)
    block = cp.bmat([[problem.eta * eye + M, U], [U.T, T]])
    constraints = [predicted, block >> 0, M >> 0, eye - M >> 0, cp.trace(M) == problem.h]
    losses, more = _joint_losses(p - f.b, f)
    constraints += more
    objective = cp.sum(losses) + problem.c * cp.trace(T)
    return cp.Problem(cp.Minimize(objective), constraints)


def _joint_losses(z: Any, f: LossTerms) -> tuple[Any, list[Any]]:
    """The losses of the distances ``z`` from their centres, and constraints they need."""
    n = len(f)
    if f.q.any():
        # f(z) = min over r, w, |w| <= e of r^2 / 2q + the lines beyond, z = r + w + the rest.
        r, extra = cp.Variable(n, name="r"), []
        rest = z - r
        for bounded, side in ((np.isfinite(f.lo), -1.0), (np.isfinite(f.hi), 1.0)):
            if not bounded.all():  # no line on this side: the parabola never ends
                extra.append(side * rest[~bounded] <= f.e[~bounded])
        curve = cp.multiply(0.5 / np.where(f.q > 0, f.q, 1.0), cp.square(r))
        if (f.q == 0).any():
            extra.append(r[f.q == 0] == 0)
    else:
        rest, extra, curve = z, [], 0.0
    high = np.where(np.isfinite(f.hi), f.hi, 0.0)
    low = np.where(np.isfinite(f.lo), -f.lo, 0.0)
    lines = []
    if high.any():
        lines.append(cp.multiply(high, cp.pos(rest - f.e)))
    if low.any():
        lines.append(cp.multiply(low, cp.pos(-rest - f.e)))
    return sum(lines, curve), extra


# -- the solver ------------------------------------------------------------------------------------


# What solvers call a limit of their own; others are left alone until they are done.
SECONDS = {
    "CLARABEL": "time_limit", "HIGHS": "time_limit", "OSQP": "time_limit", "SCS": "time_limit_secs"
}

ITERATIONS = {"CLARABEL": "max_iter", "OSQP": "max_iter", "SCS": "max_iters"}


ACCURATE = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
"""Clarabel's tolerances where the user gives none: two digits more than its defaults, so that a
gradient that is balanced to them passes for unpenalised coordinates (hinges in balls of two norms,
8,000 x 60: certified after one of three rounds, 1.3 s for 8.4)."""


@dataclass(eq=False)
class CvxpySolver(SubproblemSolver):
    """Calls CVXPY on each reduced problem.

    Parameters
    ----------
    solver : str, solver object or None
        As in ``prob.solve(solver=...)``; see `chosen_solver` for None.
    options : dict
        Passed to every solve untouched.
    limits : Limits
        Of the whole call; the solver is told what is left, where it can be (`SECONDS`,
        `ITERATIONS`).

    Attributes
    ----------
    problem_solved : cvxpy.Problem or None
        The last reduced problem, for its statistics.
    failure : str
        What CVXPY said when it raised, in the last such call.
    solve_time, setup_time : float
        Sums over all calls of what the solver reports.
    compilation_time : float
        Seconds that CVXPY took to compile the reduced problems, over all calls.
    calls : int
        How often CVXPY was called.
    further : callable or None
        From the vector variable to a further cost and its constraints.
    interior_points : dict
        A strictly feasible point (or None) for the side constraints met so far.
    """

    solver: Any = None
    options: dict[str, Any] = field(default_factory=dict)
    limits: Limits = UNLIMITED
    problem_solved: Any = None
    failure: str = ""
    solve_time: float = 0.0
    setup_time: float = 0.0
    compilation_time: float = 0.0
    calls: int = 0
    further: Callable[[Any], tuple[Any, list[Any]]] | None = None
    interior_points: dict[int, tuple[SideConstraints, Any]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The solver's name."""
        return solver_name(self.solver)

    @property
    def leaves_choice(self) -> bool:
        """Whether the user has named neither a solver nor options of one."""
        return self.solver is None and set(self.options) <= GENERAL

    @property
    def warm(self) -> bool:
        """Whether it may go on from an earlier answer."""
        return bool(self.options.get("warm_start", True))

    def account(self) -> str:
        """What the solver did, in words; empty where it was not needed."""
        if not self.calls:
            return ""
        if self.problem_solved is None:
            return f"failed in {self.calls} calls: {self.failure}"
        stats = self.problem_solved.solver_stats
        often = "one call" if self.calls == 1 else f"{self.calls} calls"
        return (
            f"{self.problem_solved.status} after {stats.num_iters} iterations, "
            f"{self.solve_time:.2g} s in {often}, {self.compilation_time:.2g} s compiling"
        )

    def limited_options(self) -> dict[str, Any]:
        """The options, with what is left of the limits."""
        options, name = dict(self.options), self.name
        for left, names in ((self.limits.seconds, SECONDS), (self.limits.iterations, ITERATIONS)):
            if left is not None and name in names:
                options[names[name]] = min(left, options.get(names[name], left))
        return options

    def moved_inside(self, side: SideConstraints, x: Any) -> Any:
        """`x` moved inside `side` for certain, where a strictly feasible point is found."""
        key = id(side)
        if key not in self.interior_points:
            self.interior_points[key] = (side, strictly_feasible_point(side))
        towards = self.interior_points[key][1]
        return x if towards is None else side.moved_inside(x, towards)

    def __call__(
        self, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> SubproblemResult:
        """Solve `problem`; start and target are for solvers that can use them.

        Returns
        -------
        SubproblemResult
            ``"optimal"``, ``"inaccurate"``, or CVXPY's own status (``"solver_error"`` when it
            raises).
        """
        self.calls += 1
        built = build(explicit_features(problem), self.further)
        solver = chosen_solver(self.solver, self.options)
        try:
            with ignore_warnings():
                built.problem.solve(solver=solver, **self.limited_options())
        except cp.error.SolverError as error:
            self.failure = str(error)
            return _failed(cp.SOLVER_ERROR, str(error))
        self.problem_solved = built.problem
        stats = built.problem.solver_stats
        self.solve_time += stats.solve_time or 0.0
        self.setup_time += stats.setup_time or 0.0
        self.compilation_time += built.problem.compilation_time or 0.0
        self.limits.spent(stats.num_iters or 0)
        status = built.problem.status
        if status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE, cp.USER_LIMIT):
            return _failed(status, status)
        if built.variable.value is None:
            return _failed(status, status)
        x, theta, multipliers = built.read()
        if built.source is not problem:  # of a kernel problem: coefficients follow from the slopes
            free = problem.quadratic.free
            intercept = x[built.source.quadratic.free]
            x = problem.quadratic.solve(-problem.design.adjoint(theta) - problem.linear)
            x[free] = intercept
        if problem.side is not None and problem.n:  # bounds are of losses
            x = self.moved_inside(problem.side, x)
        word = "optimal" if status == cp.OPTIMAL else "inaccurate"
        return SubproblemResult(word, x, theta, multipliers, {"iterations": stats.num_iters})


def _failed(status: str, message: str) -> SubproblemResult:
    nothing = np.zeros(0)
    return SubproblemResult(status, nothing, nothing, nothing, {"message": message})


def named_cvxpy_solver(
    name: str, limits: Limits = UNLIMITED, others: Sequence[str] = ("auto", "builtin"),
    elsewhere: Sequence[str] = (),
) -> CvxpySolver:
    """The inner solver that calls CVXPY's solver `name`, with tolerances tight enough to certify.

    Raises
    ------
    UnknownName
        If CVXPY has no such solver installed; `others` are our names that fit and `elsewhere` those
        that other problems have, to be listed.
    """
    if name.upper() not in installed():
        raise UnknownName.among("solver", name, [*others, *installed()], elsewhere)
    return CvxpySolver(name.upper(), options_for(name, {}), limits)


def solve_joint_sdp(
    problem: MultiTask, name: str, limits: Limits = UNLIMITED, others: Sequence[str] = ()
) -> tuple[Any, Any, Any, Any]:
    """``(U, b, M, theta)`` of a multi-task problem by CVXPY's solver `name`, on all of it.

    Raises
    ------
    UnknownName
        If CVXPY has no such solver installed; `others` are names known elsewhere, to be listed.
    cvxpy.error.SolverError
        Where the solver finds no answer.
    """
    solver = named_cvxpy_solver(name, limits, others)
    sdp = joint_sdp(problem)
    with ignore_warnings():
        sdp.solve(solver=solver.name, **solver.limited_options())
    limits.spent(sdp.solver_stats.num_iters or 0)
    found = sdp.var_dict
    if found["U"].value is None:
        raise cp.error.SolverError(f"{solver.name} ended without an answer ({sdp.status}).")
    theta = -np.asarray(sdp.constraints[0].dual_value).ravel()
    theta = np.clip(theta, problem.losses.lo, problem.losses.hi)
    return found["U"].value, found["b"].value, found["M"].value, theta


# -- points inside the side constraints for certain -----------------------------------------------
#
# Bounds may rest on them. A solver ends on the boundary, a rounding error inside or outside; no
# theorem holds for a point outside. A step towards a strictly feasible point makes up for the
# rounding: the constraints are convex, so a small part of the way leaves everything inside, and the
# duality gap, computed at the point where the step ends, pays for it. Equalities have no interior;
# they hold up to rounding, which the bounds charge (`SideConstraints.nearness`), and the step goes
# along them.


ROWS, MATRIX = 20_000, 30
"""Larger side constraints (rows, side of a PSD matrix) are not worth a solve of their own."""


def strictly_feasible_point(side: SideConstraints) -> Array | None:
    """A point well inside `side`, or None where there is none, or none to be found cheaply.

    Returns
    -------
    array, shape (d,), or None
    """
    large = any(kind == "psd" and size > MATRIX for kind, size in side.dims)
    if large or side.matrix.shape[0] > ROWS:
        return None
    x, room = cp.Variable(side.matrix.shape[1]), cp.Variable()
    constraints: list[Any] = [room <= 1.0]
    for kind, size, rows in side.blocks():
        matrix = sp.csc_array(side.matrix[rows])
        value = matrix @ x + side.offset[rows]
        if kind == "zero":
            constraints.append(value == 0)
        elif kind == "nonneg":
            reach = np.sqrt(np.asarray(abs(matrix).power(2).sum(axis=1)).ravel())
            constraints.append(value >= room * np.maximum(reach, 1e-300))
        elif kind == "soc":
            constraints.append(cp.norm(value[1:]) <= value[0] - room)
        else:
            square = cp.reshape(value, (size, size), order="F")
            constraints.append(0.5 * (square + square.T) >> room * np.eye(size))
    problem = cp.Problem(cp.Minimize(1e-3 * cp.sum_squares(x) - room), constraints)
    try:
        problem.solve(solver="CLARABEL")
    except cp.error.SolverError:
        return None
    if x.value is None or room.value is None or not float(room.value) > 1e-8:
        return None
    found = np.asarray(x.value, dtype=np.float64)
    return found if np.isfinite(side.nearness(found)) else None


# -- a first point for metric learning: one PSD matrix, its squared Frobenius norm -----------------
#
# A conic solver needs long for many triplets, accelerated proximal gradient on the same problem
# with its kinks slightly smoothed does not: a step is one pass over the data and one
# eigendecomposition. The point it ends with is only a reference to screen and to predict from; what
# it is worth is measured by its gap on the problem itself.


FEW, LARGE = 1000, 40_000_000
"""Fewer terms are left to the solver; more entries of data are not written out in full."""

WIDTH = 0.001
"""Kinks are smoothed over this width, relative to where they are."""

GAP = 3e-6
"""Gap asked for, relative to the objective at 0."""

STEPS = 600
"""Of the proximal gradient method at most; where they end, the start is worth what it is worth."""


def metric_start(problem: Problem) -> Start | None:
    """A start for `problem`, or None where it is no metric learning or too small to need one.

    Parameters
    ----------
    problem : Problem
        With one PSD constraint whose entries are the coordinates, each once or twice.
    """
    side, quadratic = problem.side, problem.quadratic
    if side is None or len(side.dims) != 1 or side.dims[0][0] != "psd" or problem.n < FEW:
        return None
    size = int(side.dims[0][1])
    frame = sp.csr_array(side.matrix)
    single = (np.diff(frame.indptr) == 1).all() and (frame.data == 1.0).all()
    plain = isinstance(quadratic, Quadratic) and quadratic.matrix is None
    if not (single and plain) or side.offset.any() or problem.n * size**2 > LARGE:
        return None
    times = np.bincount(frame.indices, minlength=problem.d).astype(np.float64)
    if (times == 0).any() or (quadratic.diagonal == 0).any():
        return None
    weight = quadratic.diagonal / times
    if np.ptp(weight) > 1e-12 * weight.max() or not isinstance(problem.design, Rows):
        return None
    try:
        return _solved(problem, frame, times, float(weight[0]), size)
    except (CvxscreenError, np.linalg.LinAlgError):
        return None


def _solved(problem: Problem, frame: Any, times: Array, weight: float, size: int) -> Start | None:
    """The smoothed problem over all entries of the matrix, solved and brought back."""
    spread = sp.csr_array(frame @ sp.diags_array(1.0 / times))
    design = problem.design
    if design.sparse:
        rows = design.rows_csr(np.arange(problem.n))
        entries = np.asarray((spread @ rows.T).T.toarray())
    else:
        entries = gathered(design.dense(), sp.csc_array(spread.T))
    losses = problem.losses
    steepest = np.maximum(
        np.where(np.isfinite(losses.lo), -losses.lo, 0.0),
        np.where(np.isfinite(losses.hi), losses.hi, 0.0),
    )
    where = float(np.median(np.abs(losses.b) + losses.e)) or 1.0
    soft = WIDTH * where / np.where(steepest > 0, steepest, 1.0)
    q = np.where(losses.q > 0, losses.q, soft)
    whole = Problem(
        design=Rows(entries),
        losses=Losses(losses.b, losses.e, q, losses.lo, losses.hi),
        quadratic=Quadratic(np.full(size**2, weight)),
        linear=np.asarray(spread @ problem.linear),
        penalty=PSD(size),
    )
    target = GAP * abs(whole.primal(np.zeros(size**2)))
    found = Apg(max_iterations=STEPS, check=25)(whole, None, target)
    if not found.usable:
        return None
    point = reference_point(whole, found.x, found.theta)
    x = np.asarray(spread.T @ found.x)
    well = np.asarray(spread.T @ np.eye(size).ravel()) * max(float(np.abs(x).max()), 1e-300)
    if problem.side is not None:
        x = problem.side.moved_inside(x, x + well)  # so that proofs may rest on it
    return Start(x, found.theta, None, -point.penalty_subgradient)
