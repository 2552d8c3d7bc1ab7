"""cvxscreen for benchopt's benchmark of linear support vector machines without an intercept."""

from __future__ import annotations

from typing import Any

import numpy as np
from benchopt import BaseSolver

import cvxscreen


class Solver(BaseSolver):  # type: ignore[misc, unused-ignore]
    """``min_w C sum_i max(0, 1 - y_i <x_i, w>) + 1/2 |w|^2`` to a certified gap."""

    name = "cvxscreen"
    requirements = ("pip::cvxscreen",)
    sampling_strategy = "tolerance"
    stopping_strategy = "tolerance"

    def set_objective(self, X: Any, y: Any, C: float) -> None:
        """Keep the problem."""
        self.X, self.y, self.C = X, y, float(C)

    def warm_up(self) -> None:
        """Compile what is compiled, once."""
        self.run(1e-3)

    def run(self, tol: float) -> None:
        """Solve to a relative duality gap of `tol`."""
        problem = cvxscreen.svm(self.X, self.y, C=self.C)
        self.found = cvxscreen.solve(problem, tol=float(np.clip(tol, 1e-12, 0.5)))

    def get_result(self) -> dict[str, Any]:
        """The weights."""
        return {"beta": self.found.x}
