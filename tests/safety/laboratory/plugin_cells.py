"""Cells through CVXPY: planted optima under boxes, equalities, norms, matrices and budgets.

Slopes and multipliers are chosen first, the linear term follows without rounding. Checked are what
``cvxscreen.reduce`` fixes, term by term, and what ``method="screen"`` calls optimal, in both modes.
What ``cvxscreen.leave_one_out`` says of a problem's rows is held against exact optima without them.
"""

from __future__ import annotations

import warnings

import cvxpy as cp
import numpy as np
from change_cells import LEFT_OUT, inside
from checks import Ledger
from terms import OPEN, RIGHT, WRONG
from vector_cells import reference

import cvxscreen
from cvxscreen import cvxpy_plugin
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise
from cvxscreen.data_changes.reweight import weighted
from cvxscreen.designs.rows import Rows

cvxpy_plugin.register()

LOSSES = ("hinge", "absolute", "squared_hinge", "huber")
SIDES = ("none", "box", "half-spaces", "equality", "second-order", "semidefinite", "cvar",
         "sum_largest", "hinges in a budget")
CLOSE = 1e-9
"""Relative distance from a kink below which a planted margin, in floats, says nothing."""
VALUE, POINT = 2e-6, 1e-5
"""What "optimal" promises at the default tolerance, relative to 1 and the objective, and about the
variables (a relative gap of 1e-10 or so is usual, of a cone solver 1e-8)."""


