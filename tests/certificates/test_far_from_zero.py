"""Certificates of data far from 0: the same problem about their centre, rounding included."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from exact import Exact, Fraction, dot, exact

from cvxscreen.api import solve
from cvxscreen.certificates import certificate
from cvxscreen.certificates.certificate import about_centre, certify
from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.designs.shift import Shift
from cvxscreen.models.linear import regression, svm

OFF = np.array([1e4, -1e6, 0.0, 3e5])


def data(kind: str = "float64", n: int = 130) -> tuple[np.ndarray, np.ndarray]:
    """Rows of which some entries are rounded by a shift, and targets."""
    rng = np.random.default_rng(8)
    X = rng.standard_normal((n, 4))
    y = X @ np.arange(4.0) + rng.standard_normal(n)
    X += OFF
    X[1] *= 1e-3  # no sample has this row; none of these differences is exact
    return X.astype(kind), y


def problem_of(loss: str, kind: str = "float64", n: int = 130) -> Problem:
    X, y = data(kind, n)
    if "hinge" in loss:
        return svm(X, np.where(y > 0, 1.0, -1.0), loss=loss, C=3.0, intercept=True)
    return regression(X, y, loss=loss, C=3.0, intercept=True)


def shifted(problem: Problem, mean: np.ndarray) -> list[list[Fraction]]:
    """The rows about `mean` without rounding."""
    rows, m = Exact(problem).rows, exact(mean)
    return [[a - row[-1] * b for a, b in zip(row, m, strict=True)] for row in rows]


@pytest.mark.parametrize("kind", ["float64", "float32"])
@pytest.mark.parametrize("loss", ["hinge", "huber"])
def test_margins_and_pulls_are_those_of_the_data(loss: str, kind: str) -> None:
    """Within the bounds of the shifted rows, against rational arithmetic: quick and precise."""
    problem = problem_of(loss, kind)
    rng = np.random.default_rng(9)
    x, theta = rng.standard_normal(5), rng.standard_normal(130)
    x[4] -= OFF @ x[:4]
    about = about_centre(problem, x)
    assert about is not None
    near, moved = about
    assert np.abs(near.design.matrix).max() < 1e-3 * np.abs(problem.design.matrix).max() + 1e6
    truth, index = Exact(problem).margins(exact(x)), np.arange(130)
    error = near.design.forward_error(moved, near.sizes)
    precise, left = near.design.forward_precise(index, moved)
    for found, bound in ((near.design.forward(moved), error), (precise, left)):
        for t, e, true in zip(found, bound, truth, strict=True):
            assert abs(Fraction(float(t)) - true) <= Fraction(float(e))
    shift = Shift.of(problem.design, np.arange(5) < 4)
    assert shift is not None
    assert (shift.free, shift.mean[4]) == (4, 0.0)
    columns = list(zip(*shifted(problem, shift.mean), strict=True))
    for factor, found in (
        (near.design.adjoint_factor, near.design.adjoint(theta)),
        near.design.adjoint_precise(theta)[::-1],
    ):
        for value, column in zip(found, columns, strict=True):
            true = dot(list(column), exact(theta))
            size = dot([abs(a) for a in column], exact(np.abs(theta)))
            room = Fraction(factor) * size + abs(true) / 2**52
            assert abs(Fraction(float(value)) - true) <= room


def test_what_was_rounded_before_is_charged() -> None:
    """By one rounding more in every bound, of rows and columns taken out of them, too."""
    X = np.random.default_rng(0).standard_normal((6, 3))
    plain, rounded = Rows(X), Rows(X, roundings=1)
    x, theta = np.ones(3), np.ones(6)
    unit = 2.0**-53
    for taken in (lambda rows: rows, lambda rows: rows.take_rows(np.arange(6)),
                  lambda rows: rows.take_columns(np.arange(3))):
        a, b = taken(plain), taken(rounded)
        assert b.forward_factor - a.forward_factor == pytest.approx(unit, rel=1e-3)
        assert b.adjoint_factor - a.adjoint_factor == pytest.approx(unit, rel=1e-3)
        sizes = np.linalg.norm(X, axis=1)
        assert (b.forward_error(x, sizes) > a.forward_error(x, sizes)).all()
        more = b.forward_precise(np.arange(6), x)[1] - a.forward_precise(np.arange(6), x)[1]
        assert more == pytest.approx(1.01 * unit * np.abs(X).sum(axis=1), rel=1e-6)
        more = b.adjoint_precise(theta)[1] - a.adjoint_precise(theta)[1]
        assert more == pytest.approx(1.01 * unit, rel=1e-6)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "absolute", "huber"])
def test_the_gap_is_no_less_than_it_is(loss: str, rng: np.random.Generator) -> None:
    """``P(x) - D(theta)`` in rational arithmetic, at optima and away from them.

    Slopes are whole multiples of 2^-20 with the sum 0, so that they balance exactly.
    """
    problem = problem_of(loss)
    assert problem.design.scale is None or (np.abs(problem.design.scale) == 1.0).all()
    best, model = solve(problem, tol=1e-10), Exact(problem)
    f, e = problem.losses, problem.free_columns[:, 0]
    grid = np.round(best.theta * 2**20) / 2**20
    i = int(np.argmax(np.minimum(grid - f.lo, f.hi - grid)))
    grid[i] -= e[i] * float(e @ grid)
    assert f.lo[i] <= grid[i] <= f.hi[i]
    for size in (0.0, 1e-9, 1e-3):
        x = best.x.copy()
        x[:4] += size * rng.standard_normal(4)
        x[4] -= OFF @ (x[:4] - best.x[:4])
        true = model.gap(exact(x), exact(grid))
        about = about_centre(problem, x)
        assert about is not None
        near, moved = about
        proof = certificate._judged(near, moved, grid, np.zeros(0), 1e-6, None)
        assert Fraction(proof.gap) >= true
        assert float(true) >= 0.9 * proof.gap or proof.gap <= 1e-6 * abs(proof.primal)
        # The margin of the row that is far from the others has the rounding of its length.
        assert proof.primal == pytest.approx(float(model.primal(exact(x))), rel=1e-10)
        assert certify(problem, x, grid, tol=1e-15).gap <= proof.gap


@pytest.mark.parametrize("loss", ["hinge", "absolute", "huber"])
def test_rounding_far_from_0_is_no_gap(loss: str) -> None:
    """What was ten times too much to certify is certified, and a bad answer still is not."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((300, 6))
    y = X @ np.ones(6) + 0.1 * rng.standard_normal(300)
    X = (X + 1e5) * 10.0 ** np.arange(6)
    if loss == "hinge":
        problem = svm(X, np.where(y > 0, 1.0, -1.0), C=1e3, intercept=True)
    else:
        problem = regression(X, y, loss=loss, C=1e3, intercept=True)
    found = solve(problem, tol=1e-7)
    assert found.status == "optimal", found.certificate
    given = certificate._judged(problem, found.x, found.theta, np.zeros(0), 1e-7, None)
    assert not given.ok
    assert given.gap > 10.0 * found.certificate.gap
    away = found.x.copy()
    away[0] *= 1.01
    away[6] -= 0.01 * found.x[0] * X[:, 0].mean()
    refused = certify(problem, away, found.theta, tol=1e-7)
    assert not refused.ok
    assert refused.gap >= 0.99 * (refused.primal - found.certificate.primal)


def test_what_is_left_as_it_is() -> None:
    """Near rows, sparse ones, and coordinates that something else knows of."""
    X, y = data()
    x = np.ones(5)
    assert about_centre(regression(X, y), x[:4]) is None
    assert about_centre(regression(X - OFF, y, intercept=True), x) is None
    assert about_centre(regression(sp.csr_matrix(X), y, intercept=True), x) is None
    problem = regression(X, y, intercept=True)
    assert about_centre(problem, x) is not None
    assert about_centre(replace(problem, linear=np.eye(5)[4]), x) is None
    assert about_centre(replace(problem, linear=np.eye(5)[2]), x) is not None
    bound = SideConstraints(np.eye(5)[4:], np.zeros(1), [("nonneg", 1)])
    assert about_centre(replace(problem, side=bound), x) is None
    assert about_centre(problem, 1e300 * x) is None
    losses, form = Losses(y, 0.0, 0.0, -1.0, 1.0), Quadratic([1.0] * 4 + [0.0])
    thirds = Problem(Rows(X, None, np.full((130, 1), 1.0 / 3.0)), losses, form, np.zeros(5))
    assert about_centre(thirds, x) is None
