"""The same input gives the same bits, alone or beside other solves, and leaves no trace.

What is promised where: the same call in a fresh process gives the same bits; so do two calls in one
process, and calls in several threads, but for kernels on one shared problem (which rows are in its
cache decides how sums are rounded) and CVXPY problems that remember their last solution. These,
and other numbers of BLAS threads, agree as far as both certificates prove.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import children
import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import cvxscreen
from cvxscreen.cvxpy_plugin.cvxpy_solver import ignore_warnings
from cvxscreen.designs.gram import Kernel
from cvxscreen.designs.kernels import Rbf

X, Y = cvxscreen.datasets.two_gaussians(400, 6, seed=5)
FEW = slice(0, 60)


def tasks() -> cvxscreen.MultiTask:
    parts = [(X[i : i + 60], Y[i : i + 60]) for i in (0, 60, 120)]
    return cvxscreen.raso(parts, h=2, alpha=0.1, beta=0.01)


def cvxpy_value(method: str | None = "screen", **options: Any) -> cvxscreen.Report:
    w = cp.Variable(X.shape[1])
    loss = cp.sum(cp.pos(1 - cp.multiply(Y, X @ w)))
    prob = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + loss))
    prob.solve(method=method, **options)
    return prob, w.value


def solution(found: Any) -> tuple[bytes, ...]:
    parts = (found.U, found.b, found.M) if hasattr(found, "U") else (found.x, found.alpha)
    return (*(part.tobytes() for part in parts), np.float64(found.certificate.gap).tobytes())


def path(found: Any) -> tuple[bytes, ...]:
    return tuple(p.x.tobytes() + p.theta.tobytes() for p in found.points)


def median(**options: Any) -> cvxscreen.Problem:
    return cvxscreen.regression(X, np.sin(5.0 * X[:, 0]) + X[:, 1], **options)


def fitted() -> cvxscreen.Solution:
    return cvxscreen.solve(cvxscreen.svm(X, Y, C=0.5), tol=1e-8)


def changed(found: cvxscreen.DataChange) -> tuple[bytes, ...]:
    return (*solution(found.solution), found.low.tobytes(), found.high.tobytes())


def left_out() -> tuple[bytes, ...]:
    found = cvxscreen.leave_one_out(cvxscreen.solve(cvxscreen.svm(X[FEW], Y[FEW])))
    return found.low.tobytes(), found.high.tobytes(), found.refitted.tobytes()


WORK: dict[str, Callable[[], tuple[bytes, ...]]] = {
    "newton": lambda: solution(cvxscreen.solve(cvxscreen.svm(X, Y, intercept=True))),
    "sparse rows": lambda: solution(
        cvxscreen.solve(cvxscreen.svm(sp.random(200, 300, 0.05, "csr", random_state=1), Y[:200]))
    ),
    "kernel": lambda: solution(cvxscreen.solve(cvxscreen.svm(X, Y, kernel="rbf"))),
    "l1": lambda: solution(cvxscreen.solve(cvxscreen.sparse_svm(X, Y, 0.01), mode="safe")),
    "sdca": lambda: solution(cvxscreen.solve(cvxscreen.sparse_svm(X, Y, 0.05), solver="sdca")),
    "metric": lambda: solution(
        cvxscreen.solve(cvxscreen.rtlm(X[FEW], cvxscreen.triplets(X[FEW], Y[FEW], k=3), 0.1))
    ),
    "tasks": lambda: solution(cvxscreen.solve(tasks(), tol=1e-4)),
    "path": lambda: path(
        cvxscreen.path(cvxscreen.svm(X, Y), values=np.geomspace(0.01, 1, 10))
    ),
    "guest": lambda: solution(cvxscreen.solve(cvxscreen.svm(X, Y), solver="CLARABEL")),
    "cvxpy": lambda: (cvxpy_value(solver="CLARABEL")[1].tobytes(),),
    "dcd": lambda: solution(cvxscreen.solve(cvxscreen.svm(X, Y), solver="dcd")),
    "cvar": lambda: solution(cvxscreen.solve(cvxscreen.cvar(X, 0.9))),
    "no penalty": lambda: solution(cvxscreen.solve(median(C=np.inf))),
    "interior point": lambda: solution(cvxscreen.solve(median(), solver="interior_point")),
    "l1 terms": lambda: solution(cvxscreen.solve(median(penalty="l1"))),
    "quantiles": lambda: path(
        cvxscreen.path(median(loss="quantile"), over="tau", values=[0.2, 0.5, 0.8])
    ),
    "eps path": lambda: path(cvxscreen.path(cvxscreen.svm(X, Y), eps=0.05, values=(0.01, 1.0))),
    "reweight": lambda: changed(cvxscreen.reweight(fitted(), np.arange(400) % 3)),
    "remove": lambda: changed(cvxscreen.remove(fitted(), [3, 70, 300])),
    "add": lambda: changed(cvxscreen.add(fitted(), X[:5] + 0.1, Y[:5])),
    "influence": lambda: (cvxscreen.influence(fitted()).bound.tobytes(),),
    "leave one out": left_out,
    "bootstrap": lambda: (cvxscreen.bootstrap(fitted(), 5, seed=2).coefficients.tobytes(),),
    "certify": lambda: (repr(cvxscreen.certify(median(), np.zeros(6), np.zeros(400))).encode(),),
}


@pytest.fixture(scope="module")
def alone() -> dict[str, tuple[bytes, ...]]:
    return {name: work() for name, work in WORK.items()}


@pytest.mark.parametrize("name", WORK)
def test_a_second_call_gives_the_same_bits(name: str, alone) -> None:
    assert WORK[name]() == alone[name]


def test_many_solves_at_once_give_the_bits_of_each_alone(alone) -> None:
    """All kinds at once, in changing order, and two of each kind beside each other."""
    names = [*WORK, *reversed(WORK)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda name: WORK[name](), names))
    for name, bits in zip(names, found, strict=True):
        assert bits == alone[name], name


SHARED = {
    "newton": cvxscreen.svm(X, Y),
    "metric": cvxscreen.rtlm(X[FEW], cvxscreen.triplets(X[FEW], Y[FEW], k=3), 0.1),
    "l1": cvxscreen.sparse_svm(X, Y, 0.01),
}


@pytest.mark.parametrize("name", SHARED)
def test_threads_may_share_a_problem(name: str) -> None:
    """Nothing of a problem is computed twice in a way that shows."""
    first = pickle.loads(pickle.dumps(SHARED[name]))
    expected = solution(cvxscreen.solve(SHARED[name]))
    gate = threading.Barrier(3)

    def work() -> tuple[bytes, ...]:
        gate.wait()
        return solution(cvxscreen.solve(first))

    with ThreadPoolExecutor(3) as pool:
        assert [f.result() for f in [pool.submit(work) for _ in range(3)]] == [expected] * 3


def test_threads_may_share_a_kernel_whose_cache_overflows() -> None:
    """What one thread reads the others throw out: every value is still the right one."""
    points = X[:200]
    kernel = Kernel(Rbf(points, 0.5), cache_bytes=8 * 200 * 20)
    whole = Rbf(points, 0.5).block(np.arange(200))
    everywhere = np.arange(200)

    def work(seed: int) -> float:
        rng, worst = np.random.default_rng(seed), 0.0
        for _ in range(150):
            rows = rng.permutation(200)[:15]
            kernel.fetch(rows)
            worst = max(worst, float(np.abs(kernel.block(rows, everywhere) - whole[rows]).max()))
            c = np.zeros(200)
            c[rows] = rng.standard_normal(15)
            worst = max(worst, float(np.abs(kernel.product(c) - c @ whole).max()))
        return worst

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert max(pool.map(work, range(4))) < 1e-12
    finally:
        sys.setswitchinterval(switch)
    copy = pickle.loads(pickle.dumps(kernel))
    np.testing.assert_allclose(copy.block(everywhere, everywhere), whole, atol=1e-12)


def test_overlapping_silence_leaves_the_filters_as_they_were() -> None:
    before = list(warnings.filters)
    inside, leave = threading.Barrier(2), threading.Event()

    def second() -> None:
        inside.wait()
        with ignore_warnings():
            leave.set()
            inside.wait()

    thread = threading.Thread(target=second)
    thread.start()
    with ignore_warnings():
        inside.wait()
        assert leave.wait(10)
        warnings.warn("held back", UserWarning, stacklevel=1)
    inside.wait()
    thread.join()
    assert list(warnings.filters) == before
    with pytest.warns(UserWarning, match="heard"):
        warnings.warn("heard", UserWarning, stacklevel=1)


def test_nothing_global_is_left_changed() -> None:
    """Generators, floating-point errors, warning filters, signals, print options, environment."""
    def state() -> tuple[Any, ...]:
        generator = np.random.get_state()  # noqa: NPY002
        return (
            random.getstate(), generator[1].tobytes(), generator[2:], np.geterr(),
            list(warnings.filters), np.get_printoptions(), dict(os.environ),
            [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
            sorted(cp.installed_solvers()), threading.active_count(), sys.getrecursionlimit(),
        )

    before = state()
    for work in WORK.values():
        work()
    assert state() == before


FRESH = """
import hashlib, json, sys
sys.path[:0] = ["tests", "tests/helpers"]
import robustness.test_determinism as t
names = ("newton", "kernel", "metric", "l1", "path", "cvar", "bootstrap", "quantiles")
print(json.dumps({name: [hashlib.sha256(part).hexdigest() for part in t.WORK[name]()]
                  for name in names}))
