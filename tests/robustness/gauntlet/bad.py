"""Bad input by kind of argument: a value, and what its refusal must say about it.

The table of `doors` says which argument is of which kind; every door meets every value of
its kinds. A message has to hold the words given here: what was found, and what to do about it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from cvxscreen.errors import CvxscreenError, InvalidInput, UnknownName

try:
    import pandas
except ImportError:  # frames are one kind of input among many
    pandas = None

N, D = 12, 3
X = np.random.default_rng(5).integers(-4, 5, (N, D)).astype(float)
Y = np.where(np.arange(N) % 3 > 0, 1.0, -1.0)
HOLED = X.copy()
HOLED[1, 1] = np.nan


@dataclass(frozen=True)
class Late:
    """A bad value that has to be solved for: made where it is used, not where the table is read."""

    make: Callable[[], Any]


@dataclass(frozen=True)
class Bad:
    """One bad value; `words` are regular expressions that the message must all match."""

    name: str
    value: Any
    words: tuple[str, ...]
    error: type[CvxscreenError] = InvalidInput


def _broken(part: str, change: Callable[[np.ndarray], None], form: str = "csr") -> Any:
    """A compressed matrix whose index arrays are wrong behind SciPy's back."""
    matrix = sp.csr_matrix(X) if form == "csr" else sp.csc_matrix(X)
    change(getattr(matrix, part))
    return matrix


def _put(place: int, value: int) -> Callable[[np.ndarray], None]:
    def change(array: np.ndarray) -> None:
        array[place] = value

    return change


REMEDY = "needed|impute|drop|encode|Encode|reshape|dense|build it again"

MATRIX = [
    Bad("nan", HOLED, ("NaN", "impute or drop|finite")),
    Bad("infinity", np.where(np.isnan(HOLED), np.inf, X), ("infinity", "impute or drop|finite")),
    Bad("float32 nan", HOLED.astype(np.float32), ("NaN", "impute or drop|finite")),
    Bad("one column", X[:, 0], (r"shape \(12,\)", REMEDY)),
    Bad("three axes", X[None], (r"shape \(1, 12, 3\)", REMEDY)),
    Bad("nothing", None, ("None", "needed")),
    Bad("a number", 3.0, (r"shape \(\)", REMEDY)),
    Bad("text", "X.csv", ("dtype <U5", "real numbers are needed")),
    Bad("words", np.full((N, D), "a"), ("dtype <U1", "real numbers are needed")),
    Bad("words of digits", X.astype(str), ("dtype <U", "real numbers are needed")),
    Bad("objects", np.array([["a", 1.0, None]] * N, dtype=object), ("'a'", "encode")),
    Bad("digits as objects", X.astype(str).astype(object), ("no numbers", "encode")),
    Bad("complex", X + 1j, ("complex128", "real numbers are needed")),
    Bad("dates", np.full((N, D), np.datetime64("2020-01-01")), ("datetime64", "needed")),
    Bad("masked", np.ma.masked_array(X, X > 3), ("masked", "impute or drop")),
    Bad("ragged", [[1.0, 2.0], [3.0]], ("not an array of numbers",)),
    Bad("a dictionary", {"a": 1}, ("{'a': 1}|shape", "encode|needed")),
    Bad("too large", X * np.longdouble("1e4000"), ("infinity", "finite|drop")),
]

SPARSE = [
    Bad("sparse nan", sp.csr_array(HOLED), ("NaN", "impute or drop")),
    Bad("sparse complex", sp.csr_matrix(X + 1j), ("complex128", "real numbers is needed")),
    Bad("sparse vector", sp.coo_array(X[:, 0]), (r"shape \(12,\)", "needed")),
    Bad("index beyond", _broken("indices", _put(2, 99)), ("`indices`", "99", "build it again")),
    Bad("index below", _broken("indices", _put(2, -1)), ("`indices`", "-1", "build it again")),
    Bad("pointer falls", _broken("indptr", _put(3, 0)), ("`indptr`", "build it again")),
    Bad("pointer starts late", _broken("indptr", _put(0, 1)), ("`indptr`", "build it again")),
    Bad("pointer beyond", _broken("indptr", _put(-1, 999)), ("`indptr`", "build it again")),
    Bad("csc index", _broken("indices", _put(2, 99), "csc"), ("`indices`", "99", "build it again")),
    Bad("csc pointer", _broken("indptr", _put(2, 0), "csc"), ("`indptr`", "build it again")),
]

