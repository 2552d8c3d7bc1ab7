"""The certificate accepts the optimum, refuses everything else, shares nothing with duality."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exact import Fraction, exact, terms
from strategies import (
    CASES,
    LOSSES,
    ONE_ARRAY,
    Case,
    Reference,
    build,
    points,
    reference,
    suboptimal,
)

import cvxscreen as cs
from cvxscreen.api import solve
from cvxscreen.certificates import certificate
from cvxscreen.certificates.certificate import certify, imbalance_cost, piecewise_value
from cvxscreen.certificates.many import certify_many
from cvxscreen.certificates.one_pass import certify_chunks
from cvxscreen.core.duality import dual_feasible, reference_point
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.core.streamed import ChunkTerms, UnitLoss
from cvxscreen.designs.chunks import Chunks
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.models.linear import regression, svm
from cvxscreen.out_of_core.streams import Blocks, LocalEngine

TOL = 1e-9


def feasible_optimum(case: Case) -> tuple[Reference, np.ndarray]:
    ref = reference(case)
    theta, _ = dual_feasible(ref.problem, ref.theta)
    return ref, theta


@pytest.mark.parametrize("case", ONE_ARRAY)
def test_accepts_the_optimum(case: Case) -> None:
    """The exact optimum, rounded once, is certified to 1e-9 with every storage and scale."""
    ref, theta = feasible_optimum(case)
    proof = certify(ref.problem, ref.x, theta, tol=TOL)
    assert proof.ok, proof.reason
    assert proof.gap >= suboptimal(ref, ref.x)
    assert proof.dual <= float(ref.truth.value if ref.truth else np.inf) * (1 + 1e-15) + 1e-300


@pytest.mark.parametrize("loss", LOSSES)
def test_gap_bounds_the_suboptimality(loss: str, rng: np.random.Generator) -> None:
    """``gap >= P(x) - P*`` in rational arithmetic, and it agrees with the gap of a point."""
    for case in (case for case in CASES if case.loss == loss):
        ref = reference(case)
        for point in points(ref, rng, 2):
            proof = certify(ref.problem, point.x, point.theta)
            assert proof.gap >= suboptimal(ref, point.x)
            if point.relative_gap > 1e-9:
                # Two formulas, two ways to charge rounding: near each other, not equal.
                assert proof.gap == pytest.approx(point.gap, rel=1e-4)
            assert proof.primal == pytest.approx(point.primal, rel=1e-9)
            assert proof.violation == 0.0
            assert proof.ok == (proof.relative_gap <= proof.tolerance)
            assert proof.ok == (not proof.reason)


@pytest.mark.parametrize("loss", LOSSES)
def test_refuses_a_perturbed_point(loss: str, rng: np.random.Generator) -> None:
    """Moved x, or moved theta, by what costs more than the tolerance."""
    for intercept in (False, True):
        ref, theta = feasible_optimum(Case(loss, intercept))
        problem = ref.problem
        size = np.linalg.norm(ref.x) + 0.1
        moved = ref.x + 1e-2 * size * rng.standard_normal(problem.d)
        assert not certify(problem, moved, theta, tol=TOL).ok
        other = theta * (1 - 1e-2)
        proof = certify(problem, ref.x, other, tol=TOL)
        assert not proof.ok
        assert proof.gap >= suboptimal(ref, ref.x)


@pytest.mark.parametrize("loss", LOSSES)
def test_refuses_theta_one_ulp_outside_its_box(loss: str) -> None:
    """The box is checked without any tolerance, on either side."""
    ref, theta = feasible_optimum(Case(loss))
    f = ref.problem.losses
    for end, away in ((f.lo, -np.inf), (f.hi, np.inf)):
        if not np.isfinite(end).all():
            continue
        for i in (0, len(theta) - 1):
            outside = theta.copy()
            outside[i] = np.nextafter(end[i], away)
            proof = certify(ref.problem, ref.x, outside, tol=0.5)
            assert not proof.ok
            assert proof.gap == np.inf
            assert "box" in proof.reason


@pytest.mark.parametrize("loss", LOSSES)
def test_refuses_an_unbalanced_dual_point(loss: str) -> None:
    """With an intercept ``sum e theta = 0`` is part of feasibility; a residual is refused."""
    ref, theta = feasible_optimum(Case(loss, intercept=True))
    f, e = ref.problem.losses, ref.problem.free_columns[:, 0]
    room = np.where(e > 0, f.hi - theta, theta - f.lo)
    i = int(np.argmax(np.where(np.isfinite(room), room, 0)))
    moved = theta.copy()
    moved[i] += np.sign(e[i]) * min(room[i], 1.0) * 0.5
    proof = certify(ref.problem, ref.x, moved, tol=1e-6)
    assert not proof.ok


def test_refuses_a_point_with_no_gap_but_the_imbalance() -> None:
    """Slopes at x and ``x = x_theta``, more of one class: only the intercept is not optimal."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 3)), np.repeat([1.0, -1.0], [30, 10])
    problem = svm(X, y, C=2.0**-12, intercept=True)
    theta = problem.losses.lo
    x = np.append(-problem.design.adjoint(theta)[:3], 0.0)
    assert (problem.losses.slope(problem.design.forward(x)) == theta).all()
    proof = certify(problem, x, theta, tol=1e-3)
    assert not proof.ok
    assert "balanced" in proof.reason
    many = certify_many(problem, [problem.C], x[None], theta[None], tol=1e-3)
    assert not many.ok.any()  # the compiled passes first, then the same certificate


