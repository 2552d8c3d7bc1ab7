"""Each table of the five papers beside ours, with the preparation that reproduces it.

    OMP_NUM_THREADS=1 python examples/benchmarks/papers.py DATA_FOLDER [PART ...] [--quick]
    python examples/benchmarks/papers.py --page

Parts, with their CPU minutes: wang (8), rows (1), ogawa (6), work (1), curves (1), yoshida (5),
shibagaki (1), chen (7); each can be run by itself. What is measured goes to
results/papers/tables.json with the revision it was measured on, part by part (a short run never
replaces a whole one); ``--page`` writes docs/papers_tables.md from it. CPU seconds of one thread:
compare factors, not seconds; ``cvxscreen warmup`` first, or ours run without compiled loops for a
while. Data: ``NAME.npz`` files; without a folder what needs none is run.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from time import process_time

import dvi_tables
import numpy as np
import ogawa_tables
from multitask import auc, compare, grids, load as load_tasks
from sklearn import datasets
from sklearn.neighbors import KNeighborsClassifier
from sparse_models import along
from sparse_pictures import GAPS, ROWS, measured
from sparse_sets import load as load_sparse

import cvxscreen
from cvxscreen._support.tables import table
from cvxscreen.models.files import read_table
from cvxscreen.solvers.metric.sequence import iterate_path

HERE = Path(__file__).resolve().parent
STORED = HERE / "results" / "papers" / "tables.json"
PAGE = HERE.parents[1] / "docs" / "papers_tables.md"

Table = tuple[str, str, str, tuple[str, ...], list]
"""Key, title, what was done, header, rows."""

RANGES = {
    "iris": (1.3e7, 2.3e1), "wine": (2.0e7, 5.1e1), "segment": (2.5e6, 4.2),
    "satimage": (1.0e7, 8.8), "phishing": (5.0e3, 2.0e-1),
}
"""Largest and smallest lambda of Table 2 of Yoshida et al., for the sets that are here."""
NEIGHBOURS = {"iris": None, "wine": None, "segment": 20, "satimage": 15, "phishing": 7}
"""Their k; None for all."""
TRIPLETS = {"iris": 546668, "wine": 910224, "segment": 832000, "satimage": 898200,
            "phishing": 487550}
"""Theirs, means over their draws."""
DRAWS = 5
"""Draws of nine tenths of the points that are gone along to the smallest lambda, as in the paper.
"""
TOPS = 20
"""Draws of which the largest lambda is looked at."""
GAMMA = 0.05
"""The width of the smoothed hinge's corner, as in the paper."""
RANGES_NOTE = (
    "Features scaled to [-1, 1] (satimage by the ranges of all its 6,435 points, phishing as it "
    "is), draws of floor(0.9 n) + 1 points: with that many the counts of triplets are the paper's. "
    "The paper begins where the first term has no loss, at `1 - gamma` times `lambda_max`, or up "
    "to a tenth below on its grid; it averages the smallest lambda over five draws, but not the "
    "largest: its ten values are round (2.0e7, 1.0e7, 5.0e3). In reach: of 20 draws there are some "
    "in which that grid may begin at the paper's value; by the ranges of its 4,435 points alone "
    "satimage has none. The smallest lambda is where the loss falls by less than a hundredth of "
    "lambda's fall, a mean over five draws; the draws differ by up to four times on wine, and a "
    "shift of the grid moves it by up to a tenth."
)
RANGES_HEADER = ("set", "n", "d", "triplets", "paper", "terms without loss from", "of 20 draws",
                 "paper ", "in reach", "lambda_min", "of 5 draws ", "paper  ")


def metric_data(folder: Path | None, name: str, own: bool = False
                ) -> tuple[np.ndarray, np.ndarray]:
    """Features scaled to [-1, 1], as LIBSVM's files have them; those of phishing have norm 1.

    Of satimage the first 4,435 points, by their `own` ranges or by those of all 6,435.
    """
    if name in ("iris", "wine"):
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    else:
        assert folder is not None
        data = read_table(folder / f"{name}.npz")
        X, y = data.X, data.y
        X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=float)
    if name == "phishing":
        return X, y
    train = 4435 if name == "satimage" else None
    low, high = X[: train if own else None].min(axis=0), X[: train if own else None].max(axis=0)
    some = high > low
    return 2.0 * (X[:train, some] - low[some]) / (high - low)[some] - 1.0, y[:train]


