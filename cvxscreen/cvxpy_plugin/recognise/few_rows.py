"""Problems of many columns that few rows couple, each with a cost and bounds of its own.

::

    minimise    sum_j (d_j / 2 z_j^2 + c_j z_j) + 1/2 <f, S f>
    subject to  f = F z,   few linear constraints of z,   l <= z <= u

A portfolio of many assets under a model of few factors, weights of samples that balance few
moments, the dual of a support vector machine, the least change of a long vector that few equations
ask for. They have no losses to begin with; in their dual each column is one
(`cvxscreen.solvers.dual_form`). Columns that CVXPY adds for squares of single entries
(``sum_squares(multiply(d, z) - v)``) are substituted; squares of what a few equations define stay
the squares that they are, as losses with `f` written out, whatever matrix S mixes them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.cvxpy_plugin.recognise.draft import (
    DefinedColumns,
    Draft,
    Duals,
    Elimination,
    Pairing,
    count_columns,
    without_columns,
)
from cvxscreen.cvxpy_plugin.recognise.elimination import leave_out, one_a_row, substitute
from cvxscreen.cvxpy_plugin.recognise.matrices import cleared, rows_of, square_block
from cvxscreen.cvxpy_plugin.recognise.recognition import CostParts, Recognition
from cvxscreen.cvxpy_plugin.recognise.rules import side_rows
from cvxscreen.cvxpy_plugin.recognise.standard import Standard
from cvxscreen.solvers.dual_form import LEAST, ROWS, couples_few

Array = NDArray[np.float64]
Index = NDArray[np.intp]

ROUNDED = 4.0 * float(np.finfo(np.float64).eps)
"""Eigenvalues, for each one of a matrix and relative to the largest, that are but rounding."""


class MixedSquares(DefinedColumns):
    """``1/2 <f, S f>`` of columns f that one equality each defines: losses ``L' f``, ``S = L L'``.

    Attributes
    ----------
    columns, source, factor, needs
        As of `DefinedColumns`.
    root : array, shape (k, r)
        L.
    slope : array, shape (k,)
        Linear cost of f.
    """

    columns: Index
    source: Index
    factor: Array
    needs: Any
    root: Array
    slope: Array

    def rows(self, m: int) -> sp.csr_array:
        """``L' f`` as combinations of all m rows, shape (r, m), but for the entries of f."""
        k = len(self.columns)
        pick = sp.csr_array((-1.0 / self.factor, (np.arange(k), self.source)), shape=(k, m))
        return sp.csr_array(sp.csr_array(self.root.T) @ pick)

    def dual(self, standard: Standard, duals: Duals) -> None:
        """See `Step.dual`: what the losses, all terms there are, pull at f."""
        duals.rows[self.source] = (self.root @ duals.theta + self.slope) / self.factor


def with_few_rows(standard: Standard) -> Recognition | None:
    """`standard` as such a problem; None where it is none."""
    canonical, m = standard.canonical, standard.rows.shape[0]
    if standard.size < LEAST or canonical.groups or standard.norms:
        return None
    if not standard.cones or any(c.kind not in ("zero", "nonneg") for c in standard.cones):
        return None
    draft = Draft.of(standard, strongly_convex=False)
    tally, counts = count_columns(draft), standard.rows.counts()
    zero = standard.inside("zero")
    alone = (tally.zero == 1) & (tally.positive + tally.negative == 0) & ~tally.dense
    helpers = one_a_row(draft, np.flatnonzero(zero & (counts <= 2)), alone & ~tally.own)
    distances = standard.inside("nonneg") & (counts == 2)  # as of absolute values
    coupling = (counts > 1) & ~distances
    taken = np.zeros(standard.size, dtype=bool)
    if helpers is not None:
        coupling[helpers.source] = False
        taken[helpers.columns] = True
    if not 0 < np.count_nonzero(coupling) <= ROWS * standard.size:
        return None
    squared = (draft.quadratic.diagonal() > 0.0) & ~taken
    defined = one_a_row(draft, np.flatnonzero(zero & coupling), alone & squared)
    if distances.any() and defined is not None and coupling.sum() == len(defined.source):
        return None  # squares beside an L1 norm
    if helpers is not None:
        leave_out(draft, helpers)
        substitute(draft, helpers)
    mixed = None
    if defined is not None:
        root = _root(draft, defined)
        if root is None:
            return None
        slope = draft.linear[defined.columns].copy()
        mixed = MixedSquares(
            defined.columns, defined.source, defined.factor, defined.needs, root, slope
        )
        draft.loss_slope[mixed.source] -= slope / mixed.factor
        draft.steps.append(mixed)
        draft.used_rows[mixed.source] = draft.eliminated[mixed.columns] = True
        draft.quadratic = cleared(draft.quadratic, mixed.columns)
        draft.linear[mixed.columns] = 0.0
    form = draft.quadratic
    if form.data[rows_of(form) != form.indices].any():
        return None
    none = sp.csr_array((0, m))
    return _recognition(draft, none if mixed is None else mixed.rows(m))


def _root(draft: Draft, defined: Elimination) -> Array | None:
    """L with ``S = L L'`` but for rounding, S the squares of the defined columns, shape (k, r).

    None where others are mixed with them, or S has a negative eigenvalue.
    """
    rows = draft.quadratic[defined.columns]
    form = sp.csr_array(rows[:, defined.columns])
    if form.nnz != rows.nnz:
        return None
    values, vectors = np.linalg.eigh(form.toarray())
    rounding = ROUNDED * len(values) * float(np.abs(values).max())
    kept = values > rounding
    return vectors[:, kept] * np.sqrt(values[kept]) if values[0] >= -rounding else None


def _recognition(draft: Draft, select: sp.csr_array) -> Recognition | None:
    """What is left as a problem with the squares of `select`; None where its dual is no smaller."""
    standard, k = draft.standard, select.shape[0]
    squares = without_columns(standard.rows.combine(select), draft.eliminated)
    core = np.flatnonzero(~draft.eliminated)
    design, order = squares.design(core)
    core = core[order]
    diagonal = square_block(draft.quadratic, core).diagonal()
    if not (np.isfinite(diagonal).all() and (diagonal >= 0.0).all()):
        return None
    side, dims, held = side_rows(draft, ())
    slope = standard.rows.combine(sp.csr_array(draft.loss_slope[None, :]))
    slope = without_columns(slope, draft.eliminated)
    of_losses, level = slope.adjoint(np.ones(1)), float(slope.offset[0])
    ends = np.full(k, np.inf)
    problem = Problem(
        design=design,
        losses=Losses(-squares.offset, np.zeros(k), np.ones(k), -ends, ends),
        quadratic=Quadratic(diagonal),
        linear=draft.linear[core] + of_losses[core],
        constant=draft.constant + level,
        side=SideConstraints(sp.csr_array(held.columns(core)), held.offset, dims),
        kind="cvxpy",
    )
    if not couples_few(problem):
        return None
    base = draft.constant - standard.constant
    return Recognition(
        problem, standard, core, tuple(draft.steps), side,
        Pairing(np.arange(k), np.full(k, -1, dtype=np.intp), k),
        CostParts(draft.linear[core], of_losses[core], base, level),
    )
