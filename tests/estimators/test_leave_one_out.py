"""`leave_one_out` of the estimators: the fits without each sample, and nothing else changed."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import LeaveOneOut, cross_val_score

import cvxscreen
from cvxscreen.datasets import two_gaussians
from cvxscreen.estimators import (
    ScreenedRegressor,
    ScreenedRegressorCV,
    ScreenedSVC,
    ScreenedSVCCV,
)

X, Y = two_gaussians(50, 3, seed=4)
T = X @ np.array([1.0, -2.0, 0.5]) + np.sin(5.0 * X[:, 0])


@pytest.mark.parametrize("model", [
    ScreenedSVC(0.5, fit_intercept=False), ScreenedSVC(0.5),
    ScreenedSVC(0.5, kernel="rbf", fit_intercept=False),
], ids=["linear", "intercept", "kernel"])
def test_classes_are_those_of_fits_without_the_sample(model: ScreenedSVC) -> None:
    before = vars(model).copy()
    found = model.leave_one_out(X, Y)
    assert vars(model) == before
    wrong = 0
    for i in range(len(Y)):
        rest = np.arange(len(Y)) != i
        there = model.set_params(tol=1e-10).fit(X[rest], Y[rest])
        margin = Y[i] * there.decision_function(X[i : i + 1])[0]
        wrong += margin <= 0
        assert found.low[i] - 1e-3 <= margin <= found.high[i] + 1e-3
    assert found.errors == (wrong / len(Y), wrong / len(Y))


def test_residuals_are_those_of_fits_without_the_sample() -> None:
    model = ScreenedRegressor(0.5, fit_intercept=False)
    found = model.leave_one_out(X, T)
    for i in range(0, len(T), 7):
        rest = np.arange(len(T)) != i
        there = ScreenedRegressor(0.5, fit_intercept=False, tol=1e-10).fit(X[rest], T[rest])
        residual = T[i] - there.predict(X[i : i + 1])[0]
        assert found.low[i] - 1e-3 <= residual <= found.high[i] + 1e-3


def test_the_score_is_that_of_leave_one_out_cross_validation() -> None:
    svc = ScreenedSVC(0.5, tol=1e-10)
    expected = cross_val_score(svc, X, Y, cv=LeaveOneOut(), scoring="accuracy").mean()
    assert svc.leave_one_out(X, Y).score == pytest.approx(expected, abs=1e-12)
    model = ScreenedRegressor(0.5, tol=1e-10)
    expected = cross_val_score(
        model, X, T, cv=LeaveOneOut(), scoring="neg_mean_absolute_error").mean()
    found = model.leave_one_out(X, T)
    width = float((found.high - found.low).mean())
    assert found.score <= expected + 1e-9 <= found.score + width + 2e-9


def test_a_score_of_one_pass_is_never_too_good() -> None:
    svc, model = ScreenedSVC(0.5, fit_intercept=False), ScreenedRegressor(0.5, fit_intercept=False)
    for quick, exact in ((svc.leave_one_out(X, Y, refit=False), svc.leave_one_out(X, Y)),
                         (model.leave_one_out(X, T, refit=False), model.leave_one_out(X, T))):
        assert not quick.decided.all()
        assert quick.score < exact.score


def test_several_classes_have_a_record_each_and_weights_count() -> None:
    three = np.repeat(["a", "b", "c"], [20, 20, 10])
    records = ScreenedSVC(0.5).leave_one_out(X, three, refit=False)
    assert len(records) == 3
    assert all(isinstance(record, cvxscreen.LeaveOneOut) for record in records)
    model = ScreenedSVC(0.5, fit_intercept=False)
    plain, doubled = (
        model.leave_one_out(X, Y, weight, refit=False) for weight in (None, np.full(50, 2.0))
    )
    assert (doubled.high - doubled.low).mean() > (plain.high - plain.low).mean()


def test_a_chosen_C_is_used() -> None:
    for model, target in ((ScreenedSVCCV([0.1, 1.0], cv=3), Y),
                          (ScreenedRegressorCV([0.1, 1.0], cv=3), T)):
        with pytest.raises(NotFittedError):
            model.leave_one_out(X, target)
        found = model.fit(X, target).leave_one_out(X, target, refit=False)
        assert found.solution.problem.C == model.C_


def test_pairs_of_classes_are_refused() -> None:
    with pytest.raises(cvxscreen.InvalidInput, match="'ovr'"):
        ScreenedSVC(0.5, multi_class="ovo").leave_one_out(X, Y)
