"""Data files as X and y: read into memory, or opened as rows in chunks where they would not fit.

In memory: svmlight/libsvm (also .gz, .bz2), .npz, .npy, .csv, .tsv and .parquet. Past memory:
`open_data` finds out what lies at a path; `Shards` are .npz files, and svmlight/libsvm text is read
a range of bytes at a time, as a source of CSR chunks.
"""

from __future__ import annotations

import csv
import gzip
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cvxscreen._support.files import UNREADABLE, why_unreadable
from cvxscreen._support.validation import array, file_path, stored, whole
from cvxscreen.errors import InvalidInput, MissingDependency
from cvxscreen.out_of_core.dask_engine import open_parquet, open_zarr
from cvxscreen.out_of_core.streams import CHUNK_BYTES, Blocks, Mapped, Source

Array = NDArray[np.float64]
_DELIMITERS = "\t;,"
"""In this order: with semicolons or tabs, commas are decimal ones."""
_SHOWN = 12
"""Names of columns or classes listed in a message."""


@dataclass(frozen=True)
class Table:
    """A data file in memory.

    Attributes
    ----------
    X : array or CSR matrix, shape (n, d)
    y : array, shape (n,)
        Float64; text where the target column holds words.
    features : tuple of str
        Names of the columns of `X`; empty where the file gives none.
    target : str
        Name of the target column, or empty.
    remark : str
        What a person should know about how it was read.
    """

    X: Any
    y: NDArray[Any]
    features: tuple[str, ...] = ()
    target: str = ""
    remark: str = ""


_Reader = Callable[[Path, str | None], Table]


def read_table(
    path: str | Path, target: str | None = None, wanted: Sequence[str] | None = None
) -> Table:
    """Read features and targets, with their names where the file has them.

    Parameters
    ----------
    path : path
        ``.npz``: arrays ``X`` and ``y`` (or the four parts of a CSR matrix, ``X_data``,
        ``X_indices``, ``X_indptr``, ``X_shape``). ``.npy``: a matrix whose column `target` is y.
        ``.csv``, ``.tsv`` (also ``.gz``): with or without a header; commas, semicolons or tabs,
        with the latter two decimal commas as well; column `target` is y, and may hold words (names
        of classes). ``.parquet``: one file. Anything else is read as svmlight.
    target : str, optional
        Name (of a file with names) or index of the target column; the last one when omitted.
    wanted : sequence of str, optional
        Read these columns and no target (`y` is then 0): of files with names, for predictions.

    Raises
    ------
    InvalidInput
        If the file is missing, unreadable, or has no such column.
    MissingDependency
        For Parquet without pyarrow.
    """
    place = Path(path)
    if not place.is_file():
        what = "a folder" if place.is_dir() else "not a file"
        raise InvalidInput(f"`DATA`: {str(place)!r} is {what}; name a data file.")
    kind = kind_of(place)

    def text(place: Path, target: str | None) -> Table:
        return _csv(place, target, wanted)

    def columns(place: Path, target: str | None) -> Table:
        return _parquet(place, target, wanted)

    readers: dict[str, _Reader] = {
        ".npz": _npz, ".npy": _npy, ".csv": text, ".tsv": text, ".parquet": columns,
    }
    reader: _Reader = readers.get(kind, _svmlight)
    if target is not None and reader not in (text, columns, _npy):
        raise InvalidInput(
            f"`--target` is {target!r}, but {place.name} is no .csv, .tsv, .parquet or .npy: its "
            "targets have a place of their own."
        )
    if not place.stat().st_size:
        raise InvalidInput(f"`DATA`: {str(place)!r} is empty; name a file with data.")
    try:
        found = reader(place, target)
        X = stored(found.X, f"X of {place.name}")
        if not X.shape[0]:
            raise InvalidInput(f"`DATA`: {place.name} has no rows; name a file with data.")
        if found.y.shape != (X.shape[0],):
            raise InvalidInput(
                f"`DATA`: y of {place.name} has shape {found.y.shape}; one target a row of X, "
                f"({X.shape[0]},), is needed."
            )
        return Table(X, found.y, found.features, found.target, found.remark)
    except InvalidInput:
        raise
    except UNREADABLE as error:
        word = kind if kind in readers else "svmlight text"
        raise InvalidInput(
            f"`DATA`: {str(place)!r} could not be read as {word} ({why_unreadable(error)}); it may "
            "be cut short or of another format, see `cvxscreen path --help`."
        ) from None


