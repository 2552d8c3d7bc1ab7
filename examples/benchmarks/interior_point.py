"""The interior point method against Clarabel, HiGHS and the Newton method, problem by problem.

    OMP_NUM_THREADS=1 python examples/benchmarks/interior_point.py [--out interior_point.json]

Quantile regression (tau = 0.9, no ridge), the hinge loss with a ridge, and the CVaR of a portfolio
on the simplex (no ridge), made from Student's t and Gaussian data. Each solver gets the whole
problem, unreduced. CPU seconds of one call in this process, the method's own first call of all
included; ``gap`` is the relative gap that `cvxscreen.certificates.certificate.certify` recomputes,
``above`` how far the objective is above the best one found. A solver that needs more than `--limit`
seconds is stopped there, and left out on larger sizes; Clarabel and HiGHS are left out where the
data have more than `--largest` entries.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import scipy.sparse as sp
from report import with_origin
from scipy.optimize import linprog

from cvxscreen._support.limits import Limits
from cvxscreen._support.tables import table
from cvxscreen.certificates.certificate import certify
from cvxscreen.core.cones import SideConstraints
from cvxscreen.core.losses import Losses
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.cvxpy_plugin.cvxpy_solver import build
from cvxscreen.designs.rows import Rows
from cvxscreen.solvers.interior_point import InteriorPoint
from cvxscreen.solvers.newton import Newton

SIZES = ((200_000, 50), (2_000, 50), (20_000, 50), (20_000, 500), (5_000, 2_000))
TOL = 1e-10


def quantile(n: int, d: int, rng: np.random.Generator) -> Problem:
    """Linear quantile regression with an intercept."""
    X = np.c_[np.ones(n), rng.standard_normal((n, d - 1))]
    y = X @ rng.standard_normal(d) + rng.standard_t(3, n)
    losses = Losses(y, np.zeros(n), np.zeros(n), np.full(n, -0.9), np.full(n, 0.1))
    return Problem(Rows(X), losses, Quadratic(np.zeros(d)), np.zeros(d))


def hinge(n: int, d: int, rng: np.random.Generator) -> Problem:
    """A support vector machine at C = 1, a third of the labels wrong."""
    X, w = rng.standard_normal((n, d)), rng.standard_normal(d)
    y = np.sign(X @ w + np.sqrt(d) * rng.standard_normal(n))
    return Problem(
        Rows(X, y), Losses.repeated(n, 1.0, 0.0, 0.0, -1.0, 0.0), Quadratic(np.ones(d)), np.zeros(d)
    )


def cvar(n: int, d: int, rng: np.random.Generator) -> Problem:
    """The portfolio of least conditional value at risk (95 %); the threshold is coordinate d."""
    R = 0.001 + 0.01 * rng.standard_t(4, (n, d)) + 0.005 * rng.standard_normal((n, 1))
    F = sp.vstack([sp.csr_matrix(np.r_[np.ones(d), 0.0]),
                   sp.hstack([sp.identity(d), sp.csr_matrix((d, 1))])])
    side = SideConstraints(F, np.r_[-1.0, np.zeros(d)], (("zero", 1), ("nonneg", d)))
    losses = Losses.repeated(n, 0.0, 0.0, 0.0, 0.0, 1.0 / (0.05 * n))
    return Problem(Rows(np.c_[-R, -np.ones(n)]), losses, Quadratic(np.zeros(d + 1)),
                   np.r_[np.zeros(d), 1.0], side=side)


def by_interior_point(problem: Problem, limit: float) -> dict[str, Any]:
    """Ours, to rounding."""
    solver = InteriorPoint(limits=Limits(time_limit=limit))
    found = solver(problem, None, TOL * scale(problem))
    pair = (found.x, found.theta, found.multipliers)
    return {"steps": found.info["steps"], "pair": pair, "status": found.status}


def by_newton(problem: Problem, limit: float) -> dict[str, Any]:
    """The built-in solver for problems without constraints."""
    found = Newton(limits=Limits(time_limit=limit))(problem, None, TOL * scale(problem))
    return {"steps": found.info["steps"], "pair": (found.x, found.theta, found.multipliers),
            "status": found.status}


def by_clarabel(problem: Problem, limit: float) -> dict[str, Any]:
    """Through CVXPY, at its own tolerances."""
    built = build(problem)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        built.problem.solve(solver="CLARABEL", time_limit=limit)
    if built.variable.value is None:
        return {"status": built.problem.status}
    return {"steps": built.problem.solver_stats.num_iters, "pair": built.read(),
            "status": built.problem.status}


def by_highs(problem: Problem, limit: float) -> dict[str, Any]:
    """The dual linear program by scipy's HiGHS: bounded slopes, one equality a coordinate."""
    f, side, n = problem.losses, problem.side, problem.n
    columns = problem.design.dense().T
    m = 0 if side is None else len(side.offset)
    cost, low, high = f.b, f.lo, f.hi
    if side is not None:
        columns = np.hstack([columns, -side.matrix.toarray().T])
        cost = np.r_[cost, side.offset]
        free = np.concatenate([np.full(r.stop - r.start, kind == "zero")
                               for kind, _, r in side.blocks()])
        low, high = np.r_[low, np.where(free, -np.inf, 0.0)], np.r_[high, np.full(m, np.inf)]
    found = linprog(cost, A_eq=columns, b_eq=-problem.linear, bounds=np.c_[low, high],
                    method="highs", options={"time_limit": limit})
    if found.x is None:
        return {"status": found.message.split("(")[0].strip()}
    x = found.eqlin.marginals
    theta = np.clip(found.x[:n], f.lo, f.hi)
    return {"steps": int(found.nit), "pair": (x, theta, found.x[n:]), "status": "optimal"}


