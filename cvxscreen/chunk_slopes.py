"""The dual point of a problem over data in chunks, known without an array over the terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen.chunk_rows import Chunk
from cvxscreen.chunk_terms import ChunkTerms
from cvxscreen.chunks import Chunks
from cvxscreen.errors import InvalidInput
from cvxscreen.problem import Problem
from cvxscreen.row_columns import Listed

Array = NDArray[np.float64]


def in_chunks(problem: Problem) -> tuple[Chunks, ChunkTerms]:
    """The design and the loss terms of a problem over data in chunks.

    Raises
    ------
    InvalidInput
        For any other problem.
    """
    if not (isinstance(problem.design, Chunks) and isinstance(problem.losses, ChunkTerms)):
        raise InvalidInput("`problem` is not over data in chunks.")
    return problem.design, problem.losses


@dataclass(frozen=True, eq=False)
class Slopes:
    """Slopes of the losses at `x`, except for a few terms whose slopes are listed.

    It becomes an array, shape (n,), where one is asked for: ``np.asarray(slopes)``, ``slopes[i]``
    or ``-slopes``; each of these is a pass over the data.

    Attributes
    ----------
    problem : Problem
        Over data in chunks.
    x : array, shape (d,)
    listed : Listed
    """

    problem: Problem
    x: Array
    listed: Listed

    @property
    def shape(self) -> tuple[int]:
        """``(n,)``."""
        return (self.problem.n,)

    def __len__(self) -> int:
        return self.problem.n

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        design, terms = in_chunks(self.problem)
        task = _Values(self.x, terms, design.intercept)
        columns = (design.scale, terms.target, terms.weight, self.listed)
        found = np.concatenate(design.engine.run(task, design.source, columns))
        return found if dtype is None else found.astype(dtype)

    def __getitem__(self, index: Any) -> Any:
        return np.asarray(self)[index]

    def __neg__(self) -> Array:
        return -np.asarray(self)


class _Values:
    """The task that writes the slopes out."""

    def __init__(self, x: Array, terms: ChunkTerms, intercept: bool) -> None:
        self.x, self.intercept = x, intercept
        self.unit, self.factor = terms.unit, terms.factor

    def __call__(
        self, block: Any, start: int, scale: Any, target: Any, weight: Any, listed: Any
    ) -> list[Array]:
        chunk = Chunk.of(block, scale, self.intercept)
        losses = self.unit.rows(len(chunk), self.factor, target, weight)
        theta = losses.slope(chunk.margins(self.x))
        theta[listed[0]] = listed[1]
        return [theta]

    def merge(self, left: list[Array], right: list[Array]) -> list[Array]:
        """In the order of the rows."""
        return left + right
