"""``cvxscreen warmup``, and what is said while something is compiled."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cvxscreen._support.compiled import Announcement
from cvxscreen.cli import warmup
from cvxscreen.cli.commands import main


def test_every_job_runs_and_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The jobs as they are; the command says what it has done, or nothing."""
    for job in warmup.JOBS.values():
        job()
    monkeypatch.setattr(warmup, "JOBS", {"one": lambda: None, "two": lambda: None})
    assert [name for name, _ in warmup.warm_up(shown=False)] == ["one", "two"]
    assert main(["warmup"]) == 0
    assert "compiled" in capsys.readouterr().out
    assert main(["warmup", "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def happening(module: str) -> SimpleNamespace:
    """What numba says when it compiles a function of `module`."""
    loop = SimpleNamespace(py_func=SimpleNamespace(__module__=module))
    return SimpleNamespace(data={"dispatcher": loop})


def test_long_compiling_is_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a second in all, of our own functions and of those compiled for them."""
    now = [0.0]
    monkeypatch.setattr("cvxscreen._support.compiled.perf_counter", lambda: now[0])
    said = Announcement()

    def compiling(module: str, seconds: float) -> str:
        said.on_start(happening(module))
        said.on_start(happening("numba.np"))
        now[0] += seconds
        said.on_end(happening("numba.np"))
        said.on_end(happening(module))
        return capsys.readouterr().err

    assert compiling("elsewhere", 60.0) == ""
    assert compiling("cvxscreen.solvers.box_qp", 0.7) == ""
    assert "once a machine" in compiling("cvxscreen.solvers.box_qp", 0.7)
    assert compiling("cvxscreen.solvers.box_qp", 5.0) == ""
