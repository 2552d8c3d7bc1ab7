"""From intervals to verdicts: the piece every term must end up on, the features that must be 0.

Safe keeping is the opposite: terms and features of which it is proven that no rule can decide them,
so that no rule need be asked about them again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.extensions import supplied
from cvxscreen._support.tables import Record, fields
from cvxscreen.bounds.regions import Region
from cvxscreen.bounds.regions.balls import Boxes
from cvxscreen.core.losses import Codes, LossTerms, Piece
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem
from cvxscreen.errors import UnsafeEvidence

Mask = NDArray[np.bool_]


def piece_masks(losses: LossTerms, codes: Codes) -> dict[str, Mask]:
    """Boolean masks ``zero``, ``linear``, ``quadratic``, ``undecided`` of coded pieces."""
    return {
        "zero": codes == Piece.ZERO,
        "linear": (codes == Piece.LOW) | (codes == Piece.HIGH),
        "quadratic": (codes == Piece.LEFT) | (codes == Piece.RIGHT),
        "undecided": codes == Piece.UNDECIDED,
    }


class Pieces(ABC):
    """Masks over terms whose pieces are coded, for whatever says which piece a term is on."""

    @property
    @abstractmethod
    def _coded(self) -> tuple[LossTerms, Codes]:
        """The terms, and the code of each."""

    @cached_property
    def _masks(self) -> dict[str, Mask]:
        return piece_masks(*self._coded)

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
    def piece(self) -> NDArray[np.int64]:
        """Index of the proven piece by increasing argument, -1 where undecided, shape (n,)."""
        losses, codes = self._coded
        return losses.piece_index(codes)


@dataclass(frozen=True, eq=False, repr=False)
class Verdict(Pieces, Record):
    """What one region proves about every term.

    Attributes
    ----------
    codes : array of int8, shape (n,)
        `Piece` of each term, -1 where undecided.
    bound : str
        Name of the bound behind it.
    radius, gap : float
        Of the region (infinite radius when it says nothing).
    dropped : mask, shape (d,)
        Features proven zero; none without an L1 term.
    needed_features : mask, shape (d,)
        Features proven not to be zero (safe keeping).
    needed_terms : mask, shape (n,)
        Terms proven to be on no linear piece (safe keeping).
    problem : Problem
        What is decided about.
    region : Region
        Where the optimum is proven to be.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> solution = cvxscreen.solve(cvxscreen.svm(X, y, C=0.1), tol=1e-9)
    >>> verdict = cvxscreen.screen(solution.problem.with_(C=0.11), reference=solution)
    >>> int(verdict.zero.sum()), int(verdict.linear.sum()), int(verdict.undecided.sum())
    (135, 52, 13)
    """

    losses: LossTerms
    codes: Codes
    bound: str
    radius: float
    gap: float
    dropped: Mask = field(default_factory=lambda: np.zeros(0, dtype=bool))
    needed_features: Mask = field(default_factory=lambda: np.zeros(0, dtype=bool))
    needed_terms: Mask = field(default_factory=lambda: np.zeros(0, dtype=bool))
    problem: Problem | None = None
    region: Region | None = None

    def reduce(self) -> Problem:
        """The problem without the terms and features that are decided here: the same optimum.

        Examples
        --------
        >>> import cvxscreen
        >>> problem = cvxscreen.svm(*cvxscreen.datasets.two_gaussians(500, 3), intercept=True)
        >>> solution = cvxscreen.solve(problem, tol=1e-9)
        >>> small = cvxscreen.screen(problem, reference=solution).reduce()
        >>> again = cvxscreen.solve(small, tol=1e-9)
        >>> small.n < problem.n, bool(abs(again.value / solution.value - 1) < 1e-8)
        (True, True)
        """
        reduced: Problem = supplied("screening.reduce")(self)
        return reduced

    @property
    def _coded(self) -> tuple[LossTerms, Codes]:
        return self.losses, self.codes

    @property
    def kept(self) -> Mask:
        """Features that stay, shape (d,)."""
        return ~self.dropped

    def __str__(self) -> str:
        count = {name: int(mask.sum()) for name, mask in self._masks.items()}
        if self.dropped.any() or self.needed_features.any():
            count["features dropped"] = int(self.dropped.sum())
            count["features needed"] = int(self.needed_features.sum())
            count["terms needed"] = int(self.needed_terms.sum())
        return fields(
            [("bound", self.bound), ("radius", self.radius), ("gap", self.gap), *count.items()],
            title="Verdict",
        )


def judge(problem: Problem, region: Region) -> Verdict:
    """Decide every term and feature that `region` settles.

    A term whose margin interval lies within one piece is on it; a feature is 0 if ``v*`` stays
    within ``[-kappa, kappa]`` (Shibagaki et al. 2016, (7)), and is needed if it cannot (Theorem 10)
    or if its own interval excludes 0 (Theorem 4). A term is needed on a quadratic piece, by its
    margin (Theorem 5) or its slope (Theorem 11). The intervals are rounded outward by the region,
    the knots by the losses, so a decision holds in floating point too.

    Raises
    ------
    UnsafeEvidence
        If a feature is proven to be zero and not to be.
    """
    low, high = region.intervals()
    losses = problem.losses
    codes = losses.piece_within(low, high)
    needed_terms = (codes == Piece.LEFT) | (codes == Piece.RIGHT)
    dropped = needed = np.zeros(problem.d, dtype=bool)
    if isinstance(region, Boxes) and isinstance(problem.penalty, L1):
        dropped = problem.penalty.vanishing(*region.v, strict=problem.pure_l1)
        least, most = region.coordinates
        needed = problem.penalty.needed(*region.v) | (least > 0) | (most < 0)
        if (dropped & needed).any():
            raise UnsafeEvidence(
                f"feature {int(np.flatnonzero(dropped & needed)[0])} was proven to be zero and not "
                "to be; this is a defect of a bound or of the data's rounding model."
            )
        least, most = region.slopes
        inside = (least > losses.lo) & (most < losses.hi)
        flat_at_zero = (losses.e > 0) | (losses.lo == 0) | (losses.hi == 0)
        inside &= ~flat_at_zero | (least > 0) | (most < 0)
        needed_terms = needed_terms | (inside & (codes < 0))
    return Verdict(
        losses, codes, region.bound, region.radius, region.gap, dropped, needed, needed_terms,
        problem, region,
    )
