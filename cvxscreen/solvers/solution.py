"""Records of a call: its rounds, the answer with its certificate, and both as a start elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.limits import ITERATIONS, TIME
from cvxscreen._support.tables import Record, fields, table
from cvxscreen.bounds import Bound, moved
from cvxscreen.certificates.certificate import Certificate, Passes, adjoint_error, certify
from cvxscreen.core.duality import Point, reference_point
from cvxscreen.core.losses import LossTerms
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem
from cvxscreen.errors import InvalidInput
from cvxscreen.screening.reduction import Screening, piece_masks
from cvxscreen.solvers.interface import Start, SubproblemResult

Array = NDArray[np.float64]


Number = TypeVar("Number", int, float)


class LazyNumbers(Mapping[str, Number]):
    """Numbers by kind of piece, worked out when somebody looks at them.

    Parameters
    ----------
    prove : callable
        Returns them; called once.
    """

    def __init__(self, prove: Callable[[], Mapping[str, Number]]) -> None:
        self._prove: Callable[[], Mapping[str, Number]] = prove

    @cached_property
    def _known(self) -> dict[str, Number]:
        known = dict(self._prove())
        self._prove = partial(dict, known)  # instead of all that it held
        return known

    def __getitem__(self, kind: str) -> Number:
        return self._known[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __repr__(self) -> str:
        return repr(self._known)

    def __reduce__(self) -> tuple[type, tuple[Callable[[], Mapping[str, Number]]]]:
        return LazyNumbers, (partial(dict, self._known),)


class Answer(Immutable):
    """A pair, certified; the certificate has taken nothing from whoever found it.

    Attributes
    ----------
    x, theta, multipliers : arrays
    proof : Certificate
    passes : Passes
        The two products of the certificate: the point takes them over.
    """

    problem: Problem
    x: Array
    theta: Array
    multipliers: Array
    proof: Certificate
    passes: Passes

    @classmethod
    def of(
        cls, problem: Problem, x: Array, theta: Array, multipliers: Array, tol: float
    ) -> Answer:
        """The pair with a certificate to `tol`, made on all of the data."""
        passes = Passes()
        proof = certify(problem, x, theta, multipliers, tol=tol, passes=passes)
        return cls(problem, x, theta, multipliers, proof, passes)

    @classmethod
    def known(cls, point: Point, proof: Certificate) -> Answer:
        """A point with its certificate."""
        pair = (point.x, point.theta, point.multipliers)
        answer = cls(point.problem, *pair, proof, Passes())
        answer.__dict__["point"] = point
        return answer

    @property
    def feasible(self) -> bool:
        """Whether theta as given, not only a share of it, is dual feasible under an L1 norm alone.

        Up to the rounding of ``A' theta``. With a quadratic term or another penalty nothing but its
        boxes, clipped to, is asked of it.
        """
        if not self.problem.pure_l1:
            return True
        At_theta, penalty = self.passes.At_theta, self.problem.penalty
        if At_theta is None:
            return False
        over = np.abs(At_theta) - penalty.kappa  # type: ignore[union-attr]
        return bool((over <= 0.0).all() or (over <= adjoint_error(self.problem, self.theta)).all())

    @cached_property
    def point(self) -> Point:
        """The pair, its dual part made feasible."""
        known, passes = None, self.passes
        # A cone would settle x elsewhere.
        plain = self.problem.penalty is None or isinstance(self.problem.penalty, L1)
        if plain and passes.margins is not None and passes.At_theta is not None:
            known = passes.margins, passes.At_theta
        return reference_point(self.problem, self.x, self.theta, self.multipliers, known=known)


class Round(Immutable):
    """What happened in one round of the loop.

    Attributes
    ----------
    number : int
    kept : int
        Terms of the reduced problem.
    proven, predicted, refuted : int
        Terms fixed by proof, by guess, and guesses that the full data refuted.
    gap, relative_gap : float
        Of the best point so far, on the full problem.
    solver_status : str
    solver_info : mapping
        Of the inner solver.
    solve_seconds, seconds : float
        Wall time of the reduced solve and of the round.
    features : int, optional
        Coordinates of the reduced problem where features are screened.
    """

    number: int
    kept: int
    proven: int
    predicted: int
    refuted: int
    gap: float
    relative_gap: float
    solver_status: str
    solver_info: Mapping[str, Any] = field(default_factory=dict)
    solve_seconds: float = 0.0
    seconds: float = 0.0
    features: int | None = None


class Solution(Record, Immutable):
    """An answer with its certificate.

    Attributes
    ----------
    problem : Problem
        The full problem.
    x : array, shape (d,)
    theta : array, shape (n,)
        Slopes at the optimum; `alpha` is the public sign.
    multipliers : array, shape (m,)
        Of the side constraints.
    status : str
        ``"optimal"`` only with a certificate that holds; ``"inaccurate"``; ``"time_limit"`` or
        ``"iteration_limit"`` where that cut it short of the tolerance; or the inner solver's
        own word when there is no solution.
    certificate : Certificate
    earlier : Screening
        What was proven during the solve; `screening` adds what the answer itself proves.
    rounds : tuple of Round
    bounds : tuple of Bound
        The theorems that prove.
    answer : Answer or None
        The pair, evaluated as a reference for bounds when one is first needed.
    before : mapping
        Share of the terms on each kind of piece proven from the warm start alone.
    solver, mode : str
    seconds : float
        Wall time of the whole call.
    infeasible : SubproblemResult or None
        Multipliers of the side constraints, and slopes of the terms that are constraints, which
        show that nothing satisfies all of them, where that is the status and they are known.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> solution = cvxscreen.solve(cvxscreen.svm(X, y, C=0.1), tol=1e-9)
    >>> solution.status, round(solution.value, 4), solution.x.shape
    ('optimal', 5.3957, (3,))
    >>> solution.certificate.ok
    True
    """

    problem: Problem
    x: Array
    theta: Array
    multipliers: Array
    status: str
    certificate: Certificate
    earlier: Screening
    rounds: tuple[Round, ...]
    bounds: tuple[Bound, ...] = ()
    answer: Answer | None = None
    before: Mapping[str, float] = field(default_factory=dict)
    solver: str = ""
    mode: str = ""
    seconds: float = 0.0
    infeasible: SubproblemResult | None = None

    @classmethod
    def failed(
        cls, problem: Problem, status: str, earlier: Screening, rounds: tuple[Round, ...]
    ) -> Solution:
        """The record of a call that found no point."""
        nan = float("nan")
        nothing = Certificate(
            float("inf"), float("inf"), nan, nan, nan, nan, False, f"the solver says: {status}"
        )
        return cls(
            problem, np.full(problem.d, nan), np.full(problem.n, nan), np.zeros(0), status, nothing,
            earlier, rounds,
        )

    def carried_to(
        self, problem: Problem, x: Array, theta: Array, multipliers: Array, tol: float
    ) -> Solution:
        """The same with the pair that it is in `problem`, an equivalent one, certified to `tol`."""
        nothing = Screening.empty(problem)
        if not np.isfinite(x).all():
            return Solution.failed(problem, self.status, nothing, self.rounds)
        answer = Answer.of(problem, x, theta, multipliers, tol)
        status = "optimal" if answer.proof.ok else "inaccurate"
        if status != "optimal" and self.status in (TIME, ITERATIONS):
            status = self.status
        return replace(
            self, problem=problem, x=x, theta=theta, multipliers=multipliers, status=status,
            certificate=answer.proof, earlier=nothing, answer=answer, before={},
        )

    @cached_property
    def screening(self) -> Screening:
        """What is *proven* about the full problem, by the solve and by its answer."""
        if not self.bounds:
            return self.earlier
        known = self.reference
        if known is None or not np.isfinite(known.gap):
            return self.earlier
        return self.earlier.proven_from(self.bounds, known)

    @property
    def alpha(self) -> Array:
        """``-theta``: in [0, C] for the hinge, in [-C, C] for LAD, shape (n,)."""
        return -self.theta

    @property
    def value(self) -> float:
        """The objective at `x`."""
        return self.certificate.primal

    @property
    def intercept(self) -> float:
        """The unpenalised coordinate (0 without one), of the data as given."""
        layout = self.problem.layout
        if layout is not None:
            if not layout.intercept:
                return 0.0
            return float(self.x[-1]) - self.problem.design.offset(self.x)
        free = self.problem.free_index
        if len(free) != 1:
            return 0.0
        return float(self.x[free[0]]) - self.problem.design.offset(self.x)

    @property
    def w(self) -> Array:
        """The coordinates but the intercept, or where nothing says which that is, the penalised."""
        layout = self.problem.layout
        if layout is not None:
            return self.x[: len(self.x) - layout.intercept]
        return np.asarray(self.x[~self.problem.quadratic.free])

    def point(self) -> Point:
        """Return this solution as a reference for bounds."""
        if self.answer is not None:
            return self.answer.point
        return reference_point(self.problem, self.x, self.theta, self.multipliers)

    @property
    def reference(self) -> Point | None:
        """The same where there is an answer, else None."""
        return None if self.answer is None else self.answer.point

    def _features(self) -> list[tuple[str, object]]:
        found = self.screening
        if self.problem.penalty is None:
            return []
        return [
            ("features", self.problem.d),
            ("proven 0", int(found.dropped.sum())),
            ("proven not 0", int(found.needed_features.sum())),
            ("terms kept for good", int(found.needed_terms.sum())),
        ]

    def _brief(self) -> str:
        kept = f", {self.rounds[-1].kept:,} kept" if self.rounds else ""
        return (
            f"{self.status}, objective {self.value:.10g}, certified relative gap "
            f"{self.certificate.relative_gap:.1e}, {self.problem.n:,} terms{kept}"
        )

    def table(self) -> str:
        """What `print` shows, and a line for each round."""
        rows = [
            (r.number, r.kept, r.proven, r.predicted, r.refuted, r.relative_gap, r.seconds)
            for r in self.rounds
        ]
        names = ("round", "kept", "proven", "predicted", "refuted", "relative gap", "seconds")
        return f"{self}\n{table(names, rows)}"

    def __str__(self) -> str:
        return fields(
            [
                ("status", self.status),
                ("objective", float(f"{self.value:.12g}")),
                ("relative gap", self.certificate.relative_gap),
                ("terms", self.problem.n),
                ("proven zero", int(self.screening.zero.sum())),
                ("proven linear", int(self.screening.linear.sum())),
                ("proven quadratic", int(self.screening.quadratic.sum())),
                *self._features(),
                ("mode", self.mode),
                ("solver", self.solver),
                ("rounds", len(self.rounds)),
                *([("kept in the last", self.rounds[-1].kept)] if self.rounds else []),
                ("seconds", self.seconds),
            ],
            title="Solution",
        )


class UnlistedSolution(Solution):
    """A solution that holds no array over the terms; its kinds count them in `decided`."""

    @property
    def screening(self) -> Any:
        """Nothing is listed.

        Raises
        ------
        InvalidInput
            Always; `decided` counts what the answer proves.
        """
        raise InvalidInput(
            f"the {self.problem.n:,} terms are not listed one by one; `decided` counts those that "
            "are proven to be on a piece of their loss."
        )

    def point(self) -> Point:
        """Not available without arrays over the terms.

        Raises
        ------
        InvalidInput
            Always.
        """
        raise InvalidInput(
            "a solution without arrays over the terms is no reference for bounds; start from its "
            "`x` (where they fit in memory: reference_point(p, s.x, np.asarray(s.theta)))."
        )


def shares_from(problem: Problem, bounds: Sequence[Bound], start: Start) -> dict[str, float]:
    """`shares_proven` from a start that has not been evaluated."""
    point = reference_point(problem, start.x, start.theta, start.multipliers)
    return shares_proven(problem, bounds, point)


def shares_proven(problem: Problem, bounds: Sequence[Bound], point: Point) -> dict[str, float]:
    """Shares of the terms that `bounds` prove on each kind of piece from `point`.

    Under an L1 term also the share of the features that they drop.
    """
    return shares_of(Screening.empty(problem).proven_from(bounds, point))


def shares_of(screening: Screening) -> dict[str, float]:
    """Shares of the terms on each kind of piece, and under an L1 term of the dropped features."""
    problem = screening.problem
    masks = piece_masks(screening.codes)
    if isinstance(problem.penalty, L1):
        masks["dropped"] = screening.dropped
    return {kind: float(mask.mean()) for kind, mask in masks.items()}


# -- a solution at another C or lambda as a start -------------------------------------------------


def warm_start(problem: Problem, solution: Solution, light: bool = False) -> Start:
    """`solution` as a start for `problem`; its dual point is scaled to the new C.

    Over data in chunks only ``solution.x`` counts. `light_start` where it may be and can be.
    """
    start = light_start(problem, solution) if light else None
    if start is not None:
        return start
    if solution.problem.n != problem.n or solution.problem.d != problem.d:
        raise InvalidInput(
            f"`start` has {solution.problem.n} terms and {solution.problem.d} coordinates; the "
            f"problem has {problem.n} and {problem.d}."
        )
    if problem.design.streamed:
        return Start(solution.x, np.zeros(0))
    if problem.without_curvature:
        theta = moved_slopes(solution.theta, solution.problem.losses, problem.losses)
        return Start(solution.x, theta, multipliers=solution.multipliers)
    info = solution.rounds[-1].solver_info if solution.rounds else {}
    start = moved_start(problem, solution.point(), info.get("weight"))
    return start._replace(rate=info.get("rate"))


def moved_slopes(theta: Array, old: LossTerms, new: LossTerms) -> Array:
    """`theta` in the box of `old`, moved to the same place in the box of `new`, shape (n,)."""

    def factor(before: Array, after: Array) -> Array:
        fits = np.isfinite(before) & np.isfinite(after) & (before != 0)
        return np.divide(after, before, out=np.ones(len(theta)), where=fits)

    moved = np.where(theta < 0, factor(old.lo, new.lo), factor(old.hi, new.hi)) * theta
    return np.clip(moved, new.lo, new.hi)


def light_start(problem: Problem, solution: Solution) -> Start | None:
    """As `warm_start`, from what the certificate of `solution` has computed; nothing is evaluated.

    For `problem` ``= solution.problem.with_(C=...)`` without linear term, penalty, side constraints
    and unpenalised coordinates; None otherwise. Where ``x`` is not ``x_theta``, the margins are
    those of ``x``: what lies between them is charged by who uses them, as the certificate does.
    With ``f = C/C0`` the dual objective at ``f theta`` is
    ``f (D(theta) + 1/2 ||x_theta||_M^2) - f^2/2 ||x_theta||_M^2``.
    """
    answer, old = solution.answer, solution.problem
    plain = problem.side is None and problem.penalty is None and problem.design is old.design
    plain = plain and problem.quadratic is old.quadratic and not problem.quadratic.free.any()
    if answer is None or not answer.proof.ok or not plain or problem.linear.any():
        return None
    margins, At_theta = answer.passes.margins, answer.passes.At_theta
    if margins is None or At_theta is None:
        return None
    square = problem.quadratic.norm(problem.quadratic.solve(At_theta)) ** 2
    factor = problem.C / old.C
    theta = np.clip(factor * answer.theta, problem.losses.lo, problem.losses.hi)
    size = factor * (answer.proof.dual + 0.5 * square) - 0.5 * factor**2 * square
    return Start(
        factor * answer.x, theta, passes=(factor * margins, factor * At_theta),
        size=max(size, 0.5 * min(1.0, factor) * answer.proof.dual),
    )


def moved_start(problem: Problem, reference: Point, weight: float | None = None) -> Start:
    """A point of the same data at another C or lambda as a start for `problem`."""
    factor = problem.C / reference.problem.C
    point = moved(problem, reference)
    return Start(
        point.x,
        point.theta,
        None if weight is None else 4.0 * float(weight) / factor,
        point.multipliers,
        point,
    )
