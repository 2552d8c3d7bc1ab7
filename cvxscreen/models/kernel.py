"""Kernels by name, by matrix or by function, and decisions for new points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg as sla
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from cvxscreen._support.rounding import gamma as rounding
from cvxscreen._support.validation import choice, named_numbers, number, positive
from cvxscreen.designs.gram import (
    CHUNK,
    Called,
    Gram,
    GramForm,
    Kernel,
    KernelFunction,
    Polynomial,
    Precomputed,
    Rbf,
)
from cvxscreen.designs.rows import Rows
from cvxscreen.errors import InvalidInput, quoted
from cvxscreen.models.samples import some_rows
from cvxscreen.solvers.solution import Solution

Array = NDArray[np.float64]
KernelChoice = str | Callable[[Any, Any], Any]

CHECKED_WHOLE = 3000
"""Gram matrices up to this size are factorised to see that they are positive semidefinite."""
TOLERANCE = 1e-8
"""Negative eigenvalues up to this share of the largest diagonal entry are taken for rounding."""
_DENSE_BYTES = 2**28
"""Up to so many, sparse points are written out: products of dense rows are one call of BLAS."""
_PARAMETERS = {
    "linear": (), "poly": ("gamma", "coef0", "degree"), "rbf": ("gamma",),
    "sigmoid": ("gamma", "coef0"), "laplacian": ("gamma",), "chi2": ("gamma",), "cosine": (),
}


@dataclass(frozen=True)
class KernelSetting:
    """What `svm` and `regression` were asked for.

    Attributes
    ----------
    kernel : str or callable
        ``"precomputed"``, one of scikit-learn's pairwise kernels, or ``k(A, B) -> matrix``.
    params : mapping or None
        Parameters of a named kernel (``gamma``, ``coef0``, ``degree``).
    cache_bytes : int
        Most that is spent on stored kernel rows.
    """

    kernel: KernelChoice
    params: Mapping[str, float] | None = None
    cache_bytes: int = 2**30

    def terms(self, X: Any, sign: ArrayLike | None, intercept: bool) -> tuple[Gram, GramForm]:
        """Return the design and the quadratic term of a kernel problem on `X`."""
        kernel = Kernel(self.function(X), int(positive("cache_bytes", self.cache_bytes)))
        design = Gram(kernel, sign, intercept)
        return design, GramForm(Gram(kernel, None, intercept))

    def function(self, X: Any) -> KernelFunction:
        """Return the kernel function on `X`; what is not known to be one is checked."""
        name = known_kernel(self.kernel)
        if name == "precomputed":
            self._no_params("precomputed")
            return _precomputed(X)
        points = _points(X)
        if callable(name):
            self._no_params("a function")
            return checked(Called(points, name), "the kernel function's matrix")
        given = named_numbers("kernel_params", self.params)
        unknown = set(given) - set(_PARAMETERS[name])
        if unknown:
            raise InvalidInput(
                f"`kernel_params` holds {sorted(unknown)}; the {name} kernel takes "
                f"{list(_PARAMETERS[name])}."
            )
        return _named(name, points, given)

    def _no_params(self, what: str) -> None:
        if self.params:
            raise InvalidInput(f"`kernel_params` goes with a named kernel, not with {what}.")


def known_kernel(kernel: KernelChoice) -> KernelChoice:
    """A kernel function, or the name of a kernel as the table here spells it.

    Raises
    ------
    UnknownName
    """
    return kernel if callable(kernel) else choice("kernel", kernel, ("precomputed", *_PARAMETERS))


def check_kernel_arguments(kernel: object, params: object, loss: str, gamma: object) -> None:
    """Refuse arguments that were meant for a kernel and would not reach one."""
    if kernel is None and params:
        raise InvalidInput(
            f"`kernel_params` is {quoted(params)} but there is no `kernel`; name one, like 'rbf'."
        )
    if kernel is not None and gamma is not None and "smoothed" not in str(loss):
        raise InvalidInput(
            f"`gamma` is {quoted(gamma)}, the corner width of a smoothed loss, which {loss!r} is "
            "not; the kernel's goes to `kernel_params={'gamma': ...}`."
        )


def _points(X: Any) -> Any:
    """`X` as a float64 array, or as CSR where that would be large; never the caller's memory."""
    matrix = Rows(X).matrix
    some_rows(*matrix.shape)
    if sp.issparse(matrix):
        if 8 * matrix.shape[0] * matrix.shape[1] > _DENSE_BYTES:
            return sp.csr_matrix(matrix, dtype=np.float64, copy=True)
        matrix = matrix.toarray()
    return np.array(matrix, dtype=np.float64, order="C")


