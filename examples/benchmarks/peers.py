"""One cold fit against every peer that is installed, problem by problem.

    OMP_NUM_THREADS=1 python examples/benchmarks/peers.py [DATA] [--out peers.json]
    python examples/benchmarks/peers.py --read peers.json --write docs/benchmarks.md

Peers: LIBLINEAR and LIBSVM (scikit-learn's, and `liblinear-official`, `libsvm-official`), rehline,
skglm, statsmodels, HiGHS through scikit-learn's `QuantileRegressor`. (celer solves none of these
problems: its losses are the square and the logistic one.) Data come from scikit-learn; DATA is a
folder with further NAME.npz.

A peer gets the loosest of its tolerances whose answer is within the target of the optimum. The
judge is in this file: primal and dual values from the data, nothing of the package. CPU seconds of
this process, the least of `--repeat` runs in turns, the validation of data included; one fit of
each beforehand compiles. Ours are those of a process in which what is compiled is loaded
(`cvxscreen warmup` compiles it): `first_calls.py` has the fits before that.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import process_time

import numpy as np
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    make_classification,
    make_friedman1,
)
from sklearn.linear_model import QuantileRegressor
from sklearn.svm import SVC, LinearSVC

import cvxscreen
from cvxscreen.solvers.compiled_path.segments import LOADING, compile_now

TARGET = {"hinge": 1e-6, "squared hinge": 1e-6, "rbf": 1e-4, "quantile": 1e-6, "huber": 1e-6}
"""Relative gap asked for."""
TOLERANCES = 10.0 ** np.arange(0.0, -8.1, -0.5)
LONG = 1.0
"""CPU seconds after which a looser tolerance than is needed is the last that is tried."""
FEW = 5000
"""Most rows of which the judge holds the matrix of a kernel."""
PACKAGES = (
    "cvxscreen", "scikit-learn", "rehline", "skglm", "liblinear-official", "libsvm-official",
    "statsmodels", "celer", "numba", "numpy", "scipy",
)
BEGIN, END = "<!-- peers: begin -->", "<!-- peers: end -->"


# -- the judge ------------------------------------------------------------------------------------


def kernel_matrix(X):
    """``exp(-|x - z|^2 / d)``."""
    squares = (X * X).sum(axis=1)
    apart = np.maximum(squares[:, None] + squares - 2.0 * X @ X.T, 0.0)
    return np.exp(-apart / X.shape[1])


def primal(kind: str, data, x) -> float:
    """The objective at the weights x, or (rbf) at coefficients and intercept."""
    X, y, C = data
    if kind == "rbf":
        f = X @ x[:-1]
        return float(0.5 * x[:-1] @ f + C * np.maximum(0.0, 1.0 - y * (f + x[-1])).sum())
    if kind == "quantile":
        r = y - X @ x[:-1] - x[-1]
        return float(np.maximum(0.5 * r, -0.5 * r).sum())
    t = X @ x
    if kind == "huber":
        r = np.abs(y - t)
        return float(0.5 * x @ x + C * np.where(r <= 1.0, 0.5 * r * r, r - 0.5).sum())
    behind = np.maximum(0.0, 1.0 - y * t)
    return float(0.5 * x @ x + C * (0.5 * behind @ behind if "squared" in kind else behind.sum()))


def dual(kind: str, data, alpha) -> float:
    """The dual objective at a feasible point made from alpha."""
    X, y, C = data
    if kind == "rbf":
        alpha = np.clip(alpha, 0.0, C)
        for sign in (1.0, -1.0):  # take from the side that is too heavy
            excess, side = float(sign * (y @ alpha)), y == sign
            if excess > 0.0:
                alpha[side] *= 1.0 - excess / alpha[side].sum()
        return float(alpha.sum() - 0.5 * (y * alpha) @ X @ (y * alpha))
    if kind == "quantile":
        # alpha' X = 0 and sum alpha = 0 are met by projection; what leaves the box scales it.
        full = np.column_stack([X, np.ones(len(y))])
        alpha = alpha - full @ np.linalg.lstsq(full, alpha, rcond=None)[0]
        return float(alpha @ y) / max(1.0, 2.0 * float(np.abs(alpha).max()))
    if kind == "huber":
        alpha = np.clip(alpha, -C, C)
        v = X.T @ alpha
        return float(alpha @ y - alpha @ alpha / (2.0 * C) - 0.5 * v @ v)
    squared = kind == "squared hinge"
    alpha = np.clip(alpha, 0.0, np.inf if squared else C)
    v = X.T @ (y * alpha)
    return float(alpha.sum() - 0.5 * v @ v - (alpha @ alpha / (2.0 * C) if squared else 0.0))


# -- who solves what -------------------------------------------------------------------------------


def ours(kind: str, X, y, C: float, tol: float):
    """A solution of this package: its point in the judge's form, and its alpha."""
    if kind in ("hinge", "squared hinge"):
        problem = cvxscreen.svm(X, y, C=C, loss=kind.replace(" ", "_"))
    elif kind == "rbf":
        problem = cvxscreen.svm(X, y, C=C, kernel="rbf", intercept=True)
    elif kind == "huber":
        problem = cvxscreen.regression(X, y, C=C, loss="huber")
    else:
        problem = cvxscreen.regression(X, y, C=np.inf, loss="quantile", tau=0.5, intercept=True)
    found = cvxscreen.solve(problem, tol=tol)
    x = found.x
    if kind in ("rbf", "quantile"):
        x = np.append(found.w, found.intercept)
    return x, found.alpha, found.certificate.ok


