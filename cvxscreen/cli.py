"""The ``cvxscreen`` command."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen import plots
from cvxscreen.demo import run_demo
from cvxscreen.errors import CvxscreenError, InvalidInput
from cvxscreen.models.files import read_data
from cvxscreen.models.loss_table import CLASSIFICATION, REGRESSION
from cvxscreen.models.regression import regression
from cvxscreen.models.svm import svm
from cvxscreen.path import Path as SolutionPath
from cvxscreen.path import load_path, path
from cvxscreen.problem import Problem
from cvxscreen.reducer.doors import verify

EXIT_OK, EXIT_DISAGREES, EXIT_ERROR, EXIT_INTERRUPTED = 0, 1, 2, 130

EPILOG = """examples:
  cvxscreen demo
  cvxscreen path data.svm --loss hinge --C 1e-2:10:100 --out path.npz --plot path.png
  cvxscreen path house.csv --target price --loss quantile --tau 0.9 --C 0.1:10:20 --intercept
  cvxscreen verify data.csv --loss absolute --C 1 --solver SCS
  cvxscreen info path.npz

exit codes: 0 fine, 1 an answer disagrees or is not certified, 2 an error, 130 interrupted"""


def parse_grid(text: str) -> NDArray[np.float64]:
    """``1e-2:10:100`` (geometric grid) or ``0.1,1,10`` or one number."""
    try:
        if ":" in text:
            low, high, count = text.split(":")
            first, last, points = float(low), float(high), int(count)
            if not (first > 0 and last > 0 and points > 0):
                raise ValueError
            return np.geomspace(first, last, points)
        values = np.array([float(part) for part in text.split(",")])
        if not (np.isfinite(values).all() and (values > 0).all()):
            raise ValueError
    except ValueError:
        raise InvalidInput(
            f"`--C` is {text!r}; give one positive number, a list like 0.1,1,10 or a geometric "
            "grid like 1e-2:10:100."
        ) from None
    return values


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    top = argparse.ArgumentParser(
        prog="cvxscreen",
        description="Make a large regularised problem small without changing its answer.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    demo = commands.add_parser(
        "demo",
        help="a C path on bundled data: CVXPY alone, CVXPY with screening, the built-in solver",
        description="Solve a hinge SVM along C on scikit-learn's bundled breast cancer data three "
        "ways, compare the optima, and draw the rejection rates.",
    )
    demo.add_argument("--points", type=int, default=15, help="values of C (default 15)")
    demo.add_argument(
        "--plot", type=Path, default=Path("cvxscreen-demo.png"),
        help="file for the picture (default cvxscreen-demo.png)",
    )
    demo.add_argument("--no-plot", action="store_true", help="draw no picture")

    along = commands.add_parser("path", help="solutions along C, certified, from a data file")
    _model_arguments(along)
    along.add_argument("--C", default="1e-2:10:20", help="grid, e.g. 1e-2:10:100 or 0.1,1,10")
    along.add_argument("--tol", type=float, default=1e-6, help="relative gap (default 1e-6)")
    along.add_argument("--mode", choices=("certified", "safe"), default="certified")
    along.add_argument("--out", type=Path, help="file (.npz) for the solutions")
    along.add_argument("--plot", type=Path, help="file for a picture of the rejection rates")
    along.add_argument("--checkpoint", type=Path, help="file (.npz) to resume from")

    check = commands.add_parser("verify", help="full and reduced problem side by side")
    _model_arguments(check)
    check.add_argument("--C", default="1", help="one value of C")
    check.add_argument("--solver", default="CLARABEL", help="a solver of CVXPY")

    info = commands.add_parser("info", help="the table of a path file")
    info.add_argument("file", type=Path)

    for command in (demo, along, check, info):
        command.add_argument("--quiet", action="store_true", help="print nothing but errors")
        command.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return top


def _model_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("data", metavar="DATA", help="svmlight (.gz, .bz2), .npz, .npy or .csv")
    command.add_argument("--target", help="target column of a .csv or .npy (default: the last)")
    command.add_argument("--loss", choices=CLASSIFICATION + REGRESSION, default="hinge")
    command.add_argument("--intercept", action="store_true", help="add an unpenalised intercept")
    for name in ("gamma", "epsilon", "tau", "delta"):
        command.add_argument(f"--{name}", type=float, help="shape parameter of the loss")


def _problem(args: argparse.Namespace, C: float) -> Problem:
    X, y = read_data(args.data, args.target)
    if args.loss in CLASSIFICATION:
        return svm(X, y, C=C, loss=args.loss, gamma=args.gamma, intercept=args.intercept)
    return regression(
        X, y, C=C, loss=args.loss, epsilon=args.epsilon, tau=args.tau, gamma=args.gamma,
        delta=args.delta, intercept=args.intercept,
    )


def _say(args: argparse.Namespace, text: object, record: Any) -> None:
    if args.json:
        print(json.dumps(record))
    elif not args.quiet:
        print(text)


def _demo(args: argparse.Namespace) -> int:
    if args.points < 1:
        raise InvalidInput(f"`--points` is {args.points}; at least 1 is needed.")

    def show(text: str) -> None:
        print(text, file=sys.stderr)

    result = run_demo(
        None if args.no_plot else args.plot, args.points, None if args.quiet else show
    )
    _say(args, result, {"agrees": result.agrees, "rows": [vars(row) for row in result.rows]})
    return EXIT_OK if result.agrees else EXIT_DISAGREES


def _record(found: SolutionPath) -> list[dict[str, Any]]:
    plain = ("value", "objective", "relative_gap", "status", "kept", "refuted", "seconds")
    return [{name: getattr(point, name) for name in plain} for point in found.points]


def _path(args: argparse.Namespace) -> int:
    grid = parse_grid(args.C)
    for name, file in (("--out", args.out), ("--plot", args.plot)):
        if file is not None and not file.parent.is_dir():
            raise InvalidInput(f"`{name}`: the folder {str(file.parent)!r} does not exist.")
    found = path(
        _problem(args, float(grid[0])), values=grid, tol=args.tol, mode=args.mode,
        progress=not (args.quiet or args.json), checkpoint=args.checkpoint,
    )
    if args.out is not None:
        found.save(args.out)
    if args.plot is not None:
        plots.save(found.plot(), args.plot)
    _say(args, found, _record(found))
    if not found.finished:
        return EXIT_INTERRUPTED
    return EXIT_OK if all(p.status == "optimal" for p in found.points) else EXIT_DISAGREES


def _verify(args: argparse.Namespace) -> int:
    grid = parse_grid(args.C)
    if len(grid) != 1:
        raise InvalidInput(f"`--C` is {args.C!r}; `verify` takes one value.")
    result = verify(_problem(args, float(grid[0])).to_cvxpy(), solver=args.solver)
    _say(args, result, {"agrees": result.agrees, "value": list(result.value)})
    return EXIT_OK if result.agrees else EXIT_DISAGREES


def _info(args: argparse.Namespace) -> int:
    found = load_path(args.file)
    _say(args, found, _record(found))
    return EXIT_OK


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    args = parser().parse_args(argv)
    run = {"demo": _demo, "path": _path, "verify": _verify, "info": _info}[args.command]
    try:
        return run(args)
    except CvxscreenError as error:
        print(f"cvxscreen {args.command}: {error}", file=sys.stderr)
        return EXIT_ERROR
    except OSError as error:
        print(f"cvxscreen {args.command}: {error}", file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        print(f"cvxscreen {args.command}: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
