"""What a second core gives: passes, `solve`, `path`, classes and folds, with one worker and more.

``python examples/benchmarks/cores.py`` prints, for each work, the wall seconds with one worker, how
many times faster it is with ``--workers`` of them (medians over runs in turns), how many times the
CPU seconds, and whether every number came out the same to the bit. ``--only`` names some works;
``--share 0.01`` takes so much of the rows, to see that all of it runs. The first row is what the
machine can give at the moment: products of matrices that stay in the cache. On a machine with other
work to do it stays below the number of workers, and so do all others.
"""

from __future__ import annotations

import argparse
import os
import warnings

for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")

from collections.abc import Callable  # noqa: E402
from time import perf_counter  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import scipy.sparse as sp  # noqa: E402

import cvxscreen  # noqa: E402
from cvxscreen._support.limits import cores, each  # noqa: E402
from cvxscreen._support.tables import table  # noqa: E402
from cvxscreen.designs.rows import Rows  # noqa: E402
from cvxscreen.estimators import ScreenedSVC, ScreenedSVCCV  # noqa: E402

Work = Callable[[int], Any]
"""Does it with so many workers; gives the arrays to compare."""


def cached() -> Work:
    """Products of small matrices: all that keeps threads apart is the machine."""
    blocks = np.random.default_rng(0).standard_normal((16, 150, 150))

    def work(workers: int) -> Any:
        with cores(workers):
            return each(lambda block: np.linalg.matrix_power(block / 200.0, 1000), blocks)

    return work


def drawn(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows, and labels: the sign of a linear function with noise of 0.7 of its size."""
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((n, d)), rng.standard_normal(d) / np.sqrt(d)
    return X, np.where(X @ w + 0.7 * rng.standard_normal(n) > 0.0, 1.0, -1.0)


def clusters(n: int, d: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian clusters that overlap."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, classes, n)
    return rng.standard_normal((classes, d))[labels] + 1.5 * rng.standard_normal((n, d)), labels


def passes(n: int, d: int) -> dict[str, Work]:
    """Single passes over dense rows, five times each."""
    rng = np.random.default_rng(0)
    rows = Rows(rng.standard_normal((n, d)))
    x, theta = rng.standard_normal(d), rng.standard_normal(n)

    def shared(product: Callable[[], Any]) -> Work:
        def work(workers: int) -> Any:
            with cores(workers):
                return [product() for _ in range(5)]

        return work

    size = f"{n:,} x {d}"
    return {
        f"A x, {size}": shared(lambda: rows.forward(x)),
        f"A' theta, {size}": shared(lambda: rows.adjoint(theta)),
        f"row norms, {size}": shared(lambda: rows.weighted_squares(x**2)),
        f"A' W A, {size}": shared(lambda: rows.weighted_gram(None, theta**2)),
    }


def sparse_passes(n: int, d: int, filled: int) -> dict[str, Work]:
    """The two products with CSR rows of `filled` entries, five times each."""
    rng = np.random.default_rng(0)
    indices = rng.integers(0, d, n * filled).astype(np.int32)
    pointers = np.arange(0, n * filled + 1, filled, dtype=np.int32)
    matrix = sp.csr_matrix((rng.standard_normal(n * filled), indices, pointers), (n, d))
    matrix.sum_duplicates()
    rows, x, theta = Rows(matrix), rng.standard_normal(d), rng.standard_normal(n)

    def work(workers: int) -> Any:
        with cores(workers):
            return [(rows.forward(x), rows.adjoint(theta)) for _ in range(5)][-1]

    return {f"A x and A' theta, CSR {n:,} x {d:,}": work}


def whole(n: int, d: int) -> dict[str, Work]:
    """One solve and one path of 20 values."""
    X, y = drawn(n, d)

    def solve(workers: int) -> Any:
        problem = cvxscreen.svm(X, y, C=1.0, intercept=True)
        found = cvxscreen.solve(problem, threads=workers)
        return found.x, found.theta

    def path(workers: int) -> Any:
        problem = cvxscreen.svm(X, y, C=1.0, intercept=True)
        grid = np.geomspace(1e-3, 1.0, 20)
        found = cvxscreen.path(problem, values=grid, threads=workers)
        return [(p.x, p.theta) for p in found.points]

    return {f"solve, {n:,} x {d}": solve, f"path, {n:,} x {d}": path}


def jobs(n: int, d: int) -> dict[str, Work]:
    """One-against-rest classes and folds, by `n_jobs` threads."""
    X, y = clusters(n, d, 6)

    def classes(workers: int) -> Any:
        return ScreenedSVC(1.0, n_jobs=workers).fit(X, y).coef_

    def folds(workers: int) -> Any:
        found = ScreenedSVCCV(Cs=list(np.geomspace(1e-3, 1.0, 10)), cv=6, n_jobs=workers)
        return found.fit(X, y > 2).scores_

    return {f"6 classes, {n:,} x {d}": classes, f"6 folds of 10 values, {n:,} x {d}": folds}


def same(found: Any, other: Any) -> bool:
    """Whether two nests of arrays are equal to the bit."""
    if isinstance(found, list | tuple):
        return all(same(a, b) for a, b in zip(found, other, strict=True))
    return np.asarray(found).tobytes() == np.asarray(other).tobytes()


def seconds(work: Work, workers: int) -> tuple[float, float, Any]:
    """Wall and CPU seconds (children that live on are not counted), and what came out."""
    began, spent = perf_counter(), sum(os.times()[:4])
    found = work(workers)
    return perf_counter() - began, sum(os.times()[:4]) - spent, found


def compared(work: Work, workers: int, runs: int) -> tuple[float, float, float, str]:
    """One worker and `workers` in turns, after a run of each that does not count."""
    work(1)  # the answers before what is compiled has been loaded differ in their last digits
    one, more = seconds(work, 1), seconds(work, workers)
    equal, times = same(one[2], more[2]), []
    for _ in range(runs):
        one, more = seconds(work, 1), seconds(work, workers)
        equal = equal and same(one[2], more[2])
        times.append((*one[:2], *more[:2]))
    wall, cpu, wall_more, cpu_more = np.median(times, axis=0)
    ratio = cpu_more / cpu if cpu > 0.0 else np.nan
    return float(wall), float(wall / wall_more), float(ratio), "yes" if equal else "NO"


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--runs", type=int, default=3)
    arguments.add_argument("--share", type=float, default=1.0, help="of the rows")
    arguments.add_argument("--only", default="", help="works whose name has this in it")
    asked = arguments.parse_args()

    def rows_of(n: int) -> int:
        return max(int(asked.share * n), 100)

    warnings.simplefilter("ignore")  # a fold that ends a digit short is no matter here
    groups: list[Callable[[], dict[str, Work]]] = [
        lambda: {"the machine": cached()}, lambda: passes(rows_of(1_000_000), 50),
        lambda: sparse_passes(rows_of(500_000), 20_000, 40), lambda: whole(rows_of(500_000), 50),
        lambda: jobs(rows_of(100_000), 30),
    ]
    rows = []
    for group in groups:
        for name, work in group().items():
            if asked.only in name or name == "the machine":
                rows.append((name, *compared(work, asked.workers, asked.runs)))
    print(table(
        ("work", "wall s, one", f"faster, {asked.workers}", "CPU", "same bits"), rows,
        title=f"{asked.workers} workers, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
    ))


if __name__ == "__main__":
    main()
