"""Nothing about metric learning is ever decided wrongly: optima to forty digits, every sphere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from metric_exact import optimum, small

import cvxscreen
from cvxscreen.bounds import RULES, available, cut, named
from cvxscreen.bounds.regions import Ball
from cvxscreen.bounds.regions.cone_ball import ConeBall
from cvxscreen.core.duality import reference_point
from cvxscreen.core.losses import Piece
from cvxscreen.core.problem import Problem
from cvxscreen.designs.comparisons import Indexed
from cvxscreen.screening.reduction import judge
from cvxscreen.solvers.metric.solver import MetricOptimisation, closed_form, task_of
from cvxscreen.solvers.metric.task import _undecided_terms, reduce_task

NAMES = ("gb", "pgb", "dgb", "cdgb", "rpb", "rrpb", "midpoint")
SCALES: dict[str, Any] = {
    "one": 1.0, "large": 1e6, "small": 1e-6, "mixed": np.array([1e3, 1.0, 1e-3]),
}


def wrong(problem: Problem, codes: np.ndarray, margins: list) -> int:
    """Decisions that the optimum contradicts."""
    f, count = problem.losses, 0
    for code, m, b, q, lo in zip(codes, margins, f.b, f.q, f.lo, strict=True):
        top, bottom = mp.mpf(float(b)), mp.mpf(float(b)) + mp.mpf(float(q)) * mp.mpf(float(lo))
        count += code == Piece.ZERO and m < top
        count += code == Piece.LOW and m > bottom
        count += code == Piece.LEFT and not bottom <= m <= top
    return int(count)


def check(problem: Problem, reference: Any, x: list, margins: list, name: str) -> int:
    """Containment and consequence of one bound under every rule; the number of decisions."""
    ball = named(name)(problem, reference)
    assert isinstance(ball, Ball)
    pairs = zip(x, ball.centre, strict=True)
    away = mp.sqrt(mp.fsum((u - mp.mpf(float(v))) ** 2 for u, v in pairs))
    assert away * mp.sqrt(mp.mpf(float(problem.quadratic.diagonal[0]))) <= ball.radius
    decided = 0
    for rule in RULES:
        region = cut(problem, ball, rule)
        low, high = region.intervals()
        for m, a, b in zip(margins, low, high, strict=True):
            assert a <= m <= b
        codes = judge(problem, region).codes
        assert wrong(problem, codes, margins) == 0
        decided += int((codes >= 0).sum())
    return decided


@pytest.mark.table
@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("scale", SCALES)
def test_every_sphere_and_rule_against_forty_digits(scale: str, diagonal: bool) -> None:
    rng = np.random.default_rng(1)
    decided = 0
    for dtype in (np.float64, np.float32) if scale in ("one", "mixed") else (np.float64,):
        p = small(3, SCALES[scale], diagonal=diagonal, dtype=dtype)
        x, margins = optimum(p)
        exact = np.array([float(v) for v in x])
        for error in (1e-1, 1e-4, 1e-9, 0.0):
            noise = rng.standard_normal((3, 3)).ravel()[: p.d]
            if not diagonal:
                noise = (noise.reshape(3, 3) + noise.reshape(3, 3).T).ravel()
            moved = exact + error * np.linalg.norm(exact) * noise
            here = reference_point(p, moved)
            other = p.with_(lam=1.1 * float(p.lam or 0.0))
            there = reference_point(other, moved)
            for name in NAMES:
                decided += check(p, here, x, margins, name)
                if name in ("pgb", "rrpb"):
                    decided += check(p, there, x, margins, name)
    assert decided > 0 or scale == "mixed"


@pytest.mark.table
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("scale", SCALES)
def test_what_the_solver_takes_away_is_right(scale: str, listed: bool) -> None:
    """Windows and sifted lists: fixed and dropped terms sit where the optimum has them."""
    for diagonal in (False, True):
        p = small(5, SCALES[scale], diagonal=diagonal)
        x, margins = optimum(p)
        task = task_of(p)
        plus, minus = task.terms.index()
        if listed:
            task = replace(task, terms=Indexed(plus, minus, len(task.table)))
        H = p.design.dense()
        place = {(int(a), int(b)): t for t, (a, b) in enumerate(zip(plus, minus, strict=True))}
        for tol in (0.3, 1e-2, 1e-5, 1e-9):
            state, sphere = MetricOptimisation(tol=tol, screen=False).solve(task, closed_form(task))
            away = mp.sqrt(mp.fsum(
                (u - mp.mpf(float(v))) ** 2 for u, v in zip(x, sphere.centre.ravel(), strict=True)
            ))
            assert away <= sphere.radius
            reduced, _, dropped, fixed = reduce_task(task, sphere, state, sort=True)
            assert dropped + fixed + len(reduced.terms) == p.n
            # The pairs left, by their points: everything else was decided.
            key = {(int(a), int(b)): k for k, (a, b) in enumerate(
                zip(task.table.left, task.table.right, strict=True))}
            names = [key[int(a), int(b)] for a, b in zip(
                reduced.table.left, reduced.table.right, strict=True)]
            left = {place[names[a], names[b]] for a, b in zip(*reduced.terms.index(), strict=True)}
            # All over the ball, too: its lowest and its highest point for every term.
            out = np.array([t for t in range(p.n) if t not in left], dtype=int)
            middle = H[out] @ sphere.centre.ravel()
            reach = sphere.radius * np.linalg.norm(H[out], axis=1)
            slack = 1e-9 * (1.0 + np.abs(middle) + reach)
            inside = (middle - reach >= 1 - slack) | (middle + reach <= 0.95 + slack)
            assert inside.all()
            gone = [margins[t] for t in out]
            assert sum(m >= 1 for m in gone) >= dropped
            assert sum(m <= 1 - mp.mpf("0.05") + mp.mpf(10) ** -15 for m in gone) >= fixed
            assert all(m >= 1 or m <= 1 - mp.mpf("0.05") + mp.mpf(10) ** -15 for m in gone)


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("listed", [False, True])
def test_the_solver_decides_every_term_as_bound_and_rule_do(listed: bool, diagonal: bool) -> None:
    """Its sphere is the midpoint ball; a product set's windows decide less, never otherwise."""
    rng = np.random.default_rng(2)
    y = np.repeat(np.arange(3), 20)
    X = rng.standard_normal((60, 4)) + 1.5 * np.eye(4)[y]
    p = cvxscreen.rtlm(X, cvxscreen.triplets(X, y, k=4), 1.0, diagonal=diagonal)
    p = p.with_(lam=0.02 * cvxscreen.lambda_max(p))
    task = task_of(p)
    plus, minus = task.terms.index()
    if listed:
        task = replace(task, terms=Indexed(plus, minus, len(task.table)))
    shares = []
    for tol in (0.3, 1e-1, 1e-2, 1e-4, 1e-6):
        state, sphere = MetricOptimisation(tol=tol, screen=False).solve(task, closed_form(task))
        ball = named("midpoint")(p, reference_point(p, state.metric.value.ravel()))
        root = float(np.sqrt(p.lam))
        apart = np.linalg.norm(root * sphere.centre.ravel() - root * ball.centre)
        # Where it costs next to nothing the ball of `bounds` is moved to x; both hold the optimum.
        assert root * sphere.radius <= ball.radius * (1.0 + 1e-6) + 1e-9
        assert ball.radius <= root * sphere.radius + 2.0 * apart + 1e-6 * ball.radius
        middle = sphere.centre.ravel()
        said = judge(p, Ball(
            p, "given", middle, p.design.forward(middle), root * sphere.radius, sphere.gap
        ))
        left, kept, dropped, fixed = _undecided_terms(task, (sphere,), state, True)
        if kept is None:
            pairs = set(zip(*(side.tolist() for side in left.index()), strict=True))
            kept = np.array([pair in pairs for pair in zip(plus, minus, strict=True)])
        known = said.zero | said.linear
        assert not (~kept & ~known).any()
        more = int((kept & known).sum())
        if listed:
            assert more == 0
            assert (dropped, fixed) == (said.zero.sum(), said.linear.sum())
        else:
            assert dropped <= said.zero.sum()
            assert fixed <= said.linear.sum()
        shares.append(1.0 - more / max(int(known.sum()), 1))
    assert shares[-1] > 0.99  # the bound of the norm costs little once the radius is small


