"""The one problem class, closed under reduction.

::

    minimise over x with F x + f in K    sum_i f_i(<a_i, x>) + 1/2 <x, M x> + <q, x> + constant

``M`` is a non-negative diagonal, plus an optional dense positive semidefinite matrix. Coordinates
with a zero row in ``M`` are *unpenalised* (an intercept). A reduced problem is again a `Problem`,
so whatever accepts one accepts the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg as sla
from numpy.typing import ArrayLike, NDArray

from cvxscreen.cones import SideConstraints
from cvxscreen.designs.protocols import Design, Form
from cvxscreen.errors import CvxscreenError, InvalidInput
from cvxscreen.losses import Losses
from cvxscreen.rounding import UNIT, gamma
from cvxscreen.tables import fields

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Quadratic:
    """``1/2 <x, M x>`` with ``M = diag(diagonal) + matrix``.

    Parameters
    ----------
    diagonal : array_like, shape (d,)
        Non-negative.
    matrix : array_like, shape (d, d), optional
        Symmetric positive semidefinite; quadratic pieces are folded into it.

    Raises
    ------
    InvalidInput
        If ``M`` is not positive definite on the coordinates it touches.
    """

    diagonal: Array
    matrix: Array | None = None

    def __post_init__(self) -> None:
        diagonal = np.array(self.diagonal, dtype=np.float64)
        if diagonal.ndim != 1 or not np.isfinite(diagonal).all() or (diagonal < 0).any():
            raise InvalidInput("`diagonal` must be a vector of finite, non-negative numbers.")
        object.__setattr__(self, "diagonal", diagonal)
        if self.matrix is not None:
            matrix = np.array(self.matrix, dtype=np.float64)
            d = len(diagonal)
            if matrix.shape != (d, d) or not np.isfinite(matrix).all():
                raise InvalidInput(f"`matrix` must be finite with shape ({d}, {d}).")
            object.__setattr__(self, "matrix", 0.5 * (matrix + matrix.T))
            if self.floor <= 0.0:
                raise InvalidInput(
                    "the quadratic term is not positive definite on the coordinates it touches; "
                    "screening needs strong convexity there."
                )

    @cached_property
    def free(self) -> Mask:
        """Mask of the unpenalised coordinates, shape (d,)."""
        free = self.diagonal == 0.0
        if self.matrix is not None:
            free = free & ~self.matrix.any(axis=0)
        return free

    @cached_property
    def _block(self) -> Array:
        kept = ~self.free
        return self.dense()[np.ix_(kept, kept)]

    @cached_property
    def _factor(self) -> tuple[Array, bool]:
        return sla.cho_factor(self._block, lower=True)

    @cached_property
    def _relative_floor(self) -> float:
        """A lower bound of the smallest eigenvalue of M scaled to a unit diagonal.

        Cholesky's error depends on this number only, not on how the coordinates are scaled.
        """
        diagonal = np.diag(self._block)
        if (diagonal <= 0).any():
            return -1.0
        scale = 1.0 / np.sqrt(diagonal)
        values = np.linalg.eigvalsh(scale[:, None] * self._block * scale)
        return float(values.min()) - 8.0 * len(values) * UNIT * float(np.abs(values).max())

    @cached_property
    def floor(self) -> float:
        """A guaranteed lower bound of M's eigenvalues on the penalised coordinates."""
        kept = ~self.free
        if not kept.any():
            return float("inf")
        lowest = float(self.diagonal[kept].min())
        if self.matrix is None:
            return lowest
        top = float(np.abs(self._block).sum(axis=0).max())
        return max(
            lowest - 8.0 * len(self._block) * UNIT * top,
            self._relative_floor * float(np.diag(self._block).min()),
        )

    def apply(self, x: ArrayLike) -> Array:
        """``M x``."""
        x = np.asarray(x, dtype=np.float64)
        out = self.diagonal * x
        return out if self.matrix is None else out + self.matrix @ x

    def solve(self, v: ArrayLike) -> Array:
        """``M^{-1} v`` on the penalised coordinates, 0 on the others."""
        v = np.asarray(v, dtype=np.float64)
        out = np.zeros_like(v)
        kept = ~self.free
        if not kept.any():
            return out
        if self.matrix is None:
            out[kept] = v[kept] / self.diagonal[kept]
        else:
            out[kept] = sla.cho_solve(self._factor, v[kept])
        return out

    def inner(self, v: ArrayLike, x: ArrayLike) -> float:
        """The value of the functional v at x: ``v' x``, unless coordinates mean something else."""
        return float(np.asarray(v) @ np.asarray(x))

    def dual_reach(self, v: ArrayLike) -> float:
        """An upper bound of ``||v||`` in the metric of ``M^{-1}``, penalised coordinates only."""
        return float(np.linalg.norm(np.asarray(v)[~self.free]) / np.sqrt(self.floor))

    def norm(self, x: ArrayLike) -> float:
        """``sqrt(<x, M x>)``."""
        x = np.asarray(x, dtype=np.float64)
        return float(np.sqrt(max(float(x @ self.apply(x)), 0.0)))

    def dual_norms(self, design: Design) -> Array:
        """``||a_i||`` in the metric of ``M^{-1}`` over the penalised coordinates, shape (n,)."""
        kept = ~self.free
        if self.matrix is None:
            weights = np.where(kept, 1.0 / np.where(kept, self.diagonal, 1.0), 0.0)
            return np.sqrt(design.weighted_squares(weights))
        rows = design.take_columns(np.flatnonzero(kept)).dense()
        plain = np.sqrt(np.einsum("ij,ij->i", rows, rows) / self.floor)
        half = sla.solve_triangular(self._factor[0], rows.T, lower=True, check_finite=False)
        norms = np.sqrt(np.einsum("ij,ij->j", half, half))
        # Cholesky's backward error (Higham, Theorem 10.3), relative in the metric of M^-1.
        d = rows.shape[1]
        error = 4.0 * d * gamma(d + 2) / max(self._relative_floor, 1e-300)
        return np.asarray(np.minimum(norms * (1.0 + error), plain * (1.0 + gamma(d + 4))))

    def dense(self) -> Array:
        """``M`` as a dense matrix."""
        full = np.diag(self.diagonal)
        return full if self.matrix is None else full + self.matrix

    def take(self, index: NDArray[np.intp]) -> Quadratic:
        """The quadratic restricted to the coordinates at `index`."""
        matrix = None if self.matrix is None else self.matrix[np.ix_(index, index)]
        return Quadratic(self.diagonal[index], matrix)


