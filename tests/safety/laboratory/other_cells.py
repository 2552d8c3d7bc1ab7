"""Cells about models of another shape: multi-task learning, and the SVM with an L1 norm alone."""

from __future__ import annotations

import adversary
import mpmath as mp
import numpy as np
import scipy.sparse as sp
from active_set import optimum
from checks import Ledger
from linear import DIGITS, Vector, solved
from scipy.optimize import linprog
from terms import OPEN, RIGHT, WRONG, real
from vector_cells import one, reference

import cvxscreen
from cvxscreen.multitask.solve import Bcd

TASKS = {
    "hinge": {}, "absolute": {}, "epsilon": {"epsilon": 0.3}, "quantile": {"tau": 0.3},
    "smoothed_hinge": {}, "huber": {},
}


def tasks(number: int, rng: np.random.Generator) -> tuple[cvxscreen.MultiTask, str, str]:
    """Three tasks that share a subspace, and how they were made hard."""
    loss = tuple(TASKS)[number % 6]
    kind = ("plain", "scaled", "far", "float32")[(number // 6 + number) % 4]
    d, n, rows = 5, int(rng.integers(20, 50)), []
    basis = rng.standard_normal((d, 2))
    for _ in range(3):
        X = rng.standard_normal((n, d))
        score = X @ (basis @ rng.standard_normal(2)) + 0.4 * rng.standard_normal(n)
        if kind == "scaled":
            X = X * 10.0 ** rng.uniform(-3, 3, d)
        elif kind == "far":
            X = X + 1e4
        elif kind == "float32":
            X = X.astype(np.float32)
        rows.append((X, np.where(score > 0, 1.0, -1.0) if "hinge" in loss else score))
    alpha, eta = 10.0 ** rng.uniform(-2, 1), 10.0 ** rng.uniform(-3, 0)
    problem = cvxscreen.raso(rows, h=2, alpha=alpha, beta=alpha * eta, loss=loss, **TASKS[loss])
    return problem, loss, "float32" if kind == "float32" else "float64"


def multitask(ledger: Ledger, number: int, rng: np.random.Generator, count: int) -> None:
    """Every bound on a task at a fixed metric, and what the screened U-steps of a run decide."""
    problem, loss, dtype = tasks(number, rng)
    M = rng.standard_normal((problem.d, problem.d))
    task = problem.task(0, M @ M.T / problem.d)
    ref = reference(task)
    one(ledger, "multi-task", loss, ("dense M", dtype), ref,
        list(adversary.points(ref, rng, count)))

    rounds = 0

    def watch(metric, points, codes) -> None:
        nonlocal rounds
        rounds += 1
        if codes is None or rounds > 12:
            return
        for k, (point, said) in enumerate(zip(points, problem.split(codes), strict=True)):
            if (said >= 0).any():
                own = problem.task(k, metric)
                truth = optimum(own, np.append(point.u, point.b), point.theta)
                rows = np.flatnonzero(said >= 0)
                key = ("multi-task", loss, "U-step", "run", dtype)
                ledger.add(key, len(said), truth.states[rows, said[rows]], f"round {rounds}")

    Bcd(watch=watch, max_rounds=20)(problem, 1e-6)


# -- the linear program ------------------------------------------------------------------------


def vertex(problem: cvxscreen.Problem) -> tuple[Vector, Vector, bool]:
    """Optimum and margins of the linear program to many digits, and whether it is one.

    HiGHS's vertex says which inequalities are tight; they are solved in extended precision, and
    primal and dual feasibility and the gap are then checked.
    """
    mp.mp.dps = DIGITS
    matrix = problem.design.matrix
    dense = np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix, dtype=float)
    A = dense * problem.design.scale[:, None]
    (n, d), costs = A.shape, -problem.losses.lo
    cost = np.concatenate([np.full(2 * d, problem.lam), costs])
    found = linprog(cost, A_ub=np.hstack([-A, A, -np.eye(n)]), b_ub=-np.ones(n), bounds=(0, None),
                    method="highs-ds")
    w, alpha = found.x[:d] - found.x[d:2 * d], -found.ineqlin.marginals
    some = np.flatnonzero(w)
    inside = np.flatnonzero((alpha > 1e-12) & (alpha < costs * (1 - 1e-9)))
    rows = [[real(v) for v in row] for row in A]
    lam, c = real(problem.lam), [real(v) for v in costs]
    full = np.flatnonzero(alpha >= costs * (1 - 1e-9))
    square = len(some) == len(inside)
    x, theta = [mp.mpf(0)] * d, [mp.mpf(0)] * n
    for i in full:
        theta[i] = c[i]
    if square and len(some):
        block = [[rows[i][j] for j in some] for i in inside]
        for j, value in zip(some, solved(block, [mp.mpf(1)] * len(inside)), strict=True):
            x[j] = value
        turned = [list(column) for column in zip(*block, strict=True)]
        right = [lam * int(np.sign(w[j])) - mp.fsum(theta[i] * rows[i][j] for i in full)
                 for j in some]
        for i, value in zip(inside, solved(turned, right), strict=True):
            theta[i] = value
    t = [mp.fdot(row, x) for row in rows]
    v = [mp.fdot(column, theta) for column in zip(*rows, strict=True)]
    primal = lam * mp.fsum(abs(u) for u in x) + mp.fsum(
        k * max(1 - u, mp.mpf(0)) for k, u in zip(c, t, strict=True))
    tiny = mp.mpf(10) ** (-40)
    good = square and abs(primal - mp.fsum(theta)) <= tiny * primal
    good = good and all(-tiny <= s <= k * (1 + tiny) for s, k in zip(theta, c, strict=True))
    return x, t, bool(good and all(abs(u) <= lam * (1 + tiny) for u in v))


def linear_program(ledger: Ledger, number: int, rng: np.random.Generator, count: int) -> None:
    """Features dropped and terms decided by the two theorems, from pairs near and far."""
    n, d = int(rng.integers(15, 50)), int(rng.integers(4, 25))
    X = rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-3, 3, d) ** (number % 2)
    if number % 3 == 0:
        X *= rng.random((n, d)) < 0.4
    y = np.where(X @ (rng.standard_normal(d) / (np.abs(X).max(axis=0) + 1e-9))
                 + 0.3 * rng.standard_normal(n) > 0, 1.0, -1.0)
    y[:2] = (1.0, -1.0)
    storage = sp.csr_matrix(X) if number % 3 == 0 else X
    problem = cvxscreen.sparse_svm(storage, y, 1.0, loss="hinge", l2=0,
                                   sample_weight=rng.uniform(0.2, 3.0, n))
    problem = problem.with_(lam=float(rng.choice([0.95, 0.6, 0.3, 0.1]))
                            * cvxscreen.lambda_max(problem))
    x, t, good = vertex(problem)
    tiny = mp.mpf(10) ** (-30)
    zero, linear, dropped = (np.full(k, OPEN, dtype=np.int8) for k in (n, n, d))
    if good:
        zero = np.array([RIGHT if u > 1 + tiny else WRONG for u in t], dtype=np.int8)
        linear = np.array([RIGHT if u < 1 - tiny else WRONG for u in t], dtype=np.int8)
        dropped = np.array([WRONG if abs(u) > tiny else RIGHT for u in x], dtype=np.int8)
    w = np.array([float(u) for u in x])
    key = ("LP-SVM", "hinge", "lp", "csr" if number % 3 == 0 else "dense", "float64")
    near = cvxscreen.solve(problem, tol=1e-9)
    pairs, costs = [(near.x, near.alpha)], -problem.losses.lo
    for _ in range(4 * count):
        size = 10.0 ** -rng.uniform(0, 14)
        a = near.alpha + size * costs * rng.standard_normal(n)
        pairs.append((w + size * np.abs(w).max(initial=1e-3) * rng.standard_normal(d),
                      np.clip(a, 0.0, costs)))
    for u, alpha in pairs:
        found = cvxscreen.screen(problem, reference=cvxscreen.reference_point(problem, u, -alpha))
        said = [states[mask] for states, mask in
                ((zero, found.zero), (linear, found.linear), (dropped, found.dropped))]
        ledger.add(key, 2 * n + d, np.concatenate(said))


