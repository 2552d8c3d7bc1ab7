"""Left-out margins and ranges of weights: attained, containing the optimum of the changed data,
right whatever is decided."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from strategies import CASES, ONE_ARRAY, Case, build, points, reference, solved

from cvxscreen import Quadratic, regression, solve, svm
from cvxscreen.bounds import data_changes
from cvxscreen.bounds.data_changes import (
    WeightSet,
    left_out_distances,
    left_out_groups,
    left_out_margins,
    over_weights,
    takes_groups,
    takes_left_out,
    takes_weights,
)
from cvxscreen.core.duality import reference_point
from cvxscreen.core.losses import Piece
from cvxscreen.core.penalty import L1
from cvxscreen.data_changes.reweight import weighted
from cvxscreen.datasets import two_gaussians
from cvxscreen.designs.rows import Rows
from cvxscreen.models.samples import CLASSIFICATION


def without(problem, i):
    keep = np.arange(problem.n) != i
    return replace(
        problem, design=problem.design.take_rows(keep), losses=problem.losses.take(keep)
    )


def test_attained_by_a_term_orthogonal_to_the_others() -> None:
    """Without it nothing pulls along its row: its margin is 0, an end of the interval."""
    X = np.diag([0.5, 1.0, 1.5, 2.0])
    problem = svm(X, np.array([1.0, -1.0, 1.0, -1.0]), C=1.0)
    # alpha = min(C, 1/|a|^2), as the terms do not see each other.
    theta = -np.minimum(1.0, 1.0 / problem.sizes**2)
    x = -problem.design.adjoint(theta)
    low, high = left_out_margins(reference_point(problem, x, theta))
    assert ((low <= 0) & (high >= 0)).all()
    assert np.abs(low).max() <= 1e-6  # the root of what rounding leaves of the Fenchel-Young terms
    middle, reach = 0.5 * (low + high), 0.99 * 0.5 * (high - low)
    assert not (middle - reach <= 0).any()


def test_a_group_is_attained_by_rows_along_one_line() -> None:
    """Without both nothing pulls along it: their margins are 0, an end of their intervals."""
    X = np.vstack([np.diag([0.5, 1.0, 1.5, 2.0])] * 2) * np.repeat([1.0, 2.0], 4)[:, None]
    problem = svm(X, np.tile([1.0, -1.0, 1.0, -1.0], 2), C=1e-2)
    theta = np.full(8, -1e-2)  # margins are below 1
    x = -problem.design.adjoint(theta)
    point = reference_point(problem, x, theta)
    ends = list(left_out_groups(point, [np.array([k, k + 4]) for k in range(4)]))
    low, high = np.transpose(ends, (1, 0, 2))
    assert ((low <= 0) & (high >= 0)).all()
    assert np.abs(low).max() <= 1e-6
    middle, reach = 0.5 * (low + high), 0.99 * 0.5 * (high - low)
    assert not (middle - reach <= 0).any()


@pytest.mark.table
@pytest.mark.parametrize("case", [c for c in CASES if not c.intercept][::5], ids=str)
def test_the_optimum_without_a_group_is_inside(case: Case, rng: np.random.Generator) -> None:
    """From points near and far; groups of one term have the intervals of left-out terms."""
    ref = reference(case)
    problem = ref.problem
    near = [ref.point, *points(ref, rng, 3)]
    order = rng.permutation(problem.n)
    groups = np.array_split(order, max(problem.n // 4, 2))
    for rows in groups[:2]:
        keep = np.setdiff1d(np.arange(problem.n), rows)
        left = solved(replace(
            problem, design=problem.design.take_rows(keep), losses=problem.losses.take(keep)
        ))
        true = problem.design.take_rows(rows).forward(left.x)
        slack = (left.error + 1e-14 * np.linalg.norm(left.x)) * problem.norms[rows]
        for point in near:
            assert takes_groups(point)
            [(low, high)] = left_out_groups(point, [rows])
            assert ((low - slack <= true) & (true <= high + slack)).all()
    for point in near if case.data != "scaled" else ():  # there rounding is charged differently
        alone = np.hstack(list(left_out_groups(point, list(np.arange(problem.n)[:, None]))))
        for mine, other in zip(alone, left_out_margins(point), strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5 * np.abs(other).max())


def test_a_term_without_a_slope_changes_nothing() -> None:
    ref = reference(Case("squared_hinge"))
    low, high = left_out_margins(ref.point)
    idle = ref.theta == 0
    assert idle.any()
    assert (high - low)[idle].max() < 1e-5 * (high - low)[~idle].max()


@pytest.mark.table
@pytest.mark.parametrize("case", ONE_ARRAY)
def test_the_optimum_without_a_term_is_inside(case: Case, rng: np.random.Generator) -> None:
    """From points near and far, whatever the loss, the scaling and the storage."""
    ref = reference(case)
    problem = ref.problem
    near = [ref.point, *points(ref, rng, 4)]
    assert all(map(takes_left_out, near))
    intervals = [left_out_margins(point) for point in near]
    chosen = rng.choice(problem.n, 5, replace=False)
    wrong = decided = 0
    for i in chosen:
        left = solved(without(problem, i))
        [true] = problem.design.take_rows(np.array([i])).forward(left.x)
        slack = (left.error + 1e-14 * np.linalg.norm(left.x)) * problem.norms[i]
        for low, high in intervals:
            assert low[i] - slack <= true <= high[i] + slack
            decided += low[i] > 0 or high[i] < 0
            wrong += bool(low[i] > slack and true <= -slack) + bool(
                high[i] < -slack and true > slack
            )
    assert wrong == 0
    hard = case.intercept or case.data in ("wide", "scaled")
    assert decided > 0 or hard or case.loss not in CLASSIFICATION


def test_intervals_shrink_towards_the_optimum() -> None:
    ref = reference(Case("hinge"))
    blurred = reference_point(ref.problem, ref.x + 0.1, ref.theta)
    near, far = left_out_margins(ref.point), left_out_margins(blurred)
    assert (near[1] - near[0]).mean() < (far[1] - far[0]).mean()


@pytest.mark.parametrize("intercept", [True, False])
def test_ranges_beside_an_intercept_but_of_a_diagonal_form_only(intercept: bool) -> None:
    problem = build(Case("hinge", intercept=intercept))
    point = reference_point(problem, np.zeros(problem.d))
    assert takes_weights(point)
    assert takes_left_out(point)
    if not intercept:
        dense = replace(problem, quadratic=Quadratic(np.ones(problem.d), np.ones((problem.d,) * 2)))
        assert not takes_weights(reference_point(dense, np.zeros(problem.d)))


def pinned(scale: float = 1.0):
    """Orthogonal rows, and one of 0 with weight 100 that holds the intercept at its response."""
    X = np.vstack([np.diag([0.5, 1.0, 1.5, 2.0]), np.zeros(4)])
    y, weight = np.array([9.0, -9.0, 9.0, 9.0, 0.0]), np.array([1.0, 1.0, 1.0, 1.0, 100.0])
    problem = regression(X, y, C=1.0, intercept=True, sample_weight=weight)
    theta = np.array([-1.0, 1.0, -1.0, -1.0, 2.0])
    x = -problem.design.adjoint(theta)
    x[-1] = 0.0
    return problem, x, theta


def stiff(problem):
    """`pinned` with the pin at the end of its box, so that no slope at a kink has room."""
    ends = np.append(np.ones(4), 2.0)
    return replace(problem, losses=replace(problem.losses, lo=-ends, hi=ends))


def test_attained_beside_an_intercept() -> None:
    """Without the term its margin is 0: an end of the interval, the mix of kinks being the pin."""
    problem, x, theta = pinned()
    low, high = left_out_margins(reference_point(problem, x, theta))
    for i in range(4):
        far, near = (low[i], high[i]) if theta[i] < 0 else (high[i], low[i])
        assert low[i] <= 0 <= high[i]
        assert far == pytest.approx(0.0, abs=1e-6)
        assert near == pytest.approx(x[i] * problem.design.dense()[i, i], abs=1e-6)
        middle, reach = 0.5 * (low[i] + high[i]), 0.99 * 0.5 * (high[i] - low[i])
        assert not middle - reach <= 0 <= middle + reach


@pytest.mark.parametrize("norm", ["l2", "l1", "interval"])
def test_a_range_of_weights_is_attained_beside_an_intercept(norm: str) -> None:
    """A term's weight moves its own margin, and the pin holds the intercept: both ends are met."""
    problem, x, theta = pinned()
    point = reference_point(problem, x, theta)
    for i in range(4):
        one = np.eye(5)[i]
        margin = x[i] * problem.design.dense()[i, i]
        rows = Rows(problem.design.matrix[i : i + 1], None, np.ones((1, 1)))
        for functionals, k in ((problem.design, i), (rows, 0)):
            low, high = over_weights(point, functionals, WeightSet(norm, -one, one)).at(0.3)
            if norm != "interval":  # the set holds weights of all terms, and their squares add up
                others = np.sqrt(np.sum((theta * problem.norms)[:4] ** 2)) * problem.norms[i]
                assert high[k] - low[k] <= 0.3 * 2.0 * (others + 1e-6)
                assert low[k] <= margin - 0.3 * abs(margin)
                assert high[k] >= margin + 0.3 * abs(margin)
                continue
            ends = margin - 0.3 * abs(margin), margin + 0.3 * abs(margin)
            assert low[k] <= ends[0]
            assert ends[1] <= high[k]
            np.testing.assert_allclose([low[k], high[k]], ends, atol=1e-6)
            middle, reach = 0.5 * (low[k] + high[k]), 0.99 * 0.5 * (high[k] - low[k])
            assert middle - reach > ends[0]
            assert middle + reach < ends[1]


