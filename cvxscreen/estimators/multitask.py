"""Multi-task classification with a shared subspace, as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from cvxscreen._support.validation import choice
from cvxscreen.api import solve
from cvxscreen.data_changes.leave_one_out import LeaveOneOut, leave_one_out
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.estimators.fitting import warn_unless_certified
from cvxscreen.models.multitask import raso
from cvxscreen.models.samples import CLASSIFICATION
from cvxscreen.multitask import MultiTask

Array = NDArray[np.float64]


class MultiTaskSVC(ClassifierMixin, BaseEstimator):
    """Linear classifiers of several tasks that share a subspace (rASO).

    ::

        min  sum_l 1/n_l sum_i phi(y_i (x_i' u_l + b_l)) + c tr(U' (eta I + M)^{-1} U)
        over U, b and {tr M = h, 0 <= M <= I},  c = alpha eta (1 + eta),  eta = beta / alpha

    Parameters
    ----------
    h : int
        Dimension of the shared subspace.
    alpha, beta : float
        Penalty outside and inside the shared subspace.
    loss : {"hinge", "smoothed_hinge", "squared_hinge"}
    tol : float
        Certified relative duality gap.
    time_limit : float, optional
        Seconds of wall time; where they run out, the best point so far is kept, with a
        warning that says how accurate it is.

    Attributes
    ----------
    classes_ : array, shape (2,)
    tasks_ : array
        The task ids seen in `fit`, sorted.
    coef_ : array, shape (tasks, features)
    intercept_ : array, shape (tasks,)
    M_ : array, shape (features, features)
    solution_ : MultiTaskSolution
        With the certificate.
    n_features_in_ : int

    Notes
    -----
    Chen, Tang, Liu, Ye, TPAMI 2013, (64). A task that has one class only in `fit` always predicts
    that class.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxscreen.estimators import MultiTaskSVC
    >>> X = np.random.default_rng(0).normal(size=(90, 4))
    >>> task = np.arange(90) % 3
    >>> model = MultiTaskSVC(h=1, alpha=0.1, beta=0.01).fit(X, X[:, 0] > 0, task)
    >>> model.predict(X[:3], task[:3]).shape
    (3,)
    """

    def __init__(
        self,
        h: int = 2,
        *,
        alpha: float = 0.1,
        beta: float = 0.1,
        loss: str = "hinge",
        tol: float = 1e-6,
        time_limit: float | None = None,
    ) -> None:
        self.h = h
        self.alpha = alpha
        self.beta = beta
        self.loss = loss
        self.tol = tol
        self.time_limit = time_limit

    def fit(self, X: ArrayLike, y: ArrayLike, task: ArrayLike) -> MultiTaskSVC:
        """Fit all tasks together.

        Parameters
        ----------
        X : array_like, shape (n, d)
        y : array_like, shape (n,)
            Two classes in all.
        task : array_like, shape (n,)
            The task of every row.

        Raises
        ------
        InvalidInput
        """
        X, problem, _ = self._asked(X, y, task)
        self.solution_ = solve(problem, tol=self.tol, time_limit=self.time_limit)
        warn_unless_certified(self.solution_, "a larger `alpha` and `beta`")
        self.coef_ = self.solution_.U.T.copy()
        self.intercept_ = self.solution_.b.copy()
        self.M_ = self.solution_.M.copy()
        self.n_features_in_ = X.shape[1]
        return self

    def leave_one_out(
        self, X: ArrayLike, y: ArrayLike, task: ArrayLike, *, refit: bool = True, n_jobs: int = 1
    ) -> LeaveOneOut:
        """What each row's task predicts of it without it, the shared matrix as `fit` has it.

        Parameters
        ----------
        X : array_like, shape (n, d)
        y : array_like, shape (n,)
            Two classes in all.
        task : array_like, shape (n,)
        refit : bool
            Whether to fit again without the samples that one pass over the data does not decide.
        n_jobs : int
            Threads for these fits.

        Returns
        -------
        LeaveOneOut
            In the order of the rows; ``record.parts`` are those of each task, in the order of their
            ids. The estimator stays as it is, fitted or not.
        """
        model = clone(self)
        X, problem, rows = model._asked(X, y, task)
        found = solve(problem, tol=model.tol, time_limit=model.time_limit)
        warn_unless_certified(found, "a larger `alpha` and `beta`")
        return leave_one_out(found, refit=refit, n_jobs=n_jobs).taken(
            np.argsort(np.concatenate(rows), kind="stable")
        )

    def _asked(
        self, X: ArrayLike, y: ArrayLike, task: ArrayLike
    ) -> tuple[Array, MultiTask, list[NDArray[np.intp]]]:
        """Validated rows, the problem, and which rows each task has; sets what was seen."""
        X, ids = self._rows(X, task)
        y = np.asarray(y)
        if y.dtype.kind == "f" and not np.isfinite(y).all():
            raise InvalidInput("`y` holds NaN or infinity; drop those rows.")
        if y.shape != (len(X),):
            raise InvalidInput(f"`y` has shape {y.shape}; ({len(X)},) is needed.")
        self.classes_ = np.unique(y)
        if len(self.classes_) != 2:
            raise InvalidInput(f"`y` has {len(self.classes_)} classes; two are needed.")
        loss = choice("loss", self.loss, CLASSIFICATION)
        signs = np.where(y == self.classes_[1], 1.0, -1.0)
        self.tasks_ = np.unique(ids)
        rows = [np.flatnonzero(ids == name) for name in self.tasks_]
        return X, raso(
            [(X[at], signs[at]) for at in rows],
            h=self.h, alpha=self.alpha, beta=self.beta, loss=loss,
        ), rows

    def decision_function(self, X: ArrayLike, task: ArrayLike) -> Array:
        """``x' u + b`` of every row's own task, shape (n,); positive for the second class."""
        check_is_fitted(self)
        X, ids = self._rows(X, task)
        if X.shape[1] != self.n_features_in_:
            raise InvalidInput(
                f"`X` has {X.shape[1]} features; the model has {self.n_features_in_}."
            )
        at = np.searchsorted(self.tasks_, ids).clip(max=len(self.tasks_) - 1)
        unknown = self.tasks_[at] != ids
        if unknown.any():
            raise InvalidInput(f"`task` holds {ids[unknown][0]!r}, which was not seen in `fit`.")
        return np.asarray(np.einsum("ij,ij->i", X, self.coef_[at]) + self.intercept_[at])

    def predict(self, X: ArrayLike, task: ArrayLike) -> NDArray[Any]:
        """The class of every row, shape (n,)."""
        positive = self.decision_function(X, task) > 0
        return np.asarray(self.classes_)[positive.astype(int)]

    def score(self, X: ArrayLike, y: ArrayLike, task: ArrayLike) -> float:
        """Share of the rows that are classified right."""
        return float(np.mean(self.predict(X, task) == np.asarray(y)))

    @staticmethod
    def _rows(X: ArrayLike, task: ArrayLike) -> tuple[Array, NDArray[Any]]:
        X, ids = Rows(X).dense(), np.asarray(task)
        if ids.shape != (len(X),):
            raise InvalidInput(f"`task` has shape {ids.shape}; ({len(X)},) is needed.")
        return X, ids