def test_several_free_coordinates_are_balanced_together() -> None:
    """Two unpenalised columns: the optimum is accepted, a slope moved inside its box refused."""
    rng = np.random.default_rng(2)
    X, free = rng.standard_normal((30, 3)), np.column_stack([np.ones(30), np.arange(30) / 30 - 0.4])
    y = X @ rng.standard_normal(3) + rng.standard_normal(30)
    problem = Problem(
        Rows(X, None, free), Losses(y, 0.1, 0.0, -1.0, 1.0), Quadratic([1.0] * 3 + [0.0] * 2),
        np.zeros(5),
    )
    found = solve(problem, tol=1e-8)
    proof = certify(problem, found.x, found.theta, tol=1e-6)
    assert proof.ok, proof.reason
    assert proof.gap >= 0.0
    inside = int(np.argmin(np.abs(found.theta)))
    moved = found.theta.copy()
    moved[inside] += 0.5
    assert not certify(problem, found.x, moved, tol=1e-6).ok
    ends = np.where(found.theta > 0, 1.0, -1.0)  # no slope has room to move
    refused = certify(problem, found.x, ends, tol=0.9)
    assert "balanced" in refused.reason


def test_accepts_a_balanced_dual_point_at_the_ends_of_its_box() -> None:
    """Small C, equal classes, intercept: theta = -C everywhere is balanced and optimal."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 3)), np.repeat([1.0, -1.0], 20)
    C = 2.0**-12
    losses = Losses(np.ones(40), 0.0, 0.0, -C, 0.0)
    problem = Problem(
        Rows(X, y, np.ones((40, 1))), losses, Quadratic([1.0, 1.0, 1.0, 0.0]), np.zeros(4), C=C
    )
    theta = np.full(40, -C)
    x = -problem.design.adjoint(theta)
    x[3] = 0.0
    assert problem.losses.piece_within(*2 * (problem.design.forward(x),)).max() == 0
    proof = certify(problem, x, theta, tol=1e-6)
    assert proof.ok, proof.reason


def test_refuses_a_wrongly_fixed_term() -> None:
    """A term forced onto a piece it does not belong to shows as a gap on the full problem."""
    case = Case("hinge", n=30, C=0.5)
    ref, theta = feasible_optimum(case)
    on_kink = np.flatnonzero((theta < 0) & (theta > ref.problem.losses.lo))
    assert len(on_kink)
    for wrong in (0.0, float(ref.problem.losses.lo[on_kink[0]])):
        forced = theta.copy()
        forced[on_kink[0]] = wrong
        x = -ref.problem.design.adjoint(forced)
        assert not certify(ref.problem, x, forced, tol=TOL).ok


def test_refuses_points_that_are_no_numbers() -> None:
    """NaN and infinity never certify, whatever the tolerance."""
    ref, theta = feasible_optimum(Case("hinge"))
    for bad in (np.nan, np.inf, -np.inf):
        for which in (0, 1):
            pair = [ref.x.copy(), theta.copy()]
            pair[which][0] = bad
            proof = certify(ref.problem, *pair, tol=0.5)
            assert not proof.ok
            assert "NaN" in proof.reason
            assert not np.isfinite(proof.gap)


def test_wrong_shapes_are_an_error() -> None:
    """Shapes are the caller's mistake, not a refused certificate."""
    ref, theta = feasible_optimum(Case("hinge"))
    for x, s in ((ref.x[:-1], theta), (ref.x, theta[:-1]), (ref.x[None], theta)):
        with pytest.raises(InvalidInput, match="shapes"):
            certify(ref.problem, x, s)


