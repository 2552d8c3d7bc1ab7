"""Columns that are no arrays: one that is not there, and one that knows a few rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cvxscreen.streams import Column


@dataclass(frozen=True)
class Absent:
    """A column that says nothing about any row."""

    def __getitem__(self, rows: slice) -> None:
        return None


ABSENT = Absent()


@dataclass(frozen=True)
class Listed:
    """A column that knows a value for a few rows: which rows of a chunk, and their values.

    Parameters
    ----------
    index : array, shape (k,)
        Increasing.
    values : array, shape (k,)
    """

    index: Any
    values: Any

    def __getitem__(self, rows: slice) -> tuple[Any, Any]:
        first, last = np.searchsorted(self.index, [rows.start, rows.stop])
        return self.index[first:last] - rows.start, self.values[first:last]

    @classmethod
    def nothing(cls) -> Listed:
        """No row at all."""
        return cls(np.zeros(0, dtype=np.intp), np.zeros(0))


def entries(column: Column, rows: Any) -> Any:
    """``column[rows]`` for a column that may only know slices; None where it is absent."""
    if isinstance(column, Absent):
        return None
    if isinstance(column, np.ndarray):
        return column[rows]
    found = [np.asarray(column[slice(int(i), int(i) + 1)]) for i in rows]
    return np.concatenate(found) if found else np.zeros(0)
