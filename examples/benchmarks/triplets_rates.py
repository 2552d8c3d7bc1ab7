"""Screening rates of every sphere and rule along lambda, Figures 6 to 8 of Yoshida et al. (2019).

    python examples/benchmarks/triplets_rates.py [segment.npz] [--k 5] [--count 65] [--raw]

Without a file scikit-learn's wine. At each lambda (0.9 times the one before, from the largest
that matters) the reference is the solution at the lambda before, relative gap 1e-6: the share of
triplets decided before anything is solved, in the mean and at a few lambdas. "predicted" is the
midpoint sphere at the extrapolated metric, which `path` uses. With --rules also the half-space and
the cone.
"""

from __future__ import annotations

import argparse

import numpy as np
from sklearn.datasets import load_wine

import cvxscreen
from cvxscreen.duality import reference_point
from cvxscreen.models.files import read_data

SPHERES = ("gb", "dgb", "cdgb", "rrpb", "midpoint", "pgb")


def decided(verdict) -> float:
    """On a linear or on the zero piece."""
    return float((verdict.zero | verdict.linear).mean())


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?")
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--count", type=int, default=65)
    parser.add_argument("--pca", type=int, default=0)
    parser.add_argument("--raw", action="store_true", help="do not standardise")
    parser.add_argument("--rules", action="store_true")
    args = parser.parse_args()
    X, y = load_wine(return_X_y=True) if args.data is None else read_data(args.data)
    X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=float)
    X = X[:, X.std(axis=0) > 0]
    if not args.raw:
        X = (X - X.mean(axis=0)) / X.std(axis=0)
    if args.pca:
        middle = X - X.mean(axis=0)
        X = middle @ np.linalg.svd(middle, full_matrices=False)[2][: args.pca].T
    T = cvxscreen.triplets(X, y, k=args.k)
    p = cvxscreen.rtlm(X, T, 1.0)
    top = cvxscreen.lam_max(p)
    columns = [*SPHERES, "predicted"]
    if args.rules:
        columns += ["dgb+linear", "dgb+cone", "gb+linear", "pgb+cone"]
    rates = {name: [] for name in columns}
    before = last = None
    print(f"{len(T):,} triplets\n{'lam/max':>9} " + " ".join(f"{c:>10}" for c in columns))
    for step in range(1, args.count + 1):
        here = p.with_(lam=top * 0.9**step)
        if last is not None:
            ahead = 2.0 * last.x - before.x if before is not None else last.x
            for name in columns:
                if name == "predicted":
                    found = cvxscreen.screen(here, reference=reference_point(here, ahead))
                else:
                    bound, _, rule = name.partition("+")
                    found = cvxscreen.screen(
                        here, reference=last, bound=bound, rule=rule or "sphere"
                    )
                rates[name].append(decided(found))
            if step % 10 == 0:
                print(f"{0.9**step:9.2e} " + " ".join(f"{rates[c][-1]:10.4f}" for c in columns),
                      flush=True)
        before, last = last, cvxscreen.solve(here, start=last)
    print(f"{'mean':>9} " + " ".join(f"{np.mean(rates[c]):10.4f}" for c in columns))


if __name__ == "__main__":
    main()
