"""What the regions decide, and what is fixed by it: verdicts, the reduced problem, and back.

`judge` says of every term the piece that it must end up on, and which features must be 0. *Safe
keeping* is the opposite: terms and features of which it is proven that no rule can decide them, so
that no rule need be asked about them again.

A `Selection` says which terms are collapsed onto which piece and which features are put to 0. Its
`reduce` and `lift` stand side by side: the mask and the way back. Why something is selected is said
by two types that never mix: a `Screening` is proven, remembers why and only grows; a `Prediction`
is hoped for. The solving loop may reduce by both; what was predicted is certified afterwards.

Proofs: ``docs/theory.md``, section 3.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.rounding import gamma, square
from cvxscreen._support.tables import Record, fields, table
from cvxscreen.bounds.regions import Region
from cvxscreen.bounds.regions.balls import Boxes
from cvxscreen.core.duality import Point, free_load
from cvxscreen.core.losses import Codes, Losses, LossTerms, Piece, on_parabola
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows, few_entries, narrowed
from cvxscreen.errors import InvalidInput, UnsafeEvidence

__all__ = [
    "Evidence", "Prediction", "Screening", "Selection", "Verdict", "judge", "with_features",
]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


def piece_masks(codes: Codes) -> dict[str, Mask]:
    """Boolean masks ``zero``, ``linear``, ``quadratic``, ``undecided`` of coded pieces."""
    return {
        "zero": codes == Piece.ZERO,
        "linear": (codes == Piece.LOW) | (codes == Piece.HIGH),
        "quadratic": on_parabola(codes),
        "undecided": codes == Piece.UNDECIDED,
    }


class Pieces(ABC):
    """Base of what says on which piece every term is: a mask over the terms for each kind."""

    @property
    @abstractmethod
    def _coded(self) -> tuple[LossTerms, Codes]:
        """The terms, and the code of each."""

    @cached_property
    def _masks(self) -> dict[str, Mask]:
        return piece_masks(self._coded[1])

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


class Verdict(Pieces, Record, Immutable):
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
        if self.problem is None:
            raise InvalidInput("this verdict does not know its problem; make it by `screen`.")
        return Screening.empty(self.problem).tighten(self).reduce()

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


def _agree(dropped: Mask, needed: Mask) -> None:
    """Refuse features that were proven to be zero and not to be."""
    if (dropped & needed).any():
        raise UnsafeEvidence(
            f"feature {int(np.flatnonzero(dropped & needed)[0])} was proven to be zero and not "
            "to be; this is a defect of a bound or of the data's rounding model."
        )


def judge(
    problem: Problem, region: Region, intervals: tuple[Array, Array] | None = None
) -> Verdict:
    """Decide every term and feature that `region` settles.

    A term whose margin interval lies within one piece is on it; a feature is 0 if ``v*`` stays
    within ``[-kappa, kappa]`` (Shibagaki et al. 2016, (7)), and is needed if it cannot (Theorem 10)
    or if its own interval excludes 0 (Theorem 4). A term is needed on a quadratic piece, by its
    margin (Theorem 5) or its slope (Theorem 11). The intervals are rounded outward by the region,
    the knots by the losses, so a decision holds in floating point too. Where `intervals` are given,
    they are those that the region gave before.

    Raises
    ------
    UnsafeEvidence
        If a feature is proven to be zero and not to be.
    """
    low, high = region.intervals() if intervals is None else intervals
    losses = problem.losses
    codes = losses.piece_within(low, high)
    needed_terms = on_parabola(codes)
    dropped = needed = np.zeros(problem.d, dtype=bool)
    if isinstance(region, Boxes) and isinstance(problem.penalty, L1):
        dropped = problem.penalty.vanishing(*region.v, strict=problem.pure_l1)
        least, most = region.coordinates
        needed = problem.penalty.needed(*region.v) | (least > 0) | (most < 0)
        _agree(dropped, needed)
        least, most = region.slopes
        inside = (least > losses.lo) & (most < losses.hi)
        flat_at_zero = (losses.e > 0) | (losses.lo == 0) | (losses.hi == 0)
        inside &= ~flat_at_zero | (least > 0) | (most < 0)
        needed_terms = needed_terms | (inside & (codes < 0))
    return Verdict(
        losses, codes, region.bound, region.radius, region.gap, dropped, needed, needed_terms,
        problem, region,
    )


# -- the reduced problem, and the way back --------------------------------------------------------


SHARE = 0.2
"""Rows that may differ from a known point's for its ``A' theta`` to be of use."""
FEWER = 0.8
"""Share of the rows up to which a product with all columns costs less than to cut from all rows."""
FOLD_LIMIT, FORMED_ANYWAY = 400, 2000
"""Quadratic pieces are folded into a dense matrix up to this many coordinates; where nothing is
strongly convex, up to as many as the interior point method takes: it forms such a matrix anyway."""


class KnownSlopes(NamedTuple):
    """Slopes with their ``A' theta``, from which that of similar ones takes few rows.

    Nothing is said of the rounding in it, so nothing is proven of a problem reduced by it.
    """

    theta: Array
    At_theta: Array

    def adjoint(self, problem: Problem, slopes: Array) -> Array:
        """``A' slopes`` by the rows where they differ, or by a pass where those are many."""
        moved = _moved(problem, self.theta, slopes)
        return problem.design.adjoint(slopes) if moved is None else self.At_theta + moved[2]


