"""Losses F beside another convex part g of a CVXPY problem: a problem for the loop, and its answer.

Terms of F are screened by bounds that hold for any convex g (`Minorant`), pieces of maxima by the
same ball; g itself goes into every reduced problem as CVXPY wrote it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvxscreen.bounds import midpoint_ball
from cvxscreen.bounds.regions import Ball
from cvxscreen.certificates.certificate import Certificate
from cvxscreen.core.losses import Piece
from cvxscreen.core.problem import Problem
from cvxscreen.cvxpy_plugin.answer import USELESS, restore, statistics, status_of, write_back
from cvxscreen.cvxpy_plugin.composite.problem import CompositeProblem, evaluate
from cvxscreen.cvxpy_plugin.cvxpy_solver import CvxpySolver
from cvxscreen.cvxpy_plugin.recognise.max_affine import Maxima, Relaxed
from cvxscreen.cvxpy_plugin.request import Report
from cvxscreen.errors import CvxscreenError
from cvxscreen.screening.reduction import Prediction, Screening, Selection
from cvxscreen.screening.verdict import judge
from cvxscreen.solvers.interface import call_checked
from cvxscreen.solvers.loop import run
from cvxscreen.solvers.prediction import SMALL, PredictionRadius, accept_reduction
from cvxscreen.solvers.screened import ScreenedProblem, Times
from cvxscreen.solvers.solution import Round

# -- what is left ---------------------------------------------------------------------------------


Array = NDArray[np.float64]
Index = NDArray[np.intp]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class CompositeReduction:
    """The smaller problem; see the module's docstring.

    Attributes
    ----------
    made : Beside
    selection : Selection
        Of the terms of F, folded.
    pieces : array of bool, shape (p,)
        Pieces that may be active.
    reduced : Problem
        F without what is decided, with the maxima of one piece as a linear term.
    rest : Maxima or None
        The others.
    index : array of int
        Positions of their pieces.
    """

    made: CompositeProblem
    selection: Selection
    pieces: Mask
    reduced: Problem
    rest: Maxima | None
    index: Index

    @classmethod
    def of(cls, made: CompositeProblem, selection: Selection, pieces: Mask) -> CompositeReduction:
        """Leave out what is decided."""
        problem, maxima = made.recognition.problem, made.maxima
        selection = selection.folded(problem)
        reduced, rest, index = selection.reduce(problem), maxima, np.arange(len(pieces))
        if maxima is not None:
            slope, constant, rest, index = maxima.split(pieces)
            reduced = replace(
                reduced, linear=reduced.linear + slope, constant=reduced.constant + constant
            )
        return cls(made, selection, pieces, reduced, rest, index)

    @property
    def kept(self) -> int:
        """Terms and maxima that are left."""
        return len(self.selection.kept) + (0 if self.rest is None else self.rest.n)

    def lift(self, x: Array, theta: Array, found: Array | None) -> tuple[Array, Array, Any]:
        """A solution of what is left on all of the terms and pieces.

        Parameters
        ----------
        x, theta : arrays
        found : array or None
            Slopes of the pieces that are left.

        Returns
        -------
        x, theta : arrays
        shares : array, shape (p,), or None where there are no maxima
        """
        problem, maxima = self.made.recognition.problem, self.made.maxima
        x, theta = self.selection.lift(problem, self.reduced, x, theta)
        if maxima is None:
            return x, theta, None
        shares = np.zeros(len(self.pieces))
        if self.rest is not None and found is not None:
            shares[self.index] = found
        alone = self.pieces.copy()
        alone[self.index] = False
        shares[alone] = maxima.cost[maxima.owner][alone]
        return x, theta, shares


@dataclass(eq=False)
class WriteComposite:
    """The part of g that goes into a program of CVXPY, and where its slopes are found there.

    Attributes
    ----------
    maxima : Maxima or None
    unscreened : Verbatim or None
    """

    maxima: Maxima | None
    unscreened: Any
    _row: Any = field(default=None, init=False)

    def __call__(self, z: Any) -> tuple[Any, list[Any]]:
        """Cost and constraints in terms of the vector variable `z`."""
        cost: Any = 0.0
        constraints: list[Any] = []
        if self.maxima is not None:
            cost, self._row = self.maxima.written(z)
            constraints = [self._row]
        if self.unscreened is not None:
            cost = cost + self.unscreened.written(z)
        return cost, constraints

    def shares(self) -> Array | None:
        """Slopes of the pieces after a solve; None where the solver gave none."""
        if self._row is None or self._row.dual_value is None:
            return None
        return np.asarray(self._row.dual_value, dtype=np.float64).ravel()


# -- the problem that the loop screens ------------------------------------------------------------


MAX_ROUNDS = 12
SHARE = 0.05
"""Share of the terms, those nearest to a kink, that a first prediction keeps."""
WORTH = 0.6
"""A prediction that keeps a larger share of the terms costs more than it saves."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """What the rounds came to.

    Attributes
    ----------
    status : str
        ``"optimal"``, ``"inaccurate"`` or the solver's own word.
    relaxed : Relaxed or None
        The answer.
    shares : array, shape (p,)
        Slopes of the pieces of maxima.
    certificate : Certificate or None
    kept : int
        Terms in the last reduced problem.
    screening : Screening
    rounds : int
    predicted : int
    solve_seconds, seconds : float
    """

    status: str
    relaxed: Relaxed | None
    shares: Array
    certificate: Certificate | None
    kept: int
    screening: Screening
    rounds: int
    predicted: int
    solve_seconds: float
    seconds: float


class PieceSlopes(NamedTuple):
    """A primal-dual pair, with the slopes of the pieces of maxima (None: not known)."""

    x: Array
    theta: Array
    multipliers: Array
    shares: Array | None


class ScreenedComposite(
    ScreenedProblem[
        CompositeReduction, CompositeReduction, PieceSlopes, PieceSlopes, tuple[Relaxed, Array]
    ]
):
    """``F + g`` with what is known of it: F's terms and the pieces of g's maxima are screened.

    In ``safe`` mode the rounds that predict only give a point; one more round solves what that
    point proves, and its answer is handed out.

    Parameters
    ----------
    made : CompositeProblem
    cvxpy_solver : CvxpySolver
        Solver of the reduced problems, with g as CVXPY wrote it.
    mode : {"certified", "safe"}
    tol : float
        Relative gap on the full problem.
    """

    def __init__(
        self, made: CompositeProblem, cvxpy_solver: CvxpySolver, mode: str, tol: float
    ) -> None:
        self.made, self.cvxpy_solver, self.mode, self.tol = made, cvxpy_solver, mode, tol
        self.limits = cvxpy_solver.limits
        self.problem: Problem = made.recognition.problem
        self.maxima = made.maxima
        self.screening = Screening.empty(self.problem)
        pieces = 0 if self.maxima is None else len(self.maxima.heights)
        self.possible: Mask = np.ones(pieces, dtype=bool)
        self.shares = np.zeros(pieces)
        self.best: Relaxed | None = None
        self.proof: Certificate | None = None
        self.radius: PredictionRadius | None = None
        self.share = 1.0
        self.open_terms: Mask = np.zeros(self.problem.n, dtype=bool)
        self.open_pieces: Mask = np.zeros(pieces, dtype=bool)
        self.status = "not run"
        self.rounds = []
        self.kept = self.predicted = 0
        self.confirming = self.hopeless = False
        self.solving = 0.0

    def solved(self) -> Outcome:
        """All rounds, from a first point to the record of the call."""
        began = perf_counter()
        self.begin()
        run(self)
        if self.best is not None and (self.screening.codes == Piece.UNDECIDED).all():
            self.prove()
        ok = self.proof is not None and self.proof.ok
        status = self.status if self.best is None else "optimal" if ok else "inaccurate"
        return Outcome(
            status, self.best, self.shares, self.proof, self.kept, self.screening,
            len(self.rounds), self.predicted, self.solving, perf_counter() - began,
        )

    def begin(self) -> None:
        """A first point, from a sample of the terms where there are many."""
        problem, maxima = self.problem, self.maxima
        if self.made.terms <= 5 * SMALL:
            return
        rng = np.random.default_rng(0)
        some, fewer = problem, maxima
        if problem.n > 5 * SMALL:
            size = max(SMALL, 10 * problem.d, problem.n // 20)
            index = np.sort(rng.choice(problem.n, size=min(size, problem.n), replace=False))
            losses = problem.losses.take(index).scaled(problem.n / len(index))
            some = replace(problem, design=problem.design.take_rows(index), losses=losses)
        if maxima is not None and maxima.n > 5 * SMALL:
            size = min(max(SMALL, 10 * problem.d, maxima.n // 10), maxima.n)
            index = np.sort(rng.choice(maxima.n, size=size, replace=False))
            fewer = maxima.sample(index, maxima.n / size)
        found = self.called(some, fewer)
        if found is not None:
            theta = problem.losses.slope(problem.design.forward(found.x))
            self.best, self.shares = self.judged(found.x, theta, found.multipliers, None)

    def called(self, problem: Problem, maxima: Maxima | None) -> PieceSlopes | None:
        """The solver's answer to ``problem + maxima + unscreened``."""
        further = WriteComposite(maxima, self.made.unscreened)
        began = perf_counter()
        self.cvxpy_solver.further = further
        found = call_checked(self.cvxpy_solver, problem)
        self.cvxpy_solver.further = None
        self.solving += perf_counter() - began
        self.status = found.status
        if not found.usable:
            return None
        return PieceSlopes(found.x, found.theta, found.multipliers, further.shares())

    def judged(
        self, x: Array, theta: Array, mu: Array, shares: Array | None
    ) -> tuple[Relaxed, Array]:
        """A point of the full problem, and the slopes of its maxima."""
        return evaluate(self.made, x, theta, mu, shares, self.tol)

    def prove(self) -> None:
        """What the best point proves of the terms and of the pieces."""
        best = self.best
        if best is None or not self.made.provable:
            return
        region = midpoint_ball(best.problem, best.point)
        self.screening = self.screening.tighten(judge(best.problem, region))
        if self.maxima is not None and isinstance(region, Ball):
            self.possible = self.possible & self.maxima.proven(best.problem, region)

    # -- the steps of a round ---------------------------------------------------------------

    def select(self) -> CompositeReduction:
        """What is proven or, as long as a prediction may help, predicted."""
        if self.confirming:
            self.prove()
        trust = not self.confirming and len(self.rounds) < MAX_ROUNDS - 2
        chosen, pieces = self.chosen(trust)
        selected = CompositeReduction.of(self.made, chosen, pieces)
        known = self.screening.codes >= 0
        self.predicted = int(((selected.selection.codes >= 0) & ~known).sum())
        self.predicted += int((self.possible & ~pieces).sum())
        self.kept = selected.kept
        return selected

    def chosen(self, trust: bool) -> tuple[Selection, Mask]:
        """What to reduce by: proven, and on trust predicted."""
        selection, pieces = self.screening.selection, self.possible
        everything = selection, pieces
        if not trust or self.best is None:
            return everything
        relaxed, point = self.best.problem, self.best.point
        if self.problem.n:
            if self.radius is None:
                self.radius = PredictionRadius.near(relaxed, point, SHARE)
            reach = self.radius.reach(relaxed)
            predicted = Prediction.from_margins(relaxed, point.margins, reach, self.radius.keep)
            codes = np.where(self.open_terms, Piece.UNDECIDED, predicted.selection.codes)
            predicted = Prediction(Selection(codes.astype(np.int8)))
            selection = accept_reduction(relaxed, predicted.beside(self.screening), point, 1.0)
        if self.maxima is not None:
            count = int(self.share * max(SHARE * self.maxima.n, 4 * self.problem.d, SMALL))
            near = self.maxima.nearest(relaxed, point.x, count)
            pieces = pieces & (near | self.open_pieces)
        left = len(selection.kept)
        if self.maxima is not None:
            left += int((self.maxima.counts(pieces) > 1).sum())
        return (selection, pieces) if left <= WORTH * self.made.terms else everything

    def reduce(
        self, selection: CompositeReduction
    ) -> tuple[CompositeReduction, Callable[[PieceSlopes], PieceSlopes]]:
        """The selection holds what is left of F and of the maxima."""

        def lift(found: PieceSlopes) -> PieceSlopes:
            x, theta, shares = selection.lift(found.x, found.theta, found.shares)
            return PieceSlopes(x, theta, found.multipliers, shares)

        return selection, lift

    def solve(
        self, reduced: CompositeReduction, selection: CompositeReduction
    ) -> PieceSlopes | None:
        """The solver's answer; it takes neither a start nor a target."""
        return self.called(reduced.reduced, reduced.rest)

    def evaluate(
        self, lifted: PieceSlopes, selection: CompositeReduction
    ) -> tuple[Relaxed, Array]:
        """A point of the full problem, and the slopes of its maxima."""
        return self.judged(lifted.x, lifted.theta, lifted.multipliers, lifted.shares)

    def put_back(
        self, selection: CompositeReduction, point: tuple[Relaxed, Array] | None
    ) -> int:
        """Take over a better point; terms and pieces that it refutes stay in from now on."""
        if point is None:
            # A linearised problem may be unbounded where the full one is not.
            self.radius = None if self.radius is None else self.radius.wider(np.inf)
            self.share *= 8.0
            self.hopeless = self.predicted == 0
            return 0
        (here, shares), before, maxima = point, self.best, self.maxima
        chosen, pieces = Prediction(selection.selection), selection.pieces
        off = chosen.refuted(here.problem, here.point.margins, self.screening)
        missed = np.zeros(0, dtype=bool)
        if maxima is not None:
            missed = maxima.refuted(here.point.x, pieces)
        refuted = int(off.sum()) + int(missed.sum())
        if refuted and before is not None:
            here, shares = self.nearer(before, here, shares)
            # What is refuted on the way back as well stays in from now on.
            self.open_terms |= chosen.refuted(here.problem, here.point.margins, self.screening)
            if maxima is not None:
                self.open_pieces |= maxima.refuted(here.point.x, pieces)
        proof = here.certify(self.tol)
        better = before is None or here.point.primal <= before.point.primal
        if self.proof is None or proof.ok or better:
            self.best, self.proof, self.shares = here, proof, shares
        self.share *= 1.5
        self.hopeless = not (proof.ok or refuted)
        return refuted

    def nearer(self, before: Relaxed, here: Relaxed, shares: Array) -> tuple[Relaxed, Array]:
        """The lowest point on the way from `before`, where predictions have led too far."""
        first, last = before.point, here.point
        steps = (1.0, 0.5, 0.25, 0.1)
        values = [self.made.value(first.x + part * (last.x - first.x)) for part in steps]
        part = steps[int(np.argmin(values))]
        if part == 1.0 or not np.isfinite(values).all():
            return here, shares
        theta = first.theta + part * (last.theta - first.theta)
        mu = first.multipliers + part * (last.multipliers - first.multipliers)
        mixed = self.shares + part * (shares - self.shares) if len(shares) else None
        return self.judged(first.x + part * (last.x - first.x), theta, mu, mixed)

    def close(self, selection: CompositeReduction, refuted: int, times: Times) -> None:
        """Record the round; stop when certified (and confirmed), or when nothing else can help."""
        proof, now = self.proof, perf_counter()
        self.rounds.append(Round(
            number=len(self.rounds) + 1, kept=self.kept,
            proven=int((self.screening.codes >= 0).sum()), predicted=self.predicted,
            refuted=refuted, gap=np.inf if proof is None else proof.gap,
            relative_gap=np.inf if proof is None else proof.relative_gap,
            solver_status=self.status,
            solve_seconds=times.solved - times.began, seconds=now - times.began,
        ))
        certified = proof is not None and proof.ok
        if certified and self.mode == "safe" and not self.confirming:
            self.confirming = True
            return
        last = self.hopeless or len(self.rounds) >= MAX_ROUNDS
        self.finished = self.confirming or certified or last


