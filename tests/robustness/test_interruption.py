"""Ctrl-C, SIGTERM, a kill and a full disk: finished points survive, and a resumed path is the same.

"The same" is bit by bit: values, solutions, dual variables, objectives and gaps.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import children
import numpy as np
import pytest
import scipy.sparse as sp

import cvxscreen
from cvxscreen.cli.commands import main, terminable
from cvxscreen.data_changes import bootstrap, leave_one_out, refits
from cvxscreen.errors import NotSaved
from cvxscreen.paths.path import EpsPathFollower
from cvxscreen.paths.record import Checkpoint

X, Y = cvxscreen.datasets.two_gaussians(150, 4, seed=1)
GRID = np.geomspace(0.01, 10, 6)


def sparse_rows() -> cvxscreen.Problem:
    rows = sp.random(120, 200, 0.05, random_state=2, format="csr")
    return cvxscreen.svm(rows, Y[:120], intercept=True)


CASES: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "compiled": (lambda: cvxscreen.svm(X, Y, intercept=True), {"values": GRID}),
    "compiled safe": (lambda: cvxscreen.svm(X, Y), {"values": GRID, "mode": "safe"}),
    "newton": (
        lambda: cvxscreen.svm(X, Y, intercept=True), {"values": GRID, "solver": "newton"}
    ),
    "newton down": (
        lambda: cvxscreen.regression(X, X[:, 0], loss="quantile", tau=0.8, intercept=True),
        {"values": GRID[::-1], "solver": "newton", "mode": "safe"},
    ),
    "sparse rows": (sparse_rows, {"values": GRID}),
    "constraints": (lambda: cvxscreen.svm(X, Y, intercept=True, nonneg=True), {"values": GRID[:4]}),
    "kernel": (lambda: cvxscreen.svm(X, Y, kernel="rbf", intercept=True), {"values": GRID}),
    "l1": (
        lambda: cvxscreen.sparse_svm(X, Y, 1.0),
        {"over": "lam", "values": 0.3 * 0.6 ** np.arange(6)},
    ),
    "metric": (
        lambda: cvxscreen.rtlm(X, cvxscreen.triplets(X, Y, k=2), 1.0),
        {"over": "lam", "values": 30 * 0.6 ** np.arange(6)},
    ),
    "guest": (
        lambda: cvxscreen.svm(X, Y), {"values": GRID[:4], "solver": "CLARABEL"}
    ),
    "tau": (
        lambda: cvxscreen.regression(X, X[:, 0], loss="quantile", intercept=True),
        {"over": "tau", "values": np.array([0.1, 0.3, 0.5, 0.9])},
    ),
    "tau without a penalty": (
        lambda: cvxscreen.regression(X, np.sin(X[:, 0]), C=np.inf, loss="quantile"),
        {"over": "tau", "values": np.array([0.2, 0.5, 0.7])},
    ),
}


def bits(path: cvxscreen.Path) -> list[tuple[Any, ...]]:
    """All that a path claims, of every point, as bytes and exact numbers."""
    return [
        (p.value, p.x.tobytes(), p.theta.tobytes(), p.objective, p.gap, p.relative_gap, p.status,
         dict(p.before), p.kept, p.predicted, p.refuted, p.rounds)
        for p in path.points
    ]


@pytest.mark.parametrize("case", CASES)
def test_a_resumed_path_is_the_same_to_the_last_bit(case: str, tmp_path: Path, monkeypatch) -> None:
    """Stopped after every possible number of points, each time in a fresh run."""
    make, options = CASES[case]
    whole = cvxscreen.path(make(), checkpoint=tmp_path / "whole.npz", **options)
    assert {p.status for p in whole.points} == {"optimal"}
    file, write = tmp_path / "cut.npz", Checkpoint.write

    def interrupted(self: Checkpoint, rows: list[Any], terms: int) -> None:
        write(self, rows, terms)
        raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "write", interrupted)
    for done in range(1, len(options["values"]) + 1):
        part = cvxscreen.path(make(), checkpoint=file, **options)
        assert not part.finished
        assert part.stopped == "interrupted"
        assert bits(part) == bits(whole)[:done]
        assert bits(cvxscreen.load_path(file)) == bits(whole)[:done]
    monkeypatch.undo()
    assert bits(cvxscreen.path(make(), checkpoint=file, **options)) == bits(whole)


def test_an_interrupted_eps_path_keeps_its_first_points(monkeypatch) -> None:
    """They are those of the whole path, and say what they serve."""
    problem, options = cvxscreen.svm(X, Y), {
        "eps": 1e-2, "values": (0.01, 10.0), "solver": "newton"
    }
    whole, advance, calls = cvxscreen.path(problem, **options), EpsPathFollower.advance, []

    def interrupted(self: EpsPathFollower, grid: np.ndarray) -> None:
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(1)
        advance(self, grid)

    monkeypatch.setattr(EpsPathFollower, "advance", interrupted)
    part = cvxscreen.path(problem, **options)
    assert not part.finished
    assert part.stopped == "interrupted"
    assert bits(part) == bits(whole)[:2]
    assert [p.serves for p in part.points] == [p.serves for p in whole.points[:2]]


def after(count: int, work: Callable[..., Any]) -> Callable[..., Any]:
    """`work`, which yields, with Ctrl-C once it has yielded so often."""

    def cut(*args: Any, **options: Any) -> Any:
        for number, found in enumerate(work(*args, **options)):
            if number == count:
                raise KeyboardInterrupt
            yield found

    return cut


def test_interrupted_refits_keep_what_is_done(monkeypatch) -> None:
    """Leave-one-out: intervals of the terms so far, the others as wide as before any refit."""
    solution = cvxscreen.solve(cvxscreen.svm(X, Y, C=1.0, kernel="rbf"), tol=1e-3)
    bounded = cvxscreen.leave_one_out(solution, refit=False)
    monkeypatch.setattr(refits, "KERNEL_BLOCK", 4)
    cut = after(3, refits.refits_of_terms)
    monkeypatch.setattr(leave_one_out, "refits_of_terms", cut)
    found = cvxscreen.leave_one_out(solution)
    assert not found.finished
    assert 0 < found.refitted.sum() <= 3 * 4
    rest = ~found.refitted
    np.testing.assert_array_equal(found.low[rest], bounded.low[rest])
    np.testing.assert_array_equal(found.high[rest], bounded.high[rest])


def test_an_interrupted_bootstrap_keeps_its_first_fits(monkeypatch) -> None:
    solution = cvxscreen.solve(cvxscreen.svm(X, Y, C=1.0))
    whole = cvxscreen.bootstrap(solution, 6, seed=3)
    monkeypatch.setattr(bootstrap, "_fits", after(4, bootstrap._fits))
    found = cvxscreen.bootstrap(solution, 6, seed=3)
    assert not found.finished
    np.testing.assert_array_equal(found.coefficients, whole.coefficients[:4])


def test_a_bootstrap_goes_on_from_its_file(tmp_path: Path, monkeypatch) -> None:
    """The fits of the file are not made again, and the whole is what one call would have made."""
    solution = cvxscreen.solve(cvxscreen.svm(X, Y, C=1.0))
    file, whole = tmp_path / "fits.npz", cvxscreen.bootstrap(solution, 40, seed=3)
    fits, begun = bootstrap._fits, []
    monkeypatch.setattr(bootstrap, "EVERY", 0.0)
    monkeypatch.setattr(bootstrap, "_fits", after(35, fits))
    assert not cvxscreen.bootstrap(solution, 40, seed=3, checkpoint=file).finished

    def counted(*args: Any) -> Any:
        begun.append(args[-1])
        return fits(*args)

    monkeypatch.setattr(bootstrap, "_fits", counted)
    found = cvxscreen.bootstrap(solution, 40, seed=3, checkpoint=file)
    assert begun == [35]
    assert found.finished
    np.testing.assert_array_equal(found.coefficients, whole.coefficients)
    fewer = cvxscreen.bootstrap(solution, 8, seed=3, checkpoint=tmp_path / "fits.npz")
    np.testing.assert_array_equal(fewer.coefficients, whole.coefficients[:8])
    other = cvxscreen.solve(cvxscreen.svm(X, Y, C=2.0))
    for change in ({"problem": other}, {"seed": 4}, {"tol": 1e-5}):
        with pytest.raises(cvxscreen.InvalidInput, match="belongs to other data"):
            cvxscreen.bootstrap(**{"problem": solution, "seed": 3, "checkpoint": file, **change})
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(cvxscreen.InvalidInput, match="not a readable file"):
        cvxscreen.bootstrap(solution, 8, seed=3, checkpoint=file)
    with pytest.raises(cvxscreen.InvalidInput, match="folder"):
        cvxscreen.bootstrap(solution, 8, checkpoint=tmp_path / "none" / "fits.npz")


def test_a_path_that_ends_by_itself_ends_at_the_same_point(tmp_path: Path, monkeypatch) -> None:
    problem = cvxscreen.rtlm(X, cvxscreen.triplets(X, Y, k=1), 1.0)
    whole = cvxscreen.path(problem, over="lam", checkpoint=tmp_path / "whole.npz")
    file, write, calls = tmp_path / "cut.npz", Checkpoint.write, []

    def interrupted(self: Checkpoint, rows: list[Any], terms: int) -> None:
        write(self, rows, terms)
        calls.append(len(rows))
        if len(rows) in (2, len(whole.points) - 1):
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "write", interrupted)
    for _ in range(4):  # cut twice, finished, and asked for once more
        found = cvxscreen.path(problem, over="lam", checkpoint=file)
    assert found.finished
    assert bits(found) == bits(whole)
    assert calls == list(range(1, len(whole.points) + 1))


def test_a_checkpoint_of_another_regulariser_or_parameter_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "c.npz"
    grid = [0.1, 0.2]
    cvxscreen.path(cvxscreen.sparse_svm(X, Y, 0.1), over="lam", values=grid, checkpoint=file)
    with pytest.raises(cvxscreen.InvalidInput, match="belongs to other data"):
        cvxscreen.path(cvxscreen.sparse_svm(X, Y, 0.1), values=grid, checkpoint=file)
    twice = cvxscreen.sparse_svm(X, Y, 0.2, l2=0.5)  # the same quadratic term, another L1 term
    with pytest.raises(cvxscreen.InvalidInput, match="belongs to other data"):
        cvxscreen.path(twice, over="lam", values=grid, checkpoint=file)


# -- signals to a process --------------------------------------------------------------------------

SLOW = 0.02
"""Seconds a point waits in the child, so that a signal arrives in the middle of the path."""

CHILD = f"""
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
from cvxscreen.paths import record
from cvxscreen.cli import main
write = record.Checkpoint.write
def slow(self, rows, terms):
    write(self, rows, terms)
    print(len(rows), file=sys.stderr, flush=True)
    time.sleep({SLOW})
