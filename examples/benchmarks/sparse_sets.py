"""The data of `sparse_models.py` and `sparse_l1.py`: files, and sparse data of real-sim's shape.

real-sim has 72,309 rows, 20,958 features and 0.24 % of the entries (Shibagaki et al. 2016, Table
1). The data made here have rows of that shape and of norm 1:

* ``synthetic``: labels are the signs of a linear score of a tenth of the words, whatever their
  frequency, with noise (15 % Bayes error);
* ``synthetic_clean``: the same with little noise (2.5 %);
* ``topics``: a label (31 % are positive) chooses how frequent a tenth of the words are, by factors
  such that a linear SVM classifies 97.4 % of a held-out fifth: text on two subjects.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from stored_sets import needed

ROWS, FEATURES, DENSITY, POSITIVE = 72_309, 20_958, 0.0024, 0.3075


def lengths_and_frequencies(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """How many words each row has, and how frequent each word is."""
    lengths = np.maximum(rng.poisson(DENSITY * FEATURES, size=ROWS), 5)
    return lengths, 1.0 / (np.arange(FEATURES) + 20.0) ** 0.9


def drawn(rng: np.random.Generator, weight: np.ndarray, count: int) -> np.ndarray:
    """So many words."""
    places = np.searchsorted(np.cumsum(weight / weight.sum()), rng.random(count))
    return np.minimum(places, FEATURES - 1)


def rows_of(rng: np.random.Generator, words: np.ndarray, lengths: np.ndarray) -> Any:
    """Rows of norm 1 of the words, with values as of tf-idf; words of all frequencies mixed."""
    rows = np.repeat(np.arange(ROWS), lengths)
    values = rng.exponential(1.0, size=len(words)) + 0.2
    words = rng.permutation(FEATURES)[words]
    X = sp.csr_matrix((values, (rows, words)), shape=(ROWS, FEATURES))
    return sp.csr_matrix(sp.diags(1.0 / np.sqrt(X.multiply(X).sum(axis=1).A1)) @ X)


def synthetic(noise: float = 0.5) -> tuple[Any, np.ndarray]:
    """Labels by a linear score, plus `noise` of its standard deviation."""
    rng = np.random.default_rng(0)
    lengths, weight = lengths_and_frequencies(rng)
    X = rows_of(rng, drawn(rng, weight, lengths.sum()), lengths)
    w = np.where(rng.random(FEATURES) < 0.1, 3.0 * rng.standard_normal(FEATURES), 0.0)
    t = X @ w
    noisy = t - np.median(t) + noise * t.std() * rng.standard_normal(ROWS)
    return X, np.where(noisy > 0, 1.0, -1.0)


def topics(lean: float = 2.2) -> tuple[Any, np.ndarray]:
    """Words drawn by label: the logarithm of a tenth of the odds ratios is `lean` times normal."""
    rng = np.random.default_rng(0)
    lengths, weight = lengths_and_frequencies(rng)
    y = np.where(rng.random(ROWS) < POSITIVE, 1.0, -1.0)
    odds = np.where(rng.random(FEATURES) < 0.1, lean * rng.standard_normal(FEATURES), 0.0)
    own, words = np.repeat(y, lengths), np.empty(lengths.sum(), dtype=np.intp)
    for side in (-1.0, 1.0):
        here = np.flatnonzero(own == side)
        words[here] = drawn(rng, weight * np.exp(0.5 * side * odds), len(here))
    return rows_of(rng, words, lengths), y


MADE = {
    "synthetic": synthetic, "synthetic_clean": partial(synthetic, noise=0.08), "topics": topics,
}
FILES = ("pcmac_7511", "farmads", "news20_multi", "madelon", "colon")


def load(folder: Path, name: str) -> tuple[Any, np.ndarray]:
    """Rows and labels -1/+1; dense columns are standardised."""
    if name in MADE:
        return MADE[name]()
    X, y = needed(folder, name)
    y = y.astype(float)
    if len(np.unique(y)) > 2:
        y = np.where(y == np.unique(y)[0], 1.0, -1.0)
    if sp.issparse(X):
        return X, y
    return (X - X.mean(0)) / np.maximum(X.std(0), 1e-12), y
