"""Warnings of the solvers we call, held back without harm to other threads.

`warnings.catch_warnings` saves and restores a list that all threads share: two that overlap leave
it as neither found it. Here the first to come in saves it and the last to leave restores it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

_LOCK = Lock()
_INSIDE: list[Any] = []
"""One entry a thread inside; the first is what restores the filters."""


@contextmanager
def quiet() -> Iterator[None]:
    """Ignore warnings inside the block; other threads are silent too while it lasts."""
    with _LOCK:
        _INSIDE.append(None if _INSIDE else _silence())
    try:
        yield
    finally:
        with _LOCK:
            restore = _INSIDE[0]
            _INSIDE.pop()
            if not _INSIDE:
                restore.__exit__(None, None, None)


def _silence() -> Any:
    saved = warnings.catch_warnings()
    saved.__enter__()
    warnings.simplefilter("ignore")
    return saved
