"""What every loop over one problem in memory keeps and hands out: proof, records, the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from time import perf_counter

import numpy as np

from cvxscreen.bounds import Bound
from cvxscreen.certificates.certificate import Certificate, certify
from cvxscreen.core.duality import Point
from cvxscreen.core.problem import Problem
from cvxscreen.screening.reduction import Screening
from cvxscreen.solvers.interface import SubproblemResult, SubproblemSolver
from cvxscreen.solvers.solution import Answer, Round, Solution


class Run:
    """The state of one call: best point so far, what is proven, the rounds.

    Parameters
    ----------
    problem : Problem
    inner : callable
        Solver of the reduced problems; its limits are those of the call.
    mode : {"certified", "safe"}
    tol : float
        Relative duality gap on the full problem.
    bounds : tuple of Bound
    on_round : callable or None
        Gets the record of every finished round.
    """

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
        self.rounds: list[Round] = []
        self.before: Mapping[str, float] = {}
        self.result = SubproblemResult("not run", np.zeros(0), np.zeros(0))
        self.finished = False
        self._proof: tuple[Point, Certificate] | None = None
        self.prepare()

    def prepare(self) -> None:
        """What a loop keeps beside this; called once, when all of it is there."""

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

    def record(
        self, reduced: Problem, point: Point | Certificate | None,
        counts: tuple[int, int, int], began: float, solved: float, features: int | None = None,
    ) -> None:
        """Keep the record of a round and hand it on.

        Parameters
        ----------
        reduced : Problem
            What was solved.
        point : Point, Certificate or None
            Whose gap the record tells.
        counts : tuple of int
            Terms proven, predicted, refuted.
        began, solved : float
            When the round began and when its solver was done (`perf_counter`).
        features : int, optional
            Coordinates of the reduced problem where features are screened.
        """
        proven, predicted, refuted = counts
        entry = Round(
            number=len(self.rounds) + 1, kept=reduced.n,
            proven=proven, predicted=predicted, refuted=refuted,
            gap=point.gap if point else float("inf"),
            relative_gap=point.relative_gap if point else float("inf"),
            solver_status=self.result.status, solver_info=dict(self.result.info),
            solve_seconds=solved - began, seconds=perf_counter() - began, features=features,
        )
        self.rounds.append(entry)
        if self.on_round is not None:
            self.on_round(entry)

    def solution(self, began: float) -> Solution:
        """The record of the whole call, which began at that `perf_counter`."""
        answer, rounds = self.answer, tuple(self.rounds)
        if answer is None and self.best is not None and self.answered:
            answer = Answer.known(self.best, self.certified(self.best))
        if answer is None:
            word = self.limits.reached or self.result.status
            failed = Solution.failed(self.problem, word, self.screening, rounds)
            return replace(failed, seconds=perf_counter() - began)
        return Solution(
            problem=self.problem,
            x=answer.x, theta=answer.theta, multipliers=answer.multipliers, answer=answer,
            status=self.limits.word(answer.proof.ok), certificate=answer.proof,
            earlier=self.screening, bounds=self.bounds, rounds=rounds,
            before=self.before, solver=self.inner.name, mode=self.mode,
            seconds=perf_counter() - began,
        )
