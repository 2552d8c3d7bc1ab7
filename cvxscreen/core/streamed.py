"""Problems over data in chunks: loss terms and slopes without an array over the terms; a survey.

* `UnitLoss` and `ChunkTerms`: every term is one loss, moved to its target and times its weight, so
  a chunk's table of losses follows from the chunk.
* `Slopes`: the dual point that is the losses' subgradient at x, but for a few listed terms.
* `surveyed_design`: the first pass. It checks that all entries are numbers, finds the longest row
  (on which rounding depends) and draws a sample of rows to make a first guess from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.validation import positive
from cvxscreen.core.losses import FIELDS, Losses, LossTerms
from cvxscreen.core.problem import Problem
from cvxscreen.designs.chunks import ABSENT, Chunk, Chunks, ListedValues, SampledRows, entries
from cvxscreen.errors import InvalidInput
from cvxscreen.out_of_core.streams import Column, Engine, Source, Task

Array = NDArray[np.float64]


@dataclass(frozen=True)
class UnitLoss:
    """A loss of weight 1: the five numbers of `Losses`, where ``b`` is that of rows without target.

    With weight c it has ``q / c``, ``c lo`` and ``c hi``; with weight 0 it is no term at all.
    """

    b: float
    e: float
    q: float
    lo: float
    hi: float

    def rows(self, n: int, factor: float, target: Any, weight: Any) -> Losses:
        """`n` rows with weights ``factor weight`` and kinks at `target`."""
        if weight is None and target is None:
            return Losses.repeated(
                n, self.b, self.e, self.q / factor, self.lo * factor, self.hi * factor
            )
        b = np.full(n, self.b) if target is None else np.asarray(target, dtype=np.float64)
        if weight is None:
            return Losses(
                b, self.e, self.q / factor,  # type: ignore[arg-type]
                self.lo * factor, self.hi * factor,  # type: ignore[arg-type]
            )
        c = factor * np.asarray(weight, dtype=np.float64)
        used = c > 0
        safe = np.where(used, c, 1.0)
        made = (b, self.e, self.q / safe, self.lo * safe, self.hi * safe)
        return Losses(*(np.where(used, column, 0.0) for column in made))


def _whole(name: str) -> Any:
    """A column of every row, made anew whenever it is asked for, shape (n,)."""
    return property(lambda terms: np.asarray(getattr(terms.part(slice(0, terms.n)), name)))


class ChunkTerms(LossTerms, Immutable):
    """A table of losses that is made a chunk at a time.

    The columns `b`, `e`, `q`, `lo`, `hi` are there as well, for whoever has the memory.

    Parameters
    ----------
    n : int
    unit : UnitLoss
        The loss of weight 1.
    target, weight : Column
        ``b`` and the weight of each row, or `ABSENT`.
    factor : float
        What every weight is multiplied by.
    """

    n: int
    unit: UnitLoss
    target: Column = ABSENT
    weight: Column = ABSENT
    factor: float = 1.0

    any_hard = False
    b, e, q, lo, hi = (_whole(name) for name in FIELDS)

    def __len__(self) -> int:
        return self.n

    def part(self, rows: slice) -> Losses:
        """The rows ``start:stop``."""
        return self.unit.rows(
            rows.stop - rows.start, self.factor, self.target[rows], self.weight[rows]
        )

    def take(self, index: Any) -> Losses:
        """The rows at `index` (integers or a mask)."""
        rows = np.asarray(index)
        rows = np.flatnonzero(rows) if rows.dtype == bool else rows
        return self.unit.rows(
            len(rows), self.factor, entries(self.target, rows), entries(self.weight, rows)
        )

    def scaled(self, factor: float) -> ChunkTerms:
        """The losses multiplied by ``factor > 0``."""
        return replace(self, factor=self.factor * positive("factor", factor))


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


class Slopes(Immutable):
    """Slopes of the losses at `x`, except for a few terms whose slopes are listed.

    It becomes an array, shape (n,), where one is asked for: ``np.asarray(slopes)``, ``slopes[i]``
    or ``-slopes``; each of these is a pass over the data.

    Attributes
    ----------
    problem : Problem
        Over data in chunks.
    x : array, shape (d,)
    listed : ListedValues
    """

    problem: Problem
    x: Array
    listed: ListedValues

    @property
    def shape(self) -> tuple[int]:
        """``(n,)``."""
        return (self.problem.n,)

    def __len__(self) -> int:
        return self.problem.n

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        design, terms = in_chunks(self.problem)
        task = SlopesTask(self.x, terms, design.intercept)
        columns = (design.scale, terms.target, terms.weight, self.listed)
        found = np.concatenate(design.engine.run(task, design.source, columns))
        return found if dtype is None else found.astype(dtype)

    def __getitem__(self, index: Any) -> Any:
        return np.asarray(self)[index]

    def __neg__(self) -> Array:
        return -np.asarray(self)


class SlopesTask(Task):
    """The task that writes the slopes out."""

    def __init__(self, x: Array, terms: ChunkTerms, intercept: bool) -> None:
        self.x, self.intercept = x, intercept
        self.unit, self.factor = terms.unit, terms.factor

    def __call__(
        self, block: Any, start: int, scale: Any, target: Any, weight: Any, listed: Any
    ) -> list[Array]:
        """The slopes of one chunk."""
        chunk = Chunk.of(block, scale, self.intercept)
        losses = self.unit.rows(len(chunk), self.factor, target, weight)
        theta = losses.slope(chunk.margins(self.x))
        theta[listed[0]] = listed[1]
        return [theta]


MOST_BYTES = 2**29
"""Memory for the terms held at a time: a sample, or a reduced problem with the work on it."""
TERM_BYTES = 400
"""Of which a term takes this much besides its row."""
SEED = 7
"""With the first row of a chunk, so that a sample does not depend on the order of the chunks."""
LEAST = 400
"""Rows of a sample at least."""


def sample_size(n: int, d: int) -> int:
    """Rows of the sample a first guess is made from.

    With m of n rows the guess is off by about ``sqrt(d / m)`` in units of a margin, so that about
    ``n sqrt(d / m)`` terms are too close to a kink to be predicted; ``m = n^(2/3) d^(1/3)`` makes
    both problems, the sample's and the one that is left, about equally large. There is room for
    `MOST_BYTES`; a smaller sample costs passes, not the answer.
    """
    wide = min(d, 1000)
    wanted = max(LEAST, 10 * wide, int(1.5 * n ** (2 / 3) * wide ** (1 / 3)))
    return min(n, wanted, max(LEAST, int(MOST_BYTES / (8 * wide + TERM_BYTES))))


@dataclass(frozen=True)
class SurveyTask:
    """The task; its result is ``(longest row, indices, blocks)``.

    Parameters
    ----------
    n, size : int
        Rows of the source, and how many of them to keep.
    """

    n: int
    size: int

    def __call__(
        self, block: Any, start: int
    ) -> tuple[int, list[NDArray[np.intp]], list[Any]]:
        """Check one chunk and draw its share of the sample."""
        rows = block.shape[0]
        if not _finite(block):
            sums = np.asarray(abs(block).sum(axis=1)).ravel()
            first = start + int(np.flatnonzero(~np.isfinite(sums))[0])
            raise InvalidInput(
                f"`X` holds NaN or infinity in row {first} (of the chunk of rows {start} to "
                f"{start + rows - 1}); impute or drop such rows first."
            )
        longest = int(np.diff(block.indptr).max(initial=0)) if sp.issparse(block) else 0
        count = (start + rows) * self.size // self.n - start * self.size // self.n
        drawn = np.random.default_rng([SEED, start]).choice(rows, size=count, replace=False)
        drawn.sort()
        kept = block[drawn]
        return longest, [drawn + start], [kept]

    def merge(self, left: Any, right: Any) -> Any:
        """Join what two runs of chunks found, in the order of their rows."""
        return max(left[0], right[0]), left[1] + right[1], left[2] + right[2]


@runtime_checkable
class ChecksItself(Protocol):
    """A block that lies on a device, where its entries are looked at."""

    def finite(self) -> bool:
        """Whether all entries are finite."""
        ...


def _finite(block: Any) -> bool:
    """Whether all entries are finite, asked of the block where it answers that itself."""
    if isinstance(block, ChecksItself):
        return block.finite()
    return bool(np.isfinite(block.data if sp.issparse(block) else block).all())


def surveyed_design(
    source: Source, engine: Engine, scale: Column = ABSENT, intercept: bool = False
) -> Chunks:
    """The design of checked data, with its sample.

    Raises
    ------
    InvalidInput
        On NaN or infinity, naming the row and its chunk; on data without rows or columns.
    """
    n, d = source.shape
    if n == 0 or d == 0:
        raise InvalidInput(
            f"`X` is empty: {n} rows and {d} columns; at least one of each is needed."
        )
    longest, index, blocks = engine.run(SurveyTask(n, sample_size(n, d)), source)
    rows = sp.vstack(blocks, format="csr") if source.sparse else np.concatenate(blocks)
    return Chunks(
        source, engine, scale, intercept, longest if source.sparse else None,
        SampledRows(np.concatenate(index), rows),
    )
