"""The LP-SVM as a ``cvxpy.Problem``, as anybody would write it."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np

from cvxscreen.columns import by_columns
from cvxscreen.lp_svm import LpSvm


def lp_to_cvxpy(problem: LpSvm) -> Any:
    """``minimise lam ||w||_1 + sum_i c_i max(0, 1 - <a_i, w>)`` in one vector variable."""
    w = cp.Variable(problem.d)
    rows = by_columns(problem.design).tocsr()
    matrix = rows if problem.design.sparse else np.asarray(rows.toarray())
    loss = problem.c @ cp.pos(1.0 - matrix @ w)
    return cp.Problem(cp.Minimize(problem.lam * cp.norm1(w) + loss))