def test_a_range_that_moves_the_intercept_is_attained() -> None:
    """``2 x_1 + b = -1`` is held by a pin, so that x = (-2 w, w) and b = 4 w - 1 for a weight w."""
    X = np.array([[2.0, 0.0], [0.0, 1.0]])
    weight = np.array([100.0, 1.0])
    problem = regression(X, np.array([-1.0, 19.0]), intercept=True, sample_weight=weight)
    point = reference_point(problem, np.array([-2.0, 1.0, 3.0]), np.array([1.0, -1.0]))
    one = np.array([0.0, 1.0])
    tests = Rows(X, None, np.ones((2, 1)))
    low, high = over_weights(point, tests, WeightSet("interval", -one, one)).at(0.4)
    ends = 5.0 * np.array([0.6, 1.4]) - 1.0
    assert low[1] <= ends[0]
    assert ends[1] <= high[1]
    np.testing.assert_allclose([low[1], high[1]], ends, atol=1e-6)
    assert -1.01 < low[0] <= -1.0 <= high[0] < -0.99  # the pin's own, as far as it has room
    middle, reach = 0.5 * (low[1] + high[1]), 0.99 * 0.5 * (high[1] - low[1])
    assert middle - reach > ends[0]
    assert middle + reach < ends[1]


def test_no_range_is_known_where_the_intercepts_pin_may_lose_its_weight() -> None:
    problem, x, theta = pinned()
    point = reference_point(problem, x, theta)
    for norm in ("l2", "l1"):
        over = over_weights(point, problem.design, WeightSet(norm, -np.ones(5), np.ones(5)))
        assert np.isinf(over.at(1.0)[1]).all()
        assert np.isfinite(over.at(0.5)[1]).all()


