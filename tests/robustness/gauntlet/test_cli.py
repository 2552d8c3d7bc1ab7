"""The shell: every option with bad values, exit codes, one line of reason, nothing left behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gauntlet.files import GOOD, npz

from cvxscreen.cli import commands as cli
from cvxscreen.cli.commands import main

GRID = ["0", "-1", "abc", "nan", "", "1:2", "1:2:0", "1:inf:3", "0:1:3", "1:2:1e3", "1,,2", "1,-1"]
MODEL = [
    ("--loss", "nonsense", "invalid choice"), ("--target", "x", "`--target` is 'x'"),
    ("--positive", "7", "`--positive` is '7'"), ("--gamma", "-1", "`gamma` is -1"),
    ("--gamma", "x", "--gamma: invalid float"), ("--kernel", "x", "`kernel` is 'x'"),
    ("--kernel-params", "gamma=1", "needs `--kernel`"), ("--tau", "2", "`tau` is 2"),
    ("--delta", "0", "`delta` is 0"), ("--epsilon", "nan", "`epsilon` is nan"),
    ("--solver", "x", "`solver` is 'x'"),
]
EXTRA = {"--tau": ["--loss", "quantile"], "--delta": ["--loss", "huber"],
         "--epsilon": ["--loss", "epsilon"]}
OPTIONS = {
    "path": [
        *MODEL, *[("--C", text, "`--C` is") for text in GRID],
        ("--tol", "0", "`tol` is 0"), ("--tol", "1", "`tol` is 1"), ("--tol", "x", "invalid float"),
        ("--mode", "fast", "invalid choice"), ("--out", "a.txt", "`--out` is 'a.txt'"),
        ("--out", "no/a.npz", "`--out`: the folder"), ("--plot", "a.xyz", "`--plot` ends in"),
        ("--plot", "no/a.png", "`--plot` lies in"), ("--checkpoint", "no/a.npz", "does not exist"),
        ("--checkpoint", ".", "`checkpoint`"), ("--checkpoint", "data.npz", "something is missing"),
    ],
    "verify": [*MODEL, ("--C", "1,2", "takes one value"), ("--C", "0", "`--C` is '0'")],
    "triplets": [
        *[("--lam", text, "`--lam` is") for text in GRID],
        ("--k", "0", "`k` is 0"), ("--k", "-1", "`--k` is '-1'"), ("--k", "x", "`--k` is 'x'"),
        ("--k", "1.5", "`--k` is '1.5'"), ("--k", "²", "`--k` is '²'"),
        ("--tol", "7", "`tol` is 7"),
        ("--gamma", "-1", "`gamma` is -1"), ("--gamma", "nan", "`gamma` is nan"),
        ("--out", "a.txt", "`--out` is"), ("--out", "no/a.npz", "`--out` is"),
        ("--target", "x", "`--target` is 'x'"),
    ],
    "demo": [("--points", "0", "`--points` is 0"), ("--points", "x", "invalid int"),
             ("--plot", "a.xyz", "`--plot` ends in")],
}
ROWS = [(command, *row) for command, rows in OPTIONS.items() for row in rows]


def run(*arguments: str) -> int:
    try:
        return main(arguments)
    except SystemExit as stop:  # argparse
        return int(stop.code or 0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "data.npz").write_bytes(GOOD)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "option", "value", "words"), ROWS, ids=[" ".join(row[:3]) for row in ROWS]
)
def test_a_bad_option_is_refused(
    command: str, option: str, value: str, words: str, folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = [] if command == "demo" else ["data.npz"]
    assert run(command, *data, f"{option}={value}", *EXTRA.get(option, [])) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err
    assert "Traceback" not in said.err
    assert f"cvxscreen {command}: " in said.err
    assert [path.name for path in folder.iterdir()] == ["data.npz"]
    assert (folder / "data.npz").read_bytes() == GOOD


def test_no_command_is_a_call_for_help(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    assert "first steps" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [("nonsense",), ("path",), ("verify",), ("info",),
                                       ("predict",), ("path", "data.npz", "--nonsense"),
                                       ("info", "a", "b")])
def test_a_bad_call_is_refused(arguments: tuple[str, ...], folder: Path) -> None:
    assert run(*arguments) == 2


@pytest.mark.parametrize("command", ["path", "verify", "triplets", "info"])
@pytest.mark.parametrize("name", ["missing.npz", "empty", "data.npz/x"])
def test_a_missing_file_is_refused(
    command: str, name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "empty").mkdir()
    assert run(command, name) == 2
    assert "name " in capsys.readouterr().err


def test_options_that_do_not_go_together(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "words.csv").write_text("a,b,y\n1,2,u\n2,1,v\n3,4,u\n")
    for arguments, words in (
        (("path", "data.npz", "--loss", "absolute", "--positive", "1"), "`--positive` is for"),
        (("path", "data.npz", "--kernel", "rbf", "--gamma", "1"), "kernel_params"),
        (("path", "words.csv", "--loss", "absolute"), "holds words ('u', ...)"),
        (("path", "words.csv", "--target", "q"), "no column of words.csv (columns a, b, y)"),
    ):
        assert run(*arguments) == 2
        assert words in capsys.readouterr().err


def test_predict_refuses(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("path", "data.npz", "--C", "1", "--coef", "model.json") == 0
    kept = (folder / "model.json").read_bytes()
    (folder / "words.json").write_text("{}")
    capsys.readouterr()
    for arguments, words in (
        (("none.json", "data.npz"), "`MODEL`: 'none.json' cannot be read"),
        (("data.npz", "data.npz"), "`MODEL`: 'data.npz' holds no model"),
        (("words.json", "data.npz"), "`MODEL`: 'words.json' holds no model"),
        (("model.json", "none.npz"), "none.npz"),
        (("model.json", "data.npz", "--C", "x"), "`--C` is 'x'"),
        (("model.json", "data.npz", "--C", "1,2"), "takes one value"),
        (("model.json", "data.npz", "--C", "7"), "7"),
        (("model.json", "data.npz", "--out", "no/a.csv"), "no"),
    ):
        assert run("predict", *arguments) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert words in said.err
        assert "Traceback" not in said.err
    assert (folder / "model.json").read_bytes() == kept
    assert {path.name for path in folder.iterdir()} == {"data.npz", "model.json", "words.json"}


def test_every_command_has_a_row() -> None:
    """A new command has to be entered in the table; `info` reads the files of `test_path_files`,
    `predict` has a test of its own, `warmup` takes no data."""
    parser = cli.parser()
    choices = next(a.choices for a in parser._actions if a.dest == "command")
    assert set(choices) == set(OPTIONS) | {"info", "predict", "warmup"}


def test_one_class_and_no_triplets(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    X = np.random.default_rng(0).standard_normal((6, 2))
    (folder / "one.npz").write_bytes(npz(X=X, y=np.ones(6)))
    (folder / "all.npz").write_bytes(npz(X=X, y=np.arange(6.0)))
    for command, name, words in (
        ("path", "one.npz", "only one class (1)"), ("verify", "one.npz", "only one class"),
        ("triplets", "one.npz", "`y` has only one class"), ("path", "all.npz", "6 classes"),
        ("triplets", "all.npz", "two of a kind"),
    ):
        assert run(command, name) == 2
        assert words in capsys.readouterr().err
