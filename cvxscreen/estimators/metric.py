"""Metric learning from triplets, as a scikit-learn transformer."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from cvxscreen.api import solve
from cvxscreen.estimators.fitting import warn_unless_certified
from cvxscreen.models.metric import factor_of, metric_of, rtlm, triplets
from cvxscreen.solvers.lambda_max import usual_lambda

Array = NDArray[np.float64]


class TripletMetricLearner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A Mahalanobis metric under which neighbours of the same class are closer than others.

    ``min_{M >= 0} sum_ijl l(|x_i - x_l|_M^2 - |x_i - x_j|_M^2) + lam/2 |M|_F^2`` over triplets of
    a point, a neighbour j of its class and one l of another; the transformed data ``X L'``,
    ``M = L' L``, have that metric as their Euclidean one.

    Parameters
    ----------
    k : int, pair of int, or "all"
        Nearest neighbours of the same and of other classes that are combined.
    lam : float, optional
        Weight of the regulariser. When omitted, a hundredth of the value beyond which every
        triplet is on the linear piece of its loss.
    gamma : float
        Width of the hinge's smoothed corner.
    diagonal : bool
        Learn weights of the features instead of a full matrix.
    n_components : int, optional
        Most columns of the transformed data; the rank of M when omitted.
    tol : float
        Relative duality gap, in (0, 1).
    mode : {"certified", "safe"}
        As in `cvxscreen.solve`.
    time_limit : float, optional
        Seconds of wall time; where they run out, the best point so far is kept, with a
        warning that says how accurate it is.

    Attributes
    ----------
    metric_ : array, shape (n_features, n_features)
        M, positive semidefinite.
    components_ : array, shape (r, n_features)
        L, the largest directions first.
    lam_ : float
    n_triplets_ : int
    certificate_ : Certificate
        Recomputed on all triplets.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Notes
    -----
    Yoshida, Takeuchi, Karasuyama 2019, (2.1). Scale the features first.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from cvxscreen.estimators import TripletMetricLearner
    >>> X, y = load_iris(return_X_y=True)
    >>> TripletMetricLearner(k=3).fit(X, y).certificate_.ok
    True
    """

    def __init__(
        self,
        k: int | tuple[int, int] | str = 5,
        *,
        lam: float | None = None,
        gamma: float = 0.05,
        diagonal: bool = False,
        n_components: int | None = None,
        tol: float = 1e-6,
        mode: str = "certified",
        time_limit: float | None = None,
    ) -> None:
        self.k = k
        self.lam = lam
        self.gamma = gamma
        self.diagonal = diagonal
        self.n_components = n_components
        self.tol = tol
        self.mode = mode
        self.time_limit = time_limit

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Learn the metric.

        Parameters
        ----------
        X : array_like, shape (n, d)
        y : array_like, shape (n,)
            Two or more classes, at least one of them with two points.

        Returns
        -------
        TripletMetricLearner
            The fitted estimator itself.

        Raises
        ------
        InvalidInput
            For labels without triplets, or what `cvxscreen.rtlm` refuses (also a ``ValueError``).
        """
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32])
        check_classification_targets(y)
        chosen = triplets(X, y, self.k)
        first = 1.0 if self.lam is None else self.lam
        problem = rtlm(X, chosen, first, gamma=self.gamma, diagonal=self.diagonal)
        if self.lam is None:
            problem = problem.with_(lam=usual_lambda(problem))
        found = solve(problem, tol=self.tol, mode=self.mode, time_limit=self.time_limit)
        warn_unless_certified(found, "a larger `lam`")
        self.lam_, self.n_triplets_ = float(problem.lam or first), len(chosen)
        self.metric_ = metric_of(problem, found.x)
        self.components_ = factor_of(problem, found.x, self.n_components)
        self.certificate_ = found.certificate
        return self

    def transform(self, X: Any) -> Array:
        """``X L'``, shape (m, r): Euclidean distances there are distances in the metric."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        return np.asarray(X @ self.components_.T)

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])