def _moved(
    problem: Problem, theta: Array, slopes: Array
) -> tuple[NDArray[np.intp], Array, Array] | None:
    """Rows at which `slopes` differ from `theta`, by how much, ``A'`` of it; None if at many."""
    other = np.flatnonzero(slopes != theta)
    if len(other) > SHARE * problem.n:
        return None
    step = (slopes - theta)[other]
    return other, step, problem.design.take_rows(other).adjoint(step)


class Selection(Immutable):
    """Terms collapsed onto a piece: ``codes[i]`` is a `Piece`, -1 for a term that is kept.

    `dropped`, shape (d,), marks the features put to 0; None where there are none.
    """

    codes: Codes
    dropped: NDArray[np.bool_] | None = None
    _folds: list[tuple[Problem, Quadratic]] = field(init=False, repr=False, default_factory=list)
    """The last problem whose quadratic term was folded, and the result: `reduce` needs it again."""

    def folded(self, problem: Problem, *, written: bool = False) -> Selection:
        """The selection without what cannot be folded into `problem`'s quadratic term.

        Beside unpenalised coordinates or side constraints nothing can be proven of what is folded,
        and our own solvers want the terms one by one; where the reduced problem is `written` out
        for another solver to solve, neither counts. No penalty stands beside a matrix.
        """
        curved = on_parabola(self.codes)
        if not curved.any():
            return self
        if problem.without_curvature and problem.penalty is None:
            if problem.d <= FORMED_ANYWAY:
                return self
        elif problem.d <= FOLD_LIMIT:
            simple = problem.side is None and not problem.quadratic.free.any()
            simple = (simple or written) and problem.penalty is None
            simple = simple and isinstance(problem.quadratic, Quadratic)  # a kernel's has no matrix
            # A singular sum is too ill-conditioned to be proven positive definite.
            if simple and not self._fold(problem).singular:
                return self
        codes = self.codes.copy()
        codes[curved] = Piece.UNDECIDED
        return Selection(codes, self.dropped)

    def _fold(self, problem: Problem) -> Quadratic:
        """The quadratic term with the selected parabolas in it; kept for `reduce`."""
        for known, folded in self._folds:
            if known is problem:
                return folded
        curved = np.flatnonzero(on_parabola(self.codes))
        matrix = problem.design.weighted_gram(curved, 1.0 / problem.losses.q[curved])
        if problem.quadratic.matrix is not None:
            matrix = matrix + problem.quadratic.matrix
        folded = Quadratic(problem.quadratic.diagonal, matrix)
        self._folds[:] = [(problem, folded)]
        return folded

    @cached_property
    def kept(self) -> NDArray[np.intp]:
        """Indices of the terms that stay."""
        return (self.codes < 0).nonzero()[0]

    def features(self, problem: Problem) -> NDArray[np.intp]:
        """Indices of the features that stay."""
        if self.dropped is None:
            return np.arange(problem.d)
        if self.dropped.shape != (problem.d,):
            raise InvalidInput(
                f"the selection has {len(self.dropped)} features, the problem {problem.d}."
            )
        return np.flatnonzero(~self.dropped)

    def reduce(self, problem: Problem, near: Point | KnownSlopes | None = None) -> Problem:
        """The problem with every selected term replaced by its piece, dropped features left out.

        Linear pieces add ``theta_i a_i`` to the linear term, zero pieces nothing, quadratic pieces
        ``a_i a_i' / q_i`` to ``M`` and ``-centre_i / q_i a_i`` to the linear term; constants keep
        the objective's value. If the selection is right, the minimiser is the same. Returns
        `problem` itself when nothing is selected. With a point of `problem`, or slopes alone, that
        are mostly those of the pieces, only the rows where they differ are gone through.
        """
        codes = self.codes
        if codes.shape != (problem.n,):
            raise InvalidInput(f"the selection has {len(codes)} terms, the problem {problem.n}.")
        features = self.features(problem)
        if len(features) < problem.d:
            if self._rows_first(problem, features):
                return with_features(Selection(codes).reduce(problem), features)
            return Selection(codes).reduce(with_features(problem, features))
        if len(self.kept) == problem.n:
            return problem
        if problem.linear_program:
            return self._merged(problem)
        losses, free = problem.losses, problem.quadratic.free
        slopes = losses.piece_slope(codes)
        constant = problem.constant - float(losses.conjugate(slopes)[codes >= 0].sum())
        curved = np.flatnonzero(on_parabola(codes))
        quadratic, extra_drift = problem.quadratic, 0.0
        if len(curved):
            curvature = 1.0 / losses.q[curved]
            centre = losses.piece_centre(codes)[curved]
            slopes = slopes.copy()
            slopes[curved] = -centre * curvature
            constant += 0.5 * float(np.sum(centre**2 * curvature))
            quadratic = self._fold(problem)
            extra_drift = float("inf")  # nothing bounds x*, nor what M's rounding does to it
            if not free.any():
                weight = float(np.sum(problem.sizes[curved] ** 2 * curvature))
                # ||x*|| is bounded through P(0) >= P(x*) >= 1/2 ||x*||_M^2 - |q| |x*|.
                reach = _solution_bound(problem)
                extra_drift = gamma(len(curved) + problem.d) * weight * reach
                extra_drift /= np.sqrt(problem.quadratic.floor)
        At_slopes, rounding = _adjoint(problem, slopes, near)
        linear = problem.linear + At_slopes
        rounding += gamma(4) * problem.quadratic.dual_reach(linear)
        imbalance = problem.imbalance
        if free.any():
            factor = problem.design.adjoint_factor + gamma(4)
            imbalance += factor * float(np.max(free_load(problem, slopes)))
            if isinstance(near, KnownSlopes):
                imbalance = float("inf")
        kept = self.kept
        reduced = replace(
            problem,
            design=problem.design.take_rows(kept),
            losses=losses.take(kept),
            quadratic=quadratic,
            linear=linear,
            constant=constant,
            drift=problem.drift + rounding + extra_drift,
            imbalance=imbalance,
            layout=None,
        )
        same = quadratic is problem.quadratic
        if same or np.array_equal(quadratic.free, free):
            reduced.known.inherit_rows(problem.known, kept, form=1.0 if same else None)
        return reduced

    def _merged(self, problem: Problem) -> Problem:
        """The same of a linear program: its linear pieces are one hinge of their mean, the last.

        A linear term would keep slopes from being made feasible by a factor. The hinge of the mean
        is at most the mean of the hinges, and the same near the optima of the full problem, so
        these are optima of the reduced one; others it has none, since the way from one of the
        former to one of the latter would have to leave the former's set somewhere.
        """
        c = -problem.losses.piece_slope(self.codes)
        design, lo, total = problem.design.take_rows(self.kept), problem.losses.lo, float(c.sum())
        lo = lo[self.kept]
        if total > 0.0:
            mean = problem.design.adjoint(c / total)[None, :]
            rows = design.rows_csr(np.arange(len(lo))) if design.sparse else design.dense()
            design = Rows((sp.vstack if design.sparse else np.vstack)([rows, mean]))
            lo = np.append(lo, -total)
        zero = np.zeros(len(lo))
        drift = max(problem.drift, gamma(problem.n))  # what is fixed holds at this lambda alone
        return replace(
            problem, design=design, losses=Losses(1.0 + zero, zero, zero, lo, zero), drift=drift,
            layout=None,
        )

    def _rows_first(self, problem: Problem, features: NDArray[np.intp]) -> bool:
        """Whether to cut columns from the rows that stay is less work than from all of them."""
        sparse = problem.design.sparse and not few_entries(problem.design, features)
        curved = on_parabola(self.codes)
        return sparse and len(self.kept) <= FEWER * problem.n and not bool(curved.any())

    def left_free(self, problem: Problem) -> Mask:
        """The unpenalised coordinates of `problem` that no folded parabola holds, shape (d,)."""
        curved = on_parabola(self.codes)
        free = problem.quadratic.free
        return free & self._fold(problem).free if free.any() and curved.any() else free

    def lift(
        self, problem: Problem, reduced: Problem, x: ArrayLike, theta_kept: ArrayLike,
        *, beside: bool = False,
    ) -> tuple[Array, Array]:
        """From a point of ``reduced = self.reduce(problem)`` to ``(x, theta)`` of the full problem.

        ``theta`` of a linear piece is its slope, exactly; of a kept term what the solver found,
        clipped to its box; of a quadratic piece the slope of its parabola at the reduced problem's
        ``x_theta`` (at `x` where nothing is strongly convex, or constraints or a part that the
        reduced problem stood `beside` pull as well); dropped features are 0. If the selection holds
        at `x`, the full duality gap equals the reduced one.
        """
        if reduced is problem:
            kept = np.asarray(theta_kept, dtype=np.float64)
            return np.array(x, dtype=np.float64), kept.clip(problem.losses.lo, problem.losses.hi)
        short, x = np.array(x, dtype=np.float64), np.zeros(problem.d)
        x[self.features(problem)] = short
        losses, codes = problem.losses, self.codes
        theta = losses.piece_slope(codes)
        count = len(self.kept)  # pieces that were merged into one more term keep their slopes
        theta[self.kept] = np.clip(theta_kept, reduced.losses.lo, reduced.losses.hi)[:count]
        curved = np.flatnonzero(on_parabola(codes))
        if len(curved):
            dual_residual = reduced.linear + reduced.design.adjoint(theta[self.kept])
            x_theta = x.copy()
            alone = reduced.side is None and not beside
            if alone and not problem.without_curvature:
                x_theta[self.features(problem)] = -reduced.quadratic.solve(dual_residual)
            margins = problem.design.take_rows(curved).forward(x_theta)
            centre = losses.piece_centre(codes)[curved]
            theta[curved] = (margins - centre) / losses.q[curved]
        return x, np.clip(theta, losses.lo, losses.hi)