def test_the_distance_without_a_term_is_attained_beside_an_intercept() -> None:
    """The term's coefficient is lost and no other one changes: the bound is the distance."""
    problem, x, theta = pinned()
    bound = left_out_distances(reference_point(problem, x, theta))
    for i in range(4):
        others = weighted(problem, (np.arange(5) != i).astype(float))
        distance = np.linalg.norm((solve(others, tol=1e-13).x - x)[:4])
        assert distance == pytest.approx(abs(x[i]), abs=1e-6)
        assert distance <= bound[i] + 1e-6
        assert bound[i] == pytest.approx(distance, abs=1e-5)
        assert 0.99 * bound[i] < distance
    assert bound[4] == np.inf  # no other term can hold the intercept
    assert left_out_distances(reference_point(stiff(problem), x, theta))[1] == np.inf


@pytest.mark.parametrize("storage", ["dense64", "csr64"])
def test_centred_forms_are_those_of_rows_that_are_centred(
    storage: str, rng: np.random.Generator
) -> None:
    """The quadratic form, the pairs and the pull of rows less their free entry times ``A' u``."""
    problem = build(Case("absolute", intercept=True, storage=storage))
    centred = data_changes._Centred.of(solve(problem, tol=1e-11).point())
    assert centred.mix.room > 0
    rows, free = problem.design.dense(), problem.quadratic.free
    [a] = rows[:, free].T
    scale = 1.0 / problem.quadratic.diagonal[~free]
    held = rows[:, ~free] - np.outer(a, rows[:, ~free].T @ centred.mix.slopes)
    used, weights = np.arange(0, problem.n, 2), rng.random(problem.n)
    gram = centred.gram(used, weights[used])[np.ix_(~free, ~free)]
    half = held[used] * np.sqrt(scale)
    np.testing.assert_allclose(gram, half.T @ (weights[used, None] * half), atol=1e-10)
    pairs = next(centred.pairings(problem.design, used, a, centred.mix.products))
    np.testing.assert_allclose(pairs, (held * scale) @ held[used].T, atol=1e-10)
    pulled = np.linalg.norm((held * np.sqrt(scale)).T @ weights)
    assert centred.length_of_sum(weights) == pytest.approx(pulled, abs=1e-10)


