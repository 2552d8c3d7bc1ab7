"""One table of engines for one value and for many; what is compiled, and when that pays."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from strategies import LOSSES, Case, build

import cvxscreen
from cvxscreen._support import compiled as compiled_support
from cvxscreen._support.compiled import CompileClock
from cvxscreen.core.problem import Problem
from cvxscreen.datasets import two_gaussians
from cvxscreen.paths import path as path_run
from cvxscreen.solvers import dual_coordinate_descent, registry, solve, solve as solving
from cvxscreen.solvers.beginning import hardness
from cvxscreen.solvers.compiled_path import segments

X, Y = two_gaussians(700, 5, bayes_error=0.1)


@pytest.fixture
def nothing_ready(monkeypatch: pytest.MonkeyPatch) -> CompileClock:
    """A machine that has compiled nothing yet, with a price that is never reached."""
    clock = CompileClock(np.inf)
    for module in (segments, path_run, solve):
        monkeypatch.setattr(module, "PARTS", clock)
    for module in (path_run, solve):
        monkeypatch.setattr(module, "ready", lambda: clock.due)
    return clock


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("intercept", [False, True])
def test_solve_takes_the_engine_of_a_path(loss: str, intercept: bool, monkeypatch) -> None:
    """One round, certified anew; the same optimum as the ordinary loop's, and as much proven."""
    problem = build(Case(loss, intercept, n=500))
    assert registry.engine(problem).name == "compiled_path"
    theirs = cvxscreen.solve(problem, solver="newton", tol=1e-8)
    monkeypatch.setattr("cvxscreen.solvers.loop.solve_screened", None)
    ours = cvxscreen.solve(problem, tol=1e-8)
    assert ours.status == "optimal"
    assert len(ours.rounds) == 1
    assert cvxscreen.certify(problem, ours.x, ours.theta, tol=1e-8).ok
    assert abs(ours.value - theirs.value) <= ours.certificate.gap + theirs.certificate.gap
    assert ours.screening.zero.mean() == pytest.approx(theirs.screening.zero.mean(), abs=0.02)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("sparse", [False, True])
def test_a_path_of_one_value_is_a_solve(loss: str, sparse: bool) -> None:
    """The same engine, also where many values would take another: the same answer to the bit."""
    problem = build(Case(loss, intercept=True, n=500, storage="csr64" if sparse else "dense64"))
    assert segments.suits_many(problem) == sparse
    (point,) = cvxscreen.path(problem, values=[0.3]).points
    found = cvxscreen.solve(problem.with_(C=0.3))
    np.testing.assert_array_equal(point.x, found.x)
    np.testing.assert_array_equal(point.theta, found.theta)
    assert point.kept == found.rounds[-1].kept
    assert set(point.before) >= {"zero", "linear"}


def test_a_path_at_the_problems_own_value_is_over_the_problem_itself(monkeypatch) -> None:
    """No copy of it is made, for which everything that is kept of its data is prepared again."""
    problem = cvxscreen.svm(X, Y, C=0.3)
    monkeypatch.setattr(Problem, "with_", None)
    (point,) = cvxscreen.path(problem, values=[0.3]).points
    np.testing.assert_array_equal(point.x, cvxscreen.solve(problem).x)


def test_what_the_compiled_loop_cannot_do_goes_to_the_ordinary_one(monkeypatch) -> None:
    """Bounds, a start, a near limit, proofs before solving, or a solver by name."""
    problem = cvxscreen.svm(X, Y)
    start = cvxscreen.solve(problem.with_(C=0.5))
    monkeypatch.setattr(solve, "solve_one", None)
    for options in (
        {"mode": "safe"}, {"bounds": ["midpoint"]}, {"start": start}, {"max_iter": 100},
        {"time_limit": 4.0}, {"solver": "newton"}, {"progress": True},
    ):
        assert cvxscreen.solve(problem, **options).status == "optimal"


def test_a_limit_that_is_far_off_changes_nothing(monkeypatch) -> None:
    """It took the ordinary loop, at up to 20 times the cost."""
    problem = cvxscreen.svm(X, Y)
    found, limited = cvxscreen.solve(problem), cvxscreen.solve(problem, time_limit=100.0)
    np.testing.assert_array_equal(limited.x, found.x)
    assert limited.rounds[0].solver_info == found.rounds[0].solver_info
    monkeypatch.setattr(solve, "solve_one", None)
    monkeypatch.setattr(solve, "AMPLE", 100.0)
    assert cvxscreen.solve(problem, time_limit=100.0).status == "optimal"


