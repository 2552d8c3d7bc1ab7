"""Looking ahead along lambda: decided once, right at every lambda of the range; and when not to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from metric_exact import optimum, small

import cvxscreen
from cvxscreen.certificates.one_pass import certify_metric
from cvxscreen.designs.comparisons import Indexed
from cvxscreen.solvers.metric import sequence as metric_ahead
from cvxscreen.solvers.metric.sequence import IntervalReduction, iterate_path
from cvxscreen.solvers.metric.solver import MetricOptimisation, closed_form, task_of
from cvxscreen.solvers.metric.task import (
    LONGEST_PAUSE,
    ScreeningPauses,
    evaluation_cost,
    reduction_cost,
)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_ahead, "SHARE", 1.0)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("diagonal", [False, True])
def test_what_is_decided_for_a_range_is_right_all_over_it(diagonal: bool, listed: bool) -> None:
    decided = 0
    for seed in range(4):
        p = small(seed, diagonal=diagonal, share=(1.0, 0.1, 1e-2, 1e-3)[seed])
        task, top = task_of(p), float(p.lam or 0.0)
        H = np.linalg.norm(p.design.dense(), axis=1)
        plus, minus = task.terms.index()
        if listed:
            task = replace(task, terms=Indexed(plus, minus, len(task.table)))
        state, _ = MetricOptimisation(tol=1e-7, screen=False).solve(task, closed_form(task))
        for ratio in (0.97, 0.8, 0.5):
            ahead = IntervalReduction()
            ahead.decide_ahead(task, state, 0, [0.99 * top, ratio * top])
            assert ahead.at(top) is None
            reduced = ahead.at(0.5 * (0.99 + ratio) * top)
            assert reduced is not None
            number = {(int(a), int(b)): k for k, (a, b) in enumerate(
                zip(task.table.left, task.table.right, strict=True))}
            pair = [number[int(a), int(b)] for a, b in zip(
                reduced.table.left, reduced.table.right, strict=True)]
            left = {(pair[a], pair[b]) for a, b in zip(*reduced.terms.index(), strict=True)}
            out = [t for t in range(p.n) if (int(plus[t]), int(minus[t])) not in left]
            assert len(out) == ahead.dropped + ahead.fixed == p.n - len(reduced.terms)
            high = p.design.forward(state.metric.value.ravel()) > 0.97
            for lam in np.linspace(ahead.low, ahead.high, 5):
                sphere = task.at(lam).sphere(state)
                middle = p.design.forward(sphere.centre.ravel())
                away = sphere.radius * H
                assert (np.where(high, middle - away > 1, middle + away < 0.95)[out]).all()
            if ratio == 0.5:
                _, margins = optimum(p.with_(lam=0.7 * top))
                assert all(margins[t] > 1 if high[t] else margins[t] < 0.95 for t in out)
            decided += len(out)
            # The reduced task has the optimum of the whole one.
            here = p.with_(lam=float(ahead.low))
            found, _ = MetricOptimisation(tol=1e-11, screen=False).solve(
                ahead.task.at(ahead.low), state.metric
            )
            assert certify_metric(here, found.metric.value.ravel(), tol=1e-9).ok
    assert decided > 50


def test_paths_that_look_ahead_end_where_the_others_do() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 60)
    X = rng.standard_normal((180, 4)) + 2.0 * np.eye(4)[y]
    p = cvxscreen.rtlm(X, cvxscreen.triplets(X, y, k=6), 1.0)
    values = cvxscreen.lambda_max(p) * 0.9 ** np.arange(1, 25)
    looked = list(iterate_path(p, values))
    plain = list(iterate_path(p, values, screen=False))
    # One look serves several lambdas: their shares are the same.
    shares = [tuple(s.before.values()) for s in looked if s.iterations]
    assert len(set(shares)) <= len(shares) - 3
    for a, b in zip(looked, plain, strict=True):
        assert a.certificate.ok
        assert a.certificate.primal == pytest.approx(b.certificate.primal, rel=2e-6)


def test_a_look_is_left_out_where_it_promises_nothing() -> None:
    task = task_of(small(0))
    state = task.evaluate(closed_form(task))
    for left, coming in ((len(task.terms), [1.0, 0.9]), (0, [1.0])):
        ahead = IntervalReduction()
        ahead.decide_ahead(task, state, left, coming)
        assert ahead.task is None
    ahead = IntervalReduction()
    ahead.decide_ahead(task, state, 0, [1e3, 1e-3])  # too far apart
    assert ahead.task is None
    assert ahead.span == 2


def test_screening_pauses_while_it_costs_more_than_it_saves() -> None:
    thrift = ScreeningPauses()
    seen = []
    for _ in range(30):
        seen.append(thrift.screens())
        if seen[-1]:
            thrift.learn(saved=1.0, spent=2.0)
    assert seen[:8] == [True, False, True, False, False, True, False, False]
    assert thrift.pause == LONGEST_PAUSE
    while not thrift.screens():
        pass
    thrift.learn(saved=2.0, spent=1.0)
    assert thrift.screens()
    assert thrift.pause == 1


def test_work_grows_with_pairs_terms_and_points() -> None:
    p = small(0)
    task = task_of(p)
    state, sphere = MetricOptimisation(tol=1e-3, screen=False).solve(task, closed_form(task))
    assert evaluation_cost(task) > 0.4 * len(task.table) * task.table.d
    assert reduction_cost(task, replace(task)) > evaluation_cost(task)
    assert reduction_cost(task, task) < reduction_cost(task, replace(task))
    fewer = replace(task, table=task.table.take(np.arange(3)))
    assert evaluation_cost(fewer) < evaluation_cost(task)
    assert sphere.gap <= 1e-3 * state.primal
