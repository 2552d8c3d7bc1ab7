"""The first pass over data in chunks: are they numbers, how long are rows, and a sample of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen.chunk_rows import Sample
from cvxscreen.chunks import Chunks
from cvxscreen.errors import InvalidInput
from cvxscreen.row_columns import ABSENT
from cvxscreen.streams import Column, Engine, Source

MOST_BYTES = 2**29
"""Memory for the terms held at a time: a sample, or a reduced problem with the work on it."""
TERM_BYTES = 400
"""Of which a term takes this much besides its row."""
SEED = 7
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
class Survey:
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
        """Both in order."""
        return max(left[0], right[0]), left[1] + right[1], left[2] + right[2]


def _finite(block: Any) -> bool:
    """Whether all entries are finite, asked of the block where it answers that itself."""
    if hasattr(block, "finite"):
        return bool(block.finite())
    return bool(np.isfinite(block.data if sp.issparse(block) else block).all())


def surveyed(
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
    longest, index, blocks = engine.run(Survey(n, sample_size(n, d)), source)
    rows = sp.vstack(blocks, format="csr") if source.sparse else np.concatenate(blocks)
    return Chunks(
        source, engine, scale, intercept, longest if source.sparse else None,
        Sample(np.concatenate(index), rows),
    )
