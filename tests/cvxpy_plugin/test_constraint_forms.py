"""Constraints in two forms: the same rows as the user's, and the way back of their dual values."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from cvxscreen import cvxpy_plugin
from cvxscreen.cvxpy_plugin.recognise.constraint_forms import in_two_forms

cvxpy_plugin.register()

N = 6
rng = np.random.default_rng(7)
A, B = rng.standard_normal((N, 2)), rng.standard_normal((N, 2))
u, v, U, V = cp.Variable(N), cp.Variable(N), cp.Variable((N, 2)), cp.Variable((N, 2))
p = cp.Parameter(2 * N, value=np.ones(2 * N))

OTHER = {
    "an object": (cp.NonNeg(u - 1), 1),
    "an object that is an equation": (cp.Zero(u - 2 * v), 1),
    "an object of a stack": (cp.NonNeg(cp.hstack([u, v])), 2),
    "side by side": (cp.hstack([u, 2 * v]) >= 0, 2),
    "side by side, of different lengths": (cp.hstack([u, v[:4]]) >= 1.0, 2),
    "over numbers": (cp.hstack([u, v]) <= np.arange(2.0 * N), 2),
    "above each other": (cp.vstack([u, v]) >= A.T, 2),
    "matrices above each other": (cp.vstack([U, V]) >= np.arange(2.0), 2),
    "matrices side by side": (cp.hstack([U, V]) == np.arange(4.0), 2),
    "both sides": (cp.hstack([u, v]) <= cp.hstack([2 * v - 1, cp.square(u)]), 2),
    "the negative of a stack": (-cp.vstack([u, v]) <= cp.vstack([v, u]), 2),
    "a stack in a stack": (cp.hstack([cp.hstack([u, v]), v]) >= 0, 3),
    "turned": (U.T >= B.T, 1),
    "turned in a sum": ((U - A).T == 2.0 * V.T + 1.0, 1),
    "turned in a stack": (cp.vstack([U.T, V.T]) >= 0, 2),
}
AS_IT_IS = {
    "an inequality": u >= v,
    "an equation": u - v == 1,
    "numbers from a loop": cp.hstack([u[k] - 1 for k in range(N)]) >= 0,
    "one beside a vector": cp.hstack([u, v[0]]) >= 0,
    "a stack over a parameter": cp.hstack([u, v]) >= p,
    "stacks of different lengths": cp.hstack([u, v]) >= cp.hstack([u[:2], v, u[2:]]),
    "a stack below a sum": cp.hstack([u, v]) - 1 >= 0,
    "a cone": cp.SOC(u[0], v),
    "data turned": A.T @ u >= 1,
}


def difference(constraint: Any) -> Any:
    """Left less right side, or what an object holds, column-major."""
    lower, upper = constraint.args if len(constraint.args) == 2 else (constraint.args[0], 0.0)
    values = lower.value - (upper if isinstance(upper, float) else upper.value)
    sign = -1.0 if isinstance(constraint, cp.NonNeg) else 1.0
    return sign * np.asarray(values).flatten(order="F")


@pytest.mark.parametrize("name", OTHER)
def test_every_row_is_one_of_the_users(name: str) -> None:
    constraint, count = OTHER[name]
    problem, found = in_two_forms(cp.Problem(cp.Minimize(0), [constraint]))
    (parts,) = (one.parts for one in found)
    assert len(parts) == len(problem.constraints) == count
    for variable in (u, v, U, V):
        variable.value = rng.standard_normal(variable.shape)
    said = difference(constraint)
    for part, places in parts:
        np.testing.assert_array_equal(difference(part), said[places])
    where = np.concatenate([places for _, places in parts])
    np.testing.assert_array_equal(np.sort(where), np.arange(constraint.size))
    duals = {part.id: places.reshape(part.shape, order="F") + 1.0 for part, places in parts}
    together = found[0].together({**duals, -1: 5.0})
    assert together.keys() == {constraint.id, -1}
    assert together[constraint.id].shape == constraint.shape
    np.testing.assert_array_equal(
        together[constraint.id].ravel(order="F"), np.arange(constraint.size) + 1.0)
    assert found[0].together({-1: 5.0}) == {-1: 5.0}


@pytest.mark.parametrize("name", AS_IT_IS)
def test_what_is_in_form_is_left_as_it_is(name: str) -> None:
    problem = cp.Problem(cp.Minimize(cp.sum(u)), [AS_IT_IS[name]])
    assert in_two_forms(problem) == (problem, ())


def test_numbers_keep_their_shape() -> None:
    x = cp.Variable()
    (one,) = in_two_forms(cp.Problem(cp.Minimize(x), [cp.NonNeg(x - 1)]))[1]
    assert one.together({one.parts[0][0].id: np.array(2.0)}) == {one.constraint.id: 2.0}


def test_dual_values_of_a_loop_of_objects() -> None:
    """Scalar objects become one constraint after that; each has its own dual value again."""
    data = rng.standard_normal((80, 3))
    label = np.sign(data[:, 0] + 0.1)
    w, t = cp.Variable(3), cp.Variable(80)
    loop = [cp.NonNeg(t[k] + label[k] * (data[k] @ w) - 1) for k in range(80)]
    problem = cp.Problem(cp.Minimize(cp.sum_squares(w) + cp.sum(t)), [*loop, cp.NonNeg(t)])
    problem.solve(method="screen", tol=1e-10, solver="builtin")
    value, ours = problem.value, [np.asarray(c.dual_value) for c in problem.constraints]
    theirs = problem.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    assert problem.status == cp.OPTIMAL
    assert value == pytest.approx(theirs, rel=1e-8)
    for one, constraint in zip(ours, problem.constraints, strict=True):
        np.testing.assert_allclose(one, constraint.dual_value, atol=1e-4)
