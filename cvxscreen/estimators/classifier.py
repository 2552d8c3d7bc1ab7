"""Support vector classification, linear or kernel, one-vs-rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

from numpy.typing import ArrayLike, NDArray

from cvxscreen.core.problem import Problem
from cvxscreen.estimators.fitting import Array, OneVsRest, ScreenedModel
from cvxscreen.models.svm import svm


class ScreenedSVC(OneVsRest, ScreenedModel):
    """Support vector classifier, solved through screening with a certificate.

    For each class k (one problem when there are two classes)

    ``min_{w, b} 1/2 ||w||^2 + C sum_i c_i phi(y_ik (<x_i, w> + b))``, ``y_ik = +1`` for the class
    and -1 for the rest.

    Parameters
    ----------
    C : float
        Weight of the loss, positive.
    loss : {"hinge", "smoothed_hinge", "squared_hinge"}
    gamma : float, optional
        Corner width of the smoothed hinge (default 0.5); a kernel's own goes to `kernel_params`.
    kernel : str or callable
        ``"linear"`` (works on the features), ``"rbf"``, ``"poly"``, ``"precomputed"``, another name
        of scikit-learn, or ``k(A, B) -> matrix``.
    kernel_params : mapping, optional
        ``gamma`` (default 1 / n_features), ``coef0``, ``degree``.
    fit_intercept : bool
        Whether to fit an unpenalised ``b``.
    class_weight : dict or "balanced", optional
        Factors of the samples' weights by class, the same in every one-vs-rest problem.
    tol : float
        Relative duality gap of each problem, in (0, 1).
    mode : {"certified", "safe"}
        As in `cvxscreen.solve`.
    cache_bytes : int
        Most memory spent on stored kernel rows.
    time_limit : float, optional
        Seconds of wall time for each class; where they run out, the best point so far is kept,
        with a warning that says how accurate it is.

    Attributes
    ----------
    classes_ : array, shape (n_classes,)
    coef_ : array, shape (1 or n_classes, n_features)
        With the linear kernel.
    intercept_ : array, shape (1 or n_classes,)
    support_, support_vectors_, dual_coef_ : arrays
        With other kernels: indices, points (not for ``"precomputed"``) and coefficients.
    certificates_ : tuple of Certificate
        One a problem, recomputed on all of the data.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Examples
    --------
    >>> from cvxscreen.datasets import two_gaussians
    >>> from cvxscreen.estimators import ScreenedSVC
    >>> model = ScreenedSVC(C=0.1).fit(*two_gaussians(200, 3))
    >>> model.certificates_[0].ok
    True
    """

    def __init__(
        self,
        C: float = 1.0,
        *,
        loss: str = "hinge",
        gamma: float | None = None,
        kernel: str | Callable[[Any, Any], Any] = "linear",
        kernel_params: Mapping[str, float] | None = None,
        fit_intercept: bool = True,
        class_weight: Mapping[Any, float] | str | None = None,
        tol: float = 1e-9,
        mode: str = "certified",
        cache_bytes: int = 2**30,
        time_limit: float | None = None,
    ) -> None:
        self.C = C
        self.loss = loss
        self.gamma = gamma
        self.kernel = kernel
        self.kernel_params = kernel_params
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.tol = tol
        self.mode = mode
        self.cache_bytes = cache_bytes
        self.time_limit = time_limit

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Solve one problem a class.

        Parameters
        ----------
        X : array_like or sparse matrix, shape (n, d)
            The square Gram matrix with ``kernel="precomputed"``.
        y : array_like, shape (n,)
            Two or more classes.
        sample_weight : array_like, shape (n,), optional
            Non-negative.

        Returns
        -------
        ScreenedSVC
            The fitted estimator itself.

        Raises
        ------
        InvalidInput
            For one class, or arguments that `cvxscreen.svm` refuses (also a ``ValueError``).
        """
        X, y, weight = self._checked(X, y, sample_weight)
        problems = self._problems(X, y, weight, self.C)
        found = list(map(self._solved, problems))  # no frame between the caller and a warning
        self._store(X, problems, [solution.x for solution in found])
        self.certificates_ = tuple(solution.certificate for solution in found)
        return self

    def _problems(
        self, X: Any, y: NDArray[Any], weight: Array | None, C: float
    ) -> list[Problem]:
        """The one-vs-rest problems; sets ``classes_``."""
        signs, weight = self._signs(y, weight)
        return [
            svm(
                X, sign, C=C, loss=self.loss, gamma=self.gamma, sample_weight=weight,
                **self._options(),
            )
            for sign in signs
        ]
