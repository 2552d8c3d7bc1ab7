"""The ``cvxscreen`` command: its arguments, and what each of its words does.

Models are handed on as files (`Fitted`); their coefficients are those of the data as they are in
the file, whatever was standardised before. ``cvxscreen warmup`` sends small problems through every
engine, so that what is ever compiled is compiled in advance: code is kept on disk next to the
package (or where ``NUMBA_CACHE_DIR`` says), once a machine.

SIGTERM is heard as Ctrl-C, so that a command that is told to end keeps what is finished.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from math import inf
from pathlib import Path
from time import process_time
from types import FrameType
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from cvxscreen import plots
from cvxscreen._support.compiled import ANNOUNCEMENT
from cvxscreen._support.files import written_whole
from cvxscreen._support.immutable import Immutable
from cvxscreen._support.limits import TIME, Progress
from cvxscreen._support.tables import table
from cvxscreen._support.validation import file_path
from cvxscreen.api import solve
from cvxscreen.certificates.many import certify_many
from cvxscreen.core.problem import Problem
from cvxscreen.data_changes.bootstrap import Replicates, counts
from cvxscreen.data_changes.refits import PATHS, left_out_of, row_solvers
from cvxscreen.datasets import heavy_tailed_regression, sparse_text_like, two_gaussians
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import CvxscreenError, InvalidInput, MissingDependency
from cvxscreen.models.files import Table, kind_of, open_data, read_table, two_classes
from cvxscreen.models.linear import regression, sparse_svm, svm
from cvxscreen.models.metric import factor_of, metric_of, rtlm, triplets
from cvxscreen.models.multitask import raso
from cvxscreen.models.samples import CLASSIFICATION, REGRESSION
from cvxscreen.paths.path import Path as SolutionPath, load_path, path
from cvxscreen.solvers import (
    dual_active_set,
    dual_coordinate_descent,
    dual_pivots,
    truncated_newton,
)
from cvxscreen.solvers.compiled_path.segments import compile_now
from cvxscreen.solvers.lambda_max import usual_lambda
from cvxscreen.solvers.registry import named_solver

Array = NDArray[np.float64]


@contextmanager
def terminable() -> Iterator[list[int]]:
    """Raise KeyboardInterrupt on SIGTERM inside the block, and list the signals that came.

    The handler before is put back at the end. Only the main thread of a process receives signals;
    in any other the block is left as it is.
    """
    received: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        received.append(number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield received
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


EXIT_OK, EXIT_DISAGREES, EXIT_ERROR, EXIT_TIME = 0, 1, 2, 3
EXIT_INTERRUPTED, EXIT_TERMINATED = 130, 143


def _remark(args: argparse.Namespace, text: str) -> None:
    """Something a person should know, on standard error."""
    if not (args.quiet or args.json):
        print(text, file=sys.stderr)


def _data(args: argparse.Namespace) -> Table:
    """X and y: in memory, or in chunks where that is asked for or there is no other way."""
    stream, cache = getattr(args, "stream", False), getattr(args, "cache", None)
    place = Path(args.data)
    if stream or cache or place.is_dir() or place.suffix == ".zarr":
        return Table(*open_data(place, args.target, cache=cache))
    found = read_table(args.data, args.target)
    if found.remark:
        _remark(args, f"{place.name}: read with {found.remark}")
    return found


def _standardised(X: Any, *, shifted: bool) -> tuple[Any, Array, Array]:
    """``(X - shift) / scale`` with shift and scale; sparse data are not shifted.

    An intercept takes up the shift; without one (`shifted` false) zero stays where it is.

    Raises
    ------
    InvalidInput
        For data in chunks.
    """
    if sp.issparse(X):
        square = X.multiply(X).mean(axis=0)
        spread = np.sqrt(np.maximum(np.asarray(square - np.square(X.mean(axis=0))).ravel(), 0.0))
        scale = np.where(spread > 0, spread, 1.0)
        return sp.csr_matrix(X @ sp.diags_array(1.0 / scale)), np.zeros(len(scale)), scale
    if not isinstance(X, np.ndarray):
        raise InvalidInput("`--standardize` needs the data in memory; scale chunks beforehand.")
    spread, shift = X.std(axis=0), X.mean(axis=0) * shifted
    scale = np.where(spread > 0, spread, 1.0)
    return (X - shift) / scale, shift, scale


def _problem(
    args: argparse.Namespace, C: float, X: Any, y: Any
) -> tuple[Problem, Any, tuple[str, ...]]:
    """The problem, its targets as numbers, and the classes at -1 and +1."""
    params = parse_kernel_params(args.kernel_params)
    if params and args.kernel is None:
        raise InvalidInput("`--kernel-params` needs `--kernel`.")
    shared = {
        "C": C, "loss": args.loss, "gamma": args.gamma, "intercept": args.intercept,
        "kernel": args.kernel, "kernel_params": params or None,
    }
    size = f"{Path(args.data).name}: {X.shape[0]:,} rows, {X.shape[1]:,} features"
    if args.loss in CLASSIFICATION:
        y, which = two_classes(y, args.positive)
        _remark(args, f"{size}; {which}")
        above, below = (word.split(" is ", 1)[1] for word in which.split(", -1", 1))
        return svm(X, y, **shared), y, (below, above)
    if args.positive is not None:
        raise InvalidInput(f"`--positive` is for classes; `--loss {args.loss}` is for regression.")
    if y.dtype.kind in "US":
        raise InvalidInput(
            f"the target column holds words ({str(y[0])!r}, ...); `--loss {args.loss}` needs "
            "numbers."
        )
    _remark(args, f"{size}; target from {y.min():g} to {y.max():g}")
    problem = regression(X, y, epsilon=args.epsilon, tau=args.tau, delta=args.delta, **shared)
    return problem, y, ()


def _scored(args: argparse.Namespace, grid: Array, X: Any, y: Any) -> Any:
    """Every value of C on data left out; the estimator that has found the best."""
    from cvxscreen.estimators import ScreenedRegressorCV, ScreenedSVCCV

    if args.cv < 2:
        raise InvalidInput(f"`--cv` is {args.cv}; at least 2 folds are needed.")
    shared: dict[str, Any] = {
        "cv": args.cv, "loss": args.loss, "gamma": args.gamma, "fit_intercept": args.intercept,
        "kernel": args.kernel or "linear", "mode": args.mode, "tol": args.tol,
        "kernel_params": parse_kernel_params(args.kernel_params) or None,
    }
    if args.loss in CLASSIFICATION:
        search: Any = ScreenedSVCCV(grid, **shared)
    else:
        search = ScreenedRegressorCV(
            grid, epsilon=args.epsilon, tau=args.tau, delta=args.delta, **shared
        )
    try:
        return search.fit(X, y)
    except CvxscreenError:
        raise
    except ValueError as refusal:  # scikit-learn's: more folds than rows, or than a class has
        raise InvalidInput(f"`--cv` is {args.cv}: {refusal}") from None


def _say(args: argparse.Namespace, text: object, record: Any) -> None:
    if args.json:
        print(json.dumps(record))
    elif not args.quiet:
        print(text)


def _demo(args: argparse.Namespace) -> int:
    if args.points < 1:
        raise InvalidInput(f"`--points` is {args.points}; at least 1 is needed.")
    picture, remark = None if args.no_plot else args.plot, ""
    if picture is not None:
        try:
            plots.writable(picture, "--plot")
        except MissingDependency as error:  # the table is worth it alone
            picture, remark = None, f"No picture: {error}"

    from cvxscreen.cli.demo import run_demo

    def show(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    result = run_demo(picture, args.points, None if args.quiet or args.json else show)
    _say(
        args, f"{result}\n{remark}".rstrip(),
        {"agrees": result.agrees, "rows": [row.record() for row in result.rows]},
    )
    return EXIT_OK if result.agrees else EXIT_DISAGREES


def _record(found: SolutionPath) -> list[dict[str, Any]]:
    plain = ("value", "objective", "relative_gap", "status", "kept", "refuted", "seconds")
    rows = [{name: getattr(point, name) for name in plain} for point in found.points]
    # JSON has no word for a gap that is infinite.
    return [{k: None if v in (inf, -inf) or v != v else v for k, v in r.items()} for r in rows]


def _path(args: argparse.Namespace) -> int:
    grid = parse_grid(args.C)
    if args.out is not None and not args.out.parent.is_dir():
        raise InvalidInput(f"`--out`: the folder {str(args.out.parent)!r} does not exist.")
    if args.out is not None and args.out.suffix != ".npz":
        raise InvalidInput(f"`--out` is {args.out.name!r}; its name must end in .npz.")
    if args.plot is not None:
        plots.writable(args.plot, "--plot")  # a name that will not do is refused before the work
    if args.coef is not None:
        if args.coef.suffix.lower() not in FORMATS or not args.coef.parent.is_dir():
            raise InvalidInput(
                f"`--coef` is {str(args.coef)!r}; a .csv or .json file in a folder that exists."
            )
        if args.kernel is not None:
            raise InvalidInput("`--coef`: a kernel machine has no coefficients; leave out one.")
    data = _data(args)
    X, d = data.X, data.X.shape[1]
    shift, scale = np.zeros(d), np.ones(d)
    if args.standardize:
        X, shift, scale = _standardised(X, shifted=args.intercept)
    problem, y, classes = _problem(args, float(grid[0]), X, data.y)
    best, scores = None, dict[float, dict[str, Any]]()
    if args.cv is not None:
        scored = _scored(args, grid, X, y)
        best = float(scored.C_)
        means, spread = scored.scores_.mean(axis=0), scored.scores_.std(axis=0)
        rows = [
            (float(f"{C:.6g}"), float(m), float(s), "best" if best == C else "")
            for C, m, s in zip(scored.Cs_, means, spread, strict=True)
        ]
        title = f"Scores on the data left out, {args.cv} folds"
        _remark(args, table(("C", "mean score", "spread", ""), rows, title=title))
        scores = {
            float(C): {"mean_score": float(m), "spread": float(s), "best": bool(best == C)}
            for C, m, s in zip(scored.Cs_, means, spread, strict=True)
        }
    found = path(
        problem, values=grid, tol=args.tol, mode=args.mode,
        solver=args.solver, progress=not (args.quiet or args.json), checkpoint=args.checkpoint,
        time_limit=args.time_limit, max_iter=args.max_iter, threads=args.threads,
    )
    # First, lest a file that cannot be written takes it along.
    points = [point | scores.get(point["value"], {}) for point in _record(found)]
    _say(args, found.table(), points)
    if args.out is not None:
        found.save(args.out)
    if args.coef is not None:
        fitted(found, problem, data, args.loss, classes, shift, scale, best).save(args.coef)
    if args.plot is not None and len(found.points):
        plots.save(found.plot(), args.plot)
    if not found.finished:
        if args.checkpoint is not None:
            word = found.stopped.replace("_", " ")
            _remark(args, f"{word}; the same call goes on from {args.checkpoint}")
        return EXIT_TIME if found.stopped == TIME else EXIT_INTERRUPTED
    short = sum(p.status != "optimal" for p in found.points)
    if short:
        worst = max(p.relative_gap for p in found.points)
        print(
            f"cvxscreen path: {short} of {len(found.points)} points miss the tolerance "
            f"{args.tol:g}, the largest relative gap is {worst:.1e}", file=sys.stderr,
        )
    return EXIT_DISAGREES if short else EXIT_OK


def _verify(args: argparse.Namespace) -> int:
    grid = parse_grid(args.C)
    if len(grid) != 1:
        raise InvalidInput(f"`--C` is {args.C!r}; `verify` takes one value.")
    data = _data(args)
    problem, _, _ = _problem(args, float(grid[0]), data.X, data.y)
    from cvxscreen.cvxpy_plugin.inspection import verify

    named_solver(args.solver, problem)  # refuses a name that CVXPY does not know
    result = verify(problem.to_cvxpy(), solver=args.solver)
    _say(args, result, {"agrees": result.agrees, "value": list(result.value)})
    return EXIT_OK if result.agrees else EXIT_DISAGREES


def _triplets(args: argparse.Namespace) -> int:
    if args.out is not None and not (args.out.suffix == ".npz" and args.out.parent.is_dir()):
        raise InvalidInput(f"`--out` is {str(args.out)!r}; a .npz file in a folder that exists.")
    data = read_table(args.data, args.target)
    learned = learn_metrics(
        data.X, data.y, args.k, None if args.lam is None else parse_grid(args.lam, "--lam"),
        gamma=args.gamma, diagonal=args.diagonal, standardise=not args.raw, tol=args.tol,
    )
    _say(args, learned, _record(learned.path))
    if args.out is not None and len(learned.path.points):
        learned.save(args.out)
    if not learned.path.finished:
        return EXIT_INTERRUPTED
    return EXIT_OK if all(p.status == "optimal" for p in learned.path.points) else EXIT_DISAGREES


def _predict(args: argparse.Namespace) -> int:
    if args.out is not None and not args.out.parent.is_dir():
        raise InvalidInput(f"`--out`: the folder {str(args.out.parent)!r} does not exist.")
    C = None
    if args.C is not None:
        grid = parse_grid(args.C)
        if len(grid) != 1:
            raise InvalidInput(f"`--C` is {args.C!r}; `predict` takes one value.")
        C = float(grid[0])
    model = load_fitted(args.model)
    scores, said, used = model.predict(rows_for(model, args.data, args.target), C)
    _remark(args, f"{len(scores):,} rows, the model of C = {used:g}")
    lines = ["prediction,score"]
    pairs = zip(said.tolist(), scores.tolist(), strict=True)
    lines += [f"{word},{score!r}" for word, score in pairs]
    if not model.classes:
        lines = ["prediction", *(repr(score) for score in scores.tolist())]
    if args.out is not None:
        with written_whole(args.out) as stream:
            stream.write(("\n".join(lines) + "\n").encode("utf-8"))
    if args.out is None or args.json:
        _say(args, "\n".join(lines), {"C": used, "prediction": said.tolist(),
                                      "score": scores.tolist()})
    return EXIT_OK


def _info(args: argparse.Namespace) -> int:
    found = load_path(args.file)
    _say(args, found.table(), _record(found))
    return EXIT_OK


def _warmup(args: argparse.Namespace) -> int:
    seconds = dict(warm_up(args.only, shown=not (args.quiet or args.json)))
    _say(args, f"compiled, in {sum(seconds.values()):.0f} CPU seconds", {"seconds": seconds})
    return EXIT_OK


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    arguments = parser()
    args = arguments.parse_args(argv)
    if args.command is None:
        arguments.print_help()
        return EXIT_OK
    commands = {
        "demo": _demo, "path": _path, "verify": _verify, "triplets": _triplets,
        "predict": _predict, "info": _info, "warmup": _warmup,
    }
    ANNOUNCEMENT.silent |= args.quiet or args.json
    with terminable() as received:
        try:
            code = commands[args.command](args)
            sys.stdout.flush()
        except BrokenPipeError:  # as from `| head`; the last flush must not fail, too
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = EXIT_OK
        except (CvxscreenError, OSError) as error:
            print(f"cvxscreen {args.command}: {error}", file=sys.stderr)
            return EXIT_ERROR
        except KeyboardInterrupt:
            code = EXIT_INTERRUPTED
            print(f"cvxscreen {args.command}: interrupted", file=sys.stderr)
    return EXIT_TERMINATED if received and code == EXIT_INTERRUPTED else code


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
    along.add_argument(
        "--threads", type=int, metavar="N",
        help="threads that share passes over large data, -1: one for each core",
    )
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
    warmup.add_argument(
        "--only", nargs="+", metavar="KIND", choices=tuple(JOBS),
        help=f"some of the kinds of problems: {', '.join(JOBS)} (two processes, with half of them "
        "each, take half the time)",
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


# -- models in files -------------------------------------------------------------------------------


FORMATS = (".csv", ".json")
"""Of the files that `path --coef` writes."""


@dataclass(frozen=True)
class Fitted:
    """Coefficients for every value of C.

    Attributes
    ----------
    loss : str
    features : tuple of str
        "x1", "x2", ... where the file gave no names.
    named : bool
        Whether the file gave names.
    classes : tuple of str
        The one at -1 and the one at +1; empty for regression.
    C : tuple of float
    coefficients : tuple of tuple of float
        One row a value of C.
    intercepts, relative_gaps : tuple of float
    best_C : float or None
        Chosen by cross-validation.
    """

    loss: str
    features: tuple[str, ...]
    named: bool
    classes: tuple[str, ...]
    C: tuple[float, ...]
    coefficients: tuple[tuple[float, ...], ...]
    intercepts: tuple[float, ...]
    relative_gaps: tuple[float, ...]
    best_C: float | None = None

    def save(self, file: Path) -> None:
        """Write JSON (all of it) or CSV (a line a feature and a column a value of C)."""
        text = json.dumps({"cvxscreen": "linear model", **asdict(self)}, indent=1) + "\n"
        if file.suffix.lower() == ".csv":
            lines = io.StringIO()
            writer = csv.writer(lines, lineterminator="\n")
            writer.writerow(["feature", *(f"C={C:.6g}" for C in self.C)])
            for j, name in enumerate(self.features):
                writer.writerow([name, *(repr(row[j]) for row in self.coefficients)])
            writer.writerow(["(intercept)", *map(repr, self.intercepts)])
            text = lines.getvalue()
        with written_whole(file) as stream:
            stream.write(text.encode("utf-8"))

    def predict(self, X: Any, C: float | None) -> tuple[Array, NDArray[Any], float]:
        """Scores ``<w, x> + b``, what they predict, and the value of C of the model."""
        chosen = self.C[-1] if self.best_C is None else self.best_C
        wanted = chosen if C is None else C
        at = int(np.argmin(np.abs(np.log(np.array(self.C)) - np.log(wanted))))
        if not np.isclose(self.C[at], wanted, rtol=1e-5):
            known = ", ".join(f"{value:.6g}" for value in self.C)
            raise InvalidInput(f"`--C` is {wanted:g}; the model has {known}.")
        scores = np.asarray(X @ np.array(self.coefficients[at])) + self.intercepts[at]
        if not self.classes:
            return scores, scores, self.C[at]
        return scores, np.array(self.classes)[(scores > 0).astype(int)], self.C[at]


def fitted(
    found: SolutionPath, problem: Problem, table: Table, loss: str, classes: tuple[str, ...],
    shift: Array, scale: Array, best_C: float | None,
) -> Fitted:
    """The models of a path over data ``(X - shift) / scale``, for X itself."""
    d = len(scale)
    points = [point for point in found.points if point.x.size]
    w = np.array([point.x[:d] / scale for point in points]).reshape(len(points), d)
    b = np.zeros(len(points))
    if problem.d > d:  # an unpenalised intercept
        b = np.array([point.x[-1] - problem.design.offset(point.x) for point in points])
    b = b - w @ shift
    names = table.features or tuple(f"x{j + 1}" for j in range(d))
    return Fitted(
        loss, names, bool(table.features), classes, tuple(float(p.value) for p in points),
        tuple(map(tuple, w.tolist())), tuple(b.tolist()),
        tuple(float(p.relative_gap) for p in points), best_C,
    )


def load_fitted(file: Path) -> Fitted:
    """What `Fitted.save` wrote as JSON.

    Raises
    ------
    InvalidInput
        If the file is missing or holds something else.
    """
    try:
        held = json.loads(file.read_text("utf-8"))
        if held.pop("cvxscreen") != "linear model":
            raise ValueError
        tuples: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in held.items()
        }
        found = Fitted(**tuples)
        shape = np.array(found.coefficients, dtype=float).shape
        if shape != (len(found.C), len(found.features)):
            raise ValueError
    except OSError as error:
        raise InvalidInput(f"`MODEL`: {str(file)!r} cannot be read ({error.strerror}).") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidInput(
            f"`MODEL`: {str(file)!r} holds no model; name a .json that `path --coef` wrote."
        ) from None
    return found


def rows_for(model: Fitted, data: str, target: str | None) -> Any:
    """The features of a data file in the order of the model.

    Raises
    ------
    InvalidInput
        If a feature is missing, or there are more or fewer.
    """
    d = len(model.features)
    columns = kind_of(Path(data)) in (".csv", ".tsv", ".parquet") and target is None
    X = read_table(data, target, model.features if columns else None).X
    if X.shape[1] < d and not isinstance(X, np.ndarray):  # svmlight leaves out columns of zeros
        X.resize((X.shape[0], d))
    if X.shape[1] != d:
        raise InvalidInput(f"`DATA`: {Path(data).name} has {X.shape[1]} features, the model {d}.")
    return X


class LearnedMetrics(Immutable):
    """One metric for each lambda.

    Attributes
    ----------
    problem : Problem
    path : cvxscreen.Path
    scale : array, shape (d,)
        What every feature was divided by before; distances of raw data are those of ``x / scale``.
    """

    problem: Problem
    path: SolutionPath
    scale: Array

    def save(self, file: Path) -> None:
        """Write ``lam``, ``metric``, ``components`` (of the last lambda), ``scale``, the gaps.

        Whole or not at all.
        """
        points = self.path.points
        with written_whole(file_path("file", file)) as stream:
            np.savez(
                stream,
                lam=self.path.values,
                metric=np.array([metric_of(self.problem, point.x) for point in points]),
                components=factor_of(self.problem, points[-1].x),
                scale=self.scale,
                relative_gap=np.array([point.relative_gap for point in points]),
            )

    def __str__(self) -> str:
        return self.path.table()


def learn_metrics(
    X: Any,
    y: ArrayLike,
    k: str,
    values: Array | None,
    *,
    gamma: float,
    diagonal: bool,
    standardise: bool,
    tol: float,
) -> LearnedMetrics:
    """Metrics along `values` of lambda; a hundredth of the largest that matters when None.

    Raises
    ------
    InvalidInput
        For a `k` that is neither a number nor "all", or data without triplets.
    """
    if not (k == "all" or k.isdecimal()):
        raise InvalidInput(f"`--k` is {k!r}; a number of neighbours or 'all' is needed.")
    points = Rows(X).dense()
    scale = np.ones(points.shape[1])
    if standardise:
        spread = points.std(axis=0)
        scale = np.where(spread > 0, spread, 1.0)
    points = points / scale
    chosen = triplets(points, y, "all" if k == "all" else int(k))
    problem = rtlm(points, chosen, 1.0, gamma=gamma, diagonal=diagonal)
    if values is None:
        values = np.array([usual_lambda(problem)])
    return LearnedMetrics(problem, path(problem, over="lam", values=values, tol=tol), scale)


# -- everything compiled in advance ----------------------------------------------------------------


MANY = 12_000
"""Terms of the largest problem of `JOBS`: certificates of many terms have a loop of their own."""


def _dense_rows() -> None:
    """The compiled path and its certificates, with and without an intercept."""
    compile_now()
    X, y = two_gaussians(600, 5)
    for _ in range(3):  # one call buys one part
        solve(svm(X, y, intercept=True))
    grid = np.geomspace(0.01, 10.0, 6)
    for mode in ("certified", "safe"):
        path(svm(X, y), values=grid, mode=mode)
    solve(regression(*heavy_tailed_regression(600, 5), loss="huber", intercept=True))


def _many_terms() -> None:
    """The ordinary loop over more terms than numpy is quick with."""
    solve(svm(*two_gaussians(MANY, 3)), mode="safe")


def _sparse_rows() -> None:
    """The dual methods, cold and along a path."""
    compile_now(dual_coordinate_descent.CLOCK, dual_active_set.CLOCK, dual_pivots.CLOCK)
    compile_now(truncated_newton.CLOCK)
    X, y = sparse_text_like(600, 400, 0.02)
    for loss in ("hinge", "squared_hinge"):
        for intercept in (False, True):
            found = solve(svm(X, y, loss=loss, intercept=intercept))
            certify_many(found.problem, [1.0], [found.x], [found.theta])
    path(svm(X, y), values=[0.1, 1.0, 10.0])
    X, y = sparse_text_like(600, 200, 0.05)
    solve(svm(X, y, C=100.0, loss="squared_hinge"))  # by Newton's method from the beginning
    X, y = sparse_text_like(300, 100, 0.05)
    for intercept in (False, True):
        solve(svm(X, y, C=10.0, intercept=intercept), solver="dcd")  # ends by pivots


def _kernels() -> None:
    """A kernel machine, with and without an intercept, and small ones over one matrix."""
    X, y = two_gaussians(200, 3)
    for intercept in (False, True):
        problem = svm(X, y, kernel="rbf", intercept=intercept)
        for mode in ("certified", "safe"):
            solve(problem, mode=mode)


def _l1_terms() -> None:
    """Terms and features, dense and sparse."""
    for X, y in (two_gaussians(300, 40), sparse_text_like(300, 400, 0.02)):
        problem = sparse_svm(X, y, 0.05)
        for solver in ("auto", "sdca", "spdc"):
            solve(problem, solver=solver, tol=1e-3)


def _metrics() -> None:
    """Metrics from triplets, full and diagonal."""
    X, y = two_gaussians(60, 4)
    found = triplets(X, y, k=3)
    for diagonal in (False, True):
        solve(rtlm(X, found, 1.0, diagonal=diagonal), tol=1e-3)


def _tasks() -> None:
    """Tasks that share a subspace."""
    solve(raso([two_gaussians(60, 5, seed=k) for k in range(3)], h=2, alpha=1e-3, beta=1e-3),
          tol=1e-3)


def _many_weightings() -> None:
    """A block of bootstrap fits and one of terms left out, with and without an intercept."""
    compile_now(PATHS)
    for intercept in (False, True):
        X, y = heavy_tailed_regression(300, 3)
        fitted = solve(regression(X, y, intercept=intercept))
        Replicates(fitted, 1e-6).solve(counts(0, 0, len(y)))
        left_out_of(row_solvers(fitted, 1e-6), np.arange(8))


JOBS: dict[str, Callable[[], None]] = {
    "dense rows": _dense_rows,
    "many weightings": _many_weightings,
    "many terms": _many_terms,
    "sparse rows": _sparse_rows,
    "kernels": _kernels,
    "L1 terms": _l1_terms,
    "metric learning": _metrics,
    "multi-task": _tasks,
}
"""What is run, by the word that the progress line shows."""


def warm_up(
    only: Sequence[str] | None = None, *, shown: bool
) -> Iterator[tuple[str, float]]:
    """Run every job, or `only` these; after each its name and the CPU seconds it took."""
    jobs = {name: job for name, job in JOBS.items() if only is None or name in only}
    silent, ANNOUNCEMENT.silent = ANNOUNCEMENT.silent, True  # the progress line says it
    try:
        with Progress(len(jobs), "compiling", shown=shown) as bar:
            for name, job in jobs.items():
                began = process_time()
                job()
                bar.step(name)
                yield name, process_time() - began
    finally:
        ANNOUNCEMENT.silent = silent
