"""Several classes as one problem each, the class against the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from cvxscreen.errors import InvalidInput
from cvxscreen.estimators.fitting import Array, sample_weights


class OneVsRest(ClassifierMixin):
    """Labels, class weights and predictions of the classifiers; goes before `ScreenedModel`."""

    class_weight: Any
    classes_: NDArray[Any]
    _accepts: Any
    _decisions: Any

    def _checked(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None
    ) -> tuple[Any, NDArray[Any], Array | None]:
        """Validated data."""
        X, y = validate_data(self, X, y, **self._accepts())
        check_classification_targets(y)
        return X, np.asarray(y), sample_weights(sample_weight, X)

    def _signs(
        self, y: NDArray[Any], weight: Array | None
    ) -> tuple[list[Array], Array | None]:
        """Labels -1/+1 of each problem, and the samples' weights; sets ``classes_``."""
        self.classes_, code = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InvalidInput(
                f"`y` has only one class ({self.classes_[0]!r}); a classifier needs two or more."
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
