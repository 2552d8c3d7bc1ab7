"""``cvxscreen.explain``: what a CVXPY problem was recognised as, or why it was not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvxscreen._support.tables import Record, fields
from cvxscreen.core.losses import Losses
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem
from cvxscreen.cvxpy_plugin.composite.problem import recognise_refused
from cvxscreen.cvxpy_plugin.recognise.budgets import BudgetedProblem
from cvxscreen.cvxpy_plugin.recognise.recognise import recognise
from cvxscreen.cvxpy_plugin.recognise.recognition import Recognition
from cvxscreen.cvxpy_plugin.request import require_cvxpy_problem
from cvxscreen.errors import NotScreenable


def explain(problem: Any) -> Explanation:
    """What `problem` is recognised as, or why it is not; nothing is solved.

    Parameters
    ----------
    problem : cvxpy.Problem

    Returns
    -------
    Explanation
        With ``recognised`` and ``reasons``; prints as a table.

    Examples
    --------
    >>> import cvxpy as cp, cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> w = cp.Variable(3)
    >>> loss = cp.sum(cp.pos(1 - cp.multiply(y, X @ w)))
    >>> prob = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + 0.1 * loss))
    >>> cvxscreen.explain(prob).recognised
    True
    >>> explanation = cvxscreen.explain(cp.Problem(cp.Minimize(cp.sum(w)), [w >= 1]))
    >>> explanation.recognised, explanation.reasons[0].split(":")[0]
    (False, 'no loss term was found')
    """
    require_cvxpy_problem(problem)
    began = process_time()
    try:
        recognition = recognise(problem)
    except NotScreenable as refusal:
        return _explain_composite(problem, refusal, began)
    return Explanation.of(recognition.problem, process_time() - began)


def _explain_composite(problem: Any, refusal: NotScreenable, began: float) -> Explanation:
    """`problem` as losses in budgets, or beside another convex part, or the refusal."""
    try:
        made = recognise_refused(problem, refusal)
    except NotScreenable:
        return Explanation(False, (str(refusal),), seconds=process_time() - began)
    if isinstance(made, Recognition):
        return Explanation.of(made.problem, process_time() - began)
    found_in = made.lagrangian if isinstance(made, BudgetedProblem) else made.recognition
    found = Explanation.of(found_in.problem, process_time() - began)
    return replace(found, beside=made.descriptions)


@dataclass(frozen=True, repr=False)
class Explanation(Record):
    """What a CVXPY problem was recognised as, or why it was not.

    Attributes
    ----------
    recognised : bool
    reasons : tuple of str
        Why not; empty when recognised.
    terms : mapping of str to int
        Loss terms by kind.
    coordinates : int
        Core variables.
    unpenalised : int
        Those among them without a square in the objective (an intercept).
    shrunk : int
        Those under an L1 norm, which can be dropped.
    side : tuple of (str, int)
        Side constraints: cone and size.
    beside : tuple of str
        Convex parts of the objective that are no sum of losses.
    seconds : float
        CPU time of the recognition.
    """

    recognised: bool
    reasons: tuple[str, ...] = ()
    terms: Mapping[str, int] = field(default_factory=dict)
    coordinates: int = 0
    unpenalised: int = 0
    shrunk: int = 0
    side: tuple[tuple[str, int], ...] = ()
    beside: tuple[str, ...] = ()
    seconds: float = 0.0

    @classmethod
    def of(cls, problem: Problem, seconds: float) -> Explanation:
        """Describe a recognised problem."""
        names, counts = np.unique(loss_names(problem.losses), return_counts=True)
        return cls(
            True,
            (),
            {str(name): int(count) for name, count in zip(names, counts, strict=True)},
            problem.d,
            int(problem.quadratic.free.sum()),
            int((problem.penalty.kappa > 0).sum()) if isinstance(problem.penalty, L1) else 0,
            () if problem.side is None else problem.side.dims,
            seconds=seconds,
        )

    def __str__(self) -> str:
        if not self.recognised:
            listed = [("reason", reason) for reason in self.reasons]
            return fields([("recognised", False), *listed], title="Explanation")
        return fields(
            [
                ("recognised", True),
                *((f"{name} terms", count) for name, count in self.terms.items()),
                ("coordinates", self.coordinates),
                ("unpenalised", self.unpenalised),
                *([("under an L1 norm", self.shrunk)] if self.shrunk else []),
                *((f"side constraint ({kind})", size) for kind, size in self.side),
                *(("beside", words) for words in self.beside),
                ("seconds (CPU)", self.seconds),
            ],
            title="Explanation",
        )


def loss_names(losses: Losses) -> NDArray[np.str_]:
    """The everyday name of each term, shape (n,)."""
    one_sided = (losses.lo == 0) | (losses.hi == 0)
    steep = np.isinf(losses.lo) | np.isinf(losses.hi)
    curved, flat = losses.q > 0, losses.e > 0
    equal = -losses.lo == losses.hi
    out = np.full(len(losses), "pinball", dtype="<U28")
    out[equal] = "absolute"
    out[flat] = "epsilon-insensitive"
    out[curved & flat] = "smoothed epsilon-insensitive"
    out[curved & ~flat] = "Huber"
    out[curved & steep] = "squared"
    out[curved & steep & flat] = "squared epsilon-insensitive"
    out[one_sided] = "hinge"
    out[one_sided & curved] = "smoothed hinge"
    out[one_sided & steep] = "squared hinge"
    out[steep & ~curved] = "inequality"
    return out