def test_spheres_are_attained_where_every_term_is_linear() -> None:
    """There ``M* = K(w) / lam``: midpoint, path and gap spheres hold with equality."""
    p = small(2, share=3.0)
    optimal = closed_form(task_of(p)).value.ravel()
    for factor in (0.7, 1.4):
        other = p.with_(lam=float(p.lam or 0.0) * factor)
        there = reference_point(other, optimal / factor)
        for name in ("rrpb", "pgb", "rpb"):
            point = there if name != "rpb" else reference_point(p, optimal / factor)
            ball = named(name)(p, point)
            assert isinstance(ball, Ball)
            away = p.quadratic.norm(optimal - ball.centre)
            assert 0.99 * ball.radius < away <= ball.radius
    here = reference_point(p, 1.2 * optimal)
    for name in ("midpoint", "dgb", "gb"):
        ball = named(name)(p, here)
        assert isinstance(ball, Ball)
        away = p.quadratic.norm(optimal - ball.centre)
        assert 0.99 * ball.radius < away <= ball.radius


def test_the_midpoint_sphere_lies_in_the_path_sphere_and_in_the_gap_sphere() -> None:
    for seed in range(6):
        p = small(seed)
        for factor in (0.8, 0.95, 1.0, 1.2):
            other = p.with_(lam=float(p.lam or 0.0) * factor)
            there = cvxscreen.solve(other, tol=1e-4).point()
            here = reference_point(p, there.x, there.theta)
            middle, path = named("midpoint")(p, here), named("rrpb")(p, there)
            gap = named("gap")(p, here)
            assert isinstance(middle, Ball)
            for outer in (path, gap):
                assert isinstance(outer, Ball)
                apart = p.quadratic.norm(middle.centre - outer.centre)
                assert apart + middle.radius <= outer.radius * (1 + 1e-6) + 1e-9


