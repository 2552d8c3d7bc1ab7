"""What fits into memory: asked before anything large is made, rather than found out by a crash."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from cvxscreen._support.validation import number
from cvxscreen.errors import InvalidInput, TooLarge, quoted

SMALL = 2**26
"""Requests up to this many bytes are never questioned."""

CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where Linux says what a container may use (versions 2 and 1)."""

_SET: ContextVar[int | None] = ContextVar("memory_limit", default=None)


def memory_of_machine() -> int | None:
    """Bytes of memory this process may use: of the machine, its container, its ``ulimit -v``.

    None where the system does not say.
    """
    found: list[int] = []
    try:
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):  # not a POSIX system
        return None
    for place in CGROUPS:
        try:
            found.append(int(Path(place).read_text("ascii")))
        except (OSError, ValueError):  # no such version, or the word "max"
            continue
    try:
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            found.append(soft)
    except (ImportError, OSError):
        pass
    return min(size for size in found if size > 0)


@contextmanager
def memory_limit(size: float) -> Iterator[None]:
    """Refuse single requests for more than `size` bytes inside the block, in this thread.

    The default is the memory of the machine (or container). A larger value lets a request through
    that would be refused, a smaller one leaves room for others.

    Parameters
    ----------
    size : float
        Bytes; ``float("inf")`` for no limit.

    Raises
    ------
    InvalidInput
        If `size` is not positive.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(2000, 3)
    >>> with cvxscreen.memory_limit(2**25):                     # 32 MiB, also for the kernel's rows
    ...     problem = cvxscreen.svm(X, y, kernel="rbf", cache_bytes=2**24)
    >>> problem.n
    2000
    """
    if not number("size", size, "a positive number of bytes is needed") > 0:
        raise InvalidInput(f"`size` is {quoted(size)}; a positive number of bytes is needed.")
    token = _SET.set(int(min(size, 2.0**62)))
    try:
        yield
    finally:
        _SET.reset(token)


def readable(size: float) -> str:
    """Bytes for people: ``74.5 GiB``."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def require(size: float, what: str, instead: str) -> None:
    """Refuse to make `what` of `size` bytes where that cannot fit.

    Raises
    ------
    TooLarge
        Naming the size, the limit, and what to do `instead`.
    """
    if size <= SMALL and _SET.get() is None:
        return
    limit = _SET.get()
    have = memory_of_machine() if limit is None else limit
    if have is None or size <= have:
        return
    whose = "this machine has" if limit is None else "`memory_limit` allows"
    raise TooLarge(
        f"{what} needs {readable(size)} ({int(size):,} bytes) and {whose} {readable(have)}: "
        f"{instead}, or raise the limit with `cvxscreen.memory_limit(...)`."
    )
