"""cvxscreen: make a large regularised problem small without changing its answer.

Importing the package registers ``prob.solve(method="screen")`` with CVXPY and does nothing else:
every public name is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from cvxscreen.registration import register

if TYPE_CHECKING:
    from cvxscreen import bounds, datasets
    from cvxscreen._support.memory import memory_limit
    from cvxscreen.api import screen, solve
    from cvxscreen.certificates.certificate import Certificate, certify
    from cvxscreen.core.duality import Point, reference_point
    from cvxscreen.core.losses import Losses
    from cvxscreen.core.problem import Problem, Quadratic
    from cvxscreen.cvxpy_plugin.compiled_problem import Screened
    from cvxscreen.cvxpy_plugin.parameter_path import ParameterPath
    from cvxscreen.cvxpy_plugin.report import Report
    from cvxscreen.cvxpy_plugin.verify import explain, reduce, verify
    from cvxscreen.errors import (
        CvxscreenError,
        InvalidInput,
        MissingDependency,
        NotCertified,
        NotSaved,
        NotScreenable,
        TooLarge,
        UnknownName,
        UnsafeEvidence,
    )
    from cvxscreen.models.comparisons import Comparisons, pairs, quadruplets, triplets
    from cvxscreen.models.metric import factor_of, metric_of, rtlm
    from cvxscreen.models.multitask import raso
    from cvxscreen.models.open_data import open_data
    from cvxscreen.models.regression import regression
    from cvxscreen.models.sparse import lambda_max, sparse_svm, sparse_svr
    from cvxscreen.models.svm import svm
    from cvxscreen.multitask import MultiTask, MultiTaskSolution
    from cvxscreen.out_of_core.dask_engine import on_dask
    from cvxscreen.out_of_core.device import on_device
    from cvxscreen.paths.path import Path, PathPoint, load_path, path
    from cvxscreen.screening.lambda_ranges import lam_interval
    from cvxscreen.screening.reduction import Screening
    from cvxscreen.screening.verdict import Verdict
    from cvxscreen.solvers.metric.solver import lam_max
    from cvxscreen.solvers.solution import Solution

__version__ = "0.1.0"

_HOMES = {
    "capacity": ("memory_limit",),
    "certificate": ("Certificate", "certify"),
    "doors": ("screen", "solve"),
    "duality": ("Point", "reference_point"),
    "errors": (
        "CvxscreenError", "InvalidInput", "MissingDependency", "NotCertified", "NotSaved",
        "NotScreenable", "TooLarge", "UnknownName", "UnsafeEvidence",
    ),
    "lam_ranges": ("lam_interval",),
    "losses": ("Losses",),
    "models.comparisons": ("Comparisons",),
    "models.large": ("open_data",),
    "models.metric": ("factor_of", "metric_of", "rtlm"),
    "models.multitask": ("raso",),
    "models.regression": ("regression",),
    "models.sparse": ("lambda_max", "sparse_svm", "sparse_svr"),
    "models.svm": ("svm",),
    "models.triplets": ("pairs", "quadruplets", "triplets"),
    "multitask": ("MultiTask", "MultiTaskSolution"),
    "parameters": ("ParameterPath",),
    "paths": ("Path", "PathPoint", "load_path", "path"),
    "problem": ("Problem", "Quadratic"),
    "reducer.doors": ("explain", "reduce", "verify"),
    "reducer.report": ("Report",),
    "reducer.screened": ("Screened",),
    "rules": ("Verdict",),
    "screening": ("Screening",),
    "solvers.metric_start": ("lam_max",),
    "solvers.solution": ("Solution",),
    "sources.dask_engine": ("on_dask",),
    "sources.device": ("on_device",),
}
"""Where the public names live, as above; a test holds the two together."""

_MODULES = (
    "bounds", "datasets", "errors", "estimators", "losses", "models", "multitask", "plots",
    "reducer", "solvers",
)
"""Parts that are there as attributes, without an import of their own."""

_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

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
    "NotSaved",
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
    "TooLarge",
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
    "memory_limit",
    "metric_of",
    "on_dask",
    "on_device",
    "open_data",
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

if not TYPE_CHECKING:  # to a type checker a name that is not imported above does not exist

    def __getattr__(name: str) -> object:
        """A public name, imported at its first use (PEP 562)."""
        if name in _HOME_OF:
            value = getattr(import_module(f"cvxscreen.{_HOME_OF[name]}"), name)
        elif name in _MODULES:
            value = import_module(f"cvxscreen.{name}")
        else:
            raise AttributeError(f"module 'cvxscreen' has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, *_MODULES})


register()
