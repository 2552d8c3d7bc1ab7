"""Samples, labels, weights, named losses, norms, linear constraints: what the front doors share.

A named loss is one row of `cvxscreen.core.losses`: from targets and weights to the five numbers.

Over data in chunks the models are the same, with a column a row in place of vectors
(`chunked_terms`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.validation import array, choice, positive, stored, tolerance
from cvxscreen.certificates.certificate import register_certificate
from cvxscreen.certificates.one_pass import certify_chunks
from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.losses import FIELDS, Losses, LossTerms
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Layout, Problem, Quadratic, ZeroQuadratic, norm_as_terms
from cvxscreen.core.streamed import ChunkTerms, UnitLoss, surveyed_design
from cvxscreen.designs.chunks import ABSENT, Chunks
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.out_of_core import dask_engine, device  # noqa: F401  (`opened` knows their X by them)
from cvxscreen.out_of_core.streams import Column, Opened

if TYPE_CHECKING:
    from scipy.optimize import LinearConstraint

Array = NDArray[np.float64]

_REMEDY = "-1 and +1 are needed, for example np.where(y == positive_class, 1, -1)."


def vector(name: str, values: ArrayLike, n: int) -> Array:
    """`values` as a finite float vector of length `n`, a copy."""
    v = array(name, values).copy()
    if v.ndim == 2 and 1 in v.shape:
        v = v.ravel()
    if v.ndim != 1:
        raise InvalidInput(f"`{name}` has shape {v.shape}; a vector ({n},) is needed.")
    if len(v) != n:
        raise InvalidInput(f"`{name}` has {len(v)} entries but `X` has {n} rows.")
    if not np.isfinite(v).all():
        raise InvalidInput(f"`{name}` holds NaN or infinity; drop or impute those rows.")
    return v


def filled_rows(X: Any) -> Rows:
    """The rows of a data set that has some."""
    rows = Rows(X)
    some_rows(*rows.shape)
    return rows


def some_rows(n: int, d: int) -> None:
    """Refuse an empty data set."""
    if n == 0 or d == 0:
        raise InvalidInput(
            f"`X` is empty: {n} rows and {d} columns; at least one of each is needed."
        )


def weights(sample_weight: ArrayLike | None, n: int) -> Array:
    """Per-sample weights, non-negative and not all zero; ones when omitted."""
    if sample_weight is None:
        return np.ones(n)
    return checked_weights(vector("sample_weight", sample_weight, n))


def checked_weights(w: NDArray[Any]) -> NDArray[Any]:
    """`w`, unless an entry is negative, or none positive."""
    if w.min() < 0:
        raise InvalidInput("`sample_weight` has negative entries; weights must be >= 0.")
    if not w.any():
        raise InvalidInput("`sample_weight` is zero everywhere; nothing would be fitted.")
    return w


def labels(y: ArrayLike, n: int) -> Array:
    """Labels -1/+1 with both classes present."""
    words = _words(y)
    if words:
        raise InvalidInput(f"`y` holds words ({', '.join(words)}, ...); {_REMEDY}")
    v = vector("y", y, n)
    if v.size and (np.abs(v) == 1.0).all() and v.min() < v.max():
        return v
    found = np.unique(v)  # what else there is
    if not np.isin(found, (-1.0, 1.0)).all():
        shown = ", ".join(f"{value:g}" for value in found[:5])
        raise InvalidInput(
            f"`y` holds the labels {shown}{', ...' if len(found) > 5 else ''}; {_REMEDY}"
        )
    if len(found) < 2:
        raise InvalidInput(
            f"`y` has only one class ({found[0]:+g}) in {n} rows; a classifier needs both."
        )
    return v


def _words(y: ArrayLike) -> list[str]:
    """Some of the labels that are words, quoted."""
    if isinstance(y, np.ndarray) and y.dtype.kind in "biuf":
        return []
    try:
        found = np.asarray(y).ravel().tolist()
    except ValueError:  # ragged; said elsewhere
        return []
    return sorted({repr(label) for label in found if isinstance(label, str)})[:3]


Constraints: TypeAlias = "tuple[Any, ArrayLike] | LinearConstraint"
"""``(A, b)`` for ``A @ w >= b``, or what SciPy's optimisers take: ``lb <= A @ w <= ub``."""


