"""Absolute, quantile, eps-insensitive and Huber regression; quantiles under an L1 penalty."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from cvxscreen._support.validation import flag, number, positive, tolerance
from cvxscreen.core.problem import Problem
from cvxscreen.errors import InvalidInput
from cvxscreen.estimators.fitting import Array, LeavesOut, OneRegression
from cvxscreen.models.linear import regression


class ScreenedRegressor(OneRegression, LeavesOut):
    """Regression with a piecewise linear-quadratic loss, solved through screening.

    ``min_{w, b} 1/2 ||w||^2 + C sum_i c_i phi(<x_i, w> + b - y_i)``

    Parameters
    ----------
    C : float
        Weight of the loss, positive.
    loss : {"absolute", "quantile", "epsilon", "smoothed_epsilon", "huber"}
    epsilon, tau, gamma, delta : float, optional
        Shape of the loss: half-width of the insensitive zone (default 0.1), quantile level
        (default 0.5), corner width (default 0.5), Huber's threshold (default 1); all but `tau` in
        units of the response.
    kernel : str or callable
        ``"linear"`` (works on the features), ``"rbf"``, ``"poly"``, ``"precomputed"``, another name
        of scikit-learn, or ``k(A, B) -> matrix``.
    kernel_params : mapping, optional
        ``gamma`` (default 1 / n_features), ``coef0``, ``degree``.
    fit_intercept : bool
        Whether to fit an unpenalised ``b``.
    positive : bool
        Whether every coefficient must be at least 0 (not the intercept); linear models only.
    monotonic_cst : array_like of {-1, 0, 1}, shape (n_features,), or dict, optional
        Features in which the prediction must rise (1) or fall (-1), by position or by name.
    constraints : (A, b) or scipy.optimize.LinearConstraint, optional
        ``A @ coef_ >= b``, or ``lb <= A @ coef_ <= ub``.
    tol : float, optional
        Relative duality gap, in (0, 1); 1e-9 when omitted, 1e-5 for a kernel.
    mode : {"certified", "safe"}
        As in `cvxscreen.solve`.
    cache_bytes : int
        Most memory spent on stored kernel rows.
    time_limit : float, optional
        Seconds of wall time; where they run out, the best point so far is kept, with a
        warning that says how accurate it is.

    Attributes
    ----------
    coef_ : array, shape (n_features,)
        With the linear kernel.
    intercept_ : float
    support_, support_vectors_, dual_coef_ : arrays
        With other kernels.
    certificates_ : tuple of Certificate
        Of the one problem, recomputed on all of the data.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Examples
    --------
    >>> from cvxscreen.datasets import heavy_tailed_regression
    >>> from cvxscreen.estimators import ScreenedRegressor
    >>> model = ScreenedRegressor(loss="quantile", tau=0.9).fit(*heavy_tailed_regression(200, 3))
    >>> model.certificates_[0].ok
    True
    """

    _optional_tolerance = True

    def __init__(
        self,
        C: float = 1.0,
        *,
        loss: str = "absolute",
        epsilon: float | None = None,
        tau: float | None = None,
        gamma: float | None = None,
        delta: float | None = None,
        kernel: str | Callable[[Any, Any], Any] = "linear",
        kernel_params: Mapping[str, float] | None = None,
        fit_intercept: bool = True,
        positive: bool = False,
        monotonic_cst: Any = None,
        constraints: Any = None,
        tol: float | None = None,
        mode: str = "certified",
        cache_bytes: int = 2**30,
        time_limit: float | None = None,
    ) -> None:
        self.C = C
        self.loss = loss
        self.epsilon = epsilon
        self.tau = tau
        self.gamma = gamma
        self.delta = delta
        self.kernel = kernel
        self.kernel_params = kernel_params
        self.fit_intercept = fit_intercept
        self.positive = positive
        self.monotonic_cst = monotonic_cst
        self.constraints = constraints
        self.tol = tol
        self.mode = mode
        self.cache_bytes = cache_bytes
        self.time_limit = time_limit

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Solve the problem.

        Parameters
        ----------
        X : array_like or sparse matrix, shape (n, d)
            The square Gram matrix with ``kernel="precomputed"``.
        y : array_like, shape (n,)
        sample_weight : array_like, shape (n,), optional
            Non-negative.

        Returns
        -------
        ScreenedRegressor
            The fitted estimator itself.

        Raises
        ------
        InvalidInput
            For arguments that `cvxscreen.regression` refuses, or constraints that contradict each
            other (also a ``ValueError``).
        """
        X, y, weight = self._checked(X, y, sample_weight)
        [problem] = self._problems(X, y, weight, positive("C", self.C))
        return self._keep(X, problem, self._solved(problem))

    def _problems(self, X: Any, y: ArrayLike, weight: Array | None, C: float) -> list[Problem]:
        """The one problem, at `C`."""
        return [regression(
            X, y, C=C, loss=self.loss, epsilon=self.epsilon, tau=self.tau, gamma=self.gamma,
            delta=self.delta, sample_weight=weight, **self._options(), **self._limits(),
        )]


