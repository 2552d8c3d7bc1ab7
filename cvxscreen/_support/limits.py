"""What a call may use: time, iterations, threads, memory; and how far it has come.

Time and iterations are looked at between two iterations. A limit that is reached ends the iteration
in hand at its next look, never a certificate: the answer is the best point so far, judged on the
full problem as always, and a status that says so. Memory is asked for before anything large is
made, rather than found out by a crash.

Passes over the data are shared by threads (`each`), to the same bits however many there are. A pass
is cut into parts by the shape of the data alone, and what the parts give is put together in their
order: who makes which part is left to chance, what is computed is not. The work of a part is a
product or a compiled loop, which let other threads run meanwhile.

How many threads there are holds for everything that is called inside a block (`cores`), in the
thread that entered it: no function on the way has to pass it on, and the workers of other pools,
which begin without it, do not start threads of their own. Data of one part start none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from functools import cache, wraps
from pathlib import Path
from threading import Lock, Thread, current_thread
from time import perf_counter
from typing import Any, ParamSpec, TypeVar

from cvxscreen._support.validation import flag, number, whole
from cvxscreen.errors import InvalidInput, TooLarge, quoted

TIME, ITERATIONS = "time_limit", "iteration_limit"
"""The statuses of an answer that a limit has cut short."""


class Limits:
    """What one call has left.

    Parameters
    ----------
    time_limit : float, optional
        Seconds of wall time from now on.
    max_iter : int, optional
        Iterations of whatever solver runs, over all of its calls.
    clock : callable, optional
        Another clock than that of wall time: seconds since some moment.

    Raises
    ------
    InvalidInput
        For a time that is not positive or a number below 1.
    """

    def __init__(
        self, time_limit: float | None = None, max_iter: int | None = None, *,
        clock: Callable[[], float] | None = None,
    ) -> None:
        if time_limit is not None:
            needed = "a positive number of seconds is needed"
            if not number("time_limit", time_limit, needed) > 0:
                raise InvalidInput(f"`time_limit` is {quoted(time_limit)}; {needed}.")
        if max_iter is not None:
            whole("max_iter", max_iter, 1)
        self._clock = perf_counter if clock is None else clock
        self._until = None if time_limit is None else self._clock() + float(time_limit)
        self._left = None if max_iter is None else int(max_iter)
        self.reached = ""

    def spent(self, iterations: int = 0) -> bool:
        """Count `iterations`; whether nothing is left. `reached` then says of what."""
        if self._left is not None:
            self._left -= iterations
            if self._left <= 0:
                self.reached = self.reached or ITERATIONS
        if self._until is not None and self._clock() >= self._until:
            self.reached = self.reached or TIME
        return bool(self.reached)

    def each(self, max_iter: int | None) -> Limits:
        """Limits of one of several calls: the same moment to stop, iterations of its own."""
        part = Limits(None, max_iter, clock=self._clock)
        part._until = self._until
        return part

    def within(self, seconds: float) -> None:
        """Stop in so many seconds at the latest."""
        until = self._clock() + seconds
        self._until = until if self._until is None else min(self._until, until)

    @property
    def seconds(self) -> float | None:
        """Seconds left; None without a limit."""
        return None if self._until is None else max(self._until - self._clock(), 0.0)

    @property
    def iterations(self) -> int | None:
        """Iterations left; None without a limit."""
        return None if self._left is None else max(self._left, 0)

    def word(self, ok: bool) -> str:
        """The status of an answer whose certificate holds or does not."""
        return "optimal" if ok else self.reached or "inaccurate"


UNLIMITED = Limits()
"""No limits; shared, since it never changes."""


class Progress:
    """A bar over `total` steps with an estimate of the time left; silent when not `shown`."""

    def __init__(self, total: int | None, text: str, *, shown: bool) -> None:
        self._bar: Any = None
        if flag("progress", shown):
            from tqdm import tqdm

            self._bar = tqdm(total=total, desc=text, dynamic_ncols=True, leave=False)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def step(self, note: str = "", *, count: int = 1) -> None:
        """So many more steps are finished; `note` is shown behind the bar."""
        if self._bar is None:
            return
        if note:
            self._bar.set_postfix_str(note, refresh=False)
        self._bar.update(count)


# -- threads ---------------------------------------------------------------------------------------


class OneBlasThread:
    """A block whose matrix products and factorisations take one thread each; reentrant.

    Threads of BLAS wait for each other by spinning: over many small products they cost several
    times the CPU of one, and where other work runs as well they wait for whole time slices. The
    number of threads is the process's: the thread that is in such a block first sets it and sets it
    back, and blocks of other threads meanwhile change nothing.
    """

    def __init__(self) -> None:
        self._lock, self._depth = Lock(), 0
        self._owner: Thread | None = None
        self._limiter: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._owner is None:
                self._owner = current_thread()
                self._limiter = blas_libraries().limit(limits=1, user_api="blas")
            self._depth += self._owner is current_thread()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            if self._owner is not current_thread():
                return
            self._depth -= 1
            if not self._depth:
                self._owner = None
                self._limiter.restore_original_limits()


@cache
def blas_libraries() -> Any:
    """The libraries of BLAS in this process; to find them takes milliseconds, to set one none."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


ONE_BLAS_THREAD = OneBlasThread()
"""The only one: it knows who has set the number of the whole process."""
FEW_ENTRIES = 50_000
"""Entries of the data up to which BLAS is left alone: it takes one thread anyway, and to find its
libraries takes some 5 ms once. With two threads on two busy cores 2,000 x 50 entries took twice the
CPU seconds, 20,000 x 50 and 5,000 x 300 10 to 30 times, 3,000 x 1,500 three times."""
LONG_PRODUCT = 2**36
"""Multiplications from which on a product takes a second or more (69e9, at 20 to 60e9 a second):
threads that wait for it matter little."""


def blas_threads(entries: int, smaller: int = 0) -> AbstractContextManager[None]:
    """What to multiply so many entries in, over and over: `ONE_BLAS_THREAD`, if they are many.

    Unless `smaller` of rows and columns makes the product of the data with themselves a long one.
    """
    if entries <= FEW_ENTRIES or entries * smaller > LONG_PRODUCT:
        return nullcontext()
    return ONE_BLAS_THREAD


# -- memory ----------------------------------------------------------------------------------------


SMALL = 2**26
"""Requests up to this many bytes are never questioned: 64 MiB, which any machine that has loaded
numpy, scipy and CVXPY (some 200 MiB) has left."""

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


def has_room(size: float) -> bool:
    """Whether `size` bytes fit the machine, or what `memory_limit` allows."""
    limit = _SET.get()
    if size <= SMALL and limit is None:
        return True
    have = memory_of_machine() if limit is None else limit
    return have is None or size <= have


def require(size: float, what: str, instead: str) -> None:
    """Refuse to make `what` of `size` bytes where that cannot fit.

    Raises
    ------
    TooLarge
        Naming the size, the limit, and what to do `instead`.
    """
    if has_room(size):
        return
    limit = _SET.get()
    have = memory_of_machine() if limit is None else limit
    whose = "this machine has" if limit is None else "`memory_limit` allows"
    raise TooLarge(
        f"{what} needs {readable(size)} ({int(size):,} bytes) and {whose} {readable(have or 0)}: "
        f"{instead}, or raise the limit with `cvxscreen.memory_limit(...)`."
    )


# -- passes shared by threads ----------------------------------------------------------------------

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
        """End the threads, once their work is done."""
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
