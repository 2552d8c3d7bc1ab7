"""What half and twice of every named number does to time and answers.

    OMP_NUM_THREADS=1 python examples/benchmarks/named_numbers.py [DATA] [--only solvers.rows ...]
        [--store]

A module's or a class's constant in capitals that is a number, or a tuple of numbers (one after the
other), is set to half and to twice its value while everything else stays: whole numbers to whole
ones; a share above a half so that what is missing to 1 doubles and halves; a number below 1e-5, a
tolerance, to a hundredth and to a hundred times. Problems that call a function in which the name
stands (at most `--cases`, from short to long) are solved in turns with
the number as it is, with half and with twice of it; in the table is the sum of the least CPU
seconds, relative to that with the number as it is, and the worst of one problem. Before, up to
`--looks` of them are solved once with either value: of how many any bit of the answer changes
(these are the ones that are timed), and how many are not certified then, raise an error or take
twenty times as long. `problems` are all that call such a function.

What this cannot see: numbers in compiled loops (they are compiled in), in default arguments and in
what is computed at import; sizes that none of the problems here has (they take 1 to 300 ms each).
Noise: rows `nothing` are the same with nothing changed.

Problems: generated ones and, from DATA (a folder with NAME.npz), parts of magic04, cadata, a9a,
pcmac_7511; losses, kernels, L1 norms, metrics, tasks, chunks, changes of data; and the forms of
`never_worse.py` with ``method="screen"``.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import pkgutil
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from types import CodeType
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from never_worse import FORMS
from report import store
from stored_sets import dense, stored

import cvxscreen
from cvxscreen.cli.commands import warm_up
from cvxscreen.datasets import heavy_tailed_regression, sparse_text_like, two_gaussians

ROOT = Path(cvxscreen.__file__).parent
NO_CHOICES = {"_support/rounding.py", "__main__.py", "cli/commands.py", "plots/style.py"}
"""Modules whose numbers are arithmetic, words of the shell, or the looks of a picture."""
CODES = {
    "data_changes.refits": {"HELD", "KINK", "CURVED", "KNOT", "LEVEL", "CURVE"},
    "out_of_core.device": {"_HOST"},
    "solvers.compiled_path.loops": {
        "OFF", "SAFE", "CERTIFIED", "KEPT", "PREDICTED", "REFUTED", "ROUNDS", "STEPS", "PASSES",
        "GAP", "DONE",
    },
}
"""Names that stand for a place in a table or for a kind, by their module."""
LONGEST = 20.0
"""Times the usual seconds, and five seconds, after which (on the wall) a run is given up."""

Answer = tuple[bytes, bool]
Run = Callable[[], Answer]
Imports = dict[tuple[str, str], list[str]]
"""By the module and the name of a constant, the modules that have imported it by its name."""


class Number(NamedTuple):
    """A constant: its module, the class it stands in or nothing, its name, which of a tuple."""

    module: str
    owner: str
    name: str
    index: int | None
    value: float

    def __str__(self) -> str:
        place = self.module.removeprefix("cvxscreen.")
        owner = f"{self.owner}." if self.owner else ""
        return f"{place}:{owner}{self.name}" + ("" if self.index is None else f"[{self.index}]")


# -- the numbers -----------------------------------------------------------------------------------


def numbers_in(body: list[ast.stmt], values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names in capitals, and their values, that are assigned in a module or a class."""
    for line in body:
        target = line.targets[0] if isinstance(line, ast.Assign) else None
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        for name in names:
            if isinstance(name, ast.Name) and name.id.isupper():
                value = values.get(name.id)
                several = value if isinstance(value, tuple) else (value,)
                if several and all(type(v) in (int, float) for v in several):
                    yield name.id, value


def all_numbers() -> Iterator[Number]:
    """Every named number of the package."""
    for file in sorted(ROOT.rglob("*.py")):
        place = file.relative_to(ROOT)
        if str(place) in NO_CHOICES:
            continue
        module = ".".join(("cvxscreen", *place.with_suffix("").parts)).removesuffix(".__init__")
        tree, known = ast.parse(file.read_text("utf-8")), vars(sys.modules[module])
        bodies: list[tuple[str, list[ast.stmt], dict[str, Any]]] = [("", tree.body, known)]
        for part in tree.body:
            if isinstance(part, ast.ClassDef) and "Enum" not in ast.dump(ast.Tuple(part.bases)):
                bodies.append((part.name, part.body, dict(vars(known[part.name]))))
        for owner, body, values in bodies:
            for name, value in numbers_in(body, values):
                if name in CODES.get(module.removeprefix("cvxscreen."), ()):
                    continue
                if isinstance(value, tuple):
                    yield from (Number(module, owner, name, k, v) for k, v in enumerate(value))
                else:
                    yield Number(module, owner, name, None, value)


