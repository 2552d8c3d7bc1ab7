"""The rounding factors of the row designs really bound the error, against rational arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from exact import Fraction, dot, exact, solve
from mpmath import mp

import cvxscreen
from cvxscreen._support.rounding import UNIT, gamma, up
from cvxscreen.bounds.regions import Ball
from cvxscreen.bounds.regions.balls import Pencil
from cvxscreen.bounds.regions.margins import Functionals, outward
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.chunks import Chunks
from cvxscreen.designs.rows import Rows, column_squares, row_squares
from cvxscreen.out_of_core.streams import Blocks, LocalEngine

KINDS = ["dense64", "dense32", "csr64", "csr32"]
SCALES = ["plain", "columns", "rows", "cancelling"]


def design(kind: str, scale: str, n: int, p: int, seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    if scale == "columns":
        X *= 10.0 ** np.linspace(-6, 6, p)
    elif scale == "rows":
        X *= 10.0 ** rng.uniform(-6, 6, (n, 1))
    elif scale == "cancelling":
        X[:, 1::2] = -X[:, : p // 2 * 2 : 2] * (1 + 1e-7 * rng.standard_normal((n, p // 2)))
    if kind.endswith("32"):
        X = X.astype(np.float32)
    matrix = sp.csr_matrix(X) if kind.startswith("csr") else X
    return Rows(matrix, rng.uniform(0.5, 2.0, n), rng.standard_normal((n, 1)))


def rational(rows: Rows) -> list[list[Fraction]]:
    """The design's rows without rounding: scale times entry."""
    matrix = rows.matrix.toarray() if rows.sparse else rows.matrix
    raw = np.hstack([np.asarray(matrix, dtype=np.float64), rows.extra])
    assert rows.scale is not None
    return [
        [Fraction(float(s)) * value for value in exact(row)]
        for s, row in zip(rows.scale, raw, strict=True)
    ]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("kind", KINDS)
def test_forward_error_is_within_its_factor(kind: str, scale: str) -> None:
    """``|computed - exact| <= forward_factor sum |a_ij x_j|`` in every row, precise ones too."""
    rows = design(kind, scale, 30, 20, 1)
    x = np.random.default_rng(2).standard_normal(21)
    if scale == "columns":
        x[:-1] /= 10.0 ** np.linspace(-6, 6, 20)
    computed = rows.forward(x)
    index = np.arange(0, 30, 3)
    precise, left = rows.forward_precise(index, x)
    factor = Fraction(rows.forward_factor)
    for i, row in enumerate(rational(rows)):
        true, size = dot(row, exact(x)), dot([abs(a) for a in row], exact(np.abs(x)))
        assert abs(Fraction(float(computed[i])) - true) <= factor * size
        if i in index:
            k = int(i) // 3
            assert abs(Fraction(float(precise[k])) - true) <= Fraction(float(left[k]))