def test_the_constrained_dual_sphere_needs_a_feasible_point() -> None:
    """d = 1, H = -1, lam = 2, alpha = 1 (Theorem 14 as printed): radius 0 at -1/2, optimum 0."""
    X = np.array([[0.0], [1.0], [0.0]])
    p = cvxscreen.rtlm(X, [[0, 1, 2]], 2.0, gamma=0.0)
    assert p.design.dense().tolist() == [[-1.0]]
    ball = named("cdgb")(p, reference_point(p, np.zeros(1), -np.ones(1)))
    assert isinstance(ball, Ball)
    assert abs(ball.centre[0]) <= ball.radius / np.sqrt(2.0) + 1e-12


def test_the_constrained_dual_sphere_is_attained() -> None:
    """One triplet, its margin at the optimum a kink: of ``|theta|`` the optimum needs ``lam``."""
    X = np.array([[0.0], [0.0], [1.0]])
    p = cvxscreen.rtlm(X, [[0, 1, 2]], 1e-3, gamma=0.0)
    assert p.design.dense().tolist() == [[1.0]]
    ball = named("cdgb")(p, reference_point(p, np.zeros(1)))
    assert isinstance(ball, Ball)
    away = p.quadratic.norm(np.ones(1) - ball.centre)  # the optimal metric is 1
    assert 0.99 * ball.radius < away <= ball.radius