def test_a_refused_answer_is_solved_again(monkeypatch) -> None:
    """By the ordinary loop, whatever the compiled one claims."""
    problem, real = cvxscreen.svm(X, Y), segments.run

    def lying(arguments, first):
        count = real(arguments, first)
        arguments[-1].X[:count] *= 1.001
        return count

    monkeypatch.setattr(segments, "run", lying)
    found = cvxscreen.solve(problem, tol=1e-8)
    assert found.status == "optimal"
    assert cvxscreen.certify(problem, found.x, found.theta, tol=1e-8).ok


def test_small_problems_do_not_wait_for_a_compiler(nothing_ready: CompileClock) -> None:
    """The ordinary loop answers, and its time is counted; compiled once it is due."""
    problem = cvxscreen.svm(X, Y)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(path_run, "CompiledPath", None)
        patch.setattr(solve, "solve_one", None)
        solved = cvxscreen.solve(problem)
        spent = nothing_ready.spent
        path = cvxscreen.path(problem, values=[0.1, 1.0])
    assert spent > 0
    assert nothing_ready.spent > spent
    again = cvxscreen.path(problem, values=[0.1, 1.0])
    for other in (path.points[1], again.points[1]):
        assert abs(other.objective - solved.value) <= other.gap + solved.certificate.gap
    nothing_ready.price = 0.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(vars(path_run), "_one", None)
        assert cvxscreen.path(problem, values=[0.1, 1.0]).finished


def test_a_path_goes_over_to_the_compiled_loop_when_it_is_due(nothing_ready) -> None:
    """After the points that cost as much as compiling: the rest are compiled, from where it is."""
    nothing_ready.price = 1e-9
    found = cvxscreen.path(cvxscreen.svm(X, Y), values=np.geomspace(0.1, 1.0, 5), tol=1e-8)
    assert found.finished
    assert all(point.status == "optimal" for point in found.points)


