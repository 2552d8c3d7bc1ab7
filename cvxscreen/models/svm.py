"""Support vector classification as a `Problem`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.validation import choice, flag, positive
from cvxscreen.core.problem import Layout, Problem
from cvxscreen.designs.gram import Gram, GramForm
from cvxscreen.designs.rows import Rows
from cvxscreen.models.kernel import KernelChoice, KernelSetting, check_kernel_arguments
from cvxscreen.models.samples import (
    CLASSIFICATION,
    OF_ONE_NORM,
    Constraints,
    Shape,
    chunked_terms,
    filled_rows,
    labels,
    losses_of_samples,
    one_norm,
    refuse_beside,
    ridge,
    side_constraints,
)
from cvxscreen.out_of_core.streams import opened

Array = NDArray[np.float64]


def svm(
    X: Any,
    y: ArrayLike,
    *,
    C: float = 1.0,
    loss: str = "hinge",
    gamma: float | None = None,
    sample_weight: ArrayLike | None = None,
    intercept: bool = False,
    penalty: str = "l2",
    nonneg: bool = False,
    monotone: ArrayLike | None = None,
    constraints: Constraints | None = None,
    kernel: KernelChoice | None = None,
    kernel_params: Mapping[str, float] | None = None,
    cache_bytes: int = 2**30,
) -> Problem:
    """The problem ``min_w 1/2 ||w||^2 + C sum_i c_i phi(y_i (<x_i, w> + b))``.

    With ``penalty="l1"`` the first term is ``sum_j |w_j|``: the 1-norm SVM.

    Parameters
    ----------
    X : array_like, sparse matrix, or data in chunks, shape (n, d)
        float32 and float64 are used as they are, other types are converted; never written to. A
        `numpy.memmap`, a Dask array, what `open_data` returns or any source of chunks
        (`cvxscreen.out_of_core.streams`) is never loaded as a whole.
    y : array_like, shape (n,)
        Labels -1/+1, both present.
    C : float
        Weight of the loss, positive.
    loss : {"hinge", "smoothed_hinge", "squared_hinge"}
        ``max(0, 1-t)``, the same with a quadratic corner of width `gamma`, or half its square.
    gamma : float, optional
        Corner width of the smoothed hinge (default 0.5).
    sample_weight : array_like, shape (n,), optional
        Non-negative factors ``c_i``; rows of weight 0 take no part.
    intercept : bool
        Whether to add an unpenalised ``b``, the last coordinate of the solution.
    penalty : {"l2", "l1"}
        What holds the coefficients. The absolute values are the problem's penalty beside (squared)
        hinges; with an intercept, constraints, or a smoothed hinge they are d further terms, the
        last ones, with slopes in ``[-1, 1]`` and unit rows (the data are copied once).
    nonneg : bool
        Whether every coefficient is at least 0 (not the intercept).
    monotone : array_like of {-1, 0, 1}, shape (d,), optional
        Features in which the prediction must rise (1) or fall (-1).
    constraints : (A, b) or scipy.optimize.LinearConstraint, optional
        Rows of ``A @ w >= b``, shapes (m, d) and (m,) or a number; or ``lb <= A @ w <= ub``, where
        equal ends are equations. A may be sparse.
    kernel : str or callable, optional
        ``"precomputed"`` (`X` is then the Gram matrix), a name as in scikit-learn ("linear",
        "poly", "rbf", ...), or ``k(A, B) -> matrix``; x then holds coefficients of the points.
    kernel_params : mapping, optional
        ``gamma`` (default 1 / d), ``coef0``, ``degree`` of a named kernel.
    cache_bytes : int
        Most memory that is spent on stored kernel rows.

    Returns
    -------
    Problem
        With rows ``y_i [x_i, 1]``.

    Raises
    ------
    InvalidInput
        On NaN, wrong shapes, one class, labels other than -1/+1, non-positive `C`.

    Notes
    -----
    Ogawa et al. 2014, (1); Wang et al. 2014, (1), with ``phi`` the hinge. Zhu, Rosset, Hastie,
    Tibshirani (2003), 1-norm support vector machines, for ``penalty="l1"``; nothing is strongly
    convex there, see `cvxscreen.solvers.linear_program` and `cvxscreen.solvers.relaxation`.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(200, 3)
    >>> problem = cvxscreen.svm(X, y, C=0.1, loss="squared_hinge", intercept=True)
    >>> solution = cvxscreen.solve(problem, tol=1e-9)
    >>> float(((X @ solution.w + solution.intercept) * y > 0).mean())   # share classified right
    0.94
    """
    C, intercept = positive("C", C), flag("intercept", intercept)
    penalty = choice("penalty", penalty, ("l2", "l1"))
    loss = choice("loss", loss, CLASSIFICATION)
    check_kernel_arguments(kernel, kernel_params, loss, gamma)
    chunks = opened(X, kernel)
    bound = flag("nonneg", nonneg) or monotone is not None or constraints is not None
    if (penalty == "l1" or bound) and (kernel is not None or chunks is not None):
        refuse_beside(bound, kernel, "penalty='l2'")
    if chunks is not None:
        shape = Shape(gamma=gamma)
        parts = chunked_terms(
            chunks, y, loss, shape, CLASSIFICATION, C, sample_weight, intercept
        )
        return ridge(*parts, C, intercept, "svm")
    rows = filled_rows(X)
    n, d = rows.shape
    sign = labels(y, n)
    losses = losses_of_samples(
        loss, np.ones(n), C, sample_weight, Shape(gamma=gamma), CLASSIFICATION
    )
    if kernel is not None:
        gram, form = KernelSetting(kernel, kernel_params, cache_bytes).terms(X, sign, intercept)
        return Problem(gram, losses, form, np.zeros(gram.shape[1]), C=C, kind="kernel svm")
    extra = np.ones((n, 1)) if intercept else None
    design = Rows(rows.matrix, sign, extra, known=True)
    if penalty == "l1":
        alone = loss in OF_ONE_NORM and not (intercept or bound)
        found = one_norm(design, losses, C, "svm", Layout(intercept), alone=alone)
    else:
        found = ridge(design, losses, C, intercept, "svm")
    side = side_constraints(d, intercept, nonneg, monotone, constraints)
    return found if side is None else replace(found, side=side)


def one_against_rest(problem: Problem, labels: Sequence[Array]) -> list[Problem]:
    """`problem`, of one class against the rest, with each of the `labels`, over the same data.

    The problems may be solved at the same time; but where not all rows of a kernel fit into its
    cache: then they share what is there, one after another.
    """
    design: Any = problem.design  # a `Gram`, or `Rows`
    if isinstance(design, Rows):
        _ = problem.norms, problem.sizes  # labels are signs
        rows = [Rows(design.matrix, sign, design.extra, known=True) for sign in labels]
        alike = [replace(problem, design=own) for own in rows]
        for one in alike:
            one.known.inherit_rows(problem.known)
            one.known.free_columns = None  # with the signs of other labels
        return alike
    kernel = design.kernel
    apart = kernel.fill()
    if apart and design.intercept:
        _ = kernel.means  # looked at before it is copied
    problems = []
    for sign in labels:
        own = kernel.sibling() if apart else kernel
        form = GramForm(Gram(own, None, design.intercept))
        gram = Gram(own, sign, design.intercept)
        problems.append(replace(problem, design=gram, quadratic=form))
    return problems
