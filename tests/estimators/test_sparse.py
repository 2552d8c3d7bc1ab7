"""The doubly sparse classifier: scikit-learn's own checks, and the optimum of the package."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import cvxscreen
from cvxscreen.datasets import sparse_text_like, toy2
from cvxscreen.estimators import SparseSVC


@pytest.mark.table
@parametrize_with_checks(
    [SparseSVC(), SparseSVC(0.01, loss="squared_hinge"), SparseSVC(0.01, loss="hinge", l2=0.0)]
)
def test_scikit_learn_accepts(estimator, check) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checks provoke warnings on purpose
        check(estimator)


@pytest.fixture(scope="module")
def documents():
    """Sparse rows of more features than samples."""
    return sparse_text_like(300, 600, density=0.02)


def test_it_is_the_model_of_the_package(documents) -> None:
    X, y = documents
    model = SparseSVC(2e-3, fit_intercept=False).fit(X, y)
    found = cvxscreen.solve(cvxscreen.sparse_svm(X, y, 2e-3), tol=1e-9)
    np.testing.assert_allclose(model.coef_, [found.x], atol=1e-4)
    assert not model.intercept_.any()
    assert model.certificates_[0].ok
    assert 0 < (model.coef_ != 0).sum() < X.shape[1] / 2
    np.testing.assert_allclose(model.decision_function(X), X @ model.coef_[0])


def test_without_lam_a_hundredth_of_the_largest_is_taken(documents) -> None:
    X, y = documents
    model = SparseSVC(fit_intercept=False).fit(X, y)
    largest = model.lam_[0] / 0.01
    assert not SparseSVC(1.001 * largest, fit_intercept=False).fit(X, y).coef_.any()
    assert SparseSVC(0.99 * largest, fit_intercept=False).fit(X, y).coef_.any()


def test_the_intercept_is_the_weight_of_a_constant() -> None:
    X, y = toy2()
    X, y = X[::20] + 3.0, y[::20]
    model = SparseSVC(1e-3, intercept_scaling=2.0).fit(X, y)
    problem = cvxscreen.sparse_svm(np.column_stack([X, np.full(len(X), 2.0)]), y, 1e-3)
    found = cvxscreen.solve(problem, tol=1e-9)
    np.testing.assert_allclose(model.coef_[0], found.x[:2], atol=1e-5)
    np.testing.assert_allclose(model.intercept_[0], 2.0 * found.x[2], atol=1e-5)
    assert model.score(X, y) > 0.8
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(X), model.predict(X))


@pytest.mark.parametrize(("model", "words"), [
    (SparseSVC(-1.0), "`lam`"),
    (SparseSVC(l2=0.0), "`l2`"),
    (SparseSVC(intercept_scaling=0.0), "`intercept_scaling`"),
    (SparseSVC(loss="absolute"), "`loss`"),
])
def test_refuses(documents, model, words: str) -> None:
    with pytest.raises(cvxscreen.InvalidInput, match=words):
        model.fit(*documents)
