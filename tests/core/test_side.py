"""Side constraints: the multipliers' part of gap and certificate, its rounding, feasibility."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from exact import Exact, Fraction, dot, exact
from strategies import Case, build

from cvxscreen.certificates.certificate import certify
from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.duality import reference_point
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput


def boxed(size: float, n: int = 20) -> Problem:
    """``x <= 1e-3`` in every coordinate, badly scaled: multipliers matter."""
    base = build(Case("hinge", n=n))
    d = base.d
    scale = size ** np.linspace(-1, 1, d)
    side = SideConstraints(sp.diags_array(-scale), 1e-3 * scale, [("nonneg", d)])
    return Problem(base.design, base.losses, base.quadratic, base.linear, side=side)


@pytest.mark.parametrize("size", [1.0, 1e3, 1e6])
def test_gap_with_side_constraints_bounds_the_exact_gap(
    size: float, rng: np.random.Generator
) -> None:
    """The multipliers' part in rational arithmetic, large and small multipliers mixed."""
    problem = boxed(size)
    assert problem.side is not None
    F = [exact(row) for row in problem.side.matrix.toarray()]
    f = exact(problem.side.offset)
    model = Exact(problem)
    for _ in range(40):
        x = -np.abs(rng.standard_normal(problem.d)) * rng.choice([1e-6, 1.0])
        mu = np.abs(rng.standard_normal(problem.d)) * size ** rng.uniform(-1, 1, problem.d)
        point = reference_point(problem, x, rng.uniform(-1, 0, problem.n), mu)
        assert point.feasible
        pushed = Exact(problem)
        pushed.linear = [
            q - dot(list(column), exact(point.multipliers))
            for q, column in zip(model.linear, zip(*F, strict=True), strict=True)
        ]
        slack = [dot(row, exact(x)) + value for row, value in zip(F, f, strict=True)]
        true = pushed.gap(exact(x), exact(point.theta)) + dot(exact(point.multipliers), slack)
        assert Fraction(point.gap) >= true


def test_rounding_of_multipliers_is_charged() -> None:
    """At an optimum held by multipliers the gap is rounding; it is not below the exact gap."""
    rng = np.random.default_rng(6)
    for _ in range(60):
        d = 3
        F = rng.standard_normal((d, d)) * 10.0 ** rng.uniform(-3, 3, (d, 1))
        x = rng.standard_normal(d)
        mu = np.abs(rng.standard_normal(d)) * 10.0 ** rng.uniform(-3, 3, d)
        # Slack just large enough to be provably feasible; x is then almost F' mu / M.
        offset = -(F @ x) + 1e-13 * (np.abs(F) @ np.abs(x))
        side = SideConstraints(F, offset, [("nonneg", d)])
        problem = Problem(
            Rows(np.zeros((1, d))), Losses([1.0], 0.0, 0.0, 0.0, 0.0), Quadratic(np.ones(d)),
            x * 0.0, side=side,
        )
        problem = replace(problem, linear=F.T @ mu - x)
        point = reference_point(problem, x, np.zeros(1), mu)
        assert point.feasible
        rows, f = [exact(row) for row in F], exact(offset)
        pushed = Exact(problem)
        pushed.linear = [
            q - dot(list(column), exact(mu))
            for q, column in zip(pushed.linear, zip(*rows, strict=True), strict=True)
        ]
        slack = [dot(row, exact(x)) + value for row, value in zip(rows, f, strict=True)]
        true = pushed.gap(exact(x), [Fraction(0)]) + dot(exact(mu), slack)
        assert Fraction(point.gap) >= true
        assert Fraction(certify(problem, x, np.zeros(1), mu).gap) >= true
        dual = pushed.dual_point(exact(x), [Fraction(0)])
        off = [a - b for a, b in zip(exact(point.x_theta), dual, strict=True)]
        assert Fraction(point.dual_error) ** 2 >= dot(off, off)


def test_a_point_outside_its_side_constraints_is_not_called_feasible() -> None:
    """On the wrong side of an inequality, or of a cone that cannot be checked for certain."""
    problem = boxed(1.0)
    assert reference_point(problem, np.zeros(problem.d)).feasible
    assert not reference_point(problem, np.full(problem.d, 1.0)).feasible
    assert not reference_point(problem, np.full(problem.d, 1e-3)).feasible


# -- in the certificate -------------------------------------------------------------------------