EMPTY = [
    Bad("no rows", np.zeros((0, D)), ("0 rows|empty", "needed")),
    Bad("no columns", np.zeros((N, 0)), ("0 columns|empty", "needed")),
    Bad("no sparse rows", sp.csr_matrix((0, D)), ("0 rows|empty", "needed")),
]

FRAMES: list[Bad] = []
SERIES: list[Bad] = []
if pandas is not None:
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    missing = frame.convert_dtypes().mask(frame > 3)
    FRAMES = [
        Bad("frame nan", frame.mask(frame > 3), ("NaN", "impute or drop")),
        Bad("frame missing", missing, ("missing values|NaN", "impute or drop")),
        Bad("frame words", frame.assign(b="x"), ("no numbers", "'x'", "encode")),
        Bad("frame dates", frame.assign(b=pandas.Timestamp("2020-01-01")), ("dtype", "ncode")),
    ]
    SERIES = [
        Bad("series nan", frame["a"].mask(frame["a"] > 0), ("NaN", "drop|needed")),
        Bad("series missing", missing["a"].mask(frame["a"] > 0), ("missing|NaN", "drop")),
    ]

VECTOR = [  # one number a row
    Bad("nan", np.where(Y > 0, np.nan, Y), ("NaN", "drop|finite")),
    Bad("infinity", np.where(Y > 0, np.inf, Y), ("infinity", "drop|finite")),
    Bad("short", Y[:5], (r"5 entries|\(5,\)", "12")),
    Bad("empty", [], (r"0 entries|\(0,\)", "12")),
    Bad("two columns", np.stack([Y, Y], 1), (r"shape \(12, 2\)", "needed|12")),
    Bad("a number", 1.0, (r"shape \(\)", "12")),
    Bad("complex", Y + 0j, ("complex128", "real numbers are needed")),
    Bad("masked", np.ma.masked_array(Y, Y > 0), ("masked", "impute or drop")),
    Bad("sparse", sp.csr_matrix(Y), ("sparse", "dense")),
    Bad("dates", np.full(N, np.datetime64("2020-01-01")), ("datetime64", "needed")),
    Bad("ragged", [[1.0], [2.0, 3.0]], ("not an array of numbers",)),
    Bad("things", np.array([object()] * N), ("no numbers", "encode")),
    *SERIES,
]
NOTHING = Bad("nothing", None, ("None|missing", "needed|give"))
WORDS = Bad("words", np.where(Y > 0, "yes", "no"), ("'no'|dtype", "needed"))

LABELS = [
    *VECTOR, NOTHING, WORDS,
    Bad("digits as words", np.where(Y > 0, "1", "-1"), ("'-1'", "needed")),
    Bad("one class", np.ones(N), ("only one class", "needs both")),
    Bad("0 and 1", (Y + 1) / 2, ("labels 0, 1", r"np\.where")),
    Bad("truth values", Y > 0, ("labels 0, 1", r"np\.where")),
    Bad("three classes", np.arange(N) % 3, ("labels 0, 1, 2", r"np\.where")),
]
TARGETS = [*VECTOR, NOTHING, WORDS]
WEIGHTS = [
    *VECTOR, WORDS,
    Bad("negative", -np.ones(N), ("negative", ">= 0")),
    Bad("all zero", np.zeros(N), ("zero everywhere",)),
]
CLASSES = [
    Bad("nan", np.where(Y > 0, np.nan, Y), ("NaN", "drop")),
    Bad("nothing", None, ("missing", "give")),
    Bad("short", Y[:5], (r"\(5,\)", r"\(12,\)")),
    Bad("one class", np.ones(N), ("only one class",)),
    Bad("all different", np.arange(N), ("two",)),
    Bad("two columns", np.stack([Y, Y], 1), (r"\(12, 2\)", r"\(12,\)")),
    Bad("unordered", np.array([1, "a"] * 6, dtype=object), ("order", "use numbers or words")),
    Bad("with None", np.array([1, None] * 6, dtype=object), ("missing", "drop")),
    Bad("masked", np.ma.masked_array(Y, Y > 0), ("masked", "needed")),
    Bad("sparse", sp.csr_matrix(Y), ("sparse", "needed")),
]