def liblinear(dual_form: bool) -> Callable[..., np.ndarray]:
    """Coordinate descent in the dual, or Newton in the primal (squared hinge)."""
    def fit(kind, X, y, C, tol):
        squared = kind == "squared hinge"
        model = LinearSVC(
            C=0.5 * C if squared else C, loss="squared_hinge" if squared else "hinge", tol=tol,
            dual=dual_form, fit_intercept=False, max_iter=10_000, random_state=0,
        )
        return model.fit(X, y).coef_.ravel()

    return fit


def official_liblinear(kind, X, y, C, tol):
    """The authors' own package."""
    from liblinear.liblinearutil import train

    squared = kind == "squared hinge"
    weight = 0.5 * C if squared else C
    model = train(y, X, f"-s {1 if squared else 3} -c {weight:.17g} -e {tol:.17g} -q")
    w = np.array(model.get_decfun()[0])
    return w if model.label[0] == 1 else -w


def rehline(kind, X, y, C, tol):
    """Linear pieces for the hinge, a parabola with them for Huber's loss."""
    from rehline import ReHLine

    model = ReHLine(C=1.0, tol=tol, max_iter=20_000)
    if kind == "hinge":
        model._U, model._V = -C * y.reshape(1, -1), C * np.ones((1, len(y)))
    else:
        root = np.sqrt(C)
        model._Tau = root * np.ones((2, len(y)))
        model._S = root * np.array([[-1.0], [1.0]]) * np.ones((1, len(y)))
        model._T = root * np.array([[1.0], [-1.0]]) * y
    return model.fit(X=X).coef_


def skglm(kind, X, y, C, tol):
    """Coordinate descent on Huber's loss with a squared norm."""
    from skglm import GeneralizedLinearEstimator
    from skglm.datafits import Huber
    from skglm.penalties import L1_plus_L2
    from skglm.solvers import AndersonCD

    penalty = L1_plus_L2(1.0 / (len(y) * C), 0.0)
    solver = AndersonCD(max_iter=500, tol=tol, fit_intercept=False)
    return GeneralizedLinearEstimator(Huber(1.0), penalty, solver).fit(X, y).coef_


def libsvm(kind, X, y, C, tol):
    """scikit-learn's."""
    model = SVC(C=C, gamma=1.0 / X.shape[1], tol=tol, cache_size=1000).fit(X, y)
    c = np.zeros(len(y) + 1)
    c[model.support_], c[-1] = model.dual_coef_[0], model.intercept_[0]
    return c


def official_libsvm(kind, X, y, C, tol):
    """The authors' own package."""
    from libsvm.svmutil import svm_train

    model = svm_train(y, X, f"-t 2 -g {1.0 / X.shape[1]:.17g} -c {C:.17g} -e {tol:.17g} -m 1000 -q")
    sign = 1.0 if model.label[0] == 1 else -1.0
    c = np.zeros(len(y) + 1)
    coefficients = [pair[0] for pair in model.get_sv_coef()]
    c[np.array(model.get_sv_indices()) - 1] = sign * np.array(coefficients)
    c[-1] = -sign * model.rho[0]
    return c


def highs(kind, X, y, C, tol):
    """The linear program, whose tolerance is its own."""
    model = QuantileRegressor(quantile=0.5, alpha=0.0, solver="highs").fit(X, y)
    return np.append(model.coef_, model.intercept_)


def statsmodels(kind, X, y, C, tol):
    """Reweighted least squares."""
    from statsmodels.regression.quantile_regression import QuantReg

    rows = np.column_stack([X, np.ones(len(y))])
    return QuantReg(y, rows).fit(q=0.5, p_tol=tol, max_iter=20_000).params


