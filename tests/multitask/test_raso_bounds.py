"""What the joint gap proves, what it does not, and the certificate."""

from __future__ import annotations

import numpy as np
import pytest
from tasks import shared_tasks

import cvxscreen
from cvxscreen.errors import InvalidInput
from cvxscreen.multitask import certify_multitask, dual_ball, eigengap
from cvxscreen.multitask.gap import DualCandidate, PrimalCandidate, joint_gap
from cvxscreen.multitask.solve import Bcd, proven_pieces
from cvxscreen.multitask.task_solver import solve_task, zero_point


def iterates(problem, rounds=12):
    """Primal and dual points along plain block coordinate descent, with their joint gaps."""
    found = []

    def watch(metric, points, codes):
        U = np.column_stack([point.u for point in points])
        b = np.array([point.b for point in points])
        theta = np.concatenate([point.theta for point in points])
        p = np.concatenate([point.p for point in points])
        primal = PrimalCandidate.of(problem, U, b, metric, p)
        dual = DualCandidate.of(theta, problem.minus_adjoint(theta))
        found.append((U, metric.M, theta, joint_gap(problem, primal, dual)))

    Bcd(accelerate=False, max_rounds=rounds, watch=watch)(problem, 1e-12)
    return found


def tight_problem(seed: int = 0):
    """Its optimal M is a projector, so the eigenvalues of ``VV'`` are apart."""
    tasks = shared_tasks(5, 6, 80, 1, seed=seed, spread=0.1)
    return cvxscreen.raso(tasks, h=1, alpha=0.1, beta=0.1)


def loose_problem(seed: int = 0):
    """Fractional eigenvalues of M: the eigenvalues of ``VV'`` tie at h."""
    tasks = shared_tasks(6, 10, 60, 3, seed=seed, spread=0.6)
    return cvxscreen.raso(tasks, h=3, alpha=0.1, beta=0.005)


# -- the joint ball that is false -------------------------------------------------------------


def test_the_tempting_joint_ball_is_false() -> None:
    """``sum ||u_l - u_l*||^2 <= 2 gap / mu`` with ``mu = 2c / (1 + eta)`` fails by a factor of 90.

    Two tasks, two features, h = 1: ``V = diag(s1, s2)``, every slope at its bound. At M the
    projector on the second axis the joint gap is ``(s1^2 - s2^2) / 4c``, all but nothing, and yet U
    is far away.
    """
    s1, s2, eta, c = 1.0, 0.99, 0.1, 0.6
    V = np.diag([s1, s2])
    best, other = np.diag([1.0, 0.0]), np.diag([0.0, 1.0])
    optimum = (eta * np.eye(2) + best) @ V / (2 * c)
    point = (eta * np.eye(2) + other) @ V / (2 * c)
    gap = (s1**2 - s2**2) / (4 * c)  # the spectral shortfall, the only term
    claimed = 2 * gap / (2 * c / (1 + eta))
    assert claimed == pytest.approx(0.0152, abs=5e-5)
    assert np.sum((point - optimum) ** 2) == pytest.approx(1.3751, abs=5e-5)


def test_the_false_ball_fails_on_a_real_problem() -> None:
    """The same with data: tiny features far on the wrong side keep every slope at its bound."""
    s1, s2, eta = 1.0, 0.99, 0.1
    alpha = 0.6 / (eta * (1 + eta))
    scale = 1e-3
    tasks = [
        (scale * np.array([[s1, 0.0], [-s1, 0.0]]), [1.0, -1.0]),
        (scale * np.array([[0.0, s2], [0.0, -s2]]), [1.0, -1.0]),
    ]
    problem = cvxscreen.raso(tasks, h=1, alpha=alpha, beta=alpha * eta)
    end = cvxscreen.solve(problem, tol=1e-9)
    metric = problem.metric(np.diag([0.0, 1.0]))
    U = metric.B @ problem.minus_adjoint(end.theta)
    p = problem.predictions(U, end.b)
    primal = PrimalCandidate.of(problem, U, end.b, metric, p)
    gap = joint_gap(problem, primal, DualCandidate.of(end.theta, problem.minus_adjoint(end.theta)))
    claimed = 2 * gap / (2 * problem.c / (1 + eta))
    assert np.sum((U - end.U) ** 2) > 50 * claimed


