"""Which solver a problem goes to: the built-in one that suits, or one called by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cvxscreen._support.compiled import not_imported
from cvxscreen._support.extensions import loaded, supplied
from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen._support.validation import plain_name, word
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.solvers.compiled_path import segments
from cvxscreen.solvers.interface import SubproblemSolver

if TYPE_CHECKING:
    from cvxscreen.solvers.dual_active_set import DualActiveSet
    from cvxscreen.solvers.interior_point import InteriorPoint
    from cvxscreen.solvers.linear_program import Highs
    from cvxscreen.solvers.metric.solver import MetricSolver
    from cvxscreen.solvers.newton import Newton
    from cvxscreen.solvers.prox_newton import ProxNewton
    from cvxscreen.solvers.smo import Smo

    Builtin = Newton | DualActiveSet | Smo | MetricSolver | ProxNewton | InteriorPoint | Highs

# A solver is imported when a problem goes to it: together they take as long to import as what is
# needed to solve a small problem by one of them. Hence places, ``"module:name"``, in the tables.

CROSSOVER = 150
"""Coordinates from which on `DualActiveSet` is the faster one on sparse data.

Measured on text-like data: hinge loss, 20,000 terms, eight values of C from 0.05 to 5, relative gap
1e-6. CPU seconds of `DualActiveSet` and `Newton`: 0.5 and 1.5 with 100 coordinates, 0.4 and 1.8
with 200, 0.5 and 2.9 with 400, 0.5 and 9.1 with 800, 0.4 and 11.5 with 1600.

