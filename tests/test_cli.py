"""The shell command: commands, exit codes, files, messages."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cvxscreen.cli import main, parse_grid
from cvxscreen.datasets import two_gaussians
from cvxscreen.errors import InvalidInput


@pytest.fixture
def data(tmp_path):
    """A small classification file."""
    X, y = two_gaussians(300, 4, bayes_error=0.1)
    file = tmp_path / "data.npz"
    np.savez(file, X=X, y=y)
    return file


def test_demo_agrees_and_draws(tmp_path, capsys) -> None:
    picture = tmp_path / "demo.png"
    assert main(["demo", "--points", "3", "--plot", str(picture)]) == 0
    shown = capsys.readouterr()
    assert "Full and reduced optima agree" in shown.out
    assert str(picture) in shown.out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_demo_quiet_and_json(capsys) -> None:
    assert main(["demo", "--points", "2", "--no-plot", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert main(["demo", "--points", "2", "--no-plot", "--quiet", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["agrees"] is True
    assert len(record["rows"]) == 2
    assert main(["demo", "--points", "0"]) == 2
    assert "`--points`" in capsys.readouterr().err


def test_path_writes_what_info_reads(data, tmp_path, capsys) -> None:
    out, picture = tmp_path / "path.npz", tmp_path / "path.png"
    code = main(["path", str(data), "--C", "0.05:2:4", "--out", str(out), "--plot", str(picture),
                 "--intercept", "--checkpoint", str(tmp_path / "check.npz")])
    first = capsys.readouterr().out
    assert code == 0
    assert picture.stat().st_size > 1000
    assert main(["info", str(out)]) == 0
    assert capsys.readouterr().out == first
    assert main(["info", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["value"] == pytest.approx(0.05)


def test_verify(data, capsys) -> None:
    assert main(["verify", str(data), "--C", "0.5", "--solver", "CLARABEL"]) == 0
    assert "agree" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["path", "nothing.npz"], "not a file"),
        (["info", "nothing.npz"], "not a file"),
        (["path", "{data}", "--C", "1:2"], "`--C`"),
        (["path", "{data}", "--C", "-1"], "`--C`"),
        (["verify", "{data}", "--C", "1,2"], "one value"),
        (["path", "{data}", "--tol", "3"], "`tol`"),
        (["path", "{data}", "--loss", "quantile", "--tau", "2"], "`tau`"),
        (["path", "{data}", "--plot", "no/such/folder/a.png"], "folder"),
        (["info", "{data}"], "not a readable file"),
    ],
)
def test_errors_have_a_message_and_a_code(data, capsys, arguments, words) -> None:
    assert main([argument.format(data=data) for argument in arguments]) == 2
    shown = capsys.readouterr()
    assert words in shown.err
    assert "Traceback" not in shown.err


def test_grids() -> None:
    np.testing.assert_allclose(parse_grid("1e-2:10:4"), [0.01, 0.1, 1, 10])
    np.testing.assert_allclose(parse_grid("0.1,1,10"), [0.1, 1, 10])
    np.testing.assert_allclose(parse_grid("2"), [2])
    for bad in ("", "a", "1:2:0", "0:1:3", "1:2:3:4", "nan", "inf"):
        with pytest.raises(InvalidInput, match="`--C`"):
            parse_grid(bad)


def test_help_teaches(capsys) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert "examples:" in shown
    assert "exit codes" in shown
