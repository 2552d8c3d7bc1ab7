"""CVXPY in and out: recognise a ``cvxpy.Problem``, solve it by screening, write the answer back."""

from cvxscreen.cvxpy_plugin.build import joint_sdp, to_cvxpy
from cvxscreen.cvxpy_plugin.explanation import Explanation, explain
from cvxscreen.cvxpy_plugin.plugin import CvxpyProblem
from cvxscreen.cvxpy_plugin.reduced import Reduced, reduce
from cvxscreen.cvxpy_plugin.report import Report
from cvxscreen.cvxpy_plugin.screened_solver import Screened
from cvxscreen.cvxpy_plugin.verify import Comparison, verify
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
