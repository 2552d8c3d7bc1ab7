"""The record of a solve over data in chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cvxscreen.duality import Point
from cvxscreen.errors import InvalidInput
from cvxscreen.solvers.solution import Solution


@dataclass(frozen=True, eq=False)
class ChunkedSolution(Solution):
    """A solution that holds no array over the terms.

    `theta` becomes an array where one is asked for (`cvxscreen.chunk_slopes.Slopes`), and so does
    `alpha`: one pass over the data each.

    Attributes
    ----------
    passes : int
        Passes over the data of this call, the certificate's included.
    """

    passes: int = 0

    @property
    def screening(self) -> Any:
        """Nothing is listed.

        Raises
        ------
        InvalidInput
            Always; the last of `rounds` counts what was decided.
        """
        raise InvalidInput(
            f"the {self.problem.n:,} terms of data in chunks are not listed one by one; the last "
            "of `rounds` counts what was decided."
        )

    def point(self) -> Point:
        """Not available without arrays over the terms.

        Raises
        ------
        InvalidInput
            Always.
        """
        raise InvalidInput(
            "a solution over data in chunks is no reference for bounds; for data that fit in "
            "memory use reference_point(p, s.x, np.asarray(s.theta))."
        )

    def __str__(self) -> str:
        last = self.rounds[-1] if self.rounds else None
        kept = f", {last.kept:,} in the last reduced problem" if last else ""
        return (
            f"Solution ({self.status}) of {self.problem.n:,} terms in chunks{kept}; "
            f"{self.passes} passes, {len(self.rounds)} rounds, {self.seconds:.3g} s\n"
            f"{self.certificate}"
        )
