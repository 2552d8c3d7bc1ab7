"""Losses beside nuclear norms and largest eigenvalues, cones of matrices in CVXPY's form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

import cvxscreen
from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin.recognise.check import check, helpers_in_matrices
from cvxscreen.cvxpy_plugin.recognise.recognise import (
    RefusedByRules,
    recognise,
    recognise_in_general,
)
from cvxscreen.cvxpy_plugin.recognise.recognition import Recognition
from cvxscreen.errors import NotScreenable

cvxpy_plugin.register()

N, D, K = 300, 4, 3
RNG = np.random.default_rng(20261128)
X = RNG.standard_normal((N, D))
OUTPUTS = X @ RNG.standard_normal((D, 1)) @ RNG.standard_normal((1, K)) + RNG.standard_t(3, (N, K))
SQUARES = np.einsum("ij,ik->ijk", X[:, :3], X[:, :3]).reshape(N, 9)
SIZES = np.abs(RNG.standard_normal(N))


def outputs(
    loss: Callable[[cp.Expression], cp.Expression], term: Callable[[cp.Variable], cp.Expression],
) -> cp.Problem:
    W = cp.Variable((D, K))
    fit = cp.sum(loss(X @ W - OUTPUTS)) / N
    return cp.Problem(cp.Minimize(fit + term(W)), [W[0, 0] >= 0.1])


def bounded() -> cp.Problem:
    W, b = cp.Variable((D, K)), cp.Variable((1, K))
    loss = cp.sum(cp.abs(X @ W + np.ones((N, 1)) @ b - OUTPUTS)) / N
    return cp.Problem(cp.Minimize(loss), [cp.normNuc(W) <= 1.5])


def forms_of_points(term: Callable[[cp.Variable], cp.Expression]) -> cp.Problem:
    P = cp.Variable((3, 3), symmetric=True)
    loss = cp.norm1(SQUARES @ cp.vec(P, order="C") - SIZES) / N
    return cp.Problem(cp.Minimize(loss + term(P)))


FORMS: dict[str, Callable[[], cp.Problem]] = {
    "Huber, nuclear norm": lambda: outputs(cp.huber, lambda W: 0.3 * cp.normNuc(W)),
    "absolute, nuclear norm": lambda: outputs(cp.abs, lambda W: 0.2 * cp.normNuc(W)),
    "Huber, largest singular value": lambda: outputs(cp.huber, lambda W: cp.sigma_max(W)),
    "absolute, bounded nuclear norm": bounded,
    "absolute, largest eigenvalue": lambda: forms_of_points(lambda P: 0.3 * cp.lambda_max(P)),
    "absolute, sum of two eigenvalues": lambda: forms_of_points(
        lambda P: 0.2 * cp.lambda_sum_largest(P, 2)
    ),
}


def recognised(form: str) -> Recognition:
    with pytest.raises(RefusedByRules) as refusal:
        recognise(FORMS[form]())
    return recognise_in_general(refusal.value)


@pytest.mark.parametrize("form", FORMS)
def test_the_answer_and_every_dual_value(form: str) -> None:
    screened, plain = FORMS[form](), FORMS[form]()
    screened.solve(method="screen", always=True)
    plain.solve(solver="CLARABEL")
    report = cvxscreen.Report.of(screened)
    assert report.recognised, report.reason
    assert report.relative_gap <= 1e-6
    assert screened.value == pytest.approx(plain.value, rel=2e-6)
    assert screened.objective.value == pytest.approx(screened.value, rel=1e-6)
    for mine, other in zip(screened.constraints, plain.constraints, strict=True):
        assert np.max(mine.violation()) <= 1e-6
        assert np.allclose(mine.dual_value, other.dual_value, atol=2e-4)


@pytest.mark.parametrize("form", [form for form in FORMS if "bounded" not in form])
def test_another_weight_of_the_term_is_refused(form: str) -> None:
    """What helpers cost is compared where they have their best values."""
    found = recognised(form)
    linear = found.problem.linear.copy()
    linear[helpers_in_matrices(found)] *= 1.001
    with pytest.raises(NotScreenable, match="does not agree"):
        check(found._replace(problem=replace(found.problem, linear=linear)))


def test_large_matrices_are_left_to_cvxpy() -> None:
    W = cp.Variable((20, 12))
    data = RNG.standard_normal((2000, 20))
    loss = cp.sum(cp.huber(data @ W - 1.0))
    with pytest.raises(RefusedByRules) as refusal:
        recognise(cp.Problem(cp.Minimize(loss + cp.normNuc(W))))
    with pytest.raises(NotScreenable, match="matrix of 32 rows"):
        recognise_in_general(refusal.value)