@pytest.mark.parametrize("kind", KINDS)
def test_zeros_of_a_point_round_nothing(kind: str) -> None:
    """Three entries of 400 that are not 0: the error is that of as few."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((40, 400)) * 10.0 ** rng.uniform(-3, 3, 400)
    if "32" in kind:
        X = X.astype(np.float32)
    rows = Rows(sp.csr_matrix(X) if "csr" in kind else X, np.full(40, -2.0), np.ones((40, 1)))
    x = np.zeros(401)
    x[[7, 200, 400]] = rng.standard_normal(3)
    bound = rows.forward_error(x, np.sqrt(rows.weighted_squares(np.ones(401))))
    computed = rows.forward(x)
    for i, row in enumerate(rational(rows)):
        assert abs(Fraction(float(computed[i])) - dot(row, exact(x))) <= Fraction(float(bound[i]))
    full = rng.standard_normal(401)
    full *= np.linalg.norm(x) / np.linalg.norm(full)
    assert bound.max() < 0.05 * rows.forward_error(full, np.ones(40) * 1e4).max()


@pytest.mark.parametrize("kind", KINDS)
def test_forward_error_beside_features_far_off(kind: str) -> None:
    """An intercept as large as features at 1e8, and it meets ones: no product of two such norms."""
    rng = np.random.default_rng(7)
    X, sign = rng.standard_normal((60, 4)) + 1e8, rng.choice([-2.0, 2.0], 60)
    if "32" in kind:
        X = X.astype(np.float32)
    rows = Rows(sp.csr_matrix(X) if "csr" in kind else X, sign, np.ones((60, 1)))
    w = rng.standard_normal(4)
    x = np.append(w, -1e8 * w.sum())
    bound = rows.forward_error(x, np.sqrt(rows.weighted_squares(np.ones(5))))
    computed, factor = rows.forward(x), Fraction(rows.forward_factor)
    for i, row in enumerate(rational(rows)):
        size = dot([abs(a) for a in row], exact(np.abs(x)))
        error = abs(Fraction(float(computed[i])) - dot(row, exact(x)))
        assert error <= factor * size <= Fraction(float(bound[i])) * (1 + Fraction(1, 10**12))
        assert bound[i] <= 1.001 * factor * size


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("kind", KINDS)
def test_adjoint_error_is_within_its_factor(
    kind: str, scale: str, counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for columns, over more rows than one block; their entries counted, as of many."""
    if counted:
        monkeypatch.setattr("cvxscreen.designs.rows._COUNTED", 0)
    rows = design(kind, scale, 1100, 3, 3)
    theta = np.random.default_rng(4).standard_normal(1100)
    computed = rows.adjoint(theta)
    factor = Fraction(rows.adjoint_factor)
    columns = list(zip(*rational(rows), strict=True))
    for j, column in enumerate(columns):
        true = dot(list(column), exact(theta))
        size = dot([abs(a) for a in column], exact(np.abs(theta)))
        assert abs(Fraction(float(computed[j])) - true) <= factor * size


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("kind", KINDS)
def test_precise_adjoint_error_is_within_its_factor(kind: str, scale: str) -> None:
    """Of columns that nearly balance, so that rounding the result to double hides nothing."""
    rows = design(kind, scale, 1100, 3, 3)
    whole = rows.dense()
    theta = np.random.default_rng(4).standard_normal(1100)
    theta -= np.linalg.lstsq(whole.T, whole.T @ theta, rcond=None)[0]
    computed, given = rows.adjoint_precise(theta)
    factor, unit = Fraction(given), Fraction(1, 2**53)
    assert given == pytest.approx(0.5 * rows.adjoint_factor * np.finfo(np.longdouble).eps
                                  / np.finfo(np.float64).eps, rel=3.0)
    for j, column in enumerate(zip(*rational(rows), strict=True)):
        true = dot(list(column), exact(theta))
        size = dot([abs(a) for a in column], exact(np.abs(theta)))
        assert abs(Fraction(float(computed[j])) - true) <= factor * size + unit * abs(true)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("kind", KINDS)
def test_norms_err_by_less_than_the_regions_charge(kind: str, scale: str) -> None:
    """Squared norms are right up to ``gamma(d + 8)`` relative, which every interval adds."""
    rows = design(kind, scale, 20, 9, 5)
    weights = 10.0 ** np.random.default_rng(6).uniform(-3, 3, 10)
    computed = rows.weighted_squares(weights)
    allowed = Fraction(gamma(10 + 8))
    for value, row in zip(computed, rational(rows), strict=True):
        true = dot([a * a for a in row], exact(weights))
        assert abs(Fraction(float(value)) - true) <= allowed * true


@pytest.mark.parametrize("bend", [1e-3, 1.0, 1e6, 1e10])
def test_norms_of_a_dense_quadratic_are_not_too_small(bend: float) -> None:
    """``||a||`` in the metric of a dense M with the region's charge bounds the exact norm."""
    rng = np.random.default_rng(8)
    rows = Rows(rng.standard_normal((12, 4)))
    B = rng.standard_normal((3, 4)) * np.sqrt(bend)
    quadratic = Quadratic(np.ones(4), B.T @ B)
    problem = Problem(
        rows, Losses(np.zeros(12), 0.0, 0.0, -1.0, 1.0), quadratic, np.zeros(4)
    )
    ball = Ball(problem, "test", np.zeros(4), np.zeros(12), 1.0, 0.0)
    _, high = ball.intervals()
    M = [exact(row) for row in quadratic.dense()]
    for end, row in zip(high, rows.dense(), strict=True):
        inverse = solve(M, exact(row))
        assert inverse is not None
        true = dot(exact(row), inverse)
        assert Fraction(float(end)) ** 2 >= true
        # The charge is rounding, not slack: less than 1e-3 even at a condition number of 1e10.
        assert float(end) ** 2 <= float(true) * (1 + 1e-3)


