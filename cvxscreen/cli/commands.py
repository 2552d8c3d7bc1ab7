"""The ``cvxscreen`` command.

SIGTERM is heard as Ctrl-C, so that a command that is told to end keeps what is finished.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from types import FrameType
from typing import Any

from cvxscreen import plots
from cvxscreen._support.compiled import ANNOUNCEMENT
from cvxscreen._support.limits import TIME
from cvxscreen.cli.arguments import parse_grid, parse_kernel_params, parser
from cvxscreen.cli.learned import learn_metrics
from cvxscreen.cli.warmup import warm_up
from cvxscreen.core.problem import Problem
from cvxscreen.errors import CvxscreenError, InvalidInput, MissingDependency
from cvxscreen.models.files import read_data, two_classes
from cvxscreen.models.open_data import open_data
from cvxscreen.models.regression import regression
from cvxscreen.models.samples import CLASSIFICATION
from cvxscreen.models.svm import svm
from cvxscreen.paths.path import Path as SolutionPath
from cvxscreen.paths.path import load_path, path
from cvxscreen.solvers.registry import named_solver


@contextmanager
def terminable() -> Iterator[list[int]]:
    """Raise KeyboardInterrupt on SIGTERM inside the block, and list the signals that came.

    The handler before is put back at the end. Only the main thread of a process hears signals; in
    any other the block is left as it is.
    """
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield heard
        return
    before = signal.signal(signal.SIGTERM, hear)
    try:
        yield heard
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


EXIT_OK, EXIT_DISAGREES, EXIT_ERROR, EXIT_TIME = 0, 1, 2, 3
EXIT_INTERRUPTED, EXIT_TERMINATED = 130, 143


def _remark(args: argparse.Namespace, text: str) -> None:
    """Something a person should know, on standard error."""
    if not (args.quiet or args.json):
        print(text, file=sys.stderr)


def _data(args: argparse.Namespace) -> tuple[Any, Any]:
    """X and y: in memory, or in chunks where that is asked for or there is no other way."""
    stream, cache = getattr(args, "stream", False), getattr(args, "cache", None)
    place = Path(args.data)
    if stream or cache or place.is_dir() or place.suffix in (".parquet", ".zarr"):
        return open_data(place, args.target, cache=cache)
    return read_data(args.data, args.target)


def _problem(args: argparse.Namespace, C: float) -> Problem:
    X, y = _data(args)
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
        return svm(X, y, **shared)
    if args.positive is not None:
        raise InvalidInput(f"`--positive` is for classes; `--loss {args.loss}` is for regression.")
    if y.dtype.kind in "US":
        raise InvalidInput(
            f"the target column holds words ({str(y[0])!r}, ...); `--loss {args.loss}` needs "
            "numbers."
        )
    _remark(args, f"{size}; target from {y.min():g} to {y.max():g}")
    return regression(
        X, y, epsilon=args.epsilon, tau=args.tau, delta=args.delta, **shared
    )


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
    found = path(
        _problem(args, float(grid[0])), values=grid, tol=args.tol, mode=args.mode,
        solver=args.solver, progress=not (args.quiet or args.json), checkpoint=args.checkpoint,
        time_limit=args.time_limit, max_iter=args.max_iter,
    )
    # First, lest a file that cannot be written takes it along.
    _say(args, found.table(), _record(found))
    if args.out is not None:
        found.save(args.out)
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
    problem = _problem(args, float(grid[0]))
    from cvxscreen.cvxpy_plugin.verify import verify

    named_solver(args.solver, problem)  # refuses a name that CVXPY does not know
    result = verify(problem.to_cvxpy(), solver=args.solver)
    _say(args, result, {"agrees": result.agrees, "value": list(result.value)})
    return EXIT_OK if result.agrees else EXIT_DISAGREES


def _triplets(args: argparse.Namespace) -> int:
    if args.out is not None and not (args.out.suffix == ".npz" and args.out.parent.is_dir()):
        raise InvalidInput(f"`--out` is {str(args.out)!r}; a .npz file in a folder that exists.")
    X, y = read_data(args.data, args.target)
    learned = learn_metrics(
        X, y, args.k, None if args.lam is None else parse_grid(args.lam, "--lam"),
        gamma=args.gamma, diagonal=args.diagonal, standardise=not args.raw, tol=args.tol,
    )
    _say(args, learned, _record(learned.path))
    if args.out is not None and len(learned.path.points):
        learned.save(args.out)
    if not learned.path.finished:
        return EXIT_INTERRUPTED
    return EXIT_OK if all(p.status == "optimal" for p in learned.path.points) else EXIT_DISAGREES


def _info(args: argparse.Namespace) -> int:
    found = load_path(args.file)
    _say(args, found.table(), _record(found))
    return EXIT_OK


def _warmup(args: argparse.Namespace) -> int:
    seconds = dict(warm_up(shown=not (args.quiet or args.json)))
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
        "demo": _demo, "path": _path, "verify": _verify, "triplets": _triplets, "info": _info,
        "warmup": _warmup,
    }
    ANNOUNCEMENT.silent |= args.quiet or args.json
    with terminable() as heard:
        try:
            code = commands[args.command](args)
        except (CvxscreenError, OSError) as error:
            print(f"cvxscreen {args.command}: {error}", file=sys.stderr)
            return EXIT_ERROR
        except KeyboardInterrupt:
            code = EXIT_INTERRUPTED
            print(f"cvxscreen {args.command}: interrupted", file=sys.stderr)
    return EXIT_TERMINATED if heard and code == EXIT_INTERRUPTED else code