def varied(value: float) -> tuple[float, float]:
    """Half and twice; of shares and tolerances what stands for it."""
    if isinstance(value, int):
        return max(value // 2, 0 if value == 0 else 1), 2 * value
    if 0.5 < value < 1.0:
        return 1.0 - min(2.0 * (1.0 - value), 0.99), 1.0 - 0.5 * (1.0 - value)
    factor = 100.0 if 0.0 < value < 1e-5 else 2.0
    return value / factor, value * factor


def importers() -> Imports:
    """Where else the package's constants are known by their names."""
    found: Imports = {}
    for module in [name for name in sys.modules if name.startswith("cvxscreen")]:
        file = getattr(sys.modules[module], "__file__", None)
        for line in ast.walk(ast.parse(Path(file).read_text("utf-8"))) if file else ():
            if isinstance(line, ast.ImportFrom) and line.module and not line.level:
                for name in line.names:
                    if name.name.isupper() and name.asname is None:
                        found.setdefault((line.module, name.name), []).append(module)
    return found


@contextlib.contextmanager
def changed(number: Number, value: float, of: Imports) -> Iterator[None]:
    """The package with another value of the number."""
    home: Any = sys.modules[number.module]
    if number.owner:
        places = [getattr(home, number.owner)]
    else:
        names = of.get((number.module, number.name), ())
        places = [home, *(sys.modules[name] for name in names)]
    before = getattr(places[0], number.name)
    after: Any = value
    if number.index is not None:
        after = (*before[: number.index], value, *before[number.index + 1 :])
    for place in places:
        setattr(place, number.name, after)
    try:
        yield
    finally:
        for place in places:
            setattr(place, number.name, before)


# -- the problems ----------------------------------------------------------------------------------


def answer_of(found: Any, tol: float = 1e-6) -> Answer:
    """Bits of a solution or a path, and whether all of it is certified."""
    points = getattr(found, "points", None)
    if points is not None:
        bits = b"".join(np.asarray(point.x).tobytes() for point in points)
        return bits, all(point.relative_gap <= 1.001 * tol for point in points)
    return np.asarray(found.x).tobytes(), found.certificate is None or found.certificate.ok


def linear(X: Any, y: np.ndarray, classes: bool) -> Iterator[tuple[str, Run]]:
    """All losses over one set: cold fits, safe ones, paths, with and without an intercept."""
    names = (
        ("hinge", "smoothed_hinge", "squared_hinge") if classes
        else ("absolute", "quantile", "epsilon", "huber")
    )
    make = cvxscreen.svm if classes else cvxscreen.regression
    for k, loss in enumerate(names):
        for C in (0.01, 1.0, 100.0):
            intercept = bool((k + int(C)) % 2)

            def fit(loss: str = loss, C: float = C, intercept: bool = intercept) -> Answer:
                return answer_of(cvxscreen.solve(make(X, y, C=C, loss=loss, intercept=intercept)))

            yield f"{loss}, C = {C:g}", fit
        for mode in ("certified", "safe"):

            def follow(loss: str = loss, mode: str = mode) -> Answer:
                values = np.geomspace(0.05, 5.0, 8)
                problem = make(X, y, loss=loss, intercept=mode == "safe")
                return answer_of(cvxscreen.path(problem, values=values, mode=mode))

            yield f"{loss}, {mode} path", follow

        def safely(loss: str = loss) -> Answer:
            problem = make(X, y, C=0.3, loss=loss, intercept=True)
            return answer_of(cvxscreen.solve(problem, mode="safe", tol=1e-9))

        yield f"{loss}, safe", safely


def other_models() -> Iterator[tuple[str, Run]]:
    """Kernels, L1 norms, metrics, tasks, chunks, levels, changes of data."""
    X, y = two_gaussians(500, 8, seed=2)
    R, t = heavy_tailed_regression(1500, 6, seed=2)
    W, signs = sparse_text_like(700, 1200, 0.01, seed=2)
    wide, few = two_gaussians(150, 400, seed=3)

    def by_solve(make: Callable[[], Any], **options: Any) -> Run:
        return lambda: answer_of(cvxscreen.solve(make(), **options))

    def by_path(make: Callable[[], Any], **options: Any) -> Run:
        tol = options.get("tol", 1e-6)
        return lambda: answer_of(cvxscreen.path(make(), **options), tol)

    for intercept in (False, True):
        for C in (0.1, 10.0):
            yield f"kernel, C = {C:g}", by_solve(
                lambda C=C, i=intercept: cvxscreen.svm(X, y, C=C, kernel="rbf", intercept=i)
            )
    yield "kernel path", by_path(
        lambda: cvxscreen.svm(X, y, kernel="rbf", intercept=True), values=np.geomspace(0.1, 10, 5)
    )
    yield "kernel, absolute", by_solve(
        lambda: cvxscreen.regression(R[:400], t[:400], kernel="rbf", intercept=True)
    )
    for name, (A, b) in {"dense": (X, y), "wide": (wide, few), "words": (W, signs)}.items():
        for share in (0.3, 0.05):
            yield f"L1, {name}, {share:g}", by_solve(
                lambda A=A, b=b, s=share: cvxscreen.sparse_svm(A, b, s), tol=1e-5
            )
    yield "L1, safe", by_solve(lambda: cvxscreen.sparse_svm(X, y, 0.1), mode="safe", tol=1e-5)
    yield "L1, sdca", by_solve(lambda: cvxscreen.sparse_svm(X, y, 0.1), solver="sdca", tol=1e-3)
    yield "L1, spdc", by_solve(lambda: cvxscreen.sparse_svm(X, y, 0.1), solver="spdc", tol=1e-3)
    yield "L1 regression", by_solve(lambda: cvxscreen.sparse_svr(R, t, 0.1), tol=1e-5)
    yield "L1 alone", by_solve(
        lambda: cvxscreen.svm(X, y, C=0.1, penalty="l1"), tol=1e-6
    )
    yield "L1 alone, absolute", by_solve(
        lambda: cvxscreen.regression(R, t, C=0.1, penalty="l1"), tol=1e-6
    )
    yield "quantiles", by_path(
        lambda: cvxscreen.regression(R, t, loss="quantile", intercept=True), over="tau",
        values=np.linspace(0.1, 0.9, 9),
    )
    chosen = cvxscreen.triplets(X[:80], y[:80], k=4)
    for diagonal in (False, True):
        yield f"metric, {diagonal}", by_solve(
            lambda d=diagonal: cvxscreen.rtlm(X[:80], chosen, 30.0, diagonal=d), tol=1e-4
        )
    yield "metric path", by_path(
        lambda: cvxscreen.rtlm(X[:80], chosen, 100.0), over="lam",
        values=np.geomspace(100.0, 20.0, 4), tol=1e-4,
    )
    tasks = [two_gaussians(80, 6, seed=k) for k in range(4)]
    for loss in ("hinge", "squared_hinge"):
        yield f"tasks, {loss}", by_solve(
            lambda v=loss: cvxscreen.raso(tasks, h=2, alpha=1e-2, beta=1e-2, loss=v), tol=1e-4
        )
    yield "CVaR", by_solve(lambda: cvxscreen.cvar(0.01 * R, 0.95))

    def terms_out() -> Answer:
        fitted = cvxscreen.regression(R[:400], t[:400], loss="huber", intercept=True)
        found = cvxscreen.leave_one_out(cvxscreen.solve(fitted))
        return found.low.tobytes(), found.finished

    def resampled() -> Answer:
        found = cvxscreen.bootstrap(cvxscreen.regression(R[:400], t[:400], intercept=True), 64)
        return found.coefficients.tobytes(), bool(found.certified.all())

    def reweighted() -> Answer:
        fitted = cvxscreen.solve(cvxscreen.svm(X, y, intercept=True))
        return answer_of(cvxscreen.remove(fitted, [3, 5]).solution)

    yield "left out", terms_out
    yield "bootstrap", resampled
    yield "removed", reweighted


def large() -> Iterator[tuple[str, Run]]:
    """Problems of the sizes from which on samples and passes in parts are worth while."""
    X, y = two_gaussians(150_000, 5, seed=5)
    R, t = heavy_tailed_regression(30_000, 10, seed=5)
    W, signs = sparse_text_like(10_000, 4000, 0.002, seed=5)
    for loss in ("hinge", "squared_hinge"):
        yield f"150,000 terms, {loss}", lambda v=loss: answer_of(
            cvxscreen.solve(cvxscreen.svm(X, y, C=0.1, loss=v, intercept=True))
        )
        yield f"10,000 texts, {loss}", lambda v=loss: answer_of(
            cvxscreen.solve(cvxscreen.svm(W, signs, loss=v))
        )
    for loss in ("absolute", "huber"):
        yield f"30,000 terms, {loss}", lambda v=loss: answer_of(
            cvxscreen.solve(cvxscreen.regression(R, t, loss=v, intercept=True))
        )
    yield "30,000 terms, quantiles", lambda: answer_of(cvxscreen.path(
        cvxscreen.regression(R, t, loss="quantile", intercept=True), over="tau",
        values=np.linspace(0.2, 0.8, 5),
    ))
    yield "without a penalty", lambda: answer_of(
        cvxscreen.solve(cvxscreen.regression(R[:8000], t[:8000], C=np.inf, intercept=True))
    )
    yield "CVaR, 30,000 scenarios", lambda: answer_of(cvxscreen.solve(cvxscreen.cvar(0.01 * R)))


def by_name() -> Iterator[tuple[str, Run]]:
    """Solvers that are not the first choice for a problem, asked for by their names."""
    X, y = two_gaussians(600, 30, seed=6)
    W, signs = sparse_text_like(600, 900, 0.02, seed=6)
    L1 = cvxscreen.sparse_svm(W, signs, 0.05)
    fits = {
        "dense": cvxscreen.svm(X, y), "words": cvxscreen.svm(W, signs, intercept=True),
        "smooth words": cvxscreen.svm(W, signs, loss="squared_hinge"), "L1": L1,
    }
    for solver in ("newton", "dcd", "dual_active_set", "interior_point", "apg", "truncated_newton"):
        for kind, problem in fits.items():
            yield f"{solver}, {kind}", lambda p=problem, s=solver: answer_of(
                cvxscreen.solve(p, solver=s, tol=1e-5), 1e-5
            )


def wide_in_cvxpy() -> Iterator[tuple[str, Run]]:
    """Far more columns than rows beside an L1 norm, and a long chain of few shared variables."""
    rng = np.random.default_rng(7)
    X, target = rng.standard_normal((60, 3000)), rng.standard_normal(60)
    path = np.cumsum(rng.standard_normal(1500))

    def solved(cost: Callable[[Any], Any], size: int) -> Run:
        def run() -> Answer:
            w = cp.Variable(size)
            problem = cp.Problem(cp.Minimize(cost(w)))
            problem.solve(method="screen")
            return np.asarray(w.value).tobytes(), problem.status == "optimal"

        return run

    for name, loss in (("absolute", cp.norm1), ("squared", cp.sum_squares), ("norm", cp.norm)):
        yield f"wide, {name}", solved(lambda w, f=loss: f(X @ w - target) + 5.0 * cp.norm1(w), 3000)
    yield "chain, absolute", solved(
        lambda w: cp.norm1(w - path) + 5.0 * cp.norm1(cp.diff(w)), 1500
    )
    yield "chain, squared", solved(
        lambda w: cp.sum_squares(w - path) + 5.0 * cp.norm1(cp.diff(w, 2)), 1500
    )


def in_chunks(folder: Path) -> Iterator[tuple[str, Run]]:
    """Rows that stay on disk."""
    X, y = two_gaussians(6000, 8, seed=4)
    R, t = heavy_tailed_regression(6000, 8, seed=4)
    np.save(folder / "X.npy", X)
    np.save(folder / "R.npy", R)
    from cvxscreen.out_of_core.streams import Mapped

    def mapped(name: str) -> Any:
        return Mapped(np.load(folder / name, mmap_mode="r"), chunk_bytes=2**16)

    yield "chunks, hinge", lambda: answer_of(
        cvxscreen.solve(cvxscreen.svm(mapped("X.npy"), y, C=0.1, intercept=True))
    )
    yield "chunks, Huber", lambda: answer_of(
        cvxscreen.solve(cvxscreen.regression(mapped("R.npy"), t, C=0.1, loss="huber"))
    )


def in_cvxpy(name: str) -> Run:
    """A form of `never_worse.py`, screened."""
    def run() -> Answer:
        problem = FORMS[name](np.random.default_rng(0))
        problem.solve(method="screen")
        report = problem.solver_stats.extra_stats["cvxscreen"]
        values = b"".join(np.asarray(v.value).tobytes() for v in problem.variables())
        return values, problem.status == "optimal" and not report.reason.startswith("failed")

    return run


def all_cases(folder: Path | None, scratch: Path) -> Iterator[tuple[str, Run]]:
    """Name and run of every problem."""
    sets = {
        "gaussians": (*two_gaussians(2500, 12, seed=1), True),
        "heavy tails": (*heavy_tailed_regression(2500, 12, seed=1), False),
        "words": (*sparse_text_like(2000, 1500, 0.01, seed=1), True),
        "wide": (*two_gaussians(200, 300, seed=1), True),
    }
    parts = {"magic04": 3000, "cadata": 3000, "a9a": 3000, "pcmac_7511": 1500}
    for name, rows in parts.items() if folder else ():
        found = stored(folder, name)
        if found is not None:
            some = np.random.default_rng(0).permutation(len(found[1]))[:rows]
            X, y = found[0][some], found[1][some].astype(float)
            if not sp.issparse(X):
                X = dense(X)
                X = (X - X.mean(axis=0)) / X.std(axis=0)
            classes = name != "cadata"
            y = np.where(y > y.min(), 1.0, -1.0) if classes else (y - y.mean()) / y.std()
            sets[name] = X, y, classes
    for name, (X, y, classes) in sets.items():
        for kind, run in linear(X, y, classes):
            yield f"{name}: {kind}", run
    yield from large()
    yield from by_name()
    yield from wide_in_cvxpy()
    yield from other_models()
    yield from in_chunks(scratch)
    for name in FORMS:
        yield f"cvxpy: {name}", in_cvxpy(name)


# -- the measurement -------------------------------------------------------------------------------


class Case(NamedTuple):
    """A problem, its answer, its seconds, and the functions of the package that it calls."""

    name: str
    run: Run
    answer: bytes
    seconds: float
    called: frozenset[tuple[str, int, str]]


class GivenUp(BaseException):
    """A run takes too long."""


def give_up(*_: Any) -> None:
    raise GivenUp


def timed(run: Run, longest: float) -> tuple[Answer, float]:
    """Answer and CPU seconds; an answer that is none where it raises or takes too long."""
    signal.setitimer(signal.ITIMER_REAL, longest)
    began = process_time()
    try:
        found = run()
    except (Exception, GivenUp):  # whatever another number leads to is a failure of it
        found = b"", False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
    return found, process_time() - began


def prepared(name: str, run: Run, longest: float) -> Case | None:
    """A case, or None where it is no use: too long, not certified, or never twice the same."""
    (first, ok), _ = timed(run, 60.0)
    (second, again), seconds = timed(run, 60.0)
    if not (ok and again) or seconds > longest:
        print(f"  left out: {name} ({'too long' if ok else 'not certified'}, {seconds:.2f} s)")
        return None
    called: set[tuple[str, int, str]] = set()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            called.add(place_of(frame.f_code))

    sys.setprofile(note)
    run()
    sys.setprofile(None)
    ours = frozenset(place for place in called if place[0].startswith(str(ROOT)))
    seconds = min(timed(run, 60.0)[1] for _ in range(2))
    return Case(name, run, second if first == second else b"", seconds, ours)


def spread(cases: list[Case], most: int) -> list[Case]:
    """So many of them at most, from the shortest to the longest."""
    ordered = sorted(cases, key=lambda case: case.seconds)
    if len(ordered) <= most:
        return ordered
    return [ordered[k] for k in np.linspace(0, len(ordered) - 1, most).astype(int)]


def changes(number: Number, case: Case, of: Imports) -> tuple[bool, int]:
    """Whether half or twice of a number changes a bit of an answer, and how many of both fail."""
    bits, fails = False, 0
    for value in varied(number.value):
        with changed(number, value, of):
            (found, ok), _ = timed(case.run, LONGEST * case.seconds + 5.0)
        bits |= bool(case.answer) and found != case.answer
        fails += not ok
    return bits, fails


def compared(number: Number | None, cases: list[Case], repeat: int, of: Imports) -> dict[str, Any]:
    """CPU seconds of both variations on these cases, relative to the number as it is."""
    values = [None, None, None] if number is None else [number.value, *varied(number.value)]
    least = np.full((len(cases), 3), np.inf)
    for i, case in enumerate(cases):
        for turn in range(repeat):
            for k in (0, 1, 2) if turn % 2 else (2, 1, 0):
                value = values[k]
                with contextlib.nullcontext() if value is None else changed(number, value, of):
                    _, seconds = timed(case.run, LONGEST * case.seconds + 5.0)
                least[i, k] = min(least[i, k], seconds)
    total, ratios = least.sum(axis=0), least / least[:, :1]
    half, twice = (float(total[k] / total[0]) for k in (1, 2))
    return {
        "timed": len(cases), "half": round(half, 3), "twice": round(twice, 3),
        "half_worst": round(float(ratios[:, 1].max()), 2),
        "twice_worst": round(float(ratios[:, 2].max()), 2),
    }


def effect(row: dict[str, Any]) -> float:
    """How far the seconds move, by the larger of both."""
    return max(abs(row.get(name, 1.0) - 1.0) for name in ("half", "twice"))


def place_of(code: CodeType) -> tuple[str, int, str]:
    """What tells functions apart, compiled from the same source once more too."""
    return code.co_filename, code.co_firstlineno, code.co_name


def users() -> dict[str, set[tuple[str, int, str]]]:
    """By name in capitals, the functions of the package in which, or within which, it stands."""
    found: dict[str, set[tuple[str, int, str]]] = {}

    def look(code: CodeType) -> set[str]:
        names = {name for name in code.co_names if name.isupper()}
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                names |= look(inner)
        for name in names:
            found.setdefault(name, set()).add(place_of(code))
        return names

    for file in ROOT.rglob("*.py"):
        look(compile(file.read_text("utf-8"), str(file), "exec", dont_inherit=True))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--only", nargs="+", default=[""], help="parts of the numbers' names")
    parser.add_argument("--cases", type=int, default=8, help="for one number, at most")
    parser.add_argument("--looks", type=int, default=30)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--longest", type=float, default=0.5, help="seconds of a problem at most")
    parser.add_argument("--scratch", type=Path, default=Path("/tmp"))
    parser.add_argument("--store", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, give_up)
    for _ in warm_up(shown=False):
        pass
    for found in pkgutil.walk_packages(cvxscreen.__path__, "cvxscreen."):
        if not found.name.endswith("__main__"):
            with contextlib.suppress(ImportError):
                importlib.import_module(found.name)
    made = [prepared(*case, given.longest) for case in all_cases(given.data, given.scratch)]
    cases = [case for case in made if case is not None]
    print(f"{len(cases)} problems, {sum(case.seconds for case in cases):.1f} s")
    of, places, everything = importers(), users(), list(all_numbers())
    chosen = dict.fromkeys(n for part in given.only for n in everything if part in str(n))
    results: list[dict[str, Any]] = []
    for k in range(len(chosen) // 100 + 1):
        some = spread(cases, given.cases + k)
        results.append({"number": "nothing", **compared(None, some, given.repeat, of)})
    for k, number in enumerate(chosen):
        home = [number.module, *of.get((number.module, number.name), ())]
        files = {str(sys.modules[name].__file__) for name in home}
        at = places.get(number.name, set())
        at = {place for place in at if place[0] in files} or at
        reached = [case for case in cases if case.called & at]
        seen = {case.name: changes(number, case, of) for case in spread(reached, given.looks)}
        some = [case for case in reached if seen.get(case.name, (False, 0))[0]] or reached
        row = {"number": str(number), "value": number.value, "problems": len(reached)}
        if reached:
            row |= {
                "looked at": len(seen), "answers changed": sum(bits for bits, _ in seen.values()),
                "fails": sum(fails for _, fails in seen.values()),
                **compared(number, spread(some, given.cases), given.repeat, of),
            }
        results.append(row)
        print(k, results[-1], flush=True)
        if given.store and k % 50 == 49:
            store("named_numbers", results)
    results.sort(key=effect, reverse=True)
    if given.store:
        store("named_numbers", results)


if __name__ == "__main__":
    main()
