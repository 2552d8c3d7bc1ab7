"""Models handed on from the shell: coefficients by name, predictions, scores, awkward files."""

from __future__ import annotations

import csv
import gzip
import json

import numpy as np
import pandas
import pytest
from sklearn.datasets import dump_svmlight_file

import cvxscreen
from cvxscreen.cli.commands import main
from cvxscreen.errors import InvalidInput, MissingDependency
from cvxscreen.models.files import read_data, read_table


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
        (["predict", str(tmp_path / "no.json"), str(file)], "cannot be read"),
        (["path", str(file), "--target", "status", "--coef", "a.txt"], "`--coef`"),
        (["path", str(file), "--target", "status", "--kernel", "rbf", "--coef", "a.csv"], "kernel"),
        (["path", str(file), "--target", "status", "--cv", "1"], "`--cv`"),
    ):
        assert main(call) == 2
        assert words in capsys.readouterr().err


def test_the_best_c_of_a_cross_validation_predicts(loans, tmp_path, capsys) -> None:
    file, _ = loans
    model = tmp_path / "model.json"
    call = ["path", str(file), "--target", "status", "--C", "1e-3:1:3", "--cv", "3", "--intercept",
            "--standardize", "--coef", str(model)]
    assert main(call) == 0
    shown = capsys.readouterr().err
    assert "Scores on the data left out, 3 folds" in shown
    assert shown.count("best") == 1
    best = json.loads(model.read_text("utf-8"))["best_C"]
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
    np.testing.assert_array_equal(read_data(tmp_path / "c.csv")[0], [[1.5], [3.5]])
    (tmp_path / "d.csv").write_text("u,v,y\n")
    with pytest.raises(InvalidInput, match="a header and no rows"):
        read_data(tmp_path / "d.csv")


def test_parquet_without_dask(tmp_path, monkeypatch) -> None:
    file = tmp_path / "a.parquet"
    pandas.DataFrame({"u": [1.0, 2.0], "kind": ["a", "b"], "v": [3, 4]}).to_parquet(file)
    found = read_table(file, "kind")
    assert (found.features, found.target, found.y.tolist()) == (("u", "v"), "kind", ["a", "b"])
    np.testing.assert_array_equal(found.X, [[1, 3], [2, 4]])
    np.testing.assert_array_equal(read_table(file, wanted=["v"]).X, [[3], [4]])
    with pytest.raises(InvalidInput, match=r"\['kind'\] of a.parquet are no numbers"):
        read_data(file, "v")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(MissingDependency, match="pyarrow"):
        read_data(file, "kind")
