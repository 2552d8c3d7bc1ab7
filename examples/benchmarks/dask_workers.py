"""One solve past memory, passes made by this process, by Dask's threads, by worker processes.

    python examples/benchmarks/dask_workers.py --rows 1000000 --columns 20 --kill

A hinge SVM on two Gaussian classes, written to a temporary folder and mapped into memory. Every
line must show the same answer, to the last bit: value, certified gap and solution depend on how the
rows are cut into chunks, not on who visits them. `--kill` ends one of two worker processes in the
middle of a solve.

The time of a pass is that of a certificate (one pass over all rows), the best of three.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from distributed import Client, LocalCluster

import cvxscreen
from cvxscreen.out_of_core.streams import Mapped

STRIP = 100_000


def written(folder: Path, rows: int, columns: int) -> tuple[Path, np.ndarray]:
    """The rows as a .npy file, made a strip at a time, and the labels."""
    rng = np.random.default_rng(0)
    place = folder / "X.npy"
    X = np.lib.format.open_memmap(place, mode="w+", dtype=np.float64, shape=(rows, columns))
    y = np.where(rng.random(rows) < 0.5, 1.0, -1.0)
    for start in range(0, rows, STRIP):
        part = y[start : start + STRIP]
        noise = rng.standard_normal((len(part), columns))
        X[start : start + STRIP] = noise + 1.3 * part[:, None] / np.sqrt(columns)
    X.flush()
    return place, y


@contextmanager
def cluster(workers: int) -> Iterator[Client]:
    """Worker processes on this machine."""
    with LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0",
        silence_logs=50,
    ) as made, Client(made, set_as_default=False) as client:
        yield client


def solved(X: Any, y: np.ndarray, C: float) -> tuple[Any, float, float]:
    """The solution, the seconds of its solve, and those of a pass."""
    problem = cvxscreen.svm(X, y, C=C)
    began = perf_counter()
    found = cvxscreen.solve(problem)
    seconds = perf_counter() - began
    passes = []
    for _ in range(3):
        began = perf_counter()
        cvxscreen.certify(problem, found.x, found.theta)
        passes.append(perf_counter() - began)
    return found, seconds, min(passes)


def end_one(client: Client, after: float) -> threading.Timer:
    """Kill one worker process in a while."""
    victim = next(iter(client.run(os.getpid).values()))
    timer = threading.Timer(after, os.kill, (victim, signal.SIGKILL))
    timer.start()
    return timer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--C", type=float, default=1e-3)
    parser.add_argument("--kill", action="store_true", help="end a worker in the middle of a solve")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place, y = written(Path(folder), args.rows, args.columns)
        source = Mapped(np.load(place, mmap_mode="r"), chunk_bytes=2**22)
        size = args.rows * args.columns * 8 / 1e6
        print(f"{args.rows:,} x {args.columns}, {size:,.0f} MB, {len(source.bounds) - 1} chunks")
        first, _, _ = solved(source, y, args.C)  # compiles what is compiled

        def show(name: str, X: Any) -> None:
            found, seconds, a_pass = solved(X, y, args.C)
            same = np.array_equal(found.x, first.x) and found.certificate == first.certificate
            print(f"{name:14} {found.status} {found.value:.12g} same {same} "
                  f"solve {seconds:6.2f} s  pass {a_pass:6.3f} s")
            assert same

        show("this process", source)
        for k in (1, 2, 4):
            show(f"{k} threads", cvxscreen.on_dask(source, workers=k))
        for k in (1, 2, 4):
            with cluster(k) as client:
                X = cvxscreen.on_dask(source, client=client)
                solved(X, y, args.C)  # workers import
                show(f"{k} processes", X)
                if args.kill and k == 2:
                    timer = end_one(client, 0.2)
                    show("2, one killed", X)
                    assert timer.finished.is_set()


if __name__ == "__main__":
    main()
