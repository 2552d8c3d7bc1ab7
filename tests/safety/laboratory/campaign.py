"""The safety campaign.

    python tests/safety/laboratory/campaign.py OUT.jsonl --decisions 10000000

Cells of random and adversarial problems are drawn one after another, every decision of every
bound is checked against references of a hundred digits, and one line a cell is appended to
OUT.jsonl. A second call goes on where the first one ended; a half-written last line does no harm.
The exit status is 0 only if no decision was wrong and no cell failed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from itertools import count as numbers
from pathlib import Path

for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")

import numpy as np  # noqa: E402
import report  # noqa: E402
from attained_cells import at_another_C, on_spheres  # noqa: E402
from block_cells import blocks, chunks  # noqa: E402
from budget_cells import budgets  # noqa: E402
from change_cells import changes, kernel_changes, ranges  # noqa: E402
from checks import Ledger  # noqa: E402
from ground_cells import columns, held_rows, without_curvature  # noqa: E402
from kernel_cells import kernels, refusals  # noqa: E402
from metric_cells import metrics, planted_metrics  # noqa: E402
from other_cells import linear_program, multitask  # noqa: E402
from plugin_cells import plugin, rows_left_out  # noqa: E402
from side_cells import constraints  # noqa: E402
from tqdm import tqdm  # noqa: E402
from vector_cells import elastic, front_doors, planted, single  # noqa: E402

Cell = Callable[[Ledger, int, np.random.Generator, int], None]

FAMILIES: dict[str, tuple[Cell, int]] = {
    "front_doors": (front_doors, 6),
    "planted": (planted, 6),
    "elastic": (elastic, 4),
    "kernels": (kernels, 3),
    "metrics": (metrics, 2),
    "multitask": (multitask, 2),
    "linear_program": (linear_program, 3),
    "single": (single, 1),
    "refusals": (refusals, 1),
    "constraints": (constraints, 2),
    "planted_metrics": (planted_metrics, 2),
    "attained": (at_another_C, 2),
    "attained_metrics": (on_spheres, 2),
    "without_curvature": (without_curvature, 4),
    "held_rows": (held_rows, 2),
    "columns": (columns, 2),
    "changes": (changes, 3),
    "plugin": (plugin, 3),
    "chunks": (chunks, 2),
    "blocks": (blocks, 2),
    "kernel_changes": (kernel_changes, 1),
    "budgets": (budgets, 2),
    "ranges": (ranges, 3),
    "rows_left_out": (rows_left_out, 3),
}
"""Every kind of cell with its number in one round."""


def cells(families: list[str]) -> Iterator[tuple[str, int]]:
    """All cells of `families`, round after round, without end."""
    for turn in numbers():
        for family in families:
            share = FAMILIES[family][1]
            for k in range(share):
                yield family, turn * share + k


def run(family: str, number: int, seed: int, points: int) -> dict:
    """One cell; what goes wrong in it is part of the record."""
    ledger, error, start = Ledger(), "", time.process_time()
    rng = np.random.default_rng([seed, list(FAMILIES).index(family), number])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            FAMILIES[family][0](ledger, number, rng, points)
        except Exception:
            error = traceback.format_exc(limit=-4)
    return {
        "cell": f"{family}:{number}", "seed": seed, "points": points,
        "seconds": round(time.process_time() - start, 3), "rows": ledger.rows(),
        "findings": ledger.findings, "error": error,
        "warnings": sorted({str(w.message) for w in caught}),
    }


def campaign(
    out: Path, decisions: int, seed: int = 0, points: int = 8, *,
    families: list[str] | None = None, shown: bool = True,
) -> list[dict]:
    """Run cells until `decisions` are checked; lines of earlier calls count."""
    lines = report.read(out)
    done = {line["cell"] for line in lines if (line["seed"], line["points"]) == (seed, points)}
    if out.exists() and not out.read_bytes().endswith(b"\n") and out.stat().st_size:
        out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    checked = sum(report.total(line, "checked") for line in lines)
    with (
        out.open("a") as file,
        tqdm(total=decisions, initial=checked, unit="decision", unit_scale=True, disable=not shown,
             file=sys.stderr, mininterval=2.0) as bar,
    ):
        for family, number in cells(families or list(FAMILIES)):
            if checked >= decisions:
                return lines
            if f"{family}:{number}" in done:
                continue
            line = run(family, number, seed, points)
            file.write(json.dumps(line) + "\n")
            file.flush()
            lines.append(line)
            fresh = report.total(line, "checked")
            checked += fresh
            bar.update(fresh)
    return lines


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--decisions", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--points", type=int, default=8, help="approximate points a reference")
    parser.add_argument("--families", nargs="*", choices=list(FAMILIES), help="all by default")
    parser.add_argument("--full", action="store_true", help="every row of the table")
    given = parser.parse_args(arguments)
    lines = campaign(
        given.out, given.decisions, given.seed, given.points, families=given.families
    )
    print(report.table(lines, full=given.full))
    return report.status(lines)


if __name__ == "__main__":
    sys.exit(main())
