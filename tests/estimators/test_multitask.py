"""The scikit-learn estimator of the joint problem."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from tasks import shared_tasks

import cvxscreen
from cvxscreen.errors import InvalidInput
from cvxscreen.estimators import MultiTaskSVC


@pytest.fixture
def rows():
    tasks = shared_tasks(4, 6, 40, 2)
    X = np.vstack([X for X, _ in tasks])
    y = np.where(np.concatenate([y for _, y in tasks]) > 0, "yes", "no")
    task = np.repeat(["c", "a", "d", "b"], 40)
    order = np.random.default_rng(0).permutation(len(X))
    return X[order], y[order], task[order]


def test_is_the_problem_it_says(rows) -> None:
    X, y, task = rows
    model = MultiTaskSVC(h=2, alpha=0.1, beta=0.02, tol=1e-9).fit(X, y, task)
    assert list(model.classes_) == ["no", "yes"]
    assert list(model.tasks_) == ["a", "b", "c", "d"]
    tasks = [(X[task == t], np.where(y[task == t] == "yes", 1, -1)) for t in "abcd"]
    direct = cvxscreen.solve(cvxscreen.raso(tasks, h=2, alpha=0.1, beta=0.02), tol=1e-9)
    assert model.solution_.value == pytest.approx(direct.value, rel=1e-8)
    np.testing.assert_allclose(model.coef_, direct.U.T, atol=1e-6)
    at = task == "b"
    np.testing.assert_allclose(
        model.decision_function(X[at], task[at]), X[at] @ model.coef_[1] + model.intercept_[1]
    )
    assert model.score(X, y, task) == np.mean(model.predict(X, task) == y) > 0.85
    assert set(model.predict(X, task)) == {"yes", "no"}


def test_follows_the_conventions(rows) -> None:
    model = MultiTaskSVC(h=1, alpha=0.3, beta=0.03, loss="squared_hinge")
    assert clone(model).get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        model.predict(rows[0], rows[2])
    X, y, task = rows
    before = X.copy()
    assert model.fit(X, y, task) is model
    np.testing.assert_array_equal(X, before)
    assert model.n_features_in_ == 6


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"X": np.ones(3)}, "matrix"),
        ({"y": np.ones(3)}, "`y` has shape"),
        ({"y": np.zeros(160)}, "two are needed"),
        ({"y": np.arange(160) % 3}, "two are needed"),
        ({"task": np.ones(3)}, "`task` has shape"),
    ],
)
def test_bad_input_is_named(rows, change, words) -> None:
    given = {"X": rows[0], "y": rows[1], "task": rows[2], **change}
    with pytest.raises(InvalidInput, match=words):
        MultiTaskSVC().fit(**given)


def test_unknown_tasks_and_features_are_named(rows) -> None:
    X, y, task = rows
    model = MultiTaskSVC(h=1).fit(X, y, task)
    with pytest.raises(InvalidInput, match="not seen"):
        model.predict(X[:1], ["z"])
    with pytest.raises(InvalidInput, match="features"):
        model.predict(X[:, :3], task)
    with pytest.raises(InvalidInput, match="choose one of: hinge"):
        MultiTaskSVC(loss="huber").fit(X, y, task)