record.Checkpoint.write = slow
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("data") / "data.npz"
    np.savez(file, X=X, y=Y)
    return file


def arguments(data: Path, kept: Path, *more: str) -> list[str]:
    return ["path", str(data), "--C", "1e-2:10:40", "--json", "--checkpoint", str(kept), *more]


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, ...]]:
    kept = tmp_path_factory.mktemp("whole") / "run.npz"
    assert main(arguments(data, kept)) == 0
    return bits(cvxscreen.load_path(kept))


@pytest.mark.table
@pytest.mark.parametrize(
    ("number", "code", "times"),
    [(signal.SIGINT, 130, 2), (signal.SIGTERM, 143, 1), (signal.SIGKILL, -signal.SIGKILL, 1)],
)
def test_signals_at_random_moments(number, code, times, data, whole, tmp_path, capsys) -> None:
    """Whatever arrives when: the file holds whole points, and a few more calls finish the path."""
    kept, out = tmp_path / "run.npz", tmp_path / "out.npz"
    rng = np.random.default_rng(int(number))
    finished = 0
    for _ in range(times):
        child = subprocess.Popen(
            children.command(CHILD, *arguments(data, kept, "--out", str(out))),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=children.environment(),
        )
        assert child.stderr is not None
        for _ in range(int(rng.integers(3, 9))):
            child.stderr.readline()
        time.sleep(float(rng.random()) * SLOW)
        child.send_signal(number)
        said, _ = child.communicate(timeout=60)
        assert child.returncode == code
        points = bits(cvxscreen.load_path(kept))
        assert finished < len(points) < len(whole)
        assert points == whole[: len(points)]
        finished = len(points)
        if code > 0:  # what was finished is shown and written too
            shown = len(json.loads(said))
            assert shown in (finished, finished + 1)
            assert bits(cvxscreen.load_path(out)) == whole[:shown]
            assert {file.name for file in tmp_path.iterdir()} == {"run.npz", "out.npz"}
    assert main(arguments(data, kept)) == 0
    assert bits(cvxscreen.load_path(kept)) == whole
    capsys.readouterr()


