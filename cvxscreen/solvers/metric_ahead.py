"""Terms that one look at all of them decides for several values of lambda in a row.

For a pair (M, alpha) the midpoint sphere at ``s = 1 / lam`` has its centre at ``(M + s G) / 2``,
``G = K + Gamma``, and ``r^2 = |M - s G|^2 / 4 + s (FY + <M, Gamma>)``: the centre is linear in s,
r^2 is convex. What the two spheres at the ends of an interval, both with the larger radius, put on
one piece is on that piece at every lambda between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cvxscreen.solvers.metric_shrink import shrink_together
from cvxscreen.solvers.metric_task import State, Task

SHARE = 0.2
"""Worth keeping if no more terms than this share are left."""

PROMISING = 0.005
"""Worth a look if no more terms than this share were left at the lam the look is from."""

LONGEST = 16
"""How many values of lam to look ahead at most."""


@dataclass
class Ahead:
    """The task with what is decided between two values of lam taken off.

    Attributes
    ----------
    span : int
        How many values of lam to look ahead; doubled where that worked, halved where it did not.
    task : Task or None
        Valid for ``low <= lam <= high``.
    dropped, fixed : int
        Terms it lacks: on the zero piece, on the linear one.
    """

    span: int = 4
    task: Task | None = None
    low: float = 0.0
    high: float = 0.0
    dropped: int = 0
    fixed: int = 0

    def at(self, lam: float) -> Task | None:
        """The reduced task at `lam`, where there is one."""
        if self.task is None or not self.low <= lam <= self.high:
            return None
        return self.task.at(lam)

    def look(self, task: Task, state: State, left: int, coming: Sequence[float]) -> None:
        """Decide terms of `task` from `state` for the values of lam that come next.

        `left` terms were undecided at the lam of `state` itself.
        """
        self.task, values = None, coming[: self.span]
        if len(values) < 2 or left > PROMISING * len(task.terms):
            return
        self.low, self.high = min(values), max(values)
        spheres = [task.at(lam).sphere(state) for lam in (self.low, self.high)]
        radius = max(sphere.radius for sphere in spheres)
        wide = [sphere._replace(radius=radius) for sphere in spheres]
        found = shrink_together(task, wide, state, int(SHARE * len(task.terms)))
        if found is None:
            self.span = max(self.span // 2, 2)
            return
        self.task, self.dropped, self.fixed = found
        self.span = min(2 * self.span, LONGEST)
