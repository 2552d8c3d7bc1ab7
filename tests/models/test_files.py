"""Data files: every format read into memory, a bad one refused, and files opened as chunks.
"""

from __future__ import annotations

import bz2
import gzip
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from cvxscreen import open_data
from cvxscreen.errors import InvalidInput, MissingDependency
from cvxscreen.models.files import Shards, open_svmlight, read_table, two_classes
from cvxscreen.out_of_core.streams import LocalEngine

SMALL = np.array([[1.0, 0.0, 2.5], [0.0, -3.0, 0.0]])
LABELS = np.array([1.0, -1.0])
SVM = "1 1:1 3:2.5\n-1 2:-3\n"


def dense(matrix) -> np.ndarray:
    return matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)


def test_every_format(tmp_path) -> None:
    (tmp_path / "a.svm").write_text(SVM)
    with gzip.open(tmp_path / "a.svm.gz", "wt") as stream:
        stream.write(SVM)
    with bz2.open(tmp_path / "a.svm.bz2", "wt") as stream:
        stream.write(SVM)
    np.savez(tmp_path / "a.npz", X=SMALL, y=LABELS)
    c = sp.csr_matrix(SMALL)
    np.savez(tmp_path / "b.npz", X_data=c.data, X_indices=c.indices, X_indptr=c.indptr,
             X_shape=c.shape, y=LABELS)
    np.save(tmp_path / "a.npy", np.column_stack([SMALL, LABELS]))
    (tmp_path / "a.csv").write_text("1,0,2.5,1\n0,-3,0,-1\n")
    (tmp_path / "b.csv").write_text("u,v,w,label\n1,0,2.5,1\n0,-3,0,-1\n")
    for name in ("a.svm", "a.svm.gz", "a.svm.bz2", "a.npz", "b.npz", "a.npy", "a.csv", "b.csv"):
        data = read_table(tmp_path / name)
        matrix, y = data.X, data.y
        np.testing.assert_array_equal(dense(matrix), SMALL)
        np.testing.assert_array_equal(y, LABELS)


def test_the_target_column(tmp_path) -> None:
    file = tmp_path / "c.csv"
    file.write_text("label,u,v\n1,5,6\n-1,7,8\n")
    for target in ("label", "0", "-3"):
        data = read_table(file, target)
        matrix, y = data.X, data.y
        np.testing.assert_array_equal(y, LABELS)
        np.testing.assert_array_equal(matrix, [[5, 6], [7, 8]])
    with pytest.raises(InvalidInput, match=r"--target.*price.*label, u, v"):
        read_table(file, "price")
    with pytest.raises(InvalidInput, match="3 columns"):
        read_table(file, "7")


