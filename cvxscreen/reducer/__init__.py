"""CVXPY in and out: recognise a ``cvxpy.Problem``, solve it by screening, write the answer back."""

from cvxscreen.reducer.build import to_cvxpy
from cvxscreen.reducer.doors import Reduced, explain, reduce, verify
from cvxscreen.reducer.plugin import CvxpyProblem, register
from cvxscreen.reducer.report import Comparison, Explanation, Report

__all__ = [
    "Comparison",
    "CvxpyProblem",
    "Explanation",
    "Reduced",
    "Report",
    "explain",
    "reduce",
    "register",
    "to_cvxpy",
    "verify",
]
