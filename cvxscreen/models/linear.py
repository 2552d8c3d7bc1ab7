"""Models of one loss, linear in the features or in those of a kernel, as a `Problem`.

Beside the loss stands a squared norm of the coefficients, their absolute values, both (features and
samples are then few), or no penalty at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.validation import choice, flag, number, positive
from cvxscreen.core.losses import LossTerms
from cvxscreen.core.penalty import L1
from cvxscreen.core.problem import Layout, Problem, Quadratic, ZeroQuadratic
from cvxscreen.designs.gram import Gram, GramForm
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.models.kernel import KernelChoice, KernelSetting, check_kernel_arguments
from cvxscreen.models.samples import (
    CLASSIFICATION,
    OF_ONE_NORM,
    REGRESSION,
    WITH_SQUARED,
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
    vector,
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

    Problems of rows may be solved at the same time. Those of a kernel share the rows that are
    evaluated for any of them, one after another, until they are taken `apart`.
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
    form = GramForm(Gram(design.kernel, None, design.intercept))
    return [
        replace(problem, design=Gram(design.kernel, sign, design.intercept), quadratic=form)
        for sign in labels
    ]


def apart(problems: Sequence[Problem]) -> list[Problem]:
    """Problems of one kernel over its whole matrix, so that they may be solved at the same time.

    As they are where not all of its rows fit into its cache.
    """
    grams: list[Any] = [problem.design for problem in problems]
    kernel = grams[0].kernel
    if not kernel.fill():
        return list(problems)
    if grams[0].intercept:
        _ = kernel.means  # looked at before it is copied
    own = [Gram(kernel.sibling(), gram.sign, gram.intercept) for gram in grams]
    return [
        replace(problem, design=gram, quadratic=GramForm(Gram(gram.kernel, None, gram.intercept)))
        for problem, gram in zip(problems, own, strict=True)
    ]


def regression(
    X: Any,
    y: ArrayLike,
    *,
    C: float = 1.0,
    loss: str = "absolute",
    epsilon: float | None = None,
    tau: float | None = None,
    gamma: float | None = None,
    delta: float | None = None,
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
    """The problem ``min_w 1/2 ||w||^2 + C sum_i c_i phi(<x_i, w> + b - y_i)``.

    With ``penalty="l1"`` the first term is ``sum_j |w_j|``; with ``C=inf`` there is none, and the
    losses have the weights ``c_i``.

    Parameters
    ----------
    X : array_like, sparse matrix, or data in chunks, shape (n, d)
        As in `svm`.
    y : array_like, shape (n,)
        Responses, in their own units.
    C : float
        Weight of the loss, positive; infinite for a fit without a penalty.
    loss : {"absolute", "quantile", "epsilon", "smoothed_epsilon", "huber", "squared"}
        ``"squared"``, half the square, beside ``penalty="l1"`` (the lasso, its intercept
        unpenalised), constraints, or ``C=inf``; beside the squared norm alone it is refused.
    epsilon : float, optional
        Half-width of the insensitive zone, in units of `y` (default 0.1).
    tau : float, optional
        Quantile level in (0, 1) (default 0.5): residuals ``y - t > 0`` cost ``tau`` each unit.
    gamma : float, optional
        Corner width of the smoothed eps-insensitive loss, in units of `y` (default 0.5).
    delta : float, optional
        Huber's threshold, in units of `y` (default 1): ``1/2 r^2`` inside, ``delta |r|`` beyond.
    sample_weight : array_like, shape (n,), optional
        Non-negative factors ``c_i``.
    intercept : bool
        Whether to add an unpenalised ``b``, the last coordinate of the solution.
    penalty : {"l2", "l1"}
        What holds the coefficients. The absolute values are d further terms of the problem, the
        last ones, with slopes in ``[-1, 1]`` and unit rows (the data are copied once); beside a
        squared or Huber's loss without an intercept or constraints they are the problem's penalty.
    nonneg, monotone, constraints, kernel, kernel_params, cache_bytes
        Constraints on the coefficients, and kernels, as in `svm`.

    Returns
    -------
    Problem

    Raises
    ------
    InvalidInput
        On NaN, wrong shapes, empty data, non-positive parameters.

    Notes
    -----
    Wang et al. 2014, section 5, for the absolute loss (LAD). Without the squared norm nothing is
    strongly convex: see `cvxscreen.solvers.relaxation`. With C infinite the minimiser need not be
    unique.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.heavy_tailed_regression(100, 3)
    >>> problem = cvxscreen.regression(X, y, C=1.0, loss="quantile", tau=0.9, intercept=True)
    >>> solution = cvxscreen.solve(problem, tol=1e-9)
    >>> below = y < X @ solution.w + solution.intercept - 1e-6
    >>> bool(0.85 < below.mean() <= 0.9)
    True
    """
    unpenalised = isinstance(C, float) and bool(np.isposinf(C))
    if not unpenalised:
        C = positive("C", C)
    intercept = flag("intercept", intercept)
    penalty = choice("penalty", penalty, ("l2", "l1"))
    loss = choice("loss", loss, WITH_SQUARED)
    if unpenalised and penalty == "l1":
        raise InvalidInput("`C` is infinite: give a finite weight of the loss beside penalty='l1'.")
    check_kernel_arguments(kernel, kernel_params, loss, gamma)
    shape = Shape(gamma=gamma, epsilon=epsilon, tau=tau, delta=delta)
    plain = penalty == "l2" and not unpenalised
    bound = flag("nonneg", nonneg) or monotone is not None or constraints is not None
    chunks = opened(X, kernel)
    if loss == "squared" and plain and not bound:
        raise InvalidInput(
            "`loss` is 'squared' beside a squared norm: a linear system, with nothing to leave out "
            "(scikit-learn's Ridge solves it); give penalty='l1', constraints or C=inf."
        )
    if (bound or not plain) and (kernel is not None or chunks is not None):
        refuse_beside(bound, kernel, "a finite `C` and penalty='l2'")
    if chunks is not None:
        parts = chunked_terms(chunks, y, loss, shape, REGRESSION, C, sample_weight, intercept)
        return ridge(*parts, C, intercept, "regression")
    rows = filled_rows(X)
    n, d = rows.shape
    target = vector("y", y, n)
    factor = 1.0 if unpenalised else C
    losses = losses_of_samples(loss, target, factor, sample_weight, shape, WITH_SQUARED)
    if kernel is not None:
        gram, form = KernelSetting(kernel, kernel_params, cache_bytes).terms(X, None, intercept)
        linear = np.zeros(gram.shape[1])
        return Problem(gram, losses, form, linear, C=C, kind="kernel regression")
    layout = Layout(
        intercept,
        tau=(0.5 if tau is None else float(tau)) if loss == "quantile" else None,
    )
    extra = np.ones((n, 1)) if intercept else None
    design = Rows(rows.matrix, None, extra, known=True) if intercept else rows
    if penalty == "l1":
        alone = loss in OF_ONE_NORM and not (intercept or bound)
        found = one_norm(design, losses, C, "regression", layout, alone=alone)
    else:
        found = ridge(design, losses, factor, intercept, "regression")
        if unpenalised:
            found = replace(found, quadratic=Quadratic(np.zeros(design.shape[1])))
        found = replace(found, layout=layout)
    side = side_constraints(d, intercept, nonneg, monotone, constraints)
    return found if side is None else replace(found, side=side)


def sparse_svm(
    X: Any,
    y: ArrayLike,
    lam: float,
    *,
    loss: str = "smoothed_hinge",
    gamma: float | None = None,
    l2: float = 1.0,
    sample_weight: ArrayLike | None = None,
) -> Problem:
    """The problem ``min_w lam (||w||_1 + l2/2 ||w||^2) + 1/n sum_i c_i phi(y_i <x_i, w>)``.

    Parameters
    ----------
    X : array_like or sparse matrix, shape (n, d)
    y : array_like, shape (n,)
        Labels -1/+1, both present.
    lam : float
        Positive.
    loss : {"smoothed_hinge", "squared_hinge", "hinge"}
    gamma : float, optional
        Corner width of the smoothed hinge (default 0.5).
    l2 : float
        Weight of the quadratic term beside the L1 norm. 0 leaves the L1 norm alone: with the
        squared hinge the problem of LIBLINEAR's L1-regularised L2-loss SVM (its C is
        ``1 / (2 n lam)``), with the plain hinge the LP-SVM; other losses are refused.
    sample_weight : array_like, shape (n,), optional
        Non-negative factors ``c_i``.

    Returns
    -------
    Problem
        Parametrised by ``lam``; see `lambda_max`.

    Raises
    ------
    InvalidInput
        On NaN, wrong shapes, one class, labels other than -1/+1, parameters that are not positive.

    Notes
    -----
    Shibagaki et al. 2016, (1), with the smoothed hinge of its Table 1.

    Examples
    --------
    >>> import cvxscreen
    >>> X, y = cvxscreen.datasets.two_gaussians(100, 20)
    >>> problem = cvxscreen.sparse_svm(X, y, 1.0)
    >>> problem = problem.with_(lam=0.5 * cvxscreen.lambda_max(problem))
    >>> solution = cvxscreen.solve(problem, tol=1e-9)
    >>> int((solution.x != 0).sum()), int(solution.screening.dropped.sum())
    (9, 11)
    """
    alone = number("l2", l2, "0 (for the LP-SVM) or a positive number is needed") == 0
    if alone:
        _check_alone(X, choice("loss", loss, CLASSIFICATION), ("squared_hinge", "hinge"))
    chunks, shape = None if alone else opened(X), Shape(gamma=gamma)
    if chunks is not None:
        factor = 1.0 / chunks[0].shape[0]
        terms = chunked_terms(chunks, y, loss, shape, CLASSIFICATION, factor, sample_weight)
        return _elastic(*terms, lam, l2, "sparse svm")
    rows = filled_rows(X)
    n = rows.shape[0]
    design = Rows(rows.matrix, labels(y, n), known=True)
    losses = losses_of_samples(loss, np.ones(n), 1.0 / n, sample_weight, shape, CLASSIFICATION)
    found = _elastic(design, losses, lam, l2, "sparse svm")
    return replace(found, kind="LP-SVM") if found.linear_program else found


def sparse_svr(
    X: Any,
    y: ArrayLike,
    lam: float,
    *,
    loss: str = "smoothed_epsilon",
    epsilon: float | None = None,
    gamma: float | None = None,
    delta: float | None = None,
    l2: float = 1.0,
    sample_weight: ArrayLike | None = None,
) -> Problem:
    """The problem ``min_w lam (||w||_1 + l2/2 ||w||^2) + 1/n sum_i c_i phi(<x_i, w> - y_i)``.

    Parameters
    ----------
    X : array_like or sparse matrix, shape (n, d)
    y : array_like, shape (n,)
        Responses, in their own units.
    lam : float
        Positive.
    loss : {"smoothed_epsilon", "huber", "epsilon", "absolute", "squared"}
        ``"squared"``, half the square, makes it the lasso or the elastic net.
    epsilon : float, optional
        Half-width of the insensitive zone, in units of `y` (default 0.1).
    gamma : float, optional
        Corner width of the smoothed eps-insensitive loss (default 0.5).
    delta : float, optional
        Huber's threshold, in units of `y` (default 1).
    l2 : float
        Weight of the quadratic term beside the L1 norm; 0 (with Huber's or the squared loss)
        leaves the L1 norm alone.
    sample_weight : array_like, shape (n,), optional
        Non-negative factors ``c_i``.

    Returns
    -------
    Problem
        Parametrised by ``lam``; see `lambda_max`.

    Raises
    ------
    InvalidInput
        On NaN, wrong shapes, empty data, parameters that are not positive.

    Examples
    --------
    >>> import numpy as np, cvxscreen
    >>> X = np.random.default_rng(0).normal(size=(100, 20))
    >>> solution = cvxscreen.solve(cvxscreen.sparse_svr(X, 3 * X[:, 0], 0.2), tol=1e-9)
    >>> np.flatnonzero(solution.x)
    array([0])
    """
    alone = number("l2", l2, "0 (Huber's or the squared loss) or a positive number is needed") == 0
    if alone:
        _check_alone(X, choice("loss", loss, WITH_SQUARED), ("huber", "squared"))
    chunks, shape = None if alone else opened(X), Shape(gamma=gamma, epsilon=epsilon, delta=delta)
    if chunks is not None:
        factor = 1.0 / chunks[0].shape[0]
        terms = chunked_terms(chunks, y, loss, shape, REGRESSION, factor, sample_weight)
        return _elastic(*terms, lam, l2, "sparse svr")
    rows = filled_rows(X)
    n = rows.shape[0]
    losses = losses_of_samples(
        loss, vector("y", y, n), 1.0 / n, sample_weight, shape, WITH_SQUARED
    )
    return _elastic(rows, losses, lam, l2, "sparse svr")


def _check_alone(X: Any, loss: str, known: tuple[str, ...]) -> None:
    """Refuse what takes no L1 norm alone: other losses than the `known`, and data in chunks.

    A file that is mapped into memory is read as an array.
    """
    if loss not in known:
        names = " or ".join(f'loss="{name}"' for name in known)
        raise InvalidInput(
            f"`l2` is 0, and `loss` is {loss!r}; {names}, or a positive l2, is needed."
        )
    if not isinstance(X, np.memmap) and opened(X) is not None:
        raise InvalidInput(
            "`l2` is 0; without a quadratic term (as for the LP-SVM) all rows are needed in "
            "memory: give `X` as an array."
        )


def _elastic(design: Any, losses: LossTerms, lam: float, l2: float, kind: str) -> Problem:
    lam, d = positive("lam", lam), design.shape[1]
    form = (
        ZeroQuadratic(np.zeros(d)) if l2 == 0 else Quadratic(np.full(d, lam * positive("l2", l2)))
    )
    return Problem(
        design, losses, form, np.zeros(d),
        penalty=L1(np.full(d, lam)), lam=lam, kind=kind,
    )