def screened_composite(
    made: CompositeProblem, cvxpy_solver: CvxpySolver, mode: str, tol: float, recognised: float
) -> Report | str:
    """Solve losses beside another convex part and write back; or why CVXPY's answer is needed.

    `recognised` is the time of the recognition, in seconds.
    """
    try:
        found = ScreenedComposite(made, cvxpy_solver, mode, tol).solved()
    except (CvxscreenError, np.linalg.LinAlgError) as error:
        return f"the screening loop stopped: {error}"
    answer = accepted_answer(found, cvxpy_solver)
    if isinstance(answer, str):
        return answer
    began, point, last = perf_counter(), answer[0].point, cvxpy_solver.problem_solved
    recognition, stats = made.recognition, last.solver_stats
    restored = restore(recognition, point.x, point.theta, point.multipliers, found.shares)
    seconds = perf_counter() - began
    report = report_of(made, found, answer[1], mode, stats.solver_name, recognised, seconds)
    write_back(
        recognition,
        restored,
        status=status_of(answer[1].ok, last.status),
        solver=report.solver,
        statistics=statistics(
            report,
            solve_time=cvxpy_solver.solve_time,
            setup_time=cvxpy_solver.setup_time,
            iterations=stats.num_iters,
            inner=stats.extra_stats,
        ),
    )
    return report


