"""Cells whose optimum is on the boundary of the bounds: a radius hardly too small decides wrongly.

All terms stay on linear pieces between the reference and the optimum, so that the inequalities
behind the bounds hold with equality, and the optimum's margins sit at kinks, or an ulp or a few
beside them: an interval that ends a little early leaves such a kink out and decides.

* vectors: the reference is exact at another C, ``w*(s C) = s w*(C)`` (DVI in both forms and the
  others of `PARAMETER_CHANGE`);
* metrics: points on the ray through the optimum (DGB), an exact reference at another lambda (RRPB),
  and slopes that differ from the optimal ones at kinks only (CDGB).
"""

from __future__ import annotations

from dataclasses import replace

import mpmath as mp
import numpy as np
from active_set import judged, optimum
from checks import Ledger, verdict
from linear import apply
from metric_cells import Spectral
from references import Model, Reference
from terms import real

import cvxscreen
from cvxscreen.bounds import BOUNDS, PAIRS, PARAMETER_CHANGE, RULES, available, cut, named
from cvxscreen.core.duality import Point, reference_point
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.screening.reduction import judge

LINEAR = ("hinge", "absolute", "quantile", "epsilon")
ENDS = {"hinge": (-1.0, 0.0), "absolute": (-1.0, 1.0), "quantile": (-0.25, 0.75),
        "epsilon": (-1.0, 1.0)}
FACTORS = (0.5, 0.75, 1.5, 2.0)


