"""Many variables that few rows couple, by their dual: ``method="screen"`` and CVXPY's choice.

    OMP_NUM_THREADS=1 python examples/benchmarks/few_rows.py [--size N D] [--cap S] [--store]

CPU seconds of a new process for each solve, after a small plain solve of CVXPY's own: the first
call of a form, with what is imported for it, and a second one. Plain solves get at most `--cap`
seconds of wall time: what is stopped there is a bound, and says so in its status. "off" is what the
plain value is above the screened one, relative to it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
from collections.abc import Callable
from time import process_time
from typing import Any

import cvxpy as cp
import numpy as np
from report import store

from cvxscreen._support.tables import table


def svm_dual(rng: Any, n: int, d: int) -> cp.Problem:
    X = rng.standard_normal((n, d))
    y = np.sign(X @ rng.standard_normal(d) + rng.standard_normal(n))
    a = cp.Variable(n)
    square = cp.sum_squares(X.T @ cp.multiply(a, y))
    return cp.Problem(cp.Maximize(cp.sum(a) - 0.5 * square), [a >= 0, a <= 1, y @ a == 0])


def factor_model(rng: Any, n: int, d: int) -> cp.Problem:
    S, F, w = rng.standard_normal((d, d)), rng.standard_normal((n, d)), cp.Variable(n)
    risk = cp.quad_form(F.T @ w, cp.psd_wrap(S @ S.T))
    risk += cp.sum_squares(cp.multiply(rng.uniform(0.3, 1.0, n), w))
    held = [cp.sum(w) == 1, w >= 0, w <= 0.1]
    return cp.Problem(cp.Maximize(np.abs(rng.standard_normal(n)) @ w - risk), held)


def reduced_hulls(rng: Any, n: int, d: int) -> cp.Problem:
    A, B = rng.standard_normal((n // 2, d)) + 0.2, rng.standard_normal((n // 2, d)) - 0.2
    a, b = cp.Variable(n // 2), cp.Variable(n // 2)
    held = [cp.sum(a) == 1, cp.sum(b) == 1, a >= 0, b >= 0, a <= 40 / n, b <= 40 / n]
    return cp.Problem(cp.Minimize(cp.sum_squares(A.T @ a - B.T @ b)), held)


def simplex_fit(rng: Any, n: int, d: int) -> cp.Problem:
    R = rng.standard_normal((6 * d, n))
    w = cp.Variable(n)
    fit = cp.sum_squares(R @ w - R[:, :5].mean(axis=1)) + 1e-2 * cp.sum_squares(w)
    return cp.Problem(cp.Minimize(fit), [cp.sum(w) == 1, w >= 0])


def balancing(rng: Any, n: int, d: int) -> cp.Problem:
    X, w = rng.standard_normal((n, d)), cp.Variable(n)
    near = cp.abs(X.T @ w - X.mean(axis=0) - 0.05) <= 0.01
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1 / n)), [w >= 0, cp.sum(w) == 1, near])


def box_program(rng: Any, n: int, d: int) -> cp.Problem:
    x = cp.Variable(n, bounds=[0, 1])
    cost = 0.5 * cp.sum(cp.multiply(rng.uniform(0.1, 2.0, n), cp.square(x)))
    held = [rng.standard_normal((d, n)) @ x <= 1]
    return cp.Problem(cp.Minimize(cost + rng.standard_normal(n) @ x), held)


def linear_program(rng: Any, n: int, d: int) -> cp.Problem:
    x = cp.Variable(n)
    held = [rng.random((d, n)) @ x <= 0.2 * n, x >= 0, x <= 1]
    return cp.Problem(cp.Maximize(rng.random(n) @ x), held)


def leverage_limit(rng: Any, n: int, d: int) -> cp.Problem:
    """CVXPY's own example of a factor model."""
    S, F, w, f = rng.standard_normal((d, d)), rng.standard_normal((n, d)), *map(cp.Variable, (n, d))
    risk = cp.quad_form(f, cp.psd_wrap(S.T @ S))
    risk += cp.sum_squares(cp.multiply(np.sqrt(rng.uniform(0.0, 0.9, n)), w))
    held = [cp.sum(w) == 1, f == F.T @ w, cp.norm1(w) <= 2]
    return cp.Problem(cp.Maximize(np.abs(rng.standard_normal(n)) @ w - 0.1 * risk), held)


