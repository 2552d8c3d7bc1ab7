"""Files in memory: archives, arrays, altered bytes, and a pickle that does harm."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from gauntlet.bad import X, Y

CSR = sp.csr_matrix(X)


class Hostile:
    """Writes a file when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return Path.write_text, (self.target, "it ran")


def npz(**arrays: Any) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def npy(array: Any, **options: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array, **options)
    return out.getvalue()


def parts(**changed: Any) -> bytes:
    """An archive of a CSR matrix, some of its parts changed."""
    whole = {"X_data": CSR.data, "X_indices": CSR.indices, "X_indptr": CSR.indptr,
             "X_shape": np.array(CSR.shape), "y": Y}
    return npz(**{**whole, **changed})


def hostile_npz(target: Path) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        thing = np.array([Hostile(target)], dtype=object)
        for name in ("X", "head", "x0"):
            archive.writestr(f"{name}.npy", npy(thing, allow_pickle=True))
        archive.writestr("y.npy", npy(Y))
    return out.getvalue()


def flipped(raw: bytes, place: int) -> bytes:
    out = bytearray(raw)
    out[place] ^= 0xFF
    return bytes(out)


GOOD = npz(X=X, y=Y)