That is begun from the value before. Where `Newton` has cheap systems it is the faster one under
losses that all have a parabola. Under others it, or the interior point method, takes over where
coordinate descent is far from the optimum when it gives up (`ScreenedRows.descend`).
"""


AUTOMATIC = ("auto", "builtin", "newton")
"""Names that leave the choice among the built-in solvers to `builtin_solver`."""

NAMED_ONLY = {
    "apg": "cvxscreen.solvers.apg:Apg",
    "dcd": "cvxscreen.solvers.dual_coordinate_descent:DualCoordinateDescent",
    "dcd_no_shrinking": "cvxscreen.solvers.dual_coordinate_descent:without_shrinking",
    "interior_point": "cvxscreen.solvers.interior_point:InteriorPoint",
    "sdca": "cvxscreen.solvers.stochastic:Sdca",
    "spdc": "cvxscreen.solvers.stochastic:Spdc",
}
"""Built-in solvers that are used only when named."""

METRIC_METHODS = {"projected_gradient": "bb", "active_set": "active_set", "newton": "newton"}
"""Methods of `MetricSolver` by name: projected gradient with Barzilai-Borwein steps, the same on
the terms with a positive loss (Yoshida et al. 2019, sections 7 and 7.3), and the proximal augmented
Lagrangian. On its own it takes the last where the first is slow."""

FINE, KINKED = 1e-10, 1e-8
"""Relative gap at which variables and dual values are as precise as those of an interior point
method that stops at 1e-8 of everything: on 17 real sets the coordinates are then within 1e-7, at
the cost of one or two Newton steps more than for 1e-6. The second under an L1 term with losses that
have a kink, where the last digits are slow."""


EASY, EASY_WIDTH, SMOOTH, TWO_SIDED = 0.08, 16, 2.0, 4.0
"""A problem of the second number of coordinates is easy where a slope moves its margin by the first
share at most; of more coordinates by that times the square of their ratio, as Newton's systems
grow; of fewer never. A loss with a parabola counts for so many, as Newton's method needs but a few
steps, and so does a kink with slopes of either sign. Measured on 32 sets, C from 0.001 to 0.1, of
the compiled path's time: with 8 to 14 coordinates 0.9 to 1.4 at any share; with 18 to 60, at 0.02
of the ratio's square 0.4 to 0.9, at 0.05 to 0.1 0.4 to 1.4, from 0.12 on 0.6 to 2.2; with absolute
losses 0.6 to 0.9 at 0.015 and 1 to 1.7 at 0.04."""


GIVEN_UP = 400.0
"""`beginning.hardness` from which on coordinate descent is given up over dense rows, more than
coordinates, whose terms end on parabolas. Huber, CPU seconds, with it and without: at 150 and 250
2,400 x 2,000 0.7 and 1.8, 1.1 and 1.9, 3,000 x 2,000 0.7 and 1.3, 1.1 and 1.7; at 400 2,000 x 500
0.37 and 0.05, 3,000 x 1,300 0.91 and 0.40, 4,000 x 1,900 1.7 and 0.9, at 1,500 7.7 and 1.1; at 500
3,000 x 2,000 2.9 and 1.4; 2,000 x 2,000 the same."""


def _slow_at_the_end(problem: Problem) -> bool:
    """Whether an L1 term meets losses that have a kink."""
    return isinstance(problem.penalty, L1) and bool((problem.losses.q == 0).any())


def fine_gap(problem: Problem) -> float:
    """The relative gap to ask of the built-in engine where it stands for a solver of CVXPY.

    The same before a solver of CVXPY is given what screening leaves: at 1e-12 the pilot took up to
    half of the whole time (sparse 3,000 x 10,000), at 1e-6 the solver got 3 to 40 times the terms.
    """
    return KINKED if _slow_at_the_end(problem) else FINE


def pilot_gap(problem: Problem, mode: str) -> float:
    """The relative gap to ask of the built-in solver before another one gets what it leaves.

    In safe mode only what is proven leaves the problem, and the radius of a proof is the root of
    the gap.
    """
    fine = fine_gap(problem)
    return 0.01 * fine if mode == "safe" and fine < KINKED else fine


FEW_STORED, WIDE_CALLS = 300_000, 3
"""Stored entries of sparse rows up to which Newton's method takes 130 ms at most for smooth losses
(12,000 x 539; 2,000 x 7,500 15 to 45, 4,000 x 12,000 40 to 50; 20,000 x 1,000 with 748,000 entries
360); and what it takes over many columns, in calls as `segments.charge` counts them: 1.3 to 4."""

SOON = 1e7
"""Products of entries in a system of equations of all rows up to which the interior point method
takes 60 ms at most under an L1 norm (10,000 x 30)."""

WAITED = 30
"""The same, in so many times that, for a lasso that has an intercept: 0.4 s."""


OF_FEW_COLUMNS = 1e-3
"""CPU seconds that the interior point method takes longer than `ProxNewton` once that is loaded,
beside those for each entry of the data (the lasso, 2,000 x 20, in a sequence: 2 to 4 ms in all)."""


class BuiltinEngine(NamedTuple):
    """One way to solve problems of a kind.

    Attributes
    ----------
    name : str
    suits : callable
        Whether it takes a problem.
    place : str
        Where the solver of reduced problems in the loop of screening lives, ``"module:name"``.
    penalised : bool
        Whether the problems that suit it may have a penalty.
    constrained : bool
        Whether they may have side constraints, or no strong convexity.
    """

    name: str
    suits: Callable[[Problem], bool]
    place: str
    penalised: bool = False
    constrained: bool = False

    @property
    def solver(self) -> type[Builtin]:
        """The solver of reduced problems."""
        found: type[Builtin] = loaded(self.place)
        return found

    def takes(self, problem: Problem) -> bool:
        """Whether it takes every part of a problem that it `suits` better than other engines."""
        plain = problem.side is None and not problem.without_curvature
        return (plain or self.constrained) and (problem.penalty is None or self.penalised)


NEWTON = "cvxscreen.solvers.newton:Newton"

COMPILED_PATH = BuiltinEngine("compiled_path", segments.suits, NEWTON)
"""The whole loop compiled, for one value of C as for many; where it cannot be taken, `Newton`."""


def _is_metric(problem: Problem) -> bool:
    """Whether `problem` is metric learning with (smoothed) hinges."""
    if problem.penalty is None or isinstance(problem.design, Rows):
        return False
    return bool(loaded("cvxscreen.solvers.metric.solver:is_metric")(problem))


def _is_for_interior_point(problem: Problem) -> bool:
    """Whether side constraints or a missing square leave `problem` to the interior point method.

    Or an L1 norm in terms of its own, beside losses with kinks: the slopes of both are so far apart
    that Newton's method over smoothed losses takes hundreds of steps (hinges, quantile and absolute
    losses with an intercept, an L1 norm and squares, 3,000 x 12 to 20,000 x 40: 0.13 to 1.1 s for
    0.05 to 0.18, columns of different units 0.3 to 3.8 for 0.02 to 0.1).
    """
    if has_norms(problem):
        return True
    plain = problem.side is None and not problem.without_curvature
    if plain and not _kinks_beside_unit_terms(problem):
        return False
    if not problem.n and loaded("cvxscreen.solvers.cones:are_many")(problem):
        return False
    if loaded("cvxscreen.solvers.interior_point:takes")(problem):
        return True
    # Of far more coordinates than it takes those that terms of their own hold at 0 are left out,
    # or they are terms of the dual.
    if loaded("cvxscreen.solvers.columns:columns_can_go")(problem):
        return True
    return bool(loaded("cvxscreen.solvers.dual_form:couples_few")(problem))


def has_norms(problem: Problem) -> bool:
    """Whether the losses of `problem` are many norms of residuals, whose bounds are eliminated.

    Only problems with as many cones wait for the module that tells to be imported.
    """
    if problem.side is None or not problem.side.many_cones:
        return False
    return loaded("cvxscreen.solvers.cones:compact")(problem) is not None


def _kinks_beside_unit_terms(problem: Problem) -> bool:
    """Whether most coordinates have a term for themselves, and losses of data have kinks.

    Problems that were read from CVXPY alone are written so; others have a penalty.
    """
    design = problem.design
    if problem.kind != "cvxpy" or problem.penalty is not None or not isinstance(design, Rows):
        return False
    terms = design.single[0]
    if not problem.d <= 2 * len(terms) < problem.n:
        return False
    return int(np.count_nonzero(problem.losses.q == 0.0)) >= 2 * len(terms)


def _is_for_prox_newton(problem: Problem) -> bool:
    """Whether an L1 term stands in `problem`, of rows of data."""
    if not isinstance(problem.penalty, L1):
        return False
    return bool(loaded("cvxscreen.solvers.prox_newton:takes")(problem))


def has_kernel(problem: Problem) -> bool:
    """Whether `problem` knows the products of its rows alone."""
    if isinstance(problem.design, Rows):
        return False
    return isinstance(problem.design, loaded("cvxscreen.designs.gram:Gram"))


def _has_cheap_systems(problem: Problem) -> bool:
    """Whether Newton's systems over sparse rows cost less than the passes that they save."""
    return bool(loaded("cvxscreen.solvers.newton:systems_are_cheap")(problem))


