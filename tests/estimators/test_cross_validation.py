"""Sparse regression, and the parameters that cross-validation chooses along screened paths."""

from __future__ import annotations

import threading
import warnings
from itertools import islice

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import clone, config_context, get_config
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import mean_pinball_loss
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.utils.estimator_checks import parametrize_with_checks

import cvxscreen
from cvxscreen._support.limits import require
from cvxscreen.datasets import heavy_tailed_regression, sparse_text_like, two_gaussians
from cvxscreen.errors import InvalidInput
from cvxscreen.estimators import (
    ScreenedRegressor,
    ScreenedRegressorCV,
    ScreenedSVC,
    ScreenedSVCCV,
    SparseSVC,
    SparseSVCCV,
    SparseSVR,
    cross_validation,
)
from cvxscreen.solvers import dual_coordinate_descent, newton, truncated_newton
from cvxscreen.solvers.compiled_path import segments
from cvxscreen.solvers.interior_point import InteriorPoint


@pytest.mark.table
@parametrize_with_checks([SparseSVR(), ScreenedRegressorCV(2, cv=2), SparseSVCCV(2, cv=2)])
def test_scikit_learn_accepts(estimator, check) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checks provoke warnings on purpose
        check(estimator)


@pytest.mark.parametrize("model", [
    ScreenedSVCCV([0.01, 1.0], cv=3), ScreenedSVCCV([0.1, 1.0], cv=3, kernel="rbf"),
    ScreenedRegressorCV([0.01, 1.0], cv=3), SparseSVCCV(2, cv=3),
], ids=["linear", "kernel", "regression", "sparse"])
def test_folds_are_the_same_to_the_bit_whatever_shares_them(model) -> None:
    X, y = two_gaussians(300, 4)
    model.fit(X, y)  # what compiles, or ends the time without compiled code
    one, two = (clone(model).set_params(n_jobs=jobs).fit(X, y) for jobs in (None, 2))
    assert np.array_equal(one.scores_, two.scores_)
    assert np.array_equal(one.path_gaps_, two.path_gaps_)
    assert np.array_equal(one.decision_function(X) if hasattr(one, "classes_") else one.predict(X),
                          two.decision_function(X) if hasattr(two, "classes_") else two.predict(X))


def test_what_is_set_for_this_thread_holds_in_every_fold() -> None:
    """scikit-learn's settings, and limits of memory: both belong to the thread that sets them."""
    seen: list[tuple[bool, str]] = []
    together = threading.Barrier(2, timeout=60.0)

    def scorer(model, X, y) -> float:
        together.wait()  # so that both threads have a fold
        with pytest.raises(cvxscreen.TooLarge):
            require(2.0**28, "what does not fit", "nothing")
        seen.append((get_config()["assume_finite"], threading.current_thread().name))
        return 0.0

    X, y = two_gaussians(100, 3)
    with config_context(assume_finite=True), cvxscreen.memory_limit(2**27):
        ScreenedSVCCV([1.0], cv=2, scoring=scorer, n_jobs=2).fit(X, y)
    assert [finite for finite, _ in seen] == [True, True]
    assert len({name for _, name in seen}) == 2


def test_sparse_regression_is_the_model_of_the_package() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 30))
    y = X[:, 0] - 2 * X[:, 3] + 0.1 * rng.normal(size=80)
    for given in (X, sp.csr_array(X)):
        model = SparseSVR(0.05, loss="huber", delta=0.3, fit_intercept=False).fit(given, y)
        found = cvxscreen.solve(
            cvxscreen.sparse_svr(X, y, 0.05, loss="huber", delta=0.3), tol=1e-10
        )
        np.testing.assert_allclose(model.coef_, found.x, atol=1e-5)
        assert model.certificates_[0].ok
    shifted = SparseSVR(0.01, intercept_scaling=100.0).fit(X, y + 5.0)
    assert shifted.intercept_ == pytest.approx(5.0, abs=0.1)
    weight = rng.integers(0, 3, 80)
    repeated = SparseSVR(0.05).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    weighed = SparseSVR(0.05).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(weighed.coef_, repeated.coef_, atol=1e-6)
    assert SparseSVR().fit(X, y).lam_ == pytest.approx(
        0.01 * cvxscreen.lambda_max(cvxscreen.sparse_svr(np.c_[X, np.ones(80)], y, 1.0))
    )


def test_scores_are_those_of_single_fits() -> None:
    X, y = heavy_tailed_regression(120, 3)
    folds = KFold(3)
    model = ScreenedRegressorCV([1.0, 0.01], cv=folds, loss="quantile", tau=0.8, tol=1e-9)
    model.fit(X, y)
    assert (model.path_gaps_ <= 1e-9).all()
    for k, (train, test) in enumerate(folds.split(X)):
        for j, C in enumerate((1.0, 0.01)):
            one = ScreenedRegressor(C, loss="quantile", tau=0.8).fit(X[train], y[train])
            loss = mean_pinball_loss(y[test], one.predict(X[test]), alpha=0.8)
            assert model.scores_[k, j] == pytest.approx(-loss, rel=1e-5)
    assert (1.0, 0.01)[int(np.argmax(model.scores_.mean(axis=0)))] == model.C_
    again = ScreenedRegressor(model.C_, loss="quantile", tau=0.8).fit(X, y)
    np.testing.assert_allclose(model.coef_, again.coef_, atol=1e-6)