PEERS = {
    "hinge": {"LIBLINEAR": liblinear(True), "liblinear-official": official_liblinear,
              "rehline": rehline},
    "squared hinge": {"LIBLINEAR": liblinear(True), "LIBLINEAR primal": liblinear(False),
                      "liblinear-official": official_liblinear},
    "rbf": {"LIBSVM": libsvm, "libsvm-official": official_libsvm},
    "quantile": {"HiGHS": highs, "statsmodels": statsmodels},
    "huber": {"rehline": rehline, "skglm": skglm},
}


# -- the data --------------------------------------------------------------------------------------


def standardised(X):
    """Columns of mean 0 and deviation 1; constant ones left out."""
    X = np.asarray(X, dtype=float)
    spread = X.std(axis=0)
    return np.ascontiguousarray((X - X.mean(axis=0))[:, spread > 0] / spread[spread > 0])


def scaled(y):
    """Targets of mean 0 and deviation 1."""
    return (y - y.mean()) / y.std()


def sets(folder: Path | None, small: bool) -> Iterator[tuple[str, np.ndarray, np.ndarray, bool]]:
    """Name, rows, target, and whether that is labels; what takes longest comes last."""
    X, y = load_breast_cancer(return_X_y=True)
    yield "breast cancer", standardised(X), np.where(y, 1.0, -1.0), True
    if small:
        return
    X, y = load_diabetes(return_X_y=True)
    yield "diabetes", standardised(X), scaled(y), False
    for name, n, d in (("Friedman 1, small", 100, 5), ("Friedman 1", 3000, 10)):
        X, y = make_friedman1(n, d, noise=1.0, random_state=0)
        yield name, standardised(X), scaled(y), False
    X, y = make_classification(100, 5, n_redundant=0, flip_y=0.05, random_state=0)
    yield "generated, small", standardised(X), np.where(y, 1.0, -1.0), True
    X, y = load_digits(return_X_y=True)
    yield "digits, even or odd", standardised(X), np.where(y % 2, 1.0, -1.0), True
    for name, n in (("generated", 3000), ("generated, tall", 10_000)):
        X, y = make_classification(n, 20, n_informative=10, flip_y=0.05, random_state=0)
        yield name, standardised(X), np.where(y, 1.0, -1.0), True
    for file in sorted(folder.glob("*.npz")) if folder else ():
        with np.load(file, allow_pickle=True) as found:
            if "X" not in found or "task" in found:
                continue
            X, y = standardised(found["X"][:5000]), found["y"][:5000]
        if np.issubdtype(y.dtype, np.floating) and len(np.unique(y)) > 20:
            yield file.stem, X, scaled(y), False
        else:
            yield file.stem, X, np.where(y >= np.sort(y)[len(y) // 2], 1.0, -1.0), True


# -- the measurement -------------------------------------------------------------------------------


def gap_of(kind, data, x, bound: float) -> float:
    """Relative distance of the objective at x from what bounds the optimum from below."""
    value = primal(kind, data, x)
    return (value - bound) / max(abs(value), 1e-300)


def loosest(fit, kind, X, y, C, data, bound: float) -> tuple[float | None, str]:
    """The loosest tolerance that reaches the target, or why there is none."""
    try:
        fit(kind, X, y, C, 0.01)  # compiles
    except ImportError:
        return None, "not installed"
    for tol in TOLERANCES:
        began = process_time()
        x = fit(kind, X, y, C, float(tol))
        if gap_of(kind, data, x, bound) <= TARGET[kind]:
            return float(tol), ""
        if process_time() - began > LONG:
            break
    return None, "target not reached"


def row(kind, X, y, C, repeat: int) -> dict[str, object]:
    """Least CPU seconds of everybody, gaps by the judge."""
    data = (kernel_matrix(X) if kind == "rbf" else X, y, C)
    x, alpha, _ = ours(kind, X, y, C, 1e-9 if kind != "rbf" else 1e-7)
    bound = dual(kind, data, alpha.copy())
    known, gaps, why = {}, {}, {}
    for name, fit in PEERS[kind].items():
        known[name], why[name] = loosest(fit, kind, X, y, C, data, bound)
    times: dict[str, list[float]] = {"cvxscreen": [], **{name: [] for name in known}}
    for _ in range(repeat):
        began = process_time()
        x, alpha, ok = ours(kind, X, y, C, TARGET[kind])
        times["cvxscreen"].append(process_time() - began)
        gaps["cvxscreen"] = gap_of(kind, data, x, bound)
        for name, tol in known.items():
            if tol is not None:
                began = process_time()
                x = PEERS[kind][name](kind, X, y, C, tol)
                times[name].append(process_time() - began)
                gaps[name] = gap_of(kind, data, x, bound)
    seconds = {name: min(spent) for name, spent in times.items() if spent}
    others = [spent for name, spent in seconds.items() if name != "cvxscreen"]
    return {
        "seconds": seconds, "gaps": gaps, "tolerances": known, "certified": bool(ok),
        "without": {name: reason for name, reason in why.items() if reason},
        "ratio": min(others) / seconds["cvxscreen"] if others else None,
    }


def measured(
    folder: Path | None, repeat: int, Cs: tuple[float, ...] = (1.0,), small: bool = False,
    problems: tuple[str, ...] = tuple(PEERS), out: Path | None = None,
) -> dict[str, object]:
    """All rows, with what they were measured on; those that are finished are kept in `out`."""
    rows: list[dict[str, object]] = []
    record = {"machine": machine(), "versions": versions(), "commit": commit(), "rows": rows}
    for name, X, y, labels in sets(folder, small):
        kinds = ("hinge", "squared hinge", "rbf") if labels else ("quantile", "huber")
        kinds = kinds[: 2 if len(y) > FEW else 3]
        for kind in filter(problems.__contains__, kinds):
            for C in (1.0,) if kind == "quantile" else Cs:
                found = row(kind, X, y, C, repeat)
                rows.append({"data": name, "n": len(y), "d": X.shape[1], "problem": kind,
                             "C": None if kind == "quantile" else C, **found})
                print(line(rows[-1]), flush=True)
                store(out, record)
    return record


def store(out: Path | None, record: dict[str, object]) -> None:
    """Write the record where that is asked for."""
    if out:
        out.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


def machine() -> str:
    """The processor's name."""
    try:
        names = [part for part in Path("/proc/cpuinfo").read_text().splitlines() if
                 part.startswith("model name")]
        return names[0].split(":", 1)[1].strip()
    except (OSError, IndexError):
        return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Of the packages that are installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def commit() -> str:
    """Of this checkout; empty where it is none."""
    asked = ["git", "rev-parse", "--short", "HEAD"]
    try:
        done = subprocess.run(asked, cwd=Path(__file__).parent, capture_output=True, text=True,
                              check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def line(found: dict) -> str:
    """One row of the table."""
    others = {name: spent for name, spent in found["seconds"].items() if name != "cvxscreen"}
    told = [f"{name} {1e3 * others[name]:.3g}" for name in sorted(others, key=others.get)]
    told += [f"{name}: {why}" for name, why in found["without"].items() if why != "not installed"]
    mine, ratio = 1e3 * found["seconds"]["cvxscreen"], found["ratio"]
    C = "no ridge" if found["C"] is None else f"{found['C']:g}"
    return (
        f"| {found['data']}, {found['n']:,} x {found['d']} | {found['problem']} | {C} | "
        f"{mine:.3g} | {', '.join(told)} | {'' if ratio is None else f'{ratio:.2g}'} | "
        f"{found['gaps']['cvxscreen']:.0e} |"
    )


def table(record: dict) -> str:
    """The record in Markdown."""
    named = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
    ratios = [found["ratio"] for found in record["rows"] if found["ratio"]]
    mean = float(np.exp(np.mean(np.log(ratios)))) if ratios else float("nan")
    head = [
        f"{record['machine']}, one thread; commit {record['commit'] or 'unknown'}; {named}.",
        "",
        "| data | problem | C | cvxscreen, ms | peers, ms | best peer / ours | gap |",
        "|---|---|---|---|---|---|---|",
    ]
    foot = ["", f"Geometric mean of the ratios: {mean:.2g}."]
    return "\n".join([*head, *map(line, record["rows"]), *foot])


def write(file: Path, text: str) -> None:
    """Put `text` between the markers of `file`."""
    before, rest = file.read_text("utf-8").split(BEGIN)
    after = rest.split(END)[1]
    file.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--read", type=Path, help="a stored record instead of measuring")
    parser.add_argument("--write", type=Path, help="a page with the markers of the table")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--C", type=float, nargs="+", default=[0.01, 1.0, 100.0])
    parser.add_argument("--problems", nargs="+", choices=list(PEERS), default=list(PEERS))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.read:
        record = json.loads(given.read.read_text("utf-8"))
    else:
        compile_now()
        LOADING.spent = LOADING.price
        record = measured(
            given.data, given.repeat, tuple(given.C), problems=tuple(given.problems),
            out=given.out,
        )
    store(given.out, record)
    if given.write:
        write(given.write, table(record))
    else:
        print(table(record))


if __name__ == "__main__":
    main()
