"""The one problem class, closed under reduction.

::

    minimise over x with F x + f in K
        sum_i f_i(<a_i, x>) + 1/2 <x, M x> + <q, x> + h(x) + constant

``M`` is a non-negative diagonal, plus an optional dense positive semidefinite matrix; it may be 0.
Coordinates with a zero row in ``M`` are *unpenalised* (an intercept; all of them where a dense M is
singular). Some terms may be constraints (`Losses.hard`). ``h``, if there is one, is an L1 norm or
the indicator of a cone (`cvxscreen.core.penalty`). A reduced problem is again a `Problem`,
so whatever accepts one accepts the other.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg as sla
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.extensions import supplied
from cvxscreen._support.immutable import Immutable
from cvxscreen._support.limits import require
from cvxscreen._support.rounding import UNIT, gamma, up
from cvxscreen._support.tables import Record, fields
from cvxscreen._support.validation import array, number, one_of, positive, tolerance
from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.losses import FIELDS, Losses, LossTerms, kinked
from cvxscreen.core.penalty import L1, Penalty
from cvxscreen.designs.protocols import Design, Form, LinearMap, Metric
from cvxscreen.designs.rows import UNDERFLOWN, Rows, column_squares, row_squares
from cvxscreen.errors import InvalidInput

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

FEW_COLUMNS = 8
"""Unpenalised columns that are taken out of the data one by one: of more, as beside the terms of an
L1 norm, each would be a pass over sparse rows (2,000 x 1,500: 1.9 s -> 0.02)."""

_ROUNDED = 1e-11
"""Relative to the largest eigenvalue, how far below 0 the rounding of a matrix product (X'X from a
million rows) and of its eigenvalues may put one that is 0."""


class Quadratic(Immutable):
    """``1/2 <x, M x>`` with ``M = diag(diagonal) + matrix``.

    Coordinates that M does not touch are *free*. Where M is singular on those that it touches
    nothing says which directions it holds: then all coordinates count as free, and whatever rests
    on strong convexity decides nothing about them.

    Parameters
    ----------
    diagonal : array_like, shape (d,)
        Non-negative.
    matrix : array_like, shape (d, d), optional
        Symmetric positive semidefinite; quadratic pieces are folded into it.

    Raises
    ------
    InvalidInput
        If ``M`` is not positive semidefinite, beyond the rounding of its eigenvalues.

    Examples
    --------
    >>> import numpy as np, cvxscreen
    >>> form = cvxscreen.Quadratic(np.array([1.0, 2.0, 0.0]))   # the last one is not penalised
    >>> form.apply(np.ones(3)), form.free
    (array([1., 2., 0.]), array([False, False,  True]))
    """

    diagonal: Array
    matrix: Array | None = None

    def __post_init__(self) -> None:
        diagonal = array("diagonal", self.diagonal).copy()
        least, most = diagonal.min(initial=0.0), diagonal.max(initial=0.0)  # NaN where there is one
        if diagonal.ndim != 1 or not (least >= 0.0 and most < np.inf):
            raise InvalidInput("`diagonal` must be a vector of finite, non-negative numbers.")
        object.__setattr__(self, "diagonal", diagonal)
        if self.matrix is not None:
            matrix = array("matrix", self.matrix)
            d = len(diagonal)
            if matrix.shape != (d, d) or not np.isfinite(matrix).all():
                raise InvalidInput(f"`matrix` must be finite with shape ({d}, {d}).")
            object.__setattr__(self, "matrix", 0.5 * (matrix + matrix.T))
            if self.singular and not self.indefiniteness <= _ROUNDED * self._size:
                raise InvalidInput(
                    "the quadratic term is not positive definite nor semidefinite: "
                    f"an eigenvalue is {-self.indefiniteness:.3g}."
                )

    @cached_property
    def untouched(self) -> Mask:
        """Mask of the coordinates with a zero row in M, shape (d,)."""
        untouched = self.diagonal == 0.0
        if self.matrix is not None:
            untouched = untouched & ~self.matrix.any(axis=0)
        return untouched

    def held_with(self, side: SideConstraints | None) -> Mask:
        """Mask of the coordinates that M or side constraints know of, shape (d,)."""
        held = ~self.untouched
        if side is None or held.all():
            return held
        return held | (abs(side.matrix).sum(axis=0) > 0)

    @cached_property
    def free(self) -> Mask:
        """Mask of the unpenalised coordinates, shape (d,): all of them where M is `singular`."""
        return np.ones(len(self.diagonal), dtype=bool) if self.singular else self.untouched

    @cached_property
    def singular(self) -> bool:
        """Whether M cannot be shown to be positive definite on the coordinates that it touches."""
        return self.matrix is not None and self._lowest <= 0.0

    @cached_property
    def _size(self) -> float:
        """An upper bound of the largest eigenvalue of M."""
        return float(np.abs(self.dense()).sum(axis=0).max(initial=0.0))

    @cached_property
    def indefiniteness(self) -> float:
        """How far below 0 an eigenvalue of M may be, rounding included; 0 unless `singular`."""
        if not self.singular:
            return 0.0
        lowest = float(np.linalg.eigvalsh(self.dense()).min())
        return max(8.0 * len(self.diagonal) * UNIT * self._size - lowest, 0.0)

    @cached_property
    def _block(self) -> Array:
        kept = ~self.untouched
        return self.dense()[np.ix_(kept, kept)]

    @cached_property
    def _factor(self) -> tuple[Array, bool]:
        return sla.cho_factor(self._block, lower=True)

    @cached_property
    def _relative_floor(self) -> float:
        """A lower bound of the smallest eigenvalue of M scaled to a unit diagonal.

        Cholesky's error depends on this number only, not on how the coordinates are scaled.
        """
        diagonal = np.diag(self._block)
        if (diagonal <= 0).any():
            return -1.0
        scale = 1.0 / np.sqrt(diagonal)
        values = np.linalg.eigvalsh(scale[:, None] * self._block * scale)
        return float(values.min()) - 8.0 * len(values) * UNIT * float(np.abs(values).max())

    @cached_property
    def floor(self) -> float:
        """A guaranteed lower bound of M's eigenvalues on the penalised coordinates."""
        return float("inf") if self.singular else self._lowest

    @cached_property
    def _lowest(self) -> float:
        """The same on the coordinates that M touches, not positive where nothing is guaranteed."""
        kept = ~self.untouched
        if not kept.any():
            return float("inf")
        lowest = float(self.diagonal[kept].min())
        if self.matrix is None:
            return lowest
        top = float(np.abs(self._block).sum(axis=0).max())
        low = min(float(np.linalg.eigvalsh(self.matrix[np.ix_(kept, kept)]).min()), 0.0)
        return max(
            lowest + low - 8.0 * len(self._block) * UNIT * top,
            self._relative_floor * max(float(np.diag(self._block).min()), 0.0),
        )

    def apply(self, x: ArrayLike) -> Array:
        """``M x``."""
        x = np.asarray(x, dtype=np.float64)
        out = self.diagonal * x
        return out if self.matrix is None else out + self.matrix @ x

    def solve(self, v: ArrayLike) -> Array:
        """``M^{-1} v`` on the penalised coordinates, 0 on the others."""
        v = np.asarray(v, dtype=np.float64)
        out = np.zeros_like(v)
        kept = ~self.free
        if not kept.any():
            return out
        if self.matrix is None:
            out[kept] = v[kept] / self.diagonal[kept]
        else:
            out[kept] = sla.cho_solve(self._factor, v[kept])
        return out

    def inner(self, v: ArrayLike, x: ArrayLike) -> float:
        """The value of the functional v at x: ``v' x``, unless coordinates mean something else."""
        return float(np.asarray(v) @ np.asarray(x))

    def dual_reach(self, v: ArrayLike) -> float:
        """An upper bound of ``||v||`` in the metric of ``M^{-1}``, penalised coordinates only."""
        return float(np.linalg.norm(np.asarray(v)[~self.free]) / np.sqrt(self.floor))

    def norm(self, x: ArrayLike) -> float:
        """``sqrt(<x, M x>)``."""
        x = np.asarray(x, dtype=np.float64)
        return float(np.sqrt(max(float(x @ self.apply(x)), 0.0)))

    def dual_norms(self, design: Design) -> Array:
        """``||a_i||`` in the metric of ``M^{-1}`` over the penalised coordinates, shape (n,)."""
        kept = ~self.free
        if not kept.any():
            return np.zeros(design.shape[0])
        if self.matrix is None:
            weights = np.where(kept, 1.0 / np.where(kept, self.diagonal, 1.0), 0.0)
            return np.sqrt(design.weighted_squares(weights))
        rows = design.take_columns(np.flatnonzero(kept)).dense()
        short = Rows(rows, known=True).weighted_squares(np.ones(rows.shape[1]))
        plain = np.sqrt(short / self.floor)
        half = sla.solve_triangular(self._factor[0], rows.T, lower=True, check_finite=False)
        norms = np.sqrt(np.einsum("ij,ij->j", half, half))
        # Cholesky's backward error (Higham, Theorem 10.3), relative in the metric of M^-1.
        d = rows.shape[1]
        error = 4.0 * d * gamma(d + 2) / max(self._relative_floor, 1e-300)
        # The plain norms have been rounded up where squares underflow, the others have not.
        found = np.minimum(norms * (1.0 + error), plain * (1.0 + gamma(d + 4)))
        return np.asarray(np.where(short < UNDERFLOWN, plain, found))

    def dense(self) -> Array:
        """``M`` as a dense matrix."""
        d = len(self.diagonal)
        require(8 * d * d, f"a dense quadratic form in {d:,} coordinates", "use fewer coordinates")
        full = np.diag(self.diagonal)
        return full if self.matrix is None else full + self.matrix

    def scaled(self, factor: float) -> Quadratic:
        """``factor M``."""
        matrix = None if self.matrix is None else factor * self.matrix
        return Quadratic(factor * self.diagonal, matrix)

    def take(self, index: NDArray[np.intp]) -> Quadratic:
        """The quadratic restricted to the coordinates at `index`."""
        matrix = None if self.matrix is None else self.matrix[np.ix_(index, index)]
        return Quadratic(self.diagonal[index], matrix)


