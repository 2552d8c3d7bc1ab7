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
import tempfile
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from inspect import isfunction
from pathlib import Path
from typing import Any

import children
import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import cvxscreen
from cvxscreen.cvxpy_plugin.cvxpy_solver import ignore_warnings
from cvxscreen.designs.gram import Kernel, Rbf

X, Y = cvxscreen.datasets.two_gaussians(400, 6, seed=5)
FEW = slice(0, 60)
CURVE = np.sin(5.0 * X[:, 0]) + X[:, 1]


def tasks() -> cvxscreen.MultiTask:
    parts = [(X[i : i + 60], Y[i : i + 60]) for i in (0, 60, 120)]
    return cvxscreen.raso(parts, h=2, alpha=0.1, beta=0.01)


def user_problem(budget: float | None = None) -> cp.Problem:
    w = cp.Variable(X.shape[1])
    loss = cp.sum(cp.pos(1 - cp.multiply(Y, X @ w)))
    if budget is not None:
        return cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w)), [loss <= budget])
    return cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + loss))


def numbers(*parts: Any) -> tuple[bytes, ...]:
    return tuple(np.asarray(part).tobytes() for part in parts)


def answer(prob: cp.Problem) -> tuple[bytes, ...]:
    """Of the value, the variables and the dual values."""
    duals = [constraint.dual_value for constraint in prob.constraints]
    return numbers(prob.value, *(v.value for v in prob.variables()), *duals)


def user_answer(budget: float | None = None, **options: Any) -> tuple[bytes, ...]:
    prob = user_problem(budget)
    prob.solve(method="screen", **options)
    return answer(prob)


def screened_by_the_solver() -> tuple[bytes, ...]:
    prob = user_problem()
    prob.solve(solver=cvxscreen.Screened("CLARABEL"))
    return answer(prob)


def reduced() -> tuple[bytes, ...]:
    prob = user_problem()
    small = cvxscreen.reduce(prob)
    small.problem.solve(solver="CLARABEL")
    small.restore()
    return answer(prob)


def verified() -> tuple[bytes, ...]:
    found = cvxscreen.verify(user_problem(), "CLARABEL")
    return numbers(found.agrees, found.value, found.primal, found.terms, found.kept)


def explained() -> tuple[bytes, ...]:
    found = cvxscreen.explain(user_problem())
    return numbers(found.recognised, found.coordinates, list(found.terms.values()))


def solution(found: Any) -> tuple[bytes, ...]:
    parts = (found.U, found.b, found.M) if hasattr(found, "U") else (found.x, found.alpha)
    return (*(part.tobytes() for part in parts), np.float64(found.certificate.gap).tobytes())


def path(found: Any) -> tuple[bytes, ...]:
    return tuple(p.x.tobytes() + p.theta.tobytes() for p in found.points)


def median(**options: Any) -> cvxscreen.Problem:
    return cvxscreen.regression(X, CURVE, **options)


def fitted() -> cvxscreen.Solution:
    return cvxscreen.solve(cvxscreen.svm(X, Y, C=0.5), tol=1e-8)


def changed(found: cvxscreen.DataChange) -> tuple[bytes, ...]:
    return (*solution(found.solution), found.low.tobytes(), found.high.tobytes())


def weights(**what: Any) -> tuple[bytes, ...]:
    found = cvxscreen.weight_range(fitted(), X[:9], **what)
    return numbers(found.low, found.high, found.prediction_low, found.largest)


def proofs() -> tuple[bytes, ...]:
    """Single bounds from one reference, and the intervals and ends that follow from it."""
    found = fitted()
    problem, point = found.problem, cvxscreen.reference_point(found.problem, found.x, found.theta)
    verdict = cvxscreen.screen(problem.with_(C=0.51), reference=point)
    compared = cvxscreen.compare_bounds(problem, point, [0.51, 0.6])
    first = cvxscreen.c_min(problem)
    return numbers(
        verdict.codes, verdict.radius, *compared.decided.values(), first.C, first.direction,
        *cvxscreen.c_interval(problem, point), cvxscreen.eps_interval(problem, point, 0.1),
        cvxscreen.lambda_max(cvxscreen.sparse_svm(X, Y, 0.01)),
    )


def learned() -> tuple[bytes, ...]:
    """A metric from pairs and one from quadruplets, and what is asked of them."""
    index = np.random.default_rng(3).permuted(np.tile(np.arange(60), (30, 1)), axis=1)[:, :4]
    made = cvxscreen.pairs(X[FEW], Y[FEW], k=2), cvxscreen.quadruplets(X[FEW], index)
    parts: list[Any] = []
    for comparisons in made:
        found = cvxscreen.solve(cvxscreen.rtlm(X[FEW], comparisons, 0.1), tol=1e-4)
        parts += [*cvxscreen.lam_interval(found.point()), cvxscreen.lam_max(found.problem),
                  cvxscreen.factor_of(found.problem, found.x),
                  cvxscreen.metric_of(found.problem, found.x)]
    return numbers(*parts)


def from_files() -> tuple[bytes, ...]:
    """Rows in chunks, and a path and a bootstrap that go on from what they have kept."""
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder, "rows.npy"), np.column_stack([X, Y]))
        rows, targets = cvxscreen.open_data(Path(folder, "rows.npy"), chunk_bytes=4096)
        found = [cvxscreen.solve(cvxscreen.svm(rows, targets)).x]
        options = {"values": np.geomspace(0.1, 1, 3), "checkpoint": Path(folder, "path.npz")}
        cvxscreen.path(cvxscreen.svm(X, Y), **options)
        found += [p.x for p in cvxscreen.load_path(options["checkpoint"]).points]
        for _ in range(2):
            kept = {"seed": 2, "checkpoint": Path(folder, "fits.npz")}
            found.append(cvxscreen.bootstrap(fitted(), 5, **kept).coefficients)
        del rows
    return numbers(*found)


def estimated() -> tuple[bytes, ...]:
    """What every estimator predicts."""
    choice, group = cvxscreen.estimators, np.arange(400) % 2
    few = {"cv": 2, "Cs": 2}
    models = [
        (choice.ScreenedSVC(), Y), (choice.ScreenedSVCCV(**few), Y), (choice.SparseSVC(), Y),
        (choice.SparseSVCCV(cv=2, lams=2), Y), (choice.ScreenedRegressor(), CURVE),
        (choice.ScreenedRegressorCV(**few), CURVE), (choice.SparseSVR(), CURVE),
        (choice.ScreenedQuantileRegressor(), CURVE),
    ]
    found = [model.fit(X, y).predict(X) for model, y in models]
    learner = choice.TripletMetricLearner().fit(X[FEW], Y[FEW])
    return numbers(
        *found, learner.transform(X),
        choice.MultiTaskSVC(h=1).fit(X, Y, group).predict(X, group),
    )


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
    "shared passes": lambda: solution(
        cvxscreen.solve(cvxscreen.svm(*cvxscreen.datasets.two_gaussians(60_000, 20)), threads=2)
    ),
    "guest": lambda: solution(cvxscreen.solve(cvxscreen.svm(X, Y), solver="CLARABEL")),
    "cvxpy": lambda: user_answer(solver="CLARABEL"),
    "cvxpy, built in": user_answer,
    "losses in a budget": lambda: user_answer(budget=200.0),
    "Screened": screened_by_the_solver,
    "reduce": reduced,
    "verify": verified,
    "explain": explained,
    "dcd": lambda: solution(cvxscreen.solve(cvxscreen.svm(X, Y), solver="dcd")),
    "dcd, no shrinking": lambda: solution(
        cvxscreen.solve(cvxscreen.svm(X, Y), solver="dcd_no_shrinking")
    ),
    "cvar": lambda: solution(cvxscreen.solve(cvxscreen.cvar(X, 0.9))),
    "nonneg": lambda: solution(cvxscreen.solve(cvxscreen.svm(X, -Y, nonneg=True))),
    "constraints": lambda: solution(
        cvxscreen.solve(cvxscreen.svm(X, Y, intercept=True, constraints=(-np.ones((1, 6)), [-1.0])))
    ),
    "no penalty": lambda: solution(cvxscreen.solve(median(C=np.inf))),
    "interior point": lambda: solution(cvxscreen.solve(median(), solver="interior_point")),
    "l1 terms": lambda: solution(cvxscreen.solve(median(penalty="l1"))),
    "squares, l1": lambda: solution(
        cvxscreen.solve(median(loss="squared", penalty="l1", C=0.02))
    ),
    "sparse tube": lambda: solution(cvxscreen.solve(cvxscreen.sparse_svr(X, CURVE, 0.05))),
    "path of tasks": lambda: path(
        cvxscreen.path(tasks(), over="beta", values=[0.02, 0.01], tol=1e-4)
    ),
    "quantiles": lambda: path(
        cvxscreen.path(median(loss="quantile"), over="tau", values=[0.2, 0.5, 0.8])
    ),
    "eps path": lambda: path(cvxscreen.path(cvxscreen.svm(X, Y), eps=0.05, values=(0.01, 1.0))),
    "reweight": lambda: changed(cvxscreen.reweight(fitted(), np.arange(400) % 3)),
    "remove": lambda: changed(cvxscreen.remove(fitted(), [3, 70, 300])),
    "add": lambda: changed(cvxscreen.add(fitted(), X[:5] + 0.1, Y[:5])),
    "influence": lambda: (cvxscreen.influence(fitted()).bound.tobytes(),),
    "leave one out": left_out,
    "weights in a ball": lambda: weights(size=0.5),
    "weights in a box": lambda: weights(norm="interval", low=0.9, high=1.1),
    "proofs": proofs,
    "comparisons": learned,
    "files": from_files,
    "estimators": estimated,
    "bootstrap": lambda: (cvxscreen.bootstrap(fitted(), 5, seed=2).coefficients.tobytes(),),
    "certify": lambda: (repr(cvxscreen.certify(median(), np.zeros(6), np.zeros(400))).encode(),),
}


NO_ROW = {
    "memory_limit": "sets a number",
    "on_dask": "its sums are in the order of the chunks, which tests/out_of_core compares",
    "on_device": "its sums are the device's own",
}
"""Functions without a row, and why."""


@pytest.fixture(scope="module")
def called() -> set[str]:
    """The public functions and estimators that the rows have called."""
    return set()


@pytest.fixture(scope="module")
def alone(called: set[str]) -> dict[str, tuple[bytes, ...]]:
    """What every row gives; as callers do, rows look the functions up when they call them."""
    def heard(name: str, made: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(made)
        def call(*args: Any, **options: Any) -> Any:
            called.add(name)
            return made(*args, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in computing():
            face = cvxscreen if hasattr(cvxscreen, name) else cvxscreen.estimators
            patch.setattr(face, name, heard(name, getattr(face, name)))
        return {name: work() for name, work in WORK.items()}


def computing() -> set[str]:
    """The public functions and the estimators."""
    functions = {name for name in cvxscreen.__all__ if isfunction(getattr(cvxscreen, name))}
    return functions | set(cvxscreen.estimators.__all__)


def test_every_public_function_has_a_row(alone, called: set[str]) -> None:
    """Or is named with the reason why not, which no function is that has one."""
    assert sorted(computing() - called) == sorted(NO_ROW)


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
names = ("newton", "kernel", "metric", "l1", "path", "bootstrap", "files", "constraints",
         "losses in a budget", "comparisons")
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
