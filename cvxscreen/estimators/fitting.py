"""What the estimators share: from validated data to problems, and from solutions to decisions.

Several classes are one problem each, the class against the rest.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self, TypeVar

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn import config_context, get_config
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_monotonic_cst,
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)

from cvxscreen._support.limits import TIME, cores, each
from cvxscreen._support.validation import flag, plain_name, positive, tolerance
from cvxscreen.api import solve
from cvxscreen.core.problem import Problem
from cvxscreen.data_changes.leave_one_out import (
    LeaveOneOut,
    OneVsRestScores,
    Scores,
    classes_left_out,
    group_numbers,
    leave_one_out,
)
from cvxscreen.errors import InvalidInput
from cvxscreen.models.kernel import kernel_between

Array = NDArray[np.float64]
Result = TypeVar("Result")

EXACT = 1e-9
"""Relative gap of the fit on all samples before one is left out, where `tol` is not smaller: what
one pass decides narrows with its root."""


LINEAR_TOLERANCE = 1e-9
"""Relative gap of a linear model, unless told: it costs hardly more than 1e-6."""
KERNEL_TOLERANCE = 1e-5
"""Of a kernel model: ten times as accurate as scikit-learn's ``SVC(tol=1e-3)`` usually is, and
reached also where C is large and the kernel's matrix nearly singular."""


