"""C or lambda by cross-validation: in every fold one screened path, then the best refitted.

The search is that of `ChosenByScores`; `ScreenedSVCCV` solves along C by `along_C`, without the
records of `path`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any, Self

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone, is_classifier
from sklearn.metrics import check_scoring, make_scorer, mean_pinball_loss
from sklearn.model_selection import check_cv
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from cvxscreen._support.compiled import CompileClock
from cvxscreen._support.limits import cores
from cvxscreen._support.validation import array, check_request, plain_name, tolerance
from cvxscreen.bounds import midpoint_ball
from cvxscreen.certificates.certificate import certify
from cvxscreen.certificates.many import certify_many, stored_sums
from cvxscreen.core.problem import Problem
from cvxscreen.errors import InvalidInput, quoted
from cvxscreen.estimators.classifier import ScreenedSVC
from cvxscreen.estimators.fitting import (
    Array,
    OneVsRest,
    ScreenedModel,
    by_threads,
    refuse_infeasible,
    warn_uncertified,
)
from cvxscreen.estimators.regressor import ScreenedRegressor
from cvxscreen.estimators.sparse import SparseSVC
from cvxscreen.paths.path import path
from cvxscreen.solvers import newton, truncated_newton
from cvxscreen.solvers.beginning import newton_follows
from cvxscreen.solvers.compiled_path.segments import PARTS, CompiledPath, one_purchase, ready
from cvxscreen.solvers.dual_coordinate_descent import (
    along,
    descend_along,
    extrapolated,
    pivots_end,
    without_pivots,
)
from cvxscreen.solvers.interior_point import InteriorPoint
from cvxscreen.solvers.lambda_max import SHARE, lambda_max
from cvxscreen.solvers.loop import solve_screened
from cvxscreen.solvers.registry import compiled_path
from cvxscreen.solvers.solution import Solution, warm_start

REFIT = 1e-9
"""Relative gap of the refitted model, where `tol` is not smaller still."""
MISSES = 2
"""Values of C in a row that coordinate descent may give up before it is not tried again: what it
foresees after a few passes is too long now and then."""
CLOSE = 0.9
"""Share of the tolerance that a fold's descent aims at: the certificate counts rounding, too."""


TOGETHER = CompileClock(1.0, stored_sums)
"""Of certificates of all points of a path, against one after another. Measured: 0.8 CPU seconds."""


def grid_of(name: str, given: int | ArrayLike, first: float, last: float) -> Array:
    """The values `given`, or so many between `first` and `last` in geometric steps.

    Raises
    ------
    InvalidInput
        For no value, or one that is not positive.
    """
    if isinstance(given, int | np.integer):
        if given < 1:
            raise InvalidInput(f"`{name}` is {given}; at least one value is needed.")
        return np.geomspace(first, last, int(given))
    grid = array(name, given).copy()
    if grid.ndim != 1 or not len(grid) or not (np.isfinite(grid) & (grid > 0)).all():
        raise InvalidInput(
            f"`{name}` is {quoted(given)}; a number of values, or positive ones, is needed."
        )
    return grid


def parted(
    model: Any, data: tuple[Any, Any, Any], train: NDArray[np.intp], test: NDArray[np.intp]
) -> tuple[tuple[Any, Any, Any], tuple[Any, Any, Any]]:
    """The data of a fold to fit to, validated by `model`, and those that are left out."""
    X, y, weight = data
    pairwise = model.__sklearn_tags__().input_tags.pairwise
    inside = X[np.ix_(train, train)] if pairwise else X[train]
    outside = X[np.ix_(test, train)] if pairwise else X[test]
    kept, left = (None, None) if weight is None else (weight[train], weight[test])
    return model._checked(inside, y[train], kept), (outside, y[test], left)


Found = list[tuple[Array, float]]
"""Of every value along a path: the solution x, and its certified relative gap."""


def along_path(model: Any, problem: Problem, over: str, grid: Array) -> Found:
    """The solutions of `problem` along `grid` by `path`, with the settings of `model`."""
    points = path(problem, over=over, values=grid, tol=model.tol, mode=model.mode).points
    refuse_infeasible(points[0].status)
    return [(point.x, point.relative_gap) for point in points]


