"""The compiled path: same answers as the ordinary one, proven, and replaced where it is wrong."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from itertools import count

import numpy as np
import pytest
from strategies import LOSSES, Case, build

import cvxscreen
from cvxscreen.datasets import two_gaussians
from cvxscreen.errors import InvalidInput, UnknownName
from cvxscreen.paths import path as path_run
from cvxscreen.paths.record import PathPoint
from cvxscreen.solvers.compiled_path import segments as small_path
from cvxscreen.solvers.compiled_path.segments import CompiledPath, suits

GRID = np.geomspace(0.02, 5.0, 8)
X, Y = two_gaussians(700, 5, bayes_error=0.1)
CASES = [
    Case(loss, intercept, data, storage, weighted, n=90)
    for loss in LOSSES
    for intercept in (False, True)
    for data, storage, weighted in (
        ("plain", "dense64", True), ("scaled", "dense32", False), ("twins", "dense64", False),
    )
]


def agree(problem, ours, theirs) -> None:
    """Two certified points of one problem: as near as their gaps say."""
    here = problem.with_(C=ours.value)
    for point in (ours, theirs):
        assert point.status == "optimal"
        proof = cvxscreen.certify(here, point.x, point.theta, tol=1e-8)
        assert proof.ok, proof.reason
        assert proof.primal == pytest.approx(point.objective, rel=1e-12)
    apart = here.quadratic.norm(ours.x - theirs.x)
    assert apart <= (np.sqrt(2 * ours.gap) + np.sqrt(2 * theirs.gap)) * (1 + 1e-9)
    assert abs(ours.objective - theirs.objective) <= ours.gap + theirs.gap


@pytest.mark.table
@pytest.mark.parametrize("case", CASES, ids=str)
def test_same_answers_as_the_ordinary_path(case: Case) -> None:
    """Every loss, with and without intercept, up and down, both modes."""
    problem = build(case)
    assert suits(problem)
    for mode, grid in (("certified", GRID[::-2]), ("safe", GRID[::2])):
        ours = cvxscreen.path(problem, values=grid, tol=1e-8, mode=mode)
        theirs = cvxscreen.path(problem, values=grid, tol=1e-8, mode=mode, solver="newton")
        assert ours.finished
        for a, b in zip(ours.points, theirs.points, strict=True):
            assert a.value == b.value
            agree(problem, a, b)


@pytest.mark.parametrize("garbage", [np.nan, np.inf, 1e300])
def test_memory_that_nobody_wrote_is_never_read(garbage: float) -> None:
    """A point found again from its record has the same bits, whatever lay in the memory before."""
    X, y = two_gaussians(150, 4, seed=1)
    problem, grid = cvxscreen.svm(X, y, intercept=True), np.geomspace(0.01, 10.0, 6)
    first = cvxscreen.path(problem, values=grid[:1]).points[0]
    found = []
    for fill in (0.0, garbage):
        run = CompiledPath(problem, "certified", 1e-6)
        memory = CompiledPath(problem, "certified", 1e-6)
        memory.solve(grid[:1])
        run.recall(memory.memory)
        run.restart(first.value, first.x, first.theta)
        for room in (*run.reduced, run.work.B, run.work.H):
            room[...] = fill
        stretch = run.solve(grid[1:])
        assert stretch.proofs.ok.all()
        found.append((stretch.X.tobytes(), stretch.record.tobytes()))
    assert found[0] == found[1]


def test_the_compiled_solver_does_the_work(monkeypatch) -> None:
    """On ordinary data no point falls back; forced to, every point is the ordinary loop's."""
    calls = []
    real = vars(path_run)["solve_screened"]
    monkeypatch.setitem(
        vars(path_run), "solve_screened",
        lambda *args, **options: calls.append(1) or real(*args, **options),
    )
    for loss in ("hinge", "squared_hinge"):
        for intercept in (False, True):
            problem = cvxscreen.svm(X, Y, loss=loss, intercept=intercept)
            cvxscreen.path(problem, values=GRID, tol=1e-9)
            cvxscreen.path(problem, values=GRID[::-1], tol=1e-9, mode="safe")
    assert not calls
    cvxscreen.path(problem, values=GRID[:2], solver="newton")
    assert len(calls) == 2


