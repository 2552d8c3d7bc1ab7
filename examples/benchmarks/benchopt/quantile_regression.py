"""cvxscreen for benchopt's benchmark of quantile regression under an L1 norm."""

from __future__ import annotations

from typing import Any

import numpy as np
from benchopt import BaseSolver

from cvxscreen.estimators import ScreenedQuantileRegressor


class Solver(BaseSolver):  # type: ignore[misc, unused-ignore]
    """``min_{b, b0} 1/n sum_i pinball(y_i - <x_i, b> - b0) + lmbd |b|_1`` to a certified gap."""

    name = "cvxscreen"
    requirements = ("pip::cvxscreen",)
    sampling_strategy = "tolerance"
    stopping_strategy = "tolerance"

    def set_objective(
        self, X: Any, y: Any, lmbd: float, quantile: float, fit_intercept: bool
    ) -> None:
        """Keep the problem."""
        self.X, self.y, self.intercept = X, y, bool(fit_intercept)
        self.lmbd, self.quantile = float(lmbd), float(quantile)

    def warm_up(self) -> None:
        """Compile what is compiled, once."""
        self.run(1e-3)

    def run(self, tol: float) -> None:
        """Solve to a relative duality gap of `tol`."""
        model = ScreenedQuantileRegressor(
            quantile=self.quantile, alpha=self.lmbd, fit_intercept=self.intercept,
            tol=float(np.clip(tol, 1e-12, 0.5)),
        )
        self.found = model.fit(self.X, self.y)

    def get_result(self) -> dict[str, Any]:
        """The coefficients, the intercept last."""
        found = self.found
        own = [found.intercept_] if self.intercept else []
        return {"params": np.append(found.coef_, own)}
