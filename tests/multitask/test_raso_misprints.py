"""More statements of Chen et al. (2013) as printed, each next to the one that holds.

Nothing to compute in three of its misprints:

* the test of F in line 9 of Algorithm 1 against that of f in (37): g cancels, one test;
* ``z(t)`` of Algorithm 3 is never defined: it is ``Gamma(t)`` of (79);
* the logistic loss in the header of the authors' MATLAB code loses a parenthesis.

The rest of the list is in `test_raso_errata`, `test_raso_bounds` and `test_prox`.
"""

from __future__ import annotations

import numpy as np
import pytest
from tasks import shared_tasks

import cvxscreen
from cvxscreen.multitask import prox
from cvxscreen.multitask.problem import TaskMetric
from cvxscreen.multitask.solve import Bcd
from cvxscreen.multitask.task_solver import solve_task, zero_point
from cvxscreen.solvers.apg import fista


class Square:
    """``1/2 ||A x - y||^2``."""

    def __init__(self, A, y) -> None:
        self.A, self.y = A, y

    def value(self, x):
        return self.value_gradient(x)[0]

    def value_gradient(self, x):
        residual = self.A @ x - self.y
        return 0.5 * float(residual @ residual), self.A.T @ residual


def soft_threshold(z, step):
    """The prox of ``step |z|_1``."""
    return np.sign(z) * np.maximum(np.abs(z) - step, 0.0)


def test_the_indices_of_algorithm_1_are_right(rng) -> None:
    """``a_i = (t_{i-2} - 1) / t_{i-1}`` with ``t_{-1} = 0`` and ``t_0 = 1`` is FISTA."""
    A = rng.standard_normal((15, 8))
    f, L = Square(A, rng.standard_normal(15)), np.linalg.norm(A, 2) ** 2
    ours: list = []
    fista(f, soft_threshold, np.zeros(8), lambda x, k: bool(ours.append(x)), lipschitz=L,
          restart=False, max_iterations=40)

    def printed(ahead: int) -> list:
        t, Z = [0.0, 1.0], [np.zeros(8), np.zeros(8)]
        for i in range(1, 41):
            t.append(0.5 * (1 + np.sqrt(1 + 4 * t[i] ** 2)))  # t[k + 1] is t_k
            a = (t[i - 1 + ahead] - 1) / t[i + ahead]
            S = (1 + a) * Z[i] - a * Z[i - 1]
            Z.append(soft_threshold(S - f.value_gradient(S)[1] / L, 1 / L))
        return Z[1:]

    np.testing.assert_allclose(ours, printed(0), atol=1e-12)
    assert np.abs(np.array(ours) - printed(1)).max() > 1e-4  # another shift is another method


def test_the_bound_on_t_is_loose() -> None:
    """(63) gives ``(k + 1)/2``; summing (62) from ``t_0 = 1`` gives ``(k + 2)/2``, attained."""
    t = [1.0]
    for _ in range(1000):
        t.append(0.5 * (1 + np.sqrt(1 + 4 * t[-1] ** 2)))
    spare = np.array(t) - 0.5 * (np.arange(1001) + 2)
    assert spare.min() == spare[0] == 0.0


def test_optimality_needs_the_normal_cone(rng) -> None:
    """(50) drops the set: then the middle equality of Lemma A.1 is only ``>=``."""
    target = rng.standard_normal((5, 5))
    target = 2.0 * (target + target.T)

    def f(Z):
        return 0.5 * np.sum((Z - target) ** 2)

    L, S = 3.0, prox.fantope(rng.standard_normal((5, 5)), 2)
    gradient = S - target
    right = prox.fantope(S - gradient / L, 2)
    free = S - gradient / L  # what (42) gives over all matrices
    np.testing.assert_allclose(L * (free - S) + gradient, 0, atol=1e-12)
    pull = L * (right - S) + gradient
    assert np.linalg.norm(pull) > 0.1
    spare = []
    for _ in range(50):
        Z = prox.fantope(rng.standard_normal((5, 5)), 2)
        spare.append(np.vdot(Z - right, gradient) + L * np.vdot(Z - right, right - S))
        step = L * (S - right)
        lemma = np.vdot(Z - S, step) + np.sum(step**2) / (2 * L)
        assert f(Z) - f(right) >= lemma - 1e-12
    assert min(spare) >= -1e-12
    assert max(spare) > 0.1


