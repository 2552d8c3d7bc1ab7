"""Data past memory: a hinge SVM on a memory map, its passes, seconds, memory and certified gaps.

``python examples/benchmarks/chunked.py FOLDER`` writes 20,000,000 x 50 float32 (4 GB) into FOLDER,
solves it at three values of C to a certified relative gap of 1e-6, and takes a million rows of it
once as an ordinary array and once as a memory map, with 1, 2 and 4 workers. The file is deleted at
the end unless ``--keep``.

Memory is what the system counts as anonymous (``RssAnon`` in /proc/self/status, read every 20 ms by
a thread of its own, the largest value): all that Python, numpy and the solver allocate, without
pages of the mapped file, which the system may drop at any moment. Seconds are wall time.
"""

from __future__ import annotations

import argparse
import threading
from pathlib import Path
from time import perf_counter, process_time, sleep

import numpy as np

import cvxscreen
from cvxscreen._support.tables import table
from cvxscreen.out_of_core.streams import LocalEngine, Mapped

AT_ONCE = 200_000


def write(folder: Path, n: int, d: int) -> tuple[Path, np.ndarray]:
    """Two classes that overlap: the sign of a linear function with noise of half its size."""
    place, rng = folder / f"chunked_{n}x{d}.npy", np.random.default_rng(0)
    normal = rng.standard_normal(d) / np.sqrt(d)
    X = np.lib.format.open_memmap(place, "w+", np.float32, (n, d))
    y = np.empty(n, dtype=np.int8)
    for start in range(0, n, AT_ONCE):
        block = rng.standard_normal((min(AT_ONCE, n - start), d), dtype=np.float32)
        X[start:start + len(block)] = block
        noise = 0.5 * rng.standard_normal(len(block))
        y[start:start + len(block)] = np.where(block @ normal + noise > 0, 1, -1)
    X.flush()
    return place, y


def anonymous() -> int:
    """Anonymous memory of this process, bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return 1024 * int(line.split()[1])
    return 0


class Peak:
    """The largest `anonymous` while the block runs."""

    def __enter__(self) -> Peak:
        self.bytes, self._over = anonymous(), False
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._over:
            self.bytes = max(self.bytes, anonymous())
            sleep(0.02)

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._thread.join()
        self.bytes = max(self.bytes, anonymous())


def large(X: np.memmap, y: np.ndarray, grid: list[float], tol: float, workers: int) -> None:
    with Peak() as peak:
        began = perf_counter()
        problem = cvxscreen.svm((Mapped(X), LocalEngine(workers)), y, C=grid[0])
        built = perf_counter() - began
        first, rows = peak.bytes, []
        for C in grid:
            peak.bytes, cpu = anonymous(), process_time()
            s = cvxscreen.solve(problem.with_(C=C), tol=tol)
            rows.append((C, s.status, float(f"{s.value:.10g}"), s.certificate.relative_gap,
                         s.passes, len(s.rounds), s.rounds[-1].kept, s.seconds,
                         process_time() - cpu, peak.bytes / 1e9))
    print(table(
        ("C", "status", "objective", "certified gap", "passes", "rounds", "kept", "seconds",
         "CPU s", "peak GB"),
        rows, title=f"{X.shape[0]:,} x {X.shape[1]} {X.dtype}, {X.nbytes / 1e9:.3g} GB on disk, "
        f"{workers} worker(s); one pass and {built:.3g} s before, peak {first / 1e9:.2f} GB",
    ))


def compare(X: np.memmap, y: np.ndarray, grid: list[float], tol: float) -> None:
    held, rows, answers = np.array(X), [], []
    for name, data in [("array", held), *(
        (f"map, {k} worker(s)", (Mapped(X), LocalEngine(k))) for k in (1, 2, 4)
    )]:
        wall, cpu = perf_counter(), process_time()
        problem = cvxscreen.svm(data, y, C=grid[0])
        found = [cvxscreen.solve(problem.with_(C=C), tol=tol) for C in grid]
        rows.append((name, perf_counter() - wall, process_time() - cpu,
                     max(s.certificate.relative_gap for s in found)))
        answers.append((found[0].value, np.concatenate([s.x for s in found])))
    title = f"{X.shape[0]:,} x {X.shape[1]}, {len(grid)} values of C, solve by solve"
    print(table(("data", "seconds", "CPU s", "largest certified gap"), rows, title=title))
    print(f"map over array, CPU: {rows[1][2] / rows[0][2]:.2f}")
    same = all(np.array_equal(answers[1][1], x) for _, x in answers[2:])
    apart = abs(answers[1][0] - answers[0][0]) / answers[0][0]
    print(f"1, 2 and 4 workers agree bit by bit: {same}; objective of map and array: {apart:.1e}")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--rows", type=int, default=20_000_000)
    arguments.add_argument("--columns", type=int, default=50)
    arguments.add_argument("--C", default="1e-6,1e-3,1", help="values, with commas between")
    arguments.add_argument("--tol", type=float, default=1e-6)
    arguments.add_argument("--workers", type=int, default=1)
    arguments.add_argument("--keep", action="store_true", help="keep the file")
    asked = arguments.parse_args()
    grid = [float(C) for C in asked.C.split(",")]
    place, y = write(asked.folder, asked.rows, asked.columns)
    try:
        X = np.load(place, mmap_mode="r")
        few = min(20_000, asked.rows)
        cvxscreen.solve(cvxscreen.svm(X[:few], y[:few]))  # what is loaded and compiled once
        cvxscreen.solve(cvxscreen.svm(np.array(X[:few]), y[:few]))
        large(X, y, grid, asked.tol, asked.workers)
        million = min(1_000_000, asked.rows)
        compare(X[:million], y[:million], grid, asked.tol)
    finally:
        if not asked.keep:
            place.unlink()


if __name__ == "__main__":
    main()