_EXPORTERS: dict[str, Callable[[Problem], Any]] = {}


def register_exporter(name: str, build: Callable[[Problem], Any]) -> None:
    """Let `build` serve ``Problem.to_<name>``; called once by the layer that can build it."""
    _EXPORTERS[name] = build


@dataclass(frozen=True, eq=False)
class Problem:
    """A regularised problem; see the module's docstring for the equation.

    Parameters
    ----------
    design : Design
        The rows ``a_i``, shape (n, d).
    losses : Losses
        The n terms ``f_i``, weights included.
    quadratic : Form
    linear : array_like, shape (d,)
    constant : float
    side : SideConstraints, optional
        Constraints every reduction keeps.
    C : float
        The factor already inside `losses` that `with_` changes.
    kind : str
        A word for tables ("svm", "regression", "cvxpy", ...).
    drift : float
        Bound on the rounding error of `linear` in the dual norm, inherited from a reduction.
    imbalance : float
        The same for each unpenalised coordinate of `linear`.
    """

    design: Design
    losses: Losses
    quadratic: Form
    linear: Array
    constant: float = 0.0
    side: SideConstraints | None = None
    C: float = 1.0
    kind: str = "problem"
    drift: float = 0.0
    imbalance: float = 0.0

    def __post_init__(self) -> None:
        n, d = self.design.shape
        linear = np.array(self.linear, dtype=np.float64)
        object.__setattr__(self, "linear", linear)
        if len(self.losses) != n:
            raise InvalidInput(f"`losses` has {len(self.losses)} rows but `design` has {n}.")
        if linear.shape != (d,) or not np.isfinite(linear).all():
            raise InvalidInput(f"`linear` must be finite with shape ({d},); found {linear.shape}.")
        if len(self.quadratic.diagonal) != d:
            raise InvalidInput(
                f"`quadratic` has {len(self.quadratic.diagonal)} coordinates, `design` has {d}."
            )
        if not np.isfinite(self.constant):
            raise InvalidInput(f"`constant` is {self.constant}; a finite number is needed.")
        if self.side is not None and self.side.matrix.shape[1] != d:
            raise InvalidInput(
                f"`side` acts on {self.side.matrix.shape[1]} coordinates; the problem has {d}."
            )

    @property
    def n(self) -> int:
        """Number of loss terms."""
        return self.design.shape[0]

    @property
    def d(self) -> int:
        """Number of coordinates."""
        return self.design.shape[1]

    @cached_property
    def norms(self) -> Array:
        """``||a_i||`` in the metric of ``M^{-1}``, penalised coordinates only, shape (n,)."""
        return self.quadratic.dual_norms(self.design)

    @cached_property
    def sizes(self) -> Array:
        """Euclidean ``||a_i||`` over all coordinates, shape (n,); used for rounding only."""
        plain = self.quadratic.matrix is None and not self.quadratic.free.any()
        if plain and (self.quadratic.diagonal == 1.0).all():
            return self.norms
        return np.sqrt(self.design.weighted_squares(np.ones(self.d)))

    @cached_property
    def noise_norms(self) -> Array:
        """``|| |a_i| ||`` in the metric of ``M^{-1}`` or an upper bound of it, shape (n,)."""
        if self.quadratic.matrix is None:
            return self.norms
        return self.sizes / np.sqrt(self.quadratic.floor)

    @cached_property
    def free_columns(self) -> Array:
        """The design's unpenalised coordinates, shape (n, m)."""
        free = np.flatnonzero(self.quadratic.free)
        if not len(free):
            return np.zeros((self.n, 0))
        return np.column_stack([self.design.column(int(j)) for j in free])

    def primal(self, x: ArrayLike, margins: ArrayLike | None = None) -> float:
        """The objective at `x` (side constraints are not checked)."""
        x = np.asarray(x, dtype=np.float64)
        t = self.design.forward(x) if margins is None else margins
        smooth = self.quadratic.inner(0.5 * self.quadratic.apply(x) + self.linear, x)
        return float(np.sum(self.losses.value(t))) + smooth + self.constant

    def with_(self, *, C: float) -> Problem:
        """The same problem with every loss weight multiplied by ``C / self.C``."""
        if not (np.isfinite(C) and C > 0):
            raise InvalidInput(f"`C` is {C!r}; a positive finite number is needed.")
        changed = replace(self, losses=self.losses.scaled(C / self.C), C=float(C))
        for name in ("norms", "sizes", "noise_norms", "free_columns"):
            changed.__dict__[name] = getattr(self, name)
        return changed

    def to_cvxpy(self) -> Any:
        """Return the problem as a ``cvxpy.Problem`` in one vector variable."""
        if "cvxpy" not in _EXPORTERS:
            raise CvxscreenError("import cvxscreen.reducer before calling `to_cvxpy`.")
        return _EXPORTERS["cvxpy"](self)

    def __str__(self) -> str:
        free = int(self.quadratic.free.sum())
        return fields(
            [
                ("terms", self.n),
                ("coordinates", self.d),
                ("unpenalised", free),
                ("storage", "CSR" if self.design.sparse else "dense"),
                ("side constraints", 0 if self.side is None else len(self.side.offset)),
                ("C", float(self.C)),
            ],
            title=f"Problem ({self.kind})",
        )
