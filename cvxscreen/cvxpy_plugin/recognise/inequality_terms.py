"""Rows of ``A x <= b`` as terms, where there are many of them.

An inequality is a loss with an infinite slope: 0 up to its end, infinite beyond it (`Losses.hard`).
A row that is not active is then a term on its zero piece, and is left out like any other. What is
only a handful of rows beside the losses, or bounds of single coordinates, stays a side constraint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.cvxpy_plugin.recognise.draft import Draft, Duals
from cvxscreen.cvxpy_plugin.recognise.standard import Standard

Array = NDArray[np.float64]
Index = NDArray[np.intp]

MANY = 4
"""Inequalities are terms where there are more than this many for every coordinate.

At an optimum about as many of them as there are coordinates are active, so that leaving the others
out can save most of the work.
"""


def take_many_inequalities(draft: Draft) -> None:
    """Turn the inequalities that hold data into terms, if there are many of them."""
    rows = draft.standard.rows
    open_rows = draft.inequalities
    coordinates = int(np.count_nonzero(~draft.eliminated))
    if open_rows.shape[0] <= MANY * coordinates:
        return
    dense = np.asarray(abs(open_rows) @ rows.dense_rows()) > 0
    inside = sp.csr_array(open_rows @ rows.sparse)
    inside.eliminate_zeros()
    data = dense | (np.diff(inside.indptr) > 1)
    index = np.flatnonzero(data)
    if len(index) <= MANY * coordinates:
        return
    weights = sp.csr_array(-open_rows[index])
    terms = draft.terms.add(weights, b=0.0, lo=0.0, hi=np.inf)
    nothing = np.zeros(0, dtype=np.intp), sp.csr_array((0, draft.standard.size))
    draft.steps.append(InequalityTerms(*nothing, weights, terms))
    draft.inequalities = open_rows[np.flatnonzero(~data)]


@dataclass(frozen=True, eq=False)
class InequalityTerms:
    """Inequalities that became terms; no column is eliminated. See `Step`.

    Attributes
    ----------
    columns : array of int, shape (0,)
    needs : CSR array, shape (0, N)
    weights : CSR array, shape (k, m)
        The arguments as combinations of rows: ``-row(z) <= 0``.
    terms : array of int, shape (k,)
    """

    columns: Index
    needs: Any
    weights: Any
    terms: Index

    def primal(self, values: Array) -> Array:
        """See `Step.primal`: no columns."""
        return np.zeros(0)

    def dual(self, standard: Standard, duals: Duals) -> None:
        """See `Step.dual`: the slope of a term is the multiplier of its row."""
        duals.rows -= self.weights.T @ duals.theta[self.terms]
