"""C by cross-validation: in every fold one screened path over all values of C."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import check_scoring
from sklearn.utils.validation import check_is_fitted

from cvxscreen._support.validation import check_request, tolerance
from cvxscreen.bounds import midpoint_ball
from cvxscreen.certificates.certificate import certify
from cvxscreen.core.problem import Problem
from cvxscreen.estimators.along_path import as_fitted, grid_of, parted, searched
from cvxscreen.estimators.classifier import ScreenedSVC
from cvxscreen.estimators.fitting import Array, LeavesOut
from cvxscreen.paths.path import path
from cvxscreen.solvers.compiled_path.segments import PARTS, CompiledPath, ready
from cvxscreen.solvers.loop import solve_screened
from cvxscreen.solvers.registry import compiled_path
from cvxscreen.solvers.solution import Solution, onward_start


class ScreenedSVCCV(ScreenedSVC):
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
        As in scikit-learn; accuracy when omitted.
    n_jobs : int, optional
        Folds at the same time.
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
        self.scores_, self.path_gaps_, best = searched(
            self._with(1.0), "C", self.Cs_, self.scoring, self, (X, y, weight), _fold, _refitted
        )
        self.C_ = float(best.C)
        as_fitted(self, best)
        return self

    def _unfitted(self) -> LeavesOut:
        check_is_fitted(self)
        return self._with(self.C_)._unfitted()

    def _with(self, C: float) -> ScreenedSVC:
        """The model for one value of C."""
        given: dict[str, Any] = {
            name: getattr(self, name)
            for name in ScreenedSVC().get_params()
            if name not in ("C", "time_limit", "n_jobs", "multi_class")
        }
        return ScreenedSVC(C, **given)


def _refitted(
    model: ScreenedSVC, X: Any, y: NDArray[Any], weight: Array | None
) -> ScreenedSVC:
    """Fit `model` by the compiled path where that takes its problems and every certificate holds.

    In the certified mode only; the ordinary loop is left the rest.
    """
    problems = model._problems(X, y, weight, model.C)
    if model.mode != "certified" or not all(compiled_path(p, "auto") for p in problems):
        return model.fit(X, y, weight)
    found = [path(p, values=[model.C], tol=model.tol).points[0] for p in problems]
    pairs = zip(problems, found, strict=True)
    proofs = tuple(certify(p, point.x, point.theta, tol=model.tol) for p, point in pairs)
    if not all(proof.ok for proof in proofs):
        return model.fit(X, y, weight)
    model._store(X, problems, [point.x for point in found])
    model.certificates_ = proofs
    return model


def _fold(
    model: ScreenedSVC, over: str, grid: Array, scoring: Any, data: tuple[Any, Any, Any],
    train: NDArray[np.intp], test: NDArray[np.intp],
) -> tuple[Array, Array]:
    """Scores on the rows `test` for every C of `grid`, and the certified gaps.

    Without the records of `path`, and linear models are scored in one pass.
    """
    (inside, labels, weight), (outside, y, left) = parted(model, data, train, test)
    order = np.argsort(grid, kind="stable")
    problems = model._problems(inside, labels, weight, float(grid[order[0]]))
    paths = [_solutions(p, grid[order], model.tol, model.mode) for p in problems]
    scores, gaps = np.empty(len(grid)), np.empty(len(grid))
    gaps[order] = np.max([[gap for _, gap in found] for found in paths], axis=0)
    points = [[found[step][0] for found in paths] for step in range(len(grid))]
    if scoring is None and model._linear:
        scores[order] = _accuracies(model, inside, problems, points, outside, y, left)
        return scores, gaps
    scorer = check_scoring(model, scoring=scoring)
    rest = {} if left is None else {"sample_weight": left}
    for place, found in zip(order, points, strict=True):
        model._store(inside, problems, found)
        scores[place] = scorer(model, outside, y, **rest)
    return scores, gaps


def _accuracies(
    model: ScreenedSVC,
    inside: Any,
    problems: list[Problem],
    points: list[list[Array]],
    outside: Any,
    y: NDArray[Any],
    weight: Array | None,
) -> list[float]:
    """Accuracy of every linear model of a path on the rows `outside`, in one pass over them."""
    rows, shifts = [], []
    for found in points:
        model._store(inside, problems, found)
        rows.append(model.coef_)
        shifts.append(model.intercept_)
    scores = np.asarray(outside @ np.concatenate(rows).T + np.concatenate(shifts))
    blocks = np.split(scores, len(points), axis=1)
    return [float(np.average(model._labels(block) == y, weights=weight)) for block in blocks]


def _solutions(problem: Problem, grid: Array, tol: float, mode: str) -> list[tuple[Array, float]]:
    """Solution and certified relative gap at every C of `grid`, each from the one before.

    Compiled where that suits the problem. Elsewhere, in the certified mode, the fixed terms are
    predicted from the neighbour and then certified, so nothing has to be proven beforehand.
    """
    found: list[tuple[Array, float]] = []
    tol = tolerance(tol)
    check_request(mode, tol)
    waiting = compiled_path(problem, "auto", many=len(grid) > 1)
    if waiting and ready():
        run = CompiledPath(problem, mode, tol)
        while len(found) < len(grid):  # without the records of `path`
            left = grid[len(found):]
            part = run.solve(left[: run.length(len(left))])
            if not len(part) or not part.proofs.ok.all():
                points = path(problem, values=grid, tol=tol, mode=mode).points
                return [(point.x, point.relative_gap) for point in points]
            found.extend(zip(part.X, part.proofs.relative_gap.tolist(), strict=True))
        return found
    last: Solution | None = None
    for C in grid:
        here = problem.with_(C=float(C))
        start = None if last is None else onward_start(here, last, mode == "certified")
        bounds = (midpoint_ball,) if mode == "safe" else ()
        with PARTS.rent() if waiting else nullcontext():
            last = solve_screened(here, mode=mode, tol=tol, start=start, bounds=bounds)
        found.append((last.x, last.certificate.relative_gap))
    return found