def _fold(
    model: Any, over: str, grid: Array, scoring: Any, solve: Callable[..., Found],
    data: tuple[Any, Any, Any], train: NDArray[np.intp], test: NDArray[np.intp],
) -> tuple[Array, Array]:
    """Scores on the rows `test` at every value, and the certified gaps.

    ``solve(model, problem, over, grid)`` gives the solutions; linear classifiers are scored in one
    pass.
    """
    (inside, labels, weight), (outside, y, left) = parted(model, data, train, test)
    order = np.argsort(grid if over == "C" else -grid, kind="stable")  # from the emptier model on
    problems = model._problems(inside, labels, weight, float(grid[order[0]]))
    paths = [solve(model, p, over, grid[order]) for p in problems]
    scores, gaps = np.empty(len(grid)), np.empty(len(grid))
    gaps[order] = np.max([[gap for _, gap in found] for found in paths], axis=0)
    points = [[found[step][0] for found in paths] for step in range(len(grid))]
    if scoring is None and isinstance(model, OneVsRest) and model._linear:
        scores[order] = _accuracies(model, inside, problems, points, outside, y, left)
        return scores, gaps
    scorer = check_scoring(model, scoring=scoring)
    rest = {} if left is None else {"sample_weight": left}
    for place, found in zip(order, points, strict=True):
        model._take(inside, problems, found)
        scores[place] = scorer(model, outside, y, **rest)
    return scores, gaps


def _accuracies(
    model: Any, inside: Any, problems: list[Problem], points: list[list[Array]], outside: Any,
    y: NDArray[Any], weight: Array | None,
) -> list[float]:
    """Accuracy of every linear model of a path on the rows `outside`, in one pass over them."""
    rows, shifts = [], []
    for found in points:
        model._take(inside, problems, found)
        rows.append(model.coef_)
        shifts.append(model.intercept_)
    scores = np.asarray(outside @ np.concatenate(rows).T + np.concatenate(shifts))
    blocks = np.split(scores, len(points), axis=1)
    return [float(np.average(model._labels(block) == y, weights=weight)) for block in blocks]


class ChosenByScores(ScreenedModel):
    """Base of the estimators that choose C or lambda by scores on the data left out of each fold.

    They have the parameters of an estimator of one value, but that value and what is of one fit
    alone.
    """

    _of_one_value: type[Any]
    """The estimator of one value: its `_problems`, `_take` and predictions are used."""
    _over: str
    """The parameter chosen, ``"C"`` or ``"lam"``."""
    _best: str
    """The attribute that holds the chosen value."""
    _along = staticmethod(along_path)
    """How a fold's problems are solved along the values."""
    _apart = False
    """Whether folds go to processes: where most of a fold's time is Python's own, threads would
    wait for each other (4,000 x 5,000 sparse rows: 1.4 times the CPU seconds)."""

    cv: Any
    scoring: str | Callable[..., float] | None
    n_jobs: int | None

    def _model(self) -> Any:
        """The estimator of one value, with the parameters that this one has, too."""
        model, given = self._of_one_value(), self.get_params(deep=False)
        shared = model.get_params(deep=False).keys() & given.keys() - {"n_jobs"}  # that is of folds
        return model.set_params(**{name: given[name] for name in shared})

    def _unfitted(self) -> Any:
        check_is_fitted(self)
        return self._model().set_params(**{self._over: getattr(self, self._best)})

    @one_purchase()
    def _search(self, grid: Array, scoring: Any, data: tuple[Any, Any, Any]) -> Self:
        """Score every value of `grid` on every fold of the validated data, refit with the best."""
        X, y, weight = data
        model, over = self._model(), self._over
        folds = list(check_cv(self.cv, y, classifier=is_classifier(model)).split(X, y))
        parts = (
            (clone(model), over, grid, scoring, self._along, data, train, test)
            for train, test in folds
        )
        if self._apart:
            results = Parallel(self.n_jobs)(delayed(_fold)(*part) for part in parts)
        else:
            results = by_threads(_fold, parts, self.n_jobs)
        self.scores_ = np.array([found for found, _ in results])
        self.path_gaps_ = gaps = np.array([found for _, found in results])
        if not (gaps <= self.tol).all():
            easier = "smaller `Cs`" if over == "C" else "larger `lams`"
            finding = f"the largest relative gap of a fold is {gaps.max():.1e}"
            warn_uncertified(finding, easier, stacklevel=4)
        means = self.scores_.mean(axis=0)
        ties = grid[np.isclose(means, means.max(), rtol=0, atol=1e-15)]
        best = float(ties.min() if over == "C" else ties.max())  # most regularised among equals
        model.set_params(**{over: best, "tol": min(self.tol, REFIT)})
        size = effective_n_jobs(self.n_jobs)
        with cores(size if size > 1 else None):
            model.fit(X, y, weight)
        for name, value in vars(model).items():
            if name.endswith("_") and name not in ("n_features_in_", "feature_names_in_"):
                setattr(self, name, value)
        setattr(self, self._best, best)
        return self

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """By `scoring`; accuracy or R^2, as of every estimator, where it was omitted.

        Parameters
        ----------
        X : array_like or sparse matrix, shape (m, d)
        y : array_like, shape (m,)
        sample_weight : array_like, shape (m,), optional
            Non-negative.

        Returns
        -------
        float
        """
        rest = {} if sample_weight is None else {"sample_weight": sample_weight}
        if self.scoring is None:
            return float(super().score(X, y, **rest))
        return float(check_scoring(self, scoring=self.scoring)(self, X, y, **rest))


