"""An L1 norm without a quadratic term: optimum, certificate, paths, printing and refusals."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import LinearSVC

import cvxscreen as cs
from cvxscreen import bounds
from cvxscreen.certificates.certificate import certify
from cvxscreen.core.losses import Losses
from cvxscreen.core.penalty import L1, NonNegative
from cvxscreen.core.problem import Problem, Quadratic, ZeroQuadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput, UnknownName
from cvxscreen.estimators import SparseSVC
from cvxscreen.solvers.solution import Answer

LOSSES = ("squared_hinge", "huber")


def make(loss: str, seed: int, share: float, sparse: bool = False, n: int = 60,
         d: int = 40) -> Problem:
    """A problem at `share` of its lambda_max."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    if sparse:
        X *= rng.random((n, d)) < 0.3
    t = X[:, 0] - X[:, 1] + 0.7 * rng.standard_normal(n)
    weight = rng.uniform(0.5, 2.0, n) if seed % 2 else None
    data = sp.csr_matrix(X) if sparse else X
    if loss == "huber":
        p = cs.sparse_svr(data, t, 1.0, loss="huber", l2=0, sample_weight=weight)
    else:
        y = np.where(t >= 0, 1.0, -1.0)
        p = cs.sparse_svm(data, y, 1.0, loss=loss, l2=0, sample_weight=weight)
    assert isinstance(p, Problem)
    return p.with_(lam=share * cs.lambda_max(p))


