"""`leave_one_out`: what refits say, whichever way a term was decided; refusals; the record."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import cvxscreen
from cvxscreen import InvalidInput, MissingDependency, leave_one_out, regression, solve, svm
from cvxscreen._support.compiled import CompileClock
from cvxscreen.certificates.kernels import LeftOutProofs
from cvxscreen.core.problem import Quadratic
from cvxscreen.data_changes import bootstrap as replicates, refits
from cvxscreen.datasets import two_gaussians
from cvxscreen.designs.rows import Rows

X, y = two_gaussians(60, 3, seed=1)
T = X @ np.array([1.0, -2.0, 0.5]) + np.sin(5.0 * X[:, 0])


def problems():
    return {
        "hinge": svm(X, y, C=0.5),
        "intercept": svm(X, y, C=0.5, intercept=True),
        "weights": svm(X, y, C=0.5, sample_weight=np.linspace(0.5, 2.0, 60)),
        "csr": svm(sp.csr_matrix(X), y, loss="squared_hinge"),
        "float32": svm(X.astype(np.float32), y, C=0.5),
        "kernel": svm(X, y, kernel="rbf", kernel_params={"gamma": 0.5}),
        "absolute": regression(X, T, C=0.5),
        "quantile": regression(X, T, C=0.5, loss="quantile", tau=0.8, intercept=True),
        "huber": regression(X, T, C=0.5, loss="huber"),
        "elastic net": cvxscreen.sparse_svm(X, y, 0.02),
    }


@pytest.mark.parametrize("name", problems())
def test_agrees_with_fits_without_the_term(name: str) -> None:
    problem = problems()[name]
    solution = solve(problem, tol=1e-9)
    found = leave_one_out(solution, tol=1e-9)
    assert found.decided.all()
    assert (found.low <= found.high).all()
    known = ~np.isnan(found.value)
    assert ((found.low <= found.value) & (found.value <= found.high))[known].all()
    for i in range(0, problem.n, 4):
        keep = np.arange(problem.n) != i
        left = replace(
            problem, design=problem.design.take_rows(keep), losses=problem.losses.take(keep)
        )
        true = problem.design.forward(solve(left, tol=1e-11).x)[i]
        if not found.classification:
            true = problem.losses.b[i] - true
        assert found.low[i] - 1e-4 <= true <= found.high[i] + 1e-4
        if known[i]:
            assert found.value[i] == pytest.approx(true, abs=2e-3)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "absolute", "epsilon", "huber"])
def test_refits_of_a_kernel_in_blocks_are_those_made_alone(
    loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Points that are there twice, weights, few terms at first: all is certified in blocks."""
    twice, labels = np.vstack([X, X[:8]]), np.concatenate([y, -y[:8]])
    door, target = (svm, labels) if "hinge" in loss else (regression, np.append(T, T[:8] + 0.3))
    problem = door(twice, target, C=0.7, loss=loss, kernel="rbf",
                   sample_weight=np.linspace(0.5, 2.0, 68))
    solution = solve(problem, tol=1e-9)
    monkeypatch.setattr(refits, "NEAREST", 2)
    index, settled = np.arange(0, 68, 3), []

    def seen(*arguments: Any) -> Any:
        found = steps(*arguments)
        settled.extend(found[1])
        return found

    steps = refits.faces
    monkeypatch.setattr(refits, "faces", seen)
    margins, error, ok = refits.left_out_of([refits.Programs(problem, solution, 1e-9)], index)
    assert ok.all()
    assert np.mean(settled) > 0.5  # the others are solved as programs
    for k in range(len(index)):
        [alone] = refits._refitted(
            solution, index[k:k + 1], 1e-11, "certified"
        )
        assert margins[k] - error[k] <= alone[2]
        assert alone[1] <= margins[k] + error[k]
        assert margins[k] == pytest.approx(alone[3], abs=1e-4)


def of_a_kernel(loss: str) -> cvxscreen.Problem:
    """60 terms, some with other weights."""
    weight = np.linspace(0.5, 2.0, 60)
    kernel: dict[str, Any] = {"kernel": "rbf", "kernel_params": {"gamma": 0.4}}
    if loss in ("hinge", "squared_hinge", "smoothed_hinge"):
        return svm(X, y, C=0.7, loss=loss, sample_weight=weight, **kernel)
    more = {"epsilon": 0.2} if loss == "epsilon" else {}
    return regression(X, T, C=0.7, loss=loss, sample_weight=weight, **more, **kernel)


KERNEL_LOSSES = ["hinge", "squared_hinge", "smoothed_hinge", "absolute", "epsilon", "huber"]