def kind_of(place: Path) -> str:
    """The suffix that says how a file is read: ``.csv`` for ``a.csv.gz``."""
    kind = place.suffix.lower()
    packed = kind == ".gz" and Path(place.stem).suffix.lower() in (".csv", ".tsv")
    return Path(place.stem).suffix.lower() if packed else kind


def _npz(place: Path, target: str | None) -> Table:
    with place.open("rb") as stream, np.load(stream, allow_pickle=False) as data:
        if "y" not in data.files:
            raise InvalidInput(f"`DATA`: {place.name} has no array 'y'; found {data.files}.")
        y = array(f"y of {place.name}", data["y"])
        return Table(matrix_of(data, place.name), y)


def _split(matrix: Array, column: int, name: str) -> tuple[Array, Array]:
    if matrix.ndim != 2 or matrix.shape[1] < 2:
        raise InvalidInput(
            f"`DATA`: {name} has shape {matrix.shape}; a matrix with a target column is needed."
        )
    if not -matrix.shape[1] <= column < matrix.shape[1]:
        raise InvalidInput(f"`--target` is {column}; {name} has {matrix.shape[1]} columns.")
    y = np.asarray(matrix[:, column], dtype=np.float64)
    return np.delete(matrix, column, axis=1), y


def _column(target: str | None, header: list[str] | None, name: str) -> int:
    if target is None:
        return -1
    if header is not None and target in header:
        return header.index(target)
    try:
        return int(target)
    except ValueError:
        known = "no header" if header is None else "columns " + ", ".join(header[:12])
        raise InvalidInput(
            f"`--target` is {target!r}, which is no column of {name} ({known})."
        ) from None


def _npy(place: Path, target: str | None) -> Table:
    with place.open("rb") as stream:
        matrix = array(place.name, np.load(stream, allow_pickle=False))
    return Table(*_split(matrix, _column(target, None, place.name), place.name))


def _csv(place: Path, target: str | None, wanted: Sequence[str] | None) -> Table:
    opened: Any = gzip.open if place.suffix.lower() == ".gz" else open
    with opened(place, "rt", newline="", encoding="utf-8-sig") as stream:
        first = stream.readline()
        stream.seek(0)
        delimiter = next((d for d in _DELIMITERS if d in first), ",")
        reader = csv.reader(stream, delimiter=delimiter)
        lines = [(reader.line_num, row) for row in reader if row]
    if not lines:
        raise InvalidInput(f"`DATA`: {place.name} is empty.")
    commas = delimiter != "," and any("," in cell for _, row in lines[1:2] for cell in row)
    commas = commas or (delimiter != "," and any(
        _is_number(cell, True) and "," in cell for cell in lines[0][1]
    ))

    def numeric(cell: str) -> bool:
        return _is_number(cell, commas)

    header = None
    # A header has words over numbers; names of classes have words under them.
    over = zip(*(row for _, row in lines[:2]), strict=False) if len(lines) > 1 else ()
    if any(not numeric(top) and numeric(below) for top, below in over):
        header, lines = [cell.strip() for cell in lines[0][1]], lines[1:]
    elif len(lines) == 1 and len(lines[0][1]) > 1 and not any(map(numeric, lines[0][1])):
        raise InvalidInput(f"`DATA`: {place.name} has a header and no rows; name a file with data.")
    width = len(header or lines[0][1])
    for number, row in lines:
        if len(row) != width:
            raise InvalidInput(
                f"`DATA`: {place.name}, line {number} has {len(row)} cells, the first line {width}."
            )
    if width < 2 and wanted is None:
        raise InvalidInput(
            f"`DATA`: {place.name} has one column; features and a target column are needed."
        )
    features, column = _chosen(wanted, target, header, width, place.name)
    X = np.empty((len(lines), len(features)))
    for i, (number, row) in enumerate(lines):
        for k, j in enumerate(features):
            try:
                X[i, k] = float(row[j].replace(",", ".") if commas else row[j])
            except ValueError:
                named = header[j] if header else j
                raise InvalidInput(
                    f"`DATA`: {place.name}, line {number}, column {named!r} is {row[j]!r}, not a "
                    "number; encode it, drop it, or name the target column with `--target`."
                ) from None
    names = tuple(header[j] for j in features) if header else ()
    remark = "decimal commas" if commas else ""
    if column is None:
        return Table(X, np.zeros(len(lines)), names, "", remark)
    targets = [row[column].strip() for _, row in lines]
    y: NDArray[Any] = np.array(targets)
    if all(map(numeric, targets)):
        y = np.array([float(cell.replace(",", ".") if commas else cell) for cell in targets])
    return Table(X, y, names, header[column] if header else "", remark)


