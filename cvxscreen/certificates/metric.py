"""A certificate for metric learning that needs no array over the terms.

The dual point is the slope of every loss at x itself, so what is left of the gap is ``lam/2 |M -
M_theta|^2 + <M, Gamma>`` and the rounding. Losses are evaluated from their pieces by a loop of this
module's own, the regulariser's part by `cvxscreen.certificates.certificate`; with the solver and
the screening it shares the storage of the pairs and nothing else.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.compiled import SUMS, compiled
from cvxscreen._support.validation import array, one_of, positive
from cvxscreen.certificates.certificate import (
    EPS,
    Certificate,
    penalty_part,
    refused,
    verdict,
)
from cvxscreen.core.problem import Problem
from cvxscreen.designs.comparisons import Pairs
from cvxscreen.designs.term_sets import Products
from cvxscreen.errors import InvalidInput

Array = NDArray[np.float64]


def certify_metric(problem: Problem, x: ArrayLike, *, tol: float = 1e-6) -> Certificate:
    """Recompute the optimality of the metric `x` on all of `problem`, term by term.

    Parameters
    ----------
    problem : Problem
        Of metric learning over a product set, one threshold and weight for all terms.
    x : array_like, shape (d * d,) or (d,)
    tol : float
        Relative gap asked for.

    Returns
    -------
    Certificate

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