def _moved(rng: Any, n: int, d: int) -> tuple[Any, Any, Any]:
    """Weights of a portfolio, its risk less what it earns, and how far it is from one held."""
    F, held, w = rng.standard_normal((n, d)), rng.dirichlet(np.ones(n)), cp.Variable(n)
    risk = cp.sum_squares(F.T @ w) + cp.sum_squares(cp.multiply(rng.uniform(0.3, 1.0, n), w))
    return w, risk - 0.1 * rng.standard_normal(n) @ w, cp.norm1(w - held)


def turnover_limit(rng: Any, n: int, d: int) -> cp.Problem:
    w, cost, turnover = _moved(rng, n, d)
    return cp.Problem(cp.Minimize(cost), [cp.sum(w) == 1, w >= 0, turnover <= 0.3])


def leverage_and_turnover(rng: Any, n: int, d: int) -> cp.Problem:
    """Two limits of the same weights, the factors a variable whose squares are added up."""
    w, cost, turnover = _moved(rng, n, d)
    f, F = cp.Variable(d), rng.standard_normal((n, d))
    held = [cp.sum(w) == 1, f == F.T @ w, cp.norm1(w) <= 1.4, turnover <= 0.5]
    return cp.Problem(cp.Minimize(cost + cp.sum_squares(f)), held)


def trading_costs(rng: Any, n: int, d: int) -> cp.Problem:
    w, cost, turnover = _moved(rng, n, d)
    return cp.Problem(cp.Minimize(cost + 0.01 * turnover), [cp.sum(w) == 1, w >= -0.05, w <= 0.1])


FORMS: list[Callable[[Any, int, int], cp.Problem]] = [
    svm_dual, factor_model, reduced_hulls, simplex_fit, balancing, box_program, linear_program,
    leverage_limit, turnover_limit, leverage_and_turnover, trading_costs,
]


def solved(task: tuple[str, int, int, float | None]) -> dict[str, Any]:
    """A form solved twice in this process, plainly where there is a cap; its value and status."""
    name, n, d, cap = task
    form = next(form for form in FORMS if form.__name__ == name)
    cp.Problem(cp.Minimize(cp.sum_squares(cp.Variable(3) - 1)), [cp.Variable(2) >= 0]).solve()
    problem = form(np.random.default_rng(11), n, d)
    how: dict[str, Any] = {"method": "screen"}
    if cap is not None:
        linear = problem.is_lp()
        how = {"solver": "CLARABEL" if linear else "OSQP", "time_limit": cap}
    spent = []
    for _ in range(2):
        began = process_time()
        try:
            problem.solve(**how)
        except cp.error.SolverError:
            return {"seconds": process_time() - began, "status": "failed"}
        spent.append(process_time() - began)
    found = {"seconds": spent[0], "again": spent[1], "status": problem.status}
    found |= {"value": problem.value, "solver": problem.solver_stats.solver_name}
    if cap is None:
        report = problem.solver_stats.extra_stats["cvxscreen"]
        found["gap"] = report.relative_gap if report.recognised else None  # left to CVXPY
    return found


def alone(task: tuple[str, int, int, float | None]) -> dict[str, Any]:
    """The same in a process of its own."""
    with mp.get_context("spawn").Pool(1) as pool:
        return pool.apply(solved, (task,))


def record(name: str, n: int, d: int, cap: float) -> dict[str, Any]:
    """Both ways of one form."""
    ours, plain = alone((name, n, d, None)), alone((name, n, d, cap))
    known = plain.get("value") is not None and np.isfinite(plain["value"])
    off = abs(plain["value"] - ours["value"]) / abs(ours["value"]) if known else None
    return {
        "form": name, "variables": n, "rows": d, "first": ours["seconds"], "second": ours["again"],
        "relative_gap": ours["gap"], "by": ours["solver"], "plain": plain["seconds"],
        "plain_second": plain.get("again"), "plain_status": plain["status"], "off": off,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, nargs=2, default=[10_000, 20])
    parser.add_argument("--cap", type=float, default=40.0)
    parser.add_argument("--store", action="store_true")
    asked = parser.parse_args()
    records = []
    for form in FORMS:
        records.append(record(form.__name__, *asked.size, asked.cap))
        print(json.dumps(records[-1]), flush=True)
    names = list(records[0])
    print(table(names, [tuple(r[name] for name in names) for r in records],
                title="Many variables and few rows through CVXPY, CPU seconds"))
    if asked.store:
        store("few_rows", records, f"Plain solves capped at {asked.cap:g} s of wall time.")


if __name__ == "__main__":
    main()
