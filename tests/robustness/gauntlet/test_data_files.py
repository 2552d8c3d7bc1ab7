"""Data files that are empty, cut, altered, foreign or hostile: refused, nothing run or written."""

from __future__ import annotations

import bz2
import gzip
import io
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gauntlet.bad import N, X, Y
from gauntlet.files import CSR, GOOD, Hostile, flipped, hostile_npz, npy, npz, parts

import cvxscreen as cs
from cvxscreen.cli.commands import main
from cvxscreen.errors import InvalidInput
from cvxscreen.models.files import read_table

PACKED = io.BytesIO()
np.savez_compressed(PACKED, X=X, y=Y)
TEXT = "\n".join(f"{int(y)} 1:{a} 2:{b} 3:{c}" for y, (a, b, c) in zip(Y, X, strict=True)).encode()
ZIPPED = gzip.compress(TEXT)
HUGE = npy(X).replace(b"(12, 3)", b"(999999999999, 3)").replace(b", }           ", b", } ")

FILES: list[tuple[str, bytes, str]] = [
    ("empty.npz", b"", "empty"),
    ("empty.npy", b"", "empty"),
    ("empty.csv", b"", "empty"),
    ("empty.svm", b"", "empty"),
    ("empty.svm.gz", b"", "empty"),
    ("blank.csv", b"\n\n", "empty"),
    ("blank.svm", b"\n\n", "no rows"),
    ("zipped nothing.gz", gzip.compress(b""), "no rows|svmlight"),
    ("half.npz", GOOD[: len(GOOD) // 2], "not a zip file.*cut short"),
    ("half.svm.gz", ZIPPED[: len(ZIPPED) // 2], "could not be read.*cut short"),
    ("half.bz2", bz2.compress(TEXT)[:-9], "could not be read.*cut short"),
    ("altered.npz", flipped(GOOD, len(GOOD) // 3), "could not be read"),
    ("altered packed.npz", flipped(PACKED.getvalue(), 130), "could not be read"),
    ("text.npz", b"hello", "no NumPy file"),
    ("text.npy", b"hello", "no NumPy file"),
    ("text.gz", b"hello", "could not be read as svmlight"),
    ("text.bz2", b"hello", "could not be read as svmlight"),
    ("one array.npz", npy(X), r"one array \(\.npy\), not an archive"),
    ("an archive.npy", GOOD, "could not be read|dtype|array"),
    ("pickle.npz", pickle.dumps([1, 2]), "pickled objects, which are never loaded"),
    ("pickle.npy", pickle.dumps([1, 2]), "pickled objects, which are never loaded"),
    ("objects.npy", npy(np.array([[{}, 1]], dtype=object), allow_pickle=True), "never loaded"),
    ("no y.npz", npz(X=X), "no array 'y'.*'X'"),
    ("no X.npz", npz(y=Y), "neither 'X' nor"),
    ("vector.npz", npz(X=X[:, 0], y=Y), r"shape \(12,\).*needed"),
    ("short y.npz", npz(X=X, y=Y[:3]), r"shape \(3,\).*\(12,\)"),
    ("wide y.npz", npz(X=X, y=np.stack([Y, Y], 1)), r"shape \(12, 2\).*\(12,\)"),
    ("words.npz", npz(X=X, y=np.full(N, "a")), "dtype <U1.*numbers are needed"),
    ("complex.npz", npz(X=X + 1j, y=Y), "complex128.*needed"),
    ("nan.npz", npz(X=np.where(X > 3, np.nan, X), y=Y), "NaN.*impute or drop"),
    ("no rows.npz", npz(X=X[:0], y=Y[:0]), "no rows"),
    ("beyond.npz", parts(X_indices=CSR.indices + 50), "`indices` go from 5.*build it again"),
    ("below.npz", parts(X_indices=CSR.indices - 1), "`indices` go from -1.*build it again"),
    ("falling.npz", parts(X_indptr=CSR.indptr[::-1]), "could not be read|indptr"),
    ("beyond the end.npz", parts(X_indptr=CSR.indptr * 2), "could not be read|indptr"),
    ("odd shape.npz", parts(X_shape=np.array([1.5, 2])), "could not be read"),
    ("negative shape.npz", parts(X_shape=np.array([-1, 3])), "could not be read"),
    ("huge.npy", HUGE, "could not be read as .npy"),
    ("one column.npy", npy(X[:, :1]), r"shape \(12, 1\).*target column"),
    ("binary.csv", bytes(range(256)), "UnicodeDecodeError"),
    ("utf-16.csv", "1,2\n3,4\n".encode("utf-16"), "UnicodeDecodeError"),
    ("long cell.csv", b"1,2\n" + b"9" * 200_000 + b",2\n", "field larger"),
    ("missing.csv", b"a,b,y\n1,,1\n2,3,-1\n", "line 2, column 'b' is ''.*not a number"),
    ("nan.csv", b"a,b,y\n1,nan,1\n2,3,-1\n", "NaN.*impute or drop"),
    ("ragged.csv", b"1,2,3\n1,2\n", "line 2 has 2 cells"),
    ("one column.csv", b"1\n2\n", "one column"),
    ("index.svm", b"1 -1:2\n-1 1:3\n", "Invalid index"),
    ("words.svm", b"1 x:2\n", "could not be read as svmlight"),
    ("infinite.svm", b"1 1:inf\n-1 1:3\n", "infinity.*impute or drop"),
]


@pytest.mark.parametrize(("name", "content", "words"), FILES, ids=[row[0] for row in FILES])
def test_a_bad_data_file_is_refused(
    name: str, content: bytes, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the reader, and by the command with exit code 2 and one line on standard error."""
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(InvalidInput, match=re.compile(words, re.DOTALL)) as refusal:
        read_table(file)
    assert name in str(refusal.value)
    assert "allow_pickle" not in str(refusal.value)
    for command in (["path", "--C", "1", "--out", str(tmp_path / "out.npz")], ["verify"],
                    ["triplets", "--out", str(tmp_path / "out.npz")]):
        assert main([command[0], str(file), *command[1:]]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith(f"cvxscreen {command[0]}: ")
        assert said.err.count("\n") == 1
    assert file.read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_pickle_never_runs(tmp_path: Path) -> None:
    """In a data file, a path file or a checkpoint."""
    target, file = tmp_path / "it ran", tmp_path / "hostile.npz"
    content = hostile_npz(target)
    file.write_bytes(content)
    problem = cs.svm(X, Y)
    doors: list[Callable[[], Any]] = [
        lambda: read_table(file), lambda: cs.load_path(file),
        lambda: cs.path(problem, values=[1.0], checkpoint=file),
    ]
    for door in doors:
        with pytest.raises(InvalidInput, match="never loaded"):
            door()
    raw = tmp_path / "hostile.npy"
    raw.write_bytes(npy(np.array([Hostile(target)], dtype=object), allow_pickle=True))
    with pytest.raises(InvalidInput, match="never loaded"):
        read_table(raw)
    assert not target.exists()
    np.load(raw, allow_pickle=True)  # the pickle is one that works
    assert target.read_text() == "it ran"
    assert file.read_bytes() == content