NO_NUMBER = [
    Bad("words", "a", ("'a'", "needed")),
    Bad("digits", "2", ("'2'", "needed")),
    Bad("a list", [1.0, 2.0], (r"\[1\.0, 2\.0\]", "needed")),
    Bad("an array", np.array([1.0]), (r"array\(\[1\.\]\)", "needed")),
    Bad("a truth value", True, ("True", "needed")),
    Bad("complex", 1j, ("1j", "needed")),
    Bad("a dictionary", {}, ("{}", "needed")),
]
NOT_FINITE = [
    Bad("nan", np.nan, ("nan", "needed")),
    Bad("infinity", np.inf, ("inf", "needed")),
]
OPTIONAL_POSITIVE = [
    *NO_NUMBER, *NOT_FINITE,
    Bad("zero", 0, ("0", "needed")),
    Bad("negative", -1.5, (r"-1\.5", "needed")),
]
POSITIVE = [*OPTIONAL_POSITIVE, NOTHING]
LIMIT = [bad for bad in OPTIONAL_POSITIVE if bad.name != "infinity"]
NOT_NEGATIVE = [Bad("negative", -1.5, (r"-1\.5", "needed")), *NO_NUMBER, *NOT_FINITE, NOTHING]
TOLERANCE = [*POSITIVE, Bad("one", 1.0, (r"1\.0", "between 0 and 1"))]
TOLERANCE_OF_PROOF = POSITIVE
WHOLE = [
    Bad("zero", 0, ("0", "needed")),
    Bad("negative", -1, ("-1", "needed")),
    Bad("a fraction", 1.5, (r"1\.5", "needed")),
    *[bad for bad in NO_NUMBER if bad.name != "digits"], *NOT_FINITE,
]
COUNT = [
    Bad("negative", -1, ("-1", "whole number")),
    Bad("a fraction", 1.5, (r"1\.5", "whole number")),
    *[Bad(bad.name, bad.value, (bad.words[0], "whole number")) for bad in NO_NUMBER], NOTHING,
]
COUNT = [b if b is not NOTHING else Bad("nothing", None, ("None", "whole number")) for b in COUNT]
FLAG = [
    Bad("nothing", None, ("None", "True or False")),
    Bad("words", "yes", ("'yes'", "True or False")),
    Bad("two", 2, ("2", "True or False")),
    Bad("an array", np.ones(2), ("array", "True or False")),
]
NAME = [
    Bad("unknown", "nonsense", ("'nonsense'", "choose one of|needs"), UnknownName),
    Bad("nothing", None, ("None", "choose one of|needed")),
    Bad("a number", 3, ("3", "choose one of|needed")),
    Bad("a list", ["hinge"], (r"\['hinge'\]", "choose one of|needed")),
    Bad("an array", np.ones(2), (r"array\(\[1\., 1\.\]\)", "choose one of|needed")),
]
UNKNOWN_INSIDE = Bad("unknown inside", ("gap", "hinge"), ("'hinge'", "choose one of"), UnknownName)
OPTIONAL_NAME = [bad for bad in NAME if bad.name != "nothing"]
GRID = [
    Bad("zero", [1.0, 0.0], ("0", "positive")),
    Bad("negative", [1.0, -2.0], ("-2", "positive")),
    Bad("nan", [1.0, np.nan], ("NaN", "finite")),
    Bad("infinity", [np.inf], ("infinity", "finite")),
    Bad("empty", [], (r"\(0,\)", "non-empty")),
    Bad("a number", 1.0, (r"\(\)", "non-empty")),
    Bad("two axes", [[1.0]], (r"\(1, 1\)", "non-empty")),
    Bad("words", ["a"], ("dtype <U1", "needed")),
    Bad("complex", [1j], ("complex128", "needed")),
    NOTHING,
]
FREE_GRID = [bad for bad in GRID if bad.name not in ("zero", "negative")]

