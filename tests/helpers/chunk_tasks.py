"""Tasks and sources that workers of a cluster can import: honest ones, and ones that break."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cvxscreen.errors import InvalidInput


@dataclass(frozen=True)
class Sum:
    """Column sums weighted by a column; float32 so that the order of the sums shows."""

    def __call__(self, block: Any, start: int, weight: Any) -> Any:
        dense = block.toarray() if hasattr(block, "toarray") else block
        return (dense * weight[:, None]).sum(axis=0, dtype=np.float32)

    def merge(self, left: Any, right: Any) -> Any:
        return left + right


class Failing(Sum):
    """Refuses every chunk but the first."""

    def __call__(self, block: Any, start: int, weight: Any) -> Any:
        if start:
            raise InvalidInput("rows 31 to 61 hold NaN")
        return super().__call__(block, start, weight)


@dataclass(frozen=True)
class Faulty:
    """A source that breaks once, at the visit of one chunk, and works from then on.

    `how` is "kill" (the worker dies on the spot, unless it is the process `home`) or "stutter" (the
    file system raises). `mark` is the file that remembers it.
    """

    source: Any
    mark: str
    chunk: int
    how: str
    home: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.source.shape

    @property
    def sparse(self) -> bool:
        return self.source.sparse

    @property
    def bounds(self) -> tuple[int, ...]:
        return self.source.bounds

    def load(self, k: int) -> Any:
        if k == self.chunk and os.getpid() != self.home and not Path(self.mark).exists():
            Path(self.mark).write_text(str(os.getpid()))
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError("the file system stutters")
        return self.source.load(k)
