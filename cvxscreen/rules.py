"""From intervals to verdicts: the piece that every term must end up on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cvxscreen.losses import Codes, Losses, Piece
from cvxscreen.problem import Problem
from cvxscreen.regions import Region
from cvxscreen.tables import fields

Mask = NDArray[np.bool_]


def piece_masks(losses: Losses, codes: Codes) -> dict[str, Mask]:
    """Boolean masks ``zero``, ``linear``, ``quadratic``, ``undecided`` of coded pieces."""
    return {
        "zero": codes == Piece.ZERO,
        "linear": (codes == Piece.LOW) | (codes == Piece.HIGH),
        "quadratic": (codes == Piece.LEFT) | (codes == Piece.RIGHT),
        "undecided": codes == Piece.UNDECIDED,
    }


@dataclass(frozen=True, eq=False)
class Verdict:
    """What one region proves about every term.

    Attributes
    ----------
    codes : array of int8, shape (n,)
        `Piece` of each term, -1 where undecided.
    bound : str
        Name of the bound behind it.
    radius, gap : float
        Of the region (infinite radius when it says nothing).
    features : int
        Number of coordinates d.
    """

    losses: Losses
    codes: Codes
    bound: str
    radius: float
    gap: float
    features: int = 0

    @cached_property
    def _masks(self) -> dict[str, Mask]:
        return piece_masks(self.losses, self.codes)

    @property
    def zero(self) -> Mask:
        """Terms proven on the zero piece (R in the papers), shape (n,)."""
        return self._masks["zero"]

    @property
    def linear(self) -> Mask:
        """Terms proven on a linear piece with non-zero slope (L in the papers), shape (n,)."""
        return self._masks["linear"]

    @property
    def quadratic(self) -> Mask:
        """Terms proven on a quadratic piece, shape (n,)."""
        return self._masks["quadratic"]

    @property
    def undecided(self) -> Mask:
        """Terms about which nothing is proven, shape (n,)."""
        return self._masks["undecided"]

    @property
    def dropped(self) -> Mask:
        """Features proven zero, shape (d,); none without an L1 term."""
        return np.zeros(self.features, dtype=bool)

    @property
    def kept(self) -> Mask:
        """Features that stay, shape (d,)."""
        return ~self.dropped

    @property
    def piece(self) -> NDArray[np.int64]:
        """Index of the proven piece by increasing argument, -1 where undecided, shape (n,)."""
        return self.losses.piece_index(self.codes)

    def __str__(self) -> str:
        count = {name: int(mask.sum()) for name, mask in self._masks.items()}
        return fields(
            [("bound", self.bound), ("radius", self.radius), ("gap", self.gap), *count.items()],
            title="Verdict",
        )


def judge(problem: Problem, region: Region) -> Verdict:
    """Decide every term whose margin interval over `region` lies within one piece.

    The intervals are rounded outward by the region, the knots by the losses, so a decision holds in
    floating point too.
    """
    low, high = region.intervals()
    codes = problem.losses.piece_within(low, high)
    radius = getattr(region, "radius", float("inf"))
    return Verdict(problem.losses, codes, region.bound, radius, region.gap, problem.d)
