"""The record of a solve over more terms than are ever listed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cvxscreen.duality import Point
from cvxscreen.errors import InvalidInput
from cvxscreen.solvers.solution import Solution


@dataclass(frozen=True, eq=False)
class StreamedSolution(Solution):
    """A solution whose dual variables are known by the metric: ``alpha = -losses.slope(margins)``.

    `theta` is empty, and `screening` counts instead of listing.
    """

    decided: tuple[int, int] = (0, 0)

    @property
    def screening(self) -> Any:
        """Nothing is listed.

        Raises
        ------
        InvalidInput
            Always; `decided` counts the terms proven on the zero and on the linear piece.
        """
        raise InvalidInput(
            f"a set of {self.problem.n:,} terms is not listed one by one; `decided` counts them."
        )

    def point(self) -> Point:
        """Not available without arrays over the terms.

        Raises
        ------
        InvalidInput
            Always.
        """
        raise InvalidInput("a streamed solution is no reference for bounds; start from its `x`.")

    def __str__(self) -> str:
        zero, linear = self.decided
        return (
            f"Solution ({self.status}) of {self.problem.n:,} terms, {zero:,} proven zero, "
            f"{linear:,} proven linear\n{self.certificate}"
        )
