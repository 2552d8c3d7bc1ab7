"""Data with a structure that is known before any solver sees it.

Every generator gives the same arrays for the same seed, draws from a generator of its own (global
random state is neither read nor moved), and returns fresh arrays. Three instances::

    X, y = two_gaussians(1000, 10, bayes_error=0.1)   # no classifier errs less than 10 %
    X, y = toy2()                                     # two clouds of 1000 points in the plane
    X, y = heavy_tailed_regression(500, 5)            # y = X w + noise, w = (1, -1, 1, -1, 1)

Rows are samples; labels of classes are -1.0 and +1.0.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import ndtri

from cvxscreen._support.validation import number, whole
from cvxscreen.errors import InvalidInput, quoted

__all__ = [
    "breast_cancer",
    "heavy_tailed_regression",
    "sparse_text_like",
    "toy1",
    "toy2",
    "toy3",
    "two_gaussians",
]

Floats = NDArray[np.float64]


def _check_at_least(argument: str, value: int, least: int) -> None:
    """Refuse what is no count, or one below `least`."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise InvalidInput(f"`{argument}` is {quoted(value)}; a whole number, at least {least}.")


def _check_within(argument: str, value: float, low: float, high: float) -> None:
    """Refuse a number outside ``[low, high]``."""
    if not low <= number(argument, value) <= high:
        raise InvalidInput(f"`{argument}` is {value}; it must lie between {low:g} and {high:g}.")


def _generator(seed: int) -> np.random.Generator:
    """The generator that starts at `seed`."""
    return np.random.default_rng(whole("seed", seed, 0))


def _balanced_labels(n: int, rng: np.random.Generator) -> Floats:
    """Return `n` labels in random order, half of them (rounded up) +1 and the others -1."""
    y = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    return rng.permutation(y)


def two_gaussians(
    n: int, d: int, bayes_error: float = 0.1, seed: int = 0
) -> tuple[Floats, Floats]:
    """Two overlapping Gaussian classes with a given Bayes error.

    The classes are ``N(+m u, I)`` and ``N(-m u, I)`` with ``u = (1, ..., 1) / sqrt(d)`` and
    ``m = -Phi^-1(bayes_error)``. The best possible classifier is ``sign(<u, x>)``; it errs with
    probability ``bayes_error``.

    Parameters
    ----------
    n : int
        Number of samples, half of them (rounded up) in the positive class.
    d : int
        Number of features.
    bayes_error : float
        Error of the best classifier, from just above 0 (far apart) to 0.5 (the same cloud twice).
    seed : int
        Seed of the generator.

    Returns
    -------
    X : array, shape (n, d)
        Samples.
    y : array, shape (n,)
        Labels.
    """
    _check_at_least("n", n, 2)
    _check_at_least("d", d, 1)
    _check_within("bayes_error", bayes_error, 1e-300, 0.5)
    rng = _generator(seed)
    y = _balanced_labels(n, rng)
    offset = -float(ndtri(bayes_error)) / np.sqrt(d)
    X = rng.standard_normal((n, d))
    X += offset * y[:, None]
    return X, y


def _toy(mean: float, seed: int) -> tuple[Floats, Floats]:
    """Two classes of 1000 points, ``N(+-(mean, mean), 0.75**2 I)``, positives first."""
    rng = _generator(seed)
    y = np.repeat([1.0, -1.0], 1000)
    return mean * y[:, None] + 0.75 * rng.standard_normal((2000, 2)), y


def toy1(seed: int = 0) -> tuple[Floats, Floats]:
    """Two clouds in the plane that hardly overlap: means ``+-(1.5, 1.5)``, deviation 0.75.

    The first of the three synthetic sets of [1]_, section 7.1.

    Parameters
    ----------
    seed : int
        Seed of the generator.

    Returns
    -------
    X : array, shape (2000, 2)
        Samples, 1000 of the positive class and then 1000 of the negative class.
    y : array, shape (2000,)
        Labels.

    References
    ----------
    .. [1] J. Wang, P. Wonka, J. Ye, "Scaling SVM and least absolute deviations via exact data
       reduction", ICML 2014. https://arxiv.org/abs/1310.7048
    """
    return _toy(1.5, seed)


def toy2(seed: int = 0) -> tuple[Floats, Floats]:
    """Two clouds in the plane that overlap: as `toy1`, with means ``+-(0.75, 0.75)``.

    Parameters and results are those of `toy1`.
    """
    return _toy(0.75, seed)


def toy3(seed: int = 0) -> tuple[Floats, Floats]:
    """Two clouds in the plane that overlap largely: as `toy1`, with means ``+-(0.5, 0.5)``.

    Parameters and results are those of `toy1`.
    """
    return _toy(0.5, seed)


def _zipf_frequencies(d: int, density: float) -> Floats:
    """Return document frequencies ``min(1, c / rank)`` whose mean over `d` columns is `density`."""
    inverse_rank = 1.0 / np.arange(1, d + 1)
    low, high = 0.0, float(d)
    for _ in range(100):
        c = (low + high) / 2
        low, high = (c, high) if np.minimum(1.0, c * inverse_rank).mean() < density else (low, c)
    return np.minimum(1.0, high * inverse_rank)


