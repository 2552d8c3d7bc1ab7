"""Time of a path under every sphere, Figure 9 of Yoshida et al. (2019), and ranges, Figure 8.

    python examples/benchmarks/triplets_spheres.py [iris | wine | FILE] [--k 5] [--count 65]
        [--ranges]

The paper's own method, so that spheres are compared as there: Barzilai-Borwein steps, margins and
gradients triplet by triplet in O(d^2), compiled; at each lambda (0.9 times the one before) the
sphere of the last solution screens, and every ten steps the sphere of the iterate screens again.
"none" does not screen. Relative gap 1e-6; CPU seconds of one thread; "first" is the share decided
at the start of a lambda, "end" the share at its end. Their figure orders the methods so: GB is the
slowest of the spheres late on the path, all are faster than none, RRPB+PGB is the fastest on four
of six sets.

With --ranges instead: the share one reference at lambda_max / 10 decides at smaller lambdas.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from sklearn import datasets
from triplets_path import GAMMA, margins, pull

import cvxscreen
from cvxscreen.models.files import read_table
from cvxscreen.screening.ranges import lam_interval

METHODS = ("none", "gb", "pgb", "dgb", "rrpb", "rrpb+pgb")


def positive(matrix: np.ndarray) -> np.ndarray:
    """The nearest positive semidefinite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T


class Path:
    """One way of screening; the decided triplets of one lambda are in `fixed` and `constant`."""

    def __init__(self, X: np.ndarray, index: np.ndarray, norms: np.ndarray, method: str) -> None:
        self.parts = [np.ascontiguousarray(c) for c in index.T]
        self.x, self.norms, self.method = X, norms, method
        self.first: list[float] = []
        self.end: list[float] = []

    def at(self, rows: np.ndarray, M: np.ndarray) -> np.ndarray:
        out = np.empty(len(rows))
        margins(rows, *self.parts, self.x, M, out)
        return out

    def sum(self, rows: np.ndarray, alpha: np.ndarray) -> np.ndarray:
        out = np.zeros((self.x.shape[1],) * 2)
        pull(rows, *self.parts, self.x, alpha, out)
        return out

    def begin(self, lam: float) -> None:
        self.lam, self.rows = lam, np.arange(len(self.norms))
        self.fixed, self.constant = np.zeros((self.x.shape[1],) * 2), 0.0

    def evaluate(self, M: np.ndarray) -> None:
        """Objective, force and gap on what is left."""
        self.M, self.m = M, self.at(self.rows, M)
        z = 1.0 - self.m
        alpha = np.clip(z / GAMMA, 0.0, 1.0)
        self.K = self.fixed + self.sum(self.rows, alpha)
        loss = float(np.sum(alpha * (z - 0.5 * GAMMA * alpha))) + self.constant
        self.primal = loss - np.vdot(self.fixed, M) + 0.5 * self.lam * np.vdot(M, M)
        top = positive(self.K)
        self.gap = 0.5 * self.lam * np.sum((M - top / self.lam) ** 2) + np.vdot(M, top - self.K)

    def screen(self, before: float, gap_before: float) -> None:
        """Take off what the sphere decides; `before` is the lambda at which M has `gap_before`."""
        zero = np.zeros(len(self.rows), dtype=bool)
        linear = zero.copy()
        for name in self.method.split("+"):
            centre, radius = self.M, 0.0
            if name == "dgb":
                radius = np.sqrt(2.0 * max(self.gap, 0.0) / self.lam)
            elif name == "rrpb":
                eps = np.sqrt(2.0 * max(gap_before, 0.0) / before)
                centre = 0.5 * (before + self.lam) / self.lam * self.M
                radius = abs(before - self.lam) / (2 * self.lam) * np.linalg.norm(self.M)
                radius += max(before, self.lam) / self.lam * eps
            else:
                centre = 0.5 * (self.M + self.K / self.lam)
                square = 0.25 * np.sum((self.M - self.K / self.lam) ** 2)
                if name == "pgb":
                    inside = positive(centre)
                    square, centre = square - np.sum((inside - centre) ** 2), inside
                radius = np.sqrt(max(square, 0.0))
            if name in ("dgb", "rrpb"):  # the centre is a multiple of M
                middle = self.m * (0.5 * (before + self.lam) / self.lam if name == "rrpb" else 1.0)
            else:
                middle = self.at(self.rows, centre)
            reach = (radius + 1e-9 * np.linalg.norm(centre)) * self.norms[self.rows]
            zero |= middle - reach > 1.0
            linear |= middle + reach < 1.0 - GAMMA
        if (zero | linear).any():
            out = self.rows[linear]
            self.fixed += self.sum(out, np.ones(len(out)))
            self.constant += len(out) * (1.0 - 0.5 * GAMMA)
            self.rows = self.rows[~(zero | linear)]
            self.evaluate(self.M)

    def solve(self, M: np.ndarray, gap: float, before: float, lam: float) -> None:
        """One lambda."""
        self.begin(lam)
        self.evaluate(M)
        if self.method != "none":
            self.screen(before, gap)
        self.first.append(1.0 - len(self.rows) / len(self.norms))
        last = None
        for step in range(1, 2001):
            if self.gap <= 1e-6 * abs(self.primal):
                break
            G = lam * self.M - self.K
            eta = 1.0 / max(lam, np.linalg.norm(G) * lam / np.linalg.norm(self.K))
            if last is not None:
                dM, dG = self.M - last[0], G - last[1]
                inner = np.vdot(dM, dG)
                if inner > 0.0:
                    eta = 0.5 * (inner / np.vdot(dG, dG) + np.vdot(dM, dM) / inner)
            last = self.M, G
            self.evaluate(positive(self.M - eta * G))
            if step % 10 == 0 and self.method != "none":
                self.screen(lam, self.gap)
                last = None
        self.end.append(1.0 - len(self.rows) / len(self.norms))


