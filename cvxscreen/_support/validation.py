"""What a caller hands in, read once: arguments, arrays and data matrices.

Every refusal names the argument, what was found and the remedy. Nothing is guessed: text is no
number, a complex number no real one, a masked entry no value. A data matrix comes out as the
designs store it: a float array or CSR, finite, checked once (`stored`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.errors import InvalidInput, UnknownName, quoted

Array = NDArray[np.float64]
Kind = TypeVar("Kind")

LARGEST = 1.3e154
"""Entries of data beyond it have squares that double precision does not hold: those end at 1.8e308,
whose root is 1.34e154."""

MOST_NARROW = 2**31 - 1
"""The largest number that an index of 32 bits holds."""


def number(name: str, value: object, needed: str = "a number is needed") -> float:
    """`value` as a float, which may be infinite or NaN.

    Raises
    ------
    InvalidInput
        For text, truth values, complex numbers and arrays with axes.
    """
    fits = not isinstance(value, str | bytes | bool | np.bool_ | complex | np.complexfloating)
    if fits and (isinstance(value, int | float) or np.ndim(value) == 0):  # type: ignore[arg-type]
        try:
            return float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            pass
    raise InvalidInput(f"`{name}` is {quoted(value)}; {needed}.")


def positive(name: str, value: object) -> float:
    """`value` as a positive finite float, with all its digits: below 2.3e-308 they are lost."""
    found = number(name, value, "a positive number is needed")
    if not sys.float_info.min <= found < float("inf"):
        raise InvalidInput(f"`{name}` is {quoted(value)}; a positive finite number is needed.")
    return found


def tolerance(value: object, name: str = "tol") -> float:
    """`value`, a relative gap, a level or a share, as a float strictly between 0 and 1."""
    needed = "a number strictly between 0 and 1 is needed"
    found = number(name, value, needed)
    if not 0.0 < found < 1.0:
        raise InvalidInput(f"`{name}` is {quoted(value)}; {needed}.")
    return found


def whole(name: str, value: object, low: int, high: int | None = None) -> int:
    """`value` as a whole number of at least `low` and, if there is one, at most `high`."""
    integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not integer or value < low or (high is not None and value > high):  # type: ignore[operator]
        upto = "or more" if high is None else f"to {high}"
        raise InvalidInput(f"`{name}` is {quoted(value)}; a whole number, {low} {upto}, is needed.")
    return int(value)  # type: ignore[call-overload]


def flag(name: str, value: object) -> bool:
    """`value` as True or False; 0 and 1 pass for them."""
    if isinstance(value, bool | np.bool_ | int | np.integer) and value in (0, 1):
        return bool(value)
    raise InvalidInput(f"`{name}` is {quoted(value)}; True or False is needed.")


def one_of(name: str, value: Any, kind: type[Kind] | tuple[type[Kind], ...], needed: str) -> Kind:
    """`value`, which must be of a type of ours; `needed` says where such things come from."""
    if not isinstance(value, kind):
        raise InvalidInput(f"`{name}` is a {type(value).__name__}; {needed}.")
    return value


def choice(name: str, value: object, known: Iterable[str]) -> str:
    """The one of the `known` names that `value` is, in any case; ``-``, a space, nothing for ``_``.

    Raises
    ------
    UnknownName
    """
    known = tuple(known)
    if isinstance(value, str) and value in known:
        return value
    plain = plain_name(value, known)
    if plain in known:
        return plain
    raise UnknownName.among(name, value, known)


def plain_name(value: object, known: Iterable[str] = ()) -> str:
    """A name as tables spell it: ``"Squared hinge"`` is squared_hinge; empty for no text.

    One of the `known` names may be written as one word: ``"ActiveSet"`` is active_set.
    """
    if not isinstance(value, str):
        return ""
    plain = value.lower().replace("-", "_").replace(" ", "_")
    word = plain.replace("_", "")
    return next((one for one in known if one.lower().replace("_", "") == word), plain)


MODES = ("safe", "certified")
"""Whether only proofs fix terms, or predictions as well, certified afterwards."""


def check_request(mode: object, tol: object) -> str:
    """The mode; refused are an unknown one and a tolerance outside (0, 1)."""
    tolerance(tol)
    return choice("mode", mode, MODES)


def word(name: str, value: object, needed: str) -> str:
    """`value`, which must be a text."""
    if not isinstance(value, str):
        raise InvalidInput(f"`{name}` is {quoted(value)}; {needed}.")
    return value


def named_numbers(name: str, value: object) -> dict[str, Any]:
    """`value` as a dictionary with texts for keys; empty for None."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InvalidInput(f"`{name}` is {quoted(value)}; a dictionary like {{'gamma': 0.5}}.")
    return dict(value)


def file_path(name: str, value: str | PathLike[str]) -> Path:
    """`value` as a path; what is no path is refused by its name."""
    try:
        return Path(fspath(value))
    except TypeError:
        raise InvalidInput(f"`{name}` is {quoted(value)}; the name of a file is needed.") from None


def real(name: str, values: Any) -> NDArray[Any]:
    """`values` as an array of real numbers of any type and shape, by reference where possible.

    Raises
    ------
    InvalidInput
        For what is missing, masked, sparse, ragged, complex, or no number at all.
    """
    if type(values) is np.ndarray and values.dtype.kind in "fiub":
        return values
    if values is None:
        raise InvalidInput(f"`{name}` is missing (None); real numbers are needed.")
    if sp.issparse(values):
        raise InvalidInput(f"`{name}` is sparse; give it dense, as `.toarray()` does.")
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise InvalidInput(f"`{name}` has masked entries; impute or drop them first.")
    try:
        found = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"`{name}` is not an array of numbers: {error}") from None
    if found.dtype.kind == "O":
        found = _unboxed(name, found)
    if found.dtype.kind not in "fiub":
        raise InvalidInput(
            f"`{name}` has dtype {found.dtype}; real numbers are needed. Encode it first."
        )
    return found


