"""The ``cvxscreen`` command's arguments: their names, their help, and how they are read."""

from __future__ import annotations

import argparse
from importlib.metadata import PackageNotFoundError, version
from math import inf
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cvxscreen.errors import InvalidInput
from cvxscreen.models.samples import CLASSIFICATION, REGRESSION

EPILOG = """A model is fitted to a data file by minimising
  1/2 |w|^2 + C * sum of losses;
most losses are proven or predicted to sit on one of their linear pieces, only the others are
solved for, and the answer is certified on all of the data.

first steps:
  cvxscreen demo                                   see it work, no data needed
  cvxscreen path data.svm --C 1e-2:10:20           a hinge SVM at 20 values of C
  cvxscreen path house.csv --target price --loss quantile --tau 0.9 --intercept
  cvxscreen path data.svm.gz --C 1e-2:10:100 --out path.npz --plot path.png --checkpoint run.npz
  cvxscreen path iris.csv --positive setosa --kernel rbf --kernel-params gamma=0.5
  cvxscreen triplets data.csv --k 5 --out metric.npz
  cvxscreen path loans.csv --target status --intercept --standardize --cv 5 --coef model.json
  cvxscreen predict model.json new.csv
  cvxscreen verify data.csv --loss absolute --C 1 --solver SCS
  cvxscreen info path.npz --json

`cvxscreen COMMAND --help` lists what a command takes. Tables go to standard output, progress and
remarks to standard error; --quiet silences both, --json replaces the tables.

exit codes: 0 fine, 1 an answer disagrees or is not certified, 2 an error, 3 out of time,
130 interrupted (Ctrl-C), 143 terminated (SIGTERM); in the last three cases finished points are
shown and written all the same"""

PATH_TEXT = """Solve the model at every value of C, each from the one before.

Columns of the table: the share of terms proven on each kind of piece from the neighbouring solution
alone; `kept`, the terms left in the last reduced solve; `refuted`, predictions that the full data
took back; the certified relative gap."""

DATA_TEXT = """the data file:
  .npz       arrays X and y, or X_data, X_indices, X_indptr, X_shape (CSR) and y
  .npy       a matrix with the target in column --target
  .csv .tsv  (also .gz) with or without a header; commas, or semicolons or tabs, with these
             decimal commas too; the target column may hold names of classes
  .parquet   one file, read whole (through pyarrow)
  others     svmlight/libsvm text, also .gz and .bz2
and, in chunks that are read at every pass (as the files above are with `path --stream`):
  a folder   of .npz files with X and y, one chunk each
  .zarr      arrays X and y
  .parquet   a folder, or with --stream a file, with the target in column --target

Of two classes the larger (or later in the alphabet) becomes +1; --positive names another."""


TRIPLETS_TEXT = """Learn a Mahalanobis metric under which every point is nearer to its neighbours of
the same class than to those of others, by a margin; features are standardised first.

Without --lam it takes a hundredth of the value beyond which nothing changes; with several values it
walks along them, in the order given, and --out holds a metric for each."""


def parse_grid(text: str, name: str = "--C") -> NDArray[np.float64]:
    """``1e-2:10:100`` (geometric grid) or ``0.1,1,10`` or one number, of the option `name`."""
    try:
        if ":" in text:
            low, high, count = text.split(":")
            first, last, points = float(low), float(high), int(count)
            if not (0 < first < inf and 0 < last < inf and points > 0):
                raise ValueError
            return np.geomspace(first, last, points)
        values = np.array([float(part) for part in text.split(",")])
        if not (np.isfinite(values).all() and (values > 0).all()):
            raise ValueError
    except ValueError:
        raise InvalidInput(
            f"`{name}` is {text!r}; give one positive number, a list like 0.1,1,10 or a geometric "
            "grid like 1e-2:10:100."
        ) from None
    return values