# -- independence ------------------------------------------------------------------------------


def test_certificate_imports_nothing_that_solves() -> None:
    """It may import the problem and its data, errors, tables and constants: no solver, no bound."""
    allowed = {
        "cvxscreen._support.compiled", "cvxscreen._support.rounding", "cvxscreen._support.tables",
        "cvxscreen._support.validation", "cvxscreen.core.cones", "cvxscreen.core.penalty",
        "cvxscreen.core.problem",
        "cvxscreen.designs.rows", "cvxscreen.designs.shift", "cvxscreen.errors",
        "cvxscreen.certificates.residual_norms",  # which imports no more: see its own tests
    }
    tree = ast.parse(Path(str(certificate.__file__)).read_text("utf-8"))
    own = {
        node.module for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cvxscreen")
    }
    assert own <= allowed
    calls = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    own_way = ("prox_and_subgradient", "fenchel_gap", "penalty.project")  # of the penalty
    assert not [call for call in calls if call.endswith(own_way)]


@pytest.mark.parametrize("loss", LOSSES)
def test_values_from_pieces_agree_with_values_from_slopes(loss: str) -> None:
    """The certificate's own loss values equal the table's."""
    problem = build(Case(loss, weighted=True))
    for size in (0.0, 0.1, 1.0, 100.0):
        t = size * np.random.default_rng(2).standard_normal(problem.n)
        np.testing.assert_allclose(
            piecewise_value(problem.losses, t), problem.losses.value(t), rtol=1e-12, atol=1e-15
        )


def beside_knots(
    loss: str, noise: float, rng: np.random.Generator
) -> tuple[Losses, np.ndarray, np.ndarray, np.ndarray]:
    """Losses, margins within a few times the noise of a knot, and finite ends of the slopes."""
    f = build(Case(loss, n=48, C=0.7)).losses
    knots = np.array([np.where(np.isfinite(k), k, f.b) for k in f.knots])
    t = knots[rng.integers(0, 4, len(f)), np.arange(len(f))]
    t += rng.integers(-4, 5, len(f)) * max(0.5 * noise, 1e-16)
    low, high = np.maximum(f.lo, -9.0), np.minimum(f.hi, 9.0)
    return f, t, low, high


@pytest.mark.parametrize("noise", [0.0, 1e-14, 1e-3])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_term_bounds_every_margin_within_its_noise(
    loss: str, noise: float, rng: np.random.Generator
) -> None:
    """In rational arithmetic, slopes anywhere in their box, margins beside every knot."""
    f, t, low, high = beside_knots(loss, noise, rng)
    theta = low + (high - low) * rng.choice([0.0, 0.3, 1.0], len(f))
    columns = certificate.columns(f)
    value = certificate.value_above(t, *columns, certificate.steepness(f.q))
    bound = certificate.gap_above(t, theta, noise, value, *columns)
    bound = bound + certificate.endless_above(value, noise, *columns[2:])
    finer = certificate.smooth_gap_above(bound, t, theta, noise, value, columns)
    assert (finer <= bound).all()
    for i, term in enumerate(terms(f)):
        for end in (-noise, 0.0, noise):
            exactly = term.fenchel_young(Fraction(t[i]) + Fraction(end), Fraction(theta[i]))
            assert exactly <= Fraction(float(finer[i]))