@pytest.fixture
def task(rng):
    """The first task of a problem, its losses and a metric inside the set."""
    problem = cvxscreen.raso(shared_tasks(2, 5, 30, 2), h=2, alpha=0.3, beta=0.1)
    metric = problem.metric(0.4 * np.eye(5) + 0.2 * rng.standard_normal((5, 5)))
    return problem, metric, problem.X[0], problem.y[0]


def mean_hinge(X, y, u, b):
    return np.maximum(1 - y * (X @ u + b), 0).mean()


def test_the_dual_is_maximised_over_beta(task) -> None:
    """(70) prints ``min`` over (u, b), which do not occur; its Ker is right."""
    problem, metric, X, y = task
    found = solve_task(X, problem.task_losses[0], metric, zero_point(X))
    beta = -y * found.theta
    A = problem.eta * np.eye(5) + metric.M
    Ker = X @ A @ X.T / (2 * problem.c)

    def dual(beta):
        return beta.sum() - 0.5 * (y * beta) @ Ker @ (y * beta)

    primal = mean_hinge(X, y, found.u, found.b)
    primal += problem.c * found.u @ np.linalg.solve(A, found.u)
    assert dual(beta) == pytest.approx(primal, rel=1e-10)
    assert dual(0 * beta) == 0.0 < 0.1 * primal  # the least is no larger than this
    assert abs(y @ beta) < 1e-12
    assert beta.min() >= 0
    assert beta.max() <= 1 / len(y) + 1e-15


def test_the_linear_term_is_negative_and_no_obstacle(task, rng) -> None:
    """(74): ``-2 uhat'u``; the dual is that of a machine with the linear term ``p``."""
    problem, _, X, y = task
    L, centre = 1.7, rng.standard_normal(5)
    points = [
        solve_task(
            X, problem.task_losses[0], TaskMetric.ridge(5, L), zero_point(X), centre=sign * centre
        )
        for sign in (1, -1)
    ]
    values = [
        mean_hinge(X, y, point.u, point.b) + 0.5 * L * np.sum((point.u - centre) ** 2)
        for point in points
    ]
    beta = -y * points[0].theta
    p, Q = 1 - y * (X @ centre), np.outer(y, y) * (X @ X.T) / L
    assert p @ beta - 0.5 * beta @ Q @ beta == pytest.approx(values[0], rel=1e-10)
    np.testing.assert_allclose(points[0].u, centre + X.T @ (y * beta) / L, atol=1e-12)
    assert values[1] > 1.5 * values[0]


def test_the_index_sets_mix_two_conventions() -> None:
    """I_l and I_u take ``t^l`` for the parameter of 0; I_m takes it, as (80), for that of 1."""
    s, eta, h = np.array([2.0, 1.8, 0.9, 0.8, 0.7, 0.1, 0.05]), 0.4, 3
    g = prox.box_norm_weights(s, eta, h)
    i = np.flatnonzero((g > 0) & (g < 1))[0]
    t = (s[i] / (g[i] + eta)) ** 2
    of_zero, of_one = (s / eta) ** 2, (s / (1 + eta)) ** 2
    knots = np.sort(np.concatenate([of_zero, of_one]))
    j = np.searchsorted(knots, t)
    low, high = knots[j - 1], knots[j]

    def sets(t_l, t_u):
        return t_l <= low, high <= t_u, (low < t_u) & (t_l < high)

    truth = (g == 0, g == 1, (g > 0) & (g < 1))
    assert all(part.any() for part in truth)
    as_80, swapped = sets(of_one, of_zero), sets(of_zero, of_one)
    assert [bool((a == b).all()) for a, b in zip(as_80, truth, strict=True)] == [0, 0, 1]
    assert [bool((a == b).all()) for a, b in zip(swapped, truth, strict=True)] == [1, 1, 0]
    assert ((low < of_zero) & (of_one < high) == truth[2]).all()