def test_sigterm_is_heard_inside_and_the_handler_is_put_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), terminable() as heard:
        signal.raise_signal(signal.SIGTERM)
    assert heard == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is before
    seen: list[Any] = []
    thread = threading.Thread(
        target=lambda: seen.append(terminable().__enter__()) or seen.append("in")  # type: ignore[func-returns-value]
    )
    thread.start()
    thread.join()
    assert seen == [[], "in"]
    assert signal.getsignal(signal.SIGTERM) is before


# -- a full disk -----------------------------------------------------------------------------------

FULL = """
import resource, signal, sys
from cvxscreen.cli import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.exit(main(sys.argv[2:]))
"""


def test_a_full_disk_leaves_the_last_whole_file(data, whole, tmp_path) -> None:
    pytest.importorskip("resource")
    kept = tmp_path / "run.npz"
    child = children.run(FULL, "30000", *arguments(data, kept))
    assert child.returncode == 2
    assert "make room" in child.stderr
    points = bits(cvxscreen.load_path(kept))
    assert 0 < len(points) < len(whole)
    assert points == whole[: len(points)]
    assert [file.name for file in tmp_path.iterdir()] == ["run.npz"]
    assert main([*arguments(data, kept), "--quiet"]) == 0
    assert bits(cvxscreen.load_path(kept)) == whole