@pytest.mark.parametrize("loss", KERNEL_LOSSES)
def test_the_path_of_a_slope_of_a_kernel_ends_at_the_optimum_without_it(
    loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No program helps: every answer is certified, and is that of a fit without the term."""
    monkeypatch.setattr(refits.PATHS, "spent", refits.PATHS.price)
    problem, every = of_a_kernel(loss), np.arange(60)
    solution = solve(problem, tol=1e-10)
    [paths, programs] = refits.gram_solvers(problem, solution, 1e-9, every)
    assert isinstance(paths, refits.AlongPathsOfGram)
    margins, error, ok = refits.left_out_of([paths], every)
    assert ok.all()
    others, reach, _ = refits.left_out_of([programs], every)
    assert (np.abs(margins - others) <= error + reach).all()
    for i in range(0, 60, 11):
        [[_, low, high, value]] = refits._refitted(
            solution, np.array([i]), 1e-11, "certified"
        )
        assert margins[i] - error[i] <= high
        assert low <= margins[i] + error[i]
        assert margins[i] == pytest.approx(value, abs=1e-4 * (1.0 + abs(value)))


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_large_slopes_of_a_kernel_need_no_refits_alone(
    kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where rounding times the slopes is more than an interval may be wide, its root is not."""
    monkeypatch.setattr(refits.PATHS, "spent", refits.PATHS.price)
    problem = regression(X, T, C=1e3, loss="epsilon", epsilon=0.2, kernel=kernel)
    solution, alone = solve(problem, tol=1e-8), refits._refitted
    monkeypatch.setattr(refits, "_refitted", None)  # nothing needs it
    found = leave_one_out(solution, accuracy=1e-4)
    assert found.refitted.sum() > 40
    assert found.decided.all()
    for i in np.flatnonzero(found.refitted)[::20]:
        [[_, low, high, _]] = alone(solution, np.array([i]), 1e-8, "certified")
        assert found.low[i] <= problem.losses.b[i] - low
        assert problem.losses.b[i] - high <= found.high[i]


LINEAR = {
    "hinge": {}, "squared_hinge": {}, "huber": {}, "epsilon": {"epsilon": 0.2}, "absolute": {},
}


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", LINEAR)
def test_a_linear_kernel_is_left_out_over_its_rows(loss: str, intercept: bool) -> None:
    """Large slopes, weights, and an intercept, beside which refits of a kernel go one by one."""
    door, target = (svm, y) if "hinge" in loss else (regression, T)
    more = {
        "C": 20.0, "loss": loss, "intercept": intercept,
        "sample_weight": np.linspace(0.5, 2.0, 60), **LINEAR[loss],
    }
    plain, problem = door(X, target, **more), door(X, target, kernel="linear", **more)
    rows = refits.over_its_rows(problem)
    assert rows is not None
    np.testing.assert_array_equal(rows.design.dense(), plain.design.dense())
    np.testing.assert_array_equal(rows.quadratic.diagonal, plain.quadratic.diagonal)
    x = np.linspace(-1.0, 1.0, rows.d)
    assert rows.primal(x) == plain.primal(x)
    solution = solve(problem, tol=1e-9)
    found, expected = leave_one_out(solution, tol=1e-9), leave_one_out(solve(plain, tol=1e-9))
    assert found.solution is solution
    assert (np.maximum(found.low, expected.low) <= np.minimum(found.high, expected.high)).all()
    assert found.decided.sum() >= expected.decided.sum()
    for i in np.flatnonzero(found.refitted)[::9]:
        [[_, low, high, _]] = refits._refitted(solution, np.array([i]), 1e-10, "certified")
        if not found.classification:
            low, high = problem.losses.b[i] - high, problem.losses.b[i] - low
        assert found.low[i] <= high
        assert low <= found.high[i]


def test_only_a_linear_kernel_of_few_features_is_taken_as_rows() -> None:
    wide = np.hstack([X, np.ones((60, refits.COORDINATES))])
    for problem in (
        svm(X, y), svm(X, y, kernel="rbf"), svm(X @ X.T, y, kernel="precomputed"),
        svm(X, y, kernel="poly", kernel_params={"degree": 1, "coef0": 1.0, "gamma": 1.0}),
        svm(X, y, kernel="poly", kernel_params={"degree": 1, "coef0": 0.0, "gamma": 2.0}),
        svm(X, y, kernel="poly", kernel_params={"degree": 2, "coef0": 0.0, "gamma": 1.0}),
        svm(wide, y, kernel="linear"),
    ):
        assert refits.over_its_rows(problem) is None
    some, own = svm(X, y, kernel="linear"), np.arange(5, 50)
    some = replace(some, design=some.design.take_rows(own), losses=some.losses.take(own))
    rows = refits.over_its_rows(some)
    assert rows is not None
    np.testing.assert_array_equal(rows.design.dense(), (y[:, None] * X)[5:50])


def test_paths_that_are_waited_for_are_taken_once_they_are_due(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within one call: others may take a second a block."""
    for clock in (replicates.TOGETHER, replicates.FRESH):
        monkeypatch.setattr(clock, "spent", clock.price)
    asked: list[str] = []
    monkeypatch.setattr(refits, "at_hand", lambda loop: False)
    monkeypatch.setattr(refits, "PATHS", CompileClock(1e-9))
    monkeypatch.setattr(refits, "at_once", lambda problem: 4)
    for solver in (refits.AlongPaths, refits.ByWeights):
        def noted(
            self: Any, index: Any, near: Any, solver: Any = solver, without: Any = solver.without
        ) -> Any:
            asked.append(solver.__name__)
            return without(self, index, near)
        monkeypatch.setattr(solver, "without", noted)
    found = leave_one_out(solve(svm(X, y, C=0.5), tol=1e-10))
    assert found.refitted.sum() > 5
    assert asked[0] == "ByWeights"
    assert set(asked[1:]) == {"AlongPaths"}


def test_points_with_either_label_go_along_paths_once_more(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one of two that pull against each other many margins come to a kink from afar."""
    monkeypatch.setattr(refits.PATHS, "spent", refits.PATHS.price)
    monkeypatch.setattr(refits, "NEAREST", 8)
    monkeypatch.setattr(refits, "FURTHER", 8)
    some, labels = 14 * np.arange(9) + 1, np.repeat(y, 2)
    labels[some] = -labels[some]
    problem = svm(
        np.repeat(X, 2, axis=0), labels, C=30.0, kernel="rbf", kernel_params={"gamma": 0.4}
    )
    solution = solve(problem, tol=1e-10)
    paths = refits.gram_solvers(problem, solution, 1e-8, some)[0]
    margins, error, ok = refits.left_out_of([paths], some)
    assert ok.all()
    for k, i in list(enumerate(some))[::4]:
        [[_, low, high, value]] = refits._refitted(solution, np.array([i]), 1e-11, "certified")
        assert margins[k] - error[k] <= high
        assert low <= margins[k] + error[k]
        assert margins[k] == pytest.approx(value, abs=1e-4 * (1.0 + abs(value)))
    monkeypatch.setattr(paths, "rounds", 1)
    once = refits.left_out_of([paths], some)[2]
    assert np.count_nonzero(~once) >= refits.AGAIN
    # A few are left to programs, which need no matrix of all that are near.
    few = some[~once][:refits.AGAIN - 1]
    monkeypatch.setattr(paths, "rounds", 2)
    assert not refits.left_out_of([paths], few)[2].any()


@pytest.mark.parametrize("loss", ["hinge", "epsilon"])
@pytest.mark.parametrize("short_of", ["FURTHER", "PLACES", "MOST"])
def test_paths_of_a_kernel_that_end_early_are_left_to_programs(
    loss: str, short_of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few terms near, no place for one more at a kink, or too many terms for one matrix."""
    monkeypatch.setattr(refits.PATHS, "spent", refits.PATHS.price)
    problem = of_a_kernel(loss)
    solution = solve(problem, tol=1e-10)
    expected = leave_one_out(solution, tol=1e-8)
    at = refits.optimum_of_gram(refits.LeftOutOfGram(problem, solution.theta, 1e-9))
    assert at is not None
    inside = np.count_nonzero(at.kind != refits.HELD)
    monkeypatch.setattr(refits, short_of, inside + 12 if short_of == "MOST" else 0)
    monkeypatch.setattr(refits, "NEAREST", 8)
    ended = [
        refits.left_out_of(refits.gram_solvers(problem, solution, 1e-9, k)[:1], k)[2].item()
        for k in np.arange(60)[:, None]
    ]
    assert short_of == "MOST" or not all(ended)
    found = leave_one_out(solution, tol=1e-8)
    np.testing.assert_array_equal(found.refitted, expected.refitted)
    np.testing.assert_allclose(found.value, expected.value, atol=1e-4)


@pytest.mark.table
@pytest.mark.parametrize("loss", ["hinge", "absolute", "epsilon", "squared_hinge"])
@pytest.mark.parametrize("kernel", [None, "rbf"])
@pytest.mark.parametrize("often", [2, 5])
def test_terms_that_are_there_several_times_have_paths(
    loss: str, kernel: str | None, often: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of slopes that they share, which are not unique, all but one are moved to an end."""
    monkeypatch.setattr(refits.PATHS, "spent", refits.PATHS.price)
    monkeypatch.setattr(refits.ByWeights, "without", lambda self, index, near: None)
    again = np.arange(60) // often
    more: dict[str, Any] = {"kernel": kernel, "kernel_params": {"gamma": 0.4}} if kernel else {}
    if "hinge" in loss:
        problem = svm(X[again], y[again], C=0.7, loss=loss, **more)
    else:
        problem = regression(X[again], T[again], C=0.7, loss=loss, **more)
    solution, every = solve(problem, tol=1e-10), np.arange(60)
    shared = replace(solution, theta=solution.theta.reshape(-1, often).mean(axis=1).repeat(often))
    if kernel:
        paths = refits.gram_solvers(problem, shared, 1e-9, every)[0]
        assert isinstance(paths, refits.AlongPathsOfGram)
    else:
        paths = refits.row_solvers(shared, 1e-9)[0]
        assert isinstance(paths, refits.AlongPaths)
    f, inside = problem.losses, paths.at.kind != refits.HELD
    between = (shared.theta > f.lo + 1e-6) & (shared.theta < f.hi - 1e-6)
    assert (between & ((np.abs(shared.theta) > 1e-6) | (f.e == 0.0))).sum() >= often
    if loss != "squared_hinge":
        assert (np.bincount(again[inside]) <= 1).all()
    margins, error, ok = refits.left_out_of([paths], every)
    assert ok.all()
    for i in range(0, 60, 11):
        [[_, low, high, value]] = refits._refitted(solution, np.array([i]), 1e-11, "certified")
        assert margins[i] - error[i] <= high
        assert low <= margins[i] + error[i]
        assert margins[i] == pytest.approx(value, abs=1e-4 * (1.0 + abs(value)))


def test_slopes_of_rows_that_depend_on_each_other_come_to_a_vertex() -> None:
    """A row that is the sum of two others, and rows of which one is twice the other."""
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 0.0]])
    problem = regression(rows, np.zeros(4), C=1.0)
    for theta in ([0.1, -0.2, 0.3, 0.4], [0.9, 0.9, -0.9, 0.9], [-0.5, 0.25, 0.0, 0.125]):
        given = np.array(theta)
        snapped = refits.Snapped.of(problem, given, np.zeros(4), 1e-10)
        moved = snapped.at_a_vertex(rows.T)
        np.testing.assert_allclose(rows.T @ moved.theta, rows.T @ given, atol=1e-14)
        inside = moved.kind != refits.HELD
        assert np.linalg.matrix_rank(rows[inside]) == inside.sum()
        assert (np.abs(moved.theta[~inside]) == 1.0).all()
        assert (np.abs(moved.theta) <= 1.0).all()


