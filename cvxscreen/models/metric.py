"""Metric learning: comparisons of distances from labels or index arrays, and the problem of them.

Triplets, pairs and quadruplets. A term says ``d^2(plus pair) - d^2(minus pair) >= threshold``; one
of the two pairs may be missing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.immutable import Immutable
from cvxscreen._support.limits import require
from cvxscreen._support.tables import Echoed
from cvxscreen._support.validation import (
    array,
    finite,
    flag,
    number,
    one_of,
    positive,
    real,
    stored,
    whole,
)
from cvxscreen.core.losses import Losses
from cvxscreen.core.penalty import PSD, NonNegative
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.comparisons import Indexed, Pairs, PairTable, Products, Terms, centred
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.models.samples import some_rows, vector

Array = NDArray[np.float64]
Points = NDArray[np.int64]

LISTED_BYTES = 57
"""Of memory, at the peak, for each triplet that is listed (measured)."""


class Comparisons(Echoed, Immutable):
    """A set of terms over n points; made by `triplets`, `pairs` and `quadruplets`.

    Attributes
    ----------
    n : int
        Number of points.
    left, right : array of int32, shape (P,)
        The unique pairs of points that the terms use.
    terms : Indexed or Products
    threshold, weight : array, shape (1,) or (T,)
        One entry for all terms, or one each.
    anchors, near, far : arrays of int, optional
        For triplets from labels: the anchor of each block and the points of its lists.
    listed : array of int, shape (T, 2, 3 or 4), optional
        The points of every term where they were given one by one.

    Examples
    --------
    >>> import numpy as np, cvxscreen
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> y = X[:, 0] > 0
    >>> T = cvxscreen.triplets(X, y, k=2)
    >>> T
    <Comparisons: 160 comparisons over 40 points and 126 pairs>
    >>> both = T + cvxscreen.triplets(X, index=[[0, 1, 2]])     # a mixture
    >>> len(both)
    161
    """

    n: int
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    terms: Terms
    threshold: Array
    weight: Array
    anchors: Points | None = None
    near: Points | None = None
    far: Points | None = None
    listed: Points | None = None

    def __len__(self) -> int:
        return len(self.terms)

    @property
    def index(self) -> Points:
        """The points of every term: (i, j, l) for triplets, same class first; shape (T, 3).

        (T, 2) for pairs and (T, 4), the closer pair first, for quadruplets.

        Raises
        ------
        TooLarge
            For a set that does not fit into memory when listed.
        InvalidInput
            For a mixture.
        """
        if self.listed is not None:
            return self.listed
        if self.anchors is None or self.near is None or self.far is None:
            raise InvalidInput("a mixture of comparisons has no single index; keep its parts.")
        require(
            LISTED_BYTES * len(self), f"the list of all {len(self):,} triplets",
            "use the set as it is (nothing else needs the list), or choose a smaller `k`",
        )
        shape = self.terms
        if not isinstance(shape, Products):
            raise InvalidInput("these comparisons were not made from labels; they have no lists.")
        rows = np.diff(shape.near_ptr)
        owner = np.repeat(np.arange(len(rows)), rows)
        width = np.diff(shape.far_ptr)[owner]
        i = np.repeat(self.anchors[owner], width)
        j = np.repeat(self.near, width)
        start = np.repeat(np.asarray(shape.far_ptr)[:-1][owner] - np.cumsum(width) + width, width)
        away = self.far[start + np.arange(len(i))]
        return np.column_stack([i, j, away])

    def weighted(self, weight: ArrayLike) -> Comparisons:
        """The same terms with other weights: one positive number, or one a term."""
        if np.ndim(weight) == 0:
            return replace(self, weight=np.array([positive("weight", weight)]))
        fresh = vector("weight", weight, len(self))
        if not (fresh > 0).all():
            raise InvalidInput("`weight` must be positive; leave out the terms of weight 0.")
        return replace(self, weight=fresh)

    def __add__(self, other: Comparisons) -> Comparisons:
        """A mixture: the terms of both, each with its own weight and threshold."""
        if not isinstance(other, Comparisons):
            return NotImplemented
        if other.n != self.n:
            raise InvalidInput(f"comparisons over {self.n} and {other.n} points cannot be mixed.")
        key = np.concatenate([_keys(part.left, part.right, self.n) for part in (self, other)])
        unique, place = np.unique(key, return_inverse=True)
        missing = len(unique)
        columns = []
        for part, offset in ((self, 0), (other, len(self.left))):
            map_ = np.append(place[offset:offset + len(part.left)], missing).astype(np.int32)
            columns.append([map_[side] for side in part.terms.index()])
        plus, minus = (np.concatenate(pair) for pair in zip(*columns, strict=True))
        both = [
            np.concatenate([np.broadcast_to(getattr(part, name), len(part))
                            for part in (self, other)])
            for name in ("threshold", "weight")
        ]
        left, right = _ends(unique, self.n)
        return Comparisons(self.n, left, right, Indexed(plus, minus, missing), *both)

    def table(self, X: Any, diagonal: bool) -> PairTable:
        """The pairs with their points, centred."""
        matrix = stored(X, "X")
        some_rows(*matrix.shape)
        points = centred(matrix)
        if len(points) != self.n:
            raise InvalidInput(
                f"`X` has {len(points)} rows but the comparisons are over {self.n} points."
            )
        return PairTable(points, self.left, self.right, diagonal)

    def pull(self, X: Any, *, diagonal: bool = False) -> Array:
        """``sum (x_i - x_j)(x_i - x_j)'`` over the unique minus pairs: LMNN's linear term.

        Returns
        -------
        array, shape (d, d), or (d,) when `diagonal`
        """
        used = np.zeros(len(self.left) + 1, dtype=bool)
        shape = self.terms
        used[shape.near if isinstance(shape, Products) else shape.minus] = True
        omega = used.astype(np.float64)
        return self.table(X, diagonal).adjoint(omega)

    def __str__(self) -> str:
        return f"{len(self):,} comparisons over {self.n:,} points and {len(self.left):,} pairs"


def _keys(first: ArrayLike, second: ArrayLike, n: int) -> Points:
    a, b = np.asarray(first, dtype=np.int64), np.asarray(second, dtype=np.int64)
    return np.minimum(a, b) * n + np.maximum(a, b)


def _ends(keys: Points, n: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    return (keys // n).astype(np.int32), (keys % n).astype(np.int32)


def from_points(
    n: int,
    plus: tuple[Points, Points] | None,
    minus: tuple[Points, Points] | None,
    listed: Points,
    threshold: ArrayLike,
) -> Comparisons:
    """Terms from the two points of their plus and of their minus pair.

    A pair of twice the same point, and one left out (-1), is missing.
    """
    sides = []
    for side in (plus, minus):
        if side is None:
            sides.append(np.full(len(listed), -1, dtype=np.int64))
            continue
        key = _keys(*side, n)
        sides.append(np.where((side[0] == side[1]) | (side[0] < 0), -1, key))
    unique, place = np.unique(np.concatenate(sides), return_inverse=True)
    if len(unique) and unique[0] == -1:
        place = np.where(place == 0, len(unique), place) - 1
        unique = unique[1:]
    p, m = place.astype(np.int32).reshape(2, -1)
    left, right = _ends(unique, n)
    return Comparisons(
        n, left, right, Indexed(p, m, len(unique)), np.atleast_1d(np.asarray(threshold, float)),
        np.ones(1), listed=listed,
    )


def from_lists(
    anchors: Points, near: list[Points], far: list[Points], order: Points
) -> Comparisons:
    """Triplets ``(anchor, near, far)`` for all near and far points of each anchor.

    Pairs are numbered along `order`, a permutation of the points: passes over the pairs find points
    that are close in it in the cache.
    """
    n = len(order)
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(n)
    used = [b for b in range(len(anchors)) if len(near[b]) and len(far[b])]
    anchors = np.asarray(anchors, dtype=np.int64)[used]
    near, far = [near[b] for b in used], [far[b] for b in used]
    sizes = [np.array([len(part) for part in lists], dtype=np.int64) for lists in (near, far)]
    flat = [np.concatenate(lists).astype(np.int64) for lists in (near, far)]
    keys = [
        _keys(rank[np.repeat(anchors, size)], rank[points], n)
        for size, points in zip(sizes, flat, strict=True)
    ]
    unique, place = np.unique(np.concatenate(keys), return_inverse=True)
    number: NDArray[np.int32] = place.astype(np.int32)
    pointers = [np.concatenate([[0], np.cumsum(size)]) for size in sizes]
    terms = Products.full(
        pointers[0], number[: len(keys[0])], pointers[1], number[len(keys[0]):], len(unique)
    )
    left, right = (order[side].astype(np.int32) for side in _ends(unique, n))
    return Comparisons(
        n, left, right, terms, np.ones(1), np.ones(1), anchors=anchors, near=flat[0], far=flat[1]
    )


LIST_BYTES = 73
"""Of memory, at the peak, for each neighbour of each point (measured)."""


def triplets(
    X: Any,
    y: ArrayLike | None = None,
    k: int | tuple[int, int] | str = 5,
    *,
    index: ArrayLike | None = None,
) -> Comparisons:
    """Triplets (i, j, l): j should be closer to i than l, by a margin of 1.

    Parameters
    ----------
    X : array_like or sparse matrix, shape (n, d)
    y : array_like, shape (n,)
        Class labels of any kind; j has the class of i, l another one.
    k : int, pair of int, or "all"
        The number of nearest neighbours of the same and of other classes that are combined;
        ``"all"`` combines all of them, without ever listing the triplets.
    index : array_like of int, shape (T, 3), optional
        The triplets themselves, instead of `y` and `k`.

    Returns
    -------
    Comparisons
        ``len(T)`` counts them, ``T.index`` lists them.

    Raises
    ------
    InvalidInput
        On wrong shapes, labels of one class only, or indices outside the data.

    Examples
    --------
    >>> import numpy as np, cvxscreen
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> y = X[:, 0] > 0
    >>> T = cvxscreen.triplets(X, y, k=2)
    >>> len(T)
    160
    >>> i, j, l = T.index[0]
    >>> bool(y[i] == y[j]), bool(y[i] == y[l])
    (True, False)
    """
    rows = Rows(X)
    n = rows.shape[0]
    some_rows(*rows.shape)
    if index is not None:
        listed = _listed("index", index, n, 3)
        i, close, away = listed.T
        return from_points(n, (i, away), (i, close), listed, 1.0)
    label = _labels(y, n)
    count = len(np.unique(label))
    if count < 2:
        raise InvalidInput("`y` has only one class; triplets need points of another one.")
    if count == n:
        raise InvalidInput("`y` has no class with two points; triplets need two of a kind.")
    same, other = _numbers_of_neighbours(k, n)
    entries = n * min(same + other, n - 1)
    require(
        LIST_BYTES * entries, f"the lists of {entries:,} neighbours of {n:,} points",
        "choose a number of neighbours `k`, or a smaller one",
    )
    near: list[Points] = [np.zeros(0, dtype=np.int64)] * n
    far: list[Points] = [np.zeros(0, dtype=np.int64)] * n
    data = rows.dense() if same < n or other < n else np.zeros((n, 1))
    for value in range(label.max() + 1):
        mine, rest = np.flatnonzero(label == value), np.flatnonzero(label != value)
        inside = _nearest(data, mine, mine, same + 1)
        outside = _nearest(data, mine, rest, other)
        for i, close, away in zip(mine, inside, outside, strict=True):
            near[i] = close[close != i][:same]
            far[i] = away
    return from_lists(np.arange(n), near, far, np.argsort(label, kind="stable"))


def pairs(
    X: Any,
    y: ArrayLike | None = None,
    k: int | tuple[int, int] | str = 5,
    *,
    index: ArrayLike | None = None,
    same: ArrayLike | None = None,
    upper: float | None = None,
    lower: float | None = None,
) -> Comparisons:
    """Pairs: squared distances at most `upper` within a class, at least `lower` across classes.

    Parameters
    ----------
    X : array_like or sparse matrix, shape (n, d)
    y : array_like, shape (n,)
    k : int, pair of int, or "all"
        As for `triplets`: each point with its nearest neighbours of either kind.
    index : array_like of int, shape (T, 2), with `same` : array_like of bool, shape (T,)
        The pairs themselves, instead of `y` and `k`.
    upper, lower : float, optional
        Thresholds; the 5th and the 95th percentile of the pairs' squared distances when omitted.

    Returns
    -------
    Comparisons

    Examples
    --------
    >>> import numpy as np, cvxscreen
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> T = cvxscreen.pairs(X, X[:, 0] > 0, k=2)
    >>> len(T)
    126
    """
    rows = Rows(X)
    n = rows.shape[0]
    some_rows(*rows.shape)
    if index is not None:
        listed = _listed("index", index, n, 2)
        alike = np.asarray(False if same is None else same)
        if alike.shape != (len(listed),) or alike.dtype != bool:
            raise InvalidInput(
                f"`same` has shape {alike.shape} and dtype {alike.dtype}; {len(listed)} booleans "
                "are needed: whether each pair is of one class."
            )
    else:
        found = triplets(X, y, k)
        parts = [np.unique(np.sort(found.index[:, [0, c]], axis=1), axis=0) for c in (1, 2)]
        listed = np.concatenate(parts)
        alike = np.arange(len(listed)) < len(parts[0])
    dense = rows.dense()
    size = ((dense[listed[:, 0]] - dense[listed[:, 1]]) ** 2).sum(axis=1)
    low, high = np.percentile(size, (5, 95)) if len(size) else (1.0, 1.0)
    most = float(low) if upper is None else positive("upper", upper)
    least = float(high) if lower is None else positive("lower", lower)
    i, j = listed.T
    return from_points(
        n, (np.where(alike, -1, i), np.where(alike, -1, j)),
        (np.where(alike, i, -1), np.where(alike, j, -1)), listed, np.where(alike, -most, least),
    )


def quadruplets(X: Any, index: ArrayLike) -> Comparisons:
    """Quadruplets (i, j, k, l): i and j should be closer than k and l, by a margin of 1.

    Parameters
    ----------
    X : array_like or sparse matrix, shape (n, d)
    index : array_like of int, shape (T, 4)

    Returns
    -------
    Comparisons

    Examples
    --------
    >>> import numpy as np, cvxscreen
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> T = cvxscreen.quadruplets(X, [[0, 1, 2, 3], [4, 5, 6, 7]])
    >>> len(T), cvxscreen.solve(cvxscreen.rtlm(X, T, lam=1.0)).certificate.ok
    (2, True)
    """
    rows = Rows(X)
    some_rows(*rows.shape)
    listed = _listed("index", index, rows.shape[0], 4)
    i, j, k, m = listed.T
    return from_points(rows.shape[0], (k, m), (i, j), listed, 1.0)


def _listed(name: str, index: ArrayLike, n: int, columns: int) -> Points:
    found = real(name, index)
    if found.ndim != 2 or found.shape[1] != columns or not len(found):
        labels = " Of class labels, `triplets(X, y)` makes them." if found.shape == (n,) else ""
        raise InvalidInput(
            f"`{name}` has shape {found.shape}; at least one row of {columns} indices is needed."
            + labels
        )
    if found.dtype.kind not in "iu":
        raise InvalidInput(f"`{name}` has dtype {found.dtype}; whole numbers are needed.")
    if found.min() < 0 or found.max() >= n:
        raise InvalidInput(
            f"`{name}` holds {found.min()} to {found.max()}; `X` has rows 0 to {n - 1}."
        )
    return found.astype(np.int64)


def _labels(y: ArrayLike | None, n: int) -> NDArray[np.intp]:
    if y is None:
        raise InvalidInput("`y` is missing; give class labels, or the comparisons as `index`.")
    if sp.issparse(y) or (isinstance(y, np.ma.MaskedArray) and np.ma.is_masked(y)):
        raise InvalidInput("`y` is sparse or masked; a plain array of labels is needed.")
    values = np.asarray(y)
    if values.ndim == 2 and 1 in values.shape:
        values = values.ravel()
    if values.shape != (n,):
        raise InvalidInput(f"`y` has shape {values.shape}; one label a row of `X`, ({n},).")
    if values.dtype.kind in "fc" and not np.isfinite(values).all():
        raise InvalidInput("`y` holds NaN or infinity; drop those rows.")
    if values.dtype.kind == "O" and any(v is None or v != v for v in values.tolist()):
        raise InvalidInput("`y` has missing values; drop those rows.")
    try:
        return np.asarray(np.unique(values, return_inverse=True)[1], dtype=np.intp)
    except TypeError as error:
        raise InvalidInput(
            f"`y` holds labels that cannot be told apart by order ({error}); use numbers or words."
        ) from None


def _numbers_of_neighbours(k: int | tuple[int, int] | str, n: int) -> tuple[int, int]:
    if isinstance(k, str):
        if k != "all":
            raise InvalidInput(f"`k` is {k!r}; a number, a pair of numbers or 'all' is needed.")
        return n, n
    two = k if isinstance(k, tuple) else (k, k)
    integers = all(isinstance(v, int | np.integer) and not isinstance(v, bool) for v in two)
    if len(two) != 2 or not integers or min(two) < 1:
        raise InvalidInput(f"`k` is {k!r}; at least one neighbour is needed.")
    return int(two[0]), int(two[1])


def _nearest(data: NDArray[Any], queries: Points, among: Points, count: int) -> NDArray[Any]:
    """The `count` points of `among` nearest to each query (all when there are fewer)."""
    if count >= len(among):
        return np.broadcast_to(among, (len(queries), len(among)))
    from sklearn.neighbors import NearestNeighbors

    search = NearestNeighbors(n_neighbors=count).fit(data[among])
    return np.asarray(among[search.kneighbors(data[queries], return_distance=False)])


LARGEST = 1e70
"""Coordinates from which on products of squared distances leave double precision, upwards: their
fourth power is 1e280, and 1e28 of those may be added up."""
SMALLEST = 1e-70
"""The same downwards: comparisons of points all of whose coordinates are below it. Products
of 1e-280 still have all their digits (the least number that has is 2e-308)."""


def rtlm(
    X: Any,
    T: Comparisons | ArrayLike,
    lam: float,
    *,
    gamma: float = 0.05,
    diagonal: bool = False,
    linear: float | ArrayLike | None = None,
) -> Problem:
    """Regularised triplet loss minimisation: a Mahalanobis metric from comparisons.

    ::

        minimise over M >= 0   sum_t w_t l(<H_t, M>; b_t) + <linear, M> + lam/2 |M|_F^2

    with ``H_ijl = (x_i - x_l)(x_i - x_l)' - (x_i - x_j)(x_i - x_j)'`` and the hinge
    ``l(m; b) = max(0, b - m)``, its corner smoothed over a width of `gamma`.

    Parameters
    ----------
    X : array_like or sparse matrix, shape (n, d)
        Its features should be of similar scale.
    T : Comparisons, or array_like of int, shape (T, 3)
        From `triplets`, `pairs`, `quadruplets`, a mixture of them, or plain indices of triplets.
    lam : float
        Weight of the regulariser, positive.
    gamma : float
        Width of the smoothed corner; 0 for the plain hinge.
    diagonal : bool
        Learn a diagonal M; the solution is then a vector (d,).
    linear : float or array_like, shape (d, d) or (d,), optional
        A linear term: a number for the trace norm, ``T.pull(X)`` times a weight for LMNN.

    Returns
    -------
    Problem
        Its coordinates are all entries of M in row order; see `metric_of`.

    Raises
    ------
    InvalidInput
        On NaN, wrong shapes, non-positive `lam`, negative `gamma`.

    Notes
    -----
    Yoshida, Takeuchi, Karasuyama 2019, (2.1), with weights, thresholds and a linear term
    (section 6.3). An optimum at a kink (`gamma` 0) is found to the same certified gap, but slower.

    Examples
    --------
    >>> import numpy as np, cvxscreen
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> y = X[:, 0] > 0
    >>> T = cvxscreen.triplets(X, y, k=2)
    >>> solution = cvxscreen.solve(cvxscreen.rtlm(X, T, lam=10.0), tol=1e-8)
    >>> metric = cvxscreen.metric_of(solution.problem, solution.x)
    >>> metric.shape, int(metric.diagonal().argmax())
    ((3, 3), 0)
    """
    rows = Rows(X)
    some_rows(*rows.shape)
    lam = positive("lam", lam)
    width = _width(gamma)
    diagonal = flag("diagonal", diagonal)
    if isinstance(T, Comparisons):
        chosen = T
    else:
        chosen = triplets(rows.matrix, index=_listed("T", T, rows.shape[0], 3))
    if not len(chosen):
        raise InvalidInput("`T` is empty; there is nothing to learn from.")
    table = chosen.table(rows.matrix, diagonal)
    most = float(np.abs(table.points).max(initial=0.0))
    if len(table) and not (most == 0.0 or SMALLEST < most < LARGEST):
        raise InvalidInput(
            f"`X` holds numbers of {most:.1e} at most after centring; their fourth powers "
            f"{'underflow' if most < 1.0 else 'overflow'}. Scale the features first."
        )
    weight, n = chosen.weight, len(chosen)
    if weight.size == 1 and chosen.threshold.size == 1:
        w = float(weight[0])
        losses = Losses.repeated(n, float(chosen.threshold[0]), 0.0, width / w, -w, 0.0)
    else:
        ones = np.ones(n)
        none = np.zeros(n)
        losses = Losses(
            chosen.threshold * ones, none, width / weight * ones, -weight * ones, none
        )
    return Problem(
        Pairs(table, chosen.terms),
        losses,
        Quadratic(np.full(table.size, lam)),
        _linear(linear, table.d, diagonal),
        kind="metric learning",
        penalty=NonNegative() if diagonal else PSD(table.d),
        lam=lam,
    )


def metric_of(problem: Problem, x: ArrayLike) -> Array:
    """The matrix M, shape (d, d), of a solution's coordinates.

    Examples
    --------
    >>> import numpy as np, cvxscreen
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> y = X[:, 0] > 0
    >>> T = cvxscreen.triplets(X, y, k=2)
    >>> solution = cvxscreen.solve(cvxscreen.rtlm(X, T, lam=10.0))
    >>> metric = cvxscreen.metric_of(solution.problem, solution.x)
    >>> metric.shape, int(metric.diagonal().argmax())
    ((3, 3), 0)
    """
    one_of("problem", problem, Problem, "a problem from `rtlm` is needed")
    design = problem.design
    if not isinstance(design, Pairs):
        raise InvalidInput("`problem` is not one of metric learning; see `rtlm`.")
    x = finite("x", x, (problem.d,))
    return np.diag(x) if design.diagonal else x.reshape(design.table.d, design.table.d).copy()


def factor_of(problem: Problem, x: ArrayLike, rank: int | None = None) -> Array:
    """L with ``M = L' L``, shape (r, d): new data transformed by ``X @ L.T`` have the metric.

    Examples
    --------
    >>> import numpy as np, cvxscreen
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> y = X[:, 0] > 0
    >>> T = cvxscreen.triplets(X, y, k=2)
    >>> solution = cvxscreen.solve(cvxscreen.rtlm(X, T, lam=10.0))
    >>> L = cvxscreen.factor_of(solution.problem, solution.x)
    >>> bool(np.allclose(L.T @ L, cvxscreen.metric_of(solution.problem, solution.x)))
    True
    >>> (X @ L.T).shape                                         # the data, in the metric
    (40, 2)
    """
    rank = None if rank is None else whole("rank", rank, 1)
    values, vectors = np.linalg.eigh(metric_of(problem, x))
    order = np.argsort(-values)[: len(values) if rank is None else rank]
    kept = order[values[order] > 1e-12 * max(float(values[-1]), 0.0)]
    return np.asarray((vectors[:, kept] * np.sqrt(values[kept])).T)


def _width(gamma: object) -> float:
    width = number("gamma", gamma, "a number >= 0 is needed")
    if not (np.isfinite(width) and width >= 0):
        raise InvalidInput(f"`gamma` is {width}; a finite number >= 0 is needed.")
    return width


def _linear(linear: float | ArrayLike | None, d: int, diagonal: bool) -> Array:
    shape = (d,) if diagonal else (d, d)
    if linear is None:
        return np.zeros(d if diagonal else d * d)
    given = array("linear", linear)
    if given.ndim == 0:
        given = float(given) * (np.ones(d) if diagonal else np.eye(d))
    if given.shape != shape or not np.isfinite(given).all():
        raise InvalidInput(f"`linear` has shape {given.shape}; finite numbers {shape} are needed.")
    return given if diagonal else 0.5 * (given + given.T).ravel()