def held_by_a_parabola():
    """``b = w / 2`` for a weight w of the first term, which the second balances; q = 1/2."""
    problem = regression(np.diag([1.0, 1e-4]), np.array([9.0, 0.0]), intercept=True)
    losses = replace(
        problem.losses, q=np.array([0.0, 0.5]), lo=-np.array([1.0, 10.0]), hi=np.array([1.0, 10.0])
    )
    problem = replace(problem, losses=losses)
    x = np.array([1.0, -1e-4, 0.5 + 1e-8])
    point = reference_point(problem, x, np.array([-1.0, 1.0]))
    assert point.gap < 1e-12
    return point


def test_the_distance_charges_what_balancing_costs() -> None:
    """The term on a parabola takes up a pull of 1 on the intercept: G grows by 1/4."""
    bound = left_out_distances(held_by_a_parabola())
    assert bound[0] == pytest.approx(0.5 + np.sqrt(0.25 + 0.25), abs=1e-5)


def test_a_range_charges_what_balancing_costs() -> None:
    """The intercept itself, which only the term on a parabola holds."""
    intercept, one = Rows(np.zeros((1, 2)), None, np.ones((1, 1))), np.array([1.0, 0.0])
    over = over_weights(held_by_a_parabola(), intercept, WeightSet("interval", -one, one))
    for size in (0.1, 0.3, 0.6):
        [low], [high] = over.at(size)
        assert low <= 0.5 * (1.0 - size) < 0.5 * (1.0 + size) <= high
        assert high - low < 4.0 * size