def test_refits_of_a_kernel_wait_for_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until paths are compiled programs do; what these take is counted, until compiling pays."""
    monkeypatch.setattr(refits, "at_hand", lambda loop: False)
    monkeypatch.setattr(refits.PATHS, "spent", 0.0)
    problem = of_a_kernel("epsilon")
    solution = solve(problem, tol=1e-10)
    solvers = refits.gram_solvers(problem, solution, 1e-9, np.arange(60))
    assert [type(solver) for solver in solvers] == [refits.Programs]
    refits.left_out_of(solvers, np.arange(60))
    assert refits.PATHS.spent > 0.0


def test_a_relative_gap_that_is_enough_will_do_where_none_is_smaller() -> None:
    """As where the rounding of large slopes is more than the solvers' own tolerance."""
    problem = problems()["kernel"]
    solution, index = solve(problem, tol=1e-9), np.arange(0, 60, 5)
    solver = refits.Programs(problem, solution, 1e-30)
    assert not refits.left_out_of([solver], index)[2].any()
    margins, error, ok = refits.left_out_of([solver], index, 1e-6)
    assert ok.all()
    for k, i in enumerate(index):
        [[_, low, high, _]] = refits._refitted(solution, np.array([i]), 1e-11, "certified")
        assert margins[k] - error[k] <= high
        assert low <= margins[k] + error[k]


