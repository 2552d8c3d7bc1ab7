"""Checks shared by the front doors: one message style, naming argument, finding and remedy."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen.errors import InvalidInput

Array = NDArray[np.float64]


def positive(name: str, value: object) -> float:
    """`value` as a positive finite float."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InvalidInput(f"`{name}` is {value!r}; a positive number is needed.") from None
    if not (np.isfinite(number) and number > 0):
        raise InvalidInput(f"`{name}` is {number}; a positive finite number is needed.")
    return number


def vector(name: str, values: ArrayLike, n: int) -> Array:
    """`values` as a finite float vector of length `n`."""
    try:
        v = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"`{name}` is not a vector of numbers: {error}") from None
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
    v = vector("y", y, n)
    found = np.unique(v)
    if not np.isin(found, (-1.0, 1.0)).all():
        shown = ", ".join(f"{value:g}" for value in found[:5])
        raise InvalidInput(
            f"`y` holds the labels {shown}{', ...' if len(found) > 5 else ''}; -1 and +1 are "
            "needed, for example np.where(y == positive_class, 1, -1)."
        )
    if len(found) < 2:
        raise InvalidInput(
            f"`y` has only one class ({found[0]:+g}) in {n} rows; a classifier needs both."
        )
    return v