def _named(name: str, points: Any, given: dict[str, float]) -> KernelFunction:
    if "gamma" in _PARAMETERS[name]:
        default = 1.0 if name == "chi2" else 1.0 / points.shape[1]
        given["gamma"] = positive("gamma` of `kernel_params", given.get("gamma", default))
    if name == "rbf":
        return Rbf(points, given["gamma"])
    if name == "linear":
        return Polynomial(points)
    if name == "poly":
        degree = number("degree` of `kernel_params", given.get("degree", 3))
        coef0 = number("coef0` of `kernel_params", given.get("coef0", 1.0))
        if not degree.is_integer() or degree < 1 or not 0 <= coef0 < np.inf:
            raise InvalidInput(
                f"`degree` is {degree:g} and `coef0` {coef0:g}; a positive semidefinite polynomial "
                "kernel needs a positive whole degree and coef0 >= 0."
            )
        return Polynomial(points, given["gamma"], coef0, int(degree))
    if "coef0" in given:
        given["coef0"] = number("coef0` of `kernel_params", given["coef0"])
    from sklearn.metrics.pairwise import pairwise_kernels

    def function(left: Any, right: Any) -> Any:
        return pairwise_kernels(left, right, metric=name, **given)

    # Differences are taken directly: the error is that of a sum over the coordinates.
    made = Called(points, function, rounding(4 * points.shape[1] + 32))
    return checked(made, f"the {name} kernel's matrix") if name == "sigmoid" else made


def _precomputed(X: Any) -> KernelFunction:
    """A Gram matrix after the checks that can be made."""
    if sp.issparse(X):
        raise InvalidInput('`X` is sparse; kernel="precomputed" needs the dense Gram matrix.')
    matrix = Rows(X).matrix
    some_rows(*matrix.shape)
    if matrix.shape[0] != matrix.shape[1]:
        raise InvalidInput(
            f'`X` has shape {matrix.shape}; kernel="precomputed" needs the square Gram matrix of '
            "the training points."
        )
    return checked(Precomputed(matrix), "the Gram matrix `X`")


def checked(function: Precomputed | Called, what: str) -> KernelFunction:
    """Refuse a kernel that is not symmetric positive semidefinite, as far as can be seen.

    Symmetry, the sign of the diagonal and ``k_ij^2 <= k_ii k_jj`` are checked for every pair of a
    given matrix. Up to `CHECKED_WHOLE` points the matrix is factorised, which decides up to
    `TOLERANCE`; beyond, a principal block of that many random points is, and the quadratic form is
    tried on random vectors: a matrix that is indefinite elsewhere can pass. For functions of more
    points the pairs of the block are checked only.
    """
    n = function.size
    diagonal = function.diagonal
    top = float(diagonal.max())
    if (diagonal < 0).any():
        i = int(np.argmin(diagonal))
        raise InvalidInput(f"{what} has the negative diagonal entry {diagonal[i]:.3g} at {i}.")
    rng = np.random.default_rng(0)
    few = np.sort(rng.permutation(n)[:CHECKED_WHOLE])
    given = isinstance(function, Precomputed)
    asymmetry = _pairs(function, np.arange(n) if given else few, diagonal, what)
    block = function.block(few, few)
    block = 0.5 * (block + block.T)
    block[np.diag_indices(len(few))] += TOLERANCE * top + 1e-300
    try:
        sla.cholesky(block, lower=True, overwrite_a=True, check_finite=False)
    except sla.LinAlgError:
        raise InvalidInput(_indefinite(what)) from None
    if n > CHECKED_WHOLE and given:
        vectors = rng.choice([-1.0, 1.0], size=(n, 8))
        value = np.zeros(8)
        for start in range(0, n, CHUNK):
            rows = np.arange(start, min(start + CHUNK, n))
            value += np.sum(vectors[rows] * (function.block(rows) @ vectors), axis=0)
        if (value < -TOLERANCE * top * n).any():
            raise InvalidInput(_indefinite(what))
    if isinstance(function, Precomputed):
        return Precomputed(function.matrix, asymmetry)
    return Called(function.points, function.function, max(function.error, asymmetry))


