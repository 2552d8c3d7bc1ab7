"""What the package asks of a design and of a quadratic term, whatever they are made of.

A design is the linear map ``x -> (<a_1, x>, ..., <a_n, x>)`` with a bound of its own rounding; a
form is ``1/2 <x, M x>``. `Problem` takes any two that answer `Design` and `Form`; what some designs
know beyond that (rows of numbers, a kernel, pairs of points, a source of chunks) is asked by their
class, where it is needed.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Index = NDArray[np.intp] | NDArray[np.bool_]


@runtime_checkable
class LinearMap(Protocol):
    """The two passes over the data; by them a design is told from a bare matrix."""

    def forward(self, x: ArrayLike) -> Array:
        """``A x``, shape (n,)."""
        ...

    def adjoint(self, theta: ArrayLike) -> Array:
        """``A' theta``, shape (d,)."""
        ...


@runtime_checkable
class Metric(Protocol):
    """The matrix M as a map and its inverse; by them a form is told from a bare matrix."""

    def apply(self, x: ArrayLike) -> Array:
        """``M x``, shape (d,)."""
        ...

    def solve(self, v: ArrayLike) -> Array:
        """``M^{-1} v`` on the penalised coordinates, 0 on the others, shape (d,)."""
        ...


class Design(LinearMap, Protocol):
    """The rows ``a_i`` of a problem, n of them with d coordinates."""

    shape: tuple[int, int]
    """``(n, d)``."""

    # -- what kind of design ------------------------------------------------------------------

    @property
    def sparse(self) -> bool:
        """Whether the data are stored as CSR."""
        ...

    @property
    def streamed(self) -> bool:
        """Whether a pass reads the data anew, so that no array over the terms is made unasked."""
        ...

    @property
    def centred(self) -> bool:
        """Whether rows are as short already as an unpenalised coordinate can make them."""
        ...

    @property
    def reach(self) -> Array | None:
        """What the rounding of a row's products is relative to, shape (n,); None: ``||a_i||``."""
        ...

    # -- rounding -----------------------------------------------------------------------------

    @property
    def forward_factor(self) -> float:
        """Rounding of `forward`, relative to ``||a_i|| ||x||`` (or `reach`)."""
        ...

    @property
    def adjoint_factor(self) -> float:
        """Rounding of `adjoint`, relative to ``sum_i |a_ij theta_i|`` in every column."""
        ...

    def forward_error(self, x: ArrayLike, sizes: Array) -> Array:
        """``|computed - exact|`` of `forward` at most, shape (n,); `sizes` are ``||a_i||``."""
        ...

    def forward_precise(self, index: Index, x: ArrayLike) -> tuple[Array, Array]:
        """``<a_i, x>`` of the k rows at `index` in extended precision, and its error: two (k,)."""
        ...

    # -- norms and small matrices -------------------------------------------------------------

    def offset(self, x: ArrayLike) -> float:
        """What the design has added to an intercept, to be taken off before it is shown."""
        ...

    def weighted_squares(self, weights: ArrayLike) -> Array:
        """``sum_j weights_j a_ij^2`` for `weights` of shape (d,); shape (n,)."""
        ...

    def column(self, j: int) -> Array:
        """Coordinate `j` of every row, shape (n,)."""
        ...

    def weighted_gram(self, index: Index | None, weights: ArrayLike) -> Array:
        """``A_J' diag(weights) A_J``, shape (d, d); J are k rows (None: all), `weights` (k,)."""
        ...

    def dense(self, index: Index | None = None) -> Array:
        """The k rows at `index` (all when omitted), shape (k, d)."""
        ...

    def rows_csr(self, index: Index) -> Any:
        """The k rows at `index` as CSR float64, shape (k, d)."""
        ...

    # -- closed under taking rows and columns -------------------------------------------------

    def take_rows(self, index: Index) -> Any:
        """The design of the rows at `index`: integers in any order, or a mask."""
        ...

    def take_columns(self, index: Index) -> Any:
        """The design of the coordinates at `index`, in the order of the columns."""
        ...


class Form(Metric, Protocol):
    """The quadratic term ``1/2 <x, M x>``, M positive definite but on unpenalised coordinates."""

    @property
    def diagonal(self) -> Array:
        """The diagonal part of M, shape (d,)."""
        ...

    @property
    def matrix(self) -> Array | None:
        """The dense part of M, shape (d, d); None where M is its diagonal."""
        ...

    @property
    def free(self) -> NDArray[np.bool_]:
        """Mask of the unpenalised coordinates, shape (d,)."""
        ...

    @property
    def floor(self) -> float:
        """Lower bound of M's eigenvalues on the penalised coordinates."""
        ...

    def inner(self, v: ArrayLike, x: ArrayLike) -> float:
        """The value of the functional v at x; ``v' x`` unless coordinates mean something else."""
        ...

    def norm(self, x: ArrayLike) -> float:
        """``sqrt(<x, M x>)``."""
        ...

    def dual_reach(self, v: ArrayLike) -> float:
        """Upper bound of the norm of the functional v in the metric of ``M^{-1}``."""
        ...

    def dual_norms(self, design: Any) -> Array:
        """``||a_i||`` in the metric of ``M^{-1}``, penalised coordinates only, shape (n,)."""
        ...

    def dense(self) -> Array:
        """M as a dense matrix, shape (d, d)."""
        ...