def middle_of(values):
    """A member in the middle: a mean of two would be no critical parameter."""
    return np.sort(values)[(len(values) - 1) // 2]


def algorithm_3(s, eta, h, *, line_21: bool):
    """With all else corrected; None when a pass changes nothing (it would not end)."""
    zero, one = (s / eta) ** 2, (s / (1 + eta)) ** 2

    def weights(t):
        return np.clip(s / np.sqrt(t) - eta, 0, 1)

    t_min, t_max, left = one.min(), zero.max(), np.arange(len(s))
    while len(left):
        before = t_min, t_max, len(left)
        first = middle_of(zero[left])
        for t in (first, middle_of(one[left[zero[left] >= first]])):
            total = weights(t).sum()
            if total > h:
                t_min = max(t_min, t)
            elif line_21:
                t_min = min(t_max, t)
            else:
                t_max = min(t_max, t)
        apart = (one[left] <= t_min) & (t_max <= zero[left])
        left = left[~((zero[left] <= t_min) | (one[left] >= t_max) | apart)]
        if (t_min, t_max, len(left)) == before:
            return None
    at_one = (one >= t_max) & (zero > t_min)
    middle = (zero > t_min) & ~at_one
    if not middle.any():
        return weights(t_min)
    rest = h - at_one.sum() + eta * middle.sum()
    return weights((s[middle].sum() / rest) ** 2) if rest > 0 else weights(t_min)


def test_line_21_updates_the_upper_end(rng) -> None:
    """``t_min = min(t_max, t)``, as printed, does not end or ends elsewhere."""
    wrong = endless = 0
    for _ in range(100):
        s, eta, h = rng.random(8) + 0.05, rng.uniform(0.05, 1), int(rng.integers(1, 8))
        truth = prox.box_norm_weights(s, eta, h)
        np.testing.assert_allclose(algorithm_3(s, eta, h, line_21=False), truth, atol=1e-9)
        printed = algorithm_3(s, eta, h, line_21=True)
        endless += printed is None
        wrong += printed is not None and np.abs(printed - truth).max() > 1e-6
    assert wrong + endless > 80
    assert min(wrong, endless) > 5


def test_the_parameter_is_positive() -> None:
    """(76) lets t be arbitrary, but (78) is no number for ``t < 0``."""
    eta, grid = 0.3, np.linspace(0, 1, 101)
    for s, t, best in ((0.8, -0.5, 1.0), (0.0, -0.5, 1.0), (0.0, 0.5, 0.0)):
        assert grid[np.argmin(s**2 / (eta + grid) + t * grid)] == best
        with np.errstate(invalid="ignore"):
            printed = np.clip(s / np.sqrt(t) - eta, 0, 1)
        assert printed == best if t > 0 else np.isnan(printed)


def test_no_parameter_is_no_proof_of_infeasibility() -> None:
    """Theorem C.1 (3) with zeros: no ``t > 0`` gives h, and yet there is a solution."""
    s, eta, h = np.array([0.9, 0.4, 0.0, 0.0]), 0.2, 3
    for t in np.geomspace(1e-12, 1e6, 200):
        assert np.clip(s / np.sqrt(t) - eta, 0, 1).sum() <= 2
    np.testing.assert_allclose(prox.box_norm_weights(s, eta, h), [1, 1, 0.5, 0.5], atol=1e-15)


@pytest.mark.long
def test_a_small_change_is_no_small_gap() -> None:
    """Algorithm 2 ends on a change below 1e-6; for small eta far more is left to gain."""
    problem = cvxscreen.raso(shared_tasks(3, 6, 15, 1), h=3, alpha=1.0, beta=0.02)
    rounds = Bcd(accelerate=False, max_rounds=600)(problem, 1e-7).rounds
    change = -np.diff([done.objective for done in rounds])
    still = int(np.flatnonzero(change < 1e-6)[0]) + 1
    assert rounds[still].objective - rounds[-1].objective > 1e-5
    assert rounds[still].gap > 1e-5
    assert rounds[-1].relative_gap <= 1e-7
