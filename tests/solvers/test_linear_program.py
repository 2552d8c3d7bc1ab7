"""The LP-SVM: its optimum, its certificate, Theorems 6 and 7 as they are right and as printed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog

import cvxscreen as cs
from cvxscreen._support.limits import Limits
from cvxscreen.bounds import linear_program as bound
from cvxscreen.bounds.linear_program import (
    least_within_slab,
    margins_from_kinks,
    margins_in_cone,
    v_from_support,
    v_in_slab,
)
from cvxscreen.certificates.certificate import Certificate
from cvxscreen.core.problem import Problem
from cvxscreen.designs.rows import by_columns
from cvxscreen.errors import InvalidInput, UnknownName
from cvxscreen.paths.path import PathFollower
from cvxscreen.paths.record import Points
from cvxscreen.screening.reduction import Screening, Verdict
from cvxscreen.solvers import linear_program as solver


def make(seed: int, share: float, n: int = 50, d: int = 30, sparse: bool = False) -> Problem:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    if sparse:
        X *= rng.random((n, d)) < 0.3
    y = np.where(X[:, 0] - X[:, 1] + 0.8 * rng.standard_normal(n) >= 0, 1.0, -1.0)
    y[:2] = (1.0, -1.0)
    weight = rng.uniform(0.5, 2.0, n) if seed % 2 else None
    data = sp.csr_matrix(X) if sparse else X
    p = cs.sparse_svm(data, y, 1.0, loss="hinge", l2=0, sample_weight=weight)
    assert p.linear_program
    return p.with_(lam=share * cs.lambda_max(p))


def costs(problem: Problem) -> np.ndarray:
    return -problem.losses.lo


def feasible(problem: Problem, alpha: np.ndarray) -> np.ndarray:
    """The share of it that is."""
    return -cs.reference_point(problem, np.zeros(problem.d), -alpha).theta


def certified(
    problem: Problem, w: np.ndarray, alpha: np.ndarray, tol: float = 1e-6
) -> Certificate:
    return cs.certify(problem, w, -alpha, tol=tol)


def screened(problem: Problem, w: np.ndarray, alpha: np.ndarray) -> Verdict:
    return cs.screen(problem, reference=cs.reference_point(problem, w, -alpha))


def optimum(problem: Problem) -> tuple[np.ndarray, np.ndarray, float]:
    """Primal and dual optimum of the whole linear program, and its value."""
    A = by_columns(problem.design).toarray()
    n, d = A.shape
    cost = np.concatenate([np.full(2 * d, problem.lam), costs(problem)])
    table = np.hstack([-A, A, -np.eye(n)])
    found = linprog(cost, A_ub=table, b_ub=-np.ones(n), bounds=(0, None), method="highs")
    alpha = np.clip(-found.ineqlin.marginals, 0.0, costs(problem))
    return found.x[:d] - found.x[d : 2 * d], alpha, found.fun


def references(problem: Problem, rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
    w, alpha, _ = optimum(problem)
    return [
        (w + size * rng.standard_normal(problem.d) * np.abs(w).max(),
         np.clip(alpha + size * costs(problem) * rng.standard_normal(problem.n), 0, costs(problem)))
        for size in (1e-6, 1e-3, 1e-2, 1e-1)
    ]


@pytest.mark.parametrize("mode", ["safe", "certified"])
@pytest.mark.parametrize("sparse", [False, True])
def test_solves_to_the_optimum(mode: str, sparse: bool) -> None:
    previous = None
    for share in (0.9, 0.5, 0.2, 0.05):
        problem = make(1, share, sparse=sparse)
        found = cs.solve(problem, mode=mode, tol=1e-8, start=previous)
        assert found.status == "optimal"
        assert found.value == pytest.approx(optimum(problem)[2], rel=1e-8)
        assert (found.rounds[-1].features or 0) <= problem.d
        previous = found
    assert "proven 0" in str(found)
    assert "LP-SVM" in str(problem)


@pytest.mark.table
@pytest.mark.parametrize("kind", ["plain", "integers", "repeated rows", "scaled", "sparse"])
@pytest.mark.parametrize("mode", ["safe", "certified"])
def test_many_terms_are_solved_as_by_highs(kind: str, mode: str) -> None:
    """The interior point method, where optima are not unique and slopes a rounding error inside."""
    for seed in range(14):
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(60, 300)), int(rng.integers(1, 25))
        X = rng.standard_normal((n, d))
        if kind == "integers":
            X = np.round(X)
        elif kind == "repeated rows":
            X = X[rng.integers(0, n // 4, n)]
        elif kind == "scaled":
            X *= 10.0 ** rng.integers(-4, 5, d)
            X[:, 0] = 0.0
        elif kind == "sparse":
            X *= rng.random((n, d)) < 0.2
        y = np.where(X @ rng.standard_normal(d) + 0.5 * rng.standard_normal(n) > 0, 1.0, -1.0)
        y[:2] = (1.0, -1.0)
        problem = cs.sparse_svm(sp.csr_matrix(X) if kind == "sparse" else X, y, 1.0,
                                loss="hinge", l2=0)
        assert problem.linear_program
        problem = problem.with_(lam=10 ** rng.uniform(-3, 0) * cs.lambda_max(problem))
        found = cs.solve(problem, mode=mode, tol=1e-8)
        assert found.status == "optimal"
        assert found.value == pytest.approx(optimum(problem)[2], rel=1e-9)
        assert np.count_nonzero(found.x) <= n


def test_with_many_terms_the_weights_of_a_vertex_are_zero_or_not() -> None:
    """No feature is left with a weight that is a rounding error."""
    for seed in range(4):
        problem = make(seed, 0.1, n=1500, d=40)
        w = cs.solve(problem, tol=1e-9).x
        exact = optimum(problem)[0]
        np.testing.assert_array_equal(w != 0, np.abs(exact) > 1e-9)
        np.testing.assert_allclose(w, exact, atol=1e-9)


def test_weights_at_their_bound_stay_where_they_are_worth_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Slopes said to be far inside their bound: what leaving the weights out costs decides."""
    monkeypatch.setattr(solver, "ON_EDGE", -0.5)
    problem = make(1, 0.1, n=300, d=10)
    assert cs.solve(problem, tol=1e-9).status == "optimal"


