"""Claims of optimality, one a design: a problem, a solution, and the checker that judges it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from tasks import shared_tasks

import cvxscreen as cs
from cvxscreen.certificates.many import certify_many
from cvxscreen.certificates.one_pass import certify_metric
from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.problem import Problem
from cvxscreen.multitask.gap import certify_multitask

TOL = 1e-8
"""Relative gap asked of every claim; the solutions are a hundred times nearer."""
RNG = np.random.default_rng(11)
X = RNG.standard_normal((30, 4))
Y = np.where(X[:, 0] + 0.7 * RNG.standard_normal(30) > 0.1, 1.0, -1.0)
RESPONSE = X @ [1.0, -1.0, 2.0, 0.0] + RNG.laplace(size=30)
SPARSE = sp.random_array((30, 12), density=0.3, rng=RNG, format="csr")
PLACES = RNG.standard_normal((14, 3))
KINDS = np.arange(14) % 2


@dataclass(frozen=True)
class Claim:
    """`parts` are the arrays of the claim by name; `check` says whether they are accepted."""

    problem: Any
    parts: dict[str, np.ndarray]
    check: Callable[..., Any]
    tol: float = TOL

    def proof(self, **changed: Any) -> Any:
        return self.check(self.problem, tol=self.tol, **{**self.parts, **changed})

    @property
    def x(self) -> str:
        return next(iter(self.parts))

    @property
    def dual(self) -> str:
        return next((name for name in self.parts if name in ("theta", "alpha")), "")


def claim(problem: Any, *, tol: float = TOL, **options: Any) -> Claim:
    found = cs.solve(problem, tol=tol / 100, **options)
    parts = {"x": found.x, "theta": found.theta}
    if problem.side is not None:
        parts["multipliers"] = found.multipliers
    return Claim(problem, parts, cs.certify, tol)


def many(problem: Problem, x: Any, theta: Any, tol: float) -> Any:
    """The certificate of the batch, as that of one point."""
    one = (np.asarray(part)[None] for part in (x, theta))
    found = certify_many(problem, [problem.C], *one, tol=tol)
    return cs.Certificate(
        float(found.gap[0]), float(found.relative_gap[0]), float(found.primal[0]), np.nan, 0.0, tol,
        bool(found.ok[0]), "" if found.ok[0] else "as the batch says",
    )


def _batch() -> Claim:
    single = claim(cs.svm(X, Y, C=0.5, intercept=True))
    return Claim(single.problem, single.parts, many)


def _metric(**options: Any) -> Claim:
    problem = cs.rtlm(PLACES, cs.triplets(PLACES, KINDS, k=3), 0.3, **options)
    return claim(problem)


def _streamed() -> Claim:
    single = _metric()
    return Claim(single.problem, {"x": single.parts["x"]}, certify_metric)


def _listed(diagonal: bool) -> Claim:
    listed = cs.triplets(PLACES, index=cs.triplets(PLACES, KINDS, k=2).index)
    return claim(cs.rtlm(PLACES, listed, 0.3, diagonal=diagonal))


def _tasks() -> Claim:
    problem = cs.raso(shared_tasks(3, 4, 15, 2), h=2, alpha=0.1, beta=0.1)
    found = cs.solve(problem, tol=1e-7)
    parts = {"U": found.U, "b": found.b, "M": found.M, "theta": found.theta}
    return Claim(problem, parts, certify_multitask, 1e-6)


def _one_task() -> Claim:
    joint = _tasks()
    return claim(joint.problem.task(0, joint.parts["M"]))


def _side() -> Claim:
    base = cs.svm(X, Y, C=0.5)
    side = SideConstraints(-np.eye(4), np.full(4, 0.1), [("nonneg", 4)])
    problem = Problem(base.design, base.losses, base.quadratic, base.linear, side=side)
    return claim(problem)


BUILD: dict[str, Callable[[], Claim]] = {
    "dense": lambda: claim(cs.svm(X, Y, C=0.5)),
    "dense float32": lambda: claim(cs.svm(X.astype(np.float32), Y, C=0.5)),
    "dense with intercept": lambda: claim(cs.svm(X, Y, C=0.5, intercept=True)),
    "smoothed": lambda: claim(cs.svm(X, Y, C=0.5, loss="smoothed_hinge")),
    "sparse rows": lambda: claim(cs.svm(SPARSE, Y, C=2.0)),
    "sparse rows with intercept": lambda: claim(cs.svm(SPARSE, Y, C=2.0, intercept=True)),
    "absolute": lambda: claim(cs.regression(X, RESPONSE, C=0.3)),
    "quantile with intercept": lambda: claim(
        cs.regression(X, RESPONSE, C=0.3, loss="quantile", tau=0.8, intercept=True)
    ),
    "huber": lambda: claim(cs.regression(X, RESPONSE, C=0.3, loss="huber")),
    "kernel": lambda: claim(cs.svm(X, Y, kernel="rbf")),
    "kernel with intercept": lambda: claim(cs.svm(X, Y, kernel="rbf", intercept=True)),
    "L1": lambda: claim(cs.sparse_svm(X, Y, 0.05)),
    "L1 sparse rows": lambda: claim(cs.sparse_svr(SPARSE, RESPONSE, 0.02)),
    "L1 alone": lambda: claim(cs.sparse_svm(X, Y, 0.05, loss="squared_hinge", l2=0)),
    "L1 alone sparse rows": lambda: claim(
        cs.sparse_svr(SPARSE, RESPONSE, 0.02, loss="huber", l2=0)
    ),
    "L1 without squares": lambda: claim(cs.sparse_svm(X, Y, 0.05, loss="hinge", l2=0)),
    "triplets": _metric,
    "triplets listed": lambda: _listed(False),
    "triplets diagonal": lambda: _metric(diagonal=True),
    "triplets listed diagonal": lambda: _listed(True),
    "triplets streamed": _streamed,
    "tasks": _tasks,
    "one task": _one_task,
    "side constraints": _side,
    "batch": _batch,
}
"""A new design or a new certificate is one row here."""


@cache
def solved(name: str) -> Claim:
    return BUILD[name]()