class ScreenedRegressorCV(ChosenByScores, ScreenedRegressor):
    """`ScreenedRegressor` with C chosen by cross-validation, one screened path a fold.

    Parameters
    ----------
    Cs : int or array_like
        Values of C, or how many of them between 1e-3 and 10 (geometric).
    cv : int, splitter or iterable, optional
        As in scikit-learn; 5 folds when omitted.
    scoring : str or callable, optional
        As in scikit-learn; when omitted the mean pinball loss at `tau` for quantiles, and the mean
        absolute error for the other losses. `score` is by what is named here, else R^2.
    n_jobs : int, optional
        Threads that share the folds, counted as joblib does; the same bits whatever the number.
    tol : float
        Relative duality gap of every problem of a fold; the refitted model's is at most 1e-9.
    loss, epsilon, tau, gamma, delta, kernel, kernel_params, fit_intercept, mode, cache_bytes, \
    positive, monotonic_cst, constraints
        As in `ScreenedRegressor`.

    Attributes
    ----------
    Cs_ : array, shape (n_values,)
    scores_, path_gaps_ : array, shape (n_folds, n_values)
        On the data left out; relative duality gap, recomputed on all of the fold's data.
    C_ : float
        The value with the best mean score, the smallest among equals.
    coef_, intercept_, certificates_, ...
        As in `ScreenedRegressor`, of the model refitted with it on all of the data.

    Examples
    --------
    >>> from cvxscreen.datasets import heavy_tailed_regression
    >>> from cvxscreen.estimators import ScreenedRegressorCV
    >>> X, y = heavy_tailed_regression(200, 3)
    >>> model = ScreenedRegressorCV(5, loss="quantile", tau=0.9).fit(X, y)
    >>> model.scores_.shape, model.certificates_[0].ok
    ((5, 5), True)
    """

    _of_one_value, _over, _best = ScreenedRegressor, "C", "C_"

    @staticmethod
    def _along(model: Any, problem: Problem, over: str, grid: Array) -> Found:
        solve = along_C if newton.follows(problem) else along_path
        return solve(model, problem, over, grid)

    def __init__(
        self,
        Cs: int | ArrayLike = 10,
        *,
        cv: Any = None,
        scoring: str | Callable[..., float] | None = None,
        n_jobs: int | None = None,
        loss: str = "absolute",
        epsilon: float | None = None,
        tau: float | None = None,
        gamma: float | None = None,
        delta: float | None = None,
        kernel: str | Callable[[Any, Any], Any] = "linear",
        kernel_params: Mapping[str, float] | None = None,
        fit_intercept: bool = True,
        positive: bool = False,
        monotonic_cst: Any = None,
        constraints: Any = None,
        tol: float = 1e-6,
        mode: str = "certified",
        cache_bytes: int = 2**30,
    ) -> None:
        self.Cs = Cs
        self.cv = cv
        self.scoring = scoring
        self.n_jobs = n_jobs
        self.loss = loss
        self.epsilon = epsilon
        self.tau = tau
        self.gamma = gamma
        self.delta = delta
        self.kernel = kernel
        self.kernel_params = kernel_params
        self.fit_intercept = fit_intercept
        self.positive = positive
        self.monotonic_cst = monotonic_cst
        self.constraints = constraints
        self.tol = tol
        self.mode = mode
        self.cache_bytes = cache_bytes

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Score every C on every fold, then refit with the best.

        Parameters
        ----------
        X : array_like or sparse matrix, shape (n, d)
        y : array_like, shape (n,)
        sample_weight : array_like, shape (n,), optional
            Non-negative; used for fitting and for scoring.

        Returns
        -------
        ScreenedRegressorCV
            The fitted estimator itself.

        Raises
        ------
        InvalidInput
            For values of C that are not positive, or what `ScreenedRegressor` refuses.
        """
        data = self._checked(X, y, sample_weight)
        self.Cs_ = grid_of("Cs", self.Cs, 1e-3, 10.0)
        scoring = self.scoring
        if scoring is None:
            level = 0.5 if self.tau is None else self.tau
            pinball = make_scorer(mean_pinball_loss, alpha=level, greater_is_better=False)
            quantile = plain_name(self.loss) == "quantile"
            scoring = pinball if quantile else "neg_mean_absolute_error"
        return self._search(self.Cs_, scoring, data)

    def _model(self) -> ScreenedRegressor:
        model: ScreenedRegressor = super()._model()
        if self.monotonic_cst is not None:  # the folds have no names of features
            model.monotonic_cst = self._limits()["monotone"]
        return model


class SparseSVCCV(ChosenByScores, SparseSVC):
    """`SparseSVC` with lambda chosen by cross-validation, one screened path a fold and class.

    Parameters
    ----------
    lams : int or array_like
        Values of lambda, or how many of them from the one beyond which all weights are 0 down to a
        hundredth of it (geometric).
    cv : int, splitter or iterable, optional
        As in scikit-learn; stratified in 5 folds when omitted.
    scoring : str or callable, optional
        As in scikit-learn; accuracy when omitted. `score` is by it, too.
    n_jobs : int, optional
        Processes that share the folds, as in scikit-learn; the same bits whatever the number.
    tol : float
        Relative duality gap of every problem of a fold; the refitted model's is at most 1e-9.
    loss, gamma, l2, fit_intercept, intercept_scaling, class_weight, mode
        As in `SparseSVC`.

    Attributes
    ----------
    lams_ : array, shape (n_values,)
    scores_, path_gaps_ : array, shape (n_folds, n_values)
        On the data left out; relative duality gap, recomputed on all of the fold's data.
    best_lam_ : float
        The value with the best mean score, the largest among equals.
    classes_, coef_, intercept_, lam_, certificates_
        As in `SparseSVC`, of the model refitted with it on all of the data.

    Examples
    --------
    >>> from cvxscreen.datasets import sparse_text_like
    >>> from cvxscreen.estimators import SparseSVCCV
    >>> X, y = sparse_text_like(200, 100, density=0.05)
    >>> model = SparseSVCCV(5, cv=3).fit(X, y)
    >>> model.scores_.shape, model.certificates_[0].ok
    ((3, 5), True)
    """

    _of_one_value, _over, _best = SparseSVC, "lam", "best_lam_"
    _apart = True

    def __init__(
        self,
        lams: int | ArrayLike = 10,
        *,
        cv: Any = None,
        scoring: str | Callable[..., float] | None = None,
        n_jobs: int | None = None,
        loss: str = "smoothed_hinge",
        gamma: float | None = None,
        l2: float = 1.0,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        class_weight: Mapping[Any, float] | str | None = None,
        tol: float = 1e-6,
        mode: str = "certified",
    ) -> None:
        self.lams = lams
        self.cv = cv
        self.scoring = scoring
        self.n_jobs = n_jobs
        self.loss = loss
        self.gamma = gamma
        self.l2 = l2
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.class_weight = class_weight
        self.tol = tol
        self.mode = mode

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Score every lambda on every fold, then refit with the best.

        Parameters
        ----------
        X : array_like or sparse matrix, shape (n, d)
        y : array_like, shape (n,)
            Two or more classes.
        sample_weight : array_like, shape (n,), optional
            Non-negative; used for fitting and for scoring.

        Returns
        -------
        SparseSVCCV
            The fitted estimator itself.

        Raises
        ------
        InvalidInput
            For values of lambda that are not positive, a fold with one class, or what `SparseSVC`
            refuses.
        """
        data = self._checked(X, y, sample_weight)
        largest = max(map(lambda_max, self._problems(*data, 1.0)))
        largest = largest if largest > 0 else 1.0
        self.lams_ = grid_of("lams", self.lams, largest, SHARE * largest)
        return self._search(self.lams_, self.scoring, data)


