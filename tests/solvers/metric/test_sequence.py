"""Metric learning along lambda."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris

import cvxscreen
from cvxscreen._support.limits import Limits
from cvxscreen.core.problem import Problem
from cvxscreen.errors import InvalidInput
from cvxscreen.paths.path import MetricPathFollower
from cvxscreen.paths.record import Points
from cvxscreen.solvers.lambda_max import lambda_max
from cvxscreen.solvers.metric import sequence
from cvxscreen.solvers.metric.sequence import FLOOR, ends, iterate_path, metric_grid


def problem(gamma: float = 0.05, diagonal: bool = False, weighted: bool = False) -> Problem:
    X, y = load_iris(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    T = cvxscreen.triplets(X, y, k=3)
    if weighted:
        T = T.weighted(np.linspace(0.5, 1.5, len(T)))
    return cvxscreen.rtlm(X, T, 1.0, gamma=gamma, diagonal=diagonal)


@pytest.mark.parametrize(
    ("gamma", "diagonal", "weighted"),
    [(0.05, False, False), (0.05, True, False), (0.05, False, True), (0.0, False, False)],
)
def test_every_point_is_certified_and_what_single_solves_find(
    gamma: float, diagonal: bool, weighted: bool
) -> None:
    p = problem(gamma, diagonal, weighted)
    values = lambda_max(p) * 0.5 ** np.arange(1, 9)
    found = cvxscreen.path(p, over="lam", values=values, tol=1e-7)
    assert [point.status for point in found.points] == ["optimal"] * 8
    for point in found.points[::3]:
        alone = cvxscreen.solve(p.with_(lam=point.value), tol=1e-9)
        assert point.objective == pytest.approx(alone.value, rel=2e-7)
        assert len(point.theta) == p.n
    assert "lam" in found.table()


def test_the_extrapolated_start_decides_more_than_the_last_solution() -> None:
    p = problem()
    values = lambda_max(p) * 0.9 ** np.arange(1, 30)
    stations = list(iterate_path(p, values))
    rates = [sum(s.before.values()) for s in stations if s.iterations]
    assert np.mean(rates) > 0.9
    plain = list(iterate_path(p, values, screen=False))
    for a, b in zip(stations, plain, strict=True):
        assert a.certificate.ok
        assert b.certificate.ok
        assert a.certificate.primal == pytest.approx(b.certificate.primal, rel=2e-6)
        assert b.kept == p.n


def test_rates_are_recorded_where_the_solver_did_not_screen(tmp_path: Path) -> None:
    """No sawtooth: what the start proves is worked out on demand, and marked as not used."""
    p = problem()
    found = cvxscreen.path(p, over="lam", values=lambda_max(p) * 0.98 ** np.arange(1, 60))
    unused = [k for k, point in enumerate(found.points) if not point.screened]
    assert 3 < len(unused) < 59
    rates = np.array([sum(point.before.values()) for point in found.points])
    assert rates[5:].min() > 0.8
    for k in [k for k in unused if k > 1][::7]:
        here = found.points[k]
        reference = cvxscreen.solve(p.with_(lam=found.points[k - 1].value), tol=1e-6)
        verdict = cvxscreen.screen(p.with_(lam=here.value), reference=reference, bound="rrpb")
        proven = 1.0 - verdict.undecided.mean()
        assert rates[k] > proven - 0.05
    table = found.table().splitlines()
    assert "used" in table[1] + table[2]
    assert sum(line.split()[-1] == "no" for line in table) == len(unused)
    found.save(tmp_path / "path.npz")
    again = cvxscreen.load_path(tmp_path / "path.npz")
    assert [q.screened for q in again.points] == [q.screened for q in found.points]
    np.testing.assert_allclose([sum(q.before.values()) for q in again.points], rates)


def test_a_path_without_values_begins_and_ends_by_itself() -> None:
    p = problem()
    found = cvxscreen.path(p, over="lam")
    assert found.points[0].value == pytest.approx(0.9 * lambda_max(p))
    assert 20 < len(found.points) < 200
    assert FLOOR * lambda_max(p) < metric_grid(p)[-1] < 1.2 * FLOOR * lambda_max(p)
    assert ends(None, (1.0, 1.0)) is False
    assert ends((1.0, 0.0), (0.9, 0.0)) is True
    assert ends((1.0, 1.0), (0.9, 0.9)) is False
    assert ends((1.0, 1.0), (0.9, 0.9995)) is True


def test_a_path_is_saved_and_resumed(tmp_path: Path) -> None:
    p = problem()
    values = lambda_max(p) * 0.7 ** np.arange(1, 6)
    whole = cvxscreen.path(p, over="lam", values=values)
    whole.save(tmp_path / "path.npz")
    again = cvxscreen.load_path(tmp_path / "path.npz")
    assert "over lam" in again.table()
    again = cvxscreen.path(p, over="lam", values=values, checkpoint=tmp_path / "c.npz")
    resumed = cvxscreen.path(p, over="lam", values=values, checkpoint=tmp_path / "c.npz")
    assert [q.objective for q in resumed.points] == [q.objective for q in again.points]


@pytest.mark.parametrize("k", [3, "all"])
def test_slopes_that_are_not_kept_follow_from_the_metric(
    k: int | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many triplets, listed or not: a resumed path certifies its points all the same."""
    monkeypatch.setattr(sequence, "LISTED_ON_PATH", 0)
    X, y = load_iris(return_X_y=True)
    p = cvxscreen.rtlm(X[::5], cvxscreen.triplets(X[::5], y[::5], k=k), 1.0)
    options = {"values": lambda_max(p) * 0.7 ** np.arange(1, 4), "checkpoint": tmp_path / "c.npz"}
    found = cvxscreen.path(p, over="lam", **options)
    assert [len(point.theta) for point in found.points] == [0, 0, 0]
    again = cvxscreen.path(p, over="lam", **options)
    assert [q.objective for q in again.points] == [q.objective for q in found.points]
    with np.load(tmp_path / "c.npz") as data:
        arrays = dict(data)
    np.savez(tmp_path / "c.npz", **{**arrays, "x1": 0.9 * arrays["x1"]})
    with pytest.raises(InvalidInput, match=r"point 1 .*another one"):
        cvxscreen.path(p, over="lam", **options)


def test_lam_is_for_metric_learning() -> None:
    X, y = cvxscreen.datasets.two_gaussians(30, 2, seed=0)
    with pytest.raises(InvalidInput, match="no lambda"):
        cvxscreen.path(cvxscreen.svm(X, y), over="lam", values=[1.0])
    with pytest.raises(InvalidInput, match="`values` is missing"):
        cvxscreen.path(cvxscreen.svm(X, y))


def test_a_point_that_was_cut_short_is_not_part_of_a_path() -> None:
    """It says ``"time_limit"`` and is left out."""
    p, points = problem(), Points()
    run = MetricPathFollower(
        p, points, lambda_max(p) * 0.5 ** np.arange(1, 4), 1e-9, (), stop=False,
        limits=Limits(1e-9), max_iter=None,
    )
    run.advance(np.zeros(0))
    assert not len(points)
    assert run.limits.reached == "time_limit"