def ranges(p, top: float) -> None:
    """Figure 8: one reference, smaller lambdas, two accuracies."""
    shares = (0.99, 0.95, 0.9, 0.8, 0.7, 0.5)
    print(f"{'reference':>22} " + " ".join(f"{s:>6}" for s in shares))
    for bound in ("rrpb", "midpoint"):
        for tol in (1e-4, 1e-6):
            here = p.with_(lam=0.1 * top)
            low, high, codes = lam_interval(cvxscreen.solve(here, tol=tol).point(), bound)
            found = [
                float(((codes >= 0) & (low <= s * here.lam) & (s * here.lam <= high)).mean())
                for s in shares
            ]
            print(f"{bound:>12}, gap {tol:.0e} " + " ".join(f"{v:6.3f}" for v in found))


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", default="wine")
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--count", type=int, default=65)
    parser.add_argument("--ranges", action="store_true")
    args = parser.parse_args()
    if args.data in ("iris", "wine"):
        X, y = getattr(datasets, f"load_{args.data}")(return_X_y=True)
    else:
        data = read_table(args.data)
        X, y = data.X, data.y
    X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=float)
    X = X[:, X.std(axis=0) > 0]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    T = cvxscreen.triplets(X, y, k=args.k)
    p = cvxscreen.rtlm(X, T, 1.0, gamma=GAMMA)
    top = cvxscreen.lambda_max(p)
    print(f"{len(T):,} triplets, d = {X.shape[1]}")
    if args.ranges:
        ranges(p, top)
        return
    start = cvxscreen.solve(p.with_(lam=top)).x.reshape(X.shape[1], -1)
    print(f"{'sphere':9} {'s':>7} {'ratio':>6} {'first':>7} {'end':>7}")
    base = None
    for method in METHODS:
        run = Path(X, T.index, p.design.frobenius, method)
        run.begin(top)
        run.solve(start, 0.0, top, 0.999 * top)  # compiles
        run.first.clear()
        run.end.clear()
        began = time.process_time()
        M, gap, lam = start, 0.0, top
        for step in range(1, args.count + 1):
            run.solve(M, gap, lam, top * 0.9**step)
            M, gap, lam = run.M, run.gap, run.lam
        seconds = time.process_time() - began
        base = base or seconds
        print(f"{method:9} {seconds:7.2f} {base / seconds:6.2f} {np.mean(run.first):7.4f}"
              f" {np.mean(run.end):7.4f}", flush=True)


if __name__ == "__main__":
    main()