def flat_from(problem: cvxscreen.Problem, top: float) -> float:
    """The lambda at which the loss hardly falls (the paper's rule, ratio 0.9), or 0."""
    before = None
    for station in iterate_path(problem, top * 0.9 ** np.arange(1, 200)):
        lam, loss = float(station.problem.lam), station.loss
        if before is not None and before[1] > 0:
            fall = (before[1] - loss) / before[1] * before[0] / (before[0] - lam)
            if fall < 0.01 and lam < 0.01 * top:
                return lam
        before = lam, loss
    return 0.0


def ranges_of(X: np.ndarray, y: np.ndarray, name: str, quick: bool) -> list:
    """One row of Table 2: means over draws of nine tenths of the points, and the draws' ranges."""
    k, sizes, tops, least = NEIGHBOURS[name], [], [], []
    for seed in range(1 if quick else TOPS):
        some = np.random.default_rng(seed).permutation(len(y))[: int(0.9 * len(y)) + 1]
        T = cvxscreen.triplets(X[some], y[some], k=len(y) if k is None else k)
        problem = cvxscreen.rtlm(X[some], T, 1.0)
        top = cvxscreen.lambda_max(problem)
        tops.append((1.0 - GAMMA) * top)
        if seed < DRAWS:
            sizes.append(len(T))
            least.append(flat_from(problem, top))
    largest, smallest = RANGES[name]
    # The paper has two digits: half a unit of the second either way.
    half = 0.05 * 10.0 ** np.floor(np.log10(largest))
    reached = 0.9 * min(tops) <= largest + half and max(tops) >= largest - half
    return [name, int(0.9 * len(y)) + 1, X.shape[1], round(np.mean(sizes)), TRIPLETS[name],
            float(np.mean(tops)), between(tops), largest, "yes" if reached else "no",
            float(np.mean(least)), between(least), smallest]


def between(values: list[float]) -> str:
    """The smallest and the largest."""
    return f"{min(values):.3g} to {max(values):.3g}" if len(values) > 1 else "one"


def yoshida(folder: Path | None, quick: bool) -> Iterator[Table]:
    """Table 2's ranges of lambda, and Figure 12."""
    rows = []
    for name in RANGES:
        if (folder is None or quick) and NEIGHBOURS[name] is not None:
            continue
        rows.append(ranges_of(*metric_data(folder, name), name, quick))
        if name == "satimage":
            own = ranges_of(*metric_data(folder, name, own=True), name, quick)
            rows.append(["own ranges", *own[1:]])
    yield ("yoshida-ranges", "Yoshida et al., Table 2: ranges of lambda",
           RANGES_NOTE, RANGES_HEADER, rows)
    if folder is None:
        return
    X, y = metric_data(folder, "phishing")
    n, splits = (500, 1) if quick else (5000, 5)
    rows = []
    for k in (2, 4) if quick else (2, 4, 6, 9, 12, 15):
        found = np.mean([error_of(X, y, k, n, seed) for seed in range(splits)], axis=0)
        rows.append([k, round(found[0]), *(round(float(v), 2) for v in found[1:])])
    yield ("yoshida-error", "Yoshida et al., Figure 12: test error against k, phishing",
           f"{n:,} points, 60 % learn, 20 % choose lambda of 12 in [0.1, 1e5], 20 % test; mean of "
           f"{splits} splits (the paper: ten splits of all 11,055). Errors in %. The paper's "
           "curves fall to k = 6 (10 NN), 12 (20 NN) and 15 (30 NN).",
           ("k", "triplets", "path s", "10 NN", "20 NN", "30 NN"), rows)


