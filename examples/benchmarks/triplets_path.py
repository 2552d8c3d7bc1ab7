"""A path of 60 lambdas over a million triplets: with screening, without, and the paper's method.

    python examples/benchmarks/triplets_path.py segment.npz [--k 21] [--first 1.0] [--count 60]

Every lambda is 0.9 times the one before, from `first` times the largest that matters; relative gap
1e-6, certified at every lambda for ours. "paper" is ActiveSet + RRPB of Yoshida et al. (2019,
section 7.3): Barzilai-Borwein steps on the triplets with a positive loss, updated every ten steps,
RRPB at the start of each lambda, margins and gradients triplet by triplet in O(d^2), compiled; its
triplets are never wrong here either, since the radius charges the gap of the reference. CPU
seconds of one thread; ours best of seven, turn about; "paper" once, and it may be cut to `--paper`
lambdas and scaled.
"""

from __future__ import annotations

import argparse
import itertools
import time

import numba
import numpy as np

import cvxscreen
from cvxscreen.models.files import read_table
from cvxscreen.solvers.metric.sequence import iterate_path

FLAGS = {"contract", "reassoc", "nsz"}
GAMMA = 0.05


@numba.njit(cache=True, fastmath=FLAGS)
def margins(rows, i, j, away, x, m, out):
    """``<H, M>`` of the triplets `rows`."""
    d = x.shape[1]
    a, b = np.empty(d), np.empty(d)
    for r in range(rows.size):
        t = rows[r]
        for k in range(d):
            a[k], b[k] = x[i[t], k] - x[away[t], k], x[i[t], k] - x[j[t], k]
        total = 0.0
        for k in range(d):
            left, right = 0.0, 0.0
            for n in range(d):
                left += m[k, n] * a[n]
                right += m[k, n] * b[n]
            total += a[k] * left - b[k] * right
        out[r] = total


@numba.njit(cache=True, fastmath=FLAGS)
def pull(rows, i, j, away, x, alpha, out):
    """``out += sum alpha H`` over the triplets `rows`."""
    d = x.shape[1]
    a, b = np.empty(d), np.empty(d)
    for r in range(rows.size):
        w = alpha[r]
        if w > 0.0:
            t = rows[r]
            for k in range(d):
                a[k], b[k] = x[i[t], k] - x[away[t], k], x[i[t], k] - x[j[t], k]
            for k in range(d):
                for n in range(d):
                    out[k, n] += w * (a[k] * a[n] - b[k] * b[n])


