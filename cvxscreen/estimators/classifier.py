"""Support vector classification, linear or kernel, one class against the rest or another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.limits import has_room
from cvxscreen._support.validation import check_request, choice, positive
from cvxscreen.certificates.kernels import KernelParts
from cvxscreen.core.problem import Problem
from cvxscreen.data_changes.leave_one_out import OneVsOneScores, Scores
from cvxscreen.data_changes.reweight import weighted
from cvxscreen.designs.gram import Gram
from cvxscreen.estimators.fitting import (
    Array,
    LeavesOut,
    OneVsRest,
    by_threads,
    warn_unless_certified,
)
from cvxscreen.models.linear import apart, one_against_rest, svm
from cvxscreen.solvers.smo import (
    AT_ONCE,
    DEMAND_CLOCK,
    IN_PLACE,
    OF_TWO_CLASSES,
    solve_parts,
)

MULTI_CLASS = ("ovr", "ovo")
ONE_MATRIX = 4000
"""Most samples whose whole kernel matrix is evaluated at once (128 MB)."""
MANY_SAMPLES = 20_000
"""Most samples of which each two classes are solved one after another where loops evaluate rows."""


class ScreenedSVC(OneVsRest, LeavesOut):
    """Support vector classifier, solved through screening with a certificate.

    For each class k (one problem when there are two classes; `multi_class` says what else)

    ``min_{w, b} 1/2 ||w||^2 + C sum_i c_i phi(y_ik (<x_i, w> + b))``, ``y_ik = +1`` for the class
    and -1 for the rest.

    Parameters
    ----------
    C : float
        Weight of the loss, positive.
    loss : {"hinge", "smoothed_hinge", "squared_hinge"}
    gamma : float, optional
        Corner width of the smoothed hinge (default 0.5); a kernel's own goes to `kernel_params`.
    kernel : str or callable
        ``"linear"`` (works on the features), ``"rbf"``, ``"poly"``, ``"precomputed"``, another name
        of scikit-learn, or ``k(A, B) -> matrix``.
    kernel_params : mapping, optional
        ``gamma`` (default 1 / n_features), ``coef0``, ``degree``.
    fit_intercept : bool
        Whether to fit an unpenalised ``b``.
    class_weight : dict or "balanced", optional
        Factors of the samples' weights by class, the same in every one-vs-rest problem.
    multi_class : {"ovr", "ovo"}
        One problem a class, against the rest, or one for each two classes, on their samples alone
        (as scikit-learn's ``SVC`` has it); ``"ovo"`` predicts by votes.
    tol : float, optional
        Relative duality gap of each problem, in (0, 1); 1e-9 when omitted, 1e-5 for a kernel
        (scikit-learn's ``SVC`` at its default ends with a gap of about 1e-4).
    mode : {"certified", "safe"}
        As in `cvxscreen.solve`.
    cache_bytes : int
        Most memory spent on stored kernel rows.
    time_limit : float, optional
        Seconds of wall time for each class; where they run out, the best point so far is kept,
        with a warning that says how accurate it is.
    n_jobs : int, optional
        Threads that solve the problems of several classes, as in scikit-learn: None is 1 and -1 all
        cores. The result is the same, bit by bit. Small problems with a kernel are solved one
        after another over one Gram matrix, and so are those that share its rows: where it does not
        fit `cache_bytes`, or while few rows of a large one are needed.

    Attributes
    ----------
    classes_ : array, shape (n_classes,)
    coef_ : array, shape (n_problems, n_features)
        With the linear kernel; n_problems is 1, n_classes, or the number of pairs of classes.
    intercept_ : array, shape (n_problems,)
    support_, support_vectors_, dual_coef_ : arrays
        With other kernels: indices, points (not for ``"precomputed"``) and coefficients.
    certificates_ : tuple of Certificate
        One a problem, recomputed on all of the data.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Examples
    --------
    >>> from cvxscreen.datasets import two_gaussians
    >>> from cvxscreen.estimators import ScreenedSVC
    >>> model = ScreenedSVC(C=0.1).fit(*two_gaussians(200, 3))
    >>> model.certificates_[0].ok
    True
    """

    _voting, _optional_tolerance = False, True

    def __init__(
        self,
        C: float = 1.0,
        *,
        loss: str = "hinge",
        gamma: float | None = None,
        kernel: str | Callable[[Any, Any], Any] = "linear",
        kernel_params: Mapping[str, float] | None = None,
        fit_intercept: bool = True,
        class_weight: Mapping[Any, float] | str | None = None,
        multi_class: str = "ovr",
        tol: float | None = None,
        mode: str = "certified",
        cache_bytes: int = 2**30,
        time_limit: float | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.C = C
        self.loss = loss
        self.gamma = gamma
        self.kernel = kernel
        self.kernel_params = kernel_params
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.multi_class = multi_class
        self.tol = tol
        self.mode = mode
        self.cache_bytes = cache_bytes
        self.time_limit = time_limit
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Solve the problem, or one for each class or each two classes.

        Parameters
        ----------
        X : array_like or sparse matrix, shape (n, d)
            The square Gram matrix with ``kernel="precomputed"``.
        y : array_like, shape (n,)
            Two or more classes.
        sample_weight : array_like, shape (n,), optional
            Non-negative.

        Returns
        -------
        ScreenedSVC
            The fitted estimator itself.

        Raises
        ------
        InvalidInput
            For one class, or arguments that `cvxscreen.svm` refuses (also a ``ValueError``).
        """
        X, y, weight = self._checked(X, y, sample_weight)
        signs, weight = self._signs(y, weight)
        if self._at_once(X, signs, weight):
            return self
        problems, rows = self._asked(X, signs, weight)
        found = self._all_found(problems)
        self._voting = rows is not None
        self._store(X, problems, [solution.x for solution in found], rows)
        self.certificates_ = tuple(solution.certificate for solution in found)
        self._warn_of_worst(found)
        return self

    def _all_found(self, problems: list[Problem]) -> list[Any]:
        """The solutions: over one large kernel by turns while few of its rows are needed."""
        found: list[Any] = []
        while len({id(p.design.kernel) for p in problems if isinstance(p.design, Gram)}) == 1:
            kernel: Any = problems[0].design.kernel  # type: ignore[attr-defined]
            many = kernel.size <= IN_PLACE or 2 * kernel.known >= kernel.size
            if len(problems) > 1 and many:
                separate = apart(problems)
                if separate[0] is not problems[0]:
                    problems = separate
                    break
            found.append(self._found(problems[0]))
            problems = problems[1:]
        return found + by_threads(self._found, ((problem,) for problem in problems), self.n_jobs)

    def _warn_of_worst(self, found: Sequence[Any]) -> None:
        worst = max(found, key=lambda solution: solution.certificate.relative_gap)
        warn_unless_certified(worst, self._easier, stacklevel=5)

    def _at_once(self, X: Any, signs: list[Array], weight: Array | None) -> bool:
        """Solve several problems over one kernel; whether they are small enough for that.

        What is too large, or not certified, goes through `solve`, as a lone problem does at once.
        """
        n, voting = len(signs[0]), self._by_pairs
        if self._linear or self.time_limit is not None or len(signs) == 1:
            return False
        first, rows = signs[0], [np.arange(n)] * len(signs)
        if voting:
            signs, rows = one_against_one(signs)
        few = [len(some) <= (OF_TWO_CLASSES if voting else AT_ONCE) for some in rows]
        used = weight is None or all(weight[some].any() for some in rows)
        if n > MANY_SAMPLES or not any(few) or not used:
            return False
        cache = int(positive("cache_bytes", self.cache_bytes))
        wide = n > ONE_MATRIX  # too many for the whole matrix, and maybe for the cache of its rows
        if wide and not (DEMAND_CLOCK.bought and has_room(min(cache, 8 * n * n))):
            return False
        tol = self._relative_gap()
        check_request(self.mode, tol)
        whole = self._one(X, first, weight, self.C)
        kernel = cast(Gram, whole.design).kernel
        as_wanted = voting and kernel.function.source is not None
        as_wanted = as_wanted and cache >= 8 * OF_TWO_CLASSES**2
        if not as_wanted and (wide or not all(few) or not kernel.fill()):
            return False
        together = np.flatnonzero(few).tolist()
        parts = KernelParts.of(whole, [rows[k] for k in together], [signs[k] for k in together])
        c, found_intercepts, found_proofs = solve_parts(
            parts, float(tol), lambda solve, all_k: by_threads(solve, zip(all_k), self.n_jobs)
        )
        coefficients, intercepts = np.zeros((len(rows), n)), np.zeros(len(rows))
        proofs: list[Any] = [None] * len(rows)
        for j, k in enumerate(together):
            coefficients[k, rows[k]] = c[parts.terms(j)]
            intercepts[k], proofs[k] = found_intercepts[j], found_proofs[j]
        left = [k for k, proof in enumerate(proofs) if proof is None or not proof.ok]
        problems = (
            self._of_some(X, signs[k], rows[k], weight) if voting else parts.problem(k)
            for k in left
        )
        found = by_threads(self._found, ((problem,) for problem in problems), self.n_jobs)
        for k, solution in zip(left, found, strict=True):
            coefficients[k, rows[k]] = solution.w
            intercepts[k], proofs[k] = solution.intercept, solution.certificate
        self._voting, self.certificates_ = voting, tuple(proofs)
        self._keep_models(X, coefficients, intercepts)
        if found:
            self._warn_of_worst(found)
        return True

    def _of_some(
        self, X: Any, sign: Array, rows: NDArray[np.intp], weight: Array | None
    ) -> Problem:
        """The problem of two classes, on their samples alone."""
        pairwise = self.__sklearn_tags__().input_tags.pairwise
        return self._one(
            X[np.ix_(rows, rows)] if pairwise else X[rows], sign,
            None if weight is None else weight[rows], self.C,
        )

    def _asked(
        self, X: Any, signs: list[Array], weight: Array | None
    ) -> tuple[list[Problem], list[NDArray[np.intp]] | None]:
        """The problems of `multi_class`, and the rows each of them has (None: all)."""
        if not self._by_pairs or len(signs) == 1:
            return self._against_the_rest(X, signs, weight, self.C), None
        signs, rows = one_against_one(signs)
        problems = [
            self._of_some(X, sign, some, weight) for some, sign in zip(rows, signs, strict=True)
        ]
        return problems, rows

    def _problems(
        self, X: Any, y: NDArray[Any], weight: Array | None, C: float
    ) -> list[Problem]:
        """The one-vs-rest problems; sets ``classes_``."""
        signs, weight = self._signs(y, weight)
        return self._against_the_rest(X, signs, weight, C)

    def _against_the_rest(
        self, X: Any, signs: list[Array], weight: Array | None, C: float
    ) -> list[Problem]:
        first = self._one(X, signs[0], weight, C)
        return [first] if len(signs) == 1 else one_against_rest(first, signs)

    def _one(self, X: Any, sign: Array, weight: Array | None, C: float) -> Problem:
        return svm(
            X, sign, C=C, loss=self.loss, gamma=self.gamma, sample_weight=weight,
            **self._options(),
        )

    def _left_out_of(
        self, X: Any, y: Any, weight: Array | None, leaving: int
    ) -> list[Problem]:
        """As of every model; of two classes each, samples of others stay as rows of weight 0."""
        problems = super()._left_out_of(X, y, weight, leaving)
        if len(problems) == 1 or not self._by_pairs:
            return problems
        own = np.searchsorted(self.classes_, y)
        return [
            weighted(problems[j], ((own == i) | (own == j)).astype(float))
            for i, j in pairs(len(self.classes_))
        ]

    def _scores(self, y: NDArray[Any]) -> Scores:
        scores = super()._scores(y)
        return OneVsOneScores(scores.own, len(self.classes_)) if self._by_pairs else scores

    @property
    def _by_pairs(self) -> bool:
        """Whether two classes at a time are asked for."""
        return choice("multi_class", self.multi_class, MULTI_CLASS) == "ovo"

    def _decisions(self, X: Any) -> Array:
        """As of every model; of all pairs of classes, votes and how sure they are."""
        scores = super()._decisions(X)
        return votes(scores, len(self.classes_)) if self._voting else scores


def one_against_one(signs: list[Array]) -> tuple[list[Array], list[NDArray[np.intp]]]:
    """Signs and rows of the samples of each two classes; `signs` are those of each class."""
    rows = [np.flatnonzero((signs[i] > 0) | (signs[j] > 0)) for i, j in pairs(len(signs))]
    own = [signs[j][some] for some, (_, j) in zip(rows, pairs(len(signs)), strict=True)]
    return own, rows


def pairs(classes: int) -> list[tuple[int, int]]:
    """Which classes meet, in the order of scikit-learn's ``SVC``."""
    return list(combinations(range(classes), 2))


def votes(scores: Array, classes: int) -> Array:
    """How often each class wins, shape (m, classes); less than half a vote more for how surely.

    A positive score is one for the second class of a pair.
    """
    won, sure = np.zeros((2, len(scores), classes))
    for score, (i, j) in zip(scores.T, pairs(classes), strict=True):
        won[:, j] += score > 0
        won[:, i] += score <= 0
        sure[:, j] += score
        sure[:, i] -= score
    return won + sure / (3.0 * (np.abs(sure) + 1.0))
