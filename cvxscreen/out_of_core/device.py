"""Rows in the memory of a device, held by another array library: passes are made where they are.

Libraries that follow the Python array API standard (JAX, ...), and CuPy and PyTorch through
`array_api_compat`. Products run on the device, in double precision whatever the rows are stored in:
those of two float32 are exact there, so every decision keeps the rounding margins of double
precision. The library may sum in any order; within a strip of rows the bounds allow for that. Only
margins, sums and the few rows that are hard to decide come back.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.validation import whole
from cvxscreen.errors import InvalidInput, MissingDependency
from cvxscreen.out_of_core.streams import (
    STRIP,
    LocalEngine,
    Opened,
    OwnProducts,
    even_bounds,
    register,
)

CHUNK_BYTES = 2**28
"""Bytes of a chunk where nobody says otherwise: twice or three times this is needed beside `X`."""

_COMPATIBLE = ("cupy", "torch")
"""Libraries that follow the standard only through `array_api_compat`."""
_HOST = (1, 3)
"""DLPack's names of memory that a processor reads: its own (``kDLCPU``), and what is pinned for a
GPU (``kDLCUDAHost``)."""
_UNREADABLE = (TypeError, RuntimeError, ValueError, BufferError)
"""What libraries raise where numpy may not look at their memory."""


def namespace_of(X: Any) -> Any:
    """The functions of the library that holds `X`.

    Raises
    ------
    MissingDependency
        For a library that follows the standard only through `array_api_compat`.
    InvalidInput
        For anything else.
    """
    try:
        import array_api_compat
    except ImportError:
        if hasattr(X, "__array_namespace__"):
            return X.__array_namespace__()
        if _library(X) in _COMPATIBLE:
            raise MissingDependency(
                f"`X` is a {_library(X)}.{type(X).__name__}, which needs array_api_compat; it "
                'comes with: pip install "cvxscreen[gpu]"'
            ) from None
    else:
        if array_api_compat.is_array_api_obj(X):
            return array_api_compat.array_namespace(X)
    raise InvalidInput(
        f"`X` is a {type(X).__name__}, which does not follow the array API standard; an array that "
        "does is needed."
    )


def to_host(array: Any) -> NDArray[Any]:
    """`array` in the memory of this process, as numpy knows it, where the caller may write."""
    if hasattr(array, "get"):  # CuPy
        held = array.get()
    elif hasattr(array, "cpu"):  # PyTorch
        held = array.detach().cpu().numpy()
    else:
        try:
            held = np.asarray(array)
        except _UNREADABLE:
            held = np.from_dlpack(array, device="cpu")
    return np.require(held, requirements="W")  # JAX keeps what it has copied, and lends it to read


def on_another_device(X: Any) -> bool:
    """Whether `X` is an array of another library that lies where numpy cannot read it.

    JAX copies from its device for whoever asks; its arrays stay there as long as it has doubles.
    """
    foreign = hasattr(X, "__array_namespace__") or _library(X) in _COMPATIBLE
    if not foreign or isinstance(X, np.ndarray | np.generic) or hasattr(X, "tocsr"):
        return False
    try:
        np.asarray(X[:1, ...] if X.ndim else X)
    except _UNREADABLE:
        return True
    return _off_host(X) and _has_double(namespace_of(X), X)


def _off_host(X: Any) -> bool:
    try:
        kind, _ = X.__dlpack_device__()
    except Exception:  # an array without DLPack, or spread over several devices
        return False
    return int(kind) not in _HOST


def _library(X: Any) -> str:
    return type(X).__module__.partition(".")[0]


class DeviceBlock(OwnProducts, Immutable):
    """A chunk on its device; indexed with integers it gives rows in this process's memory.

    Attributes
    ----------
    xp : namespace
    rows : array of that library, shape (n, d)
    """

    xp: Any
    rows: Any

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.rows.shape[0], self.rows.shape[1]

    def to_device(self, values: Any) -> Any:
        """A vector of doubles or indices on the same device."""
        return self.xp.asarray(np.ascontiguousarray(values), device=self.rows.device)

    def double(self) -> Any:
        """The rows in double precision."""
        return self.xp.astype(self.rows, self.xp.float64, copy=False)

    def finite(self) -> bool:
        """Whether no entry is NaN or infinite; only the answer leaves the device."""
        return bool(self.xp.all(self.xp.isfinite(self.rows)))

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        index = np.arange(self.shape[0])[rows]
        return np.array(to_host(self.xp.take(self.rows, self.to_device(index), axis=0)), order="C")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(to_host(self.rows), dtype=dtype)

    def __abs__(self) -> NDArray[Any]:
        return np.abs(np.asarray(self))

    def margins(self, x: Any) -> NDArray[np.float64]:
        """See `OwnProducts`."""
        return np.asarray(to_host(self.xp.matmul(self.double(), self.to_device(x))))

    def squares(self, weights: Any) -> NDArray[np.float64]:
        """See `OwnProducts`."""
        rows = self.double()
        return np.asarray(to_host(self.xp.matmul(rows * rows, self.to_device(weights))))

    def adjoint(self, theta: Any) -> NDArray[np.float64]:
        """Strips of rows side by side, then their sum, then the rows that are left."""
        xp, rows, weights = self.xp, self.double(), self.to_device(theta)
        n, d = self.shape
        strips = n // STRIP
        whole = strips * STRIP
        out = np.zeros(d)
        if strips:
            sums = xp.matmul(
                xp.reshape(weights[:whole], (strips, 1, STRIP)),
                xp.reshape(rows[:whole, :], (strips, STRIP, d)),
            )
            out += to_host(xp.sum(sums, axis=0))[0]
        if whole < n:
            out += to_host(xp.matmul(weights[whole:], rows[whole:, :]))
        return out


class DeviceRows:
    """The rows of an array on a device, cut into even chunks; none is copied before it is used.

    Parameters
    ----------
    X : array of a library that follows the array API standard, shape (n, d)
    chunk_bytes : int
        About how large a chunk is.

    Raises
    ------
    InvalidInput
        For another shape, entries that are no real numbers, or a device without double precision.
    """

    sparse = False

    def __init__(self, X: Any, chunk_bytes: int = CHUNK_BYTES) -> None:
        xp, shape = namespace_of(X), tuple(X.shape)
        self.xp, self.array = xp, X.detach() if hasattr(X, "detach") else X  # no gradients
        if len(shape) != 2 or 0 in shape:
            raise InvalidInput(f"`X` has shape {shape}; a matrix (n, d) with rows is needed.")
        if not xp.isdtype(X.dtype, ("real floating", "integral", "bool")):
            raise InvalidInput(f"`X` has dtype {X.dtype}; real numbers are needed.")
        if not _has_double(xp, X):
            raise InvalidInput(
                f"`X` is on the device {X.device}, where {xp.__name__} has no double precision "
                "(JAX: set jax_enable_x64); copy it into a numpy array."
            )
        self.shape: tuple[int, int] = (int(shape[0]), int(shape[1]))
        single = X.dtype == xp.float32
        self.kept = single or X.dtype == xp.float64
        room = whole("chunk_bytes", chunk_bytes, 1)
        width = self.shape[1] * (4 if single else 8)
        self.bounds: tuple[int, ...] = even_bounds(self.shape[0], width, room)

    def load(self, k: int) -> DeviceBlock:
        """Chunk `k`, a view where the library makes one."""
        rows = self.array[self.bounds[k] : self.bounds[k + 1], :]
        if not self.kept:
            rows = self.xp.astype(rows, self.xp.float64)
        return DeviceBlock(self.xp, rows)


def _has_double(xp: Any, X: Any) -> bool:
    """Whether a number becomes a double when it is told to; some libraries only pretend."""
    try:
        one = X[(slice(1),) * X.ndim]
        with warnings.catch_warnings(action="ignore"):  # JAX says that it pretends
            return bool(xp.astype(one, xp.float64).dtype == xp.float64)
    except (*_UNREADABLE, AttributeError):
        return False


def on_device(X: Any, *, chunk_bytes: int = CHUNK_BYTES, workers: int = 1) -> Opened:
    """Make the passes over `X` where it is; the result stands for `X` in `svm` and `regression`.

    Arrays that numpy cannot read (on a GPU) need this only to choose the size of chunks, and how
    many threads work on what comes back.

    Parameters
    ----------
    X : array of a library that follows the array API standard, or torch.Tensor, shape (n, d)
        float32 and float64 are used as they are, other types are converted chunk by chunk.
    chunk_bytes : int
        Memory for a chunk; its copy in double precision is made beside it.
    workers : int
        Threads, each with a chunk of its own: while one chunk is multiplied on the device, the
        loss terms of others are looked at here. The answer does not depend on their number.

    Returns
    -------
    source, engine
        In place of `X`.

    Raises
    ------
    InvalidInput
        For another kind of array, or a device without double precision.
    MissingDependency
        For a torch.Tensor without `array_api_compat`.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> rows = cvxscreen.on_device(X)                           # or a torch.Tensor on a GPU
    >>> cvxscreen.solve(cvxscreen.svm(rows, y)).certificate.ok
    True
    """
    return DeviceRows(X, chunk_bytes), LocalEngine(whole("workers", workers, 1))


def on_host(*values: Any) -> Sequence[Any]:
    """The same values, those on a device copied from there."""
    return [to_host(one) if on_another_device(one) else one for one in values]


register(on_another_device, on_device)
