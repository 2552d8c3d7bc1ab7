"""What `Faces` keeps from one value of C for the next: the rows it has copied, where it ended."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cvxscreen.designs.rows import Rows
from cvxscreen.losses import Losses
from cvxscreen.problem import Problem
from cvxscreen.solvers.faces_ahead import Line, Place
from cvxscreen.solvers.faces_block import Block
from cvxscreen.solvers.faces_loops import Loops
from cvxscreen.solvers.faces_rows import Sparse

Array = NDArray[np.float64]
Index = NDArray[np.intp]

GROWTH = 1.5
"""The columns to split off may have become so many times more."""


class Memory:
    """The copied rows of one design and its last points, for problems that differ in losses only.

    One path owns one; nothing else may use it at the same time.
    """

    def __init__(self) -> None:
        self._rows: Rows | None = None
        self._source: Sparse | None = None
        self._block: Block | None = None
        self._line: Line | None = None
        self.misses = 0

    def source(self, rows: Rows, root: Array, loops: Loops) -> Sparse:
        """The rows as the loops read them; what was kept of others is forgotten."""
        known = self._source
        if known is None or self._rows is not rows or not np.array_equal(known.root, root):
            self._rows, self._block, self._line = rows, None, None
            self._source = known = Sparse.of(rows, root, loops)
        return known

    def keep(self, block: Block) -> None:
        """Remember `block`, which nobody else will change."""
        self._block = block if block.source is self._source else None

    def leave(self, problem: Problem, place: Place) -> None:
        """Remember where a call for `problem` ended."""
        self._line = Line(problem, place, self._line)

    def ahead(self, problem: Problem) -> Place | None:
        """Where the last two calls point to."""
        if self._line is None or self._source is None:
            return None
        return self._line.ahead(problem, self._source)

    def held(self, urgent: Index, near: Index, losses: Losses, heavy: int) -> Block | None:
        """The block kept, if it suits as it is and has all these rows."""
        block = self._block
        if block is None or block.partial or heavy > GROWTH * block.asked:
            return None
        missing = np.ones(len(losses), dtype=bool)
        missing[block.rows] = False
        if missing[urgent].any() or missing[near].any():
            return None
        self._block = None
        block.renew(losses)
        return block

    def block(self, urgent: Index, near: Index, losses: Losses, heavy: int) -> Block:
        """A block of `urgent` and `near` rows."""
        source, before = self._source, self._block
        if source is None:
            raise ValueError("no rows yet")
        self._block = None
        if before is not None and (before.partial or heavy > GROWTH * before.asked):
            before = None
        return Block(source, urgent, near, losses, heavy, before)