def test_terms_on_parabolas_have_the_room_that_a_left_out_one_needs() -> None:
    """One near the end of its box does not end the way of all: both ends are known, and inside."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(300, 4))
    y = X @ rng.normal(size=4) + rng.standard_t(3, size=300)
    problem = regression(X, y, loss="huber", C=0.1, intercept=True)
    low, high = left_out_margins(solve(problem, tol=1e-10).point())
    assert np.isfinite(low).all()
    assert np.isfinite(high).all()
    for i in range(0, 300, 30):
        keep = (np.arange(300) != i).astype(float)
        true = problem.design.forward(solve(weighted(problem, keep), tol=1e-12).x)[i]
        assert low[i] - 1e-5 <= true <= high[i] + 1e-5


@pytest.mark.table
@pytest.mark.parametrize("case", ONE_ARRAY)
def test_the_optimum_without_a_term_is_as_near_as_is_said(
    case: Case, rng: np.random.Generator
) -> None:
    ref = reference(case)
    problem = ref.problem
    bounds = [(point, left_out_distances(point)) for point in (ref.point, *points(ref, rng, 3))]
    known = 0
    for i in rng.choice(problem.n, 4, replace=False):
        left = solved(without(problem, i))
        for point, bound in bounds:
            away = problem.quadratic.norm(point.x - left.x)
            assert away <= bound[i] + left.error * (1.0 + 1e-9) + 1e-12
            known += bool(np.isfinite(bound[i]))
    assert known > 0 or case.intercept


def test_nothing_is_known_without_the_term_that_holds_the_intercept() -> None:
    """The pin's own margin, and every other one where no slope at a kink has room."""
    problem, x, theta = pinned()
    point = reference_point(problem, x, theta)
    low, high = left_out_margins(point)
    assert high[4] == np.inf or low[4] == -np.inf
    low, high = left_out_margins(reference_point(stiff(problem), x, theta))
    assert high[1] == np.inf
    assert (low[[0, 2, 3]] > -1e-6).all()  # these need its other side


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "smoothed_hinge"])
@pytest.mark.parametrize("intercept", [True, False])
def test_left_out_margins_under_other_penalties_kernels_and_dense_forms(
    loss: str, intercept: bool
) -> None:
    """An L1 term, a kernel, a dense M: refits are inside, and classes are decided."""
    X, y = two_gaussians(40, 3, seed=4)
    plain = svm(X, y, C=0.2, loss=loss, intercept=intercept)
    B = np.random.default_rng(1).normal(size=(3, 3))
    made = [svm(X, y, C=0.2, loss=loss, intercept=intercept, kernel="rbf")]
    kappa = np.append(np.full(3, 0.3), np.zeros(int(intercept)))
    made.append(replace(plain, penalty=L1(kappa)))
    if not intercept:
        made.append(replace(plain, quadratic=Quadratic(np.ones(3), B @ B.T)))
    for problem in made:
        solution = solve(problem, tol=1e-10)
        low, high = left_out_margins(solution.point())
        decided = 0
        for i in range(0, 40, 3):
            keep = np.arange(40) != i
            weights = keep.astype(float)
            true = problem.design.forward(solve(weighted(problem, weights), tol=1e-11).x)[i]
            assert low[i] - 1e-5 <= true <= high[i] + 1e-5
            decided += bool(low[i] > 0 or high[i] <= 0)
        assert decided >= 7


NORMS = ("l2", "l1", "interval")


def weights_within(norm: str, n: int, rng: np.random.Generator) -> tuple[WeightSet, np.ndarray]:
    """A set, and a direction v that reaches its end; single terms as often as all of them."""
    low, high = -rng.random(n), 2.0 * rng.random(n)
    if norm == "interval":
        return WeightSet(norm, low, high), np.where(rng.random(n) < 0.5, low, high)
    v = rng.normal(size=n) * (rng.random(n) < rng.choice([1.5 / n, 0.3, 1.0]))
    v[rng.integers(n)] += 1.0
    return WeightSet(norm, low, high), v / np.linalg.norm(v, 2 if norm == "l2" else 1)