def _chosen(
    wanted: Sequence[str] | None, target: str | None, header: list[str] | None, width: int,
    file: str,
) -> tuple[list[int], int | None]:
    """Where the features are, the `wanted` ones or all but the target, and where the target is.

    Raises
    ------
    InvalidInput
        If one is missing.
    """
    if wanted is not None and header is not None:
        missing = [name for name in wanted if name not in header]
        if missing:
            shown = ", ".join(map(repr, missing[:_SHOWN]))
            raise InvalidInput(f"`DATA`: {file} lacks the column(s) {shown} of the model.")
        return [header.index(name) for name in wanted], None
    if wanted is not None and width == len(wanted):
        return list(range(width)), None
    column = _column(target, header, file)
    if width and not -width <= column < width:
        raise InvalidInput(f"`--target` is {column}; {file} has {width} columns.")
    column %= max(width, 1)
    return [j for j in range(width) if j != column], column


def _parquet(place: Path, target: str | None, wanted: Sequence[str] | None) -> Table:
    try:
        from pyarrow.parquet import read_table as read_parquet
    except ImportError as error:
        raise MissingDependency(
            'Parquet needs pyarrow: pip install "cvxscreen[frames]"'
        ) from error
    found = read_parquet(place)
    names = list(found.column_names)
    features, column = _chosen(wanted, target, names, len(names), place.name)
    if not features:
        raise InvalidInput(f"`DATA`: {place.name} has no columns besides the target.")
    try:
        parts = [np.asarray(found.column(j), dtype=np.float64) for j in features]
    except (TypeError, ValueError):
        words = [names[j] for j in features if not _numbers(found.column(j))]
        raise InvalidInput(
            f"`DATA`: the column(s) {words} of {place.name} are no numbers; encode or drop them."
        ) from None
    X = np.column_stack(parts)
    if column is None:
        return Table(X, np.zeros(len(X)), tuple(names[j] for j in features))
    y = np.asarray(found.column(column))
    y = y.astype(np.float64) if y.dtype.kind in "biuf" else y.astype(str)
    return Table(X, y, tuple(names[j] for j in features), names[column])


def _numbers(column: Any) -> bool:
    """Whether a column of Parquet holds numbers."""
    return np.asarray(column).dtype.kind in "biuf"


def _is_number(cell: str, commas: bool = False) -> bool:
    try:
        float(cell.replace(",", ".") if commas else cell)
    except ValueError:
        return False
    return True


def two_classes(y: NDArray[Any], positive: str | None = None) -> tuple[Array, str]:
    """Targets as -1 and +1, and a sentence that says which class is which.

    Parameters
    ----------
    y : array, shape (n,)
        Numbers or words.
    positive : str, optional
        The class that becomes +1, all others -1; when omitted there must be two, and the larger
        (or later in the alphabet) becomes +1.

    Raises
    ------
    InvalidInput
        For another number of classes without `positive`, or if `positive` does not occur.
    """
    classes = np.unique(y)
    names = [str(c) if y.dtype.kind in "US" else f"{c:g}" for c in classes]
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    if positive is None:
        if len(classes) < 2:
            raise InvalidInput(f"the target has only one class ({shown}); two are needed.")
        if len(classes) > 2:
            raise InvalidInput(
                f"the target has {len(classes)} classes ({shown}); name the one that becomes +1 "
                "with `--positive`, or choose a loss for regression."
            )
        return np.where(y == classes[1], 1.0, -1.0), f"+1 is {names[1]}, -1 is {names[0]}"
    wanted = f"{float(positive):g}" if _is_number(positive) and positive not in names else positive
    if wanted not in names:
        raise InvalidInput(f"`--positive` is {positive!r}, which is none of the classes: {shown}.")
    hit = np.where(y == classes[names.index(wanted)], 1.0, -1.0)
    return hit, f"+1 is {wanted}, -1 is every other class"


def _svmlight(place: Path, target: str | None) -> Table:
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(str(place))
    return Table(X, np.asarray(y, dtype=np.float64))


# -- shards: a matrix kept as .npz files ----------------------------------------------------------


CSR_PARTS = ("X_data", "X_indices", "X_indptr", "X_shape")


