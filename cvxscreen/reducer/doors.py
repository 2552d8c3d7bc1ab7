"""What a user calls beside ``prob.solve(method="screen")``: explain, reduce, verify."""

from __future__ import annotations

from dataclasses import replace
from time import process_time
from typing import Any

from cvxscreen.errors import NotScreenable
from cvxscreen.reducer.beside import recognise_beside
from cvxscreen.reducer.compare import cvxpy_problem, verify
from cvxscreen.reducer.recognise import recognise
from cvxscreen.reducer.reduced import Reduced, reduced, reduced_beside
from cvxscreen.reducer.report import Explanation

__all__ = ["Reduced", "explain", "reduce", "verify"]


def explain(problem: Any) -> Explanation:
    """What `problem` is recognised as, or why it is not; nothing is solved.

    Parameters
    ----------
    problem : cvxpy.Problem

    Returns
    -------
    Explanation
        With ``recognised`` and ``reasons``; prints as a table.
    """
    cvxpy_problem(problem)
    began = process_time()
    try:
        recognition = recognise(problem)
    except NotScreenable as refusal:
        return _beside(problem, str(refusal), began)
    return Explanation.of(recognition.problem, process_time() - began)


def _beside(problem: Any, refusal: str, began: float) -> Explanation:
    """`problem` as losses beside another convex part, or the refusal."""
    try:
        made = recognise_beside(problem)
    except NotScreenable:
        return Explanation(False, (refusal,), seconds=process_time() - began)
    found = Explanation.of(made.recognition.problem, process_time() - began)
    return replace(found, beside=made.words)


def reduce(problem: Any) -> Reduced:
    """A smaller ``cvxpy.Problem`` with the same solution, to be solved with anything.

    Every fixing is proven (nothing is predicted), from a solve by the built-in solver or, with side
    constraints or terms that cannot be screened, by Clarabel.

    Parameters
    ----------
    problem : cvxpy.Problem

    Returns
    -------
    Reduced

    Raises
    ------
    InvalidInput
        If `problem` is no cvxpy.Problem.
    NotScreenable
        If `problem` is not recognised, or nothing can be proven of it, with the reason.
    NotCertified
        If no first point was found, because the problem is infeasible or unbounded.
    """
    cvxpy_problem(problem)
    try:
        recognition = recognise(problem)
    except NotScreenable as refusal:
        try:
            made = recognise_beside(problem)
        except NotScreenable:
            raise refusal from None
        return reduced_beside(made)
    return reduced(recognition)
