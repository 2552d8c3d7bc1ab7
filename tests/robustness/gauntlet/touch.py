"""What must not change of a caller's value."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import scipy.sparse as sp

try:
    import pandas
except ImportError:
    pandas = None


def snapshot(value: Any) -> Any:
    """What must not change: types, shapes, flags and bytes, all the way down."""
    if isinstance(value, np.ma.MaskedArray):
        return snapshot(value.data), snapshot(np.ma.getmaskarray(value))
    if isinstance(value, np.ndarray):
        held = repr(value.tolist()) if value.dtype.hasobject else value.tobytes("A")
        return type(value), str(value.dtype), value.shape, value.strides, held
    if sp.issparse(value):
        names = ("data", "indices", "indptr", "row", "col", "offsets", "rows")
        held = [getattr(value, name, None) for name in names]
        parts = [part for part in held if isinstance(part, np.ndarray)]
        entries = sorted(value.items()) if value.format == "dok" else []
        return value.format, value.shape, str(value.dtype), entries, [snapshot(p) for p in parts]
    if pandas is not None and isinstance(value, pandas.DataFrame | pandas.Series):
        return repr(value.to_dict()), repr(value.index), str(value.dtypes)
    if isinstance(value, dict):
        return [(key, snapshot(held)) for key, held in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [snapshot(held) for held in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value), [snapshot(getattr(value, f.name)) for f in dataclasses.fields(value)]
    return repr(value)
