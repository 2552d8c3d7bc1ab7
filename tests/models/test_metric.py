"""Sets of triplets, pairs and quadruplets: what they hold, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

import cvxscreen
from cvxscreen.errors import InvalidInput

X = np.array([[0.0], [1.0], [3.0], [10.0], [11.5], [13.0]])
Y = np.array(["a", "a", "a", "b", "b", "b"])


def test_triplets_combine_the_nearest_of_either_kind() -> None:
    T = cvxscreen.triplets(X, Y, k=1)
    assert len(T) == 6
    assert T.index.tolist() == [[0, 1, 3], [1, 0, 3], [2, 1, 3], [3, 4, 2], [4, 3, 2], [5, 4, 2]]
    assert len(cvxscreen.triplets(X, Y, k=(2, 1))) == 12
    every = cvxscreen.triplets(X, Y, k="all")
    assert len(every) == 6 * 2 * 3
    assert len({tuple(row) for row in every.index}) == len(every)
    for i, j, away in every.index:
        assert i != j
        assert Y[i] == Y[j] != Y[away]


def test_points_without_partners_are_left_out() -> None:
    T = cvxscreen.triplets(X, [0, 1, 1, 1, 1, 1], k=2)
    assert 0 not in T.index[:, 0]
    assert (T.index[:, 2] == 0).all()


def test_pairs_have_thresholds_of_both_kinds() -> None:
    T = cvxscreen.pairs(X, Y, k=1, upper=2.0, lower=50.0)
    assert sorted(set(T.threshold)) == [-2.0, 50.0]
    p = cvxscreen.rtlm(X, T, 1.0)
    margins = p.design.forward(np.array([1.0]))
    i, j = T.index.T
    same = Y[i] == Y[j]
    np.testing.assert_allclose(margins, np.where(same, -1, 1) * (X[i, 0] - X[j, 0]) ** 2)
    explicit = cvxscreen.pairs(X, index=T.index, same=same, upper=2.0, lower=50.0)
    np.testing.assert_array_equal(explicit.threshold, T.threshold)


def test_mixtures_keep_weights_and_thresholds() -> None:
    a = cvxscreen.triplets(X, Y, k=1).weighted(3.0)
    b = cvxscreen.pairs(X, Y, k=1, upper=2.0, lower=50.0)
    both = a + b
    assert len(both) == len(a) + len(b)
    assert (both.weight[: len(a)] == 3.0).all()
    assert (both.weight[len(a):] == 1.0).all()
    margins = cvxscreen.rtlm(X, both, 1.0).design.forward(np.array([2.0]))
    parts = [cvxscreen.rtlm(X, part, 1.0).design.forward(np.array([2.0])) for part in (a, b)]
    np.testing.assert_allclose(margins, np.concatenate(parts), rtol=1e-14)


def test_the_pull_is_that_of_the_unique_close_pairs() -> None:
    T = cvxscreen.triplets(X, Y, k=1)
    close = {tuple(sorted(row[:2])) for row in T.index.tolist()}
    total = sum((X[i, 0] - X[j, 0]) ** 2 for i, j in close)
    np.testing.assert_allclose(T.pull(X), [[total]])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: cvxscreen.triplets(X, np.zeros(6)), "only one class"),
        (lambda: cvxscreen.triplets(X, np.arange(6)), "no class with two points"),
        (lambda: cvxscreen.triplets(X, Y[:5]), "one label a row"),
        (lambda: cvxscreen.triplets(X), "`y` is missing"),
        (lambda: cvxscreen.triplets(X, Y, k=0), "at least one neighbour"),
        (lambda: cvxscreen.triplets(X, Y, k="some"), "'all'"),
        (lambda: cvxscreen.triplets(X, index=[[0, 1, 6]]), "rows 0 to 5"),
        (lambda: cvxscreen.triplets(X, index=[[0, 1]]), "row of 3"),
        (lambda: cvxscreen.triplets(X, index=[[0.5, 1, 2]]), "whole numbers"),
        (lambda: cvxscreen.triplets(np.array([[np.nan]]), [1]), "NaN"),
        (lambda: cvxscreen.pairs(X, index=[[0, 1]]), "`same`"),
        (lambda: cvxscreen.quadruplets(X, [[0, 1, 2]]), "row of 4"),
        (lambda: cvxscreen.triplets(X, Y).weighted(0.0), "positive"),
        (lambda: cvxscreen.rtlm(X, [0, 0, 0, 1, 1, 1], 1.0), "`T` .* class labels"),
        (lambda: cvxscreen.rtlm(X, cvxscreen.triplets(X, Y), 0.0), "`lam`"),
        (lambda: cvxscreen.rtlm(X, cvxscreen.triplets(X, Y), 1.0, gamma=-1), "`gamma`"),
        (lambda: cvxscreen.rtlm(X[:4], cvxscreen.triplets(X, Y), 1.0), "over 6 points"),
        (lambda: cvxscreen.rtlm(X, cvxscreen.triplets(X, Y), 1.0, linear=np.ones(3)), "`linear`"),
        (lambda: cvxscreen.rtlm(1e75 * X, cvxscreen.triplets(X, Y), 1.0), "powers overflow"),
        (lambda: cvxscreen.rtlm(1e-80 * X, cvxscreen.triplets(X, Y), 1.0), "powers underflow"),
        (lambda: (cvxscreen.triplets(X, Y) + cvxscreen.triplets(X, Y)).index, "mixture"),
    ],
)
def test_bad_input_is_named(call: object, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        call()  # type: ignore[operator]


def test_data_are_not_changed() -> None:
    given = X.copy()
    cvxscreen.rtlm(given, cvxscreen.triplets(given, Y), 1.0)
    np.testing.assert_array_equal(given, X)
