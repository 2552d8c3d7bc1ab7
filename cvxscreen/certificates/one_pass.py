"""Certificates of one pass, with no array over the terms: data in chunks, and triplets.

*Data in chunks* (`certify_chunks`). The dual point is the slope of every loss at x itself, except
for a few terms whose slopes are listed. Losses, slopes and Fenchel-Young terms are evaluated from
the pieces, by formulas that serve certificates only; with the solver it shares the storage of the
rows and nothing else. The sums and what rounding can hide in them are those of
`cvxscreen.certificates.certificate`, with one difference: no margin is recomputed in extended
precision.

*Metric learning* (`certify_metric`). The dual point is the slope of every loss at x itself, so what
is left of the gap is ``lam/2 |M - M_theta|^2 + <M, Gamma>`` and the rounding. Losses are evaluated
from their pieces by a loop of this module's own, the regulariser's part by
`cvxscreen.certificates.certificate`; with the solver and the screening it shares the storage of the
pairs and nothing else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.compiled import SUMS, compiled
from cvxscreen._support.immutable import Immutable
from cvxscreen._support.validation import array, one_of, positive
from cvxscreen.certificates.certificate import (
    EPS,
    Certificate,
    columns,
    endless_above,
    gap_above,
    penalty_part,
    refused,
    steepness,
    taken_up,
    value_above,
    verdict,
)
from cvxscreen.core.problem import Problem
from cvxscreen.core.streamed import Slopes, UnitLoss, in_chunks
from cvxscreen.designs.chunks import Chunk, ListedValues
from cvxscreen.designs.comparisons import Pairs, Products
from cvxscreen.errors import InvalidInput
from cvxscreen.out_of_core.streams import Task

Array = NDArray[np.float64]


class Sums(Immutable):
    """What one pass adds up.

    Attributes
    ----------
    value, gap : float
        Of the losses and, from above, of their Fenchel-Young terms.
    load : float
        ``sum |theta_i| |a_i|``.
    free_load : float
        ``sum |theta_i a_i,free|``.
    outside : int
        Listed slopes outside their box, or none.
    At_theta : array, shape (d,)
        ``A' theta``.
    takers : list of arrays, shape (4, k)
        Of the listed terms: ``a_i,free``, room above and below theta, how fast the gap grows with
        a move of it (without what depends on the distance), and the size of the row.
    """

    value: float
    gap: float
    load: float
    free_load: float
    outside: int
    At_theta: Array
    takers: list[Array]

    def __add__(self, other: Sums) -> Sums:
        return Sums(*(mine + getattr(other, name) for name, mine in vars(self).items()))


def slope_at(t: Any, b: Any, e: Any, q: Any, lo: Any, hi: Any) -> Any:
    """A slope of each loss at `t`, from its pieces; 0 at a kink."""
    curve = np.where(q > 0, q, 1.0)
    right, left = t - b - e, t - b + e
    rise = np.where(q > 0, np.minimum(right / curve, hi), hi)
    fall = np.where(q > 0, np.maximum(left / curve, lo), lo)
    return np.where(right > 0, rise, np.where(left < 0, fall, 0.0))


class Recompute(Task, Immutable):
    """The task.

    Parameters
    ----------
    x : array, shape (d,)
    unit, factor
        Of the loss terms.
    intercept : bool
        Whether the last coordinate is unpenalised, its column the factors of the rows.
    margin_rounding : float
        Error of a margin over the size of its row.
    """

    x: Array
    unit: UnitLoss
    factor: float
    intercept: bool
    margin_rounding: float

    def __call__(
        self, block: Any, start: int, scale: Any, target: Any, weight: Any, listed: Any
    ) -> Sums:
        """The sums of one chunk."""
        chunk = Chunk.of(block, scale, self.intercept)
        b, e, q, lo, hi = f = columns(self.unit.rows(len(chunk), self.factor, target, weight))
        t = chunk.margins(self.x)
        sizes = np.sqrt(chunk.squares(np.ones(chunk.width)))
        theta = slope_at(t, *f)
        at, known = listed
        theta[at] = known
        low, high = lo[at], hi[at]
        outside = int((~((known >= low) & (known <= high))).sum())
        values = value_above(t, b, e, q, lo, hi, steepness(q))
        gap = gap_above(t, theta, self.margin_rounding * sizes, values, *f)
        gap = gap + endless_above(values, self.margin_rounding * sizes, *f[2:])
        takers, free_load = np.zeros((5, 0)), 0.0
        if self.intercept:
            sign = np.ones(len(at)) if chunk.scale is None else chunk.scale[at]
            free_load = float(
                np.abs(theta).sum() if chunk.scale is None else np.abs(theta) @ np.abs(chunk.scale)
            )
            rate = np.abs(t[at]) + np.abs(b[at]) + e[at] + q[at] * np.abs(known)
            takers = np.array([sign, high - known, known - low, rate, sizes[at]])
        return Sums(
            float(values.sum()), float(gap.sum()), float(np.abs(theta) @ sizes), free_load,
            outside, chunk.adjoint(theta), [takers],
        )


def certify_chunks(
    problem: Problem, x: ArrayLike, theta: Any, *, tol: float = 1e-6
) -> Certificate:
    """Recompute the optimality of ``(x, theta)`` on all of `problem`, chunk by chunk.

    Parameters
    ----------
    problem : Problem
        Over data in chunks, with a diagonal quadratic term and at most an intercept unpenalised.
    x : array_like, shape (d,)
    theta : Slopes, or array_like, shape (n,)
    tol : float
        Relative gap asked for.

    Raises
    ------
    InvalidInput
        For any other problem, or wrong shapes.
    """
    x = np.array(x, dtype=np.float64)
    (design, terms), quadratic = in_chunks(problem), problem.quadratic
    free = problem.free_index
    known = [problem.d - 1] if design.intercept else []
    if quadratic.matrix is not None or problem.side is not None or free.tolist() != known:
        raise InvalidInput(
            "`problem`: over data in chunks a diagonal quadratic term without side constraints is "
            "needed, with no coordinate unpenalised but an intercept."
        )
    if x.shape != (problem.d,) or np.shape(theta) != (problem.n,):
        raise InvalidInput(
            f"`x` {x.shape} and `theta` {np.shape(theta)} must have shapes ({problem.d},) and "
            f"({problem.n},)."
        )
    if isinstance(theta, Slopes) and np.array_equal(theta.x, x):
        listed = theta.listed
    else:
        listed = ListedValues(np.arange(problem.n), np.asarray(theta, dtype=np.float64))
    if not (np.isfinite(x).all() and np.isfinite(listed.values).all()):
        return refused("the point holds NaN or infinity", tol)
    margin_rounding = design.forward_factor * float(np.linalg.norm(x))
    task = Recompute(x, terms.unit, terms.factor, design.intercept, margin_rounding)
    found: Sums = design.engine.run(
        task, design.source, (design.scale, terms.target, terms.weight, listed)
    )
    primal = found.value + quadratic.inner(0.5 * quadratic.apply(x) + problem.linear, x)
    primal += problem.constant + (0.0 if problem.penalty is None else problem.penalty.value(x))
    if found.outside:
        return refused("a dual variable lies outside its box", tol, primal)
    dual_residual = found.At_theta + problem.linear
    root = float(np.sqrt(quadratic.floor))
    adjoint_error = found.load / root * design.adjoint_factor * (1.0 + problem.n * EPS)
    side_gap = side_error = x_error = 0.0
    x_theta = x.copy()
    if problem.penalty is None:
        bent = ~quadratic.free
        x_theta[bent] = -dual_residual[bent] / quadratic.diagonal[bent]
    else:
        near = penalty_part(problem, x, -dual_residual)
        if near.outside:
            return refused(near.outside, tol, primal)
        x_theta, side_gap, x_error = near.x_theta, near.remainder, near.x_error
        side_error = x_error * float(np.sqrt(quadratic.diagonal.max())) + near.dual_error / root
    distance = quadratic.norm(x - x_theta) + adjoint_error + problem.drift
    distance += 8 * EPS * quadratic.norm(x_theta) + side_error
    distance *= 1.0 + (problem.d + 8) * EPS  # the norm of the difference rounds, and so do sums
    imbalance = 0.0
    if design.intercept:
        away = abs(float(dual_residual[free[0]])) + problem.imbalance
        away += design.adjoint_factor * found.free_load * (1.0 + problem.n * EPS)
        if away > 0.0:  # one listed term takes it up
            e, rise, fall, rate, sizes = np.concatenate(found.takers, axis=1)
            rate = rate + sizes * distance / root
            imbalance = taken_up(e, rise, fall, rate, away * (1.0 + 1e-6))
    gap = found.gap * (1 + problem.n * EPS) + 0.5 * distance**2 + side_gap + imbalance
    return verdict(gap, primal, tol, imbalance)


# -- metric learning -------------------------------------------------------------------------------

def certify_metric(problem: Problem, x: ArrayLike, *, tol: float = 1e-6) -> Certificate:
    """Recompute the optimality of the metric `x` on all of `problem`, term by term.

    Parameters
    ----------
    problem : Problem
        Of metric learning over a product set, one threshold and weight for all terms.
    x : array_like, shape (d * d,) or (d,)
    tol : float
        Relative gap asked for.

    Raises
    ------
    InvalidInput
        For any other problem, or a wrong shape.
    """
    one_of("problem", problem, Problem, "a problem from `rtlm` is needed")
    x, tol = array("x", x), positive("tol", tol)
    design, f = problem.design, problem.losses
    if not (isinstance(design, Pairs) and isinstance(design.terms, Products)):
        raise InvalidInput("`problem` is not metric learning over a product set of triplets.")
    if x.shape != (problem.d,):
        raise InvalidInput(f"`x` has shape {x.shape}; ({problem.d},) is needed.")
    table, terms, lam = design.table, design.terms, float(problem.quadratic.diagonal[0])
    b, weight = float(f.b[0]), -float(f.lo[0])
    width = float(f.q[0]) * weight
    if not np.isfinite(x).all():
        return refused("the point holds NaN or infinity", tol)
    q, work = table.values(x), np.empty((2, terms.widest))
    omega, load = np.zeros(len(table) + 1), np.zeros(len(table) + 1)
    value = judge_products(terms.arrays, q, b, width, weight, omega, load, work)
    primal = float(value) + float(problem.linear @ x) + 0.5 * lam * float(x @ x)
    primal += problem.constant
    dual_residual = table.adjoint(omega).ravel() + problem.linear
    penalty = penalty_part(problem, x, -dual_residual)
    if penalty.outside:
        return refused(penalty.outside, tol, primal)

    # Margins are off by e: on the curve a term is left with w e^2 / g, at a kink with w e.
    size = float(np.linalg.norm(x)) + penalty.x_error
    e = 2.0 * table.value_factor * size * table.most[1] + 8 * EPS * (abs(b) + width)
    e += 2.0 * (penalty.x_error + 4 * EPS * size) * table.most[0]
    if width > 64 * e:
        fy = weight * 2.0 * e * e / width * len(terms)
    else:
        fy = weight * 2.0 * e * len(terms)
    adjoint_error = table.adjoint_factor(terms.load) * float(load @ table.spread)
    adjoint_error += 8 * EPS * float(np.linalg.norm(dual_residual)) + 4 * EPS * float(
        np.linalg.norm(problem.linear)
    )
    distance = np.sqrt(lam) * (float(np.linalg.norm(x - penalty.x_theta)) + penalty.x_error)
    distance += (adjoint_error + penalty.dual_error) / np.sqrt(lam) + problem.drift
    gap = (0.5 * distance * distance + penalty.remainder + fy) * (1 + 64 * EPS)
    return verdict(gap, primal, tol)


@compiled(fastmath=SUMS)
def judge_products(terms, q, b, width, weight, omega, load, work):  # type: ignore[no-untyped-def]
    """Value of the losses of a product set; adds slopes to `omega` and their sizes to `load`.

    Both by pair. `work` has shape (2, longest far list).
    """
    near_ptr, near, far_ptr, far, lo, hi = terms
    values, slopes = work[0], work[1]
    value = 0.0
    # A kink (width 0) gets the whole weight as its slope wherever the loss is positive.
    sharp = 1e300 if width == 0.0 else 1.0 / width
    for block in range(near_ptr.size - 1):
        mine = far[far_ptr[block]:far_ptr[block + 1]]
        least, most, total, whole = np.inf, -np.inf, 0.0, 0.0
        for j in range(mine.size):
            values[j] = q[mine[j]]
            slopes[j] = 0.0
            least, most = min(least, values[j]), max(most, values[j])
            total += values[j]
        for r in range(near_ptr[block], near_ptr[block + 1]):
            start, count = b + q[near[r]], hi[r] - lo[r]
            if start <= least:  # no loss in the whole row
                continue
            line, parabola, row = 0.0, 0.0, 0.0
            if start > most and start - most >= width and count == mine.size:  # a line
                line = count * (start - width) - total
                parabola, row = count * width, count * 1.0
                whole += 1.0
            else:
                away, back = values[lo[r]:hi[r]], slopes[lo[r]:hi[r]]
                for j in range(away.size):
                    u = max(start - away[j], 0.0)
                    inner = min(u, width)
                    slope = min(u * sharp, 1.0)
                    line += u - inner
                    parabola += inner * slope
                    back[j] += slope
                    row += slope
            value += line + 0.5 * parabola
            omega[near[r]] += weight * row
            load[near[r]] += weight * row
        for j in range(mine.size):
            slope = slopes[j] + whole
            omega[mine[j]] -= weight * slope
            load[mine[j]] += weight * slope
    return weight * value
