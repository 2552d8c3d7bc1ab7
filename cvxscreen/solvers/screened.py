"""What the loop asks of a problem, and what every problem in memory keeps and hands out.

`ScreenedProblem` is the contract; the loop that calls it is `run`. What it
means for terms, for terms and features under an L1 term, for data in chunks, and for losses beside
another part of a CVXPY problem is in the classes that carry it out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from time import perf_counter
from typing import ClassVar, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen.bounds import Bound
from cvxscreen.certificates.certificate import Certificate, certify
from cvxscreen.core.duality import Point
from cvxscreen.core.problem import Problem
from cvxscreen.screening.reduction import Screening
from cvxscreen.solvers.interface import Start, SubproblemResult, SubproblemSolver
from cvxscreen.solvers.solution import Answer, Round, Solution

S = TypeVar("S")
"""What a round fixes."""
R = TypeVar("R")
"""A reduced problem."""
A = TypeVar("A")
"""What a solver answers to it."""
L = TypeVar("L")
"""That answer for the full problem."""
P = TypeVar("P")
"""That answer, evaluated on everything."""


class Times(NamedTuple):
    """When a round began and when its solver was done, in seconds of `time.perf_counter`."""

    began: float
    solved: float


class Estimate(NamedTuple):
    """How far from optimal a point seems to be, where no certificate has been made yet."""

    gap: float
    relative_gap: float


class HasGap(Protocol):
    """Whatever a round is judged by: a point, a certificate, an estimate."""

    @property
    def gap(self) -> float:
        """How far from optimal, at most or about."""
        ...

    @property
    def relative_gap(self) -> float:
        """The same relative to the objective."""
        ...


class ScreenedProblem(ABC, Generic[S, R, A, L, P]):
    """A problem with what is known about it: what to fix, and how to judge what comes of it.

    Attributes
    ----------
    finished : bool
        Whether the answer is there, or nothing can be done any more.
    rounds : list of Round
        The record of each round.
    limits : Limits
        Of the whole call.
    on_round : callable or None
        Gets the record of every finished round.
    """

    finished: bool = False
    rounds: list[Round]
    limits: Limits = UNLIMITED
    on_round: Callable[[Round], None] | None = None

    @cached_property
    def result(self) -> SubproblemResult:
        """What the solver said last; each problem has its own, whose `info` is written into."""
        return SubproblemResult("not run", np.zeros(0), np.zeros(0))

    @property
    def over(self) -> bool:
        """Whether to stop: finished, or a limit has been reached with something to show."""
        return self.finished or (bool(self.rounds) and self.limits.spent())

    @abstractmethod
    def select(self) -> S:
        """What to fix in this round: predicted from the best point, or proven from it."""

    @abstractmethod
    def reduce(self, selection: S) -> tuple[R, Callable[[A], L]]:
        """The problem without what is fixed, and the way back from an answer to it."""

    @abstractmethod
    def solve(self, reduced: R, selection: S) -> A | None:
        """The solver's answer from a start to a target that fit this round; None without one."""

    @abstractmethod
    def evaluate(self, lifted: L, selection: S) -> P:
        """Margins, gap and residual on everything, also on what the solver has not seen."""

    @abstractmethod
    def put_back(self, selection: S, point: P | None) -> int:
        """Learn from the point (None: there was no answer); how many predictions it refutes."""

    @abstractmethod
    def close(self, selection: S, refuted: int, times: Times) -> None:
        """Record the round, and decide whether another one may help."""

    def record(
        self, kept: int, point: HasGap | None, counts: tuple[int, int, int], times: Times,
        features: int | None = None,
    ) -> None:
        """Keep the record of a round and hand it on.

        Parameters
        ----------
        kept : int
            Terms of the reduced problem.
        point : HasGap or None
            Whose gap the record tells; infinite without one.
        counts : tuple of int
            Terms proven, predicted, refuted.
        times : Times
        features : int, optional
            Coordinates of the reduced problem where features are screened.
        """
        proven, predicted, refuted = counts
        entry = Round(
            number=len(self.rounds) + 1, kept=kept,
            proven=proven, predicted=predicted, refuted=refuted,
            gap=point.gap if point else float("inf"),
            relative_gap=point.relative_gap if point else float("inf"),
            solver_status=self.result.status, solver_info=dict(self.result.info),
            solve_seconds=times.solved - times.began, seconds=perf_counter() - times.began,
            features=features,
        )
        self.rounds.append(entry)
        if self.on_round is not None:
            self.on_round(entry)