def _unboxed(name: str, found: NDArray[Any]) -> Array:
    """An array of objects, as pandas makes them of columns of different types."""
    strange = next((v for v in found.flat if isinstance(v, str | bytes | complex)), None)
    if strange is None:
        try:
            return found.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            strange = next((v for v in found.flat if not _is_real(v)), None)
    missing = type(strange).__name__ in ("NAType", "NaTType")
    what = "missing values" if missing else f"entries that are no numbers ({quoted(strange)})"
    raise InvalidInput(
        f"`{name}` has dtype object with {what}; {'impute or drop' if missing else 'encode'} them "
        "first."
    )


def _is_real(value: object) -> bool:
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def array(name: str, values: Any, shape: tuple[int, ...] | None = None) -> Array:
    """`values` as float64, of a given `shape` where one is asked for; may hold NaN.

    The caller's memory where that is float64 already: not to be written to.
    """
    found = real(name, values)
    if found.dtype != np.float64:
        with np.errstate(over="ignore"):  # numbers beyond float64 become infinite, and show as such
            found = found.astype(np.float64)
    if shape is not None and found.shape != shape:
        raise InvalidInput(f"`{name}` has shape {found.shape}; {shape} is needed.")
    return found


def finite(name: str, values: Any, shape: tuple[int, ...] | None = None) -> Array:
    """`array`, without NaN or infinity."""
    found = array(name, values, shape)
    if not np.isfinite(found).all():
        raise InvalidInput(f"`{name}` holds NaN or infinity; finite numbers are needed.")
    return found


def together(named: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[Array, ...]]:
    """Vectors and numbers as float64, after the one shape that they can be broadcast to."""
    found = {name: array(name, values) for name, values in named.items()}
    shapes = {values.shape for values in found.values() if values.ndim}
    try:
        shape = shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes)
    except ValueError:
        listed = ", ".join(f"`{name}` {values.shape}" for name, values in found.items())
        raise InvalidInput(
            f"the shapes {listed} do not fit together; give vectors of one length, or numbers."
        ) from None
    return shape, tuple(found.values())


def stored(matrix: Any, name: str) -> Any:
    """`matrix` as a 2-D float ndarray or CSR without copying when it already is one."""
    if sp.issparse(matrix):
        if matrix.ndim != 2 or matrix.dtype.kind not in "fiub":
            raise InvalidInput(
                f"`{name}` has shape {matrix.shape} and dtype {matrix.dtype}; a matrix (n, d) of "
                "real numbers is needed."
            )
        _in_bounds(matrix, name)
        m = matrix.tocsr()
        if not m.has_canonical_format:
            m = m.copy()
            m.sum_duplicates()
        if m.dtype not in (np.float32, np.float64):
            with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is refused
                m = m.astype(np.float64)
        m = _narrow(m)
        entries = m.data
    else:
        m = real(name, matrix)
        if m.dtype not in (np.float32, np.float64):
            m = array(name, m)
        if m.ndim != 2:
            raise InvalidInput(
                f"`{name}` has shape {m.shape}; a matrix (n, d) is needed "
                "(reshape one column with X[:, None])."
            )
        if not (m.flags.c_contiguous or m.flags.f_contiguous):
            m = np.ascontiguousarray(m)
        entries = m
    largest = float(max(entries.max(initial=0.0), -entries.min(initial=0.0)))  # NaN stays NaN
    if not np.isfinite(largest):
        raise InvalidInput(f"`{name}` holds NaN or infinity; impute or drop those rows first.")
    if largest > LARGEST:
        raise InvalidInput(
            f"`{name}` holds numbers of {largest:.1e}, whose squares overflow; scale them first."
        )
    return m


def _narrow(matrix: Any) -> Any:
    """The same CSR matrix, over the same entries, with indices of 32 bits where these suffice.

    Half of what its loops read beside the entries; for 64 bits each would be compiled anew.
    """
    if matrix.indices.itemsize <= 4 or max(*matrix.shape, matrix.nnz) > MOST_NARROW:
        return matrix
    places = (part.astype(np.int32) for part in (matrix.indices, matrix.indptr))
    return type(matrix)((matrix.data, *places), shape=matrix.shape)


def _in_bounds(matrix: Any, name: str) -> None:
    """Refuse index arrays that point outside the matrix: SciPy would read or write there."""
    if matrix.format not in ("csr", "csc", "bsr"):
        return
    pointers, indices = matrix.indptr, matrix.indices
    wide = np.array(matrix.shape) // getattr(matrix, "blocksize", (1, 1))
    major, minor = wide[::-1] if matrix.format == "csc" else wide
    ends = len(pointers) == major + 1 and pointers[0] == 0 and pointers[-1] <= len(indices)
    if not ends or (np.diff(pointers) < 0).any() or len(indices) != len(matrix.data):
        raise InvalidInput(
            f"`{name}` is a broken {matrix.format.upper()} matrix: its `indptr` must rise from 0 "
            "to the number of entries; build it again from its parts."
        )
    if len(indices) and (indices.min() < 0 or indices.max() >= minor):
        raise InvalidInput(
            f"`{name}` is a broken {matrix.format.upper()} matrix: its `indices` go from "
            f"{indices.min()} to {indices.max()}, those of shape {matrix.shape} from 0 to "
            f"{minor - 1}; build it again from its parts."
        )