@pytest.mark.parametrize("mode", ["certified", "safe"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_agrees_with_cvxpy(loss: str, sparse: bool, mode: str) -> None:
    previous = None
    for share in (1.1, 0.9, 0.5, 0.1, 0.02):
        problem = make(loss, 1, share, sparse)
        found = cs.solve(problem, mode=mode, tol=1e-9, start=previous)
        assert found.status == "optimal"
        assert found.certificate.ok
        other = problem.to_cvxpy()
        other.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
        assert found.value == pytest.approx(other.value, rel=1e-6)
        np.testing.assert_allclose(found.x, other.variables()[0].value, atol=2e-3)
        assert (found.x[found.screening.dropped] == 0).all()
        pull = np.abs(problem.design.adjoint(found.theta))
        assert (pull <= problem.lam * (1 + 1e-12)).all()
        previous = found


def test_is_the_problem_as_written() -> None:
    """``lam ||w||_1 + 1/(2n) sum max(0, 1 - t)^2``, and LinearSVC's with ``C = 1 / (2 n lam)``."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 15))
    y = np.where(X[:, 0] + 0.5 * rng.standard_normal(80) > 0, 1.0, -1.0)
    problem = cs.sparse_svm(X, y, 0.02, loss="squared_hinge", l2=0)
    found = cs.solve(problem, tol=1e-10)
    w = cp.Variable(15)
    square = cp.sum_squares(cp.pos(1 - cp.multiply(y, X @ w))) / 160
    value = cp.Problem(cp.Minimize(0.02 * cp.norm1(w) + square)).solve(solver="CLARABEL")
    assert found.value == pytest.approx(value, rel=1e-6)
    peer = LinearSVC(penalty="l1", loss="squared_hinge", dual=False, fit_intercept=False,
                     C=1 / (2 * 80 * 0.02), tol=1e-10, max_iter=100_000).fit(X, y)
    np.testing.assert_allclose(found.x, peer.coef_[0], atol=1e-5)
    slopes = problem.losses.slope(problem.design.forward(peer.coef_[0]))
    assert certify(problem, peer.coef_[0], slopes, tol=1e-5).ok


@pytest.mark.parametrize("loss", LOSSES)
def test_nothing_is_left_above_lambda_max(loss: str) -> None:
    assert not cs.solve(make(loss, 2, 1.001)).x.any()
    assert cs.solve(make(loss, 2, 0.98)).x.any()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("mode", ["certified", "safe"])
def test_path_over_lambda_and_over_C(loss: str, mode: str) -> None:
    problem = make(loss, 3, 1.0, sparse=True)
    grid = problem.lam * np.geomspace(1.0, 1e-2, 8)
    along = cs.path(problem, over="lam", values=grid, mode=mode)
    assert along.finished
    for point, lam in zip(along.points, grid, strict=True):
        assert point.status == "optimal"
        alone = cs.solve(problem.with_(lam=float(lam)), tol=1e-8)
        assert point.objective == pytest.approx(alone.value, rel=2e-6)
    assert "lam" in along.table()
    weights = cs.path(problem, over="C", values=[1.0, 3.0, 0.5])
    assert [point.status for point in weights.points] == ["optimal"] * 3


def test_a_checkpoint_resumes(tmp_path) -> None:
    problem = make("squared_hinge", 4, 1.0)
    grid = problem.lam * np.geomspace(1.0, 1e-2, 5)
    file = tmp_path / "path.npz"
    first = cs.path(problem, over="lam", values=grid, checkpoint=file)
    again = cs.path(problem, over="lam", values=grid, checkpoint=file)
    for one, other in zip(first.points, again.points, strict=True):
        np.testing.assert_array_equal(one.x, other.x)


# -- the certificate ----------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_certificate_refuses_what_is_not_optimal(loss: str, sparse: bool) -> None:
    problem = make(loss, 5, 0.2, sparse)
    found = cs.solve(problem, tol=1e-10)
    x, theta = found.x, found.theta
    assert certify(problem, x, theta, tol=1e-9).ok
    assert not certify(problem, 1.01 * x, theta).ok
    assert not certify(problem, x, 0.99 * theta).ok
    assert not certify(problem, x * np.nan, theta).ok
    small = np.flatnonzero(x)[np.argmin(np.abs(x[x != 0]))]
    less = x.copy()
    less[small] = 0.0
    assert not certify(problem, less, theta, tol=1e-9).ok
    if loss == "squared_hinge":
        assert "box" in certify(problem, x, -theta).reason
    pushed = theta.copy()
    pushed[np.argmax(np.abs(theta))] *= 2.0
    refused = certify(problem, x, pushed)
    assert not refused.ok
    assert "exceeds" in refused.reason or "box" in refused.reason


def test_slopes_beyond_the_constraint_are_worth_what_is_left_of_them() -> None:
    """Too large by any factor: the certificate shrinks them, and its gap is one of the primal."""
    problem = make("squared_hinge", 6, 0.3)
    found = cs.solve(problem, tol=1e-10)
    for factor in (1.0, 1.1, 10.0, 1e6):
        proof = certify(problem, found.x, factor * found.theta, tol=1e-7)
        assert proof.ok
        assert proof.dual <= found.value * (1 + 1e-12)


@pytest.mark.parametrize("sparse", [False, True])
def test_the_certificate_hands_its_passes_on(sparse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer's point takes no further pass over the data."""
    problem = make("squared_hinge", 5, 0.2, sparse)
    found = cs.solve(problem, tol=1e-10)
    known = cs.reference_point(problem, found.x, found.theta)
    answer = Answer.of(problem, found.x, found.theta, np.zeros(0), 1e-9)
    for name in ("forward", "adjoint"):
        monkeypatch.setattr(Rows, name, None)
    assert answer.point.gap == known.gap
    np.testing.assert_array_equal(answer.point.penalty_subgradient, known.penalty_subgradient)


def test_the_gap_bounds_the_distance_from_the_optimum() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        problem = make(LOSSES[seed % 2], seed, 0.1, n=30, d=20)
        best = cs.solve(problem, tol=1e-11).value
        x = rng.standard_normal(20) * (rng.random(20) < 0.4)
        theta = problem.losses.slope(rng.standard_normal(30))
        for given in (theta, problem.losses.slope(problem.design.forward(x))):
            proof, point = certify(problem, x, given), cs.reference_point(problem, x, given)
            assert proof.primal - proof.gap <= best * (1 + 1e-10)
            assert point.primal - point.gap <= best * (1 + 1e-10)
            assert proof.gap == pytest.approx(point.gap, rel=1e-9)


def test_a_lambda_below_the_rounding_of_a_pass_proves_nothing() -> None:
    problem = make("squared_hinge", 7, 1e-18)
    proof = certify(problem, np.zeros(problem.d), problem.losses.slope(np.zeros(problem.n)))
    assert not proof.ok
    assert proof.gap == np.inf
    assert cs.solve(problem, max_iter=5).status != "optimal"


# -- printing and refusals ----------------------------------------------------------------------


def test_prints() -> None:
    problem = make("squared_hinge", 8, 0.3)
    found = cs.solve(problem)
    assert "L1" in str(problem)
    assert "features" in str(found)
    assert "certified" in str(found.certificate)
    verdict = cs.screen(problem, reference=found)
    assert verdict.bound == "dual"
    assert "features dropped" in str(verdict)


def test_screens_by_its_dual_ball_only() -> None:
    problem = make("squared_hinge", 9, 0.3)
    assert bounds.available(problem) == ("dual",)
    found = cs.solve(problem, bounds="dual", tol=1e-9)
    assert found.screening.dropped.any()
    for name in ("gap", "joint", "dvi"):
        with pytest.raises(InvalidInput, match="'dual'"):
            cs.screen(problem, reference=found, bound=name)
        with pytest.raises(InvalidInput, match="'dual'"):
            cs.solve(problem, bounds=name)
    with pytest.raises(UnknownName):
        cs.screen(problem, reference=found, bound="nothing")


DATA = np.eye(4), [1.0, -1.0, 1.0, -1.0], 0.1


@pytest.mark.parametrize(("call", "words"), [
    (lambda: cs.sparse_svm(*DATA, l2=0), r'`l2` is 0.*smoothed_hinge.*squared_hinge'),
    (lambda: cs.sparse_svm(*DATA, loss="squared_hinge", l2=-1.0), "`l2`"),
    (lambda: cs.sparse_svm(*DATA, loss="squared_hinge", l2=float("nan")), "`l2`"),
    (lambda: cs.sparse_svm(*DATA[:2], 0.0, loss="squared_hinge", l2=0), "`lam`"),
    (lambda: cs.sparse_svr(*DATA, l2=0), r'`l2` is 0.*smoothed_epsilon.*huber'),
    (lambda: cs.sparse_svr(*DATA, loss="epsilon", l2=0), "`l2` is 0"),
    (lambda: cs.sparse_svr(*DATA, loss="huber", l2="0"), "`l2`"),
])
def test_refuses_with_the_argument_named(call, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        call()
    if "is 0" in words:
        assert 'positive l2' in str(caught.value)


def test_a_plain_hinge_is_still_the_linear_program() -> None:
    assert cs.sparse_svm(*DATA, loss="hinge", l2=0).kind == "LP-SVM"
    with pytest.raises(UnknownName):
        cs.sparse_svm(*DATA, loss="no_loss", l2=0)
    with pytest.raises(UnknownName):
        cs.sparse_svr(*DATA, loss="no_loss", l2=0)


def test_the_estimator_takes_it() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 10))
    y = np.where(X[:, 0] > 0, "yes", "no")
    model = SparseSVC(loss="squared_hinge", l2=0).fit(X, y)
    assert model.certificates_[0].ok
    assert model.score(X, y) > 0.8
    assert (model.coef_ == 0).any()


@pytest.mark.parametrize("solver", ["sdca", "spdc"])
def test_solvers_that_need_a_quadratic_term_say_so(solver: str) -> None:
    with pytest.raises(InvalidInput):
        cs.solve(make("squared_hinge", 1, 0.3), solver=solver)


@pytest.mark.parametrize("solver", ["CLARABEL", "apg"])
def test_another_solver_may_solve_it(solver: str) -> None:
    problem = make("squared_hinge", 1, 0.3)
    found = cs.solve(problem, solver=solver, tol=1e-6)
    assert found.status == "optimal"
    assert found.value == pytest.approx(cs.solve(problem, tol=1e-9).value, rel=1e-6)


def test_the_problem_refuses_what_the_l1_norm_cannot_hold() -> None:
    design, losses = Rows(np.eye(3)), Losses(np.ones(3), 0.0, 1.0, -np.inf, 0.0)
    none, norm = ZeroQuadratic(np.zeros(3)), L1(np.ones(3))
    fine = Problem(design, losses, none, np.zeros(3), penalty=norm, lam=1.0)
    assert fine.pure_l1
    assert not fine.quadratic.free.any()
    assert not fine.linear_program
    hinge = Losses(np.ones(3), 0.0, 0.0, [-1.0, -2.0, 0.0], 0.0)
    assert Problem(design, hinge, none, np.zeros(3), penalty=norm, lam=1.0).linear_program
    absolute = Losses(np.ones(3), 0.0, 0.0, -1.0, 1.0)
    elsewhere = Losses(np.array([1.0, 1.0, 2.0]), 0.0, 0.0, -1.0, 0.0)
    mixed = Losses(np.ones(3), 0.0, [0.0, 1.0, 0.0], -1.0, 0.0)
    for given, words in (
        ((design, losses, none, np.zeros(3), None), "`penalty`"),
        ((design, losses, none, np.zeros(3), NonNegative()), "`penalty`"),
        ((design, losses, none, np.zeros(3), L1(np.array([1.0, 0.0, 1.0]))), "`penalty`"),
        ((design, losses, none, np.zeros(3), L1(np.ones(2))), "`penalty`"),
        ((design, losses, none, np.ones(3), norm), "`linear`"),
        ((design, absolute, none, np.zeros(3), norm), "`losses`"),
        ((design, elsewhere, none, np.zeros(3), norm), "`losses`"),
        ((design, mixed, none, np.zeros(3), norm), "`losses`"),
        ((design, losses, Quadratic(np.zeros(3)), np.zeros(3), norm), "`penalty`"),
    ):
        with pytest.raises(InvalidInput, match=words):
            Problem(*given[:4], penalty=given[4])  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="`diagonal`"):
        ZeroQuadratic(np.ones(3))