def terms(loss: str, t: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Targets and slopes such that the margins `t` sit on pieces, at kinks and close to them."""
    n = len(t)
    away = rng.choice([0.0, 2.0**-20, 2.0**-6, 0.5, 2.0], n)
    side = rng.choice([-1.0, 0.0, 1.0], n, p=[0.4, 0.2, 0.4])
    if loss == "hinge":  # (r - t)_+
        theta = np.where(side < 0, -1.0, np.where(side > 0, 0.0, -rng.integers(0, 5, n) / 4.0))
        return t - side * away * (side != 0), theta
    if loss == "absolute":
        theta = np.where(side == 0, rng.integers(-4, 5, n) / 4.0, side)
        return t - side * away * (side != 0), theta
    if loss == "squared_hinge":  # 1/2 (r - t)_+^2
        return np.where(side > 0, t - away, t + away), np.where(side > 0, 0.0, -away)
    z = side * away  # 1/2 z^2 inside [-1, 1]
    return t - z, np.clip(z, -1.0, 1.0)


def cost(loss: str, z: cp.Expression) -> cp.Expression:
    """The loss of ``z = t - r`` as users write it."""
    if loss == "hinge":
        return cp.sum(cp.pos(-z))
    if loss == "absolute":
        return cp.norm1(z)
    if loss == "squared_hinge":
        return 0.5 * cp.sum_squares(cp.pos(-z))
    return 0.5 * cp.sum(cp.huber(z, 1.0))


def beside(side: str, w: cp.Variable, x: np.ndarray, rng: np.random.Generator
           ) -> tuple[list[cp.Constraint], np.ndarray]:
    """Constraints that `x` meets, some with equality, and ``F' mu`` of their multipliers."""
    d = len(x)
    mu = rng.integers(0, 3, d) / 2.0
    if side == "box":
        return [w <= np.where(mu > 0, x, x + 0.5), w >= x - 1.0], -mu
    if side == "half-spaces":
        G = rng.integers(-2, 3, (2, d)).astype(float)
        m = np.array([0.5, 0.0])
        return [G @ w <= G @ x + np.array([0.0, 1.0])], -G.T @ m
    if side == "equality":
        g = rng.integers(-2, 3, d).astype(float)
        return [g @ w == float(g @ x)], 0.75 * g
    if side == "second-order":  # a slack (5, 3, 4) on the boundary, its multiplier (5, -3, -4) / 8
        F, g = rng.integers(-2, 3, (2, d)).astype(float), rng.integers(-1, 2, d).astype(float)
        f, h = np.array([3.0, 4.0]) - F @ x, 5.0 - float(g @ x)
        return [cp.norm(F @ w + f) <= g @ w + h], (5.0 * g - F.T @ np.array([3.0, 4.0])) / 8.0
    if side == "semidefinite":  # slack diag(1, 0), multiplier diag(0, 1/2)
        F = rng.integers(-2, 3, (d, 2, 2)).astype(float)
        F = F + F.transpose(0, 2, 1)
        constant = np.diag([1.0, 0.0]) - np.einsum("j,jab->ab", x, F)
        return [constant + sum(w[j] * F[j] for j in range(d)) >> 0], 0.5 * F[:, 1, 1]
    if side in ("cvar", "sum_largest", "hinges in a budget"):
        return budget(side, w, x, rng)
    return [], np.zeros(d)


def budget(side: str, w: cp.Variable, x: np.ndarray, rng: np.random.Generator
           ) -> tuple[list[cp.Constraint], np.ndarray]:
    """Losses that `x` spends wholly, its multiplier 1/2, or with something left, its multiplier 0.

    Of the terms at the quantile, or at the kink, the subgradient takes a part.
    """
    n, some = int(rng.integers(20, 120)), int(rng.integers(1, 5))
    A = rng.integers(-2, 3, (n, len(x))).astype(float)
    z = A @ x
    left = float(rng.choice([0.0, 0.0, 0.5]))
    slopes = np.zeros(n)
    if side == "hinges in a budget":
        kink = float(np.quantile(z, 0.8, method="lower"))
        slopes[z > kink] = 1.0
        slopes[z == kink] = 0.5
        spent, cost = float(np.maximum(z - kink, 0.0).sum()), cp.sum(cp.pos(A @ w - kink))
    else:
        few = 4 * some
        at = np.sort(z)[-few]
        above = z > at
        slopes[above] = 1.0
        slopes[z == at] = (few - above.sum()) / (z == at).sum()
        spent = float(np.sort(z)[-few:].sum())
        cost = cp.sum_largest(A @ w, few)
        if side == "cvar":
            cost, slopes, spent = cp.cvar(A @ w, 1.0 - few / n), slopes / few, spent / few
    mu = 0.5 if left == 0.0 else 0.0
    return [cost <= spent + left], -mu * (A.T @ slopes)


def states(problem: Problem, x: np.ndarray) -> np.ndarray:
    """RIGHT, WRONG or OPEN of every piece of every term at the planted optimum, in floats."""
    t, f = problem.design.forward(x), problem.losses
    size = CLOSE * (np.abs(t) + np.abs(f.b) + f.e + 1.0)
    low, high = f.piece_within(t - size, t - size), f.piece_within(t + size, t + size)
    table = np.full((problem.n, 5), WRONG, dtype=np.int8)
    rows = np.arange(problem.n)
    # At a kink without curvature a decision for either side is wrong; next to it nobody can say.
    at = (f.kink_distance(t) == 0.0) & (f.q == 0.0)
    apart = low != high
    for codes in (low, high):
        there = codes >= 0
        table[rows[there], codes[there]] = np.where(apart & ~at, OPEN, RIGHT)[there]
    table[at] = WRONG
    return table


def plugin(ledger: Ledger, number: int, rng: np.random.Generator, count: int) -> None:
    """One problem after another: `reduce`, and both modes."""
    for turn in range(count):
        loss, side = LOSSES[(number + turn) % 4], SIDES[(number // 2 + turn) % len(SIDES)]
        n, d = int(rng.integers(15, 80)), int(rng.integers(1, 5))
        A = rng.integers(-4, 5, (n, d)) * 2.0 ** rng.integers(-2, 3)
        x = rng.integers(-4, 5, d) / 4.0
        r, theta = terms(loss, A @ x, rng)
        w = cp.Variable(d)
        constraints, held = beside(side, w, x, rng)
        q = held - x - A.T @ theta
        prob = cp.Problem(
            cp.Minimize(0.5 * cp.sum_squares(w) + q @ w + cost(loss, A @ w - r)), constraints)
        w.value = x
        value = float(prob.objective.value)
        w.value = None
        key = ("plugin", loss, "reduce", side, "float64")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # CVXPY's own, about inaccurate solutions and the like
            fixings(ledger, key, prob, x, value)
            for mode in ("safe", "certified"):
                prob.solve(method="screen", mode=mode, always=True)
                report = prob.solver_stats.extra_stats["cvxscreen"]
                if not report.recognised:  # CVXPY's default solver need not be as accurate
                    continue
                ledger.add((*key[:2], f"{mode} mode", *key[3:]), 2, answers(prob, w, x, value),
                           f"status {prob.status}, value {prob.value} of {value}")


def answers(prob: cp.Problem, w: cp.Variable, x: np.ndarray, value: float) -> np.ndarray:
    """Whether an "optimal" is one: its value and its variables (unique: a squared norm)."""
    if prob.status in ("infeasible", "unbounded"):
        return np.array([WRONG], dtype=np.int8)
    if prob.status != "optimal":
        return np.zeros(0, dtype=np.int8)
    size = 1.0 + abs(value)
    away = float(np.linalg.norm(w.value - x))
    right = (abs(prob.value - value) <= VALUE * size, 0.5 * away**2 <= POINT * size)
    return np.array([RIGHT if holds else WRONG for holds in right], dtype=np.int8)


def fixings(ledger: Ledger, key: tuple[str, str, str, str, str], prob: cp.Problem, x: np.ndarray,
            value: float) -> None:
    """The terms that `reduce` fixes, where the recognised problem has the coordinates of `prob`."""
    try:
        reduced = cvxscreen.reduce(prob)
    except cvxscreen.CvxscreenError:
        return
    try:
        full = recognise(prob).problem
    except cvxscreen.NotScreenable:
        return
    codes = reduced.screening.codes
    same = full.d == len(x) and len(codes) == full.n
    if not same or abs(full.primal(x) - value) > 1e-9 * (1.0 + abs(value)):
        return
    said = np.flatnonzero(codes >= 0)
    ledger.add(key, full.n, states(full, x)[said, codes[said]], "terms")
    reduced.problem.solve(solver="CLARABEL")
    if reduced.problem.status == "optimal" and reduced.restore().ok:
        away = float(np.linalg.norm(prob.variables()[0].value - x))
        right = abs(prob.value - value) <= VALUE * (1.0 + abs(value)) and (
            0.5 * away**2 <= POINT * (1.0 + abs(value)))
        ledger.add(key, 1, np.array([RIGHT if right else WRONG], dtype=np.int8), "restored")


ROWS = {
    "hinge": (0.0, -1.0, 0.0), "squared_hinge": (1.0, -np.inf, 0.0), "absolute": (0.0, -1.0, 1.0),
    "huber": (1.0, -1.0, 1.0), "quantile": (0.0, -0.25, 0.75),
}
"""q, lo and hi of ``c f(t - r)``, f as `row_loss` writes it."""


def row_loss(loss: str, z: cp.Expression, c: np.ndarray, spelling: int
             ) -> tuple[cp.Expression, list[cp.Constraint]]:
    """``sum_i c_i f(z_i)`` as users write it, and its constraints; z is ``A @ w - r``."""
    if loss == "hinge" and spelling == 2:
        slack = cp.Variable(len(c))
        return c @ slack, [slack >= 0.0, z >= -slack]
    if loss == "hinge":
        return (c @ cp.pos(-z) if spelling else cp.sum(cp.multiply(c, cp.pos(-z)))), []
    if loss == "squared_hinge":
        return 0.5 * cp.sum(cp.multiply(c, cp.square(cp.pos(-z)))), []
    if loss == "absolute":
        return (c @ cp.abs(z) if spelling else cp.norm1(cp.multiply(c, z))), []
    if loss == "huber":
        return 0.5 * cp.sum(cp.multiply(c, cp.huber(z, 1.0))), []
    return cp.sum(cp.multiply(c, 0.25 * cp.neg(z) + 0.75 * cp.pos(z))), []


def rows_left_out(ledger: Ledger, number: int, rng: np.random.Generator, count: int) -> None:
    """``cvxscreen.leave_one_out(prob)``: every interval in the order and the sense of the rows."""
    for turn in range(max(1, count // 2)):
        loss = tuple(ROWS)[(number + turn) % len(ROWS)]
        n, d = int(rng.integers(8, 40)), int(rng.integers(2, 5))
        # Rows with one number or none are read as terms of single coefficients in some spellings.
        A = rng.integers(1, 5, (n, d)) * rng.choice([-1.0, 1.0], (n, d)) * 2.0 ** -rng.integers(3)
        A[rng.integers(0, n, n // 4)] = A[rng.integers(0, n, n // 4)]
        r, ridge = rng.integers(-6, 7, n) / 4.0, 2.0 ** rng.integers(-2, 4)
        c = np.full(n, 1.0) if rng.integers(0, 2) else 2.0 ** rng.integers(-3, 3, n)
        w, spelling = cp.Variable(d), int(rng.integers(0, 3))
        cost, constraints = row_loss(loss, A @ w - r, c, spelling)
        prob = cp.Problem(cp.Minimize(0.5 * ridge * cp.sum_squares(w) + cost), constraints)
        q, lo, hi = ROWS[loss]
        table = Losses(r, 0.0 * c, q / c, lo * c, hi * c)
        plain = Problem(Rows(A), table, Quadratic(np.full(d, ridge)), np.zeros(d), kind="rows")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # CVXPY's own
            prob.solve(**({"method": "screen"} if rng.integers(0, 2) else {"solver": "CLARABEL"}))
            found = cvxscreen.leave_one_out(prob, refit=bool(rng.integers(0, 2)), tol=1e-4)
        key = ("rows of a CVXPY problem", loss, "leave one out", f"spelling {spelling}", "float64")
        hinges = hi == 0.0
        assert found.classification == hinges
        assert len(found.low) == n
        for i in rng.choice(n, min(LEFT_OUT, n), replace=False):
            ref = reference(weighted(plain, (np.arange(n) != i).astype(float)))
            # Margins are 1 - (r - t), residuals t - r, or c (t - r) where that is what is written;
            # the sums are rounded, the powers of 2 are not.
            shift = r[i] - 1.0 if hinges else r[i]
            size = c[i] if loss == "absolute" and spelling == 0 else 1.0
            slack = 4.0 * np.spacing(np.abs(r[i]) + 1.0 + np.abs(ref.margins[i]))
            ends = np.full((2, n), [[-np.inf], [np.inf]])
            ends[:, i] = found.low[i] / size + shift - slack, found.high[i] / size + shift + slack
            ledger.add(key, 1, inside(ref, *ends)[[i]], f"row {i}")
            sign = np.sign(ref.margins[i] - shift)
            if found.decided[i] and hinges and abs(ref.margins[i] - shift) > slack:
                said = 1.0 if found.low[i] > 0.0 else -1.0
                wrong = said != sign and ref.gap < 1e-20
                ledger.add(key, 1, np.array([WRONG if wrong else RIGHT], np.int8), f"class {i}")
