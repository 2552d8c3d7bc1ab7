"""Reading data files: every format, and what is wrong with a bad one."""

from __future__ import annotations

import bz2
import gzip

import numpy as np
import pytest
import scipy.sparse as sp

from cvxscreen.errors import InvalidInput
from cvxscreen.models.files import read_data, two_classes

X = np.array([[1.0, 0.0, 2.5], [0.0, -3.0, 0.0]])
Y = np.array([1.0, -1.0])
SVM = "1 1:1 3:2.5\n-1 2:-3\n"


def dense(matrix) -> np.ndarray:
    return matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)


def test_every_format(tmp_path) -> None:
    (tmp_path / "a.svm").write_text(SVM)
    with gzip.open(tmp_path / "a.svm.gz", "wt") as stream:
        stream.write(SVM)
    with bz2.open(tmp_path / "a.svm.bz2", "wt") as stream:
        stream.write(SVM)
    np.savez(tmp_path / "a.npz", X=X, y=Y)
    c = sp.csr_matrix(X)
    np.savez(tmp_path / "b.npz", X_data=c.data, X_indices=c.indices, X_indptr=c.indptr,
             X_shape=c.shape, y=Y)
    np.save(tmp_path / "a.npy", np.column_stack([X, Y]))
    (tmp_path / "a.csv").write_text("1,0,2.5,1\n0,-3,0,-1\n")
    (tmp_path / "b.csv").write_text("u,v,w,label\n1,0,2.5,1\n0,-3,0,-1\n")
    for name in ("a.svm", "a.svm.gz", "a.svm.bz2", "a.npz", "b.npz", "a.npy", "a.csv", "b.csv"):
        matrix, y = read_data(tmp_path / name)
        np.testing.assert_array_equal(dense(matrix), X)
        np.testing.assert_array_equal(y, Y)


def test_the_target_column(tmp_path) -> None:
    file = tmp_path / "c.csv"
    file.write_text("label,u,v\n1,5,6\n-1,7,8\n")
    for target in ("label", "0", "-3"):
        matrix, y = read_data(file, target)
        np.testing.assert_array_equal(y, Y)
        np.testing.assert_array_equal(matrix, [[5, 6], [7, 8]])
    with pytest.raises(InvalidInput, match=r"--target.*price.*label, u, v"):
        read_data(file, "price")
    with pytest.raises(InvalidInput, match="3 columns"):
        read_data(file, "7")


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
        read_data(tmp_path / name)


def test_other_delimiters_and_names_of_classes(tmp_path) -> None:
    (tmp_path / "a.csv").write_text("u;v;kind\n1;2;spam\n3;4;ham\n")
    (tmp_path / "b.tsv").write_text("u\tkind\tv\n1\tspam\t2\n3\tham\t4\n")
    (tmp_path / "c.csv").write_text("1,2,spam\n3,4,ham\n")
    for name, target in (("a.csv", None), ("b.tsv", "kind"), ("c.csv", None)):
        matrix, y = read_data(tmp_path / name, target)
        np.testing.assert_array_equal(matrix, [[1, 2], [3, 4]])
        assert list(y) == ["spam", "ham"]


def test_a_bad_cell_is_named_by_line_and_column(tmp_path) -> None:
    (tmp_path / "a.csv").write_text("u,v,y\n1,2,1\n\n3,NA!,0\n")
    with pytest.raises(InvalidInput, match=r"line 4, column 'v' is 'NA!'"):
        read_data(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text("u,v,y\n1,2,1\n3,0\n")
    with pytest.raises(InvalidInput, match="line 3 has 2 cells, the first line 3"):
        read_data(tmp_path / "b.csv")
    with pytest.raises(InvalidInput, match="a folder"):
        read_data(tmp_path)


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
        read_data(tmp_path / "nothing.npz")
    np.savez(tmp_path / "evil.npz", X=np.array([{"a": 1}], dtype=object), y=Y)
    with pytest.raises(InvalidInput, match="`DATA`"):
        read_data(tmp_path / "evil.npz")
    np.savez(tmp_path / "no_y.npz", X=X)
    with pytest.raises(InvalidInput, match="no array 'y'"):
        read_data(tmp_path / "no_y.npz")
    np.savez(tmp_path / "no_x.npz", y=Y)
    with pytest.raises(InvalidInput, match="neither"):
        read_data(tmp_path / "no_x.npz")
