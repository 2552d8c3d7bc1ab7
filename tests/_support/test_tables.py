"""How records show themselves: short where they are echoed, whole where they are asked for."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import cvxscreen
from cvxscreen._support.tables import Echoed, number, table

LINE = 240
"""Characters of an echoed record at most: two or three lines of a terminal."""


@pytest.fixture(scope="module")
def records() -> dict[str, object]:
    """One of most kinds."""
    X, y = cvxscreen.datasets.two_gaussians(400, 3)
    problem = cvxscreen.svm(X, y, intercept=True)
    solution = cvxscreen.solve(problem)
    w = cp.Variable(3)
    hinge = cp.sum(cp.pos(1 - cp.multiply(y, X @ w)))
    prob = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + hinge))
    prob.solve(method="screen", solver="CLARABEL", always=True)
    lasso = cp.Problem(cp.Minimize(cp.log_sum_exp(w)))
    lasso.solve(method="screen")
    return {
        "solution": solution, "problem": problem, "certificate": solution.certificate,
        "screening": solution.screening, "verdict": cvxscreen.screen(problem, reference=solution),
        "path": cvxscreen.path(problem, values=np.geomspace(0.01, 1, 40)),
        "report": prob.solver_stats.extra_stats["cvxscreen"],
        "refusal": lasso.solver_stats.extra_stats["cvxscreen"],
        "explanation": cvxscreen.explain(prob), "comparison": cvxscreen.verify(prob),
        "comparisons": cvxscreen.verify(prob, solver=["CLARABEL"]),
        "triplets": cvxscreen.triplets(X[:40], y[:40], 2),
        "left out": cvxscreen.leave_one_out(solution),
    }


KINDS = ["solution", "problem", "certificate", "screening", "verdict", "path", "report", "refusal",
         "explanation", "comparison", "comparisons", "triplets", "left out"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_is_one_short_line_when_echoed(records, kind: str) -> None:
    record = records[kind]
    assert isinstance(record, Echoed)
    assert "\n" not in repr(record)
    assert len(repr(record)) <= LINE
    assert repr(record).startswith(f"<{type(record).__name__}: ")
    if kind != "triplets":  # whose table is that of their pairs
        assert len(record.table()) >= len(str(record)) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_notebook_shows_what_print_shows(records, kind: str) -> None:
    html = records[kind]._repr_html_()
    assert html.startswith("<pre>")
    assert html.count("<") == 2  # nothing of the text is markup


def test_a_long_path_is_printed_without_its_middle(records) -> None:
    path = records["path"]
    assert "16 more points" in str(path)
    assert len(path.table().splitlines()) == 43
    assert len(str(path).splitlines()) == 28
    assert "ms (average)" in path.table()  # the points were solved together


def test_the_report_tells_what_the_solver_saw_from_what_is_proven(records) -> None:
    shown = str(records["report"])
    assert "seen by the solver (kept)" in shown
    assert "proven at the end: zero" in shown
    assert "solved plainly by CVXPY" in repr(records["refusal"])


def test_the_rounds_are_in_the_table(records) -> None:
    assert "refuted" in records["solution"].table()
    assert "refuted" not in str(records["solution"])


def test_cells_of_a_table() -> None:
    assert [number(v) for v in (True, None, 12345, 0.5, "a")] == ["yes", "-", "12,345", "0.5", "a"]
    assert table(("a", "b"), [(1, "x")], title="T").splitlines() == ["T", "a  b", "-  -", "1  x"]
