"""Passes over the data shared by threads, to the same bits however many there are.

A pass is cut into parts by the shape of the data alone, and what the parts give is put together in
their order: who makes which part is left to chance, what is computed is not. The work of a part is
a product or a compiled loop, which let other threads run meanwhile.

How many threads there are holds for everything that is called inside a block (`cores`), in the
thread that entered it: no function on the way has to pass it on, and the workers of other pools,
which begin without it, do not start threads of their own. Data of one part start none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from cvxscreen._support.limits import ONE_BLAS_THREAD
from cvxscreen._support.validation import whole

Given = ParamSpec("Given")
Part = TypeVar("Part")
Result = TypeVar("Result")


class Team:
    """The calling thread and those that help it, `size` in all; they start with the first pass.

    Parameters
    ----------
    size : int
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._pool: Any = None

    def each(self, work: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
        """The results of the parts, in their order; see `each`."""
        results: list[Any] = [None] * len(parts)
        waiting = iter(range(len(parts)))

        def share() -> None:
            _TEAM.set(None)  # a pass within a part is made by whoever makes the part
            for k in waiting:  # one step of an iterator over a range is never torn
                results[k] = work(parts[k])

        # What NumPy is to ignore goes along with the context.
        helpers = [
            self._helpers().submit(copy_context().run, share)
            for _ in range(min(self.size, len(parts)) - 1)
        ]
        try:
            copy_context().run(share)
        finally:  # after Ctrl-C, too: nobody begins another part, and none is left at work
            for _ in waiting:
                pass
            errors = [helper.exception() for helper in helpers if not helper.cancel()]
        for error in filter(None, errors):
            raise error
        return results

    def _helpers(self) -> Any:
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(self.size - 1, "cvxscreen")
        return self._pool

    def leave(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()


_TEAM: ContextVar[Team | None] = ContextVar("team", default=None)


def each(work: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    """``[work(part) for part in parts]``, by the threads of the innermost `cores`.

    Called from several threads at once: `work` writes to nothing but what belongs to its part.

    Parameters
    ----------
    work : callable
    parts : sequence
        Cut without regard to the number of threads.
    """
    team = _TEAM.get()
    if team is None or len(parts) < 2:
        return [work(part) for part in parts]
    with ONE_BLAS_THREAD:
        return team.each(work, parts)


@contextmanager
def cores(threads: int | None) -> Iterator[None]:
    """Let `each` inside the block use so many threads; None leaves things as they are."""
    size = checked(threads)
    if size is None:
        yield
        return
    team = Team(1 if _among_jobs() else size)
    token = _TEAM.set(team)
    try:
        yield
    finally:
        _TEAM.reset(token)
        team.leave()


def with_threads(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Decorate a function that has an argument `threads`: its call is within `cores`."""

    @wraps(function)
    def call(*args: Given.args, **options: Given.kwargs) -> Result:
        threads: Any = options.get("threads")
        with nullcontext() if threads is None else cores(threads):
            return function(*args, **options)

    return call


def checked(threads: Any) -> int | None:
    """The number of threads asked for, -1 being one for each core; None is None."""
    if threads is None:
        return None
    if isinstance(threads, int) and threads == -1:
        from joblib import cpu_count

        return int(cpu_count())
    return whole("threads", threads, 1)


def _among_jobs() -> bool:
    """Whether this is a worker of joblib: the cores are shared out already."""
    parallel = sys.modules.get("joblib.parallel")
    return parallel is not None and bool(parallel.get_active_backend()[0].nesting_level)
