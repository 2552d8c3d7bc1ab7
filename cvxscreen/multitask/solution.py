"""The answer to a joint problem, with its rounds and its certificate."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.tables import Record, fields, table
from cvxscreen._support.validation import finite
from cvxscreen.certificates.certificate import Certificate
from cvxscreen.errors import InvalidInput
from cvxscreen.multitask.bounds import eigengap
from cvxscreen.multitask.problem import Metric, MultiTask
from cvxscreen.screening.verdict import Verdict

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Round:
    """One outer iteration.

    Attributes
    ----------
    number : int
    objective, gap, relative_gap : float
        Of the best primal and the best dual point so far.
    kept : int
        Samples that were not fixed by screening in the U-step.
    steps : int
        Newton steps of the U-step, or iterations since the last record.
    accelerated : bool
        Whether an extrapolated point was accepted.
    seconds : float
        Wall time.
    """

    number: int
    objective: float
    gap: float
    relative_gap: float
    kept: int
    steps: int
    accelerated: bool
    seconds: float


@dataclass(frozen=True, eq=False)
class Outcome:
    """Where an algorithm ended: ``(U, b, M)``, slopes ``theta`` and its rounds."""

    U: Array
    b: Array
    metric: Metric
    theta: Array
    rounds: tuple[Round, ...]


SHOWN = 12
"""Rounds that are printed; of more, the first and the last."""


@dataclass(frozen=True, eq=False, repr=False)
class MultiTaskSolution(Record):
    """An answer with its certificate.

    Attributes
    ----------
    problem : MultiTask
    U : array, shape (d, m)
        One column a task.
    b : array, shape (m,)
        Intercepts.
    M : array, shape (d, d)
    theta : array, shape (n,)
        Slopes of all samples, task after task.
    status : str
        ``"optimal"`` only with a certificate that holds, otherwise ``"inaccurate"``.
    certificate : Certificate
        Of the joint gap, recomputed on all tasks.
    rounds : tuple of Round
    solver, mode : str
    seconds : float
        Wall time of the whole call.
    """

    problem: MultiTask
    U: Array
    b: Array
    M: Array
    theta: Array
    status: str
    certificate: Certificate
    rounds: tuple[Round, ...]
    solver: str = ""
    mode: str = ""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        for name in ("U", "b", "M", "theta"):
            fresh = np.array(getattr(self, name), dtype=np.float64)
            fresh.flags.writeable = False
            object.__setattr__(self, name, fresh)

    @property
    def x(self) -> Array:
        """The coefficients ``U``, shape (d, m)."""
        return self.U

    @property
    def intercept(self) -> Array:
        """The intercepts, shape (m,)."""
        return self.b

    @property
    def alpha(self) -> tuple[Array, ...]:
        """Dual variables of each task: in [0, 1/n_l] for the hinge, ``-theta`` for regression."""
        return self.problem.split(-self.problem.sign * self.theta)

    @property
    def value(self) -> float:
        """The objective."""
        return self.certificate.primal

    @cached_property
    def subspace(self) -> Array:
        """Orthonormal basis of the h leading directions of M, shape (d, h)."""
        _, vectors = np.linalg.eigh(self.M)
        return np.asarray(vectors[:, ::-1][:, : self.problem.h])

    @cached_property
    def screening(self) -> Verdict:
        """What the answer proves about the joint optimum (`eigengap`), samples task after task."""
        return eigengap(self.problem, self.theta, self.certificate.gap)

    def predict(self, X: ArrayLike, task: int) -> Array:
        """``X u + b`` of one task, shape (len(X),)."""
        self.problem.check_task("task", task)
        X = finite("X", X)
        if X.ndim != 2 or X.shape[1] != self.problem.d:
            raise InvalidInput(
                f"`X` has shape {X.shape}; {self.problem.d} columns are needed, one a feature."
            )
        return np.asarray(X @ self.U[:, task] + self.b[task])

    def __str__(self) -> str:
        names = ("round", "objective", "relative gap", "kept", "steps", "accelerated", "seconds")
        shown = self.rounds
        if len(shown) > SHOWN:
            shown = (*shown[: SHOWN // 2], *shown[-SHOWN // 2 :])
        rows = [
            (r.number, float(f"{r.objective:.10g}"), r.relative_gap, r.kept, r.steps,
             r.accelerated, r.seconds)
            for r in shown
        ]
        head = fields(
            [
                ("status", self.status),
                ("objective", float(f"{self.value:.12g}")),
                ("relative gap", self.certificate.relative_gap),
                ("tasks", self.problem.m),
                ("samples", self.problem.n),
                ("rounds", len(self.rounds)),
                ("proven zero", int(self.screening.zero.sum())),
                ("proven linear", int(self.screening.linear.sum())),
                ("mode", self.mode),
                ("solver", self.solver),
                ("seconds", self.seconds),
            ],
            title="MultiTask solution",
        )
        return head + "\n" + table(names, rows)