def _adjoint(
    problem: Problem, slopes: Array, near: Point | KnownSlopes | None
) -> tuple[Array, float]:
    """``A' slopes`` and a bound of its rounding in the dual norm.

    From ``A' theta`` of `near` (its error is part of ``dual_error``) and the rows that differ, if
    these are few and no unpenalised coordinate asks for more.
    """
    if isinstance(near, KnownSlopes):
        return near.adjoint(problem, slopes), float("inf")
    factor = problem.design.adjoint_factor + gamma(4)
    if near is not None and near.problem is problem and not problem.quadratic.free.any():
        found = _moved(problem, near.theta, slopes)
        if found is not None:
            other, step, moved = found
            rounding = 2.0 * factor * float(np.abs(step) @ problem.rounding_norms[other])
            rounding += near.dual_error + gamma(4) * problem.quadratic.dual_reach(
                np.abs(near.At_theta) + np.abs(moved)
            )
            return near.At_theta + moved, rounding
    return problem.design.adjoint(slopes), factor * float(np.abs(slopes) @ problem.rounding_norms)


def _solution_bound(problem: Problem) -> float:
    """An upper bound of the Euclidean norm of the optimum (no unpenalised coordinates).

    Infinite with side constraints: they may keep the optimum away from 0.
    """
    if problem.side is not None:
        return float("inf")
    at_zero = float(np.sum(problem.losses.value(np.zeros(problem.n))))
    floor = problem.quadratic.floor
    linear_norm = float(np.linalg.norm(problem.linear))
    return (
        (linear_norm + float(np.sqrt(square(linear_norm) + 2.0 * floor * at_zero))) / floor * 1.01
    )