def test_a_call_buys_one_part_of_the_code_unless_the_rest_of_it_pays_for_all(
    nothing_ready: CompileClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of a short path is not worth the other parts: the next call buys them."""
    problem, asked = cvxscreen.svm(X, Y), []

    def bought() -> bool:
        asked.append(1)
        return len(asked) > 1  # the first question compiles the largest part, and says no

    monkeypatch.setattr(path_run, "ready", bought)
    with monkeypatch.context() as patch:
        patch.setattr(path_run, "CompiledPath", None)
        assert cvxscreen.path(problem, values=np.geomspace(0.1, 1.0, 5)).finished
    assert len(asked) == 1
    with monkeypatch.context() as patch:
        patch.setitem(vars(path_run), "_one", None)
        assert cvxscreen.path(problem, values=np.geomspace(0.1, 1.0, 5)).finished
    asked.clear()
    nothing_ready.price = 1e-9  # what is left costs more than compiling
    compiled = []
    monkeypatch.setattr(
        path_run, "CompiledPath", lambda *given: compiled.append(1) or segments.CompiledPath(*given)
    )
    assert cvxscreen.path(problem, values=np.geomspace(0.1, 1.0, 5)).finished
    assert compiled


def test_many_problems_of_one_call_buy_one_part_of_the_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Folds, say: those after the one that compiles go on without, until that costs as much."""
    newton = SimpleNamespace(stats=None, signatures=[])
    newton.compile = newton.signatures.append
    clock = CompileClock(5.0)
    clock.spent = 6.0
    monkeypatch.setattr(segments, "newton", newton)
    monkeypatch.setattr(segments, "PARTS", clock)
    monkeypatch.setattr(compiled_support, "on_disk", lambda loop: False)
    with segments.one_purchase():
        assert [segments.ready(), segments.ready()] == [False, False]
        assert len(newton.signatures) == 1
        clock.spent += segments.OTHER_PARTS
        assert segments.ready()
    newton.signatures.clear()
    clock.spent = 6.0
    with segments.one_purchase():
        assert not segments.ready()
    assert segments.ready()  # in the next call


def test_what_is_compiled_meanwhile_is_no_rent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the work itself counts: compiling a helper must not buy the whole path."""
    now, clock = [0.0], CompileClock(5.0)
    said = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(compiled_support, "process_time", lambda: now[0])
    monkeypatch.setattr(compiled_support, "ANNOUNCEMENT", said)
    with clock.rent(coming=40):
        now[0] += 2.1
        said.seconds += 2.0
    assert clock.spent == pytest.approx(0.1)
    assert not clock.pays
    with clock.rent(coming=60):
        now[0] += 0.1
    assert clock.pays


def test_programs_that_each_wait_a_little_have_compiled_code_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one process has waited is noted beside numba's own files, and counts in the next."""
    place = SimpleNamespace(_index_path=str(tmp_path / "loop.nbi"))
    monkeypatch.setattr(compiled_support, "_index", lambda loop: place)
    now = [0.0]
    monkeypatch.setattr(compiled_support, "process_time", lambda: now[0])
    monkeypatch.setattr(compiled_support, "ANNOUNCEMENT", SimpleNamespace(seconds=0.0))
    for process in range(3):
        clock = CompileClock(5.0, loop=object())
        assert clock.before == pytest.approx(2.0 * process)
        assert not clock.due
        with clock.rent():
            now[0] += 2.0
    assert clock.due
    assert CompileClock(5.0, loop=object()).due
    (tmp_path / "loop.waited").write_text("half a num")
    assert not CompileClock(5.0, loop=object()).due
    monkeypatch.setattr(compiled_support, "_index", lambda loop: None)  # nothing can be kept
    clock = CompileClock(5.0, loop=object())
    with clock.rent():
        now[0] += 6.0
    assert clock.due


def test_the_cold_first_point_does_not_say_what_the_others_cost(
    nothing_ready: CompileClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts from nothing and imports what it takes; those after it are told to the clock."""
    coming: list[int] = []

    @contextmanager
    def rent(more: int = 0) -> Iterator[None]:
        coming.append(more)
        yield

    monkeypatch.setattr(nothing_ready, "rent", rent)
    assert cvxscreen.path(cvxscreen.svm(X, Y), values=np.geomspace(0.1, 1.0, 4)).finished
    assert coming == [0, 2, 1, 0]


def test_the_loop_uncompiled_over_compiled_parts_is_the_same(monkeypatch) -> None:
    """To the last rounding: the time until the loop itself is compiled changes no answer."""
    problem, grid = cvxscreen.svm(X, Y, intercept=True), np.geomspace(0.01, 10.0, 12)
    fast = segments.CompiledPath(problem, "certified", 1e-8).solve(grid)
    monkeypatch.setattr(segments, "LOOP", CompileClock(np.inf))
    monkeypatch.setattr(segments, "on_disk", lambda loop: False)
    slow = segments.CompiledPath(problem, "certified", 1e-8).solve(grid)
    assert slow.proofs.ok.all()
    np.testing.assert_allclose(slow.X, fast.X, rtol=1e-6, atol=1e-9)
    assert segments.LOOP.spent > 0


def square(n: int, C: float, loss: str = "hinge") -> Problem:
    """As many features as terms."""
    rng = np.random.default_rng(n)
    A = rng.standard_normal((n, n))
    y = A @ rng.standard_normal(n) / np.sqrt(n) + 0.5 * rng.standard_normal(n)
    if loss == "hinge":
        return cvxscreen.svm(A, np.sign(y), C=C)
    return cvxscreen.regression(A, y, C=C, loss=loss)


def test_square_problems_begin_by_coordinate_descent(monkeypatch) -> None:
    """It is done before a system would have been solved; the certificate is anew."""
    problem = square(200, 0.01)
    monkeypatch.setattr(solve, "solve_one", None)
    monkeypatch.setattr(dual_coordinate_descent, "ready", lambda *asked: True)
    found = cvxscreen.solve(problem)
    assert len(found.rounds) == 1
    assert found.rounds[0].solver_info["epochs"] > 0
    assert cvxscreen.certify(problem, found.x, found.theta).ok
    theirs = cvxscreen.solve(problem, solver="newton", tol=1e-9)
    assert abs(found.value - theirs.value) <= found.certificate.gap + theirs.certificate.gap


def test_descent_that_would_be_slow_is_given_up() -> None:
    """Within a few passes; the compiled path goes on."""
    problem = square(150, 1.0, "absolute")
    found = cvxscreen.solve(problem)
    assert found.certificate.ok
    assert "epochs" not in found.rounds[-1].solver_info


def test_the_path_goes_on_where_descent_has_come_near(monkeypatch) -> None:
    """It begins at the point that is there, in fewer steps than by itself, to the same optimum."""
    rng = np.random.default_rng(3)
    A = rng.standard_normal((1500, 40)) @ np.diag(np.geomspace(1.0, 0.05, 40))
    problem = cvxscreen.svm(A, np.sign(A.sum(axis=1) + rng.standard_normal(1500)), C=0.05)
    alone = solving.solve_one(solving.InUnits.of(problem), 1e-9, ())
    monkeypatch.setattr(dual_coordinate_descent, "budget", lambda problem, then: 8.0)
    monkeypatch.setattr(solving, "NEAR", 1e-2)
    monkeypatch.setattr(dual_coordinate_descent, "FACES", 0)  # no pivots, which would do
    near = dual_coordinate_descent.DualCoordinateDescent.beginning(problem, None, 1e-9)(problem)
    assert near.status == "inaccurate"
    assert near.info["relative_gap"] <= solving.NEAR
    found = solving.solve_by_descent(solving.InUnits.of(problem), 1e-9, ())
    assert found.certificate.ok
    assert alone.certificate.ok
    assert found.rounds[0].solver_info["steps"] < alone.rounds[0].solver_info["steps"]
    assert abs(found.value - alone.value) <= found.certificate.gap + alone.certificate.gap


def test_easy_problems_are_left_to_coordinate_descent(monkeypatch) -> None:
    """Where a slope cannot move a margin much; whatever the scale of the data."""
    monkeypatch.setattr(dual_coordinate_descent, "ready", lambda *asked: True)
    rows, labels = two_gaussians(700, 20, bayes_error=0.1)
    for scale in (1e-3, 1.0, 1e3):
        scaled = cvxscreen.svm(scale * rows, labels)
        assert registry.begins_by_descent(scaled.with_(C=1e-3 / scale**2))
        assert not registry.begins_by_descent(scaled.with_(C=1.0 / scale**2))
    found = cvxscreen.solve(cvxscreen.svm(rows, labels, C=1e-3))
    assert found.certificate.ok
    assert "epochs" in found.rounds[0].solver_info
    # Systems of size five cost next to nothing.
    assert not registry.begins_by_descent(cvxscreen.svm(X, Y, C=1e-5))


def test_coordinate_descent_is_not_begun_where_it_would_be_given_up() -> None:
    """Huber's loss where C is large, over tall dense rows; whatever the scale of the data."""
    rng = np.random.default_rng(5)
    A = rng.standard_normal((400, 200))
    y = A @ rng.standard_normal(200)
    for scale in (1e-3, 1.0, 1e3):
        easy, hard = (
            cvxscreen.regression(scale * A, y, loss="huber", C=C / scale**2, intercept=True)
            for C in (0.1, 10.0)
        )
        assert hardness(easy) < registry.GIVEN_UP < hardness(hard)
        assert registry.begins_by_descent(easy)
        assert not registry.begins_by_descent(hard)
    off = cvxscreen.regression(A + 30.0, y, loss="huber", C=0.1, intercept=True)
    assert hardness(off) > registry.GIVEN_UP
    assert registry.begins_by_descent(off)  # about the centre
    others = (
        cvxscreen.regression(sp.csr_matrix(A), y, loss="huber", C=10.0, intercept=True),
        cvxscreen.regression(A[:150], y[:150], loss="huber", C=10.0, intercept=True),
        cvxscreen.svm(A, np.sign(y), loss="squared_hinge", C=10.0, intercept=True),
        cvxscreen.regression(A, y, C=10.0, intercept=True),
    )
    assert all(map(registry.begins_by_descent, others))


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("intercept", [False, True])
def test_a_path_makes_well_filled_sparse_rows_dense(loss: str, intercept: bool) -> None:
    """The optimum is that over dense rows, certified on the sparse ones; these stay sparse."""
    rng = np.random.default_rng(5)
    A = rng.standard_normal((400, 30)) * (rng.random((400, 30)) < 0.3)
    y = np.where(A @ rng.standard_normal(30) + rng.standard_normal(400) > 0, 1.0, -1.0)
    stored = sp.csr_matrix(A)
    sparse = cvxscreen.svm(stored, y, loss=loss, intercept=intercept)
    dense = cvxscreen.svm(A, y, loss=loss, intercept=intercept)
    assert segments.suits_many(sparse)
    assert not segments.suits(sparse)
    grid = np.geomspace(1e-2, 10.0, 8)
    points = (cvxscreen.path(p, values=grid).points for p in (sparse, dense))
    for ours, theirs in zip(*points, strict=True):
        np.testing.assert_allclose(ours.x, theirs.x, rtol=1e-4, atol=1e-4)
        proof = cvxscreen.certify(sparse.with_(C=ours.value), ours.x, ours.theta)
        assert proof.ok
        assert abs(ours.objective - theirs.objective) <= ours.gap + theirs.gap
    assert (stored != sp.csr_matrix(A)).nnz == 0
    few = sp.random(400, 30, 0.02, "csr", random_state=0)
    assert not segments.suits_many(cvxscreen.svm(few, y, loss=loss, intercept=intercept))


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_a_solve_makes_light_sparse_rows_dense(loss: str, monkeypatch) -> None:
    """Where descent on them gives up; neither where systems are heavy nor where rows are empty."""
    rng = np.random.default_rng(6)
    A = sp.random(600, 30, 0.2, "csr", random_state=rng)
    y = np.where(A @ rng.standard_normal(30) > 0, 1.0, -1.0)
    problem = cvxscreen.svm(A, y, C=10.0, loss=loss, intercept=True)
    assert segments.suits_one(problem)
    assert registry.compiled_path(problem, "auto")
    found = cvxscreen.solve(problem)
    theirs = cvxscreen.solve(cvxscreen.svm(A.toarray(), y, C=10.0, loss=loss, intercept=True))
    assert cvxscreen.certify(problem, found.x, found.theta).ok
    assert abs(found.value - theirs.value) <= found.certificate.gap + theirs.certificate.gap
    few = sp.random(600, 30, 0.02, "csr", random_state=0)
    assert not segments.suits_one(cvxscreen.svm(few, y, loss=loss))
    for name in ("SYSTEMS", "SMOOTH_SYSTEMS"):
        monkeypatch.setattr(segments, name, 599 * 31**2)
    assert not registry.compiled_path(problem, "auto")


def test_loading_waits_for_the_stored_entries(monkeypatch) -> None:
    """Numpy takes as long as there are entries; what sparse rows do not store is none."""
    monkeypatch.setattr(segments, "newton", SimpleNamespace(loaded=False))
    monkeypatch.setattr(segments, "LOADING", CompileClock(0.25))
    n, d = 200_000, 100
    some = sp.csr_array(
        (np.ones(n), (np.arange(n), np.arange(n) % d)), shape=(n, d)
    )
    sparse = cvxscreen.svm(some, np.where(np.arange(n) % 2, 1.0, -1.0))
    assert sparse.n * sparse.d > segments.LIGHT
    calls = 0
    while segments.before_loading(sparse):
        segments.charge(sparse)
        calls += 1
    assert 5 <= calls <= 10
    dense = cvxscreen.svm(np.ones((50_000, 50)), np.where(np.arange(50_000) % 2, 1.0, -1.0))
    monkeypatch.setattr(segments, "LOADING", CompileClock(0.25))
    assert not segments.before_loading(dense)


def test_a_solve_before_loading_is_charged_once(monkeypatch) -> None:
    """Also where the loop of screening would begin by coordinate descent, and charges for it."""
    monkeypatch.setattr(segments, "newton", SimpleNamespace(loaded=False))
    monkeypatch.setattr(segments, "LOADING", CompileClock(0.25))
    rows, labels = two_gaussians(2_100, 20, bayes_error=0.1)
    problem = cvxscreen.svm(rows, labels, C=1e-3)
    assert registry.begins_by_descent(problem)
    assert cvxscreen.solve(problem).certificate.ok
    once = segments.CALL + segments.ENTRY * problem.n * problem.d
    assert segments.LOADING.spent == pytest.approx(once, rel=1e-9)


AT_ONCE = """
import threading
import numpy as np
import cvxscreen
from cvxscreen.solvers.compiled_path.segments import LOADING, compile_now

compile_now()
LOADING.spent = LOADING.price
start, found = threading.Barrier(3), []
problems = [cvxscreen.svm(*cvxscreen.datasets.two_gaussians(300, 4, seed=k)) for k in range(3)]

def follow(problem):
    start.wait()
    found.append(cvxscreen.path(problem, values=[0.1, 1.0]).points)

threads = [threading.Thread(target=follow, args=(problem,)) for problem in problems]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(found))
"""


def test_the_solver_handed_to_the_loop_is_the_one_that_is_kept_on_disk() -> None:
    """Asked for by its arguments alone wherever it is: another key would compile it once more."""
    from numba import types

    segments._compiled_path()
    stats, [made] = segments.newton.stats, segments.newton.overloads.values()
    assert {type(key) for key in (*stats.cache_hits, *stats.cache_misses)} == {tuple}
    number = types.float64
    assert made.signature.return_type == types.Tuple((number, types.int64, number))


def test_threads_that_begin_together_load_the_loop_once() -> None:
    run = subprocess.run(
        [sys.executable, "-c", AT_ONCE], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["3"], run.stderr
