"""The metric learner: scikit-learn's own checks, the metric of the package, and what it is for."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.datasets import load_iris
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import cvxscreen
from cvxscreen.estimators import TripletMetricLearner


@pytest.mark.table
@parametrize_with_checks([TripletMetricLearner(), TripletMetricLearner(diagonal=True)])
def test_scikit_learn_accepts(estimator, check) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checks provoke warnings on purpose
        check(estimator)


@pytest.fixture(scope="module")
def noisy():
    """Iris with four columns of noise, five times as large as its own."""
    X, y = load_iris(return_X_y=True)
    noise = 5 * np.random.default_rng(0).standard_normal((len(X), 4))
    return np.column_stack([X, noise]), y


@pytest.mark.parametrize("diagonal", [False, True])
def test_it_learns_the_metric_of_the_package(noisy, diagonal: bool) -> None:
    X, y = noisy
    model = TripletMetricLearner(k=3, lam=1e4, diagonal=diagonal, tol=1e-9).fit(X, y)
    chosen = cvxscreen.triplets(X, y, 3)
    problem = cvxscreen.rtlm(X, chosen, 1e4, diagonal=diagonal)
    found = cvxscreen.solve(problem, tol=1e-9)
    np.testing.assert_allclose(
        model.metric_, cvxscreen.metric_of(problem, found.x), atol=1e-3 * np.abs(found.x).max()
    )
    assert model.certificate_.ok
    assert model.n_triplets_ == len(chosen)
    z = model.transform(X[:20])
    inverse = {"VI": model.metric_}
    expected = cdist(X[:20], X[:20], "mahalanobis", **inverse)
    np.testing.assert_allclose(cdist(z, z), expected, atol=1e-6 * expected.max())


def test_neighbours_are_better_under_the_metric(noisy) -> None:
    X, y = noisy
    plain = cross_val_score(KNeighborsClassifier(), X, y, cv=3).mean()
    learnt = make_pipeline(TripletMetricLearner(k=5), KNeighborsClassifier())
    assert cross_val_score(learnt, X, y, cv=3).mean() > plain + 0.1


def test_components_names_and_pickles(noisy) -> None:
    X, y = noisy
    model = TripletMetricLearner(k=2, n_components=2).fit(X, y)
    assert model.transform(X).shape == (len(X), 2)
    assert list(model.get_feature_names_out()) == ["tripletmetriclearner0", "tripletmetriclearner1"]
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.transform(X), model.transform(X))


def test_refuses(noisy) -> None:
    X, y = noisy
    with pytest.raises(cvxscreen.InvalidInput, match="only one class"):
        TripletMetricLearner().fit(X, np.zeros(len(X)))
    with pytest.raises(cvxscreen.InvalidInput, match="`lam`"):
        TripletMetricLearner(lam=-1.0).fit(X, y)