def beside(t: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Distances from a kink: none, an ulp, or a few."""
    ulp = np.spacing(np.maximum(np.abs(t), 2.0**-30))
    return np.choose(rng.integers(0, 4, len(t)), [0.0 * ulp, 0.0 * ulp, ulp, 4.0 * ulp])


def along_one_axis(rng: np.random.Generator, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose sum, with weights equal in pairs, points along the first axis; and the pairs."""
    rows = rng.integers(-8, 9, (n, d)) * 2.0 ** rng.integers(-3, 4, (n, 1))
    rows[::2, 1:] = 0.0  # half of them are parallel to the optimum
    mirrored = rows * np.r_[1.0, -np.ones(d - 1)]
    return np.vstack([rows, mirrored]), np.tile(np.arange(n), 2)


def at_kinks(loss: str, rng: np.random.Generator, n: int, d: int, s: float
             ) -> tuple[Problem, np.ndarray, np.ndarray]:
    """A problem at C = 1, its optimum and slopes; at C = s margins sit at kinks."""
    A, pair = along_one_axis(rng, n, d)
    lo, hi = ENDS[loss]
    ends = [lo, hi] if loss in ("absolute", "quantile") else [lo, 0.0, hi]
    theta = rng.choice(sorted(set(ends)), n)[pair]
    x = -A.T @ theta
    before, after = A @ x, s * (A @ x)
    away = beside(after, rng)
    e = 2.0 ** np.ceil(np.log2(np.abs(after - before).max() + 1.0)) if loss == "epsilon" else 0.0
    low, high = np.minimum(before, after), np.maximum(before, after)
    # The kink that the margin may not pass is where the margin ends at C = s, or beside it.
    above = np.where(after > before, after + away, high + 0.25)
    below = np.where(after < before, after - away, low - 0.25)
    b = np.where(theta == lo, above + e, below - e)
    if hi == 0.0:
        b = np.where(theta == lo, above, below)
    elif e > 0.0:
        b = np.where(theta == 0.0, np.where(after > before, above - e, below + e), b)
    problem = Problem(Rows(A), Losses(b, e, 0.0, lo, hi), Quadratic(np.ones(d)), np.zeros(d),
                      kind="planted")
    return problem, x, theta


def at_another_C(
    ledger: Ledger, number: int, rng: np.random.Generator, count: int
) -> None:
    """Every bound of a reference at another C, exact but for rounding."""
    loss = LINEAR[number % 4]
    s = FACTORS[(number // 4) % 4]
    problem, x, theta = at_kinks(loss, rng, int(rng.integers(6, 16)), 1 + number % 3, s)
    here = problem.with_(C=s * problem.C)
    ref = optimum(here, s * x, s * theta)
    names = (f"attained, d = {problem.d}", "float64")
    noise = [0.0, *(10.0 ** -rng.uniform(1, 16, count))]
    for blur in noise:
        near = x * (1.0 + blur * rng.standard_normal(problem.d)), theta
        for point in (reference_point(problem, *near), reference_point(problem, near[0])):
            for name in PARAMETER_CHANGE:
                key = ("attained", loss, name, *names)
                verdict(ledger, key, ref, judge(here, BOUNDS[name](here, point)), f"s = {s}")


# -- metrics -------------------------------------------------------------------------------------


def metric_at_kinks(number: int, rng: np.random.Generator, side: float
                    ) -> tuple[Problem, Reference]:
    """A hinge problem whose optimum is known; towards `side` on its ray no term passes a kink."""
    d = 1 + number % 2
    y = np.repeat(np.arange(2), 5)
    X = rng.integers(-8, 9, (10, d)) / 4.0 + 3.0 * y[:, None]
    X[:, 1:] = 0.0
    T = cvxscreen.triplets(X, y, k=(1, 3))
    diagonal = bool((number // 2) % 2)
    base = cvxscreen.rtlm(X, T, 4.0, gamma=0.0, diagonal=diagonal)
    model = Model(base) if diagonal else Spectral(base)
    low = rng.random(base.n) < 0.7
    theta = np.where(low, base.losses.lo, 0.0)
    v = model.pull([real(u) for u in theta])
    x = [max(u, mp.mpf(0)) / k for u, k in zip(v, model.diagonal, strict=True)]
    t = np.array([float(u) for u in apply(model.rows, x)])
    tie = (np.sign(t) * side < 0) == low
    tie &= (t != 0.0) & (rng.random(base.n) < 0.5)
    # Any other kink is further than all slopes of the tied terms can move a margin.
    size = base.norms * np.sqrt(base.lam)
    far = np.abs(t) + 0.25 + size * float(size[tie].sum()) / base.lam
    away = np.where(tie, beside(t, rng), far)
    losses = Losses(np.where(low, t + away, t - away), 0.0, 0.0, base.losses.lo, 0.0)
    problem = replace(base, losses=losses)
    model = Model(problem) if diagonal else Spectral(problem)
    t = apply(model.rows, x)
    return problem, judged(model, x, t, *model.gap(x, t, [real(u) for u in theta]))


def on_spheres(ledger: Ledger, number: int, rng: np.random.Generator, count: int) -> None:
    """Every sphere under every rule, from both sides of the optimum and from another lambda."""
    side = float(rng.choice([-1.0, 1.0]))
    problem, ref = metric_at_kinks(number, rng, side)
    if not ref.x.any():
        return
    kind = "diagonal" if (number // 2) % 2 else "full"
    steps = 10.0 ** -rng.uniform(0, 14, count)
    found: list[Point] = [
        reference_point(problem, (1.0 + sign * side * step) * ref.x)
        for step in steps for sign in (1.0, -1.0)
    ]
    for factor in (2.0, 1.25, 1.0 + 1e-9):
        other = problem.with_(lam=problem.lam * factor ** -side)
        found.append(reference_point(other, factor**side * ref.x))
    for point in found:
        own = point.problem is problem
        for name in available(problem):
            if name in PAIRS or not (own or name in ("pgb", "gb", "dgb", "cdgb", "rrpb")):
                continue
            region = named(name)(problem, point)
            for rule in RULES:
                said = judge(problem, cut(problem, region, rule))
                key = ("attained metric", "hinge", f"{name}, {rule}", kind, "float64")
                verdict(ledger, key, ref, said)