@pytest.mark.parametrize("noise", [0.0, 1e-14, 1e-3])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_sum_bounds_every_term_within_its_noise(
    loss: str, noise: float, rng: np.random.Generator
) -> None:
    """In rational arithmetic, each term at its worse end; what of it is rounding is said."""
    f, t, low, high = beside_knots(loss, noise, rng)
    for shares in (0.3, 1.0, rng.choice([0.0, 0.3, 1.0], len(f))):
        theta = low + (high - low) * shares
        error, value = np.full(len(f), noise), piecewise_value(f, t)
        gap, rounding = certificate.summed_gap(t, theta, error, value, f)
        pairs = [(term, Fraction(t[i]), Fraction(theta[i])) for i, term in enumerate(terms(f))]
        exactly = sum(term.fenchel_young(*pair) for term, *pair in pairs)
        worst = sum(
            max(term.fenchel_young(at + end, s) for end in (-Fraction(noise), Fraction(noise)))
            for term, at, s in pairs
        )
        assert worst <= Fraction(gap)
        assert worst - exactly <= Fraction(rounding) <= Fraction(gap)
        assert rounding <= 40.0 * len(f) * (noise + 1e-13)


def test_the_sum_charges_what_a_margin_hides() -> None:
    """A hinge, and a squared one, at the worse end of the noise; a hundredth less is too little."""
    one, noise = np.ones(1), 1e-6
    for q, lo in ((0.0, -3.0), (0.5, -np.inf)):
        f = Losses(one, 0.0 * one, q * one, lo * one, 0.0 * one)
        for theta in (-0.0, -1.0):
            t = -1.0 * one
            value = piecewise_value(f, t)
            gap, rounding = certificate.summed_gap(t, theta * one, noise * one, value, f)
            (term,) = terms(f)
            ends = [Fraction(-1.0) + end for end in (-Fraction(noise), Fraction(noise))]
            worst = float(max(term.fenchel_young(end, Fraction(theta)) for end in ends))
            slope = 3.0 if q == 0.0 else 4.0
            assert worst <= gap <= worst + 2.0 * noise * abs(theta) + 1e-6 * noise * slope + 1e-11
            plain = gap - rounding
            assert plain + 0.49 * rounding < worst or theta
    hard = Losses(one, 0.0 * one, 0.0 * one, 0.0 * one, np.inf * one)
    assert certificate.summed_gap(one, 0.0 * one, noise * one, 0.0 * one, hard)[0] == np.inf


def test_a_certificate_far_above_rounding_needs_no_look_at_single_terms(monkeypatch) -> None:
    """Where it holds; one that does not is looked at term by term."""
    X, y = np.random.default_rng(0).standard_normal((200, 5)), np.tile([1.0, -1.0], 100)
    looked = []
    plain = certificate.loss_gaps
    monkeypatch.setattr(
        certificate, "loss_gaps", lambda *args: looked.append(0) or plain(*args)
    )
    for intercept in (False, True):
        found = solve(svm(X, y, C=0.1, intercept=intercept), tol=1e-6)
        looked.clear()
        pair = found.x, found.theta
        assert certify(found.problem, *pair, tol=1e-6).ok
        assert not looked
        assert not certify(found.problem, 2.0 * found.x, found.theta, tol=1e-6).ok
        assert looked


def test_the_noise_of_a_smooth_term_is_charged_as_it_changes_the_term() -> None:
    """On a parabola ``(t - theta)^2 / 2`` within noise that is attained."""
    one, noise = np.ones(1), 1e-4
    columns = (0.0 * one, 0.0 * one, one, -10.0 * one, 10.0 * one)  # Huber's loss
    for t, theta in ((1.0, 0.4), (1.0, 1.0), (-2.0, 0.5)):
        value = certificate.value_above(t * one, *columns, certificate.steepness(one))
        pair = t * one, theta * one, noise, value
        coarse = certificate.gap_above(*pair, *columns)
        bound = float(certificate.smooth_gap_above(coarse, *pair, columns)[0])
        worst = 0.5 * (abs(t - theta) + noise) ** 2
        assert worst <= bound <= worst + 1e-6 * noise
        plain = 0.5 * (t - theta) ** 2
        if t != theta:
            assert plain + 0.99 * (bound - plain) < worst