class ZeroQuadratic(Quadratic):
    """``M = 0`` where an L1 norm holds every coordinate: none of them is free.

    There is no ball around any x and no ``x_theta``: norms in the metric of ``M^{-1}`` are
    infinite, so that whatever rests on them decides nothing.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.matrix is not None or self.diagonal.any():
            raise InvalidInput("`diagonal` must be 0 where there is no quadratic term.")

    @cached_property
    def free(self) -> Mask:
        """No coordinate: the L1 norm holds them all."""
        return np.zeros(len(self.diagonal), dtype=bool)

    def solve(self, v: ArrayLike) -> Array:
        """Zeros: there is no inverse of M, and nothing rests on it."""
        return np.zeros(len(self.diagonal))

    def dual_reach(self, v: ArrayLike) -> float:
        """``|v|`` in the metric of M's inverse: infinite, but for v = 0."""
        return float("inf") if np.any(v) else 0.0

    def dual_norms(self, design: Design) -> Array:
        """Infinite for every row: nothing bounds a step along it."""
        return np.full(design.shape[0], np.inf)

    def scaled(self, factor: float) -> ZeroQuadratic:
        """Itself: 0 times any factor."""
        return self

    def take(self, index: NDArray[np.intp]) -> ZeroQuadratic:
        """The same over the coordinates at `index`."""
        return ZeroQuadratic(self.diagonal[index])


