"""The shell command: commands, exit codes, files, messages; models handed on; ``warmup``."""

from __future__ import annotations

import csv
import gc
import gzip
import json
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas
import pytest
from sklearn.datasets import dump_svmlight_file

import cvxscreen
from cvxscreen._support.compiled import Announcement
from cvxscreen.cli import commands, demo
from cvxscreen.cli.commands import EPILOG, main, parse_grid, parser
from cvxscreen.datasets import two_gaussians
from cvxscreen.errors import InvalidInput, MissingDependency
from cvxscreen.models.files import read_table
from cvxscreen.paths.record import Checkpoint
from cvxscreen.solvers.dual_active_set import DualActiveSet
from cvxscreen.solvers.dual_coordinate_descent import DualCoordinateDescent, _Descent
from cvxscreen.solvers.truncated_newton import TruncatedNewton


@pytest.fixture
def data(tmp_path):
    """A small classification file."""
    X, y = two_gaussians(300, 4, bayes_error=0.1)
    file = tmp_path / "data.npz"
    np.savez(file, X=X, y=y)
    return file


@pytest.fixture
def small_demo(monkeypatch):
    """The demo on a problem that takes no time."""
    monkeypatch.setattr(demo, "SAMPLES", 2_000)
    monkeypatch.setattr(demo, "FEATURES", 4)