SOMETHING_ELSE = [
    Bad("nothing", None, ("NoneType", "needed|is for")),
    Bad("words", "abc", ("str", "needed|is for")),
    Bad("a number", 3, ("int", "needed|is for")),
    Bad("an array", np.ones(3), ("ndarray", "needed|is for")),
    Bad("a class", dict, ("type", "needed|is for")),
]
OPTIONAL_THING = SOMETHING_ELSE[1:]

FILE = [
    Bad("nothing", None, ("None", "name of a file")),
    Bad("a number", 3, ("3", "name of a file")),
    Bad("no such folder", "no/such/folder/x.npz", ("folder|not a file", "not exist|name one")),
    Bad("a folder", str(Path(tempfile.gettempdir())), ("folder|readable", "name")),
]
OPTIONAL_FILE = FILE[1:]
MAPPING = [
    Bad("words", "gamma", ("'gamma'", "dictionary")),
    Bad("a number", 3, ("3", "dictionary")),
    Bad("unknown", {"width": 1.0}, ("width", "takes")),
    Bad("negative", {"gamma": -1.0}, (r"`gamma`.*-1\.0", "positive")),
    Bad("words inside", {"gamma": "big"}, ("`gamma`.*'big'", "needed")),
]


def point(size: int) -> list[Bad]:
    """A vector of `size` that takes part in arithmetic and need not be finite."""
    return [
        Bad("long", np.zeros(size + 1), (rf"\({size + 1},\)", rf"\({size},\)")),
        Bad("short", np.zeros(size - 1), (rf"\({size - 1},\)", rf"\({size},\)")),
        Bad("a row", np.zeros((1, size)), (rf"\(1, {size}\)", rf"\({size},\)")),
        Bad("words", "abc", ("dtype <U3", "needed")),
        Bad("nothing", None, ("None", "needed")),
        Bad("complex", np.zeros(size) + 1j, ("complex128", "needed")),
        Bad("masked", np.ma.masked_array(np.zeros(size), [True] * size), ("masked", "drop")),
        Bad("sparse", sp.csr_matrix(np.zeros(size)), ("sparse", "dense")),
    ]


def finite_point(size: int) -> list[Bad]:
    """The same where NaN is refused as well."""
    return [
        *point(size),
        Bad("nan", np.full(size, np.nan), ("NaN|finite", "finite")),
        Bad("infinity", np.full(size, np.inf), ("infinity|finite", "finite")),
    ]


def index(columns: int) -> list[Bad]:
    """Rows of `columns` indices of points."""
    low = np.zeros((2, columns), dtype=int)
    return [
        Bad("one axis", [0, 1, 2], (r"\(3,\)", f"{columns} indices")),
        Bad("too wide", np.zeros((2, columns + 1), dtype=int), ("shape", f"{columns} indices")),
        Bad("empty", np.zeros((0, columns), dtype=int), ("shape", "at least one row")),
        Bad("fractions", low + 0.5, ("float64", "whole numbers")),
        Bad("beyond", low + N, ("12", "rows 0 to 11")),
        Bad("below", low - 1, ("-1", "rows 0 to 11")),
        Bad("words", "abc", ("<U3", "needed")),
        Bad("ragged", [[0, 1], [2]], ("not an array",)),
    ]
