"""The estimators: scikit-learn's own checks, the optimum they claim, and what they refuse."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import QuantileRegressor
from sklearn.metrics import accuracy_score, check_scoring, r2_score
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import cvxscreen
from cvxscreen.datasets import heavy_tailed_regression, toy2, two_gaussians
from cvxscreen.designs.gram import Kernel
from cvxscreen.estimators import (
    ScreenedQuantileRegressor,
    ScreenedRegressor,
    ScreenedRegressorCV,
    ScreenedSVC,
    ScreenedSVCCV,
    SparseSVC,
    SparseSVCCV,
)

CHECKED = [
    ScreenedSVC(),
    ScreenedRegressor(),
    ScreenedQuantileRegressor(),
    ScreenedSVCCV(Cs=[0.1, 1.0], cv=2),
    ScreenedSVC(kernel="rbf", tol=1e-9),  # weights and repeated samples agree to seven digits
    ScreenedRegressor(loss="epsilon", kernel="rbf", tol=1e-9),
]


@pytest.mark.table
@parametrize_with_checks(CHECKED)
def test_scikit_learn_accepts(estimator, check) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checks provoke warnings on purpose
        check(estimator)


@pytest.fixture(scope="module")
def clouds():
    """Two overlapping clouds in the plane."""
    X, y = toy2()
    return X[::10], y[::10]


def test_two_classes_are_the_svm_of_the_package(clouds) -> None:
    X, y = clouds
    names = np.where(y > 0, "yes", "no")
    model = ScreenedSVC(C=0.7).fit(X, names)
    found = cvxscreen.solve(cvxscreen.svm(X, y, C=0.7, intercept=True), tol=1e-9)
    assert list(model.classes_) == ["no", "yes"]
    np.testing.assert_allclose(model.coef_, [found.w], atol=1e-6)
    np.testing.assert_allclose(model.intercept_, [found.intercept], atol=1e-6)
    assert model.certificates_[0].ok
    scores = model.decision_function(X)
    np.testing.assert_allclose(scores, X @ model.coef_[0] + model.intercept_[0])
    assert ((scores > 0) == (model.predict(X) == "yes")).all()


def test_kernel_decisions_match_libsvm(clouds) -> None:
    X, y = clouds
    ours = ScreenedSVC(C=2.0, kernel="rbf", kernel_params={"gamma": 0.5}, tol=1e-9).fit(X, y)
    theirs = SVC(C=2.0, gamma=0.5, tol=1e-8).fit(X, y)
    new = X + 0.1
    np.testing.assert_allclose(
        ours.decision_function(new), theirs.decision_function(new), atol=1e-4
    )
    assert len(ours.support_) == len(theirs.support_)
    gram = ScreenedSVC(C=2.0, kernel="precomputed", tol=1e-9).fit(rbf_kernel(X, gamma=0.5), y)
    called = ScreenedSVC(C=2.0, kernel=lambda a, b: rbf_kernel(a, b, gamma=0.5), tol=1e-9).fit(X, y)
    expected = ours.decision_function(new)
    np.testing.assert_allclose(
        gram.decision_function(rbf_kernel(new, X, gamma=0.5)), expected, atol=1e-6
    )
    np.testing.assert_allclose(called.decision_function(new), expected, atol=1e-6)


def test_several_classes_are_one_against_the_rest() -> None:
    X, y = load_iris(return_X_y=True)
    model = ScreenedSVC(C=1.0).fit(X, y)
    assert model.coef_.shape == (3, 4)
    assert len(model.certificates_) == 3
    alone = ScreenedSVC(C=1.0).fit(X, y == 2)
    np.testing.assert_allclose(model.coef_[2], alone.coef_[0], atol=1e-5)
    assert model.score(X, y) > 0.9


def test_storage_does_not_matter(clouds) -> None:
    X, y = clouds
    dense = ScreenedSVC(C=0.5).fit(X, y)
    for other in (sp.csr_array(X), sp.csc_matrix(X), np.asfortranarray(X), X.tolist()):
        model = ScreenedSVC(C=0.5).fit(other, y)
        np.testing.assert_allclose(model.coef_, dense.coef_, atol=1e-6)
        np.testing.assert_allclose(model.decision_function(other), dense.decision_function(X),
                                   atol=1e-6)


def test_class_weights_are_sample_weights(clouds) -> None:
    X, y = clouds
    weighted = ScreenedSVC(C=0.3, class_weight={-1: 1.0, 1: 4.0}).fit(X, y)
    by_sample = ScreenedSVC(C=0.3).fit(X, y, sample_weight=np.where(y > 0, 4.0, 1.0))
    plain = ScreenedSVC(C=0.3).fit(X, y)
    np.testing.assert_allclose(weighted.coef_, by_sample.coef_, atol=1e-7)
    assert (weighted.predict(X) > 0).sum() > (plain.predict(X) > 0).sum()
    X, y = X[60:], y[60:]  # 40 of one class, 100 of the other
    balanced = ScreenedSVC(C=0.3, class_weight="balanced").fit(X, y)
    factor = np.where(y > 0, len(y) / 2 / np.sum(y > 0), len(y) / 2 / np.sum(y < 0))
    np.testing.assert_allclose(
        balanced.coef_, ScreenedSVC(C=0.3).fit(X, y, factor).coef_, atol=1e-7
    )


@pytest.mark.parametrize("loss", ["absolute", "quantile", "epsilon", "smoothed_epsilon", "huber"])
def test_every_regression_loss(loss: str) -> None:
    X, y = heavy_tailed_regression(200, 3)
    tau = 0.8 if loss == "quantile" else None
    model = ScreenedRegressor(C=0.4, loss=loss, tau=tau).fit(X, y)
    problem = cvxscreen.regression(X, y, C=0.4, loss=loss, tau=tau, intercept=True)
    found = cvxscreen.solve(problem, tol=1e-9)
    assert isinstance(model.intercept_, float)
    np.testing.assert_allclose(model.coef_, found.w, atol=1e-5)
    np.testing.assert_allclose(model.predict(X), X @ found.w + found.intercept, atol=1e-4)
    if loss == "quantile":
        assert np.mean(y <= model.predict(X) + 1e-6) == pytest.approx(0.8, abs=0.03)


def test_pickles_predict_the_same(clouds) -> None:
    X, y = clouds
    for model in (ScreenedSVC(), ScreenedSVC(kernel="rbf"), ScreenedSVCCV(Cs=2, cv=2)):
        copy = pickle.loads(pickle.dumps(model.fit(X, y)))
        np.testing.assert_array_equal(copy.decision_function(X), model.decision_function(X))


def test_a_kernel_model_keeps_only_its_support(clouds) -> None:
    X, y = clouds
    model = ScreenedSVC(C=0.5, kernel="rbf").fit(X, y)
    assert 0 < len(model.support_) < len(X)
    np.testing.assert_array_equal(model.support_vectors_, X[model.support_])
    assert len(pickle.dumps(model)) < 12 * len(model.support_) * 8 + 4000


def test_cross_validation_is_the_grid_search(clouds) -> None:
    X, y = clouds
    grid, folds = [1.0, 0.01, 0.1], KFold(3, shuffle=True, random_state=0)
    ours = ScreenedSVCCV(grid, cv=folds).fit(X, y)
    theirs = GridSearchCV(ScreenedSVC(), {"C": grid}, cv=folds).fit(X, y)
    expected = [[theirs.cv_results_[f"split{k}_test_score"][j] for j in range(3)] for k in range(3)]
    np.testing.assert_allclose(ours.scores_, expected, atol=1e-12)
    assert ours.scores_.mean(axis=0)[grid.index(ours.C_)] == pytest.approx(theirs.best_score_)
    np.testing.assert_allclose(ours.coef_, ScreenedSVC(ours.C_).fit(X, y).coef_, atol=1e-6)
    assert ours.path_gaps_.shape == (3, 3)
    assert (ours.path_gaps_ <= ours.tol).all()


@pytest.mark.parametrize("options", [
    {"mode": "safe"}, {"mode": "safe", "kernel": "rbf"}, {"kernel": "rbf"},
    {"kernel": "precomputed"}, {"scoring": "roc_auc"},
])
def test_cross_validation_takes_the_other_options(clouds, options) -> None:
    X, y = clouds
    data = rbf_kernel(X) if options.get("kernel") == "precomputed" else X
    model = ScreenedSVCCV([0.1, 1.0], cv=2, **options).fit(data, y, np.linspace(0.5, 2, len(y)))
    assert model.scores_.shape == (2, 2)
    assert model.score(data, y) > 0.8


@pytest.mark.parametrize(("model", "scoring"), [
    (ScreenedSVCCV([0.1, 1.0], cv=2), "roc_auc"),
    (SparseSVCCV(2, cv=2), "of signs"),
    (ScreenedRegressorCV([0.1, 1.0], cv=2), "neg_median_absolute_error"),
])
def test_the_score_of_a_search_is_that_which_chose(clouds, model, scoring) -> None:
    X, y = clouds
    if scoring == "of signs":
        def scoring(fitted, X, y):
            return -float(np.mean((np.sign(fitted.decision_function(X)) - y) ** 2))
    plain = clone(model).fit(X, y)
    usual = accuracy_score if is_classifier(model) else r2_score
    assert plain.score(X, y) == pytest.approx(usual(y, plain.predict(X)))
    chosen = clone(model).set_params(scoring=scoring).fit(X, y)
    expected = check_scoring(chosen, scoring=scoring)(chosen, X, y)
    assert chosen.score(X, y) == pytest.approx(expected)
    assert chosen.score(X, y) != pytest.approx(usual(y, chosen.predict(X)))


@pytest.mark.parametrize(
    "model",
    [
        ScreenedQuantileRegressor(alpha=0.0), ScreenedQuantileRegressor(alpha=0.1),
        ScreenedQuantileRegressor(alpha=0.0, positive=True), ScreenedRegressor(),
        ScreenedSVC(), SparseSVC(), SparseSVC(loss="hinge", l2=0.0),
    ],
    ids=str,
)
@pytest.mark.parametrize("mean", [0.0, 1e5])
def test_no_time_at_all_leaves_a_point(model, mean: float) -> None:
    """Coefficients are numbers, a warning says what they are worth, and so does the certificate."""
    X, y = heavy_tailed_regression(200, 5)
    model = clone(model).set_params(time_limit=1e-9)
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        model.fit(X + mean, np.sign(y) if is_classifier(model) else y)
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.intercept_).all()
    [proof] = model.certificates_
    assert 1e-3 < proof.relative_gap < 2.0


def test_no_time_and_no_point_is_an_error() -> None:
    """Constraints that zeros do not satisfy, and no time to find what does."""
    X, y = heavy_tailed_regression(200, 5)
    model = ScreenedRegressor(constraints=(np.eye(5)[:1], [1.0]), time_limit=1e-9)
    with pytest.raises(cvxscreen.InvalidInput, match="time_limit"):
        model.fit(X, y)


@pytest.mark.filterwarnings("error", "ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("options", [{}, {"loss": "hinge"}, {"loss": "hinge", "l2": 0.0},
                                     {"loss": "squared_hinge", "l2": 0.0}])
def test_hardly_any_penalty_is_no_warning_of_numpy(clouds, options) -> None:
    X, y = clouds
    model = SparseSVC(1e-300, **options).fit(X, y)
    assert np.isfinite(model.coef_).all()
    with pytest.raises(cvxscreen.InvalidInput, match="`lam`"):
        model.set_params(lam=1e-320).fit(X, y)


def test_it_works_in_a_pipeline_and_can_be_cloned(clouds) -> None:
    X, y = clouds
    pipe = make_pipeline(StandardScaler(), ScreenedSVC(C=0.1))
    assert clone(pipe).set_params(screenedsvc__C=2.0).fit(X, y).score(X, y) > 0.8


def test_an_answer_without_certificate_warns() -> None:
    X, y = two_gaussians(60, 2)
    for model, easier in (
        (ScreenedSVC(C=1.0), "smaller `C`"), (SparseSVC(lam=0.1), "larger `lam`"),
        (ScreenedQuantileRegressor(alpha=0.1), "larger `alpha`"),
    ):
        with pytest.warns(ConvergenceWarning, match=f"relative gap.*{easier}"):
            model.set_params(tol=1e-300).fit(X, y + 0.1 * X[:, 0] if "alpha" in easier else y)
    with pytest.warns(ConvergenceWarning) as seen:
        ScreenedSVCCV([0.1, 1.0], cv=2, tol=1e-300).fit(X, y)
    assert "of a fold" in str(seen[0].message)
    assert "smaller `Cs`" in str(seen[0].message)


@pytest.mark.parametrize(("model", "words"), [
    (ScreenedSVC(C=-1.0), "`C`"),
    (ScreenedSVC(loss="hing"), "`loss`"),
    (ScreenedSVC(mode="fast"), "`mode`"),
    (ScreenedSVC(tol=0.0), "`tol`"),
    (ScreenedSVC(kernel="rbff"), "`kernel`"),
    (ScreenedRegressor(loss="quantile", tau=1.5), "`tau`"),
    (ScreenedSVCCV(Cs=0), "`Cs`"),
    (ScreenedSVCCV(Cs=[1.0, -1.0]), "`Cs`"),
])
def test_refuses(clouds, model, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        model.fit(*clouds)


def test_one_class_is_refused_with_its_name(clouds) -> None:
    X, _ = clouds
    for model in (ScreenedSVC(), ScreenedSVCCV()):
        with pytest.raises(cvxscreen.InvalidInput, match=r"only one class .*'a'"):
            model.fit(X, ["a"] * len(X))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("quantile", "alpha", "fit_intercept"),
                         [(0.5, 0.0, True), (0.9, 0.01, True), (0.2, 0.1, False), (0.5, 50., True)])
def test_quantile_regression_is_that_of_scikit_learn(
    quantile: float, alpha: float, fit_intercept: bool, weighted: bool
) -> None:
    """The same objective, with the same meaning of every parameter; ours is never the larger."""
    X, y = heavy_tailed_regression(400, 5)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, 400) if weighted else None
    options = {"quantile": quantile, "alpha": alpha, "fit_intercept": fit_intercept}
    ours = ScreenedQuantileRegressor(**options).fit(X, y, sample_weight=weight)
    theirs = QuantileRegressor(**options).fit(X, y, sample_weight=weight)
    assert ours.certificates_[0].ok

    def value(model: object) -> float:
        r = y - X @ model.coef_ - model.intercept_
        loss = np.average(np.maximum(quantile * r, (quantile - 1.0) * r), weights=weight)
        return float(loss + alpha * np.abs(model.coef_).sum())

    assert value(ours) <= value(theirs) * (1.0 + 1e-9)
    assert value(ours) == pytest.approx(value(theirs), rel=1e-6)


# -- several classes --------------------------------------------------------------------------


def three_classes(n: int = 240, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    y = np.arange(n) % classes
    X = rng.normal(size=(n, 3)) + 1.5 * rng.normal(size=(classes, 3))[y]
    return X, np.array(["a", "b", "c", "d", "e"])[y]


@pytest.mark.parametrize("kernel", ["rbf", "linear", "precomputed"])
def test_one_against_one_is_what_svc_solves(kernel: str) -> None:
    from sklearn.svm import SVC

    X, y = three_classes()
    new = X[:60] + 0.1
    if kernel == "precomputed":
        new, X = new @ X.T, X @ X.T
    params = {"gamma": 0.3} if kernel == "rbf" else None
    ours = ScreenedSVC(2.0, kernel=kernel, kernel_params=params, multi_class="ovo", tol=1e-9)
    ours.fit(X, y)
    svc = SVC(C=2.0, kernel=kernel, gamma=0.3, tol=1e-8).fit(X, y)
    assert len(ours.certificates_) == 6
    assert all(proof.ok for proof in ours.certificates_)
    np.testing.assert_allclose(ours.decision_function(new), svc.decision_function(new), atol=1e-3)
    assert (ours.predict(new) == svc.predict(new)).all()


def test_classes_share_the_rows_of_a_kernel() -> None:
    """One against the rest evaluates each entry of the matrix once, and gets the same models."""
    X, y = three_classes()
    options = {"kernel": "rbf", "kernel_params": {"gamma": 0.3}, "tol": 1e-9}
    model = ScreenedSVC(2.0, **options).fit(X, y)
    for k, label in enumerate(model.classes_):
        alone = ScreenedSVC(2.0, **options).fit(X, y == label)
        np.testing.assert_allclose(
            model.decision_function(X)[:, k], alone.decision_function(X), atol=1e-4
        )
    small = ScreenedSVC(2.0, cache_bytes=40 * 8 * len(X), **options).fit(X, y)
    np.testing.assert_allclose(small.decision_function(X), model.decision_function(X), atol=1e-4)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("multi_class", ["ovr", "ovo"])
def test_threads_change_no_bit(kernel: str, multi_class: str) -> None:
    X, y = three_classes(900, 5)
    # Until the compiled loops are built and loaded, numpy's solvers answer, which round otherwise:
    # where no earlier process has compiled them, this fit does, and those compared take the same.
    ScreenedSVC(5.0, kernel=kernel, multi_class=multi_class).fit(X, y)
    fits = [
        ScreenedSVC(5.0, kernel=kernel, multi_class=multi_class, n_jobs=jobs).fit(X, y)
        for jobs in (None, 2, 3, 2)
    ]
    for model in fits[1:]:
        assert np.array_equal(model.intercept_, fits[0].intercept_)
        name = "coef_" if kernel == "linear" else "dual_coef_"
        assert np.array_equal(getattr(model, name), getattr(fits[0], name))
        assert model.certificates_ == fits[0].certificates_


def test_classes_share_the_few_rows_of_a_large_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its whole matrix is evaluated only where the classes so far have needed half of it."""
    rng = np.random.default_rng(1)
    X = np.concatenate([rng.standard_normal((500, 2)) + at for at in ((0, 0), (9, 0), (0, 9))])
    y = np.repeat([0, 1, 2], 500)
    monkeypatch.setattr("cvxscreen.solvers.smo.AT_ONCE", 100)
    monkeypatch.setattr("cvxscreen.estimators.classifier.AT_ONCE", 100)
    monkeypatch.setattr("cvxscreen.estimators.classifier.ONE_MATRIX", 100)
    options = {"kernel": "rbf", "kernel_params": {"gamma": 0.1}, "tol": 1e-8}
    filled = ScreenedSVC(2.0, **options).fit(X, y)
    filling: list[int] = []
    fill = Kernel.fill
    monkeypatch.setattr(Kernel, "fill", lambda kernel: filling.append(kernel.known) or fill(kernel))
    monkeypatch.setattr("cvxscreen.estimators.classifier.IN_PLACE", 100)
    monkeypatch.setattr("cvxscreen.solvers.smo.IN_PLACE", 100)
    for jobs in (None, 2):
        shared = ScreenedSVC(2.0, n_jobs=jobs, **options).fit(X, y)
        np.testing.assert_allclose(
            shared.decision_function(X), filled.decision_function(X), atol=1e-6
        )
    assert not filling
    overlapping = X / 9.0 + 0.5 * rng.standard_normal(X.shape)
    model = ScreenedSVC(1.0, **options).fit(overlapping, y)
    assert len(filling) == 1
    assert 2 * filling[0] >= len(X)
    alone = ScreenedSVC(1.0, **options).fit(overlapping, y == 2)
    np.testing.assert_allclose(
        model.decision_function(X)[:, 2], alone.decision_function(X), atol=1e-3
    )


def test_a_choice_of_classes_that_does_not_exist_is_refused() -> None:
    X, y = three_classes()
    with pytest.raises(cvxscreen.InvalidInput, match="multi_class"):
        ScreenedSVC(multi_class="all").fit(X, y)


def test_the_default_tolerance_of_a_kernel_is_reached() -> None:
    X, y = three_classes(600)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for C in (1.0, 100.0, 1e4):
            model = ScreenedSVC(C, kernel="rbf").fit(X, y)
            assert all(p.ok and p.tolerance == 1e-5 for p in model.certificates_)
        linear = ScreenedSVC().fit(X, y)
    assert all(p.tolerance == 1e-9 for p in linear.certificates_)