def test_records_have_the_same_fields() -> None:
    """Types and meaning, first point without a neighbour, shares proven from the point before."""
    problem = cvxscreen.svm(X, Y)
    ours = cvxscreen.path(problem, values=GRID, tol=1e-9)
    theirs = cvxscreen.path(problem, values=GRID, tol=1e-9, solver="newton")
    for a, b in zip(ours.points, theirs.points, strict=True):
        assert isinstance(a, PathPoint)
        assert vars(a).keys() == vars(b).keys()
        for name in vars(a):
            if name != "before":
                assert type(getattr(a, name)) is type(getattr(b, name)), name
        assert set(a.before) == set(b.before)
        for kind, share in b.before.items():
            assert a.before[kind] == pytest.approx(share, abs=0.01)
        assert 0 < a.kept <= problem.n
        assert a.seconds > 0
    assert ours.points[-1].before["zero"] > 0.1
    assert len(str(ours).splitlines()) == len(str(theirs).splitlines())
    assert ours.points[-1] is ours.points[len(GRID) - 1]
    assert [p.value for p in ours.points[1:3]] == list(GRID[1:3])
    back = pickle.loads(pickle.dumps(ours))
    np.testing.assert_array_equal(back.points[3].theta, ours.points[3].theta)
    assert dict(back.points[3].before) == dict(ours.points[3].before)


def test_bad_requests_are_refused() -> None:
    problem = cvxscreen.svm(X, Y)
    with pytest.raises(UnknownName, match="mode"):
        cvxscreen.path(problem, values=GRID, mode="fast")
    with pytest.raises(InvalidInput, match="`tol`"):
        cvxscreen.path(problem, values=GRID, tol=2.0)


def test_other_problems_take_the_ordinary_path() -> None:
    """Kernels, CSR, many coordinates."""
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    wide = rng.standard_normal((30, small_path.WIDTH + 1))
    y = np.where(np.arange(30) % 2, 1.0, -1.0)
    for problem in (
        cvxscreen.svm(X[:40], Y[:40], kernel="rbf"),
        cvxscreen.svm(sp.csr_matrix(X), Y),
        cvxscreen.svm(wide, y),
    ):
        assert not suits(problem)
    assert suits(cvxscreen.svm(X, Y))


# -- wrong answers -----------------------------------------------------------------------------


def spoil_x(k, X, codes, pool, first) -> None:
    X[k] *= 1.001


def spoil_codes(k, X, codes, pool, first) -> None:
    codes[k, np.flatnonzero(codes[k] == 0)[:3]] = 1


def spoil_pool(k, X, codes, pool, first) -> None:
    pool[first[k]] += 10.0


def not_a_number(k, X, codes, pool, first) -> None:
    X[k, 0] = np.nan


@pytest.mark.parametrize(("spoil", "where", "intercept"), [
    *((spoil, where, intercept) for spoil in (spoil_x, spoil_codes, spoil_pool, not_a_number)
      for where, intercept in (({2}, True), ({0, 7}, False))),
    (spoil_x, set(range(8)), False),
])
def test_planted_answers_are_refused_and_redone(spoil, where, intercept, monkeypatch) -> None:
    """The loop claims success; the certificate refuses, and the ordinary path solves the point."""
    problem = cvxscreen.svm(X, Y, intercept=intercept)
    real, redone = small_path.run, []
    one = vars(path_run)["solve_screened"]

    def lying(arguments, first):
        count = real(arguments, first)
        for k in where:
            if first <= k < count:
                spoil(k, *arguments[-1][:-1])
        return count

    def counting(here, *args, **options):
        redone.append(here.C)
        return one(here, *args, **options)

    monkeypatch.setattr(small_path, "run", lying)
    monkeypatch.setitem(vars(path_run), "solve_screened", counting)
    found = cvxscreen.path(problem, values=GRID, tol=1e-8)
    assert redone == [GRID[k] for k in sorted(where)]
    np.testing.assert_array_equal(found.values, GRID)
    for point in found.points:
        here = problem.with_(C=point.value)
        assert point.status == "optimal"
        assert cvxscreen.certify(here, point.x, point.theta, tol=1e-8).ok


def test_a_loop_that_gives_up_is_helped(monkeypatch) -> None:
    """Points it misses are solved by the ordinary loop; it goes on from there, for a while."""
    problem = cvxscreen.svm(X, Y)
    real = CompiledPath.solve
    calls = []

    def short(self, values):
        calls.append(len(values))
        return real(self, values[: 0 if len(calls) % 2 else 1])

    monkeypatch.setattr(CompiledPath, "solve", short)
    found = cvxscreen.path(problem, values=GRID, tol=1e-8)
    assert found.finished
    assert len(found.points) == len(GRID)
    theirs = cvxscreen.path(problem, values=GRID, tol=1e-8, solver="newton")
    for a, b in zip(found.points, theirs.points, strict=True):
        agree(problem, a, b)