@pytest.mark.parametrize("norm", NORMS)
def test_a_range_of_weights_is_attained_by_an_isolated_term(norm: str) -> None:
    """Its weight moves its own margin ``C |a|^2 w`` and nothing else: both ends are reached."""
    X = np.diag([0.5, 0.4, 0.3, 0.2])
    problem = svm(X, np.array([1.0, -1.0, 1.0, -1.0]), C=1.0)
    theta = -np.ones(4)  # every term is limited by C
    x = -problem.design.adjoint(theta)
    point = reference_point(problem, x, theta)
    one = np.array([1.0, 0.0, 0.0, 0.0])
    for functionals in (problem.design, Rows(X[:1])):
        low, high = over_weights(point, functionals, WeightSet(norm, -one, one)).at(0.3)
        assert low[0] <= 0.25 * 0.7
        assert high[0] >= 0.25 * 1.3
        assert low[0] == pytest.approx(0.25 * 0.7, abs=1e-6)
        assert high[0] == pytest.approx(0.25 * 1.3, abs=1e-6)
        middle, reach = 0.5 * (low[0] + high[0]), 0.99 * 0.5 * (high[0] - low[0])
        assert middle - reach > 0.25 * 0.7
        assert middle + reach < 0.25 * 1.3


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_unequal_intervals_of_the_weights_are_attained(sign: float) -> None:
    """A term that can only lose, or only gain, weight: its margin reaches that end."""
    problem = svm(np.diag([0.5, 0.4]), np.array([1.0, -1.0]), C=1.0)
    theta = -np.ones(2)
    point = reference_point(problem, -problem.design.adjoint(theta), theta)
    ends = np.array([[min(sign, 0.0), 0.0], [max(sign, 0.0), 0.0]])
    low, high = over_weights(point, problem.design, WeightSet("interval", *ends)).at(0.3)
    truth = 0.25 * (1.0 + 0.3 * sign)
    assert low[0] <= truth <= high[0]
    assert (low[0] if sign < 0 else high[0]) == pytest.approx(truth, abs=1e-6)


def test_one_term_moves_a_margin_as_far_as_it_moves_the_optimum() -> None:
    """Two terms that pull together: the larger singular value is needed, not the longer term."""
    X = np.array([[0.3, 0.0], [-0.3, 0.0]])
    problem = svm(X, np.array([1.0, -1.0]), C=1.0)
    theta = -np.ones(2)
    point = reference_point(problem, -problem.design.adjoint(theta), theta)
    wanted = WeightSet("l2", -np.ones(2), np.ones(2))
    low, high = over_weights(point, problem.design, wanted).at(0.5)
    truth = 0.3 * 0.3 * (2.0 + np.array([-1.0, 1.0]) * 0.5 * np.sqrt(2.0))
    assert low[0] <= truth[0]
    assert truth[1] <= high[0]
    np.testing.assert_allclose([low[0], high[0]], truth, atol=1e-6)


@pytest.mark.table
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("case", ONE_ARRAY)
def test_the_optimum_of_any_weights_is_inside(
    case: Case, norm: str, rng: np.random.Generator
) -> None:
    """From points near and far, at small sizes and large; and no decided piece is wrong."""
    ref = reference(case)
    problem = ref.problem
    near = [ref.point, *points(ref, rng, 2)]
    weights, v = weights_within(norm, problem.n, rng)
    ranges = [over_weights(point, problem.design, weights) for point in near]
    wrong = 0
    for size in (0.05, 0.5, 1.0):
        other = weighted(problem, np.maximum(1.0 + size * v, 0.0))
        there = solved(other)
        true = problem.design.forward(there.x)
        slack = (there.error + 1e-14 * np.linalg.norm(there.x)) * problem.norms
        for found in ranges:
            low, high = found.at(size)
            assert (low - slack <= true).all()
            assert (true <= high + slack).all()
            codes = problem.losses.piece_within(low, high)
            least, most = (problem.losses.subgradient(true + sign * slack) for sign in (-1, 1))
            slope = problem.losses.piece_slope(codes)
            on_a_line = (codes == Piece.LOW) | (codes == Piece.HIGH) | (codes == Piece.ZERO)
            outside = (slope < least[0] - 1e-9) | (slope > most[1] + 1e-9)
            wrong += int((on_a_line & outside).sum())
    assert wrong == 0


def test_ranges_by_lengths_alone_hold_the_paired_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pairs of rows are too many, or the matrix too large for its eigenvalues."""
    ref = reference(Case("hinge"))
    design, n = ref.problem.design, ref.problem.n
    for norm in NORMS:
        wanted = WeightSet(norm, -np.ones(n), np.ones(n))
        low, high = over_weights(ref.point, design, wanted).at(0.5)
        with monkeypatch.context() as changed:
            changed.setattr(data_changes, "PAIRINGS", 0)
            changed.setattr(data_changes, "EIGENVALUES", 0)
            wider = over_weights(ref.point, design, wanted).at(0.5)
        assert (wider[0] <= low + 1e-12).all()
        assert (high <= wider[1] + 1e-12).all()
