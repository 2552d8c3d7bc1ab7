"""Good input of unusual form: the numbers of `BASE`, held in every way that they can be held."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

try:
    import pandas
except ImportError:
    pandas = None

N, D = 24, 3
RNG = np.random.default_rng(9)
BASE = RNG.integers(-4, 5, (N, D)).astype(float)
BASE[3] = BASE[4]  # a row twice, and a row of zeros
BASE[5] = 0.0
LABELS = np.where(BASE[:, 0] + RNG.standard_normal(N) > 0, 1.0, -1.0)
ANSWERS = np.round(BASE @ [1.0, -2.0, 0.5] + RNG.laplace(size=N))

Form = Callable[[np.ndarray], Any]


def locked(values: np.ndarray) -> np.ndarray:
    out = values.copy()
    out.flags.writeable = False
    return out


def mapped(mode: str) -> Form:
    """On disk; `mode` "r" cannot be written to, "r+" can, and must not be."""

    def make(values: np.ndarray) -> Any:
        file = Path(tempfile.mkdtemp()) / "values.npy"
        np.save(file, values)
        return np.load(file, mmap_mode=mode)

    return make


def reversed_view(values: np.ndarray) -> np.ndarray:
    """Negative strides along every axis."""
    turned = values[tuple(slice(None, None, -1) for _ in values.shape)].copy()
    return turned[tuple(slice(None, None, -1) for _ in values.shape)]


def every_second(values: np.ndarray) -> np.ndarray:
    """A view with gaps."""
    wide = np.full(tuple(2 * size for size in values.shape), 77.0)
    view = wide[tuple(slice(None, None, 2) for _ in values.shape)]
    view[...] = values
    return view


def broadcast_rows(values: np.ndarray) -> np.ndarray:
    """Not writeable and not aligned: a field of a record array."""
    record = np.zeros(values.shape, dtype=[("gap", "i1"), ("value", "f8")])
    record["value"] = values
    return record["value"]


class Array(np.ndarray):
    """A subclass of ndarray, as some libraries have."""


def typed(name: str) -> Form:
    return lambda values: values.astype(name)


DENSE: dict[str, Form] = {
    "read-only": locked,
    "memory map": mapped("r"),
    "memory map open for writing": mapped("r+"),
    "Fortran order": np.asfortranarray,
    "negative strides": reversed_view,
    "strides with gaps": every_second,
    "not aligned": broadcast_rows,
    "subclass": lambda values: values.view(Array),
    "masked without masks": np.ma.masked_array,
    "list": lambda values: values.tolist(),
    "tuple": lambda values: tuple(map(tuple, values)) if values.ndim > 1 else tuple(values),
    "objects": typed("O"),
    **{name: typed(name) for name in
       ("float32", "float16", "longdouble", "int8", "int64", ">f8", ">i4", ">f4")},
}
MATRICES: dict[str, Form] = {
    "np.matrix": lambda values: np.asmatrix(values),
    "Fortran order, float32": lambda values: np.asfortranarray(values.astype(np.float32)),
    "list of rows": list,
}
VECTORS: dict[str, Form] = {
    "column": lambda values: values[:, None],
    "row": lambda values: values[None],
}
if pandas is not None:
    MATRICES |= {
        "frame": lambda values: pandas.DataFrame(values, index=RNG.permutation(len(values))),
        "frame of nullable columns": lambda values: pandas.DataFrame(values).convert_dtypes(),
        "frame of mixed columns": lambda values: pandas.DataFrame(values).astype(
            {0: "int8", 1: "float32"}
        ),
    }
    VECTORS |= {
        "series": lambda values: pandas.Series(values, index=RNG.permutation(len(values))),
        "nullable series": lambda values: pandas.Series(values).convert_dtypes(),
    }


def unsorted(form: str) -> Form:
    """Compressed, every row (or column) back to front."""

    def make(values: np.ndarray) -> Any:
        made = sp.csr_matrix(values) if form == "csr" else sp.csc_matrix(values)
        for low, high in zip(made.indptr[:-1], made.indptr[1:], strict=True):
            made.indices[low:high] = made.indices[low:high][::-1].copy()
            made.data[low:high] = made.data[low:high][::-1].copy()
        made.has_sorted_indices = False
        return made

    return make


def doubled(form: str) -> Form:
    """Every entry in two halves."""

    def make(values: np.ndarray) -> Any:
        at = np.nonzero(values)
        twice = tuple(np.concatenate([part, part]) for part in at)
        made = sp.coo_matrix((np.tile(values[at] / 2.0, 2), twice), shape=values.shape)
        if form == "coo":
            return made
        whole = sp.csr_matrix(values) if form == "csr" else sp.csc_matrix(values)
        kind = type(whole)
        return kind(
            (np.repeat(whole.data / 2.0, 2), np.repeat(whole.indices, 2), 2 * whole.indptr),
            shape=values.shape,
        )

    return make


def with_zeros(values: np.ndarray) -> Any:
    """Stored zeros among the entries."""
    made = sp.csr_array(values + 100.0)
    made.data -= 100.0
    return made


def wide_indices(values: np.ndarray) -> Any:
    made = sp.csr_matrix(values)
    made.indices, made.indptr = made.indices.astype(np.int64), made.indptr.astype(np.int64)
    return made


def locked_parts(values: np.ndarray) -> Any:
    made = sp.csr_matrix(values)
    for part in (made.data, made.indices, made.indptr):
        part.flags.writeable = False
    return made


SPARSE: dict[str, Form] = {
    **{f"{kind} {form}": lambda values, kind=kind, form=form: getattr(
        sp, f"{form}_{kind}")(values)
       for kind in ("array", "matrix") for form in ("csr", "csc", "coo", "lil", "dok", "bsr",
                                                    "dia")},
    **{f"unsorted {form}": unsorted(form) for form in ("csr", "csc")},
    **{f"doubled {form}": doubled(form) for form in ("csr", "csc", "coo")},
    "stored zeros": with_zeros,
    "wide indices": wide_indices,
    "read-only parts": locked_parts,
    "sparse float32": lambda values: sp.csr_array(values.astype(np.float32)),
    "sparse int8": lambda values: sp.csc_array(values.astype(np.int8)),
    "sparse longdouble": lambda values: sp.csr_array(values.astype(np.longdouble)),
}

ROWS = {**DENSE, **MATRICES, **SPARSE}
TARGETS = {**DENSE, **VECTORS}