@pytest.mark.parametrize("model", [
    ScreenedSVCCV(2, cv=2, scoring="accuracy"), SparseSVCCV(2, cv=2, scoring="accuracy"),
    ScreenedRegressorCV(2, cv=2, scoring="r2"),
], ids=lambda model: type(model).__name__)
def test_a_search_is_one_call_for_the_compiler(model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folds and the refit buy one part of the compiled code at most."""
    seen = []
    monkeypatch.setattr(cross_validation, "path", lambda *args, **options: (
        seen.append(segments._MADE.get()) or cvxscreen.path(*args, **options)
    ))
    monkeypatch.setattr(cross_validation, "compiled_path", lambda *args, **options: (
        seen.append(segments._MADE.get()) or False
    ))
    model.fit(*two_gaussians(60, 3, seed=0))
    assert len(seen) >= 2
    assert all(made is not None for made in seen)


def test_lambda_is_chosen_along_one_path_a_class() -> None:
    X, y = sparse_text_like(200, 80, density=0.1)
    folds = KFold(3, shuffle=True, random_state=0)
    model = SparseSVCCV(4, cv=folds).fit(X, y)
    assert model.lams_[0] / model.lams_[-1] == pytest.approx(100.0)
    for k, (train, test) in enumerate(folds.split(X)):
        one = SparseSVC(model.lams_[2]).fit(X[train], y[train])
        assert model.scores_[k, 2] == pytest.approx(one.score(X[test], y[test]), abs=0.02)
    np.testing.assert_allclose(model.lam_, model.best_lam_)
    three = np.digitize(X @ np.ones(80), np.quantile(X @ np.ones(80), [0.3, 0.6]))
    assert SparseSVCCV(2, cv=2).fit(X, three).coef_.shape == (3, 80)


@pytest.mark.parametrize("values", [0, [], [-1.0], [[1.0]]])
def test_values_are_positive(values) -> None:
    X, y = two_gaussians(40, 2)
    with pytest.raises(InvalidInput, match="`Cs`"):
        ScreenedRegressorCV(values, cv=2).fit(X, y)
    with pytest.raises(InvalidInput, match="`lams`"):
        SparseSVCCV(values, cv=2).fit(X, y)


def test_probabilities_come_from_calibration() -> None:
    X, y = two_gaussians(300, 3)
    model = CalibratedClassifierCV(ScreenedSVC(C=0.1), cv=3).fit(X, y)
    chances = model.predict_proba(X)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    assert ((chances[:, 1] > 0.5) == (y > 0)).mean() > 0.8


def test_a_path_is_a_data_frame() -> None:
    X, y = two_gaussians(100, 3)
    found = cvxscreen.path(cvxscreen.svm(X, y), values=[0.1, 1.0])
    frame = found.to_frame()
    np.testing.assert_allclose(frame["C"], [0.1, 1.0])
    np.testing.assert_allclose(frame["objective"], [p.objective for p in found.points])
    assert "proven zero" in frame.columns


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("Cs", [(0.01, 0.1, 1.0, 10.0), (1.0, 0.01, 1.0, 10.0)])
def test_wide_sparse_folds_are_certified_and_score_as_single_fits_do(
    loss: str, Cs: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Followed by coordinate descent, in whatever order, and repeated, the values are given."""
    X, y = sparse_text_like(120, 400, density=0.05)
    monkeypatch.setattr(dual_coordinate_descent, "ready", lambda problem, many: True)
    folds = StratifiedKFold(3)
    found = ScreenedSVCCV(Cs, cv=folds, loss=loss).fit(X, y)
    assert (found.path_gaps_ <= 1e-6).all()
    for row, (train, test) in zip(found.scores_, folds.split(X, y), strict=True):
        for score, C in zip(row, Cs, strict=True):
            single = ScreenedSVC(C, loss=loss, tol=1e-8).fit(X[train], y[train])
            assert score == pytest.approx(single.score(X[test], y[test]), abs=1.01 / len(test))


@pytest.mark.parametrize("smooth", [
    (ScreenedSVCCV, ScreenedSVC, {"loss": "squared_hinge"}),
    (ScreenedRegressorCV, ScreenedRegressor, {"loss": "huber", "delta": 0.3}),
])
def test_tall_sparse_folds_are_followed_by_newton_steps(
    smooth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Smooth losses of few features: certified, and the scores of single fits."""
    chosen, single, given = smooth
    seen, follow = [], newton.along

    def spy(*args, **named):  # type: ignore[no-untyped-def]
        for point in follow(*args, **named):
            seen.append(point[0])
            yield point

    monkeypatch.setattr(newton, "along", spy)
    X, y = sparse_text_like(300, 20, density=0.1)  # too sparse for the compiled path
    Cs, folds = np.array([0.01, 0.1, 1.0]), StratifiedKFold(3)
    found = chosen(Cs, cv=folds, **given).fit(X, y)
    assert seen == [*Cs] * 3
    assert (found.path_gaps_ <= 1e-6).all()
    for row, (train, test) in zip(found.scores_, folds.split(X, y), strict=True):
        for score, C in zip(row, Cs, strict=True):
            away = single(C, tol=1e-8, **given).fit(X[train], y[train]).predict(X[test]) - y[test]
            theirs = np.mean(away == 0) if chosen is ScreenedSVCCV else -np.mean(np.abs(away))
            assert score == pytest.approx(theirs, abs=1.01 / len(test))


@pytest.mark.parametrize("intercept", [False, True])
def test_hard_sparse_folds_are_followed_by_truncated_newton_steps(
    intercept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many columns; certified, and with the scores of single fits."""
    taken, along = [], truncated_newton.along

    def spy(problem, values, *args, **options):
        for point in along(problem, values, *args, **options):
            taken.append(point[0])
            yield point

    monkeypatch.setattr(truncated_newton, "along", spy)
    X, y = sparse_text_like(600, 120, density=0.1, seed=3)
    Cs, folds = np.geomspace(1.0, 1e3, 5), StratifiedKFold(3)
    model = ScreenedSVCCV(Cs, loss="squared_hinge", fit_intercept=intercept, cv=folds).fit(X, y)
    assert taken == 3 * Cs.tolist()
    assert (model.path_gaps_ <= model.tol).all()
    for k, (train, test) in enumerate(folds.split(X, y)):
        for C, score in zip(Cs, model.scores_[k], strict=True):
            one = ScreenedSVC(C, loss="squared_hinge", fit_intercept=intercept, tol=1e-8)
            one.fit(X[train], y[train])
            assert score == pytest.approx(one.score(X[test], y[test]), abs=1.01 / len(test))


@pytest.mark.parametrize("each", [3, 0])
def test_values_that_descent_gives_up_are_solved_otherwise(
    each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked again for those after them, from their solutions on, unless that fails, too."""
    seen: list[int] = []

    def giving_up(problem, values, tol, known):  # type: ignore[no-untyped-def]
        seen.append(len(known))
        full = dual_coordinate_descent.descend_along(problem, values, tol, np.inf, known)
        return islice(full, each)

    monkeypatch.setattr(cross_validation, "descend_along", giving_up)
    monkeypatch.setattr(cross_validation, "along", lambda problem, many: True)
    X, y = sparse_text_like(120, 400, density=0.05)
    grid = np.geomspace(1e-2, 100.0, 13)
    problem = cvxscreen.svm(X, y, intercept=True)
    found = cross_validation.along_C(ScreenedSVC(tol=1e-6), problem, "C", grid)
    assert seen == ([0, 2, 2, 2] if each else [0, 1])
    for C, (x, gap) in zip(grid, found, strict=True):
        p = cvxscreen.svm(X, y, C=C, intercept=True)
        assert gap <= 1e-6
        assert p.primal(x) <= cvxscreen.solve(p, tol=1e-9).value * (1.0 + 1e-6)


def test_the_interior_point_method_goes_on_from_where_descent_gives_up(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the terms that the optimum for the value before leaves open."""
    kept: list[int] = []
    method = InteriorPoint.__call__

    def watched(self, problem, *args):  # type: ignore[no-untyped-def]
        kept.append(problem.n)
        return method(self, problem, *args)

    monkeypatch.setattr(InteriorPoint, "__call__", watched)
    monkeypatch.setattr(dual_coordinate_descent, "ready", lambda *_: True)
    monkeypatch.setattr(dual_coordinate_descent, "FACES", 0)  # no pivots, which would do
    monkeypatch.setattr(cross_validation, "along", lambda *_: False)
    rng = np.random.default_rng(0)
    X = sp.random_array((6000, 160), density=0.05, rng=rng, format="csr")
    y = np.where(X @ rng.standard_normal(160) + 0.2 * rng.standard_normal(6000) > 0, 1.0, -1.0)
    problem, grid = cvxscreen.svm(X, y, intercept=True), np.array([3.0, 5.0, 8.0])
    assert newton.interior_point_goes_on(problem)
    found = cross_validation.along_C(ScreenedSVC(tol=1e-6), problem, "C", grid)
    assert len(kept) >= 2
    assert max(kept) < 6000
    for C, (x, gap) in zip(grid, found, strict=True):
        p = problem.with_(C=float(C))
        assert gap <= 1e-6
        assert p.primal(x) <= cvxscreen.solve(p, tol=1e-9).value * (1.0 + 1e-6)