def accepted_answer(found: Outcome, cvxpy_solver: CvxpySolver) -> tuple[Relaxed, Certificate] | str:
    """The answer and its certificate; or why they cannot be handed out."""
    proof = found.certificate
    if found.relaxed is None or proof is None or cvxpy_solver.problem_solved is None:
        return f"the reduced problem was not solved to optimality ({found.status})"
    if not proof.ok and not proof.relative_gap <= USELESS:
        return f"the answer could not be certified: {proof.reason}"
    return found.relaxed, proof


def report_of(
    made: CompositeProblem,
    found: Outcome,
    proof: Certificate,
    mode: str,
    solver: str,
    recognised: float,
    restored: float,
) -> Report:
    """What the rounds did, as a record; the last two arguments are seconds."""
    masks = found.screening
    counts = {"zero": masks.zero, "linear": masks.linear, "quadratic": masks.quadratic}
    return Report(
        recognised=True,
        mode=mode,
        solver=solver,
        terms=made.terms,
        kept=found.kept,
        fixed={**{k: int(v.sum()) for k, v in counts.items()}, "predicted": found.predicted},
        beside=made.descriptions,
        gap=proof.gap,
        relative_gap=proof.relative_gap,
        rounds=found.rounds,
        times={
            "recognise": recognised,
            "screen": found.seconds - found.solve_seconds,
            "solve": found.solve_seconds,
            "restore": restored,
        },
    )
