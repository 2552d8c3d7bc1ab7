"""The ``cvxscreen`` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cvxscreen.demo import run_demo
from cvxscreen.errors import CvxscreenError

EXIT_OK, EXIT_DISAGREES, EXIT_ERROR, EXIT_INTERRUPTED = 0, 1, 2, 130


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    top = argparse.ArgumentParser(
        prog="cvxscreen",
        description="Make a large regularised problem small without changing its answer.",
        epilog="exit codes: 0 fine, 1 an answer disagrees or is not certified, 2 an error, "
        "130 interrupted",
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
    demo.add_argument("--quiet", action="store_true", help="print nothing but errors")
    return top


def _demo(args: argparse.Namespace) -> int:
    if args.points < 1:
        print(f"cvxscreen demo: `--points` is {args.points}; at least 1 is needed", file=sys.stderr)
        return EXIT_ERROR

    def show(text: str) -> None:
        print(text, file=sys.stderr)

    result = run_demo(
        None if args.no_plot else args.plot, args.points, None if args.quiet else show
    )
    if not args.quiet:
        print(result)
    return EXIT_OK if result.agrees else EXIT_DISAGREES


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    args = parser().parse_args(argv)
    try:
        return {"demo": _demo}[args.command](args)
    except CvxscreenError as error:
        print(f"cvxscreen {args.command}: {error}", file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        print(f"cvxscreen {args.command}: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
