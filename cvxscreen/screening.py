"""The record of what is fixed, by proof or by hope.

A `Screening` is a selection that is proven and only grows; a `Prediction` is one that is merely
hoped for. The solving loop may reduce by both, but the two types never mix: what was predicted is
certified afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen.errors import UnsafeEvidence
from cvxscreen.losses import Codes, Losses, Piece
from cvxscreen.point import Point
from cvxscreen.problem import Problem
from cvxscreen.regions import Region
from cvxscreen.rules import Mask, Pieces, Verdict, judge
from cvxscreen.selection import Selection
from cvxscreen.tables import table

Array = NDArray[np.float64]

__all__ = ["Evidence", "Prediction", "Screening", "Selection"]


@dataclass(frozen=True)
class Evidence:
    """One verdict's part in a screening."""

    bound: str
    radius: float
    gap: float
    decided: int
    new: int
    dropped: int = 0
    needed: int = 0
    """Features dropped by now; features and terms of which it is proven that none can be."""


@dataclass(frozen=True, eq=False)
class Screening(Pieces):
    """What is proven about `problem`; it only grows, and remembers why.

    Attributes
    ----------
    problem : Problem
    selection : Selection
    evidence : tuple of Evidence
        One entry a verdict.
    needed_features : mask, shape (d,)
        Features proven not to be zero (safe keeping).
    needed_terms : mask, shape (n,)
        Terms proven to be on no linear piece (safe keeping).
    """

    problem: Problem
    selection: Selection
    evidence: tuple[Evidence, ...] = ()
    needed_features: Mask = field(default_factory=lambda: np.zeros(0, dtype=bool))
    needed_terms: Mask = field(default_factory=lambda: np.zeros(0, dtype=bool))

    @classmethod
    def empty(cls, problem: Problem) -> Screening:
        """Nothing proven yet."""
        codes = np.full(problem.n, Piece.UNDECIDED, dtype=np.int8)
        none = np.zeros(problem.d, dtype=bool)
        return cls(problem, Selection(codes, none), (), none, np.zeros(problem.n, dtype=bool))

    def tighten(
        self,
        verdict: Verdict,
        index: NDArray[np.intp] | None = None,
        features: NDArray[np.intp] | None = None,
    ) -> Screening:
        """Add a verdict (about the terms at `index` and the `features`, all when omitted).

        Raises
        ------
        UnsafeEvidence
            If the verdict contradicts what is already proven: one of the two is then wrong.

        Notes
        -----
        A verdict about a problem reduced by what is proven here is about the full one as well.
        """
        old = self.codes
        said = np.full(len(old), Piece.UNDECIDED, dtype=np.int8)
        said[slice(None) if index is None else index] = verdict.codes
        both = (old >= 0) & (said >= 0)
        clash = both & (old != said)
        if clash.any() and not self._adjacent(clash, old, said):
            raise UnsafeEvidence(
                f"term {int(np.flatnonzero(clash)[0])} was proven on two different pieces; this "
                "is a defect of a bound or of the data's rounding model."
            )
        new = (old < 0) & (said >= 0)
        codes = np.where(new, said, old).astype(np.int8)
        dropped = _join(self.dropped, features, verdict.dropped)
        needed = _join(self.needed_features, features, verdict.needed_features)
        terms = _join(self.needed_terms, index, verdict.needed_terms)
        if (dropped & needed).any():
            raise UnsafeEvidence(
                f"feature {int(np.flatnonzero(dropped & needed)[0])} was proven to be zero and not "
                "to be; this is a defect of a bound or of the data's rounding model."
            )
        entry = Evidence(
            verdict.bound, verdict.radius, verdict.gap, int((codes >= 0).sum()), int(new.sum()),
            int(dropped.sum()), int(needed.sum()) + int(terms.sum()),
        )
        return replace(
            self, selection=Selection(codes, dropped), evidence=(*self.evidence, entry),
            needed_features=needed, needed_terms=terms,
        )

    @property
    def exhausted(self) -> bool:
        """Whether every term and feature is decided or safely kept: no rule can add anything."""
        terms = (self.codes >= 0) | self.needed_terms
        return bool(terms.all() and (self.dropped | self.needed_features).all())

    def proven_from(
        self, bounds: Sequence[Callable[[Problem, Point], Region]], point: Point
    ) -> Screening:
        """Add what every one of `bounds` proves from `point`."""
        found = self
        for bound in bounds:
            found = found.tighten(judge(self.problem, bound(self.problem, point)))
        return found

    def _adjacent(self, at: Mask, first: Codes, second: Codes) -> bool:
        """Whether the pieces join smoothly: a margin exactly at the join is on both."""
        losses = self.problem.losses
        apart = np.abs(losses.piece_index(first) - losses.piece_index(second))[at]
        return bool((apart <= 1).all() and (losses.q[at] > 0).all())

    @property
    def codes(self) -> Codes:
        """`Piece` of each term, -1 where undecided, shape (n,)."""
        return self.selection.codes

    @property
    def _coded(self) -> tuple[Losses, Codes]:
        return self.problem.losses, self.codes

    @property
    def dropped(self) -> Mask:
        """Features proven zero, shape (d,); none without an L1 term."""
        given = self.selection.dropped
        return np.zeros(self.problem.d, dtype=bool) if given is None else given

    @property
    def kept(self) -> Mask:
        """Features that stay, shape (d,)."""
        return ~self.dropped

    @cached_property
    def _reduction(self) -> tuple[Selection, Problem]:
        selection = self.selection.folded(self.problem)
        return selection, selection.reduce(self.problem)

    def reduce(self) -> Problem:
        """The reduced problem; see `Selection.reduce`."""
        return self._reduction[1]

    def lift(self, x: ArrayLike, theta_kept: ArrayLike) -> tuple[Array, Array]:
        """Back to the full problem; see `Selection.lift`."""
        selection, reduced = self._reduction
        return selection.lift(self.problem, reduced, x, theta_kept)

    def __str__(self) -> str:
        count = {name: int(mask.sum()) for name, mask in self._masks.items()}
        title = "Screening: " + ", ".join(f"{value:,} {name}" for name, value in count.items())
        names: tuple[str, ...] = ("bound", "radius", "gap", "new", "decided")
        rows: list[tuple[object, ...]] = [
            (e.bound, e.radius, e.gap, e.new, e.decided) for e in self.evidence
        ]
        if self.dropped.any() or self.needed_features.any():
            title += f"; {int(self.dropped.sum()):,} features dropped"
            title += f", {int(self.needed_features.sum()):,} needed"
            names = (*names, "dropped", "needed")
            rows = [
                (*row, e.dropped, e.needed) for row, e in zip(rows, self.evidence, strict=True)
            ]
        return table(names, rows, title=title)


