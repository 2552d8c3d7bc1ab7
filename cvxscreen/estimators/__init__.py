"""scikit-learn estimators whose models are solved through screening and certified.

* `ScreenedSVC`: support vector classification, linear or kernel, one-vs-rest;
* `ScreenedSVCCV`: the same with C chosen by cross-validation, one screened path a fold;
* `ScreenedQuantileRegressor`: quantile regression with an L1 penalty or none;
* `ScreenedRegressor`: absolute, quantile, eps-insensitive and Huber regression;
* `ScreenedRegressorCV`: the same with C chosen by cross-validation;
* `SparseSVC`, `SparseSVR`: few features and few samples, screened together;
* `SparseSVCCV`: the same with lambda chosen by cross-validation;
* `TripletMetricLearner`: a Mahalanobis metric from triplets, a transformer;
* `MultiTaskSVC`: several related classification tasks at once.

They follow scikit-learn's conventions and pass its ``check_estimator`` (but for `MultiTaskSVC`,
whose methods take the task of every row as well). Each keeps the certificates of the problems it
solved, recomputed on all of the data.
"""

from __future__ import annotations

from cvxscreen.estimators.classifier import ScreenedSVC
from cvxscreen.estimators.cross_validation import ScreenedRegressorCV, ScreenedSVCCV, SparseSVCCV
from cvxscreen.estimators.metric import TripletMetricLearner
from cvxscreen.estimators.multitask import MultiTaskSVC
from cvxscreen.estimators.regressor import ScreenedQuantileRegressor, ScreenedRegressor
from cvxscreen.estimators.sparse import SparseSVC, SparseSVR

__all__ = [
    "MultiTaskSVC",
    "ScreenedQuantileRegressor",
    "ScreenedRegressor",
    "ScreenedRegressorCV",
    "ScreenedSVC",
    "ScreenedSVCCV",
    "SparseSVC",
    "SparseSVCCV",
    "SparseSVR",
    "TripletMetricLearner",
]
