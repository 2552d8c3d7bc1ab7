"""Every door of the package: how it is called well, and what each of its arguments must be.

A public name has a row here or in `RECORDS`; `test_bad` says so.
"""

from __future__ import annotations

from gauntlet.large import LARGE
from gauntlet.models import MODELS
from gauntlet.operators import GENERATORS, PROX
from gauntlet.solving import CERTIFICATES, SOLVING

DOORS = [*MODELS, *SOLVING, *CERTIFICATES, *PROX, *GENERATORS, *LARGE]

RECORDS = {
    "Certificate": "a record", "Comparisons": "made by triplets, pairs, quadruplets",
    "CvxscreenError": "an error", "InvalidInput": "an error", "MissingDependency": "an error",
    "NotCertified": "an error", "NotSaved": "an error", "TooLarge": "an error",
    "NotScreenable": "an error", "UnknownName": "an error",
    "UnsafeEvidence": "an error", "MultiTask": "made by raso", "MultiTaskSolution": "a record",
    "ParameterPath": "a record", "Path": "a record", "PathPoint": "a record", "Point": "a record",
    "Report": "a record", "Screening": "a record", "Solution": "a record", "Verdict": "a record",
    "breast_cancer": "takes nothing",
    "LeaveOneOut": "a record",
    "DataChange": "a record", "Influence": "a record", "Bootstrap": "a record",
    "WeightRange": "a record", "BoundComparison": "a record",
    "explain": "test_cvxpy", "reduce": "test_cvxpy", "verify": "test_cvxpy",
    "Screened": "test_cvxpy",
    "errors": "a module", "estimators": "test_estimators", "multitask": "a module",
    "plots": "a module",
}
"""Public names without a row here, and why."""

ARGUMENTS = {
    "Problem": {"side", "C", "kind", "drift", "imbalance", "penalty", "lam", "layout"},
    "reference_point": {"known"},
}
"""Arguments that only the package's own functions give: no user does, and they cost a check."""
