"""A CVXPY problem solved along a parameter, and one large solve: screened against plain.

    OMP_NUM_THREADS=1 python examples/benchmarks/cvxpy_parameter.py --terms 20000 --coordinates 20
    OMP_NUM_THREADS=1 python examples/benchmarks/cvxpy_parameter.py --terms 1000000 --single
    OMP_NUM_THREADS=1 python examples/benchmarks/cvxpy_parameter.py --terms 200000 --data

The problem is ``mean(pos(1 - y * (X w + b))) + lambda |w|^2`` on two overlapping Gaussian classes,
lambda in [1e-4, 1e-1]. The plain solves follow CVXPY's DPP rules: the problem is compiled once.
``--plain`` says how many of the values are solved plainly (all when omitted; the ratio is then per
value). ``--single`` is one solve at lambda = 1e-3 instead, with the peak memory of the process.
``--data`` has the labelled rows themselves in a `Parameter` (still DPP) and changes them twice;
what CVXPY would allocate for that is what it says when it is not given the memory (8 GB here).
CPU seconds, everything from the problem's construction included; libraries are loaded before.
"""

from __future__ import annotations

import argparse
import resource
from time import process_time

import cvxpy as cp
import numpy as np

import cvxscreen
from cvxscreen._support.tables import table


def build(X, y):
    """The problem and its parameter."""
    n, d = X.shape
    w, b, lam = cp.Variable(d), cp.Variable(), cp.Parameter(nonneg=True, name="lambda")
    loss = cp.sum(cp.pos(1 - cp.multiply(y, X @ w + b))) / n
    return cp.Problem(cp.Minimize(loss + lam * cp.sum_squares(w))), lam


def timed(call):
    """CPU seconds of `call` and what it returned."""
    began = process_time()
    result = call()
    return process_time() - began, result


def resolve(X, y, values, **options):
    """One `prob.solve` a value; the objectives."""
    prob, lam = build(X, y)
    found = []
    for value in values:
        lam.value = value
        found.append(prob.solve(solver="CLARABEL", **options))
    return found


def along(X, y, values):
    """`cvxscreen.path`; the objectives and the largest gap."""
    prob, lam = build(X, y)
    points = cvxscreen.path(prob, lam, values).points
    return [p.objective for p in points], max(p.relative_gap for p in points)


def compare(X, y, values, plain_count: int) -> None:
    """Print the table of the path."""
    seconds, (path, gap) = timed(lambda: along(X, y, values))
    again, screened = timed(lambda: resolve(X, y, values, method="screen"))
    some = values[:: max(1, len(values) // plain_count)]
    plain_seconds, plain = timed(lambda: resolve(X, y, some))
    share = len(values) / len(some)
    pick = [list(values).index(v) for v in some]
    def off(found):
        return max(abs(found[k] - p) / abs(p) for k, p in zip(pick, plain, strict=True))
    rows = [
        ("plain, compiled once", len(some), plain_seconds, 1.0, 0.0),
        ('method="screen"', len(values), again, share * plain_seconds / again, off(screened)),
        ("cvxscreen.path", len(values), seconds, share * plain_seconds / seconds, off(path)),
    ]
    header = ("", "values", "CPU s", "ratio per value", "largest difference of the objective")
    n, d = X.shape
    print(table(header, rows, title=f"{n:,} x {d}, {len(values)} values of lambda, Clarabel"))
    print(f"largest certified relative gap of the path: {gap:.1e}")


def single(X, y, *, plain: bool) -> None:
    """Print one large solve."""
    options = {} if plain else {"method": "screen"}
    seconds, value = timed(lambda: resolve(X, y, [1e-3], **options))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    how = "plain" if plain else "screened"
    print(f"{X.shape}: {how}, {seconds:.1f} CPU s, peak {peak:.2f} GB, value {value[0]!r}")


def labelled(X, y):
    """The problem with its rows in a parameter."""
    n, d = X.shape
    w, b, rows = cp.Variable(d), cp.Variable(), cp.Parameter((n, d), name="rows")
    loss = cp.sum(cp.pos(1 - rows @ w - cp.multiply(y, b))) / n
    return cp.Problem(cp.Minimize(loss + 1e-3 * cp.sum_squares(w))), rows


def data(X, y) -> None:
    """Print three solves with other data in the same parameter, and what CVXPY asks for."""
    rng = np.random.default_rng(1)
    prob, rows = labelled(X, y)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    for step in range(3):
        rows.value = y[:, None] * (X + 0.1 * step * rng.standard_normal(X.shape))
        seconds, value = timed(lambda: prob.solve(method="screen", solver="CLARABEL"))
        gap = prob.solver_stats.extra_stats["cvxscreen"].relative_gap
        print(f"{X.shape}: screened, {seconds:.1f} CPU s, gap {gap:.0e}, value {value!r}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"peak {peak:.2f} GB, of which {before:.2f} GB before the first solve")
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    try:
        prob.solve(solver="CLARABEL")
        print("plain: solved")
    except MemoryError as error:
        print(f"plain: {error}")


def main() -> None:
    """Parse the arguments and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--terms", type=int, default=20_000)
    parser.add_argument("--coordinates", type=int, default=50)
    parser.add_argument("--values", type=int, default=50)
    parser.add_argument("--plain", type=int, default=None)
    parser.add_argument("--single", action="store_true")
    parser.add_argument("--only-plain", action="store_true")
    parser.add_argument("--data", action="store_true")
    args = parser.parse_args()
    small, label = cvxscreen.datasets.two_gaussians(3000, 5, seed=1)
    along(small, label, [1e-2, 1e-3])
    resolve(small, label, [1e-2], method="screen", always=True)
    X, y = cvxscreen.datasets.two_gaussians(args.terms, args.coordinates, seed=0)
    if args.single or args.only_plain:
        single(X, y, plain=args.only_plain)
        return
    if args.data:
        data(X, y)
        return
    values = np.geomspace(1e-1, 1e-4, args.values)
    compare(X, y, values, args.plain or args.values)


if __name__ == "__main__":
    main()