def along_C(model: Any, problem: Problem, over: str, grid: Array) -> Found:
    """The same over rising values of C without the records of `path`, each from the one before.

    Compiled where that suits the problem. Elsewhere, in the certified mode, the fixed terms are
    predicted from the neighbour and then certified, so nothing has to be proven beforehand. From
    where coordinate descent is given up the interior point method may go on.
    """
    found: Found = []
    tol = tolerance(model.tol)
    mode = check_request(model.mode, tol)
    waiting = compiled_path(problem, "auto", many=len(grid) > 1)
    descends = mode == "certified" and bool((np.diff(grid) > 0).all())
    hard = descends and newton_follows(problem, grid)
    if waiting and ready() and not (descends and (hard or pivots_end(problem))):
        run = CompiledPath(problem, mode, tol)
        with without_pivots(problem):
            while len(found) < len(grid):  # without the records of `path`
                left = grid[len(found):]
                part = run.solve(left[: run.length(len(left))])
                if not len(part) or not part.proofs.ok.all():
                    return along_path(model, problem, over, grid)
                found.extend(zip(part.X, part.proofs.relative_gap.tolist(), strict=True))
        return found
    follow: Callable[..., Iterator[tuple[float, Array, Array]]] | None = None
    if hard:
        follow = truncated_newton.along
    elif descends and newton.follows(problem):
        follow = newton.along
    elif descends and along(problem, len(grid)):
        follow = descend_along
    ends: list[tuple[float, Array, Array]] = []
    last: Solution | None = None
    inner: InteriorPoint | None = None
    misses = 0
    while len(found) < len(grid):
        left = grid[len(found):]
        if follow is not None and misses < MISSES:
            there = list(follow(problem, left, CLOSE * tol, known=ends))
            gaps = _certified(problem, there, tol)
            found.extend((x, gap) for (_, x, _), gap in zip(there, gaps, strict=False))
            if gaps:
                ends, last, misses = [*ends, *there[: len(gaps)]][-2:], None, 0
            misses += 1
            if len(found) == len(grid):
                break
        here = problem.with_(C=float(grid[len(found)]))
        if last is None:
            start = extrapolated(here, ends)
        else:
            start = warm_start(here, last, mode == "certified")
        bounds = (midpoint_ball,) if mode == "safe" else ()
        with PARTS.rent() if waiting else nullcontext():
            last = solve_screened(here, inner, mode=mode, tol=tol, start=start, bounds=bounds)
        given_up = bool(last.rounds) and "epochs" not in last.rounds[-1].solver_info
        if descends and given_up and newton.interior_point_goes_on(problem):
            inner = InteriorPoint()
        found.append((last.x, last.certificate.relative_gap))
        ends = [*ends[-1:], (here.C, last.x, last.theta)]
    return found


