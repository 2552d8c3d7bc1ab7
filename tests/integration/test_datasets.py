"""The generators: what they promise about structure, seeds and the caller's state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import children
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog

from cvxscreen import datasets
from cvxscreen.errors import InvalidInput

GENERATORS: dict[str, Callable[[int], Any]] = {
    "two_gaussians": lambda seed: datasets.two_gaussians(50, 3, seed=seed),
    "toy1": datasets.toy1,
    "toy2": datasets.toy2,
    "toy3": datasets.toy3,
    "sparse_text_like": lambda seed: datasets.sparse_text_like(60, 80, 0.1, seed),
    "heavy_tailed_regression": lambda seed: datasets.heavy_tailed_regression(50, 3, seed),
}


def dense(X: Any) -> np.ndarray:
    return X.toarray() if sp.issparse(X) else X


@pytest.mark.parametrize("make", GENERATORS.values(), ids=GENERATORS)
def test_a_seed_fixes_everything_and_another_seed_changes_it(make: Callable[[int], Any]) -> None:
    (X, y), (X_again, y_again), (X_other, _) = make(3), make(3), make(4)
    assert np.array_equal(dense(X), dense(X_again))
    assert np.array_equal(y, y_again)
    assert not np.array_equal(dense(X), dense(X_other))


@pytest.mark.parametrize("make", GENERATORS.values(), ids=GENERATORS)
def test_global_random_state_is_neither_read_nor_moved(make: Callable[[int], Any]) -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    X, _ = make(0)
    assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    np.random.seed(99)  # noqa: NPY002
    assert np.array_equal(dense(make(0)[0]), dense(X))


@pytest.mark.parametrize("make", [*GENERATORS.values(), lambda seed: datasets.breast_cancer()])
def test_arrays_are_fresh_float64_and_finite(make: Callable[[int], Any]) -> None:
    X, y = make(0)
    kept = dense(X).copy()
    assert X.dtype == y.dtype == np.float64
    assert X.shape[0] == y.shape[0]
    assert y.ndim == 1
    assert np.isfinite(dense(X)).all()
    assert np.isfinite(y).all()
    X *= 0.0
    y *= 0.0
    assert np.array_equal(dense(make(0)[0]), kept)


@pytest.mark.parametrize("bayes_error", [0.02, 0.1, 0.3, 0.5])
def test_two_gaussians_has_the_stated_bayes_error(bayes_error: float) -> None:
    n = 40_000
    X, y = datasets.two_gaussians(n, 7, bayes_error=bayes_error, seed=1)
    measured = np.mean(np.sign(X.sum(axis=1)) != y)
    deviation = np.sqrt(bayes_error * (1 - bayes_error) / n)
    assert abs(measured - bayes_error) < 4 * deviation


def test_two_gaussians_by_default_errs_on_a_tenth() -> None:
    X, y = datasets.two_gaussians(20_000, 2)
    assert 0.09 < np.mean(np.sign(X.sum(axis=1)) != y) < 0.11


@pytest.mark.parametrize("n", [2, 7, 10])
def test_two_gaussians_classes_are_balanced(n: int) -> None:
    X, y = datasets.two_gaussians(n, 4)
    assert X.shape == (n, 4)
    assert y.sum() == n % 2


@pytest.mark.parametrize(
    ("make", "mean"), [(datasets.toy1, 1.5), (datasets.toy2, 0.75), (datasets.toy3, 0.5)]
)
def test_toys_have_the_means_and_deviations_of_the_paper(make: Any, mean: float) -> None:
    X, y = make()
    assert X.shape == (2000, 2)
    for label in (1.0, -1.0):
        cloud = X[y == label]
        assert cloud.shape == (1000, 2)
        error = 4 * 0.75 / np.sqrt(1000)
        assert np.abs(cloud.mean(axis=0) - label * mean).max() < error
        covariance = np.cov(cloud.T)
        assert np.abs(covariance - 0.75**2 * np.eye(2)).max() < 4 * 0.75**2 * np.sqrt(2 / 1000)


def test_text_like_has_unit_rows_stated_density_and_zipf_columns() -> None:
    n, d, density = 3000, 1500, 0.01
    X, y = datasets.sparse_text_like(n, d, density)
    assert isinstance(X, sp.csr_array)
    assert X.has_canonical_format
    assert X.indices.dtype == X.indptr.dtype == np.int32
    assert X.shape == (n, d)
    assert X.nnz / (n * d) == pytest.approx(density, rel=0.05)
    assert np.sqrt((X * X).sum(axis=1)) == pytest.approx(np.ones(n), abs=1e-14)
    seen = np.bincount(X.indices, minlength=d)
    ranks = np.arange(10, 200)
    slope = np.polyfit(np.log(ranks), np.log(seen[ranks - 1]), 1)[0]
    assert slope == pytest.approx(-1.0, abs=0.1)
    assert set(np.unique(y)) == {-1.0, 1.0}
    assert 0.2 < np.mean(y > 0) < 0.8


def separable(X: Any, y: np.ndarray) -> bool:
    """Is there a w with y_i <x_i, w> >= 1 for all i?"""
    d = X.shape[1]
    A = -sp.diags_array(y) @ X
    found = linprog(np.zeros(d), A_ub=A, b_ub=-np.ones(len(y)), bounds=(None, None))
    return bool(found.status == 0)


def test_text_like_labels_come_from_a_hyperplane_through_the_origin() -> None:
    X, y = datasets.sparse_text_like(400, 60, 0.1, noise=0.0)
    assert separable(X, y)
    X, y = datasets.sparse_text_like(400, 60, 0.1)
    assert not separable(X, y)


@pytest.mark.parametrize("density", [1 / 50, 1.0])
def test_text_like_has_no_empty_row_at_either_end_of_density(density: float) -> None:
    X, _ = datasets.sparse_text_like(40, 50, density)
    assert np.diff(X.indptr).min() >= 1


def test_regression_plants_its_coefficients() -> None:
    X, y = datasets.heavy_tailed_regression(2000, 5)
    assert X.shape == (2000, 5)
    residual = y - X @ np.array([1.0, -1.0, 1.0, -1.0, 1.0])
    assert np.count_nonzero(np.abs(residual) > 20) == 100
    bulk = residual[np.abs(residual) <= 20]
    assert abs(np.median(bulk)) < 0.15
    assert np.mean(np.abs(bulk)) == pytest.approx(1.0, abs=0.1)


def test_regression_without_outliers_has_none() -> None:
    X, y = datasets.heavy_tailed_regression(2000, 1, outliers=0.0)
    assert np.abs(y - X[:, 0]).max() < 20


def test_breast_cancer_is_standardised() -> None:
    X, y = datasets.breast_cancer()
    assert X.shape == (569, 30)
    assert np.abs(X.mean(axis=0)).max() < 1e-12
    assert X.std(axis=0) == pytest.approx(np.ones(30))
    assert np.count_nonzero(y == 1.0) == 357
    assert np.count_nonzero(y == -1.0) == 212


def test_importing_the_generators_does_not_import_scikit_learn() -> None:
    probe = "import sys, cvxscreen.datasets; sys.exit('sklearn' in sys.modules)"
    assert children.run(probe).returncode == 0


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: datasets.two_gaussians(1, 2), "n"),
        (lambda: datasets.two_gaussians(10, 0), "d"),
        (lambda: datasets.two_gaussians(10, 2, bayes_error=0.0), "bayes_error"),
        (lambda: datasets.two_gaussians(10, 2, bayes_error=0.6), "bayes_error"),
        (lambda: datasets.two_gaussians(10, 2, bayes_error=float("nan")), "bayes_error"),
        (lambda: datasets.sparse_text_like(1, 50), "n"),
        (lambda: datasets.sparse_text_like(10, 5, 0.5), "d"),
        (lambda: datasets.sparse_text_like(10, 50, 0.0), "density"),
        (lambda: datasets.sparse_text_like(10, 50, 0.5, noise=-1.0), "noise"),
        (lambda: datasets.heavy_tailed_regression(0, 1), "n"),
        (lambda: datasets.heavy_tailed_regression(5, 0), "d"),
        (lambda: datasets.heavy_tailed_regression(5, 1, outliers=1.5), "outliers"),
    ],
)
def test_a_wrong_argument_is_named(call: Callable[[], Any], argument: str) -> None:
    with pytest.raises(InvalidInput, match=f"`{argument}`"):
        call()
