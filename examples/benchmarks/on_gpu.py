"""Rows in the memory of a GPU: the same hinge SVM there and in this machine's memory.

``python examples/benchmarks/on_gpu.py`` draws 20,000,000 x 50 float32 (4 GB) on the GPU with
PyTorch (``--library cupy``: with CuPy), solves three values of C to a certified relative gap of
1e-6, copies the rows to this machine's memory and solves the same problems there, both with each
number of ``--workers`` (threads). ``--only-gpu`` leaves the copy out, for data larger than this
machine's memory.

Seconds are wall time. A pass is one product ``X @ w`` with all rows, its result in this machine's
memory; so is each row of the table that says how often and how long the solver waited for which
product.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np

import cvxscreen
from cvxscreen._support.tables import table
from cvxscreen.designs.chunks import Chunks
from cvxscreen.out_of_core import device
from cvxscreen.out_of_core.streams import Blocks, LocalEngine

AT_ONCE = 2_000_000


def drawn(library: str, n: int, d: int) -> tuple[Any, np.ndarray]:
    """Rows on the GPU, and labels: the sign of a linear function with noise of half its size."""
    xp = importlib.import_module(library)
    normal = np.random.default_rng(0).standard_normal(d) / np.sqrt(d)
    y = np.empty(n, dtype=np.int8)
    if library == "torch":
        made = xp.Generator("cuda").manual_seed(0)
        X = xp.empty((n, d), dtype=xp.float32, device="cuda")
        direction = xp.asarray(normal, dtype=xp.float32, device="cuda")
    else:
        made = xp.random.default_rng(0)
        X, direction = xp.empty((n, d), dtype=xp.float32), xp.asarray(normal, dtype=xp.float32)
    for start in range(0, n, AT_ONCE):
        rows = slice(start, min(start + AT_ONCE, n))
        if library == "torch":
            X[rows].normal_(generator=made)
            noise = xp.empty(len(X[rows]), device="cuda").normal_(generator=made)
        else:
            X[rows] = made.standard_normal(X[rows].shape, dtype=xp.float32)
            noise = made.standard_normal(len(X[rows]), dtype=xp.float32)
        y[rows] = np.where(device.to_host(X[rows] @ direction + 0.5 * noise) > 0, 1, -1)
    return X, y


@contextmanager
def products_timed(seconds: dict[str, list[float]]) -> Iterator[None]:
    """Collect the seconds of every product that a chunk on the device is asked for."""
    names = ("margins", "squares", "adjoint")
    plain = {name: getattr(device.DeviceBlock, name) for name in names}

    def timed(name: str) -> Any:
        def call(*arguments: Any) -> Any:
            began = perf_counter()
            out = plain[name](*arguments)
            seconds.setdefault(name, []).append(perf_counter() - began)
            return out

        return call

    for name in names:
        setattr(device.DeviceBlock, name, timed(name))
    try:
        yield
    finally:
        for name in names:
            setattr(device.DeviceBlock, name, plain[name])


def one_pass(data: Any) -> float:
    """Seconds of ``X @ w``, the best of three."""
    design = Chunks(*data)
    w = np.random.default_rng(0).standard_normal(design.shape[1])
    best = np.inf
    for _ in range(3):
        began = perf_counter()
        design.forward(w)
        best = min(best, perf_counter() - began)
    return best


def measured(name: str, data: Any, y: np.ndarray, grid: list[float], tol: float) -> list[Any]:
    """Rows of the table: what one way of holding the data takes at each C."""
    unit, began, rows = one_pass(data), perf_counter(), []
    problem = cvxscreen.svm(data, y, C=grid[0])
    built = perf_counter() - began
    for C in grid:
        began = perf_counter()
        s = cvxscreen.solve(problem.with_(C=C), tol=tol)
        took = perf_counter() - began
        rows.append((name, C, s.status, float(f"{s.value:.10g}"), s.certificate.relative_gap,
                     s.passes, s.rounds[-1].kept, built, took, unit, took / unit))
    return rows


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--library", choices=("torch", "cupy"), default="torch")
    arguments.add_argument("--rows", type=int, default=20_000_000)
    arguments.add_argument("--columns", type=int, default=50)
    arguments.add_argument("--C", default="1e-6,1e-3,1", help="values, with commas between")
    arguments.add_argument("--tol", type=float, default=1e-6)
    arguments.add_argument("--workers", default="1,4", help="threads, with commas between")
    arguments.add_argument("--only-gpu", action="store_true")
    asked = arguments.parse_args()
    grid = [float(C) for C in asked.C.split(",")]
    counts = [int(count) for count in asked.workers.split(",")]
    X, y = drawn(asked.library, asked.rows, asked.columns)
    few = slice(0, min(20_000, asked.rows))
    held = device.to_host(X[few])
    for small in (cvxscreen.on_device(X[few]), (Blocks((held,)), LocalEngine(1)), held):
        cvxscreen.solve(cvxscreen.svm(small, y[few]))  # what is loaded and compiled once
    rows, seconds = [], {}
    for workers in counts:
        with products_timed(seconds.setdefault(workers, {})):
            data = cvxscreen.on_device(X, workers=workers)
            rows += measured(f"GPU, {workers} thread(s)", data, y, grid, asked.tol)
    if not asked.only_gpu:
        held, bounds = device.to_host(X), data[0].bounds
        blocks = Blocks(tuple(held[a:b] for a, b in pairwise(bounds)))
        for workers in counts:
            name = f"memory, {workers} thread(s)"
            rows += measured(name, (blocks, LocalEngine(workers)), y, grid, asked.tol)
    print(table(
        ("rows in", "C", "status", "objective", "certified gap", "passes", "kept", "built, s",
         "solve, s", "one pass, s", "in passes"),
        rows, title=f"{asked.rows:,} x {asked.columns} float32, {asked.library}",
    ))
    print(table(
        ("threads", "product", "calls", "seconds in all of them"),
        [(workers, name, len(v), sum(v)) for workers, spent in seconds.items()
         for name, v in spent.items()],
        title="waiting for products on the GPU, chunk by chunk",
    ))


if __name__ == "__main__":
    main()