def test_gamma_is_the_textbook_constant() -> None:
    """``k u / (1 - k u)``, at least k u, infinite where it says nothing."""
    for k in (0, 1, 7, 10**6):
        assert Fraction(gamma(k)) >= Fraction(k) * Fraction(UNIT)
        assert gamma(k) == pytest.approx(k * UNIT, rel=1e-9)
    assert gamma(2.0**53) == float("inf")


def test_up_exceeds_the_exact_value() -> None:
    """A rounded sum, product or root moved up is not below the exact one."""
    rng = np.random.default_rng(9)
    for _ in range(200):
        parts = rng.uniform(0, 1, 8)
        assert Fraction(up(float(parts.sum()))) >= sum(exact(parts), Fraction(0))
        root = up(float(np.sqrt(parts[0])))
        assert Fraction(root) ** 2 >= Fraction(float(parts[0]))
    assert up(0.0) > 0.0


def test_intervals_are_rounded_outward(rng: np.random.Generator) -> None:
    """``middle -+ reach`` is never inside of the exact interval."""
    middle = rng.standard_normal(2000) * 10.0 ** rng.uniform(-8, 8, 2000)
    reach = rng.uniform(0, 1, 2000) * 10.0 ** rng.uniform(-8, 8, 2000)
    for m, r, low, high in zip(middle, reach, *outward(middle, reach), strict=True):
        assert Fraction(float(low)) <= Fraction(m) - Fraction(r)
        assert Fraction(float(high)) >= Fraction(m) + Fraction(r)


def test_norms_of_rows_as_a_region_takes_them_are_not_too_small(rng: np.random.Generator) -> None:
    """Upper bounds of the exact norms, row by row."""
    rows = Rows(rng.standard_normal((60, 7)))
    losses = Losses(np.zeros(60), 0.0, 0.0, -1.0, 1.0)
    problem = Problem(rows, losses, Quadratic(np.ones(7)), np.zeros(7))
    for norm, row in zip(Functionals.rows(problem).norms, rows.dense(), strict=True):
        assert Fraction(float(norm)) ** 2 >= dot(exact(row), exact(row))


def test_balls_of_a_pencil_are_rounded_outward(rng: np.random.Generator) -> None:
    """Two balls that nearly touch, a half-space that nearly misses: cancellation at every y."""
    for _ in range(300):
        a0, a2, y = (float(v) for v in rng.uniform(0.1, 2.0, 3))
        a1 = -2.0 * float(np.sqrt(a0 * a2))
        radius = float(Pencil(a0, a1, a2).radius(np.array([y]))[0])
        F = Fraction
        assert F(radius) ** 2 >= F(a0) + F(y) * (F(a1) + F(y) * F(a2))
        y, end = y / 2.0, float(rng.uniform(0.1, 2.0))
        apart = (np.sqrt(a0) + np.sqrt(end)) ** 2
        radius = float(Pencil(a0, end - a0 - apart, apart, end).radius(np.array([y]))[0])
        assert F(radius) ** 2 >= (1 - F(y)) * F(a0) + F(y) * F(end) - F(y) * (1 - F(y)) * F(apart)


@pytest.mark.parametrize(
    "kind", ["diagonal", "dense metric", "scaled", "extra", "sparse", "chunks", "sparse chunks"]
)
def test_norms_of_rows_whose_squares_underflow_are_not_too_small(kind: str) -> None:
    """Rows of zeros keep theirs; what is only small is taken for longer, never for shorter."""
    rng = np.random.default_rng(0)
    X = 10.0 ** rng.uniform(-320.0, -140.0, (60, 1)) * rng.standard_normal((60, 4))
    X[::7] = 0.0
    exact = [mp.sqrt(mp.fsum(mp.mpf(float(v)) ** 2 for v in row)) for row in X]
    form, by = Quadratic(np.ones(4)), 1.0
    rows: Rows | Chunks = Rows(X)
    if kind == "dense metric":
        form = Quadratic(np.zeros(4), np.eye(4))
    elif kind == "scaled":
        rows, by = Rows(X, np.full(60, 1e100)), 1e100
    elif kind == "extra":
        rows = Rows(X[:, :3], None, X[:, 3:])
    elif kind == "sparse":
        rows = Rows(sp.csr_matrix(X))
    elif "chunks" in kind:
        kept = sp.csr_matrix(X) if "sparse" in kind else X
        rows = Chunks(Blocks((kept[:25], kept[25:])), LocalEngine(), np.full(60, -1.0))
    norms = form.dual_norms(rows) * (1.0 + gamma(16))
    assert all(a >= by * b for a, b in zip(norms, exact, strict=True))
    assert not norms[::7].any()
    assert norms.max() <= by * float(max(exact)) * (1.0 + 1e-6) + by * 1e-152