def pinned() -> tuple[Problem, np.ndarray, np.ndarray, np.ndarray]:
    """One hinge term that wants x1 large, ``x1 <= 1/4`` and ``x2 = 1``; optimum by hand.

    minimise 1/2 |x|^2 + max(0, 1 - x1): without the bound x1 = 1; with it x = (1/4, 1),
    theta = -1, multiplier of 1/4 - x1 >= 0 equal to 3/4, of x2 - 1 = 0 equal to 1.
    """
    side = SideConstraints(
        sp.csr_matrix([[-1.0, 0.0], [0.0, 1.0]]), [0.25, -1.0], [("nonneg", 1), ("zero", 1)]
    )
    problem = Problem(
        Rows([[1.0, 0.0]]), Losses([1.0], 0.0, 0.0, -1.0, 0.0), Quadratic([1.0, 1.0]),
        np.zeros(2), side=side,
    )
    return problem, np.array([0.25, 1.0]), np.array([-1.0]), np.array([0.75, 1.0])


def test_side_constraints_are_part_of_the_proof() -> None:
    """Right multipliers certify; wrong ones, missing ones and a violated constraint do not."""
    problem, x, theta, mu = pinned()
    assert certify(problem, x, theta, mu, tol=1e-9).ok
    assert certify(problem, x, theta, mu, tol=1e-9).gap <= 1e-13
    for wrong in (mu + np.array([0.1, 0.0]), mu - np.array([0.0, 0.1]), None):
        assert not certify(problem, x, theta, wrong, tol=1e-9).ok
    negative = certify(problem, x, theta, [-0.75, 1.0], tol=0.5)
    assert not negative.ok
    assert "dual cone" in negative.reason
    for moved in ([0.25 + 1e-3, 1.0], [0.25, 1.0 + 1e-3]):
        outside = certify(problem, moved, theta, mu, tol=1e-4)
        assert not outside.ok
    far = certify(problem, [0.25, 1.0 + 1e-3], theta, mu, tol=0.2)
    assert far.violation == pytest.approx(1e-3)


def test_violated_constraints_are_named() -> None:
    """A point that is optimal but for its violation is refused because of it."""
    problem, x, theta, mu = pinned()
    assert problem.side is not None
    tight = replace(problem, side=SideConstraints(problem.side.matrix, [0.2499, -1.0],
                                                  problem.side.dims))
    proof = certify(tight, x, theta, mu, tol=1e-5)
    assert not proof.ok
    loose = certify(tight, x, theta, mu, tol=1e-2)
    assert loose.violation == pytest.approx(1e-4)
    free = certify(problem, [1.0, 1.0], theta, [0.0, 1.0], tol=1e-2)  # as if x1 <= 1/4 were not
    assert free.gap <= 1e-13
    assert not free.ok
    assert "side constraints" in free.reason


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_multipliers_that_are_no_numbers_are_refused(bad: float) -> None:
    """NaN or infinity among the multipliers is refused like any other."""
    problem, x, theta, mu = pinned()
    mu[0] = bad
    proof = certify(problem, x, theta, mu, tol=0.5)
    assert not proof.ok


def test_multipliers_of_a_wrong_shape_are_an_error() -> None:
    """Their number is the number of constraint rows."""
    problem, x, theta, mu = pinned()
    with pytest.raises(InvalidInput, match="multipliers"):
        certify(problem, x, theta, mu[:1])


def test_multipliers_a_little_outside_the_dual_cone_prove_nothing() -> None:
    """A negative multiplier of 1e-6 on a slack of 1000 may not pay for another one's gap.

    minimise 1/2 |x|^2 + 1000 x2 + 1 with x1 >= -1000, x2 >= 0: optimum x = 0, value 1.
    """
    side = SideConstraints(np.eye(2), [1e3, 0.0], [("nonneg", 2)])
    problem = Problem(
        Rows(np.zeros((1, 2))), Losses([0.0], 0.0, 0.0, 0.0, 0.0), Quadratic([1.0, 1.0]),
        np.array([0.0, 1e3]), 1.0, side=side,
    )
    x2 = 1e-6
    mu2 = 1e3 + x2
    # mu1 = x1 cancels the complementarity of the second row: mu1 (mu1 + 1000) = -mu2 x2.
    mu1 = -500.0 + float(np.sqrt(250000.0 - mu2 * x2))
    x, mu = np.array([mu1, x2]), np.array([mu1, mu2])
    off = problem.primal(x) - 1.0
    assert off > 9e-4
    proof = certify(problem, x, np.zeros(1), mu, tol=1e-5)
    assert not proof.ok
    assert proof.gap >= off * (1 - 1e-9)
