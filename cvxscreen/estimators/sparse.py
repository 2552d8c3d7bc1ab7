"""Classification with an L1 and a quadratic term: few features, few samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from cvxscreen._support.validation import flag, positive
from cvxscreen.estimators.fitting import OneVsRest, ScreenedModel
from cvxscreen.models.sparse import sparse_svm
from cvxscreen.solvers.lambda_max import lambda_max

SHARE = 0.01
"""Of the largest lambda that matters, where none is given."""


class SparseSVC(OneVsRest, ScreenedModel):
    """Doubly sparse support vector classifier: screened in features and samples together.

    For each class k (one problem when there are two classes)

    ``min_w lam (||w||_1 + l2/2 ||w||^2) + sum_i c_i phi(y_ik <x_i, w>) / sum_i c_i``, ``y_ik = +1``
    for the class and -1 for the rest.

    Parameters
    ----------
    lam : float, optional
        Weight of the regulariser. When omitted, a hundredth of the value beyond which the weights
        are all 0, for each problem its own.
    loss : {"smoothed_hinge", "squared_hinge", "hinge"}
    gamma : float, optional
        Corner width of the smoothed hinge (default 0.5).
    l2 : float
        Weight of the quadratic term beside the L1 norm; 0 leaves the L1 norm alone (with the
        squared hinge, or the plain one: the LP-SVM).
    fit_intercept : bool
        Whether to add a feature that is constant. Its weight is penalised like the others, as in
        LIBLINEAR.
    intercept_scaling : float
        The value of that feature; a large one makes the penalty of the intercept small.
    class_weight : dict or "balanced", optional
        Factors of the samples' weights by class, the same in every one-vs-rest problem.
    tol : float
        Relative duality gap of each problem, in (0, 1).
    mode : {"certified", "safe"}
        As in `cvxscreen.solve`.
    time_limit : float, optional
        Seconds of wall time for each class; where they run out, the best point so far is kept,
        with a warning that says how accurate it is.

    Attributes
    ----------
    classes_ : array, shape (n_classes,)
    coef_ : array, shape (1 or n_classes, n_features)
    intercept_ : array, shape (1 or n_classes,)
    lam_ : array, shape (1 or n_classes,)
    certificates_ : tuple of Certificate
        One a problem, recomputed on all of the data.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Notes
    -----
    Shibagaki, Karasuyama, Hatano, Takeuchi 2016, (1).

    Examples
    --------
    >>> from cvxscreen.datasets import sparse_text_like
    >>> from cvxscreen.estimators import SparseSVC
    >>> X, y = sparse_text_like(300, 500, density=0.02)
    >>> model = SparseSVC().fit(X, y)
    >>> bool(model.certificates_[0].ok), bool((model.coef_ == 0).mean() > 0.5)
    (True, True)
    """

    kernel: Any = "linear"

    def __init__(
        self,
        lam: float | None = None,
        *,
        loss: str = "smoothed_hinge",
        gamma: float | None = None,
        l2: float = 1.0,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        class_weight: Mapping[Any, float] | str | None = None,
        tol: float = 1e-9,
        mode: str = "certified",
        time_limit: float | None = None,
    ) -> None:
        self.lam = lam
        self.loss = loss
        self.gamma = gamma
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.class_weight = class_weight
        self.tol = tol
        self.mode = mode
        self.time_limit = time_limit

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Solve one problem a class.

        Parameters
        ----------
        X : array_like or sparse matrix, shape (n, d)
        y : array_like, shape (n,)
            Two or more classes.
        sample_weight : array_like, shape (n,), optional
            Non-negative.

        Returns
        -------
        SparseSVC
            The fitted estimator itself.

        Raises
        ------
        InvalidInput
            For one class, or arguments that `cvxscreen.sparse_svm` refuses (also a ``ValueError``).
        """
        X, y, weight = self._checked(X, y, sample_weight)
        signs, weight = self._signs(y, weight)
        if weight is not None and weight.sum() > 0:
            weight = weight * (len(weight) / weight.sum())  # a mean: repeating a row is weighing it
        rows, lams, found = self._with_constant(X), [], []
        for sign in signs:
            problem = sparse_svm(
                rows, sign, 1.0 if self.lam is None else self.lam, loss=self.loss,
                gamma=self.gamma, l2=self.l2, sample_weight=weight,
            )
            if self.lam is None:
                largest = lambda_max(problem)
                problem = problem.with_(lam=SHARE * largest if largest > 0 else 1.0)
            solution = self._solved(problem)
            lams.append(float(problem.lam or 0.0))
            found.append(solution)
        x = np.array([solution.x for solution in found])
        self.coef_ = x[:, : self.n_features_in_]
        self.intercept_ = np.zeros(len(x))
        if self.fit_intercept:
            self.intercept_ = x[:, -1] * self.intercept_scaling
        self.lam_ = np.array(lams)
        self.certificates_ = tuple(solution.certificate for solution in found)
        return self

    def _with_constant(self, X: Any) -> Any:
        """The features and, for the intercept, the constant one."""
        if not flag("fit_intercept", self.fit_intercept):
            return X
        scale = positive("intercept_scaling", self.intercept_scaling)
        column = np.full((X.shape[0], 1), scale, dtype=X.dtype)
        if sp.issparse(X):
            return sp.hstack([X, sp.csr_array(column)], format="csr")
        return np.hstack([X, column])
