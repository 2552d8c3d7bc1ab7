"""The calls most users need on problems of their own: `solve`, `screen` and `certify`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from numpy.typing import ArrayLike

from cvxscreen import bounds as bound_table
from cvxscreen._support.extensions import or_cvxpy
from cvxscreen._support.limits import UNLIMITED, Limits, Progress, with_threads
from cvxscreen._support.validation import check_request, one_of, tolerance
from cvxscreen.bounds import Bound
from cvxscreen.certificates import certificate
from cvxscreen.certificates.certificate import Certificate
from cvxscreen.core.duality import Point
from cvxscreen.core.problem import Problem
from cvxscreen.errors import InvalidInput
from cvxscreen.multitask import MultiTask, MultiTaskSolution, solve_multitask
from cvxscreen.screening.reduction import Verdict, judge
from cvxscreen.solvers.interface import SubproblemSolver
from cvxscreen.solvers.metric.solver import LISTED
from cvxscreen.solvers.solution import Round, Solution
from cvxscreen.solvers.solve import solve_problem

OURS = (
    "a problem from `svm`, `regression`, `sparse_svm`, `rtlm`, `raso` or `Problem` is needed "
    "(a cvxpy.Problem has its own way: prob.solve(method='screen'))"
)


@overload
def solve(
    problem: MultiTask,
    *,
    tol: float = 1e-6,
    mode: str = "certified",
    solver: str = "auto",
    bounds: Sequence[str] | None = None,
    start: MultiTaskSolution | None = None,
    progress: bool = False,
    time_limit: float | None = None,
    max_iter: int | None = None,
    threads: int | None = None,
) -> MultiTaskSolution: ...


@overload
def solve(
    problem: Problem,
    *,
    tol: float = 1e-6,
    mode: str = "certified",
    solver: str | SubproblemSolver = "auto",
    bounds: Sequence[str | Bound] | None = None,
    start: Solution | None = None,
    progress: bool = False,
    time_limit: float | None = None,
    max_iter: int | None = None,
    threads: int | None = None,
) -> Solution: ...


@with_threads
def solve(
    problem: Problem | MultiTask,
    *,
    tol: float = 1e-6,
    mode: str = "certified",
    solver: Any = "auto",
    bounds: Any = None,
    start: Any = None,
    progress: bool = False,
    time_limit: float | None = None,
    max_iter: int | None = None,
    threads: int | None = None,
) -> Solution | MultiTaskSolution:
    """Solve `problem` through screening, with a certificate on the full data.

    A small problem does not wait for a compiler: the loops are compiled, once a machine, when the
    calls without them have cost as much CPU time as compiling does. Last digits, within `tol`, may
    differ before and after; ``cvxscreen warmup`` compiles everything in advance.

    Parameters
    ----------
    problem : Problem
        From `svm`, `regression`, or any `Problem`; or a `MultiTask` from `raso`, which has solvers
        of its own (see `cvxscreen.multitask.solve_multitask`).
    tol : float
        Relative duality gap ``gap / max(|primal|, |dual|)`` on the full problem, in (0, 1).
    mode : {"certified", "safe"}
        ``"safe"`` fixes only what a theorem proves (refused for data in chunks); ``"certified"``
        may also predict, and then proves the answer on the full data.
    solver : str or SubproblemSolver
        ``"auto"`` or ``"builtin"`` for the built-in solver that suits. By name, ``"apg"`` is
        accelerated proximal gradient (smooth losses); ``"dcd"`` is dual coordinate descent with
        shrinking (Hsieh et al. 2008), ``"dcd_no_shrinking"`` the same on every term that is left;
        ``"interior_point"`` is a primal-dual interior point method for up to 2,000 coordinates,
        linear side constraints and short second-order cones included; ``"sdca"`` and ``"spdc"`` are
        these methods under an L1 term (Shibagaki et al. 2016); ``"projected_gradient"``,
        ``"active_set"`` (Yoshida et al. 2019, sections 7 and 7.3) and ``"newton"`` are methods of
        metric learning. Otherwise the name of a solver that CVXPY has installed (``"CLARABEL"``,
        ``"SCS"``, ...), which then solves the reduced problem, or a solver of your own
        (`cvxscreen.solvers.interface.SubproblemSolver`).
    bounds : sequence of str or Bound, optional
        Bounds to prove with, by name or as functions from the problem and a point of it to a
        region (default ``("midpoint",)``, under an L1 term ``("joint",)``,
        without a quadratic one ``("dual",)``, for the LP-SVM ``("lp",)``); see `bounds.available`.
    start : Solution, optional
        A warm start: a solution of the same problem, or of the same data at another C.
    progress : bool
        Whether to show a line a round.
    time_limit : float, optional
        Seconds of wall time after which the best point so far is certified and returned. Looked at
        between two iterations of a built-in solver; Clarabel, HiGHS, OSQP and SCS are told what is
        left, any other solver finishes its reduced solve. Certifying comes on top (two passes).
    max_iter : int, optional
        Iterations of the solver at most, over all rounds.
    threads : int, optional
        How many threads share the passes over large data; -1 is one for each core. The same bits
        whatever the number; within a worker of joblib always 1. None, the default, is one thread.
        NumPy's own threads take no part in these passes, nor in rounds over data of more than
        50,000 entries, unless single products take seconds.

    Returns
    -------
    Solution
        Status ``"optimal"`` only with a certificate that holds; ``"time_limit"`` or
        ``"iteration_limit"`` where that limit came first, with the gap that was reached. Over data
        in chunks a `ChunkedSolution`: `theta` and `alpha` are made when asked for.

    Raises
    ------
    UnknownName
        For an unknown mode, bound or solver.
    InvalidInput
        For a tolerance outside (0, 1), a start that does not fit, or a number of threads that is
        none.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> solution = cvxscreen.solve(cvxscreen.svm(X, y, C=0.1, intercept=True), tol=1e-9)
    >>> solution.status, round(solution.value, 4), solution.w.shape
    ('optimal', 5.395, (3,))
    >>> bool(solution.certificate.relative_gap <= 1e-9)
    True
    """
    one_of("problem", problem, (Problem, MultiTask), OURS)
    tol = tolerance(tol)
    limits = Limits(time_limit, max_iter)
    if isinstance(problem, MultiTask):
        return _solve_tasks(problem, tol, mode, solver, bounds, start, progress, limits)
    if start is not None:
        one_of("start", start, Solution, "what `solve` returned for such a problem is needed")
    mode = check_request(mode, tol)
    chosen = chosen_bounds(problem, bounds)
    if problem.n > LISTED and chosen != bound_table.default_bounds(problem):
        raise InvalidInput(
            f"`bounds` is {bounds!r}; a set of {problem.n:,} terms is screened by 'midpoint' only."
        )
    limited = time_limit is not None or max_iter is not None
    with Progress(None, "rounds", shown=progress) as bar:

        def show(record: Round) -> None:
            bar.step(f"kept {record.kept:,}, relative gap {record.relative_gap:.1e}")

        return solve_problem(
            problem,
            tol=tol,
            mode=mode,
            solver=solver,
            bounds=None if bounds is None else chosen,
            start=start,
            limits=limits if limited else UNLIMITED,
            on_round=show if progress else None,
        )


def chosen_bounds(problem: Problem, bounds: Any) -> tuple[Bound, ...]:
    """The bounds that are asked for by name or as functions, or the usual ones for None."""
    if bounds is None:
        return bound_table.default_bounds(problem)
    return tuple(
        bound if callable(bound) else bound_table.fitting(problem, bound)
        for bound in _names(bounds)
    )


def _names(bounds: Any) -> tuple[Any, ...]:
    """Bounds, one alone or several, by their own names; functions as they are."""
    if isinstance(bounds, str) or callable(bounds):
        bounds = (bounds,)
    try:
        return tuple(b if callable(b) else bound_table.canonical(b) for b in bounds)
    except TypeError:
        raise InvalidInput(
            f"`bounds` is {bounds!r}; a list of names like ('midpoint',) is needed."
        ) from None


def _solve_tasks(
    problem: MultiTask,
    tol: float,
    mode: str,
    solver: str,
    bounds: Sequence[str] | None,
    start: MultiTaskSolution | None,
    progress: bool,
    limits: Limits,
) -> MultiTaskSolution:
    """The joint problem; block coordinate descent screens its U-steps if `bounds` asks for it."""
    if bounds is not None and _names(bounds) != problem.bounds:
        raise InvalidInput(
            f"`bounds` is {bounds!r}; a multi-task problem is screened by 'midpoint' only."
        )
    with Progress(None, "rounds", shown=progress) as bar:
        return solve_multitask(
            problem, tol=tol, mode=mode, solver=solver, start=start, limits=limits,
            screening=bounds is not None,
            on_round=lambda r: bar.step(f"relative gap {r.relative_gap:.1e}"),
        )


def screen(
    problem: Problem,
    *,
    reference: Solution | Point | tuple[Solution | Point, Solution | Point],
    bound: str | Bound = "midpoint",
    rule: str = "sphere",
) -> Verdict:
    """One screening pass: what `bound` proves about `problem`, given `reference`.

    Parameters
    ----------
    problem : Problem
    reference : Solution or Point, or a pair of them
        Of `problem` itself, or of the same data at another C (bounds that are not in
        `bounds.PARAMETER_CHANGE` then evaluate its point on `problem` first); a pair for a bound of
        `bounds.PAIRS`. It need not be exact.
    bound : str or Bound
        The bound's name in its paper, in any case (see `bounds.available`), or a function from the
        problem and a point of it to a region.
    rule : {"sphere", "linear", "cone"}
        For metric learning, what the sphere is cut by: nothing, a half-space, the cone of metrics
        (also ``"SDLS"``).

    Returns
    -------
    Verdict

    Raises
    ------
    UnknownName
        For an unknown bound.
    InvalidInput
        For one reference where the bound needs two, or two where it needs one.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> solution = cvxscreen.solve(cvxscreen.svm(X, y, C=0.1), tol=1e-9)
    >>> verdict = cvxscreen.screen(solution.problem.with_(C=0.11), reference=solution)
    >>> verdict.reduce().n                                      # of 200 terms, before any solve
    13
    """
    one_of("problem", problem, Problem, OURS)
    if callable(bound):
        point = _point(reference)
        if point.problem is not problem:
            point = bound_table.moved(problem, point)
        return judge(problem, bound_table.cut(problem, bound(problem, point), rule))
    name = bound_table.canonical(bound)
    if isinstance(reference, tuple | list):
        pair = bound_table.fitting_pair(problem, name)
        if len(reference) != 2:
            raise InvalidInput(f"`reference` holds {len(reference)} points; a pair is needed.")
        both = pair(problem, _point(reference[0]), _point(reference[1]))
        return judge(problem, bound_table.cut(problem, both, rule))
    if problem.pure_l1 and name == "midpoint":
        [name] = bound_table.available(problem)  # the default stands for the only one
    region, point = bound_table.fitting(problem, name), _point(reference)
    across = name in bound_table.PARAMETER_CHANGE or name in bound_table.CONES
    if point.problem is not problem and not across:
        point = bound_table.moved(problem, point)
    return judge(problem, bound_table.cut(problem, region(problem, point), rule))


def _point(reference: Any) -> Point:
    one_of(
        "reference", reference, (Solution, Point),
        "a solution, or a point from `reference_point`, is needed",
    )
    point: Point = reference.point() if isinstance(reference, Solution) else reference
    return point


@or_cvxpy("cvxpy.certify")
def certify(
    problem: Any,
    x: ArrayLike | None = None,
    theta: ArrayLike | None = None,
    multipliers: ArrayLike | None = None,
    *,
    tol: float = 1e-6,
) -> Certificate:
    """Recompute how far an answer is from optimal, on all of the data.

    Of a problem of this package: the duality gap of the pair ``(x, theta)``. Of a ``cvxpy.Problem``
    that has been solved, by whatever solver: ``certify(prob)``, of the values that its variables
    have now, slacks and epigraph variables included.

    Parameters
    ----------
    problem : Problem or cvxpy.Problem
    x : array_like, shape (d,)
        For a `Problem` only, as is what follows.
    theta : array_like, shape (n,)
        Slopes of the losses; outside their boxes the certificate is refused.
    multipliers : array_like, shape (m,), optional
        Multipliers of the side constraints, in the dual cone.
    tol : float
        Relative gap asked for.

    Returns
    -------
    Certificate
        With ``ok``, ``gap``, ``relative_gap``, ``violation`` and ``reason``.

    Raises
    ------
    InvalidInput
        On wrong shapes, a `tol` that is not positive, or a variable of CVXPY without a value.
    NotScreenable
        For a ``cvxpy.Problem`` that is not recognised, with the reason.

    Notes
    -----
    ``P(x) - D(theta) = 1/2 ||x - x_theta||_M^2 + sum_i (f_i(t_i) + f_i*(theta_i) - t_i theta_i)
    + <mu, F x + f>`` with ``M x_theta = -(A' theta + q - F' mu)``; see
    `cvxscreen.certificates.certificate`.

    Examples
    --------
    >>> import cvxpy as cp, cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> w = cp.Variable(3)
    >>> loss = cp.sum(cp.pos(1 - cp.multiply(y, X @ w)))
    >>> prob = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + 0.1 * loss))
    >>> value = prob.solve(solver="CLARABEL")
    >>> cvxscreen.certify(prob).ok
    True
    """
    needed = "a `Problem` (from `svm`, `regression`, ...) or a `cvxpy.Problem` is needed"
    one_of("problem", problem, Problem, needed)
    if x is None or theta is None:
        name = "x" if x is None else "theta"
        raise InvalidInput(f"`{name}` is None; the point to certify and its slopes are needed.")
    return certificate.certify(problem, x, theta, multipliers, tol=tol)