@pytest.mark.parametrize("diagonal", [False, True])
def test_the_projected_gradient_sphere_counts_the_product_with_the_multiplier(
    diagonal: bool,
) -> None:
    """H = diag(-1, 1), lam = 1/8: ``M* = diag(0, 1)``, at the kink, outside without ``-<S, M>``.

    From M = diag(1, 3/2) the centre is diag(0, 19/4); the optimum is 15/4 away, M only
    ``sqrt(1 + (13/4)^2) = 3.4``, and the part in the cone's polar makes up for more than that.
    """
    X = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    p = cvxscreen.rtlm(X, [[0, 1, 2]], 0.125, gamma=0.0, diagonal=diagonal)
    first, last = (0, 1) if diagonal else (0, 3)
    optimal, moved = np.zeros(p.d), np.zeros(p.d)
    optimal[last] = 1.0
    moved[first], moved[last] = 1.0, 1.5
    here = reference_point(p, moved)
    ball = named("pgb")(p, here)
    assert isinstance(ball, Ball)
    away = p.quadratic.norm(optimal - ball.centre)
    assert p.quadratic.norm(moved - ball.centre) < 0.99 * away
    assert away <= ball.radius
    assert here.At_theta[first] == 1.0  # so S = lam - 1 there, and nothing elsewhere
    assert ball.radius**2 == pytest.approx(0.125 * (1.0 + 3.25**2) + 0.875)


@pytest.mark.parametrize("diagonal", [False, True])
def test_deep_inside_the_cone_the_cone_rule_is_the_ball(diagonal: bool) -> None:
    """The lowest point of the ball is in the cone: every margin is attained there."""
    p = small(1, diagonal=diagonal)
    centre = np.ones(3) if diagonal else np.eye(3).ravel()
    margins = p.design.forward(centre)
    radius = 0.1 * np.sqrt(float(p.quadratic.diagonal[0]))
    region = cut(p, Ball(p, "given", centre, margins, radius, 1.0), "cone")
    low, high = region.intervals()
    assert (judge(p, region).codes < 0).any()
    for i, h in enumerate(p.design.dense()):
        least, most = (float(h @ (centre + s * h / np.linalg.norm(h))) for s in (-0.1, 0.1))
        assert low[i] <= least + 1e-12 * (1.0 + abs(least))
        assert high[i] >= most - 1e-12 * (1.0 + abs(most))


def test_the_cone_rule_keeps_to_its_side() -> None:
    """A free multiplier would prove a term on the wrong side (section 4.2 as printed)."""
    tightened = 0
    for seed in range(4):
        p = small(seed, share=1e-3)
        s = cvxscreen.solve(p, tol=1e-9)
        margins = p.design.forward(s.x)
        for scale in (0.9, 1.1):
            ball = named("midpoint")(p, reference_point(p, scale * s.x))
            plain = ball.intervals()
            # The rule, and its search for every term, without the half-space that decides first.
            for region in (cut(p, ball, "cone"), ConeBall(ball)):
                low, high = region.intervals()
                assert (low <= margins + 1e-9).all()
                assert (high >= margins - 1e-9).all()
                assert (low >= plain[0]).all()
                assert (high <= plain[1]).all()
                tightened += int((low > plain[0] + 1e-6).sum() + (high < plain[1] - 1e-6).sum())
    assert tightened >= 16


def test_the_half_space_rule_has_the_exact_minimum_where_the_printed_one_fails() -> None:
    """Theorem 9, first case: P = 1, Q = 5, r = 1, H = 1 has ``<H, X>`` in [4, 6], never 0."""
    X = np.array([[0.0], [0.0], [1.0]])
    p = cvxscreen.rtlm(X, [[0, 1, 2]], 1.0)
    ball = Ball(p, "given", np.array([5.0]), np.array([5.0]), 1.0, 1.0, -np.ones(1))
    for rule in RULES:
        low, high = cut(p, ball, rule).intervals()
        assert low[0] == pytest.approx(4.0)
        assert high[0] == pytest.approx(6.0)


