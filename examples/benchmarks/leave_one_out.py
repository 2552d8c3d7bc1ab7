"""Exact leave-one-out errors: what one pass decides, and what refits of the rest cost.

    OMP_NUM_THREADS=1 python examples/benchmarks/leave_one_out.py [DATA] [--out leave_one_out.json]

Sets from DATA (a folder with NAME.npz; those it lacks are left out) and breast cancer; features
standardised, C = 1, no intercept, unless the row says so. CPU seconds of this process; run
``cvxscreen warmup`` before; first small calls, before the clock starts, load what it compiled.
"Warm" is a refit without one support vector from the solution, screened (`cvxscreen.remove`);
"cold" is `solve` of the problem without it. Both are timed on `--sampled` of the support vectors
and multiplied: nobody waits for them all. Who has no such tool does not know which terms change
nothing, and fits n times from nothing: "all n" is the mean of the cold fits times n.
Folds: what the ball that removing a fold leaves decides, and K calls of `remove` and of `solve`.
Each sampled refit also checks the class that was decided: `wrong` must be 0.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import scipy.sparse as sp
from report import with_origin

import cvxscreen
from cvxscreen._support.tables import table
from cvxscreen.certificates.weightings import LeftOut
from cvxscreen.data_changes.bootstrap import BLOCK, Replicates, together
from cvxscreen.data_changes.reweight import taken

TIGHT = 1e-9
"""Relative gap of the solution on all terms."""


def loaded(folder: Path, name: str) -> tuple[Any, np.ndarray]:
    """Features, standardised, and the target of a set."""
    with np.load(folder / f"{name}.npz", allow_pickle=False) as data:
        if "X" in data:
            X = np.asarray(data["X"], dtype=float)
        else:
            parts = (data["X_data"], data["X_indices"], data["X_indptr"])
            X = sp.csr_matrix(parts, shape=tuple(data["X_shape"])).toarray()
        y = np.asarray(data["y"], dtype=float)
    spread = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0), y


def problems(folder: Path | None) -> Iterator[tuple[str, cvxscreen.Problem]]:
    """What is left out of."""
    X, y = cvxscreen.datasets.breast_cancer()
    yield "breast cancer", cvxscreen.svm(X, y)
    yield "breast cancer, intercept", cvxscreen.svm(X, y, intercept=True)
    yield "breast cancer, squared hinge, intercept", cvxscreen.svm(
        X, y, loss="squared_hinge", intercept=True
    )
    rng = np.random.default_rng(5)  # like letter: 20,000 x 16, two groups of many clusters
    centres, group = 2.0 * rng.normal(size=(26, 16)), rng.integers(0, 26, 20_000)
    X = centres[group] + rng.normal(size=(20_000, 16))
    yield "letter-like", cvxscreen.svm(X, np.where(group < 13, 1.0, -1.0), C=0.1)
    if folder is None:
        return
    if (folder / "ijcnn1.npz").exists():
        X, y = loaded(folder, "ijcnn1")
        for C in (0.01, 1.0):
            yield f"ijcnn1, C = {C:g}", cvxscreen.svm(X, y, C=C)
        yield "ijcnn1, intercept, C = 0.01", cvxscreen.svm(X, y, C=0.01, intercept=True)
    if (folder / "cadata.npz").exists():
        X, y = loaded(folder, "cadata")
        yield "cadata, absolute", cvxscreen.regression(X, (y - y.mean()) / y.std())
    if (folder / "satimage.npz").exists():
        X, y = loaded(folder, "satimage")
        yield "satimage, RBF", cvxscreen.svm(
            X, np.where(y == y[0], 1.0, -1.0), kernel="rbf", kernel_params={"gamma": 1.0 / 36}
        )


def checked(solution: cvxscreen.Solution, found: cvxscreen.LeaveOneOut) -> tuple[int, int]:
    """How many decisions were checked by a certified refit, and how many are wrong.

    Every term, those that are proven to change nothing too, and those that were refitted along
    their path: the refit that checks them knows nothing of paths. A decision is wrong where its
    certified interval contradicts it.
    """
    problem, count, wrong = solution.problem, 0, 0
    solver, free = Replicates(solution, 1e-9), problem.quadratic.free.any()
    terms = np.flatnonzero(found.decided)
    for start in range(0, len(terms), BLOCK):
        index = terms[start:start + BLOCK]
        shift = np.zeros(len(index))
        x, gap, ok = solver.solve(LeftOut(index, problem.n), shift if free else None)
        margins = np.einsum("kj,kj->k", problem.design.dense(index), x)
        reach = problem.norms[index] * np.sqrt(2.0 * gap) + shift + 1e-12
        known = ok & (np.abs(margins) > reach)
        says = np.where(found.low[index] > 0, 1.0, -1.0)
        count += int(known.sum())
        wrong += int((known & (says != np.sign(margins))).sum())
    return count, wrong


def folds(solution: cvxscreen.Solution, K: int) -> tuple[float, float, float]:
    """Share of the terms that the ball of a fold decides, CPU seconds of `remove` for the K folds,
    and of making and solving their problems."""
    problem, decided, balls, plain = solution.problem, 0.0, 0.0, 0.0
    fold = np.random.default_rng(0).permutation(problem.n) % K
    for k in range(K):
        change, spent = seconds(
            lambda k=k: cvxscreen.remove(solution, np.flatnonzero(fold == k), tol=1e-7)
        )
        balls, decided = balls + spent, decided + (~change.verdict.undecided).mean() / K
        kept = np.flatnonzero(fold != k)
        plain += seconds(lambda i=kept: cvxscreen.solve(taken(problem, i), tol=1e-7))[1]
    return float(decided), balls, plain


def seconds(work: Any) -> tuple[Any, float]:
    """What a call returns, and its CPU seconds."""
    began = process_time()
    found = work()
    return found, process_time() - began


def stored(out: Path | None, rows: list[dict[str, Any]]) -> None:
    """Write the rows to the file `out`, if one was named, with the machine and the versions."""
    if out is not None:
        out.write_text(json.dumps(with_origin(rows), indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--sampled", type=int, default=20)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--check", action="store_true",
                        help="check every decision by a refit of another kind; minutes")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    small, labels = cvxscreen.datasets.two_gaussians(300, 4)
    for beside in (False, True):
        solution = cvxscreen.solve(cvxscreen.svm(small, labels, intercept=beside))
        cvxscreen.leave_one_out(solution)
        cvxscreen.remove(solution, [0])
    if asked.check:
        rows, done = [], set()
        for name, problem in problems(asked.folder):
            if problem.kind != "svm" or not together(problem):
                continue
            data = name.split(", C =")[0]
            for C in (0.1 * problem.C, problem.C, 10.0 * problem.C):
                if (data, f"{C:g}") in done:
                    continue
                done.add((data, f"{C:g}"))
                solution = cvxscreen.solve(problem.with_(C=C), tol=TIGHT)
                found = cvxscreen.leave_one_out(solution)
                count, bad = checked(solution, found)
                rows.append({
                    "name": data, "C": C, "checked": count, "wrong": bad,
                    "refitted": int((found.refitted & found.decided).sum()),
                })
                print(f"{data}, C = {C:g}: {count:,} decisions checked, {bad} wrong", flush=True)
        total, wrong = (sum(row[key] for row in rows) for key in ("checked", "wrong"))
        print(f"all: {total:,} decisions checked, {wrong} wrong")
        if not total:
            parser.error("nothing was checked: the loops are not compiled (`cvxscreen warmup`)")
        stored(asked.out, rows)
        return
    rng, rows, results = np.random.default_rng(0), [], []
    for name, problem in problems(asked.folder):
        solution, fit = seconds(lambda p=problem: cvxscreen.solve(p, tol=TIGHT))
        quick, bounded = seconds(lambda s=solution: cvxscreen.leave_one_out(s, refit=False))
        found, whole = seconds(lambda s=solution: cvxscreen.leave_one_out(s, tol=1e-7))
        support = np.flatnonzero(~solution.screening.zero)
        chosen = rng.choice(support, min(asked.sampled, len(support)), replace=False)
        warm = cold = 0.0
        wrong = 0
        for i in chosen:
            change, spent = seconds(lambda i=i, s=solution: cvxscreen.remove(s, [i], tol=1e-7))
            warm += spent
            others = taken(problem, np.flatnonzero(np.arange(problem.n) != i))
            _, spent = seconds(lambda p=others: cvxscreen.solve(p, tol=1e-7))
            cold += spent
            if problem.kind != "kernel" and problem.d < problem.n:
                [true] = problem.design.take_rows(np.array([i])).forward(change.solution.x)
                if not found.classification:
                    true = problem.losses.b[i] - true
                slack = 1e-2 * (1.0 + abs(true))
                wrong += not (found.low[i] - slack <= true <= found.high[i] + slack)
        every = cold / len(chosen) * problem.n
        warm, cold = (t / len(chosen) * len(support) for t in (warm, cold))
        least, most = found.errors
        by_ball, with_ball, without = folds(solution, asked.folds)
        results.append({
            "name": name, "n": problem.n, "d": problem.d, "support": len(support),
            "decided_by_one_pass": float(quick.decided.mean()),
            "refitted": int(found.refitted.sum()), "undecided": int((~found.decided).sum()),
            "error": [least, most], "fit": fit, "pass": bounded, "all": whole,
            "warm_refits": warm, "cold_refits": cold, "cold_refits_of_all": every,
            "sampled": len(chosen), "wrong": wrong,
            "decided_by_the_ball_of_a_fold": by_ball, "folds_from_the_ball": with_ball,
            "folds_without": without,
        })
        rows.append((
            name, problem.n, len(support), f"{quick.decided.mean():.1%}",
            int(found.refitted.sum()), f"{least:.5g}", f"{most:.5g}", fit, bounded, whole,
            f"{warm / whole:,.0f}", f"{cold / whole:,.0f}", f"{every / whole:,.0f}", wrong,
        ))
        print(table(
            ("data", "n", "support", "one pass", "refits", "error", "to", "fit, s", "pass, s",
             "all, s", "warm / all", "cold / all", "all n / all", "wrong"), rows[-1:],
        ), flush=True)
    stored(asked.out, results)


if __name__ == "__main__":
    main()
