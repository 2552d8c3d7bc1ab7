"""Screening rates of every sphere and rule along lambda, Figures 6 to 8 of Yoshida et al. (2019).

    python examples/benchmarks/triplets_rates.py [iris | wine | digits | segment.npz] [--k 5]
        [--count 65] [--pca 0] [--raw] [--rules]

At each lambda (0.9 times the one before, from the largest that matters) the reference is the
solution at the lambda before, relative gap 1e-6; counted is what is decided before anything is
solved. The rate is the paper's (section 7.1): decided triplets over those that can be, on a linear
or on the zero piece at the solution. "predicted" is the midpoint sphere at the extrapolated metric,
which `path` uses. With --rules also the half-space and the cone.

For scikit-learn's sets the neighbours, the features and the means of an independent implementation
with uncertified radii are known and printed below ours: k = 10 (digits: 5), standardised features
(digits: 20 principal components of the pixels, not scaled).
"""

from __future__ import annotations

import argparse

import numpy as np
from sklearn import datasets

import cvxscreen
from cvxscreen.core.duality import reference_point
from cvxscreen.models.files import read_table

SPHERES = ("gb", "dgb", "cdgb", "rrpb", "midpoint", "pgb")

KNOWN = {
    "iris": (10, 0, False, (0.9569, 0.9082, 0.9274, 0.9569, 0.9569, 0.9569)),
    "wine": (10, 0, False, (0.7997, 0.6940, 0.7006, 0.8509, 0.8515, 0.8515)),
    "digits": (5, 20, True, (0.6574, 0.3193, 0.2548, 0.6619, 0.6634, 0.6634)),
}
"""Neighbours, principal components, whether raw, and the means of `SPHERES`."""


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", default="wine")
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--count", type=int, default=65)
    parser.add_argument("--pca", type=int, default=0)
    parser.add_argument("--raw", action="store_true", help="do not standardise")
    parser.add_argument("--rules", action="store_true")
    args = parser.parse_args()
    known = None
    if args.data in KNOWN:
        X, y = getattr(datasets, f"load_{args.data}")(return_X_y=True)
        args.k, args.pca, args.raw, known = KNOWN[args.data]
    else:
        data = read_table(args.data)
        X, y = data.X, data.y
    X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=float)
    X = X[:, X.std(axis=0) > 0]
    if not args.raw:
        X = (X - X.mean(axis=0)) / X.std(axis=0)
    if args.pca:
        middle = X - X.mean(axis=0)
        X = middle @ np.linalg.svd(middle, full_matrices=False)[2][: args.pca].T
    T = cvxscreen.triplets(X, y, k=args.k)
    p = cvxscreen.rtlm(X, T, 1.0)
    top = cvxscreen.lambda_max(p)
    columns = [*SPHERES, "predicted"]
    if args.rules:
        columns += ["dgb+linear", "dgb+cone", "gb+linear", "pgb+cone"]
    rates = {name: [] for name in columns}
    before, last = None, cvxscreen.solve(p.with_(lam=top))
    print(f"{len(T):,} triplets\n{'lam/max':>9} " + " ".join(f"{c:>10}" for c in columns))
    for step in range(1, args.count + 1):
        here = p.with_(lam=top * 0.9**step)
        ahead = 2.0 * last.x - before.x if before is not None else last.x
        decided = []
        for name in columns:
            if name == "predicted":
                found = cvxscreen.screen(here, reference=reference_point(here, ahead))
            else:
                bound, _, rule = name.partition("+")
                found = cvxscreen.screen(
                    here, reference=last, bound=bound, rule=rule or "sphere"
                )
            decided.append(int((found.zero | found.linear).sum()))
        before, last = last, cvxscreen.solve(here, start=last)
        margins = here.design.forward(last.x)
        can_be = int(((margins > 1.0) | (margins < 0.95)).sum())
        for name, count in zip(columns, decided, strict=True):
            rates[name].append(count / can_be)
        if step % 10 == 0:
            print(f"{0.9**step:9.2e} " + " ".join(f"{rates[c][-1]:10.4f}" for c in columns),
                  flush=True)
    means = {c: float(np.mean(rates[c])) for c in columns}
    print(f"{'mean':>9} " + " ".join(f"{means[c]:10.4f}" for c in columns))
    if known is not None:
        print(f"{'known':>9} " + " ".join(f"{v:10.4f}" for v in known))
        off = max(abs(means[c] - v) for c, v in zip(SPHERES, known, strict=True))
        print(f"{off:.4f} apart at most")
    in_order = means["dgb"] <= means["rrpb"] <= means["midpoint"] + 5e-4
    print("DGB <= RRPB <= midpoint <= PGB:", in_order and means["midpoint"] <= means["pgb"] + 5e-4)


if __name__ == "__main__":
    main()