SOLVERS: dict[str, Callable[[Problem, float], dict[str, Any]]] = {
    "interior_point": by_interior_point, "newton": by_newton, "clarabel": by_clarabel,
    "highs": by_highs,
}


PEERS = ("clarabel", "highs")


def scale(problem: Problem) -> float:
    """The objective at 0, or the size of its terms where that is 0."""
    at_zero = abs(problem.primal(np.zeros(problem.d)))
    return at_zero if at_zero > 0 else 0.01


def fits(name: str, problem: Problem) -> bool:
    """Whether a solver takes the problem at all."""
    if name == "newton":
        return problem.side is None
    return name != "highs" or not problem.quadratic.diagonal.any()


def main() -> None:
    """Run every solver on every problem and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--largest", type=float, default=1e6)
    given = parser.parse_args()
    rows, spent = [], set()
    for n, d in SIZES:
        for make in (quantile, hinge, cvar):
            problem = make(n, d, np.random.default_rng(n + d))
            found: dict[str, dict[str, Any]] = {}
            for name, solve in SOLVERS.items():
                if not fits(name, problem) or (name, make) in spent or (
                    name in PEERS and n * d > given.largest
                ):
                    continue
                began = process_time()
                found[name] = solve(problem, given.limit)
                found[name]["cpu"] = process_time() - began
                if found[name]["cpu"] >= given.limit:
                    spent.add((name, make))
                if "pair" in found[name]:
                    found[name]["value"] = problem.primal(found[name]["pair"][0])
                    proof = certify(problem, *found[name].pop("pair"))
                    found[name]["gap"], found[name]["violation"] = (
                        proof.relative_gap, proof.violation)
            # A point outside the constraints may have any value.
            ours = found["interior_point"]["value"]
            for name, record in found.items():
                if "value" in record:
                    record["above"] = (record["value"] - ours) / abs(ours)
                rows.append({"problem": make.__name__, "n": n, "d": d, "solver": name, **record})
                print(rows[-1], flush=True)
                if given.out:
                    given.out.write_text(json.dumps(with_origin(rows), indent=1) + "\n")
    header = ["problem", "n", "d", "solver", "steps", "CPU s", "gap", "above"]
    print(table(header, [[
        r["problem"], r["n"], r["d"], r["solver"], r.get("steps", ""), f"{r['cpu']:.2f}",
        f"{r.get('gap', np.nan):.1e}", f"{r.get('above', np.nan):.1e}",
    ] for r in rows]))


if __name__ == "__main__":
    main()
