"""Values of the user's variables: changed only for a moment, and with or without their symmetry.

CVXPY's `CvxAttr2Constr` puts the upper triangle in the place of a symmetric variable and the
diagonal in the place of a diagonal one (``PSD=True``, ``diag=True`` ...). `lowered` and `recovered`
are these two maps for values, which CVXPY keeps to itself under names that change.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


@contextmanager
def preserved_values(variables: list[Any]) -> Iterator[None]:
    """Give back the values of `variables` on the way out, whatever happens."""
    before = [(variable, variable.value) for variable in variables]
    try:
        yield
    finally:
        for variable, value in before:
            variable.save_value(value)


def free_entries(variable: Any, value: Any) -> NDArray[np.float64]:
    """The free entries of `value`, as the variable behind `variable` has them.

    Parameters
    ----------
    variable : cvxpy.Variable
    value : array or sparse array, of the variable's shape
    """
    dense = np.asarray(value.toarray() if sp.issparse(value) else value, dtype=np.float64)
    if variable.attributes["diag"]:
        return np.diagonal(dense)
    if _triangular(variable):
        return dense[np.triu_indices(variable.shape[0])]
    return dense


def full_value(variable: Any, entries: NDArray[np.float64]) -> Any:
    """The value of `variable` with the free entries `entries`: the inverse of `free_entries`.

    Returns
    -------
    array, or sparse array for a diagonal variable
        Of the variable's shape; not projected onto its set.
    """
    if variable.attributes["diag"]:
        return sp.diags_array(entries.flatten(order="F"))
    if not _triangular(variable):
        return entries
    upper = np.zeros(variable.shape)
    upper[np.triu_indices(variable.shape[0])] = entries.flatten(order="F")
    return upper + upper.T - np.diag(np.diagonal(upper))


def _triangular(variable: Any) -> bool:
    return any(variable.attributes[name] for name in ("PSD", "NSD", "symmetric"))