def side_constraints(
    d: int, intercept: bool, nonneg: bool, monotone: ArrayLike | None,
    constraints: Constraints | None,
) -> SideConstraints | None:
    """The constraints of the d coefficients, none of the intercept; None where there are none.

    Raises
    ------
    InvalidInput
        For shapes that do not fit, NaN, other directions than -1, 0 and 1, a feature that is left
        no coefficient but 0, or a row that no coefficients satisfy.
    """
    if not nonneg and monotone is None and constraints is None:
        return None  # most problems; what follows takes a millisecond
    sign = np.full(d, float(nonneg))
    if monotone is not None:
        direction = array("monotone", monotone)
        if direction.shape != (d,) or not np.isin(direction, (-1.0, 0.0, 1.0)).all():
            raise InvalidInput(
                f"`monotone` has shape {direction.shape} and goes from {direction.min(initial=0)} "
                f"to {direction.max(initial=0)}; one of -1 (falling), 0 (free) and 1 (rising) is "
                f"needed for each of the {d} features."
            )
        opposed = np.flatnonzero(direction * sign < 0)
        if len(opposed):
            raise InvalidInput(
                f"`monotone` is -1 for feature {opposed[0]} and `nonneg` is True: only 0 is left; "
                "leave the feature out."
            )
        sign = np.where(direction == 0.0, sign, direction)
    signed = np.flatnonzero(sign)
    A = sp.csr_matrix((sign[signed], (np.arange(len(signed)), signed)), (len(signed), d))
    low, high = np.zeros(len(signed)), np.full(len(signed), np.inf)
    if constraints is not None:
        B, least, most = _rows_and_ends(d, constraints)
        A, low, high = sp.vstack([A, B]), np.append(low, least), np.append(high, most)
    return linear_constraints(A, low, high, intercept)


def linear_constraints(
    A: Any, low: Array, high: Array, intercept: bool
) -> SideConstraints | None:
    """``low <= A w <= high``, first the rows whose ends are equal; None where nothing is bound.

    With an `intercept` the coordinates are w and one more, which no row touches.
    """
    A, same = sp.csr_matrix(A), (low == high) & np.isfinite(low)
    kept, ends = [A[same]], [low[same]]
    for limit, way in ((low, 1.0), (high, -1.0)):
        rows = ~same & np.isfinite(limit)
        kept.append(way * A[rows])
        ends.append(way * limit[rows])
    matrix = sp.vstack(kept, format="csr")
    if not matrix.shape[0]:
        return None
    if intercept:
        matrix = sp.hstack([matrix, sp.csr_matrix((matrix.shape[0], 1))], format="csr")
    equal = int(same.sum())
    dims = (("zero", equal), ("nonneg", matrix.shape[0] - equal))
    return SideConstraints(
        matrix, -np.concatenate(ends), tuple(cone for cone in dims if cone[1])
    )


def _rows_and_ends(d: int, constraints: Any) -> tuple[Any, Array, Array]:
    """Rows of coefficients, without those of zeros, and what their products lie between."""
    from scipy.optimize import LinearConstraint  # a sixth of a second, for whoever needs it

    if isinstance(constraints, LinearConstraint):
        A, low, high = constraints.A, constraints.lb, constraints.ub
    elif isinstance(constraints, tuple | list) and len(constraints) == 2:
        (A, low), high = constraints, np.inf
    else:
        raise InvalidInput(
            f"`constraints` is a {type(constraints).__name__}; a pair (A, b) for A @ w >= b, or a "
            "scipy.optimize.LinearConstraint, is needed."
        )
    A = sp.csr_matrix(stored(A if sp.issparse(A) else np.atleast_2d(A), "constraints"))
    if A.shape[1] != d:
        raise InvalidInput(
            f"`constraints`: the matrix has {A.shape[1]} columns; one for each of the {d} "
            "coefficients is needed, none for the intercept."
        )
    try:
        low, high = (
            np.broadcast_to(array("constraints", end), (A.shape[0],)) for end in (low, high)
        )
    except ValueError:
        raise InvalidInput(
            f"`constraints`: the matrix has {A.shape[0]} rows; as many bounds, or one number, are "
            "needed."
        ) from None
    empty = np.diff(A.indptr) == 0
    wrong = np.isnan(low) | np.isnan(high) | (low > high) | (low == np.inf) | (high == -np.inf)
    wrong |= empty & ((low > 0) | (high < 0))
    if wrong.any():
        i = int(np.flatnonzero(wrong)[0])
        row = "zeros" if empty[i] else "the coefficients"
        raise InvalidInput(
            f"`constraints`: row {i} asks for {low[i]:g} <= product <= {high[i]:g}, which no "
            f"product with {row} satisfies."
        )
    return A[~empty], low[~empty], high[~empty]