@dataclass(eq=False)
class Norms:
    """What has been computed so far of the norms of a design's rows and columns; None is unknown.

    `cvxscreen.core.problem.Problem` fills it when one is asked for, and says what each of them is.
    A changed problem takes over what still holds, by the two rules below and by no other way: what
    depends on the design alone always does, taken at the rows or columns that stay.
    """

    norms: Array | None = None
    sizes: Array | None = None
    rounding_norms: Array | None = None
    free_columns: Array | None = None
    column_norms: Array | None = None
    column_sizes: Array | None = None

    def inherit_rows(
        self, other: Norms, rows: NDArray[np.intp] | None = None, *, form: float | None = 1.0
    ) -> None:
        """Take over what `other` knows of its rows, or of those at `rows`.

        The quadratic term is `form` times the other one; None where it is another one with the same
        unpenalised coordinates, and norms in its metric are not taken over.
        """
        self.sizes = _at(other.sizes, rows)
        self.free_columns = _at(other.free_columns, rows)
        if form is not None:
            self.norms = _shrunk(_at(other.norms, rows), form)
            self.rounding_norms = _shrunk(_at(other.rounding_norms, rows), form)

    def inherit_columns(
        self, other: Norms, columns: NDArray[np.intp] | None = None, *, same_losses: bool = True
    ) -> None:
        """Take over what `other` knows of its columns, or of those at `columns`; the rows stay.

        `same_losses` says whether the losses, whose curvature `column_norms` is weighted with, are
        the same.
        """
        self.column_sizes = _at(other.column_sizes, columns)
        if same_losses:
            self.column_norms = _at(other.column_norms, columns)


