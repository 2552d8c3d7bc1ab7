"""Whole paths on several data sets, as Tables 3 and 4 of Yoshida et al. (2019).

    python examples/benchmarks/triplets_sets.py FOLDER [--k 5] [--ratio 0.9] [NAME[:diagonal] ...]

From the largest lambda that matters until the loss hardly falls (the paper's rule, at most 80
values), relative gap 1e-6, certified at every lambda. Features are standardised; more than 100 of
them are reduced to 32 principal components unless the metric is diagonal. CPU seconds of one
thread, neighbours found and triplets made not counted.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

import cvxscreen
from cvxscreen.models.files import read_data
from cvxscreen.solvers.metric_rows import ends
from cvxscreen.solvers.metric_sequence import along

SETS = ("segment", "satimage", "phishing", "mnist_t10k", "usps:diagonal", "madelon:diagonal",
        "colon:diagonal")


def walk(p, values, screen: bool):
    """CPU seconds and the stations of one path."""
    began, found, before, steep = time.process_time(), [], None, False
    for station in along(p, values, screen=screen):
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
    args = parser.parse_args()
    print(f"{'set':18} {'d':>4} {'triplets':>9} {'pairs':>8} {'lambdas':>7} {'its':>6}"
          f" {'decided':>8} {'screen s':>9} {'plain s':>8} {'ratio':>6} {'largest gap':>11}")
    for name in args.names:
        stem, _, kind = name.partition(":")
        X, y = read_data(args.folder / f"{stem}.npz")
        X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=float)
        X = X[:, X.std(axis=0) > 0]
        X = (X - X.mean(axis=0)) / X.std(axis=0)
        diagonal = kind == "diagonal"
        if not diagonal and X.shape[1] > 100:
            values, vectors = np.linalg.eigh(X.T @ X)
            X = X @ vectors[:, np.argsort(-values)[:32]]
        T = cvxscreen.triplets(X, y, k=args.k)
        p = cvxscreen.rtlm(X, T, 1.0, diagonal=diagonal)
        values = cvxscreen.lam_max(p) * args.ratio ** np.arange(1, 81)
        walk(p, values[:2], True)
        seconds, found = walk(p, values, True)
        plain, _ = walk(p, values[: len(found)], False)
        solving = [s for s in found if s.iterations]
        rate = np.mean([s.dropped + s.fixed for s in solving])
        gap = max(s.certificate.relative_gap for s in found)
        print(f"{name:18} {X.shape[1]:4} {len(T):9,} {len(T.left):8,} {len(found):7}"
              f" {sum(s.iterations for s in found):6} {rate:8.4f} {seconds:9.2f} {plain:8.2f}"
              f" {plain / seconds:6.2f} {gap:11.1e}", flush=True)


if __name__ == "__main__":
    main()
