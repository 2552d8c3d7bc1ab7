"""Classification and regression under an L1 and a quadratic term: few features, few samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.validation import flag, positive
from cvxscreen.core.problem import Problem
from cvxscreen.errors import InvalidInput
from cvxscreen.estimators.fitting import Array, LeavesOut, OneVsRest, Regression
from cvxscreen.models.linear import sparse_svm, sparse_svr
from cvxscreen.solvers.lambda_max import usual_lambda


def averaged(weight: Array | None) -> Array | None:
    """Weights with mean 1: the loss is a mean, and repeating a row is weighing it."""
    if weight is None or weight.sum() <= 0:
        return weight
    scaled: Array = weight * (len(weight) / weight.sum())
    return scaled


def at_share(problem: Problem, lam: float | None) -> Problem:
    """The problem as it is, or where no `lam` was given at a hundredth of the largest."""
    if lam is not None:
        return problem
    return problem.with_(lam=usual_lambda(problem))


class WithConstant(LeavesOut):
    """An intercept that is the weight of one more feature, a constant, penalised as the others."""

    kernel: Any = "linear"
    lam: float | None
    intercept_scaling: float
    _easier = "a larger `lam`"

    def _with_constant(self, X: Any) -> Any:
        """The features and, for the intercept, the constant one."""
        if not flag("fit_intercept", self.fit_intercept):
            return X
        scale = positive("intercept_scaling", self.intercept_scaling)
        column = np.full((X.shape[0], 1), scale, dtype=X.dtype)
        if sp.issparse(X):
            return sp.hstack([X, sp.csr_array(column)], format="csr")
        return np.hstack([X, column])

    def _split(self, x: Array) -> tuple[Array, Array]:
        """Coefficients and intercepts of points, shapes (K, d) and (K,)."""
        if not self.fit_intercept:
            return x, np.zeros(len(x))
        return x[:, :-1], x[:, -1] * self.intercept_scaling

    def _left_out_of(
        self, X: Any, y: Any, weight: Array | None, leaving: int
    ) -> list[Problem]:
        """The loss is a mean: that of the others is larger by what one part less is divided by.

        Exact where all parts weigh the same, else as if the one that leaves weighed their mean.
        """
        problems = self._problems(X, y, weight, self.lam)
        if any(problem.pure_l1 for problem in problems):
            raise InvalidInput(
                "`l2` is 0; without a quadratic term nothing bounds the fits without a sample."
            )
        return [problem.with_(lam=problem.lam * (leaving - 1) / leaving) for problem in problems]


class SparseSVC(OneVsRest, WithConstant):
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
    >>> bool(model.certificates_[0].ok), bool((model.coef_ == 0).mean() > 0.4)
    (True, True)
    """

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
        problems = self._problems(X, y, weight, self.lam)
        found = list(map(self._solved, problems))  # no frame between the caller and a warning
        self._take(X, problems, [solution.x for solution in found])
        self.lam_ = np.array([float(problem.lam or 0.0) for problem in problems])
        self.certificates_ = tuple(solution.certificate for solution in found)
        return self

    def _problems(
        self, X: Any, y: NDArray[Any], weight: Array | None, lam: float | None
    ) -> list[Problem]:
        """One problem a class; sets ``classes_``."""
        signs, weight = self._signs(y, weight)
        rows, weight = self._with_constant(X), averaged(weight)
        return [
            at_share(
                sparse_svm(
                    rows, sign, 1.0 if lam is None else lam, loss=self.loss, gamma=self.gamma,
                    l2=self.l2, sample_weight=weight,
                ), lam,
            )
            for sign in signs
        ]

    def _take(self, X: Any, problems: Sequence[Any], points: Sequence[Array]) -> None:
        """Keep what prediction needs of the solutions."""
        self.coef_, self.intercept_ = self._split(np.array(points))


class SparseSVR(Regression, WithConstant):
    """Doubly sparse regression: screened in features and samples together.

    ``min_w lam (||w||_1 + l2/2 ||w||^2) + sum_i c_i phi(<x_i, w> - y_i) / sum_i c_i``

    Parameters
    ----------
    lam : float, optional
        Weight of the regulariser. When omitted, a hundredth of the value beyond which the weights
        are all 0.
    loss : {"smoothed_epsilon", "huber", "epsilon", "absolute"}
    epsilon, gamma, delta : float, optional
        Half-width of the insensitive zone (default 0.1), corner width (default 0.5), Huber's
        threshold (default 1), in units of the response.
    l2, fit_intercept, intercept_scaling, tol, mode, time_limit
        As in `SparseSVC`; ``l2=0`` takes Huber's loss.

    Attributes
    ----------
    coef_ : array, shape (n_features,)
    intercept_, lam_ : float
    certificates_ : tuple of Certificate
        Of the one problem, recomputed on all of the data.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Notes
    -----
    Shibagaki, Karasuyama, Hatano, Takeuchi 2016, (1).

    Examples
    --------
    >>> import numpy as np
    >>> from cvxscreen.estimators import SparseSVR
    >>> X = np.random.default_rng(0).normal(size=(200, 50))
    >>> model = SparseSVR(0.1).fit(X, 3 * X[:, 0])
    >>> bool(model.certificates_[0].ok), int(np.argmax(np.abs(model.coef_)))
    (True, 0)
    """

    def __init__(
        self,
        lam: float | None = None,
        *,
        loss: str = "smoothed_epsilon",
        epsilon: float | None = None,
        gamma: float | None = None,
        delta: float | None = None,
        l2: float = 1.0,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        tol: float = 1e-9,
        mode: str = "certified",
        time_limit: float | None = None,
    ) -> None:
        self.lam = lam
        self.loss = loss
        self.epsilon = epsilon
        self.gamma = gamma
        self.delta = delta
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
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
        SparseSVR
            The fitted estimator itself.

        Raises
        ------
        InvalidInput
            For arguments that `cvxscreen.sparse_svr` refuses (also a ``ValueError``).
        """
        [problem] = self._problems(*self._checked(X, y, sample_weight), self.lam)
        found = self._solved(problem)
        coefficients, shift = self._split(found.x[None, :])
        self.coef_, self.intercept_ = coefficients[0], float(shift[0])
        self.lam_ = float(problem.lam or 0.0)
        self.certificates_ = (found.certificate,)
        return self

    def _problems(
        self, X: Any, y: NDArray[Any], weight: Array | None, lam: float | None
    ) -> list[Problem]:
        """The problem of the regression, the only one."""
        return [at_share(
            sparse_svr(
                self._with_constant(X), y, 1.0 if lam is None else lam, loss=self.loss,
                epsilon=self.epsilon, gamma=self.gamma, delta=self.delta, l2=self.l2,
                sample_weight=averaged(weight),
            ), lam,
        )]

    def predict(self, X: Any) -> Array:
        """Predicted responses, shape (m,)."""
        return self._decisions(X)
