"""Sets of triplets, pairs and quadruplets, from labels or from index arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from cvxscreen.capacity import require
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.inputs import positive, real
from cvxscreen.models.comparisons import Comparisons, from_lists, from_points
from cvxscreen.models.inputs import some_rows

Points = NDArray[np.int64]


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
    """
    rows = Rows(X)
    some_rows(*rows.shape)
    listed = _listed("index", index, rows.shape[0], 4)
    i, j, k, m = listed.T
    return from_points(rows.shape[0], (k, m), (i, j), listed, 1.0)


def _listed(name: str, index: ArrayLike, n: int, columns: int) -> Points:
    found = real(name, index)
    if found.ndim != 2 or found.shape[1] != columns or not len(found):
        raise InvalidInput(
            f"`{name}` has shape {found.shape}; at least one row of {columns} indices is needed."
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