def _zipf_pattern(n: int, frequency: Floats, rng: np.random.Generator) -> sp.csr_array:
    """Draw which terms occur in which document; every document has at least one."""
    counts = rng.binomial(n, frequency)
    rows = np.concatenate([rng.choice(n, size=k, replace=False) for k in counts])
    columns = np.repeat(np.arange(frequency.size), counts)
    empty = np.setdiff1d(np.arange(n), rows)
    filler = rng.choice(frequency.size, size=empty.size, p=frequency / frequency.sum())
    at = np.stack([np.concatenate([rows, empty]), np.concatenate([columns, filler])])
    pair = at.astype(np.int32)  # the index type that every consumer of CSR accepts
    return sp.csr_array((np.ones(pair.shape[1]), (pair[0], pair[1])), shape=(n, frequency.size))


def sparse_text_like(
    n: int, d: int, density: float = 0.0025, seed: int = 0, *, noise: float = 0.5
) -> tuple[sp.csr_array, Floats]:
    """Sparse rows that look like documents, labelled by a planted sparse hyperplane.

    The j-th column occurs in a share of the rows proportional to ``1 / j`` (Zipf's law, capped at
    all rows). Values are ``(1 + log count) * (1 + log((1 + n) / (1 + document frequency)))``, and
    rows are then scaled to length one. The labels are the signs of ``X w`` plus Gaussian noise,
    where a tenth of the entries of `w` are not zero (frequent terms being more likely among them)
    and the mean of ``X w`` is zero.

    Parameters
    ----------
    n : int
        Number of samples (documents).
    d : int
        Number of features (terms), the most frequent first.
    density : float
        Expected share of entries that are not zero.
    seed : int
        Seed of the generator.
    noise : float
        Standard deviation of the noise relative to that of ``X w``; at 0 the classes are separated
        by a hyperplane through the origin.

    Returns
    -------
    X : CSR array, shape (n, d)
        Samples, each of Euclidean norm 1.
    y : array, shape (n,)
        Labels.
    """
    _check_at_least("n", n, 2)
    _check_at_least("d", d, 20)
    _check_within("density", density, 1.0 / d, 1.0)
    _check_within("noise", noise, 0.0, 1e6)
    rng = _generator(seed)
    frequency = _zipf_frequencies(d, density)
    X = _zipf_pattern(n, frequency, rng)
    seen = np.bincount(X.indices, minlength=d)
    rarity = 1.0 + np.log((1.0 + n) / (1.0 + seen))
    X.data = (1.0 + np.log(rng.geometric(0.7, size=X.nnz))) * rarity[X.indices]
    length = np.sqrt(np.add.reduceat(X.data**2, X.indptr[:-1]))
    X.data /= np.repeat(length, np.diff(X.indptr))

    planted = rng.choice(d, size=d // 10, replace=False, p=frequency / frequency.sum())
    mean = np.asarray(X.mean(axis=0)).ravel()[planted]
    w = np.zeros(d)
    w[planted] = rng.standard_normal(planted.size)
    w[planted] -= (w[planted] @ mean) / (mean @ mean) * mean
    score = X @ w
    score += noise * score.std() * rng.standard_normal(n)
    return X, np.where(score >= 0.0, 1.0, -1.0)


def heavy_tailed_regression(
    n: int, d: int, seed: int = 0, *, outliers: float = 0.05
) -> tuple[Floats, Floats]:
    """Linear responses under Laplace noise and gross outliers, the case for absolute loss.

    ``y = X w + e + o`` with ``w = (1, -1, 1, -1, ...)``, standard normal `X`, ``e`` from the
    Laplace law of scale 1, and ``o`` equal to +30 or -30 on a random share of the samples and 0
    elsewhere.

    Parameters
    ----------
    n : int
        Number of samples.
    d : int
        Number of features.
    seed : int
        Seed of the generator.
    outliers : float
        Share of samples (rounded down) that are outliers.

    Returns
    -------
    X : array, shape (n, d)
        Samples.
    y : array, shape (n,)
        Responses.
    """
    _check_at_least("n", n, 1)
    _check_at_least("d", d, 1)
    _check_within("outliers", outliers, 0.0, 1.0)
    rng = _generator(seed)
    X = rng.standard_normal((n, d))
    y = X @ np.where(np.arange(d) % 2 == 0, 1.0, -1.0) + rng.laplace(size=n)
    hit = rng.choice(n, size=int(outliers * n), replace=False)
    y[hit] += 30.0 * rng.choice([-1.0, 1.0], size=hit.size)
    return X, y


def breast_cancer() -> tuple[Floats, Floats]:
    """Breast cancer Wisconsin (diagnostic), bundled with scikit-learn; columns standardised.

    Returns
    -------
    X : array, shape (569, 30)
        Samples; every column has mean 0 and standard deviation 1.
    y : array, shape (569,)
        +1 for benign, -1 for malignant.
    """
    from sklearn.datasets import load_breast_cancer

    X, benign = load_breast_cancer(return_X_y=True)
    return (X - X.mean(axis=0)) / X.std(axis=0), np.where(benign == 1, 1.0, -1.0)