def test_a_single_step_is_too_few() -> None:
    """Both methods share one limit, and what came of it is not called optimal."""
    found = cs.solve(make(1, 0.1, n=1500, d=40), tol=1e-9, max_iter=1)
    assert found.status == "iteration_limit"
    assert not found.certificate.ok


def test_nothing_is_left_above_lambda_max() -> None:
    problem = make(2, 1.001)
    assert not cs.solve(problem).x.any()
    assert cs.solve(problem.with_(lam=0.98 / 1.001 * problem.lam)).x.any()


def test_certificate_refuses_what_is_not_optimal() -> None:
    problem = make(3, 0.3)
    w, alpha, value = optimum(problem)
    good = certified(problem, w, alpha, 1e-9)
    assert good.ok
    assert good.primal == pytest.approx(value)
    assert good.dual <= value * (1 + 1e-12)
    assert not certified(problem, 1.01 * w, alpha, 1e-6).ok
    assert not certified(problem, w, 0.99 * alpha, 1e-6).ok
    assert not certified(problem, w * np.nan, alpha).ok


def test_no_wrong_decision_and_some_right_ones() -> None:
    made = {"dropped": 0, "linear": 0}
    for seed in range(12):
        rng = np.random.default_rng(seed)
        problem = make(seed, [0.8, 0.5, 0.2][seed % 3], sparse=seed % 4 == 0)
        w, _, _ = optimum(problem)
        t = problem.design.forward(w)
        for x, alpha in references(problem, rng):
            verdict = screened(problem, x, alpha)
            assert not (verdict.dropped & (np.abs(w) > 1e-9)).any()
            assert not (verdict.zero & (t < 1 - 1e-8)).any()
            assert not (verdict.linear & (t > 1 + 1e-8)).any()
            made["dropped"] += int(verdict.dropped.sum())
            made["linear"] += int(verdict.linear.sum())
            assert (verdict.piece[verdict.linear] == 0).all()
            assert (verdict.undecided == (verdict.piece == -1)).all()
    assert made["dropped"] > 100
    assert made["linear"] > 100