def _is_for_dual_active_set(problem: Problem) -> bool:
    """Whether `problem` has sparse data and many coordinates, and no few steps of Newton's do."""
    if problem.d < CROSSOVER or not problem.design.sparse:
        return False
    if problem.losses.ends("q")[0] > 0.0 and _has_cheap_systems(problem):
        return False
    return bool(loaded("cvxscreen.solvers.dual_active_set:suits")(problem))


DUAL_ACTIVE_SET = BuiltinEngine(
    "dual_active_set", _is_for_dual_active_set, "cvxscreen.solvers.dual_active_set:DualActiveSet"
)
PLAIN = BuiltinEngine("newton", lambda problem: True, NEWTON)

ENGINES = (
    # Over data in chunks `Newton` stands for the choice made anew for each reduced problem.
    BuiltinEngine("chunks", lambda problem: problem.design.streamed, NEWTON, penalised=True),
    BuiltinEngine(
        "metric", _is_metric, "cvxscreen.solvers.metric.solver:MetricSolver", penalised=True
    ),
    BuiltinEngine(
        "interior_point", _is_for_interior_point,
        "cvxscreen.solvers.interior_point:InteriorPoint", penalised=True, constrained=True,
    ),
    BuiltinEngine(
        "linear_program", lambda problem: problem.linear_program,
        "cvxscreen.solvers.linear_program:Highs", penalised=True,
    ),
    BuiltinEngine(
        "prox_newton", _is_for_prox_newton, "cvxscreen.solvers.prox_newton:ProxNewton",
        penalised=True,
    ),
    BuiltinEngine("smo", has_kernel, "cvxscreen.solvers.smo:Smo"),
    DUAL_ACTIVE_SET,
    COMPILED_PATH,
    PLAIN,
)
"""Which engine a problem gets, for one value of the parameter as for many: the first that suits."""


def engine(problem: Problem) -> BuiltinEngine:
    """The built-in engine for `problem`; `BuiltinEngine.takes` says what it does not take."""
    return next(row for row in ENGINES if row.suits(problem))