class ScreenedQuantileRegressor(OneRegression):
    """Linear quantile regression with an L1 penalty or none: ``QuantileRegressor``, certified.

    ``min_{w, b} sum_i c_i pinball(y_i - <x_i, w> - b) / sum_i c_i + alpha ||w||_1``

    where residuals ``r > 0`` cost ``quantile * r`` and others ``(1 - quantile) |r|``.

    Parameters
    ----------
    quantile : float
        Level strictly between 0 and 1.
    alpha : float
        Weight of the L1 penalty, not negative; 0 for none. The default is scikit-learn's.
    fit_intercept : bool
        Whether to fit an unpenalised ``b``.
    positive : bool
        Whether every coefficient must be at least 0 (not the intercept); linear models only.
    monotonic_cst : array_like of {-1, 0, 1}, shape (n_features,), or dict, optional
        Features in which the prediction must rise (1) or fall (-1), by position or by name.
    constraints : (A, b) or scipy.optimize.LinearConstraint, optional
        ``A @ coef_ >= b``, or ``lb <= A @ coef_ <= ub``.
    tol : float
        Relative duality gap, in (0, 1).
    mode : {"certified", "safe"}
        As in `cvxscreen.solve`.
    time_limit : float, optional
        Seconds of wall time; where they run out, the best point so far is kept, with a
        warning that says how accurate it is.

    Attributes
    ----------
    coef_ : array, shape (n_features,)
    intercept_ : float
    certificates_ : tuple of Certificate
        Of the one problem, recomputed on all of the data. Its objective is ``sum_i c_i / alpha``
        times the one above where there is a penalty, ``sum_i c_i`` times where there is none.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Notes
    -----
    The minimiser need not be unique; scikit-learn's may then be another one of the same value.

    Examples
    --------
    >>> from cvxscreen.datasets import heavy_tailed_regression
    >>> from cvxscreen.estimators import ScreenedQuantileRegressor
    >>> X, y = heavy_tailed_regression(500, 3)
    >>> model = ScreenedQuantileRegressor(quantile=0.9, alpha=0.0).fit(X, y)
    >>> model.certificates_[0].ok, bool(abs((y <= model.predict(X)).mean() - 0.9) < 0.02)
    (True, True)
    """

    kernel: Any = "linear"

    _easier = "a larger `alpha`"

    def __init__(
        self,
        *,
        quantile: float = 0.5,
        alpha: float = 1.0,
        fit_intercept: bool = True,
        positive: bool = False,
        monotonic_cst: Any = None,
        constraints: Any = None,
        tol: float = 1e-9,
        mode: str = "certified",
        time_limit: float | None = None,
    ) -> None:
        self.quantile = quantile
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.positive = positive
        self.monotonic_cst = monotonic_cst
        self.constraints = constraints
        self.tol = tol
        self.mode = mode
        self.time_limit = time_limit

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Solve the problem.

        Parameters
        ----------
        X : array_like or sparse matrix, shape (n, d)
        y : array_like, shape (n,)
        sample_weight : array_like, shape (n,), optional
            Non-negative.

        Returns
        -------
        ScreenedQuantileRegressor
            The fitted estimator itself.

        Raises
        ------
        InvalidInput
            For a level outside (0, 1), a negative penalty, weights that are all zero, or
            constraints that do not fit or contradict each other (also a ``ValueError``).
        """
        X, y, weight = self._checked(X, y, sample_weight)
        quantile, alpha = tolerance(self.quantile, "quantile"), number("alpha", self.alpha)
        if not (np.isfinite(alpha) and alpha >= 0.0):
            raise InvalidInput(f"`alpha` is {alpha}; a finite number from 0 on is needed.")
        total = float(X.shape[0]) if weight is None else float(weight.sum())
        if total == 0.0:
            raise InvalidInput("`sample_weight` is zero everywhere; nothing would be fitted.")
        problem = regression(
            X, y, C=1.0 / (alpha * total) if alpha > 0.0 else np.inf, loss="quantile",
            tau=quantile, sample_weight=weight, intercept=flag("fit_intercept", self.fit_intercept),
            penalty="l1" if alpha > 0.0 else "l2", **self._limits(),
        )
        return self._keep(X, problem, self._solved(problem))
