"""cvxscreen: make a large regularised problem small without changing its answer.

Importing the package registers ``prob.solve(method="screen")`` with CVXPY and does nothing else.
"""

from cvxscreen import bounds, datasets
from cvxscreen.certificate import Certificate, certify
from cvxscreen.doors import screen, solve
from cvxscreen.duality import Point, reference_point
from cvxscreen.errors import (
    CvxscreenError,
    InvalidInput,
    MissingDependency,
    NotCertified,
    NotScreenable,
    UnknownName,
    UnsafeEvidence,
)
from cvxscreen.lam_ranges import lam_interval
from cvxscreen.losses import Losses
from cvxscreen.models.comparisons import Comparisons
from cvxscreen.models.metric import factor_of, metric_of, rtlm
from cvxscreen.models.multitask import raso
from cvxscreen.models.regression import regression
from cvxscreen.models.sparse import lambda_max, sparse_svm, sparse_svr
from cvxscreen.models.svm import svm
from cvxscreen.models.triplets import pairs, quadruplets, triplets
from cvxscreen.multitask import MultiTask, MultiTaskSolution
from cvxscreen.parameters import ParameterPath
from cvxscreen.path import Path, PathPoint, load_path, path
from cvxscreen.problem import Problem, Quadratic
from cvxscreen.reducer.doors import explain, reduce, verify
from cvxscreen.reducer.plugin import register
from cvxscreen.reducer.report import Report
from cvxscreen.reducer.screened import Screened
from cvxscreen.rules import Verdict
from cvxscreen.screening import Screening
from cvxscreen.solvers.metric_start import lam_max
from cvxscreen.solvers.solution import Solution

__version__ = "0.1.0"

__all__ = [
    "Certificate",
    "Comparisons",
    "CvxscreenError",
    "InvalidInput",
    "Losses",
    "MissingDependency",
    "MultiTask",
    "MultiTaskSolution",
    "NotCertified",
    "NotScreenable",
    "ParameterPath",
    "Path",
    "PathPoint",
    "Point",
    "Problem",
    "Quadratic",
    "Report",
    "Screened",
    "Screening",
    "Solution",
    "UnknownName",
    "UnsafeEvidence",
    "Verdict",
    "bounds",
    "certify",
    "datasets",
    "explain",
    "factor_of",
    "lam_interval",
    "lam_max",
    "lambda_max",
    "load_path",
    "metric_of",
    "pairs",
    "path",
    "quadruplets",
    "raso",
    "reduce",
    "reference_point",
    "regression",
    "rtlm",
    "screen",
    "solve",
    "sparse_svm",
    "sparse_svr",
    "svm",
    "triplets",
    "verify",
]

register()