@dataclass(frozen=True)
class Shards:
    """Rows kept in .npz files: an array ``X``, or the parts of a CSR matrix.

    Only the names travel to another process; a file is read whenever its chunk is visited.

    Attributes
    ----------
    paths : tuple of str
    shape : (int, int)
    sparse : bool
    bounds : tuple of int
        Where the rows of each file begin, and n.
    """

    paths: tuple[str, ...]
    shape: tuple[int, int]
    sparse: bool
    bounds: tuple[int, ...]

    def load(self, k: int) -> Any:
        """The rows of file `k`."""
        with np.load(self.paths[k], allow_pickle=False) as data:
            block = matrix_of(data, self.paths[k])
        rows = self.bounds[k + 1] - self.bounds[k]
        if block.shape != (rows, self.shape[1]):
            raise InvalidInput(
                f"`X`: {self.paths[k]!r} has changed: its rows have shape {block.shape}, "
                f"{(rows, self.shape[1])} when it was opened. Open the shards again."
            )
        return Blocks((block,)).load(0)


def matrix_of(data: Any, name: str) -> Any:
    """The matrix in an opened .npz file: ``X``, or a CSR matrix from its four parts.

    Raises
    ------
    InvalidInput
        If there is neither.
    """
    if "X" in data.files:
        return data["X"]
    if not set(data.files).issuperset(CSR_PARTS):
        raise InvalidInput(f"`DATA`: {Path(name).name} has neither 'X' nor a CSR matrix.")
    triple = (data["X_data"], data["X_indices"], data["X_indptr"])
    return sp.csr_matrix(triple, shape=tuple(data["X_shape"]))


def open_shards(paths: Iterable[str | Path]) -> tuple[Shards, NDArray[Any]]:
    """The rows of a list of .npz files as a source, and their targets ``y`` in one vector.

    The matrices are not read, only their shapes.

    Raises
    ------
    InvalidInput
        Where a file lacks ``y``, is no .npz file, or does not go with the first one.
    """
    names = [str(path) for path in paths]
    if not names:
        raise InvalidInput("`DATA` is an empty list of shards; at least one .npz file is needed.")
    found = [_opened(name) for name in names]
    _, d, sparse, _ = found[0]
    for name, (_, width, kind, _) in zip(names, found, strict=True):
        if width != d or kind is not sparse:
            raise InvalidInput(
                f"`DATA`: {name!r} holds {'CSR' if kind else 'dense'} rows of {width} features, "
                f"{names[0]!r} {'CSR' if sparse else 'dense'} rows of {d}; they must agree."
            )
    used = [k for k, (rows, _, _, _) in enumerate(found) if rows]
    if not used:
        raise InvalidInput("`DATA`: the shards hold no rows.")
    bounds = (0, *np.cumsum([found[k][0] for k in used]).tolist())
    source = Shards(tuple(names[k] for k in used), (bounds[-1], d), sparse, bounds)
    return source, np.concatenate([found[k][3] for k in used])


def write_shards(source: Source, y: NDArray[Any], folder: Path) -> tuple[Shards, NDArray[Any]]:
    """Copy every chunk of `source` and its targets into `folder`, opened as shards."""
    names = []
    for k, (start, stop) in enumerate(pairwise(source.bounds)):
        block = source.load(k)
        parts = {"X": block}
        if source.sparse:
            found = (block.data, block.indices, block.indptr, block.shape)
            parts = dict(zip(CSR_PARTS, found, strict=True))
        names.append(folder / f"part-{k:06d}.npz")
        np.savez(names[-1], y=y[start:stop], **parts)
    return open_shards(names)


