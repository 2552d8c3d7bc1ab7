"""How long a call may go on, and how far it has come.

Its limits are a time and a number of iterations, looked at between two of them.

A limit that is reached ends the iteration in hand at its next look, never a certificate: the answer
is the best point so far, judged on the full problem as always, and a status that says so.
"""

from __future__ import annotations

from time import perf_counter
from types import TracebackType

from tqdm import tqdm

from cvxscreen._support.validation import number, whole
from cvxscreen.errors import InvalidInput, quoted

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

    Raises
    ------
    InvalidInput
        For a time that is not positive or a number below 1.
    """

    def __init__(self, time_limit: float | None = None, max_iter: int | None = None) -> None:
        if time_limit is not None:
            needed = "a positive number of seconds is needed"
            if not number("time_limit", time_limit, needed) > 0:
                raise InvalidInput(f"`time_limit` is {quoted(time_limit)}; {needed}.")
        if max_iter is not None:
            whole("max_iter", max_iter, 1)
        self._until = None if time_limit is None else perf_counter() + float(time_limit)
        self._left = None if max_iter is None else int(max_iter)
        self.reached = ""

    def spent(self, iterations: int = 0) -> bool:
        """Count `iterations`; whether nothing is left. `reached` then says of what."""
        if self._left is not None:
            self._left -= iterations
            if self._left <= 0:
                self.reached = self.reached or ITERATIONS
        if self._until is not None and perf_counter() >= self._until:
            self.reached = self.reached or TIME
        return bool(self.reached)

    def each(self, max_iter: int | None) -> Limits:
        """Limits of one of several calls: the same moment to stop, iterations of its own."""
        part = Limits(None, max_iter)
        part._until = self._until
        return part

    def within(self, seconds: float) -> None:
        """Stop in so many seconds at the latest."""
        until = perf_counter() + seconds
        self._until = until if self._until is None else min(self._until, until)

    @property
    def seconds(self) -> float | None:
        """Seconds left; None without a limit."""
        return None if self._until is None else max(self._until - perf_counter(), 0.0)

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
        self._bar = tqdm(total=total, desc=text, dynamic_ncols=True, leave=False) if shown else None

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def step(self, note: str = "") -> None:
        """One more step is finished; `note` is shown behind the bar."""
        if self._bar is None:
            return
        if note:
            self._bar.set_postfix_str(note, refresh=False)
        self._bar.update()