def _version() -> str:
    try:
        return version("cvxscreen")
    except PackageNotFoundError:
        return "(not installed)"


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    top = argparse.ArgumentParser(
        prog="cvxscreen",
        description="Make a large regularised problem small without changing its answer.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {_version()}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")

    demo = commands.add_parser(
        "demo",
        help="what it gains: one problem by CVXPY alone, with screening, and built in",
        description="Solve a linear SVM on 50,000 samples by CVXPY alone, by CVXPY with screening "
        "and by the built-in solver, compare times and optima, and draw them.",
    )
    demo.add_argument("--points", type=int, default=1, help="values of C (default 1)")
    demo.add_argument(
        "--plot", type=Path, default=Path("cvxscreen-demo.png"),
        help="file for the picture (default cvxscreen-demo.png)",
    )
    demo.add_argument("--no-plot", action="store_true", help="draw no picture")

    raw = argparse.RawDescriptionHelpFormatter
    along = commands.add_parser(
        "path", help="solutions along C, certified, from a data file", description=PATH_TEXT,
        epilog=DATA_TEXT, formatter_class=raw,
    )
    _model_arguments(along)
    along.add_argument(
        "--C", default="1e-2:10:20", metavar="GRID",
        help="one value, a list 0.1,1,10 or a geometric grid FIRST:LAST:COUNT (default 1e-2:10:20)",
    )
    along.add_argument("--tol", type=float, default=1e-6, help="relative gap (default 1e-6)")
    along.add_argument(
        "--mode", choices=("certified", "safe"), default="certified",
        help="fix terms by prediction and certify (default), or by theorems only",
    )
    along.add_argument("--solver", default="auto", help="built in (auto), or a solver of CVXPY")
    along.add_argument(
        "--stream", action="store_true", help="read DATA in chunks at every pass, never whole"
    )
    along.add_argument(
        "--cache", type=Path, metavar="FOLDER",
        help="the same from a copy as .npz chunks in this empty folder (quicker than text)",
    )
    along.add_argument("--out", type=Path, help="file (.npz) for the solutions")
    along.add_argument(
        "--standardize", action="store_true",
        help="divide every feature by its standard deviation (dense data with --intercept: "
        "after taking its mean)",
    )
    along.add_argument(
        "--cv", type=int, metavar="FOLDS", help="score every C on data left out, first",
    )
    along.add_argument(
        "--coef", type=Path, metavar="FILE",
        help="file (.csv or .json) for the coefficients, by name, of the data as they are; "
        "`predict` reads the .json",
    )
    along.add_argument(
        "--time-limit", type=float, metavar="SECONDS", help="stop after so long, with what is done"
    )
    along.add_argument("--max-iter", type=int, metavar="N", help="iterations a point at most")
    along.add_argument("--plot", type=Path, help="file for a picture of the rejection rates")
    along.add_argument(
        "--checkpoint", type=Path,
        help="file (.npz) that keeps the finished points; the same call again goes on from there",
    )

    check = commands.add_parser(
        "verify", help="full and reduced problem side by side",
        description="Solve the full problem and the screened one with the same solver and compare "
        "value, primal and dual solutions.", epilog=DATA_TEXT, formatter_class=raw,
    )
    _model_arguments(check)
    check.add_argument("--C", default="1", help="one value of C (default 1)")
    check.add_argument("--solver", default="CLARABEL", help="a solver of CVXPY (default CLARABEL)")

    metric = commands.add_parser(
        "triplets", help="a metric learned from triplets of a data file",
        description=TRIPLETS_TEXT, epilog=DATA_TEXT, formatter_class=raw,
    )
    metric.add_argument("data", metavar="DATA", help="the data file, see below")
    metric.add_argument("--target", help="target column of a .csv or .npy (default: the last)")
    metric.add_argument("--k", default="5", help="neighbours of either kind, or all (default 5)")
    metric.add_argument("--lam", metavar="GRID", help="lambda: one value, a list or a grid")
    metric.add_argument("--gamma", type=float, default=0.05, help="corner width (default 0.05)")
    metric.add_argument("--diagonal", action="store_true", help="weights of the features only")
    metric.add_argument("--raw", action="store_true", help="do not standardise the features")
    metric.add_argument("--tol", type=float, default=1e-6, help="relative gap (default 1e-6)")
    metric.add_argument("--out", type=Path, help="file (.npz) for lam, metric, components, scale")

    guess = commands.add_parser(
        "predict", help="predictions of a model that `path --coef model.json` wrote",
        description="Print (or write) a line for each row: the prediction and the score. Columns "
        "are found by name where both files have names.", epilog=DATA_TEXT, formatter_class=raw,
    )
    guess.add_argument("model", type=Path, metavar="MODEL", help="the .json file")
    guess.add_argument("data", metavar="DATA", help="the data file; a target is not needed")
    guess.add_argument("--target", help="a column to leave out, where there are no names")
    guess.add_argument("--C", help="which model (default: the one chosen by --cv, else the last)")
    guess.add_argument("--out", type=Path, help="file (.csv) for the predictions")

    info = commands.add_parser(
        "info", help="the table of a path file",
        description="Print the table of a file written by `path --out` or `--checkpoint`.",
    )
    info.add_argument("file", type=Path, help="the .npz file")

    warmup = commands.add_parser(
        "warmup", help="compile in advance what is compiled when it first pays",
        description="Run small problems through every solver, so that what they compile lies on "
        "disk. Once a machine; NUMBA_CACHE_DIR says where, if not beside the package.",
    )

    for command in (demo, along, check, metric, guess, info, warmup):
        command.add_argument("--quiet", action="store_true", help="print nothing but errors")
        command.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return top


def _model_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("data", metavar="DATA", help="the data file, see below")
    command.add_argument(
        "--target", help="target column of a .csv or .npy, by name or number (default: the last)"
    )
    command.add_argument("--positive", metavar="CLASS", help="the class that becomes +1")
    command.add_argument(
        "--loss", choices=CLASSIFICATION + REGRESSION, default="hinge", metavar="LOSS",
        help=f"{', '.join(CLASSIFICATION)} (classes, the first is the default); "
        f"{', '.join(REGRESSION)} (regression)",
    )
    command.add_argument("--intercept", action="store_true", help="add an unpenalised intercept")
    for name, text in (
        ("gamma", "corner width of a smoothed loss (default 0.5)"),
        ("epsilon", "half-width of the insensitive zone (default 0.1)"),
        ("tau", "quantile level in (0, 1) (default 0.5)"),
        ("delta", "Huber's threshold (default 1)"),
    ):
        command.add_argument(f"--{name}", type=float, help=text)
    command.add_argument("--kernel", help="rbf, poly, linear, ...: work with a kernel")
    command.add_argument(
        "--kernel-params", default="", metavar="NAME=VALUE,...", help="gamma, coef0, degree"
    )


def parse_kernel_params(text: str) -> dict[str, float]:
    """``gamma=0.5,degree=3`` as a dictionary."""
    try:
        pairs = [part.split("=") for part in text.split(",") if part]
        return {name.strip(): float(value) for name, value in pairs}
    except ValueError:
        raise InvalidInput(
            f"`--kernel-params` is {text!r}; give it like gamma=0.5,degree=3."
        ) from None