def test_the_slab_bound_is_the_optimum_of_its_linear_program() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        values = rng.standard_normal(12) * (rng.random(12) < 0.7)
        mass = rng.uniform(0.1, 1.0, 12)
        low, high = np.sort(rng.uniform(0, mass.sum(), 2))
        used = values != 0
        mine = least_within_slab(values[used], mass[used], float(mass[~used].sum()), low, high)
        table, side = np.vstack([np.ones(12), -np.ones(12)]), np.array([high, -low])
        found = linprog(values, A_ub=table, b_ub=side, bounds=np.c_[0 * mass, mass])
        assert mine == pytest.approx(found.fun, abs=1e-10)


def test_features_are_dropped_up_to_their_bound_and_no_further() -> None:
    """lambda half a per cent above the largest ``|<A_j, alpha>|`` of the slab, and below it."""
    problem = make(1, 0.4, n=20, d=5)
    c = costs(problem)
    total = float(c.sum())
    low, high = 0.2 * total, 0.3 * total
    for j, values in enumerate(by_columns(problem.design).toarray().T):
        most = max(-least_within_slab(s * values, c, 0.0, low, high) for s in (1.0, -1.0))
        for factor, dropped in ((1.005, True), (0.995, False)):
            least, largest = v_in_slab(problem, high, low)
            assert (max(-least[j], largest[j]) < factor * most) == dropped


def test_the_cone_bound_is_the_optimum_of_its_linear_program() -> None:
    compared = 0
    for seed in range(8):
        problem = make(seed, 0.4, n=20, d=5)
        rng = np.random.default_rng(seed)
        x, alpha = references(problem, rng)[2]
        t = problem.design.forward(x)
        for cut in (feasible(problem, alpha), np.where(t < 1, costs(problem), 0.0)):
            low, high = margins_in_cone(problem, cut, problem.primal(x))
            v, k = problem.design.adjoint(cut), problem.primal(x) - cut.sum()
            cone = np.concatenate([problem.lam - v, problem.lam + v])[None]
            for i in range(0, problem.n, 4):
                a = problem.design.dense(np.array([i]))[0]
                found = linprog(np.concatenate([-a, a]), A_ub=cone, b_ub=[k], bounds=(0, None))
                if found.status == 0:
                    assert high[i] == pytest.approx(-found.fun, rel=1e-6, abs=1e-8)
                    compared += 1
                else:
                    assert high[i] > 1e9
                assert low[i] <= a @ optimum(problem)[0] + 1e-9
    assert compared > 20


def ends(cost: np.ndarray, **program: object) -> tuple[float, float]:
    """Least and largest value of a linear program; infinite where it has none."""
    found = [linprog(sign * cost, **program) for sign in (1.0, -1.0)]
    values = [f.fun if f.status == 0 else -np.inf for f in found]
    return values[0], -values[1]