def test_the_best_of_all_answers_is_kept() -> None:
    """Of two solvers, the second of which is better at one term and worse at the other."""
    class Known:
        rounds, near = 1, np.zeros(0, dtype=np.intp)

        def __init__(self, *gaps: float) -> None:
            self.gaps = np.array(gaps)

        def without(self, index: Any, near: Any) -> LeftOutProofs:
            found = self.gaps[index]
            return LeftOutProofs(10.0 * found, found, found, found, found <= 1e-9, self.near)

    solvers = [Known(1e-7, 1e-5, 1e-12), Known(1e-5, 1e-8, 1.0)]
    margins, error, ok = refits.left_out_of(solvers, np.arange(3), 5e-8)
    np.testing.assert_array_equal(error, [1e-7, 1e-8, 1e-12])
    np.testing.assert_array_equal(margins, 10.0 * error)
    np.testing.assert_array_equal(ok, [False, True, True])


WIDE = np.random.default_rng(7).normal(size=(40, 300)) / 17.0
SIDES = np.where(WIDE[:, :9].sum(axis=1) + 0.1 * np.sin(np.arange(40.0)) > 0.0, 1.0, -1.0)
VALUES = 4.0 * WIDE[:, 0] + np.sin(np.arange(40.0))


def wide() -> dict[str, cvxscreen.Problem]:
    """More features than rows."""
    return {
        "hinge": svm(WIDE, SIDES, C=0.8),
        "float32": svm(WIDE.astype(np.float32), SIDES, C=0.5),
        "weights": svm(WIDE, SIDES, C=0.5, sample_weight=np.linspace(0.0, 2.0, 40)),
        "squared hinge": svm(WIDE, SIDES, loss="squared_hinge"),
        "absolute": regression(WIDE, VALUES, C=0.6),
        "epsilon": regression(WIDE, VALUES, loss="epsilon", epsilon=0.2),
        "huber": regression(WIDE, VALUES, C=0.5, loss="huber"),
        "quantile": regression(WIDE, VALUES, loss="quantile", tau=0.8),
    }


