"""What a `Problem` asks of its design and of its quadratic term, whatever they are made of."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Index = NDArray[np.intp] | NDArray[np.bool_]


class Design(Protocol):
    """The linear map from x to the n margins; `Rows` says what each method promises."""

    shape: tuple[int, int]

    @property
    def sparse(self) -> bool:
        """Whether the data are stored as CSR."""
        ...

    @property
    def forward_factor(self) -> float:
        """Relative rounding of `forward`."""
        ...

    @property
    def adjoint_factor(self) -> float:
        """Relative rounding of `adjoint`."""
        ...

    def forward(self, x: ArrayLike) -> Array:
        """``A x``, shape (n,)."""
        ...

    def forward_error(self, x: ArrayLike, sizes: Array) -> Array:
        """Bound of the rounding of ``A x``, shape (n,)."""
        ...

    def forward_precise(self, index: Index, x: ArrayLike) -> tuple[Array, Array]:
        """A few margins in extended precision, with what error is left."""
        ...

    def adjoint(self, theta: ArrayLike) -> Array:
        """``A' theta``, shape (d,)."""
        ...

    def offset(self, x: ArrayLike) -> float:
        """What the design has added to an intercept."""
        ...

    def weighted_squares(self, weights: ArrayLike) -> Array:
        """``sum_j weights_j a_ij^2``, shape (n,)."""
        ...

    def column(self, j: int) -> Array:
        """Coordinate `j` of every row, shape (n,)."""
        ...

    def take_rows(self, index: Index) -> Any:
        """The design made of the rows at `index`."""
        ...

    def take_columns(self, index: Index) -> Any:
        """The design made of the coordinates at `index`."""
        ...

    def dense(self, index: Index | None = None) -> Array:
        """The rows at `index` as a dense array."""
        ...

    def rows_csr(self, index: Index) -> Any:
        """The rows at `index` as CSR."""
        ...

    def weighted_gram(self, index: Index, weights: ArrayLike) -> Array:
        """``A_J' diag(weights) A_J``, dense (d, d)."""
        ...


class Form(Protocol):
    """The quadratic term ``1/2 <x, M x>``; `Quadratic` says what each method promises."""

    @property
    def diagonal(self) -> Array:
        """Diagonal of M, shape (d,)."""
        ...

    @property
    def matrix(self) -> Array | None:
        """A dense part of M."""
        ...

    @property
    def free(self) -> NDArray[np.bool_]:
        """Mask of the unpenalised coordinates."""
        ...

    @property
    def floor(self) -> float:
        """Lower bound of M's eigenvalues on the penalised coordinates."""
        ...

    def apply(self, x: ArrayLike) -> Array:
        """``M x``."""
        ...

    def solve(self, v: ArrayLike) -> Array:
        """``M^{-1} v`` on the penalised coordinates, 0 on the others."""
        ...

    def inner(self, v: ArrayLike, x: ArrayLike) -> float:
        """The value of the functional v at x."""
        ...

    def norm(self, x: ArrayLike) -> float:
        """``sqrt(<x, M x>)``."""
        ...

    def dual_reach(self, v: ArrayLike) -> float:
        """An upper bound of the norm of the functional v in the metric of ``M^{-1}``."""
        ...

    def dual_norms(self, design: Any) -> Array:
        """``||a_i||`` in the metric of ``M^{-1}``, shape (n,)."""
        ...

    def dense(self) -> Array:
        """M as a dense matrix."""
        ...