def _indefinite(what: str) -> str:
    return (
        f"{what} has negative eigenvalues, so there is no feature space and the problem is not "
        "convex. Use a positive semidefinite kernel, or clip the spectrum first."
    )


def _pairs(function: KernelFunction, chosen: NDArray[np.intp], diagonal: Array, what: str) -> float:
    """Largest relative asymmetry; refuses a visible one and pairs beyond Cauchy-Schwarz."""
    roots = np.sqrt(diagonal[chosen])
    floor = 1e-150 + TOLERANCE * float(roots.max(initial=0.0))
    worst = 0.0
    for first in range(0, len(chosen), 2 * CHUNK):
        a = slice(first, first + 2 * CHUNK)
        for second in range(first, len(chosen), 2 * CHUNK):
            b = slice(second, second + 2 * CHUNK)
            block = function.block(chosen[a], chosen[b])
            other = function.block(chosen[b], chosen[a]).T
            size = np.maximum(roots[a], floor)[:, None] * np.maximum(roots[b], floor)
            worst = max(worst, float((np.abs(block - other) / size).max()))
            if worst > TOLERANCE:
                raise InvalidInput(f"{what} is not symmetric.")
            if (np.abs(block) > size * (1.0 + TOLERANCE)).any():
                raise InvalidInput(_indefinite(what))
    return worst


def decision_function(solution: Solution, X_new: Any) -> Array:
    """``<z, w> + b`` for new points z, shape (m,).

    Parameters
    ----------
    solution : Solution
        Of a kernel problem.
    X_new : array_like, shape (m, d)
        New points; with ``kernel="precomputed"`` their kernel values with all N training points,
        shape (m, N).

    Raises
    ------
    InvalidInput
        For a solution of another kind of problem, or points of another width.
    """
    design = solution.problem.design
    if not isinstance(design, Gram):
        raise InvalidInput("`solution` does not belong to a kernel problem.")
    function = design.kernel.function
    points = Rows(X_new, name="X_new").matrix
    width = function.size if isinstance(function, Precomputed) else function.points.shape[1]  # type: ignore[attr-defined]
    if points.shape[1] != width:
        raise InvalidInput(f"`X_new` has {points.shape[1]} columns; {width} are needed.")
    if sp.issparse(points) and isinstance(getattr(function, "points", None), np.ndarray):
        points = points.toarray()
    c = solution.x[: function.size]
    used = np.flatnonzero(c)
    out = np.full(points.shape[0], solution.intercept)
    for start in range(0, len(out), CHUNK):
        part = points[start : start + CHUNK].astype(np.float64)
        out[start : start + CHUNK] += function.cross(part)[:, used] @ c[used]
    return out


def kernel_between(
    kernel: KernelChoice, params: Mapping[str, float] | None, X_new: Any, points: Any
) -> Array:
    """Kernel values of new points with known ones, shape (len(X_new), len(points)).

    Parameters
    ----------
    kernel : str or callable
        A name or a function, as in `svm`; for ``"precomputed"`` there is nothing to evaluate.
    params : mapping, optional
        As ``kernel_params`` of `svm`; defaults are those of the training points' width.
    X_new, points : array_like or sparse matrix, shapes (m, d) and (N, d)
    """
    new = Rows(X_new, name="X_new").matrix
    if not points.shape[0]:
        return np.zeros((new.shape[0], 0))
    known = _points(points)
    function = (
        Called(known, kernel)
        if callable(kernel)
        else KernelSetting(kernel, params).function(known)
    )
    if sp.issparse(new) and not sp.issparse(known):
        new = new.toarray()
    out = np.empty((new.shape[0], function.size))
    for start in range(0, len(out), CHUNK):
        out[start : start + CHUNK] = function.cross(new[start : start + CHUNK].astype(np.float64))
    return out
