"""Relaxed alternating structure optimisation (rASO): tasks that share a subspace, convexly.

::

    minimise  sum_l 1/n_l sum_i phi(x_i' u_l + b_l, y_i)  +  c tr(U' (eta I + M)^{-1} U)
    over      U (d x m),  b (m),  M in {M = M', tr M = h, 0 <= M <= I}
    with      c = alpha eta (1 + eta),   eta = beta / alpha

(Chen, Tang, Liu, Ye 2013, (64), for the hinge loss.) The intercepts are not penalised. Losses are
those of `cvxscreen.core.losses`, in the prediction ``x' u + b``; one table holds them for all
tasks. The shared matrix ``M`` is kept with its eigenvalues, and says what a task sees of it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.extensions import supplied
from cvxscreen._support.immutable import Immutable
from cvxscreen._support.tables import Record, fields
from cvxscreen._support.validation import array, positive, whole
from cvxscreen.core.losses import Losses, LossTerms
from cvxscreen.core.problem import Problem, Quadratic
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput
from cvxscreen.multitask.prox import capped_simplex, spectral_box_norm_factor

Array = NDArray[np.float64]


class TaskMetric(Immutable):
    """The shared matrix ``M = P diag(g) P'``, ``0 <= g <= 1``, and the metric it gives every task.

    A task is penalised by ``c u' A^{-1} u``, ``A = eta I + M``.

    Attributes
    ----------
    P : array, shape (d, d)
        Orthogonal.
    g : array, shape (d,)
    eta, c : float
    """

    P: Array
    g: Array
    eta: float
    c: float

    @classmethod
    def projected(cls, M: ArrayLike, h: float, eta: float, c: float) -> TaskMetric:
        """The feasible matrix nearest to `M`."""
        M = array("M", M)
        if M.ndim != 2 or M.shape[0] != M.shape[1] or not np.isfinite(M).all():
            raise InvalidInput(f"`M` must be a finite square matrix; found shape {M.shape}.")
        values, vectors = np.linalg.eigh(0.5 * (M + M.T))
        return cls(vectors, capped_simplex(values, h), eta, c)

    @classmethod
    def minimiser(cls, U: Array, h: float, eta: float, c: float) -> TaskMetric:
        """The minimiser of ``tr(U' (eta I + M)^{-1} U)``: the M-step."""
        P, g = spectral_box_norm_factor(U, eta, h)
        return cls(P, g, eta, c)

    @classmethod
    def ridge(cls, d: int, weight: float) -> TaskMetric:
        """``B = I / weight``, of the separate penalty ``weight/2 ||u||^2``."""
        return cls(np.eye(d), np.zeros(d), 1.0, 0.5 * weight)

    def _with_eigenvalues(self, weights: Array) -> Array:
        """``P diag(weights) P'``, symmetric to the last bit."""
        out = (self.P * weights) @ self.P.T
        return 0.5 * (out + out.T)

    @cached_property
    def M(self) -> Array:
        """The matrix itself, shape (d, d)."""
        return self._with_eigenvalues(self.g)

    @cached_property
    def inverse(self) -> Array:
        """``(eta I + M)^{-1}``, shape (d, d)."""
        return self._with_eigenvalues(1.0 / (self.eta + self.g))

    @cached_property
    def root(self) -> Array:
        """A square root of `B`: ``B = root root'``, shape (d, d)."""
        return self.P * np.sqrt((self.eta + self.g) / (2.0 * self.c))

    @cached_property
    def B(self) -> Array:
        """``A / (2 c)``: a task's ``u`` is ``B v``."""
        return self.root @ self.root.T

    @cached_property
    def quadratic(self) -> Quadratic:
        """The quadratic term of a task with its intercept last: ``2 c (eta I + M)^{-1}`` and 0."""
        d = len(self.g)
        matrix = np.zeros((d + 1, d + 1))
        matrix[:d, :d] = 2.0 * self.c * self.inverse
        return Quadratic(np.zeros(d + 1), matrix)

    def penalty(self, U: Array) -> float:
        """``c tr(U' A^{-1} U)``; also of a vector."""
        weights = 1.0 / (self.eta + self.g)
        return self.c * float(np.sum((self.P.T @ U).T ** 2 * weights))


class MultiTask(Record, Immutable):
    """The joint problem; see the module's docstring for the equation.

    Attributes
    ----------
    X : tuple of arrays, shapes (n_l, d)
    y : tuple of arrays, shapes (n_l,)
    losses : Losses
        Of all tasks, one after the other, in the prediction; weights ``1/n_l`` included.
    sign : array, shape (n,)
        ``alpha = -sign * theta``: labels for a classification loss, ones for regression.
    h : int
        Dimension of the shared subspace, 1 to d.
    alpha, beta : float
        Positive; the penalty outside and inside the shared subspace is ``alpha`` and ``beta``.
    loss : str
        Name of the loss.

    Examples
    --------
    >>> import numpy as np, cvxscreen
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(30, 4)) for _ in range(3)]
    >>> tasks = [(A, np.where(A[:, 0] > 0, 1.0, -1.0)) for A in X]
    >>> problem = cvxscreen.raso(tasks, h=1, alpha=0.1, beta=0.01)
    >>> print(problem)
    MultiTask problem (rASO)
      tasks               3
      samples             90
      samples of a task   30
      features            4
      shared dimension h  1
      alpha               0.1
      beta                0.01
      loss                hinge
    """

    X: tuple[Array, ...]
    y: tuple[Array, ...]
    losses: LossTerms
    sign: Array
    h: int
    alpha: float
    beta: float
    loss: str

    def __post_init__(self) -> None:
        d = self.d
        for name in ("alpha", "beta"):
            object.__setattr__(self, name, positive(name, getattr(self, name)))
        whole = isinstance(self.h, int | np.integer) and not isinstance(self.h, bool)
        if not whole or not 1 <= self.h <= d:
            raise InvalidInput(
                f"`h` is {self.h!r}; a whole number between 1 and the number of features, {d}, "
                "is needed."
            )
        object.__setattr__(self, "h", int(self.h))
        if not 1e-12 <= self.eta <= 1e12:
            raise InvalidInput(
                f"`beta` / `alpha` is {self.eta:.3g}; a ratio between 1e-12 and 1e12 is needed."
            )

    @property
    def bounds(self) -> tuple[str, ...]:
        """Names of the bounds that screen a U-step; no ball holds the joint optimum."""
        return ("midpoint",)

    @property
    def m(self) -> int:
        """Number of tasks."""
        return len(self.X)

    @property
    def d(self) -> int:
        """Number of features."""
        return self.X[0].shape[1]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Samples of each task."""
        return tuple(len(X) for X in self.X)

    @property
    def n(self) -> int:
        """Samples of all tasks."""
        return sum(self.sizes)

    @property
    def eta(self) -> float:
        """``beta / alpha``."""
        return self.beta / self.alpha

    @property
    def c(self) -> float:
        """``alpha eta (1 + eta)``, used once, outside the trace."""
        return self.alpha * self.eta * (1.0 + self.eta)

    @property
    def smooth(self) -> bool:
        """Whether every loss term is differentiable."""
        return bool((self.losses.q > 0).all())

    @cached_property
    def parts(self) -> tuple[slice, ...]:
        """Where each task's samples are in arrays over all of them."""
        ends = np.cumsum((0, *self.sizes))
        return tuple(slice(int(a), int(b)) for a, b in pairwise(ends))

    @cached_property
    def task_losses(self) -> tuple[Losses, ...]:
        """The loss table of each task."""
        index = np.arange(self.n)
        return tuple(self.losses.take(index[part]) for part in self.parts)

    @cached_property
    def designs(self) -> tuple[Rows, ...]:
        """Each task's samples with a column of ones for the intercept."""
        return tuple(Rows(X, None, np.ones((len(X), 1))) for X in self.X)

    def split(self, values: Array) -> tuple[Array, ...]:
        """An array over all samples, task by task."""
        return tuple(values[part] for part in self.parts)

    def predictions(self, U: ArrayLike, b: ArrayLike) -> Array:
        """``x' u_l + b_l`` of every sample, shape (n,)."""
        U, b = np.asarray(U, dtype=np.float64), np.asarray(b, dtype=np.float64)
        return np.concatenate([X @ U[:, k] + b[k] for k, X in enumerate(self.X)])

    def minus_adjoint(self, theta: Array) -> Array:
        """``V``, column l is ``-X_l' theta_l``, shape (d, m)."""
        parts = self.split(theta)
        return np.column_stack([-(part @ X) for X, part in zip(self.X, parts, strict=True)])

    def primal(self, U: ArrayLike, b: ArrayLike, M: ArrayLike) -> float:
        """The objective (whether `M` is feasible is not checked)."""
        U = np.asarray(U, dtype=np.float64)
        A = self.eta * np.eye(self.d) + np.asarray(M, dtype=np.float64)
        loss = float(np.sum(self.losses.value(self.predictions(U, b))))
        return loss + self.c * float(np.sum(U * np.linalg.solve(A, U)))

    def metric(self, M: ArrayLike) -> TaskMetric:
        """``M`` with its eigenvalues, projected onto the feasible set."""
        return TaskMetric.projected(M, self.h, self.eta, self.c)

    def flat_metric(self) -> TaskMetric:
        """``(h/d) I``: no direction is preferred."""
        weights = np.full(self.d, self.h / self.d)
        return TaskMetric(np.eye(self.d), weights, self.eta, self.c)

    def start_metric(self) -> TaskMetric:
        """Between ``(h/d) I`` and the M-step of ridge regressions on the targets.

        Inside the set: no direction is given up.
        """
        share = self.h / self.d
        ridge = 0.2 * self.c / (self.eta + share)
        U = np.empty((self.d, self.m))
        for k, (X, losses) in enumerate(zip(self.X, self.task_losses, strict=True)):
            rows = X - X.mean(axis=0)
            gram = rows.T @ rows / len(X)
            gram.ravel()[:: self.d + 1] += ridge
            U[:, k] = np.linalg.solve(gram, (losses.b - losses.b.mean()) @ rows / len(X))
        guess = TaskMetric.minimiser(U, self.h, self.eta, self.c)
        return TaskMetric(guess.P, 0.8 * guess.g + 0.2 * share, self.eta, self.c)

    def check_task(self, name: str, index: int) -> None:
        """Refuse what is no number of a task."""
        if whole(name, index, 0) >= self.m:
            raise InvalidInput(f"`{name}` is {index}; there are tasks 0 to {self.m - 1}.")

    def task(self, index: int, M: ArrayLike | TaskMetric) -> Problem:
        """Task `index` at a fixed `M` as a problem of its own, the intercept last.

        ``min 1/n sum phi + c u' (eta I + M)^{-1} u``: everything that takes a `Problem` (bounds,
        screening, reduction, CVXPY export) takes it.
        """
        self.check_task("index", index)
        metric = M if isinstance(M, TaskMetric) else self.metric(M)
        design, linear = self.designs[index], np.zeros(self.d + 1)
        return Problem(design, self.task_losses[index], metric.quadratic, linear, kind="rASO task")

    def with_(
        self, *, h: int | None = None, alpha: float | None = None, beta: float | None = None
    ) -> MultiTask:
        """The same tasks with other parameters."""
        return replace(
            self,
            h=self.h if h is None else h,
            alpha=self.alpha if alpha is None else alpha,
            beta=self.beta if beta is None else beta,
        )

    def to_cvxpy(self) -> Any:
        """The joint semidefinite problem as a ``cvxpy.Problem`` (variables ``U``, ``b``, ``M``)."""
        return supplied("cvxpy.multitask")(self)

    def __str__(self) -> str:
        low, high = min(self.sizes), max(self.sizes)
        return fields(
            [
                ("tasks", self.m),
                ("samples", self.n),
                ("samples of a task", low if low == high else f"{low} to {high}"),
                ("features", self.d),
                ("shared dimension h", self.h),
                ("alpha", self.alpha),
                ("beta", self.beta),
                ("loss", self.loss),
            ],
            title="MultiTask problem (rASO)",
        )
