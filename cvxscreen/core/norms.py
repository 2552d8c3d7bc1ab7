"""Norms of a problem's rows and columns, and which of them outlive a change of the problem."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(eq=False)
class Norms:
    """What has been computed so far of the norms of a design's rows and columns; None is unknown.

    `cvxscreen.core.problem.Problem` fills it when one is asked for, and says what each of them is.
    A changed problem takes over what still holds, by the two rules below and by no other way: what
    depends on the design alone always does, taken at the rows or columns that stay.
    """

    norms: Array | None = None
    sizes: Array | None = None
    rounding_norms: Array | None = None
    free_columns: Array | None = None
    column_norms: Array | None = None
    column_sizes: Array | None = None

    def inherit_rows(
        self, other: Norms, rows: NDArray[np.intp] | None = None, *, same_form: bool = True
    ) -> None:
        """Take over what `other` knows of its rows, or of those at `rows`.

        `same_form` says whether the quadratic term is the same; otherwise only its unpenalised
        coordinates must be, and norms in its metric are not taken over.
        """
        self.sizes = _at(other.sizes, rows)
        self.free_columns = _at(other.free_columns, rows)
        if same_form:
            self.norms = _at(other.norms, rows)
            self.rounding_norms = _at(other.rounding_norms, rows)

    def inherit_columns(
        self, other: Norms, columns: NDArray[np.intp] | None = None, *, same_losses: bool = True
    ) -> None:
        """Take over what `other` knows of its columns, or of those at `columns`; the rows stay.

        `same_losses` says whether the losses, whose curvature `column_norms` is weighted with, are
        the same.
        """
        self.column_sizes = _at(other.column_sizes, columns)
        if same_losses:
            self.column_norms = _at(other.column_norms, columns)


def _at(known: Array | None, index: NDArray[np.intp] | None) -> Array | None:
    return known if known is None or index is None else known[index]