@pytest.mark.parametrize("name", wide())
def test_rows_with_many_features_are_left_out_over_their_gram_matrix(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = wide()[name]
    solution, alone = solve(problem, tol=1e-9), refits._refitted
    monkeypatch.setattr(refits.PROGRAMS, "spent", refits.PROGRAMS.price)
    monkeypatch.setattr(refits, "_refitted", None)  # nothing needs it
    found = leave_one_out(solution, accuracy=1e-3)
    assert found.decided.all()
    assert found.refitted.any()
    for i in np.flatnonzero(found.refitted):
        [[_, low, high, value]] = alone(solution, np.array([i]), 1e-11, "certified")
        if not found.classification:
            target = problem.losses.b[i]
            low, high, value = target - high, target - low, target - value
        assert found.low[i] <= high
        assert low <= found.high[i]
        assert found.value[i] == pytest.approx(value, abs=1e-4)


def test_a_gram_matrix_stands_for_rows_under_the_identity_alone() -> None:
    """Not where M, a linear part, an intercept or lengths of rows are something else."""
    problem = wide()["hinge"]
    takes, ones = refits.of_rows_with_many_features, np.ones(300)
    assert takes(problem)
    margins = problem.design.matrix @ problem.design.matrix.T * np.outer(SIDES, SIDES)
    over = refits.over_their_gram(problem)
    found = over.design.forward(-over.design.adjoint(np.eye(40)[3]))
    np.testing.assert_allclose(found, -margins[3], rtol=1e-12, atol=1e-14)
    others = {
        "quadratic": Quadratic(2.0 * ones), "linear": 0.1 * ones, "drift": 1e-9,
        "design": Rows(WIDE, 2.0 * SIDES),
    }
    for name, value in others.items():
        assert not takes(replace(problem, **{name: value}))
    assert not takes(svm(WIDE, SIDES, intercept=True))
    assert not takes(svm(sp.csr_matrix(WIDE), SIDES))
    assert not takes(svm(X, y))


def test_programs_that_rounding_makes_of_no_use_are_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of long rows that are nearly the same: after the first block all are refitted alone."""
    monkeypatch.setattr(refits.PROGRAMS, "spent", refits.PROGRAMS.price)
    monkeypatch.setattr(refits, "KERNEL_BLOCK", 4)
    asked, certify = [], refits.LeftOutOfGram.certify

    def certified(self: Any, index: Any, *arguments: Any) -> Any:
        asked.extend(index)
        return certify(self, index, *arguments)

    def alone(solution: Any, terms: Any, tol: float, mode: str) -> Any:
        return np.array([[terms[0], -1.0, 1.0, 0.0]])

    monkeypatch.setattr(refits.LeftOutOfGram, "certify", certified)
    monkeypatch.setattr(refits, "_refitted", alone)
    solution = solve(svm(1e7 + WIDE, SIDES, C=0.8), tol=1e-6)
    found = np.vstack(list(refits.refits_of_terms(solution, np.arange(12), 1e-6, "certified", 1)))
    np.testing.assert_array_equal(np.sort(found[:, 0]), np.arange(12))
    assert 0 < len(set(asked)) <= 4
    assert (found[:, 3] == 0.0).all()


def test_rows_with_many_features_wait_for_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two refits tell what the others would cost; with an intercept all are made alone."""
    solution, alone = solve(wide()["hinge"], tol=1e-9), []

    def one(*arguments: Any) -> Any:
        alone.append(arguments)
        return refitted(*arguments)

    refitted = refits._refitted
    monkeypatch.setattr(refits, "_refitted", one)
    monkeypatch.setattr(CompileClock, "bought", property(lambda clock: clock.due))
    monkeypatch.setattr(refits.PROGRAMS, "spent", 0.0)
    monkeypatch.setattr(refits.PROGRAMS, "price", 1e9)
    monkeypatch.setattr(refits.PROGRAMS, "before", 0.0)
    slow = leave_one_out(solution)
    assert len(alone) == slow.refitted.sum()
    alone.clear()
    monkeypatch.setattr(refits.PROGRAMS, "price", 1e-9)
    monkeypatch.setattr(refits.PROGRAMS, "spent", 0.0)
    found = leave_one_out(solution)
    assert len(alone) <= 2 < found.refitted.sum()
    np.testing.assert_array_equal(found.low > 0, slow.low > 0)
    with_one = solve(svm(WIDE, SIDES, C=0.8, intercept=True), tol=1e-9)
    for others in (with_one, solve(svm(sp.csr_matrix(WIDE), SIDES, C=0.8), tol=1e-9)):
        alone.clear()
        assert leave_one_out(others).refitted.sum() <= len(alone)


def of_rows() -> dict[str, cvxscreen.Problem]:
    weight = np.linspace(0.5, 2.0, 60)
    return problems() | {
        "smoothed hinge": svm(X, y, loss="smoothed_hinge", intercept=True),
        "squared hinge": svm(X, y, loss="squared_hinge", sample_weight=weight),
        "epsilon": regression(X, T, loss="epsilon", epsilon=0.3, intercept=True),
        "smoothed epsilon": regression(X, T, loss="smoothed_epsilon", epsilon=0.3, gamma=0.4),
        "huber, intercept": regression(X, T, loss="huber", delta=0.5, intercept=True),
        "badly scaled": svm((1e3 * X).astype(np.float32), y, C=1e-5),
    }


ROWS = sorted(set(of_rows()) - {"kernel", "elastic net", "csr"})


@pytest.fixture
def paths_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refits of rows by their paths, which nothing else helps."""
    monkeypatch.setattr(refits.PATHS, "spent", refits.PATHS.price)
    monkeypatch.setattr(refits.ByWeights, "without", lambda self, index, near: None)


def left_out(solution: cvxscreen.Solution, index: Any, tol: float = 1e-9) -> Any:
    """Margins, their error, and which are certified, of rows refitted as a block."""
    return refits.left_out_of(refits.row_solvers(solution, tol, len(index)), index)


@pytest.mark.parametrize("name", ["hinge", "huber, intercept"])
def test_few_and_many_refits_measure_distances_in_their_own_way_and_find_the_same(
    name: str, paths_alone: None
) -> None:
    """Euclidean for few, without the sum that a curvature is; the optima are the same."""
    solution, every = solve(of_rows()[name], tol=1e-9), np.arange(60)
    few, many = (
        refits.row_solvers(solution, 1e-9, count)[0]
        for count in (refits.SEVERAL - 1, refits.SEVERAL)
    )
    eye = np.eye(solution.problem.d)
    assert (few.around.into == eye).all()
    assert not (many.around.into == eye).all()
    found = [refits.left_out_of([paths], every) for paths in (few, many)]
    assert all(ok.all() for *_, ok in found)
    (first, off, _), (second, error, _) = found
    assert (np.abs(first - second) <= off + error).all()


@pytest.mark.table
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("tol", [1e-9, 1e-3])
def test_the_path_of_a_slope_ends_at_the_optimum_without_it(
    name: str, tol: float, paths_alone: None
) -> None:
    """Whatever the loss, and where the solution is not yet on the pieces of the optimum."""
    problem = of_rows()[name]
    solution = solve(problem, tol=tol)
    margins, error, ok = left_out(solution, np.arange(60))
    assert ok.all()
    assert error.max() < 1e-3 * (1.0 + np.abs(margins).max())
    for i in range(0, 60, 7):
        [[_, low, high, value]] = refits._refitted(
            solution, np.array([i]), 1e-11, "certified"
        )
        assert margins[i] - error[i] <= high
        assert low <= margins[i] + error[i]
        assert margins[i] == pytest.approx(value, abs=1e-4 * (1.0 + abs(value)))


@pytest.mark.parametrize("name", ["absolute", "quantile", "smoothed epsilon", "squared hinge"])
@pytest.mark.parametrize("kept", [0, 3])
def test_paths_need_not_keep_what_they_solve_for(
    name: str, kept: int, monkeypatch: pytest.MonkeyPatch, paths_alone: None
) -> None:
    """Where more terms change their pieces than there is room for, each is solved for again."""
    solution = solve(of_rows()[name], tol=1e-9)
    margins, _, ok = left_out(solution, np.arange(60))
    monkeypatch.setattr(refits, "KNOWN", 200 * kept)
    others, _, as_well = left_out(solution, np.arange(60))
    assert ok.all()
    assert as_well.all()
    np.testing.assert_allclose(others, margins, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mode", ["certified", "safe"])
def test_features_far_from_0_are_left_out_about_their_centre(mode: str) -> None:
    """Refits of such rows took minutes and were not certified; about the centre nothing changes."""
    exact = np.round(X * 2**20) / 2**20  # as it is after the shift
    near, far = (
        leave_one_out(solve(svm(rows, y, intercept=True), tol=1e-9), mode=mode)
        for rows in (exact, exact + np.array([0.0, -1e4, 1e6]))
    )
    assert far.decided.all()
    assert (far.low <= near.high + 1e-9).all()
    assert (near.low <= far.high + 1e-9).all()
    np.testing.assert_allclose(far.value, near.value, atol=1e-3)
    assert far.solution.problem.design.matrix.max() > 9e5


def test_without_paths_or_compiled_blocks_terms_are_refitted_one_by_one(
    monkeypatch: pytest.MonkeyPatch, paths_alone: None
) -> None:
    """No call compiles both: what the paths leave over waits for the solver of any weightings."""
    solution = solve(of_rows()["absolute"], tol=1e-9)
    expected = leave_one_out(solution)
    monkeypatch.setattr(refits, "optimum", lambda solution: None)
    monkeypatch.setattr(refits, "together", lambda problem: False)
    monkeypatch.setattr(replicates.FRESH, "spent", 0.0)
    monkeypatch.setattr(replicates.TOGETHER, "spent", 0.0)
    found = leave_one_out(solution)
    assert replicates.FRESH.spent + replicates.TOGETHER.spent > 0.0
    np.testing.assert_array_equal(found.refitted, expected.refitted)
    np.testing.assert_allclose(found.value, expected.value, atol=1e-4)


def test_once_compiling_is_due_the_others_of_a_block_are_refitted_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No path begins, and nothing that needs none is compiled: the second refit tells the price."""
    solution = solve(of_rows()["absolute"], tol=1e-9)
    expected = leave_one_out(solution)
    alone = []

    def one(*arguments: Any) -> Any:
        alone.append(arguments)
        return refitted(*arguments)

    refitted = refits._refitted
    monkeypatch.setattr(refits, "_refitted", one)
    monkeypatch.setattr(refits, "optimum", lambda solution: None)
    monkeypatch.setattr(replicates, "at_hand", lambda loop: False)
    monkeypatch.setattr(replicates.TOGETHER, "spent", 0.0)
    monkeypatch.setattr(replicates.TOGETHER, "price", 1e-6)
    found = leave_one_out(solution)
    assert len(alone) <= 2 < found.refitted.sum()
    np.testing.assert_array_equal(found.refitted, expected.refitted)
    np.testing.assert_allclose(found.value, expected.value, atol=1e-4)


@pytest.mark.parametrize("share", [1e-9, 1e-6])
def test_paths_begin_where_slopes_are_a_little_off_their_ends(share: float) -> None:
    """As where an intercept is balanced by more of them than there are coordinates."""
    solution = solve(of_rows()["absolute"], tol=1e-12)
    expected, f = refits.optimum(solution), solution.problem.losses
    assert expected is not None
    theta = np.clip(solution.theta, (1 - share) * f.lo, (1 - share) * f.hi)
    assert ((theta > f.lo) & (theta < f.hi)).sum() > solution.problem.d
    found = refits.optimum(replace(solution, theta=theta))
    assert found is not None
    np.testing.assert_allclose(found.x, expected.x, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(found.edges, expected.edges)


@pytest.mark.parametrize("name", ["hinge", "huber"])
def test_rows_of_zeros_are_near_no_kink_and_have_paths(name: str) -> None:
    zeros = np.zeros((60, 3))
    problem = svm(zeros, y) if name == "hinge" else regression(zeros, T, loss="huber")
    solution = solve(problem, tol=1e-9)
    paths = refits.AlongPaths(problem, refits.optimum(solution), 1e-9)
    assert len(paths.near)
    margins, error, ok = refits.left_out_of([paths], np.arange(60))
    assert ok.all()
    assert np.abs(margins).max() + error.max() <= 1e-12
    assert (cvxscreen.influence(solution, refit=60).distance == 0.0).all()


def test_paths_that_are_cut_short_are_not_taken_for_optima(
    monkeypatch: pytest.MonkeyPatch, paths_alone: None
) -> None:
    solution = solve(of_rows()["absolute"], tol=1e-9)
    whole = left_out(solution, np.arange(60))
    inverse = refits.optimum(solution)
    assert inverse is not None
    wrong = inverse._replace(inverse=1.5 * inverse.inverse)
    monkeypatch.setattr(refits, "optimum", lambda solution: wrong)
    margins, error, ok = left_out(solution, np.arange(60))
    assert whole[2].all()
    assert not ok.all()
    assert (np.abs(margins - whole[0]) <= error + whole[1]).all()


def test_rows_that_are_there_twice_are_refitted_all_the_same() -> None:
    """Terms at a kink that depend on each other have no path; the refits are certified anyway."""
    tied = regression(np.repeat(X[:15], 4, axis=0), np.round(2.0 * T), C=0.5)
    found = leave_one_out(solve(tied, tol=1e-9), accuracy=1e-3)
    assert found.decided.all()


def test_the_reach_of_a_refit_of_rows_is_attained(
    monkeypatch: pytest.MonkeyPatch, paths_alone: None
) -> None:
    """Where all slopes stay at an end the optimum moves by just what the certificate allows."""
    problem = svm(X, y, C=1e-4)

    def stays(start, losses, gone):
        (d, m), K = start.A.shape, len(gone.own)
        at = start.table[refits.LEVEL + start.which[:m] // 2, np.arange(m)]
        slots, here = start.which[m:], gone.own >= 0
        at[slots[slots >= 0]] = start.now[refits.NOW, m + d:][slots >= 0]
        thetas = np.tile(at, (K, 1))
        thetas[np.flatnonzero(here), gone.own[here]] = 0.0
        return np.tile(start.now[refits.NOW, m:m + d], (K, 1)), thetas

    solution, index = solve(problem, tol=1e-12), np.arange(0, 60, 9)
    true = left_out(solution, index)[0]
    monkeypatch.setattr(refits, "ends_of_paths", stays)
    margins, error, ok = left_out(solution, index, 0.5)
    assert ok.all()
    away = np.abs(margins - true)
    assert (away <= error).all()
    assert (away > 0.99 * error).all()


def test_kernels_with_an_intercept_and_shared_points_are_refitted_alone() -> None:
    plain = svm(X, y, kernel="rbf")
    assert refits.suits(plain)
    assert not refits.suits(svm(X, y, kernel="rbf", intercept=True))
    assert not refits.suits(svm(X, y))
    pair = replace(plain, design=plain.design.take_rows(np.array([0, 0, 1])),
                   losses=plain.losses.take(np.array([0, 0, 1])))
    assert not refits.suits(pair)


def test_groups_leave_together() -> None:
    """Each interval is of the fit without the whole group, with and without refits."""
    labels = np.array([f"customer {k % 13}" for k in range(60)])
    for name, problem in problems().items():
        solution = solve(problem, tol=1e-9)
        quick = leave_one_out(solution, groups=labels, refit=False)
        found = leave_one_out(solution, groups=labels, tol=1e-9, n_jobs=2)
        assert found.decided.all(), name
        assert np.isfinite(quick.low).all() == (not problem.quadratic.free.any())
        for label in np.unique(labels)[::3]:
            rows = np.flatnonzero(labels == label)
            left = cvxscreen.remove(solution, rows, tol=1e-11).solution
            true = problem.design.forward(left.x)[rows]
            if not found.classification:
                true = problem.losses.b[rows] - true
            for record in (quick, found):
                assert (record.low[rows] - 1e-4 <= true).all(), name
                assert (true <= record.high[rows] + 1e-4).all(), name
            assert found.refitted[rows].all() or not found.refitted[rows].any()


@pytest.mark.parametrize("diagonal", [False, True])
def test_the_comparisons_of_an_anchor_leave_a_metric_together(diagonal: bool) -> None:
    comparisons = cvxscreen.triplets(X, y, k=3)
    anchors = comparisons.index[:, 0]
    problem = cvxscreen.rtlm(X, comparisons, 10.0, diagonal=diagonal)
    solution = solve(problem, tol=1e-9)
    quick = leave_one_out(solution, groups=anchors, refit=False)
    found = leave_one_out(solution, groups=anchors)
    assert found.decided.all()
    assert quick.decided.mean() > 0.8
    assert quick.errors[0] <= found.errors[0] == found.errors[1] <= quick.errors[1]
    assert found.refitted.any()
    for anchor in range(0, 60, 4):
        rows = np.flatnonzero(anchors == anchor)
        change = cvxscreen.remove(solution, rows, tol=1e-11)
        assert change.solution.certificate.ok
        true = problem.design.take_rows(rows).forward(change.solution.x)
        for record in (quick, found):
            assert (record.low[rows] - 1e-5 <= true).all()
            assert (true <= record.high[rows] + 1e-5).all()
    of_a_point = np.flatnonzero((comparisons.index == 7).any(axis=1))
    change = cvxscreen.remove(solution, of_a_point, tol=1e-9)
    rest = change.problem.design.forward(change.solution.x)
    assert ((change.low - 1e-4 <= rest) & (rest <= change.high + 1e-4)).all()


@pytest.mark.parametrize("diagonal", [False, True])
def test_the_comparisons_of_a_point_in_any_place_leave_together(diagonal: bool, tmp_path) -> None:
    """A comparison leaves with each of its points; an entry is of one comparison and one point."""
    comparisons = cvxscreen.triplets(X, y, k=2)
    points = comparisons.index
    problem = cvxscreen.rtlm(X, comparisons, 10.0, diagonal=diagonal)
    solution = solve(problem, tol=1e-10)
    quick = leave_one_out(solution, groups=points, refit=False)
    found = leave_one_out(solution, groups=points, tol=1e-9)
    assert found.low.shape == found.refitted.shape == points.shape
    assert found.decided.all()
    assert found.refitted.any()
    assert found.unchanged.any()
    assert quick.errors[0] <= found.errors[0] == found.errors[1] <= quick.errors[1]
    for point in range(0, 60, 7):
        here = points == point
        change = cvxscreen.remove(solution, here.any(axis=1), tol=1e-11)
        true = np.broadcast_to(problem.design.forward(change.solution.x)[:, None], here.shape)
        for record in (quick, found):
            assert (record.low - 1e-5 <= true)[here].all()
            assert (true <= record.high + 1e-5)[here].all()
        assert len(set(found.refitted[here])) == 1
        known = here & (found.refitted | found.unchanged)
        np.testing.assert_allclose(found.value[known], true[known], rtol=1e-4, atol=1e-4)
    assert "groups of each  3" in str(found)
    found.plot().savefig(tmp_path / "points.png")
    one = leave_one_out(solution, groups=points[:, :1], refit=False)
    same = leave_one_out(solution, groups=points[:, 0], refit=False)
    np.testing.assert_array_equal(one.low[:, 0], same.low)


def test_a_term_that_names_a_group_twice_leaves_it_once() -> None:
    labels = np.arange(60) // 3
    for name in ("hinge", "absolute"):
        solution = solve(problems()[name], tol=1e-10)
        once = leave_one_out(solution, groups=labels, refit=False)
        twice = leave_one_out(solution, groups=np.column_stack([labels, labels]), refit=False)
        for side in (0, 1):
            np.testing.assert_array_equal(twice.low[:, side], once.low)
            np.testing.assert_array_equal(twice.high[:, side], once.high)


def test_groups_that_are_none_are_refused() -> None:
    solution = solve(svm(X, y))
    with pytest.raises(InvalidInput, match="one label for each of the 60 terms"):
        leave_one_out(solution, groups=np.zeros(59))
    with pytest.raises(InvalidInput, match="one label only"):
        leave_one_out(solution, groups=np.zeros(60))
    for mixed in (["a", None] * 30, [1, "b"] * 29 + [None, 2], [[1], [2, 3]] * 30):
        with pytest.raises(InvalidInput, match="`groups` holds labels that cannot be sorted"):
            leave_one_out(solution, groups=mixed)
    for missing in (np.where(y > 0, np.nan, 1.0), np.array(["2020-01-01", "NaT"] * 30, "M8[D]")):
        with pytest.raises(InvalidInput, match=r"labels that are missing \(NaN\)"):
            leave_one_out(solution, groups=missing)
    everywhere = np.column_stack([np.arange(60), np.full(60, 3)])
    with pytest.raises(InvalidInput, match="all terms have the label 3; without them nothing"):
        leave_one_out(solution, groups=everywhere)
    for shape in ((59, 2), (60, 0), (60, 1, 1)):
        with pytest.raises(InvalidInput, match=rf"shape \({shape[0]}, {shape[1]}"):
            leave_one_out(solution, groups=np.zeros(shape))


def test_without_refits_the_error_has_bounds() -> None:
    solution = solve(svm(X, y, C=0.5), tol=1e-10)
    quick, whole = leave_one_out(solution, refit=False), leave_one_out(solution)
    least, most = quick.errors
    assert whole.errors[0] == whole.errors[1]
    assert least <= whole.errors[0] <= most
    assert not quick.refitted.any()
    assert quick.decided.mean() > 0.8
    assert (whole.decided & ~whole.refitted).sum() == quick.decided.sum()


def test_residuals_are_refitted_to_the_accuracy_asked_for() -> None:
    solution = solve(regression(X, T, C=0.5), tol=1e-10)
    loose, tight = (leave_one_out(solution, accuracy=a) for a in (10.0, 1e-3))
    assert not loose.refitted.any()
    assert tight.refitted.sum() > 30
    assert (tight.high - tight.low).max() < 1e-2
    assert loose.errors[0] <= tight.errors[0] <= tight.errors[1] <= loose.errors[1]


def test_a_limit_keeps_what_is_done() -> None:
    found = leave_one_out(solve(svm(X, y, C=0.5)), time_limit=1e-9)
    assert not found.finished
    assert not found.refitted.any()


def test_the_record_prints_and_plots(tmp_path) -> None:
    found = leave_one_out(solve(svm(X, y, C=0.5, intercept=True)), refit=False)
    assert "Leave one out" in str(found)
    assert "undecided" in found.table()
    found.plot().savefig(tmp_path / "loo.png")
    assert (tmp_path / "loo.png").stat().st_size > 5000


def test_the_record_is_a_table_and_a_data_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    solution = solve(svm(X, y, C=0.5), tol=1e-10)
    found = leave_one_out(solution)
    frame = found.to_frame()
    assert list(frame.columns) == ["term", "low", "high", "value", "unchanged", "refitted",
                                   "decided"]
    np.testing.assert_array_equal(frame["low"], found.low)
    lines = found.table().splitlines()
    assert lines[-10].split()[0] == str(int(np.argmin(found.low)))
    assert "Worst off" in lines
    residuals = leave_one_out(solve(regression(X, T), tol=1e-10))
    first = residuals.table().splitlines()[-10].split()
    assert first[0] == str(int(np.argmax(np.maximum(-residuals.low, residuals.high))))
    sides = np.column_stack([np.arange(60), np.arange(60) // 2])
    twice = leave_one_out(solution, groups=sides, refit=False)
    frame = twice.to_frame()
    assert frame.shape == (120, 8)
    np.testing.assert_array_equal(frame["high"].to_numpy().reshape(60, 2), twice.high)
    assert (frame["group"] == np.tile([0, 1], 60)).all()
    assert len(twice.table().splitlines()[-1].split()) == 7
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingDependency, match=r'pip install "cvxscreen\[frames\]"'):
        found.to_frame()


def test_the_callers_arrays_stay() -> None:
    solution = solve(svm(X, y, C=0.5))
    before = solution.x.copy(), solution.theta.copy(), solution.problem.losses.lo.copy()
    leave_one_out(solution)
    for old, new in zip(before, (solution.x, solution.theta, solution.problem.losses.lo),
                        strict=True):
        np.testing.assert_array_equal(old, new)


def test_refusals_name_what_was_found(tmp_path) -> None:
    with pytest.raises(InvalidInput, match="solution"):
        leave_one_out(svm(X, y))
    metric = cvxscreen.rtlm(X, cvxscreen.triplets(X, y, k=2), 10.0)
    with pytest.raises(InvalidInput, match="metric"):
        leave_one_out(solve(metric))
    alone = cvxscreen.sparse_svm(X, y, 0.05, loss="squared_hinge", l2=0)
    with pytest.raises(InvalidInput, match="quadratic term"):
        leave_one_out(solve(alone))
    np.save(tmp_path / "rows.npy", X)
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    with pytest.raises(InvalidInput, match="chunks"):
        leave_one_out(solve(svm(rows, y)))
    with pytest.raises(InvalidInput, match="accuracy"):
        leave_one_out(solve(svm(X, y)), accuracy=-1.0)
    with pytest.raises(InvalidInput, match="one term only"):
        leave_one_out(solve(regression(X[:1], T[:1])))
    reduced = solve(svm(X, y, C=0.5)).screening.reduce()
    if reduced.drift > 0:
        with pytest.raises(InvalidInput, match="reduced"):
            leave_one_out(solve(reduced))


def test_a_margin_that_is_not_unique_is_said() -> None:
    """Without one of three, two stand against two whose slopes all end: any intercept between."""
    X = np.array([[1.0, 0.0], [0.5, 1.0], [-1.0, 0.3], [0.2, -1.0], [-0.4, -0.2]])
    found = leave_one_out(solve(svm(X, [1, 1, 1, -1, -1], C=1e-3, intercept=True), tol=1e-9))
    assert found.refitted.tolist() == (~found.decided).tolist() == [True] * 3 + [False] * 2
    assert (found.low[:3] < -0.9).all()
    assert (found.high[:3] > 0.9).all()
    assert "not unique, or within tolerance  3" in str(found)
    assert "not unique" not in str(replace(found, finished=False))
    clear = leave_one_out(solve(svm(X[:4], [1, 1, -1, -1], C=1e-3), tol=1e-9))
    assert "not unique" not in str(clear)