def builtin_takes(problem: Problem) -> bool:
    """Whether there is a built-in engine for `problem`, with its constraints, without a square."""
    return engine(problem).takes(problem)


def left_to_us(solver: str | SubproblemSolver) -> bool:
    """Whether `solver` leaves the choice to us."""
    return isinstance(solver, str) and solver.lower() in ("auto", "builtin")


def compiled_path(
    problem: Problem, solver: str | SubproblemSolver, *, many: bool = False
) -> bool:
    """Whether `solver` leaves the choice to us, and `problem` goes to the compiled path.

    With `many` it is to be solved for many values of C.
    """
    if not left_to_us(solver) or _kinks_beside_unit_terms(problem):
        return False
    if many:
        return COMPILED_PATH.suits(problem) or segments.suits_many(problem)
    suits = COMPILED_PATH.suits(problem) or segments.suits_one(problem)
    return suits and problem.d <= segments.WIDTH_OF_ONE


def begins_by_descent(problem: Problem) -> bool:
    """Whether a cold solve of `problem` is best begun with coordinate descent.

    Over dense rows with few coordinates Newton steps cost next to nothing; there only where the
    problem is easy. Nor where it would be given up.
    """
    if not isinstance(problem.design, Rows):
        return False
    pays = problem.design.sparse or problem.d > segments.NARROW or _easy(problem)
    if pays and _on_parabolas(problem):
        pays = loaded("cvxscreen.solvers.beginning:hardness_about_centre")(problem) < GIVEN_UP
    return pays and bool(loaded("cvxscreen.solvers.dual_active_set:DualIterate").takes(problem))


def _on_parabolas(problem: Problem) -> bool:
    """Whether the losses of dense rows, more than coordinates, have their parabola at 0 residual.

    Most terms of Huber's loss end on it, and coordinate descent meets all of their eigenvalues.
    """
    f, (n, d) = problem.losses, problem.design.shape
    if problem.design.sparse or n <= d or not f.ends("q")[0] > 0.0:
        return False
    return bool(f.ends("lo")[1] < 0.0 < f.ends("hi")[0])


def _easy(problem: Problem) -> bool:
    """Whether no single slope can move a margin by much: a few epochs do then.

    A slope that goes from one end of its box to the other moves its term's margin by
    ``||a_i||^2 (hi_i - lo_i)``; this is compared with the sizes of the margins at the kinks.
    """
    if problem.d < EASY_WIDTH:
        return False
    f = problem.losses
    span = f.hi - f.lo
    size = np.abs(f.b) + f.e
    slope = np.where(np.isfinite(span), span, size / np.maximum(f.q, 1e-300))
    harder = np.where(f.q > 0.0, SMOOTH, np.where((f.lo < 0.0) & (f.hi > 0.0), TWO_SIDED, 1.0))
    moves = float(np.square(problem.norms) @ (harder * slope))
    return moves <= EASY * (problem.d / EASY_WIDTH) ** 2 * float(size.sum())


def sooner_than_loops(problem: Problem) -> bool:
    """Whether for one solve the interior point method is done before a compiled loop is loaded.

    That is under an L1 norm, over dense data of few columns: `ProxNewton` takes less once it is
    loaded (1,000 x 10 to 10,000 x 30: 3 to 30 ms for 7 to 60), but to import numba 0.3 to 0.5 s.
    """
    design = problem.design
    if not isinstance(problem.penalty, L1) or not isinstance(design, Rows) or design.sparse:
        return False
    small = problem.n * problem.d * min(problem.n, problem.d) <= SOON
    return small and segments.before_loading(problem)


def waits_for_loops(problem: Problem, rows: int, often: bool = False) -> bool:
    """Whether a lasso of `rows` with an intercept is better solved as it is than by loops to load.

    The interior point method solves one with terms for its absolute values in less time than
    importing numba takes (300 x 400 0.09 s, 600 x 600 0.2; 1,000 x 1,000 0.8). That is counted.
    What is solved `often`, maybe in several processes, goes the same way in all of them: small ones
    wait for nothing, whatever is loaded.
    """
    d = problem.d - 1
    products = rows * d * min(rows, d)
    if often:
        return products <= SOON
    waits = SOON < products <= WAITED * SOON and segments.before_loading(problem)
    if waits:
        segments.charge(problem, times=WIDE_CALLS)
    return waits


