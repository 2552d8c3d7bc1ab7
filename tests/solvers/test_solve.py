"""Few terms by numpy alone: certified, as good as the compiled path, and nothing compiled."""

from __future__ import annotations

import numpy as np
import pytest
from strategies import ONE_ARRAY, Case, reference

import cvxscreen
from cvxscreen._support.compiled import CompileClock
from cvxscreen.certificates.certificate import certify
from cvxscreen.solvers import few_terms, solve
from cvxscreen.solvers.compiled_path.segments import suits, suits_one
from cvxscreen.solvers.few_terms import few, solve_few


@pytest.mark.parametrize("case", ONE_ARRAY)
def test_the_optimum_of_small_problems(case: Case) -> None:
    """Every loss and scale of the cases that the compiled path takes: certified to 1e-6."""
    problem = reference(case).problem
    if not (suits(problem) or suits_one(problem)):
        pytest.skip("another engine's")
    with np.errstate(all="ignore"):
        x, theta, steps = solve_few(problem, 1e-9)
    assert steps <= few_terms.STEPS
    assert (theta >= problem.losses.lo).all()
    assert (theta <= problem.losses.hi).all()
    proof = certify(problem, x, theta, tol=1e-6)
    assert proof.ok, proof.reason


@pytest.fixture
def nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> CompileClock:
    """A machine that has compiled nothing, and on which it is not due."""
    clock = CompileClock(np.inf)
    monkeypatch.setattr(solve, "ready", lambda: False)
    monkeypatch.setattr(solve, "PARTS", clock)
    return clock


@pytest.mark.parametrize("intercept", [False, True])
def test_solve_takes_it_while_nothing_is_compiled(
    intercept: bool, nothing_compiled: CompileClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record of a call like any other; its time counts; larger problems go elsewhere."""
    X, y = cvxscreen.datasets.two_gaussians(300, 5, bayes_error=0.1)
    problem = cvxscreen.svm(X, y, intercept=intercept)
    plain = cvxscreen.solve(problem, solver="newton", tol=1e-8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cvxscreen.solvers.loop.solve_screened", None)
        found = cvxscreen.solve(problem, tol=1e-8)
    assert found.status == "optimal"
    assert "optimal" in str(found)
    assert abs(found.value - plain.value) <= found.certificate.gap + plain.certificate.gap
    assert found.screening.zero.mean() == pytest.approx(plain.screening.zero.mean(), abs=0.02)
    assert nothing_compiled.spent > 0.0
    monkeypatch.setattr(few_terms, "TERMS", 299)
    assert not few(problem)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["absolute", "quantile", "huber", "epsilon"])
def test_data_that_leave_nothing_to_do(
    loss: str, intercept: bool, nothing_compiled: CompileClock
) -> None:
    """Targets of zeros: every loss is 0 at the start, and a share of nothing is no number."""
    X = np.random.default_rng(0).standard_normal((50, 3))
    problem = cvxscreen.regression(X, np.zeros(50), loss=loss, intercept=intercept)
    found = cvxscreen.solve(problem)
    assert found.status == "optimal"
    assert found.value == pytest.approx(0.0, abs=1e-9)
    with np.errstate(all="ignore"):  # nor is it in the method itself, if that is asked
        x, theta, _ = solve_few(problem, 1e-9)
    np.testing.assert_allclose(x, 0.0, atol=1e-12)
    assert np.isfinite(theta).all()


def test_weights_beyond_all_measure_are_no_reason_to_raise(nothing_compiled: CompileClock) -> None:
    """Squares of what they pull at are more than a float holds: the loop takes the problem."""
    X, y = cvxscreen.datasets.two_gaussians(40, 3)
    problem = cvxscreen.svm(X, y, C=1e180)
    with np.errstate(all="ignore"):
        x, theta, _ = solve_few(problem, 1e-6)
    assert x.shape == (3,)
    assert (theta >= problem.losses.lo).all()


def test_what_its_certificate_refuses_is_solved_again(
    nothing_compiled: CompileClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the loop of screening; also where it ends in numbers that are none."""
    X, y = cvxscreen.datasets.two_gaussians(80, 3, bayes_error=0.1)
    problem = cvxscreen.svm(X, y)
    for worth in (1.01, np.nan):
        def lying(problem, tol, worth=worth):
            x, theta, steps = solve_few(problem, tol)
            return worth * x, theta, steps

        monkeypatch.setattr("cvxscreen.solvers.solve.solve_few", lying)
        found = cvxscreen.solve(problem)
        assert found.status == "optimal"
        assert cvxscreen.certify(problem, found.x, found.theta).ok


def expressions(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Wide data as they are measured: few samples, numbers up to 1e4, none below 0."""
    rng = np.random.default_rng(seed)
    X = np.exp(rng.normal(4.5, 1.5, 600) + 0.5 * rng.standard_normal((40, 600)))
    return X, np.where(X[:, 0] > np.median(X[:, 0]), 1.0, -1.0)


@pytest.mark.parametrize("C", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("intercept", [False, True])
def test_separable_data_of_large_numbers(C: float, intercept: bool) -> None:
    """A margin's rounding times C is more than the optimum: hinges end beyond their kink."""
    X, y = expressions()
    problem = cvxscreen.svm(X, y, C=C, intercept=intercept)
    found = cvxscreen.solve(problem)
    assert found.status == "optimal"
    standard = cvxscreen.svm(X / 1e4, y, C=1e8 * C, intercept=intercept)
    assert found.value == pytest.approx(1e-8 * cvxscreen.solve(standard).value, rel=2e-6)


@pytest.mark.parametrize("C", [1.0, 100.0])
@pytest.mark.parametrize("intercept", [False, True])
def test_where_a_margin_is_too_coarse_the_answer_is_still_told(C: float, intercept: bool) -> None:
    """Two slopes at every kink: what rounding costs cannot be avoided, and is said, no error."""
    X, y = expressions()
    found = cvxscreen.solve(cvxscreen.regression(X, y, C=C, intercept=intercept))
    assert found.status in ("optimal", "inaccurate")
    assert found.certificate.relative_gap <= 1e-3


@pytest.mark.parametrize(("given", "name"), [
    ("InteriorPoint", "INTERIOR_POINT"), ("interior point", "INTERIOR_POINT"),
    ("DCD-no-shrinking", "DCD_NO_SHRINKING"), ("DcdNoShrinking", "DCD_NO_SHRINKING"),
])
def test_names_of_solvers_may_be_one_word(given: str, name: str) -> None:
    """As classes and papers write them (`ActiveSet`)."""
    X, y = np.random.default_rng(0).standard_normal((40, 3)), np.resize([1.0, -1.0], 40)
    problem = cvxscreen.svm(X, y, loss="SmoothedHinge")
    assert cvxscreen.solve(problem, solver=given).solver == name