def full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("case", ["compiled", "metric"])
def test_points_that_cannot_be_written_come_with_the_error(case, tmp_path, monkeypatch) -> None:
    make, options = CASES[case]
    file = tmp_path / "c.npz"
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NotSaved, match="could not be written") as caught:
        cvxscreen.path(make(), checkpoint=file, **options)
    assert isinstance(caught.value, OSError)
    assert [p.status for p in caught.value.path.points] == ["optimal"]
    assert list(tmp_path.iterdir()) == []


def test_what_is_solved_is_shown_where_it_cannot_be_written(
    data, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(os, "fsync", full)
    out = tmp_path / "out.npz"
    out.write_bytes(b"before")
    assert main(["path", str(data), "--C", "0.1,1", "--json", "--out", str(out)]) == 2
    said = capsys.readouterr()
    assert [row["status"] for row in json.loads(said.out)] == ["optimal"] * 2
    assert "No space left" in said.err
    assert main(["triplets", str(data), "--k", "1", "--json", "--out", str(out)]) == 2
    assert len(json.loads(capsys.readouterr().out)) == 1
    assert out.read_bytes() == b"before"
    assert [file.name for file in tmp_path.iterdir()] == ["out.npz"]


def test_a_command_out_of_time_says_so(data, tmp_path, capsys) -> None:
    kept = tmp_path / "run.npz"
    call = ["path", str(data), "--C", "0.1,1", "--checkpoint", str(kept), "--time-limit", "1e-9"]
    assert main(call) == 3
    said = capsys.readouterr()
    assert "time limit" in said.err
    assert "time limit after 0 points" in said.out
    assert main([*call[:-2], "--max-iter", "1", "--quiet"]) == 1