def newton_before_loops(problem: Problem) -> bool:
    """Whether for one solve Newton's method is done before `DualActiveSet` has loaded its loops.

    That is over few sparse rows whose losses all have a parabola, where the dual is well
    conditioned, while numba is not even imported: 15 to 130 ms, for the 400 that this takes.
    """
    if not (not_imported() and segments.before_loading(problem)):
        return False
    if not DUAL_ACTIVE_SET.suits(problem):
        return False
    if segments.stored(problem) > FEW_STORED or not problem.losses.ends("q")[0] > 0.0:
        return False
    return not loaded("cvxscreen.solvers.beginning:is_hard")(problem)


def builtin_solver(problem: Problem, limits: Limits = UNLIMITED) -> Builtin:
    """The built-in solver of reduced problems for `problem`, within `limits`; see `ENGINES`.

    Raises
    ------
    InvalidInput
        Under a penalty that none of them takes.
    """
    return _solver_of(engine(problem), problem, limits)


def _solver_of(found: BuiltinEngine, problem: Problem, limits: Limits) -> Builtin:
    """The solver of the engine `found`, unless `problem` has a penalty that it does not take."""
    if problem.penalty is not None and not found.penalised:
        raise InvalidInput(
            f"`solver`: no built-in solver takes a penalty ({problem.penalty.name}); name one that "
            "CVXPY has installed."
        )
    return found.solver(limits=limits)


def solver_of_one(problem: Problem, limits: Limits = UNLIMITED) -> SubproblemSolver:
    """The same for one solve, where it may be another one that has no loops to load."""
    if not sooner_than_loops(problem):
        return builtin_solver(problem, limits)
    segments.charge(problem, OF_FEW_COLUMNS)
    soon: SubproblemSolver = loaded(NAMED_ONLY["interior_point"])(limits=limits)
    return soon


NEEDED = "the name of a solver, like 'auto' or 'CLARABEL', or a `SubproblemSolver` is needed"
"""What a refusal asks for."""


def named_solver(
    solver: str | SubproblemSolver, problem: Problem, limits: Limits = UNLIMITED
) -> SubproblemSolver:
    """The solver called `solver`: the built-in one, or any that CVXPY has installed.

    A solver itself is returned as it is; its limits are its own.

    Raises
    ------
    UnknownName
        If CVXPY does not know the name either; the message lists ours and those installed.
    """
    if not isinstance(solver, str) and isinstance(solver, SubproblemSolver):
        return solver
    ours = (*AUTOMATIC, *NAMED_ONLY, *METRIC_METHODS)
    name = plain_name(word("solver", solver, NEEDED), ours)
    if name in METRIC_METHODS and _is_metric(problem):
        metric: SubproblemSolver = loaded("cvxscreen.solvers.metric.solver:MetricSolver")(
            METRIC_METHODS[name], limits
        )
        return metric
    if name in ("projected_gradient", "active_set"):
        raise InvalidInput(
            f"`solver` is {solver!r}, a method for metric learning (`rtlm`); for smooth losses of "
            "other problems there is 'apg'."
        )
    auto = False
    if name in AUTOMATIC:
        found = engine(problem)
        auto = name == "auto" and not found.takes(problem)
        if not auto:
            return _solver_of(found, problem, limits)
    elif name == "highs" and problem.linear_program:
        return builtin_solver(problem, limits)
    if name in NAMED_ONLY:
        forced: SubproblemSolver = loaded(NAMED_ONLY[name])(limits=limits)
        return forced
    inner: SubproblemSolver = supplied("cvxpy.solver")(
        "CLARABEL" if auto else solver, limits, names_for(problem), ours
    )
    return inner


def names_for(problem: Problem) -> tuple[str, ...]:
    """Names of the built-in solvers that problems of such a kind may be given to."""
    if _is_metric(problem):
        return (*AUTOMATIC, *METRIC_METHODS, "apg")
    if isinstance(problem.penalty, L1):
        return (*AUTOMATIC, "apg", "interior_point", "sdca", "spdc")
    return (*AUTOMATIC, *(name for name in NAMED_ONLY if name not in ("sdca", "spdc")))