class ScreenedModel(BaseEstimator):
    """Base of the estimators: data checks, kernels, coefficients and decisions."""

    kernel: Any
    kernel_params: Any
    cache_bytes: int
    tol: Any  # a number, or None where that is `_optional_tolerance`
    mode: str
    time_limit: float | None
    fit_intercept: bool
    certificates_: tuple[Any, ...]
    intercept_: Any

    @property
    def _linear(self) -> bool:
        return plain_name(self.kernel) == "linear"

    @property
    def _precomputed(self) -> bool:
        return plain_name(self.kernel) == "precomputed"

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not self._precomputed
        tags.input_tags.pairwise = self._precomputed
        return tags

    def _accepts(self) -> dict[str, Any]:
        """How `X` is validated, in fit and in predict."""
        sparse = False if self.__sklearn_tags__().input_tags.pairwise else "csr"
        return {
            "accept_sparse": sparse, "accept_large_sparse": False,
            "dtype": [np.float64, np.float32],
        }

    def _options(self) -> dict[str, Any]:
        """The part of the problem that does not depend on the data."""
        if self.kernel is None:
            raise InvalidInput("`kernel` is None; 'linear' is needed for the plain model.")
        shared: dict[str, Any] = {"intercept": flag("fit_intercept", self.fit_intercept)}
        if not self._linear:
            shared |= {
                "kernel": self.kernel, "kernel_params": self.kernel_params,
                "cache_bytes": self.cache_bytes,
            }
        return shared

    _optional_tolerance = False
    """Whether `tol` may be None, for what suits the kernel."""
    _easier = "a smaller `C`"
    """What makes the problem easier to solve to `tol`: more penalty."""

    def _found(self, problem: Any) -> Any:
        """The solution of one problem."""
        return solve(
            problem, tol=self._relative_gap(), mode=self.mode, time_limit=self.time_limit
        )

    def _relative_gap(self) -> Any:
        """`tol`, or what suits the kernel."""
        if self.tol is None and self._optional_tolerance:
            return LINEAR_TOLERANCE if self._linear else KERNEL_TOLERANCE
        return self.tol

    def _solved(self, problem: Any) -> Any:
        """The certified solution; a warning when its certificate does not hold."""
        found = self._found(problem)
        refuse_infeasible(found.status)
        if found.status == TIME and not np.isfinite(found.x).all():
            raise InvalidInput(
                f"`time_limit` is {self.time_limit}: too short to find any coefficients that "
                "satisfy `constraints`; give a longer one."
            )
        warn_unless_certified(found, self._easier, stacklevel=5)
        return found

    def _take(self, X: Any, problems: Sequence[Problem], points: Sequence[Array]) -> None:
        """Keep what prediction needs of the solutions `points`, one a problem."""
        self._store(X, problems, points)

    def _store(
        self, X: Any, problems: Sequence[Problem], points: Sequence[Array],
        rows: Sequence[NDArray[np.intp]] | None = None,
    ) -> None:
        """The same for problems of some rows each, or of all.

        `rows` says which of the rows of `X` each problem has, all of them when omitted.
        """
        free = int(self.fit_intercept)
        own = [x[: len(x) - free] for x in points]
        if rows is None or self._linear:
            coefficients = np.array(own)
        else:
            coefficients = np.zeros((len(points), X.shape[0]))
            for filled, index, values in zip(coefficients, rows, own, strict=True):
                filled[index] = values
        intercepts = np.zeros(len(points))
        if self.fit_intercept:
            pairs = zip(problems, points, strict=True)
            intercepts = np.array([x[-1] - p.design.offset(x) for p, x in pairs])
        self._keep_models(X, coefficients, intercepts)

    def _keep_models(self, X: Any, coefficients: Array, intercepts: Array) -> None:
        """Keep coefficients of features or rows of `X`, a row for each problem, and intercepts."""
        self.intercept_ = intercepts
        if self._linear:
            self.coef_ = coefficients
            return
        self.support_ = np.flatnonzero(coefficients.any(axis=0))
        self.dual_coef_ = coefficients[:, self.support_]
        if not self._precomputed:
            self.support_vectors_ = X[self.support_]

    def _decisions(self, X: Any) -> Array:
        """``<w_k, x> + b_k`` for every row and every problem, shape (m, K)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, **self._accepts())
        if self._linear:
            return np.asarray(X @ self.coef_.T + self.intercept_)
        if self._precomputed:
            values = X[:, self.support_]
        else:
            values = kernel_between(
                self.kernel, self.kernel_params, X, self.support_vectors_
            )
        return np.asarray(values @ self.dual_coef_.T + self.intercept_)


class LeavesOut(ScreenedModel):
    """Base of the estimators that leave out samples one by one."""

    C: float
    classes_: NDArray[Any]
    _checked: Any
    _problems: Any

    def leave_one_out(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
        refit: bool = True,
        accuracy: float | None = None,
        n_jobs: int = 1,
        progress: bool = False,
        time_limit: float | None = None,
    ) -> LeaveOneOut:
        """What the model predicts of each sample when fitted without it; certified.

        Parameters
        ----------
        X : array_like or sparse matrix, shape (n, d)
        y : array_like, shape (n,)
        sample_weight : array_like, shape (n,), optional
            Non-negative.
        groups : array_like, shape (n,), optional
            Labels of samples that leave together, as a customer's do: scikit-learn's
            ``LeaveOneGroupOut``.
        refit : bool
            Whether to fit again without the samples that one pass over the data does not decide.
        accuracy : float, optional
            For residuals: intervals no wider than this need no fit; see `cvxscreen.leave_one_out`.
        n_jobs : int
            Threads for these fits.
        progress : bool
            Whether to show how many of them are done.
        time_limit : float, optional
            Wall seconds after which none of them begins; so does Ctrl-C.

        Returns
        -------
        LeaveOneOut
            As of `cvxscreen.leave_one_out`: ``record.errors`` holds the leave-one-out error,
            ``record.score`` the score that cross-validation would average. With more than two
            classes its numbers are how far the own class's score is ahead of the best other one,
            and ``record.parts`` are those of each class against the rest, or of each two classes.
            Class weights, and a `lam` that is not given, stay those of all samples. The estimator
            stays as it is, fitted or not; one that chooses C must be fitted, and uses the C that
            it chose.
        """
        model = self._unfitted()
        X, target, weight = model._checked(X, y, sample_weight)
        labels = None if groups is None else group_numbers(groups, len(target))
        leaving = len(target) if labels is None else int(labels.max()) + 1
        tol = min(tolerance(model._relative_gap()), EXACT)
        found = [
            solve(problem, tol=tol, mode=model.mode)
            for problem in model._left_out_of(X, target, weight, leaving)
        ]
        if len(found) > 1:
            return classes_left_out(
                found, model._scores(target), refit=refit, mode=model.mode, n_jobs=n_jobs,
                progress=progress, time_limit=time_limit, labels=labels,
            )
        [solution] = found
        return leave_one_out(
            solution, refit=refit, accuracy=accuracy, mode=model.mode, n_jobs=n_jobs,
            progress=progress, time_limit=time_limit, groups=labels,
        )

    def _unfitted(self) -> LeavesOut:
        """The model to fit, which this call may change."""
        return clone(self)

    def _left_out_of(self, X: Any, y: Any, weight: Array | None, leaving: int) -> list[Problem]:
        """The problems over all samples whose terms leave, one of so many parts after another."""
        problems: list[Problem] = self._problems(X, y, weight, positive("C", self.C))
        return problems

    def _scores(self, y: NDArray[Any]) -> Scores:
        """How classes are told from the margins of several problems."""
        return OneVsRestScores(np.searchsorted(self.classes_, y), len(self.classes_))


class Regression(RegressorMixin):
    """Targets of the regressors; goes before `ScreenedModel`."""

    _accepts: Any

    def _checked(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[Any, NDArray[Any], Array | None]:
        """Data, targets and weights as arrays, refused where they are not valid."""
        X, y = validate_data(self, X, y, y_numeric=True, **self._accepts())
        return X, np.asarray(y), sample_weights(sample_weight, X)


class OneRegression(Regression, ScreenedModel):
    """Base of the regressors with a squared norm or none: numbers for predictions."""

    positive: bool
    monotonic_cst: Any
    constraints: Any

    def _limits(self) -> dict[str, Any]:
        """What the coefficients must satisfy, as `cvxscreen.regression` has it."""
        monotone = self.monotonic_cst
        if monotone is not None:
            try:
                monotone = _check_monotonic_cst(self, monotone)  # by names, too
            except ValueError as error:
                raise InvalidInput(f"`monotonic_cst`: {error}") from None
        nonneg = flag("positive", self.positive)
        return {"nonneg": nonneg, "monotone": monotone, "constraints": self.constraints}

    def _take(self, X: Any, problems: Sequence[Problem], points: Sequence[Array]) -> None:
        """Keep what prediction needs of the solution."""
        self._store(X, problems, points)
        self.intercept_ = float(self.intercept_[0])
        if self._linear:
            self.coef_ = self.coef_[0]

    def _keep(self, X: Any, problem: Problem, found: Any) -> Self:
        """The same of the solution `found`, and its certificate."""
        self._take(X, [problem], [found.x])
        self.certificates_ = (found.certificate,)
        return self

    def predict(self, X: Any) -> Array:
        """Predicted responses (of a quantile's model: quantiles), shape (m,)."""
        out = self._decisions(X)
        return out if out.ndim == 1 else out[:, 0]


def by_threads(
    work: Callable[..., Result], parts: Iterable[tuple[Any, ...]], n_jobs: int | None
) -> list[Result]:
    """``[work(*part) for part in parts]`` by so many threads, as joblib counts them.

    Compiled loops and products let other threads run, and nothing has to be sent anywhere; the
    calling thread takes its share. A single part shares its passes among the threads.
    """
    size = effective_n_jobs(n_jobs)
    if size == 1:
        return [work(*part) for part in parts]
    settings = get_config()  # scikit-learn's are of one thread

    def one(part: tuple[Any, ...]) -> Result:
        with config_context(**settings):
            return work(*part)

    with cores(size):
        return each(one, list(parts))


def sample_weights(sample_weight: ArrayLike | None, X: Any) -> Array | None:
    """`sample_weight` as an array, None when omitted."""
    if sample_weight is None:
        return None
    checked: Array = _check_sample_weight(
        sample_weight, X, dtype=np.float64, ensure_non_negative=True
    )
    return checked


def _whole_numbers(y: NDArray[Any]) -> bool:
    """Whether finite targets are a vector of whole numbers."""
    if y.ndim != 1 or y.dtype.kind not in "iubf":
        return False
    return y.dtype.kind != "f" or bool((y == np.rint(y)).all())


def refuse_infeasible(status: str) -> None:
    """Say so where no coefficients satisfy the constraints."""
    if status == "infeasible":
        raise InvalidInput(
            "`constraints`: no coefficients satisfy them all (with `positive` and `monotonic_cst`)."
        )


def warn_unless_certified(found: Any, easier: str, stacklevel: int = 4) -> None:
    """Say so where the certificate of the solution `found` does not hold.

    `easier` names the parameter that makes the problem easier, and its direction.
    """
    if not found.certificate.ok:
        gap = found.certificate.relative_gap
        advice = "a longer `time_limit`" if found.status == TIME else easier
        warn_uncertified(f"the certified relative gap is {gap:.1e}", advice, stacklevel)


def warn_uncertified(finding: str, easier: str, stacklevel: int = 3) -> None:
    """Say, as scikit-learn does, that an answer is not as accurate as was asked for."""
    warnings.warn(
        f"{finding}: more than `tol`. Give {easier} or a larger `tol`, or scale the features.",
        ConvergenceWarning,
        stacklevel=stacklevel,
    )


class OneVsRest(ClassifierMixin):
    """Labels, class weights and predictions of the classifiers; goes before `ScreenedModel`."""

    class_weight: Any
    classes_: NDArray[Any]
    _accepts: Any
    _decisions: Any

    def _checked(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[Any, NDArray[Any], Array | None]:
        """Data, labels and weights as arrays, refused where they are not valid."""
        X, y = validate_data(self, X, y, **self._accepts())
        y = np.asarray(y)
        if not _whole_numbers(y):  # which are classes; a fifth of a small fit
            check_classification_targets(y)
        return X, y, sample_weights(sample_weight, X)

    def _signs(
        self, y: NDArray[Any], weight: Array | None
    ) -> tuple[list[Array], Array | None]:
        """Labels -1/+1 of each problem, and the samples' weights; sets ``classes_``."""
        self.classes_, code = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            (found,) = self.classes_.tolist()
            raise InvalidInput(
                f"`y` has only one class ({found!r}); a classifier needs two or more."
            )
        if self.class_weight is not None:
            factor = compute_class_weight(
                self.class_weight, classes=self.classes_, y=y, sample_weight=weight
            )[code]
            weight = factor if weight is None else weight * factor
        positive = [1] if len(self.classes_) == 2 else range(len(self.classes_))
        return [np.where(code == k, 1.0, -1.0) for k in positive], weight

    def decision_function(self, X: Any) -> Array:
        """Signed scores: shape (m,) for two classes (positive for ``classes_[1]``), else (m, K)."""
        scores = self._decisions(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Class with the largest score, shape (m,)."""
        return self._labels(self._decisions(X))

    def _labels(self, scores: Array) -> NDArray[Any]:
        """The classes for scores of shape (m, problems)."""
        two = scores.shape[1] == 1
        best = (scores[:, 0] > 0).astype(int) if two else scores.argmax(axis=1)
        return np.asarray(self.classes_[best])
