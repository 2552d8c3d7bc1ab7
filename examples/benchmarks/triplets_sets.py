"""Whole paths on several data sets, as Tables 3 and 4 of Yoshida et al. (2019).

    python examples/benchmarks/triplets_sets.py FOLDER [NAME[:diagonal] ...] [--k 5]
        [--ratio 0.9] [--paper]

From the largest lambda that matters until the loss hardly falls (the paper's rule, at most 80
values), relative gap 1e-6, certified at every lambda. Features are standardised; more than 100 of
them are reduced to 32 principal components unless the metric is diagonal. CPU seconds of one
thread, neighbours found and triplets made not counted.

With --paper the grid is the paper's (0.99 times the lambda before, at most 800 values) and so is k;
beside ours are the seconds of the tables for ActiveSet and for the better of ActiveSet + RRPB and
ActiveSet + RRPB + PGB. They come from another machine, from nine tenths of the points, and for a9a
and mnist from other features (an autoencoder's 16 and 32) and, for mnist, six times the points.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

import cvxscreen
from cvxscreen.models.files import read_table
from cvxscreen.solvers.metric.sequence import ends, iterate_path

SETS = ("segment", "satimage", "phishing", "mnist_t10k", "usps:diagonal", "madelon:diagonal",
        "colon:diagonal")

PAPER = {
    "phishing": (7, 7989.5, 2126.2), "a9a": (5, 758.7, 70.1), "mnist_t10k": (5, 3788.1, 871.1),
    "usps:diagonal": (10, 2485.5, 326.7), "madelon:diagonal": (20, 7005.8, 562.4),
    "colon:diagonal": ("all", 3149.8, 628.2),
}
"""Neighbours, and the seconds of Tables 3 and 4."""


def walk(p, values, screen: bool):
    """CPU seconds and the stations of one path."""
    began, found, before, steep = time.process_time(), [], None, False
    for station in iterate_path(p, values, screen=screen):
        found.append(station)
        now = (float(station.problem.lam), station.loss)
        flat = ends(before, now)
        if steep and flat:
            break
        steep = steep or (before is not None and not flat)
        before = now
    return time.process_time() - began, found


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=SETS)
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--ratio", type=float, default=0.9)
    parser.add_argument("--paper", action="store_true", help="the paper's grid and k")
    args = parser.parse_args()
    if args.paper:
        print("their seconds: ActiveSet, and with screening")
    print(f"{'set':18} {'d':>4} {'triplets':>9} {'pairs':>8} {'lambdas':>7} {'its':>6}"
          f" {'decided':>8} {'screen s':>9} {'plain s':>8} {'ratio':>6} {'largest gap':>11}")
    for name in args.names:
        stem, _, kind = name.partition(":")
        data = read_table(args.folder / f"{stem}.npz")
        X, y = data.X, data.y
        X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=float)
        X = X[:, X.std(axis=0) > 0]
        X = (X - X.mean(axis=0)) / X.std(axis=0)
        diagonal = kind == "diagonal"
        if not diagonal and X.shape[1] > 100:
            values, vectors = np.linalg.eigh(X.T @ X)
            X = X @ vectors[:, np.argsort(-values)[:32]]
        k, *theirs = PAPER[name] if args.paper else (args.k,)
        T = cvxscreen.triplets(X, y, k=k)
        p = cvxscreen.rtlm(X, T, 1.0, diagonal=diagonal)
        count, ratio = (801, 0.99) if args.paper else (81, args.ratio)
        values = cvxscreen.lambda_max(p) * ratio ** np.arange(1, count)
        walk(p, values[:2], True)
        seconds, found = walk(p, values, True)
        plain = float("nan") if args.paper else walk(p, values[: len(found)], False)[0]
        solving = [s for s in found if s.iterations]
        rate = np.mean([sum(s.before.values()) for s in solving])
        gap = max(s.certificate.relative_gap for s in found)
        print(f"{name:18} {X.shape[1]:4} {len(T):9,} {len(T.left):8,} {len(found):7}"
              f" {sum(s.iterations for s in found):6} {rate:8.4f} {seconds:9.2f} {plain:8.2f}"
              f" {plain / seconds:6.2f} {gap:11.1e}", *theirs, flush=True)


if __name__ == "__main__":
    main()