BAD = {
    "empty.csv": b"",
    "ragged.csv": b"1,2,3\n4,5\n",
    "words.csv": b"a,b\nx,1\n2,1\n",
    "one.csv": b"1\n2\n",
    "broken.npz": b"PK\x03\x04rubbish",
    "broken.npy": b"rubbish",
    "broken.svm": b"hello world\n",
    "broken.gz": b"not gzip",
    "binary.csv": b"\xff\xfe\x00\x01",
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_by_name(tmp_path, name) -> None:
    (tmp_path / name).write_bytes(BAD[name])
    with pytest.raises(InvalidInput, match="`DATA`"):
        read_table(tmp_path / name)


def test_other_delimiters_and_names_of_classes(tmp_path) -> None:
    (tmp_path / "a.csv").write_text("u;v;kind\n1;2;spam\n3;4;ham\n")
    (tmp_path / "b.tsv").write_text("u\tkind\tv\n1\tspam\t2\n3\tham\t4\n")
    (tmp_path / "c.csv").write_text("1,2,spam\n3,4,ham\n")
    for name, target in (("a.csv", None), ("b.tsv", "kind"), ("c.csv", None)):
        data = read_table(tmp_path / name, target)
        matrix, y = data.X, data.y
        np.testing.assert_array_equal(matrix, [[1, 2], [3, 4]])
        assert list(y) == ["spam", "ham"]


def test_a_bad_cell_is_named_by_line_and_column(tmp_path) -> None:
    (tmp_path / "a.csv").write_text("u,v,y\n1,2,1\n\n3,NA!,0\n")
    with pytest.raises(InvalidInput, match=r"line 4, column 'v' is 'NA!'"):
        read_table(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text("u,v,y\n1,2,1\n3,0\n")
    with pytest.raises(InvalidInput, match="line 3 has 2 cells, the first line 3"):
        read_table(tmp_path / "b.csv")
    with pytest.raises(InvalidInput, match="a folder"):
        read_table(tmp_path)


def test_two_classes() -> None:
    y, text = two_classes(np.array([0.0, 1.0, 0.0]))
    np.testing.assert_array_equal(y, [-1, 1, -1])
    assert text == "+1 is 1, -1 is 0"
    for labels, positive in (([3.0, 7.0, 5.0], "7.0"), (["a", "c", "b"], "c")):
        y, _ = two_classes(np.array(labels), positive)
        np.testing.assert_array_equal(y, [-1, 1, -1])
    with pytest.raises(InvalidInput, match=r"3 classes \(1, 2, 3\); .*`--positive`"):
        two_classes(np.array([1.0, 2.0, 3.0]))
    with pytest.raises(InvalidInput, match=r"only one class \(4\)"):
        two_classes(np.array([4.0, 4.0]))
    with pytest.raises(InvalidInput, match="none of the classes: 1, 2"):
        two_classes(np.array([1.0, 2.0]), "9")


def test_missing_files_and_pickles_are_refused(tmp_path) -> None:
    with pytest.raises(InvalidInput, match="not a file"):
        read_table(tmp_path / "nothing.npz")
    np.savez(tmp_path / "evil.npz", X=np.array([{"a": 1}], dtype=object), y=LABELS)
    with pytest.raises(InvalidInput, match="`DATA`"):
        read_table(tmp_path / "evil.npz")
    np.savez(tmp_path / "no_y.npz", X=SMALL)
    with pytest.raises(InvalidInput, match="no array 'y'"):
        read_table(tmp_path / "no_y.npz")
    np.savez(tmp_path / "no_x.npz", y=LABELS)
    with pytest.raises(InvalidInput, match="neither"):
        read_table(tmp_path / "no_x.npz")


N, D = 400, 6
RNG = np.random.default_rng(5)
X = RNG.standard_normal((N, D)) * (RNG.random((N, D)) < 0.6)
X[::7] = 0.0  # rows without features are rows
X[:, 0] = 0.0
X[0, D - 1] = 1.0
Y = np.where(RNG.random(N) < 0.5, 1.0, -1.0)
TEXT = "".join(
    f"{label:+.0f} " + " ".join(f"{j + 1}:{float(row[j])!r}" for j in np.flatnonzero(row)) + "\n"
    for label, row in zip(Y, X, strict=True)
)


def rows_of(source: Any) -> Any:
    """Every row, from a source that went to another process and back."""
    found = LocalEngine().gather(pickle.loads(pickle.dumps(source)), np.arange(source.shape[0]))
    return found.toarray() if sp.issparse(found) else found


def shards(folder: Path, *, sparse: bool) -> None:
    for k, start in enumerate(range(0, N, 90)):
        part, y = X[start : start + 90], Y[start : start + 90]
        if sparse:
            m = sp.csr_matrix(part)
            np.savez(folder / f"{k}.npz", X_data=m.data, X_indices=m.indices, X_indptr=m.indptr,
                     X_shape=m.shape, y=y)
        else:
            np.savez_compressed(folder / f"{k}.npz", X=part, y=y)


@pytest.mark.parametrize("sparse", [False, True])
def test_shards(tmp_path: Path, sparse: bool) -> None:
    shards(tmp_path, sparse=sparse)
    listed = [tmp_path / f"{k}.npz" for k in range(5)]
    for given in (tmp_path, str(tmp_path), listed):
        source, y = open_data(given)
        assert source.sparse is sparse
        assert source.bounds == (0, 90, 180, 270, 360, 400)
        assert np.array_equal(rows_of(source), X)
        assert np.array_equal(y, Y)
    source, y = open_data(listed[2])
    assert np.array_equal(rows_of(source), X[180:270])


@pytest.mark.parametrize("target", [0, -1, "-1", D])
def test_a_matrix_is_mapped(tmp_path: Path, target: Any) -> None:
    columns = [Y, X] if target == 0 else [X, Y]
    np.save(tmp_path / "m.npy", np.column_stack(columns))
    source, y = open_data(tmp_path / "m.npy", target, chunk_bytes=3000)
    assert len(source.bounds) > 5
    assert np.array_equal(rows_of(source), X)
    assert np.array_equal(y, Y)


@pytest.mark.parametrize("chunk_bytes", [37, 1000, 10**9])
def test_text_is_cut_at_lines(tmp_path: Path, chunk_bytes: int) -> None:
    place = tmp_path / "data.svm"
    place.write_text("# a comment\n\n" + TEXT)
    source, y = open_data(place, chunk_bytes=chunk_bytes)
    assert source.shape == (N, D)
    assert np.array_equal(y, Y)
    assert np.array_equal(rows_of(source), X)
    whole = read_table(place).X
    assert source.shape == whole.shape


def test_text_counted_from_zero_and_without_last_newline(tmp_path: Path) -> None:
    place = tmp_path / "data.txt"
    place.write_text("1 0:2.5 3:1\n-1 qid:1 2:1\n1")
    source, y = open_data(place)
    assert np.array_equal(rows_of(source), [[2.5, 0, 0, 1], [0, 0, 1, 0], [0, 0, 0, 0]])
    assert np.array_equal(y, [1, -1, 1])


def test_a_cache_is_read_in_place_of_text(tmp_path: Path) -> None:
    place = tmp_path / "data.svm"
    place.write_text(TEXT)
    source, y = open_data(place, chunk_bytes=2000, cache=tmp_path / "new" / "shards")
    place.unlink()
    assert isinstance(source, Shards)
    again, y_again = open_data(tmp_path / "new" / "shards")
    assert again == source
    for found, targets in ((source, y), (again, y_again)):
        assert np.array_equal(rows_of(found), X)
        assert np.array_equal(targets, Y)


def test_zarr(tmp_path: Path) -> None:
    pytest.importorskip("zarr")
    da = pytest.importorskip("dask.array")
    place = tmp_path / "data.zarr"
    da.from_array(X, chunks=(50, 3)).to_zarr(str(place), component="X")
    da.from_array(Y, chunks=100).to_zarr(str(place), component="y")
    found, y = open_data(place)
    assert np.array_equal(found.compute(), X)
    assert np.array_equal(y, Y)
    with pytest.raises(InvalidInput, match="could not be read"):
        open_data(empty(tmp_path / "empty.zarr"))


@pytest.mark.parametrize("target", [None, "label"])
def test_parquet(tmp_path: Path, target: str | None) -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame({f"f{j}": X[:, j] for j in range(D)})
    words = np.where(Y > 0, "yes", "no")
    frame.insert(0 if target else D, "label", words if target else Y)
    folder = empty(tmp_path / "data.parquet")
    for k, start in enumerate(range(0, N, 150)):
        frame.iloc[start : start + 150].to_parquet(folder / f"{k}.parquet")
    found, y = open_data(folder, target)
    assert np.array_equal(found.compute(), X)
    assert np.array_equal(y, words if target else Y)
    with pytest.raises(InvalidInput, match="'nothing'; data\\.parquet has"):
        open_data(folder, "nothing")
    if target:
        with pytest.raises(InvalidInput, match=r"\['label'\] of data.parquet are no numbers"):
            open_data(folder, "f1")
    with pytest.raises(InvalidInput, match="`cache`"):
        open_data(folder, target, cache=tmp_path / "cache")


@pytest.mark.parametrize(
    ("name", "library", "needs"),
    [("a.zarr", "zarr", "zarr"), ("a.parquet", "dask.dataframe", "pandas and pyarrow")],
)
def test_what_is_not_installed_is_named(
    tmp_path: Path, name: str, library: str, needs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dask.array")
    monkeypatch.setitem(sys.modules, library, None)
    (tmp_path / name).touch()
    with pytest.raises(MissingDependency, match=rf'{needs}.*pip install "cvxscreen\[dask\]"'):
        open_data(tmp_path / name)


def empty(folder: Path) -> Path:
    folder.mkdir()
    return folder


def saved(name: str, **arrays: Any) -> Callable[[Path], Any]:
    def make(folder: Path) -> Any:
        np.savez(folder / f"{name}.npz", **arrays)
        return folder

    return make


def written(name: str, text: str) -> Callable[[Path], Any]:
    def make(folder: Path) -> Any:
        (folder / name).write_text(text)
        return folder / name

    return make


def both(*makes: Callable[[Path], Any]) -> Callable[[Path], Any]:
    return lambda folder: [make(folder) for make in makes][-1]


MATRIX = np.ones((3, 2))
FAULTS = {
    "nothing": (lambda folder: folder / "absent", "does not exist"),
    "empty folder": (lambda folder: folder, "holds no .npz files"),
    "empty list": (lambda folder: [], "empty list"),
    "no target": (saved("a", X=MATRIX), "no array 'y'"),
    "no matrix": (saved("a", Z=MATRIX, y=np.ones(3)), "neither 'X' nor"),
    "other length": (saved("a", X=MATRIX, y=np.ones(4)), r"y of shape \(4,\)"),
    "other width": (
        both(saved("a", X=MATRIX, y=np.ones(3)), saved("b", X=MATRIX.T, y=np.ones(2))),
        "rows of 3 features.*rows of 2; they must agree",
    ),
    "no rows": (saved("a", X=MATRIX[:0], y=np.ones(0)), "no rows"),
    "no zip": (written("a.npz", "hello"), "could not be read as .npz"),
    "csv": (written("a.csv", "1,2\n"), "cannot be read in pieces"),
    "compressed": (written("a.svm.gz", ""), "decompress it first"),
    "empty text": (written("a.svm", "# nothing\n"), "no rows with features"),
    "bad text": (written("a.svm", "1 1:2\n1 2:x\n"), "between the bytes 0 and 12"),
    "no npy": (written("a.npy", "hello"), "could not be mapped"),
}


@pytest.mark.parametrize("case", list(FAULTS))
def test_refuses(tmp_path: Path, case: str) -> None:
    make, words = FAULTS[case]
    with pytest.raises(InvalidInput, match=words):
        open_data(make(tmp_path))


def test_refuses_a_target_in_the_middle_and_a_full_cache(tmp_path: Path) -> None:
    np.save(tmp_path / "m.npy", MATRIX @ np.ones((2, 4)))
    for target in (1, "age"):
        with pytest.raises(InvalidInput, match=r"first \(0\) or last \(-1\) of the 4 columns"):
            open_data(tmp_path / "m.npy", target)
    np.save(tmp_path / "v.npy", np.ones(4))
    with pytest.raises(InvalidInput, match="features and a target"):
        open_data(tmp_path / "v.npy")
    with pytest.raises(InvalidInput, match="not empty"):
        open_data(tmp_path / "m.npy", cache=tmp_path)


def test_a_file_that_changed_is_noticed(tmp_path: Path) -> None:
    place = tmp_path / "data.svm"
    place.write_text(TEXT)
    source, _ = open_svmlight(place, 2000)
    place.write_text("\n" * len(TEXT))
    with pytest.raises(InvalidInput, match="has changed; open it again"):
        source.load(1)
    shards(tmp_path, sparse=False)
    kept, _ = open_data(tmp_path)
    np.savez(tmp_path / "2.npz", X=X, y=Y)
    with pytest.raises(InvalidInput, match=r"has changed.*\(90, 6\) when it was opened"):
        kept.load(2)
