"""What an unbalanced residual costs where norms of residuals bound every better point.

Let the objective hold ``sum_h q_h t_h`` over bounds t_h of norms, ``|N_h y + b_h| <= a_h t_h``, and
nothing else that can be negative. Then a y that is no worse than x has, with ``c_h = q_h / a_h``,

::

    sum_h c_h |N_h y + b_h|  <=  sum_h q_h y_h  <=  B = P(x) - constant,

and what r has at other coordinates is ``N' u`` with ``u = N D^-1 G^-1 D^-1 r``, D the lengths of
the columns of N and ``G = D^-1 N' N D^-1``:

::

    <r, x - y> = <u, (N x + b) - (N y + b)>
               <= max_h |N_h D^-1|_F / c_h  |D^-1 r| / lambda_min(G)  (sum_h c_h |N_h x + b_h| + B).

At the bounds themselves ``r_h (x_h - y_h) <= max_h |r_h| / q_h (sum_h q_h |x_h| + B)``. Constraints
only make the set of y smaller.

A linear cost l of the other coordinates is ``-N' v``, v as u above. As ``<v, N y + b>`` is at most
``kappa sum_h c_h |N_h y + b_h|``, with ``kappa = max_h |v_h| / c_h``, both sums are then at most
``(B - <v, b>) / (1 - kappa)`` where ``kappa < 1``.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen._support.rounding import UNIT, gamma
from cvxscreen.core.norm_blocks import norm_frame
from cvxscreen.core.problem import Problem

Array = NDArray[np.float64]

TINY = 1e-140
"""Columns shorter than this have squares that are rounded as no others (below 1e-280 the products
they are summed of may have lost digits); longer than its inverse, too."""

CHUNK = 64
"""Products that are added up in double precision, before the sums are in extended."""

LEAST_KEPT = 1e-3
"""A linear cost nearer to what the norms bound leaves better points too far away."""

UP = 1.0 + 1e-9
"""What a bound is rounded up by: nine million roundings, `gamma(9e6)`. Sums here are numpy's, by
pairs, which round a few dozen times, and products of BLAS, which round once a coordinate."""


class GrowthOfNorms(NamedTuple):
    """What does not depend on a point.

    Attributes
    ----------
    norms : ResidualNorms
    others : array of int, shape (d',)
        The coordinates that are no bounds.
    rows, owner : arrays of int, shape (m,)
        The rows of residuals among those of the constraints, and the norm of each.
    costs : array, shape (c,)
        ``c_h``.
    lengths : array, shape (d',)
        D.
    columns : CSC matrix, shape (rows of all constraints, d')
        ``F`` at these coordinates.
    least : float
        A lower bound of ``lambda_min(G)``.
    steepest : float
        An upper bound of ``max_h |N_h D^-1|_F / c_h``.
    kept, shift : float
        A lower bound of ``1 - kappa`` and an upper bound of ``-<v, b>``.
    """

    norms: Any
    others: NDArray[np.intp]
    rows: NDArray[np.intp]
    owner: NDArray[np.intp]
    costs: Array
    lengths: Array
    columns: Any
    least: float
    steepest: float
    kept: float
    shift: float

    @classmethod
    def of(cls, problem: Problem) -> GrowthOfNorms | None:
        """Those of `problem`; None where its norms do not bound its coordinates."""
        side, f = problem.side, problem.losses
        if side is None or problem.penalty is not None or problem.imbalance:
            return None
        norms = side.residual_norms
        if problem.d > 2 * len(norms.heads):
            return None
        cost = problem.linear[norms.heads]
        signs = bool((f.lo <= 0.0).all() and (f.hi >= 0.0).all())
        apart = norm_frame(side) if signs and (cost > 0.0).all() else None
        if apart is None:
            return None
        others, frame, b = apart.others, apart.blocks.matrix, apart.offset
        # In the frame there is a row of zeros for the head of each.
        (rows, owner), of = norms.tails, np.repeat(np.arange(len(norms.sizes)), norms.sizes)
        lengths = np.sqrt(np.asarray(frame.power(2).sum(axis=0)).ravel())
        if not (lengths.min() > TINY and lengths.max() < 1.0 / TINY):
            return None
        scaled = sp.csr_matrix(frame @ sp.diags(1.0 / lengths))
        gram = apart.blocks.gram(np.ones(frame.shape[0])) / lengths / lengths[:, None]
        d, costs = len(others), cost / norms.scales
        # Columns of length 1: products are rounded as sums of m, the eigenvalues as of a matrix of
        # trace d.
        least = float(np.linalg.eigvalsh(gram)[0]) - 4.0 * d * gamma(len(rows) + 8 * d + 16)

        def by_norm(squares: Array) -> Array:
            return np.sqrt(np.bincount(of, squares, len(costs)))

        of_rows = np.asarray(scaled.power(2).sum(axis=1)).ravel()
        steepest = float((by_norm(of_rows) / costs).max()) * UP
        if not least > 0.0:
            return None
        kept, shift = 1.0, 0.0
        linear = problem.linear[others] / lengths
        if linear.any():
            v = -(scaled @ np.linalg.solve(gram, linear))
            rounding = gamma(len(rows) + 8)
            missing = np.abs(linear + scaled.T @ v) + rounding * (
                np.abs(linear) + abs(scaled).T @ np.abs(v))
            # What v misses l by is another such product, of rows at most so long in units of c.
            more = steepest * float(np.linalg.norm(missing)) / least * UP
            kept -= float((by_norm(v * v) / costs).max()) * UP + more
            shift = -float(v @ b) + rounding * float(np.abs(v) @ np.abs(b))
            shift += more * float(costs @ by_norm(b * b)) * UP
            if not kept > LEAST_KEPT:
                return None
        return cls(
            norms, others, rows, owner, costs, lengths,
            sp.csc_matrix(side.matrix[:, others]), least, steepest, kept, shift,
        )


_KNOWN: weakref.WeakKeyDictionary[Problem, GrowthOfNorms | None] = weakref.WeakKeyDictionary()
"""A problem never changes, and is judged at many points."""


def _known(problem: Problem) -> GrowthOfNorms | None:
    if problem not in _KNOWN:
        _KNOWN[problem] = GrowthOfNorms.of(problem)
    return _KNOWN[problem]


def norms_alone_prove_nothing(problem: Problem) -> bool:
    """Whether norms are all that holds the coordinates, and there are directions that they do not.

    As where columns of the data stand twice: no certificate bounds what is left of a residual.
    """
    side, form = problem.side, problem.quadratic
    if problem.n or side is None or problem.penalty is not None or not form.free.all():
        return False
    heads = side.residual_norms.heads
    return len(heads) == len(side.dims) and _known(problem) is None


def _residual_at_most(
    problem: Problem, theta: Array, mu: Array, known: GrowthOfNorms
) -> tuple[Array, Array]:
    """``|A' theta + q - F' mu|`` at most at the bounds, and at the other coordinates.

    Long sums of F' mu are made in extended precision, of sums of `CHUNK` products each: of 100,000
    rows rounding would be all.
    """
    norms, wide = known.norms, np.longdouble
    cost = problem.linear[norms.heads]
    size = float(np.sqrt(np.sum(theta * theta))) * UP
    error = (problem.design.adjoint_factor + 8.0 * UNIT) * size * problem.column_sizes
    of_losses = problem.design.adjoint(theta)
    pressed = norms.scales * mu[norms.head_rows]
    heads = np.abs(of_losses[norms.heads] + cost - pressed) + error[norms.heads]
    heads += gamma(8) * (cost + np.abs(pressed))
    frame = known.columns
    products = frame.data * mu[frame.indices]
    counts = np.diff(frame.indptr)
    chunks = -(-counts // CHUNK)
    owner = np.repeat(np.arange(len(counts)), chunks)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(chunks) - chunks, chunks)
    total, load = np.zeros(len(counts), dtype=wide), np.zeros(len(counts))
    if len(owner):
        starts, some = frame.indptr[owner] + CHUNK * number, counts > 0
        firsts = np.flatnonzero(number == 0)
        parts = np.add.reduceat(products, starts).astype(wide)
        total[some] = np.add.reduceat(parts, firsts)
        load[some] = np.add.reduceat(np.add.reduceat(np.abs(products), starts), firsts)
    of_others = of_losses[known.others].astype(wide) + problem.linear[known.others]
    value = np.asarray(np.abs(of_others - total), dtype=np.float64)
    unit = (gamma(CHUNK + 2) + 4.0 * float(np.finfo(wide).eps) * (chunks + 8)) * UP
    load += np.abs(problem.linear[known.others])
    return heads, value * UP + unit * load + error[known.others]


def norms_growth_cost(
    problem: Problem, x: Array, theta: Array, mu: Array | None, primal: float
) -> float:
    """What the residual may cost against any point; infinite where norms do not bound it.

    Parameters
    ----------
    x : array, shape (d,)
    theta : array, shape (n,)
    mu : array, shape (m,)
        In the dual cone.
    primal : float
        Objective at x.
    """
    known, side = _known(problem), problem.side
    if known is None or side is None or mu is None:
        return float("inf")
    of_heads, of_others = _residual_at_most(problem, theta, mu, known)
    held = ~problem.quadratic.free[known.others]  # what is squared is charged as such
    of_others[held] = 0.0
    heads = side.residual_norms.heads
    slack = side.slack(x)[known.rows]
    lengths = np.sqrt(np.bincount(known.owner, slack * slack, len(known.costs)))
    # What rounding hides of a slack is a share of what it is the sum of.
    reach = abs(side.matrix[known.rows]) @ np.abs(x) + np.abs(side.offset[known.rows])
    rounding = gamma(problem.d + 8) * np.sqrt(
        np.bincount(known.owner, reach * reach, len(known.costs))
    )
    here = float(known.costs @ (lengths + rounding)) * UP
    cost = problem.linear[heads]
    own = float(cost @ np.abs(x[heads])) * UP
    reached = max(here, own, (primal - problem.constant + known.shift) / known.kept) * UP
    ratio = float((of_heads / cost).max())
    length = float(np.linalg.norm(of_others / known.lengths))
    return (
        known.steepest * length / known.least * (here + reached) + ratio * (own + reached)
    ) * UP
