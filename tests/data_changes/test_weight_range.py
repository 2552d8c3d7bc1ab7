"""`weight_range`: predictions that it calls certain survive refits; refusals; the record."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import cvxscreen as cs
from cvxscreen.data_changes.reweight import weighted
from cvxscreen.datasets import two_gaussians
from cvxscreen.models.kernel import decision_function

X, Y = two_gaussians(60, 3, seed=1)
T = X @ np.array([1.0, -2.0, 0.5]) + np.sin(5.0 * X[:, 0])
PROBLEMS = {
    "hinge": lambda: cs.svm(X, Y, C=0.05),
    "csr": lambda: cs.svm(sp.csr_matrix(X), Y, C=0.05, loss="squared_hinge"),
    "float32, badly scaled": lambda: cs.svm((1e3 * X).astype(np.float32), Y, C=1e-7),
    "weights": lambda: cs.svm(X, Y, C=0.05, sample_weight=np.linspace(0.5, 2.0, 60)),
    "absolute": lambda: cs.regression(X, T, C=0.05),
    "huber": lambda: cs.regression(X, T, C=0.05, loss="huber"),
    "intercept": lambda: cs.svm(X, Y, C=0.05, intercept=True),
    "csr, intercept": lambda: cs.svm(
        sp.csr_matrix(X), Y, C=0.05, loss="squared_hinge", intercept=True),
    "quantile, intercept": lambda: cs.regression(
        X, T, C=0.05, loss="quantile", tau=0.3, intercept=True),
    "elastic net": lambda: cs.sparse_svm(X, Y, 0.1, l2=5.0),
}
NORMS = ("l2", "l1", "interval")


def direction(norm: str, rng: np.random.Generator) -> np.ndarray:
    if norm == "interval":
        return rng.choice([-1.0, 1.0], 60)
    v = rng.normal(size=60) * (rng.random(60) < rng.choice([0.05, 1.0]))
    v[rng.integers(60)] += 1.0
    return v / np.linalg.norm(v, 2 if norm == "l2" else 1)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("intercept", [False, True])
def test_certain_predictions_of_a_kernel_survive(intercept: bool, norm: str) -> None:
    rng, size = np.random.default_rng(7), 0.02 if norm == "interval" else 0.1
    problem = cs.svm(
        X + 3.0, Y, C=0.2, kernel="rbf", kernel_params={"gamma": 0.3}, intercept=intercept
    )
    tests = X.mean(axis=0) + 3.0 + 2.0 * rng.normal(size=(200, 3))
    solution = cs.solve(problem, tol=1e-11)
    found = cs.weight_range(solution, tests, norm=norm, size=size)
    np.testing.assert_allclose(
        found.predictions, decision_function(solution, tests), atol=1e-12
    )
    assert found.certain.any()
    assert found.unchanged.any()
    for _ in range(8):
        w = np.maximum(1.0 + size * direction(norm, rng), 0.0)
        other = cs.solve(weighted(problem, w), tol=1e-11)
        now, margins = decision_function(other, tests), problem.design.forward(other.x)
        assert (found.prediction_low - 1e-5 <= now).all()
        assert (now <= found.prediction_high + 1e-5).all()
        assert (found.low - 1e-5 <= margins).all()
        assert (margins <= found.high + 1e-5).all()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_certain_predictions_and_terms_survive(name: str, norm: str) -> None:
    rng = np.random.default_rng(7)
    problem = PROBLEMS[name]()
    scale = 1e3 if "scaled" in name else 1.0
    tests = scale * (X.mean(axis=0) + 2.0 * rng.normal(size=(200, 3)))
    solution = cs.solve(problem, tol=1e-11)
    size = 0.2 if norm == "interval" else 1.0
    found = cs.weight_range(solution, tests, norm=norm, size=size)
    beside = bool(problem.quadratic.free.any())
    # One term may be all that holds the intercept: nothing is known where it may leave.
    loose = beside or problem.penalty is not None
    assert found.certain.any() or loose
    assert found.unchanged.any() or loose
    some = cs.weight_range(solution, tests, norm=norm, size=0.02)
    assert some.certain.any()
    assert some.unchanged.any()
    rows = np.column_stack([tests, np.ones((200, int(beside)))])
    wrong = 0
    for _ in range(8):
        w = np.maximum(1.0 + size * direction(norm, rng), 0.0)
        other = cs.solve(weighted(problem, w), tol=1e-11)
        now = rows @ other.x
        rounding = 1e-5 * np.linalg.norm(rows, axis=1) * np.linalg.norm(solution.x)
        assert (found.prediction_low - rounding <= now).all()
        assert (now <= found.prediction_high + rounding).all()
        flipped = (np.sign(now) != np.sign(found.predictions)) & (np.abs(now) > rounding)
        wrong += int((flipped & found.certain).sum())
        stays = found.unchanged & solution.screening.zero & (w > 0)
        wrong += int((np.abs(other.theta[stays]) > 1e-6).sum())
    assert wrong == 0


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("norm", NORMS)
def test_a_linear_kernel_has_the_ranges_of_its_rows(norm: str, intercept: bool) -> None:
    """Points far from 0 too: beside an intercept those of a kernel are centred."""
    shape = {"C": 0.05, "intercept": intercept}
    tests = X.mean(axis=0) + 2.0 * np.random.default_rng(7).normal(size=(40, 3))
    size = 0.02 if norm == "interval" else 0.1
    rows = cs.weight_range(cs.solve(cs.svm(X, Y, **shape), tol=1e-12), tests, norm=norm, size=size)
    assert rows.certain.any()
    for kernel, some in (("linear", X), ("linear", sp.csr_matrix(X)), (lambda a, b: a @ b.T, X)):
        solution = cs.solve(cs.svm(some, Y, kernel=kernel, **shape), tol=1e-12)
        found = cs.weight_range(solution, tests, norm=norm, size=size)
        for name in ("low", "high", "prediction_low", "prediction_high", "largest"):
            mine, other = getattr(found, name), getattr(rows, name)
            np.testing.assert_allclose(mine, other, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(found.predictions, rows.predictions, atol=1e-6)
    given = cs.solve(cs.svm(X @ X.T, Y, kernel="precomputed", **shape), tol=1e-12)
    found = cs.weight_range(given, norm=norm, size=size)
    np.testing.assert_allclose(found.low, rows.low, rtol=1e-6, atol=1e-6)
    assert found.predictions.shape == (0,)


@pytest.mark.parametrize("norm", NORMS)
def test_the_largest_size_is_certain_and_hardly_more_is(norm: str) -> None:
    solution = cs.solve(PROBLEMS["hinge"](), tol=1e-12)
    whole = cs.weight_range(solution, X, norm=norm)
    assert (whole.certain == (whole.largest >= 1.0)).all()
    for k in np.argsort(whole.largest)[[10, 30, 50]]:
        S, one = float(whole.largest[k]), X[k : k + 1]
        assert cs.weight_range(solution, one, norm=norm, size=S).certain[0]
        assert not cs.weight_range(solution, one, norm=norm, size=1.001 * S).certain[0]


def test_leaving_one_out_is_within_the_ball_of_size_one() -> None:
    solution = cs.solve(PROBLEMS["hinge"](), tol=1e-11)
    found = cs.weight_range(solution, X, norm="l1", size=1.0)
    for i in range(0, 60, 7):
        left = cs.remove(solution, [i], tol=1e-11).solution
        now = X @ left.x
        assert (found.prediction_low - 1e-5 <= now).all()
        assert (now <= found.prediction_high + 1e-5).all()


def test_intervals_may_be_given_and_weights_that_stay_move_nothing() -> None:
    solution = cs.solve(PROBLEMS["hinge"](), tol=1e-12)
    still = cs.weight_range(solution, X, norm="interval", low=1.0, high=1.0)
    assert np.abs(still.prediction_high - still.prediction_low).max() < 1e-4
    assert np.isinf(still.largest[still.certain]).all()
    some = cs.weight_range(solution, X, norm="interval", low=0.9, high=np.full(60, 1.2), size=1.0)
    more = cs.weight_range(solution, X, norm="interval", low=0.8, high=1.4)
    assert (some.largest >= more.largest - 1e-12).all()


def test_points_whose_squares_underflow_are_bounded() -> None:
    solution = cs.solve(PROBLEMS["hinge"](), tol=1e-11)
    tests = 1e-300 * X
    found = cs.weight_range(solution, tests, norm="l1", size=1.0)
    i = int(np.argmax(np.abs(solution.theta) * solution.problem.norms))
    now = tests @ cs.remove(solution, [i], tol=1e-11).solution.x
    assert (now != tests @ solution.x).any()
    assert (found.prediction_low <= now).all()
    assert (now <= found.prediction_high).all()


def test_a_threshold_moves_the_side() -> None:
    solution = cs.solve(PROBLEMS["absolute"](), tol=1e-11)
    far = cs.weight_range(solution, X, size=0.1, threshold=-100.0)
    assert far.certain.all()
    assert (far.largest > 0.1).all()


def test_the_record_prints_and_plots(tmp_path) -> None:
    solution = cs.solve(PROBLEMS["hinge"](), tol=1e-10)
    found = cs.weight_range(solution, X)
    assert "Range of weights" in str(found)
    assert "certain" in found.table()
    found.plot().savefig(tmp_path / "range.png")
    assert (tmp_path / "range.png").stat().st_size > 5000
    terms = cs.weight_range(solution)
    assert len(terms.predictions) == 0
    assert "predictions" not in str(terms)
    with pytest.raises(cs.InvalidInput, match="`X`"):
        terms.plot()


def test_refusals_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    solution = cs.solve(PROBLEMS["hinge"]())
    endless = replace(solution.point(), gap=np.inf)
    with monkeypatch.context() as patched:
        patched.setattr(cs.Solution, "point", lambda self: endless)
        for asked in (lambda: cs.weight_range(solution, X), lambda: cs.influence(solution)):
            with pytest.raises(cs.InvalidInput, match="no finite duality gap"):
                asked()
    fair = cs.regression(X, T, C=0.05, nonneg=True)
    with pytest.raises(cs.InvalidInput, match="constraints"):
        cs.weight_range(cs.solve(fair), X)
    given = cs.solve(cs.svm(X @ X.T, Y, kernel="precomputed"))
    with pytest.raises(cs.InvalidInput, match="Gram matrix of `solution` was given"):
        cs.weight_range(given, X @ X.T)
    with pytest.raises(cs.InvalidInput, match="4 features; 3"):
        cs.weight_range(cs.solve(cs.svm(X, Y, kernel="rbf")), np.ones((2, 4)))
    with pytest.raises(cs.InvalidInput, match="4 features; 3"):
        cs.weight_range(solution, np.ones((2, 4)))
    with pytest.raises(cs.InvalidInput, match="low <= 1 <= high"):
        cs.weight_range(solution, norm="interval", low=1.5, high=2.0)
    with pytest.raises(cs.InvalidInput, match="belong to"):
        cs.weight_range(solution, low=0.5)
    with pytest.raises(cs.InvalidInput, match="norm"):
        cs.weight_range(solution, norm="l3")
    for threshold in (np.nan, np.inf):
        with pytest.raises(cs.InvalidInput, match=r"`threshold` is (nan|inf)"):
            cs.weight_range(solution, X, threshold=threshold)
    with pytest.raises(cs.InvalidInput, match="size"):
        cs.weight_range(solution, size=-1.0)
    with np.errstate(all="ignore"), pytest.raises(cs.InvalidInput, match="gap of inf"):
        cs.weight_range(cs.solve(cs.svm(X, Y, C=1e300), max_iter=1))
