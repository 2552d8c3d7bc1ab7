"""Forty-seven problems that people write in CVXPY: plain solves against ``method="screen"``.

    OMP_NUM_THREADS=1 python examples/benchmarks/cvxpy_forms.py [--terms 8000] [--only NAME ...]

The problems are those of ``tests/cvxpy_plugin/forms.py``. For each: CPU seconds of
``prob.solve(solver="CLARABEL")`` and of two solves with ``method="screen"`` of the same problem
written anew, everything included; what the recogniser said; how far the two values are apart, and
how large the primal residuals are. Where nothing was recognised CVXPY's own choice of a solver is
what solved it, and what that takes plainly is measured, too (`default`). Nothing is compiled or
warmed beforehand. ``--json`` names the file that the records go to. The last lines count what was
recognised and give the geometric mean of plain over screened CPU time.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path
from time import process_time
from typing import Any

import cvxpy as cp
import numpy as np
from report import with_origin

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from cvxpy_plugin.forms import ASIDE, FORMS, Form

import cvxscreen  # noqa: F401 - registers the solve method

RESULTS = Path(__file__).parent / "results" / "cvxpy_forms.json"

SMALLER = {"svdd": 1.0, "lasso_wide": 1.0, "crammer_singer": 0.625, "one_against_rest_l1": 0.625}
"""Share of the terms for forms that take a plain solve minutes otherwise, or have three classes."""


def timed(solve: Any) -> tuple[float, str]:
    """CPU seconds of a solve, and what it raised."""
    began, failure = process_time(), ""
    try:
        solve()
    except cp.error.SolverError as error:
        failure = str(error)[:80]
    return process_time() - began, failure


def residual(problem: cp.Problem) -> float:
    """Largest violation of a constraint; NaN without an answer."""
    if problem.value is None or not np.isfinite(problem.value):
        return float("nan")
    found = [np.max(c.violation(), initial=0.0) for c in problem.constraints]
    return float(max(found, default=0.0))


def measured(form: Form, terms: int, coordinates: int) -> dict[str, Any]:
    """One line of the table."""
    n = int(terms * SMALLER.get(form.name, 1.0))
    plain, ours = form.make(n, coordinates), form.make(n, coordinates)
    seconds, failure = timed(lambda: plain.solve(solver="CLARABEL"))
    first, _ = timed(lambda: ours.solve(method="screen"))
    report = ours.solver_stats.extra_stats["cvxscreen"]
    value, violation = ours.value, residual(ours)
    second, _ = timed(lambda: ours.solve(method="screen"))
    default = float("nan")
    if not report.recognised:  # then it was solved by the solver that CVXPY chooses
        default, _ = timed(form.make(n, coordinates).solve)
    apart = abs(value - plain.value) / max(abs(plain.value), 1e-9) if not failure else float("nan")
    return {
        "form": form.name, "recognised": report.recognised, "terms": report.terms,
        "kept": report.kept, "plain": seconds, "default": default, "first": first, "second": second,
        "value_difference": apart, "plain_residual": residual(plain), "residual": violation,
        "relative_gap": report.relative_gap, "status": ours.status, "plain_status": plain.status,
        "reason": failure or report.reason, "aside": form.name in ASIDE,
    }


def mean_ratio(records: list[dict[str, Any]], which: str) -> float:
    """Geometric mean of plain over screened time of the recognised forms."""
    ratios = [r["plain"] / r[which] for r in records if r["recognised"]]
    return float(np.exp(np.mean(np.log(ratios)))) if ratios else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--terms", type=int, default=8000)
    parser.add_argument("--coordinates", type=int, default=30)
    parser.add_argument("--only", nargs="*", default=[form.name for form in FORMS])
    parser.add_argument("--json", type=Path, default=RESULTS)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    cp.Problem(cp.Minimize(cp.norm1(cp.Variable(3) - 1))).solve()  # imports CVXPY's packages
    print(f"{'form':26} recognised   kept     plain    first   second  value differs by")
    records = []
    for form in FORMS:
        if form.name not in args.only:
            continue
        line = measured(form, args.terms, args.coordinates)
        records.append(line)
        print(
            f"{line['form']:26} {line['recognised']!s:10} {line['kept']:6} {line['plain']:9.2f}"
            f"{line['first']:9.2f}{line['second']:9.2f} {line['value_difference']:9.1e}  "
            f"{line['reason'][:70]}", flush=True,
        )
    print(f"recognised: {sum(r['recognised'] for r in records)} of {len(records)}")
    for which in ("first", "second"):
        print(f"plain over {which} solve, geometric mean: {mean_ratio(records, which):.1f}")
    args.json.write_text(json.dumps(with_origin({"records": records}), indent=1) + "\n")


if __name__ == "__main__":
    main()
