"""Paths over C: same answers as single solves, resumable, interruptible, certified."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path as FilePath

import numpy as np
import pytest

import cvxscreen
from cvxscreen import path as solve_path
from cvxscreen._support.limits import Limits
from cvxscreen.bounds.regions import Ball
from cvxscreen.datasets import heavy_tailed_regression, two_gaussians
from cvxscreen.errors import InvalidInput, UnknownName
from cvxscreen.paths import path as path_run
from cvxscreen.paths.record import Checkpoint
from cvxscreen.solvers.compiled_path.segments import CompiledPath

X, Y = two_gaussians(900, 6, bayes_error=0.1)
GRID = np.geomspace(0.02, 5.0, 6)


def problems():
    """One problem a kind, intercept on and off."""
    A, b = heavy_tailed_regression(800, 5)
    return {
        "hinge": cvxscreen.svm(X, Y),
        "hinge, intercept": cvxscreen.svm(X, Y, intercept=True),
        "squared hinge": cvxscreen.svm(X, Y, loss="squared_hinge"),
        "absolute": cvxscreen.regression(A, b, intercept=True),
        "quantile": cvxscreen.regression(A, b, loss="quantile", tau=0.1),
    }


@pytest.mark.table
@pytest.mark.parametrize("name", problems())
@pytest.mark.parametrize("down", [False, True], ids=["up", "down"])
@pytest.mark.parametrize("mode", ["certified", "safe"])
def test_every_point_is_the_solution_of_its_own_problem(name, down, mode) -> None:
    """Warm starts change the work, not the answer."""
    problem = problems()[name]
    grid = GRID[::-1] if down else GRID
    found = solve_path(problem, values=grid, tol=1e-8, mode=mode)
    assert found.finished
    np.testing.assert_array_equal(found.values, grid)
    for point in found.points:
        alone = cvxscreen.solve(problem.with_(C=point.value), tol=1e-10)
        assert point.status == alone.status == "optimal"
        assert point.relative_gap <= 1e-8
        assert point.objective == pytest.approx(alone.value, rel=1e-8)
        proof = cvxscreen.certify(
            problem.with_(C=point.value), point.x, point.theta, tol=1e-8
        )
        assert proof.ok


def test_what_is_proven_before_a_solve_is_true() -> None:
    """The shares that a plot shows are those of the DVI ball of the point before."""
    problem = cvxscreen.svm(X, Y)
    found = solve_path(problem, values=GRID, tol=1e-10)
    first, second = (problem.with_(C=p.value) for p in found.points[:2])
    verdict = cvxscreen.screen(second, reference=cvxscreen.solve(first, tol=1e-10), bound="dvi")
    assert found.points[0].before["zero"] == 0.0
    assert found.points[1].before["zero"] == pytest.approx(verdict.zero.mean(), abs=0.01)
    assert verdict.zero.mean() > 0.1


@pytest.mark.parametrize("solver", ["auto", "newton"])
def test_a_checkpoint_resumes_where_it_stopped(solver, tmp_path: FilePath, monkeypatch) -> None:
    """An interrupted run keeps its points; the next one solves only the rest."""
    problem = cvxscreen.svm(X, Y)
    file = tmp_path / "points.npz"
    whole = solve_path(problem, values=GRID, solver=solver)
    solved: list[float] = []
    compiled = solver == "auto"
    where = CompiledPath if compiled else vars(path_run)
    name = "solve" if compiled else "solve_screened"
    real = vars(where)[name] if compiled else where[name]

    def stopping(*args, **options):
        if len(solved) == 3:
            raise KeyboardInterrupt
        solved.append(1.0)
        return real(*args, **options)

    (monkeypatch.setattr if compiled else monkeypatch.setitem)(where, name, stopping)
    part = solve_path(problem, values=GRID, checkpoint=file, solver=solver)
    assert not part.finished
    assert len(part.points) == 3
    assert "interrupted" in str(part)
    monkeypatch.undo()
    rest = solve_path(problem, values=GRID, checkpoint=file, solver=solver)
    assert rest.finished
    for ours, theirs in zip(rest.points, whole.points, strict=True):
        assert ours.objective == pytest.approx(theirs.objective, rel=1e-6)
    np.testing.assert_array_equal(rest.points[1].x, part.points[1].x)
    again = solve_path(problem, values=GRID, checkpoint=file)
    np.testing.assert_array_equal(again.points[-1].x, rest.points[-1].x)
    assert not list(tmp_path.glob("tmp*"))


def test_a_checkpoint_of_something_else_is_refused(tmp_path: FilePath) -> None:
    """Other data, another grid, another tolerance, or no checkpoint at all."""
    problem = cvxscreen.svm(X, Y)
    file = tmp_path / "points.npz"
    solve_path(problem, values=GRID[:2], checkpoint=file)
    for other, grid, tol in (
        (cvxscreen.svm(2 * X, Y), GRID[:2], 1e-6),
        (problem, GRID[:3], 1e-6),
        (problem, GRID[:2], 1e-7),
    ):
        with pytest.raises(InvalidInput, match="`checkpoint`"):
            solve_path(other, values=grid, tol=tol, checkpoint=file)
    for content in (b"", b"PK\x03\x04 not a zip", json.dumps({"a": 1}).encode()):
        file.write_bytes(content)
        with pytest.raises(InvalidInput, match="`checkpoint`"):
            solve_path(problem, values=GRID[:2], checkpoint=file)
        assert file.read_bytes() == content
    np.savez(file, head=np.array([{"a": 1}], dtype=object))
    with pytest.raises(InvalidInput, match="`checkpoint`"):
        solve_path(problem, values=GRID[:2], checkpoint=file)
    with pytest.raises(InvalidInput, match="folder"):
        solve_path(problem, values=GRID[:2], checkpoint=tmp_path / "no" / "points.npz")


def test_a_saved_path_is_read_back(tmp_path: FilePath) -> None:
    """Table and arrays survive."""
    found = solve_path(cvxscreen.svm(X, Y), values=GRID[:3])
    found.save(tmp_path / "path.npz")
    back = cvxscreen.load_path(tmp_path / "path.npz")
    assert str(back) == str(found)
    np.testing.assert_array_equal(back.points[2].theta, found.points[2].theta)
    with pytest.raises(InvalidInput, match="not a file"):
        cvxscreen.load_path(tmp_path / "other.npz")
    with pytest.raises(InvalidInput, match="folder"):
        found.save(tmp_path / "no" / "path.npz")


@pytest.mark.parametrize("values", [[], [1.0, -1.0], [0.0], [np.nan], [[1.0, 2.0]], [np.inf]])
def test_bad_grids_are_refused(values) -> None:
    with pytest.raises(InvalidInput, match="`values`"):
        solve_path(cvxscreen.svm(X, Y), values=values)


def test_only_known_parameters() -> None:
    with pytest.raises(UnknownName, match="`over`"):
        solve_path(cvxscreen.svm(X, Y), over="gamma", values=[1.0])


def test_plot_and_progress(capsys) -> None:
    """A figure with two panels; progress goes to standard error only."""
    found = solve_path(cvxscreen.svm(X, Y), values=GRID[:3], progress=True)
    assert len(found.plot().axes) >= 2
    assert capsys.readouterr().out == ""


def test_a_path_is_screened_by_the_bounds_that_are_asked_for() -> None:
    X, y = cvxscreen.datasets.two_gaussians(300, 4)
    problem, values = cvxscreen.svm(X, y), [0.01, 0.0102, 0.0104]
    asked: list[int] = []

    def watched(here: cvxscreen.Problem, point: cvxscreen.Point) -> Ball:
        asked.append(here.n)
        return cvxscreen.bounds.gap_ball(here, point)

    usual = cvxscreen.path(problem, values=values, mode="safe", tol=1e-9)
    for bounds in ("gap", ["gap"], watched):
        found = cvxscreen.path(problem, values=values, mode="safe", tol=1e-9, bounds=bounds)
        for one, other in zip(found.points, usual.points, strict=True):
            assert one.relative_gap <= 1e-9
            assert one.objective == pytest.approx(other.objective, rel=1e-8)
        # The gap ball is the larger one: it proves less before a solve.
        assert 0 < found.points[2].before["zero"] < usual.points[2].before["zero"]
    assert asked
    with pytest.raises(UnknownName, match="nonsense"):
        cvxscreen.path(problem, values=values, bounds="nonsense")
    metric = cvxscreen.rtlm(X, cvxscreen.triplets(X, y, 2), 100.0)
    with pytest.raises(InvalidInput, match=r"`bounds`.*rules of its own"):
        cvxscreen.path(metric, over="lam", values=[200.0, 100.0], bounds="gb")


def test_parameters_that_a_problem_does_not_have() -> None:
    A, b = heavy_tailed_regression(60, 2)
    metric = cvxscreen.rtlm(X[:60], cvxscreen.triplets(X[:60], Y[:60], k=1), 1.0)
    for problem, more, words in (
        (cvxscreen.svm(X, Y), {"over": "tau", "values": [0.5]}, "no quantile level"),
        (cvxscreen.svm(X, Y), {"over": "beta", "values": [0.5]}, "raso"),
        (cvxscreen.svm(X, Y), {"over": "lambda", "values": [0.5]}, "no lambda"),
        (cvxscreen.regression(A, b, loss="quantile"), {"over": "tau", "values": [0.5, 1.2]}, "1.2"),
        (metric, {"over": "lam", "values": [1.0], "solver": "CLARABEL"}, "built-in"),
        (cvxscreen.svm(X, Y), {}, "`values` is missing"),
    ):
        with pytest.raises(InvalidInput, match=words):
            solve_path(problem, **more)


def test_a_metric_path_by_a_named_method() -> None:
    problem = cvxscreen.rtlm(X[:60], cvxscreen.triplets(X[:60], Y[:60], k=1), 1.0)
    found = [
        solve_path(problem, over="lam", values=[20.0, 10.0], solver=solver, tol=1e-7)
        for solver in ("auto", "projected_gradient")
    ]
    for ours, theirs in zip(*(path.points for path in found), strict=True):
        assert ours.objective == pytest.approx(theirs.objective, rel=1e-6)


def test_a_checkpoint_of_data_in_chunks(tmp_path: FilePath) -> None:
    """Duals but for those at a kink follow from x; a resumed path certifies its points by them."""
    np.save(tmp_path / "data.npy", np.column_stack([X, Y]))
    rows, y = cvxscreen.open_data(tmp_path / "data.npy", chunk_bytes=8_000)
    problem, file = cvxscreen.svm(rows, y), tmp_path / "points.npz"
    whole = solve_path(problem, values=GRID[:2], checkpoint=file)
    assert [len(point.theta) for point in whole.points] == [0, 0]
    again = solve_path(problem, values=GRID[:2], checkpoint=file)
    assert [p.objective for p in again.points] == [p.objective for p in whole.points]
    with np.load(file) as data:
        arrays = dict(data)
    rows, slopes = json.loads(str(arrays["head"]))["rows"][0]["warm"]["listed"]
    assert len(rows) > 1
    for listed, fault in (
        (None, "numbers"), ([[0.5], [0.0]], "other rows"), ([[1, 0], [0, 0]], "other rows"),
        ([[900], [0]], "other rows"), ([1.0], "shape"), ("x", "numbers"), ([[], []], "another one"),
        ([[row + 0.5 for row in rows], slopes], "other rows"),
        ([rows[::-1], slopes[::-1]], "other rows"),
    ):
        head = json.loads(str(arrays["head"]))
        head["rows"][0]["warm"]["listed"] = listed
        np.savez(file, **{**arrays, "head": np.array(json.dumps(head))})
        with pytest.raises(InvalidInput, match=f"`checkpoint`: point 0 .*{fault}"):
            solve_path(problem, values=GRID[:2], checkpoint=file)
    dense = solve_path(cvxscreen.svm(X, Y), values=GRID[:2])
    for ours, theirs in zip(whole.points, dense.points, strict=True):
        assert ours.objective == pytest.approx(theirs.objective, rel=2e-6)


@pytest.mark.parametrize("kept", [False, True])
def test_what_the_compiled_path_misses_goes_to_the_loop(
    kept: bool, tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Point by point at first, and all that is left after some; also from the record of one."""
    problem, grid = cvxscreen.svm(X, Y, intercept=True), np.geomspace(0.02, 5.0, 9)
    plain = solve_path(problem, values=grid, solver="newton", tol=1e-8)
    real = CompiledPath.points

    def wrong(self: CompiledPath, values: np.ndarray):
        found = real(self, values)
        found.X[:] *= 1.001
        return found

    monkeypatch.setattr(CompiledPath, "points", wrong)
    options = {"checkpoint": tmp_path / "points.npz"} if kept else {}
    found = solve_path(problem, values=grid, tol=1e-8, **options)
    assert [point.status for point in found.points] == ["optimal"] * len(grid)
    for ours, theirs in zip(found.points, plain.points, strict=True):
        assert ours.objective == pytest.approx(theirs.objective, rel=1e-8)
    if not kept:
        return
    assert found.points[-1].warm["missed"] == path_run.PATIENCE + 1
    # A later process knows from the record that the compiled path was given up.
    file, write = tmp_path / "cut.npz", Checkpoint.write

    def interrupted(self: Checkpoint, rows: list, terms: int) -> None:
        write(self, rows, terms)
        if len(rows) == path_run.PATIENCE + 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "write", interrupted)
    assert not solve_path(problem, values=grid, tol=1e-8, checkpoint=file).finished
    monkeypatch.setattr(Checkpoint, "write", write)
    monkeypatch.setattr(CompiledPath, "points", None)
    again = solve_path(problem, values=grid, tol=1e-8, checkpoint=file)
    assert [p.x.tobytes() for p in again.points] == [p.x.tobytes() for p in found.points]


def test_a_point_that_is_missed_may_run_out_of_time(
    tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not count, and no other is tried."""
    real, now = CompiledPath.points, [0.0]

    def wrong(self: CompiledPath, values: np.ndarray):
        now[0] = 11.0
        found = real(self, values)
        found.X[:] *= 1.001
        return found

    monkeypatch.setattr(path_run, "Limits", partial(Limits, clock=lambda: now[0]))
    monkeypatch.setattr(CompiledPath, "points", wrong)
    problem, grid = cvxscreen.svm(X, Y, intercept=True), np.geomspace(0.02, 5.0, 9)
    found = solve_path(problem, values=grid, time_limit=10.0, checkpoint=tmp_path / "points.npz")
    assert found.stopped == "time_limit"
    assert not found.points


def test_an_eps_that_no_point_can_serve_is_said() -> None:
    with pytest.raises(InvalidInput, match=r"`eps` is .*not enough for a step"):
        solve_path(cvxscreen.svm(X, Y), eps=1e-16, values=(0.1, 1.0))
