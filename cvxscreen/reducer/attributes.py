"""Variables with attributes (``PSD=True``, ``diag=True`` ...) and the smaller ones behind them.

CVXPY's `CvxAttr2Constr` puts the upper triangle in the place of a symmetric variable and the
diagonal in the place of a diagonal one. Here are the same two maps for values, which CVXPY keeps to
itself under names that change, and a way round a defect of its versions before 1.9.3.
"""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.atoms.affine.wraps import psd_wrap, symmetric_wrap
from numpy.typing import NDArray

SYMMETRIC = {"PSD": psd_wrap, "NSD": symmetric_wrap, "symmetric": symmetric_wrap,
             "diag": symmetric_wrap}
"""Attributes that leave a variable fewer free entries than it has, with what asserts them."""

SAFE = (1, 9, 3)
"""From this version of CVXPY on, squares of variables with such attributes are not lost."""


def version() -> tuple[int, ...]:
    """CVXPY's version as numbers, without what follows them."""
    parts = cp.__version__.split(".")[:3]
    return tuple(int(part) if part.isdigit() else 0 for part in parts)


def lowered(variable: Any, value: Any) -> NDArray[np.float64]:
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


def recovered(variable: Any, entries: NDArray[np.float64]) -> Any:
    """The value of `variable` with the free entries `entries`: the inverse of `lowered`.

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


def shielded(problem: Any) -> Any:
    """`problem` with no bare variable with such attributes in its objective.

    Before 1.9.3, CVXPY drops ``sum_squares(M)`` of such a variable without a word when it makes
    squares part of the objective (its pull request 3384). Behind a wrap that asserts what the
    attribute says, M is an expression, whose squares are kept.

    Parameters
    ----------
    problem : cvxpy.Problem
        Its constraints are shared, so that dual values find their way back.
    """
    if version() >= SAFE:
        return problem
    wrapped = {}
    for variable in problem.objective.variables():
        for name, wrap in SYMMETRIC.items():
            if variable.attributes[name]:
                wrapped[id(variable)] = wrap(variable)
                break
    if not wrapped:
        return problem
    return cp.Problem(problem.objective.tree_copy(wrapped), problem.constraints)