def _shrunk(norms: Array | None, form: float) -> Array | None:
    """Norms in the metric of ``(form M)^{-1}`` for those in that of ``M^{-1}``, rounded up."""
    return norms if norms is None or form == 1.0 else norms * (up(1.0) / np.sqrt(form))


def _at(known: Array | None, index: NDArray[np.intp] | None) -> Array | None:
    return known if known is None or index is None else known[index]


__all__ = ["Problem", "Quadratic"]


@cache
def _answers(kind: type, protocol: type) -> bool:
    """Whether a class has the methods of a protocol; looked up once, as problems are many."""
    return issubclass(kind, protocol)


class Layout(NamedTuple):
    """What the coordinates and the terms of a model mean, where the numbers do not say it.

    Attributes
    ----------
    intercept : bool
        Whether the last coordinate is one.
    penalty_terms : int
        How many of the terms, the last ones, are a penalty (``|w_j|`` as absolute losses with unit
        rows), so that C and tau are not theirs.
    tau : float or None
        Level of the pinball losses that all other terms are.
    """

    intercept: bool = False
    penalty_terms: int = 0
    tau: float | None = None


class Problem(Record, Immutable):
    """A regularised problem; see the module's docstring for the equation.

    Parameters
    ----------
    design : Design
        The rows ``a_i``, shape (n, d).
    losses : Losses
        The n terms ``f_i``, weights included.
    quadratic : Form
    linear : array_like, shape (d,)
    constant : float
    side : SideConstraints, optional
        Constraints every reduction keeps.
    penalty : Penalty, optional
        ``h``; needs a diagonal M and no side constraints.
    lam : float, optional
        The factor already inside `quadratic` and `penalty` that `with_` changes.
    C : float
        The factor already inside `losses` that `with_` changes.
    kind : str
        A word for tables ("svm", "regression", "cvxpy", ...).
    drift : float
        Bound on the rounding error of `linear` in the dual norm, inherited from a reduction.
    imbalance : float
        The same for each unpenalised coordinate of `linear`.
    layout : Layout, optional
        What the coordinates and terms of a model mean; a reduced problem has none.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> problem = cvxscreen.svm(X, y, C=0.1)
    >>> print(problem.with_(C=1.0))
    Problem (svm)
      terms             200
      coordinates       3
      unpenalised       0
      storage           dense
      side constraints  0
      C                 1
    """

    design: Design
    losses: LossTerms
    quadratic: Form
    linear: Array
    constant: float = 0.0
    side: SideConstraints | None = None
    C: float = 1.0
    kind: str = "problem"
    drift: float = 0.0
    imbalance: float = 0.0
    penalty: Penalty | None = None
    lam: float | None = None
    layout: Layout | None = None
    known: Norms = field(init=False, repr=False, default_factory=Norms)

    def __post_init__(self) -> None:
        if not _answers(type(self.design), LinearMap):
            raise InvalidInput(
                f"`design` is a {type(self.design).__name__}; the rows a_i are needed, for "
                "example cvxscreen.designs.rows.Rows(A)."
            )
        one_of("losses", self.losses, LossTerms, "a `Losses` table is needed")
        if not _answers(type(self.quadratic), Metric):
            raise InvalidInput(
                f"`quadratic` is a {type(self.quadratic).__name__}; a `Quadratic` is needed."
            )
        n, d = self.design.shape
        linear = array("linear", self.linear).copy()
        object.__setattr__(self, "linear", linear)
        object.__setattr__(self, "constant", number("constant", self.constant))
        if len(self.losses) != n:
            raise InvalidInput(f"`losses` has {len(self.losses)} rows but `design` has {n}.")
        if linear.shape != (d,) or not np.isfinite(linear).all():
            raise InvalidInput(f"`linear` must be finite with shape ({d},); found {linear.shape}.")
        if len(self.quadratic.diagonal) != d:
            raise InvalidInput(
                f"`quadratic` has {len(self.quadratic.diagonal)} coordinates, `design` has {d}."
            )
        if not np.isfinite(self.constant):
            raise InvalidInput(f"`constant` is {self.constant}; a finite number is needed.")
        if self.side is not None and self.side.matrix.shape[1] != d:
            raise InvalidInput(
                f"`side` acts on {self.side.matrix.shape[1]} coordinates; the problem has {d}."
            )
        if self.pure_l1:
            self._check_pure_l1()
        elif self.penalty is not None:
            unfit = self.penalty.fits(self.quadratic.diagonal)
            if self.side is not None or self.quadratic.matrix is not None:
                unfit = "it needs a diagonal quadratic term and no side constraints"
            if unfit:
                raise InvalidInput(f"`penalty` ({self.penalty.name}) does not fit: {unfit}.")

    def _check_pure_l1(self) -> None:
        """Refuse what needs a quadratic term where there is none."""
        penalty, losses = self.penalty, self.losses
        if not isinstance(penalty, L1) or not (penalty.kappa > 0).all():
            raise InvalidInput(
                "`penalty`: without a quadratic term every coordinate needs a positive weight in "
                "an L1 norm."
            )
        if penalty.kappa.shape != self.quadratic.diagonal.shape:
            raise InvalidInput(
                f"`penalty` (L1) does not fit: {penalty.fits(self.quadratic.diagonal)}."
            )
        if self.linear_program:
            hinges = (losses.b == 1.0) & (losses.e == 0.0) & (losses.q == 0.0) & (losses.hi == 0.0)
            hinges = hinges & np.isfinite(losses.lo) | (losses.lo == losses.hi)  # of weight 0
            if not hinges.all() or self.design.streamed:
                raise InvalidInput(
                    "`losses` have a kink; without a quadratic term they must be smooth (the "
                    "squared hinge, Huber's loss), or all of them hinges over data in memory."
                )
        if self.linear.any() or self.side is not None:
            raise InvalidInput(
                "`linear` and `side` must be absent where there is no quadratic term."
            )

    @property
    def pure_l1(self) -> bool:
        """Whether an L1 norm alone holds the coordinates, without a quadratic term."""
        return isinstance(self.quadratic, ZeroQuadratic)

    @cached_property
    def linear_program(self) -> bool:
        """Whether it is the LP-SVM: an L1 norm without a quadratic term, and plain hinges."""
        losses = self.losses
        return self.pure_l1 and bool(kinked(losses.q, losses.lo, losses.hi).any())

    @cached_property
    def without_curvature(self) -> bool:
        """Whether nothing can rest on strong convexity.

        So it is where more coordinates are unpenalised than not, or terms are constraints.
        """
        free = int(self.quadratic.free.sum())
        return 2 * free > self.d or self.losses.any_hard

    @property
    def n(self) -> int:
        """Number of loss terms."""
        return self.design.shape[0]

    @property
    def d(self) -> int:
        """Number of coordinates."""
        return self.design.shape[1]

    @cached_property
    def free_index(self) -> NDArray[np.intp]:
        """Where the unpenalised coordinates are."""
        return self.quadratic.free.nonzero()[0]

    # -- norms, computed when first asked for ---------------------------------------------------

    @property
    def norms(self) -> Array:
        """``||a_i||`` in the metric of ``M^{-1}``, penalised coordinates only, shape (n,)."""
        if self.known.norms is None:
            self.known.norms = self.quadratic.dual_norms(self.design)
        return self.known.norms

    @property
    def sizes(self) -> Array:
        """Euclidean ``||a_i||`` over all coordinates, shape (n,); used for rounding only."""
        if self.known.sizes is None:
            form = self.quadratic
            free = len(self.free_index)
            plain = form.matrix is None and not self.pure_l1 and free < self.d
            plain = plain and (free == 0 or (free == 1 and isinstance(self.design, Rows)))
            if plain and (form.diagonal[~form.free] == 1.0).all():  # no pass of their own
                norms = self.norms
                self.known.sizes = np.hypot(norms, self.free_columns[:, 0]) if free else norms
            else:
                self.known.sizes = np.sqrt(row_squares(self.design, np.ones(self.d)))
        return self.known.sizes

    @property
    def rounding_norms(self) -> Array:
        """``|| |a_i| ||`` in the metric of ``M^{-1}`` or an upper bound of it, shape (n,)."""
        if self.known.rounding_norms is None:
            reach, form = self.design.reach, self.quadratic
            if reach is not None:
                self.known.rounding_norms = reach / np.sqrt(form.floor)
            elif form.matrix is None:
                self.known.rounding_norms = self.norms
            else:
                self.known.rounding_norms = self.sizes / np.sqrt(form.floor)
        return self.known.rounding_norms

    @property
    def free_columns(self) -> Array:
        """The design's unpenalised coordinates, shape (n, m)."""
        if self.known.free_columns is None:
            index = self.free_index
            if len(index) > FEW_COLUMNS and isinstance(self.design, Rows):
                self.known.free_columns = self.design.take_columns(index).dense()
            else:
                columns = [self.design.column(int(j)) for j in index]
                self.known.free_columns = (
                    np.column_stack(columns) if columns else np.zeros((self.n, 0))
                )
        return self.known.free_columns

    @property
    def column_norms(self) -> Array:
        """``||A_j||`` over the terms in the metric of ``1/q``, shape (d,); no term with q = 0."""
        if self.known.column_norms is None:
            bent = self.losses.q > 0
            weights = bent / np.where(bent, self.losses.q, 1.0)
            if self.n and (weights == weights[0]).all():  # one pass serves both
                self.known.column_norms = np.sqrt(weights[0]) * self.column_sizes
            else:
                self.known.column_norms = np.sqrt(column_squares(self.design, weights))
        return self.known.column_norms

    @property
    def column_sizes(self) -> Array:
        """Euclidean norms of the columns, shape (d,); used for rounding only."""
        if self.known.column_sizes is None:
            self.known.column_sizes = np.sqrt(column_squares(self.design, np.ones(self.n)))
        return self.known.column_sizes

    def compute_row_norms(self) -> None:
        """Compute the norms of the rows now, so that problems made from this one share them."""
        _ = self.norms, self.sizes, self.rounding_norms, self.free_columns

    # -- value and change -----------------------------------------------------------------------

    def primal(self, x: ArrayLike, margins: ArrayLike | None = None) -> float:
        """The objective at `x` (side constraints, cones and hard terms are not checked)."""
        x = array("x", x, (self.d,))
        t = self.design.forward(x) if margins is None else margins
        value = self.quadratic.inner(0.5 * self.quadratic.apply(x) + self.linear, x)
        if self.penalty is not None:
            value += self.penalty.value(x)
        values = self.losses.value(t)
        if self.losses.any_hard:
            values = np.where(self.losses.hard & np.isinf(values), 0.0, values)
        return float(np.sum(values)) + value + self.constant

    def with_(
        self, *, C: float | None = None, lam: float | None = None, tau: float | None = None
    ) -> Problem:
        """The same problem at another parameter.

        Every loss weight is multiplied by ``C / self.C``; ``M`` and ``h`` by ``lam / self.lam``;
        pinball losses get the level ``tau``.

        Raises
        ------
        InvalidInput
            If the value is not positive, the problem does not have that parameter, or it is a
            reduced one.
        """
        if sum(value is not None for value in (C, lam, tau)) != 1:
            raise InvalidInput("give `with_` one of `C`, `lam` and `tau`.")
        if lam is not None:
            return self._with_lam(lam)
        if tau is not None:
            return self._with_tau(tau)
        if self.drift > 0 or self.imbalance > 0:
            raise InvalidInput(
                "`C` of a reduced problem cannot be changed: fixed terms are in its linear term. "
                "Change it on the full problem and reduce again."
            )
        C = positive("C", C)
        layout, factor = self.layout, C / self.C
        losses = self.losses
        if layout is not None and not layout.penalty_terms and not (~self.quadratic.free).any():
            raise InvalidInput("`C`: there is no penalty that it could be weighed against.")
        if layout is not None and layout.penalty_terms:
            losses = losses.weighted(np.where(self._own_terms, factor, 1.0))
        else:
            losses = losses.scaled(factor)
        changed = replace(self, losses=losses, C=C)
        if not self.design.streamed:
            self.compute_row_norms()
        changed.known.inherit_rows(self.known)
        changed.known.inherit_columns(self.known, same_losses=False)
        return changed

    @property
    def _own_terms(self) -> NDArray[np.bool_]:
        """Mask of the terms that are not a penalty's, shape (n,)."""
        tail = 0 if self.layout is None else self.layout.penalty_terms
        return np.arange(self.n) < self.n - tail

    def _with_tau(self, tau: float) -> Problem:
        if self.layout is None or self.layout.tau is None:
            raise InvalidInput("`tau`: this problem has no pinball losses of one level.")
        tau = tolerance(tau, "tau")
        losses, own = self.losses, self._own_terms
        weight = losses.hi - losses.lo
        changed = replace(
            self,
            losses=Losses(
                losses.b, losses.e, losses.q, np.where(own, -tau * weight, losses.lo),
                np.where(own, (1.0 - tau) * weight, losses.hi),
            ),
            layout=self.layout._replace(tau=tau),
        )
        if not self.design.streamed:  # a path over tau asks for them at every value
            _ = self.sizes, self.column_sizes
        changed.known.inherit_rows(self.known)
        changed.known.inherit_columns(self.known, same_losses=False)
        return changed

    def _with_lam(self, lam: float) -> Problem:
        if self.lam is None or not isinstance(self.quadratic, Quadratic):
            raise InvalidInput("`lam`: this problem is not parametrised by lambda; change `C`.")
        lam = positive("lam", lam)
        if self.drift > 0 or self.imbalance > 0:
            raise InvalidInput("`lam` of a reduced problem cannot be changed; reduce again.")
        factor = lam / self.lam
        penalty = None if self.penalty is None else self.penalty.scaled(factor)
        changed = replace(
            self, quadratic=self.quadratic.scaled(factor), penalty=penalty, lam=lam
        )
        shared = isinstance(penalty, L1) and not self.design.streamed
        if shared:  # a path over lambda asks for all of them at every value
            _ = self.sizes, self.free_columns, self.column_norms, self.column_sizes
            _ = self.norms
        changed.known.inherit_rows(self.known, form=factor if shared else None)
        changed.known.inherit_columns(self.known)
        return changed

    def to_cvxpy(self) -> Any:
        """Return the problem as a ``cvxpy.Problem`` in one vector variable."""
        return supplied("cvxpy.problem")(self)

    def __str__(self) -> str:
        free = int(self.quadratic.free.sum())
        return fields(
            [
                ("terms", self.n),
                ("coordinates", self.d),
                ("unpenalised", free),
                ("storage", "CSR" if self.design.sparse else "dense"),
                ("side constraints", 0 if self.side is None else len(self.side.offset)),
                *([] if self.penalty is None else [("penalty", self.penalty.name)]),
                ("C", float(self.C)) if self.lam is None else ("lambda", float(self.lam)),
            ],
            title=f"Problem ({self.kind})",
        )