class Paper:
    """ActiveSet + RRPB."""

    def __init__(self, X: np.ndarray, index: np.ndarray, norms: np.ndarray) -> None:
        self.parts = [np.ascontiguousarray(c) for c in index.T]
        self.x, self.norms, self.T = X, norms, len(index)
        self.all = np.arange(self.T)

    def evaluate(self, rows, M, lam, fixed, constant):
        m = np.empty(len(rows))
        margins(rows, *self.parts, self.x, M, m)
        z = 1.0 - m
        alpha = np.clip(z / GAMMA, 0.0, 1.0)
        K = fixed.copy()
        pull(rows, *self.parts, self.x, alpha, K)
        loss = float(np.sum(alpha * (z - 0.5 * GAMMA * alpha))) + constant - np.vdot(fixed, M)
        primal = loss + 0.5 * lam * np.vdot(M, M)
        values, vectors = np.linalg.eigh(K)
        top = (vectors * np.maximum(values, 0.0)) @ vectors.T
        gap = 0.5 * lam * np.sum((M - top / lam) ** 2) + np.vdot(M, top - K)
        return primal, K, gap, m

    def solve(self, M0, gap0, lam0, lam, tol):
        """One lambda from the solution of the last."""
        d = len(M0)
        eps = np.sqrt(2.0 * max(gap0, 0.0) / lam0)
        radius = abs(lam0 - lam) / (2 * lam) * np.linalg.norm(M0) + max(lam0, lam) / lam * eps
        m = np.empty(self.T)
        margins(self.all, *self.parts, self.x, M0, m)
        m *= 0.5 * (lam0 + lam) / lam
        zero = m - radius * self.norms > 1.0
        linear = m + radius * self.norms < 1.0 - GAMMA
        fixed = np.zeros((d, d))
        rows = np.flatnonzero(linear)
        pull(rows, *self.parts, self.x, np.ones(len(rows)), fixed)
        constant = len(rows) * (1.0 - 0.5 * GAMMA)
        kept = np.flatnonzero(~(zero | linear))
        M, before = M0, None
        primal, K, gap, margin = self.evaluate(kept, M, lam, fixed, constant)
        for _ in range(1000):
            if gap <= tol * abs(primal):
                return M, gap
            active = kept[margin < 1.0 + 1e-9]
            _, K, _, _ = self.evaluate(active, M, lam, fixed, constant)
            for _ in range(10):
                G = lam * M - K
                if before is None:
                    eta = 1.0 / max(lam, np.linalg.norm(G) * lam / np.linalg.norm(K))
                else:
                    dM, dG = M - before[0], G - before[1]
                    inner = np.vdot(dM, dG)
                    if inner <= 0.0:
                        break
                    eta = 0.5 * (inner / np.vdot(dG, dG) + np.vdot(dM, dM) / inner)
                before = M, G
                values, vectors = np.linalg.eigh(M - eta * G)
                M = (vectors * np.maximum(values, 0.0)) @ vectors.T
                _, K, inside, _ = self.evaluate(active, M, lam, fixed, constant)
                if inside <= 0.5 * tol * abs(primal):
                    break
            primal, K, gap, margin = self.evaluate(kept, M, lam, fixed, constant)
            before = None
        raise ArithmeticError("not solved")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--k", type=int, default=21)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--first", type=float, default=1.0)
    parser.add_argument("--paper", type=int, default=60, help="lambdas of the paper's method")
    args = parser.parse_args()
    data = read_table(args.data)
    X, y = data.X, data.y
    X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=float)
    X = X[:, X.std(axis=0) > 0]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    T = cvxscreen.triplets(X, y, k=args.k)
    p = cvxscreen.rtlm(X, T, 1.0, gamma=GAMMA)
    top = args.first * cvxscreen.lambda_max(p)
    values = top * 0.9 ** np.arange(1, args.count + 1)
    print(f"{len(T):,} triplets, {len(T.left):,} pairs, d = {X.shape[1]}")
    kinds, times = (True, False), {True: [], False: []}
    for screen in kinds:
        list(iterate_path(p, values[:2], screen=screen))  # compiles
    for _ in range(7):
        for screen in kinds:
            began = time.process_time()
            stations = list(iterate_path(p, values, screen=screen))
            times[screen].append(time.process_time() - began)
            assert all(s.certificate.ok for s in stations)
            if len(times[screen]) == 1:
                solving = [s for s in stations if s.iterations]
                rate = np.mean([sum(s.before.values()) for s in solving])
                kept = np.mean([s.kept for s in solving]) / p.n
                print(
                    f"{'screening' if screen else 'no screening':14}"
                    f" {sum(s.iterations for s in stations)} iterations, decided at the start"
                    f" {rate:.3f}, least kept {kept:.4f}", flush=True,
                )
    best = {screen: min(found) for screen, found in times.items()}
    print(f"{'screening':14} {best[True]:8.2f} s\n{'no screening':14} {best[False]:8.2f} s")
    baseline = Paper(p.design.table.points, T.index, p.design.frobenius)
    M = stations[0].x.reshape(X.shape[1], -1)
    gap = stations[0].certificate.gap
    baseline.solve(M, gap, values[0], 0.999 * values[0], 1e-2)  # compiles
    part = values[: args.paper]
    began = time.process_time()
    for before, lam in itertools.pairwise(part):
        M, gap = baseline.solve(M, gap, before, lam, 1e-6)
    seconds = (time.process_time() - began) * (len(values) - 1) / (len(part) - 1)
    print(f"{'paper':14} {seconds:8.2f} s" + (" (scaled)" if len(part) < len(values) else ""))
    print(f"no screening / screening {best[False] / best[True]:.2f},"
          f" paper / screening {seconds / best[True]:.0f}")


if __name__ == "__main__":
    main()
