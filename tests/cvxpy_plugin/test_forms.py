"""The problems of `forms`: what is recognised, and the plain solve's answer with dual values."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from cvxpy_plugin.forms import ASIDE, FORMS, Form

import cvxscreen
from cvxscreen import cvxpy_plugin

cvxpy_plugin.register()

TIGHT = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
RECOGNISED = [form for form in FORMS if form.name not in ASIDE]
N, D = 240, 6

# Their multipliers are not unique: bounds that are tight together, or spelled twice.
DUALS_NOT_UNIQUE = frozenset(("portfolio_turnover",))


def solved(form: Form, **options: Any) -> cp.Problem:
    """The form's problem after a solve."""
    problem = form.make(N, D)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(**options)
    return problem


@cache
def plain(name: str) -> cp.Problem:
    """The form's problem after a plain solve."""
    return solved(next(form for form in FORMS if form.name == name), solver="CLARABEL", **TIGHT)


def duals(problem: cp.Problem) -> list[np.ndarray]:
    """All dual values."""
    out = []
    for constraint in problem.constraints:
        value = constraint.dual_value
        parts = value if isinstance(value, list) else [value]
        out += [np.asarray(part, dtype=float) for part in parts]
    return out


def test_there_are_forty_seven() -> None:
    assert len({form.name for form in FORMS}) == len(FORMS) == 47


@pytest.mark.table
@pytest.mark.parametrize("form", RECOGNISED, ids=[form.name for form in RECOGNISED])
def test_recognised_and_the_plain_answer(form: Form) -> None:
    """Value, variables and multipliers of a plain solve; the certificate holds."""
    truth, problem = plain(form.name), solved(form, method="screen")
    report = problem.solver_stats.extra_stats["cvxscreen"]
    assert report.recognised, report.reason
    assert report.relative_gap <= 1e-6
    assert problem.status == truth.status == cp.OPTIMAL
    assert problem.value == pytest.approx(truth.value, rel=1e-6, abs=1e-9)
    for ours in problem.constraints:
        assert np.max(ours.violation()) <= 1e-6 * (1.0 + abs(truth.value))
    for ours, theirs in zip(problem.variables(), truth.variables(), strict=True):
        size = max(1.0, np.abs(theirs.value).max())
        assert np.abs(ours.value - theirs.value).max() <= 2e-4 * size
    if form.name in DUALS_NOT_UNIQUE:
        return
    for ours, theirs in zip(duals(problem), duals(truth), strict=True):
        assert ours.shape == theirs.shape
        assert np.abs(ours - theirs).max() <= 2e-4 * max(1.0, np.abs(theirs).max())


@pytest.mark.parametrize("name", sorted(ASIDE))
def test_steps_aside(name: str) -> None:
    """Refused with the reason, and solved by CVXPY as if nothing had been asked."""
    form = next(form for form in FORMS if form.name == name)
    said = cvxscreen.explain(form.make(N, D))
    assert not said.recognised
    assert said.reasons[0]
    problem = solved(form, method="screen")
    assert problem.value == pytest.approx(plain(name).value, rel=1e-6)
