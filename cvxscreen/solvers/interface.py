"""What the loop asks of any solver of a (reduced) problem: start, call, result."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen.core.duality import Point
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import CvxscreenError, InvalidInput

Array = NDArray[np.float64]

_ORDINARY = 1e50
"""Margins below this are nowhere near an overflow, nor are their squares, 1e100, or any sum of
these."""


class Start(NamedTuple):
    """A warm start: primal, dual and the proximal weight reached there (None: choose one).

    `point` is the same pair where it has been evaluated on the very problem already. Without it
    `passes` may hold ``A x`` and ``A' theta``, as computed, and `size` the dual objective: for
    solvers and targets, nothing is proven from them. `state` is what the solver called left in the
    `SubproblemResult` of this pair, for it to go on from on the very problem. `rate` is how many
    iterations the solver took on the way there for a tenth of the gap, where that is known.
    """

    x: Array
    theta: Array
    weight: float | None = None
    multipliers: Array | None = None
    point: Point | None = None
    passes: tuple[Array, Array] | None = None
    size: float | None = None
    state: object = None
    rate: float | None = None


class SolverSnapshot(NamedTuple):
    """Where a solver says that it stands; it tells when a proof may pay, and proves nothing."""

    problem: Problem
    x: Array
    margins: Array
    gap: float

    @property
    def primal(self) -> float:
        """The objective of the reduced problem at `x`."""
        return self.problem.primal(self.x, self.margins)

    @property
    def reach(self) -> float:
        """About the radius of a midpoint ball around the solver's point."""
        return float(np.sqrt(self.gap))


WITHOUT_SOLUTION = ("infeasible", "unbounded")
"""What a solver may have seen of a problem: no other solver finds more."""


class SubproblemResult(Immutable):
    """What a solver returns for one (reduced) problem.

    Attributes
    ----------
    status : str
        ``"optimal"``, ``"inaccurate"``, or the solver's own word for a failure.
    x, theta, multipliers : arrays
        Empty when there is no solution; but an ``"infeasible"`` problem may have multipliers, and
        slopes of terms that are constraints (0 elsewhere), which show that nothing satisfies all of
        them (Farkas), with the x where the solver stood.
    info : dict
        Solver statistics; ``weight`` is kept for warm starts of `Newton`.
    state : object
        Where the solver stands, for a `Start` that only asks it to go on.
    snapshot : SolverSnapshot or None
        The same for who decides whether it should, from a solver that has the margins at hand.
    """

    status: str
    x: Array
    theta: Array
    multipliers: Array = field(default_factory=lambda: np.zeros(0))
    info: dict[str, Any] = field(default_factory=dict)
    state: object = None
    snapshot: SolverSnapshot | None = None

    @property
    def usable(self) -> bool:
        """Whether there is a point to go on from."""
        return self.status in ("optimal", "inaccurate")

    def after(self, earlier: SubproblemResult) -> SubproblemResult:
        """The same, with the steps and passes of the call that it went on from."""
        info = dict(self.info)
        for name in ("steps", "passes"):
            if name in info and name in earlier.info:
                info[name] += earlier.info[name]
        return replace(self, info=info)


class SolverTraits(NamedTuple):
    """What a solver does by itself, as far as the screening loop acts on it.

    The defaults are what is assumed of a solver about which nothing is known.

    Attributes
    ----------
    reaches_target : bool
        It stops at the absolute duality gap that it is asked for, and this gap is ours. It can then
        be asked for a loose answer first and for more later; for any other solver a built-in one
        finds a start, and the reduced problem that it gets is the only one.
    stops_right_below : bool
        Its gap ends so close below the target that the target may be nearly all of the tolerance.
    selects_terms : bool
        It finds out by itself which terms are not at an end of their range: predicting these for it
        saves nothing.
    selects_features : bool
        The same of the features that are not 0, under an L1 term.
    descends_first : bool
        Without a start it is begun by dual coordinate descent, where the problem suits that.
    few_iterations : bool
        It takes a handful of passes over the data in all: interrupting it for proofs saves nothing.
    interchangeable : bool
        It stands for whichever built-in solver suits: over data in chunks each reduced problem goes
        to the one that suits it.
    """

    reaches_target: bool = False
    stops_right_below: bool = False
    selects_terms: bool = False
    selects_features: bool = False
    descends_first: bool = False
    few_iterations: bool = False
    interchangeable: bool = False


@runtime_checkable
class SubproblemSolver(Protocol):
    """Any solver of a (reduced) problem.

    A class that inherits from this one has to give a `name` and `__call__`; the rest is what is
    assumed of a solver about which nothing is known.
    """

    @property
    def name(self) -> str:
        """What to call it in records."""
        ...

    @property
    def limits(self) -> Limits:
        """The limits of the whole call, which the solver keeps to and so does the loop."""
        return UNLIMITED

    @property
    def traits(self) -> SolverTraits:
        """What it does by itself."""
        return SolverTraits()

    def __call__(
        self, problem: Problem, start: Start | None = None, target: float = 0.0
    ) -> SubproblemResult:
        """Solve `problem` from `start` to an absolute duality gap of about `target`.

        The status is ``"optimal"`` when that is reached, ``"inaccurate"`` otherwise.
        """
        ...


def refuse_side(problem: Problem) -> None:
    """Refuse side constraints, for a built-in solver that does not take them.

    Raises
    ------
    InvalidInput
        If `problem` has some.
    """
    if problem.side is not None:
        raise InvalidInput(
            "this built-in solver takes no side constraints; use 'interior_point', which takes "
            "linear ones and short second-order cones, or a solver that CVXPY has installed."
        )


def call_checked(
    inner: SubproblemSolver, problem: Problem, start: Start | None = None, target: float = 0.0
) -> SubproblemResult:
    """Call `inner` and believe nothing: shapes, finiteness and exceptions become a status.

    An exception is reported in the result (``info["error"]``); the caller decides whether another
    reduction may help.
    """
    try:
        result = inner(problem, start, target)
    except CvxscreenError:
        raise
    except Exception as error:  # a solver may raise anything
        return _nothing("solver_error", f"{type(error).__name__}: {error}")
    if not result.usable:
        return result
    m = 0 if problem.side is None else len(problem.side.offset)
    given = (result.x, result.theta, result.multipliers)
    for name, array, size in zip(("x", "theta", "multipliers"), given, (problem.d, problem.n, m),
                                 strict=True):
        if np.shape(array) != (size,) or not np.isfinite(array).all():
            return _nothing("solver_error", f"`{name}` is not finite of shape ({size},)")
    with np.errstate(over="ignore", invalid="ignore"):
        # Ordinary numbers cannot overflow: that is seen without a pass over the data.
        ordinary = isinstance(problem.design, Rows) and bool(
            problem.design.entries_norm * float(np.linalg.norm(result.x)) < _ORDINARY
        )
        value = 0.0 if ordinary else problem.primal(result.x)
    if not np.isfinite(value):
        return _nothing("solver_error", "the objective overflows at the solver's point")
    return result


def _nothing(status: str, error: str) -> SubproblemResult:
    return SubproblemResult(status, np.zeros(0), np.zeros(0), info={"error": error})
