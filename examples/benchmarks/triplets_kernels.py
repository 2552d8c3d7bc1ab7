"""Margins and gradient of a million triplets, beside the compiled O(T d^2) pass.

    python examples/benchmarks/triplets_kernels.py [--sample 20000]

Random points in 20 classes, k = 14 neighbours of either kind. The naive pass runs on a sample of
the triplets and is scaled. CPU seconds of one thread, best of 25 and of 5 calls, turn about.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numba
import numpy as np

import cvxscreen
from cvxscreen.solvers.metric.solver import task_of


@numba.njit(cache=True, fastmath={"contract", "reassoc", "nsz"})
def naive(i, j, away, x, m, g, out):
    """``<H, M>`` and the sum of alpha H, every triplet by itself."""
    total, d = 0.0, x.shape[1]
    a, b = np.empty(d), np.empty(d)
    for t in range(i.size):
        for k in range(d):
            a[k], b[k] = x[i[t], k] - x[away[t], k], x[i[t], k] - x[j[t], k]
        margin = 0.0
        for k in range(d):
            left, right = 0.0, 0.0
            for n in range(d):
                left += m[k, n] * a[n]
                right += m[k, n] * b[n]
            margin += a[k] * left - b[k] * right
        alpha = min(max((1.0 - margin) / g, 0.0), 1.0)
        total += alpha
        if alpha > 0.0:
            for k in range(d):
                for n in range(d):
                    out[k, n] += alpha * (a[k] * a[n] - b[k] * b[n])
    return total


def best(ours: Callable[[], object], naive: Callable[[], object]) -> tuple[float, float]:
    """CPU seconds of the fastest of some calls of each, after one that compiles."""
    found: tuple[list[float], list[float]] = ([], [])
    ours()
    naive()
    for _ in range(5):
        for times, function, record in ((5, ours, found[0]), (1, naive, found[1])):
            for _ in range(times):
                began = time.process_time()
                function()
                record.append(time.process_time() - began)
    return min(found[0]), min(found[1])


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=20_000)
    sample = parser.parse_args().sample
    rng = np.random.default_rng(0)
    print(f"{'d':>4} {'triplets':>10} {'pairs':>8} {'ours ms':>8} {'naive ms':>9} {'ratio':>6}")
    for d in (20, 50, 200):
        X, y = rng.standard_normal((5103, d)), rng.integers(0, 20, 5103)
        T = cvxscreen.triplets(X, y, k=14)
        task = task_of(cvxscreen.rtlm(X, T, 1.0))
        W = rng.standard_normal((d, d)) / d
        metric = task.cone.project(0.5 * W @ W.T)
        part = T.index[rng.choice(len(T), sample, replace=False)].T.copy()
        out = np.zeros((d, d))
        ours, slow = best(
            lambda task=task, metric=metric: task.evaluate(metric),
            lambda task=task, metric=metric, part=part, out=out: naive(
                *part, task.table.points, metric.value, 0.05, out
            ),
        )
        slow *= len(T) / sample
        print(f"{d:4} {len(T):10,} {len(T.left):8,} {1e3 * ours:8.1f} {1e3 * slow:9.0f}"
              f" {slow / ours:6.0f}", flush=True)


if __name__ == "__main__":
    main()
