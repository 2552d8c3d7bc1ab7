"""Checks of samples, labels and weights, shared by the front doors."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen.errors import InvalidInput
from cvxscreen.inputs import array

Array = NDArray[np.float64]

_REMEDY = "-1 and +1 are needed, for example np.where(y == positive_class, 1, -1)."


def vector(name: str, values: ArrayLike, n: int) -> Array:
    """`values` as a finite float vector of length `n`, a copy."""
    v = array(name, values).copy()
    if v.ndim == 2 and 1 in v.shape:
        v = v.ravel()
    if v.ndim != 1:
        raise InvalidInput(f"`{name}` has shape {v.shape}; a vector ({n},) is needed.")
    if len(v) != n:
        raise InvalidInput(f"`{name}` has {len(v)} entries but `X` has {n} rows.")
    if not np.isfinite(v).all():
        raise InvalidInput(f"`{name}` holds NaN or infinity; drop or impute those rows.")
    return v


def some_rows(n: int, d: int) -> None:
    """Refuse an empty data set."""
    if n == 0 or d == 0:
        raise InvalidInput(
            f"`X` is empty: {n} rows and {d} columns; at least one of each is needed."
        )


def weights(sample_weight: ArrayLike | None, n: int) -> Array:
    """Per-sample weights, non-negative and not all zero; ones when omitted."""
    if sample_weight is None:
        return np.ones(n)
    w = vector("sample_weight", sample_weight, n)
    if (w < 0).any():
        raise InvalidInput("`sample_weight` has negative entries; weights must be >= 0.")
    if not w.any():
        raise InvalidInput("`sample_weight` is zero everywhere; nothing would be fitted.")
    return w


def labels(y: ArrayLike, n: int) -> Array:
    """Labels -1/+1 with both classes present."""
    words = _words(y)
    if words:
        raise InvalidInput(f"`y` holds words ({', '.join(words)}, ...); {_REMEDY}")
    v = vector("y", y, n)
    found = np.unique(v)
    if not np.isin(found, (-1.0, 1.0)).all():
        shown = ", ".join(f"{value:g}" for value in found[:5])
        raise InvalidInput(
            f"`y` holds the labels {shown}{', ...' if len(found) > 5 else ''}; {_REMEDY}"
        )
    if len(found) < 2:
        raise InvalidInput(
            f"`y` has only one class ({found[0]:+g}) in {n} rows; a classifier needs both."
        )
    return v


def _words(y: ArrayLike) -> list[str]:
    """Some of the labels that are words, quoted."""
    if isinstance(y, np.ndarray) and y.dtype.kind in "biuf":
        return []
    try:
        found = np.asarray(y).ravel().tolist()
    except ValueError:  # ragged; said elsewhere
        return []
    return sorted({repr(label) for label in found if isinstance(label, str)})[:3]
