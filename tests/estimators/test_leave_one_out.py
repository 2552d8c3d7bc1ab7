"""`leave_one_out` of the estimators: the fits without each sample, and nothing else changed."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import (
    LeaveOneGroupOut,
    LeaveOneOut,
    cross_val_predict,
    cross_val_score,
)

import cvxscreen
from cvxscreen.data_changes.reweight import taken
from cvxscreen.datasets import two_gaussians
from cvxscreen.estimators import (
    MultiTaskSVC,
    ScreenedRegressor,
    ScreenedRegressorCV,
    ScreenedSVC,
    ScreenedSVCCV,
    SparseSVC,
    SparseSVCCV,
    SparseSVR,
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
    fine = model.leave_one_out(X, T, accuracy=1e-4)
    assert (fine.high - fine.low).max() <= 1e-4
    assert fine.score == pytest.approx(expected, abs=1e-4)


def test_a_limit_keeps_what_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    classes = np.where(X[:, 0] > 0.5, "a", np.where(Y > 0, "b", "c"))
    for y in (Y, classes):
        cut = ScreenedSVC(0.5).leave_one_out(X, y, time_limit=1e-9)
        assert not cut.finished
        whole = ScreenedSVC(0.5).leave_one_out(X, y, progress=True)
        assert whole.finished
        assert cut.errors[0] <= whole.errors[0] <= whole.errors[1] <= cut.errors[1]
        assert "refits" in capsys.readouterr().err


def test_a_score_of_one_pass_is_never_too_good() -> None:
    svc, model = ScreenedSVC(0.5, fit_intercept=False), ScreenedRegressor(0.5, fit_intercept=False)
    for quick, exact in ((svc.leave_one_out(X, Y, refit=False), svc.leave_one_out(X, Y)),
                         (model.leave_one_out(X, T, refit=False), model.leave_one_out(X, T))):
        assert not quick.decided.all()
        assert quick.score < exact.score


CENTRES = np.array([[0.0, 0.0, 0.0], [1.5, 0.0, 0.5], [0.0, 1.5, -0.5]])
OWN = np.random.default_rng(2).integers(0, 3, 60)
CLOUDS = CENTRES[OWN] + np.random.default_rng(3).normal(size=(60, 3))
NAMES = np.array([1, 0, 2])[OWN]
HELD = np.arange(60) // 4

SEVERAL = {
    "against the rest": ScreenedSVC(0.3, tol=1e-10),
    "no intercept": ScreenedSVC(0.3, fit_intercept=False, tol=1e-10),
    "kernel": ScreenedSVC(0.3, kernel="rbf", tol=1e-10),
    "squared hinge": ScreenedSVC(0.1, loss="squared_hinge", tol=1e-10),
    "weights": ScreenedSVC(0.3, class_weight={0: 1.0, 1: 2.0, 2: 0.5}, tol=1e-10),
    "pairs": ScreenedSVC(0.3, multi_class="ovo", tol=1e-10),
    "pairs, no intercept": ScreenedSVC(0.3, multi_class="ovo", fit_intercept=False, tol=1e-10),
    "pairs, kernel": ScreenedSVC(0.3, multi_class="ovo", kernel="rbf", tol=1e-10),
    "sparse": SparseSVC(0.05, tol=1e-10),
    "sparse hinge": SparseSVC(0.05, loss="hinge", l2=0.5, tol=1e-10),
}


@pytest.mark.table
@pytest.mark.parametrize(("name", "grouped"), [
    pytest.param(name, grouped, id=f"{name}, {'groups' if grouped else 'alone'}",
                 marks=[] if (number + grouped) % 2 else pytest.mark.long)
    for grouped in (False, True) for number, name in enumerate(SEVERAL)
])
def test_one_score_of_several_classes(name: str, grouped: bool) -> None:
    """That of cross-validation, as the interval of how far the own class is ahead says for each."""
    model, groups = SEVERAL[name], HELD if grouped else None
    n = 60 if grouped else 30  # a fit for each of them
    points, mine = CLOUDS[-n:], NAMES[-n:]
    found = model.leave_one_out(points, mine, groups=groups)
    quick = model.leave_one_out(points, mine, groups=groups, refit=False)
    cv = LeaveOneGroupOut() if grouped else LeaveOneOut()
    scores = cross_val_predict(
        model, points, mine, groups=groups, cv=cv, method="decision_function")
    own = scores[np.arange(n), mine]
    scores[np.arange(n), mine] = -np.inf
    ahead = own - scores.max(axis=1)
    assert found.decided.all()
    assert found.score == np.mean(ahead > 0)
    assert found.errors == pytest.approx((1.0 - found.score,) * 2, abs=1e-12)
    for record in (found, quick):
        assert (record.low <= ahead + 1e-4).all()
        assert (ahead - 1e-4 <= record.high).all()
    assert len(found.parts) == 3
    assert all(isinstance(part, cvxscreen.LeaveOneOut) for part in found.parts)
    known = ~np.isnan(found.value)
    assert ((found.low <= found.value) & (found.value <= found.high))[known].all()
    assert found.unchanged.sum() <= known.sum()


def test_only_what_may_change_the_class_is_refitted() -> None:
    found = ScreenedSVC(0.3).leave_one_out(CLOUDS, NAMES)
    quick = ScreenedSVC(0.3).leave_one_out(CLOUDS, NAMES, refit=False)
    assert 0 < found.refitted.sum() <= (~quick.decided).sum()
    least = [part.refitted.sum() for part in found.parts]
    assert max(least) < found.refitted.sum()                    # no class needs them all
    one_by_one = sum(part.refitted.sum() for part in (
        ScreenedSVC(0.3).leave_one_out(CLOUDS, name == NAMES) for name in range(3)))
    assert sum(least) < one_by_one


def test_weights_count() -> None:
    model = ScreenedSVC(0.5, fit_intercept=False)
    plain, doubled = (
        model.leave_one_out(X, Y, weight, refit=False) for weight in (None, np.full(50, 2.0))
    )
    assert (doubled.high - doubled.low).mean() > (plain.high - plain.low).mean()


def test_under_an_l1_norm_the_loss_stays_a_mean() -> None:
    model = SparseSVR(0.05, tol=1e-10)
    found = model.leave_one_out(X, T)
    residual = T - cross_val_predict(model, X, T, cv=LeaveOneOut())
    assert ((found.low - 1e-6 <= residual) & (residual <= found.high + 1e-6)).all()
    for alone in (SparseSVR(0.1, loss="huber", l2=0), SparseSVC(0.1, loss="hinge", l2=0)):
        with pytest.raises(cvxscreen.InvalidInput, match="`l2`"):
            alone.leave_one_out(X, Y)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_a_sample_of_a_task_is_left_out_at_the_matrix_of_the_fit(loss: str) -> None:
    task = np.array(["p", "q"])[(X[:, 1] > np.median(X[:, 1])).astype(int)]
    model = MultiTaskSVC(1, alpha=0.05, beta=0.02, loss=loss, tol=1e-8)
    found = model.leave_one_out(X, Y, task)
    quick = model.leave_one_out(X, Y, task, refit=False)
    model.fit(X, Y, task)
    assert found.decided.all()
    wrong = 0
    for at, name in enumerate(model.tasks_):
        rows = np.flatnonzero(task == name)
        problem = model.solution_.problem.task(at, model.M_)
        for k, i in enumerate(rows):
            rest = np.flatnonzero(np.arange(len(rows)) != k)
            x = cvxscreen.solve(taken(problem, rest), tol=1e-11).x
            margin = Y[i] * problem.design.forward(x)[k]
            wrong += margin <= 0
            for record in (found, quick):
                assert record.low[i] - 1e-4 <= margin <= record.high[i] + 1e-4
    assert found.score == pytest.approx(1.0 - wrong / len(Y), abs=1e-12)
    labels = np.arange(len(Y)) // 5
    by_groups = cvxscreen.leave_one_out(model.solution_, groups=labels)
    assert by_groups.decided.all()
    with pytest.raises(cvxscreen.InvalidInput, match="task 0"):
        cvxscreen.leave_one_out(model.solution_, groups=np.arange(len(Y)) >= (task == "p").sum())


def test_a_chosen_C_is_used() -> None:
    for model, target in ((ScreenedSVCCV([0.1, 1.0], cv=3), Y),
                          (ScreenedRegressorCV([0.1, 1.0], cv=3), T),
                          (SparseSVCCV(3, cv=3), Y)):
        with pytest.raises(NotFittedError):
            model.leave_one_out(X, target)
        problem = model.fit(X, target).leave_one_out(X, target, refit=False).solution.problem
        if hasattr(model, "C_"):
            assert problem.C == model.C_
        else:
            assert problem.lam == pytest.approx(model.best_lam_ * 49 / 50)
