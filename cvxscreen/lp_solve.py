"""Solving the LP-SVM through screening: reduced linear programs by HiGHS, certified in full."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import linprog

from cvxscreen.columns import by_columns
from cvxscreen.inputs import choice, one_of, tolerance
from cvxscreen.limits import UNLIMITED, Limits
from cvxscreen.lp_svm import LpCertificate, LpSvm, LpVerdict, certify_lp, screen_lp
from cvxscreen.tables import fields

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

NEAR = 0.7
"""Features with ``|v_j|`` above this share of lambda at the start are let in at once."""
MAX_ROUNDS = 60


@dataclass(frozen=True, eq=False)
class LpSolution:
    """An answer with its certificate; `screening` is what was proven before solving."""

    problem: LpSvm
    x: Array
    alpha: Array
    status: str
    certificate: LpCertificate
    screening: LpVerdict
    rounds: int
    kept: int
    features: int
    mode: str
    seconds: float = field(default=0.0)

    @property
    def value(self) -> float:
        """The objective at `x`."""
        return self.certificate.primal

    def __str__(self) -> str:
        return fields(
            [("status", self.status), ("objective", self.value),
             ("relative gap", self.certificate.relative_gap), ("terms solved", self.kept),
             ("features solved", self.features), ("rounds", self.rounds), ("mode", self.mode)],
            title="Solution (LP-SVM)",
        )


def solve_lp(
    problem: LpSvm,
    *,
    tol: float = 1e-6,
    mode: str = "certified",
    start: Any = None,
    limits: Limits = UNLIMITED,
) -> LpSolution:
    """Reduce, solve the linear program by HiGHS, certify on the full data.

    ``safe`` leaves out what `screen_lp` proves from the start (0 without one); ``certified`` lets
    features in as the dual point asks for them (column generation) and ends at an optimum of all.
    """
    choice("mode", mode, ("safe", "certified"))
    tol = tolerance(tol)
    if start is not None:
        one_of("start", start, LpSolution, "what `solve` returned for an LP-SVM is needed")
    began, lam, d = perf_counter(), problem.lam, problem.d
    w = np.zeros(d) if start is None else np.asarray(start.x, dtype=np.float64)
    alpha = problem.c if start is None else np.asarray(start.alpha, dtype=np.float64)
    known = screen_lp(problem, w, alpha)
    wanted = known.kept.copy()
    if mode == "certified":
        pull = np.abs(problem.design.adjoint(alpha))
        wanted &= (pull >= NEAR * min(lam, float(pull.max(initial=0.0)))) | (w != 0)
    rounds = 0
    while rounds < MAX_ROUNDS:
        rounds += 1
        status, part, alpha = _highs(problem, known, wanted, limits)
        if status != "optimal":
            break
        w = np.zeros(d)
        w[wanted] = part
        if limits.spent():
            break
        asks = np.abs(problem.design.adjoint(alpha)) > lam * (1 + 1e-9)
        asks &= ~wanted & known.kept
        if not asks.any():
            break
        wanted |= asks
    proof = certify_lp(problem, w, alpha, tol)
    return LpSolution(
        problem, w, alpha, limits.word(proof.ok), proof, known, rounds,
        int(known.undecided.sum()), int(wanted.sum()), mode, perf_counter() - began,
    )


def _highs(
    problem: LpSvm, known: LpVerdict, wanted: Mask, limits: Limits
) -> tuple[str, Array, Array]:
    """The reduced linear program in ``w = p - m`` and the slacks of the undecided terms."""
    matrix = by_columns(problem.design)[:, np.flatnonzero(wanted)]
    rows, d = np.flatnonzero(known.undecided), int(wanted.sum())
    force = np.asarray(matrix.T @ np.where(known.linear, problem.c, 0.0))
    alpha = np.where(known.linear, problem.c, 0.0)
    if not len(rows):
        return "optimal", np.zeros(d), alpha
    block = matrix.tocsr()[rows]
    cost = np.concatenate([problem.lam - force, problem.lam + force, problem.c[rows]])
    table = sp.hstack([-block, block, -sp.eye(len(rows))], format="csc")
    tight: dict[str, float] = {
        "primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10
    }
    if limits.seconds is not None:
        tight["time_limit"] = limits.seconds
    if limits.iterations is not None:
        tight["maxiter"] = limits.iterations
    right = -np.ones(len(rows))
    found = linprog(cost, A_ub=table, b_ub=right, bounds=(0, None), method="highs", options=tight)
    limits.spent(int(found.nit))
    if found.x is None or found.status != 0:
        return "failed", np.zeros(d), alpha
    alpha[rows] = np.clip(-found.ineqlin.marginals, 0.0, problem.c[rows])
    return "optimal", found.x[:d] - found.x[d : 2 * d], alpha
