"""Solve a joint problem by one of the algorithms, certify the answer, and show it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.extensions import supplied
from cvxscreen._support.limits import UNLIMITED, Limits
from cvxscreen._support.tables import Record, fields, table
from cvxscreen._support.validation import MODES, choice, finite, one_of, tolerance, word
from cvxscreen.certificates.certificate import Certificate
from cvxscreen.core.duality import dual_feasible
from cvxscreen.errors import InvalidInput
from cvxscreen.multitask.algorithms import (
    Admm,
    Algorithm,
    ApgJoint,
    Bcd,
    Outcome,
    Round,
    RunRecord,
    SmoothFista,
)
from cvxscreen.multitask.certificate import certify_multitask
from cvxscreen.multitask.gap import eigengap
from cvxscreen.multitask.problem import Metric, MultiTask
from cvxscreen.screening.verdict import Verdict

Array = NDArray[np.float64]

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

    Examples
    --------
    >>> import numpy as np, cvxscreen
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(30, 4)) for _ in range(3)]
    >>> tasks = [(A, np.where(A[:, 0] > 0, 1.0, -1.0)) for A in X]
    >>> problem = cvxscreen.raso(tasks, h=1, alpha=0.1, beta=0.01)
    >>> solution = cvxscreen.solve(problem)
    >>> solution.U.shape, solution.b.shape, solution.certificate.ok
    ((4, 3), (3,), True)
    >>> right = [solution.predict(A, t) * b > 0 for t, (A, b) in enumerate(tasks)]
    >>> [int(of_task.sum()) for of_task in right]               # of 30 each
    [30, 30, 28]
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


SOLVERS = ("auto", "builtin", "bcd", "plain", "admm", "apg", "fista")
DENSE = 500
"""Up to so many samples a task smooth losses go to block coordinate descent as well."""

Watch = Callable[[Round], None] | None


def solve_multitask(
    problem: MultiTask,
    *,
    tol: float = 1e-6,
    mode: str = "certified",
    solver: str = "auto",
    screening: bool = False,
    start: MultiTaskSolution | None = None,
    max_rounds: int | None = None,
    on_round: Watch = None,
    limits: Limits = UNLIMITED,
) -> MultiTaskSolution:
    """Solve to a joint relative gap of `tol`, certified on all tasks.

    Parameters
    ----------
    problem : MultiTask
    tol : float
        In (0, 1).
    mode : {"certified", "safe"}
        Nothing is ever guessed here, so both say the same.
    solver : str
        ``"bcd"``: block coordinate descent with accelerated steps (the default but for smooth
        losses on large tasks); ``"plain"``: without them; ``"admm"``; ``"apg"``: accelerated
        projected gradient on (U, M), a reference; ``"fista"``: on U, for smooth losses. Any other
        name is a solver that CVXPY has installed for semidefinite programs (``"SCS"``,
        ``"CLARABEL"``): a reference again, on the whole problem.
    screening : bool
        Whether block coordinate descent screens its U-steps (losses with kinks). The answer is the
        same either way, and it takes longer; see `cvxscreen.multitask.algorithms`.
    start : MultiTaskSolution, optional
        Of the same tasks at other parameters; for block coordinate descent. ``"auto"`` leaves it
        out where it takes another algorithm.
    max_rounds : int, optional
    on_round : callable, optional
        Gets the record of every round.
    limits : Limits

    Raises
    ------
    UnknownName, InvalidInput
    """
    one_of("problem", problem, MultiTask, "a problem from `raso` is needed")
    choice("mode", mode, MODES)
    tol = tolerance(tol)
    name = word("solver", solver, "the name of a solver is needed").lower()
    if start is not None:
        one_of("start", start, MultiTaskSolution, "what `solve` returned for such tasks is needed")
    if name in ("auto", "builtin"):
        name = "fista" if problem.smooth and max(problem.sizes) > DENSE else "bcd"
        start = start if name == "bcd" else None  # nobody chose a solver that takes none
    began = perf_counter()
    outcome = _run(problem, 0.5 * tol, name, screening, start, max_rounds, on_round, limits)
    M = outcome.metric.M
    proof = certify_multitask(problem, outcome.U, outcome.b, M, outcome.theta, tol=tol)
    return MultiTaskSolution(
        problem=problem,
        U=outcome.U,
        b=outcome.b,
        M=M,
        theta=outcome.theta,
        status=limits.word(proof.ok),
        certificate=proof,
        rounds=outcome.rounds,
        solver=name.upper(),
        mode=mode,
        seconds=perf_counter() - began,
    )


def _run(
    problem: MultiTask,
    target: float,
    name: str,
    screening: bool,
    start: MultiTaskSolution | None,
    max_rounds: int | None,
    on_round: Watch,
    limits: Limits,
) -> Outcome:
    limit: dict[str, Any] = {} if max_rounds is None else {"max_rounds": max_rounds}
    if start is not None and name not in ("bcd", "plain"):
        raise InvalidInput(f"`start` is used by solver 'bcd' only; `solver` is {name!r}.")
    algorithms: dict[str, Callable[..., Algorithm]] = {
        "bcd": partial(Bcd, screening=screening),
        "plain": partial(Bcd, accelerate=False, screening=screening),
        "admm": Admm, "apg": ApgJoint, "fista": SmoothFista,
    }
    if name in algorithms:
        first = None if start is None else warm(problem, start)
        return algorithms[name](**limit)(problem, target, first, on_round, limits)
    U, b, M, theta = supplied("cvxpy.multitask_solver")(problem, name, limits, SOLVERS)
    # Each task's slopes must sum to 0 exactly, where a solver leaves a rest.
    tasks = (problem.task(k, M) for k in range(problem.m))
    parts = zip(tasks, problem.split(theta), strict=True)
    theta = np.concatenate([dual_feasible(task, part)[0] for task, part in parts])
    record = RunRecord(problem, target, on_round, limits)
    record.offer(U, b, problem.predictions(U, b), theta)
    record.note(1)
    return record.outcome()


def warm(problem: MultiTask, start: MultiTaskSolution) -> tuple[Metric, Array, Array]:
    """The start's M (projected onto this problem's set), slopes and intercepts."""
    if start.problem.sizes != problem.sizes or start.problem.d != problem.d:
        raise InvalidInput("`start` belongs to other tasks than `problem`.")
    if start.problem.loss != problem.loss:
        raise InvalidInput(
            f"`start` is of a {start.problem.loss!r} problem; this one is {problem.loss!r}."
        )
    theta = np.clip(start.theta, problem.losses.lo, problem.losses.hi)
    return problem.metric(start.M), theta, start.b.copy()