@pytest.mark.parametrize("seeds", [(0, 1, 2), pytest.param((3, 4, 5), marks=pytest.mark.long)])
def test_every_decision_is_that_of_the_theorems_linear_programs(
    seeds: tuple[int, ...], monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Theorems 6 and 7 from the sets they are about, term by term and feature by feature."""
    monkeypatch.setattr(bound, "CLOSE", -1.0)  # kinks and support decide by programs of their own
    made = np.zeros(3, dtype=int)
    for seed in seeds:
        problem = make(seed, [0.7, 0.5, 0.3][seed % 3], n=20, d=3)
        A, n, d = by_columns(problem.design).toarray(), 20, 3
        for w, alpha in references(problem, np.random.default_rng(seed)):
            verdict, t = screened(problem, w, alpha), A @ w
            primal, inside = problem.primal(w), feasible(problem, alpha)
            interval = [np.full(n, -np.inf), np.full(n, np.inf)]
            for cut in (inside, np.where(t < 1.0, costs(problem), 0.0)):
                v = A.T @ cut
                cone = np.concatenate([problem.lam - v, problem.lam + v])[None]
                found = np.array([
                    ends(np.concatenate([a, -a]), A_ub=cone, b_ub=[primal - cut.sum()],
                         bounds=(0, None)) for a in A
                ])
                interval = [np.maximum(interval[0], found[:, 0]),
                            np.minimum(interval[1], found[:, 1])]
            slab = {"A_ub": np.vstack([np.ones(n), -np.ones(n)]), "b_ub": [primal, -inside.sum()],
                    "bounds": np.c_[np.zeros(n), costs(problem)]}
            most = np.array([np.abs(ends(A[:, j], **slab)).max() for j in range(d)])
            for own, rule, distance in (
                (verdict.zero, interval[0] > 1.0, interval[0] - 1.0),
                (verdict.linear, interval[1] < 1.0, interval[1] - 1.0),
                (verdict.dropped, most < problem.lam, most / problem.lam - 1.0),
            ):
                assert not ((own != rule) & (np.abs(distance) > 1e-7)).any()
            made += [verdict.zero.sum(), verdict.linear.sum(), verdict.dropped.sum()]
    assert (made > [2, 50, 5]).all(), made


def test_the_bound_from_kinks_is_the_optimum_of_its_linear_program() -> None:
    """At a nondegenerate vertex the combination is the only one, so the bound is attained."""
    compared = 0
    for seed in range(8):
        problem, gap = make(seed, 0.4, n=20, d=5), 1e-3
        w, alpha, _ = optimum(problem)
        alpha, c = feasible(problem, alpha), costs(problem)
        low, high = margins_from_kinks(problem, alpha, problem.primal(w), gap)
        v = problem.design.adjoint(alpha)
        kinks = np.flatnonzero(np.minimum(alpha, c - alpha) > 1e-9)
        A, k = by_columns(problem.design).toarray(), len(kinks)
        assert k == np.count_nonzero(np.abs(w) > 1e-9)
        # Variables: w = p - m, and 1 - t = h - g at the kinks; what they cost is at most the gap.
        # Features on their bound cost nothing on either side.
        free = problem.lam - np.abs(v) < 1e-9 * problem.lam
        cost = np.concatenate([
            np.where(free, 0.0, problem.lam - v), np.where(free, 0.0, problem.lam + v),
            (c - alpha)[kinks], alpha[kinks],
        ])
        tie = np.hstack([A[kinks], -A[kinks], np.eye(k), -np.eye(k)])
        for i in range(problem.n):
            for sign, mine in ((1.0, high[i]), (-1.0, -low[i])):
                aim = -sign * np.concatenate([A[i], -A[i], np.zeros(2 * k)])
                found = linprog(aim, A_ub=cost[None], b_ub=[gap], A_eq=tie, b_eq=np.ones(k),
                                bounds=(0, None))
                assert found.status == 0
                assert mine == pytest.approx(-found.fun, rel=1e-9, abs=2e-6)
                away = abs(abs(mine) - abs(A[i] @ w))
                compared += away > 1e-3
    assert compared > 100


def test_the_bound_from_the_support_is_the_optimum_of_its_linear_program() -> None:
    compared = 0
    for seed in range(8):
        problem, gap = make(seed, 0.4, n=20, d=5), 1e-3
        w = optimum(problem)[0]
        w[np.abs(w) < 1e-9] = 0.0
        low, high = v_from_support(problem, w, gap)
        A, t = by_columns(problem.design).toarray(), problem.design.forward(w)
        used, n = np.flatnonzero(w), problem.n
        kink = np.abs(1 - t) <= 1e-9
        # Variables: alpha and delta = lam - s_f v_f, at most the gap's worth away from the vertex.
        out = np.where(kink, 0.0, t - 1.0)
        cost = np.concatenate([out, np.abs(w[used])])
        spare = gap + float(np.minimum(out, 0.0) @ costs(problem))
        tie = np.hstack([A[:, used].T * np.sign(w[used])[:, None], np.eye(len(used))])
        for j in range(problem.d):
            for sign, mine in ((1.0, high[j]), (-1.0, -low[j])):
                aim = -sign * np.concatenate([A[:, j], np.zeros(len(used))])
                ends = [(None if k else 0, None) for k in kink]
                ends = [(None, c) if u < 0 else e
                        for e, u, c in zip(ends, out, costs(problem), strict=True)]
                found = linprog(aim, A_ub=cost[None], b_ub=[spare], A_eq=tie,
                                b_eq=np.full(len(used), problem.lam),
                                bounds=ends + [(0, None)] * len(used))
                assert found.status == 0
                assert mine == pytest.approx(-found.fun, rel=1e-7, abs=1e-7)
                compared += n > 0
    assert compared > 50


@pytest.mark.parametrize("share", [0.9, 0.5, 0.3, 0.1])
@pytest.mark.parametrize("sparse", [False, True])
def test_from_a_good_reference_most_is_decided(share: float, sparse: bool) -> None:
    """The slab and the cone alone decide nothing below half of lambda_max."""
    problem = make(5, share, n=80, d=12, sparse=sparse)
    found = cs.solve(problem, tol=1e-9)
    rng = np.random.default_rng(0)
    for size, least in ((0.0, 0.6), (1e-5, 0.6), (1e-3, 0.2)):
        x = found.x * (1 + size * rng.standard_normal(problem.d))
        verdict = screened(problem, x, found.alpha)
        assert verdict.undecided.mean() < 1 - least
        t = problem.design.forward(found.x)
        assert (t[verdict.zero] > 1).all()
        assert (t[verdict.linear] < 1).all()
        assert not found.x[verdict.dropped].any()


@pytest.mark.parametrize("sparse", [False, True])
def test_a_verdict_reduces_to_a_problem_with_the_same_optimum(sparse: bool) -> None:
    for seed, share in enumerate((0.9, 0.6, 0.3, 0.1)):
        problem = make(seed, share, sparse=sparse)
        x, alpha = references(problem, np.random.default_rng(seed))[0]
        verdict = screened(problem, x, alpha)
        assert str(verdict).startswith("Verdict")
        reduced = verdict.reduce()
        assert reduced.n <= verdict.undecided.sum() + 1
        assert reduced.d == verdict.kept.sum()
        assert reduced.n < problem.n
        with pytest.raises(InvalidInput, match="reduced problem"):
            reduced.with_(lam=2 * problem.lam)
        inner = cs.solve(reduced, tol=1e-9)
        assert inner.value == pytest.approx(optimum(problem)[2], rel=1e-8)
        known = Screening.empty(problem).tighten(verdict)
        assert cs.certify(problem, *known.lift(inner.x, inner.theta), tol=1e-8).ok


def test_a_verdict_that_leaves_nothing_still_reduces() -> None:
    problem = make(2, 1.5)
    found = cs.solve(problem)
    verdict = cs.screen(problem, reference=found)
    reduced = verdict.reduce()
    assert verdict.dropped.all() or verdict.linear.all()
    known = Screening.empty(problem).tighten(verdict)
    assert cs.certify(problem, *known.lift(np.zeros(reduced.d), reduced.losses.lo)).ok


def test_theorem_6_as_printed_is_wrong() -> None:
    """Printed: LB < -lam n and UB > lam n give w_j = 0."""
    printed = ours = 0
    for seed in range(6):
        problem = make(seed, 0.2)
        w, _, value = optimum(problem)
        A = by_columns(problem.design)
        for j in range(problem.d):
            column = A[:, j].toarray().ravel()
            least = least_within_slab(column, costs(problem), 0.0, 0.9 * value, 1.1 * value)
            most = -least_within_slab(-column, costs(problem), 0.0, 0.9 * value, 1.1 * value)
            printed += (least < -problem.lam and most > problem.lam) and abs(w[j]) > 1e-6
        low, high = v_in_slab(problem, 1.1 * value, 0.9 * value)
        dropped = (low > -problem.lam) & (high < problem.lam)
        ours += int((dropped & (np.abs(w) > 1e-9)).sum())
    assert printed > 10
    assert ours == 0


def test_theorem_7_as_printed_is_wrong() -> None:
    """Printed: the four values swapped, a term with t < 1 would get alpha = 0."""
    wrong_printed = decided = 0
    for seed in range(6):
        problem = make(seed, 0.5)
        _, alpha, _ = optimum(problem)
        verdict = screened(problem, *references(problem, np.random.default_rng(seed))[0])
        decided += int(verdict.linear.sum())
        wrong_printed += int((verdict.linear & (alpha > 1e-9)).sum())  # printed: alpha = 0
        assert (alpha[verdict.linear] >= costs(problem)[verdict.linear] * (1 - 1e-7)).all()
    assert decided > 10
    assert wrong_printed == decided


def test_face_and_refusals() -> None:
    problem = make(4, 0.5)
    assert cs.bounds.available(problem) == ("lp",)
    solution = cs.solve(problem)
    verdict = cs.screen(problem, reference=solution)
    assert verdict.kept.shape == (problem.d,)
    other = cs.sparse_svm(np.eye(4), [1, -1, 1, -1], 0.1)
    with pytest.raises(InvalidInput, match="is for an LP-SVM"):
        cs.screen(other, reference=solution, bound="lp")
    with pytest.raises(InvalidInput, match="take 'lp'"):
        cs.screen(problem, reference=solution, bound="gap")
    with pytest.raises(InvalidInput, match="`start`"):
        cs.solve(other, start=solution)
    with pytest.raises(UnknownName, match="mode"):
        cs.solve(problem, mode="fast")
    with pytest.raises(InvalidInput, match="`lam`"):
        problem.with_(lam=0.0)
    with pytest.raises(InvalidInput, match="`l2`"):
        cs.sparse_svm(np.eye(4), [1, -1, 1, -1], 0.1, l2=0)


def test_the_certificate_charges_what_the_features_leave_over() -> None:
    """Above lambda_max the optimum is 0; a small w has every term right and costs lambda |w|."""
    problem = make(1, 2.0)
    for j in range(3):
        w = np.zeros(problem.d)
        w[j] = 1e-3
        proof = certified(problem, w, costs(problem), tol=0.9)
        assert proof.gap >= problem.primal(w) - problem.primal(np.zeros(problem.d))


@pytest.mark.parametrize("mode", ["safe", "certified"])
def test_a_path_is_solved_at_every_value_and_screened_from_its_neighbour(mode: str) -> None:
    problem = make(7, 1.0)
    grid = problem.lam * np.geomspace(1.0, 0.05, 12)
    path = cs.path(problem, over="lam", values=grid, mode=mode)
    assert path.finished
    np.testing.assert_allclose(path.values, grid)
    for point in path.points:
        here = problem.with_(lam=point.value)
        assert point.status == "optimal"
        assert point.objective == pytest.approx(optimum(here)[2], rel=1e-6)
        assert certified(here, point.x, -point.theta).ok
    assert not any(path.points[0].before.values())
    assert max(point.before["dropped"] for point in path.points[1:]) > 0.2
    assert "dropped %" in path.table()


def test_a_path_over_c_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """The weight of the losses is a parameter, too, and a file holds the points that are done."""
    problem, grid, file = make(7, 0.5), [0.5, 1.0, 4.0, 8.0], tmp_path / "points.npz"
    whole = cs.path(problem, over="C", values=grid, checkpoint=tmp_path / "whole.npz")
    with interrupted_after(2):
        part = cs.path(problem, over="C", values=grid, checkpoint=file)
    assert len(part.points) == 2
    again = cs.path(problem, over="C", values=grid, checkpoint=file)
    for one, other in zip(whole.points, again.points, strict=True):
        assert one.objective == pytest.approx(optimum(problem.with_(C=one.value))[2], rel=1e-6)
        np.testing.assert_array_equal(one.x, other.x)


@contextmanager
def interrupted_after(count: int) -> Iterator[None]:
    """Ctrl-C after so many points have been added."""
    one, left = PathFollower.solve_point, [count]

    def counted(run: PathFollower, value: float) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        one(run, value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PathFollower, "solve_point", counted)
        yield


def test_a_path_stops_when_its_time_is_up() -> None:
    path = cs.path(make(7, 1.0), over="lam", values=[0.1, 0.05], time_limit=1e-9)
    assert not path.finished
    assert path.stopped == "time_limit"
    assert not len(path.points)


def test_a_point_that_was_cut_short_is_not_part_of_a_path() -> None:
    """Its certificate does not hold, so it says ``"time_limit"`` and is left out."""
    problem = make(7, 1.0)
    run = PathFollower(problem, Points(), 1e-6, "certified", "auto", "lam", limits=Limits(1e-9))
    run.advance(np.array([0.02 * problem.lam]))
    assert not len(run.points)
    assert run.previous is None
    assert run.limits.reached == "time_limit"


@pytest.mark.parametrize("sparse", [False, True])
def test_cvxpy_finds_the_same_optimum(sparse: bool) -> None:
    problem = make(3, 0.3, sparse=sparse)
    written = problem.to_cvxpy()
    assert written.is_dcp()
    assert written.solve(solver="CLARABEL") == pytest.approx(cs.solve(problem).value, rel=1e-6)
