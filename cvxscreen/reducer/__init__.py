"""CVXPY in and out: recognise a ``cvxpy.Problem``, solve it by screening, write the answer back."""

from cvxscreen.reducer.build import to_cvxpy
from cvxscreen.reducer.doors import Reduced, explain, reduce, verify
from cvxscreen.reducer.multitask import joint_sdp
from cvxscreen.reducer.plugin import CvxpyProblem
from cvxscreen.reducer.report import Comparison, Explanation, Report
from cvxscreen.reducer.screened import Screened
from cvxscreen.registration import register

__all__ = [
    "Comparison",
    "CvxpyProblem",
    "Explanation",
    "Reduced",
    "Report",
    "Screened",
    "explain",
    "joint_sdp",
    "reduce",
    "register",
    "to_cvxpy",
    "verify",
]