def run(screened: ScreenedProblem[S, R, A, L, P]) -> None:
    """Screen and solve in turns until the problem says that it is over."""
    while not screened.over:
        one_round(screened)


def one_round(screened: ScreenedProblem[S, R, A, L, P]) -> None:
    """The steps in the docstring of `cvxscreen.solvers.loop`, once."""
    began = perf_counter()
    selection = screened.select()
    reduced, lift = screened.reduce(selection)
    answer = screened.solve(reduced, selection)
    times = Times(began, perf_counter())
    lifted = None if answer is None else lift(answer)
    del reduced, lift, answer  # may be large, and evaluating data in chunks gathers rows anew
    point = None if lifted is None else screened.evaluate(lifted, selection)
    refuted = screened.put_back(selection, point)
    screened.close(selection, refuted, times)


class ProblemInMemory(ScreenedProblem[S, R, A, L, P]):
    """What is known about one `Problem`: the best point so far, what is proven, the rounds.

    Parameters
    ----------
    problem : Problem
    inner : SubproblemSolver
        Solver of the reduced problems; its limits are those of the call.
    mode : {"certified", "safe"}
    tol : float
        Relative duality gap on the full problem.
    bounds : tuple of Bound
    on_round : callable or None
        Gets the record of every finished round.

    Attributes
    ----------
    piloted : bool
        Whether the built-in solver goes before another one that is named.
    narrows : bool
        Whether the reduced problems have few columns, whatever the problem has.
    """

    piloted: ClassVar[bool] = True
    narrows: ClassVar[bool] = False

    def __init__(
        self,
        problem: Problem,
        inner: SubproblemSolver,
        mode: str,
        tol: float,
        bounds: tuple[Bound, ...],
        on_round: Callable[[Round], None] | None,
    ) -> None:
        self.problem, self.inner, self.mode, self.tol = problem, inner, mode, tol
        self.bounds, self.on_round, self.limits = bounds, on_round, inner.limits
        self.screening = Screening.empty(problem)
        self.best: Point | None = None
        self.answer: Answer | None = None
        self.rounds = []
        self.before: Mapping[str, float] = {}
        self._proof: tuple[Point, Certificate] | None = None
        self.set_up()

    @abstractmethod
    def set_up(self) -> None:
        """What the rounds need beside what every problem in memory keeps; at construction."""

    @abstractmethod
    def begin(self, start: Start | None, solve: Callable[..., Solution]) -> None:
        """Evaluate the start, or find one; `solve` is the whole loop, for smaller problems."""

    @property
    def answered(self) -> bool:
        """Whether the best point is an answer, not just where the call began."""
        return True

    def certified(self, point: Point) -> Certificate:
        """The independent certificate of `point`, computed once."""
        if self._proof is None or self._proof[0] is not point:
            pair = (point.x, point.theta, point.multipliers)
            self._proof = (point, certify(self.problem, *pair, tol=self.tol))
        return self._proof[1]

    def zero_answer(self) -> Answer | None:
        """``x = 0``, certified, for a call that ends before its first point.

        None where it violates constraints, or nothing is known of it.
        """
        problem, losses = self.problem, self.problem.losses
        multipliers = np.zeros(0 if problem.side is None else len(problem.side.offset))
        theta = np.clip(np.zeros(problem.n), losses.lo, losses.hi)
        answer = Answer.of(problem, np.zeros(problem.d), theta, multipliers, self.tol)
        proof = answer.proof
        feasible = proof.violation == proof.primal_residual == 0.0
        return answer if feasible and np.isfinite(proof.gap) else None

    def solution(self, began: float) -> Solution:
        """The record of the whole call, which began at that `perf_counter`."""
        answer, rounds = self.answer, tuple(self.rounds)
        if answer is None and self.best is not None and self.answered:
            answer = Answer.known(self.best, self.certified(self.best))
        if answer is None and self.limits.reached:
            answer = self.zero_answer()
        if answer is None:
            word = self.limits.reached or self.result.status
            failed = Solution.failed(self.problem, word, self.screening, rounds)
            shown = word == "infeasible" and len(self.result.theta) == self.problem.n > 0
            return replace(
                failed, infeasible=self.result if shown else None, solver=self.inner.name,
                mode=self.mode, seconds=perf_counter() - began,
            )
        return Solution(
            problem=self.problem,
            x=answer.x, theta=answer.theta, multipliers=answer.multipliers, answer=answer,
            status=self.limits.word(answer.proof.ok), certificate=answer.proof,
            earlier=self.screening, bounds=self.bounds, rounds=rounds,
            before=self.before, solver=self.inner.name, mode=self.mode,
            seconds=perf_counter() - began,
        )