def _join(old: Mask, at: NDArray[np.intp] | None, said: Mask) -> Mask:
    """`old` with `said` about the entries `at` (all when None, nothing when `said` is empty)."""
    if not len(said):
        return old
    joined = old.copy() if len(old) else np.zeros(len(said), dtype=bool)
    joined[slice(None) if at is None else at] |= said
    return joined


@dataclass(frozen=True, eq=False)
class Prediction:
    """Pieces guessed from the margins of a nearby point; no theorem behind it.

    Attributes
    ----------
    selection : Selection
    """

    selection: Selection

    @classmethod
    def from_margins(
        cls, problem: Problem, margins: Array, reach: Array | float, keep: int = 0
    ) -> Prediction:
        """Predict every term whose margin is farther than `reach` from a kink.

        The `keep` terms nearest to a kink (in units of ``||a_i||``) are left alone in any case.
        """
        losses = problem.losses
        codes = losses.piece_within(margins - reach, margins + reach)
        if keep > 0:
            ratio = losses.kink_distance(margins) / np.maximum(problem.norms, 1e-300)
            nearest = np.argpartition(ratio, min(keep, len(ratio) - 1))[:keep]
            codes[nearest] = Piece.UNDECIDED
        return cls(Selection(codes))

    def beside(self, screening: Screening) -> Selection:
        """The selection to reduce by: what is proven, and what is predicted elsewhere."""
        proven, dropped = screening.codes, screening.dropped
        if self.selection.dropped is not None:
            dropped = dropped | (self.selection.dropped & ~screening.needed_features)
        codes = np.where(proven >= 0, proven, self.selection.codes).astype(np.int8)
        return Selection(codes, dropped)

    def refuted(self, problem: Problem, margins: Array, screening: Screening) -> Mask:
        """Predicted (not proven) terms whose margin is not on the predicted piece, shape (n,)."""
        codes = self.selection.codes
        open_terms = (codes >= 0) & (screening.codes < 0)
        if not open_terms.any():
            return open_terms
        actual = problem.losses.piece_within(margins, margins)
        return open_terms & (actual != codes)