@dataclass(frozen=True)
class Shape:
    """The shape parameters of a loss; None means the default of the loss that needs it."""

    gamma: float | None = None
    epsilon: float | None = None
    tau: float | None = None
    delta: float | None = None

    def __post_init__(self) -> None:
        for name in ("gamma", "epsilon", "tau", "delta"):  # also those that the loss does not use
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))


def _width(shape: Shape, name: str, default: float) -> float:
    value = getattr(shape, name)
    return positive(name, default if value is None else value)


def _level(shape: Shape) -> float:
    return 0.5 if shape.tau is None else tolerance(shape.tau, "tau")


# A new loss is one row: name -> (b, weight c, shape) -> (b, e, q, lo, hi).
_ROWS: dict[str, Callable[[Array, Array | float, Shape], tuple[Array | float, ...]]] = {
    "hinge": lambda b, c, s: (b, 0.0, 0.0, -c, 0.0),
    "smoothed_hinge": lambda b, c, s: (b, 0.0, _width(s, "gamma", 0.5) / c, -c, 0.0),
    "squared_hinge": lambda b, c, s: (b, 0.0, 1.0 / c, -np.inf, 0.0),
    "absolute": lambda b, c, s: (b, 0.0, 0.0, -c, c),
    "quantile": lambda b, c, s: (b, 0.0, 0.0, -c * _level(s), c * (1.0 - _level(s))),
    "epsilon": lambda b, c, s: (b, _width(s, "epsilon", 0.1), 0.0, -c, c),
    "smoothed_epsilon": lambda b, c, s: (
        b, _width(s, "epsilon", 0.1), _width(s, "gamma", 0.5) / c, -c, c
    ),
    "squared": lambda b, c, s: (b, 0.0, 1.0 / c, -np.inf, np.inf),
    "huber": lambda b, c, s: (
        b, 0.0, 1.0 / c, -c * _width(s, "delta", 1.0), c * _width(s, "delta", 1.0)
    ),
}

CLASSIFICATION = ("hinge", "smoothed_hinge", "squared_hinge")
REGRESSION = ("absolute", "quantile", "epsilon", "smoothed_epsilon", "huber")
WITH_SQUARED = (*REGRESSION, "squared")
"""What is also taken beside an L1 norm or constraints. A squared loss beside a squared norm is a
linear system, of which nothing can be left out."""

OF_ONE_NORM = ("hinge", "squared_hinge", "huber", "squared")
"""What has solvers of its own under an L1 norm without a quadratic term or an intercept."""


def named_loss(
    name: str, b: Array, weight: Array | float, shape: Shape, among: tuple[str, ...]
) -> Losses:
    """The loss called `name` with kinks at `b` and weights ``weight > 0``, one for each or for all.

    Raises
    ------
    UnknownName
        If the name is not one of `among`.
    InvalidInput
        If a shape parameter is not positive (or ``tau`` not below 1).
    """
    columns = _ROWS[choice("loss", name, among)](b, weight, shape)
    return Losses(*columns)  # type: ignore[arg-type]


def losses_of_samples(
    name: str, b: Array, factor: float, sample_weight: ArrayLike | None, shape: Shape,
    among: tuple[str, ...],
) -> Losses:
    """`named_loss` of samples with kinks at `b`, each weighted by `factor` times its own weight.

    Those of weight 0 are identically zero (lo = hi = 0).
    """
    if sample_weight is None:
        return named_loss(name, b, factor, shape, among)
    c = factor * weights(sample_weight, len(b))
    used = np.flatnonzero(c > 0)
    losses = named_loss(name, b[used], c[used], shape, among)
    if len(used) == len(b):
        return losses
    full = {name: np.zeros(len(b)) for name in FIELDS}
    for name, column in full.items():
        column[used] = getattr(losses, name)
    return Losses(**full)


# -- data in chunks --------------------------------------------------------------------------------

_AT_ONCE = 2**20
"""Rows that are checked at a time."""

register_certificate(Chunks, certify_chunks)


def ridge(design: Any, losses: LossTerms, C: float, intercept: bool, kind: str) -> Problem:
    """The problem with ``1/2 ||w||^2``, the last coordinate unpenalised if it is an intercept."""
    diagonal = np.ones(design.shape[1])
    if intercept:
        diagonal[-1] = 0.0
    return Problem(design, losses, Quadratic(diagonal), np.zeros(len(diagonal)), C=C, kind=kind)