def test_the_noise_of_a_term_on_its_flat_piece_is_charged_with_theta_alone() -> None:
    """A steep hinge beyond its kink: the worst end is attained, a hundredth less is too little."""
    one, noise = np.ones(1), 1e-6
    columns = (one, 0.0 * one, 0.0 * one, -1e6 * one, 0.0 * one)  # 1e6 max(0, 1 - t)
    for beyond in (2.0 * noise, 0.5):
        t, theta = 1.0 + beyond, -0.3
        bound = float(certificate.gap_above(t * one, theta * one, noise, 0.0 * one, *columns)[0])
        plain, worst = -theta * beyond, -theta * (beyond + noise)
        assert worst <= bound <= worst + 1e-14
        assert plain + 0.99 * (bound - plain) < worst
    # Within the noise of the kink the slope counts.
    near = certificate.gap_above(one, -0.3 * one, noise, 0.0 * one, *columns)
    assert near >= 1e6 * noise


@pytest.mark.parametrize("loss", ["huber", "squared_hinge", "smoothed_hinge"])
def test_smooth_losses_of_features_far_from_zero_are_certified(loss: str) -> None:
    """With a mean of 1e4 the margins' rounding is large, the terms' change by it is not."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 10))
    s = X @ rng.standard_normal(10) / 3.0 + 0.7 * rng.standard_normal(3000)
    if loss == "huber":
        problem = regression(X + 1e4, s, loss=loss, intercept=True)
    else:
        problem = svm(X + 1e4, np.sign(s), loss=loss, intercept=True)
    found = solve(problem)
    assert found.status == "optimal"
    worse = certify(problem, found.x + 1e-3 * np.abs(found.x).max(), found.theta)
    assert not worse.ok


def test_a_wrong_linear_term_is_noticed() -> None:
    """The linear term takes part: certify the optimum of one problem on another."""
    ref, theta = feasible_optimum(Case("smoothed_hinge"))
    other = replace(ref.problem, linear=np.full(ref.problem.d, 0.05))
    assert not certify(other, ref.x, theta, tol=TOL).ok
    point = reference_point(other, ref.x, theta)
    assert certify(other, ref.x, theta).gap == pytest.approx(point.gap, rel=1e-6)


def test_what_a_problem_inherited_of_rounding_is_charged() -> None:
    """A linear term off by `drift`: the gap bounds the suboptimality for the exact one."""
    f = Losses([-10.0], 0.0, 0.0, -1.0, 0.0)
    q, off = np.array([0.1, 0.7]), np.array([3e-4, -4e-4])
    exactly = Problem(Rows([[1.0, 1.0]]), f, Quadratic(np.ones(2)), q)
    rounded = replace(exactly, linear=q + off, drift=5e-4)
    x = -rounded.linear
    missed = exactly.primal(x) - exactly.primal(-q)
    assert missed == pytest.approx(0.5 * 25e-8, rel=1e-6)
    assert certify(rounded, x, np.zeros(1)).gap >= missed * (1 - 1e-6)


def test_rounding_of_a_linear_term_is_charged() -> None:
    """theta = 0 and ``x = -q / m`` rounded: the gap is tiny, not zero, and not below the truth."""
    f = Losses([-10.0], 0.0, 0.0, -1.0, 0.0)
    q, m = np.array([0.1, 0.7]), np.array([3.0, 7.0])
    problem = Problem(Rows([[1.0, 1.0]]), f, Quadratic(m), q)
    x = -q / m
    proof = certify(problem, x, np.zeros(1))
    true = sum(
        (mm * (xx + qq / mm) ** 2 / 2 for mm, xx, qq in zip(exact(m), exact(x), exact(q),
                                                            strict=True)), Fraction(0)
    )
    assert true > 0
    assert Fraction(proof.gap) >= true
    assert Fraction(reference_point(problem, x, np.zeros(1)).gap) >= true


# What a dual point costs that is out of balance on an unpenalised coordinate: enough, or all.

KINKS, WEIGHTS, SIGNS = np.array([1.0, 1.0, 0.0]), np.array([2.0, 1.0, 5.0]), np.array([1, -1, 1])
"""2 max(0, 1 - b) + max(0, 1 + b) + 5 max(0, -b): 3 at b = 0, and 2 at its minimum b = 1."""


def in_memory() -> cs.Problem:
    losses = cs.Losses(KINKS, 0.0, 0.0, -WEIGHTS, 0.0)
    rows = Rows(np.zeros((3, 1)), None, SIGNS[:, None].astype(float))
    return cs.Problem(rows, losses, cs.Quadratic(np.array([1.0, 0.0])), np.zeros(2))


def in_chunks() -> cs.Problem:
    terms = ChunkTerms(3, UnitLoss(0.0, 0.0, 0.0, -1.0, 0.0), KINKS, WEIGHTS)
    design = Chunks(
        Blocks((np.zeros((2, 1)), np.zeros((1, 1)))), LocalEngine(), SIGNS, intercept=True
    )
    return cs.Problem(design, terms, cs.Quadratic(np.array([1.0, 0.0])), np.zeros(2))


@pytest.mark.parametrize(
    ("problem", "certify"), [(in_memory(), cs.certify), (in_chunks(), certify_chunks)]
)
def test_the_cost_is_that_of_the_direction_that_is_needed(problem: Any, certify: Any) -> None:
    # At b = 0 the slopes (-2, -1, 0) leave no Fenchel-Young term, and are out of balance by 1. To
    # raise the first costs exactly what is missing; to lower the third would cost nothing.
    x, theta = np.zeros(2), np.array([-2.0, -1.0, 0.0])
    proof = certify(problem, x, theta)
    assert proof.primal == pytest.approx(3.0)
    assert 1.0 <= proof.gap <= 1.0 + 1e-5
    best = certify(problem, np.array([0.0, 1.0]), np.array([-1.0, -1.0, 0.0]))
    assert best.primal == pytest.approx(2.0)
    assert best.gap <= 1e-12


@pytest.mark.parametrize("room", [1e-3, 0.5])
def test_several_coordinates_need_room_for_the_move(room: float) -> None:
    losses = cs.Losses(np.zeros(2), 0.0, 0.0, -1.0, 0.0)
    rows = Rows(np.zeros((2, 1)), None, np.eye(2))
    linear = np.array([0.0, room - 0.1, room - 0.1])
    problem = cs.Problem(rows, losses, cs.Quadratic(np.array([1.0, 0.0, 0.0])), linear)
    proof = cs.certify(problem, np.zeros(3), np.full(2, -room))
    assert np.isinf(proof.within) == (room > 0.1)
    assert np.isfinite(proof.within) == (proof.gap > 1.0)


def test_the_terms_that_are_asked_first_may_cost_little_more_but_never_less(
    rng: np.random.Generator,
) -> None:
    """One in many is asked, and all of them where that is no longer negligible."""
    n = 5000
    problem = cs.regression(rng.standard_normal((n, 2)), rng.standard_normal(n), loss="absolute",
                            intercept=True)
    theta = rng.uniform(-0.5, 0.5, n)
    theta -= theta.mean()
    margins = problem.losses.b + rng.uniform(0.1, 1.0, n)
    least = int(margins.argmin()) | 1  # not one of those asked first
    margins[least] = 0.0

    def cost(residual: float, negligible: float) -> float:
        pull = np.array([0.0, 0.0, residual])
        return imbalance_cost(problem, theta, margins, pull, 0.0, negligible)

    first, best = cost(1e-12, np.inf), cost(1e-12, 0.0)
    assert 0.0 < best < first < 100.0 * best
    assert cost(1e-12, 1.01 * first) == first
    assert cost(1e-12, 0.99 * first) == best
    assert cost(0.1, 1e-9) > 1e-3
    assert cost(10.0, np.inf) == np.inf  # no term has so much room