def test_the_joint_objective_is_flat_along_a_line() -> None:
    """Curvature of the coupling vanishes along ``V = D A^{-1} U``: no strong convexity in U."""
    rng = np.random.default_rng(0)
    U, D = rng.standard_normal((4, 3)), rng.standard_normal((4, 4))
    D = D + D.T
    A = np.eye(4) + 0.1 * D @ D
    V = D @ np.linalg.solve(A, U)

    def coupling(t):
        return np.sum((U + t * V) * np.linalg.solve(A + t * D, U + t * V))

    step = 1e-3
    curvature = (coupling(step) - 2 * coupling(0.0) + coupling(-step)) / step**2
    assert abs(curvature) <= 1e-3 * np.sum(V**2)
    moved = np.sum((U + step * V) * np.linalg.solve(A, U + step * V))
    back = np.sum((U - step * V) * np.linalg.solve(A, U - step * V))
    assert (moved - 2 * coupling(0.0) + back) / step**2 > 0.1 * np.sum(V**2)


# -- what is true -----------------------------------------------------------------------------


@pytest.mark.parametrize("make", [tight_problem, loose_problem])
def test_the_dual_ball_contains_the_one_dual_point(make) -> None:
    for seed in range(3):
        problem = make(seed)
        best = problem.minus_adjoint(cvxscreen.solve(problem, tol=1e-10).theta)
        slack = 1e-4 * np.linalg.norm(best)
        for U, M, theta, gap in iterates(problem):
            ball = dual_ball(problem, U, M, theta, gap)
            assert np.linalg.norm(best - ball.centre) <= ball.radius + slack * (gap < 1e-6)


def test_the_dual_ball_is_attained() -> None:
    """A feature no sample has: moving U along it costs ``c t^2 / eta`` and nothing else."""
    X = np.array([[1.0, 0.0], [-1.0, 0.0], [2.0, 0.0], [0.5, 0.0]])
    problem = cvxscreen.raso([(X, [1.0, -1.0, 1.0, -1.0])], h=1, alpha=0.5, beta=0.1)
    end = cvxscreen.solve(problem, tol=1e-12)
    U = end.U + np.array([[0.0], [0.3]])
    gap = problem.c * 0.3**2 / problem.eta
    ball = dual_ball(problem, U, end.M, end.theta, gap)
    V = problem.minus_adjoint(end.theta)
    assert ball.contains(V)
    assert 0.99 * ball.radius < np.linalg.norm(V - ball.centre)


def test_eigengap_decisions_hold_for_the_joint_optimum() -> None:
    made = 0
    for seed in range(4):
        problem = tight_problem(seed)
        end = cvxscreen.solve(problem, tol=1e-11)
        actual = problem.losses.piece_within(*2 * (problem.predictions(end.U, end.b),))
        for _, _, theta, gap in iterates(problem, 10):
            codes = eigengap(problem, theta, gap).codes
            decided = codes >= 0
            made += int(decided.sum())
            assert (actual[decided] == codes[decided]).all()
        assert (end.screening.zero | end.screening.linear).mean() > 0.5
    assert made > 1000


def test_eigengap_is_attained() -> None:
    """One feature, the optimum on a kink: a changed slope costs the quadratic term alone."""
    X = np.array([[1.0], [-1.0]])
    problem = cvxscreen.raso([(X, [1.0, -1.0])], h=1, alpha=0.2, beta=0.2)
    end = cvxscreen.solve(problem, tol=1e-12)
    np.testing.assert_allclose(end.predict(X, 0), [1.0, -1.0], atol=1e-9)
    theta = 0.9 * end.theta
    u = problem.minus_adjoint(theta)[0, 0] * (1 + problem.eta) / (2 * problem.c)
    gap = problem.c * (end.U[0, 0] - u) ** 2 / (1 + problem.eta)
    verdict = eigengap(problem, theta, gap)
    away = abs(end.U[0, 0] - u)
    assert 0.99 * verdict.radius < away <= verdict.radius


def test_eigengap_says_nothing_where_eigenvalues_tie() -> None:
    problem = loose_problem()
    end = cvxscreen.solve(problem, tol=1e-9)
    values = np.linalg.eigvalsh(end.M)
    assert ((values > 1e-3) & (values < 1 - 1e-3)).any()  # M* is no projector
    assert end.screening.undecided.all()
    squared = cvxscreen.raso(shared_tasks(2, 3, 20, 1), h=1, alpha=1, beta=1, loss="squared_hinge")
    assert cvxscreen.solve(squared).screening.undecided.all()


def test_decisions_at_one_metric_are_not_permanent() -> None:
    """Some of those proven at the first M differ from the joint optimum: none is carried over."""
    different = 0
    for seed in range(3):
        problem = loose_problem(seed)
        end = cvxscreen.solve(problem, tol=1e-9)
        actual = problem.losses.piece_within(*2 * (problem.predictions(end.U, end.b),))
        metric = problem.start_metric()
        points = [
            solve_task(X, f, metric, zero_point(X))
            for X, f in zip(problem.X, problem.task_losses, strict=True)
        ]
        codes = proven_pieces(problem, metric, points)
        different += int(((codes >= 0) & (actual >= 0) & (codes != actual)).sum())
    assert different > 0