@pytest.mark.parametrize("kind", ["dense", "scaled", "sparse", "sparse scaled"])
def test_norms_of_columns_whose_squares_underflow_are_not_too_small(kind: str) -> None:
    """Columns of zeros keep theirs; what is only small is taken for longer, never for shorter."""
    rng = np.random.default_rng(0)
    X = 10.0 ** rng.uniform(-320.0, -140.0, (1, 60)) * rng.standard_normal((40, 60))
    X[:, ::7] = 0.0
    scale, weights = rng.uniform(1.0, 1e3, 40), rng.uniform(0.5, 2.0, 40)
    design = Rows(
        sp.csr_matrix(X) if "sparse" in kind else X, scale if "scaled" in kind else None,
        X[:, :3],
    )
    by = scale**2 * weights if "scaled" in kind else weights
    found = np.sqrt(column_squares(design, weights)) * (1.0 + gamma(60))
    exact = [
        mp.sqrt(mp.fsum(mp.mpf(float(w)) * mp.mpf(float(v)) ** 2
                        for w, v in zip(by, column, strict=True)))
        for column in np.hstack([X, X[:, :3]]).T
    ]
    assert all(a >= b for a, b in zip(found, exact, strict=True))
    assert not found[:60:7].any()
    assert found.max() <= float(max(exact)) * (1.0 + 1e-6) + 1e-148
    assert not column_squares(design, np.zeros(40)).any()


@pytest.mark.parametrize("kind", ["dense", "sparse", "extra", "chunks", "sparse chunks"])
def test_norms_of_long_rows_with_short_factors_are_right(kind: str) -> None:
    """Factors whose squares underflow, or lose digits, before entries whose squares are large."""
    rng = np.random.default_rng(0)
    scale = 10.0 ** rng.uniform(-290.0, -140.0, 60) * rng.choice([-1.0, 1.0], 60)
    X = np.minimum(1e-60 / np.abs(scale), 1e150)[:, None] * rng.standard_normal((60, 4))
    kept = sp.csr_matrix(X) if "sparse" in kind else X
    if "chunks" in kind:
        rows: Rows | Chunks = Chunks(Blocks((kept[:25], kept[25:])), LocalEngine(), scale)
    else:
        rows = Rows(X[:, :3], scale, X[:, 3:]) if kind == "extra" else Rows(kept, scale)
    whole = [[mp.mpf(float(v)) * mp.mpf(float(f)) for v in row]
             for row, f in zip(X, scale, strict=True)]
    for squares, expected in (
        (rows.weighted_squares(np.ones(4)), [mp.fsum(v * v for v in row) for row in whole]),
        (row_squares(rows, np.ones(4)), [mp.fsum(v * v for v in row) for row in whole]),
        (column_squares(rows, np.ones(60)),
         [mp.fsum(v * v for v in column) for column in zip(*whole, strict=True)]),
    ):
        for value, true in zip(squares, expected, strict=True):
            assert abs(mp.mpf(float(value)) / true - 1) <= gamma(70)


def test_norms_of_kernel_points_whose_squares_underflow_are_not_too_small() -> None:
    rng = np.random.default_rng(0)
    X = 10.0 ** rng.uniform(-300.0, -150.0, (30, 1)) * rng.standard_normal((30, 4))
    X[0] = 1.0
    gram = cvxscreen.svm(X, np.where(np.arange(30) % 2, 1.0, -1.0), kernel="linear").design
    norms = np.sqrt(gram.weighted_squares(np.ones(gram.shape[1])))
    exact = [mp.sqrt(mp.fsum(mp.mpf(float(v)) ** 2 for v in row)) for row in X]
    assert all(a >= b for a, b in zip(norms, exact, strict=True))
