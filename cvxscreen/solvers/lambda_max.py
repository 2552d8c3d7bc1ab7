"""The largest lambda that matters: from there on the optimum is known in closed form."""

from __future__ import annotations

import numpy as np

from cvxscreen._support.validation import one_of
from cvxscreen.core.closed_form import c_min
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Problem
from cvxscreen.designs.comparisons import Pairs, Products
from cvxscreen.errors import InvalidInput
from cvxscreen.solvers.metric.solver import task_of, v_at_full_weight


def lambda_max(problem: Problem) -> float:
    """The least ``lam`` from which on the optimum is known without solving.

    Under an L1 term it is 0 there:
    ``lambda_max = max_j |<A_j, theta(0)> + q_j| / (kappa_j / lam)`` with the slopes at 0 (Shibagaki
    et al. 2016, section 6.1, with the loss weights in their place).

    In metric learning every term then pulls with its whole weight w, and the optimum is
    ``[K(w)]_+ / lam``, ``K(w) = sum_t w_t H_t - q``:
    ``lambda_max = max_t <H_t, [K(w)]_+> / (b_t - g_t)`` (Yoshida et al. 2019, section 7; all
    thresholds b_t above the width g_t of the smoothing, otherwise there is no such lam).

    In a model with a weight C of its losses, ``lam = 1 / C``: up to ``C_min = 1 / lambda_max``
    every term stays on the piece that it has at the minimum of the regulariser (Ogawa et al. 2014,
    Lemma 9).

    Parameters
    ----------
    problem : Problem
        From `svm`, `regression`, `sparse_svm`, `sparse_svr` or `rtlm`; its own ``lam`` or ``C``
        does not matter.

    Returns
    -------
    float
        0 if no term matters at any lam, infinity if there is no such lam.

    Raises
    ------
    InvalidInput
        For another penalty than an L1 norm, or data in chunks.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(100, 3)
    >>> lam = cvxscreen.lambda_max(cvxscreen.sparse_svm(X, y, 1.0))
    >>> bool((cvxscreen.solve(cvxscreen.sparse_svm(X, y, 1.01 * lam)).x == 0).all())
    True
    >>> C = 1 / cvxscreen.lambda_max(cvxscreen.svm(X, y))
    >>> low = cvxscreen.solve(cvxscreen.svm(X, y, C=0.99 * C))
    >>> bool(low.screening.linear.all())                # every loss is on its slope
    True
    """
    made_by = "a problem from `svm`, `regression`, `sparse_svm`, `sparse_svr` or `rtlm` is needed"
    one_of("problem", problem, Problem, made_by)
    if isinstance(problem.design, Pairs):
        return _metric(problem)
    if problem.penalty is None and problem.lam is None:
        C = c_min(problem).C
        return 1.0 / C if C > 0 else float("inf")
    if not isinstance(problem.penalty, L1) or problem.lam is None:
        raise InvalidInput(
            "`problem` has no L1 term with a parameter `lam` (see `sparse_svm`), and is no metric "
            "learning (see `rtlm`)."
        )
    slopes = problem.losses.slope(np.zeros(problem.n))
    v = np.abs(problem.design.adjoint(slopes) + problem.linear)
    weighted = problem.penalty.kappa > 0
    ratios = v[weighted] / problem.penalty.kappa[weighted]
    return float(np.max(ratios, initial=0.0)) * float(problem.lam)


lam_max = lambda_max
"""The same function by its older name."""

SHARE = 0.01
"""Of the largest lambda that matters, where none is given."""


def usual_lambda(problem: Problem) -> float:
    """A hundredth of `lambda_max`; 1 where there is no such lambda."""
    largest = lambda_max(problem)
    return SHARE * largest if 0.0 < largest < np.inf else 1.0


def _metric(problem: Problem) -> float:
    """`lambda_max` of metric learning."""
    task = task_of(problem)
    room = task.b - task.smoothing
    if (room <= 0).any():
        return float("inf")
    q = task.pair_values(task.cone.project(v_at_full_weight(task)))
    if task.b.size > 1:
        return float((task.terms.margins(q) / room).max())
    if isinstance(task.terms, Products):
        terms = task.terms  # of each anchor the farthest stranger and the nearest of its class
        far = np.maximum.reduceat(q[terms.far], terms.far_ptr[:-1])
        near = np.minimum.reduceat(q[terms.near], terms.near_ptr[:-1])
        largest = float((far - near).max())
    else:
        largest = float(task.terms.margins(q).max())
    return max(largest / float(room.min()), 0.0)