NOTHING = 1e-280
"""Values and gaps below it are 0: what a certificate charges for numbers too small to be rounded as
others is more, and an optimum of exactly 0 has a gap of as much."""


def relative_gap(gap: ArrayLike, primal: ArrayLike) -> Array:
    """``gap / max(|primal|, |primal - gap|)``, infinite with the gap: what a tolerance bounds."""
    gap, primal = np.asarray(gap, dtype=np.float64), np.asarray(primal, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        size = np.maximum(np.maximum(np.abs(primal), np.abs(primal - gap)), NOTHING)
        return np.where(np.isfinite(gap), gap / size, np.inf)


def norm_as_terms(design: Rows, losses: LossTerms, kappa: Array) -> tuple[Rows, Losses]:
    """The rows and losses, and below them those of ``kappa_j |x_j|`` for all columns of the matrix.

    Columns beside the matrix, an intercept, have no such term. The matrix is copied.
    """
    zero = np.zeros(len(kappa))
    unit = sp.eye(len(kappa), design.shape[1], format="csr")
    return with_terms(design, losses, unit, Losses(zero, zero, zero, -kappa, kappa))


def with_terms(
    design: Rows, losses: LossTerms, rows: Any, more: LossTerms
) -> tuple[Rows, Losses]:
    """The rows and losses, and below them CSR `rows`, shape (k, d), with the losses `more`.

    The matrix is copied, as a sparse one where most rows are new: these hold an entry or two.
    """
    k, matrix, scale = len(more), design.matrix, design.scale
    p = matrix.shape[1]
    below = rows[:, :p].astype(matrix.dtype)
    if sp.issparse(matrix) or k > len(losses):
        matrix = sp.vstack([sp.csr_matrix(matrix), below], format="csr")
    else:
        matrix = np.vstack([matrix, below.toarray()])
    if scale is not None:
        scale = np.concatenate([scale, np.ones(k)])
    extra = np.concatenate([design.extra, rows[:, p:].toarray()])
    both = (np.concatenate([getattr(losses, f), getattr(more, f)]) for f in FIELDS)
    return Rows(matrix, scale, extra), Losses(*both)


def fingerprint(problem: Problem, tol: float, words: str, *arrays: Array) -> str:
    """A digest of data, losses, regulariser and tolerance, and of what else a file belongs to."""
    digest = hashlib.sha256()
    losses = problem.losses.scaled(1.0 / problem.C)
    probe = np.cos(np.arange(problem.d) + 1.0)
    parts = [
        losses.b, losses.e, losses.q, losses.lo, losses.hi, problem.linear,
        problem.quadratic.diagonal, problem.quadratic.apply(probe), problem.design.forward(probe),
        *arrays, np.array([tol, problem.constant]),
    ]
    if isinstance(problem.penalty, L1):
        parts.append(problem.penalty.kappa)
    if problem.side is not None:
        parts += [problem.side.offset, problem.side.matrix @ probe]
    for part in parts:
        digest.update(np.ascontiguousarray(part).tobytes())
    digest.update(f"{words} {problem.penalty and problem.penalty.name}".encode())
    return digest.hexdigest()
