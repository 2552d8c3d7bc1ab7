"""Whether screening pays on a path, counted in work, never in seconds: runs must repeat exactly."""

from __future__ import annotations

from dataclasses import dataclass

from cvxscreen.solvers.metric_task import Task

SMALL = 2e5
"""Below this work an evaluation does not matter, and its terms are always screened."""

LONGEST = 16
"""Values of lam without screening between two trials, at most."""


def work(task: Task) -> float:
    """About the nanoseconds one evaluation takes, without what every one takes."""
    table = task.table
    dense = 0.0 if table.diagonal else 0.07 * len(table.points) * table.d**2
    return 0.4 * len(table) * table.d + 0.5 * len(task.terms) + dense


def shrinking(task: Task, reduced: Task) -> float:
    """The same for one shrinking of `task` to `reduced`."""
    table = task.table
    copied = 0.0 if reduced is task else work(reduced)
    return 1e5 + (0.2 * table.d + 10.0) * len(table) + 0.5 * len(task.terms) + copied


@dataclass
class Thrift:
    """Screening is left out for a while where it cost more than it saved.

    Attributes
    ----------
    pause : int
        For how many values of lam the next time; doubled every time.
    """

    pause: int = 1
    _left: int = 0

    def screens(self) -> bool:
        """Whether to screen at the next value of lam."""
        if self._left:
            self._left -= 1
            return False
        return True

    def learn(self, saved: float, spent: float) -> None:
        """Take in what screening saved and what it cost at one value of lam."""
        if saved >= spent:
            self.pause = 1
        else:
            self._left, self.pause = self.pause, min(2 * self.pause, LONGEST)