def _certified(
    problem: Problem, points: list[tuple[float, Array, Array]], tol: float
) -> list[float]:
    """The relative gaps of points, C, x and theta each, up to the first that is not certified."""
    if not points:
        return []
    C, X, theta = zip(*points, strict=True)
    if TOGETHER.bought:
        proofs = certify_many(problem, C, X, theta, tol=tol)
        ok, gaps = proofs.ok, proofs.relative_gap
    else:
        with TOGETHER.rent():
            each = [certify(problem.with_(C=c), x, s, tol=tol) for c, x, s in points]
        ok, gaps = np.array([p.ok for p in each]), np.array([p.relative_gap for p in each])
    certified: list[float] = gaps[: int(np.append(~ok, True).argmax())].tolist()
    return certified


class ScreenedSVCCV(ChosenByScores, ScreenedSVC):
    """`ScreenedSVC` with C chosen by cross-validation.

    Each fold solves its whole path over C once: every value starts from the solution before it,
    and most terms are fixed before the solve.

    Parameters
    ----------
    Cs : int or array_like
        Values of C, or how many of them between 1e-3 and 10 (geometric).
    cv : int, splitter or iterable, optional
        As in scikit-learn; stratified in 5 folds when omitted.
    scoring : str or callable, optional
        As in scikit-learn; accuracy when omitted. `score` is by it, too.
    n_jobs : int, optional
        Threads that share the folds, counted as joblib does; the same bits whatever the number.
    tol : float
        Relative duality gap of every problem of a fold; the refitted model's is at most 1e-9.
    loss, gamma, kernel, kernel_params, fit_intercept, class_weight, mode, cache_bytes
        As in `ScreenedSVC`.

    Attributes
    ----------
    Cs_ : array, shape (n_values,)
        As tried, in the order given.
    scores_ : array, shape (n_folds, n_values)
        On the data left out.
    C_ : float
        The value with the best mean score, the smallest one among equals; the model is refitted
        with it on all of the data.
    path_gaps_ : array, shape (n_folds, n_values)
        Relative duality gap, recomputed on all of the fold's data; of several one-vs-rest problems
        the largest.
    classes_, coef_, intercept_, support_, support_vectors_, dual_coef_, certificates_
        As in `ScreenedSVC`, of the refitted model.

    Examples
    --------
    >>> from cvxscreen.datasets import two_gaussians
    >>> from cvxscreen.estimators import ScreenedSVCCV
    >>> model = ScreenedSVCCV([0.01, 0.1, 1.0]).fit(*two_gaussians(200, 3))
    >>> model.scores_.shape, model.certificates_[0].ok
    ((5, 3), True)
    """

    _of_one_value, _over, _best = ScreenedSVC, "C", "C_"
    _along = staticmethod(along_C)

    def __init__(
        self,
        Cs: int | ArrayLike = 10,
        *,
        cv: Any = None,
        scoring: str | Callable[..., float] | None = None,
        n_jobs: int | None = None,
        loss: str = "hinge",
        gamma: float | None = None,
        kernel: str | Callable[[Any, Any], Any] = "linear",
        kernel_params: Mapping[str, float] | None = None,
        fit_intercept: bool = True,
        class_weight: Mapping[Any, float] | str | None = None,
        tol: float = 1e-6,
        mode: str = "certified",
        cache_bytes: int = 2**30,
    ) -> None:
        self.Cs = Cs
        self.cv = cv
        self.scoring = scoring
        self.n_jobs = n_jobs
        self.loss = loss
        self.gamma = gamma
        self.kernel = kernel
        self.kernel_params = kernel_params
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.tol = tol
        self.mode = mode
        self.cache_bytes = cache_bytes

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Score every C on every fold, then refit with the best.

        Parameters
        ----------
        X : array_like or sparse matrix, shape (n, d)
        y : array_like, shape (n,)
        sample_weight : array_like, shape (n,), optional
            Non-negative; used for fitting and for scoring.

        Returns
        -------
        ScreenedSVCCV
            The fitted estimator itself.

        Raises
        ------
        InvalidInput
            For values of C that are not positive, a fold with one class, or what `ScreenedSVC`
            refuses.
        """
        X, y, weight = self._checked(X, y, sample_weight)
        if len(np.unique(y)) < 2:
            self._problems(X, y, weight, 1.0)  # raises
        self.Cs_ = grid_of("Cs", self.Cs, 1e-3, 10.0)
        return self._search(self.Cs_, self.scoring, (X, y, weight))
