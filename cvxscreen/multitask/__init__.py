"""Multi-task learning (rASO): the joint problem, its algorithms, bounds and certificate."""

from cvxscreen.multitask.gap import DualBall, certify_multitask, dual_ball, eigengap
from cvxscreen.multitask.problem import MultiTask
from cvxscreen.multitask.solve import MultiTaskSolution, solve_multitask

__all__ = [
    "DualBall",
    "MultiTask",
    "MultiTaskSolution",
    "certify_multitask",
    "dual_ball",
    "eigengap",
    "solve_multitask",
]
