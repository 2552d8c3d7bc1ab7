"""Nearest-neighbour accuracy with learned metrics on held-out data, along lambda.

    python examples/benchmarks/triplets_knn.py satimage.npz [--k 5] [--pca 32] [--diagonal]
        [--train 3000]

Features are standardised (after PCA where asked for), half of the points (at most `--train`) learn,
a quarter chooses lambda, a quarter tests. Ten neighbours vote. Beside Euclidean distances and,
where metric-learn is installed, its LMNN with the same number of neighbours. CPU seconds, one
thread.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from sklearn.neighbors import KNeighborsClassifier

import cvxscreen
from cvxscreen.models.files import read_data


def accuracy(L, train, y, test, z) -> float:
    """Of ten neighbours under the metric ``L' L``."""
    vote = KNeighborsClassifier(10).fit(train @ L.T, y)
    return float(vote.score(test @ L.T, z))


def renamed(function):
    """`function` of scikit-learn, taking ``force_all_finite`` as it used to."""

    def front(*args, **options):
        if "force_all_finite" in options:
            options["ensure_all_finite"] = options.pop("force_all_finite")
        return function(*args, **options)

    return front


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--pca", type=int, default=0)
    parser.add_argument("--train", type=int, default=3000)
    parser.add_argument("--diagonal", action="store_true")
    args = parser.parse_args()
    X, y = read_data(args.data)
    X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=float)
    X = X[:, X.std(axis=0) > 0]
    order = np.random.default_rng(0).permutation(len(y))
    n = len(y)
    parts = order[: n // 2][: args.train], order[n // 2:3 * n // 4], order[3 * n // 4:]
    if args.pca:
        middle = X[parts[0]].mean(axis=0)
        _, _, V = np.linalg.svd(X[parts[0]] - middle, full_matrices=False)
        X = (X - middle) @ V[: args.pca].T
    X = X / np.maximum(X[parts[0]].std(axis=0), 1e-12)
    (a, ya), (b, yb), (c, yc) = ((X[p], y[p]) for p in parts)
    print(f"{len(a):,} points learn, {len(b):,} choose, {len(c):,} test; d = {X.shape[1]}")
    print(f"{'Euclidean':12} test accuracy {accuracy(np.eye(X.shape[1]), a, ya, c, yc):.4f}")
    began = time.process_time()
    T = cvxscreen.triplets(a, ya, k=args.k)
    p = cvxscreen.rtlm(a, T, 1.0, diagonal=args.diagonal)
    path = cvxscreen.path(p, over="lam", values=cvxscreen.lambda_max(p) * 0.7 ** np.arange(1, 31))
    seconds = time.process_time() - began
    learned = [cvxscreen.factor_of(p, point.x) for point in path.points]
    scores = [accuracy(L, a, ya, b, yb) if len(L) else 0.0 for L in learned]
    best = int(np.argmax(scores))
    print(
        f"{'cvxscreen':12} test accuracy {accuracy(learned[best], a, ya, c, yc):.4f}, rank"
        f" {len(learned[best])}, lambda {path.points[best].value:.3g} of 30; {len(T):,} triplets,"
        f" whole path {seconds:.1f} s, all certified:"
        f" {all(point.status == 'optimal' for point in path.points)}", flush=True,
    )
    try:
        from metric_learn import LMNN, _util
    except ImportError:
        print("metric-learn is not installed")
        return
    for name in ("check_X_y", "check_array"):  # it calls scikit-learn by an argument's old name
        setattr(_util, name, renamed(getattr(_util, name)))
    began = time.process_time()
    try:
        model = LMNN(n_neighbors=args.k, random_state=0)
    except TypeError:
        model = LMNN(k=args.k, random_state=0)
    model.fit(a, ya)
    seconds = time.process_time() - began
    print(f"{'LMNN':12} test accuracy {accuracy(model.components_, a, ya, c, yc):.4f},"
          f" one fit {seconds:.1f} s")


if __name__ == "__main__":
    main()