def one_norm(
    design: Rows, losses: Losses, C: float, kind: str, layout: Layout, *, alone: bool
) -> Problem:
    """``sum_j |w_j|`` beside losses, w the coordinates of the matrix.

    `alone` says that there is no intercept and no constraint, and that the L1 norm's own solvers
    take the losses: it is then the problem's penalty, and features are left out. Else its absolute
    values are the last terms of the problem.
    """
    p = design.matrix.shape[1]
    if alone:
        return Problem(
            design, losses, ZeroQuadratic(np.zeros(p)), np.zeros(p), penalty=L1(np.ones(p)), C=C,
            kind=kind, layout=layout,
        )
    design, losses = norm_as_terms(design, losses, np.ones(p))
    width = design.shape[1]
    return Problem(
        design, losses, Quadratic(np.zeros(width)), np.zeros(width), C=C, kind=kind,
        layout=layout._replace(penalty_terms=p),
    )


def refuse_beside(bound: bool, kernel: Any, needed: str) -> None:
    """Refuse constraints, or no squared norm, beside a kernel or data in chunks."""
    given = "`kernel`" if kernel is not None else "`X` in chunks"
    if bound:
        raise InvalidInput(
            f"{given} takes no constraints (`nonneg`, `monotone`, `constraints`); give `X` as one "
            "matrix of features."
        )
    raise InvalidInput(f"{given} needs the squared norm: {needed}.")


def chunked_terms(
    opened: Opened,
    y: Any,
    loss: str,
    shape: Shape,
    among: tuple[str, ...],
    factor: float,
    sample_weight: Any = None,
    intercept: bool = False,
) -> tuple[Chunks, ChunkTerms]:
    """The design and the loss terms of a model: one pass over the data, which checks them.

    Parameters
    ----------
    opened : (Source, Engine)
    y : array_like, shape (n,)
        Labels -1/+1 (kept as single bytes) or targets (held by reference where they are floats).
    loss, shape, among
        As in `named_loss`; labels where `among` are the losses of classification.
    factor : float
        What every weight is multiplied by.
    sample_weight : array_like, shape (n,), optional
    intercept : bool

    Raises
    ------
    InvalidInput
        On NaN, wrong shapes, one class, labels other than -1/+1, weights that are none.
    """
    source, engine = opened
    y, sample_weight = device.on_host(y, sample_weight)
    n = source.shape[0]
    one = np.ones(1)
    row = named_loss(loss, one, one, shape, among)
    unit = UnitLoss(1.0, *(float(getattr(row, name)[0]) for name in ("e", "q", "lo", "hi")))
    weight: Column = ABSENT
    if sample_weight is not None:
        weight = checked_weights(_numbers("sample_weight", sample_weight, n))
    scale: Column = ABSENT
    target: Column = ABSENT
    if among == CLASSIFICATION:
        scale = _labels(y, n)
    else:
        target = _numbers("y", y, n)
    for column in (scale, target, weight):
        engine.keep(column)
    design = surveyed_design(source, engine, scale, intercept)
    return design, ChunkTerms(n, unit, target, weight, factor)


def _numbers(name: str, values: Any, n: int) -> NDArray[Any]:
    """A finite vector of length `n`; float32 and float64 are held by reference."""
    try:
        v = np.asarray(values)
        if v.dtype not in (np.float32, np.float64):
            v = v.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"`{name}` is not a vector of numbers: {error}") from None
    if v.ndim == 2 and 1 in v.shape:
        v = v.ravel()
    if v.shape != (n,):
        raise InvalidInput(f"`{name}` has shape {v.shape} but `X` has {n} rows.")
    for start in range(0, n, _AT_ONCE):
        bad = ~np.isfinite(v[start : start + _AT_ONCE])
        if bad.any():
            row = start + int(np.flatnonzero(bad)[0])
            raise InvalidInput(
                f"`{name}` holds NaN or infinity (first in row {row}); drop or impute those rows."
            )
    return v


def _labels(values: Any, n: int) -> NDArray[np.int8]:
    """Labels -1/+1 with both classes present, one byte each."""
    v = np.asarray(values)
    if v.ndim == 2 and 1 in v.shape:
        v = v.ravel()
    if v.dtype.kind not in "fiub" or v.shape != (n,):
        v = _numbers("y", values, n)
    sign = np.empty(n, dtype=np.int8)
    for start in range(0, n, _AT_ONCE):
        rows = slice(start, start + _AT_ONCE)
        part = v[rows]
        wrong = (part != 1) & (part != -1)
        if wrong.any():
            raise InvalidInput(
                f"`y` holds the label {part[wrong][0]:g} (row {start + int(wrong.argmax())}); -1 "
                "and +1 are needed, for example np.where(y == positive_class, 1, -1)."
            )
        sign[rows] = part
    if sign.min() == sign.max():
        raise InvalidInput(
            f"`y` has only one class ({sign[0]:+d}) in {n} rows; a classifier needs both."
        )
    return sign