def test_an_interrupt_keeps_what_is_finished(monkeypatch) -> None:
    """Stretches are short enough to be heard between them."""
    real, calls = CompiledPath.solve, []

    def stopping(self, values):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(self, values)

    monkeypatch.setattr(CompiledPath, "solve", stopping)
    monkeypatch.setattr(CompiledPath, "length", lambda self, left: min(left, 2))
    found = cvxscreen.path(cvxscreen.svm(X, Y), values=GRID)
    assert not found.finished
    np.testing.assert_array_equal(found.values, GRID[:4])
    assert "interrupted" in str(found)


def test_stretches_are_short_on_large_data() -> None:
    run = CompiledPath(cvxscreen.svm(X, Y), "certified", 1e-6)
    assert run.length(3) == 3
    run.pace = small_path.SECONDS / 5
    assert run.length(100) == 5
    run.pace = 1e9
    assert run.length(100) == 1


def test_where_a_stretch_ends_is_counted_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretches end at the same points on a busy machine: the same bits in every run."""
    def lengths(clock: Iterator[float]) -> list[float]:
        monkeypatch.setattr(small_path, "perf_counter", lambda: next(clock))
        run = CompiledPath(cvxscreen.svm(X, Y), "certified", 1e-6)
        return [(run.solve(GRID[k : k + 3]), run.pace)[1] for k in (0, 3)]

    slow = lengths(float(k) for k in count())
    assert slow == lengths(0.0 for _ in count())
    assert slow[0] != slow[1]  # of the passes that the points took


@pytest.mark.parametrize("intercept", [False, True])
def test_more_coordinates_than_a_strip_has_columns(intercept) -> None:
    """Few terms that bend among 200 coordinates (Woodbury's system), and many; certified."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((260, 200))
    y = np.sign(X[:, 0] + 0.5 * rng.standard_normal(260))
    for C in (1e-4, 1.0):
        problem = cvxscreen.svm(X, y, C=C, intercept=intercept)
        assert suits(problem)
        stretch = CompiledPath(problem, "certified", 1e-8).solve(np.array([C]))
        assert stretch.proofs.ok.all()
        plain = cvxscreen.path(problem, values=[C], tol=1e-8, solver="newton").points[0]
        assert stretch.proofs.primal[0] == pytest.approx(plain.objective, rel=1e-7)


def test_the_compiled_path_leaves_memory_to_others(monkeypatch) -> None:
    """Not more than its share of the machine's memory goes to copies of the data."""
    problem = cvxscreen.svm(*two_gaussians(400_000, 20))
    monkeypatch.setattr(small_path, "memory_of_machine", lambda: 2**30)
    assert suits(problem)
    monkeypatch.setattr(small_path, "memory_of_machine", lambda: 2**28)
    assert not suits(problem)
    wide = cvxscreen.svm(*two_gaussians(80, 100))
    assert not suits(wide)  # more coordinates than terms


@pytest.mark.parametrize("loss", ["hinge", "absolute", "huber"])
@pytest.mark.parametrize("mean", [100.0, 1e4])
def test_features_far_from_their_spread_are_centred(loss, mean, monkeypatch) -> None:
    """With an intercept: as many Newton steps as for centred features, and the same optimum."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((800, 6))
    target = X @ rng.standard_normal(6) + rng.standard_normal(800)
    make, y = cvxscreen.regression, target
    if loss == "hinge":
        make, y = cvxscreen.svm, np.sign(target)
    grid = np.geomspace(0.01, 10.0, 8)
    near = CompiledPath(make(X, y, loss=loss, intercept=True), "certified", 1e-7)
    moved = make(X + mean * np.arange(1.0, 7.0), y, loss=loss, intercept=True)
    far = CompiledPath(moved, "certified", 1e-7)
    assert far.centre is not None
    assert near.centre is None
    left, right = near.solve(grid), far.solve(grid)
    assert right.proofs.ok.all()  # on the data as given
    np.testing.assert_allclose(right.proofs.primal, left.proofs.primal, rtol=3e-7)
    steps = list(small_path.COLUMNS).index("steps")
    assert right.record[:, steps].sum() <= 1.5 * left.record[:, steps].sum() + 10
    half = CompiledPath(moved, "certified", 1e-7)  # restarted in the middle
    theta = right.theta.row(3)
    half.restart(float(grid[3]), right.X[3], theta)
    np.testing.assert_allclose(half.t, moved.design.forward(right.X[3]), atol=1e-6)
    assert half.solve(grid[4:]).proofs.ok.all()
    monkeypatch.setattr(small_path, "OFF_CENTRE", np.inf)
    assert CompiledPath(moved, "certified", 1e-7).centre is None
