"""Loss terms of data in chunks: one row of numbers, a target and a weight for each term."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen.errors import InvalidInput
from cvxscreen.losses import FIELDS, Losses
from cvxscreen.row_columns import ABSENT, entries
from cvxscreen.streams import Column

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Unit:
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


class ChunkTerms(Losses):
    """A table of losses that is made a chunk at a time.

    The columns `b`, `e`, `q`, `lo`, `hi` are there as well, for whoever has the memory: they are
    made, whole, every time they are asked for.

    Parameters
    ----------
    n : int
    unit : Unit
        The loss of weight 1.
    target, weight : Column
        ``b`` and the weight of each row, or `ABSENT`.
    factor : float
        What every weight is multiplied by.
    """

    def __init__(
        self, n: int, unit: Unit, target: Column = ABSENT, weight: Column = ABSENT,
        factor: float = 1.0,
    ) -> None:
        given = {"n": n, "unit": unit, "target": target, "weight": weight, "factor": factor}
        self.__dict__.update(given)

    n: int
    unit: Unit
    target: Column
    weight: Column
    factor: float

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
        if not (np.isfinite(factor) and factor > 0):
            raise InvalidInput(f"`factor` is {factor}; a positive finite number is needed.")
        return ChunkTerms(self.n, self.unit, self.target, self.weight, self.factor * factor)


def _whole(name: str) -> property:
    def column(self: ChunkTerms) -> Array:
        return np.asarray(getattr(self.part(slice(0, self.n)), name))

    return property(column, doc=f"`{name}` of every row, made anew, shape (n,).")


for _name in FIELDS:
    setattr(ChunkTerms, _name, _whole(_name))