@pytest.mark.usefixtures("small_demo")
def test_demo_agrees_and_draws(tmp_path, capsys) -> None:
    picture = tmp_path / "demo.png"
    assert main(["demo", "--plot", str(picture)]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("2,000 loss terms became ")
    first = " ".join(shown.out.split("\n\n")[0].split())
    assert "times faster than CVXPY alone" in first
    assert "the same optimum" in first
    assert "certified" in first
    assert str(picture) in shown.out
    assert "now with screening" in shown.err
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("small_demo")
def test_demo_quiet_and_json(capsys) -> None:
    assert main(["demo", "--no-plot", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert main(["demo", "--points", "2", "--no-plot", "--quiet", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["agrees"] is True
    assert len(record["rows"]) == 2
    assert record["rows"][0]["screened_kept"] < record["rows"][0]["full_kept"] == 2_000
    assert main(["demo", "--points", "0"]) == 2
    assert "`--points`" in capsys.readouterr().err


@pytest.mark.usefixtures("small_demo")
def test_demo_without_matplotlib_has_its_table(monkeypatch, capsys) -> None:
    def missing(path, name):
        raise MissingDependency("Pictures need matplotlib")

    monkeypatch.setattr("cvxscreen.cli.commands.plots.writable", missing)
    assert main(["demo"]) == 0
    shown = capsys.readouterr().out
    assert "CVXPY, screened" in shown
    assert "No picture: Pictures need matplotlib" in shown


def test_an_answer_that_differs_is_said_first() -> None:
    def solved(value):
        return demo.Solved(np.zeros(2), value, 1.0, 3, 0.0)

    row = demo.DemoRow(1.0, solved(1.0), solved(1.0), solved(1.001))
    assert not row.agrees
    assert "DISAGREEMENT" in str(demo.Demo((row,), None)).split("\n\n")[0]


def test_the_bare_command_helps(capsys) -> None:
    assert main([]) == 0
    assert "cvxscreen demo" in capsys.readouterr().out


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


def test_path_in_chunks(data, tmp_path, capsys) -> None:
    with np.load(data) as z:
        X, y = z["X"], z["y"]
    (tmp_path / "parts").mkdir()
    for k in range(3):
        np.savez(tmp_path / "parts" / f"{k}.npz", X=X[100 * k :][:100], y=y[100 * k :][:100])
    text = tmp_path / "data.svm"
    text.write_text("".join(
        f"{c:g} " + " ".join(f"{j + 1}:{float(v)!r}" for j, v in enumerate(row)) + "\n"
        for row, c in zip(X, y, strict=True)
    ))
    np.save(tmp_path / "data.npy", np.column_stack([y, X]))
    stored = tmp_path / "stored"
    values = []
    for given in ([data], [tmp_path / "parts"], [text, "--stream"],
                  [text, "--cache", stored], [stored],
                  [tmp_path / "data.npy", "--stream", "--target", "0"]):
        args = ["path", *map(str, given), "--C", "0.1:1:2", "--json", "--intercept"]
        assert main(args) == 0
        values.append([point["objective"] for point in json.loads(capsys.readouterr().out)])
    np.testing.assert_allclose(values, [values[0]] * len(values), rtol=2e-6)
    assert main(["path", str(text), "--cache", str(stored)]) == 2
    assert "not empty" in capsys.readouterr().err
    assert main(["path", str(tmp_path / "parts"), "--kernel", "rbf"]) == 2
    assert "`kernel` needs the rows" in capsys.readouterr().err


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
        (["path", "{data}", "--out", "path.txt"], "must end in .npz"),
        (["path", "{data}", "--kernel-params", "gamma=1"], "needs `--kernel`"),
        (["path", "{data}", "--kernel", "rbf", "--kernel-params", "gamma"], "gamma=0.5"),
        (["path", "{data}", "--kernel", "rbff"], "choose one of"),
        (["path", "{data}", "--solver", "MAGIC"], "MAGIC"),
        (["verify", "{data}", "--solver", "MAGIC"], "MAGIC"),
        (["path", "{data}", "--plot", "path.xyz"], "choose one of"),
        (["path", "{data}", "--positive", "7"], "none of the classes"),
    ],
)
def test_errors_have_a_message_and_a_code(data, capsys, arguments, words) -> None:
    assert main([argument.format(data=data) for argument in arguments]) == 2
    shown = capsys.readouterr()
    assert words in shown.err
    assert "Traceback" not in shown.err


@pytest.fixture
def flowers(tmp_path):
    """A csv with names of three classes in its first column."""
    rng = np.random.default_rng(0)
    kinds = np.repeat(["rose", "iris", "tulip"], 40)
    place = {"rose": 0.0, "iris": 2.0, "tulip": 4.0}
    rows = [(k, rng.normal(place[k]), rng.normal()) for k in kinds]
    file = tmp_path / "flowers.csv"
    file.write_text("kind;length;width\n" + "\n".join(f"{k};{a};{b}" for k, a, b in rows))
    return file


def test_a_csv_of_ones_own(flowers, capsys) -> None:
    common = ["path", str(flowers), "--target", "kind", "--C", "0.1,1", "--intercept"]
    assert main([*common, "--positive", "rose"]) == 0
    shown = capsys.readouterr()
    assert "flowers.csv: 120 rows, 2 features; +1 is rose" in shown.err
    assert "optimal" in shown.out
    assert main(common) == 2
    assert "3 classes (iris, rose, tulip)" in capsys.readouterr().err
    assert main(["path", str(flowers)]) == 2
    assert "column 'kind' is 'rose'" in capsys.readouterr().err
    assert main(["path", str(flowers), "--target", "kind", "--loss", "huber"]) == 2
    assert "needs numbers" in capsys.readouterr().err


def test_a_kernel_path_and_one_by_cvxpy(data, capsys) -> None:
    kernel = ["--kernel", "rbf", "--kernel-params", "gamma=0.5"]
    assert main(["path", str(data), "--C", "0.5", *kernel, "--json"]) == 0
    rbf = json.loads(capsys.readouterr().out)[0]
    assert main(["path", str(data), "--C", "0.5", "--solver", "CLARABEL", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)[0]
    assert plain["status"] == rbf["status"] == "optimal"
    assert abs(plain["objective"] - rbf["objective"]) > 1


def test_a_checkpoint_goes_on_where_it_stopped(data, tmp_path, capsys, monkeypatch) -> None:
    kept = tmp_path / "run.npz"
    call = ["path", str(data), "--C", "0.1,0.3,1", "--checkpoint", str(kept)]
    write, written = Checkpoint.write, []

    def interrupted(self, rows, terms):
        write(self, rows, terms)
        written.append(len(rows))
        if written == [1, 2]:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "write", interrupted)
    assert main(call) == 130
    assert "goes on from" in capsys.readouterr().err
    assert main(["info", str(kept), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 2
    assert main(call) == 0
    assert written == [1, 2, 3]  # the third point was all that was left to do


def test_points_that_miss_the_tolerance_are_said_even_quietly(data, capsys) -> None:
    assert main(["path", str(data), "--C", "0.5", "--tol", "1e-300", "--quiet"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "1 of 1 points miss the tolerance 1e-300" in shown.err


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
    assert "first steps:" in shown
    assert "exit codes" in shown
    with pytest.raises(SystemExit) as stopped:
        main(["path", "--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert "svmlight" in shown
    assert "smoothed_hinge" in shown


def test_every_command_of_the_help_is_understood(capsys) -> None:
    lines = [line.split() for line in EPILOG.splitlines() if line.startswith("  cvxscreen ")]
    assert len(lines) >= 6
    for _, *words in lines:
        command = words[: words.index("see")] if "see" in words else words
        command = command[: command.index("a")] if "a" in command else command
        assert parser().parse_args(command).command == command[0]


def test_triplets_learns_metrics_and_saves_them(tmp_path) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 20)
    X = rng.standard_normal((60, 4)) * [1.0, 10.0, 1.0, 1.0] + 2.0 * np.eye(4)[y]
    np.savez(tmp_path / "data.npz", X=X, y=y)
    data, out = str(tmp_path / "data.npz"), tmp_path / "metric.npz"
    assert main(["triplets", data, "--k", "3", "--out", str(out), "--quiet"]) == 0
    with np.load(out) as saved:
        assert saved["metric"].shape == (1, 4, 4)
        L, step = saved["components"], (X[0] - X[30]) / saved["scale"]
        far = step @ saved["metric"][0] @ step
        assert np.sum((L @ step) ** 2) == pytest.approx(far, rel=1e-9)
        assert saved["relative_gap"].max() <= 1e-6
    arguments = ["triplets", data, "--k", "all", "--lam", "1000:10:3", "--diagonal", "--quiet"]
    assert main(arguments) == 0
    for bad in (["--k", "few"], ["--lam", "none"], ["--out", str(tmp_path / "metric.txt")]):
        assert main(["triplets", data, *bad]) == 2


def test_the_package_runs_as_the_command() -> None:
    command = [sys.executable, "-m", "cvxscreen", "path", "no-such-file", "--no-such-option"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert refused.stderr.startswith("usage: cvxscreen")
    assert "--no-such-option" in refused.stderr


@pytest.fixture
def loans(tmp_path):
    """Two classes by name, features on very different scales."""
    rng = np.random.default_rng(0)
    age, income = rng.uniform(20, 70, 200), rng.uniform(1e4, 9e4, 200)
    good = age / 25 + income / 4e4 + 0.5 * rng.standard_normal(200) > 3
    file = tmp_path / "loans.csv"
    frame = pandas.DataFrame({
        "age": age, "status": np.where(good, "good", "bad"), "income": income,
    })
    frame.to_csv(file, index=False)
    return file, frame


def test_coefficients_are_those_of_the_data_as_they_are(loans, tmp_path, capsys) -> None:
    file, frame = loans
    model, table = tmp_path / "model.json", tmp_path / "model.csv"
    call = ["path", str(file), "--target", "status", "--C", "0.1,1", "--intercept",
            "--standardize", "--tol", "1e-9"]
    assert main([*call, "--coef", str(model)]) == 0
    assert main([*call, "--coef", str(table)]) == 0
    held = json.loads(model.read_text("utf-8"))
    assert held["features"] == ["age", "income"]
    assert held["classes"] == ["bad", "good"]
    X, y = frame[["age", "income"]].to_numpy(), np.where(frame["status"] == "good", 1.0, -1.0)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    found = cvxscreen.solve(cvxscreen.svm(scaled, y, C=1.0, intercept=True), tol=1e-10)
    np.testing.assert_allclose(held["coefficients"][1], found.w / X.std(axis=0), rtol=1e-4)
    shown = list(csv.reader(table.read_text("utf-8").splitlines()))
    assert [line[0] for line in shown] == ["feature", "age", "income", "(intercept)"]
    assert float(shown[1][2]) == held["coefficients"][1][0]
    capsys.readouterr()

    assert main(["predict", str(model), str(file)]) == 0
    said = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    scores = np.array([float(row["score"]) for row in said])
    np.testing.assert_allclose(scores, scaled @ found.w + found.intercept, atol=1e-4)
    assert ((np.array([row["prediction"] for row in said]) == "good") == (scores > 0)).all()


def test_predictions_find_their_columns_by_name(loans, tmp_path, capsys) -> None:
    file, frame = loans
    model, out = str(tmp_path / "model.json"), tmp_path / "said.csv"
    assert main(["path", str(file), "--target", "status", "--C", "0.1,1", "--coef", model]) == 0
    other = tmp_path / "other.csv"
    frame[["income", "age"]].to_csv(other, index=False)
    capsys.readouterr()
    assert main(["predict", model, str(file), "--C", "0.1", "--out", str(out)]) == 0
    assert main(["predict", model, str(other), "--C", "0.1"]) == 0
    assert capsys.readouterr().out == out.read_text("utf-8")
    assert main(["predict", model, str(other), "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["C"] == 1.0
    frame[["income"]].assign(x=1).to_csv(other, index=False)
    for call, words in (
        (["predict", model, str(other)], "lacks the column(s) 'age'"),
        (["predict", model, str(file), "--C", "7"], "the model has 0.1, 1"),
        (["predict", str(file), str(file)], "holds no model"),
        (["predict", model, str(file), "--out", str(tmp_path / "no" / "said.csv")],
         "`--out`: the folder"),
        (["predict", str(tmp_path / "no.json"), str(file)], "cannot be read"),
        (["path", str(file), "--target", "status", "--coef", "a.txt"], "`--coef`"),
        (["path", str(file), "--target", "status", "--kernel", "rbf", "--coef", "a.csv"], "kernel"),
        (["path", str(file), "--target", "status", "--cv", "1"], "`--cv`"),
    ):
        assert main(call) == 2
        assert words in capsys.readouterr().err


def test_a_reader_that_has_seen_enough_is_no_error(loans, tmp_path) -> None:
    file, _ = loans
    model = tmp_path / "model.json"
    assert main(["path", str(file), "--target", "status", "--C", "1", "--coef", str(model)]) == 0
    gone, said = os.pipe()
    os.close(gone)
    command = [sys.executable, "-m", "cvxscreen", "predict", str(model), str(file)]
    found = subprocess.run(command, stdout=said, stderr=subprocess.PIPE, text=True, check=False)
    os.close(said)
    assert found.returncode == 0
    assert "Broken pipe" not in found.stderr


def test_the_best_c_of_a_cross_validation_predicts(loans, tmp_path, capsys) -> None:
    file, _ = loans
    model = tmp_path / "model.json"
    call = ["path", str(file), "--target", "status", "--C", "1e-3:1:3", "--cv", "3", "--intercept",
            "--standardize", "--coef", str(model)]
    assert main(call) == 0
    shown = capsys.readouterr().err
    assert "Scores on the data left out, 3 folds" in shown
    assert shown.count("best") == 1
    assert main([*call, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    best = json.loads(model.read_text("utf-8"))["best_C"]
    assert [point["value"] for point in told if point["best"]] == [best]
    assert max(told, key=lambda point: point["mean_score"])["mean_score"] > 0.5
    assert main(["predict", str(model), str(file)]) == 0
    assert f"C = {best:g}" in capsys.readouterr().err


def test_a_regression_on_sparse_text_and_its_predictions(tmp_path, capsys) -> None:
    X, y = cvxscreen.datasets.heavy_tailed_regression(80, 3)
    X[np.abs(X) < 0.5] = 0.0
    file, model = tmp_path / "data.svm", tmp_path / "model.json"
    dump_svmlight_file(X, y, str(file))
    assert main(["path", str(file), "--loss", "quantile", "--tau", "0.9", "--C", "1",
                 "--standardize", "--intercept", "--cv", "2", "--coef", str(model)]) == 0
    capsys.readouterr()
    assert main(["predict", str(model), str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "prediction"
    assert np.mean(y <= np.array(lines[1:], dtype=float)) == pytest.approx(0.9, abs=0.06)


def test_awkward_files(tmp_path) -> None:
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(gzip.compress(b"u,v,y\n1,2,3\n4,5,6\n"))
    found = read_table(packed)
    assert (found.features, found.target) == (("u", "v"), "y")
    np.testing.assert_array_equal(found.X, [[1, 2], [4, 5]])
    (tmp_path / "b.csv").write_text("u;v;y\n1,5;2;3,25\n4;-5,0;6\n")
    comma = read_table(tmp_path / "b.csv")
    np.testing.assert_array_equal(comma.X, [[1.5, 2], [4, -5]])
    np.testing.assert_array_equal(comma.y, [3.25, 6])
    assert comma.remark == "decimal commas"
    (tmp_path / "c.csv").write_text("1,5;2,5\n3,5;4,5\n")
    np.testing.assert_array_equal(read_table(tmp_path / "c.csv").X, [[1.5], [3.5]])
    (tmp_path / "d.csv").write_text("u,v,y\n")
    with pytest.raises(InvalidInput, match="a header and no rows"):
        read_table(tmp_path / "d.csv")


def test_parquet_without_dask(tmp_path, monkeypatch) -> None:
    file = tmp_path / "a.parquet"
    pandas.DataFrame({"u": [1.0, 2.0], "kind": ["a", "b"], "v": [3, 4]}).to_parquet(file)
    found = read_table(file, "kind")
    assert (found.features, found.target, found.y.tolist()) == (("u", "v"), "kind", ["a", "b"])
    np.testing.assert_array_equal(found.X, [[1, 3], [2, 4]])
    np.testing.assert_array_equal(read_table(file, wanted=["v"]).X, [[3], [4]])
    with pytest.raises(InvalidInput, match=r"\['kind'\] of a.parquet are no numbers"):
        read_table(file, "v")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(MissingDependency, match="pyarrow"):
        read_table(file, "kind")


def test_every_job_runs_and_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The jobs as they are; the command says what it has done, or nothing."""
    for job in commands.JOBS.values():
        job()
    monkeypatch.setattr(commands, "JOBS", {"one": lambda: None, "two": lambda: None})
    assert [name for name, _ in commands.warm_up(shown=False)] == ["one", "two"]
    assert main(["warmup"]) == 0
    assert "compiled" in capsys.readouterr().out
    assert main(["warmup", "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["warmup", "--only", "two", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)["seconds"]) == ["two"]
    with pytest.raises(SystemExit, match="2"):
        main(["warmup", "--only", "three"])
    assert "'three'" in capsys.readouterr().err


def test_every_way_over_sparse_rows_is_warmed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each compiled method is called: what is not is compiled in somebody's first fits."""
    called = set()
    ways = (DualCoordinateDescent, "__call__"), (TruncatedNewton, "__call__"), (
        DualActiveSet, "__call__"), (_Descent, "finish_face")
    for kind, name in ways:
        method = getattr(kind, name)

        def counted(*given: Any, kind: type = kind, method: Any = method) -> Any:
            called.add(kind)
            return method(*given)

        monkeypatch.setattr(kind, name, counted)
    commands.JOBS["sparse rows"]()
    assert called == {kind for kind, _ in ways}


def happening(module: str) -> SimpleNamespace:
    """What numba says when it compiles a function of `module`."""
    loop = SimpleNamespace(py_func=SimpleNamespace(__module__=module))
    return SimpleNamespace(data={"dispatcher": loop})


def test_long_compiling_is_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a second in all, of our own functions and of those compiled for them."""
    now = [0.0]
    monkeypatch.setattr("cvxscreen._support.compiled.process_time", lambda: now[0])
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


@pytest.mark.parametrize("collects", [True, False])
def test_no_garbage_is_looked_for_while_our_loops_are_compiled(collects: bool) -> None:
    """And what the program had asked for holds again afterwards."""
    said, before = Announcement(), gc.isenabled()
    said.silent = True
    try:
        (gc.enable if collects else gc.disable)()
        said.on_start(happening("elsewhere"))
        assert gc.isenabled() is collects
        said.on_end(happening("elsewhere"))
        said.on_start(happening("cvxscreen.solvers.box_qp"))
        said.on_start(happening("numba.np"))
        assert not gc.isenabled()
        said.on_end(happening("numba.np"))
        assert not gc.isenabled()
        said.on_end(happening("cvxscreen.solvers.box_qp"))
        assert gc.isenabled() is collects
    finally:
        (gc.enable if before else gc.disable)()


def test_more_folds_than_rows_are_refused(tmp_path, capsys) -> None:
    data = tmp_path / "d.csv"
    data.write_text("a,b,y\n" + "".join(f"{k},{k % 3},{k % 2}\n" for k in range(20)))
    for folds in ("21", "15"):  # more than rows, and than rows of a class
        assert main(["path", str(data), "--C", "1", "--cv", folds]) == 2
        assert f"`--cv` is {folds}: " in capsys.readouterr().err


@pytest.mark.usefixtures("small_demo")
def test_the_demo_says_what_of_its_seconds_was_compiling(monkeypatch) -> None:
    assert "Counted above" not in str(demo.run_demo(None))
    unpatched = demo.solve

    def compiling(*args, **options):
        demo.ANNOUNCEMENT.seconds += 1.5
        return unpatched(*args, **options)

    monkeypatch.setattr(demo.ANNOUNCEMENT, "seconds", 0.0)
    monkeypatch.setattr(demo, "solve", compiling)
    found = demo.run_demo(None)
    assert found.rows[0].built_in.compiling == 1.5
    assert found.rows[0].record()["built_in_compiling_seconds"] == 1.5
    assert "Counted above: 1.5 s of compiling, once a machine." in str(found)