# -- the certificate --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def answer():
    return cvxscreen.solve(loose_problem(1), tol=1e-8)


def certified(answer, *, tol=1e-6, **change):
    given = {name: np.array(getattr(answer, name)) for name in ("U", "b", "M", "theta")}
    for name, edit in change.items():
        given[name] = edit(given[name])
    return certify_multitask(answer.problem, **given, tol=tol)


def test_the_answer_is_certified(answer) -> None:
    proof = certified(answer)
    assert proof.ok
    assert proof.primal == pytest.approx(
        answer.problem.primal(answer.U, answer.b, answer.M), rel=1e-13
    )
    dual = DualCandidate.of(answer.theta, answer.problem.minus_adjoint(answer.theta)).value(
        answer.problem
    )
    assert proof.dual <= dual + 1e-12
    assert proof.dual == pytest.approx(dual, rel=1e-9)


def put(index, value):
    def edit(array):
        array[index] = value
        return array

    return edit


PERTURBED = {
    "coefficients": {"U": lambda U: U + 1e-2},
    "one coefficient": {"U": lambda U: U + np.eye(*U.shape) * 0.05},
    "intercept": {"b": lambda b: b + 0.02},
    "shrunk slopes": {"theta": lambda t: 0.99 * t},
    "no slopes": {"theta": lambda t: 0 * t},
    "swapped directions": {"M": lambda M: M[::-1, ::-1]},
    "trace": {"M": lambda M: M * 1.001},
    "indefinite": {"M": lambda M: M + 0.3 * np.diag([-1.0, 1.0] + [0.0] * (len(M) - 2))},
    "asymmetric": {"M": lambda M: M + 1e-3 * np.triu(np.ones_like(M), 1)},
    "NaN": {"U": put((0, 0), np.nan)},
    "outside the box": {"theta": lambda t: 1.001 * t},
    "unbalanced": {"theta": lambda t: np.minimum(t, 0.0)},
}


@pytest.mark.parametrize("name", PERTURBED)
def test_a_perturbed_answer_is_refused(answer, name: str) -> None:
    proof = certified(answer, **PERTURBED[name])
    assert not proof.ok
    assert proof.reason


def test_the_gap_grows_with_the_perturbation(answer) -> None:
    gaps = [certified(answer, U=lambda U, s=s: U * (1 + s)).gap for s in (0, 1e-4, 1e-3, 1e-2)]
    assert gaps == sorted(gaps)
    assert gaps[-1] > 100 * gaps[0]


@pytest.mark.parametrize("off", [0.1, 1e-9])
def test_where_only_the_coupling_tells(off: float) -> None:
    """One feature, every slope at its bound: the gap is ``c (u - u*)^2`` in the metric, all of it.

    A subtraction loses it below 1e-8; a certificate without it takes any u.
    """
    X = 0.01 * np.array([[1.0], [-0.3]])
    problem = cvxscreen.raso([(X, [1.0, -1.0])], h=1, alpha=1.0, beta=1.0)
    metric = problem.metric(np.eye(1))
    theta = np.array([-0.5, 0.5])
    best = metric.B @ problem.minus_adjoint(theta)
    U, b = best * (1.0 + off), np.zeros(1)
    gap = metric.penalty(U - best)
    primal = PrimalCandidate.of(problem, U, b, metric, problem.predictions(U, b))
    found = joint_gap(problem, primal, DualCandidate.of(theta, problem.minus_adjoint(theta)))
    assert found == pytest.approx(gap, rel=1e-6, abs=0.0)
    assert certify_multitask(problem, U, b, metric.M, theta, tol=0.9).gap >= gap


def test_where_only_the_metric_tells() -> None:
    """Slopes at their bounds and ``U = B V``: the gap is what M misses of ``tr(V' N V)``, / 4c."""
    X = 0.01 * np.array([[1.0, 0.5], [-0.3, 1.0]])
    problem = cvxscreen.raso([(X, [1.0, -1.0])], h=1, alpha=1.0, beta=1.0)
    metric = problem.metric(np.diag([0.3, 0.7]))
    theta = np.array([-0.5, 0.5])
    V = problem.minus_adjoint(theta)
    U, b = metric.B @ V, np.zeros(1)
    gap = float(np.sum(V * V) - np.sum(V * (metric.M @ V))) / (4.0 * problem.c)
    primal = PrimalCandidate.of(problem, U, b, metric, problem.predictions(U, b))
    assert joint_gap(problem, primal, DualCandidate.of(theta, V)) == pytest.approx(gap, rel=1e-9)
    assert certify_multitask(problem, U, b, metric.M, theta, tol=0.9).gap >= gap


def test_wrong_shapes_are_named(answer) -> None:
    with pytest.raises(InvalidInput, match="shapes"):
        certified(answer, b=lambda b: b[:-1])