def with_features(problem: Problem, features: NDArray[np.intp]) -> Problem:
    """`problem` with all features but these put to 0."""
    if not isinstance(problem.quadratic, Quadratic):
        raise InvalidInput("only features without kernels can be dropped.")
    side = problem.side
    narrow = replace(
        problem,
        side=None if side is None else replace(side, matrix=side.matrix[:, features]),
        design=narrowed(problem.design, features),
        quadratic=problem.quadratic.take(features),
        linear=problem.linear[features],
        penalty=None if problem.penalty is None else problem.penalty.take(features),
    )
    narrow.known.inherit_columns(problem.known, features)
    return narrow


class Evidence(NamedTuple):
    """One verdict's part in a screening."""

    bound: str
    radius: float
    gap: float
    decided: int
    new: int
    dropped: int = 0
    needed: int = 0
    """Features dropped by now; features and terms of which it is proven that none can be."""


class Screening(Pieces, Record, Immutable):
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

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> solution = cvxscreen.solve(cvxscreen.svm(X, y, C=0.1), tol=1e-9)
    >>> found = solution.screening                              # proven by the answer itself
    >>> int(found.zero.sum()), int(found.linear.sum()), int(found.undecided.sum())
    (135, 63, 2)
    """

    problem: Problem
    selection: Selection
    evidence: tuple[Evidence, ...] = ()
    needed_features: Mask = field(default_factory=lambda: np.zeros(0, dtype=bool))
    needed_terms: Mask = field(default_factory=lambda: np.zeros(0, dtype=bool))

    @classmethod
    def empty(cls, problem: Problem) -> Screening:
        """A record of `problem` in which nothing is proven yet."""
        codes = np.full(problem.n, Piece.UNDECIDED, dtype=np.int8)
        none = np.zeros(problem.d, dtype=bool)
        return cls(problem, Selection(codes, none), (), none, np.zeros(problem.n, dtype=bool))

    @classmethod
    def from_definition(cls, problem: Problem) -> Screening:
        """What needs no proof: a loss that is one parabola everywhere, a square, is on it."""
        nothing, f = cls.empty(problem), problem.losses
        if not (f.q.any() or (f.lo == f.hi).any()):  # with a kink there are two pieces
            return nothing
        anywhere = np.full(problem.n, np.inf)
        codes = f.piece_within(-anywhere, anywhere)
        if (codes < 0).all():
            return nothing
        return nothing.tighten(Verdict(problem.losses, codes, "one piece", np.inf, np.inf))

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
        _agree(dropped, needed)
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
    def _coded(self) -> tuple[LossTerms, Codes]:
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

    def _brief(self) -> str:
        return ", ".join(f"{int(mask.sum()):,} {name}" for name, mask in self._masks.items())

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


class Prediction(NamedTuple):
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
