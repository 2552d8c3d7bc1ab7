"""Compile functions that call each other, without importing numba until that is wanted.

The sources stay plain Python functions of their module; numba sees copies of them in a namespace of
their own, where the names they call are the compiled ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

Loop = Callable[..., Any]


def together(
    space: Mapping[str, Any], names: Sequence[tuple[str, frozenset[str]]]
) -> dict[str, Loop] | None:
    """The functions `names` of a module's globals `space`, compiled and cached on disk.

    Parameters
    ----------
    space : mapping
        ``globals()`` of the module.
    names : sequence of (name, floating-point freedoms)
        Callees before callers; the freedoms are numba's `fastmath` flags.

    Returns
    -------
    dict of str to callable, or None
        None without numba.
    """
    try:
        import numba
    except ImportError:
        return None
    inside = dict(space)
    for name, freedoms in names:
        plain = space[name]
        copy = FunctionType(plain.__code__, inside, name, plain.__defaults__)
        copy.__module__, copy.__qualname__ = plain.__module__, plain.__qualname__
        inside[name] = numba.njit(cache=True, fastmath=set(freedoms), error_model="numpy")(copy)
    return {name: inside[name] for name, _ in names}
