"""Every family of models through SCS: the full problem as exported, and what screening leaves.

Three answers to one problem that share no solver: the built-in one, SCS on all terms, and SCS on
the terms that are not proven (equation 2.9 of Yoshida et al. 2019, in every family).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import cvxscreen as cs

X, Y = cs.datasets.two_gaussians(60, 5, seed=3)
T = 2.0 * X[:, 0] - X[:, 1] + np.sin(9.0 * X[:, 2])
TIGHT = {"eps_abs": 1e-8, "eps_rel": 1e-8, "max_iters": 50_000}
AGREE = 1e-6
"""Relative difference of two objectives: SCS's residuals, not ours, set it."""


def at(problem: Any, share: float) -> Any:
    """The problem at a share of its largest lambda."""
    return problem.with_(lam=share * cs.lambda_max(problem))


def tasks() -> cs.MultiTask:
    return cs.raso([(X[:30], Y[:30]), (X[30:], Y[30:])], h=1, alpha=0.1, beta=0.05)


FAMILIES: dict[str, Callable[[], Any]] = {
    "metric": lambda: at(cs.rtlm(X[:, :3], cs.triplets(X[:, :3], Y, k=2), 1.0), 0.05),
    "diagonal metric": lambda: at(cs.rtlm(X, cs.triplets(X, Y, k=2), 1.0, diagonal=True), 0.05),
    "sparse_svm": lambda: at(cs.sparse_svm(X, Y, 1.0), 0.2),
    "sparse_svr": lambda: at(cs.sparse_svr(X, T, 1.0), 0.2),
    "LP-SVM": lambda: at(cs.sparse_svm(X, Y, 1.0, loss="hinge", l2=0), 0.2),
    "kernel": lambda: cs.svm(X, Y, kernel="rbf", kernel_params={"gamma": 0.3}),
    "kernel, intercept": lambda: cs.svm(X, Y, kernel="rbf", intercept=True),
    "kernel regression": lambda: cs.regression(X, T, loss="epsilon", kernel="poly"),
    "a task of rASO": lambda: tasks().task(0, cs.solve(tasks()).M),
}


def by_scs(prob: cp.Problem) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says so where it needs all of its iterations
        prob.solve(solver="SCS", **TIGHT)
    assert prob.status == "optimal"
    return float(prob.value)


@pytest.mark.parametrize("family", FAMILIES)
def test_scs_agrees_on_all_terms_and_on_what_is_left(family: str) -> None:
    problem = FAMILIES[family]()
    ours = cs.solve(problem, tol=1e-9)
    assert ours.certificate.ok
    assert by_scs(problem.to_cvxpy()) == pytest.approx(ours.value, rel=AGREE)
    reduced = ours.screening.reduce()
    assert reduced.n < (0.2 if family == "LP-SVM" else 1.0) * problem.n
    assert by_scs(reduced.to_cvxpy()) == pytest.approx(ours.value, rel=AGREE)


def test_scs_agrees_on_all_tasks_of_raso() -> None:
    """The semidefinite program of (64): as exported, and by `solve` with the solver's name."""
    ours = cs.solve(tasks(), tol=1e-9)
    assert by_scs(tasks().to_cvxpy()) == pytest.approx(ours.value, rel=AGREE)
    assert cs.solve(tasks(), tol=1e-4, solver="SCS").value == pytest.approx(ours.value, rel=1e-4)
