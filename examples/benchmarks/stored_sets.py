"""Sets as they are stored, which the benchmarks read from a folder.

NAME.npz holds the targets ``y`` and rows: dense ones as ``X``, sparse ones by the parts of a CSR
matrix (``X_data``, ``X_indices``, ``X_indptr``, ``X_shape``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp


def stored(folder: Path, name: str) -> tuple[Any, np.ndarray] | None:
    """Rows (an array, or CSR) and targets as they are in NAME.npz; None where that is absent."""
    file = folder / f"{name}.npz"
    if not file.is_file():
        print(f"{name}: absent")
        return None
    with np.load(file) as found:
        if "X" in found:
            return found["X"].astype(float), found["y"]
        parts = found["X_data"].astype(float), found["X_indices"], found["X_indptr"]
        return sp.csr_matrix(parts, shape=tuple(found["X_shape"])), found["y"]


def needed(folder: Path, name: str) -> tuple[Any, np.ndarray]:
    """The same of a set without which there is nothing to measure."""
    found = stored(folder, name)
    if found is None:
        raise SystemExit(f"give the folder that holds {name}.npz; {folder} does not")
    return found


def dense(X: Any) -> np.ndarray:
    """Rows as an array."""
    return X.toarray() if sp.issparse(X) else X
