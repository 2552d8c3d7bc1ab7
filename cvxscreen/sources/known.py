"""Which objects a front door takes for data in chunks, and what it makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cvxscreen.errors import InvalidInput
from cvxscreen.sources.memory import Mapped
from cvxscreen.streams import Engine, Local, Source

Opened = tuple[Source, Engine]

_KNOWN: list[tuple[Callable[[Any], bool], Callable[[Any], Opened]]] = []


def register(fits: Callable[[Any], bool], build: Callable[[Any], Opened]) -> None:
    """Let `build` turn every X for which ``fits(X)`` into a source and the engine to visit it.

    `fits` must be cheap and import nothing: ask for the name of the type's module.
    """
    _KNOWN.append((fits, build))


def opened(X: Any, kernel: object = None) -> Opened | None:
    """The source and engine behind `X`; None where `X` is an ordinary matrix.

    In order: ``(source, engine)`` as it is; whatever `register` was told of; a source, visited by
    one thread of this process; a two-dimensional `numpy.memmap`. With a `kernel`, a matrix between
    all pairs of rows, a memory map is an ordinary array.

    Raises
    ------
    InvalidInput
        For chunks of another kind with a kernel.
    """
    found = None if kernel is not None and isinstance(X, np.memmap) else _opened(X)
    if found is not None and kernel is not None:
        raise InvalidInput(
            "`kernel` needs the rows of `X` in memory; load them into an array, or leave `kernel` "
            "out for a linear model of data in chunks."
        )
    return found


def _opened(X: Any) -> Opened | None:
    if isinstance(X, tuple) and len(X) == 2 and callable(getattr(X[0], "load", None)):
        return X
    for fits, build in _KNOWN:
        if fits(X):
            return build(X)
    if callable(getattr(X, "load", None)) and hasattr(X, "bounds"):
        return X, Local()
    if isinstance(X, np.memmap) and X.ndim == 2:
        return Mapped(X), Local()
    return None