"""


def fresh(program: str, threads: int, seed: int = 0) -> Any:
    counts = dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads)
    )
    done = children.run(program, **counts, PYTHONHASHSEED=str(seed))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_fresh_processes_give_the_same_bits() -> None:
    """Whatever the order of sets and dictionaries of strings."""
    assert fresh(FRESH, 1, seed=1) == fresh(FRESH, 1, seed=2)


THREADS = """
import json
import numpy as np, cvxscreen
X, y = cvxscreen.datasets.two_gaussians(20_000, 40, seed=0)
problem = cvxscreen.svm(X, y, C=0.01, intercept=True)
s = cvxscreen.solve(problem, tol=1e-10)
print(json.dumps({"value": s.value, "gap": s.certificate.gap, "ok": bool(s.certificate.ok),
                  "x": s.x.tolist()}))
"""


def test_other_numbers_of_threads_agree_as_far_as_is_certified() -> None:
    """Values by the sum of the gaps; penalised coordinates within the two gap balls."""
    one, two = fresh(THREADS, 1), fresh(THREADS, 2)
    assert one["ok"]
    assert two["ok"]
    gaps = one["gap"], two["gap"]
    assert abs(one["value"] - two["value"]) <= max(gaps) + 1e-13 * abs(one["value"])
    away = np.linalg.norm(np.array(one["x"][:-1]) - np.array(two["x"][:-1]))
    assert away <= np.sqrt(2 * gaps[0]) + np.sqrt(2 * gaps[1]) + 1e-12