def error_of(X: np.ndarray, y: np.ndarray, k: int, n: int, seed: int) -> list[float]:
    """Triplets, seconds of the path and the test errors of one split."""
    train, choose, test = np.split(
        np.random.default_rng(seed).permutation(len(y))[:n], [6 * n // 10, 8 * n // 10]
    )
    began = process_time()
    T = cvxscreen.triplets(X[train], y[train], k=k)
    problem = cvxscreen.rtlm(X[train], T, 1.0)
    found = cvxscreen.path(problem, over="lam", values=np.geomspace(1e5, 0.1, 12))
    row: list[float] = [len(T), process_time() - began]
    learned = [cvxscreen.factor_of(problem, p.x) for p in found.points]
    for near in (10, 20, 30):
        scores = [knn(L, X, y, train, choose, near) for L in learned]
        best = learned[int(np.argmax(scores))]
        row.append(100 * (1 - knn(best, X, y, train, test, near)))
    return row


def knn(L: np.ndarray, X: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray,
        near: int) -> float:
    """Accuracy of nearest neighbours under the metric ``L' L``."""
    if not len(L):
        return 0.0
    vote = KNeighborsClassifier(near).fit(X[train] @ L.T, y[train])
    return float(vote.score(X[test] @ L.T, y[test]))


def shibagaki(folder: Path | None, quick: bool) -> Iterator[Table]:
    """Figures 2, 7 and 8 as numbers, the totals of Figures 3 and 5, and Figures 4 and 6."""
    if folder is None:
        return
    rows, totals, steps = [], [], []
    names = ("colon",) if quick else ("colon", "pcmac_7511", "madelon")
    for name in names:
        X, y = load_sparse(folder, name)
        for kind, door in (("svc", cvxscreen.sparse_svm), ("svr", cvxscreen.sparse_svr)):
            base = door(X, y, 1.0)
            top = cvxscreen.lambda_max(base)
            for share in (0.5, 0.1):
                found, many = measured(base.with_(lam=share * top))
                for row, what in enumerate(ROWS):
                    alone, added, kept = found[:, :, row].T
                    rows.append([name, kind, share, what, many[row],
                                 *(percent(v) for v in (*alone[[0, 2, 5]], *added[[0, 2, 5]],
                                                        *kept[[2, 5]]))])
        base = cvxscreen.sparse_svm(X, y, 1.0)
        grid = cvxscreen.lambda_max(base) * np.geomspace(1.0, 0.05, 5 if quick else 20)
        ways = [("safe", way) for way in ("none", "features", "samples", "both")]
        for solver in ("sdca",) if quick else ("sdca", "spdc"):
            walked = along(base, grid, ways, solver)
            seconds = walked[:, :, 0].sum(axis=0)
            if solver == "spdc":
                steps += by_lambda(name, grid, walked)
            totals.append([name, solver, *(round(float(s), 2) for s in seconds),
                           round(float(seconds[0] / seconds[3]), 1)])
    gaps = [f"{GAPS[k]:.0e}" for k in (0, 2, 5)]
    yield ("shibagaki-rates", "Shibagaki et al., Figures 2, 7 and 8: what iterates of SDCA prove",
           "In % of what there is to decide, by the relative gap of the iterate: a rule alone, "
           "what both together add (synergy), and what is proven to stay (safe keeping).",
           ("set", "model", "lambda / max", "of", "there are", *(f"alone {g}" for g in gaps),
            *(f"added {g}" for g in gaps), *(f"kept {g}" for g in gaps[1:])), rows)
    yield ("shibagaki-times", "Shibagaki et al., Figures 3 and 5: total CPU seconds of a path",
           f"{5 if quick else 20} values of lambda from the largest to a twentieth, relative gap "
           "1e-6. The paper's bars: both is fastest on all sets.",
           ("set", "solver", "none", "features", "samples", "both", "none / both"), totals)
    if steps:
        yield ("shibagaki-steps", "Shibagaki et al., Figures 4 and 6: SPDC along lambda",
               STEPS_NOTE, STEPS_HEADER, steps)


STEPS_NOTE = (
    "Classification; steps of SPDC and CPU seconds at every fourth lambda of the path above. The "
    "paper's sets (real-sim and rcv1-test in Figure 4, rcv1-train in 6) are none of these. Its "
    "text on them: features save more than samples at large lambda, the difference shrinks with "
    "lambda, both together are fastest. Here both together take the fewest steps everywhere, and "
    "features save more than samples on colon and madelon."
)
STEPS_HEADER = ("set", "lambda / max", "steps: none", "features", "samples", "both", "s: none",
                "features ", "samples ", "both ")


def by_lambda(name: str, grid: np.ndarray, walked: np.ndarray) -> list[list]:
    """Figures 4 and 6: passes and seconds of each way at every fourth lambda."""
    return [
        [name, round(float(grid[k] / grid[0]), 3), *map(int, walked[k, :, 1]),
         *(round(float(v), 3) for v in walked[k, :, 0])]
        for k in range(3, len(grid), 4)
    ]


def percent(share: float) -> float | str:
    """Rounded; empty where there was nothing to decide."""
    return "" if np.isnan(share) else round(100 * float(share), 1)


def chen(folder: Path | None, quick: bool, splits: int) -> Iterator[Table]:
    """Landmine: does sharing a subspace predict better than tasks alone, or all together?"""
    if folder is None:
        return
    X, y, task = load_tasks(folder, "landmine_mtl")
    settings = grids((1e-3, 1e-2, 1e-1, 1.0, 10.0), (0.01, 0.1, 1.0), (1, 2))
    lines = compare(X, y, task, "hinge", auc, settings, 0.5, 2 if quick else splits, True)
    found = {kind: np.array([line[2] for line in lines if line[1] == kind]) for kind in settings}
    rows = []
    for kind, values in found.items():
        away = found["rASO"] - values
        error = away.std(ddof=1) / np.sqrt(len(away)) if len(away) > 1 else 0.0
        rows.append([kind, len(values), round(float(values.mean()), 4),
                     round(float(values.std(ddof=1) / np.sqrt(len(values))), 4),
                     round(float(away.mean()), 4), round(float(error), 4), int((away > 0).sum())])
    yield ("chen-landmine", "Chen et al.'s model on landmine: mean area under the curve",
           "Half of every task trains; alpha, eta and h chosen by cross-validation inside it, "
           "alpha of five from 1e-3 to 10 for everyone. The difference is of pairs, split by "
           "split.",
           ("model", "splits", "AUC", "standard error", "rASO minus it", "its standard error",
            "splits won by rASO"), rows)


def git(*arguments: str) -> str:
    """What git says of the checkout that this file is in."""
    asked = ["git", "-C", str(HERE), *arguments]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


def made_with() -> dict:
    """What the figures were measured with."""
    packages = ("numpy", "scipy", "numba", "scikit-learn")
    revision = git("rev-parse", "--short=7", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/", f":!{STORED.parent}")
    return {
        "revision": revision + "-dirty" * bool(changed),
        "machine": platform.machine(), "python": platform.python_version(),
        "versions": {name: version(name) for name in packages},
    }


def page(stored: dict) -> str:
    """docs/papers_tables.md."""
    revisions = sorted({entry["revision"] for entry in stored.values()})
    lines = [
        "# The papers' tables beside ours", "",
        "Written by `examples/benchmarks/papers.py --page` from the results stored beside it, of "
        f"revision {', '.join(revisions)}.", "CPU seconds of one thread on a shared machine: "
        "compare factors, not seconds. Statements and calls:", "[the five papers](papers.md).",
    ]
    for entry in stored.values():
        short = " *A short run (`--quick`): few sets, short grids.*" if entry["quick"] else ""
        lines += ["", f"## {entry['title']}", "", entry["note"] + short, "",
                  "| " + " | ".join(h.strip() for h in entry["header"]) + " |",
                  "|" + "---|" * len(entry["header"])]
        lines += ["| " + " | ".join(cell(v) for v in row) + " |" for row in entry["rows"]]
    return "\n".join(lines) + "\n"


def cell(value: object) -> str:
    """A number as a reader wants it."""
    if isinstance(value, float) and value and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.1e}"
    if isinstance(value, float):
        return f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("parts", nargs="*", default=[])
    parser.add_argument("--quick", action="store_true", help="small sets and short grids")
    parser.add_argument("--splits", type=int, default=30, help="of landmine")
    parser.add_argument("--without", nargs="*", default=[], help="sets of part wang to leave out")
    parser.add_argument("--page", action="store_true", help="write the page from what is stored")
    args = parser.parse_args()
    parts: dict[str, Callable[[Path | None, bool], Iterator[Table]]] = {
        "wang": partial(dvi_tables.tables, left_out=tuple(args.without)),
        "rows": dvi_tables.rows_tables, "ogawa": ogawa_tables.tables, "work": ogawa_tables.work,
        "curves": ogawa_tables.curves, "yoshida": yoshida, "shibagaki": shibagaki,
        "chen": partial(chen, splits=args.splits),
    }
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    if args.page:
        PAGE.write_text(page(stored), "utf-8")
        return
    for name in args.parts or parts:
        for key, title, note, header, rows in parts[name](args.folder, args.quick):
            print(title, note, table(header, rows), sep="\n", flush=True)
            if args.quick and not stored.get(key, {"quick": True})["quick"]:
                continue
            stored[key] = {
                "title": title, "note": note, "quick": args.quick, "header": header, "rows": rows,
                **made_with(),
            }
            STORED.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