def test_names_are_offered_where_they_apply() -> None:
    assert set(NAMES) <= set(available(small(0)))
    X, y = cvxscreen.datasets.two_gaussians(20, 2, seed=0)
    svm = cvxscreen.svm(X, y)
    assert not {"gb", "dgb", "cdgb", "rrpb"} & set(available(svm))
    with pytest.raises(cvxscreen.InvalidInput, match="cone"):
        cvxscreen.screen(svm, reference=cvxscreen.solve(svm), bound="gb")
    with pytest.raises(cvxscreen.UnknownName, match="rule"):
        cvxscreen.screen(svm, reference=cvxscreen.solve(svm), rule="none")


@pytest.mark.long
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("gamma", [0.05, 0.5])
def test_no_wrong_decision_in_a_long_campaign(scale: str, gamma: float) -> None:
    decided = 0
    for seed in range(12):
        for share in (3.0, 0.3, 1e-2):
            p = small(seed, SCALES[scale], diagonal=bool(seed % 2), gamma=gamma, share=share)
            x, margins = optimum(p)
            for tol in (0.3, 1e-2, 1e-5, 1e-10):
                point = cvxscreen.solve(p, tol=tol).point()
                for name in NAMES:
                    decided += check(p, point, x, margins, name)
    print(f"\n{scale}, {gamma}: {decided:,} decisions, none wrong")  # noqa: T201
    assert decided > 0


@pytest.mark.parametrize("diagonal", [False, True])
def test_the_hinge_is_never_decided_wrongly(diagonal: bool) -> None:
    """Terms at the kink stay; the others agree with a far more exact solution."""
    for seed in range(4):
        p = small(seed, diagonal=diagonal, gamma=0.0)
        s = cvxscreen.solve(p, tol=1e-11)
        assert s.status == "optimal"
        reach = np.sqrt(2.0 * s.certificate.gap) * p.norms
        margins = p.design.forward(s.x)
        for tol in (1e-1, 1e-3, 1e-6):
            point = cvxscreen.solve(p, tol=tol).point()
            for name in NAMES:
                for rule in RULES:
                    codes = judge(p, cut(p, named(name)(p, point), rule)).codes
                    assert (margins[codes == Piece.ZERO] > 1 - reach[codes == Piece.ZERO]).all()
                    assert (margins[codes == Piece.LOW] < 1 + reach[codes == Piece.LOW]).all()


@pytest.mark.parametrize("diagonal", [False, True])
def test_the_cone_proves_at_least_what_a_half_space_does(diagonal: bool) -> None:
    """Also around the gradient bound, whose centre is outside: Theorem 2 is weaker than that."""
    rng = np.random.default_rng(3)
    y = np.repeat(np.arange(3), 25)
    X = rng.standard_normal((75, 6)) + 1.5 * np.eye(6)[y]
    p = cvxscreen.rtlm(X, cvxscreen.triplets(X, y, k=3), 1.0, diagonal=diagonal)
    top, gained = cvxscreen.lambda_max(p), 0
    for share in (0.3, 0.1, 0.03):
        here = p.with_(lam=share * top)
        exact = cvxscreen.solve(here, tol=1e-11)
        margins = here.design.forward(exact.x)
        truth = here.losses.piece_within(margins, margins)
        reference = cvxscreen.solve(p.with_(lam=1.25 * share * top), tol=1e-6)
        codes = {
            (bound, rule): cvxscreen.screen(here, reference=reference, bound=bound, rule=rule).codes
            for bound in ("gb", "pgb") for rule in ("sphere", "linear", "cone")
        }
        for said in codes.values():
            assert (said[said >= 0] == truth[said >= 0]).all()
        best = codes["gb", "cone"] >= 0
        assert not ((codes["gb", "linear"] >= 0) & ~best).any()
        for less in (("pgb", "sphere"), ("pgb", "cone")):
            assert np.count_nonzero((codes[less] >= 0) & ~best) <= 0.002 * p.n, (share, less)
        gained += np.count_nonzero(best) - np.count_nonzero(codes["gb", "linear"] >= 0)
    assert gained >= 0
