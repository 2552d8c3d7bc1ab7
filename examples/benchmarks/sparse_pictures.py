"""Figs. 2-4 of Shibagaki et al. 2016 in form, for `sparse_models.py`.

Rates are those of iterates of SDCA from 0, at relative gaps of at most 1e-1 ... 1e-6; sweeps of a
reduced problem count as sweeps.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import cvxscreen as cs
from cvxscreen import plots

GAPS = 10.0 ** -np.arange(1, 7)
SWEEPING = ("sdca", "spdc")
ROWS = ("unused features", "samples at 0", "samples at the bound")


def share(found: np.ndarray, there_is: np.ndarray) -> float:
    """The share of `there_is` that was found; NaN of nothing."""
    return float((found & there_is).sum() / there_is.sum()) if there_is.any() else np.nan


def measured(problem: cs.Problem) -> tuple[np.ndarray, list[int]]:
    """Rates (gap, alone/added/kept, row) at one lambda, and how many there are to decide."""
    best = cs.solve(problem, tol=1e-9)
    there = cs.screen(problem, reference=best, bound="joint")
    rows = (there.dropped, there.zero, there.linear)
    rates, iterate = [], None
    for gap in GAPS:
        iterate = cs.solve(problem, tol=gap, mode="safe", solver="sdca", bounds=(), start=iterate)
        dual = cs.screen(problem, reference=iterate, bound="dual")
        ball = cs.screen(problem, reference=iterate, bound="midpoint")
        both = cs.screen(problem, reference=iterate, bound="joint")
        alone = (dual.dropped, ball.zero, ball.linear)
        joint = (both.dropped, both.zero, both.linear)
        rates.append([
            [share(a, row) for a, row in zip(alone, rows, strict=True)],
            [share(b & ~a, row) for b, a, row in zip(joint, alone, rows, strict=True)],
            [share(both.needed_features, ~rows[0]),
             share(both.needed_terms, ~(rows[1] | rows[2])), np.nan],
        ])
    return np.array(rates), [int(row.sum()) for row in rows]


def maps(folder: Path, name: str, base: cs.Problem, points: int = 12, last: float = 1e-2) -> None:
    """Fig. 2."""
    lams = np.geomspace(0.9, last, points)
    found = [measured(base.with_(lam=float(lam) * cs.lambda_max(base))) for lam in lams]
    rates = np.array([r for r, _ in found])  # lambda, gap, kind, row
    grids = {
        row: (*(rates[:, :, kind, k].T for kind in (0, 1)), rates[:, :, 2, k].T if k < 2 else None)
        for k, row in enumerate(ROWS)
    }
    counts = {row: [many[k] for _, many in found] for k, row in enumerate(ROWS)}
    figure = plots.both_sides(
        lams, GAPS, grids, counts, parameter="lambda / lambda_max",
        title=f"{name}, {base.n:,} x {base.d:,}: proven by iterates of SDCA",
    )
    print(plots.save(figure, writable(folder) / f"{name}_rates.png"))


def costs(
    folder: Path, name: str, solver: str, grid: np.ndarray, ways: list[str], table: np.ndarray
) -> None:
    """Fig. 4, from (lambda, way, seconds/sweeps)."""
    runs = {way: (table[:, w, 1], table[:, w, 0]) for w, way in enumerate(ways)}
    figure = plots.cost_along(
        grid, runs, title=f"{name}: every solve of the path, solver {solver}",
        parameter="lambda / lambda_max", steps="sweeps" if solver in SWEEPING else "steps",
    )
    print(plots.save(figure, writable(folder) / f"{name}_{solver}_costs.png"))


def bars(folder: Path, solver: str, totals: dict[str, dict[str, float]]) -> None:
    """Fig. 3."""
    figure = plots.total_times(totals, title=f"Path of lambdas, solver {solver}: what is screened")
    print(plots.save(figure, writable(folder) / f"{solver}_totals.png"))


def writable(folder: Path) -> Path:
    """The folder, made where it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder
