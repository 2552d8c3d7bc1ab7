"""The record of a solve over data in chunks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cvxscreen.duality import Point
from cvxscreen.errors import InvalidInput
from cvxscreen.solvers.chunk_proof import proven
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

    @cached_property
    def decided(self) -> tuple[int, int, int]:
        """Terms that this answer *proves* to be on a zero, a linear, a quadratic piece; one pass.

        By the gap ball. It bounds no intercept: with one, nothing is proven.
        """
        return proven(self.problem, self.x, self.certificate.gap)

    @property
    def screening(self) -> Any:
        """Nothing is listed.

        Raises
        ------
        InvalidInput
            Always; `decided` counts what the answer proves.
        """
        raise InvalidInput(
            f"the {self.problem.n:,} terms of data in chunks are not listed one by one; `decided` "
            "counts what the answer proves."
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