def empty_folder(folder: Path) -> Path:
    """`folder`, made if it does not exist.

    Raises
    ------
    InvalidInput
        If there is something in it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise InvalidInput(
            f"`cache`: the folder {str(folder)!r} is not empty; name another one, or open it in "
            "place of the data if it was made from them."
        )
    return folder


def _opened(name: str) -> tuple[int, int, bool, NDArray[Any]]:
    """Rows, columns, kind and targets of one shard."""
    try:
        with np.load(name, allow_pickle=False) as data, zipfile.ZipFile(name) as archive:
            if "y" not in data.files:
                raise InvalidInput(f"`DATA`: {name!r} has no array 'y'; found {data.files}.")
            y = data["y"]
            if "X" in data.files:
                shape, sparse = _shape(archive, "X.npy"), False
            elif set(data.files).issuperset(CSR_PARTS):
                shape, sparse = tuple(int(k) for k in data["X_shape"]), True
            else:
                raise InvalidInput(f"`DATA`: {name!r} has neither 'X' nor a CSR matrix.")
    except InvalidInput:
        raise
    except (OSError, ValueError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidInput(f"`DATA`: {name!r} could not be read as .npz: {error}") from None
    if len(shape) != 2 or y.shape != shape[:1]:
        raise InvalidInput(
            f"`DATA`: {name!r} holds X of shape {tuple(shape)} and y of shape {y.shape}; (n, d) "
            "and (n,) are needed."
        )
    return int(shape[0]), int(shape[1]), sparse, y


def _shape(archive: zipfile.ZipFile, member: str) -> Sequence[int]:
    """The shape of an array in a .npz file, from its header alone."""
    readers: dict[tuple[int, int], Any] = {
        (1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0,
    }
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        if version not in readers:
            raise ValueError(f"the array {member} is of the unknown version {version}")
        shape, _, _ = readers[version](stream)
    return tuple(int(k) for k in shape)


# -- what lies at a path --------------------------------------------------------------------------

@dataclass(frozen=True)
class SvmlightRows:
    """The rows of a text file, parsed anew at every visit; only its name travels.

    Attributes
    ----------
    path : str
    ranges : tuple of (int, int)
        First byte and end of each chunk, at ends of lines.
    one_based : bool
        Whether features are counted from 1 in the file.
    shape : (int, int)
    bounds : tuple of int
    """

    path: str
    ranges: tuple[tuple[int, int], ...]
    one_based: bool
    shape: tuple[int, int]
    bounds: tuple[int, ...]
    sparse: bool = True

    def load(self, k: int) -> Any:
        """The rows between two bytes, as CSR."""
        X, _ = _parsed(self.path, self.ranges[k], self.shape[1] + self.one_based)
        rows = self.bounds[k + 1] - self.bounds[k]
        if X.shape[0] != rows:
            raise InvalidInput(f"`X`: {self.path!r} has changed; open it again.")
        indices = X.indices - self.one_based
        return Blocks((sp.csr_matrix((X.data, indices, X.indptr), (rows, self.shape[1])),)).load(0)


def open_svmlight(
    place: Path, chunk_bytes: int = CHUNK_BYTES
) -> tuple[SvmlightRows, Array]:
    """The rows of a text file as a source, and its targets; reads the file once.

    Parameters
    ----------
    place : Path
    chunk_bytes : int
        Text of about this size makes a chunk.

    Raises
    ------
    InvalidInput
        For a compressed file, or a line that is no svmlight.
    """
    if place.suffix in (".gz", ".bz2"):
        raise InvalidInput(
            f"`DATA`: {place.name} is compressed and cannot be read in pieces; decompress it first."
        )
    ranges, counts, targets = [], [], []
    least, most = np.iinfo(np.int64).max, -1
    for span in _cuts(place, chunk_bytes):
        X, y = _parsed(str(place), span, None)
        if not len(y):
            continue
        if X.nnz:
            least, most = min(least, int(X.indices.min())), max(most, int(X.indices.max()))
        ranges.append(span)
        counts.append(len(y))
        targets.append(y)
    if most < 0:
        raise InvalidInput(f"`DATA`: {place.name} has no rows with features.")
    shape = (sum(counts), most + 1 - (least > 0))
    bounds = (0, *np.cumsum(counts).tolist())
    source = SvmlightRows(str(place), tuple(ranges), least > 0, shape, bounds)
    return source, np.concatenate(targets)


def _cuts(place: Path, chunk_bytes: int) -> Iterator[tuple[int, int]]:
    """Ranges of bytes that begin and end with lines."""
    size = place.stat().st_size
    ends = [0]
    with place.open("rb") as stream:
        while ends[-1] < size:
            stream.seek(min(ends[-1] + chunk_bytes, size) - 1)
            stream.readline()
            ends.append(stream.tell())
    return pairwise(ends)


def _parsed(name: str, span: tuple[int, int], width: int | None) -> tuple[Any, Array]:
    """Rows and targets of a range of bytes; features as numbered in the file."""
    from sklearn.datasets import load_svmlight_file

    with Path(name).open("rb") as stream:
        stream.seek(span[0])
        text = stream.read(span[1] - span[0])
    try:
        X, y = load_svmlight_file(BytesIO(text), n_features=width, zero_based=True)
    except ValueError as error:
        raise InvalidInput(
            f"`DATA`: {name!r} could not be read as svmlight between the bytes {span[0]} and "
            f"{span[1]}: {error}"
        ) from None
    return X, np.asarray(y, dtype=np.float64)


Opened = tuple[Any, NDArray[Any]]


def open_data(
    path: str | Path | Sequence[str | Path],
    target: str | int | None = None,
    *,
    cache: str | Path | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> Opened:
    """Open data too large for memory: rows in chunks, read at every pass, and the targets.

    Parameters
    ----------
    path : path, or list of paths
        * a folder of .npz files, or a list of them: shards with the arrays ``X`` (or ``X_data``,
          ``X_indices``, ``X_indptr``, ``X_shape``, a CSR matrix) and ``y``, in the order of their
          names; each is one chunk;
        * .npy: a matrix whose first or last column is the target, mapped into memory;
        * .zarr: a group with the arrays ``X`` and ``y`` (through Dask);
        * .parquet: a file or folder; every column but the target is a feature (through Dask);
        * anything else: svmlight/libsvm text, not compressed, parsed in ranges of bytes.
    target : str or int, optional
        Target column of a .parquet (name) or .npy (0 or -1); the last one when omitted.
    cache : path, optional
        An empty folder, or one to make: the chunks are copied there as shards and read from there.
        Worth it for svmlight, whose text takes many times longer to read; `open_data` of that
        folder opens it again.
    chunk_bytes : int
        About how large a chunk of a .npy or svmlight file is.

    Returns
    -------
    X : object
        For `svm`, `regression` and `on_dask`, in place of a matrix.
    y : array, shape (n,)

    Raises
    ------
    InvalidInput
        If there is nothing there, or not what its name says.
    MissingDependency
        For .zarr and .parquet without Dask and what it needs to read them.

    Examples
    --------
    >>> import tempfile, cvxscreen, numpy as np
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/data.npy", np.column_stack([X, y]))
    ...     rows, target = cvxscreen.open_data(f"{folder}/data.npy", target=-1)
    ...     solution = cvxscreen.solve(cvxscreen.svm(rows, target))
    >>> solution.certificate.ok
    True
    """
    chunk_bytes = whole("chunk_bytes", chunk_bytes, 1)
    folder = None if cache is None else empty_folder(file_path("cache", cache))
    several = isinstance(path, list | tuple)
    places = [file_path("path", one) for one in (path if several else [path])]  # type: ignore
    if target is not None and (several or places[0].suffix.lower() not in (".npy", ".parquet")):
        raise InvalidInput(
            f"`target` is {target!r}, but only .npy and .parquet have a column for it: the targets "
            "of other files have a place of their own."
        )
    X, y = open_shards(places) if several else _one(places[0], target, chunk_bytes)
    if folder is None:
        return X, y
    if not hasattr(X, "load"):
        raise InvalidInput("`cache` copies files that are slow to read; a Dask array is not one.")
    return write_shards(X, y, folder)


def _one(place: Path, target: str | int | None, chunk_bytes: int) -> Opened:
    kind = place.suffix.lower()
    if not place.exists():
        raise InvalidInput(f"`DATA`: {str(place)!r} does not exist; name a file or a folder.")
    if kind == ".parquet":
        return open_parquet(place, target)
    if kind == ".zarr":
        return open_zarr(place)
    if place.is_dir() or kind == ".npz":
        paths = sorted(place.glob("*.npz")) if place.is_dir() else [place]
        if not paths:
            raise InvalidInput(
                f"`DATA`: the folder {str(place)!r} holds no .npz files; name one that does."
            )
        return open_shards(paths)
    if kind == ".npy":
        return _mapped(place, -1 if target is None else target, chunk_bytes)
    if kind in (".csv", ".tsv"):
        raise InvalidInput(
            f"`DATA`: {place.name} cannot be read in pieces; write it as .npy, .parquet or shards."
        )
    return open_svmlight(place, chunk_bytes)


def _mapped(place: Path, target: str | int, chunk_bytes: int) -> Opened:
    try:
        mapped = np.load(place, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InvalidInput(f"`DATA`: {str(place)!r} could not be mapped: {error}") from None
    if mapped.ndim != 2 or mapped.shape[1] < 2:
        raise InvalidInput(
            f"`DATA`: {place.name} has shape {mapped.shape}; features and a target are needed."
        )
    column = int(target) if str(target).lstrip("-").isdigit() else None
    last = mapped.shape[1] - 1
    if column not in (0, -1, last):
        raise InvalidInput(
            f"`target` is {target!r}; the target must be the first (0) or last (-1) of the "
            f"{last + 1} columns of {place.name}."
        )
    y = np.array(mapped[:, column], dtype=np.float64)
    return Mapped(mapped[:, 1:] if column == 0 else mapped[:, :-1], chunk_bytes), y
